// SPDX-License-Identifier: MIT OR Apache-2.0
//! Watchdogs of guests, and their stolen time.

use super::bench::Bench;
use super::guest::{Action, psci};
use super::systems::{GuestParts, STOLEN_TIME, system};
use crate::fake::{self, FREQUENCY, Register, printed};
use spumone_config::packed::{MemoryRange, OnStop, Policy, RestartLimit};
use spumone_config::{GuestId, PhysAddr, isolation};
use spumone_core::psci::{Phase, StopReason};
use spumone_core::schedule::Ticks;

const CALL: u64 = 0x8200_3D06;
const SET_TIMEOUT: u64 = 1;
const ENABLE: u64 = 2;
const PET: u64 = 3;
/// A millisecond, in ticks.
const MS: u64 = FREQUENCY / 1000;

/// It starts again as often as it likes.
const AGAIN: OnStop = OnStop::Restart(RestartLimit {
    most: u8::MAX,
    within_us: 1,
});

fn now() -> u64 {
    fake::with(|machine| machine.clock)
}

/// Passes about `ms` milliseconds, in small steps, in which each core does something.
fn pass(bench: &mut Bench, ms: u64) {
    let end = now() + ms * MS;
    while now() < end {
        fake::with(|machine| machine.clock += MS / 4);
        // Several: an alarm that has expired is seen to.
        bench.iterations(4);
    }
}

/// Passes time until guest `guest` has another life; returns how much.
fn until_next_life(bench: &mut Bench, guest: u8) -> u64 {
    let (life, begin) = (bench.life(guest), now());
    for _ in 0..100_000 {
        if bench.life(guest) != life {
            return now() - begin;
        }
        pass(bench, 1);
    }
    panic!("its life does not end\n{}\n{}", bench.state(), printed());
}

/// A vCPU turns the watchdog of its guest on, with a timeout of `seconds`.
fn turns_on(bench: &mut Bench, guest: u8, vcpu: u8, seconds: u64) {
    for x in [[CALL, SET_TIMEOUT, seconds, 0], [CALL, ENABLE, 1, 0]] {
        let entry = bench.does_and_returns(guest, vcpu, move |cpu| cpu.hvc(x));
        assert_eq!(entry.x[..4], [0; 4]);
    }
}

fn boot(cores: u8, policy: Policy, guests: &[GuestParts]) -> Bench {
    let mut bench = Bench::boot(&system(cores, policy, guests));
    bench.until_all_run();
    bench
}

/// Whether a life that ended after `passed` ticks ended in time, with the start of the next one and the steps of [`pass`].
#[track_caller]
fn is_in_time(passed: u64, seconds: u64) {
    let timeout = seconds * FREQUENCY;
    assert!(passed >= timeout - MS, "{passed} ticks");
    assert!(passed <= timeout + 5 * MS, "{passed} ticks");
}

#[test]
fn a_guest_that_does_not_pet_is_restarted_and_the_next_life_has_no_watchdog() {
    let guests = [
        GuestParts::new(&[(0, 20)]).watched(10).on_stop(AGAIN),
        GuestParts::new(&[(1, 10)]),
    ];
    let mut bench = boot(2, Policy::None, &guests);
    turns_on(&mut bench, 0, 0, 2);
    is_in_time(until_next_life(&mut bench, 0), 2);
    bench.until("it is said", |_| {
        printed().contains("guest0 restarts: its watchdog has expired")
    });
    pass(&mut bench, 11_000);
    assert_eq!((bench.life(0), bench.life(1)), (2, 1));
}

#[test]
fn a_guest_that_pets_or_turns_it_off_lives_on() {
    let guests = [GuestParts::new(&[(0, 20)]).watched(10)];
    let mut bench = boot(1, Policy::None, &guests);
    turns_on(&mut bench, 0, 0, 1);
    for _ in 0..5 {
        pass(&mut bench, 900);
        let entry = bench.does_and_returns(0, 0, |cpu| cpu.hvc([CALL, PET, 0, 0]));
        assert_eq!(entry.x[0], 0);
    }
    bench.does_and_returns(0, 0, |cpu| cpu.hvc([CALL, ENABLE, 0, 0]));
    pass(&mut bench, 3000);
    assert_eq!((bench.life(0), bench.phase(0)), (1, Phase::Running));
    turns_on(&mut bench, 0, 0, 1);
    bench.until("it stays stopped", |bench| {
        pass(bench, 10);
        bench.phase(0) == Phase::Stopped(StopReason::Watchdog)
    });
}

#[test]
fn a_guest_that_sleeps_for_ever_is_stopped_whatever_runs_meanwhile() {
    let guests = [
        GuestParts::new(&[(0, 20), (1, 20)])
            .watched(10)
            .on_stop(AGAIN),
        GuestParts::new(&[(1, 10), (0, 10)]),
    ];
    let mut bench = boot(2, Policy::None, &guests);
    turns_on(&mut bench, 0, 0, 1);
    bench.does(0, 0, |cpu| cpu.wfi());
    is_in_time(until_next_life(&mut bench, 0), 1);
    assert_eq!(bench.life(1), 1);
}

#[test]
fn a_guest_without_one_has_no_such_call() {
    let guests = [GuestParts::new(&[(0, 20)])];
    let mut bench = boot(1, Policy::None, &guests);
    let entry = bench.does_and_returns(0, 0, |cpu| cpu.hvc([CALL, ENABLE, 1, 0]));
    assert_eq!(entry.x[0], u64::MAX);
}

