// SPDX-License-Identifier: MIT OR Apache-2.0
//! Catching the loaded vCPU when it leaves its kernel, in which it may hold a lock, or when it enters its kernel on a core
//! where kernels must not run.

use super::core_state::{Catch, CoreState};
use super::platform::{Platform, State};

/// Makes the loaded vCPU exit when the event `catch` happens, if the core can catch it (FEAT_XNX).
#[inline(always)]
pub fn catch<P: Platform>(state: &mut State<P>, platform: &mut P, catch: Catch) {
    if state.catches != catch
        && let Some(loaded) = &state.loaded
        && platform.set_catch(&loaded.token, catch)
    {
        state.catches = catch;
    }
}

/// Ends the catch for grace: from now on, only what is always caught is caught.
#[inline(always)]
pub fn stop_catching<P: Platform>(state: &mut State<P>, platform: &mut P) {
    if state.catches != Catch::Nothing || state.excludes_kernels {
        catch_always(state, platform);
    }
}

/// Catches what is always caught.
#[inline(always)]
pub fn catch_always<P: Platform>(state: &mut State<P>, platform: &mut P) {
    catch(state, platform, always_caught(state));
}

/// What is always caught on this core, and of a vCPU that runs out of turn: when it returns to a program, it has handled its interrupt.
fn always_caught<T>(state: &CoreState<T>) -> Catch {
    match state.loaded() {
        Some(id) if state.excludes_kernels && state.moves(id) && !state.taken_back.contains(id) => {
            Catch::Entry
        }
        Some(_) if state.scheduler.runs_out_of_turn() => Catch::Exit,
        _ => Catch::Nothing,
    }
}
