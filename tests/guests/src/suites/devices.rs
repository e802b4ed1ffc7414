// SPDX-License-Identifier: MIT OR Apache-2.0
//! `suite=devices`: the machine's second PL011 and its PL031 clock, passed through: registers, and
//! interrupts of real lines, routed to each CPU.

use super::gic::{clean, next, stray};
use crate::machine::gic::{self, SPURIOUS, register};
use crate::machine::mmio::{read32, write32};
use crate::machine::sysreg::cpu;
use crate::machine::uart::{self, SECOND, interrupt, say};
use crate::machine::{cpus, interrupts, time};
use crate::report::{Verdict, check, check_eq, test, test_everywhere};

/// `CR`: UART on, transmitter and receiver on; loopback.
const ON: u32 = 1 << 0 | 1 << 8 | 1 << 9;
const LOOPBACK: u32 = 1 << 7;
/// `LCR_H`: 8 bits, FIFOs off.
const EIGHT_BITS: u32 = 3 << 5;

/// The clock (PL031, Arm DDI 0224).
mod rtc {
    /// First register.
    pub const BASE: u64 = 0x0901_0000;
    /// Its SPI.
    pub const INTERRUPT: u32 = 34;
    /// Seconds now.
    pub const DR: u64 = 0x00;
    /// Seconds at which it interrupts.
    pub const MR: u64 = 0x04;
    /// Interrupt mask.
    pub const IMSC: u64 = 0x10;
    /// Masked interrupt status.
    pub const MIS: u64 = 0x18;
    /// Interrupt clear.
    pub const ICR: u64 = 0x1C;
}

/// Runs the suite.
pub fn run() {
    gic::start_distributor();
    gic::start_cpu();
    let cpus = cpus::start_all();
    say!("devices begin");
    test("device-state", state_at_start);
    test_everywhere("device-loopback", cpus, loopback);
    test_everywhere("device-interrupt", cpus, level);
    test_everywhere("device-eoi-mode-1", cpus, eoi_mode_1);
    test_everywhere("device-disabled", cpus, disabled);
    test("device-to-sleeping-cpu", to_each_sleeping_cpu);
    test("device-clock", clock);
    for byte in b"from the second UART\n" {
        SECOND.send(*byte);
    }
}

/// No interrupt of an earlier life or guest is pending.
fn state_at_start() -> Verdict {
    check_eq!(SECOND.read(uart::register::IMSC), 0, "IMSC of the UART");
    check_eq!(read32(rtc::BASE + rtc::IMSC), 0, "IMSC of the clock");
    check!(
        !gic::bit(register::ISPENDR, SECOND.interrupt),
        "the UART's interrupt is pending"
    );
    Ok(())
}

fn start() {
    clean();
    SECOND.write(uart::register::IMSC, 0);
    SECOND.write(uart::register::LCR_H, EIGHT_BITS);
    SECOND.write(uart::register::CR, ON | LOOPBACK);
    while SECOND.receive().is_some() {}
    SECOND.write(uart::register::ICR, 0x7FF);
    gic::start_spi(SECOND.interrupt);
    gic::set_edge(SECOND.interrupt, false);
}

fn stop() {
    SECOND.write(uart::register::IMSC, 0);
    SECOND.write(uart::register::ICR, 0x7FF);
    SECOND.write(uart::register::CR, ON);
    gic::stop_spi(SECOND.interrupt);
}

fn loopback() -> Verdict {
    start();
    for byte in [0x55, 0xAA, 0x00, 0xFF] {
        SECOND.send(byte);
        check!(
            time::wait(|| SECOND.read(uart::register::FR) & uart::flag::RXFE == 0),
            "no byte"
        );
        check_eq!(SECOND.receive(), Some(byte), "the byte");
    }
    stop();
    Ok(())
}

/// While the byte is not read the level is high: the interrupt is signalled again each time it is ended.
fn level() -> Verdict {
    start();
    SECOND.write(uart::register::IMSC, interrupt::RX);
    for byte in 0..5 {
        SECOND.send(byte);
        for _ in 0..3 {
            check_eq!(next(), SECOND.interrupt, "with a byte there");
            check!(
                gic::bit(register::ISACTIVER, SECOND.interrupt),
                "byte {byte}: it is not active"
            );
            gic::end(SECOND.interrupt);
        }
        check_eq!(next(), SECOND.interrupt, "with a byte there");
        check_eq!(SECOND.receive(), Some(byte), "the byte");
        SECOND.write(uart::register::ICR, interrupt::RX);
        gic::end(SECOND.interrupt);
        check_eq!(stray(), SPURIOUS, "with no byte there");
    }
    stop();
    Ok(())
}

