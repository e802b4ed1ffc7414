// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every state that three cores and a vCPU can get into by parking, taking, sending away, ringing and waking, when steps
//! of cores cross.
//!
//! A model of what `holding`, `taking` and `departing` do, one step for each access to what cores share. Steps of
//! different cores come in every order, memory is sequentially consistent (what needs fences for that is tested under
//! loom). The code itself, with three vCPUs and with policies, is gone through in
//! [`exhaustive`](super::exhaustive), where a core is not interrupted. Explored breadth first, so what is
//! printed of a violation is a shortest way to it.
//!
//! - A vCPU is held by one core or parked, never both, never neither.
//! - When nobody has anything left to do, no vCPU sleeps with its bell rung on a core that could hear it.

use std::collections::{HashSet, VecDeque};
use std::vec::Vec;

const CORES: usize = 3;
/// vCPUs share no word of a slot, a bell or a location with each other: what goes wrong between single accesses goes wrong
/// with one. What they share is a core's time, which is not modelled here.
const VCPUS: usize = 1;
/// Bells that are rung in a run; more only repeat.
const RINGS: u8 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Slot {
    Taken,
    Parked { host: u8, asleep: bool, sent: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Vcpu {
    slot: Slot,
    /// Who has the token.
    holder: Option<u8>,
    /// While it is held.
    asleep: bool,
    bell: bool,
    location: u8,
}

/// What a core is in the middle of, step by step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    Nothing,
    /// It has rung, and looks where the vCPU is.
    Rung(u8),
    /// It looks whether that core hears.
    Located(u8, u8),
    /// It has the token of another core's vCPU, which slept or not.
    Claimed(u8, bool),
    /// It has said that it is the host.
    Settled(u8, bool),
    /// It has parked a sleeper, and looks at its bell.
    Parked(u8),
    /// It tells another core, before it goes on.
    Tell(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Core {
    /// Runs somebody more urgent: hears no kick.
    deaf: bool,
    /// vCPUs it is kicked for, by number.
    kicked: u8,
    step: Step,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    vcpus: [Vcpu; VCPUS],
    cores: [Core; CORES],
    rings: u8,
}

impl State {
    fn start() -> Self {
        let home = 0;
        let vcpu = Vcpu {
            slot: Slot::Taken,
            holder: Some(home),
            asleep: true,
            bell: false,
            location: home,
        };
        Self {
            vcpus: [vcpu; VCPUS],
            cores: [Core {
                deaf: false,
                kicked: 0,
                step: Step::Nothing,
            }; CORES],
            rings: 0,
        }
    }

    /// All that can happen next.
    fn next(&self, out: &mut Vec<Self>) {
        for core in 0..CORES as u8 {
            match self.cores[core as usize].step {
                Step::Nothing => self.begin(core, out),
                step => self.go_on(core, step, out),
            }
        }
    }

    fn with(&self, change: impl FnOnce(&mut Self)) -> Self {
        let mut next = self.clone();
        change(&mut next);
        next
    }

    fn begin(&self, c: u8, out: &mut Vec<Self>) {
        let core = self.cores[c as usize];
        // Somebody more urgent wakes and sleeps.
        out.push(self.with(|it| it.cores[c as usize].deaf ^= true));
        for (v, vcpu) in self.vcpus.iter().enumerate() {
            let v = v as u8;
            if core.deaf {
                // It was deaf for a while: parks what it has kept, and tells of what it has parked.
                if vcpu.holder == Some(c) {
                    out.push(self.with(|it| it.park(c, v, false)));
                } else if matches!(vcpu.slot, Slot::Parked { host, .. } if host == c) {
                    out.push(self.with(|it| it.cores[c as usize].step = Step::Tell(v)));
                }
                continue;
            }
            // Somebody here rings for it.
            if self.rings < RINGS {
                out.push(self.with(|it| {
                    it.rings += 1;
                    it.vcpus[v as usize].bell = true;
                    it.cores[c as usize].step = Step::Rung(v);
                }));
            }
            // A kick arrives.
            if core.kicked >> v & 1 != 0 {
                out.push(self.with(|it| {
                    it.cores[c as usize].kicked &= !(1 << v);
                    it.wake(c, v);
                }));
            }
            match vcpu.slot {
                Slot::Taken if vcpu.holder == Some(c) && !vcpu.asleep => {
                    // It runs: hears its bell, or waits for one. An equal takes the core.
                    out.push(self.with(|it| it.vcpus[v as usize].bell = false));
                    if !vcpu.bell {
                        out.push(self.with(|it| it.vcpus[v as usize].asleep = true));
                    }
                    out.push(self.with(|it| it.park(c, v, false)));
                    // Or it is sent away, and another core is told.
                    out.push(self.with(|it| {
                        it.park(c, v, true);
                        it.cores[c as usize].step = Step::Tell(v);
                    }));
                }
                Slot::Taken => {}
                Slot::Parked { host, asleep, .. } if host == c => {
                    // Dispatched, if it could run; or taken back, if it was sent away and nobody came.
                    if !asleep {
                        out.push(self.with(|it| it.claim(c, v)));
                    }
                }
                Slot::Parked { host, asleep, .. } => {
                    if !asleep || self.cores[host as usize].deaf {
                        out.push(self.with(|it| {
                            it.claim(c, v);
                            it.cores[c as usize].step = Step::Claimed(v, asleep);
                        }));
                    }
                }
            }
        }
    }

    fn go_on(&self, c: u8, step: Step, out: &mut Vec<Self>) {
        let then = |it: &mut Self, step| it.cores[c as usize].step = step;
        out.push(self.with(|it| match step {
            Step::Nothing => {}
            Step::Rung(v) => {
                let at = it.vcpus[v as usize].location;
                then(it, Step::Located(v, at));
            }
            Step::Located(v, at) if at == c => {
                then(it, Step::Nothing);
                it.wake(c, v);
            }
            Step::Located(v, at)
                if it.cores[at as usize].deaf
                    && matches!(
                        it.vcpus[v as usize].slot,
                        Slot::Parked { asleep: false, .. }
                    ) =>
            {
                // Pressed: whoever takes it looks at its bell, so nobody is kicked.
                then(it, Step::Nothing);
            }
            Step::Located(v, at) => {
                // The claim compares: as good as one step with the look before it.
                if it.cores[at as usize].deaf
                    && matches!(it.vcpus[v as usize].slot, Slot::Parked { asleep: true, .. })
                {
                    it.claim(c, v);
                    then(it, Step::Claimed(v, true));
                } else {
                    it.cores[at as usize].kicked |= 1 << v;
                    then(it, Step::Nothing);
                }
            }
            Step::Claimed(v, asleep) => {
                it.vcpus[v as usize].location = c;
                then(it, Step::Settled(v, asleep));
            }
            Step::Settled(v, asleep) => {
                it.vcpus[v as usize].asleep = asleep;
                it.park(c, v, false);
            }
            Step::Parked(v) => {
                then(it, Step::Nothing);
                if it.vcpus[v as usize].bell {
                    it.wake(c, v);
                }
            }
            Step::Tell(v) => {
                then(it, Step::Nothing);
                let other = (1..CORES as u8).map(|step| (c + step) % CORES as u8);
                let hears = |it: &Self, other: u8| !it.cores[other as usize].deaf;
                if let Some(other) = other.into_iter().find(|&other| hears(it, other)) {
                    it.cores[other as usize].kicked |= 1 << v;
                }
            }
        }));
    }

    fn claim(&mut self, c: u8, v: u8) {
        let vcpu = &mut self.vcpus[v as usize];
        assert!(vcpu.holder.is_none(), "two cores hold vCPU {v}");
        vcpu.slot = Slot::Taken;
        vcpu.holder = Some(c);
        vcpu.asleep = false;
    }

    fn park(&mut self, c: u8, v: u8, sent: bool) {
        let vcpu = &mut self.vcpus[v as usize];
        assert_eq!(vcpu.holder.take(), Some(c), "parked by who has it");
        vcpu.slot = Slot::Parked {
            host: c,
            asleep: vcpu.asleep,
            sent,
        };
        self.cores[c as usize].step = match vcpu.asleep {
            true => Step::Parked(v),
            false => Step::Nothing,
        };
    }

    /// A kick, or what is one to this core: wakes a vCPU that it holds or hosts.
    fn wake(&mut self, c: u8, v: u8) {
        let vcpu = &mut self.vcpus[v as usize];
        match &mut vcpu.slot {
            Slot::Taken if vcpu.holder == Some(c) => vcpu.asleep = false,
            Slot::Parked { host, asleep, .. } if *host == c => *asleep = false,
            _ => {}
        }
    }

    fn check(&self) {
        for vcpu in &self.vcpus {
            assert_eq!(
                vcpu.holder.is_some(),
                vcpu.slot == Slot::Taken,
                "held, or parked"
            );
        }
        if self.cores.iter().any(|it| it.step != Step::Nothing) {
            return;
        }
        for (v, vcpu) in self.vcpus.iter().enumerate() {
            let (host, asleep) = match vcpu.slot {
                Slot::Taken => (vcpu.holder.unwrap_or(0), vcpu.asleep),
                Slot::Parked { host, asleep, sent } => {
                    assert!(!(asleep && sent), "only who could run is sent away");
                    (host, asleep)
                }
            };
            let core = self.cores[host as usize];
            if vcpu.bell && asleep && !core.deaf {
                let coming = core.kicked >> v & 1 != 0;
                assert!(
                    coming,
                    "vCPU {v} sleeps on core {host}, its bell has rung: {self:?}"
                );
            }
        }
    }
}

fn explore() -> usize {
    let start = State::start();
    let mut seen = HashSet::from([start.clone()]);
    let mut left = VecDeque::from([start]);
    let mut next = Vec::new();
    while let Some(state) = left.pop_front() {
        state.check();
        state.next(&mut next);
        for state in next.drain(..) {
            if seen.insert(state.clone()) {
                left.push_back(state);
            }
        }
    }
    seen.len()
}

#[test]
fn no_vcpu_is_lost_or_doubled_and_no_bell_unheard() {
    // The number is there to notice a model that has become smaller.
    assert!(explore() > 10_000);
}
