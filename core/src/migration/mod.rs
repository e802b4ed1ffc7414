// SPDX-License-Identifier: MIT OR Apache-2.0
//! How vCPUs migrate between cores.
//!
//! The token of a vCPU that may migrate is in one of two places. Either a core has it: the core runs the vCPU, or keeps
//! its saved registers for a while. Or the vCPU is *parked*: the token is in the vCPU's own [`ParkingSlot`], where any
//! core of its guest may claim it. The core that parked it is its *host*: interrupts for it go there, and its deadlines
//! are kept there.
//!
//! ```text
//!                   park (release)
//!   with core a ──────────────────► parked, host a ──── claim (acquire) ──► with core b
//!       ▲                                 │
//!       └───────── claim by the host ─────┘      no migration: no message, no other core involved
//! ```
//!
//! A core that parks a vCPU pays for one store; the core that needs the vCPU fetches it. After the claim, the new core
//! makes itself the host ([`Doorbell::settle`](crate::vgic::Doorbell::settle)) and then looks at the doorbell, so no
//! interrupt is lost, whatever crosses.
//!
//! Two protocols span several words. *Write, fence, look* makes them safe:
//! - A core that goes idle publishes that in its [`Presence`], then looks for parked vCPUs. A core that parks a vCPU
//!   then looks for idle cores. At least one of the two sees the other.
//! - A core that parks a vCPU then looks at the vCPU's doorbell. A core that rings a doorbell then looks whether the
//!   vCPU is parked. One of them wakes the vCPU, or marks it as *wanted*.
//!
//! All of this runs on a [`Platform`]: a core of the hypervisor, of the simulator, or of the exhaustive test. What a core
//! remembers between two calls is its [`CoreState`]. The modules, each of which imports only those above it:
//!
//! | module | what it is about |
//! | --- | --- |
//! | `slot`, `presence` | the atomics that cores share |
//! | `grace`, `lock_holder` | when a vCPU may lose its core |
//! | `policy`, `choice` | which parked vCPU a core fetches |
//! | `core_state`, `platform` | the state of a core, and what it runs on |
//! | `park`, `catch`, `notify` | a core parks vCPUs, and notifies other cores |
//! | `send`, `fetch`, `pull` | vCPUs leave a core, and come to a core |
//! | `gang`, `defer` | a policy delays a runnable vCPU |
//! | `interrupt`, `decide` | one turn of a core's loop |

mod catch;
mod choice;
mod core_state;
mod decide;
mod defer;
mod exchange;
mod fetch;
mod gang;
mod grace;
mod interrupt;
mod lock_holder;
mod notify;
mod park;
mod platform;
mod policy;
mod presence;
mod pull;
mod save;
mod send;
mod shared;
mod slot;

#[cfg(test)]
mod tests;

pub use core_state::{Catch, CoreSetup, CoreState, TAKE_BACK_US};
pub use decide::{Next, next_action};
pub use exchange::{exchange, switch_in, switch_out};
pub use grace::{Grace, Sample};
pub use interrupt::{alarm_rang, arm_stale_alarm, handle, notify_vcpus, refresh, take_interrupts};
pub use lock_holder::{Interrupted, may_hold_lock};
pub use park::{acquire_token, park, wake};
pub use platform::{Delivery, Platform, Saved, State, Taken, TracePoint};
pub use policy::{Candidate, Here, Policy, PolicyRules, Running, Verdict};
pub use presence::{Level, Presence};
pub use pull::pull_for_start;
pub use save::save_loaded;
pub use send::caught;
pub use shared::{Claim, Roles, Shared, VcpuFacts};
pub use slot::{Parked, ParkedState, ParkingSlot, Peek};
