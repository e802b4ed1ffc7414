// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a vCPU may hold a lock, seen from outside: its kernel is not asked.
//!
//! A kernel that holds a spinlock is in EL1, so one in EL1 may. A Linux that can be preempted counts its reasons not to be,
//! spinlocks among them, in the current task, to which `SP_EL0` points while its kernel runs. So 0 there says that it
//! holds none.

/// What is seen of a vCPU that was interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted {
    /// In the guest's kernel (EL1), not in a program.
    pub in_kernel: bool,
    /// The guest held off IRQs (`PSTATE.I`).
    pub masks_interrupts: bool,
}

/// Whether it may hold a spinlock of its kernel: what cannot be told counts as one. `preempt_count`: where to read the
/// kernel's count, if it keeps one; the reading gives `None` where there is nothing to read. It is made only when the
/// count decides.
pub fn may_hold_lock(
    seen: Interrupted,
    preempt_count: Option<impl FnOnce() -> Option<u32>>,
) -> bool {
    if !seen.in_kernel {
        return false;
    }
    match preempt_count {
        // On the way in and out of the kernel `SP_EL0` is still, or again, the program's: interrupts are masked there. So
        // they are before an interrupt is counted.
        //
        // Preemption, soft, hard and non-maskable interrupts have bits of their own; any of them holds off preemption.
        // Whether a reschedule is due stands in the other half of the 64 bits.
        Some(read) if !seen.masks_interrupts => read() != Some(0),
        _ => true,
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    fn told(in_kernel: bool, masks_interrupts: bool, count: Option<Option<u32>>) -> bool {
        let seen = Interrupted {
            in_kernel,
            masks_interrupts,
        };
        may_hold_lock(seen, count.map(|count| move || count))
    }

    #[test]
    fn only_a_kernel_that_counts_nothing_holds_none() {
        assert!(!told(false, false, None));
        assert!(told(true, false, None), "it does not count");
        assert!(!told(true, false, Some(Some(0))));
        for count in [1, 0x100, 0x1_0000, u32::MAX] {
            assert!(told(true, false, Some(Some(count))));
        }
        assert!(told(true, false, Some(None)), "nothing to read");
        assert!(told(true, true, Some(Some(0))), "SP_EL0 may be a program's");
    }

    #[test]
    fn what_does_not_decide_is_not_read() {
        for (in_kernel, masks_interrupts) in [(false, false), (true, true)] {
            let seen = Interrupted {
                in_kernel,
                masks_interrupts,
            };
            let read = || -> Option<u32> { panic!("read") };
            assert_eq!(may_hold_lock(seen, Some(read)), in_kernel);
        }
    }
}
