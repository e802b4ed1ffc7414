// SPDX-License-Identifier: MIT OR Apache-2.0
//! The life of guests: vCPUs turned on and off, guests loaded and restarted; and who begins to stop a guest. [`orders`](super::orders)
//! stops it.

use super::Instance;
use super::mail::power_off;
use super::virtio::signal_peers;
use crate::console::say;
use crate::cpu;
use crate::epitaph::fatal;
use crate::events::Event;
use crate::guest::{Guest, Owner};
use crate::timers;
use crate::vcpu::Work;
use core::sync::atomic::Ordering;
use spumone_config::{GuestId, PcpuId, VcpuId};
use spumone_core::console::Subject;
use spumone_core::health::End;
use spumone_core::link::{Gpio, Signal};
use spumone_core::load::Work as Chunks;
use spumone_core::mailbox::Message;
use spumone_core::migration;
use spumone_core::orders::Start;
use spumone_core::psci::{EntryPoint, Generation, Phase, StopReason};
use spumone_core::schedule::Ticks;
use spumone_core::sets::CoreSet;
use spumone_core::vgic::VcpuIndex;
use spumone_core::virtio::Device;

/// Time in microseconds to print the last output when the operator turns the machine off: enough for a few lines.
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

    /// Orders that this core turns a vCPU on, if its guest is still in the life `generation`.
    pub(super) fn order_start(
        &mut self,
        id: VcpuId,
        entry_point: EntryPoint,
        generation: Generation,
    ) {
        let Some(&Owner {
            guest, id: owner, ..
        }) = self.platform.machine.vcpu(id)
        else {
            return;
        };
        // In a later life there may be a second message about this vCPU (core/mailbox).
        if guest.lifecycle.is_running(generation) {
            let start = Start {
                guest: owner,
                entry_point,
                generation,
            };
            self.platform.orders.start(id, start);
            self.decides_for_orders();
        }
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
        if !guest.lifecycle.is_running(generation) {
            return;
        }
        if self.defers_step() {
            return self.order_start(id, start, generation);
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
        self.saved(id).power_on(start, timers::now());
        self.platform.attendance.forget_timer();
        guest.power.started(index.0);
        self.state.start(id);
        self.state.park_soon(id);
    }

    /// The running vCPU turns itself off (PSCI CPU_OFF).
    pub(super) fn turn_off(&mut self) {
        let vcpu = super::loaded(&mut self.state);
        let (id, guest_id, index, guest) = (vcpu.id(), vcpu.guest, vcpu.index, vcpu.shared);
        migration::save_loaded(&mut self.state, &mut self.platform);
        self.saved(id).waits(Ticks::NEVER);
        self.state.stop(id);
        migration::park(&mut self.state, &mut self.platform, id);
        if guest.power.stopped(index.0) {
            // It was the last one that was on: the guest cannot turn a vCPU on any more.
            self.stop_guest(guest_id, StopReason::Off);
        }
        if cpu::interrupt_pending() {
            self.take_interrupts();
        }
    }

    /// Begins to stop a guest, if this is still its life and it runs. Returns whether this core has begun it, and must [tell](Self::send_stop) the guest's
    /// other cores.
    pub(super) fn begin_stop(
        &mut self,
        guest: GuestId,
        life: Generation,
        reason: StopReason,
    ) -> bool {
        let machine = self.platform.machine;
        let begins = machine.guest(guest).lifecycle.begin_stop(life, reason);
        if begins.is_some() {
            machine.health.note(End {
                at: timers::now(),
                guest,
                life,
                reason,
            });
        }
        begins.is_some()
    }

    /// Stops a guest on all its cores, unless it is being stopped already.
    pub(super) fn stop_guest(&mut self, guest_id: GuestId, reason: StopReason) {
        let guest = self.platform.machine.guest(guest_id);
        let life = guest.lifecycle.now().1;
        if !self.begin_stop(guest_id, life, reason) {
            // Another core stops the guest, and its message has not been read here yet. The vCPU that caused this call
            // must not run until then.
            // At most 8 times: vCPUs of the guest.
            if matches!(guest.lifecycle.now().0, Phase::Stopping(_))
                && let Some(id) = self.state.running()
                && guest.vcpus.contains(&id)
            {
                self.state.stop(id);
            }
            return;
        }
        let this_core = 1 << self.platform.core.0;
        self.send_stop(guest_id, guest.cores() & !this_core);
        self.order_stop(guest_id, life);
    }

    /// Orders that this core stops its vCPUs of the guest, if that life of the guest is being stopped. None of them is entered before
    /// that is done: the order is due whenever one of them is to run.
    pub(super) fn order_stop(&mut self, guest_id: GuestId, generation: Generation) {
        let (phase, current) = self.platform.machine.guest(guest_id).lifecycle.now();
        if current == generation && matches!(phase, Phase::Stopping(_)) {
            self.platform.orders.stop(guest_id);
            self.decides_for_orders();
        }
    }

    /// Orders that these cores (bit n: core n) are sent a message to stop their vCPUs of the guest, which is being stopped.
    pub(super) fn send_stop(&mut self, guest: GuestId, cores: u32) {
        self.platform.events.note(Event::Stop, u64::from(guest.0));
        let cores = CoreSet::from_bits(cores);
        self.platform.orders.tell(guest, cores);
        self.decides_for_orders();
    }

    /// Sends a core such a message, by which it is to tell these others. The guest is in the same life as when that was ordered, since its life does not end before all its cores have stopped
    /// their vCPUs.
    pub(super) fn tell_of_stop(&mut self, guest: GuestId, core: PcpuId, others: CoreSet) {
        let generation = self.platform.machine.guest(guest).lifecycle.now().1;
        let message = Message::StopGuest {
            guest,
            generation,
            others,
        };
        self.post(core, guest, message);
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

    /// Starts the guest's first vCPU, which has loaded the guest and [reset its state](reset_shared), if all that was loaded is what the
    /// description says.
    #[inline(never)]
    pub(super) fn begin_life(&mut self, id: VcpuId) {
        if let Some(number) = self.saved(id).shared.loading.wrong() {
            return self.refuse_life(id, number);
        }
        let events = self.platform.events;
        let vcpu = self.saved(id);
        events.note(Event::Start, u64::from(vcpu.guest.0));
        let guest = vcpu.shared;
        let config = &guest.config;
        vcpu.reset(EntryPoint {
            entry: config.entry,
            context: config.boot_argument,
        });
        let index = vcpu.index.0;
        self.platform.attendance.forget_timer();
        // The lifecycle must say that the guest runs before its vCPU does.
        guest.lifecycle.run();
        if guest.power.request_start(index).is_ok() {
            guest.power.started(index);
        }
        signal_peers(guest);
    }

    /// Ends the life of a guest before one of its vCPUs has run, because chunk `number` of it does not have its hash. Its end is that of
    /// other lives, so all that the loading has left is cleared.
    fn refuse_life(&mut self, id: VcpuId, number: u32) {
        let vcpu = self.saved(id);
        vcpu.work = Work::Guest;
        let (guest_id, guest) = (vcpu.guest, vcpu.shared);
        self.state.stop(id);
        guest.lifecycle.run();
        if let Some(wrong) = Chunks::new(&guest.config, guest.phases).wrong(number) {
            self.say_of(guest_id, Subject::Unverified(wrong));
        }
        self.stop_guest(guest_id, StopReason::Unverified);
    }

    /// Restarts a guest for the operator; returns the phase in which it was. Has no effect on a guest that is
    /// being loaded or stopped.
    ///
    /// This core, too, stops its vCPUs when its mail arrives, so not while it runs a higher band.
    pub(super) fn restart_guest(&mut self, guest_id: GuestId) -> Phase {
        let guest = self.platform.machine.guest(guest_id);
        let (phase, life) = guest.lifecycle.now();
        if guest.lifecycle.begin_restore() {
            self.send_restart(guest_id);
        } else if self.begin_stop(guest_id, life, StopReason::Operator) {
            self.send_stop(guest_id, guest.cores());
        }
        phase
    }

    /// Turns the machine off at once.
    pub(super) fn stop_machine(&mut self) -> ! {
        self.say_all();
        say!(self.platform.core, "the machine goes off");
        power_off(self.platform.machine, LAST_WORDS_US);
    }
}

/// Resets the state of a guest that its cores share, before its life begins.
pub(super) fn reset_shared(guest: &Guest) {
    guest.gic.reset();
    guest.watchdog.reset();
    guest.reset_stolen();
    let links = guest.config.links.len();
    // At most 8 times: links of a guest.
    guest.signals.iter().take(links).for_each(Signal::reset);
    // At most 8 times: links of a guest.
    guest.gpios.iter().take(links).for_each(Gpio::reset);
    let devices = guest.virtio.iter().take(links);
    // At most 8 times: links of a guest.
    devices.for_each(Device::finish_reset);
    guest.due.store(0, Ordering::Relaxed);
    guest.broken_virtio.store(0, Ordering::Relaxed);
    guest.has_aborted.store(false, Ordering::Relaxed);
}
