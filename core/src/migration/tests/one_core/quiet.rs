// SPDX-License-Identifier: MIT OR Apache-2.0
//! An idle core does none of the hypervisor's own work shortly before it wakes a vCPU.

use super::*;

/// For how long it is quiet.
const QUIET: u64 = 10;
const TIMER: u64 = 1_000;

/// A core that idles; a vCPU of this band, which sleeps, is loaded, and its timer expires at [`TIMER`]. A chore is due at `chore`.
fn idle(band: Band, chore: u64) -> Core {
    let mut core = Core::new(packed::Policy::None, Without::default(), &[band]);
    core.admit(0, VcpuState::Runnable);
    core.dispatch();
    core.machine.loaded_timer = Some(Ticks(TIMER));
    sleep(&mut core.state, &core.machine);
    core.machine.chore = Ticks(chore);
    assert_eq!(core.iterate(), Next::Idle);
    core
}

#[test]
fn a_chore_waits_until_the_vcpu_has_been_woken() {
    let early = TIMER - EARLY.0;
    for (band, wakes) in [(Band::LOWEST, TIMER), (MIDDLE, early)] {
        // Before the core is quiet.
        assert_eq!(idle(band, wakes - 11).machine.alarm, Ticks(wakes - 11));
        for chore in [wakes - QUIET, wakes, wakes + QUIET - 1] {
            let core = idle(band, chore);
            assert_eq!(core.state.chore_at, Ticks(wakes + QUIET));
        }
        assert_eq!(idle(band, wakes + 10).state.chore_at, Ticks(wakes + 10));
        // For the vCPU of the lowest band there is no deadline: its timer is on the core.
        let alarm = if band == MIDDLE { wakes } else { wakes + QUIET };
        assert_eq!(idle(band, wakes).machine.alarm, Ticks(alarm));
    }
}

/// The timer of a vCPU may be unable to wake it (its interrupt is masked), or a guest may set it again and again.
#[test]
fn a_chore_does_not_wait_for_a_second_time() {
    let mut core = idle(MIDDLE, TIMER - EARLY.0);
    core.machine.now = core.state.chore_at;
    core.machine.loaded_timer = Some(Ticks(core.machine.now.0 + EARLY.0 + 1));
    core.machine.chore = core.machine.now;
    take_interrupts(&mut core.state, &mut core.machine);
    let chore = (0..4).find_map(|_| match core.iterate() {
        Next::Chore(at) => Some(at),
        _ => None,
    });
    assert_eq!(chore, Some(core.machine.now));
}

#[test]
fn a_core_that_runs_a_vcpu_does_its_chores_in_time() {
    let mut core = Core::new(packed::Policy::None, Without::default(), &[MIDDLE]);
    core.admit(0, VcpuState::Runnable);
    core.dispatch();
    core.machine.loaded_timer = Some(Ticks(TIMER));
    core.machine.chore = Ticks(TIMER);
    assert_eq!(core.iterate(), Next::Run(VcpuId(0)));
    assert_eq!(core.state.chore_at, Ticks(TIMER));
}

#[test]
fn a_core_is_quiet_before_the_first_vcpu_that_it_wakes() {
    let core = idle(MIDDLE, u64::MAX);
    let from = |now| quiet_from(&core.state, &core.machine, Ticks(now));
    assert_eq!(from(1), Ticks(TIMER - EARLY.0 - QUIET));
    // A timer that has expired and has not woken its vCPU does not count.
    assert_eq!(from(TIMER), Ticks::NEVER);
}
