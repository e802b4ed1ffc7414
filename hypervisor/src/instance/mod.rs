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
mod loaded_gic;
mod mail;
mod operator;
mod platform;
mod sysregs;

use crate::console::{CONSOLE, Keyboard};
use crate::cpu;
use crate::entropy::Stream;
use crate::epitaph::fatal;
use crate::events::{Event, note};
use crate::guest_registers::Exit;
use crate::hardware::{enter, finish_loading, wait_for_interrupt};
use crate::loader;
use crate::machine::Machine;
use crate::timers;
use crate::turns::Turns;
use crate::vcpu::{Vcpu, VcpuToken, Work};
use platform::CorePlatform;
use spumone_config::types::{MAX_GUESTS, MAX_VCPUS};
use spumone_config::{GuestId, PcpuId, VcpuId};
use spumone_core::console::{Answers, Attendance, Served};
use spumone_core::mailbox::Port;
use spumone_core::migration::{self, CoreSetup, CoreState, Next};
use spumone_core::schedule::{Band, Ticks, VcpuState};

/// One core's hypervisor.
pub struct Instance {
    /// Its vCPUs, and what it knows of those that migrate.
    state: CoreState<VcpuToken>,
    /// The core itself.
    platform: CorePlatform,
    /// What is typed; on the console's core only.
    keyboard: Option<Keyboard>,
    /// What the operator has yet to be answered.
    answers: Answers,
    /// What is done first in the next step for the operator.
    next_chore: usize,
    /// Random numbers for TRNG calls.
    random: Stream,
}

impl Turns for Instance {
    fn prepare(&mut self) {
        self.adopt_vcpus();
    }

    /// One bounded step; interrupts are looked at in between.
    #[inline(always)]
    fn turn(&mut self) {
        match migration::next_action(&mut self.state, &mut self.platform) {
            Next::Turn => {}
            Next::Idle => self.idle(),
            Next::Run(_) => self.run_vcpu(),
            Next::Exchange(vcpu) => self.prepare_vcpu(vcpu),
            Next::Chore(now) => self.do_chore(now),
        }
    }
}

/// The loaded vCPU, where there must be one.
#[inline(always)]
fn loaded(state: &mut CoreState<VcpuToken>) -> &mut Vcpu {
    match state.loaded_vcpu_mut() {
        Some(vcpu) => vcpu,
        None => fatal!("no vCPU is loaded"),
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
        let setup = CoreSetup {
            quantum: Ticks::from_micros(machine.quantum_us, frequency_hz),
            frequency_hz,
            rules: machine.policy.rules(),
            without: machine.without,
        };
        let mut state = CoreState::new(core, &setup, &machine.shared);
        for vcpu in vcpus.into_iter().flatten() {
            let (id, band) = (vcpu.id, vcpu.band);
            state.place(id, vcpu, band, VcpuState::Off);
        }
        let attendance = Attendance::new(has_console, frequency_hz);
        Self {
            state,
            platform: CorePlatform::new(core, machine, port, attendance, list_registers),
            keyboard: has_console.then(|| Keyboard::new(machine)),
            answers: Answers::new(has_console.then(|| CONSOLE.focus())),
            next_chore: 0,
            random: machine.entropy.of_core(core),
        }
    }

    /// A vCPU of this core whose registers are saved, where it must be here.
    fn saved(&mut self, id: VcpuId) -> &mut Vcpu {
        match self.state.saved_vcpu_mut(id) {
            Some(vcpu) => vcpu,
            None => fatal!("vCPU {id} is not on this core"),
        }
    }

    /// No vCPU wants the core: it writes what the console has left, then sleeps until an interrupt.
    fn idle(&mut self) {
        let mut more = CONSOLE.work_left();
        // Each round writes some bytes, so the rings' size bounds their number; an interrupt
        // ends them.
        while more && !cpu::interrupt_pending() && !self.state.must_decide() {
            more = self.serve_console() == Served::BudgetSpent;
        }
        // Room in the console may have woken a vCPU.
        if self.state.must_decide() {
            return;
        }
        wait_for_interrupt();
        self.take_interrupts();
    }

    /// A step on the way to the running vCPU, whose registers are not on the core: loads its guest,
    /// which needs no registers, or puts them there.
    #[inline(always)]
    fn prepare_vcpu(&mut self, id: VcpuId) {
        if let Some(vcpu) = self.state.saved_vcpu_mut(id) {
            if let Work::Load(_) = vcpu.work {
                return self.load_guest(id);
            }
            if let Some(start) = vcpu.resume {
                vcpu.power_up(start);
            }
        }
        migration::exchange(&mut self.state, &mut self.platform, id);
    }

    /// The next piece of work that brings the guest of vCPU `id` to where it starts.
    #[inline(never)]
    fn load_guest(&mut self, id: VcpuId) {
        let machine = self.platform.machine;
        let vcpu = self.saved(id);
        let (guest_id, guest) = (vcpu.guest, vcpu.shared);
        let Work::Load(progress) = &mut vcpu.work else {
            return;
        };
        let life = guest.lifecycle.now().1;
        let random = |number| machine.entropy.byte_of_guest(guest_id, life.0, number);
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
    fn run_vcpu(&mut self) {
        if self.state.must_refresh() {
            if cpu::interrupt_pending() {
                self.take_interrupts();
                return;
            }
            migration::refresh(&mut self.state, &mut self.platform);
        }
        // Output that waits is written while no higher band runs.
        if CONSOLE.work_left()
            && self.state.current_band() == Some(Band::LOWEST)
            && !cpu::interrupt_pending()
        {
            let _ = self.serve_console();
        }
        // Either may have woken a vCPU of a higher band on this core, or changed this one's interrupts.
        let is_held_up = self.state.must_decide() || self.state.must_refresh();
        if cpu::interrupt_pending() {
            // It would come back at once.
            self.take_interrupts();
            return;
        }
        if is_held_up {
            return;
        }
        match enter(&mut loaded(&mut self.state).registers) {
            Exit::Interrupt => self.interrupted(),
            Exit::Synchronous => self.exception(),
            Exit::SystemError => self.system_error(),
        }
    }

    /// Guests whose first vCPU is here are loaded; the other vCPUs are parked, so that any core of their guest can turn
    /// them on.
    fn adopt_vcpus(&mut self) {
        let core = self.platform.core;
        let mut first = heapless::Vec::<GuestId, MAX_GUESTS>::new();
        for id in self.state.here().iter() {
            let vcpu = self.saved(id);
            vcpu.shared.gic.doorbell(vcpu.index).settle(core);
            if vcpu.index.0 == 0 {
                let _ = first.push(vcpu.guest);
            }
        }
        for guest in first {
            self.begin_loading(guest);
        }
        for id in self.state.here().iter() {
            // One that loads its guest is runnable, but has nothing to be parked with.
            if self.state.vcpu_state(id) == Some(VcpuState::Off) {
                migration::park(&mut self.state, &mut self.platform, id);
            }
        }
        note(core, Event::Start, 0);
    }
}
