// SPDX-License-Identifier: MIT OR Apache-2.0
//! `role=write`: fills all registers with patterns.

use super::buffers::{Buffers, publish};
use super::encoding::{Direction, Encoding, SCTLR_EL1, Set};
use super::hold::Hold;
use super::look::{Into, JUMP_US};
use super::sweep::Level;
use super::{quit, stubs};
use crate::machine::bootargs;
use crate::machine::psci::function;
use crate::machine::sysreg::mrs;
use crate::machine::time::us;
use crate::machine::uart::say;
use crate::report::{Failure, Verdict, check, record};

/// Each bit of a register is set once and clear once. In neither are the lowest bits all clear: in `ICC_BPR1_EL1` that ends
/// QEMU (docs/caveats.md).
const PATTERNS: [u64; 2] = [0xAAAA_AAAA_AAAA_AAAA, 0x5555_5555_5555_5555];
/// Longest time to wait for the other guest, in seconds.
const PATIENCE_S: u64 = 60;

/// Runs the role.
pub fn run() {
    // Before anything in this program causes an exception.
    let of_exceptions = [
        ("ELR_EL1", mrs!(ELR_EL1)),
        ("SPSR_EL1", mrs!(SPSR_EL1)),
        ("ESR_EL1", mrs!(ESR_EL1)),
        ("FAR_EL1", mrs!(FAR_EL1)),
    ];
    say!("life-begins");
    for (name, value) in of_exceptions {
        say!("at-start {name} {value:#x}");
    }
    let mut buffers = Buffers::new();
    buffers.find_readable(Level::El1);
    list(&mut buffers);
    let verdict = if quit() { Ok(()) } else { write(&mut buffers) };
    record("registers-written", verdict);
}

/// Lists all registers.
fn list(buffers: &mut Buffers) {
    let stable = buffers.list_stable();
    buffers.read(Into::Before);
    for (place, encoding) in stable.iter().enumerate() {
        say!("at-start {encoding} {:#x}", buffers.before[place]);
    }
    say!("life-listed");
}

fn write(buffers: &mut Buffers) -> Verdict {
    stubs::make(buffers.write_stubs, Direction::Write);
    publish(buffers.write_stubs);
    buffers.sweep(Level::El1, Direction::Write, PATTERNS[0]);
    programs_reach_no_more(buffers)?;
    let jumps = bootargs::number_or("jumps", 12);
    let kept = make_lists(buffers);
    for pattern in PATTERNS {
        hold(buffers, &kept, pattern, jumps, None)?;
    }
    if jumps != 0 {
        hold(
            buffers,
            &kept,
            PATTERNS[0],
            jumps,
            Some(function::SYSTEM_RESET),
        )?;
    }
    Ok(())
}

/// EL0 must not access what EL1 cannot.
fn programs_reach_no_more(buffers: &mut Buffers) -> Verdict {
    buffers.find_readable(Level::El0);
    buffers.sweep(Level::El0, Direction::Write, PATTERNS[0]);
    let mut counts = [0; 4];
    for encoding in Encoding::all() {
        let can = |level, direction| buffers.is_accessible(level, direction, encoding.index());
        let reads = [Level::El1, Level::El0].map(|level| can(level, Direction::Read));
        let writes = [Level::El1, Level::El0].map(|level| can(level, Direction::Write));
        check!(reads[0] || !reads[1], "{encoding} can be read at EL0 only");
        check!(
            writes[0] || !writes[1],
            "{encoding} can be written at EL0 only"
        );
        for (count, can) in counts
            .iter_mut()
            .zip([reads[0], writes[0], reads[1], writes[1]])
        {
            *count += u64::from(can);
        }
    }
    let [reads, writes, program_reads, program_writes] = counts;
    say!(
        "registers-found reads={reads} writes={writes} program-reads={program_reads} \
         program-writes={program_writes}"
    );
    Ok(())
}

/// Registers that can be written.
fn is_writable(buffers: &Buffers, encoding: Encoding) -> bool {
    encoding.op0() >= 2 && buffers.is_accessible(Level::El1, Direction::Write, encoding.index())
}

/// Registers that can be restored: readable and writable.
fn is_restorable(buffers: &Buffers, encoding: Encoding) -> bool {
    is_writable(buffers, encoding)
        && buffers.is_accessible(Level::El1, Direction::Read, encoding.index())
}

/// Registers that are to keep the pattern, and can be read while others have it.
fn is_kept(buffers: &Buffers, encoding: Encoding) -> bool {
    buffers.is_accessible(Level::El1, Direction::Read, encoding.index())
        && encoding.op0() >= 2
        && !encoding.is_volatile()
        && !encoding.is_floating_point()
}

/// Makes the lists that fill, read and restore the registers; returns the encodings of the list that reads.
fn make_lists(buffers: &mut Buffers) -> Set {
    let writable = Set::of(|encoding| is_writable(buffers, encoding));
    let restorable = Set::of(|it| is_restorable(buffers, it) && it != SCTLR_EL1);
    let kept = Set::of(|encoding| is_kept(buffers, encoding));
    stubs::make_fill_list(buffers.fill_list, writable.iter());
    stubs::make_restore_list(buffers.restore_list, restorable.iter());
    // The current values are those to restore.
    stubs::make_read_list(buffers.read_list, restorable.iter());
    publish(buffers.read_list);
    buffers.read(Into::Before);
    let count = restorable.iter().count();
    buffers.values[..count].copy_from_slice(&buffers.before[..count]);
    stubs::make_read_list(buffers.read_list, kept.iter());
    kept
}

/// Keeps a pattern in all registers; demands that they do not change.
fn hold(
    buffers: &mut Buffers,
    kept: &Set,
    pattern: u64,
    jumps: u64,
    ends_with: Option<u64>,
) -> Verdict {
    let mut hold = Hold::new(buffers, pattern);
    hold.jumps = jumps;
    hold.jump = us(JUMP_US);
    hold.most = us(PATIENCE_S * 1_000_000);
    hold.ends_with = ends_with.unwrap_or(0);
    let seen = hold.run(buffers);
    say!("held pattern={pattern:#x} turns={seen}");
    check!(
        seen >= jumps,
        "the other guest had the core {seen} times only"
    );
    let mut lost = None;
    for (place, encoding) in kept.iter().enumerate() {
        let (before, after) = (buffers.before[place], buffers.after[place]);
        if before != after {
            say!("register-lost {encoding} from={before:#x} to={after:#x}");
            lost = Some(encoding);
        }
    }
    match lost {
        None => Ok(()),
        Some(encoding) => Err(Failure::new(format_args!(
            "{encoding} has changed meanwhile"
        ))),
    }
}
