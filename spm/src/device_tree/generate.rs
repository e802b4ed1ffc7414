// SPDX-License-Identifier: MIT OR Apache-2.0
//! Generates a guest's device tree (Devicetree Specification 0.4; bindings of the Linux kernel).
//!
//! It describes what the guest gets and nothing else, in the form of QEMU's `virt` machine,
//! which Linux and other systems know.

use super::seeds;
use dtoolkit::ToPropertyValue;
use dtoolkit::error::ModelError;
use dtoolkit::model::{DeviceTree, DeviceTreeNode, DeviceTreeProperty};
use spumone_config::IntId;
use spumone_config::board::{Board, Device};
use spumone_config::calls;
use spumone_config::description::Guest;
use spumone_config::gic::{DISTRIBUTOR_SIZE, REDISTRIBUTOR_SIZE};
use spumone_config::layout::GuestPlan;
use spumone_config::packed::{
    LinkEnd, LinkGpio, LinkKind, Mapping, Trigger, VirtualGic, VirtualUart,
};
use spumone_config::units::PAGE;

/// Phandle of the interrupt controller.
const GIC: u32 = 1;
/// Phandle of the fixed clock of the PrimeCell peripherals.
const CLOCK: u32 = 2;

/// Phandle of the first CPU; the others follow.
const FIRST_CPU: u32 = 0x100;
/// First cell of a GIC interrupt specifier: an SPI.
const SPI: u32 = 0;
/// First cell of a GIC interrupt specifier: a PPI.
const PPI: u32 = 1;
/// First INTID of the PPIs.
const FIRST_PPI: u32 = 16;
/// First INTID of the SPIs.
const FIRST_SPI: u32 = IntId::FIRST_SPI.0 as u32;
/// Flags of a GIC interrupt specifier: rising edge.
const RISING_EDGE: u32 = 1;
/// Flags of a GIC interrupt specifier: high level.
const HIGH_LEVEL: u32 = 4;

/// Size of a PL011's registers.
const PL011_SIZE: u64 = 0x1000;

/// A device tree for `guest` on `board`, with the addresses of `plan`. `names` are those of all guests.
pub fn generate(
    guest: &Guest,
    plan: &GuestPlan,
    board: &Board,
    names: &[&str],
) -> Result<DeviceTree, ModelError> {
    let mut tree = DeviceTree::new();
    let root = &mut tree.root;
    set(root, "compatible", "linux,dummy-virt")?;
    set(root, "model", "Spumone guest")?;
    set(root, "#address-cells", 2u32)?;
    set(root, "#size-cells", 2u32)?;
    set(root, "interrupt-parent", GIC)?;
    root.add_child(chosen(guest, plan)?);
    root.add_child(memory(plan.memory)?);
    root.add_child(cpus(guest.vcpus.value.len(), board)?);
    root.add_child(psci()?);
    root.add_child(timer(board)?);
    root.add_child(interrupt_controller(plan.gic, guest.vcpus.value.len())?);
    root.add_child(clock(board)?);
    if let Some(console) = plan.console {
        root.add_child(pl011(console)?);
    }
    if guest.watchdog_us.is_some() {
        root.add_child(watchdog()?);
    }
    for (index, link) in plan.links.iter().enumerate() {
        let peer = names.get(link.peer.index()).copied().unwrap_or_default();
        root.add_child(self::link(index, link, peer)?);
        if let Some(gpio) = link.gpio {
            root.add_child(self::gpio(index, gpio, peer)?);
        }
    }
    for name in &guest.devices {
        if let Some(given) = board.device(&name.value) {
            root.add_child(device(given)?);
        }
    }
    Ok(tree)
}

fn set<T: ToPropertyValue>(
    node: &mut DeviceTreeNode,
    name: &str,
    value: T,
) -> Result<(), ModelError> {
    node.add_property(DeviceTreeProperty::new(name, value)?);
    Ok(())
}

/// Pairs of address and size, each two cells.
fn reg(ranges: &[(u64, u64)]) -> Vec<u32> {
    let halves = |value: u64| [(value >> 32) as u32, value as u32];
    ranges
        .iter()
        .flat_map(|(at, size)| [halves(*at), halves(*size)])
        .flatten()
        .collect()
}

/// Path of the console's node.
pub fn console_path(console: VirtualUart) -> String {
    format!("/pl011@{:x}", console.base.0)
}

fn chosen(guest: &Guest, plan: &GuestPlan) -> Result<DeviceTreeNode, ModelError> {
    let mut node = DeviceTreeNode::new("chosen")?;
    if let Some(bootargs) = &guest.bootargs {
        set(&mut node, "bootargs", bootargs.value.as_str())?;
    }
    if let Some(console) = plan.console {
        set(&mut node, "stdout-path", console_path(console))?;
    }
    initrd(&mut node, plan)?;
    if !plan.is_local() {
        seeds::add(&mut node)?;
    }
    Ok(node)
}

