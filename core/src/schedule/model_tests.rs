// SPDX-License-Identifier: MIT OR Apache-2.0
//! The scheduler compared with a simple model, and its alarms compared with a core that decides at every tick.

mod model;

use super::*;
use model::Model;
use proptest::prelude::*;
use spumone_config::types::VcpuId;
use std::vec;
use std::vec::Vec;

const QUANTUM: u64 = 10;
/// For how long a vCPU runs out of turn.
const OUT_OF_TURN: u64 = 2;
/// How often it does so on average, and how many times in a row.
const INTERVAL: u64 = 40;
const BURST: u64 = super::out_of_turn::BURST;
const VCPUS: u8 = 6;
/// The bands; each has two of the vCPUs.
const BANDS: u8 = 3;

fn band(rank: u8) -> Band {
    Band::new(rank).unwrap()
}

/// What a test does to a scheduler.
#[derive(Clone, Copy, Debug)]
enum Event {
    Admit(u8, VcpuState),
    Remove(u8),
    Start(u8),
    Stop(u8),
    Wake(u8),
    /// The vCPU is to run out of turn.
    Ask(u8),
    Sleep,
    Yield,
    /// The running vCPU has run out of turn for long enough.
    EndOutOfTurn,
    /// It goes on: its time slice begins.
    TakeTurn,
    /// Extends the time slice of the running vCPU to at least this many ticks from now.
    Extend(u64),
    /// Withdraws the extensions of the time slice.
    Withdraw,
    /// Ends the time slice early.
    EndEarly,
    /// vCPUs of this band and below wait.
    Pause(Option<u8>),
    /// Decide this many ticks later.
    Decide(u64),
}

fn any_event() -> impl Strategy<Value = Event> {
    let vcpu = || 0..VCPUS;
    let state = prop_oneof![
        Just(VcpuState::Off),
        Just(VcpuState::Sleep),
        Just(VcpuState::Runnable),
        Just(VcpuState::Running)
    ];
    prop_oneof![
        2 => (vcpu(), state).prop_map(|(vcpu, state)| Event::Admit(vcpu, state)),
        1 => vcpu().prop_map(Event::Remove),
        2 => vcpu().prop_map(Event::Start),
        1 => vcpu().prop_map(Event::Stop),
        6 => vcpu().prop_map(Event::Wake),
        5 => vcpu().prop_map(Event::Ask),
        3 => Just(Event::Sleep),
        1 => Just(Event::Yield),
        2 => Just(Event::EndOutOfTurn),
        1 => Just(Event::TakeTurn),
        1 => Just(Event::EndEarly),
        3 => prop::option::of(0..QUANTUM).prop_map(|by| by.map_or(Event::Withdraw, Event::Extend)),
        2 => prop::option::of(0..BANDS).prop_map(Event::Pause),
        8 => (0_u64..2 * QUANTUM).prop_map(Event::Decide),
    ]
}

fn band_of(vcpu: u8) -> Band {
    band(vcpu / 2)
}

