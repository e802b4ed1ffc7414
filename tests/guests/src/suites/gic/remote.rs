// SPDX-License-Identifier: MIT OR Apache-2.0
//! SGIs between CPUs: asleep, awake, to one, to some, to all others, in great number.

use super::{clean, stray};
use crate::machine::gic::{self, SPURIOUS};
use crate::machine::sysreg::{self, msr};
use crate::machine::{MAX_CPUS, cpus, interrupts, time};
use crate::report::{Verdict, check, check_eq, test};
use core::sync::atomic::{AtomicUsize, Ordering};

pub fn run(count: usize) {
    if count < 2 {
        return;
    }
    test("sgi-to-spinning-cpu", to_spinning);
    test("sgi-to-sleeping-cpu", to_sleeping);
    test("sgi-to-no-cpu", to_no_cpu);
    test("sgi-to-all-but-self", to_all_others);
    test("sgi-to-a-list", to_a_list);
    test("sgi-masked-by-target", masked_by_target);
    test("sgi-ring", ring);
    test("sgi-storm", storm);
}

fn others() -> core::ops::Range<usize> {
    1..cpus::count()
}

fn receive(asleep: bool) {
    clean();
    for cpu in others() {
        cpus::start_receiving(cpu, asleep);
        interrupts::forget(cpu);
    }
}

fn stop() {
    for cpu in others() {
        cpus::stop_receiving(cpu);
    }
}

/// Sends each CPU each SGI, one after the other.
fn one_by_one(asleep: bool) -> Verdict {
    receive(asleep);
    for cpu in others() {
        for sgi in 0..15 {
            let n = sgi as usize;
            gic::send_sgi(sgi, 1 << cpu);
            let come = time::wait(|| interrupts::count(cpu) > n);
            check!(come, "SGI {sgi} does not arrive at CPU {cpu}");
            check_eq!(interrupts::nth(cpu, n), sgi, "SGI on CPU {cpu}");
        }
    }
    time::delay_us(1000);
    for cpu in others() {
        check_eq!(interrupts::count(cpu), 15, "SGIs on CPU {cpu}");
    }
    check_eq!(stray(), SPURIOUS, "on the sender");
    stop();
    Ok(())
}

fn to_spinning() -> Verdict {
    one_by_one(false)
}

fn to_sleeping() -> Verdict {
    one_by_one(true)
}

fn to_no_cpu() -> Verdict {
    receive(false);
    let sgi = 3_u64 << 24;
    // Aff0 15; Aff1 1; Aff2 1: CPUs that do not exist.
    for target in [1 << 15, 1 << 16 | 0b11, 1 << 32 | 0b11] {
        msr!(ICC_SGI1R_EL1, sgi | target);
    }
    time::delay_us(2000);
    for cpu in others() {
        check_eq!(interrupts::count(cpu), 0, "SGIs on CPU {cpu}");
    }
    check_eq!(stray(), SPURIOUS, "on the sender");
    stop();
    Ok(())
}

fn to_all_others() -> Verdict {
    for asleep in [false, true] {
        receive(asleep);
        for n in 0..10 {
            gic::send_sgi_to_others(4);
            for cpu in others() {
                let come = time::wait(|| interrupts::count(cpu) > n);
                check!(come, "SGI {n} does not arrive at CPU {cpu}");
                check_eq!(interrupts::nth(cpu, n), 4, "SGI on CPU {cpu}");
            }
        }
        check_eq!(stray(), SPURIOUS, "on the sender");
        stop();
    }
    Ok(())
}

fn to_a_list() -> Verdict {
    receive(true);
    // Every second CPU, and the sender.
    let list = 0b0101_0101_0101_0101;
    gic::send_sgi(7, list);
    for cpu in others() {
        let wanted = usize::from(list >> cpu & 1 != 0);
        let come = time::wait(|| interrupts::count(cpu) >= wanted);
        check!(come, "SGI does not arrive at CPU {cpu}");
    }
    time::delay_us(1000);
    for cpu in others() {
        let wanted = usize::from(list >> cpu & 1 != 0);
        check_eq!(interrupts::count(cpu), wanted, "SGIs on CPU {cpu}");
    }
    check_eq!(super::next(), 7, "on the sender");
    gic::end(7);
    stop();
    Ok(())
}

/// SGIs to a CPU that masks interrupts: it takes all of them when it unmasks them.
fn masked_by_target() -> Verdict {
    clean();
    for cpu in others() {
        interrupts::forget(cpu);
        for sgi in 0..15 {
            gic::send_sgi(sgi, 1 << cpu);
        }
        time::delay_us(200);
        check_eq!(
            interrupts::count(cpu),
            0,
            "taken though masked by CPU {cpu}"
        );
        cpus::start_receiving(cpu, false);
        let come = time::wait(|| interrupts::count(cpu) >= 15);
        check!(come, "{} SGIs on CPU {cpu}", interrupts::count(cpu));
        let seen = (0..15).fold(0, |seen, n| seen | 1_u32 << (interrupts::nth(cpu, n) & 31));
        check_eq!(seen, 0x7FFF, "SGIs on CPU {cpu}");
        cpus::stop_receiving(cpu);
    }
    Ok(())
}

