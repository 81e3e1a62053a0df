//! Small files of every format: read right when whole, refused with a reason when not.

use std::path::Path;

use mstar_weights::{DType, Format, MetaValue, RawTensor, WeightFile, WeightsError, write_safetensors};

// --- small valid files ---

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

/// A GGUF with five settings, a half-precision matrix and a quantised row.
fn gguf() -> Vec<u8> {
    let mut out = b"GGUF\x03\0\0\0".to_vec();
    out.extend([2u64, 5].iter().flat_map(|n| n.to_le_bytes()));
    let mut key = |name: &str, kind: u32, value: &[u8]| {
        text(&mut out, name);
        out.extend(kind.to_le_bytes());
        out.extend(value);
    };
    key("general.alignment", 4, &64u32.to_le_bytes());
    key("rate", 6, &0.5f32.to_le_bytes());
    key("yes", 7, &[1]);
    key(
        "ids",
        9,
        &[&5u32.to_le_bytes()[..], &2u64.to_le_bytes(), &(-3i32).to_le_bytes(), &9i32.to_le_bytes()].concat(),
    );
    let mut words = [&8u32.to_le_bytes()[..], &2u64.to_le_bytes()].concat();
    text(&mut words, "héllo");
    text(&mut words, "");
    key("words", 9, &words);
    let mut entry = |name: &str, dims: &[u64], kind: u32, offset: u64| {
        text(&mut out, name);
        out.extend((dims.len() as u32).to_le_bytes());
        out.extend(dims.iter().flat_map(|d| d.to_le_bytes()));
        out.extend(kind.to_le_bytes());
        out.extend(offset.to_le_bytes());
    };
    entry("half", &[2, 1], 1, 0);
    entry("row", &[32], 8, 64);
    out.resize(out.len().next_multiple_of(64), 0);
    out.extend([0x00, 0x3c, 0x00, 0xc0]); // 1.0, -2.0
    out.resize(out.len().next_multiple_of(64), 0);
    out.extend([0x00, 0x38]); // a scale of 0.5
    out.extend(0..32u8);
    out
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn tensor(name: &str, shape: &[usize], dtype: DType, bytes: &[u8]) -> RawTensor {
    RawTensor { name: name.into(), shape: shape.to_vec(), dtype, bytes: bytes.to_vec().into() }
}

fn safetensors() -> Vec<u8> {
    let dir = folder();
    let path = dir.path().join("a.safetensors");
    let floats: Vec<u8> = [1.5f32, -2.0].iter().flat_map(|v| v.to_le_bytes()).collect();
    let tensors = [
        tensor("a", &[2], DType::F32, &floats),
        tensor("b", &[1, 2], DType::BF16, &[0x80, 0x3f, 0x00, 0xc0]),
        tensor("c", &[3], DType::I8, &[0xff, 0, 7]),
    ];
    write_safetensors(&path, &tensors).expect("a writable folder");
    std::fs::read(&path).expect("the file just written")
}

/// A field of a protobuf message.
fn field(out: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    out.extend([number << 3 | 2, bytes.len() as u8]);
    out.extend(bytes);
}

/// An ONNX graph with one raw initialiser, one of listed floats and one of listed bytes.
fn onnx() -> Vec<u8> {
    let mut raw = vec![1 << 3, 1, 1 << 3, 2, 2 << 3, 1]; // dims 1, 2; type f32
    field(&mut raw, 8, b"raw");
    field(&mut raw, 9, &[0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0]);
    let mut listed = vec![2 << 3, 1];
    field(&mut listed, 1, &[1]);
    field(&mut listed, 8, b"listed");
    field(&mut listed, 4, &2.5f32.to_le_bytes());
    let mut bytes = vec![2 << 3, 3, 1 << 3, 1];
    field(&mut bytes, 8, b"bytes");
    field(&mut bytes, 5, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]); // -1
    let mut graph = Vec::new();
    for initialiser in [raw, listed, bytes] {
        field(&mut graph, 5, &initialiser);
    }
    let mut model = vec![1 << 3, 8];
    field(&mut model, 7, &graph);
    model
}

