//! Guesses which known word a misspelt one was meant to be.

/// Returns the nearest of the known words, if it is near enough to be a slip.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let slips = (word.chars().count() / 3).clamp(1, 3);
    let scored = known.into_iter().map(|candidate| (distance(word, candidate), candidate));
    scored
        .filter(|(distance, _)| *distance <= slips)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Returns how many characters have to be added, dropped, replaced or swapped with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_its_word_and_a_stranger_does_not() {
        let known = ["queue_limit", "max_concurrent", "body_bytes", "rank"];
        let check = |word, expected: Option<&str>| assert_eq!(nearest(word, known), expected, "{word}");
        check("queue_limt", Some("queue_limit"));
        check("quue_limit", Some("queue_limit"));
        check("maxconcurrent", Some("max_concurrent"));
        check("rnak", Some("rank"));
        check("body_byte", Some("body_bytes"));
        check("colour", None);
        check("x", None);
    }

    #[test]
    fn a_swap_of_neighbours_is_one_slip() {
        assert_eq!(distance("rnak", "rank"), 1);
        assert_eq!(distance("", "rank"), 4);
        assert_eq!(distance("rank", "rank"), 0);
    }
}
