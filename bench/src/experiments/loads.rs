// SPDX-License-Identifier: MIT OR Apache-2.0
//! Common parts of `lhp`, `dhrystone` and `ablation`: one yardstick, by the load that the real-time guest puts on one core.

use super::bursts::{self, Bursts};
use super::yardstick::{self, Yardstick};
use super::{Plan, Table};
use crate::linux::Linux;
use crate::machine::{Machine, Order, Run};
use crate::plot::{Curve, Line, Reference};
use crate::results::{Outcome, Results};
use crate::stats::Spread;
use serde_json::{Value, json};

/// Cores of the machine.
pub const CORES: u32 = 4;
/// Bare machines for comparison, by number of cores.
const BARE: [u32; 3] = [2, 3, 4];
/// The shared core is the home of Linux's CPU 3. With CPU 0 the whole boot would get only what the
/// load leaves of that core.
const HOMES: [u32; 4] = [1, 2, 3, 0];
/// Repeats in a run. Seeds differ more than repeats do, so each run has one repeat that spans several bursts.
const REPEATS: u32 = 1;

/// A yardstick under load.
pub struct Loads {
    /// The yardstick.
    pub yardstick: &'static Yardstick,
    /// Loads in per cent.
    pub loads: Vec<u32>,
    /// Period of the real-time guest's bursts in milliseconds.
    pub burst_ms: u32,
    /// Approximate length of the measured work on four bare cores, in seconds.
    pub seconds: f64,
}

/// Measured times of the bare machine with 2, 3 and 4 cores.
pub struct Bare {
    /// Medians in seconds.
    pub times: [f64; 3],
}

impl Bare {
    /// Time if the real-time guest takes the share `f` of one core and nothing else is lost: the throughput is
    /// that of three cores, and that of the rest of the fourth one.
    pub fn ideal(&self, f: f64) -> f64 {
        self.ideal_beside(1, f)
    }

    /// The same with so many real-time guests, 1 or 2, of which each takes the share `f` of a core of its own.
    pub fn ideal_beside(&self, guests: usize, f: f64) -> f64 {
        ideal(self.times[2 - guests], self.times[2], f)
    }
}

/// The time of work that takes a bare machine with all cores the time `all`, and one with the cores that no real-time guest
/// uses the time `others`: with all of those, and all but the share `f` of the rest.
pub fn ideal(others: f64, all: f64, f: f64) -> f64 {
    let [others, all] = [others, all].map(|time| 1.0 / time);
    1.0 / (others + (1.0 - f) * (all - others))
}

/// The yardstick if the plan names none.
const YARDSTICK: &str = "hackbench";

/// The name of the plan's yardstick.
pub fn yardstick(plan: &Plan) -> &str {
    plan.yardstick.as_deref().unwrap_or(YARDSTICK)
}

impl Loads {
    /// The yardstick with this name, with the loads of the short version or of the whole figure.
    ///
    /// # Errors
    ///
    /// There is no yardstick with this name: which there are.
    pub fn new(plan: &Plan, name: &str, quick: &[u32], whole: &[u32]) -> Result<Self, String> {
        let (loads, burst_ms, seconds) = match plan.quick {
            true => (quick, 100, 0.4),
            // Five bursts in each.
            false => (whole, 500, 2.5),
        };
        Ok(Self {
            yardstick: yardstick::find(name)?,
            loads: loads.to_vec(),
            burst_ms,
            seconds,
        })
    }

    /// Label of a bare run.
    pub fn bare_label(&self, cores: u32) -> String {
        format!("{}-bare-{cores}", self.yardstick.name)
    }

    /// Label of a run under load.
    pub fn label(&self, policy: &str, load: u32) -> String {
        format!("{}-{policy}-load-{load:02}", self.yardstick.name)
    }

    /// A Linux that measures the yardstick.
    pub fn linux(&self, plan: &Plan, cpus: u32) -> Linux {
        self.yardstick.linux(plan, cpus, self.seconds, REPEATS)
    }

    /// The bare machines, and each policy under each load.
    pub fn runs(&self, plan: &Plan) -> Vec<Run> {
        let policies = plan.policies.iter();
        let loaded = policies.flat_map(|policy| {
            let loads = self.loads.iter();
            loads.map(move |&load| self.run(plan, policy, load))
        });
        self.bare_runs(plan).chain(loaded).collect()
    }

    /// The bare machines.
    pub fn bare_runs(&self, plan: &Plan) -> impl Iterator<Item = Run> {
        BARE.iter().map(|&cores| Run {
            label: self.bare_label(cores),
            machine: Machine::BareLinux(self.linux(plan, cores)),
            disk_mib: 0,
            clock: plan.clock(None),
            order: Order::Any,
        })
    }

