// SPDX-License-Identifier: MIT OR Apache-2.0
//! Catching the moment at which the loaded vCPU's kernel holds no lock, or needs another core.

use super::core_state::Catch;
use super::platform::Platform;

/// Has the loaded vCPU exit when it does this, where the core can tell.
#[inline(always)]
pub fn catch(platform: &mut impl Platform, catch: Catch) {
    if platform.local().catches != catch && platform.set_catch(catch) {
        platform.local_mut().catches = catch;
    }
}

/// From here on, only what is always caught of the loaded vCPU on this core is caught.
#[inline(always)]
pub fn stop_catching(platform: &mut impl Platform) {
    let local = platform.local();
    if local.catches != Catch::Nothing || local.excludes_kernels {
        catch(platform, always_caught(platform));
    }
}

/// What is always caught of the loaded vCPU here.
fn always_caught(platform: &impl Platform) -> Catch {
    let local = platform.local();
    match local.loaded {
        Some(id) if local.excludes_kernels && local.moves(id) && !local.taken_back.contains(id) => {
            Catch::Entry
        }
        _ => Catch::Nothing,
    }
}
