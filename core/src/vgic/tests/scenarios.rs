// SPDX-License-Identifier: MIT OR Apache-2.0
//! Single scenarios, call by call.

use super::super::{Region, SgiRegister, State, VcpuIndex, VcpuIndexSet, running_priority};
use super::machine::{Accesses, HCR_ENABLE, HCR_EOI_NOT_PRESENT, HCR_NO_PENDING};
use super::world::{SPIS, World};
use spumone_config::types::IntId;
use std::vec;

mod copies;
mod interrupted;
mod routes;

const IGROUPR: u64 = 0x80;
const ISENABLER: u64 = 0x100;
const ICENABLER: u64 = 0x180;
const ISPENDR: u64 = 0x200;
const ICPENDR: u64 = 0x280;
const ISACTIVER: u64 = 0x300;
const ICACTIVER: u64 = 0x380;
const IPRIORITYR: u64 = 0x400;
const IROUTER: u64 = 0x6000;
const TIMER: u32 = 1 << 27;

/// Two vCPUs on two cores, everything enabled in Group 1.
fn two_vcpus() -> World {
    guest(2, 4)
}

fn guest(vcpus: usize, list_registers: usize) -> World {
    let mut world = World::new(vcpus, vcpus, list_registers);
    for vcpu in 0..vcpus {
        world.load(vcpu, vcpu);
        world.write_own(vcpu, IGROUPR, u32::MAX);
        world.write_own(vcpu, ISENABLER, u32::MAX);
    }
    world.write_distributor(0, 0, 2);
    for word in 1..3 {
        world.write_distributor(0, IGROUPR + 4 * word, u32::MAX);
        world.write_distributor(0, ISENABLER + 4 * word, u32::MAX);
    }
    world.drain();
    world
}

fn accesses(world: &mut World, act: impl FnOnce(&mut World)) -> Accesses {
    world.machine.accesses.set(Accesses::default());
    act(world);
    world.machine.accesses.get()
}

const ONE_WRITE: Accesses = Accesses {
    reads: 0,
    writes: 1,
};

#[test]
fn an_sgi_costs_one_list_register_write() {
    let mut world = two_vcpus();
    for _ in 0..10 {
        let cost = accesses(&mut world, |world| {
            world.send_sgi(0, SgiRegister::Sgi1r, 3 << 24 | 0b10);
            world.drain();
        });
        assert_eq!(cost, ONE_WRITE);
        assert_eq!(world.listed(1), vec![(3, State::Pending)]);
        assert_eq!(world.acknowledge(1).unwrap().intid, IntId(3));
        world.end(1);
    }
}

#[test]
fn an_sgi_that_is_pending_or_active_becomes_pending_again_in_its_list_register() {
    const SGI_3: u64 = 3 << 24 | 0b10;
    const SGI_5: u64 = 5 << 24 | 0b10;
    let mut world = two_vcpus();
    let one_read = Accesses {
        reads: 1,
        ..ONE_WRITE
    };
    let mut again = |sgis: &[u64]| {
        accesses(&mut world, |world| {
            for &sgi in sgis {
                world.send_sgi(0, SgiRegister::Sgi1r, sgi);
            }
            world.drain();
        })
    };
    assert_eq!(again(&[SGI_3]), ONE_WRITE);
    assert_eq!(again(&[SGI_3]), one_read);
    // Two at once take the way through the list of what was collected.
    let two = Accesses {
        reads: 1,
        writes: 2,
    };
    assert_eq!(again(&[SGI_3, SGI_5]), two);
    assert_eq!(world.acknowledge(1).unwrap().intid, IntId(3));
    for _ in 0..2 {
        let cost = accesses(&mut world, |world| {
            world.send_sgi(0, SgiRegister::Sgi1r, SGI_3);
            world.drain();
        });
        assert_eq!(cost, one_read);
        assert_eq!(
            world.listed(1),
            vec![(3, State::PendingActive), (5, State::Pending)]
        );
    }
    world.end(1);
    // It is delivered once more, after a fold as well.
    world.unload(1);
    world.load(1, 1);
    for sgi in [3, 5] {
        assert_eq!(world.acknowledge(1).unwrap().intid, IntId(sgi));
        world.end(1);
    }
    assert!(world.acknowledge(1).is_none());
}

