// SPDX-License-Identifier: MIT OR Apache-2.0
//! The system description: what a user writes in TOML.
//!
//! Reading checks the form only (keys, types, words). Whether the system is possible on its board is
//! checked by [`crate::check`] and [`crate::layout`].

mod console;
mod ending;
mod power;
mod protect;
mod wake_early;

pub use console::Console;
pub use ending::{DEFAULT_RESTARTS, Ended, Tampered};
pub use power::{CoresOn, POWER_MODES, Power};
pub use protect::{By, Protect, Range};

use crate::board::Board;
use crate::packed::{InterruptPriorities, OnFault, Policy, RestartLimit, WakeEarly, Without};
use crate::problem::{Problem, SourceFile, Span, Spanned};
use crate::reader::{
    Mismatch, Table, address, boolean, choice, duration_us, number, number_in, parse_document,
    size, string,
};
use crate::roles;
use crate::sink::Sink;
use crate::units::{KIB, align_up};
use toml::de::DeValue;

/// The quantum of a description that names none, in microseconds.
const DEFAULT_QUANTUM_US: u64 = 2_000;

/// The policies a description may name.
pub const POLICIES: &[(&str, Policy)] = &[
    ("none", Policy::None),
    ("steal", Policy::Steal),
    ("ondemand", Policy::OnDemand),
    ("trap", Policy::Trap),
    ("delay", Policy::Delay),
    ("balance", Policy::Balance),
    ("cosched", Policy::Cosched),
    ("random", Policy::Random),
];
/// The tables of a description with their keys, for a key that is written in the wrong one.
const TABLES: &[(&str, &[&str])] = &[
    ("[board]", &["name", "cores", "memory"]),
    (
        "[scheduler]",
        &[
            "policy",
            "quantum",
            "interrupt-priorities",
            "without",
            "delay-while",
        ],
    ),
    ("[power]", &["mode", "cores-on"]),
    ("[run]", &["qemu-args"]),
    (
        "[[guest]]",
        &[
            "name",
            "kind",
            "image",
            "initrd",
            "dtb",
            "memory",
            "ipa",
            "pa",
            "identity",
            "trusted-dma",
            "on-fault",
            "on-stop",
            "on-tamper",
            "restarts",
            "protect",
            "watchdog",
            "stolen-time",
            "sets-power",
            "vcpus",
            "cores",
            "priority",
            "wake-early",
            "bootargs",
            "devices",
            "console",
            "load",
            "entry",
        ],
    ),
    ("`console` of a [[guest]]", &["uart", "colour"]),
    ("`restarts` of a [[guest]]", &["most", "within"]),
    (
        "`protect` of a [[guest]]",
        &["by", "ranges", "round", "memory"],
    ),
    (
        "[[link]]",
        &["kind", "between", "size", "read-only", "offloads"],
    ),
];
/// What an access where a guest has nothing does, by name.
const ON_FAULT: &[(&str, OnFault)] = &[("stop", OnFault::Stop), ("abort", OnFault::Abort)];
/// The kinds of links by name.
const LINK_KINDS: &[(&str, LinkKind)] = &[
    ("memory", LinkKind::Memory),
    ("network", LinkKind::Network),
    ("vsock", LinkKind::Socket),
];
/// The interrupt priorities by name.
const INTERRUPT_PRIORITIES: &[(&str, InterruptPriorities)] = &[
    ("split", InterruptPriorities::Split),
    ("flat", InterruptPriorities::Flat),
];
/// What policy `delay` may wait for, by name.
const DELAYS: &[(&str, DelayWhile)] = &[
    ("in-kernel", DelayWhile::InKernel),
    ("preempt-count", DelayWhile::PreemptCount),
];
/// The mechanisms of policies that can be turned off, by name.
const MECHANISMS: &[(&str, Mechanism)] = &[
    ("grace", Mechanism::Grace),
    ("yield-on-spin", Mechanism::YieldOnSpin),
    ("patience", Mechanism::Patience),
    ("ipi-pull", Mechanism::IpiPull),
    ("out-of-turn", Mechanism::OutOfTurn),
    ("short-turns", Mechanism::ShortTurns),
];

