// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guest's kernel: system calls, wake-ups, scheduler, interrupts.

use super::{
    ALLOCATE, ALLOCATE_EVERY, CALL, CALL_EVERY, Cpu, End, FETCH_LOCKED, HOUSEKEEPING,
    HOUSEKEEPING_PERIOD, Messages, Op, RECEIVE, RETURN, ROOM, ROOM_AGAIN, SCHEDULE,
    SCHEDULE_LOCKED, SEND, SLICE, SOCKET, State, TICK, TICK_LOCKED, TIMER, TaskId, Then, USER,
    WAKE, WAKE_LOCKED,
};
use crate::guest::{Doing, RESCHEDULE, Vcpu};
use spumone_core::schedule::Ticks;

impl Messages {
    /// vCPU `cpu` has no operations left: chooses what it does next. Returns whether there is anything.
    pub(super) fn refill(&mut self, cpu: usize, now: Ticks, vcpus: &mut [Vcpu]) -> bool {
        if now < self.span.from {
            vcpus[cpu].timer = self.span.from;
            return false;
        }
        let own = &self.cpus[cpu];
        let switches = own.blocks
            || own.is_over && !own.queue.is_empty()
            || own.current.is_none() && !own.queue.is_empty();
        if switches {
            let lock = self.run_queue_lock(cpu);
            self.push(
                cpu,
                [
                    Op::Run(Doing::Kernel, SCHEDULE),
                    Op::Locked(lock, SCHEDULE_LOCKED, Then::Schedule),
                ],
            );
            return true;
        }
        if let Some(task) = own.current {
            self.go_on(cpu, task, now);
            return true;
        }
        if !own.has_looked {
            self.cpus[cpu].has_looked = true;
            if let Some(busiest) = self.busiest_but(cpu, 0) {
                self.fetch_from(cpu, busiest);
                return true;
            }
        }
        if self.end == End::NotYet && now >= self.span.to && self.cpus.iter().all(Cpu::is_idle) {
            self.end = End::Now;
        }
        // Idle: no tick.
        vcpus[cpu].timer = self.cpus[cpu].housekeeping.max(Ticks(now.0 + 1));
        vcpus[cpu].stack = 0;
        false
    }

    /// A task's next system call.
    fn go_on(&mut self, cpu: usize, task: TaskId, now: Ticks) {
        if self.is_thread(task) {
            self.keep_house(cpu, task);
            return;
        }
        if now >= self.span.to {
            // The process ends: nothing wakes it for long.
            self.wait(cpu, task);
            return;
        }
        let lock = self.socket_of(task) as u16;
        let (length, then) = match self.is_sender(task) {
            true => (SEND, Then::Send),
            false => (RECEIVE, Then::Receive),
        };
        let (user, kernel) = (self.random.around(USER), self.random.around(length));
        self.push(
            cpu,
            [
                Op::Run(Doing::User, user),
                Op::Run(Doing::Kernel, kernel),
                Op::Locked(lock, SOCKET, then),
                Op::Run(Doing::Kernel, RETURN),
            ],
        );
        if self.random.below(ALLOCATE_EVERY) == 0 {
            let allocator = self.allocator_lock();
            // Before the socket's lock: the first two operations are done first.
            let at = self.cpus[cpu].ops.len() - 2;
            let op = Op::Locked(allocator, ALLOCATE, Then::Nothing);
            self.cpus[cpu].ops.insert(at, op);
        }
    }

    /// The kernel thread works, then waits for its next turn.
    fn keep_house(&mut self, cpu: usize, task: TaskId) {
        self.cpus[cpu].blocks = true;
        self.tasks[usize::from(task)].state = State::Waits;
        let length = self.random.around(HOUSEKEEPING);
        if self.random.below(CALL_EVERY) == 0 {
            self.push(cpu, [Op::Call]);
        }
        self.push(cpu, [Op::Run(Doing::Kernel, length)]);
    }

