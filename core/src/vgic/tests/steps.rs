// SPDX-License-Identifier: MIT OR Apache-2.0
//! The steps of the property test, and how they are generated.

use super::super::SgiRegister;
use super::reference::Family;
use super::world::MAPPED;
use proptest::prelude::*;
use std::vec;

/// Interrupts that take part: SGIs, a PPI without device, the timers.
pub const PRIVATE: [u16; 6] = [0, 1, 7, 20, 27, 30];
/// Passed through, emulated, without device; two words.
pub const SHARED: [u16; 7] = [32, 33, 34, 35, 36, 64, 65];
/// Emulated devices.
pub const EMULATED: [u16; 2] = [35, 65];

#[derive(Clone, Debug)]
pub enum Step {
    /// Steps that may come before all kicks of the step before are handled.
    Async(Async),
    Acknowledge(usize),
    End(usize),
    Deactivate {
        vcpu: usize,
        which: usize,
    },
    Private {
        vcpu: usize,
        family: Family,
        value: u32,
    },
    Shared {
        vcpu: usize,
        family: Family,
        word: u16,
        value: u32,
    },
    Priority {
        vcpu: usize,
        intid: u16,
        priority: u8,
    },
    Config {
        vcpu: usize,
        intid: u16,
        edge: bool,
    },
    Route {
        vcpu: usize,
        intid: u16,
        target: u32,
    },
    Control {
        vcpu: usize,
        value: u32,
    },
    Mask {
        vcpu: usize,
        mask: u8,
        groups: u64,
    },
    Read {
        vcpu: usize,
    },
}

/// Whether a vCPU is preempted while it is being loaded.
#[derive(Clone, Copy, Debug)]
pub enum Preempted {
    No,
    /// It is, but then runs all the same.
    RunsAfterAll,
    Unloaded,
}

#[derive(Clone, Debug)]
pub enum Async {
    Device {
        which: usize,
        high: bool,
    },
    Emulated {
        which: usize,
        high: bool,
    },
    Timer {
        vcpu: usize,
        ppi: u16,
        high: bool,
    },
    Sgi {
        vcpu: usize,
        register: SgiRegister,
        sgi: u64,
        targets: u64,
    },
    Load {
        vcpu: usize,
        core: usize,
        preempted: Preempted,
    },
    Unload {
        vcpu: usize,
        /// By a higher band.
        preempted: bool,
    },
}

fn masks(of: &'static [u16]) -> impl Strategy<Value = u32> {
    proptest::sample::subsequence(of, 1..=of.len()).prop_map(|intids| {
        intids
            .iter()
            .fold(0, |mask, intid| mask | 1 << (intid % 32))
    })
}

fn family() -> impl Strategy<Value = Family> {
    prop_oneof![
        1 => Just(Family::Group),
        4 => Just(Family::SetEnable),
        2 => Just(Family::ClearEnable),
        3 => Just(Family::SetPending),
        2 => Just(Family::ClearPending),
        1 => Just(Family::SetActive),
        2 => Just(Family::ClearActive),
    ]
}

fn asynchronous() -> impl Strategy<Value = Async> {
    let vcpu = 0..3usize;
    prop_oneof![
        3 => (0..MAPPED.len(), any::<bool>()).prop_map(|(which, high)| Async::Device { which, high }),
        2 => (0..EMULATED.len(), any::<bool>()).prop_map(|(which, high)| Async::Emulated { which, high }),
        2 => (vcpu.clone(), prop_oneof![Just(27), Just(30)], any::<bool>())
            .prop_map(|(vcpu, ppi, high)| Async::Timer { vcpu, ppi, high }),
        3 => (vcpu.clone(), 0..8u8, prop_oneof![Just(0), Just(1), Just(7)], 0..16u64).prop_map(
            |(vcpu, register, sgi, targets)| {
                let register = match register {
                    0 => SgiRegister::Sgi0r,
                    1 => SgiRegister::Asgi1r,
                    _ => SgiRegister::Sgi1r,
                };
                Async::Sgi { vcpu, register, sgi, targets }
            }
        ),
        2 => (vcpu.clone(), 0..2usize, preempted())
            .prop_map(|(vcpu, core, preempted)| Async::Load { vcpu, core, preempted }),
        2 => (vcpu, any::<bool>()).prop_map(|(vcpu, preempted)| Async::Unload { vcpu, preempted }),
    ]
}

fn preempted() -> impl Strategy<Value = Preempted> {
    prop_oneof![
        2 => Just(Preempted::No),
        1 => Just(Preempted::RunsAfterAll),
        1 => Just(Preempted::Unloaded),
    ]
}

pub fn step() -> impl Strategy<Value = Step> {
    let vcpu = 0..3usize;
    let any_intid = proptest::sample::select([&PRIVATE[..], &SHARED[..]].concat());
    let spi = proptest::sample::select(&SHARED[..]);
    prop_oneof![
        16 => asynchronous().prop_map(Step::Async),
        10 => vcpu.clone().prop_map(Step::Acknowledge),
        8 => vcpu.clone().prop_map(Step::End),
        4 => (vcpu.clone(), 0..8usize).prop_map(|(vcpu, which)| Step::Deactivate { vcpu, which }),
        3 => (vcpu.clone(), family(), masks(&PRIVATE))
            .prop_map(|(vcpu, family, value)| Step::Private { vcpu, family, value }),
        4 => (vcpu.clone(), family(), 1..3u16, masks(&SHARED))
            .prop_map(|(vcpu, family, word, value)| Step::Shared { vcpu, family, word, value }),
        2 => (vcpu.clone(), any_intid, 0..32u8)
            .prop_map(|(vcpu, intid, level)| Step::Priority { vcpu, intid, priority: level << 3 }),
        1 => (vcpu.clone(), proptest::sample::select(&EMULATED[..]), any::<bool>())
            .prop_map(|(vcpu, intid, edge)| Step::Config { vcpu, intid, edge }),
        2 => (vcpu.clone(), spi, 0..4u32)
            .prop_map(|(vcpu, intid, target)| Step::Route { vcpu, intid, target }),
        1 => (vcpu.clone(), 0..4u32).prop_map(|(vcpu, value)| Step::Control { vcpu, value }),
        1 => (vcpu.clone(), prop_oneof![2 => Just(0xff), 1 => any::<u8>()], 0..4u64)
            .prop_map(|(vcpu, mask, groups)| Step::Mask { vcpu, mask, groups }),
        2 => vcpu.prop_map(|vcpu| Step::Read { vcpu }),
    ]
}
