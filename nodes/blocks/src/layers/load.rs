//! Weights of a file, packed for the kernels.
//!
//! In the precisions of blocks, what a GGUF file has in blocks is packed as it lies, be it eight or four bits. Floats are
//! rounded to the precision; blocks of a format that the kernels lack, or that meet blocks of another in one layer, to
//! eight bits.

use mstar_contract::Precision;
use mstar_kernels::ops::{self, BlockFormat, PackedLinear};
use mstar_kernels::{Cx, KernelError, Tensor};
use mstar_weights::{DType, GgmlQ, RawTensor, WeightFile, WeightsError};

/// A layer could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    /// The file lacks a tensor, or has it in another shape.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// The kernels do not take it.
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

/// Reads layers of one file in one precision, into host memory or to where a context computes.
#[derive(Clone, Copy)]
pub struct LayerLoader<'a> {
    file: &'a WeightFile,
    precision: Precision,
    place: Option<&'a Cx>,
}

// --- impl LayerLoader ---

impl<'a> LayerLoader<'a> {
    /// Returns a loader of this file into host memory.
    pub fn new(file: &'a WeightFile, precision: Precision) -> Self {
        Self { file, precision, place: None }
    }

    /// Returns the same loader to where the context computes.
    pub fn on(self, cx: &'a Cx) -> Self {
        Self { place: Some(cx), ..self }
    }

    /// Returns a tensor in float32.
    pub fn tensor(&self, name: &str, shape: &[usize]) -> Result<Tensor, LayerError> {
        let tensor = self.on_host(name, shape)?;
        Ok(match self.place {
            Some(cx) => tensor.on(cx)?,
            None => tensor,
        })
    }

    fn on_host(&self, name: &str, shape: &[usize]) -> Result<Tensor, LayerError> {
        let shape_of = mstar_kernels::Shape::new(shape)?;
        Ok(Tensor::from_f32(self.file.f32_of(name, shape)?, shape_of)?)
    }

    /// Returns a table of embeddings, in `f32` or, for every other precision, in `bf16`; in host memory: a layer may be
    /// packed from it.
    pub fn table(&self, name: &str, shape: [usize; 2]) -> Result<Tensor, LayerError> {
        let table = self.on_host(name, &shape)?;
        match self.precision {
            Precision::F32 => Ok(table),
            Precision::Bf16 | Precision::Q8 | Precision::Q4 => Ok(table.to_bf16()?),
        }
    }

    /// Returns the linear layer with this weight of shape `[outputs, inputs]`.
    pub fn linear(&self, weight: &str, [outputs, inputs]: [usize; 2]) -> Result<PackedLinear, LayerError> {
        self.fused(&[(weight, None)], &[outputs], inputs)
    }

    /// Returns the linear layer with this weight and a bias.
    pub fn linear_biased(
        &self,
        weight: &str,
        bias: &str,
        [outputs, inputs]: [usize; 2],
    ) -> Result<PackedLinear, LayerError> {
        self.fused(&[(weight, Some(bias))], &[outputs], inputs)
    }

    /// Returns several linear layers over the same input as one; a part without a bias has zeros.
    pub fn fused(
        &self,
        parts: &[(&str, Option<&str>)],
        outputs: &[usize],
        inputs: usize,
    ) -> Result<PackedLinear, LayerError> {
        // What the file holds comes first: a size that it only names must not be allocated.
        let named = parts.iter().zip(outputs).map(|(part, &outputs)| self.file.tensor_of(part.0, &[outputs, inputs]));
        let tensors = named.collect::<Result<Vec<_>, _>>()?;
        let total: usize = outputs.iter().sum();
        let bias = self.bias(parts, outputs)?;
        if let Some((format, blocks)) = self.blocks(&tensors) {
            return self.placed(ops::pack_blocks(format, &blocks, (total, inputs), bias.as_ref())?);
        }
        let mut weight = Vec::with_capacity(total * inputs);
        let mut precision = self.precision;
        for tensor in tensors {
            // Blocks that cannot stay as they lie would lose too much in four bits of another scale.
            if precision == Precision::Q4 && matches!(tensor.dtype, DType::GgmlQ(_)) {
                precision = Precision::Q8;
            }
            weight.extend(tensor.to_f32());
        }
        self.placed(ops::pack_linear(&Tensor::from_f32(weight, [total, inputs])?, bias.as_ref(), precision)?)
    }

    /// Returns the biases of some parts one after the other, unless none has one.
    fn bias(&self, parts: &[(&str, Option<&str>)], outputs: &[usize]) -> Result<Option<Tensor>, LayerError> {
        if parts.iter().all(|(_, bias)| bias.is_none()) {
            return Ok(None);
        }
        let mut bias = Vec::new();
        for (&(_, name), &outputs) in parts.iter().zip(outputs) {
            match name {
                Some(name) => bias.extend(self.file.f32_of(name, &[outputs])?),
                None => bias.resize(bias.len() + outputs, 0.0),
            }
        }
        let total = bias.len();
        Ok(Some(Tensor::from_f32(bias, [total])?))
    }

