// SPDX-License-Identifier: MIT OR Apache-2.0
//! `suite=psci`: the firmware's calls (SMCCC DEN0028, PSCI 1.1 DEN0022, TRNG DEN0098), as the
//! hypervisor's documentation specifies them. QEMU's own firmware checks less in places. `repeat=N`: how often
//! all CPUs turn the same one on at the same time.

mod calls;
mod power;
mod random;
mod suspend;

pub use power::all_off;

use crate::machine::psci::{affinity_info, power as state};
use crate::machine::sysreg::mrs;
use crate::machine::{cpus, entry, gic, interrupts};
use crate::report::{Verdict, check_eq, test};

/// Runs the suite.
pub fn run() {
    gic::start_distributor();
    gic::start_cpu();
    test("first-entry", first_entry);
    let cpus = cpus::count();
    if cpus > 1 {
        power::run();
    }
    for cpu in 1..cpus {
        if affinity_info(cpu) == state::OFF && cpus::start(cpu).is_err() {
            panic!("CPU {cpu} does not start");
        }
    }
    calls::run(cpus);
    suspend::run(cpus);
    random::run(cpus);
}

/// `SCTLR_EL1`: MMU, data and instruction cache.
const MMU_AND_CACHES: u64 = 1 << 0 | 1 << 2 | 1 << 12;
/// `CurrentEL` of EL1.
const EL1: u64 = 1 << 2;
/// All of `DAIF`.
const DAIF: u64 = 0xF << 6;

/// The state of a CPU that starts (DEN0022 section 6.4).
fn entered_rightly(cpu: usize) -> Verdict {
    let found = entry::at_entry(cpu);
    check_eq!(found.el, EL1, "CurrentEL of CPU {cpu}");
    check_eq!(found.spsel, 1, "SPSel of CPU {cpu}");
    check_eq!(found.daif, DAIF, "DAIF of CPU {cpu}");
    check_eq!(
        found.sctlr & MMU_AND_CACHES,
        0,
        "MMU and caches of CPU {cpu}"
    );
    Ok(())
}

/// The same for a CPU that was off: its timers are off as well. Those of a suspended CPU continue,
/// since they are `always-on` (devicetree binding of the timer).
fn entered_afresh(cpu: usize) -> Verdict {
    entered_rightly(cpu)?;
    let found = entry::at_entry(cpu);
    check_eq!(found.timers, 0, "timer controls of CPU {cpu}");
    Ok(())
}

fn first_entry() -> Verdict {
    entered_afresh(0)?;
    check_eq!(
        mrs!(MPIDR_EL1) & 0xFF_00FF_FFFF,
        0,
        "affinity of the first CPU"
    );
    check_eq!(
        affinity_info(0),
        state::ON,
        "AFFINITY_INFO of the first CPU"
    );
    Ok(())
}

fn take_one() {
    gic::start_cpu();
    interrupts::take_what_is_there();
}
