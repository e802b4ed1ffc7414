// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the cores of one system share: in the hypervisor `Machine`, and the memory and the interrupt lines of the board.

use crate::costs::Costs;
use crate::deciding::Deciding;
use crate::guest::{Churn, ENDLESS, Exit, Messages, RtTask, Smp, TIMER, Threads, Vcpu};
use crate::outcome::Counters;
use crate::powering::{Powering, RT_GUEST, SMP_GUEST};
use crate::random::Random;
use crate::setup::{Setup, Storm, Workload};
use spumone_config::roles::{self, Member};
use spumone_config::types::{GuestId, MAX_VCPUS, PcpuId, VcpuId};
use spumone_core::migration::{Early, Level, Roles, Shared, VcpuFacts};
use spumone_core::power::brings_back;
use spumone_core::schedule::{Band, Ticks};
use spumone_core::sets::CoreSet;
use spumone_core::vgic::Doorbell;

/// The real-time vCPU. vCPU n of the SMP guest is vCPU n + 1 of the system.
pub const RT: VcpuId = VcpuId(0);
/// The vCPUs of the SMP guest; bit n for vCPU n.
pub const SMP_VCPUS: u32 = !(1 << RT.0);
/// The core at which the interrupts of a [`Storm`] arrive: that of the real-time vCPU.
pub const STORM_CORE: PcpuId = PcpuId(0);
/// The band of the SMP guest.
pub const SMP_BAND: Band = Band::LOWEST;
/// The band of the real-time guest.
pub const RT_BAND: Band = match Band::new(1) {
    Some(band) => band,
    None => Band::HIGHEST,
};

/// The right to touch a vCPU's registers. As in the hypervisor neither `Clone` nor `Copy`.
#[derive(Debug)]
pub struct Token {
    /// Whose.
    pub id: VcpuId,
}

/// The interrupt lines of a core.
#[derive(Debug)]
pub struct Lines {
    /// vCPUs for which this core was kicked; bit n for vCPU n.
    pub kicked: u32,
    /// When the kick arrives.
    pub arrives: Ticks,
}

/// The system without what each core owns.
#[derive(Debug)]
pub struct World {
    /// By core: what other cores see of it.
    pub cores: Vec<Lines>,
    /// What cores see of each other and of vCPUs.
    pub shared: Shared,
    /// By vCPU: the tokens of those that are parked.
    tokens: Vec<Option<Token>>,
    /// By vCPU.
    pub vcpus: Vec<Vcpu>,
    /// By vCPU.
    pub doorbells: Vec<Doorbell>,
    /// The policy.
    pub deciding: Deciding,
    /// What steps cost.
    pub costs: Costs,
    /// Whether a core can catch a guest leaving its kernel.
    pub catches_exit: bool,
    /// See [`Setup::storm`].
    pub storm: Option<Storm>,
    /// The SMP guest.
    pub smp: Smp,
    /// The real-time guest.
    pub rt: Option<RtTask>,
    /// Which cores are on; `None`: all.
    pub power: Option<Powering>,
    /// The counters.
    pub counters: Counters,
    /// vCPUs whose tokens are in their parking slots; bit n for vCPU n. Kept beside `parking` as a check of it.
    pub parked: u32,
    /// vCPUs whose place has changed since the last check; bit n for vCPU n.
    pub changed_places: u32,
    /// Cores whose next event may have changed, beside the one that executes; bit n for core n.
    pub touched: u32,
}

