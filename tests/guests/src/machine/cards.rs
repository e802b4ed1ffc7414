// SPDX-License-Identifier: MIT OR Apache-2.0
//! The virtio devices of this guest's links (Virtio 1.2, section 4.2; docs/links.md): its registers and its queues, to be used well or badly.

use super::bootargs;
use super::mmio::{read16, write16, write32, write64};
use super::virtio::{Device, register};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, Ordering};
use dtoolkit::fdt::Fdt;
use dtoolkit::{Node, Property};

/// Entries of each queue.
pub const ENTRIES: u16 = 256;
/// The queue of what this guest receives, and that of what it transmits.
pub const RECEIVES: u32 = 0;
pub const TRANSMITS: u32 = 1;
/// Queues of a device: a socket device has one for events, too.
const QUEUES: u32 = 3;
/// Descriptor flags (section 2.7.5): another part follows, and the device writes to it.
pub const NEXT: u16 = 1 << 0;
pub const WRITE: u16 = 1 << 1;
/// Bytes of a device's buffers: half for what it transmits, and half for what it receives. All chains of a queue are over the same half.
pub const BUFFER_SIZE: u64 = 0x2_0000;

/// `DeviceID` of a socket device.
const SOCKET: u32 = 19;
/// Features in the lower half: of a socket device `VIRTIO_VSOCK_F_STREAM`; of a network card checksums, segments of TCP, and receive buffers that
/// each take a part of a frame (`CSUM`, `GUEST_CSUM`, `GUEST_TSO4`, `GUEST_TSO6`, `HOST_TSO4`, `HOST_TSO6`, `MRG_RXBUF`).
const STREAM: u32 = 1 << 0;
const OFFLOADS: u32 = 1 << 0 | 1 << 1 | 1 << 7 | 1 << 8 | 1 << 11 | 1 << 12 | 1 << 15;
/// Offset of the operation in the header of a packet, and `VIRTIO_VSOCK_OP_RW`: it has data (section 5.10.6).
const OPERATION: u64 = 30;
const DATA: u16 = 5;
/// `InterruptACK`: all causes.
const ALL_CAUSES: u32 = 0b11;

/// Most devices that this program drives.
const MAX_CARDS: usize = 2;
/// Where the parts of a queue are in its memory, and the bytes of that.
const DRIVER_AREA: u64 = 0x1000;
const DEVICE_AREA: u64 = 0x2000;
const QUEUE_SIZE: u64 = 0x3000;
const QUEUES_SIZE: u64 = QUEUE_SIZE * QUEUES as u64;
const AREA_SIZE: usize = (QUEUES_SIZE + BUFFER_SIZE) as usize;
/// Offset of the index in the driver's and in the device's area, and of the first entry.
const INDEX: u64 = 2;
const FIRST: u64 = 4;
const DESCRIPTOR_SIZE: u64 = 16;

/// Memory of the queues and buffers of a device.
#[repr(C, align(4096))]
struct Area(UnsafeCell<[u8; AREA_SIZE]>);

// SAFETY: only its address is taken. Its contents are read and written with the accesses of `mmio`, by all CPUs and by the device.
unsafe impl Sync for Area {}

static AREAS: [Area; MAX_CARDS] = [const { Area(UnsafeCell::new([0; AREA_SIZE])) }; MAX_CARDS];

/// A descriptor.
#[derive(Clone, Copy)]
pub struct Descriptor {
    /// The guest-physical address of the part.
    pub address: u64,
    /// Its bytes.
    pub length: u32,
    /// [`NEXT`], [`WRITE`].
    pub flags: u16,
    /// The next part of the chain.
    pub next: u16,
}

/// A device.
#[derive(Clone, Copy)]
pub struct Card {
    device: Device,
    area: u64,
}

/// The addresses of the devices' registers; 0: there is no such device.
static REGISTERS: [AtomicU64; MAX_CARDS] = [const { AtomicU64::new(0) }; MAX_CARDS];

/// Finds the first [`MAX_CARDS`] devices in the device tree. Before [`all`].
pub fn find() {
    let Some(tree) = bootargs::tree() else {
        return;
    };
    for (place, registers) in REGISTERS.iter().enumerate() {
        registers.store(
            registers_of(&tree, place).unwrap_or_default(),
            Ordering::Relaxed,
        );
    }
}

