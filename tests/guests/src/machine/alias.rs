// SPDX-License-Identifier: MIT OR Apache-2.0
//! A virtual address that each CPU maps to another page: a CPU must not use a TLB entry of another
//! one, although both may be vCPUs of one guest that share a core.

use super::MAX_CPUS;
use super::entry;
use super::sysreg::{barrier, cpu, msr};
use core::arch::asm;
use core::cell::UnsafeCell;

/// The virtual address, in an entry of the first level that has no other use.
const ADDRESS: u64 = (FIRST_LEVEL_ENTRY as u64) << 30;
const FIRST_LEVEL_ENTRY: usize = 300;

#[repr(C, align(4096))]
struct Tables {
    first: [u64; 512],
    second: [u64; 512],
    third: [u64; 512],
}

struct AllTables(UnsafeCell<[Tables; MAX_CPUS]>);

// SAFETY: each CPU writes and uses only its own tables.
unsafe impl Sync for AllTables {}

static TABLES: AllTables = AllTables(UnsafeCell::new(
    [const {
        Tables {
            first: [0; 512],
            second: [0; 512],
            third: [0; 512],
        }
    }; MAX_CPUS],
));

/// Maps the page at `page` to [`ADDRESS`] on this CPU; returns that address.
pub fn show(page: u64) -> u64 {
    const TABLE: u64 = 0b11;
    /// Attributes as those of normal memory in `entry`.
    const PAGE: u64 = 0b11 | 1 << 10 | 0b11 << 8 | 1 << 2;
    // SAFETY: this CPU's own tables, which are not in use until the end of this function.
    let tables = unsafe { &mut (*TABLES.0.get())[cpu()] };
    tables.first = *entry::first_level();
    tables.third[0] = page | PAGE;
    tables.second[0] = tables.third.as_ptr() as u64 | TABLE;
    tables.first[FIRST_LEVEL_ENTRY] = tables.second.as_ptr() as u64 | TABLE;
    barrier();
    msr!(TTBR0_EL1, tables.first.as_ptr() as u64);
    // SAFETY: the new tables map everything in use as the old ones did.
    unsafe { asm!("tlbi vmalle1", "dsb sy", "isb", options(nostack)) };
    ADDRESS
}
