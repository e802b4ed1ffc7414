// SPDX-License-Identifier: MIT OR Apache-2.0
//! From the first instruction to Rust: stores the registers at entry, then sets up stack,
//! vectors and the MMU.

use super::MAX_CPUS;
use core::arch::global_asm;
use core::cell::UnsafeCell;

/// Bytes of stack of each CPU.
const STACK_SIZE: usize = 32 * 1024;

/// One stack for each CPU, and a second one for later entries of the first CPU: its first stack may
/// still be in use (CPU_SUSPEND).
const STACK_COUNT: usize = MAX_CPUS + 1;

#[repr(C, align(16))]
struct Stacks(UnsafeCell<[[u8; STACK_SIZE]; STACK_COUNT]>);

// SAFETY: each CPU uses its own stack only, and no Rust code accesses the stacks by this variable.
unsafe impl Sync for Stacks {}

static STACKS: Stacks = Stacks(UnsafeCell::new([[0; STACK_SIZE]; STACK_COUNT]));

/// The registers of a CPU at its first instruction.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct AtEntry {
    /// x0: the device tree for the first CPU, the context for others.
    pub x0: u64,
    /// `SCTLR_EL1`.
    pub sctlr: u64,
    /// `DAIF`.
    pub daif: u64,
    /// `CurrentEL`.
    pub el: u64,
    /// `SPSel`.
    pub spsel: u64,
    /// `TPIDR_EL0`, `TPIDR_EL1`, `TPIDRRO_EL0`, `CONTEXTIDR_EL1` or-ed together.
    pub marks: u64,
    /// `CNTV_CTL_EL0` and `CNTP_CTL_EL0` or-ed together.
    pub timers: u64,
    /// How often this CPU has been entered.
    pub entries: u64,
}

const SIZE: usize = size_of::<AtEntry>();

#[repr(C)]
struct Entries(UnsafeCell<[AtEntry; MAX_CPUS]>);

// SAFETY: each CPU writes its own entry before any Rust code runs on it.
unsafe impl Sync for Entries {}

static ENTRIES: Entries = Entries(UnsafeCell::new(
    [AtEntry {
        x0: 0,
        sctlr: 0,
        daif: 0,
        el: 0,
        spsel: 0,
        marks: 0,
        timers: 0,
        entries: 0,
    }; MAX_CPUS],
));

/// The registers of `cpu` at its last entry.
pub fn at_entry(cpu: usize) -> AtEntry {
    // SAFETY: `cpu` has written it before it entered Rust; volatile, since it may be entered again.
    unsafe { (ENTRIES.0.get() as *const AtEntry).add(cpu).read_volatile() }
}

/// The entry point of a CPU that PSCI turns on.
pub fn secondary_entry() -> u64 {
    unsafe extern "C" {
        static secondary: u8;
    }
    // Only the address is used.
    (&raw const secondary) as u64
}

/// First address of the program, and the first address after it.
pub fn image() -> (u64, u64) {
    unsafe extern "C" {
        static image_begin: u8;
        static image_end: u8;
    }
    // Only the addresses are used.
    (
        (&raw const image_begin) as u64,
        (&raw const image_end) as u64,
    )
}

/// The translation table: one level of 1 GiB blocks, identity mapped. The first block is
/// devices.
#[repr(C, align(4096))]
struct Table([u64; 512]);

static TABLE: Table = {
    const BLOCK: u64 = 0b01;
    const ACCESSED: u64 = 1 << 10;
    const INNER_SHAREABLE: u64 = 0b11 << 8;
    /// Index into `MAIR_EL1`.
    const NORMAL: u64 = 1 << 2;
    let mut table = [0; 512];
    table[0] = BLOCK | ACCESSED;
    let mut n = 1;
    while n < table.len() {
        table[n] = (n as u64) << 30 | BLOCK | ACCESSED | INNER_SHAREABLE | NORMAL;
        n += 1;
    }
    Table(table)
};

/// The entries of the translation table.
pub fn first_level() -> &'static [u64; 512] {
    &TABLE.0
}

