// SPDX-License-Identifier: MIT OR Apache-2.0
//! What each core and each guest is for under a policy: decided once, at start.

use super::policy::PolicyRules;
use super::presence::Level;
use crate::schedule::Band;
use crate::sets::CoreSet;
use core::cmp::Reverse;
use spumone_config::types::{GuestId, MAX_GUESTS, PcpuId};

/// A vCPU of the system, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its guest.
    pub guest: GuestId,
    /// Whether it may migrate ([`changes_cores`]).
    pub moves: bool,
    /// Its band.
    pub band: Band,
    /// Its home core.
    pub home: PcpuId,
}

/// Whether the vCPUs of a guest that may run on these cores migrate.
pub const fn changes_cores(rules: &PolicyRules, cores: CoreSet) -> bool {
    rules.moves && cores.count() > 1
}

/// Which stage 2 tables a guest needs beside those in which all of it may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tables {
    /// Those in which only its kernel may run: they catch the moment at which it returns to a program.
    pub of_kernel: bool,
    /// Those in which only its programs may run: they catch the moment at which one enters the kernel.
    pub of_programs: bool,
}

impl Tables {
    /// For a guest with so many vCPUs. `xnx`: stage 2 can tell the kernel from programs (FEAT_XNX).
    pub const fn needed(rules: &PolicyRules, moves: bool, vcpus: usize, xnx: bool) -> Self {
        // A guest with one vCPU has no other vCPU that would wait for its locks.
        let is_waited_for = rules.max_delay.is_some() && vcpus > 1;
        Self {
            of_kernel: xnx && (moves || is_waited_for),
            of_programs: xnx && moves && rules.excludes_kernels,
        }
    }
}

/// What the cores of a system are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Roles {
    /// Cores off which kernels of guests that migrate are kept, because they are the home of a vCPU of a higher band.
    pub kernel_free: CoreSet,
    /// The band of the gang, and the homes of its vCPUs.
    pub gang: Option<(Band, CoreSet)>,
    /// The highest level of a vCPU that may migrate.
    pub highest_movable: Level,
    /// The lowest one.
    pub lowest_movable: Level,
}

impl Roles {
    /// For these vCPUs, those of a guest in the order of its own numbers.
    pub fn new(rules: &PolicyRules, members: &[Member]) -> Self {
        let moving = members.iter().filter(|it| it.moves);
        let levels = moving.map(|it| Level::of(Some(it.band)));
        let highest_movable = levels.clone().max();
        let kernel_free = match highest_movable {
            Some(moving) if rules.excludes_kernels => {
                homes(members, |it| Level::of(Some(it.band)) > moving)
            }
            _ => CoreSet::EMPTY,
        };
        let gang = match rules.gang {
            true => gang_band(members),
            false => None,
        };
        Self {
            kernel_free,
            gang: gang.map(|band| (band, homes(members, |it| it.band == band))),
            highest_movable: highest_movable.unwrap_or(Level::IDLE),
            lowest_movable: levels.min().unwrap_or(Level::IDLE),
        }
    }
}

fn homes(members: &[Member], is_meant: impl Fn(&Member) -> bool) -> CoreSet {
    members
        .iter()
        .filter(|&it| is_meant(it))
        .map(|it| it.home)
        .collect()
}

