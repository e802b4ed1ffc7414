// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cores that go off when they are not needed, and come back.

use super::bench::Bench;
use super::systems::*;
use crate::fake;
use spumone_config::PcpuId;
use spumone_config::packed::{Policy, Power, PowerMode, System, Trigger};
use spumone_config::roles::console_core_of;
use spumone_core::migration::Level;

/// A guest with three vCPUs that migrate between three cores, and a real-time guest on core 0, which stays on.
fn described(mode: PowerMode) -> System {
    let migrates = GuestParts::new(&[(0, 10), (1, 10), (2, 10)])
        .on(0b111)
        .with_spi(42, 52, Trigger::Edge);
    let real_time = GuestParts::new(&[(0, 20)]).with_spi(40, 50, Trigger::Edge);
    let mut system = system(3, Policy::Steal, &[migrates, real_time]);
    system.roles.console_core = console_core_of(0b001, &[]);
    system.power = Some(Power {
        mode,
        least: 1,
        most: 3,
        stay: 0b001,
        off_us: 0,
        on_us: 0,
    });
    system
}

fn running(mode: PowerMode) -> Bench {
    let mut bench = Bench::boot(&described(mode));
    bench.until("the real-time guest runs", |bench| {
        bench.entry(1, 0).count > 0
    });
    bench.opens_gic(1, 0, &[50]);
    bench.does(1, 0, |cpu| cpu.wfi());
    bench.until("the other guest runs", |bench| bench.entry(0, 0).count > 0);
    bench
}

fn is_off(bench: &Bench, core: u8) -> bool {
    bench.machine.shared.presence(PcpuId(core)).level() == Level::OFF
}

#[test]
fn cores_without_work_go_off() {
    let mut bench = running(PowerMode::Balanced);
    bench.does(0, 0, |cpu| cpu.wfi());
    bench.until("only core 0 is on", |bench| {
        is_off(bench, 1) && is_off(bench, 2)
    });
    assert!(!is_off(&bench, 0));
}
