// SPDX-License-Identifier: MIT OR Apache-2.0
//! `hostile`: how long the real-time guest waits beside a guest that attacks, by attack; and whether a Linux beside it stays sound.

use super::beside::{self, Periods};
use super::dispatch::{self, Named};
use super::{About, Defaults, Evaluation, Experiment, Plan, Table, Verdict, exits, yardstick};
use crate::description::Link;
use crate::machine::{Machine, Order, Run};
use crate::plot::{Bar, BarPanel, Bars, Figure};
use crate::results::Results;
use crate::stats::{Spread, grouped};
use crate::system::{PROBE, PROBE_PEER, Probe, Rt, System};
use serde_json::{Value, json};

/// The figure.
pub struct Hostile;

/// Aims: the longest wait of the real-time guest, and the longest stretch at EL2 without a look for interrupts, in instructions.
const LONGEST_WAIT: f64 = 2000.0;
const LONGEST_STRETCH: u64 = 500;
/// The real-time guest and two vCPUs of the attacker are on core 0, its third vCPU and one of Linux on core 1, and the other one of
/// Linux on core 2.
const CORES: u32 = 3;
const ATTACKER: [u32; 3] = [0, 0, 1];
/// The attacker with as many vCPUs as a guest may have: five of them on core 0.
const EIGHT: [u32; 8] = [0, 0, 0, 0, 0, 1, 1, 2];
/// Another attacker at the other end of its links, where there are any.
const PEER: [u32; 2] = [0, 1];
const LINK_KINDS: [&str; 3] = ["memory", "network", "vsock"];
const LINUX: [u32; 2] = [1, 2];
/// The attack outlasts the measurement by so many milliseconds: the attacker is loaded meanwhile.
const MORE_MS: u64 = 200;
const POLICY: &str = "steal";
const BARE: &str = "bare";

/// An attack: a suite of the probe (`tests/guests/`).
struct Attack {
    /// Its label: the name of the suite, or of what the suite does.
    name: &'static str,
    /// What the attacker does.
    what: &'static str,
    suite: Suite,
}

