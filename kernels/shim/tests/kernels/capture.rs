//! Captured steps: the same numbers, run as a whole, and run plainly when they turn out to be other ones.

use mstar_kernels::gpu::Captures;
use mstar_kernels::ops::{AttnRow, KvRow, KvSize, Reach};
use mstar_kernels::{Cx, DType, KernelError, KvPages, Precision, Tensor, ops};
use mstar_shim::cases::random;

use crate::contexts;

/// A decoder of one layer, small and whole: embedding, norm, projections, rope, pages, attention, logits.
struct Decoder {
    table: Tensor,
    norm: Tensor,
    qkv: ops::PackedLinear,
    out: ops::PackedLinear,
    kv: KvPages,
}

impl Decoder {
    fn new(cx: &Cx) -> Self {
        let size = KvSize { layers: 1, pages: 4, heads: 1, head_dim: 16 };
        let pack = |seed, shape: [usize; 2]| {
            ops::pack_linear(&random(seed, shape), None, Precision::F32).unwrap().on(cx).unwrap()
        };
        Self {
            table: random(1, [11, 32]).on(cx).unwrap(),
            norm: random(2, [32]).on(cx).unwrap(),
            qkv: pack(3, [64, 32]),
            out: pack(4, [11, 32]),
            kv: KvPages::on(cx, size, DType::F32).unwrap(),
        }
    }

    /// One token of one sequence; returns logits.
    fn step(&mut self, cx: &Cx, id: u32, position: usize) -> Result<Tensor, KernelError> {
        let x = ops::embedding(cx, &self.table, &[id])?;
        let x = ops::rms_norm(cx, &x, &self.norm, 1e-5, ops::Gain::Weight)?;
        let qkv = ops::linear(cx, &x, &self.qkv)?;
        let angles = ops::RopeAngles::new(&[position as u32], &[1.0, 0.3, 0.1, 0.01]);
        let turned = |range, heads| {
            let part = ops::columns(cx, &qkv, range)?.reshape([1, heads, 16])?;
            ops::rope(cx, &part, &angles, ops::RopePairs::Halves)
        };
        let (q, k) = (turned(0..32, 2)?, turned(32..48, 1)?);
        let v = ops::columns(cx, &qkv, 48..64)?.reshape([1, 1, 16])?;
        self.kv.append(cx, 0, (&k, &v), &[KvRow { rows: 0..1, table: &[2, 0], first: position }])?;
        let row = AttnRow { rows: 0..1, table: &[2, 0], kv_len: position + 1, reach: Reach::Causal };
        let y = ops::paged_attention(cx, &q, &self.kv, 0, &[row], 0.25)?;
        ops::linear(cx, &y.reshape([1, 32])?, &self.out)
    }
}

fn read(tensor: &Tensor) -> Vec<f32> {
    tensor.to_host().unwrap().f32s().unwrap().to_vec()
}

#[test]
fn a_captured_step_gives_the_bits_of_a_plain_one() {
    let Some((_, gpu)) = contexts() else { return };
    let (mut plain, mut captured) = (Decoder::new(&gpu), Decoder::new(&gpu));
    let mut captures = Captures::new(gpu.gpu().unwrap());
    for (position, id) in [3, 7, 7, 0, 10, 1, 3, 2].into_iter().enumerate() {
        let want = plain.step(&gpu, id, position).unwrap();
        let got = captures.run(1, || captured.step(&gpu, id, position)).unwrap();
        assert_eq!(read(&got), read(&want), "position {position}");
    }
    assert_eq!(captures.replayed(), 6);
}

