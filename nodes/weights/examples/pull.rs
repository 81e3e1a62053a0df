//! Pulls packages into the cache of this workspace and shows what they hold:
//! `cargo run -p mstar-weights --example pull -- smollm2 hibari`

use std::error::Error;

use mstar_weights::{Cache, Event, PACKAGES, pull};

fn main() -> Result<(), Box<dyn Error>> {
    let names: Vec<String> = std::env::args().skip(1).collect();
    if names.is_empty() {
        for package in PACKAGES {
            println!("{}: {} ({})", package.name, package.about, package.licence);
        }
    }
    for name in names {
        let mut show = |event: Event| println!("{name}: {event:?}");
        let dir = pull(&name, &Cache::in_target_dir(), &mut show)?;
        let weights = dir.weights()?;
        let parameters: usize = weights.tensors().map(|tensor| tensor.elements()).sum();
        println!("{name}: {} tensors, {parameters} parameters", weights.tensors().count());
    }
    Ok(())
}
