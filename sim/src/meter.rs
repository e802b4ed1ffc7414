// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is measured of the cores of a system that go off and come on: how many are on and how many work, and how soon that follows the load.
//!
//! A core works while it executes a vCPU. It is off while the firmware has turned it off: not while a core that is not wanted still has a vCPU.

use crate::outcome::{PowerOutcome, Times};
use crate::setup::{Setup, Span, Workload};
use spumone_core::schedule::Ticks;

/// The measurement, from the load's begin to its end.
#[derive(Clone, Debug)]
pub struct Meter {
    span: Span,
    /// Up to when a guest without a load is measured; [`Ticks::NEVER`]: the guest has a load, and is measured until that ends.
    limit: Ticks,
    /// All cores; bit n for core n.
    all: u32,
    works: u32,
    off: u32,
    /// Up to when it has measured.
    at: Ticks,
    so_far: PowerOutcome,
    /// The same when the load ended last; `None`: it has not ended yet.
    at_end: Option<PowerOutcome>,
    /// How often the load has begun, and when it does so next; [`Ticks::NEVER`]: it does not, or not on all vCPUs at once.
    begun: u64,
    begins: Ticks,
    /// From one begin to the next.
    period: Option<Ticks>,
    /// When the load has begun, as long as not all cores work for it.
    began: Option<Ticks>,
    /// When the load has ended, as long as more than one core is on.
    ended: Option<Ticks>,
    until_all_work: Times,
    until_one_is_on: Times,
}

impl Meter {
    /// That of one system of a setup.
    pub fn new(setup: &Setup) -> Self {
        let from = setup.span.from;
        let (begins, period) = match setup.workload {
            Workload::Messages => (from, None),
            Workload::Duty(duty) if duty.apart == Ticks(0) && duty.busy != Ticks(0) => {
                (from, Some(duty.period))
            }
            Workload::Duty(_) | Workload::Churn | Workload::Naps => (Ticks::NEVER, None),
        };
        let limit = match setup.workload {
            Workload::Duty(duty) if duty.busy == Ticks(0) => setup.span.to,
            _ => Ticks::NEVER,
        };
        Self {
            span: setup.span,
            limit,
            all: ((1_u64 << setup.guest_cores) - 1) as u32,
            works: 0,
            off: 0,
            at: Ticks(0),
            so_far: PowerOutcome::default(),
            at_end: None,
            begun: 0,
            begins,
            period,
            began: None,
            ended: None,
            until_all_work: Times::default(),
            until_one_is_on: Times::default(),
        }
    }

    /// From now on a core executes a vCPU, or none.
    #[inline]
    pub fn works(&mut self, now: Ticks, core: u8, works: bool) {
        let bit = 1 << core;
        if (self.works & bit != 0) != works {
            self.pass(now);
            self.works ^= bit;
            self.look(now);
        }
    }

    /// A core is turned off, or on again.
    pub fn turns(&mut self, now: Ticks, core: u8, off: bool) {
        self.pass(now);
        self.off ^= 1 << core;
        let counter = match off {
            true => &mut self.so_far.went_off,
            false => &mut self.so_far.came_on,
        };
        *counter += u64::from((self.span.from..self.limit).contains(&now));
        self.look(now);
    }

    /// The load has ended with this piece of work, by its number from 0.
    pub fn ends(&mut self, now: Ticks, piece: u64) {
        self.pass(now);
        self.at_end = Some(self.so_far);
        if self.began.is_some_and(|_| self.begun == piece + 1) {
            self.began = None;
            self.until_all_work.miss();
        }
        if self.begun > piece + 1 {
            // It has begun again already.
            self.until_one_is_on.miss();
        } else {
            self.ended = Some(now);
            self.look(now);
        }
    }

    /// The results at the end of the simulation.
    pub fn outcome(&self, now: Ticks) -> PowerOutcome {
        let mut last = self.clone();
        last.pass(now);
        if last.began.is_some() {
            last.until_all_work.miss();
        }
        if last.ended.is_some() {
            last.until_one_is_on.miss();
        }
        PowerOutcome {
            until_all_work: last.until_all_work,
            until_one_is_on: last.until_one_is_on,
            ..last.at_end.unwrap_or(last.so_far)
        }
    }

