// SPDX-License-Identifier: MIT OR Apache-2.0
//! SPIs: made pending by software, routed to each CPU, rerouted, cleared.

use super::{clean, is_active, is_pending, next, pend, stray};
use crate::machine::gic::{self, FREE_SPI, SPURIOUS, register};
use crate::machine::sysreg::cpu;
use crate::machine::{cpus, interrupts, time};
use crate::report::{Verdict, check, check_eq, test, test_everywhere};

/// Consecutive SPIs that no device uses.
const FIRST: u32 = 41;
const COUNT: u32 = 7;

pub fn run(count: usize) {
    test_everywhere("spi-life", count, life);
    test_everywhere("spi-level-pended", count, level_pended);
    test_everywhere("spi-disabled", count, disabled);
    test_everywhere("spi-many", count, many);
    test("spi-to-each-cpu", to_each_cpu);
    if count > 1 {
        test("spi-moved-while-disabled", moved_while_disabled);
        test("spi-moved-while-masked", moved_while_masked);
        test("spi-pending-seen-remotely", pending_seen_remotely);
        test("spi-withdrawn-remotely", withdrawn_remotely);
        test("spi-active-elsewhere", active_elsewhere);
    }
}

fn life() -> Verdict {
    clean();
    gic::start_spi(FREE_SPI);
    for round in 0..3 {
        pend(FREE_SPI);
        check!(is_pending(FREE_SPI), "round {round}: not pending");
        check_eq!(next(), FREE_SPI, "acknowledged");
        check!(
            !is_pending(FREE_SPI),
            "round {round}: pending though acknowledged"
        );
        check!(is_active(FREE_SPI), "round {round}: not active");
        pend(FREE_SPI);
        check!(
            is_pending(FREE_SPI) && is_active(FREE_SPI),
            "not pending and active"
        );
        check_eq!(stray(), SPURIOUS, "arrived while active");
        gic::end(FREE_SPI);
        check_eq!(next(), FREE_SPI, "acknowledged again");
        gic::end(FREE_SPI);
        check!(!is_active(FREE_SPI), "round {round}: active though ended");
        check_eq!(stray(), SPURIOUS, "arrived once more");
    }
    gic::stop_spi(FREE_SPI);
    Ok(())
}

/// Level-sensitive without a device: what software makes pending is signalled once.
fn level_pended() -> Verdict {
    clean();
    gic::start_spi(FREE_SPI);
    gic::set_edge(FREE_SPI, false);
    pend(FREE_SPI);
    check_eq!(next(), FREE_SPI, "acknowledged");
    gic::end(FREE_SPI);
    check_eq!(stray(), SPURIOUS, "arrived again");
    pend(FREE_SPI);
    gic::set_bit(register::ICPENDR, FREE_SPI);
    check_eq!(stray(), SPURIOUS, "arrived though cleared");
    gic::stop_spi(FREE_SPI);
    Ok(())
}

fn disabled() -> Verdict {
    clean();
    gic::start_spi(FREE_SPI);
    gic::set_bit(register::ICENABLER, FREE_SPI);
    pend(FREE_SPI);
    check_eq!(stray(), SPURIOUS, "arrived though disabled");
    check!(is_pending(FREE_SPI), "lost while disabled");
    gic::set_bit(register::ISENABLER, FREE_SPI);
    check_eq!(next(), FREE_SPI, "enabled");
    gic::end(FREE_SPI);
    pend(FREE_SPI);
    gic::set_bit(register::ICENABLER, FREE_SPI);
    check_eq!(
        stray(),
        SPURIOUS,
        "arrived though disabled after it was pending"
    );
    gic::set_bit(register::ICPENDR, FREE_SPI);
    gic::set_bit(register::ISENABLER, FREE_SPI);
    check_eq!(stray(), SPURIOUS, "arrived though cleared");
    gic::stop_spi(FREE_SPI);
    Ok(())
}

fn many() -> Verdict {
    clean();
    for spi in FIRST..FIRST + COUNT {
        gic::start_spi(spi);
        // The last one has the highest priority.
        gic::set_priority(spi, 0x80 - 8 * (spi - FIRST) as u8);
    }
    for spi in FIRST..FIRST + COUNT {
        pend(spi);
    }
    for spi in (FIRST..FIRST + COUNT).rev() {
        check_eq!(next(), spi, "in order");
        gic::end(spi);
    }
    check_eq!(stray(), SPURIOUS, "in the end");
    for spi in FIRST..FIRST + COUNT {
        gic::stop_spi(spi);
    }
    Ok(())
}

fn receive(asleep: bool) {
    clean();
    gic::start_spi(FREE_SPI);
    for cpu in 1..cpus::count() {
        cpus::start_receiving(cpu, asleep);
        interrupts::forget(cpu);
    }
}

fn stop() {
    for cpu in 1..cpus::count() {
        cpus::stop_receiving(cpu);
    }
    gic::stop_spi(FREE_SPI);
}

