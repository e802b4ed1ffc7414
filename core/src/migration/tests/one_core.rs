// SPDX-License-Identifier: MIT OR Apache-2.0
//! What one core does, on a machine of three cores. Of the other two there is only what they publish.

mod core;
mod early;
mod looks;
mod parking;
mod preempt;
mod quiet;
mod turns;

use self::core::Core;
use crate::migration::core_state::FETCH_AGAIN;
use crate::migration::fetch::Fetched;
use crate::migration::gang::pause_gang;
use crate::migration::pull::pull_for_interrupt;
use crate::migration::*;
use crate::schedule::{Band, Ticks, VcpuState};
use crate::sets::{CoreSet, VcpuSet};
use spumone_config::packed::{self, Without};
use spumone_config::types::{PcpuId, VcpuId};

/// How early vCPUs of the middle band are woken.
const EARLY: Ticks = Ticks(50);
const OWN: PcpuId = PcpuId(0);
const OTHER: PcpuId = PcpuId(1);
const CORES: usize = 3;
const FREQUENCY_HZ: u32 = 1_000_000;
/// In microseconds, and ticks.
const QUANTUM: u64 = 2_000;
/// How long the handler of an interrupt takes, in ticks.
const HANDLER: u64 = 10;
const MIDDLE: Band = match Band::new(1) {
    Some(band) => band,
    None => Band::HIGHEST,
};

/// A vCPU in its kernel whose time slice is over gets grace if the parked vCPU is of the same band, and none if it is
/// of a higher band.
#[test]
fn a_vcpu_of_a_higher_band_does_not_wait_for_the_grace_of_another() {
    for (is_higher, host) in [(false, OTHER), (true, OWN)] {
        let band = if is_higher { MIDDLE } else { Band::LOWEST };
        let mut core = Core::steal(&[Band::LOWEST, Band::LOWEST, band]);
        core.admit(0, VcpuState::Runnable);
        core.admit(1, VcpuState::Runnable);
        core.dispatch();
        core.parked_elsewhere(2, ParkedState::Runnable, 0);
        core.machine.now = Ticks(QUANTUM + 1);
        assert_eq!(core.fetch(QUANTUM + 1), Fetched::TookTime);
        assert_eq!(core.host_core_of(2), Some(host));
        if is_higher {
            core.dispatch();
            assert_eq!(core.state.running, Some(VcpuId(2)));
        }
    }
}

/// Its home core would not fetch it, so this core would take it back each time, with nothing loaded.
#[test]
fn a_visitor_that_loads_its_guest_is_not_sent_home() {
    for guests_run in [true, false] {
        let mut core = Core::new(
            packed::Policy::OnDemand,
            Without::default(),
            &[Band::LOWEST, Band::LOWEST],
        );
        core.runs(OTHER, MIDDLE);
        core.parked_elsewhere(1, ParkedState::Runnable, 0);
        assert_eq!(core.fetch(1), Fetched::TookTime);
        assert_eq!(core.host_core_of(1), Some(OWN));
        core.dispatch();
        core.runs(OTHER, Band::LOWEST);
        core.machine.guests_run = guests_run;
        core.fetch(2);
        assert_eq!(core.state.has(VcpuId(1)), !guests_run);
    }
}

/// No core would notify that core when the wait is over.
#[test]
fn a_core_without_vcpus_of_the_gang_does_not_wait_for_it() {
    for (cores, running) in [(0b10, Some(VcpuId(0))), (0b11, None)] {
        let mut core = Core::new(packed::Policy::Cosched, Without::default(), &[Band::LOWEST]);
        core.machine.shared.roles.gang = Some((MIDDLE, CoreSet::from_bits(cores)));
        core.runs(OTHER, Band::HIGHEST);
        core.admit(0, VcpuState::Runnable);
        pause_gang(&mut core.state, &mut core.machine);
        core.dispatch();
        assert_eq!(core.state.running, running);
    }
}

#[test]
fn of_two_parked_vcpus_the_one_of_the_higher_band_is_fetched() {
    let mut core = Core::steal(&[Band::LOWEST, MIDDLE]);
    core.parked_elsewhere(0, ParkedState::Runnable, 10);
    core.parked_elsewhere(1, ParkedState::Runnable, 20);
    assert_eq!(core.fetch(30), Fetched::TookTime);
    assert_eq!(
        (core.host_core_of(0), core.host_core_of(1)),
        (Some(OTHER), Some(OWN))
    );
}

