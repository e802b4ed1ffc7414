// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cards of guests that begin anew: nothing of the former life is left, and the peer sees it.

use super::*;

const GENERATION: u64 = REGISTERS + 0xfc;

fn restarts(bench: &mut Bench, guest: u8) {
    let life = bench.life(guest);
    bench.does(guest, 0, |cpu| cpu.hvc([psci::SYSTEM_RESET, 0, 0, 0]));
    bench.until("a new life", |bench| bench.life(guest) > life);
    bench.until("it runs", |bench| bench.phase(guest) == Phase::Running);
}

#[test]
fn a_new_life_finds_its_card_as_after_a_reset() {
    let mut bench = running(2);
    comes_up(&mut bench, 0);
    comes_up(&mut bench, 1);
    offers_receive(&mut bench, 1, 0);
    transmits(&mut bench, 0, 0, b"a frame");
    bench.iterations(40);
    write(&mut bench, 1, QUEUE_SEL, 3);
    assert_ne!(read(&mut bench, 1, INTERRUPT_STATUS), 0);
    restarts(&mut bench, 1);
    for register in [INTERRUPT_STATUS, STATUS, GENERATION] {
        assert_eq!(read(&mut bench, 1, register), 0, "{register:#x}");
    }
    assert_eq!(
        read(&mut bench, 1, REGISTERS + 0x34),
        256,
        "queue 0 is selected"
    );
    for queue in [RECEIVE, TRANSMIT] {
        write(&mut bench, 1, QUEUE_SEL, queue);
        assert_eq!(read(&mut bench, 1, QUEUE_READY), 0, "queue {queue}");
    }
    // No feature has been accepted.
    write(&mut bench, 1, STATUS, DRIVER_OK);
    assert_eq!(read(&mut bench, 1, STATUS) & 4, 0);
    bench.opens_gic(1, 0, &[LINK_INTERRUPT]);
    bench.iterations(40);
    assert_eq!(bench.look(1, 0, |cpu| cpu.acknowledge()), None);
}

/// What waited for a buffer when its sender ended is not delivered in the next life.
#[test]
fn a_frame_of_a_former_life_is_not_delivered() {
    let mut bench = running(2);
    comes_up(&mut bench, 0);
    comes_up(&mut bench, 1);
    transmits(&mut bench, 0, 0, b"a frame");
    bench.iterations(40);
    restarts(&mut bench, 0);
    comes_up(&mut bench, 0);
    offers_receive(&mut bench, 1, 0);
    bench.iterations(40);
    assert_eq!(given_back(&mut bench, 1, RECEIVE), (0, 0));
    transmits(&mut bench, 0, 0, b"another");
    bench.iterations(40);
    assert_eq!(given_back(&mut bench, 1, RECEIVE), (1, 12 + 7));
    assert_eq!(received(&mut bench, 1, 0, 7), b"another");
}

/// By interrupt, whether the driver resets its card or its guest restarts.
#[test]
fn the_peer_of_a_card_that_is_reset_is_interrupted() {
    for is_restart in [false, true] {
        let mut bench = running(2);
        bench.opens_gic(0, 0, &[LINK_INTERRUPT]);
        comes_up(&mut bench, 0);
        comes_up(&mut bench, 1);
        assert_eq!(bench.acknowledges(0, 0), LINK_INTERRUPT, "the peer is up");
        write(&mut bench, 0, INTERRUPT_ACK, u32::MAX);
        bench.look(0, 0, |cpu| cpu.end(LINK_INTERRUPT));
        let generation = read(&mut bench, 0, GENERATION);
        match is_restart {
            true => restarts(&mut bench, 1),
            false => write(&mut bench, 1, STATUS, 0),
        }
        assert_eq!(bench.acknowledges(0, 0), LINK_INTERRUPT, "the peer is down");
        assert_eq!(read(&mut bench, 0, INTERRUPT_STATUS), CONFIGURATION);
        assert_ne!(read(&mut bench, 0, GENERATION), generation);
        assert_eq!(read(&mut bench, 0, LINK_STATUS) & 1, 0);
    }
}
