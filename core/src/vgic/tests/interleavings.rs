// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two or three cores at once, in every order of their accesses and with every value that the
//! memory model lets a load see:
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p spumone-core --release --lib vgic
//! ```
//!
//! Each core does one operation. Afterwards no interrupt may be lost: an interrupt that can be delivered is in a list
//! register, or the doorbell is rung of a vCPU whose core is kicked.

use super::super::{CpuInterface, Doorbell, GuestGic, ListRegister, Region, State, VcpuIndex};
use super::machine::{Context, Machine, PhysicalSpi};
use loom::sync::Arc;
use loom::sync::atomic::Ordering;
use loom::thread;
use spumone_config::packed::{Interrupt, Trigger};
use spumone_config::types::{IntId, PcpuId};

const SPI: IntId = IntId(33);
const PHYSICAL: IntId = IntId(133);
const MASK: u32 = 2;
const OLD: PcpuId = PcpuId(0);
const NEW: PcpuId = PcpuId(1);
const ISENABLER1: u64 = 0x104;
const ICPENDR1: u64 = 0x284;
const IROUTER_33: u64 = 0x6000 + 8 * 33;

/// At most three preemptions of a thread are explored; with more the tests take hours.
fn explore(test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(test);
}

/// A core, with the one vCPU that is loaded on it.
struct Core {
    machine: Machine,
    context: Context,
    cpu: CpuInterface,
}

impl Core {
    fn new(vcpu: u8) -> Self {
        let mut machine = Machine::new(1, 2);
        machine.spis.insert(PHYSICAL.0, PhysicalSpi::default());
        machine.tolerant = true;
        Self {
            machine,
            context: Context::new(),
            cpu: CpuInterface::new(VcpuIndex(vcpu)),
        }
    }

    fn load(&mut self, gic: &GuestGic) {
        let mut here = self.machine.here(0, &mut self.context);
        let _ = self.cpu.load(gic, &mut here);
    }

    fn unload(&mut self, gic: &GuestGic) {
        let mut here = self.machine.here(0, &mut self.context);
        let _ = self.cpu.unload(gic, &mut here);
    }

    /// A higher band preempts the vCPU.
    fn preempt(&mut self, gic: &GuestGic) {
        let mut here = self.machine.here(0, &mut self.context);
        self.cpu.copy_lists(&mut here);
        let _ = self.cpu.unload(gic, &mut here);
    }

    fn take_copies_back(&mut self, gic: &GuestGic) {
        let mut here = self.machine.here(0, &mut self.context);
        let _ = self.cpu.take_copies_back(gic, &mut here);
    }

    /// The guest acknowledges the SPI.
    fn acknowledge(&mut self) {
        for lr in &mut self.machine.cores[0].lrs {
            if lr.intid() == SPI {
                *lr = lr.with_state(State::Active);
            }
        }
    }

    fn kicked(&mut self, gic: &GuestGic) {
        let mut here = self.machine.here(0, &mut self.context);
        let _ = self.cpu.kicked(gic, &mut here);
    }

    fn synchronize(&mut self, gic: &GuestGic) {
        let mut here = self.machine.here(0, &mut self.context);
        let _ = self.cpu.synchronize(gic, &mut here);
    }

    fn write(&mut self, gic: &GuestGic, offset: u64, size: u8, value: u64) {
        let mut here = self.machine.here(0, &mut self.context);
        let _ = self
            .cpu
            .mmio_write(gic, Region::Distributor, offset, size, value, &mut here);
        self.synchronize(gic);
    }

    fn lists(&self, state: State) -> bool {
        self.machine.cores[0]
            .lrs
            .iter()
            .any(|lr| lr.intid() == SPI && lr.state() == state)
    }
}

/// A guest of three vCPUs with a passed-through SPI in Group 0, enabled and routed to vCPU 0.
fn passed_through() -> Arc<GuestGic> {
    let gic = GuestGic::new();
    let interrupt = Interrupt {
        physical: PHYSICAL,
        guest: SPI,
        trigger: Trigger::Edge,
    };
    gic.configure(32, 3, &[interrupt]);
    gic.distributor.set_control(1);
    let spi = gic.distributor.spi(SPI).unwrap();
    let word = gic.distributor.word_of(spi);
    word.enabled.store(MASK, Ordering::Relaxed);
    Arc::new(gic)
}

