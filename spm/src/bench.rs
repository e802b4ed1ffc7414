// SPDX-License-Identifier: MIT OR Apache-2.0
//! `spm bench`: makes the runs of a figure, then its page.

mod args;

use crate::build::{self, Built};
use crate::command::Command;
use crate::exit_code::{EXIT_COMMAND_LINE, EXIT_ENVIRONMENT};
use crate::failure::Failure;
use crate::hypervisor;
use crate::output::{self, note, say};
use crate::qemu;
use crate::system::SystemArgs;
use spumone_bench::campaign::{self, Collected, Options};
use spumone_bench::code_names::CodeNames;
use spumone_bench::experiments::{self, Experiment, Plan};
use spumone_bench::machine::{Machine, Run};
use spumone_bench::page::{self, Page};
use spumone_bench::project::Project;
use spumone_bench::runner::Broken;
use spumone_bench::sizes::SystemSize;
use spumone_bench::trails;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub use args::BenchArgs;

/// Where pages go.
const RESULTS: &str = "docs/results";

impl From<spumone_bench::failure::Failure> for Failure {
    fn from(failure: spumone_bench::failure::Failure) -> Self {
        let shown = Self::environment(failure.message);
        match failure.help {
            Some(help) => shown.help(help),
            None => shown,
        }
    }
}

impl Command for BenchArgs {
    fn run(&self) -> Result<ExitCode, Failure> {
        let Some(name) = &self.name else {
            return Ok(without_name(self));
        };
        let experiment = experiments::find(name).ok_or_else(|| {
            let names: Vec<_> = experiments::ALL.iter().map(|it| it.about().name).collect();
            Failure::environment(format!("there is no figure \"{name}\""))
                .help(format!("there are: {}", names.join(", ")))
        })?;
        let plan = plan(experiment, self);
        let runs = experiment.runs(&plan).map_err(Failure::environment)?;
        let mut runs = campaign::selected(runs, self.only.as_deref());
        for run in &mut runs {
            run.clock.trails.clone_from(&self.trails);
        }
        if runs.is_empty() {
            let only = self.only.as_deref().unwrap_or_default();
            let unselected = BenchArgs {
                only: None,
                ..self.clone()
            };
            return Err(
                Failure::environment(format!("no run's label contains \"{only}\""))
                    .help(format!("`{} --list` lists them", command_line(&unselected))),
            );
        }
        if self.list {
            output::print(&list_runs(experiment, self, &runs));
            return Ok(ExitCode::SUCCESS);
        }
        let seeds = seeds(experiment, self);
        measure(self, experiment, &plan, &runs, seeds)
    }

    fn json(&self) -> bool {
        self.json
    }
}

fn plan(experiment: &dyn Experiment, args: &BenchArgs) -> Plan {
    let defaults = experiment.about().defaults;
    Plan {
        quick: args.quick,
        policies: policies(experiment, args),
        yardstick: args.yardstick.clone(),
        ipus: args.ipus.unwrap_or(defaults.ipus),
        quantum: args.q.unwrap_or(defaults.quantum),
    }
}

fn policies(experiment: &dyn Experiment, args: &BenchArgs) -> Vec<String> {
    let defaults = experiment.about().defaults;
    match (args.policy.is_empty(), args.quick) {
        (false, _) => args.policy.clone(),
        (true, quick) => {
            let own = match quick {
                true => defaults.quick_policies,
                false => defaults.policies,
            };
            own.iter().map(|&it| it.into()).collect()
        }
    }
}

fn seeds(experiment: &dyn Experiment, args: &BenchArgs) -> Vec<u32> {
    let defaults = experiment.about().defaults;
    let own = match args.quick {
        true => defaults.quick_seeds,
        false => defaults.seeds,
    };
    match args.seed {
        Some(seed) => vec![seed],
        None => (1..=args.seeds.unwrap_or(own)).collect(),
    }
}

/// What `spm bench` without a name prints: the list that was asked for, or an error with the list.
fn without_name(args: &BenchArgs) -> ExitCode {
    if args.list {
        output::print(&list(args));
        return ExitCode::SUCCESS;
    }
    note!(
        "error: `spm bench` needs the name of a figure:\n\n{}\n\
         `spm bench NAME --quick` makes a short version of a figure, `spm bench NAME` makes the figure; \
         `spm bench --help` explains the options.",
        list(args)
    );
    ExitCode::from(EXIT_COMMAND_LINE)
}

