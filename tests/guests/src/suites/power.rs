// SPDX-License-Identifier: MIT OR Apache-2.0
//! `suite=power`: checks the call that sets the mode of `[power]`, which is `performance` at first, and changes the mode: to `saving`, `performance` and
//! `balanced`, each for `ms=` milliseconds (default 100), in which the guest sleeps. `denied=1`: the call must be unknown, whatever its arguments.

use crate::machine::psci::{Conduit, call_by};
use crate::machine::time::Timer;
use crate::machine::{bootargs, gic, interrupts};
use crate::report::{Verdict, check_eq, record};

const CALL: u64 = 0x8600_0040;
/// The mode in which all cores stay on.
pub(super) const PERFORMANCE: u64 = 0;
const BALANCED: u64 = 1;
const SAVING: u64 = 2;
const ASK: u64 = 3;

const NOT_SUPPORTED: i64 = -1;
const INVALID: i64 = -2;

/// Runs the suite.
pub fn run() {
    gic::start_distributor();
    gic::start_cpu();
    let verdict = match bootargs::number_or("denied", 0) {
        0 => sets(),
        _ => is_denied(),
    };
    record("power", verdict);
}

/// Makes the call with w1 = `command`; returns x0.
pub(super) fn call(command: u64) -> i64 {
    let [x0, ..] = call_by(Conduit::Hvc, [CALL, command, 0, 0]);
    x0.cast_signed()
}

fn sets() -> Verdict {
    check_eq!(call(ASK), PERFORMANCE as i64, "the mode at first");
    for command in [4, 5, 0x7fff_ffff, 0xffff_ffff] {
        check_eq!(call(command), INVALID, "a mode that does not exist");
    }
    // Only the lower half of an argument of a 32-bit call counts.
    check_eq!(call(1 << 32 | ASK), PERFORMANCE as i64, "the upper half");
    let mut before = PERFORMANCE;
    for mode in [SAVING, PERFORMANCE, BALANCED] {
        check_eq!(call(mode), before as i64, "the mode before");
        check_eq!(call(ASK), mode as i64, "the mode that was set");
        before = mode;
        let count = interrupts::count(0);
        Timer::Virtual.start_us(bootargs::number_or("ms", 100) * 1000);
        interrupts::sleep_until(|| interrupts::count(0) > count);
    }
    Ok(())
}

fn is_denied() -> Verdict {
    for conduit in [Conduit::Hvc, Conduit::Smc] {
        for command in [PERFORMANCE, BALANCED, SAVING, ASK, 4, u64::MAX] {
            let [x0, x1, x2, x3] = call_by(conduit, [CALL, command, 22, 33]);
            check_eq!(x0.cast_signed(), NOT_SUPPORTED, "the answer");
            check_eq!((x1, x2, x3), (command, 22, 33), "other registers");
        }
    }
    Ok(())
}
