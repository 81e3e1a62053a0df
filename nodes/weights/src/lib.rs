//! Weight packages: fetching, verifying, converting and reading them.
//!
//! The readers ([`WeightFile`]) know four formats (safetensors, GGUF, CTranslate2's `model.bin`, ONNX
//! initialisers), map files instead of copying them, and treat every file as hostile: sizes and
//! offsets are checked before they are believed, so a broken file is a typed error.
//!
//! The crate knows file formats and where packages come from. It refuses to know what a model
//! computes, what a device is, and what the environment says: folders are given by the caller.
//!
//! ```
//! use mstar_weights::{Format, WeightFile};
//!
//! let cut_short = b"GGUF\x03\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff".to_vec();
//! let error = WeightFile::from_bytes(Format::Gguf, cut_short).unwrap_err();
//! assert!(error.to_string().contains("not a valid GGUF file"));
//! ```

mod ct2;
mod error;
mod file;
mod gguf;
mod mapped;
mod onnx;
mod safetensors;
mod scan;
mod tensor;

pub use error::{Format, WeightsError};
pub use file::WeightFile;
pub use gguf::{Meta, MetaValue};
pub use mapped::TensorBytes;
pub use safetensors::write_safetensors;
pub use tensor::{DType, GgmlQ, RawTensor};
