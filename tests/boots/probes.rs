// SPDX-License-Identifier: MIT OR Apache-2.0
//! The probe guest's suites (tests/guests), on as many cores as vCPUs, and on fewer.

use boot_tests::{Boot, Console, probe, raw_probe};

/// Boots one probe guest with this command line and its vCPUs on `homes`, on a machine with just
/// these cores.
fn boot(name: &str, bootargs: &str, homes: &[usize]) -> Console {
    let cores = homes.iter().max().map_or(1, |last| last + 1);
    let console = Boot::new(name)
        .cores(cores)
        .guest(probe("probe", bootargs, homes))
        .run();
    console.probe_is_well("probe").machine_ended();
    console
}

/// A guest whose last vCPU turns itself off has ended.
#[test]
fn all_vcpus_off() {
    let console = Boot::new("all_vcpus_off")
        .cores(2)
        .guest(probe("forward", "suite=off", &[0, 1]))
        .guest(probe("backward", "suite=off last=1", &[0, 1, 0, 1]))
        .run();
    console
        .expect("spumone", "guest forward is off")
        .expect("spumone", "guest backward is off")
        .expect_not("forward", "FAIL")
        .expect_not("backward", "FAIL")
        .machine_ended();
}

/// The same program as a raw image.
#[test]
fn raw_image() {
    let boot = Boot::new("raw_image");
    let guest = raw_probe(boot.folder(), "raw", "suite=timer", &[0]);
    let console = boot.guest(guest).run();
    console.probe_is_well("raw").machine_ended();
}

#[test]
fn gic_one_vcpu() {
    boot("gic_one_vcpu", "suite=gic", &[0]);
}

#[test]
fn gic_a_core_for_each_vcpu() {
    boot("gic_a_core_for_each_vcpu", "suite=gic", &[0, 1, 2, 3]);
}

#[test]
fn gic_four_vcpus_on_one_core() {
    boot("gic_four_vcpus_on_one_core", "suite=gic", &[0, 0, 0, 0]);
}

#[test]
fn gic_eight_vcpus_on_two_cores() {
    boot(
        "gic_eight_vcpus_on_two_cores",
        "suite=gic",
        &[0, 1, 0, 1, 0, 1, 0, 1],
    );
}

#[test]
fn timer_one_vcpu() {
    boot("timer_one_vcpu", "suite=timer", &[0]);
}

#[test]
fn timer_a_core_for_each_vcpu() {
    boot("timer_a_core_for_each_vcpu", "suite=timer", &[0, 1, 2, 3]);
}

#[test]
fn timer_four_vcpus_on_one_core() {
    boot("timer_four_vcpus_on_one_core", "suite=timer", &[0, 0, 0, 0]);
}

#[test]
fn psci_one_vcpu() {
    boot("psci_one_vcpu", "suite=psci", &[0]);
}

#[test]
fn psci_a_core_for_each_vcpu() {
    boot("psci_a_core_for_each_vcpu", "suite=psci", &[0, 1, 2, 3]);
}

#[test]
fn psci_eight_vcpus_on_two_cores() {
    boot(
        "psci_eight_vcpus_on_two_cores",
        "suite=psci",
        &[0, 0, 0, 0, 1, 1, 1, 1],
    );
}
