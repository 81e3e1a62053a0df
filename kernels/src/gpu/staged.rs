//! Small inputs that lie on the device already: page tables, positions, ids, which every layer of a step asks for.

use std::collections::VecDeque;

use super::memory::rounded;

/// The inputs that were uploaded last.
#[derive(Debug, Default)]
pub(super) struct Staged {
    entries: VecDeque<Entry>,
}

#[derive(Debug)]
struct Entry {
    usage: &'static str,
    bytes: Vec<u8>,
    address: u64,
}

impl Staged {
    /// How many are kept while nothing is captured.
    pub(super) const LAST: usize = 32;

    /// Returns where equal bytes of the same use lie.
    pub(super) fn find(&self, usage: &str, bytes: &[u8]) -> Option<u64> {
        let same = |entry: &&Entry| entry.usage == usage && entry.bytes == bytes;
        self.entries.iter().rev().find(same).map(|entry| entry.address)
    }

    /// Keeps an entry; returns the memory of the oldest one when there are more than `most`.
    pub(super) fn keep(
        &mut self,
        usage: &'static str,
        bytes: &[u8],
        address: u64,
        most: usize,
    ) -> Option<(u64, usize)> {
        self.entries.push_back(Entry { usage, bytes: bytes.to_vec(), address });
        if self.entries.len() <= most {
            return None;
        }
        self.entries.pop_front().map(|entry| (entry.address, rounded(entry.bytes.len())))
    }

    /// Hands out all memory, with sizes.
    pub(super) fn drain(&mut self) -> Vec<(u64, usize)> {
        self.entries.drain(..).map(|entry| (entry.address, rounded(entry.bytes.len()))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_bytes_of_one_use_are_found_and_the_oldest_goes_first() {
        let mut staged = Staged::default();
        assert_eq!(staged.keep("ids", &[1, 2], 512, 2), None);
        assert_eq!(staged.keep("tables", &[1, 2], 1_024, 2), None);
        assert_eq!(staged.find("ids", &[1, 2]), Some(512));
        assert_eq!(staged.find("tables", &[1, 2]), Some(1_024));
        assert_eq!(staged.find("ids", &[1, 3]), None);
        assert_eq!(staged.keep("ids", &[1, 3], 1_536, 2), Some((512, 512)));
        assert_eq!(staged.find("ids", &[1, 2]), None);
        assert_eq!(staged.drain(), [(1_024, 512), (1_536, 512)]);
    }
}
