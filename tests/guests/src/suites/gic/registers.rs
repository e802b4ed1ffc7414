// SPDX-License-Identifier: MIT OR Apache-2.0
//! Identification, writable and read-only fields, offsets without registers.

use crate::machine::gic::{self, FREE_SPI, GICD, REDISTRIBUTOR_SIZE, register};
use crate::machine::mmio::{read8, read32, read64, write8, write32, write64};
use crate::machine::sysreg::{cpu, mrs, msr};
use crate::report::{Verdict, check, check_eq, test, test_everywhere};
use spumone_config::gic::VIRTUAL_TIMER;

/// Bits 7 to 4 of PIDR2.
const GICV3: u32 = 3;

pub fn run(cpus: usize) {
    test("gicd-identification", distributor_identification);
    test("gicd-ctlr", distributor_control);
    test("gicr-walk", redistributors);
    test("gicd-private-raz-wi", private_registers_in_distributor);
    test("gicd-legacy-raz-wi", legacy_registers);
    test("gicd-reserved", reserved);
    test("gicd-spi-fields", spi_fields);
    test("gicd-irouter", routes);
    test_everywhere("gicr-waker", cpus, waker);
    test_everywhere("gicr-fields", cpus, private_fields);
    test_everywhere("icc-registers", cpus, interface);
    test_everywhere("gicr-cross-access", cpus, other_redistributor);
}

fn distributor_identification() -> Verdict {
    check_eq!(read32(GICD + register::PIDR2) >> 4 & 0xF, GICV3, "ArchRev");
    let kind = read32(GICD + register::TYPER);
    let spis = 32 * (kind & 0x1F);
    check!(spis > FREE_SPI - 32, "TYPER {kind:#x} has {spis} SPIs only");
    check!(
        kind >> 19 & 0x1F >= 9,
        "TYPER {kind:#x}: fewer than 10 bits of INTID"
    );
    let implementer = read32(GICD + register::IIDR);
    for value in [0, !0, 0x5555_5555] {
        for offset in [register::TYPER, register::IIDR, register::PIDR2] {
            write32(GICD + offset, value);
        }
        check_eq!(read32(GICD + register::TYPER), kind, "TYPER after a write");
        check_eq!(
            read32(GICD + register::IIDR),
            implementer,
            "IIDR after a write"
        );
        check_eq!(
            read32(GICD + register::PIDR2) >> 4 & 0xF,
            GICV3,
            "PIDR2 after a write"
        );
    }
    Ok(())
}

fn distributor_control() -> Verdict {
    let address = GICD + register::CTLR;
    let groups = gic::ENABLE_GROUP_0 | gic::ENABLE_GROUP_1;
    for wanted in [0, gic::ENABLE_GROUP_0, gic::ENABLE_GROUP_1, groups] {
        write32(address, gic::ARE | wanted);
        gic::complete();
        let value = read32(address);
        check_eq!(value & groups, wanted, "the groups enabled");
        check!(
            value & gic::ARE != 0,
            "CTLR {value:#x}: affinity routing is off"
        );
        check!(value & gic::DS != 0, "CTLR {value:#x}: two Security states");
    }
    Ok(())
}

fn redistributors() -> Verdict {
    let mut base = gic::GICR;
    for expected in 0.. {
        let kind = read64(base + register::GICR_TYPER);
        let halves = u64::from(read32(base + register::GICR_TYPER))
            | u64::from(read32(base + register::GICR_TYPER + 4)) << 32;
        check_eq!(halves, kind, "TYPER of {expected} in two halves");
        check_eq!(kind >> 32, expected, "TYPER.Affinity_Value");
        check_eq!(kind >> 8 & 0xFFFF, expected, "TYPER.Processor_Number");
        check_eq!(
            read32(base + register::PIDR2) >> 4 & 0xF,
            GICV3,
            "ArchRev of {expected}"
        );
        if kind & 1 << 4 != 0 {
            break;
        }
        base += REDISTRIBUTOR_SIZE;
    }
    let found = (base - gic::GICR) / REDISTRIBUTOR_SIZE + 1;
    check_eq!(
        found,
        crate::machine::cpus::count() as u64,
        "redistributors"
    );
    Ok(())
}

/// With affinity routing, SGIs and PPIs are in the redistributors only.
fn private_registers_in_distributor() -> Verdict {
    let registers = [
        register::IGROUPR,
        register::ISENABLER,
        register::ISPENDR,
        register::ISACTIVER,
        register::IPRIORITYR,
        register::IPRIORITYR + 28,
    ];
    for offset in registers {
        write32(GICD + offset, !0);
        check_eq!(read32(GICD + offset), 0, "GICD offset {offset:#x}");
    }
    check_eq!(gic::acknowledge(), gic::SPURIOUS, "after writes to them");
    Ok(())
}