fn apply(scheduler: &mut Scheduler, event: Event, now: Ticks) -> Option<Decision> {
    match event {
        Event::Admit(vcpu, state) => {
            let _ = scheduler.admit(VcpuId(vcpu), band_of(vcpu), state);
        }
        Event::Remove(vcpu) => {
            let _ = scheduler.remove(VcpuId(vcpu));
        }
        Event::Start(vcpu) => {
            let _ = scheduler.start(VcpuId(vcpu));
        }
        Event::Stop(vcpu) => {
            let _ = scheduler.stop(VcpuId(vcpu));
        }
        Event::Wake(vcpu) => {
            let asleep = scheduler.state(VcpuId(vcpu)) == Some(VcpuState::Sleep);
            assert_eq!(scheduler.wake(VcpuId(vcpu)), asleep);
        }
        Event::Ask(vcpu) => {
            scheduler.run_out_of_turn(VcpuId(vcpu), now);
        }
        Event::Sleep => {
            let current = scheduler.current();
            assert_eq!(scheduler.sleep_current(|| now), current);
        }
        Event::Yield => {
            let current = scheduler.current();
            assert_eq!(scheduler.yield_current(), current);
        }
        Event::EndOutOfTurn => scheduler.end_out_of_turn(),
        Event::TakeTurn => {
            if scheduler.out_of_turn().runs() {
                scheduler.take_turn(now);
            }
        }
        Event::Extend(by) => scheduler.extend_time_slice(now.saturating_add(Ticks(by))),
        Event::Withdraw => scheduler.withdraw_extension(),
        Event::EndEarly => scheduler.end_early(now),
        Event::Pause(rank) => scheduler.pause_up_to(rank.map(band)),
        Event::Decide(_) => return Some(scheduler.decide(now)),
    }
    None
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn the_scheduler_does_what_the_model_does(
        events in prop::collection::vec(any_event(), 1..200),
    ) {
        let mut model = Model::default();
        let mut scheduler = Scheduler::new(Ticks(QUANTUM), Ticks(OUT_OF_TURN));
        for event in events {
            model.apply(event);
            let decision = apply(&mut scheduler, event, Ticks(model.now));

            prop_assert_eq!(scheduler.current().map(|v| v.0), model.current);
            for vcpu in 0..VCPUS {
                let expected = model.vcpus[vcpu as usize].map(|v| v.state);
                prop_assert_eq!(scheduler.state(VcpuId(vcpu)), expected, "of {}", vcpu);
            }
            prop_assert_eq!(scheduler.time_slice(), model.time_slice());
            let highest = model.highest_band();
            prop_assert_eq!(scheduler.highest_band(), highest);
            prop_assert_eq!(scheduler.highest_level(), Level::of(highest));
            for below in [None].into_iter().chain((0..BANDS).map(band).map(Some)) {
                prop_assert_eq!(scheduler.waits_above(below), highest > below, "{:?}", below);
            }
            let Some(decision) = decision else { continue };
            prop_assert_eq!(decision.time_slice, model.time_slice());
            // The scheduler names a vCPU only if another one runs, or the same one in another life.
            let chosen = model.current.map(|vcpu| (vcpu, model.lives[vcpu as usize]));
            match decision.action {
                Action::Same => prop_assert_eq!(model.chosen, chosen),
                Action::Run(vcpu) => {
                    prop_assert_eq!(vcpu.map(|v| v.0), model.current);
                    let stale = model.chosen.is_some_and(|(v, life)| model.lives[v as usize] != life);
                    prop_assert!(stale || model.chosen != chosen);
                }
            }
            model.chosen = chosen;
            // The highest band runs, unless it is paused.
            prop_assert_eq!(scheduler.current_band(), highest.filter(|_| highest > model.paused));
        }
    }
}

#[test]
fn events_that_do_not_apply_are_refused_and_change_nothing() {
    let mut scheduler = Scheduler::new(Ticks(QUANTUM), Ticks(OUT_OF_TURN));
    let (vcpu, none) = (VcpuId(3), VcpuId(32));
    assert_eq!(scheduler.start(vcpu), Err(Refused::NotHere(vcpu)));
    assert_eq!(scheduler.stop(vcpu), Err(Refused::NotHere(vcpu)));
    assert_eq!(scheduler.remove(vcpu), Err(Refused::NotHere(vcpu)));
    assert_eq!(
        scheduler.admit(none, band(0), VcpuState::Off),
        Err(Refused::NoSuchVcpu(none))
    );
    assert_eq!(
        scheduler.admit(vcpu, band(0), VcpuState::Running),
        Err(Refused::WrongState(vcpu, VcpuState::Running))
    );
    assert_eq!(scheduler.admit(vcpu, band(0), VcpuState::Off), Ok(()));
    assert_eq!(
        scheduler.admit(vcpu, band(0), VcpuState::Off),
        Err(Refused::AlreadyHere(vcpu))
    );
    assert!(!scheduler.wake(vcpu));
    assert_eq!(scheduler.start(vcpu), Ok(()));
    assert_eq!(
        scheduler.start(vcpu),
        Err(Refused::WrongState(vcpu, VcpuState::Runnable))
    );
    assert_eq!(scheduler.remove(vcpu), Ok(VcpuState::Runnable));
    let idle = Decision {
        action: Action::Same,
        time_slice: None,
    };
    assert_eq!(scheduler.decide(Ticks(0)), idle);
}