/// A whole description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// `[board]`: the machine and how much of it is used.
    pub board: BoardChoice,
    /// `[scheduler]`.
    pub scheduler: Scheduler,
    /// `[power]`.
    pub power: Option<Power>,
    /// `[[guest]]`, in the order of the file.
    pub guests: Vec<Guest>,
    /// `[[link]]`, in the order of the file.
    pub links: Vec<Link>,
    /// `seed`: fixes the random seeds that guests get, for repeatable runs.
    pub seed: Option<u64>,
    /// `version`: a hypervisor with a key refuses lower ones than that of its own image.
    pub version: u32,
    /// `[run] qemu-args`: more arguments of QEMU for `spm run`.
    pub qemu_args: Vec<Spanned<String>>,
}

/// `[board]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoardChoice {
    /// Name of a board file.
    pub name: Spanned<String>,
    /// Number of cores used.
    pub cores: Spanned<u64>,
    /// Memory of the machine in bytes.
    pub memory: Spanned<u64>,
}

/// `[scheduler]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scheduler {
    /// The policy against lock-holder preemption.
    pub policy: Spanned<Policy>,
    /// Whether the description names the policy; else it is the default for these guests.
    pub names_policy: bool,
    /// Length of a time slice among vCPUs of one priority, in microseconds.
    pub quantum_us: Spanned<u64>,
    /// Whether interrupts for vCPUs of lower priority reach a running vCPU.
    pub interrupt_priorities: InterruptPriorities,
    /// The mechanisms of the policy that are turned off.
    pub without: Vec<Spanned<Mechanism>>,
    /// How policy `delay` knows that a vCPU may hold a lock, if the description says so.
    pub delay_while: Option<Spanned<DelayWhile>>,
}

/// How policy `delay` knows that a vCPU may hold a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DelayWhile {
    /// It runs its kernel.
    InKernel,
    /// Its kernel has disabled preemption or interrupts.
    PreemptCount,
}

/// A mechanism of a policy, each as in [`Without`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// [`Without::grace`].
    Grace,
    /// [`Without::yield_on_spin`].
    YieldOnSpin,
    /// [`Without::patience`].
    Patience,
    /// [`Without::ipi_pull`].
    IpiPull,
    /// [`Without::out_of_turn`].
    OutOfTurn,
    /// [`Without::short_turns`].
    ShortTurns,
}

impl Scheduler {
    /// The mechanisms that are turned off.
    #[must_use]
    pub fn without(&self) -> Without {
        let lacks = |mechanism| self.without.iter().any(|it| it.value == mechanism);
        Without {
            grace: lacks(Mechanism::Grace),
            yield_on_spin: lacks(Mechanism::YieldOnSpin),
            patience: lacks(Mechanism::Patience),
            ipi_pull: lacks(Mechanism::IpiPull),
            out_of_turn: lacks(Mechanism::OutOfTurn),
            short_turns: lacks(Mechanism::ShortTurns),
        }
    }

    /// The place where the description asks for guests' `preempt_count`.
    #[must_use]
    pub fn reads_preempt_count(&self) -> Option<Span> {
        let written = self.delay_while?;
        (self.policy.value == Policy::Delay && written.value == DelayWhile::PreemptCount)
            .then_some(written.span)
    }
}

