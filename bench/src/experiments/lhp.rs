// SPDX-License-Identifier: MIT OR Apache-2.0
//! `lhp`: what a real-time guest's load costs an SMP Linux beside it, compared with the ideal.

use super::loads::{self, Bare, Loads};
use super::{About, Defaults, Evaluation, Experiment, Plan, Table, Verdict, shares};
use crate::machine::{Machine, Run};
use crate::plot::{Figure, Lines};
use crate::results::Results;

/// The figure.
pub struct Lhp;

/// Aim: time over the ideal at every load.
pub(super) const AIM: f64 = 1.05;
/// The highest load in per cent that still counts as near 50 %.
const NEAR_50: u32 = 60;

/// Policies whose aims are narrow: each point has all seeds. The others are there for comparison, or have aims with a
/// margin for the effect of a seed.
const JUDGED: [&str; 2] = ["none", "steal"];

/// Policies of other hypervisors: they have no aims.
const COMPARED: [&str; 2] = ["balance", "cosched"];

fn is_peer(policy: &str) -> bool {
    !JUDGED.contains(&policy)
}

/// Whether a run is of a policy that is there for comparison, so that its first seed is enough.
pub(super) fn is_compared(run: &Run) -> bool {
    matches!(&run.machine, Machine::Spumone(system) if is_peer(&system.policy))
}

/// Names the policies that have the first seed only.
pub(super) fn compared_line(plan: &Plan) -> Option<String> {
    let peers = plan.policies.iter().filter(|it| is_peer(it));
    let names: Vec<_> = peers.map(|it| format!("`{it}`")).collect();
    (!names.is_empty()).then(|| {
        format!(
            "{}: the first seed only, since these policies are here for comparison.",
            names.join(", ")
        )
    })
}

/// Explains the table of where the time went.
const HOW_IT_SHOWS: &str = "\
    A preempted vCPU delays the other vCPUs in two ways. Some spin for a lock that it holds, or for which it queues ahead of \
    them, since a queued spinlock serves its waiters strictly in order. Others sleep, with nothing to do, until processes on \
    its run queue continue, since Linux does not know that this CPU does not run. On bare cores Linux hardly waits for locks, \
    because it holds them so briefly. So many bursts preempt no lock holder, but a burst that does costs the rest of the \
    burst. For this reason seeds differ much. The loss at low loads is smaller than in the paper, which had another kernel.";
/// What the tables of shares cover.
pub(super) const WINDOW: &str = "\
    Shares are of the whole program, from its start to its end. That is longer than the time that the program measures itself, \
    since it includes the creation and the end of its processes. Shares are medians over seeds, so a row need not add up to 100.";
/// What a point of the picture covers.
pub(super) const BURSTS: &str = "\
    A run has few bursts, and may begin at any point of one. So the real-time guest's actual share of core 0 (four times its \
    share of all cores) is not exactly the load. The ideal is that of the exact load.";

impl Lhp {
    fn loads(plan: &Plan) -> Result<Loads, String> {
        loads_of(plan, loads::yardstick(plan))
    }
}

/// A yardstick with this figure's loads.
pub(super) fn loads_of(plan: &Plan, yardstick: &str) -> Result<Loads, String> {
    Loads::new(plan, yardstick, &[0, 50, 90], &[0, 10, 30, 50, 70, 90])
}

const ABOUT: About = About {
    name: "lhp",
    title: "Linux beside a loaded real-time guest: lock-holder preemption",
    question: "The real-time guest takes a share of one core in long bursts. A Linux vCPU that it preempts may hold a \
        lock, and then all other vCPUs wait for it. How much more than that share does Linux lose? The experiment repeats \
        figures 1, 8 and 9 of *Solving the Lock Holder Preemption Problem* (2012), where Linux was worse off than with \
        three cores of its own from a load of 50 %, and worse than with two from 80 %.",
    defaults: Defaults::ALL_POLICIES,
};

impl Experiment for Lhp {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn runs(&self, plan: &Plan) -> Result<Vec<Run>, String> {
        Ok(Self::loads(plan)?.runs(plan))
    }

