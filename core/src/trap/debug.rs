//! Debug system registers (op0 = 2), trapped by `MDCR_EL2.TDA`, `TDOSA` and `TDRA`.

use super::sysreg::{SysReg, SysRegAccess};

/// How an access to a debug register is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DebugAction {
    /// A read gives this value.
    Read(u64),
    /// A write is dropped.
    Ignore,
    /// A read or write of this vCPU's own `MDSCR_EL1`.
    Mdscr,
    /// The guest must not know the register: it gets an undefined instruction exception.
    Undefined,
}

/// How an access to debug register `access.register` (op0 = 2) is answered.
pub const fn debug_register(access: SysRegAccess) -> DebugAction {
    let _ = access;
    let _: SysReg = access.register;
    DebugAction::Undefined
}
