// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random steps of several vCPUs on several cores, compared with the reference.
//!
//! After each step after which all kicks are handled: each running vCPU has in its list registers the interrupt of the
//! highest priority that the reference would deliver to it, and none that it would not; what is acknowledged is
//! deliverable; no interrupt is in two list registers; a physical interrupt is active exactly as long as a virtual one
//! depends on it, and (see `machine`) is activated and deactivated alternately.

use super::super::{Region, SgiRegister, State, TIMER_PPIS, VMCR_EOI_MODE, VcpuIndex, bits};
use super::reference::{Active, Family, Reference};
use super::steps::{Async, EMULATED, PRIVATE, Preempted, SHARED, Step, step};
use super::world::{MAPPED, SPIS, World};
use crate::sync::atomic::Ordering;
use proptest::prelude::*;
use spumone_config::types::IntId;
use std::collections::BTreeSet;
use std::vec::Vec;

struct Pair {
    world: World,
    reference: Reference,
    cores: usize,
    eoi_mode: u64,
    /// Timers whose output fell without an exit.
    fell: Vec<u32>,
}

impl Pair {
    /// All interrupts are enabled, with different priorities; a vCPU is loaded on each core.
    fn new(vcpus: usize, cores: usize, list_registers: usize, split: bool) -> Self {
        let mut pair = Self {
            world: World::new(vcpus, cores, list_registers),
            reference: Reference::new(vcpus, SPIS),
            cores,
            eoi_mode: if split { VMCR_EOI_MODE } else { 0 },
            fell: std::vec![0; vcpus],
        };
        for vcpu in 0..vcpus {
            pair.world.vcpus[vcpu].context.vmcr |= pair.eoi_mode;
            pair.world.load(vcpu, 0);
            for family in [Family::Group, Family::SetEnable] {
                pair.write_private(vcpu, family, u32::MAX);
            }
            for (level, &intid) in PRIVATE.iter().enumerate() {
                pair.set_priority(vcpu, intid, 0x40 + 8 * level as u8);
            }
            if vcpu == 0 {
                pair.world.write_distributor(0, 0, 3);
                pair.reference.control = 3;
                for word in 1..3 {
                    for family in [Family::Group, Family::SetEnable] {
                        pair.write_shared(0, family, word, u32::MAX);
                    }
                }
                for (level, &intid) in SHARED.iter().enumerate() {
                    pair.set_priority(0, intid, 0x50 + 8 * level as u8);
                }
            }
            pair.world.unload(vcpu);
        }
        for vcpu in 0..vcpus.min(cores) {
            pair.world.load(vcpu, vcpu);
        }
        pair.world.drain();
        pair
    }

    fn write_private(&mut self, vcpu: usize, family: Family, value: u32) {
        self.world.write_own(vcpu, family.offset(), value);
        self.reference.write(vcpu, family, 0, value);
    }

    fn write_shared(&mut self, vcpu: usize, family: Family, word: u16, value: u32) {
        let mut expected = value;
        if family == Family::SetActive {
            // Ignored for SPIs with another holder: see the limits of the module `vgic`.
            for bit in 0..32 {
                if self.other_holder(vcpu, 32 * word + bit).is_some() {
                    expected &= !(1 << bit);
                }
            }
        }
        let offset = family.offset() + 4 * u64::from(word);
        self.world.write_distributor(vcpu, offset, value);
        self.reference.write(vcpu, family, 32 * word, expected);
    }

    fn other_holder(&self, vcpu: usize, intid: u16) -> Option<VcpuIndex> {
        let distributor = &self.world.gic.distributor;
        let holder = distributor.holder(distributor.spi(IntId(intid))?)?;
        (holder.index() != vcpu).then_some(holder)
    }

    fn set_priority(&mut self, vcpu: usize, intid: u16, priority: u8) {
        let offset = 0x400 + u64::from(intid);
        let (region, offset) = if intid < 32 {
            (Region::Redistributors, self.world.own(vcpu, offset))
        } else {
            (Region::Distributor, offset)
        };
        self.world
            .write(vcpu, region, offset, 1, u64::from(priority));
        self.reference.interrupt(vcpu, intid).priority = priority;
    }

