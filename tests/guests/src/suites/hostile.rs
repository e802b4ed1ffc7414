// SPDX-License-Identifier: MIT OR Apache-2.0
//! `suite=hostile seed=N ops=N`: tries to affect other guests. Each CPU makes this number of random
//! accesses (default 10,000): to the registers of its GIC and UART, with any width and at any
//! offset; calls of the firmware; system registers; SGIs. It causes no fault, for which the
//! hypervisor would stop it (suite `fault`). `reset=1`: some calls reset it, and it never ends.

use crate::machine::gic::{GICD, GICR, REDISTRIBUTOR_SIZE};
use crate::machine::mmio;
use crate::machine::psci::{Conduit, call_by, function};
use crate::machine::random::Random;
use crate::machine::sysreg::{cpu, mrs, msr};
use crate::machine::time::{Timer, now};
use crate::machine::uart::{CONSOLE, register, say};
use crate::machine::{bootargs, cpus, entry, gic, interrupts, psci, traps};
use crate::report::record;
use core::arch::asm;

/// `CR`: UART on, transmitter and receiver on.
const CR_ON: u32 = 1 << 0 | 1 << 8 | 1 << 9;

/// Runs the suite.
pub fn run() {
    gic::start_distributor();
    gic::start_cpu();
    let count = cpus::start_all();
    say!("hostile begins");
    for cpu in 1..count {
        cpus::begin(cpu, disturb);
    }
    disturb();
    for cpu in 1..count {
        cpus::finish(cpu);
    }
    // In loopback mode the result would not be printed.
    CONSOLE.write(register::IMSC, 0);
    CONSOLE.write(register::CR, CR_ON);
    record("hostile", Ok(()));
}

fn disturb() {
    let resets = bootargs::number_or("reset", 0) != 0;
    let mut seed = bootargs::number_or("seed", 1) << 8 | cpu() as u64;
    if resets {
        // Another seed in each life.
        seed ^= now() << 16;
    }
    let mut random = Random::new(seed);
    let operations = bootargs::number_or("ops", 10_000);
    interrupts::with_handler(take_anything, || {
        for _ in 0..operations {
            // Instructions that trap to this program's own vectors are skipped.
            traps::catch(|| operation(&mut random, resets));
        }
        crate::machine::sysreg::mask();
    });
    for timer in [Timer::Virtual, Timer::Physical] {
        timer.stop();
    }
}

/// Takes any interrupt, and ends it in a random way.
fn take_anything(_line: interrupts::Line) {
    let interrupt = gic::acknowledge();
    let other = mrs!(ICC_IAR0_EL1);
    msr!(ICC_EOIR0_EL1, other);
    if !now().is_multiple_of(8) {
        gic::end(interrupt);
    }
    for timer in [Timer::Virtual, Timer::Physical] {
        timer.stop();
    }
}

fn operation(random: &mut Random, resets: bool) {
    match random.below(10) {
        0..=2 => access(random, GICD, 0x1_0000),
        3..=4 => access(random, GICR, REDISTRIBUTOR_SIZE * cpus::count() as u64),
        5 => access(random, CONSOLE.base, 0x1000),
        6 => firmware(random, resets),
        7 => system_register(random),
        8 => timer(random),
        _ => {
            let value = random.next();
            match random.below(3) {
                0 => msr!(ICC_SGI1R_EL1, value),
                1 => msr!(ICC_SGI0R_EL1, value),
                _ => msr!(ICC_SGI1R_EL1, value & 0x0F00_00FF),
            }
            if random.below(2) == 0 {
                crate::machine::sysreg::unmask();
            } else {
                crate::machine::sysreg::mask();
            }
        }
    }
}

