// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fuzzing of the walk by guests that own their memory while it runs: what is read changes between any two reads, and
//! registers are written meanwhile. Checked with each access: it is the one that the values read before call for
//! ([`walk`]), so nothing is read twice or used unchecked; and with each step: its bound, its result, and that only the card
//! breaks whose driver has broken a rule.
//!
//! A run depends only on its seed, which a failure prints. `SPUMONE_FUZZ_SEED` repeats the run of one link;
//! `SPUMONE_FUZZ_STEPS` is the number of steps of all links together.

mod honest;
mod memory;
mod random;
mod walk;

use super::driver::{Driver, after_a_piece, number};
use super::oracle::{Card, Queue};
use crate::virtio::link_for_tests::NETWORK_CARD;
use crate::virtio::registers::*;
use crate::virtio::{Device, Direction, Effect, End, Step};
use honest::Honest;
use memory::{Cards, Guests, Memory, OnlyWords, SIZE, some_area};
pub use random::Random;
use std::cell::RefCell;
use std::vec;
use walk::{Stage, Walk};

/// Steps of one link.
const STEPS: u64 = 20_000;
/// What a step may access at most. At each end: index, entry and wish of the available ring, two halves of 24 descriptors,
/// element and index of the used ring. At the receiver's also: the index once more, the wish for notifications and its end,
/// and 12 parts of a header. And the copies: each ends a part of one of both.
const MOST_ACCESSES: u32 = 2 * (3 + 2 * 24 + 2) + 3 + 12 + 2 * 24;
/// The same of a step that is interrupted at each look.
const MOST_INTERRUPTED: u32 = 7;
const ENDS: [End; 2] = [End::Sender, End::Receiver];

/// Prints the seed if the test fails.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::eprintln!("to run this link again: SPUMONE_FUZZ_SEED={}", self.0);
        }
    }
}

/// What has happened, so that a test sees that it tests something.
#[derive(Default, Debug)]
struct Seen {
    moved: u64,
    delivered: u64,
    idle: u64,
    broken: [u64; 2],
    most_accesses: u32,
}

struct Fuzz<'a> {
    memory: Memory<'a>,
    honest: [Honest; 2],
    seen: Seen,
}

