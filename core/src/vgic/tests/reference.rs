// SPDX-License-Identifier: MIT OR Apache-2.0
//! The reference: the state of each interrupt as the architecture defines it (IHI 0069, sections 4.1 and 4.8), without
//! list registers, holders and physical interrupts.

use super::world::MAPPED;
use spumone_config::packed::Trigger;
use std::vec::Vec;

/// The vCPU that has an interrupt active, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Active {
    pub vcpu: usize,
    /// Priority and group it was acknowledged with; none if a register write made it active.
    pub rank: Option<(u8, bool)>,
    /// Whether a physical interrupt backs it, which cannot fire meanwhile.
    pub hardware: bool,
}

/// One interrupt.
#[derive(Clone, Debug, Default)]
pub struct Interrupt {
    pub enabled: bool,
    pub group1: bool,
    pub priority: u8,
    pub edge: bool,
    pub latch: bool,
    pub line: bool,
    /// Level-sensitive and passed through: the line was high when the physical interrupt was taken. Not part of the
    /// architecture; see the limits of the module `vgic`.
    pub taken: bool,
    pub active: Option<Active>,
    /// Affinity; SPIs only.
    pub route: u32,
}

impl Interrupt {
    pub fn is_pending(&self) -> bool {
        self.latch || self.taken || self.line && !self.edge
    }

    fn clear_pending(&mut self) {
        self.latch = false;
        self.taken = false;
    }

    /// Whether it may be delivered, to any vCPU.
    fn is_ready(&self, control: u32) -> bool {
        let group_enabled = control & (1 << u32::from(self.group1)) != 0;
        self.is_pending() && self.enabled && group_enabled && self.active.is_none()
    }
}

/// A family of registers with one bit per interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    Group,
    SetEnable,
    ClearEnable,
    SetPending,
    ClearPending,
    SetActive,
    ClearActive,
}

impl Family {
    pub fn offset(self) -> u64 {
        0x80 * (self as u64 + 1)
    }
}

pub struct Reference {
    pub control: u32,
    pub private: Vec<[Interrupt; 32]>,
    /// From INTID 32 on.
    pub shared: Vec<Interrupt>,
}

impl Reference {
    pub fn new(vcpus: usize, spis: u16) -> Self {
        let private = || {
            core::array::from_fn(|intid| Interrupt {
                edge: intid < 16,
                ..Interrupt::default()
            })
        };
        let mut shared = std::vec![Interrupt::default(); usize::from(spis)];
        for (intid, trigger) in MAPPED {
            shared[usize::from(intid) - 32].edge = trigger == Trigger::Edge;
        }
        Self {
            control: 0,
            private: (0..vcpus).map(|_| private()).collect(),
            shared,
        }
    }

    pub fn interrupt(&mut self, vcpu: usize, intid: u16) -> &mut Interrupt {
        match intid.checked_sub(32) {
            Some(spi) => &mut self.shared[usize::from(spi)],
            None => &mut self.private[vcpu][usize::from(intid)],
        }
    }

    /// What may be delivered to a vCPU, with priorities.
    pub fn ready(&self, vcpu: usize) -> Vec<(u16, u8)> {
        let private = self.private[vcpu].iter().zip(0..);
        let shared = self
            .shared
            .iter()
            .zip(32..)
            .filter(|(it, _)| it.route == vcpu as u32);
        private
            .chain(shared)
            .filter(|(it, _)| it.is_ready(self.control))
            .map(|(it, intid)| (intid, it.priority))
            .collect()
    }

    pub fn acknowledge(&mut self, vcpu: usize, intid: u16, active: Active) {
        let control = self.control;
        let it = self.interrupt(vcpu, intid);
        assert!(
            it.is_ready(control),
            "{intid} delivered, but not ready: {it:?}"
        );
        it.clear_pending();
        it.active = Some(active);
    }

    /// EOI with EOImode = 0.
    pub fn end(&mut self, vcpu: usize, intid: u16, rank: (u8, bool)) {
        let it = self.interrupt(vcpu, intid);
        if it
            .active
            .is_some_and(|active| active.vcpu == vcpu && active.rank == Some(rank))
        {
            it.active = None;
        }
    }

    pub fn deactivate(&mut self, vcpu: usize, intid: u16) {
        self.interrupt(vcpu, intid).active = None;
    }

    /// Writes a word of a family; `first` is the INTID of bit 0.
    pub fn write(&mut self, vcpu: usize, family: Family, first: u16, value: u32) {
        for bit in 0..32 {
            let set = value >> bit & 1 != 0;
            let it = self.interrupt(vcpu, first + bit);
            match family {
                Family::Group => it.group1 = set,
                _ if !set => {}
                Family::SetEnable => it.enabled = true,
                Family::ClearEnable => it.enabled = false,
                Family::SetPending => it.latch = true,
                Family::ClearPending => it.clear_pending(),
                Family::SetActive => {
                    if it.active.is_none() {
                        it.active = Some(Active {
                            vcpu,
                            rank: None,
                            hardware: false,
                        });
                    }
                }
                Family::ClearActive => it.active = None,
            }
        }
    }

    /// Reads a word of a family.
    pub fn read(&mut self, vcpu: usize, family: Family, first: u16) -> u32 {
        (0..32).fold(0, |value, bit| {
            let it = self.interrupt(vcpu, first + bit);
            let set = match family {
                Family::Group => it.group1,
                Family::SetEnable | Family::ClearEnable => it.enabled,
                Family::SetPending | Family::ClearPending => it.is_pending(),
                Family::SetActive | Family::ClearActive => it.active.is_some(),
            };
            value | u32::from(set) << bit
        })
    }
}
