// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes a plan as the packed form.

use super::{GuestPlan, Plan, SYSTEM_ROOM, Source, el2, intid, spis, tables};
use crate::bands::Bands;
use crate::board::{self, Board, Device};
use crate::check::{resolve_priorities, windows};
use crate::description::{self, Description, Ended, Tampered};
use crate::packed::{
    Content, Guest, Hash, Interrupt, KnownDevice, LEAF, Local, MAX_KNOWN_DEVICES, MemoryRange,
    OnStop, OnTamper, Part, Policy, Power, Protect, Quiesce, RestartLimit, Scheduler, Sections,
    SeedSlot, Segment, System, Uart, Vcpu, WakeEarly,
};
use crate::problem::Problem;
use crate::roles::{self, Member};
use crate::stage2::VTCR;
use crate::types::{Band, GuestAddr, GuestId, PcpuId, PhysAddr, Priority, VcpuId};
use crate::units::{PAGE, SECOND_US, align_up};

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
    /// What the hypervisor reads. Its hashes are zero until the bundle is [sealed](crate::seal::seal).
    pub system: System,
    /// The payloads, by rising offset. Guests with the same file share them.
    pub payloads: Vec<Payload>,
    /// The guests' stage 2 tables and EL2's own, behind the payloads.
    pub tables: TablePages,
    /// Where the bundle begins.
    pub address: PhysAddr,
    /// Bytes of the whole bundle.
    pub total_size: u64,
}

/// Finished pages of translation tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TablePages {
    /// Where in the bundle.
    pub offset: u64,
    /// The pages.
    pub bytes: Vec<u8>,
}

/// Packs `plan`; `trees` holds each guest's device tree, `sections` says where the hypervisor's parts are.
///
/// # Errors
///
/// A device tree larger than the room kept for it; or what the checks should have refused: a list
/// longer than the packed form holds, or a range that stage 2 cannot map.
pub fn pack(
    description: &Description,
    board: &Board,
    plan: &Plan,
    trees: &[DeviceTree],
    sections: &Sections,
) -> Result<Packed, Box<Problem>> {
    let mut bundle = Bundle {
        payloads: Vec::new(),
        end: SYSTEM_ROOM,
    };
    let priorities = resolve_priorities(description);
    let bands = Bands::from_priorities(priorities.iter().flatten().copied())
        .map_err(|_| limit("priorities"))?;
    let policy = description.scheduler.policy.value;
    let mapped: Vec<_> = plan
        .guests
        .iter()
        .map(|guest| tables::Mapped {
            memory: guest.memory,
            links: &guest.links,
            read_only: guest.protected.as_ref().map_or(&[], |it| &it.read_only),
            local: guest.protected.as_ref().and_then(|it| it.local),
        })
        .collect();
    let mut segments = segments(description, plan, trees, &mut bundle)?;
    bundle.add_lists(segments.iter_mut().flatten());
    let locals: Vec<_> = plan.guests.iter().map(|it| bundle.add_local(it)).collect();
    let behind = PhysAddr(plan.bundle.0 + bundle.end);
    let (stage2, mut pages) = tables::build(description, board, &mapped, behind, plan.hypervisor)?;
    let mut next_vcpu = 0;
    let mut guests: heapless::Vec<Guest, _> = heapless::Vec::new();
    for (index, written) in description.guests.iter().enumerate() {
        let (Some(planned), Some(tree), Some(priorities), Some(segments), Some(&stage2)) = (
            plan.guests.get(index),
            trees.get(index),
            priorities.get(index),
            segments.get(index),
            stage2.get(index),
        ) else {
            return Err(limit("guests"));
        };
        let seeds = tree.seeds.iter().map(|(offset, size)| SeedSlot {
            destination: GuestAddr(planned.device_tree.0 + offset),
            size: *size,
        });
        let vcpus = vcpus(written, priorities, &bands, &mut next_vcpu);
        let band = vcpus.iter().map(|vcpu| vcpu.band).max();
        let id = GuestId(u8::try_from(index).unwrap_or(u8::MAX));
        let guest = Guest {
            name: text(&written.name.value)?,
            band: band.unwrap_or(Band::LOWEST),
            on_fault: written.on_fault.map(|it| it.value).unwrap_or_default(),
            on_stop: on_stop(written),
            protect: protect(written, planned, locals.get(index).copied().flatten())?,
            watchdog_s: match &written.watchdog_us {
                Some(longest) => u16::try_from(longest.value / SECOND_US)
                    .map_err(|_| limit("seconds of a watchdog"))?,
                None => 0,
            },
            wake_early: wake_early(written, band.unwrap_or(Band::LOWEST)),
            sets_power: written.sets_power.is_some_and(|it| it.value),
            stolen_time: tables::stolen_time(written, board, plan.hypervisor, id),
            vcpus: list(vcpus, "vCPUs")?,
            cores: written.core_set(),
            moves: written.moves(policy),
            stage2,
            memory: list([planned.memory], "memory ranges")?,
            devices: list(tables::devices(written, board), "devices")?,
            interrupts: list(interrupts(written, board), "interrupts")?,
            quiesce: list(quiesce(written, board), "quiesce writes")?,
            segments: list(segments.iter().copied(), "segments")?,
            entry: planned.entry,
            boot_argument: planned.device_tree.0,
            seeds: list(seeds, "seeds")?,
            console: planned.console,
            gic: planned.gic,
            links: list(planned.links.iter().copied(), "links")?,
            preempt_count: planned.preempt_count,
        };
        guests.push(guest).map_err(|_| limit("guests"))?;
    }
    let stage2_size = pages.len() as u64 * PAGE;
    let cores = usize::try_from(description.board.cores.value).unwrap_or(usize::MAX);
    let core_mpidrs: heapless::Vec<_, _> = list(board.mpidrs.iter().copied().take(cores), "cores")?;
    let el2_tables = el2::build(
        board,
        core_mpidrs.len(),
        plan,
        sections,
        &guests,
        &mut pages,
    )
    .map_err(|error| {
        let message = format!("the hypervisor's own memory cannot be mapped: {error}");
        Problem::new("el2-map", message)
    })?;
    let tables = TablePages {
        offset: pages.base().0 - plan.bundle.0,
        bytes: pages.to_bytes(),
    };
    // The room that was kept is an upper bound. Behind it guests' memory may begin, which must not hold their own tables.
    let end = pages.base().0 + tables.bytes.len() as u64;
    if end > plan.hypervisor.start.0 + plan.hypervisor.size {
        return Err(limit("translation tables"));
    }
    let members = members(&guests);
    let power = power(description, board, &guests, &members);
    let stay = power.map_or((1 << core_mpidrs.len()) - 1, |it| it.stay);
    let roles = roles::of_cores(policy, stay, &members);
    // Of both the hash is not known yet.
    let part = |offset, size| Part {
        offset: tables.offset + offset,
        size,
        hash: Hash::default(),
    };
    let el2_size = tables.bytes.len() as u64 - stage2_size;
    let system = System {
        version: description.version,
        stage2_pages: part(0, stage2_size),
        el2_pages: part(stage2_size, el2_size),
        keyboard: keyboard(&guests),
        roles,
        power,
        link_memory: plan.link_memory,
        spis: list(spis::of(&guests, board), "interrupts")?,
        board: crate::packed::Board {
            name: text(&board.name)?,
            core_mpidrs,
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
            policy,
            quantum_us: u32::try_from(description.scheduler.quantum_us.value)
                .map_err(|_| limit("microseconds of the quantum"))?,
            interrupt_priorities: description.scheduler.interrupt_priorities,
            without: description.scheduler.without(),
        },
        guests,
        sections: sections.clone(),
        vtcr: VTCR,
        el2_tables,
        fixed_seed: description.seed,
    };
    Ok(Packed {
        system,
        payloads: bundle.payloads,
        total_size: tables.offset + tables.bytes.len() as u64,
        tables,
        address: plan.bundle,
    })
}