#[test]
fn an_sgi_to_oneself_costs_one_list_register_write() {
    let mut world = guest(1, 4);
    let cost = accesses(&mut world, |world| {
        world.send_sgi(0, SgiRegister::Sgi1r, 1);
    });
    assert_eq!(cost, ONE_WRITE);
    assert!(world.kicks.is_empty());
    assert_eq!(world.listed(0), vec![(0, State::Pending)]);
}

#[test]
fn a_timer_interrupt_costs_one_list_register_write() {
    let mut world = two_vcpus();
    for _ in 0..3 {
        world.vcpus[0].context.lines = TIMER;
        let cost = accesses(&mut world, World::drain);
        assert_eq!(cost, ONE_WRITE);
        assert!(world.acknowledge(0).unwrap().hardware);
        world.vcpus[0].context.lines = 0;
        world.end(0);
        assert_eq!(
            world.machine.cores[0].active, 0,
            "the guest's EOI deactivates it"
        );
    }
}

/// The fast path of a timer that fires again is not used after any other event.
#[test]
fn a_timer_fires_again_after_other_things_have_happened() {
    let mut world = two_vcpus();
    let mut fire = |between: &dyn Fn(&mut World)| {
        world.vcpus[0].context.lines = TIMER;
        world.drain();
        let what = world.acknowledge(0).unwrap();
        assert_eq!((what.intid, what.hardware), (IntId(27), true));
        world.vcpus[0].context.lines = 0;
        world.end(0);
        between(&mut world);
        // Its record agrees with its list register: no state is lost when both are folded.
        world.vcpus[0].context.lines = TIMER;
        world.drain();
        assert_ne!(world.read_own(0, ISPENDR) & TIMER, 0);
        let what = world.acknowledge(0).unwrap();
        assert_eq!((what.intid, what.hardware), (IntId(27), true));
        world.vcpus[0].context.lines = 0;
        world.end(0);
        assert_eq!(world.machine.cores[0].active, 0);
    };
    fire(&|_| {});
    fire(&|world| {
        world.read_own(0, ISPENDR);
    });
    fire(&|world| world.write_own(0, IPRIORITYR + 24, 0x4040_4040));
    fire(&|world| {
        world.send_sgi(1, SgiRegister::Sgi1r, 5 << 24 | 1);
        world.drain();
        assert_eq!(world.acknowledge(0).unwrap().intid, IntId(5));
        world.end(0);
    });
    fire(&|world| {
        world.unload(0);
        world.load(0, 0);
    });
    fire(&|world| assert!(world.is_quiet(0)));
}

#[test]
fn a_device_interrupt_at_its_vcpu_costs_one_list_register_write() {
    let mut world = two_vcpus();
    for _ in 0..3 {
        world.physical(33).latch = true;
        let cost = accesses(&mut world, World::drain);
        assert_eq!(cost, ONE_WRITE);
        assert!(world.acknowledge(0).unwrap().hardware);
        world.end(0);
        assert!(!world.physical(33).active);
    }
}

#[test]
fn timer_state_is_seen_through_the_redistributor() {
    // As in the timer tests of kvm-unit-tests, which disable the PPI first.
    let mut world = guest(1, 4);
    world.write_own(0, ICENABLER, TIMER);
    let state = |world: &mut World| {
        let pending = world.read_own(0, ISPENDR) & TIMER != 0;
        let active = world.read_own(0, ISACTIVER) & TIMER != 0;
        (pending, active)
    };
    assert_eq!(state(&mut world), (false, false));
    world.vcpus[0].context.lines = TIMER;
    world.drain();
    assert_eq!(state(&mut world), (true, false));
    world.vcpus[0].context.lines = 0;
    assert_eq!(state(&mut world), (false, false));
    assert_eq!(world.machine.cores[0].active, 0, "it can fire again");

    world.write_own(0, ISENABLER, TIMER);
    world.vcpus[0].context.lines = TIMER;
    world.drain();
    assert_eq!(state(&mut world), (true, false));
    assert_eq!(world.acknowledge(0).unwrap().intid, IntId(27));
    assert_eq!(state(&mut world), (true, true));
    world.vcpus[0].context.lines = 0;
    assert_eq!(state(&mut world), (false, true));
    world.end(0);
    assert_eq!(state(&mut world), (false, false));
}

#[test]
fn a_timer_due_while_its_software_instance_is_active_comes_after_it() {
    let mut world = guest(1, 4);
    world.write_own(0, ISPENDR, TIMER);
    assert!(!world.acknowledge(0).unwrap().hardware);
    world.vcpus[0].context.lines = TIMER;
    world.drain();
    assert_eq!(world.listed(0), vec![(27, State::Active)]);
    world.end(0);
    world.drain();
    assert_eq!(world.listed(0), vec![(27, State::Pending)]);
}

