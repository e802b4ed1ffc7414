// SPDX-License-Identifier: MIT OR Apache-2.0
//! The governor and the wish, with any limits and any load.

use super::*;
use crate::schedule::Ticks;
use proptest::prelude::*;
use spumone_config::types::{GuestId, MAX_PCPUS, PcpuId};
use std::vec::Vec;

/// One tick is a microsecond.
const HZ: u32 = 1_000_000;
const GUEST: GuestId = GuestId(3);

/// A governor and the wish, as the console's core has them.
struct Machine {
    power: Power,
    limits: Limits,
    wish: Wish,
    request: Request,
    governor: Governor,
    now: u64,
    /// When the next window ends; `None`: there are none.
    end: Option<u64>,
    /// When each core came on last, as far as the governor can know.
    on_since: [u64; MAX_PCPUS],
    /// When cores were taken out, and which.
    out: Vec<(u64, CoreSet)>,
    /// The shortest time for which a core was on.
    shortest: u64,
    added: Vec<u64>,
}

impl Machine {
    /// One guest's vCPUs migrate, between all cores.
    fn new(power: Power, cores: usize) -> Self {
        let all = CoreSet::from_bits((1 << cores) - 1);
        Self::with(power, cores, Movers::new(core::iter::once((GUEST, all))))
    }

    fn with(power: Power, cores: usize, movers: Movers) -> Self {
        let limits = Limits::new(Some(&power), CoreSet::from_bits((1 << cores) - 1));
        let wish = Wish::new(&limits);
        let governor = Governor::new(&power, limits, movers, wish.cores(), Ticks(0), HZ);
        Self {
            power,
            limits,
            wish,
            request: Request::new(power.mode),
            governor,
            now: 0,
            end: Some(0),
            on_since: [0; MAX_PCPUS],
            out: Vec::new(),
            shortest: u64::MAX,
            added: Vec::new(),
        }
    }

    /// A window ends, if there are windows: otherwise only time passes.
    fn window(&mut self, loads: &Loads) -> Step {
        match self.end {
            Some(end) => {
                self.now = end;
                self.decide(loads)
            }
            None => {
                self.now += self.governor.window.0;
                Step::Stay
            }
        }
    }

    /// A decision now, as in `Governing::step` of the hypervisor. It takes no more steps than the hypervisor gives it.
    fn decide(&mut self, loads: &Loads) -> Step {
        let mode = self.request.take();
        let seen = self.wish.cores();
        let mut steps = (0..83).map(|_| self.governor.step(Ticks(self.now), seen, mode, loads));
        let step = steps.find_map(|it| it).expect("the decision ends");
        match step {
            Step::Stay => {}
            Step::On(cores) => {
                for core in cores.iter() {
                    assert_eq!(self.wish.add(&self.limits, CoreSet::of(core)), Some(core));
                    self.on_since[core.index()] = self.now;
                }
                self.added.push(self.now);
            }
            Step::Off(cores) => {
                assert!(self.wish.take_out(&self.limits, seen, cores));
                for core in cores.iter() {
                    let since = self.now - self.on_since[core.index()];
                    self.shortest = self.shortest.min(since);
                }
                self.out.push((self.now, cores));
            }
        }
        self.end = match self.governor.next_end(Ticks(self.now)) {
            Ticks::NEVER => None,
            end => Some(end.0),
        };
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
        if let Some(core) = added {
            self.on_since[core.index()] = self.now;
            self.added.push(self.now);
            self.request.ask();
            if self.end.is_none() {
                self.decide(&Loads::NONE);
            }
        }
        self.check();
    }

    fn set_mode(&mut self, mode: PowerMode, loads: &Loads) {
        self.request.set_mode(mode);
        if self.end.is_none() {
            self.decide(loads);
        }
    }

    fn check(&self) {
        let cores = self.wish.cores();
        assert_eq!(self.limits.stay - cores, CoreSet::EMPTY);
        assert_eq!(cores - self.limits.all, CoreSet::EMPTY);
        assert!((self.limits.least..=self.limits.most).contains(&cores.count()));
    }

