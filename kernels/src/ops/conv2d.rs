//! Convolution over height and width of an image whose channels lie together, `[height, width, channels]`.
//!
//! The taps of an output pixel are laid side by side as they are needed; from there on it is a linear layer, rows and all.

use std::ops::Range;

use super::linear::{Epilogue, PackedLinear, Precision, RowSource, linear_with, pack, run};
use crate::error::need;
use crate::{Cx, KernelError, Shape, Tensor, gpu};

/// Where the taps of a convolution over two axes lie; the first number of a pair is for the height.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Input pixels from one output pixel to the next.
    pub stride: (usize, usize),
    /// Rows of zeros above and below the input.
    pub rows_around: (usize, usize),
    /// Columns of zeros before and after it.
    pub columns_around: (usize, usize),
    /// How often a pixel is repeated, along both axes, before anything else: up-sampling to the nearest.
    pub repeat: usize,
}

/// A convolution's weights, packed.
#[derive(Clone, Debug)]
pub struct Conv2d {
    linear: PackedLinear,
    channels: usize,
    kernel: (usize, usize),
    grid: Grid,
}

// --- impl Grid ---

impl Default for Grid {
    fn default() -> Self {
        Self { stride: (1, 1), rows_around: (0, 0), columns_around: (0, 0), repeat: 1 }
    }
}

impl Grid {
    /// Centres a square kernel of odd size: as many output pixels as input pixels.
    pub fn same(kernel: usize) -> Self {
        let side = kernel.saturating_sub(1) / 2;
        Self { rows_around: (side, side), columns_around: (side, side), ..Self::default() }
    }

    /// Returns height and width of the output for an input of this size.
    pub fn outputs(&self, (height, width): (usize, usize), kernel: (usize, usize)) -> (usize, usize) {
        let along = |size: usize, around: (usize, usize), kernel: usize, stride: usize| {
            let padded = size * self.repeat + around.0 + around.1;
            if padded < kernel { 0 } else { (padded - kernel) / stride + 1 }
        };
        let rows = along(height, self.rows_around, kernel.0, self.stride.0);
        (rows, along(width, self.columns_around, kernel.1, self.stride.1))
    }
}

// --- impl Conv2d ---

impl Conv2d {
    /// Returns the same weights where the context computes.
    pub fn on(&self, cx: &Cx) -> Result<Self, KernelError> {
        Ok(Self { linear: self.linear.on(cx)?, ..self.clone() })
    }
}

/// Packs a weight of shape `[outputs, channels, kernel height, kernel width]` and a bias of shape `[outputs]`.
pub fn pack_conv2d(
    weight: &Tensor,
    bias: Option<&Tensor>,
    grid: Grid,
    precision: Precision,
) -> Result<Conv2d, KernelError> {
    let shape = weight.shape();
    let &[outputs, channels, high, wide] = weight.dims() else {
        return Err(KernelError::shape("pack_conv2d", "the weight is [outputs, channels, height, width]", &[shape]));
    };
    let steps = [grid.stride.0, grid.stride.1, grid.repeat, high, wide, channels];
    let rule = "strides, repetition, kernel and channels are at least 1";
    need(steps.iter().all(|&step| step > 0), "pack_conv2d", rule, &[shape, Shape::from(steps)])?;
    let (taps, inputs) = (high * wide, channels * high * wide);
    let place = |n: usize, k: usize| n * inputs + (k % channels) * taps + k / channels;
    let linear = pack(weight, bias, precision, (outputs, inputs), place)?;
    Ok(Conv2d { linear, channels, kernel: (high, wide), grid })
}

/// Convolves `x` of shape `[height, width, channels]`, with what the epilogue fuses behind it.
pub fn conv2d(cx: &Cx, x: &Tensor, conv: &Conv2d, epilogue: Epilogue<'_>) -> Result<Tensor, KernelError> {
    let fits = x.shape().rank() == 3 && x.dims()[2] == conv.channels;
    need(fits, "conv2d", "x is [height, width, the weight's channels]", &[x.shape(), Shape::from([conv.channels])])?;
    if conv.kernel == (1, 1) && conv.grid == Grid::default() {
        return linear_with(cx, x, &conv.linear, epilogue);
    }
    let size = (x.dims()[0], x.dims()[1]);
    let (height, width) = conv.grid.outputs(size, conv.kernel);
    let shape = Shape::from([height, width, conv.linear.outputs()]);
    if let Some(residual) = epilogue.residual {
        let rule = "the residual is of the output's shape";
        need(residual.shape() == shape, "conv2d", rule, &[residual.shape(), shape])?;
    }
    if let Some(gpu) = cx.gpu() {
        return gpu::ops::conv2d(gpu, x, conv.linear.on_gpu()?, (conv.grid, conv.kernel), epilogue.on_gpu());
    }
    let cpu = cx.cpu_for("conv2d")?;
    let pixels = Pixels { x: x.f32s()?, size, conv, outputs: width };
    run(cpu, &pixels, &conv.linear, epilogue, shape)
}

