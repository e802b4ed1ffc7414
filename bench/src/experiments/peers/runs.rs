// SPDX-License-Identifier: MIT OR Apache-2.0
//! The runs of each system, and what they say.

use super::super::Plan;
use super::super::beside::{DISK_MIB, Load, Periods};
use super::super::loads::{CORES, Loads};
use super::kvm;
use super::same_files::run_beside;
use super::systems::{Kind, Peer};
use super::xen;
use crate::linux::{Linux, Programs};
use crate::machine::{Machine, Order, Run};
use crate::results::{Outcome, Results};
use crate::role::Flavour;
use crate::stats::Spread;

pub(super) fn periods(plan: &Plan) -> Periods {
    Periods {
        us: 100,
        count: if plan.quick { 2_000 } else { 20_000 },
        warmup: 0,
        more: "",
    }
}

/// Virtual time in microseconds from the first period of a FreeRTOS that starts at power on until Linux has booted and its load
/// runs, on each system. The longest is that on Xen, which gives Linux no random seed at its start.
const BOOT_US: u64 = 3_000_000;

/// The periods of a FreeRTOS that starts at power on: those during the boot of Linux do not count, as on the other systems.
pub(super) fn periods_from_power_on(plan: &Plan) -> Periods {
    let periods = periods(plan);
    Periods {
        warmup: BOOT_US / periods.us,
        ..periods
    }
}

/// The warm-up of a FreeRTOS that starts beside a Linux that has booted: it touches its code and its data for the first time.
pub(super) const FIRST_TOUCH: u64 = 1_000;

/// The label of a wake-up measurement.
pub(super) fn wakeup_label(peer: &Peer, load: Load) -> String {
    format!("wakeup-{}-{}", peer.name, load.name())
}

/// A bare Linux with real-time threads of its own.
fn threads(mut linux: Linux, flavour: Flavour, options: &[&str]) -> Machine {
    linux.flavour = flavour;
    linux.options = options.iter().map(|&it| it.to_owned()).collect();
    linux.programs = Programs::Bench;
    Machine::BareLinux(linux)
}

/// Linux measures a yardstick while the real-time side takes a share of one core, in per cent.
pub(super) fn throughput_run(plan: &Plan, loads: &Loads, peer: &Peer, load: u32) -> Run {
    let machine = match peer.kind {
        Kind::Spumone(policy) => return loads.run(plan, policy, load),
        Kind::Xen(setup) => {
            let label = loads.label(peer.name, load);
            return xen::throughput_run(plan, loads, setup, load, label);
        }
        Kind::Kvm(setup) => return kvm::throughput_run(plan, loads, setup, peer.name, load),
        Kind::Threads(flavour, options) => {
            let mut linux = loads.linux(plan, CORES);
            let own = [
                format!("run={}", linux.scenario),
                format!("load={load}"),
                format!("burst={}", loads.burst_ms),
            ];
            linux.arguments.splice(0..0, own);
            linux.scenario = "besidertload".into();
            threads(linux, flavour, options)
        }
    };
    Run {
        label: loads.label(peer.name, load),
        machine,
        disk_mib: 0,
        clock: plan.clock(None),
        order: Order::Any,
    }
}

/// A real-time task measures how late it wakes. `None`: the system cannot do this.
pub(super) fn wakeup_run(plan: &Plan, peer: &Peer, load: Load) -> Option<Run> {
    let plan = &plan.for_latency();
    let label = wakeup_label(peer, load);
    let periods = periods(plan);
    let from_power_on = periods_from_power_on(plan);
    let (flavour, options) = match peer.kind {
        Kind::Spumone(policy) => {
            return Some(run_beside(plan, label, policy, load, from_power_on));
        }
        Kind::Xen(setup) => {
            return xen::wakeup_run(plan, load, from_power_on, setup, label);
        }
        Kind::Kvm(setup) => {
            let periods = Periods {
                warmup: FIRST_TOUCH,
                ..periods
            };
            return Some(kvm::wakeup_run(plan, label, setup, load, periods));
        }
        Kind::Threads(flavour, options) => (flavour, options),
    };
    // The scenario beside it is killed at the end, so its time need only be long enough.
    let (us, loops) = (
        format!("us={}", periods.us),
        format!("loops={}", periods.count),
    );
    let arguments: &[&str] = match load {
        Load::Idle => &["beside=idle", "seconds=1000"],
        Load::Hackbench => &["beside=hackbench", "-g 1 -l 1000"],
        Load::Disk => &["beside=diskwrite", "seconds=1000"],
    };
    let arguments: Vec<_> = [us.as_str(), &loops]
        .into_iter()
        .chain(arguments.iter().copied())
        .collect();
    Some(Run {
        label,
        machine: threads(Linux::new(CORES, "wakeup", &arguments), flavour, options),
        disk_mib: if load == Load::Disk { DISK_MIB } else { 0 },
        clock: plan.clock(None),
        order: Order::Any,
    })
}

/// A latency in microseconds, over all seeds, by the real-time guest's name for it without the unit.
pub(super) fn wakeup(results: &Results, peer: &Peer, load: Load, key: &str) -> Option<Spread> {
    const NS_PER_US: f64 = 1000.0;
    let key = format!("{key}_ns");
    let of = |it: &Outcome| match peer.kind {
        Kind::Spumone(_) | Kind::Xen(_) | Kind::Kvm(_) => it.rt(&key),
        Kind::Threads(..) => it.linux(&key),
    };
    let ns = results.of(&wakeup_label(peer, load)).iter().filter_map(of);
    Spread::of(ns.map(|it| it / NS_PER_US))
}
