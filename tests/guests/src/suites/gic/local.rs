// SPDX-License-Identifier: MIT OR Apache-2.0
//! The states of one interrupt of a CPU: pending, active, both; enabled and disabled.

use super::{clean, is_active, is_pending, next, pend, stray};
use crate::machine::gic::{self, IDLE, SPURIOUS, USUAL, register};
use crate::machine::sysreg::{cpu, mrs, msr};
use crate::report::{Verdict, check, check_eq, test_everywhere};

const SGI: u32 = 5;
/// `ICC_CTLR_EL1.EOImode`.
const EOI_MODE: u64 = 1 << 1;

pub fn run(cpus: usize) {
    test_everywhere("nothing-pending", cpus, nothing_pending);
    test_everywhere("life-of-an-sgi", cpus, life_of_an_sgi);
    test_everywhere("disabled-sgi", cpus, disabled);
    test_everywhere("withdraw-by-icenabler", cpus, withdrawn_by_disabling);
    test_everywhere("withdraw-by-icpendr", cpus, withdrawn_by_clearing);
    test_everywhere("pending-and-active", cpus, pending_and_active);
    test_everywhere("icactiver", cpus, made_inactive);
    test_everywhere("isactiver", cpus, made_active);
    test_everywhere("eoi-mode-1", cpus, eoi_mode_1);
    test_everywhere("eoi-mode-1-all", cpus, eoi_mode_1_many);
    test_everywhere("igrpen1", cpus, interface_disabled);
    test_everywhere("gicd-ctlr-group1", cpus, distributor_disabled);
    test_everywhere("every-sgi", cpus, every_sgi);
}

fn to_self() -> u64 {
    1 << cpu()
}

fn nothing_pending() -> Verdict {
    clean();
    check_eq!(stray(), SPURIOUS, "IAR");
    check_eq!(mrs!(ICC_RPR_EL1), IDLE, "RPR");
    check_eq!(gic::get_word(register::ISPENDR, 0) & 0xFFFF, 0, "ISPENDR0");
    check_eq!(gic::get_word(register::ISACTIVER, 0), 0, "ISACTIVER0");
    Ok(())
}

fn life_of_an_sgi() -> Verdict {
    clean();
    gic::send_sgi(SGI, to_self());
    check!(is_pending(SGI), "sent, but not pending");
    check_eq!(mrs!(ICC_HPPIR1_EL1) as u32, SGI, "HPPIR1");
    check_eq!(next(), SGI, "acknowledged");
    check!(!is_pending(SGI), "acknowledged, but pending");
    check!(is_active(SGI), "acknowledged, but not active");
    check_eq!(mrs!(ICC_RPR_EL1), u64::from(USUAL), "running priority");
    gic::end(SGI);
    check!(!is_active(SGI), "ended, but active");
    check_eq!(mrs!(ICC_RPR_EL1), IDLE, "running priority");
    check_eq!(stray(), SPURIOUS, "arrived again");
    // Made pending twice, it is signalled once.
    pend(SGI);
    gic::send_sgi(SGI, to_self());
    check_eq!(next(), SGI, "by ISPENDR0");
    gic::end(SGI);
    check_eq!(stray(), SPURIOUS, "made pending twice, arrived twice");
    Ok(())
}

fn disabled() -> Verdict {
    clean();
    gic::set_bit(register::ICENABLER, SGI);
    gic::send_sgi(SGI, to_self());
    check_eq!(stray(), SPURIOUS, "arrived though disabled");
    check!(is_pending(SGI), "sent while disabled, but not pending");
    check!(
        gic::bit(register::ICPENDR, SGI),
        "ICPENDR0 does not read as pending"
    );
    gic::set_bit(register::ISENABLER, SGI);
    check_eq!(next(), SGI, "enabled");
    gic::end(SGI);
    Ok(())
}

fn withdrawn_by_disabling() -> Verdict {
    clean();
    gic::send_sgi(SGI, to_self());
    gic::set_bit(register::ICENABLER, SGI);
    check_eq!(stray(), SPURIOUS, "arrived though disabled");
    check_eq!(mrs!(ICC_HPPIR1_EL1) as u32, SPURIOUS, "HPPIR1");
    check!(is_pending(SGI), "disabled, and lost");
    gic::set_bit(register::ISENABLER, SGI);
    check_eq!(next(), SGI, "enabled again");
    gic::end(SGI);
    check_eq!(stray(), SPURIOUS, "arrived twice");
    Ok(())
}

fn withdrawn_by_clearing() -> Verdict {
    clean();
    gic::send_sgi(SGI, to_self());
    gic::set_bit(register::ICPENDR, SGI);
    check!(!is_pending(SGI), "cleared, but pending");
    check_eq!(stray(), SPURIOUS, "arrived though cleared");
    Ok(())
}

fn pending_and_active() -> Verdict {
    clean();
    gic::send_sgi(SGI, to_self());
    check_eq!(next(), SGI, "the first");
    gic::send_sgi(SGI, to_self());
    check!(is_pending(SGI) && is_active(SGI), "not pending and active");
    check_eq!(stray(), SPURIOUS, "arrived while active");
    gic::end(SGI);
    check_eq!(next(), SGI, "the second");
    gic::end(SGI);
    check_eq!(stray(), SPURIOUS, "a third");
    Ok(())
}

