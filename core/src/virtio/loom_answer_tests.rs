// SPDX-License-Identifier: MIT OR Apache-2.0
//! All interleavings of cores that use the receive queue of a socket device, for packets of the peer and for answers, and its queue for events.

use super::link_for_tests::Outcome;
use super::sockets_for_tests::Sockets;
use crate::psci::loom_tests::explore;
use crate::sync::atomic::{Ordering, fence};
use loom::thread;
use std::sync::Arc;

/// Another core moves a packet of this guest.
fn step_meanwhile(link: &Arc<Sockets>, sender: usize) -> thread::JoinHandle<Outcome> {
    let link = Arc::clone(link);
    thread::spawn(move || link.step(sender))
}

#[test]
fn loom_an_answer_and_a_packet_of_the_peer_use_a_buffer_each() {
    let outcomes = explore(|| {
        let link = Sockets::new(2);
        let core = step_meanwhile(&link, 1);
        let answer = link.step(0);
        let packet = core.join().unwrap();
        for (sender, step) in [answer, packet].into_iter().enumerate() {
            if step == Outcome::Claimed {
                assert_eq!(link.step(sender), Outcome::Moved);
            }
        }
        assert_eq!(link.used.load(Ordering::Relaxed), 2);
        (answer, packet)
    });
    let expected = [
        (Outcome::Moved, Outcome::Moved),
        (Outcome::Moved, Outcome::Claimed),
        (Outcome::Claimed, Outcome::Moved),
    ];
    assert_eq!(outcomes, expected);
}

/// The driver offers a buffer while a core finds none for an answer. It notifies its device only if it is asked to.
#[test]
fn loom_an_answer_that_waits_for_a_buffer_is_not_forgotten() {
    let outcomes = explore(|| {
        let link = Sockets::new(0);
        let core = step_meanwhile(&link, 0);
        link.available.store(1, Ordering::Release);
        fence(Ordering::SeqCst);
        let is_asked = link.flags.load(Ordering::Relaxed) == 0;
        let goes_on = is_asked && link.devices[0].may_answer();
        let step = core.join().unwrap();
        assert!(
            step == Outcome::Moved || goes_on,
            "the answer waits for ever"
        );
        (step, goes_on)
    });
    for outcome in [(Outcome::Idle, true), (Outcome::Moved, false)] {
        assert!(outcomes.contains(&outcome), "{outcomes:?}");
    }
}

/// The driver offers a buffer for an event while a core finds none, and notifies its device.
#[test]
fn loom_an_event_that_waits_for_a_buffer_is_not_forgotten() {
    let outcomes = explore(|| {
        let link = Sockets::new(0);
        link.has_event();
        let core = step_meanwhile(&link, 0);
        link.events.store(1, Ordering::Release);
        let goes_on = link.notify_of_event_buffer();
        let step = core.join().unwrap();
        if goes_on {
            let _ = link.step(0);
        }
        assert_eq!(link.told.load(Ordering::Relaxed), 1, "the event is lost");
        (step, goes_on)
    });
    for outcome in [(Outcome::Idle, true), (Outcome::Moved, false)] {
        assert!(outcomes.contains(&outcome), "{outcomes:?}");
    }
}
