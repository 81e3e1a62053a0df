//! The spectrum of a voice: a source with gain and phase, shaped noise, and parts with phases of their own.

use crate::cx::RowKernel;
use crate::error::need;
use crate::isa::{Isa, LANES};
use crate::{Cx, KernelError, Shape, Tensor, gpu, maths};

/// Parts of a row of the head.
const PARTS: usize = 5;

/// The spectrum `[frames, bins, 2]` (real and imaginary parts) of a voice. `head` is `[frames, 5 * bins]`: per frame the
/// log gain `lh` and the angle `theta` of the harmonics, the log gain `ln` of the noise, the log gain `lr` and the
/// angle `phi` of the rest. `source` and `noise` are spectra; without noise that branch is silent.
///
/// `exp(lh) e^(i pi tanh(theta)) source + exp(ln) noise + exp(lr) e^(i phi)`, with log gains of at most `most`, as in
/// `hibari/dsp.py` of `hibari-tts` 0.2.1.
pub fn voice_spectrum(
    cx: &Cx,
    head: &Tensor,
    source: &Tensor,
    noise: Option<&Tensor>,
    most: f32,
) -> Result<Tensor, KernelError> {
    let shape = source.shape();
    let bins = if shape.rank() == 3 { shape.dims()[1] } else { 0 };
    let frames = shape.dims().first().copied().unwrap_or(0);
    let fits = shape == Shape::from([frames, bins, 2])
        && head.shape() == Shape::from([frames, PARTS * bins])
        && noise.is_none_or(|noise| noise.shape() == shape);
    let rule = "the head is [frames, 5 * bins], source and noise are [frames, bins, 2]";
    need(fits, "voice_spectrum", rule, &[head.shape(), shape, noise.map_or(shape, Tensor::shape)])?;
    if let Some(gpu) = cx.gpu() {
        return gpu::ops::voice_spectrum(gpu, head, source, noise, most);
    }
    let cpu = cx.cpu_for("voice_spectrum")?;
    let noise = noise.map(Tensor::f32s).transpose()?;
    let kernel = Voice { head: head.f32s()?, source: source.f32s()?, noise, bins, most };
    Tensor::written(shape, |out| cpu.rows(out, 2 * bins, &kernel))
}

struct Voice<'a> {
    head: &'a [f32],
    source: &'a [f32],
    noise: Option<&'a [f32]>,
    bins: usize,
    most: f32,
}

impl RowKernel for Voice<'_> {
    const COST: usize = 15;

    #[inline(always)]
    fn row<I: Isa>(&self, isa: I, row: usize, out: &mut [f32]) {
        let head = &self.head[row * PARTS * self.bins..][..PARTS * self.bins];
        let of_row = |spectrum: &'_ [f32]| row * out.len()..row * out.len() + out.len().min(spectrum.len());
        let source = &self.source[of_row(self.source)];
        let noise = self.noise.map(|noise| &noise[of_row(noise)]);
        for first in (0..self.bins).step_by(LANES) {
            let count = LANES.min(self.bins - first);
            let span = 2 * first..2 * (first + count);
            let noise = noise.map(|noise| &noise[span.clone()]);
            self.bins_of(isa, &head[first..], (&source[span.clone()], noise), &mut out[span]);
        }
    }
}

impl Voice<'_> {
    /// Up to sixteen bins; `head` begins at the first one's place in the first part.
    #[inline(always)]
    fn bins_of<I: Isa>(&self, isa: I, head: &[f32], (source, noise): (&[f32], Option<&[f32]>), out: &mut [f32]) {
        let count = out.len() / 2;
        let part = |k: usize| isa.load_part(&head[k * self.bins..][..count], 0.0);
        let most = isa.splat(self.most);
        let (re, im) = apart(isa, source);
        let turned = maths::tanh(isa, part(1));
        let (sin, cos) = maths::sin_cos(isa, isa.mul(turned, isa.splat(std::f32::consts::PI)));
        let gain = maths::exp(isa, isa.min(most, part(0)));
        let (sin, cos) = (isa.mul(gain, sin), isa.mul(gain, cos));
        let (mut to_re, mut to_im) = (isa.sub(isa.mul(re, cos), isa.mul(im, sin)), isa.fma(re, sin, isa.mul(im, cos)));
        if let Some(noise) = noise {
            let (gain, (re, im)) = (maths::exp(isa, isa.min(most, part(2))), apart(isa, noise));
            (to_re, to_im) = (isa.fma(gain, re, to_re), isa.fma(gain, im, to_im));
        }
        let (gain, (sin, cos)) = (maths::exp(isa, isa.min(most, part(3))), maths::sin_cos(isa, part(4)));
        let re = isa.lanes(isa.fma(gain, cos, to_re));
        let im = isa.lanes(isa.fma(gain, sin, to_im));
        for ((bin, re), im) in out.as_chunks_mut::<2>().0.iter_mut().zip(re).zip(im) {
            *bin = [re, im];
        }
    }
}

