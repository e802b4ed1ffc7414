// SPDX-License-Identifier: MIT OR Apache-2.0
//! The way into a guest: a test says what the guest does until it comes back.

use super::core::Cached;
use super::registers::Register;
use super::with;
use crate::guest_registers::{Exit, GuestRegisters};

/// What a guest does from its entry to its next exit. It finds itself by `VTTBR_EL2` and `VMPIDR_EL2` of the core that
/// executes, and leaves in the registers what the exit tells.
pub type GuestHook = Box<dyn FnMut(&mut GuestRegisters) -> Exit>;

/// Runs the guest whose registers these are until it comes back.
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
            "VMID {vmid} runs with translations of another one"
        );
        machine.guest.take()
    });
    let Some(mut hook) = hook else {
        panic!("a guest runs, and no test has said what it does");
    };
    let exit = hook(registers);
    with(|machine| machine.guest = Some(hook));
    exit
}
