// SPDX-License-Identifier: MIT OR Apache-2.0
//! What EL2 checks of the memory of a packed system.

// Tests may unwrap.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use spumone_config::isolation::check;
use spumone_config::packed::*;
use spumone_config::{Band, GuestAddr, GuestId, IntId, PcpuId, PhysAddr, Priority, VcpuId};

const PAGE: u64 = 0x1000;
/// The machine's memory; the hypervisor has the first part of it, its image and bundle a part of that.
const MEMORY: MemoryRange = range(0x4000_0000, 64);
const HYPERVISOR: MemoryRange = range(0x4000_0000, 8);
const OWN: MemoryRange = range(0x4000_1000, 6);
const LINKS: MemoryRange = range(0x4003_0000, 8);

const fn range(start: u64, pages: u64) -> MemoryRange {
    MemoryRange {
        start: PhysAddr(start),
        size: PAGE * pages,
    }
}

/// So many pages from page `first` of memory on.
const fn pages(first: u64, count: u64) -> Mapping {
    Mapping {
        ipa: GuestAddr(0x8000_0000),
        pa: PhysAddr(MEMORY.start.0 + PAGE * first),
        size: PAGE * count,
    }
}

fn link(peer: u8, peer_link: u8, memory: Mapping) -> LinkEnd {
    LinkEnd {
        peer: GuestId(peer),
        peer_link,
        is_second: false,
        registers: GuestAddr(0),
        interrupt: IntId(80),
        gpio: None,
        kind: LinkKind::Memory {
            memory,
            writes: true,
        },
    }
}

fn guest(name: &str, memory: &[Mapping], links: &[LinkEnd]) -> Guest {
    Guest {
        name: name.try_into().unwrap(),
        vcpus: heapless::Vec::new(),
        cores: 1,
        moves: false,
        band: Band::LOWEST,
        wake_early: WakeEarly::Off,
        on_fault: OnFault::Stop,
        on_stop: OnStop::Stop,
        protect: None,
        watchdog_s: 0,
        sets_power: false,
        stolen_time: None,
        stage2: Stage2 {
            all: 0,
            of_kernel: None,
            of_programs: None,
        },
        memory: memory.iter().copied().collect(),
        devices: heapless::Vec::new(),
        interrupts: heapless::Vec::new(),
        quiesce: heapless::Vec::new(),
        segments: heapless::Vec::new(),
        entry: GuestAddr(0),
        boot_argument: 0,
        seeds: heapless::Vec::new(),
        console: None,
        gic: VirtualGic {
            distributor: GuestAddr(0),
            redistributor: GuestAddr(0),
            spis: 32,
        },
        links: links.iter().copied().collect(),
        preempt_count: None,
    }
}

fn system(guests: Vec<Guest>) -> System {
    System {
        version: 0,
        stage2_pages: Part::default(),
        el2_pages: Part::default(),
        board: Board {
            name: "board".try_into().unwrap(),
            core_mpidrs: heapless::Vec::new(),
            memory: MEMORY,
            hypervisor_memory: HYPERVISOR,
            gic_distributor: PhysAddr(0),
            gic_redistributor: PhysAddr(0),
            uart: Uart {
                base: PhysAddr(0),
                interrupt: IntId(33),
            },
            devices: heapless::Vec::new(),
        },
        scheduler: Scheduler {
            policy: Policy::None,
            quantum_us: 1000,
            interrupt_priorities: InterruptPriorities::Split,
            without: Without::default(),
        },
        guests: guests.into_iter().collect(),
        keyboard: GuestId(0),
        roles: Roles {
            console_core: PcpuId(0),
            kernel_free: 0,
            gang: None,
            highest_movable: None,
            lowest_movable: None,
        },
        link_memory: Some(LINKS),
        spis: heapless::Vec::new(),
        vtcr: 0,
        sections: Sections::default(),
        el2_tables: PhysAddr(0),
        power: None,
        fixed_seed: None,
    }
}

