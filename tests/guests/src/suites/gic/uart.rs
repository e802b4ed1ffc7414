// SPDX-License-Identifier: MIT OR Apache-2.0
//! The console UART's interrupt: level-sensitive, on each CPU.

use super::{clean, next, stray};
use crate::machine::gic::{self, SPURIOUS};
use crate::machine::interrupts;
use crate::machine::mmio::write8;
use crate::machine::sysreg::{cpu, wfi};
use crate::machine::time;
use crate::machine::uart::{CONSOLE, interrupt, register};
use crate::report::{Verdict, check, check_eq, test_everywhere};

pub fn run(cpus: usize) {
    test_everywhere("uart-level", cpus, level);
    test_everywhere("uart-withdrawn", cpus, withdrawn);
    test_everywhere("uart-wakes", cpus, wakes);
}

/// The transmit interrupt is raised by a character that is sent. Without a line feed the console
/// shows nothing of a NUL.
fn raise() {
    write8(CONSOLE.base + register::DR, 0);
}

fn start() {
    clean();
    CONSOLE.write(register::IMSC, 0);
    CONSOLE.write(register::ICR, 0x7FF);
    gic::start_spi(CONSOLE.interrupt);
    gic::set_edge(CONSOLE.interrupt, false);
}

fn stop() {
    CONSOLE.write(register::IMSC, 0);
    gic::stop_spi(CONSOLE.interrupt);
}

/// While the level is high, it is signalled again each time it is ended.
fn level() -> Verdict {
    start();
    raise();
    CONSOLE.write(register::IMSC, interrupt::TX);
    for round in 0..3 {
        check_eq!(next(), CONSOLE.interrupt, "level high");
        let status = CONSOLE.read(register::MIS);
        check!(
            status & interrupt::TX != 0,
            "round {round}: MIS {status:#x}"
        );
        gic::end(CONSOLE.interrupt);
    }
    check_eq!(next(), CONSOLE.interrupt, "level high");
    CONSOLE.write(register::ICR, interrupt::TX);
    gic::end(CONSOLE.interrupt);
    check_eq!(stray(), SPURIOUS, "arrived though the level is low");
    stop();
    Ok(())
}

/// If the level drops before it is acknowledged, it is not signalled.
fn withdrawn() -> Verdict {
    start();
    CONSOLE.write(register::IMSC, interrupt::TX);
    raise();
    let pending = time::wait(|| super::is_pending(CONSOLE.interrupt));
    check!(pending, "not pending");
    gic::set_bit(gic::register::ICPENDR, CONSOLE.interrupt);
    check!(
        super::is_pending(CONSOLE.interrupt),
        "cleared though the level is high"
    );
    CONSOLE.write(register::IMSC, 0);
    check!(
        !super::is_pending(CONSOLE.interrupt),
        "pending though the level is low"
    );
    check_eq!(stray(), SPURIOUS, "arrived though the level is low");
    stop();
    Ok(())
}

/// Taken as an exception by a CPU that sleeps: the interrupt is pending already, or soon.
fn wakes() -> Verdict {
    start();
    CONSOLE.write(register::IMSC, interrupt::TX);
    interrupts::with_handler(
        |_| {
            let taken = gic::acknowledge();
            interrupts::note(taken);
            CONSOLE.write(register::ICR, interrupt::TX);
            if taken != SPURIOUS {
                gic::end(taken);
            }
        },
        || {
            for _ in 0..5 {
                let before = interrupts::count(cpu());
                raise();
                wfi();
                interrupts::take(before + 1);
            }
        },
    );
    check_eq!(interrupts::count(cpu()), 5, "taken");
    check_eq!(interrupts::nth(cpu(), 0), CONSOLE.interrupt, "which");
    stop();
    Ok(())
}
