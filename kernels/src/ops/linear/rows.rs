//! Where a layer's rows come from: a tensor's own, or some that are made as they are needed.

use std::ops::Range;

/// Gives rows of as many numbers as the layer has inputs.
pub(in crate::ops) trait RowSource: Sync {
    /// Returns some rows side by side; what is not in memory already is made in `scratch`.
    fn rows<'s>(&'s self, rows: Range<usize>, scratch: &'s mut Vec<f32>) -> &'s [f32];

    /// Returns all rows, if they are in memory side by side.
    fn whole(&self) -> Option<&[f32]> {
        None
    }
}

/// The rows of a tensor.
pub(in crate::ops) struct Plain<'a> {
    pub(in crate::ops) x: &'a [f32],
    pub(in crate::ops) width: usize,
}

// --- impl Plain ---

impl RowSource for Plain<'_> {
    fn rows<'s>(&'s self, rows: Range<usize>, _scratch: &'s mut Vec<f32>) -> &'s [f32] {
        &self.x[rows.start * self.width..rows.end * self.width]
    }

    fn whole(&self) -> Option<&[f32]> {
        Some(self.x)
    }
}

/// A run of rows of a source: what one round of a product packs and multiplies.
pub(super) struct Rows<'a, S> {
    pub(super) source: &'a S,
    pub(super) start: usize,
    pub(super) width: usize,
}

// --- impl Rows ---

impl<'a, S: RowSource> Rows<'a, S> {
    /// Returns `count` rows from the `first` of the run.
    pub(super) fn get<'s>(&'s self, first: usize, count: usize, scratch: &'s mut Vec<f32>) -> &'s [f32] {
        self.source.rows(self.start + first..self.start + first + count, scratch)
    }

    /// Returns `count` rows from the start, if they are in memory.
    pub(super) fn whole(&self, count: usize) -> Option<&'a [f32]> {
        Some(&self.source.whole()?[self.start * self.width..][..count * self.width])
    }
}
