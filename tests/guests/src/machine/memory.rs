// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine's memory, and the parts of it that this program and its device tree occupy.

use super::bootargs;
use super::entry;
use super::part::Part;
use dtoolkit::{Node, Property};

/// Pages of memory are checked and marked as a whole.
const PAGE: u64 = 4096;

/// The whole memory in the device tree: one range, with addresses and sizes of 64 bits.
pub fn all() -> Part {
    let range = || {
        let tree = bootargs::tree()?;
        let memory = tree
            .root()
            .children()
            .find(|node| node.name().starts_with("memory"))?;
        let property = memory.property("reg")?;
        let (start, size) = property.value().split_first_chunk::<8>()?;
        let start = u64::from_be_bytes(*start);
        let size = u64::from_be_bytes(*size.first_chunk::<8>()?);
        Some(Part {
            start,
            end: start + size,
        })
    };
    match range() {
        Some(range) => range,
        None => panic!("the device tree has no memory node"),
    }
}

/// Memory without this program and the device tree, in whole pages. Some parts may be
/// empty.
pub fn free() -> [Part; 3] {
    let (image_start, image_end) = entry::image();
    let tree = bootargs::place();
    let tree = (
        tree.start & !(PAGE - 1),
        (tree.end + PAGE - 1) & !(PAGE - 1),
    );
    let image = (image_start & !(PAGE - 1), image_end);
    let (first, second) = if tree.0 < image.0 {
        (tree, image)
    } else {
        (image, tree)
    };
    let all = all();
    [
        (all.start, first.0),
        (first.1, second.0),
        (second.1, all.end),
    ]
    .map(|(start, end)| Part {
        start,
        end: end.max(start),
    })
}