/// Two guests, the first with two ranges of memory, with a link between them, and a third one that has one with the first.
fn sound() -> System {
    let (first, second) = (pages(48, 2), pages(52, 4));
    system(vec![
        guest(
            "a",
            &[pages(8, 8), pages(16, 4)],
            &[link(1, 0, first), link(2, 0, second)],
        ),
        guest("b", &[pages(20, 8)], &[link(0, 0, first)]),
        guest("c", &[pages(28, 20), pages(56, 8)], &[link(0, 1, second)]),
    ])
}

/// What is said of the sound system after this change.
#[track_caller]
fn refused(change: impl FnOnce(&mut System), message: &str) {
    let mut system = sound();
    change(&mut system);
    let refusal = check(&system, OWN).err().map(|it| it.to_string());
    assert_eq!(refusal.as_deref(), Some(message));
}

fn memory_of_link(end: &mut LinkEnd) -> &mut Mapping {
    match &mut end.kind {
        LinkKind::Memory { memory, .. } => memory,
        _ => unreachable!(),
    }
}

#[test]
fn ranges_that_touch_are_apart() {
    assert_eq!(check(&sound(), OWN), Ok(()));
    let mut alone = system(vec![guest("a", &[pages(8, 56)], &[])]);
    alone.link_memory = None;
    assert_eq!(check(&alone, HYPERVISOR), Ok(()));
}

/// Has guest 1 run from this local memory.
fn runs_from(system: &mut System, memory: MemoryRange) {
    let guest = &mut system.guests[1];
    guest.vcpus.truncate(1);
    if guest.vcpus.is_empty() {
        let vcpu = Vcpu {
            id: VcpuId(0),
            home: PcpuId(0),
            priority: Priority(1),
            band: Band::LOWEST,
        };
        guest.vcpus.push(vcpu).unwrap();
    }
    guest.protect = Some(Protect {
        leaves: heapless::Vec::new(),
        read_only: heapless::Vec::new(),
        round_us: 1000,
        local: Some(Local {
            memory,
            list: 0,
            list_hash: Hash::default(),
        }),
        on_tamper: OnTamper::Stop,
    });
}

#[test]
fn local_memory_is_apart_and_has_room_for_its_guest() {
    // On the chip, apart from memory.
    const CHIP: u64 = 0x1000_0000;
    let least = Local::least(pages(20, 8).size) / PAGE;
    let mut system = sound();
    runs_from(&mut system, range(CHIP, least));
    assert_eq!(check(&system, OWN), Ok(()));
    refused(
        |it| runs_from(it, range(CHIP, least - 1)),
        "guest b: local memory at 0x10000000 to 0x10011fff is too small for the guest, or the guest has several vCPUs",
    );
    refused(
        |it| {
            runs_from(it, range(CHIP, least));
            let vcpu = it.guests[1].vcpus[0];
            it.guests[1].vcpus.push(vcpu).unwrap();
        },
        "guest b: local memory at 0x10000000 to 0x10012fff is too small for the guest, or the guest has several vCPUs",
    );
    refused(
        |it| {
            runs_from(it, range(CHIP, least));
            let device = Mapping {
                ipa: GuestAddr(0),
                pa: PhysAddr(CHIP + PAGE),
                size: PAGE,
            };
            it.guests[2].devices.push(device).unwrap();
        },
        "guest b: local memory at 0x10000000 to 0x10012fff overlaps a device of guest c, 0x10001000 to 0x10001fff",
    );
    // In memory that guests have.
    refused(
        |it| runs_from(it, range(MEMORY.start.0 + 8 * PAGE, least)),
        "guest b: local memory at 0x40008000 to 0x4001afff is outside the machine's, 0x40000000 to 0x40007fff",
    );
    // In the hypervisor's, where its own pages are.
    refused(
        |it| runs_from(it, range(MEMORY.start.0, 8)),
        "guest b: local memory at 0x40000000 to 0x40007fff overlaps the hypervisor's, 0x40001000 to 0x40006fff",
    );
}

