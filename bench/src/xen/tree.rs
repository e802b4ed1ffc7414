// SPDX-License-Identifier: MIT OR Apache-2.0
//! The device tree that Xen boots with: QEMU's machine (`hw/arm/virt.c` in QEMU), as far as Xen looks at it, and the domains
//! (`docs/misc/arm/device-tree/booting.txt` in Xen).

use super::{CONTROL, KERNEL, RT, RT_MEMORY_MIB, SEED, SEED_SIZE, XenSystem};
use crate::linux::LINUX_MEMORY_MIB;
use crate::role::Role;
use dtoolkit::ToPropertyValue;
use dtoolkit::error::ModelError;
use dtoolkit::model::{DeviceTree, DeviceTreeNode, DeviceTreeProperty};

/// Phandle of the interrupt controller.
const GIC: u32 = 1;
/// Phandle of the UART's clock.
const CLOCK: u32 = 2;
/// Start of memory.
const MEMORY: u64 = 0x4000_0000;
/// The UART's registers and those of the GIC, with their sizes.
const UART: (u64, u64) = (0x0900_0000, 0x1000);
const DISTRIBUTOR: (u64, u64) = (0x0800_0000, 0x1_0000);
const REDISTRIBUTORS: (u64, u64) = (0x080a_0000, 0xf6_0000);
/// Rate of the UART's clock in Hz.
const CLOCK_HZ: u32 = 24_000_000;
/// Cells of an interrupt: kind, number within it, flags.
const SPI: u32 = 0;
const PPI: u32 = 1;
const HIGH_LEVEL: u32 = 4;
/// The timers' PPIs: secure, physical, virtual, hypervisor.
const TIMER_PPIS: [u32; 4] = [13, 14, 11, 10];
/// PPI of the GIC's maintenance interrupt.
const MAINTENANCE_PPI: u32 = 9;
/// Interrupt of the UART.
const UART_SPI: u32 = 1;
const MIB: u64 = 1 << 20;
const KIB_PER_MIB: u32 = 1024;

/// A property without a value.
const SET: [u8; 0] = [];

impl XenSystem {
    /// The device tree as a blob. `size` gives the size of each file.
    ///
    /// # Errors
    ///
    /// The size of a file cannot be read, or the tree not be written.
    pub fn tree(
        &self,
        memory_mib: u64,
        size: impl Fn(Role) -> Result<u64, String>,
    ) -> Result<Vec<u8>, String> {
        let sizes = Sizes {
            control: size(Role::XenControl)?,
            rt: size(Role::RtFlat)?,
            kernel: size(self.linux.kernel())?,
            initrd: SEED_SIZE + size(self.linux.initrd())?,
        };
        self.model(memory_mib, &sizes)
            .map(|tree| tree.to_dtb())
            .map_err(|error| format!("cannot write Xen's device tree: {error}"))
    }

    fn model(&self, memory_mib: u64, sizes: &Sizes) -> Result<DeviceTree, ModelError> {
        let mut tree = DeviceTree::new();
        let root = &mut tree.root;
        set(root, "compatible", "linux,dummy-virt")?;
        set(root, "model", "linux,dummy-virt")?;
        cells(root)?;
        set(root, "interrupt-parent", GIC)?;
        root.add_child(self.chosen(sizes)?);
        let mut memory = DeviceTreeNode::new(format!("memory@{MEMORY:x}"))?;
        set(&mut memory, "device_type", "memory")?;
        set(&mut memory, "reg", reg(&[(MEMORY, memory_mib * MIB)]))?;
        root.add_child(memory);
        machine(root, self.cores)?;
        Ok(tree)
    }

