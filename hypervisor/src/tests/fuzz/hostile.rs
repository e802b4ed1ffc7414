// SPDX-License-Identifier: MIT OR Apache-2.0
//! A hostile guest: it does random things, permitted, forbidden and meaningless ones.

use super::random::Random;
use crate::fake::{self, REDISTRIBUTOR_SIZE, Register};
use crate::guest_registers::Exit;
use crate::tests::guest::{GuestCpu, class, gicd, psci};
use crate::tests::systems::*;
use spumone_core::trap::SysReg;

/// Modes in which a guest can be: EL0, EL1 with either stack, AArch32 at EL0.
const MODES: [u64; 4] = [0b0_0000, 0b0_0100, 0b0_0101, 0b1_0000];
/// Base addresses of the devices that EL2 emulates.
const DEVICES: [u64; 3] = [DISTRIBUTOR, REDISTRIBUTORS, UART];

/// What a hostile guest does until its next exit. Also returns whether the syndrome may name any general register.
pub fn act(random: &mut Random, cpu: &mut GuestCpu<'_>) -> (Exit, bool) {
    use_interface(random, cpu);
    if random.once_in(4) {
        set_timers(random, cpu);
    }
    if random.once_in(8) {
        let flags = random.any() & 0xF000_0000_0020_03C0;
        cpu.registers.pstate = flags | random.one_of(&MODES);
        cpu.registers.pc = random.value() & !3;
    }
    let exit = match random.below(1000) {
        0..100 => cpu.interrupted(),
        100..150 => {
            // In most cases a timer will wake it.
            if !random.once_in(8) {
                set_timers(random, cpu);
            }
            cpu.wfi()
        }
        150..170 => cpu.wfe(),
        170..310 => call_firmware(random, cpu),
        310..410 => send_sgi(random, cpu),
        410..490 => touch_register(random, cpu),
        490..660 => touch_device(random, cpu),
        660..850 => program_gic(random, cpu),
        850..900 => print(random, cpu),
        900..998 => well_known_trap(random, cpu),
        _ => return (nonsense(random, cpu), true),
    };
    (exit, false)
}

/// Sleeps so that no interrupt wakes it: for the end of the test.
pub fn sleep(cpu: &GuestCpu<'_>) -> Exit {
    cpu.set(Register::ICH_VMCR_EL2, 0);
    cpu.set(Register::CNTV_CTL_EL0, 0);
    cpu.set(Register::CNTP_CTL_EL0, 0);
    cpu.wfi()
}

/// Turns its interface on or off, takes interrupts, and ends some of them.
fn use_interface(random: &mut Random, cpu: &GuestCpu<'_>) {
    match random.below(12) {
        0 => cpu.set(Register::ICH_VMCR_EL2, random.any() & 0xFFFC_021F),
        1..4 => cpu.open_interface(),
        4..7 => {
            cpu.acknowledge();
        }
        7..11 => {
            if let Some(interrupt) = cpu.acknowledge() {
                cpu.end(interrupt);
            }
        }
        // An interrupt that it may have acknowledged at some time, or never.
        _ => cpu.end(random.below(100) as u16),
    }
}

fn set_timers(random: &mut Random, cpu: &GuestCpu<'_>) {
    let soon = cpu.now() + random.below(100_000);
    let (control, compare) = random.one_of(&[
        (Register::CNTV_CTL_EL0, Register::CNTV_CVAL_EL0),
        (Register::CNTP_CTL_EL0, Register::CNTP_CVAL_EL0),
    ]);
    let at = if random.once_in(8) {
        random.value()
    } else {
        soon
    };
    cpu.set(compare, at);
    cpu.set(control, random.one_of(&[0, 1, 1, 1, 3]));
}

