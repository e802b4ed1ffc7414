// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hypervisor on one core.
//!
//! Each core runs its own instance, with its vCPUs, its run queue and its stack. Instances share only
//! what is in `machine`, and always run with interrupts masked. None waits for another one, except for a chunk of a guest that both
//! load, which the other one carries out or gives back. An instance is a loop: decide which vCPU runs, enter it, handle its exit.

mod checks;
mod exceptions;
mod firmware;
mod injection;
#[cfg(test)]
mod inspection;
mod interrupts;
mod life;
mod links;
mod loaded_gic;
mod local;
mod mail;
mod operator;
mod orders;
mod platform;
mod power;
mod sysregs;
mod virtio;
mod watchdogs;

use crate::console::{CONSOLE, Keyboard};
use crate::core_loop::CoreLoop;
use crate::cpu;
use crate::entropy::Stream;
use crate::epitaph::fatal;
use crate::events::Event;
use crate::guest_registers::Exit;
use crate::hardware::{enter, finish_loading, wait_for_interrupt};
use crate::loader::{self, Left};
use crate::machine::Machine;
use crate::timers;
use crate::vcpu::{Vcpu, VcpuToken, Work};
use core::sync::atomic::Ordering::Relaxed;
use interrupts::Delivered;
use life::reset_shared;
use platform::CorePlatform;
use power::Governing;
use spumone_config::types::{MAX_GUESTS, MAX_VCPUS};
use spumone_config::{GuestId, PcpuId, VcpuId};
use spumone_core::bits::bits;
use spumone_core::console::{Answers, Attendance, Served};
use spumone_core::load::{Hashing, RESET_SPIS, guests_to_help};
use spumone_core::mailbox::Port;
use spumone_core::migration::{self, CoreSetup, CoreState, Next};
use spumone_core::orders::Deferral;
use spumone_core::protect::Turns;
use spumone_core::psci::Generation;
use spumone_core::schedule::{Band, Ticks, VcpuState};

/// One core's hypervisor.
// `repr(C)`: what is used most comes first.
#[repr(C)]
pub struct Instance {
    /// The vCPUs of the core, its run queue, and its state of migration.
    state: CoreState<VcpuToken>,
    /// The core itself.
    platform: CorePlatform,
    /// The keyboard; on the console core only.
    keyboard: Option<Keyboard>,
    /// Answers to the operator that are not printed yet.
    answers: Answers,
    /// Index of the [`operator`] chore that the next step tries first.
    next_chore: usize,
    /// Random numbers for TRNG calls.
    random: Stream,
    /// The chunk that this core has begun to hash, and what for. Not in one `Option`, so that it stays where it is.
    helps: Option<Hashing>,
    helped: Helped,
    /// Whether it was begun because it is late.
    is_late: bool,
    /// Whether an interrupt came before a step that takes long.
    deferral: Deferral,
    /// In which order this core checks the protected memory of guests.
    turns: Turns,
    /// The governor; on the console's core only, and only if cores go off.
    governing: Option<Governing>,
}

/// What a core hashes a chunk for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Helped {
    /// To load this guest.
    Load(GuestId),
    /// To check the protected memory of this guest, in this life.
    Check(GuestId, Generation),
}

impl CoreLoop for Instance {
    fn prepare(&mut self) {
        self.adopt_vcpus();
    }

