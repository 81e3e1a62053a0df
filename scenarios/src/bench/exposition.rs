//! What a server tells under `/metrics`, in Prometheus' text format.

use std::collections::BTreeMap;

/// Values by series.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Exposition(BTreeMap<Series, f64>);

/// A metric's name and its labels' values, without their names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Series {
    name: String,
    labels: String,
}

/// Pairs of series that count rows and batches, the finer first.
const BATCHES: [(&str, &str); 2] =
    [("mstar_batch_rows_total", "mstar_batches_total"), ("mstar_batch_rows_sum", "mstar_batch_rows_count")];
/// The most memory that the server's process ever held.
const PEAK_MEMORY: &str = "mstar_process_peak_memory_bytes";

// --- impl Exposition ---

impl Exposition {
    /// Reads a text; what is no series is passed over.
    pub(super) fn read(text: &str) -> Self {
        Self(text.lines().filter(|line| !line.starts_with('#')).filter_map(series).collect())
    }

    /// Returns the rows of a batch in the mean, by node and, where the server tells, by op, since an earlier reading.
    pub(super) fn mean_batches(&self, earlier: &Self) -> BTreeMap<String, f64> {
        let of = |(rows, batches): &(&str, &str)| {
            let since = |name: &str, labels: &str| self.value(name, labels) - earlier.value(name, labels);
            let counted = self.0.keys().filter(|series| series.name == *batches).filter_map(|series| {
                let labels = series.labels.as_str();
                let batches = since(batches, labels);
                (batches > 0.0).then(|| (labels.to_owned(), since(rows, labels) / batches))
            });
            counted.collect::<BTreeMap<_, _>>()
        };
        BATCHES.iter().map(of).find(|means| !means.is_empty()).unwrap_or_default()
    }

    /// Returns the most memory that the process ever held, in bytes, where the server tells.
    pub(super) fn peak_memory(&self) -> Option<u64> {
        let peak = self.value(PEAK_MEMORY, "");
        (peak > 0.0).then_some(peak as u64)
    }

    fn value(&self, name: &str, labels: &str) -> f64 {
        let series = Series { name: name.to_owned(), labels: labels.to_owned() };
        self.0.get(&series).copied().unwrap_or(0.0)
    }
}

fn series(line: &str) -> Option<(Series, f64)> {
    let (series, value) = line.rsplit_once(' ')?;
    let (name, labels) = series.split_once('{').unwrap_or((series, ""));
    let labels: Vec<&str> = labels.split('"').skip(1).step_by(2).collect();
    Some((Series { name: name.to_owned(), labels: labels.join(" ") }, value.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODES: &str = "# TYPE mstar_batch_rows histogram\n\
        mstar_batch_rows_bucket{node=\"llm\",le=\"1\"} 7\n\
        mstar_batch_rows_sum{node=\"llm\"} 30\nmstar_batch_rows_count{node=\"llm\"} 10\n\
        mstar_batch_rows_sum{node=\"idle\"} 5\nmstar_batch_rows_count{node=\"idle\"} 5\n\
        mstar_process_peak_memory_bytes 1048576\n";

    #[test]
    fn batches_are_counted_since_the_earlier_reading() {
        let earlier = Exposition::read(NODES);
        let later = NODES.replace("} 30", "} 130").replace("_count{node=\"llm\"} 10", "_count{node=\"llm\"} 20");
        let later = Exposition::read(&later);
        assert_eq!(later.mean_batches(&earlier), BTreeMap::from([("llm".to_owned(), 10.0)]));
        assert_eq!(later.peak_memory(), Some(1 << 20));
    }

    #[test]
    fn ops_are_told_apart_where_the_server_does() {
        let ops = "mstar_batches_total{node=\"llm\",op=\"decode\"} 4\n\
            mstar_batch_rows_total{node=\"llm\",op=\"decode\"} 60\n";
        let later = Exposition::read(&format!("{NODES}{ops}"));
        assert_eq!(later.mean_batches(&Exposition::default()), BTreeMap::from([("llm decode".to_owned(), 15.0)]));
        assert_eq!(Exposition::read("<html>no metrics here</html>").peak_memory(), None);
    }
}
