// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the core looks for interrupts, so that one for a vCPU of a higher band waits for a short piece of work only.

use super::core::Core;
use super::{MIDDLE, OTHER, QUANTUM};
use crate::migration::decide::decide_in_full;
use crate::migration::fetch::{Fetched, fetch};
use crate::migration::{Next, ParkedState, refresh, sleep, switch, take_interrupts};
use crate::schedule::{Band, Ticks, VcpuState};
use crate::sets::VcpuSet;
use spumone_config::packed::{self, Without};
use spumone_config::types::{PcpuId, VcpuId};
use std::vec::Vec;

#[test]
fn interrupts_for_ever_higher_bands_are_taken_before_the_decision() {
    let bands = [Band::LOWEST, MIDDLE, MIDDLE.next_higher(), Band::HIGHEST];
    let mut core = Core::steal(&bands);
    for id in 0..4 {
        core.admit(id, VcpuState::Sleep);
    }
    core.iterate();
    core.machine.pending = [3, 2, 1, 0].map(VcpuId).into();
    take_interrupts(&mut core.state, &mut core.machine);
    assert!(core.machine.pending.is_empty());
}

/// A storm for vCPUs of one band: its first interrupt leads to a decision, and one more is taken before it at most.
#[test]
fn further_interrupts_for_the_same_band_wait_for_the_decision() {
    let mut core = Core::steal(&[Band::LOWEST; 4]);
    for id in 0..4 {
        core.admit(id, VcpuState::Sleep);
    }
    core.iterate();
    core.machine.mask = None;
    core.machine.pending = [3, 2, 1, 0].map(VcpuId).into();
    take_interrupts(&mut core.state, &mut core.machine);
    assert!(core.machine.pending.len() >= 2);
}

/// A core whose vCPU 1 sleeps, and which is about to switch to vCPU 0 of a lower band. vCPU 2 of a higher band sleeps.
fn about_to_switch() -> Core {
    let mut core = Core::steal(&[Band::LOWEST, MIDDLE, Band::HIGHEST]);
    core.admit(0, VcpuState::Runnable);
    core.admit(1, VcpuState::Runnable);
    core.admit(2, VcpuState::Sleep);
    core.go_on();
    assert_eq!(core.state.loaded(), Some(VcpuId(1)));
    sleep(&mut core.state, &core.machine);
    assert_eq!(core.iterate(), Next::Switch(VcpuId(0)));
    core
}

/// The vCPU that is saved wakes, so the core decides again. An interrupt for a still higher band does not wait for that decision.
#[test]
fn the_core_looks_once_a_vcpu_is_saved_whose_timer_has_expired_meanwhile() {
    let mut core = about_to_switch();
    core.machine.kicked_in_save = Some(VcpuId(2));
    switch(&mut core.state, &mut core.machine, VcpuId(0));
    assert!(core.machine.pending.is_empty());
    assert_eq!(core.state.scheduler.highest_band(), Some(Band::HIGHEST));
}

/// The core must decide again already when it parks the vCPU that it has saved. An interrupt that comes meanwhile does not wait for the decision, either.
#[test]
fn the_core_looks_once_a_vcpu_is_parked_whose_timer_has_expired_meanwhile() {
    let mut core = about_to_switch();
    core.machine.kicked_in_save = Some(VcpuId(0));
    core.machine.kicked_in_park = Some(VcpuId(2));
    switch(&mut core.state, &mut core.machine, VcpuId(0));
    assert!(core.slot(1).parked().is_some());
    assert_eq!(core.machine.pending, [VcpuId(0)]);
    assert_eq!(core.state.scheduler.highest_band(), Some(Band::HIGHEST));
}

