//! Whether a vCPU may hold a lock, seen from outside: its kernel is not asked.
//!
//! A kernel that holds a spinlock is in EL1, so one in EL1 may. A Linux that can be preempted counts its reasons not to be,
//! spinlocks among them, in the current task, to which `SP_EL0` points while its kernel runs. So 0 there says that it
//! holds none.

use super::Instance;
use crate::sysreg::mrs;
use crate::vcpu::Vcpu;

impl Instance {
    /// Whether the loaded vCPU may hold a spinlock of its kernel: what cannot be told counts as one.
    pub(super) fn may_hold_lock(&self, vcpu: &Vcpu) -> bool {
        if !vcpu.registers.is_in_kernel() {
            return false;
        }
        let guest = self.machine.guest(vcpu.guest);
        let Some(offset) = guest.config.preempt_count else {
            return true;
        };
        // On the way in and out of the kernel `SP_EL0` is still, or again, the program's: interrupts are masked there. So
        // they are before an interrupt is counted.
        if vcpu.registers.masks_interrupts() {
            return true;
        }
        // The guest may have written anything there: only its own memory is read.
        let current: u64 = mrs!(SP_EL0);
        let count = guest.read_word(current.wrapping_add(u64::from(offset)));
        // Preemption, soft, hard and non-maskable interrupts have bits of their own; any of them holds off preemption.
        // Whether a reschedule is due stands in the other half of the 64 bits.
        count != Some(0)
    }
}
