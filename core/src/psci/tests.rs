// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every call against its specification, and sequences of calls against a model.

use super::*;
use crate::smccc::FunctionId;
use proptest::prelude::*;
use spumone_config::types::{MAX_VCPUS_PER_GUEST, PcpuId};
use std::vec::Vec;

const ENTRY: GuestAddr = GuestAddr(0x4008_0000);
const ENTRY_POINT: EntryPoint = EntryPoint {
    entry: ENTRY,
    context: 7,
};

/// A core acknowledges a stop, and finishes it if it is the last core. There is no state to clear.
fn core_done(life: &Lifecycle, core: PcpuId) -> Option<AfterStop> {
    let restarts = matches!(life.now().0, Phase::Stopping(StopReason::Reset));
    life.acknowledge(core)
        .then(|| life.finish_stop(restarts))
        .flatten()
}

fn is_memory(address: GuestAddr) -> bool {
    (0x4000_0000..0x8000_0000).contains(&address.0)
}

fn call(power: &GuestPower, registers: [u64; 4]) -> Outcome {
    handle(
        Call::decode(registers),
        power,
        None,
        |_| Some(Answer::Absent),
        is_memory,
    )
}

/// A guest of three vCPUs of which number 0 is on.
fn guest() -> GuestPower {
    let power = GuestPower::new(3);
    power.request_start(0).unwrap();
    assert!(power.started(0));
    power
}

fn returned(outcome: Outcome) -> i64 {
    match outcome {
        Outcome::Return(value) => value as i64,
        other => panic!("{other:?}"),
    }
}

#[test]
fn versions() {
    let power = guest();
    let version = |id: FunctionId| returned(call(&power, [u64::from(id.0), 0, 0, 0]));
    assert_eq!(version(FunctionId::SMCCC_VERSION), 0x1_0001);
    assert_eq!(version(FunctionId::PSCI_VERSION), 0x1_0001);
    assert_eq!(version(FunctionId::TRNG_VERSION), 0x1_0000);
    assert_eq!(version(FunctionId::MIGRATE_INFO_TYPE), 2);
}

#[test]
fn features_reports_exactly_the_calls_that_are_implemented() {
    let power = guest();
    let features = |query: FunctionId, id: u32| {
        returned(call(&power, [u64::from(query.0), u64::from(id), 0, 0]))
    };
    let psci = [
        0x8400_0000,
        0x8400_0001,
        0xc400_0001,
        0x8400_0002,
        0x8400_0003,
        0xc400_0003,
        0x8400_0004,
        0xc400_0004,
        0x8400_0006,
        0x8400_0008,
        0x8400_0009,
        0x8400_000a,
    ];
    let trng = [
        0x8400_0050,
        0x8400_0051,
        0x8400_0052,
        0x8400_0053,
        0xc400_0053,
    ];
    let arch = [0x8000_0000, 0x8000_0001];
    let ids = (0..0x60)
        .flat_map(|n| [0x8400_0000 + n, 0xc400_0000 + n, 0x8000_0000 + n])
        .chain([0x8000_8000, 0x8000_7fff, 0xc500_0020, 0]);
    for id in ids {
        let expected = |implemented: bool| if implemented { 0 } else { -1 };
        assert_eq!(
            features(FunctionId::PSCI_FEATURES, id),
            expected(psci.contains(&id) || id == 0x8000_0000)
        );
        assert_eq!(
            features(FunctionId::TRNG_FEATURES, id),
            expected(trng.contains(&id))
        );
        assert_eq!(
            features(FunctionId::SMCCC_ARCH_FEATURES, id),
            expected(arch.contains(&id))
        );
        let implemented = psci.contains(&id) || trng.contains(&id) || arch.contains(&id);
        if !implemented {
            assert_eq!(returned(call(&power, [u64::from(id), 0, 0, 0])), -1);
        }
    }
}

#[test]
fn cpu_on_starts_a_vcpu_once() {
    let power = guest();
    let start = |target| call(&power, [0xc400_0003, target, ENTRY.0, 7]);
    let started = Outcome::StartVcpu {
        index: 1,
        entry_point: ENTRY_POINT,
    };
    assert_eq!(start(1), started);
    assert_eq!(returned(start(1)), -5);
    assert!(power.started(1));
    assert!(!power.started(1));
    assert_eq!(returned(start(1)), -4);
    assert_eq!(returned(start(0)), -4);
    assert!(!power.stopped(1));
    assert_eq!(start(1), started);
    for target in [3, 8, 0x100, 0x8000_0001, 1 << 32 | 1, u64::MAX] {
        assert_eq!(returned(start(target)), -2, "{target:#x}");
    }
}

