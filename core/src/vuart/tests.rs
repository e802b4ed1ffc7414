// SPDX-License-Identifier: MIT OR Apache-2.0
use super::*;
use proptest::prelude::*;
use std::vec::Vec;

const ROOM: usize = 1000;
const WORD: AccessSize = AccessSize::Word;

fn read(uart: &Vuart, offset: u64) -> u32 {
    uart.read(offset, WORD, ROOM).0 as u32
}

fn write(uart: &Vuart, offset: u64, value: u32) -> Effect {
    uart.write(offset, WORD, u64::from(value), ROOM)
}

/// What Linux's driver does before it opens the port: 8 bits, FIFOs on, receive interrupts.
fn linux_start(uart: &Vuart) {
    let _ = write(uart, register::ICR, 0x7d0);
    let _ = write(uart, register::IFLS, 0x12);
    let _ = write(uart, register::LCR_H, 0x70);
    let _ = write(uart, register::CR, 0x301);
    let _ = write(uart, register::IMSC, INT_RX | INT_RT);
}

#[test]
fn a_guest_that_only_writes_characters_prints() {
    let uart = Vuart::new();
    assert_eq!(read(&uart, register::FR) & (FR_TXFF | FR_BUSY), 0);
    let effect = uart.write(register::DR, AccessSize::Byte, 0x41, ROOM);
    assert_eq!(effect.transmit, Some(b'A'));
    assert!(!effect.stalled && !uart.line());
}

#[test]
fn it_identifies_itself_as_a_primecell_uart() {
    let uart = Vuart::new();
    let id = |first: u64| (0..4).fold(0, |id, n| id | read(&uart, first + 4 * n) << (8 * n));
    assert_eq!(id(0xfe0), 0x0034_1011);
    assert_eq!(id(0xff0), 0xb105_f00d);
    assert_eq!(read(&uart, 0xfdc), 0);
}

#[test]
fn registers_keep_what_is_written_until_reset() {
    let uart = Vuart::new();
    let registers = [
        (register::IBRD, 0xffff, 0),
        (register::FBRD, 0x3f, 0),
        (register::LCR_H, 0xff, 0),
        (register::CR, 0xffff, CR_RESET),
        (register::IFLS, 0x3f, IFLS_RESET),
        (register::IMSC, 0x7ff, 0),
    ];
    for (offset, mask, reset) in registers {
        assert_eq!(read(&uart, offset), reset, "{offset:#x}");
        let _ = write(&uart, offset, u32::MAX);
        assert_eq!(read(&uart, offset), mask, "{offset:#x}");
    }
    let _ = write(&uart, register::CR, CR_RXE);
    assert!(uart.receive(1));
    let _ = write(&uart, register::DR, 1);
    uart.reset();
    for (offset, _, reset) in registers {
        assert_eq!(read(&uart, offset), reset, "{offset:#x}");
    }
    assert_eq!(read(&uart, register::RIS), 0);
    assert_ne!(read(&uart, register::FR) & FR_RXFE, 0);
}

#[test]
fn narrow_reads_see_their_part_of_the_register() {
    let uart = Vuart::new();
    let _ = write(&uart, register::CR, 0x0301);
    assert_eq!(uart.read(register::CR, AccessSize::Half, ROOM).0, 0x301);
    assert_eq!(uart.read(register::CR, AccessSize::Byte, ROOM).0, 0x01);
    assert_eq!(uart.read(register::CR + 1, AccessSize::Byte, ROOM).0, 0x03);
    let _ = uart.write(register::CR + 1, AccessSize::Byte, 0xff, ROOM);
    assert_eq!(read(&uart, register::CR), 0x301);
}

