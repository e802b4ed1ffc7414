// SPDX-License-Identifier: MIT OR Apache-2.0
//! `suite=lives`: resets itself again and again. Each life checks that the machine has no state of
//! the life before, prints `life-ok` or what it found, leaves marks in all state it can reach, and
//! resets the machine. When a `q` is typed, it ends.

use crate::machine::entry::{self, AtEntry};
use crate::machine::gic::{self, FREE_SPI, GICD, register};
use crate::machine::mmio::{read32, read64, write32};
use crate::machine::psci::{self, Conduit, call_by, function, power};
use crate::machine::sysreg::{cpu, mrs, msr};
use crate::machine::time::{ENABLE, Timer};
use crate::machine::uart::{self, CONSOLE, say};
use crate::machine::{MAX_CPUS, cpus, memory, time};
use crate::report::{Verdict, check, check_eq, record};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The mark.
const MARK: u64 = 0xDEAD_FACE_DEAD_FACE;
/// A variable with an initial value, and one that is initially zero.
const FIRST: u64 = 0x1234_5678_9ABC_DEF0;
static WITH_VALUE: AtomicU64 = AtomicU64::new(FIRST);
static ZERO: AtomicU64 = AtomicU64::new(0);
/// CPUs other than the first that have checked their registers, and found nothing.
static LOOKED: AtomicUsize = AtomicUsize::new(0);
static CLEAN: AtomicUsize = AtomicUsize::new(0);
/// CPUs that have left their marks.
static MARKED: AtomicUsize = AtomicUsize::new(0);

/// Runs the suite.
pub fn run() {
    match life() {
        Ok(()) => say!("life-ok"),
        Err(failure) => {
            record("life", Err(failure));
            return;
        }
    }
    if quit() {
        record("lives", Ok(()));
        return;
    }
    leave_marks();
}

/// Whether a `q` was typed.
fn quit() -> bool {
    core::iter::from_fn(|| CONSOLE.receive())
        .take(64)
        .any(|byte| byte == b'q')
}

fn life() -> Verdict {
    memory_is_clean()?;
    uart_is_clean()?;
    distributor_is_clean()?;
    cpu_is_clean()?;
    let count = cpus::count();
    for cpu in 1..count {
        check_eq!(
            psci::affinity_info(cpu),
            power::OFF,
            "AFFINITY_INFO of CPU {cpu}"
        );
        check_eq!(entry::at_entry(cpu).entries, 0, "entries of CPU {cpu}");
    }
    gic::start_distributor();
    for cpu in 1..count {
        cpus::on_entry(cpu, look_at_itself);
        if cpus::start(cpu).is_err() {
            check!(false, "CPU {cpu} does not start");
        }
        check_eq!(LOOKED.load(Ordering::Acquire), cpu, "CPUs that have looked");
        check_eq!(CLEAN.load(Ordering::Acquire), cpu, "CPUs that are clean");
    }
    Ok(())
}

fn look_at_itself() {
    match cpu_is_clean() {
        Ok(()) => {
            CLEAN.fetch_add(1, Ordering::Release);
        }
        failed => record("life", failed),
    }
    LOOKED.fetch_add(1, Ordering::Release);
}

fn memory_is_clean() -> Verdict {
    check_eq!(
        WITH_VALUE.load(Ordering::Relaxed),
        FIRST,
        "a variable with a value"
    );
    check_eq!(
        ZERO.load(Ordering::Relaxed),
        0,
        "a variable without a value"
    );
    for part in memory::free() {
        let words = part.words();
        if let Some(place) = words.iter().position(|&word| word != 0) {
            let address = part.start + 8 * place as u64;
            check_eq!(words[place], 0, "memory at {address:#x}");
        }
    }
    Ok(())
}

fn uart_is_clean() -> Verdict {
    use uart::register::{CR, IBRD, IFLS, IMSC, LCR_H, MIS};
    /// Transmitter and receiver on.
    const CR_RESET: u32 = 0x300;
    const HALF_FULL: u32 = 0x12;
    for (name, offset, wanted) in [
        ("CR", CR, CR_RESET),
        ("IMSC", IMSC, 0),
        ("MIS", MIS, 0),
        ("LCR_H", LCR_H, 0),
        ("IBRD", IBRD, 0),
        ("IFLS", IFLS, HALF_FULL),
    ] {
        check_eq!(CONSOLE.read(offset), wanted, "UART {name}");
    }
    Ok(())
}

fn distributor_is_clean() -> Verdict {
    let groups = gic::ENABLE_GROUP_0 | gic::ENABLE_GROUP_1;
    check_eq!(read32(GICD + register::CTLR) & groups, 0, "GICD_CTLR");
    let spis = 32 * (read32(GICD + register::TYPER) & 0x1F);
    for first in (32..32 + spis).step_by(32) {
        for bank in [
            register::IGROUPR,
            register::ISENABLER,
            register::ISPENDR,
            register::ISACTIVER,
        ] {
            check_eq!(
                gic::get_word(bank, first),
                0,
                "GICD {bank:#x} of SPIs from {first}"
            );
        }
    }
    for spi in 32..32 + spis {
        check_eq!(gic::priority(spi), 0, "priority of {spi}");
        check_eq!(gic::routed_to(spi), 0, "route of {spi}");
    }
    Ok(())
}

