// SPDX-License-Identifier: MIT OR Apache-2.0
//! Early switches where a vCPU must not wait: an interrupt has come for it.

use super::*;
use crate::migration::Early;

/// A core that has measured no switch begins so early.
const LONGEST: Ticks = Ticks(10 * FREQUENCY_HZ as u64 / 1_000_000);

/// The loop until the core does something else than to decide.
fn next(core: &mut Core) -> Next {
    for _ in 0..8 {
        match core.iterate() {
            Next::Decide => {}
            next => return next,
        }
    }
    panic!("the core decides again and again");
}

/// Loads and runs vCPU 0, which is woken early.
fn runs_early_vcpu(core: &mut Core) {
    core.admit(0, VcpuState::Runnable);
    assert_eq!(next(core), Next::Switch(VcpuId(0)));
    switch(&mut core.state, &mut core.machine, VcpuId(0));
    assert_eq!(next(core), Next::Run(VcpuId(0)));
}

/// The core switches to vCPU 0 before the vCPU's timer expires, and enters it.
fn switches_and_enters(core: &mut Core) {
    assert_eq!(next(core), Next::Switch(VcpuId(0)));
    core.machine.loaded_timer = Some(Ticks(1_000));
    switch(&mut core.state, &mut core.machine, VcpuId(0));
    assert_eq!(next(core), Next::Run(VcpuId(0)));
}

/// vCPU 0 is parked here asleep, and its timer expires at 1,000.
fn parks_early_vcpu(core: &mut Core) {
    core.admit(0, VcpuState::Sleep);
    let facts = *core.machine.shared.vcpu(VcpuId(0)).unwrap();
    core.state
        .set_deadline(VcpuId(0), facts.band, facts.early, Ticks(1_000));
    core.park(0);
    core.machine.now = Ticks(1_000 - EARLY.0 + 5);
}

#[test]
fn it_waits_for_its_timer_and_runs_when_that_expires() {
    let mut core = Core::steal(&[MIDDLE, Band::LOWEST]);
    runs_early_vcpu(&mut core);
    core.machine.loaded_timer = Some(Ticks(1_000));
    sleep(&mut core.state, &core.machine);
    assert_eq!(next(&mut core), Next::Idle);
    assert_eq!(core.machine.alarm, Ticks(1_000 - EARLY.0));
    core.machine.now = core.machine.alarm;
    take_interrupts(&mut core.state, &mut core.machine);
    assert_eq!(next(&mut core), Next::Await);
    core.machine.now = Ticks(1_000);
    take_interrupts(&mut core.state, &mut core.machine);
    assert_eq!(next(&mut core), Next::Run(VcpuId(0)));
}

/// Its timer's interrupt is then taken while it is runnable, and only noted.
#[test]
fn it_does_not_wait_if_its_timer_expires_while_its_core_fetches() {
    let mut core = Core::steal(&[MIDDLE, MIDDLE]);
    runs_early_vcpu(&mut core);
    core.machine.loaded_timer = Some(Ticks(1_000));
    sleep(&mut core.state, &core.machine);
    assert_eq!(next(&mut core), Next::Idle);
    core.machine.now = core.machine.alarm;
    core.machine.fetch_takes = EARLY.0 + 10;
    take_interrupts(&mut core.state, &mut core.machine);
    assert_eq!(next(&mut core), Next::Run(VcpuId(0)));
    assert!(core.machine.is_timer_taken && core.state.must_refresh());
}

/// The other core sees that it is runnable, marks it as wanted, and sends no kick.
#[test]
fn it_does_not_wait_if_it_was_rung_while_it_was_parked() {
    let mut core = Core::steal(&[MIDDLE, Band::LOWEST, Band::HIGHEST]);
    core.runs(OWN, Band::HIGHEST);
    parks_early_vcpu(&mut core);
    core.machine.rung_in_fetch = Some(VcpuId(0));
    switches_and_enters(&mut core);
}

/// The deadline is left behind on the core that had parked it.
#[test]
fn it_does_not_wait_if_it_comes_back_with_an_interrupt() {
    let mut core = Core::steal(&[MIDDLE, Band::LOWEST, MIDDLE]);
    parks_early_vcpu(&mut core);
    let seen = core.slot(0).parked().unwrap();
    let claim = core.machine.shared.claim(VcpuId(0), seen).unwrap();
    core.machine.take_token(claim).unwrap();
    core.machine.doorbells[0].settle(OTHER);
    core.parked_elsewhere(0, ParkedState::Wanted, 900);
    core.ring(0);
    core.runs(OTHER, Band::HIGHEST);
    switches_and_enters(&mut core);
}

/// Its kernel, which waits in its idle loop, holds no lock.
#[test]
fn its_wait_defers_no_preemption() {
    let mut core = Core::new(
        packed::Policy::Delay,
        Without::default(),
        &[MIDDLE, Band::HIGHEST],
    );
    core.admit(1, VcpuState::Sleep);
    runs_early_vcpu(&mut core);
    core.machine.loaded_timer = Some(core.machine.now.saturating_add(EARLY));
    sleep(&mut core.state, &core.machine);
    assert_eq!(next(&mut core), Next::Await);
    wake(&mut core.state, &mut core.machine, VcpuId(1));
    assert_eq!(next(&mut core), Next::Switch(VcpuId(1)));
}

/// The core begins the first switch as early as it may, the second one as long before the timer expires as the first one took.
#[test]
fn a_core_switches_as_early_as_its_last_switch_took() {
    let mut core = Core::new(
        packed::Policy::None,
        Without::default(),
        &[Band::HIGHEST, Band::LOWEST],
    );
    core.admit(0, VcpuState::Runnable);
    core.admit(1, VcpuState::Runnable);
    core.go_on();
    let mut alarms = [0; 3];
    for (round, alarm) in (1..).zip(&mut alarms) {
        let timer = Ticks(1_000 * round);
        core.machine.loaded_timer = Some(timer);
        core.machine.saved_timer = Some(timer);
        sleep(&mut core.state, &core.machine);
        core.go_on();
        assert_eq!(core.state.running, Some(VcpuId(1)));
        core.machine.loaded_timer = None;
        core.machine.saved_timer = None;
        *alarm = timer.0 - core.machine.alarm.0;
        core.machine.now = core.machine.alarm;
        core.machine.load_takes = 7;
        core.go_on();
        assert_eq!(core.state.loaded(), Some(VcpuId(0)));
        core.machine.now = timer;
        core.state.end_await(VcpuId(0));
    }
    assert_eq!(alarms, [LONGEST.0, 7, 7]);
}

/// vCPU 1 is to run, but its guest is still being loaded: no registers are saved, so the switch is shorter than others.
#[test]
fn a_switch_that_saves_no_registers_is_not_measured() {
    let mut core = Core::new(
        packed::Policy::None,
        Without::default(),
        &[Band::HIGHEST, Band::LOWEST],
    );
    core.admit(0, VcpuState::Sleep);
    core.admit(1, VcpuState::Runnable);
    core.state
        .set_deadline(VcpuId(0), Band::HIGHEST, Early::BySwitch, Ticks(1_000));
    assert_eq!(next(&mut core), Next::Switch(VcpuId(1)));
    core.machine.now = core.machine.alarm;
    core.machine.load_takes = 3;
    core.machine.loaded_timer = Some(Ticks(1_000));
    core.go_on();
    assert_eq!(core.state.loaded(), Some(VcpuId(0)));
    assert_eq!(core.state.lead.of(Early::BySwitch), LONGEST);
}
