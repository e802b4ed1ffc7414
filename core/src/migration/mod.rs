// SPDX-License-Identifier: MIT OR Apache-2.0
//! How vCPUs migrate between cores.
//!
//! The token of a vCPU that may migrate is in one of two places. Either a core has it: the core runs the vCPU, or keeps
//! its saved registers for a while. Or the vCPU is *parked*: the token lies beside the vCPU's own [`ParkingSlot`], where
//! any core of its guest may claim it. The core that has the token, or parked it, is the vCPU's *host core*: interrupts for
//! the vCPU go there, and its deadlines are kept there.
//!
//! ```text
//!                   park (release)
//!   with core a ──────────────────► parked by core a ──── claim (acquire) ──► with core b
//!       ▲                                 │
//!       └───────── claim by core a ───────┘      no migration: no message, no other core involved
//! ```
//!
//! Parking takes no lock and waits for no core; the core that needs the vCPU fetches it. After the claim, the new core
//! makes itself the host core ([`Doorbell::settle`](crate::vgic::Doorbell::settle)) and then looks at the doorbell, so no
//! interrupt is lost, in whatever order the cores act.
//!
//! Two protocols use several words of memory. They are safe because each core first writes, then has a fence, then
//! looks at what the other core writes:
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
//! | `lead` | how early a core begins to switch to a vCPU |
//! | `slot`, `presence`, `shared` | what cores share: atomics, and constants of vCPUs |
//! | `grace`, `lock_holder` | when a vCPU may lose its core |
//! | `policy`, `choice` | which parked vCPUs a core fetches |
//! | `core_state`, `platform` | the state of a core, and what it runs on |
//! | `early` | a core switches to a vCPU before the vCPU's timer expires |
//! | `quiet` | an idle core does no work of its own shortly before it wakes a vCPU |
//! | `expired` | each vCPU whose deadline has passed is woken |
//! | `park`, `catch`, `notify`, `save` | a core saves and parks vCPUs, and notifies other cores |
//! | `claim`, `pull`, `interrupt` | a core claims a vCPU that another core has parked; it takes interrupts |
//! | `send`, `fetch` | vCPUs leave a core, and come to a core |
//! | `gang`, `defer` | a policy makes a runnable vCPU wait |
//! | `preempt` | the short way of a decision |
//! | `finish`, `decide`, `switch` | one iteration of a core's loop |
//! | `off` | a core goes off, and comes back |

mod call_cores;
mod catch;
mod choice;
mod claim;
mod core_state;
mod decide;
mod defer;
mod early;
mod expired;
mod fetch;
mod finish;
mod gang;
mod grace;
mod interrupt;
mod lead;
mod lock_holder;
mod notify;
mod off;
mod park;
mod platform;
mod policy;
mod preempt;
mod presence;
mod pull;
mod quiet;
mod save;
mod send;
mod shared;
mod slot;
mod switch;
mod turn;
mod waiting;

#[cfg(test)]
mod tests;

pub use crate::schedule::Level;
pub use core_state::{Catch, CoreSetup, CoreState, TAKE_BACK_US};
pub use decide::{Next, next_action};
pub use early::sleep;
pub use grace::{Grace, Leaves, Sample};
pub use interrupt::{
    alarm_expired, arm_stale_alarm, delivers_kick, handle, look_before_decision,
    notify_unless_interrupted, notify_vcpus, refresh, take_interrupts,
};
pub use lead::{Early, Lead};
pub use lock_holder::{Interrupted, may_hold_lock};
pub use off::{follow_wish, is_at_rest};
pub use park::{acquire_token, park, wake};
pub use platform::{Delivery, Platform, Saved, State, Taken, TracePoint};
pub use policy::{Candidate, Fetcher, Policy, PolicyRules, Running, Verdict};
pub use presence::Presence;
pub use pull::pull_for_start;
pub use quiet::{quiet_from, set_chore};
pub use save::save_loaded;
pub use send::caught;
pub use shared::{Claim, Roles, Shared, VcpuFacts};
pub use slot::{Parked, ParkedState, ParkingSlot, Peek};
pub use switch::{switch, switch_in, switch_out, take_back_interrupts};
