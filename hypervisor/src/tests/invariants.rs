// SPDX-License-Identifier: MIT OR Apache-2.0
//! What holds after each turn of a core, and at each entry to a guest, whatever guests do.

use super::bench::{Bench, printed};
use super::guest::GuestCpu;
use crate::cpu::HCR_GUEST;
use crate::epitaph;
use crate::fake::{self, Register};
use spumone_config::VcpuId;
use spumone_core::schedule::VcpuState;

/// More accesses to registers, devices and memory than any turn makes.
const MOST_WORK: u64 = 20_000;
/// Interrupts that EL2 ends before it looks at anything else: SGIs, the maintenance interrupt, the alarm.
const OWN: u32 = 0xFFFF | 1 << 25 | 1 << 26;
/// The timers of the loaded vCPU.
const TIMERS: u32 = 1 << 27 | 1 << 30;

/// After a turn.
pub fn check(bench: &Bench) {
    assert!(!epitaph::is_written(), "EL2 has died:\n{}", printed());
    assert!(
        bench.most_work < MOST_WORK,
        "a turn took {} accesses",
        bench.most_work
    );
    each_token_is_in_one_place(bench);
    for (index, instance) in bench.instances.iter().enumerate() {
        let here = |id| instance.tokens().any(|token| token == id);
        if let Some(id) = instance.loaded() {
            assert!(here(id), "core {index} has loaded {id}, which is elsewhere");
        }
        if let Some(id) = instance.running().filter(|_| !instance.must_decide()) {
            assert!(here(id), "core {index} runs {id}, which is elsewhere");
            assert_eq!(instance.state(id), Some(VcpuState::Running));
        }
        fake::with(|machine| {
            let core = &machine.cores[index];
            assert!(
                core.running_priorities.is_empty(),
                "a priority was not dropped"
            );
            let active = core.private.active;
            assert_eq!(active & OWN, 0, "core {index} has not ended {active:#x}");
            if instance.loaded().is_none() {
                assert_eq!(active & TIMERS, 0, "core {index} holds timers of no vCPU");
            }
            let hcr = core.get(Register::HCR_EL2);
            assert_eq!(hcr, HCR_GUEST, "HCR_EL2 of core {index}");
        });
    }
}

/// Each vCPU is on one core, or parked.
fn each_token_is_in_one_place(bench: &Bench) {
    for id in (0..bench.machine.vcpus.len() as u8).map(VcpuId) {
        if bench.machine.vcpu(id).is_none() {
            continue;
        }
        let cores = bench.instances.iter();
        let on_cores = cores
            .filter(|core| core.tokens().any(|token| token == id))
            .count();
        let is_parked = bench.machine.shared.slot(id).parked().is_some();
        assert_eq!(
            on_cores + usize::from(is_parked),
            1,
            "the token of vCPU {id} is on {on_cores} cores (parked: {is_parked})"
        );
    }
}

/// When a guest is entered.
pub fn check_entry(cpu: &GuestCpu<'_>) {
    assert_eq!(cpu.get(Register::HCR_EL2), HCR_GUEST);
    assert_eq!(cpu.get(Register::CNTVOFF_EL2), 0);
    assert_eq!(
        cpu.get(Register::ICH_HCR_EL2) & 1,
        1,
        "the virtual interface is off"
    );
    let mode = cpu.registers.pstate & 0b1_1111;
    assert!(
        mode & 0b1_0000 != 0 || mode >> 2 <= 1,
        "a guest would run at EL2: {mode:#b}"
    );
}
