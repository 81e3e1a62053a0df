//! What a listener hears who starts to play with the first piece of audio.

use std::time::Duration;

/// A piece of audio as it came.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Piece {
    /// When, after the request was sent.
    pub after: Duration,
    /// How long it sounds, in seconds.
    pub seconds: f64,
}

/// How well a listener was served.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Heard {
    /// Pieces that had to follow another.
    pub followed: usize,
    /// Of these, pieces that were there when the one before them ended.
    pub in_time: usize,
    /// Silence in between, in seconds.
    pub silence: f64,
}

/// Plays pieces as they come. A late one is a pause, and what follows it is due later by as much.
pub fn heard(pieces: &[Piece]) -> Heard {
    let mut heard = Heard::default();
    let Some((first, others)) = pieces.split_first() else { return heard };
    let mut ends = first.after.as_secs_f64() + first.seconds;
    for piece in others {
        let came = piece.after.as_secs_f64();
        heard.followed += 1;
        if came <= ends {
            heard.in_time += 1;
        } else {
            heard.silence += came - ends;
            ends = came;
        }
        ends += piece.seconds;
    }
    heard
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pieces: &[(u64, f64)], followed: usize, in_time: usize, silence: f64) {
        let pieces: Vec<Piece> =
            pieces.iter().map(|&(ms, seconds)| Piece { after: Duration::from_millis(ms), seconds }).collect();
        let heard = heard(&pieces);
        assert_eq!((heard.followed, heard.in_time), (followed, in_time), "{heard:?}");
        assert!((heard.silence - silence).abs() < 1e-9, "{heard:?}");
    }

    #[test]
    fn the_first_piece_is_never_late() {
        check(&[], 0, 0, 0.0);
        check(&[(9000, 0.5)], 0, 0, 0.0);
    }

    #[test]
    fn pieces_ahead_of_their_time_are_in_time() {
        check(&[(100, 0.5), (100, 0.5), (600, 0.5), (1600, 0.5)], 3, 3, 0.0);
    }

    #[test]
    fn a_late_piece_is_a_pause_and_delays_what_is_due_after_it() {
        // The second is due at 0.6 and comes at 0.8; the third is then due at 1.3, not at 1.1.
        check(&[(100, 0.5), (800, 0.5), (1300, 0.5)], 2, 1, 0.2);
        check(&[(100, 0.5), (800, 0.5), (1400, 0.5)], 2, 0, 0.3);
    }
}
