// SPDX-License-Identifier: MIT OR Apache-2.0
//! Software-generated interrupts: a write to one of the three SGI registers.
//!
//! ICC_SGI1R_EL1, ICC_SGI0R_EL1 and ICC_ASGI1R_EL1 share one layout (IHI 0069, section 12.2). With
//! a single Security state (GICD_CTLR.DS = 1) SGI1R reaches an SGI of either group, the other two
//! only one that its target has in Group 0.

use super::{GuestGic, VcpuIndex, VcpuIndexSet};
use spumone_config::types::IntId;

/// Which register the guest wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SgiRegister {
    /// ICC_SGI1R_EL1.
    Sgi1r,
    /// ICC_SGI0R_EL1.
    Sgi0r,
    /// ICC_ASGI1R_EL1.
    Asgi1r,
}

const TARGET_LIST: u64 = 0xffff;
const AFFINITY_1: u64 = 0xff << 16;
const INTID_SHIFT: u32 = 24;
const AFFINITY_2: u64 = 0xff << 32;
const ROUTING_MODE_ALL: u64 = 1 << 40;
const RANGE_SELECTOR: u64 = 0xf << 44;
const AFFINITY_3: u64 = 0xff << 48;

/// The SGI and its targets for a register value written by `sender`, in a guest of `vcpus` vCPUs.
///
/// All vCPUs have affinity 0.0.0.n with n below 16, so other affinities and range selectors select no vCPU.
pub fn decode(value: u64, sender: VcpuIndex, vcpus: usize) -> (IntId, VcpuIndexSet) {
    let sgi = IntId((value >> INTID_SHIFT & 0xf) as u16);
    let all = VcpuIndexSet::first(vcpus);
    let targets = if value & ROUTING_MODE_ALL != 0 {
        all.without(sender)
    } else if value & (AFFINITY_1 | AFFINITY_2 | AFFINITY_3 | RANGE_SELECTOR) != 0 {
        VcpuIndexSet::EMPTY
    } else {
        VcpuIndexSet((value & TARGET_LIST) as u8 & all.0)
    };
    (sgi, targets)
}

impl GuestGic {
    /// Sends what `sender` wrote to `register`. Returns the vCPUs whose doorbells were rung; the sender may be among them.
    pub fn send_sgi(&self, sender: VcpuIndex, register: SgiRegister, value: u64) -> VcpuIndexSet {
        let (sgi, targets) = decode(value, sender, self.distributor.vcpus());
        let group0_only = register != SgiRegister::Sgi1r;
        let mut kick = VcpuIndexSet::EMPTY;
        // At most 8 times: vCPUs of the guest.
        for target in targets.iter() {
            if self.doorbell(target).ring_sgi(sgi, group0_only) {
                kick.insert(target);
            }
        }
        kick
    }
}
