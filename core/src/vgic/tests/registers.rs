// SPDX-License-Identifier: MIT OR Apache-2.0
//! Each register's reset value, and which bits are kept when all are written.

use super::super::Region;
use super::world::{SPIS, World};
use spumone_config::gic::{REDISTRIBUTOR_SIZE, SGI_FRAME};

/// What a register keeps of a write of all ones.
#[derive(Clone, Copy, Debug)]
enum Keeps {
    /// Reads as after reset.
    Nothing,
    /// These bits read as one.
    Bits(u64),
}
use Keeps::{Bits, Nothing};

fn check(region: Region, table: &[(u64, u8, u64, Keeps)]) {
    for &(offset, size, reset, keeps) in table {
        let mut world = World::new(2, 2, 4);
        world.load(0, 0);
        world.load(1, 1);
        let place = std::format!("{region:?} {offset:#x} size {size}");
        assert_eq!(world.read(0, region, offset, size), reset, "{place}");
        world.write(0, region, offset, size, u64::MAX);
        let expected = match keeps {
            Nothing => reset,
            Bits(bits) => bits,
        };
        assert_eq!(world.read(0, region, offset, size), expected, "{place}");
        // The write has changed no other state than that of interrupts.
        world.drain();
    }
}

const ALL: Keeps = Bits(0xffff_ffff);

#[test]
fn distributor() {
    check(
        Region::Distributor,
        &[
            (0x0000, 4, 0x50, Bits(0x53)),
            (0x0004, 4, u64::from(SPIS / 32) | 9 << 19 | 1 << 25, Nothing),
            (0x0008, 4, 0x5300_0000, Nothing),
            (0x000c, 4, 0, Nothing),
            (0x0010, 4, 0, Nothing), // STATUSR
            (0x0040, 4, 0, Nothing), // SETSPI_NSR
            (0x0048, 4, 0, Nothing), // CLRSPI_NSR
            (0x0080, 4, 0, Nothing), // IGROUPR0
            (0x0084, 4, 0, ALL),
            (0x0088, 4, 0, ALL),
            (0x008c, 4, 0, Nothing), // past the SPIs
            (0x0100, 4, 0, Nothing), // ISENABLER0
            (0x0104, 4, 0, ALL),
            (0x0184, 4, 0, Bits(0)),
            (0x0200, 4, 0, Nothing),
            (0x0204, 4, 0, ALL),
            (0x0284, 4, 0, Bits(0)),
            (0x0300, 4, 0, Nothing),
            (0x0304, 4, 0, ALL),
            (0x0384, 4, 0, Bits(0)),
            (0x0400, 4, 0, Nothing), // IPRIORITYR0
            (0x041c, 4, 0, Nothing),
            (0x0420, 4, 0, Bits(0xf8f8_f8f8)),
            (0x0421, 1, 0, Bits(0xf8)),
            (0x045f, 1, 0, Bits(0xf8)),
            (0x0460, 1, 0, Nothing),
            (0x0800, 4, 0, Nothing), // ITARGETSR
            (0x0820, 4, 0, Nothing),
            (0x0820, 1, 0, Nothing),
            (0x0c00, 4, 0, Nothing), // ICFGR0
            (0x0c04, 4, 0, Nothing),
            (0x0c08, 4, 0, Bits(0xaaaa_aaaa)),
            (0x0c14, 4, 0, Bits(0xaaaa_aaaa)),
            (0x0c18, 4, 0, Nothing),
            (0x0d04, 4, 0, Nothing), // IGRPMODR1
            (0x0e00, 4, 0, Nothing), // NSACR
            (0x0f00, 4, 0, Nothing), // SGIR
            (0x0f10, 4, 0, Nothing), // CPENDSGIR
            (0x6000, 8, 0, Nothing), // no IROUTER for SGIs
            (0x6100, 8, 0, Bits(0x00ff_ffff)),
            (0x6100, 4, 0, Bits(0x00ff_ffff)),
            (0x6104, 4, 0, Nothing),
            (0x62f8, 8, 0, Bits(0x00ff_ffff)),
            (0x6300, 8, 0, Nothing),
            (0xffe8, 4, 0x30, Nothing),
            (0xffd0, 4, 0, Nothing),
            (0xfffc, 4, 0, Nothing),
        ],
    );
}

#[test]
fn redistributor() {
    const SGI: u64 = SGI_FRAME;
    check(
        Region::Redistributors,
        &[
            (0x0000, 4, 0, Nothing), // CTLR
            (0x0004, 4, 0x5300_0000, Nothing),
            (0x0008, 8, 0, Nothing),
            (0x0010, 4, 0, Nothing), // STATUSR
            (0x0014, 4, 6, Nothing),
            (0x0070, 8, 0, Nothing), // PROPBASER
            (0xffe8, 4, 0x30, Nothing),
            (SGI + 0x080, 4, 0, ALL),
            (SGI + 0x084, 4, 0, Nothing),
            (SGI + 0x100, 4, 0, ALL),
            (SGI + 0x180, 4, 0, Bits(0)),
            (SGI + 0x200, 4, 0, ALL),
            (SGI + 0x280, 4, 0, Bits(0)),
            (SGI + 0x300, 4, 0, ALL),
            (SGI + 0x380, 4, 0, Bits(0)),
            (SGI + 0x400, 4, 0, Bits(0xf8f8_f8f8)),
            (SGI + 0x41f, 1, 0, Bits(0xf8)),
            (SGI + 0x420, 4, 0, Nothing),
            (SGI + 0xc00, 4, 0xaaaa_aaaa, Nothing),
            (SGI + 0xc04, 4, 0, Nothing),
            (SGI + 0xd00, 4, 0, Nothing), // IGRPMODR0
            (SGI + 0xe00, 4, 0, Nothing), // NSACR
        ],
    );
}

