//! Files that lie, break or end early: always an answer, never a panic, never memory without bound.

use std::io::Cursor;

use hound::{SampleFormat, WavSpec, WavWriter};
use mstar_media::{AudioFormat, Limits, MediaError, decode_audio, encode, resample};

const MP3: &[u8] = include_bytes!("samples/tone.mp3");
const OGG: &[u8] = include_bytes!("samples/tone.ogg");
const LIMITS: Limits = Limits { max_seconds: 5, max_bytes: 1 << 20 };

fn noise(count: usize) -> Vec<f32> {
    let mut random = Random(7);
    (0..count).map(|_| random.next() as f32 / u32::MAX as f32 - 0.5).collect()
}

/// A small generator of repeatable numbers (xorshift).
struct Random(u32);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        self.next() as usize % end
    }
}

fn float_wav(samples: &[f32]) -> Vec<u8> {
    let spec = WavSpec { channels: 1, sample_rate: 8000, bits_per_sample: 32, sample_format: SampleFormat::Float };
    let mut bytes = Cursor::new(Vec::new());
    let mut writer = WavWriter::new(&mut bytes, spec).expect("a valid spec");
    for &sample in samples {
        writer.write_sample(sample).expect("in memory");
    }
    writer.finalize().expect("in memory");
    bytes.into_inner()
}

fn valid_files() -> Vec<(&'static str, Vec<u8>)> {
    let samples = noise(3000);
    let encoded = |format| encode(format, &samples, 8000).expect("plain samples");
    vec![
        ("wav", encoded(AudioFormat::Wav)),
        ("float wav", float_wav(&samples)),
        ("flac", encoded(AudioFormat::Flac)),
        ("mp3", MP3.to_vec()),
        ("ogg", OGG.to_vec()),
    ]
}

/// Decodes and resamples; what comes out must keep its promises.
fn answer(bytes: &[u8]) -> Result<(), MediaError> {
    let audio = decode_audio(bytes, &LIMITS)?;
    assert!(!audio.samples.is_empty());
    assert!(audio.seconds() <= 5.0);
    assert!(audio.samples.iter().all(|sample| (-1.0..=1.0).contains(sample)));
    let resampled = resample(&audio, 16_000)?;
    assert!(resampled.samples.iter().all(|sample| sample.is_finite()));
    Ok(())
}

#[test]
fn every_truncation_has_an_answer() {
    for (name, bytes) in valid_files() {
        answer(&bytes).unwrap();
        for end in (0..bytes.len()).step_by(bytes.len() / 150 + 1) {
            let result = answer(&bytes[..end]);
            if ["wav", "float wav", "flac"].contains(&name) {
                assert!(result.is_err(), "{name} cut at {end} is taken as whole");
            }
        }
    }
}

#[test]
fn random_changes_have_an_answer() {
    let mut random = Random(42);
    for (_, bytes) in valid_files() {
        for round in 0..300 {
            let mut changed = bytes.clone();
            // Every other round hits the headers, where the lies about sizes are.
            let reach = if round % 2 == 0 { 64 } else { changed.len() };
            for _ in 0..=random.below(8) {
                let at = random.below(reach);
                changed[at] = [0, 0xff, 0x7f, 0x80, random.next() as u8][random.below(5)];
            }
            let _ = answer(&changed);
        }
    }
}

#[test]
fn random_bytes_behind_a_true_magic_have_an_answer() {
    let mut random = Random(3);
    let magics: [&[u8]; 5] =
        [b"RIFF\x00\x10\x00\x00WAVEfmt ", b"fLaC\x00\x00\x00\x22", b"OggS\x00", b"ID3\x04", b"\xff\xfb\x90"];
    for magic in magics {
        for _ in 0..100 {
            let mut bytes = magic.to_vec();
            bytes.extend((0..random.below(2000)).map(|_| random.next() as u8));
            let _ = answer(&bytes);
        }
    }
}

fn check(bytes: &[u8], expected: &str) {
    let said = answer(bytes).expect_err(expected).to_string();
    assert!(said.contains(expected), "{said:?} does not say {expected:?}");
}

#[test]
fn lies_are_named() {
    let wav = encode(AudioFormat::Wav, &noise(1000), 8000).unwrap();
    let with = |at: usize, value: u32| {
        let mut changed = wav.clone();
        changed[at..at + 4].copy_from_slice(&value.to_le_bytes());
        changed
    };
    check(&[], "no samples");
    check(b"hello, this is no audio at all", "not WAV, FLAC, MP3 or Ogg Vorbis");
    check(&with(24, 0), "audio");
    check(&with(24, u32::MAX), "sample rate");
    check(&with(40, 1 << 30), "chunk length exceeds");
    let mut both = with(40, 1 << 30);
    both[4..8].copy_from_slice(&((1u32 << 30) + 36).to_le_bytes());
    check(&both, "it ends after 1000 of 536870912 samples");
    check(&wav[..44], "it ends after 0 of 1000 samples");
    check(&float_wav(&[0.0, f32::NAN, 0.0]), "not a number");
    check(&encode(AudioFormat::Wav, &[], 8000).unwrap(), "no samples");
}

#[test]
fn floats_beyond_all_measure_are_clipped() {
    let audio = decode_audio(&float_wav(&[1e30, f32::INFINITY, f32::NEG_INFINITY, -0.5]), &LIMITS).unwrap();
    assert_eq!(audio.samples, [1.0, 1.0, -1.0, -0.5]);
}

#[test]
fn a_small_flac_of_a_long_silence_meets_the_time_limit() {
    let flac = encode(AudioFormat::Flac, &vec![0.0; 8000 * 60], 8000).unwrap();
    assert!(flac.len() < 10_000, "{} bytes", flac.len());
    assert_eq!(decode_audio(&flac, &LIMITS), Err(MediaError::TooLong { max_seconds: 5 }));
}