/// A line for each figure, with the number of runs of its short version and of the whole, as `args` has them.
fn list(args: &BenchArgs) -> String {
    let count = |experiment: &dyn Experiment, quick| {
        let args = BenchArgs {
            quick,
            ..args.clone()
        };
        let runs = experiment.runs(&plan(experiment, &args));
        runs.map_or("-".into(), |runs| {
            run_count(experiment, &args, &runs).to_string()
        })
    };
    let mut text = format!(
        "{:22} {:>16}\n{:22} {:>7}  {:>7}  what it is about\n",
        "", "number of runs", "figure", "--quick", "whole"
    );
    for experiment in experiments::ALL {
        let about = experiment.about();
        text += &format!(
            "{:22} {:>7}  {:>7}  {}\n",
            about.name,
            count(*experiment, true),
            count(*experiment, false),
            about.title
        );
    }
    text
}

/// Number of runs with all their seeds.
fn run_count(experiment: &dyn Experiment, args: &BenchArgs, runs: &[Run]) -> usize {
    let seeds = seeds(experiment, args);
    let seeds_of = |run| experiments::seeds_of(experiment, run, &seeds).len();
    runs.iter().map(seeds_of).sum()
}

/// A line for each of these runs, and their number.
fn list_runs(experiment: &dyn Experiment, args: &BenchArgs, runs: &[Run]) -> String {
    let mut text = String::new();
    for run in runs {
        let what = match &run.machine {
            Machine::BareLinux(linux) => {
                format!("bare Linux, {} cores: {}", linux.cpus, linux.bootargs())
            }
            Machine::BareRt(bootargs) => format!("bare FreeRTOS: {bootargs}"),
            Machine::Spumone(system) => {
                let rt: Vec<_> = system.rt.iter().map(|it| it.bootargs.as_str()).collect();
                let rt = match rt.is_empty() {
                    true => "none".into(),
                    false => rt.join(" and "),
                };
                let linux = system.linux.as_ref().map(|it| it.bootargs());
                format!(
                    "Spumone: FreeRTOS {rt}; Linux {}",
                    linux.as_deref().unwrap_or("none")
                )
            }
            Machine::Xen(system) => {
                let (rt, linux) = (&system.rt, &system.linux);
                format!(
                    "Xen, {}: FreeRTOS {rt}; Linux, {} vCPUs, {}",
                    system.setup.scheduler.name(),
                    linux.cpus,
                    linux.bootargs()
                )
            }
            Machine::Kvm(kvm) => format!("KVM host: {}", kvm.bootargs()),
            Machine::KvmPair(pair) => format!("KVM host: {}", pair.bootargs()),
        };
        text += &format!("{:32} {what}\n", run.label);
    }
    let count = run_count(experiment, args, runs);
    text + &format!("{count} runs with all seeds; runs that have a result are not repeated\n")
}

fn measure(
    args: &BenchArgs,
    experiment: &dyn Experiment,
    plan: &Plan,
    runs: &[Run],
    seeds: Vec<u32>,
) -> Result<ExitCode, Failure> {
    qemu::check_version(&args.qemu)?;
    let here = std::env::current_dir()
        .map_err(|error| Failure::io("find the current folder", Path::new("."), &error))?;
    let root = Project::find(&here)?;
    let needs_hypervisor = runs
        .iter()
        .any(|run| matches!(run.machine, Machine::Spumone(_)));
    let hypervisor = match hypervisor::find(args.hypervisor.as_deref()) {
        Err(failure) if needs_hypervisor => return Err(failure),
        found => found.unwrap_or_default(),
    };
    let project = Project {
        root,
        hypervisor,
        qemu: args.qemu.clone(),
    };
    let options = Options {
        seeds,
        jobs: args.jobs as usize,
        only: args.only.clone(),
        keep_going: args.keep_going,
    };
    let collected = campaign::execute(
        &project,
        experiment,
        runs,
        &options,
        |description, image| {
            let system = SystemArgs {
                description: description.to_owned(),
                hypervisor: Some(project.hypervisor.clone()),
            };
            build::build(&system, image).map(|built| system_size(&built))
        },
    )?;
    for (name, broken) in &collected.broken {
        show_broken(name, broken);
    }
    if !collected.broken.is_empty() && !args.keep_going {
        return Err(Failure::environment(format!("{} runs failed", collected.broken.len())).help(
            "look at the logs; successful runs are kept and not repeated; --keep-going makes a page without the failed ones",
        ));
    }
    let evaluation = experiment.evaluate(plan, &collected.results);
    let page = Page {
        experiment,
        plan,
        seeds: &options.seeds,
        command: &command_line(args),
        inputs: &collected.inputs,
        results: &collected.results,
        evaluation: &evaluation,
    };
    finish(args, &project, &page, &collected)
}