fn legacy_registers() -> Verdict {
    const ITARGETSR: u64 = 0x800;
    const SGIR: u64 = 0xF00;
    const TO_SELF: u32 = 2 << 24;
    for offset in [ITARGETSR, ITARGETSR + 32, ITARGETSR + u64::from(FREE_SPI)] {
        write32(GICD + offset, !0);
        check_eq!(read32(GICD + offset), 0, "GICD_ITARGETSR at {offset:#x}");
    }
    write32(GICD + SGIR, TO_SELF | 5);
    check_eq!(super::stray(), gic::SPURIOUS, "after a write to GICD_SGIR");
    Ok(())
}

/// Reserved registers read as zero and ignore writes; an access does not fault.
fn reserved() -> Verdict {
    for offset in [
        0x0C,
        0x20,
        0x3C,
        0x100_u64 + 0x7C,
        0xE00,
        0x1000,
        0x5FFC,
        0xC000,
        0xFFD0,
    ] {
        write32(GICD + offset, 0);
        let _ = read32(GICD + offset);
    }
    let own = gic::redistributor(cpu());
    for offset in [
        0x00, 0x10, 0x18, 0x1000, 0xFF00, 0x1_0004, 0x1_0184, 0x1_1000, 0x1_FFFC,
    ] {
        let _ = read32(own + offset);
    }
    check_eq!(read32(GICD + 0x1000), 0, "GICD offset 0x1000");
    check_eq!(read32(own + 0x1_1000), 0, "SGI frame offset 0x1000");
    Ok(())
}

fn spi_fields() -> Verdict {
    gic::stop_spi(FREE_SPI);
    for (set, clear) in [
        (register::ISENABLER, register::ICENABLER),
        (register::ISPENDR, register::ICPENDR),
        (register::ISACTIVER, register::ICACTIVER),
    ] {
        gic::set_bit(clear, FREE_SPI);
        check!(
            !gic::bit(set, FREE_SPI),
            "the bit at {clear:#x} does not clear"
        );
        gic::set_bit(register::ICENABLER, FREE_SPI);
        gic::set_bit(set, FREE_SPI);
        check!(gic::bit(set, FREE_SPI), "the bit at {set:#x} does not set");
        check!(gic::bit(clear, FREE_SPI), "the bit at {clear:#x} reads 0");
        gic::set_word(set, FREE_SPI, 0);
        check!(gic::bit(set, FREE_SPI), "writing 0 at {set:#x} clears");
        gic::set_bit(clear, FREE_SPI);
        check!(
            !gic::bit(set, FREE_SPI),
            "the bit at {clear:#x} does not clear"
        );
    }
    for group_1 in [false, true] {
        gic::set_group(FREE_SPI, group_1);
        check_eq!(gic::bit(register::IGROUPR, FREE_SPI), group_1, "group");
    }
    for edge in [false, true] {
        gic::set_edge(FREE_SPI, edge);
        let config = read32(GICD + register::ICFGR + u64::from(FREE_SPI / 16 * 4));
        check_eq!(config >> (FREE_SPI % 16 * 2 + 1) & 1 != 0, edge, "ICFGR");
    }
    priorities(GICD + register::IPRIORITYR + u64::from(FREE_SPI))
}

/// Four interrupts from this address on have at least 5 bits of priority (as Linux needs), all
/// the same number, written and read as bytes or as a word.
fn priorities(address: u64) -> Verdict {
    write8(address, 0xFF);
    let bits = read8(address);
    check!(bits & 0xF8 == 0xF8, "priority bits {bits:#x}");
    write32(address, 0x2060_A0E0);
    check_eq!(read32(address), 0x2060_A0E0, "priorities as a word");
    for (offset, wanted) in [0xE0, 0xA0, 0x60, 0x20].into_iter().enumerate() {
        check_eq!(
            read8(address + offset as u64),
            wanted,
            "priority {offset} as a byte"
        );
    }
    write8(address + 2, 0x48);
    check_eq!(read32(address), 0x2048_A0E0, "after a byte was written");
    write32(address, 0xA0A0_A0A0);
    Ok(())
}

fn routes() -> Verdict {
    let address = GICD + register::IROUTER + u64::from(FREE_SPI) * 8;
    for value in [0, 1, 3, 0x00_02_01] {
        write64(address, value);
        check_eq!(read64(address), value, "IROUTER");
        check_eq!(u64::from(read32(address)), value, "IROUTER's low half");
        check_eq!(read32(address + 4), 0, "IROUTER's high half");
    }
    write32(address, 2);
    check_eq!(gic::routed_to(FREE_SPI), 2, "IROUTER written by half");
    write64(address, 0);
    // INTIDs below 32 have none.
    write64(GICD + register::IROUTER + 8, 1);
    check_eq!(read64(GICD + register::IROUTER + 8), 0, "IROUTER of an SGI");
    Ok(())
}

