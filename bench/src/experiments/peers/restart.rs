// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long the restart of one side takes, and whether the other side keeps its periods meanwhile.

use super::super::beside::Periods;
use super::super::loads::CORES;
use super::super::{Plan, Table};
use super::column::Column;
use super::runs::FIRST_TOUCH;
use super::systems::{Kind, Peer, Scope, all};
use crate::clock::{ClockReport, MARK_BEGIN, MARK_FIRST, MARK_INIT, MARK_RESET};
use crate::kvm::{Kvm, Until};
use crate::linux::{Linux, Programs};
use crate::machine::{Machine, Order, Run};
use crate::results::{Outcome, Results};
use crate::stats::{Spread, grouped};
use crate::system::{Rt, System};

const NS_PER_MS: f64 = 1e6;
const NS_PER_US: f64 = 1e3;

/// One life of a FreeRTOS that restarts itself. It reports only what is evaluated.
const RT_LIFE: Periods = Periods {
    us: 100,
    count: 2_000,
    warmup: 0,
    more: " histogram=off end=reset",
};
/// Virtual time at which the run with these lives ends under Spumone: Linux's load has then run for two seconds.
const RT_LIVES_END_US: u64 = 5_000_000;
/// The periods of a FreeRTOS beside which Linux restarts: more than the slowest system takes.
const BESIDE_LINUX: Periods = Periods {
    us: 100,
    count: 80_000,
    warmup: 0,
    more: " histogram=off",
};
/// The warm-up of these periods under Spumone, where FreeRTOS starts with Linux, not after it.
const WARMUP: u64 = 25_000;
/// Seconds from the start of Linux's scenario to its restart; FreeRTOS counts its periods by then.
const BEFORE_RESTART: &str = "seconds=1";
/// Virtual time from the last period to the end of the run, in which FreeRTOS reports.
const REPORT_US: u64 = 600_000;
/// Virtual time after which a run on KVM without a result ends.
const KVM_END_US: u64 = 120_000_000;

/// What is restarted, and how, for the page.
pub(super) const METHOD: &[&str] = &[
    "Restart: each guest asks for it itself (PSCI SYSTEM_RESET), and the other one runs on. The time is from FreeRTOS's call, \
     beside hackbench, to its first period, for each of its restarts; and from Linux's `reboot -f` to its first process. Spumone \
     clears all memory of the guest and loads its images again. QEMU (without `-no-reboot`) writes the images again and leaves \
     the rest of the memory. Waits, late and lost periods are those of 80000 periods of 100 µs in which Linux restarts.",
    "Restart on Xen: domains that Xen has made at its start \"cannot be properly shutdown or rebooted using xl. If one of them crashes, \
     the whole platform should be rebooted\" (Xen, `docs/features/dom0less.pandoc`). With a Linux as control domain, Xen can create and \
     restart domains; that was not measured.",
    "Late: the job began after the next one was due. Lost: it never ran.",
];

/// Which side restarts.
#[derive(Clone, Copy)]
enum Side {
    Rt,
    Linux,
}

/// The label of a run.
fn label(peer: &Peer, side: Side) -> String {
    let side = match side {
        Side::Rt => "rt",
        Side::Linux => "linux",
    };
    format!("restart-{}-{side}", peer.name)
}

/// The runs on a system that can restart one side alone. Systems of which less is measured have none: they restart as those
/// that they are variants of.
pub(super) fn runs(plan: &Plan, peer: &Peer) -> Vec<Run> {
    let plan = &plan.for_latency();
    if peer.scope == Scope::First {
        return Vec::new();
    }
    let sides = [Side::Rt, Side::Linux].into_iter();
    sides.filter_map(|side| run(plan, peer, side)).collect()
}

fn run(plan: &Plan, peer: &Peer, side: Side) -> Option<Run> {
    // Linux outlasts the run.
    let mut linux = match side {
        Side::Rt => Linux::new(
            CORES,
            "load",
            &["load=hackbench", "seconds=1000", "-g 1 -l 1000"],
        ),
        Side::Linux => Linux::new(CORES, "reboot-loop", &[BEFORE_RESTART]),
    };
    linux.programs = Programs::Bench;
    let (machine, end_us) = match peer.kind {
        Kind::Spumone(policy) => {
            let (rt, end_us) = match side {
                Side::Rt => (RT_LIFE, RT_LIVES_END_US),
                Side::Linux => {
                    let periods = Periods {
                        warmup: WARMUP,
                        ..BESIDE_LINUX
                    };
                    (periods, periods.length_us() + REPORT_US)
                }
            };
            let system = System {
                cores: CORES,
                policy: policy.into(),
                rt: vec![Rt::new(rt.bootargs())],
                linux: Some(linux),
                ..System::default()
            };
            (Machine::Spumone(system), end_us)
        }
        Kind::Kvm(setup) => {
            let (rt, until) = match side {
                Side::Rt => (RT_LIFE, Until::RtRestarts),
                Side::Linux => {
                    let periods = Periods {
                        warmup: FIRST_TOUCH,
                        ..BESIDE_LINUX
                    };
                    (periods, Until::LinuxRestarts)
                }
            };
            let kvm = Kvm {
                setup,
                cores: CORES,
                linux,
                rt: rt.bootargs(),
                until,
            };
            (Machine::Kvm(kvm), KVM_END_US)
        }
        Kind::Threads(..) | Kind::Xen(_) => return None,
    };
    Some(Run {
        label: label(peer, side),
        machine,
        disk_mib: 0,
        clock: plan.clock(Some(end_us)),
        order: Order::RtFirst,
    })
}

