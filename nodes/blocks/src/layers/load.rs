//! Weights of a file, packed for the kernels.

use mstar_contract::Precision;
use mstar_kernels::ops::{self, PackedLinear};
use mstar_kernels::{KernelError, Tensor};
use mstar_weights::{WeightFile, WeightsError};

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

/// Reads layers of one file in one precision.
#[derive(Clone, Copy)]
pub struct LayerLoader<'a> {
    file: &'a WeightFile,
    precision: Precision,
}

// --- impl LayerLoader ---

impl<'a> LayerLoader<'a> {
    /// Returns a loader of this file.
    pub fn new(file: &'a WeightFile, precision: Precision) -> Self {
        Self { file, precision }
    }

    /// Returns a tensor in float32.
    pub fn tensor(&self, name: &str, shape: &[usize]) -> Result<Tensor, LayerError> {
        let shape_of = mstar_kernels::Shape::new(shape)?;
        Ok(Tensor::from_f32(self.file.f32_of(name, shape)?, shape_of)?)
    }

    /// Returns a table of embeddings: in `f32`, or in `bf16` for every other precision.
    pub fn table(&self, name: &str, shape: [usize; 2]) -> Result<Tensor, LayerError> {
        let table = self.tensor(name, &shape)?;
        match self.precision {
            Precision::F32 => Ok(table),
            Precision::Bf16 | Precision::Q8 | Precision::Q4 => Ok(table.to_bf16()?),
        }
    }

    /// Returns the linear layer with this weight of shape `[outputs, inputs]`.
    pub fn linear(&self, weight: &str, shape: [usize; 2]) -> Result<PackedLinear, LayerError> {
        self.pack(&self.tensor(weight, &shape)?, None)
    }

    /// Returns the linear layer with this weight and a bias.
    pub fn linear_biased(&self, weight: &str, bias: &str, shape: [usize; 2]) -> Result<PackedLinear, LayerError> {
        self.pack(&self.tensor(weight, &shape)?, Some(&self.tensor(bias, &shape[..1])?))
    }

    /// Returns several linear layers over the same input as one; a part without a bias has zeros.
    pub fn fused(
        &self,
        parts: &[(&str, Option<&str>)],
        outputs: &[usize],
        inputs: usize,
    ) -> Result<PackedLinear, LayerError> {
        let total: usize = outputs.iter().sum();
        let mut weight = Vec::with_capacity(total * inputs);
        let mut bias = Vec::with_capacity(total);
        for (&(name, bias_name), &outputs) in parts.iter().zip(outputs) {
            weight.extend(self.file.f32_of(name, &[outputs, inputs])?);
            match bias_name {
                Some(name) => bias.extend(self.file.f32_of(name, &[outputs])?),
                None => bias.resize(bias.len() + outputs, 0.0),
            }
        }
        let biased = parts.iter().any(|(_, bias)| bias.is_some());
        let bias = if biased { Some(Tensor::from_f32(bias, [total])?) } else { None };
        self.pack(&Tensor::from_f32(weight, [total, inputs])?, bias.as_ref())
    }

    /// Packs a weight for the kernels in the loader's precision.
    pub fn pack(&self, weight: &Tensor, bias: Option<&Tensor>) -> Result<PackedLinear, LayerError> {
        Ok(ops::pack_linear(weight, bias, self.precision)?)
    }
}
