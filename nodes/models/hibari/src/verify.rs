//! Judges the network and the sound in float32 against tensors recorded from another implementation.

use std::path::Path;

use mstar_blocks::verify::{Judge, Report, Tolerance};
use mstar_contract::Precision;
use mstar_kernels::Cx;
use mstar_weights::WeightFile;

use crate::dsp::{BINS, HEAD};
use crate::net::{Acoustic, Decoder, Held};
use crate::{Sound, Vocoder, blocks};

const HEADS: Tolerance = Tolerance::Absolute(1e-3);
const SAMPLES: Tolerance = Tolerance::Absolute(1e-4);
/// Every so many bins of the spectra are recorded.
const EVERY: usize = 16;

/// Compares the network of the model folder `weights` with `hibari.safetensors` in `golden`: per sentence, from the
/// recorded ids, durations, pitch, spectra, and the sound with its noise left out.
pub fn check(weights: &Path, golden: &Path, cx: &Cx) -> Result<Report, String> {
    let file = WeightFile::open(weights).map_err(|e| e.to_string())?;
    let recorded = WeightFile::open(&golden.join("hibari.safetensors")).map_err(|e| e.to_string())?;
    let mut judge = Judge::new(&recorded);
    run(&file, &mut judge, cx).map_err(|e| e.to_string())?;
    Ok(judge.finish())
}

fn run(file: &WeightFile, judge: &mut Judge<'_>, cx: &Cx) -> Result<(), Box<dyn std::error::Error>> {
    let acoustic = Acoustic::load(file, Precision::F32)?;
    let decoder = Decoder::load(file, Precision::F32)?;
    let vocoder = Vocoder::load(file, Precision::F32)?;
    for i in 0.. {
        let name = |what: &str| format!("s{i}.{what}");
        if !judge.has(&name("ids")) {
            break;
        }
        let speech = acoustic.run(cx, &judge.input_ids(&name("ids"))?, 1.0)?;
        let durations: Vec<u32> = speech.durations.iter().map(|frames| *frames as u32).collect();
        judge.check_ids(&name("dur"), &durations)?;
        judge.check(&name("f0"), &speech.f0, Tolerance::OfLargest(1e-3))?;
        let total = speech.f0.len();
        let head = decoder.run(cx, &mut Held::default(), &speech.frames, true)?;
        judge.check(&name("head_every16"), &by_part(head.f32s()?, total, EVERY), HEADS)?;
        if judge.has(&name("head")) {
            judge.check(&name("head"), &by_part_and_frame(head.f32s()?, total), HEADS)?;
        }
        if judge.has(&name("wav_nonoise")) {
            let (mut sound, mut samples) = (Sound::default(), Vec::new());
            for block in blocks(cx, &speech, 0)? {
                samples.extend(vocoder.render(cx, &mut sound, &block, None)?);
            }
            judge.check(&name("wav_nonoise"), &samples, SAMPLES)?;
        }
    }
    Ok(())
}

/// Lays spectra `[frames, 5 * 601]` out as `[5, bins, frames]`, with every so many of the bins.
fn by_part(head: &[f32], total: usize, every: usize) -> Vec<f32> {
    let places = (0..HEAD / BINS).flat_map(|part| (0..BINS).step_by(every).map(move |bin| part * BINS + bin));
    places.flat_map(|place| (0..total).map(move |frame| head[frame * HEAD + place])).collect()
}

/// Lays spectra out as `[5, frames, 601]`: the order of the bytes of the recorded whole head, whatever its shape says.
fn by_part_and_frame(head: &[f32], total: usize) -> Vec<f32> {
    let rows = (0..HEAD / BINS).flat_map(|part| (0..total).map(move |frame| frame * HEAD + part * BINS));
    rows.flat_map(|start| head[start..start + BINS].iter().copied()).collect()
}
