// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which core may write to the UART: the one with the token. The token moves; no core waits for it, as it would for a
//! lock.
//!
//! A core that has output asks for the token once. If it gets the token, it writes what all cores have pushed; if not,
//! it goes on, and the core with the token (the holder) writes its output. This is safe because *asking* sets a mark,
//! [`AGAIN`], in the word that also says whether the token is there: the holder cannot put the token back over a mark
//! that it has not seen. All steps are read-modify-writes of that one word, so they have one order:
//!
//! 1. A core pushes its byte, then asks. Either it gets the token, or its mark comes before the
//!    holder's [`UartSlot::put_back`], which then fails, and the holder drains again; it sees the
//!    byte, and the byte's bit in the set of sources that wait, because the mark was set with release and read with
//!    acquire order.
//! 2. A holder that must stop with work left uses [`UartSlot::leave`], which sets the mark itself, so
//!    [`UartSlot::work_left`] stays true until a core has drained the rings.
//!
//! So whenever a byte is in a ring and its producer has asked, either the token has a holder that will look again, or
//! `work_left()` is true. The loom tests below check this.

use super::sink::Drained;
use crate::sync::atomic::{AtomicU8, Ordering};

/// How often one call of [`UartSlot::serve`] drains, if other cores ask meanwhile.
const MAX_ROUNDS: usize = 4;

/// A core has the token.
const HELD: u8 = 1;
/// A core has asked since the holder last began to drain, or the last holder left work.
const AGAIN: u8 = 2;

/// The right to write to the UART, to pop from output rings and to touch the
/// [`super::Mux`]. There is one per [`UartSlot`]; it is moved, never copied.
#[derive(Debug)]
#[must_use = "a token that is dropped silences the console forever: put it back"]
pub struct UartToken(());

/// The result of [`UartSlot::serve`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// Another core has the token and will write what was pushed before the call.
    Elsewhere,
    /// All that was pushed is written.
    Done,
    /// The UART is full: enable its transmit interrupt and serve again then.
    SinkFull,
    /// The budget is spent, or there is an interrupt; [`UartSlot::work_left`] is true until a core serves again.
    BudgetSpent,
}

/// The place of the token while no core writes.
#[derive(Debug)]
pub struct UartSlot(AtomicU8);

impl UartSlot {
    constructor! {
        /// A slot with its token in it.
        pub fn new() -> Self {
            Self(AtomicU8::new(0))
        }
    }

    /// Asks for the token. `None`: another core has it, and will look at all rings again.
    pub fn take(&self) -> Option<UartToken> {
        let before = self.0.fetch_or(HELD | AGAIN, Ordering::AcqRel);
        if before & HELD != 0 {
            return None;
        }
        // The drain that follows sees all that was pushed up to this step.
        self.0.fetch_and(!AGAIN, Ordering::AcqRel);
        Some(UartToken(()))
    }

    /// Puts the token back after all rings were found empty.
    ///
    /// # Errors
    /// Returns the token if a core has asked since: the rings must be drained again.
    pub fn put_back(&self, token: UartToken) -> Result<(), UartToken> {
        match self
            .0
            .compare_exchange(HELD, 0, Ordering::AcqRel, Ordering::Acquire)
        {
            Ok(_) => Ok(()),
            Err(_) => {
                self.0.fetch_and(!AGAIN, Ordering::AcqRel);
                Err(token)
            }
        }
    }

    /// Puts the token back with work left: the UART is full or enough time was spent.
    pub fn leave(&self, token: UartToken) {
        // The token is in the slot again once `HELD` is cleared.
        let UartToken(()) = token;
        // A swap, not a store: it continues the release sequence of cores that asked meanwhile.
        self.0.swap(AGAIN, Ordering::AcqRel);
    }

    /// Takes the token if it is free, drains, and puts it back. `drain` is called once, and again
    /// if others have asked meanwhile, at most four times in all.
    pub fn serve(&self, mut drain: impl FnMut(&mut UartToken) -> Drained) -> Served {
        let Some(mut token) = self.take() else {
            return Served::Elsewhere;
        };
        for _ in 0..MAX_ROUNDS {
            match drain(&mut token) {
                Drained::Empty => match self.put_back(token) {
                    Ok(()) => return Served::Done,
                    Err(again) => token = again,
                },
                Drained::SinkFull => {
                    self.leave(token);
                    return Served::SinkFull;
                }
                Drained::BudgetSpent => break,
            }
        }
        self.leave(token);
        Served::BudgetSpent
    }

    /// Asks for the token without taking it: a core that has it looks at all rings again; if none has it,
    /// [`UartSlot::work_left`] is true from now on. For a core that has no time to write.
    pub fn ask(&self) {
        self.0.fetch_or(AGAIN, Ordering::AcqRel);
    }

    /// Whether work was left and no core does it. One relaxed load, for use before each entry.
    pub fn work_left(&self) -> bool {
        self.0.load(Ordering::Relaxed) == AGAIN
    }
}

#[cfg(test)]
#[cfg(loom)]
mod loom_tests {
    //! Every interleaving of cores that push and serve: no byte is left that no core will write. Run with
    //! `RUSTFLAGS="--cfg loom" cargo test -p spumone-core --release loom_tests`.

    use super::super::ring::OutputRing;
    use super::super::waiting::Waiting;
    use super::*;
    use crate::sync::atomic::AtomicBool;
    use loom::sync::Arc;
    use loom::thread;
    use std::vec::Vec;

    struct Shared {
        slot: UartSlot,
        /// The smallest possible rings, of eight bytes.
        rings: [OutputRing<16>; 2],
        waiting: Waiting,
        /// Whether a core uses the terminal.
        inside: AtomicBool,
        /// The output. A `Mutex` of `std` and not of loom, so that it does not order anything.
        shown: std::sync::Mutex<Vec<u8>>,
    }