#[test]
fn cpu_on_with_a_bad_entry_changes_nothing() {
    let power = guest();
    for entry in [0, 0x3fff_fffc, 0x8000_0000, ENTRY.0 + 2, u64::MAX] {
        assert_eq!(returned(call(&power, [0xc400_0003, 1, entry, 0])), -9);
        assert_eq!(power.get(1), Some(Power::Off));
    }
}

#[test]
fn affinity_info_returns_the_state_of_a_vcpu_or_of_a_node() {
    let power = guest();
    let info = |target, level| returned(call(&power, [0xc400_0004, target, level, 0]));
    assert_eq!((info(0, 0), info(1, 0), info(2, 0)), (0, 1, 1));
    power.request_start(1).unwrap();
    assert_eq!(info(1, 0), 2);
    assert_eq!(info(3, 0), -2);
    assert_eq!(info(0x100, 0), -2);
    // vCPU 0 is on.
    assert_eq!(
        (
            info(0, 1),
            info(0xff, 1),
            info(0xffff, 2),
            info(0xff_ffff, 3)
        ),
        (0, 0, 0, 0)
    );
    assert_eq!(info(0x100, 1), -2);
    assert_eq!(info(0x100, 2), 0);
    assert_eq!(info(1 << 32, 3), -2);
    assert_eq!(info(1 << 24, 3), -2);
    assert_eq!(info(0, 4), -2);
    power.stopped(0);
    assert_eq!(info(0, 1), 2);
    power.started(1);
    power.stopped(1);
    assert_eq!(info(0, 1), 1);
}

#[test]
fn cpu_suspend_waits_or_resumes_at_the_entry_point() {
    let power = guest();
    let suspend = |state, entry| call(&power, [0xc400_0001, state, entry, 7]);
    let standby = Outcome::Suspend { powerdown: None };
    // The entry does not matter for standby.
    assert_eq!(suspend(0, 0), standby);
    assert_eq!(suspend(0xffff, 1), standby);
    assert_eq!(
        suspend(1 << 16, ENTRY.0),
        Outcome::Suspend {
            powerdown: Some(ENTRY_POINT)
        }
    );
    assert_eq!(returned(suspend(1 << 16, 0)), -9);
    for bit in (17..24).chain(24..32) {
        assert_eq!(returned(suspend(1 << bit, ENTRY.0)), -2, "bit {bit}");
    }
}

#[test]
fn off_and_reset_concern_the_vcpu_or_the_guest() {
    let power = guest();
    assert_eq!(call(&power, [0x8400_0002, 0, 0, 0]), Outcome::StopSelf);
    assert_eq!(call(&power, [0x8400_0008, 0, 0, 0]), Outcome::GuestOff);
    assert_eq!(call(&power, [0x8400_0009, 0, 0, 0]), Outcome::GuestReset);
}

#[test]
fn random_bits_are_limited_by_the_width_of_the_call() {
    let power = guest();
    let random = |id, bits| call(&power, [id, bits, 0, 0]);
    for (id, most, width) in [
        (0x8400_0053, 96, RandomWidth::Bits32),
        (0xc400_0053, 192, RandomWidth::Bits64),
    ] {
        for bits in [1, most] {
            let bits32 = bits as u32;
            assert_eq!(
                random(id, bits),
                Outcome::Random {
                    bits: bits32,
                    width
                }
            );
        }
        for bits in [0, most + 1, 0xffff_ffff] {
            assert_eq!(returned(random(id, bits)), -2);
        }
    }
    assert_eq!(returned(random(0xc400_0053, 1 << 32 | 1)), -2);
    let uuid = call(&power, [0x8400_0052, 0, 0, 0]);
    assert!(matches!(uuid, Outcome::ReturnFour(words) if words.iter().all(|&w| w < 0xffff_ffff)));
}

#[test]
fn a_guest_has_at_most_max_vcpus() {
    let power = GuestPower::new(u8::MAX);
    assert_eq!(usize::from(power.count()), MAX_VCPUS_PER_GUEST);
    assert_eq!(power.get(power.count()), None);
    assert_eq!(power.request_start(power.count()), Err(Power::Off));
}

