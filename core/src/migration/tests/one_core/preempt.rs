// SPDX-License-Identifier: MIT OR Apache-2.0
//! The short way of a decision decides what the long way does.

use super::core::Core;
use super::{MIDDLE, QUANTUM};
use crate::migration::core_state::Loaded;
use crate::migration::decide::{decide, decide_in_full};
use crate::migration::finish::finish;
use crate::migration::park::wake;
use crate::migration::preempt::preempt;
use crate::migration::{
    Catch, Delivery, ParkedState, Platform, Taken, alarm_expired, arm_stale_alarm, handle, sleep,
};
use crate::schedule::{Band, Ticks, VcpuState};
use proptest::prelude::*;
use spumone_config::gic::VIRTUAL_TIMER;
use spumone_config::packed::{Policy, Without};
use spumone_config::types::VcpuId;
use std::format;
use std::string::String;
use std::vec::Vec;

/// A vCPU of the core.
#[derive(Clone, Copy, Debug)]
struct Here {
    band: Band,
    state: VcpuState,
    deadline: Option<u64>,
}

/// A core that is to decide.
#[derive(Clone, Debug)]
struct Situation {
    policy: Policy,
    /// vCPUs of this band stay; the others move, where the policy moves vCPUs.
    staying: Band,
    vcpus: Vec<Here>,
    /// Whether the alarm has expired; if not, the vCPUs that slept and have a deadline are awake.
    alarm: bool,
    /// Whether a vCPU runs until then.
    runs: bool,
    /// A vCPU that another core has parked.
    parked: bool,
    /// Whether this core has parked what does not run.
    parks: bool,
    /// Whether the vCPU that ran sleeps by now, and stays loaded on the idle core.
    keeps: bool,
    /// Whether the vCPU that runs is not loaded yet.
    switches: bool,
    in_kernel: bool,
    /// When the core was to look again at what other cores have parked; the vCPU that runs has used some of its grace.
    fetch_at: Option<u64>,
    now: u64,
}

impl Situation {
    fn core(&self) -> Core {
        let elsewhere = self.vcpus.len() as u8;
        let bands: Vec<Band> = self.vcpus.iter().map(|it| it.band).collect();
        let bands = [bands.as_slice(), &[Band::LOWEST]].concat();
        let mut core =
            Core::with_staying(self.policy, Without::default(), &bands, Some(self.staying));
        core.machine.in_kernel = self.in_kernel;
        for (id, vcpu) in (0..).zip(&self.vcpus) {
            core.admit(id, vcpu.state);
        }
        if self.runs {
            core.dispatch();
        }
        if self.keeps && core.state.running.is_some() {
            core.state.sleep_running(|| core.machine.now);
            core.state.running = None;
            core.state.scheduler.decide(core.machine.now);
        }
        if self.switches
            && core.state.running.is_some()
            && let Some(Loaded { id, token }) = core.state.loaded.take()
        {
            core.state.keep(id, token);
        }
        if let Some(at) = self.fetch_at {
            let sample = core.machine.sample(&VcpuId(0));
            core.state.grace.sample(core.machine.now, sample, false);
            core.state.fetch_at = Ticks(at);
        }
        for (id, vcpu) in (0..).zip(&self.vcpus) {
            let is_loaded = core.state.loaded() == Some(VcpuId(id));
            if let Some(at) = vcpu.deadline.filter(|_| !is_loaded) {
                core.state.deadlines.set(VcpuId(id), vcpu.band, Ticks(at));
            }
            if self.parks && !is_loaded && core.state.running != Some(VcpuId(id)) {
                core.park(id);
            }
        }
        if self.parked {
            core.parked_elsewhere(elsewhere, ParkedState::Runnable, 0);
        }
        core.machine.now = Ticks(self.now);
        if self.alarm {
            alarm_expired(&mut core.state, &mut core.machine);
        } else {
            for (id, vcpu) in (0..).zip(&self.vcpus) {
                if vcpu.deadline.is_some() {
                    wake(&mut core.state, &mut core.machine, VcpuId(id));
                }
            }
            core.state.decide_anew();
        }
        core
    }
}