/// A CTranslate2 Whisper of one layer a side and width two, all weights 1, key biases 0.
fn ct2() -> Vec<u8> {
    let mut variables: Vec<(String, Vec<u32>, f32)> = Vec::new();
    let mut put = |name: String, shape: &[u32], value: f32| variables.push((name, shape.to_vec(), value));
    let norm = |put: &mut dyn FnMut(String, &[u32], f32), name: String| {
        put(format!("{name}/gamma"), &[2], 1.0);
        put(format!("{name}/beta"), &[2], 1.0);
    };
    for conv in ["conv1", "conv2"] {
        put(format!("encoder/{conv}/weight"), &[2, 2, 3], 1.0);
        put(format!("encoder/{conv}/bias"), &[2], 1.0);
    }
    put("decoder/embeddings/weight".into(), &[5, 2], 1.0);
    for side in ["encoder", "decoder"] {
        put(format!("{side}/position_encodings/encodings"), &[4, 2], 1.0);
        norm(&mut put, format!("{side}/layer_norm"));
        let layer = format!("{side}/layer_0");
        let mut linears = vec![("self_attention/linear_0", 6), ("self_attention/linear_1", 2)];
        linears.extend([("ffn/linear_0", 2), ("ffn/linear_1", 2)]);
        norm(&mut put, format!("{layer}/self_attention/layer_norm"));
        norm(&mut put, format!("{layer}/ffn/layer_norm"));
        if side == "decoder" {
            linears.extend([("attention/linear_0", 2), ("attention/linear_1", 4), ("attention/linear_2", 2)]);
            norm(&mut put, format!("{layer}/attention/layer_norm"));
        }
        for (linear, rows) in linears {
            put(format!("{layer}/{linear}/weight"), &[rows, 2], 1.0);
            put(format!("{layer}/{linear}/bias"), &[rows], 0.0);
        }
    }
    let name = |out: &mut Vec<u8>, name: &str| {
        out.extend((name.len() as u16 + 1).to_le_bytes());
        out.extend(name.as_bytes());
        out.push(0);
    };
    let mut out = 6u32.to_le_bytes().to_vec();
    name(&mut out, "WhisperSpec");
    out.extend([3u32, variables.len() as u32].iter().flat_map(|n| n.to_le_bytes()));
    for (variable, shape, value) in variables {
        name(&mut out, &variable);
        out.push(shape.len() as u8);
        out.extend(shape.iter().flat_map(|d| d.to_le_bytes()));
        let count: u32 = shape.iter().product();
        out.push(0);
        out.extend((count * 4).to_le_bytes());
        out.extend((0..count).flat_map(|_| value.to_le_bytes()));
    }
    out.extend(0u32.to_le_bytes());
    out
}

fn open(format: Format, bytes: Vec<u8>) -> WeightFile {
    WeightFile::from_bytes(format, bytes).expect("a valid file")
}

// --- whole files ---

