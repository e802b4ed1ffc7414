// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs in which Linux measures its own time beside a real-time guest that takes a share of one core in bursts.

use super::Plan;
use crate::linux::Linux;
use crate::machine::{Machine, Order, Run};
use crate::system::{Rt, System};

/// How much longer than expected a run may take: the real-time guest's load must outlast Linux's measurement. The run ends
/// with Linux, so a large value costs nothing.
const ROOM: f64 = 2.0;
const NS_PER_SECOND: f64 = 1e9;

/// The load of the real-time guest.
#[derive(Clone, Copy)]
pub struct Bursts {
    /// Share of core 0 in per cent.
    pub load: u32,
    /// Period in milliseconds.
    pub ms: u32,
}

impl Bursts {
    /// Its share of a core.
    fn share(self) -> f64 {
        f64::from(self.load) / 100.0
    }

    /// Seconds from power on for which the real-time guest must run, for work that takes bare cores `seconds`.
    fn allowed(self, plan: &Plan, seconds: f64) -> f64 {
        // In the worst case all of Linux gets only what the load leaves of the core.
        ROOM * (plan.boot_seconds() + seconds) / (1.0 - self.share())
    }
}

/// The run. `seconds`: how long the measured work of `linux` takes on as many bare cores.
pub fn run_beside(
    plan: &Plan,
    label: String,
    policy: &str,
    bursts: Bursts,
    linux: Linux,
    seconds: f64,
) -> Run {
    let allowed = bursts.allowed(plan, seconds);
    let cores = linux.cpus;
    let rt = format!(
        "period=1ms load={}% burst={}ms duration={}ms histogram=off",
        bursts.load,
        bursts.ms,
        (allowed * 1000.0).ceil()
    );
    Run {
        label,
        machine: Machine::Spumone(System {
            cores,
            policy: policy.into(),
            rt: vec![Rt::new(rt)],
            linux: Some(linux),
            ..System::default()
        }),
        disk_mib: 0,
        clock: plan.clock(None),
        order: Order::LinuxFirst {
            rt_until: (allowed * NS_PER_SECOND) as u64,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::loads::tests::plan;

    #[test]
    fn the_real_time_guest_outlives_a_slow_linux() {
        let linux = Linux::new(4, "hackbench", &[]);
        let bursts = Bursts { load: 50, ms: 500 };
        let run = run_beside(&plan(), "a".into(), "none", bursts, linux, 2.5);
        let Machine::Spumone(system) = &run.machine else {
            panic!("not a system")
        };
        // Twice (3 s + 2.5 s), at half the speed, with a reserve factor of two.
        assert_eq!(
            system.rt,
            [Rt::new(
                "period=1ms load=50% burst=500ms duration=22000ms histogram=off"
            )]
        );
        let rt_until = 22_000_000_000;
        assert_eq!(run.order, Order::LinuxFirst { rt_until });
        assert!(run.end_mark().is_some());
    }
}
