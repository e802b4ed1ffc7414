// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers in words.

/// So many of these.
pub fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// The numbers of the bits that are set, as ranges: `0-2, 5`.
pub fn numbers(mask: u32) -> String {
    let is_set = |bit: u32| mask.checked_shr(bit).unwrap_or(0) & 1 != 0;
    let mut runs = Vec::new();
    let mut bit = 0;
    while bit < u32::BITS {
        let from = bit;
        while is_set(bit) {
            bit += 1;
        }
        match bit - from {
            0 => bit += 1,
            1 => runs.push(from.to_string()),
            _ => runs.push(format!("{from}-{}", bit - 1)),
        }
    }
    runs.join(", ")
}
