//! DOT, for Graphviz.

use std::fmt::Write;

use super::{Frame, Mark, Shape, Sketch, Stroke};
use crate::graph::Graph;

/// Returns the graph in the DOT language.
pub fn dot(graph: &Graph) -> String {
    let sketch = Sketch::of(graph);
    let mut text = String::from("digraph {\n  rankdir=LR;\n");
    sketch.frames.iter().for_each(|frame| write_frame(frame, 1, &mut text));
    sketch.shared.iter().for_each(|mark| write_mark(mark, 1, &mut text));
    for line in sketch.joined_lines() {
        let style = match line.stroke {
            Stroke::Plain => "solid",
            Stroke::Back => "dashed",
            Stroke::Stream => "bold",
        };
        let label = quoted(&line.label);
        push(&mut text, 1, format_args!("{} -> {} [label={label}, style={style}];", line.from, line.to));
    }
    text.push_str("}\n");
    text
}

fn write_frame(frame: &Frame, depth: usize, text: &mut String) {
    push(text, depth, format_args!("subgraph cluster_{} {{", frame.id));
    push(text, depth + 1, format_args!("label={};", quoted(&frame.label)));
    frame.marks.iter().for_each(|mark| write_mark(mark, depth + 1, text));
    frame.frames.iter().for_each(|inner| write_frame(inner, depth + 1, text));
    push(text, depth, format_args!("}}"));
}

fn write_mark(mark: &Mark, depth: usize, text: &mut String) {
    let shape = match mark.shape {
        Shape::Step => "box",
        Shape::Value => "plaintext",
        Shape::Kept => "cylinder",
        Shape::Stream => "parallelogram",
        Shape::Client => "circle",
    };
    push(text, depth, format_args!("{} [label={}, shape={shape}];", mark.id, quoted(&mark.label)));
}

fn push(text: &mut String, depth: usize, line: std::fmt::Arguments<'_>) {
    let indent = 2 * depth;
    writeln!(text, "{:indent$}{line}", "").expect("invariant: writing to a string can't fail");
}

fn quoted(label: &str) -> String {
    format!("\"{}\"", label.replace('\\', "\\\\").replace('"', "\\\""))
}