impl World {
    /// System `number` of those in a setup.
    pub fn new(setup: &Setup, number: usize) -> Self {
        let number = number as u64;
        let count = setup.guest_vcpus + 1;
        let seed = setup.seed.wrapping_add(number);
        let deciding = Deciding::new(setup.decisions, seed, setup.catches_exit);
        let policy = deciding.named();
        let moves = roles::moves(policy, mask(setup.guest_cores), setup.guest_vcpus);
        // No core of the model serves a console.
        let roles = roles::of_cores(policy, 0, &members(setup, moves));
        let roles = Roles {
            kernel_free: CoreSet::from_bits(roles.kernel_free),
            gang: roles
                .gang
                .map(|gang| (gang.band, CoreSet::from_bits(gang.cores))),
            highest_movable: Level::of(roles.highest_movable),
            lowest_movable: Level::of(roles.lowest_movable),
        };
        let core = || Lines {
            kicked: 0,
            arrives: Ticks::NEVER,
        };
        let mut vcpus = [None; MAX_VCPUS];
        for (id, vcpu) in (0..count as u8).map(VcpuId).zip(&mut vcpus) {
            *vcpu = Some(VcpuFacts {
                guest: if id == RT { RT_GUEST } else { SMP_GUEST },
                band: band(id),
                home: home(id, setup.guest_cores),
                cores: match id {
                    RT => CoreSet::of(home(id, setup.guest_cores)),
                    _ => CoreSet::from_bits(mask(setup.guest_cores)),
                },
                moves: moves && id != RT,
                early: Early::AtTimer,
            });
        }
        let smp = match setup.workload {
            Workload::Messages => Smp::Messages(Box::new(Messages::new(
                setup.guest_vcpus,
                setup.span,
                setup.seed,
                number,
            ))),
            Workload::Duty(duty) => {
                let vcpus = setup.guest_vcpus;
                Smp::Duty(Threads::new(duty, setup.span, vcpus, setup.seed, number))
            }
            Workload::Churn => Smp::Churn(Churn::new(setup.seed, number)),
            Workload::Naps => Smp::Churn(Churn::with_naps(setup.seed, number)),
        };
        // Real-time guests of different systems have different phases.
        let mut random = Random::new(setup.seed, !number);
        let rt = setup
            .rt
            .map(|rt| RtTask::new(rt, Ticks(random.below(rt.period.0))));
        Self {
            cores: (0..setup.guest_cores).map(|_| core()).collect(),
            shared: Shared::new(roles, vcpus),
            tokens: (0..count).map(|_| None).collect(),
            vcpus: vec![Vcpu::new(); count],
            doorbells: (0..count).map(|_| Doorbell::new()).collect(),
            deciding,
            costs: setup.costs,
            catches_exit: setup.catches_exit,
            storm: setup.storm,
            smp,
            rt,
            power: setup.power.map(|it| Powering::new(it, setup, seed)),
            counters: Counters::default(),
            parked: 0,
            changed_places: 0,
            touched: 0,
        }
    }

    /// vCPUs of this band and above; bit n for vCPU n.
    pub fn at_least(&self, band: Option<Band>) -> u32 {
        match band {
            Some(band) if band > RT_BAND => 0,
            Some(RT_BAND) => 1 << RT.0,
            _ => u32::MAX,
        }
    }

    /// The home core of a vCPU. As on the testbed, the home of the last vCPU is core 0, where the real-time vCPU is.
    pub fn home(&self, id: VcpuId) -> PcpuId {
        home(id, self.cores.len())
    }

    /// Whether a vCPU's guest has several vCPUs.
    pub fn is_smp(&self, id: VcpuId) -> bool {
        id != RT && self.vcpus.len() > 2
    }

    /// Whether a core is to be on.
    pub fn is_wanted(&self, core: PcpuId) -> bool {
        self.power.as_ref().is_none_or(|it| it.wish.wants(core))
    }

    /// Whether a core is off that may come on.
    pub fn may_bring_back(&self) -> bool {
        let power = self.power.as_ref();
        power.is_some_and(|it| it.wish.cores().count() < it.limits.most)
    }

    /// Whether a core is off.
    pub fn is_off(&self, core: PcpuId) -> bool {
        self.shared.presence(core).level() == Level::OFF
    }

    /// A vCPU waits: brings a core back, as in the hypervisor.
    /// Returns whether a core comes on.
    pub fn bring_back(&mut self, id: VcpuId, now: Ticks) -> bool {
        let lowest = self.shared.roles.lowest_movable;
        let (Some(power), Some(vcpu)) = (&mut self.power, self.shared.vcpu(id)) else {
            return false;
        };
        let brings = brings_back(power.request.mode(), Some(vcpu.band), lowest);
        if brings {
            let Some(core) = power.wish.add(&power.limits, vcpu.cores) else {
                return false;
            };
            power.call(core, now);
            self.touched |= 1 << core.0;
        }
        power.ask(now, None);
        // The core with the governor.
        self.touched |= 1;
        brings
    }

    /// The band of a vCPU.
    pub fn band(&self, id: VcpuId) -> Band {
        band(id)
    }

    /// Stores the token of a vCPU that is about to be parked.
    pub fn store_token(&mut self, token: Token) {
        self.counters.parked_count += 1;
        self.parked |= 1 << token.id.0;
        self.changed_places |= 1 << token.id.0;
        let index = token.id.index();
        self.tokens[index] = Some(token);
    }

