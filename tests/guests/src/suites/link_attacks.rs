// SPDX-License-Identifier: MIT OR Apache-2.0
//! Attacks of the suite `attack` on links: a memory link (link 0), and the cards and socket devices of the others. A guest at the other end may
//! run the same attack.

use crate::machine::cards::{
    self, BUFFER_SIZE, Card, Descriptor, ENTRIES, NEXT, RECEIVES, TRANSMITS, WRITE,
};
use crate::machine::interrupts::take_pending;
use crate::machine::mmio::{read32, write16, write32, write64};
use crate::machine::random::Random;
use crate::machine::sysreg::cpu;
use crate::machine::time::now;
use crate::machine::{cpus, gic};
use crate::victim_link::REGISTERS;
use core::sync::atomic::{AtomicU16, Ordering};

/// What a CPU does again and again; it may draw random numbers.
pub type Attack = fn(&mut Random);

/// The attacks by name.
pub const ATTACKS: &[(&str, Attack)] = &[
    ("link-signals", |_| {
        write32(REGISTERS + SIGNAL, 1);
        take_pending();
    }),
    ("link-registers", registers),
    ("frames", |random| exchange(random, false)),
    ("packets", |random| exchange(random, true)),
    ("broken-chains", break_chains),
    ("card-resets", reset),
];

/// The most receive buffers that a device has used after it was set up.
static RECEIVED: AtomicU16 = AtomicU16::new(0);

/// An exchange that has received fewer does not flow.
const LEAST_RECEIVED: u16 = 100;
/// Links: a memory link, a network link and a vsock link.
const LINKS: usize = 3;
/// Registers of a memory link.
const SIGNAL: u64 = 0x18;
const ACK: u64 = 0x1C;
/// Bytes of the registers of each device.
const FRAME: u64 = 0x1000;
/// Bytes of the headers of a frame and of a packet, and of their largest contents: of a frame without offloads, of one with them, and of a
/// packet of a socket.
const FRAME_HEADER: u64 = 12;
const PLAIN_FRAME: u64 = 1_514;
const LARGEST_FRAME: u64 = 65_000;
const PACKET_HEADER: u64 = 44;
const LARGEST_PACKET: u64 = 65_536;
/// The parts of a chain, one of these after the other. EL2 takes at most 24: more break the rules.
const PARTS: [u16; 8] = [1, 2, 3, 4, 8, 16, 24, 25];

/// The first INTID of the devices of links.
const FIRST_INTERRUPT: u32 = 80;

/// Finds the devices, and enables the interrupts of the links: each is routed to another CPU.
pub fn prepare() {
    cards::find();
    if !has_links() {
        return;
    }
    for link in 0..LINKS {
        let interrupt = FIRST_INTERRUPT + link as u32;
        gic::start_spi(interrupt);
        gic::set_edge(interrupt, false);
        gic::route(interrupt, link % cpus::count());
    }
}

fn has_links() -> bool {
    cards::all().next().is_some()
}

/// Whether the attack has done what it is for: an exchange has received frames or packets.
pub fn has_effect(kind: &str) -> bool {
    !["frames", "packets"].contains(&kind) || RECEIVED.load(Ordering::Relaxed) >= LEAST_RECEIVED
}

/// Takes back all interrupts of the devices of links.
pub fn acknowledge() {
    if has_links() {
        write32(REGISTERS + ACK, 1);
        cards::all().for_each(|card| card.acknowledge());
    }
}

/// Reads or writes any register of any device of a link.
fn registers(random: &mut Random) {
    // Random values would hardly ever set a device up.
    if random.below(64) == 0 {
        cards::all().for_each(|card| card.start());
    }
    let devices = core::iter::once(REGISTERS);
    let devices = devices.chain(cards::all().map(|card| card.registers()));
    let count = devices.clone().count() as u64;
    let Some(base) = devices.clone().nth(random.below(count) as usize) else {
        return;
    };
    // Most registers have low offsets.
    let size = if random.below(2) == 0 { 0x120 } else { FRAME };
    let address = base + (random.below(size) & !3);
    if random.below(2) == 0 {
        read32(address);
    } else {
        write32(address, random.next() as u32 & random.next() as u32);
    }
}

/// Each device of this kind transmits and receives without end, with chains of many parts of any size.
fn exchange(random: &mut Random, by_socket: bool) {
    for card in cards::all().filter(|card| card.is_socket() == by_socket) {
        if !is_ready(&card) {
            continue;
        }
        // One CPU offers chains in each queue. The others notify the device only.
        for queue in [RECEIVES, TRANSMITS] {
            if cpu() != queue as usize {
                card.notify(queue);
                continue;
            }
            let total = match (by_socket, queue) {
                (false, TRANSMITS) => frame(&card, random),
                // The smaller ones have room for a part of a large frame only.
                (false, _) => FRAME_HEADER + 256 + random.below(4_096),
                (true, TRANSMITS) => packet(&card, random),
                (true, _) => PACKET_HEADER + 1 + random.below(4_096),
            };
            offer(&card, queue, total);
        }
        if card.has_received() {
            RECEIVED.fetch_max(card.used(RECEIVES), Ordering::Relaxed);
        }
    }
    take_pending();
}

