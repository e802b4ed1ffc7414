// SPDX-License-Identifier: MIT OR Apache-2.0
//! An SMP system whose threads work for a part of each period, like Linux with `guests/linux/programs/duty.c`. Each vCPU has one thread, which stays
//! there, a tick while the thread works, and a kernel thread that has work now and then.

use super::{Doing, Exit, Vcpu};
use crate::outcome::Times;
use crate::random::Random;
use crate::setup::{Duty, Span};
use crate::time::us;
use spumone_core::schedule::Ticks;

// Instructions of the kernel; as in the model of hackbench.
const HANDLER: u64 = 300;
const WAKE: u64 = 1700;
// An idle Linux on four bare CPUs executes some 360,000 instructions a second (`spm bench energy`).
const HOUSEKEEPING: u64 = 8000;

/// 250 Hz.
const TICK: Ticks = us(4_000);
/// How often the kernel thread of each vCPU has work.
const HOUSEKEEPING_PERIOD: Ticks = us(100_000);

/// The guest.
#[derive(Debug)]
pub struct Threads {
    duty: Duty,
    /// Pieces of work for each thread: one in each period that fits into the span.
    pieces: u64,
    /// By vCPU.
    threads: Vec<Thread>,
    random: Random,
    /// What the pieces that are done have taken, in ticks of work.
    pub work: u64,
    /// From when a piece was due until it was done.
    pub taken: Times,
    /// The piece that the last thread has just done.
    ended: Option<u64>,
}

#[derive(Debug)]
struct Thread {
    /// The number of the piece that the thread does, or does next.
    piece: u64,
    due: Ticks,
    /// Instructions left of the piece that is being done; 0: the thread sleeps.
    left: u64,
    /// Instructions that the kernel has to do first.
    kernel: u64,
    tick: Ticks,
    housekeeping: Ticks,
}

impl Threads {
    /// A guest with this many vCPUs that has just been started.
    pub fn new(duty: Duty, span: Span, vcpus: usize, seed: u64, stream: u64) -> Self {
        let mut random = Random::new(seed, stream);
        let thread = |number: u64| Thread {
            piece: 0,
            due: Ticks(span.from.0 + number * duty.apart.0),
            left: 0,
            kernel: 0,
            tick: Ticks(0),
            housekeeping: Ticks(random.below(HOUSEKEEPING_PERIOD.0)),
        };
        Self {
            duty,
            pieces: match duty.busy {
                Ticks(0) => 0,
                _ => span.to.saturating_sub(span.from).0 / duty.period.0,
            },
            threads: (0..vcpus as u64).map(thread).collect(),
            random,
            work: 0,
            taken: Times::default(),
            ended: None,
        }
    }

    pub(super) fn advance(&mut self, index: usize, now: Ticks, vcpus: &mut [Vcpu]) -> Exit {
        let vcpu = &mut vcpus[index];
        self.end_step(index, now, vcpu);
        if vcpu.irqs != 0 {
            vcpu.irqs = 0;
            vcpu.begin(Doing::Masked, HANDLER);
            return Exit::None;
        }
        let thread = &mut self.threads[index];
        if thread.housekeeping <= now {
            thread.housekeeping = Ticks(now.0 + HOUSEKEEPING_PERIOD.0);
            thread.kernel += self.random.around(HOUSEKEEPING);
        }
        let has_more = thread.piece < self.pieces;
        if thread.left == 0 && has_more && thread.due <= now {
            thread.left = self.duty.busy.0;
            thread.kernel += WAKE;
        }
        if thread.tick <= now {
            thread.tick = Ticks(now.0 + TICK.0);
        }
        let next = match thread.left {
            0 if has_more => thread.due,
            0 => Ticks::NEVER,
            _ => thread.tick,
        };
        vcpu.timer = next.min(thread.housekeeping).max(Ticks(now.0 + 1));
        vcpu.stack = u32::from(thread.left != 0);
        match (thread.kernel, thread.left) {
            (0, 0) => {
                vcpu.begin(Doing::Wait, 0);
                return Exit::Wfi;
            }
            (0, left) => vcpu.begin(Doing::User, left),
            (kernel, _) => vcpu.begin(Doing::Kernel, kernel),
        }
        Exit::None
    }

    pub(super) fn deliver(&mut self, index: usize, now: Ticks, vcpus: &mut [Vcpu]) {
        let vcpu = &mut vcpus[index];
        if vcpu.irqs == 0 || !vcpu.is_open() {
            return;
        }
        vcpu.count(now);
        self.end_step(index, now, vcpu);
        vcpu.irqs = 0;
        vcpu.begin(Doing::Masked, HANDLER);
    }

