// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exits by cause: how often, how many instructions, and for how long the core did not check for
//! interrupts, which the hypervisor can add to a latency.

use super::{Table, Verdict};
use crate::clock::Exits;
use crate::results::Results;
use crate::stats::grouped;
use spumone_config::IntId;
use spumone_config::gic::{HYPERVISOR_TIMER, PHYSICAL_TIMER, VIRTUAL_TIMER};

/// Kinds of exits in the table.
const KINDS: usize = 14;
/// Causes that do not occur in a running system.
const NO_WORK: [&str; 3] = ["start of a core", "PSCI CPU_OFF", "PSCI SYSTEM_OFF"];
/// Where a core starts.
const START: &str = "secondary_entry";
/// How an exit ends that is not over when the run ends.
const UNFINISHED: &str = "unfinished";

/// Causes that have aims.
const OWN_TIMER: &str = "IRQ: the guest's timer";
const SGI: &str = "IRQ: SGI of another core";
const ALARM: &str = "IRQ: EL2's alarm";
const SENT_SGI: &str = "write of ICC_SGI1R_EL1";
/// Aims for the mean, in instructions; published values of other hypervisors are 188 to 7,726.
const AIM_STAYS: f64 = 250.0;
const AIM_SWITCHES: f64 = 1200.0;

/// Functions called by HVC (PSCI, DEN0022, section 5; TRNG firmware interface, DEN0098, section 2).
const CALLS: [(&str, &str); 8] = [
    (" 0x84000001", "PSCI CPU_SUSPEND"),
    (" 0xc4000001", "PSCI CPU_SUSPEND"),
    (" 0x84000002", "PSCI CPU_OFF"),
    (" 0xc4000003", "PSCI CPU_ON"),
    (" 0x84000008", "PSCI SYSTEM_OFF"),
    (" 0x8400000a", "PSCI_FEATURES"),
    (" 0x80000001", "SMCCC ARCH_FEATURES"),
    (" 0xc4000053", "TRNG_RND"),
];

/// Exits by cause and end, the most frequent first, over all seeds of one run.
pub fn table(results: &Results, label: &str) -> Table {
    let title = format!("Exits in run `{label}`, all seeds, the most frequent ones");
    let columns = [
        "cause",
        "the guest",
        "exits",
        "mean instructions",
        "most",
        "longest stretch without a check for interrupts",
    ];
    let mut table = Table::new(&title, &columns);
    for exits in exits(results, label).into_iter().take(KINDS) {
        table.rows.push(vec![
            exits.cause.clone(),
            exits.end.clone(),
            grouped(exits.count as f64),
            grouped(mean(&exits)),
            grouped(exits.most as f64),
            grouped(exits.longest_deaf as f64),
        ]);
    }
    table
}

/// The cost of an interrupt at EL2: delivered to a guest that runs, and to one that the core must switch to.
pub fn verdicts(results: &Results, label: &str) -> Vec<Verdict> {
    let exits = exits(results, label);
    [
        (OWN_TIMER, "stays", AIM_STAYS),
        (SGI, "stays", AIM_STAYS),
        (ALARM, "switches", AIM_SWITCHES),
    ]
    .into_iter()
    .map(|(cause, end, aim)| {
        let kind = exits.iter().find(|it| it.cause == cause && it.end == end);
        Verdict {
            aim: format!(
                "{cause}, the guest {end}: mean at most {} instructions",
                grouped(aim)
            ),
            measured: kind.map_or("no result".into(), |it| grouped(mean(it))),
            met: kind.map(|it| mean(it) <= aim),
        }
    })
    .collect()
}

/// What exits have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An interrupt; the core stays with its guest.
    Interrupt,
    /// The guest sends an SGI; the core stays with it.
    SentSgi,
    /// The core switches to another guest.
    Switch,
}

/// Mean instructions of the exits of one kind, over all seeds of a run; `None`: there is no such exit.
pub fn mean_of(results: &Results, label: &str, kind: Kind) -> Option<f64> {
    let all = exits(results, label);
    let of_kind = all.iter().filter(|it| match kind {
        Kind::Interrupt => it.cause.starts_with("IRQ") && it.end == "stays",
        Kind::SentSgi => it.cause == SENT_SGI && it.end == "stays",
        Kind::Switch => it.end == "switches",
    });
    let (count, instructions) = of_kind.fold((0, 0), |(count, sum), it| {
        (count + it.count, sum + it.instructions)
    });
    (count > 0).then(|| instructions as f64 / count as f64)
}

/// The longest stretch without a check for interrupts, in words.
pub fn stretch(exits: &Exits) -> String {
    let length = grouped(exits.longest_deaf as f64);
    match (&exits.deaf_from, &exits.deaf_to) {
        (Some(from), Some(to)) => format!("{length} instructions, from {from} to {to}"),
        _ => format!("{length} instructions"),
    }
}

fn mean(exits: &Exits) -> f64 {
    exits.instructions as f64 / exits.count.max(1) as f64
}

/// Exits of all seeds, with equal causes and ends added up, the most frequent first.
fn exits(results: &Results, label: &str) -> Vec<Exits> {
    let mut together: Vec<Exits> = Vec::new();
    for exits in results.of(label).iter().flat_map(|it| &it.clock.exits) {
        let cause = class(exits);
        match together
            .iter_mut()
            .find(|it| it.cause == cause && it.end == exits.end)
        {
            Some(it) => {
                it.count += exits.count;
                it.instructions += exits.instructions;
                it.most = it.most.max(exits.most);
                if exits.longest_deaf > it.longest_deaf {
                    it.longest_deaf = exits.longest_deaf;
                    it.deaf_from.clone_from(&exits.deaf_from);
                    it.deaf_to.clone_from(&exits.deaf_to);
                }
            }
            None => together.push(Exits {
                cause,
                ..exits.clone()
            }),
        }
    }
    together.sort_by(|a, b| {
        let key = |it: &Exits| (it.cause.clone(), it.end.clone());
        b.count.cmp(&a.count).then(key(a).cmp(&key(b)))
    });
    together
}

