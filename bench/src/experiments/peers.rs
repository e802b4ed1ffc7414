// SPDX-License-Identifier: MIT OR Apache-2.0
//! `peers`: what a user would pick instead of Spumone, on the same clock: a stock kernel and PREEMPT_RT with real-time
//! threads of their own, Xen, and KVM.

mod column;
mod costs;
mod footprint;
mod kvm;
mod restart;
mod runs;
mod same_files;
mod share;
mod systems;
mod xen;

use self::column::Column;
use self::costs::{exits_table, starts_table};
use self::runs::{
    FIRST_TOUCH, periods, periods_from_power_on, throughput_run, wakeup, wakeup_label, wakeup_run,
};
use self::share::shortfall;
use self::systems::{OWN, Peer, Scope, all};
use super::beside::Load;
use super::loads::{Bare, Loads};
use super::{About, Defaults, Evaluation, Experiment, Plan, Table, shares};
use crate::linux::ISOLATED;
use crate::machine::Run;
use crate::plot::{Figure, Mark, Scatter};
use crate::results::Results;
use crate::stats::Spread;
use serde_json::{Value, json};

/// The figure.
pub struct Peers;

/// What Linux does while wake-ups are measured.
const BESIDE: [Load; 3] = [Load::Idle, Load::Hackbench, Load::Disk];
/// The load whose longest wait is in the picture.
const WORST: Load = Load::Hackbench;
/// What is said of waits: the key of results, and the word for it. The longest comes first.
const WAITS: [(&str, &str); 4] = [
    ("max", "longest"),
    ("p99_9", "99.9 %"),
    ("avg", "average"),
    ("min", "shortest"),
];

const ABOUT: About = About {
    name: "peers",
    title: "What a user would pick instead: throughput and longest wait",
    question: "A real-time task can share cores with Linux in other ways, too: as a SCHED_FIFO thread of a stock kernel or of \
        PREEMPT_RT, or as a guest of Xen or KVM. How much of Linux's throughput does each cost, and how long does the real-time \
        task wait at worst?",
    defaults: Defaults {
        policies: &["steal"],
        quick_policies: &["steal"],
        ..Defaults::THROUGHPUT
    },
};

/// The yardsticks, each with the loads of the real-time side.
fn throughputs(plan: &Plan) -> Result<Vec<Loads>, String> {
    let names: &[&str] = match (&plan.yardstick, plan.quick) {
        (Some(name), _) => &[name.as_str()],
        (None, true) => &["hackbench"],
        (None, false) => &["hackbench", "build", "forkexec"],
    };
    let loads = names.iter();
    loads
        .map(|name| Loads::new(plan, name, &[0, 90], &[0, 50, 90]))
        .collect()
}

/// Time over the ideal.
fn over_ideal(
    loads: &Loads,
    results: &Results,
    bare: &Bare,
    peer: &Peer,
    load: u32,
) -> Option<Spread> {
    let time = loads.spread(results, &loads.label(peer.name, load))?;
    Some(time.over(bare.ideal(f64::from(load) / 100.0)))
}

impl Experiment for Peers {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn runs(&self, plan: &Plan) -> Result<Vec<Run>, String> {
        let mut runs = Vec::new();
        for (yardstick, loads) in throughputs(plan)?.iter().enumerate() {
            runs.extend(loads.bare_runs(plan));
            let peers = all().filter(|peer| peer.runs(yardstick));
            let each = peers.flat_map(|peer| loads.loads.iter().map(move |&load| (peer, load)));
            runs.extend(each.map(|(peer, load)| throughput_run(plan, loads, peer, load)));
        }
        // A short version has what the picture shows.
        if plan.quick {
            runs.extend(all().filter_map(|peer| wakeup_run(plan, peer, WORST)));
            return Ok(runs);
        }
        for load in BESIDE {
            runs.extend(all().filter_map(|peer| wakeup_run(plan, peer, load)));
        }
        runs.extend(all().flat_map(|peer| restart::runs(plan, peer)));
        Ok(runs)
    }

