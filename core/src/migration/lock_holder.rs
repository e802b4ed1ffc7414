// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a vCPU may hold a lock, as far as EL2 can see without the kernel's help.
//!
//! A kernel that holds a spinlock is at EL1, so a vCPU at EL1 may hold one. A preemptible Linux counts its reasons not to be
//! preempted, spinlocks among them, in the current task (`preempt_count`). `SP_EL0` points to the task while the kernel
//! runs. A count of 0 says that the kernel holds no spinlock.

/// What is seen of a vCPU that was interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted {
    /// In the guest's kernel (EL1), not in a program.
    pub in_kernel: bool,
    /// The guest held off IRQs (`PSTATE.I`).
    pub masks_interrupts: bool,
}

/// Whether it may hold a spinlock of its kernel; if that cannot be told, it may. `preempt_count` reads the kernel's count,
/// if it keeps one, and gives `None` where there is nothing to read. It is called only when the count decides.
pub fn may_hold_lock(
    seen: Interrupted,
    preempt_count: Option<impl FnOnce() -> Option<u32>>,
) -> bool {
    if !seen.in_kernel {
        return false;
    }
    match preempt_count {
        // On the way into and out of the kernel, `SP_EL0` is the program's, and interrupts are masked. They are also masked
        // before an interrupt is counted.
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