#[test]
fn another_vcpus_redistributor() {
    const OTHER: u64 = REDISTRIBUTOR_SIZE;
    check(
        Region::Redistributors,
        &[
            (OTHER + 0x0004, 4, 0x5300_0000, Nothing),
            // Affinity 1, processor number 1, last.
            (OTHER + 0x0008, 8, 1 << 32 | 1 << 8 | 1 << 4, Nothing),
            (OTHER + 0x0008, 4, 1 << 8 | 1 << 4, Nothing),
            (OTHER + 0x000c, 4, 1, Nothing),
            (OTHER + 0x0014, 4, 6, Nothing),
            (OTHER + 0xffe8, 4, 0x30, Nothing),
            (OTHER + 0x1_0080, 4, 0, Nothing),
            (OTHER + 0x1_0100, 4, 0, Nothing),
            (OTHER + 0x1_0200, 4, 0, Nothing),
            (OTHER + 0x1_0400, 4, 0, Nothing),
            // Past the vCPUs.
            (2 * OTHER + 0x0008, 8, 0, Nothing),
            (2 * OTHER + 0x0014, 4, 0, Nothing),
            (300 * OTHER + 0x0008, 8, 0, Nothing),
        ],
    );
}

#[test]
fn waker_mirrors_the_sleep_request() {
    let mut world = World::new(1, 1, 4);
    world.load(0, 0);
    world.write(0, Region::Redistributors, 0x14, 4, 0);
    assert_eq!(world.read(0, Region::Redistributors, 0x14, 4), 0);
    world.write(0, Region::Redistributors, 0x14, 4, 2);
    assert_eq!(world.read(0, Region::Redistributors, 0x14, 4), 6);
}

#[test]
fn set_and_clear_registers_change_only_the_bits_written() {
    let mut world = World::new(1, 1, 4);
    world.load(0, 0);
    for (set, clear) in [(0x100, 0x180), (0x200, 0x280), (0x300, 0x380)] {
        world.write_own(0, set, 0xff00_00f0);
        world.write_own(0, clear, 0x0f00_0010);
        assert_eq!(world.read_own(0, set), 0xf000_00e0);
        assert_eq!(world.read_own(0, clear), 0xf000_00e0);
        world.write_distributor(0, set + 4, 0xff00_00f0);
        world.write_distributor(0, clear + 4, 0x0f00_0010);
        assert_eq!(world.read_distributor(0, set + 4), 0xf000_00e0);
        assert_eq!(world.read_distributor(0, clear + 4), 0xf000_00e0);
    }
}

#[test]
fn a_byte_of_priority_is_that_of_one_interrupt() {
    let mut world = World::new(1, 1, 4);
    world.load(0, 0);
    world.write(0, Region::Distributor, 0x422, 1, 0xa3);
    world.write(0, Region::Distributor, 0x423, 1, 0x58);
    assert_eq!(world.read_distributor(0, 0x420), 0x58a0_0000);
    assert_eq!(world.read(0, Region::Distributor, 0x422, 1), 0xa0);
}

#[test]
fn other_sizes_and_alignments_are_ignored() {
    const SGI: u64 = SGI_FRAME;
    let mut world = World::new(1, 1, 4);
    world.load(0, 0);
    for (region, offset, size) in [
        (Region::Distributor, 0x0000, 1),
        (Region::Distributor, 0x0000, 8),
        (Region::Distributor, 0x0004, 2),
        (Region::Distributor, 0x0084, 1),
        (Region::Distributor, 0x0086, 2),
        (Region::Distributor, 0x0082, 4),
        (Region::Distributor, 0x0080, 8),
        (Region::Distributor, 0x0420, 2),
        (Region::Distributor, 0x0420, 8),
        (Region::Distributor, 0x0c08, 1),
        (Region::Distributor, 0x6100, 1),
        (Region::Distributor, 0x6102, 4),
        (Region::Distributor, 0x6104, 8),
        (Region::Distributor, 0xffe8, 1),
        (Region::Distributor, 0x1_0084, 4),
        (Region::Redistributors, 0x0008, 2),
        (Region::Redistributors, 0x000c, 8),
        (Region::Redistributors, 0x0014, 1),
        (Region::Redistributors, SGI + 0x101, 1),
        (Region::Redistributors, SGI + 0x400, 2),
        (Region::Redistributors, SGI + 0x100, 3),
    ] {
        assert_eq!(world.read(0, region, offset, size), 0, "{offset:#x}");
        world.write(0, region, offset, size, u64::MAX);
    }
    assert_eq!(world.read_distributor(0, 0), 0x50);
    assert_eq!(world.read_distributor(0, 0x84), 0);
    assert_eq!(world.read_distributor(0, 0x420), 0);
    assert_eq!(world.read(0, Region::Distributor, 0x6100, 8), 0);
    assert_eq!(world.read_own(0, 0x100), 0);
    assert_eq!(world.read_own(0, 0x400), 0);
}
