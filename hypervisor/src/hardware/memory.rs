// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stage 1 of EL2: the table that the entry code uses, and the tables of the image.

use super::stacks::guard_of;
use aarch64_rt::InitialPagetable;
use core::arch::asm;
use heapless::Vec;
use spumone_config::PhysAddr;
use spumone_config::packed::{MAX_GUARDS, MemoryRange, Sections};
use spumone_config::types::MAX_PCPUS;

/// The table until [`activate_tables`]: 1 GiB blocks, the first for devices, the next seven for memory. Bits of a
/// descriptor: DDI 0487, chapter D8. Attribute indices are those of `DEFAULT_MAIR` of aarch64-rt.
const INITIAL: InitialPagetable = {
    const BLOCK: usize = 1 << 30;
    /// A valid block with the access flag, and bit 6, which is RES1.
    const VALID: usize = 1 << 0 | 1 << 6 | 1 << 10;
    const EXECUTE_NEVER: usize = 1 << 54;
    const MEMORY: usize = 1 << 2;
    const INNER_SHAREABLE: usize = 0b11 << 8;
    let mut entries = [0; 512];
    entries[0] = VALID | EXECUTE_NEVER;
    let mut block = 1;
    while block < 8 {
        entries[block] = VALID | MEMORY | INNER_SHAREABLE | (block * BLOCK);
        block += 1;
    }
    InitialPagetable(entries)
};
aarch64_rt::initial_pagetable!(INITIAL);

/// Addresses from the linker script.
macro_rules! linker_symbol {
    ($name:ident) => {{
        unsafe extern "C" {
            static $name: u8;
        }
        (&raw const $name) as usize
    }};
}

/// First byte of the bundle.
pub fn bundle_start() -> *const u8 {
    linker_symbol!(bundle_start) as *const u8
}

/// Where the hypervisor is, from its first byte to the last one of a bundle of this size.
pub fn own_memory(bundle_size: u64) -> MemoryRange {
    let start = text_start() as u64;
    let image_size = linker_symbol!(bundle_start) as u64 - start;
    MemoryRange {
        start: PhysAddr(start),
        size: image_size.saturating_add(bundle_size),
    }
}

/// Where the parts of this build are. At start only.
pub fn own_sections() -> Sections {
    let from_start = |address: usize| (address - text_start()) as u64;
    // At most 9 times: cores, and the boot core.
    let mut guards: Vec<u64, MAX_GUARDS> = (0..MAX_PCPUS)
        .map(guard_of)
        .chain([linker_symbol!(boot_stack_guard)])
        .map(from_start)
        .collect();
    guards.sort_unstable();
    Sections {
        constants: from_start(linker_symbol!(rodata_begin)),
        data: from_start(linker_symbol!(data_begin)),
        guards,
    }
}

/// First byte of the hypervisor's code.
pub fn text_start() -> usize {
    linker_symbol!(text_begin)
}

/// Makes the calling core use the image's tables, of which `root` is the root.
///
/// # Safety
///
/// They must be an identity map that has all that the hypervisor uses, and must never change.
pub unsafe fn activate_tables(root: PhysAddr) {
    // Invalidates TLB entries of the initial map, which permits more, and of an operating system
    // that ran before this hypervisor.
    // SAFETY: as the caller promises.
    unsafe {
        asm!(
            "msr ttbr0_el2, {}",
            "isb",
            "dsb ishst",
            "tlbi alle2",
            "tlbi alle1",
            "dsb nsh",
            "isb",
            in(reg) root.0,
            options(nostack, preserves_flags)
        );
    }
}