    impl Shared {
        fn new() -> Arc<Self> {
            Arc::new(Self {
                slot: UartSlot::new(),
                rings: [OutputRing::new(), OutputRing::new()],
                waiting: Waiting::new(),
                inside: AtomicBool::new(false),
                shown: std::sync::Mutex::new(Vec::new()),
            })
        }

        fn serve(&self, budget: usize) -> Served {
            self.slot.serve(|token| {
                assert!(!self.inside.swap(true, Ordering::Relaxed), "two tokens");
                let drained = self.drain(token, budget);
                self.inside.store(false, Ordering::Relaxed);
                drained
            })
        }

        fn drain(&self, token: &mut UartToken, budget: usize) -> Drained {
            for _ in 0..budget {
                let Some(byte) = self.pop(token) else {
                    return Drained::Empty;
                };
                self.shown.lock().unwrap().push(byte);
            }
            Drained::BudgetSpent
        }

        /// As [`Mux`](super::super::Mux) with turns of one byte.
        fn pop(&self, token: &mut UartToken) -> Option<u8> {
            for _ in 0..=self.rings.len() {
                let source = self.waiting.take_after(0)?;
                if !self.rings[source].is_ready() {
                    continue;
                }
                if let Some(byte) = self.rings[source].pop(token) {
                    self.waiting.add(source);
                    return Some(byte);
                }
            }
            None
        }

        fn write(&self, ring: usize, byte: u8, budget: usize) {
            self.push(ring, byte);
            self.serve(budget);
        }

        fn push(&self, ring: usize, byte: u8) {
            self.rings[ring].push(byte, true).unwrap();
            self.waiting.add(ring);
        }

        fn shown(&self) -> Vec<u8> {
            self.shown.lock().unwrap().clone()
        }
    }

    /// Every interleaving with at most three preemptions.
    fn explore(act: impl Fn() + Sync + Send + 'static) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(act);
    }

    #[test]
    fn no_byte_is_stranded() {
        explore(|| {
            let shared = Shared::new();
            let other = shared.clone();
            let core = thread::spawn(move || {
                other.write(1, b'x', 8);
                other.write(1, b'y', 8);
            });
            shared.write(0, b'a', 8);
            core.join().unwrap();
            // Each core has served once, and none serves again.
            let mut shown = shared.shown();
            shown.sort_unstable();
            if shared.slot.work_left() {
                // Only possible if both kept the holder busy for all its rounds.
                assert!(shown.len() < 3, "work left without work");
            } else {
                assert_eq!(shown, b"axy");
            }
        });
    }

    /// Two vCPUs of one guest, of which one ends the line: what was pushed before the end is written with it.
    #[test]
    fn a_line_is_written_once_it_is_ended() {
        explore(|| {
            let shared = Shared::new();
            let other = shared.clone();
            let core = thread::spawn(move || {
                other.rings[0].push(b'a', false).unwrap();
                other.waiting.add(0);
                other.serve(8);
            });
            shared.rings[0].push(b'\n', false).unwrap();
            shared.waiting.add(0);
            shared.serve(8);
            core.join().unwrap();
            assert!(!shared.slot.work_left());
            let shown = shared.shown();
            let is_early = shared.rings[0].released() == 2;
            assert_eq!(shown.as_slice(), if is_early { &b"a\n"[..] } else { b"\n" });
        });
    }

    #[test]
    fn three_cores() {
        explore(|| {
            let shared = Shared::new();
            let cores: Vec<_> = (0..2)
                .map(|ring| {
                    let shared = shared.clone();
                    thread::spawn(move || shared.write(ring, b'x', 8))
                })
                .collect();
            shared.write(0, b'a', 8);
            for core in cores {
                core.join().unwrap();
            }
            assert!(!shared.slot.work_left());
            assert_eq!(shared.shown().len(), 3);
        });
    }

    #[test]
    fn work_that_is_left_is_known() {
        explore(|| {
            let shared = Shared::new();
            let other = shared.clone();
            // A budget of one byte: each core that serves leaves work.
            let core = thread::spawn(move || other.write(1, b'x', 1));
            shared.write(0, b'a', 1);
            core.join().unwrap();
            // As a core does before an entry.
            for _ in 0..4 {
                if shared.slot.work_left() {
                    shared.serve(1);
                }
            }
            assert!(!shared.slot.work_left());
            assert_eq!(shared.shown().len(), 2);
        });
    }

    #[test]
    fn output_of_a_core_that_only_asks_is_written_or_work_is_left() {
        explore(|| {
            let shared = Shared::new();
            let other = shared.clone();
            let core = thread::spawn(move || {
                other.push(1, b'x');
                other.slot.ask();
            });
            shared.write(0, b'a', 8);
            core.join().unwrap();
            if shared.slot.work_left() {
                shared.serve(8);
            }
            assert_eq!(shared.shown().len(), 2);
        });
    }

    #[test]
    fn bytes_of_one_guest_keep_their_order_across_cores() {
        explore(|| {
            let shared = Shared::new();
            let other = shared.clone();
            // The guest's own lock, which goes from one vCPU to the other.
            let lock = Arc::new(AtomicBool::new(false));
            let taken = lock.clone();
            let core = thread::spawn(move || {
                if taken.load(Ordering::Acquire) {
                    other.write(0, b'2', 8);
                }
            });
            shared.push(0, b'1');
            lock.store(true, Ordering::Release);
            shared.serve(8);
            core.join().unwrap();
            let shown = shared.shown();
            assert!(shown == b"1" || shown == b"12", "{shown:?}");
        });
    }
}
