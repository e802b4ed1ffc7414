// SPDX-License-Identifier: MIT OR Apache-2.0
//! The linked EL2 program: its functions, its bytes, and where in the sources an instruction comes from.

use crate::instruction::SIZE;
use crate::problem::Problem;
use addr2line::{Loader, demangle_auto};
use object::{Object, ObjectSection, ObjectSymbol, SectionKind};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;

/// The table of exception vectors that is used while guests run.
const VECTORS: &str = "el2_vectors";
/// Bytes of a vector table, and of one of its 16 vectors.
const VECTOR_TABLE: u64 = 2048;
const VECTOR: u64 = 128;

/// Index of a function in [`Program::functions`].
pub type FunctionId = usize;

/// A function, or a vector of the vector table.
#[derive(Clone, Debug)]
pub struct Function {
    /// Its name without the hash of the compiler.
    pub name: String,
    /// Its addresses.
    pub range: Range<u64>,
}

/// One frame of the functions that were inlined at an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The function's name.
    pub function: String,
    /// The source file, as the debug information names it; without "./".
    pub file: String,
    /// The line in it, from 1 on.
    pub line: u32,
}

/// The program.
pub struct Program {
    /// All functions, by address.
    pub functions: Vec<Function>,
    /// The vectors that guests enter EL2 by.
    pub vectors: Vec<FunctionId>,
    /// Those of code: the address, and the bytes.
    sections: Vec<(u64, Vec<u8>)>,
    /// None in tests, which name the frames.
    names: Option<Loader>,
    frames: RefCell<BTreeMap<u64, Rc<Vec<Frame>>>>,
}

impl Program {
    /// Reads an ELF file.
    pub fn open(path: &Path) -> Result<Self, Problem> {
        let shown = path.display();
        let file = std::fs::read(path).map_err(|error| {
            Problem::new(
                format!("{shown}"),
                error.to_string(),
                "scripts/build builds the EL2 program",
            )
        })?;
        let broken = |error: String| {
            Problem::new(
                format!("{shown}"),
                error,
                "name the ELF file of the EL2 program",
            )
        };
        let elf = object::File::parse(&*file).map_err(|error| broken(error.to_string()))?;
        let names = Loader::new(path).map_err(|error| broken(error.to_string()))?;
        let mut sections = Vec::new();
        let mut code = Vec::new();
        for section in elf.sections().filter(|it| it.kind() == SectionKind::Text) {
            let bytes = section.data().map_err(|error| broken(error.to_string()))?;
            code.push(section.address()..section.address() + bytes.len() as u64);
            sections.push((section.address(), bytes.to_vec()));
        }
        let functions = functions(&elf, &code);
        let table = functions
            .iter()
            .find(|it| it.name.starts_with(VECTORS))
            .map(|it| it.range.start);
        let Some(table) = table else {
            return Err(broken(format!("it has no symbol {VECTORS}")));
        };
        // The second half is for exceptions of guests.
        let guests = table + VECTOR_TABLE / 2..table + VECTOR_TABLE;
        let vectors = (0..functions.len())
            .filter(|&id| guests.contains(&functions[id].range.start))
            .collect();
        Ok(Self {
            functions,
            vectors,
            sections,
            names: Some(names),
            frames: RefCell::default(),
        })
    }

    /// The instruction at an address.
    pub fn instruction(&self, address: u64) -> Option<u32> {
        let word = self.sections.iter().find_map(|(start, bytes)| {
            let first = usize::try_from(address.checked_sub(*start)?).ok()?;
            bytes.get(first..)?.first_chunk::<{ SIZE as usize }>()
        })?;
        Some(u32::from_le_bytes(*word))
    }

    /// The function that contains an address.
    pub fn function_at(&self, address: u64) -> Option<FunctionId> {
        let after = self
            .functions
            .partition_point(|it| it.range.start <= address);
        let id = after.checked_sub(1)?;
        self.functions[id].range.contains(&address).then_some(id)
    }

    /// The function that begins at an address.
    pub fn function_from(&self, address: u64) -> Option<FunctionId> {
        let id = self.function_at(address)?;
        (self.functions[id].range.start == address).then_some(id)
    }

    /// The functions with this name.
    pub fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = FunctionId> + 'a {
        let all = self.functions.iter().enumerate();
        all.filter(move |it| it.1.name == name).map(|it| it.0)
    }

    /// An instruction of a function, for a message.
    pub fn place(&self, id: FunctionId, address: u64) -> String {
        let place = format!("{} at {address:#x}", self.functions[id].name);
        match self.frames(address).first() {
            Some(frame) => format!("{place} ({}:{})", frame.file, frame.line),
            None => place,
        }
    }

    /// The functions that contain the instruction at this address: the innermost inlined function comes first, and the function into which all
    /// others are inlined comes last.
    pub fn frames(&self, address: u64) -> Rc<Vec<Frame>> {
        if let Some(known) = self.frames.borrow().get(&address) {
            return known.clone();
        }
        let mut found = Vec::new();
        let names = self.names.as_ref();
        if let Some(Ok(mut frames)) = names.map(|it| it.find_frames(address)) {
            while let Ok(Some(frame)) = frames.next() {
                let name = frame
                    .function
                    .as_ref()
                    .and_then(|it| it.demangle().ok().map(|it| plain(&it)));
                let location = frame.location.as_ref();
                found.push(Frame {
                    function: name.unwrap_or_default(),
                    file: location
                        .and_then(|it| it.file)
                        .map_or_else(String::new, relative),
                    line: location.and_then(|it| it.line).unwrap_or_default(),
                });
            }
        }
        let found = Rc::new(found);
        self.frames.borrow_mut().insert(address, found.clone());
        found
    }
}

