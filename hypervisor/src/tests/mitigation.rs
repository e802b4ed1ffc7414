// SPDX-License-Identifier: MIT OR Apache-2.0
//! The firmware's workarounds for speculation: what guests are told, what is passed on, and what EL2 does itself.

use super::bench::Bench;
use super::guest::psci;
use super::systems::*;
use crate::fake::{self, Firmware};
use spumone_config::packed::Policy;
use spumone_core::mitigation::Workaround;

const ARCH_FEATURES: u64 = 0x8000_0001;
/// The calls of workarounds 1, 2 and 3.
const CALLS: [u64; 3] = [0x8000_8000, 0x8000_7fff, 0x8000_3fff];
const TIMER: u16 = 27;

/// Two guests that run on core 0, of which the second one may also run on core 1. The cores have this firmware, and `ID_AA64PFR0_EL1.CSV2`.
fn boot(firmware: [(Firmware, u64); 2]) -> Bench {
    let guests = [
        GuestParts::new(&[(0, 20)]),
        GuestParts::new(&[(0, 10)]).on(3),
    ];
    let mut parts = parts(&system(2, Policy::Steal, &guests));
    parts.firmware = firmware.to_vec();
    let mut bench = Bench::boot_parts(parts);
    bench.until("the first guest runs", |bench| bench.entry(0, 0).count > 0);
    bench.opens_gic(0, 0, &[TIMER]);
    bench
}

fn alike(workarounds: [i32; 3], csv2: u64) -> Bench {
    let firmware = (Firmware::new(workarounds), csv2);
    boot([firmware.clone(), firmware])
}

/// The answer to a guest's call.
fn calls(bench: &mut Bench, guest: u8, registers: [u64; 4]) -> i64 {
    bench.does(guest, 0, move |cpu| cpu.hvc(registers));
    bench.look(guest, 0, |cpu| cpu.registers.x[0]) as i64
}

/// What a guest is told about workarounds 1, 2 and 3.
fn told(bench: &mut Bench, guest: u8) -> [i64; 3] {
    CALLS.map(|id| calls(bench, guest, [ARCH_FEATURES, id, 0, 0]))
}

fn mitigations(core: usize) -> Vec<Workaround> {
    fake::with(|machine| machine.cores[core].mitigations.clone())
}

/// The first guest sleeps, so that the second one runs.
fn sleeps(bench: &mut Bench) {
    bench.does(0, 0, |cpu| cpu.wfi());
    bench.until("the second guest runs", |bench| {
        bench.entry(1, 0).count > 0 && bench.instances[0].running() == Some(bench.vcpu(1, 0))
    });
}

#[test]
fn firmware_that_knows_nothing_is_not_called() {
    let mut old = Firmware::new([0; 3]);
    old.versions = (2, -1);
    let mut without_features = Firmware::new([0; 3]);
    without_features.versions = (0x1_0000, 0x1_0000);
    for firmware in [old, without_features, Firmware::new([-1; 3])] {
        let mut bench = boot([(firmware.clone(), 0), (firmware, 0)]);
        assert_eq!(told(&mut bench, 0), [-1; 3]);
        for id in CALLS {
            assert_eq!(calls(&mut bench, 0, [id, 1, 0, 0]), -1);
        }
        sleeps(&mut bench);
        assert_eq!(mitigations(0), []);
    }
}

#[test]
fn a_guest_is_told_what_holds_on_each_core_on_which_it_may_run() {
    let firmware = |one, two| (Firmware::new([one, two, -1]), 1);
    let mut bench = boot([firmware(1, 1), firmware(0, 0)]);
    assert_eq!(told(&mut bench, 0), [1, -2, -1]);
    sleeps(&mut bench);
    assert_eq!(told(&mut bench, 1), [0, -2, -1]);
    // At start.
    assert_eq!(
        (mitigations(0), mitigations(1)),
        (vec![], vec![Workaround::Two])
    );
}

#[test]
fn a_call_is_passed_on_where_the_core_needs_it() {
    let mut bench = alike([0, 0, 1], 1);
    fake::with(|machine| machine.cores[0].mitigations.clear());
    let [one, two, three] = CALLS;
    assert_eq!(calls(&mut bench, 0, [one, 7, 7, 7]), 0);
    assert_eq!(mitigations(0), [Workaround::One]);
    assert_eq!(bench.look(0, 0, |cpu| cpu.registers.x[1]), 7);
    // The core does not need it.
    assert_eq!(calls(&mut bench, 0, [three, 0, 0, 0]), 0);
    // It is on.
    assert_eq!(calls(&mut bench, 0, [two, 0, 0, 0]), -1);
    assert_eq!(mitigations(0), [Workaround::One]);
}

#[test]
fn branch_predictors_are_invalidated_between_guests_only() {
    for (workarounds, csv2, called) in [
        ([0, -1, -1], 0, Some(Workaround::One)),
        ([0, -1, 0], 0, Some(Workaround::Three)),
        ([1, -1, 1], 0, None),
        ([0, -1, 0], 1, None),
    ] {
        let mut bench = alike(workarounds, csv2);
        let expected = |number: usize| vec![called; number].into_iter().flatten().collect();
        let all: Vec<_> = expected(1);
        assert_eq!(mitigations(0), all, "the first guest has been loaded");
        sleeps(&mut bench);
        let all: Vec<_> = expected(2);
        assert_eq!(mitigations(0), all, "the other guest has been loaded");
    }
}

#[test]
fn vcpus_of_one_guest_share_what_they_have_trained() {
    let guests = [GuestParts::new(&[(0, 20), (0, 20)])];
    let mut parts = parts(&system(1, Policy::None, &guests));
    parts.firmware = vec![(Firmware::new([0, -1, -1]), 0)];
    let mut bench = Bench::boot_parts(parts);
    bench.until("the guest runs", |bench| bench.entry(0, 0).count > 0);
    bench.does(0, 0, |cpu| cpu.hvc([psci::CPU_ON, 1, GUEST_MEMORY, 0]));
    bench.does(0, 0, |cpu| cpu.wfi());
    bench.until("its other vCPU runs", |bench| bench.entry(0, 1).count > 0);
    assert_eq!(mitigations(0), [Workaround::One]);
}
