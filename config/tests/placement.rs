// SPDX-License-Identifier: MIT OR Apache-2.0
//! The addresses of single systems, in numbers.

// Tests may unwrap.
#![allow(clippy::unwrap_used, clippy::panic)]

use spumone_config::GuestAddr;
use spumone_config::board::Board;
use spumone_config::description::Description;
use spumone_config::image::{ElfSegment, GuestFiles, Image, LinuxHeader};
use spumone_config::layout::{
    DeviceTree, GuestPlan, Packed, Plan, SYSTEM_ROOM, Source, pack, plan,
};
use spumone_config::packed::{Mapping, Quiesce, Sections, Trigger};
use spumone_config::units::{KIB, MIB};
use spumone_config::{GuestId, IntId, PcpuId, PhysAddr};

const BOARD: &str = include_str!("../../boards/qemu-virt.toml");
const HEAD: &str = "[board]\nname = \"qemu-virt\"\ncores = 4\nmemory = \"1GiB\"\n";

fn flat(size: u64) -> GuestFiles {
    GuestFiles {
        image: Image::Flat { size, header: None },
        initrd_size: None,
        dtb_size: None,
        preempt_count: None,
    }
}

fn kernel(text_offset: u64, initrd_size: Option<u64>) -> GuestFiles {
    let header = LinuxHeader {
        text_offset,
        image_size: 5 * MIB + 4 * KIB,
        big_endian: false,
    };
    let image = Image::Flat {
        size: 4 * MIB,
        header: Some(header),
    };
    GuestFiles {
        image,
        initrd_size,
        dtb_size: None,
        preempt_count: None,
    }
}

fn elf(address: u64, memory_size: u64) -> GuestFiles {
    let segments = vec![ElfSegment {
        file_offset: 0x1000,
        file_size: 100,
        address,
        memory_size,
        is_writable: true,
    }];
    let image = Image::Elf {
        entry: address,
        segments,
    };
    GuestFiles {
        image,
        initrd_size: None,
        dtb_size: None,
        preempt_count: None,
    }
}

fn planned(text: &str, files: &[GuestFiles]) -> (Description, Board, Plan) {
    let (description, problems) = Description::parse(text);
    assert_eq!(problems, []);
    let (description, board) = (description.unwrap(), Board::parse(BOARD).unwrap());
    let files: Vec<_> = files.iter().cloned().map(Some).collect();
    let plan = plan(&description, &board, &files, MIB).unwrap();
    (description, board, plan)
}

fn one(guest: &str, files: GuestFiles) -> GuestPlan {
    let text = format!("{HEAD}[[guest]]\nname = \"g\"\nimage = \"i\"\nvcpus = [0]\n{guest}");
    planned(&text, &[files]).2.guests.remove(0)
}

#[test]
fn a_kernel_is_placed_by_its_boot_protocol() {
    let linux = "kind = \"linux\"\nmemory = \"64MiB\"\ninitrd = \"r\"";
    let placed = one(linux, kernel(0x8_0000, Some(1000)));
    assert_eq!(placed.entry, GuestAddr(0x4008_0000));
    // 0x4008_0000 and 5 MiB and a page, then the next 2 MiB boundary.
    assert_eq!(placed.device_tree, GuestAddr(0x4060_0000));
    assert_eq!(placed.initrd, Some((GuestAddr(0x4061_0000), 1000)));
}

#[test]
fn a_kernel_begins_at_a_block_even_where_memory_does_not() {
    let placed = one(
        "kind = \"linux\"\nmemory = \"64MiB\"\nipa = 0x4010_0000",
        kernel(0, None),
    );
    assert_eq!(placed.entry, GuestAddr(0x4020_0000));
}

#[test]
fn an_elf_is_placed_where_it_is_linked_and_its_tree_at_the_start() {
    let placed = one(
        "kind = \"elf\"\nmemory = \"16MiB\"",
        elf(0x4008_0000, 0x1000),
    );
    assert_eq!(placed.entry, GuestAddr(0x4008_0000));
    assert_eq!(placed.loads[0].destination, GuestAddr(0x4008_0000));
    assert_eq!(
        (placed.loads[0].file_offset, placed.loads[0].size),
        (0x1000, 100)
    );
    assert_eq!(placed.device_tree, GuestAddr(0x4000_0000));
}

