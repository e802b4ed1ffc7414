// SPDX-License-Identifier: MIT OR Apache-2.0
//! The systems that are compared.

use crate::role::Flavour;
use crate::xen::Scheduler;

/// A system that does hard real-time work beside Linux.
pub(super) struct Peer {
    /// Its name in labels.
    pub(super) name: &'static str,
    /// Its name on the page.
    pub(super) title: &'static str,
    /// How it is set up.
    pub(super) kind: Kind,
}

/// How a system is set up.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    /// FreeRTOS and Linux as guests of Spumone, with this policy.
    Spumone(&'static str),
    /// Real-time threads of a bare Linux, on its last CPU, with more options of the kernel's command line.
    Threads(Flavour, &'static [&'static str]),
    /// FreeRTOS and Linux as domains of Xen, with this scheduler.
    Xen(Scheduler),
    /// FreeRTOS and Linux as guests of KVM, on a host with this kernel.
    Kvm(Flavour),
}

/// The project's own system, with which the others are compared.
pub(super) const OWN: &Peer = &Peer {
    name: "steal",
    title: "Spumone, policy `steal`",
    kind: Kind::Spumone("steal"),
};

/// Keeps all other work off the last CPU (Linux, `Documentation/admin-guide/kernel-parameters.txt`).
pub(super) const ISOLATED: &[&str] = &[
    "isolcpus=managed_irq,domain,3",
    "nohz_full=3",
    "rcu_nocbs=3",
    "irqaffinity=0-2",
];

/// The others.
pub(super) const OTHERS: &[Peer] = &[
    Peer {
        name: "stock",
        title: "stock kernel, SCHED_FIFO",
        kind: Kind::Threads(Flavour::Cloud, &[]),
    },
    Peer {
        name: "preempt-rt",
        title: "PREEMPT_RT, SCHED_FIFO",
        kind: Kind::Threads(Flavour::Rt, &[]),
    },
    Peer {
        name: "preempt-rt-isolated",
        title: "PREEMPT_RT, CPU isolated",
        kind: Kind::Threads(Flavour::Rt, ISOLATED),
    },
    Peer {
        name: "xen-credit2",
        title: "Xen, credit2",
        kind: Kind::Xen(Scheduler::Credit2),
    },
    Peer {
        name: "xen-credit",
        title: "Xen, credit",
        kind: Kind::Xen(Scheduler::Credit),
    },
    Peer {
        name: "kvm",
        title: "KVM",
        kind: Kind::Kvm(Flavour::Cloud),
    },
    Peer {
        name: "kvm-rt",
        title: "KVM, host with PREEMPT_RT",
        kind: Kind::Kvm(Flavour::Rt),
    },
];

/// All systems, the own one first.
pub(super) fn all() -> impl Iterator<Item = &'static Peer> {
    [OWN].into_iter().chain(OTHERS)
}
