//! The hypervisor on one core.
//!
//! Each core runs an instance of its own: its vCPUs, its run queue, its stack. Instances share no
//! data but what `machine` shows, wait for nothing, and never run with interrupts unmasked. An
//! instance is a loop: decide who runs, let it run until it comes back, see why it came.

mod departure;
mod exceptions;
mod firmware;
mod interrupts;
mod life;
mod lock_holder;
mod migration;
mod switch;
mod sysregs;

use crate::console::CONSOLE;
use crate::cpu;
use crate::entropy::Stream;
use crate::events::{Event, note};
use crate::guest_entry::{Exit, enter};
use crate::loader;
use crate::machine::{Core, Machine};
use crate::timers;
use crate::vcpu::{VcpuToken, Work};
use departure::Catch;
use spumone_config::types::{MAX_GUESTS, MAX_VCPUS};
use spumone_config::{GuestId, PcpuId, VcpuId};
use spumone_core::console::Served;
use spumone_core::mailbox::Port;
use spumone_core::migration::{Conduct, Grace};
use spumone_core::schedule::{Action, Band, Deadlines, Scheduler, Ticks, VcpuState, priority_mask};

/// How often lines without an end are looked for, in microseconds.
const HOUSEKEEPING_US: u32 = 100_000;
/// How often a vCPU that is to let go, but is in its kernel, is looked at, in microseconds.
const GRACE_STEP_US: u32 = 50;
/// How many times.
const GRACE_STEPS: u8 = 5;
/// After how long others are told again of vCPUs that are parked here for a more urgent one, in microseconds.
const RETELL_US: u32 = 1_600;
/// After how long a vCPU that was sent away is taken back if no core has taken it, in microseconds.
const TAKE_BACK_US: u32 = 500;
/// How often a vCPU for which a more urgent one is put off is looked at, in microseconds.
const PUT_OFF_STEP_US: u32 = 20;

