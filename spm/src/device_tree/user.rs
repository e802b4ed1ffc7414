// SPDX-License-Identifier: MIT OR Apache-2.0
//! The user's own device tree: checked against what the guest gets, then completed with the command line and ramdisk of the
//! description, and with new seeds. The rest is not changed.

use super::{generate, seeds};
use dtoolkit::Node;
use dtoolkit::error::ModelError;
use dtoolkit::fdt::Fdt;
use dtoolkit::model::{DeviceTree, DeviceTreeNode, DeviceTreeProperty};
use spumone_config::description::Guest;
use spumone_config::layout::GuestPlan;
use spumone_config::packed::Mapping;
use spumone_config::problem::Problem;
use spumone_config::units::{MIB, range};

/// What is wrong with a device tree and what to do about it.
struct Fault {
    what: String,
    help: String,
}

fn fault(what: impl Into<String>, help: impl Into<String>) -> Fault {
    Fault {
        what: what.into(),
        help: help.into(),
    }
}

fn problem(guest: &Guest, fault: &Fault) -> Problem {
    let span = guest.dtb.as_ref().map_or(guest.span, |dtb| dtb.span);
    let message = format!(
        "the device tree of guest \"{}\" {}",
        guest.name.value, fault.what
    );
    Problem::new("device-tree", message)
        .at(span, "this file")
        .help(fault.help.as_str())
}

/// Most nodes inside each other, the root among them: those that Linux reads (`FDT_MAX_DEPTH` in drivers/of/fdt.c). What makes and writes
/// trees calls itself for each level, so `spm` must not go on with more.
const MAX_DEPTH: usize = 64;

/// Largest blob that is looked at. The layout refuses larger ones.
const MAX_SIZE: u64 = 2 * MIB;

/// Most nodes and properties: what changes a tree makes an object of each.
const MAX_ITEMS: usize = 65_536;
/// Most nodes and properties, each counted once for each level in which it is: what reads a tree goes through it again for each level. This is
/// the largest tree with eight levels.
const MAX_ITEM_LEVELS: usize = 8 * MAX_ITEMS;

/// Checks that a blob is a device tree.
pub fn check_form(blob: &[u8], guest: &Guest) -> Option<Problem> {
    if blob.len() as u64 > MAX_SIZE {
        return None;
    }
    let checked = parse(blob).and_then(|_| check_extent(blob));
    checked.err().map(|fault| problem(guest, &fault))
}

/// Checks that not too many nodes are inside each other, and that there are not too many of them (Devicetree Specification 0.4,
/// section 5.4). The blob is a valid one.
fn check_extent(blob: &[u8]) -> Result<(), Fault> {
    /// Where the header says where the nodes are.
    const STRUCTURE: usize = 8;
    /// Length and name of a property, before its value.
    const PROPERTY: usize = 8;
    const BEGIN_NODE: u32 = 1;
    const END_NODE: u32 = 2;
    const PROP: u32 = 3;
    const END: u32 = 9;
    let word = |at: usize| -> Option<u32> {
        let bytes = blob.get(at..at.checked_add(4)?)?;
        Some(u32::from_be_bytes(bytes.try_into().ok()?))
    };
    let mut at = word(STRUCTURE).unwrap_or(0) as usize;
    let (mut depth, mut items, mut item_levels) = (0_usize, 0_usize, 0_usize);
    while let Some(token) = word(at).filter(|it| *it != END) {
        at += 4;
        match token {
            BEGIN_NODE => {
                let name = blob.get(at..).unwrap_or_default();
                let length = name.iter().take_while(|byte| **byte != 0).count();
                at += (length + 1).next_multiple_of(4);
                (depth, items) = (depth + 1, items + 1);
                item_levels += depth;
            }
            PROP => {
                let length = word(at).unwrap_or(0) as usize;
                at += PROPERTY + length.next_multiple_of(4);
                items += 1;
                item_levels += depth;
            }
            END_NODE => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_DEPTH {
            return Err(fault(
                format!("has more than {MAX_DEPTH} nodes inside each other"),
                "use one with fewer levels: Linux reads no more",
            ));
        }
        if items > MAX_ITEMS {
            return Err(fault(
                format!("has more than {MAX_ITEMS} nodes and properties"),
                "use one with fewer: that of a whole board has a few thousand nodes",
            ));
        }
        if item_levels > MAX_ITEM_LEVELS {
            return Err(fault(
                format!(
                    "has too many nodes and properties in too many levels: more than {MAX_ITEM_LEVELS}, each counted once for each level"
                ),
                "use one with fewer of them, or with fewer levels",
            ));
        }
    }
    Ok(())
}

fn parse(blob: &[u8]) -> Result<Fdt<'_>, Fault> {
    Fdt::new(blob).map_err(|error| {
        fault(
            format!("is not a valid device tree: {error}"),
            "compile it with `dtc -O dtb`, or remove `dtb` to have one generated",
        )
    })
}

