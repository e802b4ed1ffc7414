// SPDX-License-Identifier: MIT OR Apache-2.0
//! Simulated cores. How the guest's ICC_* instructions change list registers follows the pseudocode of IHI 0069
//! (VirtualReadIAR1, VirtualWriteEOIR1, VirtualWriteDIR), with 5 bits of priority and preemption.

use super::super::{
    ListRegister, MAX_LIST_REGISTERS, PhysicalGic, State, TIMER_PPIS, VMCR_EOI_MODE, VcpuIndex,
    bits,
};
use spumone_config::types::IntId;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::vec::Vec;

pub const HCR_ENABLE: u64 = 1;
pub const HCR_UNDERFLOW: u64 = 1 << 1;
pub const HCR_EOI_NOT_PRESENT: u64 = 1 << 2;
pub const HCR_NO_PENDING: u64 = 1 << 3;
pub const HCR_TRAP_DEACTIVATE: u64 = 1 << 14;
const HCR_EOI_COUNT: u64 = 1 << 27;
const HCR_EOI_COUNT_MASK: u64 = 0x1f << 27;

/// A physical SPI.
#[derive(Clone, Debug, Default)]
pub struct PhysicalSpi {
    pub edge: bool,
    pub line: bool,
    pub latch: bool,
    pub active: bool,
    pub enabled: bool,
    pub route: u8,
}

impl PhysicalSpi {
    pub fn is_pending(&self) -> bool {
        self.latch || self.line && !self.edge
    }
}

/// The state behind ICC_* registers, which is switched with the vCPU.
#[derive(Clone, Debug)]
pub struct Context {
    pub vmcr: u64,
    /// Active priorities of Groups 0 and 1.
    pub active_priorities: [u32; 2],
    /// Outputs of the vCPU's timers.
    pub lines: u32,
}

impl Context {
    pub fn new() -> Self {
        // All priorities, both groups.
        Self {
            vmcr: 0xff00_0003,
            active_priorities: [0; 2],
            lines: 0,
        }
    }

    pub fn running(&self) -> u8 {
        super::super::running_priority(self.active_priorities[0], self.active_priorities[1])
    }

    /// Whether an interrupt would be signalled to the vCPU.
    pub fn lets_through(&self, lr: ListRegister) -> bool {
        let mask = (self.vmcr >> 24) as u8;
        self.vmcr & (1 << u32::from(lr.is_group1())) != 0
            && lr.priority() < mask
            && lr.priority() < self.running()
    }
}

/// One core.
#[derive(Clone, Debug)]
pub struct Core {
    pub lrs: [ListRegister; MAX_LIST_REGISTERS],
    pub hcr: u64,
    /// Timer PPIs that are active in the physical GIC.
    pub active: u32,
}

/// The number of accesses to list registers, which is the cost of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accesses {
    pub reads: usize,
    pub writes: usize,
}

#[derive(Clone, Debug)]
pub struct Machine {
    pub list_registers: usize,
    pub cores: Vec<Core>,
    pub spis: BTreeMap<u16, PhysicalSpi>,
    pub accesses: Cell<Accesses>,
    /// Whether an inactive interrupt may be deactivated, as a reset does.
    pub tolerant: bool,
    /// What the core finds when it looks whether it is interrupted, the next time in the lowest bit.
    pub interruptions: Cell<u64>,
}

impl Machine {
    pub fn new(cores: usize, list_registers: usize) -> Self {
        let core = Core {
            lrs: [ListRegister::EMPTY; MAX_LIST_REGISTERS],
            hcr: 0,
            active: 0,
        };
        Self {
            list_registers,
            cores: std::vec![core; cores],
            spis: BTreeMap::new(),
            accesses: Cell::default(),
            tolerant: false,
            interruptions: Cell::new(0),
        }
    }

    pub fn here<'a>(&'a mut self, core: usize, context: &'a mut Context) -> Here<'a> {
        Here {
            machine: self,
            core,
            context,
        }
    }
}

