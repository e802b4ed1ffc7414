// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the screen shows, byte by byte.

use super::*;

#[test]
fn a_line_is_tagged_in_the_colour_of_its_guest() {
    let mut setup = Setup::new(Reader::Terminal);
    setup.write(RT, "tick\n");
    setup.write(HYP, "ready\n");
    assert_eq!(
        String::from_utf8_lossy(&setup.host.out),
        "\x1b[0;33mrt      | \x1b[0mtick\r\n\x1b[0;01mspumone | \x1b[0mready\r\n"
    );
}

#[test]
fn lines_do_not_mix() {
    let mut setup = Setup::new(Reader::Terminal);
    setup.write(RT, "one ");
    setup.write(HYP, "ano");
    setup.write(RT, "line\r\n");
    setup.write(HYP, "ther\n");
    assert_eq!(setup.shown(), "rt      | one line\r\nspumone | another\r\n");
}

#[test]
fn the_focused_guest_is_seen_at_once() {
    let mut setup = Setup::new(Reader::Terminal);
    setup.write(LINUX, "login: ");
    assert_eq!(setup.shown(), "linux   | login: ");
    setup.write(LINUX, "r");
    assert_eq!(setup.shown(), "r");
    setup.write(LINUX, "\r\n\nx");
    assert_eq!(setup.shown(), "\r\nlinux   | \r\nlinux   | x");
}

#[test]
fn an_unfinished_line_makes_way_and_comes_back() {
    let mut setup = Setup::new(Reader::Terminal);
    setup.write(LINUX, "~ # ls");
    setup.write(RT, "tick\n");
    setup.write(LINUX, " -l\n");
    assert_eq!(
        setup.shown(),
        "linux   | ~ # ls\r^[0m^[Krt      | tick\r\nlinux   | ~ # ls -l\r\n"
    );
}

#[test]
fn what_was_erased_by_editing_does_not_come_back() {
    let mut setup = Setup::new(Reader::Terminal);
    setup.write(LINUX, "^[32m$".replace('^', "\x1b"));
    setup.write(
        LINUX,
        "\u{8}^[0m lsé\u{8} \u{8}\u{8} \u{8}x".replace('^', "\x1b"),
    );
    setup.shown();
    setup.write(RT, "tick\n");
    assert_eq!(
        setup.shown(),
        "\r^[0m^[Krt      | tick\r\nlinux   | ^[32m^[0m lx"
    );
}

#[test]
fn sequences_of_the_focused_guest_pass_whole() {
    let mut setup = Setup::new(Reader::Terminal);
    let sequences = [
        "\x1b[6n",
        "\x1b[2J",
        "\x1b[1;1H",
        "\x1bM",
        "\x1b(B",
        "\x1b[?2004h",
        "\x1b]0;title\x07",
        "\x1bP1$r\x1b\\",
        "\x1b[1;38;2;255;255;255;48;2;255;255;255m",
    ];
    setup.write(LINUX, ">");
    setup.shown();
    for sequence in sequences {
        setup.write(LINUX, &sequence[..sequence.len() - 1]);
        assert_eq!(setup.shown(), "", "held until it is whole");
        setup.write(LINUX, &sequence[sequence.len() - 1..]);
        assert_eq!(setup.shown(), sequence.replace('\x1b', "^"));
    }
    // Longer than what is held back: an OSC string, a CSI sequence.
    let title = format!("\x1b]0;{}\x1b\\", "t".repeat(200));
    let long = format!("\x1b[{}1m", "0;".repeat(100));
    setup.write(LINUX, &title);
    setup.write(LINUX, &long);
    assert_eq!(setup.shown(), (title + &long).replace('\x1b', "^"));
    // Nothing of it stays in the line but styles that fit.
    setup.write(RT, "tick\n");
    assert_eq!(
        setup.shown(),
        "\r^[0m^[Krt      | tick\r\nlinux   | >^[1;38;2;255;255;255;48;2;255;255;255m"
    );
}

