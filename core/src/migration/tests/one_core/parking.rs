// SPDX-License-Identifier: MIT OR Apache-2.0
//! When a core parks a vCPU that does not run, and which core it notifies of that vCPU.

use super::core::Core;
use super::{MIDDLE, OTHER, OWN};
use crate::migration::decide::acquire_current;
use crate::migration::fetch::Fetched;
use crate::migration::notify::{park_or_keep, pass_on};
use crate::migration::*;
use crate::schedule::{Band, Ticks, VcpuState};
use crate::sets::CoreSet;
use spumone_config::gic::VIRTUAL_TIMER;
use spumone_config::packed::{self, Without};
use spumone_config::types::{PcpuId, VcpuId};
use std::vec::Vec;

/// A core that has fetched vCPU 0. Before the core has decided, vCPU 1, which slept and has this band, wakes. vCPU 2 is
/// runnable here, vCPU 3 is not here.
fn fetch_interrupted_by_wake(band: Band) -> Core {
    let mut core = fetch_interrupted_by_wake_before(band);
    core.finish();
    core
}

/// The same, when the decision is not finished yet.
fn fetch_interrupted_by_wake_before(band: Band) -> Core {
    let mut core = Core::steal(&[Band::LOWEST, band, Band::LOWEST, Band::LOWEST]);
    core.runs(OWN, band);
    core.admit(1, VcpuState::Sleep);
    core.admit(2, VcpuState::Runnable);
    core.parked_elsewhere(0, ParkedState::Runnable, 0);
    assert_eq!(core.fetch(core.machine.now.0), Fetched::TookTime);
    assert_eq!(core.slot(0).parked(), None, "this core has its token");
    core.state.scheduler.wake(VcpuId(1));
    let now = core.machine.now;
    let decision = core.state.scheduler.decide(now);
    let acquired = acquire_current(&mut core.state, &mut core.machine, now, decision);
    assert!(acquired.is_ok(), "no interrupt is pending");
    core
}

#[test]
fn a_fetched_vcpu_that_must_wait_for_one_of_its_band_is_parked() {
    let core = fetch_interrupted_by_wake(Band::LOWEST);
    assert_eq!(core.state.scheduler.current(), Some(VcpuId(2)));
    let parked = Parked {
        host: OWN,
        state: ParkedState::Wanted,
    };
    assert_eq!(core.slot(0).parked(), Some(parked));
}

/// The park delay keeps the latency of the higher band low. After it another core is notified, even if this core did
/// not publish in between that it ran a lower band.
#[test]
fn a_fetched_vcpu_preempted_by_a_higher_band_is_kept_for_the_park_delay() {
    let mut core = fetch_interrupted_by_wake(Band::HIGHEST);
    core.ring(0);
    let now = core.machine.now;
    assert_eq!(core.state.scheduler.current(), Some(VcpuId(1)));
    core.publish_and_notify(now);
    assert_eq!((core.slot(0).parked(), core.machine.kicks.len()), (None, 0));
    let later = core.state.next_own_deadline();
    assert!(later > now && later < Ticks::NEVER);
    core.publish_and_notify(later);
    let state = core.slot(0).parked().map(|it| it.state);
    assert_eq!(state, Some(ParkedState::Wanted), "its doorbell was rung");
    assert_eq!(core.machine.kicks, [(PcpuId(1), VcpuId(0))]);
}

/// The core still says that it runs the higher band, since that band slept only while the core looked for vCPUs.
#[test]
fn another_core_is_notified_of_a_sleeping_vcpu_that_is_taken_just_before_a_higher_band_wakes() {
    let mut core = Core::steal(&[Band::LOWEST, Band::HIGHEST, Band::LOWEST]);
    core.runs(OWN, Band::HIGHEST);
    core.runs(OTHER, Band::HIGHEST);
    core.admit(1, VcpuState::Sleep);
    core.admit(2, VcpuState::Runnable);
    core.parked_elsewhere(0, ParkedState::Asleep, 0);
    let now = core.machine.now;
    assert_eq!(core.fetch(now.0), Fetched::TookTime);
    assert_eq!(core.host_core_of(0), Some(OWN));
    core.state.scheduler.wake(VcpuId(1));
    core.state.scheduler.decide(now);
    core.publish_and_notify(now);
    assert_eq!(core.machine.kicks, []);
    let later = core.state.next_own_deadline();
    assert!(later > now && later < Ticks::NEVER);
    core.publish_and_notify(later);
    assert_eq!(core.machine.kicks, [(PcpuId(2), VcpuId(0))]);
}

