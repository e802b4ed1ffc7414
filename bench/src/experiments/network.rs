// SPDX-License-Identifier: MIT OR Apache-2.0
//! `network`: TCP through a network card that is passed through to Linux, while the real-time guest loads the core on which
//! Linux handles the card's interrupts.

use super::beside::{self, Load, Periods};
use super::bursts::{self, Bursts};
use super::{About, Defaults, Evaluation, Experiment, Plan, Table, Verdict};
use crate::linux::{Linux, Programs};
use crate::machine::{Machine, Run};
use crate::plot::{Figure, Line, Lines};
use crate::results::{Outcome, Results};
use crate::stats::{Mean, Spread, grouped};
use serde_json::{Value, json};

/// The figure.
pub struct Network;

/// CPUs of the measured Linux, each on a core of its own; CPU 0, which handles the card's interrupts, is on the real-time guest's
/// core.
const CPUS: u32 = 4;
/// CPUs of the other Linux, on further cores.
const PEER_CPUS: u32 = 2;
/// CPU of the other Linux to which its iperf3 is bound. CPU 0 of that Linux handles the interrupts of its card. With both on one CPU
/// it sends a sixth less, which says nothing of the measured Linux.
const SENDING_CPU: u32 = 1;
/// Periods of the real-time guest's bursts in milliseconds.
const BURSTS_MS: [u32; 2] = [10, 500];
/// Loads of the real-time guest in per cent, beside none at all.
const LOADS: [u32; 4] = [30, 50, 70, 90];
/// Share of the throughput without load that a policy is to keep.
const AIM: f64 = 0.95;
/// How much longer than beside hackbench the real-time guest may wait, in instructions.
const MORE_WAIT: f64 = 300.0;
/// Virtual seconds from power on until the other Linux begins: the measured one must have booted, since a card that nothing drives
/// holds the cable back.
const WAIT_SECONDS: u32 = 8;
/// More than Linux transmits in any run that ends with the real-time guest.
const ENDLESS_MIB: u32 = 100_000;
/// Directions of the transfers beside which the real-time guest's waits are measured: the client's name of each, and the page's.
const DIRECTIONS: [(&str, &str); 3] = [
    ("to", "Linux receives"),
    ("from", "Linux transmits"),
    ("both", "both at the same time"),
];
const BASELINE: &str = "latency-hackbench";
/// The policy whose waits are measured.
const POLICY: &str = "steal";

/// A Linux that runs the scenario `iperf`.
fn iperf(cpus: u32, arguments: &[&str]) -> Linux {
    Linux {
        programs: Programs::Bench,
        ..Linux::new(cpus, "iperf", arguments)
    }
}

/// Has Linux of a run receive from, or transmit to, a second Linux on a cable: so often so many MiB.
fn on_a_cable(mut run: Run, (runs, mib): (u32, u32), direction: &str, wait: u32) -> Run {
    if let Machine::Spumone(system) = &mut run.machine {
        let [mib, wait] = [format!("mib={mib}"), format!("wait={wait}")];
        let runs = format!("runs={runs}");
        let direction = format!("direction={direction}");
        let cpu = format!("cpu={SENDING_CPU}");
        let mut peer = iperf(
            PEER_CPUS,
            &[
                "role=client",
                &cpu,
                "address=10.9.0.2/24",
                "server=10.9.0.1",
                &mib,
                &direction,
                &wait,
                &runs,
            ],
        );
        peer.homes = (CPUS..CPUS + PEER_CPUS).collect();
        system.cores = CPUS + PEER_CPUS;
        system.linux = Some(iperf(CPUS, &["role=server", "address=10.9.0.1/24", &runs]));
        system.peer = Some(Box::new(peer));
        system.disk = false;
    }
    run
}

/// A load of the real-time guest: per cent, and the period of its bursts.
type Loaded = (u32, u32);

/// The loads of the figure, without that of 0 %.
fn loads(plan: &Plan) -> Vec<Loaded> {
    match plan.quick {
        true => vec![(90, 10)],
        false => {
            let each = BURSTS_MS
                .iter()
                .flat_map(|&ms| LOADS.map(|load| (load, ms)));
            each.collect()
        }
    }
}

fn label(policy: &str, (load, ms): Loaded) -> String {
    match load {
        0 => format!("{policy}-alone"),
        _ => format!("{policy}-{ms}ms-load-{load}"),
    }
}

