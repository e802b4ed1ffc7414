// SPDX-License-Identifier: MIT OR Apache-2.0
//! All interleavings of two cores that check the leaves of a guest.

use super::{Pace, Rounds};
use crate::schedule::Ticks;
use crate::sync::atomic::{AtomicU32, Ordering};
use loom::sync::Arc;
use loom::thread;
use spumone_config::PcpuId;

const LEAVES: usize = 2;

struct Machine {
    rounds: Rounds,
    /// How often each leaf was checked; the highest bit: a core checks it now.
    checked: [AtomicU32; LEAVES],
}

const NOW: u32 = 1 << 31;

impl Machine {
    /// What a core does that idles at each of these times.
    fn idle(&self, core: u8, times: &[u64]) {
        let pace = Pace::new(LEAVES as u32, 1000, 1_000_000);
        for &time in times {
            while let Some(leaf) = self.rounds.claim(PcpuId(core), Ticks(time), &pace) {
                let checked = &self.checked[leaf as usize];
                let before = checked.fetch_or(NOW, Ordering::Relaxed);
                assert_eq!(before & NOW, 0, "another core checks it");
                checked.fetch_add(1, Ordering::Relaxed);
                checked.fetch_and(!NOW, Ordering::Relaxed);
                self.rounds.finish(Ticks(time), &pace);
            }
        }
    }
}

/// Two rounds. Each leaf is checked by one core at a time, and once in each round that ends. With two preemptions of a thread at most.
#[test]
fn each_leaf_is_checked_once_a_round_by_one_core() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(|| {
        let machine = Arc::new(Machine {
            rounds: Rounds::new(),
            checked: [AtomicU32::new(0), AtomicU32::new(0)],
        });
        let other = {
            let machine = Arc::clone(&machine);
            thread::spawn(move || machine.idle(1, &[900, 1900]))
        };
        machine.idle(0, &[900, 1900]);
        other.join().unwrap();
        // No time passes at the end: all that was due is checked now.
        machine.idle(0, &[1900]);
        let counts = [0, 1].map(|leaf: usize| machine.checked[leaf].load(Ordering::Relaxed));
        assert!(
            counts == [2, 2] || counts == [1, 1] || counts == [2, 1],
            "{counts:?}"
        );
    });
}
