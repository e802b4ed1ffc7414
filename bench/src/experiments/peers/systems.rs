// SPDX-License-Identifier: MIT OR Apache-2.0
//! The systems that are compared.

use crate::kvm::{self, Placement};
use crate::linux::ISOLATED;
use crate::role::Flavour;
use crate::xen::{self, Scheduler};

/// A system that does hard real-time work beside Linux.
pub(super) struct Peer {
    /// Its name in labels.
    pub(super) name: &'static str,
    /// Its name on the page.
    pub(super) title: &'static str,
    /// How it is set up.
    pub(super) kind: Kind,
    /// What is measured of it.
    pub(super) scope: Scope,
}

/// What is measured of a system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// All yardsticks.
    Whole,
    /// The first yardstick alone, to bound the time of the figure.
    First,
}

/// How a system is set up.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    /// FreeRTOS and Linux as guests of Spumone, with this policy.
    Spumone(&'static str),
    /// Real-time threads of a bare Linux, on its last CPU, with more options of the kernel's command line.
    Threads(Flavour, &'static [&'static str]),
    /// FreeRTOS and Linux as domains of Xen.
    Xen(xen::Setup),
    /// FreeRTOS and Linux as guests of KVM.
    Kvm(kvm::Setup),
}

/// The project's own system, with which the others are compared.
pub(super) const OWN: &Peer = &Peer {
    name: "steal",
    title: "Spumone, policy `steal`",
    kind: Kind::Spumone("steal"),
    scope: Scope::Whole,
};

/// The others.
pub(super) const OTHERS: &[Peer] = &[
    Peer {
        name: "stock",
        title: "stock kernel, SCHED_FIFO",
        kind: Kind::Threads(Flavour::Cloud, &[]),
        scope: Scope::Whole,
    },
    Peer {
        name: "preempt-rt",
        title: "PREEMPT_RT, SCHED_FIFO",
        kind: Kind::Threads(Flavour::Rt, &[]),
        scope: Scope::Whole,
    },
    Peer {
        name: "preempt-rt-isolated",
        title: "PREEMPT_RT, CPU isolated",
        kind: Kind::Threads(Flavour::Rt, ISOLATED),
        scope: Scope::Whole,
    },
    Peer {
        name: "xen-credit2",
        title: "Xen, credit2",
        kind: Kind::Xen(xen::Setup {
            scheduler: Scheduler::Credit2,
            cores: xen::Cores::Shared,
        }),
        scope: Scope::Whole,
    },
    Peer {
        name: "xen-credit",
        title: "Xen, credit",
        kind: Kind::Xen(xen::Setup {
            scheduler: Scheduler::Credit,
            cores: xen::Cores::Shared,
        }),
        scope: Scope::Whole,
    },
    Peer {
        name: "xen-partitioned",
        title: "Xen, a core for FreeRTOS",
        kind: Kind::Xen(xen::Setup {
            scheduler: Scheduler::Credit2,
            cores: xen::Cores::Partitioned,
        }),
        scope: Scope::First,
    },
    Peer {
        name: "kvm",
        title: "KVM",
        kind: Kind::Kvm(kvm::Setup {
            host: Flavour::Cloud,
            placement: Placement::Pinned,
        }),
        scope: Scope::Whole,
    },
    Peer {
        name: "kvm-floating",
        title: "KVM, Linux floats",
        kind: Kind::Kvm(kvm::Setup {
            host: Flavour::Cloud,
            placement: Placement::Floating,
        }),
        scope: Scope::First,
    },
    Peer {
        name: "kvm-rt",
        title: "KVM, host with PREEMPT_RT",
        kind: Kind::Kvm(kvm::Setup {
            host: Flavour::Rt,
            placement: Placement::Pinned,
        }),
        scope: Scope::Whole,
    },
    Peer {
        name: "kvm-rt-isolated",
        title: "KVM on PREEMPT_RT, core isolated",
        kind: Kind::Kvm(kvm::Setup {
            host: Flavour::Rt,
            placement: Placement::Isolated,
        }),
        scope: Scope::First,
    },
];

/// All systems, the own one first.
pub(super) fn all() -> impl Iterator<Item = &'static Peer> {
    [OWN].into_iter().chain(OTHERS)
}

impl Peer {
    /// Whether its throughput is measured by this one of the yardsticks.
    pub(super) fn runs(&self, yardstick: usize) -> bool {
        self.scope == Scope::Whole || yardstick == 0
    }
}