/// The core that is notified may take another vCPU first, and then run a higher band.
#[test]
fn without_a_park_delay_another_core_is_notified_again_of_a_preempted_vcpu() {
    let bands = [Band::LOWEST, Band::HIGHEST];
    let mut core = Core::new(packed::Policy::OnDemand, Without::default(), &bands);
    core.runs(OWN, Band::HIGHEST);
    core.admit(0, VcpuState::Runnable);
    core.admit(1, VcpuState::Runnable);
    core.dispatch();
    let _ = park_or_keep(&mut core.state, &mut core.machine, VcpuId(0));
    assert_eq!(core.machine.kicks, [(OTHER, VcpuId(0))]);
    let later = core.state.next_own_deadline();
    assert!(later > core.machine.now && later < Ticks::NEVER);
    core.publish_and_notify(later);
    assert_eq!(core.machine.kicks, [(OTHER, VcpuId(0)); 2]);
}

/// Of which vCPUs other cores are notified at the end of the park delay, while a higher band runs here.
fn notified_of(bands: [Band; 3], states: [VcpuState; 3]) -> Vec<u8> {
    let mut core = Core::steal(&[bands[0], bands[1], bands[2], Band::HIGHEST]);
    for (id, state) in (0..).zip(states) {
        core.admit(id, state);
        core.park(id);
    }
    core.admit(3, VcpuState::Runnable);
    core.dispatch();
    // The park delay passes, and no other core does anything.
    let now = core.machine.now;
    core.publish_and_notify(now);
    core.machine.kicks.clear();
    core.machine.now = Ticks(1_000_000);
    core.publish_and_notify(Ticks(1_000_000));
    core.machine.kicks.iter().map(|(_, id)| id.0).collect()
}

#[test]
fn another_core_is_notified_of_a_runnable_vcpu_first_then_of_the_highest_band() {
    use VcpuState::{Runnable, Sleep};
    let low = Band::LOWEST;
    assert_eq!(notified_of([low; 3], [Sleep, Runnable, Sleep]), [1]);
    assert_eq!(notified_of([low, MIDDLE, low], [Runnable; 3]), [1]);
    assert_eq!(notified_of([low, MIDDLE, low], [Sleep; 3]), [1]);
}

/// So that neither waits for the other: the core that is notified of one may run too high a band for the other.
#[test]
fn a_sleeping_vcpu_above_the_lowest_band_does_not_wait_behind_a_runnable_one_of_the_lowest() {
    use VcpuState::{Runnable, Sleep};
    let bands = [Band::LOWEST, MIDDLE, Band::LOWEST];
    assert_eq!(notified_of(bands, [Runnable, Sleep, Runnable]), [1, 0]);
    assert_eq!(notified_of(bands, [Sleep, Sleep, Runnable]), [1, 2]);
}

#[test]
fn a_preempted_vcpu_is_kept_for_the_park_delay_unless_there_is_none() {
    let no_park_delay = Without {
        patience: true,
        ..Without::default()
    };
    for (without, is_parked) in [(Without::default(), false), (no_park_delay, true)] {
        let bands = [Band::LOWEST, Band::HIGHEST];
        let mut core = Core::new(packed::Policy::Steal, without, &bands);
        core.admit(0, VcpuState::Runnable);
        core.admit(1, VcpuState::Runnable);
        core.dispatch();
        let _ = park_or_keep(&mut core.state, &mut core.machine, VcpuId(0));
        assert_eq!(core.slot(0).parked().is_some(), is_parked);
        assert_eq!(core.machine.kicks.len(), usize::from(is_parked));
        assert_eq!(core.state.has(VcpuId(0)), !is_parked);
    }
}

