// SPDX-License-Identifier: MIT OR Apache-2.0
//! CPU_SUSPEND, to standby and to powerdown.

use super::{entered_afresh, entered_rightly, take_one};
use crate::machine::psci::{affinity_info, call, code, function, power};
use crate::machine::sysreg::cpu;
use crate::machine::time::{self, Timer};
use crate::machine::{MAX_CPUS, cpus, entry, gic, interrupts};
use crate::report::{Verdict, check, check_eq, test, test_everywhere};
use core::sync::atomic::{AtomicU64, Ordering};

pub fn run(cpus: usize) {
    test_everywhere("suspend-standby", cpus, standby);
    test_everywhere("suspend-refused", cpus, suspend_refused);
    test("suspend-powerdown", powerdown_first);
    test("suspend-powerdown-any-moment", powerdown_at_any_moment);
    if cpus > 1 {
        test("suspend-powerdown-others", powerdown_others);
    }
}

const POWERDOWN: u64 = 1 << 16;
/// More ticks than it takes to power down. On the exact clock, timers of all lengths up to it expire at each
/// instruction of the powerdown.
const MAX_TICKS: u64 = 400;

fn suspend_refused() -> Verdict {
    let suspend = |state, entry| call(function::CPU_SUSPEND, [state, entry, 0]);
    let entry = entry::secondary_entry();
    // Reserved bits; a level above the core's.
    for state in [1 << 17, 1 << 31, 1 << 24, 3 << 24] {
        check_eq!(
            suspend(state, entry),
            code::INVALID_PARAMETERS,
            "state {state:#x}"
        );
    }
    for address in [0, 0x0900_0000, entry + 1] {
        let result = suspend(POWERDOWN, address);
        check_eq!(result, code::INVALID_ADDRESS, "powerdown to {address:#x}");
    }
    Ok(())
}

fn standby() -> Verdict {
    gic::start_cpu();
    interrupts::forget(cpu());
    for _ in 0..5 {
        let due = Timer::Virtual.start_us(500);
        let before = interrupts::count(cpu());
        // As WFI, it may end early.
        while Timer::Virtual.control() & time::ISTATUS == 0 {
            let result = call(function::CPU_SUSPEND, [0, 0, 0]);
            check_eq!(result, code::SUCCESS, "CPU_SUSPEND to standby");
        }
        check!(
            Timer::Virtual.counter() >= due,
            "awake before the timer was due"
        );
        check!(interrupts::take(before + 1), "the timer does not arrive");
        Timer::Virtual.stop();
    }
    // With an interrupt pending it returns at once.
    gic::send_sgi(2, 1 << cpu());
    check_eq!(
        call(function::CPU_SUSPEND, [0, 0, 0]),
        code::SUCCESS,
        "CPU_SUSPEND"
    );
    interrupts::take_what_is_there();
    interrupts::forget(cpu());
    Ok(())
}

static RESUMED: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];
/// Callee-saved registers and stack pointer of the first CPU, with which it resumes.
static FIRST: [AtomicU64; 13] = [const { AtomicU64::new(0) }; 13];

core::arch::global_asm!(
    ".pushsection .text, \"ax\"",
    // Saves what a function must keep in the area at x0, then calls CPU_SUSPEND to powerdown with
    // the entry point in x1. Returns 0 in x0 after the resume, else the error.
    ".global suspend_first",
    "suspend_first:",
    "stp x19, x20, [x0]",
    "stp x21, x22, [x0, #16]",
    "stp x23, x24, [x0, #32]",
    "stp x25, x26, [x0, #48]",
    "stp x27, x28, [x0, #64]",
    "stp x29, x30, [x0, #80]",
    "mov x2, sp",
    "str x2, [x0, #96]",
    "mov x2, x1",
    "mov x3, x0",
    "ldr x0, =0xC4000001",
    "mov x1, #0x10000",
    "hvc #0",
    "ret",
    // Called at the CPU's entry point: returns to the place where it was suspended.
    ".global resume_first",
    "resume_first:",
    "ldp x19, x20, [x0]",
    "ldp x21, x22, [x0, #16]",
    "ldp x23, x24, [x0, #32]",
    "ldp x25, x26, [x0, #48]",
    "ldp x27, x28, [x0, #64]",
    "ldp x29, x30, [x0, #80]",
    "ldr x2, [x0, #96]",
    "mov sp, x2",
    "mov x0, #0",
    "ret",
    ".popsection",
);

