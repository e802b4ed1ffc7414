// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cards and the [oracle](super::oracle) do the same, whatever drivers do that follow the rules, or break one now and then.

use super::driver::{BASE, Driver, Fault, Link, SIZE, number};
use super::oracle::{MAX_PARTS, Oracle, What};
use crate::virtio::link_for_tests::NETWORK_CARD;
use crate::virtio::registers::*;
use crate::virtio::{Effect, End, Step};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use std::vec;
use std::vec::Vec;

const ENDS: [End; 2] = [End::Sender, End::Receiver];
/// Offset of the flags of the used ring, in which the device says whether it wants to be notified.
const USED_FLAGS: usize = 0x3000;

/// What happens on a link.
#[derive(Clone, Debug)]
enum Action {
    /// The driver starts with this many descriptors, as a power of two.
    Start(End, u32),
    /// It resets its card.
    Reset(End),
    /// The guest ends, and begins anew.
    NewLife(End),
    /// It stops its queue, or goes on with it.
    Ready(End, bool),
    /// It writes a register, which may change its queue.
    Write(End, u64, u32),
    /// The sender transmits so many bytes in parts cut at these places, of which some are empty.
    Send(usize, Vec<u32>, usize),
    /// The receiver offers so many bytes.
    Offer(u32, Vec<u32>, usize),
    /// It breaks a rule in its last buffer.
    Spoil(End, Fault),
    Step,
    /// The receiver notifies the card.
    Notify,
    /// The driver looks at its used ring.
    Take(End),
    WantInterrupts(End, bool),
}

fn any_action() -> impl Strategy<Value = Action> {
    use Action::*;
    let end = || prop::sample::select(&ENDS[..]);
    let cuts = || prop::collection::vec(0..=1000_u32, 0..4);
    let empty = || prop_oneof![6 => Just(0), 1 => 0..MAX_PARTS + 2];
    let bytes = prop_oneof![8 => 12..1530_usize, 1 => 0..12_usize, 1 => 1529..1533_usize];
    let room = prop_oneof![8 => Just(1530_u32), 1 => 0..1600_u32, 1 => Just(4000)];
    let fault = prop_oneof![
        Just(Fault::Index),
        Just(Fault::Head),
        Just(Fault::Circle),
        Just(Fault::Next),
        Just(Fault::Indirect),
        Just(Fault::Way),
        prop::sample::select(vec![
            0,
            BASE - 1,
            BASE + SIZE,
            BASE + SIZE - 8,
            u64::MAX - 3
        ])
        .prop_map(Fault::Place),
    ];
    let register = prop::sample::select(vec![
        DEVICE_FEATURES_SEL,
        DRIVER_FEATURES_SEL,
        DRIVER_FEATURES,
        QUEUE_SEL,
        INTERRUPT_ACK,
        STATUS,
        QUEUE_NUM,
        QUEUE_DRIVER_HIGH,
        QUEUE_DEVICE_LOW,
        QUEUE_DEVICE_HIGH,
        CONFIG_GENERATION,
    ]);
    let value = prop_oneof![
        0..4_u32,
        (0..17_u32).prop_map(|n| 1 << n),
        Just(15),
        any::<u32>()
    ];
    let ack = (end(), 0..4_u32).prop_map(|(end, bits)| Write(end, INTERRUPT_ACK, bits));
    prop_oneof![
        3 => (end(), 0..=8_u32).prop_map(|(end, size)| Start(end, size)),
        1 => end().prop_map(Reset),
        1 => end().prop_map(NewLife),
        2 => (end(), any::<bool>()).prop_map(|(end, ready)| Ready(end, ready)),
        1 => (end(), register, value).prop_map(|(end, at, value)| Write(end, at, value)),
        4 => ack,
        20 => (bytes, cuts(), empty()).prop_map(|(bytes, cuts, empty)| Send(bytes, cuts, empty)),
        20 => (room, cuts(), empty()).prop_map(|(room, cuts, empty)| Offer(room, cuts, empty)),
        1 => (end(), fault).prop_map(|(end, fault)| Spoil(end, fault)),
        30 => Just(Step),
        6 => Just(Notify),
        8 => end().prop_map(Take),
        2 => (end(), any::<bool>()).prop_map(|(end, wants)| WantInterrupts(end, wants)),
    ]
}

/// Cuts so many bytes into parts at these places, in per mille; the first `empty` parts have none.
fn cut(bytes: u32, cuts: &[u32], empty: usize) -> Vec<u32> {
    let mut places: Vec<_> = cuts.iter().map(|&it| bytes * it / 1000).collect();
    places.extend([0].repeat(empty));
    places.sort_unstable();
    places.push(bytes);
    let mut before = 0;
    places
        .into_iter()
        .map(|place| place - core::mem::replace(&mut before, place))
        .collect()
}

/// A link and what the oracle makes of it.
struct Both {
    link: Link,
    oracle: Oracle,
    drivers: [Option<Driver>; 2],
    /// A frame waits for a buffer, says the oracle, and no notification has come since.
    is_waiting: bool,
    frames: u8,
}

