// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the type information (BTF) in a Linux kernel (Linux, Documentation/bpf/btf.rst).
//!
//! Only as much as is needed to find a field of a structure. The file may be damaged: inconsistent data is refused, and
//! no chain of types is followed without a limit.

use memchr::memmem;
use std::collections::HashSet;

/// First two bytes, then version and flags, in a little-endian kernel.
const MAGIC: [u8; 4] = [0x9f, 0xeb, 1, 0];
/// Least size of the header.
const HEADER_SIZE: usize = 24;
/// Largest header of later versions.
const MAX_HEADER_SIZE: usize = 256;
/// Start of every type: name, `info`, size or type.
const TYPE_SIZE: usize = 12;
/// A member of a structure or union: name, type, offset.
const MEMBER_SIZE: usize = 12;
/// Most typedefs and qualifiers in a chain.
const MAX_CHAIN: usize = 32;

/// Kinds of types that are used here.
const INT: u32 = 1;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const TYPEDEF: u32 = 8;
const VOLATILE: u32 = 9;
const CONST: u32 = 10;
const FUNC: u32 = 12;

/// Bytes that follow a type of `kind` with `count` entries; `None`: the kind is not known.
fn tail(kind: u32, count: usize) -> Option<usize> {
    /// PTR, FWD, TYPEDEF, VOLATILE, CONST, RESTRICT, FUNC, FLOAT, TYPE_TAG.
    const NOTHING: [u32; 9] = [2, 7, 8, 9, 10, 11, 12, 16, 18];
    /// INT, VAR, DECL_TAG.
    const A_WORD: [u32; 3] = [1, 14, 17];
    const ARRAY: u32 = 3;
    /// ENUM, FUNC_PROTO: a name or value and a type or value each.
    const PAIRS: [u32; 2] = [6, 13];
    /// STRUCT, UNION, DATASEC, ENUM64.
    const TRIPLES: [u32; 4] = [4, 5, 15, 19];
    match kind {
        ARRAY => Some(12),
        _ if NOTHING.contains(&kind) => Some(0),
        _ if A_WORD.contains(&kind) => Some(4),
        _ if PAIRS.contains(&kind) => Some(8 * count),
        _ if TRIPLES.contains(&kind) => Some(12 * count),
        _ => None,
    }
}

/// Number of a type. 0 is `void`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TypeId(u32);

/// A field of a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its offset in the structure, in bits.
    pub bits: u64,
    /// Its type.
    pub of: TypeId,
}

/// Why there is no usable type information.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The image has none.
    Missing,
    /// The image has some, but it is inconsistent.
    Damaged(String),
}

/// All types of a kernel.
#[derive(Debug)]
pub struct Btf<'a> {
    types: &'a [u8],
    strings: &'a [u8],
    /// The offset of each type in `types`; the first one is type number 1.
    starts: Vec<usize>,
}

/// The fixed part of a type.
#[derive(Clone, Copy)]
struct Type<'a> {
    name: u32,
    info: u32,
    size_or_type: u32,
    tail: &'a [u8],
}

impl Type<'_> {
    fn kind(self) -> u32 {
        self.info >> 24 & 0x1f
    }

    fn is_structure(self) -> bool {
        matches!(self.kind(), STRUCT | UNION)
    }

    /// Whether the offsets of its members have the size of bit fields in their upper byte (`kind_flag`).
    fn has_bit_fields(self) -> bool {
        self.info >> 31 != 0
    }
}

/// Most places in an image that look like type information but are not. One or two occur by chance.
const MAX_PLACES: usize = 16;
/// Most types: Linux has no numbers for more (`BTF_MAX_TYPE` in include/uapi/linux/btf.h).
const MAX_TYPES: usize = 0xf_ffff;

impl<'a> Btf<'a> {
    /// Finds the type information in a kernel's image. No header has its offset, so the first place counts that looks
    /// like type information and is consistent.
    pub fn find(image: &'a [u8]) -> Result<Self, Fault> {
        let mut fault = Fault::Missing;
        for at in memmem::find_iter(image, &MAGIC).take(MAX_PLACES) {
            match Self::parse(&image[at..]) {
                Ok(btf) => return Ok(btf),
                Err(Fault::Missing) => {}
                Err(damaged) => fault = damaged,
            }
        }
        Err(fault)
    }