/// How many transfers a run measures, and the MiB of each, which takes several bursts. Under a policy they are many, because their
/// mean is to show a difference of a few per cent.
fn transfers(plan: &Plan, policy: &str, ms: u32) -> (u32, u32) {
    match (plan.quick, policy, ms) {
        (true, ..) => (2, 8),
        (false, "none", 500) => (3, 64),
        (false, "none", _) => (3, 16),
        (false, _, 500) => (8, 64),
        (false, _, _) => (20, 16),
    }
}

fn throughput_run(plan: &Plan, policy: &str, loaded: Loaded) -> Run {
    let (load, ms) = loaded;
    let (runs, mib) = transfers(plan, policy, ms);
    let seconds = f64::from(WAIT_SECONDS + runs * mib);
    let bursts = Bursts { load, ms };
    // The Linux is replaced.
    let linux = iperf(CPUS, &[]);
    let run = bursts::run_beside(plan, label(policy, loaded), policy, bursts, linux, seconds);
    on_a_cable(run, (runs, mib), "to", WAIT_SECONDS)
}

/// Seconds that a transfer takes for each Mbit: the mean of all transfers and seeds. All transfers of a run are of one size.
fn time(results: &Results, label: &str) -> Option<Mean> {
    let rates = results.values(label, Outcome::rates);
    Mean::of(rates.into_iter().map(f64::recip))
}

/// Mbit/s: all that was transferred, by the time that it took.
fn throughput(results: &Results, label: &str) -> Option<f64> {
    Some(time(results, label)?.mean.recip())
}

/// The throughput as a share of what the policy has without load.
fn share(results: &Results, policy: &str, loaded: Loaded) -> Option<Mean> {
    let alone = time(results, &label(policy, (0, 0)))?;
    Some(alone.over(time(results, &label(policy, loaded))?))
}

/// The smallest share of a policy, with its load.
fn worst(plan: &Plan, results: &Results, policy: &str) -> Option<(Mean, Loaded)> {
    let shares = loads(plan).into_iter();
    let shares = shares.filter_map(|loaded| Some((share(results, policy, loaded)?, loaded)));
    shares.min_by(|a, b| a.0.mean.total_cmp(&b.0.mean))
}

/// `98.1 ± 2.0`: a share in per cent with two standard errors.
fn percent(share: Mean) -> String {
    format!("{:.1} ± {:.1}", 100.0 * share.mean, 200.0 * share.error)
}

fn periods(plan: &Plan) -> Periods {
    Periods {
        us: 100,
        count: if plan.quick { 2_000 } else { 20_000 },
        // Both have booted, and have transmitted for a while.
        warmup: 40_000,
        more: "",
    }
}

fn latency_label(direction: &str) -> String {
    format!("latency-{direction}")
}

fn latency_runs(plan: &Plan) -> Vec<Run> {
    let plan = &plan.for_latency();
    let run = |label| beside::run_beside(plan, label, POLICY, Load::Hackbench, periods(plan), None);
    let with_network = DIRECTIONS.iter().map(|(direction, _)| {
        on_a_cable(
            run(latency_label(direction)),
            (1, ENDLESS_MIB),
            direction,
            0,
        )
    });
    [run(BASELINE.to_owned())]
        .into_iter()
        .chain(with_network)
        .collect()
}

/// The longest wait in instructions, over all seeds.
fn longest_wait(results: &Results, label: &str) -> Option<Spread> {
    let outcomes = results.of(label).iter();
    Spread::of(outcomes.filter_map(|it: &Outcome| it.rt_instructions("max_ns")))
}

const ABOUT: About = About {
    name: "network",
    title: "A network card's interrupts beside a loaded real-time guest",
    question: "Linux handles the interrupts of its network card on the core that the real-time guest takes. *A Hypervisor for \
        Multicore Consumer Electronics* (multicore-ce-hypervisor.txt) measured this with an audio player as real-time guest: \
        15.7 Mbit/s without it, 2.3 with it on the same core, 13.0 and 13.4 with the interrupts sent to other cores. How much of its \
        throughput does Linux keep, and does the network delay the real-time guest?",
    defaults: Defaults {
        policies: &["none", "steal"],
        quick_policies: &["none", "steal"],
        ..Defaults::THROUGHPUT
    },
};

impl Experiment for Network {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn runs(&self, plan: &Plan) -> Result<Vec<Run>, String> {
        let mut all = vec![(0, BURSTS_MS[0])];
        all.extend(loads(plan));
        let mut runs: Vec<_> = plan
            .policies
            .iter()
            .flat_map(|policy| all.iter().map(|&it| throughput_run(plan, policy, it)))
            .collect();
        if !plan.quick {
            runs.extend(latency_runs(plan));
        }
        Ok(runs)
    }

