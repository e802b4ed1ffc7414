// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stacks of the cores other than the boot core.

use aarch64_rt::Stack;
use spumone_config::types::MAX_PCPUS;

/// Size of a stack in pages.
pub const STACK_PAGES: usize = 16;

/// A stack, with a guard page below it that the image's tables leave unmapped: a stack overflow ends the
/// hypervisor with an epitaph, and does not overwrite other data.
#[repr(C, align(4096))]
pub struct GuardedStack {
    guard: [u8; 4096],
    stack: Stack<STACK_PAGES>,
}

/// `spm build` finds the guard pages by this name.
#[unsafe(export_name = "core_stacks")]
static mut STACKS: [GuardedStack; MAX_PCPUS] = [const {
    GuardedStack {
        guard: [0; 4096],
        stack: Stack::new(),
    }
}; MAX_PCPUS];

/// The guard page of this core.
pub fn guard_of(core: usize) -> usize {
    // SAFETY: only an address is taken.
    (unsafe { &raw const STACKS[core].guard }) as usize
}

/// The stack of this core.
pub fn stack_of(core: usize) -> *mut Stack<STACK_PAGES> {
    // SAFETY: only an address is taken.
    unsafe { &raw mut STACKS[core].stack }
}
