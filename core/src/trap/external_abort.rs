// SPDX-License-Identifier: MIT OR Apache-2.0
//! The exception of hardware for an access to an address at which there is nothing: a synchronous external abort.

use super::syndrome::{Exception, Syndrome};

/// `ESR_EL1.EC`, of an abort that EL0 has caused; one more, if EL1 has (DDI 0487, D24.2.40).
const INSTRUCTION_ABORT: u64 = 0x20;
const DATA_ABORT: u64 = 0x24;
/// `IL`: the instruction has 32 bits, or the syndrome does not describe it, as here.
const LONG_INSTRUCTION: u64 = 1 << 25;
/// The abort is of a cache maintenance instruction; of a store.
const KEPT: u64 = 1 << 8 | 1 << 6;
/// `DFSC` and `IFSC`: synchronous external abort, not on a walk of the page tables. Also where EL2 has refused a walk: at which
/// level of the guest's own tables that was, EL2 is not told.
const EXTERNAL: u64 = 0b01_0000;

/// `ESR_EL1` of the external abort that stands for an access that stage 2 has refused. `from_kernel`: EL1 has caused it.
pub const fn external_abort(refused: Syndrome, from_kernel: bool) -> u64 {
    let (class, kept) = match refused.decode() {
        Exception::InstructionAbort => (INSTRUCTION_ABORT, 0),
        _ => (DATA_ABORT, refused.0 & KEPT),
    };
    (class + from_kernel as u64) << 26 | LONG_INSTRUCTION | kept | EXTERNAL
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_class_says_what_was_refused_and_to_whom() {
        const FETCH: u64 = 0x20 << 26 | LONG_INSTRUCTION | 0b00_0111;
        // Four bytes from x3, and to it: with a valid syndrome.
        const LOAD: u64 = 0x24 << 26 | LONG_INSTRUCTION | 1 << 24 | 2 << 22 | 3 << 16 | 0b00_0101;
        const STORE: u64 = LOAD | 1 << 6;
        // Of Thumb code: 16 bits.
        const SHORT: u64 = 0x24 << 26 | 0b00_0111;
        for (refused, from_kernel, expected) in [
            (FETCH, false, 0x8200_0010),
            (FETCH, true, 0x8600_0010),
            (LOAD, false, 0x9200_0010),
            (LOAD, true, 0x9600_0010),
            (STORE, true, 0x9600_0050),
            (SHORT, false, 0x9200_0010),
        ] {
            let given = external_abort(Syndrome(refused), from_kernel);
            assert_eq!(given, expected, "{refused:#x}");
        }
    }
}
