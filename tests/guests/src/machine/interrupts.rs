// SPDX-License-Identifier: MIT OR Apache-2.0
//! Interrupts that were taken: each CPU has a log; a test may install its own handler.

use super::MAX_CPUS;
use super::gic::{self, SPURIOUS};
use super::sysreg::{barrier, cpu, mask, mrs, msr, unmask, wfi};
use super::time::{self, IMASK, Timer};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// The exception by which an interrupt was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// Group 1.
    Irq,
    /// Group 0.
    Fiq,
}

/// Set in the log entry of an interrupt that was taken as FIQ.
pub const FIQ: u32 = 1 << 16;
/// Entries of each log.
const LOG_SIZE: usize = 256;

struct Log {
    entries: [AtomicU32; LOG_SIZE],
    count: AtomicUsize,
    handler: AtomicUsize,
}

static LOGS: [Log; MAX_CPUS] = [const {
    Log {
        entries: [const { AtomicU32::new(0) }; LOG_SIZE],
        count: AtomicUsize::new(0),
        handler: AtomicUsize::new(0),
    }
}; MAX_CPUS];

/// Called by the vectors.
pub fn taken(line: Line) {
    let handler = LOGS[cpu()].handler.load(Ordering::Relaxed);
    if handler == 0 {
        usual(line);
    } else {
        // SAFETY: only `with_handler` writes it, from a function of this type.
        let handler: fn(Line) = unsafe { core::mem::transmute(handler) };
        handler(line);
    }
}

/// The usual handler: acknowledges one interrupt, logs it and ends it. Masks timers, since they are level-sensitive.
fn usual(line: Line) {
    let interrupt = match line {
        Line::Irq => gic::acknowledge(),
        Line::Fiq => mrs!(ICC_IAR0_EL1) as u32,
    };
    note(interrupt | if line == Line::Fiq { FIQ } else { 0 });
    if interrupt >= 1020 {
        return;
    }
    for timer in [Timer::Virtual, Timer::Physical] {
        if interrupt == timer.interrupt() {
            timer.set_control(timer.control() | IMASK);
        }
    }
    match line {
        Line::Irq => gic::end(interrupt),
        Line::Fiq => msr!(ICC_EOIR0_EL1, u64::from(interrupt)),
    }
}

/// Runs `code` while this CPU handles interrupts with `handler`.
pub fn with_handler<R>(handler: fn(Line), code: impl FnOnce() -> R) -> R {
    let log = &LOGS[cpu()];
    log.handler.store(handler as usize, Ordering::Relaxed);
    let result = code();
    log.handler.store(0, Ordering::Relaxed);
    result
}

/// Adds to the log of this CPU, unless the interrupt is spurious.
pub fn note(interrupt: u32) {
    let log = &LOGS[cpu()];
    if interrupt & 0xFFFF == SPURIOUS {
        return;
    }
    let index = log.count.load(Ordering::Relaxed);
    if let Some(entry) = log.entries.get(index) {
        entry.store(interrupt, Ordering::Relaxed);
    }
    // After the entry, so that another CPU which sees the count sees the entry.
    log.count.store(index + 1, Ordering::Release);
}

/// How many interrupts `cpu` has taken since its log was cleared.
pub fn count(cpu: usize) -> usize {
    LOGS[cpu].count.load(Ordering::Acquire)
}

/// The `n`th interrupt that `cpu` has taken.
pub fn nth(cpu: usize, n: usize) -> u32 {
    let entry = LOGS[cpu].entries.get(n);
    entry.map_or(SPURIOUS, |entry| entry.load(Ordering::Relaxed))
}

/// Clears the log of `cpu`.
pub fn forget(cpu: usize) {
    LOGS[cpu].count.store(0, Ordering::Release);
}

/// Unmasks interrupts until this CPU has taken `count`, or none arrives for long.
pub fn take(count: usize) -> bool {
    unmask();
    let come = time::wait(|| self::count(cpu()) >= count);
    mask();
    come
}

/// Takes the interrupts that are pending now, and waits for no more.
pub fn take_pending() {
    unmask();
    barrier();
    mask();
}

/// Takes the interrupts that are pending, and those that come within 500 µs.
pub fn take_what_is_there() {
    unmask();
    time::delay_us(500);
    mask();
}

/// Sleeps until `done`, with interrupts unmasked after each WFI.
pub fn sleep_until(done: impl Fn() -> bool) {
    while !done() {
        // Interrupts are masked, so what makes `done` true cannot arrive between the check and WFI.
        wfi();
        unmask();
        mask();
    }
}
