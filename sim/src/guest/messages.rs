// SPDX-License-Identifier: MIT OR Apache-2.0
//! An SMP system like Linux with a workload like hackbench. For each vCPU there are five processes that send and five that receive;
//! every sender sends to every receiver, through sockets of bounded size.
//!
//! The model has what matters for lock-holder preemption: locks of sockets and of run queues, and of an allocator that all
//! vCPUs share; queued locks, which go to the next waiter in the queue even if that waiter does not run, while waiters burn
//! their cores; wake-ups that take the lock of another vCPU's run queue, and send it an SGI if it sleeps; vCPUs without work
//! that take tasks from others; ticks; and sometimes a call to all vCPUs that waits for all answers.

mod kernel;

use super::{CALL, Doing, ENDLESS, Exit, TIMER, Vcpu};
use crate::random::Random;
use crate::setup::Span;
use crate::time::us;
use spumone_core::schedule::Ticks;
use std::collections::VecDeque;

/// Senders, and receivers, per vCPU: 20 and 20 on four vCPUs.
const TASKS_OF_EACH_KIND: usize = 5;
/// Messages that a socket has room for: 208 KiB in pieces of 768 bytes.
const ROOM: u32 = 277;
/// A receiver wakes the senders when no more messages than this are left.
const ROOM_AGAIN: u32 = ROOM / 4;

// Lengths of the kernel's operations, in instructions. Fitted: see docs/simulator.md.
const USER: u64 = 150;
const SEND: u64 = 1300;
const RECEIVE: u64 = 1050;
const SOCKET: u64 = 800;
const ALLOCATE: u64 = 60;
/// One message in this many takes the allocator's lock.
const ALLOCATE_EVERY: u64 = 4;
const RETURN: u64 = 600;
const WAKE: u64 = 250;
const WAKE_LOCKED: u64 = 450;
const SCHEDULE: u64 = 300;
const SCHEDULE_LOCKED: u64 = 700;
const FETCH_LOCKED: u64 = 300;
const HANDLER: u64 = 300;
const TICK_LOCKED: u64 = 500;
const HOUSEKEEPING: u64 = 2000;
/// From the release of a lock to the first instruction of its next holder.
const HAND_OVER: u64 = 30;

/// 250 Hz.
const TICK: Ticks = us(4_000);
const SLICE: Ticks = us(3_000);
/// How often the kernel thread of each vCPU has work; its timer wakes a vCPU that sleeps.
const HOUSEKEEPING_PERIOD: Ticks = us(25_000);
/// One in this many works of a kernel thread calls all vCPUs.
const CALL_EVERY: u64 = 16;

type TaskId = u16;
type LockId = u16;

/// The guest.
#[derive(Debug)]
pub struct Messages {
    cpus: Vec<Cpu>,
    /// Senders, then as many receivers, then a kernel thread for each vCPU.
    tasks: Vec<Task>,
    sockets: Vec<Socket>,
    /// The locks of the sockets, then of the run queues, then the allocator's.
    locks: Vec<Lock>,
    random: Random,
    /// Messages received.
    pub received: u64,
    /// Time spent in waits for locks and answers that are over, in ticks.
    pub spun: u64,
    pub(super) released: u32,
    /// When the processes begin to send, and when each of them ends.
    span: Span,
    end: End,
}

/// How far the end of the load is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Processes have something to do.
    NotYet,
    /// All have ended, since the last call of [`Messages::take_ended`].
    Now,
    /// Earlier.
    Before,
}

/// A vCPU, as the guest's kernel sees it.
#[derive(Debug)]
struct Cpu {
    /// Operations to do, the next one last.
    ops: Vec<Op>,
    queue: VecDeque<TaskId>,
    current: Option<TaskId>,
    /// `current` waits, and another task must run.
    blocks: bool,
    /// `current` has used up its time slice.
    is_over: bool,
    slice_start: Ticks,
    /// The vCPU has searched other run queues for work since it last had some.
    has_looked: bool,
    holds: Option<(LockId, Then)>,
    housekeeping: Ticks,
    /// vCPUs that wait for an answer of this one; bit n for vCPU n.
    callers: u32,
    /// Answers that this vCPU waits for.
    answers: u32,
}

