// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stage 1 of EL2: an identity map in which only code is executable, only data is writable, and only
//! the board's devices are device memory.
//!
//! The boot core builds it once; all cores use the same tables, which never change afterwards.

use super::stacks::guard_pages;
use aarch64_paging::descriptor::{El23Attributes as Attributes, PhysicalAddress};
use aarch64_paging::paging::{Constraints, El2, MemoryRegion, PageTable, Translation};
use aarch64_paging::{MapError, Mapping};
use aarch64_rt::InitialPagetable;
use core::arch::asm;
use core::ptr::NonNull;
use spumone_config::gic::{DISTRIBUTOR_SIZE, REDISTRIBUTOR_SIZE};
use spumone_config::packed::System;

/// Attribute indices of `DEFAULT_MAIR` of aarch64-rt.
const DEVICE: Attributes = Attributes::ATTRIBUTE_INDEX_0.union(Attributes::XN);
const NORMAL: Attributes = Attributes::ATTRIBUTE_INDEX_1.union(Attributes::INNER_SHAREABLE);
const VALID: Attributes = Attributes::VALID
    .union(Attributes::ACCESSED)
    .union(Attributes::USER_RES1);

/// The table that the entry code uses until [`El2Map::activate`]: 1 GiB blocks, the first for
/// devices, the next seven for memory.
const INITIAL: InitialPagetable = {
    const BLOCK: usize = 1 << 30;
    let mut entries = [0; 512];
    entries[0] = VALID.union(DEVICE).bits();
    let mut block = 1;
    while block < 8 {
        entries[block] = VALID.union(NORMAL).bits() | (block * BLOCK);
        block += 1;
    }
    InitialPagetable(entries)
};
aarch64_rt::initial_pagetable!(INITIAL);

/// Level of the root table for 39-bit addresses (`DEFAULT_TCR` of aarch64-rt).
const ROOT_LEVEL: usize = 1;
/// Tables for the map. It consists of a few ranges, each with at most two ends that need smaller blocks.
const TABLES: usize = 64;
/// Size of a PL011.
const UART_SIZE: u64 = 0x1000;

static mut TABLE_MEMORY: [PageTable<Attributes>; TABLES] = [PageTable::EMPTY; TABLES];

/// Allocates the tables of `TABLE_MEMORY` in order.
struct TableSource {
    used: usize,
}

impl Translation<Attributes> for TableSource {
    fn allocate_table(&mut self) -> (NonNull<PageTable<Attributes>>, PhysicalAddress) {
        assert!(self.used < TABLES, "EL2 page tables: TABLES is too small");
        // SAFETY: each element is allocated once; only the address is taken here.
        let table = unsafe { &raw mut TABLE_MEMORY[self.used] };
        self.used += 1;
        // SAFETY: the address of a static is not null.
        let pointer = unsafe { NonNull::new_unchecked(table) };
        (pointer, PhysicalAddress(table as usize))
    }

    unsafe fn deallocate_table(&mut self, _table: NonNull<PageTable<Attributes>>) {
        // The map never shrinks.
    }

    fn physical_to_virtual(&self, pa: PhysicalAddress) -> NonNull<PageTable<Attributes>> {
        // SAFETY: tables come from `TABLE_MEMORY`, identity mapped, never at address 0.
        unsafe { NonNull::new_unchecked(pa.0 as *mut PageTable<Attributes>) }
    }
}

/// The final stage 1 of EL2.
pub struct El2Map(Mapping<TableSource, El2>);

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

/// First byte of the hypervisor's code.
pub fn text_start() -> usize {
    linker_symbol!(text_begin)
}

impl El2Map {
    /// The map for this system. Start-up only.
    pub fn new(system: &System) -> Result<Self, MapError> {
        let mut map = Mapping::new(TableSource { used: 0 }, ROOT_LEVEL, El2);
        let mut add = |start: u64, end: u64, attributes: Attributes| {
            map.map_range(
                &MemoryRegion::new(start as usize, end as usize),
                PhysicalAddress(start as usize),
                VALID | attributes,
                Constraints::empty(),
            )
        };
        let text_begin = linker_symbol!(text_begin) as u64;
        let text_end = linker_symbol!(text_end) as u64;
        let rodata_begin = linker_symbol!(rodata_begin) as u64;
        let rodata_end = linker_symbol!(rodata_end) as u64;
        let data_begin = linker_symbol!(data_begin) as u64;
        let bundle_start = linker_symbol!(bundle_start) as u64;

        let board = &system.board;
        let memory = board.memory;
        let memory_end = memory.start.0 + memory.size;
        let read_only = NORMAL | Attributes::READ_ONLY;
        let data = NORMAL | Attributes::XN;
        add(text_begin, text_end, read_only)?;
        add(rodata_begin, rodata_end, read_only | Attributes::XN)?;
        // All but the guard pages of the stacks.
        let mut mapped = data_begin;
        let boot_guard = linker_symbol!(boot_stack_guard) as u64;
        for guard in guard_pages().chain([boot_guard]) {
            add(mapped, guard, data)?;
            mapped = guard + 0x1000;
        }
        add(mapped, bundle_start, data)?;
        let own_end = board.hypervisor_memory.start.0 + board.hypervisor_memory.size;
        add(bundle_start, own_end, read_only | Attributes::XN)?;
        add(memory.start.0, text_begin, data)?;
        add(own_end, memory_end, data)?;
        let cores = board.core_mpidrs.len() as u64;
        for (base, size) in [
            (board.gic_distributor, DISTRIBUTOR_SIZE),
            (board.gic_redistributor, REDISTRIBUTOR_SIZE * cores),
            (board.uart.base, UART_SIZE),
        ] {
            add(base.0, base.0 + size, DEVICE)?;
        }
        for quiesce in system.guests.iter().flat_map(|guest| &guest.quiesce) {
            let page = quiesce.register.0 & !0xFFF;
            add(page, page + 0x1000, DEVICE)?;
        }
        Ok(Self(map))
    }

    /// Makes the calling core use the map.
    pub fn activate(&self) {
        // Invalidates TLB entries of the initial map, which permits more, and of an operating system
        // that ran before this hypervisor.
        // SAFETY: the map is the identity, has all that the hypervisor uses, and is never freed.
        unsafe {
            self.0.activate();
            asm!(
                "dsb ishst",
                "tlbi alle2",
                "tlbi alle1",
                "dsb nsh",
                "isb",
                options(nostack, preserves_flags)
            );
        }
    }
}
