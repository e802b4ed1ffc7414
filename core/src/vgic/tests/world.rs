// SPDX-License-Identifier: MIT OR Apache-2.0
//! A guest on the simulated cores: what the hypervisor does around the virtual GIC, with as few decisions of its own as
//! possible.

use super::super::{CpuInterface, GuestGic, Region, SgiRegister, State, VcpuIndex, VcpuIndexSet};
use super::machine::{Acknowledged, Context, HCR_TRAP_DEACTIVATE, Here, Machine, PhysicalSpi};
use spumone_config::gic::{REDISTRIBUTOR_SIZE, SGI_FRAME};
use spumone_config::packed::{Interrupt, Trigger};
use spumone_config::types::{IntId, PcpuId};
use std::collections::VecDeque;
use std::vec::Vec;

/// Passed-through SPIs: one edge-triggered, two level-sensitive, in two words.
pub const MAPPED: [(u16, Trigger); 3] = [
    (33, Trigger::Edge),
    (34, Trigger::Level),
    (64, Trigger::Level),
];
/// The physical number of a passed-through SPI.
pub const PHYSICAL_OFFSET: u16 = 100;
/// SPIs of the guest.
pub const SPIS: u16 = 64;

pub struct Vcpu {
    pub cpu: CpuInterface,
    pub context: Context,
    pub core: Option<usize>,
    /// Acknowledged and not ended, in this order.
    pub acknowledged: Vec<Acknowledged>,
    /// Ended but not deactivated (EOImode = 1).
    pub undone: Vec<IntId>,
}

pub struct World {
    pub gic: GuestGic,
    pub machine: Machine,
    pub vcpus: Vec<Vcpu>,
    /// Kicks that have been sent and have not arrived.
    pub kicks: VecDeque<VcpuIndex>,
    /// Gives random looks that find the core interrupted; 0: none does.
    pub interruptions: u32,
}

/// What a write of DIR did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deactivation {
    Trapped,
    Direct,
}

/// Tries of what is interrupted, before it is not interrupted any more.
const MAX_TRIES: u32 = 30;

impl World {
    pub fn new(vcpus: usize, cores: usize, list_registers: usize) -> Self {
        let gic = GuestGic::new();
        let interrupts: Vec<Interrupt> = MAPPED
            .iter()
            .map(|&(guest, trigger)| Interrupt {
                physical: IntId(guest + PHYSICAL_OFFSET),
                guest: IntId(guest),
                trigger,
            })
            .collect();
        gic.configure(SPIS, vcpus, &interrupts);
        let mut machine = Machine::new(cores, list_registers);
        for (guest, trigger) in MAPPED {
            let spi = PhysicalSpi {
                edge: trigger == Trigger::Edge,
                ..PhysicalSpi::default()
            };
            machine.spis.insert(guest + PHYSICAL_OFFSET, spi);
        }
        let vcpus = (0..vcpus)
            .map(|index| Vcpu {
                cpu: CpuInterface::new(VcpuIndex(index as u8)),
                context: Context::new(),
                core: None,
                acknowledged: Vec::new(),
                undone: Vec::new(),
            })
            .collect();
        Self {
            gic,
            machine,
            vcpus,
            kicks: VecDeque::new(),
            interruptions: 0,
        }
    }

    /// Calls `act` with a loaded vCPU.
    pub fn on<R>(
        &mut self,
        vcpu: usize,
        act: impl FnOnce(&mut CpuInterface, &GuestGic, &mut Here) -> R,
    ) -> R {
        let it = &mut self.vcpus[vcpu];
        let core = it.core.expect("loaded");
        let mut here = self.machine.here(core, &mut it.context);
        act(&mut it.cpu, &self.gic, &mut here)
    }

    /// The same, for an `act` that returns vCPUs whose doorbells were rung.
    pub fn call(
        &mut self,
        vcpu: usize,
        act: impl FnOnce(&mut CpuInterface, &GuestGic, &mut Here) -> VcpuIndexSet,
    ) {
        let kick = self.on(vcpu, act);
        self.kicks.extend(kick.iter());
    }

