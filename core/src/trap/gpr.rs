// SPDX-License-Identifier: MIT OR Apache-2.0
//! The general-purpose register that a trapped instruction names.

/// The number of a general-purpose register as instructions encode it: 0 to 30, and 31 for the
/// zero register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gpr(u8);

impl Gpr {
    /// The zero register.
    pub const ZERO: Self = Self(31);

    /// Register `number`, of which the low five bits count.
    pub const fn new(number: u8) -> Self {
        Self(number & 31)
    }

    /// The number that instructions encode.
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Its value in a guest's registers x0 to x30; the zero register reads as zero.
    pub fn read(self, registers: &[u64; 31]) -> u64 {
        registers.get(usize::from(self.0)).copied().unwrap_or(0)
    }

    /// Sets it in a guest's registers; a write to the zero register is dropped.
    pub fn write(self, registers: &mut [u64; 31], value: u64) {
        if let Some(register) = registers.get_mut(usize::from(self.0)) {
            *register = value;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_zero_register_reads_zero_and_drops_writes() {
        let mut registers = [7; 31];
        Gpr::ZERO.write(&mut registers, 1);
        assert_eq!(registers, [7; 31]);
        assert_eq!(Gpr::ZERO.read(&registers), 0);
        Gpr::new(30).write(&mut registers, 1);
        assert_eq!((registers[30], Gpr::new(30).read(&registers)), (1, 1));
        assert_eq!(Gpr::new(0xff), Gpr::ZERO);
    }
}
