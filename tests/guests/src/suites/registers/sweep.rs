// SPDX-License-Identifier: MIT OR Apache-2.0
//! Executes the stubs of all encodings, with the MMU off and with its own vectors, which skip instructions that cause an
//! exception. So any register may have any value for a moment, even those of address translation.

use super::buffers::{Buffers, STUB_SIZE, publish};
use super::encoding::{COUNT, Direction};
use core::arch::global_asm;

/// Exception level at which the stubs run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// EL0, with all rights that the kernel can give.
    El0 = 0,
    /// EL1.
    El1 = 1,
}

/// The data of the assembly code.
#[repr(C)]
struct Sweep {
    stubs: u64,
    end: u64,
    values: u64,
    read_faults: u64,
    faults: u64,
    value: u64,
    scratch: u64,
    writes: u64,
    level: u64,
}

/// The stub reached its end.
const NO_FAULT: u8 = 0;
/// An exception other than a synchronous one, which no stub should cause.
const UNEXPECTED: u8 = 2;

impl Buffers {
    /// Executes all stubs of a direction. A read stores the values in `values`; a write uses `value`, and then at once
    /// restores each readable register from `values`.
    pub fn sweep(&mut self, level: Level, direction: Direction, value: u64) {
        let is_write = direction == Direction::Write;
        let stubs = match direction {
            Direction::Read => self.read_stubs.as_ptr() as u64,
            Direction::Write => self.write_stubs.as_ptr() as u64,
        };
        let [read_faults, faults] = {
            let reads = &self.faults[place(level, Direction::Read)];
            [reads, &self.faults[place(level, direction)]].map(|flags| flags.as_ptr() as u64)
        };
        let sweep = Sweep {
            stubs,
            end: stubs + (COUNT * STUB_SIZE) as u64,
            values: self.values.as_mut_ptr() as u64,
            read_faults,
            faults,
            value,
            scratch: self.scratch,
            writes: u64::from(is_write),
            level: level as u64,
        };
        self.publish_data();
        // SAFETY: all addresses are in buffers of this suite. Registers on which this program depends are
        // restored when it returns.
        unsafe { registers_sweep(&sweep) };
        self.publish_data();
        let faults = &self.faults[place(level, direction)];
        if let Some(index) = faults.iter().position(|&fault| fault == UNEXPECTED) {
            panic!("an interrupt or SError at encoding {index:#x}");
        }
    }

    /// Whether an encoding causes no exception.
    pub fn is_accessible(&self, level: Level, direction: Direction, index: usize) -> bool {
        self.faults[place(level, direction)][index] == NO_FAULT
    }

    fn publish_data(&self) {
        publish(self.values);
        for faults in &self.faults {
            publish(faults);
        }
    }
}

fn place(level: Level, direction: Direction) -> usize {
    let of_level = match level {
        Level::El1 => 0,
        Level::El0 => 2,
    };
    of_level + usize::from(direction == Direction::Write)
}

unsafe extern "C" {
    fn registers_sweep(sweep: *const Sweep);
}

/// `SCTLR_EL1` bits: MMU, data cache, instruction cache.
const MMU_AND_CACHES: u64 = 1 << 0 | 1 << 2 | 1 << 12;
/// `SCTLR_EL1` bits that give EL0 all rights: `UMA`, `DZE`, `UCT`, `UCI`, `EnTP2`.
const FREE_FOR_PROGRAMS: u64 = 1 << 9 | 1 << 14 | 1 << 15 | 1 << 26 | 1 << 60;
/// `CNTKCTL_EL1` bits that give EL0 counters and timers: `EL0PCTEN`, `EL0VCTEN`, `EL0VTEN`, `EL0PTEN`.
const FREE_TIMERS: u64 = 0b11 | 0b11 << 8;
/// `CPACR_EL1`: `ZEN`, `FPEN`, `SMEN`: nothing traps to EL1.
const FREE_VECTORS: u64 = 0b11 << 16 | 0b11 << 20 | 0b11 << 24;