type Checked = Result<(), TestCaseError>;

impl Both {
    fn new() -> Self {
        let link = Link::new();
        let oracle = Oracle {
            memory: link.memory.of.clone(),
            ..Oracle::default()
        };
        Self {
            link,
            oracle,
            drivers: [None, None],
            is_waiting: false,
            frames: 0,
        }
    }

    /// The guest writes a register, and the hypervisor does what the card asks it to do.
    fn write(&mut self, end: End, register: u64, value: u32) -> Checked {
        let (own, peer) = (number(end), 1 - number(end));
        let before = self.oracle.cards[own].is_up();
        let effect = self.link.devices[own].write(register, value);
        self.oracle.cards[own].write(register, value);
        self.is_waiting &= self.oracle.cards[0].is_up();
        let has_changed = self.oracle.cards[own].is_up() != before;
        match effect {
            Effect::Reset => {
                prop_assert!(!self.link.direction.is_claimed());
                self.link.devices[own].finish_reset();
                self.peer_changed(peer)?;
            }
            Effect::Status => self.peer_changed(peer)?,
            Effect::Line => {
                let mut levels = Vec::new();
                self.link.devices[own].publish(|level| levels.push(level));
                let level = self.oracle.cards[own].interrupts != 0;
                prop_assert_eq!(levels.last(), Some(&level));
            }
            _ => prop_assert!(!has_changed, "the peer is to know"),
        }
        Ok(())
    }

    fn peer_changed(&mut self, peer: usize) -> Checked {
        self.oracle.cards[peer].configuration_changed();
        let is_told = self.link.devices[peer].peer_changed(false);
        prop_assert_eq!(is_told, self.oracle.cards[peer].is_up());
        if peer == 0 {
            self.notify()?;
        }
        Ok(())
    }

    /// The receiver has buffers, or has changed.
    fn notify(&mut self) -> Checked {
        self.sync();
        let may = self.oracle.may_go_on();
        let goes_on = self.link.may_go_on();
        prop_assert!(may || !goes_on, "in vain");
        prop_assert!(!(self.is_waiting && may) || goes_on, "a frame waits");
        self.is_waiting &= !may;
        self.oracle.asks &= !goes_on;
        prop_assert!(!self.link.may_go_on(), "once");
        Ok(())
    }

    fn start(&mut self, end: End, size: u16) -> Checked {
        for (register, value) in Driver::registers(NETWORK_CARD, end, size) {
            self.write(end, register, value)?;
        }
        self.drivers[number(end)] = Some(Driver::new(&mut self.link, end, size));
        Ok(())
    }

    /// The oracle sees the memory as it is.
    fn sync(&mut self) {
        for (copy, memory) in self.oracle.memory.iter_mut().zip(&self.link.memory.of) {
            copy.copy_from_slice(memory);
        }
    }

    fn step(&mut self) -> Checked {
        self.sync();
        let before = self.oracle.cards.clone();
        let mut verdict = self.oracle.step();
        let step = self.link.step();
        if let Step::Broken(end) = step
            && verdict.may_break.contains(&end)
        {
            self.oracle.cards = before;
            self.sync();
            verdict.what = What::Broken([end].into());
        }
        match (step, &verdict.what) {
            (Step::Idle, What::Idle) => {}
            (Step::Idle, What::Waits) => {
                self.is_waiting = true;
                let flags = self.link.memory.of[1][USED_FLAGS];
                prop_assert_eq!(flags, 0, "it is to be notified");
            }
            (
                Step::Moved {
                    interrupt_sender,
                    interrupt_receiver,
                },
                What::Done,
            ) => {
                self.is_waiting = false;
                prop_assert_eq!([interrupt_sender, interrupt_receiver], verdict.interrupts);
                for (device, interrupt) in self.link.devices.iter().zip(verdict.interrupts) {
                    let _ = interrupt && device.raise();
                }
            }
            (Step::Broken(end), What::Broken(ends)) => {
                prop_assert!(ends.contains(&end));
                self.is_waiting = false;
                self.oracle.cards[number(end)].needs_reset();
                self.peer_changed(1 - number(end))?;
            }
            (step, what) => prop_assert!(false, "{step:?} instead of {what:?}"),
        }
        // What lies in a buffer that the driver has not got back says nothing.
        let [_, theirs] = &mut self.oracle.memory;
        let ours = &self.link.memory.of[1];
        for at in verdict.undefined {
            if let Some(place) = at.checked_sub(BASE).filter(|&it| it < SIZE) {
                theirs[place as usize] = ours[place as usize];
            }
        }
        prop_assert!(self.oracle.memory == self.link.memory.of, "memory");
        Ok(())
    }