enum Suite {
    /// `suite=attack kind=NAME`.
    Attack,
    /// The same with this kind and eight vCPUs.
    Eight(&'static str),
    /// `suite=words attack=NAME`: all CPUs access one register of the distributor, while 32 SPIs are pending.
    Words,
    /// `suite=storm`: SGIs without end for two vCPUs on the real-time guest's core, beside 32 pending SPIs.
    Storm,
    /// `suite=ends`: it resets itself without end.
    Resets,
    /// `suite=attack kind=NAME`, over links to another guest that does the same.
    Links,
}

const fn attack(name: &'static str, what: &'static str) -> Attack {
    Attack {
        name,
        what,
        suite: Suite::Attack,
    }
}

const fn eight(name: &'static str, kind: &'static str, what: &'static str) -> Attack {
    Attack {
        name,
        what,
        suite: Suite::Eight(kind),
    }
}

const fn words(name: &'static str, what: &'static str) -> Attack {
    Attack {
        name,
        what,
        suite: Suite::Words,
    }
}

const fn links(name: &'static str, what: &'static str) -> Attack {
    Attack {
        name,
        what,
        suite: Suite::Links,
    }
}

const ATTACKS: &[Attack] = &[
    attack("spin", "computes only"),
    attack("wfe", "executes WFE"),
    attack("wfi", "executes WFI with an expired timer"),
    attack("short-sleep", "sleeps for 2 µs"),
    attack(
        "sleep-masked",
        "sleeps with all its SGIs and PPIs pending and masked",
    ),
    attack("suspend", "calls CPU_SUSPEND for 1 µs"),
    attack("powerdown", "suspends to powerdown, and is woken at once"),
    attack("cpu-on-off", "turns vCPUs on, which turn themselves off"),
    attack("timers-past", "takes timers that have expired long ago"),
    attack("timers", "sets timers to random times"),
    attack("sgi-self", "sends SGIs to itself"),
    attack("sgi-all", "sends SGIs to all its vCPUs"),
    attack("sgi-group-0", "sends SGIs of group 0"),
    attack(
        "sgi-anywhere",
        "writes random values to the registers that send SGIs",
    ),
    attack("sgi-and-sleep", "sends SGIs and sleeps"),
    eight(
        "eight-sgi-all",
        "sgi-all",
        "sends SGIs to all its eight vCPUs",
    ),
    eight(
        "eight-sgi-sleep",
        "sgi-and-sleep",
        "sends SGIs to its other seven vCPUs and sleeps",
    ),
    attack("priority-mask", "changes its priority mask"),
    attack("groups", "turns interrupt groups on and off"),
    attack("end-anything", "ends and deactivates random interrupts"),
    attack("gicd-read", "reads a register of its distributor"),
    attack("gicd-control", "turns its distributor on and off"),
    attack("gicd-anywhere", "accesses any register of its distributor"),
    attack(
        "gicr-anywhere",
        "accesses any register of its redistributors",
    ),
    attack(
        "gicr-pend",
        "makes all its SGIs and PPIs pending and active",
    ),
    attack("gicr-priority", "changes priorities of pending SGIs"),
    attack("gicr-sleep", "puts its redistributors to sleep"),
    attack("psci-version", "makes the shortest firmware call"),
    attack("smccc-anything", "makes random firmware calls"),
    attack("trng", "draws random numbers"),
    attack("cpu-on-refused", "turns vCPUs on that are on"),
    attack("affinity", "asks for the state of vCPUs"),
    attack("print", "prints without end"),
    attack("uart-interrupts", "turns interrupts of its UART on and off"),
    attack("id-registers", "reads ID registers"),
    attack("debug-registers", "writes debug registers"),
    attack("performance-monitors", "accesses performance monitors"),
    attack("undefined", "executes undefined instructions"),
    attack("unaligned", "makes accesses that fault"),
    attack(
        "random-instructions",
        "executes random words as instructions",
    ),
    attack("tlbi", "invalidates translations"),
    attack("set-way", "cleans caches by set and way"),
    attack("caches", "cleans caches by address"),
    attack("translate", "translates random addresses"),
    words("pend", "makes 32 pending SPIs pending"),
    words("clear", "takes 32 SPIs back and makes them pending"),
    words("enable", "disables and enables 32 pending SPIs"),
    words("activate", "makes 32 pending SPIs active and inactive"),
    words("route", "routes 32 pending SPIs to and fro"),
    words("priority", "changes the priorities of 32 pending SPIs"),
    words("sleep", "sleeps with 32 masked SPIs pending"),
    words(
        "end-overflow",
        "ends SPIs that are active in no list register",
    ),
    words("deactivate", "deactivates SPIs one by one, with 32 pending"),
    Attack {
        name: "storm",
        what: "sends SGIs to two vCPUs on core 0, with 32 SPIs pending",
        suite: Suite::Storm,
    },
    Attack {
        name: "resets",
        what: "resets itself without end",
        suite: Suite::Resets,
    },
    links("link-signals", "signals over a memory link"),
    links("link-registers", "accesses any register of its links"),
    links(
        "frames",
        "exchanges frames in many parts over a network link",
    ),
    links(
        "packets",
        "exchanges packets in many parts over a vsock link",
    ),
    links(
        "broken-chains",
        "writes anything to the queues of its virtio devices",
    ),
    links(
        "card-resets",
        "resets its virtio devices while they exchange frames and packets",
    ),
];

/// The links between the attacker and its peer, where there are any.
fn link(kind: &str) -> Link {
    Link {
        kind: kind.into(),
        between: [PROBE.into(), PROBE_PEER.into()],
        offloads: (kind == "network").then_some(true),
    }
}

fn periods(plan: &Plan) -> Periods {
    Periods {
        us: 100,
        count: if plan.quick { 3_000 } else { 20_000 },
        warmup: 0,
        more: " load=10%",
    }
}

impl Attack {
    fn probe(&self, plan: &Plan) -> Probe {
        let name = self.name;
        let ms = periods(plan).length_us() / 1000 + MORE_MS;
        let bootargs = match self.suite {
            Suite::Attack | Suite::Links => format!("suite=attack kind={name} ms={ms}"),
            Suite::Eight(kind) => format!("suite=attack kind={kind} ms={ms}"),
            Suite::Words => format!("suite=words attack={name} ms={ms} spis=32"),
            Suite::Storm => format!("suite=storm ms={ms} pending=32"),
            Suite::Resets => format!("suite=ends how=reset until_ms={ms}"),
        };
        Probe {
            homes: match self.suite {
                Suite::Eight(_) => EIGHT.to_vec(),
                _ => ATTACKER.to_vec(),
            },
            bootargs,
            sets_power: false,
        }
    }

