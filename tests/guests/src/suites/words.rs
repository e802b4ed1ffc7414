// SPDX-License-Identifier: MIT OR Apache-2.0
//! `suite=words ms=N spis=N attack=NAME`: each CPU writes or reads a register of the distributor for all of the first `spis=` SPIs
//! (default 32), again and again, for `ms=` milliseconds (default 1000). All of them are pending for CPU 0, which takes none: the
//! hypervisor has as much to do for each access as a guest can cause.

use crate::machine::sysreg::{cpu, msr, wfi};
use crate::machine::time::{Timer, now, us};
use crate::machine::{bootargs, cpus, gic};
use crate::report::{Verdict, check, record};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use gic::register;

/// The end of the attack.
static END: AtomicU64 = AtomicU64::new(0);
/// Accesses to registers. The suite does not demand many: EL2 may need all of the time.
static ACCESSES: AtomicU64 = AtomicU64::new(0);

/// A higher priority than the usual one.
const HIGH: u8 = 0x20;
/// An SGI of this suite.
const SGI: u32 = 3;
/// ICC_CTLR_EL1.EOImode (IHI 0069, section 12.2.6): an interrupt is ended and deactivated by two registers.
const EOI_MODE_1: u64 = 1 << 1;
/// How long a CPU sleeps, in microseconds.
const SLEEP_US: u64 = 3_300;

/// An attack: what it does to the word of SPIs that begins with this one.
type Attack = fn(u32);

const ATTACKS: &[(&str, Attack)] = &[
    ("pend", |spi| {
        gic::set_word(register::ISPENDR, spi, u32::MAX)
    }),
    ("clear", |spi| {
        gic::set_word(register::ICPENDR, spi, u32::MAX);
        gic::set_word(register::ISPENDR, spi, u32::MAX);
    }),
    ("enable", |spi| {
        gic::set_word(register::ICENABLER, spi, u32::MAX);
        gic::set_word(register::ISENABLER, spi, u32::MAX);
    }),
    ("activate", |spi| {
        gic::set_word(register::ISACTIVER, spi, u32::MAX);
        gic::set_word(register::ICACTIVER, spi, u32::MAX);
    }),
    ("stay-active", |spi| {
        gic::set_word(register::ISACTIVER, spi, u32::MAX);
    }),
    ("group", |spi| {
        gic::set_word(register::IGROUPR, spi, 0);
        gic::set_word(register::IGROUPR, spi, u32::MAX);
    }),
    ("route", |spi| {
        for spi in spi..spi + 32 {
            gic::route(spi, 1 % cpus::count());
            gic::route(spi, 0);
        }
    }),
    ("edge", |spi| gic::set_edge(spi, spi & 64 != 0)),
    ("priority", |spi| gic::set_priority(spi, 0x40)),
    // It sleeps, and masks all of them: none wakes it but its timer.
    ("sleep", |_| {
        gic::set_priority(Timer::Physical.interrupt(), HIGH);
        msr!(ICC_PMR_EL1, u64::from(gic::USUAL));
        Timer::Physical.start_us(SLEEP_US);
        wfi();
        Timer::Physical.stop();
    }),
    // All are active, more than there are list registers. It ends one that is in none.
    ("end-overflow", |spi| {
        gic::set_word(register::ISACTIVER, spi, u32::MAX);
        gic::set_priority(SGI, HIGH);
        gic::send_sgi(SGI, 1 << cpu());
        let sgi = gic::acknowledge();
        gic::end(spi + 31);
        gic::set_word(register::ICACTIVER, sgi, 1 << (sgi % 32));
    }),
    // With EOImode 1, so the write traps; the pending ones are in list registers.
    ("deactivate", |spi| {
        msr!(ICC_CTLR_EL1, EOI_MODE_1);
        gic::deactivate(spi);
    }),
    ("read", |spi| {
        let _ = gic::get_word(register::ISPENDR, spi);
        let _ = gic::get_word(register::ISACTIVER, spi);
    }),
];

/// Which attack the CPUs run.
static ATTACK: AtomicUsize = AtomicUsize::new(0);

/// Runs the suite.
pub fn run() {
    gic::start_distributor();
    gic::start_cpu();
    record("words", attack(cpus::start_all()));
}

fn attack(count: usize) -> Verdict {
    let name = bootargs::text("attack").unwrap_or("pend");
    let index = ATTACKS.iter().position(|(it, _)| *it == name);
    check!(index.is_some(), "there is no attack {name}");
    ATTACK.store(index.unwrap_or_default(), Ordering::Relaxed);
    for spi in gic::FIRST_SPI..end_of_spis() {
        gic::start_spi(spi);
        gic::set_bit(register::ISPENDR, spi);
    }
    END.store(
        now() + us(bootargs::number_or("ms", 1000) * 1000),
        Ordering::Relaxed,
    );
    for cpu in 1..count {
        cpus::begin(cpu, work);
    }
    work();
    for cpu in 1..count {
        cpus::finish(cpu);
    }
    let accesses = ACCESSES.load(Ordering::Relaxed);
    check!(accesses > 0, "no access was made");
    Ok(())
}

fn end_of_spis() -> u32 {
    gic::FIRST_SPI + bootargs::number_or("spis", 32) as u32
}

fn work() {
    let (_, attack) = ATTACKS[ATTACK.load(Ordering::Relaxed) % ATTACKS.len()];
    loop {
        for spi in (gic::FIRST_SPI..end_of_spis()).step_by(32) {
            if now() >= END.load(Ordering::Relaxed) {
                return;
            }
            attack(spi);
            ACCESSES.fetch_add(1, Ordering::Relaxed);
        }
    }
}
