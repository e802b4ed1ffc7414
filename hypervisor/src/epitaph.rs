// SPDX-License-Identifier: MIT OR Apache-2.0
//! The epitaph: when EL2 itself fails, it writes its registers and last events to a fixed address,
//! where a debugger finds them, and to the console.
//!
//! The address is the first page of the hypervisor's memory (the start of the machine's memory),
//! which is not used otherwise. In gdb, on QEMU `virt`: `x/90xg 0x40000000`, and the message with
//! `x/s 0x40000000 + 40*8 + 16*24`.

use crate::cpu;
use crate::events;
use crate::hardware::{self, dsb_ishst, dsb_sy, isb, per_machine};
use crate::sysreg::{mrs, msr};
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use spumone_config::types::MAX_PCPUS;
use spumone_config::{PcpuId, PhysAddr};
use spumone_core::console::format::REFUSAL;
use spumone_core::schedule::{Band, kick_sgi};

/// First word of the page once an epitaph is written.
const MAGIC: u64 = u64::from_le_bytes(*b"EPITAPH\0");

per_machine! {
    /// Where the page and the UART are; zero until [`prepare`].
    static PAGE: AtomicU64 = AtomicU64::new(0);
    static UART: AtomicU64 = AtomicU64::new(0);
    /// `MPIDR_EL1` of each core; the index is the core's id.
    static MPIDRS: [AtomicU64; MAX_PCPUS] = [const { AtomicU64::new(u64::MAX) }; MAX_PCPUS];
    /// Set by the first core that dies. Other cores that die write nothing.
    static WRITTEN: AtomicBool = AtomicBool::new(false);
}

#[repr(C)]
struct Epitaph {
    magic: u64,
    core: u64,
    /// Vector number: 0 to 7, in the order of the vector table; `u64::MAX` for a panic.
    vector: u64,
    esr: u64,
    elr: u64,
    far: u64,
    hpfar: u64,
    spsr: u64,
    sp: u64,
    x: [u64; 31],
    /// (kind, argument, counter value), oldest first; see `events`.
    events: [(u64, u64, u64); events::KEPT],
    message: [u8; 256],
}

/// Sets the addresses of the page and of the PL011, and `MPIDR_EL1` of each core. Address zero: nothing is written there.
/// Start-up only.
pub fn prepare(page: u64, uart: u64, mpidrs: &[u64]) {
    PAGE.store(page, Ordering::Relaxed);
    UART.store(uart, Ordering::Relaxed);
    for (place, &mpidr) in MPIDRS.iter().zip(mpidrs) {
        place.store(mpidr, Ordering::Relaxed);
    }
}

/// Whether a core has died. Then the other cores stop.
#[inline(always)]
pub fn is_written() -> bool {
    WRITTEN.load(Ordering::Relaxed)
}

/// Sends all other cores an SGI that no priority mask holds back; they stop when they take it.
fn stop_other_cores() {
    /// `ICC_SGI1R_EL1.IRM`: all cores but this one.
    const ALL_OTHERS: u64 = 1 << 40;
    let sgi = Band::new(Band::COUNT as u8 - 1).map_or(0, |highest| kick_sgi(highest).0);
    // `WRITTEN` must be visible before the SGI arrives.
    dsb_ishst();
    msr!(ICC_SGI1R_EL1, ALL_OTHERS | (u64::from(sgi) << 24));
    isb();
}

/// The PL011, polled, without the UART token: no other code prints any more.
struct LastWords(u64);

/// More polls than a FIFO at 9600 baud needs.
const MAX_POLLS: usize = 10_000_000;

impl LastWords {
    /// Waits until the UART has sent all: a machine that is off sends nothing.
    fn wait_until_sent(&self) {
        const FR: u64 = 0x18;
        const FR_BUSY: u32 = 1 << 3;
        for _ in 0..MAX_POLLS {
            // SAFETY: as in `byte`.
            if unsafe { hardware::read_u32(PhysAddr(self.0 + FR)) } & FR_BUSY == 0 {
                break;
            }
        }
    }

    fn byte(&mut self, byte: u8) {
        const DR: u64 = 0x00;
        const FR: u64 = 0x18;
        const FR_TXFF: u32 = 1 << 5;
        for _ in 0..MAX_POLLS {
            // SAFETY: the board's PL011, mapped as device memory. A second writer can only
            // garble characters.
            let full = unsafe { hardware::read_u32(PhysAddr(self.0 + FR)) } & FR_TXFF != 0;
            if !full {
                break;
            }
        }
        // SAFETY: as above.
        unsafe { hardware::write_u32(PhysAddr(self.0 + DR), u32::from(byte)) };
    }
}

