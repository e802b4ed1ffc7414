// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conditions that must hold after each iteration of a core's loop, and at each entry to a guest, whatever guests do.

use super::guest::GuestCpu;
use crate::cpu::HCR_GUEST;
use crate::epitaph;
use crate::fake::{self, CorePower, Register, printed};
use crate::instance::Instance;
use crate::machine::Machine;
use spumone_config::packed::SpiOwner;
use spumone_config::{GuestId, IntId, VcpuId};
use spumone_core::psci::Phase;
use spumone_core::schedule::{VcpuState, priority_mask};
use spumone_core::vgic::VcpuIndex;

/// More accesses to registers, devices and memory than any iteration makes.
const MOST_WORK: u64 = 20_000;
/// Interrupts that EL2 deactivates in the iteration that takes them: SGIs, the maintenance interrupt, the alarm.
const OWN: u32 = 0xFFFF | 1 << 25 | 1 << 26;
/// The timers of the loaded vCPU.
const TIMERS: u32 = 1 << 27 | 1 << 30;

/// Checks the state after an iteration.
pub fn check(machine: &Machine, instances: &[Instance], most_work: u64) {
    assert!(!epitaph::is_written(), "EL2 has died:\n{}", printed());
    assert!(
        most_work < MOST_WORK,
        "an iteration took {} accesses",
        most_work
    );
    each_token_is_in_one_place(machine, instances);
    spis_stay_with_their_owners(machine);
    for (index, instance) in instances.iter().enumerate() {
        let here = |id| instance.tokens().any(|token| token == id);
        if let Some(id) = instance.loaded() {
            assert!(
                here(id),
                "core {index} has loaded vCPU {id} without its token"
            );
        }
        if let Some(id) = instance.running().filter(|_| !instance.must_decide()) {
            assert!(here(id), "core {index} runs vCPU {id} without its token");
            assert_eq!(instance.state(id), Some(VcpuState::Running));
        }
        fake::with(|machine| {
            let core = &machine.cores[index];
            assert!(
                core.running_priorities.is_empty(),
                "a priority was not dropped"
            );
            let active = core.private.active;
            assert_eq!(active & OWN, 0, "still active on core {index}: {active:#x}");
            if instance.loaded().is_none() {
                assert_eq!(
                    active & TIMERS,
                    0,
                    "a timer is active on core {index}, which has no vCPU loaded"
                );
            }
            if core.power != CorePower::On {
                return;
            }
            let hcr = core.get(Register::HCR_EL2);
            assert_eq!(hcr, HCR_GUEST, "HCR_EL2 of core {index}");
        });
    }
}

/// The token of each vCPU is with one core, or parked.
fn each_token_is_in_one_place(machine: &Machine, instances: &[Instance]) {
    for id in (0..machine.vcpus.len() as u8).map(VcpuId) {
        if machine.vcpu(id).is_none() {
            continue;
        }
        let cores = instances.iter();
        let on_cores = cores
            .filter(|core| core.tokens().any(|token| token == id))
            .count();
        let is_parked = machine.shared.slot(id).parked().is_some();
        assert_eq!(
            on_cores + usize::from(is_parked),
            1,
            "the token of vCPU {id} is on {on_cores} cores (parked: {is_parked})"
        );
    }
}

/// SPIs without an owner are off, and each SPI of a guest is routed to a core of the guest.
fn spis_stay_with_their_owners(machine: &Machine) {
    fake::with(|fake| {
        for word in 1..=fake.gic.used_words {
            let bank = &fake.gic.spis[word];
            let touched = bank.enabled | bank.active;
            for bit in (0..32).filter(|bit| touched >> bit & 1 != 0) {
                let interrupt = IntId(32 * word as u16 + bit);
                let route = fake.gic.routes[interrupt.index()];
                let goes_to = |core: usize| machine.cores[core].mpidr == route;
                match machine.destinations.of(interrupt) {
                    SpiOwner::Unowned => panic!("SPI {interrupt} has no owner, and is on"),
                    SpiOwner::Console => assert!(goes_to(machine.console_core.index())),
                    SpiOwner::Guest(guest, _) => {
                        let cores = machine.guest(guest).cores();
                        let mut own =
                            (0..machine.cores.len()).filter(|core| cores >> core & 1 != 0);
                        assert!(own.any(goes_to), "SPI {interrupt} goes to {route:#x}");
                    }
                }
            }
        }
    });
}

/// Checks the state of the core at an entry.
pub fn check_entry(cpu: &GuestCpu<'_>, machine: &Machine) {
    assert_eq!(cpu.get(Register::HCR_EL2), HCR_GUEST);
    assert_eq!(cpu.get(Register::CNTVOFF_EL2), 0);
    let interface = cpu.get(Register::ICH_HCR_EL2);
    assert_eq!(interface & 1, 1, "the virtual interface is off");
    let mode = cpu.registers.pstate & 0b1_1111;
    assert!(
        mode & 0b1_0000 != 0 || mode >> 2 <= 1,
        "a guest would run at EL2: {mode:#b}"
    );

    let guest = machine.guest(GuestId(cpu.guest));
    let tables = [
        Some(guest.stage2.all),
        guest.stage2.of_kernel,
        guest.stage2.of_programs,
    ];
    let current = cpu.get(Register::VTTBR_EL2);
    assert!(
        tables.iter().flatten().any(|it| it.value() == current),
        "{current:#x} are not tables of guest {}",
        cpu.guest
    );
    let phase = guest.lifecycle.now().0;
    assert!(
        matches!(phase, Phase::Running | Phase::Stopping(_)),
        "guest {} runs while it is {phase:?}",
        cpu.guest
    );

    let index = VcpuIndex(cpu.vcpu);
    let Some((id, facts)) = guest
        .vcpu(index)
        .and_then(|id| Some((id, machine.shared.vcpu(id)?)))
    else {
        panic!("guest {} has no vCPU {}", cpu.guest, cpu.vcpu);
    };
    assert_eq!(
        machine.shared.slot(id).parked(),
        None,
        "vCPU {id} runs, and is parked"
    );
    assert_eq!(
        guest.gic.doorbell(index).location().index(),
        cpu.core,
        "the doorbell names another core"
    );
    let mask = priority_mask(machine.interrupt_priorities, Some(facts.band));
    assert_eq!(
        cpu.get(Register::ICC_PMR_EL1),
        u64::from(mask.0),
        "the priority mask is not that of its band"
    );
}
