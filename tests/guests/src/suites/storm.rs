// SPDX-License-Identifier: MIT OR Apache-2.0
//! `suite=storm ms=N pending=N`: CPUs 0 and 1 take SGIs in WFI; all other CPUs send SGIs to both without end, for `ms=`
//! milliseconds (default 1000). Meanwhile the first `pending=` SPIs (default 0) are pending for CPU 0, which masks them by
//! their priority: a hypervisor that searches the pending interrupts of CPU 0 always finds all of them.

use crate::machine::sysreg::{mask, msr, unmask, wfi};
use crate::machine::time::{now, us};
use crate::machine::{bootargs, cpus, gic};
use crate::report::{Verdict, check, record};
use core::sync::atomic::{AtomicU64, Ordering};

/// CPUs that receive what the other CPUs send.
const VICTIMS: usize = 2;
/// An SGI with the usual priority.
const SGI: u32 = 3;
/// Priority of the SPIs that stay pending.
const MASKED: u8 = 0xC0;
/// `ICC_PMR_EL1` of the victims: the usual priority is signalled, [`MASKED`] is not.
const MASK: u64 = 0xB0;

/// The end of the storm. The senders check the time, since the victims may be in interrupt handlers all the time.
static END: AtomicU64 = AtomicU64::new(0);

/// SGIs sent. The suite does not demand that victims take any: EL2 may need all of their time.
static SENT: AtomicU64 = AtomicU64::new(0);
/// Least number of SGIs: the test fails if fewer were sent.
const FEWEST: u64 = 1_000;

fn is_over() -> bool {
    now() >= END.load(Ordering::Relaxed)
}

/// Runs the suite.
pub fn run() {
    gic::start_distributor();
    gic::start_cpu();
    record("storm", storm(cpus::start_all()));
}

fn storm(count: usize) -> Verdict {
    check!(count > VICTIMS, "needs three CPUs");
    let pending = bootargs::number_or("pending", 0) as u32;
    for spi in gic::FIRST_SPI..gic::FIRST_SPI + pending {
        gic::start_spi(spi);
        gic::set_priority(spi, MASKED);
        gic::set_bit(gic::register::ISPENDR, spi);
    }
    let length = us(bootargs::number_or("ms", 1000) * 1000);
    END.store(now() + length, Ordering::Relaxed);
    cpus::begin(1, take);
    for cpu in VICTIMS..count {
        cpus::begin(cpu, send);
    }
    take();
    for cpu in (1..count).rev() {
        cpus::finish(cpu);
    }
    let sent = SENT.load(Ordering::Relaxed);
    check!(sent > FEWEST, "only {sent} SGIs were sent");
    Ok(())
}

fn take() {
    msr!(ICC_PMR_EL1, MASK);
    while !is_over() {
        wfi();
        unmask();
        mask();
    }
}

fn send() {
    let to_victims = || gic::send_sgi(SGI, (1 << VICTIMS) - 1);
    while !is_over() {
        to_victims();
        SENT.fetch_add(1, Ordering::Relaxed);
    }
    // A victim may have gone to sleep just before.
    to_victims();
}
