// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory that the system below the guests takes, and the size of what must be trusted.

use super::WORST;
use super::column::Column;
use super::runs::wakeup_label;
use super::systems::{Kind, Peer, all};
use crate::experiments::Table;
use crate::machine::MEMORY_MIB;
use crate::results::{Outcome, Results};
use crate::role::Role;
use crate::sizes::Sizes;
use crate::stats::Spread;
use crate::{kvm, xen};
use serde_json::{Value, json};

/// Where the numbers are from.
pub(super) const METHOD: &[&str] = &[
    "Memory taken: the 2 GiB of the machine, less the memory of both guests, less what is free, in the wake-up runs beside \
     hackbench. Spumone: what `spm build` keeps from guests, in whole blocks of 2 MiB: the hypervisor with its working memory, the \
     translation tables, and the guests' images, from which it restarts them. Xen: `free_pages` of `XEN_SYSCTL_physinfo`, for which \
     the control domain asks when all domains run. Xen frees the images when it has made the domains. KVM: `MemAvailable` of \
     `/proc/meminfo` (Linux, `Documentation/filesystems/proc.rst`) when the Linux guest has booted and FreeRTOS is about to start. \
     SCHED_FIFO: nothing, since there is nothing below Linux.",
    "Files in it: the guests' images; on KVM all files of the host, QEMU among them (`du`). The host has no disk, and \
     keeps its files in memory. With a disk it would keep those parts that are in use. QEMUs: what both have allocated beside \
     the memory of the guests (`RssAnon` of `/proc/PID/status`). It is locked, as libvirt's page has it, so that all of \
     their stacks and heaps is present, used or not (`guests/kvm/README.md` has the numbers without that).",
    "Program files: the bytes that are loaded of the programs that can stop the real-time side or write to its memory: code, \
     constants, and data that is not zero at the start. Spumone: the segments of its ELF file. Xen: the files `xen` and `setup.bin`. \
     SCHED_FIFO: the file `Image` of the kernel. KVM: that of the host's kernel, and what QEMU has mapped of its program and its \
     libraries (`/proc/PID/maps`), in whole pages. This leaves out firmware, kernel modules (two drivers for disks, 75 kB at \
     most), the host's busybox, and memory that is cleared at the start. The Images of Linux, and `xen`, have tables of symbols \
     among their constants; they are counted.",
    "What else is trusted: a guest with a device that does DMA, since the machine has no SMMU. Linux has a disk in the runs beside disk \
     writes, so there its kernel is trusted on Spumone, too. Xen's numbers are with a control domain of our own, which does next to \
     nothing; a Linux as control domain takes more memory and more trust. KVM's would be about 330 MiB less without locked memory, \
     and its files need not be in memory if the host has a disk.",
];

const KIB: f64 = 1024.0;
const MIB: f64 = KIB * KIB;

/// What a system takes, in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Footprint {
    memory: f64,
    files: f64,
    control: f64,
    program: f64,
}

/// A row for each system.
pub(super) fn table(results: &Results) -> Table {
    let mut table = Table::new(
        "Memory that the system takes, and the size of what must be trusted",
        &[
            "",
            "memory taken, MiB",
            "files in it, MiB",
            "control domain or QEMUs in it, MiB",
            "program files, KiB",
        ],
    );
    for peer in all() {
        if results.of(&wakeup_label(peer, WORST)).is_empty() {
            continue;
        }
        let spreads = spreads(results, peer);
        let cells = spreads.map_or(
            ["-"; 4].map(str::to_owned),
            |[memory, files, control, program]| {
                [
                    memory.over(MIB).show(1),
                    files.over(MIB).show(1),
                    control.over(MIB).show(1),
                    program.over(KIB).show(0),
                ]
            },
        );
        let title = peer.title.to_owned();
        table.rows.push([title].into_iter().chain(cells).collect());
    }
    table
}

/// What is compared.
pub(super) fn columns(results: &Results) -> Vec<Column> {
    vec![
        Column::new("memory taken in MiB", 1, |peer| {
            let [memory, ..] = spreads(results, peer)?;
            Some(memory.over(MIB))
        }),
        Column::new("program files in KiB", 0, |peer| {
            let [.., program] = spreads(results, peer)?;
            Some(program.over(KIB))
        }),
    ]
}

/// For the JSON file.
pub(super) fn summary(results: &Results, peer: &Peer) -> Value {
    spreads(results, peer).map_or(Value::Null, |[memory, files, control, program]| {
        json!({ "memory_bytes": memory, "files_bytes": files, "control_bytes": control, "program_bytes": program })
    })
}

