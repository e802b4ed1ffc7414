// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results of tests: a line for each, and a last one with the sums.

use crate::machine::bootargs;
use crate::machine::cpus;
use crate::machine::uart::say;
use core::cell::UnsafeCell;
use core::fmt;
use core::sync::atomic::{AtomicUsize, Ordering};
use heapless::String;

/// Why a test failed.
pub struct Failure(String<112>);

impl Failure {
    /// From a message, which is truncated if it is too long.
    pub fn new(message: fmt::Arguments<'_>) -> Self {
        let mut text = String::new();
        // An error means that it is truncated.
        let _ = fmt::Write::write_fmt(&mut text, message);
        Self(text)
    }
}

/// What a test returns.
pub type Verdict = Result<(), Failure>;

/// Ends a test with a failure unless the condition holds.
macro_rules! check {
    ($condition:expr, $($message:tt)*) => {
        if !$condition {
            return Err($crate::report::Failure::new(format_args!($($message)*)));
        }
    };
}
pub(crate) use check;

/// Ends a test with a failure unless both are equal.
macro_rules! check_eq {
    ($found:expr, $wanted:expr, $($message:tt)*) => {{
        let (found, wanted) = ($found, $wanted);
        if found != wanted {
            return Err($crate::report::Failure::new(format_args!(
                "{}: {:#x?}, not {:#x?}",
                format_args!($($message)*),
                found,
                wanted
            )));
        }
    }};
}
pub(crate) use check_eq;

static PASSED: AtomicUsize = AtomicUsize::new(0);
static FAILED: AtomicUsize = AtomicUsize::new(0);

/// Whether a test is to run: without `only=` on the command line all are, else those whose names contain its value.
fn is_wanted(name: &str) -> bool {
    bootargs::text("only").is_none_or(|part| name.contains(part))
}

/// Runs a test.
pub fn test(name: &str, code: fn() -> Verdict) {
    if is_wanted(name) {
        record(name, code());
    }
}

/// Reports the result of a test.
pub fn record(name: &str, verdict: Verdict) {
    match verdict {
        Ok(()) => {
            PASSED.fetch_add(1, Ordering::Relaxed);
            say!("PASS {name}");
        }
        Err(Failure(why)) => {
            FAILED.fetch_add(1, Ordering::Relaxed);
            say!("FAIL {name}: {why}");
        }
    }
}

/// Prints the sums.
pub fn sums() {
    say!(
        "probe-result passed={} failed={}",
        PASSED.load(Ordering::Relaxed),
        FAILED.load(Ordering::Relaxed)
    );
}

/// The failure of a test on another CPU.
struct Elsewhere(UnsafeCell<Option<Failure>>);

// SAFETY: only one CPU at a time runs a test of `test_everywhere`, and the CPU that has started it waits.
unsafe impl Sync for Elsewhere {}

static ELSEWHERE: Elsewhere = Elsewhere(UnsafeCell::new(None));
static TEST: AtomicUsize = AtomicUsize::new(0);

fn run_test() {
    // SAFETY: only `test_everywhere` writes it, from a function of this type.
    let code: fn() -> Verdict = unsafe { core::mem::transmute(TEST.load(Ordering::Acquire)) };
    // SAFETY: only this CPU runs a test now.
    unsafe { *ELSEWHERE.0.get() = code().err() };
}

/// Runs a test on one CPU after another. It passes if it passes on all of them.
pub fn test_everywhere(name: &str, cpus: usize, code: fn() -> Verdict) {
    if !is_wanted(name) {
        return;
    }
    for cpu in 0..cpus {
        TEST.store(code as usize, Ordering::Release);
        cpus::run(cpu, run_test);
        // SAFETY: the test has ended.
        if let Some(Failure(why)) = unsafe { (*ELSEWHERE.0.get()).take() } {
            let why = Failure::new(format_args!("on CPU {cpu}: {why}"));
            record(name, Err(why));
            return;
        }
    }
    record(name, Ok(()));
}
