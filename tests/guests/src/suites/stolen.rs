// SPDX-License-Identifier: MIT OR Apache-2.0
//! `suite=stolen`: reads its stolen time (DEN0057), and compares it with the gaps that it sees itself, for `ms=` milliseconds (default 1000).
//! `write=1`: it then writes to it, which ends it.

use crate::machine::bootargs;
use crate::machine::mmio::{read64, write64};
use crate::machine::psci::{Conduit, call_by, code, function};
use crate::machine::sysreg::{mask, mrs};
use crate::machine::time::{now, us};
use crate::machine::uart::say;
use crate::report::{Verdict, check, check_eq, record, test};

const PV_TIME_FEATURES: u64 = 0xC500_0020;
const PV_TIME_ST: u64 = 0xC500_0021;
/// Offset of the nanoseconds, behind revision and attributes.
const NANOSECONDS: u64 = 8;
/// A longer time between two looks at the counter is a gap: an exit takes less. In microseconds.
const GAP_US: u64 = 10;
/// Two switches take less, in microseconds.
const SWITCHES_US: u64 = 10;

/// Runs the suite.
pub fn run() {
    mask();
    test("features", features);
    record("stolen", compare());
    if bootargs::number_or("write", 0) != 0 {
        say!("stolen-write");
        write64(place() + NANOSECONDS, 0);
        say!("FAIL: it can be written");
    }
}

fn call(arguments: [u64; 4]) -> u64 {
    let [value, ..] = call_by(Conduit::Hvc, arguments);
    value
}

fn place() -> u64 {
    call([PV_TIME_ST, 0, 0, 0])
}

fn features() -> Verdict {
    check_eq!(
        call([function::ARCH_FEATURES, PV_TIME_FEATURES, 0, 0]),
        0,
        "ARCH_FEATURES"
    );
    for id in [PV_TIME_FEATURES, PV_TIME_ST] {
        check_eq!(
            call([PV_TIME_FEATURES, id, 0, 0]),
            0,
            "PV_TIME_FEATURES of {id:#x}"
        );
    }
    let other = call([PV_TIME_FEATURES, function::PSCI_VERSION, 0, 0]);
    check_eq!(
        other as i64,
        code::NOT_SUPPORTED,
        "PV_TIME_FEATURES of PSCI_VERSION"
    );
    check_eq!(place() % 64, 0, "alignment");
    check_eq!(read64(place()), 0, "revision and attributes");
    Ok(())
}

/// The stolen time is that of the gaps, but for one in a hundred. It may be less by the switches at EL2, two at each gap, which are not stolen.
fn compare() -> Verdict {
    let place = place();
    let before = read64(place + NANOSECONDS);
    let (end, gap) = (
        now() + us(bootargs::number_or("ms", 1000) * 1000),
        us(GAP_US),
    );
    let (mut last, mut gaps, mut count) = (now(), 0, 0);
    while last < end {
        let next = now();
        if next - last > gap {
            gaps += next - last;
            count += 1;
        }
        last = next;
    }
    let gaps = gaps * 1_000_000 / mrs!(CNTFRQ_EL0);
    let stolen = (read64(place + NANOSECONDS) - before) / 1000;
    say!("stolen-result us={stolen} gaps={gaps} count={count}");
    check!(
        stolen <= gaps + gaps / 100 && gaps <= stolen + gaps / 100 + count * SWITCHES_US,
        "{stolen} us are stolen, and {gaps} us are missing"
    );
    Ok(())
}
