// SPDX-License-Identifier: MIT OR Apache-2.0
//! The vector registers, in bulk.

use core::arch::asm;

macro_rules! vector_pairs {
    ($instruction:literal) => {
        concat!(
            ".arch_extension fp\n",
            $instruction,
            " q0, q1, [{base}]\n",
            $instruction,
            " q2, q3, [{base}, #32]\n",
            $instruction,
            " q4, q5, [{base}, #64]\n",
            $instruction,
            " q6, q7, [{base}, #96]\n",
            $instruction,
            " q8, q9, [{base}, #128]\n",
            $instruction,
            " q10, q11, [{base}, #160]\n",
            $instruction,
            " q12, q13, [{base}, #192]\n",
            $instruction,
            " q14, q15, [{base}, #224]\n",
            $instruction,
            " q16, q17, [{base}, #256]\n",
            $instruction,
            " q18, q19, [{base}, #288]\n",
            $instruction,
            " q20, q21, [{base}, #320]\n",
            $instruction,
            " q22, q23, [{base}, #352]\n",
            $instruction,
            " q24, q25, [{base}, #384]\n",
            $instruction,
            " q26, q27, [{base}, #416]\n",
            $instruction,
            " q28, q29, [{base}, #448]\n",
            $instruction,
            " q30, q31, [{base}, #480]\n",
        )
    };
}

/// Stores V0 to V31.
#[inline(always)]
pub fn store_vectors(v: &mut [u128; 32]) {
    // SAFETY: the sixteen stores write the 512 bytes of `v`. CPTR_EL2 does not trap floating point at EL2.
    unsafe {
        asm!(vector_pairs!("stp"), base = in(reg) v.as_mut_ptr(), options(nostack));
    }
}

/// Loads V0 to V31.
#[inline(always)]
pub fn load_vectors(v: &[u128; 32]) {
    // SAFETY: the sixteen loads read the 512 bytes of `v`. No code of the hypervisor keeps
    // values in the floating point registers (target aarch64-unknown-none-softfloat).
    unsafe {
        asm!(vector_pairs!("ldp"), base = in(reg) v.as_ptr(), options(nostack, readonly));
    }
}