/// Real and imaginary parts of up to sixteen complex numbers.
#[inline(always)]
fn apart<I: Isa>(isa: I, numbers: &[f32]) -> (I::V, I::V) {
    let (mut re, mut im) = ([0.0; LANES], [0.0; LANES]);
    for ((number, re), im) in numbers.as_chunks::<2>().0.iter().zip(&mut re).zip(&mut im) {
        [*re, *im] = *number;
    }
    (isa.load(&re), isa.load(&im))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{close, on_every_tier, random};
    use crate::ops::scale;

    const MOST: f32 = 1.5;

    fn reference(head: &[f32], source: &[f32], noise: Option<&[f32]>, bins: usize) -> Vec<f32> {
        let mut out = Vec::new();
        for at in 0..source.len() / 2 {
            let part = |k: usize| f64::from(head[at / bins * PARTS * bins + k * bins + at % bins]);
            let gain = |k: usize| part(k).min(f64::from(MOST)).exp();
            let complex = |x: &[f32]| (f64::from(x[2 * at]), f64::from(x[2 * at + 1]));
            let (re, im) = complex(source);
            let angle = std::f64::consts::PI * part(1).tanh();
            let (noise_re, noise_im) = noise.map_or((0.0, 0.0), complex);
            let turned = (re * angle.cos() - im * angle.sin(), re * angle.sin() + im * angle.cos());
            out.push((gain(0) * turned.0 + gain(2) * noise_re + gain(3) * part(4).cos()) as f32);
            out.push((gain(0) * turned.1 + gain(2) * noise_im + gain(3) * part(4).sin()) as f32);
        }
        out
    }

    #[test]
    fn a_voice_follows_its_definition_with_and_without_noise() {
        on_every_tier(|cx| {
            for bins in [1, 16, 61] {
                let head = scale(cx, &random(1, [3, PARTS * bins]), 3.0).unwrap();
                let (source, noise) = (random(2, [3, bins, 2]), random(3, [3, bins, 2]));
                for noise in [None, Some(&noise)] {
                    let got = voice_spectrum(cx, &head, &source, noise, MOST).unwrap();
                    let noise = noise.map(|noise| noise.f32s().unwrap());
                    let want = reference(head.f32s().unwrap(), source.f32s().unwrap(), noise, bins);
                    close(got.f32s().unwrap(), &want, 2e-5);
                }
            }
        });
    }

    #[test]
    fn a_frame_has_the_same_bits_among_any_others() {
        let cx = Cx::with_threads(2).unwrap();
        let (head, source, noise) = (random(1, [37, PARTS * 21]), random(2, [37, 21, 2]), random(3, [37, 21, 2]));
        let whole = voice_spectrum(&cx, &head, &source, Some(&noise), MOST).unwrap();
        for row in [0, 17, 36] {
            let part = |x: &Tensor| x.rows(row..row + 1).unwrap();
            let alone = voice_spectrum(&cx, &part(&head), &part(&source), Some(&part(&noise)), MOST).unwrap();
            assert_eq!(alone.bytes(), part(&whole).bytes());
        }
    }

    #[test]
    fn parts_that_do_not_fit_are_refused() {
        let cx = Cx::with_threads(1).unwrap();
        let (head, source) = (random(1, [3, PARTS * 7]), random(2, [3, 7, 2]));
        assert!(voice_spectrum(&cx, &head, &random(2, [3, 6, 2]), None, MOST).is_err());
        assert!(voice_spectrum(&cx, &head, &random(2, [2, 7, 2]), None, MOST).is_err());
        assert!(voice_spectrum(&cx, &head, &source, Some(&random(3, [3, 6, 2])), MOST).is_err());
        assert!(voice_spectrum(&cx, &head, &random(2, [21, 2]), None, MOST).is_err());
    }
}