/// Continues where the first CPU was suspended.
fn back_to_first() {
    unsafe extern "C" {
        fn resume_first(area: *const AtomicU64) -> !;
    }
    // SAFETY: `suspend_first` has saved the registers there, and their stack was not used since: a
    // CPU that is entered again uses another one.
    unsafe { resume_first(FIRST.as_ptr()) }
}

/// The first CPU powers down and resumes by its timer.
fn powerdown_first() -> Verdict {
    for _ in 0..3 {
        power_down_for(time::us(2000))?;
    }
    gic::start_cpu();
    Ok(())
}

/// The same, with a timer that expires before, while and after it powers down.
fn powerdown_at_any_moment() -> Verdict {
    for ticks in 0..MAX_TICKS {
        power_down_for(ticks)?;
    }
    gic::start_cpu();
    Ok(())
}

/// The first CPU powers down until its timer expires, and resumes at its entry point.
fn power_down_for(ticks: u64) -> Verdict {
    unsafe extern "C" {
        fn suspend_first(area: *const AtomicU64, entry: u64) -> i64;
    }
    let entries = entry::at_entry(0).entries;
    // Each powerdown resets the CPU interface, and an interrupt that is masked there wakes no CPU.
    gic::start_cpu();
    cpus::on_entry(0, back_to_first);
    Timer::Virtual.start_ticks(ticks);
    // SAFETY: the area is large enough; the stack is not changed.
    let result = unsafe { suspend_first(FIRST.as_ptr(), entry::secondary_entry()) };
    Timer::Virtual.stop();
    check_eq!(result, 0, "CPU_SUSPEND to powerdown for {ticks} ticks");
    let found = entry::at_entry(0).entries;
    check_eq!(
        found,
        entries + 1,
        "entries of the first CPU, {ticks} ticks"
    );
    entered_rightly(0)
}

/// Powers down until an interrupt arrives; resumes at the usual entry point.
fn power_down() {
    gic::start_cpu();
    RESUMED[cpu()].fetch_add(1, Ordering::Release);
    let context = 0xFEED_0000 + cpu() as u64;
    let arguments = [POWERDOWN, entry::secondary_entry(), context];
    let result = call(function::CPU_SUSPEND, arguments);
    panic!("CPU_SUSPEND to powerdown returned {result}");
}

fn powerdown_others() -> Verdict {
    for cpu in 1..cpus::count() {
        let entries = entry::at_entry(cpu).entries;
        RESUMED[cpu].store(0, Ordering::Release);
        cpus::begin(cpu, power_down);
        let suspending = time::wait(|| RESUMED[cpu].load(Ordering::Acquire) == 1);
        check!(suspending, "CPU {cpu} does not suspend");
        time::delay_us(1000);
        check_eq!(
            affinity_info(cpu),
            power::ON,
            "AFFINITY_INFO of CPU {cpu}, suspended"
        );
        let on = call(function::CPU_ON, [cpu as u64, entry::secondary_entry(), 0]);
        check_eq!(on, code::ALREADY_ON, "CPU_ON of CPU {cpu}, suspended");
        check_eq!(
            entry::at_entry(cpu).entries,
            entries,
            "entries of CPU {cpu}, suspended"
        );
        // It will wait for a function.
        cpus::forget_work(cpu);
        gic::send_sgi(5, 1 << cpu);
        let awake = time::wait(|| entry::at_entry(cpu).entries > entries);
        check!(awake, "an SGI does not wake CPU {cpu}");
        check_eq!(
            entry::at_entry(cpu).x0,
            0xFEED_0000 + cpu as u64,
            "context of CPU {cpu}"
        );
        entered_afresh(cpu)?;
        cpus::run(cpu, take_one);
        interrupts::forget(cpu);
    }
    Ok(())
}