#[test]
fn other_guests_keep_colours_only() {
    let mut setup = Setup::new(Reader::Terminal);
    setup.write(
        RT,
        "\x1b[2J\x1b[Ha\x1b[1;31mred\x1b[0m\x1b]0;title\x07\x07 b\tc\x1b[6n\x1b[38:5:1md\x7f\0\n",
    );
    assert_eq!(
        setup.shown(),
        "rt      | a^[1;31mred^[0m b\tc^[38:5:1md^[0m\r\n"
    );
    // Control characters of ISO 6429 in UTF-8 or alone, broken UTF-8.
    setup.write(RT, b"\xc2\x9b2J \x9b2J \xff \xc3\xa9 \xf0\x9f\x98\x80\n");
    assert_eq!(setup.shown(), "rt      | ?2J ?2J ? é 😀\r\n");
    // A sequence that is broken off, and a string that is not closed.
    setup.write(RT, "a\x1b[12\nb\x1b]title\nc\x1b]x\x1b[31md\n");
    assert_eq!(
        setup.shown(),
        "rt      | a\r\nrt      | b\r\nrt      | c^[31md^[0m\r\n"
    );
}

#[test]
fn a_line_that_is_written_over_is_printed_first() {
    let mut setup = Setup::new(Reader::Terminal);
    setup.write(RT, "\r10 %\r20 %\r\r\n\r\n");
    assert_eq!(
        setup.shown(),
        "rt      | 10 %\r\nrt      | 20 %\r\nrt      | \r\n"
    );
    // Of the focused guest it is written over, and its tag with it.
    setup.write(LINUX, "\r10 %\r20 %\r\r\n");
    assert_eq!(setup.shown(), "linux   | 10 %\rlinux   | 20 %\r\n");
}

#[test]
fn progress_that_ends_in_a_carriage_return_is_drawn_again() {
    let mut setup = Setup::new(Reader::Terminal);
    setup.write(LINUX, "10 %\r");
    setup.write(RT, "tick\n");
    setup.write(LINUX, "20 %\r");
    assert_eq!(
        setup.shown(),
        "linux   | 10 %\r^[0m^[Krt      | tick\r\nlinux   | 10 %\rlinux   | 20 %"
    );
}

#[test]
fn long_lines_are_printed_in_pieces() {
    let mut setup = Setup::new(Reader::Terminal);
    setup.write(RT, "é".repeat(300) + "\n");
    let piece = "é".repeat(127);
    let rest = "é".repeat(300 - 2 * 127);
    assert_eq!(
        setup.shown(),
        format!("rt      | {piece}\r\nrt      + {piece}\r\nrt      + {rest}\r\n")
    );
    // One that ends with its piece does not print an empty one.
    setup.write(RT, "x".repeat(253) + "y");
    setup.write(RT, "\n");
    assert_eq!(
        setup.shown(),
        format!("rt      | {}\r\nrt      + y\r\n", "x".repeat(253))
    );
}

#[test]
fn a_long_line_of_the_focused_guest_flows_until_it_must_make_way() {
    let mut setup = Setup::new(Reader::Terminal);
    setup.write(LINUX, "x".repeat(1000));
    assert_eq!(setup.shown(), format!("linux   | {}", "x".repeat(1000)));
    setup.write(RT, "tick\n");
    setup.write(LINUX, "yz\n");
    assert_eq!(setup.shown(), "^[0m\r\nrt      | tick\r\nlinux   + yz\r\n");
    setup.write(LINUX, "a\n");
    assert_eq!(setup.shown(), "linux   | a\r\n");
}

