// SPDX-License-Identifier: MIT OR Apache-2.0
//! The life of guests: vCPUs turned on and off, guests loaded, stopped, restarted.
//!
//! The core whose `Lifecycle::begin_stop` succeeds stops a guest: it sends mail to each core of the
//! guest. Each of them stops the guest's vCPUs that it has, and acknowledges; the last one resets the
//! guest's shared state and, for a restart, has the guest loaded. No core waits for another.

use super::Instance;
use super::mail::power_off;
use crate::console::{CONSOLE, say};
use crate::epitaph::fatal;
use crate::events::Event;
use crate::guest::Owner;
use crate::hardware::write_if_there;
use crate::vcpu::Work;
use core::sync::atomic::Ordering;
use spumone_config::{GuestId, PcpuId, VcpuId};
use spumone_core::console::Source;
use spumone_core::link::{Gpio, Signal};
use spumone_core::mailbox::Message;
use spumone_core::migration;
use spumone_core::psci::{AfterStop, EntryPoint, Generation, Phase, StopReason};
use spumone_core::vgic::VcpuIndex;
use spumone_core::virtio::Device;

/// Time in microseconds to print the last output of guests when the machine turns itself off: enough for
/// all rings at 115200 baud.
const LAST_OUTPUT_US: u32 = 2_000_000;
/// The same when the operator turns the machine off: enough for a few lines.
const LAST_WORDS_US: u32 = 20_000;

impl Instance {
    /// Sends a message about `guest` to another core.
    pub(super) fn post(&mut self, to: PcpuId, guest: GuestId, message: Message) {
        if self.platform.port.send(to, message).is_err() {
            // There is always room (core/mailbox), unless the hypervisor's memory is damaged.
            fatal!("the mailbox to core {to} is full");
        }
        let machine = self.platform.machine;
        machine.call_core(to, machine.guest(guest).config.band);
    }

    /// Turns a vCPU on, on whichever core it is, if its guest is still in the life `generation`.
    pub(super) fn start_vcpu(&mut self, id: VcpuId, start: EntryPoint, generation: Generation) {
        let Some(&Owner {
            guest,
            id: owner,
            index,
        }) = self.platform.machine.vcpu(id)
        else {
            return;
        };
        // Checked first: in a later life there may be a second message about this vCPU (core/mailbox).
        if !guest.lifecycle.is_running(generation) {
            return;
        }
        if !migration::pull_for_start(&mut self.state, &mut self.platform, id) {
            let host = guest.gic.doorbell(index).location();
            let message = Message::StartVcpu {
                vcpu: id,
                entry_point: start,
                generation,
            };
            self.post(host, owner, message);
            return;
        }
        self.saved(id).power_on(start);
        guest.power.started(index.0);
        self.state.start(id);
        migration::park(&mut self.state, &mut self.platform, id);
    }

    /// The running vCPU turns itself off (PSCI CPU_OFF).
    pub(super) fn turn_off(&mut self) {
        let vcpu = super::loaded(&mut self.state);
        let (id, guest_id, index, guest) = (vcpu.id(), vcpu.guest, vcpu.index, vcpu.shared);
        migration::save_loaded(&mut self.state, &mut self.platform);
        self.state.stop(id);
        migration::park(&mut self.state, &mut self.platform, id);
        if guest.power.stopped(index.0) {
            // It was the last one that was on: the guest cannot turn a vCPU on any more.
            self.stop_guest(guest_id, StopReason::Off);
        }
    }

    /// Stops a guest on all its cores, unless it is being stopped already.
    pub(super) fn stop_guest(&mut self, guest_id: GuestId, reason: StopReason) {
        let guest = self.platform.machine.guest(guest_id);
        let Some(generation) = guest.lifecycle.begin_stop(reason) else {
            // Another core stops the guest, and its message has not been read here yet. The vCPU that caused this call
            // must not run until then.
            if matches!(guest.lifecycle.now().0, Phase::Stopping(_))
                && let Some(id) = self.state.running()
                && guest.vcpus.contains(&id)
            {
                self.state.stop(id);
            }
            return;
        };
        let this_core = 1 << self.platform.core.0;
        self.send_stop(guest_id, generation, guest.cores() & !this_core);
        if guest.cores() & this_core != 0 {
            // Mail of this life is read before the stop is acknowledged: that bounds the number of
            // messages in a mailbox (core/mailbox).
            self.read_mail();
            self.stop_own_vcpus(guest_id, generation);
        }
    }

    /// Sends these cores (bit n: core n) a message to stop their vCPUs of the guest.
    fn send_stop(&mut self, guest: GuestId, generation: Generation, cores: u32) {
        self.platform.events.note(Event::Stop, u64::from(guest.0));
        for core in (0..self.platform.machine.cores.len() as u8).map(PcpuId) {
            if cores >> core.0 & 1 != 0 {
                self.post(core, guest, Message::StopGuest { guest, generation });
            }
        }
    }