/// One `[[guest]]`. Paths are relative to the description's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guest {
    /// Span of its table.
    pub span: Span,
    /// Its name, which is also its tag on the console.
    pub name: Spanned<String>,
    /// How its image is loaded.
    pub kind: Spanned<Kind>,
    /// Path of its kernel or program.
    pub image: Spanned<String>,
    /// Path of its initial ramdisk.
    pub initrd: Option<Spanned<String>>,
    /// Path of a device tree blob to use instead of the generated one.
    pub dtb: Option<Spanned<String>>,
    /// Memory in bytes.
    pub memory: Spanned<u64>,
    /// Guest address of its memory.
    pub ipa: Option<Spanned<u64>>,
    /// Machine address of its memory.
    pub pa: Option<Spanned<u64>>,
    /// Whether both addresses are equal (IPA = PA).
    pub identity: Option<Spanned<bool>>,
    /// Whether it may have devices that do DMA, so that it reaches all memory of the machine.
    pub trusted_dma: Option<Spanned<bool>>,
    /// What an access where it has nothing does.
    pub on_fault: Option<Spanned<OnFault>>,
    /// What becomes of it when it has ended.
    pub on_stop: Option<Spanned<Ended>>,
    /// What becomes of it when its protected memory has changed.
    pub on_tamper: Option<Spanned<Tampered>>,
    /// How often it starts again, where it does.
    pub restarts: Option<Spanned<RestartLimit>>,
    /// What of its memory must not change while it runs.
    pub protect: Option<Protect>,
    /// The longest timeout of its watchdog, in microseconds.
    pub watchdog_us: Option<Spanned<u64>>,
    /// Whether it can read the stolen time of its vCPUs.
    pub stolen_time: Option<Spanned<bool>>,
    /// Whether it may set the mode of `[power]`.
    pub sets_power: Option<Spanned<bool>>,
    /// Home core of each vCPU.
    pub vcpus: Spanned<Vec<Spanned<u64>>>,
    /// Further cores that its vCPUs may move to.
    pub cores: Vec<Spanned<u64>>,
    /// Priority of all vCPUs, or one for each.
    pub priority: Option<Priorities>,
    /// How long before the timer of a sleeping vCPU expires its core begins to switch to that vCPU.
    pub wake_early: Option<Spanned<WakeEarly>>,
    /// Kernel command line.
    pub bootargs: Option<Spanned<String>>,
    /// Names of devices passed through, from the board file.
    pub devices: Vec<Spanned<String>>,
    /// Its console.
    pub console: Console,
    /// Load address of a raw image.
    pub load: Option<Spanned<u64>>,
    /// Entry point of a raw image.
    pub entry: Option<Spanned<u64>>,
}

impl Guest {
    /// Whether it can read the stolen time of its vCPUs.
    pub fn reads_stolen_time(&self) -> bool {
        self.stolen_time.is_some_and(|it| it.value)
    }

    /// Every core that its vCPUs may run on, as written: homes first, some more than once.
    pub fn all_cores(&self) -> impl Iterator<Item = Spanned<u64>> {
        self.vcpus.value.iter().chain(&self.cores).copied()
    }

    /// Whether its vCPUs may run on several cores, so that a policy can move them.
    #[must_use]
    pub fn has_several_cores(&self) -> bool {
        let mut cores = self.all_cores().map(|core| core.value);
        let first = cores.next();
        cores.any(|core| Some(core) != first)
    }

    /// The cores that its vCPUs may run on; bit n for core n.
    #[must_use]
    pub fn core_set(&self) -> u32 {
        roles::set_of(self.all_cores().map(|core| core.value))
    }

    /// Whether its vCPUs migrate under this policy.
    #[must_use]
    pub fn moves(&self, policy: Policy) -> bool {
        roles::moves(policy, self.core_set(), self.vcpus.value.len())
    }

    /// The names of its devices that do DMA, on this board.
    #[must_use]
    pub fn dma_devices(&self, board: &Board) -> Vec<&Spanned<String>> {
        let does_dma = |name: &&Spanned<String>| board.device(&name.value).is_some_and(|it| it.dma);
        self.devices.iter().filter(does_dma).collect()
    }

