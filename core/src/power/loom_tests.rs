// SPDX-License-Identifier: MIT OR Apache-2.0
//! All interleavings of cores that change the wish.

use super::{Limits, Request, Wish};
use crate::sets::CoreSet;
use loom::sync::Arc;
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
/// and the last mode. One of those that ask calls its core for each request.
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
