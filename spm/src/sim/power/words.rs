// SPDX-License-Identifier: MIT OR Apache-2.0
//! The results as a table, and as JSON.

use super::super::micros;
use super::row::Row;
use super::{load_name, mode_name};
use crate::output::say;
use serde_json::{Value, json};
use spumone_sim::{TICKS_PER_US, Times};

/// Prints a line for each run.
pub(super) fn show(rows: &[Row]) {
    say!(
        "{:38} | through- | core-seconds in a second | changes  | ms, mean and longest, until {:12} | longest",
        "",
        ""
    );
    say!(
        "cores    rt  Linux   mode         seed |      put |      on    least reserve | a second | all work       one is on   a piece is done | wait, µs"
    );
    for row in rows {
        say!("{}", line(row));
    }
}

fn line(row: &Row) -> String {
    let run = &row.run;
    let throughput = row
        .throughput
        .map_or("-".to_owned(), |it| format!("{it:.3}"));
    let reserve = row.with_reserve.map_or("-".to_owned(), |it| it.to_string());
    format!(
        "{:5}  {:2} %  {:6}  {:11}  {:4} | {throughput:>8} | {:7.2}  {:7.2} {reserve:>7} | {:8.1} | {:12}  {:12}  {:12} | {:8.2}",
        run.cores,
        run.rt_percent,
        load_name(run.load),
        mode_name(run.mode),
        run.seed,
        row.on,
        row.least,
        row.changes_per_second,
        times(row.until_all_work),
        times(row.until_one_is_on),
        times(row.pieces),
        micros(row.outcome.longest_dispatch),
    )
}

/// Mean and longest, in milliseconds, and how often it did not happen in time.
fn times(times: Option<Times>) -> String {
    let Some(times) = times else {
        return "-".into();
    };
    let said = times.mean().map(|mean| {
        let longest = micros(times.longest) / 1000.0;
        format!("{:.1} {longest:.1}", mean / TICKS_PER_US as f64 / 1000.0)
    });
    match (said, times.missed) {
        (Some(said), 0) => said,
        (Some(said), missed) => format!("{said}, {missed} not"),
        (None, _) => "never".into(),
    }
}

/// The same as fields.
pub(super) fn json(row: &Row) -> Value {
    let run = &row.run;
    let times = |times: Option<Times>| {
        times.map(|it| {
            json!({
                "count": it.count,
                "not_in_time": it.missed,
                "mean_us": it.mean().map(|mean| mean / TICKS_PER_US as f64),
                "longest_us": micros(it.longest),
            })
        })
    };
    json!({
        "cores": run.cores,
        "guest_cores": run.guest_cores,
        "mode": mode_name(run.mode),
        "linux": load_name(run.load),
        "load_percent": run.rt_percent,
        "seed": run.seed,
        "virtual_seconds": row.seconds,
        "throughput_over_performance": row.throughput,
        "core_seconds": row.on * row.seconds,
        "cores_on": row.on,
        "cores_that_work": row.work,
        "least_cores": row.least,
        "least_cores_with_reserve": row.with_reserve,
        "changes_per_second": row.changes_per_second,
        "until_all_work": times(row.until_all_work),
        "until_one_is_on": times(row.until_one_is_on),
        "pieces": times(row.pieces),
        "longest_dispatch_instructions": row.outcome.longest_dispatch.0,
        "longest_wait_us": micros(row.outcome.longest_wait),
        "migrations": row.outcome.counters.migrations,
    })
}

#[cfg(test)]
mod tests {
    use super::super::row::tests::row;
    use super::*;
    use spumone_config::packed::PowerMode;
    use spumone_core::schedule::Ticks;
    use spumone_sim::loads::Load;

    #[test]
    fn times_say_how_often_it_was_too_late() {
        let ms = |ms: u64| Ticks(ms * 1000 * TICKS_PER_US);
        let mut all = Times::default();
        assert_eq!(times(None), "-");
        all.miss();
        assert_eq!(times(Some(all)), "never");
        all.add(ms(1));
        all.add(ms(2));
        assert_eq!(times(Some(all)), "1.5 2.0, 1 not");
    }

    #[test]
    fn a_row_has_the_same_numbers_in_both_forms() {
        let row = row(PowerMode::Balanced, Load::Idle);
        let line = line(&row);
        assert!(
            line.starts_with(
                "    8   0 %  idle    balanced        1 |        - |    2.00     2.00       2"
            ),
            "{line}"
        );
        let json = json(&row);
        assert_eq!(json["mode"], "balanced");
        assert_eq!(json["least_cores_with_reserve"], 2);
        assert_eq!(json["throughput_over_performance"], Value::Null);
        assert!((json["cores_on"].as_f64().unwrap() - 2.0).abs() < 0.01);
    }
}
