// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whatever happens: all that was written is shown, and only what may be.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// What a guest has written, as lines: a carriage return that begins no line break ends a line
/// that has something in it.
fn lines_written(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut lines = vec![Vec::new()];
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
                assert!(part.is_empty(), "{part:?}");
                continue;
            };
            let label = std::str::from_utf8(&rest[3..10]).unwrap().trim_end();
            let lines = shown.entry(label.into()).or_default();
            let (tag, text) = rest[10..].split_at(7);
            let text = text.strip_suffix(STYLE_END).unwrap_or(text);
            match tag {
                b" | \x1b[0m" => lines.push(text.into()),
                b" + \x1b[0m" => lines.last_mut().unwrap().extend_from_slice(text),
                _ => panic!("no tag: {part:?}"),
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
        let mut setup = Setup::new(Reader::Terminal);
        let mut written: [Vec<u8>; 3] = Default::default();
        for step in steps {
            match step {
                Step::Write(guest, text) => {
                    setup.push(Source::Guest(GuestId(guest)), &text);
                    written[usize::from(guest)].extend(text.bytes());
                }
                Step::Serve { room, budget } => { setup.serve(room, budget); }
                Step::Idle => setup.idle(),
                Step::Focus(guest) => setup.focus(guest),
            }
        }
        setup.serve_all();
        for _ in 0..3 {
            setup.idle();
        }
        let shown = lines_shown(&setup.host.out);
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
        let bytes = [vec![b'x'; text], odd].concat();
        let mut setup = Setup::new(Reader::Terminal);
        setup.write(RT, &bytes);
        setup.el2.end_stream(RT);
        setup.serve_all();
        let shown = std::mem::take(&mut setup.host.out);
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
        setup.el2.end_stream(LINUX);
        setup.serve_all();
        setup.host.out.clear();
        setup.write(LINUX, "end\n");
        setup.write(RT, "end\n");
        prop_assert_eq!(setup.shown(), "linux   | end\r\nrt      | end\r\n");
    }
}

proptest! {
    /// Any bytes, also those that EL2 itself writes between them: each guest's come out as its own, in order.
    #[test]
    fn no_byte_comes_out_as_anothers(
        writes in proptest::collection::vec(
            (0u8..2, proptest::collection::vec(
                prop_oneof![any::<u8>(), proptest::sample::select(&b"\r\n\x10\x18\x1b|+ \0"[..])],
                0..20,
            )),
            0..30,
        ),
    ) {
        let mut setup = Setup::new(Reader::Terminal);
        let mut demux = spumone_bench::demux::Demux::default();
        let mut written: [Vec<u8>; 2] = Default::default();
        let mut read = BTreeMap::<String, Vec<u8>>::new();
        for (guest, bytes) in writes {
            written[usize::from(guest)].extend(&bytes);
            for byte in bytes {
                setup.el2.push(Source::Guest(GuestId(guest)), byte).unwrap();
            }
            setup.el2.flush_idle();
            setup.el2.flush_idle();
            setup.uart.room = usize::MAX;
            let (el2, mux, uart) = (&setup.el2, &mut setup.mux, &mut setup.uart);
            el2.serve(|token| mux.drain(token, el2, uart, usize::MAX));
            for byte in std::mem::take(&mut uart.bytes) {
                demux.feed(byte, |source, byte| read.entry(source.into()).or_default().push(byte));
            }
        }
        for (guest, name) in ["linux", "rt"].iter().enumerate() {
            let plain = |bytes: &[u8]| -> Vec<u8> {
                bytes.iter().copied().filter(|byte| !b"\r\0".contains(byte)).collect()
            };
            let read = read.remove(*name).unwrap_or_default();
            prop_assert_eq!(plain(&written[guest]), plain(&read), "{}", name);
        }
        prop_assert!(read.is_empty(), "of no guest: {:?}", read);
    }
}
