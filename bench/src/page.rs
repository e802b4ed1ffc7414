// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page of a figure: picture, results, and what is needed to repeat it.

use crate::experiments::{Evaluation, Experiment, Picture, Plan, Table};
use crate::failure::Failure;
use crate::plot::{self, Figure};
use crate::project::Inputs;
use crate::results::{Outcome, Results};
use crate::role::{Flavour, Role};
use crate::store;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// What the model leaves out: the same for all figures.
const LIMITS: &str = "\
- Every instruction takes one unit of time. There are no caches, no TLB misses, no pipelines, and an
  exception costs only the instructions that handle it.
- Cores execute in turns of a quantum, so a core sees the actions of another core up to a quantum early or late.
- Disk requests take a fixed virtual time, other devices none.
- The numbers compare systems on this model. They predict no board.
";

/// The file of a further picture of a page.
fn further_name(page: &str, picture: &Picture) -> String {
    format!("{page}-{}.svg", picture.name)
}

/// Writes a picture to this file, and as PNG beside it.
fn draw(figure: &Figure, path: &Path) -> Result<(), Failure> {
    let svg = figure.svg()?;
    let png = plot::png(&svg)?;
    store::write(path, svg.as_bytes())?;
    store::write(&path.with_extension("png"), &png)
}

/// The content of a page.
pub struct Page<'a> {
    /// The figure.
    pub experiment: &'a dyn Experiment,
    /// The settings.
    pub plan: &'a Plan,
    /// Seeds.
    pub seeds: &'a [u32],
    /// The command that makes the page again.
    pub command: &'a str,
    /// Files and versions.
    pub inputs: &'a Inputs,
    /// The results.
    pub results: &'a Results,
    /// Their evaluation.
    pub evaluation: &'a Evaluation,
}