/// Whether the device can be used. If not, CPU 0 sets it up.
fn is_ready(card: &Card) -> bool {
    let is_up = card.is_up();
    if !is_up && cpu() == 0 {
        card.start();
        return true;
    }
    is_up
}

/// Offers a chain over so many bytes of the queue's buffer, if there is room in the queue. How many parts a chain has changes with time.
fn offer(card: &Card, queue: u32, total: u64) {
    let parts = PARTS[(now() >> 18) as usize % PARTS.len()];
    if card.outstanding(queue) < ENTRIES / parts {
        let head = card.offered(queue) % (ENTRIES / parts) * parts;
        let flags = if queue == RECEIVES { WRITE } else { 0 };
        let length = total.div_ceil(parts.into());
        for part in 0..parts {
            let is_last = part + 1 == parts;
            let at = card.buffer(queue) + length * u64::from(part);
            let descriptor = Descriptor {
                address: at,
                length: length as u32,
                flags: flags | if is_last { 0 } else { NEXT },
                next: head + part + 1,
            };
            card.describe(queue, head + part, descriptor);
        }
        card.offer(queue, head, 1);
    }
    card.notify(queue);
}

/// Writes the header of a frame, and returns the bytes of both. It may be a segment of TCP that is still to be cut.
fn frame(card: &Card, random: &mut Random) -> u64 {
    /// `VIRTIO_NET_HDR_F_NEEDS_CSUM`, and in the next byte `VIRTIO_NET_HDR_GSO_TCPV4` (section 5.1.6).
    const LARGE: u32 = 1 | 1 << 8;
    let (kind, most) = match random.below(4) {
        0 => (LARGE, LARGEST_FRAME),
        1 => (random.next() as u32, PLAIN_FRAME),
        _ => (0, PLAIN_FRAME),
    };
    let buffer = card.buffer(TRANSMITS);
    write32(buffer, kind);
    write64(buffer + 4, random.next());
    FRAME_HEADER + random.below(most)
}

/// Writes the header of a packet, and returns the bytes of both. Now and then what the header says is wrong.
fn packet(card: &Card, random: &mut Random) -> u64 {
    let bytes = match random.below(4) {
        0 => 0,
        1 => random.below(LARGEST_PACKET - PACKET_HEADER),
        _ => random.below(2_048),
    };
    let own = card.configuration();
    let peer = match random.below(8) {
        0 => random.next(),
        // The guest before this one, or the one after it: one of both is the peer.
        _ => u64::from(own) - 1 + 2 * random.below(2),
    };
    let operation = 1 + random.below(8) as u16;
    let buffer = card.buffer(TRANSMITS);
    write64(buffer, own.into());
    write64(buffer + 8, peer);
    write64(buffer + 16, random.next());
    let said = if random.below(8) == 0 {
        random.next()
    } else {
        bytes
    };
    write32(buffer + 24, said as u32);
    write16(buffer + 28, 1 + random.below(2) as u16);
    write16(buffer + 30, operation);
    write32(buffer + 32, random.below(4) as u32);
    write64(buffer + 36, random.next());
    PACKET_HEADER + bytes
}

/// Writes anything to descriptors and rings of each device.
fn break_chains(random: &mut Random) {
    /// Also that of a table of descriptors, which EL2 does not offer.
    const ANY_FLAGS: u16 = 0b111;
    for card in cards::all() {
        if !is_ready(&card) {
            continue;
        }
        take_pending();
        let queue = random.below(3) as u32;
        let address = match random.below(16) {
            0 => random.next(),
            _ => card.buffer(queue) + random.below(BUFFER_SIZE / 2),
        };
        let length = match random.below(16) {
            0 => random.next() as u32,
            1..4 => 0,
            _ => random.below(2_048) as u32,
        };
        let wrong = if random.below(16) == 0 {
            random.next()
        } else {
            0
        };
        let mut flags = if queue == RECEIVES { WRITE } else { 0 };
        if random.below(2) == 0 {
            flags |= NEXT;
        }
        let descriptor = Descriptor {
            address,
            length,
            flags: flags | wrong as u16 & ANY_FLAGS,
            next: random.below(u64::from(ENTRIES) + u64::from(wrong != 0)) as u16,
        };
        card.describe(queue, random.below(ENTRIES.into()) as u16, descriptor);
        if random.below(4) == 0 {
            let count = if random.below(64) == 0 {
                random.next() as u16
            } else {
                1
            };
            card.offer(queue, random.below(u64::from(ENTRIES)) as u16, count);
            card.notify(queue);
        }
    }
}

/// Resets each device again and again, while it and its peer move what they have.
fn reset(random: &mut Random) {
    exchange(random, false);
    exchange(random, true);
    if random.below(16) == 0 {
        for card in cards::all() {
            card.reset();
        }
    }
}