    /// The same, and then all that is left to do until the guest goes on. The core may be interrupted in between.
    fn call_until_filled(
        &mut self,
        vcpu: usize,
        act: impl FnOnce(&mut CpuInterface, &GuestGic, &mut Here) -> VcpuIndexSet,
    ) {
        self.interrupt_at_random();
        self.call_once(vcpu, act);
        for _ in 0..MAX_TRIES {
            if !self.vcpus[vcpu].cpu.is_unfilled() {
                break;
            }
            self.interrupt_at_random();
            self.call_once(vcpu, |cpu, gic, here| cpu.synchronize(gic, here));
        }
        self.machine.interruptions.set(0);
        if self.vcpus[vcpu].cpu.is_unfilled() {
            self.call_once(vcpu, |cpu, gic, here| cpu.synchronize(gic, here));
        }
        assert!(!self.vcpus[vcpu].cpu.is_unfilled());
    }

    /// As [`Self::call`]. A kick to the vCPU itself is not sent where it only says that list registers are to be filled.
    fn call_once(
        &mut self,
        vcpu: usize,
        act: impl FnOnce(&mut CpuInterface, &GuestGic, &mut Here) -> VcpuIndexSet,
    ) {
        self.call(vcpu, |cpu, gic, here| {
            let kick = act(cpu, gic, here);
            match cpu.is_unfilled() {
                true => kick.without(cpu.index()),
                false => kick,
            }
        });
    }

    /// Chooses which of the next looks find the core interrupted: about one of eight.
    fn interrupt_at_random(&mut self) {
        let mut next = || {
            // Xorshift, which keeps 0.
            for (left, shift) in [(true, 13), (false, 17), (true, 5)] {
                let x = self.interruptions;
                self.interruptions ^= if left { x << shift } else { x >> shift };
            }
            self.interruptions
        };
        let pattern = next() & next() & next();
        self.machine.interruptions.set(pattern.into());
    }

    pub fn is_loaded(&self, vcpu: usize) -> bool {
        self.vcpus[vcpu].core.is_some()
    }

    pub fn on_core(&self, core: usize) -> Option<usize> {
        self.vcpus.iter().position(|vcpu| vcpu.core == Some(core))
    }

    pub fn load(&mut self, vcpu: usize, core: usize) {
        assert!(self.load_unless(vcpu, core, false));
    }

    /// Loads a vCPU while an interrupt pends for the core. If there is much to do, the load stops half way.
    pub fn load_interrupted(&mut self, vcpu: usize, core: usize) {
        if !self.load_unless(vcpu, core, true) {
            let core = &self.machine.cores[core];
            assert!(core.lrs.iter().all(|lr| lr.state() == State::Inactive));
            assert_eq!(core.hcr, 0);
        }
    }

    /// Returns whether the vCPU may run.
    fn load_unless(&mut self, vcpu: usize, core: usize, interrupted: bool) -> bool {
        assert!(self.on_core(core).is_none() && !self.is_loaded(vcpu));
        let index = self.vcpus[vcpu].cpu.index();
        self.gic.doorbell(index).settle(PcpuId(core as u8));
        self.vcpus[vcpu].core = Some(core);
        self.machine.interruptions.set(u64::from(interrupted));
        let mut may_run = false;
        self.call(vcpu, |cpu, gic, here| {
            let (kick, is_ready) = cpu.load(gic, here);
            may_run = is_ready;
            kick
        });
        self.machine.interruptions.set(0);
        may_run
    }

    /// The vCPU is switched out, and none of a higher band waits for the core.
    pub fn unload(&mut self, vcpu: usize) {
        if self.vcpus[vcpu].cpu.lists_many() {
            self.call(vcpu, |cpu, gic, here| cpu.take_back(gic, here).0);
        }
        self.finish_unload(vcpu);
    }

    fn finish_unload(&mut self, vcpu: usize) {
        self.call(vcpu, |cpu, gic, here| cpu.unload(gic, here));
        let core = self.vcpus[vcpu].core.take().unwrap();
        let core = &self.machine.cores[core];
        assert!(core.lrs.iter().all(|lr| lr.state() == State::Inactive));
        assert_eq!((core.hcr, core.active), (0, 0), "state left on the core");
    }