    /// Whether it is a Linux with several vCPUs, which may wait for each other's locks.
    #[must_use]
    pub fn is_smp_linux(&self) -> bool {
        self.kind.value == Kind::Linux && self.vcpus.value.len() > 1
    }
}

/// One `[[link]]` between two guests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Span of its table.
    pub span: Span,
    /// What it is.
    pub kind: Spanned<LinkKind>,
    /// Names of the two guests.
    pub between: Spanned<Vec<Spanned<String>>>,
    /// Bytes of memory.
    pub size: Option<Spanned<u64>>,
    /// Name of the guest that may not write to the memory.
    pub read_only: Option<Spanned<String>>,
    /// Whether network cards offer frames of up to 64 KiB, with checksums that are still to be computed.
    pub offloads: Option<Spanned<bool>>,
}

impl Link {
    /// Bytes of memory of a link whose description names no size.
    pub const DEFAULT_SIZE: u64 = 64 * 1024;

    /// Bytes of memory that the guests share.
    #[must_use]
    pub fn size(&self) -> u64 {
        match self.kind.value {
            LinkKind::Memory => self.size.map_or(Self::DEFAULT_SIZE, |size| size.value),
            LinkKind::Network | LinkKind::Socket => 0,
        }
    }

    /// Bytes of addresses that the memory takes: guests may have pages of 64 KiB.
    #[must_use]
    pub fn room(&self) -> u64 {
        align_up(self.size(), 64 * KIB).unwrap_or(u64::MAX)
    }
}

/// What a link is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkKind {
    /// Memory that both guests have, and a signal each way.
    Memory,
    /// A virtio network card for each guest.
    Network,
    /// A virtio socket device for each guest (`vsock`).
    Socket,
}

/// How an image is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A Linux arm64 `Image`, booted by its boot protocol.
    Linux,
    /// An ELF executable: its loadable segments go to their physical addresses.
    Elf,
    /// A raw image.
    Raw,
}

impl Kind {
    /// Its word in a description.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Linux => "linux",
            Self::Elf => "elf",
            Self::Raw => "raw",
        }
    }
}

/// `priority`: one for all vCPUs or a list, one for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Priorities {
    /// `priority = 100`.
    All(Spanned<u64>),
    /// `priority = [200, 100]`.
    PerVcpu(Spanned<Vec<Spanned<u64>>>),
}

impl Description {
    /// Reads a description. Returns what could be read, unless a part is missing without which
    /// nothing can be checked, and all faults of form.
    pub fn parse(text: &str) -> (Option<Self>, Vec<Problem>) {
        let sink = Sink::new(SourceFile::Description);
        let Some((document, span)) = parse_document(text, &sink) else {
            return (None, sink.into_problems());
        };
        let description = read(Table::new(&document, span, "the description", &sink), &sink);
        (description, sink.into_problems())
    }
}

