// SPDX-License-Identifier: MIT OR Apache-2.0
//! Devices that are up, and of which the driver takes a queue away. A step that finds nothing to do says so: else the core would make
//! the next one at once, and again, and would not enter the guest.

use super::*;
use crate::virtio::Effect;

/// What makes of the receive queue that it is none, and that it is one again.
const AWAY: [(u64, u32); 3] = [(QUEUE_READY, 0), (QUEUE_NUM, 0), (QUEUE_NUM, 3)];

fn back((register, _): (u64, u32)) -> (u64, u32) {
    match register {
        QUEUE_READY => (QUEUE_READY, 1),
        _ => (QUEUE_NUM, QUEUE.into()),
    }
}

impl Both {
    /// The peer writes a register of its receive queue. The core does what the hypervisor does then.
    fn peer_writes(&mut self, (register, value): (u64, u32)) {
        let device = &self.link.devices[1];
        assert_eq!(device.write(QUEUE_SEL, 0), Effect::Nothing);
        assert_eq!(device.write(register, value), Effect::Receive);
        self.due[0] |= self.link.may_go_on();
    }

    /// A step to the peer, of which the driver changes a register when the step has looked for the peer's queue.
    fn step_while_peer_writes(&mut self, (register, value): (u64, u32)) -> Step {
        self.due[0] = false;
        let Link {
            memory,
            devices,
            direction,
        } = &mut self.link;
        let [from, to] = &*devices;
        let _ = to.write(QUEUE_SEL, 0);
        let mut memory = Meanwhile(memory, || {
            let _ = to.write(register, value);
        });
        let step = direction.step(from, to, &mut memory, || false);
        self.due[0] = step != Step::Idle;
        step
    }
}

/// Memory; when a ring is read, this happens.
struct Meanwhile<'a, F>(&'a mut Memory, F);

impl<F: Fn()> Memories for Meanwhile<'_, F> {
    fn load16(&self, end: End, at: GuestAddr) -> Option<u16> {
        self.1();
        self.0.load16(end, at)
    }
    fn load64(&self, end: End, at: GuestAddr) -> Option<u64> {
        self.0.load64(end, at)
    }
    fn store16(&mut self, end: End, at: GuestAddr, value: u16) -> Option<()> {
        self.0.store16(end, at, value)
    }
    fn store_pair(&mut self, end: End, at: GuestAddr, pair: [u32; 2]) -> Option<()> {
        self.0.store_pair(end, at, pair)
    }
    fn read(&self, at: GuestAddr, into: &mut [u8]) -> Option<()> {
        self.0.read(at, into)
    }
    fn write(&mut self, end: End, at: GuestAddr, bytes: &[u8]) -> Option<()> {
        Memories::write(self.0, end, at, bytes)
    }
    fn copy(
        &mut self,
        from: GuestAddr,
        to: GuestAddr,
        bytes: u32,
        stops: impl FnMut() -> bool,
    ) -> Result<u32, End> {
        self.0.copy(from, to, bytes, stops)
    }
}

#[test]
fn a_request_waits_for_a_peer_that_is_up_without_a_queue() {
    for away in AWAY {
        let mut both = Both::new();
        both.peer_offers(4096);
        both.peer_writes(away);
        assert!(both.is_peer_up());
        both.sends(&control(PEER.into(), REQUEST));
        both.until_idle();
        assert_eq!(both.transmit.take(&both.link), None);
        both.peer_writes(back(away));
        assert!(both.due[0], "the peer has a queue, with a buffer");
        both.until_idle();
        assert_eq!(both.transmit.take(&both.link), Some(vec![]));
        assert!(both.peers_receive.take(&both.link).is_some());
    }
}

#[test]
fn a_request_to_a_peer_that_is_up_without_a_queue_is_answered() {
    let mut both = Both::new();
    both.peer_writes((QUEUE_READY, 0));
    both.sends(&control(PEER.into(), REQUEST));
    both.until_idle();
    both.offers(4096);
    both.until_idle();
    assert_eq!(both.receive.take(&both.link), Some(answer(PEER)));
    assert_eq!(both.transmit.take(&both.link), Some(vec![]));
}

/// It waits for a buffer of the peer, and then there is no queue for that.
#[test]
fn a_request_that_waits_for_a_buffer_is_answered_when_the_queue_goes() {
    for away in AWAY {
        let mut both = Both::new();
        both.offers(4096);
        both.sends(&control(PEER.into(), REQUEST));
        both.until_idle();
        assert_eq!(both.transmit.take(&both.link), None);
        both.peer_writes(away);
        assert!(both.due[0], "there is no buffer to wait for");
        both.until_idle();
        assert_eq!(both.receive.take(&both.link), Some(answer(PEER)));
        assert_eq!(both.transmit.take(&both.link), Some(vec![]));
    }
}

/// The queue comes or goes when the step has looked for it, and the peer's core has looked whether a packet waits before it did.
#[test]
fn a_step_sees_a_queue_that_comes_or_goes_meanwhile() {
    for (before, meanwhile) in [(0, 1), (1, 0)] {
        let mut both = Both::new();
        both.peer_writes((QUEUE_READY, before));
        both.sends(&control(PEER.into(), REQUEST));
        let step = both.step_while_peer_writes((QUEUE_READY, meanwhile));
        assert_ne!(step, Step::Idle, "the next step is to look again");
        both.until_idle();
        // Until there is a buffer, the packet waits for the guest that it is for.
        match meanwhile {
            1 => both.peer_offers(4096),
            _ => both.offers(4096),
        }
        both.until_idle();
        assert_eq!(both.transmit.take(&both.link), Some(vec![]));
    }
}

