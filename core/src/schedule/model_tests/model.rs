// SPDX-License-Identifier: MIT OR Apache-2.0
//! A simple model of the scheduler.

use super::*;
use std::collections::BTreeSet;

/// Each vCPU has a place, the lowest place of the highest band runs, and the time it
/// ran is counted.
#[derive(Default)]
pub(super) struct Model {
    pub(super) vcpus: [Option<ModelVcpu>; VCPUS as usize],
    places: i64,
    pub(super) current: Option<u8>,
    /// The vCPU that the last decision has chosen, and the number of its life.
    pub(super) chosen: Option<(u8, u32)>,
    pub(super) lives: [u32; VCPUS as usize],
    /// vCPUs of this band and below wait.
    pub(super) paused: Option<Band>,
    pub(super) now: u64,
    /// When `current` began to run.
    since: u64,
    /// How long `current` may still run.
    rest: i64,
    /// By how much extensions have added to that.
    lent: i64,
    short_turns: ModelShortTurns,
    /// Whether it runs out of turn.
    is_out_of_turn: bool,
    /// Whether it began to run so, and is not the first of its band.
    came_early: bool,
    /// The vCPUs that are to do so, and their band.
    asked: (BTreeSet<u8>, u8),
    /// Not before this time.
    asked_from: u64,
}

/// The short turns of one band.
#[derive(Default)]
struct ModelShortTurns {
    band: u8,
    /// How many vCPUs are still to have one, of this length.
    left: usize,
    length: i64,
    /// How long a turn must have lasted before it is ended early.
    least: u64,
    /// How long the turn has lasted before it was preempted.
    used: u64,
    is_short: bool,
    is_paused: bool,
}

#[derive(Clone, Copy)]
pub(super) struct ModelVcpu {
    band: Band,
    pub(super) state: VcpuState,
    place: i64,
    /// The rest of its time slice.
    rest: i64,
    /// How many ticks are left to it for running out of turn, which takes [`INTERVAL`], and when this was so.
    credit: (i64, u64),
    /// Whether it has had its next turn already, after it had run out of turn.
    took_turn: bool,
    /// How long it has run in that turn before it was preempted.
    ran: u64,
}

/// What is left to a vCPU that has not run out of turn for long.
const MOST_CREDIT: i64 = (BURST * INTERVAL) as i64;

impl ModelVcpu {
    fn credit_at(&self, now: u64) -> i64 {
        let (left, at) = self.credit;
        (left + (now - at) as i64).min(MOST_CREDIT)
    }
}

impl Model {
    fn vcpu(&mut self, vcpu: u8) -> Option<&mut ModelVcpu> {
        self.vcpus[vcpu as usize].as_mut()
    }

    fn last_place(&mut self) -> i64 {
        self.places += 1;
        self.places
    }

    /// Puts a vCPU behind the others of its band, with a new time slice.
    fn queue(&mut self, vcpu: u8) {
        let place = self.last_place();
        if let Some(v) = self.vcpu(vcpu) {
            (v.state, v.place, v.rest) = (VcpuState::Runnable, place, QUANTUM as i64);
        }
    }

    fn set(&mut self, vcpu: u8, from: Option<VcpuState>, to: VcpuState) {
        if let Some(v) = self.vcpu(vcpu)
            && from.is_none_or(|from| from == v.state)
        {
            v.state = to;
            if to == VcpuState::Runnable {
                self.queue(vcpu);
            }
        }
    }

    fn end_life(&mut self, vcpu: u8) {
        if self.vcpu(vcpu).is_some() {
            self.lives[vcpu as usize] += 1;
            self.asked.0.remove(&vcpu);
            if self.current == Some(vcpu) {
                self.give_up_turn(vcpu);
                self.current = None;
            }
        }
    }

