// SPDX-License-Identifier: MIT OR Apache-2.0
//! Work that the core interrupts, and does again.

use super::*;
use crate::vgic::VMCR_EOI_MODE;
use spumone_config::packed::{Interrupt, Trigger};
use std::cell::Cell;
use std::vec::Vec;

/// EOIcount of one.
const ONE_ENDED: u64 = 1 << 27;

/// vCPU 0 acknowledges these SGIs, each with a higher priority than those before it.
fn handles_nested(world: &mut World, sgis: &[u64]) {
    for &sgi in sgis {
        let offset = world.own(0, IPRIORITYR + sgi);
        world.write(0, Region::Redistributors, offset, 1, sgi << 3);
        world.send_sgi(0, SgiRegister::Sgi1r, sgi << 24 | 1);
        world.drain();
        assert_eq!(world.acknowledge(0).unwrap().intid, IntId(sgi as u16));
    }
}

#[test]
fn only_what_was_in_no_list_register_can_have_ended_there() {
    let mut world = guest(1, 1);
    world.send_sgi(0, SgiRegister::Sgi1r, 1);
    world.drain();
    assert_eq!(world.acknowledge(0).unwrap().intid, IntId(0));
    world.write_own(0, ISACTIVER, 1 << 5);
    assert_eq!(world.listed(0), vec![(0, State::Active)]);
    // The guest ends SGI 5 although SGI 0, which is in the list register, has the higher priority.
    world.machine.cores[0].hcr |= ONE_ENDED;
    world.drain();
    assert_eq!(world.read_own(0, ISACTIVER), 1 << 0);
}

#[test]
fn a_vcpu_that_may_have_ended_an_interrupt_is_woken() {
    let mut world = guest(2, 1);
    // An active SPI, so that the search looks.
    world.write_distributor(0, ISACTIVER + 4, 1 << 3);
    handles_nested(&mut world, &[1, 0]);
    world.end(0);
    world.end(0);
    // SGI 1 is pending again. Its end is counted, and the search for what has ended is interrupted.
    world.send_sgi(1, SgiRegister::Sgi1r, 1 << 24 | 1);
    world.machine.interruptions.set(1);
    world.unload(0);
    assert_eq!(world.machine.interruptions.get(), 0);
    let it = &world.vcpus[0];
    assert!(
        it.cpu
            .has_deliverable(&world.gic, 0, it.context.vmcr, it.context.running(), || {
                false
            })
    );
    world.load(0, 0);
    assert_eq!(world.acknowledge(0).unwrap().intid, IntId(1));
}

#[test]
fn a_store_to_many_spis_goes_on_where_it_was_interrupted() {
    let mut world = guest(1, 4);
    world.write_distributor(0, ICENABLER + 4, u32::MAX);
    let offset = ISENABLER + 4;
    let mut dones = vec![];
    for _ in 0..3 {
        // The second look: the first one is before anything is done.
        world.machine.interruptions.set(0b10);
        world.call(0, |cpu, gic, here| {
            let value = u64::from(u32::MAX);
            let (kick, is_done) = cpu.mmio_write(gic, Region::Distributor, offset, 4, value, here);
            dones.push(is_done);
            kick
        });
        dones.push(world.physical(33).enabled);
        dones.push(world.physical(34).enabled);
    }
    let expected = [false, true, false, true, true, true, true, true, true];
    assert_eq!(dones, expected);
}

#[test]
fn a_load_of_what_is_pending_looks_half_way() {
    let mut world = guest(1, 4);
    let all: Vec<_> = (32..64)
        .map(|number| Interrupt {
            physical: IntId(number),
            guest: IntId(number),
            trigger: Trigger::Edge,
        })
        .collect();
    world.gic.configure(SPIS, 1, &all);
    let mut values = vec![];
    for interrupted in [0b10, 0] {
        // The second look: the first one is before anything is read.
        world.machine.interruptions.set(interrupted);
        world.call(0, |cpu, gic, here| {
            let offset = ISPENDR + 4;
            let (value, kick) = cpu.mmio_read(gic, Region::Distributor, offset, 4, here);
            values.push(value);
            kick
        });
    }
    assert_eq!(values, [None, Some(0)]);
}

#[test]
fn an_interrupted_fill_leaves_no_maintenance_interrupt() {
    let mut world = guest(1, 1);
    world.send_sgi(0, SgiRegister::Sgi1r, 1);
    world.drain();
    assert_eq!(world.acknowledge(0).unwrap().intid, IntId(0));
    world.write_distributor(0, ISACTIVER + 4, 1 << 3);
    world.machine.cores[0].hcr |= ONE_ENDED;
    assert!(world.on(0, |_, _, here| here.wants_maintenance()));
    // Else the core would take it again and again, before the interrupt for which it looked.
    world.machine.interruptions.set(1);
    world.call(0, |cpu, gic, here| cpu.synchronize(gic, here));
    assert!(world.vcpus[0].cpu.is_unfilled());
    assert!(!world.on(0, |_, _, here| here.wants_maintenance()));
    world.drain();
    assert_eq!(world.read_distributor(0, ISACTIVER + 4), 0);
    assert_eq!(world.read_own(0, ISACTIVER), 1 << 0);
}

