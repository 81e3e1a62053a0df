//! Mermaid, for documents.

use std::fmt::Write;

use super::{Frame, Mark, Shape, Sketch, Stroke};
use crate::graph::Graph;

/// Returns the graph as a Mermaid flow chart.
pub fn mermaid(graph: &Graph) -> String {
    let sketch = Sketch::of(graph);
    let mut text = String::from("flowchart LR\n");
    sketch.frames.iter().for_each(|frame| write_frame(frame, 1, &mut text));
    sketch.shared.iter().for_each(|mark| write_mark(mark, 1, &mut text));
    for line in sketch.joined_lines() {
        let stroke = match line.stroke {
            Stroke::Plain => "-->",
            Stroke::Back => "-.->",
            Stroke::Stream => "==>",
        };
        push(&mut text, 1, format_args!("{} {stroke}|\"{}\"| {}", line.from, quoted(&line.label), line.to));
    }
    text
}

fn write_frame(frame: &Frame, depth: usize, text: &mut String) {
    push(text, depth, format_args!("subgraph {}[\"{}\"]", frame.id, quoted(&frame.label)));
    frame.marks.iter().for_each(|mark| write_mark(mark, depth + 1, text));
    frame.frames.iter().for_each(|inner| write_frame(inner, depth + 1, text));
    push(text, depth, format_args!("end"));
}

fn write_mark(mark: &Mark, depth: usize, text: &mut String) {
    let (open, close) = match mark.shape {
        Shape::Step => ("[", "]"),
        Shape::Value => ("([", "])"),
        Shape::Kept => ("[(", ")]"),
        Shape::Stream => ("[/", "/]"),
        Shape::Client => ("((", "))"),
    };
    push(text, depth, format_args!("{}{open}\"{}\"{close}", mark.id, quoted(&mark.label)));
}

fn push(text: &mut String, depth: usize, line: std::fmt::Arguments<'_>) {
    let indent = 2 * depth;
    writeln!(text, "{:indent$}{line}", "").expect("invariant: writing to a string can't fail");
}

fn quoted(label: &str) -> String {
    label.replace('"', "#quot;")
}
