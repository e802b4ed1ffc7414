// SPDX-License-Identifier: MIT OR Apache-2.0
//! Properties of every plan, for random systems: nothing overlaps, everything is inside its
//! container, and the packed form can be decoded again.

// Tests may unwrap.
#![allow(clippy::unwrap_used, clippy::panic)]

use proptest::prelude::*;
use spumone_config::PhysAddr;
use spumone_config::board::Board;
use spumone_config::description::Description;
use spumone_config::image::{ElfSegment, GuestFiles, Image, LinuxHeader};
use spumone_config::isolation;
use spumone_config::layout::{DeviceTree, GuestPlan, Load, Packed, Plan, SYSTEM_ROOM, pack, plan};
use spumone_config::packed::{MemoryRange, Sections, SpiOwner, System};
use spumone_config::stage2::ROOT_SIZE;
use spumone_config::units::{MIB, PAGE};
use std::fmt::Write;

const BOARD: &str = include_str!("../../boards/qemu-virt.toml");
const HYPERVISOR_SIZE: u64 = 0x9_3000;
/// `VTTBR_EL2.BADDR`.
const ADDRESS: u64 = 0x0000_ffff_ffff_fffe;

/// A random guest.
#[derive(Clone, Debug)]
struct Shape {
    memory_mib: u64,
    vcpus: Vec<u64>,
    priority: u8,
    identity: bool,
    devices: usize,
    console: bool,
    files: GuestFiles,
    /// Bytes of its device tree, and the offsets of its seeds.
    tree: (u64, u64),
}

fn image() -> impl Strategy<Value = (GuestFiles, bool)> {
    let linux = (
        1..40u64,
        1..0x100_0000u64,
        0..3u64,
        prop::option::of(1..20 * MIB),
    )
        .prop_map(|(image_mib, size, offset, initrd_size)| {
            let header = LinuxHeader {
                text_offset: offset * 0x8_0000,
                image_size: image_mib * MIB,
                big_endian: false,
            };
            let image = Image::Flat {
                size: size.min(header.image_size),
                header: Some(header),
            };
            (
                GuestFiles {
                    image,
                    initrd_size,
                    dtb_size: None,
                    preempt_count: None,
                },
                false,
            )
        });
    let elf = prop::collection::vec((1..0x9000u64, 0..0x9000u64), 1..15).prop_map(|pieces| {
        let mut address = 0x4008_0000;
        let mut segments = Vec::new();
        for (file_size, more) in pieces {
            let memory_size = file_size + more;
            segments.push(ElfSegment {
                file_offset: address & 0xffff,
                file_size,
                address,
                memory_size,
                is_writable: true,
            });
            address += memory_size;
        }
        (
            GuestFiles {
                image: Image::Elf {
                    entry: 0x4008_0000,
                    segments,
                },
                initrd_size: None,
                dtb_size: None,
                preempt_count: None,
            },
            true,
        )
    });
    prop_oneof![linux, elf]
}

fn shape() -> impl Strategy<Value = Shape> {
    (
        // Enough for every image here in most cases.
        prop_oneof![9 => 80..120u64, 1 => 1..80u64],
        prop::collection::vec(0..8u64, 1..=4),
        1..=8u8,
        any::<bool>(),
        0..=2usize,
        any::<bool>(),
        image(),
        (200..0x1_0000u64, 0..100u64),
    )
        .prop_map(
            |(memory_mib, vcpus, priority, identity, devices, console, (files, elf), tree)| {
                // An ELF is linked for the default address.
                let identity = identity && !elf;
                let devices = if identity { devices } else { 0 };
                Shape {
                    memory_mib,
                    vcpus,
                    priority,
                    identity,
                    devices,
                    console,
                    files,
                    tree,
                }
            },
        )
}

