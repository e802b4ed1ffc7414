// SPDX-License-Identifier: MIT OR Apache-2.0
//! `spm run`.

use crate::build::{build, default_output};
use crate::command::{self, help};
use crate::failure::Failure;
use crate::hypervisor;
use crate::qemu;
use crate::system::SystemArgs;
use clap::Args;
use spumone_bench::qemu::{Arguments, Console, Machine, PROGRAM};
use spumone_config::units::MIB;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

/// Shown below the help.
const EXAMPLES: &str = "\
Examples:
  spm run systems/demo.toml
  spm run systems/demo.toml --timeout 60 --log demo.log
  spm run systems/demo.toml --gdb
  spm run systems/disk.toml -- -drive if=none,id=d,file=disk.img -device virtio-blk-device,drive=d";

/// Build a system and start it on QEMU, with its console in this terminal.
///
/// Ctrl-A X ends the machine, Ctrl-A C opens QEMU's monitor. QEMU gets the arguments that `qemu-args`
/// of `[run]` in the description lists; {dir} in them is the description's folder.
#[derive(Args)]
#[command(after_help = help(EXAMPLES))]
pub struct RunArgs {
    #[command(flatten)]
    pub system: SystemArgs,
    /// Wait for a debugger before the first instruction, and print how to attach one.
    #[arg(long)]
    pub gdb: bool,
    /// Stop the machine after this many seconds, with exit code 124.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub timeout: Option<u64>,
    /// Write the console to this file, too.
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// The QEMU to start.
    #[arg(long, value_name = "PROGRAM", default_value = PROGRAM)]
    pub qemu: PathBuf,
    /// More arguments for QEMU.
    #[arg(last = true, value_name = "QEMU ARGS")]
    pub qemu_args: Vec<String>,
}

/// Exit code after `--timeout`, the same as timeout(1) returns.
const EXIT_TIMEOUT: u8 = 124;
/// How often `spm` checks whether QEMU has ended.
const POLL: Duration = Duration::from_millis(20);

impl command::Command for RunArgs {
    fn run(&self) -> Result<ExitCode, Failure> {
        qemu::check_version(&self.qemu)?;
        let image = default_output(&self.system.description);
        let (system, _) = build(&self.system, &image)?;
        let Some(board) = &system.board.qemu else {
            let message = format!(
                "board \"{}\" has no [qemu] table, so QEMU cannot emulate it",
                system.board.name
            );
            return Err(Failure::environment(message)
                .help("use `spm build`, and load the image on the board"));
        };
        let folder = self.system.description.parent().unwrap_or(Path::new(""));
        let folder = if folder.as_os_str().is_empty() {
            Path::new(".")
        } else {
            folder
        };
        let console = match &self.log {
            None => Console::Terminal,
            Some(log) => Console::Logged(log),
        };
        let mut arguments = Arguments::new(&Machine {
            machine: &board.machine,
            cpu: &board.cpu,
            cores: system.description.board.cores.value,
            memory_mib: system.description.board.memory.value / MIB,
        })
        .console(console)
        .kernel(&image);
        if self.gdb {
            arguments = arguments.wait_for_debugger();
        }
        let described = system.description.qemu_args.iter();
        let arguments = arguments
            .with(described.map(|arg| arg.replace("{dir}", &folder.to_string_lossy())))
            .with(&self.qemu_args);
        if self.gdb {
            let elf = hypervisor::find(self.system.hypervisor.as_deref())?;
            eprintln!("QEMU waits for a debugger. In another terminal:");
            eprintln!(
                "  gdb-multiarch -ex 'target remote :1234' {}",
                elf.display()
            );
        }
        let mut qemu = Command::new(&self.qemu);
        qemu.args(arguments.into_vec());
        start(qemu, self)
    }
}

fn start(mut qemu: Command, args: &RunArgs) -> Result<ExitCode, Failure> {
    let cannot_start =
        |error| Failure::environment(format!("cannot start {}: {error}", args.qemu.display()));
    let Some(timeout) = args.timeout else {
        // Replaces this process: terminal, signals and exit code are QEMU's own.
        return Err(cannot_start(qemu.exec()));
    };
    let mut child = qemu.spawn().map_err(cannot_start)?;
    let end = Instant::now() + Duration::from_secs(timeout);
    loop {
        let waited = child.try_wait();
        let status = waited
            .map_err(|error| Failure::environment(format!("cannot wait for QEMU: {error}")))?;
        if let Some(status) = status {
            return Ok(exit_code(status));
        }
        if Instant::now() >= end {
            // An error means that QEMU has just ended by itself.
            let _ = child.kill();
            let _ = child.wait();
            eprintln!("\nspm: stopped the machine after {timeout} s");
            return Ok(ExitCode::from(EXIT_TIMEOUT));
        }
        std::thread::sleep(POLL);
    }
}

/// An exit status as shells return it.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status
        .code()
        .or(status.signal().map(|signal| 128 + signal))
        .unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