#[test]
fn no_transmit_interrupt_before_the_first_character() {
    let uart = Vuart::new();
    linux_start(&uart);
    let effect = write(&uart, register::IMSC, INT_RX | INT_RT | INT_TX);
    assert!(effect.line_changed && !uart.line());
    let effect = write(&uart, register::DR, 0x61);
    assert!(effect.line_changed && uart.line());
    assert_eq!(read(&uart, register::MIS), INT_TX);
    // The second character finds the interrupt raised already.
    assert!(!write(&uart, register::DR, 0x62).line_changed);
    assert!(write(&uart, register::ICR, INT_TX).line_changed && !uart.line());
    assert!(write(&uart, register::DR, 0x63).line_changed && uart.line());
    assert!(write(&uart, register::IMSC, 0).line_changed && !uart.line());
}

/// Linux's driver: write until `TXFF`, unmask the transmit interrupt, then in each interrupt write
/// 16 bytes without looking. The console has room for `capacity` bytes and drains `step` at once.
fn linux_writes_to_a_slow_console(capacity: usize, step: usize) {
    const TOTAL: usize = 2000;
    let uart = Vuart::new();
    linux_start(&uart);
    let mut waiting = 0; // bytes in the console's ring
    let mut sent = 0;
    let full = |waiting| uart.read(register::FR, WORD, capacity - waiting).0 as u32 & FR_TXFF != 0;
    while !full(waiting) {
        let effect = uart.write(register::DR, WORD, 0x61, capacity - waiting);
        assert!(effect.transmit.is_some());
        waiting += 1;
        sent += 1;
    }
    assert!(uart.is_stalled() && sent < TOTAL);
    let _ = write(&uart, register::IMSC, INT_RX | INT_RT | INT_TX);
    // The guest makes progress each time the console has drained, so this ends.
    while sent < TOTAL {
        while uart.line() {
            for _ in 0..16 {
                let effect = uart.write(register::DR, WORD, 0x61, capacity - waiting);
                assert!(effect.transmit.is_some(), "lost byte {sent}");
                waiting += 1;
                sent += 1;
            }
        }
        assert!(uart.is_stalled());
        assert_ne!(waiting, 0, "nothing to wait for");
        waiting = waiting.saturating_sub(step);
        let _ = uart.output_drained(capacity - waiting);
    }
}

#[test]
fn the_linux_driver_loses_no_byte_when_the_console_is_slow() {
    for capacity in 200..220 {
        for step in [1, 7, 16, 300] {
            linux_writes_to_a_slow_console(capacity, step);
        }
    }
}

#[test]
fn a_full_console_shows_in_the_flags_until_it_has_drained() {
    let uart = Vuart::new();
    let (flags, effect) = uart.read(register::FR, WORD, TX_RESERVE);
    assert_eq!(
        flags as u32 & (FR_TXFF | FR_TXFE | FR_BUSY),
        FR_TXFF | FR_BUSY
    );
    assert!(effect.stalled && uart.is_stalled());
    assert!(!uart.output_drained(TX_RESUME - 1) && uart.is_stalled());
    assert!(uart.output_drained(TX_RESUME) && !uart.is_stalled());
    assert!(!uart.output_drained(TX_RESUME));
    let (flags, effect) = uart.read(register::FR, WORD, TX_RESERVE + 1);
    assert_eq!(flags as u32 & (FR_TXFF | FR_TXFE | FR_BUSY), FR_TXFE);
    assert!(!effect.stalled);
}

#[test]
fn a_byte_written_without_room_is_lost() {
    let uart = Vuart::new();
    assert_eq!(uart.write(register::DR, WORD, 0x61, 1).transmit, Some(b'a'));
    assert_eq!(uart.write(register::DR, WORD, 0x61, 0).transmit, None);
    let _ = write(&uart, register::CR, CR_LBE);
    assert_eq!(write(&uart, register::DR, 0x61).transmit, None);
}

