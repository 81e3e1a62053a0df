//! Layers with weights: linear, convolution, and what goes through Fourier's transform.

use mstar_kernels::{Epilogue, KernelError, Precision, Tensor, ops};

use super::{Case, RowCase, case, numbers, random};

/// Rows, inputs and outputs below, at and beyond a tile.
const LINEARS: [(usize, usize, usize); 5] = [(1, 7, 5), (3, 64, 64), (64, 16, 65), (70, 33, 130), (129, 48, 8)];
const ACTIVATIONS: [ops::Activation; 5] = [
    ops::Activation::None,
    ops::Activation::GeluErf,
    ops::Activation::GeluTanh,
    ops::Activation::Relu,
    ops::Activation::Silu,
];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (rows, inputs, outputs) in LINEARS {
        for (precision, tolerance) in [(Precision::F32, 4e-6), (Precision::Bf16, 1e-5)] {
            for activation in ACTIVATIONS {
                let name = format!("linear {rows}x{inputs}x{outputs} {precision:?} {activation:?}");
                cases.push(case(name, tolerance, move |cx| {
                    let (w, b) = (random(1, [outputs, inputs]), random(2, [outputs]));
                    let packed = ops::pack_linear(&w, Some(&b), precision)?.on(cx)?;
                    // What bf16 holds exactly, so that rounding the rows is no difference between devices.
                    let x = random(3, [rows, inputs]).to_bf16()?.to_f32()?.on(cx)?;
                    let residual = random(4, [rows, outputs]).on(cx)?;
                    let epilogue = Epilogue { activation, residual: Some(&residual) };
                    numbers(&ops::linear_with(cx, &x, &packed, epilogue)?)
                }));
            }
        }
    }
    cases.extend(quantised());
    cases.push(case("layers of rows that are made on the way".to_owned(), 2e-5, |cx| {
        let (x, halves) = (random(1, [5, 96]).on(cx)?, random(2, [5, 192]).on(cx)?);
        let (weight, bias) = (random(3, [96]).on(cx)?, random(4, [96]).on(cx)?);
        let packed = ops::pack_linear(&random(5, [40, 96]), None, Precision::F32)?.on(cx)?;
        let inputs = [
            ops::Input::RmsNorm { x: &x, weight: &weight, eps: 1e-5, gain: ops::Gain::OnePlusWeight },
            ops::Input::LayerNorm { x: &x, weight: &weight, bias: &bias, eps: 1e-5 },
            ops::Input::SiluMulHalves(&halves),
        ];
        let layer = |input| numbers(&ops::linear_of(cx, input, &packed, Epilogue::default())?);
        inputs.into_iter().map(layer).collect::<Result<Vec<_>, _>>().map(|all| all.concat())
    }));
    cases.extend(convolutions());
    cases.extend(images());
    cases.extend(spectra());
    cases
}

/// Numbers that eight bits hold exactly, so that rounding the rows is no difference between devices: whole 127ths, the
/// first of each block at the end of the range.
fn bytes_of(seed: u64, rows: usize, width: usize) -> Result<Tensor, KernelError> {
    let byte = |(i, x): (usize, &f32)| if (i % width).is_multiple_of(32) { 1.0 } else { (x * 127.0).round() / 127.0 };
    let numbers = random(seed, [rows, width]).f32s()?.iter().enumerate().map(byte).collect();
    Tensor::from_f32(numbers, [rows, width])
}