fn read(mut top: Table<'_, '_, '_>, sink: &Sink) -> Option<Description> {
    let board = top
        .table("board", "[board]", "a table, written [board]")
        .map(read_board);
    if !top.has("board") {
        sink.report(
            Problem::new("missing-key", "the description has no [board]")
                .at(top.span, "[board] is missing")
                .help(
                    "add\n[board]\nname = \"qemu-virt\"\ncores = 4\nmemory = \"2GiB\"\n\
                     to say which machine the guests share",
                ),
        );
    }
    let scheduler_table = top.table("scheduler", "[scheduler]", "a table, written [scheduler]");
    let tables = top.tables("guest");
    let written = tables.len();
    let has_guests = top.has("guest");
    let guests: Vec<_> = tables.into_iter().filter_map(read_guest).collect();
    if !has_guests {
        sink.report(
            Problem::new("no-guest", "the description has no guest")
                .at(top.span, "[[guest]] is missing")
                .help("add a [[guest]] with name, kind, image, memory and vcpus"),
        );
    }
    let links = top.tables("link");
    let links: Vec<_> = links.into_iter().filter_map(read_link).collect();
    // The default policy depends on the guests.
    let default_policy = default_policy(&guests);
    let scheduler = match scheduler_table {
        Some(table) => read_scheduler(table, default_policy),
        None => Scheduler {
            policy: Spanned::new(default_policy, top.span),
            names_policy: false,
            quantum_us: Spanned::new(DEFAULT_QUANTUM_US, top.span),
            interrupt_priorities: InterruptPriorities::Split,
            without: Vec::new(),
            delay_while: None,
        },
    };
    let power = top.table("power", "[power]", "a table, written [power]");
    let seed = top.optional("seed", number).map(|seed| seed.value);
    let version = top.optional("version", |value| number_in(value, 0..=u32::MAX.into()));
    let version = version.map_or(0, |it| u32::try_from(it.value).unwrap_or(u32::MAX));
    let qemu_args = top
        .table("run", "[run]", "a table, written [run]")
        .map(read_run)
        .unwrap_or_default();
    top.finish_with(TABLES);
    // If a guest were left out, checks across guests would report false problems.
    (has_guests && guests.len() == written).then_some(Description {
        board: board??,
        scheduler,
        power: power.and_then(power::read),
        guests,
        links,
        seed,
        version,
        qemu_args,
    })
}

fn read_board(mut table: Table<'_, '_, '_>) -> Option<BoardChoice> {
    let name = table.required("name", "\"qemu-virt\"", string);
    let cores = table.required("cores", "4", number);
    let memory = table.required("memory", "\"2GiB\"", size);
    table.finish_with(TABLES);
    Some(BoardChoice {
        name: name?,
        cores: cores?,
        memory: memory?,
    })
}

/// The policy of a description that names none: the recommended one, if the vCPUs of a guest migrate under it.
fn default_policy(guests: &[Guest]) -> Policy {
    match guests.iter().any(|guest| guest.moves(Policy::Steal)) {
        true => Policy::Steal,
        false => Policy::None,
    }
}

fn read_scheduler(mut table: Table<'_, '_, '_>, default_policy: Policy) -> Scheduler {
    let names_policy = table.has("policy");
    let policy = table.optional("policy", |value| choice(value, POLICIES));
    let quantum_us = table
        .optional("quantum", |value| duration_us(value, "2ms"))
        .unwrap_or(Spanned::new(DEFAULT_QUANTUM_US, table.span));
    let interrupt_priorities = table
        .optional("interrupt-priorities", |value| {
            choice(value, INTERRUPT_PRIORITIES)
        })
        .map_or(InterruptPriorities::Split, |priorities| priorities.value);
    let named = table.list("without", "a list of strings", |value| {
        choice(value, MECHANISMS)
    });
    let delay_while = table.optional("delay-while", |value| choice(value, DELAYS));
    // If the policy cannot be read, it is not known whether they fit.
    let is_policy_known = policy.is_some() || !names_policy;
    let without = named.filter(|_| is_policy_known);
    let without = without.map_or(Vec::new(), |list| list.value);
    let delay_while = delay_while.filter(|_| is_policy_known);
    let table_span = table.span;
    table.finish_with(TABLES);
    Scheduler {
        policy: policy.unwrap_or(Spanned::new(default_policy, table_span)),
        names_policy,
        quantum_us,
        interrupt_priorities,
        without,
        delay_while,
    }
}

fn read_run(mut table: Table<'_, '_, '_>) -> Vec<Spanned<String>> {
    let args = table.list("qemu-args", "a list of strings", string);
    table.finish_with(TABLES);
    args.map(|list| list.value).unwrap_or_default()
}

