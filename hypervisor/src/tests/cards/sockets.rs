// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links of sockets: their packets, and what a guest is told of its peer's end.

use super::*;

const EVENT: u32 = 2;
const DEVICE_ID: u64 = REGISTERS + 0x08;
const GUEST_CID: u64 = REGISTERS + 0x100;

/// Two guests with a link of sockets, on a core each, whose drivers have started.
fn connected() -> Bench {
    let guests = [GuestParts::new(&[(0, 20)]), GuestParts::new(&[(1, 10)])];
    let mut system = system(2, Policy::None, &guests);
    add_socket_link(&mut system, 0, 1);
    let mut bench = Bench::boot(&system);
    bench.until_all_run();
    comes_up(&mut bench, 1);
    comes_up(&mut bench, 0);
    bench
}

/// The driver of guest 0 offers a buffer for an event.
fn offers_event(bench: &mut Bench, number: u16) {
    let (at, length) = (buffer(EVENT, number), 4_u32);
    let mut descriptor = at.to_le_bytes().to_vec();
    descriptor.extend(length.to_le_bytes());
    descriptor.extend([2, 0, 0, 0]);
    let slot = u64::from(number) % u64::from(SIZE);
    write_memory(bench, 0, descriptors(EVENT) + 16 * slot, descriptor);
    let entry = (slot as u16).to_le_bytes().to_vec();
    write_memory(bench, 0, available(EVENT) + 4 + 2 * slot, entry);
    let index = (number + 1).to_le_bytes().to_vec();
    write_memory(bench, 0, available(EVENT) + 2, index);
    write(bench, 0, QUEUE_NOTIFY, EVENT);
}

#[test]
fn a_packet_reaches_the_peer_of_whom_it_is() {
    let mut bench = connected();
    bench.opens_gic(1, 0, &[LINK_INTERRUPT]);
    assert_eq!(read(&mut bench, 0, DEVICE_ID), 19);
    assert_eq!(read(&mut bench, 0, GUEST_CID), 3);
    assert_eq!(read(&mut bench, 1, GUEST_CID), 4);
    offers_receive(&mut bench, 1, 0);
    // A packet of two bytes, to the context of guest 1.
    let mut packet = [0; 46];
    packet[8] = 4;
    packet[24] = 2;
    packet[44..].copy_from_slice(b"ok");
    let at = buffer(TRANSMIT, 0);
    write_memory(&mut bench, 0, at, packet.to_vec());
    offers(&mut bench, 0, TRANSMIT, 0, (at, 46));
    assert_eq!(bench.acknowledges(1, 0), LINK_INTERRUPT);
    assert_eq!(given_back(&mut bench, 1, RECEIVE), (1, 46));
    let at = buffer(RECEIVE, 0);
    packet[0] = 3;
    let received = bench.look(1, 0, move |cpu| cpu.read_memory(at, 46));
    assert_eq!(received, packet);
}

/// By an event, at once or when there is a buffer for it, whatever vCPU of the guest sleeps.
#[test]
fn a_guest_is_told_when_its_peer_restarts() {
    for has_buffer in [true, false] {
        let mut bench = connected();
        bench.opens_gic(0, 0, &[LINK_INTERRUPT]);
        write_memory(&mut bench, 0, available(EVENT), [0; 0x800].to_vec());
        write(&mut bench, 0, QUEUE_SEL, EVENT);
        write(&mut bench, 0, QUEUE_NUM, SIZE);
        for (register, area) in [
            (QUEUE_DESC, descriptors(EVENT)),
            (QUEUE_DRIVER, available(EVENT)),
            (QUEUE_DEVICE, used(EVENT)),
        ] {
            write(&mut bench, 0, register, area as u32);
            write(&mut bench, 0, register + 4, (area >> 32) as u32);
        }
        write(&mut bench, 0, QUEUE_READY, 1);
        write(&mut bench, 0, INTERRUPT_ACK, u32::MAX);
        if has_buffer {
            offers_event(&mut bench, 0);
        }
        bench.does(0, 0, |cpu| cpu.wfi());
        bench.does(1, 0, |cpu| cpu.hvc([psci::SYSTEM_RESET, 0, 0, 0]));
        assert_eq!(bench.acknowledges(0, 0), LINK_INTERRUPT);
        if !has_buffer {
            assert_eq!(given_back(&mut bench, 0, EVENT), (0, 0));
            offers_event(&mut bench, 0);
        }
        bench.iterations(20);
        assert_eq!(given_back(&mut bench, 0, EVENT), (1, 4), "{has_buffer}");
    }
}