fn call_firmware(random: &mut Random, cpu: &mut GuestCpu<'_>) -> Exit {
    let entry = GUEST_MEMORY + random.below(GUEST_MEMORY_SIZE) / 4 * 4;
    let target = random.below(4);
    let x = match random.below(1000) {
        0 => [psci::SYSTEM_OFF, 0, 0, 0],
        1..4 => [psci::SYSTEM_RESET, 0, 0, 0],
        4..10 => [psci::CPU_OFF, 0, 0, 0],
        10..400 => [psci::CPU_ON, target, entry, random.any()],
        400..500 => [
            psci::CPU_SUSPEND,
            random.one_of(&[0, psci::POWERDOWN]),
            entry,
            random.any(),
        ],
        _ => {
            let family = random.one_of(&[0x8400_0000, 0xC400_0000, 0x8000_0000]);
            let function = random.below(0x60);
            // These are called above, where they are rare.
            let is_end = matches!(function, 2 | 8 | 9);
            let function = if is_end { 0 } else { function };
            [
                family + function,
                random.value(),
                random.value(),
                random.value(),
            ]
        }
    };
    if random.once_in(2) {
        cpu.hvc(x)
    } else {
        cpu.smc(x)
    }
}

fn send_sgi(random: &mut Random, cpu: &mut GuestCpu<'_>) -> Exit {
    let register = random.one_of(&[
        SysReg::ICC_SGI1R_EL1,
        SysReg::ICC_SGI1R_EL1,
        SysReg::ICC_SGI0R_EL1,
        SysReg::ICC_ASGI1R_EL1,
    ]);
    let value = if random.once_in(8) {
        random.any()
    } else {
        random.below(16) << 24 | random.below(16)
    };
    cpu.msr(register, value)
}

/// Any system register, from the kernel or a program.
fn touch_register(random: &mut Random, cpu: &mut GuestCpu<'_>) -> Exit {
    let op0 = random.one_of(&[2, 3, 3, 3]);
    let other = random.below(8) as u8;
    let op1 = random.one_of(&[0, 0, 3, other]);
    let mut field = |bits: u64| random.below(1 << bits) as u8;
    let register = SysReg::new(op0, op1, field(4), field(4), field(3));
    let value = random.any();
    if random.once_in(2) {
        cpu.msr(register, value)
    } else {
        cpu.mrs(register)
    }
}

/// A load or store to a device that EL2 emulates.
fn touch_device(random: &mut Random, cpu: &mut GuestCpu<'_>) -> Exit {
    // Most guests that have no link are stopped by this.
    let base = match random.once_in(16) {
        true => LINK_REGISTERS,
        false => random.one_of(&DEVICES),
    };
    let offset = match random.below(8) {
        0 => random.below(0x1_0000),
        1 => 0x6000 + 8 * random.below(128),
        2 => 0x1_0000 + 4 * random.below(0x400),
        3 => 4 * random.below(0x40),
        _ => 4 * random.below(0x400),
    };
    // The UART's frame ends earlier.
    let offset = if base == UART { offset & 0xFFF } else { offset };
    let offset = match base {
        DISTRIBUTOR => offset & 0xFFFF,
        LINK_REGISTERS => offset & 0x1FF,
        _ => offset,
    };
    let is_store = random.once_in(2);
    cpu.registers.x[1] = random.value();
    cpu.access(
        base + offset,
        is_store,
        random.one_of(&[0, 1, 2, 2, 2, 2, 3]),
    )
}