    fn evaluate(&self, plan: &Plan, results: &Results) -> Evaluation {
        // `runs` has accepted the plan.
        let Ok(throughputs) = throughputs(plan) else {
            return Evaluation::empty();
        };
        let marks = marks(&throughputs, results);
        let columns = columns(&throughputs, results);
        // Where another system is ahead comes first.
        let ahead = columns.iter().filter_map(Column::finding);
        let close: Vec<_> = columns.iter().filter_map(Column::close).collect();
        let close = (!close.is_empty()).then(|| {
            format!(
                "Equal within seeds or 1 %, but smaller medians than Spumone's: {}.",
                close.join(", and ")
            )
        });
        let mut tables = vec![wakeup_table(results)];
        tables.extend(
            throughputs
                .iter()
                .enumerate()
                .map(|(yardstick, it)| throughput_table(yardstick, it, results))
                .chain(throughputs.iter().map(|it| it.bare_table(results))),
        );
        tables.push(own_shares(&throughputs, results));
        tables.extend([exits_table(results), starts_table(results)]);
        tables.push(restart::table(results));
        tables.push(footprint::table(results));
        Evaluation {
            findings: ahead
                .chain(close)
                .chain(marks.iter().map(finding))
                .collect(),
            figure: Figure::Scatter(Scatter {
                title: "Throughput lost, and the longest wait of the real-time task".into(),
                x_title: "time of hackbench beyond the ideal, in %, at the load where it is worst"
                    .into(),
                y_title: "longest wait of the real-time task beside hackbench, in µs (logarithmic)"
                    .into(),
                marks,
            }),
            further: Vec::new(),
            caption: "Throughput lost against the longest wait, a mark for each system".into(),
            verdicts: columns.iter().filter_map(Column::verdict).collect(),
            tables,
            method: method(plan, &throughputs),
            summary: summary(&throughputs, results),
        }
    }
}

/// Where the instructions go on Spumone, and on the bare machine.
fn own_shares(throughputs: &[Loads], results: &Results) -> Table {
    let runs = throughputs.iter().flat_map(|loads| {
        let name = loads.yardstick.name;
        let bare = (format!("`{name}`, 4 bare cores"), loads.bare_label(4));
        let own = loads.loads.iter().map(move |&load| {
            let row = format!("`{name}`, {}, {load} %", OWN.title);
            (row, loads.label(OWN.name, load))
        });
        [bare].into_iter().chain(own)
    });
    shares::table(runs.map(|(row, label)| (row, results.of(&label))))
}

/// What each system loses of hackbench's throughput at worst, in per cent, and its longest wait.
fn marks(throughputs: &[Loads], results: &Results) -> Vec<Mark> {
    let Some(loads) = throughputs.first() else {
        return Vec::new();
    };
    let Some(bare) = loads.bare(results) else {
        return Vec::new();
    };
    let mark = |peer: &Peer| {
        let lost = loads
            .loads
            .iter()
            .filter_map(|&load| over_ideal(loads, results, &bare, peer, load))
            .max_by(|a, b| a.median.total_cmp(&b.median))?;
        let percent = |ratio: f64| (ratio - 1.0) * 100.0;
        Some(Mark {
            name: peer.title.replace('`', ""),
            x: Spread {
                low: percent(lost.low),
                median: percent(lost.median),
                high: percent(lost.high),
                ..lost
            },
            y: wakeup(results, peer, WORST, "max")?,
        })
    };
    all().filter_map(mark).collect()
}

fn finding(mark: &Mark) -> String {
    format!(
        "{}: hackbench takes {:.0} % longer than the ideal at worst; the real-time task waits up to {:.1} µs beside it.",
        mark.name, mark.x.median, mark.y.high
    )
}