    /// The effect of a critical section, at its end.
    pub(super) fn do_locked(&mut self, cpu: usize, now: Ticks, then: Then, vcpus: &mut [Vcpu]) {
        match then {
            Then::Nothing => {}
            Then::Send => self.send(cpu),
            Then::Receive => self.receive(cpu),
            Then::Enqueue(task, to) => self.enqueue(cpu, task, usize::from(to)),
            Then::Schedule => self.schedule(cpu, now, vcpus),
            Then::Fetch(from) => self.fetch(cpu, usize::from(from)),
        }
    }

    fn send(&mut self, cpu: usize) {
        let Some(task) = self.cpus[cpu].current else {
            return;
        };
        let number = self.socket_of(task);
        let receivers = self.sockets.len();
        let socket = &mut self.sockets[number];
        if socket.messages == ROOM {
            socket.writers.push(task);
            self.wait(cpu, task);
            return;
        }
        socket.messages += 1;
        let wakes = core::mem::take(&mut socket.reader_waits);
        self.tasks[usize::from(task)].next = ((number + 1) % receivers) as u16;
        if wakes {
            self.push(cpu, [Op::Wake((receivers + number) as TaskId)]);
        }
    }

    fn receive(&mut self, cpu: usize) {
        let Some(task) = self.cpus[cpu].current else {
            return;
        };
        let number = self.socket_of(task);
        let socket = &mut self.sockets[number];
        if socket.messages == 0 {
            socket.reader_waits = true;
            self.wait(cpu, task);
            return;
        }
        socket.messages -= 1;
        self.received += 1;
        if socket.messages <= ROOM_AGAIN {
            let writers = core::mem::take(&mut socket.writers);
            self.cpus[cpu].ops.extend(writers.into_iter().map(Op::Wake));
        }
    }

    /// The current task waits for its socket; it tries again when it is woken.
    fn wait(&mut self, cpu: usize, task: TaskId) {
        self.cpus[cpu].blocks = true;
        self.tasks[usize::from(task)].state = State::Waits;
    }

    /// vCPU `cpu` wakes a task.
    pub(super) fn wake(&mut self, cpu: usize, task: TaskId) {
        let it = &mut self.tasks[usize::from(task)];
        if it.state == State::Ready {
            return;
        }
        let last = usize::from(it.cpu);
        if self.cpus[last].current == Some(task) {
            // It has not stopped yet.
            it.woken = true;
            return;
        }
        it.state = State::Ready;
        // To its last vCPU if nothing runs there, else to a vCPU where nothing runs, else to its last one.
        let count = self.cpus.len();
        let places = (0..count).map(|step| (last + step) % count);
        let idle = places.into_iter().find(|it| self.cpus[*it].is_idle());
        let to = match self.is_thread(task) {
            true => last,
            false => idle.unwrap_or(last),
        };
        let lock = self.run_queue_lock(to);
        self.push(
            cpu,
            [
                Op::Run(Doing::Kernel, WAKE),
                Op::Locked(lock, WAKE_LOCKED, Then::Enqueue(task, to as u8)),
            ],
        );
    }

    fn enqueue(&mut self, cpu: usize, task: TaskId, to: usize) {
        let was_idle = self.cpus[to].is_idle();
        self.tasks[usize::from(task)].cpu = to as u8;
        self.cpus[to].queue.push_back(task);
        self.cpus[to].has_looked = false;
        if was_idle && to != cpu {
            self.push(cpu, [Op::Ring(1 << to, RESCHEDULE)]);
        }
    }

    fn schedule(&mut self, cpu: usize, now: Ticks, vcpus: &mut [Vcpu]) {
        let own = &mut self.cpus[cpu];
        own.is_over = false;
        if let Some(task) = own.current {
            let it = &mut self.tasks[usize::from(task)];
            if !core::mem::take(&mut own.blocks) {
                own.queue.push_back(task);
            } else if core::mem::take(&mut it.woken) {
                it.state = State::Ready;
                return;
            }
        }
        own.current = own.queue.pop_front();
        own.slice_start = now;
        let Some(task) = own.current else {
            own.has_looked = false;
            return;
        };
        self.tasks[usize::from(task)].cpu = cpu as u8;
        vcpus[cpu].stack = u32::from(task) + 1;
        vcpus[cpu].timer = vcpus[cpu].timer.min(Ticks(now.0 + TICK.0));
    }

