// SPDX-License-Identifier: MIT OR Apache-2.0
//! vCPUs of a band that take turns on a core: short turns, grace, and how much of the core each gets.

use super::*;
use crate::migration::core_state::Await;
use crate::migration::park::wake;
use crate::sets::VcpuSet;

/// A vCPU that was in its kernel when it lost the core waits for a short turn of the other one, which has its grace then; one that was in a program waits for the whole
/// time slice.
#[test]
fn turns_are_short_while_a_wanted_vcpu_waits_for_its_own() {
    let short_turns = Without {
        short_turns: true,
        ..Without::default()
    };
    let wanted = (100, true);
    for (without, (turn, in_kernel)) in [
        (Without::default(), wanted),
        (Without::default(), (QUANTUM, false)),
        (short_turns, (QUANTUM, true)),
    ] {
        let mut core = Core::new(packed::Policy::Steal, without, &[Band::LOWEST; 2]);
        core.admit(0, VcpuState::Runnable);
        core.dispatch();
        core.admit(1, VcpuState::Runnable);
        core.machine.in_kernel = in_kernel;
        core.park(1);
        core.machine.in_kernel = false;
        let begin = core.state.scheduler.since().unwrap().0;
        let _ = core.fetch(begin + turn - 1);
        core.state.scheduler.decide(Ticks(begin + turn - 1));
        assert_eq!(core.state.scheduler.current(), Some(VcpuId(0)));
        core.state.must_decide = false;
        assert!(core.state.next_alarm() <= Ticks(begin + turn), "{turn}");
        let _ = core.fetch(begin + turn);
        core.state.scheduler.decide(Ticks(begin + turn));
        assert_eq!(core.state.scheduler.current(), Some(VcpuId(1)), "{turn}");
    }
}

/// A core that vCPU 0, which always is in a program, shares with vCPU 1, which always is in its kernel, in a long loop. No other core can take one. vCPU 2 is above both,
/// and stays here.
fn shared(without: Without) -> Core {
    let bands = [Band::LOWEST, Band::LOWEST, Band::HIGHEST];
    let mut core = Core::with_staying(packed::Policy::Steal, without, &bands, Some(Band::HIGHEST));
    core.machine.only = Some(VcpuSet::of(VcpuId(1)));
    for other in [OTHER, PcpuId(2)] {
        core.runs(other, Band::HIGHEST);
    }
    core.admit(0, VcpuState::Runnable);
    core.admit(1, VcpuState::Runnable);
    core.admit(2, VcpuState::Sleep);
    core.state.must_decide = true;
    core.go_on();
    core
}

/// How long vCPU 0 and vCPU 1 have the core in a second, of which the third one takes 10 in each `period`, in microseconds.
fn shares(period: u64, without: Without) -> [u64; 2] {
    let mut core = shared(without);
    let mut ran = [0; 3];
    let (mut wake, mut sleep) = (period, u64::MAX);
    while core.machine.now.0 < 1_000_000 {
        let before = core.machine.now.0;
        let at = core.state.alarm.0.min(wake).min(sleep).max(before + 1);
        if let Some(id) = core.state.running {
            ran[id.index()] += at - before;
        }
        core.machine.now.0 = at;
        if at >= sleep {
            sleep = u64::MAX;
            core.state.sleep_running(|| core.machine.now);
        }
        if at >= wake {
            wake += period;
            sleep = at + 10;
            core.state.scheduler.wake(VcpuId(2));
            core.state.must_decide = true;
        }
        core.go_on();
    }
    [ran[0], ran[1]]
}

/// A vCPU that is preempted in its grace does not get new grace each time, nor does one in its kernel get much more by short turns.
#[test]
fn a_vcpu_in_its_kernel_gets_hardly_more_of_the_core_than_one_in_a_program() {
    let short_turns = Without {
        short_turns: true,
        ..Without::default()
    };
    for without in [Without::default(), short_turns] {
        for period in [100, 250, 1_000, 10_000] {
            let [program, kernel] = shares(period, without);
            assert!(
                program * 10 > kernel * 8 && kernel * 10 > program * 8,
                "{period}: {program} {kernel}, {without:?}"
            );
        }
    }
}

