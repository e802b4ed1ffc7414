// SPDX-License-Identifier: MIT OR Apache-2.0
//! Explains a report about a fault: EL2 prints the values of registers in one line
//! ([`spumone_core::trap::FaultReport`]); this says what they mean, and what to change.

mod register;
mod syndrome;

use spumone_core::trap::{Effect, Exception, Syndrome};
use syndrome::FaultStatus;

/// A line of the hypervisor about a fault.
struct Report<'a> {
    guest: &'a str,
    vcpu: &'a str,
    effect: Effect,
    syndrome: Syndrome,
    far: u64,
    /// The address at stage 2, if known.
    ipa: Option<&'a str>,
    /// The board's device there.
    device: Option<&'a str>,
    /// The address of a register of an emulated device.
    emulated: Option<&'a str>,
}

/// What the line of the hypervisor means, in some more lines; `None` if it is no report about a fault.
pub fn explain(line: &str) -> Option<Vec<String>> {
    Report::parse(line).map(|report| report.lines())
}

impl<'a> Report<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let line = line.strip_prefix("guest ")?;
        let stopped = line.split_once(" stopped: vcpu ");
        let (effect, (guest, rest)) = match stopped {
            Some(parts) => (Effect::Stopped, parts),
            None => (Effect::Aborted, line.split_once(" aborted: vcpu ")?),
        };
        let vcpu = rest.split(' ').next()?;
        let value = |key: &str| {
            let mut words = rest.split(' ');
            words.find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
        };
        let number = |key| u64::from_str_radix(value(key)?.strip_prefix("0x")?, 16).ok();
        Some(Self {
            guest,
            vcpu,
            effect,
            syndrome: Syndrome(number("esr")?),
            far: number("far")?,
            ipa: value("ipa"),
            // The last value: the name may have spaces.
            device: rest.split_once(" device=").map(|(_, name)| name),
            emulated: value("emulated"),
        })
    }

    fn lines(&self) -> Vec<String> {
        let (what, class) = match self.syndrome.decode() {
            Exception::DataAbort(_) | Exception::InstructionAbort => {
                (self.access(), Some(self.class()))
            }
            Exception::SysReg(access) => {
                let verb = if access.read { "read" } else { "wrote" };
                let name = register::name(access.register);
                let what = format!("{verb} {name}, which guests do not have");
                (what, Some(self.class()))
            }
            _ if self.syndrome.class() == syndrome::SERROR => {
                let what =
                    "was running when an SError came: memory or a device has reported an error";
                (what.into(), None)
            }
            _ => {
                let class = syndrome::class(self.syndrome);
                (format!("caused an exception: {class}"), None)
            }
        };
        let mut lines = vec![format!("  vcpu {} {what}", self.vcpu)];
        lines.extend(class);
        lines.extend(self.hint());
        if self.effect == Effect::Aborted {
            let taken = "  it has taken a synchronous external abort (on-fault = \"abort\"); further ones of this life are not reported";
            lines.push(taken.into());
        }
        lines
    }

    /// "wrote 4 bytes at 0x9041030, where it has nothing"
    fn access(&self) -> String {
        let virtual_address = match self.is_far_valid() {
            true => format!(" (virtual address {:#x})", self.far),
            false => String::new(),
        };
        if let Some(address) = self.emulated {
            return format!(
                "reached its virtual device at {address}{virtual_address} by an access that cannot be emulated"
            );
        }
        let verb = match self.syndrome.decode() {
            Exception::InstructionAbort => "fetched an instruction",
            _ if self.syndrome.is_cache_maintenance() => "maintained the cache",
            _ if self.is_write() => "wrote",
            _ => "read",
        };
        let bytes = match self.syndrome.decode() {
            Exception::DataAbort(Some(access)) if !self.syndrome.is_cache_maintenance() => {
                match access.size.bytes() {
                    1 => " 1 byte".into(),
                    bytes => format!(" {bytes} bytes"),
                }
            }
            _ => String::new(),
        };
        let place = self.ipa.unwrap_or("an unknown address");
        let why = match FaultStatus::of(self.syndrome) {
            FaultStatus::Translation(_) | FaultStatus::AddressSize(_) => ", where it has nothing",
            FaultStatus::Permission(_) if self.is_write() => ", which it may only read",
            FaultStatus::Permission(_) => ", where it may not do that",
            FaultStatus::External | FaultStatus::ExternalOnWalk(_) => ", which the machine refused",
            _ => "",
        };
        format!("{verb}{bytes} at {place}{virtual_address}{why}")
    }

    fn class(&self) -> String {
        let mut text = format!("  {}", syndrome::class(self.syndrome));
        if let Exception::DataAbort(_) | Exception::InstructionAbort = self.syndrome.decode() {
            text += &format!(", {}", FaultStatus::of(self.syndrome));
            if self.syndrome.is_stage1_walk() {
                text += ", in a walk of the guest's own page tables";
            }
        }
        text
    }

    /// How to change the guest, or the line of the system description that would allow the access.
    fn hint(&self) -> Option<String> {
        if self.emulated.is_some() {
            let hint = "  use loads and stores of one general register there, without writeback";
            return Some(hint.into());
        }
        self.ipa?;
        if let Some(kind) = self.vector() {
            return Some(format!(
                "  an exception vector is there while VBAR_EL1 is 0: the guest may have taken {kind} before it set VBAR_EL1"
            ));
        }
        match self.device {
            Some(device) => Some(format!(
                "  to give it this device, add to guest {}: devices = [\"{device}\"]",
                self.guest
            )),
            None if self.is_write()
                && matches!(FaultStatus::of(self.syndrome), FaultStatus::Permission(_)) =>
            {
                Some(
                    "  if the guest has `protect`: it may not write the pages that are protected; \
                 name those that it never writes in `ranges`"
                        .into(),
                )
            }
            None if self.syndrome.is_of_nothing() => Some(
                "  no device of the board is there; if it should be memory, \
                 set `ipa` and `memory` of the guest so that they cover it"
                    .into(),
            ),
            None => None,
        }
    }

    /// The kind of exception whose vector was fetched, if `VBAR_EL1` is 0 as after a reset (DDI 0487, D1.3.1). The first
    /// vector does not count: a call of a null pointer goes there more often.
    fn vector(&self) -> Option<&'static str> {
        let is_fetch = matches!(self.syndrome.decode(), Exception::InstructionAbort);
        let is_vector = self.is_far_valid() && self.far < 0x800 && self.far.is_multiple_of(0x80);
        if !is_fetch || !is_vector || self.far == 0 {
            return None;
        }
        Some(match self.far / 0x80 % 4 {
            0 => "a synchronous exception",
            1 => "an IRQ",
            2 => "an FIQ",
            _ => "an SError",
        })
    }

    /// Whether `FAR_EL2` is the faulting address (`FnV` = 0).
    fn is_far_valid(&self) -> bool {
        self.syndrome.0 & 1 << 10 == 0
    }

    /// Whether the abort is of a store (`WnR`).
    fn is_write(&self) -> bool {
        self.syndrome.0 & 1 << 6 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spumone_config::GuestAddr;
    use spumone_core::trap::{FaultReport, Place};

    const WRITE: u64 = 0x9382_0046;

    fn report(esr: u64, place: Place<'_>) -> FaultReport<'_> {
        FaultReport {
            effect: Effect::Stopped,
            guest: "linux",
            vcpu: 1,
            syndrome: Syndrome(esr),
            pc: 0xffff_8000_080a_1b2c,
            far: 0xffff_8000_0a01_2030,
            instruction: Some(0xb900_3001),
            place,
        }
    }

    fn explained(report: FaultReport<'_>) -> String {
        explain(&report.to_string()).unwrap().join("\n")
    }

    #[test]
    fn a_device_that_the_guest_was_not_given() {
        let report = report(WRITE, Place::Memory(GuestAddr(0x904_0030), Some("uart1")));
        assert_eq!(
            report.to_string(),
            "guest linux stopped: vcpu 1 pc=0xffff8000080a1b2c esr=0x93820046 far=0xffff80000a012030 \
             instruction=0xb9003001 ipa=0x9040030 device=uart1"
        );
        assert_eq!(
            explained(report),
            "  vcpu 1 wrote 4 bytes at 0x9040030 (virtual address 0xffff80000a012030), where it has nothing\n  \
             data abort, stage 2 translation fault at level 2\n  \
             to give it this device, add to guest linux: devices = [\"uart1\"]"
        );
    }

    #[test]
    fn an_access_for_which_the_guest_has_taken_an_abort() {
        let report = FaultReport {
            effect: Effect::Aborted,
            ..report(WRITE, Place::Memory(GuestAddr(0x904_0030), Some("uart1")))
        };
        assert!(
            report
                .to_string()
                .starts_with("guest linux aborted: vcpu 1 pc=")
        );
        let explained = explained(report);
        let mut lines = explained.lines();
        assert_eq!(
            lines.next(),
            Some(
                "  vcpu 1 wrote 4 bytes at 0x9040030 (virtual address 0xffff80000a012030), where it has nothing"
            )
        );
        assert_eq!(
            lines.last(),
            Some(
                "  it has taken a synchronous external abort (on-fault = \"abort\"); further ones of this life are not reported"
            )
        );
    }

    #[test]
    fn an_access_that_cannot_be_emulated() {
        let report = report(WRITE, Place::Emulated(GuestAddr(0x800_0000)));
        assert_eq!(
            explained(report),
            "  vcpu 1 reached its virtual device at 0x8000000 (virtual address 0xffff80000a012030) \
             by an access that cannot be emulated\n  \
             data abort, stage 2 translation fault at level 2\n  \
             use loads and stores of one general register there, without writeback"
        );
    }

    #[test]
    fn an_address_without_memory_or_device() {
        let place = Place::Memory(GuestAddr(0x1234_5000), None);
        let mut report = report(0x9000_0007 | 1 << 25, place);
        (report.instruction, report.far) = (None, 0x1234_5000);
        assert_eq!(
            explained(report),
            "  vcpu 1 read at 0x12345000 (virtual address 0x12345000), where it has nothing\n  \
             data abort, stage 2 translation fault at level 3\n  \
             no device of the board is there; if it should be memory, \
             set `ipa` and `memory` of the guest so that they cover it"
        );
    }

    #[test]
    fn a_fetch_from_an_address_without_memory() {
        let mut report = report(0x8200_0006, Place::Memory(GuestAddr(0), None));
        (report.pc, report.far, report.instruction) = (0, 0, None);
        assert_eq!(
            report.to_string(),
            "guest linux stopped: vcpu 1 pc=0x0000000000000000 esr=0x82000006 far=0x0000000000000000 ipa=0x0"
        );
        assert_eq!(
            explained(report),
            "  vcpu 1 fetched an instruction at 0x0 (virtual address 0x0), where it has nothing\n  \
             instruction abort, stage 2 translation fault at level 2\n  \
             no device of the board is there; if it should be memory, \
             set `ipa` and `memory` of the guest so that they cover it"
        );
    }

    #[test]
    fn a_write_where_only_reading_is_allowed() {
        let report = report(0x9200_0000 | 1 << 24 | 1 << 6 | 0xf, Place::Unknown);
        assert_eq!(
            explained(report),
            "  vcpu 1 wrote 1 byte at an unknown address (virtual address 0xffff80000a012030), \
             which it may only read\n  \
             data abort, stage 2 permission fault at level 3"
        );
        let page = Place::Memory(GuestAddr(0x4020_0000), None);
        let protected = explained(self::report(0x9200_0000 | 1 << 24 | 1 << 6 | 0xf, page));
        assert!(
            protected.contains("may not write the pages that are protected"),
            "{protected}"
        );
    }

    #[test]
    fn page_tables_outside_memory_and_an_external_abort() {
        let memory = Place::Memory(GuestAddr(0x5000), None);
        let walk = explained(report(0x9200_0086, memory));
        assert!(
            walk.contains(
                "stage 2 translation fault at level 2, in a walk of the guest's own page tables"
            ),
            "{walk}"
        );
        // FnV: the virtual address is not known.
        let refused = explained(report(0x9200_0410, memory));
        assert!(
            refused.contains("read at 0x5000, which the machine refused\n"),
            "{refused}"
        );
        assert!(!refused.contains("board"), "{refused}");
        let cache = explained(report(0x9200_0146, memory));
        assert!(
            cache.contains("vcpu 1 maintained the cache at 0x5000"),
            "{cache}"
        );
    }

    #[test]
    fn a_register_that_guests_do_not_have() {
        // mrs x3, pmcr_el0
        let esr = 0x6200_0000 | 3 << 20 | 3 << 14 | 9 << 10 | 3 << 5 | 12 << 1 | 1;
        assert_eq!(
            explained(report(esr, Place::Unknown)),
            "  vcpu 1 read PMCR_EL0, which guests do not have\n  system register access"
        );
    }

    #[test]
    fn another_exception() {
        assert_eq!(
            explained(report(0x3a00_0000, Place::Unknown)),
            "  vcpu 1 caused an exception: illegal execution state"
        );
        assert_eq!(
            explained(report(0xbe00_0000, Place::Unknown)),
            "  vcpu 1 was running when an SError came: memory or a device has reported an error"
        );
    }

    #[test]
    fn an_exception_before_there_are_vectors() {
        for (far, kind) in [(0x200, "a synchronous exception"), (0x280, "an IRQ")] {
            let mut report = report(0x8200_0006, Place::Memory(GuestAddr(far), None));
            (report.pc, report.far, report.instruction) = (far, far, None);
            let explained = explained(report);
            let hint = format!("taken {kind} before it set VBAR_EL1");
            assert!(explained.ends_with(&hint), "{explained}");
        }
    }

    #[test]
    fn a_device_whose_name_has_a_space() {
        let report = report(
            WRITE,
            Place::Memory(GuestAddr(0x904_0030), Some("the uart")),
        );
        let explained = explained(report);
        assert!(
            explained.ends_with("devices = [\"the uart\"]"),
            "{explained}"
        );
    }

    #[test]
    fn other_lines_are_not_explained() {
        for line in [
            "",
            "guest linux was stopped",
            "guest linux stopped: vcpu 1",
            "guest linux stopped: vcpu 1 pc=0x0 esr=x far=0x0",
        ] {
            assert_eq!(explain(line), None);
        }
    }
}