    /// The vCPU, if it is loaded; steps of others are skipped.
    fn loaded(&self, vcpu: usize) -> Option<usize> {
        (vcpu < self.world.vcpus.len() && self.world.is_loaded(vcpu)).then_some(vcpu)
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Async(ref step) => self.take_async(step),
            Step::Acknowledge(vcpu) => {
                if let Some(vcpu) = self.loaded(vcpu) {
                    self.acknowledge(vcpu);
                }
            }
            Step::End(vcpu) => {
                if let Some(vcpu) = self.loaded(vcpu) {
                    self.end(vcpu);
                }
            }
            Step::Deactivate { vcpu, which } => {
                if let Some(vcpu) = self.loaded(vcpu) {
                    self.deactivate(vcpu, which);
                }
            }
            Step::Private {
                vcpu,
                family,
                value,
            } => {
                if let Some(vcpu) = self.loaded(vcpu) {
                    self.write_private(vcpu, family, value);
                }
            }
            Step::Shared {
                vcpu,
                family,
                word,
                value,
            } => {
                if let Some(vcpu) = self.loaded(vcpu) {
                    self.write_shared(vcpu, family, word, value);
                }
            }
            Step::Priority {
                vcpu,
                intid,
                priority,
            } => {
                if let Some(vcpu) = self.loaded(vcpu) {
                    self.set_priority(vcpu, intid, priority);
                }
            }
            Step::Config { vcpu, intid, edge } => {
                if let Some(vcpu) = self.loaded(vcpu) {
                    let offset = 0xc00 + u64::from(intid / 16) * 4;
                    let shift = 2 * (intid % 16) + 1;
                    let mut value = self.world.read_distributor(vcpu, offset);
                    value = value & !(1 << shift) | u32::from(edge) << shift;
                    self.world.write_distributor(vcpu, offset, value);
                    self.reference.interrupt(vcpu, intid).edge = edge;
                }
            }
            Step::Route {
                vcpu,
                intid,
                target,
            } => {
                if let Some(vcpu) = self.loaded(vcpu) {
                    let offset = 0x6000 + 8 * u64::from(intid);
                    self.world
                        .write(vcpu, Region::Distributor, offset, 8, u64::from(target));
                    self.reference.interrupt(vcpu, intid).route = target;
                }
            }
            Step::Control { vcpu, value } => {
                if let Some(vcpu) = self.loaded(vcpu) {
                    self.world.write_distributor(vcpu, 0, value);
                    self.reference.control = value;
                }
            }
            Step::Mask { vcpu, mask, groups } => {
                if let Some(vcpu) = self.loaded(vcpu) {
                    self.world.vcpus[vcpu].context.vmcr =
                        u64::from(mask) << 24 | self.eoi_mode | groups;
                }
            }
            Step::Read { vcpu } => {
                if let Some(vcpu) = self.loaded(vcpu) {
                    self.read(vcpu);
                }
            }
        }
    }

    fn take_async(&mut self, step: &Async) {
        match *step {
            Async::Device { which, high } => self.device(MAPPED[which].0, high),
            Async::Emulated { which, high } => {
                let intid = EMULATED[which];
                self.world.set_level(intid, high);
                let it = self.reference.interrupt(0, intid);
                it.latch |= high && !it.line && it.edge;
                it.line = high;
            }
            Async::Timer { vcpu, ppi, high } => {
                if let Some(it) = self.world.vcpus.get_mut(vcpu) {
                    let mask = 1 << ppi;
                    if high {
                        it.context.lines |= mask;
                    } else {
                        it.context.lines &= !mask;
                        self.fell[vcpu] |= mask;
                    }
                    self.reference.interrupt(vcpu, ppi).line = high;
                }
            }
            Async::Sgi {
                vcpu,
                register,
                sgi,
                targets,
            } => {
                if let Some(vcpu) = self.loaded(vcpu) {
                    self.world.send_sgi(vcpu, register, sgi << 24 | targets);
                    for target in 0..self.world.vcpus.len() {
                        let it = self.reference.interrupt(target, sgi as u16);
                        if targets >> target & 1 != 0
                            && (register == SgiRegister::Sgi1r || !it.group1)
                        {
                            it.latch = true;
                        }
                    }
                }
            }
            Async::Load {
                vcpu,
                core,
                preempted,
            } => {
                let core = core % self.cores;
                if vcpu < self.world.vcpus.len() && !self.world.is_loaded(vcpu) {
                    if let Some(other) = self.world.on_core(core) {
                        self.world.unload(other);
                    }
                    match preempted {
                        Preempted::No => self.world.load(vcpu, core),
                        Preempted::RunsAfterAll => {
                            self.world.load_interrupted(vcpu, core);
                            self.world
                                .call(vcpu, |cpu, gic, here| cpu.synchronize(gic, here));
                        }
                        Preempted::Unloaded => {
                            self.world.load_interrupted(vcpu, core);
                            self.world.unload(vcpu);
                        }
                    }
                }
            }
            Async::Unload { vcpu, preempted } => {
                if let Some(vcpu) = self.loaded(vcpu) {
                    match preempted {
                        true => self.world.preempt(vcpu),
                        false => self.world.unload(vcpu),
                    }
                }
            }
        }
    }

    fn device(&mut self, intid: u16, high: bool) {
        let distributor = &self.world.gic.distributor;
        let spi = distributor.spi(IntId(intid)).unwrap();
        let fired = distributor.word_of(spi).fired.load(Ordering::Relaxed) & spi.mask() != 0;
        let stuck = self.is_stuck(intid);
        let spi = self.world.physical(intid);
        let (was, active, edge) = (spi.line, spi.active, spi.edge);
        spi.line = high;
        spi.latch |= edge && high && !was;
        let it = self.reference.interrupt(0, intid);
        if edge {
            it.latch |= high && !was;
            return;
        }
        it.line = high;
        // The physical interrupt is active, but not for an interrupt that the guest has active, or had active before it
        // was cleared.
        let waits = match it.active {
            Some(instance) => !instance.hardware && fired,
            None => fired || !stuck,
        };
        it.taken |= !high && active && waits;
    }

    fn acknowledge(&mut self, vcpu: usize) {
        if let Some(what) = self.world.acknowledge(vcpu) {
            let active = Active {
                vcpu,
                rank: Some((what.priority, what.group1)),
                hardware: what.hardware,
            };
            self.reference.acknowledge(vcpu, what.intid.0, active);
            if MAPPED.iter().any(|&(intid, _)| intid == what.intid.0) {
                // The physical GIC keeps a second edge: see the limits of the module `vgic`.
                let again = self.world.physical(what.intid.0).latch;
                self.reference.interrupt(vcpu, what.intid.0).latch |= again;
            }
        }
    }

    fn end(&mut self, vcpu: usize) {
        let Some(what) = self.world.vcpus[vcpu].acknowledged.pop() else {
            return;
        };
        if self.eoi_mode != 0 {
            self.world.on(vcpu, |_, _, here| here.drop_priority(what));
            self.world.vcpus[vcpu].undone.push(what.intid);
            return;
        }
        let rank = (what.priority, what.group1);
        let it = self.reference.interrupt(vcpu, what.intid.0);
        let mine = Active {
            vcpu,
            rank: Some(rank),
            hardware: it.active.is_some_and(|a| a.hardware),
        };
        if it.active == Some(mine) {
            self.world.on(vcpu, |_, _, here| here.end(what));
            self.reference.end(vcpu, what.intid.0, rank);
        } else {
            // A register write has deactivated it; the architecture leaves open what a second end does.
            self.world.on(vcpu, |_, _, here| here.drop_priority(what));
        }
    }

    fn deactivate(&mut self, vcpu: usize, which: usize) {
        // Another vCPU than the one that acknowledged an SPI may deactivate it.
        let owner = which % self.world.vcpus.len();
        let Some(&intid) = self.world.vcpus[owner].undone.first() else {
            return;
        };
        let by = if intid.is_private() { owner } else { vcpu };
        if self.loaded(by).is_none() {
            return;
        }
        self.world.vcpus[owner].undone.remove(0);
        if self.reference.interrupt(by, intid.0).active.is_some() {
            self.world.deactivate(by, intid);
            self.reference.deactivate(by, intid.0);
        }
    }

    /// The guest reads state registers; those of SPIs twice, so that holders can fold in between.
    fn read(&mut self, vcpu: usize) {
        use Family::{ClearActive, ClearPending, Group, SetActive, SetEnable, SetPending};
        for family in [
            Group,
            SetEnable,
            SetPending,
            ClearPending,
            SetActive,
            ClearActive,
        ] {
            assert_eq!(
                self.world.read_own(vcpu, family.offset()),
                self.reference.read(vcpu, family, 0),
                "{family:?} of vCPU {vcpu}"
            );
            for word in 1..3u16 {
                let offset = family.offset() + 4 * u64::from(word);
                self.world.read_distributor(vcpu, offset);
                self.settle();
                assert_eq!(
                    self.world.read_distributor(vcpu, offset),
                    self.reference.read(vcpu, family, 32 * word),
                    "{family:?} word {word}"
                );
            }
        }
    }

    fn settle(&mut self) {
        self.world.drain();
        for vcpu in 0..self.fell.len() {
            if self.fell[vcpu] != 0 && self.world.is_loaded(vcpu) {
                self.world
                    .call(vcpu, |cpu, gic, here| cpu.synchronize(gic, here));
                self.fell[vcpu] = 0;
            }
        }
        self.world.drain();
    }

    fn check(&mut self) {
        let mut seen = BTreeSet::new();
        for vcpu in 0..self.world.vcpus.len() {
            if !self.world.is_loaded(vcpu) {
                self.check_sleeper(vcpu);
                continue;
            }
            let listed = self.world.listed(vcpu);
            for &(intid, _) in &listed {
                let owner = if intid < 32 { vcpu } else { usize::MAX };
                assert!(seen.insert((owner, intid)), "{intid} in two list registers");
            }
            let ready = self.reference.ready(vcpu);
            if self.world.is_quiet(vcpu) {
                let signalled = ready.iter().find(|&&(intid, _)| !self.is_stuck(intid));
                assert_eq!(
                    signalled, None,
                    "vCPU {vcpu} sleeps in spite of a deliverable interrupt"
                );
            }
            let pending: Vec<u16> = listed
                .iter()
                .filter(|(_, state)| *state == State::Pending)
                .map(|&(intid, _)| intid)
                .collect();
            let expected = ready
                .iter()
                .filter(|&&(intid, _)| !self.is_stuck(intid))
                .map(|&(_, priority)| priority)
                .min();
            let priority = |intid| ready.iter().find(|it| it.0 == intid).map(|it| it.1);
            for &intid in &pending {
                assert!(
                    priority(intid).is_some(),
                    "vCPU {vcpu} has {intid} pending, which is not deliverable: {:?}",
                    self.reference.interrupt(vcpu, intid)
                );
            }
            let shown = pending.iter().filter_map(|&intid| priority(intid)).min();
            assert_eq!(shown, expected, "vCPU {vcpu}: {listed:?}, ready {ready:?}");
        }
        self.check_physical();
    }

    /// Whether another vCPU has deactivated an SPI while its holder does not run: it is delivered when that runs again.
    fn is_stuck(&self, intid: u16) -> bool {
        self.other_holder(usize::MAX, intid).is_some_and(|holder| {
            !self.world.is_loaded(holder.index()) && !self.is_copied(holder.index(), intid)
        })
    }

    /// Whether an interrupt is in a copy of a list register of a vCPU that was preempted.
    fn is_copied(&self, vcpu: usize, intid: u16) -> bool {
        let cpu = &self.world.vcpus[vcpu].cpu;
        bits(cpu.copied).any(|index| cpu.slots[index as usize].intid == IntId(intid))
    }

    /// A vCPU that is not loaded is woken exactly by an interrupt that would be signalled.
    fn check_sleeper(&mut self, vcpu: usize) {
        let ready = self.reference.ready(vcpu);
        let it = &self.world.vcpus[vcpu];
        let context = &it.context;
        let awake = it.cpu.has_deliverable(
            &self.world.gic,
            context.lines,
            context.vmcr,
            context.running(),
            || false,
        );
        if it.cpu.copied != 0 {
            assert!(awake, "a vCPU with copies of list registers is preempted");
            return;
        }
        let mask = ((context.vmcr >> 24) as u8).min(context.running());
        let expected = ready.iter().any(|&(intid, priority)| {
            let group1 = match intid.checked_sub(32) {
                Some(spi) => self.reference.shared[usize::from(spi)].group1,
                None => self.reference.private[vcpu][usize::from(intid)].group1,
            };
            !self.is_stuck(intid) && priority < mask && context.vmcr & (1 << u32::from(group1)) != 0
        });
        assert_eq!(awake, expected, "vCPU {vcpu}, ready {ready:?}");
    }

    /// A virtual interrupt depends on each active physical one.
    fn check_physical(&mut self) {
        for (intid, _) in MAPPED {
            let active = self.world.physical(intid).active;
            let it = self.reference.interrupt(0, intid);
            if active {
                assert!(
                    it.is_pending() || it.active.is_some() || self.is_stuck(intid),
                    "{intid} stays active"
                );
            }
            let it = self.reference.interrupt(0, intid);
            if it.active.is_some_and(|it| it.hardware) {
                assert!(active, "{intid} could fire again");
            }
        }
        for vcpu in 0..self.world.vcpus.len() {
            let Some(core) = self.world.vcpus[vcpu].core else {
                continue;
            };
            let active = self.world.machine.cores[core].active;
            for ppi in [27, 30] {
                let it = self.reference.interrupt(vcpu, ppi);
                let held = it.is_pending() || it.active.is_some();
                assert!(held || active >> ppi & 1 == 0, "timer {ppi} stays active");
                assert!(!it.line || active >> ppi & 1 != 0, "timer {ppi} would fire");
            }
            assert_eq!(active & !TIMER_PPIS, 0);
        }
    }

    /// All devices lower their outputs and the guest ends all interrupts: no state may be left.
    fn finish(&mut self) {
        for (intid, _) in MAPPED {
            self.device(intid, false);
        }
        for which in 0..EMULATED.len() {
            self.take_async(&Async::Emulated { which, high: false });
        }
        let vcpus = self.world.vcpus.len();
        for vcpu in 0..vcpus {
            for ppi in [27, 30] {
                self.take_async(&Async::Timer {
                    vcpu,
                    ppi,
                    high: false,
                });
            }
        }
        for round in 0..2 * vcpus {
            let vcpu = round % vcpus;
            self.take_async(&Async::Load {
                vcpu,
                core: 0,
                preempted: Preempted::No,
            });
            self.settle();
            while !self.world.vcpus[vcpu].acknowledged.is_empty() {
                self.end(vcpu);
                self.settle();
            }
            for family in [Family::ClearActive, Family::ClearPending] {
                self.write_private(vcpu, family, u32::MAX);
                for word in 1..3 {
                    self.write_shared(vcpu, family, word, u32::MAX);
                }
                self.settle();
            }
            self.check();
        }
        for vcpu in 0..vcpus {
            if self.world.is_loaded(vcpu) {
                assert_eq!(self.world.listed(vcpu), []);
                self.world.unload(vcpu);
            }
        }
        for intid in 32..32 + SPIS {
            assert_eq!(
                self.other_holder(usize::MAX, intid),
                None,
                "{intid} has a holder"
            );
        }
        for (intid, _) in MAPPED {
            assert!(!self.world.physical(intid).active, "{intid} stays active");
        }
    }
}

proptest! {
    #[test]
    fn behaves_as_the_architecture_says(
        vcpus in 1..=3usize,
        cores in 1..=2usize,
        list_registers in prop_oneof![Just(1usize), Just(2), Just(4), Just(16)],
        split in any::<bool>(),
        interruptions in prop_oneof![Just(0), any::<u32>()],
        steps in proptest::collection::vec((step(), any::<bool>()), 1..150),
    ) {
        let mut pair = Pair::new(vcpus, cores, list_registers, split);
        pair.world.interruptions = interruptions;
        for (step, at_once) in &steps {
            let settled = !matches!(step, Step::Async(_)) || !at_once;
            if settled {
                pair.settle();
            }
            pair.take(step);
            if settled {
                pair.settle();
                pair.check();
            }
        }
        pair.settle();
        pair.check();
        pair.finish();
    }
}
