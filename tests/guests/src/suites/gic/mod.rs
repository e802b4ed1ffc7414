// SPDX-License-Identifier: MIT OR Apache-2.0
//! `suite=gic`: the GICv3 (IHI 0069), in a system with one Security state. `repeat=N` runs
//! it N times.

mod endian;
mod group0;
mod local;
mod order;
mod registers;
mod remote;
mod spi;
mod uart;

use crate::machine::gic::{self, SPURIOUS, register};
use crate::machine::sysreg::{mask, mrs, msr};
use crate::machine::{bootargs, cpus, interrupts, time};

/// Runs the suite.
pub fn run() {
    gic::start_distributor();
    gic::start_cpu();
    let cpus = cpus::start_all();
    for _ in 0..bootargs::number_or("repeat", 1) {
        registers::run(cpus);
        local::run(cpus);
        order::run(cpus);
        group0::run(cpus);
        remote::run(cpus);
        spi::run(cpus);
        uart::run(cpus);
        endian::run(cpus);
    }
}

/// Sets the interface of this CPU to the state with which tests start.
pub fn clean() {
    mask();
    // Active interrupts would hold back others.
    for _ in 0..64 {
        let running = mrs!(ICC_RPR_EL1);
        if running == gic::IDLE {
            break;
        }
        msr!(ICC_EOIR1_EL1, 0);
    }
    gic::start_cpu();
    for _ in 0..64 {
        let interrupt = gic::acknowledge();
        if interrupt == SPURIOUS {
            break;
        }
        gic::end(interrupt);
    }
    interrupts::forget(crate::machine::sysreg::cpu());
}

/// Acknowledges the next interrupt, which must arrive.
pub fn next() -> u32 {
    let mut interrupt = SPURIOUS;
    time::wait(|| {
        interrupt = gic::acknowledge();
        interrupt != SPURIOUS
    });
    interrupt
}

/// Checks for some time that no interrupt arrives; acknowledges it if one does.
pub fn stray() -> u32 {
    time::delay_us(300);
    gic::acknowledge()
}

/// Makes an interrupt of this CPU, or an SPI, pending.
fn pend(interrupt: u32) {
    gic::set_bit(register::ISPENDR, interrupt);
}

fn is_pending(interrupt: u32) -> bool {
    gic::bit(register::ISPENDR, interrupt)
}

fn is_active(interrupt: u32) -> bool {
    gic::bit(register::ISACTIVER, interrupt)
}
