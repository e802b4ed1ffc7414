// SPDX-License-Identifier: MIT OR Apache-2.0
//! All interleavings of cores that share a link; each test lists the outcomes that must occur.

use super::link_for_tests::{Link, NETWORK_CARD, Outcome};
use super::registers::*;
use super::{Device, Effect};
use crate::psci::loom_tests::explore;
use crate::sync::atomic::{Ordering, fence};
use loom::thread;
use std::sync::Arc;
use std::vec::Vec;

/// Another core moves a frame.
fn step_meanwhile(link: &Arc<Link>) -> thread::JoinHandle<Outcome> {
    let link = Arc::clone(link);
    thread::spawn(move || link.step())
}

/// A driver resets its card while another core moves a frame of it: its queues are reset after that, or not touched by it.
fn reset_meets_step(end: usize) -> Vec<(Outcome, bool)> {
    explore(move || {
        let link = Link::new(1, 1);
        let core = step_meanwhile(&link);
        let is_done = link.reset(end);
        let step = core.join().unwrap();
        // At once, or when the access is tried again.
        assert!(is_done || link.reset(end));
        assert!(!link.devices[end].is_up());
        (step, is_done)
    })
}

#[test]
fn loom_a_reset_of_the_receiver_comes_before_or_after_a_step() {
    let outcomes = reset_meets_step(1);
    assert_eq!(outcomes, [(Outcome::Moved, false), (Outcome::Moved, true)]);
}

#[test]
fn loom_a_reset_of_the_sender_comes_before_or_after_a_step() {
    let outcomes = reset_meets_step(0);
    let expected = [
        (Outcome::Idle, false),
        (Outcome::Idle, true),
        (Outcome::Moved, false),
        (Outcome::Moved, true),
    ];
    assert_eq!(outcomes, expected);
}

#[test]
fn loom_memory_is_loaded_when_no_core_moves_a_frame_of_the_former_life() {
    let outcomes = explore(|| {
        let link = Link::new(1, 1);
        let core = step_meanwhile(&link);
        link.devices[1].go_down();
        let is_done = link.finish(1);
        assert_eq!(core.join().unwrap(), Outcome::Moved);
        is_done
    });
    assert_eq!(outcomes, [false, true]);
}

#[test]
fn loom_two_cores_move_each_frame_once() {
    let outcomes = explore(|| {
        let link = Link::new(2, 2);
        let core = step_meanwhile(&link);
        let mut steps = [link.step(), core.join().unwrap()];
        let moved = steps.iter().filter(|&&it| it == Outcome::Moved).count();
        for used in &link.used {
            assert_eq!(usize::from(used.load(Ordering::Relaxed)), moved);
        }
        steps.sort();
        steps
    });
    let expected = [
        [Outcome::Moved, Outcome::Moved],
        [Outcome::Moved, Outcome::Claimed],
    ];
    assert_eq!(outcomes, expected);
}

/// The receiver's driver offers a buffer while a core finds none. It notifies the card only if it is asked to.
#[test]
fn loom_a_frame_that_waits_for_a_buffer_is_not_forgotten() {
    let outcomes = explore(|| {
        let link = Link::new(1, 0);
        let core = step_meanwhile(&link);
        link.available[1].store(1, Ordering::Release);
        fence(Ordering::SeqCst);
        let is_asked = link.flags.load(Ordering::Relaxed) == 0;
        let goes_on = is_asked && link.may_go_on();
        let step = core.join().unwrap();
        assert!(
            step == Outcome::Moved || goes_on,
            "the frame waits for ever"
        );
        (step, goes_on)
    });
    for outcome in [(Outcome::Idle, true), (Outcome::Moved, false)] {
        assert!(outcomes.contains(&outcome), "{outcomes:?}");
    }
}

/// The receiver's card goes down while a core finds no buffer: the frame is dropped, at once or by the next step.
#[test]
fn loom_a_frame_for_a_card_that_goes_down_is_not_forgotten() {
    let outcomes = explore(|| {
        let link = Link::new(1, 0);
        let core = step_meanwhile(&link);
        let _ = link.write_status(1, 0x8f);
        let goes_on = link.may_go_on();
        let step = core.join().unwrap();
        assert!(
            step == Outcome::Moved || goes_on,
            "the frame waits for ever"
        );
        (step, goes_on)
    });
    for outcome in [(Outcome::Idle, true), (Outcome::Moved, false)] {
        assert!(outcomes.contains(&outcome), "{outcomes:?}");
    }
}

#[test]
fn loom_of_two_notifications_one_has_the_sender_go_on() {
    let outcomes = explore(|| {
        let link = Link::new(1, 0);
        assert_eq!(link.step(), Outcome::Idle);
        link.available[1].store(1, Ordering::Release);
        let core = {
            let link = Arc::clone(&link);
            thread::spawn(move || link.may_go_on())
        };
        let own = link.may_go_on();
        assert_ne!(own, core.join().unwrap());
        own
    });
    assert_eq!(outcomes, [false, true]);
}

/// Both cards come up at once. Each driver sees the other card up, or is told of it.
#[test]
fn loom_cards_that_come_up_at_once_see_each_other() {
    let outcomes = explore(|| {
        let devices = Arc::new([Device::new(NETWORK_CARD), Device::new(NETWORK_CARD)]);
        for device in devices.iter() {
            let _ = device.write(DRIVER_FEATURES_SEL, 1);
            let _ = device.write(DRIVER_FEATURES, 1);
        }
        // Returns whether the peer is told, and whether this driver then sees it up.
        let come_up = |own: usize| {
            let devices = Arc::clone(&devices);
            move || {
                assert_eq!(devices[own].write(STATUS, 15), Effect::Status);
                let is_told = devices[1 - own].peer_changed(false);
                // Its driver reads the configuration later, or is told.
                (is_told, devices[1 - own].is_up())
            }
        };
        let other = thread::spawn(come_up(1));
        let own = come_up(0)();
        let other = other.join().unwrap();
        assert!(own.1 || other.0, "driver 0 takes the link for down");
        assert!(other.1 || own.0, "driver 1 takes the link for down");
        (own.0, other.0)
    });
    assert_eq!(outcomes, [(false, true), (true, false), (true, true)]);
}
