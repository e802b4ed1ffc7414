// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hypervisor's answers to the operator's commands, written in small steps.
//!
//! A whole answer takes thousands of instructions. So commands are only queued, and each [`Answers::step`] either
//! composes a line, or passes a few bytes of it on.

use super::format::INPUT_GOES_TO;
use crate::local;
use crate::protect::Progress;
use crate::psci::{Phase, StopReason};
use crate::schedule::Ticks;
use crate::usage::{Shares, Usage, Watch};
use core::ops::Range;
use heapless::{Deque, Vec};
use spumone_config::packed::PowerMode;
use spumone_config::types::{GuestId, PcpuId};

/// How many answers can be queued. Further commands are not answered.
const WAITING: usize = 8;
/// The largest number of bytes of a line.
const LINE_SIZE: usize = 192;
/// A second, in microseconds.
const SECOND_US: u64 = 1_000_000;
/// Bytes passed on in one step.
const BYTES_PER_STEP: usize = 4;

/// The end of a guest's life, as printed for the operator.
#[derive(Clone, Copy, Debug)]
pub struct PastLife<'a> {
    /// The guest's name.
    pub name: &'a str,
    /// The number of the life.
    pub life: u32,
    /// When it ended, in microseconds of the system counter.
    pub at_us: u64,
    /// Why.
    pub reason: StopReason,
}

/// What the answers are about: [`Answers::step`] asks it.
pub trait Machine {
    /// The state of a guest; `None`: there is no such guest.
    fn state(&self, guest: GuestId) -> Option<GuestState<'_>>;
    /// The use of a core up to this time; `None`: there is no such core.
    fn usage(&self, core: PcpuId) -> Option<(&Usage, Ticks)>;
    /// How a core is off; `None`: it is on.
    fn off(&self, core: PcpuId) -> Option<Off>;
    /// The mode of `[power]`; `None`: all cores stay on in this system.
    fn power_mode(&self) -> Option<PowerMode>;
    /// The numbers of the ends of lives in the health log, the oldest first.
    fn past_lives(&self) -> Range<u32>;
    /// One of them; `None`: it is not there any more.
    fn past_life(&self, number: u32) -> Option<PastLife<'_>>;
}

/// How a core is off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Off {
    /// It was not refused by the firmware.
    Fine,
    /// The firmware has refused to turn it off.
    Waits,
    /// The firmware has refused to turn it on again.
    Lost,
}

impl Off {
    fn text(self) -> &'static str {
        match self {
            Self::Fine => ", off",
            Self::Waits => ", off (the firmware refuses CPU_OFF: it waits for interrupts)",
            Self::Lost => ", off (the firmware refuses CPU_ON: asking again)",
        }
    }
}

/// An answer to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A text that consists of whole lines.
    Text(&'static str),
    /// The state of all guests, the users of each core, and how guests have ended lately.
    Status,
    /// The mode of `[power]`, which the operator has chosen.
    Power,
    /// Whether a guest will be restarted, which was in this phase when the operator asked for it.
    Restart(GuestId, Phase),
}

/// The state of a guest, as printed for the operator.
#[derive(Clone, Copy, Debug)]
pub struct GuestState<'a> {
    /// Its name.
    pub name: &'a str,
    /// The phase of its life.
    pub phase: Phase,
    /// The number of its life.
    pub life: u32,
    /// Number of vCPUs that are on.
    pub on: u8,
    /// Number of vCPUs.
    pub vcpus: u8,
    /// How its protected memory is checked, if it has some.
    pub progress: Option<Progress>,
    /// How it runs from local memory, if it does.
    pub local: Option<local::Progress>,
}

/// The queued answers. They belong to the core that reads the keyboard.
#[derive(Debug, Default)]
pub struct Answers {
    waiting: Deque<Answer, WAITING>,
    /// The guest with the focus, if a line about that is still to be printed. That line comes before all answers.
    focus: Option<GuestId>,
    /// Progress of the first answer: the guest whose line is next, or the number of bytes of its text that were passed
    /// on.
    at: usize,
    /// The line that is being passed on; `passed` is the number of its bytes that were.
    line: Vec<u8, LINE_SIZE>,
    passed: usize,
    /// The core whose line is next in an answer, or is being passed on.
    core: PcpuId,
    /// The shares of that core's time, once its line has begun; and the guest whose share is next in it.
    shares: Option<(Shares, GuestId)>,
    /// The number of the next end of a life in an answer, once that is at those.
    past_life: Option<u32>,
    /// What the former answer saw of all cores.
    watch: Watch,
}