    /// One bounded step; the core looks for interrupts between steps.
    #[inline(always)]
    fn iterate(&mut self, enters_again: bool) -> bool {
        if !enters_again {
            if !self.step() {
                return false;
            }
            self.state.enters_guest();
        }
        self.enter_vcpu()
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

/// Loads chunks of a guest, if it is being loaded, until an interrupt pends. `held`: the chunk that this core has begun to hash.
#[inline(never)]
fn load_chunks(platform: &CorePlatform, id: GuestId, held: &mut Option<Hashing>) -> Left {
    let machine = platform.machine;
    let guest = machine.guest(id);
    let random = |number| {
        let life = guest.lifecycle.now().1;
        machine.entropy.byte_of_guest(id, life.0, number)
    };
    let mut gic = platform.loaded_gic(id);
    // A core that took an interrupt of the former life has delivered it by now: it has acknowledged the end of that life since.
    let reset_spis = |first| guest.gic.reset_spis(first, RESET_SPIS, &mut gic);
    let core = platform.core;
    loader::load_until_interrupted(guest, core, held, random, reset_spis)
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
            let id = vcpu.id();
            if let Some(band) = machine.shared.band(id) {
                state.place(id, vcpu, band, VcpuState::Off);
            }
        }
        let attendance = Attendance::new(has_console, frequency_hz);
        if let Some(own) = machine.cores.get(core.index()) {
            own.usage.switch(None, timers::now());
        }
        Self {
            state,
            platform: CorePlatform::new(core, machine, port, attendance, list_registers),
            keyboard: has_console.then(|| Keyboard::new(machine)),
            answers: Answers::new(has_console.then(|| CONSOLE.focus())),
            next_chore: 0,
            random: machine.entropy.of_core(core),
            helps: None,
            is_late: false,
            deferral: Deferral::default(),
            helped: Helped::Load(GuestId(0)),
            turns: Turns::new(),
            governing: match has_console {
                true => Governing::new(&machine.power, timers::now(), frequency_hz),
                false => None,
            },
        }
    }

    /// A vCPU of this core whose registers are saved, where it must be here.
    fn saved(&mut self, id: VcpuId) -> &mut Vcpu {
        match self.state.saved_vcpu_mut(id) {
            Some(vcpu) => vcpu,
            None => fatal!("vCPU {id} is not on this core"),
        }
    }

    /// No vCPU may run: the core prints waiting output, helps to load guests and checks protected memory, then sleeps until an interrupt.
    fn idle(&mut self) {
        // Each round prints some bytes. So the sizes of rings bound the number of rounds; an interrupt ends the loop.
        while !cpu::interrupt_pending() && !self.state.must_decide() {
            let prints = CONSOLE.work_left() && self.serve_console() == Served::BudgetSpent;
            if cpu::interrupt_pending() {
                break;
            }
            // There may be more to load, or another core may still carry out what the rest needs.
            if self.helps_to_load() || self.checks_memory() {
                return;
            }
            if !prints {
                break;
            }
        }
        // New room in a ring may have woken a vCPU.
        if self.state.must_decide() || self.follows_wish() {
            return;
        }
        wait_for_interrupt();
        self.take_interrupts();
    }

    /// The running vCPU is loaded, and waits for its timer. The core does nothing else, so that it takes that interrupt at once.
    fn await_interrupt(&mut self) {
        if !cpu::interrupt_pending() {
            wait_for_interrupt();
        }
        self.take_interrupts();
    }

    /// A step of what the core is to do next. Returns whether it enters the running vCPU now.
    #[inline(always)]
    fn step(&mut self) -> bool {
        match migration::next_action(&mut self.state, &mut self.platform) {
            Next::Decide => {}
            Next::Idle => self.idle(),
            Next::Run(_) => {
                self.pause_helping();
                return self.prepare_entry();
            }
            Next::Await => {
                self.pause_helping();
                self.await_interrupt();
            }
            Next::Switch(vcpu) => {
                self.pause_helping();
                self.prepare_vcpu(vcpu);
            }
            Next::Chore(now) => self.do_chore(now),
        }
        false
    }

    /// One step towards the entry of the running vCPU, which is not loaded: chunks of its
    /// guest, for which its registers are not needed, or a step of the switch to it.
    #[inline(always)]
    fn prepare_vcpu(&mut self, id: VcpuId) {
        if let Some(vcpu) = self.state.saved_vcpu_mut(id) {
            if !matches!(vcpu.work, Work::Guest) {
                return self.start_guest(id);
            }
            if let Some(start) = vcpu.resume {
                vcpu.power_up(start);
            }
        }
        migration::switch(&mut self.state, &mut self.platform, id);
    }

