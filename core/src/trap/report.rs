// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report about a fault: a guest did what it may not.
//!
//! One line with the values of the registers. What they mean, and which line of the system description to change, the
//! host's programs say below it (`bench/src/fault.rs`). Its form is stable, so that they and scripts can read it.

use super::syndrome::Syndrome;
use crate::text::Part;
use core::fmt;
use spumone_config::types::GuestAddr;

/// Where a guest did what it may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place<'a> {
    /// At no address, or at one that is not known.
    Unknown,
    /// At this address at stage 2, where the board may have a device of this name.
    Memory(GuestAddr, Option<&'a str>),
    /// At a register of an emulated device (GIC, UART, link), with an instruction that the syndrome does not describe: a pair, a
    /// vector, writeback.
    Emulated(GuestAddr),
}

/// What became of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It was stopped.
    Stopped,
    /// It has got an [external abort](super::external_abort()), as it has asked for. The first one of a life is reported.
    Aborted,
}

/// A report: one line, without a newline at the end.
#[derive(Clone, Copy, Debug)]
pub struct FaultReport<'a> {
    /// The guest's name.
    pub guest: &'a str,
    /// The guest's own number of the vCPU.
    pub vcpu: u8,
    /// `ELR_EL2`: the guest's program counter.
    pub pc: u64,
    /// `ESR_EL2`.
    pub syndrome: Syndrome,
    /// `FAR_EL2`: the virtual address, where it is one.
    pub far: u64,
    /// The instruction at `pc`, if it could be read.
    pub instruction: Option<u32>,
    /// Where it did it.
    pub place: Place<'a>,
    /// What became of it.
    pub effect: Effect,
}

impl<'a> FaultReport<'a> {
    /// The part of the line at this index, which may be empty; `None` behind the last one.
    pub fn part(&self, index: usize) -> Option<Part<'a>> {
        let address = |value| Part::Hex { value, digits: 16 };
        let word = |value| Part::Hex { value, digits: 8 };
        let (place, ipa, device) = match self.place {
            Place::Unknown => ("", None, None),
            Place::Memory(ipa, device) => (" ipa=", Some(ipa), device),
            Place::Emulated(ipa) => (" emulated=", Some(ipa), None),
        };
        let part = match index {
            0 => Some(Part::Text("guest ")),
            1 => Some(Part::Text(self.guest)),
            2 => Some(Part::Text(match self.effect {
                Effect::Stopped => " stopped: vcpu ",
                Effect::Aborted => " aborted: vcpu ",
            })),
            3 => Some(Part::Decimal(self.vcpu)),
            4 => Some(Part::Text(" pc=")),
            5 => Some(address(self.pc)),
            6 => Some(Part::Text(" esr=")),
            7 => Some(word(self.syndrome.0)),
            8 => Some(Part::Text(" far=")),
            9 => Some(address(self.far)),
            10 => self.instruction.map(|_| Part::Text(" instruction=")),
            11 => self.instruction.map(|it| word(it.into())),
            12 => Some(Part::Text(place)),
            13 => ipa.map(|ipa| Part::Hex {
                value: ipa.0,
                digits: 1,
            }),
            14 => device.map(|_| Part::Text(" device=")),
            15 => device.map(Part::Text),
            _ => return None,
        };
        Some(part.unwrap_or(Part::Text("")))
    }
}

impl fmt::Display for FaultReport<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (0..)
            .map_while(|index| self.part(index))
            .try_for_each(|part| part.fmt(f))
    }
}