impl Fuzz<'_> {
    fn guests(&mut self) -> &mut Guests {
        self.memory.guests.get_mut()
    }

    fn device(&self, end: usize) -> &Device {
        &self.memory.cards.devices[end]
    }

    fn write(&mut self, end: usize, register: u64, value: u32) {
        let effect = self.device(end).write(register, value);
        if effect == Effect::Reset {
            assert!(!self.memory.cards.direction.is_claimed());
            self.device(end).finish_reset();
        }
        self.guests().cards[end].write(register, value);
        if matches!(effect, Effect::Reset | Effect::Status) {
            self.peer_changed(1 - end);
        }
    }

    fn peer_changed(&mut self, peer: usize) {
        let _ = self.device(peer).peer_changed(false);
        self.guests().cards[peer].configuration_changed();
    }

    /// The driver starts: an honest one as Linux's, a hostile one with areas that are anywhere.
    fn start(&mut self, end: usize) {
        let size = 1 << self.guests().random.below(9);
        for (register, value) in Driver::registers(NETWORK_CARD, ENDS[end], size) {
            self.write(end, register, value);
        }
        if self.guests().is_hostile[end] {
            for area in [QUEUE_DESC_LOW, QUEUE_DRIVER_LOW, QUEUE_DEVICE_LOW] {
                let at = some_area(&mut self.guests().random);
                self.write(end, area, at as u32);
                self.write(end, area + 4, (at >> 32) as u32);
            }
        } else {
            let guests = self.memory.guests.get_mut();
            self.honest[end] = Honest::new(end, size, &mut guests.bytes[end]);
        }
    }

    /// The guest's life ends, and the next one begins.
    fn new_life(&mut self, end: usize) {
        self.device(end).go_down();
        self.guests().cards[end].go_down();
        self.peer_changed(1 - end);
        // Nothing of this end is touched while its memory is loaded.
        self.step();
        assert!(!self.memory.cards.direction.is_claimed());
        self.device(end).finish_reset();
        let guests = self.memory.guests.get_mut();
        guests.cards[end].reset();
        guests.bytes[end].fill(guests.random.any() as u8);
    }

    /// The guests do something.
    fn act(&mut self) {
        for end in [0, 1] {
            let guests = self.memory.guests.get_mut();
            if !guests.is_hostile[end] {
                self.honest[end].act(&mut guests.random, &mut guests.bytes[end]);
            } else if guests.random.once_in(64) {
                guests.meddle(end, self.memory.cards);
                self.finish_resets();
            }
            let is_down = !self.device(end).is_up();
            let once = if is_down { 2 } else { 2000 };
            if self.guests().random.once_in(once) {
                self.start(end);
            }
            if self.guests().random.once_in(2000) {
                self.new_life(end);
            }
        }
        if self.guests().random.once_in(8) {
            let index = self.guests().random.any() as u16;
            let Cards { devices, direction } = self.memory.cards;
            let _ = direction.may_go_on(&devices[1], &OnlyWords(Some(index)));
        }
    }

    /// Resets that the driver asked for while a core moved a frame.
    fn finish_resets(&mut self) {
        for end in [0, 1] {
            if core::mem::take(&mut self.guests().resets[end]) {
                self.write(end, STATUS, 0);
            }
        }
    }

    fn step(&mut self) {
        let queues = self.queues();
        self.guests().start_step(queues);
        let Cards { devices, .. } = self.memory.cards;
        let step = self.steps_to_the_end();
        let guests = self.memory.guests.get_mut();
        assert!(
            guests.accesses <= MOST_ACCESSES,
            "{} accesses",
            guests.accesses
        );
        self.seen.most_accesses = self.seen.most_accesses.max(guests.accesses);
        for end in [0, 1] {
            // An access to a card that was down would have failed.
            if let Some(queue) = guests.walks[end].queue {
                guests.cards[end].queues[1 - end].done = queue.done;
            }
        }
        let [sender, receiver] = guests.walks.clone();
        let wish = |walk: &Walk| walk.stage == Stage::Done(true);
        if let Step::Broken(end) = step {
            let end = number(end);
            let walk = &guests.walks[end];
            assert!(
                walk.is_broken || walk.has_broken_silently(),
                "without a fault"
            );
            assert!(!guests.walks[1 - end].is_broken, "the wrong one");
            assert!(guests.is_hostile[end], "an honest driver");
            guests.cards[end].needs_reset();
            assert!(!devices[end].is_up());
            guests.cards[1].interrupts |= u32::from(end == 0 && wish(&receiver));
            self.peer_changed(1 - end);
            self.seen.broken[end] += 1;
        } else {
            assert!(
                !sender.is_broken && !receiver.is_broken,
                "{step:?} in spite of a fault"
            );
        }
        match step {
            Step::Claimed => panic!("no other core does anything"),
            Step::Refused { .. } => panic!("no offloads are offered"),
            Step::Idle => {
                self.seen.idle += 1;
                let is_idle = |walk: &Walk| matches!(walk.waiting, None | Some(0));
                assert!(is_idle(&sender) || is_idle(&receiver));
                assert_eq!((sender.stage, receiver.stage), (Stage::Taken, Stage::Taken));
            }
            Step::Moved {
                interrupt_sender,
                interrupt_receiver,
            } => {
                self.seen.moved += 1;
                self.seen.delivered += u64::from(receiver.stage != Stage::Taken);
                assert!(matches!(sender.stage, Stage::Done(_)));
                assert!(matches!(receiver.stage, Stage::Done(_) | Stage::Taken));
                let wishes = [wish(&sender), wish(&receiver)];
                assert_eq!([interrupt_sender, interrupt_receiver], wishes);
                for (end, wish) in wishes.into_iter().enumerate() {
                    let _ = wish && devices[end].raise();
                    self.guests().cards[end].interrupts |= u32::from(wish);
                }
            }
            Step::Broken(_) => {}
        }
        if !matches!(step, Step::Moved { .. }) && self.is_within_frame() {
            // The model forgets where a frame has stopped that waits.
            self.start(0);
        }
        self.finish_resets();
        self.check_registers();
    }

    fn is_within_frame(&self) -> bool {
        let sender = self.device(0).transmit_ring();
        sender.is_some_and(|it| it.is_open() || it.to_give_back().is_some())
    }

    /// One step, or as many as it takes for a frame if interrupts come meanwhile: then the drivers change no registers.
    fn steps_to_the_end(&mut self) -> Step {
        let random = &mut self.guests().random;
        let (once_in, mut pauses) = (random.below(4), Random::new(random.any()));
        self.guests().changes_registers = once_in == 0;
        let Cards { devices, direction } = self.memory.cards;
        let mut interrupts = [false; 2];
        for _ in 0..MOST_ACCESSES {
            let before = self.guests().accesses;
            // A step that is stopped before its first piece of work changes nothing. The model allows that only within a frame, and not each time.
            let may_stop = once_in > 1 && self.is_within_frame();
            let mut is_after = after_a_piece(once_in > 0);
            let pause = || (is_after() || may_stop) && pauses.once_in(once_in);
            let step = direction.step(&devices[0], &devices[1], &mut self.memory, pause);
            assert!(!direction.is_claimed());
            if once_in == 1 {
                assert!(self.guests().accesses - before <= MOST_INTERRUPTED);
            }
            let Step::Moved {
                interrupt_sender,
                interrupt_receiver,
            } = step
            else {
                for (device, interrupt) in devices.iter().zip(interrupts) {
                    let _ = interrupt && device.raise();
                }
                return step;
            };
            interrupts[0] |= interrupt_sender;
            interrupts[1] |= interrupt_receiver;
            if !self.is_within_frame() {
                break;
            }
        }
        let [interrupt_sender, interrupt_receiver] = interrupts;
        Step::Moved {
            interrupt_sender,
            interrupt_receiver,
        }
    }

    fn queues(&mut self) -> [Option<Queue>; 2] {
        let cards = &self.guests().cards;
        [0, 1].map(|end| {
            let queue = cards[end].queues[1 - end];
            (cards[end].is_up() && queue.is_usable()).then_some(queue)
        })
    }

    /// Both cards are as they are to be: the faults of one change nothing of the other.
    fn check_registers(&mut self) {
        for (device, card) in self
            .memory
            .cards
            .devices
            .iter()
            .zip(&self.memory.guests.get_mut().cards)
        {
            for register in [STATUS, INTERRUPT_STATUS, QUEUE_READY, CONFIG_GENERATION] {
                let value = device.read(register, 4, false);
                assert_eq!(value, card.read(register).into(), "register {register:#x}");
            }
        }
        for end in [0, 1] {
            let guests = self.memory.guests.get_mut();
            if !guests.is_hostile[end] && guests.cards[end].is_up() {
                let done = guests.cards[end].queues[1 - end].done;
                self.honest[end].check(done, &guests.bytes[end]);
            }
        }
    }
}

