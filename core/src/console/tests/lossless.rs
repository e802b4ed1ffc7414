// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whatever happens: all that was written is shown, and only what may be.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// What a guest has written, as lines: a carriage return that begins no line break ends a line
/// that has something in it.
fn lines_written(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut lines = std::vec![Vec::new()];
    let mut returned = false;
    for &byte in bytes {
        match byte {
            b'\n' => lines.push(Vec::new()),
            b'\r' => {}
            _ => {
                if returned && !lines.last().unwrap().is_empty() {
                    lines.push(Vec::new());
                }
                lines.last_mut().unwrap().push(byte);
            }
        }
        returned = byte == b'\r';
    }
    if lines.last().unwrap().is_empty() {
        lines.pop();
    }
    lines
}

/// The parts of `bytes` between occurrences of `separator`.
fn split<'a>(bytes: &'a [u8], separator: &str) -> Vec<&'a [u8]> {
    let separator = separator.as_bytes();
    let mut parts = Vec::new();
    let mut start = 0;
    while let Some(at) = bytes[start..]
        .windows(separator.len())
        .position(|window| window == separator)
    {
        parts.push(&bytes[start..start + at]);
        start += at + separator.len();
    }
    parts.push(&bytes[start..]);
    parts
}

/// What a reader of the terminal finds of each name when tags are taken off.
fn lines_shown(bytes: &[u8]) -> BTreeMap<String, Vec<Vec<u8>>> {
    const STYLE_END: &[u8] = b"\x1b[0m";
    let mut shown = BTreeMap::<String, Vec<Vec<u8>>>::new();
    for line in split(bytes, "\r\n") {
        // What is erased is drawn again; what was written over before that is not.
        let mut parts = Vec::new();
        for drawing in split(line, "\r\x1b[0m\x1b[K") {
            parts.pop();
            parts.extend(split(drawing, "\r"));
        }
        for part in parts {
            let Some(rest) = part.strip_prefix(b"\x1b[0;") else {
                assert!(
                    part.is_empty() || part.starts_with(b" -- input: "),
                    "{part:?}"
                );
                continue;
            };
            let label = core::str::from_utf8(&rest[3..10]).unwrap().trim_end();
            let lines = shown.entry(label.into()).or_default();
            let (tag, text) = rest[10..].split_at(7);
            let text = text.strip_suffix(STYLE_END).unwrap_or(text);
            match tag {
                b" | \x1b[0m" => lines.push(text.into()),
                b" + \x1b[0m" => lines.last_mut().unwrap().extend_from_slice(text),
                _ => std::panic!("no tag: {part:?}"),
            }
        }
    }
    shown
}

#[derive(Clone, Debug)]
enum Step {
    Write(u8, String),
    Serve { room: usize, budget: usize },
    Idle,
    Focus(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0u8..3, "[a-cé \r\n]{0,12}").prop_map(|(guest, text)| Step::Write(guest, text)),
        1 => (0u8..3, "[x-zé]{200,600}").prop_map(|(guest, text)| Step::Write(guest, text)),
        4 => (0usize..300, 1usize..400).prop_map(|(room, budget)| Step::Serve { room, budget }),
        1 => Just(Step::Idle),
        1 => (0u8..3).prop_map(Step::Focus),
    ]
}

proptest! {
    /// However writing, drawing, focus changes and flushes interleave: with tags taken off, each
    /// guest's bytes are all there and in order.
    #[test]
    fn nothing_is_lost(steps in proptest::collection::vec(step(), 0..60)) {
        let mut setup = Setup::new();
        let mut written: [Vec<u8>; 3] = Default::default();
        for step in steps {
            match step {
                Step::Write(guest, text) => {
                    for byte in text.bytes() {
                        let source = Source::Guest(GuestId(guest));
                        if setup.console.push(source, byte).is_err() {
                            setup.serve_all();
                            setup.console.push(source, byte).unwrap();
                        }
                        written[usize::from(guest)].push(byte);
                    }
                }
                Step::Serve { room, budget } => { setup.serve(room, budget); }
                Step::Idle => setup.console.flush_idle(),
                Step::Focus(guest) => setup.console.set_focus(GuestId(guest)),
            }
        }
        setup.serve_all();
        setup.idle();
        let shown = lines_shown(&setup.screen.bytes);
        for (guest, name) in ["linux", "rt", "other"].iter().enumerate() {
            let shown = shown.get(*name).cloned().unwrap_or_default();
            prop_assert_eq!(lines_written(&written[guest]), shown, "{}", name);
        }
    }

    /// Any bytes: no panic, nothing stuck, and what is not focused cannot move the cursor.
    #[test]
    fn a_guest_without_focus_controls_nothing(
        text in 0usize..300,
        odd in proptest::collection::vec(
            prop_oneof![
                any::<u8>(),
                Just(0x1b),
                Just(b'['),
                Just(b']'),
                Just(b'm'),
                Just(b';'),
                Just(b'\\'),
                Just(0xc2)
            ],
            0..300,
        )
    ) {
        let bytes = [std::vec![b'x'; text], odd].concat();
        let mut setup = Setup::new();
        setup.write(RT, &bytes);
        setup.console.end_stream(RT);
        setup.serve_all();
        let shown = core::mem::take(&mut setup.screen.bytes);
        let mut rest = shown.as_slice();
        while let Some((&byte, tail)) = rest.split_first() {
            rest = match byte {
                0x1b => {
                    prop_assert_eq!(tail.first(), Some(&b'['));
                    let end = tail.iter().position(u8::is_ascii_alphabetic);
                    prop_assert_eq!(end.map(|end| tail[end]), Some(b'm'));
                    &tail[end.unwrap() + 1..]
                }
                b'\r' => {
                    prop_assert_eq!(tail.first(), Some(&b'\n'));
                    &tail[1..]
                }
                _ => {
                    prop_assert!(byte == b'\t' || byte >= b' ' && byte != 0x7f);
                    tail
                }
            };
        }
        // The focused guest gets through whatever it was; afterwards all is in order again.
        setup.write(LINUX, &bytes);
        setup.console.end_stream(LINUX);
        setup.serve_all();
        setup.screen.bytes.clear();
        setup.write(LINUX, "end\n");
        setup.write(RT, "end\n");
        prop_assert_eq!(setup.shown(), "linux   | end\r\nrt      | end\r\n");
    }
}
