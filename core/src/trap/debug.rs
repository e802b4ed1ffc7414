// SPDX-License-Identifier: MIT OR Apache-2.0
//! Debug system registers (op0 = 2), trapped by `MDCR_EL2.TDA`, `TDOSA` and `TDRA`.
//!
//! Hardware breakpoints and watchpoints belong to the whole core and would have to be switched with each vCPU, so
//! guests have none: the registers exist (the architecture requires at least two of each), read as zero and ignore
//! writes. Single step and `BRK` need only `MDSCR_EL1`, which is kept per vCPU, so debuggers inside a guest step and
//! break as usual.

use super::sysreg::{SysReg, SysRegAccess};

/// How an access to a debug register is emulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DebugAction {
    /// A read returns this value.
    Read(u64),
    /// A write is ignored.
    Ignore,
    /// A read or write of this vCPU's own `MDSCR_EL1`; a write keeps [`MDSCR_WRITABLE`] only.
    Mdscr,
    /// The guest does not have the register: it gets an undefined instruction exception.
    Undefined,
}

/// Bits of `MDSCR_EL1` that a guest may set: single step (`SS`), `TDCC`, debug exceptions from EL1
/// (`KDE`) and of breakpoints (`MDE`). The others serve an external debugger.
pub const MDSCR_WRITABLE: u64 = 1 << 0 | 1 << 12 | 1 << 13 | 1 << 15;

/// `OSLSR_EL1`: there is an OS lock (`OSLM` = 0b10), and it is unlocked.
const OS_LOCK_OPEN: u64 = 1 << 3;

/// How an access to debug register `access.register` (op0 = 2) is emulated.
pub const fn debug_register(access: SysRegAccess) -> DebugAction {
    let register = access.register;
    match register {
        SysReg::MDSCR_EL1 => DebugAction::Mdscr,
        // Read only. Always unlocked, which a debugger that unlocks it cannot distinguish.
        SysReg::OSLSR_EL1 => read_only(access.read, OS_LOCK_OPEN),
        SysReg::MDRAR_EL1 | SysReg::MDCCSR_EL0 | SysReg::DBGAUTHSTATUS_EL1 => {
            read_only(access.read, 0)
        }
        // Write only.
        SysReg::OSLAR_EL1 if access.read => DebugAction::Undefined,
        SysReg::OSLAR_EL1
        | SysReg::OSDLR_EL1
        | SysReg::OSDTRRX_EL1
        | SysReg::OSDTRTX_EL1
        | SysReg::OSECCR_EL1
        | SysReg::MDCCINT_EL1
        | SysReg::DBGPRCR_EL1
        | SysReg::DBGCLAIMSET_EL1
        | SysReg::DBGCLAIMCLR_EL1
        | SysReg::DBGDTR_EL0
        | SysReg::DBGDTRRX_EL0 => zero_and_ignore(access.read),
        _ if is_breakpoint(register) => zero_and_ignore(access.read),
        // Trace (op1 = 1), which the ID registers hide; registers of EL2; later extensions.
        _ => DebugAction::Undefined,
    }
}

const fn read_only(read: bool, value: u64) -> DebugAction {
    if read {
        DebugAction::Read(value)
    } else {
        DebugAction::Undefined
    }
}

const fn zero_and_ignore(read: bool) -> DebugAction {
    if read {
        DebugAction::Read(0)
    } else {
        DebugAction::Ignore
    }
}

/// `DBGBVR<n>_EL1`, `DBGBCR<n>_EL1`, `DBGWVR<n>_EL1`, `DBGWCR<n>_EL1`.
const fn is_breakpoint(register: SysReg) -> bool {
    register.is_debug()
        && register.op1() == 0
        && register.crn() == 0
        && matches!(register.op2(), 4..=7)
}

#[cfg(test)]
mod tests {
    use super::super::Gpr;
    use super::*;

    fn emulate(register: SysReg, read: bool) -> DebugAction {
        debug_register(SysRegAccess {
            register,
            gpr: Gpr::ZERO,
            read,
        })
    }

    /// Linux at start: opens the OS lock and the double lock, clears all breakpoints.
    #[test]
    fn what_linux_accesses_at_start_is_emulated() {
        assert_eq!(emulate(SysReg::OSLAR_EL1, false), DebugAction::Ignore);
        assert_eq!(emulate(SysReg::OSDLR_EL1, false), DebugAction::Ignore);
        assert_eq!(emulate(SysReg::OSLSR_EL1, true), DebugAction::Read(8));
        assert_eq!(emulate(SysReg::MDSCR_EL1, true), DebugAction::Mdscr);
        assert_eq!(emulate(SysReg::MDSCR_EL1, false), DebugAction::Mdscr);
        for number in 0..16 {
            for op2 in 4..8 {
                let register = SysReg::new(2, 0, 0, number, op2);
                assert_eq!(emulate(register, false), DebugAction::Ignore);
                assert_eq!(emulate(register, true), DebugAction::Read(0));
            }
        }
    }

    #[test]
    fn the_wrong_direction_is_undefined() {
        for register in [
            SysReg::OSLSR_EL1,
            SysReg::MDRAR_EL1,
            SysReg::MDCCSR_EL0,
            SysReg::DBGAUTHSTATUS_EL1,
        ] {
            assert_eq!(
                emulate(register, false),
                DebugAction::Undefined,
                "{register:?}"
            );
        }
        assert_eq!(emulate(SysReg::OSLAR_EL1, true), DebugAction::Undefined);
    }

    #[test]
    fn what_guests_do_not_have_is_undefined() {
        for register in [
            SysReg::new(2, 4, 0, 7, 0),  // DBGVCR32_EL2
            SysReg::new(2, 1, 0, 0, 0),  // a trace register
            SysReg::new(2, 0, 0, 4, 2),  // MDSELR_EL1
            SysReg::new(3, 3, 9, 12, 0), // not a debug register
            SysReg::new(3, 0, 0, 5, 4),
        ] {
            assert_eq!(
                emulate(register, true),
                DebugAction::Undefined,
                "{register:?}"
            );
            assert_eq!(
                emulate(register, false),
                DebugAction::Undefined,
                "{register:?}"
            );
        }
    }
}
