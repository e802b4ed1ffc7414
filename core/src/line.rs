// SPDX-License-Identifier: MIT OR Apache-2.0
//! The interrupt line of an emulated device, which several cores may change at the same time.

use crate::sync::atomic::{Ordering, fence};

/// How often [`publish`] repeats. More is needed only if other cores change the line each time meanwhile, by which a guest
/// harms only itself.
const TRIES: usize = 4;

/// Passes the level of an interrupt line to `set` (the guest's interrupt controller) so that the last level passed is the
/// present one, even if other cores change it meanwhile. To be called after each change. `set` may be called up to four
/// times.
pub(crate) fn publish(level: impl Fn() -> bool, mut set: impl FnMut(bool)) {
    // Each core changes a register, then passes the level, then reads it again, with a full fence in between. So of two
    // cores, the one that passes the level last sees the other's change when it reads again, and passes the new level.
    for _ in 0..TRIES {
        fence(Ordering::SeqCst);
        let now = level();
        set(now);
        fence(Ordering::SeqCst);
        if level() == now {
            break;
        }
    }
}
