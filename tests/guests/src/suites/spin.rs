//! `suite=spin`: wants the core all the time, for `ms=` milliseconds (default 1000), and counts
//! how often it comes round. A tenth of the time gives a line.

use crate::machine::bootargs;
use crate::machine::time::{now, us};
use crate::machine::uart::say;
use crate::report::{Verdict, record};

/// Runs the suite.
pub fn run() {
    record("spin", spin());
}

fn spin() -> Verdict {
    let tenth = us(bootargs::number_or("ms", 1000) * 100);
    let start = now();
    let mut loops = 0_u64;
    for part in 1..=10 {
        while now() < start + part * tenth {
            loops += 1;
        }
        say!("spin-progress part={part} loops={loops}");
    }
    say!("spin-result loops={loops}");
    Ok(())
}
