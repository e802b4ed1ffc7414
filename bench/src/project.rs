// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paths of the project's files, their hashes and versions; which files are missing, and what builds them.

use crate::failure::Failure;
use crate::hash;
use crate::role::{Flavour, Role};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The script that runs QEMU on the clock; the project's folder is recognised by it.
const RUN_SCRIPT: &str = "testbed/run";
const CLOCK: &str = "build/testbed/spumone-clock.so";
/// Environment variable with the path of another clock, as for `testbed/run`.
const CLOCK_VARIABLE: &str = "SPUMONE_CLOCK";
const VERSIONS: &str = "build/guests/linux/versions.txt";
/// Builds the PREEMPT_RT kernel and its file systems.
const RT_BENCH: &str = "guests/linux/build.sh --rt --bench";
/// Builds Xen and what it needs.
const XEN: &str = "guests/xen/build.sh";
const KERNEL_PACKAGE: &str = "linux-image-";
const KERNEL_FLAVOUR: &str = "-cloud-";

/// Paths of the project's files.
#[derive(Clone, Debug)]
pub struct Project {
    /// The folder with `testbed/`, `build/` and `docs/`.
    pub root: PathBuf,
    /// The hypervisor's ELF file.
    pub hypervisor: PathBuf,
    /// QEMU.
    pub qemu: PathBuf,
}

/// Versions and hashes that a figure depends on, for its page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Inputs {
    /// The version that QEMU prints.
    pub qemu: String,
    /// Package and version of the Linux kernel.
    pub linux: String,
    /// `git describe`, or `unknown`.
    pub spumone: String,
    /// SHA-256 of files by their names.
    pub files: BTreeMap<String, String>,
}

impl Project {
    /// Finds the folder: `here` or one above it.
    ///
    /// # Errors
    ///
    /// There is no such folder.
    pub fn find(here: &Path) -> Result<PathBuf, Failure> {
        here.ancestors()
            .find(|folder| folder.join(RUN_SCRIPT).is_file())
            .map(Path::to_owned)
            .ok_or_else(|| {
                Failure::new(format!("no {RUN_SCRIPT} in this folder or one above it"))
                    .help("run `spm bench` in the source tree")
            })
    }

    /// The script that runs QEMU on the clock.
    pub fn run_script(&self) -> PathBuf {
        self.root.join(RUN_SCRIPT)
    }

    /// The clock.
    pub fn clock(&self) -> PathBuf {
        std::env::var_os(CLOCK_VARIABLE).map_or_else(|| self.root.join(CLOCK), PathBuf::from)
    }

    /// A file that is the same for all runs.
    pub fn file(&self, role: Role) -> PathBuf {
        let folder = match role {
            Role::Kernel(_)
            | Role::KernelNames(_)
            | Role::Initrd(_)
            | Role::BenchInitrd(_)
            | Role::ShareInitrd => "build/guests/linux",
            Role::KvmHost(_) | Role::KvmPair => "build/guests/kvm",
            Role::Rt | Role::RtFlat => "build/guests/rt",
            Role::Xen | Role::XenControl | Role::XenSeed => "build/guests/xen",
            Role::Probe => "target/aarch64-unknown-none-softfloat/release",
            // Made for each run.
            Role::System | Role::Disk => return self.root.join("build"),
        };
        self.root.join(folder).join(role.to_string())
    }