#[test]
fn received_bytes_raise_timeout_then_trigger_level() {
    let uart = Vuart::new();
    linux_start(&uart);
    for n in 0..15 {
        assert!(uart.receive(n));
        assert_eq!(read(&uart, register::MIS), INT_RT);
    }
    assert!(uart.receive(15));
    assert_eq!(read(&uart, register::MIS), INT_RX);
    // Clearing does not hide bytes that are there.
    let _ = write(&uart, register::ICR, INT_RX | INT_RT);
    assert!(uart.line());
    for n in 0..16 {
        assert_eq!(read(&uart, register::FR) & FR_RXFE, 0);
        assert_eq!(read(&uart, register::DR), n);
    }
    assert!(!uart.line());
    assert_ne!(read(&uart, register::FR) & FR_RXFE, 0);
    assert_eq!(read(&uart, register::DR), 0);
}

#[test]
fn without_fifos_each_byte_raises_the_receive_interrupt() {
    let uart = Vuart::new();
    assert!(uart.receive(b'x'));
    assert_eq!(read(&uart, register::RIS), INT_RX);
    assert_ne!(read(&uart, register::FR) & FR_RXFF, 0);
}

#[test]
fn trigger_levels_are_parts_of_32() {
    for (select, level) in [(0, 4), (1, 8), (2, 16), (3, 24), (4, 28)] {
        let uart = Vuart::new();
        linux_start(&uart);
        let _ = write(&uart, register::IFLS, select << 3);
        for _ in 0..level - 1 {
            assert!(uart.receive(0));
        }
        assert_eq!(read(&uart, register::RIS), INT_RT, "level {level}");
        assert!(uart.receive(0));
        assert_eq!(read(&uart, register::RIS), INT_RX, "level {level}");
    }
}

#[test]
fn bytes_beyond_the_fifo_or_with_reception_off_are_refused() {
    let uart = Vuart::new();
    linux_start(&uart);
    for n in 0..DEPTH {
        assert!(uart.receive(n as u8));
    }
    assert!(!uart.receive(0xff));
    assert_ne!(read(&uart, register::FR) & FR_RXFF, 0);
    assert_eq!(read(&uart, register::DR), 0);
    assert!(uart.receive(0xff));
    let _ = write(&uart, register::CR, 0x101);
    assert!(!uart.receive(0xff));
}

#[test]
fn publish_repeats_when_the_line_changes_meanwhile() {
    let uart = Vuart::new();
    linux_start(&uart);
    let mut published = Vec::new();
    uart.publish_line(|level| {
        if published.is_empty() {
            assert!(uart.receive(b'x'));
        }
        published.push(level);
    });
    assert_eq!(published, [false, true]);
}

#[test]
fn publish_ends_even_if_the_line_keeps_changing() {
    let uart = Vuart::new();
    let mut calls = 0;
    uart.publish_line(|_| {
        calls += 1;
        let _ = write(&uart, register::IMSC, INT_RX);
        if !uart.receive(b'x') || calls % 2 == 0 {
            uart.received.clear();
        }
    });
    assert_eq!(calls, 4);
}

proptest! {
    /// No access of any size and offset panics; after each step the line agrees with `MIS`, and a change of the line is
    /// always reported.
    #[test]
    fn no_access_panics_and_line_changes_are_reported(
        steps in proptest::collection::vec((0u8..4, 0u64..0x1000, any::<u64>(), 0usize..300), 0..200)
    ) {
        let uart = Vuart::new();
        let mut line = false;
        for (kind, offset, value, room) in steps {
            let size = match value % 4 {
                0 => AccessSize::Byte,
                1 => AccessSize::Half,
                2 => AccessSize::Word,
                _ => AccessSize::Double,
            };
            // Mostly real registers.
            let offset = if value & 8 != 0 { offset & 0x7c } else { offset };
            let reported = match kind {
                0 => uart.read(offset, size, room).1.line_changed,
                1 => uart.write(offset, size, value >> 32, room).line_changed,
                2 => uart.receive(value as u8),
                _ => uart.output_drained(room),
            };
            if uart.line() != line {
                prop_assert!(reported, "{kind} {offset:#x} {value:#x}");
                line = uart.line();
            }
            prop_assert_eq!(uart.read(register::MIS, WORD, room).0 != 0, line);
        }
    }
}