/// The user's tree, checked and completed.
pub fn complete(blob: &[u8], guest: &Guest, plan: &GuestPlan) -> Result<DeviceTree, Box<Problem>> {
    let completed = parse(blob).and_then(|fdt| {
        check_memory(fdt, plan.memory)?;
        check_cpus(fdt, guest.vcpus.value.len())?;
        let mut tree = DeviceTree::from_fdt(&fdt);
        fill_chosen(&mut tree, guest, plan).map_err(|error| {
            fault(
                format!("cannot be completed: {error}"),
                "see `chosen` in it",
            )
        })?;
        Ok(tree)
    });
    completed.map_err(|fault| Box::new(problem(guest, &fault)))
}

/// All memory in the tree must be the guest's.
fn check_memory(fdt: Fdt<'_>, memory: Mapping) -> Result<(), Fault> {
    let (start, size) = (memory.ipa.0, memory.size);
    let help = || {
        format!(
            "give it one memory node for {}, size {size:#x}",
            range(start, size)
        )
    };
    let mut found = false;
    for node in fdt
        .root()
        .children()
        .filter(|node| node.name_without_address() == "memory")
    {
        let regs = node.reg().ok().flatten().into_iter().flatten();
        for reg in regs {
            let (Ok(at), Ok(bytes)) = (reg.address::<u64>(), reg.size::<u64>()) else {
                return Err(fault("has a memory node with an unusable `reg`", help()));
            };
            let end = at.checked_add(bytes);
            if at < start || end.is_none_or(|end| end > start + size) {
                let what = format!(
                    "names memory at {}, and the guest has {}",
                    range(at, bytes),
                    range(start, size)
                );
                return Err(fault(what, help()));
            }
            found = true;
        }
    }
    if found {
        Ok(())
    } else {
        Err(fault("names no memory", help()))
    }
}

/// The tree must not have CPUs that the guest does not have.
fn check_cpus(fdt: Fdt<'_>, vcpus: usize) -> Result<(), Fault> {
    let count = fdt.cpus().map(|cpus| cpus.cpus().count()).unwrap_or(0);
    if (1..=vcpus).contains(&count) {
        return Ok(());
    }
    Err(fault(
        format!("names {count} CPUs, but the number of vCPUs is {vcpus}"),
        "give it a cpu node for each vCPU, `reg` counting from 0",
    ))
}

fn fill_chosen(tree: &mut DeviceTree, guest: &Guest, plan: &GuestPlan) -> Result<(), ModelError> {
    if tree.root.child_mut("chosen").is_none() {
        tree.root.add_child(DeviceTreeNode::new("chosen")?);
    }
    let Some(chosen) = tree.root.child_mut("chosen") else {
        return Ok(());
    };
    if let Some(bootargs) = &guest.bootargs {
        chosen.add_property(DeviceTreeProperty::new(
            "bootargs",
            bootargs.value.as_str(),
        )?);
    }
    generate::initrd(chosen, plan)?;
    match plan.is_local() {
        true => Ok(()),
        false => seeds::add(chosen),
    }
}
