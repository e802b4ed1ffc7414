// SPDX-License-Identifier: MIT OR Apache-2.0
//! Start from reset until guests run.

use super::bench::Bench;
use super::systems::*;
use crate::boot;
use crate::epitaph::fatal;
use crate::fake::{self, Ended, Register, printed};
use crate::guest_registers::GuestRegisters;
use spumone_config::PhysAddr;
use spumone_config::packed::{Policy, System};

fn two_cores() -> Bench {
    let guests = [
        GuestParts::new(&[(0, 10), (1, 10)]),
        GuestParts::new(&[(1, 20)]),
    ];
    Bench::boot(&system(2, Policy::None, &guests))
}

#[test]
fn all_guests_start_where_their_description_says() {
    let mut bench = two_cores();
    bench.until_all_run();
    for (guest, core) in [(0, 0), (1, 1)] {
        let entry = bench.entry(guest, 0);
        assert_eq!(
            (entry.pc, entry.x[0], entry.core),
            (GUEST_MEMORY, 0x77, core)
        );
        assert_eq!(entry.pstate, GuestRegisters::RESET_PSTATE);
        assert_eq!(entry.x[1..], [0; 30]);
    }
    // The second vCPU waits for CPU_ON.
    assert_eq!(bench.entry(0, 1).count, 0);
    let greeting = printed();
    assert!(
        greeting.contains("on fake: 2 cores, 2 guests"),
        "{greeting}"
    );
}

#[test]
fn a_guest_finds_its_image_in_cleared_memory_and_a_seed() {
    let mut bench = two_cores();
    for guest in 0..2 {
        fake::with(|machine| {
            machine
                .memory
                .at(memory_of(guest), GUEST_MEMORY_SIZE as usize)
                .fill(0xAA);
        });
    }
    bench.until_all_run();
    let first = bench.look(0, 0, |cpu| {
        cpu.read_memory(GUEST_MEMORY, GUEST_MEMORY_SIZE as usize)
    });
    let second = bench.look(1, 0, |cpu| {
        cpu.read_memory(GUEST_MEMORY, GUEST_MEMORY_SIZE as usize)
    });
    assert_eq!(first[..8], IMAGE[..8]);
    assert_eq!(first[12..16], IMAGE[12..16]);
    assert!(first[16..].iter().all(|&byte| byte == 0));
    assert_ne!(first[8..12], IMAGE[8..12]);
    assert_ne!(first[8..12], second[8..12], "two guests have the same seed");
}

#[test]
fn a_core_is_set_up_before_it_runs_guests() {
    let mut bench = two_cores();
    bench.until_all_run();
    let (cptr, mdcr, cnthctl, vpidr) = bench.look(1, 0, |cpu| {
        (
            cpu.get(Register::CPTR_EL2),
            cpu.get(Register::MDCR_EL2),
            cpu.get(Register::CNTHCTL_EL2),
            cpu.get(Register::VPIDR_EL2),
        )
    });
    let (hcr, vtcr) = bench.look(1, 0, |cpu| {
        (cpu.get(Register::HCR_EL2), cpu.get(Register::VTCR_EL2))
    });
    // TERR, TLOR, RW, TACR, TIDCP, TSC, TID3, TWI, BSU, FB, AMO, IMO, FMO, PTW, SWIO, VM.
    assert_eq!(hcr, 0x18_803C_263F);
    // 40 bits of address, from level 1 on.
    assert_eq!((vtcr & 0x3F, vtcr >> 6 & 3), (64 - 40, 1));
    // SVE, trace and activity monitors trap; FP does not.
    assert_eq!(cptr, 0x4010_33FF);
    // Performance and debug registers trap; the number of event counters is the core's own.
    assert_eq!(mdcr, 0x0008_4E60 | 6);
    assert_eq!(cnthctl, 0b11);
    assert_eq!(vpidr, 0x410F_D034);
    let sctlr = bench.look(1, 0, |cpu| cpu.get(Register::SCTLR_EL1));
    assert_eq!(sctlr, 0x30D0_0800);
}