/// What a system takes.
fn system_size(built: &Built) -> SystemSize {
    let payloads = built.system.packed.payloads.iter();
    SystemSize {
        memory: built.system.plan.hypervisor.size,
        files: payloads.map(|it| it.size).sum(),
        program: built.program,
    }
}

/// Writes the page where the command line says, and prints a summary.
fn finish(
    args: &BenchArgs,
    project: &Project,
    page: &Page<'_>,
    collected: &Collected,
) -> Result<ExitCode, Failure> {
    let name = page.experiment.about().name;
    let partial = args.seed.is_some() || args.only.is_some();
    let folder = folder(args, name, &project.root);
    if let Some(folder) = &folder {
        page.write(folder)?;
        let is_same = |other: &Path| folder.canonicalize().ok() == other.canonicalize().ok();
        if is_same(&project.root.join(RESULTS)) {
            page::write_index(folder, experiments::ALL)?;
        }
    }
    if args.json {
        output::json(&page.json());
    } else {
        show(page, collected, partial);
        show_trails(args, project, page);
        if let Some(folder) = folder {
            say!("\n{}", folder.join(name).with_extension("md").display());
        }
    }
    Ok(match collected.broken.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(EXIT_ENVIRONMENT),
    })
}

/// The folder of the page of figure `name`: the one that the user named, or one of the project in `root`. `None`: no page
/// is written.
fn folder(args: &BenchArgs, name: &str, root: &Path) -> Option<PathBuf> {
    if args.out.is_some() {
        return args.out.clone();
    }
    if args.seed.is_some() || args.only.is_some() {
        return None;
    }
    let other = match (args.quick, &args.yardstick) {
        (false, None) => return Some(root.join(RESULTS)),
        (true, None) => "quick".to_owned(),
        (false, Some(yardstick)) => yardstick.clone(),
        (true, Some(yardstick)) => format!("{yardstick}-quick"),
    };
    Some(root.join("build/bench").join(name).join(other))
}

/// Prints which code the exits of the kind that `--trails` names have executed.
fn show_trails(args: &BenchArgs, project: &Project, page: &Page<'_>) {
    let Some(kind) = &args.trails else {
        return;
    };
    let Some(names) = CodeNames::open(&project.hypervisor) else {
        return;
    };
    for outcome in page.results.all() {
        if let Some(table) = trails::table(&outcome.clock, &names, kind) {
            say!("\n{} seed {}\n{table}", outcome.label, outcome.seed);
        }
    }
}

fn show(page: &Page<'_>, collected: &Collected, every_run: bool) {
    if every_run {
        for outcome in page.results.all() {
            say!(
                "{:32} seed {}  trace {}  {}",
                outcome.label,
                outcome.seed,
                outcome.clock.hash,
                outcome.numbers()
            );
        }
        say!();
        for (name, hash) in &page.inputs.files {
            say!("{name:24} {hash}");
        }
    } else {
        for finding in &page.evaluation.findings {
            say!("- {finding}");
        }
        for verdict in &page.evaluation.verdicts {
            let met = match verdict.met {
                Some(true) => "met",
                Some(false) => "NOT MET",
                None => "?",
            };
            say!("{met:8} {}: {}", verdict.aim, verdict.measured);
        }
    }
    let total = page.results.all().count();
    say!(
        "\n{total} runs, {} of them made now; run hash {}",
        collected.made - collected.broken.len(),
        page.results.hash()
    );
}

/// Shows why run `name` has no result, and the end of its console.
pub fn show_broken(name: &str, broken: &Broken) {
    note!("\n{name}: {}\n{}:", broken.reason, broken.log.display());
    for line in &broken.tail {
        note!("  {line}");
    }
}

