//! The kernels' sources, which are part of the binary, and which kernels each holds.

/// A source file and its kernels.
#[derive(Clone, Copy, Debug)]
pub struct Module {
    /// The file's name in `kernels/cuda`.
    pub file: &'static str,
    /// Its text.
    pub source: &'static str,
    /// The kernels it defines.
    pub kernels: &'static [&'static str],
}

macro_rules! text {
    ($file:literal) => {
        include_str!(concat!("../../cuda/", $file))
    };
}

macro_rules! module {
    ($file:literal: $($kernel:literal),+) => {
        Module { file: $file, source: text!($file), kernels: &[$($kernel),+] }
    };
}

/// Files that the sources include, with their texts.
pub const HEADERS: [(&str, &str); 4] = [
    ("machine.cuh", text!("machine.cuh")),
    ("maths.cuh", text!("maths.cuh")),
    ("reduce.cuh", text!("reduce.cuh")),
    ("tile.cuh", text!("tile.cuh")),
];

/// All kernels. Their names are unique.
pub const MODULES: [Module; 13] = [
    module!("attention.cu": "attention_f32", "attention_bf16", "attention_merge"),
    module!("conv1d.cu": "conv1d_f32", "conv1d_bf16", "conv1d_blocks", "depthwise_conv1d"),
    module!("conv2d.cu": "conv2d_f32", "conv2d_bf16", "conv2d_blocks"),
    module!("elementwise.cu": "add", "mul", "scale", "activate", "silu_mul", "silu_mul_halves", "snake", "to_bf16", "to_f32", "finish"),
    module!("kv.cu": "kv_append_f32", "kv_append_bf16"),
    module!("linear.cu": "linear_f32", "linear_bf16", "linear_blocks"),
    module!("norm.cu": "rms_norm", "layer_norm", "group_parts", "group_mean", "group_apply"),
    module!("pick.cu": "top_k"),
    module!("rope.cu": "rope"),
    module!("rows.cu": "gather_f32", "gather_bf16", "copy_columns", "transpose"),
    module!("softmax.cu": "softmax", "log_softmax"),
    module!("stft.cu": "stft_frames", "mel_logs", "greatest", "mel_floor"),
    module!("voice.cu": "normal", "voice_spectrum"),
];

/// Returns the module that defines a kernel.
pub(super) fn module_of(kernel: &str) -> Option<&'static Module> {
    MODULES.iter().find(|module| module.kernels.contains(&kernel))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Names after `KERNEL(..)` in a source.
    fn defined(source: &str) -> BTreeSet<&str> {
        let heads = source.split("\nKERNEL(").skip(1);
        heads.filter_map(|head| head.split(") ").nth(1)?.split('(').next()).collect()
    }

    #[test]
    fn every_kernel_of_a_source_is_listed_and_no_other() {
        for module in &MODULES {
            let listed: BTreeSet<&str> = module.kernels.iter().copied().collect();
            assert_eq!(listed, defined(module.source), "{}", module.file);
        }
    }

    #[test]
    fn names_are_unique_and_headers_known() {
        let names: Vec<&str> = MODULES.iter().flat_map(|m| m.kernels).copied().collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        let texts = MODULES.iter().map(|m| m.source).chain(HEADERS.map(|(_, text)| text));
        for include in texts.flat_map(|text| text.split("#include \"").skip(1)) {
            let name = include.split('"').next().unwrap_or_default();
            assert!(name.starts_with("shim/") || HEADERS.iter().any(|(known, _)| *known == name), "{name}");
        }
    }
}
