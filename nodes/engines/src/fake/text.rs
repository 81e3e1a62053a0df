//! Ops over text that keep nothing between steps.

use std::sync::Arc;

use mstar_contract::{Compute, ComputeCx, In, Row, RowError, RowOutput, Value};
use mstar_graph::OpName;

use super::cutter::SENTENCE_ENDS;
use super::faults::{FaultPlan, Reach, provoke};

/// Most items that one `emit` gives.
const MAX_ITEMS: u64 = 1 << 20;

/// Text in, text out. Ops: `echo`, `upper`, `reverse`, `grow` (`in` to `out`), `join` (`a`, `b`, `c` to `out`),
/// `concat` (all of a loop's values at `items` to `out`), `split` (`in` to sentences at `item`), `emit` (as many
/// items at `item` as the request's option `items` says).
#[derive(Debug)]
pub struct FakeStateless {
    faults: Arc<FaultPlan>,
}

// --- impl FakeStateless ---

impl FakeStateless {
    /// Returns ops that draw their faults from a plan.
    pub fn new(faults: Arc<FaultPlan>) -> Self {
        Self { faults }
    }
}

impl Compute for FakeStateless {
    fn run(&mut self, op: &OpName, rows: &[Row], _cx: &ComputeCx<'_>) -> Vec<Result<RowOutput, RowError>> {
        self.faults.strike(Reach::Op);
        rows.iter().map(|row| provoke(row).and_then(|()| answer(op, row))).collect()
    }
}

fn answer(op: &OpName, row: &Row) -> Result<RowOutput, RowError> {
    let mut output = RowOutput::default();
    match op.as_str() {
        "echo" => output.push("out", row.value("in")?.clone()),
        "upper" => output.push("out", Value::text(row.text("in")?.to_uppercase())),
        "reverse" => output.push("out", Value::text(row.text("in")?.chars().rev().collect::<String>())),
        "grow" => output.push("out", Value::text(format!("{}+", row.text("in")?))),
        "join" => output.push("out", Value::text([row.text("a")?, row.text("b")?, row.text("c")?].join("|"))),
        "concat" => output.push("out", Value::text(all_texts(row)?)),
        "split" => {
            let text = row.text("in")?;
            text.split_inclusive(SENTENCE_ENDS).for_each(|sentence| output.push("item", Value::text(sentence)));
        }
        "emit" => {
            let text = row.text("in")?;
            (0..items(row)?).for_each(|i| output.push("item", Value::text(format!("{text}{i}"))));
        }
        _ => return Err(RowError::Internal(format!("no op {op}"))),
    }
    Ok(output)
}

fn all_texts(row: &Row) -> Result<String, RowError> {
    let Some(In::All(values)) = row.input("items") else {
        return Err(RowError::Internal("input items is not a loop's values".to_owned()));
    };
    let texts: Option<Vec<&str>> = values.iter().map(Value::as_text).collect();
    texts.map(|texts| texts.join(",")).ok_or_else(|| RowError::Internal("a value is not text".to_owned()))
}

fn items(row: &Row) -> Result<u64, RowError> {
    let Some(option) = row.request().options.get("items") else { return Ok(1) };
    option.as_u64().filter(|&items| items <= MAX_ITEMS).ok_or_else(|| RowError::Invalid {
        field: "model_kwargs.items".to_owned(),
        message: format!("must be a whole number up to {MAX_ITEMS}"),
    })
}
