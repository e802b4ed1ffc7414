//! The suites.

mod gic;

/// The suite of this name.
pub fn find(name: &str) -> Option<fn()> {
    Some(match name {
        "gic" => gic::run,
        _ => return None,
    })
}