    /// Takes the token of a vCPU that has just been claimed.
    #[inline]
    pub fn take_token(&mut self, id: VcpuId) -> Option<Token> {
        self.parked &= !(1 << id.0);
        self.changed_places |= 1 << id.0;
        self.tokens[id.index()].take()
    }

    /// Whether the token of a vCPU is in its parking slot.
    pub fn is_parked(&self, id: VcpuId) -> bool {
        self.tokens[id.index()].is_some()
    }

    /// Kicks core `to` for a vCPU.
    pub fn kick(&mut self, to: PcpuId, id: VcpuId, now: Ticks) {
        let core = &mut self.cores[to.index()];
        let bit = 1 << id.0;
        if core.kicked & bit == 0 {
            core.kicked |= bit;
            core.arrives = core.arrives.min(Ticks(now.0 + self.costs.delivery));
            self.counters.kicks += 1;
            self.touched |= 1 << to.0;
        }
    }

    /// An interrupt of this kind is sent to a vCPU.
    pub fn ring(&mut self, id: VcpuId, kind: u8) {
        self.vcpus[id.index()].bell |= kind;
        self.doorbells[id.index()].ring_spis(1);
    }

    /// A vCPU, whose registers are on core `core`, enters its guest at `now`.
    #[inline]
    pub fn enter(&mut self, id: VcpuId, core: PcpuId, now: Ticks) {
        let vcpu = &mut self.vcpus[id.index()];
        vcpu.on = Some(core);
        vcpu.since = now;
        self.signal(id, now);
    }

    /// Delivers what is pending for a vCPU that runs.
    #[inline]
    pub fn signal(&mut self, id: VcpuId, now: Ticks) {
        let vcpu = &mut self.vcpus[id.index()];
        if vcpu.bell != 0 {
            vcpu.irqs |= core::mem::take(&mut vcpu.bell);
            self.doorbells[id.index()].reset();
        }
        if vcpu.timer <= now {
            vcpu.timer = Ticks::NEVER;
            vcpu.irqs |= TIMER;
        }
        if vcpu.irqs == 0 {
            return;
        }
        match (id, &mut self.rt) {
            (RT, Some(rt)) => rt.deliver(now, vcpu),
            _ => self.smp.deliver(id.index() - 1, now, &mut self.vcpus[1..]),
        }
    }

    /// The vCPU exits to EL2.
    #[inline]
    pub fn leave(&mut self, id: VcpuId, now: Ticks) {
        let vcpu = &mut self.vcpus[id.index()];
        vcpu.count(now);
        vcpu.on = None;
    }

    /// The step of a vCPU that runs has ended.
    #[inline]
    pub fn advance(&mut self, id: VcpuId, now: Ticks) -> Exit {
        let vcpu = &mut self.vcpus[id.index()];
        vcpu.count(now);
        debug_assert!(vcpu.left == 0 || vcpu.left == ENDLESS);
        let exit = match (id, &mut self.rt) {
            (RT, Some(rt)) => rt.advance(now, vcpu),
            _ => self.smp.advance(id.index() - 1, now, &mut self.vcpus[1..]),
        };
        if let Some(power) = &mut self.power
            && let Some(piece) = self.smp.take_ended()
        {
            power.meter.ends(now, piece);
        }
        let mut released = self.smp.take_released();
        while released != 0 {
            let other = released.trailing_zeros() as usize + 1;
            released &= released - 1;
            if let Some(core) = self.vcpus[other].on {
                self.touched |= 1 << core.0;
            }
        }
        exit
    }
}

fn band(id: VcpuId) -> Band {
    if id == RT { RT_BAND } else { SMP_BAND }
}

fn home(id: VcpuId, cores: usize) -> PcpuId {
    PcpuId((id.index() % cores) as u8)
}

/// All vCPUs of a system: the real-time one, if it is there, and those of the SMP guest.
fn members(setup: &Setup, moves: bool) -> Vec<Member> {
    let member = |guest, moves, band, id| Member {
        guest: GuestId(guest),
        moves,
        band,
        home: home(id, setup.guest_cores),
    };
    let rt = setup.rt.map(|_| member(0, false, RT_BAND, RT));
    let smp = (1..=setup.guest_vcpus).map(|id| member(1, moves, SMP_BAND, VcpuId(id as u8)));
    rt.into_iter().chain(smp).collect()
}

/// The first `count` bits.
pub const fn mask(count: usize) -> u32 {
    ((1_u64 << count) - 1) as u32
}
