// SPDX-License-Identifier: MIT OR Apache-2.0

use super::*;
use crate::health::End;
use crate::psci::{Generation, Phase, StopReason};
use crate::schedule::Ticks;
use spumone_config::GuestId;
use std::vec::Vec;

fn registers(peer: (Phase, Generation)) -> Registers {
    Registers {
        size: 0x1_0000,
        writes: true,
        is_second: true,
        life: Generation(3),
        peer,
        is_given: true,
        ended: None,
    }
}

#[test]
fn each_register_is_at_its_offset() {
    let all = registers((Phase::Running, Generation(7)));
    let read: Vec<u32> = (0..0x30)
        .step_by(4)
        .map(|offset| all.read(offset))
        .collect();
    assert_eq!(read, [ID, 1, 0x1_0000, 3, 3, 7, 0, 0, 1, 0, 0, 0]);
    assert_eq!(&ID.to_le_bytes(), b"SLNK");
    assert_eq!(all.read(0x15), 0);
}

#[test]
fn the_last_end_of_the_peer_can_be_read() {
    let end = |reason| End {
        at: Ticks(0x12_3456_789a),
        guest: GuestId(1),
        life: Generation(6),
        reason,
    };
    let read = |reason| {
        let all = Registers {
            ended: Some(end(reason)),
            ..registers((Phase::Running, Generation(7)))
        };
        [0x24, 0x28, 0x2c, 0x30].map(|offset| all.read(offset))
    };
    // As guests/link/spumone_link.h names them.
    let causes = StopReason::ALL.map(|reason| read(reason)[1]);
    assert_eq!(causes, [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(read(StopReason::Watchdog), [6, 4, 0x3456_789a, 0x12]);
}

#[test]
fn a_peer_that_does_not_run_has_no_life() {
    for phase in [
        Phase::Restoring,
        Phase::Stopping(StopReason::Reset),
        Phase::Stopped(StopReason::Fault),
    ] {
        assert_eq!(registers((phase, Generation(7))).read(0x14), 0);
    }
}

#[test]
fn two_registers_can_be_written() {
    let commands: Vec<_> = (0..0x1000).filter_map(Command::of_write).collect();
    assert_eq!(commands, [Command::Signal, Command::Acknowledge]);
}

#[test]
fn a_signal_is_given_once_until_it_is_taken_back() {
    let signal = Signal::new();
    assert!(!signal.take());
    assert!(signal.give());
    assert!(!signal.give());
    assert!(signal.is_given());
    assert!(signal.take());
    assert!(!signal.is_given());
    assert!(signal.give());
    signal.reset();
    assert!(!signal.is_given() && !signal.take());
}

#[test]
fn the_present_level_is_published() {
    let signal = Signal::new();
    let mut levels = Vec::new();
    signal.publish(|level| levels.push(level));
    assert!(signal.give());
    signal.publish(|level| levels.push(level));
    // Taken back while it is published.
    signal.publish(|level| {
        levels.push(level);
        let _ = signal.take();
    });
    assert_eq!(levels, [false, true, true, false]);
}