#[test]
fn a_preempted_vcpu_continues_before_others_of_its_band_with_the_rest_of_its_time_slice() {
    let mut scheduler = Scheduler::new(Ticks(QUANTUM), Ticks(OUT_OF_TURN));
    let (first, second, higher) = (VcpuId(0), VcpuId(1), VcpuId(2));
    scheduler
        .admit(first, band(0), VcpuState::Runnable)
        .unwrap();
    scheduler
        .admit(second, band(0), VcpuState::Runnable)
        .unwrap();
    scheduler.admit(higher, band(1), VcpuState::Sleep).unwrap();
    let run = |vcpu| Action::Run(Some(vcpu));
    assert_eq!(scheduler.decide(Ticks(0)).action, run(first));
    scheduler.wake(higher);
    assert_eq!(scheduler.decide(Ticks(4)).action, run(higher));
    scheduler.sleep_current(|| Ticks(100));
    let back = scheduler.decide(Ticks(100));
    assert_eq!(back.action, run(first));
    assert_eq!(back.time_slice.map(|slice| slice.end), Some(Ticks(106)));
    assert_eq!(scheduler.decide(Ticks(105)).action, Action::Same);
    assert_eq!(scheduler.decide(Ticks(106)).action, run(second));
}

/// Two vCPUs of a band. The second has run out of turn at 0, and goes on with its turn from 2 on, at which time this returns.
fn with_a_turn_taken_early() -> Scheduler {
    let mut scheduler = Scheduler::new(Ticks(QUANTUM), Ticks(OUT_OF_TURN));
    for vcpu in [0, 1] {
        let admitted = scheduler.admit(VcpuId(vcpu), band(0), VcpuState::Runnable);
        admitted.unwrap();
    }
    scheduler.decide(Ticks(0));
    assert!(scheduler.run_out_of_turn(VcpuId(1), Ticks(0)));
    scheduler.decide(Ticks(1));
    scheduler.take_turn(Ticks(3));
    assert_eq!(scheduler.current(), Some(VcpuId(1)));
    scheduler
}

#[test]
fn a_vcpu_that_has_slept_in_a_turn_taken_early_runs_out_of_turn_again() {
    let mut scheduler = with_a_turn_taken_early();
    scheduler.sleep_current(|| Ticks(4));
    scheduler.decide(Ticks(4));
    scheduler.wake(VcpuId(1));
    assert!(scheduler.run_out_of_turn(VcpuId(1), Ticks(6)));
    scheduler.decide(Ticks(7));
    assert_eq!(scheduler.current(), Some(VcpuId(1)));
}

/// Else a vCPU could have all turns, if it sleeps for a moment at the end of each.
#[test]
fn a_turn_taken_early_in_which_a_vcpu_sleeps_counts_as_time_out_of_turn() {
    let mut scheduler = with_a_turn_taken_early();
    let mut now = 12;
    let mut times = 0;
    for _ in 0..100 {
        scheduler.sleep_current(|| Ticks(now));
        scheduler.wake(VcpuId(1));
        scheduler.decide(Ticks(now));
        while !scheduler.run_out_of_turn(VcpuId(1), Ticks(now)) {
            now += 1;
            scheduler.decide(Ticks(now));
            if scheduler.current() == Some(VcpuId(1)) {
                scheduler.sleep_current(|| Ticks(now));
                scheduler.wake(VcpuId(1));
                scheduler.decide(Ticks(now));
            }
        }
        scheduler.decide(Ticks(now + 1));
        scheduler.take_turn(Ticks(now + 3));
        times += QUANTUM;
        now += 3 + QUANTUM - 1;
    }
    // A time out of turn each INTERVAL.
    let most = (now / INTERVAL + BURST) * OUT_OF_TURN + QUANTUM;
    assert!(times <= 2 * most, "{times} of {now}, {most} at most");
}