/// One core's hypervisor.
pub struct Instance {
    core: PcpuId,
    machine: &'static Machine,
    /// What this core tells others of itself.
    own: &'static Core,
    port: Port<'static>,
    scheduler: Scheduler,
    deadlines: Deadlines,
    /// The vCPUs that are on this core, by id.
    vcpus: [Option<VcpuToken>; MAX_VCPUS],
    /// Who runs, as decided; `None` while the core idles.
    running: Option<VcpuId>,
    /// Whose registers the core holds. While the core idles it still holds those of the last
    /// vCPU: most often the same one is next.
    loaded: Option<VcpuId>,
    /// The last vCPU of each guest that ran here, for the TLB.
    last_of_guest: [Option<VcpuId>; MAX_GUESTS],
    /// Something has happened that the scheduler must be asked about.
    must_decide: bool,
    /// The virtual interrupts of the loaded vCPU may have changed.
    interrupts_changed: bool,
    /// The alarm may have to be set anew: somebody else runs, or a deadline has come or gone.
    alarm_changed: bool,
    /// What the alarm is set to.
    alarm: Ticks,
    /// When the console's held lines are looked at next; on the console's core only.
    housekeeping: Ticks,
    /// vCPUs that change cores, this one among them; bit n for vCPU n.
    moving: u32,
    /// Those of them whose home this core is.
    at_home: u32,
    /// Those that this core has taken and whose home it is not, where the policy sends vCPUs home; perhaps others have
    /// taken them since.
    strangers: u32,
    /// Those that this core has sent away; perhaps others have taken them since.
    sent: u32,
    /// Those that this core has taken back, so that it lets their kernel run.
    stays: u32,
    /// What the policy has the core do.
    conduct: Conduct,
    /// Guests' kernels, but those of the most urgent, do not run here.
    keeps_kernels_off: bool,
    /// How long a vCPU that makes room for a more urgent one is left to this core.
    patience: Ticks,
    /// See [`RETELL_US`].
    retell_after: Ticks,
    /// See [`TAKE_BACK_US`].
    take_back_after: Ticks,
    /// See [`PUT_OFF_STEP_US`].
    put_off_step: Ticks,
    /// Until when a more urgent vCPU is put off.
    put_off_until: Ticks,
    /// vCPUs that this core has parked, and perhaps others have taken since; bit n for vCPU n.
    has_parked: u32,
    /// vCPUs that made room for a more urgent one, and are kept for a while before they are parked; bit n for vCPU n.
    to_park: u32,
    /// When to park those, and to tell others of vCPUs that are parked here for a more urgent one.
    tell_at: Ticks,
    /// When to look again what other cores have parked.
    look_at: Ticks,
    /// What the running vCPU gets on top of its turn.
    grace: Grace,
    /// What brings the loaded vCPU back though it is allowed.
    catches: Catch,
    /// Random numbers for TRNG calls.
    random: Stream,
    /// List registers of the core.
    list_registers: usize,
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
        let micros = |micros| Ticks::from_micros(micros, timers::frequency() as u32);
        let quantum = micros(machine.quantum_us);
        let conduct = machine.policy.conduct();
        let moving = machine.moving(core);
        let at_home = (0..MAX_VCPUS as u8)
            .map(VcpuId)
            .filter(|&id| machine.home(id) == Some(core))
            .fold(0, |mask, id| mask | 1 << id.0);
        Self {
            core,
            machine,
            own: &machine.cores[core.index()],
            port,
            scheduler: Scheduler::new(quantum),
            deadlines: Deadlines::new(),
            vcpus,
            running: None,
            loaded: None,
            last_of_guest: [None; MAX_GUESTS],
            must_decide: true,
            interrupts_changed: false,
            alarm_changed: true,
            alarm: Ticks::NEVER,
            housekeeping: if core == machine.console_core {
                Ticks(0)
            } else {
                Ticks::NEVER
            },
            moving,
            at_home: moving & at_home,
            strangers: 0,
            sent: 0,
            stays: 0,
            conduct,
            keeps_kernels_off: machine.keeps_kernels_off(core),
            patience: conduct
                .patience
                .filter(|_| !machine.without.patience)
                .unwrap_or(Ticks(0)),
            retell_after: micros(RETELL_US),
            take_back_after: micros(TAKE_BACK_US),
            put_off_step: micros(PUT_OFF_STEP_US),
            put_off_until: Ticks::NEVER,
            has_parked: 0,
            to_park: 0,
            tell_at: Ticks::NEVER,
            look_at: Ticks::NEVER,
            grace: Grace::new(
                micros(GRACE_STEP_US),
                if machine.without.grace {
                    0
                } else {
                    GRACE_STEPS
                },
                !machine.without.yield_on_spin,
            ),
            catches: Catch::Nothing,
            random: machine.entropy.of_core(core),
            list_registers,
        }
    }

    /// Runs for ever.
    pub fn run(mut self) -> ! {
        self.adopt_vcpus();
        // Each turn is one bounded step; interrupts are looked at in between.
        loop {
            if self.must_decide {
                if cpu::interrupt_pending() {
                    self.take_interrupts();
                }
                self.decide();
                if cpu::interrupt_pending() {
                    self.take_interrupts();
                    continue;
                }
            }
            if self.alarm_changed {
                self.set_alarm();
            }
            match self.running {
                None => self.idle(),
                Some(vcpu) if self.loaded == Some(vcpu) => self.run_vcpu(vcpu),
                Some(vcpu) => self.prepare_vcpu(vcpu),
            }
        }
    }

    /// Asks the scheduler who runs now, and makes it so.
    fn decide(&mut self) {
        let mut now = timers::now();
        self.wake_due(now);
        if self.moving != 0
            && let Some(has_taken_time) = self.look_for_work(now)
        {
            let is_interrupted = cpu::interrupt_pending();
            if is_interrupted {
                self.take_interrupts();
            }
            if has_taken_time || is_interrupted {
                now = timers::now();
                self.wake_due(now);
            }
        }
        if self.holds_back(now) {
            return;
        }
        let mut decision = self.scheduler.decide(now);
        if self.moving != 0 {
            decision = self.hold_current(now, decision);
        }
        self.must_decide = false;
        if let Action::Switch { to } = decision.action {
            self.switch_to(to);
        }
        if self.moving != 0 {
            self.offer(now);
        } else if self.conduct.gang {
            self.tell_gang();
        }
        if let Some(id) = self.running {
            self.power_up_if_suspended(id);
        }
        let band = decision.turn.map(|turn| turn.band);
        self.set_priority_mask(band);
        if band.is_none_or(|band| band == Band::LOWEST) {
            self.keep_house(now);
        }
    }

    /// From here on what may disturb a vCPU of `band` comes through, and the alarm is set anew.
    #[inline(always)]
    fn set_priority_mask(&mut self, band: Option<Band>) {
        let mask = priority_mask(self.machine.interrupt_priorities, band);
        self.machine.gic.set_priority_mask(mask.0);
        self.alarm_changed = true;
    }

    /// What the policies `delay` and `cosched` do before a decision. Returns whether the last one stands.
    #[inline(always)]
    fn holds_back(&mut self, now: Ticks) -> bool {
        if self.conduct.gang {
            self.hold_gang();
        }
        let is_put_off = match self.conduct.delay {
            Some(bound) => self.put_off(now, bound),
            None => false,
        };
        if is_put_off {
            self.must_decide = false;
            self.set_priority_mask(self.scheduler.current_band());
        }
        is_put_off
    }

    /// Wakes the vCPUs whose timers have run out, but not those that would not get the core.
    #[inline(always)]
    fn wake_due(&mut self, now: Ticks) {
        let running = self.scheduler.current_band();
        // At most one deadline for each vCPU.
        for _ in 0..MAX_VCPUS {
            let Some(vcpu) = self.deadlines.take_due(now, running) else {
                break;
            };
            if !self.moves(vcpu) {
                self.scheduler.wake(vcpu);
            } else if self.has(vcpu) {
                // One that was parked here may be elsewhere by now.
                self.wake(vcpu);
            }
        }
    }

    /// Sets the alarm to the next time at which something must be decided.
    fn set_alarm(&mut self) {
        self.alarm_changed = false;
        let turn = self.scheduler.turn();
        let mut alarm = self.deadlines.next_alarm(turn).unwrap_or(Ticks::NEVER);
        alarm = alarm.min(self.look_at).min(self.tell_at);
        // While somebody is put off, the house is not kept.
        if self.put_off_until == Ticks::NEVER && turn.is_none_or(|turn| turn.band == Band::LOWEST) {
            alarm = alarm.min(self.housekeeping);
        }
        if alarm != self.alarm {
            self.alarm = alarm;
            timers::set_alarm(alarm);
        }
    }

    /// Has the console show lines that wait for their end, every now and then. Only while nobody
    /// urgent has the core.
    fn keep_house(&mut self, now: Ticks) {
        if now >= self.housekeeping {
            let interval = Ticks::from_micros(HOUSEKEEPING_US, timers::frequency() as u32);
            self.housekeeping = now.saturating_add(interval);
            CONSOLE.flush_idle();
            let _ = self.serve_console();
        }
    }

    /// Nobody wants the core: it writes what the console has left, then sleeps until an interrupt.
    fn idle(&mut self) {
        let mut more = CONSOLE.work_left();
        // Each round writes some bytes, so the rings' size bounds their number; an interrupt
        // ends them.
        while more && !cpu::interrupt_pending() && !self.must_decide {
            more = self.serve_console() == Served::BudgetSpent;
        }
        // Room in the console may have woken a vCPU.
        if self.must_decide {
            return;
        }
        cpu::wait_for_interrupt();
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
                self.running = None;
                self.must_decide = true;
            }
        }
    }

    /// The next piece of work that brings the guest of vCPU `id` to where it starts.
    #[inline(never)]
    fn load_guest(&mut self, id: VcpuId) {
        let Some(vcpu) = self.vcpus[id.index()].as_mut() else {
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
                loader::finish();
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
            && self.scheduler.current_band() == Some(Band::LOWEST)
            && !cpu::interrupt_pending()
        {
            let _ = self.serve_console();
        }
        // Either may have woken a more urgent vCPU of this core, or changed this one's interrupts.
        let is_held_up = self.must_decide || self.interrupts_changed;
        if cpu::interrupt_pending() {
            // It would come back at once.
            self.take_interrupts();
            return;
        }
        if is_held_up {
            return;
        }
        let Some(vcpu) = self.vcpus[id.index()].as_mut() else {
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
        for vcpu in self.vcpus.iter().flatten() {
            let guest = self.machine.guest(vcpu.guest);
            guest.gic.doorbell(vcpu.index).settle(self.core);
            let admitted = self.scheduler.admit(vcpu.id, vcpu.band, VcpuState::Off);
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
            if self.scheduler.state(id) == Some(VcpuState::Off) {
                self.park(id);
            }
        }
        note(self.core, Event::Start, 0);
    }
}