#[cfg(test)]
impl Program {
    /// A program of functions, one after the other from [`Self::TEST_BASE`] on. The frames at each instruction: the
    /// function's own name, and line n + 1 of its own file for instruction n.
    pub fn for_tests(functions: &[(&str, &str, &[u32])]) -> Self {
        let mut program = Self {
            functions: Vec::new(),
            vectors: Vec::new(),
            sections: Vec::new(),
            names: None,
            frames: RefCell::default(),
        };
        let mut bytes = Vec::new();
        for (name, file, words) in functions {
            let start = Self::TEST_BASE + bytes.len() as u64;
            for (index, word) in words.iter().enumerate() {
                let frame = Frame {
                    function: (*name).into(),
                    file: (*file).into(),
                    line: index as u32 + 1,
                };
                let frames = if file.is_empty() { vec![] } else { vec![frame] };
                program
                    .frames
                    .borrow_mut()
                    .insert(start + SIZE * index as u64, Rc::new(frames));
                bytes.extend(word.to_le_bytes());
            }
            let range = start..Self::TEST_BASE + bytes.len() as u64;
            program.functions.push(Function {
                name: (*name).into(),
                range,
            });
        }
        program.sections.push((Self::TEST_BASE, bytes));
        program
    }

    /// Has an instruction of a program for tests come from these functions and lines of `core/src/f.rs`, the innermost first.
    pub fn inline_for_tests(&mut self, instruction: u64, chain: &[(&str, u32)]) {
        let frames = chain.iter().map(|&(function, line)| Frame {
            function: function.into(),
            file: "core/src/f.rs".into(),
            line,
        });
        let at = Self::TEST_BASE + SIZE * instruction;
        self.frames
            .borrow_mut()
            .insert(at, Rc::new(frames.collect()));
    }

    /// Where the first function of a program for tests begins.
    pub const TEST_BASE: u64 = 0x4020_0000;
}

/// A file as it is named from the root of the repository.
fn relative(file: &str) -> String {
    let parts = file.split('/').filter(|it| *it != ".");
    parts.collect::<Vec<_>>().join("/")
}

/// A name without the hash and the suffixes that the compiler appends.
fn plain(name: &str) -> String {
    let name = demangle_auto(name.into(), None);
    let name = name.split(".llvm.").next().unwrap_or(&name);
    match name.rsplit_once("::h") {
        Some((path, hash)) if hash.len() == 16 && hash.bytes().all(|it| it.is_ascii_hexdigit()) => {
            path.into()
        }
        _ => name.into(),
    }
}

/// All functions. Those of assembly have no size: they end where the next symbol begins.
fn functions(elf: &object::File<'_>, code: &[Range<u64>]) -> Vec<Function> {
    let mut starts = BTreeMap::<u64, (String, u64)>::new();
    let mut tables = Vec::new();
    for symbol in elf.symbols() {
        let Ok(name) = symbol.name() else { continue };
        let address = symbol.address();
        if name.is_empty() || name.starts_with('$') || !code.iter().any(|it| it.contains(&address))
        {
            continue;
        }
        if name.ends_with("_vectors") {
            tables.push((address, name.to_string()));
            continue;
        }
        let known = starts.entry(address).or_default();
        // Of several names the one with a size is of the compiler.
        if known.0.is_empty() || symbol.size() > known.1 {
            *known = (plain(name), symbol.size());
        }
    }
    for (table, name) in tables {
        for number in 0..VECTOR_TABLE / VECTOR {
            starts.insert(
                table + number * VECTOR,
                (format!("{name}+{:#05x}", number * VECTOR), VECTOR),
            );
        }
    }
    let mut functions: Vec<Function> = Vec::new();
    let mut next = starts
        .keys()
        .copied()
        .skip(1)
        .collect::<Vec<_>>()
        .into_iter();
    for (start, (name, size)) in starts {
        let section_end = code
            .iter()
            .find(|it| it.contains(&start))
            .map_or(start, |it| it.end);
        let limit = next.next().unwrap_or(u64::MAX).min(section_end);
        let end = if size == 0 {
            limit
        } else {
            limit.min(start + size)
        };
        functions.push(Function {
            name,
            range: start..end,
        });
    }
    functions
}