/// An operation of a vCPU.
#[derive(Clone, Copy, Debug)]
enum Op {
    Run(Doing, u64),
    /// Takes the lock, holds it for this long, does this and releases the lock.
    Locked(LockId, u64, Then),
    Wake(TaskId),
    Interrupts(u8),
    Ring(u32, u8),
    Call,
    Await,
}

/// What a critical section does.
#[derive(Clone, Copy, Debug)]
enum Then {
    Nothing,
    Send,
    Receive,
    Enqueue(TaskId, u8),
    Schedule,
    Fetch(u8),
}

#[derive(Clone, Debug)]
struct Task {
    /// The vCPU that it ran on last.
    cpu: u8,
    state: State,
    /// It was woken before it had stopped.
    woken: bool,
    /// Receiver of the next message.
    next: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// In a run queue, or running.
    Ready,
    /// Waits, or is about to.
    Waits,
}

#[derive(Clone, Debug, Default)]
struct Socket {
    messages: u32,
    reader_waits: bool,
    writers: Vec<TaskId>,
}

#[derive(Clone, Debug, Default)]
struct Lock {
    holder: Option<u8>,
    /// The waiters, each with what it will do under the lock.
    waiters: VecDeque<(u8, u64, Then)>,
}

impl Messages {
    /// A guest with this many vCPUs, 32 at most, that has just been started.
    pub fn new(cpus: usize, span: Span, seed: u64, stream: u64) -> Self {
        let mut random = Random::new(seed, stream);
        let each = cpus * TASKS_OF_EACH_KIND;
        let task = |number: usize, next: u64| Task {
            cpu: (number % cpus) as u8,
            state: State::Ready,
            woken: false,
            next: next as u16,
        };
        let users = (0..2 * each).map(|it| task(it, random.below(each as u64)));
        let mut tasks: Vec<_> = users.collect();
        let mut all = Vec::new();
        for number in 0..cpus {
            let mut cpu = Cpu::new(&mut random);
            let own = (0..2 * each).filter(|it| it % cpus == number);
            cpu.queue.extend(own.map(|it| it as TaskId));
            all.push(cpu);
            let mut thread = task(number, 0);
            thread.state = State::Waits;
            tasks.push(thread);
        }
        Self {
            cpus: all,
            tasks,
            sockets: vec![Socket::default(); each],
            locks: vec![Lock::default(); each + cpus + 1],
            random,
            received: 0,
            spun: 0,
            released: 0,
            span,
            end: End::NotYet,
        }
    }

    /// See [`Smp::take_ended`](super::Smp::take_ended): there is one piece.
    pub(super) fn take_ended(&mut self) -> Option<u64> {
        (self.end == End::Now).then(|| {
            self.end = End::Before;
            0
        })
    }

    fn run_queue_lock(&self, cpu: usize) -> LockId {
        (self.sockets.len() + cpu) as LockId
    }

    fn allocator_lock(&self) -> LockId {
        (self.locks.len() - 1) as LockId
    }

    fn is_sender(&self, task: TaskId) -> bool {
        usize::from(task) < self.sockets.len()
    }

    /// The kernel thread of a vCPU.
    fn thread(&self, cpu: usize) -> TaskId {
        (2 * self.sockets.len() + cpu) as TaskId
    }

    fn is_thread(&self, task: TaskId) -> bool {
        usize::from(task) >= 2 * self.sockets.len()
    }

    /// The socket that a task uses.
    fn socket_of(&self, task: TaskId) -> usize {
        match self.is_sender(task) {
            true => usize::from(self.tasks[usize::from(task)].next),
            false => usize::from(task) - self.sockets.len(),
        }
    }

    fn push<const N: usize>(&mut self, cpu: usize, ops: [Op; N]) {
        self.cpus[cpu].ops.extend(ops.into_iter().rev());
    }