/// The taps of output pixels, side by side.
struct Pixels<'a> {
    x: &'a [f32],
    size: (usize, usize),
    conv: &'a Conv2d,
    /// The output's width.
    outputs: usize,
}

impl Pixels<'_> {
    /// The input pixel along one axis, unless it is padding.
    fn source(&self, place: usize, around: usize, size: usize) -> Option<usize> {
        let source = place.checked_sub(around)? / self.conv.grid.repeat;
        (source < size).then_some(source)
    }

    fn lay_out(&self, pixel: usize, out: &mut Vec<f32>) {
        let (grid, channels, (high, wide)) = (&self.conv.grid, self.conv.channels, self.conv.kernel);
        let (top, left) = (pixel / self.outputs * grid.stride.0, pixel % self.outputs * grid.stride.1);
        for row in top..top + high {
            let Some(row) = self.source(row, grid.rows_around.0, self.size.0) else {
                out.resize(out.len() + wide * channels, 0.0);
                continue;
            };
            for column in left..left + wide {
                match self.source(column, grid.columns_around.0, self.size.1) {
                    Some(column) => {
                        let at = (row * self.size.1 + column) * channels;
                        out.extend_from_slice(&self.x[at..][..channels]);
                    }
                    None => out.resize(out.len() + channels, 0.0),
                }
            }
        }
    }
}