    /// A higher band preempts a vCPU.
    pub fn preempt(&mut self, vcpu: usize) {
        self.on(vcpu, |cpu, _, here| cpu.copy_lists(here));
        self.finish_unload(vcpu);
    }

    pub fn read(&mut self, vcpu: usize, region: Region, offset: u64, size: u8) -> u64 {
        self.access(vcpu, |cpu, gic, here| {
            cpu.mmio_read(gic, region, offset, size, here)
        })
    }

    /// Executes an access until it is done.
    fn access<T>(
        &mut self,
        vcpu: usize,
        mut act: impl FnMut(&mut CpuInterface, &GuestGic, &mut Here) -> (Option<T>, VcpuIndexSet),
    ) -> T {
        for tries in 0.. {
            let mut result = None;
            if tries == MAX_TRIES {
                self.interruptions = 0;
            }
            self.call_until_filled(vcpu, |cpu, gic, here| {
                let kick;
                (result, kick) = act(cpu, gic, here);
                kick
            });
            if let Some(result) = result {
                return result;
            }
        }
        unreachable!("an access that is not interrupted is done")
    }

    pub fn write(&mut self, vcpu: usize, region: Region, offset: u64, size: u8, value: u64) {
        self.access(vcpu, |cpu, gic, here| {
            let (kick, is_done) = cpu.mmio_write(gic, region, offset, size, value, here);
            (is_done.then_some(()), kick)
        });
    }

    /// A word of this vCPU's own SGI_base frame.
    pub fn own(&self, vcpu: usize, offset: u64) -> u64 {
        vcpu as u64 * REDISTRIBUTOR_SIZE + SGI_FRAME + offset
    }

    pub fn read_own(&mut self, vcpu: usize, offset: u64) -> u32 {
        self.read(vcpu, Region::Redistributors, self.own(vcpu, offset), 4) as u32
    }

    pub fn write_own(&mut self, vcpu: usize, offset: u64, value: u32) {
        let offset = self.own(vcpu, offset);
        self.write(vcpu, Region::Redistributors, offset, 4, u64::from(value));
    }

    pub fn read_distributor(&mut self, vcpu: usize, offset: u64) -> u32 {
        self.read(vcpu, Region::Distributor, offset, 4) as u32
    }

    pub fn write_distributor(&mut self, vcpu: usize, offset: u64, value: u32) {
        self.write(vcpu, Region::Distributor, offset, 4, u64::from(value));
    }

    pub fn send_sgi(&mut self, vcpu: usize, register: SgiRegister, value: u64) {
        self.call_until_filled(vcpu, |cpu, gic, here| {
            cpu.send_sgi(gic, register, value, here)
        });
    }

    pub fn acknowledge(&mut self, vcpu: usize) -> Option<Acknowledged> {
        let what = self.on(vcpu, |_, _, here| here.acknowledge())?;
        self.vcpus[vcpu].acknowledged.push(what);
        Some(what)
    }

    /// The guest ends what it acknowledged last.
    pub fn end(&mut self, vcpu: usize) -> Option<Acknowledged> {
        let what = self.vcpus[vcpu].acknowledged.pop()?;
        self.on(vcpu, |_, _, here| here.end(what));
        Some(what)
    }

    /// The guest writes DIR.
    pub fn deactivate(&mut self, vcpu: usize, intid: IntId) -> Deactivation {
        if self.on(vcpu, |_, _, here| here.hcr()) & HCR_TRAP_DEACTIVATE != 0 {
            self.access(vcpu, |cpu, gic, here| {
                let (kick, is_done) = cpu.deactivate(gic, intid, here);
                (is_done.then_some(()), kick)
            });
            Deactivation::Trapped
        } else {
            self.on(vcpu, |_, _, here| here.deactivate(intid));
            Deactivation::Direct
        }
    }

