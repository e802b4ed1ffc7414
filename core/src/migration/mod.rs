//! How vCPUs move between cores.
//!
//! The token of a vCPU that may move is in one of two places: with a core, which runs the vCPU, or keeps it
//! saved for a while; or it is *parked*: the token lies in the vCPU's own [`ParkingSlot`], where any core of
//! its guest may take it. The core that parked it is its *host*: interrupts for it go there, and its
//! timers ring there.
//!
//! ```text
//!                   park (release)
//!   with core a ──────────────────► parked, host a ──── claim (acquire) ──► with core b
//!       ▲                                 │
//!       └───────── claim by the host ─────┘      nothing moved: no message, no other core involved
//! ```
//!
//! To give a vCPU up costs its core one store; who needs it fetches it. A move is a claim, after which the
//! new core says that it is the host ([`Doorbell::settle`](crate::vgic::Doorbell::settle)) and then looks what has been
//! rung, so that no interrupt is lost whatever crosses.
//!
//! Two questions span several words, and are made safe by *write, fence, look*:
//! - A core that goes to sleep publishes that in its [`Presence`] and then looks for parked vCPUs; one that parks a
//!   vCPU then looks for idle cores. At least one of both sees the other.
//! - A core that parks a vCPU then looks at its doorbell; who rings then looks whether it is parked. One wakes it, or
//!   *presses* it: others wait for one that could run and has an interrupt.
//!
//! What a core does about vCPUs that move is a few functions, which run on a [`Site`]: a core of the hypervisor or of the
//! simulator. What it remembers between them is its [`Local`].

mod catching;
mod choice;
mod decide;
mod departing;
mod grace;
mod holding;
mod holding_back;
mod local;
mod lock_holder;
mod parking;
mod policy;
mod presence;
mod roles;
mod site;
mod taking;
mod telling;

#[cfg(test)]
#[cfg(not(loom))]
mod exhaustive_tests;
#[cfg(test)]
#[cfg(loom)]
mod loom_tests;
#[cfg(test)]
#[cfg(not(loom))]
mod model_tests;
#[cfg(test)]
#[cfg(not(loom))]
mod site_tests;

pub use catching::{Catch, catch, caught, stop_catching};
use choice::{Choice, whom_to_tell};
pub use decide::{Next, Taken, alarm_rang, arm_stale_alarm, take_interrupts, turn};
pub use grace::{Grace, Sample};
pub use holding::{hold, kicked, park, wake};
pub use local::{Local, Setting, TAKE_BACK_US};
pub use lock_holder::{Interrupted, may_hold_lock};
pub use parking::{Glance, Parked, ParkingSlot, Rest};
pub use policy::{Candidate, Conduct, Here, Policy, Running, Verdict};
pub use presence::{Level, Presence};
pub use roles::{Member, Roles, Tables, changes_cores};
pub use site::{Mark, Site};
pub use taking::{reach, summon};
pub use telling::give_up;
