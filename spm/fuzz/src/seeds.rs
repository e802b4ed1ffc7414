// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a fuzzer begins with: the undamaged file of its reader, for texts also the descriptions and boards of the tests, and a dictionary.

use crate::damage::VALUES;
use crate::readers::Reader;
use spm::fuzz::MAX_TEXT;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The root of the sources.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Folders with files of a text's kind.
fn folders(reader: &str) -> &'static [&'static str] {
    match reader {
        "description" => &["systems", "spm/tests/refusals"],
        "board" => &["boards", "spm/tests/refusals/boards"],
        _ => &[],
    }
}

/// Where all keys and values of texts are described, in backquotes.
const PAGES: [&str; 2] = ["docs/system-description.md", "docs/porting.md"];

/// Writes `corpus/` and `dictionary` into a folder.
///
/// # Panics
///
/// If the reader refuses its undamaged file: the fuzzer would not come far. Or if a file cannot be written.
pub fn write(reader: &Reader, folder: &Path) {
    let corpus = folder.join("corpus");
    fs::create_dir_all(&corpus).unwrap();
    let mut texts = vec![];
    for (number, good) in (reader.good)().into_iter().enumerate() {
        let name = reader.name;
        assert!(
            (reader.read)(&good),
            "the reader {name} refuses its undamaged file"
        );
        fs::write(corpus.join(format!("undamaged-{number}")), &good).unwrap();
        texts.extend(String::from_utf8(good).ok().filter(|_| reader.is_text));
    }
    for of_kind in folders(reader.name) {
        for entry in fs::read_dir(Path::new(ROOT).join(of_kind)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|it| it == "toml") {
                let text = fs::read_to_string(&path).unwrap();
                fs::write(corpus.join(path.file_name().unwrap()), &text).unwrap();
                texts.push(text);
            }
        }
    }
    let mut words = BTreeSet::new();
    if reader.is_text {
        words.extend(VALUES.iter().map(|&it| it.to_owned()));
        for text in &texts {
            words.extend(words_of(text));
        }
        for page in PAGES {
            let page = fs::read_to_string(Path::new(ROOT).join(page)).unwrap();
            words.extend(page.split('`').skip(1).step_by(2).flat_map(words_of));
        }
    }
    let lines: String = words.iter().map(|word| line(word)).collect();
    // libFuzzer refuses an empty one.
    fs::write(folder.join("dictionary"), format!("# Words\n{lines}")).unwrap();
}

/// Texts that have very much of one thing: of each line of a text, and of each element of an array. Random changes make none of them.
pub fn repeated(text: &str) -> Vec<String> {
    let mut texts = vec![];
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let (start, end) = (at, at + line.len());
        at = end;
        texts.push(filled(text, end, line));
        // The first element of an array in the line, and its comma.
        let array = line.find("= [").map(|it| start + it + 3);
        let element = array.and_then(|array| {
            let length = text[array..end].find([',', ']'])?;
            Some((array, format!("{},", &text[array..array + length])))
        });
        texts.extend(element.map(|(array, element)| filled(text, array, &element)));
    }
    texts
}

/// A text with so many copies of `part` at a place that it has the length of the longest that is read.
fn filled(text: &str, at: usize, part: &str) -> String {
    let copies = (MAX_TEXT as usize - text.len()) / part.len();
    [&text[..at], &part.repeat(copies), &text[at..]].concat()
}

/// Keys, values and headers of tables.
fn words_of(text: &str) -> impl Iterator<Item = String> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let parts = lines.flat_map(|line| {
        let whole = line.starts_with('[').then_some(line);
        let parts = line.split(['=', ',', '[', ']', '{', '}', ' ']);
        parts.chain(whole)
    });
    let words = parts.map(|it| it.trim().to_owned());
    words.filter(|it| (2..=40).contains(&it.len()))
}

/// A line of a dictionary, in libFuzzer's form.
fn line(word: &str) -> String {
    let escaped = word.bytes().map(|byte| match byte {
        b'"' | b'\\' => format!("\\{}", byte as char),
        b' '..=b'~' => (byte as char).to_string(),
        _ => format!("\\x{byte:02x}"),
    });
    format!("\"{}\"\n", escaped.collect::<String>())
}
