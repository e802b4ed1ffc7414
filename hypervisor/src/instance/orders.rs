// SPDX-License-Identifier: MIT OR Apache-2.0
//! Carries out what is ordered about the lives of guests, one step at a time.
//!
//! The core whose `Lifecycle::begin_stop` succeeds stops a guest: it sends mail to two cores of the guest, of which one tells the others. Each of them takes
//! off the guest's vCPUs that it has, and acknowledges; the last one resets the guest's shared state and, for a restart, has the
//! guest loaded. No core waits for another.

use super::Instance;
use super::mail::power_off;
use crate::console::{CONSOLE, say};
use crate::cpu;
use crate::guest::Owner;
use crate::hardware::write_if_there;
use crate::timers;
use spumone_config::packed::OnTamper;
use spumone_config::types::PcpuId;
use spumone_config::{GuestId, VcpuId};
use spumone_core::console::{Notice, Source, Subject};
use spumone_core::mailbox::Message;
use spumone_core::migration;
use spumone_core::orders::{Order, Route, StopStep};
use spumone_core::psci::{AfterStop, Ending, Phase, Wishes};
use spumone_core::schedule::Band;
use spumone_core::sets::CoreSet;
use spumone_core::vgic::VcpuIndex;

/// Interrupts of a guest that one step disables or routes.
const INTERRUPTS_PER_STEP: usize = 4;
/// Time in microseconds to print the last output of guests when the machine turns itself off: enough for
/// all rings at 115200 baud.
const LAST_OUTPUT_US: u32 = 2_000_000;

impl Instance {
    /// Carries out orders until an interrupt is pending, or the core must decide.
    pub(super) fn do_orders(&mut self) {
        while self.platform.orders.are_due(self.state.current_band()) {
            if self.platform.orders.defer(cpu::interrupt_pending()) {
                break;
            }
            self.do_order();
            if self.state.must_decide() {
                break;
            }
        }
        if cpu::interrupt_pending() {
            self.take_interrupts();
        }
        self.decides_for_orders();
    }

    /// Has the core decide again if an order is due in the band that it runs: the decision leads to the order. If the order is about a guest
    /// of a lower band, the decision by which the core goes back to that band leads to it.
    pub(super) fn decides_for_orders(&mut self) {
        if self.platform.orders.are_due(self.state.current_band()) {
            self.state.decide_anew();
        }
    }

    /// Says something about a guest.
    pub(super) fn say_of(&mut self, guest: GuestId, subject: Subject<'static>) {
        let name = &self.platform.machine.guest(guest).config.name;
        self.platform.orders.note(Notice {
            guest,
            name,
            subject,
        });
        self.decides_for_orders();
    }

    fn do_order(&mut self) {
        let band = self.state.current_band();
        let machine = self.platform.machine;
        // Where a guest does not migrate, its cores do not publish what they run: none is known to read its mail at once.
        let passes_on = |guest: GuestId, cores: CoreSet| {
            let config = &machine.guest(guest).config;
            match config.moves {
                true => machine.shared.running_at_most(cores, config.band),
                false => CoreSet::EMPTY,
            }
        };
        match self.platform.orders.take(band, passes_on) {
            None => {}
            Some(Order::Mail) => {
                self.read_mail();
            }
            Some(Order::Tell(guest, core, others)) => self.tell_of_stop(guest, core, others),
            Some(Order::Start(id, start)) => {
                self.start_vcpu(id, start.entry_point, start.generation);
            }
            Some(Order::Load(guest)) => self.begin_loading(guest),
            Some(Order::Route(id, route)) => self.route_more(id, route),
            Some(Order::Stop(guest, step)) => match self.do_stop_step(guest, step) {
                Some(next) => self.platform.orders.stop_goes_on(guest, next),
                None => self.platform.orders.stop_ends(guest),
            },
            Some(Order::Say) => self.say_more(band),
        }
    }

    /// Routes more interrupts of a vCPU's devices to this core, unless the vCPU has left it since: then they follow it, or are routed with
    /// the end of its life.
    fn route_more(&mut self, id: VcpuId, route: Route) {
        if let Some(&Owner { guest, index, .. }) = self.platform.machine.vcpu(id)
            && guest.lifecycle.now().0 == Phase::Running
        {
            self.platform.route_from(id, route.guest, index, route.from);
        }
    }

    /// Writes a part of a line, while the core runs this band.
    fn say_more(&mut self, band: Option<Band>) {
        let source = Source::Hypervisor(self.platform.core);
        let room = CONSOLE.room(source);
        self.platform.orders.say(band, room, |byte| {
            // There is room for a line that has begun.
            let _ = CONSOLE.push(source, byte);
        });
        // Printed by a core that idles or runs the lowest band, and by the console core in any case.
        CONSOLE.ask();
    }

    /// Writes all lines that this core has noted. Only before the machine is turned off.
    pub(super) fn say_all(&mut self) {
        /// More steps than all lines take.
        const MAX_STEPS: usize = 2048;
        for _ in 0..MAX_STEPS {
            if self.platform.orders.are_said() {
                break;
            }
            self.say_more(None);
        }
    }

