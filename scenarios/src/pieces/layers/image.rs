//! Convolutions over images of the size that the decoder of FLUX's autoencoder has: a residual block on each of three
//! levels, from 64 x 64 pixels of 512 channels to 256 x 256 of 128, 318 GFLOP in all. Random weights.

use mstar_kernels::ops::{self, Activation, Conv2d, Epilogue, Grid, GroupNorm};
use mstar_kernels::{Cx, KernelError, Precision, Tensor};

use super::{Layer, noise};

/// The stack and its input.
pub(super) struct ImageDecoder {
    x: Tensor,
    levels: Vec<Level>,
}

/// A residual block and, unless it is the last level, twice the height and width.
struct Level {
    block: Block,
    up: Option<Conv2d>,
}

/// Two convolutions around which the input goes; one pixel wide where the channels change.
struct Block {
    first: Norm,
    narrow: Conv2d,
    second: Norm,
    same: Conv2d,
    around: Option<Conv2d>,
}

/// Normalises groups of channels and applies SiLU.
struct Norm {
    weight: Tensor,
    bias: Tensor,
}

/// Height and width of the input.
const SIDE: usize = 64;
/// Channels before and behind each level's block.
const LEVELS: [(usize, usize); 3] = [(512, 512), (512, 256), (256, 128)];
const GROUPS: usize = 32;

// --- impl ImageDecoder ---

impl ImageDecoder {
    pub(super) fn new(precision: Precision) -> Result<Self, KernelError> {
        let mut levels = Vec::new();
        for (at, &(inputs, outputs)) in LEVELS.iter().enumerate() {
            let more = at + 1 < LEVELS.len();
            let up = more.then(|| conv(outputs, outputs, 3, Grid { repeat: 2, ..Grid::same(3) }, precision));
            levels.push(Level { block: Block::new(inputs, outputs, precision)?, up: up.transpose()? });
        }
        Ok(Self { x: noise("pixels", [SIDE, SIDE, LEVELS[0].0])?, levels })
    }
}

impl Layer for ImageDecoder {
    fn run(&self, cx: &Cx) -> Result<(), KernelError> {
        let mut x: Option<Tensor> = None;
        for level in &self.levels {
            let mut y = level.block.forward(cx, x.as_ref().unwrap_or(&self.x))?;
            if let Some(up) = &level.up {
                y = ops::conv2d(cx, &y, up, Epilogue::default())?;
            }
            x = Some(y);
        }
        Ok(())
    }
}

// --- impl Block ---

impl Block {
    fn new(inputs: usize, outputs: usize, precision: Precision) -> Result<Self, KernelError> {
        let around = (inputs != outputs).then(|| conv(inputs, outputs, 1, Grid::default(), precision));
        Ok(Self {
            first: Norm::new(inputs)?,
            narrow: conv(inputs, outputs, 3, Grid::same(3), precision)?,
            second: Norm::new(outputs)?,
            same: conv(outputs, outputs, 3, Grid::same(3), precision)?,
            around: around.transpose()?,
        })
    }

    fn forward(&self, cx: &Cx, x: &Tensor) -> Result<Tensor, KernelError> {
        let y = ops::conv2d(cx, &self.first.of(cx, x)?, &self.narrow, Epilogue::default())?;
        let y = self.second.of(cx, &y)?;
        let around = self.around.as_ref().map(|around| ops::conv2d(cx, x, around, Epilogue::default())).transpose()?;
        let residual = Some(around.as_ref().unwrap_or(x));
        ops::conv2d(cx, &y, &self.same, Epilogue { residual, ..Epilogue::default() })
    }
}

// --- impl Norm ---

impl Norm {
    fn new(channels: usize) -> Result<Self, KernelError> {
        Ok(Self { weight: noise("gain", [channels])?, bias: noise("shift", [channels])? })
    }

    fn of(&self, cx: &Cx, x: &Tensor) -> Result<Tensor, KernelError> {
        let (weight, bias) = (&self.weight, &self.bias);
        ops::group_norm(cx, x, GroupNorm { groups: GROUPS, weight, bias, eps: 1e-6, activation: Activation::Silu })
    }
}

fn conv(inputs: usize, outputs: usize, side: usize, grid: Grid, precision: Precision) -> Result<Conv2d, KernelError> {
    let (weight, bias) = (noise("conv", [outputs, inputs, side, side])?, noise("bias", [outputs])?);
    ops::pack_conv2d(&weight, Some(&bias), grid, precision)
}