/// A core of the machine with a vCPU's context on it.
pub struct Here<'a> {
    machine: &'a mut Machine,
    core: usize,
    context: &'a mut Context,
}

/// What the guest's read of ICC_IAR1_EL1 (or IAR0) gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledged {
    pub intid: IntId,
    pub priority: u8,
    pub group1: bool,
    /// The list register had HW = 1.
    pub hardware: bool,
}

impl Here<'_> {
    fn this(&mut self) -> &mut Core {
        &mut self.machine.cores[self.core]
    }

    pub fn hcr(&self) -> u64 {
        self.machine.cores[self.core].hcr
    }

    pub fn list(&self) -> &[ListRegister] {
        &self.machine.cores[self.core].lrs[..self.machine.list_registers]
    }

    /// ICH_MISR_EL2 is not 0.
    pub fn wants_maintenance(&self) -> bool {
        let hcr = self.hcr();
        let pending = self.list().iter().any(|lr| lr.state() == State::Pending);
        let ended = self
            .list()
            .iter()
            .any(|lr| lr.state() == State::Inactive && lr.has_eoi_interrupt());
        let valid = self
            .list()
            .iter()
            .filter(|lr| lr.state() != State::Inactive);
        hcr & HCR_ENABLE != 0
            && (ended
                || hcr & HCR_NO_PENDING != 0 && !pending
                || hcr & HCR_UNDERFLOW != 0 && valid.count() < 2
                || hcr & HCR_EOI_NOT_PRESENT != 0 && hcr & HCR_EOI_COUNT_MASK != 0)
    }

    /// The guest acknowledges the interrupt of the highest priority, if it is signalled.
    pub fn acknowledge(&mut self) -> Option<Acknowledged> {
        let index = (0..self.machine.list_registers)
            .filter(|&index| self.list()[index].state() == State::Pending)
            .min_by_key(|&index| self.list()[index].priority())?;
        let lr = self.list()[index];
        if self.hcr() & HCR_ENABLE == 0 || !self.context.lets_through(lr) {
            return None;
        }
        self.this().lrs[index] = lr.with_state(State::Active);
        let group = usize::from(lr.is_group1());
        self.context.active_priorities[group] |= 1 << (lr.priority() >> 3);
        Some(Acknowledged {
            intid: lr.intid(),
            priority: lr.priority(),
            group1: lr.is_group1(),
            hardware: lr.physical().is_some(),
        })
    }

    /// The priority drop of an EOI.
    pub fn drop_priority(&mut self, what: Acknowledged) {
        let [group0, group1] = &mut self.context.active_priorities;
        let priorities = if what.group1 { group1 } else { group0 };
        assert_eq!(priorities.trailing_zeros(), u32::from(what.priority >> 3));
        *priorities &= *priorities - 1;
    }

    /// The guest writes EOIR with EOImode = 0.
    pub fn end(&mut self, what: Acknowledged) {
        assert_eq!(self.context.vmcr & VMCR_EOI_MODE, 0);
        self.drop_priority(what);
        match self.find_active(what.intid) {
            Some(index) => {
                let lr = self.list()[index];
                if (lr.priority(), lr.is_group1()) == (what.priority, what.group1) {
                    self.deactivate_list_register(index);
                }
            }
            None => self.count(),
        }
    }

    /// The guest writes DIR with EOImode = 1, and it does not trap.
    pub fn deactivate(&mut self, intid: IntId) {
        assert_ne!(self.context.vmcr & VMCR_EOI_MODE, 0);
        match self.find_active(intid) {
            Some(index) => self.deactivate_list_register(index),
            None => self.count(),
        }
    }

    fn find_active(&self, intid: IntId) -> Option<usize> {
        self.list()
            .iter()
            .position(|lr| lr.state().is_active() && lr.intid() == intid)
    }

    fn count(&mut self) {
        let hcr = &mut self.this().hcr;
        *hcr = *hcr & !HCR_EOI_COUNT_MASK | (*hcr + HCR_EOI_COUNT) & HCR_EOI_COUNT_MASK;
    }

    fn deactivate_list_register(&mut self, index: usize) {
        let lr = self.list()[index];
        let next = if lr.state() == State::PendingActive {
            State::Pending
        } else {
            State::Inactive
        };
        self.this().lrs[index] = lr.with_state(next);
        if let Some(physical) = lr.physical() {
            self.change_active(physical, false);
        }
    }

    fn change_active(&mut self, physical: IntId, active: bool) {
        let tolerant = self.machine.tolerant;
        let was = if physical.is_private() {
            let word = &mut self.machine.cores[self.core].active;
            let mask = 1 << physical.0;
            let was = *word & mask != 0;
            *word = if active { *word | mask } else { *word & !mask };
            was
        } else {
            let spi = self.machine.spis.get_mut(&physical.0).unwrap();
            std::mem::replace(&mut spi.active, active)
        };
        assert!(
            tolerant || was != active,
            "physical {physical} becomes active = {active} a second time"
        );
    }

    /// The physical timer PPIs that signal an interrupt.
    pub fn firing_timers(&mut self) -> Vec<IntId> {
        let firing = self.context.lines & TIMER_PPIS & !self.this().active;
        bits(firing).map(|bit| IntId(bit as u16)).collect()
    }

    /// EL2 acknowledges a physical interrupt.
    pub fn take_physical(&mut self, physical: IntId) {
        self.change_active(physical, true);
        if let Some(spi) = self.machine.spis.get_mut(&physical.0) {
            spi.latch = false;
        }
    }
}