    /// Handles physical interrupts, maintenance interrupts and kicks until there are none.
    pub fn drain(&mut self) {
        for _ in 0..1000 {
            if !self.step() {
                return;
            }
        }
        panic!("interrupts and kicks do not end");
    }

    fn step(&mut self) -> bool {
        for vcpu in 0..self.vcpus.len() {
            if !self.is_loaded(vcpu) {
                continue;
            }
            if let Some(ppi) = self.on(vcpu, |_, _, here| here.firing_timers().first().copied()) {
                self.on(vcpu, |_, _, here| here.take_physical(ppi));
                if !self.on(vcpu, |cpu, _, here| cpu.timer_fired_again(ppi, here)) {
                    self.call_until_filled(vcpu, |cpu, gic, here| cpu.timer_fired(gic, ppi, here));
                }
                return true;
            }
            if self.on(vcpu, |_, _, here| here.wants_maintenance()) {
                self.call_until_filled(vcpu, |cpu, gic, here| cpu.synchronize(gic, here));
                return true;
            }
        }
        if self.take_physical_spi() {
            return true;
        }
        if let Some(vcpu) = self.kicks.pop_front() {
            let core = self.gic.doorbell(vcpu).location().index();
            let it = &mut self.vcpus[vcpu.index()];
            if it.core.is_none() && it.cpu.copied != 0 {
                // It will be loaded again: what others wait for is done then.
                let mut here = self.machine.here(core, &mut it.context);
                let (kick, _) = it.cpu.take_copies_back(&self.gic, &mut here);
                let (more, _) = it.cpu.settle_active(&self.gic, &mut here);
                self.kicks.extend(kick.with(more).iter());
                return true;
            }
            // A vCPU that does not run looks at its doorbell when it is loaded.
            if self.on_core(core) == Some(vcpu.index()) {
                let vcpu = vcpu.index();
                if !self.on(vcpu, |cpu, gic, here| cpu.kicked_again(gic, here)) {
                    self.call_until_filled(vcpu, |cpu, gic, here| cpu.kicked(gic, here));
                }
            }
            return true;
        }
        false
    }

    fn take_physical_spi(&mut self) -> bool {
        let firing = self
            .machine
            .spis
            .iter()
            .find(|(_, spi)| spi.enabled && spi.is_pending() && !spi.active);
        let Some((&physical, spi)) = firing else {
            return false;
        };
        let core = self.gic.doorbell(VcpuIndex(spi.route)).location().index();
        let guest = IntId(physical - PHYSICAL_OFFSET);
        let mut no_vcpu = Context::new();
        self.machine
            .here(core, &mut no_vcpu)
            .take_physical(IntId(physical));
        match self.on_core(core) {
            Some(vcpu) => {
                self.call_until_filled(vcpu, |cpu, gic, here| cpu.spi_arrived(gic, guest, here));
            }
            None => {
                let kick = self.gic.spi_arrived(guest);
                self.kicks.extend(kick.iter());
            }
        }
        true
    }

    pub fn physical(&mut self, guest: u16) -> &mut PhysicalSpi {
        self.machine
            .spis
            .get_mut(&(guest + PHYSICAL_OFFSET))
            .unwrap()
    }

    /// The output of an emulated device.
    pub fn set_level(&mut self, guest: u16, high: bool) {
        let kick = self.gic.set_level(IntId(guest), high);
        self.kicks.extend(kick.iter());
    }

    /// Whether a vCPU that executed WFI may sleep without a closer look.
    pub fn is_quiet(&mut self, vcpu: usize) -> bool {
        let (quiet, kick) = self.on(vcpu, |cpu, gic, here| cpu.is_quiet(gic, here));
        self.kicks.extend(kick.iter());
        quiet
    }

    /// What is in the list registers of a vCPU, by state.
    pub fn listed(&mut self, vcpu: usize) -> Vec<(u16, State)> {
        self.on(vcpu, |_, _, here| {
            here.list()
                .iter()
                .filter(|lr| lr.state() != State::Inactive)
                .map(|lr| (lr.intid().0, lr.state()))
                .collect()
        })
    }
}