    /// The loads if `movable` is spread over the cores that are on, beside `fixed` on each core that stays on.
    fn loads(&self, movable: u32, fixed: u32) -> Loads {
        let cores = self.wish.cores();
        let fixed_of = |core| {
            if self.limits.stay.contains(core) {
                fixed
            } else {
                0
            }
        };
        let room: u32 = cores.iter().map(|core| 1000 - fixed_of(core)).sum();
        let mut loads = Loads::NONE;
        for core in cores.iter() {
            let share = u64::from(1000 - fixed_of(core)) * u64::from(movable.min(room));
            loads.add_fixed(core, fixed_of(core));
            loads.add_movable(core, GUEST, (share / u64::from(room.max(1))) as u32);
        }
        loads
    }
}

fn mode() -> impl Strategy<Value = PowerMode> {
    proptest::sample::select(
        &[
            PowerMode::Performance,
            PowerMode::Balanced,
            PowerMode::Saving,
        ][..],
    )
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
        mode in mode(),
    ) -> (Power, usize) {
        let stay = u32::from(stay | 1) & ((1 << cores) - 1);
        let most = most.min(cores as u8).max(stay.count_ones() as u8);
        (Power { mode, least: least.min(most), most, stay, off_us, on_us }, cores)
    }
}

prop_compose! {
    /// Some guests that may use any cores, of which one stays on for each.
    fn movers(cores: usize, stay: u32)(
        sets in proptest::collection::vec(1_u32..1 << cores, 1..=8),
        kept in 0..cores,
    ) -> Vec<u32> {
        let one = |set: u32| match set & stay {
            0 => 1 << (kept as u32 % stay.count_ones().max(1)) & stay | 1,
            _ => 0,
        };
        sets.into_iter().map(|set| set | one(set)).collect()
    }
}

fn load() -> impl Strategy<Value = (u32, u32)> {
    (0_u32..=1000, 0_u32..=1000).prop_map(|(fixed, movable)| (fixed, movable.min(1000 - fixed)))
}

fn loads_of(cores: &[(u32, u32)]) -> Loads {
    let mut loads = Loads::NONE;
    for (core, (fixed, movable)) in (0..).map(PcpuId).zip(cores) {
        loads.add_fixed(core, *fixed);
        loads.add_movable(core, GUEST, *movable);
    }
    loads
}

/// Whether cores with so much room can carry the loads of guests, each on the cores of its mask (Hall's theorem).
fn can_carry(room: &[u32], guests: &[(u32, u32)]) -> bool {
    (0_u32..1 << room.len()).all(|set| {
        let inside = guests.iter().filter(|(mask, _)| mask & !set == 0);
        let load: u32 = inside.map(|it| it.1).sum();
        let within = (0..).zip(room).filter(|(core, _)| set >> core & 1 != 0);
        load <= within.map(|it| it.1).sum()
    })
}

