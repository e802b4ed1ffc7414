// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads a board file: its form, and each value.

use super::{Board, Device, Gic, Links, LocalMemory, Memory, Power, Qemu, Timer, Uart};
use crate::gic::FRAME_SIZE;
use crate::packed::Trigger;
use crate::problem::{Problem, SourceFile, Spanned};
use crate::reader::{
    Mismatch, Table, address, aligned_address, aligned_size, boolean, choice, duration_us, integer,
    number, number_in, parse_document, size, string,
};
use crate::sink::Sink;
use crate::units::{BLOCK, PAGE, SECOND_US};
use toml::de::DeValue;

/// Longest name: what [`crate::packed::Board::name`] holds.
const MAX_NAME: usize = 32;
/// Highest affinity value: Aff3 to Aff0 in bits 39:32 and 23:0 of `MPIDR_EL1`.
const MAX_MPIDR: u64 = 0xff_00ff_ffff;
/// Highest clock that fits into a device tree's `clock-frequency` of one cell.
const MAX_CLOCK: u64 = u32::MAX as u64;
/// Longest row of equal devices.
const MAX_COUNT: u64 = 256;

/// The board, unless a part is missing, and all faults.
pub(super) fn read(text: &str) -> (Option<Board>, Vec<Problem>) {
    let sink = Sink::new(SourceFile::Board);
    let Some((document, span)) = parse_document(text, &sink) else {
        return (None, sink.into_problems());
    };
    let board = read_top(Table::new(&document, span, "the board file", &sink), &sink);
    (board, sink.into_problems())
}

/// An address on a 2 MiB boundary.
fn block(value: &DeValue<'_>) -> Result<u64, Mismatch> {
    aligned_address(value, BLOCK)
}

/// A size in whole 2 MiB.
fn blocks(value: &DeValue<'_>) -> Result<u64, Mismatch> {
    aligned_size(value, BLOCK)
}

/// An address on a page boundary.
fn page(value: &DeValue<'_>) -> Result<u64, Mismatch> {
    aligned_address(value, PAGE)
}

/// A size in whole pages.
fn pages(value: &DeValue<'_>) -> Result<u64, Mismatch> {
    aligned_size(value, PAGE)
}

/// An address on a boundary of GICv3 frames.
fn frame(value: &DeValue<'_>) -> Result<u64, Mismatch> {
    aligned_address(value, FRAME_SIZE)
}

/// What it costs to turn a core off or on, in microseconds: a second at most.
fn cost(value: &DeValue<'_>) -> Result<u32, Mismatch> {
    let time = duration_us(value, "500us")?;
    match u32::try_from(time) {
        Ok(time) if u64::from(time) <= SECOND_US => Ok(time),
        _ => Err(Mismatch::new("must be at most 1s")),
    }
}

/// The INTID of a PPI (IHI 0069, section 2.2).
fn ppi(value: &DeValue<'_>) -> Result<u64, Mismatch> {
    number_in(value, 16..=31)
}

/// The INTID of an SPI that a guest can also have (see [`crate::packed::VirtualGic::spis`]).
fn guest_spi(value: &DeValue<'_>) -> Result<u64, Mismatch> {
    number_in(value, 32..=287)
}

/// The INTID of an SPI (IHI 0069, section 2.2).
fn spi(value: &DeValue<'_>) -> Result<u64, Mismatch> {
    number_in(value, 32..=1019)
}

