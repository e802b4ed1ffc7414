// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shows a checked system: which vCPU runs on which core, and what is where in memory.

use crate::power;
use crate::system::System;
use crate::words::{counted, numbers};
use serde_json::Value;
use spumone_config::description::{self, POLICIES};
use spumone_config::layout::Source;
use spumone_config::packed::{Guest, LinkKind, OnStop, WakeEarly};
use spumone_config::units::{KIB, MIB, PAGE, range, size};
use std::fmt::Write;
use std::path::Path;

/// The system in the hypervisor's form, and what each mode of `[power]` can turn off. Addresses are numbers of bytes.
pub fn json(system: &System) -> Value {
    // Only maps with keys other than strings fail, and there are none.
    let mut value = serde_json::to_value(&system.packed.system).unwrap_or_default();
    if let Some(power) = value.get_mut("power").and_then(Value::as_object_mut) {
        power.extend(power::json(system));
    }
    value
}

/// The names of the guests that are trusted with all memory of the machine.
pub fn trusted(system: &System) -> Vec<&str> {
    let guests = system.description.guests.iter();
    let trusted = guests.filter(|guest| is_trusted(system, guest));
    trusted.map(|guest| guest.name.value.as_str()).collect()
}

/// Whether a guest has a device that does DMA. Nothing confines that.
fn is_trusted(system: &System, guest: &description::Guest) -> bool {
    !guest.dma_devices(&system.board).is_empty()
}

/// The system as text.
pub fn text(path: &Path, system: &System) -> String {
    let packed = &system.packed.system;
    let vcpus: usize = packed.guests.iter().map(|guest| guest.vcpus.len()).sum();
    let mut text = format!(
        "{}: valid. {}, {} on {} of {}\n\n",
        path.display(),
        counted(packed.guests.len(), "guest"),
        counted(vcpus, "vCPU"),
        counted(packed.board.core_mpidrs.len(), "core"),
        packed.board.name
    );
    text += &table(&cores(system));
    writeln!(text, "\n  {}", policy(system)).unwrap_or_default();
    for line in power::text(system) {
        writeln!(text, "  {line}").unwrap_or_default();
    }
    text.push('\n');
    text += &table(&memory(system));
    for (index, guest) in packed.guests.iter().enumerate() {
        text.push('\n');
        text += &guest_text(system, index, guest);
    }
    text
}

/// The home core of each vCPU, with its priority.
fn cores(system: &System) -> Vec<Vec<String>> {
    let packed = &system.packed.system;
    let mut rows = vec![vec!["core".to_owned()]];
    rows[0].extend(packed.guests.iter().map(|guest| guest.name.to_string()));
    for core in 0..packed.board.core_mpidrs.len() {
        let mut row = vec![core.to_string()];
        for guest in &packed.guests {
            let here = guest
                .vcpus
                .iter()
                .enumerate()
                .filter(|(_, it)| it.home.index() == core);
            let cells: Vec<_> = here
                .map(|(vcpu, it)| format!("vCPU {vcpu}, priority {}", it.priority.0))
                .collect();
            row.push(if cells.is_empty() {
                "-".into()
            } else {
                cells.join("; ")
            });
        }
        rows.push(row);
    }
    rows
}

/// The policy and why the system has it; which guests move, among which cores.
fn policy(system: &System) -> String {
    let packed = &system.packed.system;
    let policy = packed.scheduler.policy;
    let name = POLICIES.iter().find(|it| it.1 == policy);
    let name = name.map_or("", |it| it.0);
    let why = match (
        system.description.scheduler.names_policy,
        policy.moves_vcpus(),
    ) {
        (true, _) => "as the description says",
        (false, true) => "the default where a guest has several vCPUs or cores",
        (false, false) => "the default where each guest has one vCPU on one core",
    };
    let guests: Vec<_> = packed
        .guests
        .iter()
        .map(|guest| match guest.moves {
            true if guest.cores.is_power_of_two() => {
                format!(
                    "the vCPUs of {} share core {}",
                    guest.name,
                    numbers(guest.cores)
                )
            }
            true => format!("{} moves among cores {}", guest.name, numbers(guest.cores)),
            false => format!("{} stays", guest.name),
        })
        .zip(&packed.guests)
        .map(|(place, guest)| match guest.wake_early {
            WakeEarly::Off | WakeEarly::Auto => place,
            WakeEarly::Microseconds(early) => format!("{place}, woken {early} µs early"),
        })
        .collect();
    format!("policy {name}, {why}: {}", guests.join(", "))
}

