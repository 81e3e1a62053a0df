//! The network and the sound on the real weights, against the reference in `golden/` (see its README).

#![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::sync::{Arc, OnceLock};

use mstar_hibari::net::{Acoustic, Decoder, Held, Speech, Speller};
use mstar_hibari::text::{Guess, Reader};
use mstar_hibari::{Sound, Vocoder, blocks};
use mstar_kernels::{Cx, Precision, Tensor};
use mstar_weights::{Cache, ModelDir, Silent, WeightFile, pull};
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

/// The model's parts and the reference, loaded once for all tests of this file.
struct Bench {
    cx: Cx,
    acoustic: Acoustic,
    decoder: Decoder,
    vocoder: Vocoder,
    speller: Arc<Speller>,
    reader: Reader,
    golden: Vec<u8>,
    rows: Value,
}

fn bench() -> &'static Bench {
    static BENCH: OnceLock<Bench> = OnceLock::new();
    BENCH.get_or_init(|| {
        let dir: ModelDir = pull("hibari", &Cache::in_target_dir(), &mut Silent).expect("the package can be had");
        let file = dir.weights().unwrap();
        let cx = Cx::with_threads(2).unwrap();
        let letters = WeightFile::open(&dir.file("oov.safetensors")).unwrap();
        let speller = Arc::new(Speller::load(&cx, &letters, &dir.file("oov.json")).unwrap());
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/golden");
        Bench {
            acoustic: Acoustic::load(&file, Precision::F32).unwrap(),
            decoder: Decoder::load(&file, Precision::F32).unwrap(),
            vocoder: Vocoder::load(&file, Precision::F32).unwrap(),
            reader: Reader::new(Arc::clone(&speller) as Arc<dyn Guess>),
            speller,
            golden: std::fs::read(format!("{folder}/hibari.safetensors")).unwrap(),
            rows: serde_json::from_slice(&std::fs::read(format!("{folder}/hibari.json")).unwrap()).unwrap(),
            cx,
        }
    })
}

impl Bench {
    fn floats(&self, name: &str) -> Vec<f32> {
        let file = SafeTensors::deserialize(&self.golden).unwrap();
        let view = file.tensor(name).unwrap();
        assert_eq!(view.dtype(), Dtype::F32);
        view.data().as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
    }

    fn integers(&self, name: &str) -> Vec<i64> {
        let file = SafeTensors::deserialize(&self.golden).unwrap();
        let data = file.tensor(name).unwrap().data().to_vec();
        data.as_chunks::<8>().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect()
    }

    fn speak(&self, sentence: usize) -> Speech {
        let ids: Vec<u32> = self.integers(&format!("s{sentence}.ids")).iter().map(|id| *id as u32).collect();
        self.acoustic.run(&self.cx, &ids, 1.0).unwrap()
    }

    fn sound(&self, speech: &Speech, sentence: u32, seed: Option<u64>) -> Vec<f32> {
        let mut sound = Sound::default();
        let blocks = blocks(&self.cx, speech, sentence).unwrap();
        blocks.iter().flat_map(|block| self.vocoder.render(&self.cx, &mut sound, block, seed).unwrap()).collect()
    }

    /// The same sentence as one block, without any cut.
    fn whole_sound(&self, speech: &Speech, sentence: u32, seed: Option<u64>) -> Vec<f32> {
        let mut block = blocks(&self.cx, speech, sentence).unwrap().remove(0);
        let total = speech.f0.len();
        let pitch = Tensor::from_slice(&speech.f0, [total, 1]).unwrap();
        block.rows = mstar_kernels::ops::concat_columns(&self.cx, &[&speech.frames, &pitch]).unwrap();
        block.end = total;
        self.vocoder.render(&self.cx, &mut Sound::default(), &block, seed).unwrap()
    }
}