    fn once(&self, run: &Run) -> bool {
        is_compared(run)
    }

    fn evaluate(&self, plan: &Plan, results: &Results) -> Evaluation {
        // `runs` has accepted the plan.
        let Ok(loads) = Self::loads(plan) else {
            return Evaluation::empty();
        };
        let bare = loads.bare(results);
        let mut findings = Vec::new();
        let mut verdicts = Vec::new();
        for policy in &plan.policies {
            let worst = bare
                .as_ref()
                .and_then(|bare| loads.worst(results, bare, policy));
            if let (Some(bare), Some((ratio, load))) = (&bare, worst) {
                let against = |cores| match loads.first_worse_than(results, bare, policy, cores) {
                    Some(load) => {
                        format!("worse off than with {cores} bare cores from {load} % on")
                    }
                    None => format!("never worse off than with {cores} bare cores"),
                };
                findings.push(format!(
                    "Policy `{policy}`: at worst {ratio:.2} times the ideal, at {load} % load; {}; {}.",
                    against(3),
                    against(2)
                ));
            }
            verdicts.extend(aims(&loads, results, bare.as_ref(), policy, worst));
        }
        verdicts.extend(fastest(&loads, results, &plan.policies));
        findings.extend(losses(&loads, plan, results));
        let (lines, curves, references) = match &bare {
            Some(bare) => (
                plan.policies
                    .iter()
                    .map(|it| loads.line(results, bare, it))
                    .collect(),
                vec![loads.ideal(bare)],
                Loads::references(bare),
            ),
            None => Default::default(),
        };
        let lines: Vec<crate::plot::Line> = lines;
        let lines = lines
            .into_iter()
            .map(|mut line| {
                let is_once = is_peer(&line.name) && !plan.quick;
                line.name = match is_once {
                    true => format!("policy {} (one seed)", line.name),
                    false => format!("policy {}", line.name),
                };
                line
            })
            .collect();
        Evaluation {
            figure: Figure::Lines(Lines {
                title: format!(
                    "{} in Linux, by the load of the real-time guest",
                    loads.yardstick.name
                ),
                y_title: "time over that of 4 bare cores; median, and the range over seeds".into(),
                x_title: "load of the real-time guest on one of four cores, in %".into(),
                lines,
                curves,
                references,
            }),
            further: Vec::new(),
            caption: format!(
                "Time of {} by the load of the real-time guest, against the ideal and bare machines",
                loads.yardstick.name
            ),
            findings,
            verdicts,
            tables: tables(&loads, plan, results),
            method: {
                let mut lines = loads.method(plan);
                lines.extend(compared_line(plan));
                lines.extend([HOW_IT_SHOWS, WINDOW].map(Into::into));
                if !plan.quick {
                    lines.push(BURSTS.into());
                }
                lines
            },
            summary: loads.summary(plan, results),
        }
    }
}

/// Where the time goes at the highest load, compared with four bare cores.
fn losses(loads: &Loads, plan: &Plan, results: &Results) -> Vec<String> {
    let lost = |label: String| shares::lost(results.of(&label));
    let bare = lost(loads.bare_label(4)).map(|it| format!("On 4 bare cores Linux {it}."));
    let most = loads.loads.iter().copied().max().unwrap_or_default();
    let judged = plan.policies.iter().filter(|it| !is_peer(it));
    let policies = judged.filter_map(|policy| {
        let lost = lost(loads.label(policy, most))?;
        Some(format!("Policy `{policy}`: at {most} % load Linux {lost}."))
    });
    bare.into_iter().chain(policies).collect()
}

/// Times, and where the time went.
fn tables(loads: &Loads, plan: &Plan, results: &Results) -> Vec<Table> {
    let policies = || plan.policies.iter();
    let at = |policy: &str, load| results.of(&loads.label(policy, load));
    let bare = loads.bare_label(4);
    let mut runs = vec![("4 bare cores".to_owned(), results.of(&bare))];
    for policy in policies() {
        let each = loads.loads.iter();
        runs.extend(each.map(|&load| (format!("`{policy}`, {load} %"), at(policy, load))));
    }
    let most = loads.loads.iter().copied().max().unwrap_or_default();
    let most: Vec<_> = policies()
        .map(|policy| (format!("`{policy}`"), at(policy, most)))
        .collect();
    vec![
        loads.table(plan, results),
        loads.bare_table(results),
        shares::table(runs.into_iter()),
        shares::locks(
            "Waits for locks at the highest load, by function, in % of the time of all cores",
            &most,
        ),
    ]
}

