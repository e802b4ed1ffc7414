// SPDX-License-Identifier: MIT OR Apache-2.0
//! Order, capacity and encoding of messages, step by step.

use super::ring::Ring;
use super::*;
use crate::psci::{EntryPoint, Generation};
use crate::sets::CoreSet;
use proptest::prelude::*;
use spumone_config::types::{GuestAddr, GuestId, VcpuId};
use std::collections::VecDeque;
use std::vec::Vec;

fn any_message() -> impl Strategy<Value = Message> {
    let generation = any::<u32>().prop_map(Generation);
    (0_u8..3, any::<u8>(), any::<[u64; 2]>(), generation).prop_map(
        |(kind, subject, [entry, context], generation)| match kind {
            0 => Message::StartVcpu {
                vcpu: VcpuId(subject),
                entry_point: EntryPoint {
                    entry: GuestAddr(entry),
                    context,
                },
                generation,
            },
            1 => Message::StopGuest {
                guest: GuestId(subject),
                generation,
                others: CoreSet::from_bits(entry as u32),
            },
            _ => Message::RestartGuest {
                guest: GuestId(subject),
                generation,
            },
        },
    )
}

fn stop(number: u32) -> Message {
    Message::StopGuest {
        guest: GuestId(0),
        generation: Generation(number),
        others: CoreSet::EMPTY,
    }
}

/// As in the hypervisor: it must be possible to construct it in a constant.
static POST: Post = Post::new();

#[test]
fn a_port_is_handed_out_once() {
    let last = PcpuId(MAX_PCPUS as u8 - 1);
    assert_eq!(POST.port(last).map(|port| port.core()), Some(last));
    assert!(POST.port(last).is_none());
    assert!(POST.port(PcpuId(MAX_PCPUS as u8)).is_none());
}

#[test]
fn a_full_box_refuses_a_message_and_keeps_the_others() {
    let post: Post<2, 4> = Post::new();
    let mut sender = post.port(PcpuId(0)).unwrap();
    let mut receiver = post.port(PcpuId(1)).unwrap();
    for round in 0..3 {
        for number in 0..4 {
            assert_eq!(sender.send(PcpuId(1), stop(4 * round + number)), Ok(()));
        }
        assert_eq!(sender.send(PcpuId(1), stop(0)), Err(Full));
        for number in 0..4 {
            assert_eq!(receiver.receive(), Some(stop(4 * round + number)));
        }
        assert_eq!(receiver.receive(), None);
    }
    assert_eq!(sender.send(PcpuId(2), stop(0)), Err(Full));
}

#[test]
fn the_counters_may_wrap() {
    let ring: Ring<4> = Ring::new();
    for counter in [&ring.sent, &ring.received] {
        counter.0.store(u32::MAX - 1, Ordering::Relaxed);
    }
    for number in 0..4 {
        assert_eq!(ring.send(stop(number)), Ok(()));
    }
    assert_eq!(ring.send(stop(4)), Err(Full));
    for number in 0..4 {
        assert_eq!(ring.receive(), Some(stop(number)));
    }
    assert_eq!(ring.receive(), None);
}

#[test]
fn an_unknown_kind_is_reported() {
    for kind in [0, 4, 0xff] {
        assert_eq!(Message::decode([kind, 0, 0]), Message::Corrupt);
    }
}

/// Between two cores: a message, or a look at the mail.
#[derive(Clone, Debug)]
enum Step {
    Send(usize, usize, Message),
    Receive(usize),
}

const CORES: usize = 3;

proptest! {
    #[test]
    fn encoding_keeps_everything(message in any_message()) {
        prop_assert_eq!(Message::decode(message.encode()), message);
    }

    #[test]
    fn each_message_arrives_once_and_in_the_order_of_its_sender(
        steps in prop::collection::vec(
            prop_oneof![
                (0..CORES, 0..CORES, any_message()).prop_map(|(f, t, m)| Step::Send(f, t, m)),
                (0..CORES).prop_map(Step::Receive),
            ],
            0..200,
        ),
    ) {
        let post: Post<CORES, 8> = Post::new();
        let mut ports: Vec<_> = (0..CORES as u8).map(|c| post.port(PcpuId(c)).unwrap()).collect();
        let mut model = std::vec![std::vec![VecDeque::new(); CORES]; CORES];
        for step in steps.into_iter().chain((0..CORES).map(Step::Receive)) {
            match step {
                Step::Send(from, to, message) => {
                    let sent = ports[from].send(PcpuId(to as u8), message);
                    if model[to][from].len() == 8 {
                        prop_assert_eq!(sent, Err(Full));
                    } else {
                        prop_assert_eq!(sent, Ok(()));
                        model[to][from].push_back(message);
                    }
                }
                Step::Receive(core) => {
                    while let Some(message) = ports[core].receive() {
                        let sender = model[core].iter_mut().find(|sent| sent.front() == Some(&message));
                        prop_assert!(sender.is_some(), "{:?} was not next", message);
                        sender.unwrap().pop_front();
                    }
                    prop_assert!(model[core].iter().all(VecDeque::is_empty));
                }
            }
        }
    }
}

/// A core that stops reading, takes interrupts, and goes on: the kick for a message that has come meanwhile has been taken.
#[test]
fn mail_that_comes_between_two_reads_is_there_after_the_first_boxes_are_empty() {
    let post: Post<3, 4> = Post::new();
    let [mut reader, mut first, mut second] =
        [0, 1, 2].map(|core| post.port(PcpuId(core)).unwrap());
    first.send(PcpuId(0), stop(1)).unwrap();
    assert_eq!(reader.receive(), Some(stop(1)));
    second.send(PcpuId(0), stop(2)).unwrap();
    assert_eq!((reader.receive(), reader.has_mail()), (None, true));
    assert_eq!(reader.receive(), Some(stop(2)));
    assert_eq!((reader.receive(), reader.has_mail()), (None, false));
}
