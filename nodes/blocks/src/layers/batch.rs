//! A decode batch as the kernels want it.

use mstar_contract::DecodeBatch;
use mstar_kernels::ops::{AttnRow, KvRow, Reach};

/// Where each row of a batch stands, for all layers.
#[derive(Clone, Debug)]
pub struct BatchRows<'a> {
    /// Where new keys and values go.
    pub kept: Vec<KvRow<'a>>,
    /// What queries see: their own past.
    pub causal: Vec<AttnRow<'a>>,
    /// The position of each token in its sequence.
    pub positions: Vec<u32>,
    /// The tokens whose logits are wanted.
    pub wanted: Vec<usize>,
}

// --- impl BatchRows ---

impl<'a> BatchRows<'a> {
    /// Reads a batch.
    pub fn of(batch: &DecodeBatch<'a>) -> Self {
        let mut positions = Vec::with_capacity(batch.tokens.len());
        let (mut kept, mut causal, mut wanted) = (Vec::new(), Vec::new(), Vec::new());
        for row in batch.rows {
            let count = row.tokens.len();
            kept.push(KvRow { rows: row.tokens.clone(), table: row.pages, first: row.position });
            causal.push(AttnRow {
                rows: row.tokens.clone(),
                table: row.pages,
                kv_len: row.position + count,
                reach: Reach::Causal,
            });
            positions.extend((row.position..row.position + count).map(|p| u32::try_from(p).unwrap_or(u32::MAX)));
            if row.logits && count > 0 {
                wanted.push(row.tokens.end - 1);
            }
        }
        Self { kept, causal, positions, wanted }
    }
}

#[cfg(test)]
mod tests {
    use mstar_contract::DecodeRow;

    use super::*;

    #[test]
    fn a_row_sees_its_past_and_only_wanted_logits_are_named() {
        let row = |tokens, position, pages, logits| DecodeRow { tokens, position, pages, cross: None, logits };
        let rows = [row(0..3, 16, &[4, 5][..], false), row(3..4, 0, &[7][..], true)];
        let batch = DecodeBatch { tokens: &[1, 2, 3, 4], rows: &rows };
        let read = BatchRows::of(&batch);
        assert_eq!(read.positions, [16, 17, 18, 0]);
        assert_eq!((read.causal[0].kv_len, read.causal[1].kv_len), (19, 1));
        assert_eq!((read.kept[0].first, read.kept[1].table), (16, &[7][..]));
        assert_eq!(read.wanted, [3]);
    }
}
