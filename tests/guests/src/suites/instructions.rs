// SPDX-License-Identifier: MIT OR Apache-2.0
//! `suite=instructions`: executes random words as instructions without end, at EL1 and at EL0, with the MMU off. It needs 192 MiB of
//! memory. Reports each 2^16 of them. `longest=` microseconds (default 3000): a block of words is given up after this time, since some
//! branch backwards, or wait.
//!
//! They may do anything to this program: its watchdog restarts it then. The description must give it one, and `on-fault = "abort"`. Random
//! numbers of the firmware are the seed of each life.

use super::watchdog::{command, watchdog};
use crate::machine::bootargs;
use crate::machine::gic::{self, GICD, GICR};
use crate::machine::psci::{Conduit, call_by, function};
use crate::machine::random::Random;
use crate::machine::sysreg::{mask, msr};
use crate::machine::time::Timer;
use crate::machine::uart::say;
use crate::machine::{entry, memory};
use core::arch::{asm, global_asm};
use core::cell::UnsafeCell;

/// Words of a block. The last one is 0, which is undefined.
const WORDS: usize = 64;
const BLOCK: usize = size_of::<[u32; WORDS]>();
/// The words between two reports.
const REPORTED: u64 = 1 << 16;
/// Blocks between two pettings of the watchdog.
const BLOCKS: usize = 64;
/// One of so many blocks gets an address of the GIC. Some instructions that access it end the guest's life.
const DEVICE_BLOCKS: u64 = 256;
/// Blocks are in the last memory, one behind the other, so that a machine that keeps translations of instructions seldom has one to drop. The memory at
/// addresses in registers is between [`SCRATCH`] and twice as far before the end.
/// Both are further from this program than a branch reaches, and further from each other than a load or store adds to its base.
const CODE: u64 = 4 << 20;
const SCRATCH: u64 = 8 << 20;
/// How far `B` and `BL` reach.
const BRANCH: u64 = 128 << 20;
const LINE: usize = 64;

/// `SPSR_EL1` of a block: EL1 with its own stack pointer, and EL0; no interrupt is masked.
const EL1: u64 = 0b0101;
const EL0: u64 = 0;
/// `CPACR_EL1.FPEN`: floating point does not trap.
const CPACR: u64 = 3 << 20;

/// What the assembly below uses: it has the offsets.
#[repr(C, align(64))]
struct State {
    /// x19 to x30, SP.
    saved: [u64; 13],
    /// `SCTLR_EL1`, `VBAR_EL1`, `TTBR0_EL1`, `TCR_EL1`, `MAIR_EL1` of this program.
    system: [u64; 5],
    /// The addresses of the first word of the block, and behind the last one.
    begin: u64,
    end: u64,
    /// Where the block was begun, or continued, last.
    at: u64,
    spsr: u64,
    /// How many words were executed at least.
    executed: u64,
    _unused: u64,
    /// x0 to x30, SP of the block.
    registers: [u64; 32],
}

#[repr(C, align(4096))]
struct Place<T>(UnsafeCell<T>);

// SAFETY: one CPU runs this suite.
unsafe impl<T> Sync for Place<T> {}

static STATE: Place<State> = Place(UnsafeCell::new(State {
    saved: [0; 13],
    system: [0; 5],
    begin: 0,
    end: 0,
    at: 0,
    spsr: 0,
    executed: 0,
    _unused: 0,
    registers: [0; 32],
}));

unsafe extern "C" {
    /// Executes the block of this state. Returns after its last word, or when an interrupt is taken.
    fn instructions_run(state: *mut State);
}

/// Runs the suite.
pub fn run() {
    mask();
    let end = memory::all().end;
    let least = entry::image().1 + BRANCH + 2 * SCRATCH;
    assert!(
        end > least,
        "memory ends at {end:#x}; this suite needs it up to {least:#x}"
    );
    let longest_us = bootargs::number_or("longest", 3_000);
    let mut random = Random::new(seed());
    let mut reported = 0;
    // Behind the last block there are only zeros, which are undefined.
    let mut places = (end - CODE..end - CODE / 4).step_by(BLOCK).cycle();
    loop {
        keep_alive();
        for place in places.by_ref().take(BLOCKS) {
            let executed = execute(&mut random, place, end, longest_us);
            if executed - reported >= REPORTED {
                reported += REPORTED;
                say!("instructions executed {REPORTED}");
            }
        }
    }
}

