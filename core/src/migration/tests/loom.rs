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

/// Of the host and two thieves one gets the token, and finds what was saved.
#[test]
fn loom_a_parked_token_is_claimed_once() {
    loom::model(|| {
        let place = Arc::new((ParkingSlot::new(), UnsafeCell::new(())));
        let thieves: [_; 2] = core::array::from_fn(|_| {
            let place = place.clone();
            thread::spawn(move || take(&place))
        });
        place.1.with_mut(|_| ());
        place.0.park(RUNNABLE, Ticks(0));
        let mut taken = u32::from(take(&place));
        for thief in thieves {
            taken += u32::from(thief.join().unwrap());
        }
        // Nobody may have looked after it was parked but the host.
        assert_eq!(taken, 1);
    });
}

fn take(place: &(ParkingSlot, UnsafeCell<()>)) -> bool {
    let claimed = place.0.parked().is_some_and(|seen| place.0.claim(seen));
    if claimed {
        // loom fails where two could be here at once, or one without having seen what the other did.
        place.1.with_mut(|_| ());
    }
    claimed
}

/// A core goes idle while another parks: the idle one finds the vCPU, or is seen to be idle.
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

/// An interrupt is rung for a vCPU that is just being parked asleep by a core that nothing gets through to: the host hears the
/// bell, or the ringer takes the vCPU.
#[test]
fn loom_a_bell_and_a_sleeper_find_each_other() {
    loom::model(|| {
        let shared = Arc::new((ParkingSlot::new(), Doorbell::new()));
        let other = shared.clone();
        let ringer = thread::spawn(move || {
            other.1.ring_spis(1);
            let _ = other.1.location();
            other.0.parked().is_some_and(|seen| other.0.claim(seen))
        });
        shared.0.park(ASLEEP, Ticks(0));
        let heard = !shared.1.is_silent();
        assert!(ringer.join().unwrap() || heard);
    });
}

/// An interrupt is rung for a vCPU that is parked where nothing gets through: who takes it hears of it, or it is
/// still parked, with the bell rung.
#[test]
fn loom_a_pressed_vcpu_hears_the_bell() {
    loom::model(|| {
        let shared = Arc::new((ParkingSlot::new(), Doorbell::new()));
        shared.0.park(RUNNABLE, Ticks(0));
        let other = shared.clone();
        let presser = thread::spawn(move || {
            other.1.ring_spis(1);
            other
                .0
                .parked()
                .is_some_and(|seen| other.0.mark_wanted(seen))
        });
        let seen = shared.0.parked();
        let taken = seen.is_some_and(|seen| shared.0.claim(seen));
        let heard = taken && {
            shared.1.settle(PcpuId(1));
            !shared.1.is_silent()
        };
        let pressed = presser.join().unwrap();
        // Not pressed: the ringer kicks the core that it finds now.
        assert!(!(pressed && taken) || heard);
        assert!(pressed || taken);
    });
}

/// The host rouses a sleeper while another core takes it: either it was roused first, and is taken as what it is then or not at
/// all, or the taker, who has settled, hears the bell.
#[test]
fn loom_a_roused_sleeper_is_not_lost() {
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
        let home_vcpus = shared.1.location() == HOST;
        let roused = home_vcpus && shared.0.mark_runnable(HOST);
        let heard = taker.join().unwrap();
        // Kicked at its new core, awake at its old one, or heard by who took it.
        assert!(!home_vcpus || roused || heard);
    });
}