#[test]
fn an_sgi_can_be_active_and_pending() {
    let mut world = guest(1, 4);
    world.send_sgi(0, SgiRegister::Sgi1r, 5 << 24 | 1);
    world.acknowledge(0).unwrap();
    world.send_sgi(0, SgiRegister::Sgi1r, 5 << 24 | 1);
    assert_eq!(world.listed(0), vec![(5, State::PendingActive)]);
    assert_eq!(world.read_own(0, ISPENDR), 1 << 5);
    assert_eq!(world.read_own(0, ISACTIVER), 1 << 5);
    assert!(world.acknowledge(0).is_none());
    world.end(0);
    assert_eq!(world.acknowledge(0).unwrap().intid, IntId(5));
    world.end(0);
    assert_eq!(world.listed(0), vec![]);
}

#[test]
fn an_active_sgi_is_cleared_by_register() {
    // The "active" test of kvm-unit-tests: the handler writes ICACTIVER0 in place of an EOI.
    let mut world = guest(1, 4);
    world.send_sgi(0, SgiRegister::Sgi1r, 1);
    world.acknowledge(0).unwrap();
    world.write_own(0, ICACTIVER, 1);
    assert_eq!(world.read_own(0, ISACTIVER), 0);
    assert_eq!(world.listed(0), vec![]);
}

#[test]
fn a_timer_cleared_active_by_register_fires_again_if_it_still_is_due() {
    let mut world = guest(1, 4);
    world.vcpus[0].context.lines = TIMER;
    world.drain();
    world.acknowledge(0).unwrap();
    world.write_own(0, ICACTIVER, TIMER);
    assert_eq!(world.listed(0), vec![(27, State::Pending)]);
    world.vcpus[0].context.lines = 0;
    world.call(0, |cpu, gic, here| cpu.synchronize(gic, here));
    assert_eq!(world.listed(0), vec![]);
    assert_eq!(world.machine.cores[0].active, 0);
}

#[test]
fn a_hardware_interrupt_made_pending_while_active_comes_twice() {
    let mut world = guest(1, 4);
    world.physical(33).latch = true;
    world.drain();
    world.acknowledge(0).unwrap();
    world.write_distributor(0, ISPENDR + 4, 2);
    assert_eq!(world.listed(0), vec![(33, State::PendingActive)]);
    world.end(0);
    assert!(
        world.physical(33).active,
        "the guest's EOI does not deactivate it now"
    );
    assert_eq!(world.acknowledge(0).unwrap().intid, IntId(33));
    world.end(0);
    world.drain();
    assert!(!world.physical(33).active);
    assert_eq!(world.listed(0), vec![]);
}

#[test]
fn clearing_pending_deactivates_the_physical_interrupt() {
    let mut world = guest(1, 4);
    world.write_distributor(0, 0, 0);
    world.physical(34).line = true;
    world.drain();
    assert!(world.physical(34).active);
    assert_eq!(world.read_distributor(0, ISPENDR + 4), 4);
    world.physical(34).line = false;
    world.write_distributor(0, ICPENDR + 4, 4);
    assert!(!world.physical(34).active);
    assert_eq!(world.read_distributor(0, ISPENDR + 4), 0);
}

#[test]
fn a_disabled_device_interrupt_reads_as_pending_and_can_be_cleared() {
    let mut world = guest(1, 4);
    world.write_distributor(0, ICENABLER + 4, 2);
    world.physical(33).latch = true;
    world.drain();
    assert_eq!(world.read_distributor(0, ISPENDR + 4), 2);
    world.write_distributor(0, ICPENDR + 4, 2);
    assert_eq!(world.read_distributor(0, ISPENDR + 4), 0);
    world.write_distributor(0, ISENABLER + 4, 2);
    world.drain();
    assert_eq!(world.listed(0), vec![]);
}

#[test]
fn a_level_interrupt_comes_again_as_long_as_the_level_is_high() {
    let mut world = guest(1, 4);
    world.set_level(35, true);
    world.drain();
    for _ in 0..3 {
        assert_eq!(world.acknowledge(0).unwrap().intid, IntId(35));
        assert!(world.acknowledge(0).is_none());
        world.end(0);
        world.drain();
    }
    assert_eq!(world.listed(0), vec![(35, State::Pending)]);
    world.set_level(35, false);
    world.drain();
    assert_eq!(world.listed(0), vec![]);
}

