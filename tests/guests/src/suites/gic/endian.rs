// SPDX-License-Identifier: MIT OR Apache-2.0
//! Big-endian accesses to devices, which are little-endian: at EL1 (`SCTLR_EL1.EE`) and at EL0 (`SCTLR_EL1.E0E`).

use super::clean;
use crate::machine::gic::{self, GICD, register};
use crate::machine::mmio::{read8, read32, read64, write32};
use crate::machine::sysreg::{cpu, mrs};
use crate::machine::uart::{self, CONSOLE, interrupt};
use crate::report::{Verdict, check_eq, test_everywhere};
use core::arch::global_asm;
use spumone_config::gic::SGI_FRAME;

pub fn run(cpus: usize) {
    test_everywhere("big-endian", cpus, big_endian);
}

/// A big-endian access.
#[repr(u64)]
#[derive(Clone, Copy)]
enum Access {
    Read32 = 0,
    Write32 = 1,
    Read64 = 2,
    Read16 = 3,
}

/// Exception level of the access.
#[repr(u64)]
#[derive(Clone, Copy)]
enum Level {
    El0 = 0,
    El1 = 1,
}

unsafe extern "C" {
    fn endian_access(address: u64, value: u64, access: Access, level: Level, control: u64) -> u64;
}

/// Reads or writes a device's register.
fn access(level: Level, access: Access, address: u64, value: u64) -> u64 {
    const E0E: u64 = 1 << 24;
    const EE: u64 = 1 << 25;
    let control = match level {
        Level::El0 => E0E,
        Level::El1 => EE,
    };
    // SAFETY: a device's register, and no memory; all system registers are restored.
    unsafe { endian_access(address, value, access, level, control) }
}

fn big_endian() -> Verdict {
    /// `ID_AA64MMFR0_EL1.BigEnd`.
    const BIG_END: u64 = 0xF << 8;
    if mrs!(ID_AA64MMFR0_EL1) & BIG_END == 0 {
        return Ok(());
    }
    clean();
    let redistributor = gic::redistributor(cpu());
    // Those of SGIs 0 to 3; the virtual GIC has five bits of priority.
    let priorities = redistributor + SGI_FRAME + register::IPRIORITYR;
    let former = read32(priorities);
    for (name, level) in [("EL0", Level::El0), ("EL1", Level::El1)] {
        let kind = read32(GICD + register::TYPER);
        check_eq!(
            access(level, Access::Read32, GICD + register::TYPER, 0) as u32,
            kind.swap_bytes(),
            "GICD_TYPER at {name}"
        );
        let kind = read64(redistributor + register::GICR_TYPER);
        check_eq!(
            access(
                level,
                Access::Read64,
                redistributor + register::GICR_TYPER,
                0
            ),
            kind.swap_bytes(),
            "GICR_TYPER at {name}"
        );
        access(level, Access::Write32, priorities, 0x0810_2040);
        check_eq!(read32(priorities), 0x4020_1008, "priorities from {name}");
        check_eq!(read8(priorities), 0x08, "the first one, from {name}");
        write32(priorities, former);
        let mask = CONSOLE.base + uart::register::IMSC;
        let wanted = interrupt::TX | interrupt::RX;
        access(level, Access::Write32, mask, wanted.swap_bytes().into());
        check_eq!(read32(mask), wanted, "IMSC from {name}");
        check_eq!(
            access(level, Access::Read16, mask, 0) as u16,
            (wanted as u16).swap_bytes(),
            "16 bits of IMSC at {name}"
        );
        write32(mask, 0);
    }
    Ok(())
}

/// `SCTLR_EL1` bits: MMU, data cache.
const MMU_AND_CACHE: u64 = 1 << 0 | 1 << 2;

// With the MMU off, since EE is also for translation tables; so it accesses nothing but the device. SVC ends the access.
global_asm!(
    ".pushsection .text, \"ax\"",
    ".global endian_access",
    "endian_access:",
    "mrs x9, sctlr_el1",
    "mrs x10, vbar_el1",
    "mrs x11, daif",
    "ldr x12, ={mmu}",
    "bic x12, x9, x12",
    "orr x12, x12, x4",
    "adrp x13, endian_vectors",
    "add x13, x13, :lo12:endian_vectors",
    "msr daifset, #15",
    "dsb sy",
    "msr vbar_el1, x13",
    "msr sctlr_el1, x12",
    "isb",
    "cbnz x3, 1f",
    // EL0 with all interrupts masked.
    "adr x12, 1f",
    "msr elr_el1, x12",
    "mov x12, #0x3c0",
    "msr spsr_el1, x12",
    "eret",
    "1: cmp x2, #1",
    "b.lo 2f",
    "b.eq 3f",
    "cmp x2, #3",
    "b.lo 4f",
    "ldrh w0, [x0]",
    "svc #0",
    "2: ldr w0, [x0]",
    "svc #0",
    "3: str w1, [x0]",
    "svc #0",
    "4: ldr x0, [x0]",
    "svc #0",
    "endian_end:",
    "dsb sy",
    "msr sctlr_el1, x9",
    "isb",
    "msr vbar_el1, x10",
    "isb",
    "msr daif, x11",
    "ret",
    ".balign 2048",
    "endian_vectors:",
    ".rept 16",
    ".balign 128",
    "b endian_end",
    ".endr",
    ".popsection",
    mmu = const MMU_AND_CACHE,
);
