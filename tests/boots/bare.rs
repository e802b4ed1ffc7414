// SPDX-License-Identifier: MIT OR Apache-2.0
//! The probe guest on QEMU's bare machine: what it demands of the hypervisor, a real GIC and real
//! timers (as QEMU emulates them) must also do. QEMU's PSCI is laxer than the standard, so that
//! suite is left out.

use boot_tests::bare;

#[test]
fn bare_aborts() {
    bare("bare_aborts", 1, "suite=aborts").probe_has_passed("probe");
}

#[test]
fn bare_gic() {
    bare("bare_gic", 4, "suite=gic").probe_has_passed("probe");
}

/// On a core that has none of the features.
#[test]
fn bare_hidden() {
    bare("bare_hidden", 1, "suite=hidden").probe_has_passed("probe");
}

#[test]
fn bare_timer() {
    bare("bare_timer", 4, "suite=timer").probe_has_passed("probe");
}

#[test]
fn bare_watch() {
    bare("bare_watch", 4, "suite=watch ms=500").probe_has_passed("probe");
}
