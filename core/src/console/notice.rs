// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the hypervisor says about guests: lines of one core, written in short steps.
//!
//! A guest chooses when such a line is due, and a whole line takes thousands of instructions. So it is only noted, and each
//! [`Notices::step`] writes a few bytes of it.

use crate::psci::StopReason;
use crate::text::Part;
use crate::trap::FaultReport;
use heapless::Deque;
use spumone_config::types::{GuestId, MAX_GUESTS};

/// How many lines can wait. Further ones are dropped.
const WAITING: usize = 4 * MAX_GUESTS;
/// Bytes that one step writes at most.
const BYTES_PER_STEP: usize = 8;

/// What a line is about.
#[derive(Clone, Copy, Debug)]
pub enum Subject<'a> {
    /// The guest did what it may not.
    Fault(FaultReport<'a>),
    /// The guest has stopped for this reason, and stays so.
    Stopped(StopReason),
    /// The guest restarts.
    Restarts,
    /// The guest's driver of the link with this number has broken the rules.
    BreaksRules(u8),
    /// The guest's driver of the link with this number has not accepted what frames for it need.
    TakesNoOffloads(u8),
}

/// A line about a guest.
#[derive(Clone, Copy, Debug)]
pub struct Notice<'a> {
    /// The guest.
    pub guest: GuestId,
    /// Its name.
    pub name: &'a str,
    /// What the line says about it.
    pub subject: Subject<'a>,
}

impl<'a> Notice<'a> {
    /// The part of the line at this index, which may be empty; `None` behind the last one.
    fn part(&self, index: usize) -> Option<Part<'a>> {
        let (text, link) = match self.subject {
            Subject::Fault(report) => return report.part(index),
            Subject::Stopped(StopReason::Off) => (" is off", None),
            Subject::Stopped(StopReason::Reset) => (" is reset", None),
            Subject::Stopped(StopReason::Fault) => (" was stopped", None),
            Subject::Restarts => (" restarts", None),
            Subject::BreaksRules(link) => (
                " breaks the rules of virtio; the device is down until it is reset",
                Some(link),
            ),
            Subject::TakesNoOffloads(link) => (
                " takes no offloads, and frames that need them are lost; write offloads = false in this [[link]]",
                Some(link),
            ),
        };
        let part = match index {
            0 => Some(Part::Text("guest ")),
            1 => Some(Part::Text(self.name)),
            2 => link.map(|_| Part::Text(": its driver of link ")),
            3 => link.map(Part::Decimal),
            4 => Some(Part::Text(text)),
            _ => return None,
        };
        Some(part.unwrap_or(Part::Text("")))
    }
}

/// The lines of one core that are not yet written.
#[derive(Debug, Default)]
pub struct Notices<'a> {
    waiting: Deque<Notice<'a>, WAITING>,
    /// The part of the first line that is being written, and how many of its bytes are.
    part: usize,
    written: usize,
}

impl<'a> Notices<'a> {
    /// No lines.
    pub const fn new() -> Self {
        Self {
            waiting: Deque::new(),
            part: 0,
            written: 0,
        }
    }

    /// Notes a line, or drops it if too many wait.
    pub fn note(&mut self, notice: Notice<'a>) {
        let _ = self.waiting.push_back(notice);
    }

    /// Whether nothing is left to write.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The guests that the lines are about; bit n for guest n.
    pub fn guests(&self) -> u32 {
        let guests = self.waiting.iter().map(|it| 1 << it.guest.0);
        guests.fold(0, |all, guest: u32| all | guest)
    }

    /// Passes the next bytes, in the end a newline, to `push`.
    pub fn step(&mut self, mut push: impl FnMut(u8)) {
        let Some(notice) = self.waiting.front() else {
            return;
        };
        for _ in 0..BYTES_PER_STEP {
            match notice.part(self.part).map(|part| part.byte(self.written)) {
                Some(Some(byte)) => {
                    push(byte);
                    self.written += 1;
                }
                // Counts as a byte, so that empty parts are bounded as well.
                Some(None) => {
                    self.part += 1;
                    self.written = 0;
                }
                None => {
                    push(b'\n');
                    self.part = 0;
                    let _ = self.waiting.pop_front();
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::trap::{Place, Syndrome};
    use spumone_config::types::GuestAddr;
    use std::string::{String, ToString as _};

    fn notice(guest: u8, subject: Subject<'_>) -> Notice<'_> {
        Notice {
            guest: GuestId(guest),
            name: "linux",
            subject,
        }
    }

    fn read(notices: &mut Notices<'_>) -> String {
        let mut text = String::new();
        for _ in 0..10_000 {
            if notices.is_empty() {
                return text;
            }
            let before = text.len();
            notices.step(|byte| text.push(char::from(byte)));
            assert!(text.len() - before <= BYTES_PER_STEP);
        }
        panic!("the lines do not end");
    }

    #[test]
    fn lines_are_whole_and_in_order() {
        let report = FaultReport {
            guest: "linux",
            vcpu: 1,
            syndrome: Syndrome(0x9382_0046),
            pc: 0xffff_8000_080a_1b2c,
            far: 0x1000,
            instruction: None,
            place: Place::Memory(GuestAddr(0x904_0030), Some("uart1")),
        };
        let mut notices = Notices::new();
        let subjects = [
            Subject::Fault(report),
            Subject::Stopped(StopReason::Off),
            Subject::Stopped(StopReason::Reset),
            Subject::Stopped(StopReason::Fault),
            Subject::Restarts,
            Subject::BreaksRules(7),
        ];
        for subject in subjects {
            notices.note(notice(2, subject));
        }
        notices.note(notice(5, Subject::TakesNoOffloads(10)));
        assert_eq!(notices.guests(), 1 << 2 | 1 << 5);
        let expected = report.to_string()
            + "\nguest linux is off\n\
               guest linux is reset\n\
               guest linux was stopped\n\
               guest linux restarts\n\
               guest linux: its driver of link 7 breaks the rules of virtio; the device is down until it is reset\n\
               guest linux: its driver of link 10 takes no offloads, and frames that need them are lost; \
               write offloads = false in this [[link]]\n";
        assert_eq!(read(&mut notices), expected);
        assert_eq!(notices.guests(), 0);
    }

    #[test]
    fn lines_beyond_the_limit_are_dropped() {
        let mut notices = Notices::new();
        for _ in 0..100 {
            notices.note(notice(0, Subject::Restarts));
        }
        assert_eq!(read(&mut notices), "guest linux restarts\n".repeat(WAITING));
    }
}