#[test]
fn the_first_in_the_queue_does_not_wait_for_the_end_of_a_turn_taken_early() {
    let mut scheduler = with_a_turn_taken_early();
    assert!(scheduler.run_out_of_turn(VcpuId(0), Ticks(4)));
    scheduler.decide(Ticks(5));
    assert_eq!(scheduler.current(), Some(VcpuId(0)));
}

#[test]
fn a_vcpu_that_sleeps_and_wakes_before_a_decision_goes_on() {
    let mut scheduler = Scheduler::new(Ticks(QUANTUM), Ticks(OUT_OF_TURN));
    scheduler
        .admit(VcpuId(0), band(0), VcpuState::Runnable)
        .unwrap();
    scheduler.decide(Ticks(0));
    scheduler.sleep_current(|| Ticks(1));
    scheduler.wake(VcpuId(0));
    assert_eq!(scheduler.decide(Ticks(1)).action, Action::Same);
}

#[test]
fn a_restarted_vcpu_counts_as_another_one() {
    let mut scheduler = Scheduler::new(Ticks(QUANTUM), Ticks(OUT_OF_TURN));
    let vcpu = VcpuId(0);
    scheduler.admit(vcpu, band(0), VcpuState::Runnable).unwrap();
    scheduler.decide(Ticks(0));
    scheduler.stop(vcpu).unwrap();
    scheduler.start(vcpu).unwrap();
    assert_eq!(scheduler.decide(Ticks(1)).action, Action::Run(Some(vcpu)));
    scheduler.stop(vcpu).unwrap();
    assert_eq!(scheduler.decide(Ticks(1)).action, Action::Run(None));
}

/// A vCPU of the simulated core: it runs for a while, then sleeps with its timer set, and repeats this.
#[derive(Clone, Debug)]
struct Task {
    band: u8,
    /// Pairs of ticks: how long it runs, then how long it sleeps.
    script: Vec<(u64, u64)>,
}

fn any_task() -> impl Strategy<Value = Task> {
    let long = prop_oneof![3 => 1_u64..8, 2 => 8_u64..40, 1 => Just(1000)];
    (0_u8..3, prop::collection::vec((long, 1_u64..60), 1..4))
        .prop_map(|(band, script)| Task { band, script })
}

/// Runs tasks for some ticks. Returns which vCPU ran in each tick, and how often EL2 was entered. It is entered when a
/// task sleeps and when the alarm is due; or, with `every_tick`, at every tick.
fn simulate(tasks: &[Task], ticks: u64, every_tick: bool) -> (Vec<Option<u8>>, usize) {
    let mut scheduler = Scheduler::new(Ticks(QUANTUM), Ticks(OUT_OF_TURN));
    let mut deadlines = Deadlines::new();
    let mut steps: Vec<_> = tasks
        .iter()
        .map(|task| task.script.iter().cycle())
        .collect();
    let mut left: Vec<_> = steps.iter_mut().map(|step| *step.next().unwrap()).collect();
    for (vcpu, task) in (0..).zip(tasks) {
        scheduler
            .admit(VcpuId(vcpu), band(task.band), VcpuState::Runnable)
            .unwrap();
    }
    let (mut trace, mut entries) = (Vec::new(), 0);
    let mut alarm = Some(Ticks(0));
    for now in (0..ticks).map(Ticks) {
        let sleeper = scheduler.current().filter(|vcpu| left[vcpu.index()].0 == 0);
        if every_tick || sleeper.is_some() || alarm.is_some_and(|alarm| alarm <= now) {
            entries += 1;
            if let Some(vcpu) = sleeper {
                let at = now.saturating_add(Ticks(left[vcpu.index()].1));
                deadlines.set(vcpu, band(tasks[vcpu.index()].band), at);
                left[vcpu.index()] = *steps[vcpu.index()].next().unwrap();
                scheduler.sleep_current(|| now);
            }
            let running = scheduler.current_band().filter(|_| !every_tick);
            while let Some(vcpu) = deadlines.take_due(now, running) {
                assert!(scheduler.wake(vcpu));
            }
            alarm = deadlines.next_alarm(scheduler.decide(now).time_slice);
            assert!(alarm.is_none_or(|alarm| alarm > now), "the alarm stays due");
        }
        if let Some(current) = scheduler.current() {
            left[current.index()].0 -= 1;
        }
        trace.push(scheduler.current().map(|vcpu| vcpu.0));
    }
    (trace, entries)
}