/// A runnable vCPU is marked as wanted and stays where it is; a sleeping one is claimed, unless it would be cut off
/// here too.
#[test]
fn an_interrupt_marks_a_runnable_vcpu_as_wanted_and_pulls_a_sleeping_one() {
    let pulled = |state, own| {
        let mut core = Core::steal(&[Band::LOWEST, Band::HIGHEST]);
        core.parked_elsewhere(0, state, 0);
        core.runs(OTHER, Band::HIGHEST);
        if own {
            core.admit(1, VcpuState::Runnable);
            core.dispatch();
        }
        let is_served = pull_for_interrupt(&mut core.state, &mut core.machine, VcpuId(0), OTHER);
        (
            is_served,
            core.slot(0).parked().unwrap(),
            core.machine.kicks,
        )
    };
    let at = |host, state| Parked { host, state };
    let notified = [(PcpuId(2), VcpuId(0))];
    let (is_served, parked, kicks) = pulled(ParkedState::Runnable, false);
    assert_eq!((is_served, parked), (true, at(OTHER, ParkedState::Wanted)));
    assert!(kicks.is_empty());
    let (is_served, parked, _) = pulled(ParkedState::Asleep, false);
    assert_eq!((is_served, parked), (true, at(OWN, ParkedState::Asleep)));
    let (is_served, parked, kicks) = pulled(ParkedState::Asleep, true);
    assert_eq!((is_served, parked), (false, at(OTHER, ParkedState::Asleep)));
    assert_eq!(kicks, notified);
}

/// Where another vCPU waits, or one of a higher band runs, the core leaves the vCPU with the interrupt to other cores, and notifies one of them.
#[test]
fn a_core_that_leaves_a_wanted_vcpu_to_others_notifies_one() {
    let notified = &[(PcpuId(2), VcpuId(2))][..];
    for (own, waits, kicks) in [
        (Band::LOWEST, false, &[][..]),
        (Band::LOWEST, true, notified),
        (MIDDLE, false, notified),
    ] {
        let mut core = Core::steal(&[own, Band::LOWEST, Band::LOWEST]);
        core.admit(0, VcpuState::Runnable);
        if waits {
            core.admit(1, VcpuState::Runnable);
        }
        core.dispatch();
        core.parked_elsewhere(2, ParkedState::Runnable, 0);
        core.runs(OTHER, Band::HIGHEST);
        core.runs(PcpuId(2), Band::LOWEST);
        pull_for_interrupt(&mut core.state, &mut core.machine, VcpuId(2), OTHER);
        assert_eq!(core.machine.kicks, kicks);
    }
}

/// The core looks for interrupts before it parks the vCPU. The vCPU is awake for the decision all the same, since its doorbell is rung.
#[test]
fn a_pulled_vcpu_is_not_parked_before_an_interrupt_is_taken() {
    for is_interrupted in [false, true] {
        let mut core = Core::steal(&[Band::LOWEST, Band::HIGHEST]);
        core.parked_elsewhere(0, ParkedState::Asleep, 0);
        core.runs(OTHER, Band::HIGHEST);
        core.admit(1, VcpuState::Sleep);
        core.ring(0);
        if is_interrupted {
            core.machine.pending.push(VcpuId(1));
        }
        let is_served = pull_for_interrupt(&mut core.state, &mut core.machine, VcpuId(0), OTHER);
        assert!(is_served && core.state.must_decide);
        assert_eq!(core.state.has(VcpuId(0)), is_interrupted);
        let state = core.state.scheduler.state(VcpuId(0));
        assert_eq!(state, Some(VcpuState::Runnable));
    }
}