/// Memory, files in it, control domain or QEMUs in it, and program files, over all seeds.
fn spreads(results: &Results, peer: &Peer) -> Option<[Spread; 4]> {
    let outcomes = results.of(&wakeup_label(peer, WORST)).iter();
    let each: Vec<_> = outcomes
        .filter_map(|it| footprint(&results.sizes, peer, it))
        .collect();
    let spread = |value: fn(&Footprint) -> f64| Spread::of(each.iter().map(value));
    Some([
        spread(|it| it.memory)?,
        spread(|it| it.files)?,
        spread(|it| it.control)?,
        spread(|it| it.program)?,
    ])
}

fn footprint(sizes: &Sizes, peer: &Peer, outcome: &Outcome) -> Option<Footprint> {
    let size = |role: Role| Some(*sizes.files.get(&role.to_string())? as f64);
    let said = |key: &str| Some(outcome.system(key)? * KIB);
    // Of the machine's memory, without that of the guests and what the system below them says is free.
    let taken = |guests_mib: u32| {
        let others = (MEMORY_MIB as f64 - f64::from(guests_mib)) * MIB;
        Some(others - said("free_kib")?)
    };
    Some(match peer.kind {
        Kind::Spumone(_) => {
            let size = sizes.systems.get(&outcome.label)?;
            Footprint {
                memory: size.memory as f64,
                files: size.files as f64,
                control: 0.0,
                program: size.program as f64,
            }
        }
        Kind::Threads(flavour, _) => Footprint {
            memory: 0.0,
            files: 0.0,
            control: 0.0,
            program: size(Role::Kernel(flavour))?,
        },
        Kind::Xen(_) => Footprint {
            memory: taken(xen::GUESTS_MIB)?,
            files: 0.0,
            control: f64::from(xen::CONTROL_MEMORY_MIB) * MIB,
            program: size(Role::Xen)? + size(Role::XenControl)?,
        },
        Kind::Kvm(setup) => Footprint {
            memory: taken(kvm::GUESTS_MIB)?,
            files: said("files_kib")?,
            control: said("qemus_kib")?,
            program: size(Role::Kernel(setup.host))? + said("program_kib")?,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::super::systems::OWN;
    use super::*;
    use crate::results::samples;
    use crate::sizes::SystemSize;

    /// The row of the first system of a kind, after a run with this log.
    fn row(is_kind: fn(Kind) -> bool, log: &str) -> Vec<String> {
        let peer = all().find(|it| is_kind(it.kind)).unwrap();
        let mut results = Results::default();
        for (name, kib) in [
            ("Image", 34_000),
            ("Image-rt", 43_000),
            ("xen", 960),
            ("setup.bin", 1),
        ] {
            results.sizes.files.insert(name.into(), kib << 10);
        }
        let size = SystemSize {
            memory: 46 << 20,
            files: 40 << 20,
            program: 150 << 10,
        };
        let own = wakeup_label(OWN, WORST);
        results.sizes.systems.insert(own, size);
        results.add(samples::outcome(&wakeup_label(peer, WORST), 1, log));
        let rows = table(&results).rows;
        assert_eq!(rows.len(), 1, "only what has run has a row");
        assert_eq!(rows[0][0], peer.title);
        rows[0][1..].to_vec()
    }

    #[test]
    fn spumone_takes_what_its_build_says() {
        let row = row(|it| matches!(it, Kind::Spumone(_)), "");
        assert_eq!(row, ["46.0", "40.0", "0.0", "150"]);
    }

    #[test]
    fn threads_take_no_memory_and_trust_the_whole_kernel() {
        let row = row(|it| matches!(it, Kind::Threads(..)), "");
        assert_eq!(row, ["0.0", "0.0", "0.0", "34000"]);
    }

    #[test]
    fn xen_takes_what_is_neither_free_nor_a_guests() {
        let free_kib = (2048 - 16 - 512 - 100) << 10;
        let row = row(
            |it| matches!(it, Kind::Xen(_)),
            &format!("system-result free_kib={free_kib}\n"),
        );
        assert_eq!(row, ["100.0", "0.0", "8.0", "961"]);
    }

    #[test]
    fn a_kvm_host_is_its_kernel_and_qemu() {
        let free_kib = (2048 - 64 - 512 - 300) << 10;
        let row = row(
            |it| matches!(it, Kind::Kvm(_)),
            &format!(
                "system-result free_kib={free_kib} files_kib={} qemus_kib={} program_kib=9000\n",
                110 << 10,
                70 << 10,
            ),
        );
        assert_eq!(row, ["300.0", "110.0", "70.0", "43000"]);
    }

    #[test]
    fn what_a_run_has_not_said_is_not_known() {
        for is_kind in [
            |it| matches!(it, Kind::Xen(_)),
            |it| matches!(it, Kind::Kvm(_)),
        ] {
            assert_eq!(row(is_kind, "linux-result ok=1\n"), ["-"; 4]);
        }
    }
}
