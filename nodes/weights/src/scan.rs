//! A cursor over untrusted bytes: every read is checked, nothing is allocated on a file's word alone.

use crate::error::{Flaw, malformed};

/// Reads little-endian values from the front of a slice.
#[derive(Debug, Clone)]
pub(crate) struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Scan<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// The offset of the next byte.
    pub(crate) fn position(&self) -> usize {
        self.at
    }

    /// How many bytes are left.
    pub(crate) fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Takes the next `len` bytes.
    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], Flaw> {
        if len > self.left() {
            return malformed(format!(
                "{len} bytes announced at offset {}, but only {} are left",
                self.at,
                self.left()
            ));
        }
        let taken = &self.bytes[self.at..self.at + len];
        self.at += len;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Flaw> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N)?);
        Ok(out)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Flaw> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Flaw> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Flaw> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Flaw> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A count of items, each at least `min_item` bytes: refused when the file cannot hold so many.
    pub(crate) fn plausible(&self, count: u64, min_item: usize) -> Result<usize, Flaw> {
        let room = (self.left() / min_item.max(1)) as u64;
        if count > room {
            return malformed(format!("{count} items announced, the file has room for {room}"));
        }
        Ok(count as usize)
    }
}

/// The number of elements of a shape, or a flaw when it overflows.
pub(crate) fn elements(shape: &[usize]) -> Result<usize, Flaw> {
    shape
        .iter()
        .try_fold(1usize, |product, &dim| product.checked_mul(dim))
        .ok_or_else(|| Flaw::Malformed(format!("shape {shape:?} is too large")))
}

/// A file's 64-bit number as an index.
pub(crate) fn index(value: u64) -> Result<usize, Flaw> {
    usize::try_from(value).map_err(|_| Flaw::Malformed(format!("{value} is too large")))
}
