// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command `scripts/stretches`.

#![forbid(unsafe_code)]

use clap::Parser;
use spumone_bench::code_names::CodeNames;
use spumone_stretches::analysis::Analysis;
use spumone_stretches::annotations::Annotations;
use spumone_stretches::explain;
use spumone_stretches::foreign::Foreign;
use spumone_stretches::loops::OWN_SOURCES;
use spumone_stretches::measured::Measured;
use spumone_stretches::problem::Problem;
use spumone_stretches::program::Program;
use spumone_stretches::rows::{Detail, Row, longest, table};
use spumone_stretches::stored::{self, ACCEPT, Changes};
use std::path::PathBuf;
use std::process::ExitCode;

/// Bounds how many instructions EL2 executes at most between two looks for interrupts.
///
/// Reads the linked program, and the bounds of its loops from comments in the sources. Prints a table: where stretches begin, the
/// longest of each, and which functions take most of it.
///
/// Fails if a path from the exit of a guest to the next entry has an indirect branch, or if what enters guests is not called by exactly one
/// function, which never returns: a guest can train the core's predictions of indirect branches and of returns at EL2.
#[derive(Parser)]
struct Arguments {
    /// The EL2 program.
    #[arg(
        long,
        default_value = "target/aarch64-unknown-none-softfloat/release/spumone"
    )]
    elf: PathBuf,
    /// The root of the repository.
    #[arg(long, default_value = ".")]
    root: PathBuf,
    /// Compares with the stored table; fails if a stretch has become longer.
    #[arg(long)]
    check: bool,
    /// Stores the table.
    #[arg(long, conflicts_with = "check")]
    write: bool,
    /// Prints the table as JSON.
    #[arg(long)]
    json: bool,
    /// Prints the path of the row with this number.
    #[arg(long, value_name = "ROW")]
    explain: Option<usize>,
    /// Prints the loops that the table depends on, each with its bound and where that is from.
    #[arg(long)]
    loops: bool,
    /// Prints what was measured beside it: a folder with runs of `spm bench` with the same EL2 program. May be named several times.
    #[arg(long, value_name = "FOLDER")]
    measured: Vec<PathBuf>,
    /// Prints so many rows only.
    #[arg(long, value_name = "NUMBER")]
    rows: Option<usize>,
}

/// The stored table.
const STORED: &str = "hypervisor/stretches.json";
/// Bounds of the code of others.
const FOREIGN: &str = "stretches/foreign.toml";

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(code) => code,
        Err(problems) => {
            for problem in &problems {
                eprintln!("{problem}");
            }
            eprintln!("{} problems", problems.len());
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<ExitCode, Vec<Problem>> {
    let one = |problem| vec![problem];
    let program = Program::open(&arguments.elf).map_err(one)?;
    let annotations = Annotations::read(&arguments.root, &OWN_SOURCES).map_err(one)?;
    let foreign = Foreign::read(&arguments.root.join(FOREIGN)).map_err(one)?;
    let mut analysis = Analysis::new(&program, &annotations, &foreign);
    let rows = table(&program, &mut analysis);
    if !analysis.problems.is_empty() {
        return Err(analysis.problems.into_iter().collect());
    }
    let plain: Vec<_> = rows.iter().map(|it| it.row.clone()).collect();
    if arguments.check {
        let stored = stored::read(&arguments.root.join(STORED)).map_err(one)?;
        return Ok(check(&stored, &plain));
    }
    if arguments.write {
        write(arguments, &plain).map_err(one)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(number) = arguments.explain {
        let row = number.checked_sub(1).and_then(|it| rows.get(it));
        let row = row.ok_or_else(|| {
            one(Problem::new(
                "--explain",
                "there is no such row",
                "the table has numbers",
            ))
        })?;
        println!(
            "{} to {}, {} instructions:",
            row.row.from, row.row.to, row.row.instructions
        );
        print!(
            "{}",
            explain::path(&program, &analysis, row.last, row.row.instructions)
        );
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.loops {
        let mut lines: Vec<_> = analysis
            .asked
            .iter()
            .filter_map(|&it| analysis.describe(it))
            .collect();
        lines.sort();
        println!("{}", lines.join("\n"));
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.json {
        print!("{}", stored::text(&plain).unwrap_or_default());
        return Ok(ExitCode::SUCCESS);
    }
    let mut measured = Measured::default();
    for folder in &arguments.measured {
        measured.read(folder).map_err(one)?;
    }
    let names = CodeNames::open(&arguments.elf);
    let shown = arguments.rows.unwrap_or(rows.len());
    for (index, row) in rows.iter().take(shown).enumerate() {
        let known = names
            .as_ref()
            .and_then(|names| measured.of(row, &program, names));
        print_row(index + 1, row, known);
        if known.is_some_and(|it| it > row.row.instructions) {
            eprintln!(
                "{}: the runs are of another EL2 program, or a bound is wrong",
                row.row.from
            );
        }
    }
    println!(
        "The longest stretch, with the rounds that it may go on with: {}",
        longest(&rows)
    );
    Ok(ExitCode::SUCCESS)
}

fn print_row(number: usize, row: &Detail, measured: Option<u64>) {
    let Detail {
        row, line, parts, ..
    } = row;
    let measured = measured.map_or_else(String::new, |it| format!(" (measured: {it})"));
    let line = line
        .as_ref()
        .map_or_else(String::new, |(file, line)| format!(", {file}:{line}"));
    println!(
        "{number:>3} {:>10}{measured}  {}{line}",
        row.instructions, row.from
    );
    println!("{:>14}  to {}", "", row.to);
    let parts: Vec<_> = parts
        .iter()
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    println!("{:>14}  in {}", "", parts.join(", "));
}

fn check(stored: &[Row], now: &[Row]) -> ExitCode {
    let changes = Changes::between(stored, now);
    for line in &changes.shorter {
        println!("shorter: {line}");
    }
    if !changes.shorter.is_empty() {
        println!("`scripts/stretches --write` stores that");
    }
    for line in &changes.longer {
        eprintln!("longer: {line}");
    }
    if changes.longer.is_empty() {
        return ExitCode::SUCCESS;
    }
    eprintln!(
        "stretches without a look for interrupts have become longer than {STORED} says; {ACCEPT}"
    );
    ExitCode::FAILURE
}

fn write(arguments: &Arguments, rows: &[Row]) -> Result<(), Problem> {
    let path = arguments.root.join(STORED);
    let failed = |error: String| {
        Problem::new(
            path.display().to_string(),
            error,
            "see that the folder can be written",
        )
    };
    let text = stored::text(rows).map_err(|error| failed(error.to_string()))?;
    std::fs::write(&path, text).map_err(|error| failed(error.to_string()))
}
