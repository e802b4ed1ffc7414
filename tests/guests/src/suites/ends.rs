// SPDX-License-Identifier: MIT OR Apache-2.0
//! `suite=ends how=HOW until_ms=N`: makes the hypervisor end its life, with all CPUs on. `how=reset`: a random CPU resets the machine a
//! random time after each start, until so many milliseconds after the start of the machine (default 1000). `how=fault`: at that
//! time, a CPU reads where the guest has nothing.

use crate::machine::sysreg::cpu;
use crate::machine::time::{now, us};
use crate::machine::{bootargs, cpus, gic, mmio, psci};
use crate::report::record;
use core::hint::spin_loop;
use core::sync::atomic::{AtomicUsize, Ordering};

/// An address where no guest has anything.
const NOTHING: u64 = 0x3FFF_0000;
/// The longest life in microseconds, of which a random part is waited for.
const LONGEST_LIFE_US: u64 = 1_000;

/// The CPU that ends the life.
static CHOSEN: AtomicUsize = AtomicUsize::new(0);

/// Not 0: the life is to end.
static GO: AtomicUsize = AtomicUsize::new(0);

/// Runs the suite.
pub fn run() {
    gic::start_distributor();
    gic::start_cpu();
    let end = us(bootargs::number_or("until_ms", 1000) * 1000);
    let resets = bootargs::text("how") == Some("reset");
    if resets && now() >= end {
        record("ends", Ok(()));
        return;
    }
    let count = cpus::start_all();
    let random = now().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    CHOSEN.store(random as usize % count, Ordering::Relaxed);
    for cpu in 1..count {
        cpus::begin(cpu, if resets { reset } else { fault });
    }
    let life = random % us(LONGEST_LIFE_US);
    let begin = now();
    while if resets {
        now() - begin < life
    } else {
        now() < end
    } {
        spin_loop();
    }
    GO.store(1, Ordering::Release);
    if resets { reset() } else { fault() }
}

fn wait_for_turn() {
    while GO.load(Ordering::Acquire) == 0 || CHOSEN.load(Ordering::Relaxed) != cpu() {
        spin_loop();
    }
}

fn reset() {
    wait_for_turn();
    psci::system_reset();
}

fn fault() {
    wait_for_turn();
    mmio::read32(NOTHING);
}
