// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a vCPU may hold a lock, as far as EL2 can see without the kernel's help.
//!
//! A kernel that holds a spinlock is at EL1, so a vCPU at EL1 may hold one. A preemptible Linux counts its reasons not to be
//! preempted, spinlocks among them, in the current task (`preempt_count`). `SP_EL0` points to the task while the kernel
//! runs. A count of 0 says that the kernel holds no spinlock.

/// What EL2 sees of a vCPU that was interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted {
    /// In the guest's kernel (EL1), not in a program.
    pub in_kernel: bool,
    /// The guest masked IRQs (`PSTATE.I`).
    pub masks_interrupts: bool,
}

/// Whether the vCPU may hold a spinlock of its kernel; `true` if EL2 cannot find out. `preempt_count` reads the
/// kernel's count, if the kernel keeps one, and returns `None` if there is nothing to read. It is called only when the
/// count decides.
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
        // Disabled preemption and soft, hard and non-maskable interrupts have bits of their own in the count; any of
        // them prevents preemption. Whether a reschedule is due is in the other half of the 64 bits.
        Some(read) if !seen.masks_interrupts => read() != Some(0),
        _ => true,
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    fn verdict(in_kernel: bool, masks_interrupts: bool, count: Option<Option<u32>>) -> bool {
        let seen = Interrupted {
            in_kernel,
            masks_interrupts,
        };
        may_hold_lock(seen, count.map(|count| move || count))
    }

    #[test]
    fn only_a_kernel_whose_count_is_zero_holds_no_lock() {
        assert!(!verdict(false, false, None));
        assert!(verdict(true, false, None), "the kernel keeps no count");
        assert!(!verdict(true, false, Some(Some(0))));
        for count in [1, 0x100, 0x1_0000, u32::MAX] {
            assert!(verdict(true, false, Some(Some(count))));
        }
        assert!(verdict(true, false, Some(None)), "nothing to read");
        assert!(
            verdict(true, true, Some(Some(0))),
            "SP_EL0 may be a program's"
        );
    }

    #[test]
    fn the_count_is_read_only_if_it_decides() {
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