#[test]
fn a_focus_change_is_announced_and_shows_the_held_line() {
    let mut setup = Setup::new(Reader::Terminal);
    setup.write(RT, "rt> ");
    setup.write(LINUX, "~ # ");
    setup.shown();
    setup.focus(1);
    assert_eq!(
        setup.shown(),
        "\r^[0m^[Kspumone | input goes to rt (for help)\r\nrt      | rt> "
    );
    // Linux's prompt is now held, and goes on where it was.
    setup.write(LINUX, "ls\n");
    assert_eq!(setup.shown(), "\r^[0m^[Klinux   | ~ # ls\r\nrt      | rt> ");
    // To the same guest: the notice answers the key.
    setup.focus(1);
    assert_eq!(
        setup.shown(),
        "\r^[0m^[Kspumone | input goes to rt (for help)\r\nrt      | rt> "
    );
}

#[test]
fn idle_lines_are_printed_unfinished() {
    let mut setup = Setup::new(Reader::Terminal);
    setup.write(RT, "working");
    setup.idle();
    setup.write(RT, ".");
    setup.idle();
    assert_eq!(setup.shown(), "", "the line has grown meanwhile");
    setup.idle();
    setup.idle();
    assert_eq!(setup.shown(), "rt      | working.\r\n");
    setup.idle();
    assert_eq!(setup.shown(), "");
    setup.write(RT, "..");
    for _ in 0..3 {
        setup.idle();
    }
    setup.write(RT, "\ndone\n");
    assert_eq!(setup.shown(), "rt      + ..\r\nrt      | done\r\n");
}

#[test]
fn the_end_of_a_stream_ends_its_line() {
    let mut setup = Setup::new(Reader::Terminal);
    setup.write(LINUX, "~ # ");
    setup.write(RT, "ab\x1b[");
    for source in [RT, LINUX, HYP] {
        setup.el2.end_stream(source);
    }
    setup.serve_all();
    assert_eq!(
        setup.shown(),
        "linux   | ~ # \r^[0m^[Krt      | ab\r\nlinux   | ~ # \r\n"
    );
    setup.write(RT, "1mc\n");
    setup.write(LINUX, "boot\n");
    assert_eq!(setup.shown(), "rt      | 1mc\r\nlinux   | boot\r\n");
}

#[test]
fn what_has_no_tag_is_passed_on() {
    let mut setup = Setup::new(Reader::Terminal);
    setup.host.feed(b"qemu: no\n(qemu) ").unwrap();
    assert_eq!(setup.shown(), "qemu: no\r\n(qemu) ");
    setup
        .host
        .feed(b"\r\nrt | tick\r\nlinux | ~ # \r\n\r\n=== died\n")
        .unwrap();
    assert_eq!(
        setup.shown(),
        "\r\nrt      | tick\r\nlinux   | ~ # \r\n\r\n=== died\r\n"
    );
}

#[test]
fn a_file_gets_whole_lines_without_styles() {
    let mut setup = Setup::new(Reader::File);
    setup.write(LINUX, "~ # \x1b[32mls");
    setup.write(RT, "ti\x1b[1;31mck\x1b[0m\n");
    setup.write(LINUX, "\x1b[0m\r\nrest");
    setup.host.end().unwrap();
    assert_eq!(
        setup.shown(),
        "rt      | tick\nlinux   | ~ # ls\nlinux   | rest\n"
    );
}

#[test]
fn a_viewer_gets_whole_lines_in_colours() {
    let mut setup = Setup::new(Reader::Viewer);
    setup.write(LINUX, "~ # ls");
    setup.write(RT, "tick\n");
    setup.write(LINUX, "\n");
    assert_eq!(
        String::from_utf8_lossy(&setup.host.out),
        "\x1b[0;33mrt      | \x1b[0mtick\r\n\x1b[0;36mlinux   | \x1b[0m~ # ls\r\n"
    );
}

#[test]
fn the_end_leaves_the_terminal_at_the_start_of_a_line() {
    let mut setup = Setup::new(Reader::Terminal);
    setup.write(LINUX, "~ # ");
    setup.host.end().unwrap();
    assert_eq!(setup.shown(), "linux   | ~ # ^[0m\r\n");
}
