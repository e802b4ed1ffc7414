// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hypervisor on one core.
//!
//! Each core runs an instance of its own: its vCPUs, its run queue, its stack. Instances share no
//! data but what `machine` shows, wait for nothing, and never run with interrupts unmasked. An
//! instance is a loop: decide who runs, let it run until it comes back, see why it came.

mod exceptions;
mod firmware;
#[cfg(test)]
mod inspection;
mod interrupts;
mod life;
mod operator;
mod site;
mod switch;
mod sysregs;

use crate::console::{CONSOLE, Keyboard};
use crate::cpu;
use crate::entropy::Stream;
use crate::events::{Event, note};
use crate::guest_registers::Exit;
use crate::hardware::{enter, finish_loading, wait_for_interrupt};
use crate::loader;
use crate::machine::{Core, Machine};
use crate::timers;
use crate::turns::Turns;
use crate::vcpu::{VcpuToken, Work};
use spumone_config::types::{MAX_GUESTS, MAX_VCPUS};
use spumone_config::{GuestId, PcpuId, VcpuId};
use spumone_core::console::{Answers, Attendance, Served};
use spumone_core::mailbox::Port;
use spumone_core::migration::{self, CoreSetup, CoreState, Next};
use spumone_core::schedule::{Band, Ticks, VcpuState};

/// One core's hypervisor.
pub struct Instance {
    core: PcpuId,
    machine: &'static Machine,
    /// What this core tells others of itself.
    own: &'static Core,
    port: Port<'static>,
    /// Its vCPUs, and what it knows of those that move.
    local: CoreState<VcpuToken>,
    /// The last vCPU of each guest that ran here, for the TLB.
    last_of_guest: [Option<VcpuId>; MAX_GUESTS],
    /// The virtual interrupts of the loaded vCPU may have changed.
    interrupts_changed: bool,
    /// When this core attends to the console.
    attendance: Attendance,
    /// What is typed; on the console's core only.
    keyboard: Option<Keyboard>,
    /// What the operator has yet to be answered.
    answers: Answers,
    /// What is done first in the next step for the operator.
    next_chore: usize,
    /// Random numbers for TRNG calls.
    random: Stream,
    /// List registers of the core.
    list_registers: usize,
    /// Whether the core has the registers of deferred SErrors, which are switched then.
    has_error_registers: bool,
}

impl Turns for Instance {
    fn prepare(&mut self) {
        self.adopt_vcpus();
    }

    /// One bounded step; interrupts are looked at in between.
    #[inline(always)]
    fn turn(&mut self) {
        match migration::next_action(self) {
            Next::Turn => {}
            Next::Idle => self.idle(),
            Next::Run(vcpu) => self.run_vcpu(vcpu),
            Next::Exchange(vcpu) => self.prepare_vcpu(vcpu),
        }
    }
}

impl Instance {
    /// The instance of `core`, with the vCPUs that have their home there.
    pub fn new(
        core: PcpuId,
        machine: &'static Machine,
        port: Port<'static>,
        vcpus: [Option<VcpuToken>; MAX_VCPUS],
        list_registers: usize,
    ) -> Self {
        let frequency_hz = timers::frequency() as u32;
        let has_console = core == machine.console_core;
        let home_vcpus = (0..MAX_VCPUS as u8)
            .map(VcpuId)
            .filter(|&id| machine.vcpu(id).is_some_and(|it| it.home == core))
            .collect();
        let setting = CoreSetup {
            quantum: Ticks::from_micros(machine.quantum_us, frequency_hz),
            frequency_hz,
            rules: machine.policy.rules(),
            without: machine.without,
            moving: machine.moving(core),
            home_vcpus,
            excludes_kernels: machine.excludes_kernels(core),
        };
        Self {
            core,
            machine,
            own: &machine.cores[core.index()],
            port,
            local: CoreState::new(&setting, vcpus),
            last_of_guest: [None; MAX_GUESTS],
            interrupts_changed: false,
            attendance: Attendance::new(has_console, frequency_hz),
            keyboard: has_console.then(|| Keyboard::new(machine)),
            answers: Answers::new(),
            next_chore: 0,
            random: machine.entropy.of_core(core),
            list_registers,
            has_error_registers: cpu::has_error_registers(),
        }
    }