/// A doorbell rung just before the vCPU was parked marks it as wanted as well: no core rings a second time.
#[test]
fn a_vcpu_parked_with_its_doorbell_rung_is_wanted_where_it_is_cut_off() {
    let state_when_parked = |state, is_cut_off, without| {
        let bands = [Band::LOWEST, Band::HIGHEST];
        let mut core = Core::new(packed::Policy::Steal, without, &bands);
        core.machine.in_kernel = false;
        core.admit(0, state);
        core.admit(1, VcpuState::Runnable);
        if is_cut_off {
            core.dispatch();
            core.runs(OWN, Band::HIGHEST);
        }
        core.ring(0);
        core.park(0);
        core.slot(0).parked().unwrap().state
    };
    let all = Without::default();
    let no_pull = Without {
        ipi_pull: true,
        ..Without::default()
    };
    for state in [VcpuState::Runnable, VcpuState::Sleep] {
        assert_eq!(state_when_parked(state, true, all), ParkedState::Wanted);
        assert_eq!(state_when_parked(state, false, all), ParkedState::Runnable);
        assert_eq!(
            state_when_parked(state, true, no_pull),
            ParkedState::Runnable
        );
    }
}

/// The core switches at the catch, and does not wait for the end of the grace.
#[test]
fn a_vcpu_caught_on_return_to_a_program_leaves_the_core_at_once() {
    let mut core = Core::steal(&[Band::LOWEST, Band::LOWEST]);
    core.admit(0, VcpuState::Runnable);
    core.dispatch();
    core.parked_elsewhere(1, ParkedState::Runnable, 0);
    let over = QUANTUM + 1;
    assert_eq!(core.fetch(over), Fetched::TookTime);
    assert_eq!(core.host_core_of(1), Some(OTHER));
    core.machine.in_kernel = false;
    caught(&mut core.state, &mut core.machine);
    assert!(core.state.must_decide);
    assert_eq!(core.fetch(over), Fetched::TookTime);
    assert_eq!(core.host_core_of(1), Some(OWN));
    assert_eq!(core.state.scheduler.current(), None);
}

/// Another core has claimed the vCPU that waited. In the next time slice the running vCPU has all of its grace again,
/// and no sample of before counts.
#[test]
fn grace_used_in_one_time_slice_is_available_again_in_the_next() {
    let mut core = Core::steal(&[Band::LOWEST, Band::LOWEST]);
    core.admit(0, VcpuState::Runnable);
    core.dispatch();
    for slice in 1..9 {
        let over = slice * QUANTUM + 1;
        core.parked_elsewhere(1, ParkedState::Runnable, 0);
        assert_eq!(core.fetch(over), Fetched::TookTime);
        assert_eq!(core.host_core_of(1), Some(OTHER), "time slice {slice}");
        let seen = core.slot(1).parked().unwrap();
        assert!(core.slot(1).claim(seen));
        assert_eq!(core.fetch(over + 1), Fetched::AtOnce);
    }
}

/// A core that runs vCPU 0, of the lowest band, and where the real-time vCPU 1 sleeps.
fn beside_sleeping_rt() -> Core {
    let mut core = Core::new(
        packed::Policy::None,
        Without::default(),
        &[Band::LOWEST, MIDDLE],
    );
    core.admit(0, VcpuState::Runnable);
    core.admit(1, VcpuState::Sleep);
    if let Next::Switch(id) = core.iterate() {
        switch(&mut core.state, &mut core.machine, id);
    }
    assert_eq!(core.state.running, Some(VcpuId(0)));
    core
}

#[test]
fn the_alarm_is_armed_for_a_deadline_before_an_interrupt_is_taken() {
    let mut core = beside_sleeping_rt();
    // Due while the second of many interrupts is handled.
    let due = Ticks(core.machine.now.0 + HANDLER + HANDLER / 2);
    core.state.deadlines.set(VcpuId(1), MIDDLE, due);
    core.state.alarm_is_stale = true;
    core.state.must_decide = true;
    core.machine.pending = [VcpuId(0); 100].to_vec();
    while core.state.running != Some(VcpuId(1)) {
        core.iterate();
    }
    assert!(
        core.machine.now.0 < due.0 + HANDLER,
        "{:?} after {due:?}",
        core.machine.now
    );
}

#[test]
fn a_preemption_is_decided_before_the_next_interrupt_is_taken() {
    let mut core = beside_sleeping_rt();
    core.state.must_decide = true;
    core.machine.pending = [VcpuId(0); 100].to_vec();
    core.machine.pending.push(VcpuId(1));
    core.iterate();
    assert_eq!(core.state.running, Some(VcpuId(1)));
    assert_eq!(core.machine.pending.len(), 100);
}

