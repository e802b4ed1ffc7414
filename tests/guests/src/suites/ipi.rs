// SPDX-License-Identifier: MIT OR Apache-2.0
//! `suite=ipi`: the time of an SGI from the write that sends it to the first instruction of the handler. CPU 0 sends
//! `count=` (default 500) SGIs to CPU 1, each some time after the last one was taken, at most `gap=` microseconds
//! (default 1000). CPU 1 spins, or sleeps with `asleep=1`; other CPUs sleep, or spin with `busy=1`.
//!
//! The exact clock measures the times: CPU 0 passes a mark before and after each write, CPU 1 one with each interrupt, and two
//! more marks enclose all. On other machines marks have no effect, and the suite tests that every SGI arrives.

use crate::machine::random::Random;
use crate::machine::sysreg::{barrier, cpu};
use crate::machine::{bootargs, cpus, gic, interrupts, time};
use crate::report::{Verdict, check, check_eq, record};
use core::arch::{asm, global_asm};

/// Marks (`testbed/README.md`): the measurement begins and ends, as for yardsticks; an SGI is sent next, an interrupt is
/// taken, the SGI is sent.
const BEGIN: u16 = 1;
const END: u16 = 2;
const SENT: u16 = 16;
const TAKEN: u16 = 17;
const GOES_ON: u16 = 18;

const TARGET: usize = 1;
const SGI: u32 = 5;

/// Runs the suite.
pub fn run() {
    gic::start_distributor();
    gic::start_cpu();
    record("ipi", measure(cpus::start_all()));
}

fn measure(count: usize) -> Verdict {
    check!(count > TARGET, "needs two CPUs");
    let asleep = bootargs::number_or("asleep", 0) != 0;
    let busy = bootargs::number_or("busy", 0) != 0;
    let wanted = bootargs::number_or("count", 500) as usize;
    let gap = bootargs::number_or("gap", 1000).max(1);
    cpus::run(TARGET, mark_interrupts);
    cpus::start_receiving(TARGET, asleep);
    for cpu in TARGET + 1..count {
        cpus::start_receiving(cpu, !busy);
    }
    // Under the exact clock, this differs from seed to seed, so that each seed sends at other times.
    let mut random = Random::new(time::now());
    mark::<BEGIN>();
    for sent in 0..wanted {
        time::delay_us(random.below(gap));
        send();
        let taken = || interrupts::count(TARGET) > sent;
        check!(time::wait(taken), "SGI {sent} does not arrive");
    }
    mark::<END>();
    check_eq!(interrupts::count(TARGET), wanted, "interrupts");
    for cpu in TARGET..count {
        cpus::stop_receiving(cpu);
    }
    Ok(())
}

fn mark<const NUMBER: u16>() {
    // SAFETY: a write to XZR does nothing.
    unsafe { asm!("movz xzr, #{}", const NUMBER, options(nostack, preserves_flags)) };
}

/// Sends the SGI, between two marks.
fn send() {
    let value = u64::from(SGI) << 24 | 1 << TARGET;
    barrier();
    // SAFETY: a write to XZR has no effect; the SGI interrupts a CPU that waits for it.
    unsafe {
        asm!(
            "movz xzr, #{sent}",
            "msr icc_sgi1r_el1, {value}",
            "movz xzr, #{goes_on}",
            sent = const SENT,
            goes_on = const GOES_ON,
            value = in(reg) value,
            options(nostack, preserves_flags)
        );
    }
}

/// From now on this CPU passes a mark as the first instruction of each interrupt.
fn mark_interrupts() {
    debug_assert_eq!(cpu(), TARGET);
    // SAFETY: each entry of the table branches to the same entry of the usual one.
    unsafe {
        asm!(
            "adrp {table}, ipi_vectors",
            "add {table}, {table}, :lo12:ipi_vectors",
            "msr vbar_el1, {table}",
            "isb",
            table = out(reg) _,
            options(nostack, preserves_flags)
        );
    }
}

global_asm!(
    ".pushsection .text, \"ax\"",
    ".balign 2048",
    "ipi_vectors:",
    ".set entry, 0",
    ".rept 16",
    ".balign 128",
    // IRQ, with the kernel's stack pointer.
    ".if entry == 0x280",
    "movz xzr, #{taken}",
    ".endif",
    "b vectors + entry",
    ".set entry, entry + 0x80",
    ".endr",
    ".popsection",
    taken = const TAKEN,
);
