// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests with threads of what cores share. `make miri` runs these tests under Miri, where a load returns, at random,
//! any value that the memory model allows.
//!
//! loom explores all interleavings of a few accesses. Miri samples longer runs, and follows the language's rules for
//! fences. The crate has no `unsafe`, so there is no undefined behaviour to find: a memory order that is too weak
//! shows as a stale value of a relaxed word, which stands for a vCPU's registers or a guest's memory.

use crate::console::{Drained, OutputRing, UartSlot};
use crate::mailbox::{Message, Post};
use crate::migration::{Level, Parked, ParkedState, ParkingSlot, Presence};
use crate::psci::{EntryPoint, Generation};
use crate::schedule::{Band, Ticks};
use crate::vgic::Doorbell;
use crate::virtio::link_for_tests::{Link, Outcome};
use crate::virtio::sockets_for_tests::Sockets;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use spumone_config::types::{GuestAddr, PcpuId, VcpuId};
use std::sync::Mutex;
use std::thread;
use std::vec::Vec;

/// How often each test is repeated: Miri finds an order that is too weak in nearly every such run.
const ROUNDS: u64 = if cfg!(miri) { 100 } else { 500 };
/// How often a core polls for an event that may never happen.
const LOOKS: usize = 20;
/// How often a core polls for an event that must happen; more polls are a failure.
const MAX_LOOKS: usize = if cfg!(miri) { 2_000 } else { 10_000_000 };

const HOST: PcpuId = PcpuId(0);
const OTHER: PcpuId = PcpuId(1);
const RUNNABLE: Parked = Parked {
    host: HOST,
    state: ParkedState::Runnable,
};
const ASLEEP: Parked = Parked {
    host: HOST,
    state: ParkedState::Asleep,
};

/// Polls at most this often, and yields to other threads in between.
fn poll<T>(looks: usize, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    (0..looks).find_map(|_| {
        thread::yield_now();
        look()
    })
}

/// One core of three gets the token, and sees the registers that were saved before.
#[test]
fn a_claimed_vcpu_has_the_registers_that_were_parked() {
    for round in 1..=ROUNDS {
        let slot = ParkingSlot::new();
        // Relaxed everywhere: the order must come from the slot.
        let registers = AtomicU64::new(0);
        let fetch = || {
            let seen = slot.parked()?;
            slot.claim(seen).then(|| registers.load(Ordering::Relaxed))
        };
        let fetched = thread::scope(|cores| {
            let others = [(); 2].map(|()| cores.spawn(|| poll(LOOKS, fetch)));
            registers.store(round, Ordering::Relaxed);
            slot.park(RUNNABLE, Ticks(0));
            let by_host = poll(LOOKS, fetch);
            let [first, second] = others.map(|other| other.join().unwrap());
            [by_host, first, second]
        });
        let fetched: Vec<_> = fetched.into_iter().flatten().collect();
        assert_eq!(fetched, [round]);
    }
}

/// A core that claims a vCPU marked as wanted sees what was written before the mark.
#[test]
fn a_wanted_vcpu_is_claimed_with_its_interrupt() {
    for _ in 0..ROUNDS {
        let slot = ParkingSlot::new();
        slot.park(RUNNABLE, Ticks(0));
        let interrupt = AtomicU64::new(0);
        thread::scope(|cores| {
            cores.spawn(|| {
                interrupt.store(1, Ordering::Relaxed);
                assert!(slot.mark_wanted(RUNNABLE));
            });
            let wanted = Parked {
                state: ParkedState::Wanted,
                ..RUNNABLE
            };
            if poll(LOOKS, || slot.claim(wanted).then_some(())).is_some() {
                assert_eq!(interrupt.load(Ordering::Relaxed), 1);
            }
        });
    }
}

/// A core goes idle while another core parks a vCPU: the idle core finds the vCPU, or the other core sees that it
/// idles.
#[test]
fn an_idle_core_and_a_parked_vcpu_find_each_other() {
    for _ in 0..ROUNDS {
        let (slot, presence) = (ParkingSlot::new(), Presence::new());
        presence.publish(Level::of(Some(Band::LOWEST)));
        thread::scope(|cores| {
            let idle = cores.spawn(|| {
                presence.publish(Level::IDLE);
                slot.parked().is_some()
            });
            slot.park(RUNNABLE, Ticks(0));
            let seen = presence.level() == Level::IDLE;
            assert!(idle.join().unwrap() || seen);
        });
    }
}

/// A doorbell is rung while the vCPU migrates: the new core sees the doorbell, or is kicked.
#[test]
fn a_migrating_vcpu_sees_the_doorbell_or_its_new_core_is_kicked() {
    for _ in 0..ROUNDS {
        let doorbell = Doorbell::new();
        doorbell.settle(HOST);
        thread::scope(|cores| {
            let sender = cores.spawn(|| {
                doorbell.ring_spis(1);
                doorbell.location()
            });
            doorbell.settle(OTHER);
            let is_seen = !doorbell.is_silent();
            assert!(sender.join().unwrap() == OTHER || is_seen);
        });
    }
}

