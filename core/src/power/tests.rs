// SPDX-License-Identifier: MIT OR Apache-2.0
//! The governor and the wish, with any limits and any load.

use super::*;
use crate::schedule::Ticks;
use proptest::prelude::*;
use spumone_config::types::{MAX_PCPUS, PcpuId};
use std::vec::Vec;

/// One tick is a microsecond.
const HZ: u32 = 1_000_000;
const WINDOW: u64 = 40_000;

/// A governor and the wish, as the console's core has them.
struct Machine {
    power: Power,
    limits: Limits,
    wish: Wish,
    governor: Governor,
    now: u64,
    /// When cores were taken out, and when one was added.
    out: Vec<u64>,
    added: Vec<u64>,
}

impl Machine {
    fn new(power: Power, cores: usize) -> Self {
        let limits = Limits::new(Some(&power), CoreSet::from_bits((1 << cores) - 1));
        let wish = Wish::new(&limits);
        let governor = Governor::new(&power, limits, wish.cores(), Ticks(0), HZ);
        Self {
            power,
            limits,
            wish,
            governor,
            now: 0,
            out: Vec::new(),
            added: Vec::new(),
        }
    }

    /// As `Instance::govern`.
    fn window(&mut self, loads: &[Load; MAX_PCPUS]) -> Step {
        self.now += WINDOW;
        let seen = self.wish.cores();
        let step = self.governor.window_end(Ticks(self.now), seen, loads);
        match step {
            Step::Stay => {}
            Step::On(core) => {
                assert_eq!(self.wish.add(&self.limits, CoreSet::of(core)), Some(core));
                self.added.push(self.now);
            }
            Step::Off(core) => {
                assert!(self.wish.take_out(&self.limits, seen, core));
                self.out.push(self.now);
            }
        }
        self.check();
        step
    }

    /// A vCPU waits.
    fn wait(&mut self) {
        let before = self.wish.cores();
        let added = self.wish.add(&self.limits, self.limits.all);
        assert_eq!(added.is_some(), before.count() < self.limits.most);
        assert_eq!(
            self.wish.cores().count(),
            before.count() + u32::from(added.is_some())
        );
        if added.is_some() {
            self.added.push(self.now);
        }
        self.check();
    }

    fn check(&self) {
        let cores = self.wish.cores();
        assert_eq!(self.limits.stay - cores, CoreSet::EMPTY);
        assert_eq!(cores - self.limits.all, CoreSet::EMPTY);
        assert!((self.limits.least..=self.limits.most).contains(&cores.count()));
    }

    /// The load of each core if `movable` is spread over the cores that are on, beside `fixed` on each core that stays on.
    fn loads(&self, movable: u32, fixed: u32) -> [Load; MAX_PCPUS] {
        let cores = self.wish.cores();
        let fixed_of = |core| {
            if self.limits.stay.contains(core) {
                fixed
            } else {
                0
            }
        };
        let room: u32 = cores.iter().map(|core| 1000 - fixed_of(core)).sum();
        core::array::from_fn(|core| {
            let core = PcpuId(core as u8);
            let share = u64::from(1000 - fixed_of(core)) * u64::from(movable.min(room));
            match cores.contains(core) {
                true => Load {
                    fixed: fixed_of(core),
                    movable: (share / u64::from(room.max(1))) as u32,
                },
                false => Load::default(),
            }
        })
    }
}

prop_compose! {
    /// A description of power, and a number of cores. Its limits can be met.
    fn described()(
        cores in 1_usize..=8,
        stay: u8,
        least in 1_u8..=8,
        most in 1_u8..=8,
        off_us in 0_u32..20_000,
        on_us in 0_u32..20_000,
        saves: bool,
    ) -> (Power, usize) {
        let stay = u32::from(stay | 1) & ((1 << cores) - 1);
        let most = most.min(cores as u8).max(stay.count_ones() as u8);
        let mode = if saves { PowerMode::Saving } else { PowerMode::Balanced };
        (Power { mode, least: least.min(most), most, stay, off_us, on_us }, cores)
    }
}

fn load() -> impl Strategy<Value = Load> {
    (0_u32..=1000, 0_u32..=1000).prop_map(|(fixed, movable)| Load {
        fixed,
        movable: movable.min(1000 - fixed),
    })
}

proptest! {
    /// Whatever the load does: the bounds hold, a core that has to stay is never taken out, and a vCPU that waits brings a core back at once. From one
    /// core that is taken out to the next, and from a core that comes on to that, a hundred times the cost passes.
    #[test]
    fn bounds_hold_and_no_core_flaps(
        (power, cores) in described(),
        windows in proptest::collection::vec((proptest::array::uniform8(load()), 0_u8..40), 1..400),
    ) {
        let mut it = Machine::new(power, cores);
        it.check();
        for (loads, waits) in windows {
            if waits == 0 {
                it.wait();
            }
            it.window(&loads);
        }
        let cost = u64::from(it.power.off_us + it.power.on_us);
        for &out in &it.out {
            let changes = it.out.iter().chain(&it.added);
            let before = changes.filter(|&&at| at < out).max();
            let passed = out - before.copied().unwrap_or(0);
            // A vCPU has waited since the window before.
            prop_assert!(passed + WINDOW >= 100 * cost, "{passed} of {cost}");
        }
    }

    /// A constant load leads to a number of cores that does not change any more, and these can carry it.
    #[test]
    fn a_constant_load_leads_to_rest(
        (power, cores) in described(),
        movable in 0_u32..8000,
        fixed in 0_u32..1000,
    ) {
        let mut it = Machine::new(power, cores);
        // The longest calm, for each core.
        let longest = 8 * (100 * u64::from(power.off_us + power.on_us)).max(100_000);
        for _ in 0..8 * longest / WINDOW + 8 {
            let loads = it.loads(movable, fixed);
            it.window(&loads);
        }
        let rests = it.wish.cores();
        for _ in 0..2 * longest / WINDOW {
            let loads = it.loads(movable, fixed);
            prop_assert_eq!(it.window(&loads), Step::Stay);
        }
        let loads = it.loads(movable, fixed);
        let room: u32 = rests.iter().map(|core| 1000 - loads[core.index()].fixed).sum();
        prop_assert!(movable <= room || rests.count() == it.limits.most);
        // A load that only ever fell brings no core back.
        prop_assert!(it.added.is_empty());
    }
}