fn made_inactive() -> Verdict {
    clean();
    pend(SGI);
    check_eq!(next(), SGI, "the first");
    gic::set_bit(register::ICACTIVER, SGI);
    check!(!is_active(SGI), "active after ICACTIVER0");
    pend(SGI);
    // Its priority is still the running priority.
    check_eq!(stray(), SPURIOUS, "arrived before the priority drop");
    gic::end(SGI);
    check_eq!(next(), SGI, "the second");
    gic::end(SGI);
    Ok(())
}

fn made_active() -> Verdict {
    clean();
    gic::set_bit(register::ISACTIVER, SGI);
    check!(is_active(SGI), "not active after ISACTIVER0");
    gic::send_sgi(SGI, to_self());
    check_eq!(stray(), SPURIOUS, "arrived while active");
    // Other interrupts are not held back: the running priority is idle.
    gic::send_sgi(SGI + 1, to_self());
    check_eq!(next(), SGI + 1, "another");
    gic::end(SGI + 1);
    gic::set_bit(register::ICACTIVER, SGI);
    check_eq!(next(), SGI, "after ICACTIVER0");
    gic::end(SGI);
    Ok(())
}

fn eoi_mode_1() -> Verdict {
    clean();
    msr!(ICC_CTLR_EL1, EOI_MODE);
    gic::send_sgi(SGI, to_self());
    check_eq!(next(), SGI, "the first");
    gic::end(SGI);
    check_eq!(mrs!(ICC_RPR_EL1), IDLE, "running priority after EOIR");
    check!(is_active(SGI), "EOIR alone has deactivated it");
    gic::send_sgi(SGI, to_self());
    check_eq!(stray(), SPURIOUS, "arrived while active");
    gic::send_sgi(SGI + 1, to_self());
    check_eq!(next(), SGI + 1, "another of the same priority");
    gic::end(SGI + 1);
    gic::deactivate(SGI);
    check!(!is_active(SGI), "active after DIR");
    check!(is_active(SGI + 1), "DIR of one has deactivated another");
    check_eq!(next(), SGI, "the second");
    gic::end(SGI);
    gic::deactivate(SGI + 1);
    gic::deactivate(SGI);
    check_eq!(
        gic::get_word(register::ISACTIVER, 0),
        0,
        "active in the end"
    );
    check_eq!(stray(), SPURIOUS, "a third");
    clean();
    Ok(())
}

/// All SGIs active at once, more than there are list registers; then they are deactivated one by one.
fn eoi_mode_1_many() -> Verdict {
    clean();
    msr!(ICC_CTLR_EL1, EOI_MODE);
    for round in 0..2 {
        for sgi in 0..16 {
            gic::send_sgi(sgi, to_self());
        }
        let mut seen = 0;
        for _ in 0..16 {
            let sgi = next();
            check!(sgi < 16, "round {round}: {sgi} arrived after {seen:#x}");
            check!(seen >> sgi & 1 == 0, "round {round}: {sgi} arrived twice");
            seen |= 1 << sgi;
            gic::end(sgi);
        }
        check_eq!(gic::get_word(register::ISACTIVER, 0), 0xFFFF, "active");
        for sgi in (0..16).rev() {
            gic::send_sgi(sgi, to_self());
        }
        check_eq!(stray(), SPURIOUS, "arrived while active");
        check_eq!(
            gic::get_word(register::ISPENDR, 0) & 0xFFFF,
            0xFFFF,
            "pending"
        );
        for sgi in [3, 15, 0, 7, 1, 2, 14, 4, 13, 5, 12, 6, 11, 8, 10, 9] {
            gic::deactivate(sgi);
            check_eq!(next(), sgi, "after its deactivation");
            gic::end(sgi);
            check_eq!(stray(), SPURIOUS, "after {sgi}");
        }
        for sgi in 0..16 {
            gic::deactivate(sgi);
        }
        check_eq!(
            gic::get_word(register::ISACTIVER, 0),
            0,
            "active in the end"
        );
    }
    clean();
    Ok(())
}

fn interface_disabled() -> Verdict {
    clean();
    msr!(ICC_IGRPEN1_EL1, 0);
    gic::send_sgi(SGI, to_self());
    check_eq!(stray(), SPURIOUS, "arrived though group 1 is off");
    check!(is_pending(SGI), "lost");
    msr!(ICC_IGRPEN1_EL1, 1);
    check_eq!(next(), SGI, "group 1 on again");
    gic::end(SGI);
    Ok(())
}

fn distributor_disabled() -> Verdict {
    use crate::machine::mmio::write32;
    clean();
    write32(gic::GICD + register::CTLR, gic::ARE | gic::ENABLE_GROUP_0);
    gic::complete();
    gic::send_sgi(SGI, to_self());
    let come = stray();
    let pending = is_pending(SGI);
    gic::start_distributor();
    check_eq!(come, SPURIOUS, "arrived though group 1 is off");
    check!(pending, "lost");
    check_eq!(next(), SGI, "group 1 on again");
    gic::end(SGI);
    Ok(())
}

fn every_sgi() -> Verdict {
    clean();
    for sgi in 0..16 {
        gic::send_sgi(sgi, to_self());
        check_eq!(next(), sgi, "sent alone");
        gic::end(sgi);
    }
    check_eq!(stray(), SPURIOUS, "in the end");
    Ok(())
}