    pub(super) fn advance(&mut self, cpu: usize, now: Ticks, vcpus: &mut [Vcpu]) -> Exit {
        if let Some((lock, then)) = self.cpus[cpu].holds.take() {
            self.do_locked(cpu, now, then, vcpus);
            self.unlock(lock, now, vcpus);
        }
        // Each iteration begins a step, or removes an operation.
        loop {
            if vcpus[cpu].irqs != 0 {
                self.begin_handler(cpu, vcpus);
            }
            let Some(op) = self.cpus[cpu].ops.pop() else {
                if self.refill(cpu, now, vcpus) {
                    continue;
                }
                vcpus[cpu].begin(Doing::Wait, 0);
                return Exit::Wfi;
            };
            match op {
                Op::Run(doing, length) => {
                    vcpus[cpu].begin(doing, length);
                    return Exit::None;
                }
                Op::Locked(lock, length, then) => {
                    self.lock(cpu, lock, length, then, vcpus);
                    return Exit::None;
                }
                Op::Ring(targets, kind) => {
                    vcpus[cpu].begin(Doing::Masked, 0);
                    return Exit::Sgi(targets, kind);
                }
                Op::Await if self.cpus[cpu].answers != 0 => {
                    vcpus[cpu].begin(Doing::Await, ENDLESS);
                    return Exit::None;
                }
                Op::Await => {}
                Op::Wake(task) => self.wake(cpu, task),
                Op::Call => self.call(cpu),
                Op::Interrupts(kinds) => self.handle(cpu, kinds, now, vcpus),
            }
        }
    }

    pub(super) fn deliver(&mut self, cpu: usize, now: Ticks, vcpus: &mut [Vcpu]) {
        let vcpu = &mut vcpus[cpu];
        if vcpu.irqs == 0 || !vcpu.is_open() {
            return;
        }
        vcpu.count(now);
        // The rest of the step follows after the handler.
        let state = match vcpu.doing {
            Doing::Await => Some(Op::Await),
            doing @ (Doing::User | Doing::Kernel) if vcpu.left != 0 => {
                Some(Op::Run(doing, vcpu.left))
            }
            _ => None,
        };
        self.cpus[cpu].ops.extend(state);
        self.begin_handler(cpu, vcpus);
        if let Some(Op::Run(doing, length)) = self.cpus[cpu].ops.pop() {
            vcpus[cpu].begin(doing, length);
        }
    }

    fn begin_handler(&mut self, cpu: usize, vcpus: &mut [Vcpu]) {
        let kinds = core::mem::take(&mut vcpus[cpu].irqs);
        self.push(
            cpu,
            [Op::Run(Doing::Masked, HANDLER), Op::Interrupts(kinds)],
        );
    }

    fn lock(&mut self, cpu: usize, id: LockId, length: u64, then: Then, vcpus: &mut [Vcpu]) {
        let length = self.random.around(length);
        let lock = &mut self.locks[usize::from(id)];
        if lock.holder.is_none() {
            lock.holder = Some(cpu as u8);
            self.cpus[cpu].holds = Some((id, then));
            vcpus[cpu].begin(Doing::Masked, length);
        } else {
            lock.waiters.push_back((cpu as u8, length, then));
            vcpus[cpu].begin(Doing::Spin, ENDLESS);
        }
    }

    fn unlock(&mut self, id: LockId, now: Ticks, vcpus: &mut [Vcpu]) {
        let lock = &mut self.locks[usize::from(id)];
        lock.holder = None;
        if let Some((next, length, then)) = lock.waiters.pop_front() {
            lock.holder = Some(next);
            let next = usize::from(next);
            self.cpus[next].holds = Some((id, then));
            let vcpu = &mut vcpus[next];
            if vcpu.on.is_some() {
                vcpu.count(now);
            }
            self.spun += vcpu.done;
            vcpu.release(now, Doing::Masked, HAND_OVER + length);
            self.released |= 1 << next;
        }
    }

    /// For tests: no vCPU waits for a lock that is free.
    #[cfg(test)]
    fn check(&self) {
        for (id, lock) in self.locks.iter().enumerate() {
            assert!(lock.holder.is_some() || lock.waiters.is_empty());
            if let Some(holder) = lock.holder {
                let holds = self.cpus[usize::from(holder)].holds;
                assert_eq!(holds.map(|it| usize::from(it.0)), Some(id));
            }
        }
    }
}

