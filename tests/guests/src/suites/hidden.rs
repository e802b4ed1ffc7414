// SPDX-License-Identifier: MIT OR Apache-2.0
//! `suite=hidden`: a kernel that uses a feature which its ID registers do not show finds what it would find on a core without
//! the feature. On a machine that shows it, the suite fails.

use crate::machine::sysreg::{mrs, msr};
use crate::machine::traps::{catch, class};
use crate::report::{Verdict, check_eq, test};
use core::arch::asm;

/// Runs the suite.
pub fn run() {
    test("pointer-authentication-hints", hints);
    test("pointer-authentication-instructions", instructions);
    test("pointer-authentication-keys", keys);
}

/// A value that authentication would change, or refuse.
const ADDRESS: u64 = 0x1234_5678;

/// Runs `code` with the bits set that enable pointer authentication on a core that has it.
fn with_authentication(code: impl FnOnce()) -> Option<u64> {
    /// `SCTLR_EL1`: `EnDB`, `EnDA`, `EnIB`, `EnIA`.
    const ENABLE: u64 = 1 << 13 | 1 << 27 | 1 << 30 | 1 << 31;
    let control = mrs!(SCTLR_EL1);
    msr!(SCTLR_EL1, control | ENABLE);
    let caught = catch(code);
    msr!(SCTLR_EL1, control);
    caught
}

/// Instructions in the hint space are NOPs, and those behind them are executed.
fn hints() -> Verdict {
    let (mut signed, mut found, mut other, mut after) = (0, 0, 0, 0u64);
    let caught = with_authentication(|| {
        // SAFETY: on a core without the feature these are NOPs; on any other core they change x17 and x30 only.
        unsafe {
            asm!(
                // PACIASP, AUTIASP, AUTIBSP; PACIA1716, AUTIB1716.
                "hint #25",
                "mov {signed}, x30",
                "hint #29",
                "hint #31",
                "hint #8",
                "hint #14",
                "add {after}, {after}, #1",
                signed = out(reg) signed,
                after = inout(reg) after,
                inout("x30") ADDRESS => found,
                inout("x17") ADDRESS => other,
                in("x16") 0x5555_u64,
                options(nomem, nostack)
            );
        }
    });
    check_eq!(caught, None, "the class of the exception");
    check_eq!(
        (signed, found, other),
        (ADDRESS, ADDRESS, ADDRESS),
        "x30, x30 at the end, x17"
    );
    check_eq!(after, 1, "what follows was executed so many times");
    Ok(())
}

macro_rules! each_is_undefined {
    ($($name:literal: $instruction:literal;)*) => {
        $(
            let caught = with_authentication(|| {
                // SAFETY: an undefined instruction is skipped.
                unsafe {
                    asm!(
                        concat!(".inst ", $instruction),
                        inout("x0") ADDRESS => _,
                        in("x1") ADDRESS,
                        in("x2") ADDRESS,
                        out("x30") _,
                        options(nostack)
                    );
                }
            });
            check_eq!(caught, Some(class::UNDEFINED), "{}: the class of the exception", $name);
        )*
    };
}

/// Instructions that are not in the hint space. `RETAA` and its like are left out: QEMU's cores without the feature execute them.
fn instructions() -> Verdict {
    each_is_undefined! {
        "PACIA X0, X1": "0xdac10020";
        "AUTDZB X0": "0xdac13fe0";
        "PACGA X0, X1, X2": "0x9ac23020";
        "LDRAA X0, [X1]": "0xf8200420";
        "ERETAA": "0xd69f0bff";
        "ERETAB": "0xd69f0fff";
    }
    Ok(())
}

/// The key registers.
fn keys() -> Verdict {
    each_is_undefined! {
        "MSR APIAKeyLo_EL1, X0": "0xd5182100";
        "MRS X0, APIAKeyLo_EL1": "0xd5382100";
        "MSR APGAKeyHi_EL1, X0": "0xd5182320";
    }
    Ok(())
}