impl Page<'_> {
    /// Writes page, numbers and the pictures into `folder`, as NAME.md, .json, .svg and .png; further pictures as NAME-….svg and .png.
    ///
    /// # Errors
    ///
    /// A file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<(), Failure> {
        let path = |extension| {
            folder
                .join(self.experiment.about().name)
                .with_extension(extension)
        };
        let numbers = format!("{:#}\n", self.json());
        draw(&self.evaluation.figure, &path("svg"))?;
        for picture in &self.evaluation.further {
            let name = further_name(self.experiment.about().name, picture);
            draw(&picture.figure, &folder.join(name))?;
        }
        store::write(&path("json"), numbers.as_bytes())?;
        store::write(&path("md"), self.markdown().as_bytes())
    }

    /// The text.
    pub fn markdown(&self) -> String {
        let (experiment, evaluation) = (self.experiment, self.evaluation);
        let name = experiment.about().name;
        let mut text = format!(
            "# {}\n\n![{}]({name}.svg)\n\n{}\n",
            experiment.about().title,
            evaluation.caption,
            experiment.about().question
        );
        // Writing to a string cannot fail.
        if self.plan.quick {
            let _ = write!(
                text,
                "\n**A quick look (`--quick`): shorter runs, fewer seeds. Not the figure.**\n"
            );
        }
        if !self.results.missing.is_empty() {
            let _ = write!(
                text,
                "\n**Incomplete: no result of {}.**\n",
                self.results.missing.join(", ")
            );
        }
        text += "\n## What came out\n\n";
        if evaluation.findings.is_empty() {
            text += "Nothing: there are no results.\n";
        }
        for finding in &evaluation.findings {
            let _ = writeln!(text, "- {finding}");
        }
        if !evaluation.verdicts.is_empty() {
            text += "\n| aim | measured | |\n| --- | --- | --- |\n";
            for verdict in &evaluation.verdicts {
                let met = match verdict.met {
                    Some(true) => "met",
                    Some(false) => "**not met**",
                    None => "-",
                };
                let _ = writeln!(text, "| {} | {} | {met} |", verdict.aim, verdict.measured);
            }
        }
        for picture in &evaluation.further {
            let file = further_name(name, picture);
            let _ = write!(text, "\n![{}]({file})\n", picture.caption);
        }
        for table in &evaluation.tables {
            text.push('\n');
            text += &markdown_table(table);
        }
        text += "\n## How\n\n";
        for line in &evaluation.method {
            let _ = writeln!(text, "- {line}");
        }
        let seeds: Vec<_> = self.seeds.iter().map(u32::to_string).collect();
        let _ = write!(
            text,
            "- Runs have these seeds of the clock: {}. Each is another possible interleaving of the same system. Guests' \
             random seeds are fixed.\n\n\
             ## The machine\n\n\
             QEMU's `virt` with a GICv3 and `cortex-a76` cores on the exact clock ([`testbed/`](../../testbed/)): {} instructions \
             in a virtual microsecond on each core, quantum {} instructions.\n\n{LIMITS}",
            seeds.join(", "),
            self.plan.ipus,
            self.plan.quantum,
        );
        text += &self.inputs_text();
        let _ = write!(
            text,
            "\n## To repeat it\n\n```sh\n{}\n{}\n```\n\n\
             Run hash `{}`: SHA-256 over all runs' trace hashes; the same on any machine with the same inputs. \
             Numbers: [`{name}.json`]({name}.json). One run alone, with its trace hash: `{}`.\n",
            preparation(self.inputs),
            self.command,
            self.results.hash(),
            self.one_run()
        );
        text
    }

    /// The command for a single run.
    fn one_run(&self) -> String {
        let mut words = self.command.split(' ');
        let mut kept = Vec::new();
        while let Some(word) = words.next() {
            match word {
                "--seeds" => {
                    words.next();
                }
                "--keep-going" => {}
                _ => kept.push(word),
            }
        }
        kept.extend(["--only", "LABEL", "--seed", "N"]);
        kept.join(" ")
    }

    fn inputs_text(&self) -> String {
        let mut text = "\n## Versions\n\n| | |\n| --- | --- |\n".to_owned();
        let mut row = |name: &str, value: &str| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "| {name} | {value} |");
        };
        row("Spumone", &self.inputs.spumone);
        row("QEMU", &self.inputs.qemu);
        if self
            .inputs
            .files
            .contains_key(&Role::Kernel(Flavour::Cloud).to_string())
        {
            row("Linux", &self.inputs.linux);
        }
        let freertos = self
            .results
            .all()
            .find_map(|it| it.console.freertos.as_deref());
        if let Some(version) = freertos {
            row("FreeRTOS", version);
        }
        for (name, hash) in &self.inputs.files {
            row(name, &format!("SHA-256 `{hash}`"));
        }
        text
    }

    /// All numbers, as JSON.
    pub fn json(&self) -> Value {
        let verdicts: Vec<_> = self
            .evaluation
            .verdicts
            .iter()
            .map(|it| json!({ "aim": it.aim, "measured": it.measured, "met": it.met }))
            .collect();
        json!({
            "experiment": self.experiment.about().name,
            "title": self.experiment.about().title,
            "quick": self.plan.quick,
            "settings": {
                "instructions_per_us": self.plan.ipus,
                "quantum": self.plan.quantum,
                "seeds": self.seeds,
                "policies": self.plan.policies,
            },
            "command": self.command,
            "inputs": self.inputs,
            "run_hash": self.results.hash(),
            "missing": self.results.missing,
            "findings": self.evaluation.findings,
            "verdicts": verdicts,
            "summary": self.evaluation.summary,
            "runs": self.results.all().map(run_json).collect::<Vec<_>>(),
        })
    }
}

/// One run in a few numbers.
fn run_json(outcome: &Outcome) -> Value {
    let instructions: Vec<_> = outcome
        .clock
        .cores
        .iter()
        .map(|core| json!({ "el0": core.el0, "el1": core.el1, "el2": core.el2 }))
        .collect();
    json!({
        "label": outcome.label,
        "seed": outcome.seed,
        "trace_hash": outcome.clock.hash,
        "key": outcome.key,
        "virtual_ns": outcome.clock.virtual_ns,
        "seconds": outcome.seconds(),
        "seconds_by_clock": outcome.clock.repeats(),
        "rt": outcome.console.rt.result,
        "instructions": instructions,
        "profiled": outcome.clock.profiled,
        "profile": outcome.clock.profile,
        "spin": outcome.clock.spin,
    })
}