/// A vCPU above the lowest band that moves may belong to a real-time guest, whose deadline may be earlier than the end of the park delay. The vCPUs of the lowest band that
/// moves wait for the park delay all the same.
#[test]
fn a_vcpu_above_the_lowest_band_does_not_wait_for_the_park_delay() {
    let bands = [Band::LOWEST, MIDDLE, Band::HIGHEST];
    // The core had it loaded when it was preempted.
    let mut core = Core::steal(&bands);
    core.admit(1, VcpuState::Runnable);
    core.admit(2, VcpuState::Runnable);
    core.dispatch();
    let _ = park_or_keep(&mut core.state, &mut core.machine, VcpuId(1));
    assert!(core.slot(1).parked().is_some());
    assert_eq!(core.machine.kicks, [(OTHER, VcpuId(1))]);

    // The core has parked it before.
    for (id, at_once) in [(0, false), (1, true)] {
        let mut core = Core::steal(&bands);
        core.admit(id, VcpuState::Sleep);
        core.park(id);
        core.admit(2, VcpuState::Runnable);
        core.dispatch();
        let now = core.machine.now;
        core.publish_and_notify(now);
        assert!(core.state.notify_at > now, "vCPU {id}");
        let notified = core.machine.kicks.contains(&(OTHER, VcpuId(id)));
        assert_eq!(notified, at_once, "vCPU {id}");
    }

    // The core has fetched it just now.
    let mut core = Core::steal(&bands);
    core.admit(2, VcpuState::Sleep);
    core.parked_elsewhere(1, ParkedState::Runnable, 0);
    assert_eq!(core.fetch(core.machine.now.0), Fetched::TookTime);
    core.state.scheduler.wake(VcpuId(2));
    core.state.scheduler.decide(core.machine.now);
    core.finish();
    assert_eq!(core.host_core_of(1), Some(OWN));
    assert!(core.slot(1).parked().is_some());
    // Once when it is parked, and once when this core publishes its band.
    assert_eq!(core.machine.kicks, [(OTHER, VcpuId(1)); 2]);
}

/// Else a vCPU of a higher band would wait until all are parked.
#[test]
fn parking_stops_at_an_interrupt_and_goes_on_with_the_next_decision() {
    let mut core = Core::steal(&[Band::LOWEST; 4]);
    for id in 0..4 {
        core.admit(id, VcpuState::Runnable);
    }
    core.dispatch();
    core.state.must_decide = false;
    let others = || (1..4).map(VcpuId);
    core.state.park_later = others().collect();
    let parked = |core: &Core| {
        let slots = others().map(|id| core.slot(id.0).parked());
        slots.flatten().count()
    };
    core.machine.pending.push(VcpuId(0));
    core.publish_and_notify(Ticks(1));
    assert_eq!((parked(&core), core.state.must_decide()), (1, true));
    core.machine.pending.clear();
    core.publish_and_notify(Ticks(1));
    assert_eq!(parked(&core), 3);
}

/// A core that runs vCPU 3, of the highest band, and has kept vCPUs 0 to 2 for the park delay, which has just ended.
fn keeps_three() -> Core {
    let mut core = Core::with_staying(
        packed::Policy::Steal,
        Without::default(),
        &[Band::LOWEST, Band::LOWEST, Band::LOWEST, Band::HIGHEST],
        Some(Band::HIGHEST),
    );
    for id in 0..4 {
        core.admit(id, VcpuState::Runnable);
    }
    core.dispatch();
    assert_eq!(core.state.running, Some(VcpuId(3)));
    core.state.must_decide = false;
    core.state.park_later = (0..3).map(VcpuId).collect();
    core.publish_and_notify(core.machine.now);
    core.machine.now = core.state.notify_at;
    core
}

fn parked(core: &Core) -> usize {
    (0..3)
        .filter(|&id| core.slot(id).parked().is_some())
        .count()
}

