// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of the suite: code that is made at run time, and its data. All of it is after the program.

use super::encoding::COUNT;
use crate::machine::memory;
use core::arch::asm;

/// Bytes of a stub: one encoding with the code before and after it.
pub const STUB_SIZE: usize = 16;
/// Instructions of a list: most that one register needs, for all that may be accessible.
const LIST_WORDS: usize = 1 << 16;
/// Bytes of a page, which instructions with an address may change.
const PAGE: usize = 4096;

/// All memory of the suite.
pub struct Buffers {
    /// A stub for each encoding, to read it.
    pub read_stubs: &'static mut [u32],
    /// The same, to write it.
    pub write_stubs: &'static mut [u32],
    /// What was read from each encoding.
    pub values: &'static mut [u64],
    /// Which encodings cause an exception: read at EL1, written at EL1, read at EL0, written at EL0.
    pub faults: [&'static mut [u8]; 4],
    /// Code that reads all readable registers, fills all writable ones, and restores them.
    pub read_list: &'static mut [u32],
    /// See `read_list`.
    pub fill_list: &'static mut [u32],
    /// See `read_list`.
    pub restore_list: &'static mut [u32],
    /// Values, in the order of a list.
    pub before: &'static mut [u64],
    /// The same, at a later time.
    pub after: &'static mut [u64],
    /// A page that instructions with an address may change.
    pub scratch: u64,
}

impl Buffers {
    /// Takes the memory; called once in a life.
    pub fn new() -> Self {
        let [.., part] = memory::free();
        let mut next = part.start as usize;
        let mut take = |bytes: usize| {
            let start = next;
            next += bytes.next_multiple_of(PAGE);
            if next as u64 > part.end {
                panic!("not enough memory");
            }
            start
        };
        let scratch = take(PAGE) as u64;
        let (reads, writes) = (take(COUNT * STUB_SIZE), take(COUNT * STUB_SIZE));
        let values = take(8 * COUNT);
        let faults = [(); 4].map(|()| take(COUNT));
        let lists = [(); 3].map(|()| take(4 * LIST_WORDS));
        let (before, after) = (take(8 * COUNT), take(8 * COUNT));
        // SAFETY: parts of free memory that do not overlap, aligned to pages, initialized since memory is cleared at
        // start; this function is called once.
        unsafe {
            let words =
                |start: usize, count| core::slice::from_raw_parts_mut(start as *mut u32, count);
            let longs = |start: usize| core::slice::from_raw_parts_mut(start as *mut u64, COUNT);
            let bytes = |start: usize| core::slice::from_raw_parts_mut(start as *mut u8, COUNT);
            let [read_list, fill_list, restore_list] = lists.map(|start| words(start, LIST_WORDS));
            Self {
                read_stubs: words(reads, COUNT * STUB_SIZE / 4),
                write_stubs: words(writes, COUNT * STUB_SIZE / 4),
                values: longs(values),
                faults: faults.map(bytes),
                read_list,
                fill_list,
                restore_list,
                before: longs(before),
                after: longs(after),
                scratch,
            }
        }
    }
}

/// Makes what was written to a buffer visible to code that runs with the MMU off, and to instruction
/// fetches; and makes what such code writes visible here.
pub fn publish<T>(buffer: &[T]) {
    /// Bytes of the smallest cache line there is.
    const LINE: usize = 16;
    let start = buffer.as_ptr() as usize;
    for line in (start..start + size_of_val(buffer)).step_by(LINE) {
        // SAFETY: cleaning and invalidating caches changes no memory.
        unsafe { asm!("dc civac, {}", in(reg) line, options(nostack, preserves_flags)) };
    }
    // SAFETY: as above.
    unsafe {
        asm!(
            "dsb sy",
            "ic iallu",
            "dsb sy",
            "isb",
            options(nostack, preserves_flags)
        )
    };
}
