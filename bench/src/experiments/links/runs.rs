// SPDX-License-Identifier: MIT OR Apache-2.0
//! The runs: one for each kind of link, and for TCP on KVM.

use super::super::Plan;
use crate::description::Link;
use crate::kvm_pair::KvmPair;
use crate::linux::{Linux, Programs};
use crate::machine::{Machine, Order, Run};
use crate::system::{LINUX, PEER, Rt, System, rt_name};

/// The policy of all systems.
const POLICY: &str = "steal";
/// CPUs of each Linux.
pub(super) const CPUS: u32 = 2;
/// Cores of the machine in TCP runs: both guests share all of them, or each has its own.
const TCP_CORES: [u32; 2] = [CPUS, 2 * CPUS];
/// Virtual time in microseconds after which a run without a result ends. No run with a result takes half as long.
const END_US: u64 = 120_000_000;
/// The CID of the second guest of a description; the first one has 3 (`docs/links.md`).
const PEER_CID: u32 = 4;
/// The CID of the host of a guest of KVM (Linux, `include/uapi/linux/vm_sockets.h`).
const HOST_CID: u32 = 2;

/// Labels of the runs that are not TCP between two Linux guests.
pub(super) const SOCKETS: &str = "sockets-spumone";
pub(super) const KVM_SOCKETS: &str = "sockets-kvm-host";
pub(super) const MEMORY: &str = "memory";
pub(super) const RT_TCP: &str = "tcp-freertos";

/// The system below two Linux guests that use TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Below {
    /// Spumone, with a network link.
    Spumone,
    /// KVM, with vhost-net.
    Kvm,
}

impl Below {
    /// The own system first.
    pub(super) const ALL: [Self; 2] = [Self::Spumone, Self::Kvm];

    /// The name in labels.
    fn name(self) -> &'static str {
        match self {
            Self::Spumone => "spumone",
            Self::Kvm => "kvm",
        }
    }

    /// The name on the page.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Spumone => "Spumone, network link",
            Self::Kvm => "KVM, vhost-net",
        }
    }
}

/// The numbers of cores on which TCP is measured.
pub(super) fn tcp_cores(plan: &Plan) -> &'static [u32] {
    match plan.quick {
        true => &TCP_CORES[..1],
        false => &TCP_CORES,
    }
}

/// The label of a run of TCP between two Linux guests.
pub(super) fn tcp_label(below: Below, cores: u32) -> String {
    format!("tcp-{}-{cores}-cores", below.name())
}

/// Transfers between two Linux guests that count, and MiB of each.
pub(super) fn transfers(plan: &Plan) -> (u32, u32) {
    if plan.quick { (1, 16) } else { (3, 64) }
}

/// How much the other runs do.
struct Amounts {
    /// Echoes of 64 bytes over a socket; of 64 KiB there are a twentieth.
    echoes: u32,
    /// Size of the stream over a socket.
    stream_kib: u32,
    /// Messages over the memory link.
    messages: u32,
    /// Size of the stream to FreeRTOS.
    rt_mib: u32,
    /// Seconds for which FreeRTOS runs: longer than Linux.
    rt_seconds: u32,
}

fn amounts(plan: &Plan) -> Amounts {
    match plan.quick {
        true => Amounts {
            echoes: 500,
            stream_kib: 4096,
            messages: 5_000,
            rt_mib: 8,
            rt_seconds: 8,
        },
        false => Amounts {
            echoes: 4000,
            stream_kib: 32_768,
            messages: 50_000,
            rt_mib: 64,
            rt_seconds: 15,
        },
    }
}

/// All of them.
pub(super) fn runs(plan: &Plan) -> Vec<Run> {
    let cores = tcp_cores(plan).iter();
    let each = cores.flat_map(|&cores| Below::ALL.map(|below| tcp(plan, below, cores)));
    let more = [
        sockets(plan, Below::Spumone),
        sockets(plan, Below::Kvm),
        memory(plan),
        rt_tcp(plan),
    ];
    each.chain(more).collect()
}

fn run(plan: &Plan, label: impl Into<String>, machine: Machine, order: Order) -> Run {
    Run {
        label: label.into(),
        machine,
        disk_mib: 0,
        clock: plan.clock(Some(END_US)),
        order,
    }
}

