// SPDX-License-Identifier: MIT OR Apache-2.0
//! `links`: what guests have of each kind of link, and TCP between two guests of KVM to compare with.

mod runs;
mod values;

use super::{About, Defaults, Evaluation, Experiment, Plan, Table, Verdict};
use crate::machine::Run;
use crate::plot::{Bar, BarPanel, Bars, Figure};
use crate::results::Results;
use crate::stats::{Spread, grouped};
use runs::{Below, CPUS, KVM_SOCKETS, MEMORY, RT_TCP, SOCKETS, tcp_cores, tcp_label, transfers};
use serde_json::{Value, json};
use values::{Trip, longest_stretch, per_level, polled, stream, tcp_efficiency, tcp_rate, trip};

/// The figure.
pub struct Links;

const ABOUT: About = About {
    name: "links",
    title: "What links between guests carry, and how fast",
    question: "How much do two guests of Spumone send each other over each kind of link (`docs/links.md`), and how long does a round trip \
        take? And does TCP over a network link, whose frames EL2 copies, need more instructions than TCP between two guests of KVM, \
        where vhost-net and a bridge in the host's kernel carry it?",
    defaults: Defaults {
        policies: &["steal"],
        quick_policies: &["steal"],
        ..Defaults::LATENCY
    },
};

impl Experiment for Links {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn runs(&self, plan: &Plan) -> Result<Vec<Run>, String> {
        Ok(runs::runs(plan))
    }

    fn evaluate(&self, plan: &Plan, results: &Results) -> Evaluation {
        Evaluation {
            figure: Figure::Bars(bars(plan, results)),
            further: Vec::new(),
            caption: "Throughput of each kind of link, bytes for each 1,000 instructions of TCP on Spumone and on KVM, and round-trip \
                times, on logarithmic axes"
                .into(),
            findings: findings(plan, results),
            verdicts: verdicts(plan, results),
            tables: vec![
                tcp_table(plan, results),
                streams_table(plan, results),
                trips_table(plan, results),
            ],
            method: method(plan),
            summary: summary(plan, results),
        }
    }
}

/// A name for TCP between two Linux guests.
fn tcp_name(below: Below, cores: u32) -> String {
    format!("{}, {cores} cores", below.title())
}

/// Each system with each number of cores.
fn tcp_cases(plan: &Plan) -> impl Iterator<Item = (Below, u32)> {
    let cores = tcp_cores(plan).iter();
    cores.flat_map(|&cores| Below::ALL.map(|below| (below, cores)))
}

fn show(value: Option<Spread>, decimals: usize) -> String {
    value.map_or("-".into(), |it| it.show(decimals))
}

/// Names and rates of all streams, in Mbit/s.
fn streams(plan: &Plan, results: &Results) -> Vec<(String, Option<Spread>)> {
    let tcp = tcp_cases(plan).map(|(below, cores)| {
        let rate = tcp_rate(results, &tcp_label(below, cores));
        (format!("TCP, {}", tcp_name(below, cores)), rate)
    });
    let more = [
        (
            format!("stream over a vsock link, {CPUS} cores"),
            stream(results, SOCKETS, "bytes", "seconds"),
        ),
        (
            format!("stream of KVM's vsock to the host, {CPUS} cores"),
            stream(results, KVM_SOCKETS, "bytes", "seconds"),
        ),
        (
            format!("TCP to FreeRTOS, {CPUS} cores"),
            stream(results, RT_TCP, "streamed", "stream_seconds"),
        ),
    ];
    tcp.chain(more).collect()
}

/// Messages a second over the memory link, as many under way as its ring holds.
fn messages(results: &Results) -> Option<Spread> {
    values::ratio(results, MEMORY, "messages", "ns").map(|it| it.over(1e-9))
}