#[test]
fn a_step_that_differs_is_run_plainly_and_captured_anew() {
    let Some((_, gpu)) = contexts() else { return };
    let mut captures = Captures::new(gpu.gpu().unwrap());
    let x = random(1, [2, 8]).on(&gpu).unwrap();
    let run = |captures: &mut Captures, factor: f32| {
        let out = captures.run(5, || ops::relu(&gpu, &ops::scale(&gpu, &x, factor)?)).unwrap();
        let want = ops::relu(&gpu, &ops::scale(&gpu, &x, factor).unwrap()).unwrap();
        assert_eq!(read(&out), read(&want), "{factor}");
    };
    for (factor, replayed) in [(1.0, 0), (1.0, 0), (1.0, 1), (2.0, 1), (2.0, 1), (2.0, 2), (2.0, 3)] {
        run(&mut captures, factor);
        assert_eq!(captures.replayed(), replayed, "{factor}");
    }
}

#[test]
fn a_step_whose_inputs_are_of_another_length_is_run_plainly() {
    let Some((_, gpu)) = contexts() else { return };
    let mut captures = Captures::new(gpu.gpu().unwrap());
    let table = random(1, [7, 8]).on(&gpu).unwrap();
    for (ids, replayed) in
        [(&[3, 1, 2][..], 0), (&[0, 1, 6], 0), (&[5, 5, 4], 1), (&[2, 3], 1), (&[6, 1], 1), (&[1, 1], 2)]
    {
        let out = captures.run(0, || ops::embedding(&gpu, &table, ids)).unwrap();
        assert_eq!(read(&out), read(&ops::embedding(&gpu, &table, ids).unwrap()));
        assert_eq!(captures.replayed(), replayed, "{ids:?}");
    }
}

#[test]
fn values_of_a_captured_step_outlive_it() {
    let Some((_, gpu)) = contexts() else { return };
    let x = random(1, [2, 8]).on(&gpu).unwrap();
    let mut captures = Captures::new(gpu.gpu().unwrap());
    let mut out = None;
    for _ in 0..3 {
        out = Some(captures.run(0, || ops::scale(&gpu, &x, 2.0)).unwrap());
    }
    drop(captures);
    let others: Vec<Tensor> = (0..4).map(|_| ops::scale(&gpu, &x, 3.0).unwrap()).collect();
    let want: Vec<f32> = read(&x).iter().map(|v| v * 2.0).collect();
    assert_eq!(read(&out.unwrap()), want);
    drop(others);
}

#[test]
fn a_step_that_reads_back_runs_plainly_and_says_why() {
    let Some((_, gpu)) = contexts() else { return };
    let x = random(1, [2, 8]).on(&gpu).unwrap();
    let mut captures = Captures::new(gpu.gpu().unwrap());
    let want = ops::argmax(&gpu, &x).unwrap();
    for _ in 0..4 {
        assert_eq!(captures.run(0, || ops::argmax(&gpu, &x)).unwrap(), want);
    }
    assert_eq!(captures.replayed(), 0);
    assert!(captures.refused().unwrap().to_string().starts_with("cuda: capture: the step failed while it was noted"));
}

#[test]
fn a_step_that_panics_leaves_a_device_that_works() {
    let Some((_, gpu)) = contexts() else { return };
    let x = random(1, [2, 8]).on(&gpu).unwrap();
    let mut captures = Captures::new(gpu.gpu().unwrap());
    let want = read(&ops::scale(&gpu, &x, 2.0).unwrap());
    // In the first turn it panics while it is noted, in the second while it is compared.
    for replayed in [1, 2] {
        let ran = |panics: bool, captures: &mut Captures| {
            captures.run(0, || {
                let out = ops::scale(&gpu, &x, 2.0)?;
                assert!(!panics, "as it should");
                Ok::<_, KernelError>(out)
            })
        };
        let plain = std::iter::repeat_n(false, replayed);
        plain.for_each(|panics| _ = ran(panics, &mut captures).unwrap());
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| ran(true, &mut captures))).is_err());
        for _ in 0..3 {
            assert_eq!(read(&ran(false, &mut captures).unwrap()), want);
        }
        captures = Captures::new(gpu.gpu().unwrap());
    }
    gpu.gpu().unwrap().finish().unwrap();
}