/// Reads or writes anywhere in a window.
fn access(random: &mut Random, base: u64, size: u64) {
    let offset = match random.below(4) {
        // Most registers have low offsets.
        0 => random.below(0x1000),
        1 => random.below(size) & !7,
        _ => random.below(size) & !3,
    };
    let value = random.next() & random.next();
    let width = random.below(4);
    // Not across the end of the window.
    let offset = offset.min(size - 8);
    let address = base + offset;
    match (random.below(2), width) {
        (0, 0) => {
            mmio::read8(address);
        }
        (0, 1) => {
            mmio::read16(address);
        }
        (0, 2) => {
            mmio::read32(address);
        }
        (0, _) => {
            mmio::read64(address);
        }
        // Bytes for the UART stay printable, so that other guests' lines can be read.
        (_, _) if address == CONSOLE.base => mmio::write8(address, b'a' + (value % 26) as u8),
        (_, 0) => mmio::write8(address, value as u8),
        (_, 1) => mmio::write16(address, value as u16),
        (_, 2) => mmio::write32(address, value as u32),
        _ => mmio::write64(address, value),
    }
}

/// Any call except those that end this guest or turn all its CPUs off.
fn firmware(random: &mut Random, resets: bool) {
    let id = match random.below(4) {
        0 => random.next(),
        1 => 0x8400_0000 | random.below(0x60),
        2 => 0xC400_0000 | random.below(0x60),
        _ => 0x8000_0000 | random.below(4),
    };
    let id = id & 0xFFFF_FFFF;
    match id {
        function::SYSTEM_RESET if resets => psci::system_reset(),
        function::SYSTEM_OFF | function::SYSTEM_RESET | function::CPU_OFF => return,
        // Without anything to wake it, a CPU would suspend for ever.
        function::CPU_SUSPEND | 0x8400_0001 => return,
        _ => {}
    }
    let argument = |random: &mut Random| match random.below(4) {
        0 => random.next(),
        1 => random.below(16),
        2 => entry::secondary_entry(),
        _ => 0x4000_0000 + random.below(1 << 26),
    };
    let arguments = [id, argument(random), argument(random), argument(random)];
    // CPUs that are all on cannot be turned on, so no entry point is used.
    let conduit = if random.below(2) == 0 {
        Conduit::Hvc
    } else {
        Conduit::Smc
    };
    call_by(conduit, arguments);
}

/// Registers that trap to the hypervisor, and those of the GIC's interface.
fn system_register(random: &mut Random) {
    let value = random.next();
    match random.below(16) {
        0 => msr!(ICC_PMR_EL1, value & 0xFF),
        // Some values of more than three bits end QEMU (docs/caveats.md).
        1 => msr!(ICC_BPR1_EL1, value & 7),
        2 => msr!(ICC_CTLR_EL1, value & 3),
        3 => msr!(ICC_IGRPEN1_EL1, value & 1),
        4 => msr!(ICC_IGRPEN0_EL1, value & 1),
        5 => msr!(ICC_EOIR1_EL1, value & 0x3FF),
        6 => msr!(ICC_DIR_EL1, value & 0x3FF),
        7 => {
            let _ = mrs!(ICC_IAR1_EL1);
        }
        8 => {
            let _ = mrs!(ID_AA64PFR0_EL1) | mrs!(ID_AA64MMFR1_EL1) | mrs!(ID_DFR0_EL1);
        }
        9 => {
            let _ = mrs!(PMCR_EL0);
        }
        10 => msr!(PMCR_EL0, value),
        11 => msr!(OSLAR_EL1, value & 1),
        12 => msr!(MDSCR_EL1, value & 0x1000),
        13 => {
            // Implementation defined.
            let _ = mrs!(S3_0_C15_C1_0);
        }
        14 => {
            // SAFETY: cleans and invalidates caches by set and way, which changes no memory.
            unsafe { asm!("dc cisw, {}", in(reg) value & 0xFFF_FFFE, options(nostack)) };
        }
        _ => msr!(DBGBVR0_EL1, value),
    }
}

fn timer(random: &mut Random) {
    let timer = if random.below(2) == 0 {
        Timer::Virtual
    } else {
        Timer::Physical
    };
    match random.below(3) {
        0 => timer.set_control(random.below(4)),
        1 => timer.set_due(now() + random.below(1 << 16)),
        _ => timer.set_left(random.next() as i32),
    }
}
