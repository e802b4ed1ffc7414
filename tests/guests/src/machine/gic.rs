// SPDX-License-Identifier: MIT OR Apache-2.0
//! The GICv3: distributor, redistributors, CPU interface (IHI 0069).

use super::mmio::{read32, read64, write32, write64};
use super::sysreg::{barrier, cpu, mrs, msr};
pub use spumone_config::gic::REDISTRIBUTOR_SIZE;
use spumone_config::gic::{PHYSICAL_TIMER, SGI_FRAME, VIRTUAL_TIMER};

/// QEMU's distributor.
pub const GICD: u64 = 0x0800_0000;
/// QEMU's first redistributor.
pub const GICR: u64 = 0x080A_0000;

/// Register offsets, in GICD and in the SGI frames; equal where both have the register.
pub mod register {
    /// GICD_CTLR.
    pub const CTLR: u64 = 0x0000;
    /// GICD_TYPER.
    pub const TYPER: u64 = 0x0004;
    /// GICD_IIDR.
    pub const IIDR: u64 = 0x0008;
    /// GICR_TYPER.
    pub const GICR_TYPER: u64 = 0x0008;
    /// GICR_WAKER.
    pub const WAKER: u64 = 0x0014;
    /// Group.
    pub const IGROUPR: u64 = 0x0080;
    /// Enable.
    pub const ISENABLER: u64 = 0x0100;
    /// Disable.
    pub const ICENABLER: u64 = 0x0180;
    /// Make pending.
    pub const ISPENDR: u64 = 0x0200;
    /// Make not pending.
    pub const ICPENDR: u64 = 0x0280;
    /// Make active.
    pub const ISACTIVER: u64 = 0x0300;
    /// Make inactive.
    pub const ICACTIVER: u64 = 0x0380;
    /// Priority.
    pub const IPRIORITYR: u64 = 0x0400;
    /// Trigger.
    pub const ICFGR: u64 = 0x0C00;
    /// Affinity of an SPI.
    pub const IROUTER: u64 = 0x6000;
    /// Architecture version.
    pub const PIDR2: u64 = 0xFFE8;
}

/// GICD_CTLR: group 0 on.
pub const ENABLE_GROUP_0: u32 = 1 << 0;
/// GICD_CTLR: group 1 on.
pub const ENABLE_GROUP_1: u32 = 1 << 1;
/// GICD_CTLR: affinity routing.
pub const ARE: u32 = 1 << 4;
/// GICD_CTLR: one Security state.
pub const DS: u32 = 1 << 6;
/// GICD_CTLR: a write is pending (RWP).
pub const RWP: u32 = 1 << 31;

/// Priority mask that masks no interrupt.
pub const LOWEST: u64 = 0xFF;
/// Priority of every interrupt unless a test sets another.
pub const USUAL: u8 = 0xA0;
/// Running priority when nothing is active.
pub const IDLE: u64 = 0xFF;
/// INTID of no interrupt (spurious).
pub const SPURIOUS: u32 = 1023;
/// First SPI.
pub const FIRST_SPI: u32 = 32;
/// An SPI that no device of the machine uses, within the range of a guest.
pub const FREE_SPI: u32 = 60;

/// First register of the redistributor of `cpu`.
pub fn redistributor(cpu: usize) -> u64 {
    GICR + REDISTRIBUTOR_SIZE * cpu as u64
}

/// The frame that has the registers of an interrupt, for the CPU that runs this.
fn frame(interrupt: u32) -> u64 {
    if interrupt < FIRST_SPI {
        redistributor(cpu()) + SGI_FRAME
    } else {
        GICD
    }
}

/// Address of the register with one bit per interrupt that has this interrupt.
fn word(register: u64, interrupt: u32) -> u64 {
    frame(interrupt) + register + u64::from(interrupt / 32 * 4)
}

/// Whether the interrupt's bit is set in a register with one bit per interrupt.
pub fn bit(register: u64, interrupt: u32) -> bool {
    read32(word(register, interrupt)) >> (interrupt % 32) & 1 != 0
}

/// Writes a one for the interrupt to a set or clear register.
pub fn set_bit(register: u64, interrupt: u32) {
    write32(word(register, interrupt), 1 << (interrupt % 32));
    complete();
}

/// Writes `value` for 32 interrupts, of which `interrupt` is one.
pub fn set_word(register: u64, interrupt: u32, value: u32) {
    write32(word(register, interrupt), value);
    complete();
}

/// The bits of 32 interrupts, of which `interrupt` is one.
pub fn get_word(register: u64, interrupt: u32) -> u32 {
    read32(word(register, interrupt))
}

/// Puts an interrupt in group 0 or 1.
pub fn set_group(interrupt: u32, group_1: bool) {
    let address = word(register::IGROUPR, interrupt);
    let mask = 1 << (interrupt % 32);
    let value = read32(address) & !mask;
    write32(address, if group_1 { value | mask } else { value });
    complete();
}

/// Sets an interrupt's priority.
pub fn set_priority(interrupt: u32, priority: u8) {
    super::mmio::write8(
        frame(interrupt) + register::IPRIORITYR + u64::from(interrupt),
        priority,
    );
    complete();
}

