// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paths of built files.

use std::path::{Path, PathBuf};

/// The target of the hypervisor and of the probe guest.
const BARE_TARGET: &str = "aarch64-unknown-none-softfloat";

/// The root of the source tree.
pub fn root() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().unwrap_or(tests).to_owned()
}

/// Cargo's target folder: the test program lies in `TARGET/PROFILE/deps`.
fn target() -> PathBuf {
    std::env::current_exe()
        .ok()
        .and_then(|program| program.ancestors().nth(3).map(Path::to_owned))
        .expect("a test program has a path")
}

fn built(path: PathBuf) -> PathBuf {
    assert!(
        path.is_file(),
        "{} is not there: run `scripts/test boot`, which builds it",
        path.display()
    );
    path
}

/// The host tool.
pub fn spm() -> PathBuf {
    built(target().join("host/spm"))
}

/// The hypervisor's ELF file.
pub fn hypervisor() -> PathBuf {
    built(target().join(BARE_TARGET).join("release/spumone"))
}

/// The guest program of these tests, an ELF file.
pub fn probe() -> PathBuf {
    built(target().join(BARE_TARGET).join("release/probe"))
}

/// The guest program that the probe attacks, an ELF file.
pub fn victim() -> PathBuf {
    built(target().join(BARE_TARGET).join("release/victim"))
}

/// What starts QEMU on the exact clock.
pub fn clock() -> PathBuf {
    built(root().join("build/testbed/spumone-clock.so"));
    built(root().join("testbed/run"))
}

/// A file in `build/guests`.
pub fn guest(name: &str) -> PathBuf {
    built(root().join("build/guests").join(name))
}

/// An empty folder for a boot. It is kept after the test, without the image.
pub fn folder(boot: &str) -> PathBuf {
    let folder = target().join("boots").join(boot);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder)
        .unwrap_or_else(|error| panic!("cannot make {}: {error}", folder.display()));
    folder
}