/// A table with its title; all columns but the first are numbers.
fn markdown_table(table: &Table) -> String {
    let mut text = format!("{}:\n\n| {} |\n|", table.title, table.columns.join(" | "));
    for index in 0..table.columns.len() {
        text += if index == 0 { " --- |" } else { " ---: |" };
    }
    text.push('\n');
    for row in &table.rows {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
    text
}

/// Writes the list of all figures in `folder`, by the JSON files in it, to its README.md.
///
/// # Errors
///
/// It cannot be written.
pub fn write_index(folder: &Path, experiments: &[&dyn Experiment]) -> Result<(), Failure> {
    let text = index_of(folder, experiments);
    store::write(&folder.join("README.md"), text.as_bytes())
}

fn index_of(folder: &Path, experiments: &[&dyn Experiment]) -> String {
    let found = experiments.iter().filter_map(|experiment| {
        let path = folder.join(experiment.about().name).with_extension("json");
        let text = std::fs::read_to_string(path).ok()?;
        let numbers: Value = serde_json::from_str(&text).ok()?;
        Some((*experiment, numbers))
    });
    index(&found.collect::<Vec<_>>())
}

/// Text before the list.
const INDEX_HEAD: &str = "\
# Results

Each figure has a page with its numbers, its inputs and the command that makes it again. All are made by `spm bench`, which
also writes this list.

## How to read them

- Time is virtual: QEMU runs with a clock that gives every core a quantum of instructions in turn
  ([`testbed/`](../../testbed/README.md)). One instruction takes one unit of time, and there are no caches. So figures compare
  systems on one model; they are exact to the instruction and repeatable. They do not predict the speed of a board.
- \"Bare\" is the same guest on the same machine with no hypervisor and no EL2.
- Lines and dots are medians. Bands and bars go from the smallest to the largest value over seeds of the clock, and over
  repeats in a run, unless the picture says otherwise. A seed selects another possible interleaving of the same system. With one
  seed the numbers are exact, but a change of one instruction may move them by a few per cent.
- Latencies are in instructions; at 250 instructions per microsecond, 1,000 are 4 µs. `lhp`, `workloads`, `soak` and other
  figures of many virtual seconds have cores of 100 instructions per microsecond. There, a 1 kHz tick costs 2.5 times as large a
  share of the time.
- [Policies](../policies.md) describes the policies, and the [glossary](../glossary.md) the terms. \"The documents\" are the papers
  on SPUMONE that pages cite by title.
- The run hash at the end of each page is the same wherever the same inputs are run.

`spm bench --list` lists the figures. `spm bench NAME --quick` is a short run whose page does not go to this folder.
";

/// Most findings of a figure in the list; its page has all.
const LISTED_FINDINGS: usize = 4;

/// The list, of experiments with the numbers in their JSON files.
fn index(found: &[(&dyn Experiment, Value)]) -> String {
    let mut text = INDEX_HEAD.to_owned();
    text += "\n## Figures\n";
    if found.is_empty() {
        text += "\nNone yet.\n";
    }
    for (experiment, numbers) in found {
        let name = experiment.about().name;
        let _ = write!(
            text,
            "\n### [{title}]({name}.md)\n\n[<img src=\"{name}.svg\" width=\"600\" alt=\"{title}\">]({name}.md)\n\n",
            title = experiment.about().title
        );
        let findings = numbers["findings"].as_array().into_iter().flatten();
        for finding in findings.filter_map(Value::as_str).take(LISTED_FINDINGS) {
            let _ = writeln!(text, "- {finding}");
        }
        if let Some(aims) = aims(numbers) {
            let _ = writeln!(text, "- {aims}");
        }
        let seeds = match seeds_of_runs(numbers) {
            None => continue,
            Some((1, 1)) => "One seed".into(),
            Some((least, most)) if least == most => format!("{most} seeds"),
            Some((least, most)) => format!("{least} to {most} seeds"),
        };
        let version = numbers["inputs"]["spumone"].as_str().unwrap_or("unknown");
        let _ = writeln!(text, "- ({seeds}; Spumone {version}.)");
    }
    text
}

/// How many aims are met, and which are not; `None`: there are no aims.
fn aims(numbers: &Value) -> Option<String> {
    let verdicts = numbers["verdicts"].as_array()?;
    let said = |met| {
        let those = verdicts.iter().filter(move |it| it["met"] == json!(met));
        let words = those.map(|it| {
            let (aim, measured) = (it["aim"].as_str()?, it["measured"].as_str()?);
            Some(format!("{aim} ({measured})"))
        });
        words.flatten().collect::<Vec<_>>()
    };
    let (met, missed) = (said(true).len(), said(false));
    let judged = met + missed.len();
    let missed = match missed.is_empty() {
        true => String::new(),
        false => format!("; **not met:** {}", missed.join("; ")),
    };
    (judged > 0).then(|| format!("Aims met: {met} of {judged}{missed}."))
}

/// The least and the most seeds of a run.
fn seeds_of_runs(numbers: &Value) -> Option<(usize, usize)> {
    let mut seeds = BTreeMap::new();
    for run in numbers["runs"].as_array().into_iter().flatten() {
        *seeds.entry(run["label"].as_str()).or_insert(0) += 1;
    }
    Some((*seeds.values().min()?, *seeds.values().max()?))
}

/// The command that builds everything of which these inputs are.
fn preparation(inputs: &Inputs) -> String {
    let has = |role: Role| inputs.files.contains_key(&role.to_string());
    let hosts = [Flavour::Cloud, Flavour::Rt].map(Role::KvmHost);
    let guests = if has(Role::KvmPair) || hosts.into_iter().any(has) {
        // It builds the other guests first.
        " && guests/kvm/build.sh"
    } else if has(Role::BenchInitrd(Flavour::Rt)) {
        " && guests/linux/build.sh --rt --bench"
    } else if has(Role::BenchInitrd(Flavour::Cloud)) {
        " && guests/linux/build.sh --bench"
    } else {
        ""
    };
    let xen = match has(Role::Xen) {
        true => " && guests/xen/build.sh",
        false => "",
    };
    // A tree with changes has no name.
    let commit = match inputs.spumone.as_str() {
        "unknown" => String::new(),
        it if it.ends_with("-dirty") => String::new(),
        it => format!("git checkout {it}\n"),
    };
    format!("{commit}make build guests clock{guests}{xen}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::lhp::Lhp;
    use crate::experiments::loads::tests::{plan, results};

    fn with_page<T>(use_page: impl FnOnce(&Page<'_>) -> T) -> T {
        let inputs = Inputs {
            qemu: "10.0.2".into(),
            linux: "linux-image 6.12".into(),
            spumone: "v1".into(),
            files: [("Image".to_owned(), "00ff".to_owned())].into(),
        };
        let mut results = results([2.0, 4.5]);
        results.missing = vec!["hackbench-none-load-90 seed 1".into()];
        let plan = plan();
        let evaluation = Lhp.evaluate(&plan, &results);
        use_page(&Page {
            experiment: &Lhp,
            plan: &plan,
            seeds: &[1, 2],
            command: "spm bench lhp --keep-going --seeds 2 --policy none",
            inputs: &inputs,
            results: &results,
            evaluation: &evaluation,
        })
    }

    #[test]
    fn the_list_of_results_says_what_their_pages_say() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/results");
        let written = std::fs::read_to_string(folder.join("README.md")).unwrap();
        assert_eq!(
            index_of(&folder, crate::experiments::ALL),
            written,
            "`spm bench NAME` writes it"
        );
    }

    #[test]
    fn the_page_says_everything_in_its_order() {
        let text = with_page(|page| page.markdown());
        let parts = [
            "# Linux beside a loaded real-time guest",
            "![Time of hackbench by the load",
            "(lhp.svg)",
            "figures 1, 8 and 9",
            "**Incomplete: no result of hackbench-none-load-90 seed 1.**",
            "## What came out",
            "- Policy `none`: at worst 1.97 times the ideal",
            "| policy `none` shows the problem: worse off than with 3 bare cores from a load near 50 % | worse from 50 % on | met |",
            "| load | ideal | none | none / ideal |\n| --- | ---: | ---: | ---: |\n| 0 % | 2.000 | 2.000 | 1.00 |",
            "## How",
            "seeds of the clock: 1, 2.",
            "## The machine",
            "250 instructions in a virtual microsecond on each core, quantum 500 instructions.",
            "no caches",
            "## Versions",
            "| QEMU | 10.0.2 |",
            "| Linux | linux-image 6.12 |",
            "| Image | SHA-256 `00ff` |",
            "## To repeat it",
            "git checkout v1\nmake build guests clock\n",
            "spm bench lhp --keep-going --seeds 2 --policy none\n",
            "Run hash `",
            "`spm bench lhp --policy none --only LABEL --seed N`",
        ];
        let mut rest = text.as_str();
        for part in parts {
            let Some(at) = rest.find(part) else {
                panic!("{part:?} is not where it should be in:\n{text}")
            };
            rest = &rest[at + part.len()..];
        }
    }

    #[test]
    fn the_page_says_how_to_build_each_system() {
        let said = |roles: &[Role]| {
            let files = roles.iter().map(|it| (it.to_string(), String::new()));
            with_page(|page| {
                preparation(&Inputs {
                    files: files.collect(),
                    spumone: "v1".into(),
                    ..page.inputs.clone()
                })
            })
        };
        let make = "git checkout v1\nmake build guests clock";
        let bench = Role::BenchInitrd(Flavour::Rt);
        assert_eq!(said(&[]), make);
        assert_eq!(
            said(&[bench]),
            format!("{make} && guests/linux/build.sh --rt --bench")
        );
        for host in [Role::KvmPair, Role::KvmHost(Flavour::Rt)] {
            assert_eq!(
                said(&[bench, host, Role::Xen]),
                format!("{make} && guests/kvm/build.sh && guests/xen/build.sh")
            );
        }
    }

    #[test]
    fn the_numbers_are_there_for_programs() {
        let value = with_page(|page| page.json());
        assert_eq!(value["verdicts"][0]["met"], true);
        assert_eq!(value["summary"]["bare"][2]["seconds"]["median"], 2.0);
        assert_eq!(value["runs"].as_array().unwrap().len(), 5);
    }

    #[test]
    fn the_list_says_how_many_seeds_runs_have() {
        let said = |runs: &[&str]| {
            let runs: Vec<_> = runs.iter().map(|it| json!({ "label": it })).collect();
            let text = index(&[(&Lhp, json!({ "runs": runs, "inputs": { "spumone": "v1" } }))]);
            text.lines().last().unwrap_or_default().to_owned()
        };
        assert_eq!(said(&["a", "b"]), "- (One seed; Spumone v1.)");
        assert_eq!(said(&["a", "a", "b", "b"]), "- (2 seeds; Spumone v1.)");
        assert_eq!(said(&["a", "a", "a", "b"]), "- (1 to 3 seeds; Spumone v1.)");
    }

    #[test]
    fn the_list_says_which_aims_are_missed() {
        let verdict =
            |aim: &str, met: Option<bool>| json!({ "aim": aim, "measured": "1", "met": met });
        let of = |verdicts: &[Value]| aims(&json!({ "verdicts": verdicts }));
        assert_eq!(of(&[verdict("a", None)]), None);
        assert_eq!(
            of(&[verdict("a", Some(true))]).unwrap(),
            "Aims met: 1 of 1."
        );
        assert_eq!(
            of(&[verdict("a", Some(true)), verdict("b", Some(false))]).unwrap(),
            "Aims met: 1 of 2; **not met:** b (1)."
        );
    }

    #[test]
    fn all_files_are_written_and_listed() {
        let folder = tempfile::tempdir().unwrap();
        with_page(|page| page.write(folder.path())).unwrap();
        for extension in ["md", "json", "svg", "png"] {
            assert!(
                folder
                    .path()
                    .join("lhp")
                    .with_extension(extension)
                    .is_file()
            );
        }
        write_index(folder.path(), &[&Lhp]).unwrap();
        let index = std::fs::read_to_string(folder.path().join("README.md")).unwrap();
        assert!(index.contains("](lhp.md)") && index.contains("- Policy `none`: at worst 1.97"));
    }
}