/// A core at the end of the time slice of vCPU 0, where the real-time vCPU 2 is due in 10 ticks. Another core has parked vCPU 1.
fn at_the_end_of_a_time_slice() -> Core {
    let bands = [Band::LOWEST, Band::LOWEST, Band::HIGHEST];
    let (rt, steal) = (Band::HIGHEST, packed::Policy::Steal);
    let mut core = Core::with_staying(steal, Without::default(), &bands, Some(rt));
    core.admit(0, VcpuState::Runnable);
    core.admit(2, VcpuState::Sleep);
    core.state.decide_anew();
    if let Next::Switch(id) = core.iterate() {
        switch(&mut core.state, &mut core.machine, id);
    }
    core.parked_elsewhere(1, ParkedState::Runnable, 0);
    core.machine.now = Ticks(QUANTUM + 1);
    let due = Ticks(core.machine.now.0 + 10);
    core.state.deadlines.set(VcpuId(2), rt, due);
    alarm_expired(&mut core.state, &mut core.machine);
    core
}

/// The alarm that has led to the decision is armed again before the core looks at what other cores have parked.
#[test]
fn a_deadline_during_a_decision_at_the_end_of_a_time_slice_ends_it() {
    for takes in [5, 20] {
        let mut core = at_the_end_of_a_time_slice();
        core.machine.in_kernel = false;
        core.machine.fetch_takes = takes;
        core.iterate();
        let is_due = takes > 10;
        let host = if is_due { OTHER } else { OWN };
        assert_eq!(core.host_core_of(1), Some(host));
        let running = if is_due { VcpuId(2) } else { VcpuId(1) };
        assert_eq!(core.state.running, Some(running));
    }
}

/// The alarm was armed for the end of the time slice before a kick made the core decide.
#[test]
fn the_end_of_a_time_slice_during_a_decision_leaves_the_running_vcpu_its_grace() {
    let mut core = Core::steal(&[Band::LOWEST, Band::LOWEST, Band::LOWEST]);
    core.admit(0, VcpuState::Runnable);
    core.admit(1, VcpuState::Runnable);
    core.state.decide_anew();
    if let Next::Switch(id) = core.iterate() {
        switch(&mut core.state, &mut core.machine, id);
    }
    core.parked_elsewhere(2, ParkedState::Runnable, 0);
    let end = core.machine.alarm;
    core.machine.now = Ticks(end.0 - 5);
    core.machine.fetch_takes = 10;
    core.state.decide_anew();
    core.iterate();
    core.machine.fetch_takes = 0;
    core.iterate();
    assert_eq!(core.state.running, Some(VcpuId(0)));
    assert!(core.machine.now > end && core.state.fetch_at > end);
}

/// vCPU 0 runs, in its kernel, and vCPU 1, of the same band and from another core, waits for its turn. `vcpus`: how many there are.
fn beside_one_that_waits(without: Without, vcpus: usize) -> Core {
    let mut core = Core::new(packed::Policy::Steal, without, &[Band::LOWEST; 8][..vcpus]);
    core.admit(0, VcpuState::Runnable);
    core.admit(1, VcpuState::Runnable);
    core.state.decide_anew();
    core.go_on();
    assert_eq!(core.state.running, Some(VcpuId(0)));
    core
}

/// The vCPU that runs gets short steps of grace, then the other one runs for a short time, and then the first goes on.
#[test]
fn a_vcpu_for_which_an_interrupt_has_come_runs_out_of_turn() {
    let mut core = beside_one_that_waits(Without::default(), CORES);
    let slice_end = core.machine.alarm;
    core.ring(1);
    core.machine.pending.push(VcpuId(1));
    core.go_on();
    // Not in the tick in which the interrupt came: it may have come during a decision.
    assert_eq!(core.machine.alarm, Ticks(core.machine.now.0 + 1));
    core.machine.now = core.machine.alarm;
    core.go_on();
    assert_eq!(core.state.running, Some(VcpuId(0)));
    let grace = Ticks::from_micros(4, FREQUENCY_HZ);
    assert_eq!(core.machine.alarm, core.machine.now.saturating_add(grace));
    core.machine.now = core.machine.alarm;
    core.machine.in_kernel = false;
    alarm_expired(&mut core.state, &mut core.machine);
    core.go_on();
    assert_eq!(core.state.running, Some(VcpuId(1)));
    let length = Ticks::from_micros(100, FREQUENCY_HZ);
    assert_eq!(core.machine.alarm, core.machine.now.saturating_add(length));
    core.machine.now = core.machine.alarm;
    alarm_expired(&mut core.state, &mut core.machine);
    core.go_on();
    assert_eq!(core.state.running, Some(VcpuId(0)));
    assert_eq!(core.machine.alarm, slice_end.saturating_add(length));
}

