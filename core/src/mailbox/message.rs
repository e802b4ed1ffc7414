// SPDX-License-Identifier: MIT OR Apache-2.0
//! The messages that cores send each other, and their encoding.

use crate::psci::{EntryPoint, Generation};
use crate::sets::CoreSet;
use spumone_config::types::{GuestAddr, GuestId, VcpuId};

/// A message of one core to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// A vCPU of the receiver is turned on.
    StartVcpu {
        /// The vCPU.
        vcpu: VcpuId,
        /// Where it starts.
        entry_point: EntryPoint,
        /// The life of its guest in which the start was requested.
        generation: Generation,
    },
    /// A guest stops: the receiver takes its vCPUs off and acknowledges.
    StopGuest {
        /// The guest.
        guest: GuestId,
        /// The life that ends.
        generation: Generation,
        /// The receiver is to tell these cores, too.
        others: CoreSet,
    },
    /// The receiver, which has the first vCPU of a guest that no core runs, loads and starts the guest.
    RestartGuest {
        /// The guest.
        guest: GuestId,
        /// The life that has ended.
        generation: Generation,
    },
    /// No message that was ever sent: the hypervisor's memory has been overwritten. Fatal.
    Corrupt,
}

/// Words of an encoded message: a header, and two arguments.
pub(super) const WORDS: usize = 3;

/// The header: kind in bits 7 to 0, vCPU or guest in bits 15 to 8, generation in bits 63 to 32.
mod header {
    /// Kind of [`StartVcpu`](super::Message::StartVcpu).
    pub const START_VCPU: u8 = 1;
    /// Kind of [`StopGuest`](super::Message::StopGuest).
    pub const STOP_GUEST: u8 = 2;
    /// Kind of [`RestartGuest`](super::Message::RestartGuest).
    pub const RESTART_GUEST: u8 = 3;

    pub const SUBJECT_SHIFT: u32 = 8;
    pub const GENERATION_SHIFT: u32 = 32;
}

impl Message {
    pub(super) fn encode(self) -> [u64; WORDS] {
        let header = |kind: u8, subject: u8, generation: Generation| {
            u64::from(kind)
                | u64::from(subject) << header::SUBJECT_SHIFT
                | u64::from(generation.0) << header::GENERATION_SHIFT
        };
        match self {
            Self::StartVcpu {
                vcpu,
                entry_point,
                generation,
            } => [
                header(header::START_VCPU, vcpu.0, generation),
                entry_point.entry.0,
                entry_point.context,
            ],
            Self::StopGuest {
                guest,
                generation,
                others,
            } => [
                header(header::STOP_GUEST, guest.0, generation),
                u64::from(others.bits()),
                0,
            ],
            Self::RestartGuest { guest, generation } => {
                [header(header::RESTART_GUEST, guest.0, generation), 0, 0]
            }
            Self::Corrupt => [0; WORDS],
        }
    }

    pub(super) fn decode([header, first, second]: [u64; WORDS]) -> Self {
        let subject = (header >> header::SUBJECT_SHIFT) as u8;
        let generation = Generation((header >> header::GENERATION_SHIFT) as u32);
        match header as u8 {
            header::START_VCPU => Self::StartVcpu {
                vcpu: VcpuId(subject),
                entry_point: EntryPoint {
                    entry: GuestAddr(first),
                    context: second,
                },
                generation,
            },
            header::STOP_GUEST => Self::StopGuest {
                guest: GuestId(subject),
                generation,
                others: CoreSet::from_bits(first as u32),
            },
            header::RESTART_GUEST => Self::RestartGuest {
                guest: GuestId(subject),
                generation,
            },
            _ => Self::Corrupt,
        }
    }
}
