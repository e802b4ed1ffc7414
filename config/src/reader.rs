// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads TOML tables key by key and collects every fault; a `serde` derive would stop at
//! the first. A value that cannot be used is reported with its place and left out.

use crate::problem::{Problem, Span, Spanned};
use crate::sink::Sink;
use crate::units;
use std::ops::RangeInclusive;
use toml::Spanned as Spanning;
use toml::de::{DeArray, DeTable, DeValue};

/// Parses a whole file. After a syntax error nothing else is read: what a recovering parser returns would cause misleading
/// reports.
pub(crate) fn parse_document<'i>(text: &'i str, sink: &Sink) -> Option<(DeTable<'i>, Span)> {
    let (table, errors) = DeTable::parse_recoverable(text);
    // The keys of a table that is written twice are no problems of their own.
    let mut reported_up_to = 0;
    for error in &errors {
        let span = error.span().map_or(Span::default(), Span::from);
        if error.message().trim() == DUPLICATE {
            if span.start >= reported_up_to {
                reported_up_to = duplicate(text, span, sink);
            }
            continue;
        }
        sink.report(
            Problem::new(
                "syntax",
                format!("this is not TOML: {}", error.message().trim()),
            )
            .at_in(sink.source(), span, "here"),
        );
    }
    errors
        .is_empty()
        .then(|| (table.into_inner(), Span::default()))
}

/// The parser's message for a key or a table that is written twice.
const DUPLICATE: &str = "duplicate key";
/// Most elements of an array that are read: several times what a system can have of anything. Checks go through pairs of them.
const MAX_ELEMENTS: usize = 512;
/// The lists of tables.
const LISTS: [&str; 3] = ["guest", "link", "device"];

/// Reports a key or a table that is written again at `span`. Returns where that one ends.
fn duplicate(text: &str, span: Span, sink: &Sink) -> usize {
    let key = text.get(span.start..span.end).unwrap_or_default();
    let line = text[..span.start].rfind('\n').map_or(0, |at| at + 1);
    let is_table = text[line..].trim_start().starts_with('[');
    let (what, help) = match is_table {
        true if LISTS.contains(&key) => (
            format!("[{key}]"),
            format!("there may be several, each written [[{key}]]"),
        ),
        true => (
            format!("[{key}]"),
            format!("keep one [{key}], with all its keys"),
        ),
        false => (format!("`{key}`"), "leave out one of the two".into()),
    };
    let mut problem = Problem::new(
        "syntax",
        format!("this is not TOML: {what} is written twice"),
    )
    .at_in(sink.source(), span, "here again")
    .help(help);
    let header = format!("[{key}]");
    let starts_line = |at: &usize| *at == 0 || text[..*at].ends_with('\n');
    let mut before = text[..line].match_indices(&header).map(|(at, _)| at);
    // A key may be written again in every line; that of a table is reported once.
    let first = is_table.then(|| before.find(starts_line)).flatten();
    if let Some(first) = first {
        let first = Span::from(first + 1..first + 1 + key.len());
        problem = problem.at_in(sink.source(), first, "written here");
    }
    sink.report(problem);
    match is_table {
        true => text[span.end..]
            .find("\n[")
            .map_or(text.len(), |at| span.end + at),
        false => span.end,
    }
}

/// Why a value cannot be used.
pub(crate) struct Mismatch {
    /// What is wrong with it; the text follows the key's name: "must be …".
    wanted: String,
    help: Option<String>,
}

impl Mismatch {
    pub(crate) fn new(wanted: impl Into<String>) -> Self {
        Self {
            wanted: wanted.into(),
            help: None,
        }
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    pub(crate) fn of_type(wanted: &str, found: &DeValue<'_>) -> Self {
        let found = match found.type_str() {
            found @ ("integer" | "array") => format!("an {found}"),
            found => format!("a {found}"),
        };
        Self::new(format!("must be {wanted}, not {found}"))
    }
}

/// A table. A key that is asked for counts as known; [`Table::finish`] reports the others.
pub(crate) struct Table<'t, 'i, 's> {
    entries: &'t DeTable<'i>,
    /// Its span.
    pub(crate) span: Span,
    /// Its name for the user: `[board]`, `guest "rt"`.
    place: String,
    known: Vec<&'static str>,
    sink: &'s Sink,
}

impl<'t, 'i, 's> Table<'t, 'i, 's> {
    pub(crate) fn new(
        entries: &'t DeTable<'i>,
        span: Span,
        place: impl Into<String>,
        sink: &'s Sink,
    ) -> Self {
        Self {
            entries,
            span,
            place: place.into(),
            known: Vec::new(),
            sink,
        }
    }

    /// Names the table when its name is known.
    pub(crate) fn rename(&mut self, place: impl Into<String>) {
        self.place = place.into();
    }