/// The guest of the higher band is in the middle of its work. Its timer would wait until all are parked, and for decisions in between.
#[test]
fn at_the_end_of_the_park_delay_parking_is_put_off_once_for_an_interrupt() {
    let mut core = keeps_three();
    core.machine.loaded_timer = Some(core.machine.now);
    core.publish_and_notify(core.machine.now);
    assert_eq!((parked(&core), core.state.must_decide()), (1, false));
    assert!(core.state.notify_at > core.machine.now);
    // Interrupted again: each decision goes on with it.
    core.machine.now = core.state.notify_at;
    for number in 2..=3 {
        core.publish_and_notify(core.machine.now);
        assert_eq!((parked(&core), core.state.must_decide()), (number, true));
        assert_eq!(core.machine.kicks, []);
    }
    core.machine.is_timer_taken = true;
    core.publish_and_notify(core.machine.now);
    assert_eq!(core.machine.kicks, [(OTHER, VcpuId(0))]);
    assert!(core.state.notify_at > core.machine.now);
}

/// So that the next time that the higher band runs for long, it is put off again.
#[test]
fn what_was_put_off_is_forgotten_when_the_core_goes_back_to_a_lower_band() {
    let mut core = keeps_three();
    core.machine.loaded_timer = Some(core.machine.now);
    core.publish_and_notify(core.machine.now);
    assert!(core.state.is_put_off);
    sleep(&mut core.state, &core.machine);
    core.state.scheduler.decide(core.machine.now);
    core.publish_and_notify(core.machine.now);
    assert!(!core.state.is_put_off);
}

/// Its timer expires together with the alarm. It would wait until one is parked.
#[test]
fn at_the_end_of_the_park_delay_a_timer_that_was_delivered_does_not_wait_for_parking() {
    let mut core = keeps_three();
    for is_parked in [false, true] {
        core.machine.loaded_timer = Some(core.machine.now);
        core.machine.is_timer_taken = false;
        core.machine.alarm = core.machine.now;
        core.machine.delivered.clear();
        core.go_on();
        assert_eq!(
            core.machine.delivered.last(),
            Some(&Delivery::Timer(VIRTUAL_TIMER))
        );
        assert_eq!(parked(&core) > 0, is_parked);
        core.machine.now = core.state.notify_at;
    }
}

/// Else it would wait as long as vCPUs do of which the core has notified others already.
#[test]
fn a_vcpu_that_is_to_be_parked_soon_waits_for_the_park_delay_only() {
    let mut core = Core::steal(&[Band::LOWEST, Band::LOWEST, Band::HIGHEST]);
    core.admit(0, VcpuState::Runnable);
    core.admit(1, VcpuState::Runnable);
    core.park(1);
    core.admit(2, VcpuState::Runnable);
    core.dispatch();
    let now = core.machine.now;
    core.publish_and_notify(now);
    let delay = core.state.notify_at;
    core.publish_and_notify(delay);
    assert!(core.state.notify_at > delay.saturating_add(delay));
    core.state.park_soon(VcpuId(0));
    core.publish_and_notify(delay);
    assert_eq!(
        core.state.notify_at,
        delay.saturating_add(core.state.rules.park_delay)
    );
}

/// The interrupt is taken before the vCPU is parked, and leads to another decision.
#[test]
fn what_an_interrupted_decision_leaves_is_parked_after_the_next() {
    let mut core = fetch_interrupted_by_wake_before(Band::LOWEST);
    core.machine.pending.push(VcpuId(3));
    assert!(!core.finish(), "the core must decide again");
    assert_eq!(core.slot(0).parked(), None);
    core.machine.pending.clear();
    core.state.leave_unfinished();
    assert!(core.finish());
    assert!(core.slot(0).parked().is_some());
}

/// vCPU 1 of a higher band runs for so long while vCPU 0 is kept. Returns for how long, if the core would park vCPU 0 before.
fn kept_beside_a_run(core: &mut Core, length: u64) -> Option<u64> {
    let start = core.machine.now;
    wake(&mut core.state, &mut core.machine, VcpuId(1));
    core.go_on();
    assert_eq!(core.state.running, Some(VcpuId(1)));
    let end = start.saturating_add(Ticks(length));
    let park = core.state.next_own_deadline();
    if park < end {
        core.machine.now = park;
        alarm_expired(&mut core.state, &mut core.machine);
        core.go_on();
        assert!(core.slot(0).parked().is_some());
    }
    core.machine.now = end;
    sleep(&mut core.state, &core.machine);
    core.state.decide_anew();
    core.go_on();
    assert_eq!(core.state.running, Some(VcpuId(0)));
    (park < end).then(|| park.0 - start.0)
}

