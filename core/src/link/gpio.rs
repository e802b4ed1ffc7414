// SPDX-License-Identifier: MIT OR Apache-2.0
//! A GPIO controller as the other form of a memory link's signal: an emulated PL061 (Arm DDI 0190).
//!
//! Debian's kernels have a driver for it, by which a program of Linux can wait for an interrupt; they have none for a device
//! of ours.
//!
//! | line | | |
//! | --- | --- | --- |
//! | 0 | input | high while the peer's signal is given |
//! | 1 | output | a rising edge signals the peer |
//! | 2 | output | a rising edge takes the peer's signal back |
//!
//! The guest's vCPUs access it from several cores at once, so every register is an atomic. Relaxed order suffices: the
//! registers order nothing but the interrupt line, which is [published](crate::line) with fences.

use super::signal::Signal;
use crate::line;
use crate::sync::atomic::{AtomicU32, Ordering};

/// Register offsets (DDI 0190, table 3-1).
mod register {
    pub const LAST_DATA: u64 = 0x3fc;
    pub const DIR: u64 = 0x400;
    pub const IS: u64 = 0x404;
    pub const IBE: u64 = 0x408;
    pub const IEV: u64 = 0x40c;
    pub const IE: u64 = 0x410;
    pub const RIS: u64 = 0x414;
    pub const MIS: u64 = 0x418;
    pub const IC: u64 = 0x41c;
    /// Eight identification registers of one byte each, four bytes apart.
    pub const IDENTIFICATION: u64 = 0xfe0;
}

/// `PeriphID0` to `PeriphID3`, `PCellID0` to `PCellID3`: part 0x061 of designer 0x41, PrimeCell.
const IDENTIFICATION: [u8; 8] = [0x61, 0x10, 0x04, 0x00, 0x0d, 0xf0, 0x05, 0xb1];

/// The lines that there are.
const LINES: u32 = 0b111;
/// The signal of the peer.
const GIVEN: u32 = 1 << 0;
/// Signals the peer.
const GIVE: u32 = 1 << 1;
/// Takes the peer's signal back.
const TAKE: u32 = 1 << 2;

/// What the caller has to do after a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Effect {
    /// The guest signals its peer.
    pub gives: bool,
    /// The guest takes the peer's signal back.
    pub takes: bool,
    /// The interrupt line may have changed.
    pub line_changed: bool,
}

/// The registers of one controller.
#[derive(Debug)]
pub struct Gpio {
    /// Levels of the outputs.
    data: AtomicU32,
    /// Set: output.
    dir: AtomicU32,
    /// Set: level-sensitive.
    is: AtomicU32,
    /// Set: both edges.
    ibe: AtomicU32,
    /// Set: rising edge, or high level.
    iev: AtomicU32,
    ie: AtomicU32,
    /// Edges that were detected and not cleared.
    edges: AtomicU32,
}

impl Gpio {
    constructor! {
        /// A controller after reset.
        pub fn new() -> Self {
            Self {
                data: AtomicU32::new(0),
                dir: AtomicU32::new(0),
                is: AtomicU32::new(0),
                ibe: AtomicU32::new(0),
                iev: AtomicU32::new(0),
                ie: AtomicU32::new(0),
                edges: AtomicU32::new(0),
            }
        }
    }

    /// Resets the registers. No vCPU of the guest may run meanwhile.
    pub fn reset(&self) {
        for register in [
            &self.data,
            &self.dir,
            &self.is,
            &self.ibe,
            &self.iev,
            &self.ie,
            &self.edges,
        ] {
            register.store(0, Ordering::Relaxed);
        }
    }

