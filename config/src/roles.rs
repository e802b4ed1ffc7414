// SPDX-License-Identifier: MIT OR Apache-2.0
//! What each core and each guest is for under a policy.

use crate::packed::{Gang, Policy, Roles};
use crate::types::{Band, GuestId, MAX_GUESTS, MAX_PCPUS, PcpuId};
use core::cmp::Reverse;

/// A vCPU of the system, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its guest.
    pub guest: GuestId,
    /// Whether it migrates ([`moves`]).
    pub moves: bool,
    /// Its band.
    pub band: Band,
    /// Its home core.
    pub home: PcpuId,
}

/// Whether the vCPUs of a guest migrate. The guest has this number of vCPUs, which may run on these cores (bit n for core n).
///
/// Under some policies several vCPUs migrate even if there is one core only. No other core takes them, but the core parks each vCPU that does not run. So
/// the core knows which vCPUs may hold a lock, and gives those more time.
pub const fn moves(policy: Policy, cores: u32, vcpus: usize) -> bool {
    policy.moves_vcpus() && (cores.count_ones() > 1 || policy.serves_one_core() && vcpus > 1)
}

/// The set of these cores, as a guest names them; bit n for core n. Without those that no machine has.
pub fn set_of(cores: impl Iterator<Item = u64>) -> u32 {
    cores
        .filter(|core| *core < MAX_PCPUS as u64)
        .fold(0, |cores, core| cores | 1 << core)
}

/// Which stage 2 tables a guest needs beside those in which all of it may run, on cores with FEAT_XNX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tables {
    /// See [`Stage2::of_kernel`](crate::packed::Stage2::of_kernel).
    pub of_kernel: bool,
    /// See [`Stage2::of_programs`](crate::packed::Stage2::of_programs).
    pub of_programs: bool,
}

impl Tables {
    /// For a guest with so many vCPUs, which move or not.
    pub const fn needed(policy: Policy, moves: bool, vcpus: usize) -> Self {
        // A guest with one vCPU has no other vCPU that would wait for its locks.
        let is_waited_for = policy.defers_preemption() && vcpus > 1;
        Self {
            of_kernel: moves || is_waited_for,
            of_programs: moves && policy.excludes_kernels(),
        }
    }
}

/// What the cores of a system are for. `stay`: the cores that stay on (bit n for core n); `members`: the vCPUs of each guest in the order of its
/// own numbers.
pub fn of_cores(policy: Policy, stay: u32, members: &[Member]) -> Roles {
    let moving = members.iter().filter(|it| it.moves).map(|it| it.band);
    let highest_movable = moving.clone().max();
    Roles {
        console_core: console_core(stay, members),
        kernel_free: match highest_movable {
            Some(highest) if policy.excludes_kernels() => homes(members, |it| it.band > highest),
            _ => 0,
        },
        gang: match policy.has_gang() {
            true => gang(members),
            false => None,
        },
        highest_movable,
        lowest_movable: moving.min(),
    }
}

/// The cores that stay on, whatever the load is, in a system in which cores go off; bit n for core n. A core that has a vCPU that stays there
/// does, and for each guest whose vCPUs migrate one core at least. `guests`: on which cores the vCPUs of each of those may run.
pub fn stay_on(members: &[Member], guests: impl Iterator<Item = u32>) -> u32 {
    let stay = homes(members, |it| !it.moves);
    guests.fold(stay, |stay, cores| match stay & cores {
        0 => stay | cores & cores.wrapping_neg(),
        _ => stay,
    })
}

/// The core of these whose vCPUs have the lowest bands; of several such cores, the one with the highest number.
fn console_core(cores: u32, members: &[Member]) -> PcpuId {
    let cores = (0..u32::BITS as usize).filter(|core| cores >> core & 1 != 0);
    let urgency = |core: &usize| {
        let at_home = members.iter().filter(|it| it.home.index() == *core);
        at_home.map(|it| it.band).max()
    };
    let core = cores.rev().min_by_key(urgency);
    PcpuId(core.and_then(|core| u8::try_from(core).ok()).unwrap_or(0))
}

fn homes(members: &[Member], is_meant: impl Fn(&Member) -> bool) -> u32 {
    let meant = members.iter().filter(|&it| is_meant(it));
    meant.fold(0, |cores, it| {
        cores | 1_u32.checked_shl(it.home.0.into()).unwrap_or(0)
    })
}