#[test]
fn a_stop_and_restart_goes_through_all_cores() {
    let life = Lifecycle::new(0b101);
    assert_eq!(life.now(), (Phase::Restoring, Generation(0)));
    assert_eq!(life.begin_stop(life.now().1, StopReason::Off), None);
    assert!(!life.begin_restore());
    assert_eq!(life.run(), Some(Generation(1)));
    assert_eq!(life.run(), None);
    assert_eq!(core_done(&life, PcpuId(0)), None);
    assert!(life.is_running(Generation(1)));
    assert!(!life.is_running(Generation(0)));
    assert!(!life.is_stopping(Generation(1)));

    assert_eq!(
        life.begin_stop(life.now().1, StopReason::Reset),
        Some(Generation(1))
    );
    assert_eq!(life.begin_stop(life.now().1, StopReason::Fault), None);
    assert!(!life.is_running(Generation(1)));
    assert!(life.is_stopping(Generation(1)));
    assert!(!life.is_stopping(Generation(0)));
    for core in [0, 0, 1, 40] {
        assert_eq!(core_done(&life, PcpuId(core)), None);
    }
    assert_eq!(life.finish_stop(true), None);
    assert!(life.acknowledge(PcpuId(2)));
    assert!(!life.acknowledge(PcpuId(2)));
    // While the last core clears the guest, no core can restart it.
    assert!(!life.begin_restore());
    assert_eq!(life.run(), None);
    assert!(life.is_stopping(Generation(1)));
    assert_eq!(life.finish_stop(true), Some(AfterStop::Restore));
    assert_eq!(life.finish_stop(true), None);
    assert_eq!(core_done(&life, PcpuId(2)), None);
    assert_eq!(life.run(), Some(Generation(2)));

    assert_eq!(
        life.begin_stop(life.now().1, StopReason::Fault),
        Some(Generation(2))
    );
    assert_eq!(core_done(&life, PcpuId(2)), None);
    let stay = AfterStop::Stay(StopReason::Fault);
    assert_eq!(core_done(&life, PcpuId(0)), Some(stay));
    assert_eq!(
        life.now(),
        (Phase::Stopped(StopReason::Fault), Generation(2))
    );
    assert!(life.begin_restore());
    assert!(!life.begin_restore());
    assert_eq!(life.run(), Some(Generation(3)));
}

/// What happens to the power of a guest's vCPUs.
#[derive(Clone, Copy, Debug)]
enum Event {
    CpuOn(u8),
    Started(u8),
    Stopped(u8),
    Reset,
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        10 => (0_u8..4).prop_map(Event::CpuOn),
        10 => (0_u8..4).prop_map(Event::Started),
        10 => (0_u8..4).prop_map(Event::Stopped),
        1 => Just(Event::Reset),
    ]
}

