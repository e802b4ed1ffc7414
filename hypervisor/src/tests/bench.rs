// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a system on the fake machine, one iteration of a core's loop at a time.

use super::guest::{Action, Call, GuestCpu, Habit, gicd};
use super::invariants;
use super::systems::{DISTRIBUTOR, REDISTRIBUTORS, parts};
use crate::boot;
use crate::core_loop::CoreLoop;
use crate::fake::{self, CorePower, Ended, Parts, REDISTRIBUTOR_SIZE, Register, printed};
use crate::guest_registers::{Exit, GuestRegisters};
use crate::instance::Instance;
use crate::machine::Machine;
use spumone_config::packed::System;
use spumone_config::{GuestId, PhysAddr, VcpuId};
use spumone_core::psci::Phase;
use spumone_core::vgic::VcpuIndex;
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

/// Ticks that pass in each iteration.
const ITERATION_TICKS: u64 = 20;
/// Ticks that a guest runs at a time.
const GUEST_TIME: u64 = 500;
/// Iterations of all cores within which the condition of [`Bench::until`] must hold.
const PATIENCE: usize = 20_000;

/// The general registers of a vCPU at its last entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    pub x: [u64; 31],
    pub pc: u64,
    pub pstate: u64,
    pub core: usize,
    /// Number of entries so far.
    pub count: u64,
}

/// The scripts of guests, and a record of their entries.
#[derive(Default)]
pub struct Guests {
    scripts: HashMap<(u8, u8), VecDeque<Action>>,
    machine: Option<&'static Machine>,
    /// How often each vCPU has turned itself off, by guest and vCPU.
    turned_off: HashMap<(u8, u8), u32>,
    /// The firmware call that was the last exit, by guest and vCPU.
    calls: HashMap<(u8, u8), Call>,
    /// The last entry, by guest and vCPU.
    pub entries: HashMap<(u8, u8), Entry>,
    /// What a vCPU does whose script has ended. Without a habit it runs until it is interrupted.
    pub habit: Option<Habit>,
}

/// A machine with Spumone on it.
pub struct Bench {
    /// The state that the cores share.
    pub machine: &'static Machine,
    /// One for each core.
    pub instances: Vec<Instance>,
    /// Of each core: whether its last iteration has asked for an entry without another look at all else.
    pub enters_again: Vec<bool>,
    /// The scripts of guests.
    pub guests: Rc<RefCell<Guests>>,
    /// How the machine ended, if it has.
    pub ended: Option<Ended>,
    /// The largest number of accesses of an iteration.
    pub most_work: u64,
}

impl Bench {
    /// Switches a machine on, and boots the system.
    pub fn boot(system: &System) -> Self {
        Self::boot_parts(parts(system))
    }

    /// Switches this machine on.
    pub fn boot_parts(parts: Parts) -> Self {
        fake::switch_on(parts);
        let guests = Rc::new(RefCell::new(Guests::default()));
        let playing = Rc::clone(&guests);
        fake::with(|machine| {
            machine.guest = Some(Box::new(move |registers| run_guest(&playing, registers)));
        });
        let ended = fake::until_it_ends(0, || boot::start(PhysAddr(0)));
        assert_eq!(ended.err(), Some(Ended::Started), "{}", printed());
        let instances: Vec<Instance> = fake::with(|machine| {
            let running = machine.running.iter_mut();
            running
                .map(|it| match it.take().map(|it| it.downcast::<Instance>()) {
                    Some(Ok(instance)) => *instance,
                    _ => panic!("a core has not started"),
                })
                .collect()
        });
        let machine = instances[0].machine();
        guests.borrow_mut().machine = Some(machine);
        Self {
            machine,
            enters_again: vec![false; instances.len()],
            instances,
            guests,
            ended: None,
            most_work: 0,
        }
    }

    /// One iteration of a core's loop.
    pub fn iterate(&mut self, core: usize) {
        if self.ended.is_some() {
            return;
        }
        let before = fake::with(|machine| {
            machine.clock += ITERATION_TICKS;
            machine.work
        });
        let instance = &mut self.instances[core];
        let enters_again = &mut self.enters_again[core];
        let power =
            fake::with(|machine| std::mem::replace(&mut machine.cores[core].power, CorePower::On));
        let result = match power {
            CorePower::On => {
                let again = std::mem::take(enters_again);
                fake::until_it_ends(core, || *enters_again = instance.iterate(again))
            }
            CorePower::Starts => fake::until_it_ends(core, || instance.comes_on()),
            CorePower::Off => Err(Ended::TurnedOff),
        };
        let work = fake::with(|machine| machine.work) - before;
        self.most_work = self.most_work.max(work);
        match result {
            Ok(()) => invariants::check(self.machine, &self.instances, self.most_work),
            Err(Ended::TurnedOff) => {
                fake::with(|machine| machine.cores[core].power = CorePower::Off)
            }
            Err(ended) => self.ended = Some(ended),
        }
    }

    /// Iterations of all cores, one core after the other.
    pub fn iterations(&mut self, count: usize) {
        for _ in 0..count {
            for core in 0..self.instances.len() {
                self.iterate(core);
            }
        }
    }

