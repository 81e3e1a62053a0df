//! Where new tokens go: places in pages, cut in runs and tasks.

use super::PAGE_TOKENS;

/// Numbers of keys, or of queries, that are worth a task.
pub(super) const PART: usize = 8 << 10;

/// A row of the batch, its page, and its place in the page.
pub(super) type Slot = (usize, usize, usize);

/// Cuts slots into those of whole pages, first token to last, and single ones.
pub(super) fn whole_pages(mut slots: &[Slot]) -> impl Iterator<Item = &[Slot]> {
    std::iter::from_fn(move || {
        let &(_, page, _) = slots.first()?;
        let in_order =
            |tokens: &[Slot; PAGE_TOKENS]| tokens.iter().enumerate().all(|(i, slot)| (slot.1, slot.2) == (page, i));
        let whole = slots.first_chunk().is_some_and(in_order);
        let (run, rest) = slots.split_at(if whole { PAGE_TOKENS } else { 1 });
        slots = rest;
        Some(run)
    })
}

/// Cuts slots of so many numbers each in tasks that share no page.
pub(super) fn page_parts(slots: &[Slot], numbers: usize) -> Vec<&[Slot]> {
    let least = (PART / numbers.max(1)).max(1);
    if slots.len() <= least {
        return if slots.is_empty() { Vec::new() } else { vec![slots] };
    }
    let pages: Vec<&[Slot]> = slots.chunk_by(|a, b| a.1 == b.1).collect();
    let mut named: Vec<usize> = pages.iter().map(|slots| slots[0].1).collect();
    named.sort_unstable();
    if named.windows(2).any(|pair| pair[0] == pair[1]) {
        // Two tasks would meet in a page that is named again: one task takes all, and the last of equal places stays.
        return vec![slots];
    }
    let (mut parts, mut rest, mut taken) = (Vec::new(), slots, 0);
    for page in pages {
        taken += page.len();
        if taken >= least {
            let (part, later) = rest.split_at(taken);
            parts.push(part);
            (rest, taken) = (later, 0);
        }
    }
    if !rest.is_empty() {
        parts.push(rest);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_share_no_page_and_leave_no_token_out() {
        let slots = |pages: &[usize]| -> Vec<Slot> {
            pages
                .iter()
                .enumerate()
                .flat_map(|(i, &page)| (0..3).map(move |token| (3 * i + token, page, token)))
                .collect()
        };
        let apart = slots(&[4, 0, 7, 2, 9]);
        let parts = page_parts(&apart, PART / 4);
        assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), [6, 6, 3]);
        assert_eq!(parts.concat(), apart);
        // A page that is named again would be written by two tasks.
        let again = slots(&[4, 0, 4, 2]);
        assert_eq!(page_parts(&again, PART), [&again[..]]);
        assert!(page_parts(&[], PART).is_empty());
    }
}