    /// A policy under a load in per cent.
    pub fn run(&self, plan: &Plan, policy: &str, load: u32) -> Run {
        let mut linux = self.linux(plan, CORES);
        linux.homes = HOMES.to_vec();
        let bursts = Bursts {
            load,
            ms: self.burst_ms,
        };
        bursts::run_beside(
            plan,
            self.label(policy, load),
            policy,
            bursts,
            linux,
            self.seconds,
        )
    }

    /// The bare machines' times; `None` if one is missing.
    pub fn bare(&self, results: &Results) -> Option<Bare> {
        let time = |cores| Some(self.spread(results, &self.bare_label(cores))?.median);
        Some(Bare {
            times: [time(BARE[0])?, time(BARE[1])?, time(BARE[2])?],
        })
    }

    /// Seconds over all seeds.
    pub fn spread(&self, results: &Results, label: &str) -> Option<Spread> {
        Spread::of(results.values(label, Outcome::seconds))
    }

    /// Times under load divided by that of four bare cores, by load.
    pub fn line(&self, results: &Results, bare: &Bare, policy: &str) -> Line {
        let points = self.loads.iter().filter_map(|&load| {
            let spread = self.spread(results, &self.label(policy, load))?;
            Some((f64::from(load), spread.over(bare.times[2])))
        });
        Line {
            name: policy.to_owned(),
            points: points.collect(),
        }
    }

    /// The ideal, by load.
    pub fn ideal(&self, bare: &Bare) -> Curve {
        let end = self.loads.iter().copied().max().unwrap_or(90);
        let points = (0..=end).step_by(5).map(|load| {
            let time = bare.ideal(f64::from(load) / 100.0);
            (f64::from(load), time / bare.times[2])
        });
        Curve {
            name: "ideal".into(),
            points: points.collect(),
        }
    }

    /// The bare machines as horizontal lines.
    pub fn references(bare: &Bare) -> Vec<Reference> {
        let named = BARE.iter().zip(bare.times);
        named
            .map(|(cores, time)| Reference {
                name: format!("bare, {cores} cores"),
                y: time / bare.times[2],
            })
            .collect()
    }

    /// The largest median divided by the ideal, and its load.
    pub fn worst(&self, results: &Results, bare: &Bare, policy: &str) -> Option<(f64, u32)> {
        let ratios = self.loads.iter().filter_map(|&load| {
            let time = self.spread(results, &self.label(policy, load))?.median;
            Some((time / bare.ideal(f64::from(load) / 100.0), load))
        });
        ratios.max_by(|a, b| a.0.total_cmp(&b.0))
    }

    /// The loads at which a policy has no result, in words; `None` if there are none.
    pub fn missing(&self, results: &Results, policy: &str) -> Option<String> {
        let loads = self.loads.iter();
        let missing: Vec<_> = loads
            .filter(|&&load| self.spread(results, &self.label(policy, load)).is_none())
            .map(|load| format!("{load} %"))
            .collect();
        (!missing.is_empty()).then(|| format!("no result at {}", missing.join(", ")))
    }

    /// The smallest load at which the median is above the time of so many bare cores.
    pub fn first_worse_than(
        &self,
        results: &Results,
        bare: &Bare,
        policy: &str,
        cores: u32,
    ) -> Option<u32> {
        let time = bare.times[BARE.iter().position(|&it| it == cores)?];
        self.loads.iter().copied().find(|&load| {
            self.spread(results, &self.label(policy, load))
                .is_some_and(|it| it.median > time)
        })
    }

    /// Times by load: in seconds, and over the ideal.
    pub fn table(&self, plan: &Plan, results: &Results) -> Table {
        let title = format!(
            "Time of `{}` by load: seconds; over the ideal",
            self.yardstick.name
        );
        let mut columns = vec!["load".to_owned(), "ideal".to_owned()];
        for policy in &plan.policies {
            columns.extend([policy.clone(), format!("{policy} / ideal")]);
        }
        let mut table = Table {
            title,
            columns,
            rows: Vec::new(),
        };
        let bare = self.bare(results);
        for &load in &self.loads {
            let ideal = bare.as_ref().map(|it| it.ideal(f64::from(load) / 100.0));
            let mut row = vec![format!("{load} %")];
            row.push(ideal.map_or("-".into(), |it| format!("{it:.3}")));
            for policy in &plan.policies {
                let spread = self.spread(results, &self.label(policy, load));
                row.push(spread.map_or("-".into(), |it| it.show(3)));
                let ratio = spread
                    .zip(ideal)
                    .map(|(spread, ideal)| spread.over(ideal).show(2));
                row.push(ratio.unwrap_or_else(|| "-".into()));
            }
            table.rows.push(row);
        }
        table
    }

