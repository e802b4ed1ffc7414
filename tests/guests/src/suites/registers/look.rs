// SPDX-License-Identifier: MIT OR Apache-2.0
//! `role=look`: reads all registers again and again, and writes none.

use super::buffers::{Buffers, publish};
use super::encoding::{Direction, Set};
use super::sweep::Level;
use super::{quit, stubs};
use crate::machine::time::{now, us};
use crate::machine::uart::say;
use crate::report::{Verdict, check_eq, record};

/// A jump of the counter by this many microseconds counts as a turn: another guest had the core.
pub const JUMP_US: u64 = 500;

/// Runs the role.
pub fn run() {
    let mut buffers = Buffers::new();
    buffers.find_readable(Level::El1);
    record("registers-unchanged", look(&mut buffers));
}

impl Buffers {
    /// Finds out what can be read at a level.
    pub fn find_readable(&mut self, level: Level) {
        if level == Level::El1 {
            stubs::make(self.read_stubs, Direction::Read);
            publish(self.read_stubs);
        }
        self.sweep(level, Direction::Read, 0);
    }

    /// What can be read at EL1 and keeps its value unless it is written; makes the list by which
    /// [`Self::read`] reads all of it.
    pub fn list_stable(&mut self) -> Set {
        let stable = Set::of(|encoding| {
            !encoding.is_volatile()
                && self.is_accessible(Level::El1, Direction::Read, encoding.index())
        });
        stubs::make_read_list(self.read_list, stable.iter());
        publish(self.read_list);
        stable
    }

    /// Reads the list into `before` or `after`.
    pub fn read(&mut self, into: Into) {
        let into = match into {
            Into::Before => self.before.as_mut_ptr(),
            Into::After => self.after.as_mut_ptr(),
        };
        // SAFETY: the list reads registers into as many words. It follows the calling convention of C, and
        // uses x0 and x1 only.
        unsafe {
            let code: extern "C" fn(u64, *mut u64) = core::mem::transmute(self.read_list.as_ptr());
            code(0, into);
        }
    }
}

/// Where the values are stored.
#[derive(Clone, Copy)]
pub enum Into {
    /// To `before`.
    Before,
    /// To `after`.
    After,
}

fn look(buffers: &mut Buffers) -> Verdict {
    let stable = buffers.list_stable();
    let count = stable.iter().count();
    buffers.read(Into::Before);
    say!("look-begins registers={count}");
    let (mut looks, mut turns) = (0_u64, 0_u64);
    let mut changed = Set::of(|_| false);
    let mut last = now();
    while !quit() {
        buffers.read(Into::After);
        looks += 1;
        let time = now();
        turns += u64::from(time - last >= us(JUMP_US));
        last = time;
        if buffers.before[..count] != buffers.after[..count] {
            report(buffers, &stable, &mut changed);
        }
    }
    say!("look-result looks={looks} turns={turns}");
    check_eq!(changed.iter().count(), 0, "registers that have changed");
    Ok(())
}

/// Reports each register that has changed, once.
fn report(buffers: &mut Buffers, stable: &Set, changed: &mut Set) {
    for (place, encoding) in stable.iter().enumerate() {
        let (before, after) = (buffers.before[place], buffers.after[place]);
        if before != after && !changed.has(encoding) {
            say!("register-changed {encoding} from={before:#x} to={after:#x}");
            changed.add(encoding);
        }
        buffers.before[place] = after;
    }
}