#[test]
fn interrupts_migrate_with_their_vcpu() {
    let mut world = World::new(1, 2, 4);
    world.load(0, 0);
    world.write_own(0, IGROUPR, u32::MAX);
    world.write_own(0, ISENABLER, u32::MAX);
    world.write_distributor(0, 0, 2);
    world.vcpus[0].context.lines = TIMER;
    world.drain();
    world.acknowledge(0).unwrap();
    world.send_sgi(0, SgiRegister::Sgi1r, 2 << 24 | 1);
    world.unload(0);
    assert_eq!(world.machine.cores[0].active, 0);
    world.load(0, 1);
    assert_eq!(world.machine.cores[1].active, TIMER);
    assert_eq!(
        world.listed(0),
        vec![(27, State::Active), (2, State::Pending)]
    );
    world.vcpus[0].context.lines = 0;
    world.end(0);
    assert_eq!(world.machine.cores[1].active, 0);
}

#[test]
fn a_timer_due_at_load_does_not_fire_first() {
    let mut world = guest(1, 4);
    world.unload(0);
    world.vcpus[0].context.lines = TIMER;
    world.load(0, 0);
    assert_eq!(world.listed(0), vec![(27, State::Pending)]);
    assert_eq!(world.machine.cores[0].active, TIMER);
}

#[test]
fn more_pending_than_list_registers_come_in_order_of_priority() {
    let mut world = guest(1, 2);
    for sgi in 0..6u64 {
        let offset = world.own(0, IPRIORITYR + sgi);
        world.write(0, Region::Redistributors, offset, 1, (7 - sgi) << 3);
    }
    for sgi in 0..6 {
        world.send_sgi(0, SgiRegister::Sgi1r, sgi << 24 | 1);
    }
    assert_eq!(
        world.on(0, |_, _, here| here.hcr()),
        HCR_ENABLE | HCR_NO_PENDING
    );
    for sgi in (0..6).rev() {
        assert_eq!(world.acknowledge(0).unwrap().intid, IntId(sgi));
        world.end(0);
        world.drain();
    }
    assert_eq!(world.on(0, |_, _, here| here.hcr()), HCR_ENABLE);
}

#[test]
fn a_late_interrupt_does_not_overtake_those_that_wait_for_a_list_register() {
    let mut world = guest(1, 2);
    for (sgi, priority) in [(0, 0x08), (1, 0x10), (2, 0x18)] {
        let offset = world.own(0, IPRIORITYR + sgi);
        world.write(0, Region::Redistributors, offset, 1, priority);
    }
    world.write(0, Region::Distributor, IPRIORITYR + 33, 1, 0xf0);
    for sgi in 0..3 {
        world.send_sgi(0, SgiRegister::Sgi1r, sgi << 24 | 1);
    }
    assert_eq!(world.acknowledge(0).unwrap().intid, IntId(0));
    world.end(0);
    world.drain();
    world.physical(33).latch = true;
    for intid in [1, 2, 33] {
        world.drain();
        assert_eq!(world.acknowledge(0).unwrap().intid, IntId(intid));
        world.end(0);
    }
}

#[test]
fn more_active_than_list_registers_end_in_order() {
    let mut world = guest(1, 2);
    for sgi in 0..6u64 {
        let offset = world.own(0, IPRIORITYR + sgi);
        world.write(0, Region::Redistributors, offset, 1, (7 - sgi) << 3);
    }
    for sgi in 0..6u16 {
        world.send_sgi(0, SgiRegister::Sgi1r, u64::from(sgi) << 24 | 1);
        world.drain();
        assert_eq!(world.acknowledge(0).unwrap().intid, IntId(sgi));
    }
    assert_eq!(world.read_own(0, ISACTIVER), 0x3f);
    assert_eq!(
        world.on(0, |_, _, here| here.hcr()),
        HCR_ENABLE | HCR_EOI_NOT_PRESENT
    );
    for sgi in (0..6).rev() {
        world.end(0);
        world.drain();
        assert_eq!(world.read_own(0, ISACTIVER), (1 << sgi) - 1);
    }
}

#[test]
fn an_active_interrupt_keeps_the_priority_it_was_acknowledged_with() {
    let mut world = guest(1, 4);
    world.send_sgi(0, SgiRegister::Sgi1r, 1);
    world.acknowledge(0).unwrap();
    let offset = world.own(0, IPRIORITYR);
    world.write(0, Region::Redistributors, offset, 1, 0x80);
    world.write_own(0, IGROUPR, 0);
    world.end(0);
    assert_eq!(world.read_own(0, ISACTIVER), 0);
}