/// vCPU 1 sleeps, and the core decides that vCPU 0 of the lowest band runs. Its mask lets the interrupt for vCPU 2 through, so the core decides again.
/// An interrupt for a still higher band, which comes while this decision ends, does not wait for the next one.
#[test]
fn the_core_looks_at_the_end_of_a_decision_that_is_made_again() {
    let bands = [Band::LOWEST, Band::HIGHEST, MIDDLE, Band::HIGHEST];
    let mut core = Core::steal(&bands);
    core.admit(0, VcpuState::Runnable);
    core.admit(1, VcpuState::Runnable);
    core.admit(2, VcpuState::Sleep);
    core.admit(3, VcpuState::Sleep);
    core.go_on();
    assert_eq!(core.state.loaded(), Some(VcpuId(1)));
    core.machine.pending = [VcpuId(2)].into();
    core.machine.kicked_after_timer = Some(VcpuId(3));
    sleep(&mut core.state, &core.machine);
    core.machine.is_timer_read.set(false);
    decide_in_full(&mut core.state, &mut core.machine);
    assert!(core.machine.pending.is_empty() && core.machine.kicked_after_timer.is_none());
    assert_eq!(core.state.scheduler.highest_band(), Some(Band::HIGHEST));
}

/// An alarm that was taken at a look before is for a vCPU that does not wait until the core has fetched.
#[test]
fn fetching_ends_once_the_alarm_has_expired() {
    for has_expired in [false, true] {
        let mut core = Core::steal(&[Band::LOWEST, Band::LOWEST, Band::HIGHEST]);
        core.admit(0, VcpuState::Runnable);
        core.admit(2, VcpuState::Sleep);
        core.go_on();
        core.parked_elsewhere(1, ParkedState::Asleep, 0);
        core.state.alarm_expired = has_expired;
        let now = core.machine.now;
        let fetched = fetch(&mut core.state, &mut core.machine, now);
        assert_eq!(fetched == Fetched::Ended, has_expired);
    }
}

/// A core that runs vCPU 0. A delivery to it rings the doorbells of vCPUs 1 and 2, which another core has parked, and is interrupted for
/// vCPU 3 of a higher band.
fn delivers() -> Core {
    let mut core = Core::steal(&[Band::LOWEST, MIDDLE, MIDDLE, Band::HIGHEST]);
    core.admit(0, VcpuState::Runnable);
    core.admit(3, VcpuState::Sleep);
    core.go_on();
    assert_eq!(core.state.running, Some(VcpuId(0)));
    for id in [1, 2] {
        core.parked_elsewhere(id, ParkedState::Asleep, 0);
    }
    core.runs(OTHER, Band::LOWEST);
    core.machine.rung_in_delivery = VcpuSet::of(VcpuId(1)) | VcpuSet::of(VcpuId(2));
    core.machine.kicked_in_delivery = Some(VcpuId(3));
    core
}

/// vCPU 3 comes first, and the core has not forgotten the others.
fn notifies_after_the_preemption(mut core: Core) {
    assert!(core.machine.kicks.is_empty());
    assert!(core.state.must_decide);
    core.go_on();
    assert_eq!(core.state.running, Some(VcpuId(3)));
    assert_eq!(core.machine.kicks, [(OTHER, VcpuId(1)), (OTHER, VcpuId(2))]);
}

#[test]
fn the_core_looks_before_it_notifies_of_what_a_delivery_has_rung() {
    let mut core = delivers();
    core.ring(0);
    core.machine.pending = [VcpuId(0)].into();
    core.machine.mask = None;
    take_interrupts(&mut core.state, &mut core.machine);
    notifies_after_the_preemption(core);
}

/// The list registers of the vCPU are not filled, so the core refreshes it before it runs. Without that, each decision would deliver to it first, and
/// might never notify the other vCPUs.
#[test]
fn a_vcpu_whose_delivery_is_interrupted_is_refreshed() {
    let mut core = delivers();
    core.machine.rung_in_delivery |= VcpuSet::of(VcpuId(0));
    core.ring(0);
    core.machine.pending = [VcpuId(0)].into();
    core.machine.mask = None;
    take_interrupts(&mut core.state, &mut core.machine);
    assert!(core.state.must_refresh && !core.state.rung.contains(VcpuId(0)));
    notifies_after_the_preemption(core);
}

