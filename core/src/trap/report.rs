//! The report on a guest that did what it may not.

use super::syndrome::Syndrome;
use core::fmt;
use spumone_config::types::GuestAddr;

/// What the guest did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offence<'a> {
    /// It touched an address that nothing is behind, or that it may not touch so.
    Memory {
        /// The address at stage 2, if known.
        ipa: Option<GuestAddr>,
        /// The board's device at that address, if there is one.
        device: Option<&'a str>,
    },
    /// It touched a system register that the hypervisor does not provide.
    Register,
    /// Anything else that ends in EL2 and has no meaning.
    Exception,
}

/// A report, to be printed with `Display`: several lines, without a newline at the end.
#[derive(Clone, Copy)]
pub struct FaultReport<'a> {
    /// The guest's name.
    pub guest: &'a str,
    /// The guest's own number of the vCPU.
    pub vcpu: u8,
    /// `ESR_EL2`.
    pub syndrome: Syndrome,
    /// `ELR_EL2`: the guest's program counter.
    pub pc: u64,
    /// `FAR_EL2`: the virtual address, where it is one.
    pub far: u64,
    /// The instruction at `pc`, if it could be read.
    pub instruction: Option<u32>,
    /// What it did.
    pub offence: Offence<'a>,
}

impl fmt::Display for FaultReport<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "guest {} vcpu {}", self.guest, self.vcpu)
    }
}
