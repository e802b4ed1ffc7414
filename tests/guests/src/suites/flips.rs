// SPDX-License-Identifier: MIT OR Apache-2.0
//! `suite=flips`: attacks the program `victim` as the suite `dma` does, `count=` times, each time another life of the victim.
//!
//! `target=`, `pages=`, `offset=` and `seed=` are as in `dma`. An attack comes up to `delay=` microseconds (default 1000) after the first period of
//! a life, at random. `used=1`: what is attacked is found only when the victim uses it. If the victim has used all of its pages since, and lives,
//! the same life is attacked again: then the victim has written over what was changed, or has not needed to bring it from main memory. Such
//! attacks do not count.
//!
//! A line says which life was attacked, where, and after how many microseconds it had ended: `attack 12 life=7 page=0x48010000 ended=830`. `alive`
//! instead of `ended`: the life has not ended so far. Another line, how long after that the next life had its first period: `life 8 alive=1720`.

use super::dma::{self, BYTES, PAGE};
use crate::machine::mmio::read64;
use crate::machine::random::Random;
use crate::machine::sysreg::{mask, mrs, unmask, wfi};
use crate::machine::time::{IMASK, Timer, now};
use crate::machine::uart::say;
use crate::machine::{bootargs, gic, interrupts, link};
use crate::report::{Verdict, check, record};
use crate::victim_link::{ALIVE, ALIVE_AT, CHANGES, LIFE_SHIFT, SWEEPS};
use core::sync::atomic::{AtomicU64, Ordering};

/// When the victim has ended so many more looks at all pages, it has looked at each of them since the attack.
const LOOKS: u64 = 2;
/// The victim ends and is ready again long before this.
const PATIENCE_US: u64 = 2_000_000;
/// The first attack comes so late.
const START_US: u64 = 50_000;

/// The number of the victim's life; 0 while it does not run.
static LIFE: AtomicU64 = AtomicU64::new(0);
/// When its last life was seen to have ended.
static ENDED_AT: AtomicU64 = AtomicU64::new(0);

/// Runs the suite.
pub fn run() {
    gic::start_distributor();
    gic::start_cpu();
    gic::start_spi(link::INTERRUPT);
    gic::set_edge(link::INTERRUPT, false);
    let verdict = interrupts::with_handler(handler, attack);
    gic::stop_spi(link::INTERRUPT);
    record("flips", verdict);
}

/// The timer, or the link: the victim has begun or ended a life, or signals.
fn handler(_line: interrupts::Line) {
    let at = now();
    let interrupt = gic::acknowledge();
    if interrupt == link::INTERRUPT {
        link::acknowledge();
        see_life(at);
    } else if interrupt == Timer::Virtual.interrupt() {
        Timer::Virtual.set_control(Timer::Virtual.control() | IMASK);
    }
    if interrupt != gic::SPURIOUS {
        gic::end(interrupt);
    }
}

fn see_life(at: u64) {
    let life = link::peer();
    let before = LIFE.swap(life, Ordering::Relaxed);
    if before != 0 && life != before {
        ENDED_AT.store(at, Ordering::Relaxed);
    }
}

/// Sleeps until `done`, or so long; returns whether it is done.
fn wait(microseconds: u64, done: impl Fn() -> bool) -> bool {
    let end = Timer::Virtual.start_us(microseconds);
    while !done() && now() < end {
        wfi();
        unmask();
        mask();
    }
    Timer::Virtual.stop();
    done()
}

fn microseconds(ticks: u64) -> u64 {
    ticks * 1000 / (mrs!(CNTFRQ_EL0) / 1000)
}

fn life() -> u64 {
    LIFE.load(Ordering::Relaxed)
}

/// How often the victim has looked at all of its pages in this life.
fn looks() -> u64 {
    let word = read64(SWEEPS);
    match word >> LIFE_SHIFT {
        at if at == life() && at != 0 => word & ((1 << LIFE_SHIFT) - 1),
        _ => 0,
    }
}

/// Whether the victim has had its first period in this life.
fn is_ready() -> bool {
    life() != 0 && read64(ALIVE) == life()
}

fn attack() -> Verdict {
    dma::start()?;
    see_life(now());
    let mut random = Random::new(bootargs::number_or("seed", 1));
    let target = bootargs::number_or("target", 0);
    let words = bootargs::number_or("pages", 1) * PAGE / u64::from(BYTES);
    let delay = bootargs::number_or("delay", 1000);
    let by_use = bootargs::number_or("used", 0) != 0;
    let count = bootargs::number_or("count", 1);
    let (mut number, mut effective) = (0, 0);
    // Until then other guests may be starting, and the first life has not looked at its pages.
    wait(START_US, || false);
    check!(looks() > 0, "the victim does not look at its pages");
    while effective < count {
        check!(
            wait(PATIENCE_US, is_ready),
            "the victim is not ready after attack {number}"
        );
        wait(random.below(delay), || false);
        let attacked = life();
        let until = looks() + LOOKS;
        if attacked == 0 {
            continue;
        }
        number += 1;
        let at = target + random.below(words) * u64::from(BYTES);
        let page = at & !(PAGE - 1);
        dma::write(at)?;
        let written_at = now();
        let has_ended = || life() != attacked;
        wait(PATIENCE_US, || has_ended() || by_use && looks() >= until);
        if !has_ended() {
            say!("attack {number} life={attacked} page={page:#x} alive");
            check!(by_use, "attack {number} was not found");
            continue;
        }
        effective += 1;
        let ended_at = ENDED_AT.load(Ordering::Relaxed);
        let ended = microseconds(ended_at.saturating_sub(written_at));
        say!("attack {number} life={attacked} page={page:#x} ended={ended}");
        let next = attacked + 1;
        check!(
            wait(PATIENCE_US, || life() == next && read64(ALIVE) == next),
            "the victim does not live again after attack {number}"
        );
        let alive = microseconds(read64(ALIVE_AT) - ended_at);
        say!("life {next} alive={alive}");
    }
    say!("flips-result lives={} changes={}", life(), read64(CHANGES));
    Ok(())
}
