//! What the loaded vCPU is caught at: the moment in which its kernel has no lock, or in which it needs another core.

use super::Site;
use super::departing::send_away;
use super::local::bit;
use spumone_config::types::VcpuId;

/// Of what the loaded vCPU does, that which brings it back to EL2 though it is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Catch {
    /// Nothing is caught.
    Nothing,
    /// Its kernel returns to a program.
    Exit,
    /// A program enters the kernel.
    Entry,
}

/// Has the loaded vCPU come back when it does this, where the core can tell.
#[inline(always)]
pub fn catch(site: &mut impl Site, catch: Catch) {
    if site.local().catches != catch && site.set_catch(catch) {
        site.local_mut().catches = catch;
    }
}

/// No more is caught of the loaded vCPU than always.
#[inline(always)]
pub fn stop_catching(site: &mut impl Site) {
    let local = site.local();
    if local.catches != Catch::Nothing || local.keeps_kernels_off {
        catch(site, usual_catch(site));
    }
}

/// What is always caught of the loaded vCPU here.
fn usual_catch(site: &impl Site) -> Catch {
    let local = site.local();
    match local.loaded {
        Some(id) if local.keeps_kernels_off && local.moves(id) && local.stays & bit(id) == 0 => {
            Catch::Entry
        }
        _ => Catch::Nothing,
    }
}

/// The loaded vCPU `id` did what was to be caught.
pub fn caught(site: &mut impl Site, id: VcpuId) {
    if site.local().catches == Catch::Entry {
        send_away(site, id, None);
    } else {
        stop_catching(site);
        let local = site.local_mut();
        // It was given time until now.
        local.scheduler.withdraw_extension();
        local.must_decide = true;
    }
}