/// The aims of a policy: `none` is there to show the problem, `steal` to solve it, and each of the project's other ones to be
/// better than `none`. Judged if there is a result at every load; fewer are enough to show the problem.
pub(super) fn aims(
    loads: &Loads,
    results: &Results,
    bare: Option<&Bare>,
    policy: &str,
    worst: Option<(f64, u32)>,
) -> Vec<Verdict> {
    let behind_three = bare.map(|bare| loads.first_worse_than(results, bare, policy, 3));
    let shows = behind_three.is_some_and(|load| load.is_some_and(|load| load <= NEAR_50));
    let missing = loads
        .missing(results, policy)
        .filter(|_| policy != "none" || !shows);
    let bare = bare.filter(|_| missing.is_none());
    let worst = worst.filter(|_| missing.is_none());
    let nothing = missing.clone().unwrap_or_else(|| "no result".into());
    let measured = match worst {
        Some((ratio, load)) => format!("{ratio:.3} × at {load} %"),
        None => nothing.clone(),
    };
    let behind_three = behind_three.filter(|_| missing.is_none());
    let said = |load: Option<u32>| match load {
        Some(load) => format!("worse from {load} % on"),
        None => "never worse".into(),
    };
    match policy {
        "none" => vec![Verdict {
            aim: "policy `none` shows the problem: worse off than with 3 bare cores from a load near 50 %".into(),
            measured: behind_three.map_or(measured, said),
            met: behind_three.map(|_| shows),
        }],
        "steal" => vec![
            Verdict {
                aim: format!("policy `steal`: at most {AIM} × the ideal at every load"),
                measured,
                met: worst.map(|(ratio, _)| ratio <= AIM),
            },
            Verdict {
                aim: "policy `steal`: never worse off than with 3 bare cores".into(),
                measured: behind_three.map_or(nothing, said),
                met: behind_three.map(|load| load.is_none()),
            },
        ],
        _ if COMPARED.contains(&policy) => Vec::new(),
        _ => {
            let whole = loads.missing(results, "none").is_none();
            vec![bare
                .filter(|_| whole)
                .and_then(|bare| better_than_none(loads, results, bare, policy))
                .unwrap_or(Verdict {
                    aim: better_aim(policy),
                    measured,
                    met: None,
                })]
        }
    }
}

fn better_aim(policy: &str) -> String {
    format!("policy `{policy}`: better than `none` where that is at its worst")
}

/// Whether a policy is better than `none` at the load at which `none` is worst; and the loads at which it is worse: slower
/// than each repeat and seed of `none`.
fn better_than_none(
    loads: &Loads,
    results: &Results,
    bare: &Bare,
    policy: &str,
) -> Option<Verdict> {
    let (worst, load) = loads.worst(results, bare, "none")?;
    let spread = |policy: &str, load| loads.spread(results, &loads.label(policy, load));
    let own = spread(policy, load)?.median / bare.ideal(f64::from(load) / 100.0);
    let worse: Vec<_> = loads
        .loads
        .iter()
        .filter(|&&load| {
            let both = spread(policy, load).zip(spread("none", load));
            both.is_some_and(|(own, none)| own.median > none.high)
        })
        .map(|load| format!("{load} %"))
        .collect();
    let elsewhere = match worse.is_empty() {
        true => String::new(),
        false => format!("; worse than it at {}", worse.join(", ")),
    };
    Some(Verdict {
        aim: better_aim(policy),
        measured: format!("{own:.3} × at {load} %, `none` {worst:.3} ×{elsewhere}"),
        met: Some(own < worst),
    })
}