#[test]
fn spis_go_to_the_first_vcpu_of_their_guest_and_are_off() {
    use spumone_config::packed::Trigger;
    let guests = [
        GuestParts::new(&[(0, 10)]),
        GuestParts::new(&[(1, 20)]).with_spi(40, 50, Trigger::Edge),
    ];
    let mut bench = Bench::boot(&system(2, Policy::None, &guests));
    bench.until_all_run();
    fake::with(|machine| {
        assert_eq!(machine.gic.routes[40], 1);
        let (bank, bit) = machine.gic.spi(40);
        assert_eq!((bank.enabled & bit, bank.edges & bit), (0, bit));
    });
}

#[test]
fn the_epitaph_names_the_core_that_died() {
    let guests = [GuestParts::new(&[(5, 10)])];
    let _bench = Bench::boot(&system(6, Policy::None, &guests));
    let ended = fake::until_it_ends(5, || fatal!("an error"));
    assert_eq!(ended, Err::<(), _>(Ended::Halted));
    let text = printed();
    assert!(text.contains("spumone died on core 5: an error"), "{text}");
}

/// Boots a system of two guests with a memory link after this change. Returns what is printed when the start is refused.
fn refusal(change: impl FnOnce(&mut System)) -> String {
    let guests = [GuestParts::new(&[(0, 10)]), GuestParts::new(&[(1, 20)])];
    let mut system = system(2, Policy::None, &guests);
    add_link(&mut system, 0, 1);
    change(&mut system);
    fake::switch_on(parts(&system));
    let untouched = fake::with(|machine| {
        let memory = machine.memory.at(MEMORY, MEMORY_SIZE as usize);
        memory.fill(0xAA);
        memory.to_vec()
    });
    let ended = fake::until_it_ends(0, || boot::start(PhysAddr(0)));
    assert_eq!(ended.err(), Some(Ended::Halted));
    let is_touched = fake::with(|machine| {
        machine.memory.at(MEMORY, MEMORY_SIZE as usize) != untouched.as_slice()
    });
    assert!(
        !is_touched,
        "memory is written before it is known to be apart"
    );
    printed()
}

/// `spm` builds no such image; the hypervisor looks, too.
#[test]
fn a_guest_whose_memory_is_not_its_own_is_refused_by_its_name() {
    let at_hypervisor = refusal(|it| it.guests[1].memory[0].pa = PhysAddr(MEMORY + 0x1F_0000));
    let message = "guest guest1: memory at 0x401f0000 to 0x401fffff overlaps the hypervisor's, 0x40000000 to 0x401fffff";
    assert!(at_hypervisor.contains(message), "{at_hypervisor}");
    let at_guest = refusal(|it| it.guests[1].memory[0].pa = PhysAddr(memory_of(0) + 0xF000));
    let message = "guest guest0: memory at 0x40200000 to 0x4020ffff overlaps memory of guest guest1, 0x4020f000 to 0x4021efff";
    assert!(at_guest.contains(message), "{at_guest}");
    let at_link = refusal(|it| it.guests[1].memory[0].pa = PhysAddr(LINK_MEMORY));
    let message = "the memory of links at 0x41800000 to 0x41801fff overlaps memory of guest guest1, 0x41800000 to 0x4180ffff";
    assert!(at_link.contains(message), "{at_link}");
    assert!(
        at_link.contains("build the image with `spm build`"),
        "{at_link}"
    );
}

#[test]
fn a_link_that_goes_nowhere_and_a_hypervisor_elsewhere_are_refused() {
    let at_link = refusal(|it| it.guests[0].links[0].peer_link = 1);
    let message = "guest guest0: the memory of link 0 at 0x41800000 to 0x41801fff is not what the guest at the other end has";
    assert!(at_link.contains(message), "{at_link}");
    let elsewhere = refusal(|it| it.board.hypervisor_memory.size -= 0x1000);
    let message = "the hypervisor is at 0x40010000 to 0x401fffff, outside its memory, 0x40000000 to 0x401fefff";
    assert!(elsewhere.contains(message), "{elsewhere}");
}
