// SPDX-License-Identifier: MIT OR Apache-2.0
//! EL2's own map: an identity map in which only code is executable, only data is writable, and only the board's devices
//! are device memory.

use super::{GuestPlan, Plan};
use crate::board::Board;
use crate::gic::{DISTRIBUTOR_SIZE, REDISTRIBUTOR_SIZE};
use crate::packed::{Guest, Quiesce, Sections};
use crate::stage2::{El2Map, El2MapError, El2Use, PAGE_SIZE, Pages};
use crate::types::PhysAddr;
use crate::units::align_down;

/// Most bytes of the tables: the map consists of a few ranges, each with at most two ends that need smaller leaves.
pub(super) const ROOM: u64 = 64 * PAGE_SIZE;
/// Size of a PL011.
const UART_SIZE: u64 = 0x1000;

/// Makes the map; returns the value of `TTBR0_EL2`.
///
/// # Errors
///
/// What cannot be mapped.
pub(super) fn build(
    board: &Board,
    cores: usize,
    plan: &Plan,
    sections: &Sections,
    guests: &[Guest],
    pages: &mut Pages,
) -> Result<PhysAddr, El2MapError> {
    let mut map = El2Map::new(pages);
    let code = board.memory.base + board.memory.image_offset;
    let (constants, data) = (code + sections.constants, code + sections.data);
    let bundle = plan.bundle.0;
    let bundle_end = plan.hypervisor.start.0 + plan.hypervisor.size;
    map.map(plan.machine.start.0, code, El2Use::Data)?;
    map.map(code, constants, El2Use::Code)?;
    map.map(constants, data, El2Use::Constants)?;
    let mut mapped = data;
    for guard in &sections.guards {
        map.map(mapped, code + guard, El2Use::Data)?;
        mapped = code + guard + PAGE_SIZE;
    }
    map.map(mapped, bundle, El2Use::Data)?;
    map.map(bundle, bundle_end, El2Use::Constants)?;
    let memory_end = plan.machine.start.0 + plan.machine.size;
    map.map(bundle_end, memory_end, El2Use::Data)?;
    if let Some(local) = board.local_memory
        && !map.maps(local.base)
        && plan.guests.iter().any(GuestPlan::is_local)
    {
        map.map(local.base, local.base + local.size, El2Use::Data)?;
    }
    for (base, size) in [
        (board.gic.distributor, DISTRIBUTOR_SIZE),
        (board.gic.redistributor, REDISTRIBUTOR_SIZE * cores as u64),
        (board.uart.base, UART_SIZE),
    ] {
        map.map(base, base + size, El2Use::Device)?;
    }
    for Quiesce { register, .. } in guests.iter().flat_map(|guest| &guest.quiesce) {
        // Several registers may be in one page.
        let page = align_down(register.0, PAGE_SIZE);
        if !map.maps(page) {
            map.map(page, page + PAGE_SIZE, El2Use::Device)?;
        }
    }
    Ok(map.ttbr0())
}