#[test]
fn changes_by_another_vcpu_reach_the_holder() {
    let mut world = two_vcpus();
    world.set_level(35, true);
    world.drain();
    world.write_distributor(1, ICENABLER + 4, 8);
    world.drain();
    assert_eq!(world.listed(0), vec![]);
    world.write_distributor(1, ISENABLER + 4, 8);
    world.drain();
    world.acknowledge(0).unwrap();
    assert_eq!(
        world.read_distributor(1, ISACTIVER + 4),
        0,
        "as of the last fold"
    );
    world.drain();
    assert_eq!(world.read_distributor(1, ISACTIVER + 4), 8);
    world.set_level(35, false);
    world.write_distributor(1, ICACTIVER + 4, 8);
    world.drain();
    assert_eq!(world.read_distributor(1, ISACTIVER + 4), 0);
    assert_eq!(world.listed(0), vec![]);

    world.write_distributor(1, ISPENDR + 4, 8);
    world.drain();
    assert_eq!(world.listed(0), vec![(35, State::Pending)]);
    world.write_distributor(1, ICPENDR + 4, 8);
    world.drain();
    assert_eq!(world.listed(0), vec![]);
}

#[test]
fn a_sleeping_vcpu_is_woken_by_what_would_be_signalled() {
    let mut world = two_vcpus();
    world.unload(1);
    let awake = |world: &World, lines: u32| {
        let it = &world.vcpus[1];
        it.cpu.has_deliverable(
            &world.gic,
            lines,
            it.context.vmcr,
            it.context.running(),
            || false,
        )
    };
    assert!(!awake(&world, 0));
    assert!(awake(&world, TIMER));
    world.send_sgi(0, SgiRegister::Sgi1r, 2);
    assert!(awake(&world, 0));
    // The priority of everything is 0.
    world.vcpus[1].context.vmcr = 0x0000_0003;
    assert!(!awake(&world, 0), "masked by priority");
    world.vcpus[1].context.vmcr = 0xff00_0001;
    assert!(!awake(&world, 0), "Group 1 is off");
    world.vcpus[1].context.vmcr = 0xff00_0003;
    world.vcpus[1].context.active_priorities[1] = 1;
    assert!(
        !awake(&world, 0),
        "an interrupt of the same priority is active"
    );
}

#[test]
fn sgis_of_group_0_registers_do_not_reach_group_1() {
    let mut world = two_vcpus();
    world.write_distributor(0, 0, 3);
    world.write_own(1, IGROUPR, !1);
    for register in [SgiRegister::Sgi0r, SgiRegister::Asgi1r] {
        world.send_sgi(0, register, 1 << 24 | 2);
        world.drain();
        assert_eq!(world.listed(1), vec![]);
        world.send_sgi(0, register, 2);
        world.drain();
        assert_eq!(world.listed(1), vec![(0, State::Pending)]);
        world.write_own(1, ICPENDR, 1);
    }
    world.send_sgi(0, SgiRegister::Sgi1r, 2);
    world.drain();
    assert_eq!(world.listed(1), vec![(0, State::Pending)]);
}

#[test]
fn an_sgi_rung_twice_is_kicked_once() {
    let mut world = two_vcpus();
    world.unload(1);
    world.send_sgi(0, SgiRegister::Sgi1r, 2);
    assert_eq!(world.kicks.len(), 1);
    world.send_sgi(0, SgiRegister::Sgi1r, 2);
    assert_eq!(world.kicks.len(), 1);
    world.send_sgi(0, SgiRegister::Sgi1r, 1 << 24 | 2);
    assert_eq!(world.kicks.len(), 2);
}