const FOUR: Power = Power {
    mode: PowerMode::Balanced,
    least: 1,
    most: 4,
    stay: 0b0001,
    off_us: 500,
    on_us: 500,
};

fn idle(it: &mut Machine, windows: usize) {
    for _ in 0..windows {
        let loads = it.loads(100, 100);
        it.window(&loads);
    }
}

#[test]
fn an_idle_system_keeps_the_core_that_has_to_stay() {
    let mut it = Machine::new(FOUR, 4);
    idle(&mut it, 15);
    assert_eq!(it.wish.cores(), CoreSet::from_bits(0b0001));
    // One at a time, the last first.
    assert_eq!(it.out, [120_000, 240_000, 360_000]);
}

#[test]
fn a_core_that_is_missed_soon_goes_off_later_the_next_time() {
    let mut it = Machine::new(FOUR, 4);
    idle(&mut it, 15);
    let mut longest = 0;
    for _ in 0..8 {
        it.wait();
        let (back, count) = (it.now, it.out.len());
        while it.out.len() == count {
            idle(&mut it, 1);
        }
        let stayed = it.now - back;
        assert!(stayed >= longest, "{stayed} after {longest}");
        longest = stayed;
    }
    // The window in which it came back counts, too.
    assert_eq!(longest, 8 * 100_000 + WINDOW);
    // After a long time without a miss it begins anew.
    idle(&mut it, 2_000);
    it.wait();
    idle(&mut it, 6);
    assert_eq!(it.wish.cores(), CoreSet::from_bits(0b0001));
}

#[test]
fn a_load_brings_back_as_many_cores_as_it_needs() {
    let mut it = Machine::new(FOUR, 4);
    idle(&mut it, 15);
    for _ in 0..5 {
        let loads = it.loads(2_100, 100);
        it.window(&loads);
    }
    assert_eq!(it.wish.cores().count(), 3);
    // Saving fills cores more.
    let saving = Power {
        mode: PowerMode::Saving,
        ..FOUR
    };
    for (power, cores) in [(FOUR, 4), (saving, 3)] {
        let mut it = Machine::new(power, 4);
        for _ in 0..40 {
            let loads = it.loads(1_900, 100);
            it.window(&loads);
        }
        assert_eq!(it.wish.cores().count(), cores);
    }
}

#[test]
fn a_decision_that_did_not_know_of_a_core_is_dropped() {
    let limits = Limits::new(Some(&FOUR), CoreSet::from_bits(0b1111));
    let wish = Wish::new(&limits);
    assert!(wish.take_out(&limits, limits.all, PcpuId(3)));
    let seen = wish.cores();
    assert_eq!(wish.add(&limits, CoreSet::of(PcpuId(3))), Some(PcpuId(3)));
    assert!(!wish.take_out(&limits, seen, PcpuId(2)));
    assert!(wish.wants(PcpuId(2)) && wish.wants(PcpuId(3)));
    assert!(!wish.take_out(&limits, limits.all, PcpuId(0)));
}

#[test]
fn without_a_description_all_cores_stay() {
    let limits = Limits::new(None, CoreSet::from_bits(0b1111));
    let wish = Wish::new(&limits);
    assert_eq!(wish.cores(), CoreSet::from_bits(0b1111));
    assert_eq!(wish.add(&limits, limits.all), None);
    for core in 0..4 {
        assert!(!wish.take_out(&limits, limits.all, PcpuId(core)));
    }
}

#[test]
fn to_save_only_vcpus_above_the_lowest_bring_a_core_back() {
    let lowest = Level::of(Some(Band::LOWEST));
    let brings = |mode, band| brings_back(mode, Some(band), lowest);
    assert!(brings(PowerMode::Balanced, Band::LOWEST));
    assert!(!brings(PowerMode::Saving, Band::LOWEST));
    assert!(brings(PowerMode::Saving, Band::HIGHEST));
}

/// vCPUs that wait there have no load, and bring no core back in this mode.
#[test]
fn vcpus_that_stay_and_need_all_cores_that_are_on_bring_one_back() {
    for mode in [PowerMode::Balanced, PowerMode::Saving] {
        let mut it = Machine::new(Power { mode, ..FOUR }, 4);
        while it.wish.cores().count() > 1 {
            it.window(&[Load::default(); MAX_PCPUS]);
        }
        let mut loads = [Load::default(); MAX_PCPUS];
        loads[0].fixed = 1000;
        assert_eq!(it.window(&loads), Step::On(PcpuId(1)));
        assert_eq!(it.wish.cores().count(), 2);
    }
}

#[test]
fn a_core_on_which_no_vcpu_may_run_is_not_wanted() {
    let limits = Limits::new(
        Some(&Power { stay: 0b10, ..FOUR }),
        CoreSet::from_bits(0b0110),
    );
    let wish = Wish::new(&limits);
    assert_eq!(wish.cores(), CoreSet::from_bits(0b0110));
    assert_eq!(wish.add(&limits, CoreSet::from_bits(0b1111)), None);
}
