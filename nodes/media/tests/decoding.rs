//! Every format, rate and sample width we accept, against the tone that was encoded.

use std::f64::consts::TAU;
use std::io::Cursor;

use hound::{SampleFormat, WavSpec, WavWriter};
use mstar_media::{Audio, AudioFormat, Limits, MediaError, decode_audio, encode, pcm16_bytes, resample, wav_header};

const MP3: &[u8] = include_bytes!("samples/tone.mp3");
const OGG: &[u8] = include_bytes!("samples/tone.ogg");

fn decode(bytes: &[u8]) -> Result<Audio, MediaError> {
    decode_audio(bytes, &Limits::default())
}

fn tone(hertz: f32, rate: u32, count: usize) -> Vec<f32> {
    let turn = TAU * f64::from(hertz) / f64::from(rate);
    (0..count).map(|i| 0.5 * (turn * i as f64).sin() as f32).collect()
}

fn wav(bits: u16, rate: u32, channels: &[&[f32]]) -> Vec<u8> {
    let sample_format = if bits == 0 { SampleFormat::Float } else { SampleFormat::Int };
    let bits_per_sample = if bits == 0 { 32 } else { bits };
    let spec = WavSpec { channels: channels.len() as u16, sample_rate: rate, bits_per_sample, sample_format };
    let mut bytes = Cursor::new(Vec::new());
    let mut writer = WavWriter::new(&mut bytes, spec).expect("a valid spec");
    for i in 0..channels[0].len() {
        for channel in channels {
            let sample = channel[i];
            match bits {
                0 => writer.write_sample(sample).expect("in memory"),
                _ => {
                    let full = (1i64 << (bits - 1)) as f64;
                    let value = (f64::from(sample) * full).round().clamp(-full, full - 1.0);
                    writer.write_sample(value as i32).expect("in memory");
                }
            }
        }
    }
    writer.finalize().expect("in memory");
    bytes.into_inner()
}

