// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fuzzing of EL2 by hostile guests. It checks that EL2 never dies, that each iteration is short, that each vCPU finds its
//! registers as it left them, and that a well-behaved guest gets its time, its interrupts and its memory.
//!
//! A run depends only on its seed, which a failure prints. `SPUMONE_FUZZ_SEED` repeats the run of one machine;
//! `SPUMONE_FUZZ_EXITS` is the number of exits of all machines together.

mod hostile;
mod random;
mod shadow;
mod victim;

use super::bench::Bench;
use super::systems::*;
use crate::fake::{self, printed};
pub use random::Random;
use shadow::Shadow;
use spumone_config::packed::{
    InterruptPriorities, LinkEnd, LinkKind, Policy, Power, PowerMode, System, Trigger, WakeEarly,
};
use spumone_core::psci::Phase;
use std::cell::RefCell;
use std::rc::Rc;
use victim::Victim;

/// Exits of one machine.
const EXITS: u64 = 10_000;
/// Iterations of its core's loop within which the victim must be entered after its timer has expired.
const PATIENCE: u64 = 100;
/// Iterations without an exit of a hostile guest until the operator restarts one.
const SLEEP: u64 = 400;
const OPERATOR: u8 = 0x1D;
/// First SPI of hostile guests: on the machine, and for the guest.
const FIRST_SPI: (u16, u16) = (48, 40);
/// Number of SPIs of a hostile guest.
const SPIS: u16 = 4;

/// Prints the seed if the test fails.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("to run this machine again: SPUMONE_FUZZ_SEED={}", self.0);
        }
    }
}

/// The state of the guests of one machine.
struct FuzzGuests {
    random: Random,
    shadow: Shadow,
    victim: Victim,
    victim_number: u8,
    exits: u64,
    /// Hostile guests only sleep. Otherwise one of a high band would hold back the interrupts of lower bands on its
    /// core.
    only_sleep: bool,
}

/// A random system: several hostile guests, and the victim as the last one, with the highest band of its core.
fn some_system(random: &mut Random) -> System {
    let cores = 1 + random.below(4) as u8;
    let policy = random.one_of(&Policy::ALL);
    let hostile = 1 + random.below(3);
    let mut guests = Vec::new();
    for guest in 0..hostile as u16 {
        let priority = 1 + random.below(5) as u8;
        let vcpus: Vec<(u8, u8)> = (0..=random.below(3))
            .map(|_| (random.below(cores.into()) as u8, priority))
            .collect();
        let mut parts = GuestParts::new(&vcpus);
        if policy.moves_vcpus() && random.once_in(2) {
            parts = parts.on((1 << cores) - 1);
        }
        for n in 0..SPIS {
            let trigger = random.one_of(&[Trigger::Edge, Trigger::Level]);
            parts = parts.with_spi(FIRST_SPI.0 + SPIS * guest + n, FIRST_SPI.1 + n, trigger);
        }
        guests.push(parts.woken_early(some_early(random)));
    }
    let home = random.below(cores.into()) as u8;
    let victim = GuestParts::new(&[(home, 9)])
        .with_spi(victim::SPI.0, victim::SPI.1, Trigger::Edge)
        .woken_early(some_early(random));
    guests.push(victim);
    let mut system = system(cores, policy, &guests);
    if policy == Policy::Steal && random.once_in(2) {
        system.power = Some(some_power(random, &system));
    }
    // Between the victim and a hostile guest, or between two hostile guests.
    let victim = hostile as u8;
    match random.below(7) {
        0 => add_link(&mut system, 0, victim),
        1 if hostile > 1 => add_link(&mut system, 0, 1),
        2 => add_network_link(&mut system, 0, victim),
        3 if hostile > 1 => add_network_link(&mut system, 0, 1),
        4 => add_socket_link(&mut system, 0, victim),
        5 if hostile > 1 => add_socket_link(&mut system, 0, 1),
        _ => {}
    }
    if random.once_in(2) {
        let links = system.guests.iter_mut().flat_map(|it| &mut it.links);
        links.for_each(takes_large_frames);
    }
    if random.once_in(8) {
        system.scheduler.interrupt_priorities = InterruptPriorities::Flat;
    }
    system
}