/// Writes where the initial ramdisk is.
pub fn initrd(chosen: &mut DeviceTreeNode, plan: &GuestPlan) -> Result<(), ModelError> {
    if let Some((start, size)) = plan.initrd {
        set(chosen, "linux,initrd-start", start.0)?;
        set(chosen, "linux,initrd-end", start.0 + size)?;
    }
    Ok(())
}

fn memory(memory: Mapping) -> Result<DeviceTreeNode, ModelError> {
    let mut node = DeviceTreeNode::new(format!("memory@{:x}", memory.ipa.0))?;
    set(&mut node, "device_type", "memory")?;
    set(&mut node, "reg", reg(&[(memory.ipa.0, memory.size)]))?;
    Ok(node)
}

/// Documentation/devicetree/bindings/watchdog/arm-smc-wdt.yaml. The driver uses `SMC`, which EL2 answers as it does `HVC`.
fn watchdog() -> Result<DeviceTreeNode, ModelError> {
    let mut node = DeviceTreeNode::new("watchdog")?;
    set(&mut node, "compatible", "arm,smc-wdt")?;
    set(&mut node, "arm,smc-id", calls::WATCHDOG)?;
    Ok(node)
}

fn cpus(count: usize, board: &Board) -> Result<DeviceTreeNode, ModelError> {
    let mut node = DeviceTreeNode::new("cpus")?;
    set(&mut node, "#address-cells", 1u32)?;
    set(&mut node, "#size-cells", 0u32)?;
    node.add_child(cpu_map(count)?);
    for index in 0..count as u32 {
        let mut cpu = DeviceTreeNode::new(format!("cpu@{index:x}"))?;
        set(&mut cpu, "device_type", "cpu")?;
        set(&mut cpu, "compatible", board.core_compatible.as_str())?;
        set(&mut cpu, "reg", index)?;
        set(&mut cpu, "enable-method", "psci")?;
        set(&mut cpu, "phandle", FIRST_CPU + index)?;
        node.add_child(cpu);
    }
    Ok(node)
}

/// One cluster of CPUs: Linux then searches all of them for an idle one, as on the bare machine.
fn cpu_map(count: usize) -> Result<DeviceTreeNode, ModelError> {
    let mut cluster = DeviceTreeNode::new("cluster0")?;
    for index in 0..count as u32 {
        let mut core = DeviceTreeNode::new(format!("core{index}"))?;
        set(&mut core, "cpu", FIRST_CPU + index)?;
        cluster.add_child(core);
    }
    let mut socket = DeviceTreeNode::new("socket0")?;
    socket.add_child(cluster);
    let mut map = DeviceTreeNode::new("cpu-map")?;
    map.add_child(socket);
    Ok(map)
}

fn psci() -> Result<DeviceTreeNode, ModelError> {
    let mut node = DeviceTreeNode::new("psci")?;
    set(
        &mut node,
        "compatible",
        ["arm,psci-1.0", "arm,psci-0.2"].as_slice(),
    )?;
    set(&mut node, "method", "hvc")?;
    Ok(node)
}

fn timer(board: &Board) -> Result<DeviceTreeNode, ModelError> {
    let mut node = DeviceTreeNode::new("timer")?;
    set(&mut node, "compatible", "arm,armv8-timer")?;
    set(&mut node, "always-on", [0u8; 0])?;
    let timer = &board.timer;
    let interrupts = [timer.secure, timer.physical, timer.virt, timer.hypervisor]
        .into_iter()
        .flat_map(|id| [PPI, id as u32 - FIRST_PPI, HIGH_LEVEL])
        .collect::<Vec<u32>>();
    set(&mut node, "interrupts", interrupts)?;
    Ok(node)
}

fn interrupt_controller(gic: VirtualGic, vcpus: usize) -> Result<DeviceTreeNode, ModelError> {
    let mut node = DeviceTreeNode::new(format!("intc@{:x}", gic.distributor.0))?;
    set(&mut node, "compatible", "arm,gic-v3")?;
    set(&mut node, "#interrupt-cells", 3u32)?;
    set(&mut node, "#address-cells", 0u32)?;
    set(&mut node, "interrupt-controller", [0u8; 0])?;
    set(&mut node, "#redistributor-regions", 1u32)?;
    let frames = [
        (gic.distributor.0, DISTRIBUTOR_SIZE),
        (gic.redistributor.0, REDISTRIBUTOR_SIZE * vcpus as u64),
    ];
    set(&mut node, "reg", reg(&frames))?;
    set(&mut node, "phandle", GIC)?;
    Ok(node)
}

fn clock(board: &Board) -> Result<DeviceTreeNode, ModelError> {
    let mut node = DeviceTreeNode::new("apb-pclk")?;
    set(&mut node, "compatible", "fixed-clock")?;
    set(&mut node, "#clock-cells", 0u32)?;
    set(&mut node, "clock-frequency", board.uart.clock as u32)?;
    set(&mut node, "clock-output-names", "apb_pclk")?;
    set(&mut node, "phandle", CLOCK)?;
    Ok(node)
}