/// Milliseconds of each restart that has ended: from its mark to the next mark `until`. Restarts before `from` do not count.
fn restarts(clock: &ClockReport, from: u64, until: u64) -> Vec<f64> {
    let times = |mark| clock.marks.iter().filter(move |it| it.mark == mark);
    let resets = times(MARK_RESET).filter(|it| it.ns >= from);
    resets
        .filter_map(|reset| {
            let end = times(until).map(|it| it.ns).filter(|&ns| ns > reset.ns);
            Some((end.min()? - reset.ns) as f64 / NS_PER_MS)
        })
        .collect()
}

/// The restarts of FreeRTOS, once hackbench runs.
fn of_rt(outcome: &Outcome) -> Vec<f64> {
    let clock = &outcome.clock;
    clock
        .first(MARK_BEGIN)
        .map_or(Vec::new(), |busy| restarts(clock, busy, MARK_FIRST))
}

fn of_linux(outcome: &Outcome) -> Vec<f64> {
    restarts(&outcome.clock, 0, MARK_INIT)
}

/// Late and lost periods beside the restart of Linux, over all seeds. `None` if there was no restart.
fn missed(outcomes: &[Outcome]) -> Option<String> {
    let restarted = outcomes.iter().filter(|it| !of_linux(it).is_empty());
    let sums = restarted.map(|it| Some((it.rt("late")?, it.rt("lost")?)));
    let sums: Vec<_> = sums.collect::<Option<_>>()?;
    let sum = |each: fn(&(f64, f64)) -> f64| grouped(sums.iter().map(each).sum());
    (!sums.is_empty()).then(|| format!("{} late, {} lost", sum(|it| it.0), sum(|it| it.1)))
}

/// A row for each system that was measured, and why the others cannot.
pub(super) fn table(results: &Results) -> Table {
    let mut table = Table::new(
        "Restart of one side while the other one runs: milliseconds to FreeRTOS's first period, beside hackbench, and to Linux's \
         first process; and FreeRTOS's periods while Linux restarts",
        &[
            "",
            "FreeRTOS, ms",
            "Linux, ms",
            "periods meanwhile",
            "longest wait meanwhile, µs",
        ],
    );
    for peer in all() {
        let cells = match peer.kind {
            Kind::Threads(..) => Some([
                "a process".into(),
                "with the machine".into(),
                "none: real-time threads end with Linux".into(),
                "-".into(),
            ]),
            Kind::Xen(_) => Some([
                "not alone".into(),
                "not alone".into(),
                "-".into(),
                "-".into(),
            ]),
            Kind::Spumone(_) | Kind::Kvm(_) => measured(results, peer),
        };
        let row = cells.map(|cells| [peer.title.to_owned()].into_iter().chain(cells).collect());
        table.rows.extend(row);
    }
    table
}

/// Milliseconds of FreeRTOS's restarts.
fn rt_times(results: &Results, peer: &Peer) -> Option<Spread> {
    Spread::of(results.of(&label(peer, Side::Rt)).iter().flat_map(of_rt))
}

/// Milliseconds of Linux's restarts.
fn linux_times(results: &Results, peer: &Peer) -> Option<Spread> {
    let outcomes = results.of(&label(peer, Side::Linux)).iter();
    Spread::of(outcomes.flat_map(of_linux))
}

/// FreeRTOS's longest wait in microseconds while Linux restarts.
fn longest_wait(results: &Results, peer: &Peer) -> Option<Spread> {
    let outcomes = results.of(&label(peer, Side::Linux)).iter();
    let restarted = outcomes.filter(|it| !of_linux(it).is_empty());
    Spread::of(restarted.filter_map(|it| Some(it.rt("max_ns")? / NS_PER_US)))
}

/// What is compared.
pub(super) fn columns(results: &Results) -> Vec<Column> {
    vec![
        Column::new("restart of FreeRTOS in ms", 1, |it| rt_times(results, it)),
        Column::new("restart of Linux in ms", 0, |it| linux_times(results, it)),
        Column::new("longest wait in µs, Linux restarts", 1, |it| {
            longest_wait(results, it)
        }),
    ]
}

