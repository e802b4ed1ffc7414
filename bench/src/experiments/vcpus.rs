// SPDX-License-Identifier: MIT OR Apache-2.0
//! `vcpus`: throughput of a Linux with any number of vCPUs on any number of cores, without a real-time guest.

mod work;

use super::loads::{self, CORES};
use super::yardstick::{self, Yardstick};
use super::{About, Defaults, Evaluation, Experiment, Plan, Table, Verdict, lhp, shares};
use crate::linux::Linux;
use crate::machine::{Machine, Order, Run};
use crate::plot::{Curve, Figure, Line, Lines};
use crate::results::{Outcome, Results};
use crate::stats::Spread;
use crate::system::System;
use serde_json::{Value, json};

/// The figure.
pub struct Vcpus;

/// The policy where Linux has one vCPU, which waits for no other vCPU.
const ALONE: &str = "none";
/// Most vCPUs of Linux.
const MOST: u32 = 8;

const ABOUT: About = About {
    name: "vcpus",
    title: "Any number of vCPUs on any number of cores",
    question: "A Linux may have more vCPUs than there are cores, or fewer. Does it get as much done as on as many bare cores as it can use?",
    defaults: Defaults {
        policies: &["steal"],
        quick_policies: &["steal"],
        ..Defaults::THROUGHPUT
    },
};

/// A Linux with so many vCPUs on so many cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pair {
    vcpus: u32,
    cores: u32,
}

impl Pair {
    fn all(plan: &Plan) -> Vec<Self> {
        let (vcpus, cores): (Vec<u32>, &[u32]) = match plan.quick {
            true => (vec![1, 2, 4, 6, 8], &[1, 2, 4]),
            false => ((1..=MOST).collect(), &[1, 2, 3, 4]),
        };
        let of = |&cores: &u32| vcpus.iter().map(move |&vcpus| Self { vcpus, cores });
        cores.iter().flat_map(of).collect()
    }

    fn label(self, yardstick: &Yardstick, policy: &str) -> String {
        let Self { vcpus, cores } = self;
        format!("{}-{policy}-{vcpus}-on-{cores}", yardstick.name)
    }

    /// How many bare cores have the same throughput in the ideal case.
    fn usable(self) -> u32 {
        self.vcpus.min(self.cores)
    }

    fn run(self, plan: &Plan, yardstick: &Yardstick, policy: &str) -> Run {
        let mut linux = linux(plan, yardstick, self.vcpus);
        linux.homes = (0..self.vcpus).map(|it| it % self.cores).collect();
        let system = System {
            cores: self.cores,
            policy: match self.vcpus {
                1 => ALONE.into(),
                _ => policy.into(),
            },
            linux: Some(linux),
            ..System::default()
        };
        run(
            plan,
            self.label(yardstick, policy),
            Machine::Spumone(system),
        )
    }
}

fn bare_label(yardstick: &Yardstick, cores: u32) -> String {
    format!("{}-bare-{cores}", yardstick.name)
}

/// A Linux that measures the same work, whatever the number of its CPUs.
fn linux(plan: &Plan, yardstick: &Yardstick, cpus: u32) -> Linux {
    let seconds = if plan.quick { 0.4 } else { 2.5 };
    yardstick.linux(plan, cpus, seconds, 1)
}

fn run(plan: &Plan, label: String, machine: Machine) -> Run {
    Run {
        label,
        machine,
        disk_mib: 0,
        clock: plan.clock(None),
        order: Order::Any,
    }
}

/// What is evaluated.
struct Case<'a> {
    yardstick: &'static Yardstick,
    plan: &'a Plan,
    results: &'a Results,
}

