// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a system on a fake machine, turn by turn.

use super::guest::{Action, GuestCpu, Habit, gicd};
use super::invariants;
use super::systems::{DISTRIBUTOR, REDISTRIBUTORS, parts};
use crate::boot;
use crate::fake::{self, Ended, REDISTRIBUTOR_SIZE, Register, printed};
use crate::guest_registers::{Exit, GuestRegisters};
use crate::instance::Instance;
use crate::machine::Machine;
use crate::turns::Turns;
use spumone_config::packed::System;
use spumone_config::{GuestId, PhysAddr, VcpuId};
use spumone_core::psci::Phase;
use spumone_core::vgic::VcpuIndex;
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

/// Ticks that pass in each turn.
const TURN: u64 = 20;
/// Ticks that a guest runs at a time.
const GUEST_TIME: u64 = 500;
/// Turns of all cores in which what a test waits for has to come.
const PATIENCE: usize = 20_000;

/// What a vCPU had in its general registers when it was entered last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    pub x: [u64; 31],
    pub pc: u64,
    pub pstate: u64,
    pub core: usize,
    /// How often the vCPU was entered.
    pub count: u64,
}

/// What guests do, and did.
#[derive(Default)]
pub struct Guests {
    scripts: HashMap<(u8, u8), VecDeque<Action>>,
    machine: Option<&'static Machine>,
    /// By guest and vCPU.
    pub entries: HashMap<(u8, u8), Entry>,
    /// What a vCPU does that has no script; else it runs until it is interrupted.
    pub habit: Option<Habit>,
}

/// A machine with Spumone on it.
pub struct Bench {
    /// What the cores share.
    pub machine: &'static Machine,
    /// One for each core.
    pub instances: Vec<Instance>,
    /// What guests do.
    pub guests: Rc<RefCell<Guests>>,
    /// How it ended, if it has.
    pub ended: Option<Ended>,
    /// The largest number of accesses that a turn has made.
    pub most_work: u64,
}