fn quantised() -> Vec<Case> {
    let mut cases = Vec::new();
    for (rows, inputs, outputs) in [(1, 7, 5), (3, 64, 64), (70, 96, 33)] {
        for precision in [Precision::Q8, Precision::Q4] {
            cases.push(case(format!("linear {rows}x{inputs}x{outputs} {precision:?}"), 2e-5, move |cx| {
                let (w, b) = (random(1, [outputs, inputs]), random(2, [outputs]));
                let packed = ops::pack_linear(&w, Some(&b), precision)?.on(cx)?;
                numbers(&ops::linear(cx, &bytes_of(3, rows, inputs)?.on(cx)?, &packed)?)
            }));
        }
    }
    // Any bytes are blocks, but their scales must be ordinary numbers.
    let formats = [
        (ops::BlockFormat::Q8_0, &[1][..]),
        (ops::BlockFormat::Q4_0, &[1]),
        (ops::BlockFormat::Q4_1, &[1, 3]),
        (ops::BlockFormat::Q4K, &[1, 3]),
        (ops::BlockFormat::Q6K, &[209]),
    ];
    for (format, scales) in formats {
        cases.push(case(format!("linear of {format:?} blocks"), 5e-5, move |cx| {
            let (outputs, inputs, size) = (17, 512, format.block_bytes());
            let noise = random(5, [outputs * inputs / format.block_len() * size]);
            let mut bytes: Vec<u8> = noise.f32s()?.iter().map(|x| ((x * 127.0) as i8).cast_unsigned()).collect();
            for block in bytes.chunks_exact_mut(size) {
                scales.iter().for_each(|&at| block[at] = 0x14);
            }
            let packed = ops::pack_blocks(format, &bytes, (outputs, inputs), None)?.on(cx)?;
            numbers(&ops::linear(cx, &bytes_of(3, 4, inputs)?.on(cx)?, &packed)?)
        }));
    }
    cases
}

fn images() -> Vec<Case> {
    let grid = ops::Grid::same(3);
    let grids = [
        ((3, 3), grid),
        ((3, 3), ops::Grid { stride: (2, 2), rows_around: (0, 1), columns_around: (0, 1), ..grid }),
        ((3, 3), ops::Grid { repeat: 2, ..grid }),
        ((1, 1), ops::Grid::default()),
        ((2, 5), ops::Grid { stride: (2, 1), rows_around: (0, 0), columns_around: (2, 1), repeat: 1 }),
    ];
    let mut cases = Vec::new();
    for (kernel, grid) in grids {
        for precision in [Precision::F32, Precision::Bf16] {
            cases.push(case(format!("conv2d {kernel:?} {grid:?} {precision:?}"), 1e-5, move |cx| {
                let (w, b) = (random(2, [19, 5, kernel.0, kernel.1]), random(3, [19]));
                let packed = ops::pack_conv2d(&w, Some(&b), grid, precision)?.on(cx)?;
                let x = random(1, [7, 9, 5]).to_bf16()?.to_f32()?;
                let (height, width) = grid.outputs((7, 9), kernel);
                let residual = random(4, [height, width, 19]).on(cx)?;
                let epilogue = Epilogue { activation: ops::Activation::GeluErf, residual: Some(&residual) };
                numbers(&ops::conv2d(cx, &x.on(cx)?, &packed, epilogue)?)
            }));
        }
    }
    for (rows, channels, groups) in [(5, 8, 2), (256, 6, 3), (600, 4, 1)] {
        for activation in [ops::Activation::None, ops::Activation::Silu] {
            cases.push(case(format!("group_norm {rows}x{channels} {groups} {activation:?}"), 1e-5, move |cx| {
                let (weight, bias) = (random(2, [channels]).on(cx)?, random(3, [channels]).on(cx)?);
                let norm = ops::GroupNorm { groups, weight: &weight, bias: &bias, eps: 1e-5, activation };
                numbers(&ops::group_norm(cx, &random(1, [rows, channels]).on(cx)?, norm)?)
            }));
        }
    }
    cases
}

