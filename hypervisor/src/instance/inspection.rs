// SPDX-License-Identifier: MIT OR Apache-2.0
//! What tests see of an instance.

use super::Instance;
use crate::machine::Machine;
use spumone_config::VcpuId;
use spumone_core::schedule::VcpuState;

impl Instance {
    /// What all cores share.
    pub(crate) fn machine(&self) -> &'static Machine {
        self.platform.machine
    }

    /// The vCPUs whose tokens are here.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = VcpuId> {
        self.state.here().iter()
    }

    /// The vCPU whose registers are on the core.
    pub(crate) fn loaded(&self) -> Option<VcpuId> {
        self.state.loaded()
    }

    /// The vCPU that runs by the last decision.
    pub(crate) fn running(&self) -> Option<VcpuId> {
        self.state.running()
    }

    /// What the scheduler knows of a vCPU.
    pub(crate) fn state(&self, id: VcpuId) -> Option<VcpuState> {
        self.state.vcpu_state(id)
    }

    /// Whether the core has to decide anew.
    pub(crate) fn must_decide(&self) -> bool {
        self.state.must_decide()
    }
}
