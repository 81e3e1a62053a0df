//! The extents of a tensor, held inline: shapes are made on every operation and must not allocate.

use std::fmt;

use crate::KernelError;

/// The most dimensions a tensor has.
pub const MAX_RANK: usize = 6;

/// The extents of a tensor, outermost first.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    dims: [usize; MAX_RANK],
    rank: usize,
}

// --- impl Shape ---

impl Shape {
    /// Takes at most [`MAX_RANK`] extents.
    pub fn new(dims: &[usize]) -> Result<Self, KernelError> {
        crate::error::below("shape", "rank", dims.len(), MAX_RANK + 1)?;
        let mut held = [1; MAX_RANK];
        held[..dims.len()].copy_from_slice(dims);
        Ok(Self { dims: held, rank: dims.len() })
    }

    /// Returns the extents.
    pub fn dims(&self) -> &[usize] {
        &self.dims[..self.rank]
    }

    /// Returns the number of dimensions.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Returns the number of elements (a scalar shape, of rank 0, has one). It is `usize::MAX`, which no tensor has, when
    /// the product of the extents that are not zero does not fit: then no partial product overflows either.
    pub fn len(&self) -> usize {
        let whole = self.dims().iter().try_fold(1usize, |n, &d| n.checked_mul(d.max(1)));
        match whole {
            Some(_) if self.dims().contains(&0) => 0,
            whole => whole.unwrap_or(usize::MAX),
        }
    }

    /// Says whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the innermost extent, 1 for a scalar.
    pub fn width(&self) -> usize {
        self.dims().last().copied().unwrap_or(1)
    }

    /// Returns the number of innermost rows: everything but the innermost extent.
    pub fn height(&self) -> usize {
        self.dims()[..self.rank.saturating_sub(1)].iter().product()
    }

    /// Returns the same shape with another innermost extent.
    pub fn with_width(mut self, width: usize) -> Self {
        if self.rank == 0 {
            self.rank = 1;
        }
        self.dims[self.rank - 1] = width;
        self
    }

    /// Returns the same shape with another outermost extent.
    pub(crate) fn with_first(mut self, first: usize) -> Self {
        if self.rank == 0 {
            self.rank = 1;
        }
        self.dims[0] = first;
        self
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(dims: [usize; N]) -> Self {
        const { assert!(N <= MAX_RANK, "too many dimensions") };
        let mut held = [1; MAX_RANK];
        held[..N].copy_from_slice(&dims);
        Self { dims: held, rank: N }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.dims())
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shape_counts_rows_and_elements() {
        let shape = Shape::from([2, 3, 4]);
        assert_eq!((shape.len(), shape.height(), shape.width()), (24, 6, 4));
        assert_eq!(Shape::from([]).len(), 1);
        assert_eq!(Shape::from([usize::MAX, 2]).len(), usize::MAX);
        assert_eq!(Shape::from([0, usize::MAX, 2]).len(), usize::MAX);
        assert_eq!(Shape::from([0, usize::MAX]).len(), 0);
        assert!(Shape::new(&[1; 7]).is_err());
        assert_eq!(shape.with_width(9).to_string(), "[2, 3, 9]");
    }
}