proptest! {
    #[test]
    fn power_states_follow_the_model(events in prop::collection::vec(any_event(), 1..100)) {
        let power = guest();
        let mut model: Vec<_> = [Power::On, Power::Off, Power::Off].into();
        for event in events {
            match event {
                Event::CpuOn(index) => {
                    let target = u64::from(index);
                    let outcome = call(&power, [0xc400_0003, target, ENTRY.0, 7]);
                    let expected = match model.get_mut(usize::from(index)) {
                        None => Outcome::Return(-2_i64 as u64),
                        Some(Power::On) => Outcome::Return(-4_i64 as u64),
                        Some(Power::OnPending) => Outcome::Return(-5_i64 as u64),
                        Some(state) => {
                            *state = Power::OnPending;
                            Outcome::StartVcpu { index, entry_point: ENTRY_POINT }
                        }
                    };
                    prop_assert_eq!(outcome, expected);
                }
                Event::Started(index) => {
                    let pending = model.get_mut(usize::from(index)).filter(|s| **s == Power::OnPending);
                    prop_assert_eq!(power.started(index), pending.is_some());
                    if let Some(state) = pending {
                        *state = Power::On;
                    }
                }
                Event::Stopped(index) => {
                    let on = model.get_mut(usize::from(index)).filter(|s| **s == Power::On);
                    let was_on = on.is_some();
                    if let Some(state) = on {
                        *state = Power::Off;
                    }
                    let last = was_on && model.iter().all(|&state| state == Power::Off);
                    prop_assert_eq!(power.stopped(index), last);
                }
                Event::Reset => {
                    power.reset();
                    model.fill(Power::Off);
                }
            }
            for index in 0..4 {
                prop_assert_eq!(power.get(index), model.get(usize::from(index)).copied());
            }
        }
    }

    /// No call of a guest starts a vCPU of another guest, or at an address outside the guest's memory.
    #[test]
    fn no_call_affects_anything_outside_the_guest(
        id in prop_oneof![
            any::<u64>(),
            (0_u64..0x60).prop_map(|n| 0x8400_0000 + n),
            (0_u64..0x60).prop_map(|n| 0xc400_0000 + n),
        ],
        arguments in prop::array::uniform3(prop_oneof![
            any::<u64>(), 0_u64..16, Just(1 << 16), 0x3fff_fff0_u64..0x4000_0010
        ]),
    ) {
        let power = guest();
        let [x1, x2, x3] = arguments;
        let entry = match call(&power, [id, x1, x2, x3]) {
            Outcome::StartVcpu { index, entry_point } => {
                prop_assert!(index < 3);
                prop_assert_eq!(power.get(index), Some(Power::OnPending));
                Some(entry_point.entry)
            }
            Outcome::Suspend { powerdown } => powerdown.map(|entry_point| entry_point.entry),
            Outcome::Random { bits, width } => {
                prop_assert!(bits >= 1 && bits <= width.most_bits());
                None
            }
            _ => None,
        };
        prop_assert!(entry.is_none_or(is_memory));
    }
}

#[test]
fn stolen_time_is_offered_only_where_the_guest_reads_it() {
    const ARCH_FEATURES: u64 = 0x8000_0001;
    const PV_TIME_FEATURES: u64 = 0xc500_0020;
    const PV_TIME_ST: u64 = 0xc500_0021;
    let power = guest();
    let answer = |registers, place: Option<u64>| {
        let place = place.map(GuestAddr);
        handle(Call::decode(registers), &power, place, |_| None, is_memory)
    };
    let not_supported = Outcome::Return(CallError::NotSupported.to_register());
    let page = 0x0c01_0040;
    for call in [
        [ARCH_FEATURES, PV_TIME_FEATURES, 0, 0],
        [PV_TIME_FEATURES, PV_TIME_FEATURES, 0, 0],
        [PV_TIME_FEATURES, PV_TIME_ST, 0, 0],
    ] {
        assert_eq!(answer(call, Some(page)), Outcome::Return(SUCCESS));
        assert_eq!(answer(call, None), not_supported);
    }
    assert_eq!(
        answer([PV_TIME_ST, 0, 0, 0], Some(page)),
        Outcome::Return(page)
    );
    assert_eq!(answer([PV_TIME_ST, 0, 0, 0], None), not_supported);
    // A call that paravirtualized time does not have.
    assert_eq!(
        answer([PV_TIME_FEATURES, 0x8400_0000, 0, 0], Some(page)),
        not_supported
    );
}

#[test]
fn a_workaround_is_called_only_where_it_is_offered() {
    const ARCH_FEATURES: u64 = 0x8000_0001;
    let power = guest();
    for (id, workaround) in [
        (0x8000_8000, Workaround::One),
        (0x8000_7fff, Workaround::Two),
        (0x8000_3fff, Workaround::Three),
    ] {
        let answer = |registers, offered: Option<Answer>| {
            let offer = |asked| {
                assert_eq!(asked, workaround);
                offered
            };
            handle(Call::decode(registers), &power, None, offer, is_memory)
        };
        let asked = |offered| answer([ARCH_FEATURES, id, 0, 0], offered);
        let called = |offered| answer([id, 1, 0, 0], offered);
        for (offered, value) in [
            (Answer::Needed, 0),
            (Answer::NotNeeded, 1),
            (Answer::NeverNeeded, -2),
            (Answer::Absent, -1),
        ] {
            assert_eq!(returned(asked(Some(offered))), value);
            match value >= 0 {
                true => assert_eq!(called(Some(offered)), Outcome::Mitigate(workaround)),
                false => assert_eq!(returned(called(Some(offered))), -1),
            }
        }
        // Another core has not asked its firmware yet.
        assert_eq!(asked(None), Outcome::Repeat);
        assert_eq!(called(None), Outcome::Repeat);
    }
}
