// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every interleaving of a peer that signals with the guest that takes signals back.

use super::*;
use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use loom::sync::Arc;
use loom::thread;

struct End {
    signal: Signal,
    /// The level that the guest's interrupt controller got last.
    level: AtomicBool,
    /// The memory of the link.
    written: AtomicU32,
}

impl End {
    fn publish(&self) {
        self.signal
            .publish(|level| self.level.store(level, Ordering::Relaxed));
    }
}

#[test]
fn no_signal_is_lost() {
    loom::model(|| {
        let end = Arc::new(End {
            signal: Signal::new(),
            level: AtomicBool::new(false),
            written: AtomicU32::new(0),
        });
        let peer = end.clone();
        let peer = thread::spawn(move || {
            for message in 1..=2 {
                peer.written.store(message, Ordering::Relaxed);
                if peer.signal.give() {
                    peer.publish();
                }
            }
        });
        // The guest's handler: takes the signal back, then looks at the memory.
        let mut seen = 0;
        if end.signal.take() {
            end.publish();
            seen = end.written.load(Ordering::Relaxed);
        }
        peer.join().unwrap();
        assert_eq!(end.level.load(Ordering::Relaxed), end.signal.is_given());
        assert!(
            seen == 2 || end.signal.is_given(),
            "message 2 is not received"
        );
    });
}
