// SPDX-License-Identifier: MIT OR Apache-2.0
//! The runs: loads of Linux, loads of the real-time guest, and what turns cores off.

use super::super::{Plan, yardstick};
use crate::linux::Linux;
use crate::machine::{Machine, Order, Run};
use crate::system::{Rt, System};

/// Cores of the machine, and CPUs of Linux.
pub(super) const CORES: u32 = 4;
/// Loads of the real-time guest in per cent of its core, beside its tick of 1 kHz.
pub(super) const RT_LOADS: [u32; 2] = [0, 50];
/// The policy that `[power]` needs.
pub(super) const POLICY: &str = "steal";
/// The mode in which all cores stay on.
pub(super) const PERFORMANCE: &str = "performance";
/// Modes in which cores go off.
pub(super) const SAVING: [&str; 2] = ["balanced", "saving"];
/// For which virtual time Linux idles before its load begins, in milliseconds. Cores that are not needed have gone off then.
pub(super) const SETTLE_MS: u32 = 3000;
/// The same after its load.
pub(super) const REST_MS: u32 = 1000;
/// Periods of the real-time guest, of 1 ms each, that do not count: Linux has booted then, and idles.
const WARMUP: u32 = 2500;
/// For which virtual time the real-time guest runs, in milliseconds. The run ends with Linux.
const RT_MS: u32 = 120_000;
/// In microseconds: the period of threads that load a part of the cores, that of bursts, and for how long a burst keeps four cores busy.
const PERIOD_US: u32 = 10_000;
pub(super) const BURST_PERIOD_US: u32 = 100_000;
pub(super) const BURST_US: u32 = 20_000;

/// What Linux does during the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    /// It sleeps.
    Idle,
    /// Threads that load this share of all cores, in per cent.
    Share(u32),
    /// hackbench.
    Full,
    /// A parallel compilation.
    Build,
    /// All CPUs are busy for a moment, again and again.
    Bursts,
}

/// A quarter and a half of the four cores.
pub(super) const QUARTER: Load = Load::Share(25);
pub(super) const HALF: Load = Load::Share(50);

impl Load {
    /// The loads of a plan.
    pub(super) fn of(plan: &Plan) -> Vec<Self> {
        let mut loads = vec![Self::Idle, QUARTER, HALF, Self::Full, Self::Bursts];
        if !plan.quick {
            loads.insert(4, Self::Build);
        }
        loads
    }

    /// The name in labels.
    pub(super) fn name(self) -> String {
        match self {
            Self::Idle => "idle".into(),
            Self::Share(percent) => format!("load{percent}"),
            Self::Full => "hackbench".into(),
            Self::Build => "build".into(),
            Self::Bursts => "bursts".into(),
        }
    }

    /// The name on the page.
    pub(super) fn title(self) -> String {
        match self {
            Self::Idle => "Linux idle".into(),
            Self::Share(percent) => format!("Linux busy for {percent} %"),
            Self::Full => "hackbench".into(),
            Self::Build => "parallel build".into(),
            Self::Bursts => "bursts".into(),
        }
    }

