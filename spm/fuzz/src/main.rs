// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fuzzes the readers of the files that a user of `spm` names, guided by coverage (libFuzzer).
//!
//! One program for all readers; variables of the environment say what it does, since libFuzzer has the arguments. `scripts/fuzz` sets
//! them.

#![no_main]
// Only a fuzzer: what fails here ends it, and is seen.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../tests/support/btf.rs"]
#[allow(dead_code)]
mod btf;
#[path = "../../tests/damage/mod.rs"]
mod damage;
#[path = "../../tests/support/images.rs"]
#[allow(dead_code)]
mod images;
mod limits;
mod readers;
mod seeds;
#[path = "../../tests/support/user_files.rs"]
mod user_files;

use damage::Damage;
use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};
use limits::Limits;
use readers::{READERS, Reader};
use std::sync::OnceLock;

/// The reader that is fuzzed; without it, the names of all are printed.
const TARGET: &str = "FUZZ_TARGET";
/// The folder in which seeds and dictionary are written; nothing is fuzzed then.
const SEEDS: &str = "FUZZ_SEEDS";
/// How long to go on, in minutes of CPU time.
const MINUTES: &str = "FUZZ_MINUTES";

#[global_allocator]
static MEMORY: limits::Counted = limits::Counted;

struct Run {
    reader: &'static Reader,
    limits: Limits,
}

fn run() -> &'static Run {
    static RUN: OnceLock<Run> = OnceLock::new();
    RUN.get_or_init(|| {
        let name = std::env::var(TARGET).unwrap_or_default();
        let reader = READERS.iter().find(|it| it.name == name);
        let reader = reader.unwrap_or_else(|| {
            let names: Vec<_> = READERS.iter().map(|it| it.name).collect();
            panic!("{TARGET} is one of {}", names.join(", "))
        });
        let minutes = std::env::var(MINUTES).ok();
        let minutes = minutes.map(|it| it.parse().expect("FUZZ_MINUTES is a number"));
        Run {
            reader,
            limits: Limits::new(minutes),
        }
    })
}

fn start() {
    if std::env::var_os(TARGET).is_none() {
        READERS.iter().for_each(|it| println!("{}", it.name));
        std::process::exit(0);
    }
    // The base of a reader must not contain what is made once.
    readers::make_files();
    if let Some(folder) = std::env::var_os(SEEDS) {
        let Run { reader, limits } = run();
        seeds::write(reader, folder.as_ref());
        let texts = (reader.good)().into_iter().filter(|_| reader.is_text);
        for good in texts {
            for text in seeds::repeated(&String::from_utf8(good).unwrap()) {
                limits.within(reader.name, text.len(), || (reader.read)(text.as_bytes()));
            }
        }
        std::process::exit(0);
    }
    run();
}

fuzz_target!(init: start(), |file: &[u8]| {
    let Run { reader, limits } = run();
    limits.within(reader.name, file.len(), || (reader.read)(file));
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    run().limits.end_of_time();
    let mut damage = Damage::of_step(seed.into());
    if !run().reader.is_text || damage.below(2) == 0 {
        return fuzzer_mutate(data, size, max_size);
    }
    // Lines and values of a text: what changes single bytes seldom makes a text that is still TOML.
    let damaged = damage.done_to(&data[..size], true);
    let size = damaged.len().min(max_size);
    data[..size].copy_from_slice(&damaged[..size]);
    size
});