/// The description of a system of these guests.
fn text(shapes: &[Shape]) -> String {
    let mut text =
        "seed = 7\n[board]\nname = \"qemu-virt\"\ncores = 8\nmemory = \"1GiB\"\n".to_owned();
    for (index, shape) in shapes.iter().enumerate() {
        let kind = if matches!(shape.files.image, Image::Elf { .. }) {
            "elf"
        } else {
            "linux"
        };
        writeln!(
            text,
            "[[guest]]\nname = \"g{index}\"\nkind = \"{kind}\"\nimage = \"i{index}\"\n\
             memory = \"{}MiB\"\nvcpus = {:?}\npriority = {}\nidentity = {}",
            shape.memory_mib, shape.vcpus, shape.priority, shape.identity
        )
        .unwrap();
        if shape.files.initrd_size.is_some() {
            writeln!(text, "initrd = \"r{index}\"").unwrap();
        }
        // Eight transports share a page, so each guest uses a page of its own; there are
        // four such pages.
        let first = 8 * index;
        let devices: Vec<_> = (first..first + shape.devices)
            .filter(|device| *device < 32)
            .map(|device| format!("virtio{device}"))
            .collect();
        let is_trusted = !devices.is_empty();
        writeln!(text, "trusted-dma = {is_trusted}\ndevices = {devices:?}").unwrap();
        if !shape.console {
            writeln!(text, "console = {{ uart = \"none\" }}").unwrap();
        }
    }
    text
}

fn planned(shapes: &[Shape]) -> Option<(Description, Board, Plan)> {
    let (description, problems) = Description::parse(&text(shapes));
    assert_eq!(problems, []);
    let description = description.unwrap();
    let board = Board::parse(BOARD).unwrap();
    let files: Vec<_> = shapes
        .iter()
        .map(|shape| Some(shape.files.clone()))
        .collect();
    match plan(&description, &board, &files, HYPERVISOR_SIZE) {
        Ok(plan) => Some((description, board, plan)),
        Err(problems) => {
            // The only problem that these systems can have.
            for problem in problems {
                assert!(
                    ["machine-memory", "image-too-large", "image-outside"].contains(&problem.code),
                    "{problem:?}"
                );
            }
            None
        }
    }
}

fn packed(shapes: &[Shape], description: &Description, board: &Board, plan: &Plan) -> Packed {
    let trees: Vec<_> = shapes
        .iter()
        .map(|shape| DeviceTree {
            size: shape.tree.0,
            seeds: vec![(shape.tree.1, 32), (shape.tree.1 + 40, 8)],
        })
        .collect();
    pack(description, board, plan, &trees, &Sections::default()).unwrap()
}

fn disjoint(mut ranges: Vec<(u64, u64)>) -> bool {
    ranges.sort_unstable();
    ranges
        .windows(2)
        .all(|pair| pair[0].0 + pair[0].1 <= pair[1].0)
}

fn inside((start, size): (u64, u64), (outer, outer_size): (u64, u64)) -> bool {
    start >= outer && start + size <= outer + outer_size
}

/// All that a guest's image needs, with `.bss` and working space of a kernel.
fn footprint(files: &GuestFiles, placed: &GuestPlan) -> Vec<(u64, u64)> {
    let mut pieces = match &files.image {
        Image::Flat { header, .. } => vec![(placed.entry.0, header.unwrap().image_size)],
        Image::Elf { segments, .. } => segments
            .iter()
            .map(|segment| (segment.address, segment.memory_size))
            .collect(),
    };
    pieces.extend(placed.initrd.map(|(address, size)| (address.0, size)));
    pieces.push((placed.device_tree.0, placed.device_tree_room));
    pieces
}

