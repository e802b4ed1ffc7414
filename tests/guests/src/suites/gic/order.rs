// SPDX-License-Identifier: MIT OR Apache-2.0
//! Priorities: which of several interrupts is signalled first, and which may preempt which.

use super::{clean, next, pend, stray};
use crate::machine::gic::{self, IDLE, LOWEST, SPURIOUS, USUAL, register};
use crate::machine::interrupts::{self, Line, with_handler};
use crate::machine::sysreg::{cpu, mask, mrs, msr, unmask};
use crate::report::{Failure, Verdict, check, check_eq, test_everywhere};

pub fn run(cpus: usize) {
    test_everywhere("priority-order", cpus, in_order_of_priority);
    test_everywhere("sixteen-at-once", cpus, sixteen_at_once);
    test_everywhere("high-priority-after-full", cpus, high_priority_after_many);
    test_everywhere("pmr", cpus, priority_mask);
    test_everywhere("pmr-steps", cpus, priority_mask_steps);
    test_everywhere("preemption", cpus, preemption);
    test_everywhere("nesting", cpus, nesting);
    test_everywhere("bpr", cpus, binary_point);
    test_everywhere("priority-changed", cpus, priority_changed);
}

fn to_self() -> u64 {
    1 << cpu()
}

fn in_order_of_priority() -> Verdict {
    clean();
    gic::set_priority(2, 0x80);
    gic::set_priority(3, 0x40);
    gic::send_sgi(2, to_self());
    gic::send_sgi(3, to_self());
    check_eq!(mrs!(ICC_HPPIR1_EL1) as u32, 3, "HPPIR1");
    check_eq!(next(), 3, "first");
    check_eq!(mrs!(ICC_RPR_EL1), 0x40, "running priority");
    check_eq!(
        stray(),
        SPURIOUS,
        "the one of lower priority arrived meanwhile"
    );
    gic::end(3);
    check_eq!(next(), 2, "second");
    gic::end(2);
    Ok(())
}

/// A different priority for each SGI, in another order than the SGIs' numbers.
fn mixed_priority(sgi: u32) -> u8 {
    (0x20 + sgi * 7 % 16 * 8) as u8
}

fn expect_all_in_order(what: &str) -> Verdict {
    for place in 0..16 {
        let wanted = (0..16).find(|&sgi| u32::from(mixed_priority(sgi)) == 0x20 + place * 8);
        let sgi = next();
        if Some(sgi) != wanted {
            return Err(Failure::new(format_args!("{what}: {sgi} in place {place}")));
        }
        gic::end(sgi);
    }
    check_eq!(stray(), SPURIOUS, "a seventeenth");
    Ok(())
}

/// More are pending than there are list registers.
fn sixteen_at_once() -> Verdict {
    clean();
    for sgi in 0..16 {
        gic::set_priority(sgi, mixed_priority(sgi));
    }
    for sgi in 0..16 {
        gic::send_sgi(sgi, to_self());
    }
    check_eq!(
        gic::get_word(register::ISPENDR, 0) & 0xFFFF,
        0xFFFF,
        "pending"
    );
    expect_all_in_order("sent one by one")?;
    gic::set_word(register::ISPENDR, 0, 0xFFFF);
    expect_all_in_order("made pending at once")?;
    for sgi in (0..16).rev() {
        gic::send_sgi(sgi, to_self());
    }
    expect_all_in_order("sent in the other order")?;
    clean();
    Ok(())
}

/// An interrupt of a higher priority is signalled when others have filled the list registers.
fn high_priority_after_many() -> Verdict {
    clean();
    for sgi in 0..15 {
        gic::send_sgi(sgi, to_self());
    }
    gic::set_priority(15, 0x10);
    gic::send_sgi(15, to_self());
    check_eq!(next(), 15, "the highest priority");
    let mut seen = 0_u32;
    gic::end(15);
    for _ in 0..15 {
        let sgi = next();
        check!(
            sgi < 15 && seen >> sgi & 1 == 0,
            "{sgi} arrived after {seen:#x}"
        );
        seen |= 1 << sgi;
        gic::end(sgi);
    }
    check_eq!(stray(), SPURIOUS, "in the end");
    clean();
    Ok(())
}

fn priority_mask() -> Verdict {
    clean();
    gic::set_priority(2, 0x80);
    msr!(ICC_PMR_EL1, 0x80);
    gic::send_sgi(2, to_self());
    check_eq!(
        stray(),
        SPURIOUS,
        "an interrupt with the priority of the mask arrived"
    );
    msr!(ICC_PMR_EL1, 0x88);
    check_eq!(next(), 2, "the mask was lowered");
    gic::end(2);
    clean();
    Ok(())
}

