// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the hypervisor answers to the operator's commands, made in pieces.
//!
//! A whole answer takes thousands of instructions. So commands are only noted, and each
//! [`Answers::step`] does a little: it puts a line together, or passes on a few bytes of it.

use super::format::TYPED_TO;
use crate::psci::{Phase, StopReason};
use heapless::{Deque, Vec};
use spumone_config::types::GuestId;

/// Answers that may wait; what is asked beyond that is not answered.
const WAITING: usize = 8;
/// Bytes of a line that count.
const LINE_SIZE: usize = 128;
/// Bytes passed on in one step.
const BYTES_PER_STEP: usize = 4;

/// What is to be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A text of whole lines.
    Text(&'static str),
    /// The state of all guests.
    Status,
    /// Whether a guest will be restarted; it was in this phase when that was asked.
    Restart(GuestId, Phase),
}

/// What there is to tell of a guest.
#[derive(Clone, Copy, Debug)]
pub struct GuestState<'a> {
    /// Its name.
    pub name: &'a str,
    /// Where it is in its life.
    pub phase: Phase,
    /// Which life this is.
    pub life: u32,
    /// vCPUs that are on.
    pub on: u8,
    /// vCPUs.
    pub vcpus: u8,
}

/// The answers that wait; they belong to the core that reads the keyboard.
#[derive(Debug, Default)]
pub struct Answers {
    waiting: Deque<Answer, WAITING>,
    /// The guest that is typed to from now on, if that is to be said. It is said before the rest.
    focus: Option<GuestId>,
    /// Of the first: the guest whose line is next, or the bytes of its text that are passed on.
    at: usize,
    /// The line that is being passed on, and its bytes that are.
    line: Vec<u8, LINE_SIZE>,
    passed: usize,
}

impl Answers {
    /// Nothing was asked; it is to be said that `focus` is typed to, if there is one.
    pub const fn new(focus: Option<GuestId>) -> Self {
        Self {
            waiting: Deque::new(),
            focus,
            at: 0,
            line: Vec::new(),
            passed: 0,
        }
    }

    /// Notes what is to be answered.
    pub fn order(&mut self, answer: Answer) {
        let _ = self.waiting.push_back(answer);
    }

    /// Notes that it is to be said which guest is typed to. This is never left out, however much waits.
    pub const fn tell_focus(&mut self, guest: GuestId) {
        self.focus = Some(guest);
    }

    /// Whether all was answered.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.focus.is_none() && self.passed >= self.line.len()
    }

    /// Does a little: passes bytes on to `push`, which says whether it took one, or puts the next line
    /// together with what `state` says of a guest (`None`: there is no such guest).
    pub fn step<'a>(
        &mut self,
        state: impl FnOnce(GuestId) -> Option<GuestState<'a>>,
        mut push: impl FnMut(u8) -> bool,
    ) {
        if let Some(rest) = self.line.get(self.passed..)
            && !rest.is_empty()
        {
            self.passed += pass_on(rest, &mut push);
            return;
        }
        // Between two answers, not in the middle of one.
        if self.at == 0
            && let Some(guest) = self.focus.take()
        {
            if let Some(guest) = state(guest) {
                self.begin_line();
                self.text(TYPED_TO);
                self.text(guest.name);
                self.text(" (Ctrl-] then ? for help)\n");
            }
            return;
        }
        match self.waiting.front() {
            Some(Answer::Text(text)) => {
                let rest = text.as_bytes().get(self.at..).unwrap_or_default();
                self.at += pass_on(rest, &mut push);
                if self.at >= text.len() {
                    self.end_answer();
                }
            }
            Some(Answer::Status) => match state(GuestId(self.at as u8)) {
                Some(guest) => {
                    self.at += 1;
                    self.begin_line();
                    self.status(&guest);
                }
                None => self.end_answer(),
            },
            Some(&Answer::Restart(guest, phase)) => {
                self.end_answer();
                if let Some(guest) = state(guest) {
                    self.begin_line();
                    self.restart(guest.name, phase);
                }
            }
            None => {}
        }
    }

    fn end_answer(&mut self) {
        self.waiting.pop_front();
        self.at = 0;
    }

    fn begin_line(&mut self) {
        self.line.clear();
        self.passed = 0;
    }

    fn status(&mut self, guest: &GuestState<'_>) {
        self.text("guest ");
        self.text(guest.name);
        self.text(": ");
        self.text(phase_name(guest.phase));
        self.text(", life ");
        self.number(guest.life);
        self.text(", ");
        self.number(u32::from(guest.on));
        self.text(" of ");
        self.number(u32::from(guest.vcpus));
        self.text(" vCPUs on\n");
    }

    fn restart(&mut self, name: &str, phase: Phase) {
        self.text("guest ");
        self.text(name);
        self.text(match phase {
            Phase::Running | Phase::Stopped(_) => ": restart requested\n",
            Phase::Stopping(_) => ": no restart, it is being stopped\n",
            Phase::Restoring => ": no restart, it is being loaded\n",
        });
    }

    fn text(&mut self, text: &str) {
        // A name that is too long makes its line useless, nothing else.
        let _ = self.line.extend_from_slice(text.as_bytes());
    }

    fn number(&mut self, number: u32) {
        /// Digits of the largest one.
        const DIGITS: usize = 10;
        let mut digits = [0; DIGITS];
        let (mut rest, mut first) = (number, DIGITS);
        for place in (0..DIGITS).rev() {
            if let Some(digit) = digits.get_mut(place) {
                *digit = b'0' + (rest % 10) as u8;
                first = place;
            }
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        let digits = digits.get(first..).unwrap_or_default();
        let _ = self.line.extend_from_slice(digits);
    }
}

