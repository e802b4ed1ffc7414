// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the hypervisor says about guests: lines of one core, written in short steps.
//!
//! A guest chooses when such a line is due, and a whole line takes thousands of instructions. So it is only noted, and each
//! [`Notices::step`] writes a few bytes of it. A line about a guest is begun only in a band that the guest may delay.

use crate::load::Wrong;
use crate::protect::Changed;
use crate::psci::StopReason;
use crate::text::Part;
use crate::trap::FaultReport;
use heapless::Vec;
use spumone_config::types::{GuestId, MAX_GUESTS};

/// How many lines can wait. Further ones are dropped.
const WAITING: usize = 4 * MAX_GUESTS;
/// How many lines may wait if one about a driver is to be added: drivers of other cores' guests leave room for the others.
const WAITING_FOR_DRIVERS: usize = WAITING / 2;
/// Room for the longest line. A line for which the console has less is dropped as a whole.
const LONGEST: usize = 256;
/// Bytes that one step writes at most.
const BYTES_PER_STEP: usize = 2;

/// What a line is about.
#[derive(Clone, Copy, Debug)]
pub enum Subject<'a> {
    /// The guest did what it may not.
    Fault(FaultReport<'a>),
    /// The guest cannot run: this part of what was loaded does not have its hash.
    Unverified(Wrong),
    /// This part of the guest's protected memory has changed while it ran.
    Tampered(Changed),
    /// The guest has stopped for this reason, and stays so.
    Stopped(StopReason),
    /// The guest restarts, having ended for this reason.
    Restarts(StopReason),
    /// The guest would restart, but has done so too often.
    RestartsTooOften(StopReason),
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
            Subject::Unverified(wrong) => return self.unverified(wrong, index),
            Subject::Tampered(changed) => return self.tampered(changed, index),
            Subject::Stopped(StopReason::Off) => (" is off", None),
            Subject::Stopped(StopReason::Reset | StopReason::Operator) => (" is reset", None),
            Subject::Stopped(StopReason::Fault | StopReason::Unverified | StopReason::Tampered) => {
                (" was stopped", None)
            }
            Subject::Stopped(StopReason::Watchdog) => {
                (" was stopped: its watchdog has expired", None)
            }
            Subject::Restarts(StopReason::Watchdog) => {
                (" restarts: its watchdog has expired", None)
            }
            Subject::Restarts(_) => (" restarts", None),
            Subject::RestartsTooOften(StopReason::Watchdog) => (
                " was stopped: its watchdog has expired, and it has ended more often than its restarts allow",
                None,
            ),
            Subject::RestartsTooOften(_) => (
                " was stopped: it has ended more often than its restarts allow",
                None,
            ),
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

    /// The same of a line about a part that does not have its hash.
    fn unverified(&self, wrong: Wrong, index: usize) -> Option<Part<'a>> {
        Some(match (index, wrong.page) {
            (0, _) => Part::Text("guest "),
            (1, _) => Part::Text(self.name),
            (2, _) => Part::Text(": "),
            (3, _) => Part::Text(wrong.content.name()),
            (4, None) => Part::Text(": the list of hashes"),
            (4, Some(_)) => Part::Text(": the page at "),
            (5, None) => Part::Text(""),
            (5, Some(page)) => Part::Hex {
                value: page.0,
                digits: 1,
            },
            (6, _) => Part::Text(
                " differs from its hash, so the guest does not start: build the image again",
            ),
            _ => return None,
        })
    }

    /// The same of a line about a page that has changed.
    fn tampered(&self, changed: Changed, index: usize) -> Option<Part<'a>> {
        let address = |value| Part::Hex { value, digits: 1 };
        Some(match index {
            0 => Part::Text("guest "),
            1 => Part::Text(self.name),
            2 => Part::Text(": the page at "),
            3 => address(changed.page.0),
            4 => Part::Text(", machine address "),
            5 => address(changed.at.0),
            6 => Part::Text(", has changed while the guest ran: it differs from its hash"),
            _ => return None,
        })
    }
}

/// The lines of one core that are not yet written.
#[derive(Debug, Default)]
pub struct Notices<'a> {
    lines: [Option<Notice<'a>>; WAITING],
    /// The places in `lines` that have one, in the order in which the lines were noted.
    order: Vec<u8, WAITING>,
    /// The guests that the lines are about; bit n for guest n. Could be found from the lines, which takes longer than a step should.
    guests: u32,
    /// The place in `order` of the line that is being written.
    begun: Option<usize>,
    /// The part of that line that is being written, and how many of its bytes are.
    part: usize,
    written: usize,
}

impl<'a> Notices<'a> {
    /// No lines.
    pub const fn new() -> Self {
        Self {
            lines: [const { None }; WAITING],
            order: Vec::new(),
            guests: 0,
            begun: None,
            part: 0,
            written: 0,
        }
    }

    /// Notes a line, or drops it if too many wait. Returns whether it was noted.
    pub fn note(&mut self, notice: Notice<'a>) -> bool {
        let is_of_driver = matches!(
            notice.subject,
            Subject::BreaksRules(_) | Subject::TakesNoOffloads(_)
        );
        if is_of_driver && self.order.len() >= WAITING_FOR_DRIVERS {
            return false;
        }
        // At most 32 times: lines.
        let Some(place) = self.lines.iter().position(Option::is_none) else {
            return false;
        };
        self.guests |= 1 << notice.guest.0;
        self.lines[place] = Some(notice);
        self.order.push(place as u8).is_ok()
    }

    /// Whether nothing is left to write about one of these guests; bit n for guest n.
    pub fn are_written(&self, guests: u32) -> bool {
        self.guests() & guests == 0
    }

    /// The guests that the lines are about; bit n for guest n.
    pub const fn guests(&self) -> u32 {
        self.guests
    }