#[test]
fn a_vcpu_is_parked_sooner_if_the_higher_band_ran_long_the_last_time() {
    let mut core = Core::with_staying(
        packed::Policy::Steal,
        Without::default(),
        &[Band::LOWEST, Band::HIGHEST],
        Some(Band::HIGHEST),
    );
    core.admit(0, VcpuState::Runnable);
    core.admit(1, VcpuState::Sleep);
    core.go_on();
    let kept = [50, 500, 500, 50, 50].map(|length| kept_beside_a_run(&mut core, length));
    assert_eq!(kept, [None, Some(100), Some(16), Some(16), None]);
}

/// vCPU 1 of a higher band runs for so long, and sleeps. The core then begins to switch to it so much later than it was to, for its timer.
fn switched_for_a_timer(length: u64, late: u64) -> Core {
    switched_after(length, late, |_| {})
}

/// The same, and something happens while vCPU 1 sleeps.
fn switched_after(length: u64, late: u64, meanwhile: impl FnOnce(&mut Core)) -> Core {
    let mut core = woken_for_a_timer(length, late, meanwhile);
    core.go_on();
    assert_eq!(core.state.running, Some(VcpuId(1)));
    core
}

/// The same, when the alarm has expired.
fn woken_for_a_timer(length: u64, late: u64, meanwhile: impl FnOnce(&mut Core)) -> Core {
    let mut core = Core::with_staying(
        packed::Policy::Steal,
        Without::default(),
        &[Band::LOWEST, Band::HIGHEST],
        Some(Band::HIGHEST),
    );
    core.admit(0, VcpuState::Runnable);
    core.admit(1, VcpuState::Sleep);
    core.go_on();
    let _ = kept_beside_a_run(&mut core, length);
    core.machine.kicks.clear();
    let timer = core.machine.now.saturating_add(Ticks(1_000));
    core.state
        .set_deadline(VcpuId(1), Band::HIGHEST, Early::BySwitch, timer);
    core.machine.loaded_timer = Some(timer);
    let begin = core.state.deadlines.of(VcpuId(1)).unwrap();
    assert_eq!(timer.0 - begin.0, if length > 100 { 13 } else { 10 });
    meanwhile(&mut core);
    core.machine.now = begin.saturating_add(Ticks(late));
    alarm_expired(&mut core.state, &mut core.machine);
    core
}

/// vCPU 0 is not parked for so many microseconds from now on.
#[track_caller]
fn is_kept(core: &Core, micros: u64) {
    assert!(core.slot(0).parked().is_none());
    assert!(core.machine.kicks.is_empty());
    let park = core.machine.now.saturating_add(Ticks(micros));
    assert_eq!(core.state.next_own_deadline(), park);
}

/// Else the core would interrupt the higher band for that.
#[test]
fn a_vcpu_is_parked_before_the_timer_expires_if_the_higher_band_ran_long_the_last_time() {
    let core = switched_for_a_timer(500, 0);
    assert!(core.slot(0).parked().is_some());
    assert_eq!(core.machine.kicks, [(OTHER, VcpuId(0))]);
    let again = core
        .machine
        .now
        .saturating_add(core.state.notify_again_after);
    assert_eq!(core.state.next_own_deadline(), again);
}

/// Its deadline is not earlier for that.
#[test]
fn a_vcpu_is_kept_if_another_vcpu_of_the_higher_band_ran_long_meanwhile() {
    is_kept(
        &switched_after(50, 0, |core| core.state.was_long = true),
        16,
    );
}

#[test]
fn a_vcpu_that_is_parked_before_the_timer_expires_brings_a_core_back_if_it_waits() {
    let core = switched_after(500, 0, |core| core.machine.may_bring_back = true);
    assert!(core.slot(0).parked().is_some());
    let look = core.machine.now.saturating_add(Ticks(500));
    assert_eq!(core.state.next_own_deadline(), look);
}

