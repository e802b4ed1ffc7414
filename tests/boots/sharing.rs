// SPDX-License-Identifier: MIT OR Apache-2.0
//! FreeRTOS and Linux side by side on the same cores.

use boot_tests::{Boot, linux, rt};

#[test]
fn rt_and_linux_share_one_core() {
    let console = Boot::new("rt_and_linux_share_one_core")
        .guest(rt("period=1ms load=30% duration=5s"))
        .guest(linux("selfcheck", "expects=1", &[0]))
        .run();
    console
        .rt_is_well("rt")
        .linux_is_well("linux", "selfcheck")
        .machine_ended();
}

#[test]
fn linux_with_four_cpus_shares_one_of_four_cores() {
    let console = Boot::new("linux_with_four_cpus_shares_one_of_four_cores")
        .cores(4)
        .memory_mib(1024)
        .guest(rt("period=1ms load=60% duration=10s"))
        .guest(linux("all", "-g,1,-l,20", &[0, 1, 2, 3]))
        .run();
    console
        .rt_is_well("rt")
        .linux_is_well("linux", "selfcheck")
        .linux_is_well("linux", "hackbench")
        .machine_ended();
}