/// What is copied into each guest's memory: its files, and its device tree as the last.
fn segments(
    description: &Description,
    plan: &Plan,
    trees: &[DeviceTree],
    bundle: &mut Bundle,
) -> Result<Vec<Vec<Segment>>, Box<Problem>> {
    let mut guests = Vec::new();
    for (index, (planned, tree)) in plan.guests.iter().zip(trees).enumerate() {
        let Some(written) = description.guests.get(index) else {
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
            let offset = bundle.add(description, index, load.source, load.file_offset, load.size);
            segments.push(segment(offset, load.size, load.destination, load.source));
        }
        let offset = bundle.add(description, index, Source::DeviceTree, 0, tree.size);
        let (source, destination) = (Source::DeviceTree, planned.device_tree);
        segments.push(segment(offset, tree.size, destination, source));
        guests.push(segments);
    }
    Ok(guests)
}

/// A segment whose list has no place yet.
fn segment(offset: u64, size: u64, destination: GuestAddr, source: Source) -> Segment {
    Segment {
        offset,
        size,
        destination,
        content: match source {
            Source::Image => Content::Image,
            Source::Initrd => Content::Initrd,
            Source::DeviceTree => Content::DeviceTree,
        },
        list: 0,
        list_hash: Hash::default(),
    }
}

/// The bundle as it grows.
struct Bundle {
    payloads: Vec<Payload>,
    end: u64,
}

/// Bytes kept for the hashes of all pages of a guest with so much memory: whole pages.
pub(super) const fn local_list(memory: u64) -> u64 {
    (memory / PAGE * Hash::SIZE as u64).next_multiple_of(PAGE)
}

/// How often a guest may start again, where it does.
fn restarts(guest: &description::Guest) -> RestartLimit {
    guest
        .restarts
        .map_or(description::DEFAULT_RESTARTS, |it| it.value)
}