/// The gang: the band of the first vCPU of the guest that has most vCPUs, since it has most to lose. Of guests with
/// equally many, it is the one of the lowest band, from which others take cores.
fn gang(members: &[Member]) -> Option<Gang> {
    let of = |guest| members.iter().filter(move |it| it.guest.index() == guest);
    let first_band = |guest| of(guest).next().map(|it| it.band);
    let largest =
        (0..MAX_GUESTS).max_by_key(|&guest| (of(guest).count(), Reverse(first_band(guest))))?;
    let band = first_band(largest)?;
    Some(Gang {
        band,
        cores: homes(members, |it| it.band == band),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOW: Band = Band::LOWEST;
    const HIGH: Band = match Band::new(1) {
        Some(band) => band,
        None => unreachable!(),
    };

    fn members(guest: u8, moves: bool, band: Band, homes: &[u8]) -> Vec<Member> {
        let member = |&home| Member {
            guest: GuestId(guest),
            moves,
            band,
            home: PcpuId(home),
        };
        homes.iter().map(member).collect()
    }

    /// A real-time guest on core 2, and one with four vCPUs.
    fn system(policy: Policy) -> Roles {
        let linux_moves = moves(policy, 0b1111, 4);
        let rt = members(0, moves(policy, 0b0100, 1), HIGH, &[2]);
        let all = [rt, members(1, linux_moves, LOW, &[0, 1, 2, 3])].concat();
        of_cores(policy, 0b1111, &all)
    }

    #[test]
    fn a_guest_with_one_core_stays_unless_several_vcpus_share_it_under_steal() {
        for policy in Policy::ALL {
            assert!(!moves(policy, 0b100, 1), "{policy:?}");
            assert_eq!(moves(policy, 0b100, 2), policy == Policy::Steal);
        }
        assert!(moves(Policy::Steal, 0b101, 2) && moves(Policy::Steal, 0b101, 1));
        for policy in [Policy::None, Policy::Delay, Policy::Cosched] {
            assert!(!moves(policy, 0b1111, 4), "{policy:?}");
            assert_eq!(system(policy).highest_movable, None);
            assert_eq!(system(policy).lowest_movable, None);
        }
    }

    #[test]
    fn of_guests_with_equally_many_vcpus_the_least_urgent_is_the_gang() {
        let (urgent, other) = (
            members(0, false, HIGH, &[0, 1]),
            members(1, false, LOW, &[0, 1]),
        );
        for all in [[urgent.clone(), other.clone()], [other, urgent]] {
            let roles = of_cores(Policy::Cosched, 0b1_1111, &all.concat());
            assert_eq!(
                roles.gang,
                Some(Gang {
                    band: LOW,
                    cores: 0b11
                })
            );
        }
    }

    #[test]
    fn kernels_are_kept_off_the_homes_of_the_more_urgent_under_trap_only() {
        assert_eq!(system(Policy::Trap).kernel_free, 0b0100);
        assert_eq!(system(Policy::Steal).kernel_free, 0);
        // Where no vCPU moves, there is no kernel to keep off a core.
        let stay = members(0, false, HIGH, &[0, 1]);
        assert_eq!(of_cores(Policy::Trap, 0b1111, &stay).kernel_free, 0);
        // No guest has a higher priority than this real-time guest, but it moves itself.
        let rt = members(0, true, HIGH, &[2]);
        let all = [rt, members(1, true, LOW, &[0, 1])].concat();
        assert_eq!(of_cores(Policy::Trap, 0b1111, &all).kernel_free, 0);
    }

    #[test]
    fn levels_are_those_of_the_vcpus_that_move() {
        let all = [
            members(0, true, HIGH, &[0]),
            members(1, true, LOW, &[1]),
            members(2, false, Band::HIGHEST, &[2]),
        ];
        let roles = of_cores(Policy::Steal, 0b1111, &all.concat());
        assert_eq!(roles.highest_movable, Some(HIGH));
        assert_eq!(roles.lowest_movable, Some(LOW));
    }

    #[test]
    fn the_gang_is_the_largest_guests_and_all_of_its_band() {
        assert_eq!(
            system(Policy::Cosched).gang,
            Some(Gang {
                band: LOW,
                cores: 0b1111
            })
        );
        assert_eq!(system(Policy::None).gang, None);
        let all = [
            members(0, false, LOW, &[0]),
            members(1, false, HIGH, &[1, 2]),
            members(2, false, HIGH, &[4]),
        ];
        let gang = of_cores(Policy::Cosched, 0b1_1111, &all.concat()).gang;
        assert_eq!(
            gang,
            Some(Gang {
                band: HIGH,
                cores: 0b10110
            })
        );
        assert_eq!(of_cores(Policy::Cosched, 0b1_1111, &[]).gang, None);
    }

    #[test]
    fn tables_are_made_only_for_whom_they_serve() {
        let needed = |policy, moves, vcpus| {
            let tables = Tables::needed(policy, moves, vcpus);
            (tables.of_kernel, tables.of_programs)
        };
        assert_eq!(needed(Policy::Steal, true, 4), (true, false));
        assert_eq!(needed(Policy::Trap, true, 4), (true, true));
        assert_eq!(needed(Policy::Trap, false, 1), (false, false));
        assert_eq!(needed(Policy::Delay, false, 4), (true, false));
        assert_eq!(needed(Policy::Delay, false, 1), (false, false));
        assert_eq!(needed(Policy::None, false, 4), (false, false));
    }

    #[test]
    fn the_console_is_served_where_vcpus_are_least_urgent() {
        let core_of = |cores: u32, all: &[Member]| {
            of_cores(Policy::None, (1 << cores) - 1, all).console_core.0
        };
        let all = [
            members(0, false, HIGH, &[0, 3]),
            members(1, false, LOW, &[0, 1, 2]),
        ]
        .concat();
        assert_eq!(core_of(4, &all), 2);
        // A core without vCPUs is less urgent than any.
        assert_eq!(core_of(5, &all), 4);
        assert_eq!(core_of(1, &all), 0);
    }

    #[test]
    fn cores_of_vcpus_that_stay_stay_on_and_one_of_each_guest_that_moves() {
        let rt = members(0, false, HIGH, &[2]);
        let linux = members(1, true, LOW, &[0, 1, 2, 3]);
        let all = [rt, linux].concat();
        assert_eq!(stay_on(&all, [0b1111].into_iter()), 0b0100);
        assert_eq!(stay_on(&all, [0b1010, 0b1111].into_iter()), 0b0110);
        assert_eq!(stay_on(&all, [0b1010, 0b1000].into_iter()), 0b1110);
        assert_eq!(stay_on(&[], [].into_iter()), 0);
        // Of these the console's core is the least urgent.
        assert_eq!(
            of_cores(Policy::Steal, 0b0100, &all).console_core,
            PcpuId(2)
        );
        assert_eq!(
            of_cores(Policy::Steal, 0b0110, &all).console_core,
            PcpuId(1)
        );
    }
}
