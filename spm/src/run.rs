// SPDX-License-Identifier: MIT OR Apache-2.0
//! `spm run`.

use crate::build::{Ready, default_output, is_same, taken};
use crate::command::{self, help};
use crate::console::{Console, IDLE, Pipe, Reader};
use crate::failure::Failure;
use crate::hypervisor;
use crate::key::SecretKey;
use crate::permission;
use crate::qemu;
use crate::system::{System, SystemArgs};
use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use spumone_bench::qemu::{self as arguments, Arguments, Machine, PROGRAM};
use spumone_config::units::MIB;
use spumone_core::console::format::REFUSAL;
use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
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

/// Exit code after `--timeout`, the same as timeout(1) returns.
const EXIT_TIMEOUT: u8 = 124;
/// How long QEMU may take to end when it is told to.
const GRACE: Duration = Duration::from_secs(2);
/// Signals that end this process are passed on to QEMU as `SIGTERM`, so that it leaves the terminal as it was.
const ENDING: [i32; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];

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
            eprintln!("QEMU waits for a debugger. In another terminal:");
            eprintln!(
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

/// Starts QEMU and shows its console until it ends. It reads the keyboard itself.
fn start(mut qemu: Command, args: &RunArgs, system: &System) -> Result<ExitCode, Failure> {
    let reader = match io::stdout().is_terminal() {
        true => Reader::Terminal,
        false => Reader::File,
    };
    let mut shown = Console::new(system, reader, io::stdout());
    let mut log = match &args.log {
        Some(path) => {
            let file = File::create(path).map_err(|error| Failure::io("write", path, &error))?;
            Some((Console::new(system, Reader::File, file), path))
        }
        None => None,
    };
    let signal = Arc::new(AtomicUsize::new(0));
    for number in ENDING {
        signal_hook::flag::register_usize(number, signal.clone(), number as usize)
            .map_err(|error| Failure::environment(format!("cannot handle signals: {error}")))?;
    }
    let spawned = qemu.stdout(Stdio::piped()).spawn();
    let mut child = spawned.map_err(|error| {
        Failure::environment(format!("cannot start {}: {error}", args.qemu.display()))
    })?;
    let pipe = child.stdout.take().map(Pipe::new);
    let end = args
        .timeout
        .map(|seconds| (seconds, Instant::now() + Duration::from_secs(seconds)));
    let mut stopping_since = None;
    let mut failure = None;
    let mut beginning = Beginning::default();
    while let Some(bytes) = pipe.as_ref().and_then(|pipe| pipe.read(IDLE)) {
        beginning.feed(&bytes);
        let shows = shown.feed(&bytes);
        let shows = shows.map_err(|error| Failure::io("show", Path::new("the console"), &error));
        let logs = match &mut log {
            Some((console, path)) => console
                .feed(&bytes)
                .map_err(|error| Failure::io("write", path, &error)),
            None => Ok(()),
        };
        let now = Instant::now();
        let is_late = end.is_some_and(|(_, end)| now >= end);
        let failed = shows.and(logs).err();
        let has_failed = failed.is_some();
        failure = failure.or(failed);
        match stopping_since {
            None if is_late || has_failed || signal.load(Ordering::Relaxed) != 0 => {
                stopping_since = Some(now);
                terminate(&child);
            }
            Some(since) if now - since >= GRACE => {
                // An error here means that it has just ended by itself. A process that it has started may still hold
                // the other end of the pipe, so that no end of it comes.
                let _ = child.kill();
                break;
            }
            _ => {}
        }
    }
    let status = child
        .wait()
        .map_err(|error| Failure::environment(format!("cannot wait for QEMU: {error}")))?;
    if let Some(failure) = failure {
        return Err(failure);
    }
    let ended = shown.end();
    ended.map_err(|error| Failure::io("show", Path::new("the console"), &error))?;
    if let Some((console, path)) = &mut log {
        console
            .end()
            .map_err(|error| Failure::io("write", path, &error))?;
    }
    if beginning.is_refusal() {
        let message = "the hypervisor has refused the image, and turned the machine off";
        return Err(Failure::environment(message).help("the last line above says which part of it"));
    }
    let number = signal.load(Ordering::Relaxed);
    Ok(match end {
        _ if stopping_since.is_none() => exit_code(status),
        _ if number != 0 => ExitCode::from(128 + number as u8),
        Some((seconds, _)) => {
            eprintln!("\nspm: stopped the machine after {seconds} s");
            ExitCode::from(EXIT_TIMEOUT)
        }
        None => exit_code(status),
    })
}

/// What the machine prints first: before any guest runs, so no guest can forge it.
#[derive(Default)]
struct Beginning(Vec<u8>);

impl Beginning {
    /// Longer than the hypervisor's line about an image that it refuses.
    const SIZE: usize = 256;

    fn feed(&mut self, bytes: &[u8]) {
        let room = Self::SIZE - self.0.len();
        self.0.extend(bytes.iter().take(room));
    }

    /// Whether the hypervisor has refused the image.
    fn is_refusal(&self) -> bool {
        let text = String::from_utf8_lossy(&self.0);
        text.trim_start().starts_with(REFUSAL)
    }
}

fn terminate(child: &Child) {
    // An error here means that it has just ended by itself.
    let _ = kill_process(Pid::from_child(child), Signal::TERM);
}

/// An exit status as shells return it.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status
        .code()
        .or(status.signal().map(|signal| 128 + signal))
        .unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_what_the_machine_prints_first() {
        let is_refusal = |chunks: &[&str]| {
            let mut beginning = Beginning::default();
            for chunk in chunks {
                beginning.feed(chunk.as_bytes());
            }
            beginning.is_refusal()
        };
        let line = "spumone does not start: the description differs from its hash\r\n";
        assert!(is_refusal(&["\r\n", line]));
        assert!(is_refusal(&[
            "\r\nspumone does",
            " not start: ",
            &"x".repeat(1000)
        ]));
        assert!(!is_refusal(&["Spumone 0.1.0 on qemu-virt\r\n", line]));
        assert!(!is_refusal(&[]));
    }
}