/// What of a guest's memory must not change.
fn protect(
    guest: &description::Guest,
    planned: &GuestPlan,
    local: Option<Local>,
) -> Result<Option<Protect>, Box<Problem>> {
    let (Some(protect), Some(protected)) = (&guest.protect, &planned.protected) else {
        return Ok(None);
    };
    Ok(Some(Protect {
        leaves: list(protected.leaves.iter().copied(), "protected pieces")?,
        read_only: list(protected.read_only.iter().copied(), "protected ranges")?,
        round_us: protect.round_us(),
        local,
        on_tamper: match guest.on_tamper.map(|it| it.value) {
            None | Some(Tampered::Restart) => OnTamper::Restart(restarts(guest)),
            Some(Tampered::Stop) => OnTamper::Stop,
        },
    }))
}

/// What the description says, or the default. `band` is the highest band of the guest. A guest of the lowest band preempts no other guest, so
/// `"auto"` is `"off"` there.
fn wake_early(guest: &description::Guest, band: Band) -> WakeEarly {
    match guest.wake_early.as_ref().map(|it| it.value) {
        Some(WakeEarly::Auto) | None if band == Band::LOWEST => WakeEarly::Off,
        Some(written) => written,
        None => WakeEarly::Auto,
    }
}

/// What becomes of a guest that has ended.
fn on_stop(guest: &description::Guest) -> OnStop {
    let limit = restarts(guest);
    match guest.on_stop.map(|it| it.value) {
        None | Some(Ended::Stop) => OnStop::Stop,
        Some(Ended::Restart) => OnStop::Restart(limit),
        Some(Ended::MachineOff) => OnStop::MachineOff,
    }
}

impl Bundle {
    /// Gives each segment a place for the list of its leaves' hashes. Segments with the same leaves share one.
    fn add_lists<'a>(&mut self, segments: impl Iterator<Item = &'a mut Segment>) {
        let mut lists: Vec<([u64; 3], u64)> = Vec::new();
        for segment in segments {
            let leaves = [segment.offset, segment.size, segment.destination.0 % LEAF];
            let found = lists.iter().find(|(of, _)| *of == leaves);
            segment.list = found.map_or(self.end, |&(_, at)| at);
            if found.is_none() {
                lists.push((leaves, self.end));
                self.end += segment.leaves() * Hash::SIZE as u64;
            }
        }
        self.end = align_up(self.end, PAGE).unwrap_or(u64::MAX);
    }

    /// Gives the list of hashes of a guest's pages a place, if the guest runs from local memory.
    fn add_local(&mut self, planned: &GuestPlan) -> Option<Local> {
        let memory = planned.protected.as_ref()?.local?;
        let list = self.end;
        self.end += local_list(planned.memory.size);
        Some(Local {
            memory,
            list,
            list_hash: Hash::default(),
        })
    }

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

fn vcpus(
    guest: &description::Guest,
    priorities: &[Priority],
    bands: &Bands,
    next: &mut u8,
) -> Vec<Vcpu> {
    let homes = guest
        .vcpus
        .value
        .iter()
        .filter_map(|home| u8::try_from(home.value).ok());
    homes
        .zip(priorities)
        .map(|(home, &priority)| {
            let id = VcpuId(*next);
            *next = next.saturating_add(1);
            Vcpu {
                id,
                home: PcpuId(home),
                priority,
                band: bands.of(priority).unwrap_or(Band::LOWEST),
            }
        })
        .collect()
}

/// The guest of lowest priority that has a console, for that is the one people talk to; the first of several.
fn keyboard(guests: &[Guest]) -> GuestId {
    let with_console = (0..).zip(guests).filter(|(_, it)| it.console.is_some());
    let lowest = with_console.min_by_key(|(_, it)| it.vcpus.first().map(|vcpu| vcpu.band));
    GuestId(lowest.map_or(0, |(index, _)| index))
}

/// All vCPUs of the system.
/// Which cores go off when they are not needed, if any do.
fn power(
    description: &Description,
    board: &Board,
    guests: &[Guest],
    members: &[Member],
) -> Option<Power> {
    let written = description.power.as_ref()?;
    let mode = written.mode.value;
    let moving = guests.iter().filter(|guest| guest.moves);
    let stay = roles::stay_on(members, moving.map(|guest| guest.cores));
    let cores = u8::try_from(description.board.cores.value).unwrap_or(u8::MAX);
    let cost = board.power.unwrap_or(board::Power::DEFAULT);
    let goes_off =
        description.scheduler.policy.value == Policy::Steal && stay.count_ones() < u32::from(cores);
    if !goes_off {
        return None;
    }
    Some(Power {
        mode,
        least: written.cores_on.map_or(1, |it| it.value.least),
        most: written.cores_on.map_or(cores, |it| it.value.most),
        stay,
        off_us: cost.off_us,
        on_us: cost.on_us,
    })
}

fn members(guests: &[Guest]) -> Vec<Member> {
    let of_guest = |(index, guest): (usize, &Guest)| -> Vec<Member> {
        let owner = GuestId(u8::try_from(index).unwrap_or(u8::MAX));
        let member = |vcpu: &Vcpu| Member {
            guest: owner,
            moves: guest.moves,
            band: vcpu.band,
            home: vcpu.home,
        };
        guest.vcpus.iter().map(member).collect()
    };
    guests.iter().enumerate().flat_map(of_guest).collect()
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
