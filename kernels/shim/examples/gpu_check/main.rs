//! Checks every CUDA kernel on a device against the CPU and, bit for bit, against the host shim; times the operations at
//! serving sizes; prints one JSON document, and exits with 1 when something is wrong, with 2 when there is nothing to check
//! on. `scenarios/gpu-check` calls it.
//!
//! `cargo run --release -p mstar-shim --example gpu_check -- [--device N] [--nvrtc LIBRARY] [--host]`
//!
//! With `--host` the shim is the device: that tests this program, and its times mean nothing.

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use mstar_kernels::gpu::{Gpu, GpuSettings};
use mstar_kernels::{Cx, Tensor};
use mstar_shim::{cases, device};
use serde_json::{Value, json};

mod times;

/// What the command line asks for.
#[derive(Default)]
struct Asked {
    settings: GpuSettings,
    host: bool,
}

fn main() -> ExitCode {
    match run() {
        Ok(Outcome { checked, failed, unlike }) => {
            eprintln!("gpu_check: {checked} checks, {failed} failed, {unlike} gave other bits than the host shim");
            if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("gpu_check: nothing was checked: {error}");
            ExitCode::from(2)
        }
    }
}

/// What came of the checks, in numbers.
struct Outcome {
    checked: usize,
    failed: usize,
    unlike: usize,
}

fn run() -> Result<Outcome, Box<dyn Error>> {
    let asked = asked(std::env::args().skip(1))?;
    let shim = || device().ok_or("the host shim needs a C++ compiler (Debian: apt-get install g++)");
    let gpu = if asked.host { shim()? } else { Gpu::open(&asked.settings)? };
    let cpu = Cx::with_threads(std::thread::available_parallelism().map_or(1, usize::from))?;
    let shim = cpu.clone().with_gpu(shim()?);
    let on_gpu = cpu.clone().with_gpu(Arc::clone(&gpu));
    let checks: Vec<Value> = cases::cases().iter().map(|case| check(case, &cpu, &on_gpu, &shim)).collect();
    let rows: Vec<Value> = cases::row_cases().iter().map(|case| check_rows(case, &on_gpu)).collect();
    let wrong = |list: &[Value]| list.iter().filter(|entry| entry["ok"] != json!(true)).count();
    let outcome = Outcome {
        checked: checks.len() + rows.len(),
        failed: wrong(&checks) + wrong(&rows),
        unlike: checks.iter().filter(|check| check["bits_of_shim"] == json!(false)).count(),
    };
    let document = json!({
        "device": gpu.name(),
        "checked": outcome.checked,
        "failed": outcome.failed,
        "other_bits_than_shim": outcome.unlike,
        "checks": checks,
        "rows": rows,
        "times": times::all(&on_gpu, if asked.host { times::Size::Tiny } else { times::Size::Serving })?,
    });
    println!("{document:#}");
    Ok(outcome)
}

fn asked(mut words: impl Iterator<Item = String>) -> Result<Asked, Box<dyn Error>> {
    let mut asked = Asked::default();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--host" => asked.host = true,
            "--device" => asked.settings.ordinal = words.next().ok_or("--device takes a number")?.parse()?,
            "--nvrtc" => {
                asked.settings.nvrtc = Some(PathBuf::from(words.next().ok_or("--nvrtc takes a library's path")?));
            }
            other => return Err(format!("unknown option {other}").into()),
        }
    }
    Ok(asked)
}

/// Compares a computation with the CPU's, and its bits with the shim's.
fn check(case: &cases::Case, cpu: &Cx, gpu: &Cx, shim: &Cx) -> Value {
    let numbers = (case.run)(cpu).and_then(|want| Ok((want, (case.run)(gpu)?, (case.run)(shim)?)));
    match numbers {
        Err(error) => json!({ "name": case.name, "ok": false, "error": error.to_string() }),
        Ok((want, got, shims)) => {
            let gap = cases::difference(&got, &want);
            let same = got.iter().zip(&shims).all(|(a, b)| a.to_bits() == b.to_bits());
            let ok = gap <= case.tolerance;
            json!({ "name": case.name, "ok": ok, "max_abs": gap, "tolerance": case.tolerance, "bits_of_shim": same })
        }
    }
}

/// Compares a row alone with the same row at the ends and in the middle of batches.
fn check_rows(case: &cases::RowCase, gpu: &Cx) -> Value {
    let run = |x: &Tensor| (case.run)(gpu, &x.on(gpu)?)?.to_host();
    let compare = || {
        let row = cases::random(7, [1, case.width]);
        let alone = run(&row)?;
        let mut unlike = Vec::new();
        for count in [2, 3, 17, 65, 128, 129, 300] {
            for place in [0, count / 2, count - 1] {
                let mut batch = cases::random(count as u64, [count, case.width]);
                batch.f32s_mut()?[place * case.width..][..case.width].copy_from_slice(row.f32s()?);
                if run(&batch)?.rows(place..place + 1)?.bytes() != alone.bytes() {
                    unlike.push(format!("{count} rows, place {place}"));
                }
            }
        }
        Ok::<_, mstar_kernels::KernelError>(unlike)
    };
    match compare() {
        Ok(unlike) => json!({ "name": case.name, "ok": unlike.is_empty(), "unlike": unlike }),
        Err(error) => json!({ "name": case.name, "ok": false, "error": error.to_string() }),
    }
}
