// SPDX-License-Identifier: MIT OR Apache-2.0
//! The stored table, and what a change of the code has made of it.

use crate::problem::Problem;
use crate::rows::Row;
use std::collections::BTreeMap;
use std::path::Path;

/// How a longer stretch is accepted.
pub const ACCEPT: &str = "if that cannot be helped, accept it with `scripts/stretches --write`, and say why in the commit";

/// The rows as text: one a line, so that a change is one line of a diff.
pub fn text(rows: &[Row]) -> Result<String, serde_json::Error> {
    let lines: Result<Vec<_>, _> = rows
        .iter()
        .map(|row| Ok(format!("  {}", serde_json::to_string(row)?)))
        .collect();
    Ok(format!("[\n{}\n]\n", lines?.join(",\n")))
}

/// Reads stored rows.
pub fn read(path: &Path) -> Result<Vec<Row>, Problem> {
    let shown = path.display().to_string();
    let failed =
        |error: String| Problem::new(&shown, error, "make it with `scripts/stretches --write`");
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    serde_json::from_str(&text).map_err(|error| failed(error.to_string()))
}

/// What has changed: stretches that have become longer, and others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Stretches that are longer than what is stored, or not stored.
    pub longer: Vec<String>,
    /// Stretches that are shorter, or do not exist any more.
    pub shorter: Vec<String>,
}

impl Changes {
    /// From `stored` to `now`.
    pub fn between(stored: &[Row], now: &[Row]) -> Self {
        let before: BTreeMap<_, _> = stored
            .iter()
            .map(|it| (&it.from, it.instructions))
            .collect();
        let mut changes = Self::default();
        for row in now {
            match before.get(&row.from) {
                None => changes.longer.push(format!(
                    "{}: new, {} instructions to {}",
                    row.from, row.instructions, row.to
                )),
                Some(&was) if row.instructions > was => {
                    changes.longer.push(format!(
                        "{}: {was} → {} instructions to {}",
                        row.from, row.instructions, row.to
                    ));
                }
                Some(&was) if row.instructions < was => {
                    changes.shorter.push(format!(
                        "{}: {was} → {} instructions",
                        row.from, row.instructions
                    ));
                }
                Some(_) => {}
            }
        }
        for row in stored {
            if !now.iter().any(|it| it.from == row.from) {
                changes.shorter.push(format!("{}: gone", row.from));
            }
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(from: &str, instructions: u64) -> Row {
        Row {
            from: from.into(),
            to: "look in b (b.rs)".into(),
            instructions,
        }
    }

    #[test]
    fn only_what_is_longer_or_new_is_an_error() {
        let stored = [row("a", 10), row("b", 20), row("c", 30), row("d", 40)];
        let now = [row("a", 10), row("b", 21), row("c", 29), row("e", 1)];
        let changes = Changes::between(&stored, &now);
        assert_eq!(
            changes.longer,
            [
                "b: 20 → 21 instructions to look in b (b.rs)",
                "e: new, 1 instructions to look in b (b.rs)"
            ]
        );
        assert_eq!(changes.shorter, ["c: 30 → 29 instructions", "d: gone"]);
    }

    #[test]
    fn rows_are_one_line_each_and_read_again() {
        let rows = [row("a", 10), row("b", 20)];
        let text = text(&rows).unwrap();
        assert_eq!(
            text,
            "[\n  {\"from\":\"a\",\"to\":\"look in b (b.rs)\",\"instructions\":10},\n  \
             {\"from\":\"b\",\"to\":\"look in b (b.rs)\",\"instructions\":20}\n]\n"
        );
        assert_eq!(serde_json::from_str::<Vec<Row>>(&text).unwrap(), rows);
    }
}
