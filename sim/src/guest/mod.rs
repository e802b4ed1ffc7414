// SPDX-License-Identifier: MIT OR Apache-2.0
//! What runs on vCPUs.
//!
//! A vCPU works in steps: so many instructions in a program or in the kernel, a wait for a lock, or a wait for an
//! interrupt. At the end of a step the guest chooses the next one. Steps take time only while the vCPU is on a core.

mod churn;
mod duty;
mod messages;
mod rt;

pub use churn::Churn;
pub use duty::Threads;
pub use messages::Messages;
pub use rt::RtTask;

use spumone_config::types::PcpuId;
use spumone_core::migration::Sample;
use spumone_core::schedule::Ticks;

/// A step that ends when another vCPU acts.
pub const ENDLESS: u64 = u64::MAX;

/// An interrupt of another vCPU: there is a task in the run queue.
pub const RESCHEDULE: u8 = 1;
/// An interrupt of another vCPU: call a function and answer when it is done.
pub const CALL: u8 = 2;
/// The vCPU's own timer.
pub const TIMER: u8 = 4;

/// What a vCPU is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// It runs a program.
    User,
    /// It runs the kernel.
    Kernel,
    /// It runs the kernel with interrupts masked: in a critical section, or in a handler.
    Masked,
    /// It waits for a lock in a loop with interrupts masked.
    Spin,
    /// It waits in a loop for other vCPUs to answer its call.
    Await,
    /// It waits for an interrupt (WFI).
    Wait,
}

/// The registers of a vCPU, as far as the model has them.
#[derive(Clone, Debug)]
pub struct Vcpu {
    /// What it is doing.
    pub doing: Doing,
    /// Instructions left of the step at the time `since`; [`ENDLESS`]: it waits.
    pub left: u64,
    /// Instructions of the step so far.
    pub done: u64,
    /// The vCPU's core, while it is in the guest.
    pub on: Option<PcpuId>,
    /// When `left` was last updated, or the vCPU last entered.
    pub since: Ticks,
    /// When its timer expires; [`Ticks::NEVER`]: it is off, or has expired.
    pub timer: Ticks,
    /// Interrupts in its doorbell.
    pub bell: u8,
    /// Interrupts that are pending in its list registers.
    pub irqs: u8,
    /// The piece of code that the step executes.
    pub code: u32,
    /// The task whose stack it uses.
    pub stack: u32,
}

impl Vcpu {
    /// A vCPU that has just been turned on.
    pub const fn new() -> Self {
        Self {
            doing: Doing::Kernel,
            left: 0,
            done: 0,
            on: None,
            since: Ticks(0),
            timer: Ticks::NEVER,
            bell: 0,
            irqs: 0,
            code: 0,
            stack: 0,
        }
    }

    /// Whether an interrupt has come for it, or its timer has expired.
    pub fn has_pending(&self, now: Ticks) -> bool {
        self.bell | self.irqs != 0 || self.timer <= now
    }

    /// Begins a step.
    pub fn begin(&mut self, doing: Doing, length: u64) {
        self.doing = doing;
        self.left = length;
        self.done = 0;
        self.code = self.code.wrapping_add(1);
    }

    /// When the step ends if nothing interrupts it.
    #[inline]
    pub fn end(&self) -> Ticks {
        match self.on {
            Some(_) if self.left != ENDLESS => Ticks(self.since.0 + self.left),
            _ => Ticks::NEVER,
        }
    }

    /// Updates `left` for the time up to now.
    #[inline]
    pub fn count(&mut self, now: Ticks) {
        let passed = now.saturating_sub(self.since).0;
        if self.left != ENDLESS {
            self.left = self.left.saturating_sub(passed);
        }
        self.done += passed;
        self.since = self.since.max(now);
    }

    /// The wait of its step is over: the next step begins.
    pub fn release(&mut self, now: Ticks, doing: Doing, length: u64) {
        self.begin(doing, length);
        self.since = self.since.max(now);
    }

    /// Whether it is in its guest's kernel.
    pub fn is_in_kernel(&self) -> bool {
        self.doing != Doing::User
    }

    /// Whether it has interrupts unmasked.
    pub fn is_open(&self) -> bool {
        !matches!(self.doing, Doing::Masked | Doing::Spin)
    }

    /// Whether it runs or could.
    #[inline]
    pub fn wants_to_run(&self, now: Ticks) -> bool {
        self.is_awake() || self.timer <= now
    }

    /// The same, without its timer.
    #[inline]
    pub fn is_awake(&self) -> bool {
        self.doing != Doing::Wait || self.bell | self.irqs != 0
    }

    /// What EL2 samples of it: code that makes progress is at another place at the next sample, a loop is not.
    pub fn sample(&self) -> Sample {
        const CODE_BYTES: u64 = 1 << 20;
        let done = match self.doing {
            Doing::Spin | Doing::Await => 0,
            _ => self.done * 4,
        };
        Sample {
            in_kernel: self.is_in_kernel(),
            pc: u64::from(self.code) * CODE_BYTES + done % CODE_BYTES,
            stack: u64::from(self.stack),
        }
    }
}

/// Why a vCPU exits to EL2 at the end of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It does not exit.
    None,
    /// It sends an interrupt to these vCPUs of its guest; bit n for its vCPU n.
    Sgi(u32, u8),
    /// It waits for an interrupt.
    Wfi,
}

/// The SMP guest.
#[derive(Debug)]
pub enum Smp {
    /// See [`Messages`].
    Messages(Box<Messages>),
    /// See [`Threads`].
    Duty(Threads),
    /// See [`Churn`].
    Churn(Churn),
}

impl Smp {
    /// vCPU `index` has reached the end of its step, or has just been turned on.
    #[inline]
    pub fn advance(&mut self, index: usize, now: Ticks, vcpus: &mut [Vcpu]) -> Exit {
        match self {
            Self::Messages(it) => it.advance(index, now, vcpus),
            Self::Duty(it) => it.advance(index, now, vcpus),
            Self::Churn(it) => it.advance(index, now, vcpus),
        }
    }

    /// Interrupts are pending in vCPU `index`, which runs: if they are unmasked, its handler is the next step.
    #[inline]
    pub fn deliver(&mut self, index: usize, now: Ticks, vcpus: &mut [Vcpu]) {
        match self {
            Self::Messages(it) => it.deliver(index, now, vcpus),
            Self::Duty(it) => it.deliver(index, now, vcpus),
            // It takes them when its step is over.
            Self::Churn(_) => {}
        }
    }

    /// vCPUs whose waits other vCPUs have ended since the last call; bit n for vCPU n.
    #[inline]
    pub fn take_released(&mut self) -> u32 {
        match self {
            Self::Messages(it) => core::mem::take(&mut it.released),
            Self::Duty(_) | Self::Churn(_) => 0,
        }
    }

    /// Whether its load has ended since the last call: with this piece of work, by its number from 0.
    #[inline]
    pub fn take_ended(&mut self) -> Option<u64> {
        match self {
            Self::Messages(it) => it.take_ended(),
            Self::Duty(it) => it.take_ended(),
            Self::Churn(_) => None,
        }
    }
}
