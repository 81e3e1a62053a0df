//! hibari's two ONNX graphs: the synthesiser, quantised to bytes, and the network that spells out
//! unknown words. The export lost the names of all matrices; their order in the graph tells them.

use std::collections::BTreeMap;
use std::path::Path;

use super::rewrite;
use crate::error::{Flaw, Format, malformed};
use crate::gguf::Tensors;
use crate::onnx;
use crate::pull::PullError;
use crate::tensor::RawTensor;

pub(super) fn convert(stage: &Path, ready: &Path) -> Result<(), PullError> {
    rewrite(&stage.join("hibari.onnx"), Format::Onnx, &ready.join("model.safetensors"), |file| {
        Ok((synthesiser(onnx::read(file)?)?, ()))
    })?;
    rewrite(&stage.join("oov.onnx"), Format::Onnx, &ready.join("oov.safetensors"), |file| {
        Ok((speller(onnx::read(file)?)?, ()))
    })
}

/// Keeps what has a module's name and dequantises the matrices, as `[out, in]`.
fn synthesiser(source: Tensors) -> Result<Tensors, Flaw> {
    let names = matrix_names();
    let mut out = named(&source);
    let mut found = 0;
    for base in onnx::quantised(&source) {
        let Some(name) = names.get(&base) else {
            return malformed(format!("the matrix {base:?} is unknown"));
        };
        out.insert(name.clone(), onnx::dequantised_linear(&source, &base, name)?);
        found += 1;
    }
    if found != names.len() {
        return malformed(format!("{found} of {} matrices found", names.len()));
    }
    Ok(out)
}

/// Keeps what has a module's name and finds the others by their running number: per layer the
/// attention's input and output and the two of the feed-forward part, then the head.
fn speller(source: Tensors) -> Result<Tensors, Flaw> {
    let mut out = named(&source);
    let mut matrices: Vec<(u32, &RawTensor)> = Vec::new();
    for (name, tensor) in &source {
        if let Some(number) = name.strip_prefix("onnx::MatMul_").and_then(|n| n.parse().ok()) {
            matrices.push((number, tensor));
        }
    }
    matrices.sort_by_key(|(number, _)| *number);
    let parts = ["self_attn.in_proj_weight", "self_attn.out_proj.weight", "linear1.weight", "linear2.weight"];
    let Some((head, layers)) = matrices.split_last() else {
        return malformed("it has no matrices");
    };
    if layers.len() % parts.len() != 0 {
        return malformed(format!("{} matrices make no whole layers", layers.len()));
    }
    for (i, (_, matrix)) in layers.iter().enumerate() {
        let name = format!("m.layers.{}.{}", i / parts.len(), parts[i % parts.len()]);
        out.insert(name.clone(), onnx::transposed_linear(matrix, &name)?);
    }
    out.insert("m.head.weight".into(), onnx::transposed_linear(head.1, "m.head.weight")?);
    Ok(out)
}

fn named(source: &Tensors) -> Tensors {
    let named = source.iter().filter(|(name, _)| name.starts_with("m.") || name.starts_with("pn."));
    named.map(|(name, tensor)| (name.clone(), tensor.clone())).collect()
}

/// From the export's name of a transposed matrix to the module's.
fn matrix_names() -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    let mut put = |from: String, to: String| names.insert(format!("/{from}/Transpose_output_0"), to);
    for (net, conv, layer) in [("m", "", ""), ("pn", "_1", "_4")] {
        for (i, pw) in [(0, "pw1"), (0, "pw2"), (1, "pw1"), (1, "pw2")] {
            put(format!("convs.{i}/{pw}{conv}"), format!("{net}.text.convs.{i}.{pw}.weight"));
        }
        put(format!("out_proj{layer}"), format!("{net}.text.attn.self_attn.out_proj.weight"));
        for linear in ["linear1", "linear2"] {
            put(format!("{linear}{layer}"), format!("{net}.text.attn.{linear}.weight"));
        }
    }
    for pw in ["pw1", "pw2"] {
        for i in 0..6 {
            put(format!("pro.{i}/{pw}"), format!("pn.pro.{i}.{pw}.weight"));
        }
        for i in 0..8 {
            put(format!("dec.{i}/{pw}"), format!("m.dec.{i}.{pw}.weight"));
        }
    }
    put("head".into(), "m.head.weight".into());
    for (number, net) in [(2, "m"), (25, "pn")] {
        let to = format!("{net}.text.attn.self_attn.in_proj_weight");
        names.insert(format!("/Transpose_{number}_output_0"), to);
    }
    names
}