/// The largest difference of two signals, away from their ends.
fn difference(a: &[f32], b: &[f32], margin: usize) -> f32 {
    let count = a.len().min(b.len());
    let inner = margin..count - margin;
    a[inner.clone()].iter().zip(&b[inner]).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

/// How strongly a frequency sounds: the amplitude of its sine.
fn strength(samples: &[f32], hertz: f32, rate: u32) -> f32 {
    let (mut re, mut im) = (0.0f64, 0.0f64);
    for (i, &sample) in samples.iter().enumerate() {
        let phase = TAU * f64::from(hertz) * i as f64 / f64::from(rate);
        re += f64::from(sample) * phase.cos();
        im += f64::from(sample) * phase.sin();
    }
    (2.0 * re.hypot(im) / samples.len() as f64) as f32
}

#[test]
fn wav_of_every_width_and_rate_is_decoded_exactly() {
    for (bits, tolerance) in [(8, 1.0 / 127.0), (16, 1e-4), (24, 1e-6), (32, 1e-6), (0, 0.0)] {
        for rate in [8_000, 11_025, 16_000, 22_050, 44_100, 48_000, 96_000] {
            let expected = tone(440.0, rate, 3000);
            let audio = decode(&wav(bits, rate, &[&expected])).unwrap();
            assert_eq!((audio.samples.len(), audio.sample_rate, audio.channels_in), (3000, rate, 1));
            let off = difference(&audio.samples, &expected, 0);
            assert!(off <= tolerance, "{bits} bits at {rate} Hz: off by {off}");
        }
    }
}

#[test]
fn channels_are_averaged() {
    let (left, right) = (tone(440.0, 16_000, 2000), tone(700.0, 16_000, 2000));
    let audio = decode(&wav(16, 16_000, &[&left, &right])).unwrap();
    let mixed: Vec<f32> = left.iter().zip(&right).map(|(l, r)| (l + r) / 2.0).collect();
    assert_eq!(audio.channels_in, 2);
    assert!(difference(&audio.samples, &mixed, 0) < 1e-4);
}

#[test]
fn what_we_encode_is_decoded_to_the_same_sixteen_bits() {
    for count in [1, 7, 4096, 4101, 10_000] {
        let samples = tone(440.0, 24_000, count);
        for format in [AudioFormat::Wav, AudioFormat::Flac] {
            let audio = decode(&encode(format, &samples, 24_000).unwrap()).unwrap();
            assert_eq!(audio.sample_rate, 24_000);
            assert_eq!(pcm16_bytes(&audio.samples), pcm16_bytes(&samples), "{format} of {count}");
        }
    }
}

#[test]
fn a_wav_stream_without_a_length_is_decoded_to_its_end() {
    let samples = tone(440.0, 24_000, 5001);
    let mut bytes = wav_header(24_000, None).to_vec();
    bytes.extend(pcm16_bytes(&samples));
    assert_eq!(pcm16_bytes(&decode(&bytes).unwrap().samples), pcm16_bytes(&samples));
}

#[test]
fn lossy_files_keep_the_tone() {
    for (bytes, name) in [(MP3, "mp3"), (OGG, "ogg")] {
        let audio = decode(bytes).unwrap();
        assert_eq!((audio.sample_rate, audio.channels_in), (22_050, 1), "{name}");
        assert!((0.55..0.70).contains(&audio.seconds()), "{name}: {} s", audio.seconds());
        let inner = &audio.samples[4000..10_000];
        assert!((0.45..0.55).contains(&strength(inner, 440.0, 22_050)), "{name}");
        assert!(strength(inner, 1320.0, 22_050) < 0.02, "{name}");
    }
}

#[test]
fn resampling_keeps_length_time_and_tone() {
    for (from, to) in [(8_000, 16_000), (22_050, 16_000), (24_000, 16_000), (44_100, 16_000), (48_000, 16_000)] {
        let count = from as usize + 1;
        let audio = Audio { samples: tone(1000.0, from, count), sample_rate: from, channels_in: 1 };
        let out = resample(&audio, to).unwrap();
        let expected = (count as f64 * f64::from(to) / f64::from(from)).round() as usize;
        assert_eq!((out.samples.len(), out.sample_rate), (expected, to));
        // The same tone at the same time: a delay of a tenth of a sample would show.
        let off = difference(&out.samples, &tone(1000.0, to, expected), 600);
        assert!(off < 1e-4, "{from} to {to} Hz: off by {off}");
        assert_eq!(resample(&audio, to).unwrap(), out);
    }
}

#[test]
fn resampling_removes_what_the_new_rate_cannot_carry() {
    for (hertz, low, high) in
        [(3000.0, 0.499, 0.501), (7500.0, 0.499, 0.501), (8500.0, 0.0, 1e-4), (12_000.0, 0.0, 1e-4)]
    {
        let audio = Audio { samples: tone(hertz, 48_000, 48_000), sample_rate: 48_000, channels_in: 1 };
        let out = resample(&audio, 16_000).unwrap();
        let inner = &out.samples[2000..14_000];
        let heard = if hertz < 8000.0 {
            strength(inner, hertz, 16_000)
        } else {
            inner.iter().fold(0.0f32, |peak, s| peak.max(s.abs()))
        };
        assert!((low..=high).contains(&heard), "{hertz} Hz comes out at {heard}");
    }
}

#[test]
fn odd_lengths_and_rates_are_resampled_to_the_nearest_length() {
    for (count, from, expected) in [(0, 48_000, 0), (1, 48_000, 0), (2, 48_000, 1), (5, 44_101, 2), (3, 1_001, 48)] {
        let audio = Audio { samples: vec![0.25; count], sample_rate: from, channels_in: 1 };
        assert_eq!(resample(&audio, 16_000).unwrap().samples.len(), expected, "{count} at {from}");
    }
    let nothing = Audio { samples: vec![0.0], sample_rate: 0, channels_in: 1 };
    assert!(matches!(resample(&nothing, 16_000), Err(MediaError::Unsupported(_))));
}

#[test]
fn limits_hold() {
    let two_seconds = wav(16, 8_000, &[&tone(440.0, 8_000, 16_000)]);
    let limits = Limits { max_seconds: 1, max_bytes: 1 << 20 };
    assert_eq!(decode_audio(&two_seconds, &limits), Err(MediaError::TooLong { max_seconds: 1 }));
    let limits = Limits { max_seconds: 2, max_bytes: 1000 };
    let too_large = MediaError::TooLarge { bytes: two_seconds.len(), max_bytes: 1000 };
    assert_eq!(decode_audio(&two_seconds, &limits), Err(too_large));
    assert_eq!(decode_audio(&two_seconds, &Limits { max_seconds: 2, ..Limits::default() }).unwrap().seconds(), 2.0);
}
