// SPDX-License-Identifier: MIT OR Apache-2.0
//! The loads of `spm bench energy`, for the modes of `[power]`.

use crate::setup::{Decisions, Duty, End, Powered, Rt, Setup, Span, Workload};
use crate::time::us;
use spumone_config::packed::{Policy, PowerMode};
use spumone_core::schedule::Ticks;

/// For how long the SMP guest idles before its load, so that cores that are not needed have gone off then, and after it.
const REST: Ticks = us(100_000);
/// The period of threads that load a part of the cores.
const PERIOD: Ticks = us(10_000);
/// The period of bursts, and for how long each keeps all cores busy.
const BURST_PERIOD: Ticks = us(100_000);
const BURST: Ticks = us(20_000);
/// The period of the real-time guest's load, and its tick.
const RT_PERIOD: Ticks = us(10_000);
const RT_TICK: Ticks = us(1_000);

/// What an SMP guest with a vCPU on each core does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Load {
    /// It sleeps.
    Idle,
    /// Threads that load this share of all cores, in percent: 1 to 99. They begin their work at different times.
    Share(u8),
    /// [`Workload::Messages`].
    Full,
    /// All vCPUs are busy for a moment, again and again.
    Bursts,
}

impl Load {
    /// What the guest does.
    pub fn workload(self, vcpus: usize) -> Workload {
        let duty = |period: Ticks, busy: u64, apart: u64| {
            Workload::Duty(Duty {
                period,
                busy: Ticks(busy),
                apart: Ticks(apart),
            })
        };
        match self {
            Self::Idle => duty(PERIOD, 0, 0),
            Self::Share(percent) => {
                let busy = PERIOD.0 * u64::from(percent) / 100;
                duty(PERIOD, busy, PERIOD.0 / vcpus as u64)
            }
            Self::Full => Workload::Messages,
            Self::Bursts => duty(BURST_PERIOD, BURST.0, 0),
        }
    }
}

impl Setup {
    /// A machine with one SMP guest on all of its cores, which follow this load for so long as `mode` says, beside a real-time guest that takes
    /// a share of core 0. The policy is that of `[power]`. Before and after the load, the guest idles for a while.
    pub fn power(
        cores: usize,
        mode: PowerMode,
        load: Load,
        rt_percent: u8,
        length: Ticks,
        seed: u64,
    ) -> Self {
        let span = Span {
            from: REST,
            to: Ticks(REST.0 + length.0),
        };
        Self {
            workload: load.workload(cores),
            span,
            rt: Some(Rt {
                period: RT_PERIOD,
                busy: Ticks(RT_PERIOD.0 * u64::from(rt_percent) / 100),
                tick: Some(RT_TICK),
            }),
            power: Some(Powered::Governed(mode)),
            end: End::Time(Ticks(span.to.0 + REST.0)),
            ..Self::new(cores, Decisions::Policy(Policy::Steal), rt_percent, seed)
        }
    }
}
