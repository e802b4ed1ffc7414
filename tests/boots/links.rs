// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links between guests, on the exact clock.

use boot_tests::{Boot, linux, rt};

/// FreeRTOS echoes messages of Linux whenever its control task leaves time, and loses no period by it.
#[test]
fn linux_and_freertos_exchange_messages_over_memory() {
    let console = Boot::new("linux_and_freertos_exchange_messages_over_memory")
        .policy("steal")
        .cores(2)
        .exact()
        .guest(rt("period=1ms duration=5s link=echo"))
        .guest(linux("link", "count=20000", &[0, 1]))
        .memory_link("rt", "linux")
        .run();
    console
        .linux_is_well("linux", "link")
        .rt_is_well("rt")
        .machine_ended();
    let messages = console.number("linux", "linux-result", "messages");
    console.demand(messages == 20_000, "messages are missing");
    let late = console.number("rt", "rt-result", "late");
    console.demand(late == 0, &format!("{late} periods are late"));
}

/// FreeRTOS restarts again and again while messages are under way in both directions.
#[test]
fn no_message_of_a_former_life_is_received() {
    let console = Boot::new("no_message_of_a_former_life_is_received")
        .policy("steal")
        .cores(2)
        .exact_until_us(10_000_000)
        .guest(rt(
            "period=1ms duration=50ms histogram=off link=echo end=reset",
        ))
        .guest(linux("link", "lives=50", &[0, 1]))
        .memory_link("linux", "rt")
        .run();
    console.linux_is_well("linux", "link");
    let messages = console.number("linux", "linux-result", "messages");
    console.demand(messages > 10_000, &format!("{messages} messages only"));
}

/// Both cards are used with the kernel's own driver, in both directions at once, while FreeRTOS has the cores.
#[test]
fn two_linux_guests_exchange_files_over_a_network_link() {
    let linux = |name: &str, own: u8, other: u8| {
        let arguments = format!("own=10.9.0.{own},other=10.9.0.{other}");
        linux("peer", &arguments, &[0, 1]).named(name)
    };
    let console = Boot::new("two_linux_guests_exchange_files_over_a_network_link")
        .policy("steal")
        .cores(2)
        .memory_mib(1024)
        .exact()
        .guest(rt("period=1ms duration=10s"))
        .guest(linux("left", 1, 2))
        .guest(linux("right", 2, 1))
        .network_link("left", "right")
        .run();
    console
        .linux_is_well("left", "peer")
        .linux_is_well("right", "peer")
        .rt_is_well("rt")
        .machine_ended();
    let late = console.number("rt", "rt-result", "late");
    console.demand(late == 0, &format!("{late} periods are late"));
}
