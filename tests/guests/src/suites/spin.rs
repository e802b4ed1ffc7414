// SPDX-License-Identifier: MIT OR Apache-2.0
//! `suite=spin`: uses the core all the time, for `ms=` milliseconds (default 1000), and counts
//! its loops. It prints a line for each tenth of the time. `all=1`: the other CPUs are turned on
//! first, and spin for the same time. `after=`: it sleeps for this many milliseconds before all that.

use crate::machine::time::{Timer, now, us};
use crate::machine::uart::say;
use crate::machine::{bootargs, cpus, gic, interrupts};
use crate::report::{Verdict, record};

/// Runs the suite.
pub fn run() {
    let after = bootargs::number_or("after", 0);
    if after > 0 {
        gic::start_distributor();
        gic::start_cpu();
        Timer::Virtual.start_us(after * 1000);
        interrupts::sleep_until(|| interrupts::count(0) > 0);
    }
    let others = match bootargs::number_or("all", 0) {
        0 => 1..1,
        _ => 1..cpus::start_all(),
    };
    for cpu in others.clone() {
        cpus::begin(cpu, spin_silently);
    }
    record("spin", spin());
    for cpu in others {
        cpus::finish(cpu);
    }
}

/// Spins for a tenth of the time.
fn tenth() -> u64 {
    us(bootargs::number_or("ms", 1000) * 100)
}

/// The same without a line.
fn spin_silently() {
    let end = now() + 10 * tenth();
    while now() < end {}
}

fn spin() -> Verdict {
    let tenth = tenth();
    let start = now();
    let mut loops = 0_u64;
    for part in 1..=10 {
        while now() < start + part * tenth {
            loops += 1;
        }
        say!("spin-progress part={part} loops={loops}");
    }
    say!("spin-result loops={loops}");
    Ok(())
}