/// The vCPU that runs next has a higher band: a decision would be the same, and there is no time for one.
#[test]
fn an_interrupt_for_the_vcpu_that_is_parked_before_the_timer_expires_needs_no_decision() {
    let mut core = woken_for_a_timer(500, 0, |core| {
        core.state.sleep_running(|| core.machine.now);
        core.go_on();
    });
    assert_eq!(core.iterate(), Next::Switch(VcpuId(1)));
    core.ring(0);
    switch(&mut core.state, &mut core.machine, VcpuId(1));
    assert!(core.slot(0).parked().is_some());
    assert_eq!(
        core.state.scheduler.state(VcpuId(0)),
        Some(VcpuState::Runnable)
    );
    assert!(!core.state.must_decide);
}

/// Other vCPUs may be parked here. The core looks for them at the end of the park delay, as if it had not parked this one.
#[test]
fn of_a_vcpu_that_another_core_claims_at_once_no_core_is_notified() {
    let core = switched_after(500, 0, |core| {
        core.machine.claimed_in_park = Some(VcpuId(0))
    });
    assert_eq!(core.host_core_of(0), None);
    assert_eq!(core.machine.kicks, []);
    let look = core.machine.now.saturating_add(Ticks(16));
    assert_eq!(core.state.next_own_deadline(), look);
}

#[test]
fn a_vcpu_is_kept_if_there_is_no_time_to_park_it_before_the_timer_expires() {
    for (length, late, micros) in [(500, 11, 16), (50, 0, 100)] {
        is_kept(&switched_for_a_timer(length, late), micros);
    }
}

/// Else two cores that go off would tell each other, and never the third one.
#[test]
fn a_core_that_goes_off_passes_a_notification_on_to_one_that_stays_on() {
    let mut core = Core::steal(&[Band::LOWEST, Band::LOWEST]);
    let third = PcpuId(2);
    core.runs(third, Band::LOWEST);
    core.machine.unwanted = CoreSet::of(OWN) | CoreSet::of(OTHER);
    pass_on(&mut core.state, &mut core.machine, VcpuId(1));
    assert_eq!(core.machine.kicks, [(third, VcpuId(1))]);
}

/// A core on which a real-time vCPU keeps running, while all others are off.
fn only_core(bands: &[Band]) -> Core {
    let mut core = Core::steal(bands);
    core.machine.may_bring_back = true;
    for other in [OTHER, PcpuId(2)] {
        core.machine.shared.presence(other).publish(Level::OFF);
    }
    for id in 0..bands.len() as u8 {
        let state = match bands[usize::from(id)] {
            Band::HIGHEST => VcpuState::Runnable,
            _ => VcpuState::Sleep,
        };
        core.admit(id, state);
    }
    core
}

/// The core goes on until this time, or until it has called another one.
fn until_it_calls(core: &mut Core, end: u64) {
    while core.machine.now.0 < end && core.machine.called.is_empty() {
        let next = core.state.alarm.0.max(core.machine.now.0 + 1);
        core.machine.now = Ticks(next.min(end));
        core.go_on();
    }
}

#[test]
fn the_timer_of_any_sleeping_vcpu_calls_a_core() {
    for (first, second) in [(1_000, 1_000_000), (1_000_000, 1_000)] {
        let mut core = only_core(&[Band::LOWEST, Band::LOWEST, Band::HIGHEST]);
        for (id, at) in [(0, first), (1, second)] {
            core.state
                .set_deadline(VcpuId(id), Band::LOWEST, Early::AtTimer, Ticks(at));
            core.park(id);
        }
        core.state.must_decide = true;
        core.go_on();
        until_it_calls(&mut core, 100_000);
        assert!((1_500..4_000).contains(&core.machine.now.0), "{first}");
    }
}

/// It has slept for long.
#[test]
fn a_vcpu_that_has_just_been_woken_has_not_waited() {
    const KICK: u64 = 11_200;
    let mut core = only_core(&[Band::LOWEST, Band::HIGHEST]);
    core.park(0);
    core.state.must_decide = true;
    core.go_on();
    until_it_calls(&mut core, KICK);
    core.ring(0);
    core.machine.pending.push(VcpuId(0));
    core.machine.mask = None;
    core.go_on();
    until_it_calls(&mut core, KICK + 10_000);
    assert_eq!(core.machine.called, [VcpuId(0)]);
    assert!(core.machine.now.0 >= KICK + 500);
}