/// An interrupt comes for vCPU 0 just before its turn ends. When vCPU 1 gets the core, the interrupt is in the list registers of vCPU 0 or, if the turn has ended
/// already (`is_late`), only in its doorbell.
#[test]
fn a_vcpu_that_loses_the_core_with_an_interrupt_runs_again_out_of_turn() {
    for is_late in [false, true] {
        let mut core = beside_one_that_waits(Without::default(), CORES);
        core.machine.in_kernel = false;
        let end = core.machine.alarm;
        core.machine.now = if is_late { end } else { Ticks(end.0 - 1) };
        core.ring(0);
        handle(
            &mut core.state,
            &mut core.machine,
            Taken::Kicks(VcpuSet::of(VcpuId(0))),
        );
        assert_eq!(core.machine.delivered.is_empty(), is_late);
        core.machine.now = end;
        core.go_on();
        assert_eq!(core.state.running, Some(VcpuId(1)), "is late: {is_late}");
        core.machine.now = core.machine.alarm;
        core.go_on();
        assert_eq!(core.state.running, Some(VcpuId(0)), "is late: {is_late}");
        assert!(core.state.scheduler.runs_out_of_turn());
    }
}

/// The turn of vCPU 0 has ended. It is still loaded when an interrupt of a device comes for it.
#[test]
fn an_interrupt_of_a_device_for_the_loaded_vcpu_lets_it_run_again_out_of_turn() {
    let mut core = beside_one_that_waits(Without::default(), CORES);
    core.machine.in_kernel = false;
    core.machine.now = core.machine.alarm;
    take_interrupts(&mut core.state, &mut core.machine);
    let mut next = core.iterate();
    while next == Next::Decide {
        next = core.iterate();
    }
    assert_eq!(next, Next::Switch(VcpuId(1)));
    handle(
        &mut core.state,
        &mut core.machine,
        Taken::Delivered(VcpuSet::EMPTY),
    );
    core.go_on();
    core.machine.now = core.machine.alarm;
    core.go_on();
    assert_eq!(core.state.running, Some(VcpuId(0)));
    assert!(core.state.scheduler.runs_out_of_turn());
}

/// It returns to its program, and does not go on until it would be sampled.
#[test]
fn a_vcpu_that_is_caught_gives_up_the_core_to_one_that_runs_out_of_turn() {
    let mut core = beside_one_that_waits(Without::default(), CORES);
    core.ring(1);
    core.machine.pending.push(VcpuId(1));
    core.go_on();
    core.machine.now.0 += 1;
    core.machine.in_kernel = false;
    caught(&mut core.state, &mut core.machine);
    core.go_on();
    assert_eq!(core.state.running, Some(VcpuId(1)));
}

/// vCPU 0 runs, in its kernel, at the end of its time slice, and another core has parked vCPU 1.
fn beside_one_parked(is_rung: bool) -> Core {
    let mut core = Core::steal(&[Band::LOWEST, Band::LOWEST]);
    core.admit(0, VcpuState::Runnable);
    core.dispatch();
    core.parked_elsewhere(1, ParkedState::Wanted, 0);
    if is_rung {
        core.ring(1);
    }
    core.machine.now = Ticks(QUANTUM + 1);
    assert_eq!(core.fetch(QUANTUM + 1), Fetched::TookTime);
    assert_eq!(core.host_core_of(1), Some(OTHER));
    core
}

#[test]
fn the_first_steps_of_grace_are_short_beside_a_parked_vcpu_with_an_interrupt() {
    for (is_rung, micros) in [(true, 4), (false, 50)] {
        let core = beside_one_parked(is_rung);
        let step = Ticks::from_micros(micros, FREQUENCY_HZ);
        assert_eq!(core.state.fetch_at, core.machine.now.saturating_add(step));
    }
}