fn eoi_mode_1() -> Verdict {
    use crate::machine::sysreg::msr;
    start();
    SECOND.write(uart::register::IMSC, interrupt::RX);
    msr!(ICC_CTLR_EL1, 2);
    SECOND.send(1);
    for _ in 0..3 {
        check_eq!(next(), SECOND.interrupt, "with a byte there");
        gic::end(SECOND.interrupt);
        check_eq!(stray(), SPURIOUS, "while active");
        gic::deactivate(SECOND.interrupt);
    }
    check_eq!(next(), SECOND.interrupt, "with a byte there");
    SECOND.receive();
    SECOND.write(uart::register::ICR, interrupt::RX);
    gic::end(SECOND.interrupt);
    gic::deactivate(SECOND.interrupt);
    check_eq!(stray(), SPURIOUS, "with no byte there");
    stop();
    clean();
    Ok(())
}

fn disabled() -> Verdict {
    start();
    SECOND.write(uart::register::IMSC, interrupt::RX);
    gic::set_bit(register::ICENABLER, SECOND.interrupt);
    SECOND.send(1);
    check_eq!(stray(), SPURIOUS, "though disabled");
    check!(
        time::wait(|| gic::bit(register::ISPENDR, SECOND.interrupt)),
        "not pending while disabled"
    );
    gic::set_bit(register::ISENABLER, SECOND.interrupt);
    check_eq!(next(), SECOND.interrupt, "enabled");
    SECOND.receive();
    SECOND.write(uart::register::ICR, interrupt::RX);
    gic::end(SECOND.interrupt);
    // The level drops before the interrupt is enabled.
    gic::set_bit(register::ICENABLER, SECOND.interrupt);
    SECOND.send(2);
    time::delay_us(200);
    SECOND.receive();
    SECOND.write(uart::register::ICR, interrupt::RX);
    gic::set_bit(register::ISENABLER, SECOND.interrupt);
    check_eq!(stray(), SPURIOUS, "gone before it was enabled");
    stop();
    Ok(())
}

fn take_byte(_line: interrupts::Line) {
    let taken = gic::acknowledge();
    if taken == SECOND.interrupt {
        SECOND.receive();
        SECOND.write(uart::register::ICR, interrupt::RX);
        interrupts::note(taken);
    }
    if taken != SPURIOUS {
        gic::end(taken);
    }
}

fn receive_one() {
    interrupts::with_handler(take_byte, || {
        interrupts::sleep_until(|| interrupts::count(cpu()) > 0);
    });
}

fn to_each_sleeping_cpu() -> Verdict {
    for round in 0..5 {
        for target in 1..cpus::count() {
            interrupts::forget(target);
            cpus::begin(target, receive_one);
            start();
            gic::route(SECOND.interrupt, target);
            SECOND.write(uart::register::IMSC, interrupt::RX);
            SECOND.send(1);
            let come = time::wait(|| interrupts::count(target) > 0);
            check!(come, "it does not arrive at CPU {target} in round {round}");
            cpus::finish(target);
            check_eq!(stray(), SPURIOUS, "on the first CPU");
            check_eq!(interrupts::count(target), 1, "taken by CPU {target}");
            interrupts::forget(target);
            stop();
        }
    }
    Ok(())
}

fn clock() -> Verdict {
    clean();
    gic::start_spi(rtc::INTERRUPT);
    gic::set_edge(rtc::INTERRUPT, false);
    let now = read32(rtc::BASE + rtc::DR);
    check!(now > 1_500_000_000, "the clock reads {now}");
    write32(rtc::BASE + rtc::MR, now + 2);
    write32(rtc::BASE + rtc::IMSC, 1);
    check_eq!(next(), rtc::INTERRUPT, "when its time is reached");
    check!(
        read32(rtc::BASE + rtc::DR) >= now + 2,
        "before its time is reached"
    );
    check_eq!(read32(rtc::BASE + rtc::MIS), 1, "MIS");
    write32(rtc::BASE + rtc::ICR, 1);
    gic::end(rtc::INTERRUPT);
    check_eq!(stray(), SPURIOUS, "after it was cleared");
    write32(rtc::BASE + rtc::IMSC, 0);
    gic::stop_spi(rtc::INTERRUPT);
    Ok(())
}