    /// A step of the start of a guest by its first vCPU.
    #[inline(never)]
    fn start_guest(&mut self, id: VcpuId) {
        match self.saved(id).work {
            Work::Guest => {}
            Work::Load => self.load_guest(id),
            Work::Reset => {
                reset_shared(self.saved(id).shared);
                self.saved(id).work = Work::Begin;
            }
            Work::Begin => self.begin_life(id),
        }
        if cpu::interrupt_pending() {
            self.take_interrupts();
        }
    }

    /// Loads the guest of vCPU `id` until an interrupt comes, with the help of cores that idle.
    fn load_guest(&mut self, id: VcpuId) {
        let machine = self.platform.machine;
        let vcpu = self.saved(id);
        let (guest_id, guest) = (vcpu.guest, vcpu.shared);
        let life = guest.lifecycle.now().1;
        if !guest.loading.has_begun(life) {
            if !self.moves_frames_of(guest) {
                self.begin_chunks(guest_id, life);
            }
        } else if self.load_own_chunks(guest_id, id) == Left::Nothing {
            machine.loading.fetch_and(!(1 << guest_id.0), Relaxed);
            finish_loading();
            self.saved(id).work = Work::Reset;
        }
    }

    /// Begins to load a guest, and calls the other cores: those that idle help.
    fn begin_chunks(&mut self, id: GuestId, life: Generation) {
        let machine = self.platform.machine;
        machine.guest(id).loading.begin(life);
        machine.loading.fetch_or(1 << id.0, Relaxed);
        let cores = (0..machine.cores.len() as u8).map(PcpuId);
        // At most 8 times: cores.
        for core in cores.filter(|&core| core != self.platform.core) {
            // With split priorities, only cores that idle or run the lowest band take it.
            machine.hint(core, Band::LOWEST);
        }
    }

    /// As [`load_chunks`], by the guest's first vCPU. It keeps a chunk that it has begun: the guest waits for this core in
    /// any case.
    fn load_own_chunks(&mut self, guest: GuestId, vcpu: VcpuId) -> Left {
        match self.state.saved_vcpu_mut(vcpu) {
            Some(vcpu) => load_chunks(&self.platform, guest, &mut vcpu.hashing),
            None => fatal!("vCPU {vcpu} is not on this core"),
        }
    }

    /// The core is about to do something else, maybe for long: gives back the chunk that it has begun to hash while it was idle.
    #[inline(always)]
    fn pause_helping(&mut self) {
        if self.helps.is_some() && !self.keeps_leaf() {
            self.give_chunk_back();
        }
    }

    /// Gives back the chunk that the core has begun to hash.
    fn stop_helping(&mut self) {
        if self.helps.is_some() {
            self.give_chunk_back();
        }
    }

    #[inline(never)]
    fn give_chunk_back(&mut self) {
        if let Some(hashing) = &self.helps {
            let (machine, core) = (self.platform.machine, self.platform.core);
            match self.helped {
                Helped::Load(id) => machine.guest(id).loading.give_back(core, hashing.chunk()),
                Helped::Check(id, _) => machine.guest(id).rounds.give_back(core, hashing.chunk()),
            }
        }
        self.helps = None;
        self.is_late = false;
    }

    /// Loads chunks of the guests that are being loaded now, if this core may ([`guests_to_help`]). Returns whether there may be more.
    fn helps_to_load(&mut self) -> bool {
        let machine = self.platform.machine;
        let loading = machine.loading.load(Relaxed);
        if loading == 0 {
            return false;
        }
        let own = self.state.tokens().iter();
        // At most 32 times: vCPUs.
        let own = own.filter_map(|id| machine.shared.band(id)).max();
        let loading = bits(loading).map(|guest| GuestId(guest as u8));
        let loading = loading.map(|id| (id, machine.guest(id).config.band));
        let guests = guests_to_help(own, loading);
        // At most 8 times: guests.
        if let Helped::Load(helped) = self.helped
            && !guests.contains(&helped)
        {
            self.stop_helping();
        }
        // At most 8 times: guests.
        guests.iter().any(|&id| self.help_with(id) == Left::More)
    }