    /// The guest reads the register at `offset`. `is_given`: whether the peer's signal is given. What is no register reads as
    /// zero.
    #[must_use]
    pub fn read(&self, offset: u64, is_given: bool) -> u32 {
        let load = |register: &AtomicU32| register.load(Ordering::Relaxed);
        match offset & !3 {
            data @ 0..=register::LAST_DATA => self.levels(is_given) & data as u32 >> 2,
            register::DIR => load(&self.dir),
            register::IS => load(&self.is),
            register::IBE => load(&self.ibe),
            register::IEV => load(&self.iev),
            register::IE => load(&self.ie),
            register::RIS => self.raw_interrupts(is_given),
            register::MIS => self.raw_interrupts(is_given) & load(&self.ie),
            identification @ register::IDENTIFICATION.. => {
                let index = (identification - register::IDENTIFICATION) / 4;
                let byte = IDENTIFICATION.get(index as usize);
                byte.map_or(0, |&byte| u32::from(byte))
            }
            _ => 0,
        }
    }

    /// The guest writes a register.
    pub fn write(&self, offset: u64, value: u32) -> Effect {
        let value = value & LINES;
        let store = |register: &AtomicU32, changes_line| {
            register.store(value, Ordering::Relaxed);
            Effect {
                line_changed: changes_line,
                ..Effect::default()
            }
        };
        match offset {
            data @ 0..=register::LAST_DATA => self.set_outputs(data as u32 >> 2, value),
            register::DIR => {
                let inputs = !self.dir.swap(value, Ordering::Relaxed);
                rising(self.data.load(Ordering::Relaxed) & value & inputs)
            }
            register::IS => store(&self.is, true),
            register::IBE => store(&self.ibe, false),
            register::IEV => store(&self.iev, true),
            register::IE => store(&self.ie, true),
            register::IC => {
                self.edges.fetch_and(!value, Ordering::Relaxed);
                Effect {
                    line_changed: true,
                    ..Effect::default()
                }
            }
            // `AFSEL`, which is 0 for lines of software, and what is no register.
            _ => Effect::default(),
        }
    }

    /// The peer's signal was given (a rising edge) or taken back.
    pub fn input_changed(&self, rises: bool) {
        let load = |register: &AtomicU32| register.load(Ordering::Relaxed) & GIVEN != 0;
        if !load(&self.is) && (load(&self.ibe) || load(&self.iev) == rises) {
            self.edges.fetch_or(GIVEN, Ordering::Relaxed);
        }
    }

    /// Passes the level of the interrupt line to `set`, so that the last level passed is the present one. `set` may be called
    /// up to four times.
    pub fn publish(&self, signal: &Signal, set: impl FnMut(bool)) {
        line::publish(|| self.line(signal.is_given()), set);
    }

    /// The level of the interrupt line.
    fn line(&self, is_given: bool) -> bool {
        self.raw_interrupts(is_given) & self.ie.load(Ordering::Relaxed) != 0
    }

    /// `RIS`. Only the input can cause an interrupt.
    fn raw_interrupts(&self, is_given: bool) -> u32 {
        let load = |register: &AtomicU32| register.load(Ordering::Relaxed);
        let level = match (load(&self.iev) & GIVEN != 0) == is_given {
            true => load(&self.is) & GIVEN,
            false => 0,
        };
        load(&self.edges) & !load(&self.is) | level
    }

    /// The levels of all lines.
    fn levels(&self, is_given: bool) -> u32 {
        let dir = self.dir.load(Ordering::Relaxed);
        let inputs = if is_given { GIVEN } else { 0 };
        self.data.load(Ordering::Relaxed) & dir | inputs & !dir
    }

    /// Writes the data of those lines in `mask` that are outputs. An input does not remember it: Linux writes the data before
    /// and after it makes a line an output, and the second write is the rising edge.
    fn set_outputs(&self, mask: u32, value: u32) -> Effect {
        let mask = mask & LINES & self.dir.load(Ordering::Relaxed);
        let before = match value & mask {
            0 => self.data.fetch_and(!mask, Ordering::Relaxed),
            _ => {
                let cleared = self.data.fetch_and(!(mask & !value), Ordering::Relaxed);
                self.data.fetch_or(value & mask, Ordering::Relaxed) & cleared
            }
        };
        rising(value & mask & !before)
    }
}