fn bars(plan: &Plan, results: &Results) -> Bars {
    let bar = |name: String, value, decimals| Bar {
        colour: usize::from(name.contains("KVM")),
        name,
        value,
        decimals,
    };
    let streams = streams(plan, results).into_iter();
    let efficiencies = tcp_cases(plan).map(|(below, cores)| {
        let value = tcp_efficiency(plan, results, &tcp_label(below, cores));
        bar(format!("TCP, {}", tcp_name(below, cores)), value, 0)
    });
    let trips = Trip::all().map(|it| bar(it.title.into(), trip(results, it), 1));
    let panel = |title: &str, x_title: &str, bars| BarPanel {
        title: title.into(),
        x_title: x_title.into(),
        bars,
    };
    Bars {
        title: "Links between guests".into(),
        subtitle: "median, and the range over transfers and seeds; all axes are logarithmic".into(),
        panels: vec![
            panel(
                "throughput",
                "Mbit/s",
                streams.map(|(name, value)| bar(name, value, 0)).collect(),
            ),
            panel(
                "cost of TCP: the more bytes, the better",
                "bytes for each 1,000 instructions that all cores execute",
                efficiencies.collect(),
            ),
            panel("round trip: the shorter, the better", "µs", trips.collect()),
        ],
    }
}

fn findings(plan: &Plan, results: &Results) -> Vec<String> {
    let mut findings = Vec::new();
    for (below, cores) in tcp_cases(plan) {
        let label = tcp_label(below, cores);
        if let (Some(rate), Some(bytes)) = (
            tcp_rate(results, &label),
            tcp_efficiency(plan, results, &label),
        ) {
            findings.push(format!(
                "TCP, {}: {:.0} Mbit/s, {:.0} bytes for each 1,000 instructions executed.",
                tcp_name(below, cores),
                rate.median,
                bytes.median
            ));
        }
    }
    let trips = Trip::all().filter_map(|it| {
        let micros = trip(results, it)?.median;
        Some(format!("{} {micros:.1} µs", it.title))
    });
    let trips: Vec<_> = trips.collect();
    if !trips.is_empty() {
        findings.push(format!("Round trips: {}.", trips.join("; ")));
    }
    if let Some(rate) = messages(results) {
        findings.push(format!(
            "The memory link carries {} messages a second to FreeRTOS and back.",
            grouped(rate.median)
        ));
    }
    findings
}

/// Most instructions at EL2 without a look for interrupts, by the aim.
const MAX_STRETCH: u64 = 500;

/// For each kind of traffic over links with virtio, its name and the longest stretch beside it, of all seeds.
fn stretches(plan: &Plan, results: &Results) -> Vec<(String, u64)> {
    let tcp = tcp_cores(plan).iter().map(|&cores| {
        let label = tcp_label(Below::Spumone, cores);
        (format!("TCP on {cores} cores"), label)
    });
    let others = [("sockets", SOCKETS), ("TCP to FreeRTOS", RT_TCP)];
    let others = others.map(|(name, label)| (name.into(), label.to_owned()));
    tcp.chain(others)
        .filter_map(|(name, label)| Some((name, longest_stretch(results, &label)?)))
        .collect()
}