proptest! {
    /// Whatever the load and the mode do: the bounds hold, a core that has to stay is never taken out, and a vCPU that waits brings a core back at
    /// once. A core that comes on is on for a hundred times the cost.
    #[test]
    fn bounds_hold_and_no_core_flaps(
        (power, cores) in described(),
        windows in proptest::collection::vec(
            (proptest::collection::vec(load(), 8), 0_u8..40, proptest::option::weighted(0.05, mode())),
            1..400,
        ),
    ) {
        let mut it = Machine::new(power, cores);
        it.check();
        for (loads, waits, mode) in windows {
            let loads = loads_of(&loads[..cores]);
            if waits == 0 {
                it.wait();
            }
            if let Some(mode) = mode {
                it.set_mode(mode, &loads);
            }
            it.window(&loads);
        }
        let cost = u64::from(it.power.off_us + it.power.on_us);
        prop_assert!(it.shortest >= 100 * cost, "{} of {cost}", it.shortest);
    }

    /// A constant load leads to a number of cores that does not change any more, and these can carry it.
    #[test]
    fn a_constant_load_leads_to_rest(
        (power, cores) in described(),
        movable in 0_u32..8000,
        fixed in 0_u32..1000,
    ) {
        let mut it = Machine::new(power, cores);
        let longest = 3 * it.governor.calm.0 / it.governor.window.0;
        for _ in 0..2 * longest + 4 {
            let loads = it.loads(movable, fixed);
            it.window(&loads);
        }
        let rests = it.wish.cores();
        for _ in 0..2 * longest {
            let loads = it.loads(movable, fixed);
            prop_assert_eq!(it.window(&loads), Step::Stay);
        }
        let fixed_of = |core| if it.limits.stay.contains(core) { fixed } else { 0 };
        let room: u32 = rests.iter().map(|core| 1000 - fixed_of(core)).sum();
        prop_assert!(movable <= room || rests.count() == it.limits.most);
        // A load that only ever fell brings no core back.
        prop_assert!(it.added.is_empty());
        if power.mode == PowerMode::Performance {
            prop_assert_eq!(rests.count(), it.limits.most);
        }
    }

    /// In `performance`, all cores that may be on come on with the next decision, whatever was before.
    #[test]
    fn all_cores_come_on_for_performance(
        (power, cores) in described(),
        windows in proptest::collection::vec(proptest::collection::vec(load(), 8), 1..100),
    ) {
        let mut it = Machine::new(power, cores);
        for loads in windows {
            it.window(&loads_of(&loads[..cores]));
        }
        it.set_mode(PowerMode::Performance, &Loads::NONE);
        it.window(&Loads::NONE);
        prop_assert_eq!(it.wish.cores().count(), it.limits.most);
        prop_assert_eq!(it.end, None);
        // And they follow the load again.
        it.set_mode(PowerMode::Saving, &Loads::NONE);
        let longest = 3 * it.governor.calm.0 / it.governor.window.0;
        for _ in 0..longest + 4 {
            it.window(&Loads::NONE);
        }
        prop_assert_eq!(it.wish.cores().count(), it.limits.least.max(it.limits.stay.count()));
    }

    /// Guests whose `cores` are any: cores go off only if the load of each guest fits on those that it may use. If a load does not fit and a core could
    /// help, one comes on.
    #[test]
    fn a_guests_load_is_carried_by_its_own_cores(
        (power, cores, sets) in described().prop_flat_map(|(power, cores)| {
            (Just(power), Just(cores), movers(cores, power.stay))
        }),
        parts in proptest::collection::vec(
            (proptest::collection::vec(0_u32..1000, 64), proptest::collection::vec(0_u32..1000, 8)),
            1..20,
        ),
    ) {
        let guests = || (0..).map(GuestId).zip(&sets);
        let of_guests = guests().map(|(guest, set)| (guest, CoreSet::from_bits(*set)));
        let mut it = Machine::with(power, cores, Movers::new(of_guests));
        let (fill_off, fill_on) = match power.mode {
            PowerMode::Saving => (80, 95),
            _ => (70, 80),
        };
        for (shares, fixed) in parts {
            let mut loads = Loads::NONE;
            let on = it.wish.cores();
            let mut sums = [0; 8];
            for core in on.iter() {
                let own = fixed[core.index()];
                loads.add_fixed(core, own);
                let here: Vec<_> = guests().filter(|(_, set)| *set >> core.0 & 1 != 0).collect();
                for (guest, _) in &here {
                    let share = shares[core.index() * 8 + guest.index()];
                    let load = share * (1000 - own) / 1000 / here.len() as u32 / 4;
                    loads.add_movable(core, *guest, load);
                    sums[guest.index()] += load;
                }
            }
            let of_guests: Vec<_> = sets.iter().copied().zip(sums).collect();
            let carries = |cores: CoreSet, percent: u32| {
                let room: Vec<_> = (0..8)
                    .map(|core| match cores.contains(PcpuId(core)) {
                        true => (1000 - fixed[usize::from(core)]) * percent / 100,
                        false => 0,
                    })
                    .collect();
                can_carry(&room, &of_guests)
            };
            it.request.ask();
            if it.end.is_none() {
                it.decide(&Loads::NONE);
            }
            // Long enough for the calm.
            for _ in 0..30 {
                if it.wish.cores() != on {
                    break;
                }
                match it.window(&loads) {
                    Step::Off(off) => prop_assert!(carries(on - off, fill_off), "{off:?}"),
                    Step::On(_) => prop_assert!(power.mode == PowerMode::Performance || !carries(on, fill_on) || it.limits.least > on.count() || sets.len() > 1),
                    Step::Stay => {
                        let of_off = |(set, load): &(u32, u32)| (CoreSet::from_bits(*set) - on, *load);
                        let could_help = of_guests.iter().map(of_off).any(|(off, load)| {
                            !(off & it.limits.all).is_empty() && load > 0
                        });
                        let is_stuck = power.mode == PowerMode::Performance
                            || it.end.is_none()
                            || on.count() >= it.limits.most
                            || !could_help;
                        prop_assert!(is_stuck || carries(on, 100));
                    }
                }
            }
        }
    }
}

