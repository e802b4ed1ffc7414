// SPDX-License-Identifier: MIT OR Apache-2.0
//! The output to the UART, byte by byte.

use super::*;
use crate::console::format::{CANCEL, QUOTE};
use crate::console::mux::LINE_SIZE;
use proptest::prelude::*;
use std::fmt::Write as _;

/// Guest 0 has the focus.
const SHELL: Source = LINUX;

#[test]
fn a_line_has_the_name_of_its_guest() {
    let mut setup = Setup::new();
    setup.write(RT, "tick\n");
    setup.write(HYP, "ready\r\n");
    setup.write(RT, "\n");
    assert_eq!(
        setup.shown(),
        "rt      | tick\r\nspumone | ready\r\nrt      | \r\n"
    );
}

#[test]
fn lines_do_not_mix() {
    let mut setup = Setup::new();
    setup.write(RT, "one ");
    setup.write(HYP, "ano");
    setup.write(RT, "line\r\n");
    setup.write(HYP, "ther\n");
    assert_eq!(setup.shown(), "rt      | one line\r\nspumone | another\r\n");
}

#[test]
fn the_hypervisors_cores_have_lines_of_their_own() {
    let mut setup = Setup::new();
    write!(setup.console.log(PcpuId(0)), "core {} ", 0).unwrap();
    write!(setup.console.log(PcpuId(1)), "core {} ", 1).unwrap();
    writeln!(setup.console.log(PcpuId(0)), "up").unwrap();
    writeln!(setup.console.log(PcpuId(1)), "up").unwrap();
    setup.serve_all();
    assert_eq!(
        setup.shown(),
        "spumone | core 0 up\r\nspumone | core 1 up\r\n"
    );
}

#[test]
fn output_of_the_guest_with_the_focus_is_printed_at_once() {
    let mut setup = Setup::new();
    setup.write(SHELL, "login: ");
    assert_eq!(setup.shown(), "linux   | login: ");
    setup.write(SHELL, "r\u{8}");
    assert_eq!(setup.shown(), "r\u{8}");
    setup.write(SHELL, "\r\n\nx");
    assert_eq!(setup.shown(), "^X^[[0m\r\nlinux   | \r\nlinux   | x");
}

#[test]
fn an_interrupted_line_is_continued_after_a_plus() {
    let mut setup = Setup::new();
    setup.write(SHELL, "~ # ls");
    setup.write(RT, "tick\ntick\n");
    setup.write(SHELL, " -l\n");
    assert_eq!(
        setup.shown(),
        "linux   | ~ # ls\n\rrt      | tick\r\nrt      | tick\r\nlinux   +  -l\r\n"
    );
    setup.write(SHELL, "~ # \x1b[32mls");
    setup.write(RT, "tick\n");
    setup.write(SHELL, "\r\n");
    assert_eq!(
        setup.shown(),
        "linux   | ~ # ^[[32mls^X^[[0m\n\rrt      | tick\r\nlinux   + \r\n"
    );
}

#[test]
fn a_line_that_starts_over_keeps_its_tag() {
    let mut setup = Setup::new();
    for source in [RT, SHELL] {
        setup.write(source, "\r10 %\r20 %\r\r\n");
    }
    assert_eq!(
        setup.shown(),
        "rt      | 10 %\rrt      | 20 %\r\nlinux   | 10 %\rlinux   | 20 %\r\n"
    );
    setup.write(SHELL, "10 %\r");
    setup.write(RT, "tick\n");
    setup.write(SHELL, "20 %\r");
    assert_eq!(
        setup.shown(),
        "linux   | 10 %\n\rrt      | tick\r\nlinux   | 20 %"
    );
}