/// The devices that were found.
pub fn all() -> impl Iterator<Item = Card> + Clone {
    let cards = REGISTERS.iter().zip(&AREAS).map(|(registers, area)| Card {
        device: Device(registers.load(Ordering::Relaxed)),
        area: area.0.get() as u64,
    });
    cards.filter(|card| card.registers() != 0)
}

fn registers_of(tree: &Fdt<'static>, place: usize) -> Option<u64> {
    let mut nodes = tree
        .root()
        .children()
        .filter(|node| node.name().starts_with("virtio_mmio"));
    let node = nodes.nth(place)?;
    let property = node.property("reg")?;
    let (start, _) = property.value().split_first_chunk::<8>()?;
    Some(u64::from_be_bytes(*start))
}

impl Card {
    /// Whether it is a socket device; else it is a network card.
    pub fn is_socket(&self) -> bool {
        self.device.read(register::DEVICE_ID) == SOCKET
    }

    /// The address of its registers.
    pub fn registers(&self) -> u64 {
        self.device.0
    }

    /// A word of its configuration: of a socket device, the first one is this guest's context identifier.
    pub fn configuration(&self) -> u32 {
        self.device.read(register::CONFIG)
    }

    /// Whether it is up, and has found no fault of its driver.
    pub fn is_up(&self) -> bool {
        self.device.is_up()
    }

    /// Turns it off.
    pub fn reset(&self) {
        self.device.write(register::STATUS, 0);
    }

    /// Resets it, and sets it up with empty queues.
    pub fn start(&self) {
        let is_socket = self.is_socket();
        self.device.begin(if is_socket { STREAM } else { OFFLOADS });
        for queue in 0..QUEUES - u32::from(!is_socket) {
            let area = self.queue(queue);
            let areas = [area, area + DRIVER_AREA, area + DEVICE_AREA];
            for index in &areas[1..] {
                write32(*index, 0);
            }
            self.device.set_queue(queue, ENTRIES.into(), areas);
        }
        self.device.end();
    }

    fn queue(&self, queue: u32) -> u64 {
        self.area + QUEUE_SIZE * u64::from(queue % QUEUES)
    }

    /// The buffer of what a queue transmits or receives, of [`BUFFER_SIZE`] / 2 bytes.
    pub fn buffer(&self, queue: u32) -> u64 {
        self.area + QUEUES_SIZE + BUFFER_SIZE / 2 * u64::from(queue & 1)
    }

    /// Writes a descriptor.
    pub fn describe(&self, queue: u32, index: u16, descriptor: Descriptor) {
        let Descriptor {
            address,
            length,
            flags,
            next,
        } = descriptor;
        let at = self.queue(queue) + DESCRIPTOR_SIZE * u64::from(index % ENTRIES);
        write64(at, address);
        write32(at + 8, length);
        write16(at + 12, flags);
        write16(at + 14, next);
    }

    /// How many chains have been offered.
    pub fn offered(&self, queue: u32) -> u16 {
        read16(self.queue(queue) + DRIVER_AREA + INDEX)
    }

    /// How many chains the device has used.
    pub fn used(&self, queue: u32) -> u16 {
        read16(self.queue(queue) + DEVICE_AREA + INDEX)
    }

    /// Whether a peer has sent what was received last: a packet with data, or any frame. EL2 itself sends packets without data.
    pub fn has_received(&self) -> bool {
        let operation = read16(self.buffer(0) + OPERATION);
        !self.is_socket() || operation == DATA
    }

    /// How many chains have been offered and not been used yet.
    pub fn outstanding(&self, queue: u32) -> u16 {
        self.offered(queue).wrapping_sub(self.used(queue))
    }

    /// Offers the chain that begins with this descriptor, and says that `count` have been offered more than before.
    pub fn offer(&self, queue: u32, head: u16, count: u16) {
        let area = self.queue(queue) + DRIVER_AREA;
        let index = self.offered(queue);
        write16(area + FIRST + 2 * u64::from(index % ENTRIES), head);
        super::sysreg::barrier();
        write16(area + INDEX, index.wrapping_add(count));
    }

    /// Notifies the device of a queue.
    pub fn notify(&self, queue: u32) {
        self.device.write(register::QUEUE_NOTIFY, queue);
    }

    /// Takes its interrupt back.
    pub fn acknowledge(&self) {
        self.device.write(register::INTERRUPT_ACK, ALL_CAUSES);
    }
}