/// Attribute 0: Device-nGnRE; 1: Normal, write-back.
const MAIR: u64 = 0xFF << 8 | 0x04;
/// 39 bits of address, 4 KiB granule, walks cached and inner shareable, no upper half, 40 bits of
/// physical address.
const TCR: u64 = 25 | 1 << 8 | 1 << 10 | 3 << 12 | 1 << 23 | 2 << 32;
/// `SCTLR_EL1`: RES1 bits of Armv8.0, stack alignment checks, instruction and data caches, MMU.
const SCTLR: u64 = 0x30D0_0800 | 1 << 12 | 1 << 3 | 1 << 2 | 1;
/// `CPACR_EL1.FPEN`: floating point does not trap.
const CPACR: u64 = 3 << 20;

global_asm!(
    ".pushsection .text.start, \"ax\"",
    ".global start",
    "start:",
    "b entered",
    ".popsection",
    ".pushsection .text, \"ax\"",
    ".global secondary",
    "secondary:",
    "entered:",
    // x21 = number of the CPU; x22 = its `AtEntry`.
    "mrs x21, mpidr_el1",
    "and x21, x21, #0xff",
    "adrp x22, {entries}",
    "add x22, x22, :lo12:{entries}",
    "mov x23, #{entry_size}",
    "madd x22, x21, x23, x22",
    "mrs x1, sctlr_el1",
    "stp x0, x1, [x22]",
    "mrs x1, daif",
    "mrs x2, currentel",
    "stp x1, x2, [x22, #16]",
    "mrs x1, spsel",
    "mrs x2, tpidr_el0",
    "mrs x3, tpidr_el1",
    "orr x2, x2, x3",
    "mrs x3, tpidrro_el0",
    "orr x2, x2, x3",
    "mrs x3, contextidr_el1",
    "orr x2, x2, x3",
    "stp x1, x2, [x22, #32]",
    "mrs x1, cntv_ctl_el0",
    "mrs x2, cntp_ctl_el0",
    "orr x1, x1, x2",
    "ldr x2, [x22, #56]",
    "add x2, x2, #1",
    "stp x1, x2, [x22, #48]",
    //
    "msr daifset, #15",
    "msr spsel, #1",
    "adrp x1, {stacks}",
    "add x1, x1, :lo12:{stacks}",
    // x24 = whether this is the first entry of the first CPU.
    "ldr x3, [x22, #56]",
    "cmp x3, #1",
    "ccmp x21, #0, #0, eq",
    "cset x24, eq",
    "add x2, x21, #1",
    "mov x3, #{stack_count}",
    "cbnz x21, 2f",
    "cbnz x24, 2f",
    "mov x2, x3",
    "2:",
    "mov x3, #{stack_size}",
    "madd x1, x2, x3, x1",
    "mov sp, x1",
    "adrp x1, vectors",
    "add x1, x1, :lo12:vectors",
    "msr vbar_el1, x1",
    "ldr x1, ={cpacr}",
    "msr cpacr_el1, x1",
    "ldr x1, ={mair}",
    "msr mair_el1, x1",
    "ldr x1, ={tcr}",
    "msr tcr_el1, x1",
    "adrp x1, {table}",
    "add x1, x1, :lo12:{table}",
    "msr ttbr0_el1, x1",
    "dsb sy",
    "tlbi vmalle1",
    "ic iallu",
    "dsb sy",
    "isb",
    "ldr x1, ={sctlr}",
    "msr sctlr_el1, x1",
    "isb",
    "cbz x24, 1f",
    // Functions of `main.rs` and `cpus`, by their names, because those files import this one.
    "bl first_main",
    "1: mov x0, x21",
    "bl secondary_main",
    ".popsection",
    entries = sym ENTRIES,
    entry_size = const SIZE,
    stacks = sym STACKS,
    stack_size = const STACK_SIZE,
    stack_count = const STACK_COUNT,
    table = sym TABLE,
    cpacr = const CPACR,
    mair = const MAIR,
    tcr = const TCR,
    sctlr = const SCTLR,
);
