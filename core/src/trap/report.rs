// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report about a fault: a guest did what it may not.
//!
//! One line with the values of the registers. What they mean, and which line of the system description to change, the
//! host's programs say below it (`bench/src/fault.rs`). Its form is stable, so that they and scripts can read it.

use super::syndrome::Syndrome;
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

/// A report, to be printed with `Display`: one line, without a newline at the end.
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
}

impl fmt::Display for FaultReport<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "guest {} stopped: vcpu {} pc={:#018x} esr={:#010x} far={:#018x}",
            self.guest, self.vcpu, self.pc, self.syndrome.0, self.far
        )?;
        if let Some(instruction) = self.instruction {
            write!(f, " instruction={instruction:#010x}")?;
        }
        match self.place {
            Place::Unknown => Ok(()),
            Place::Memory(ipa, None) => write!(f, " ipa={ipa}"),
            Place::Memory(ipa, Some(device)) => write!(f, " ipa={ipa} device={device}"),
            Place::Emulated(ipa) => write!(f, " emulated={ipa}"),
        }
    }
}
