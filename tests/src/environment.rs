// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the environment says of a run.

/// The number in this variable of the environment; `otherwise` if there is none.
pub fn number(variable: &str, otherwise: u64) -> u64 {
    let value = std::env::var(variable).ok();
    value.and_then(|it| it.parse().ok()).unwrap_or(otherwise)
}