fn verdicts(plan: &Plan, results: &Results) -> Vec<Verdict> {
    let tcp = tcp_cores(plan).iter().map(|&cores| {
        let bytes = Below::ALL
            .map(|below| tcp_efficiency(plan, results, &tcp_label(below, cores)));
        let both = bytes[0].zip(bytes[1]);
        Verdict {
            aim: format!(
                "TCP between two Linux guests on {cores} cores: at least as many bytes for each 1,000 instructions as on KVM with \
                 vhost-net"
            ),
            measured: both.map_or("no result".into(), |(own, kvm)| {
                format!("{:.0}, KVM {:.0}", own.median, kvm.median)
            }),
            met: both.map(|(own, kvm)| own.median >= kvm.median),
        }
    });
    let memory = trip(results, Trip::MEMORY);
    let others: Option<Vec<_>> = Trip::OTHERS.iter().map(|&it| trip(results, it)).collect();
    let shortest = others.and_then(|it| it.into_iter().map(|it| it.low).reduce(f64::min));
    let both = memory.zip(shortest);
    let floor = Verdict {
        aim: "the round trip over the memory link is the shortest (mean of each run)".into(),
        measured: both.map_or("no result".into(), |(memory, other)| {
            format!("{:.1} µs, the shortest other {other:.1}", memory.high)
        }),
        met: both.map(|(memory, other)| memory.high <= other),
    };
    let missed: Option<f64> = [MEMORY, RT_TCP]
        .iter()
        .flat_map(|label| match results.of(label) {
            [] => vec![None],
            outcomes => outcomes
                .iter()
                .map(|it| Some(it.rt("lost")? + it.rt("late")?))
                .collect(),
        })
        .sum();
    let rt = Verdict {
        aim: "FreeRTOS loses no period of 1 ms while it answers Linux over either link, and none is late".into(),
        measured: missed.map_or("no result".into(), |it| format!("{it:.0} lost or late")),
        met: missed.map(|it| it == 0.0),
    };
    let stretches = stretches(plan, results);
    let longest = stretches.iter().map(|it| it.1).max();
    let words = stretches
        .iter()
        .map(|(name, longest)| format!("{name} {longest}"));
    let words: Vec<_> = words.collect();
    let stretch = Verdict {
        aim: format!("EL2 looks for interrupts at least every {MAX_STRETCH} instructions"),
        measured: match words[..] {
            [] => "no result".into(),
            _ => format!("longest stretch: {}", words.join(", ")),
        },
        met: longest.map(|it| it <= MAX_STRETCH),
    };
    tcp.chain([floor, stretch, rt]).collect()
}

fn tcp_table(plan: &Plan, results: &Results) -> Table {
    let mut table = Table::new(
        "TCP between two Linux guests: median of transfers and seeds, and their range",
        &[
            "system",
            "Mbit/s",
            "bytes for each 1,000 instructions executed",
            "for each 1,000 that the cores could execute",
            "the cores poll, %",
            "instructions for each KiB at EL0",
            "EL1",
            "EL2",
        ],
    );
    for (below, cores) in tcp_cases(plan) {
        let label = tcp_label(below, cores);
        let rate = tcp_rate(results, &label);
        // Mbit/s as bytes in a microsecond; each core could execute `ipus` instructions in it.
        let capacity = rate.map(|it| it.over(8.0 * f64::from(cores * plan.ipus) / 1000.0));
        let [el0, el1, el2] = per_level(plan, results, &label);
        table.rows.push(vec![
            tcp_name(below, cores),
            show(rate, 0),
            show(tcp_efficiency(plan, results, &label), 0),
            show(capacity, 0),
            show(polled(results, &label, cores), 1),
            show(el0, 0),
            show(el1, 0),
            show(el2, 0),
        ]);
    }
    table
}

fn streams_table(plan: &Plan, results: &Results) -> Table {
    let mut table = Table::new(
        "Streams of each kind of link: median of the seeds, and their range",
        &["", "Mbit/s", "messages a second"],
    );
    for (name, rate) in streams(plan, results) {
        table.rows.push(vec![name, show(rate, 0), "-".into()]);
    }
    table.rows.push(vec![
        "messages over the memory link, to FreeRTOS and back".into(),
        "-".into(),
        messages(results).map_or("-".into(), |it| grouped(it.median)),
    ]);
    table
}

fn trips_table(plan: &Plan, results: &Results) -> Table {
    let mut table = Table::new(
        "Round trips, the mean of each run unless another is named: median of the seeds, and their range",
        &["", "µs", "instructions of one core in that time"],
    );
    for it in Trip::all() {
        let micros = trip(results, it);
        let instructions = micros.map(|it| it.over(1.0 / f64::from(plan.ipus)));
        table.rows.push(vec![
            it.title.into(),
            show(micros, 1),
            show(instructions, 0),
        ]);
    }
    table
}