    /// The step of a vCPU is over, or is interrupted: keeps what is left of it.
    fn end_step(&mut self, index: usize, now: Ticks, vcpu: &Vcpu) {
        let thread = &mut self.threads[index];
        match vcpu.doing {
            Doing::Kernel => thread.kernel = vcpu.left,
            Doing::User => {
                thread.left = vcpu.left;
                if thread.left == 0 {
                    self.end_piece(index, now);
                }
            }
            _ => {}
        }
    }

    fn end_piece(&mut self, index: usize, now: Ticks) {
        let thread = &mut self.threads[index];
        self.taken.add(now.saturating_sub(thread.due));
        self.work += self.duty.busy.0;
        let done = thread.piece;
        thread.piece += 1;
        thread.due = Ticks(thread.due.0 + self.duty.period.0);
        // Threads that work at different times end no load together before the last piece.
        let ends = self.duty.apart == Ticks(0) || done + 1 == self.pieces;
        if ends && self.threads.iter().all(|it| it.piece > done) {
            self.ended = Some(done);
        }
    }

    /// The number of the piece, from 0, that the last thread has done since the last call: with it the load has ended.
    pub(super) fn take_ended(&mut self) -> Option<u64> {
        self.ended.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::TIMER;

    const DUTY: Duty = Duty {
        period: us(10_000),
        busy: us(5_000),
        apart: Ticks(0),
    };
    const SPAN: Span = Span {
        from: us(20_000),
        to: us(60_000),
    };

    /// Two vCPUs that always have a core, up to a time. Returns when loads ended.
    fn run(duty: Duty, until: Ticks) -> (Threads, Vec<(u64, Ticks)>) {
        let mut guest = Threads::new(duty, SPAN, 2, 1, 1);
        let mut vcpus = vec![Vcpu::new(); 2];
        let mut ends = Vec::new();
        for vcpu in &mut vcpus {
            vcpu.on = Some(spumone_config::types::PcpuId(0));
        }
        let next = |it: &Vcpu| match it.doing {
            Doing::Wait => it.timer,
            _ => it.end().min(it.timer),
        };
        loop {
            let (index, now) = vcpus
                .iter()
                .map(next)
                .enumerate()
                .min_by_key(|it| it.1)
                .unwrap();
            if now >= until {
                return (guest, ends);
            }
            let vcpu = &mut vcpus[index];
            vcpu.count(now);
            if vcpu.timer <= now {
                vcpu.timer = Ticks::NEVER;
                vcpu.irqs |= TIMER;
                guest.deliver(index, now, &mut vcpus);
            } else {
                guest.advance(index, now, &mut vcpus);
            }
            ends.extend(guest.take_ended().map(|piece| (piece, now)));
        }
    }

    #[test]
    fn threads_work_in_each_period_of_the_span_and_nowhere_else() {
        let (guest, ends) = run(DUTY, us(100_000));
        assert_eq!(guest.work, 2 * 4 * DUTY.busy.0);
        let pieces: Vec<_> = ends.iter().map(|it| it.0).collect();
        assert_eq!(pieces, [0, 1, 2, 3]);
        // Work, ticks, and a little of the kernel.
        for (piece, end) in ends {
            let taken = end.0 - SPAN.from.0 - piece * DUTY.period.0;
            assert!(
                (DUTY.busy.0..DUTY.busy.0 + us(100).0).contains(&taken),
                "{taken}"
            );
        }
        assert_eq!((guest.taken.count, guest.taken.missed), (8, 0));
        assert_eq!(run(DUTY, us(19_000)).0.work, 0);
    }

    #[test]
    fn threads_that_work_at_different_times_end_the_load_once() {
        let apart = us(2_500);
        let (guest, ends) = run(Duty { apart, ..DUTY }, us(100_000));
        assert_eq!(guest.work, 2 * 4 * DUTY.busy.0);
        assert_eq!(ends.len(), 1);
        assert!(ends[0].1 > us(57_500) && ends[0].1 < us(57_600));
    }

    #[test]
    fn a_guest_without_work_idles() {
        let idle = Duty {
            busy: Ticks(0),
            ..DUTY
        };
        let (guest, ends) = run(idle, us(100_000));
        assert_eq!((guest.work, ends.len(), guest.taken.count), (0, 0, 0));
    }
}