#[test]
fn what_a_vcpu_has_ended_is_another_ones_once_it_is_unloaded() {
    let mut world = guest(2, 1);
    world.write(0, Region::Distributor, IPRIORITYR + 40, 1, 8);
    world.write_distributor(0, ISPENDR + 4, 1 << 8);
    world.drain();
    assert_eq!(world.acknowledge(0).unwrap().intid, IntId(40));
    // Has a higher priority, and takes the list register.
    world.send_sgi(0, SgiRegister::Sgi1r, 1 << 24 | 1);
    world.drain();
    assert_eq!(world.acknowledge(0).unwrap().intid, IntId(1));
    world.drain();
    world.end(0);
    world.end(0);
    // As by CPU_OFF, before a maintenance interrupt.
    world.unload(0);
    world.write(1, Region::Distributor, IROUTER + 8 * 40, 8, 1);
    world.write_distributor(1, ISPENDR + 4, 1 << 8);
    world.drain();
    assert_eq!(world.listed(1), vec![(40, State::Pending)]);
}

#[test]
fn with_eoi_mode_0_a_write_of_dir_is_ignored() {
    let mut world = guest(2, 1);
    handles_nested(&mut world, &[2, 1, 0]);
    world.end(0);
    world.end(0);
    // The end of SGI 1 is counted. If this write deactivated SGI 1, the count would deactivate SGI 2.
    world.call(0, |cpu, gic, here| cpu.deactivate(gic, IntId(1), here).0);
    world.drain();
    assert_eq!(world.read_own(0, ISACTIVER), 1 << 2);
}

/// A vCPU that is saved and has masked 32 pending SPIs.
fn sleeps_with_masked_spis() -> (World, u64) {
    let mut world = guest(1, 4);
    world.write_distributor(0, ISPENDR + 4, u32::MAX);
    world.unload(0);
    let masks_all = world.vcpus[0].context.vmcr & !(0xff << 24);
    (world, masks_all)
}

#[test]
fn a_long_search_for_what_wakes_a_vcpu_is_given_up() {
    let (world, masks_all) = sleeps_with_masked_spis();
    let is_woken = |most: usize| {
        let mut left = most;
        let is_late = || {
            left = left.saturating_sub(1);
            left == 0
        };
        world.vcpus[0]
            .cpu
            .has_deliverable(&world.gic, 0, masks_all, 0xff, is_late)
    };
    assert!(is_woken(32));
    assert!(!is_woken(33));
}

/// Else the vCPU of a higher band, which the interrupt makes runnable, would wait for the search.
#[test]
fn the_search_for_what_wakes_a_saved_vcpu_ends_when_the_core_is_interrupted() {
    let (world, masks_all) = sleeps_with_masked_spis();
    let is_woken = |is_urgent, interrupted_at: u32| {
        let looks = Cell::new(0);
        let is_interrupted = || {
            looks.set(looks.get() + 1);
            looks.get() == interrupted_at
        };
        let cpu = &world.vcpus[0].cpu;
        cpu.wakes(&world.gic, 0, masks_all, 0xff, is_urgent, is_interrupted)
    };
    assert!(is_woken(false, 1));
    assert!(is_woken(false, 32));
    assert!(!is_woken(false, 33));
    assert!(is_woken(true, 33));
}

/// The timer of a vCPU fires while the vCPU is being switched out. The vCPU gets the interrupt when it is loaded again, and also if the
/// switch does not take place.
#[test]
fn a_timer_that_fires_late_is_not_lost() {
    for goes in [true, false] {
        let mut world = guest(1, 4);
        world.vcpus[0].context.lines = TIMER;
        world.on(0, |cpu, _, here| {
            here.take_physical(IntId(27));
            cpu.timer_fired_late(IntId(27));
        });
        assert_eq!(world.listed(0), vec![]);
        if goes {
            world.unload(0);
            assert_eq!(
                world.machine.cores[0].active, 0,
                "another vCPU's timer fires"
            );
            world.load(0, 0);
        } else {
            world.call(0, |cpu, gic, here| cpu.synchronize(gic, here));
        }
        assert_eq!(world.listed(0), vec![(27, State::Pending)]);
        assert!(world.acknowledge(0).is_some_and(|it| it.hardware));
    }
}

/// Looks for interrupts in which many pending SPIs are found and put into list registers, with some to spare.
const MANY_LOOKS: u32 = 64;

