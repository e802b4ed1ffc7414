// SPDX-License-Identifier: MIT OR Apache-2.0
//! To which vCPU an SPI goes, and when.

use super::*;

#[test]
fn an_spi_follows_its_route() {
    let mut world = two_vcpus();
    world.physical(33).latch = true;
    world.drain();
    assert_eq!(world.listed(0), vec![(33, State::Pending)]);
    world.write(1, Region::Distributor, IROUTER + 8 * 33, 8, 1);
    world.drain();
    assert_eq!(world.listed(0), vec![]);
    assert_eq!(world.listed(1), vec![(33, State::Pending)]);
    assert_eq!(world.physical(33).route, 1);
    let routed = [0, 1].map(|index| world.gic.is_routed_to(IntId(33), VcpuIndex(index)));
    assert_eq!(routed, [false, true]);
}

/// The interrupt that preempts may be for a vCPU of a higher priority, which does not wait for the list registers.
#[test]
fn an_spi_whose_delivery_is_preempted_is_delivered_after_a_kick() {
    let mut world = two_vcpus();
    world.machine.interruptions.set(1);
    world.call(0, |cpu, gic, here| cpu.spi_arrived(gic, IntId(33), here));
    assert_eq!(world.machine.interruptions.get(), 0);
    assert_eq!(world.listed(0), vec![]);
    assert_eq!(world.kicks, [VcpuIndex(0)]);
    world.drain();
    assert_eq!(world.listed(0), vec![(33, State::Pending)]);
}

#[test]
fn an_spi_that_its_holder_has_not_folded_reaches_its_new_target() {
    let mut world = two_vcpus();
    world.physical(33).latch = true;
    world.drain();
    world.acknowledge(0).unwrap();
    world.write(1, Region::Distributor, IROUTER + 8 * 33, 8, 1);
    world.drain();
    world.end(0);
    // There is no maintenance interrupt at its end; vCPU 0 is still the holder.
    world.physical(33).latch = true;
    world.drain();
    assert_eq!(world.listed(1), vec![(33, State::Pending)]);
}

#[test]
fn an_spi_pending_again_while_active_goes_to_its_new_target() {
    let mut world = two_vcpus();
    world.write_distributor(0, ISPENDR + 4, 1);
    world.acknowledge(0).unwrap();
    world.write(0, Region::Distributor, IROUTER + 8 * 32, 8, 1);
    world.write_distributor(0, ISPENDR + 4, 1);
    world.drain();
    assert_eq!(world.listed(0), vec![(32, State::Active)]);
    assert_eq!(world.listed(1), vec![]);
    world.end(0);
    world.drain();
    assert_eq!(world.listed(0), vec![]);
    assert_eq!(world.listed(1), vec![(32, State::Pending)]);
}

#[test]
fn a_sleeping_vcpu_is_woken_by_an_spi_routed_to_it() {
    let mut world = two_vcpus();
    world.write(0, Region::Distributor, IROUTER + 8 * 33, 8, 1);
    world.drain();
    world.unload(1);
    world.physical(33).latch = true;
    world.drain();
    let it = &world.vcpus[1];
    let (vmcr, running) = (it.context.vmcr, it.context.running());
    assert!(
        it.cpu
            .has_deliverable(&world.gic, 0, vmcr, running, || false)
    );
    assert!(
        !world.vcpus[0]
            .cpu
            .has_deliverable(&world.gic, 0, vmcr, running, || false)
    );
}

/// As many as are looked at one by one, and more.
#[test]
fn a_read_of_active_state_recalls_the_holders_of_few_and_of_many_spis() {
    for held in [1_u32, 8, 9, 32] {
        let mut world = guest(3, 4);
        world.write_distributor(1, ISACTIVER + 4, u32::MAX >> (32 - held));
        world.drain();
        world.read_distributor(0, ISACTIVER + 4);
        let recalled: std::vec::Vec<u8> = world.kicks.iter().map(|vcpu| vcpu.0).collect();
        assert!(recalled.contains(&1), "{held} SPIs: {recalled:?}");
        assert!(!recalled.contains(&0), "{held} SPIs: {recalled:?}");
    }
}