#[test]
fn a_tree_is_placed_at_the_end_if_the_start_is_used() {
    let placed = one(
        "kind = \"elf\"\nmemory = \"16MiB\"",
        elf(0x4000_0000, 0x1000),
    );
    assert_eq!(placed.device_tree, GuestAddr(0x40e0_0000));
    // The last block is used too, so the tree goes to the last gap of the memory.
    let placed = one(
        "kind = \"elf\"\nmemory = \"16MiB\"",
        elf(0x4000_0000, 15 * MIB),
    );
    assert_eq!(placed.device_tree, GuestAddr(0x40ff_0000));
}

#[test]
fn a_raw_image_is_placed_as_by_qemu_unless_load_is_given() {
    let placed = one("kind = \"raw\"\nmemory = \"16MiB\"", flat(0x2000));
    assert_eq!((placed.entry, placed.loads[0].destination), {
        (GuestAddr(0x4008_0000), GuestAddr(0x4008_0000))
    });
    let given = "kind = \"raw\"\nmemory = \"16MiB\"\nload = 0x4020_0000\nentry = 0x4020_0100";
    let placed = one(given, flat(0x2000));
    assert_eq!((placed.entry, placed.loads[0].destination), {
        (GuestAddr(0x4020_0100), GuestAddr(0x4020_0000))
    });
}

#[test]
fn a_raw_image_with_a_linux_header_is_placed_by_it_unless_load_is_given() {
    let placed = one("kind = \"raw\"\nmemory = \"16MiB\"", kernel(0, None));
    assert_eq!(placed.entry, GuestAddr(0x4000_0000));
    let given = "kind = \"raw\"\nmemory = \"16MiB\"\nload = 0x4020_0000";
    assert_eq!(one(given, kernel(0, None)).entry, GuestAddr(0x4020_0000));
}

fn guest(name: &str, core: u64, memory: &str, more: &str) -> String {
    format!(
        "[[guest]]\nname = \"{name}\"\nkind = \"elf\"\nimage = \"rt.elf\"\nmemory = \"{memory}\"\n\
         vcpus = [{core}]\n{more}\n"
    )
}

#[test]
fn guests_follow_the_hypervisor_and_go_around_fixed_ones() {
    let text = [
        HEAD.to_owned(),
        guest("a", 0, "16MiB", ""),
        guest("b", 1, "5MiB", ""),
        guest("c", 2, "16MiB", "pa = 0x4040_0000"),
        guest("d", 3, "2MiB", ""),
    ]
    .concat();
    let files = vec![elf(0x4008_0000, 0x1000); 4];
    let (_, _, plan) = planned(&text, &files);
    // 2 MiB before the image, 1 MiB of hypervisor, the bundle; in whole blocks.
    assert_eq!(
        (plan.hypervisor.start.0, plan.hypervisor.size),
        (0x4000_0000, 4 * MIB)
    );
    let places: Vec<u64> = plan.guests.iter().map(|guest| guest.memory.pa.0).collect();
    assert_eq!(places, [0x4140_0000, 0x4240_0000, 0x4040_0000, 0x42a0_0000]);
}

fn packed(text: &str, files: &[GuestFiles]) -> Packed {
    let (description, board, plan) = planned(text, files);
    let trees = vec![
        DeviceTree {
            size: 1500,
            seeds: vec![(0x40, 32)]
        };
        files.len()
    ];
    pack(&description, &board, &plan, &trees, &Sections::default()).unwrap()
}

