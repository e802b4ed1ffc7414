// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules that concern several parts of a board file.

use super::{Board, Device};
use crate::gic::{
    DISTRIBUTOR_SIZE, HYPERVISOR_TIMER, PHYSICAL_TIMER, REDISTRIBUTOR_SIZE, VIRTUAL_TIMER,
};
use crate::packed::MemoryRange;
use crate::problem::{Problem, SourceFile};
use crate::stage2::PA_BITS;
use crate::types::{IntId, LINK_INTERRUPTS, MAX_VCPUS_PER_GUEST};
use crate::units::{self, PAGE, align_down};

/// Most SPIs a guest can be given (see [`crate::packed::VirtualGic::spis`]).
const MAX_GUEST_SPIS: u64 = 256;
/// First INTID of the SPIs.
const FIRST_SPI: u64 = IntId::FIRST_SPI.0 as u64;

pub(super) fn check(board: &Board, problems: &mut Vec<Problem>) {
    if board.mpidrs.is_empty() {
        problems.push(
            Problem::new("no-core", "the board has no core")
                .help("list the MPIDR_EL1 affinity of each core in `mpidrs` of [cores]"),
        );
    }
    for (index, mpidr) in board.mpidrs.iter().enumerate() {
        if board.mpidrs[..index].contains(mpidr) {
            problems.push(
                Problem::new(
                    "duplicate-core",
                    format!("two cores have the affinity {mpidr:#x}"),
                )
                .help("list each core of `mpidrs` once"),
            );
        }
    }
    timers(board, problems);
    links(board, problems);
    local_memory(board, problems);
    for (index, device) in board.devices.iter().enumerate() {
        name(device, &board.devices[..index], problems);
        registers(board, device, problems);
        interrupts(board, device, problems);
    }
}

/// The hypervisor knows the timers it uses by the usual numbers.
fn timers(board: &Board, problems: &mut Vec<Problem>) {
    let timer = &board.timer;
    for (key, written, fixed) in [
        ("physical", timer.physical, PHYSICAL_TIMER),
        ("virtual", timer.virt, VIRTUAL_TIMER),
        ("hypervisor", timer.hypervisor, HYPERVISOR_TIMER),
    ] {
        if written != u64::from(fixed.0) {
            let message =
                format!("`{key}` of [timer] is {written}, and the hypervisor uses {fixed}");
            problems.push(Problem::new("timer-interrupt", message).help(format!(
                "write {key} = {fixed}; another number is not supported"
            )));
        }
    }
}

/// Nothing else may be where guests see the devices of links.
fn links(board: &Board, problems: &mut Vec<Problem>) {
    let Some(links) = board.links else {
        return;
    };
    let end = links.base.saturating_add(links.size);
    let devices = board.devices.iter().map(|device| {
        let start = align_down(device.base, PAGE);
        let end = device.base.saturating_add(device.size);
        (start, end.saturating_sub(start), device.name.as_str())
    });
    let parts = [
        (board.memory.base, board.memory.max, "memory"),
        (
            board.gic.distributor,
            DISTRIBUTOR_SIZE,
            "the interrupt distributor",
        ),
        (
            board.gic.redistributor,
            REDISTRIBUTOR_SIZE * MAX_VCPUS_PER_GUEST as u64,
            "the interrupt redistributors",
        ),
        (board.uart.base, PAGE, "the UART"),
    ];
    let mut others = devices.chain(parts);
    if let Some((start, size, what)) =
        others.find(|&(start, size, _)| start < end && links.base < start.saturating_add(size))
    {
        let message = format!(
            "[links] at {} covers {what} at {}",
            units::range(links.base, links.size),
            units::range(start, size)
        );
        problems.push(
            Problem::new("link-window", message)
                .help("choose addresses where the machine has nothing"),
        );
    }
    let last = links.first_interrupt + LINK_INTERRUPTS - 1;
    let is_ours = |id: &u64| (links.first_interrupt..=last).contains(id);
    let interrupts = board.devices.iter().flat_map(|device| &device.interrupts);
    let taken = interrupts
        .chain([&board.uart.interrupt])
        .find(|&id| is_ours(id));
    let highest = FIRST_SPI + MAX_GUEST_SPIS - 1;
    let why = match taken {
        Some(id) => format!("{id} belongs to a device"),
        None if last > highest => format!("the last one of a guest is {highest}"),
        None => return,
    };
    let first = links.first_interrupt;
    let message = format!("[links] takes the interrupts {first} to {last}, but {why}");
    problems.push(
        Problem::new("link-interrupt", message)
            .help("choose a `first-interrupt` followed by 15 more that no device has"),
    );
}

