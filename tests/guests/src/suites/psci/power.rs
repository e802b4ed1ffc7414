// SPDX-License-Identifier: MIT OR Apache-2.0
//! CPUs that are turned on and off.

use super::{entered_afresh, take_one};
use crate::machine::psci::{affinity_info, call, code, function, power};
use crate::machine::sysreg::{cpu, mrs};
use crate::machine::time;
use crate::machine::uart::say;
use crate::machine::{MAX_CPUS, bootargs, cpus, entry, gic, interrupts};
use crate::report::{Failure, Verdict, check, check_eq, test};
use core::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};

pub fn run() {
    test("off-before-on", off_before_on);
    for _ in 0..bootargs::number_or("repeat", 10) {
        test("cpu-on-by-all", cpu_on_by_all);
    }
    test("cpu-on-state", cpu_on_state);
    test("cpu-on-refused", cpu_on_refused);
    test("cpu-on-32", cpu_on_32);
    test("cpu-off-and-on", cpu_off_and_on);
    test("cpu-off-keeps-sgis", sgi_while_off);
}

fn off_before_on() -> Verdict {
    for cpu in 1..cpus::count() {
        check_eq!(affinity_info(cpu), power::OFF, "AFFINITY_INFO of CPU {cpu}");
    }
    Ok(())
}

static RESULTS: [AtomicI64; MAX_CPUS] = [const { AtomicI64::new(0) }; MAX_CPUS];
static GATE: AtomicUsize = AtomicUsize::new(0);
static CONTEXT: AtomicU64 = AtomicU64::new(0);

/// `suite=off`: all CPUs turn themselves off, the first one last or, with `last=1`, first. Then no CPU is left
/// to turn another one on, and the guest has ended.
pub fn all_off() {
    gic::start_distributor();
    gic::start_cpu();
    let count = cpus::start_all();
    say!("off begins");
    for cpu in 1..count {
        if bootargs::number_or("last", 0) == 0 {
            if turn_off_and_wait(cpu).is_err() {
                say!("FAIL off: CPU {cpu} is not off");
            }
        } else {
            cpus::begin(cpu, turn_off_after_first);
        }
    }
    turn_off();
}

fn turn_off_after_first() {
    time::wait(|| affinity_info(0) == power::OFF);
    turn_off();
}

/// Turns this CPU off; after that another CPU may read that it is off.
fn turn_off() {
    let result = call(function::CPU_OFF, [0; 3]);
    panic!("CPU_OFF returned {result}");
}

/// Has a CPU turn itself off, and waits until it is off.
fn turn_off_and_wait(cpu: usize) -> Verdict {
    cpus::begin(cpu, turn_off);
    let off = time::wait(|| affinity_info(cpu) == power::OFF);
    check!(off, "CPU {cpu} is not off: {}", affinity_info(cpu));
    cpus::forget_work(cpu);
    Ok(())
}

fn start(cpu: usize) -> Verdict {
    match cpus::start(cpu) {
        Ok(()) => Ok(()),
        Err(error) => Err(Failure::new(format_args!(
            "CPU {cpu} does not start: {error}"
        ))),
    }
}

fn turn_last_on() {
    let last = cpus::count() - 1;
    GATE.fetch_add(1, Ordering::AcqRel);
    while GATE.load(Ordering::Acquire) < last {
        core::hint::spin_loop();
    }
    let arguments = [last as u64, entry::secondary_entry(), 0];
    RESULTS[cpu()].store(call(function::CPU_ON, arguments), Ordering::Release);
}

/// All CPUs turn the last one on at once: one call succeeds, and the CPU is entered once.
fn cpu_on_by_all() -> Verdict {
    let count = cpus::count();
    let last = count - 1;
    for cpu in 1..last {
        if affinity_info(cpu) == power::OFF {
            start(cpu)?;
        }
    }
    if affinity_info(last) == power::ON {
        turn_off_and_wait(last)?;
    }
    let entries = entry::at_entry(last).entries;
    GATE.store(0, Ordering::Release);
    for cpu in 1..last {
        cpus::begin(cpu, turn_last_on);
    }
    turn_last_on();
    for cpu in 1..last {
        cpus::finish(cpu);
    }
    let mut successes = 0;
    for (cpu, result) in RESULTS.iter().enumerate().take(last) {
        match result.load(Ordering::Acquire) {
            code::SUCCESS => successes += 1,
            code::ALREADY_ON | code::ON_PENDING => {}
            result => check!(false, "CPU {cpu} got {result}"),
        }
    }
    check_eq!(successes, 1, "CPUs that turned CPU {last} on");
    check!(
        time::wait(|| entry::at_entry(last).entries > entries),
        "CPU {last} does not run"
    );
    check!(
        time::wait(|| affinity_info(last) == power::ON),
        "CPU {last} is not on"
    );
    time::delay_us(500);
    check_eq!(
        entry::at_entry(last).entries,
        entries + 1,
        "entries of CPU {last}"
    );
    let again = call(function::CPU_ON, [last as u64, entry::secondary_entry(), 0]);
    check_eq!(again, code::ALREADY_ON, "CPU_ON of a CPU that is on");
    Ok(())
}