impl Case<'_> {
    fn seconds(&self, label: &str) -> Option<Spread> {
        Spread::of(self.results.values(label, Outcome::seconds))
    }

    /// Time over the ideal.
    fn over_ideal(&self, policy: &str, pair: Pair) -> Option<Spread> {
        let ideal = self.seconds(&bare_label(self.yardstick, pair.usable()))?;
        let time = self.seconds(&pair.label(self.yardstick, policy))?;
        Some(time.over(ideal.median))
    }

    /// Pairs with their medians.
    fn medians(&self, policy: &str, of: impl Fn(&Pair) -> bool) -> Vec<(Pair, f64)> {
        let pairs = Pair::all(self.plan).into_iter().filter(of);
        let median = |pair| Some((pair, self.over_ideal(policy, pair)?.median));
        pairs.filter_map(median).collect()
    }

    fn lines(&self, policy: &str) -> Vec<Line> {
        let line = |cores| {
            let pairs = Pair::all(self.plan).into_iter();
            let points: Vec<_> = pairs
                .filter(|it| it.cores == cores)
                .filter_map(|it| Some((f64::from(it.vcpus), self.over_ideal(policy, it)?)))
                .collect();
            let name = match (cores, self.plan.policies.len()) {
                (1, 1) => "1 core".into(),
                (_, 1) => format!("{cores} cores"),
                _ => format!("{policy}, {cores}"),
            };
            (!points.is_empty()).then_some(Line { name, points })
        };
        (1..=CORES).filter_map(line).collect()
    }

    fn verdict(&self, policy: &str, what: &str, of: impl Fn(&Pair) -> bool) -> Verdict {
        let all = self.medians(policy, &of);
        let count = Pair::all(self.plan).iter().filter(|it| of(it)).count();
        let worst = all.iter().max_by(|a, b| a.1.total_cmp(&b.1));
        let above = all.iter().filter(|it| it.1 > lhp::AIM).count();
        Verdict {
            aim: format!(
                "policy `{policy}`, {what}: at most {} × the ideal",
                lhp::AIM
            ),
            measured: worst.map_or("no result".into(), |(Pair { vcpus, cores }, ratio)| {
                format!("{ratio:.3} × with {vcpus} on {cores}; {above} of {count} pairs above")
            }),
            met: (all.len() == count).then_some(above == 0),
        }
    }

    fn table(&self, policy: &str) -> Table {
        let pairs = Pair::all(self.plan);
        let cores: Vec<_> = (1..=CORES)
            .filter(|it| pairs.iter().any(|pair| pair.cores == *it))
            .collect();
        let mut columns = vec!["vCPUs".to_owned()];
        columns.extend(cores.iter().map(|it| format!("on {it}")));
        let rows = (1..=MOST).filter(|it| pairs.iter().any(|pair| pair.vcpus == *it));
        let row = |vcpus: u32| {
            let cell = |&cores: &u32| {
                let ratio = self.over_ideal(policy, Pair { vcpus, cores });
                ratio.map_or("-".into(), |it| it.show(3))
            };
            [
                vec![vcpus.to_string()],
                cores.iter().map(cell).collect::<Vec<_>>(),
            ]
            .concat()
        };
        Table {
            title: format!(
                "Time of `{}` under policy `{policy}` over the ideal, by vCPUs and cores: median of the seeds, and their range",
                self.yardstick.name
            ),
            columns,
            rows: rows.map(row).collect(),
        }
    }

    fn bare_table(&self) -> Table {
        let title = format!("`{}` on the bare machine", self.yardstick.name);
        let mut table = Table::new(&title, &["cores", "seconds"]);
        for cores in 1..=MOST {
            let seconds = self.seconds(&bare_label(self.yardstick, cores));
            let cell = seconds.map_or("-".into(), |it| it.show(3));
            table.rows.push(vec![cores.to_string(), cell]);
        }
        table
    }

    /// Where the time went on the bare machines, and in all pairs.
    fn shares(&self) -> Table {
        let bare = (1..=MOST).map(|cores| {
            let label = bare_label(self.yardstick, cores);
            (
                match cores {
                    1 => "1 bare core".into(),
                    _ => format!("{cores} bare cores"),
                },
                label,
            )
        });
        let policies = self.plan.policies.iter();
        let pairs = policies.flat_map(|policy| {
            let all = Pair::all(self.plan).into_iter();
            all.map(move |it| {
                let name = format!("`{policy}`, {} on {}", it.vcpus, it.cores);
                (name, it.label(self.yardstick, policy))
            })
        });
        let runs = bare.chain(pairs);
        shares::table(runs.map(|(name, label)| (name, self.results.of(&label))))
    }

    fn summary(&self) -> Value {
        let policies = self.plan.policies.iter();
        let pairs = policies.flat_map(|policy| {
            Pair::all(self.plan).into_iter().map(move |it| {
                json!({ "policy": policy, "vcpus": it.vcpus, "cores": it.cores,
                    "over_ideal": self.over_ideal(policy, it) })
            })
        });
        let bare = (1..=MOST).map(|cores| {
            json!({ "cores": cores, "seconds": self.seconds(&bare_label(self.yardstick, cores)) })
        });
        json!({
            "yardstick": self.yardstick.name,
            "bare": bare.collect::<Vec<_>>(),
            "pairs": pairs.collect::<Vec<_>>(),
        })
    }
}

