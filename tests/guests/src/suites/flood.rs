// SPDX-License-Identifier: MIT OR Apache-2.0
//! `suite=flood`: all CPUs write to the console all the time, for `ms=` milliseconds (default 1000).
//! `wait=1`: each waits for room before a byte, otherwise most bytes are lost. `storm=1`: the virtual timer of each
//! CPU expires again as soon as it was handled, and each CPU sends an SGI to all CPUs with each line.

use crate::machine::sysreg::{mask, unmask};
use crate::machine::time::{Timer, now, us};
use crate::machine::uart::{CONSOLE, register};
use crate::machine::{bootargs, cpus, gic, interrupts};
use crate::report::record;

const SGI: u32 = 3;
const LINE: &[u8] = b"flood: a line that is as long as most lines of a kernel are\r\n";

/// Runs the suite.
pub fn run() {
    gic::start_distributor();
    let count = cpus::start_all();
    for cpu in 1..count {
        cpus::begin(cpu, flood);
    }
    flood();
    for cpu in 1..count {
        cpus::finish(cpu);
    }
    record("flood", Ok(()));
}

fn serve(_line: interrupts::Line) {
    let taken = gic::acknowledge();
    if taken == Timer::Virtual.interrupt() {
        Timer::Virtual.set_left(0);
    }
    if taken != gic::SPURIOUS {
        gic::end(taken);
    }
}

fn flood() {
    let end = now() + us(bootargs::number_or("ms", 1000) * 1000);
    let storms = bootargs::number_or("storm", 0) != 0;
    let everyone = (1 << cpus::count()) - 1;
    let waits = bootargs::number_or("wait", 0) != 0;
    if storms {
        gic::start_cpu();
        Timer::Virtual.start_us(0);
    }
    interrupts::with_handler(serve, || {
        while now() < end {
            if storms {
                gic::send_sgi(SGI, everyone);
                unmask();
            }
            for &byte in LINE {
                if waits {
                    CONSOLE.send(byte);
                } else {
                    CONSOLE.write(register::DR, u32::from(byte));
                }
            }
            mask();
        }
    });
    Timer::Virtual.stop();
}
