// SPDX-License-Identifier: MIT OR Apache-2.0
//! `suite=timer`: the EL1 virtual and physical timers (Arm ARM DDI 0487, chapter D11), and their
//! interrupts, which are level-sensitive PPIs. `repeat=N` runs it N times.
//!
//! The suite does not check how late an interrupt is, only that it is not early, not doubled and not lost.

use crate::machine::gic::{self, SPURIOUS, register};
use crate::machine::interrupts::{self, with_handler};
use crate::machine::sysreg::{cpu, mask, mrs, wfi};
use crate::machine::time::{self, ENABLE, IMASK, ISTATUS, Timer, now, us};
use crate::machine::{bootargs, cpus};
use crate::report::{Verdict, check, check_eq, test_everywhere};
use core::sync::atomic::{AtomicU64, Ordering};

/// Runs the suite.
pub fn run() {
    gic::start_distributor();
    gic::start_cpu();
    let cpus = cpus::start_all();
    for _ in 0..bootargs::number_or("repeat", 1) {
        test_everywhere("counter", cpus, counter);
        test_everywhere("timer-comes", cpus, || both(comes));
        test_everywhere("timer-periodic", cpus, || both(periodic));
        test_everywhere("timer-tval", cpus, || both(timer_value));
        test_everywhere("timer-in-the-past", cpus, || both(in_the_past));
        test_everywhere("timer-never", cpus, || both(never));
        test_everywhere("timer-imask", cpus, || both(masked));
        test_everywhere("timer-moved", cpus, || both(moved));
        test_everywhere("timer-level", cpus, || both(level));
        test_everywhere("timer-level-dropped", cpus, || both(level_dropped));
        test_everywhere("timer-disabled-in-gic", cpus, || both(disabled_in_gic));
        test_everywhere("timer-wfi-masked", cpus, || both(wfi_masked));
        test_everywhere("timer-wfi-periodic", cpus, || both(wfi_periodic));
        test_everywhere("timer-by-priority", cpus, by_priority);
        test_everywhere("timer-eoi-mode-1", cpus, || both(eoi_mode_1));
        if cpus > 1 {
            all_at_once(cpus);
        }
    }
}

/// Runs a test with either timer, from a clean state to a clean state.
fn both(test: fn(Timer) -> Verdict) -> Verdict {
    for timer in [Timer::Virtual, Timer::Physical] {
        clean();
        let verdict = test(timer);
        clean();
        verdict?;
    }
    Ok(())
}

fn clean() {
    mask();
    for timer in [Timer::Virtual, Timer::Physical] {
        timer.stop();
        timer.set_due(0);
    }
    super::gic::clean();
}

fn is_pending(timer: Timer) -> bool {
    gic::bit(register::ISPENDR, timer.interrupt())
}

fn counter() -> Verdict {
    check!(mrs!(CNTFRQ_EL0) > 0, "the counter has no frequency");
    let mut last = now();
    for _ in 0..1000 {
        let next = now();
        check!(next >= last, "the counter went from {last} back to {next}");
        last = next;
    }
    // Without an offset both counters have the same value.
    let (before, physical, after) = (
        Timer::Virtual.counter(),
        Timer::Physical.counter(),
        Timer::Virtual.counter(),
    );
    check!(
        before <= physical && physical <= after,
        "{physical} not from {before} to {after}"
    );
    Ok(())
}

fn comes(timer: Timer) -> Verdict {
    let due = timer.start_us(1000);
    check_eq!(timer.due(), due, "CVAL of {timer:?}");
    check!(interrupts::take(1), "{timer:?} does not arrive");
    let taken = timer.counter();
    check!(taken >= due, "{timer:?} due at {due} arrived at {taken}");
    check_eq!(interrupts::nth(cpu(), 0), timer.interrupt(), "INTID");
    check!(
        timer.control() & ISTATUS != 0,
        "{timer:?} arrived without ISTATUS"
    );
    interrupts::take_what_is_there();
    check_eq!(interrupts::count(cpu()), 1, "interrupts of {timer:?}");
    Ok(())
}

