//! Rope, gathering, joining, turning, picking, noise and voices.

use mstar_kernels::{NoiseKey, Tensor, ops};

use super::{Case, Numbers, case, numbers, random};

fn all(parts: &[Tensor]) -> Numbers {
    parts.iter().map(numbers).collect::<Result<Vec<_>, _>>().map(|parts| parts.concat())
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (width, pairs) in [(64, 32), (48, 20), (6, 3)] {
        for style in [ops::RopePairs::Halves, ops::RopePairs::Adjacent] {
            cases.push(case(format!("rope {width} {pairs} {style:?}"), 0.0, move |cx| {
                let inv_freq: Vec<f32> = (0..pairs).map(|i| 1e4f32.powf(-(i as f32) / pairs as f32)).collect();
                let angles = ops::RopeAngles::new(&[0, 1, 7, 130], &inv_freq);
                numbers(&ops::rope(cx, &random(1, [4, 3, width]).on(cx)?, &angles, style)?)
            }));
        }
    }
    cases.push(case("embedding".to_owned(), 0.0, |cx| {
        let table = random(1, [7, 33]);
        let ids = [6, 0, 3, 3];
        let wide = ops::embedding(cx, &table.on(cx)?, &ids)?;
        all(&[wide, ops::embedding(cx, &table.to_bf16()?.on(cx)?, &ids)?])
    }));
    cases.push(case("rows and columns".to_owned(), 0.0, |cx| {
        let x = random(1, [5, 70]).on(cx)?;
        let (left, right) = (ops::columns(cx, &x, 0..31)?, ops::columns(cx, &x, 31..70)?);
        let turned = ops::transpose(cx, &x)?;
        let taken = ops::take_rows(cx, &x, &[4, 4, 0])?;
        let joined = ops::concat_columns(cx, &[&right, &left])?;
        let view = x.rows(1..3)?;
        all(&[ops::concat_rows(cx, &[&taken, &joined, &view])?, left, turned])
    }));
    for width in [1, 6, 300] {
        cases.push(case(format!("normal {width}"), 4e-6, move |cx| {
            numbers(&ops::normal(cx, NoiseKey { seed: 5 << 32 | 9, stream: 3 }, 7, [4, width])?)
        }));
        cases.push(case(format!("voice_spectrum {width}"), 2e-5, move |cx| {
            let head = ops::scale(cx, &random(1, [3, 5 * width]).on(cx)?, 3.0)?;
            let (source, noise) = (random(2, [3, width, 2]).on(cx)?, random(3, [3, width, 2]).on(cx)?);
            let noises = [None, Some(&noise)];
            let voices = noises.map(|noise| ops::voice_spectrum(cx, &head, &source, noise, 1.5));
            all(&voices.into_iter().collect::<Result<Vec<_>, _>>()?)
        }));
    }
    cases.push(case("argmax and top_k".to_owned(), 0.0, |cx| {
        let mut out = Vec::new();
        for width in [1, 17, 700] {
            let x = random(1, [4, width]).on(cx)?;
            let top = ops::top_k(cx, &x, width.min(9))?;
            out.extend(ops::argmax(cx, &x)?.into_iter().map(|i| i as f32));
            out.extend(numbers(&top.values)?);
            out.extend(top.indices.to_host()?.u32s()?.iter().map(|&i| i as f32));
        }
        let ties = Tensor::from_f32(vec![f32::NAN, 1.0, 2.0, 2.0, f32::NEG_INFINITY], [1, 5])?.on(cx)?;
        let top = ops::top_k(cx, &ties, 5)?;
        out.extend(top.indices.to_host()?.u32s()?.iter().map(|&i| i as f32));
        out.extend(numbers(&top.values)?);
        Ok(out)
    }));
    cases
}
