//! `none`: plain fixed priority. vCPUs stay at home: the baseline that suffers.

use super::{Candidate, Decide, Here, Verdict};
use crate::schedule::Ticks;

/// The policy.
#[derive(Clone, Copy, Debug)]
pub struct Stay;

impl Decide for Stay {
    fn patience(&self) -> Option<Ticks> {
        None
    }

    fn verdict(&self, _: &Here, _: &Candidate) -> Verdict {
        Verdict::Leave
    }
}
