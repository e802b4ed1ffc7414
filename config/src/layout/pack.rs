// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes a plan as the packed form.

use super::{Plan, SYSTEM_ROOM, Source, intid};
use crate::board::{Board, Device};
use crate::check::{resolve_priorities, windows};
use crate::description::{self, Description};
use crate::packed::{
    Guest, Interrupt, KnownDevice, MAX_KNOWN_DEVICES, Mapping, MemoryRange, Quiesce, Scheduler,
    SeedSlot, Segment, System, Uart, Vcpu,
};
use crate::problem::Problem;
use crate::types::{GuestAddr, MAX_PCPUS, PcpuId, PhysAddr, Priority};
use crate::units::{PAGE, align_up};

/// A device tree, as far as packing needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceTree {
    /// Bytes of the blob.
    pub size: u64,
    /// Offset and size of each seed in it, in bytes.
    pub seeds: Vec<(u64, u32)>,
}

/// Bytes that go into the bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload {
    /// The guest whose file it is.
    pub guest: usize,
    /// The file.
    pub source: Source,
    /// Where in that file.
    pub file_offset: u64,
    /// How many bytes.
    pub size: u64,
    /// Where in the bundle.
    pub offset: u64,
}

/// A system and the payloads it names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
    /// What the hypervisor reads.
    pub system: System,
    /// The payloads, by rising offset. Guests with the same file share them.
    pub payloads: Vec<Payload>,
    /// Bytes of the whole bundle.
    pub total_size: u64,
}

/// Packs `plan`; `trees` holds each guest's device tree.
///
/// # Errors
///
/// A device tree larger than the room kept for it, or a list longer than the packed form holds,
/// which the checks should have refused.
pub fn pack(
    description: &Description,
    board: &Board,
    plan: &Plan,
    trees: &[DeviceTree],
) -> Result<Packed, Box<Problem>> {
    let mut bundle = Bundle {
        payloads: Vec::new(),
        end: SYSTEM_ROOM,
    };
    let priorities = resolve_priorities(description);
    let mut guests = heapless::Vec::new();
    for (index, written) in description.guests.iter().enumerate() {
        let (Some(planned), Some(tree), Some(priorities)) = (
            plan.guests.get(index),
            trees.get(index),
            priorities.get(index),
        ) else {
            return Err(limit("guests"));
        };
        if tree.size > planned.device_tree_room {
            let message = format!(
                "the device tree of guest \"{}\" has {} bytes, and {} were kept for it",
                written.name.value, tree.size, planned.device_tree_room
            );
            return Err(Box::new(
                Problem::new("device-tree", message)
                    .at(written.name.span, "this guest")
                    .help("give it fewer devices or shorter bootargs"),
            ));
        }
        let mut segments = Vec::new();
        for load in &planned.loads {
            segments.push(Segment {
                offset: bundle.add(description, index, load.source, load.file_offset, load.size),
                size: load.size,
                destination: load.destination,
            });
        }
        segments.push(Segment {
            offset: bundle.add(description, index, Source::DeviceTree, 0, tree.size),
            size: tree.size,
            destination: planned.device_tree,
        });
        let seeds = tree.seeds.iter().map(|(offset, size)| SeedSlot {
            destination: GuestAddr(planned.device_tree.0 + offset),
            size: *size,
        });
        let guest = Guest {
            name: text(&written.name.value)?,
            vcpus: list(vcpus(written, priorities), "vCPUs")?,
            cores: written
                .all_cores()
                .filter(|core| core.value < MAX_PCPUS as u64)
                .fold(0, |cores, core| cores | 1 << core.value),
            memory: list([planned.memory], "memory ranges")?,
            devices: list(windows(written, board).into_iter().map(identity), "devices")?,
            interrupts: list(interrupts(written, board), "interrupts")?,
            quiesce: list(quiesce(written, board), "quiesce writes")?,
            segments: list(segments, "segments")?,
            entry: planned.entry,
            boot_argument: planned.device_tree.0,
            seeds: list(seeds, "seeds")?,
            console: planned.console,
            gic: planned.gic,
            preempt_count: planned.preempt_count,
        };
        guests.push(guest).map_err(|_| limit("guests"))?;
    }
    let cores = usize::try_from(description.board.cores.value).unwrap_or(usize::MAX);
    let system = System {
        board: crate::packed::Board {
            name: text(&board.name)?,
            core_mpidrs: list(board.mpidrs.iter().copied().take(cores), "cores")?,
            memory: plan.machine,
            hypervisor_memory: MemoryRange { ..plan.hypervisor },
            gic_distributor: PhysAddr(board.gic.distributor),
            gic_redistributor: PhysAddr(board.gic.redistributor),
            uart: Uart {
                base: PhysAddr(board.uart.base),
                interrupt: intid(board.uart.interrupt),
            },
            devices: board
                .devices
                .iter()
                .filter_map(known_device)
                .take(MAX_KNOWN_DEVICES)
                .collect(),
        },
        scheduler: Scheduler {
            policy: description.scheduler.policy.value,
            quantum_us: u32::try_from(description.scheduler.quantum_us.value)
                .map_err(|_| limit("microseconds of the quantum"))?,
            interrupt_priorities: description.scheduler.interrupt_priorities,
            without: description.scheduler.without(),
        },
        guests,
        fixed_seed: description.seed,
    };
    Ok(Packed {
        system,
        payloads: bundle.payloads,
        total_size: bundle.end,
    })
}