/// The cells of a system that can restart one side alone. `None`: neither run has a result.
fn measured(results: &Results, peer: &Peer) -> Option<[String; 4]> {
    let of = |side| results.of(&label(peer, side));
    let (rt, linux) = (of(Side::Rt), of(Side::Linux));
    if rt.is_empty() && linux.is_empty() {
        return None;
    }
    let show = |it: Option<Spread>, decimals| it.map_or("-".into(), |it: Spread| it.show(decimals));
    Some([
        show(rt_times(results, peer), 1),
        show(linux_times(results, peer), 0),
        missed(linux).unwrap_or("-".into()),
        show(longest_wait(results, peer), 1),
    ])
}

#[cfg(test)]
mod tests {
    use super::super::systems::OWN;
    use super::*;
    use crate::clock::Mark;
    use crate::experiments::loads::tests::plan;
    use crate::results::samples;

    fn peer(name: &str) -> &'static Peer {
        all().find(|it| it.name == name).unwrap()
    }

    fn outcome(label: &str, marks: &[(u64, u64)]) -> Outcome {
        let mut outcome = samples::rt(label, 1, [1, 2, 3, 8000]);
        let mark = |&(mark, ms): &(u64, u64)| Mark {
            mark,
            ns: ms * 1_000_000,
            core: None,
            x0: None,
        };
        outcome.clock.marks = marks.iter().map(mark).collect();
        outcome
    }

    #[test]
    fn a_restart_ends_with_the_next_first_period() {
        let marks = [
            (MARK_FIRST, 11),
            (MARK_RESET, 200), // before hackbench runs
            (MARK_FIRST, 290),
            (MARK_BEGIN, 300),
            (MARK_RESET, 500),
            (MARK_FIRST, 503),
            (MARK_RESET, 700),
            (MARK_FIRST, 705),
            (MARK_RESET, 900), // the run ends
        ];
        assert_eq!(of_rt(&outcome("a", &marks)), [3.0, 5.0]);
        assert!(of_rt(&outcome("a", &marks[..3])).is_empty(), "no hackbench");
    }

    #[test]
    fn each_system_has_its_cells() {
        let mut results = Results::default();
        let rt = [(MARK_BEGIN, 1), (MARK_RESET, 10), (MARK_FIRST, 14)];
        results.add(outcome("restart-steal-rt", &rt));
        let linux = [(MARK_INIT, 5), (MARK_RESET, 1000), (MARK_INIT, 3000)];
        results.add(outcome("restart-steal-linux", &linux));
        // Linux did not come back.
        results.add(outcome("restart-kvm-linux", &linux[..2]));
        let rows = table(&results).rows;
        let row = |name: &str| {
            let title = peer(name).title;
            rows.iter()
                .find(|it| it[0] == title)
                .map(|it| it[1..].join(" | "))
        };
        assert_eq!(row(OWN.name).unwrap(), "4.0 | 2000 | 0 late, 0 lost | 8.0");
        assert_eq!(row("kvm").unwrap(), "- | - | - | -");
        assert_eq!(row("kvm-rt"), None);
        assert!(row("xen-credit").unwrap().starts_with("not alone"));
        assert!(row("stock").unwrap().starts_with("a process"));
    }

    #[test]
    fn only_guests_restart_alone() {
        let counts = ["steal", "kvm", "kvm-rt", "stock", "xen-credit2"];
        let counts = counts.map(|name| runs(&plan(), peer(name)).len());
        assert_eq!(counts, [2, 2, 2, 0, 0]);
    }

    #[test]
    fn freertos_measures_before_linux_restarts_and_after_it() {
        let [rt, linux] = runs(&plan(), OWN).try_into().unwrap();
        let bootargs = |run: &Run| match &run.machine {
            Machine::Spumone(system) => system.rt[0].bootargs.clone(),
            _ => panic!("no Spumone"),
        };
        assert_eq!(
            bootargs(&rt),
            "period=100us samples=2000 histogram=off end=reset"
        );
        assert_eq!(
            bootargs(&linux),
            "period=100us samples=80000 warmup=25000 histogram=off"
        );
        assert!(linux.clock.end_us.unwrap() > 10_500_000);
        let [_, linux] = runs(&plan(), peer("kvm")).try_into().unwrap();
        let Machine::Kvm(kvm) = linux.machine else {
            panic!("no KVM")
        };
        let text = kvm.bootargs();
        assert!(text.contains("spumone.run=reboot-loop spumone.args=seconds=1 "));
        assert!(text.ends_with(
            "spumone.rt=period=100us,samples=80000,warmup=1000,histogram=off spumone.until=linux-restarts"
        ));
    }
}