/// A store to the virtio device of a link: mostly the next one that a driver would do, with queues that are anywhere and
/// hold anything.
pub fn program_virtio(random: &mut Random, cpu: &mut GuestCpu<'_>) -> Exit {
    /// Features of a network card that takes and gives frames of 64 KiB.
    const OFFLOADS: u64 = 1 << 0 | 1 << 1 | 1 << 7 | 1 << 8 | 1 << 11 | 1 << 12 | 1 << 15;
    /// Where the guest keeps how far its driver is.
    const STEP: u64 = GUEST_MEMORY + 0xFFF0;
    let step = match random.once_in(32) {
        true => random.below(34),
        false => u64::from(cpu.read_memory(STEP, 1)[0]),
    };
    cpu.write_memory(STEP, &[(step as u8).saturating_add(1).min(64)]);
    let area = |random: &mut Random| GUEST_MEMORY + 0x800 * random.below(0x10);
    // Descriptors, indices, and numbers without a meaning.
    let words: Vec<u8> = (0..0x20)
        .flat_map(|word| {
            let flags = random.below(4) << 32 | random.below(4) << 48;
            let value = match random.below(16) {
                0 => random.any(),
                1..9 => random.below(4) | random.below(4) << 16 | random.below(4) << 32,
                _ if word % 2 == 0 => area(random),
                _ => flags | random.below(0x400),
            };
            value.to_le_bytes()
        })
        .collect();
    let at = area(random);
    cpu.write_memory(at, &words);
    // Both halves of the features, then three queues.
    let (queue, register) = (step.wrapping_sub(5) / 9, step.wrapping_sub(5) % 9);
    let (offset, value) = match (step, register) {
        (0, _) => (0x70, 0),
        (1, _) => (0x24, 1),
        (2, _) => (0x20, 1),
        (3, _) => (0x24, 0),
        (4, _) => (0x20, random.one_of(&[0, OFFLOADS])),
        (32, _) => (0x70, 0xF),
        (33.., _) => (random.one_of(&[0x50, 0x50, 0x50, 0x64]), random.below(3)),
        (_, 0) => (0x30, queue),
        (_, 1) => (0x38, 1 << random.below(9)),
        (_, 2 | 4 | 6) => (0x80 + 0x10 * ((register - 2) / 2), area(random)),
        (_, 3 | 5 | 7) => (0x84 + 0x10 * ((register - 2) / 2), 0),
        _ => (0x44, 1),
    };
    cpu.store(LINK_REGISTERS + offset, value as u32)
}

/// A store to the GIC as a driver does it.
fn program_gic(random: &mut Random, cpu: &mut GuestCpu<'_>) -> Exit {
    let own = REDISTRIBUTORS + REDISTRIBUTOR_SIZE * u64::from(cpu.vcpu) + gicd::SGI_FRAME;
    let (frame, word) = random.one_of(&[(own, 0), (DISTRIBUTOR, 1), (DISTRIBUTOR, 2)]);
    let interrupt = 32 + random.below(64);
    let any = random.any() as u32;
    let router = DISTRIBUTOR + gicd::IROUTER + 8 * interrupt;
    let vcpu = random.below(4) as u32;
    match random.below(16) {
        0..3 => cpu.store(DISTRIBUTOR + gicd::CTLR, gicd::ON),
        3..6 => cpu.store(frame + gicd::IGROUPR + 4 * word, u32::MAX),
        6..9 => cpu.store(frame + gicd::ISENABLER + 4 * word, u32::MAX),
        9 => cpu.store(frame + gicd::ICENABLER + 4 * word, any),
        10 => cpu.store(frame + gicd::ISPENDR + 4 * word, any),
        11 => cpu.store(frame + gicd::ICPENDR + 4 * word, any),
        12 => cpu.store(frame + gicd::ISACTIVER + 4 * word, any),
        13 => cpu.store(frame + gicd::ICACTIVER + 4 * word, any),
        14 => cpu.store(
            frame + gicd::IPRIORITYR + 32 * word + 4 * random.below(8),
            any,
        ),
        _ => cpu.store(router, vcpu),
    }
}

fn print(random: &mut Random, cpu: &mut GuestCpu<'_>) -> Exit {
    let byte = random.one_of(b"abc\n");
    cpu.store(UART, u32::from(byte))
}

/// A class of exception that the guest survives, whatever its other bits are.
fn well_known_trap(random: &mut Random, cpu: &GuestCpu<'_>) -> Exit {
    const SVE: u64 = 0x19;
    const SME: u64 = 0x1D;
    const POINTER_AUTHENTICATION: u64 = 0x09;
    let exception = random.one_of(&[SVE, SME, POINTER_AUTHENTICATION]);
    cpu.trap(class(exception) | random.below(1 << 25))
}

/// Any syndrome, any addresses.
fn nonsense(random: &mut Random, cpu: &GuestCpu<'_>) -> Exit {
    cpu.set(Register::FAR_EL2, random.value());
    cpu.set(Register::HPFAR_EL2, random.value());
    let exit = cpu.trap(random.any() & 0xFFFF_FFFF);
    fake::with(|machine| machine.work += 1);
    if random.once_in(20) {
        Exit::SystemError
    } else {
        exit
    }
}