/// Sets one time after another, each when the last interrupt has arrived.
fn periodic(timer: Timer) -> Verdict {
    let mut due = timer.counter();
    for n in 0..50 {
        due += us(500);
        timer.set_due(due);
        timer.set_control(ENABLE);
        check!(
            interrupts::take(n + 1),
            "{timer:?} does not arrive for the {n}th time"
        );
        check!(
            timer.counter() >= due,
            "{timer:?} arrived early for the {n}th time"
        );
        check_eq!(interrupts::nth(cpu(), n), timer.interrupt(), "INTID");
    }
    check_eq!(interrupts::count(cpu()), 50, "interrupts of {timer:?}");
    Ok(())
}

fn timer_value(timer: Timer) -> Verdict {
    timer.set_control(ENABLE | IMASK);
    let before = timer.counter();
    timer.set_left(1_000_000_000);
    let after = timer.counter();
    let due = timer.due();
    check!(
        due >= before + 1_000_000_000 && due <= after + 1_000_000_000,
        "TVAL of {timer:?} gives CVAL {due:#x} from {before:#x} to {after:#x}"
    );
    check!(timer.left() <= 1_000_000_000, "TVAL of {timer:?} grows");
    check!(
        timer.control() & ISTATUS == 0,
        "ISTATUS of {timer:?} before it is due"
    );
    // Set in the past: the value is negative and decreases.
    timer.set_left(-1000);
    check!(
        timer.left() <= -1000,
        "TVAL of {timer:?} is {}",
        timer.left()
    );
    check!(
        timer.control() & ISTATUS != 0,
        "no ISTATUS of {timer:?} though it was due"
    );
    let left = timer.left();
    time::delay_us(100);
    check!(timer.left() < left, "TVAL of {timer:?} does not decrease");
    timer.set_control(ENABLE);
    check!(
        interrupts::take(1),
        "{timer:?} set below zero does not come"
    );
    Ok(())
}

fn in_the_past(timer: Timer) -> Verdict {
    for due in [0, timer.counter() - 1] {
        timer.set_due(due);
        timer.set_control(ENABLE);
        let before = interrupts::count(cpu());
        check!(
            interrupts::take(before + 1),
            "{timer:?} due at {due} does not arrive"
        );
        timer.stop();
    }
    Ok(())
}

fn never(timer: Timer) -> Verdict {
    timer.set_due(u64::MAX);
    timer.set_control(ENABLE);
    interrupts::take_what_is_there();
    check_eq!(
        interrupts::count(cpu()),
        0,
        "interrupts of {timer:?}, which expires much later"
    );
    check!(
        !is_pending(timer),
        "{timer:?} is pending, but expires much later"
    );
    // A timer that is off does not expire.
    timer.set_control(0);
    timer.set_due(0);
    interrupts::take_what_is_there();
    check_eq!(
        interrupts::count(cpu()),
        0,
        "interrupts of {timer:?}, which is off"
    );
    check!(!is_pending(timer), "{timer:?} is pending, which is off");
    Ok(())
}

fn masked(timer: Timer) -> Verdict {
    timer.set_control(ENABLE | IMASK);
    timer.set_due(timer.counter() + us(200));
    let due = time::wait(|| timer.control() & ISTATUS != 0);
    check!(due, "{timer:?} never has ISTATUS");
    interrupts::take_what_is_there();
    check_eq!(
        interrupts::count(cpu()),
        0,
        "interrupts of {timer:?}, which is masked"
    );
    check!(!is_pending(timer), "{timer:?} is pending, which is masked");
    timer.set_control(ENABLE);
    check!(
        interrupts::take(1),
        "{timer:?} does not arrive when it is no longer masked"
    );
    Ok(())
}

/// Set soon, moved to later before it expires, and the other way round.
fn moved(timer: Timer) -> Verdict {
    let put_off = (0..100).any(|_| {
        clean();
        let due = timer.start_us(1000);
        timer.set_due(u64::MAX);
        // A CPU that was not running has moved it too late.
        timer.counter() < due
    });
    check!(put_off, "{timer:?} is due before it can be put off");
    time::delay_us(2000);
    interrupts::take_what_is_there();
    check_eq!(
        interrupts::count(cpu()),
        0,
        "interrupts of {timer:?}, which was put off"
    );
    let due = timer.counter() + us(300);
    timer.set_due(due);
    check!(
        interrupts::take(1),
        "{timer:?} does not arrive when it was brought forward"
    );
    check!(timer.counter() >= due, "{timer:?} arrived early");
    Ok(())
}