    fn chosen(&self, sizes: &Sizes) -> Result<DeviceTreeNode, ModelError> {
        let mut chosen = DeviceTreeNode::new("chosen")?;
        cells(&mut chosen)?;
        set(&mut chosen, "xen,xen-bootargs", self.bootargs().as_str())?;
        chosen.add_child(module("kernel", (CONTROL, sizes.control), None)?);
        // Xen numbers the domains in this order, which the control domain knows.
        let mut rt = domain("rt", RT_MEMORY_MIB, 1)?;
        rt.add_child(module("kernel", (RT, sizes.rt), Some(&self.rt))?);
        chosen.add_child(rt);
        let mut linux = domain("linux", LINUX_MEMORY_MIB, self.linux.cpus)?;
        let bootargs = self.linux_bootargs();
        linux.add_child(module("kernel", (KERNEL, sizes.kernel), Some(&bootargs))?);
        linux.add_child(module("ramdisk", (SEED, sizes.initrd), None)?);
        chosen.add_child(linux);
        Ok(chosen)
    }
}

/// Sizes of the modules in bytes.
struct Sizes {
    control: u64,
    rt: u64,
    kernel: u64,
    /// With the archive before it.
    initrd: u64,
}

fn set<T: ToPropertyValue>(
    node: &mut DeviceTreeNode,
    name: &str,
    value: T,
) -> Result<(), ModelError> {
    node.add_property(DeviceTreeProperty::new(name, value)?);
    Ok(())
}

fn cells(node: &mut DeviceTreeNode) -> Result<(), ModelError> {
    set(node, "#address-cells", 2u32)?;
    set(node, "#size-cells", 2u32)
}

/// Pairs of address and size, each two cells.
fn reg(ranges: &[(u64, u64)]) -> Vec<u32> {
    let halves = |value: u64| [(value >> 32) as u32, value as u32];
    let ranges = ranges.iter();
    ranges
        .flat_map(|(at, size)| [halves(*at), halves(*size)].concat())
        .collect()
}

fn module(
    kind: &str,
    range: (u64, u64),
    bootargs: Option<&str>,
) -> Result<DeviceTreeNode, ModelError> {
    let mut node = DeviceTreeNode::new(format!("module@{:x}", range.0))?;
    let kind = format!("multiboot,{kind}");
    set(
        &mut node,
        "compatible",
        [kind.as_str(), "multiboot,module"].as_slice(),
    )?;
    set(&mut node, "reg", reg(&[range]))?;
    if let Some(bootargs) = bootargs {
        set(&mut node, "bootargs", bootargs)?;
    }
    Ok(node)
}

fn domain(name: &str, memory_mib: u32, vcpus: u32) -> Result<DeviceTreeNode, ModelError> {
    let mut node = DeviceTreeNode::new(name)?;
    set(&mut node, "compatible", "xen,domain")?;
    cells(&mut node)?;
    set(&mut node, "memory", vec![0, memory_mib * KIB_PER_MIB])?;
    set(&mut node, "cpus", vcpus)?;
    set(&mut node, "vpl011", SET)?;
    Ok(node)
}

