//! Decoding uploaded audio to mono samples.

use std::io::Cursor;
use std::panic::{AssertUnwindSafe, catch_unwind};

use symphonia::core::audio::GenericAudioBufferRef;
use symphonia::core::codecs::audio::{AudioDecoder, AudioDecoderOptions};
use symphonia::core::errors::Error;
use symphonia::core::formats::well_known::{FORMAT_ID_FLAC, FORMAT_ID_WAVE};
use symphonia::core::formats::{FormatOptions, FormatReader, TrackType, probe::Hint};
use symphonia::core::io::MediaSourceStream;
use symphonia::core::meta::MetadataOptions;

use crate::error::MediaError;
use crate::sniff::{MediaKind, sniff};

/// How much audio is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The longest duration, in seconds.
    pub max_seconds: u32,
    /// The largest file, in bytes.
    pub max_bytes: usize,
}

/// Mono audio.
#[derive(Debug, Clone, PartialEq)]
pub struct Audio {
    /// Its samples, from -1 to 1, all finite.
    pub samples: Vec<f32>,
    /// Samples per second.
    pub sample_rate: u32,
    /// How many channels the file had before they were mixed.
    pub channels_in: usize,
}

/// The sample rates we read; beyond them a header lies or a model has no use for it.
const RATES: std::ops::RangeInclusive<u32> = 1_000..=384_000;

/// The sample rate that bounds on seconds are meant for: at higher ones fewer seconds fill the same memory.
const BOUNDED_RATE: u32 = 48_000;

/// A streaming writer that knows no length announces at least this many bytes.
const LENGTH_UNKNOWN: u64 = 0x7fff_0000;

/// One in so many packets of a lossy stream may be broken.
const BROKEN_SHARE: usize = 10;

// --- impl Limits ---

impl Default for Limits {
    /// Ten minutes and 64 MiB.
    fn default() -> Self {
        Self { max_seconds: 600, max_bytes: 64 << 20 }
    }
}

// --- impl Audio ---

impl Audio {
    /// How long it plays.
    pub fn seconds(&self) -> f64 {
        self.samples.len() as f64 / f64::from(self.sample_rate)
    }
}

// --- decoding ---

/// Decodes WAV, FLAC, MP3 or Ogg Vorbis and mixes its channels to mono.
///
/// Samples beyond full scale are clipped. A WAV or FLAC that ends before its header says, or has a
/// single broken frame, is refused; MP3 and Vorbis are decoded as players do, with a few broken
/// frames left out.
pub fn decode_audio(bytes: &[u8], limits: &Limits) -> Result<Audio, MediaError> {
    if bytes.is_empty() {
        return Err(MediaError::Empty);
    }
    if bytes.len() > limits.max_bytes {
        return Err(MediaError::TooLarge { bytes: bytes.len(), max_bytes: limits.max_bytes });
    }
    if !matches!(sniff(bytes, None, None), Some(MediaKind::Audio(_))) {
        return Err(MediaError::Unsupported("not WAV, FLAC, MP3 or Ogg Vorbis".into()));
    }
    // The decoders are other people's code on bytes from strangers: a panic there is a corrupt file here.
    match catch_unwind(AssertUnwindSafe(|| Decoding::open(bytes, limits)?.run())) {
        Ok(result) => result,
        Err(_) => Err(MediaError::Corrupt("the decoder cannot cope with it".into())),
    }
}

/// A file being decoded.
struct Decoding<'a> {
    reader: Box<dyn FormatReader + 'a>,
    decoder: Box<dyn AudioDecoder>,
    track: u32,
    /// How many samples the file announces, where that is binding.
    announced: Option<u64>,
    /// Whether a broken packet means a broken file.
    lossless: bool,
    max_seconds: u32,
    audio: Audio,
    interleaved: Vec<f32>,
    packets: usize,
    broken: usize,
}

// --- impl Decoding ---