impl PhysicalGic for Here<'_> {
    fn list_registers(&self) -> usize {
        self.machine.list_registers
    }

    fn read_lr(&self, index: usize) -> ListRegister {
        let mut accesses = self.machine.accesses.get();
        accesses.reads += 1;
        self.machine.accesses.set(accesses);
        self.list()[index]
    }

    fn write_lr(&mut self, index: usize, value: ListRegister) {
        assert!(index < self.machine.list_registers);
        assert!(
            value.state() != State::PendingActive || value.physical().is_none(),
            "HW = 1 pending and active"
        );
        let mut accesses = self.machine.accesses.get();
        accesses.writes += 1;
        self.machine.accesses.set(accesses);
        self.this().lrs[index] = value;
    }

    fn empty_lrs(&self) -> u32 {
        self.list()
            .iter()
            .enumerate()
            .filter(|(_, lr)| lr.state() == State::Inactive && !lr.has_eoi_interrupt())
            .fold(0, |empty, (index, _)| empty | 1 << index)
    }

    fn read_hcr(&self) -> u64 {
        self.hcr()
    }

    fn write_hcr(&mut self, value: u64) {
        self.this().hcr = value;
    }

    fn vmcr(&self) -> u64 {
        self.context.vmcr
    }

    fn is_interrupted(&self) -> bool {
        let next = self.machine.interruptions.get();
        self.machine.interruptions.set(next >> 1);
        next & 1 != 0
    }

    fn lines(&self) -> u32 {
        self.context.lines
    }

    fn set_enabled(&mut self, physical: IntId, enabled: bool) {
        self.machine.spis.get_mut(&physical.0).unwrap().enabled = enabled;
    }

    fn set_route(&mut self, physical: IntId, vcpu: VcpuIndex) {
        self.machine.spis.get_mut(&physical.0).unwrap().route = vcpu.0;
    }

    fn pending(&self, word: usize) -> u32 {
        let spis = self.machine.spis.iter();
        spis.filter(|(physical, spi)| usize::from(**physical) / 32 == word && spi.is_pending())
            .fold(0, |pending, (physical, _)| pending | 1 << (physical % 32))
    }

    fn clear_pending(&mut self, physical: IntId) {
        self.machine.spis.get_mut(&physical.0).unwrap().latch = false;
    }

    fn set_active(&mut self, physical: IntId, active: bool) {
        self.change_active(physical, active);
    }
}