fn run(seed: u64, steps: u64, seen: &mut Seen) {
    let _seed = Seed(seed);
    let mut random = Random::new(seed);
    let is_hostile = random.one_of(&[[true, true], [true, false], [false, true]]);
    let cards = Cards {
        devices: [Device::new(NETWORK_CARD), Device::new(NETWORK_CARD)],
        direction: Direction::new(),
    };
    let guests = Guests {
        random,
        is_hostile,
        bytes: [vec![0; SIZE as usize], vec![0; SIZE as usize]],
        cards: [Card::default(), Card::default()],
        walks: [Walk::new(0, None), Walk::new(1, None)],
        resets: [false; 2],
        changes_registers: true,
        is_endless: false,
        accesses: 0,
    };
    let mut fuzz = Fuzz {
        memory: Memory {
            cards: &cards,
            guests: RefCell::new(guests),
        },
        honest: [Honest::default(), Honest::default()],
        seen: core::mem::take(seen),
    };
    for _ in 0..steps {
        fuzz.act();
        fuzz.step();
    }
    *seen = fuzz.seen;
}

fn environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn run_all(steps: u64) {
    let mut seen = Seen::default();
    if let Some(seed) = environment("SPUMONE_FUZZ_SEED") {
        return run(seed, STEPS, &mut seen);
    }
    let steps = environment("SPUMONE_FUZZ_STEPS").unwrap_or(steps);
    for seed in 0..steps.div_ceil(STEPS) {
        run(seed, STEPS, &mut seen);
    }
    // A tenth of the steps does each of what can happen.
    let all = [
        seen.moved,
        seen.delivered,
        seen.idle,
        seen.broken[0],
        seen.broken[1],
    ];
    assert!(all.iter().all(|&count| count > steps / 50), "{seen:?}");
    std::println!("{steps} steps: {seen:?}");
}

#[test]
fn hostile_drivers_break_their_own_cards_only() {
    run_all(500_000);
}

#[test]
#[ignore = "takes long: 100 million steps"]
fn hostile_drivers_break_their_own_cards_only_for_long() {
    run_all(100_000_000);
}
