//! Discovery of CUDA devices, without a CUDA library at build or start.

use cudarc::driver::{result, sys};

/// A CUDA device, as the driver describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuDescription {
    /// Its number, as in [`crate::Device::Cuda`].
    pub ordinal: u16,
    /// The product's name.
    pub name: String,
    /// Its memory in bytes.
    pub memory_bytes: usize,
    /// Its compute capability, major and minor.
    pub capability: (u32, u32),
}

/// Why there are no CUDA devices, in one line.
#[derive(Debug, thiserror::Error)]
#[error("no CUDA: {reason}")]
pub struct NoCuda {
    reason: String,
}

/// Lists the CUDA devices of this machine; without CUDA it says why.
pub fn probe() -> Result<Vec<GpuDescription>, NoCuda> {
    // SAFETY: asks the loader whether the driver library is there; it loads it and calls nothing in it.
    if !unsafe { sys::is_culib_present() } {
        return Err(NoCuda::because("the driver library is not installed"));
    }
    result::init().map_err(NoCuda::because)?;
    let count = result::device::get_count().map_err(NoCuda::because)?;
    (0..count).map(|ordinal| describe(ordinal).map_err(NoCuda::because)).collect()
}

// --- impl NoCuda ---

impl NoCuda {
    fn because(reason: impl std::fmt::Display) -> Self {
        let text = reason.to_string();
        Self { reason: text.lines().next().unwrap_or("unknown").to_owned() }
    }
}

fn describe(ordinal: i32) -> Result<GpuDescription, result::DriverError> {
    use sys::CUdevice_attribute as Attribute;
    let device = result::device::get(ordinal)?;
    // SAFETY: `device` was just handed out by the driver.
    let (memory_bytes, major, minor) = unsafe {
        (
            result::device::total_mem(device)?,
            result::device::get_attribute(device, Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            result::device::get_attribute(device, Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        )
    };
    Ok(GpuDescription {
        ordinal: u16::try_from(ordinal).unwrap_or(u16::MAX),
        name: result::device::get_name(device)?,
        memory_bytes,
        capability: (major.unsigned_abs(), minor.unsigned_abs()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probing_never_panics_and_explains_itself_in_one_line() {
        match probe() {
            Ok(devices) => assert!(devices.iter().all(|d| !d.name.is_empty() && d.memory_bytes > 0)),
            Err(none) => assert!(none.to_string().starts_with("no CUDA: ") && none.to_string().lines().count() == 1),
        }
    }
}
