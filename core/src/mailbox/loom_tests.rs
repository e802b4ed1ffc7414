//! All interleavings of senders and receivers.
//!
//! Loom does not let a load see a store that is made later, so it cannot show what the order of
//! the ring's `received` counter is for: that a slot is read before it is filled again. That one
//! rests on the argument beside it.

use super::ring::Ring;
use super::*;
use crate::psci::{EntryPoint, Generation};
use loom::thread;
use spumone_config::types::{GuestAddr, VcpuId};
use std::sync::Arc;
use std::vec::Vec;

/// Every word of it tells its number, so a torn message shows.
fn numbered(number: u64) -> Message {
    Message::StartVcpu {
        vcpu: VcpuId(number as u8),
        entry_point: EntryPoint {
            entry: GuestAddr(number),
            context: number,
        },
        generation: Generation(number as u32),
    }
}

#[test]
fn loom_a_ring_keeps_messages_whole_and_in_order() {
    loom::model(|| {
        const MESSAGES: u64 = 3;
        let ring = Arc::new(Ring::<2>::new());
        let producer = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || {
                // Slots are used again, so the third may find the ring full.
                let accepted = (1..=MESSAGES).filter(|&n| ring.send(numbered(n)).is_ok());
                accepted.collect::<Vec<_>>()
            })
        };
        let mut received: Vec<_> = (0..2).filter_map(|_| ring.receive()).collect();
        let sent = producer.join().unwrap();
        received.extend(core::iter::from_fn(|| ring.receive()));
        let expected: Vec<_> = sent.into_iter().map(numbered).collect();
        assert!(expected.len() >= 2);
        assert_eq!(received, expected);
    });
}

/// Stands for the GIC: a kick is pending from the moment it is sent until it is taken.
struct Sgi(AtomicU32);

impl Sgi {
    fn kick(&self) {
        // Not a plain store: loom does not order one against the swap as the language does.
        self.0.fetch_or(1, Ordering::Release);
    }

    fn take(&self) -> bool {
        self.0.swap(0, Ordering::Acquire) == 1
    }
}

#[test]
fn loom_a_receiver_that_acts_on_kicks_only_gets_everything() {
    loom::model(|| {
        let post = Arc::new(Post::<3, 2>::new());
        let sgi = Arc::new(Sgi(AtomicU32::new(0)));
        let senders: Vec<_> = [1, 2]
            .into_iter()
            .map(|core| {
                let (post, sgi) = (Arc::clone(&post), Arc::clone(&sgi));
                thread::spawn(move || {
                    let mut port = post.port(PcpuId(core)).unwrap();
                    port.send(PcpuId(0), numbered(core.into())).unwrap();
                    sgi.kick();
                })
            })
            .collect();
        let mut port = post.port(PcpuId(0)).unwrap();
        let mut received = Vec::new();
        let mut handle_kick = || {
            if sgi.take() {
                received.extend(core::iter::from_fn(|| port.receive()));
            }
        };
        handle_kick();
        for sender in senders {
            sender.join().unwrap();
        }
        // Whatever the first look missed, a kick is pending for it.
        handle_kick();
        received.sort_by_key(|message| message.encode());
        assert_eq!(received, [numbered(1), numbered(2)]);
    });
}

#[test]
fn loom_a_second_message_of_a_sender_is_not_lost_behind_the_first() {
    loom::model(|| {
        let post = Arc::new(Post::<2, 2>::new());
        let sgi = Arc::new(Sgi(AtomicU32::new(0)));
        let sender = {
            let (post, sgi) = (Arc::clone(&post), Arc::clone(&sgi));
            thread::spawn(move || {
                let mut port = post.port(PcpuId(1)).unwrap();
                for number in 1..=2 {
                    port.send(PcpuId(0), numbered(number)).unwrap();
                    sgi.kick();
                }
            })
        };
        let mut port = post.port(PcpuId(0)).unwrap();
        let mut received = Vec::new();
        for _ in 0..2 {
            if sgi.take() {
                received.extend(core::iter::from_fn(|| port.receive()));
            }
        }
        sender.join().unwrap();
        if sgi.take() {
            received.extend(core::iter::from_fn(|| port.receive()));
        }
        assert_eq!(received, [numbered(1), numbered(2)]);
    });
}

#[test]
fn loom_messages_that_cross_arrive() {
    loom::model(|| {
        let post = Arc::new(Post::<2, 2>::new());
        let core = |this: u8, other: u8| {
            let post = Arc::clone(&post);
            move || {
                let mut port = post.port(PcpuId(this)).unwrap();
                port.send(PcpuId(other), numbered(this.into())).unwrap();
                let early = port.receive();
                (port.core(), early)
            }
        };
        let second = thread::spawn(core(1, 0));
        let (_, first_early) = core(0, 1)();
        let (_, second_early) = second.join().unwrap();
        // What was not there at the first look is in the box and marked.
        for (receiver, early, expected) in [(0, first_early, 1), (1, second_early, 0)] {
            let late = {
                let mut port = Port {
                    post: &*post,
                    core: PcpuId(receiver),
                    open: 0,
                };
                port.receive()
            };
            assert_eq!(early.or(late), Some(numbered(expected)));
            assert!(early.is_none() || late.is_none());
        }
    });
}

#[test]
fn loom_one_caller_gets_the_port() {
    loom::model(|| {
        let post = Arc::new(Post::<1, 1>::new());
        let other = {
            let post = Arc::clone(&post);
            thread::spawn(move || post.port(PcpuId(0)).is_some())
        };
        let this = post.port(PcpuId(0)).is_some();
        assert_ne!(this, other.join().unwrap());
    });
}
