// SPDX-License-Identifier: MIT OR Apache-2.0
//! `spm run`.

mod machine;

use crate::build::{Ready, default_output, is_same, taken};
use crate::command::{self, help};
use crate::console::{Console, Reader};
use crate::failure::Failure;
use crate::hypervisor;
use crate::key::SecretKey;
use crate::output::{self, note};
use crate::permission;
use crate::qemu;
use crate::system::{System, SystemArgs};
use clap::Args;
use machine::Shown;
use spumone_bench::qemu::{self as arguments, Arguments, Machine, PROGRAM};
use spumone_config::units::MIB;
use std::fs::File;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Shown below the help.
const EXAMPLES: &str = "\
Examples:
  spm run systems/demo.toml
  spm run systems/demo.toml --timeout 60 --log demo.log
  spm run systems/demo.toml --gdb
  spm run systems/disk.toml -- -drive if=none,id=d,file=disk.img -device virtio-blk-device,drive=d";

/// Build a system and start it on QEMU, with its console in this terminal.
///
/// Ctrl-] and a key are for the hypervisor: 1, 2, … choose the guest that has the keyboard, ? lists the others, x x stops the
/// machine. Ctrl-A X ends QEMU at once, Ctrl-A C opens its monitor. QEMU gets the arguments that `qemu-args`
/// of `[run]` in the description lists; {dir} in them is the description's folder.
#[derive(Args)]
#[command(after_help = help(EXAMPLES))]
pub struct RunArgs {
    #[command(flatten)]
    pub system: SystemArgs,
    /// Sign the image with this secret key, as `spm build --sign` does.
    #[arg(long, value_name = "NAME.key")]
    pub sign: Option<PathBuf>,
    /// Wait for a debugger before the first instruction, and print how to attach one.
    #[arg(long)]
    pub gdb: bool,
    /// Pass all arguments that the description has for QEMU. Without this, only those pass that run no program and write no file outside
    /// the description's folder: virtio devices, networks inside QEMU, and raw disks.
    #[arg(long)]
    pub allow_qemu_args: bool,
    /// Stop the machine after this many seconds, with exit code 124.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=u64::from(u32::MAX)))]
    pub timeout: Option<u64>,
    /// Write the console to this file too, as plain text.
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// The QEMU to start.
    #[arg(long, value_name = "PROGRAM", default_value = PROGRAM)]
    pub qemu: PathBuf,
    /// More arguments for QEMU.
    #[arg(last = true, value_name = "QEMU ARGS")]
    pub qemu_args: Vec<String>,
}

impl command::Command for RunArgs {
    fn run(&self) -> Result<ExitCode, Failure> {
        qemu::check_version(&self.qemu)?;
        let image = default_output(&self.system.description);
        let key = self.sign.as_deref().map(SecretKey::read).transpose()?;
        let ready = Ready::new(&self.system, self.sign.as_deref())?;
        let system = &ready.system;
        let Some(board) = &system.board.qemu else {
            let message = format!(
                "board \"{}\" has no [qemu] table, so QEMU cannot emulate it",
                system.board.name
            );
            return Err(Failure::environment(message)
                .help("use `spm build`, and load the image on the board"));
        };
        self.keep_inputs(&ready, &image)?;
        let folder = self.system.description.parent().unwrap_or(Path::new(""));
        let folder = if folder.as_os_str().is_empty() {
            Path::new(".")
        } else {
            folder
        };
        let mut arguments = Arguments::new(&Machine {
            machine: &board.machine,
            cpu: &board.cpu,
            cores: system.description.board.cores.value,
            memory_mib: system.description.board.memory.value / MIB,
        })
        .console(arguments::Console::Terminal)
        .kernel(&image);
        if self.gdb {
            arguments = arguments.wait_for_debugger();
        }
        let described = &system.description.qemu_args;
        if !self.allow_qemu_args {
            let of_board = permission::needed_by_board(board);
            let needed = of_board.or_else(|| permission::needed(described, folder));
            if let Some(problem) = needed {
                return Err(Failure::refused(vec![problem], &system.sources));
            }
        }
        let described = described.iter();
        let arguments = arguments
            .with(described.map(|it| permission::written_out(&it.value, folder)))
            .with(&self.qemu_args);
        if self.gdb {
            let elf = hypervisor::find(self.system.hypervisor.as_deref())?;
            note!("QEMU waits for a debugger. In another terminal:");
            note!(
                "  gdb-multiarch -ex 'target remote :1234' {}",
                elf.display()
            );
        }
        let mut qemu = Command::new(&self.qemu);
        qemu.args(arguments.into_vec());
        let system = ready.write(&image, key.as_ref())?.system;
        start(qemu, self, &system)
    }
}

impl RunArgs {
    /// Refuses to write the image or the log over a file that is used otherwise.
    fn keep_inputs(&self, ready: &Ready, image: &Path) -> Result<(), Failure> {
        let help = "give the description another name: the image is named after it";
        ready.keep_inputs(image, help)?;
        let Some(log) = &self.log else {
            return Ok(());
        };
        let help = "name another file after --log";
        ready.keep_inputs(log, help)?;
        if is_same(log, image) {
            return Err(taken(log, "is the image that is started", help));
        }
        match is_same(log, &self.qemu) {
            true => Err(taken(log, "is the QEMU that is started", help)),
            false => Ok(()),
        }
    }
}

/// Starts QEMU with its console in this terminal and in the log.
fn start(qemu: Command, args: &RunArgs, system: &System) -> Result<ExitCode, Failure> {
    let reader = match io::stdout().is_terminal() {
        true => Reader::Terminal,
        false => Reader::File,
    };
    let log = match &args.log {
        Some(path) => {
            let file = File::create(path).map_err(|error| Failure::io("write", path, &error))?;
            Some((Console::new(system, Reader::File, file), path.clone()))
        }
        None => None,
    };
    let shown = Shown {
        console: Console::new(system, reader, output::Stdout),
        log,
    };
    machine::run(qemu, shown, args.timeout)
}