/// `virtio_vsock_hdr` of a request of guest 0 to this context, from port 7 to port 9.
fn request(target: u8) -> [u8; 44] {
    let mut packet = [0; 44];
    packet[8] = target;
    (packet[16], packet[20]) = (7, 9);
    (packet[28], packet[30]) = (1, 1);
    packet
}

/// The answer: no such socket.
fn refusal(source: u8) -> [u8; 44] {
    let mut packet = [0; 44];
    (packet[0], packet[8]) = (source, 3);
    (packet[16], packet[20]) = (9, 7);
    (packet[28], packet[30]) = (1, 3);
    packet
}

fn sends(bench: &mut Bench, number: u16, packet: [u8; 44]) {
    let at = buffer(TRANSMIT, number);
    write_memory(bench, 0, at, packet.to_vec());
    offers(bench, 0, TRANSMIT, number, (at, 44));
}

fn answered(bench: &mut Bench, number: u16) -> Vec<u8> {
    let at = buffer(RECEIVE, number);
    bench.look(0, 0, move |cpu| cpu.read_memory(at, 44))
}

/// By an interrupt, though the peer's core does nothing meanwhile: the guest's own vCPU answers it.
#[test]
fn a_guest_is_answered_at_once_that_its_peer_is_down() {
    let mut bench = connected();
    bench.opens_gic(0, 0, &[LINK_INTERRUPT]);
    bench.does(1, 0, |cpu| cpu.hvc([psci::SYSTEM_OFF, 0, 0, 0]));
    bench.until("it has stopped", |bench| {
        matches!(bench.phase(1), Phase::Stopped(_))
    });
    write(&mut bench, 0, INTERRUPT_ACK, u32::MAX);
    offers_receive(&mut bench, 0, 0);
    sends(&mut bench, 0, request(4));
    for _ in 0..20 {
        bench.iterate(0);
    }
    assert_eq!(given_back(&mut bench, 0, RECEIVE), (1, 44));
    assert_eq!(given_back(&mut bench, 0, TRANSMIT), (1, 0));
    assert_eq!(answered(&mut bench, 0), refusal(4));
    assert_eq!(bench.acknowledges(0, 0), LINK_INTERRUPT);
    assert_eq!(
        read(&mut bench, 0, INTERRUPT_STATUS) & USED_BUFFER,
        USED_BUFFER
    );
}

/// To a context that is not the peer's; and when the guest has a buffer for the answer, not before.
#[test]
fn an_answer_waits_until_its_guest_has_a_buffer() {
    let mut bench = connected();
    offers_receive(&mut bench, 1, 0);
    for number in 0..2 {
        sends(&mut bench, number, request(2));
    }
    bench.iterations(40);
    assert_eq!(given_back(&mut bench, 0, TRANSMIT), (0, 0));
    for number in 0..2 {
        offers_receive(&mut bench, 0, number);
        bench.iterations(40);
        assert_eq!(given_back(&mut bench, 0, RECEIVE), (number + 1, 44));
        assert_eq!(given_back(&mut bench, 0, TRANSMIT).0, number + 1);
        assert_eq!(answered(&mut bench, number), refusal(2));
    }
    assert_eq!(given_back(&mut bench, 1, RECEIVE), (0, 0));
}
