// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many instructions Linux itself executes for the same work with more CPUs, under the hypervisor and on the bare machine.

use super::{Case, Pair, bare_label};
use crate::clock::Profiled;
use crate::experiments::Table;
use crate::stats::Spread;

/// The instructions of Linux and of its programs.
fn of_linux(profiled: &Profiled) -> f64 {
    (profiled.el0 + profiled.el1) as f64
}

impl Case<'_> {
    fn instructions(&self, label: &str, of: impl Fn(&Profiled) -> f64) -> Option<Spread> {
        let profiled = self.results.of(label).iter().map(|it| &it.clock.profiled);
        let counted = profiled.filter(|it| of_linux(it) > 0.0);
        Spread::of(counted.map(of))
    }

    /// For pairs with more vCPUs than cores: what Linux executes for the same work, and what it executes on as many bare cores as it has vCPUs.
    pub(super) fn work(&self, policy: &str) -> Table {
        let mut table = Table::new(
            &format!(
                "Instructions for the work of `{}` with more vCPUs than cores, over those on as many bare cores as there are cores, policy `{policy}`: median of \
                 the seeds, and their range",
                self.yardstick.name
            ),
            &[
                "vCPUs",
                "time over the ideal",
                "Linux here",
                "Linux on as many bare cores as vCPUs",
                "at EL2, % of all here",
            ],
        );
        let pairs = Pair::all(self.plan).into_iter();
        for pair in pairs.filter(|it| it.vcpus > it.cores) {
            let label = pair.label(self.yardstick, policy);
            let bare = |cores| self.instructions(&bare_label(self.yardstick, cores), of_linux);
            let Some(base) = bare(pair.cores).map(|it| it.median) else {
                continue;
            };
            let over = |it: Option<Spread>| it.map_or("-".into(), |it| it.over(base).show(3));
            let at_el2 = self.instructions(&label, |it| {
                let el2 = it.el2 as f64;
                100.0 * el2 / (of_linux(it) + el2)
            });
            let time = self.over_ideal(policy, pair);
            table.rows.push(vec![
                format!("{} on {}", pair.vcpus, pair.cores),
                time.map_or("-".into(), |it| it.show(3)),
                over(self.instructions(&label, of_linux)),
                over(bare(pair.vcpus)),
                at_el2.map_or("-".into(), |it| it.show(1)),
            ]);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::plan;
    use super::*;
    use crate::experiments::yardstick;
    use crate::results::{Results, samples};

    #[test]
    fn what_linux_executes_is_compared_with_both_bare_machines() {
        let yardstick = yardstick::find("hackbench").unwrap();
        let plan = plan();
        let pair = Pair { vcpus: 8, cores: 4 };
        let mut results = Results::default();
        let mut add = |label: &str, el1, el2| {
            let mut outcome = samples::linux(label, 1, &[1.0]);
            outcome.clock.profiled = Profiled {
                el0: 500,
                el1,
                el2,
                ..Profiled::default()
            };
            results.add(outcome);
        };
        add(&bare_label(yardstick, 4), 500, 0);
        add(&bare_label(yardstick, 8), 560, 0);
        add(&pair.label(yardstick, "steal"), 600, 11);
        let case = Case {
            yardstick,
            plan: &plan,
            results: &results,
        };
        let table = case.work("steal");
        let row = table.rows.last().unwrap();
        assert_eq!(row[..], ["8 on 4", "1.000", "1.100", "1.060", "1.0"]);
    }
}