/// vCPUs 0 and 1 are always in their kernel, 2 in a program, and 3 sleeps for 60 after each 5 that it runs. How long 0 to 2 have the core in a second,
/// and the number of switches.
fn shares_beside_a_sleeper(without: Without) -> ([u64; 3], u64) {
    const SLEEPER: VcpuId = VcpuId(3);
    let mut core = Core::new(packed::Policy::Steal, without, &[Band::LOWEST; 4]);
    core.machine.only = Some(VcpuSet::from_bits(0b11));
    for other in [OTHER, PcpuId(2)] {
        core.runs(other, Band::HIGHEST);
    }
    for id in 0..4 {
        core.admit(id, VcpuState::Runnable);
    }
    core.state.must_decide = true;
    core.go_on();
    let (mut ran, mut switches) = ([0; 4], 0);
    let (mut wakes, mut sleeps) = (u64::MAX, u64::MAX);
    while core.machine.now.0 < 1_000_000 {
        let before = core.machine.now.0;
        let was = core.state.running;
        let at = core.state.alarm.0.min(wakes).min(sleeps).max(before + 1);
        if let Some(id) = was {
            ran[id.index()] += at - before;
        }
        core.machine.now.0 = at;
        if at >= sleeps && was == Some(SLEEPER) {
            (sleeps, wakes) = (u64::MAX, at + 60);
            core.state.sleep_running(|| core.machine.now);
        }
        if at >= wakes {
            wakes = u64::MAX;
            wake(&mut core.state, &mut core.machine, SLEEPER);
        }
        core.go_on();
        if core.state.running != was {
            switches += 1;
            let comes = core.state.running == Some(SLEEPER);
            sleeps = if comes {
                core.machine.now.0 + 5
            } else {
                u64::MAX
            };
        }
    }
    ([ran[0], ran[1], ran[2]], switches)
}

#[test]
fn vcpus_that_wait_in_their_kernels_or_sleep_often_do_not_take_the_share_of_one_in_a_program() {
    let (ran, switches) = shares_beside_a_sleeper(Without::default());
    for kernel in &ran[..2] {
        assert!(ran[2] * 10 > kernel * 8, "{ran:?}");
    }
    // Each turn of the sleeper is two.
    assert!(switches < 2_000, "{switches}");
}

/// Two vCPUs that are always in their kernel, and that often wait for each other's locks.
#[test]
fn a_wanted_vcpu_waits_for_one_time_slice_at_most() {
    const GRACE: u64 = 250;
    let mut core = shared(Without::default());
    core.machine.only = Some(VcpuSet::from_bits(0b11));
    let (mut switches, mut longest) = (0, 0);
    while core.machine.now.0 < 100 * QUANTUM {
        let was = core.state.running;
        let since = core.state.scheduler.since().unwrap().0;
        core.machine.now.0 = core.state.alarm.0.max(core.machine.now.0 + 1);
        core.go_on();
        if core.state.running != was {
            switches += 1;
            longest = longest.max(core.machine.now.0 - since);
        }
    }
    assert!(longest <= QUANTUM + GRACE, "{longest}");
    // Not after 100 each time: switches take time, too.
    assert!((100..400).contains(&switches), "{switches}");
}

/// The vCPU that has lost the core is parked after the decision.
#[test]
fn the_alarm_is_armed_for_the_end_of_a_short_turn() {
    let mut core = shared(Without::default());
    // At most so many: turns, each with five steps of grace.
    for _ in 0..20 {
        let was = core.state.running;
        core.machine.now = core.state.alarm;
        core.go_on();
        if (was, core.state.running) == (Some(VcpuId(1)), Some(VcpuId(0))) {
            break;
        }
    }
    assert_eq!(core.slot(1).parked().unwrap().state, ParkedState::Wanted);
    let since = core.state.scheduler.since().unwrap().0;
    assert!(core.state.alarm.0 <= since + 100);
}

/// Samples that follow a decision for something else show nothing.
#[test]
fn a_decision_does_not_cut_a_step_of_grace() {
    let mut core = Core::steal(&[Band::LOWEST; 2]);
    core.admit(0, VcpuState::Runnable);
    core.dispatch();
    core.admit(1, VcpuState::Runnable);
    core.park(1);
    let begin = core.state.scheduler.since().unwrap().0;
    for now in [begin + 100, begin + 101] {
        core.machine.now = Ticks(now);
        let _ = core.fetch(now);
        core.state.scheduler.decide(Ticks(now));
        assert_eq!(core.state.scheduler.current(), Some(VcpuId(0)));
    }
}

/// A vCPU in its WFI holds no lock.
#[test]
fn a_vcpu_that_waits_for_its_timer_gets_no_grace() {
    for awaits in [false, true] {
        let mut core = Core::steal(&[Band::LOWEST; 2]);
        core.admit(0, VcpuState::Runnable);
        core.dispatch();
        core.admit(1, VcpuState::Runnable);
        core.park(1);
        let now = core.state.scheduler.since().unwrap().0 + 100;
        core.state.awaits = awaits.then_some(Await {
            id: VcpuId(0),
            until: Ticks(now + 1),
            measured_since: None,
            parks_until: None,
        });
        core.machine.now = Ticks(now);
        let _ = core.fetch(now);
        core.state.scheduler.decide(Ticks(now));
        let next = VcpuId(u8::from(awaits));
        assert_eq!(core.state.scheduler.current(), Some(next));
    }
}