#[test]
fn the_hypervisor_must_be_in_its_memory_and_that_in_the_machines() {
    let message = "the hypervisor is at 0x40000000 to 0x40008fff, outside its memory, 0x40000000 to 0x40007fff";
    let own = range(MEMORY.start.0, 9);
    assert_eq!(check(&sound(), own).unwrap_err().to_string(), message);
    refused(
        |it| it.board.hypervisor_memory.start.0 -= PAGE,
        "the hypervisor is at 0x40001000 to 0x40006fff, outside its memory, 0x3ffff000 to 0x40006fff",
    );
}

#[test]
fn memory_of_guests_is_apart_from_all_other() {
    refused(
        |it| it.guests[0].memory[0] = pages(7, 9),
        "guest a: memory at 0x40007000 to 0x4000ffff overlaps the hypervisor's, 0x40000000 to 0x40007fff",
    );
    // The second range, by its last page.
    refused(
        |it| it.guests[0].memory[1] = pages(16, 5),
        "guest a: memory at 0x40010000 to 0x40014fff overlaps memory of guest b, 0x40014000 to 0x4001bfff",
    );
    refused(
        |it| it.guests[2].memory[0] = pages(28, 21),
        "the memory of links at 0x40030000 to 0x40037fff overlaps memory of guest c, 0x4001c000 to 0x40030fff",
    );
    // A guest that has the link, too: its peer would see its memory.
    refused(
        |it| it.guests[0].memory[0] = pages(49, 1),
        "the memory of links at 0x40030000 to 0x40037fff overlaps memory of guest a, 0x40031000 to 0x40031fff",
    );
    refused(
        |it| it.guests[2].memory[1] = pages(56, 9),
        "guest c: memory at 0x40038000 to 0x40040fff is outside the machine's, 0x40000000 to 0x4003ffff",
    );
    for (pa, size) in [
        (0x4000_8000, 0),
        (0x4000_8800, PAGE),
        (0x4000_8000, PAGE / 2),
        (u64::MAX - PAGE + 1, 2 * PAGE),
    ] {
        let mut system = sound();
        let memory = &mut system.guests[0].memory[0];
        (memory.pa, memory.size) = (PhysAddr(pa), size);
        let refusal = check(&system, OWN).unwrap_err().to_string();
        assert!(refusal.ends_with("is not a number of pages"), "{refusal}");
    }
}

#[test]
fn devices_are_not_memory() {
    let mut system = sound();
    let mut device = pages(0, 1);
    device.pa = PhysAddr(0x0a00_0000);
    system.guests[0].devices.push(device).unwrap();
    assert_eq!(check(&system, OWN), Ok(()));
    refused(
        |it| it.guests[1].devices.push(pages(63, 1)).unwrap(),
        "guest b: a device at 0x4003f000 to 0x4003ffff is in the machine's memory, 0x40000000 to 0x4003ffff",
    );
}

#[test]
fn both_guests_of_a_link_have_the_same_memory_and_no_other_guest_has_it() {
    refused(
        |it| *memory_of_link(&mut it.guests[0].links[1]) = pages(51, 4),
        "guest a: the memory of link 1 at 0x40033000 to 0x40036fff is not what the guest at the other end has",
    );
    refused(
        |it| it.guests[0].links[1].peer_link = 5,
        "guest a: the memory of link 1 at 0x40034000 to 0x40037fff is not what the guest at the other end has",
    );
    refused(
        |it| {
            for (guest, link) in [(0, 1), (2, 0)] {
                *memory_of_link(&mut it.guests[guest].links[link]) = pages(49, 4);
            }
        },
        "guest a: the memory of link 0 at 0x40030000 to 0x40031fff overlaps the memory of link 1 of guest a, 0x40031000 to 0x40034fff",
    );
    // Else EL2 would not clear it.
    refused(
        |it| it.link_memory = Some(range(LINKS.start.0, 7)),
        "guest a: the memory of link 1 at 0x40034000 to 0x40037fff is outside the memory of links",
    );
    refused(
        |it| it.link_memory = None,
        "guest a: the memory of link 0 at 0x40030000 to 0x40031fff is outside the memory of links",
    );
    refused(
        |it| it.link_memory = Some(range(0x4000_7000, 49)),
        "the memory of links at 0x40007000 to 0x40037fff overlaps the hypervisor's, 0x40000000 to 0x40007fff",
    );
}