/// What the machine's memory is used for.
fn memory(system: &System) -> Vec<Vec<String>> {
    let plan = &system.plan;
    let mut pieces = vec![(plan.hypervisor.start.0, plan.hypervisor.size, {
        "hypervisor and images".to_owned()
    })];
    for (guest, placed) in system.description.guests.iter().zip(&plan.guests) {
        let memory = placed.memory;
        let seen = match memory.ipa.0 == memory.pa.0 {
            true => "seen where it is".to_owned(),
            false => format!("seen at {}", memory.ipa),
        };
        pieces.push((
            memory.pa.0,
            memory.size,
            format!("{}, {seen}", guest.name.value),
        ));
    }
    if let Some(links) = plan.link_memory {
        pieces.push((links.start.0, links.size, "memory of links".to_owned()));
    }
    pieces.sort_unstable();
    let mut rows = vec![["memory", "size", "what"].map(str::to_owned).to_vec()];
    let mut next = plan.machine.start.0;
    let end = next + plan.machine.size;
    let mut free = 0;
    for (start, bytes, what) in pieces {
        free += start.saturating_sub(next);
        rows.push(vec![range(start, bytes), size(bytes), what]);
        next = start + bytes;
    }
    free += end.saturating_sub(next);
    rows.push(vec![String::new(), size(free), "free".into()]);
    rows
}

/// What one guest gets: addresses in its own address space.
fn guest_text(system: &System, index: usize, guest: &Guest) -> String {
    let plan = &system.plan.guests[index];
    let mut text = format!("{}: starts at {}", guest.name, guest.entry);
    let image: u64 = plan
        .loads
        .iter()
        .filter(|load| load.source == Source::Image)
        .map(|load| load.size)
        .sum();
    // Writing to a string cannot fail.
    let _ = write!(text, ", image {}", about(image));
    if let Some((address, bytes)) = plan.initrd {
        let _ = write!(text, ", ramdisk at {address} ({})", about(bytes));
    }
    let tree = system.trees[index].blob.len() as u64;
    let _ = writeln!(
        text,
        ", device tree at {} ({})",
        plan.device_tree,
        about(tree)
    );
    let described = &system.description.guests[index];
    for name in &described.devices {
        let _ = writeln!(text, "  device {}", name.value);
    }
    if is_trusted(system, described) {
        let _ = writeln!(
            text,
            "  trusted with all memory of the machine: its devices do DMA"
        );
    }
    if let Some(protect) = &guest.protect
        && let Some(local) = protect.local
    {
        let memory: u64 = guest.memory.iter().map(|it| it.size).sum();
        let frames = local.areas(memory).map_or(0, |it| it.frames.size / PAGE);
        let read_only: u64 = protect.read_only.iter().map(|it| it.size / PAGE).sum();
        let _ = writeln!(
            text,
            "  protected: it runs from local memory at {} ({}), which holds {frames} of its {} pages; {read_only} of them it cannot write",
            range(local.memory.start.0, local.memory.size),
            size(local.memory.size),
            memory / PAGE
        );
    } else if let Some(protect) = &guest.protect {
        let read_only = protect.read_only.iter();
        let read_only: u64 = read_only.map(|pages| pages.size / PAGE).sum();
        let _ = writeln!(
            text,
            "  protected: {} compared with their hashes, in a round of {} ms; {read_only} of them the guest cannot write",
            counted(protect.count() as usize, "page"),
            protect.round_us / 1000
        );
    }
    if guest.watchdog_s != 0 {
        let then = match guest.on_stop {
            OnStop::Restart(_) => "the guest starts again",
            OnStop::Stop => "the guest stays stopped (`on-stop`)",
            OnStop::MachineOff => "the machine goes off",
        };
        let _ = writeln!(
            text,
            "  watchdog of at most {} s: when it expires, {then}",
            guest.watchdog_s
        );
    }
    for link in &guest.links {
        let peer = &system.packed.system.guests[link.peer.index()].name;
        let what = match link.kind {
            LinkKind::Memory { memory, writes } => format!(
                "memory at {} ({}{})",
                range(memory.ipa.0, memory.size),
                size(memory.size),
                if writes { "" } else { ", read-only" }
            ),
            LinkKind::Network { mac, offloads } => format!(
                "network card {}{}",
                mac_text(mac),
                if offloads { ", offloads" } else { "" }
            ),
            LinkKind::Socket { own, peer } => format!("sockets, CID {own}, the peer has {peer}"),
        };
        let gpio = link
            .gpio
            .map(|it| format!(", GPIO at {}, interrupt {}", it.base, it.interrupt));
        let _ = writeln!(
            text,
            "  link to {peer}: registers at {}, interrupt {}, {what}{}",
            link.registers,
            link.interrupt,
            gpio.unwrap_or_default()
        );
    }
    text
}

/// The address of a network card.
fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// A size, rounded.
fn about(bytes: u64) -> String {
    match bytes {
        0..KIB => format!("{bytes} bytes"),
        KIB..MIB => format!("{:.1} KiB", bytes as f64 / KIB as f64),
        _ => format!("{:.1} MiB", bytes as f64 / MIB as f64),
    }
}

/// Columns, aligned.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            rows.iter()
                .map(|row| row[column].chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for row in rows {
        let cells: Vec<_> = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        text += &format!("  {}", cells.join("   "));
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["core", "linux"], ["0", "vCPU 0"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(table(&rows), "  core   linux\n  0      vCPU 0\n");
    }

    #[test]
    fn cores_in_a_row_are_a_range() {
        assert_eq!(numbers(0b1111), "0-3");
        assert_eq!(numbers(0b10_0111), "0-2, 5");
        assert_eq!(numbers(1 << 31 | 1), "0, 31");
        assert_eq!(numbers(0), "");
    }
}
