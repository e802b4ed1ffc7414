// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much of a core's time each guest takes, for the operator.

use crate::schedule::Ticks;
use crate::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use spumone_config::types::{GuestId, MAX_GUESTS, MAX_PCPUS, PcpuId};

/// The place of nobody in a table of users, behind the guests: the core idles.
const IDLE: usize = MAX_GUESTS;
/// The place of what the core does before its first [`Usage::switch`], which is not counted.
const START: usize = IDLE + 1;
/// Places in a table.
const USERS: usize = START + 1;

/// The users of one core's time. Only that core changes it; any core may read it.
#[derive(Debug)]
pub struct Usage {
    /// The present user. Only the core itself reads it.
    user: AtomicU8,
    /// Of each user, the sum of the times at which it has given the core up, less those at which it got it. So for the present user
    /// the number is negative, and lacks the present time. Relaxed: each number is right by itself.
    spent: [AtomicU64; USERS],
}

impl Usage {
    constructor! {
        /// A core that has not begun yet.
        pub fn new() -> Self {
            Self {
                user: AtomicU8::new(START as u8),
                spent: atomics!(AtomicU64::new(0)),
            }
        }
    }

    /// From `now` on, the core is this guest's; `None`: it idles. Only the core itself may call this.
    #[inline(always)]
    pub fn switch(&self, to: Option<GuestId>, now: Ticks) {
        let to = to.map_or(IDLE, GuestId::index).min(IDLE);
        let from = usize::from(self.user.load(Ordering::Relaxed));
        self.add(from, now.0);
        self.add(to, now.0.wrapping_neg());
        self.user.store(to as u8, Ordering::Relaxed);
    }

    #[inline(always)]
    fn add(&self, user: usize, time: u64) {
        if let Some(spent) = self.spent.get(user) {
            let sum = spent.load(Ordering::Relaxed).wrapping_add(time);
            spent.store(sum, Ordering::Relaxed);
        }
    }

    /// The time of each user up to `now`.
    fn spent(&self, now: Ticks) -> [u64; USERS] {
        core::array::from_fn(|user| {
            let sum = self.spent[user].load(Ordering::Relaxed).cast_signed();
            match sum < 0 {
                // Negative still, if the user has got the core after `now`.
                true => sum.wrapping_add_unsigned(now.0).max(0),
                false => sum,
            }
            .cast_unsigned()
        })
    }
}

/// What a reader of [`Usage`] saw when it looked last, by core.
#[derive(Debug)]
pub struct Watch([[u64; USERS]; MAX_PCPUS]);

impl Watch {
    /// A reader that has not looked yet.
    pub const fn new() -> Self {
        Self([[0; USERS]; MAX_PCPUS])
    }

    /// The shares of a core's time since the last look at this core, or since the machine has started.
    pub fn look(&mut self, core: PcpuId, usage: &Usage, now: Ticks) -> Shares {
        let spent = usage.spent(now);
        let before = core::mem::replace(&mut self.0[core.index() % MAX_PCPUS], spent);
        // A user that got the core after `now` was read may have less than before.
        let passed = core::array::from_fn(|user| spent[user].saturating_sub(before[user]));
        Shares { passed }
    }
}

impl Default for Watch {
    fn default() -> Self {
        Self::new()
    }
}

/// Shares of a core's time.
#[derive(Clone, Copy, Debug)]
pub struct Shares {
    passed: [u64; USERS],
}

impl Shares {
    /// That of a guest in thousandths, rounded down; `None`: that of idling.
    pub fn of(&self, guest: Option<GuestId>) -> u32 {
        let counted = self.passed[..START].iter();
        let all = counted.fold(0, |sum: u64, &it| sum.saturating_add(it));
        let part = self.passed[guest.map_or(IDLE, GuestId::index).min(IDLE)];
        // Wide enough for the sums of years.
        let share = u128::from(part) * 1000 / u128::from(all.max(1));
        share as u32
    }
}

impl Shares {
    /// That of each guest in thousandths, rounded down: of a time that is not years.
    pub fn by_guest(&self) -> [u32; MAX_GUESTS] {
        // At most 9 times: users.
        let all = self.passed[..START].iter();
        let all = all.fold(0, |sum: u64, &it| sum.saturating_add(it));
        let unit = (all / 1000).max(1);
        // At most 8 times: guests.
        core::array::from_fn(|guest| (self.passed[guest] / unit).min(1000) as u32)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use std::vec::Vec;

    const RT: Option<GuestId> = Some(GuestId(0));
    const LINUX: Option<GuestId> = Some(GuestId(7));

    fn shares(watch: &mut Watch, usage: &Usage, now: u64) -> Vec<u32> {
        let shares = watch.look(PcpuId(3), usage, Ticks(now));
        [RT, LINUX, None].map(|it| shares.of(it)).to_vec()
    }

    #[test]
    fn each_user_has_its_share_since_the_last_look() {
        let (usage, mut watch) = (Usage::new(), Watch::new());
        // The counter has run for long before.
        usage.switch(None, Ticks(1_000_000));
        usage.switch(LINUX, Ticks(1_000_100));
        usage.switch(RT, Ticks(1_000_700));
        usage.switch(LINUX, Ticks(1_000_800));
        assert_eq!(shares(&mut watch, &usage, 1_001_000), [100, 800, 100]);
        // The present user goes on, without a switch.
        assert_eq!(shares(&mut watch, &usage, 1_002_000), [0, 1000, 0]);
        usage.switch(None, Ticks(1_002_000));
        assert_eq!(shares(&mut watch, &usage, 1_004_000), [0, 0, 1000]);
    }

    #[test]
    fn each_guest_has_its_share() {
        let (usage, mut watch) = (Usage::new(), Watch::new());
        usage.switch(RT, Ticks(0));
        usage.switch(LINUX, Ticks(1_000));
        usage.switch(None, Ticks(4_000));
        let shares = watch.look(PcpuId(0), &usage, Ticks(10_000));
        assert_eq!(shares.by_guest(), [100, 0, 0, 0, 0, 0, 0, 300]);
        let none = watch.look(PcpuId(0), &usage, Ticks(10_000));
        assert_eq!(none.by_guest(), [0; MAX_GUESTS]);
    }

    #[test]
    fn a_look_at_once_after_another_one_shows_no_time() {
        let (usage, mut watch) = (Usage::new(), Watch::new());
        usage.switch(None, Ticks(10));
        usage.switch(RT, Ticks(55));
        assert_eq!(shares(&mut watch, &usage, 100), [500, 0, 500]);
        assert_eq!(shares(&mut watch, &usage, 100), [0, 0, 0]);
        // The core has gone over to another guest since the time was read.
        usage.switch(LINUX, Ticks(200));
        assert_eq!(shares(&mut watch, &usage, 150)[1], 0);
    }
}