    /// Reads the type information at the start of `bytes`. [`Fault::Missing`] if it has no valid header.
    fn parse(bytes: &'a [u8]) -> Result<Self, Fault> {
        let header = |index: usize| word(bytes, MAGIC.len() + 4 * index).map(|it| it as usize);
        let part = |start: usize, offset: usize, size: usize| {
            let start = start.checked_add(offset)?;
            bytes.get(start..start.checked_add(size)?)
        };
        let sections = || {
            let size = header(0).filter(|size| (HEADER_SIZE..=MAX_HEADER_SIZE).contains(size))?;
            let types = part(size, header(1)?, header(2)?)?;
            let strings = part(size, header(3)?, header(4)?)?;
            let is_terminated = strings.first() == Some(&0) && strings.last() == Some(&0);
            (bytes.starts_with(&MAGIC) && is_terminated).then_some((types, strings))
        };
        let (types, strings) = sections().ok_or(Fault::Missing)?;
        let mut starts = Vec::new();
        let mut at = 0;
        while at < types.len() {
            let number = starts.len() + 1;
            if number > MAX_TYPES {
                let what = format!("it has more than {MAX_TYPES} types");
                return Err(Fault::Damaged(what));
            }
            let cut = || Fault::Damaged(format!("type {number} is cut off"));
            let info = word(types, at + 4).ok_or_else(cut)?;
            let kind = info >> 24 & 0x1f;
            let tail = tail(kind, (info & 0xffff) as usize).ok_or_else(|| {
                Fault::Damaged(format!(
                    "type {number} is of kind {kind}, which is not known"
                ))
            })?;
            starts.push(at);
            at += TYPE_SIZE + tail;
            if at > types.len() {
                return Err(cut());
            }
        }
        Ok(Self {
            types,
            strings,
            starts,
        })
    }

    fn get(&self, id: TypeId) -> Option<Type<'a>> {
        let index = (id.0 as usize).checked_sub(1)?;
        let start = *self.starts.get(index)?;
        let end = self.starts.get(index + 1).copied();
        let bytes = self.types.get(start..end.unwrap_or(self.types.len()))?;
        Some(Type {
            name: word(bytes, 0)?,
            info: word(bytes, 4)?,
            size_or_type: word(bytes, 8)?,
            tail: bytes.get(TYPE_SIZE..)?,
        })
    }

    /// Whether the string at `offset` is `name`.
    fn is_called(&self, offset: u32, name: &str) -> bool {
        let rest = self.strings.get(offset as usize..).unwrap_or_default();
        rest.strip_prefix(name.as_bytes())
            .is_some_and(|rest| rest.first() == Some(&0))
    }

    /// The types of a kind and name, in order.
    fn named<'b>(&'b self, kind: u32, name: &'b str) -> impl Iterator<Item = TypeId> + 'b {
        let ids = (1..).map(TypeId).take(self.starts.len());
        ids.filter(move |&id| {
            self.get(id)
                .is_some_and(|it| it.kind() == kind && self.is_called(it.name, name))
        })
    }

    /// Whether the kernel has a function of this name.
    pub fn has_function(&self, name: &str) -> bool {
        self.named(FUNC, name).next().is_some()
    }

    /// The structure of this name.
    pub fn structure(&self, name: &str) -> Option<TypeId> {
        self.named(STRUCT, name).next()
    }

    /// The type behind typedefs and qualifiers, and its number.
    fn resolved(&self, mut id: TypeId) -> Option<(TypeId, Type<'a>)> {
        let mut it = self.get(id)?;
        for _ in 0..MAX_CHAIN {
            if !matches!(it.kind(), TYPEDEF | VOLATILE | CONST) {
                return Some((id, it));
            }
            id = TypeId(it.size_or_type);
            it = self.get(id)?;
        }
        None
    }

    /// Bytes of an integer type; `None` for other types.
    pub fn integer_size(&self, id: TypeId) -> Option<u32> {
        let (_, it) = self.resolved(id)?;
        (it.kind() == INT).then_some(it.size_or_type)
    }

    /// The field of this name in a structure or its anonymous members; `None` if there is none, or if it is a bit
    /// field.
    pub fn field(&self, of: TypeId, name: &str) -> Option<Field> {
        let mut seen = HashSet::new();
        let mut left = vec![Field { bits: 0, of }];
        while let Some(outer) = left.pop() {
            // A damaged file may name one structure by many typedefs, and each of these by many members.
            if !seen.insert(outer.of) {
                continue;
            }
            let resolved = self.resolved(outer.of);
            let Some((id, it)) = resolved.filter(|(_, it)| it.is_structure()) else {
                continue;
            };
            if id != outer.of && !seen.insert(id) {
                continue;
            }
            for member in it.tail.chunks_exact(MEMBER_SIZE) {
                let [label, of, offset] = [0, 4, 8].map(|at| word(member, at).unwrap_or_default());
                let (bit_field, offset) = match it.has_bit_fields() {
                    true => (offset >> 24, offset & 0xff_ffff),
                    false => (0, offset),
                };
                let field = Field {
                    bits: outer.bits + u64::from(offset),
                    of: TypeId(of),
                };
                if self.is_called(label, name) {
                    return (bit_field == 0).then_some(field);
                }
                if self.is_called(label, "") {
                    left.push(field);
                }
            }
        }
        None
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(
        bytes.get(at..at.checked_add(4)?)?.try_into().ok()?,
    ))
}

#[cfg(test)]
#[path = "../../tests/support/btf.rs"]
pub mod blob;

#[cfg(test)]
// Tests may unwrap.
#[allow(clippy::unwrap_used)]
mod tests {
    use super::blob::{BIT_FIELDS, Types, kernel};
    use super::*;
    use proptest::prelude::*;

