// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stored results. A run that has one with the same key is not repeated.

use crate::failure::Failure;
use crate::hash;
use crate::results::Outcome;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Raised when stored results can no longer be used, for example when other functions of a profile are stored.
const FORMAT: u32 = 1;
/// Hexadecimal digits of the key in a file name.
const KEY_DIGITS: usize = 12;

/// Everything on which a run's result depends.
#[derive(Serialize)]
pub struct Recipe<'a> {
    /// QEMU's version.
    pub qemu: &'a str,
    /// QEMU's arguments, with placeholders instead of paths.
    pub arguments: &'a [String],
    /// Settings of the clock.
    pub clock: crate::machine::ClockSettings,
    /// The mark at which it ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_mark: Option<u32>,
    /// Size of the blank disk.
    pub disk_mib: u32,
    /// SHA-256 of each file, the clock and its script among them.
    pub files: &'a BTreeMap<String, String>,
}

impl Recipe<'_> {
    /// The hash of everything.
    pub fn key(&self) -> String {
        // Only maps with keys other than strings fail, and there are none.
        let text = serde_json::to_string(self).unwrap_or_default();
        hash::bytes(format!("{FORMAT}\n{text}").as_bytes())
    }
}

/// The folder of an experiment's results. Results of other experiments with the same key are used as well.
pub struct Store {
    folder: PathBuf,
    others: Vec<PathBuf>,
}

impl Store {
    /// Results in `folder` and in `others`. The folders need not exist.
    pub fn new(folder: PathBuf, others: Vec<PathBuf>) -> Self {
        Self { folder, others }
    }

    /// Path of a run's result, without its extension: also for its log and its other files.
    pub fn path(&self, label: &str, seed: u32, key: &str) -> PathBuf {
        self.folder.join(file_name(label, seed, key))
    }

    /// The stored result of a run, if it exists and is complete.
    pub fn load(&self, label: &str, seed: u32, key: &str) -> Option<Outcome> {
        let folders = std::iter::once(&self.folder).chain(&self.others);
        folders
            .filter_map(|folder| {
                let path = folder.join(file_name(label, seed, key));
                let text = std::fs::read_to_string(path).ok()?;
                serde_json::from_str(&text).ok()
            })
            .find(|outcome: &Outcome| outcome.key == key)
    }

    /// Stores a result.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn save(&self, outcome: &Outcome) -> Result<(), Failure> {
        let path = self.path(&outcome.label, outcome.seed, &outcome.key);
        let text = serde_json::to_string_pretty(outcome)
            .map_err(|error| Failure::new(format!("a result cannot be encoded: {error}")))?;
        write(&path, text.as_bytes())
    }
}

fn file_name(label: &str, seed: u32, key: &str) -> String {
    let key = key.get(..KEY_DIGITS).unwrap_or(key);
    format!("{label}.s{seed}.{key}.json")
}

/// Writes a file in one step, so that it is never incomplete; makes its folder.
///
/// # Errors
///
/// The file cannot be written.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(|error| Failure::io("make", folder, &error))?;
    }
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}", std::process::id()));
    std::fs::write(&temporary, bytes)
        .and_then(|()| std::fs::rename(&temporary, path))
        .map_err(|error| Failure::io("write", path, &error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::ClockSettings;
    use crate::results::samples;

    fn key(seed: u32, file: &str) -> String {
        let files = [("Image".to_owned(), file.to_owned())].into();
        let recipe = Recipe {
            qemu: "10.0.2",
            arguments: &["-M".into()],
            clock: ClockSettings {
                quantum: 500,
                ipus: 250,
                seed,
                end_us: None,
                trails: None,
            },
            end_mark: None,
            disk_mib: 0,
            files: &files,
        };
        recipe.key()
    }

    #[test]
    fn the_key_changes_with_every_input() {
        assert_eq!(key(1, "a"), key(1, "a"));
        assert_ne!(key(1, "a"), key(2, "a"));
        assert_ne!(key(1, "a"), key(1, "b"));
    }

    #[test]
    fn a_stored_result_is_found_by_its_key_only() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path().join("new"), Vec::new());
        let outcome = samples::linux("a", 3, &[1.5]);
        assert_eq!(store.load("a", 3, &outcome.key), None);
        store.save(&outcome).unwrap();
        assert_eq!(store.load("a", 3, &outcome.key), Some(outcome.clone()));
        assert_eq!(store.load("a", 3, &key(1, "a")), None);
        // Another experiment finds it, too.
        let other = Store::new(folder.path().join("other"), vec![folder.path().join("new")]);
        assert_eq!(other.load("a", 3, &outcome.key), Some(outcome.clone()));
        // An incomplete file does not count.
        let path = store.path("a", 3, &outcome.key);
        std::fs::write(path, "{ \"key\":").unwrap();
        assert_eq!(store.load("a", 3, &outcome.key), None);
    }
}