fn read_top(mut top: Table<'_, '_, '_>, sink: &Sink) -> Option<Board> {
    let name = top.required("name", "\"my-board\"", |value| {
        string(value).and_then(|name| match name.len() {
            1..=MAX_NAME => Ok(name),
            _ => Err(Mismatch::new("must have 1 to 32 characters")),
        })
    });
    let cores = section(&mut top, "cores", sink).and_then(|mut table| {
        let compatible = table.required("compatible", "\"arm,cortex-a76\"", string);
        let mpidrs = table.list("mpidrs", "a list of affinity values", |value| {
            number_in(value, 0..=MAX_MPIDR)
        });
        if mpidrs.is_none() {
            table.missing("mpidrs", "[0x0, 0x1]");
        }
        table.finish();
        Some((compatible?.value, values(mpidrs?)))
    });
    let memory = section(&mut top, "memory", sink).and_then(|mut table| {
        let base = table.required("base", "0x4000_0000", block);
        let max = table.required("max", "\"8GiB\"", blocks);
        let image_offset = table.required("image-offset", "\"2MiB\"", blocks);
        table.finish();
        Some(Memory {
            base: base?.value,
            max: max?.value,
            image_offset: image_offset?.value,
        })
    });
    let local_memory = top
        .table(
            "local-memory",
            "[local-memory]",
            "a table, written [local-memory]",
        )
        .and_then(|mut table| {
            let base = table.required("base", "0xFFFC_0000", page);
            let size = table.required("size", "\"256KiB\"", pages);
            table.finish();
            Some(LocalMemory {
                base: base?.value,
                size: size?.value,
            })
        });
    let power = top
        .table("power", "[power]", "a table, written [power]")
        .and_then(|mut table| {
            let off = table.required("off", "\"50us\"", cost);
            let on = table.required("on", "\"100us\"", cost);
            table.finish();
            Some(Power {
                off_us: off?.value,
                on_us: on?.value,
            })
        });
    let gic = section(&mut top, "gic", sink).and_then(|mut table| {
        let distributor = table.required("distributor", "0x0800_0000", frame);
        let redistributor = table.required("redistributor", "0x080A_0000", frame);
        let spis = table.required("spis", "256", |value| number_in(value, 32..=988));
        table.finish();
        Some(Gic {
            distributor: distributor?.value,
            redistributor: redistributor?.value,
            spis: spis?.value,
        })
    });
    let timer = section(&mut top, "timer", sink).and_then(|mut table| {
        let secure = table.required("secure", "29", ppi);
        let physical = table.required("physical", "30", ppi);
        let virt = table.required("virtual", "27", ppi);
        let hypervisor = table.required("hypervisor", "26", ppi);
        table.finish();
        Some(Timer {
            secure: secure?.value,
            physical: physical?.value,
            virt: virt?.value,
            hypervisor: hypervisor?.value,
        })
    });
    let uart = section(&mut top, "uart", sink).and_then(|mut table| {
        let base = table.required("base", "0x0900_0000", page);
        let interrupt = table.required("interrupt", "33", guest_spi);
        let clock = table.required("clock", "24_000_000", |value| {
            number_in(value, 1..=MAX_CLOCK)
        });
        table.finish();
        Some(Uart {
            base: base?.value,
            interrupt: interrupt?.value,
            clock: clock?.value,
        })
    });
    let links = top
        .table("links", "[links]", "a table, written [links]")
        .and_then(|mut table| {
            let base = table.required("base", "0x0C00_0000", block);
            let size = table.required("size", "\"32MiB\"", blocks);
            let first_interrupt = table.required("first-interrupt", "80", guest_spi);
            table.finish();
            Some(Links {
                base: base?.value,
                size: size?.value,
                first_interrupt: first_interrupt?.value,
            })
        });
    let qemu = top
        .table("qemu", "[qemu]", "a table, written [qemu]")
        .and_then(|mut table| {
            let machine = table.required("machine", "\"virt\"", string);
            let cpu = table.required("cpu", "\"cortex-a76\"", string);
            table.finish();
            Some(Qemu {
                machine: machine?.value,
                cpu: cpu?.value,
            })
        });
    let devices: Vec<_> = top
        .tables("device")
        .into_iter()
        .flat_map(read_device)
        .collect();
    top.finish();
    let (core_compatible, mpidrs) = cores?;
    Some(Board {
        name: name?.value,
        mpidrs,
        core_compatible,
        memory: memory?,
        local_memory,
        power,
        gic: gic?,
        timer: timer?,
        uart: uart?,
        links,
        devices,
        qemu,
    })
}