fn cpu_is_clean() -> Verdict {
    let AtEntry {
        sctlr,
        marks,
        timers,
        entries,
        ..
    } = entry::at_entry(cpu());
    check_eq!(entries, 1, "entries");
    check_eq!(sctlr & 1, 0, "MMU");
    check_eq!(marks, 0, "TPIDR and CONTEXTIDR");
    check_eq!(timers, 0, "timers");
    for timer in [Timer::Virtual, Timer::Physical] {
        check_eq!(timer.control(), 0, "{timer:?}");
    }
    check!(
        super::watch::vectors_are(&[0; 64]),
        "a floating point register has a value"
    );
    for bank in [
        register::IGROUPR,
        register::ISENABLER,
        register::ISPENDR,
        register::ISACTIVER,
    ] {
        check_eq!(gic::get_word(bank, 0), 0, "GICR {bank:#x}");
    }
    for interrupt in 0..32 {
        check_eq!(gic::priority(interrupt), 0, "priority of {interrupt}");
    }
    check_eq!(mrs!(ICC_PMR_EL1), 0, "PMR");
    check_eq!(mrs!(ICC_IGRPEN0_EL1), 0, "IGRPEN0");
    check_eq!(mrs!(ICC_IGRPEN1_EL1), 0, "IGRPEN1");
    check_eq!(mrs!(ICC_RPR_EL1), gic::IDLE, "RPR");
    check_eq!(mrs!(ICC_CTLR_EL1) & 2, 0, "EOImode");
    check_eq!(mrs!(ISR_EL1), 0, "ISR");
    Ok(())
}

/// A CPU's own registers: an SGI active, others pending, timers running, a value in each.
fn mark_cpu() {
    gic::start_cpu();
    for interrupt in 0..32 {
        gic::set_priority(interrupt, 0x40 + 8 * (interrupt % 8) as u8);
    }
    gic::send_sgi(3, 1 << cpu());
    time::wait(|| gic::acknowledge() == 3);
    gic::send_sgi(3, 1 << cpu());
    gic::send_sgi(9, 1 << cpu());
    gic::set_group(11, false);
    gic::set_bit(register::ISPENDR, 11);
    msr!(ICC_CTLR_EL1, 2);
    Timer::Virtual.set_due(0);
    Timer::Virtual.set_control(ENABLE);
    Timer::Physical.start_us(300);
    super::watch::set_vectors(&[MARK; 64]);
    msr!(TPIDR_EL0, MARK);
    msr!(TPIDR_EL1, MARK);
    msr!(TPIDRRO_EL0, MARK);
    msr!(CONTEXTIDR_EL1, MARK & 0xFFFF_FFFF);
    MARKED.fetch_add(1, Ordering::Release);
}

/// As [`mark_cpu`], then waits in WFI with interrupts masked: one is pending, so it does not sleep.
fn mark_and_wait() {
    mark_cpu();
    loop {
        crate::machine::sysreg::wfi();
    }
}

fn mark_and_spin() {
    mark_cpu();
    loop {
        core::hint::spin_loop();
    }
}

/// Resets the machine when all CPUs have left their marks.
fn mark_and_reset() {
    mark_cpu();
    while MARKED.load(Ordering::Acquire) < cpus::count() {
        core::hint::spin_loop();
    }
    psci::system_reset();
}

fn leave_marks() {
    WITH_VALUE.store(MARK, Ordering::Relaxed);
    ZERO.store(MARK, Ordering::Relaxed);
    for part in memory::free() {
        part.words().fill(MARK);
    }
    CONSOLE.write(uart::register::IBRD, 77);
    CONSOLE.write(uart::register::LCR_H, 0x70);
    CONSOLE.write(uart::register::IFLS, 0);
    CONSOLE.write(uart::register::IMSC, 0x7FF);
    CONSOLE.write(uart::register::CR, 0x101);
    for spi in [33, 45, FREE_SPI] {
        gic::start_spi(spi);
        gic::route(spi, cpus::count() - 1);
        gic::set_bit(register::ISPENDR, spi);
    }
    gic::set_bit(register::ISACTIVER, 46);
    write32(GICD + register::IPRIORITYR + 40, 0x8888_8888);
    // A random CPU resets the machine, so that over many lives each does.
    let random = call_by(Conduit::Hvc, [function::TRNG_RND64, 64, 0, 0])[3];
    let chosen = (random % cpus::count() as u64) as usize;
    for cpu in 1..cpus::count().min(MAX_CPUS) {
        let work = match cpu {
            _ if cpu == chosen => mark_and_reset,
            _ if cpu % 2 == 0 => mark_and_wait,
            _ => mark_and_spin,
        };
        cpus::begin(cpu, work);
    }
    let _ = read64(GICD + register::IROUTER + 8 * 45);
    if chosen == 0 {
        mark_and_reset();
    }
    mark_and_wait();
}
