// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures the moves per second that the simulator makes on this machine: `cargo run --release --example churn [MOVES] [CORES]`.

use spumone_sim::{Failed, Setup, simulate};
use std::time::Instant;

fn main() -> Result<(), Failed> {
    let mut arguments = std::env::args().skip(1).map_while(|it| it.parse().ok());
    let moves = arguments.next().unwrap_or(3_000_000);
    let cores = arguments.next().map_or(4, |it| it as usize);
    let started = Instant::now();
    let outcome = simulate(&Setup::churn(cores, 1, moves))?;
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "{:.2} million moves a second, {:.2} million events",
        outcome.counters.migrations as f64 / seconds / 1e6,
        outcome.counters.events as f64 / seconds / 1e6
    );
    Ok(())
}
