// SPDX-License-Identifier: MIT OR Apache-2.0
//! The operator is answered whatever guests write.

use super::*;

/// Steps of the drain in one visit, as few as there are.
const VISIT: usize = 4;

/// All guests and the hypervisor of all cores have written what there is room for.
fn flooded() -> Setup {
    let mut setup = Setup::new();
    for _ in 0..2 {
        fill(&setup);
        // Everyone has a line that is begun.
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
fn an_answer_goes_before_a_flood() {
    let mut setup = flooded();
    assert!(setup.console.has_message());
    let answer = "guest linux: Running, life 1, 4 of 4 vCPUs on\n".repeat(8);
    for byte in answer.bytes() {
        setup.console.push(Source::Operator, byte).unwrap();
    }
    let (mut visits, mut shown) = (0, String::new());
    while shown.matches("4 vCPUs on\r\n").count() < 8 {
        setup.serve(usize::MAX, VISIT);
        fill(&setup);
        shown += &setup.shown();
        visits += 1;
        assert!(visits <= 500, "too late: {shown}");
    }
}

#[test]
fn a_message_is_one_until_its_last_byte() {
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
    // Half a message is none: nothing is to be done for it.
    setup.console.push(HYP, b'x').unwrap();
    assert!(!setup.console.has_message());
}

#[test]
fn a_flood_does_not_put_off_what_was_written_before() {
    let mut setup = flooded();
    let marks = setup.console.marks();
    assert!(!setup.console.has_printed(&marks));
    let mut visits = 0;
    while !setup.console.has_printed(&marks) {
        setup.serve(usize::MAX, 1000);
        fill(&setup);
        visits += 1;
        assert!(visits < 500, "never");
    }
}
