// SPDX-License-Identifier: MIT OR Apache-2.0
//! The interrupt destination table: the owner of each SPI of the machine.

use super::intid;
use crate::board::Board;
use crate::packed::{Guest, Spi, SpiOwner, Trigger};
use crate::types::{Band, GuestId};

/// The SPIs that are used, each once.
pub(super) fn of(guests: &[Guest], board: &Board) -> Vec<Spi> {
    let of_guest = |(index, guest): (usize, &Guest)| -> Vec<Spi> {
        let owner = GuestId(u8::try_from(index).unwrap_or(u8::MAX));
        let interrupts = guest.interrupts.iter();
        interrupts
            .map(|interrupt| Spi {
                physical: interrupt.physical,
                owner: SpiOwner::Guest(owner, interrupt.guest),
                band: guest.band,
                trigger: interrupt.trigger,
            })
            .collect()
    };
    let console = Spi {
        physical: intid(board.uart.interrupt),
        owner: SpiOwner::Console,
        band: Band::LOWEST,
        trigger: Trigger::Level,
    };
    let mut spis: Vec<_> = guests.iter().enumerate().flat_map(of_guest).collect();
    spis.push(console);
    spis.sort_by_key(|spi| spi.physical);
    // Devices of one guest may share an interrupt.
    spis.dedup_by_key(|spi| spi.physical);
    spis
}