    fn evaluate(&self, plan: &Plan, results: &Results) -> Evaluation {
        Evaluation {
            figure: Figure::Lines(Lines {
                title:
                    "TCP into Linux through a card whose interrupts are handled on a loaded core"
                        .into(),
                y_title: "share of the throughput without load, in %".into(),
                x_title: "load of the real-time guest on that core, in %".into(),
                lines: lines(plan, results),
                curves: Vec::new(),
                references: Vec::new(),
            }),
            further: Vec::new(),
            caption: "Share of TCP throughput that Linux keeps, by the real-time guest's load"
                .into(),
            findings: findings(plan, results),
            verdicts: verdicts(plan, results),
            tables: vec![throughput_table(plan, results), latency_table(results)],
            method: method(plan),
            summary: summary(plan, results),
        }
    }
}

/// A line for each policy and period.
fn lines(plan: &Plan, results: &Results) -> Vec<Line> {
    let periods = BURSTS_MS
        .iter()
        .filter(|&&ms| loads(plan).iter().any(|it| it.1 == ms));
    let each = periods.flat_map(|&ms| plan.policies.iter().map(move |policy| (policy, ms)));
    let line = |(policy, ms): (&String, u32)| {
        let loads = loads(plan).into_iter().filter(|it| it.1 == ms);
        let points = [(0, ms)].into_iter().chain(loads).filter_map(|loaded| {
            let share = share(results, policy, loaded)?;
            Some((f64::from(loaded.0), share.interval().over(0.01)))
        });
        Line {
            name: format!("{policy}, {ms} ms"),
            points: points.collect(),
        }
    };
    each.map(line).collect()
}

fn findings(plan: &Plan, results: &Results) -> Vec<String> {
    let mut findings: Vec<_> = plan
        .policies
        .iter()
        .filter_map(|policy| {
            let alone = throughput(results, &label(policy, (0, 0)))?;
            let (share, (load, ms)) = worst(plan, results, policy)?;
            let share = percent(share);
            Some(format!(
                "Policy `{policy}`: {alone:.0} Mbit/s without load; at worst {share} % of that, at {load} % load in periods of {ms} ms."
            ))
        })
        .collect();
    let waits: Vec<_> = DIRECTIONS
        .iter()
        .filter_map(|(direction, title)| {
            let wait = longest_wait(results, &latency_label(direction))?.high;
            Some(format!("{} ({title})", grouped(wait)))
        })
        .collect();
    if let Some(baseline) = longest_wait(results, BASELINE)
        && !waits.is_empty()
    {
        findings.push(format!(
            "The real-time guest waits up to {} instructions; beside hackbench up to {}.",
            waits.join(", "),
            grouped(baseline.high)
        ));
    }
    findings
}

fn verdicts(plan: &Plan, results: &Results) -> Vec<Verdict> {
    // Without a policy, the loss is what the figure is to show.
    let policies = plan.policies.iter().filter(|&it| it != "none");
    let mut verdicts: Vec<_> = policies
        .map(|policy| {
            let worst = worst(plan, results, policy);
            Verdict {
                aim: format!(
                    "policy `{policy}`: at least 95 % of the throughput without load, at every load"
                ),
                measured: worst.map_or("no result".into(), |(share, (load, ms))| {
                    format!("{} % ({load} %, {ms} ms)", percent(share))
                }),
                met: worst.map(|(share, _)| share.mean >= AIM),
            }
        })
        .collect();
    if !plan.quick {
        let waits = DIRECTIONS
            .iter()
            .map(|(direction, _)| Some(longest_wait(results, &latency_label(direction))?.high));
        let longest = waits
            .collect::<Option<Vec<_>>>()
            .and_then(|it| it.into_iter().reduce(f64::max));
        let both = longest.zip(longest_wait(results, BASELINE).map(|it| it.high));
        verdicts.push(Verdict {
            aim: "the real-time guest's longest wait is at most 300 instructions above that beside hackbench".into(),
            measured: both.map_or("no result".into(), |(longest, baseline)| {
                format!("{}, beside hackbench {}", grouped(longest), grouped(baseline))
            }),
            met: both.map(|(longest, baseline)| longest <= baseline + MORE_WAIT),
        });
    }
    verdicts
}

