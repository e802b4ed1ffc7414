// SPDX-License-Identifier: MIT OR Apache-2.0
//! What becomes of a guest that has ended: `on-stop`, `on-tamper` and `restarts`.

use super::TABLES;
use crate::packed::RestartLimit;
use crate::problem::Spanned;
use crate::reader::{Mismatch, Table, choice, duration_us, number_in};

/// What becomes of a guest that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It stays stopped, unless it has reset itself.
    Stop,
    /// It starts again.
    Restart,
    /// The machine goes off.
    MachineOff,
}

/// What becomes of a guest whose protected memory has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tampered {
    /// It starts again.
    Restart,
    /// It stays stopped.
    Stop,
}

/// The limit of a description that names none.
pub const DEFAULT_RESTARTS: RestartLimit = RestartLimit {
    most: 5,
    within_us: 10_000_000,
};
/// By name.
const ON_STOP: &[(&str, Ended)] = &[
    ("stop", Ended::Stop),
    ("restart", Ended::Restart),
    ("machine-off", Ended::MachineOff),
];
const ON_TAMPER: &[(&str, Tampered)] = &[("restart", Tampered::Restart), ("stop", Tampered::Stop)];
/// An hour.
const LONGEST_US: u64 = 3_600_000_000;

/// The three keys, as far as they are written.
type Endings = (
    Option<Spanned<Ended>>,
    Option<Spanned<Tampered>>,
    Option<Spanned<RestartLimit>>,
);

/// Reads the three keys.
pub(super) fn read(table: &mut Table<'_, '_, '_>) -> Endings {
    let on_stop = table.optional("on-stop", |value| choice(value, ON_STOP));
    let on_tamper = table.optional("on-tamper", |value| choice(value, ON_TAMPER));
    (on_stop, on_tamper, read_restarts(table))
}

fn read_restarts(table: &mut Table<'_, '_, '_>) -> Option<Spanned<RestartLimit>> {
    let wanted = "a table such as { most = 5, within = \"10s\" }";
    let mut inner = table.table("restarts", "restarts", wanted)?;
    let span = inner.span;
    let most = inner.required("most", "5", |value| number_in(value, 1..=255));
    let within = inner.required("within", "\"10s\"", |value| {
        match duration_us(value, "10s")? {
            time @ 1..=LONGEST_US => Ok(time),
            _ => Err(Mismatch::new("must be from 1us to 3600s")),
        }
    });
    inner.finish_with(TABLES);
    let limit = RestartLimit {
        most: u8::try_from(most?.value).ok()?,
        within_us: u32::try_from(within?.value).ok()?,
    };
    Some(Spanned::new(limit, span))
}
