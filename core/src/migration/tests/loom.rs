// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every interleaving of the cores around a parked vCPU.

use crate::migration::{Level, Parked, ParkedState, ParkingSlot, Presence};
use crate::schedule::{Band, Ticks};
use crate::vgic::Doorbell;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use spumone_config::types::PcpuId;

const HOST: PcpuId = PcpuId(0);
const ASLEEP: Parked = Parked {
    host: HOST,
    state: ParkedState::Asleep,
};
const RUNNABLE: Parked = Parked {
    host: HOST,
    state: ParkedState::Runnable,
};

/// The host core and two other cores try to claim a parked token: exactly one gets it, and sees the saved registers.
#[test]
fn loom_a_parked_token_is_claimed_once() {
    loom::model(|| {
        let place = Arc::new((ParkingSlot::new(), UnsafeCell::new(())));
        let others: [_; 2] = core::array::from_fn(|_| {
            let place = place.clone();
            thread::spawn(move || claim(&place))
        });
        place.1.with_mut(|_| ());
        place.0.park(RUNNABLE, Ticks(0));
        let mut claims = u32::from(claim(&place));
        for thief in others {
            claims += u32::from(thief.join().unwrap());
        }
        // The other two may both have looked before the token was parked, but the host core has looked afterwards.
        assert_eq!(claims, 1);
    });
}

fn claim(place: &(ParkingSlot, UnsafeCell<()>)) -> bool {
    let claimed = place.0.parked().is_some_and(|seen| place.0.claim(seen));
    if claimed {
        // loom reports it if two cores can be here at once, or a core that does not see what the one before it wrote.
        place.1.with_mut(|_| ());
    }
    claimed
}

/// A core goes idle while another core parks a vCPU: the idle core finds the vCPU, or the other core sees that it
/// idles.
#[test]
fn loom_an_idle_core_and_a_parked_vcpu_find_each_other() {
    loom::model(|| {
        let shared = Arc::new((ParkingSlot::new(), Presence::new()));
        shared.1.publish(Level::of(Some(Band::LOWEST)));
        let other = shared.clone();
        let idler = thread::spawn(move || {
            other.1.publish(Level::IDLE);
            other.0.parked().is_some()
        });
        shared.0.park(RUNNABLE, Ticks(0));
        let seen = shared.1.level() == Level::IDLE;
        assert!(idler.join().unwrap() || seen);
    });
}

/// A doorbell is rung while a core that runs a higher band parks the vCPU asleep: the host core sees the doorbell, or the
/// core that rang claims the vCPU.
#[test]
fn loom_a_doorbell_rung_during_parking_is_not_lost() {
    loom::model(|| {
        let shared = Arc::new((ParkingSlot::new(), Doorbell::new()));
        let other = shared.clone();
        let ringer = thread::spawn(move || {
            other.1.ring_spis(1);
            let _ = other.1.location();
            other.0.parked().is_some_and(|seen| other.0.claim(seen))
        });
        shared.0.park(ASLEEP, Ticks(0));
        let is_seen = !shared.1.is_silent();
        assert!(ringer.join().unwrap() || is_seen);
    });
}

/// A doorbell is rung for a runnable vCPU that is cut off: the core that claims the vCPU sees the doorbell, or the vCPU
/// is still parked and marked as wanted.
#[test]
fn loom_the_doorbell_of_a_wanted_vcpu_is_seen() {
    loom::model(|| {
        let shared = Arc::new((ParkingSlot::new(), Doorbell::new()));
        shared.0.park(RUNNABLE, Ticks(0));
        let other = shared.clone();
        let ringer = thread::spawn(move || {
            other.1.ring_spis(1);
            other
                .0
                .parked()
                .is_some_and(|seen| other.0.mark_wanted(seen))
        });
        let seen = shared.0.parked();
        let taken = seen.is_some_and(|seen| shared.0.claim(seen));
        let seen_rung = taken && {
            shared.1.settle(PcpuId(1));
            !shared.1.is_silent()
        };
        let marked = ringer.join().unwrap();
        // Not marked: the core that rang kicks the core that has the token now.
        assert!(!(marked && taken) || seen_rung);
        assert!(marked || taken);
    });
}

/// The host core wakes a sleeping vCPU while another core claims it. Either the vCPU was woken first and the claim fails, or
/// the core that has claimed and settled it sees the doorbell.
#[test]
fn loom_a_woken_vcpu_is_not_lost() {
    loom::model(|| {
        let shared = Arc::new((ParkingSlot::new(), Doorbell::new()));
        shared.0.park(ASLEEP, Ticks(0));
        let other = shared.clone();
        let taker = thread::spawn(move || {
            if !other.0.claim(ASLEEP) {
                return false;
            }
            other.1.settle(PcpuId(1));
            !other.1.is_silent()
        });
        shared.1.ring_spis(1);
        let is_host = shared.1.location() == HOST;
        let woken = is_host && shared.0.mark_runnable(HOST, Ticks(0));
        let is_seen = taker.join().unwrap();
        // Kicked on its new core, awake on its old one, or the core that claimed it has seen the doorbell.
        assert!(!is_host || woken || is_seen);
    });
}