    /// Times of the bare machine.
    pub fn bare_table(&self, results: &Results) -> Table {
        let title = format!("`{}` on the bare machine", self.yardstick.name);
        let mut table = Table::new(&title, &["cores", "seconds"]);
        for cores in BARE {
            let spread = self.spread(results, &self.bare_label(cores));
            let cell = spread.map_or("-".into(), |it| it.show(3));
            table.rows.push(vec![cores.to_string(), cell]);
        }
        table
    }

    /// For the JSON file.
    pub fn summary(&self, plan: &Plan, results: &Results) -> Value {
        let bare = self.bare(results);
        let mut by_policy = serde_json::Map::new();
        for policy in &plan.policies {
            let points: Vec<_> = self
                .loads
                .iter()
                .map(|&load| {
                    let ideal = bare.as_ref().map(|it| it.ideal(f64::from(load) / 100.0));
                    let seconds = self.spread(results, &self.label(policy, load));
                    let ratio = seconds.zip(ideal).map(|(it, ideal)| it.median / ideal);
                    json!({ "load_percent": load, "seconds": seconds, "ideal_seconds": ideal,
                        "median_over_ideal": ratio })
                })
                .collect();
            by_policy.insert(policy.clone(), points.into());
        }
        let bare: Vec<_> = BARE
            .iter()
            .map(|&cores| json!({ "cores": cores, "seconds": self.spread(results, &self.bare_label(cores)) }))
            .collect();
        json!({ "yardstick": self.yardstick.name, "bare": bare, "under_load": by_policy })
    }

    /// The method.
    pub fn method(&self, plan: &Plan) -> Vec<String> {
        vec![
            format!(
                "FreeRTOS spins for the given share of every {} ms on core 0, above Linux's four vCPUs (one at home on \
                 each of four cores; CPU 3 on core 0), and takes its 1 kHz tick.",
                self.burst_ms
            ),
            format!(
                "Linux measures `{}` ({}) itself, once a run. The real-time guest runs as long.",
                self.linux(plan, CORES).arguments.join(" "),
                self.yardstick.what
            ),
            "Ideal: 1 / (T(3) + (1 - f) × (T(4) - T(3))), where T(n) = 1 / (time on n bare cores), as measured."
                .into(),
        ]
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::experiments::yardstick;
    use crate::results::samples;

    pub fn loads() -> Loads {
        Loads {
            yardstick: yardstick::find("hackbench").unwrap(),
            loads: vec![0, 50],
            burst_ms: 500,
            seconds: 2.5,
        }
    }

    pub fn plan() -> Plan {
        Plan {
            quick: false,
            policies: vec!["none".into()],
            yardstick: None,
            ipus: 250,
            quantum: 500,
        }
    }

    /// Bare machines with 4.0, 2.667 and 2.0 s; these times under load.
    pub fn results(under_load: [f64; 2]) -> Results {
        let mut results = Results::default();
        for (cores, time) in [(2, 4.0), (3, 8.0 / 3.0), (4, 2.0)] {
            results.add(samples::linux(&loads().bare_label(cores), 1, &[time]));
        }
        for (load, time) in [0, 50].into_iter().zip(under_load) {
            results.add(samples::linux(
                &loads().label("none", load),
                1,
                &[time, time],
            ));
        }
        results
    }

    #[test]
    fn the_ideal_loses_the_share_of_one_core_and_nothing_else() {
        let bare = loads().bare(&results([2.0, 3.0])).unwrap();
        assert!((bare.ideal(0.0) - 2.0).abs() < 1e-9);
        assert!((bare.ideal(1.0) - 8.0 / 3.0).abs() < 1e-9);
        // Perfect scaling: 3.5 of 4 cores.
        assert!((bare.ideal(0.5) - 8.0 / 3.5).abs() < 1e-9);
        // Two real-time guests: 2 + 2 × 0.75 cores.
        assert!((bare.ideal_beside(2, 0.25) - 8.0 / 3.5).abs() < 1e-9);
    }

    #[test]
    fn the_worst_load_is_found() {
        let results = results([2.0, 4.0]);
        let bare = loads().bare(&results).unwrap();
        let (ratio, load) = loads().worst(&results, &bare, "none").unwrap();
        assert_eq!(load, 50);
        assert!((ratio - 1.75).abs() < 1e-9);
        assert_eq!(
            loads().first_worse_than(&results, &bare, "none", 3),
            Some(50)
        );
        assert_eq!(loads().first_worse_than(&results, &bare, "none", 2), None);
    }
}