    fn entry(&mut self, key: &'static str) -> Option<(&'t DeValue<'i>, Span)> {
        self.known.push(key);
        let value = self.entries.get(key)?;
        Some((value.get_ref(), value.span().into()))
    }

    /// Whether `key` is written.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    /// Whether `key` is written and is a list.
    pub(crate) fn is_array(&self, key: &str) -> bool {
        self.entries
            .get(key)
            .is_some_and(|value| value.get_ref().is_array())
    }

    /// Whether `key` is written and is a string.
    pub(crate) fn is_string(&self, key: &str) -> bool {
        self.entries
            .get(key)
            .is_some_and(|value| value.get_ref().is_str())
    }

    /// The value of `key`; `None` if it is absent, or cannot be used and was reported.
    pub(crate) fn optional<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&DeValue<'i>) -> Result<T, Mismatch>,
    ) -> Option<Spanned<T>> {
        let (value, span) = self.entry(key)?;
        match read(value) {
            Ok(value) => Some(Spanned::new(value, span)),
            Err(mismatch) => {
                self.mismatch(&format!("`{key}`"), span, mismatch);
                None
            }
        }
    }

    /// As [`Table::optional`], but a missing key is reported too, with an example of what to write.
    pub(crate) fn required<T>(
        &mut self,
        key: &'static str,
        example: &str,
        read: impl FnOnce(&DeValue<'i>) -> Result<T, Mismatch>,
    ) -> Option<Spanned<T>> {
        if !self.entries.contains_key(key) {
            self.known.push(key);
            self.missing(key, example);
            return None;
        }
        self.optional(key, read)
    }

    /// Reports that `key` is missing.
    pub(crate) fn missing(&self, key: &str, example: &str) {
        self.sink.report(
            Problem::new("missing-key", format!("{} has no `{key}`", self.place))
                .at_in(
                    self.sink.source(),
                    self.span,
                    format!("`{key}` is missing here"),
                )
                .help(format!("add `{key} = {example}`")),
        );
    }

    /// A list, read element by element; `None` if the key is absent or not a list.
    /// Unusable elements are reported and left out.
    pub(crate) fn list<T>(
        &mut self,
        key: &'static str,
        wanted: &str,
        mut read: impl FnMut(&DeValue<'i>) -> Result<T, Mismatch>,
    ) -> Option<Spanned<Vec<Spanned<T>>>> {
        let (value, span) = self.entry(key)?;
        let Some(array) = value.as_array() else {
            self.mismatch(&format!("`{key}`"), span, Mismatch::of_type(wanted, value));
            return None;
        };
        let mut list = Vec::new();
        for element in self.bounded(array, key) {
            let span = element.span().into();
            match read(element.get_ref()) {
                Ok(value) => list.push(Spanned::new(value, span)),
                Err(mismatch) => {
                    self.mismatch(&format!("an element of `{key}`"), span, mismatch);
                }
            }
        }
        Some(Spanned::new(list, span))
    }

    /// A table inside this one, named `place` for the user. `wanted` says what it should be.
    pub(crate) fn table(
        &mut self,
        key: &'static str,
        place: &str,
        wanted: &str,
    ) -> Option<Table<'t, 'i, 's>> {
        let (value, span) = self.entry(key)?;
        match value.as_table() {
            Some(entries) => Some(Table::new(entries, span, place, self.sink)),
            None => {
                self.mismatch(&format!("`{key}`"), span, Mismatch::of_type(wanted, value));
                None
            }
        }
    }

    /// The tables of an array, `[[key]]`. Empty if the key is absent or cannot be used.
    pub(crate) fn tables(&mut self, key: &'static str) -> Vec<Table<'t, 'i, 's>> {
        let Some((value, span)) = self.entry(key) else {
            return Vec::new();
        };
        let wanted = format!("tables, each written [[{key}]]");
        let Some(array) = value.as_array() else {
            self.mismatch(&format!("`{key}`"), span, Mismatch::of_type(&wanted, value));
            return Vec::new();
        };
        let mut tables = Vec::new();
        for element in self.bounded(array, key) {
            let span = element.span().into();
            match element.get_ref().as_table() {
                Some(entries) => {
                    let place = format!("[[{key}]] {}", tables.len() + 1);
                    tables.push(Table::new(entries, span, place, self.sink));
                }
                None => self.mismatch(
                    &format!("an element of `{key}`"),
                    span,
                    Mismatch::of_type(&wanted, element.get_ref()),
                ),
            }
        }
        tables
    }

    /// The first elements of an array; reports that there are far too many.
    fn bounded<'a>(
        &self,
        array: &'a DeArray<'i>,
        key: &str,
    ) -> impl Iterator<Item = &'a Spanning<DeValue<'i>>> + use<'a, 'i> {
        if let Some(beyond) = array.get(MAX_ELEMENTS) {
            let message = format!(
                "{}: `{key}` has more than {MAX_ELEMENTS} elements",
                self.place
            );
            let label = "this one and those after it are not read";
            self.sink.report(
                Problem::new("too-many-elements", message)
                    .at_in(self.sink.source(), beyond.span().into(), label)
                    .help("no system has so many: is this the right file?"),
            );
        }
        array.iter().take(MAX_ELEMENTS)
    }

    /// Reports the keys that were not asked for.
    pub(crate) fn finish(self) {
        self.finish_with(&[]);
    }

    /// As [`Table::finish`]. A key that the file has elsewhere is reported with the tables that have it; `tables` are those of
    /// the file with their keys.
    pub(crate) fn finish_with(self, tables: &[(&str, &[&str])]) {
        for (key, _) in self.entries.iter() {
            let name: &str = key.get_ref();
            if self.known.contains(&name) {
                continue;
            }
            if self.sink.is_full() {
                break;
            }
            let mut known: Vec<&str> = self.known.clone();
            known.sort_unstable();
            known.dedup();
            let elsewhere: Vec<_> = tables
                .iter()
                .filter(|(_, keys)| keys.contains(&name))
                .map(|(table, _)| *table)
                .collect();
            let help = match did_you_mean(name, known.iter().copied()) {
                _ if !elsewhere.is_empty() => {
                    format!("`{name}` is a key of {}", elsewhere.join(" and "))
                }
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("known here: {}", known.join(", ")),
            };
            self.sink.report(
                Problem::new("unknown-key", format!("{} has no key `{name}`", self.place))
                    .at_in(self.sink.source(), key.span().into(), "unknown key")
                    .help(help),
            );
        }
    }

    fn mismatch(&self, what: &str, span: Span, mismatch: Mismatch) {
        let message = format!("{}: {what} {}", self.place, mismatch.wanted);
        let mut problem =
            Problem::new("bad-value", message).at_in(self.sink.source(), span, "this value");
        problem.help = mismatch.help;
        self.sink.report(problem);
    }
}

