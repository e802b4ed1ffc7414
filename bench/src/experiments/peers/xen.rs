// SPDX-License-Identifier: MIT OR Apache-2.0
//! The same runs on Xen: FreeRTOS and Linux as domains (`guests/xen/README.md`).

use super::super::Plan;
use super::super::beside::{Load, Periods};
use super::super::loads::{CORES, Loads};
use super::same_files::run_beside;
use crate::linux::Linux;
use crate::machine::{Machine, Run};
use crate::system::System;
use crate::xen::{Setup, XenSystem};

/// Why there is no number for disk writes.
pub(super) const NO_DISK: &str = "Xen has no numbers beside disk writes: the machine has no IOMMU, so a device can reach only a \
    domain whose memory is where the domain sees it. For a domain that Xen makes itself this needs `CONFIG_STATIC_MEMORY`, \
    which Debian's build is without.";

/// How the system is set up, for the page.
pub(super) const METHOD: &[&str] = &[
    "Xen: 4.17 from Debian, which has the schedulers credit2 (Xen's default) and credit. RTDS and null are marked unsupported \
     in 4.17. Debian's build has neither, nor cpupools at boot (`xen.config` beside the image).",
    "Xen makes both domains from the device tree. A control domain of about 1 KiB (`guests/xen/setup.c`) gives FreeRTOS's the \
     weight 65535 (Linux's stays at 256), pins its vCPU to core 3 and, with credit2, Linux's four to one core each, and sleeps. \
     So no dom0 takes time. `sched_ratelimit_us=0` lets a vCPU that wakes preempt at once, instead of after up to 1 ms; \
     `timer_slop=1000` lets timers be late by 1 µs, instead of 50; `credit2_runqueue=cpu` and `sched_credit_tslice_ms=1` gave \
     the shortest waits (`docs/misc/xen-command-line.pandoc` of Xen; `guests/xen/README.md` has the effect of each). WFI traps \
     (`vwfi=trap`, the default): with `native`, a core that the real-time guest leaves idle is lost to Linux.",
    "Xen, a core for FreeRTOS: credit2 with the same settings, but Linux has three vCPUs, pinned to cores 0 to 2, so FreeRTOS has core 3 \
     alone. (Core 0 handles the interrupts of Xen's console.) And `vwfi=native`, which *reduces irq latency significantly*, and costs nothing if no core has more than one vCPU \
     (`docs/misc/xen-command-line.pandoc`). For such systems Xen also has the scheduler null, which Debian's build is without.",
    "Weights are shares, not priorities: neither scheduler has a way to say that FreeRTOS always goes first. With credit2, \
     Linux was faster pinned than floating. credit counts weights over all cores: pinned, Linux's last CPU took half of the shared core from \
     FreeRTOS, so it floats. If a turn ends by the \
     timer, it has lasted at least half a millisecond with credit2 (`CSCHED2_MIN_TIMER`), and one millisecond with credit.",
];

/// A run of FreeRTOS and Linux on Spumone, on Xen instead.
fn on_xen(mut run: Run, setup: Setup, label: String) -> Run {
    if let Machine::Spumone(System {
        rt,
        linux: Some(linux),
        ..
    }) = &run.machine
        && let [rt] = rt.as_slice()
    {
        run.machine = Machine::Xen(XenSystem {
            setup,
            cores: CORES,
            rt: rt.bootargs.clone(),
            linux: Linux {
                cpus: setup.cores.linux_vcpus(CORES),
                ..linux.clone()
            },
        });
    }
    run.label = label;
    run
}

/// Linux measures a yardstick while FreeRTOS takes a share of one core, in per cent.
pub(super) fn throughput_run(
    plan: &Plan,
    loads: &Loads,
    setup: Setup,
    load: u32,
    label: String,
) -> Run {
    on_xen(loads.run(plan, "none", load), setup, label)
}

/// FreeRTOS measures how late it wakes. `None`: Xen cannot do this.
pub(super) fn wakeup_run(
    plan: &Plan,
    load: Load,
    periods: Periods,
    setup: Setup,
    label: String,
) -> Option<Run> {
    if load == Load::Disk {
        return None;
    }
    let run = run_beside(plan, String::new(), "none", load, periods);
    Some(on_xen(run, setup, label))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::loads::tests::{loads, plan};
    use crate::machine::Order;
    use crate::xen::{Cores, Scheduler};

    const SHARED: Setup = Setup {
        scheduler: Scheduler::Credit,
        cores: Cores::Shared,
    };
    const PARTITIONED: Setup = Setup {
        scheduler: Scheduler::Credit2,
        cores: Cores::Partitioned,
    };

    #[test]
    fn the_guests_are_the_same_as_on_spumone() {
        let spumone = loads().run(&plan(), "none", 50);
        let xen = throughput_run(&plan(), &loads(), SHARED, 50, "a".into());
        assert_eq!(
            (xen.label.as_str(), xen.order, xen.end_mark()),
            ("a", spumone.order, spumone.end_mark())
        );
        let (Machine::Xen(xen), Machine::Spumone(spumone)) = (xen.machine, spumone.machine) else {
            panic!("another machine")
        };
        assert_eq!(xen.setup, SHARED);
        assert_eq!(xen.rt, spumone.rt[0].bootargs);
        assert_eq!(Some(xen.linux), spumone.linux);
    }

    #[test]
    fn a_core_for_freertos_is_one_less_for_linux() {
        let cpus = |setup| {
            let run = throughput_run(&plan(), &loads(), setup, 50, "a".into());
            let linux = run.machine.linux().map(|it| (it.cpus, it.bootargs()));
            (run.machine.cores(), linux.unwrap())
        };
        let (cores, (vcpus, bootargs)) = cpus(PARTITIONED);
        assert_eq!((cores, vcpus), (4, 3));
        // The work is the same.
        assert_eq!(cpus(SHARED), (4, (4, bootargs)));
    }

    #[test]
    fn there_is_no_disk() {
        let periods = Periods {
            us: 100,
            count: 2_000,
            warmup: 0,
            more: "",
        };
        let run = |load| wakeup_run(&plan(), load, periods, PARTITIONED, "a".into());
        let Some(Run {
            machine: Machine::Xen(system),
            order: Order::RtFirst,
            ..
        }) = run(Load::Hackbench)
        else {
            panic!("another run")
        };
        assert_eq!(system.rt, "period=100us samples=2000");
        assert!(run(Load::Idle).is_some() && run(Load::Disk).is_none());
    }
}