#[test]
fn a_restarted_guest_finds_the_reset_state() {
    let mut world = two_vcpus();
    world.physical(33).latch = true;
    world.physical(34).line = true;
    world.set_level(35, true);
    world.drain();
    world.acknowledge(0).unwrap();
    world.send_sgi(0, SgiRegister::Sgi1r, 3);
    world.unload(0);
    world.unload(1);
    world.machine.tolerant = true;
    let mut no_vcpu = super::machine::Context::new();
    for first in (0..SPIS).step_by(8) {
        world
            .gic
            .reset_spis(first, 8, &mut world.machine.here(0, &mut no_vcpu));
    }
    world.gic.reset();
    for vcpu in &mut world.vcpus {
        vcpu.cpu.reset();
    }
    for spi in world.machine.spis.values() {
        assert!(!spi.active && !spi.enabled);
    }
    world.load(0, 0);
    world.load(1, 1);
    world.drain();
    assert_eq!((world.listed(0), world.listed(1)), (vec![], vec![]));
    for word in 1..3 {
        for bank in [IGROUPR, ISENABLER, ISPENDR, ISACTIVER] {
            let value = world.read_distributor(0, bank + 4 * word);
            // The device's level is still high.
            let expected = if bank == ISPENDR && word == 1 { 4 } else { 0 };
            assert_eq!(value, expected, "bank {bank:#x} word {word}");
        }
    }
}

#[test]
fn running_priority_is_the_highest_of_both_groups() {
    assert_eq!(running_priority(0, 0), 0xff);
    assert_eq!(running_priority(1 << 4, 1 << 20), 0x20);
    assert_eq!(running_priority(0, 1 << 31), 0xf8);
}

#[test]
fn sgi_targets() {
    use super::super::sgi::decode;
    let all_but = |vcpu| VcpuIndexSet(0b1111).without(VcpuIndex(vcpu));
    let sender = VcpuIndex(1);
    for (value, expected) in [
        (0x0000_0000_0500_0006, VcpuIndexSet(0b0110)),
        (0x0000_0000_0500_ffff, VcpuIndexSet(0b1111)),
        (0x0000_0100_0500_0000, all_but(1)),
        (0x0001_0000_0500_0006, VcpuIndexSet::EMPTY),
        (0x0000_0001_0500_0006, VcpuIndexSet::EMPTY),
        (0x0000_0000_0501_0006, VcpuIndexSet::EMPTY),
        (0x0000_1000_0500_0006, VcpuIndexSet::EMPTY),
    ] {
        assert_eq!(decode(value, sender, 4), (IntId(5), expected), "{value:#x}");
    }
}

/// A list register has one rank, so an active interrupt of another rank is not made pending in it.
#[test]
fn an_sgi_that_is_pending_again_has_its_new_priority_and_group() {
    let mut world = guest(1, 4);
    let set_priority = |world: &mut World, intid: u64, priority: u64| {
        let offset = world.own(0, IPRIORITYR + intid);
        world.write(0, Region::Redistributors, offset, 1, priority);
    };
    set_priority(&mut world, 3, 0x80);
    set_priority(&mut world, 5, 0x40);
    world.send_sgi(0, SgiRegister::Sgi1r, 3 << 24 | 1);
    assert_eq!(world.acknowledge(0).unwrap().intid, IntId(3));
    set_priority(&mut world, 3, 0x10);
    world.send_sgi(0, SgiRegister::Sgi1r, 3 << 24 | 1);
    world.end(0);
    world.send_sgi(0, SgiRegister::Sgi1r, 5 << 24 | 1);
    world.drain();
    assert_eq!(world.acknowledge(0).unwrap().intid, IntId(3));

    let mut world = guest(1, 4);
    world.write_distributor(0, 0, 3);
    world.send_sgi(0, SgiRegister::Sgi1r, 3 << 24 | 1);
    assert!(world.acknowledge(0).unwrap().group1);
    world.write_own(0, IGROUPR, !(1 << 3));
    world.send_sgi(0, SgiRegister::Sgi1r, 3 << 24 | 1);
    world.end(0);
    world.drain();
    assert!(!world.acknowledge(0).unwrap().group1);
}

/// An interrupt that a register write has made active is never taken for one of the lowest priority that the guest has
/// acknowledged.
#[test]
fn an_interrupt_made_active_by_a_write_keeps_its_rank() {
    let mut world = guest(1, 1);
    world.write(0, Region::Distributor, IPRIORITYR + 65, 1, 0xf8);
    world.write(0, Region::Distributor, IPRIORITYR + 33, 1, 0x50);
    world.write_own(0, ISACTIVER, 1);
    world.set_level(65, true);
    world.drain();
    assert_eq!(world.acknowledge(0).unwrap().intid, IntId(65));
    world.send_sgi(0, SgiRegister::Sgi1r, 1);
    world.physical(33).latch = true;
    world.drain();
    world.end(0);
    world.drain();
    while let Some(taken) = world.acknowledge(0) {
        assert_ne!(taken.intid, IntId(0), "the write has made it active");
        world.end(0);
        world.set_level(65, false);
        world.drain();
    }
}