fn any_situation() -> impl Strategy<Value = Situation> {
    let band = prop_oneof![
        3 => Just(Band::LOWEST),
        1 => Just(MIDDLE),
        2 => Just(Band::HIGHEST)
    ];
    let state = prop_oneof![
        1 => Just(VcpuState::Off),
        3 => Just(VcpuState::Sleep),
        2 => Just(VcpuState::Runnable)
    ];
    let here = (band, state, prop::option::of(0..2 * QUANTUM)).prop_map(|(band, state, at)| Here {
        band,
        state,
        // Only a vCPU that sleeps or waits has a deadline.
        deadline: at.filter(|_| state != VcpuState::Off),
    });
    let asleep = prop_oneof![3 => Just(VcpuState::Sleep), 1 => Just(VcpuState::Runnable)];
    let rt_band = prop_oneof![4 => Just(Band::HIGHEST), 1 => Just(MIDDLE)];
    let rt = (rt_band, asleep, 0..QUANTUM).prop_map(|(band, state, at)| Here {
        band,
        state,
        deadline: Some(at),
    });
    let policy = prop_oneof![
        3 => Just(Policy::Steal),
        1 => Just(Policy::None),
        1 => Just(Policy::OnDemand),
        1 => Just(Policy::Balance),
        1 => Just(Policy::Delay)
    ];
    (
        policy,
        prop_oneof![3 => Just(Band::HIGHEST), 1 => Just(MIDDLE)],
        rt,
        prop::collection::vec(here, 0..3),
        any::<(bool, bool, bool, bool, bool, bool, bool)>(),
        prop::option::of(1..2 * QUANTUM),
        prop_oneof![4 => 1..QUANTUM, 1 => QUANTUM..2 * QUANTUM],
    )
        .prop_map(
            |(policy, staying, rt, others, flags, fetch_at, now)| Situation {
                policy,
                staying,
                vcpus: [&[rt], others.as_slice()].concat(),
                runs: flags.0,
                parked: flags.1,
                parks: flags.2,
                keeps: flags.3,
                in_kernel: flags.4,
                switches: flags.5,
                alarm: flags.6,
                fetch_at,
                now,
            },
        )
}

/// All that a decision changes.
fn seen(core: &Core) -> String {
    let Core { state, machine } = core;
    format!(
        "{state:#?} {:#?} {:?} {:?} {:?} {:?} {:?}",
        machine.shared,
        machine.kicks,
        machine.alarm,
        machine.mask,
        machine.tokens,
        machine.doorbells
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn the_short_way_decides_what_the_long_way_does(situation in any_situation()) {
        let (mut short, mut long) = (situation.core(), situation.core());
        let now = decide(&mut short.state, &mut short.machine);
        prop_assert_eq!(now, decide_in_full(&mut long.state, &mut long.machine));
        for core in [&mut short, &mut long] {
            finish(&mut core.state, &mut core.machine);
            arm_stale_alarm(&mut core.state, &mut core.machine);
        }
        prop_assert_eq!(seen(&short), seen(&long));
    }
}

/// A vCPU of the highest band that sleeps, with a deadline at 10, beside one of the lowest band that runs.
fn preempted(policy: Policy, alarm: bool, now: u64) -> Option<VcpuId> {
    let rt = Here {
        band: Band::HIGHEST,
        state: VcpuState::Sleep,
        deadline: Some(10),
    };
    let low = Here {
        band: Band::LOWEST,
        state: VcpuState::Runnable,
        deadline: None,
    };
    let situation = Situation {
        policy,
        staying: Band::HIGHEST,
        vcpus: Vec::from([rt, low]),
        alarm,
        runs: true,
        parked: true,
        parks: false,
        keeps: false,
        switches: false,
        in_kernel: true,
        fetch_at: None,
        now,
    };
    let mut core = situation.core();
    assert_eq!(core.state.catches(), Catch::Nothing);
    preempt(&mut core.state, &mut core.machine)?;
    core.state.running()
}

#[test]
fn a_vcpu_above_all_others_takes_the_short_way() {
    for policy in [Policy::None, Policy::Steal, Policy::OnDemand] {
        assert_eq!(preempted(policy, true, 10), Some(VcpuId(0)), "{policy:?}");
        assert_eq!(preempted(policy, true, 9), None, "it is not due");
        assert_eq!(preempted(policy, false, 9), Some(VcpuId(0)), "it is awake");
    }
    // The preemption may have to be deferred.
    assert_eq!(preempted(Policy::Delay, true, 10), None);
}

/// A vCPU of a higher band does not wait until its interrupts are taken back one by one, whether it runs or sleeps.
#[test]
fn a_vcpu_with_many_interrupts_makes_room_for_a_higher_band_in_a_short_time() {
    for sleeps in [false, true] {
        let mut core = Core::steal(&[MIDDLE, Band::LOWEST]);
        core.admit(0, VcpuState::Sleep);
        core.admit(1, VcpuState::Runnable);
        core.go_on();
        assert_eq!(core.state.loaded(), Some(VcpuId(1)));
        core.machine.lists_many = true;
        if sleeps {
            sleep(&mut core.state, &core.machine);
        }
        core.state.scheduler.wake(VcpuId(0));
        core.state.must_decide = true;
        core.go_on();
        assert_eq!(core.state.loaded(), Some(VcpuId(0)));
        assert_eq!(core.machine.taken_back, [true]);
    }
}

/// Its interrupts are taken back already, and it is about to be saved.
#[test]
fn a_timer_that_expires_in_a_switch_waits_until_the_vcpu_is_loaded_again() {
    let mut core = Core::steal(&[MIDDLE, Band::LOWEST]);
    core.admit(0, VcpuState::Runnable);
    core.admit(1, VcpuState::Runnable);
    core.go_on();
    sleep(&mut core.state, &core.machine);
    core.state.must_refresh = true;
    core.machine.delivered.clear();
    handle(
        &mut core.state,
        &mut core.machine,
        Taken::Timer(VIRTUAL_TIMER),
    );
    assert_eq!(core.machine.delivered, [Delivery::LateTimer(VIRTUAL_TIMER)]);
    assert_eq!(
        core.state.scheduler.state(VcpuId(0)),
        Some(VcpuState::Runnable)
    );
}