#[test]
fn the_core_looks_before_it_notifies_of_what_a_refresh_has_rung() {
    let mut core = delivers();
    refresh(&mut core.state, &mut core.machine);
    notifies_after_the_preemption(core);
}

#[test]
fn the_core_looks_before_it_notifies_of_what_a_load_has_rung() {
    let mut core = delivers();
    core.state.rung = core.machine.rung_in_delivery.take();
    core.machine.pending = [VcpuId(3)].into();
    assert_eq!(core.iterate(), Next::Decide);
    notifies_after_the_preemption(core);
}

/// A core that runs vCPU 0, which has rung the doorbells of seven others that are on another core. vCPU 1, of a higher band, sleeps here.
fn rings(policy: packed::Policy) -> Core {
    let mut bands = [Band::LOWEST; 9];
    bands[1] = Band::HIGHEST;
    let mut core = Core::with_staying(policy, Without::default(), &bands, Some(Band::HIGHEST));
    core.admit(0, VcpuState::Runnable);
    core.admit(1, VcpuState::Sleep);
    core.go_on();
    assert_eq!(core.state.running, Some(VcpuId(0)));
    core.runs(OTHER, Band::LOWEST);
    for id in 2..9 {
        match policy.moves_vcpus() {
            true => core.parked_elsewhere(id, ParkedState::Asleep, 0),
            false => core.machine.doorbells[usize::from(id)].settle(OTHER),
        }
        core.state.rung |= VcpuSet::of(VcpuId(id));
    }
    core.machine.pending = [VcpuId(1)].into();
    core.go_on();
    assert_eq!(core.state.running, Some(VcpuId(1)));
    assert_eq!(core.machine.kicks.len(), 3);
    core
}

const POLICIES: [packed::Policy; 3] = [
    packed::Policy::Steal,
    packed::Policy::None,
    packed::Policy::Cosched,
];

/// vCPU 1 waits for three of them only. The core goes on a short time after that, also if it has decided again in between.
#[test]
fn a_vcpu_of_a_higher_band_is_entered_before_all_the_others_are_notified() {
    for policy in POLICIES {
        for decides_again in [false, true] {
            let mut core = rings(policy);
            // It traps: the others are still put off.
            core.state.must_decide |= decides_again;
            core.go_on();
            assert_eq!(core.machine.kicks.len(), 3);
            for count in [6, 7] {
                assert!(core.machine.alarm <= core.state.rung_at, "{policy:?}");
                core.machine.now = core.state.rung_at;
                core.go_on();
                assert_eq!(core.machine.kicks.len(), count, "{policy:?}");
            }
            assert!(core.state.rung.is_empty() && core.state.rung_at == Ticks::NEVER);
        }
    }
}

/// What is put off is not forgotten when the higher band sleeps before its time.
#[test]
fn what_is_put_off_comes_once_the_higher_band_sleeps() {
    for policy in POLICIES {
        let mut core = rings(policy);
        sleep(&mut core.state, &core.machine);
        core.go_on();
        assert_eq!(core.state.running, Some(VcpuId(0)));
        assert_eq!(core.machine.kicks.len(), 7);
        assert_eq!(core.state.rung_at, Ticks::NEVER);
    }
}

/// A search through the parked vCPUs and a notification take long: an interrupt does not wait for them.
#[test]
fn the_core_looks_before_it_notifies_of_parked_vcpus() {
    for (parked, is_interrupted) in [(3, false), (3, true), (6, true)] {
        let mut core = Core::steal(&[Band::LOWEST; 8]);
        for id in 0..=parked {
            core.admit(id, VcpuState::Runnable);
        }
        core.dispatch();
        for id in 1..=parked {
            core.park(id);
        }
        core.state.must_decide = false;
        core.machine.alarm = Ticks::NEVER;
        core.machine.pending = Vec::from_iter(is_interrupted.then_some(VcpuId(0)));
        core.publish_and_notify(core.machine.now);
        assert_eq!(core.machine.kicks.is_empty(), is_interrupted);
        assert_eq!(core.state.must_decide, is_interrupted);
    }
}