/// Accesses to single registers count as one cause, except for the register that sends interrupts.
fn class(exits: &Exits) -> String {
    let cause = exits.cause.as_str();
    if let Some((_, name)) = CALLS.iter().find(|(number, _)| cause.ends_with(number)) {
        return (*name).into();
    }
    // ICC_SGI1R_EL1 (GICv3, section 12.2): S3_0_C12_C11_5 in the clock's form.
    match cause {
        _ if cause.ends_with("C12_C11_5") || cause.contains("ICC_SGI1R") => SENT_SGI.into(),
        // GICv3, section 2.2.1.
        "IRQ" => match exits.intid.and_then(|it| u16::try_from(it).ok()).map(IntId) {
            Some(IntId(0..16)) => SGI.into(),
            Some(HYPERVISOR_TIMER) => ALARM.into(),
            Some(VIRTUAL_TIMER | PHYSICAL_TIMER) => OWN_TIMER.into(),
            Some(IntId(32..1020)) => "IRQ: a device".into(),
            _ => cause.into(),
        },
        _ if cause.starts_with("MRS ") => "read of a system register".into(),
        _ if cause.starts_with("MSR ") => "write of a system register".into(),
        _ => cause.into(),
    }
}

/// The longest stretch without a check for interrupts on a core that was not idle, and its
/// run.
pub fn longest<'a>(
    results: &Results,
    labels: impl Iterator<Item = &'a str>,
) -> Option<(Exits, &'a str)> {
    labels
        .flat_map(|label| exits(results, label).into_iter().map(move |it| (it, label)))
        .filter(|(it, _)| !NO_WORK.contains(&it.cause.as_str()) && it.end != UNFINISHED)
        // Of a core that starts when it is turned on, the clock may not know the cause.
        .filter(|(it, _)| !it.deaf_from.as_deref().unwrap_or_default().contains(START))
        .max_by_key(|(it, _)| it.longest_deaf)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::samples;

    fn exit(cause: &str, intid: Option<u32>, count: u64, instructions: u64, deaf: u64) -> Exits {
        Exits {
            cause: cause.into(),
            intid,
            end: "stays".into(),
            count,
            instructions,
            most: deaf,
            longest_deaf: deaf,
            deaf_from: Some(format!("`a` {deaf}")),
            deaf_to: Some("`b`".into()),
            deaf_blocks: Vec::new(),
            most_at_ns: 0,
            most_on_core: 0,
            steps: Vec::new(),
            rest: None,
        }
    }

    #[test]
    fn seeds_and_like_causes_come_together() {
        let mut results = Results::default();
        for (seed, deaf) in [(1, 900), (2, 700)] {
            let mut outcome = samples::outcome("a", seed, "");
            outcome.clock.exits = vec![
                exit("start of a core", None, 1, 5000, 5000),
                exit("MRS S3_0_C0_C4_0", None, 1, 100, 100),
                exit("MRS S3_0_C0_C5_0", None, 1, 300, 300),
                exit("IRQ", Some(27), 3, 1500, deaf),
            ];
            results.add(outcome);
        }
        let table = table(&results, "a");
        assert_eq!(
            table.rows[0],
            [OWN_TIMER, "stays", "6", "500", "900", "900"]
        );
        assert_eq!(
            table.rows[1],
            [
                "read of a system register",
                "stays",
                "4",
                "200",
                "300",
                "300"
            ]
        );
        let (longest, label) = longest(&results, ["b", "a"].into_iter()).unwrap();
        assert_eq!(
            (longest.cause.as_str(), longest.longest_deaf, label),
            (OWN_TIMER, 900, "a")
        );
        assert_eq!(stretch(&longest), "900 instructions, from `a` 900 to `b`");
        let met: Vec<_> = verdicts(&results, "a").iter().map(|it| it.met).collect();
        assert_eq!(met, [Some(false), None, None]);
    }

    #[test]
    fn exits_of_one_kind_have_a_mean() {
        let mut results = Results::default();
        let mut outcome = samples::outcome("a", 1, "");
        let mut switch = exit("IRQ", Some(26), 2, 2000, 0);
        switch.end = "switches".into();
        outcome.clock.exits = vec![
            exit("IRQ", Some(27), 3, 600, 0),
            exit("IRQ", Some(3), 1, 600, 0),
            switch,
        ];
        results.add(outcome);
        let of = |kind| mean_of(&results, "a", kind);
        assert_eq!(of(Kind::Interrupt), Some(300.0));
        assert_eq!(of(Kind::Switch), Some(1000.0));
        assert_eq!(of(Kind::SentSgi), None);
    }

    #[test]
    fn causes_have_classes() {
        let of = |cause, intid| class(&exit(cause, intid, 1, 1, 1));
        assert_eq!(of("MRS S3_0_C0_C4_0", None), "read of a system register");
        assert_eq!(of("MSR S3_0_C12_C11_5", None), "write of ICC_SGI1R_EL1");
        assert_eq!(of("IRQ", None), "IRQ");
        assert_eq!(of("IRQ", Some(3)), SGI);
        assert_eq!(of("IRQ", Some(26)), ALARM);
        assert_eq!(of("IRQ", Some(48)), "IRQ: a device");
        assert_eq!(of("HVC 0x84000008", None), "PSCI SYSTEM_OFF");
        assert_eq!(of("HVC 0x86000001", None), "HVC 0x86000001");
    }
}
