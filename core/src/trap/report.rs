// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report about a fault: a guest did what it may not.
//!
//! The user sees only this report, so it has all that is needed to find the code and, if possible, the line of the
//! system description to change. Its form is stable, so that tests and scripts can search it.

use super::abort::FaultStatus;
use super::syndrome::{Exception, Syndrome};
use core::fmt;
use spumone_config::types::GuestAddr;

/// What the guest did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offence<'a> {
    /// It accessed an address where it has neither memory nor a device, or in a way that it may not.
    Memory {
        /// The address at stage 2, if known.
        ipa: Option<GuestAddr>,
        /// The board's device at that address, if there is one.
        device: Option<&'a str>,
    },
    /// It accessed an emulated device (GIC, UART) with an instruction that the syndrome does not describe: a pair, a
    /// vector, writeback.
    AccessForm {
        /// The address at stage 2.
        ipa: GuestAddr,
    },
    /// It accessed a system register that guests do not have.
    Register,
    /// It caused any other exception to EL2 that is not emulated.
    Exception,
}

/// A report, to be printed with `Display`: several lines, without a newline at the end.
#[derive(Clone, Copy, Debug)]
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
    /// What the guest did.
    pub offence: Offence<'a>,
}

impl fmt::Display for FaultReport<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "guest {} stopped: vcpu {} ", self.guest, self.vcpu)?;
        match self.offence {
            Offence::Memory { ipa, .. } => self.write_access(f, ipa)?,
            Offence::AccessForm { ipa } => write!(
                f,
                "reached its virtual device at {ipa} by an access that cannot be emulated"
            )?,
            Offence::Register => self.write_register(f)?,
            Offence::Exception => write!(f, "caused an exception: {}", self.syndrome.class())?,
        }
        write!(f, "\n  pc {:#018x}", self.pc)?;
        if let Some(instruction) = self.instruction {
            write!(f, ", instruction {instruction:08x}")?;
        }
        if matches!(
            self.offence,
            Offence::Memory { .. } | Offence::AccessForm { .. }
        ) && self.syndrome.is_far_valid()
        {
            write!(f, ", virtual address {:#018x}", self.far)?;
        }
        write!(
            f,
            "\n  esr {:#010x}: {}",
            self.syndrome.0,
            self.syndrome.class()
        )?;
        if let Some(status) = self.status() {
            write!(f, ", {status}")?;
            if self.syndrome.is_stage1_walk() {
                f.write_str(", in a walk of the guest's own page tables")?;
            }
        }
        self.write_hint(f)
    }
}