/// vCPU 1 has lost the core to vCPU 0, which is of its band or of a higher one. When the core has parked vCPU 1, and before it notifies another core, an
/// interrupt for vCPU 2 comes.
fn interrupted_after_it_has_parked(other: Band, interrupted_for: Band) -> Core {
    let bands = [other, MIDDLE, interrupted_for, Band::LOWEST];
    let mut core = Core::steal(&bands);
    core.machine.in_kernel = false;
    core.admit(1, VcpuState::Runnable);
    core.admit(2, VcpuState::Sleep);
    core.go_on();
    assert_eq!(core.state.loaded(), Some(VcpuId(1)));
    core.admit(0, VcpuState::Runnable);
    core.state.must_decide = true;
    core.state.fetch_at = Ticks(0);
    if other == MIDDLE {
        // Its turn is over.
        core.machine.now.0 += QUANTUM;
        take_interrupts(&mut core.state, &mut core.machine);
    }
    assert!((0..3).any(|_| core.iterate() == Next::Switch(VcpuId(0))));
    core.machine.kicked_in_park = Some(VcpuId(2));
    switch(&mut core.state, &mut core.machine, VcpuId(0));
    core
}

/// An interrupt for a higher band does not wait for the notification, and the notification is not forgotten.
#[test]
fn the_core_looks_before_it_notifies_of_a_vcpu_that_it_has_parked() {
    let above = MIDDLE.next_higher();
    for (other, interrupted_for) in [
        (MIDDLE, Band::HIGHEST),
        (above, Band::HIGHEST),
        (MIDDLE, MIDDLE),
        (above, above),
    ] {
        let mut core = interrupted_after_it_has_parked(other, interrupted_for);
        assert!(core.slot(1).parked().is_some());
        assert!(core.machine.kicks.is_empty());
        core.go_on();
        if interrupted_for == Band::HIGHEST {
            assert_eq!(core.state.running, Some(VcpuId(2)));
        }
        // Of one at a time: of vCPU 0, if that has lost the core meanwhile.
        core.machine.kicks.clear();
        core.machine.now = core.state.notify_at;
        core.go_on();
        assert!(
            !core.machine.kicks.is_empty(),
            "{other:?} {interrupted_for:?}"
        );
        assert!(core.machine.pending.is_empty());
    }
}

/// The same in the lowest band that moves, while the other cores run one vCPU of that band each: one of them is notified.
#[test]
fn the_core_notifies_a_busy_core_of_a_vcpu_though_it_was_interrupted() {
    for (interrupted_for, band) in [
        (VcpuId(2), MIDDLE),
        (VcpuId(0), Band::LOWEST),
        (VcpuId(2), Band::LOWEST),
    ] {
        let mut core = Core::steal(&[Band::LOWEST, Band::LOWEST, band]);
        core.machine.in_kernel = false;
        for other in [OTHER, PcpuId(2)] {
            core.runs(other, Band::LOWEST);
        }
        core.admit(1, VcpuState::Runnable);
        core.admit(2, VcpuState::Sleep);
        core.go_on();
        core.admit(0, VcpuState::Runnable);
        core.state.must_decide = true;
        core.state.fetch_at = Ticks(0);
        core.machine.now.0 += QUANTUM;
        take_interrupts(&mut core.state, &mut core.machine);
        assert!((0..3).any(|_| core.iterate() == Next::Switch(VcpuId(0))));
        core.machine.kicks.clear();
        core.machine.kicked_in_park = Some(interrupted_for);
        switch(&mut core.state, &mut core.machine, VcpuId(0));
        assert!(core.slot(1).parked().is_some() && core.machine.kicks.is_empty());
        core.go_on();
        if band == MIDDLE {
            assert_eq!(core.state.running, Some(VcpuId(2)));
            sleep(&mut core.state, &core.machine);
            core.go_on();
        }
        for _ in 0..QUANTUM / 100 {
            core.machine.now.0 += 50;
            core.go_on();
        }
        assert!(
            !core.machine.kicks.is_empty(),
            "{interrupted_for:?} {band:?}"
        );
    }
}