#[test]
fn control_characters_are_quoted() {
    let mut setup = Setup::new();
    setup.write(RT, b"a\x1b[2J\tb\x08\x7f\0 \xc2\x9b2J \xc3\xa9\x10\x18\n");
    assert_eq!(
        String::from_utf8_lossy(&setup.screen.bytes),
        String::from_utf8_lossy(
            b"rt      | a\x10[[2J\tb\x10H\x10? \xc2\x10\xdb2J \xc3\xa9\x10P\x10X\r\n"
        )
    );
    setup.screen.bytes.clear();
    // The guest with the focus may draw. EL2's own two bytes are quoted nevertheless.
    setup.write(SHELL, "\x1b[2J\x08\x10\x18\n");
    assert_eq!(
        setup.shown(),
        "linux   | ^[[2J\u{8}\u{10}P\u{10}X^X^[[0m\r\n"
    );
}

#[test]
fn a_long_line_is_interrupted_by_others() {
    let mut setup = Setup::new();
    for byte in [&[b'x'; LINE_SIZE + 10][..], b"\n"].concat() {
        setup.console.push(RT, byte).unwrap();
    }
    for byte in *b"tick\n" {
        setup.console.push(HYP, byte).unwrap();
    }
    setup.serve_all();
    let (first, rest) = ("x".repeat(LINE_SIZE), "x".repeat(10));
    assert_eq!(
        setup.shown(),
        std::format!("rt      | {first}\n\rspumone | tick\r\nrt      + {rest}\r\n")
    );
}

#[test]
fn a_new_focus_prints_the_prompt_of_its_guest() {
    let mut setup = Setup::new();
    setup.write(RT, "rt> ");
    assert_eq!(setup.shown(), "");
    setup.console.set_focus(GuestId(1));
    setup.serve_all();
    assert_eq!(setup.shown(), "rt      | rt> ");
    assert_eq!(setup.console.focus(), GuestId(1));
    setup.write(SHELL, "~ # ");
    assert_eq!(setup.shown(), "");
}

#[test]
fn idle_lines_are_printed_unfinished() {
    let mut setup = Setup::new();
    setup.write(RT, "working");
    setup.console.flush_idle();
    setup.serve_all();
    setup.write(RT, ".");
    setup.console.flush_idle();
    setup.serve_all();
    assert_eq!(setup.shown(), "", "the line has grown meanwhile");
    setup.console.flush_idle();
    setup.serve_all();
    assert_eq!(setup.shown(), "rt      | working.");
    setup.idle();
    assert_eq!(setup.shown(), "");
    setup.write(RT, "..");
    setup.idle();
    setup.write(RT, "\ndone\n");
    assert_eq!(setup.shown(), "..\r\nrt      | done\r\n");
}

#[test]
fn the_end_of_a_stream_ends_its_line() {
    let mut setup = Setup::new();
    setup.write(SHELL, "~ # \r");
    for byte in *b"last words" {
        setup.console.push(RT, byte).unwrap();
    }
    setup.write(HYP, "off\n");
    for source in [RT, LINUX, HYP] {
        setup.console.end_stream(source);
    }
    setup.serve_all();
    assert_eq!(
        setup.shown(),
        "linux   | ~ # \n\rspumone | off\r\nlinux   + \r\nrt      | last words\r\n"
    );
    setup.write(RT, "boot\n");
    setup.write(LINUX, "boot\n");
    assert_eq!(setup.shown(), "rt      | boot\r\nlinux   | boot\r\n");
}

#[test]
fn a_byte_after_the_end_of_a_stream_is_not_lost() {
    let mut setup = Setup::new();
    setup.write(SHELL, "~ # ");
    setup.console.end_stream(SHELL);
    // The end of the line is partly written when the next life prints.
    setup.serve(1, 3);
    setup.console.push(SHELL, b'x').unwrap();
    setup.serve_all();
    assert_eq!(setup.shown(), "linux   | ~ # \r\nlinux   | x");
}