    /// Runs iterations of all cores until a condition holds.
    #[track_caller]
    pub fn until(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> bool) {
        for _ in 0..PATIENCE {
            if is_so(self) {
                return;
            }
            self.iterations(1);
        }
        panic!("does not happen: {what}\n{}\n{}", self.state(), printed());
    }

    /// The state of cores and guests, for the message of a test that fails.
    pub fn state(&self) -> String {
        let mut text = String::new();
        for (index, core) in self.instances.iter().enumerate() {
            let tokens: Vec<_> = core.tokens().map(|id| (id.0, core.state(id))).collect();
            let (mask, alarm, private) = fake::with(|machine| {
                let it = &machine.cores[index];
                let due = it.get(Register::CNTHP_CVAL_EL2);
                let alarm = due.saturating_sub(machine.clock);
                (it.get(Register::ICC_PMR_EL1), alarm, it.private.clone())
            });
            let (running, must_decide) = (core.running(), core.must_decide());
            let (latched, active) = (private.latched, private.active);
            text += &format!(
                "core {index}: running {running:?}, vCPUs {tokens:?}, must decide {must_decide}, \
                 alarm in {alarm}, mask {mask:#x}, SGIs and PPIs pending {latched:#x}, active {active:#x}\n"
            );
        }
        for (id, _) in self.machine.shared.vcpus() {
            if let Some(parked) = self.machine.shared.slot(id).parked() {
                text += &format!("vCPU {id}: {parked:?}\n");
            }
        }
        for (index, guest) in self.machine.guests.iter().enumerate() {
            let (phase, life) = guest.lifecycle.now();
            let homes: Vec<_> = guest
                .vcpus
                .iter()
                .filter_map(|&id| self.machine.shared.vcpu(id))
                .collect();
            let homes: Vec<_> = homes
                .iter()
                .map(|it| (it.home.0, it.band.index()))
                .collect();
            let vcpus = &guest.vcpus;
            text += &format!(
                "guest {index}: {phase:?}, life {}, cores {:#b}, vCPUs {vcpus:?} at (home, band) {homes:?}\n",
                life.0,
                guest.cores()
            );
        }
        text
    }

    /// Runs iterations of all cores until all guests run.
    #[track_caller]
    pub fn until_all_run(&mut self) {
        let count = self.machine.guests.len() as u8;
        self.until("all guests run", |bench| {
            (0..count).all(|guest| bench.entry(guest, 0).count > 0)
        });
    }

    /// The last entry of a vCPU.
    pub fn entry(&self, guest: u8, vcpu: u8) -> Entry {
        let guests = self.guests.borrow();
        guests
            .entries
            .get(&(guest, vcpu))
            .copied()
            .unwrap_or_default()
    }

