// SPDX-License-Identifier: MIT OR Apache-2.0
//! `suite=modes`: changes the mode of `[power]`, which must be `performance` at first, every `ms=` milliseconds (default 50) to another one, by a
//! pseudorandom choice: `seed=` selects it (default 1). It ends after `changes=` changes (default 0: never), with a line that says how often it has
//! set each mode. On the exact clock, it passes mark 16 after each change, with the mode as value.

use super::power::{PERFORMANCE, call};
use crate::machine::random::Random;
use crate::machine::time::{ENABLE, Timer, now, us};
use crate::machine::uart::say;
use crate::machine::{bootargs, gic, interrupts};
use crate::report::{Verdict, check_eq, record};

/// Modes that there are.
const MODES: u64 = 3;

/// Runs the suite.
pub fn run() {
    gic::start_distributor();
    gic::start_cpu();
    record("modes", change());
}

fn change() -> Verdict {
    let mut random = Random::new(bootargs::number_or("seed", 1));
    let changes = bootargs::number_or("changes", 0);
    let between = us(bootargs::number_or("ms", 50) * 1000);
    let mut due = now();
    let mut mode = PERFORMANCE;
    let mut set = [0_u64; MODES as usize];
    let mut done = 0;
    while changes == 0 || done < changes {
        // Due times are absolute, so a change that is late does not delay the next one.
        due += between;
        let count = interrupts::count(0);
        Timer::Virtual.set_due(due);
        Timer::Virtual.set_control(ENABLE);
        interrupts::sleep_until(|| interrupts::count(0) > count);
        let next = (mode + 1 + random.below(MODES - 1)) % MODES;
        check_eq!(call(next), mode as i64, "the mode before change {done}");
        mark(next);
        mode = next;
        set[mode as usize] += 1;
        done += 1;
    }
    let [performance, balanced, saving] = set;
    say!(
        "modes-result changes={done} performance={performance} balanced={balanced} saving={saving}"
    );
    Ok(())
}

/// Mark 16 of the exact clock. Elsewhere it does nothing.
fn mark(mode: u64) {
    // SAFETY: a write to XZR is discarded.
    unsafe {
        core::arch::asm!("movk xzr, #16", in("x0") mode, options(nomem, nostack, preserves_flags));
    }
}