#[test]
fn time_that_a_higher_band_takes_does_not_count() {
    let guests = [
        GuestParts::new(&[(0, 20)]),
        GuestParts::new(&[(0, 10)]).watched(10).on_stop(AGAIN),
    ];
    let mut bench = Bench::boot(&system(1, Policy::None, &guests));
    bench.opens_gic(0, 0, &[27]);
    // Guest 0 sleeps for 700 ms. Then it keeps the core.
    bench.does(0, 0, |cpu| {
        cpu.set(Register::CNTV_CVAL_EL0, cpu.now() + 700 * MS);
        cpu.set(Register::CNTV_CTL_EL0, 1);
        cpu.wfi()
    });
    turns_on(&mut bench, 1, 0, 1);
    pass(&mut bench, 5000);
    assert_eq!(bench.life(1), 1, "guest 0 has not given up the core");
    let stolen = |bench: &Bench| {
        let guest = bench.machine.guest(GuestId(1));
        guest.stolen()[0].at(Ticks(now())).0
    };
    let taken = stolen(&bench);
    assert!((4290 * MS..4310 * MS).contains(&taken), "{taken}");
    // Guest 0 sleeps for ever. Of the second, 700 ms were over before.
    bench.does(0, 0, |cpu| {
        cpu.set(Register::CNTV_CTL_EL0, 0);
        cpu.wfi()
    });
    let left = until_next_life(&mut bench, 1);
    assert!((298 * MS..305 * MS).contains(&left), "{left}");
    assert_eq!(stolen(&bench), 0);
}

#[test]
fn a_guest_is_restarted_a_thousand_times_in_a_row() {
    let guests = [
        GuestParts::new(&[(0, 20), (1, 20)])
            .watched(1)
            .on_stop(AGAIN),
        GuestParts::new(&[(1, 10), (0, 10)]),
    ];
    let mut bench = boot(2, Policy::Steal, &guests);
    for life in 1..=1000 {
        bench.until("it runs", |bench| {
            (bench.life(0), bench.phase(0)) == (life, Phase::Running)
        });
        bench.does(0, 0, |cpu| cpu.hvc([CALL, ENABLE, 1, 0]));
        let habit: Option<Action> =
            (life % 2 == 0).then(|| -> Action { Box::new(|cpu| cpu.wfi()) });
        if let Some(sleeps) = habit {
            bench.does(0, 0, sleeps);
        }
        // A second that passes at once.
        fake::with(|machine| machine.clock += FREQUENCY / 2);
        bench.iterations(4);
        assert_eq!(bench.phase(0), Phase::Running);
        fake::with(|machine| machine.clock += FREQUENCY / 2);
        bench.until("its life ends", |bench| bench.phase(0) != Phase::Running);
    }
    assert_eq!(bench.life(1), 1);
}

#[test]
fn a_guest_reads_the_time_that_another_one_took() {
    const PV_TIME_ST: u64 = 0xC500_0021;
    const NANOSECONDS: u64 = 8;
    let guests = [
        GuestParts::new(&[(0, 20)]),
        GuestParts::new(&[(0, 10)])
            .with_stolen_time()
            .on_stop(AGAIN),
    ];
    let mut bench = Bench::boot(&system(1, Policy::None, &guests));
    bench.opens_gic(0, 0, &[27]);
    // Guest 0 sleeps for 100 ms. Then it keeps the core for 400 ms.
    bench.does(0, 0, |cpu| {
        cpu.set(Register::CNTV_CVAL_EL0, cpu.now() + 100 * MS);
        cpu.set(Register::CNTV_CTL_EL0, 1);
        cpu.wfi()
    });
    let entry = bench.does_and_returns(1, 0, |cpu| cpu.hvc([PV_TIME_ST, 0, 0, 0]));
    assert_eq!(entry.x[0], STOLEN_TIME);
    pass(&mut bench, 500);
    bench.does(0, 0, |cpu| {
        cpu.set(Register::CNTV_CTL_EL0, 0);
        cpu.wfi()
    });
    let page = bench
        .machine
        .guest(GuestId(1))
        .config
        .stolen_time
        .unwrap()
        .pa;
    let read = move || {
        fake::with(|machine| {
            let bytes = machine.memory.at(page.0 + NANOSECONDS, 8);
            u64::from_le_bytes(bytes.try_into().unwrap())
        })
    };
    let count = bench.entry(1, 0).count;
    bench.until("guest 1 runs", |bench| bench.entry(1, 0).count > count);
    let stolen = read();
    assert!((398_000_000..402_000_000).contains(&stolen), "{stolen} ns");
    // A new life.
    bench.does(1, 0, |cpu| cpu.hvc([psci::SYSTEM_RESET, 0, 0, 0]));
    bench.until("it has restarted", |bench| bench.life(1) == 2);
    assert_eq!(read(), 0);
}

#[test]
fn the_page_must_be_the_one_that_is_kept() {
    let guests = [GuestParts::new(&[(0, 20)]).with_stolen_time()];
    let mut wrong = system(1, Policy::None, &guests);
    if let Some(page) = &mut wrong.guests[0].stolen_time {
        page.pa.0 += 0x1000;
    }
    let own = MemoryRange {
        start: PhysAddr(wrong.board.hypervisor_memory.start.0 + 0x1_0000),
        size: 0x1000,
    };
    let text = isolation::check(&wrong, own).unwrap_err().to_string();
    assert!(text.contains("the page with its stolen time"), "{text}");
}