    pub(super) fn apply(&mut self, event: Event) {
        match event {
            Event::Admit(vcpu, state) => {
                if self.vcpu(vcpu).is_none() && state != VcpuState::Running {
                    let place = self.last_place();
                    self.vcpus[vcpu as usize] = Some(ModelVcpu {
                        band: band_of(vcpu),
                        state,
                        place,
                        rest: QUANTUM as i64,
                        credit: (MOST_CREDIT, 0),
                        took_turn: false,
                        ran: 0,
                    });
                }
            }
            Event::Remove(vcpu) => {
                self.end_life(vcpu);
                self.vcpus[vcpu as usize] = None;
            }
            Event::Stop(vcpu) => {
                self.end_life(vcpu);
                self.set(vcpu, None, VcpuState::Off);
            }
            Event::Start(vcpu) => self.set(vcpu, Some(VcpuState::Off), VcpuState::Runnable),
            Event::Wake(vcpu) => self.set(vcpu, Some(VcpuState::Sleep), VcpuState::Runnable),
            Event::Sleep => {
                if let Some(vcpu) = self.current {
                    let is_first = self.is_first(vcpu);
                    self.current = None;
                    self.give_up_turn(vcpu);
                    self.set(vcpu, None, VcpuState::Sleep);
                    let (now, ran) = (self.now, self.now - self.since);
                    let v = self.vcpu(vcpu).unwrap();
                    if core::mem::take(&mut v.took_turn) && !is_first {
                        let in_turn = (v.ran + ran).saturating_sub(OUT_OF_TURN);
                        let times = in_turn.min(QUANTUM) / OUT_OF_TURN;
                        v.credit = (v.credit_at(now) - (times * INTERVAL) as i64, now);
                    }
                }
            }
            Event::Yield => {
                if let Some(current) = self.current {
                    self.give_up_turn(current);
                }
                self.end_of_slice();
            }
            Event::EndEarly => {
                let lasted = self.now - self.since;
                if let Some(current) = self.current
                    && !self.is_out_of_turn
                    && self.lent == 0
                    && self.rest > 0
                {
                    let others = self.runnable(band_of(current));
                    if self.short_turns.band != current / 2 {
                        self.short_turns = ModelShortTurns::default();
                    }
                    self.short_turns.band = current / 2;
                    self.short_turns.left = others;
                    self.short_turns.length = (self.short_turns.used + lasted).min(QUANTUM) as i64;
                    self.short_turns.is_short = true;
                    self.rest = 0;
                }
            }
            Event::Ask(vcpu) => self.ask(vcpu),
            Event::TakeTurn => {
                if let Some(current) = self.current.filter(|_| self.is_out_of_turn) {
                    let v = self.vcpu(current).unwrap();
                    (v.took_turn, v.ran) = (true, 0);
                    let rest = v.rest;
                    (self.rest, self.lent, self.is_out_of_turn) = (rest, 0, false);
                    self.asked.0.clear();
                    self.begin_turn(current);
                }
            }
            Event::EndOutOfTurn => {
                let has_run = (self.now - self.since) as i64;
                if self.is_out_of_turn && self.current.is_some() && self.rest > -has_run {
                    (self.rest, self.lent) = (-has_run, 0);
                }
            }
            Event::Extend(by) => {
                self.asked_from = self.asked_from.max(self.now + by);
                if self.current.is_some() {
                    let more = (by as i64 - self.rest).max(0);
                    self.rest += more;
                    self.lent += more;
                }
            }
            Event::Withdraw => {
                self.rest -= core::mem::take(&mut self.lent);
                self.asked_from = 0;
            }
            Event::Pause(rank) => self.paused = rank.map(band),
            Event::Decide(later) => self.decide(later),
        }
    }