proptest! {
    #[test]
    fn nothing_overlaps_and_all_is_inside(shapes in prop::collection::vec(shape(), 1..=8)) {
        let Some((_, _, plan)) = planned(&shapes) else { return Ok(()) };
        let mut memory = vec![(plan.hypervisor.start.0, plan.hypervisor.size)];
        let machine = (plan.machine.start.0, plan.machine.size);
        for (shape, placed) in shapes.iter().zip(&plan.guests) {
            let own = placed.memory;
            prop_assert_eq!(own.size, shape.memory_mib * MIB);
            prop_assert!(inside((own.pa.0, own.size), machine));
            prop_assert!(own.pa.is_aligned(2 * MIB));
            let expected = if shape.identity { own.pa.0 } else { 0x4000_0000 };
            prop_assert_eq!(own.ipa.0, expected);
            memory.push((own.pa.0, own.size));

            let pieces = footprint(&shape.files, placed);
            for piece in &pieces {
                prop_assert!(inside(*piece, (own.ipa.0, own.size)), "{:x?} {:x?}", piece, own);
            }
            prop_assert!(disjoint(pieces));
            prop_assert!(placed.device_tree.is_aligned(PAGE));
            for Load { size, destination, .. } in &placed.loads {
                prop_assert!(inside((destination.0, *size), (own.ipa.0, own.size)));
            }
        }
        prop_assert!(disjoint(memory));
    }

    #[test]
    fn a_packed_system_survives_its_encoding(shapes in prop::collection::vec(shape(), 1..=8)) {
        let Some((description, board, plan)) = planned(&shapes) else { return Ok(()) };
        let packed = packed(&shapes, &description, &board, &plan);
        let mut buffer = vec![0; SYSTEM_ROOM as usize];
        let encoded = postcard::to_slice(&packed.system, &mut buffer).unwrap();
        let decoded: System = postcard::from_bytes(encoded).unwrap();
        prop_assert_eq!(&decoded, &packed.system);
        prop_assert_eq!(decoded.fixed_seed, Some(7));
        prop_assert_eq!(decoded.guests.len(), shapes.len());

        // Payloads are whole pages after the system, in order, and the hypervisor's memory
        // contains them all.
        let mut end = SYSTEM_ROOM;
        for payload in &packed.payloads {
            prop_assert!(payload.offset.is_multiple_of(PAGE) && payload.offset >= end);
            end = payload.offset + payload.size;
        }
        // The tables follow, a root at a multiple of its size, and nothing comes behind them.
        let start = 2 * MIB + HYPERVISOR_SIZE;
        prop_assert_eq!(packed.address, plan.bundle);
        prop_assert_eq!(plan.bundle.0, plan.hypervisor.start.0 + start);
        let tables = &packed.tables;
        let root = plan.bundle.0 + tables.offset;
        prop_assert!(tables.offset >= end && root.is_multiple_of(ROOT_SIZE));
        prop_assert_eq!(tables.offset + tables.bytes.len() as u64, packed.total_size);
        prop_assert!(start + packed.total_size <= plan.hypervisor.size);
        // As EL2 sees it at start.
        let own = MemoryRange {
            start: PhysAddr(plan.hypervisor.start.0 + 2 * MIB),
            size: HYPERVISOR_SIZE + packed.total_size,
        };
        prop_assert_eq!(isolation::check(&decoded, own), Ok(()));
        let mut roots: Vec<_> = decoded.guests.iter().map(|it| it.stage2.all & ADDRESS).collect();
        prop_assert_eq!(roots[0], root);
        roots.sort_unstable();
        roots.dedup();
        prop_assert_eq!(roots.len(), shapes.len());

        // What is decided of cores and interrupts.
        let all: Vec<_> = decoded.guests.iter().flat_map(|it| &it.vcpus).collect();
        for (id, vcpu) in all.iter().enumerate() {
            prop_assert_eq!(vcpu.id.index(), id);
            for other in &all {
                prop_assert_eq!(vcpu.band.cmp(&other.band), vcpu.priority.cmp(&other.priority));
            }
        }
        let passed: usize = decoded.guests.iter().map(|it| it.interrupts.len()).sum();
        prop_assert_eq!(decoded.spis.len(), passed + 1);
        for spi in &decoded.spis {
            let is_listed = match spi.owner {
                SpiOwner::Unowned => false,
                SpiOwner::Console => spi.physical == decoded.board.uart.interrupt,
                SpiOwner::Guest(guest, number) => decoded.guests[guest.index()].interrupts.iter()
                    .any(|it| (it.physical, it.guest) == (spi.physical, number)),
            };
            prop_assert!(is_listed, "{:?}", spi);
        }

        for (shape, guest) in shapes.iter().zip(&decoded.guests) {
            let homes: Vec<u64> = guest.vcpus.iter().map(|vcpu| vcpu.home.0.into()).collect();
            prop_assert_eq!(&homes, &shape.vcpus);
            prop_assert!(guest.vcpus.iter().all(|vcpu| vcpu.priority.0 == shape.priority));
            prop_assert_eq!(guest.console.is_some(), shape.console);
            prop_assert_eq!(guest.boot_argument, guest.segments.last().unwrap().destination.0);
            for segment in &guest.segments {
                let payload = packed.payloads.iter().find(|it| it.offset == segment.offset);
                prop_assert_eq!(payload.map(|it| it.size), Some(segment.size));
            }
            for seed in &guest.seeds {
                let tree = guest.segments.last().unwrap();
                let piece = (seed.destination.0, seed.size.into());
                prop_assert!(inside(piece, (tree.destination.0, tree.size)));
            }
            prop_assert!(guest.gic.spis.is_multiple_of(32) && guest.gic.spis <= 256);
            for interrupt in &guest.interrupts {
                prop_assert!(interrupt.guest.0 < 32 + guest.gic.spis);
            }
        }
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "\\PC*") {
        let _ = Description::parse(&text);
        let _ = Board::parse(&text);
    }

    #[test]
    fn no_damage_to_a_description_makes_a_check_panic(
        at in 0..10_000usize,
        with in prop::sample::select(vec!["", "0", "-1", "99999999999999999999", "\"", "[", "true", "\n"]),
        length in 0..20usize,
    ) {
        let text = include_str!("../../systems/demo.toml");
        let start = text.floor_char_boundary(at % text.len());
        let end = text.floor_char_boundary((start + length).min(text.len()));
        let text = format!("{}{with}{}", &text[..start], &text[end..]);
        let board = Board::parse(BOARD).unwrap();
        if let (Some(description), _) = Description::parse(&text) {
            let files = vec![None; description.guests.len()];
            let _ = plan(&description, &board, &files, HYPERVISOR_SIZE);
        }
    }
}

