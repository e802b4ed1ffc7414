// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which QEMU, and its command line for a system.

use crate::failure::Failure;
use spumone_config::board::Qemu;
use spumone_config::units::MIB;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

/// The oldest QEMU that the project is tested with.
const OLDEST: (u32, u32) = (9, 1);
/// How to get a newer one.
const SETUP: &str = "install QEMU 9.1 or later: scripts/setup does it on Debian";

/// Checks that `program` is a QEMU that is new enough.
pub fn check_version(program: &Path) -> Result<(), Failure> {
    let output = Command::new(program)
        .arg("--version")
        .output()
        .map_err(|error| {
            Failure::environment(format!("cannot start {}: {error}", program.display())).help(SETUP)
        })?;
    let text = String::from_utf8_lossy(&output.stdout);
    match version(&text) {
        Some(version) if version >= OLDEST => Ok(()),
        Some((major, minor)) => Err(Failure::environment(format!(
            "{} is QEMU {major}.{minor}, which is too old",
            program.display()
        ))
        .help(SETUP)),
        None => Err(Failure::environment(format!(
            "{} does not say which QEMU it is",
            program.display()
        ))
        .help(SETUP)),
    }
}

/// Major and minor number in what `--version` prints.
fn version(text: &str) -> Option<(u32, u32)> {
    let number = text.split_once("version ")?.1;
    let mut parts = number.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// What a machine is started with.
pub struct Machine<'a> {
    /// How QEMU plays the board.
    pub board: &'a Qemu,
    /// Number of cores.
    pub cores: u64,
    /// Memory in bytes.
    pub memory: u64,
    /// The file to boot.
    pub image: &'a Path,
    /// Where the console goes too.
    pub log: Option<&'a Path>,
    /// Whether to wait for a debugger.
    pub gdb: bool,
    /// More arguments: the description's, then the command line's.
    pub more: Vec<String>,
}

/// QEMU's arguments for `machine`.
pub fn arguments(machine: &Machine<'_>) -> Vec<OsString> {
    let mut args: Vec<OsString> = Vec::new();
    let mut push = |list: &[&str]| args.extend(list.iter().map(OsString::from));
    push(&["-M", &machine.board.machine, "-cpu", &machine.board.cpu]);
    push(&["-smp", &machine.cores.to_string()]);
    push(&["-m", &format!("{}M", machine.memory / MIB)]);
    push(&["-nographic"]);
    if !machine
        .more
        .iter()
        .any(|arg| arg.starts_with("-net") || arg.starts_with("-nic"))
    {
        // Else QEMU adds a PCI network card, and looks for its ROM.
        push(&["-nic", "none"]);
    }
    if machine.gdb {
        push(&["-S", "-s"]);
    }
    args.push("-kernel".into());
    args.push(machine.image.into());
    match machine.log {
        None => args.extend(["-serial", "mon:stdio"].map(OsString::from)),
        Some(log) => {
            args.push("-chardev".into());
            let mut chardev = OsString::from("stdio,id=console,mux=on,signal=off,logfile=");
            // A comma ends a value unless it is doubled.
            chardev.push(log.to_string_lossy().replace(',', ",,"));
            args.push(chardev);
            args.extend(["-serial", "chardev:console", "-mon", "console"].map(OsString::from));
        }
    }
    args.extend(machine.more.iter().map(OsString::from));
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read() {
        assert_eq!(
            version("QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds)"),
            Some((10, 0))
        );
        assert_eq!(version("QEMU emulator version 7.2.19"), Some((7, 2)));
        assert_eq!(version("bash: version unknown"), None);
    }

    fn arguments_of(log: Option<&Path>, more: &[&str]) -> String {
        let machine = Machine {
            board: &Qemu {
                machine: "virt".into(),
                cpu: "cortex-a76".into(),
            },
            cores: 4,
            memory: 2048 * MIB,
            image: Path::new("a.img"),
            log,
            gdb: false,
            more: more.iter().map(|&arg| arg.to_owned()).collect(),
        };
        let args: Vec<_> = arguments(&machine)
            .iter()
            .map(|arg| arg.to_string_lossy().into_owned())
            .collect();
        args.join(" ")
    }

    #[test]
    fn the_command_line_describes_the_machine() {
        assert_eq!(
            arguments_of(None, &[]),
            "-M virt -cpu cortex-a76 -smp 4 -m 2048M -nographic -nic none -kernel a.img \
             -serial mon:stdio"
        );
    }

    #[test]
    fn a_log_does_not_take_the_console_away() {
        let args = arguments_of(Some(Path::new("a,b.log")), &[]);
        assert!(args.ends_with(
            "-chardev stdio,id=console,mux=on,signal=off,logfile=a,,b.log \
             -serial chardev:console -mon console"
        ));
    }

    #[test]
    fn a_network_asked_for_is_not_switched_off() {
        let args = arguments_of(None, &["-netdev", "user,id=n"]);
        assert!(!args.contains("-nic none") && args.ends_with("-netdev user,id=n"));
    }
}
