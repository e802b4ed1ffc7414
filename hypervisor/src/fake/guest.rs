// SPDX-License-Identifier: MIT OR Apache-2.0
//! Entry of guests: a hook of the test does what the guest does until its next exit.

use super::with;
use crate::guest_registers::{Exit, GuestRegisters};

/// What a guest does from its entry to its next exit. `VTTBR_EL2` and `VMPIDR_EL2` of the current core say which vCPU
/// runs; the hook writes the exit's syndrome to the core's registers.
pub type GuestHook = Box<dyn FnMut(&mut GuestRegisters) -> Exit>;

/// Runs the vCPU with these registers until its next exit.
pub fn enter(registers: &mut GuestRegisters) -> Exit {
    let hook = with(|machine| {
        machine.core().entries += 1;
        machine.guest.take()
    });
    let Some(mut hook) = hook else {
        panic!("a guest is entered, and the test has set no hook");
    };
    let exit = hook(registers);
    with(|machine| machine.guest = Some(hook));
    exit
}