/// Cores go off; some of them do at once.
fn some_power(random: &mut Random, system: &System) -> Power {
    let fixed = system.guests.iter().filter(|it| !it.moves);
    let homes = fixed.flat_map(|it| &it.vcpus).map(|it| it.home);
    let stay = homes.fold(1 << system.roles.console_core.0, |all, core| {
        all | 1 << core.0
    });
    let cores = system.board.core_mpidrs.len() as u64;
    Power {
        mode: random.one_of(&[PowerMode::Balanced, PowerMode::Saving]),
        least: 1,
        most: 1 + random.below(cores) as u8,
        stay,
        off_us: 0,
        on_us: 0,
    }
}

/// How early a guest is woken: always less than the victim's period.
fn some_early(random: &mut Random) -> WakeEarly {
    match random.below(4) {
        0 => WakeEarly::Microseconds(1 + random.below(10) as u32),
        1 => WakeEarly::Microseconds(1 + random.below(500) as u32),
        2 => WakeEarly::Auto,
        _ => WakeEarly::Off,
    }
}

fn takes_large_frames(link: &mut LinkEnd) {
    if let LinkKind::Network { offloads, .. } = &mut link.kind {
        *offloads = true;
    }
}

fn is_virtio(link: &LinkEnd) -> bool {
    !matches!(link.kind, LinkKind::Memory { .. })
}

/// Runs one machine, for this number of exits of hostile guests.
fn run(seed: u64, exits: u64) {
    let _seed = Seed(seed);
    let mut random = Random::new(seed);
    let system = some_system(&mut random);
    let victim_number = system.guests.len() as u8 - 1;
    let home = system.guests[usize::from(victim_number)].vcpus[0].home;
    let mpidr = system.board.core_mpidrs[home.index()];
    let cores = system.board.core_mpidrs.len() as u64;
    let mut bench = Bench::boot(&system);
    let guests = Rc::new(RefCell::new(FuzzGuests {
        random: Random::new(random.any()),
        shadow: Shadow::default(),
        victim: Victim::default(),
        victim_number,
        exits: 0,
        only_sleep: false,
    }));
    let shared = Rc::clone(&guests);
    let has_virtio: Vec<bool> = system
        .guests
        .iter()
        .map(|guest| guest.links.iter().any(is_virtio))
        .collect();
    bench.guests.borrow_mut().habit = Some(Box::new(move |cpu| {
        let guests = &mut *shared.borrow_mut();
        guests.shadow.check(cpu);
        guests.shadow.renew(cpu);
        let (exit, is_general_open) = if cpu.guest == guests.victim_number {
            (guests.victim.act(cpu), false)
        } else if guests.only_sleep {
            (hostile::sleep(cpu), false)
        } else {
            guests.exits += 1;
            match has_virtio[usize::from(cpu.guest)] && guests.random.once_in(3) {
                true => (hostile::program_virtio(&mut guests.random, cpu), false),
                false => hostile::act(&mut guests.random, cpu),
            }
        };
        guests.shadow.keep(cpu, is_general_open);
        exit
    }));
    let (mut late, mut iterations, mut quiet) = (0, 0, 0);
    while guests.borrow().exits < exits {
        let core = random.below(cores) as usize;
        let exits = guests.borrow().exits;
        bench.iterate(core);
        quiet = match guests.borrow().exits - exits {
            0 => quiet + 1,
            _ => 0,
        };
        assert_eq!(bench.ended, None, "the machine has ended:\n{}", printed());
        disturb(&mut random, &bench, victim_number);
        if quiet > SLEEP {
            quiet = 0;
            restart(&mut random, victim_number);
        }
        let guests = guests.borrow();
        guests.victim.check(mpidr);
        let is_loading =
            guests.victim.periods == 0 && bench.phase(victim_number) == Phase::Restoring;
        assert!(
            is_loading || bench.phase(victim_number) == Phase::Running,
            "the victim was stopped"
        );
        let is_late =
            guests.victim.due > 0 && guests.victim.due < fake::with(|machine| machine.clock);
        late = match is_late {
            true => late + u64::from(core == home.index()),
            false => 0,
        };
        assert!(
            late < PATIENCE,
            "the victim has waited for {late} iterations of its core\n{}",
            bench.state()
        );
        iterations += 1;
        assert!(
            iterations < 1_000 * (exits + 1_000),
            "guests do not run\n{}\n{}",
            bench.state(),
            printed()
        );
    }
    assert!(guests.borrow().victim.periods > 0, "the victim has not run");
    guests.borrow_mut().only_sleep = true;
    restart_all(&mut bench, victim_number);
}

