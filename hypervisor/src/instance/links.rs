// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links between guests: the registers of memory links, and signals.

use super::{Instance, loaded};
use spumone_config::GuestId;
use spumone_config::packed::LinkKind;
use spumone_core::link::{Command, Registers};
use spumone_core::psci::Phase;
use spumone_core::trap::{AccessSize, DataAccess};
use spumone_core::vgic::VcpuIndexSet;

impl Instance {
    /// Emulates an access of the running vCPU to the registers of its guest's link `index`, which the guest has. Registers
    /// are accessed with 32 bits; other accesses read as zero and write nothing.
    ///
    /// Returns whether the instruction is done; if not, it is executed again.
    pub(super) fn access_link(&mut self, index: usize, offset: u64, access: DataAccess) -> bool {
        let machine = self.platform.machine;
        let vcpu = loaded(&mut self.state);
        let (guest_id, guest) = (vcpu.guest, vcpu.shared);
        let (Some(end), Some(signal)) = (guest.config.links.get(index), guest.signals.get(index))
        else {
            return true;
        };
        let (memory, writes) = match end.kind {
            LinkKind::Memory { memory, writes } => (memory, writes),
            LinkKind::Network { .. } | LinkKind::Socket { .. } => {
                return self.access_virtio(index, offset, access);
            }
        };
        let is_register = access.size == AccessSize::Word;
        if !access.write {
            let registers = Registers {
                size: memory.size,
                writes,
                is_second: end.is_second,
                life: guest.lifecycle.now().1,
                peer: machine.guest(end.peer).lifecycle.now(),
                is_given: signal.is_given(),
                ended: machine.health.last_of(end.peer),
            };
            let value = match is_register {
                true => registers.read(offset),
                false => 0,
            };
            let value = access.load_value(u64::from(value));
            access.register.write(&mut vcpu.registers.x, value);
            return true;
        }
        match Command::of_write(offset).filter(|_| is_register) {
            Some(Command::Signal) => self.give_signal(end.peer, usize::from(end.peer_link)),
            Some(Command::Acknowledge) => self.take_signal(guest_id, index),
            None => {}
        }
        true
    }

    /// The same for the GPIO controller of link `index`. Its registers are accessed with 8 bits or more.
    pub(super) fn access_link_gpio(&mut self, index: usize, offset: u64, access: DataAccess) {
        let vcpu = loaded(&mut self.state);
        let (guest_id, guest) = (vcpu.guest, vcpu.shared);
        let (Some(end), Some(signal), Some(gpio)) = (
            guest.config.links.get(index),
            guest.signals.get(index),
            guest.gpios.get(index),
        ) else {
            return;
        };
        if !access.write {
            let value = u64::from(gpio.read(offset, signal.is_given()));
            let value = access.load_value(value);
            access.register.write(&mut vcpu.registers.x, value);
            return;
        }
        let value = access.store_value(access.register.read(&vcpu.registers.x));
        let effect = gpio.write(offset, value as u32);
        if effect.gives {
            self.give_signal(end.peer, usize::from(end.peer_link));
        }
        if effect.takes {
            self.take_signal(guest_id, index);
        } else if effect.line_changed {
            self.publish_signal(guest_id, index);
        }
    }

    /// Gives the signal of link `index` to `guest`, if the guest runs.
    fn give_signal(&mut self, guest: GuestId, index: usize) {
        let shared = self.platform.machine.guest(guest);
        // When a guest is stopped it has no interrupts any more, and its next life begins without signals.
        if shared.lifecycle.now().0 == Phase::Running
            && shared.signals.get(index).is_some_and(|it| it.give())
        {
            self.signal_changed(guest, index, true);
        }
    }

    /// Takes the signal of link `index` of `guest` back.
    fn take_signal(&mut self, guest: GuestId, index: usize) {
        let shared = self.platform.machine.guest(guest);
        if shared.signals.get(index).is_some_and(|it| it.take()) {
            self.signal_changed(guest, index, false);
        }
    }

    fn signal_changed(&mut self, guest: GuestId, index: usize, is_given: bool) {
        if let Some(gpio) = self.platform.machine.guest(guest).gpios.get(index) {
            gpio.input_changed(is_given);
        }
        self.publish_signal(guest, index);
    }

    /// Passes the levels of a signal's interrupts to the guest's virtual GIC.
    fn publish_signal(&mut self, guest: GuestId, index: usize) {
        let shared = self.platform.machine.guest(guest);
        let (Some(end), Some(signal), Some(gpio)) = (
            shared.config.links.get(index),
            shared.signals.get(index),
            shared.gpios.get(index),
        ) else {
            return;
        };
        let mut rung = VcpuIndexSet::EMPTY;
        signal.publish(|high| {
            rung = rung.with(shared.gic.set_level(end.interrupt, high));
        });
        if let Some(config) = end.gpio {
            gpio.publish(signal, |high| {
                rung = rung.with(shared.gic.set_level(config.interrupt, high));
            });
        }
        self.notify_later(guest, rung);
    }

    /// The life of `guest` has ended: the guest at the other end of this link is to know.
    pub(super) fn link_goes_down(&mut self, guest: GuestId, index: usize) {
        self.virtio_goes_down(guest, index);
        self.signal_peer(guest, index);
    }

    /// A life of `guest` has begun or ended: signals the guest at the other end of a memory link.
    pub(super) fn signal_peer(&mut self, guest: GuestId, index: usize) {
        let end = self.platform.machine.guest(guest).config.links.get(index);
        if let Some(end) = end
            && let LinkKind::Memory { .. } = end.kind
        {
            self.give_signal(end.peer, usize::from(end.peer_link));
        }
    }
}