impl Answers {
    /// No answers; a line about `focus` is to be printed, if there is one.
    pub const fn new(focus: Option<GuestId>) -> Self {
        Self {
            waiting: Deque::new(),
            focus,
            at: 0,
            line: Vec::new(),
            passed: 0,
            core: PcpuId(0),
            shares: None,
            past_life: None,
            watch: Watch::new(),
        }
    }

    /// Queues an answer. Drops it if too many are queued.
    pub fn queue(&mut self, answer: Answer) {
        let _ = self.waiting.push_back(answer);
    }

    /// Queues the line that says which guest has the focus. It is never dropped, whatever number of answers is queued.
    pub const fn queue_focus(&mut self, guest: GuestId) {
        self.focus = Some(guest);
    }

    /// Whether nothing is left to print.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.focus.is_none() && self.passed >= self.line.len()
    }

    /// Does one step: passes bytes to `push`, which returns whether it took one, or composes the next line, or a part of it.
    pub fn step(&mut self, machine: &impl Machine, mut push: impl FnMut(u8) -> bool) {
        if let Some(rest) = self.line.get(self.passed..)
            && !rest.is_empty()
        {
            self.passed += pass_on(rest, &mut push);
            return;
        }
        // The line about the focus comes between two answers, not in the middle of one.
        if self.at == 0
            && let Some(guest) = self.focus.take()
        {
            if let Some(guest) = machine.state(guest) {
                self.begin_line();
                self.text(INPUT_GOES_TO);
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
            Some(Answer::Status) if self.past_life.is_some() => self.past_life_line(machine),
            Some(Answer::Status) => match machine.state(GuestId(self.at as u8)) {
                Some(guest) => {
                    self.at += 1;
                    self.begin_line();
                    self.status(&guest);
                }
                None => self.core_line(machine),
            },
            Some(Answer::Power) => {
                self.end_answer();
                self.begin_line();
                if !self.power_mode(machine) {
                    self.text("all cores stay on in this system\n");
                }
            }
            Some(&Answer::Restart(guest, phase)) => {
                self.end_answer();
                if let Some(guest) = machine.state(guest) {
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
        self.core = PcpuId(0);
        self.past_life = None;
    }

    /// Composes the next part of the lines about cores: the number of a core, or the share of one of its users.
    fn core_line(&mut self, machine: &impl Machine) {
        let Some((shares, guest)) = self.shares else {
            let Some((usage, now)) = machine.usage(self.core) else {
                self.past_life = Some(machine.past_lives().start);
                self.begin_line();
                self.power_mode(machine);
                return;
            };
            self.shares = Some((self.watch.look(self.core, usage, now), GuestId(0)));
            self.begin_line();
            self.text("core ");
            self.number(u32::from(self.core.0));
            self.text(":");
            return;
        };
        self.begin_line();
        match machine.state(guest) {
            Some(it) => {
                self.shares = Some((shares, GuestId(guest.0 + 1)));
                let share = shares.of(Some(guest));
                if share > 0 {
                    self.share(it.name, share);
                    self.text(",");
                }
            }
            None => {
                self.share("idle", shares.of(None));
                if let Some(off) = machine.off(self.core) {
                    self.text(off.text());
                }
                self.text("\n");
                self.shares = None;
                self.core = PcpuId(self.core.0 + 1);
            }
        }
    }

    /// Composes the line about the mode of `[power]`, if there is one. Returns whether there is.
    fn power_mode(&mut self, machine: &impl Machine) -> bool {
        let Some(mode) = machine.power_mode() else {
            return false;
        };
        self.text(match mode {
            PowerMode::Performance => "power mode: performance\n",
            PowerMode::Balanced => "power mode: balanced\n",
            PowerMode::Saving => "power mode: saving\n",
        });
        true
    }

    /// Composes the next line about a life that has ended.
    fn past_life_line(&mut self, machine: &impl Machine) {
        let next = self.past_life.filter(|it| machine.past_lives().end > *it);
        let Some(number) = next else {
            return self.end_answer();
        };
        self.past_life = Some(number + 1);
        let Some(past) = machine.past_life(number) else {
            return;
        };
        self.begin_line();
        self.text("at ");
        self.number((past.at_us / SECOND_US) as u32);
        self.text(".");
        self.microseconds((past.at_us % SECOND_US) as u32);
        self.text(" s life ");
        self.number(past.life);
        self.text(" of guest ");
        self.text(past.name);
        self.text(" ended: ");
        self.text(cause(past.reason));
        self.text("\n");
    }

    /// Six digits.
    fn microseconds(&mut self, number: u32) {
        let mut unit = 100_000;
        // At most 6 times: digits.
        while unit > 0 {
            let digit = b'0' + (number / unit % 10) as u8;
            let _ = self.line.push(digit);
            unit /= 10;
        }
    }

    fn share(&mut self, user: &str, share: u32) {
        self.text(" ");
        self.text(user);
        self.text(" ");
        self.number(share / 10);
        self.text(".");
        self.number(share % 10);
        self.text(" %");
    }

    fn begin_line(&mut self) {
        self.line.clear();
        self.passed = 0;
    }

    fn status(&mut self, guest: &GuestState<'_>) {
        self.text("guest ");
        self.text(guest.name);
        self.text(": ");
        let (word, ended) = phase_words(guest.phase);
        self.text(word);
        if let Some(reason) = ended {
            self.text(" (");
            self.text(cause(reason));
            self.text(")");
        }
        self.text(", life ");
        self.number(guest.life);
        self.text(", ");
        self.number(u32::from(guest.on));
        self.text(" of ");
        self.number(u32::from(guest.vcpus));
        self.text(" vCPUs on");
        if let Some(progress) = &guest.progress {
            self.text("; all ");
            self.number(progress.pages);
            self.text(" protected pages checked in ");
            self.number(progress.took_ms);
            self.text(" ms, round ");
            self.number(progress.rounds);
        }
        if let Some(local) = &guest.local {
            self.text("; local memory holds ");
            self.number(local.frames);
            self.text(" of ");
            self.number(local.pages);
            self.text(" pages, ");
            self.number(local.brought);
            self.text(" brought, ");
            self.number(local.written_back);
            self.text(" written back");
        }
        self.text("\n");
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
        // If a name is too long, only this line is incomplete.
        let _ = self.line.extend_from_slice(text.as_bytes());
    }

    fn number(&mut self, number: u32) {
        /// Number of digits of `u32::MAX`.
        const DIGITS: usize = 10;
        let mut digits = [0; DIGITS];
        let (mut rest, mut first) = (number, DIGITS);
        for place in (0..DIGITS).rev() {
            if let Some(digit) = digits.get_mut(place) {
                *digit = b'0' + (rest % 10) as u8;
                first = place;
            }
            rest /= 10;
            // At most 10 times: digits of a `u32`.
            if rest == 0 {
                break;
            }
        }
        let digits = digits.get(first..).unwrap_or_default();
        let _ = self.line.extend_from_slice(digits);
    }
}

/// Passes at most a step's number of bytes on; returns how many.
fn pass_on(bytes: &[u8], push: &mut impl FnMut(u8) -> bool) -> usize {
    let bytes = bytes.iter().take(BYTES_PER_STEP);
    bytes.take_while(|&&byte| push(byte)).count()
}

/// Why a life ended.
const fn cause(reason: StopReason) -> &'static str {
    match reason {
        StopReason::Off => "off",
        StopReason::Reset => "reset",
        StopReason::Fault => "fault",
        StopReason::Watchdog => "its watchdog expired",
        StopReason::Operator => "operator",
        StopReason::Unverified => "image differs from its hash",
        StopReason::Tampered => "protected memory changed, or it wrote there",
    }
}

/// The word for a phase, and why the guest ended, if it has.
const fn phase_words(phase: Phase) -> (&'static str, Option<StopReason>) {
    match phase {
        Phase::Restoring => ("loading", None),
        Phase::Running => ("running", None),
        Phase::Stopping(reason) => ("stopping", Some(reason)),
        Phase::Stopped(reason) => ("stopped", Some(reason)),
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use std::borrow::ToOwned as _;
    use std::string::String;

    /// Two guests and two cores. Core 0 was the first guest's for a tenth of the time, core 1 idled. `ends` of the first guest's lives are
    /// in the health log, but for the first one.
    struct Fake {
        ends: u32,
        usages: [Usage; 2],
    }

    impl Fake {
        fn new(ends: u32) -> Self {
            let usages = [Usage::new(), Usage::new()];
            for usage in &usages {
                usage.switch(None, Ticks(100));
            }
            usages[0].switch(Some(GuestId(0)), Ticks(1000));
            Self { ends, usages }
        }
    }

    impl Machine for Fake {
        fn state(&self, guest: GuestId) -> Option<GuestState<'_>> {
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
                progress: (guest.0 == 0).then_some(Progress {
                    pages: 22,
                    took_ms: 987,
                    rounds: 13,
                }),
                local: (guest.0 == 1).then_some(local::Progress {
                    frames: 53,
                    pages: 1024,
                    brought: 70,
                    written_back: 8,
                }),
            })
        }

        fn usage(&self, core: PcpuId) -> Option<(&Usage, Ticks)> {
            Some((self.usages.get(core.index())?, Ticks(1100)))
        }

        fn off(&self, core: PcpuId) -> Option<Off> {
            (core == PcpuId(1) && self.ends > 0).then_some(Off::Fine)
        }

        fn power_mode(&self) -> Option<PowerMode> {
            (self.ends > 0).then_some(PowerMode::Saving)
        }

        fn past_lives(&self) -> Range<u32> {
            0..self.ends
        }

        fn past_life(&self, number: u32) -> Option<PastLife<'_>> {
            (number > 0).then_some(PastLife {
                name: "rt",
                life: number,
                at_us: 1_000_020 * u64::from(number),
                reason: StopReason::ALL[number as usize % StopReason::ALL.len()],
            })
        }
    }

    /// Reads all answers; each step may push at most `room` bytes.
    fn read(answers: &mut Answers, room: usize) -> String {
        read_of(&Fake::new(0), answers, room)
    }

    fn read_of(machine: &Fake, answers: &mut Answers, room: usize) -> String {
        let mut text = String::new();
        for _ in 0..10_000 {
            if answers.is_empty() {
                return text;
            }
            let mut left = room;
            answers.step(machine, |byte| {
                let takes = left > 0;
                if takes {
                    left -= 1;
                    text.push(char::from(byte));
                }
                takes
            });
            assert!(room - left <= BYTES_PER_STEP);
        }
        panic!("the answers do not end");
    }

    #[test]
    fn answers_are_whole_and_in_order() {
        for room in [1, 7, 1000] {
            let mut answers = Answers::new(None);
            answers.queue(Answer::Status);
            answers.queue(Answer::Text("help\nmore help, longer than one step\n"));
            answers.queue(Answer::Restart(GuestId(0), Phase::Running));
            answers.queue(Answer::Restart(GuestId(1), Phase::Restoring));
            answers.queue(Answer::Restart(GuestId(7), Phase::Running));
            assert_eq!(
                read(&mut answers, room),
                "guest rt: running, life 1, 1 of 4 vCPUs on; all 22 protected pages checked in 987 ms, round 13\n\
                 guest linux: stopped (off), life 4294967295, 1 of 4 vCPUs on; local memory holds 53 of 1024 pages, 70 brought, 8 written back\n\
                 core 0: rt 10.0 %, idle 90.0 %\n\
                 core 1: idle 100.0 %\n\
                 help\nmore help, longer than one step\n\
                 guest rt: restart requested\n\
                 guest linux: no restart, it is being loaded\n"
            );
        }
    }

    #[test]
    fn the_ends_of_lives_follow_the_cores() {
        let mut answers = Answers::new(None);
        answers.queue(Answer::Status);
        answers.queue(Answer::Text("x\n"));
        let text = read_of(&Fake::new(4), &mut answers, 3);
        let (_, ends) = text.split_once("core 1: idle 100.0 %, off\n").unwrap();
        assert_eq!(
            ends,
            "power mode: saving\n\
             at 1.000020 s life 1 of guest rt ended: reset\n\
             at 2.000040 s life 2 of guest rt ended: fault\n\
             at 3.000060 s life 3 of guest rt ended: its watchdog expired\n\
             x\n"
        );
    }

    #[test]
    fn the_last_focus_is_printed_before_queued_answers() {
        let mut answers = Answers::new(None);
        for _ in 0..100 {
            answers.queue(Answer::Text("x\n"));
        }
        answers.queue_focus(GuestId(0));
        answers.queue_focus(GuestId(7));
        assert!(!answers.is_empty());
        answers.queue_focus(GuestId(1));
        let line = "input goes to linux (Ctrl-] then ? for help)\n";
        assert_eq!(
            read(&mut answers, 3),
            line.to_owned() + &"x\n".repeat(WAITING)
        );
        answers.queue_focus(GuestId(7));
        assert_eq!(read(&mut answers, 3), "");
    }

    #[test]
    fn no_answer_is_lost_without_room() {
        let mut answers = Answers::new(None);
        answers.queue(Answer::Status);
        for _ in 0..100 {
            answers.step(&Fake::new(0), |_| false);
        }
        assert!(read(&mut answers, 3).starts_with("guest rt: running"));
    }

    #[test]
    fn answers_beyond_the_limit_are_dropped() {
        let mut answers = Answers::new(None);
        for _ in 0..100 {
            answers.queue(Answer::Text("x\n"));
        }
        assert_eq!(read(&mut answers, 100), "x\n".repeat(WAITING));
    }
}
