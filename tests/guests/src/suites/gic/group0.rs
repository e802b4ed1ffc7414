// SPDX-License-Identifier: MIT OR Apache-2.0
//! Group 0, which is signalled as FIQ.

use super::{clean, is_pending, next, stray};
use crate::machine::gic::{self, SPURIOUS};
use crate::machine::interrupts::{self, FIQ};
use crate::machine::sysreg::{cpu, mrs, msr};
use crate::report::{Verdict, check, check_eq, test_everywhere};

const SGI: u32 = 9;

pub fn run(cpus: usize) {
    test_everywhere("group0-is-fiq", cpus, comes_as_fiq);
    test_everywhere("group0-by-sgi0r", cpus, sent_by_its_own_register);
    test_everywhere("group0-disabled", cpus, disabled);
    test_everywhere("group0-before-group1", cpus, both_groups);
}

fn to_self() -> u64 {
    1 << cpu()
}

fn comes_as_fiq() -> Verdict {
    clean();
    gic::set_group(SGI, false);
    super::pend(SGI);
    check_eq!(stray(), SPURIOUS, "IAR1 gives an interrupt of group 0");
    check!(interrupts::take(1), "no FIQ");
    check_eq!(interrupts::nth(cpu(), 0), SGI | FIQ, "taken");
    clean();
    Ok(())
}

fn sent_by_its_own_register() -> Verdict {
    clean();
    // SGI0R does not reach SGIs of group 1.
    gic::send_sgi_group_0(SGI, to_self());
    check_eq!(stray(), SPURIOUS, "SGI0R has sent an SGI of group 1");
    gic::set_group(SGI, false);
    for round in 1..=3 {
        gic::send_sgi_group_0(SGI, to_self());
        check!(interrupts::take(round), "FIQ {round}");
        check_eq!(interrupts::nth(cpu(), round - 1), SGI | FIQ, "taken");
    }
    clean();
    Ok(())
}

fn disabled() -> Verdict {
    clean();
    gic::set_group(SGI, false);
    msr!(ICC_IGRPEN0_EL1, 0);
    super::pend(SGI);
    interrupts::take_what_is_there();
    check_eq!(interrupts::count(cpu()), 0, "taken though group 0 is off");
    check!(is_pending(SGI), "lost");
    msr!(ICC_IGRPEN0_EL1, 1);
    check!(interrupts::take(1), "no FIQ when group 0 is on again");
    clean();
    Ok(())
}

fn both_groups() -> Verdict {
    clean();
    gic::set_group(SGI, false);
    gic::set_priority(SGI, 0x40);
    super::pend(SGI);
    gic::send_sgi(SGI + 1, to_self());
    // A pending interrupt of the other group with a higher priority is signalled first.
    check_eq!(mrs!(ICC_HPPIR0_EL1) as u32, SGI, "HPPIR0");
    check!(interrupts::take(2), "not both arrived");
    check_eq!(interrupts::nth(cpu(), 0), SGI | FIQ, "first");
    check_eq!(interrupts::nth(cpu(), 1), SGI + 1, "second");
    clean();
    gic::send_sgi(SGI, to_self());
    check_eq!(next(), SGI, "in group 1 again");
    gic::end(SGI);
    Ok(())
}
