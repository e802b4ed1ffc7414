// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every state that three cores and a vCPU can reach by parking, claiming, sending away, ringing and waking, when
//! single accesses of the cores interleave.
//!
//! A model of [`park`](crate::migration::park), of fetching, pulling and sending away, with one step for each access to
//! what cores share. Steps of different cores come in every order; memory is sequentially consistent (loom tests the
//! fences that make it so). The code itself, with three vCPUs and with policies, is explored by
//! [`exhaustive`](super::exhaustive), where steps of different cores do not interleave. States are explored breadth
//! first, so the state printed with a violation needs few steps.
//!
//! - One core has the vCPU's token, or the vCPU is parked: never both, never neither.
//! - When no core is in the middle of a step, no vCPU sleeps with its doorbell rung on a host core where it is not cut off,
//!   unless a kick for it is pending there.

use std::collections::{HashSet, VecDeque};
use std::vec::Vec;

const CORES: usize = 3;
/// One vCPU suffices: vCPUs share no slot, doorbell or location, so a wrong order of accesses shows with one. What they
/// do share is a core's time, which is not modelled here.
const VCPUS: usize = 1;
/// How often doorbells are rung; more rings only repeat states.
const RINGS: u8 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Slot {
    Empty,
    Parked { host: u8, asleep: bool, sent: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Vcpu {
    slot: Slot,
    /// The core that has the token.
    owner: Option<u8>,
    /// Whether it sleeps; valid while a core has the token.
    asleep: bool,
    doorbell: bool,
    location: u8,
}

/// The access that a core makes next; `Nothing`: it is between two operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    Nothing,
    /// It has rung, and looks where the vCPU is.
    Rung(u8),
    /// It looks whether the vCPU is cut off on that core.
    Located(u8, u8),
    /// It has claimed a vCPU that another core had parked, asleep or not.
    Claimed(u8, bool),
    /// It has written its number as the vCPU's location.
    Settled(u8, bool),
    /// It has parked a sleeping vCPU, and looks at the vCPU's doorbell.
    Parked(u8),
    /// It notifies another core.
    Notify(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Core {
    /// It runs a higher band, so the priority mask holds back kicks.
    runs_higher: bool,
    /// vCPUs for which it is kicked, by number.
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
            slot: Slot::Empty,
            owner: Some(home),
            asleep: true,
            doorbell: false,
            location: home,
        };
        Self {
            vcpus: [vcpu; VCPUS],
            cores: [Core {
                runs_higher: false,
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
        // A vCPU of a higher band wakes or sleeps.
        out.push(self.with(|it| it.cores[c as usize].runs_higher ^= true));
        for (v, vcpu) in self.vcpus.iter().enumerate() {
            let v = v as u8;
            if core.runs_higher {
                // After the park delay: it parks the vCPU that it has kept, or notifies another core of one it has
                // parked.
                if vcpu.owner == Some(c) {
                    out.push(self.with(|it| it.park(c, v, false)));
                } else if matches!(vcpu.slot, Slot::Parked { host, .. } if host == c) {
                    out.push(self.with(|it| it.cores[c as usize].step = Step::Notify(v)));
                }
                continue;
            }
            // The core rings the vCPU's doorbell.
            if self.rings < RINGS {
                out.push(self.with(|it| {
                    it.rings += 1;
                    it.vcpus[v as usize].doorbell = true;
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
                Slot::Empty if vcpu.owner == Some(c) && !vcpu.asleep => {
                    // It runs: it sees its doorbell, or goes to sleep, or its time slice is over.
                    out.push(self.with(|it| it.vcpus[v as usize].doorbell = false));
                    if !vcpu.doorbell {
                        out.push(self.with(|it| it.vcpus[v as usize].asleep = true));
                    }
                    out.push(self.with(|it| it.park(c, v, false)));
                    // Or it is sent away, and another core is notified.
                    out.push(self.with(|it| {
                        it.park(c, v, true);
                        it.cores[c as usize].step = Step::Notify(v);
                    }));
                }
                Slot::Empty => {}
                Slot::Parked { host, asleep, .. } if host == c => {
                    // The host core runs it, or takes it back if it was sent away and no core has claimed it.
                    if !asleep {
                        out.push(self.with(|it| it.claim(c, v)));
                    }
                }
                Slot::Parked { host, asleep, .. } => {
                    if !asleep || self.cores[host as usize].runs_higher {
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
                if it.cores[at as usize].runs_higher
                    && matches!(
                        it.vcpus[v as usize].slot,
                        Slot::Parked { asleep: false, .. }
                    ) =>
            {
                // Marked as wanted: the core that claims it looks at its doorbell, so no core is kicked.
                then(it, Step::Nothing);
            }
            Step::Located(v, at) => {
                // The claim compares, so it is one step together with the look before it.
                if it.cores[at as usize].runs_higher
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
                if it.vcpus[v as usize].doorbell {
                    it.wake(c, v);
                }
            }
            Step::Notify(v) => {
                then(it, Step::Nothing);
                let other = (1..CORES as u8).map(|step| (c + step) % CORES as u8);
                let can_run = |it: &Self, other: u8| !it.cores[other as usize].runs_higher;
                if let Some(other) = other.into_iter().find(|&other| can_run(it, other)) {
                    it.cores[other as usize].kicked |= 1 << v;
                }
            }
        }));
    }

    fn claim(&mut self, c: u8, v: u8) {
        let vcpu = &mut self.vcpus[v as usize];
        assert!(vcpu.owner.is_none(), "two cores have vCPU {v}");
        vcpu.slot = Slot::Empty;
        vcpu.owner = Some(c);
        vcpu.asleep = false;
    }

    fn park(&mut self, c: u8, v: u8, sent: bool) {
        let vcpu = &mut self.vcpus[v as usize];
        assert_eq!(
            vcpu.owner.take(),
            Some(c),
            "the core that parks it has the token"
        );
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

    /// What a core does when it is kicked for a vCPU that it has or has parked: it wakes the vCPU.
    fn wake(&mut self, c: u8, v: u8) {
        let vcpu = &mut self.vcpus[v as usize];
        match &mut vcpu.slot {
            Slot::Empty if vcpu.owner == Some(c) => vcpu.asleep = false,
            Slot::Parked { host, asleep, .. } if *host == c => *asleep = false,
            _ => {}
        }
    }

    fn check(&self) {
        for vcpu in &self.vcpus {
            assert_eq!(
                vcpu.owner.is_some(),
                vcpu.slot == Slot::Empty,
                "a core has the token, or it is parked"
            );
        }
        if self.cores.iter().any(|it| it.step != Step::Nothing) {
            return;
        }
        for (v, vcpu) in self.vcpus.iter().enumerate() {
            let (host, asleep) = match vcpu.slot {
                Slot::Empty => (vcpu.owner.unwrap_or(0), vcpu.asleep),
                Slot::Parked { host, asleep, sent } => {
                    assert!(!(asleep && sent), "only a runnable vCPU is sent away");
                    (host, asleep)
                }
            };
            let core = self.cores[host as usize];
            if vcpu.doorbell && asleep && !core.runs_higher {
                let is_kicked = core.kicked >> v & 1 != 0;
                assert!(
                    is_kicked,
                    "vCPU {v} sleeps on core {host} with its doorbell rung: {self:?}"
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
fn no_vcpu_is_lost_or_duplicated_and_no_doorbell_missed() {
    // The number shows if a change has made the model smaller.
    assert!(explore() > 10_000);
}