const FOUR: Power = Power {
    mode: PowerMode::Balanced,
    least: 1,
    most: 4,
    stay: 0b0001,
    off_us: 5,
    on_us: 5,
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
    idle(&mut it, 4);
    assert_eq!(it.wish.cores(), CoreSet::from_bits(0b0001));
    // All at once; then no window wakes the core.
    assert_eq!(it.out, [(2_000, CoreSet::from_bits(0b1110))]);
    assert_eq!(it.end, None);
}

#[test]
fn what_a_core_costs_says_how_soon_it_goes_off() {
    for (us, off_at) in [(0, 2_000), (50, 10_000), (1_000, 200_000)] {
        let costs = Power {
            off_us: us,
            on_us: us,
            ..FOUR
        };
        let mut it = Machine::new(costs, 4);
        idle(&mut it, 20);
        assert_eq!(it.out, [(off_at, CoreSet::from_bits(0b1110))]);
    }
}

#[test]
fn after_a_load_that_rose_and_fell_all_cores_go_off_within_ten_milliseconds() {
    let mut it = Machine::new(FOUR, 4);
    for _ in 0..20 {
        // Cores are missed again and again.
        idle(&mut it, 3);
        it.wait();
        for _ in 0..50 {
            let loads = it.loads(3_600, 100);
            it.window(&loads);
        }
        assert_eq!(it.wish.cores().count(), 4);
        let end = it.now;
        while it.wish.cores().count() > 1 {
            idle(&mut it, 1);
        }
        assert!(it.now <= end + 8_000, "{} after {end}", it.now);
    }
}

#[test]
fn a_core_that_is_missed_soon_goes_off_later_the_next_time() {
    let mut it = Machine::new(FOUR, 4);
    idle(&mut it, 4);
    let mut stayed = Vec::new();
    for _ in 0..4 {
        it.wait();
        let back = it.now;
        while it.wish.cores().count() > 1 {
            idle(&mut it, 1);
        }
        stayed.push(it.now - back);
    }
    assert_eq!(stayed, [4_000, 4_000, 4_000, 4_000]);
    // After a long time without a miss it begins anew.
    it.now += 100_000;
    it.wait();
    let back = it.now;
    idle(&mut it, 1);
    assert_eq!((it.now - back, it.wish.cores().count()), (2_000, 1));
}

#[test]
fn a_load_brings_back_as_many_cores_as_it_needs() {
    let mut it = Machine::new(FOUR, 4);
    idle(&mut it, 4);
    // A vCPU that waits; windows follow.
    it.wait();
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
            let loads = it.loads(2_250, 100);
            it.window(&loads);
        }
        assert_eq!(it.wish.cores().count(), cores);
    }
}

/// In `saving`, a vCPU of the lowest band only asks for a decision.
#[test]
fn a_request_begins_windows_which_look_at_what_comes_then() {
    let saving = Power {
        mode: PowerMode::Saving,
        ..FOUR
    };
    let mut it = Machine::new(saving, 4);
    idle(&mut it, 4);
    it.now += 500_000;
    assert!(it.request.ask() && it.end.is_none());
    // The load of all the time before says nothing.
    let busy = it.loads(900, 100);
    assert_eq!(it.decide(&busy), Step::Stay);
    assert_eq!(it.end, Some(it.now + 2_000));
    assert_eq!(it.window(&busy), Step::On(CoreSet::of(PcpuId(1))));
    let mut idle_again = Machine::new(saving, 4);
    idle(&mut idle_again, 4);
    idle_again.request.ask();
    idle_again.decide(&Loads::NONE);
    idle(&mut idle_again, 1);
    assert_eq!(idle_again.end, None);
}

