//! The CUDA kernels without a GPU: their sources, compiled by g++ over the host shim, run behind the same operations as on
//! a device and are compared with the CPU's.

#![cfg(target_os = "linux")]
#![allow(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test that cannot begin has failed")]

use mstar_kernels::{Cx, Device, Tensor};
use mstar_shim::cases;

mod bits;
mod capture;
mod shim;

/// A context on the CPU and one on the shim; nothing where the kernels cannot be compiled.
fn contexts() -> Option<(Cx, Cx)> {
    let gpu = mstar_shim::device()?;
    let cpu = Cx::with_threads(1).expect("threads start");
    Some((cpu.clone(), cpu.with_gpu(gpu)))
}

#[test]
fn every_operation_agrees_with_the_cpu() {
    let Some((cpu, gpu)) = contexts() else { return };
    let mut wrong = Vec::new();
    for case in cases::cases() {
        let want = (case.run)(&cpu).expect("the CPU computes");
        match (case.run)(&gpu) {
            Ok(got) => {
                let gap = cases::difference(&got, &want);
                if gap.is_nan() || gap > case.tolerance {
                    wrong.push(format!("{}: off by {gap:e}, at most {:e}", case.name, case.tolerance));
                }
            }
            Err(error) => wrong.push(format!("{}: {error}", case.name)),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn another_order_of_threads_changes_no_bit() {
    let Some((_, gpu)) = contexts() else { return };
    for case in cases::cases() {
        let bits = || -> Vec<u32> {
            let numbers = (case.run)(&gpu).expect("the shim computes");
            numbers.into_iter().map(f32::to_bits).collect()
        };
        assert_eq!(bits(), bits(), "{}", case.name);
    }
}

#[test]
fn a_row_alone_equals_the_same_row_in_any_batch() {
    let Some((_, gpu)) = contexts() else { return };
    for case in cases::row_cases() {
        let row = cases::random(7, [1, case.width]);
        let run = |x: &Tensor| {
            let out = (case.run)(&gpu, &x.on(&gpu).expect("fits")).expect("the shim computes");
            out.to_host().expect("fits")
        };
        let alone = run(&row);
        for count in [2, 3, 17, 65] {
            for place in [0, count / 2, count - 1] {
                let mut batch = cases::random(count as u64, [count, case.width]);
                batch.f32s_mut().expect("f32")[place * case.width..][..case.width]
                    .copy_from_slice(row.f32s().expect("f32"));
                let got = run(&batch).rows(place..place + 1).expect("in range");
                assert_eq!(got.bytes(), alone.bytes(), "{}: {count} rows, place {place}", case.name);
            }
        }
    }
}

#[test]
fn tensors_move_to_the_device_and_back() {
    let Some((cpu, gpu)) = contexts() else { return };
    let x = cases::random(1, [4, 3]);
    let there = x.on(&gpu).unwrap();
    assert_eq!((there.device(), there.dims()), (Device::Cuda(0), x.dims()));
    assert!(there.f32s().is_err(), "its bytes are not on the host");
    assert_eq!(there.rows(1..3).unwrap().to_host().unwrap().bytes(), x.rows(1..3).unwrap().bytes());
    assert_eq!(there.on(&cpu).unwrap().bytes(), x.bytes());
    let Some((_, other)) = contexts() else { return };
    assert_eq!(there.on(&other).unwrap().to_host().unwrap().bytes(), x.bytes());
    let refused = mstar_kernels::ops::add(&gpu, &there, &x).unwrap_err();
    assert_eq!(refused.to_string(), "add: runs on Cuda(0), a tensor lies on Cpu");
}