    /// Linux with this load, after a time in which it idles.
    fn linux(self, plan: &Plan, hotplug: bool) -> Result<Linux, String> {
        // Idling costs the host nothing. It lasts for longer, as the program that begins it is some work.
        let longer = if self == Self::Idle { 3 } else { 1 };
        let seconds = longer * if plan.quick { 1 } else { 3 };
        let per_us = u64::from(plan.ipus);
        let duty = |threads: u32, busy_us: u32, period_us: u32, apart_us: u32| {
            let arguments = [
                "run=duty".into(),
                format!("threads={threads}"),
                format!("instructions={}", u64::from(busy_us) * per_us),
                format!("period={period_us}"),
                format!("count={}", seconds * 1_000_000 / period_us),
                format!("apart={apart_us}"),
            ];
            let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
            Linux::new(CORES, "settled", &arguments)
        };
        let yardstick = |name: &str, seconds: f64, repeats: u32| {
            let linux = yardstick::find(name)?.linux(plan, CORES, seconds, repeats);
            let arguments = [vec![format!("run={name}")], linux.arguments.clone()].concat();
            Ok::<_, String>(Linux {
                scenario: "settled".into(),
                arguments,
                ..linux
            })
        };
        let mut linux = match self {
            Self::Idle => duty(0, 0, PERIOD_US, 0),
            Self::Share(percent) => {
                let busy_us = PERIOD_US * percent / 100;
                duty(CORES, busy_us, PERIOD_US, PERIOD_US / CORES)
            }
            Self::Bursts => duty(CORES, BURST_US, BURST_PERIOD_US, 0),
            Self::Full => match plan.quick {
                true => yardstick("hackbench", 0.3, 2)?,
                false => yardstick("hackbench", 0.7, 6)?,
            },
            Self::Build => {
                let mut linux = yardstick("build", 1.0, 3)?;
                // CPUs may be offline when it begins.
                linux.arguments.push(format!("parallel={CORES}"));
                linux
            }
        };
        let idle = [format!("settle={SETTLE_MS}"), format!("rest={REST_MS}")];
        linux.arguments.extend(idle);
        if hotplug {
            linux.arguments.push("hotplug=1".into());
        }
        Ok(linux)
    }
}

/// What turns cores off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Spumone in this mode, with a real-time guest.
    Mode(&'static str),
    /// The bare machine with Linux alone: a CPU that has nothing to do waits in WFI.
    Bare,
    /// The same, and a script takes CPUs offline.
    Hotplug,
}

impl Kind {
    /// The name in labels.
    fn name(self) -> &'static str {
        match self {
            Self::Mode(mode) => mode,
            Self::Bare => "bare",
            Self::Hotplug => "hotplug",
        }
    }

    /// The name on the page.
    pub(super) fn title(self) -> String {
        match self {
            Self::Mode(mode) => format!("`{mode}`"),
            Self::Bare => "bare Linux, cpuidle".into(),
            Self::Hotplug => "bare Linux, CPU hotplug".into(),
        }
    }
}

/// One run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Case {
    /// Linux's load.
    pub(super) load: Load,
    /// The share of core 0 that the real-time guest takes, in per cent, beside its tick of 1 kHz.
    pub(super) rt: u32,
    /// What turns cores off.
    pub(super) kind: Kind,
}

/// The pairs of Linux's load and the real-time guest's, in per cent of its core.
pub(super) fn loads(plan: &Plan) -> Vec<(Load, u32)> {
    let loads = Load::of(plan);
    let beside = |rt| {
        let loads = loads.iter();
        // The short version has one run of each mode beside a real-time guest with a load.
        let some = loads.filter(move |&&it| rt == 0 || !plan.quick || it == HALF);
        some.map(move |&load| (load, rt))
    };
    RT_LOADS.into_iter().flat_map(beside).collect()
}

/// What can turn cores off beside such a real-time guest, and what it is compared with.
pub(super) fn kinds(rt: u32) -> Vec<Kind> {
    let mut kinds = vec![Kind::Mode(PERFORMANCE)];
    kinds.extend(SAVING.map(Kind::Mode));
    // Linux alone has no real-time guest.
    if rt == 0 {
        kinds.extend([Kind::Bare, Kind::Hotplug]);
    }
    kinds
}

/// All runs of a plan.
pub(super) fn cases(plan: &Plan) -> Vec<Case> {
    let loads = loads(plan).into_iter();
    let cases = loads.flat_map(|(load, rt)| {
        let kinds = kinds(rt).into_iter();
        kinds.map(move |kind| Case { load, rt, kind })
    });
    cases.collect()
}

impl Case {
    /// The same load with all cores on.
    pub(super) fn performance(self) -> Self {
        Self {
            kind: Kind::Mode(PERFORMANCE),
            ..self
        }
    }

    /// Its label.
    pub(super) fn label(self) -> String {
        let rt = match self.rt {
            0 => String::new(),
            percent => format!("-rt{percent}"),
        };
        format!("{}{rt}-{}", self.load.name(), self.kind.name())
    }

