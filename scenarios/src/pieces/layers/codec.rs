//! The decoder of SNAC at 24 kHz (Siuzdak 2024, package `snac`), with the sizes of the published one and random weights.

use mstar_kernels::ops::{self, Conv1d, ConvTranspose1d, DepthwiseConv1d, Epilogue, PackedLinear, Taps};
use mstar_kernels::{Cx, KernelError, Precision, Tensor};

use super::{Layer, noise};

/// Turns 768 numbers per frame, at 46.9 frames a second, into 512 samples.
pub(super) struct CodecDecoder {
    z: Tensor,
    first: DepthwiseConv1d,
    widen: PackedLinear,
    stages: Vec<Stage>,
    alpha: Tensor,
    last: Conv1d,
}

/// More rows of half the width.
struct Stage {
    alpha: Tensor,
    up: ConvTranspose1d,
    /// Random numbers, the same for all channels of a row, drawn beforehand, and the layer that weighs them.
    random: Tensor,
    weigh: PackedLinear,
    units: Vec<Unit>,
}

/// Adds to a row what its neighbours tell.
struct Unit {
    first: Tensor,
    along: DepthwiseConv1d,
    second: Tensor,
    across: PackedLinear,
}

/// Width of a latent frame, and of the first stage's input.
const LATENT: usize = 768;
const WIDTH: usize = 1024;
/// Rows of each stage's output for a row of its input.
const RATES: [usize; 4] = [8, 8, 4, 2];
/// How far apart the taps of a stage's units lie.
const DILATIONS: [usize; 3] = [1, 3, 9];
const KERNEL: usize = 7;

// --- impl CodecDecoder ---

impl CodecDecoder {
    pub(super) fn new(frames: usize, precision: Precision) -> Result<Self, KernelError> {
        let (mut width, mut rows, mut stages) = (WIDTH, frames, Vec::new());
        for rate in RATES {
            rows *= rate;
            stages.push(Stage::new(width, rate, rows, precision)?);
            width /= 2;
        }
        let bias = noise("bias", [1])?;
        let last = noise("last", [1, width, KERNEL])?;
        Ok(Self {
            z: noise("frames", [frames, LATENT])?,
            first: depthwise(LATENT, 1)?,
            widen: ops::pack_linear(&noise("widen", [WIDTH, LATENT])?, Some(&noise("bias", [WIDTH])?), precision)?,
            stages,
            alpha: noise("alpha", [width])?,
            last: ops::pack_conv1d(&last, Some(&bias), Taps::same(KERNEL, 1), precision)?,
        })
    }
}

impl Layer for CodecDecoder {
    fn run(&self, cx: &Cx) -> Result<(), KernelError> {
        let x = ops::depthwise_conv1d(cx, &self.z, &self.first)?;
        let mut x = ops::linear(cx, &x, &self.widen)?;
        for stage in &self.stages {
            x = stage.forward(cx, &x)?;
        }
        let x = ops::snake(cx, &x, &self.alpha)?;
        let mut wave = ops::conv1d(cx, &x, &self.last, Epilogue::default())?;
        wave.f32s_mut()?.iter_mut().for_each(|sample| *sample = sample.tanh());
        Ok(())
    }
}

// --- impl Stage ---

impl Stage {
    fn new(width: usize, rate: usize, rows: usize, precision: Precision) -> Result<Self, KernelError> {
        let half = width / 2;
        let weight = noise("up", [width, half, 2 * rate])?;
        let cut = (rate / 2, rate / 2);
        Ok(Self {
            alpha: noise("alpha", [width])?,
            up: ops::pack_conv_transpose1d(&weight, Some(&noise("bias", [half])?), (rate, cut), precision)?,
            random: noise("random", [rows, half])?,
            weigh: ops::pack_linear(&noise("weigh", [half, half])?, None, precision)?,
            units: DILATIONS.iter().map(|&dilation| Unit::new(half, dilation, precision)).collect::<Result<_, _>>()?,
        })
    }

    fn forward(&self, cx: &Cx, x: &Tensor) -> Result<Tensor, KernelError> {
        let x = ops::snake(cx, x, &self.alpha)?;
        let x = ops::conv_transpose1d(cx, &x, &self.up)?;
        // A row's random number stands before the layer as well as behind it, for the layer has no bias.
        let random = ops::mul(cx, &x, &self.random)?;
        let mut x = ops::linear_with(cx, &random, &self.weigh, added_to(&x))?;
        for unit in &self.units {
            x = unit.forward(cx, &x)?;
        }
        Ok(x)
    }
}

// --- impl Unit ---

impl Unit {
    fn new(width: usize, dilation: usize, precision: Precision) -> Result<Self, KernelError> {
        let (weight, bias) = (noise("across", [width, width])?, noise("bias", [width])?);
        Ok(Self {
            first: noise("alpha", [width])?,
            along: depthwise(width, dilation)?,
            second: noise("beta", [width])?,
            across: ops::pack_linear(&weight, Some(&bias), precision)?,
        })
    }

    fn forward(&self, cx: &Cx, x: &Tensor) -> Result<Tensor, KernelError> {
        let y = ops::snake(cx, x, &self.first)?;
        let y = ops::depthwise_conv1d(cx, &y, &self.along)?;
        let y = ops::snake(cx, &y, &self.second)?;
        ops::linear_with(cx, &y, &self.across, added_to(x))
    }
}

fn depthwise(width: usize, dilation: usize) -> Result<DepthwiseConv1d, KernelError> {
    let (weight, bias) = (noise("along", [width, 1, KERNEL])?, noise("bias", [width])?);
    ops::pack_depthwise_conv1d(&weight, Some(&bias), Taps::same(KERNEL, dilation))
}

fn added_to(x: &Tensor) -> Epilogue<'_> {
    Epilogue { residual: Some(x), ..Epilogue::default() }
}
