// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sets of vCPUs and of cores, as the bits of a word: both ids are below 32.

use core::fmt;
use core::ops::{BitAnd, BitOr, BitOrAssign, Sub, SubAssign};
use spumone_config::types::{MAX_PCPUS, MAX_VCPUS, PcpuId, VcpuId};

const _: () = assert!(MAX_VCPUS <= 32 && MAX_PCPUS <= 32);

macro_rules! id_set {
    ($(#[$doc:meta])* $set:ident of $id:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
        pub struct $set(u32);

        impl $set {
            /// The set without members.
            pub const EMPTY: Self = Self(0);

            /// The set of one member.
            #[inline(always)]
            pub const fn of(id: $id) -> Self {
                Self(1 << (id.0 & 31))
            }

            /// Bit n is for id n.
            #[inline(always)]
            pub const fn from_bits(bits: u32) -> Self {
                Self(bits)
            }

            /// Bit n is for id n.
            #[inline(always)]
            pub const fn bits(self) -> u32 {
                self.0
            }

            /// Whether the set has no members.
            #[inline(always)]
            pub const fn is_empty(self) -> bool {
                self.0 == 0
            }

            /// Whether `id` is a member.
            #[inline(always)]
            pub const fn contains(self, id: $id) -> bool {
                self.0 >> (id.0 & 31) & 1 != 0
            }

            /// Number of members.
            #[inline(always)]
            pub const fn count(self) -> u32 {
                self.0.count_ones()
            }

            /// Adds a member.
            #[inline(always)]
            pub fn insert(&mut self, id: $id) {
                self.0 |= Self::of(id).0;
            }

            /// Adds a member if `condition` holds.
            #[inline(always)]
            pub fn insert_if(&mut self, id: $id, condition: bool) {
                self.0 |= u32::from(condition) << (id.0 & 31);
            }

            /// Removes a member.
            #[inline(always)]
            pub fn remove(&mut self, id: $id) {
                self.0 &= !Self::of(id).0;
            }

            /// Removes all members, and returns them.
            #[inline(always)]
            pub fn take(&mut self) -> Self {
                core::mem::take(self)
            }

            /// The members, the lowest id first.
            #[inline(always)]
            pub fn iter(self) -> impl Iterator<Item = $id> {
                crate::bits::bits(self.0).map(|id| $id(id as u8))
            }
        }

        impl BitOr for $set {
            type Output = Self;

            #[inline(always)]
            fn bitor(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }
        }

        impl BitOrAssign for $set {
            #[inline(always)]
            fn bitor_assign(&mut self, other: Self) {
                self.0 |= other.0;
            }
        }

        impl BitAnd for $set {
            type Output = Self;

            #[inline(always)]
            fn bitand(self, other: Self) -> Self {
                Self(self.0 & other.0)
            }
        }

        impl Sub for $set {
            type Output = Self;

            #[inline(always)]
            fn sub(self, other: Self) -> Self {
                Self(self.0 & !other.0)
            }
        }

        impl SubAssign for $set {
            #[inline(always)]
            fn sub_assign(&mut self, other: Self) {
                self.0 &= !other.0;
            }
        }

        impl FromIterator<$id> for $set {
            fn from_iter<I: IntoIterator<Item = $id>>(ids: I) -> Self {
                ids.into_iter().fold(Self::EMPTY, |set, id| set | Self::of(id))
            }
        }

        impl fmt::Debug for $set {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_set().entries(self.iter().map(|id| id.0)).finish()
            }
        }
    };
}

id_set! {
    /// A set of vCPUs of the system. [`VcpuIndexSet`](crate::vgic::VcpuIndexSet) is for vCPUs of one guest.
    VcpuSet of VcpuId
}

id_set! {
    /// A set of cores of the machine.
    CoreSet of PcpuId
}

impl CoreSet {
    /// All members but `core`, in a circle: first those above `core`, then those below it.
    pub fn others_from(self, core: PcpuId) -> impl Iterator<Item = PcpuId> {
        let rotated = self.0.rotate_right(u32::from(core.0) + 1);
        // The last bit is `core` itself.
        let others = rotated & !(1 << (u32::BITS - 1));
        crate::bits::bits(others)
            .map(move |step| PcpuId((step as u8 + core.0 + 1) % u32::BITS as u8))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn members_are_added_and_removed() {
        let mut set = VcpuSet::EMPTY;
        set.insert(VcpuId(31));
        set.insert_if(VcpuId(4), true);
        set.insert_if(VcpuId(5), false);
        assert!(set.contains(VcpuId(31)) && !set.contains(VcpuId(5)));
        assert_eq!(set.iter().map(|it| it.0).collect::<Vec<_>>(), [4, 31]);
        set.remove(VcpuId(31));
        assert_eq!(set.take(), VcpuSet::of(VcpuId(4)));
        assert!(set.is_empty());
    }

    #[test]
    fn other_cores_come_in_a_circle() {
        let others = |core, cores| {
            CoreSet::from_bits(cores)
                .others_from(PcpuId(core))
                .map(|it| it.0)
                .collect::<Vec<_>>()
        };
        assert_eq!(others(1, 0b1111), [2, 3, 0]);
        assert_eq!(others(31, 1 << 31 | 0b101), [0, 2]);
        assert_eq!(others(4, 0b101), [0, 2]);
        assert_eq!(others(0, 1), []);
    }
}
