// SPDX-License-Identifier: MIT OR Apache-2.0
//! Damages files at random: bytes anywhere, and lines and values of text.

use fastrand::Rng;

/// Values of descriptions and boards that lie at some bound, or are of another type.
pub const VALUES: &[&str] = &[
    "0",
    "-1",
    "1",
    "7",
    "8",
    "255",
    "256",
    "65536",
    "4294967295",
    "9223372036854775807",
    "0xffffffffffffffff",
    "1e400",
    "nan",
    "true",
    "\"\"",
    "\"0\"",
    "\"1KiB\"",
    "\"16EiB\"",
    "\"18446744073709551615\"",
    "\"17179869183GiB\"",
    "\"1us\"",
    "\"99999999999s\"",
    "\"\\u0000\"",
    "\"ä\"",
    "\"..\"",
    "\"rt\"",
    "\"Image\"",
    "\"rt.elf\"",
    "\"random\"",
    "[]",
    "[[]]",
    "[0, 0]",
    "[0, 1, 2, 3, 4, 5, 6, 7, 8]",
    "{}",
    "{ core = 0 }",
    "1979-05-27",
];
/// Numbers that readers of binary files trip over.
const NUMBERS: &[u64] = &[
    0,
    1,
    4,
    0x38,
    0x40,
    0xff,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    0x4000_0000,
    0x7fff_ffff_ffff_ffff,
    u64::MAX - 1,
    u64::MAX,
];
/// Most copies of a line.
const COPIES: usize = 300;

/// The damage of one step.
pub struct Damage(Rng);

impl Damage {
    pub fn of_step(step: u64) -> Self {
        Self(Rng::with_seed(step))
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        self.0.usize(..end)
    }

    /// A number from 1 on.
    pub fn up_to(&mut self, most: usize) -> usize {
        self.0.usize(1..=most)
    }

    /// A damaged copy.
    pub fn done_to(&mut self, bytes: &[u8], is_text: bool) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        for _ in 0..self.up_to(4) {
            bytes = match is_text && self.below(8) != 0 {
                true => self.lines(&bytes),
                false => self.bytes(bytes),
            };
        }
        bytes
    }

    /// Damages lines of a text.
    fn lines(&mut self, bytes: &[u8]) -> Vec<u8> {
        let text = String::from_utf8_lossy(bytes);
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        if lines.is_empty() {
            return bytes.to_vec();
        }
        let at = self.below(lines.len());
        let other = self.below(lines.len());
        match self.below(8) {
            0 => drop(lines.remove(at)),
            1 => lines.swap(at, other),
            2 => lines.insert(at, lines[other].clone()),
            3 => {
                let copies = self.up_to(COPIES);
                let part: Vec<_> = lines[at.min(other)..=at.max(other)].to_vec();
                for _ in 0..copies.div_ceil(part.len()) {
                    lines.splice(at..at, part.iter().cloned());
                }
            }
            _ => {
                let value = VALUES[self.below(VALUES.len())];
                if let Some((key, _)) = lines[at].split_once('=') {
                    lines[at] = format!("{key}= {value}");
                } else if let Some((_, of_other)) = lines[other].split_once('=') {
                    lines.insert(at, format!("x{at} ={of_other}"));
                }
            }
        }
        lines.join("\n").into_bytes()
    }

    /// Damages bytes anywhere, most often near the start, where headers are.
    fn bytes(&mut self, mut bytes: Vec<u8>) -> Vec<u8> {
        if bytes.is_empty() {
            return bytes;
        }
        let end = match self.below(2) {
            0 => bytes.len(),
            _ => bytes.len().min(256),
        };
        let at = self.below(end);
        match self.below(8) {
            0 => bytes[at] ^= 1 << self.below(8),
            1 => bytes[at] = self.0.u8(..),
            2 => bytes.truncate(at),
            3 => {
                let length = self.up_to(16).min(bytes.len() - at);
                bytes.drain(at..at + length);
            }
            4 => {
                let length = self.up_to(64).min(bytes.len() - at);
                let part = bytes[at..at + length].to_vec();
                bytes.splice(at..at, part);
            }
            _ => {
                let number = NUMBERS[self.below(NUMBERS.len())];
                let size = 1 << self.below(4);
                let written = match self.0.bool() {
                    true => number.to_le_bytes()[..size].to_vec(),
                    false => number.to_be_bytes()[8 - size..].to_vec(),
                };
                // Fields are aligned.
                let at = at / size * size;
                let room = size.min(bytes.len() - at);
                bytes[at..at + room].copy_from_slice(&written[..room]);
            }
        }
        bytes
    }
}
