// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hypervisor's decisions in a model of a machine: time, costs and guests are modelled, `spumone-core` decides.
//!
//! A simulation is a sequence of events, each at one core at one virtual time: an interrupt, an alarm, the end of a
//! guest's step. Host time has no influence, so the same [`Setup`] gives the same [`Outcome`] on every machine.
//!
//! | module | |
//! | --- | --- |
//! | [`setup`], [`outcome`] | input and output |
//! | [`loads`] | the setups that show the modes of `[power]` |
//! | [`simulate`](mod@simulate) | the run: the next event of all cores, again and again |
//! | `instance` | one core's hypervisor: what `hypervisor/src/instance/` does around `spumone-core`, without registers |
//! | `deciding` | what decides whether a vCPU migrates: a policy of the hypervisor, or chance |
//! | `powering` | which cores are on: the governor, or chance |
//! | `meter` | how many cores are on, and how soon that follows the load |
//! | `world` | what the cores of one system share |
//! | `guest` | what runs on vCPUs: an SMP system with a workload like hackbench, a real-time task, a workload that makes vCPUs move all the time |
//! | `invariants` | what is checked after each event |
//! | [`costs`] | what the hypervisor's steps cost, in instructions |
//! | [`ideal`] | what the cores left by a load can achieve, from runs on bare machines |

#![forbid(unsafe_code)]

mod agenda;
pub mod costs;
mod deciding;
mod guest;
pub mod ideal;
mod instance;
mod invariants;
pub mod loads;
mod meter;
pub mod outcome;
mod powering;
mod random;
pub mod setup;
pub mod simulate;
mod time;
mod world;

pub use invariants::Violation;
pub use outcome::{Outcome, PowerOutcome, Times, Work};
pub use setup::{Decisions, Duty, End, Setup, SetupError, Span, Workload};
pub use simulate::{Failed, Simulation, simulate};
pub use time::{TICKS_PER_SECOND, TICKS_PER_US};
