//! All interleavings of the cores that race for a vCPU or for the end of a guest.

use super::*;
use crate::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use spumone_config::types::PcpuId;
use std::sync::Arc;
use std::vec::Vec;

#[test]
fn loom_one_caller_of_cpu_on_wins() {
    loom::model(|| {
        let power = Arc::new(GuestPower::new(2));
        power.request_start(0).unwrap();
        power.started(0);
        let callers: Vec<_> = (0..2)
            .map(|_| {
                let power = Arc::clone(&power);
                thread::spawn(move || power.request_start(1))
            })
            .collect();
        // The third caller runs here.
        let mut results: Vec<_> = callers.into_iter().map(|c| c.join().unwrap()).collect();
        results.push(power.request_start(1));
        assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
        assert!(
            results
                .iter()
                .all(|result| matches!(result, Ok(()) | Err(Power::OnPending)))
        );
    });
}

#[test]
fn loom_a_start_that_meets_a_stop_is_refused_or_wins_after_it() {
    loom::model(|| {
        let power = Arc::new(GuestPower::new(2));
        for index in 0..2 {
            power.request_start(index).unwrap();
            power.started(index);
        }
        // Stands for what the stopping vCPU did last.
        let done = Arc::new(AtomicU64::new(0));
        let stopping = {
            let (power, done) = (Arc::clone(&power), Arc::clone(&done));
            thread::spawn(move || {
                done.store(1, Ordering::Relaxed);
                assert!(!power.stopped(1), "vCPU 0 is on");
            })
        };
        match power.request_start(1) {
            Ok(()) => assert_eq!(done.load(Ordering::Relaxed), 1),
            Err(state) => assert_eq!(state, Power::On),
        }
        stopping.join().unwrap();
    });
}

#[test]
fn loom_one_vcpu_is_the_last_to_stop() {
    loom::model(|| {
        let power = Arc::new(GuestPower::new(2));
        for index in 0..2 {
            power.request_start(index).unwrap();
            power.started(index);
        }
        let other = {
            let power = Arc::clone(&power);
            thread::spawn(move || power.stopped(1))
        };
        let this_was_last = power.stopped(0);
        assert_ne!(this_was_last, other.join().unwrap());
    });
}

#[test]
fn loom_one_core_begins_a_stop_and_one_is_last() {
    loom::model(|| {
        let life = Arc::new(Lifecycle::new(0b11));
        let generation = life.run().unwrap();
        // Stands for the guest's memory, which each core writes before it is done.
        let memory: Arc<[AtomicU64; 2]> = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let core = |number: u8, reason: StopReason| {
            let (life, memory) = (Arc::clone(&life), Arc::clone(&memory));
            move || {
                memory[usize::from(number)].store(1, Ordering::Relaxed);
                let won = life.begin_stop(reason) == Some(generation);
                let after = life.core_done(PcpuId(number));
                if after.is_some() {
                    let written = memory.iter().map(|word| word.load(Ordering::Relaxed));
                    assert_eq!(written.sum::<u64>(), 2);
                }
                (won, after)
            }
        };
        let other = thread::spawn(core(1, StopReason::Fault));
        let this = core(0, StopReason::Reset)();
        let other = other.join().unwrap();
        assert_ne!(this.0, other.0, "one begins the stop");
        assert_ne!(this.1.is_some(), other.1.is_some(), "one is last");
        let expected = if this.0 {
            AfterStop::Restore
        } else {
            AfterStop::Stay(StopReason::Fault)
        };
        assert_eq!(this.1.or(other.1), Some(expected));
    });
}

#[test]
fn loom_a_restored_guest_is_seen_whole_and_can_be_stopped_again() {
    loom::model(|| {
        let life = Arc::new(Lifecycle::new(0b11));
        let first = life.run().unwrap();
        life.begin_stop(StopReason::Reset).unwrap();
        let memory = Arc::new(AtomicU64::new(0));
        let core = |number: u8| {
            let (life, memory) = (Arc::clone(&life), Arc::clone(&memory));
            move || {
                if life.core_done(PcpuId(number)) == Some(AfterStop::Restore) {
                    memory.store(1, Ordering::Relaxed);
                    life.run().unwrap();
                }
                let (phase, generation) = life.now();
                if phase == Phase::Running {
                    assert_ne!(generation, first);
                    assert_eq!(memory.load(Ordering::Relaxed), 1);
                }
            }
        };
        let other = thread::spawn(core(1));
        core(0)();
        other.join().unwrap();
        assert_eq!(life.begin_stop(StopReason::Off), Some(Generation(2)));
        assert_eq!(life.core_done(PcpuId(1)), None);
        let stay = AfterStop::Stay(StopReason::Off);
        assert_eq!(life.core_done(PcpuId(0)), Some(stay));
    });
}

#[test]
fn loom_a_guest_is_not_restarted_before_it_is_cleared() {
    loom::model(|| {
        let life = Arc::new(Lifecycle::new(0b1));
        life.run().unwrap();
        life.begin_stop(StopReason::Fault).unwrap();
        // Stands for what is left of the guest.
        let remains = Arc::new(AtomicU64::new(1));
        let stopping = {
            let (life, remains) = (Arc::clone(&life), Arc::clone(&remains));
            thread::spawn(move || {
                assert!(life.acknowledge(PcpuId(0)));
                remains.store(0, Ordering::Relaxed);
                life.finish_stop().unwrap();
            })
        };
        if life.begin_restore() {
            assert_eq!(remains.load(Ordering::Relaxed), 0);
        }
        stopping.join().unwrap();
    });
}

#[test]
fn loom_one_caller_restarts_a_stopped_guest() {
    loom::model(|| {
        let life = Arc::new(Lifecycle::new(0b1));
        life.run().unwrap();
        life.begin_stop(StopReason::Fault).unwrap();
        life.core_done(PcpuId(0)).unwrap();
        let other = {
            let life = Arc::clone(&life);
            thread::spawn(move || life.begin_restore())
        };
        let this = life.begin_restore();
        assert_ne!(this, other.join().unwrap());
    });
}