/// The same with the SPI of an emulated device, disabled.
fn emulated() -> Arc<GuestGic> {
    let gic = GuestGic::new();
    gic.configure(32, 3, &[]);
    gic.distributor.set_control(1);
    Arc::new(gic)
}

fn rung(gic: &GuestGic, vcpu: u8) -> bool {
    gic.doorbell(VcpuIndex(vcpu)).peek().spi_words != 0
}

#[test]
fn a_migrating_vcpu_sees_the_doorbell_or_its_new_core_is_kicked() {
    explore(|| {
        let doorbell = Arc::new(Doorbell::new());
        doorbell.settle(OLD);
        let sender = {
            let doorbell = doorbell.clone();
            thread::spawn(move || {
                doorbell
                    .ring_sgi(IntId(1), false)
                    .then(|| doorbell.location())
            })
        };
        doorbell.settle(NEW);
        let seen = doorbell.take().sgis != 0;
        let kicked = sender.join().unwrap();
        assert!(
            seen || kicked == Some(NEW),
            "seen {seen}, kicked {kicked:?}"
        );
    });
}

#[test]
fn of_two_senders_one_kicks() {
    explore(|| {
        let doorbell = Arc::new(Doorbell::new());
        doorbell.settle(OLD);
        let send = |doorbell: &Arc<Doorbell>| {
            let doorbell = doorbell.clone();
            thread::spawn(move || {
                doorbell
                    .ring_sgi(IntId(1), false)
                    .then(|| doorbell.location())
            })
        };
        let senders = [send(&doorbell), send(&doorbell)];
        doorbell.settle(NEW);
        let seen = doorbell.take().sgis != 0;
        let kicks = senders.map(|sender| sender.join().unwrap());
        // What was rung after the look is still in the doorbell, and its sender kicks.
        let left = doorbell.peek().sgis != 0;
        assert!(seen || left);
        assert!(!left || kicks.contains(&Some(NEW)), "{kicks:?}");
    });
}

#[test]
fn an_spi_that_arrives_while_it_is_enabled_is_not_lost() {
    explore(|| {
        let gic = emulated();
        let arrival = {
            let gic = gic.clone();
            thread::spawn(move || {
                let _ = gic.set_level(SPI, true);
            })
        };
        let enabler = {
            let gic = gic.clone();
            thread::spawn(move || Core::new(1).write(&gic, ISENABLER1, 4, u64::from(MASK)))
        };
        let mut target = Core::new(0);
        target.load(&gic);
        arrival.join().unwrap();
        enabler.join().unwrap();
        assert!(target.lists(State::Pending) || rung(&gic, 0));
        target.kicked(&gic);
        assert!(target.lists(State::Pending));
    });
}

#[test]
fn an_spi_that_arrives_while_its_route_changes_is_not_lost() {
    explore(|| {
        let gic = passed_through();
        let arrival = {
            let gic = gic.clone();
            thread::spawn(move || {
                let _ = gic.spi_arrived(SPI);
            })
        };
        let old = {
            let gic = gic.clone();
            thread::spawn(move || {
                let mut old = Core::new(0);
                old.load(&gic);
                old
            })
        };
        Core::new(2).write(&gic, IROUTER_33, 8, 1);
        let mut new = Core::new(1);
        new.load(&gic);
        arrival.join().unwrap();
        let mut old = old.join().unwrap();
        assert!(!(old.lists(State::Pending) && new.lists(State::Pending)));
        // Both targets look; the old one first, since it may have to release the SPI.
        old.synchronize(&gic);
        assert!(!old.lists(State::Pending));
        new.kicked(&gic);
        assert!(new.lists(State::Pending));
    });
}