    /// The vCPU is to run out of turn.
    fn ask(&mut self, vcpu: u8) {
        let Some((current, v)) = self.current.zip(self.vcpus[vcpu as usize]) else {
            return;
        };
        let is_first = self.is_first(vcpu);
        let may = v.state == VcpuState::Runnable
            && !(is_first && self.is_out_of_turn)
            && !v.took_turn
            && band_of(current) == v.band
            && (is_first || v.rest > OUT_OF_TURN as i64);
        let is_asked = self.asked.1 == vcpu / 2 && self.asked.0.contains(&vcpu);
        if !may || is_asked {
            return;
        }
        let rest = v.credit_at(self.now) - INTERVAL as i64;
        if rest < 0 {
            return;
        }
        self.vcpu(vcpu).unwrap().credit = (rest, self.now);
        if self.asked.1 != vcpu / 2 {
            self.asked = (BTreeSet::new(), vcpu / 2);
        }
        if self.asked.0.is_empty() {
            self.asked_from = self.now + 1;
        }
        self.asked.0.insert(vcpu);
    }

    /// Whether no vCPU that runs or is runnable is before this one.
    fn is_first(&self, vcpu: u8) -> bool {
        let others = self.vcpus.iter().flatten();
        let is_queued =
            |v: &&ModelVcpu| matches!(v.state, VcpuState::Runnable | VcpuState::Running);
        self.vcpus[vcpu as usize].is_some_and(|v| {
            others
                .filter(is_queued)
                .all(|it| (it.band, -it.place) <= (v.band, -v.place))
        })
    }

    /// From when on the current vCPU gives up the core to one that is to run out of turn.
    fn cut_from(&self) -> Option<u64> {
        let is_asked = !self.asked.0.is_empty() && self.asked.1 == self.current? / 2;
        (is_asked && !self.is_out_of_turn).then_some(self.asked_from)
    }

    /// The current vCPU goes behind the others of its band, with a new time slice; if it has run out of turn, it keeps both.
    fn end_of_slice(&mut self) {
        let Some(current) = self.current.take() else {
            return;
        };
        let is_out_of_turn = self.is_out_of_turn;
        let v = self.vcpu(current).unwrap();
        match (is_out_of_turn, v.took_turn) {
            (true, _) => v.state = VcpuState::Runnable,
            (false, true) => (v.state, v.rest) = (VcpuState::Runnable, QUANTUM as i64),
            (false, false) => self.queue(current),
        }
    }

    fn decide(&mut self, later: u64) {
        self.now += later;
        self.rest -= later as i64;
        if let Some(current) = self.current {
            let band = band_of(current);
            let others = || {
                self.vcpus
                    .iter()
                    .flatten()
                    .filter(|other| other.state == VcpuState::Runnable)
            };
            let must_wait = Some(band) <= self.paused || others().any(|it| it.band > band);
            let same_band = others().any(|other| other.band == band);
            let is_cut = self.cut_from().is_some_and(|from| from <= self.now);
            let leaves = must_wait || is_cut || same_band && self.rest <= 0;
            // It does not keep what its time slice was extended by.
            let rest = self.rest - self.lent;
            if leaves && (rest <= 0 || self.is_out_of_turn) {
                let short = &mut self.short_turns;
                if !self.is_out_of_turn && short.band == current / 2 {
                    let lasted = (short.used + self.now - self.since).min(QUANTUM);
                    short.least = if short.is_short {
                        (2 * lasted).min(QUANTUM)
                    } else {
                        0
                    };
                    if short.is_short {
                        short.length = short.length.max(lasted as i64);
                    }
                    short.is_short = false;
                }
                self.end_of_slice();
            } else if leaves {
                if self.short_turns.band == current / 2 {
                    let used = self.short_turns.used + self.now - self.since;
                    self.short_turns.used = used.min(QUANTUM);
                    self.short_turns.is_paused = true;
                }
                self.current = None;
                let first = self.vcpus.iter().flatten().map(|v| v.place).min();
                let came_early = self.came_early;
                let ran = self.now - self.since;
                let v = self.vcpu(current).unwrap();
                (v.state, v.rest) = (VcpuState::Runnable, rest);
                v.ran += ran;
                if !came_early {
                    v.place = first.unwrap_or(0) - 1;
                }
            }
        }
        if self.current.is_none() {
            self.dispatch();
        }
    }