    /// The size in bytes of a file that is the same for all runs.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn size(&self, role: Role) -> Result<u64, Failure> {
        let path = self.file(role);
        let data = std::fs::metadata(&path);
        data.map(|it| it.len())
            .map_err(|error| Failure::io("read", &path, &error))
    }

    /// Checks that all files exist.
    ///
    /// # Errors
    ///
    /// The missing files, and the command that builds them.
    pub fn check(&self, roles: &[Role], spumone: bool) -> Result<(), Failure> {
        let mut wanted = vec![(self.clock(), "the exact clock", "make -C testbed")];
        if spumone {
            wanted.push((self.hypervisor.clone(), "the hypervisor", "make build"));
        }
        for &role in roles {
            let (what, target) = match role {
                Role::Kernel(Flavour::Rt) => ("the PREEMPT_RT kernel", RT_BENCH),
                Role::KernelNames(Flavour::Rt) => ("the list of its functions", RT_BENCH),
                Role::Initrd(Flavour::Rt) | Role::BenchInitrd(Flavour::Rt) => {
                    ("its initial file system", RT_BENCH)
                }
                Role::Kernel(Flavour::Cloud) => ("the Linux kernel", "make guests"),
                Role::KernelNames(Flavour::Cloud) => ("the list of its functions", "make guests"),
                Role::Initrd(Flavour::Cloud) => ("Linux's initial file system", "make guests"),
                Role::BenchInitrd(Flavour::Cloud) => (
                    "the file system with the yardsticks",
                    "guests/linux/build.sh --bench",
                ),
                Role::ShareInitrd => ("the file system for sharing", "make guests"),
                Role::KvmHost(_) | Role::KvmPair => ("the KVM host", "guests/kvm/build.sh"),
                Role::Rt | Role::RtFlat => ("the real-time guest", "make guests"),
                Role::Xen => ("Xen", XEN),
                Role::XenControl => ("Xen's control domain", XEN),
                Role::XenSeed => ("the seed for Linux under Xen", XEN),
                Role::Probe => ("the probe", "scripts/build spumone-probe"),
                Role::System | Role::Disk => continue,
            };
            wanted.push((self.file(role), what, target));
        }
        let missing: Vec<_> = wanted.iter().filter(|(path, ..)| !path.is_file()).collect();
        let Some((_, _, target)) = missing.first() else {
            return Ok(());
        };
        let list: Vec<_> = missing
            .iter()
            .map(|(path, what, _)| format!("{what} is missing: {}", path.display()))
            .collect();
        let mut targets: Vec<_> = missing.iter().map(|(.., it)| format!("`{it}`")).collect();
        targets.dedup();
        let help = match targets.len() {
            1 => format!("build it with `{target}`"),
            _ => format!("build them with {}", targets.join(", ")),
        };
        Err(Failure::new(list.join("\n")).help(help))
    }

    /// Versions and hashes.
    ///
    /// # Errors
    ///
    /// A file cannot be read, or QEMU not started.
    pub fn inputs(&self, roles: &[Role], spumone: bool) -> Result<Inputs, Failure> {
        let mut files = BTreeMap::new();
        files.insert("spumone-clock.so".into(), hash::file(&self.clock())?);
        files.insert("testbed/run".into(), hash::file(&self.run_script())?);
        if spumone {
            files.insert("spumone (hypervisor)".into(), hash::file(&self.hypervisor)?);
        }
        for &role in roles {
            if !matches!(role, Role::System | Role::Disk) {
                files.insert(role.to_string(), hash::file(&self.file(role))?);
            }
        }
        Ok(Inputs {
            qemu: self.qemu_version()?,
            linux: self.linux_version(),
            spumone: self.spumone_version(),
            files,
        })
    }

    fn qemu_version(&self) -> Result<String, Failure> {
        let output = Command::new(&self.qemu).arg("--version").output();
        let output = output.map_err(|error| {
            Failure::new(format!("cannot start {}: {error}", self.qemu.display()))
                .help("install QEMU 9.1 or later: scripts/setup does it on Debian")
        })?;
        let text = String::from_utf8_lossy(&output.stdout);
        let line = text.lines().next().unwrap_or_default();
        Ok(line.trim_start_matches("QEMU emulator version ").to_owned())
    }

    fn linux_version(&self) -> String {
        let text = std::fs::read_to_string(self.root.join(VERSIONS)).unwrap_or_default();
        kernel_package(&text).unwrap_or("unknown").to_owned()
    }

    /// The commit; `-dirty` if more than pages of results has changed since then.
    fn spumone_version(&self) -> String {
        let Some(commit) = self.git(&["describe", "--always", "--tags"]) else {
            return "unknown".into();
        };
        let others = ["status", "--porcelain", "--", ".", ":(exclude)docs/results"];
        match self.git(&others) {
            Some(changed) if changed.is_empty() => commit,
            _ => format!("{commit}-dirty"),
        }
    }

    fn git(&self, arguments: &[&str]) -> Option<String> {
        let mut git = Command::new("git");
        let output = git.arg("-C").arg(&self.root).args(arguments).output();
        let output = output.ok().filter(|it| it.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }
}

/// `package version` of the kernel in the list that the guest's build writes.
fn kernel_package(versions: &str) -> Option<&str> {
    versions
        .lines()
        .find(|line| line.starts_with(KERNEL_PACKAGE) && line.contains(KERNEL_FLAVOUR))
        .and_then(|line| line.rsplit_once(' '))
        .map(|(package, _hash)| package)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn project(root: &Path) -> Project {
        Project {
            root: root.to_owned(),
            hypervisor: root.join("spumone"),
            qemu: crate::qemu::PROGRAM.into(),
        }
    }

    #[test]
    fn what_is_missing_is_named_with_its_cure() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        std::fs::create_dir_all(path.join("build/testbed")).unwrap();
        std::fs::write(path.join(CLOCK), "clock").unwrap();
        let failure = project(path)
            .check(&[Role::BenchInitrd(Flavour::Cloud)], false)
            .unwrap_err();
        assert!(failure.message.contains("initrd-bench.cpio"));
        assert!(
            failure
                .help
                .unwrap()
                .contains("guests/linux/build.sh --bench")
        );
        let failure = project(path).check(&[Role::Rt], true).unwrap_err();
        assert!(failure.message.contains("hypervisor") && failure.message.contains("freertos.elf"));
        assert_eq!(
            failure.help.as_deref(),
            Some("build them with `make build`, `make guests`")
        );
        assert!(project(path).check(&[], false).is_ok());
    }

    #[test]
    fn the_kernel_package_is_the_cloud_one() {
        let text = "# package version sha256\nlinux-image-6.12-rt-arm64 6.12.95-1 aa\n\
                    linux-image-6.12-cloud-arm64 6.12.95-1~bpo12+1 bb\n";
        assert_eq!(
            kernel_package(text),
            Some("linux-image-6.12-cloud-arm64 6.12.95-1~bpo12+1")
        );
    }

    #[test]
    fn the_source_tree_is_found_from_below() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("a/b");
        std::fs::create_dir_all(&below).unwrap();
        assert!(Project::find(&below).is_err());
        std::fs::create_dir(folder.path().join("testbed")).unwrap();
        std::fs::write(folder.path().join(RUN_SCRIPT), "").unwrap();
        assert_eq!(Project::find(&below).unwrap(), folder.path());
    }
}