    /// An image with `bytes` in its middle, at an odd offset.
    fn image(bytes: &[u8]) -> Vec<u8> {
        [&[0x90; 4321], bytes, &[0x9f; 77]].concat()
    }

    #[test]
    fn a_field_is_found_in_anonymous_members() {
        let image = image(&kernel(true).bytes());
        let btf = Btf::find(&image).unwrap();
        let info = btf.structure("thread_info").unwrap();
        let preempt = btf.field(info, "preempt").unwrap();
        let need = btf.field(preempt.of, "need_resched").unwrap();
        assert_eq!((need.bits, btf.integer_size(need.of)), (32, Some(4)));
        // Fields of a member with a name belong to that member.
        assert_eq!(btf.field(info, "need_resched"), None);
        let count = btf.field(info, "preempt_count").unwrap();
        assert_eq!((count.bits, btf.integer_size(count.of)), (64, Some(8)));
        assert_eq!(btf.field(info, "cpu"), None);
        assert_eq!(btf.integer_size(info), None);
        assert_eq!(btf.structure("thread"), None);
        assert!(btf.has_function("preempt_schedule_irq"));
        assert!(!btf.has_function("preempt_schedule_ir"));
        assert!(!btf.has_function("thread_info"));
    }

    #[test]
    fn what_only_looks_like_a_header_is_skipped() {
        // A magic number, and a header that points beyond the file.
        let mut image = image(&[
            0x9f, 0xeb, 1, 0, 24, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255,
        ]);
        assert_eq!(Btf::find(&image).err(), Some(Fault::Missing));
        // A valid header, but invalid types.
        let mut unknown = Types::new();
        unknown.add(31, "", 0, &[]);
        image.extend(unknown.bytes());
        let damaged = "type 1 is of kind 31, which is not known";
        assert_eq!(
            Btf::find(&image).err(),
            Some(Fault::Damaged(damaged.into()))
        );
        image.extend(kernel(true).bytes());
        assert!(Btf::find(&image).is_ok());
    }

    #[test]
    fn a_type_that_is_cut_off_is_refused() {
        let mut types = Types::new();
        types.add(4, "", 8, &[]);
        let mut bytes = types.bytes();
        // Now it has one member, which is missing.
        bytes[HEADER_SIZE + 4] = 1;
        let damaged = Fault::Damaged("type 1 is cut off".into());
        assert_eq!(Btf::find(&bytes).err(), Some(damaged));
    }

    #[test]
    fn circles_of_types_are_left() {
        let mut types = Types::new();
        types.add(TYPEDEF, "round", 1, &[]);
        types.structure(STRUCT, "snake", &[("", 2, 8), ("", 3, 0), ("", 99, 0)]);
        types.structure(UNION, "", &[("", 2, 0), ("", 1, 0)]);
        let bytes = types.bytes();
        let btf = Btf::find(&bytes).unwrap();
        assert_eq!(btf.integer_size(TypeId(1)), None);
        assert_eq!(btf.field(TypeId(2), "tail"), None);
    }

    /// A structure that is gone through once for each of its names would take minutes.
    #[test]
    fn a_structure_of_many_names_is_gone_through_once() {
        const MEMBERS: u32 = 0xffff;
        let mut types = Types::new();
        let names: Vec<_> = (0..MEMBERS).map(|number| ("", 2 + number, 0)).collect();
        types.structure(STRUCT, "many", &names);
        for _ in 0..MEMBERS {
            types.add(TYPEDEF, "", 1, &[]);
        }
        let bytes = types.bytes();
        let btf = Btf::find(&bytes).unwrap();
        assert_eq!(btf.field(TypeId(1), "preempt_count"), None);
    }

    #[test]
    fn bit_fields_are_not_found() {
        let mut types = Types::new();
        let members = [("whole", 0, 32), ("bit", 0, 1 << 24 | 64)];
        types.structure(STRUCT | BIT_FIELDS, "flags", &members);
        let bytes = types.bytes();
        let btf = Btf::find(&bytes).unwrap();
        assert_eq!(btf.field(TypeId(1), "whole").unwrap().bits, 32);
        assert_eq!(btf.field(TypeId(1), "bit"), None);
    }

    proptest! {
        /// Any damaged file is read or refused, without a panic.
        #[test]
        fn damage_is_survived(
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut bytes = kernel(true).bytes();
            for (at, byte) in damage {
                *at.get_mut(&mut bytes) = byte;
            }
            for bytes in [&bytes[..], &bytes[..cut.index(bytes.len())]] {
                if let Ok(btf) = Btf::find(bytes) {
                    let _ = btf.has_function("preempt_schedule");
                    for id in (0..20).map(TypeId) {
                        let _ = btf.integer_size(id);
                        let _ = btf.field(id, "preempt_count");
                    }
                }
                let _ = crate::guest_files::preempt_count::offset(bytes);
            }
        }
    }
}