    /// The first runnable vCPU of the highest band.
    fn first(&self) -> Option<u8> {
        (0..VCPUS)
            .filter_map(|vcpu| Some((vcpu, self.vcpus[vcpu as usize]?)))
            .filter(|(_, v)| v.state == VcpuState::Runnable && Some(v.band) > self.paused)
            .max_by_key(|(_, v)| (v.band, -v.place))
            .map(|(vcpu, _)| vcpu)
    }

    fn dispatch(&mut self) {
        let Some(mut next) = self.first() else {
            return;
        };
        while core::mem::take(&mut self.vcpu(next).unwrap().took_turn)
            && self.vcpu(next).unwrap().rest == QUANTUM as i64
        {
            self.queue(next);
            next = self.first().unwrap();
        }
        self.asked.0.remove(&next);
        (self.since, self.lent) = (self.now, 0);
        self.is_out_of_turn = false;
        if self.asked.1 == next / 2
            && self.asked_from <= self.now
            && let Some(&asked) = self.asked.0.first()
        {
            self.is_out_of_turn = true;
            self.asked.0.remove(&asked);
            self.asked_from = 0;
            next = asked;
        }
        let is_out_of_turn = self.is_out_of_turn;
        self.came_early = is_out_of_turn;
        let v = self.vcpu(next).unwrap();
        v.state = VcpuState::Running;
        let rest = v.rest;
        if is_out_of_turn {
            v.rest -= OUT_OF_TURN as i64;
            self.rest = OUT_OF_TURN as i64;
        } else {
            self.rest = rest;
            self.begin_turn(next);
        }
        self.current = Some(next);
    }

    /// A vCPU begins a turn, or goes on with one.
    fn begin_turn(&mut self, vcpu: u8) {
        let waiting = self.runnable(band_of(vcpu));
        let short = &mut self.short_turns;
        if short.band != vcpu / 2 {
            return;
        }
        if waiting == 0 {
            short.left = 0;
        }
        if core::mem::take(&mut short.is_paused) {
            return;
        }
        (short.used, short.is_short) = (0, short.left > 0);
        if short.is_short {
            short.left -= 1;
            let left = short.length - (QUANTUM as i64 - self.rest);
            self.rest = self.rest.min(left.max(1));
        }
    }

    /// A vCPU that runs has given up the rest of its turn.
    fn give_up_turn(&mut self, vcpu: u8) {
        if self.short_turns.band == vcpu / 2 {
            (self.short_turns.is_short, self.short_turns.is_paused) = (false, false);
        }
    }

    /// How many vCPUs of a band wait.
    fn runnable(&self, band: Band) -> usize {
        let vcpus = self.vcpus.iter().flatten();
        let waits = |v: &&ModelVcpu| v.state == VcpuState::Runnable && v.band == band;
        vcpus.filter(waits).count()
    }

    /// The highest band that runs or is runnable.
    pub(super) fn highest_band(&self) -> Option<Band> {
        let may_run = |v: &&ModelVcpu| matches!(v.state, VcpuState::Runnable | VcpuState::Running);
        let vcpus = self.vcpus.iter().flatten();
        vcpus.filter(may_run).map(|v| v.band).max()
    }

    pub(super) fn time_slice(&self) -> Option<TimeSlice> {
        let v = self.vcpus[self.current? as usize]?;
        Some(TimeSlice {
            band: v.band,
            since: Ticks(self.since),
            end: Ticks(match self.cut_from() {
                Some(from) => from.min(self.now.saturating_add_signed(self.rest)),
                None => self.now.saturating_add_signed(self.rest),
            }),
            same_band_waits: self
                .vcpus
                .iter()
                .flatten()
                .any(|other| other.state == VcpuState::Runnable && other.band == v.band),
        })
    }
}
