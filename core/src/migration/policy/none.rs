//! `none`: plain fixed priority. vCPUs stay on their home cores. The baseline that suffers.

use super::{Conduct, Decide};

/// The policy.
#[derive(Clone, Copy, Debug)]
pub struct Stay;

impl Decide for Stay {
    fn conduct(&self) -> Conduct {
        Conduct::default()
    }
}