fn waker() -> Verdict {
    const PROCESSOR_SLEEP: u32 = 1 << 1;
    const CHILDREN_ASLEEP: u32 = 1 << 2;
    let address = gic::redistributor(cpu()) + register::WAKER;
    write32(address, 0);
    let value = read32(address);
    check_eq!(
        value & (PROCESSOR_SLEEP | CHILDREN_ASLEEP),
        0,
        "WAKER, awake"
    );
    Ok(())
}

fn private_fields() -> Verdict {
    super::clean();
    const SGI: u32 = 6;
    const PPI: u32 = VIRTUAL_TIMER.0 as u32;
    for interrupt in [SGI, PPI] {
        for (set, clear) in [
            (register::ISENABLER, register::ICENABLER),
            (register::ISACTIVER, register::ICACTIVER),
        ] {
            gic::set_bit(clear, interrupt);
            check!(
                !gic::bit(set, interrupt),
                "{interrupt}: {clear:#x} does not clear"
            );
            gic::set_bit(set, interrupt);
            check!(
                gic::bit(set, interrupt),
                "{interrupt}: {set:#x} does not set"
            );
            check!(
                gic::bit(clear, interrupt),
                "{interrupt}: {clear:#x} reads 0"
            );
            gic::set_word(clear, interrupt, 0);
            check!(
                gic::bit(set, interrupt),
                "{interrupt}: writing 0 at {clear:#x} clears"
            );
            gic::set_bit(clear, interrupt);
        }
        for group_1 in [false, true] {
            gic::set_group(interrupt, group_1);
            check_eq!(
                gic::bit(register::IGROUPR, interrupt),
                group_1,
                "group of {interrupt}"
            );
        }
    }
    let frame = gic::redistributor(cpu()) + 0x1_0000;
    for first in [0, 4, 24, 28] {
        priorities(frame + register::IPRIORITYR + first)?;
    }
    // SGIs are always edge-triggered.
    write32(frame + register::ICFGR, 0);
    check_eq!(read32(frame + register::ICFGR), 0xAAAA_AAAA, "ICFGR0");
    super::clean();
    Ok(())
}

fn interface() -> Verdict {
    super::clean();
    check!(mrs!(ICC_SRE_EL1) & 1 != 0, "system registers are off");
    let bits = (mrs!(ICC_CTLR_EL1) >> 8 & 7) + 1;
    check!(bits >= 5, "{bits} bits of priority");
    for priority in [0x80, 0xF0, 0x00] {
        msr!(ICC_PMR_EL1, priority);
        check_eq!(mrs!(ICC_PMR_EL1), priority, "PMR");
    }
    for enabled in [0, 1] {
        msr!(ICC_IGRPEN0_EL1, enabled);
        check_eq!(mrs!(ICC_IGRPEN0_EL1), enabled, "IGRPEN0");
        msr!(ICC_IGRPEN1_EL1, enabled);
        check_eq!(mrs!(ICC_IGRPEN1_EL1), enabled, "IGRPEN1");
    }
    msr!(ICC_BPR1_EL1, 5);
    check_eq!(mrs!(ICC_BPR1_EL1), 5, "BPR1");
    msr!(ICC_BPR1_EL1, 0);
    check!(mrs!(ICC_BPR1_EL1) > 0, "BPR1 has no least value");
    for mode in [2, 0] {
        msr!(ICC_CTLR_EL1, mode);
        check_eq!(mrs!(ICC_CTLR_EL1) & 2, mode, "CTLR.EOImode");
    }
    check_eq!(mrs!(ICC_RPR_EL1), gic::IDLE, "RPR");
    check_eq!(mrs!(ICC_HPPIR1_EL1) as u32, gic::SPURIOUS, "HPPIR1");
    check_eq!(mrs!(ICC_HPPIR0_EL1) as u32, gic::SPURIOUS, "HPPIR0");
    super::clean();
    Ok(())
}

/// The registers of another CPU's redistributor can be accessed from this one, at least those that
/// identify it.
fn other_redistributor() -> Verdict {
    let cpus = crate::machine::cpus::count();
    for other in 0..cpus {
        let base = gic::redistributor(other);
        check_eq!(
            read64(base + register::GICR_TYPER) >> 32,
            other as u64,
            "TYPER of {other}"
        );
        let _ = read32(base + register::WAKER);
        let _ = read32(base + 0x1_0000 + register::ISENABLER);
    }
    Ok(())
}
