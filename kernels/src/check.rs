//! What the tests of every operation share: contexts of every tier, numbers, comparisons.

use crate::{Cx, Shape, Tensor, Tier};

/// Calls `body` with a context of every tier this machine has and 1, 2 and 3 threads.
pub(crate) fn on_every_tier(body: impl Fn(&Cx)) {
    for tier in Tier::ALL {
        for threads in [1, 2, 3] {
            if let Ok(cx) = Cx::with_threads(threads).expect("threads start").with_tier(tier) {
                body(&cx);
            }
        }
    }
}

/// Numbers in -1..1 that depend on the seed alone.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0xd1b5_4a32_d192_ed03;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u32 << 23) as f32 - 1.0
    };
    (0..len).map(|_| next()).collect()
}

/// A tensor of [`noise`].
pub(crate) fn random(seed: u64, shape: impl Into<Shape>) -> Tensor {
    let shape = shape.into();
    Tensor::from_f32(noise(seed, shape.len()), shape).expect("the shape fits")
}

/// Asserts that both agree to `tolerance`, absolutely.
pub(crate) fn close(got: &[f32], want: &[f32], tolerance: f32) {
    assert_eq!(got.len(), want.len());
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        assert!((g - w).abs() <= tolerance, "element {i}: got {g}, want {w}");
    }
}

/// Asserts that both have the same bits.
pub(crate) fn same_bits(got: &[f32], want: &[f32]) {
    assert_eq!(got.len(), want.len());
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        assert_eq!(g.to_bits(), w.to_bits(), "element {i}: got {g}, want {w}");
    }
}

/// Asserts that `op` gives a row the same bits alone, and in batches of 1 to 33 at any place.
pub(crate) fn rows_do_not_see_their_batch(width: usize, op: impl Fn(&Tensor) -> Tensor) {
    let row = noise(7, width);
    let alone = op(&Tensor::from_f32(row.clone(), [1, width]).expect("fits"));
    for count in [1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 16, 17, 25, 32, 33] {
        for place in [0, count / 2, count - 1] {
            let mut batch = noise(count as u64, count * width);
            batch[place * width..][..width].copy_from_slice(&row);
            let all = op(&Tensor::from_f32(batch, [count, width]).expect("fits"));
            let got = all.rows(place..place + 1).expect("in range");
            assert_eq!(got.bytes(), alone.bytes(), "{count} rows, place {place}");
        }
    }
}

/// Asserts that `run` gives the same bytes on 1, 2 and 3 threads, on every tier.
pub(crate) fn threads_do_not_show(run: impl Fn(&Cx) -> Vec<u8>) {
    let seen = std::cell::RefCell::new(Vec::<(Tier, Vec<u8>)>::new());
    on_every_tier(|cx| {
        let (mut seen, bytes) = (seen.borrow_mut(), run(cx));
        match seen.iter().find(|(tier, _)| *tier == cx.tier()) {
            Some((tier, first)) => assert!(*first == bytes, "{tier:?}, {} threads", cx.pool().threads()),
            None => seen.push((cx.tier(), bytes)),
        }
    });
}
