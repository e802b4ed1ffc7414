// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every interleaving of the core that reads the terminal with the guest's cores. Run with
//! `RUSTFLAGS="--cfg loom" cargo test -p spumone-core --release loom_tests`.

use super::*;
use loom::sync::Arc;
use loom::thread;

struct Machine {
    uart: Vuart,
    /// The level that the guest's interrupt controller got last.
    level: AtomicBool,
}

impl Machine {
    fn publish(&self) {
        self.uart
            .publish_line(|level| self.level.store(level, Ordering::Relaxed));
    }
}

#[test]
fn the_last_level_published_is_the_present_one() {
    loom::model(|| {
        let machine = Arc::new(Machine {
            uart: Vuart::new(),
            level: AtomicBool::new(false),
        });
        let _ = machine
            .uart
            .write(register::IMSC, AccessSize::Word, u64::from(INT_RX), 1000);
        assert!(machine.uart.receive(b'x'));
        machine.publish();
        let other = machine.clone();
        let terminal = thread::spawn(move || {
            assert!(other.uart.receive(b'y'));
            other.publish();
        });
        for _ in 0..2 {
            let (_, effect) = machine.uart.read(register::DR, AccessSize::Word, 1000);
            if effect.line_changed {
                machine.publish();
            }
        }
        terminal.join().unwrap();
        assert_eq!(machine.level.load(Ordering::Relaxed), machine.uart.line());
    });
}

#[test]
fn each_byte_is_read_once() {
    loom::model(|| {
        let uart = Arc::new(Vuart::new());
        for byte in [1, 2] {
            assert!(uart.receive(byte));
        }
        let other = uart.clone();
        let read = |uart: &Vuart| uart.read(register::DR, AccessSize::Word, 1000).0;
        let vcpu = thread::spawn(move || read(&other));
        let mut bytes = [read(&uart), vcpu.join().unwrap()];
        bytes.sort_unstable();
        assert_eq!(bytes, [1, 2]);
    });
}