    /// Passes the next bytes of a line about one of these guests, in the end a newline, to `push`; but first ends the line that has
    /// begun. `room`: how many bytes there is room for. Returns whether a line has ended.
    pub fn step(&mut self, guests: u32, room: usize, mut push: impl FnMut(u8)) -> bool {
        let begun = self.begun.or_else(|| self.begin(guests, room));
        let Some(place) = begun else {
            return true;
        };
        let line = self.order.get(place).map_or(0, |&line| usize::from(line));
        let Some(notice) = &self.lines[line % WAITING] else {
            return true;
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
                    self.remove(place);
                    self.begun = None;
                    return true;
                }
            }
        }
        false
    }

    /// Begins the first line about one of these guests, and returns its place. Drops that line if the console has too little room for it.
    fn begin(&mut self, guests: u32, room: usize) -> Option<usize> {
        // At most 32 times: lines that wait.
        let place = (0..self.order.len()).find(|&place| {
            let line = self.line(place);
            line.is_some_and(|it| guests >> it.guest.0 & 1 != 0)
        })?;
        if room < LONGEST {
            self.remove(place);
            return None;
        }
        (self.part, self.written) = (0, 0);
        self.begun = Some(place);
        self.begun
    }

    /// The line at this place of the order.
    fn line(&self, place: usize) -> Option<&Notice<'a>> {
        let &line = self.order.get(place)?;
        self.lines.get(usize::from(line))?.as_ref()
    }

    /// Removes the line at this place of the order.
    fn remove(&mut self, place: usize) {
        let line = usize::from(self.order.remove(place));
        self.lines[line % WAITING] = None;
        let left = (0..self.order.len()).filter_map(|place| self.line(place));
        // At most 32 times: lines that wait.
        self.guests = left.fold(0, |all, line| all | 1 << line.guest.0);
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::trap::{Place, Syndrome};
    use spumone_config::packed::Content;
    use spumone_config::types::{GuestAddr, PhysAddr};
    use std::string::{String, ToString as _};

    /// All guests.
    const ALL: u32 = u32::MAX;

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
            if notices.are_written(ALL) {
                return text;
            }
            let before = text.len();
            notices.step(ALL, LONGEST, |byte| text.push(char::from(byte)));
            assert!(text.len() - before <= BYTES_PER_STEP);
        }
        panic!("the lines do not end");
    }

    #[test]
    fn lines_are_whole_and_in_order() {
        let report = FaultReport {
            effect: crate::trap::Effect::Stopped,
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
            Subject::Unverified(Wrong {
                content: Content::Initrd,
                page: Some(GuestAddr(0x4400_1000)),
            }),
            Subject::Unverified(Wrong {
                content: Content::Image,
                page: None,
            }),
            Subject::Tampered(Changed {
                page: GuestAddr(0x4020_3000),
                at: PhysAddr(0x4820_3000),
            }),
            Subject::Stopped(StopReason::Fault),
            Subject::Restarts(StopReason::Reset),
            Subject::Restarts(StopReason::Watchdog),
            Subject::Stopped(StopReason::Watchdog),
            Subject::RestartsTooOften(StopReason::Fault),
            Subject::RestartsTooOften(StopReason::Watchdog),
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
               guest linux: initrd: the page at 0x44001000 differs from its hash, so the guest does not start: build the image again\n\
               guest linux: image: the list of hashes differs from its hash, so the guest does not start: build the image again\n\
               guest linux: the page at 0x40203000, machine address 0x48203000, has changed while the guest ran: it differs from its hash\n\
               guest linux was stopped\n\
               guest linux restarts\n\
             guest linux restarts: its watchdog has expired\n\
             guest linux was stopped: its watchdog has expired\n\
               guest linux was stopped: it has ended more often than its restarts allow\n\
               guest linux was stopped: its watchdog has expired, and it has ended more often than its restarts allow\n\
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
            notices.note(notice(0, Subject::Restarts(StopReason::Reset)));
        }
        assert_eq!(read(&mut notices), "guest linux restarts\n".repeat(WAITING));
    }

    #[test]
    fn lines_about_drivers_leave_room_for_others() {
        let mut notices = Notices::new();
        for _ in 0..100 {
            notices.note(notice(0, Subject::BreaksRules(0)));
        }
        notices.note(notice(1, Subject::Restarts(StopReason::Reset)));
        let text = read(&mut notices);
        assert_eq!(text.lines().count(), WAITING_FOR_DRIVERS + 1);
        assert!(text.ends_with("guest linux restarts\n"));
    }

    #[test]
    fn a_line_that_has_begun_is_ended_before_one_about_another_guest() {
        let mut notices = Notices::new();
        let mut text = String::new();
        notices.note(notice(0, Subject::Restarts(StopReason::Reset)));
        assert!(!notices.step(ALL, LONGEST, |byte| text.push(char::from(byte))));
        notices.note(notice(0, Subject::Stopped(StopReason::Off)));
        notices.note(notice(1, Subject::Stopped(StopReason::Fault)));
        for _ in 0..LONGEST {
            if notices.are_written(0b10) {
                break;
            }
            notices.step(0b10, LONGEST, |byte| text.push(char::from(byte)));
        }
        assert_eq!(text, "guest linux restarts\nguest linux was stopped\n");
        assert_eq!(read(&mut notices), "guest linux is off\n");
    }

    #[test]
    fn a_line_without_room_is_dropped_as_a_whole() {
        let mut notices = Notices::new();
        notices.note(notice(0, Subject::Restarts(StopReason::Reset)));
        assert!(notices.step(ALL, LONGEST - 1, |_| panic!("a part of a line")));
        assert!(notices.are_written(ALL));
    }
}