/// Demands that `target` takes the SPI in time, and no other CPU does.
fn expect_on(target: usize) -> Verdict {
    let come = time::wait(|| interrupts::count(target) > 0);
    check!(come, "it does not arrive at CPU {target}");
    time::delay_us(500);
    for cpu in 1..cpus::count() {
        check_eq!(
            interrupts::count(cpu),
            usize::from(cpu == target),
            "taken by CPU {cpu}"
        );
        interrupts::forget(cpu);
    }
    check_eq!(gic::acknowledge(), SPURIOUS, "on the first CPU");
    Ok(())
}

fn to_each_cpu() -> Verdict {
    for asleep in [false, true] {
        receive(asleep);
        for cpu in 1..cpus::count() {
            gic::route(FREE_SPI, cpu);
            pend(FREE_SPI);
            expect_on(cpu)?;
        }
        gic::route(FREE_SPI, cpu());
        pend(FREE_SPI);
        check_eq!(next(), FREE_SPI, "on the first CPU");
        gic::end(FREE_SPI);
        stop();
    }
    Ok(())
}

fn moved_while_disabled() -> Verdict {
    receive(true);
    gic::set_bit(register::ICENABLER, FREE_SPI);
    gic::route(FREE_SPI, 0);
    pend(FREE_SPI);
    let last = cpus::count() - 1;
    gic::route(FREE_SPI, last);
    gic::set_bit(register::ISENABLER, FREE_SPI);
    expect_on(last)?;
    stop();
    Ok(())
}

/// Pending at a CPU that masks interrupts, it goes to another CPU when it is routed there.
fn moved_while_masked() -> Verdict {
    receive(false);
    let last = cpus::count() - 1;
    gic::route(FREE_SPI, cpu());
    pend(FREE_SPI);
    time::delay_us(200);
    gic::route(FREE_SPI, last);
    expect_on(last)?;
    // And back, from a CPU that masks interrupts.
    cpus::stop_receiving(last);
    pend(FREE_SPI);
    time::delay_us(200);
    gic::route(FREE_SPI, cpu());
    check_eq!(next(), FREE_SPI, "moved back");
    gic::end(FREE_SPI);
    cpus::start_receiving(last, false);
    time::delay_us(500);
    check_eq!(interrupts::count(last), 0, "taken by CPU {last} as well");
    stop();
    Ok(())
}

/// Pending at a CPU that masks interrupts, it reads as pending from here each time.
fn pending_seen_remotely() -> Verdict {
    clean();
    gic::start_spi(FREE_SPI);
    for cpu in 1..cpus::count() {
        gic::route(FREE_SPI, cpu);
        pend(FREE_SPI);
        for n in 0..500 {
            check!(is_pending(FREE_SPI), "not pending at CPU {cpu} in read {n}");
        }
        gic::stop_spi(FREE_SPI);
        gic::start_spi(FREE_SPI);
    }
    gic::stop_spi(FREE_SPI);
    Ok(())
}

/// Pending at a CPU that masks interrupts, it is cleared from here.
fn withdrawn_remotely() -> Verdict {
    clean();
    gic::start_spi(FREE_SPI);
    for cpu in 1..cpus::count() {
        interrupts::forget(cpu);
        gic::route(FREE_SPI, cpu);
        pend(FREE_SPI);
        time::delay_us(200);
        check!(is_pending(FREE_SPI), "not pending at CPU {cpu}");
        gic::set_bit(register::ICPENDR, FREE_SPI);
        // It may take some time until the other CPU sees it.
        let gone = time::wait(|| !is_pending(FREE_SPI));
        check!(gone, "still pending at CPU {cpu}");
        cpus::start_receiving(cpu, false);
        time::delay_us(500);
        let taken = interrupts::nth(cpu, 0);
        check_eq!(
            interrupts::count(cpu),
            0,
            "CPU {cpu} took {taken} though it was cleared"
        );
        cpus::stop_receiving(cpu);
    }
    gic::stop_spi(FREE_SPI);
    Ok(())
}

fn acknowledge_only() {
    interrupts::note(next());
}

fn end_only() {
    gic::end(FREE_SPI);
}

/// Active on one CPU, it is held back on all, and is signalled where it is routed when that CPU ends it.
fn active_elsewhere() -> Verdict {
    clean();
    gic::start_spi(FREE_SPI);
    let last = cpus::count() - 1;
    interrupts::forget(last);
    gic::route(FREE_SPI, last);
    pend(FREE_SPI);
    cpus::run(last, acknowledge_only);
    check_eq!(
        interrupts::nth(last, 0),
        FREE_SPI,
        "acknowledged by CPU {last}"
    );
    let active = time::wait(|| is_active(FREE_SPI));
    check!(active, "not active at CPU {last}");
    gic::route(FREE_SPI, cpu());
    pend(FREE_SPI);
    check_eq!(stray(), SPURIOUS, "arrived while active at CPU {last}");
    cpus::run(last, end_only);
    check_eq!(next(), FREE_SPI, "after CPU {last} has ended it");
    gic::end(FREE_SPI);
    let ended = time::wait(|| !is_active(FREE_SPI));
    check!(ended, "active in the end");
    interrupts::forget(last);
    gic::stop_spi(FREE_SPI);
    Ok(())
}