    fn run(&self, plan: &Plan) -> Result<Run, String> {
        let mut linux = yardstick::find("hackbench")?.linux(plan, LINUX.len() as u32, 0.1, 1);
        linux.homes = LINUX.to_vec();
        let has_links = matches!(self.suite, Suite::Links);
        let probe_peer = has_links.then(|| Probe {
            homes: PEER.to_vec(),
            ..self.probe(plan)
        });
        let kinds: &[&str] = if has_links { &LINK_KINDS } else { &[] };
        Ok(Run {
            label: self.name.into(),
            machine: Machine::Spumone(System {
                cores: CORES,
                policy: POLICY.into(),
                rt: vec![Rt::new(periods(plan).bootargs())],
                linux: (!plan.quick).then_some(linux),
                probe: Some(self.probe(plan)),
                probe_peer,
                links: kinds.iter().map(|kind| link(kind)).collect(),
                ..System::default()
            }),
            disk_mib: 0,
            clock: plan.clock(None),
            order: Order::Any,
        })
    }
}

const ABOUT: About = About {
    name: "hostile",
    title: "The real-time guest beside a guest that attacks",
    question: "A guest of a lower priority may do what it likes with what it owns: its interrupts, timers, vCPUs, devices, and calls. How long \
        does that delay a real-time guest on the same core? And does a Linux beside both work on?",
    defaults: Defaults {
        policies: &[POLICY],
        quick_policies: &[POLICY],
        ..Defaults::LATENCY
    },
};

impl Experiment for Hostile {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn runs(&self, plan: &Plan) -> Result<Vec<Run>, String> {
        let mut runs = vec![beside::run_bare(plan, BARE.into(), periods(plan))];
        for attack in ATTACKS.iter() {
            runs.push(attack.run(plan)?);
        }
        Ok(runs)
    }