/// Latencies of all systems beside each load.
fn wakeup_table(results: &Results) -> Table {
    let mut table = Table::new(
        "How late the real-time task runs, in µs: median of the seeds, and their range",
        &["", "minimum", "average", "99.9 %", "maximum"],
    );
    for load in BESIDE {
        for peer in all() {
            if results.of(&wakeup_label(peer, load)).is_empty() {
                continue;
            }
            let mut row = vec![format!("{}; {}", load.title(), peer.title)];
            row.extend(["min", "avg", "p99_9", "max"].map(|key| {
                let spread = wakeup(results, peer, load, key);
                spread.map_or("-".into(), |it| it.show(1))
            }));
            table.rows.push(row);
        }
    }
    table
}

/// Time over the ideal of all systems that run the yardstick, by load.
fn throughput_table(yardstick: usize, loads: &Loads, results: &Results) -> Table {
    let mut table = Table {
        title: format!(
            "Time of `{}` over the ideal of the stock kernel, by load of the real-time task",
            loads.yardstick.name
        ),
        columns: vec![String::new()],
        rows: Vec::new(),
    };
    let each = loads.loads.iter();
    table.columns.extend(each.map(|load| format!("{load} %")));
    let bare = loads.bare(results);
    for peer in all().filter(|peer| peer.runs(yardstick)) {
        let mut row = vec![peer.title.to_owned()];
        row.extend(loads.loads.iter().map(|&load| {
            let ratio = bare
                .as_ref()
                .and_then(|bare| over_ideal(loads, results, bare, peer, load));
            let cell = ratio.map_or("-".into(), |it| it.show(2));
            match shortfall(loads, results, peer, load) {
                Some(got) => format!("{cell}; got {:.0} % of its load", got * 100.0),
                None => cell,
            }
        }));
        table.rows.push(row);
    }
    table
}

/// All quantities in which systems are compared.
fn columns(throughputs: &[Loads], results: &Results) -> Vec<Column> {
    let mut columns = Vec::new();
    for loads in throughputs {
        let Some(bare) = loads.bare(results) else {
            continue;
        };
        for &load in &loads.loads {
            // Throughput at the real-time side's cost is not ahead of anything.
            let of = |peer: &Peer| match shortfall(loads, results, peer, load) {
                Some(_) => None,
                None => over_ideal(loads, results, &bare, peer, load),
            };
            let name = format!(
                "time of `{}` over the ideal at {load} %",
                loads.yardstick.name
            );
            columns.push(Column::new(name, 2, of));
        }
    }
    for (key, title) in WAITS {
        for load in BESIDE {
            let name = format!("{title} wait in µs, {}", load.title());
            columns.push(Column::new(name, 1, |peer| {
                wakeup(results, peer, load, key)
            }));
        }
    }
    columns.extend(costs::columns(results));
    columns.extend(restart::columns(results));
    columns.extend(footprint::columns(results));
    columns
}

