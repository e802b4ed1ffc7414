// SPDX-License-Identifier: MIT OR Apache-2.0
//! Orders of one kind, of which each vCPU has one at most.

use crate::sets::VcpuSet;
use spumone_config::types::{GuestId, MAX_VCPUS, VcpuId};

/// An order that is about a guest.
pub(super) trait OfGuest: Copy {
    /// That guest.
    fn guest(&self) -> GuestId;
}

/// The orders that wait.
#[derive(Debug)]
pub(super) struct PerVcpu<T> {
    vcpus: VcpuSet,
    /// By the id of the vCPU; `None` for those that are not in `vcpus`.
    orders: [Option<T>; MAX_VCPUS],
}

impl<T: OfGuest> PerVcpu<T> {
    /// None.
    pub fn new() -> Self {
        Self {
            vcpus: VcpuSet::EMPTY,
            orders: [None; MAX_VCPUS],
        }
    }

    /// Adds an order; it replaces a former one of the same vCPU.
    pub fn insert(&mut self, id: VcpuId, order: T) {
        if let Some(place) = self.orders.get_mut(id.index()) {
            *place = Some(order);
            self.vcpus.insert(id);
        }
    }

    /// Removes the first order that is about one of these guests; bit n for guest n.
    pub fn take(&mut self, guests: u32) -> Option<(VcpuId, T)> {
        let is_due = |&(_, order): &(VcpuId, T)| guests >> order.guest().0 & 1 != 0;
        // At most 32 times: vCPUs.
        let (id, order) = self.iter().find(is_due)?;
        self.vcpus.remove(id);
        if let Some(place) = self.orders.get_mut(id.index()) {
            *place = None;
        }
        Some((id, order))
    }

    /// The guests that the orders are about; bit n for guest n.
    pub fn guests(&self) -> u32 {
        // At most 32 times: vCPUs.
        self.iter()
            .fold(0, |all, (_, order)| all | 1 << order.guest().0)
    }

    fn iter(&self) -> impl Iterator<Item = (VcpuId, T)> {
        let order = |id: VcpuId| self.orders.get(id.index()).copied().flatten();
        let vcpus = self.vcpus.iter();
        vcpus.filter_map(move |id| order(id).map(|order| (id, order)))
    }
}