proptest! {
    /// The alarm expires whenever it must.
    #[test]
    fn no_alarm_is_missed(tasks in prop::collection::vec(any_task(), 1..6)) {
        let (by_alarm, _) = simulate(&tasks, 600, false);
        let (by_tick, _) = simulate(&tasks, 600, true);
        prop_assert_eq!(by_alarm, by_tick);
    }

    /// The alarm expires only when it must: EL2 is entered for a sleeping vCPU, for one of a higher band, and at the end
    /// of a time slice.
    #[test]
    fn a_vcpu_that_no_other_can_preempt_is_not_interrupted(
        tasks in prop::collection::vec(any_task(), 0..5),
    ) {
        let mut tasks = tasks;
        tasks.push(Task { band: 7, script: vec![(u64::MAX, 1)] });
        let (trace, entries) = simulate(&tasks, 600, false);
        prop_assert_eq!(entries, 1);
        prop_assert!(trace.iter().all(|&ran| ran == Some(tasks.len() as u8 - 1)));
    }

    /// vCPUs of one band that are always runnable get the same time, up to one quantum, however often a vCPU of a
    /// higher band preempts them.
    #[test]
    fn vcpus_of_one_band_share_fairly(
        vcpus in 2_u8..5,
        disturber in any_task(),
    ) {
        let mut tasks: Vec<_> = (0..vcpus)
            .map(|_| Task { band: 0, script: vec![(u64::MAX, 1)] })
            .collect();
        tasks.push(Task { band: 1, ..disturber });
        let (trace, _) = simulate(&tasks, 600, false);
        let mut ran = vec![0_u64; tasks.len()];
        for vcpu in trace.into_iter().flatten() {
            ran[usize::from(vcpu)] += 1;
            let shares = &ran[..usize::from(vcpus)];
            let spread = shares.iter().max().unwrap() - shares.iter().min().unwrap();
            prop_assert!(spread <= QUANTUM, "{:?}", ran);
        }
    }

    /// So they do if interrupts come for some of them all the time, except for what runs out of turn until its turn has come, also if each then goes on with its next
    /// turn.
    #[test]
    fn vcpus_that_run_out_of_turn_get_no_more_than_others(
        vcpus in 2_u8..5,
        take_turns: bool,
        asks in prop::collection::vec((1_u64..4, 0_u8..4), 1..40),
    ) {
        let mut scheduler = Scheduler::new(Ticks(QUANTUM), Ticks(OUT_OF_TURN));
        for vcpu in 0..vcpus {
            scheduler.admit(VcpuId(vcpu), band(0), VcpuState::Runnable).unwrap();
        }
        let mut asks = asks.iter().cycle();
        let mut next = *asks.next().unwrap();
        let mut ran = vec![0_u64; usize::from(vcpus)];
        let mut cut = 0;
        for now in 0..20_000 {
            if next.0 == 0 {
                cut += u64::from(scheduler.run_out_of_turn(VcpuId(next.1 % vcpus), Ticks(now)));
                next = *asks.next().unwrap();
            }
            next.0 -= 1;
            let is_over = scheduler.time_slice().is_some_and(|it| it.end <= Ticks(now));
            if take_turns && is_over && scheduler.out_of_turn().runs() {
                scheduler.take_turn(Ticks(now));
            }
            scheduler.decide(Ticks(now));
            ran[scheduler.current().unwrap().index()] += 1;
            let spread = ran.iter().max().unwrap() - ran.iter().min().unwrap();
            // A turn that is taken early moves another one back.
            let most = if take_turns { 3 } else { 2 };
            prop_assert!(spread <= most * QUANTUM, "{:?}", ran);
        }
        prop_assert!(cut > 0, "no vCPU has run out of turn");
    }
}
