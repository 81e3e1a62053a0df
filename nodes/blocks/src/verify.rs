//! Judging a model against recorded tensors: every tensor of a golden file is input, checked, or skipped for a reason;
//! one that nobody names fails.

use std::collections::BTreeSet;

use mstar_weights::{WeightFile, WeightsError};
use serde_json::{Value, json};

/// What a comparison found.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// The tensor.
    pub tensor: String,
    /// The largest difference; for ids, how many differ.
    pub max_abs: f64,
    /// The largest difference that is accepted.
    pub tolerance: f64,
    /// Whether it is accepted.
    pub ok: bool,
}

/// A tensor that was not compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// The tensor.
    pub tensor: String,
    /// Why not.
    pub reason: String,
}

/// What became of a golden file's tensors.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Comparisons, in the order they were made.
    pub checks: Vec<Check>,
    /// What was not compared.
    pub skipped: Vec<Skipped>,
}

/// How far a computed tensor may be from the recorded one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tolerance {
    /// At most this.
    Absolute(f64),
    /// At most this share of the largest recorded magnitude.
    OfLargest(f64),
}

/// Walks through a golden file and collects a report.
pub struct Judge<'a> {
    golden: &'a WeightFile,
    named: BTreeSet<String>,
    report: Report,
}

// --- impl Report ---

impl Report {
    /// Returns whether every check is accepted.
    pub fn passed(&self) -> bool {
        self.checks.iter().all(|check| check.ok)
    }

    /// Adds what another report found.
    pub fn extend(&mut self, other: Self) {
        self.checks.extend(other.checks);
        self.skipped.extend(other.skipped);
    }

    /// Adds the comparison of something that is no tensor: equal or not.
    pub fn equal(&mut self, name: impl Into<String>, equal: bool) {
        let max_abs = if equal { 0.0 } else { 1.0 };
        self.checks.push(Check { tensor: name.into(), max_abs, tolerance: 0.0, ok: equal });
    }

    /// Returns the report as the command line prints it.
    pub fn to_json(&self, family: &str) -> Value {
        let checks: Vec<Value> = self.checks.iter().map(Check::to_json).collect();
        let skipped: Vec<Value> =
            self.skipped.iter().map(|s| json!({ "tensor": s.tensor, "reason": s.reason })).collect();
        json!({ "family": family, "checks": checks, "skipped": skipped })
    }
}

// --- impl Check ---

impl Check {
    fn to_json(&self) -> Value {
        // JSON has no infinity: a tensor of the wrong shape is infinitely far.
        let max_abs = if self.max_abs.is_finite() { json!(self.max_abs) } else { json!("inf") };
        json!({ "tensor": self.tensor, "max_abs": max_abs, "tolerance": self.tolerance, "ok": self.ok })
    }
}

// --- impl Judge ---

impl<'a> Judge<'a> {
    /// Begins with a golden file.
    pub fn new(golden: &'a WeightFile) -> Self {
        Self { golden, named: BTreeSet::new(), report: Report::default() }
    }

    /// Returns whether the file has this tensor.
    pub fn has(&self, name: &str) -> bool {
        self.golden.get(name).is_some()
    }

    /// Returns a recorded input and its shape.
    pub fn input(&mut self, name: &str) -> Result<(Vec<f32>, Vec<usize>), WeightsError> {
        self.named.insert(name.to_owned());
        self.golden.to_f32(name)
    }

    /// Returns recorded ids as input; none when the tensor holds anything else.
    pub fn input_ids(&mut self, name: &str) -> Result<Vec<u32>, WeightsError> {
        self.named.insert(name.to_owned());
        Ok(self.ids(name)?.unwrap_or_default())
    }

