// SPDX-License-Identifier: MIT OR Apache-2.0
//! Entry of guests: a hook of the test does what the guest does until its next exit.

use super::core::Cached;
use super::registers::Register;
use super::with;
use crate::guest_registers::{Exit, GuestRegisters};

/// What a guest does from its entry to its next exit. `VTTBR_EL2` and `VMPIDR_EL2` of the current core say which vCPU
/// runs; the hook writes the exit's syndrome to the core's registers.
pub type GuestHook = Box<dyn FnMut(&mut GuestRegisters) -> Exit>;

/// Runs the vCPU with these registers until its next exit.
pub fn enter(registers: &mut GuestRegisters) -> Exit {
    let hook = with(|machine| {
        let (vmid, root) = machine.stage2();
        let core = machine.core();
        core.entries += 1;
        let vcpu = core.get(Register::VMPIDR_EL2) & 0xFF;
        let own = Cached { vcpu, root };
        let cached = *core.cached.entry(vmid).or_insert(own);
        assert_eq!(
            cached, own,
            "VMID {vmid} runs with cached translations of another vCPU"
        );
        machine.guest.take()
    });
    let Some(mut hook) = hook else {
        panic!("a guest is entered, and the test has set no hook");
    };
    let exit = hook(registers);
    with(|machine| machine.guest = Some(hook));
    exit
}
