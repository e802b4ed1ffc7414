// SPDX-License-Identifier: MIT OR Apache-2.0
//! The imports of one source file, read from its text.

use super::Module;
use std::collections::BTreeSet;

/// A path, resolved to start at the root of the crate.
pub(super) struct Import {
    pub path: Module,
    /// Whether it is a `use` that other files can see.
    pub is_public: bool,
    /// Whether it is a `use` at all.
    pub is_use: bool,
}

/// One source file.
#[derive(Default)]
pub(super) struct Source {
    /// The modules in files of their own that it declares.
    pub children: BTreeSet<String>,
    /// Those of them that are under `#[cfg(test)]`.
    pub test_children: BTreeSet<String>,
    pub imports: Vec<Import>,
}

/// The text with spaces in place of comments, strings and characters.
fn without_comments_and_strings(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let rest = &text.as_bytes()[at..];
        let length = if rest.starts_with(b"//") {
            rest.iter().position(|&byte| byte == b'\n')
        } else if rest.starts_with(b"/*") {
            find(rest, b"*/").map(|end| end + 2)
        } else if rest[0] == b'r' && is_raw_string(rest) && !code.last().is_some_and(is_word) {
            let hashes = rest[1..].iter().take_while(|&&byte| byte == b'#').count();
            let end = [b"\"".as_slice(), &vec![b'#'; hashes]].concat();
            find(&rest[hashes + 2..], &end).map(|found| found + 2 * hashes + 3)
        } else if rest[0] == b'"' {
            end_of_string(rest)
        } else if rest.starts_with(b"'\\") {
            find(&rest[3..], b"'").map(|end| end + 4)
        } else if rest[0] == b'\'' && rest.get(2) == Some(&b'\'') {
            Some(3)
        } else {
            code.push(rest[0]);
            at += 1;
            continue;
        };
        code.push(b' ');
        at += length.unwrap_or(rest.len());
    }
    String::from_utf8_lossy(&code).into_owned()
}

fn is_word(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || *byte == b'_'
}

fn is_raw_string(rest: &[u8]) -> bool {
    rest[1..].iter().find(|&&byte| byte != b'#') == Some(&b'"')
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|part| part == what)
}

/// Length of the string at the start of `rest`.
fn end_of_string(rest: &[u8]) -> Option<usize> {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return Some(at + 1),
            _ => at += 1,
        }
    }
    None
}

/// Words, `::`, and single characters.
fn tokens(code: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = if is_word(&(first as u8)) && first.is_ascii() {
            rest.bytes().take_while(is_word).count()
        } else if rest.starts_with("::") {
            2
        } else {
            first.len_utf8()
        };
        tokens.push(&rest[..length]);
        rest = rest[length..].trim_start();
    }
    tokens
}

/// Reads one file.
struct Reader<'a> {
    tokens: Vec<&'a str>,
    at: usize,
    /// The module that is being read: the file's, or one inside it.
    module: Module,
    source: Source,
}

impl<'a> Reader<'a> {
    fn peek(&self, ahead: usize) -> &'a str {
        self.tokens.get(self.at + ahead).copied().unwrap_or("")
    }

    fn next(&mut self) -> &'a str {
        let token = self.peek(0);
        self.at += 1;
        token
    }

    /// Reads the content of braces, or of the file.
    fn block(&mut self) {
        let mut for_tests = false;
        let mut is_public = false;
        while self.at < self.tokens.len() {
            match self.next() {
                "}" => return,
                "{" => self.block(),
                "#" if self.peek(0) == "[" => {
                    let attribute = self.group();
                    for_tests |= attribute.starts_with(&["[", "cfg", "(", "test", ")"]);
                    continue;
                }
                "pub" => {
                    if self.peek(0) == "(" {
                        self.group();
                    }
                    is_public = true;
                    continue;
                }
                "mod" if self.peek(1) == ";" => {
                    let name = self.next().to_owned();
                    if for_tests {
                        self.source.test_children.insert(name.clone());
                    }
                    self.source.children.insert(name);
                }
                "mod" if self.peek(1) == "{" => {
                    let name = self.next().to_owned();
                    if for_tests {
                        self.group();
                    } else {
                        self.next();
                        self.module.push(name);
                        self.block();
                        self.module.pop();
                    }
                }
                "use" if for_tests => while self.next() != ";" {},
                "use" => self.tree(&[], is_public),
                "fn" if for_tests => self.skip_function(),
                word if self.peek(0) == "::" && word != "::" => self.path(word),
                "::" => {
                    // The rest of a path that begins in another crate: `std::…`.
                    self.at += 1;
                }
                _ => continue,
            }
            (for_tests, is_public) = (false, false);
        }
    }

    /// The tokens of the group of brackets that begins here.
    fn group(&mut self) -> Vec<&'a str> {
        let start = self.at;
        let mut depth = 0;
        while self.at < self.tokens.len() {
            match self.next() {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
        self.tokens[start..self.at].to_vec()
    }

    fn skip_function(&mut self) {
        while !matches!(self.peek(0), "{" | ";" | "") {
            self.at += 1;
        }
        if self.peek(0) == "{" {
            self.group();
        }
    }

    /// A part of a `use`: names, and branches in braces. Ends after the `;`, or before the end of the branch.
    fn tree(&mut self, prefix: &[&'a str], is_public: bool) {
        let mut path = prefix.to_vec();
        loop {
            match self.next() {
                "{" => loop {
                    self.tree(&path, is_public);
                    if self.next() != "," || self.peek(0) == "}" {
                        break;
                    }
                },
                "::" => {}
                "as" => {
                    self.at += 1;
                }
                ";" => break,
                "," | "}" => {
                    self.at -= 1;
                    break;
                }
                "" => return,
                name => path.push(name),
            }
        }
        if self.tokens[self.at - 1] != "}" && path.len() > prefix.len() {
            self.import(&path, is_public, true);
        }
    }

    /// A path in code that begins with `first`.
    fn path(&mut self, first: &'a str) {
        let mut path = vec![first];
        while self.peek(0) == "::" && self.peek(1).bytes().all(|byte| is_word(&byte)) {
            path.push(self.peek(1));
            self.at += 2;
        }
        self.import(&path, false, false);
    }

    fn import(&mut self, path: &[&str], is_public: bool, is_use: bool) {
        let mut from = self.module.clone();
        let mut rest = path;
        match path[0] {
            "crate" => {
                from.clear();
                rest = &rest[1..];
            }
            "self" => rest = &rest[1..],
            "super" => {
                while rest.first() == Some(&"super") {
                    from.pop();
                    rest = &rest[1..];
                }
            }
            // May be a module of this file; resolved when all modules are known.
            _ => {}
        }
        let rest = rest.iter().filter(|name| **name != "self" && **name != "*");
        from.extend(rest.map(|&name| name.to_owned()));
        self.source.imports.push(Import {
            path: from,
            is_public,
            is_use,
        });
    }
}

/// Reads the file of `module`.
pub(super) fn read(module: &Module, text: &str) -> Source {
    let code = without_comments_and_strings(text);
    let mut reader = Reader {
        tokens: tokens(&code),
        at: 0,
        module: module.clone(),
        source: Source::default(),
    };
    while reader.at < reader.tokens.len() {
        reader.block();
    }
    reader.source
}
