// SPDX-License-Identifier: MIT OR Apache-2.0
//! System registers and barriers, as instructions.

/// Reads a system register.
macro_rules! read_register {
    ($register:ident) => {{
        let value: u64;
        // SAFETY: reading a system register touches no memory; every register read through this
        // macro exists at EL2 of the cores served (Armv8-A with GICv3).
        unsafe {
            core::arch::asm!(
                concat!("mrs {}, ", stringify!($register)),
                out(reg) value,
                options(nomem, nostack, preserves_flags)
            );
        }
        value
    }};
}

/// Writes a system register of `sysreg::free`.
macro_rules! write_register {
    ($register:ident, $value:expr) => {{
        let value: u64 = $value;
        // SAFETY: the registers written through this macro govern lower exception levels or
        // interrupt delivery, not the memory or the control flow of EL2. `memory` is clobbered
        // (no `nomem`), so accesses to shared words are not moved across the write.
        unsafe {
            core::arch::asm!(
                concat!("msr ", stringify!($register), ", {}"),
                in(reg) value,
                options(nostack, preserves_flags)
            );
        }
    }};
}

/// Writes a system register of `sysreg::own`. Unsafe: the value must keep guests isolated.
macro_rules! write_own_register {
    ($register:ident, $value:expr) => {{
        let value: u64 = $value;
        core::arch::asm!(
            concat!("msr ", stringify!($register), ", {}"),
            in(reg) value,
            options(nostack, preserves_flags)
        )
    }};
}

pub(crate) use {read_register, write_own_register, write_register};

/// Waits until all earlier system register writes have taken effect.
#[inline(always)]
pub fn isb() {
    // SAFETY: a barrier.
    unsafe { core::arch::asm!("isb", options(nostack, preserves_flags)) };
}

/// Waits until all earlier memory accesses and maintenance operations are complete.
#[inline(always)]
pub fn dsb_sy() {
    // SAFETY: a barrier.
    unsafe { core::arch::asm!("dsb sy", options(nostack, preserves_flags)) };
}

/// Completes earlier loads and stores, for the inner shareable domain, before what follows.
#[inline(always)]
pub fn dsb_ish() {
    // SAFETY: a barrier.
    unsafe { core::arch::asm!("dsb ish", options(nostack, preserves_flags)) };
}

/// Makes earlier stores visible to the inner shareable domain before what follows.
#[inline(always)]
pub fn dsb_ishst() {
    // SAFETY: a barrier.
    unsafe { core::arch::asm!("dsb ishst", options(nostack, preserves_flags)) };
}