fn worst(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn durations_are_exact_and_pitch_is_within_a_thousandth() {
    let bench = bench();
    for i in 0..bench.rows.as_array().unwrap().len() {
        let speech = bench.speak(i);
        let durations: Vec<i64> = speech.durations.iter().map(|d| *d as i64).collect();
        assert_eq!(durations, bench.integers(&format!("s{i}.dur")), "sentence {i}");
        let wanted = bench.floats(&format!("s{i}.f0"));
        let largest = wanted.iter().fold(0.0, |a: f32, b| a.max(b.abs()));
        let off = worst(&speech.f0, &wanted);
        assert!(off <= 1e-3 * largest, "sentence {i}: {off} of {largest}");
    }
}

#[test]
fn spectra_are_within_a_thousandth() {
    let bench = bench();
    for i in 0..bench.rows.as_array().unwrap().len() {
        let speech = bench.speak(i);
        let total = speech.f0.len();
        let head = bench.decoder.run(&bench.cx, &mut Held::default(), &speech.frames, true).unwrap();
        let head = head.f32s().unwrap();
        // [5, 38, F] of the reference: five parts, every sixteenth of their 601 bins, frames.
        let places = (0..5).flat_map(|part| (0..38).flat_map(move |bin| (0..total).map(move |f| (part, 16 * bin, f))));
        let found: Vec<f32> = places.map(|(part, bin, frame)| head[frame * 3005 + part * 601 + bin]).collect();
        let wanted = bench.floats(&format!("s{i}.head_every16"));
        let off = worst(&found, &wanted);
        println!("sentence {i}: head off by {off}");
        assert!(off <= 1e-3, "sentence {i}: {off}");
    }
}

#[test]
fn the_sound_without_noise_is_the_reference_sound() {
    let bench = bench();
    for i in 0..2 {
        let off = worst(&bench.sound(&bench.speak(i), 0, None), &bench.floats(&format!("s{i}.wav_nonoise")));
        println!("sentence {i}: sound off by {off}");
        assert!(off <= 1e-4, "sentence {i}: {off}");
    }
}

#[test]
fn streamed_sound_is_the_whole_sound() {
    let bench = bench();
    for i in [1, 2] {
        let speech = bench.speak(i);
        let streamed = bench.sound(&speech, 3, Some(42));
        assert_eq!(streamed.len(), 300 * speech.f0.len());
        assert_eq!(streamed, bench.whole_sound(&speech, 3, Some(42)), "bit for bit");
        assert!(worst(&streamed, &bench.sound(&speech, 4, Some(42))) > 1e-3, "noise differs between sentences");
    }
}

#[test]
fn a_block_out_of_turn_is_refused() {
    let bench = bench();
    let blocks = blocks(&bench.cx, &bench.speak(1), 0).unwrap();
    let render = |sound: &mut Sound, i: usize| bench.vocoder.render(&bench.cx, sound, &blocks[i], None);
    let mut sound = Sound::default();
    assert!(render(&mut sound, 1).is_err());
    render(&mut sound, 0).unwrap();
    assert!(render(&mut sound, 2).is_err());
    render(&mut sound, 1).unwrap();
}

#[test]
fn most_sentences_read_as_the_reference_reads_them() {
    let bench = bench();
    let (mut same, mut all) = (0, 0);
    for row in bench.rows.as_array().unwrap() {
        let (text, wanted) = (row["text"].as_str().unwrap(), row["phonemes"][0].as_str().unwrap());
        let reading = bench.reader.read(text);
        println!("{text}\n  {wanted}\n  {}", reading.phonemes);
        assert_eq!(reading.unread, "");
        let found: Vec<&str> = reading.phonemes.split(' ').collect();
        all += wanted.split(' ').count();
        same += wanted.split(' ').filter(|word| found.contains(word)).count();
    }
    assert!(same * 100 >= all * 95, "{same} of {all} words");
}

#[test]
fn unknown_words_are_spelled() {
    let spell = |word: &str| bench().speller.guess(word);
    assert_eq!(spell("Zyxqwort").as_deref(), Some("zˈɪkskwɔɹt"));
    assert_eq!(spell("kubernetes").as_deref(), Some("kjˈubəɹnˌits"));
    assert!(spell(&"ab".repeat(40)).is_some());
    assert_eq!(spell("中"), None);
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() })]

    #[test]
    fn any_text_can_be_read(text in "\\PC{0,40}|[a-zA-Z0-9$€%.,:'/’&@\"() -]{0,60}") {
        let reading = bench().reader.read(&text);
        proptest::prop_assert!(reading.parts.iter().all(|ids| (3..=482).contains(&ids.len())));
        proptest::prop_assert!(reading.parts.iter().flatten().all(|id| *id < 178));
    }
}