#[test]
fn a_flood_of_one_source_does_not_delay_others() {
    let mut setup = Setup::new();
    for _ in 0..OutputRing::<1024>::CAPACITY {
        setup.console.push(LINUX, b'x').unwrap();
    }
    assert_eq!(setup.console.push(LINUX, b'x'), Err(Full));
    assert_eq!(setup.console.room(LINUX), 0);
    for byte in *b"tick\n" {
        setup.console.push(RT, byte).unwrap();
    }
    // Enough steps for one turn and a line: each byte takes two.
    assert_eq!(setup.serve(usize::MAX, 600), Served::BudgetSpent);
    assert!(setup.console.work_left());
    assert!(setup.shown().contains("rt      | tick\r\n"));
}

#[test]
fn a_full_uart_and_a_small_budget_only_delay_output() {
    let text = "~ # ls\x1b[31m red\x1b[0m\r\nmore";
    let mut whole = Setup::new();
    whole.write(LINUX, text);
    whole.write(RT, "tick\n");
    let mut parts = Setup::new();
    for byte in text.bytes() {
        parts.console.push(LINUX, byte).unwrap();
    }
    while parts.serve(1, 5) != Served::Done {
        assert!(parts.console.work_left());
    }
    assert!(!parts.console.work_left());
    for byte in *b"tick\n" {
        parts.console.push(RT, byte).unwrap();
    }
    while parts.serve(3, 2) != Served::Done {}
    assert_eq!(parts.shown(), whole.shown());
}

#[test]
fn a_message_without_room_is_an_error() {
    let setup = Setup::new();
    let text = "x".repeat(2000);
    assert!(setup.console.log(PcpuId(3)).write_str(&text).is_err());
    assert_eq!(setup.console.room(Source::Hypervisor(PcpuId(3))), 0);
}

#[test]
fn ids_out_of_range_do_no_harm() {
    let mut setup = Setup::new();
    setup.mux.add_guest(GuestId(200), "none");
    setup.write(Source::Guest(GuestId(200)), "a\n");
    setup.write(Source::Hypervisor(PcpuId(200)), "b\n");
    setup.console.set_focus(GuestId(200));
    setup.serve_all();
    let shown = setup.shown();
    assert!(
        shown.contains("a\r\n") && shown.contains("spumone | b\r\n"),
        "{shown}"
    );
}

proptest! {
    /// For any output of a guest: each line feed is followed by the guest's own tag, and each carriage return by a tag.
    /// A guest without the focus writes no byte on which the terminal acts.
    #[test]
    fn no_guest_imitates_another(
        bytes in proptest::collection::vec(
            prop_oneof![
                any::<u8>(),
                proptest::sample::select(&b"\r\n\x1b[|+ \xc2\x9b\x10\x18\0"[..]),
            ],
            0..600,
        ),
        focus in 0u8..2,
        room in 1usize..50,
    ) {
        let mut setup = Setup::new();
        setup.console.set_focus(GuestId(focus));
        for byte in &bytes {
            setup.console.push(RT, *byte).unwrap();
            setup.serve(room, room);
        }
        setup.console.end_stream(RT);
        setup.serve_all();
        let shown = core::mem::take(&mut setup.screen.bytes);
        let mut at_tag = true;
        let mut rest = shown.as_slice();
        while let Some((&byte, tail)) = rest.split_first() {
            if at_tag && byte != b'\n' {
                let is_tagged = [&b"rt      | "[..], b"rt      + "].iter().any(|it| rest.starts_with(it));
                prop_assert!(is_tagged, "{}", String::from_utf8_lossy(rest));
            }
            prop_assert!(byte != b'\n' || at_tag, "a line feed alone");
            at_tag = byte == b'\r' || byte == b'\n';
            if byte == QUOTE {
                rest = tail.split_first().unwrap().1;
                continue;
            }
            if focus == 0 {
                prop_assert!(!matches!(byte, CANCEL | 0x1b | 0x7f | 0x08));
                prop_assert!(byte != 0xc2 || !matches!(tail.first(), Some(0x80..0xa0)));
            }
            rest = tail;
        }
    }
}