#[test]
fn guests_with_the_same_image_share_its_payload_but_not_their_trees() {
    let text = [
        HEAD.to_owned(),
        guest("a", 0, "16MiB", ""),
        guest("b", 1, "16MiB", ""),
    ]
    .concat();
    let packed = packed(&text, &vec![elf(0x4008_0000, 0x1000); 2]);
    let sources: Vec<_> = packed
        .payloads
        .iter()
        .map(|it| (it.guest, it.source))
        .collect();
    assert_eq!(
        sources,
        [
            (0, Source::Image),
            (0, Source::DeviceTree),
            (1, Source::DeviceTree)
        ]
    );
    let first = &packed.system.guests[0].segments;
    let second = &packed.system.guests[1].segments;
    assert_eq!(first[0].offset, SYSTEM_ROOM);
    assert_eq!(first[0].offset, second[0].offset);
    assert_ne!(first[1].offset, second[1].offset);
}

#[test]
fn a_device_brings_its_page_interrupt_and_quiescing_write() {
    let devices = "identity = true\ntrusted-dma = true\ndevices = [\"virtio0\", \"virtio3\"]\nipa = 0x4000_0000";
    let devices = devices.replace("\nipa = 0x4000_0000", "");
    let text = format!(
        "{HEAD}[[guest]]\nname = \"g\"\nkind = \"linux\"\nimage = \"i\"\n\
        memory = \"64MiB\"\nvcpus = [0]\n{devices}"
    );
    let packed = packed(&text, &[kernel(0, None)]);
    let guest = &packed.system.guests[0];
    let page = Mapping {
        ipa: GuestAddr(0xa00_3000),
        pa: PhysAddr(0xa00_3000),
        size: 4 * KIB,
    };
    assert_eq!(guest.devices.as_slice(), [page]);
    let interrupts: Vec<_> = guest
        .interrupts
        .iter()
        .map(|it| (it.physical, it.guest, it.trigger))
        .collect();
    let edge = |id| (IntId(id), IntId(id), Trigger::Edge);
    assert_eq!(interrupts, [edge(79), edge(76)]);
    // Eight transports share the page that the guest gets, so all of them are stopped.
    let mut quiesce: Vec<_> = guest.quiesce.iter().copied().collect();
    quiesce.sort_unstable_by_key(|write| write.register);
    let expected: Vec<_> = (0..8)
        .map(|slot| Quiesce {
            register: PhysAddr(0xa00_3070 + 0x200 * slot),
            value: 0,
        })
        .collect();
    assert_eq!(quiesce, expected);
    // INTID 79 is SPI 47.
    assert_eq!(guest.gic.spis, 64);
}

#[test]
fn a_guest_alone_on_its_core_needs_no_priority() {
    let text = [
        HEAD.to_owned(),
        guest("a", 0, "16MiB", ""),
        guest("b", 1, "16MiB", "priority = 30"),
        guest("c", 1, "16MiB", "priority = 20"),
    ]
    .concat();
    let packed = packed(&text, &vec![elf(0x4008_0000, 0x1000); 3]);
    let priorities: Vec<_> = packed
        .system
        .guests
        .iter()
        .map(|guest| guest.vcpus[0].priority.0)
        .collect();
    // It gets the lowest priority in use, so that it needs no band of its own.
    assert_eq!(priorities, [20, 30, 20]);
}

#[test]
fn the_keyboard_goes_to_the_lowest_guest_with_a_console() {
    let text = [
        HEAD.to_owned(),
        guest("a", 0, "16MiB", "priority = 30"),
        guest(
            "b",
            0,
            "16MiB",
            "priority = 10\nconsole = { uart = \"none\" }",
        ),
        guest("c", 1, "16MiB", "priority = 20"),
        guest("d", 1, "16MiB", "priority = 20"),
    ]
    .concat();
    let packed = packed(&text, &vec![elf(0x4008_0000, 0x1000); 4]);
    assert_eq!(packed.system.keyboard, GuestId(2));
    // It is served where the vCPUs are least urgent: where there are none.
    assert_eq!(packed.system.roles.console_core, PcpuId(3));
    let bands: Vec<_> = packed
        .system
        .guests
        .iter()
        .map(|it| it.band.index())
        .collect();
    assert_eq!(bands, [2, 0, 1, 1]);
}