fn method(plan: &Plan, throughputs: &[Loads]) -> Vec<String> {
    let periods = periods(plan);
    let mut lines = vec![
        "Spumone: FreeRTOS is the real-time guest on core 0, and shares the core with a vCPU of Linux.".to_owned(),
        "SCHED_FIFO: the real-time side is threads of a bare Linux on its last CPU, as `guests/linux/programs/rtload.c` \
         (load) and cyclictest (waits) make them, with locked memory and without the limit on real-time threads \
         (`sched_rt_runtime_us=-1`; Linux, `Documentation/scheduler/sched-rt-group.rst`). Linux 6.12 also has a fair server, which \
         is to keep 50 ms of each second for other threads that starve, but runs them before real-time threads at other times, too. It is \
         off, here and on KVM (0 in `/sys/kernel/debug/sched/fair_server/cpu*/runtime`)."
            .to_owned(),
        format!(
            "CPU isolated: with `{}`, other work never runs on the last CPU, so Linux has three.",
            ISOLATED.join(" ")
        ),
        format!(
            "Waits: {} periods of {} µs beside a Linux that has booted and runs its load, on cores of {} instructions per µs. On KVM and \
             with SCHED_FIFO, the real-time side starts then, and the first {} periods of FreeRTOS do not count. On Spumone and Xen, FreeRTOS starts at power on, and its first {} \
             periods do not count, which is longer than the slowest boot. cyclictest measures in nanoseconds (`-N`), and FreeRTOS in \
             ticks of the counter, of 16 ns. The 99.9 % of FreeRTOS is at most 1/1024 too high above 33 µs; that of cyclictest is the \
             maximum if it is above 200 µs, the end of its histogram.",
            periods.count,
            periods.us,
            Defaults::LATENCY.ipus,
            FIRST_TOUCH,
            periods_from_power_on(plan).warmup
        ),
        format!(
            "Waits are of two kinds: FreeRTOS's task reads the counter in the guest's kernel, cyclictest in a program, after the kernel's \
             scheduler has switched to it. Waits, exits, starts, restarts and memory have cores of {} instructions per µs and quanta of \
             {} instructions; throughput has those of *The machine*, below. A wait is exact to a quantum.",
            Defaults::LATENCY.ipus,
            Defaults::LATENCY.quantum
        ),
        "In runs of waits, starts and restarts, Linux has the same initial file system on all systems, which it unpacks when it starts: that with the programs of the yardsticks. On \
         KVM some scripts are added, and PREEMPT_RT has the modules of its own kernel in it."
            .to_owned(),
        column::METHOD.to_owned(),
        "On a bare Linux nothing is executed at EL2, and the real-time process restarts alone: the columns of exits, of EL2's share and of \
         FreeRTOS's restart leave these systems out."
            .to_owned(),
        "A few seeds bound no longest wait: another one moves it. Xen's credit2 had waits of half a millisecond with other seeds \
         (`guests/xen/README.md`)."
            .to_owned(),
        "The model has no caches and no TLB misses, so it favours systems that share cores and move vCPUs, Spumone first. A board will \
         be kinder to a core of its own."
            .to_owned(),
        "The shared core is core 0 under Spumone, and the last one on the other systems: on Xen, core 0 handles the interrupts of the \
         console, and KVM's host and the SCHED_FIFO kernels boot on it. Everywhere it is the last CPU of Linux that shares it."
            .to_owned(),
        "Ideal: 1 / (T(3) + (1 - f) × (T(4) - T(3))), where T(n) = 1 / (time of the stock kernel on n bare cores), as \
         measured, and f is the load."
            .to_owned(),
    ];
    lines.extend(xen::METHOD.iter().map(|&it| it.to_owned()));
    lines.push(xen::NO_DISK.to_owned());
    lines.extend(restart::METHOD.iter().map(|&it| it.to_owned()));
    lines.extend(kvm::METHOD.iter().map(|&it| it.to_owned()));
    lines.extend(footprint::METHOD.iter().map(|&it| it.to_owned()));
    if let [first, _, ..] = throughputs {
        let partial = all().filter(|peer| peer.scope == Scope::First);
        let titles: Vec<_> = partial.map(|peer| peer.title).collect();
        lines.push(format!(
            "These run `{}` alone of the yardsticks, to bound the time of the figure: {}.",
            first.yardstick.name,
            titles.join("; ")
        ));
    }
    if let Some(loads) = throughputs.first() {
        lines.push(format!(
            "Loads: the real-time side spins for the given share of every {} ms, by the clock. Where FreeRTOS was \
             preempted meanwhile, the table says how much of its load it got; Linux has gained the rest, so these times \
             are not compared.",
            loads.burst_ms
        ));
    }
    lines
}