/// Whether `steal` is the best of all these policies wherever the real-time guest takes time. Most others have the first
/// seed only, and a seed can change a time by some per cent: so none may be faster than the fastest run of `steal`.
fn fastest(loads: &Loads, results: &Results, policies: &[String]) -> Option<Verdict> {
    const BEST: &str = "steal";
    let others = || policies.iter().filter(|&it| it != BEST);
    let is_asked = policies.len() > others().count() && others().count() > 0;
    let spread = |policy: &str, load| loads.spread(results, &loads.label(policy, load));
    let mut is_whole = true;
    let (mut behind, mut equal) = (Vec::new(), Vec::new());
    for load in loads.loads.iter().copied().filter(|&load| load > 0) {
        for other in others() {
            let (Some(own), Some(time)) = (spread(BEST, load), spread(other, load)) else {
                is_whole = false;
                continue;
            };
            let words = format!("`{other}` at {load} %");
            if time.median < own.low {
                behind.push(words);
            } else if time.median <= own.high {
                equal.push(words);
            }
        }
    }
    let met = behind.is_empty() && is_whole;
    is_asked.then(|| Verdict {
        aim: "policy `steal`: no other policy is faster at any load but 0 %".into(),
        measured: match (behind.is_empty(), is_whole, equal.is_empty()) {
            (false, ..) => format!("slower than {}", behind.join(", ")),
            (true, false, _) => "not all have results".into(),
            (true, true, false) => format!(
                "none is; equal within the range of seeds: {}",
                equal.join(", ")
            ),
            (true, true, true) => "none is".into(),
        },
        met: (met || !behind.is_empty()).then_some(met),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::loads::tests::{plan, results};
    use crate::results::samples;

    /// Beside 0 and 50 %; the test does not use it.
    const LAST: u32 = 90;

    fn quick() -> Plan {
        Plan {
            quick: true,
            ..plan()
        }
    }

    /// `none` with these times at 0 and 50 %, and the time of 0 % at the last load.
    fn of_none(times: [f64; 2]) -> Results {
        let mut all = results(times);
        let loads = Lhp::loads(&quick()).unwrap();
        all.add(samples::linux(&loads.label("none", LAST), 1, &[times[0]]));
        all
    }

    /// Verdicts of a policy with these times at loads of 0 and 50 %, beside a `none` with 2.0 and 4.5 s.
    fn verdicts(policy: &str, times: [f64; 2]) -> Vec<(String, Option<bool>)> {
        let mut both = of_none([2.0, 4.5]);
        for (load, time) in [(0, times[0]), (50, times[1]), (LAST, times[0])] {
            let loads = Lhp::loads(&quick()).unwrap();
            both.add(samples::linux(&loads.label(policy, load), 1, &[time]));
        }
        verdicts_of(policy, &both)
    }

    fn verdicts_of(policy: &str, results: &Results) -> Vec<(String, Option<bool>)> {
        let plan = Plan {
            policies: vec![policy.into()],
            ..quick()
        };
        let verdicts = Lhp.evaluate(&plan, results).verdicts;
        verdicts
            .into_iter()
            .map(|it| (it.measured, it.met))
            .collect()
    }

    #[test]
    fn another_policy_is_judged_where_none_is_worst_and_it_is_said_where_it_is_worse() {
        let judged = &verdicts("trap", [2.5, 4.0])[0];
        assert_eq!(judged.1, Some(true));
        assert!(
            judged.0.ends_with("; worse than it at 0 %, 90 %"),
            "{}",
            judged.0
        );
        let judged = &verdicts("trap", [2.0, 4.6])[0];
        assert_eq!(judged.1, Some(false));
        assert!(
            judged.0.ends_with("; worse than it at 50 %"),
            "{}",
            judged.0
        );
    }

    #[test]
    fn steal_is_the_fastest_or_it_is_said_who_is() {
        let loads = Lhp::loads(&quick()).unwrap();
        let policies = ["none", "steal"].map(String::from);
        let mut results = of_none([2.0, 4.5]);
        let judged = |results: &Results| {
            let verdict = fastest(&loads, results, &policies)?;
            Some((verdict.measured, verdict.met))
        };
        assert_eq!(
            judged(&results),
            Some(("not all have results".into(), None))
        );
        let steal = |load| loads.label("steal", load);
        results.add(samples::linux(&steal(50), 1, &[4.0]));
        results.add(samples::linux(&steal(LAST), 1, &[1.9]));
        assert_eq!(judged(&results), Some(("none is".into(), Some(true))));
        results.add(samples::linux(&steal(LAST), 2, &[2.2]));
        let said = "none is; equal within the range of seeds: `none` at 90 %";
        assert_eq!(judged(&results), Some((said.into(), Some(true))));
        results.add(samples::linux(&steal(50), 2, &[4.7]));
        results.add(samples::linux(&loads.label("none", 50), 2, &[3.0; 3]));
        let said = "slower than `none` at 50 %";
        assert_eq!(judged(&results), Some((said.into(), Some(false))));
        assert!(fastest(&loads, &results, &policies[1..]).is_none());
    }

    #[test]
    fn peers_have_one_seed() {
        let plan = Plan {
            policies: vec!["steal".into(), "trap".into()],
            ..quick()
        };
        for run in Lhp.runs(&plan).unwrap() {
            let seeds = crate::experiments::seeds_of(&Lhp, &run, &[4, 5]);
            assert_eq!(seeds == [4], run.label.contains("trap"), "{}", run.label);
        }
        let method = Lhp.evaluate(&plan, &results([2.0, 4.5])).method;
        assert!(
            method
                .iter()
                .any(|it| it.starts_with("`trap`: the first seed only"))
        );
    }

    #[test]
    fn none_is_to_show_the_problem() {
        let evaluation = Lhp.evaluate(&quick(), &of_none([2.0, 4.5]));
        let verdict = &evaluation.verdicts[0];
        assert_eq!(
            (verdict.measured.as_str(), verdict.met),
            ("worse from 50 % on", Some(true))
        );
        assert_eq!(
            evaluation.findings,
            [
                "Policy `none`: at worst 1.97 times the ideal, at 50 % load; worse off than with 3 bare cores from \
                 50 % on; worse off than with 2 bare cores from 50 % on."
            ]
        );
        let evaluation = Lhp.evaluate(&quick(), &of_none([2.0, 2.3]));
        assert_eq!(evaluation.verdicts[0].met, Some(false));
    }

    #[test]
    fn steal_is_to_solve_it() {
        let good = verdicts("steal", [2.02, 2.3]);
        assert!(good.iter().all(|it| it.1 == Some(true)), "{good:?}");
        let bad = verdicts("steal", [2.02, 2.7]);
        assert_eq!(bad[0], ("1.181 × at 50 %".into(), Some(false)));
        assert_eq!(bad[1], ("worse from 50 % on".into(), Some(false)));
    }

    #[test]
    fn others_are_to_be_better_than_none() {
        assert_eq!(verdicts("trap", [2.0, 4.0])[0].1, Some(true));
        assert_eq!(verdicts("trap", [2.0, 4.6])[0].1, Some(false));
        assert!(verdicts("cosched", [2.0, 4.6]).is_empty());
    }

    #[test]
    fn a_policy_without_a_result_at_some_load_is_not_judged() {
        let missing = ("no result at 0 %, 50 %, 90 %".to_owned(), None);
        let none = of_none([2.0, 4.5]);
        assert_eq!(verdicts_of("steal", &none), [missing.clone(), missing]);
        // At one load only, at which it is ideal.
        let mut some = of_none([2.0, 4.5]);
        let loads = Lhp::loads(&quick()).unwrap();
        some.add(samples::linux(&loads.label("trap", 0), 1, &[2.0]));
        let missing = ("no result at 50 %, 90 %".to_owned(), None);
        assert_eq!(verdicts_of("trap", &some), [missing]);
    }

    #[test]
    fn an_unknown_yardstick_is_refused() {
        let plan = Plan {
            yardstick: Some("foo".into()),
            ..plan()
        };
        assert!(Lhp.runs(&plan).unwrap_err().contains("there are hackbench"));
    }
}