impl FaultReport<'_> {
    fn status(&self) -> Option<FaultStatus> {
        match self.syndrome.decode() {
            Exception::InstructionAbort(status) | Exception::DataAbort { status, .. } => {
                Some(status)
            }
            _ => None,
        }
    }

    /// "wrote 4 bytes at 0x9041030, where it has nothing"
    fn write_access(&self, f: &mut fmt::Formatter<'_>, ipa: Option<GuestAddr>) -> fmt::Result {
        match self.syndrome.decode() {
            Exception::InstructionAbort(_) => f.write_str("fetched an instruction")?,
            _ if self.syndrome.is_cache_maintenance() => f.write_str("maintained the cache")?,
            Exception::DataAbort { write, access, .. } => {
                f.write_str(if write { "wrote" } else { "read" })?;
                match access.map(|access| access.size.bytes()) {
                    Some(1) => f.write_str(" 1 byte")?,
                    Some(bytes) => write!(f, " {bytes} bytes")?,
                    None => {}
                }
            }
            _ => f.write_str("made an access")?,
        }
        match ipa {
            Some(ipa) => write!(f, " at {ipa}")?,
            None => f.write_str(" at an unknown address")?,
        }
        f.write_str(match self.status() {
            Some(FaultStatus::Translation(_) | FaultStatus::AddressSize(_)) => {
                ", where it has nothing"
            }
            Some(FaultStatus::Permission(_)) => ", where it may not do that",
            Some(FaultStatus::External | FaultStatus::ExternalOnWalk(_)) => {
                ", which the machine refused"
            }
            _ => "",
        })
    }

    fn write_register(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.syndrome.decode() {
            Exception::SysReg(access) => {
                let verb = if access.read { "read" } else { "wrote" };
                write!(f, "{verb} {}, which guests do not have", access.register)
            }
            _ => write!(f, "used what guests do not have: {}", self.syndrome.class()),
        }
    }

    /// A hint how to change the guest, or the line of the system description that would allow the access.
    fn write_hint(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Offence::AccessForm { .. } = self.offence {
            return f.write_str(
                "\n  use loads and stores of one general register there, without writeback",
            );
        }
        let Offence::Memory {
            ipa: Some(_),
            device,
        } = self.offence
        else {
            return Ok(());
        };
        let nothing = matches!(
            self.status(),
            Some(FaultStatus::Translation(_) | FaultStatus::AddressSize(_))
        );
        match device {
            Some(device) => write!(
                f,
                "\n  to give it this device, add to guest {}: devices = [\"{device}\"]",
                self.guest
            ),
            None if nothing => f.write_str(
                "\n  no device of the board is there; if it should be memory, \
                 set `ipa` and `memory` of the guest so that they cover it",
            ),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    const WRITE: u64 = 0x9382_0046;

    fn report(esr: u64, offence: Offence<'_>) -> FaultReport<'_> {
        FaultReport {
            guest: "linux",
            vcpu: 1,
            syndrome: Syndrome(esr),
            pc: 0xffff_8000_080a_1b2c,
            far: 0xffff_8000_0a01_2030,
            instruction: Some(0xb900_3001),
            offence,
        }
    }

    #[test]
    fn a_device_that_the_guest_was_not_given() {
        let offence = Offence::Memory {
            ipa: Some(GuestAddr(0x904_0030)),
            device: Some("uart1"),
        };
        assert_eq!(
            report(WRITE, offence).to_string(),
            "guest linux stopped: vcpu 1 wrote 4 bytes at 0x9040030, where it has nothing\n  \
             pc 0xffff8000080a1b2c, instruction b9003001, virtual address 0xffff80000a012030\n  \
             esr 0x93820046: data abort, translation fault at level 2\n  \
             to give it this device, add to guest linux: devices = [\"uart1\"]"
        );
    }

    #[test]
    fn an_access_that_cannot_be_emulated() {
        let offence = Offence::AccessForm {
            ipa: GuestAddr(0x800_0000),
        };
        assert_eq!(
            report(WRITE, offence).to_string(),
            "guest linux stopped: vcpu 1 reached its virtual device at 0x8000000 by an access \
             that cannot be emulated\n  \
             pc 0xffff8000080a1b2c, instruction b9003001, virtual address 0xffff80000a012030\n  \
             esr 0x93820046: data abort, translation fault at level 2\n  \
             use loads and stores of one general register there, without writeback"
        );
    }

    #[test]
    fn an_address_without_memory_or_device() {
        let offence = Offence::Memory {
            ipa: Some(GuestAddr(0x1234_5000)),
            device: None,
        };
        let mut report = report(0x9000_0007 | 1 << 25, offence);
        report.instruction = None;
        report.pc = 0x4020_0000;
        report.far = 0x1234_5000;
        assert_eq!(
            report.to_string(),
            "guest linux stopped: vcpu 1 read at 0x12345000, where it has nothing\n  \
             pc 0x0000000040200000, virtual address 0x0000000012345000\n  \
             esr 0x92000007: data abort, translation fault at level 3\n  \
             no device of the board is there; if it should be memory, \
             set `ipa` and `memory` of the guest so that they cover it"
        );
    }

    #[test]
    fn a_fetch_from_an_address_without_memory() {
        let offence = Offence::Memory {
            ipa: Some(GuestAddr(0)),
            device: None,
        };
        let mut report = report(0x8200_0006, offence);
        (report.pc, report.far, report.instruction) = (0, 0, None);
        assert_eq!(
            report.to_string(),
            "guest linux stopped: vcpu 1 fetched an instruction at 0x0, where it has nothing\n  \
             pc 0x0000000000000000, virtual address 0x0000000000000000\n  \
             esr 0x82000006: instruction abort, translation fault at level 2\n  \
             no device of the board is there; if it should be memory, \
             set `ipa` and `memory` of the guest so that they cover it"
        );
    }

    #[test]
    fn a_write_where_only_reading_is_allowed() {
        let offence = Offence::Memory {
            ipa: None,
            device: None,
        };
        assert_eq!(
            report(0x9200_0000 | 1 << 24 | 1 << 6 | 0xf, offence).to_string(),
            "guest linux stopped: vcpu 1 wrote 1 byte at an unknown address, \
             where it may not do that\n  \
             pc 0xffff8000080a1b2c, instruction b9003001, virtual address 0xffff80000a012030\n  \
             esr 0x9300004f: data abort, permission fault at level 3"
        );
    }

    #[test]
    fn page_tables_outside_memory_and_an_external_abort() {
        let memory = Offence::Memory {
            ipa: Some(GuestAddr(0x5000)),
            device: None,
        };
        let walk = report(0x9200_0086, memory).to_string();
        assert!(
            walk.contains("translation fault at level 2, in a walk of the guest's own page tables"),
            "{walk}"
        );
        // FnV: the virtual address is not known.
        let refused = report(0x9200_0410, memory).to_string();
        assert!(
            refused.contains("read at 0x5000, which the machine refused\n"),
            "{refused}"
        );
        assert!(
            !refused.contains("virtual address") && !refused.contains("board"),
            "{refused}"
        );
        let cache = report(0x9200_0146, memory).to_string();
        assert!(
            cache.contains("vcpu 1 maintained the cache at 0x5000"),
            "{cache}"
        );
    }

    #[test]
    fn a_register_that_guests_do_not_have() {
        // mrs x3, pmcr_el0
        let esr = 0x6200_0000 | 3 << 20 | 3 << 14 | 9 << 10 | 3 << 5 | 12 << 1 | 1;
        let mut report = report(esr, Offence::Register);
        report.instruction = Some(0xd53b_9c03);
        assert_eq!(
            report.to_string(),
            "guest linux stopped: vcpu 1 read PMCR_EL0, which guests do not have\n  \
             pc 0xffff8000080a1b2c, instruction d53b9c03\n  \
             esr 0x6230e479: system register access"
        );
    }

    #[test]
    fn another_exception() {
        let report = report(0x3a00_0000, Offence::Exception);
        assert_eq!(
            report.to_string(),
            "guest linux stopped: vcpu 1 caused an exception: illegal execution state\n  \
             pc 0xffff8000080a1b2c, instruction b9003001\n  \
             esr 0x3a000000: illegal execution state"
        );
    }
}
