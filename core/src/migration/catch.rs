// SPDX-License-Identifier: MIT OR Apache-2.0
//! Catching the moment at which the loaded vCPU's kernel holds no lock, or needs another core.

use super::core_state::{Catch, CoreState};
use super::platform::{Platform, State};

/// Has the loaded vCPU exit when it does this, where the core can tell.
#[inline(always)]
pub fn catch<P: Platform>(state: &mut State<P>, platform: &mut P, catch: Catch) {
    if state.catches != catch
        && let Some(loaded) = &state.loaded
        && platform.set_catch(&loaded.token, catch)
    {
        state.catches = catch;
    }
}

/// From here on, only what is always caught of the loaded vCPU on this core is caught.
#[inline(always)]
pub fn stop_catching<P: Platform>(state: &mut State<P>, platform: &mut P) {
    if state.catches != Catch::Nothing || state.excludes_kernels {
        catch(state, platform, always_caught(state));
    }
}

/// What is always caught of the loaded vCPU here.
fn always_caught<T>(state: &CoreState<T>) -> Catch {
    match state.loaded() {
        Some(id) if state.excludes_kernels && state.moves(id) && !state.taken_back.contains(id) => {
            Catch::Entry
        }
        _ => Catch::Nothing,
    }
}