    fn act(&mut self, action: Action) -> Checked {
        match action {
            Action::Start(end, size) => self.start(end, 1 << size)?,
            Action::Reset(end) => self.write(end, STATUS, 0)?,
            Action::NewLife(end) => {
                let device = &self.link.devices[number(end)];
                device.go_down();
                prop_assert!(!device.is_up());
                self.oracle.cards[number(end)].reset();
                self.is_waiting &= self.oracle.cards[0].is_up();
                self.peer_changed(1 - number(end))?;
                self.link.devices[number(end)].finish_reset();
                self.drivers[number(end)] = None;
            }
            Action::Ready(end, is_ready) => self.write(end, QUEUE_READY, is_ready.into())?,
            Action::Write(end, register, value) => {
                self.write(end, register, value)?;
                if let Some(driver) = &mut self.drivers[number(end)] {
                    driver.is_misled |= register == QUEUE_NUM;
                }
            }
            Action::Send(bytes, cuts, empty) => {
                self.frames = self.frames.wrapping_add(1);
                let content: Vec<u8> = (0..bytes).map(|at| self.frames ^ at as u8).collect();
                if let Some(driver) = &mut self.drivers[0] {
                    let parts = cut(bytes as u32, &cuts, empty);
                    driver.add(&mut self.link, &parts, &content);
                }
            }
            Action::Offer(room, cuts, empty) => {
                if let Some(driver) = &mut self.drivers[1] {
                    driver.add(&mut self.link, &cut(room, &cuts, empty), &[]);
                }
            }
            Action::Spoil(end, fault) => {
                if let Some(driver) = &mut self.drivers[number(end)] {
                    driver.spoil(&mut self.link, fault);
                }
            }
            Action::Step => self.step()?,
            Action::Notify => self.notify()?,
            Action::Take(end) => {
                let driver = self.drivers[number(end)].as_mut();
                let _ = driver.and_then(|driver| driver.take(&self.link));
            }
            Action::WantInterrupts(end, wants) => {
                if let Some(driver) = &self.drivers[number(end)] {
                    driver.want_interrupts(&mut self.link, wants);
                }
            }
        }
        for (device, card) in self.link.devices.iter().zip(&self.oracle.cards) {
            prop_assert_eq!(device.is_up(), card.is_up());
            for register in (0..CONFIG).step_by(4) {
                let value = device.read(register, 4, false);
                prop_assert_eq!(
                    value,
                    card.read(register).into(),
                    "register {:#x}",
                    register
                );
            }
        }
        Ok(())
    }
}

proptest! {
    #[test]
    fn the_cards_agree_with_the_oracle(
        sizes in (0..=8_u32, 0..=8_u32),
        actions in prop::collection::vec(any_action(), 1..200),
    ) {
        let mut both = Both::new();
        both.act(Action::Start(End::Sender, sizes.0))?;
        both.act(Action::Start(End::Receiver, sizes.1))?;
        for action in actions {
            both.act(action)?;
        }
    }
}

/// The indices of both rings wrap at 65,536, for queues of any two sizes.
#[test]
fn indices_wrap() {
    for sizes in [(0, 0), (8, 3), (2, 8)] {
        let mut both = Both::new();
        let run = |both: &mut Both, action| both.act(action).unwrap();
        run(&mut both, Action::Start(End::Sender, sizes.0));
        run(&mut both, Action::Start(End::Receiver, sizes.1));
        // All but the last frames without the oracle.
        for frame in 0..65_600_u32 {
            let [sender, receiver] = &mut both.drivers;
            let (Some(sender), Some(receiver)) = (sender, receiver) else {
                unreachable!()
            };
            assert!(sender.add(&mut both.link, &[12 + 4], &[frame as u8; 16]));
            assert!(receiver.add(&mut both.link, &[16], &[]));
            if frame < 65_500 {
                assert!(matches!(both.link.step(), Step::Moved { .. }));
                for card in [0, 1] {
                    both.oracle.cards[card].queues[1 - card].done += 1;
                }
            } else {
                both.step().unwrap();
            }
            let [sender, receiver] = &mut both.drivers;
            let taken = [sender, receiver].map(|it| it.as_mut().unwrap().take(&both.link));
            assert_eq!(taken[0], Some(vec![]));
            assert_eq!(taken[1].as_ref().unwrap()[12..], [frame as u8; 4]);
        }
    }
}

/// Up to 24 parts, at both ends.
#[test]
fn the_longest_chain_has_24_parts() {
    for (parts, end) in (1..=26).flat_map(|parts| ENDS.map(|end| (parts, end))) {
        let mut both = Both::new();
        both.act(Action::Start(End::Sender, 8)).unwrap();
        both.act(Action::Start(End::Receiver, 8)).unwrap();
        let empty = |of| if of == end { parts - 1 } else { 0 };
        both.act(Action::Offer(1530, vec![], empty(End::Receiver)))
            .unwrap();
        both.act(Action::Send(100, vec![], empty(End::Sender)))
            .unwrap();
        both.step().unwrap();
        let is_broken = !both.link.devices[number(end)].is_up();
        assert_eq!(is_broken, parts > 24, "{parts} parts");
    }
}