impl RowSource for Pixels<'_> {
    fn rows<'s>(&'s self, rows: Range<usize>, scratch: &'s mut Vec<f32>) -> &'s [f32] {
        scratch.clear();
        for pixel in rows {
            self.lay_out(pixel, scratch);
        }
        scratch
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{close, on_every_tier, random, threads_do_not_show};
    use crate::ops::{linear, pack_linear};

    /// A convolution of the definition, in f64.
    fn reference(x: &Tensor, w: &Tensor, b: &Tensor, grid: Grid) -> Vec<f32> {
        let (height, width, channels) = (x.dims()[0], x.dims()[1], x.dims()[2]);
        let (high, wide) = (w.dims()[2], w.dims()[3]);
        let (xs, ws) = (x.f32s().unwrap(), w.f32s().unwrap());
        let at = |row: isize, column: isize, c: usize| -> f64 {
            let (rows, columns) = ((height * grid.repeat) as isize, (width * grid.repeat) as isize);
            if !(0..rows).contains(&row) || !(0..columns).contains(&column) {
                return 0.0;
            }
            let (row, column) = (row as usize / grid.repeat, column as usize / grid.repeat);
            f64::from(xs[(row * width + column) * channels + c])
        };
        let (rows, columns) = grid.outputs((height, width), (high, wide));
        let mut out = Vec::new();
        for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))) {
            for n in 0..w.dims()[0] {
                let mut sum = f64::from(b.f32s().unwrap()[n]);
                for tap in 0..channels * high * wide {
                    let (c, i, j) = (tap / (high * wide), tap / wide % high, tap % wide);
                    let from_row = (row * grid.stride.0 + i) as isize - grid.rows_around.0 as isize;
                    let from_column = (column * grid.stride.1 + j) as isize - grid.columns_around.0 as isize;
                    sum += at(from_row, from_column, c) * f64::from(ws[n * channels * high * wide + tap]);
                }
                out.push(sum as f32);
            }
        }
        out
    }

    const CASES: [((usize, usize), Grid); 5] = [
        ((3, 3), Grid { stride: (1, 1), rows_around: (1, 1), columns_around: (1, 1), repeat: 1 }),
        ((3, 3), Grid { stride: (2, 2), rows_around: (0, 1), columns_around: (0, 1), repeat: 1 }),
        ((3, 3), Grid { stride: (1, 1), rows_around: (1, 1), columns_around: (1, 1), repeat: 2 }),
        ((1, 1), Grid { stride: (1, 1), rows_around: (0, 0), columns_around: (0, 0), repeat: 1 }),
        ((2, 5), Grid { stride: (2, 1), rows_around: (0, 0), columns_around: (2, 1), repeat: 1 }),
    ];

    #[test]
    fn convolution_follows_its_definition_in_every_precision() {
        for (kernel, grid) in CASES {
            let (x, w) = (random(1, [7, 9, 5]), random(2, [19, 5, kernel.0, kernel.1]));
            let (b, want) = (random(3, [19]), grid.outputs((7, 9), kernel));
            let tolerances =
                [(Precision::F32, 1e-5), (Precision::Bf16, 0.06), (Precision::Q8, 0.1), (Precision::Q4, 1.0)];
            for (precision, tolerance) in tolerances {
                let packed = pack_conv2d(&w, Some(&b), grid, precision).unwrap();
                on_every_tier(|cx| {
                    let got = conv2d(cx, &x, &packed, Epilogue::default()).unwrap();
                    assert_eq!(got.dims(), [want.0, want.1, 19]);
                    close(got.f32s().unwrap(), &reference(&x, &w, &b, grid), tolerance);
                });
            }
        }
    }

    #[test]
    fn a_kernel_of_one_pixel_is_the_linear_layer_in_every_precision() {
        let (x, w) = (random(1, [5, 6, 40]), random(2, [19, 40, 1, 1]));
        for precision in [Precision::F32, Precision::Bf16, Precision::Q8, Precision::Q4] {
            let packed = pack_conv2d(&w, None, Grid::default(), precision).unwrap();
            let layer = pack_linear(&w.reshape([19, 40]).unwrap(), None, precision).unwrap();
            on_every_tier(|cx| {
                let got = conv2d(cx, &x, &packed, Epilogue::default()).unwrap();
                assert_eq!(got.bytes(), linear(cx, &x, &layer).unwrap().bytes());
            });
        }
    }

    #[test]
    fn a_pixel_far_from_the_cut_has_the_same_bits_in_a_part_of_the_image() {
        let (x, w) = (random(1, [20, 11, 16]), random(2, [24, 16, 3, 3]));
        for precision in [Precision::F32, Precision::Bf16] {
            let packed = pack_conv2d(&w, None, Grid::same(3), precision).unwrap();
            on_every_tier(|cx| {
                let run = |x| conv2d(cx, x, &packed, Epilogue::default()).unwrap();
                let (whole, part) = (run(&x), run(&x.rows(4..17).unwrap()));
                assert_eq!(whole.rows(5..16).unwrap().bytes(), part.rows(1..12).unwrap().bytes());
            });
        }
    }

    #[test]
    fn threads_do_not_change_a_bit_of_a_large_image() {
        let (x, w) = (random(1, [60, 80, 32]), random(2, [40, 32, 3, 3]));
        let packed = pack_conv2d(&w, None, Grid::same(3), Precision::F32).unwrap();
        threads_do_not_show(|cx| conv2d(cx, &x, &packed, Epilogue::default()).unwrap().bytes().to_vec());
    }

    #[test]
    fn images_and_kernels_that_do_not_fit_are_refused() {
        let cx = Cx::with_threads(1).unwrap();
        let w = random(1, [4, 3, 3, 3]);
        let packed = pack_conv2d(&w, None, Grid::default(), Precision::F32).unwrap();
        assert!(conv2d(&cx, &random(2, [9, 9, 4]), &packed, Epilogue::default()).is_err());
        assert!(conv2d(&cx, &random(2, [9, 3]), &packed, Epilogue::default()).is_err());
        assert_eq!(conv2d(&cx, &random(2, [2, 9, 3]), &packed, Epilogue::default()).unwrap().dims(), [0, 7, 4]);
        let residual = random(3, [9, 9, 4]);
        let epilogue = Epilogue { residual: Some(&residual), ..Epilogue::default() };
        assert!(conv2d(&cx, &random(2, [9, 9, 3]), &packed, epilogue).is_err());
        let still = Grid { stride: (0, 1), ..Grid::default() };
        assert!(pack_conv2d(&w, None, still, Precision::F32).is_err());
        assert!(pack_conv2d(&random(1, [4, 3, 9]), None, Grid::default(), Precision::F32).is_err());
    }
}
