//! The suites.

mod gic;
mod psci;
mod timer;

/// The suite of this name.
pub fn find(name: &str) -> Option<fn()> {
    Some(match name {
        "gic" => gic::run,
        "psci" => psci::run,
        "timer" => timer::run,
        _ => return None,
    })
}
