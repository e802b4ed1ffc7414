// SPDX-License-Identifier: MIT OR Apache-2.0
//! `spm demo`: both guests side by side on the exact clock, meanwhile each guest alone on the bare machine, then a table.

use crate::bench::show_broken;
use crate::build;
use crate::command::{Command, EXIT_CODES};
use crate::console::{Console, Reader};
use crate::exit_code::EXIT_ENVIRONMENT;
use crate::failure::Failure;
use crate::hypervisor;
use crate::output::{self, say};
use crate::qemu;
use crate::summary;
use crate::system::System;
use crate::system::SystemArgs;
use clap::Args;
use spumone_bench::demo::{self, Guests, Report};
use spumone_bench::machine::Run;
use spumone_bench::project::Project;
use spumone_bench::results::{Outcome, Results};
use spumone_bench::role::{Flavour, Role};
use spumone_bench::runner::{self, Broken, Places};
use spumone_config::description::Guest;
use std::fs::File;
use std::io::{self, IsTerminal, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The description, and where the files of its runs go.
const SYSTEM: &str = "systems/demo.toml";
const FOLDER: &str = "build/demo";
/// Names of the guests in the description.
const RT: &str = "rt";
const LINUX: &str = "linux";
/// How often the console's log is read.
const POLL: Duration = Duration::from_millis(50);
/// Start of the clock's own line; its numbers are also in the results.
const CLOCK_LINE: &[u8] = b"spumone-clock: ";

/// Run the demo: both guests side by side, then a table that compares them with the bare machine.
///
/// Runs systems/demo.toml on the exact clock with its console in this terminal, and meanwhile each guest
/// alone on the bare machine. The keyboard is not connected: `spm run systems/shell.toml` is interactive.
#[derive(Args)]
#[command(after_help = EXIT_CODES)]
pub struct DemoArgs {
    /// The hypervisor's ELF file [default: where `make` leaves it, in target/].
    #[arg(long, value_name = "ELF")]
    pub hypervisor: Option<PathBuf>,
    /// The QEMU to start.
    #[arg(long, value_name = "PROGRAM", default_value = spumone_bench::qemu::PROGRAM)]
    pub qemu: PathBuf,
}

impl Command for DemoArgs {
    fn run(&self) -> Result<ExitCode, Failure> {
        qemu::check_version(&self.qemu)?;
        let here = std::env::current_dir()
            .map_err(|error| Failure::io("find the current folder", Path::new("."), &error))?;
        let project = Project {
            root: Project::find(&here)?,
            hypervisor: hypervisor::find(self.hypervisor.as_deref())?,
            qemu: self.qemu.clone(),
        };
        project.check(
            &[
                Role::Kernel(Flavour::Cloud),
                Role::KernelNames(Flavour::Cloud),
                Role::Initrd(Flavour::Cloud),
                Role::Rt,
            ],
            true,
        )?;
        let folder = project.root.join(FOLDER);
        let image = folder.join("system.img");
        let description = project.root.join(SYSTEM);
        let system = SystemArgs {
            description: description.clone(),
            hypervisor: Some(project.hypervisor.clone()),
        };
        let system = build::build(&system, &image)?.system;
        let guests = guests(&system)
            .map_err(|fault| Failure::environment(format!("{}: {fault}", description.display())))?;
        let demo = Demo {
            project,
            folder,
            image,
        };
        say!(
            "FreeRTOS and Linux share one machine, on the exact clock; the keyboard is not connected.\n\
             Meanwhile each of them also runs alone on a bare machine, to compare with.\n"
        );
        let reader = match io::stdout().is_terminal() {
            true => Reader::Viewer,
            false => Reader::File,
        };
        let console = Console::new(&system, reader, output::Stdout);
        let results = match demo.execute(&guests, console)? {
            Ok(results) => results,
            Err((name, broken)) => {
                show_broken(&name, &broken);
                return Ok(ExitCode::from(EXIT_ENVIRONMENT));
            }
        };
        let report = demo::report(&results).map_err(Failure::environment)?;
        output::print(&text(&report));
        Ok(match report.faults.is_empty() {
            true => ExitCode::SUCCESS,
            false => ExitCode::from(EXIT_ENVIRONMENT),
        })
    }
}

/// The guests of the demo's system.
fn guests(system: &System) -> Result<Guests, String> {
    let description = &system.description;
    let guest = |name: &str| {
        let mut guests = description.guests.iter();
        let guest = guests.find(|it| it.name.value == name);
        guest.ok_or_else(|| format!("the demo needs a guest \"{name}\""))
    };
    let (rt, linux) = (guest(RT)?, guest(LINUX)?);
    let bootargs = |guest: &Guest| {
        let written = guest.bootargs.as_ref();
        written.map_or(String::new(), |it| it.value.clone())
    };
    let count = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    Guests::new(
        count(description.board.cores.value),
        &bootargs(rt),
        count(linux.vcpus.value.len() as u64),
        &bootargs(linux),
    )
}

/// What the runs of the demo need.
struct Demo {
    project: Project,
    folder: PathBuf,
    /// The system to boot.
    image: PathBuf,
}

/// A run that has no result, and its name.
type Failed = (String, Broken);

impl Demo {
    /// Makes all runs, two at a time, and shows the console of the one with both guests.
    fn execute(
        &self,
        guests: &Guests,
        console: Console<output::Stdout>,
    ) -> Result<Result<Results, Failed>, Failure> {
        let together = guests.together();
        let log = self.places(&together).log();
        // An earlier demo's console is not to be shown.
        if log.exists() {
            std::fs::remove_file(&log).map_err(|error| Failure::io("remove", &log, &error))?;
        }
        let ended = AtomicBool::new(false);
        let failed = AtomicBool::new(false);
        let (shown, together, alone) = std::thread::scope(|scope| {
            let alone = scope.spawn(|| -> Result<Vec<_>, _> {
                let runs = guests.alone().into_iter();
                // If the run of both fails, the others are of no use.
                let runs = runs.take_while(|_| !failed.load(Ordering::Relaxed));
                runs.map(|run| self.run(&run)).collect()
            });
            let together = scope.spawn(|| {
                let outcome = self.run(&together);
                failed.store(outcome.is_err(), Ordering::Relaxed);
                ended.store(true, Ordering::Release);
                outcome
            });
            let shown = follow(&log, &ended, console);
            (shown, joined(together), joined(alone))
        });
        shown.map_err(|error| Failure::io("show", &log, &error))?;
        Ok(together.and_then(|together| {
            let mut results = Results::default();
            results.add(together);
            alone?.into_iter().for_each(|it| results.add(it));
            Ok(results)
        }))
    }

    fn run(&self, run: &Run) -> Result<Outcome, Failed> {
        let places = self.places(run);
        match runner::execute(&self.project, run, demo::SEED, &places) {
            Ok((console, clock)) => Ok(Outcome::unstored(run, demo::SEED, console, clock)),
            Err(broken) => Err((run.label.clone(), broken)),
        }
    }

    fn places(&self, run: &Run) -> Places {
        let files = run.machine.files().into_iter();
        let files = files.map(|role| match role {
            Role::System => (role, self.image.clone()),
            _ => (role, self.project.file(role)),
        });
        Places {
            files: files.collect(),
            base: self.folder.join(&run.label),
        }
    }
}

/// The return value of a thread.
fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, T>) -> T {
    match thread.join() {
        Ok(value) => value,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Shows `log` as it grows, without the clock's own line, until `ended` is set and all of it is shown.
fn follow(log: &Path, ended: &AtomicBool, mut console: Console<impl Write>) -> io::Result<()> {
    let mut read = 0;
    let mut pending = Vec::new();
    loop {
        let is_last = ended.load(Ordering::Acquire);
        // The file does not exist before QEMU is started.
        if let Ok(mut file) = File::open(log) {
            file.seek(SeekFrom::Start(read))?;
            read += file.read_to_end(&mut pending)? as u64;
        }
        let whole = match is_last {
            true => pending.len(),
            false => pending
                .iter()
                .rposition(|&it| it == b'\n')
                .map_or(0, |it| it + 1),
        };
        for line in pending
            .drain(..whole)
            .as_slice()
            .split_inclusive(|&it| it == b'\n')
        {
            if !line.starts_with(CLOCK_LINE) {
                console.feed(line)?;
            }
        }
        if is_last {
            return console.end();
        }
        console.feed(&[])?;
        std::thread::sleep(POLL);
    }
}

/// The report as text.
fn text(report: &Report) -> String {
    let header = report.table.columns.clone();
    let rows: Vec<_> = [header]
        .into_iter()
        .chain(report.table.rows.iter().cloned())
        .collect();
    let mut text = format!("\n{}\n", summary::table(&rows));
    for note in &report.notes {
        text += &format!("{note}\n");
    }
    for fault in &report.faults {
        text += &format!("FAILED: {fault}\n");
    }
    if report.faults.is_empty() {
        text += "All is well.\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::console::Screen;
    use spumone_bench::experiments::Table;

    #[test]
    fn the_console_is_shown_as_it_comes_without_the_clocks_line() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let ended = AtomicBool::new(false);
        let mut out = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::fs::write(&log, "rt | one\r\nlinux | two, ").unwrap();
                std::thread::sleep(2 * POLL);
                let text = "rt | one\r\nlinux | two, \n\rrt | x\r\nspumone-clock: 1 s\nqemu: end";
                std::fs::write(&log, text).unwrap();
                ended.store(true, Ordering::Release);
            });
            let screen = Screen::new([("rt", 36), ("linux", 32)], Reader::File);
            follow(&log, &ended, Console::of(screen, &mut out)).unwrap();
        });
        let shown = String::from_utf8(out).unwrap();
        assert_eq!(
            shown,
            "rt      | one\nrt      | x\nqemu: end\nlinux   | two, \n"
        );
    }

    #[test]
    fn the_report_has_a_table_and_says_what_failed() {
        let mut table = Table::new("", &["", "together"]);
        table.rows.push(vec!["Linux".into(), "1 s".into()]);
        let report = Report {
            table,
            notes: vec!["Times are virtual.".into()],
            faults: vec!["2 periods are lost".into()],
        };
        assert_eq!(
            text(&report),
            "\n          together\n  Linux   1 s\n\nTimes are virtual.\nFAILED: 2 periods are lost\n"
        );
    }
}
