//! What a guest sees of the machine's features (`HCR_EL2.TID3`).

use super::sysreg::SysReg;

/// What the system allows guests beyond the rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdPolicy {
    /// Guests may use pointer authentication: EL2 does not trap it and saves their keys.
    pub pointer_authentication: bool,
}

/// The value that a guest reads from ID register `register`, of which the machine's own value is
/// `hardware`. Registers outside the ID space (op0 3, op1 0, CRn 0, CRm 1 to 7) read as zero.
pub const fn guest_id_register(_register: SysReg, hardware: u64, _policy: IdPolicy) -> u64 {
    hardware
}