/// The level stays high until the handler masks the timer: the interrupt is signalled again each time.
fn level(timer: Timer) -> Verdict {
    timer.start_us(100);
    for round in 0..5 {
        check_eq!(super::gic::next(), timer.interrupt(), "{timer:?}, high");
        check!(
            gic::bit(register::ISACTIVER, timer.interrupt()),
            "round {round}: {timer:?} is not active"
        );
        gic::end(timer.interrupt());
    }
    check_eq!(super::gic::next(), timer.interrupt(), "{timer:?}, high");
    timer.stop();
    gic::end(timer.interrupt());
    check_eq!(super::gic::stray(), SPURIOUS, "after {timer:?} was stopped");
    Ok(())
}

/// The level drops before the interrupt is acknowledged, and the guest reads the GIC's registers.
fn level_dropped(timer: Timer) -> Verdict {
    timer.start_us(0);
    check!(
        time::wait(|| is_pending(timer)),
        "{timer:?} is never pending"
    );
    timer.stop();
    check!(
        !is_pending(timer),
        "{timer:?} is pending though it was stopped"
    );
    check_eq!(super::gic::stray(), SPURIOUS, "after {timer:?} was stopped");
    timer.start_us(0);
    check_eq!(
        super::gic::next(),
        timer.interrupt(),
        "{timer:?}, started again"
    );
    timer.stop();
    gic::end(timer.interrupt());
    Ok(())
}

fn disabled_in_gic(timer: Timer) -> Verdict {
    gic::set_bit(register::ICENABLER, timer.interrupt());
    check!(!is_pending(timer), "{timer:?} is pending before it is on");
    timer.start_us(500);
    check!(
        time::wait(|| is_pending(timer)),
        "{timer:?} is due, but not pending"
    );
    check!(
        timer.counter() >= timer.due(),
        "{timer:?} is pending before it is due"
    );
    gic::set_bit(register::ICPENDR, timer.interrupt());
    check!(
        is_pending(timer),
        "{timer:?} is not pending though it is high"
    );
    interrupts::take_what_is_there();
    check_eq!(
        interrupts::count(cpu()),
        0,
        "interrupts of {timer:?}, disabled"
    );
    timer.set_control(ENABLE | IMASK);
    check!(
        !is_pending(timer),
        "{timer:?} is pending though it is masked"
    );
    timer.set_control(ENABLE);
    check!(
        is_pending(timer),
        "{timer:?} is not pending though it is no longer masked"
    );
    timer.stop();
    check!(!is_pending(timer), "{timer:?} is pending though it is off");
    gic::set_bit(register::ISENABLER, timer.interrupt());
    interrupts::take_what_is_there();
    check_eq!(interrupts::count(cpu()), 0, "interrupts of {timer:?}, off");
    timer.start_us(0);
    check!(
        interrupts::take(1),
        "{timer:?} does not arrive when it is enabled"
    );
    Ok(())
}

/// WFI ends although PSTATE masks the interrupt.
fn wfi_masked(timer: Timer) -> Verdict {
    for round in 0..20 {
        let due = timer.start_us(300);
        // WFI may end early.
        while timer.control() & ISTATUS == 0 {
            wfi();
        }
        check!(
            timer.counter() >= due,
            "{timer:?} has ISTATUS before it is due"
        );
        check!(
            mrs!(ISR_EL1) != 0 || time::wait(|| mrs!(ISR_EL1) != 0),
            "round {round}: ISR is 0"
        );
        check_eq!(
            interrupts::count(cpu()),
            0,
            "interrupts taken though masked"
        );
        check!(interrupts::take(1), "{timer:?} does not arrive");
        timer.stop();
        interrupts::forget(cpu());
    }
    Ok(())
}

/// Sleeps from one expiry to the next.
fn wfi_periodic(timer: Timer) -> Verdict {
    let mut due = timer.counter();
    for n in 0..50 {
        due += us(1000);
        timer.set_due(due);
        timer.set_control(ENABLE);
        interrupts::sleep_until(|| interrupts::count(cpu()) > n);
        check!(
            timer.counter() >= due,
            "{timer:?} arrived early for the {n}th time"
        );
    }
    check_eq!(interrupts::count(cpu()), 50, "interrupts of {timer:?}");
    Ok(())
}

