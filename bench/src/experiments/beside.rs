// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs in which the real-time guest measures its dispatch latency: beside Linux with some load, or alone.

use super::{Plan, yardstick};
use crate::linux::Linux;
use crate::machine::{Machine, Order, Run};
use crate::system::{Rt, System};

/// Virtual time between the real-time guest's last period and the end of the run, in which it prints its report.
const REPORT_US: u64 = 600_000;
/// Longest virtual time from power on to the real-time guest's first period.
pub(super) const START_US: u64 = 200_000;
/// Size of the disk that Linux writes to.
pub(super) const DISK_MIB: u32 = 16;

/// What Linux does during the measurement.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// It sleeps.
    Idle,
    /// hackbench, again and again.
    Hackbench,
    /// Direct writes to a virtio disk without a pause.
    Disk,
}

impl Load {
    /// The name in labels.
    pub fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Hackbench => "hackbench",
            Self::Disk => "disk",
        }
    }

    /// The name on the page.
    pub fn title(self) -> &'static str {
        match self {
            Self::Idle => "Linux idle",
            Self::Hackbench => "Linux runs hackbench",
            Self::Disk => "Linux writes to a disk",
        }
    }
}

/// Periods of the real-time guest.
#[derive(Clone, Copy)]
pub struct Periods {
    /// Length of one.
    pub us: u64,
    /// The number of periods that count.
    pub count: u64,
    /// The number of periods before these, in which nothing counts.
    pub warmup: u64,
    /// More parameters of the guest, each after a space.
    pub more: &'static str,
}

impl Periods {
    /// The guest's parameters.
    pub fn bootargs(self) -> String {
        let warmup = match self.warmup {
            0 => String::new(),
            number => format!(" warmup={number}"),
        };
        format!(
            "period={}us samples={}{warmup}{}",
            self.us, self.count, self.more
        )
    }

    /// Their total length in virtual microseconds, with those that do not count.
    pub fn length_us(self) -> u64 {
        self.us * (self.warmup + self.count)
    }
}

/// The run that measures latency beside a loaded Linux.
pub fn run_beside(
    plan: &Plan,
    label: String,
    policy: &str,
    load: Load,
    periods: Periods,
    split: Option<&str>,
) -> Run {
    let end_us = START_US + periods.length_us() + REPORT_US;
    // The load outlasts the run, which ends by the clock.
    let seconds = format!("seconds={}", end_us / 1_000_000 + 2);
    let linux = match load {
        Load::Idle => Linux::new(4, "idle", &[&seconds]),
        Load::Hackbench => Linux::new(4, "load", &["load=hackbench", &seconds, "-g 1 -l 1000"]),
        Load::Disk => Linux::new(4, "diskwrite", &[&seconds]),
    };
    let disk = load == Load::Disk;
    Run {
        label,
        machine: Machine::Spumone(System {
            cores: 4,
            policy: policy.into(),
            interrupt_priorities: split.map(Into::into),
            rt: vec![Rt::new(periods.bootargs())],
            linux: Some(linux),
            disk,
            ..System::default()
        }),
        disk_mib: if disk { DISK_MIB } else { 0 },
        clock: plan.clock(Some(end_us)),
        order: Order::RtFirst,
    }
}

/// hackbench in Linux, again and again, beside a task that takes a timer interrupt in each of its periods and does nothing else.
///
/// # Errors
///
/// Never: hackbench is among the yardsticks.
pub fn hackbench_beside(
    plan: &Plan,
    label: String,
    policy: &str,
    period_us: u64,
) -> Result<Run, String> {
    let (seconds, repeats) = if plan.quick { (0.3, 2) } else { (1.0, 8) };
    let linux = yardstick::find("hackbench")?.linux(plan, 4, seconds, repeats);
    let allowed = plan.boot_seconds() + 2.0 * seconds * f64::from(repeats);
    let ms = (allowed * 1000.0).ceil();
    Ok(Run {
        label,
        machine: Machine::Spumone(System {
            cores: 4,
            policy: policy.into(),
            rt: vec![Rt::new(format!(
                "period={period_us}us load=0% duration={ms}ms histogram=off"
            ))],
            linux: Some(linux),
            ..System::default()
        }),
        disk_mib: 0,
        clock: plan.clock(None),
        order: Order::LinuxFirst {
            rt_until: (allowed * 1e9) as u64,
        },
    })
}

/// The run of the real-time guest alone on the bare machine.
pub fn run_bare(plan: &Plan, label: String, periods: Periods) -> Run {
    Run {
        label,
        machine: Machine::BareRt(periods.bootargs()),
        disk_mib: 0,
        clock: plan.clock(None),
        order: Order::Any,
    }
}