/// The operator restarts all hostile guests. Checks that their interrupts are in the initial state.
fn restart_all(bench: &mut Bench, victim: u8) {
    fake::with(|machine| {
        machine.set_uart_room(usize::MAX);
        (0..SPIS * u16::from(victim))
            .for_each(|spi| machine.gic.set_line(FIRST_SPI.0 + spi, false));
    });
    for guest in 0..victim {
        // Restarts that have begun are completed first.
        bench.iterations(1_000);
        bench.until("all keys are read", |_| {
            fake::with(|machine| machine.uart.typed.is_empty())
        });
        let life = bench.life(guest);
        order_restart(guest);
        bench.until("a hostile guest restarts", |bench| {
            bench.life(guest) > life && bench.phase(guest) == Phase::Running
        });
        let own = FIRST_SPI.0 + SPIS * u16::from(guest);
        for interrupt in own..own + SPIS {
            fake::with(|machine| {
                let (bank, bit) = machine.gic.spi(interrupt);
                assert_eq!(bank.active & bit, 0, "SPI {interrupt} is still active");
                assert_eq!(bank.enabled & bit, 0, "SPI {interrupt} is still on");
            });
        }
    }
}

/// Random events of devices, and of the operator.
fn disturb(random: &mut Random, bench: &Bench, victim: u8) {
    match random.below(400) {
        0..40 => {
            let all = u64::from(SPIS) * u64::from(victim);
            let interrupt = FIRST_SPI.0 + random.below(all) as u16;
            let high = random.once_in(2);
            fake::with(|machine| machine.gic.set_line(interrupt, high));
        }
        40..44 => {
            let keys = [random.one_of(b"abc\r"), random.any() as u8 | 0x80];
            fake::with(|machine| machine.type_keys(&keys));
        }
        44 => {
            let key = random.one_of(b"12ns?h");
            fake::with(|machine| machine.type_keys(&[OPERATOR, key]));
        }
        45..50 => {
            let room = random.one_of(&[0, 1, 16, usize::MAX]);
            fake::with(|machine| machine.set_uart_room(room));
        }
        50..60 => fake::with(|machine| {
            machine.clock += random.below(20_000);
            // Not checked; cleared so that it does not grow.
            machine.uart.printed.clear();
        }),
        _ => {}
    }
    // Restarts guests that have stopped.
    for guest in 0..victim {
        if matches!(bench.phase(guest), Phase::Stopped(_)) && random.once_in(100) {
            order_restart(guest);
        }
    }
}

/// The operator restarts a random guest: all hostile guests sleep.
fn restart(random: &mut Random, victim: u8) {
    fake::with(|machine| machine.set_uart_room(usize::MAX));
    order_restart(random.below(victim.into()) as u8);
}

fn order_restart(guest: u8) {
    fake::with(|machine| {
        if machine.uart.typed.is_empty() {
            machine.type_keys(&[OPERATOR, b'1' + guest, OPERATOR, b'r']);
        }
    });
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn run_all(exits: u64) {
    if let Some(seed) = number("SPUMONE_FUZZ_SEED") {
        return run(seed, EXITS);
    }
    let exits = number("SPUMONE_FUZZ_EXITS").unwrap_or(exits);
    for seed in 0..exits.div_ceil(EXITS) {
        run(seed, EXITS);
    }
}

#[test]
fn hostile_guests_do_not_affect_others() {
    run_all(200_000);
}

#[test]
#[ignore = "takes long: ten million exits"]
fn hostile_guests_do_not_affect_others_for_long() {
    run_all(10_000_000);
}
