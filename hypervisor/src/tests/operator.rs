// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keyboard input, commands of the operator and console output.

use super::bench::Bench;
use super::guest::gicd;
use super::systems::*;
use crate::fake::{self, Ended, Register, printed};
use spumone_config::packed::Policy;

const OPERATOR: u8 = 0x1D;
/// Registers of a guest's UART.
const DR: u64 = 0x00;
const FR: u64 = 0x18;
const IMSC: u64 = 0x38;
const FR_RXFE: u64 = 1 << 4;
const RXIM: u32 = 1 << 4;

fn running() -> Bench {
    let guests = [GuestParts::new(&[(0, 20)]), GuestParts::new(&[(1, 10)])];
    let mut bench = Bench::boot(&system(2, Policy::None, &guests));
    bench.until_all_run();
    bench
}

fn type_keys(keys: &[u8]) {
    fake::with(|machine| machine.type_keys(keys));
}

/// Has a guest read all input from its UART.
fn read_keys(bench: &mut Bench, guest: u8) -> Vec<u8> {
    let mut read = Vec::new();
    while bench
        .does_and_returns(guest, 0, |cpu| cpu.load(UART + FR))
        .x[1]
        & FR_RXFE
        == 0
    {
        let byte = bench
            .does_and_returns(guest, 0, |cpu| cpu.load(UART + DR))
            .x[1];
        read.push(byte as u8);
    }
    read
}

#[test]
fn what_is_typed_goes_to_the_guest_that_has_the_keyboard() {
    let mut bench = running();
    type_keys(b"ab");
    bench.iterations(50);
    assert_eq!(read_keys(&mut bench, 0), b"");
    assert_eq!(
        read_keys(&mut bench, 1),
        b"ab",
        "the guest of the lowest priority has the focus at first"
    );
    type_keys(&[OPERATOR, b'1', b'c']);
    bench.iterations(50);
    assert_eq!(read_keys(&mut bench, 0), b"c");
    assert_eq!(read_keys(&mut bench, 1), b"");
}

#[test]
fn a_key_interrupts_the_guest_wherever_it_runs() {
    let mut bench = running();
    bench.opens_gic(0, 0, &[GUEST_UART_INTERRUPT]);
    bench.does(0, 0, |cpu| cpu.store(UART + IMSC, RXIM));
    bench.does(0, 0, |cpu| cpu.wfi());
    type_keys(&[OPERATOR, b'1', b'c']);
    assert_eq!(bench.acknowledges(0, 0), GUEST_UART_INTERRUPT);
}

#[test]
fn the_status_command_is_answered() {
    let mut bench = running();
    type_keys(&[OPERATOR, b's']);
    bench.until("the answer", |_| {
        printed().contains("guest0") && printed().contains("running, life 1")
    });
}

#[test]
fn the_operator_turns_the_machine_off() {
    let mut bench = running();
    type_keys(&[OPERATOR, b'x', b'x']);
    bench.iterations(200);
    assert_eq!(bench.ended, Some(Ended::Halted));
    assert!(fake::with(|machine| machine.is_off));
    assert!(printed().contains("the machine goes off"));
}

#[test]
fn output_waits_for_room_and_none_is_lost() {
    let mut bench = running();
    bench.iterations(50);
    fake::with(|machine| machine.set_uart_room(0));
    let text: Vec<u8> = (0..200).map(|n| b'a' + n % 26).collect();
    for &byte in &text {
        bench.does(1, 0, move |cpu| cpu.store(UART + DR, u32::from(byte)));
    }
    bench.does(1, 0, |cpu| cpu.store(UART + DR, u32::from(b'\n')));
    bench.iterations(20);
    for _ in 0..60 {
        fake::with(|machine| machine.set_uart_room(8));
        bench.iterations(20);
    }
    let text = String::from_utf8(text).unwrap();
    assert!(printed().contains(&text), "{}", printed());
}

/// The UART has room again, and the core takes that interrupt just before a real-time vCPU wakes: the core prints only a
/// little before it runs that vCPU.
#[test]
fn output_hardly_delays_a_higher_band() {
    let guests = [GuestParts::new(&[(0, 20)]), GuestParts::new(&[(0, 10)])];
    let mut bench = Bench::boot(&system(1, Policy::None, &guests));
    let wakes = 1 << 40;
    bench.does(0, 0, move |cpu| {
        cpu.set(Register::CNTV_CVAL_EL0, wakes);
        cpu.set(Register::CNTV_CTL_EL0, 1);
        cpu.wfi()
    });
    bench.until_all_run();
    bench.iterations(50);
    fake::with(|machine| machine.set_uart_room(0));
    for byte in *b"One line of output.\nAnd another one.\n" {
        bench.does(1, 0, move |cpu| cpu.store(UART + DR, u32::from(byte)));
    }
    // The alarm is armed for nothing else then.
    fake::with(|machine| machine.clock = wakes - 100_000);
    bench.iterations(20);
    let before = fake::with(|machine| {
        machine.clock = wakes - 600;
        machine.acknowledge_ticks = 600;
        machine.set_uart_room(100);
        machine.uart.printed.len()
    });
    bench.until("the real-time guest runs", |bench| bench.runs_on(0, 0, 0));
    bench.iterations(1);
    let printed = fake::with(|machine| machine.uart.printed.len()) - before;
    assert!((1..16).contains(&printed), "{printed} bytes");
}

#[test]
fn the_uart_of_the_machine_interrupts_the_console_core_only() {
    let mut bench = running();
    bench.iterations(5);
    let (route, is_on) = fake::with(|machine| {
        let route = machine.gic.routes[usize::from(UART_INTERRUPT)];
        let (bank, bit) = machine.gic.spi(UART_INTERRUPT);
        (route, bank.enabled & bit != 0)
    });
    assert_eq!((route, is_on), (1, true), "the core of the lowest priority");
    // A guest's virtual distributor does not affect it.
    bench.opens_gic(0, 0, &[]);
    bench.does(0, 0, |cpu| {
        cpu.store(DISTRIBUTOR + gicd::ISENABLER + 4, u32::MAX)
    });
    bench.does(0, 0, |cpu| {
        cpu.store(DISTRIBUTOR + gicd::ICENABLER + 4, u32::MAX)
    });
    fake::with(|machine| {
        let (bank, bit) = machine.gic.spi(UART_INTERRUPT);
        assert_ne!(bank.enabled & bit, 0);
    });
}