    /// The vCPU, other than this one, with the longest run queue that is longer than `than`, of those that can give a task.
    fn busiest_but(&self, cpu: usize, than: usize) -> Option<usize> {
        let others = (0..self.cpus.len()).filter(|it| *it != cpu);
        others
            .map(|it| (self.cpus[it].queue.len(), it))
            .filter(|(length, it)| *length > than && self.to_give(*it).is_some())
            .max()
            .map(|(_, it)| it)
    }

    /// A waiting task that a vCPU can give away: not its kernel thread.
    fn to_give(&self, cpu: usize) -> Option<usize> {
        let queue = &self.cpus[cpu].queue;
        queue.iter().rposition(|it| !self.is_thread(*it))
    }

    fn fetch_from(&mut self, cpu: usize, from: usize) {
        let lock = self.run_queue_lock(from);
        self.push(
            cpu,
            [Op::Locked(lock, FETCH_LOCKED, Then::Fetch(from as u8))],
        );
    }

    fn fetch(&mut self, cpu: usize, from: usize) {
        let at = self.to_give(from);
        if let Some(task) = at.and_then(|at| self.cpus[from].queue.remove(at)) {
            self.tasks[usize::from(task)].cpu = cpu as u8;
            self.cpus[cpu].queue.push_back(task);
        }
    }

    /// Calls all vCPUs that are not idle, and waits for their answers.
    pub(super) fn call(&mut self, cpu: usize) {
        let mut targets = 0;
        for other in 0..self.cpus.len() {
            if other != cpu && !self.cpus[other].is_idle() {
                self.cpus[other].callers |= 1 << cpu;
                targets |= 1 << other;
            }
        }
        self.cpus[cpu].answers = u32::count_ones(targets);
        if targets != 0 {
            self.push(cpu, [Op::Ring(targets, CALL), Op::Await]);
        }
    }

    /// The work of a handler.
    pub(super) fn handle(&mut self, cpu: usize, kinds: u8, now: Ticks, vcpus: &mut [Vcpu]) {
        if kinds & CALL != 0 {
            let mut callers = core::mem::take(&mut self.cpus[cpu].callers);
            while callers != 0 {
                let caller = callers.trailing_zeros() as usize;
                callers &= callers - 1;
                self.answer(caller, now, vcpus);
            }
        }
        if kinds & TIMER != 0 {
            self.tick(cpu, now, vcpus);
        }
    }

    fn answer(&mut self, caller: usize, now: Ticks, vcpus: &mut [Vcpu]) {
        self.cpus[caller].answers -= 1;
        let vcpu = &mut vcpus[caller];
        if self.cpus[caller].answers == 0 && vcpu.doing == Doing::Await {
            if vcpu.on.is_some() {
                vcpu.count(now);
            }
            self.spun += vcpu.done;
            vcpu.release(now, Doing::Kernel, 1);
            self.released |= 1 << caller;
        }
    }

    fn tick(&mut self, cpu: usize, now: Ticks, vcpus: &mut [Vcpu]) {
        let lock = self.run_queue_lock(cpu);
        if self.cpus[cpu].current.is_some() {
            let length = self.cpus[cpu].queue.len();
            if let Some(busiest) = self.busiest_but(cpu, length + 1) {
                self.fetch_from(cpu, busiest);
            }
            let ran = now.saturating_sub(self.cpus[cpu].slice_start);
            self.cpus[cpu].is_over |= ran >= SLICE;
            self.push(cpu, [Op::Locked(lock, TICK_LOCKED, Then::Nothing)]);
        }
        if self.cpus[cpu].housekeeping <= now {
            self.cpus[cpu].housekeeping = Ticks(now.0 + HOUSEKEEPING_PERIOD.0);
            let thread = self.thread(cpu);
            self.wake(cpu, thread);
        }
        let next = match self.cpus[cpu].is_idle() {
            true => Ticks::NEVER,
            false => Ticks(now.0 + TICK.0),
        };
        vcpus[cpu].timer = next.min(self.cpus[cpu].housekeeping);
    }
}