impl Experiment for Vcpus {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn runs(&self, plan: &Plan) -> Result<Vec<Run>, String> {
        let yardstick = yardstick::find(loads::yardstick(plan))?;
        let bare = (1..=MOST).map(|cores| {
            let machine = Machine::BareLinux(linux(plan, yardstick, cores));
            run(plan, bare_label(yardstick, cores), machine)
        });
        let policies = plan.policies.iter();
        let pairs = policies.flat_map(|policy| {
            let all = Pair::all(plan).into_iter();
            all.map(move |it| it.run(plan, yardstick, policy))
        });
        Ok(bare.chain(pairs).collect())
    }

    fn evaluate(&self, plan: &Plan, results: &Results) -> Evaluation {
        // `runs` has accepted the plan.
        let Ok(yardstick) = yardstick::find(loads::yardstick(plan)) else {
            return Evaluation::empty();
        };
        let case = Case {
            yardstick,
            plan,
            results,
        };
        let policies = || plan.policies.iter();
        let findings = policies().filter_map(|policy| {
            let above = case.medians(policy, |_| true).into_iter();
            let above: Vec<_> = above
                .filter(|it| it.1 > lhp::AIM)
                .map(|(Pair { vcpus, cores }, ratio)| format!("{vcpus} on {cores} {ratio:.2}"))
                .collect();
            (!above.is_empty()).then(|| {
                format!(
                    "Policy `{policy}`, times the ideal, where that is more than {}: {}.",
                    lhp::AIM,
                    above.join(", ")
                )
            })
        });
        let verdicts = policies().flat_map(|policy| {
            [
                case.verdict(policy, "no more vCPUs than cores", |it| {
                    it.vcpus <= it.cores
                }),
                case.verdict(policy, "more vCPUs than cores", |it| it.vcpus > it.cores),
            ]
        });
        let tables = policies().flat_map(|it| [case.table(it), case.work(it)]);
        Evaluation {
            figure: Figure::Lines(Lines {
                title: "Time of Linux's work over the ideal, by its vCPUs and the cores".into(),
                y_title: format!("time of {} over that on as many bare cores as it can use", yardstick.name),
                x_title: "vCPUs of Linux".into(),
                lines: policies().flat_map(|it| case.lines(it)).collect(),
                // Not a reference: lines that go far above one are cut off.
                curves: vec![Curve {
                    name: "ideal".into(),
                    points: vec![(1.0, 1.0), (f64::from(MOST), 1.0)],
                }],
                references: Vec::new(),
            }),
            caption: "Time of Linux's work over the ideal, by its number of vCPUs, a line for each number of cores".into(),
            further: Vec::new(),
            findings: findings.collect(),
            verdicts: verdicts.collect(),
            tables: tables.chain([case.bare_table(), case.shares()]).collect(),
            method: vec![
                format!(
                    "Linux measures `{}` ({}) itself, once a run. There is no other guest. Its vCPUs have homes on the cores in turn, and may run \
                     on all. With one vCPU, the policy is `{ALONE}`.",
                    linux(plan, yardstick, 1).arguments.join(" "),
                    yardstick.what
                ),
                "Linux may execute more instructions for the same work if it has more CPUs. So it does the same work on bare machines with as many cores as vCPUs, \
                 too, and a table compares the instructions of both."
                    .into(),
                "Ideal: the median time of the bare machine with as many cores as there are vCPUs, or cores if those are fewer.".into(),
                lhp::WINDOW.into(),
            ],
            summary: case.summary(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::loads::tests::plan as whole;
    use crate::results::samples;

    pub(super) fn plan() -> Plan {
        Plan {
            policies: vec!["steal".into()],
            ..whole()
        }
    }

    /// Perfect scaling on the bare machine.
    fn results(slowdown: impl Fn(u32, u32) -> f64) -> Results {
        let mut results = Results::default();
        let yardstick = yardstick::find("hackbench").unwrap();
        for cores in 1..=CORES {
            let time = 8.0 / f64::from(cores);
            results.add(samples::linux(&bare_label(yardstick, cores), 1, &[time]));
        }
        for pair in Pair::all(&plan()) {
            let Pair { vcpus, cores } = pair;
            let time = 8.0 / f64::from(vcpus.min(cores)) * slowdown(vcpus, cores);
            results.add(samples::linux(&pair.label(yardstick, "steal"), 1, &[time]));
        }
        results
    }

    #[test]
    fn the_ideal_is_that_of_the_cores_that_linux_can_use() {
        let evaluation = Vcpus.evaluate(&plan(), &results(|_, _| 1.04));
        let met: Vec<_> = evaluation.verdicts.iter().map(|it| it.met).collect();
        assert_eq!(met, [Some(true), Some(true)]);
        assert_eq!(evaluation.findings, [""; 0]);
        assert_eq!(evaluation.tables[0].rows.len(), 8);
        assert_eq!(
            evaluation.tables[0].rows[0],
            ["1"; 1].into_iter().chain(["1.040"; 4]).collect::<Vec<_>>()
        );
    }

    #[test]
    fn pairs_that_fall_short_are_named() {
        let slow = |vcpus, cores| if (vcpus, cores) == (8, 4) { 1.5 } else { 1.0 };
        let evaluation = Vcpus.evaluate(&plan(), &results(slow));
        let met: Vec<_> = evaluation.verdicts.iter().map(|it| it.met).collect();
        assert_eq!(met, [Some(true), Some(false)]);
        let measured = &evaluation.verdicts[1].measured;
        assert_eq!(measured, "1.500 × with 8 on 4; 1 of 22 pairs above");
        assert_eq!(
            evaluation.findings,
            ["Policy `steal`, times the ideal, where that is more than 1.05: 8 on 4 1.50."]
        );
    }

    #[test]
    fn vcpus_that_are_more_than_cores_go_round() {
        let runs = Vcpus.runs(&plan()).unwrap();
        let run = runs.iter().find(|it| it.label == "hackbench-steal-5-on-3");
        let Machine::Spumone(system) = &run.unwrap().machine else {
            panic!("not a system");
        };
        assert_eq!(system.cores, 3);
        assert_eq!(system.linux.as_ref().unwrap().homes, [0, 1, 2, 0, 1]);
        assert!(system.rt.is_empty());
        for run in &runs {
            if let Machine::Spumone(system) = &run.machine {
                let vcpus = system.linux.as_ref().unwrap().cpus;
                let policy = if vcpus == 1 { "none" } else { "steal" };
                assert_eq!(system.policy, policy, "{}", run.label);
            }
        }
    }
}