fn convolutions() -> Vec<Case> {
    let taps = [
        (3, ops::Taps { stride: 1, padding: (1, 1), dilation: 1 }),
        (3, ops::Taps { stride: 2, padding: (1, 1), dilation: 1 }),
        (7, ops::Taps { stride: 1, padding: (24, 24), dilation: 8 }),
        (5, ops::Taps { stride: 3, padding: (4, 0), dilation: 1 }),
        (1, ops::Taps { stride: 1, padding: (0, 0), dilation: 1 }),
    ];
    let mut cases = Vec::new();
    for (kernel, taps) in taps {
        for precision in [Precision::F32, Precision::Bf16] {
            cases.push(case(format!("conv1d {kernel} {taps:?} {precision:?}"), 1e-5, move |cx| {
                let (w, b) = (random(2, [37, 10, kernel]), random(3, [37]));
                let packed = ops::pack_conv1d(&w, Some(&b), taps, precision)?.on(cx)?;
                let x = random(1, [71, 10]).to_bf16()?.to_f32()?.on(cx)?;
                let epilogue = Epilogue { activation: ops::Activation::Relu, residual: None };
                numbers(&ops::conv1d(cx, &x, &packed, epilogue)?)
            }));
        }
        cases.push(case(format!("depthwise_conv1d {kernel} {taps:?}"), 4e-6, move |cx| {
            let (w, b) = (random(2, [21, 1, kernel]), random(3, [21]));
            let packed = ops::pack_depthwise_conv1d(&w, Some(&b), taps)?.on(cx)?;
            numbers(&ops::depthwise_conv1d(cx, &random(1, [23, 21]).on(cx)?, &packed)?)
        }));
    }
    for (stride, kernel, padding) in [(1, 3, (1, 1)), (2, 4, (1, 1)), (8, 16, (4, 4)), (5, 11, (3, 2)), (4, 3, (0, 0))]
    {
        cases.push(case(format!("conv_transpose1d {kernel} {stride}"), 1e-5, move |cx| {
            let (w, b) = (random(2, [6, 10, kernel]), random(3, [10]));
            let packed = ops::pack_conv_transpose1d(&w, Some(&b), (stride, padding), Precision::F32)?.on(cx)?;
            numbers(&ops::conv_transpose1d(cx, &random(1, [13, 6]).on(cx)?, &packed)?)
        }));
    }
    cases.push(case("conv1d Q8".to_owned(), 2e-5, |cx| {
        let packed = ops::pack_conv1d(&random(2, [9, 32, 3]), None, ops::Taps::same(3, 1), Precision::Q8)?.on(cx)?;
        numbers(&ops::conv1d(cx, &bytes_of(1, 20, 32)?.on(cx)?, &packed, Epilogue::default())?)
    }));
    cases
}

fn spectra() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, edges) in [("none", ops::Edges::None), ("zero", ops::Edges::Zero), ("reflect", ops::Edges::Reflect)] {
        cases.push(case(format!("stft {name}"), 2e-5, move |cx| {
            let signal = random(1, [300]);
            let stft = ops::Stft::new(ops::hann(40), 10, edges)?;
            let spectrum = stft.forward(cx, signal.f32s()?)?;
            let mut out = numbers(&spectrum)?;
            out.extend(stft.inverse(cx, &spectrum)?);
            Ok(out)
        }));
    }
    cases.push(case("log_mel".to_owned(), 1e-4, |cx| {
        let triangle = |i: usize| (1.0 - ((i % 201) as f32 - 8.0 * (i / 201 + 1) as f32).abs() / 8.0).max(0.0);
        let filters = Tensor::from_f32((0..20 * 201).map(triangle).collect(), [20, 201])?;
        let mel = ops::LogMel::new(&filters)?;
        numbers(&mel.run(cx, random(1, [2_000]).f32s()?)?)
    }));
    cases
}

pub(super) fn row_cases() -> Vec<RowCase> {
    let linear = |precision| {
        move |cx: &_, x: &Tensor| {
            let packed = ops::pack_linear(&random(1, [70, 96]), Some(&random(2, [70])), precision)?.on(cx)?;
            ops::linear(cx, x, &packed)
        }
    };
    vec![
        RowCase { name: "linear f32", width: 96, run: Box::new(linear(Precision::F32)) },
        RowCase { name: "linear q8", width: 96, run: Box::new(linear(Precision::Q8)) },
        RowCase { name: "linear q4", width: 96, run: Box::new(linear(Precision::Q4)) },
        RowCase { name: "linear bf16", width: 96, run: Box::new(linear(Precision::Bf16)) },
    ]
}