/// Longest key or name in bytes that may be a misspelling.
const MAX_WORD: usize = 64;

/// The candidate of which `name` is most likely a misspelling, if there is one.
pub(crate) fn did_you_mean<'c>(
    name: &str,
    candidates: impl IntoIterator<Item = &'c str>,
) -> Option<&'c str> {
    // The time grows with the product of both lengths.
    let is_short = |word: &str| word.len() <= MAX_WORD;
    candidates
        .into_iter()
        .filter(|candidate| is_short(name) && is_short(candidate))
        .map(|candidate| (strsim::damerau_levenshtein(name, candidate), candidate))
        // At most one wrong letter in three; otherwise it is another word.
        .filter(|(distance, candidate)| *distance <= candidate.len().max(3) / 3)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Reads a string.
pub(crate) fn string(value: &DeValue<'_>) -> Result<String, Mismatch> {
    value
        .as_str()
        .map(str::to_owned)
        .ok_or_else(|| Mismatch::of_type("a string", value))
}

/// Reads `true` or `false`.
pub(crate) fn boolean(value: &DeValue<'_>) -> Result<bool, Mismatch> {
    value.as_bool().ok_or_else(|| {
        let mismatch = Mismatch::of_type("true or false", value);
        match value.is_str() {
            true => mismatch.help("write `true` or `false`, without quotes"),
            false => mismatch,
        }
    })
}

/// Reads a whole number from 0 to 2^64 - 1.
pub(crate) fn number(value: &DeValue<'_>) -> Result<u64, Mismatch> {
    let wanted = "a whole number, 0 or more";
    let Some(integer) = value.as_integer() else {
        return Err(Mismatch::of_type(wanted, value));
    };
    u64::from_str_radix(integer.as_str(), integer.radix())
        .map_err(|_| Mismatch::new(format!("must be {wanted}, and below 2^64")))
}

/// Reads an address: a number.
pub(crate) fn address(value: &DeValue<'_>) -> Result<u64, Mismatch> {
    if value.is_integer() {
        return number(value);
    }
    Err(Mismatch::of_type(
        "an address such as 0x4000_0000 (without quotes)",
        value,
    ))
}

/// Reads a whole number within `range`.
pub(crate) fn number_in(value: &DeValue<'_>, range: RangeInclusive<u64>) -> Result<u64, Mismatch> {
    let number = number(value)?;
    if range.contains(&number) {
        return Ok(number);
    }
    let (low, high) = (range.start(), range.end());
    Err(Mismatch::new(format!(
        "must be from {low} to {high}, not {number}"
    )))
}

