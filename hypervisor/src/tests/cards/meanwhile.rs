// SPDX-License-Identifier: MIT OR Apache-2.0
//! What happens while another core moves a frame.

use super::*;
use spumone_config::GuestAddr;
use spumone_core::virtio::{End, Memories};

/// A step of a core that lasts for as long as the test likes. It breaks a rule at its end, or finds no frame.
struct Held<'a>(RefCell<&'a mut dyn FnMut()>, Option<u16>);

const BREAKS: Option<u16> = None;
const FINDS_NONE: Option<u16> = Some(0);

impl Memories for Held<'_> {
    fn load16(&self, _: End, _: GuestAddr) -> Option<u16> {
        (self.0.borrow_mut())();
        self.1
    }
    fn load64(&self, _: End, _: GuestAddr) -> Option<u64> {
        None
    }
    fn store16(&mut self, _: End, _: GuestAddr, _: u16) -> Option<()> {
        None
    }
    fn store_pair(&mut self, _: End, _: GuestAddr, _: [u32; 2]) -> Option<()> {
        None
    }
    fn read(&self, _: GuestAddr, _: &mut [u8]) -> Option<()> {
        None
    }
    fn write(&mut self, _: End, _: GuestAddr, _: &[u8]) -> Option<()> {
        None
    }
    fn copy(
        &mut self,
        _: GuestAddr,
        _: GuestAddr,
        _: u32,
        _: impl FnMut() -> bool,
    ) -> Result<u32, End> {
        Err(End::Sender)
    }
}

/// The driver's access is tried again until no core moves a frame of its card.
#[test]
fn a_card_keeps_its_queues_while_a_core_moves_a_frame_of_it() {
    let mut bench = running(2);
    comes_up(&mut bench, 0);
    comes_up(&mut bench, 1);
    let (from, to) = [0, 1].map(|id| bench.machine.guest(GuestId(id))).into();
    let has_queue = || to.virtio[0].read(QUEUE_READY - REGISTERS, 4, true) == 1;
    let mut meanwhile = || {
        write(&mut bench, 1, STATUS, 0);
        assert!(!to.virtio[0].is_up());
        assert!(has_queue(), "a core may be reading it");
    };
    let mut held = Held(RefCell::new(&mut meanwhile), BREAKS);
    let _ = from.outbound[0].step(&from.virtio[0], &to.virtio[0], &mut held, after_a_piece());
    write(&mut bench, 1, STATUS, 0);
    assert!(!has_queue());
}

/// Has a step stop after its first piece of work.
fn after_a_piece() -> impl FnMut() -> bool {
    let mut is_after = false;
    move || core::mem::replace(&mut is_after, true)
}

/// The core that waits to load a guest takes interrupts for more urgent guests meanwhile; and it does not begin to
/// write the guest's memory.
#[test]
fn interrupts_are_taken_while_a_guest_waits_to_be_loaded() {
    let mut bench = beside_an_urgent_guest(1);
    comes_up(&mut bench, 2);
    let life = bench.life(1);
    let machine = bench.machine;
    let (from, to) = (machine.guest(GuestId(2)), machine.guest(GuestId(1)));
    let mut urgent = 0;
    let mut loaded = false;
    let mut meanwhile = || {
        bench.does(1, 0, |cpu| cpu.hvc([psci::SYSTEM_RESET, 0, 0, 0]));
        for _ in 0..50 {
            bench.iterate(1);
        }
        let count = bench.entry(0, 0).count;
        fake::with(|machine| machine.gic.set_line(40, true));
        for _ in 0..200 {
            bench.iterate(1);
        }
        urgent = bench.entry(0, 0).count - count;
        loaded = bench.life(1) != life;
    };
    let mut held = Held(RefCell::new(&mut meanwhile), BREAKS);
    let _ = from.outbound[0].step(&from.virtio[0], &to.virtio[0], &mut held, after_a_piece());
    assert!(!loaded, "its memory is loaded while a core may write to it");
    assert!(urgent > 0, "the urgent guest waits for the loading");
}

/// A core that finds the card of its guest in use by another core moves the frame later, without another notification.
#[test]
fn a_core_that_finds_another_one_moving_a_frame_tries_again() {
    let mut bench = running(2);
    comes_up(&mut bench, 0);
    comes_up(&mut bench, 1);
    offers_receive(&mut bench, 1, 0);
    let [from, to] = [0, 1].map(|id| bench.machine.guest(GuestId(id)));
    let mut meanwhile = || {
        transmits(&mut bench, 0, 0, b"a frame");
        bench.iterations(20);
    };
    let mut held = Held(RefCell::new(&mut meanwhile), FINDS_NONE);
    let _ = from.outbound[0].step(&from.virtio[0], &to.virtio[0], &mut held, after_a_piece());
    bench.iterations(40);
    assert_eq!(received(&mut bench, 1, 0, 7), b"a frame");
}

/// A sender that is preempted while it moves a frame holds back no interrupt: the receiver that runs gets it.
#[test]
fn a_receiver_has_the_interrupt_for_its_frame_while_the_sender_is_preempted() {
    interrupts_the_receiver_of_a_preempted_sender(|_| {});
}

/// A receiver that offers buffers and is preempted by an interrupt for a more urgent guest has the transmitter, which waits for them, woken when it runs
/// again.
#[test]
fn a_transmitter_is_woken_though_the_receiver_is_preempted_meanwhile() {
    let mut preempted = 0;
    for accesses in 0..6 {
        let mut bench = beside_an_urgent_guest(0);
        bench.opens_gic(2, 0, &[LINK_INTERRUPT]);
        comes_up(&mut bench, 1);
        comes_up(&mut bench, 2);
        transmits(&mut bench, 2, 0, b"a frame");
        bench.iterations(20);
        write(&mut bench, 2, INTERRUPT_ACK, u32::MAX);
        bench.does(2, 0, |cpu| cpu.wfi());
        let place = (buffer(RECEIVE, 0), BUFFER as u32);
        puts(&mut bench, 1, RECEIVE, 0, place);
        fake::with(|machine| machine.rises_after_accesses = Some((accesses, 40)));
        let count = bench.entry(0, 0).count;
        write(&mut bench, 1, QUEUE_NOTIFY, RECEIVE);
        bench.iterations(20);
        fake::with(|machine| machine.rises_after_accesses = None);
        if bench.entry(0, 0).count > count {
            preempted += 1;
            bench.does(0, 0, |cpu| {
                cpu.acknowledge();
                cpu.end(50);
                cpu.wfi()
            });
        }
        bench.iterations(40);
        assert_eq!(bench.acknowledges(2, 0), LINK_INTERRUPT);
        bench.iterations(40);
        assert_eq!(received(&mut bench, 1, 0, 7), b"a frame");
    }
    assert_ne!(preempted, 0);
}