/// Local memory is not in memory, or in front of the hypervisor's image, which is never a guest's; and nothing else is there.
fn local_memory(board: &Board, problems: &mut Vec<Problem>) {
    let Some(local) = board.local_memory else {
        return;
    };
    let end = local.base.saturating_add(local.size);
    let meets = |start: u64, size: u64| start < end && local.base < start.saturating_add(size);
    let memory = board.memory.base;
    // The sums are of any numbers that a file may have.
    let first = memory.saturating_add(MemoryRange::KEPT);
    let image = memory.saturating_add(board.memory.image_offset);
    let is_in_front = local.base >= first && end <= image;
    let devices = board.devices.iter().map(|device| {
        let what = format!("device \"{}\"", device.name);
        (device.base, device.size, what)
    });
    let redistributors = REDISTRIBUTOR_SIZE * MAX_VCPUS_PER_GUEST as u64;
    let parts = [
        (
            board.gic.distributor,
            DISTRIBUTOR_SIZE,
            "the interrupt distributor",
        ),
        (
            board.gic.redistributor,
            redistributors,
            "the interrupt redistributors",
        ),
        (board.uart.base, PAGE, "the UART"),
    ];
    let parts = parts.map(|(start, size, what)| (start, size, what.to_owned()));
    let mut others = parts.into_iter().chain(devices);
    let met = match meets(memory, board.memory.max) && !is_in_front {
        true => Some((memory, board.memory.max, "memory".to_owned())),
        false => others.find(|&(start, size, _)| meets(start, size)),
    };
    if let Some((start, size, what)) = met {
        let message = format!(
            "[local-memory] at {} covers {what} at {}",
            units::range(local.base, local.size),
            units::range(start, size)
        );
        let help = format!(
            "name memory on the chip, or set some aside in front of the hypervisor's image, from {first:#x} to {image:#x}"
        );
        problems.push(Problem::new("local-memory", message).help(help));
    }
}

fn name(device: &Device, before: &[Device], problems: &mut Vec<Problem>) {
    if let Some(first) = before.iter().find(|other| other.name == device.name) {
        problems.push(
            Problem::new(
                "duplicate-device",
                format!("two devices are \"{}\"", device.name),
            )
            .at_in(SourceFile::Board, device.span, "the second")
            .at_in(SourceFile::Board, first.span, "the first")
            .help("give each another name; in a row, {} in the name is the number"),
        );
    }
}

fn registers(board: &Board, device: &Device, problems: &mut Vec<Problem>) {
    let name = &device.name;
    let page = align_down(device.base, PAGE);
    let end = device.base.checked_add(device.size);
    let Some(end) = end
        .and_then(|end| units::align_up(end, PAGE))
        .filter(|_| device.size > 0)
    else {
        problems.push(
            Problem::new(
                "device-registers",
                format!("device \"{name}\" has no valid size"),
            )
            .at_in(SourceFile::Board, device.span, "base and size")
            .help("write the bytes of its registers, such as size = \"4KiB\""),
        );
        return;
    };
    if end > 1 << PA_BITS {
        let message = format!("device \"{name}\" ends at {end:#x}, above 1 TiB (2^{PA_BITS})");
        problems.push(
            Problem::new("device-registers", message)
                .at_in(SourceFile::Board, device.span, "base and size")
                .help("correct its `base`, or remove it: guests have no such addresses"),
        );
    }
    // Guests see their redistributors here too, and may have more vCPUs than the board has cores.
    let cores = board.mpidrs.len().max(MAX_VCPUS_PER_GUEST) as u64;
    let others = [
        (board.memory.base, board.memory.max, "memory"),
        (
            board.gic.distributor,
            DISTRIBUTOR_SIZE,
            "the interrupt distributor",
        ),
        (
            board.gic.redistributor,
            REDISTRIBUTOR_SIZE * cores,
            "the interrupt redistributors",
        ),
        (board.uart.base, PAGE, "the hypervisor's UART"),
    ];
    for (start, size, what) in others {
        if page < start.saturating_add(size) && start < end {
            let message = format!(
                "device \"{name}\" at {} is in a page of {what} at {}",
                units::range(device.base, device.size),
                units::range(start, size)
            );
            problems.push(
                Problem::new("device-registers", message)
                    .at_in(SourceFile::Board, device.span, "base and size")
                    .help("correct its `base`, or remove it: it cannot be given to a guest"),
            );
        }
    }
    for (offset, _) in &device.quiesce {
        if offset.checked_add(4).is_none_or(|end| end > device.size) || !offset.is_multiple_of(4) {
            let message = format!("device \"{name}\" has no register at offset {offset:#x}");
            problems.push(
                Problem::new("device-registers", message)
                    .at_in(SourceFile::Board, device.span, "`quiesce`")
                    .help("write a multiple of 4 below the device's size"),
            );
        }
    }
}

fn interrupts(board: &Board, device: &Device, problems: &mut Vec<Problem>) {
    let last = FIRST_SPI + board.gic.spis.min(MAX_GUEST_SPIS) - 1;
    for id in &device.interrupts {
        let message = if !(FIRST_SPI..=last).contains(id) {
            format!(
                "device \"{}\" has interrupt {id}, not from 32 to {last}",
                device.name
            )
        } else if *id == board.uart.interrupt {
            format!(
                "device \"{}\" has interrupt {id}, the hypervisor's UART's",
                device.name
            )
        } else {
            continue;
        };
        problems.push(
            Problem::new("device-interrupt", message)
                .at_in(SourceFile::Board, device.span, "`interrupts`")
                .help("write INTIDs: an SPI's number and 32"),
        );
    }
}