/// What QEMU's `virt` has of cores, firmware, timer, interrupt controller and UART.
fn machine(root: &mut DeviceTreeNode, cores: u32) -> Result<(), ModelError> {
    let mut psci = DeviceTreeNode::new("psci")?;
    let versions = ["arm,psci-1.0", "arm,psci-0.2"];
    set(&mut psci, "compatible", versions.as_slice())?;
    set(&mut psci, "method", "smc")?;
    root.add_child(psci);

    let mut cpus = DeviceTreeNode::new("cpus")?;
    set(&mut cpus, "#address-cells", 1u32)?;
    set(&mut cpus, "#size-cells", 0u32)?;
    for index in 0..cores {
        let mut cpu = DeviceTreeNode::new(format!("cpu@{index:x}"))?;
        set(&mut cpu, "device_type", "cpu")?;
        set(&mut cpu, "compatible", "arm,cortex-a76")?;
        set(&mut cpu, "reg", index)?;
        set(&mut cpu, "enable-method", "psci")?;
        cpus.add_child(cpu);
    }
    root.add_child(cpus);

    let mut timer = DeviceTreeNode::new("timer")?;
    set(&mut timer, "compatible", "arm,armv8-timer")?;
    let interrupts = TIMER_PPIS
        .iter()
        .flat_map(|&ppi| [PPI, ppi, HIGH_LEVEL])
        .collect::<Vec<_>>();
    set(&mut timer, "interrupts", interrupts)?;
    root.add_child(timer);

    let mut gic = DeviceTreeNode::new(format!("intc@{:x}", DISTRIBUTOR.0))?;
    set(&mut gic, "compatible", "arm,gic-v3")?;
    set(&mut gic, "#interrupt-cells", 3u32)?;
    cells(&mut gic)?;
    set(&mut gic, "ranges", SET)?;
    set(&mut gic, "interrupt-controller", SET)?;
    set(&mut gic, "reg", reg(&[DISTRIBUTOR, REDISTRIBUTORS]))?;
    set(
        &mut gic,
        "interrupts",
        vec![PPI, MAINTENANCE_PPI, HIGH_LEVEL],
    )?;
    set(&mut gic, "phandle", GIC)?;
    root.add_child(gic);

    let mut clock = DeviceTreeNode::new("apb-pclk")?;
    set(&mut clock, "compatible", "fixed-clock")?;
    set(&mut clock, "#clock-cells", 0u32)?;
    set(&mut clock, "clock-frequency", CLOCK_HZ)?;
    set(&mut clock, "phandle", CLOCK)?;
    root.add_child(clock);

    let mut uart = DeviceTreeNode::new(format!("pl011@{:x}", UART.0))?;
    let kinds = ["arm,pl011", "arm,primecell"];
    set(&mut uart, "compatible", kinds.as_slice())?;
    set(&mut uart, "reg", reg(&[UART]))?;
    set(&mut uart, "interrupts", vec![SPI, UART_SPI, HIGH_LEVEL])?;
    set(&mut uart, "clocks", vec![CLOCK, CLOCK])?;
    let clocks = ["uartclk", "apb_pclk"];
    set(&mut uart, "clock-names", clocks.as_slice())?;
    root.add_child(uart);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::system;
    use super::*;
    use dtoolkit::fdt::Fdt;
    use dtoolkit::{Node, Property};

    #[test]
    fn each_domain_has_its_modules_and_arguments() {
        let size = |role| {
            Ok(if role == Role::RtFlat {
                0x9000
            } else {
                0x10_0000
            })
        };
        let blob = system().tree(2048, size).unwrap();
        let tree = Fdt::new(&blob).unwrap();
        let text = |path: &str, name: &str| {
            let node = tree.find_node(path).unwrap();
            let value = node.property(name).unwrap().value().to_vec();
            String::from_utf8(value).unwrap()
        };
        assert!(
            text("/chosen", "xen,xen-bootargs").contains("sched=credit2 credit2_runqueue=cpu ")
        );
        assert!(text("/chosen", "xen,xen-bootargs").starts_with("dom0_mem=8M console=dtuart "));
        assert_eq!(
            text("/chosen/rt/module@70000000", "bootargs"),
            "period=1ms\0"
        );
        let range = |path: &str| {
            let node = tree.find_node(path).unwrap();
            node.property("reg").unwrap().value().to_vec()
        };
        assert_eq!(
            range("/chosen/rt/module@70000000"),
            [0, 0, 0, 0, 0x70, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x90, 0]
        );
        // The archive with the seed is part of it.
        assert_eq!(
            range("/chosen/linux/module@68000000")[12..],
            [0, 0x20, 0, 0]
        );
    }

    #[test]
    fn a_file_that_is_missing_is_named() {
        let error = system().tree(2048, |role| Err(format!("no {role}")));
        assert_eq!(error.unwrap_err(), "no setup.bin");
    }
}
