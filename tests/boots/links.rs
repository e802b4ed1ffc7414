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
    let [ended, cause] = ["ended", "cause"].map(|it| console.number("linux", "linux-result", it));
    console.demand(
        ended >= 50 && cause == 2,
        "the link tells another end than the last reset",
    );
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

/// lwIP answers Linux in FreeRTOS's task of lowest priority: pings, echoes on several connections at once, and a stream beside
/// small pings. The control task loses no period, and none is late.
#[test]
fn freertos_answers_linux_over_a_network_link() {
    let console = Boot::new("freertos_answers_linux_over_a_network_link")
        .policy("steal")
        .cores(2)
        .exact()
        .guest(rt("period=1ms duration=8s network=10.9.0.1/24"))
        .guest(linux("rtnet", "own=10.9.0.2,other=10.9.0.1,mib=2", &[0, 1]))
        .network_link("rt", "linux")
        .run();
    console
        .linux_is_well("linux", "rtnet")
        .rt_is_well("rt")
        .machine_ended();
    let number = |guest, line, key| console.number(guest, line, key);
    console.demand(
        number("linux", "linux-result", "pings") == 20,
        "pings were not answered",
    );
    let echoed = number("linux", "linux-result", "echoed");
    console.demand(echoed == 3 * 256 * 1024, "echoes are missing");
    let streamed = number("rt", "rt-iperf", "bytes");
    console.demand(
        streamed == 2 * 1024 * 1024 + 24,
        &format!("{streamed} bytes of the stream have come"),
    );
    let late = number("rt", "rt-result", "late");
    console.demand(late == 0, &format!("{late} periods are late"));
    // Some exits of EL2, and no work of lwIP: that of one tick takes half a millisecond.
    let longest = number("rt", "rt-result", "max_ns");
    console.demand(longest < 50_000, &format!("a job has waited {longest} ns"));
}

/// FreeRTOS restarts again and again, and answers in each life: its card is set up anew, and the peer's connections of before
/// are in nobody's way.
#[test]
fn freertos_answers_linux_again_after_each_restart() {
    let console = Boot::new("freertos_answers_linux_again_after_each_restart")
        .policy("steal")
        .cores(2)
        .exact_until_us(12_000_000)
        .guest(rt(
            "period=1ms duration=1s histogram=off end=reset network=10.9.0.1/24",
        ))
        .guest(linux(
            "rtnet",
            "own=10.9.0.2,other=10.9.0.1,connections=1,kib=64,lives=4",
            &[0, 1],
        ))
        .network_link("linux", "rt")
        .run();
    console.linux_is_well("linux", "rtnet");
    let lives = console.number("linux", "linux-result", "lives");
    console.demand(lives == 4, &format!("{lives} lives only"));
    let late = console.count("rt", "rt-result") - console.count("rt", "lost=0 late=0");
    console.demand(late == 0, &format!("{late} lives with late periods"));
}

/// With the kernel's own driver and programs that know nothing of a hypervisor, in both directions at once, while FreeRTOS has
/// the cores.
#[test]
fn two_linux_guests_talk_over_sockets() {
    let linux = |name: &str, other: u8| {
        let arguments = format!("other={other},count=500,kib=2048");
        linux("sockets", &arguments, &[0, 1])
            .named(name)
            .initrd("initrd-share.cpio")
    };
    let console = Boot::new("two_linux_guests_talk_over_sockets")
        .policy("steal")
        .cores(2)
        .memory_mib(1024)
        .exact()
        .guest(rt("period=1ms load=50% duration=8s"))
        .guest(linux("left", 5))
        .guest(linux("right", 4))
        .vsock_link("left", "right")
        .run();
    for (name, cid) in [("left", 4), ("right", 5)] {
        console.linux_is_well(name, "sockets");
        let own = console.number(name, "linux-result", "cid");
        console.demand(own == cid, &format!("{name} has CID {own}"));
    }
    console.rt_is_well("rt").machine_ended();
    let late = console.number("rt", "rt-result", "late");
    console.demand(late == 0, &format!("{late} periods are late"));
}

/// A Linux restarts again and again while another sends messages to it. Each of its connections is reset, and no answer is of
/// another connection.
#[test]
fn connections_to_a_linux_that_restarts_are_reset() {
    let linux = |name: &str, arguments: &str| {
        linux("sockets", arguments, &[0, 1])
            .named(name)
            .initrd("initrd-share.cpio")
    };
    let console = Boot::new("connections_to_a_linux_that_restarts_are_reset")
        .policy("steal")
        .cores(2)
        .memory_mib(1024)
        .exact_until_us(15_000_000)
        .guest(rt("period=1ms duration=10s histogram=off"))
        .guest(linux("server", "seconds=1").parameter("spumone.after=reboot"))
        .guest(linux("client", "other=4,lives=3"))
        .vsock_link("server", "client")
        .run();
    console.linux_is_well("client", "sockets");
    let echoes = console.number("client", "linux-result", "echoes");
    console.demand(echoes > 300, &format!("{echoes} echoes only"));
}

/// A Linux has stopped; another one that connects to it is refused at once, as by a guest of another CID.
#[test]
fn connect_to_a_linux_that_has_stopped_fails_at_once() {
    let linux = |name: &str, arguments: &str| {
        linux("sockets", arguments, &[0, 1])
            .named(name)
            .initrd("initrd-share.cpio")
    };
    let console = Boot::new("connect_to_a_linux_that_has_stopped_fails_at_once")
        .cores(2)
        .memory_mib(1024)
        .exact()
        .guest(linux("server", "seconds=3"))
        .guest(linux("client", "other=3,stops=1"))
        .vsock_link("server", "client")
        .run();
    console.linux_is_well("client", "sockets").machine_ended();
    for what in ["down_ns", "unknown_ns"] {
        let time = console.number("client", "linux-result", what);
        console.demand(time < 5_000_000, &format!("{what}: {time} ns"));
    }
}
