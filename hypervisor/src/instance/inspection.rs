// SPDX-License-Identifier: MIT OR Apache-2.0
//! Access of tests to the state of an instance.

use super::Instance;
use crate::machine::Machine;
use spumone_config::VcpuId;
use spumone_core::schedule::VcpuState;

impl Instance {
    /// The state that all cores share.
    pub(crate) fn machine(&self) -> &'static Machine {
        self.platform.machine
    }

    /// The vCPUs whose tokens this core has.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = VcpuId> {
        self.state.tokens().iter()
    }

    /// The loaded vCPU.
    pub(crate) fn loaded(&self) -> Option<VcpuId> {
        self.state.loaded()
    }

    /// The running vCPU, by the last decision.
    pub(crate) fn running(&self) -> Option<VcpuId> {
        self.state.running()
    }

    /// The scheduler's state of a vCPU.
    pub(crate) fn state(&self, id: VcpuId) -> Option<VcpuState> {
        self.state.vcpu_state(id)
    }

    /// Whether the core has begun to hash a chunk of a guest that it helps to load.
    pub(crate) fn helps(&self) -> bool {
        self.helps.is_some()
    }

    /// The firmware has turned the core on again.
    pub(crate) fn comes_on(&mut self) {
        self.come_on();
    }

    /// Whether the core must decide.
    pub(crate) fn must_decide(&self) -> bool {
        self.state.must_decide()
    }
}
