// SPDX-License-Identifier: MIT OR Apache-2.0
//! Types for addresses, numbers and priorities, so that a guest's address cannot be used as the machine's,
//! nor a core's number as a vCPU's.

use core::fmt;
use serde::{Deserialize, Serialize};

/// Most cores of a machine.
pub const MAX_PCPUS: usize = 8;
/// Most guests of one system.
pub const MAX_GUESTS: usize = 8;
/// The hypervisor's own name on the console; no guest may have it.
pub const HYPERVISOR_NAME: &str = "spumone";
/// Most vCPUs of one guest.
pub const MAX_VCPUS_PER_GUEST: usize = 8;
/// Most vCPUs of one system.
pub const MAX_VCPUS: usize = 32;
/// Most links of one guest: each has a page of registers and an SPI.
pub const MAX_LINKS_PER_GUEST: usize = 8;
/// SPIs of a guest's links: two for each.
pub const LINK_INTERRUPTS: u64 = 2 * MAX_LINKS_PER_GUEST as u64;
/// Most distinct guest priorities of one system: each has a band of GIC priorities and an SGI.
pub const MAX_PRIORITIES: usize = 8;

macro_rules! address {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// The address `bytes` further on; `None` past the end of the address space.
            pub const fn checked_add(self, bytes: u64) -> Option<Self> {
                match self.0.checked_add(bytes) {
                    Some(address) => Some(Self(address)),
                    None => None,
                }
            }

            /// Whether the address is a multiple of `alignment`, a power of two in bytes.
            pub const fn is_aligned(self, alignment: u64) -> bool {
                self.0 & (alignment - 1) == 0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#x}", self.0)
            }
        }
    };
}

address!(
    /// A physical address of the machine.
    PhysAddr
);
address!(
    /// An intermediate physical address: what a guest sees as physical.
    GuestAddr
);

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u8);

        impl $name {
            /// The id as an index into a table.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// A physical core, counted from 0 in the order of the board file.
    PcpuId
);
id!(
    /// A vCPU, counted from 0 over all guests of the system.
    VcpuId
);
id!(
    /// A guest, counted from 0 in the order of the system description.
    GuestId
);

/// A priority of vCPUs: the higher number wins, at once and always.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Priority(pub u8);

/// The rank of a priority among those of the system: 0 is the lowest, the higher number wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Band(u8);

impl Band {
    /// Number of bands a system can have.
    pub const COUNT: usize = MAX_PRIORITIES;

    /// The band that yields to all others.
    pub const LOWEST: Self = Self(0);

    /// The most urgent there can be.
    pub const HIGHEST: Self = Self(Self::COUNT as u8 - 1);

    /// The band of this rank; `None` from [`COUNT`](Self::COUNT) on.
    pub const fn new(rank: u8) -> Option<Self> {
        if (rank as usize) < Self::COUNT {
            Some(Self(rank))
        } else {
            None
        }
    }

    /// The next higher band; the highest one has none, and returns itself.
    pub const fn next_higher(self) -> Self {
        match Self::new(self.0 + 1) {
            Some(band) => band,
            None => Self::HIGHEST,
        }
    }

    /// The rank as an index into a table of [`COUNT`](Self::COUNT) entries.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Band {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A GIC interrupt number (INTID): SGI 0-15, PPI 16-31, SPI 32-1019 (GIC architecture
/// specification IHI 0069, section 2.2).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct IntId(pub u16);

impl IntId {
    /// The first shared peripheral interrupt.
    pub const FIRST_SPI: Self = Self(32);

    /// The number as an index into a table.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Whether it is a software-generated interrupt (SGI).
    pub const fn is_sgi(self) -> bool {
        self.0 < 16
    }

    /// Whether the interrupt is private to one core (SGI or PPI).
    pub const fn is_private(self) -> bool {
        self.0 < Self::FIRST_SPI.0
    }
}

impl fmt::Display for IntId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