#[test]
fn gguf_settings_and_tensors_are_read() {
    let file = open(Format::Gguf, gguf());
    assert_eq!(file.meta("rate").unwrap().as_f32(), Some(0.5));
    assert_eq!(file.meta("yes"), Some(&MetaValue::Bool(true)));
    assert_eq!(file.meta("ids").unwrap().as_ints(), Some(&[-3, 9][..]));
    assert_eq!(file.meta("words").unwrap().as_strs().unwrap(), ["héllo", ""]);
    assert_eq!(file.to_f32("half").unwrap(), (vec![1.0, -2.0], vec![1, 2]));
    let expected: Vec<f32> = (0..32).map(|i| i as f32 / 2.0).collect();
    assert_eq!(file.f32_of("row", &[32]).unwrap(), expected);
    let error = file.f32_of("row", &[4, 8]).unwrap_err();
    assert_eq!(error.to_string(), r#"tensor "row" has shape [32], expected [4, 8]"#);
    assert!(matches!(file.tensor("absent"), Err(WeightsError::Missing { .. })));
}

#[test]
fn safetensors_keep_type_and_shape() {
    let file = open(Format::Safetensors, safetensors());
    assert_eq!(file.to_f32("a").unwrap(), (vec![1.5, -2.0], vec![2]));
    assert_eq!(file.to_f32("b").unwrap(), (vec![1.0, -2.0], vec![1, 2]));
    assert_eq!(file.tensor("b").unwrap().dtype, DType::BF16);
    assert_eq!(file.tensor("c").unwrap().to_i64(), Some(vec![-1, 0, 7]));
}

#[test]
fn onnx_initialisers_are_read_raw_or_listed() {
    let file = open(Format::Onnx, onnx());
    assert_eq!(file.to_f32("raw").unwrap(), (vec![1.0, -2.0], vec![1, 2]));
    assert_eq!(file.to_f32("listed").unwrap(), (vec![2.5], vec![1]));
    assert_eq!(file.tensor("bytes").unwrap().to_i64(), Some(vec![-1]));
}

#[test]
fn ct2_appears_under_hugging_faces_names() {
    let file = open(Format::Ct2, ct2());
    assert_eq!(file.tensor("model.decoder.layers.0.encoder_attn.v_proj.weight").unwrap().shape, [2, 2]);
    assert!(file.get("model.encoder.layers.0.self_attn.q_proj.bias").is_some());
    assert!(file.get("model.encoder.layers.0.self_attn.k_proj.bias").is_none());
}

#[test]
fn shards_are_joined_and_never_sought_elsewhere() {
    let dir = folder();
    let shard = |file: &str, name: &str| {
        write_safetensors(&dir.path().join(file), &[tensor(name, &[1], DType::U8, &[7])]).unwrap();
    };
    shard("one.safetensors", "a");
    shard("two.safetensors", "b");
    let index = |map: &str| {
        std::fs::write(dir.path().join("model.safetensors.index.json"), format!(r#"{{"weight_map":{map}}}"#)).unwrap();
        WeightFile::open(dir.path())
    };
    let file = index(r#"{"a":"one.safetensors","b":"two.safetensors"}"#).unwrap();
    assert_eq!(file.tensors().map(|t| t.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    let missing = index(r#"{"a":"one.safetensors","b":"one.safetensors"}"#).unwrap_err();
    assert!(matches!(missing, WeightsError::Missing { name, .. } if name == "b"));
    for elsewhere in ["../one.safetensors", "/etc/passwd", "", "..", "c:x"] {
        let error = index(&format!(r#"{{"a":"{elsewhere}"}}"#)).unwrap_err();
        assert!(matches!(error, WeightsError::Malformed { .. }), "{elsewhere}: {error}");
    }
}

#[test]
fn quantised_and_ragged_tensors_are_not_written() {
    let path = folder().path().join("x.safetensors");
    let q = mstar_weights::GgmlQ::Q8_0;
    assert!(write_safetensors(&path, &[tensor("q", &[32], DType::GgmlQ(q), &[0; 34])]).is_err());
    assert!(write_safetensors(&path, &[tensor("short", &[4], DType::F32, &[0; 3])]).is_err());
}

#[test]
fn absent_files_are_named() {
    let error = WeightFile::open(Path::new("/nowhere/model.gguf")).unwrap_err();
    assert_eq!(error.to_string(), "cannot access /nowhere/model.gguf");
}

// --- broken files ---

fn valid_files() -> [(Format, Vec<u8>); 4] {
    [(Format::Gguf, gguf()), (Format::Safetensors, safetensors()), (Format::Onnx, onnx()), (Format::Ct2, ct2())]
}

/// Opens and reads everything; it need not succeed, but it must come back.
fn touch(format: Format, bytes: Vec<u8>) -> Result<(), WeightsError> {
    let size = bytes.len();
    let file = WeightFile::from_bytes(format, bytes)?;
    for tensor in file.tensors() {
        assert!(tensor.bytes.len() <= size);
        assert_eq!(tensor.to_f32().len(), tensor.elements());
    }
    Ok(())
}

#[test]
fn every_truncation_is_refused() {
    for (format, bytes) in valid_files() {
        touch(format, bytes.clone()).unwrap();
        for end in 0..bytes.len() {
            let error = touch(format, bytes[..end].to_vec()).expect_err("a file cut short");
            assert!(matches!(error, WeightsError::Malformed { .. }), "{format} cut at {end}: {error}");
        }
    }
}

#[test]
fn random_changes_never_panic() {
    let mut state = 0x2545_f491u32;
    let mut random = |end: usize| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as usize % end
    };
    for (format, bytes) in valid_files() {
        for _ in 0..3000 {
            let mut changed = bytes.clone();
            for _ in 0..=random(6) {
                let at = random(changed.len());
                changed[at] = [0, 1, 0x7f, 0x80, 0xff, random(256) as u8][random(6)];
            }
            let _ = touch(format, changed);
            let noise = (0..random(200)).map(|_| random(256) as u8).collect();
            let _ = touch(format, noise);
        }
    }
}

#[test]
fn announced_sizes_are_not_believed() {
    let gguf_with = |tensors: u64, settings: u64, rest: &[u8]| {
        [&b"GGUF\x03\0\0\0"[..], &tensors.to_le_bytes(), &settings.to_le_bytes(), rest].concat()
    };
    let mut long_list = Vec::new();
    text(&mut long_list, "k");
    long_list.extend([9u32.to_le_bytes(), 8u32.to_le_bytes()].concat());
    long_list.extend((u64::MAX / 2).to_le_bytes());
    let mut vast = Vec::new();
    text(&mut vast, "t");
    vast.extend(2u32.to_le_bytes());
    vast.extend([u64::MAX / 2, 4].iter().flat_map(|d| d.to_le_bytes()));
    vast.extend([0; 64]);
    let header = [&(u64::MAX / 2).to_le_bytes()[..], b"{}"].concat();
    let message = vec![7 << 3 | 2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0];
    let variables = [&6u32.to_le_bytes()[..], &[1, 0, 0], &[0; 4], &u32::MAX.to_le_bytes()].concat();
    for (format, bytes) in [
        (Format::Gguf, gguf_with(u64::MAX, 0, &[])),
        (Format::Gguf, gguf_with(0, u64::MAX, &[])),
        (Format::Gguf, gguf_with(0, 1, &u64::MAX.to_le_bytes())),
        (Format::Gguf, gguf_with(0, 1, &long_list)),
        (Format::Gguf, gguf_with(1, 0, &vast)),
        (Format::Safetensors, header),
        (Format::Onnx, message),
        (Format::Ct2, variables),
    ] {
        let error = touch(format, bytes.clone()).expect_err("a lie");
        assert!(matches!(error, WeightsError::Malformed { .. }), "{format} {bytes:?}: {error}");
    }
}