/// A doorbell is rung while the vCPU is parked asleep: the host core sees the doorbell, or the sender finds the vCPU parked.
#[test]
fn a_doorbell_rung_during_parking_is_not_lost() {
    for _ in 0..ROUNDS {
        let (slot, doorbell) = (ParkingSlot::new(), Doorbell::new());
        thread::scope(|cores| {
            let sender = cores.spawn(|| {
                doorbell.ring_spis(1);
                let _ = doorbell.location();
                slot.parked().is_some()
            });
            slot.park(ASLEEP, Ticks(0));
            let is_seen = !doorbell.is_silent();
            assert!(sender.join().unwrap() || is_seen);
        });
    }
}

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

/// Slots are used many times: messages stay whole and in order, and their receiver sees what their sender wrote before.
#[test]
fn messages_stay_whole_and_in_order_and_publish_earlier_writes() {
    const MESSAGES: u64 = 200;
    let post = Post::<2, 2>::new();
    let written = AtomicU64::new(0);
    let received = thread::scope(|cores| {
        cores.spawn(|| {
            let mut port = post.port(OTHER).unwrap();
            for number in 1..=MESSAGES {
                written.store(number, Ordering::Relaxed);
                let sent = poll(MAX_LOOKS, || port.send(HOST, numbered(number)).ok());
                if sent.is_none() {
                    break;
                }
            }
        });
        let mut port = post.port(HOST).unwrap();
        // Checked later: if this thread panicked here, the sender would wait for it.
        let next = || {
            let message = poll(MAX_LOOKS, || port.receive())?;
            Some((message, written.load(Ordering::Relaxed)))
        };
        core::iter::from_fn(next)
            .take(MESSAGES as usize)
            .collect::<Vec<_>>()
    });
    assert_eq!(received.len() as u64, MESSAGES, "messages are lost");
    for (number, (message, written)) in (1..).zip(received) {
        assert_eq!(message, numbered(number));
        assert!(
            written >= number,
            "{message:?} came before what was written"
        );
    }
}

/// Two cores write: one at a time has the token, and each byte is written, or the slot still shows that work is left.
#[test]
fn each_byte_is_written_once_by_the_core_with_the_token() {
    for _ in 0..ROUNDS {
        let slot = UartSlot::new();
        let rings = [OutputRing::<16>::new(), OutputRing::<16>::new()];
        let inside = AtomicBool::new(false);
        // A value that the core with the token changes. Relaxed: the order must come from the token.
        let drained = AtomicU64::new(0);
        let shown = Mutex::new(Vec::new());
        let serve = || {
            slot.serve(|token| {
                assert!(!inside.load(Ordering::Relaxed), "two tokens");
                inside.store(true, Ordering::Relaxed);
                for ring in &rings {
                    while let Some(byte) = ring.pop(token) {
                        let before = drained.load(Ordering::Relaxed);
                        drained.store(before + 1, Ordering::Relaxed);
                        shown.lock().unwrap().push(byte);
                    }
                }
                inside.store(false, Ordering::Relaxed);
                Drained::Empty
            })
        };
        let write = |ring: usize, bytes: &[u8]| {
            for &byte in bytes {
                rings[ring].push(byte, true).unwrap();
                serve();
            }
        };
        thread::scope(|cores| {
            cores.spawn(|| write(1, b"xyz"));
            write(0, b"abc");
        });
        if slot.work_left() {
            serve();
        }
        let mut shown = shown.into_inner().unwrap();
        shown.sort_unstable();
        assert_eq!(shown, b"abcxyz");
        assert_eq!(drained.load(Ordering::Relaxed), 6);
    }
}

/// A frame is moved when the receiver offers a buffer, which notifies its card only if it is asked to.
#[test]
fn a_frame_that_waits_for_a_buffer_is_not_forgotten() {
    for _ in 0..ROUNDS {
        let link = Link::new(1, 0);
        let goes_on = AtomicBool::new(false);
        thread::scope(|cores| {
            cores.spawn(|| {
                link.available[1].store(1, Ordering::Release);
                fence(Ordering::SeqCst);
                if link.flags.load(Ordering::Relaxed) == 0 && link.may_go_on() {
                    goes_on.store(true, Ordering::Release);
                }
            });
            let is_moved = link.step() == Outcome::Moved
                || poll(MAX_LOOKS, || {
                    let goes_on = goes_on.swap(false, Ordering::Acquire);
                    (goes_on && link.step() == Outcome::Moved).then_some(())
                })
                .is_some();
            assert!(is_moved, "the frame waits for ever");
        });
    }
}

/// The queues of a card are reset when no core uses them any more.
#[test]
fn a_card_is_reset_before_or_after_a_frame_of_it() {
    for _ in 0..ROUNDS {
        let link = Link::new(1, 1);
        thread::scope(|cores| {
            // It fails if it uses the receiver's queue after the reset.
            cores.spawn(|| link.step());
            assert!(poll(MAX_LOOKS, || link.reset(1).then_some(())).is_some());
        });
    }
}

/// Of the receive queue of a socket device, a core that answers and one that moves a packet of the peer each use a buffer.
#[test]
fn an_answer_finds_the_queue_as_the_last_core_has_left_it() {
    for _ in 0..ROUNDS {
        let link = Sockets::new(2);
        let until_moved = |sender| {
            let moved = || (link.step(sender) == Outcome::Moved).then_some(());
            assert!(poll(MAX_LOOKS, moved).is_some());
        };
        thread::scope(|cores| {
            cores.spawn(|| until_moved(0));
            until_moved(1);
        });
        assert_eq!(link.used.load(Ordering::Relaxed), 2);
    }
}
