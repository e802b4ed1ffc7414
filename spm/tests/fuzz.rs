// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that a user names, damaged at random: `spm` refuses or accepts each, and never panics.
//!
//! `SPUMONE_FUZZ_STEPS=1000000 cargo test --release -p spm --test fuzz` goes on for longer. The files of a step that panics are written to
//! a folder, which the test names; `SPUMONE_FUZZ_SEED` chooses other steps.

// Tests may unwrap.
#![allow(clippy::unwrap_used, clippy::panic)]

mod damage;
mod support;

use damage::Damage;
use spm::fuzz::system;
use std::panic::catch_unwind;
use support::fuzz_steps;
use support::user_files::{borrowed, files};

/// Steps of a run in which no variable names a number.
const STEPS: u64 = 2_000;

#[test]
fn the_undamaged_system_is_accepted() {
    system(&borrowed(&files())).unwrap_or_else(|refusal| panic!("{refusal}"));
}

#[test]
fn damaged_files_are_refused_or_accepted() {
    let good = files();
    let mut accepted = 0;
    let steps = fuzz_steps(STEPS);
    for step in steps.clone() {
        let mut damage = Damage::of_step(step);
        let mut files = good.clone();
        for _ in 0..damage.up_to(2) {
            let file = damage.below(files.len());
            let is_text = files[file].0.ends_with(".toml");
            files[file].1 = damage.done_to(&files[file].1, is_text);
        }
        match catch_unwind(|| system(&borrowed(&files))) {
            Ok(result) => accepted += u64::from(result.is_ok()),
            Err(_) => {
                let folder = tempfile::tempdir().unwrap().keep();
                std::fs::create_dir(folder.join("boards")).unwrap();
                for (name, bytes) in &files {
                    std::fs::write(folder.join(name), bytes).unwrap();
                }
                panic!(
                    "step {step} panicked; its files are in {}",
                    folder.display()
                );
            }
        }
    }
    // Both happen often, or the damage is too small or too large to find anything.
    let count = steps.end - steps.start;
    assert!(
        (count / 50..count).contains(&accepted),
        "{accepted} of {count} accepted"
    );
}
