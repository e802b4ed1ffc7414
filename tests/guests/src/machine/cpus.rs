// SPDX-License-Identifier: MIT OR Apache-2.0
//! The CPUs: turns them on, and gives them functions to run.

use super::sysreg::{cpu, mask, wfi};
use super::{MAX_CPUS, entry, gic, interrupts, psci, time};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A lock. A CPU that has it runs with interrupts masked.
pub struct Lock(AtomicBool);

impl Lock {
    /// A free lock.
    pub const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Runs `code` while no other CPU is in a `with` of this lock.
    pub fn with(&self, code: impl FnOnce()) {
        while self.0.swap(true, Ordering::Acquire) {
            core::hint::spin_loop();
        }
        code();
        self.0.store(false, Ordering::Release);
    }
}

/// The job of a CPU that has no function to run.
const IDLE: usize = 0;

struct Work {
    /// A function to call, or [`IDLE`].
    job: AtomicUsize,
    /// Whether the CPU has been entered and waits for a function.
    ready: AtomicBool,
    /// The function that the CPU calls instead at its next entry, or 0.
    resume: AtomicUsize,
}

static WORK: [Work; MAX_CPUS] = [const {
    Work {
        job: AtomicUsize::new(IDLE),
        ready: AtomicBool::new(false),
        resume: AtomicUsize::new(0),
    }
}; MAX_CPUS];

/// The SGI that wakes a CPU which waits for a function.
const WAKE: u32 = 15;

/// How many CPUs the machine has.
pub fn count() -> usize {
    (0..MAX_CPUS)
        .take_while(|&cpu| psci::affinity_info(cpu) != psci::code::INVALID_PARAMETERS)
        .count()
}

/// Turns a CPU on and waits until it is ready for work.
pub fn start(cpu: usize) -> Result<(), i64> {
    WORK[cpu].ready.store(false, Ordering::Relaxed);
    WORK[cpu].job.store(IDLE, Ordering::Relaxed);
    let arguments = [cpu as u64, entry::secondary_entry(), 0];
    match psci::call(psci::function::CPU_ON, arguments) {
        psci::code::SUCCESS => {}
        error => return Err(error),
    }
    if time::wait(|| WORK[cpu].ready.load(Ordering::Acquire)) {
        Ok(())
    } else {
        Err(psci::code::ON_PENDING)
    }
}

/// Turns all other CPUs on; returns the number of CPUs, or panics.
pub fn start_all() -> usize {
    let count = count();
    for cpu in 1..count {
        if let Err(error) = start(cpu) {
            panic!("CPU {cpu} does not start: {error}");
        }
    }
    count
}

/// Has `cpu` call `code` at its next entry, by CPU_ON or after CPU_SUSPEND.
pub fn on_entry(cpu: usize, code: fn()) {
    WORK[cpu].resume.store(code as usize, Ordering::Release);
}

/// Where secondary CPUs enter Rust. Called by `entry` by its name.
// SAFETY: nothing else in this program has this name.
#[unsafe(no_mangle)]
extern "C" fn secondary_main(cpu: u64) -> ! {
    let code = WORK[cpu as usize].resume.swap(0, Ordering::Acquire);
    if code != 0 {
        // SAFETY: only `on_entry` writes it, from a function of this type.
        let code: fn() = unsafe { core::mem::transmute(code) };
        code();
    }
    gic::start_cpu();
    work()
}

/// Runs the functions of [`begin`], in an endless loop.
fn work() -> ! {
    let own = &WORK[cpu()];
    own.ready.store(true, Ordering::Release);
    loop {
        let job = own.job.load(Ordering::Acquire);
        if job == IDLE {
            core::hint::spin_loop();
            continue;
        }
        // SAFETY: only `begin` writes it, from a function of this type.
        let code: fn() = unsafe { core::mem::transmute(job) };
        code();
        mask();
        own.job.store(IDLE, Ordering::Release);
    }
}

/// Has `cpu` run `code`, without waiting for its end.
pub fn begin(cpu: usize, code: fn()) {
    finish(cpu);
    WORK[cpu].job.store(code as usize, Ordering::Release);
}

/// Marks `cpu` as idle although its function does not return: the CPU turns off or powers down.
pub fn forget_work(cpu: usize) {
    WORK[cpu].job.store(IDLE, Ordering::Release);
}

/// Waits until `cpu` has returned from its function.
pub fn finish(cpu: usize) {
    let idle = || WORK[cpu].job.load(Ordering::Acquire) == IDLE;
    if !time::wait(idle) {
        panic!("CPU {cpu} does not return from its function");
    }
}

/// Has `cpu` run `code` and waits for its end; `cpu` may be this one.
pub fn run(cpu: usize, code: fn()) {
    if cpu == super::sysreg::cpu() {
        code();
    } else {
        begin(cpu, code);
        finish(cpu);
    }
}

static STOP: [AtomicBool; MAX_CPUS] = [const { AtomicBool::new(false) }; MAX_CPUS];

/// Takes interrupts until [`stop_receiving`], in a loop.
fn receive_awake() {
    super::sysreg::unmask();
    while !STOP[cpu()].load(Ordering::Acquire) {
        core::hint::spin_loop();
    }
}

/// Takes interrupts until [`stop_receiving`], asleep in WFI.
fn receive_asleep() {
    while !STOP[cpu()].load(Ordering::Acquire) {
        wfi();
        super::sysreg::unmask();
        mask();
    }
}

/// Has `cpu` only take interrupts, asleep in WFI or in a loop.
pub fn start_receiving(cpu: usize, asleep: bool) {
    STOP[cpu].store(false, Ordering::Release);
    begin(
        cpu,
        if asleep {
            receive_asleep
        } else {
            receive_awake
        },
    );
}

/// Ends what [`start_receiving`] began. The log of `cpu` is empty afterwards.
pub fn stop_receiving(cpu: usize) {
    STOP[cpu].store(true, Ordering::Release);
    gic::send_sgi(WAKE, 1 << cpu);
    finish(cpu);
    // The last SGI may still be pending if it was sent while the CPU awoke.
    run(cpu, interrupts::take_what_is_there);
    interrupts::forget(cpu);
}