    /// Adds an action to the script of a vCPU.
    pub fn will(
        &mut self,
        guest: u8,
        vcpu: u8,
        action: impl FnOnce(&mut GuestCpu<'_>) -> Exit + 'static,
    ) {
        let mut guests = self.guests.borrow_mut();
        let script = guests.scripts.entry((guest, vcpu)).or_default();
        script.push_back(Box::new(action));
    }

    /// As [`Self::will`], and runs iterations until the vCPU has done the action and EL2 has handled the exit.
    #[track_caller]
    pub fn does(
        &mut self,
        guest: u8,
        vcpu: u8,
        action: impl FnOnce(&mut GuestCpu<'_>) -> Exit + 'static,
    ) {
        self.will(guest, vcpu, action);
        self.until("the guest does the action", |bench| {
            bench.has_done(guest, vcpu)
        });
    }

    /// As [`Self::does`], and runs iterations until the vCPU is entered again; returns that entry.
    #[track_caller]
    pub fn does_and_returns(
        &mut self,
        guest: u8,
        vcpu: u8,
        action: impl FnOnce(&mut GuestCpu<'_>) -> Exit + 'static,
    ) -> Entry {
        self.does(guest, vcpu, action);
        let count = self.entry(guest, vcpu).count;
        self.until("the guest is entered again", |bench| {
            bench.entry(guest, vcpu).count > count
        });
        self.entry(guest, vcpu)
    }

    /// Has a vCPU turn its virtual GIC on, with these interrupts enabled and in Group 1.
    #[track_caller]
    pub fn opens_gic(&mut self, guest: u8, vcpu: u8, interrupts: &[u16]) {
        self.does(guest, vcpu, |cpu| {
            cpu.open_interface();
            cpu.store(DISTRIBUTOR + gicd::CTLR, gicd::ON)
        });
        let own = REDISTRIBUTORS + REDISTRIBUTOR_SIZE * u64::from(vcpu) + gicd::SGI_FRAME;
        for &interrupt in interrupts {
            let frame = if interrupt < 32 { own } else { DISTRIBUTOR };
            let word = 4 * u64::from(interrupt / 32);
            let bit = 1 << (interrupt % 32);
            if interrupt >= 32 {
                let router = DISTRIBUTOR + gicd::IROUTER + 8 * u64::from(interrupt);
                self.does(guest, vcpu, move |cpu| cpu.store(router, u32::from(vcpu)));
            }
            // Zeros have no effect in these registers, except that of the group.
            self.does(guest, vcpu, move |cpu| {
                cpu.store(frame + gicd::IGROUPR + word, u32::MAX)
            });
            self.does(guest, vcpu, move |cpu| {
                cpu.store(frame + gicd::ISENABLER + word, bit)
            });
        }
    }

    /// Runs iterations until a virtual interrupt is signalled to a vCPU, and has the vCPU acknowledge it; returns its INTID.
    #[track_caller]
    pub fn acknowledges(&mut self, guest: u8, vcpu: u8) -> u16 {
        for _ in 0..100 {
            if let Some(interrupt) = self.look(guest, vcpu, |cpu| cpu.acknowledge()) {
                return interrupt;
            }
        }
        panic!("no interrupt is signalled to vCPU {vcpu} of guest {guest}");
    }

    /// Has a vCPU run `look`, and returns its result.
    #[track_caller]
    pub fn look<R: 'static>(
        &mut self,
        guest: u8,
        vcpu: u8,
        look: impl FnOnce(&mut GuestCpu<'_>) -> R + 'static,
    ) -> R {
        let seen = Rc::new(RefCell::new(None));
        let place = Rc::clone(&seen);
        self.does(guest, vcpu, move |cpu| {
            *place.borrow_mut() = Some(look(cpu));
            cpu.interrupted()
        });
        seen.take().unwrap()
    }

    /// Whether the script of a vCPU has ended.
    pub fn has_done(&self, guest: u8, vcpu: u8) -> bool {
        let guests = self.guests.borrow();
        guests
            .scripts
            .get(&(guest, vcpu))
            .is_none_or(VecDeque::is_empty)
    }

    /// The phase of a guest's life.
    pub fn phase(&self, guest: u8) -> Phase {
        self.machine.guest(GuestId(guest)).lifecycle.now().0
    }

    /// The number of a guest's life.
    pub fn life(&self, guest: u8) -> u32 {
        self.machine.guest(GuestId(guest)).lifecycle.now().1.0
    }

    /// The id of this vCPU of a guest.
    pub fn vcpu(&self, guest: u8, vcpu: u8) -> VcpuId {
        let guest = self.machine.guest(GuestId(guest));
        guest.vcpu(VcpuIndex(vcpu)).unwrap()
    }

    /// Whether a vCPU runs on `core`.
    pub fn runs_on(&self, core: usize, guest: u8, vcpu: u8) -> bool {
        self.instances[core].running() == Some(self.vcpu(guest, vcpu))
    }
}

/// The hook of the fake machine: the vCPU that is entered does the next action of its script.
fn run_guest(guests: &RefCell<Guests>, registers: &mut GuestRegisters) -> Exit {
    let mut cpu = GuestCpu::new(registers);
    let key = (cpu.guest, cpu.vcpu);
    let call = guests.borrow_mut().calls.remove(&key);
    let repeated = call.filter(|call| cpu.repeats(call));
    if repeated.as_ref().is_some_and(Call::turns_off) {
        // It has not.
        *guests.borrow_mut().turned_off.entry(key).or_default() -= 1;
    }
    {
        let guests = guests.borrow();
        if let Some(machine) = guests.machine {
            invariants::check_entry(&cpu, machine);
            let life = machine.guest(GuestId(cpu.guest)).lifecycle.now().1.0;
            let turned_off = guests.turned_off.get(&key).copied().unwrap_or(0);
            fake::with(|machine| machine.fill_tlb((life, turned_off)));
        }
    }
    let exit = act(guests, &mut cpu, repeated.as_ref());
    if let Some(call) = cpu.call(&exit).or(repeated) {
        let mut guests = guests.borrow_mut();
        *guests.turned_off.entry(key).or_default() += u32::from(call.turns_off());
        guests.calls.insert(key, call);
    }
    exit
}

/// Does the next action of the vCPU's script; `repeated`: executes this call again.
fn act(guests: &RefCell<Guests>, cpu: &mut GuestCpu<'_>, repeated: Option<&Call>) -> Exit {
    let key = (cpu.guest, cpu.vcpu);
    let mut guests = guests.borrow_mut();
    let entry = guests.entries.entry(key).or_default();
    *entry = Entry {
        x: cpu.registers.x,
        pc: cpu.registers.pc,
        pstate: cpu.registers.pstate,
        core: cpu.core,
        count: entry.count + 1,
    };
    if let Some(exit) = cpu.refused() {
        return exit;
    }
    if let Some(call) = repeated {
        return cpu.calls(call);
    }
    let action = guests.scripts.get_mut(&key).and_then(VecDeque::pop_front);
    if let Some(action) = action {
        drop(guests);
        return action(cpu);
    }
    fake::with(|machine| machine.clock += GUEST_TIME);
    match &mut guests.habit {
        Some(habit) => habit(cpu),
        None => cpu.interrupted(),
    }
}
