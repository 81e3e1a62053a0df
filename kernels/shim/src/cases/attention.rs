//! Attention, plain and over pages.

use mstar_kernels::ops::{AttnRow, AttnSpan, KvRow, KvSize, Reach};
use mstar_kernels::{Cx, DType, KvPages, Tensor, ops};

use super::{Case, Numbers, case, numbers, random};

const REACHES: [Reach; 5] = [Reach::Full, Reach::Causal, Reach::Window(1), Reach::Window(19), Reach::Blocks(12)];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (heads, kv_heads, width) in [(1, 1, 16), (4, 2, 32), (9, 3, 64), (6, 6, 20), (2, 1, 256), (5, 5, 96)] {
        for reach in REACHES {
            cases.push(case(format!("attention {heads}/{kv_heads} {width} {reach:?}"), 4e-6, move |cx| {
                let q = random(1, [29, heads, width]).on(cx)?;
                let k = random(2, [70, kv_heads, width]).on(cx)?;
                let v = random(3, [70, kv_heads, width]).on(cx)?;
                let spans = [
                    AttnSpan { rows: 0..1, keys: 0..33, reach },
                    AttnSpan { rows: 1..1, keys: 33..33, reach },
                    AttnSpan { rows: 2..28, keys: 20..70, reach },
                ];
                numbers(&ops::attention(cx, &q, (&k, &v), &spans, 0.3)?)
            }));
        }
    }
    for dtype in [DType::F32, DType::BF16] {
        for reach in [Reach::Causal, Reach::Window(300), Reach::Full, Reach::Blocks(64)] {
            // Sequences of more than one part: for the last row by themselves, or for many rows.
            for rows in [1, 40] {
                cases.push(case(format!("long attention {dtype:?} {reach:?} {rows} rows"), 4e-6, move |cx| {
                    let sequence = Sequence::of(cx, dtype, 700)?;
                    numbers(&sequence.attend(cx, rows, reach)?)
                }));
            }
        }
    }
    cases.push(case("attention of queries, keys and values side by side".to_owned(), 4e-6, |cx| {
        let qkv = random(4, [40, 8 * 24]).on(cx)?;
        let spans = [(0, 17), (17, 40)];
        let spans = spans.map(|(from, to)| AttnSpan { rows: from..to, keys: from..to, reach: Reach::Full });
        let mut out = numbers(&ops::attention_joined(cx, &qkv, (2, 24), &spans, 0.3)?)?;
        let angles = ops::RopeAngles::new(&(5..45).collect::<Vec<u32>>(), &[1.0, 0.3, 0.1]);
        let mut pages = KvPages::on(cx, KvSize { layers: 1, pages: 3, heads: 2, head_dim: 24 }, DType::BF16)?;
        let rows = [KvRow { rows: 0..40, table: &[2, 0, 1], first: 5 }];
        let turn = Some((&angles, ops::RopePairs::Halves));
        out.extend(numbers(&pages.append_joined(cx, 0, &qkv, turn, &rows)?)?);
        let (keys, values) = pages.into_parts();
        Ok([out, numbers(&keys)?, numbers(&values)?].concat())
    }));
    cases.push(case("copied pages".to_owned(), 0.0, copied_pages));
    cases
}

/// A sequence in pages that lie in disorder.
pub struct Sequence {
    kv: KvPages,
    table: Vec<u32>,
    len: usize,
    q: Tensor,
}

impl Sequence {
    /// Stores `len` tokens of two heads, in layer 1 of 2.
    pub fn of(cx: &Cx, dtype: DType, len: usize) -> Result<Self, mstar_kernels::KernelError> {
        let pages = len.div_ceil(16);
        let table: Vec<u32> = (0..pages as u32).map(|page| pages as u32 - page).collect();
        let size = KvSize { layers: 2, pages: pages + 1, heads: 2, head_dim: 24 };
        let mut kv = KvPages::on(cx, size, dtype)?;
        let (k, v) = (random(2, [len, 2, 24]).on(cx)?, random(3, [len, 2, 24]).on(cx)?);
        kv.append(cx, 1, (&k, &v), &[KvRow { rows: 0..len, table: &table, first: 0 }])?;
        Ok(Self { kv, table, len, q: random(1, [len, 6, 24]) })
    }

    /// Attends with the last `rows` queries.
    pub fn attend(&self, cx: &Cx, rows: usize, reach: Reach) -> Result<Tensor, mstar_kernels::KernelError> {
        let part = AttnRow { rows: 0..rows, table: &self.table, kv_len: self.len, reach };
        let q = self.q.rows(self.len - rows..self.len)?.on(cx)?;
        ops::paged_attention(cx, &q, &self.kv, 1, &[part], 0.3)
    }
}

fn copied_pages(cx: &Cx) -> Numbers {
    let size = KvSize { layers: 2, pages: 4, heads: 3, head_dim: 20 };
    let (k, v) = (random(1, [16, 3, 20]).on(cx)?, random(2, [16, 3, 20]).on(cx)?);
    let mut pages = KvPages::on(cx, size, DType::BF16)?;
    for (layer, page) in [(0, 0), (1, 0)] {
        pages.append(cx, layer, (&k, &v), &[KvRow { rows: 0..16, table: &[page], first: 0 }])?;
    }
    pages.copy_page(0, 2)?;
    let (keys, values) = pages.into_parts();
    Ok([numbers(&keys)?, numbers(&values)?].concat())
}