#[test]
fn a_packet_to_another_context_waits_whether_the_peer_has_a_queue_or_not() {
    let mut both = Both::new();
    both.sends(&control(OTHER.into(), REQUEST));
    for away in AWAY {
        both.peer_writes(away);
        both.until_idle();
        both.peer_writes(back(away));
        both.until_idle();
    }
    both.offers(4096);
    both.until_idle();
    assert_eq!(both.receive.take(&both.link), Some(answer(OTHER)));
}

/// Packets and answers that have begun or wait when the driver of their own guest takes a queue away.
#[test]
fn steps_end_whatever_queue_a_driver_takes_away() {
    for device in 0..2 {
        for queue in 0..3 {
            for steps in 0..4 {
                let mut both = Both::new();
                let mut large = header(PEER.into(), 4000, STREAM, 0);
                large.extend(bytes(4000));
                both.peer_offers(1000);
                both.sends(&large);
                both.sends(&control(OTHER.into(), REQUEST));
                for _ in 0..steps {
                    let _ = both.step(after_a_piece(true));
                }
                let _ = both.link.devices[0].peer_changed(false);
                for ready in [0, 1, 0] {
                    let _ = both.link.devices[device].write(QUEUE_SEL, queue);
                    let _ = both.link.devices[device].write(QUEUE_READY, ready);
                    both.due = [true; 2];
                    both.until_idle();
                }
            }
        }
    }
}

/// An answer is interrupted, the peer begins a packet, also in the answer's buffer, and then it is reset: the answer arrives whole, and once.
#[test]
fn an_answer_arrives_though_the_peer_has_used_its_buffer_meanwhile() {
    for steps in 0..12 {
        for peers_steps in 0..14 {
            let mut both = Both::new();
            both.offers(4096);
            both.offers(4096);
            both.sends(&control(OTHER.into(), REQUEST));
            for _ in 0..steps {
                let _ = both.step(after_a_piece(true));
            }
            let mut packet = header(OWN.into(), 100, STREAM, 0);
            packet.extend(bytes(100));
            both.peer_sends(&packet);
            for _ in 0..peers_steps {
                let _ = both.step_back(after_a_piece(true));
            }
            both.peer_goes_down();
            both.due[0] = true;
            both.until_idle();
            let received = core::iter::from_fn(|| both.receive.take(&both.link));
            let answers: Vec<_> = received.filter(|it| it.len() == HEADER).collect();
            assert_eq!(answers, [answer(OTHER)], "{steps} and {peers_steps} steps");
        }
    }
}

/// The peer takes its transmit queue away and gives it back, while an answer is written to the buffer of its packet.
#[test]
fn an_answer_and_a_packet_of_which_the_queue_comes_back_do_not_mix() {
    for peers_steps in 0..14 {
        for steps in 0..12 {
            let mut both = Both::new();
            both.offers(4096);
            both.offers(4096);
            let mut packet = header(OWN.into(), 100, STREAM, 0);
            packet.extend(bytes(100));
            both.peer_sends(&packet);
            for _ in 0..peers_steps {
                let _ = both.step_back(after_a_piece(true));
            }
            let write = |both: &Both, ready| {
                let _ = both.link.devices[1].write(QUEUE_SEL, 1);
                let _ = both.link.devices[1].write(QUEUE_READY, ready);
            };
            write(&both, 0);
            both.sends(&control(OTHER.into(), REQUEST));
            for _ in 0..steps {
                let _ = both.step(after_a_piece(true));
            }
            write(&both, 1);
            for _ in 0..20 {
                let _ = both.step_back(|| false);
            }
            both.due = [true, true];
            both.until_idle();
            let received = core::iter::from_fn(|| both.receive.take(&both.link));
            let (answers, packets): (Vec<_>, Vec<_>) = received.partition(|it| it.len() == HEADER);
            assert_eq!(answers, [answer(OTHER)], "{peers_steps} and {steps} steps");
            let is_whole = |it: &Vec<u8>| word(it, 0) == PEER && it[HEADER..] == bytes(100);
            assert!(
                packets.iter().all(is_whole),
                "{peers_steps} and {steps} steps"
            );
        }
    }
}

/// The receiver's used index cannot be written, but its element can. Its next life gets nothing of the packet but all of it.
#[test]
fn a_packet_whose_first_part_cannot_be_published_does_not_begin_in_its_middle() {
    let mut both = Both::new();
    let mut large = header(PEER.into(), 400, STREAM, 0);
    large.extend(bytes(400));
    both.peer_offers(144);
    both.sends(&large);
    for (register, value) in [(QUEUE_SEL, 0), (QUEUE_DEVICE_LOW, (BASE - 4) as u32)] {
        let _ = both.link.devices[1].write(register, value);
    }
    assert_eq!(both.step(|| false), Step::Broken(End::Receiver));
    both.peer_goes_down();
    both.peer_comes_up();
    for _ in 0..6 {
        both.peer_offers(144);
    }
    both.due[0] = true;
    both.until_idle();
    let first = both.peers_receive.take(&both.link);
    assert!(first.is_none_or(|it| it[HEADER] == bytes(1)[0]));
}