    /// Linux's load, with that of the real-time guest if it has any.
    pub(super) fn title(self) -> String {
        match self.rt {
            0 => self.load.title(),
            percent => format!("{}, real-time guest {percent} %", self.load.title()),
        }
    }

    /// The same in few words, for pictures.
    pub(super) fn short(self) -> String {
        let load = match self.load {
            Load::Idle => "idle".into(),
            Load::Share(percent) => format!("{percent} %"),
            other => other.name(),
        };
        match self.rt {
            0 => load,
            percent => format!("{load}, rt {percent} %"),
        }
    }

    /// The run.
    pub(super) fn run(self, plan: &Plan) -> Result<Run, String> {
        let linux = self.load.linux(plan, self.kind == Kind::Hotplug)?;
        let (machine, order) = match self.kind {
            Kind::Bare | Kind::Hotplug => (Machine::BareLinux(linux), Order::Any),
            Kind::Mode(mode) => {
                let rt = format!(
                    "period=1ms load={}% burst=10ms warmup={WARMUP} duration={RT_MS}ms histogram=off",
                    self.rt
                );
                let system = System {
                    cores: CORES,
                    policy: POLICY.into(),
                    power: (mode != PERFORMANCE).then(|| mode.into()),
                    rt: vec![Rt::new(rt)],
                    linux: Some(linux),
                    ..System::default()
                };
                let rt_until = u64::from(RT_MS) * 1_000_000;
                (Machine::Spumone(system), Order::LinuxFirst { rt_until })
            }
        };
        Ok(Run {
            label: self.label(),
            machine,
            disk_mib: 0,
            clock: plan.clock(None),
            order,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::loads::tests::plan;

    fn run(load: Load, rt: u32, kind: Kind) -> Run {
        Case { load, rt, kind }.run(&plan()).unwrap()
    }

    #[test]
    fn each_run_has_the_mode_that_its_label_says() {
        for case in cases(&plan()) {
            let run = case.run(&plan()).unwrap();
            let name = match &run.machine {
                Machine::Spumone(system) => system.power.as_deref().unwrap_or(PERFORMANCE),
                Machine::BareLinux(linux) => match linux.arguments.contains(&"hotplug=1".into()) {
                    true => "hotplug",
                    false => "bare",
                },
                _ => panic!("{}", run.label),
            };
            assert!(run.label.ends_with(name), "{}: {name}", run.label);
        }
    }

    #[test]
    fn a_share_of_the_cores_is_spread_over_the_period() {
        let linux = run(HALF, 0, Kind::Bare).machine.linux().cloned().unwrap();
        // Four threads, half of 10 ms each at 250 instructions per microsecond.
        assert_eq!(
            linux.arguments,
            [
                "run=duty",
                "threads=4",
                "instructions=1250000",
                "period=10000",
                "count=300",
                "apart=2500",
                "settle=3000",
                "rest=1000"
            ]
        );
    }

    #[test]
    fn the_real_time_guest_has_its_load() {
        let Machine::Spumone(system) = run(Load::Build, 50, Kind::Mode("saving")).machine else {
            panic!("not a system");
        };
        assert!(system.rt[0].bootargs.starts_with("period=1ms load=50% "));
        let linux = system.linux.unwrap();
        assert_eq!((linux.scenario.as_str(), linux.cpus), ("settled", 4));
        assert!(linux.arguments.contains(&"run=build".to_owned()));
        assert!(linux.arguments.contains(&"parallel=4".to_owned()));
    }

    #[test]
    fn linux_alone_has_no_real_time_guest_to_be_compared_with() {
        let cases = cases(&plan());
        assert!(cases.iter().any(|it| it.kind == Kind::Hotplug));
        let alone = cases.iter().filter(|it| !matches!(it.kind, Kind::Mode(_)));
        assert!(alone.map(|it| it.rt).all(|it| it == 0));
    }
}
