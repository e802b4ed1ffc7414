// SPDX-License-Identifier: MIT OR Apache-2.0
//! The figures: each experiment has the runs that it needs, and evaluates their results.

pub mod ablation;
mod beside;
mod bursts;
pub mod dhrystone;
mod dispatch;
pub mod early;
pub mod energy;
mod exits;
pub mod hostile;
pub mod integrity;
pub mod ipi;
pub mod latency;
pub mod lhp;
pub mod links;
pub(crate) mod loads;
pub mod migration;
mod moves;
pub mod network;
pub mod overhead;
pub mod peers;
pub mod priorities;
pub mod shapes;
mod shares;
pub mod soak;
pub mod timer;
pub mod vcpus;
pub mod workloads;
pub mod yardstick;
pub mod yardsticks;

use crate::machine::{ClockSettings, Run};
use crate::plot::{Dots, Figure};
use crate::results::Results;
use serde_json::Value;

/// Settings of an experiment.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Make the short version.
    pub quick: bool,
    /// Policies against lock-holder preemption, each a line.
    pub policies: Vec<String>,
    /// The program by which Linux is measured, where an experiment leaves the choice.
    pub yardstick: Option<String>,
    /// Instructions in a virtual microsecond.
    pub ipus: u32,
    /// Instructions of a quantum.
    pub quantum: u32,
}

/// Speed of a core, in instructions per virtual microsecond, for which amounts of work and boot times are given.
const REFERENCE_IPUS: f64 = 250.0;
/// Longest boot of Linux in virtual seconds, at that speed and on undisturbed cores.
const BOOT_SECONDS: f64 = 3.0;

impl Plan {
    /// Speed of the modelled core relative to the reference.
    fn speed(&self) -> f64 {
        f64::from(self.ipus) / REFERENCE_IPUS
    }

    /// The clock of a run, without its seed. `end_us`: virtual end time, for guests that do not end by themselves.
    fn clock(&self, end_us: Option<u64>) -> ClockSettings {
        ClockSettings {
            quantum: self.quantum,
            ipus: self.ipus,
            seed: 0,
            end_us,
            trails: None,
        }
    }

    /// The plan of runs that measure latency: a core as fast as today's, and a small quantum.
    fn for_latency(&self) -> Self {
        Self {
            ipus: Defaults::LATENCY.ipus,
            quantum: Defaults::LATENCY.quantum,
            ..self.clone()
        }
    }

    /// Longest time from power on to the first repeat in virtual seconds, on undisturbed cores.
    fn boot_seconds(&self) -> f64 {
        BOOT_SECONDS / self.speed()
    }
}

/// The defaults of an experiment.
#[derive(Clone, Copy, Debug)]
pub struct Defaults {
    /// Instructions in a virtual microsecond.
    pub ipus: u32,
    /// Instructions of a quantum.
    pub quantum: u32,
    /// Seeds of the figure.
    pub seeds: u32,
    /// Seeds of the short version.
    pub quick_seeds: u32,
    /// Policies of the figure.
    pub policies: &'static [&'static str],
    /// Policies of the short version.
    pub quick_policies: &'static [&'static str],
}

impl Defaults {
    /// For times of Linux's work: many virtual seconds, so a slow core.
    const THROUGHPUT: Self = Self {
        ipus: 100,
        quantum: 500,
        seeds: 3,
        quick_seeds: 1,
        policies: &["none"],
        quick_policies: &["none"],
    };
    /// For comparisons of all policies; the short version compares the default with no policy.
    const ALL_POLICIES: Self = Self {
        policies: &[
            "none", "steal", "ondemand", "trap", "delay", "balance", "cosched",
        ],
        quick_policies: &["none", "steal"],
        ..Self::THROUGHPUT
    };
    /// For single waits: a core as fast as today's, and a small quantum.
    const LATENCY: Self = Self {
        ipus: 250,
        quantum: 200,
        ..Self::THROUGHPUT
    };
}

/// A table of a page.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Its title.
    pub title: String,
    /// Names of columns; all but the first are numbers.
    pub columns: Vec<String>,
    /// Cells.
    pub rows: Vec<Vec<String>>,
}

/// An aim, and whether it is met.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The aim.
    pub aim: String,
    /// The measured value.
    pub measured: String,
    /// Whether it is met; `None`: these results do not show it.
    pub met: Option<bool>,
}

/// The evaluation of results.
pub struct Evaluation {
    /// The picture.
    pub figure: Figure,
    /// A text in place of the picture.
    pub caption: String,
    /// Further pictures.
    pub further: Vec<Picture>,
    /// The results, a sentence each.
    pub findings: Vec<String>,
    /// Aims.
    pub verdicts: Vec<Verdict>,
    /// Tables of the page.
    pub tables: Vec<Table>,
    /// The method, as far as it is special to this experiment.
    pub method: Vec<String>,
    /// Numbers for the JSON file.
    pub summary: Value,
}