    /// Does a step of the stop of a guest. Returns the step that follows on this core, if there is one.
    fn do_stop_step(&mut self, id: GuestId, step: StopStep) -> Option<StopStep> {
        let machine = self.platform.machine;
        let guest = machine.guest(id);
        let interrupts = |chunk| {
            let mut chunks = guest.config.interrupts.chunks(INTERRUPTS_PER_STEP);
            chunks.nth(chunk).unwrap_or_default()
        };
        Some(match step {
            StopStep::TakeOff(index) => match guest.vcpus.get(index) {
                // Its registers are saved, only to release the list registers and timers of the core.
                Some(&vcpu) if self.state.loaded() == Some(vcpu) => {
                    if self.can_be_saved() {
                        migration::save_loaded(&mut self.state, &mut self.platform);
                    }
                    step
                }
                Some(&vcpu) if self.acquires(vcpu) => step,
                Some(&vcpu) => {
                    self.take_off(vcpu);
                    StopStep::TakeOff(index + 1)
                }
                None => StopStep::Acknowledge,
            },
            StopStep::Acknowledge => {
                // The number of messages in a mailbox is bounded by this (core/mailbox).
                if !self.read_mail() {
                    return Some(step);
                }
                let is_last = guest.lifecycle.acknowledge(self.platform.core);
                return is_last.then_some(StopStep::Quiesce(0));
            }
            // No core uses the guest any more.
            StopStep::Quiesce(index) => match guest.config.quiesce.get(index) {
                Some(quiesce) => {
                    write_if_there(quiesce.register, quiesce.value);
                    StopStep::Quiesce(index + 1)
                }
                None => StopStep::Disable(0),
            },
            StopStep::Disable(chunk) => match interrupts(chunk) {
                [] => {
                    machine.gic.wait_until_disabled();
                    StopStep::Route(0)
                }
                some => {
                    // At most 4 times: `INTERRUPTS_PER_STEP`.
                    for interrupt in some {
                        machine.gic.set_spi_enabled(interrupt.physical, false);
                    }
                    StopStep::Disable(chunk + 1)
                }
            },
            StopStep::Route(chunk) => match interrupts(chunk) {
                [] => StopStep::Unlink(0),
                some => {
                    machine.route_to_first_vcpu(guest, some);
                    StopStep::Route(chunk + 1)
                }
            },
            StopStep::Unlink(link) if link < guest.config.links.len() => {
                self.link_goes_down(id, link);
                StopStep::Unlink(link + 1)
            }
            StopStep::Unlink(_) => StopStep::Reset,
            StopStep::Reset => {
                guest.vuart.reset();
                guest.power.reset();
                CONSOLE.end_stream(Source::Guest(id));
                CONSOLE.ask();
                StopStep::Say
            }
            StopStep::Say => {
                let Phase::Stopping(reason) = guest.lifecycle.now().0 else {
                    return None;
                };
                let (now, frequency) = (timers::now(), timers::frequency() as u32);
                let protect = guest.config.protect.as_ref();
                let wishes = Wishes {
                    on_stop: guest.config.on_stop,
                    on_tamper: protect.map_or(OnTamper::Stop, |it| it.on_tamper),
                };
                let ending = guest.restarts.ending(wishes, reason, now, frequency);
                let subject = match ending {
                    Ending::Restarts => Subject::Restarts(reason),
                    Ending::StaysAtLimit => Subject::RestartsTooOften(reason),
                    Ending::Stays | Ending::MachineGoesOff => Subject::Stopped(reason),
                };
                self.say_of(id, subject);
                StopStep::Finish(ending)
            }
            StopStep::Finish(ending) => {
                let restarts = ending == Ending::Restarts;
                if let Some(after) = guest.lifecycle.finish_stop(restarts) {
                    self.after_stop(id, after);
                }
                if ending == Ending::MachineGoesOff {
                    let name = &guest.config.name;
                    say!(
                        self.platform.core,
                        "guest {name} has ended, the machine goes off"
                    );
                    power_off(machine, LAST_OUTPUT_US);
                }
                return None;
            }
        })
    }

    /// Whether this core has acquired the token of a vCPU that it had parked.
    fn acquires(&mut self, id: VcpuId) -> bool {
        self.state.saved_vcpu_mut(id).is_none()
            && migration::acquire_token(&mut self.state, &mut self.platform, id)
    }

    /// Turns a vCPU of a guest that is stopped off, if this core has it.
    fn take_off(&mut self, id: VcpuId) {
        if !migration::acquire_token(&mut self.state, &mut self.platform, id) {
            self.state.forget(id);
            return;
        }
        self.state.stop(id);
        self.saved(id).end_life();
        self.state.park_soon(id);
    }

    fn after_stop(&mut self, guest: GuestId, after: AfterStop) {
        let machine = self.platform.machine;
        match after {
            AfterStop::Stay(_) => {
                let mut guests = machine.guests.iter();
                // At most 8 times: guests.
                if guests.all(|guest| matches!(guest.lifecycle.now().0, Phase::Stopped(_))) {
                    say!(
                        self.platform.core,
                        "all guests have ended, the machine goes off"
                    );
                    power_off(machine, LAST_OUTPUT_US);
                }
            }
            AfterStop::Restore => self.send_restart(guest),
        }
    }

    /// Has the host core of the guest's first vCPU load the guest.
    pub(super) fn send_restart(&mut self, id: GuestId) {
        let guest = self.platform.machine.guest(id);
        let core: PcpuId = guest.gic.doorbell(VcpuIndex(0)).location();
        if core == self.platform.core {
            self.begin_loading(id);
        } else {
            let message = Message::RestartGuest {
                guest: id,
                generation: guest.lifecycle.now().1,
            };
            self.post(core, id, message);
        }
    }
}
