// SPDX-License-Identifier: MIT OR Apache-2.0
//! All interleavings of senders and receivers; each test lists the outcomes that must occur.
//!
//! Under loom a load never sees a later store, so these tests cannot show that the order of the ring's `received`
//! counter is needed: it makes sure that a slot is read before it is filled again. The comment beside it argues why
//! that is so.

use super::ring::Ring;
use super::*;
use crate::psci::loom_tests::explore;
use crate::psci::{EntryPoint, Generation};
use core::iter;
use loom::thread;
use spumone_config::types::{GuestAddr, VcpuId};
use std::sync::Arc;
use std::vec::Vec;

/// Every word of the message has its number, so a torn message is detected.
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
    let outcomes = explore(|| {
        let ring = Arc::new(Ring::<2>::new());
        let consumer = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || (0..2).filter_map(|_| ring.receive()).collect::<Vec<_>>())
        };
        // The third message uses a slot again, if the consumer has freed one.
        let sent: Vec<_> = (1..=3)
            .filter(|&n| ring.send(numbered(n)).is_ok())
            .collect();
        let mut received = consumer.join().unwrap();
        let early = received.len();
        received.extend(iter::from_fn(|| ring.receive()));
        let expected: Vec<_> = sent.iter().copied().map(numbered).collect();
        assert_eq!(received, expected);
        (sent.len(), early)
    });
    assert_eq!(
        outcomes,
        [(2, 0), (2, 1), (2, 2), (3, 1), (3, 2)],
        "messages sent, and received meanwhile"
    );
}

/// Stands for the GIC: a kick is pending from the moment it is sent until it is taken.
struct Sgi(AtomicU32);

impl Sgi {
    fn kick(&self) {
        // Not a plain store: loom does not order a store against the swap as the language does.
        self.0.fetch_or(1, Ordering::Release);
    }

    fn take(&self) -> bool {
        self.0.swap(0, Ordering::Acquire) == 1
    }
}

type SmallPost = Post<3, 2>;

/// What a core does that reads its mail only when it is kicked.
fn answer_kick(port: &mut Port<'_, 3, 2>, sgi: &Sgi) -> Vec<Message> {
    if sgi.take() {
        iter::from_fn(|| port.receive()).collect()
    } else {
        Vec::new()
    }
}

/// Core 0 looks for kicks `looks` times while `send` runs on other cores, and once more after it: for what the earlier
/// looks missed, a kick must be pending. Returns the messages received at each look.
fn receive_on_kicks(
    looks: usize,
    send: impl FnOnce(&Arc<SmallPost>, &Arc<Sgi>),
) -> Vec<Vec<Message>> {
    let post = Arc::new(SmallPost::new());
    let sgi = Arc::new(Sgi(AtomicU32::new(0)));
    let receiver = {
        let (post, sgi) = (Arc::clone(&post), Arc::clone(&sgi));
        thread::spawn(move || {
            let mut port = post.port(PcpuId(0)).unwrap();
            let received = iter::repeat_with(|| answer_kick(&mut port, &sgi)).take(looks);
            (received.collect::<Vec<_>>(), port.open)
        })
    };
    send(&post, &sgi);
    let (mut received, open) = receiver.join().unwrap();
    // A copy of the receiver's port, which could not leave its thread.
    let mut port = Port {
        post: &*post,
        core: PcpuId(0),
        pending: &post.pending[0].0,
        open,
    };
    received.push(answer_kick(&mut port, &sgi));
    received
}

fn send_from(core: u8, numbers: core::ops::RangeInclusive<u64>, post: &SmallPost, sgi: &Sgi) {
    let mut port = post.port(PcpuId(core)).unwrap();
    for number in numbers {
        port.send(PcpuId(0), numbered(number)).unwrap();
        sgi.kick();
    }
}

#[test]
fn loom_a_receiver_that_reads_only_when_kicked_gets_mail_of_all_senders() {
    let outcomes = explore(|| {
        let received = receive_on_kicks(1, |post, sgi| {
            let other = {
                let (post, sgi) = (Arc::clone(post), Arc::clone(sgi));
                thread::spawn(move || send_from(2, 2..=2, &post, &sgi))
            };
            send_from(1, 1..=1, post, sgi);
            other.join().unwrap();
        });
        let mut all = received.concat();
        all.sort_by_key(|message| message.encode());
        assert_eq!(all, [numbered(1), numbered(2)]);
        received[0]
            .iter()
            .map(|message| message.encode()[1])
            .collect::<Vec<_>>()
    });
    assert_eq!(
        outcomes,
        [std::vec![], std::vec![1], std::vec![1, 2], std::vec![2]],
        "messages received while others are sent"
    );
}

#[test]
fn loom_a_second_message_of_a_sender_is_not_lost_behind_the_first() {
    let outcomes = explore(|| {
        let received = receive_on_kicks(2, |post, sgi| send_from(1, 1..=2, post, sgi));
        assert_eq!(received.concat(), [numbered(1), numbered(2)]);
        received.iter().map(Vec::len).collect::<Vec<_>>()
    });
    for counts in [
        [0, 0, 2],
        [1, 1, 0],
        [1, 0, 1],
        [2, 0, 0],
        [0, 2, 0],
        [0, 1, 1],
    ] {
        assert!(
            outcomes.contains(&counts.into()),
            "{counts:?} did not occur"
        );
    }
}

#[test]
fn loom_one_caller_gets_the_port() {
    let winners = explore(|| {
        let post = Arc::new(Post::<1, 1>::new());
        let other = {
            let post = Arc::clone(&post);
            thread::spawn(move || post.port(PcpuId(0)).is_some())
        };
        let this_won = post.port(PcpuId(0)).is_some();
        assert_ne!(this_won, other.join().unwrap());
        this_won
    });
    assert_eq!(winners, [false, true]);
}