impl<'a> Decoding<'a> {
    fn open(bytes: &'a [u8], limits: &Limits) -> Result<Self, MediaError> {
        let stream = MediaSourceStream::new(Box::new(Cursor::new(bytes)), Default::default());
        let reader = symphonia::default::get_probe()
            .probe(&Hint::new(), stream, FormatOptions::default(), MetadataOptions::default())
            .map_err(refusal)?;
        let format = reader.format_info().format;
        let lossless = format == FORMAT_ID_WAVE || format == FORMAT_ID_FLAC;
        let track = reader.default_track(TrackType::Audio);
        let track = track.ok_or_else(|| MediaError::Unsupported("no audio track".into()))?;
        let params = track.codec_params.as_ref().and_then(|params| params.audio());
        let params = params.ok_or_else(|| MediaError::Unsupported("no audio codec".into()))?;
        let sample_bytes = params.channels.as_ref().map_or(1, |c| c.count() as u64)
            * u64::from(params.bits_per_sample.unwrap_or(8).div_ceil(8));
        let announced = track.num_frames.filter(|frames| {
            let endless = format == FORMAT_ID_WAVE && frames.saturating_mul(sample_bytes) >= LENGTH_UNKNOWN;
            lossless && *frames > 0 && !endless
        });
        let decoder = symphonia::default::get_codecs()
            .make_audio_decoder(params, &AudioDecoderOptions::default())
            .map_err(refusal)?;
        Ok(Self {
            track: track.id,
            reader,
            decoder,
            announced,
            lossless,
            max_seconds: limits.max_seconds,
            audio: Audio { samples: Vec::new(), sample_rate: 0, channels_in: 0 },
            interleaved: Vec::new(),
            packets: 0,
            broken: 0,
        })
    }

    fn run(mut self) -> Result<Audio, MediaError> {
        loop {
            let packet = match self.reader.next_packet() {
                Ok(Some(packet)) if packet.track_id == self.track => packet,
                Ok(Some(_)) => continue,
                Ok(None) => break,
                Err(Error::IoError(error)) if error.kind() == std::io::ErrorKind::UnexpectedEof => break,
                Err(error) => return Err(refusal(error)),
            };
            self.packets += 1;
            match self.decoder.decode(&packet) {
                Ok(buffer) => append(&mut self.audio, &mut self.interleaved, &buffer)?,
                Err(Error::DecodeError(_) | Error::IoError(_)) if !self.lossless => self.broken += 1,
                Err(error) => return Err(refusal(error)),
            }
            // Memory is what the bound is for: above this rate an hour of samples counts for more than an hour.
            let rate = u64::from(self.audio.sample_rate.min(BOUNDED_RATE));
            if rate > 0 && self.audio.samples.len() as u64 > u64::from(self.max_seconds) * rate {
                return Err(MediaError::TooLong { max_seconds: self.max_seconds });
            }
        }
        self.finish()
    }

    fn finish(self) -> Result<Audio, MediaError> {
        let decoded = self.audio.samples.len() as u64;
        if self.announced.is_some_and(|announced| decoded < announced) {
            let announced = self.announced.unwrap_or_default();
            return Err(MediaError::Corrupt(format!("it ends after {decoded} of {announced} samples")));
        }
        if self.broken * BROKEN_SHARE > self.packets {
            let reason = format!("{} of {} packets are broken", self.broken, self.packets);
            return Err(MediaError::Corrupt(reason));
        }
        if self.audio.samples.is_empty() {
            return Err(MediaError::Empty);
        }
        Ok(self.audio)
    }
}

/// Mixes a decoded buffer to mono and appends it.
fn append(audio: &mut Audio, interleaved: &mut Vec<f32>, buffer: &GenericAudioBufferRef<'_>) -> Result<(), MediaError> {
    let (rate, channels) = (buffer.spec().rate(), buffer.spec().channels().count());
    if !RATES.contains(&rate) {
        return Err(MediaError::Unsupported(format!("a sample rate of {rate} Hz")));
    }
    if channels == 0 {
        return Err(MediaError::Corrupt("it has no channels".into()));
    }
    if audio.sample_rate != 0 && (audio.sample_rate, audio.channels_in) != (rate, channels) {
        return Err(MediaError::Unsupported("a sample rate or channel count that changes".into()));
    }
    (audio.sample_rate, audio.channels_in) = (rate, channels);
    buffer.copy_to_vec_interleaved(interleaved);
    let scale = 1.0 / channels as f32;
    for frame in interleaved.chunks_exact(channels) {
        let mixed = frame.iter().map(|sample| sample * scale).sum::<f32>();
        if mixed.is_nan() {
            return Err(MediaError::Corrupt("a sample is not a number".into()));
        }
        audio.samples.push(mixed.clamp(-1.0, 1.0));
    }
    Ok(())
}

fn refusal(error: Error) -> MediaError {
    match error {
        Error::Unsupported(what) => MediaError::Unsupported(what.into()),
        Error::ResetRequired => MediaError::Unsupported("several streams one after the other".into()),
        Error::IoError(_) => MediaError::Corrupt("it ends early".into()),
        other => MediaError::Corrupt(other.to_string()),
    }
}