impl Write for LastWords {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        if self.0 != 0 {
            for byte in s.bytes() {
                if byte == b'\n' {
                    self.byte(b'\r');
                }
                self.byte(byte);
            }
        }
        Ok(())
    }
}

/// Writes text into a byte array, silently truncated.
struct Truncated<'a> {
    bytes: &'a mut [u8],
    used: usize,
}

impl Write for Truncated<'_> {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        let room = self.bytes.len() - self.used;
        let take = room.min(s.len());
        self.bytes[self.used..self.used + take].copy_from_slice(&s.as_bytes()[..take]);
        self.used += take;
        Ok(())
    }
}

fn write_epitaph(vector: u64, x: &[u64; 31], sp: u64, message: fmt::Arguments<'_>) -> ! {
    let page = PAGE.load(Ordering::Relaxed);
    if WRITTEN.swap(true, Ordering::AcqRel) {
        hardware::halt();
    }
    stop_other_cores();
    // No register of EL2 has the core's id: TPIDR_EL2 has the address of the guest's registers. Before the board is known,
    // only the first core runs.
    let mpidrs = MPIDRS.iter().map(|it| it.load(Ordering::Relaxed));
    let core = cpu::this_core(mpidrs).unwrap_or(PcpuId(0));
    let mut epitaph = Epitaph {
        magic: MAGIC,
        core: u64::from(core.0),
        vector,
        esr: mrs!(ESR_EL2),
        elr: mrs!(ELR_EL2),
        far: mrs!(FAR_EL2),
        hpfar: mrs!(HPFAR_EL2),
        spsr: mrs!(SPSR_EL2),
        sp,
        x: *x,
        events: [(0, 0, 0); events::KEPT],
        message: [0; 256],
    };
    for (slot, event) in epitaph.events.iter_mut().zip(events::last(core)) {
        *slot = event;
    }
    let _ = Truncated {
        bytes: &mut epitaph.message,
        used: 0,
    }
    .write_fmt(message);

    let mut out = LastWords(UART.load(Ordering::Relaxed));
    let _ = writeln!(
        out,
        "\n\n=== spumone died on core {core}: {message}\n\
         ESR {:#x}  ELR {:#x}  FAR {:#x}  HPFAR {:#x}  SPSR {:#x}  SP {:#x}",
        epitaph.esr, epitaph.elr, epitaph.far, epitaph.hpfar, epitaph.spsr, epitaph.sp
    );
    if vector != u64::MAX {
        for (n, value) in x.iter().enumerate() {
            let end = if n % 4 == 3 || n == 30 { '\n' } else { ' ' };
            let _ = write!(out, "x{n:<2} {value:#018x}{end}");
        }
    }
    let _ = write!(out, "last events, oldest first:");
    for &(kind, argument, time) in &epitaph.events {
        let _ = write!(out, " {}({argument:#x})@{time}", events::Event::name(kind));
    }
    let _ = writeln!(
        out,
        "\n=== also at {page:#x}; code starts at {:#x}. All cores are halted.",
        hardware::text_start()
    );
    if page != 0 {
        // SAFETY: the first page of the hypervisor's memory, mapped writable, with no other use;
        // `WRITTEN` lets only one core get here.
        unsafe { hardware::write_memory(PhysAddr(page), epitaph) };
        dsb_sy();
    }
    hardware::halt()
}

/// Ends the hypervisor, because it cannot start, or because of an error in its own state.
pub fn die(message: fmt::Arguments<'_>) -> ! {
    write_epitaph(u64::MAX, &[0; 31], 0, message)
}

/// Ends the start with one line, because the image is not to be started, and turns the machine off. Only on the first core, before
/// any other one runs.
pub fn refuse(message: fmt::Arguments<'_>) -> ! {
    let mut out = LastWords(UART.load(Ordering::Relaxed));
    let _ = writeln!(out, "\n{REFUSAL}{message}");
    out.wait_until_sent();
    hardware::system_off();
    hardware::halt()
}

/// Ends the hypervisor with a message. Only for start-up, when no guest runs yet, and for conditions
/// that cannot occur unless the hypervisor's own memory is damaged.
macro_rules! fatal {
    ($($message:tt)*) => {
        $crate::epitaph::die(format_args!($($message)*))
    };
}
pub(crate) use fatal;

#[cfg(target_os = "none")]
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    die(format_args!("{info}"))
}

/// Called by the vectors of EL2 with the registers at the time of death.
#[cfg(target_os = "none")]
#[unsafe(no_mangle)]
extern "C" fn epitaph_of_exception(vector: u64, x: &[u64; 31], sp: u64) -> ! {
    const NAMES: [&str; 4] = ["synchronous exception", "IRQ", "FIQ", "SError"];
    let name = NAMES[vector as usize % 4];
    write_epitaph(vector, x, sp, format_args!("{name} at EL2"))
}