/// The step of grace is over before the vCPU has run.
#[test]
fn a_vcpu_that_has_not_run_since_the_last_sample_does_not_count_as_spinning() {
    let mut core = beside_one_parked(true);
    core.machine.now = core.state.fetch_at;
    core.fetch(core.machine.now.0);
    assert_eq!(core.host_core_of(1), Some(OTHER));
    core.state.enters_guest();
    core.machine.now = core.state.fetch_at;
    core.fetch(core.machine.now.0);
    assert_eq!(core.host_core_of(1), Some(OWN));
}

/// It seems to spin. An interrupt has been delivered to it, but it has not taken the interrupt yet.
#[test]
fn a_vcpu_to_which_an_interrupt_was_delivered_does_not_count_as_spinning() {
    for is_interrupted in [false, true] {
        let mut core = beside_one_parked(true);
        core.state.enters_guest();
        core.machine.now = core.state.fetch_at;
        if is_interrupted {
            core.ring(0);
            core.machine.pending.push(VcpuId(0));
            take_interrupts(&mut core.state, &mut core.machine);
            assert!(core.machine.doorbells[0].is_silent());
        }
        core.fetch(core.machine.now.0);
        let host = if is_interrupted { OTHER } else { OWN };
        assert_eq!(core.host_core_of(1), Some(host));
    }
}

/// Each would renew the grace of the vCPU that runs, in its kernel.
#[test]
fn more_interrupts_for_a_vcpu_that_is_to_run_out_of_turn_change_nothing() {
    let mut core = beside_one_that_waits(Without::default(), CORES);
    let mut samples = 0;
    for _ in 0..100 {
        core.ring(1);
        core.machine.pending.push(VcpuId(1));
        core.go_on();
        if core.state.running == Some(VcpuId(1)) {
            break;
        }
        if core.machine.alarm <= core.machine.now.saturating_add(Ticks(5)) {
            samples += 1;
            core.machine.now = core.machine.alarm;
            core.go_on();
        }
        core.machine.now.0 += 2;
    }
    // It seems to spin.
    assert_eq!((core.state.running, samples), (Some(VcpuId(1)), 1));
}

#[test]
fn an_interrupt_waits_for_the_end_of_the_time_slice_where_no_vcpu_runs_out_of_turn() {
    let without = Without {
        out_of_turn: true,
        ..Without::default()
    };
    // With one vCPU more than cores, this core is the home of two.
    for (without, vcpus) in [(without, CORES), (Without::default(), CORES + 1)] {
        let mut core = beside_one_that_waits(without, vcpus);
        let alarm = core.machine.alarm;
        core.ring(1);
        core.machine.pending.push(VcpuId(1));
        core.machine.in_kernel = false;
        core.go_on();
        assert_eq!(core.state.running, Some(VcpuId(0)));
        assert_eq!(core.machine.alarm, alarm);
    }
}

/// The core has looked at the parking slots, and takes the kick before the decision is made: it looks again before it decides, once. After another kick it
/// decides again.
#[test]
fn a_kick_for_a_vcpu_that_is_parked_while_a_core_fetches_is_not_lost() {
    for parked in [&[1][..], &[2, 1]] {
        let mut core = Core::steal(&[Band::LOWEST; 3]);
        core.admit(0, VcpuState::Sleep);
        core.machine.parked_in_fetch = parked.iter().copied().map(VcpuId).collect();
        core.state.decide_anew();
        core.iterate();
        assert_eq!(core.state.running, Some(VcpuId(1)));
        let is_due = core.state.fetch_at == FETCH_AGAIN;
        assert_eq!(is_due, parked.len() > 1);
    }
}

/// It would interrupt the real-time vCPU, or delay it.
#[test]
fn a_core_does_not_fetch_again_while_a_real_time_vcpu_runs() {
    for takes in [5, 20] {
        let mut core = at_the_end_of_a_time_slice();
        core.machine.choice_takes = takes;
        core.iterate();
        let is_due = takes > 10;
        let running = if is_due { VcpuId(2) } else { VcpuId(0) };
        assert_eq!(core.state.running, Some(running));
        // vCPU 0 has grace.
        assert_eq!(core.state.fetch_at == Ticks::NEVER, is_due);
    }
}