/// The command that makes the same page again.
fn command_line(args: &BenchArgs) -> String {
    let mut words = vec!["target/host/spm bench".to_owned()];
    words.extend(args.name.clone());
    let mut flag = |on: bool, name: &str| words.extend(on.then(|| name.to_owned()));
    flag(args.quick, "--quick");
    flag(args.keep_going, "--keep-going");
    let mut option = |name: &str, value: Option<String>| {
        words.extend(value.map(|it| format!("{name} {it}")));
    };
    option("--seeds", args.seeds.map(|it| it.to_string()));
    option("--seed", args.seed.map(|it| it.to_string()));
    option("--only", args.only.clone());
    option("--ipus", args.ipus.map(|it| it.to_string()));
    option("--q", args.q.map(|it| it.to_string()));
    let policies = args.policy.join(",");
    option("--policy", (!policies.is_empty()).then_some(policies));
    option("--yardstick", args.yardstick.clone());
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: BenchArgs,
    }

    fn args(line: &str) -> BenchArgs {
        let words = ["bench"].into_iter().chain(line.split_whitespace());
        Line::parse_from(words).args
    }

    #[test]
    fn the_page_names_the_command_that_makes_it_again() {
        let line = "lhp --quick --seeds 4 --ipus 1000 --policy none,steal --yardstick build";
        assert_eq!(
            command_line(&args(line)),
            format!("target/host/spm bench {line}")
        );
        // Options that do not change the numbers are left out.
        let line = "latency --jobs 1 --out /tmp/x --json";
        assert_eq!(command_line(&args(line)), "target/host/spm bench latency");
    }

    #[test]
    fn only_whole_figures_go_to_docs_results() {
        let at = |line: &str| {
            let folder = folder(&args(line), "lhp", Path::new("/p"))?;
            Some(folder.display().to_string())
        };
        assert_eq!(at("lhp --seeds 9").unwrap(), "/p/docs/results");
        assert_eq!(at("lhp --quick").unwrap(), "/p/build/bench/lhp/quick");
        assert_eq!(
            at("lhp --yardstick build").unwrap(),
            "/p/build/bench/lhp/build"
        );
        assert_eq!(
            at("lhp --quick --yardstick build").unwrap(),
            "/p/build/bench/lhp/build-quick"
        );
        assert_eq!(at("lhp --only x --out x").unwrap(), "x");
        assert_eq!(at("lhp --seed 1"), None);
    }

    #[test]
    fn figures_are_listed_with_their_number_of_runs() {
        let lhp = experiments::find("lhp").unwrap();
        for options in ["", "--policy none,steal,trap --seeds 6"] {
            let count = |line: &str| {
                let args = args(line);
                let runs = lhp.runs(&plan(lhp, &args)).unwrap();
                run_count(lhp, &args, &runs)
            };
            let short = count(&format!("lhp --quick {options}"));
            let whole = count(&format!("lhp {options}"));
            let row = format!(
                "{:22} {short:>7}  {whole:>7}  {}\n",
                "lhp",
                lhp.about().title
            );
            let text = list(&args(&format!("--list {options}")));
            assert!(text.contains(&row), "{row} is not in:\n{text}");
        }
    }

    #[test]
    fn runs_are_listed_with_their_number() {
        let lhp = experiments::find("lhp").unwrap();
        let text = |line: &str| {
            let args = args(line);
            let runs = lhp.runs(&plan(lhp, &args)).unwrap();
            list_runs(lhp, &args, &runs)
        };
        assert!(text("lhp --list --quick").contains("\n9 runs with all seeds;"));
        // The runs of `trap` have one seed.
        let text = text("lhp --list --policy steal,trap --seeds 6");
        assert!(text.contains("\n60 runs with all seeds;"), "{text}");
    }

    #[test]
    fn seeds_count_from_one_unless_one_is_named() {
        let experiment = experiments::find("lhp").unwrap();
        assert_eq!(seeds(experiment, &args("lhp --seeds 3")), [1, 2, 3]);
        assert_eq!(seeds(experiment, &args("lhp --seed 7")), [7]);
        assert_eq!(seeds(experiment, &args("lhp --quick")), [1]);
    }

    #[test]
    fn settings_come_from_the_figure_unless_given() {
        let experiment = experiments::find("latency").unwrap();
        assert_eq!(
            plan(experiment, &args("latency")).quantum,
            experiment.about().defaults.quantum
        );
        assert_eq!(plan(experiment, &args("latency --q 100")).quantum, 100);
        let policies = |line| plan(experiment, &args(line)).policies;
        assert_eq!(policies("latency"), experiment.about().defaults.policies);
        assert_eq!(policies("latency --quick"), ["none", "steal"]);
        assert_eq!(policies("latency --policy trap"), ["trap"]);
    }

    #[test]
    fn unknown_names_are_refused() {
        assert!(Line::try_parse_from(["bench", "nothing"]).is_err());
        assert!(Line::try_parse_from(["bench", "--list"]).is_ok());
        assert!(Line::try_parse_from(["bench", "lhp", "--yardstick", "nothing"]).is_err());
        assert!(Line::try_parse_from(["bench", "lhp", "--policy", "none,nothing"]).is_err());
    }
}
