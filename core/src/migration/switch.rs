// SPDX-License-Identifier: MIT OR Apache-2.0
//! The switch from one vCPU to another.
//!
//! It takes a few hundred instructions, so the core looks for interrupts on the way. A vCPU of a higher band then does
//! not wait until a vCPU of a lower band is loaded.

use super::catch::catch_always;
use super::core_state::Loaded;
use super::early;
use super::interrupt::{arm_stale_alarm, is_overtaken, look_for_higher};
use super::notify::park_or_keep;
use super::platform::{Platform, State};
use super::save::save_loaded;
use crate::schedule::VcpuState;
use crate::vgic::MAX_LIST_REGISTERS;
use spumone_config::types::VcpuId;

/// Switches to the running vCPU `id`: saves the registers of the loaded vCPU, and loads those of `id`. Stops half way
/// if the core must decide again.
#[inline(always)]
pub fn switch<P: Platform>(state: &mut State<P>, platform: &mut P, id: VcpuId) {
    if is_overtaken(state, platform) {
        return;
    }
    if state.loaded.is_some() {
        switch_out(state, platform);
        if state.must_decide {
            return;
        }
    }
    switch_in(state, platform, id);
}

/// Saves the registers of the loaded vCPU, which was preempted or sleeps, and lets other cores have it. Stops half way if the core must
/// decide again.
#[inline(always)]
pub fn switch_out<P: Platform>(state: &mut State<P>, platform: &mut P) {
    let Some(last) = state.loaded() else {
        return;
    };
    if !take_back_interrupts(state, platform) {
        return;
    }
    save_loaded(state, platform);
    if state.must_decide {
        // Its timer has expired meanwhile.
        look_for_higher(state, platform);
    }
    // From now on the alarm replaces the timers just saved. It may expire at once. If the core must decide again, that arms the alarm.
    if !is_overtaken(state, platform) {
        arm_stale_alarm(state, platform);
    }
    if is_overtaken(state, platform) && state.waits_for_park_delay(last) {
        state.park_soon(last);
    } else if park_or_keep(state, platform, last) {
        if state.must_decide {
            look_for_higher(state, platform);
        } else {
            let _ = is_overtaken(state, platform);
        }
    }
}

/// Takes the interrupts of the loaded vCPU back from its list registers, so that its registers are saved in a short time. Returns whether that
/// is done. If not, the core must decide again.
#[inline(always)]
pub fn take_back_interrupts<P: Platform>(state: &mut State<P>, platform: &mut P) -> bool {
    // At most 16 times: list registers.
    for _ in 0..MAX_LIST_REGISTERS {
        let Some(Loaded { id, token }) = state.loaded.as_mut() else {
            break;
        };
        if !platform.lists_many(token) {
            break;
        }
        let runs_again = state.scheduler.state(*id) != Some(VcpuState::Off);
        let is_urgent = runs_again && state.scheduler.current_band() > platform.shared().band(*id);
        let (rung, is_done) = platform.take_back(token, is_urgent);
        state.rung |= rung;
        // Before the vCPU runs again.
        state.must_refresh = true;
        if is_overtaken(state, platform) {
            return false;
        }
        if is_done {
            break;
        }
    }
    true
}

/// Loads the registers of the running vCPU `id` on a core on which no vCPU is loaded.
#[inline(always)]
pub fn switch_in<P: Platform>(state: &mut State<P>, platform: &mut P, id: VcpuId) {
    let Some(vcpu) = state.saved_vcpu_mut(id) else {
        // Not reached: a decision acquires the token of the vCPU that is to run.
        state.running = None;
        state.must_decide = true;
        return;
    };
    platform.load_registers(vcpu);
    // Checked before its interrupts are loaded, since an expired timer of its own is pending afterwards.
    if is_overtaken(state, platform) {
        return;
    }
    let Some(mut token) = state.give_up(id) else {
        return;
    };
    let since = state.scheduler.since().unwrap_or_default();
    let (rung, is_complete) = platform.load_interrupts(&mut token, since);
    state.loaded = Some(Loaded { id, token });
    state.must_refresh = !is_complete;
    state.since_entry.has_delivered_other = false;
    early::loaded(state, platform, id);
    state.rung |= rung;
    if state.excludes_kernels || state.scheduler.runs_out_of_turn() {
        catch_always(state, platform);
    }
}
