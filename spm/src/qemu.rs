// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a QEMU is new enough.

use crate::failure::Failure;
use std::path::Path;
use std::process::Command;

/// The oldest QEMU that the project is tested with.
const OLDEST: (u32, u32) = (9, 1);
/// How to get it.
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
            "{} does not print QEMU's version",
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
}