    /// Takes interrupts that are pending.
    pub(super) fn take_interrupts(&mut self) {
        migration::take_interrupts(self);
    }

    /// Nobody wants the core: it writes what the console has left, then sleeps until an interrupt.
    fn idle(&mut self) {
        let mut more = CONSOLE.work_left();
        // Each round writes some bytes, so the rings' size bounds their number; an interrupt
        // ends them.
        while more && !cpu::interrupt_pending() && !self.local.must_decide {
            more = self.serve_console() == Served::BudgetSpent;
        }
        // Room in the console may have woken a vCPU.
        if self.local.must_decide {
            return;
        }
        wait_for_interrupt();
        self.take_interrupts();
    }

    /// A step on the way to the running vCPU, whose registers are not on the core: loads its guest,
    /// which needs no registers, or puts them there.
    #[inline(always)]
    fn prepare_vcpu(&mut self, id: VcpuId) {
        match self.vcpu(id).map(|vcpu| &vcpu.work) {
            Some(Work::Guest) => self.exchange(id),
            Some(Work::Load(_)) => self.load_guest(id),
            None => {
                // The scheduler knows the vCPUs of this core only.
                self.local.running = None;
                self.local.must_decide = true;
            }
        }
    }

    /// The next piece of work that brings the guest of vCPU `id` to where it starts.
    #[inline(never)]
    fn load_guest(&mut self, id: VcpuId) {
        let Some(vcpu) = self.local.vcpus[id.index()].as_mut() else {
            return;
        };
        let guest_id = vcpu.guest;
        let Work::Load(progress) = &mut vcpu.work else {
            return;
        };
        let guest = self.machine.guest(guest_id);
        let entropy = &self.machine.entropy;
        let life = guest.lifecycle.now().1;
        let random = |number| entropy.byte_of_guest(guest_id, life.0, number);
        match progress.next(&guest.config) {
            Some(chunk) => loader::carry_out(chunk, random),
            None => {
                finish_loading();
                self.begin_life(id);
            }
        }
        if cpu::interrupt_pending() {
            self.take_interrupts();
        }
    }

    /// Lets the running vCPU, whose registers are on the core, work until something stops it.
    #[inline(always)]
    fn run_vcpu(&mut self, id: VcpuId) {
        if self.interrupts_changed {
            if cpu::interrupt_pending() {
                self.take_interrupts();
                return;
            }
            self.refresh_interrupts();
        }
        // Output that somebody had no time to write is written while nobody urgent runs.
        if CONSOLE.work_left()
            && self.local.scheduler.current_band() == Some(Band::LOWEST)
            && !cpu::interrupt_pending()
        {
            let _ = self.serve_console();
        }
        // Either may have woken a more urgent vCPU of this core, or changed this one's interrupts.
        let is_held_up = self.local.must_decide || self.interrupts_changed;
        if cpu::interrupt_pending() {
            // It would come back at once.
            self.take_interrupts();
            return;
        }
        if is_held_up {
            return;
        }
        let Some(vcpu) = self.local.vcpus[id.index()].as_mut() else {
            return;
        };
        match enter(&mut vcpu.registers) {
            Exit::Interrupt => self.interrupted(id),
            Exit::Synchronous => self.exception(id),
            Exit::SystemError => self.system_error(id),
        }
    }

    /// The vCPUs that were placed here at start become known to the scheduler; guests whose first
    /// vCPU is here are loaded.
    fn adopt_vcpus(&mut self) {
        let mut first = heapless::Vec::<GuestId, MAX_GUESTS>::new();
        for vcpu in self.local.vcpus.iter().flatten() {
            vcpu.shared.gic.doorbell(vcpu.index).settle(self.core);
            let admitted = self
                .local
                .scheduler
                .admit(vcpu.id, vcpu.band, VcpuState::Off);
            debug_assert!(admitted.is_ok(), "start-up places each vCPU once");
            if vcpu.index.0 == 0 {
                let _ = first.push(vcpu.guest);
            }
        }
        for guest in first {
            self.begin_loading(guest);
        }
        for index in 0..MAX_VCPUS as u8 {
            // One that loads its guest could run, but has nothing to be parked with.
            let id = VcpuId(index);
            if self.local.scheduler.state(id) == Some(VcpuState::Off) {
                migration::park(self, id);
            }
        }
        note(self.core, Event::Start, 0);
    }
}