/// Sets up again what a random word may have changed.
fn keep_alive() {
    gic::start_distributor();
    gic::start_cpu();
    msr!(CPACR_EL1, CPACR);
    watchdog(command::SET_TIMEOUT, 1);
    watchdog(command::ENABLE, 1);
    watchdog(command::PET, 0);
}

fn seed() -> u64 {
    call_by(Conduit::Hvc, [function::TRNG_RND64, 64, 0, 0])[3]
}

/// Executes a block at this place, in memory that ends at `end`, for so many microseconds at most; returns how many words were executed so far.
fn execute(random: &mut Random, place: u64, end: u64, longest_us: u64) -> u64 {
    let state = STATE.0.get();
    let code = place as *mut [u32; WORDS];
    // SAFETY: one CPU runs this suite, and nothing else uses these while this function runs: `run` has checked that the code is behind this
    // program.
    let (block, values) = unsafe { (&mut *code, &mut (*state).registers) };
    for pair in block.chunks_exact_mut(2) {
        let words = random.next();
        pair[0] = words as u32;
        pair[1] = (words >> 32) as u32;
    }
    block[WORDS - 1] = 0;
    for value in values.iter_mut() {
        *value = any_value(random, end);
    }
    if random.below(DEVICE_BLOCKS) == 0 {
        values[random.below(31) as usize] =
            [GICD, GICR][random.below(2) as usize] + (random.below(0x2_0000) & !7);
    }
    // SAFETY: as above.
    unsafe {
        (*state).begin = code as u64;
        (*state).end = code as u64 + BLOCK as u64;
        (*state).spsr = if random.below(2) == 0 { EL0 } else { EL1 };
    }
    clean(state as usize, size_of::<State>());
    clean(code as usize, BLOCK);
    Timer::Virtual.start_us(longest_us);
    // SAFETY: the words may do anything: that is what this suite is for.
    unsafe { instructions_run(state) };
    Timer::Virtual.stop();
    Timer::Physical.stop();
    // At most as many as there are priorities.
    for _ in 0..32 {
        let interrupt = gic::acknowledge();
        if interrupt == gic::SPURIOUS {
            break;
        }
        gic::end(interrupt);
    }
    // SAFETY: as above.
    unsafe { (*state).executed }
}

/// A value for a register, where memory ends at `end`: often one with which an instruction does something.
fn any_value(random: &mut Random, end: u64) -> u64 {
    match random.below(8) {
        0 | 1 => random.next(),
        2 | 3 => end - SCRATCH - (random.below(SCRATCH) & !7),
        4 | 5 => random.below(64),
        6 => random.next() & random.next() & random.next(),
        _ => {
            let calls = [0x8400_0000, 0xC400_0000, 0x8200_3D00];
            let call = calls[random.below(3) as usize] | random.below(0x60);
            match call as u32 as u64 & 0xFF {
                // These would end the guest's life for good: CPU_OFF, SYSTEM_OFF.
                0x02 | 0x08 => 0,
                _ => call,
            }
        }
    }
}

/// Writes memory that is used with the MMU off back from the caches, and drops what is cached of it as instructions.
fn clean(from: usize, size: usize) {
    for line in (from..from + size).step_by(LINE) {
        // SAFETY: changes no memory.
        unsafe {
            asm!("dc civac, {line}", "ic ivau, {line}", line = in(reg) line, options(nostack))
        };
    }
    // SAFETY: barriers.
    unsafe { asm!("dsb sy", "isb", options(nostack)) };
}