/// 16 SPIs of each of two words are pending, and those of the second word have a higher priority. The core was interrupted at look number
/// `look` of a synchronization.
fn interrupted_at(vcpus: usize, look: u32) -> World {
    let mut world = guest(vcpus, 4);
    for word in 1..3 {
        world.write_distributor(0, ISPENDR + 4 * word, 0xffff);
    }
    for intid in 32..48 {
        world.write(0, Region::Distributor, IPRIORITYR + intid, 1, 8);
    }
    world.machine.interruptions.set(1 << look);
    world.call(0, |cpu, gic, here| cpu.synchronize(gic, here));
    world.machine.interruptions.set(0);
    // The next kick has it done again; another one would hide what that has missed.
    world.kicks.clear();
    world
}

#[test]
fn a_search_of_many_pending_spis_goes_on_where_it_was_interrupted() {
    let look = 24;
    let mut world = interrupted_at(1, look);
    let mut tries = 0;
    while world.vcpus[0].cpu.is_unfilled() {
        tries += 1;
        assert!(tries < 10, "no progress");
        // It looks more often than that, and a word takes less.
        world.machine.interruptions.set(1 << look);
        world.call(0, |cpu, gic, here| cpu.synchronize(gic, here));
    }
    world.machine.interruptions.set(0);
    assert!(tries > 0, "not interrupted");
    assert_eq!(world.acknowledge(0).unwrap().intid, IntId(64));
    world.drain();
}

#[test]
fn what_a_search_has_found_is_delivered_only_if_it_is_still_enabled() {
    for look in 0..MANY_LOOKS {
        let mut world = interrupted_at(2, look);
        world.write_distributor(1, ICENABLER + 8, 0b111);
        world.kicks.push_back(VcpuIndex(0));
        world.drain();
        let pending = [67, 68, 69, 70].map(|intid| (intid, State::Pending));
        assert_eq!(world.listed(0), pending, "{look}");
    }
}

/// Else it would keep a list register from others. If the guest masks its new priority, these would wait until it is unmasked.
#[test]
fn what_a_search_has_found_gives_way_if_its_priority_is_lowered() {
    for look in 0..MANY_LOOKS {
        let mut world = interrupted_at(2, look);
        world.write(1, Region::Distributor, IPRIORITYR + 64, 1, 0xf8);
        world.drain();
        let pending = [65, 66, 67, 68].map(|intid| (intid, State::Pending));
        assert_eq!(world.listed(0), pending, "{look}");
    }
}

/// The search for what the guest has ended takes long where many interrupts are active. A vCPU of a higher band does not wait for it.
#[test]
fn a_preemption_does_not_search_for_what_the_guest_has_ended() {
    let mut world = guest(1, 1);
    world.write_distributor(0, ISACTIVER + 4, u32::MAX);
    world.machine.cores[0].hcr |= ONE_ENDED;
    // The list registers are empty, and the search is interrupted.
    world.machine.interruptions.set(0b100);
    world.call(0, |cpu, gic, here| cpu.synchronize(gic, here));
    assert!(world.vcpus[0].cpu.lists_many());
    world.preempt(0);
    assert_eq!(world.vcpus[0].cpu.ended, 1);
    world.load(0, 0);
    assert_eq!(world.read_distributor(0, ISACTIVER + 4).count_zeros(), 1);
}

#[test]
fn an_interrupted_write_of_dir_is_executed_again() {
    let mut world = guest(2, 4);
    world.vcpus[0].context.vmcr |= VMCR_EOI_MODE;
    world.write_distributor(0, ISPENDR + 4, 0xf);
    world.drain();
    let spi = world.acknowledge(0).unwrap().intid;
    let mut dones = vec![];
    for _ in 0..2 {
        // After the first SPI that is taken back.
        world
            .machine
            .interruptions
            .set(if dones.is_empty() { 1 } else { 0 });
        world.call(0, |cpu, gic, here| {
            let (kick, is_done) = cpu.deactivate(gic, spi, here);
            dones.push(is_done);
            kick
        });
        let active = world.read_distributor(0, ISACTIVER + 4);
        dones.push(active == 0);
        world.drain();
    }
    assert_eq!(dones, [false, false, true, true]);
}

#[test]
fn list_registers_of_sgis_are_not_taken_back_in_one_piece() {
    let mut world = guest(1, 8);
    for sgi in 0..8 {
        world.send_sgi(0, SgiRegister::Sgi1r, sgi << 24 | 1);
    }
    world.machine.interruptions.set(1);
    world.call(0, |cpu, gic, here| cpu.take_back(gic, here).0);
    assert_eq!(world.vcpus[0].cpu.used.count_ones(), 4);
}

#[test]
fn the_search_for_what_wakes_a_vcpu_asks_after_each_private_interrupt() {
    let mut world = guest(1, 4);
    world.write_own(0, ISPENDR, u32::MAX);
    world.unload(0);
    let masks_all = world.vcpus[0].context.vmcr & !(0xff << 24);
    let is_woken = |most: usize| {
        let mut left = most;
        let cpu = &world.vcpus[0].cpu;
        cpu.has_deliverable(&world.gic, 0, masks_all, 0xff, || {
            left = left.saturating_sub(1);
            left == 0
        })
    };
    assert!(is_woken(1) && is_woken(16));
    assert!(!is_woken(64));
}
