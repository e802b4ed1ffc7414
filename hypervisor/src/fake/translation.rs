// SPDX-License-Identifier: MIT OR Apache-2.0
//! Address translation: a walk of a guest's stage 2 tables; stage 1 is the identity.

use super::core::Cached;
use super::registers::Register;
use super::{Machine, with};
use spumone_config::PhysAddr;

/// EL2's stage 1 has no effect on a host.
///
/// # Safety
///
/// As on the machine.
pub unsafe fn activate_tables(_root: PhysAddr) {}

/// `VTTBR_EL2`: address of the tables, VMID.
const ROOT: u64 = 0x0000_FFFF_FFFF_FFFE;
const VMID_SHIFT: u32 = 48;
/// `S2AP[1]` of a leaf: it can be written.
const WRITE: u64 = 1 << 7;

impl Machine {
    /// VMID and tables of the current guest of the current core.
    pub fn stage2(&self) -> (u64, u64) {
        let value = self.cores[self.current].get(Register::VTTBR_EL2);
        (value >> VMID_SHIFT, value & ROOT)
    }

    /// The vCPU that was entered translates addresses, so the current core caches translations. The machine does not see
    /// where a life of a vCPU begins, so the test gives its number.
    pub fn fill_tlb(&mut self, life: (u32, u32)) {
        let (vmid, root) = self.stage2();
        let core = self.core();
        let vcpu = core.get(Register::VMPIDR_EL2) & 0xFF;
        let own = Cached { vcpu, root, life };
        let cached = *core.cached.entry(vmid).or_insert(own);
        assert_eq!(
            cached, own,
            "VMID {vmid} runs with cached translations of another vCPU, or of a former life"
        );
    }
}

/// The physical address of an address of the current guest, by its stage 2 tables; `None` if it is not mapped.
pub fn walk_stage2(ipa: u64) -> Option<u64> {
    leaf(ipa).map(|(physical, _)| physical)
}

/// Whether stage 2 permits the current guest to execute at this address, in its kernel or in a program (FEAT_XNX).
pub fn may_execute(ipa: u64, in_kernel: bool) -> bool {
    /// `XN[1:0]` of a leaf.
    const XN_SHIFT: u32 = 53;
    leaf(ipa).is_some_and(|(_, descriptor)| match descriptor >> XN_SHIFT & 0b11 {
        0b00 => true,
        0b01 => !in_kernel,
        0b10 => false,
        _ => in_kernel,
    })
}

/// Whether stage 2 permits the current guest to write at this address.
pub fn may_write(ipa: u64) -> bool {
    leaf(ipa).is_some_and(|(_, descriptor)| descriptor & WRITE != 0)
}

/// The physical address and the descriptor of the leaf. The core caches it, and a leaf that it has cached must be as good as that of the tables.
fn leaf(ipa: u64) -> Option<(u64, u64)> {
    /// Output address, and the permission to write.
    const CACHED: u64 = 0x0000_FFFF_FFFF_F080;
    let found = walk(ipa);
    with(|machine| {
        let (vmid, _) = machine.stage2();
        let leaves = &mut machine.core().cached_leaves;
        let page = (vmid, ipa & !0xFFF);
        let before = leaves.get(&page).copied();
        let now = found.map(|(physical, descriptor)| (physical & !0xFFF | descriptor) & CACHED);
        match (before, now) {
            // It has gone, is elsewhere, or can be written no more. A leaf without `AF` is there.
            (Some(before), Some(now)) => assert!(
                before == now || before | WRITE == now,
                "VMID {vmid} may use a leaf of stage 2 at {ipa:#x} that is there no more: {before:#x}, now {now:#x}"
            ),
            (None, Some(now)) => {
                leaves.insert(page, now);
            }
            (_, None) => {}
        }
    });
    found
}

/// The leaf in the tables. Source: Arm ARM DDI 0487, D8.3; 40 bits of address, 4 KiB
/// granule, two tables at level 1.
fn walk(ipa: u64) -> Option<(u64, u64)> {
    const VALID: u64 = 1 << 0;
    const TABLE_OR_PAGE: u64 = 1 << 1;
    const ACCESS: u64 = 1 << 10;
    const ADDRESS: u64 = 0x0000_FFFF_FFFF_F000;
    if ipa >> 40 != 0 {
        return None;
    }
    let (_, root) = with(|machine| machine.stage2());
    let mut table = root;
    for (level, shift) in [(1, 30), (2, 21), (3, 12)] {
        let mask = if level == 1 { 0x3FF } else { 0x1FF };
        let entry = table + 8 * (ipa >> shift & mask);
        let descriptor = match with(|machine| machine.memory.word(entry)) {
            // A table in local memory.
            Some(descriptor) => descriptor,
            // SAFETY: `VTTBR_EL2` has the address of tables that `tests/systems.rs` has made; they are never freed, and
            // point to tables within the same allocation, or in the machine's memory.
            None => unsafe { (entry as *const u64).read() },
        };
        if descriptor & VALID == 0 {
            return None;
        }
        let is_leaf = level == 3 || descriptor & TABLE_OR_PAGE == 0;
        if is_leaf && descriptor & ACCESS == 0 {
            return None;
        }
        if is_leaf {
            let offset = (1u64 << shift) - 1;
            return Some((descriptor & ADDRESS & !offset | ipa & offset, descriptor));
        }
        table = descriptor & ADDRESS;
    }
    None
}

/// Invalidates what this core has cached of the current guest's stage 1.
pub fn forget_guest_translations() {
    with(|machine| {
        let (vmid, _) = machine.stage2();
        machine.core().cached.remove(&vmid);
    });
}

/// Invalidates what this core has cached of both stages of the current guest.
pub fn forget_both_stages() {
    forget_guest_translations();
    with(|machine| {
        let (vmid, _) = machine.stage2();
        let leaves = &mut machine.core().cached_leaves;
        leaves.retain(|&(of, _), _| of != vmid);
    });
}

/// Translates an address of the loaded vCPU, for a read by its kernel. The result is in `PAR_EL1`.
pub fn translate_for_kernel_read(address: u64) {
    const FAILED: u64 = 1;
    const PAGE: u64 = 0x0000_FFFF_FFFF_F000;
    let result = walk_stage2(address).map_or(FAILED, |physical| physical & PAGE);
    super::write(Register::PAR_EL1, result);
}