/// An interrupt's priority.
pub fn priority(interrupt: u32) -> u8 {
    super::mmio::read8(frame(interrupt) + register::IPRIORITYR + u64::from(interrupt))
}

/// Makes an SPI edge-triggered, or level-sensitive.
pub fn set_edge(interrupt: u32, edge: bool) {
    let address = frame(interrupt) + register::ICFGR + u64::from(interrupt / 16 * 4);
    let mask = 2 << (interrupt % 16 * 2);
    let value = read32(address) & !mask;
    write32(address, if edge { value | mask } else { value });
    complete();
}

/// Sends an SPI to a CPU.
pub fn route(interrupt: u32, cpu: usize) {
    write64(
        GICD + register::IROUTER + u64::from(interrupt) * 8,
        cpu as u64,
    );
    complete();
}

/// The affinity to which an SPI is sent.
pub fn routed_to(interrupt: u32) -> u64 {
    read64(GICD + register::IROUTER + u64::from(interrupt) * 8)
}

/// Waits until a write to the distributor has taken effect.
pub fn complete() {
    barrier();
    while read32(GICD + register::CTLR) & RWP != 0 {}
}

/// Turns the distributor on, both groups.
pub fn start_distributor() {
    write32(GICD + register::CTLR, ARE | ENABLE_GROUP_0 | ENABLE_GROUP_1);
    complete();
}

/// Sets the interface of this CPU to the state with which tests start: SGIs and timers in group 1, enabled, with the
/// usual priority; no interrupt pending or active.
pub fn start_cpu() {
    let waker = redistributor(cpu()) + register::WAKER;
    write32(waker, read32(waker) & !(1 << 1));
    while read32(waker) & (1 << 2) != 0 {}
    let frame = redistributor(cpu()) + SGI_FRAME;
    write32(frame + register::ICENABLER, !0);
    complete();
    write32(frame + register::ICPENDR, !0);
    write32(frame + register::ICACTIVER, !0);
    write32(frame + register::IGROUPR, !0);
    for n in 0..8 {
        let usual = u32::from(USUAL);
        write32(
            frame + register::IPRIORITYR + 4 * n,
            usual << 24 | usual << 16 | usual << 8 | usual,
        );
    }
    const SGIS_AND_TIMERS: u32 = 0xFFFF | 1 << VIRTUAL_TIMER.0 | 1 << PHYSICAL_TIMER.0;
    write32(frame + register::ISENABLER, SGIS_AND_TIMERS);
    complete();
    msr!(ICC_SRE_EL1, mrs!(ICC_SRE_EL1) | 1);
    msr!(ICC_CTLR_EL1, 0);
    msr!(ICC_BPR0_EL1, 0);
    msr!(ICC_BPR1_EL1, 0);
    msr!(ICC_PMR_EL1, LOWEST);
    msr!(ICC_IGRPEN0_EL1, 1);
    msr!(ICC_IGRPEN1_EL1, 1);
}

/// Sets an SPI up: group 1, usual priority, edge-triggered, routed here, enabled.
pub fn start_spi(interrupt: u32) {
    set_bit(register::ICENABLER, interrupt);
    set_bit(register::ICPENDR, interrupt);
    set_bit(register::ICACTIVER, interrupt);
    set_group(interrupt, true);
    set_priority(interrupt, USUAL);
    set_edge(interrupt, true);
    route(interrupt, cpu());
    set_bit(register::ISENABLER, interrupt);
}

/// Disables an SPI.
pub fn stop_spi(interrupt: u32) {
    set_bit(register::ICENABLER, interrupt);
    set_bit(register::ICPENDR, interrupt);
    set_bit(register::ICACTIVER, interrupt);
}

/// Sends an SGI of group 1 to the CPUs of a list (bit n: Aff0 = n).
pub fn send_sgi(sgi: u32, cpus: u64) {
    barrier();
    msr!(ICC_SGI1R_EL1, u64::from(sgi) << 24 | cpus);
}

/// Sends an SGI of group 0 to the CPUs of a list.
pub fn send_sgi_group_0(sgi: u32, cpus: u64) {
    barrier();
    msr!(ICC_SGI0R_EL1, u64::from(sgi) << 24 | cpus);
}

/// Sends an SGI of group 1 to all other CPUs.
pub fn send_sgi_to_others(sgi: u32) {
    /// Interrupt_Routing_Mode.
    const ALL_BUT_SELF: u64 = 1 << 40;
    barrier();
    msr!(ICC_SGI1R_EL1, u64::from(sgi) << 24 | ALL_BUT_SELF);
}

/// Acknowledges the interrupt of group 1 with the highest priority.
pub fn acknowledge() -> u32 {
    let interrupt = mrs!(ICC_IAR1_EL1) as u32;
    barrier();
    interrupt
}

/// Ends an interrupt of group 1: priority drop, and deactivation unless EOImode separates them.
pub fn end(interrupt: u32) {
    msr!(ICC_EOIR1_EL1, u64::from(interrupt));
}

/// Deactivates an interrupt.
pub fn deactivate(interrupt: u32) {
    msr!(ICC_DIR_EL1, u64::from(interrupt));
}