#[test]
fn different_images_are_not_shared_even_where_they_are_alike() {
    let other = guest("b", 1, "16MiB", "").replace("rt.elf", "other.elf");
    let text = [HEAD.to_owned(), guest("a", 0, "16MiB", ""), other].concat();
    let packed = packed(&text, &vec![elf(0x4008_0000, 0x1000); 2]);
    assert_eq!(packed.payloads.len(), 4);
}

/// The problems of a Linux guest with this memory.
fn problems_with(memory: &str, initrd_size: u64) -> Vec<&'static str> {
    let text = format!(
        "{HEAD}[[guest]]\nname = \"g\"\nkind = \"linux\"\nimage = \"i\"\ninitrd = \"r\"\n\
         vcpus = [0]\nmemory = \"{memory}\""
    );
    let (description, problems) = Description::parse(&text);
    assert_eq!(problems, []);
    let board = Board::parse(BOARD).unwrap();
    let files = [Some(kernel(0, Some(initrd_size)))];
    match plan(&description.unwrap(), &board, &files, MIB) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.iter().map(|problem| problem.code).collect(),
    }
}

#[test]
fn links_beyond_any_bound_are_refused() {
    // More than a number of links has values.
    let links = "[[link]]\nkind = \"network\"\nbetween = [\"a\", \"b\"]\n".repeat(300);
    let guests = guest("a", 0, "16MiB", "") + &guest("b", 1, "16MiB", "");
    let (description, problems) = Description::parse(&(HEAD.to_owned() + &guests + &links));
    assert_eq!(problems, []);
    let board = Board::parse(BOARD).unwrap();
    let files = vec![Some(elf(0x4008_0000, 0x1000)); 2];
    let problems = plan(&description.unwrap(), &board, &files, MIB).unwrap_err();
    assert!(problems.iter().all(|it| it.code == "too-many-links"));
}

#[test]
fn a_guest_is_refused_as_soon_as_a_byte_does_not_fit() {
    // Kernel up to the boundary at 6 MiB, the space for the device tree, the ramdisk.
    let exactly = MIB - 64 * KIB;
    assert!(problems_with("7MiB", exactly).is_empty());
    assert_eq!(problems_with("7MiB", exactly + 1), ["image-too-large"]);
}

#[test]
fn a_guest_gets_as_many_spis_as_it_uses() {
    let spis = |device: &str| {
        let devices = format!("identity = true\ntrusted-dma = true\ndevices = [\"{device}\"]");
        one(
            &format!("kind = \"linux\"\nmemory = \"64MiB\"\n{devices}"),
            kernel(0, None),
        )
        .gic
        .spis
    };
    // INTIDs 63 and 64: the last of the first 32 SPIs, and the next.
    assert_eq!((spis("virtio16"), spis("virtio15")), (32, 64));
}

#[test]
fn the_shortest_and_the_longest_quantum_are_accepted() {
    for (quantum, sound) in [
        ("99us", false),
        ("100us", true),
        ("1s", true),
        ("1001ms", false),
    ] {
        let scheduler = format!("[scheduler]\nquantum = \"{quantum}\"\n");
        let text = [HEAD, &scheduler, &guest("a", 0, "16MiB", "")].concat();
        let (description, _) = Description::parse(&text);
        let board = Board::parse(BOARD).unwrap();
        let files = [Some(elf(0x4008_0000, 0x1000))];
        assert_eq!(
            plan(&description.unwrap(), &board, &files, MIB).is_ok(),
            sound,
            "{quantum}"
        );
    }
}

#[test]
fn memory_below_a_fixed_guest_is_used() {
    let text = [
        HEAD.to_owned(),
        guest("a", 0, "16MiB", "pa = 0x5000_0000"),
        guest("b", 1, "16MiB", ""),
        guest("c", 2, "16MiB", "pa = 0x4F00_0000"),
    ]
    .concat();
    let (_, _, plan) = planned(&text, &vec![elf(0x4008_0000, 0x1000); 3]);
    let places: Vec<u64> = plan.guests.iter().map(|guest| guest.memory.pa.0).collect();
    assert_eq!(places, [0x5000_0000, 0x4040_0000, 0x4f00_0000]);
}