fn link(kind: &str, between: [&str; 2]) -> Vec<Link> {
    vec![Link {
        kind: kind.into(),
        between: between.map(Into::into),
        offloads: None,
    }]
}

fn linux(programs: Programs, scenario: &str, arguments: &[&str]) -> Linux {
    Linux {
        programs,
        ..Linux::new(CPUS, scenario, arguments)
    }
}

/// A machine that ends with the first Linux.
const WITH_LINUX: Order = Order::LinuxFirst { rt_until: u64::MAX };

/// Linux receives from its peer with iperf3.
fn tcp(plan: &Plan, below: Below, cores: u32) -> Run {
    let (runs, mib) = transfers(plan);
    let (runs, mib) = (format!("runs={runs}"), format!("mib={mib}"));
    let server = ["role=server", "address=10.9.0.1/24", &runs];
    let client = [
        "role=client",
        "address=10.9.0.2/24",
        "server=10.9.0.1",
        &mib,
        &runs,
    ];
    let linux = |arguments: &[&str]| linux(Programs::Bench, "iperf", arguments);
    let (server, mut client) = (linux(&server), linux(&client));
    let machine = match below {
        Below::Spumone => {
            client.homes = (cores - CPUS..cores).collect();
            Machine::Spumone(System {
                cores,
                policy: POLICY.into(),
                linux: Some(server),
                peer: Some(Box::new(client)),
                links: link("network", [LINUX, PEER]),
                ..System::default()
            })
        }
        Below::Kvm => Machine::KvmPair(KvmPair {
            cores,
            linux: server,
            peer: Some(client),
        }),
    };
    run(plan, tcp_label(below, cores), machine, WITH_LINUX)
}

/// Linux sends over sockets: under Spumone to its peer, which only serves until the machine ends, on KVM to the host.
fn sockets(plan: &Plan, below: Below) -> Run {
    let amounts = amounts(plan);
    let (label, cid) = match below {
        Below::Spumone => (SOCKETS, PEER_CID),
        Below::Kvm => (KVM_SOCKETS, HOST_CID),
    };
    let arguments = [
        format!("other={cid}"),
        format!("count={}", amounts.echoes),
        format!("kib={}", amounts.stream_kib),
    ];
    let arguments = arguments.each_ref().map(String::as_str);
    let client = linux(Programs::Share, "sockets", &arguments);
    let machine = match below {
        Below::Spumone => Machine::Spumone(System {
            cores: CPUS,
            policy: POLICY.into(),
            linux: Some(client),
            peer: Some(Box::new(linux(
                Programs::Share,
                "sockets",
                &["seconds=1000"],
            ))),
            links: link("vsock", [LINUX, PEER]),
            ..System::default()
        }),
        Below::Kvm => Machine::KvmPair(KvmPair {
            cores: CPUS,
            linux: client,
            peer: None,
        }),
    };
    run(plan, label, machine, WITH_LINUX)
}

/// Linux with FreeRTOS, which has a part in the link.
fn with_rt(plan: &Plan, label: &str, kind: &str, rt: &str, linux: Linux) -> Run {
    let rt = format!(
        "period=1ms duration={}s histogram=off {rt}",
        amounts(plan).rt_seconds
    );
    let system = System {
        cores: CPUS,
        policy: POLICY.into(),
        rt: vec![Rt::new(rt)],
        linux: Some(linux),
        links: link(kind, [&rt_name(0), LINUX]),
        ..System::default()
    };
    run(plan, label, Machine::Spumone(system), Order::Any)
}

/// FreeRTOS echoes messages of Linux.
fn memory(plan: &Plan) -> Run {
    let count = format!("count={}", amounts(plan).messages);
    let linux = linux(Programs::Few, "link", &[&count]);
    with_rt(plan, MEMORY, "memory", "link=echo", linux)
}

/// FreeRTOS receives from Linux with iperf 2.
fn rt_tcp(plan: &Plan) -> Run {
    let mib = format!("mib={}", amounts(plan).rt_mib);
    let arguments = [
        "own=10.9.0.2",
        "other=10.9.0.1",
        "client=iperf",
        "pings=1",
        &mib,
    ];
    let linux = linux(Programs::Bench, "rtnet", &arguments);
    with_rt(plan, RT_TCP, "network", "network=10.9.0.1/24", linux)
}