global_asm!(
    ".pushsection .text, \"ax\"",
    "instructions_run:",
    "stp x19, x20, [x0]",
    "stp x21, x22, [x0, #16]",
    "stp x23, x24, [x0, #32]",
    "stp x25, x26, [x0, #48]",
    "stp x27, x28, [x0, #64]",
    "stp x29, x30, [x0, #80]",
    "mov x1, sp",
    "mrs x2, sctlr_el1",
    "stp x1, x2, [x0, #96]",
    "mrs x3, vbar_el1",
    "mrs x4, ttbr0_el1",
    "stp x3, x4, [x0, #112]",
    "mrs x3, tcr_el1",
    "mrs x4, mair_el1",
    "stp x3, x4, [x0, #128]",
    "dsb sy",
    "adr x1, instructions_vectors",
    "msr vbar_el1, x1",
    // The MMU is off from here on.
    "bic x2, x2, #1",
    "msr sctlr_el1, x2",
    "isb",
    "ldr x1, [x0, #144]",
    "str x1, [x0, #160]",
    "msr elr_el1, x1",
    "ldr x1, [x0, #168]",
    "msr spsr_el1, x1",
    "add x0, x0, #192",
    "ldr x1, [x0, #248]",
    "mov sp, x1",
    "ldp x2, x3, [x0, #16]",
    "ldp x4, x5, [x0, #32]",
    "ldp x6, x7, [x0, #48]",
    "ldp x8, x9, [x0, #64]",
    "ldp x10, x11, [x0, #80]",
    "ldp x12, x13, [x0, #96]",
    "ldp x14, x15, [x0, #112]",
    "ldp x16, x17, [x0, #128]",
    "ldp x18, x19, [x0, #144]",
    "ldp x20, x21, [x0, #160]",
    "ldp x22, x23, [x0, #176]",
    "ldp x24, x25, [x0, #192]",
    "ldp x26, x27, [x0, #208]",
    "ldp x28, x29, [x0, #224]",
    "ldr x30, [x0, #240]",
    "ldp x0, x1, [x0]",
    "eret",
    // A word has caused an exception: goes on with the next word. What is behind the last word known does not count.
    "instructions_exception:",
    "adrp x15, {state}",
    "add x15, x15, :lo12:{state}",
    "ldr x16, [x15, #160]",
    "mrs x17, elr_el1",
    "sub x14, x17, x16",
    "ldr x13, [x15, #152]",
    "cmp x17, x16",
    "ccmp x17, x13, #2, hs",
    // Out of the block, or backwards: one word.
    "csel x14, xzr, x14, hs",
    "add x16, x16, x14",
    "add x16, x16, #4",
    "str x16, [x15, #160]",
    "ldr x17, [x15, #176]",
    "add x17, x17, x14, lsr #2",
    "add x17, x17, #1",
    "str x17, [x15, #176]",
    "cmp x16, x13",
    "b.hs instructions_done",
    "msr elr_el1, x16",
    "ldr x17, [x15, #168]",
    "msr spsr_el1, x17",
    "ldp x13, x14, [x15, #296]",
    "ldp x16, x17, [x15, #320]",
    "ldr x15, [x15, #312]",
    "eret",
    "instructions_done:",
    "adrp x0, {state}",
    "add x0, x0, :lo12:{state}",
    "msr daifset, #15",
    "msr spsel, #1",
    "dsb sy",
    "ldp x3, x4, [x0, #112]",
    "msr vbar_el1, x3",
    "msr ttbr0_el1, x4",
    "ldp x3, x4, [x0, #128]",
    "msr tcr_el1, x3",
    "msr mair_el1, x4",
    "tlbi vmalle1",
    "dsb sy",
    "isb",
    "ldp x1, x2, [x0, #96]",
    "mov sp, x1",
    "msr sctlr_el1, x2",
    "isb",
    "ldp x19, x20, [x0]",
    "ldp x21, x22, [x0, #16]",
    "ldp x23, x24, [x0, #32]",
    "ldp x25, x26, [x0, #48]",
    "ldp x27, x28, [x0, #64]",
    "ldp x29, x30, [x0, #80]",
    "ret",
    ".macro instructions_vector to",
    ".balign 128",
    "b \\to",
    ".endm",
    ".balign 2048",
    "instructions_vectors:",
    ".rept 4",
    "instructions_vector instructions_exception",
    "instructions_vector instructions_done",
    "instructions_vector instructions_done",
    "instructions_vector instructions_exception",
    ".endr",
    ".balign 128",
    ".popsection",
    state = sym STATE,
);

const _: () = {
    assert!(core::mem::offset_of!(State, system) == 104);
    assert!(core::mem::offset_of!(State, begin) == 144);
    assert!(core::mem::offset_of!(State, end) == 152);
    assert!(core::mem::offset_of!(State, at) == 160);
    assert!(core::mem::offset_of!(State, spsr) == 168);
    assert!(core::mem::offset_of!(State, executed) == 176);
    assert!(core::mem::offset_of!(State, registers) == 192);
};