impl Bench {
    /// Switches a machine on, and boots the system.
    pub fn boot(system: &System) -> Self {
        fake::switch_on(parts(system));
        let guests = Rc::new(RefCell::new(Guests::default()));
        let playing = Rc::clone(&guests);
        fake::with(|machine| {
            machine.guest = Some(Box::new(move |registers| play(&playing, registers)));
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
            instances,
            guests,
            ended: None,
            most_work: 0,
        }
    }

    /// One turn of a core.
    pub fn turn(&mut self, core: usize) {
        if self.ended.is_some() {
            return;
        }
        let before = fake::with(|machine| {
            machine.clock += TURN;
            machine.work
        });
        let instance = &mut self.instances[core];
        let result = fake::until_it_ends(core, || instance.turn());
        let work = fake::with(|machine| machine.work) - before;
        self.most_work = self.most_work.max(work);
        match result {
            Ok(()) => invariants::check(self.machine, &self.instances, self.most_work),
            Err(ended) => self.ended = Some(ended),
        }
    }

    /// Turns of all cores, one after the other.
    pub fn turns(&mut self, count: usize) {
        for _ in 0..count {
            for core in 0..self.instances.len() {
                self.turn(core);
            }
        }
    }

    /// Turns until something is so.
    #[track_caller]
    pub fn until(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> bool) {
        for _ in 0..PATIENCE {
            if is_so(self) {
                return;
            }
            self.turns(1);
        }
        panic!("never: {what}\n{}\n{}", self.state(), printed());
    }

    /// What cores and guests do, for the report of a test that fails.
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

    /// Turns until all guests run.
    #[track_caller]
    pub fn until_all_run(&mut self) {
        let count = self.machine.guests.len() as u8;
        self.until("all guests run", |bench| {
            (0..count).all(|guest| bench.entry(guest, 0).count > 0)
        });
    }

    /// What a vCPU had when it was entered last.
    pub fn entry(&self, guest: u8, vcpu: u8) -> Entry {
        let guests = self.guests.borrow();
        guests
            .entries
            .get(&(guest, vcpu))
            .copied()
            .unwrap_or_default()
    }

    /// Has a vCPU do something when it is entered next.
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

    /// Has a vCPU do something, and waits until it has done it and EL2 has seen to it.
    #[track_caller]
    pub fn does(
        &mut self,
        guest: u8,
        vcpu: u8,
        action: impl FnOnce(&mut GuestCpu<'_>) -> Exit + 'static,
    ) {
        self.will(guest, vcpu, action);
        self.until("the guest does it", |bench| bench.has_done(guest, vcpu));
    }

    /// As [`Self::does`], and waits until it is entered again; returns with what.
    #[track_caller]
    pub fn does_and_returns(
        &mut self,
        guest: u8,
        vcpu: u8,
        action: impl FnOnce(&mut GuestCpu<'_>) -> Exit + 'static,
    ) -> Entry {
        self.does(guest, vcpu, action);
        let count = self.entry(guest, vcpu).count;
        self.until("the guest goes on", |bench| {
            bench.entry(guest, vcpu).count > count
        });
        self.entry(guest, vcpu)
    }

    /// Has a vCPU turn its GIC on, with these interrupts of its own in Group 1.
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
            // Writes of ones to registers without effect of zeros, but for the group.
            self.does(guest, vcpu, move |cpu| {
                cpu.store(frame + gicd::IGROUPR + word, u32::MAX)
            });
            self.does(guest, vcpu, move |cpu| {
                cpu.store(frame + gicd::ISENABLER + word, bit)
            });
        }
    }

    /// Waits until a virtual interrupt is signalled to a vCPU that runs, and has the vCPU take it; which it is.
    #[track_caller]
    pub fn acknowledges(&mut self, guest: u8, vcpu: u8) -> u16 {
        for _ in 0..100 {
            if let Some(interrupt) = self.look(guest, vcpu, |cpu| cpu.acknowledge()) {
                return interrupt;
            }
        }
        panic!("no interrupt comes for vCPU {vcpu} of guest {guest}");
    }

    /// Looks at a vCPU while it runs.
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

    /// Whether a vCPU has done all it was to do.
    pub fn has_done(&self, guest: u8, vcpu: u8) -> bool {
        let guests = self.guests.borrow();
        guests
            .scripts
            .get(&(guest, vcpu))
            .is_none_or(VecDeque::is_empty)
    }

    /// Where a guest is in its life.
    pub fn phase(&self, guest: u8) -> Phase {
        self.machine.guest(GuestId(guest)).lifecycle.now().0
    }

    /// The life of a guest, counted.
    pub fn life(&self, guest: u8) -> u32 {
        self.machine.guest(GuestId(guest)).lifecycle.now().1.0
    }

    /// The vCPU of the system that is this one of a guest's.
    pub fn vcpu(&self, guest: u8, vcpu: u8) -> VcpuId {
        let guest = self.machine.guest(GuestId(guest));
        guest.vcpu(VcpuIndex(vcpu)).unwrap()
    }

    /// Whether a vCPU runs on `core`.
    pub fn runs_on(&self, core: usize, guest: u8, vcpu: u8) -> bool {
        self.instances[core].running() == Some(self.vcpu(guest, vcpu))
    }
}

/// A vCPU is entered: it does the next thing of its script.
fn play(guests: &RefCell<Guests>, registers: &mut GuestRegisters) -> Exit {
    let mut cpu = GuestCpu::new(registers);
    let key = (cpu.guest, cpu.vcpu);
    let mut guests = guests.borrow_mut();
    if let Some(machine) = guests.machine {
        invariants::check_entry(&cpu, machine);
    }
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
    let action = guests.scripts.get_mut(&key).and_then(VecDeque::pop_front);
    if let Some(action) = action {
        drop(guests);
        return action(&mut cpu);
    }
    fake::with(|machine| machine.clock += GUEST_TIME);
    match &mut guests.habit {
        Some(habit) => habit(&mut cpu),
        None => cpu.interrupted(),
    }
}
