// SPDX-License-Identifier: MIT OR Apache-2.0
//! Initialization of the GICv3, by the `arm-gic` crate.

use arm_gic::gicv3::GicV3;
use arm_gic::gicv3::registers::{Gicd, GicrSgi};
use arm_gic::{IntId as GicIntId, Trigger as GicTrigger, UniqueMmioPointer};
use core::ptr::NonNull;
use spumone_config::packed::{Spi, Trigger};
use spumone_config::{IntId, PhysAddr};
use spumone_core::schedule::band_priority;

pub use arm_gic::gicv3::GicError;

/// Initializes distributor and redistributors. `private_priorities` holds (interrupt, priority) of the SGIs and PPIs in
/// use, which are enabled on each core; SPIs stay disabled.
///
/// # Safety
///
/// The frames are those of a GICv3, mapped as device memory, and no other core runs.
pub unsafe fn initialize_gic(
    distributor: PhysAddr,
    redistributor: PhysAddr,
    cores: usize,
    private_priorities: &[(IntId, u8)],
    spis: &[Spi],
) -> Result<(), GicError> {
    let distributor = NonNull::new(distributor.0 as *mut Gicd);
    let redistributor = NonNull::new(redistributor.0 as *mut GicrSgi);
    let (Some(distributor), Some(redistributor)) = (distributor, redistributor) else {
        return Ok(());
    };
    // SAFETY: as the caller promises; no other driver of the frames exists while this one lives.
    let mut gic = unsafe { GicV3::new(UniqueMmioPointer::new(distributor), redistributor, cores)? };
    gic.setup(0);
    for core in 0..cores {
        // An error means that the core is awake already.
        let _ = gic.redistributor_mark_core_awake(core);
        for &(interrupt, priority) in private_priorities {
            let id = driver_id(interrupt);
            gic.set_interrupt_priority(id, Some(core), priority)?;
            gic.enable_interrupt(id, Some(core), true)?;
        }
    }
    for spi in spis {
        let id = driver_id(spi.physical);
        gic.enable_interrupt(id, None, false)?;
        gic.set_interrupt_priority(id, None, band_priority(spi.band).0)?;
        let trigger = match spi.trigger {
            Trigger::Edge => GicTrigger::Edge,
            Trigger::Level => GicTrigger::Level,
        };
        gic.set_trigger(id, None, trigger)?;
    }
    Ok(())
}

fn driver_id(interrupt: IntId) -> GicIntId {
    match interrupt.0 {
        n @ 0..16 => GicIntId::sgi(u32::from(n)),
        n @ 16..32 => GicIntId::ppi(u32::from(n) - 16),
        n => GicIntId::spi(u32::from(n) - 32),
    }
}
