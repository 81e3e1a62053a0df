//! Rows as people and programs read them.

use serde_json::{Value, json};

use super::Bench;
use super::row::Row;
use super::spread::Spread;
use crate::machine::{describe, mebibytes};

/// A column of the table: its head, and what a row has to say in it.
type Column = (&'static str, fn(&Row) -> Option<String>);

const COLUMNS: [Column; 12] = [
    ("load", |row| {
        let (name, value) = row.load.label();
        Some(format!("{name} {value}"))
    }),
    ("errors", |row| Some(format!("{}/{}", row.failed(), row.failed() + row.answered))),
    ("first text ms", |row| row.first_text_ms.map(three)),
    ("first audio ms", |row| row.first_audio_ms.map(three)),
    ("gap ms", |row| row.gap_ms.map(three)),
    ("whole ms", |row| row.total_ms.map(three)),
    ("rtf", |row| row.real_time_factor.map(|spread| format!("{:.3} {:.3} {:.3}", spread.p50, spread.p95, spread.p99))),
    ("tokens/s", |row| row.per_second(row.tokens as f64).map(|rate| format!("{rate:.1}"))),
    ("audio s/s", |row| row.per_second(row.audio).map(|rate| format!("{rate:.2}"))),
    ("in time", |row| row.in_time().map(|share| format!("{:.1} %", share * 100.0))),
    ("peak MiB", |row| row.peak_memory.map(|bytes| format!("{:.0}", mebibytes(bytes as f64)))),
    ("machine load", |row| {
        let both = row.load_before.zip(row.load_after);
        both.map(|(before, after)| format!("{before:.1} to {after:.1}"))
    }),
];

/// Returns rows as one JSON document.
pub fn document(bench: &Bench, rows: &[Row]) -> Value {
    json!({
        "scenario": bench.scenario.name(), "model": bench.model, "server": bench.target.url,
        "max_tokens": bench.max_tokens, "prompt": bench.prompt, "prompt_words": bench.prompt_words, "fields": bench.fields, "seed": bench.seed,
        "machine": describe(),
        "rows": rows.iter().map(Row::json).collect::<Vec<_>>(),
    })
}

/// Returns rows as a table for a terminal. Three figures in a column are the 50th, 95th and 99th percentile.
pub fn table(rows: &[Row]) -> String {
    let mut columns: Vec<Vec<String>> = Vec::new();
    for (head, cell) in COLUMNS {
        let cells: Vec<Option<String>> = rows.iter().map(cell).collect();
        // A column in which nobody has anything to say is left out.
        if cells.iter().any(Option::is_some) {
            let cells = cells.into_iter().map(|cell| cell.unwrap_or_else(|| "-".to_owned()));
            columns.push(std::iter::once(head.to_owned()).chain(cells).collect());
        }
    }
    let width = |column: &[String]| column.iter().map(|cell| cell.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = columns.iter().map(|column| width(column)).collect();
    let line = |n: usize| {
        let cells: Vec<String> =
            columns.iter().zip(&widths).map(|(column, &width)| format!("{:>width$}", column[n])).collect();
        cells.join("  ")
    };
    let mut text: Vec<String> = (0..=rows.len()).map(line).collect();
    text.extend(rows.iter().filter_map(remarks));
    text.join("\n") + "\n"
}

/// Returns what of a row has no column: failures and batches.
fn remarks(row: &Row) -> Option<String> {
    let failures = row.failures.iter().map(|(why, count)| format!("{count} failed: {why}"));
    let batches = row.mean_batch.iter().map(|(node, mean)| format!("{node} {mean:.2}"));
    let batches: Vec<String> = batches.collect();
    let batches = (!batches.is_empty()).then(|| format!("mean batch: {}", batches.join(", ")));
    let all: Vec<String> = failures.chain(batches).collect();
    let (name, value) = row.load.label();
    (!all.is_empty()).then(|| format!("{name} {value}: {}", all.join("; ")))
}

fn three(spread: Spread) -> String {
    let short = |value: f64| if value < 100.0 { format!("{value:.1}") } else { format!("{value:.0}") };
    format!("{} {} {}", short(spread.p50), short(spread.p95), short(spread.p99))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::bench::{Load, Sample};

    #[test]
    fn a_table_has_the_columns_that_have_something_in_them() {
        let texts = vec![Duration::from_millis(10), Duration::from_millis(14)];
        let good = Sample { texts, tokens: Some(5), total: Duration::from_millis(200), ..Sample::default() };
        let samples = [good, Sample::failed("503: too many")];
        let mut row = Row::of(Load::Closed(2), Duration::from_millis(500), &samples);
        row.mean_batch.insert("llm decode".to_owned(), 1.5);
        assert_eq!(
            table(&[row]),
            "         load  errors   first text ms       gap ms     whole ms  tokens/s\n\
             concurrency 2     1/2  10.0 10.0 10.0  4.0 4.0 4.0  200 200 200      10.0\n\
             concurrency 2: 1 failed: 503: too many; mean batch: llm decode 1.50\n"
        );
    }
}