    /// Nothing has changed up to now, except that the load may have begun.
    fn pass(&mut self, now: Ticks) {
        while self.begins <= now {
            let begin = self.begins;
            self.add_up(begin);
            self.begun += 1;
            self.begins = match self.period {
                Some(period) if begin.0 + 2 * period.0 <= self.span.to.0 => {
                    Ticks(begin.0 + period.0)
                }
                _ => Ticks::NEVER,
            };
            if self.ended.take().is_some() {
                self.until_one_is_on.miss();
            }
            if self.began.replace(begin).is_some() {
                self.until_all_work.miss();
            }
            self.look(begin);
        }
        self.add_up(now);
    }

    fn add_up(&mut self, now: Ticks) {
        let from = self.at.max(self.span.from);
        let passed = now.min(self.limit).saturating_sub(from).0;
        self.at = now.max(self.at);
        let on = (self.all & !self.off).count_ones();
        let works = self.works.count_ones();
        let sums = &mut self.so_far;
        sums.time += passed;
        sums.on += passed * u64::from(on);
        sums.works += passed * u64::from(works);
        sums.least += passed * u64::from(works.max(1));
    }

    fn look(&mut self, now: Ticks) {
        if self.works == self.all
            && let Some(began) = self.began.take()
        {
            self.until_all_work.add(now.saturating_sub(began));
        }
        if (self.all & !self.off).count_ones() == 1
            && let Some(ended) = self.ended.take()
        {
            self.until_one_is_on.add(now.saturating_sub(ended));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup::{Decisions, Duty};

    /// Two cores, and bursts of 10 ticks in each 100, from tick 100 on.
    fn meter() -> Meter {
        Meter::new(&Setup {
            workload: Workload::Duty(Duty {
                period: Ticks(100),
                busy: Ticks(10),
                apart: Ticks(0),
            }),
            span: Span {
                from: Ticks(100),
                to: Ticks(300),
            },
            ..Setup::new(2, Decisions::Chance, 0, 1)
        })
    }

    fn times(count: u64, missed: u64, sum: u64, longest: u64) -> Times {
        Times {
            count,
            missed,
            sum: Ticks(sum),
            longest: Ticks(longest),
        }
    }

    #[test]
    fn cores_are_counted_from_the_loads_begin_to_its_end() {
        let mut meter = meter();
        meter.turns(Ticks(50), 1, true);
        meter.works(Ticks(90), 0, true);
        meter.turns(Ticks(104), 1, false);
        meter.works(Ticks(106), 1, true);
        meter.works(Ticks(110), 0, false);
        meter.works(Ticks(112), 1, false);
        meter.ends(Ticks(112), 0);
        meter.turns(Ticks(130), 1, true);
        meter.works(Ticks(200), 0, true);
        meter.works(Ticks(220), 0, false);
        meter.ends(Ticks(220), 1);
        meter.turns(Ticks(230), 1, false);
        let outcome = meter.outcome(Ticks(400));
        let expected = PowerOutcome {
            time: 120,
            on: 4 + 2 * 26 + 90,
            works: 10 + 6 + 20,
            least: 120 + 4,
            came_on: 1,
            went_off: 1,
            until_all_work: times(1, 1, 6, 6),
            until_one_is_on: times(2, 0, 18, 18),
        };
        assert_eq!(outcome, expected);
    }

    #[test]
    fn a_load_that_begins_again_too_soon_is_missed() {
        let mut meter = meter();
        meter.works(Ticks(100), 0, true);
        meter.works(Ticks(101), 1, true);
        // The first burst is late, so there is no time between the two.
        meter.ends(Ticks(205), 0);
        meter.ends(Ticks(215), 1);
        let outcome = meter.outcome(Ticks(400));
        assert_eq!(outcome.until_all_work, times(2, 0, 1, 1));
        assert_eq!(outcome.until_one_is_on, times(0, 2, 0, 0));
    }

    #[test]
    fn a_guest_that_idles_is_measured_for_the_span() {
        let idle = Duty {
            period: Ticks(100),
            busy: Ticks(0),
            apart: Ticks(0),
        };
        let setup = Setup {
            workload: Workload::Duty(idle),
            span: Span {
                from: Ticks(100),
                to: Ticks(300),
            },
            ..Setup::new(4, Decisions::Chance, 0, 1)
        };
        let outcome = Meter::new(&setup).outcome(Ticks(1000));
        assert_eq!((outcome.time, outcome.on, outcome.least), (200, 800, 200));
        assert_eq!(outcome.until_all_work, Times::default());
        assert_eq!(outcome.until_one_is_on, Times::default());
    }
}