/// The same rule, page by page.
fn is_apart(system: &System) -> bool {
    let in_machine = |page: u64| (0..64).contains(&page);
    let of = |mapping: &Mapping| {
        let first = mapping.pa.0.wrapping_sub(MEMORY.start.0) / PAGE;
        (0..mapping.size / PAGE).map(move |page| first.wrapping_add(page))
    };
    // By page: which guests have it as memory, and which links.
    let mut users = vec![(Vec::new(), Vec::new()); 64];
    for (index, guest) in system.guests.iter().enumerate() {
        for mapping in &guest.memory {
            for page in of(mapping) {
                if mapping.size == 0 || !in_machine(page) || page < 8 {
                    return false;
                }
                users[page as usize].0.push(index);
            }
            if mapping.size == 0 {
                return false;
            }
        }
    }
    for (index, guest) in system.guests.iter().enumerate() {
        for (number, end) in guest.links.iter().enumerate() {
            let LinkKind::Memory { memory, .. } = &end.kind else {
                return false;
            };
            if memory.size == 0 {
                return false;
            }
            for page in of(memory) {
                if !(48..56).contains(&page) {
                    return false;
                }
                users[page as usize].1.push((index, number));
            }
        }
    }
    let pair = |(guest, link): (usize, usize)| {
        let end = &system.guests[guest].links[link];
        (end.peer.index(), usize::from(end.peer_link))
    };
    users.iter().enumerate().all(|(page, (guests, links))| {
        let is_of_one = guests.iter().all(|it| *it == guests[0]);
        let is_of_links = (48..56).contains(&(page as u64));
        let are_both = match links[..] {
            [] => true,
            [one, other] => one.0 != other.0 && pair(one) == other && pair(other) == one,
            _ => false,
        };
        is_of_one && are_both && (guests.is_empty() || !is_of_links)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5000))]

    /// A sound system with some ranges moved, and links that name other ends.
    #[test]
    fn the_check_agrees_with_a_look_at_each_page(
        moves in prop::collection::vec((0..5_usize, 0..70_u64, 0..12_u64), 0..3),
        links in prop::collection::vec((0..4_usize, 46..58_u64, 0..6_u64, any::<bool>()), 0..3),
        peers in prop::collection::vec((0..4_usize, 0..4_u8, 0..3_u8), 0..2),
    ) {
        let mut system = sound();
        for (which, first, count) in moves {
            let (guest, number) = [(0, 0), (0, 1), (1, 0), (2, 0), (2, 1)][which];
            system.guests[guest].memory[number] = pages(first, count);
        }
        let ends = [(0, 0), (0, 1), (1, 0), (2, 0)];
        let others = [2, 3, 0, 1];
        for (which, first, count, both) in links {
            for (guest, number) in [Some(ends[which]), both.then(|| ends[others[which]])].into_iter().flatten() {
                *memory_of_link(&mut system.guests[guest].links[number]) = pages(first, count);
            }
        }
        for (which, peer, peer_link) in peers {
            let (guest, number) = ends[which];
            let end = &mut system.guests[guest].links[number];
            (end.peer, end.peer_link) = (GuestId(peer), peer_link);
        }
        let is_named = |it: &LinkEnd| system.guests.get(it.peer.index()).is_some_and(|peer| usize::from(it.peer_link) < peer.links.len());
        let are_named = system.guests.iter().flat_map(|it| &it.links).all(is_named);
        prop_assert_eq!(check(&system, OWN).is_ok(), are_named && is_apart(&system));
    }
}