/// With the mask lowered step by step, one interrupt after the other is signalled, though many of lower
/// priority are pending all the time.
fn priority_mask_steps() -> Verdict {
    clean();
    msr!(ICC_PMR_EL1, 0);
    for sgi in 0..16 {
        gic::set_priority(sgi, (0x20 + sgi * 8) as u8);
        gic::send_sgi(sgi, to_self());
    }
    for sgi in 0..16 {
        check_eq!(stray(), SPURIOUS, "{sgi} is masked");
        msr!(ICC_PMR_EL1, u64::from(0x20 + sgi * 8 + 8));
        check_eq!(next(), sgi, "it is no longer masked");
        gic::end(sgi);
    }
    msr!(ICC_PMR_EL1, LOWEST);
    check_eq!(stray(), SPURIOUS, "in the end");
    clean();
    Ok(())
}

fn preemption() -> Verdict {
    clean();
    gic::set_priority(2, 0x80);
    gic::set_priority(3, 0x40);
    gic::send_sgi(2, to_self());
    check_eq!(next(), 2, "the lesser");
    gic::send_sgi(3, to_self());
    check_eq!(next(), 3, "the one of higher priority, meanwhile");
    check_eq!(mrs!(ICC_RPR_EL1), 0x40, "running priority");
    check_eq!(gic::get_word(register::ISACTIVER, 0), 0b1100, "active");
    gic::end(3);
    check_eq!(mrs!(ICC_RPR_EL1), 0x80, "running priority");
    gic::end(2);
    check_eq!(mrs!(ICC_RPR_EL1), IDLE, "running priority");
    Ok(())
}

/// Each handler sends the next SGI of a higher priority and unmasks interrupts.
fn nested(_line: Line) {
    let sgi = gic::acknowledge();
    interrupts::note(sgi);
    if sgi < 16 {
        if sgi < 7 {
            gic::send_sgi(sgi + 1, to_self());
        }
        unmask();
        crate::machine::time::delay_us(50);
        mask();
        // Logged again when it ends.
        interrupts::note(sgi | 0x100);
        gic::end(sgi);
    }
}

/// Eight levels deep: more are active than there are list registers.
fn nesting() -> Verdict {
    clean();
    for sgi in 0..8 {
        gic::set_priority(sgi, 0xC0 - 0x10 * sgi as u8);
    }
    let complete = with_handler(nested, || {
        gic::send_sgi(0, to_self());
        interrupts::take(16)
    });
    let log = |n| interrupts::nth(cpu(), n);
    check!(
        complete,
        "{} of 16 entries and ends",
        interrupts::count(cpu())
    );
    for n in 0..8 {
        check_eq!(log(n), n as u32, "entry {n}");
        check_eq!(log(15 - n), n as u32 | 0x100, "end {n} from the last");
    }
    check_eq!(mrs!(ICC_RPR_EL1), IDLE, "running priority");
    clean();
    Ok(())
}

fn binary_point() -> Verdict {
    clean();
    // Bits 7 to 6 are the group priority: 0x80 and 0xA0 have the same, 0x40 does not.
    msr!(ICC_BPR1_EL1, 6);
    check_eq!(mrs!(ICC_BPR1_EL1), 6, "BPR1");
    gic::set_priority(2, 0xA0);
    gic::set_priority(3, 0x80);
    gic::set_priority(4, 0x70);
    gic::send_sgi(2, to_self());
    check_eq!(next(), 2, "the first");
    check_eq!(mrs!(ICC_RPR_EL1), 0x80, "running priority, its group's");
    gic::send_sgi(3, to_self());
    check_eq!(stray(), SPURIOUS, "preempted within its group");
    gic::send_sgi(4, to_self());
    check_eq!(next(), 4, "of a higher group priority");
    gic::end(4);
    gic::end(2);
    check_eq!(next(), 3, "after the end of the first");
    gic::end(3);
    // Among pending interrupts, all bits of the priority count.
    gic::send_sgi(2, to_self());
    gic::send_sgi(3, to_self());
    check_eq!(next(), 3, "the higher priority in one group");
    gic::end(3);
    check_eq!(next(), 2, "the lower priority in one group");
    gic::end(2);
    clean();
    Ok(())
}

/// Pending SGIs of which one gets a higher priority: the change need not take effect while they are pending,
/// but none may be lost.
fn priority_changed() -> Verdict {
    clean();
    for sgi in 0..8 {
        pend(sgi);
    }
    gic::set_priority(6, 0x08);
    gic::set_priority(1, 0xE0);
    let mut seen = 0_u32;
    for _ in 0..8 {
        let sgi = next();
        check!(
            sgi < 8 && seen >> sgi & 1 == 0,
            "{sgi} arrived after {seen:#x}"
        );
        seen |= 1 << sgi;
        gic::end(sgi);
    }
    check_eq!(stray(), SPURIOUS, "in the end");
    gic::set_priority(6, USUAL);
    clean();
    Ok(())
}
