//! Whether a vCPU may hold a lock, seen from outside: its kernel is not asked.
//!
//! A kernel that holds a spinlock is in EL1, so one in EL1 may. A Linux that can be preempted counts its reasons not to be,
//! spinlocks among them, in the current task, to which `SP_EL0` points while its kernel runs. So 0 there says that it
//! holds none.

use crate::guest_entry::GuestRegisters;
use crate::machine::Guest;
use crate::sysreg::mrs;

/// Whether the loaded vCPU of `guest`, which has these registers, may hold a spinlock of its kernel: what cannot be told
/// counts as one.
pub(super) fn may_hold_lock(guest: &Guest, registers: &GuestRegisters) -> bool {
    if !registers.is_in_kernel() {
        return false;
    }
    let Some(offset) = guest.config.preempt_count else {
        return true;
    };
    // On the way in and out of the kernel `SP_EL0` is still, or again, the program's: interrupts are masked there. So
    // they are before an interrupt is counted.
    if registers.masks_interrupts() {
        return true;
    }
    // The guest may have written anything there: only its own memory is read.
    let current: u64 = mrs!(SP_EL0);
    let count = guest.read_word(current.wrapping_add(u64::from(offset)));
    // Preemption, soft, hard and non-maskable interrupts have bits of their own; any of them holds off preemption.
    // Whether a reschedule is due stands in the other half of the 64 bits.
    count != Some(0)
}