/// The effect of outputs that rise.
fn rising(lines: u32) -> Effect {
    Effect {
        gives: lines & GIVE != 0,
        takes: lines & TAKE != 0,
        line_changed: false,
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    /// The address of data through which only these lines are accessed.
    const fn data(lines: u32) -> u64 {
        (lines << 2) as u64
    }

    fn write(gpio: &Gpio, offset: u64, value: u32) {
        let _ = gpio.write(offset, value);
    }

    #[test]
    fn a_driver_recognizes_it() {
        let gpio = Gpio::new();
        let read = |n: u32| gpio.read(0xfe0 + 4 * u64::from(n), false);
        let number = |first: u32| (0..4).fold(0, |id, n| id | read(first + n) << (8 * n));
        // What the AMBA bus of Linux compares (drivers/gpio/gpio-pl061.c).
        assert_eq!(number(0) & 0x000f_ffff, 0x0004_1061);
        assert_eq!(number(4), 0xb105_f00d);
    }

    #[test]
    fn a_rising_output_gives_or_takes() {
        let gpio = Gpio::new();
        write(&gpio, 0x400, 0b110);
        let effect = gpio.write(data(GIVE), GIVE);
        assert_eq!((effect.gives, effect.takes), (true, false));
        // It is high already.
        assert_eq!(gpio.write(data(GIVE), GIVE), Effect::default());
        // The mask in the address leaves the other lines alone.
        let effect = gpio.write(data(TAKE), 0xff);
        assert_eq!((effect.gives, effect.takes), (false, true));
        assert_eq!(gpio.read(data(0xff), true), 0b111);
        assert_eq!(gpio.write(data(0xff), 0), Effect::default());
        assert_eq!(gpio.read(data(0xff), true), 0b001);
        assert!(gpio.write(data(GIVE), GIVE).gives);
        // An input has no level that the guest could write.
        write(&gpio, data(0xff), 0);
        write(&gpio, 0x400, 0);
        assert_eq!(gpio.write(data(0xff), 0xff), Effect::default());
        assert_eq!(gpio.read(data(0xff), false), 0);
    }

    /// What `pl061_direction_output` of Linux writes (drivers/gpio/gpio-pl061.c).
    #[test]
    fn a_line_that_becomes_an_output_gives() {
        let gpio = Gpio::new();
        let direction_output = |value| {
            let effects = [
                gpio.write(data(GIVE), value),
                gpio.write(0x400, gpio.read(0x400, false) | GIVE),
                gpio.write(data(GIVE), value),
            ];
            effects.iter().filter(|effect| effect.gives).count()
        };
        assert_eq!(direction_output(GIVE), 1);
        assert_eq!(direction_output(GIVE), 0, "it is high already");
        // What was an input in between rises again.
        write(&gpio, 0x400, 0);
        assert_eq!(direction_output(GIVE), 1);
        assert_eq!(direction_output(0), 0);
        write(&gpio, 0x400, 0);
        assert_eq!(direction_output(0), 0);
        assert_eq!(direction_output(GIVE), 1);
    }

    #[test]
    fn a_rising_edge_interrupts_until_it_is_cleared() {
        let gpio = Gpio::new();
        write(&gpio, 0x40c, GIVEN);
        gpio.input_changed(true);
        assert!(!gpio.line(true), "not enabled");
        write(&gpio, 0x410, GIVEN);
        assert!(gpio.line(true) && gpio.line(false));
        assert_eq!((gpio.read(0x414, true), gpio.read(0x418, true)), (1, 1));
        assert!(gpio.write(0x41c, GIVEN).line_changed);
        assert!(!gpio.line(true));
        gpio.input_changed(false);
        assert!(!gpio.line(false), "a falling edge");
        write(&gpio, 0x408, GIVEN);
        gpio.input_changed(false);
        assert!(gpio.line(false), "both edges");
        gpio.reset();
        assert!(!gpio.line(true));
    }

    #[test]
    fn a_level_interrupts_as_long_as_it_is_there() {
        let gpio = Gpio::new();
        write(&gpio, 0x404, GIVEN);
        write(&gpio, 0x40c, GIVEN);
        write(&gpio, 0x410, GIVEN);
        gpio.input_changed(true);
        assert!(gpio.line(true) && !gpio.line(false));
        write(&gpio, 0x40c, 0);
        assert!(!gpio.line(true) && gpio.line(false), "low level");
    }
}
