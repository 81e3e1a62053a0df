//! Encoding a model's samples for a client.

use std::fmt;
use std::str::FromStr;

use flacenc::bitsink::ByteSink;
use flacenc::component::BitRepr;
use flacenc::config::Encoder;
use flacenc::error::Verify;
use flacenc::source::MemSource;

use crate::error::MediaError;

/// A format in which audio is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AudioFormat {
    /// 16-bit WAV.
    Wav,
    /// Bare 16-bit little-endian samples.
    Pcm,
    /// 16-bit FLAC.
    Flac,
}

// --- impl AudioFormat ---

impl AudioFormat {
    /// Its name in a request.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Wav => "wav",
            Self::Pcm => "pcm",
            Self::Flac => "flac",
        }
    }

    /// Its media type for a `Content-Type` header.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Wav => "audio/wav",
            Self::Pcm => "audio/pcm",
            Self::Flac => "audio/flac",
        }
    }

    /// Whether it can be sent piece by piece while it is made.
    pub const fn streams(self) -> bool {
        matches!(self, Self::Wav | Self::Pcm)
    }
}

impl fmt::Display for AudioFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for AudioFormat {
    type Err = MediaError;

    fn from_str(name: &str) -> Result<Self, MediaError> {
        let formats = [Self::Wav, Self::Pcm, Self::Flac];
        let found = formats.into_iter().find(|format| format.name() == name);
        found.ok_or_else(|| MediaError::Unsupported(format!("format {name:?}, there are wav, pcm and flac")))
    }
}

// --- encoding ---

/// Encodes mono samples as a whole file.
pub fn encode(format: AudioFormat, samples: &[f32], sample_rate: u32) -> Result<Vec<u8>, MediaError> {
    match format {
        AudioFormat::Pcm => Ok(pcm16_bytes(samples)),
        AudioFormat::Flac => flac(samples, sample_rate),
        AudioFormat::Wav => {
            let mut out = wav_header(sample_rate, u32::try_from(samples.len() * 2).ok()).to_vec();
            out.extend(pcm16_bytes(samples));
            Ok(out)
        }
    }
}

/// A sample as 16 bits: rounded to the nearest, clipped at full scale; what is no number is silence.
pub fn pcm16(sample: f32) -> i16 {
    // The cast saturates and turns NaN to zero.
    (sample * 32768.0).round_ties_even() as i16
}

/// Samples as 16-bit little-endian bytes.
pub fn pcm16_bytes(samples: &[f32]) -> Vec<u8> {
    samples.iter().flat_map(|&sample| pcm16(sample).to_le_bytes()).collect()
}

/// The header of a 16-bit mono WAV with `data_bytes` of samples, or of a stream whose length nobody
/// knows yet; samples follow as [`pcm16_bytes`].
pub fn wav_header(sample_rate: u32, data_bytes: Option<u32>) -> [u8; 44] {
    let riff_bytes = data_bytes.and_then(|bytes| bytes.checked_add(36));
    // A length that does not fit is as unknown as one that is not there.
    let data_bytes = if riff_bytes.is_some() { data_bytes } else { None };
    let mut header = [0; 44];
    let mut at = 0;
    let mut put = |bytes: &[u8]| {
        header[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    };
    put(b"RIFF");
    put(&riff_bytes.unwrap_or(u32::MAX).to_le_bytes());
    put(b"WAVEfmt ");
    put(&16u32.to_le_bytes());
    put(&1u16.to_le_bytes()); // PCM
    put(&1u16.to_le_bytes()); // channels
    put(&sample_rate.to_le_bytes());
    put(&sample_rate.saturating_mul(2).to_le_bytes()); // bytes per second
    put(&2u16.to_le_bytes()); // bytes per frame
    put(&16u16.to_le_bytes()); // bits per sample
    put(b"data");
    put(&data_bytes.unwrap_or(u32::MAX).to_le_bytes());
    header
}

fn flac(samples: &[f32], sample_rate: u32) -> Result<Vec<u8>, MediaError> {
    if samples.is_empty() {
        return Err(MediaError::Empty);
    }
    let refused = |error: &dyn fmt::Debug| MediaError::Encode(format!("FLAC: {error:?}"));
    let config = Encoder::default().into_verified().map_err(|error| refused(&error))?;
    let samples: Vec<i32> = samples.iter().map(|&sample| i32::from(pcm16(sample))).collect();
    let source = MemSource::from_samples(&samples, 1, 16, sample_rate as usize);
    let mut stream =
        flacenc::encode_with_fixed_block_size(&config, source, config.block_size).map_err(|error| refused(&error))?;
    // The encoder counts the last, shorter block as the smallest; the format does not.
    let block = config.block_size;
    stream.stream_info_mut().set_block_sizes(block, block).map_err(|error| refused(&error))?;
    let mut sink = ByteSink::new();
    stream.write(&mut sink).map_err(|error| refused(&error))?;
    Ok(sink.as_slice().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_rounded_and_clipped() {
        for (sample, expected) in [
            (0.0, 0),
            (0.5, 16384),
            (-0.5, -16384),
            (1.0, 32767),
            (-1.0, -32768),
            (7.0, 32767),
            (0.7 / 32768.0, 1),
            (-0.7 / 32768.0, -1),
            (f32::NAN, 0),
            (f32::NEG_INFINITY, -32768),
        ] {
            assert_eq!(pcm16(sample), expected, "{sample}");
        }
        assert!((i16::MIN..=i16::MAX).all(|value| pcm16(f32::from(value) / 32768.0) == value));
    }

    #[test]
    fn a_wav_states_its_length_or_that_nobody_knows() {
        let whole = wav_header(24_000, Some(100));
        assert_eq!((&whole[4..8], &whole[40..44]), (&136u32.to_le_bytes()[..], &100u32.to_le_bytes()[..]));
        for unknown in [None, Some(u32::MAX), Some(u32::MAX - 35)] {
            let header = wav_header(24_000, unknown);
            assert_eq!((&header[4..8], &header[40..44]), (&[0xff; 4][..], &[0xff; 4][..]));
        }
    }

    #[test]
    fn formats_have_names() {
        for format in [AudioFormat::Wav, AudioFormat::Pcm, AudioFormat::Flac] {
            assert_eq!(format.name().parse(), Ok(format));
        }
        assert!("opus".parse::<AudioFormat>().is_err());
    }
}