/// Number of rounds.
const ROUNDS: usize = 200;
static PASSED_ON: [AtomicUsize; MAX_CPUS] = [const { AtomicUsize::new(0) }; MAX_CPUS];
const RING: u32 = 1;

/// Waits for the SGI of the CPU before, and sends one to the next CPU.
fn member() {
    let own = sysreg::cpu();
    let next = (own + 1) % cpus::count();
    for round in 0..ROUNDS {
        interrupts::sleep_until(|| interrupts::count(own) > round);
        PASSED_ON[own].fetch_add(1, Ordering::Release);
        gic::send_sgi(RING, 1 << next);
    }
}

/// An SGI goes around all CPUs; every CPU sleeps until it arrives.
fn ring() -> Verdict {
    clean();
    for cpu in others() {
        interrupts::forget(cpu);
        PASSED_ON[cpu].store(0, Ordering::Relaxed);
        cpus::begin(cpu, member);
    }
    for round in 0..ROUNDS {
        gic::send_sgi(RING, 1 << 1);
        check!(
            interrupts::take(round + 1),
            "the SGI is lost in round {round}"
        );
    }
    for cpu in others() {
        cpus::finish(cpu);
        check_eq!(
            PASSED_ON[cpu].load(Ordering::Acquire),
            ROUNDS,
            "CPU {cpu} has passed on"
        );
        interrupts::forget(cpu);
    }
    check_eq!(interrupts::count(0), ROUNDS, "on the first CPU");
    clean();
    Ok(())
}

/// For each pair of CPUs, how many SGIs of the one the other has taken.
const SHOTS: usize = 100;
static SHOT: [[AtomicUsize; MAX_CPUS]; MAX_CPUS] =
    [const { [const { AtomicUsize::new(0) }; MAX_CPUS] }; MAX_CPUS];
static HIT: [[AtomicUsize; MAX_CPUS]; MAX_CPUS] =
    [const { [const { AtomicUsize::new(0) }; MAX_CPUS] }; MAX_CPUS];

/// The number of an SGI is its sender: logs all that this CPU has sent so far.
fn hit(_line: interrupts::Line) {
    let sgi = gic::acknowledge();
    if (sgi as usize) < MAX_CPUS {
        let shot = SHOT[sgi as usize][sysreg::cpu()].load(Ordering::Acquire);
        HIT[sgi as usize][sysreg::cpu()].store(shot, Ordering::Release);
    }
    if sgi != SPURIOUS {
        gic::end(sgi);
    }
}

/// Sends SGIs to all other CPUs without waiting, then waits until each has taken the last one.
fn shooter() {
    let (own, count) = (sysreg::cpu(), cpus::count());
    let targets = || (0..count).filter(move |&cpu| cpu != own);
    interrupts::with_handler(hit, || {
        sysreg::unmask();
        for _ in 0..SHOTS {
            for target in targets() {
                SHOT[own][target].fetch_add(1, Ordering::AcqRel);
                gic::send_sgi(own as u32, 1 << target);
            }
        }
        let all_hit = || {
            let hit = |cpu: usize| HIT[own][cpu].load(Ordering::Acquire);
            targets().all(|cpu| hit(cpu) == SHOTS)
        };
        DONE[own].store(usize::from(time::wait(all_hit)), Ordering::Release);
        // Other CPUs may still send SGIs here.
        time::wait(|| (0..count).all(|cpu| DONE[cpu].load(Ordering::Acquire) != PENDING));
        sysreg::mask();
    });
}

const PENDING: usize = 2;
static DONE: [AtomicUsize; MAX_CPUS] = [const { AtomicUsize::new(PENDING) }; MAX_CPUS];

/// All CPUs send SGIs to all others at the same time: the last one of each is never lost.
fn storm() -> Verdict {
    clean();
    for cpu in 0..MAX_CPUS {
        DONE[cpu].store(PENDING, Ordering::Relaxed);
        for other in 0..MAX_CPUS {
            SHOT[cpu][other].store(0, Ordering::Relaxed);
            HIT[cpu][other].store(0, Ordering::Relaxed);
        }
    }
    for cpu in others() {
        cpus::begin(cpu, shooter);
    }
    shooter();
    for cpu in others() {
        cpus::finish(cpu);
    }
    for cpu in 0..cpus::count() {
        check_eq!(
            DONE[cpu].load(Ordering::Acquire),
            1,
            "SGIs of CPU {cpu} that were taken"
        );
    }
    clean();
    Ok(())
}
