// SPDX-License-Identifier: MIT OR Apache-2.0
//! No source files of a crate import each other, neither two of them nor more in a circle.
//!
//! What counts as an import of file B by file A: a path in A that starts with `crate`, `super`, `self` or a module that A
//! declares, and whose item B defines. What does not count:
//!
//! - a re-export (`pub use`) of an item of a module that the file declares: that is what a `mod.rs` is for, and a name
//!   that is only re-exported belongs to the file that defines it;
//! - a file and a module that it declares. The parent has the private items that its children share, and it is the way to
//!   them from outside, so parent and children name each other;
//! - code under `#[cfg(test)]`: tests may use everything in the module that they test.
//!
//! The sources are read as text, without their comments and strings: enough for paths, without a parser of Rust.

mod source;

use crate::files;
use source::{Source, read};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The crates that must have no circles, as folders.
const CRATES: &[&str] = &[
    "bench",
    "config",
    "core",
    "hypervisor",
    "sim",
    "spm",
    "tests",
    "tests/guests",
];

/// A module, as a path from the root of its crate.
type Module = Vec<String>;

/// The files of one crate, by module.
struct Crate(BTreeMap<Module, Source>);

impl Crate {
    fn new(files: impl IntoIterator<Item = (Module, String)>) -> Self {
        let mut sources: BTreeMap<_, _> = files
            .into_iter()
            .map(|(module, text)| {
                let source = read(&module, &text);
                (module, source)
            })
            .collect();
        let tests: Vec<Module> = sources
            .iter()
            .flat_map(|(module, source)| {
                let children = source.test_children.iter();
                children.map(|child| [module.as_slice(), std::slice::from_ref(child)].concat())
            })
            .collect();
        sources.retain(|module, _| !tests.iter().any(|test| module.starts_with(test)));
        Self(sources)
    }

    /// The file that defines `path`: the longest module in it, or the module from which that one re-exports the name.
    fn definer(&self, path: &[String]) -> Option<&Module> {
        let mut path = path.to_vec();
        // A few re-exports of a name at most.
        for _ in 0..8 {
            let length = (0..=path.len())
                .rev()
                .find(|&length| self.0.contains_key(&path[..length]))?;
            let (module, source) = self.0.get_key_value(&path[..length])?;
            let passed_on = path.get(length).and_then(|name| {
                let mut uses = source.imports.iter().filter(|import| import.is_use);
                uses.find(|import| import.path.last() == Some(name) && self.is_inside(&import.path))
            });
            match passed_on {
                Some(import) if !import.path.starts_with(&path[..=length]) => {
                    path.splice(..=length, import.path.iter().cloned());
                }
                _ => return Some(module),
            }
        }
        None
    }

    /// Whether the path begins with a module of this crate or an item of its root.
    fn is_inside(&self, path: &[String]) -> bool {
        (1..=path.len()).any(|length| self.0.contains_key(&path[..length]))
    }

    /// The files that each file imports, each with one of the imported names.
    fn imports(&self) -> BTreeMap<(&Module, &Module), String> {
        let mut edges = BTreeMap::new();
        for (module, source) in &self.0 {
            for import in &source.imports {
                let passes_on = import.is_public
                    && import.path.len() > module.len()
                    && import.path.starts_with(module)
                    && source.children.contains(&import.path[module.len()]);
                if passes_on {
                    continue;
                }
                let Some(definer) = self.definer(&import.path) else {
                    continue;
                };
                let declares = definer.len() == module.len() + 1 && definer.starts_with(module);
                if definer != module && !declares {
                    edges
                        .entry((module, definer))
                        .or_insert_with(|| import.path.join("::"));
                }
            }
        }
        edges
    }

    /// The circles, each as a list of its imports.
    fn circles(&self) -> Vec<String> {
        let edges = self.imports();
        let mut next: BTreeMap<&Module, Vec<&Module>> = BTreeMap::new();
        for (from, to) in edges.keys() {
            next.entry(from).or_default().push(to);
        }
        let mut circles: BTreeSet<BTreeSet<&Module>> = BTreeSet::new();
        for file in next.keys() {
            let reached = reached(&next, file);
            let circle = reached
                .iter()
                .filter(|other| self::reached(&next, other).contains(file));
            circles.insert(circle.copied().collect());
        }
        circles.retain(|circle| !circle.is_empty());
        let text = |circle: &BTreeSet<&Module>| {
            let inside = edges
                .iter()
                .filter(|((from, to), _)| circle.contains(from) && circle.contains(to));
            let lines =
                inside.map(|((from, _), name)| format!("    {} imports {name}", shown(from)));
            format!(
                "{} files:\n{}",
                circle.len(),
                lines.collect::<Vec<_>>().join("\n")
            )
        };
        circles.iter().map(text).collect()
    }
}

