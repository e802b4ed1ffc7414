// SPDX-License-Identifier: MIT OR Apache-2.0
//! All interleavings of cores that compete to start a vCPU or to stop a guest.
//!
//! Loom omits some interleavings where a thread reads a word before it changes it, so each test also lists the outcomes
//! that must occur.

use super::*;
use crate::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use spumone_config::types::PcpuId;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::vec::Vec;

/// Runs `test` in all interleavings and returns the outcomes.
pub(crate) fn explore<T: Ord + Send + 'static>(
    test: impl Fn() -> T + Sync + Send + 'static,
) -> Vec<T> {
    let outcomes = Arc::new(Mutex::new(BTreeSet::new()));
    let collected = Arc::clone(&outcomes);
    loom::model(move || {
        collected.lock().unwrap().insert(test());
    });
    let outcomes = core::mem::take(&mut *outcomes.lock().unwrap());
    outcomes.into_iter().collect()
}

/// A core acknowledges a stop, and finishes it if it is the last core. There is no state to clear.
fn core_done(life: &Lifecycle, core: PcpuId) -> Option<AfterStop> {
    let restarts = matches!(life.now().0, Phase::Stopping(StopReason::Reset));
    life.acknowledge(core)
        .then(|| life.finish_stop(restarts))
        .flatten()
}

/// A guest whose vCPUs are all on.
fn running_guest(count: u8) -> Arc<GuestPower> {
    let power = GuestPower::new(count);
    for index in 0..count {
        power.request_start(index).unwrap();
        power.started(index);
    }
    Arc::new(power)
}

/// The life of a guest on these cores, in its first generation.
fn running_life(cores: u32) -> Arc<Lifecycle> {
    let life = Lifecycle::new(cores);
    life.run().unwrap();
    Arc::new(life)
}

#[test]
fn loom_one_caller_of_cpu_on_wins() {
    let winners = explore(|| {
        let power = Arc::new(GuestPower::new(2));
        let call = || {
            let power = Arc::clone(&power);
            move || power.request_start(1)
        };
        let others = [thread::spawn(call()), thread::spawn(call())];
        let mut results = std::vec![call()()];
        results.extend(others.map(|other| other.join().unwrap()));
        let refused = results.iter().filter(|&&r| r == Err(Power::OnPending));
        assert_eq!(refused.count(), 2);
        results.iter().position(Result::is_ok)
    });
    assert_eq!(winners, [Some(0), Some(1), Some(2)]);
}

#[test]
fn loom_a_start_that_meets_a_stop_is_refused_or_comes_after_it() {
    let started = explore(|| {
        let power = running_guest(2);
        // Stands for the last write of the vCPU that turns off.
        let work = Arc::new(AtomicU64::new(0));
        let starting = {
            let (power, work) = (Arc::clone(&power), Arc::clone(&work));
            thread::spawn(move || {
                let result = power.request_start(1);
                match result {
                    Ok(()) => assert_eq!(work.load(Ordering::Relaxed), 1),
                    Err(state) => assert_eq!(state, Power::On),
                }
                result.is_ok()
            })
        };
        work.store(1, Ordering::Relaxed);
        assert!(!power.stopped(1), "vCPU 0 is on");
        starting.join().unwrap()
    });
    assert_eq!(started, [false, true]);
}

#[test]
fn loom_a_vcpu_that_sees_another_one_off_sees_its_writes() {
    let states = explore(|| {
        let power = running_guest(2);
        let work = Arc::new(AtomicU64::new(0));
        let asking = {
            let (power, work) = (Arc::clone(&power), Arc::clone(&work));
            thread::spawn(move || {
                let off = power.get(1) == Some(Power::Off);
                assert!(!off || work.load(Ordering::Relaxed) == 1);
                off
            })
        };
        work.store(1, Ordering::Relaxed);
        power.stopped(1);
        asking.join().unwrap()
    });
    assert_eq!(states, [false, true]);
}

#[test]
fn loom_one_vcpu_is_the_last_to_stop() {
    let last = explore(|| {
        let power = running_guest(2);
        let other = {
            let power = Arc::clone(&power);
            thread::spawn(move || power.stopped(1))
        };
        let this_was_last = power.stopped(0);
        assert_ne!(this_was_last, other.join().unwrap());
        this_was_last
    });
    assert_eq!(last, [false, true]);
}

