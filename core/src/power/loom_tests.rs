// SPDX-License-Identifier: MIT OR Apache-2.0
//! All interleavings of cores that change the wish, and of a core that turns itself off.

use super::{Limits, Request, Supply, Wish};
use crate::sets::CoreSet;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering, fence};
use loom::thread;
use spumone_config::PcpuId;
use spumone_config::packed::PowerMode;

/// Two cores on which a vCPU waits, and the governor: the bounds hold in each state that a core can read, and no core that was added is taken out by a
/// decision that did not know of it.
#[test]
fn the_bounds_hold_whoever_changes_the_wish() {
    loom::model(|| {
        let limits = Limits {
            all: CoreSet::from_bits(0b1111),
            stay: CoreSet::from_bits(0b0001),
            least: 2,
            most: 3,
        };
        let wish = Arc::new(Wish::new(&limits));
        // Cores 0 and 1 are on.
        assert!(wish.take_out(&limits, CoreSet::from_bits(0b0111), CoreSet::of(PcpuId(2))));
        let check = move |wish: &Wish| {
            let cores = wish.cores();
            assert!((limits.least..=limits.most).contains(&cores.count()));
            assert_eq!(limits.stay - cores, CoreSet::EMPTY);
        };
        let others = [(); 2].map(|()| {
            let wish = Arc::clone(&wish);
            thread::spawn(move || {
                let added = wish.add(&limits, limits.all);
                check(&wish);
                added
            })
        });
        let seen = wish.cores();
        let is_out = wish.take_out(&limits, seen, CoreSet::of(PcpuId(1)));
        check(&wish);
        let added = others.map(|other| other.join().unwrap());
        let count = added.iter().flatten().count() as u32;
        let out = u32::from(is_out);
        assert_eq!(wish.cores().count(), 2 + count - out);
        assert!(!is_out || seen.count() > limits.least);
        assert!(added[0] != added[1] || added[0].is_none() || is_out);
    });
}

/// A core adds one to the wish and asks, another sets the mode, and the governor takes requests meanwhile: if none is left, it has seen the last wish
/// and the last mode. For each request, exactly one of the cores that ask calls the governor's core.
#[test]
fn no_request_is_lost() {
    loom::model(|| {
        let limits = Limits {
            all: CoreSet::from_bits(0b1111),
            stay: CoreSet::from_bits(0b0001),
            least: 1,
            most: 4,
        };
        let wish = Arc::new(Wish::new(&limits));
        let request = Arc::new(Request::new(PowerMode::Balanced));
        assert!(wish.take_out(&limits, limits.all, CoreSet::from_bits(0b1110)));
        let adds = {
            let (wish, request) = (Arc::clone(&wish), Arc::clone(&request));
            thread::spawn(move || {
                wish.add(&limits, limits.all);
                request.ask()
            })
        };
        let sets = {
            let request = Arc::clone(&request);
            thread::spawn(move || request.set_mode(PowerMode::Saving).1)
        };
        let mut decisions = 0;
        let mut seen = (PowerMode::Balanced, CoreSet::EMPTY);
        let mut decide = || {
            if request.is_asked() {
                seen = (request.take(), wish.cores());
                decisions += 1;
            }
        };
        decide();
        let called = [adds.join().unwrap(), sets.join().unwrap()];
        decide();
        assert_eq!(seen, (PowerMode::Saving, CoreSet::from_bits(0b0011)));
        let called = called.iter().filter(|it| **it).count();
        assert_eq!(called, decisions);
    });
}

/// What the firmware and two other cores see of a core that turns itself off.
struct Switched {
    supply: Supply,
    /// A kick.
    kicked: AtomicBool,
    /// Whether the firmware has the core on.
    has_power: AtomicBool,
}

const OFF: PcpuId = PcpuId(1);

impl Switched {
    /// The core turns itself off unless there is something to do. Returns whether it has handled a kick.
    fn turns_off(&self) -> bool {
        self.supply.begin_off(OFF);
        if self.kicked.swap(false, Ordering::Acquire) {
            self.supply.come_on(OFF);
            return true;
        }
        self.has_power.store(false, Ordering::Release);
        false
    }

    /// The core's first look after `CPU_ON`. Returns the same.
    fn comes_on(&self) -> bool {
        self.supply.come_on(OFF);
        self.kicked.swap(false, Ordering::Acquire)
    }

    /// What another core does that has something for it.
    fn kick(&self) {
        self.kicked.swap(true, Ordering::Release);
        // Before the SGI (`Gic::send_sgi`).
        fence(Ordering::SeqCst);
        if self.supply.is_any_off() && self.supply.is_off(OFF) && !self.turn_on() {
            self.supply.order_start(OFF);
        }
    }

    /// `CPU_ON`. Returns whether the core was off.
    fn turn_on(&self) -> bool {
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        self.has_power
            .compare_exchange(false, true, success, failure)
            .is_ok()
    }

    /// A step of the console's core. Returns whether it has turned the core on.
    fn starts(&self) -> bool {
        if !self.supply.take_starts().contains(OFF) {
            return false;
        }
        let was_off = self.turn_on();
        if !was_off {
            self.supply.order_start(OFF);
        }
        was_off
    }
}

/// A core turns itself off while another one kicks it, and the console's core looks once meanwhile: at the end the kick has been handled, or the core
/// is on again, or the console's core still has the order to turn it on, which it then can.
#[test]
fn a_kick_finds_a_core_that_turns_itself_off() {
    loom::model(|| {
        let core = Arc::new(Switched {
            supply: Supply::new(),
            kicked: AtomicBool::new(false),
            has_power: AtomicBool::new(true),
        });
        let kicker = {
            let core = Arc::clone(&core);
            thread::spawn(move || core.kick())
        };
        let console = {
            let core = Arc::clone(&core);
            thread::spawn(move || core.starts())
        };
        let has_handled = core.turns_off();
        kicker.join().unwrap();
        console.join().unwrap();
        if has_handled {
            assert!(core.has_power.load(Ordering::Acquire));
            return;
        }
        // The console's core comes back until there is no order left, at most once: the core has gone off since.
        if !core.has_power.load(Ordering::Acquire) {
            assert!(core.supply.has_starts() && core.starts());
        }
        assert!(core.comes_on());
        assert!(!core.supply.is_any_off() && core.supply.take_starts().is_empty());
    });
}
