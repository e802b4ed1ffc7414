// SPDX-License-Identifier: MIT OR Apache-2.0
//! The first guest waits for its timer, and handles the timer's interrupt.

use super::bench::Bench;
use crate::fake::{self, Register};

/// The interrupt of the virtual timer.
pub const TIMER: u16 = 27;

/// The counter.
pub fn now() -> u64 {
    fake::with(|machine| machine.clock)
}

/// The first guest sets its timer to expire so many ticks from now, and waits for it. Returns when it expires.
pub fn sleeps_for(bench: &mut Bench, ticks: u64) -> u64 {
    bench.does(0, 0, move |cpu| {
        cpu.set(Register::CNTV_CVAL_EL0, cpu.now() + ticks);
        cpu.set(Register::CNTV_CTL_EL0, 1);
        cpu.wfi()
    });
    now() + ticks
}

/// The first guest acknowledges the interrupt of its timer, turns the timer off, and ends the interrupt.
pub fn handles_its_timer(bench: &mut Bench) {
    assert_eq!(bench.acknowledges(0, 0), TIMER);
    bench.look(0, 0, |cpu| {
        cpu.set(Register::CNTV_CTL_EL0, 0);
        cpu.end(TIMER);
    });
}