/// Reads an address that is a multiple of `alignment` (a power of two).
pub(crate) fn aligned_address(value: &DeValue<'_>, alignment: u64) -> Result<u64, Mismatch> {
    let address = address(value)?;
    if address.is_multiple_of(alignment) {
        return Ok(address);
    }
    Err(
        Mismatch::new(format!("must be a multiple of {}", units::size(alignment))).help(format!(
            "write for example {:#x}",
            units::align_down(address, alignment)
        )),
    )
}

/// Reads a size that is a multiple of `alignment` (a power of two), and not 0.
pub(crate) fn aligned_size(value: &DeValue<'_>, alignment: u64) -> Result<u64, Mismatch> {
    let size = size(value)?;
    if size != 0 && size.is_multiple_of(alignment) {
        return Ok(size);
    }
    Err(Mismatch::new(format!(
        "must be a multiple of {}, and not 0",
        units::size(alignment)
    )))
}

/// Reads a whole number that may be negative.
pub(crate) fn integer(value: &DeValue<'_>) -> Result<i64, Mismatch> {
    let wanted = "a whole number";
    let Some(integer) = value.as_integer() else {
        return Err(Mismatch::of_type(wanted, value));
    };
    i64::from_str_radix(integer.as_str(), integer.radix())
        .map_err(|_| Mismatch::new(format!("must be {wanted} from -2^63 to 2^63 - 1")))
}

/// Reads a size: `"16MiB"`, or a number of bytes.
pub(crate) fn size(value: &DeValue<'_>) -> Result<u64, Mismatch> {
    let wanted = "a size such as \"16MiB\"";
    match value.as_str() {
        Some(text) => units::parse_size(text)
            .map_err(|cure| Mismatch::new(format!("must be {wanted}")).help(cure)),
        None if value.is_integer() => number(value),
        None => Err(Mismatch::of_type(wanted, value)),
    }
}

/// Reads a duration such as `"2ms"` into microseconds. `example` is a duration that the key accepts; the message about a bad value shows it.
pub(crate) fn duration_us(value: &DeValue<'_>, example: &str) -> Result<u64, Mismatch> {
    let wanted = format!("a time such as \"{example}\"");
    match value.as_str() {
        Some(text) => units::parse_duration_us(text)
            .map_err(|cure| Mismatch::new(format!("must be {wanted}")).help(cure)),
        None => Err(Mismatch::of_type(&wanted, value)),
    }
}

/// Reads one of a few words.
pub(crate) fn choice<T: Copy>(
    value: &DeValue<'_>,
    choices: &[(&'static str, T)],
) -> Result<T, Mismatch> {
    let names: Vec<_> = choices
        .iter()
        .map(|(name, _)| format!("\"{name}\""))
        .collect();
    let wanted = match names.as_slice() {
        [only] => only.clone(),
        names => format!("one of {}", names.join(", ")),
    };
    let Some(text) = value.as_str() else {
        return Err(Mismatch::of_type(&wanted, value));
    };
    if let Some((_, choice)) = choices.iter().find(|(name, _)| *name == text) {
        return Ok(*choice);
    }
    let mismatch = Mismatch::new(format!("must be {wanted}, not \"{text}\""));
    Err(
        match did_you_mean(text, choices.iter().map(|(name, _)| *name)) {
            Some(near) => mismatch.help(format!("did you mean \"{near}\"?")),
            None => mismatch.help(format!("write {}", names.join(" or "))),
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::SourceFile;

    #[test]
    fn a_misspelling_is_recognised_and_another_word_is_not() {
        let keys = ["memory", "priority", "vcpus", "ipa"];
        assert_eq!(did_you_mean("memroy", keys), Some("memory"));
        assert_eq!(did_you_mean("vcpu", keys), Some("vcpus"));
        assert_eq!(did_you_mean("pa", keys), Some("ipa"));
        assert_eq!(did_you_mean("colour", keys), None);
        // To compare these would take minutes.
        let long = ["memory", "vcpus"].map(|word| word.repeat(20_000));
        assert_eq!(did_you_mean(&long[0], [long[1].as_str()]), None);
    }

    #[test]
    fn every_fault_of_a_table_is_reported() {
        let sink = Sink::new(SourceFile::Description);
        let (document, span) =
            parse_document("size = \"1MB\"\nnmae = \"x\"\non = 3\n", &sink).unwrap();
        let mut table = Table::new(&document, span, "the file", &sink);
        assert!(table.required("name", "\"x\"", string).is_none());
        assert!(table.optional("size", size).is_none());
        assert!(table.optional("on", boolean).is_none());
        table.finish();
        let codes: Vec<_> = sink.into_problems().iter().map(|p| p.code).collect();
        assert_eq!(
            codes,
            ["missing-key", "bad-value", "bad-value", "unknown-key"]
        );
    }
}
