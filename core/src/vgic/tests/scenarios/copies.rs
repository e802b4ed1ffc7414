// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies of list registers.

use super::*;

/// The core looks for interrupts between the copies and the rest of a switch, and the vCPU's own timer may have expired.
#[test]
fn an_interrupt_does_not_take_the_place_of_one_that_was_copied() {
    for is_active in [false, true] {
        let mut world = guest(1, 4);
        world.send_sgi(0, SgiRegister::Sgi1r, 3 << 24 | 1);
        if is_active {
            assert!(world.acknowledge(0).is_some());
        }
        world.on(0, |cpu, _, here| cpu.copy_lists(here));
        world.vcpus[0].context.lines = TIMER;
        world.call(0, |cpu, gic, here| {
            here.take_physical(IntId(27));
            cpu.timer_fired(gic, IntId(27), here)
        });
        world.unload(0);
        world.load(0, 0);
        let state = if is_active {
            State::Active
        } else {
            State::Pending
        };
        let mut listed = world.listed(0);
        listed.sort_by_key(|it| it.0);
        assert_eq!(listed, [(3, state), (27, State::Pending)]);
    }
}