/// A further picture of a page.
pub struct Picture {
    /// The end of its file's name.
    pub name: &'static str,
    /// The picture.
    pub figure: Figure,
    /// A text in its place.
    pub caption: String,
}

impl Evaluation {
    /// The evaluation of no results.
    fn empty() -> Self {
        Self {
            figure: Figure::Dots(Dots::default()),
            caption: "nothing".into(),
            further: Vec::new(),
            findings: Vec::new(),
            verdicts: Vec::new(),
            tables: Vec::new(),
            method: Vec::new(),
            summary: Value::Null,
        }
    }
}

/// The fixed part of an experiment.
pub struct About {
    /// Its name on the command line.
    pub name: &'static str,
    /// The title of its page.
    pub title: &'static str,
    /// The question that it answers, with its source.
    pub question: &'static str,
    /// Defaults of the settings.
    pub defaults: Defaults,
}

/// One figure.
pub trait Experiment: Sync {
    /// What is the same for all plans.
    fn about(&self) -> &'static About;
    /// The runs, without seeds.
    ///
    /// # Errors
    ///
    /// If the plan asks for something that does not exist: what exists instead.
    fn runs(&self, plan: &Plan) -> Result<Vec<Run>, String>;
    /// Whether a run is made with the first seed only: if it has aims, they have a margin
    /// for the effect of a seed.
    fn once(&self, _run: &Run) -> bool {
        false
    }
    /// Evaluates results, of which some may be missing.
    fn evaluate(&self, plan: &Plan, results: &Results) -> Evaluation;
}

/// All experiments, in the order of the index.
pub const ALL: &[&dyn Experiment] = &[
    &lhp::Lhp,
    &workloads::Workloads,
    &shapes::Shapes,
    &vcpus::Vcpus,
    &latency::Latency,
    &early::EarlySwitches,
    &hostile::Hostile,
    &integrity::Integrity,
    &energy::Energy,
    &peers::Peers,
    &network::Network,
    &links::Links,
    &migration::Migration,
    &ipi::Ipi,
    &ablation::Ablation,
    &soak::Soak,
    &overhead::Overhead,
    &priorities::Priorities,
    &dhrystone::Dhrystone,
    &timer::Timer,
    &yardsticks::Yardsticks,
];

/// The seeds with which a run is made.
pub fn seeds_of<'a>(experiment: &dyn Experiment, run: &Run, seeds: &'a [u32]) -> &'a [u32] {
    match experiment.once(run) {
        true => &seeds[..seeds.len().min(1)],
        false => seeds,
    }
}

/// The experiment with this name.
pub fn find(name: &str) -> Option<&'static dyn Experiment> {
    ALL.iter().copied().find(|it| it.about().name == name)
}

impl Table {
    /// An empty table.
    pub fn new(title: &str, columns: &[&str]) -> Self {
        Self {
            title: title.into(),
            columns: columns.iter().map(|&it| it.into()).collect(),
            rows: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn plan(quick: bool) -> Plan {
        Plan {
            quick,
            policies: vec!["none".into()],
            yardstick: None,
            ipus: 250,
            quantum: 500,
        }
    }

    #[test]
    fn every_run_has_a_label_of_its_own_that_is_a_file_name() {
        for experiment in ALL {
            for quick in [false, true] {
                let runs = experiment.runs(&plan(quick)).unwrap();
                let labels: BTreeSet<_> = runs.iter().map(|run| run.label.as_str()).collect();
                assert_eq!(labels.len(), runs.len(), "{}", experiment.about().name);
                let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
                assert!(labels.iter().all(|it| it.chars().all(plain)), "{labels:?}");
            }
        }
    }

    #[test]
    fn the_short_version_is_smaller() {
        for experiment in ALL {
            let about = experiment.about();
            let [short, whole] = [true, false].map(|quick| experiment.runs(&plan(quick)).unwrap());
            let count = |runs: &[Run], seeds: u32| runs.len() * seeds as usize;
            let (few, all) = (
                count(&short, about.defaults.quick_seeds),
                count(&whole, about.defaults.seeds),
            );
            assert!(few <= all && short != whole, "{}", about.name);
        }
    }

    #[test]
    fn names_are_unique_and_found() {
        for experiment in ALL {
            assert_eq!(
                find(experiment.about().name).unwrap().about().title,
                experiment.about().title
            );
        }
        assert!(find("nothing").is_none());
    }

    #[test]
    fn no_results_still_give_a_page() {
        for experiment in ALL {
            let evaluation = experiment.evaluate(&plan(true), &Results::default());
            assert!(!evaluation.caption.is_empty());
            evaluation.figure.svg().unwrap();
            for picture in evaluation.further {
                picture.figure.svg().unwrap();
            }
        }
    }
}