// x19 to x25: the state of the loop; x26: whether it writes; x28: how a stub ended. The vectors use x27 and x28 only.
global_asm!(
    ".pushsection .text, \"ax\"",
    ".macro registers_loop privileged",
    "1: mov x28, #0",
    "mov x0, x24",
    "mov x1, x25",
    "blr x19",
    ".if \\privileged",
    // MSR (immediate) may have changed them.
    "msr spsel, #1",
    "msr daifset, #15",
    ".endif",
    "mov x3, x28",
    "cbz x26, 2f",
    "ldrb w2, [x22]",
    "orr w2, w2, w3",
    "cbnz w2, 3f",
    "ldr x0, [x21]",
    "mov x1, x25",
    "blr x19",
    "b 3f",
    "2: str x0, [x21]",
    "3: strb w3, [x23], #1",
    "add x21, x21, #8",
    "add x22, x22, #1",
    "add x19, x19, #{stub}",
    "cmp x19, x20",
    "b.lo 1b",
    ".endm",
    //
    ".global registers_sweep",
    "registers_sweep:",
    "stp x29, x30, [sp, #-144]!",
    "stp x19, x20, [sp, #16]",
    "stp x21, x22, [sp, #32]",
    "stp x23, x24, [sp, #48]",
    "stp x25, x26, [sp, #64]",
    "stp x27, x28, [sp, #80]",
    "mrs x1, vbar_el1",
    "mrs x2, sctlr_el1",
    "stp x1, x2, [sp, #96]",
    "mrs x1, cpacr_el1",
    "mrs x2, cntkctl_el1",
    "stp x1, x2, [sp, #112]",
    "mrs x1, sp_el0",
    "str x1, [sp, #128]",
    "ldp x19, x20, [x0]",
    "ldp x21, x22, [x0, #16]",
    "ldp x23, x24, [x0, #32]",
    "ldp x25, x26, [x0, #48]",
    "ldr x4, [x0, #64]",
    "mov x5, sp",
    "dc civac, x5",
    "adrp x1, registers_vectors",
    "add x1, x1, :lo12:registers_vectors",
    "msr vbar_el1, x1",
    "ldr x1, ={vectors_free}",
    "msr cpacr_el1, x1",
    "ldr x1, ={timers_free}",
    "msr cntkctl_el1, x1",
    "ldr x1, ={mmu}",
    "mrs x2, sctlr_el1",
    "bic x2, x2, x1",
    "ldr x1, ={programs_free}",
    "orr x2, x2, x1",
    "dsb sy",
    "msr sctlr_el1, x2",
    "isb",
    "cbz x4, 4f",
    "registers_loop 1",
    "b 5f",
    //
    // EL0 with all interrupts masked. It ends with SVC.
    "4: adr x1, 6f",
    "msr elr_el1, x1",
    "mov x1, #0x3c0",
    "msr spsr_el1, x1",
    "eret",
    "6: registers_loop 0",
    "svc #0",
    //
    "registers_end:",
    "5: tlbi vmalle1",
    "dsb sy",
    "isb",
    "msr daifset, #15",
    // With the MMU on, the stack is accessible again.
    "mrs x2, sctlr_el1",
    "ldr x1, ={mmu}",
    "orr x2, x2, x1",
    "msr sctlr_el1, x2",
    "isb",
    "ldp x1, x2, [sp, #96]",
    "msr vbar_el1, x1",
    "msr sctlr_el1, x2",
    "ldp x1, x2, [sp, #112]",
    "msr cpacr_el1, x1",
    "msr cntkctl_el1, x2",
    "ldr x1, [sp, #128]",
    "msr sp_el0, x1",
    "isb",
    "ldp x19, x20, [sp, #16]",
    "ldp x21, x22, [sp, #32]",
    "ldp x23, x24, [sp, #48]",
    "ldp x25, x26, [sp, #64]",
    "ldp x27, x28, [sp, #80]",
    "ldp x29, x30, [sp], #144",
    "ret",
    //
    ".macro registers_skip",
    ".balign 128",
    "mrs x27, elr_el1",
    "add x27, x27, #4",
    "msr elr_el1, x27",
    "mov x28, #1",
    "eret",
    ".endm",
    // Reports it, and masks what arrived.
    ".macro registers_unexpected",
    ".balign 128",
    "mrs x27, spsr_el1",
    "orr x27, x27, #0x3c0",
    "msr spsr_el1, x27",
    "mov x28, #{unexpected}",
    "eret",
    ".endm",
    ".balign 2048",
    "registers_vectors:",
    ".rept 2",
    "registers_skip",
    "registers_unexpected",
    "registers_unexpected",
    "registers_unexpected",
    ".endr",
    // From EL0: SVC, exception class 0x15, ends the loop.
    ".balign 128",
    "mrs x27, esr_el1",
    "lsr x27, x27, #26",
    "sub x27, x27, #0x15",
    "cbz x27, registers_end",
    "mrs x27, elr_el1",
    "add x27, x27, #4",
    "msr elr_el1, x27",
    "mov x28, #1",
    "eret",
    "registers_unexpected",
    "registers_unexpected",
    "registers_unexpected",
    ".rept 4",
    "registers_unexpected",
    ".endr",
    ".popsection",
    stub = const STUB_SIZE,
    mmu = const MMU_AND_CACHES,
    programs_free = const FREE_FOR_PROGRAMS,
    timers_free = const FREE_TIMERS,
    vectors_free = const FREE_VECTORS,
    unexpected = const UNEXPECTED,
);