/// Each of two guests has two cores of its own. What one could carry does not help the other.
#[test]
fn guests_without_a_common_core_have_cores_each() {
    let (left, right) = (GuestId(0), GuestId(1));
    let power = Power {
        mode: PowerMode::Saving,
        stay: 0b0101,
        ..FOUR
    };
    let sets = [(left, 0b0011), (right, 0b1100)];
    let movers = Movers::new(
        sets.map(|(guest, set)| (guest, CoreSet::from_bits(set)))
            .into_iter(),
    );
    let mut it = Machine::with(power, 4, movers);
    let of = |of_left: u32, of_right: u32| {
        let mut loads = Loads::NONE;
        loads.add_movable(PcpuId(0), left, of_left);
        loads.add_movable(PcpuId(2), right, of_right);
        loads
    };
    for _ in 0..3 {
        it.window(&of(100, 100));
    }
    assert_eq!(it.wish.cores(), CoreSet::from_bits(0b0101));
    // The right guest fills its core: the core that helps it comes on, though the left guest's core idles.
    it.request.ask();
    it.decide(&Loads::NONE);
    assert_eq!(it.window(&of(0, 1000)), Step::On(CoreSet::of(PcpuId(3))));
    for _ in 0..9 {
        assert_eq!(it.window(&of(0, 1000)), Step::Stay);
    }
    for _ in 0..9 {
        it.window(&of(700, 700));
    }
    assert_eq!(it.wish.cores(), CoreSet::from_bits(0b0101));
}

#[test]
fn a_decision_that_did_not_know_of_a_core_is_dropped() {
    let limits = Limits::new(Some(&FOUR), CoreSet::from_bits(0b1111));
    let wish = Wish::new(&limits);
    let (two, three) = (CoreSet::of(PcpuId(2)), CoreSet::of(PcpuId(3)));
    assert!(wish.take_out(&limits, limits.all, three));
    let seen = wish.cores();
    assert_eq!(wish.add(&limits, three), Some(PcpuId(3)));
    assert!(!wish.take_out(&limits, seen, two));
    assert!(wish.wants(PcpuId(2)) && wish.wants(PcpuId(3)));
    assert!(!wish.take_out(&limits, limits.all, CoreSet::of(PcpuId(0))));
    assert!(!wish.take_out(&limits, limits.all, limits.all));
    assert!(wish.take_out(&limits, limits.all, two | three));
    assert!(!wish.take_out(&limits, wish.cores(), three));
}

#[test]
fn without_a_description_all_cores_stay() {
    let limits = Limits::new(None, CoreSet::from_bits(0b1111));
    let wish = Wish::new(&limits);
    assert_eq!(wish.cores(), CoreSet::from_bits(0b1111));
    assert_eq!(wish.add(&limits, limits.all), None);
    for core in 0..4 {
        assert!(!wish.take_out(&limits, limits.all, CoreSet::of(PcpuId(core))));
    }
}

#[test]
fn a_request_is_taken_once_and_calls_the_governor_once() {
    let request = Request::new(PowerMode::Balanced);
    assert!(!request.is_asked());
    assert!(request.ask() && !request.ask() && request.is_asked());
    assert_eq!(request.take(), PowerMode::Balanced);
    assert!(!request.is_asked());
    let mut before = PowerMode::Balanced;
    // The same mode changes nothing.
    assert_eq!(request.set_mode(before), (before, false));
    assert!(!request.is_asked());
    for mode in [
        PowerMode::Saving,
        PowerMode::Performance,
        PowerMode::Balanced,
    ] {
        assert_eq!(request.set_mode(mode), (before, true));
        assert_eq!((request.mode(), request.is_asked()), (mode, true));
        assert_eq!(request.set_mode(mode), (mode, false));
        assert!(!request.ask());
        assert_eq!(request.take(), mode);
        before = mode;
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
            it.window(&Loads::NONE);
        }
        let mut loads = Loads::NONE;
        loads.add_fixed(PcpuId(0), 1000);
        it.request.ask();
        it.decide(&loads);
        assert_eq!(it.window(&loads), Step::On(CoreSet::of(PcpuId(1))));
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