    fn evaluate(&self, plan: &Plan, results: &Results) -> Evaluation {
        Evaluation {
            figure: Figure::Bars(Bars {
                title: "The longest wait of the real-time guest, by what the other guest does"
                    .into(),
                subtitle: format!("aim: at most {} instructions", grouped(LONGEST_WAIT)),
                panels: vec![panel(results)],
            }),
            further: Vec::new(),
            caption: "The longest wait of the real-time guest beside each attack".into(),
            findings: findings(results),
            verdicts: verdicts(results),
            tables: vec![table(results), dispatch::table(&cases(), results)],
            method: method(plan),
            summary: summary(results),
        }
    }
}

fn cases() -> Vec<Named> {
    let bare = (BARE.to_owned(), "bare machine".to_owned());
    let attacks = ATTACKS
        .iter()
        .map(|it| (it.name.to_owned(), it.what.to_owned()));
    [bare].into_iter().chain(attacks).collect()
}

fn longest_wait(results: &Results, label: &str) -> Option<Spread> {
    let outcomes = results.of(label).iter();
    Spread::of(outcomes.filter_map(|it| it.rt_instructions("max_ns")))
}

/// The attacks that have results, the one with the longest wait first.
fn by_wait(results: &Results) -> Vec<(&'static Attack, Spread)> {
    let all = ATTACKS
        .iter()
        .filter_map(|it| Some((it, longest_wait(results, it.name)?)));
    let mut all: Vec<_> = all.collect();
    all.sort_by(|a, b| b.1.high.total_cmp(&a.1.high));
    all
}

fn bar(name: &str, value: Option<Spread>, colour: usize) -> Bar {
    Bar {
        name: name.into(),
        value,
        decimals: 0,
        colour,
    }
}

fn panel(results: &Results) -> BarPanel {
    let bare = bar("bare machine", longest_wait(results, BARE), 1);
    let attacks = by_wait(results);
    let attacks = attacks
        .into_iter()
        .map(|(it, wait)| bar(it.name, Some(wait), 0));
    BarPanel {
        title: "longest wait".into(),
        x_title: "instructions from due time to the task's first instruction".into(),
        bars: attacks.chain([bare]).collect(),
    }
}

/// The longest stretch at EL2 without a look for interrupts, in instructions, and where it was.
fn longest_stretch(results: &Results, label: &str) -> Option<(u64, String)> {
    let (exits, _) = exits::longest(results, std::iter::once(label))?;
    Some((exits.longest_deaf, exits::stretch(&exits)))
}

fn findings(results: &Results) -> Vec<String> {
    let mut findings = Vec::new();
    let all = by_wait(results);
    if let Some((worst, wait)) = all.first() {
        findings.push(format!(
            "The real-time guest waited longest, {} instructions, beside a guest that {} (`{}`).",
            grouped(wait.high),
            worst.what,
            worst.name
        ));
    }
    if let Some((best, wait)) = all.last() {
        findings.push(format!(
            "It waited {} instructions at most beside a guest that {} (`{}`).",
            grouped(wait.high),
            best.what,
            best.name
        ));
    }
    let stretches = ATTACKS
        .iter()
        .filter_map(|it| Some((it, longest_stretch(results, it.name)?)));
    if let Some((it, (_, text))) = stretches.max_by_key(|(_, stretch)| stretch.0) {
        findings.push(format!(
            "The longest stretch at EL2 without a look for interrupts, on any core: {text} (`{}`).",
            it.name
        ));
    }
    findings
}

fn verdicts(results: &Results) -> Vec<Verdict> {
    let all = by_wait(results);
    let missed: Vec<f64> = ATTACKS
        .iter()
        .flat_map(|it| results.of(it.name))
        .filter_map(|it| Some(it.rt("lost")? + it.rt("late")?))
        .collect();
    let sum = (!missed.is_empty()).then(|| missed.iter().sum::<f64>());
    let worst = all.first().map(|(_, wait)| wait.high);
    let above = all.iter().filter(|(_, wait)| wait.high > LONGEST_WAIT);
    let above = above.count();
    let stretch = ATTACKS
        .iter()
        .filter_map(|it| longest_stretch(results, it.name))
        .map(|(length, _)| length)
        .max();
    let count = all.len();
    vec![
        Verdict {
            aim: "no period is lost or late beside any attack".into(),
            measured: sum.map_or("no result".into(), |sum| {
                format!("{} lost or late", grouped(sum))
            }),
            met: sum.map(|sum| sum == 0.0),
        },
        Verdict {
            aim: format!(
                "longest wait at most {} instructions",
                grouped(LONGEST_WAIT)
            ),
            measured: worst.map_or("no result".into(), |worst| {
                format!("{}; more beside {above} of {count} attacks", grouped(worst))
            }),
            met: worst.map(|worst| worst <= LONGEST_WAIT),
        },
        Verdict {
            aim: format!("longest stretch at EL2 at most {LONGEST_STRETCH} instructions"),
            measured: stretch.map_or("no result".into(), |it| grouped(it as f64)),
            met: stretch.map(|it| it <= LONGEST_STRETCH),
        },
    ]
}

fn table(results: &Results) -> Table {
    let mut table = Table::new(
        "Each attack: longest wait of the real-time guest, lost and late periods, and the longest stretch at EL2 without a look for interrupts, in instructions, all seeds",
        &[
            "attack",
            "the guest …",
            "longest wait",
            "lost or late",
            "longest stretch",
        ],
    );
    for (attack, wait) in by_wait(results) {
        let missed: f64 = results
            .of(attack.name)
            .iter()
            .filter_map(|it| Some(it.rt("lost")? + it.rt("late")?))
            .sum();
        let stretch = longest_stretch(results, attack.name);
        table.rows.push(vec![
            format!("`{}`", attack.name),
            attack.what.into(),
            grouped(wait.high),
            grouped(missed),
            stretch.map_or("-".into(), |(_, text)| text),
        ]);
    }
    table
}

fn method(plan: &Plan) -> Vec<String> {
    vec![
        dispatch::definition(periods(plan), plan),
        format!(
            "Three cores, policy `{POLICY}`. Core 0 has the real-time guest, the task of which computes for a tenth of each period, and two vCPUs of the attacker. \
             Core 1 has the third vCPU of the attacker and a vCPU of Linux. Core 2 has vCPUs of Linux only. Where the attacker has eight vCPUs, five are on core 0, two on core 1 and one on core 2. Where it attacks over links, its peer is a second attacker, which does the same, with a vCPU on core 0 and one on core 1. Linux boots and runs hackbench, and its result must be right."
        ),
        "The attacker is a bare-metal program (`tests/guests/`): `suite=attack kind=NAME`, `suite=words`, `suite=storm`, `suite=ends`. It owns no \
         DMA device. All guests start together, so loading them is measured too."
            .into(),
        "Attacks on 256 SPIs, and guests that are stopped for a fault, are in the boot tests (`scripts/test boot storm`, `scripts/test boot ends`)."
            .into(),
    ]
}

fn summary(results: &Results) -> Value {
    let each = by_wait(results).into_iter().map(|(it, wait)| {
        let stretch = longest_stretch(results, it.name);
        json!({
            "attack": it.name,
            "longest_wait": wait.high,
            "longest_stretch": stretch.map(|(length, _)| length),
        })
    });
    json!({ "attacks": each.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::loads::tests::plan;
    use crate::results::samples;

    #[test]
    fn each_attack_has_a_label_of_its_own() {
        let runs = Hostile.runs(&plan()).unwrap();
        let mut labels: Vec<_> = runs.iter().map(|run| run.label.clone()).collect();
        labels.sort();
        labels.dedup();
        assert_eq!(labels.len(), ATTACKS.len() + 1);
        assert!(ATTACKS.len() >= 40);
    }

    #[test]
    fn a_wait_above_the_aim_is_missed() {
        let mut results = Results::default();
        // In ns; an instruction takes 4.
        results.add(samples::rt(BARE, 1, [1, 2, 3, 2_000]));
        results.add(samples::rt("spin", 1, [1, 2, 3, 8_000]));
        results.add(samples::rt("storm", 1, [1, 2, 3, 8_400]));
        let evaluation = Hostile.evaluate(&plan(), &results);
        let met: Vec<_> = evaluation.verdicts.iter().map(|it| it.met).collect();
        assert_eq!(
            met,
            [Some(true), Some(false), None],
            "{:?}",
            evaluation.verdicts
        );
        assert_eq!(
            evaluation.verdicts[1].measured,
            "2,100; more beside 1 of 2 attacks"
        );
        assert!(evaluation.findings[0].contains("`storm`"));
        assert_eq!(evaluation.tables[0].rows[1][0], "`spin`");
    }
}
