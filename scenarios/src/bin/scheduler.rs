//! Measures how requests get along with each other on real weights: `cargo run --release -p mstar-scenarios --bin scheduler`.
//! Prints one JSON document.

use mstar_config::Environment;

/// How requests get along with each other on real weights. Prints one JSON document.
#[derive(clap::Parser)]
struct Arguments {}

fn main() -> anyhow::Result<()> {
    let Arguments {} = clap::Parser::parse();
    let environment = Environment::read();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let figures = runtime
        .block_on(async { tokio::spawn(async move { mstar_scenarios::scheduler(&environment).await }).await })??;
    println!("{}", serde_json::to_string_pretty(&figures)?);
    Ok(())
}
