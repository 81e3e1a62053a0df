//! Who appends how many tokens in a pass. Rows that append one come first. Of what prompts may have, the eldest gets
//! half, so that it ends; of the rest those with the least left get theirs first, so that a short prompt does not wait for
//! a long one. An odd token is the eldest's in every second pass. Pure.

/// What a pass has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    /// Rows that append one token.
    pub(super) steps: usize,
    /// Tokens of prompts, all together.
    pub(super) prompts: usize,
    /// Tokens of one prompt.
    pub(super) piece: usize,
    /// The number of the pass.
    pub(super) pass: u64,
}

/// Returns how many tokens each row appends, given how many it has left, the eldest row first.
pub(super) fn divide(left: &[usize], room: Room) -> Vec<usize> {
    let mut tokens = vec![0; left.len()];
    for place in (0..left.len()).filter(|&place| left[place] == 1).take(room.steps) {
        tokens[place] = 1;
    }
    let mut prompts: Vec<usize> = (0..left.len()).filter(|&place| left[place] > 1).collect();
    let Some(&eldest) = prompts.first() else { return tokens };
    let half = room.prompts / 2 + room.prompts % 2 * (room.pass % 2) as usize;
    tokens[eldest] = left[eldest].min(room.piece).min(half);
    let mut rest = room.prompts - tokens[eldest];
    prompts.sort_by_key(|&place| left[place] - tokens[place]);
    for place in prompts {
        let more = (left[place].min(room.piece) - tokens[place]).min(rest);
        tokens[place] += more;
        rest -= more;
    }
    tokens
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn room(prompts: usize) -> Room {
        Room { steps: 2, prompts, piece: 100, pass: 1 }
    }

    #[test]
    fn steps_come_first_and_prompts_share_what_is_theirs() {
        assert_eq!(divide(&[300, 1, 30, 1, 1], room(50)), [25, 1, 25, 1, 0]);
        assert_eq!(divide(&[300, 1, 10, 20], room(60)), [30, 1, 10, 20]);
        assert_eq!(divide(&[300, 10, 20], room(90)), [60, 10, 20], "what nobody else wants is the eldest's");
        assert_eq!(divide(&[300, 300], room(1)), [1, 0]);
        assert_eq!(divide(&[300, 300], room(1000)), [100, 100]);
        assert_eq!(divide(&[300, 300], room(0)), [0, 0]);
    }

    #[test]
    fn a_short_prompt_ends_before_a_long_one_however_little_room_there_is() {
        let mut left = [4000, 5, 30];
        let mut passes = 0;
        while left[1] > 1 || left[2] > 1 {
            let tokens = divide(&left, Room { pass: passes, ..room(1) });
            left.iter_mut().zip(tokens).for_each(|(left, tokens)| *left -= tokens);
            passes += 1;
        }
        assert!(passes <= 2 * 35 && left[0] < 4000, "{passes} passes, {left:?}");
    }

    proptest! {
        #[test]
        fn nothing_is_given_that_is_not_there_and_nothing_is_left_that_is_wanted(
            left in prop::collection::vec(1usize..200, 0..12),
            (steps, prompts, piece, pass) in (0usize..12, 0usize..300, 1usize..120, any::<u64>()),
        ) {
            let tokens = divide(&left, Room { steps, prompts, piece, pass });
            let of = |single: bool| {
                let rows = left.iter().zip(&tokens).filter(move |(left, _)| (**left == 1) == single);
                rows.map(|(left, tokens)| (*left, *tokens))
            };
            let wanted = |single, most: usize| of(single).map(|(left, _)| left.min(most)).sum::<usize>();
            prop_assert!(of(false).all(|(left, tokens)| tokens <= left.min(piece)));
            prop_assert_eq!(of(true).map(|(_, tokens)| tokens).sum::<usize>(), wanted(true, 1).min(steps));
            prop_assert_eq!(of(false).map(|(_, tokens)| tokens).sum::<usize>(), wanted(false, piece).min(prompts));
        }
    }
}