/// The bundle as it grows.
struct Bundle {
    payloads: Vec<Payload>,
    end: u64,
}

impl Bundle {
    /// Adds a payload, or finds the same one of an earlier guest; returns its offset.
    fn add(
        &mut self,
        description: &Description,
        guest: usize,
        source: Source,
        file_offset: u64,
        size: u64,
    ) -> u64 {
        let path = |guest: usize| -> Option<&str> {
            let guest = &description.guests[guest];
            match source {
                Source::Image => Some(&guest.image.value),
                Source::Initrd => guest.initrd.as_ref().map(|initrd| initrd.value.as_str()),
                // Each guest's tree is its own.
                Source::DeviceTree => None,
            }
        };
        let same = |old: &&Payload| {
            old.source == source
                && (old.file_offset, old.size) == (file_offset, size)
                && path(old.guest).is_some()
                && path(old.guest) == path(guest)
        };
        if let Some(old) = self.payloads.iter().find(same) {
            return old.offset;
        }
        let offset = self.end;
        self.payloads.push(Payload {
            guest,
            source,
            file_offset,
            size,
            offset,
        });
        self.end = align_up(offset + size, PAGE).unwrap_or(u64::MAX);
        offset
    }
}

fn vcpus(guest: &description::Guest, priorities: &[Priority]) -> Vec<Vcpu> {
    let homes = guest
        .vcpus
        .value
        .iter()
        .filter_map(|home| u8::try_from(home.value).ok());
    homes
        .zip(priorities)
        .map(|(home, priority)| Vcpu {
            home: PcpuId(home),
            priority: *priority,
        })
        .collect()
}

fn identity((start, size): (u64, u64)) -> Mapping {
    Mapping {
        ipa: GuestAddr(start),
        pa: PhysAddr(start),
        size,
    }
}

fn interrupts(guest: &description::Guest, board: &Board) -> Vec<Interrupt> {
    let devices = guest
        .devices
        .iter()
        .filter_map(|name| board.device(&name.value));
    devices
        .flat_map(|device| device.interrupts.iter().map(|id| (*id, device.trigger)))
        .map(|(id, trigger)| Interrupt {
            physical: intid(id),
            guest: intid(id),
            trigger,
        })
        .collect()
}

/// Silences all devices that the guest reaches: stage 2 gives whole pages, so those that share a
/// page with one of its own as well.
fn quiesce(guest: &description::Guest, board: &Board) -> Vec<Quiesce> {
    let windows = windows(guest, board);
    let reached = board.devices.iter().filter(|device| {
        windows
            .iter()
            .any(|&(start, size)| device.base.wrapping_sub(start) < size)
    });
    reached
        .flat_map(|device| device.quiesce.iter().map(|write| (device.base, *write)))
        .map(|(base, (offset, value))| Quiesce {
            register: PhysAddr(base + offset),
            value,
        })
        .collect()
}

fn list<T, const N: usize>(
    items: impl IntoIterator<Item = T>,
    what: &str,
) -> Result<heapless::Vec<T, N>, Box<Problem>> {
    let mut list = heapless::Vec::new();
    for item in items {
        list.push(item).map_err(|_| limit(what))?;
    }
    Ok(list)
}

/// The device as reports name it; `None` where its name is too long for that.
fn known_device(device: &Device) -> Option<KnownDevice> {
    Some(KnownDevice {
        name: text(&device.name).ok()?,
        base: PhysAddr(device.base),
        size: device.size,
    })
}

fn text<const N: usize>(text: &str) -> Result<heapless::String<N>, Box<Problem>> {
    heapless::String::try_from(text).map_err(|_| limit("letters of a name"))
}

fn limit(what: &str) -> Box<Problem> {
    Box::new(Problem::new(
        "limit",
        format!("too many {what} for the packed form"),
    ))
}
