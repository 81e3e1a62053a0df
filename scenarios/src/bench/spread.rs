//! How a quantity spreads over requests.

use serde_json::{Value, json};

use crate::machine::rounded;

/// Percentiles of a quantity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Half of the values are at most this.
    pub p50: f64,
    /// 95 of 100 are.
    pub p95: f64,
    /// 99 of 100 are.
    pub p99: f64,
    /// The largest.
    pub most: f64,
}

// --- impl Spread ---

impl Spread {
    /// Returns the spread of values; nothing when there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let most = *sorted.last()?;
        let at = |share: f64| percentile(&sorted, share).unwrap_or(most);
        Some(Self { p50: at(0.5), p95: at(0.95), p99: at(0.99), most })
    }

    /// Returns it as JSON with so many decimals.
    pub fn json(self, decimals: i32) -> Value {
        let round = |value| rounded(value, decimals);
        json!({"p50": round(self.p50), "p95": round(self.p95), "p99": round(self.p99), "max": round(self.most)})
    }
}

/// Returns the smallest of sorted values that this share of them does not exceed.
fn percentile(sorted: &[f64], share: f64) -> Option<f64> {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let hundred = Spread::of((1..=100).rev().map(f64::from)).unwrap();
        assert_eq!(hundred, Spread { p50: 50.0, p95: 95.0, p99: 99.0, most: 100.0 });
        let three = Spread::of([3.0, 1.0, 2.0]).unwrap();
        assert_eq!(three, Spread { p50: 2.0, p95: 3.0, p99: 3.0, most: 3.0 });
        assert_eq!(Spread::of([7.0]).unwrap().p50, 7.0);
        assert_eq!(Spread::of([]), None);
    }
}