fn method(plan: &Plan) -> Vec<String> {
    let (runs, mib) = transfers(plan);
    vec![
        format!(
            "TCP: two Linux guests with {CPUS} vCPUs each and one network card, the same kernel, initial file system and memory on both \
             systems. One sends with iperf3, {runs} times {mib} MiB, after a connection that does not count. Mbit/s is what the receiver \
             counts (iperf3, `sum_received`). On {CPUS} cores both guests share all cores; on {} \
             each could have cores of its own. There is no real-time load.",
            2 * CPUS
        ),
        "Instructions executed: all that all cores execute between the marks of the clock around the transfers, guests and what is below \
         them, start and end of iperf3 included. A core that sleeps or polls (`WFE`, `YIELD`) executes none. The next column has all \
         that the cores could have executed during a transfer at the machine's rate, asleep or not, so it shows the same as Mbit/s. \
         A core that polls waits for another one, as in a spinlock."
            .into(),
        "Spumone: policy `steal`. A vCPU of the sender copies each frame at EL2, so EL2 has the copies. On 4 cores the guests have two \
         cores each."
            .into(),
        "KVM: Debian's kernel is the host, at EL2 (VHE), with a QEMU (Debian's 7.2) for each guest. A card is a `virtio-net-pci` with \
         `-netdev tap,vhost=on`, both taps are in one bridge of the host. Guests have huge pages, made and locked before they start. vCPUs and \
         vhost's threads may run on any core. All else is as Debian and QEMU have it: segmentation and checksums are left to the card, so \
         a frame may have 64 KiB (`guests/kvm/README.md`). EL0 has QEMU, too, and EL2 has the host's kernel, with vhost and the bridge."
            .into(),
        "Vsock link: two Linux guests share two cores. One sends 64 bytes, 64 KiB, or a message of 10,000 bytes \
         over a socket that keeps borders (`SOCK_SEQPACKET`), and waits until the other has sent all back. For the \
         stream, one computes each byte and the other one compares it, which is a part of its time. KVM's `vhost_vsock` carries vsock between \
         a guest and the host, not between two guests: a program of the host would have to pass each byte on. Its rows are of the same \
         program with the server on the host, so one guest less takes part."
            .into(),
        "Memory link: Linux sends messages to FreeRTOS, which echoes them from its task of low priority, on a core that both share. The \
         round trip is that of an empty message, from 1,000 one at a time; FreeRTOS takes at most 16 signals in each tick of 1 ms, which \
         bounds what a peer costs its control task, and makes the mean longer than the shortest. For messages a second, of 0 to 256 bytes, as \
         many are under way as the ring holds."
            .into(),
        "TCP to FreeRTOS: iperf 2 in Linux to lwIP's server. FreeRTOS takes at most 24 frames in each tick of 1 ms (278 Mbit/s), which \
         bounds what a peer costs its control task. Linux reports time in steps of 10 ms."
            .into(),
    ]
}

fn summary(plan: &Plan, results: &Results) -> Value {
    let tcp = tcp_cases(plan).map(|(below, cores)| {
        let label = tcp_label(below, cores);
        let [el0, el1, el2] = per_level(plan, results, &label);
        json!({
            "label": label,
            "mbit_per_second": tcp_rate(results, &label),
            "bytes_per_1000_instructions": tcp_efficiency(plan, results, &label),
            "instructions_per_kib": { "el0": el0, "el1": el1, "el2": el2 },
        })
    });
    let streams = streams(plan, results).into_iter();
    let streams = streams.map(|(name, rate)| json!({ "name": name, "mbit_per_second": rate }));
    let trips = Trip::all().map(|it| json!({ "name": it.title, "us": trip(results, it) }));
    json!({
        "tcp": tcp.collect::<Vec<_>>(),
        "streams": streams.collect::<Vec<_>>(),
        "round_trips": trips.collect::<Vec<_>>(),
        "messages_per_second": messages(results),
    })
}

#[cfg(test)]
mod tests;
