// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets, buffers, steps and lives of the peer in any order, beside a model that says what becomes of each packet.

use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;

/// What happens next; packets have so many bytes of payload.
#[derive(Clone, Copy, Debug)]
enum Action {
    Send { target: u32, operation: u16 },
    PeerSends(usize),
    Offer(u32),
    PeerOffers(u32),
    Step(bool),
    StepBack(bool),
    PeerGoesDown,
    PeerComesUp,
}

fn any_action() -> impl Strategy<Value = Action> {
    use Action::*;
    let operation = prop::sample::select(vec![REQUEST, REQUEST, RESET, DATA, SHUTDOWN]);
    let send = (prop::sample::select(vec![PEER, OTHER]), operation)
        .prop_map(|(target, operation)| Send { target, operation });
    prop_oneof![
        4 => send,
        3 => (0..3000_usize).prop_map(PeerSends),
        5 => (45..1500_u32).prop_map(Offer),
        3 => (45..1500_u32).prop_map(PeerOffers),
        8 => any::<bool>().prop_map(Step),
        8 => any::<bool>().prop_map(StepBack),
        1 => Just(PeerGoesDown),
        2 => Just(PeerComesUp),
    ]
}

/// What is to become of packets, said another way than in the device.
#[derive(Default)]
struct Model {
    /// Packets that were sent and not given back.
    sent: VecDeque<(u32, u16)>,
    /// Answers that the guest must have got, in order.
    answers: VecDeque<Vec<u8>>,
    /// Operations that the peer must have got in this life.
    delivered: VecDeque<u16>,
    /// Bytes of the peer's present life, and how many of them have come.
    peers_bytes: Vec<u8>,
    come: usize,
    life: u32,
    /// A part of the first packet has been moved to the peer; which has gone down since.
    has_begun: bool,
    is_lost: bool,
    /// The first packet has arrived, or was answered, and is not given back yet.
    has_end: bool,
    /// Buffers taken back from the receive queue.
    taken: u16,
}

impl Model {
    /// The first packet was given back while the peer was up or down.
    fn given_back(&mut self, is_up: bool) {
        let (target, operation) = self.sent.pop_front().expect("a packet that was sent");
        let is_up = is_up && !self.is_lost;
        (self.has_begun, self.is_lost) = (false, false);
        if core::mem::take(&mut self.has_end) {
            return;
        }
        if target == PEER && is_up {
            self.delivered.push_back(operation);
        } else if operation == REQUEST || target == OTHER && operation != RESET {
            self.answers.push_back(answer(target));
        }
    }

    /// The first packet, of which the end comes before it is given back.
    fn first(&mut self) -> (u32, u16) {
        assert!(!self.has_end, "two ends");
        self.has_end = true;
        let first = self.sent.front();
        *first.expect("a packet that was sent")
    }

    /// The guest has received a packet of the peer, or an answer.
    fn received(&mut self, packet: &[u8]) {
        self.taken = self.taken.wrapping_add(1);
        if packet[30..32] == RESET.to_le_bytes() {
            let expected = self.answers.pop_front();
            let expected = expected.unwrap_or_else(|| answer(self.first().0));
            assert_eq!(packet, expected);
            return;
        }
        // Its life is in place of its port.
        if word(packet, 16) == self.life {
            let payload = &packet[HEADER..];
            let expected = &self.peers_bytes[self.come..][..payload.len()];
            assert_eq!(payload, expected);
            self.come += payload.len();
        }
    }
}

fn act(both: &mut Both, model: &mut Model, action: Action) {
    match action {
        Action::Send { target, operation } => {
            let is_sent = both.sends(&control(target.into(), operation));
            let sent = is_sent.then_some((target, operation));
            model.sent.extend(sent);
        }
        Action::PeerSends(count) if both.is_peer_up() => {
            let mut packet = header(OWN.into(), count as u32, STREAM, 0);
            packet[16..20].copy_from_slice(&model.life.to_le_bytes());
            let payload: Vec<u8> = bytes(count)
                .iter()
                .map(|it| it ^ model.life as u8)
                .collect();
            packet.extend(&payload);
            if both.peer_sends(&packet) {
                model.peers_bytes.extend(payload);
            }
        }
        Action::Offer(size) => both.offers(size),
        Action::PeerOffers(size) if both.is_peer_up() => both.peer_offers(size),
        Action::Step(pauses) => {
            let step = both.step(after_a_piece(pauses));
            let transmit = both.link.devices[0].transmit_ring();
            model.has_begun |= transmit.is_some_and(|it| it.taken() > 0);
            assert!(!matches!(step, Step::Broken(_) | Step::Claimed), "{step:?}");
        }
        Action::StepBack(pauses) => {
            let step = both.step_back(after_a_piece(pauses));
            assert!(!matches!(step, Step::Broken(_) | Step::Claimed), "{step:?}");
        }
        Action::PeerGoesDown => {
            both.peer_goes_down();
            model.is_lost |= model.has_begun;
        }
        Action::PeerComesUp if !both.is_peer_up() => {
            both.peer_comes_up();
            model.life += 1;
            model.peers_bytes.clear();
            model.come = 0;
            model.delivered.clear();
        }
        _ => {}
    }
    let is_up = both.is_peer_up();
    while both.transmit.take(&both.link).is_some() {
        model.given_back(is_up);
    }
    while let Some(packet) = both.receive.take(&both.link) {
        model.received(&packet);
    }
    assert_eq!(
        model.taken,
        both.receive.used(&both.link),
        "a buffer comes twice"
    );
    while is_up && let Some(packet) = both.peers_receive.take(&both.link) {
        let operation = u16::from_le_bytes([packet[30], packet[31]]);
        let expected = model.delivered.pop_front();
        assert_eq!(operation, expected.unwrap_or_else(|| model.first().1));
    }
    assert!(model.answers.is_empty() && (!is_up || model.delivered.is_empty()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Each packet reaches the peer, or has one answer, or none; the peer's own packets arrive whole beside the answers; and nothing
    /// waits when there are buffers.
    #[test]
    fn each_packet_has_one_end(actions in prop::collection::vec(any_action(), 1..150)) {
        let (mut both, mut model) = (Both::alone(), Model::default());
        for action in actions {
            act(&mut both, &mut model, action);
        }
        for _ in 0..MANY {
            act(&mut both, &mut model, Action::Offer(1500));
            act(&mut both, &mut model, Action::PeerOffers(1500));
            act(&mut both, &mut model, Action::Step(false));
            act(&mut both, &mut model, Action::StepBack(false));
            if both.due == [false; 2] && model.sent.is_empty() {
                break;
            }
        }
        prop_assert!(model.sent.is_empty(), "a packet waits for ever");
        if both.is_peer_up() {
            prop_assert_eq!(model.come, model.peers_bytes.len());
        }
    }
}