fn read_guest(mut table: Table<'_, '_, '_>) -> Option<Guest> {
    let span = table.span;
    let name = table.required("name", "\"linux\"", string);
    if let Some(name) = &name {
        table.rename(format!("guest \"{}\"", name.value));
    }
    let kind = table.required("kind", "\"linux\"", |value| {
        choice(
            value,
            &[Kind::Linux, Kind::Elf, Kind::Raw].map(|kind| (kind.word(), kind)),
        )
    });
    let image = table.required("image", "\"path/to/Image\"", string);
    let initrd = table.optional("initrd", string);
    let dtb = table.optional("dtb", string);
    let memory = table.required("memory", "\"512MiB\"", size);
    let ipa = table.optional("ipa", address);
    let pa = table.optional("pa", address);
    let identity = table.optional("identity", boolean);
    let trusted_dma = table.optional("trusted-dma", boolean);
    let on_fault = table.optional("on-fault", |value| choice(value, ON_FAULT));
    let (on_stop, on_tamper, restarts) = ending::read(&mut table);
    let protect = protect::read(&mut table);
    let watchdog_us = table.optional("watchdog", |value| duration_us(value, "2s"));
    let stolen_time = table.optional("stolen-time", boolean);
    let sets_power = table.optional("sets-power", boolean);
    let vcpus = table.list("vcpus", "a list of cores such as [0, 1]", number);
    if vcpus.is_none() && !table.has("vcpus") {
        table.missing("vcpus", "[0]");
    }
    let cores = table
        .list("cores", "a list of cores such as [0, 1]", number)
        .map(|list| list.value);
    let priority = read_priority(&mut table);
    let wake_early = table.optional("wake-early", wake_early::read);
    let bootargs = table.optional("bootargs", string);
    let devices = table
        .list("devices", "a list of device names", string)
        .map(|list| list.value);
    let console = console::read(&mut table);
    let load = table.optional("load", address);
    let entry = table.optional("entry", address);
    table.finish_with(TABLES);
    Some(Guest {
        span,
        name: name?,
        kind: kind?,
        image: image?,
        initrd,
        dtb,
        memory: memory?,
        ipa,
        pa,
        identity,
        trusted_dma,
        on_fault,
        on_stop,
        on_tamper,
        restarts,
        protect,
        watchdog_us,
        stolen_time,
        sets_power,
        vcpus: vcpus?,
        cores: cores.unwrap_or_default(),
        priority,
        wake_early,
        bootargs,
        devices: devices.unwrap_or_default(),
        console,
        load,
        entry,
    })
}

fn read_link(mut table: Table<'_, '_, '_>) -> Option<Link> {
    let span = table.span;
    let kind = table.required("kind", "\"memory\"", |value| choice(value, LINK_KINDS));
    let between = table.list("between", "a list of two guests", string);
    if between.is_none() && !table.has("between") {
        table.missing("between", "[\"rt\", \"linux\"]");
    }
    let size = table.optional("size", size);
    let read_only = table.optional("read-only", string);
    let offloads = table.optional("offloads", boolean);
    table.finish_with(TABLES);
    Some(Link {
        span,
        kind: kind?,
        between: between?,
        size,
        read_only,
        offloads,
    })
}

fn read_priority(table: &mut Table<'_, '_, '_>) -> Option<Priorities> {
    if table.is_array("priority") {
        return table
            .list("priority", "a list", number)
            .map(Priorities::PerVcpu);
    }
    table
        .optional("priority", |value: &DeValue<'_>| {
            number(value).map_err(|_| {
                Mismatch::new("must be a number from 1 to 255, or a list with one for each vCPU")
            })
        })
        .map(Priorities::All)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_the_tables_are_known_there() {
        for (table, keys) in TABLES.iter().filter(|(table, _)| table.starts_with('[')) {
            let keys: String = keys.iter().map(|key| format!("{key} = 0\n")).collect();
            let (_, problems) = Description::parse(&format!("{table}\n{keys}"));
            assert!(
                problems.iter().all(|it| it.code != "unknown-key"),
                "{table}: {problems:?}"
            );
        }
    }
}
