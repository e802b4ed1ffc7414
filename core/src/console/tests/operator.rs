// SPDX-License-Identifier: MIT OR Apache-2.0
//! The operator is answered even if guests flood the console.

use super::*;

/// The budget of one drain, small.
const BUDGET: usize = 4;

/// All guests and the hypervisor on all cores have filled their rings.
fn flooded() -> Setup {
    let mut setup = Setup::new();
    for _ in 0..2 {
        fill(&setup);
        // Each source has an unfinished line.
        setup.serve(usize::MAX, 5000);
    }
    fill(&setup);
    setup.shown();
    setup
}

fn fill(setup: &Setup) {
    for number in 0..8 {
        for source in [
            Source::Guest(GuestId(number)),
            Source::Hypervisor(PcpuId(number)),
        ] {
            while setup.console.push(source, b'x').is_ok() {}
        }
    }
}

#[test]
fn an_answer_is_printed_before_a_flood() {
    let mut setup = flooded();
    assert!(setup.console.has_message());
    let answer = "guest linux: running, life 1, 4 of 4 vCPUs on\n".repeat(8);
    for byte in answer.bytes() {
        setup.console.push(Source::Operator, byte).unwrap();
    }
    let (mut drains, mut shown) = (0, String::new());
    while shown.matches("4 vCPUs on\r\n").count() < 8 {
        setup.serve(usize::MAX, BUDGET);
        fill(&setup);
        shown += &setup.shown();
        drains += 1;
        assert!(drains <= 500, "too late: {shown}");
    }
}

#[test]
fn a_message_counts_until_its_last_byte_is_printed() {
    let mut setup = Setup::new();
    assert!(!setup.console.has_message());
    for byte in *b"tick\n" {
        setup.console.push(LINUX, byte).unwrap();
    }
    assert!(!setup.console.has_message());
    setup.serve_all();
    for source in [HYP, Source::Operator] {
        for byte in *b"on\n" {
            setup.console.push(source, byte).unwrap();
        }
        setup.shown();
        let mut shown = String::new();
        while setup.console.has_message() {
            assert!(!shown.ends_with("spumone | on\r\n"));
            setup.serve(1, 1);
            shown += &setup.shown();
        }
        assert!(shown.ends_with("on\r\n"), "{shown}");
    }
    // An unfinished message does not count.
    setup.console.push(HYP, b'x').unwrap();
    assert!(!setup.console.has_message());
}

#[test]
fn a_flood_does_not_delay_earlier_output() {
    let mut setup = flooded();
    let marks = setup.console.marks();
    assert!(!setup.console.has_printed(&marks));
    let mut drains = 0;
    while !setup.console.has_printed(&marks) {
        setup.serve(usize::MAX, 1000);
        fill(&setup);
        drains += 1;
        assert!(drains < 500, "never");
    }
}