    /// Compares numbers; every recorded one must have a computed one.
    pub fn check(&mut self, name: &str, computed: &[f32], tolerance: Tolerance) -> Result<(), WeightsError> {
        self.named.insert(name.to_owned());
        let (recorded, _) = self.golden.to_f32(name)?;
        let largest = recorded.iter().fold(0.0f64, |most, &x| most.max(f64::from(x).abs()));
        let tolerance = match tolerance {
            Tolerance::Absolute(most) => most,
            Tolerance::OfLargest(share) => share * largest,
        };
        let far = |(&a, &b): (&f32, &f32)| if a == b { 0.0 } else { (f64::from(a) - f64::from(b)).abs() };
        let max_abs = match recorded.len() == computed.len() {
            // Not f64::max, which would forgive a NaN.
            true => recorded
                .iter()
                .zip(computed)
                .map(far)
                .fold(0.0, |most, x| if x > most || x.is_nan() { x } else { most }),
            false => f64::INFINITY,
        };
        let ok = max_abs <= tolerance;
        self.report.checks.push(Check { tensor: name.to_owned(), max_abs, tolerance, ok });
        Ok(())
    }

    /// Compares ids, which must be equal.
    pub fn check_ids(&mut self, name: &str, computed: &[u32]) -> Result<(), WeightsError> {
        self.named.insert(name.to_owned());
        let recorded = self.ids(name)?.unwrap_or_default();
        let differing = recorded.iter().zip(computed).filter(|(a, b)| a != b).count();
        let max_abs = (differing + recorded.len().abs_diff(computed.len())) as f64;
        let ok = max_abs == 0.0;
        self.report.checks.push(Check { tensor: name.to_owned(), max_abs, tolerance: 0.0, ok });
        Ok(())
    }

    /// Leaves a tensor out for a reason.
    pub fn skip(&mut self, name: &str, reason: &str) {
        self.named.insert(name.to_owned());
        self.report.skipped.push(Skipped { tensor: name.to_owned(), reason: reason.to_owned() });
    }

    /// Ends: a tensor of the file that nobody named is a failed check.
    pub fn finish(mut self) -> Report {
        for tensor in self.golden.tensors().filter(|tensor| !self.named.contains(&tensor.name)) {
            let tensor = format!("{} (not declared)", tensor.name);
            self.report.checks.push(Check { tensor, max_abs: f64::INFINITY, tolerance: 0.0, ok: false });
        }
        self.report
    }

    fn ids(&self, name: &str) -> Result<Option<Vec<u32>>, WeightsError> {
        let ids = self.golden.tensor(name)?.to_i64();
        Ok(ids.and_then(|ids| ids.into_iter().map(|id| u32::try_from(id).ok()).collect()))
    }
}

#[cfg(test)]
mod tests {
    use mstar_weights::Format;

    use super::*;

    /// A safetensors file with an f32 and an i64 tensor.
    fn golden() -> WeightFile {
        let header = r#"{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"ids":{"dtype":"I64","shape":[2],"data_offsets":[8,24]}}"#;
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.as_bytes());
        bytes.extend([1.0f32, -10.0].iter().flat_map(|x| x.to_le_bytes()));
        bytes.extend([3i64, 4].iter().flat_map(|x| x.to_le_bytes()));
        WeightFile::from_bytes(Format::Safetensors, bytes).unwrap()
    }

    fn judge(x: &[f32], ids: &[u32]) -> Report {
        let golden = golden();
        let mut judge = Judge::new(&golden);
        judge.check("x", x, Tolerance::OfLargest(0.01)).unwrap();
        judge.check_ids("ids", ids).unwrap();
        judge.finish()
    }

    #[test]
    fn what_is_near_enough_passes_and_the_rest_fails() {
        assert!(judge(&[1.05, -10.0], &[3, 4]).passed());
        assert!(!judge(&[1.2, -10.0], &[3, 4]).passed());
        assert!(!judge(&[f32::NAN, -10.0], &[3, 4]).passed());
        assert!(!judge(&[1.0], &[3, 4]).passed());
        assert!(!judge(&[1.0, -10.0], &[3, 5]).passed());
        assert!(!judge(&[1.0, -10.0], &[3]).passed());
    }

    #[test]
    fn a_tensor_that_nobody_names_fails() {
        let golden = golden();
        let mut judge = Judge::new(&golden);
        assert_eq!(judge.input_ids("ids").unwrap(), [3, 4]);
        let report = judge.finish();
        assert!(!report.passed());
        assert_eq!(report.to_json("f")["checks"][0]["tensor"], "x (not declared)");
        let mut judge = Judge::new(&golden);
        judge.skip("x", "no room");
        judge.skip("ids", "no room");
        assert!(judge.finish().passed());
    }
}