impl Cpu {
    fn new(random: &mut Random) -> Self {
        Self {
            ops: Vec::new(),
            queue: VecDeque::new(),
            current: None,
            blocks: false,
            is_over: false,
            slice_start: Ticks(0),
            has_looked: false,
            holds: None,
            housekeeping: Ticks(random.below(HOUSEKEEPING_PERIOD.0)),
            callers: 0,
            answers: 0,
        }
    }

    /// Whether the vCPU has nothing to do.
    fn is_idle(&self) -> bool {
        self.current.is_none() && self.queue.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// vCPUs that always run, without a hypervisor.
    fn run(cpus: usize, events: usize) -> Messages {
        run_for(cpus, events, Span::ALWAYS).0
    }

    /// The same with a span. Returns also when the load ended.
    fn run_for(cpus: usize, events: usize, span: Span) -> (Messages, Option<Ticks>) {
        let mut guest = Messages::new(cpus, span, 1, 1);
        let mut vcpus = vec![Vcpu::new(); cpus];
        for vcpu in &mut vcpus {
            vcpu.on = Some(spumone_config::types::PcpuId(0));
        }
        let mut ended = None;
        for _ in 0..events {
            let next = |it: &Vcpu| it.end().min(it.timer);
            let (cpu, at) = vcpus
                .iter()
                .enumerate()
                .map(|(cpu, it)| (cpu, next(it)))
                .filter(|(cpu, _)| {
                    vcpus[*cpu].doing != Doing::Wait
                        || vcpus[*cpu].irqs != 0
                        || vcpus[*cpu].timer != Ticks::NEVER
                })
                .min_by_key(|(cpu, at)| match vcpus[*cpu].doing {
                    Doing::Wait => vcpus[*cpu].timer,
                    _ => *at,
                })
                .unwrap();
            let at = match vcpus[cpu].doing {
                Doing::Wait => vcpus[cpu].timer.max(vcpus[cpu].since),
                _ => at,
            };
            let vcpu = &mut vcpus[cpu];
            if vcpu.timer <= at {
                vcpu.timer = Ticks::NEVER;
                vcpu.irqs |= TIMER;
                vcpu.count(at);
                vcpu.since = at;
                guest.deliver(cpu, at, &mut vcpus);
                continue;
            }
            vcpu.count(at);
            if let Exit::Sgi(targets, kind) = guest.advance(cpu, at, &mut vcpus) {
                for target in 0..cpus {
                    if targets >> target & 1 != 0 {
                        vcpus[target].irqs |= kind;
                        if vcpus[target].doing == Doing::Wait {
                            vcpus[target].since = at;
                        }
                        guest.deliver(target, at, &mut vcpus);
                    }
                }
            }
            guest.check();
            if guest.take_ended().is_some() {
                assert_eq!(ended, None);
                ended = Some(at);
            }
        }
        (guest, ended)
    }

    #[test]
    fn processes_send_in_their_span_and_nowhere_else() {
        let span = Span {
            from: us(30_000),
            to: us(90_000),
        };
        let (guest, ended) = run_for(4, 200_000, span);
        let ended = ended.unwrap();
        assert!(ended >= span.to && ended < us(92_000), "{ended:?}");
        // 5,900 instructions for each, on four vCPUs, less those that are left in sockets.
        let most = 4 * us(60_000).0 / 5_900;
        assert!(
            (most / 2..most).contains(&guest.received),
            "{}",
            guest.received
        );
        let (before, _) = run_for(4, 8, span);
        assert_eq!(before.received, 0);
    }

    #[test]
    fn messages_arrive_and_none_is_lost() {
        for cpus in [1, 2, 4, 9] {
            let guest = run(cpus, 200_000);
            assert!(guest.received > 5_000, "{cpus}: {}", guest.received);
            assert!(guest.sockets.iter().all(|it| it.messages <= ROOM));
        }
    }

    #[test]
    fn the_guest_never_stops() {
        let few = run(3, 100_000).received;
        let many = run(3, 200_000).received;
        assert!(many > few + few / 2);
    }
}