/// Passes bytes on until a step's worth is; returns how many were.
fn pass_on(bytes: &[u8], push: &mut impl FnMut(u8) -> bool) -> usize {
    let bytes = bytes.iter().take(BYTES_PER_STEP);
    bytes.take_while(|&&byte| push(byte)).count()
}

const fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Restoring => "Restoring",
        Phase::Running => "Running",
        Phase::Stopping(StopReason::Off) => "Stopping(Off)",
        Phase::Stopping(StopReason::Reset) => "Stopping(Reset)",
        Phase::Stopping(StopReason::Fault) => "Stopping(Fault)",
        Phase::Stopped(StopReason::Off) => "Stopped(Off)",
        Phase::Stopped(StopReason::Reset) => "Stopped(Reset)",
        Phase::Stopped(StopReason::Fault) => "Stopped(Fault)",
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use std::borrow::ToOwned as _;
    use std::string::String;

    fn state(guest: GuestId) -> Option<GuestState<'static>> {
        let (name, phase, life) = match guest.0 {
            0 => ("rt", Phase::Running, 1),
            1 => ("linux", Phase::Stopped(StopReason::Off), 4_294_967_295),
            _ => return None,
        };
        Some(GuestState {
            name,
            phase,
            life,
            on: 1,
            vcpus: 4,
        })
    }

    /// All answers; each step passes on so many bytes at most.
    fn read(answers: &mut Answers, room: usize) -> String {
        let mut text = String::new();
        for _ in 0..10_000 {
            if answers.is_empty() {
                return text;
            }
            let mut left = room;
            answers.step(state, |byte| {
                let takes = left > 0;
                if takes {
                    left -= 1;
                    text.push(char::from(byte));
                }
                takes
            });
            assert!(room - left <= BYTES_PER_STEP);
        }
        panic!("it does not end");
    }

    #[test]
    fn answers_come_whole_and_in_order() {
        for room in [1, 7, 1000] {
            let mut answers = Answers::new(None);
            answers.order(Answer::Status);
            answers.order(Answer::Text("help\nmore help, longer than one step\n"));
            answers.order(Answer::Restart(GuestId(0), Phase::Running));
            answers.order(Answer::Restart(GuestId(1), Phase::Restoring));
            answers.order(Answer::Restart(GuestId(7), Phase::Running));
            assert_eq!(
                read(&mut answers, room),
                "guest rt: Running, life 1, 1 of 4 vCPUs on\n\
                 guest linux: Stopped(Off), life 4294967295, 1 of 4 vCPUs on\n\
                 help\nmore help, longer than one step\n\
                 guest rt: restart requested\n\
                 guest linux: no restart, it is being loaded\n"
            );
        }
    }

    #[test]
    fn the_last_focus_is_told_before_what_waits() {
        let mut answers = Answers::new(None);
        for _ in 0..100 {
            answers.order(Answer::Text("x\n"));
        }
        answers.tell_focus(GuestId(0));
        answers.tell_focus(GuestId(7));
        assert!(!answers.is_empty());
        answers.tell_focus(GuestId(1));
        let told = "input goes to linux (Ctrl-] then ? for help)\n";
        assert_eq!(
            read(&mut answers, 3),
            told.to_owned() + &"x\n".repeat(WAITING)
        );
        answers.tell_focus(GuestId(7));
        assert_eq!(read(&mut answers, 3), "");
    }

    #[test]
    fn without_room_nothing_is_lost() {
        let mut answers = Answers::new(None);
        answers.order(Answer::Status);
        for _ in 0..100 {
            answers.step(state, |_| false);
        }
        assert!(read(&mut answers, 3).starts_with("guest rt: Running"));
    }

    #[test]
    fn too_many_questions_are_not_all_answered() {
        let mut answers = Answers::new(None);
        for _ in 0..100 {
            answers.order(Answer::Text("x\n"));
        }
        assert_eq!(read(&mut answers, 100), "x\n".repeat(WAITING));
    }
}
