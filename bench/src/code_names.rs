// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of places in the hypervisor's code, from its debug information.

use crate::clock::Exits;
use addr2line::{Loader, demangle_auto};
use std::path::Path;

/// Demangled names of the project's own functions begin with one of these; libraries' names do not.
const OWN: [&str; 2] = ["spumone", "<spumone"];
/// Functions in this file are single instructions: their caller is named instead.
const ACCESSORS: &str = "sysreg.rs";
/// Functions that look for interrupts: what calls them is named instead.
const LOOKS: [&str; 5] = [
    "interrupt_pending",
    "is_interrupted",
    "is_overtaken",
    "must_end",
    "puts_off_duty",
];
/// File names are shown from here on.
const SOURCES: &str = "/src/";

/// A function that contains an address, inlined or not.
struct Frame {
    function: String,
    path: String,
    line: u32,
}

/// The hypervisor's ELF file.
pub struct CodeNames(Loader);

impl CodeNames {
    /// The names in an ELF file; `None` if it cannot be read.
    pub fn open(elf: &Path) -> Option<Self> {
        Loader::new(elf).ok().map(Self)
    }

    /// The innermost function of the project's own at this address, inlined or not, with its file; not functions that only
    /// access a register or look for interrupts. In assembly the symbol.
    pub fn at(&self, address: u64) -> Option<String> {
        self.inlined(address)
            .or_else(|| self.0.find_symbol(address).map(symbol))
    }

    /// The function as [`Self::at`] names it, and the innermost source line in the project's own code.
    pub fn place(&self, address: u64) -> (String, String) {
        let function = self.at(address).unwrap_or_else(|| "?".into());
        let line = self.own_frames(address).into_iter().next();
        let line = line.map(|it| format!("{}:{}", it.path, it.line));
        (function, line.unwrap_or_default())
    }

    fn inlined(&self, address: u64) -> Option<String> {
        self.own_frames(address).into_iter().find_map(|frame| {
            let path = frame.path.as_str();
            let file = path.rsplit_once(SOURCES).map_or(path, |it| it.1);
            let function = last_part(&frame.function);
            let counts = file != ACCESSORS && !LOOKS.contains(&function);
            counts.then(|| format!("`{function}` ({file})"))
        })
    }

    /// The functions of the project's own that contain this address, the innermost first.
    fn own_frames(&self, address: u64) -> Vec<Frame> {
        let mut own = Vec::new();
        let Ok(mut frames) = self.0.find_frames(address) else {
            return own;
        };
        while let Ok(Some(frame)) = frames.next() {
            let name = frame.function.as_ref().and_then(|it| it.demangle().ok());
            let Some(name) = name.filter(|name| OWN.iter().any(|own| name.starts_with(own))) else {
                continue;
            };
            let place = frame.location.as_ref();
            let path = place.and_then(|it| it.file).unwrap_or_default();
            own.push(Frame {
                function: name.into_owned(),
                path: path.strip_prefix("./").unwrap_or(path).into(),
                line: place.and_then(|it| it.line).unwrap_or_default(),
            });
        }
        own
    }

    /// Replaces the addresses of stretches without a check for interrupts by names.
    pub fn name_stretches(&self, exits: &mut [Exits]) {
        for exit in exits {
            for end in [&mut exit.deaf_from, &mut exit.deaf_to] {
                let digits = end.as_deref().and_then(|it| it.strip_prefix("0x"));
                let address = digits.and_then(|it| u64::from_str_radix(it, 16).ok());
                if let Some(name) = address.and_then(|it| self.at(it)) {
                    *end = Some(name);
                }
            }
        }
    }
}

/// A symbol in its short form.
fn symbol(name: &str) -> String {
    format!("`{}`", last_part(&demangle_auto(name.into(), None)))
}

/// A function's own name, without its path; for a closure the function that contains it.
fn last_part(name: &str) -> &str {
    let mut parts = name.rsplit("::");
    parts
        .find(|it| !it.starts_with('{') && !it.is_empty())
        .unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_named_without_its_path() {
        assert_eq!(
            last_part("spumone::instance::switch::<impl spumone::instance::Instance>::exchange"),
            "exchange"
        );
        assert_eq!(last_part("spumone_core::bits::bits::{{closure}}"), "bits");
        assert_eq!(symbol("guest_exit"), "`guest_exit`");
        assert_eq!(
            symbol("_ZN4core3fmt9Formatter3pad17h0123456789abcdefE"),
            "`pad`"
        );
    }

    /// Offset in the file: the loader may place the file at any address.
    #[inline(never)]
    fn somewhere_in_this_file() -> u64 {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let base = maps.split('-').next().unwrap();
        let here: fn() -> u64 = somewhere_in_this_file;
        here as usize as u64 - u64::from_str_radix(base, 16).unwrap()
    }

    #[test]
    fn ends_of_a_stretch_get_names() {
        let names = CodeNames::open(&std::env::current_exe().unwrap()).unwrap();
        let mut exit: Exits = serde_json::from_str(
            r#"{"cause": "IRQ", "visits": 1, "instructions": 1, "most": 1, "most_at_ns": 0, "most_on_core": 0}"#,
        )
        .unwrap();
        exit.deaf_from = Some(format!("{:#x}", somewhere_in_this_file()));
        exit.deaf_to = Some("0x0".into());
        let mut exits = [exit];
        names.name_stretches(&mut exits);
        // The file is named only if debug information is complete, as the hypervisor's is.
        let named = exits[0].deaf_from.as_deref().unwrap();
        assert!(named.starts_with("`somewhere_in_this_file`"), "{named}");
        assert_eq!(exits[0].deaf_to.as_deref(), Some("0x0"));
    }

    #[test]
    fn what_has_no_name_keeps_its_address() {
        assert!(CodeNames::open(Path::new("/nowhere")).is_none());
        let names = CodeNames::open(&std::env::current_exe().unwrap()).unwrap();
        assert_eq!(names.at(0), None);
    }
}
