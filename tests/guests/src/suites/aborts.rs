// SPDX-License-Identifier: MIT OR Apache-2.0
//! `suite=aborts`: an access to an address at which there is nothing is a synchronous external abort, as on the bare machine, whatever the
//! instruction. Under the hypervisor the guest must have `on-fault = "abort"`.

use crate::machine::sysreg::mrs;
use crate::machine::traps::catch_syndrome;
use crate::report::{Verdict, check_eq, test};
use core::arch::asm;

/// An address that no machine has.
const NOWHERE: u64 = 0x1_2345_6008;
/// `ESR_EL1`: an abort of EL1's own data access, an external one.
const DATA_ABORT: u64 = 0x25;
const EXTERNAL: u64 = 0b01_0000;
/// Bit of a store.
const WRITE: u64 = 1 << 6;

/// Runs the suite.
pub fn run() {
    test("aborts-load", load);
    test("aborts-store", store);
    test("aborts-pair", pair);
    test("aborts-again", again);
}

/// Checks the abort of an access to [`NOWHERE`].
fn check(what: &str, code: impl FnOnce(), write: u64) -> Verdict {
    let syndrome = catch_syndrome(code).unwrap_or(0);
    check_eq!(syndrome >> 26, DATA_ABORT, "class of the abort of a {what}");
    check_eq!(syndrome & 0x3f, EXTERNAL, "status of the abort of a {what}");
    check_eq!(syndrome & WRITE, write, "direction of a {what}");
    check_eq!(mrs!(FAR_EL1), NOWHERE, "address of the abort of a {what}");
    Ok(())
}

fn load() -> Verdict {
    // SAFETY: the load aborts, and is skipped.
    let code = || unsafe { asm!("ldr w1, [{}]", in(reg) NOWHERE, out("x1") _) };
    check("load", code, 0)
}

fn store() -> Verdict {
    // SAFETY: the store aborts, and is skipped.
    let code = || unsafe { asm!("str xzr, [{}]", in(reg) NOWHERE) };
    check("store", code, WRITE)
}

/// The hypervisor is not told of what size it is, and to which registers.
fn pair() -> Verdict {
    // SAFETY: the load aborts, and is skipped.
    let code = || unsafe { asm!("ldp x1, x2, [{}]", in(reg) NOWHERE, out("x1") _, out("x2") _) };
    check("load of a pair", code, 0)
}

/// The first abort of a life is reported, and the others are like it.
fn again() -> Verdict {
    (0..1000).try_for_each(|_| load())
}