/// A table that every board must have.
fn section<'t, 'i, 's>(
    top: &mut Table<'t, 'i, 's>,
    key: &'static str,
    sink: &Sink,
) -> Option<Table<'t, 'i, 's>> {
    let place = format!("[{key}]");
    let absent = !top.has(key);
    let table = top.table(key, &place, &format!("a table, written {place}"));
    if absent {
        sink.report(
            Problem::new("missing-key", format!("the board file has no {place}"))
                .at_in(SourceFile::Board, top.span, "missing")
                .help("compare with boards/qemu-virt.toml"),
        );
    }
    table
}

/// One `[[device]]`, or with `count` a row of equal devices: `{}` in its name is replaced by the number, and
/// base and interrupts grow by `base-step` and `interrupt-step` from one to the next.
fn read_device(mut table: Table<'_, '_, '_>) -> Vec<Device> {
    let span = table.span;
    let name = table.required("name", "\"uart1\"", string);
    if let Some(name) = &name {
        table.rename(format!("device \"{}\"", name.value));
    }
    let node = table.required("node", "\"serial\"", string);
    let compatible = table.list("compatible", "a list of strings", string);
    let base = table.required("base", "0x0904_0000", address);
    let bytes = table.required("size", "\"4KiB\"", size);
    let interrupts = table.list("interrupts", "a list of INTIDs", spi);
    let trigger = table.required("trigger", "\"level\"", |value| {
        choice(value, &[("level", Trigger::Level), ("edge", Trigger::Edge)])
    });
    let dma = table.optional("dma", boolean);
    let dma_coherent = table.optional("dma-coherent", boolean);
    let clock_names = table.list("clock-names", "a list of strings", string);
    let quiesce: Vec<_> = table
        .tables("quiesce")
        .into_iter()
        .filter_map(read_quiesce)
        .collect();
    let count = table
        .optional("count", |value| number_in(value, 1..=MAX_COUNT))
        .map_or(1, |count| count.value);
    let base_step = table
        .optional("base-step", integer)
        .map_or(0, |step| step.value);
    let interrupt_step = table
        .optional("interrupt-step", integer)
        .map_or(0, |step| step.value);
    table.finish();
    let (Some(name), Some(node), Some(base), Some(bytes), Some(trigger)) =
        (name, node, base, bytes, trigger)
    else {
        return Vec::new();
    };
    let compatible = compatible.map(values).unwrap_or_default();
    let interrupts = interrupts.map(values).unwrap_or_default();
    let clock_names = clock_names.map(values).unwrap_or_default();
    (0..count)
        .map(|index| {
            let steps = index.cast_signed();
            Device {
                name: name.value.replace("{}", &index.to_string()),
                span,
                node: node.value.clone(),
                compatible: compatible.clone(),
                base: base
                    .value
                    .wrapping_add_signed(steps.wrapping_mul(base_step)),
                size: bytes.value,
                interrupts: interrupts
                    .iter()
                    .map(|id| id.wrapping_add_signed(steps.wrapping_mul(interrupt_step)))
                    .collect(),
                trigger: trigger.value,
                dma: dma.is_some_and(|dma| dma.value),
                dma_coherent: dma_coherent.is_some_and(|coherent| coherent.value),
                clock_names: clock_names.clone(),
                quiesce: quiesce.clone(),
            }
        })
        .collect()
}

fn read_quiesce(mut table: Table<'_, '_, '_>) -> Option<(u64, u32)> {
    let offset = table.required("offset", "0x70", number);
    let value = table.required("value", "0", |value| {
        number_in(value, 0..=u64::from(u32::MAX))
    });
    table.finish();
    Some((offset?.value, u32::try_from(value?.value).ok()?))
}

fn values<T>(list: Spanned<Vec<Spanned<T>>>) -> Vec<T> {
    list.value
        .into_iter()
        .map(|element| element.value)
        .collect()
}