    /// Helps with this guest, and gives back what the core has begun for something else, which is less urgent.
    fn help_with(&mut self, id: GuestId) -> Left {
        self.helps_for(Helped::Load(id));
        load_chunks(&self.platform, id, &mut self.helps)
    }

    /// The core hashes for this now, and gives back what it has begun for something else.
    fn helps_for(&mut self, what: Helped) {
        if self.helped != what {
            self.stop_helping();
        }
        self.helped = what;
    }

    /// Does what is to be done before the running vCPU, which is loaded, is entered. Returns whether it is entered now.
    #[inline(always)]
    fn prepare_entry(&mut self) -> bool {
        if self.state.must_refresh() {
            if cpu::interrupt_pending() {
                self.take_interrupts();
                return false;
            }
            let vcpu = loaded(&mut self.state);
            if vcpu.resume.is_some() {
                let id = vcpu.id();
                self.power_down(id);
                return false;
            }
            migration::refresh(&mut self.state, &mut self.platform);
        }
        if loaded(&mut self.state).has_due() && !self.serve_devices() {
            return false;
        }
        if self.prints() && !cpu::interrupt_pending() {
            let _ = self.serve_console();
        }
        // The refresh or the console may have woken a vCPU of a higher band, or changed this vCPU's interrupts.
        let must_not_enter = self.state.must_decide() || self.state.must_refresh();
        if cpu::interrupt_pending() {
            // The vCPU would exit at once.
            self.take_interrupts();
            return false;
        }
        !must_not_enter
    }

    /// Enters the running vCPU, and handles its exit. Returns whether the vCPU is entered again without another look at all else.
    #[inline(always)]
    fn enter_vcpu(&mut self) -> bool {
        let delivered = match enter(&mut loaded(&mut self.state).registers) {
            Exit::Interrupt => self.interrupted(),
            Exit::Synchronous => {
                self.exception();
                Delivered::Nothing
            }
            Exit::SystemError => {
                self.system_error();
                Delivered::Nothing
            }
        };
        delivered != Delivered::Nothing && self.may_enter_again(delivered)
    }

    /// An interrupt was delivered to the running vCPU the shortest way, which changes nothing else. Returns whether nothing has come since the last entry
    /// that the core sees to before the next one: output, or another interrupt.
    #[inline(always)]
    fn may_enter_again(&mut self, delivered: Delivered) -> bool {
        let has_more = self.prints() || cpu::interrupt_pending();
        match delivered {
            Delivered::Kick if has_more => self.state.note_other_delivery(),
            _ if has_more => self.state.note_delivery(),
            _ => {}
        }
        !has_more
    }

    /// Whether output waits that this core prints before it enters a guest: it does so only while the lowest band runs.
    #[inline(always)]
    fn prints(&self) -> bool {
        CONSOLE.work_left() && self.state.current_band() == Some(Band::LOWEST)
    }

    /// Has the first vCPUs of guests load their guests, and parks the other vCPUs, so that any core of their guest can
    /// turn them on.
    fn adopt_vcpus(&mut self) {
        let core = self.platform.core;
        let mut first = heapless::Vec::<GuestId, MAX_GUESTS>::new();
        for id in self.state.tokens().iter() {
            let vcpu = self.saved(id);
            vcpu.shared.gic.doorbell(vcpu.index).settle(core);
            if vcpu.index.0 == 0 {
                let _ = first.push(vcpu.guest);
            }
        }
        for guest in first {
            self.begin_loading(guest);
        }
        for id in self.state.tokens().iter() {
            // A vCPU that loads its guest is runnable, and stays here.
            if self.state.vcpu_state(id) == Some(VcpuState::Off) {
                migration::park(&mut self.state, &mut self.platform, id);
            }
        }
        self.platform.events.note(Event::Start, 0);
    }
}