/// The band of the gang: that of the first vCPU of the guest that has most vCPUs, since it has most to lose. Of guests with
/// equally many, it is the one of the lowest band, from which others take cores.
fn gang_band(members: &[Member]) -> Option<Band> {
    let of = |guest| members.iter().filter(move |it| it.guest.index() == guest);
    let first_band = |guest| of(guest).next().map(|it| it.band);
    let largest =
        (0..MAX_GUESTS).max_by_key(|&guest| (of(guest).count(), Reverse(first_band(guest))))?;
    first_band(largest)
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::migration::Policy;
    use spumone_config::packed;
    use std::vec::Vec;

    const LOW: Band = Band::LOWEST;
    const HIGH: Band = match Band::new(1) {
        Some(band) => band,
        None => unreachable!(),
    };

    fn rules(policy: packed::Policy) -> PolicyRules {
        Policy::new(policy, 1_000_000).rules()
    }

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
    fn system(policy: packed::Policy) -> Roles {
        let rules = rules(policy);
        let moves = changes_cores(&rules, CoreSet::from_bits(0b1111));
        let rt = members(
            0,
            changes_cores(&rules, CoreSet::from_bits(0b0100)),
            HIGH,
            &[2],
        );
        let all = [rt, members(1, moves, LOW, &[0, 1, 2, 3])].concat();
        Roles::new(&rules, &all)
    }

    #[test]
    fn who_has_one_core_stays_and_under_some_policies_all_do() {
        let steal = rules(packed::Policy::Steal);
        assert!(
            changes_cores(&steal, CoreSet::from_bits(0b101))
                && !changes_cores(&steal, CoreSet::from_bits(0b100))
        );
        for policy in [
            packed::Policy::None,
            packed::Policy::Delay,
            packed::Policy::Cosched,
        ] {
            assert!(
                !changes_cores(&rules(policy), CoreSet::from_bits(0b1111)),
                "{policy:?}"
            );
            assert_eq!(system(policy).highest_movable, Level::IDLE);
            assert_eq!(system(policy).lowest_movable, Level::IDLE);
        }
    }

    #[test]
    fn of_guests_with_equally_many_vcpus_the_least_urgent_is_the_gang() {
        let (urgent, other) = (
            members(0, false, HIGH, &[0, 1]),
            members(1, false, LOW, &[0, 1]),
        );
        for all in [[urgent.clone(), other.clone()], [other, urgent]] {
            let roles = Roles::new(&rules(packed::Policy::Cosched), &all.concat());
            assert_eq!(roles.gang, Some((LOW, CoreSet::from_bits(0b11))));
        }
    }

    #[test]
    fn kernels_are_kept_off_the_homes_of_the_more_urgent_under_trap_only() {
        assert_eq!(
            system(packed::Policy::Trap).kernel_free,
            CoreSet::from_bits(0b0100)
        );
        assert_eq!(
            system(packed::Policy::Steal).kernel_free,
            CoreSet::from_bits(0)
        );
        // Where nobody moves, there is nobody to keep off.
        let trap = rules(packed::Policy::Trap);
        let stay = members(0, false, HIGH, &[0, 1]);
        assert_eq!(Roles::new(&trap, &stay).kernel_free, CoreSet::from_bits(0));
        // Nobody is above a real-time guest that moves itself.
        let rt = members(0, true, HIGH, &[2]);
        let all = [rt, members(1, true, LOW, &[0, 1])].concat();
        assert_eq!(Roles::new(&trap, &all).kernel_free, CoreSet::from_bits(0));
    }

    #[test]
    fn levels_are_those_of_the_vcpus_that_move() {
        let steal = rules(packed::Policy::Steal);
        let all = [
            members(0, true, HIGH, &[0]),
            members(1, true, LOW, &[1]),
            members(2, false, Band::HIGHEST, &[2]),
        ];
        let roles = Roles::new(&steal, &all.concat());
        assert_eq!(roles.highest_movable, Level::of(Some(HIGH)));
        assert_eq!(roles.lowest_movable, Level::of(Some(LOW)));
    }

    #[test]
    fn the_gang_is_the_largest_guests_and_all_of_its_band() {
        assert_eq!(
            system(packed::Policy::Cosched).gang,
            Some((LOW, CoreSet::from_bits(0b1111)))
        );
        assert_eq!(system(packed::Policy::None).gang, None);
        let cosched = rules(packed::Policy::Cosched);
        let all = [
            members(0, false, LOW, &[0]),
            members(1, false, HIGH, &[1, 2]),
            members(2, false, HIGH, &[4]),
        ];
        let gang = Roles::new(&cosched, &all.concat()).gang;
        assert_eq!(gang, Some((HIGH, CoreSet::from_bits(0b10110))));
        assert_eq!(Roles::new(&cosched, &[]).gang, None);
    }

    #[test]
    fn tables_are_made_only_for_whom_they_serve() {
        let needed = |policy, moves, vcpus, xnx| {
            let tables = Tables::needed(&rules(policy), moves, vcpus, xnx);
            (tables.of_kernel, tables.of_programs)
        };
        use packed::Policy::{Delay, None, Steal, Trap};
        assert_eq!(needed(Steal, true, 4, true), (true, false));
        assert_eq!(needed(Trap, true, 4, true), (true, true));
        assert_eq!(needed(Trap, false, 1, true), (false, false));
        assert_eq!(needed(Delay, false, 4, true), (true, false));
        assert_eq!(needed(Delay, false, 1, true), (false, false));
        assert_eq!(needed(None, false, 4, true), (false, false));
        assert_eq!(needed(Trap, true, 4, false), (false, false));
    }
}