fn cpu_on_state() -> Verdict {
    for cpu in 1..cpus::count() {
        if affinity_info(cpu) == power::ON {
            turn_off_and_wait(cpu)?;
        }
        let context = 0xC0FF_EE00_1234_5600 + cpu as u64;
        let arguments = [cpu as u64, entry::secondary_entry(), context];
        let entries = entry::at_entry(cpu).entries;
        check_eq!(
            call(function::CPU_ON, arguments),
            code::SUCCESS,
            "CPU_ON of {cpu}"
        );
        check!(
            time::wait(|| entry::at_entry(cpu).entries > entries),
            "CPU {cpu} does not run"
        );
        check_eq!(entry::at_entry(cpu).x0, context, "context of CPU {cpu}");
        entered_afresh(cpu)?;
        cpus::run(cpu, || {
            CONTEXT.store(mrs!(MPIDR_EL1) & 0xFF_00FF_FFFF, Ordering::Release)
        });
        check_eq!(
            CONTEXT.load(Ordering::Acquire),
            cpu as u64,
            "affinity of CPU {cpu}"
        );
    }
    Ok(())
}

fn cpu_on_refused() -> Verdict {
    let count = cpus::count() as u64;
    let entry = entry::secondary_entry();
    let on = |target, entry| call(function::CPU_ON, [target, entry, 0]);
    check_eq!(on(0, entry), code::ALREADY_ON, "of itself");
    for target in [
        count,
        0xFF,
        0x100,
        0x1_0000,
        1 << 24,
        1 << 31,
        1 << 32,
        u64::MAX,
    ] {
        check_eq!(
            on(target, entry),
            code::INVALID_PARAMETERS,
            "of CPU {target:#x}"
        );
    }
    turn_off_and_wait(1)?;
    // Addresses without memory: devices, nothing, the end of the address space.
    for address in [
        0,
        0x0900_0000,
        0x0800_0000,
        0x3FFF_FFFC,
        0xFF_FFFF_F000,
        u64::MAX - 3,
    ] {
        check_eq!(on(1, address), code::INVALID_ADDRESS, "at {address:#x}");
    }
    check_eq!(
        affinity_info(1),
        power::OFF,
        "AFFINITY_INFO after the calls that failed"
    );
    start(1)
}

/// The 32-bit call uses 32 bits of each argument.
fn cpu_on_32() -> Verdict {
    turn_off_and_wait(1)?;
    let entries = entry::at_entry(1).entries;
    let upper = 0xDEAD << 32;
    let arguments = [1 | upper, entry::secondary_entry() | upper, 0x1234 | upper];
    check_eq!(
        call(function::CPU_ON_32, arguments),
        code::SUCCESS,
        "CPU_ON, 32-bit"
    );
    check!(
        time::wait(|| entry::at_entry(1).entries > entries),
        "CPU 1 does not run"
    );
    check_eq!(entry::at_entry(1).x0, 0x1234, "context of CPU 1");
    cpus::run(1, || {});
    Ok(())
}

fn cpu_off_and_on() -> Verdict {
    for round in 0..5 {
        for cpu in 1..cpus::count() {
            turn_off_and_wait(cpu)?;
        }
        let before: [u64; MAX_CPUS] = core::array::from_fn(|cpu| entry::at_entry(cpu).entries);
        time::delay_us(500);
        for cpu in 1..cpus::count() {
            check_eq!(affinity_info(cpu), power::OFF, "AFFINITY_INFO of CPU {cpu}");
            let entries = entry::at_entry(cpu).entries;
            check_eq!(
                entries,
                before[cpu],
                "entries of CPU {cpu} while off, round {round}"
            );
            start(cpu)?;
            let entries = entry::at_entry(cpu).entries;
            check_eq!(
                entries,
                before[cpu] + 1,
                "entries of CPU {cpu}, round {round}"
            );
        }
    }
    Ok(())
}

/// An SGI does not turn a CPU on.
fn sgi_while_off() -> Verdict {
    turn_off_and_wait(1)?;
    let entries = entry::at_entry(1).entries;
    gic::send_sgi(3, 1 << 1);
    time::delay_us(1000);
    check_eq!(affinity_info(1), power::OFF, "AFFINITY_INFO after an SGI");
    check_eq!(entry::at_entry(1).entries, entries, "entries after an SGI");
    start(1)?;
    cpus::run(1, take_one);
    interrupts::forget(1);
    Ok(())
}
