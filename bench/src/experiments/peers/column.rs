// SPDX-License-Identifier: MIT OR Apache-2.0
//! One quantity that is measured on several systems, and whether another system is ahead of the own one in it.

use super::super::Verdict;
use super::systems::{OWN, Peer, all};
use crate::stats::Spread;

/// Differences that a seed can make, as a factor. Smaller ones count as equal.
const EQUAL: f64 = 1.01;

/// What decides whether a system is ahead, for the page.
pub(super) const METHOD: &str = "Ahead: another system is ahead in a quantity if its value with each seed is below that of Spumone with each \
    seed, by more than 1 %. A smaller median that does not suffice for that is named all the same.";

/// A quantity of which less is better.
pub(super) struct Column {
    name: String,
    decimals: usize,
    values: Vec<(&'static Peer, Spread)>,
}

impl Column {
    /// The quantity of each system that has it, shown with this number of decimals.
    pub(super) fn new(
        name: impl Into<String>,
        decimals: usize,
        of: impl Fn(&Peer) -> Option<Spread>,
    ) -> Self {
        Self {
            name: name.into(),
            decimals,
            values: all().filter_map(|peer| Some((peer, of(peer)?))).collect(),
        }
    }

    /// The systems that are ahead of the own one with all seeds, and by more than a seed can make.
    fn ahead(&self, own: &Spread) -> Vec<String> {
        let ahead = self
            .values
            .iter()
            .filter(|(_, it)| it.high * EQUAL < own.low);
        ahead
            .map(|(peer, it)| format!("{} {}", peer.title, self.show(it)))
            .collect()
    }

    fn show(&self, value: &Spread) -> String {
        format!("{:.*}", self.decimals, value.median)
    }

    /// The systems whose medians are below the own one's, but which are not [ahead](Self::ahead).
    pub(super) fn close(&self) -> Option<String> {
        let (_, own) = self.values.iter().find(|(peer, _)| peer.name == OWN.name)?;
        let show = |it: &Spread| format!("{:.*}", self.decimals + 1, it.median);
        let close = self.values.iter().filter(|(_, it)| {
            it.median < own.median && it.high * EQUAL >= own.low && show(it) != show(own)
        });
        let close: Vec<_> = close
            .map(|(peer, it)| format!("{} {}", peer.title, show(it)))
            .collect();
        (!close.is_empty()).then(|| {
            format!(
                "{}: {} (Spumone {})",
                self.name,
                close.join("; "),
                show(own)
            )
        })
    }

    /// The aim that no other system is ahead; `None` if the own system does not have this quantity.
    pub(super) fn verdict(&self) -> Option<Verdict> {
        let (_, own) = self.values.iter().find(|(peer, _)| peer.name == OWN.name)?;
        let ahead = self.ahead(own);
        let others = self.values.len() - 1;
        let measured = match ahead.is_empty() {
            true => format!("none of the {others} others is ahead"),
            false => ahead.join(", "),
        };
        Some(Verdict {
            aim: format!("{}: no other system is ahead of Spumone", self.name),
            measured: format!("Spumone {}; {measured}", self.show(own)),
            met: (self.values.len() > 1).then_some(ahead.is_empty()),
        })
    }

    /// Says which systems are ahead, if one is.
    pub(super) fn finding(&self) -> Option<String> {
        let (_, own) = self.values.iter().find(|(peer, _)| peer.name == OWN.name)?;
        let ahead = self.ahead(own);
        (!ahead.is_empty()).then(|| {
            format!(
                "Another system is ahead, {}: Spumone {}; {}.",
                self.name,
                self.show(own),
                ahead.join(", ")
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The own system has 2.0; the first of the others this value.
    fn column(other: f64) -> Column {
        Column::new("a, ms", 1, |peer| match peer.name {
            name if name == OWN.name => Spread::of([2.0]),
            "stock" => Spread::of([other]),
            _ => None,
        })
    }

    #[test]
    fn a_smaller_value_is_ahead_unless_a_seed_can_make_it() {
        assert_eq!(
            column(1.5).finding().as_deref(),
            Some("Another system is ahead, a, ms: Spumone 2.0; stock kernel, SCHED_FIFO 1.5.")
        );
        let verdict = column(1.5).verdict().unwrap();
        assert_eq!(
            (verdict.measured.as_str(), verdict.met),
            ("Spumone 2.0; stock kernel, SCHED_FIFO 1.5", Some(false))
        );
        for equal in [1.99, 3.0] {
            assert_eq!(column(equal).finding(), None);
            assert_eq!(column(equal).verdict().unwrap().met, Some(true));
        }
    }

    #[test]
    fn a_value_that_is_smaller_by_less_is_named() {
        assert_eq!(
            column(1.99).close().as_deref(),
            Some("a, ms: stock kernel, SCHED_FIFO 1.99 (Spumone 2.00)")
        );
        for other in [1.5, 1.999, 3.0] {
            assert_eq!(column(other).close(), None);
        }
    }

    #[test]
    fn what_the_own_system_has_alone_is_not_judged() {
        let alone = Column::new("a", 0, |peer| {
            (peer.name == OWN.name).then(|| Spread::of([1.0]))?
        });
        assert_eq!(alone.verdict().unwrap().met, None);
        assert!(
            Column::new("a", 0, |peer| (peer.name != OWN.name)
                .then(|| Spread::of([1.0]))?)
            .verdict()
            .is_none()
        );
    }
}