/// For the JSON file.
fn summary(throughputs: &[Loads], results: &Results) -> Value {
    all()
        .map(|peer| {
            let times: Vec<_> = throughputs
                .iter()
                .enumerate()
                .filter(|&(yardstick, _)| peer.runs(yardstick))
                .filter_map(|(_, loads)| Some((loads, loads.bare(results)?)))
                .flat_map(|(loads, bare)| {
                    let each = loads.loads.iter();
                    each.map(|&load| {
                        json!({ "yardstick": loads.yardstick.name, "load_percent": load,
                            "over_ideal": over_ideal(loads, results, &bare, peer, load) })
                    })
                    .collect::<Vec<_>>()
                })
                .collect();
            let waits: Vec<_> = BESIDE
                .iter()
                .map(|&load| {
                    json!({ "beside": load.name(), "max_us": wakeup(results, peer, load, "max"),
                        "avg_us": wakeup(results, peer, load, "avg") })
                })
                .collect();
            let footprint = footprint::summary(results, peer);
            json!({ "system": peer.title, "throughput": times, "waits": waits, "footprint": footprint })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::systems::{Kind, OTHERS};
    use super::*;
    use crate::experiments::loads::tests::plan;
    use crate::linux::Programs;
    use crate::machine::Machine;
    use crate::results::samples;
    use crate::role::Flavour;

    /// The own system at the ideal with waits up to 8 µs; the others as given: time over the ideal, longest wait in µs.
    fn results(plan: &Plan, others: (f64, f64)) -> Results {
        let mut results = Results::default();
        for loads in throughputs(plan).unwrap() {
            for (cores, time) in [(2, 2.0), (3, 4.0 / 3.0), (4, 1.0)] {
                results.add(samples::linux(&loads.bare_label(cores), 1, &[time]));
            }
            let bare = loads.bare(&results).unwrap();
            for peer in all() {
                let factor = if peer.name == OWN.name { 1.0 } else { others.0 };
                for &load in &loads.loads {
                    let time = bare.ideal(f64::from(load) / 100.0) * factor;
                    results.add(samples::linux(&loads.label(peer.name, load), 1, &[time]));
                }
            }
        }
        for load in BESIDE {
            for peer in all() {
                let label = wakeup_label(peer, load);
                results.add(match peer.kind {
                    Kind::Spumone(_) => samples::rt(&label, 1, [5000, 5500, 7000, 8000]),
                    Kind::Xen(_) | Kind::Kvm(_) => {
                        let max = (others.1 * 1000.0) as u64;
                        samples::rt(&label, 1, [5000, 5500, 7000, max])
                    }
                    Kind::Threads(..) => {
                        let log = format!(
                            "linux-result scenario=wakeup ok=1 min_ns=5000 avg_ns=5500 p99_9_ns=7000 max_ns={}\n",
                            others.1 * 1000.0
                        );
                        samples::outcome(&label, 1, &log)
                    }
                });
            }
        }
        results
    }

    fn met(others: (f64, f64)) -> Vec<bool> {
        let plan = plan();
        let evaluation = Peers.evaluate(&plan, &results(&plan, others));
        evaluation
            .verdicts
            .iter()
            .map(|it| it.met.unwrap())
            .collect()
    }

    #[test]
    fn a_system_that_is_ahead_is_named_in_each_column() {
        assert!(met((1.5, 90.0)).iter().all(|&it| it));
        // Equal within what a seed moves.
        assert!(met((0.995, 8.0)).iter().all(|&it| it));
        assert_eq!(
            met((0.9, 90.0)).iter().filter(|&&it| !it).count(),
            9,
            "three yardsticks at three loads"
        );
        assert_eq!(met((1.5, 7.0)).iter().filter(|&&it| !it).count(), 3);
    }

    #[test]
    fn freertos_measures_when_linux_is_busy() {
        let runs = Peers.runs(&plan()).unwrap();
        for system in ["steal", "xen-credit"] {
            let label = format!("wakeup-{system}-hackbench");
            let run = runs.iter().find(|it| it.label == label).unwrap();
            let bootargs = match &run.machine {
                Machine::Spumone(system) => &system.rt[0].bootargs,
                Machine::Xen(system) => &system.rt,
                _ => panic!("no FreeRTOS"),
            };
            assert_eq!(bootargs, "period=100us samples=20000 warmup=30000");
            assert!(run.clock.end_us.unwrap() > 5_000_000);
        }
    }

    #[test]
    fn linux_unpacks_the_same_on_all_systems() {
        let runs = Peers.runs(&plan()).unwrap();
        let starts = ["wakeup-", "restart-"];
        for run in runs
            .iter()
            .filter(|run| starts.iter().any(|it| run.label.starts_with(it)))
        {
            let linux = match &run.machine {
                Machine::Spumone(system) => system.linux.as_ref(),
                Machine::Xen(system) => Some(&system.linux),
                Machine::BareLinux(linux) => Some(linux),
                // Its file system is that of the yardsticks with some scripts (`guests/kvm/build.sh`).
                _ => None,
            };
            let is_same = linux.is_none_or(|linux| linux.programs == Programs::Bench);
            assert!(is_same, "{}", run.label);
        }
    }

    #[test]
    fn where_another_system_is_ahead_comes_first() {
        let plan = plan();
        let evaluation = Peers.evaluate(&plan, &results(&plan, (0.9, 90.0)));
        assert_eq!(evaluation.findings.len(), 9 + 1 + OTHERS.len());
        assert!(
            evaluation.findings[0]
                .starts_with("Another system is ahead, time of `hackbench` over the ideal at 0 %: Spumone 1.00; stock kernel, SCHED_FIFO 0.90, ")
        );
    }

    #[test]
    fn systems_of_one_yardstick_have_no_row_for_the_others() {
        let plan = plan();
        let runs = Peers.runs(&plan).unwrap();
        let evaluation = Peers.evaluate(&plan, &results(&plan, (2.0, 90.0)));
        let first = OTHERS.iter().filter(|peer| peer.scope == Scope::First);
        for peer in first {
            let labels = |yardstick: &str| {
                let start = format!("{yardstick}-{}-load-", peer.name);
                runs.iter()
                    .filter(|it| it.label.starts_with(&start))
                    .count()
            };
            assert_eq!((labels("hackbench"), labels("build")), (3, 0));
            let with_row = evaluation.tables.iter().filter(|table| {
                table.title.contains("over the ideal")
                    && table.rows.iter().any(|row| row[0] == peer.title)
            });
            assert_eq!(with_row.count(), 1);
            let is_said = |line: &String| {
                line.starts_with("These run `hackbench` alone") && line.contains(peer.title)
            };
            assert!(evaluation.method.iter().any(is_said));
        }
    }

    #[test]
    fn each_system_is_in_the_picture() {
        let plan = plan();
        let evaluation = Peers.evaluate(&plan, &results(&plan, (2.0, 90.0)));
        assert_eq!(evaluation.findings.len(), 1 + OTHERS.len());
        assert_eq!(
            evaluation.findings[1],
            "stock kernel, SCHED_FIFO: hackbench takes 100 % longer than the ideal at worst; the real-time task waits up \
             to 90.0 µs beside it."
        );
    }

    #[test]
    fn an_isolated_cpu_is_one_of_the_command_line() {
        let runs = Peers.runs(&plan()).unwrap();
        let run = runs
            .iter()
            .find(|it| it.label == "wakeup-preempt-rt-isolated-disk");
        let linux = run.unwrap().machine.linux().unwrap();
        assert_eq!(linux.flavour, Flavour::Rt);
        assert!(
            linux
                .bootargs()
                .ends_with("beside=diskwrite,seconds=1000 isolcpus=managed_irq,domain,3 nohz_full=3 rcu_nocbs=3 irqaffinity=0-2")
        );
    }
}