#[test]
fn loom_one_core_begins_a_stop() {
    let winners = explore(|| {
        let life = running_life(0b11);
        let other = {
            let life = Arc::clone(&life);
            thread::spawn(move || life.begin_stop(life.now().1, StopReason::Fault).is_some())
        };
        let this_won = life.begin_stop(life.now().1, StopReason::Reset).is_some();
        assert_ne!(this_won, other.join().unwrap());
        let reason = if this_won {
            StopReason::Reset
        } else {
            StopReason::Fault
        };
        assert_eq!(life.now(), (Phase::Stopping(reason), Generation(1)));
        this_won
    });
    assert_eq!(winners, [false, true]);
}

#[test]
fn loom_one_core_is_the_last_and_sees_the_writes_of_all_others() {
    let last = explore(|| {
        let life = running_life(0b11);
        life.begin_stop(life.now().1, StopReason::Reset).unwrap();
        // Stands for the guest's memory, which each core uses before it acknowledges.
        let memory = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let core = |number: u8| {
            let (life, memory) = (Arc::clone(&life), Arc::clone(&memory));
            move || {
                memory[usize::from(number)].store(1, Ordering::Relaxed);
                let last = life.acknowledge(PcpuId(number));
                if last {
                    let used = memory.iter().map(|word| word.load(Ordering::Relaxed));
                    assert_eq!(used.sum::<u64>(), 2);
                    assert_eq!(life.finish_stop(true), Some(AfterStop::Restore));
                }
                last
            }
        };
        let other = thread::spawn(core(1));
        let this_is_last = core(0)();
        assert_ne!(this_is_last, other.join().unwrap());
        this_is_last
    });
    assert_eq!(last, [false, true]);
}

#[test]
fn loom_a_guest_seen_running_is_seen_restored() {
    let seen = explore(|| {
        let life = Arc::new(Lifecycle::new(0b1));
        let memory = Arc::new(AtomicU64::new(0));
        let looking = {
            let (life, memory) = (Arc::clone(&life), Arc::clone(&memory));
            thread::spawn(move || {
                let running = life.is_running(Generation(1));
                assert!(!running || memory.load(Ordering::Relaxed) == 1);
                running
            })
        };
        memory.store(1, Ordering::Relaxed);
        life.run().unwrap();
        looking.join().unwrap()
    });
    assert_eq!(seen, [false, true]);
}

#[test]
fn loom_a_guest_is_not_restarted_before_it_is_cleared() {
    let restarted = explore(|| {
        let life = running_life(0b1);
        life.begin_stop(life.now().1, StopReason::Fault).unwrap();
        // Stands for the guest's old state.
        let old_state = Arc::new(AtomicU64::new(1));
        let restarting = {
            let (life, old_state) = (Arc::clone(&life), Arc::clone(&old_state));
            thread::spawn(move || {
                let won = life.begin_restore();
                assert!(!won || old_state.load(Ordering::Relaxed) == 0);
                won
            })
        };
        assert!(life.acknowledge(PcpuId(0)));
        old_state.store(0, Ordering::Relaxed);
        life.finish_stop(false).unwrap();
        restarting.join().unwrap()
    });
    assert_eq!(restarted, [false, true]);
}

#[test]
fn loom_a_guest_restarted_on_another_core_can_be_stopped_again() {
    let last = explore(|| {
        let life = running_life(0b11);
        life.begin_stop(life.now().1, StopReason::Reset).unwrap();
        let restart = |core: u8| {
            let life = Arc::clone(&life);
            move || {
                let last = core_done(&life, PcpuId(core)).is_some();
                if last {
                    assert_eq!(life.run(), Some(Generation(2)));
                }
                // The end of the new life, which both cores must acknowledge again.
                let ended = life.begin_stop(life.now().1, StopReason::Off).is_some();
                let done =
                    life.is_stopping(Generation(2)) && core_done(&life, PcpuId(core)).is_some();
                (last, ended, done)
            }
        };
        let other = thread::spawn(restart(1));
        let this = restart(0)();
        let other = other.join().unwrap();
        assert_ne!(this.0, other.0, "exactly one core is the last");
        assert!(
            this.1 || other.1,
            "at least the last core can begin the second stop"
        );
        assert!(
            !(this.1 && other.1),
            "at most one core begins the second stop"
        );
        assert!(!(this.2 && other.2), "at most one core is the last again");
        this.0
    });
    assert_eq!(last, [false, true]);
}

#[test]
fn loom_one_caller_restarts_a_stopped_guest() {
    let winners = explore(|| {
        let life = running_life(0b1);
        life.begin_stop(life.now().1, StopReason::Fault).unwrap();
        core_done(&life, PcpuId(0)).unwrap();
        let other = {
            let life = Arc::clone(&life);
            thread::spawn(move || life.begin_restore())
        };
        let this_won = life.begin_restore();
        assert_ne!(this_won, other.join().unwrap());
        this_won
    });
    assert_eq!(winners, [false, true]);
}