    /// Returns the blocks of some weights one after the other, if the precision and the file have them in blocks, all of
    /// one format.
    fn blocks(&self, tensors: &[&RawTensor]) -> Option<(BlockFormat, Vec<u8>)> {
        if !matches!(self.precision, Precision::Q8 | Precision::Q4) {
            return None;
        }
        let format = format_of(tensors.first()?.dtype)?;
        let same = tensors.iter().all(|tensor| format_of(tensor.dtype) == Some(format));
        same.then(|| (format, tensors.iter().map(|tensor| &tensor.bytes[..]).collect::<Vec<_>>().concat()))
    }

    /// Packs a weight in host memory for the kernels in the loader's precision.
    pub fn pack(&self, weight: &Tensor, bias: Option<&Tensor>) -> Result<PackedLinear, LayerError> {
        self.placed(ops::pack_linear(weight, bias, self.precision)?)
    }

    fn placed(&self, packed: PackedLinear) -> Result<PackedLinear, LayerError> {
        Ok(match self.place {
            Some(cx) => packed.on(cx)?,
            None => packed,
        })
    }
}

/// The blocks that the kernels take as they lie.
fn format_of(dtype: DType) -> Option<BlockFormat> {
    match dtype {
        DType::GgmlQ(GgmlQ::Q8_0) => Some(BlockFormat::Q8_0),
        DType::GgmlQ(GgmlQ::Q4_0) => Some(BlockFormat::Q4_0),
        DType::GgmlQ(GgmlQ::Q4_1) => Some(BlockFormat::Q4_1),
        DType::GgmlQ(GgmlQ::Q4K) => Some(BlockFormat::Q4K),
        DType::GgmlQ(GgmlQ::Q6K) => Some(BlockFormat::Q6K),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use mstar_kernels::Cx;
    use mstar_weights::Format;

    use super::*;

    /// GGML's codes of the types that stand in the file.
    const F32: u32 = 0;
    const Q4_1: u32 = 3;
    const Q5_0: u32 = 6;
    const Q8_0: u32 = 8;

    /// A GGUF of matrices of 32 columns: name, type, rows, and the bytes of a row.
    fn file(tensors: &[(&str, u32, usize, usize)]) -> WeightFile {
        let (mut head, mut data) = (b"GGUF\x03\0\0\0".to_vec(), Vec::new());
        head.extend((tensors.len() as u64).to_le_bytes());
        head.extend(0u64.to_le_bytes());
        for &(name, code, rows, row_bytes) in tensors {
            head.extend((name.len() as u64).to_le_bytes());
            head.extend(name.as_bytes());
            head.extend(2u32.to_le_bytes());
            head.extend([32, rows as u64].iter().flat_map(|n| n.to_le_bytes()));
            head.extend(code.to_le_bytes());
            head.extend((data.len() as u64).to_le_bytes());
            // As f16 or as the upper half of an f32, 0x3c.. is an ordinary number.
            data.extend((0..rows * row_bytes).map(|i| if i % 2 == 1 { 0x3c } else { (i * 37 % 64) as u8 }));
            data.resize(data.len().next_multiple_of(32), 0);
        }
        head.resize(head.len().next_multiple_of(32), 0);
        WeightFile::from_bytes(Format::Gguf, [head, data].concat()).unwrap()
    }

    /// Loads one layer of some parts, 32 rows each, and checks its form, and its results against the same in `f32`.
    fn check(precision: Precision, parts: &[(&str, u32, usize)], form: Precision) {
        let tensors: Vec<_> = parts.iter().map(|&(name, code, row_bytes)| (name, code, 32, row_bytes)).collect();
        let file = file(&tensors);
        let names: Vec<_> = parts.iter().map(|part| (part.0, None)).collect();
        let load = |precision| LayerLoader::new(&file, precision).fused(&names, &vec![32; parts.len()], 32).unwrap();
        let (exact, layer) = (load(Precision::F32), load(precision));
        assert_eq!((layer.precision(), layer.outputs(), layer.inputs()), (form, 32 * parts.len(), 32));
        let cx = Cx::with_threads(1).unwrap();
        let x: Vec<f32> = (0..32).map(|i| (i as f32 * 0.7).sin()).collect();
        let x = Tensor::from_f32(x, [1, 32]).unwrap();
        let run = |layer: &PackedLinear| ops::linear(&cx, &x, layer).unwrap().f32s().unwrap().to_vec();
        let (want, got) = (run(&exact), run(&layer));
        let most = want.iter().fold(0.0f32, |most, y| most.max(y.abs()));
        assert!(want.iter().zip(&got).all(|(want, got)| (want - got).abs() < 0.02 * most), "{want:?} {got:?}");
    }

    #[test]
    fn blocks_stay_as_they_lie_and_the_rest_is_rounded() {
        for precision in [Precision::Q8, Precision::Q4] {
            check(precision, &[("a", Q4_1, 20)], Precision::Q4);
            check(precision, &[("a", Q8_0, 34)], Precision::Q8);
            check(precision, &[("a", Q4_1, 20), ("b", Q4_1, 20)], Precision::Q4);
            check(precision, &[("a", Q4_1, 20), ("b", Q8_0, 34)], Precision::Q8);
            check(precision, &[("a", Q5_0, 22)], Precision::Q8);
        }
        check(Precision::Q8, &[("a", F32, 128)], Precision::Q8);
        check(Precision::F32, &[("a", Q4_1, 20)], Precision::F32);
        check(Precision::Bf16, &[("a", Q4_1, 20), ("b", Q8_0, 34)], Precision::Bf16);
    }
}