/// Both timers have expired: the one of higher priority is signalled first, although it expired later.
fn by_priority() -> Verdict {
    clean();
    gic::set_priority(Timer::Virtual.interrupt(), 0x90);
    gic::set_priority(Timer::Physical.interrupt(), 0x70);
    Timer::Virtual.start_us(0);
    Timer::Physical.start_us(100);
    let due = || time::wait(|| is_pending(Timer::Physical) && is_pending(Timer::Virtual));
    check!(due(), "not both are pending");
    check!(interrupts::take(2), "not both arrive");
    check_eq!(
        interrupts::nth(cpu(), 0),
        Timer::Physical.interrupt(),
        "the first"
    );
    check_eq!(
        interrupts::nth(cpu(), 1),
        Timer::Virtual.interrupt(),
        "the second"
    );
    // An SGI of an even higher priority in between.
    Timer::Virtual.start_us(0);
    Timer::Physical.start_us(0);
    check_eq!(super::gic::next(), Timer::Physical.interrupt(), "the first");
    gic::set_priority(4, 0x10);
    gic::send_sgi(4, 1 << cpu());
    check_eq!(super::gic::next(), 4, "meanwhile");
    gic::end(4);
    Timer::Physical.stop();
    gic::end(Timer::Physical.interrupt());
    check_eq!(super::gic::next(), Timer::Virtual.interrupt(), "the second");
    Timer::Virtual.stop();
    gic::end(Timer::Virtual.interrupt());
    clean();
    Ok(())
}

fn eoi_mode_1(timer: Timer) -> Verdict {
    use crate::machine::sysreg::msr;
    msr!(ICC_CTLR_EL1, 2);
    timer.start_us(100);
    for round in 0..3 {
        check_eq!(super::gic::next(), timer.interrupt(), "{timer:?}, high");
        gic::end(timer.interrupt());
        check_eq!(
            super::gic::stray(),
            SPURIOUS,
            "{timer:?} arrived while active"
        );
        check!(
            gic::bit(register::ISACTIVER, timer.interrupt()),
            "round {round}: {timer:?} is not active"
        );
        gic::deactivate(timer.interrupt());
    }
    check_eq!(super::gic::next(), timer.interrupt(), "{timer:?}, high");
    gic::end(timer.interrupt());
    timer.stop();
    gic::deactivate(timer.interrupt());
    check_eq!(super::gic::stray(), SPURIOUS, "after {timer:?} was stopped");
    Ok(())
}

/// Periods that each CPU has to see in [`all_at_once`].
const PERIODS: u64 = 200;
static SEEN: [AtomicU64; crate::machine::MAX_CPUS] =
    [const { AtomicU64::new(0) }; crate::machine::MAX_CPUS];

/// Sleeps from one expiry to the next of the virtual timer, and counts in the handler.
fn count_periods() {
    clean();
    let own = &SEEN[cpu()];
    own.store(0, Ordering::Relaxed);
    with_handler(
        |_| {
            let interrupt = gic::acknowledge();
            if interrupt == Timer::Virtual.interrupt() {
                Timer::Virtual.set_due(Timer::Virtual.due() + us(1000));
                SEEN[cpu()].fetch_add(1, Ordering::Release);
            }
            if interrupt != SPURIOUS {
                gic::end(interrupt);
            }
        },
        || {
            Timer::Virtual.start_us(1000);
            interrupts::sleep_until(|| own.load(Ordering::Acquire) >= PERIODS);
        },
    );
    clean();
}

/// All CPUs at the same time, on any number of cores.
fn all_at_once(cpus: usize) {
    for cpu in 1..cpus {
        cpus::begin(cpu, count_periods);
    }
    count_periods();
    crate::report::test("timer-on-all-cpus", || {
        for cpu in 1..cpus::count() {
            cpus::finish(cpu);
        }
        for cpu in 0..cpus::count() {
            let seen = SEEN[cpu].load(Ordering::Acquire);
            check!(seen >= PERIODS, "CPU {cpu} saw {seen} periods");
        }
        Ok(())
    });
}