/// All files that `file` imports directly or indirectly; `file` itself only if it is in a circle.
fn reached<'a>(
    next: &BTreeMap<&'a Module, Vec<&'a Module>>,
    file: &Module,
) -> BTreeSet<&'a Module> {
    let mut reached = BTreeSet::new();
    let mut open = next.get(file).cloned().unwrap_or_default();
    while let Some(file) = open.pop() {
        if reached.insert(file) {
            open.extend(next.get(file).into_iter().flatten());
        }
    }
    reached
}

fn shown(module: &Module) -> String {
    match module.is_empty() {
        true => "the root".to_owned(),
        false => module.join("::"),
    }
}

/// All sources below `folder`, by module.
fn sources(folder: &Path, module: &[String], found: &mut Vec<(Module, String)>) {
    let entries = std::fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("cannot read {}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let mut child = module.to_vec();
        if path.is_dir() {
            child.push(name.into_owned());
            sources(&path, &child, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            if !matches!(&*name, "lib" | "main" | "mod") {
                child.push(name.into_owned());
            }
            let text = std::fs::read_to_string(&path)
                .unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
            found.push((child, text));
        }
    }
}

#[test]
fn no_files_import_each_other() {
    let mut circles = Vec::new();
    for name in CRATES {
        let mut found = Vec::new();
        sources(&files::root().join(name).join("src"), &[], &mut found);
        assert!(found.len() > 5, "{name} has no sources");
        let found = Crate::new(found).circles();
        circles.extend(found.into_iter().map(|circle| format!("{name}: {circle}")));
    }
    assert!(
        circles.is_empty(),
        "{} circles of imports; move what both sides need to a file of its own:\n{}",
        circles.len(),
        circles.join("\n")
    );
}

fn circles_of(files: &[(&str, &str)]) -> Vec<String> {
    let files = files.iter().map(|(name, text)| {
        let names = name.split("::").filter(|name| !name.is_empty());
        (names.map(str::to_owned).collect(), (*text).to_owned())
    });
    Crate::new(files).circles()
}

#[test]
fn a_circle_is_found_however_its_paths_are_written() {
    for b in [
        "use crate::a::A;",
        "use super::{other, a::{self, A}};",
        "fn f() { super::a::run(); }",
        "mod inner { use super::super::a::A; }",
        // Through the file that re-exports it.
        "use crate::A;",
    ] {
        let root = "mod a; mod b; pub use a::A;";
        let files = [
            ("", root),
            ("a", "use crate::b::B; pub struct A;"),
            ("b", b),
        ];
        assert_eq!(circles_of(&files).len(), 1, "{b}");
    }
}

#[test]
fn a_circle_of_three_is_found() {
    let files = [
        ("", "mod a; mod b; mod c; mod d;"),
        ("a", "use crate::b::B;"),
        ("b", "use crate::c::C;"),
        ("c", "use crate::a::A;"),
        ("d", "use crate::a::A;"),
    ];
    let circles = circles_of(&files);
    assert_eq!(circles.len(), 1);
    assert!(circles[0].starts_with("3 files"), "{circles:?}");
}

#[test]
fn tests_strings_and_re_exports_do_not_count() {
    for b in [
        "// use crate::a::A;",
        "const TEXT: &str = \"use crate::a::A;\";",
        "#[cfg(test)] mod tests { use crate::a::A; }",
        "#[cfg(test)] use crate::a::A;",
        "use std::a::A;",
    ] {
        let files = [("", "mod a; mod b;"), ("a", "use crate::b::B;"), ("b", b)];
        assert_eq!(circles_of(&files), [""; 0], "{b}");
    }
    let files = [
        ("x", "mod y; mod z; pub use y::Y;"),
        ("x::y", "use super::Z; use super::z::Other;"),
        ("x::z", "pub struct Other;"),
    ];
    assert_eq!(circles_of(&files), [""; 0]);
    // A file and the file that declares it.
    let files = [
        ("x", "mod y; use y::Y; pub const LIMIT: u8 = 1;"),
        ("x::y", "use super::LIMIT;"),
    ];
    assert_eq!(circles_of(&files), [""; 0]);
}
