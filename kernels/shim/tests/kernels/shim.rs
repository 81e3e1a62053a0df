//! The shim itself: it finds what is wrong with a kernel.

use mstar_kernels::gpu::{Arg, Driver, Launch};
use mstar_shim::{HostDriver, library};

/// What became of a kernel: 64 floats, or what the shim said.
type Outcome = Result<Vec<f32>, String>;

/// Runs a kernel of `broken.cu` under every kind of schedule; nothing where it cannot be compiled.
fn run(kernel: &'static str, args: impl Fn(u64) -> Vec<Arg>) -> Option<Vec<Outcome>> {
    let library = library()?;
    let mut outcomes = Vec::new();
    for schedule in 0..4 {
        let mut out = vec![0.0f32; 64];
        let args = args(out.as_mut_ptr() as u64);
        let launch = Launch { kernel, grid: [1, 1, 1], threads: 64, args: &args };
        // SAFETY: the kernels of broken.cu write at most 64 floats.
        let outcome = unsafe { library.launch(&launch, schedule) };
        outcomes.push(outcome.map(|()| out));
    }
    Some(outcomes)
}

fn only_out(out: u64) -> Vec<Arg> {
    vec![Arg::Pointer(out)]
}

#[test]
fn a_missing_barrier_shows() {
    let Some(outcomes) = run("lacks_a_barrier", only_out) else { return };
    let want: Vec<f32> = (0..64).map(|i| ((i + 1) % 64) as f32).collect();
    assert!(outcomes.into_iter().any(|outcome| outcome.expect("it runs") != want));
}

#[test]
fn a_barrier_that_some_threads_miss_is_an_error() {
    for outcome in run("barrier_of_some", only_out).into_iter().flatten() {
        assert_eq!(outcome.unwrap_err(), "barrier_of_some: a barrier that not all threads reach");
    }
}

#[test]
fn a_shuffle_of_part_of_a_warp_is_an_error() {
    for outcome in run("shuffle_of_some", only_out).into_iter().flatten() {
        assert_eq!(outcome.unwrap_err(), "shuffle_of_some: a shuffle of part of a warp");
    }
}

#[test]
fn arguments_of_other_kinds_and_unknown_kernels_are_errors() {
    let two = |out| vec![Arg::Pointer(out), Arg::U32(1)];
    for outcome in run("lacks_a_barrier", two).into_iter().flatten() {
        assert_eq!(outcome.unwrap_err(), "lacks_a_barrier: its parameters are p, the caller passes pu");
    }
    for outcome in run("nothing", only_out).into_iter().flatten() {
        assert_eq!(outcome.unwrap_err(), "nothing: there is no such kernel");
    }
}

#[test]
fn a_write_beyond_a_shared_array_is_an_error() {
    for outcome in run("shares_too_little", only_out).into_iter().flatten() {
        assert_eq!(outcome.unwrap_err(), "shares_too_little: a write beyond a shared array");
    }
}

#[test]
fn a_write_beyond_the_output_is_found() {
    let Some(driver) = HostDriver::new() else { return };
    let out = driver.allocate(256).unwrap();
    let launch = Launch { kernel: "writes_beyond", grid: [1, 1, 1], threads: 64, args: &[Arg::Pointer(out)] };
    // SAFETY: what it writes beyond the output lies within the fence.
    unsafe { driver.launch(&launch).unwrap() };
    assert_eq!(driver.finish().unwrap_err().to_string(), "cuda: memory: a kernel wrote beyond its output");
    // SAFETY: the fence is mended, so that releasing finds it whole.
    unsafe {
        (out as *mut u8).add(256).write_bytes(0xff, 4);
        driver.release(out, 256);
    }
}