#[test]
fn an_spi_that_arrives_while_its_holder_releases_it_is_not_lost() {
    explore(|| {
        let gic = passed_through();
        let mut holder = Core::new(0);
        let _ = gic.spi_arrived(SPI);
        holder.load(&gic);
        assert!(holder.lists(State::Pending));
        // The guest acknowledges and ends it; meanwhile the route has changed.
        holder.machine.cores[0].lrs[0] = ListRegister::EMPTY;
        let spi = gic.distributor.spi(SPI).unwrap();
        gic.distributor.set_affinity(spi, 1);

        let arrival = {
            let gic = gic.clone();
            thread::spawn(move || {
                let _ = gic.spi_arrived(SPI);
            })
        };
        let holder = {
            let gic = gic.clone();
            thread::spawn(move || {
                holder.synchronize(&gic);
                holder
            })
        };
        let mut target = Core::new(1);
        target.load(&gic);
        arrival.join().unwrap();
        let mut holder = holder.join().unwrap();
        if !target.lists(State::Pending) {
            assert!(rung(&gic, 0) || rung(&gic, 1));
            holder.kicked(&gic);
            target.kicked(&gic);
        }
        assert!(target.lists(State::Pending));
    });
}

/// Reads the pending state of an SPI while its holder, recalled, folds it and puts it into a list register again.
fn read_during_recall(gic: &Arc<GuestGic>) {
    let mut holder = Core::new(0);
    holder.load(gic);
    assert!(holder.lists(State::Pending));
    let holder = {
        let gic = gic.clone();
        thread::spawn(move || {
            let _ = gic.recall(VcpuIndex(0));
            holder.kicked(&gic);
        })
    };
    let spi = gic.distributor.spi(SPI).unwrap();
    let seen = gic.distributor.word_of(spi).pending_seen();
    assert_eq!(seen & MASK, MASK);
    holder.join().unwrap();
}

#[test]
fn a_latched_spi_is_seen_pending_during_a_recall() {
    explore(|| {
        let gic = passed_through();
        let spi = gic.distributor.spi(SPI).unwrap();
        let word = gic.distributor.word_of(spi);
        word.pending.store(MASK, Ordering::Relaxed);
        let _ = gic.ring(spi);
        read_during_recall(&gic);
    });
}

#[test]
fn a_physical_spi_is_seen_pending_during_a_recall() {
    explore(|| {
        let gic = passed_through();
        let _ = gic.spi_arrived(SPI);
        read_during_recall(&gic);
    });
}

/// One core clears the SPI while its holder puts it back in this way. It stays cleared.
fn cleared_while(puts_back: fn(&mut Core, &GuestGic), before: fn(&mut Core, &GuestGic)) {
    explore(move || {
        let gic = passed_through();
        let mut holder = Core::new(0);
        let _ = gic.spi_arrived(SPI);
        holder.load(&gic);
        before(&mut holder, &gic);
        let holder = {
            let gic = gic.clone();
            thread::spawn(move || {
                puts_back(&mut holder, &gic);
                holder
            })
        };
        Core::new(1).write(&gic, ICPENDR1, 4, u64::from(MASK));
        let mut holder = holder.join().unwrap();
        holder.load(&gic);
        assert!(!holder.lists(State::Pending));
    });
}

#[test]
fn an_spi_cleared_while_its_holder_puts_it_back_stays_cleared() {
    cleared_while(Core::unload, |_, _| {});
}

#[test]
fn an_spi_cleared_while_its_holder_is_preempted_stays_cleared() {
    cleared_while(Core::take_copies_back, Core::preempt);
}

#[test]
fn an_active_spi_cleared_while_its_holder_lists_it_as_pending_again_stays_cleared() {
    explore(|| {
        let gic = passed_through();
        let spi = gic.distributor.spi(SPI).unwrap();
        let latch = &gic.distributor.word_of(spi).pending;
        let mut holder = Core::new(0);
        latch.store(MASK, Ordering::Relaxed);
        let _ = gic.ring(spi);
        holder.load(&gic);
        holder.acknowledge();
        holder.synchronize(&gic);
        holder.unload(&gic);
        latch.store(MASK, Ordering::Relaxed);
        let holder = {
            let gic = gic.clone();
            thread::spawn(move || {
                holder.load(&gic);
                holder
            })
        };
        Core::new(1).write(&gic, ICPENDR1, 4, u64::from(MASK));
        let mut holder = holder.join().unwrap();
        holder.unload(&gic);
        holder.load(&gic);
        assert!(holder.lists(State::Active));
    });
}