    /// Stops the vCPUs of the guest on this core, and acknowledges.
    pub(super) fn stop_own_vcpus(&mut self, guest_id: GuestId, generation: Generation) {
        let guest = self.platform.machine.guest(guest_id);
        let (phase, current) = guest.lifecycle.now();
        if current != generation || !matches!(phase, Phase::Stopping(_)) {
            return;
        }
        for &id in &guest.vcpus {
            if !migration::acquire_token(&mut self.state, &mut self.platform, id) {
                self.state.forget(id);
                continue;
            }
            if self.state.loaded() == Some(id) {
                // Saved only to release the list registers and timers of the core.
                migration::save_loaded(&mut self.state, &mut self.platform);
            }
            self.state.stop(id);
            self.saved(id).reset(EntryPoint {
                entry: guest.config.entry,
                context: 0,
            });
            migration::park(&mut self.state, &mut self.platform, id);
        }
        if guest.lifecycle.acknowledge(self.platform.core) {
            self.clear_guest(guest_id);
            if let Some(after) = guest.lifecycle.finish_stop() {
                self.after_stop(guest_id, after);
            }
        }
    }

    /// Quiesces the guest's devices and resets its shared state. Called on the last core that acknowledges,
    /// when no core uses the guest any more.
    fn clear_guest(&mut self, guest_id: GuestId) {
        let guest = self.platform.machine.guest(guest_id);
        for quiesce in &guest.config.quiesce {
            write_if_there(quiesce.register, quiesce.value);
        }
        let gic = self.platform.machine.gic;
        for interrupt in &guest.config.interrupts {
            gic.set_spi_enabled(interrupt.physical, false);
        }
        gic.wait_until_disabled();
        self.platform.machine.route_to_first_vcpu(guest);
        guest.vuart.reset();
        guest.power.reset();
        self.virtio_goes_down(guest_id);
        self.signal_peers(guest_id);
        CONSOLE.end_stream(Source::Guest(guest_id));
        self.serve_console_in_band();
    }

    fn after_stop(&mut self, guest_id: GuestId, after: AfterStop) {
        let guest = self.platform.machine.guest(guest_id);
        let name = &guest.config.name;
        match after {
            AfterStop::Stay(reason) => {
                let why = match reason {
                    StopReason::Off => "is off",
                    StopReason::Reset => "is reset",
                    StopReason::Fault => "was stopped",
                };
                say!(self.platform.core, "guest {name} {why}");
                let all_stopped = self
                    .platform
                    .machine
                    .guests
                    .iter()
                    .all(|guest| matches!(guest.lifecycle.now().0, Phase::Stopped(_)));
                if all_stopped {
                    say!(
                        self.platform.core,
                        "all guests have ended, the machine goes off"
                    );
                    power_off(self.platform.machine, LAST_OUTPUT_US);
                }
            }
            AfterStop::Restore => {
                say!(self.platform.core, "guest {name} restarts");
                self.send_restart(guest_id);
            }
        }
    }

    /// Has the host core of the guest's first vCPU load the guest.
    fn send_restart(&mut self, guest_id: GuestId) {
        let guest = self.platform.machine.guest(guest_id);
        let core = guest.gic.doorbell(VcpuIndex(0)).location();
        if core == self.platform.core {
            self.begin_loading(guest_id);
        } else {
            let message = Message::RestartGuest {
                guest: guest_id,
                generation: guest.lifecycle.now().1,
            };
            self.post(core, guest_id, message);
        }
    }

    /// Has the guest's first vCPU, which is on this core, load the guest.
    pub(super) fn begin_loading(&mut self, guest_id: GuestId) {
        let guest = self.platform.machine.guest(guest_id);
        let Some(id) = guest.vcpu(VcpuIndex(0)) else {
            return;
        };
        migration::acquire_token(&mut self.state, &mut self.platform, id);
        self.saved(id).work = Work::Load;
        self.state.start(id);
    }

    /// Starts the guest's first vCPU, which has loaded the guest.
    pub(super) fn begin_life(&mut self, id: VcpuId) {
        let events = self.platform.events;
        let vcpu = self.saved(id);
        events.note(Event::Start, u64::from(vcpu.guest.0));
        let (guest, guest_id) = (vcpu.shared, vcpu.guest);
        let config = &guest.config;
        vcpu.reset(EntryPoint {
            entry: config.entry,
            context: config.boot_argument,
        });
        let index = vcpu.index.0;
        guest.gic.reset();
        guest.signals.iter().for_each(Signal::reset);
        guest.gpios.iter().for_each(Gpio::reset);
        guest.virtio.iter().for_each(Device::finish_reset);
        guest.due.store(0, Ordering::Relaxed);
        guest.broken_virtio.store(0, Ordering::Relaxed);
        // The lifecycle must say that the guest runs before its vCPU does.
        guest.lifecycle.run();
        if guest.power.request_start(index).is_ok() {
            guest.power.started(index);
        }
        self.signal_peers(guest_id);
    }

    /// Restarts a guest for the operator; returns the phase in which it was. Has no effect on a guest that is
    /// being loaded or stopped.
    ///
    /// This core, too, stops its vCPUs when its mail arrives, so not while it runs a higher band.
    pub(super) fn restart_guest(&mut self, guest_id: GuestId) -> Phase {
        let guest = self.platform.machine.guest(guest_id);
        let phase = guest.lifecycle.now().0;
        if guest.lifecycle.begin_restore() {
            self.send_restart(guest_id);
        } else if let Some(generation) = guest.lifecycle.begin_stop(StopReason::Reset) {
            self.send_stop(guest_id, generation, guest.cores());
        }
        phase
    }

    /// Turns the machine off at once.
    pub(super) fn stop_machine(&mut self) -> ! {
        say!(self.platform.core, "the machine goes off");
        power_off(self.platform.machine, LAST_WORDS_US);
    }
}
