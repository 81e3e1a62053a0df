//! The network in the file's own blocks, beside float32: close, alike in `q8` and `q4`, and the same bits however a text
//! is cut.

#![expect(clippy::unwrap_used, reason = "a test that finds nothing there has failed")]

use mstar_contract::{DecodeBatch, DecodeRow};
use mstar_kernels::ops::KvSize;
use mstar_kernels::{Cx, DType, KvPages, Precision};
use mstar_smollm2::Network;
use mstar_weights::{Cache, Silent, WeightFile, pull};

/// "What is the capital of France?" as a chat, in this vocabulary's tokens.
const TEXT: [u32; 16] = [1, 4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2, 198, 1, 520, 9531, 198];

/// Reads the text in pieces of these lengths and returns the logits behind its last token.
fn logits(file: &WeightFile, precision: Precision, pieces: &[usize]) -> Vec<f32> {
    let cx = Cx::with_threads(2).unwrap();
    let network = Network::load(file, precision, &cx).unwrap();
    let config = network.config();
    let (layers, heads, head_dim) = (config.layers, config.kv_heads, config.head_dim);
    let dtype = if precision == Precision::F32 { DType::F32 } else { DType::BF16 };
    let mut kv = KvPages::new(KvSize { layers, pages: 2, heads, head_dim }, dtype).unwrap();
    let (mut at, mut last) = (0, Vec::new());
    for &piece in pieces {
        let tokens = &TEXT[at..at + piece];
        let row = DecodeRow { tokens: 0..piece, position: at, pages: &[0, 1], cross: None, logits: true };
        let batch = DecodeBatch { tokens, rows: &[row] };
        last = network.forward(&cx, &batch, &mut kv, &mut |_, _| Ok(())).unwrap().f32s().unwrap().to_vec();
        at += piece;
    }
    assert_eq!(at, TEXT.len());
    last
}

fn apart(a: &[f32], b: &[f32]) -> f64 {
    let norm = |x: &mut dyn Iterator<Item = f32>| x.map(|x| f64::from(x).powi(2)).sum::<f64>().sqrt();
    norm(&mut a.iter().zip(b).map(|(a, b)| a - b)) / norm(&mut b.iter().copied())
}

#[test]
fn logits_of_blocks_are_near_those_of_float32() {
    let weights = pull("smollm2", &Cache::in_target_dir(), &mut Silent).unwrap();
    let file = WeightFile::open(weights.path()).unwrap();
    let exact = logits(&file, Precision::F32, &[16]);
    let (eight, four) = (logits(&file, Precision::Q8, &[16]), logits(&file, Precision::Q4, &[16]));
    assert!(eight == four, "the file has blocks: neither precision rounds them again");
    let (blocks, bf16) = (apart(&eight, &exact), apart(&logits(&file, Precision::Bf16, &[16]), &exact));
    // Activations of eight bits make 0.047 of it with fused multiply-add, bf16 0.006.
    assert!(blocks < 0.08 && bf16 < 0.02, "apart from float32: blocks {blocks}, bf16 {bf16}");
    assert!(eight == logits(&file, Precision::Q8, &[1, 4, 1, 9, 1]), "a text that is cut gives other bits");
}