fn throughput_table(plan: &Plan, results: &Results) -> Table {
    let mut columns = vec!["load".to_owned(), "period".to_owned()];
    for policy in &plan.policies {
        columns.extend([format!("`{policy}`, Mbit/s"), "share, %".into()]);
    }
    let mut table = Table {
        title:
            "TCP into Linux: mean of all transfers and seeds, and two standard errors of the share"
                .into(),
        columns,
        rows: Vec::new(),
    };
    for loaded in [(0, 0)].into_iter().chain(loads(plan)) {
        let period = match loaded.1 {
            0 => "-".into(),
            ms => format!("{ms} ms"),
        };
        let mut row = vec![format!("{} %", loaded.0), period];
        for policy in &plan.policies {
            let rate = throughput(results, &label(policy, loaded));
            row.push(rate.map_or("-".into(), |it| format!("{it:.1}")));
            row.push(share(results, policy, loaded).map_or("-".into(), percent));
        }
        table.rows.push(row);
    }
    table
}

fn latency_table(results: &Results) -> Table {
    let mut table = Table::new(
        "How late the real-time guest runs under `steal`, in instructions: median of the seeds, and their range",
        &["beside", "average", "longest", "lost or late periods"],
    );
    let rows = DIRECTIONS
        .iter()
        .map(|(direction, title)| (latency_label(direction), *title));
    for (label, title) in [(BASELINE.to_owned(), "hackbench")].into_iter().chain(rows) {
        let outcomes = results.of(&label);
        let spread =
            |key: &str| Spread::of(outcomes.iter().filter_map(|it| it.rt_instructions(key)));
        let missed = outcomes
            .iter()
            .filter_map(|it| Some(it.rt("lost")? + it.rt("late")?));
        let (Some(average), Some(longest)) = (spread("avg_ns"), spread("max_ns")) else {
            continue;
        };
        table.rows.push(vec![
            title.into(),
            average.show(0),
            longest.show(0),
            grouped(missed.sum()),
        ]);
    }
    table
}

fn method(plan: &Plan) -> Vec<String> {
    let mut method = vec![
        format!(
            "Six cores. Linux has {CPUS} vCPUs, one at home on each of the cores 0 to 3, and a virtio network card that is passed \
             through to it; its CPU 0, on core 0, handles the card's interrupts, as Linux itself has it. A second Linux, on \
             cores of its own, has another card on the same cable (QEMU's hub), and transmits with iperf3 (TCP, 1,500 bytes, \
             segments that the card cuts). That iperf3 is bound to CPU {SENDING_CPU} of its Linux: on CPU 0, which handles the \
             interrupts of its card, it sends a sixth less, at any load of the measured Linux."
        ),
        "FreeRTOS spins for the given share of each period on core 0, above Linux, and takes its 1 kHz tick.".into(),
        "With `none` an interrupt waits in the GIC until the real-time guest leaves the core. With `steal` another core takes the \
         vCPU of CPU 0, and the card's interrupts go with it (`docs/migration.md`): no interrupt is sent to a CPU that Linux did not \
         choose."
            .into(),
        "Throughput is what the receiver counts (iperf3, `sum_received`): the sum of the bytes of all transfers, divided by the sum of their \
         times. The transfers of one run differ by 10 %, at any load. So a run with a policy has 20 transfers of 16 MiB (with periods of \
         500 ms: 8 of 64 MiB). A run with `none` loses more, and has 3."
            .into(),
    ];
    if !plan.quick {
        method.push(format!(
            "Waits: {} periods of 100 µs on core 0, under `steal`, on cores of {} instructions per µs, beside transfers that do not end.",
            periods(plan).count,
            Defaults::LATENCY.ipus
        ));
    }
    method
}

fn summary(plan: &Plan, results: &Results) -> Value {
    let all = [(0, 0)].into_iter().chain(loads(plan));
    let throughputs = all.flat_map(|loaded| {
        plan.policies.iter().map(move |policy| {
            let label = label(policy, loaded);
            json!({ "label": label, "mbit_per_second": throughput(results, &label) })
        })
    });
    let waits = DIRECTIONS
        .iter()
        .map(|(direction, _)| latency_label(direction));
    let waits = [BASELINE.to_owned()].into_iter().chain(waits).map(
        |label| json!({ "label": label, "longest_instructions": longest_wait(results, &label) }),
    );
    json!({ "throughput": throughputs.collect::<Vec<_>>(), "waits": waits.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests;
