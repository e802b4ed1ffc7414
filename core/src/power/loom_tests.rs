// SPDX-License-Identifier: MIT OR Apache-2.0
//! All interleavings of cores that change the wish.

use super::{Limits, Wish};
use crate::sets::CoreSet;
use loom::sync::Arc;
use loom::thread;
use spumone_config::PcpuId;

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
        assert!(wish.take_out(&limits, CoreSet::from_bits(0b0111), PcpuId(2)));
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
        let is_out = wish.take_out(&limits, seen, PcpuId(1));
        check(&wish);
        let added = others.map(|other| other.join().unwrap());
        let count = added.iter().flatten().count() as u32;
        let out = u32::from(is_out);
        assert_eq!(wish.cores().count(), 2 + count - out);
        assert!(!is_out || seen.count() > limits.least);
        assert!(added[0] != added[1] || added[0].is_none() || is_out);
    });
}