fn pl011(console: VirtualUart) -> Result<DeviceTreeNode, ModelError> {
    let mut node = DeviceTreeNode::new(format!("pl011@{:x}", console.base.0))?;
    set(
        &mut node,
        "compatible",
        ["arm,pl011", "arm,primecell"].as_slice(),
    )?;
    set(&mut node, "reg", reg(&[(console.base.0, PL011_SIZE)]))?;
    set(
        &mut node,
        "interrupts",
        [SPI, u32::from(console.interrupt.0) - FIRST_SPI, HIGH_LEVEL],
    )?;
    clocks(&mut node, &["uartclk", "apb_pclk"])?;
    Ok(node)
}

fn clocks(node: &mut DeviceTreeNode, names: &[&str]) -> Result<(), ModelError> {
    if names.is_empty() {
        return Ok(());
    }
    set(node, "clocks", vec![CLOCK; names.len()])?;
    set(node, "clock-names", names)
}

/// An end of a link: a virtio device, or a device for a driver of user space or of a bare-metal guest.
fn link(index: usize, link: &LinkEnd, peer: &str) -> Result<DeviceTreeNode, ModelError> {
    let mut node = match link.kind {
        LinkKind::Memory { memory, writes } => {
            let mut node = DeviceTreeNode::new(format!("link@{:x}", link.registers.0))?;
            set(&mut node, "compatible", "spumone,link-memory")?;
            let ranges = [(link.registers.0, PAGE), (memory.ipa.0, memory.size)];
            set(&mut node, "reg", reg(&ranges))?;
            set(&mut node, "reg-names", ["registers", "memory"].as_slice())?;
            if !writes {
                set(&mut node, "read-only", [0u8; 0])?;
            }
            node
        }
        LinkKind::Network { .. } | LinkKind::Socket { .. } => {
            let mut node = DeviceTreeNode::new(format!("virtio_mmio@{:x}", link.registers.0))?;
            set(&mut node, "compatible", "virtio,mmio")?;
            set(&mut node, "reg", reg(&[(link.registers.0, PAGE)]))?;
            set(&mut node, "dma-coherent", [0u8; 0])?;
            node
        }
    };
    set(
        &mut node,
        "interrupts",
        [SPI, u32::from(link.interrupt.0) - FIRST_SPI, HIGH_LEVEL],
    )?;
    set(&mut node, "label", peer)?;
    set(&mut node, "spumone,link", index as u32)?;
    Ok(node)
}

/// The signal of a link as lines of a GPIO controller (`core/src/link/gpio.rs`).
fn gpio(index: usize, gpio: LinkGpio, peer: &str) -> Result<DeviceTreeNode, ModelError> {
    let mut node = DeviceTreeNode::new(format!("gpio@{:x}", gpio.base.0))?;
    set(
        &mut node,
        "compatible",
        ["arm,pl061", "arm,primecell"].as_slice(),
    )?;
    set(&mut node, "reg", reg(&[(gpio.base.0, PAGE)]))?;
    set(
        &mut node,
        "interrupts",
        [SPI, u32::from(gpio.interrupt.0) - FIRST_SPI, HIGH_LEVEL],
    )?;
    set(&mut node, "gpio-controller", [0u8; 0])?;
    set(&mut node, "#gpio-cells", 2u32)?;
    let names = ["link-given", "link-give", "link-take"];
    set(&mut node, "gpio-line-names", names.as_slice())?;
    set(&mut node, "label", peer)?;
    set(&mut node, "spumone,link", index as u32)?;
    clocks(&mut node, &["apb_pclk"])?;
    Ok(node)
}

fn device(device: &Device) -> Result<DeviceTreeNode, ModelError> {
    let mut node = DeviceTreeNode::new(format!("{}@{:x}", device.node, device.base))?;
    let compatible: Vec<&str> = device.compatible.iter().map(String::as_str).collect();
    set(&mut node, "compatible", compatible)?;
    set(&mut node, "reg", reg(&[(device.base, device.size)]))?;
    let flags = match device.trigger {
        Trigger::Edge => RISING_EDGE,
        Trigger::Level => HIGH_LEVEL,
    };
    if !device.interrupts.is_empty() {
        let cells = device
            .interrupts
            .iter()
            .flat_map(|id| [SPI, *id as u32 - FIRST_SPI, flags]);
        set(&mut node, "interrupts", cells.collect::<Vec<u32>>())?;
    }
    if device.dma_coherent {
        set(&mut node, "dma-coherent", [0u8; 0])?;
    }
    let names: Vec<&str> = device.clock_names.iter().map(String::as_str).collect();
    clocks(&mut node, &names)?;
    Ok(node)
}
