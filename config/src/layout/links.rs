// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the guests see their links, and which SPIs those have.
//!
//! ```text
//! [links] of the board | registers of links | GPIO controllers | memory of link 0 | memory of link 1 | …
//!                      base                 base + 32 KiB      base + 1 MiB     64 KiB boundaries
//! ```

use super::intid;
use crate::board::{Board, Links};
use crate::check::link_ends;
use crate::description::{Description, Kind as GuestKind, Link, LinkKind as Kind};
use crate::packed::{LinkEnd, LinkGpio, LinkKind, Mapping, MemoryRange};
use crate::types::{GuestAddr, GuestId, MAX_LINKS_PER_GUEST, PhysAddr};
use crate::units::PAGE;

/// Most links of a guest.
const MAX_LINKS: u64 = MAX_LINKS_PER_GUEST as u64;

/// Bytes of memory of all links, each on its boundary.
pub(super) fn memory(description: &Description) -> u64 {
    let sizes = description.links.iter().map(Link::room);
    sizes.fold(0, u64::saturating_add)
}

/// The link ends of each guest, in the order of the description. `memory`: that of all links.
pub(super) fn ends(
    description: &Description,
    board: &Board,
    memory: Option<MemoryRange>,
) -> Vec<Vec<LinkEnd>> {
    let mut guests = vec![Guest::default(); description.guests.len()];
    let Some(window) = board.links else {
        return guests.into_iter().map(|guest| guest.links).collect();
    };
    let mut pa = memory.map_or(0, |memory| memory.start.0);
    for (number, link) in (0..).zip(&description.links) {
        let Some(ends) = link_ends(description, link) else {
            continue;
        };
        let places = ends.map(|end| guests[end].links.len());
        for (end, peer) in [(0, 1), (1, 0)] {
            let guest = &mut guests[ends[end]];
            let written = &description.guests[ends[end]];
            let name = &written.name.value;
            let has_gpio =
                link.kind.value == Kind::Memory && written.kind.value == GuestKind::Linux;
            let index = places[end] as u64;
            guest.links.push(LinkEnd {
                peer: GuestId(ends[peer] as u8),
                peer_link: places[peer] as u8,
                is_second: end == 1,
                registers: GuestAddr(window.base + PAGE * index),
                interrupt: intid(window.first_interrupt + index),
                gpio: has_gpio.then(|| LinkGpio {
                    base: GuestAddr(window.base + PAGE * (MAX_LINKS + index)),
                    interrupt: intid(window.first_interrupt + MAX_LINKS + index),
                }),
                kind: match link.kind.value {
                    Kind::Memory => LinkKind::Memory {
                        memory: Mapping {
                            ipa: GuestAddr(window.base + Links::MEMORY_OFFSET + guest.memory),
                            pa: PhysAddr(pa),
                            size: link.size(),
                        },
                        writes: link.read_only.as_ref().is_none_or(|it| it.value != *name),
                    },
                    Kind::Network => LinkKind::Network {
                        mac: mac(number, end),
                        offloads: offloads(description, link, ends),
                    },
                    Kind::Socket => LinkKind::Socket {
                        own: context(ends[end]),
                        peer: context(ends[peer]),
                    },
                },
            });
            guest.memory += link.room();
        }
        pa += link.room();
    }
    guests.into_iter().map(|guest| guest.links).collect()
}

/// The address of a card: one that is given out locally, and the same whenever the system is built.
const fn mac(link: u8, end: usize) -> [u8; 6] {
    [0x02, b'S', b'P', b'U', link, end as u8 + 1]
}

/// Whether the cards of a network link offer offloads: as the description says, else if both guests are Linux.
fn offloads(description: &Description, link: &Link, ends: [usize; 2]) -> bool {
    let is_linux = |end: usize| description.guests[end].kind.value == GuestKind::Linux;
    let written = link.offloads.as_ref().map(|it| it.value);
    written.unwrap_or_else(|| ends.into_iter().all(is_linux))
}

/// The context identifier of the guest with this number. Those below 3 are reserved (Virtio 1.2, section 5.10.4).
const fn context(guest: usize) -> u32 {
    guest as u32 + 3
}

/// What a guest has of links so far.
#[derive(Clone, Default)]
struct Guest {
    links: Vec<LinkEnd>,
    /// Bytes of their memory, each on its boundary.
    memory: u64,
}
