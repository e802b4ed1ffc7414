//! Visits to EL2 by cause: how often, how many instructions. Interrupts are masked during all of a visit, so the
//! longest one bounds what the hypervisor adds to a latency.

use super::Table;
use crate::clock::Visits;
use crate::results::Results;
use crate::stats::grouped;

/// Causes of visits to EL2 shown.
const CAUSES: usize = 12;
/// Causes that are no work for a guest: a core's start, a guest's end, and a core with nothing to do.
const NO_WORK: [&str; 5] = [
    "start of a core",
    "WFI or WFE",
    "wake from waiting at EL2",
    "PSCI CPU_OFF",
    "PSCI SYSTEM_OFF",
];

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

/// Visits to EL2 by cause, the longest first, over all seeds of one run.
pub fn table(results: &Results, label: &str) -> Table {
    let title = format!("Visits to EL2 in run `{label}`, all seeds, by the longest");
    let columns = ["cause", "visits", "mean instructions", "most instructions"];
    let mut table = Table::new(&title, &columns);
    for visits in visits(results, label).into_iter().take(CAUSES) {
        table.rows.push(vec![
            visits.cause.clone(),
            grouped(visits.visits as f64),
            grouped(visits.instructions as f64 / visits.visits.max(1) as f64),
            grouped(visits.most as f64),
        ]);
    }
    table
}

/// Visits of all seeds, with like causes together, the longest first.
fn visits(results: &Results, label: &str) -> Vec<Visits> {
    let mut together: Vec<Visits> = Vec::new();
    for visits in results.of(label).iter().flat_map(|it| &it.clock.visits) {
        let cause = class(&visits.cause);
        match together.iter_mut().find(|it| it.cause == cause) {
            Some(it) => {
                it.visits += visits.visits;
                it.instructions += visits.instructions;
                it.most = it.most.max(visits.most);
            }
            None => together.push(Visits {
                cause,
                ..visits.clone()
            }),
        }
    }
    together.sort_by(|a, b| b.most.cmp(&a.most).then(a.cause.cmp(&b.cause)));
    together
}

/// Accesses to single registers count as one cause, but for the register that sends interrupts.
fn class(cause: &str) -> String {
    if let Some((_, name)) = CALLS.iter().find(|(number, _)| cause.ends_with(number)) {
        return (*name).into();
    }
    // ICC_SGI1R_EL1 (GICv3, section 12.2): S3_0_C12_C11_5, as the clock writes it.
    match cause {
        _ if cause.ends_with("C12_C11_5") || cause.contains("ICC_SGI1R") => {
            "write of ICC_SGI1R_EL1".into()
        }
        _ if cause.starts_with("MRS ") => "read of a system register".into(),
        _ if cause.starts_with("MSR ") => "write of a system register".into(),
        _ => cause.into(),
    }
}

/// The longest visit that does something for a guest, and the run it was in.
pub fn longest<'a>(
    results: &Results,
    labels: impl Iterator<Item = &'a str>,
) -> Option<(Visits, &'a str)> {
    labels
        .flat_map(|label| {
            visits(results, label)
                .into_iter()
                .map(move |it| (it, label))
        })
        .filter(|(it, _)| !NO_WORK.contains(&it.cause.as_str()))
        .max_by_key(|(it, _)| it.most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::samples;

    fn visit(cause: &str, visits: u64, instructions: u64, most: u64) -> Visits {
        Visits {
            cause: cause.into(),
            visits,
            instructions,
            most,
            most_at_ns: 0,
            most_on_core: 0,
        }
    }

    #[test]
    fn seeds_and_like_causes_come_together() {
        let mut results = Results::default();
        for (seed, most) in [(1, 900), (2, 700)] {
            let mut outcome = samples::outcome("a", seed, "");
            outcome.clock.visits = vec![
                visit("start of a core", 1, 5000, 5000),
                visit("MRS S3_0_C0_C4_0", 1, 100, 100),
                visit("MRS S3_0_C0_C5_0", 1, 300, 300),
                visit("IRQ", 2, 1000, most),
            ];
            results.add(outcome);
        }
        let table = table(&results, "a");
        assert_eq!(table.rows[1], ["IRQ", "4", "500", "900"]);
        assert_eq!(
            table.rows[2],
            ["read of a system register", "4", "200", "300"]
        );
        let (longest, label) = longest(&results, ["b", "a"].into_iter()).unwrap();
        assert_eq!(
            (longest.cause.as_str(), longest.most, label),
            ("IRQ", 900, "a")
        );
    }

    #[test]
    fn registers_count_as_one_cause() {
        assert_eq!(class("MRS S3_0_C0_C4_0"), "read of a system register");
        assert_eq!(class("MSR S3_0_C12_C11_5"), "write of ICC_SGI1R_EL1");
        assert_eq!(class("IRQ"), "IRQ");
    }

    #[test]
    fn calls_have_names() {
        assert_eq!(class("HVC 0x84000008"), "PSCI SYSTEM_OFF");
        assert_eq!(class("HVC 0x86000001"), "HVC 0x86000001");
    }
}
