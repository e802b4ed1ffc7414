// SPDX-License-Identifier: MIT OR Apache-2.0
//! The exchange of one vCPU's registers for another's.
//!
//! It takes a few hundred instructions, so the core looks for interrupts on the way: a vCPU of a higher band does not
//! wait until a vCPU of a lower one is loaded.

use super::catch::stop_catching;
use super::core_state::Loaded;
use super::interrupt::{arm_stale_alarm, take_interrupts};
use super::notify::release_preempted;
use super::platform::{Platform, State};
use super::save::save_loaded;
use spumone_config::types::VcpuId;

/// Brings the registers of the running vCPU `id` to the core, instead of those of another one. Ends half way if the core
/// must decide again.
#[inline(always)]
pub fn exchange<P: Platform>(state: &mut State<P>, platform: &mut P, id: VcpuId) {
    if is_overtaken(state, platform) {
        return;
    }
    if state.loaded.is_some() {
        switch_out(state, platform);
        if is_overtaken(state, platform) {
            return;
        }
    }
    switch_in(state, platform, id);
}

/// Saves the registers of the loaded vCPU, which was preempted or sleeps, and lets other cores have it.
#[inline(always)]
pub fn switch_out<P: Platform>(state: &mut State<P>, platform: &mut P) {
    let Some(last) = state.loaded() else {
        return;
    };
    save_loaded(state, platform);
    release_preempted(state, platform, last);
    // From here on the alarm stands in for the timers just saved, and may ring at once.
    arm_stale_alarm(state, platform);
}

/// Loads the registers of the running vCPU `id` on a core that holds none.
#[inline(always)]
pub fn switch_in<P: Platform>(state: &mut State<P>, platform: &mut P, id: VcpuId) {
    let Some(vcpu) = state.saved_vcpu_mut(id) else {
        // Not reached: a decision acquires the token of the vCPU that it lets run.
        state.running = None;
        state.must_decide = true;
        return;
    };
    platform.load_registers(vcpu);
    // Before its interrupts are loaded: a timer of its own that is due is pending from then on.
    if is_overtaken(state, platform) {
        return;
    }
    let Some(mut token) = state.saved.get_mut(id.index()).and_then(Option::take) else {
        return;
    };
    let (rung, is_complete) = platform.load_interrupts(&mut token);
    state.loaded = Some(Loaded { id, token });
    state.must_refresh = !is_complete;
    if !rung.is_empty() {
        state.rung |= rung;
        state.must_decide = true;
    }
    if state.excludes_kernels {
        stop_catching(state, platform);
    }
}

/// Whether another vCPU may have to run instead, because of an interrupt, or because the vCPU that was saved is to run
/// again.
#[inline(always)]
fn is_overtaken<P: Platform>(state: &mut State<P>, platform: &mut P) -> bool {
    if platform.is_interrupted() {
        take_interrupts(state, platform);
    }
    state.must_decide
}