/// The largest possible system must fit into the space reserved for it at the start of the bundle.
#[test]
fn the_largest_system_fits_into_its_space() {
    use spumone_config::packed::*;
    use spumone_config::{Band, GuestAddr, GuestId, IntId, PcpuId, PhysAddr, Priority, VcpuId};

    fn full<T: Clone, const N: usize>(item: T) -> heapless::Vec<T, N> {
        std::iter::repeat_n(item, N).collect()
    }
    const FAR: u64 = u64::MAX;
    let mapping = Mapping {
        ipa: GuestAddr(FAR),
        pa: PhysAddr(FAR),
        size: FAR,
    };
    let id = IntId(u16::MAX);
    let guest = Guest {
        name: "abcdefghijklmnop".try_into().unwrap(),
        cores: u32::MAX,
        vcpus: full(Vcpu {
            id: VcpuId(u8::MAX),
            home: PcpuId(u8::MAX),
            priority: Priority(u8::MAX),
            band: Band::HIGHEST,
        }),
        moves: true,
        wake_early: WakeEarly::Microseconds(u32::MAX),
        on_fault: OnFault::Abort,
        on_stop: OnStop::Restart(RestartLimit {
            most: u8::MAX,
            within_us: u32::MAX,
        }),
        protect: Some(Protect {
            leaves: full(LeafRun {
                segment: u8::MAX,
                first: u32::MAX,
                count: u32::MAX,
            }),
            read_only: full(PageRange {
                start: GuestAddr(FAR),
                size: FAR,
            }),
            round_us: u32::MAX,
            local: None,
            on_tamper: OnTamper::Restart(RestartLimit {
                most: u8::MAX,
                within_us: u32::MAX,
            }),
        }),
        watchdog_s: u16::MAX,
        sets_power: false,
        stolen_time: Some(mapping),
        band: Band::HIGHEST,
        stage2: Stage2 {
            all: FAR,
            of_kernel: Some(FAR),
            of_programs: Some(FAR),
        },
        memory: full(mapping),
        devices: full(mapping),
        interrupts: full(Interrupt {
            physical: id,
            guest: id,
            trigger: Trigger::Level,
        }),
        quiesce: full(Quiesce {
            register: PhysAddr(FAR),
            value: u32::MAX,
        }),
        segments: full(Segment {
            offset: FAR,
            size: FAR,
            destination: GuestAddr(FAR),
            content: Content::DeviceTree,
            list: FAR,
            list_hash: Hash([u8::MAX; Hash::SIZE]),
        }),
        entry: GuestAddr(FAR),
        boot_argument: FAR,
        seeds: full(SeedSlot {
            destination: GuestAddr(FAR),
            size: u32::MAX,
        }),
        console: Some(VirtualUart {
            base: GuestAddr(FAR),
            interrupt: id,
        }),
        gic: VirtualGic {
            distributor: GuestAddr(FAR),
            redistributor: GuestAddr(FAR),
            spis: u16::MAX,
        },
        links: full(LinkEnd {
            peer: GuestId(u8::MAX),
            peer_link: u8::MAX,
            is_second: true,
            registers: GuestAddr(FAR),
            interrupt: id,
            gpio: Some(LinkGpio {
                base: GuestAddr(FAR),
                interrupt: id,
            }),
            kind: LinkKind::Memory {
                memory: mapping,
                writes: true,
            },
        }),
        preempt_count: Some(u32::MAX),
    };
    let range = MemoryRange {
        start: PhysAddr(FAR),
        size: FAR,
    };
    let part = Part {
        offset: FAR,
        size: FAR,
        hash: Hash([u8::MAX; Hash::SIZE]),
    };
    let system = System {
        version: u32::MAX,
        stage2_pages: part,
        el2_pages: part,
        link_memory: Some(range),
        board: spumone_config::packed::Board {
            name: "abcdefghijklmnopabcdefghijklmnop".try_into().unwrap(),
            core_mpidrs: full(FAR),
            memory: range,
            hypervisor_memory: range,
            gic_distributor: PhysAddr(FAR),
            gic_redistributor: PhysAddr(FAR),
            uart: Uart {
                base: PhysAddr(FAR),
                interrupt: id,
            },
            devices: full(KnownDevice {
                name: "abcdefghijklmnop".try_into().unwrap(),
                base: PhysAddr(FAR),
                size: FAR,
            }),
        },
        scheduler: Scheduler {
            policy: Policy::None,
            quantum_us: u32::MAX,
            interrupt_priorities: InterruptPriorities::Split,
            without: Without::default(),
        },
        guests: full(guest),
        keyboard: GuestId(u8::MAX),
        roles: Roles {
            console_core: PcpuId(u8::MAX),
            kernel_free: u32::MAX,
            gang: Some(Gang {
                band: Band::HIGHEST,
                cores: u32::MAX,
            }),
            highest_movable: Some(Band::HIGHEST),
            lowest_movable: Some(Band::HIGHEST),
        },
        spis: full(Spi {
            physical: id,
            owner: SpiOwner::Guest(GuestId(u8::MAX), id),
            band: Band::HIGHEST,
            trigger: Trigger::Level,
        }),
        vtcr: FAR,
        sections: Sections {
            constants: FAR,
            data: FAR,
            guards: full(FAR),
        },
        el2_tables: PhysAddr(FAR),
        power: None,
        fixed_seed: Some(FAR),
    };
    let mut buffer = vec![0; SYSTEM_ROOM as usize];
    let size = postcard::to_slice(&system, &mut buffer).unwrap().len();
    assert!(
        BundleHeader::SIZE + size + Seal::SIZE <= SYSTEM_ROOM as usize,
        "{size} bytes"
    );
}