/// A kick that has come just before the alarm expires is not delivered first.
#[test]
fn a_kick_is_delivered_after_a_preemption_that_is_due() {
    for due_in in [1, 1000] {
        let mut core = beside_sleeping_rt();
        core.ring(0);
        let due = Ticks(core.machine.now.0 + due_in);
        core.state.deadlines.set(VcpuId(1), MIDDLE, due);
        core.state.alarm_is_stale = true;
        core.machine.pending = [VcpuId(0)].to_vec();
        take_interrupts(&mut core.state, &mut core.machine);
        let is_due = due_in < HANDLER;
        assert_eq!(core.machine.doorbells[0].is_silent(), !is_due);
        assert_eq!(core.state.must_refresh(), is_due);
        core.iterate();
        let next = if is_due { VcpuId(1) } else { VcpuId(0) };
        assert_eq!(core.state.running, Some(next));
    }
}

#[test]
fn two_kicks_are_delivered_together_before_the_vcpu_runs() {
    let mut core = beside_sleeping_rt();
    core.ring(0);
    core.machine.pending = [VcpuId(0), VcpuId(0)].to_vec();
    take_interrupts(&mut core.state, &mut core.machine);
    assert!(core.state.must_refresh() && !core.machine.doorbells[0].is_silent());
}

/// A vCPU waits for its turn for a moment, then a real-time vCPU has the core for long. When it sleeps, another wait begins: no core is called before that
/// has lasted as long.
#[test]
fn a_wait_before_a_higher_band_is_not_part_of_the_next_one() {
    let bands = [Band::LOWEST, Band::LOWEST, Band::HIGHEST];
    let mut core = Core::with_staying(
        packed::Policy::Steal,
        Without::default(),
        &bands,
        Some(Band::HIGHEST),
    );
    core.machine.may_bring_back = true;
    core.admit(0, VcpuState::Runnable);
    core.admit(1, VcpuState::Runnable);
    core.admit(2, VcpuState::Sleep);
    core.decide_and_look(1);
    core.state.scheduler.wake(VcpuId(2));
    core.decide_and_look(100);
    let _ = core.state.scheduler.sleep_current(|| core.machine.now);
    core.decide_and_look(1_100);
    assert_eq!(core.machine.called, []);
    core.decide_and_look(1_599);
    assert_eq!(core.machine.called, []);
    core.decide_and_look(1_600);
    assert_eq!(core.machine.called.len(), 1);
}

/// The vCPU that waited is claimed by another core, of which this core learns nothing. When another wait begins, no core is called before that has lasted
/// as long.
#[test]
fn a_vcpu_that_another_core_has_taken_does_not_wait() {
    let mut core = Core::steal(&[Band::LOWEST; 3]);
    core.machine.may_bring_back = true;
    core.admit(0, VcpuState::Runnable);
    core.admit(1, VcpuState::Runnable);
    core.park(1);
    core.admit(2, VcpuState::Sleep);
    core.decide_and_look(1);
    let seen = core.slot(1).parked().unwrap();
    assert!(core.slot(1).claim(seen));
    core.state.scheduler.wake(VcpuId(2));
    core.decide_and_look(400);
    core.decide_and_look(501);
    core.decide_and_look(899);
    assert_eq!(core.machine.called, []);
    core.decide_and_look(900);
    assert_eq!(core.machine.called, [VcpuId(2)]);
}

#[test]
fn a_core_that_is_off_or_runs_a_higher_band_is_not_among_those_that_an_sgi_interrupts() {
    let core = Core::steal(&[Band::LOWEST]);
    let interrupted = |level| {
        core.machine.shared.presence(OTHER).publish(level);
        let both = CoreSet::of(OWN) | CoreSet::of(OTHER);
        let shared = &core.machine.shared;
        shared.running_at_most(both, MIDDLE).contains(OTHER)
    };
    assert!(interrupted(Level::IDLE) && interrupted(Level::of(Some(MIDDLE))));
    assert!(!interrupted(Level::of(Some(Band::HIGHEST))) && !interrupted(Level::OFF));
}
