// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a core is to do about the lives of guests: start vCPUs, load guests, stop them, say so. Also, routes of interrupts that follow a
//! vCPU to the core.
//!
//! Other cores order it by mail, and guests by what they do on this core. Such work is long, and its time is chosen by guests. So it
//! is noted here and done one [`Order`] at a time, between which the core looks for interrupts. It is done only while the core
//! idles or runs no higher band than that of the guest that it is about; so it delays no guest of a higher band by more than one
//! order, or by the rest of a line. In any band, the core only reads the rest of its mail, and tells other cores to stop a guest.

mod deferral;
mod per_vcpu;

use crate::bits::bits;
use crate::console::{Notice, Notices};
use crate::psci::{Ending, EntryPoint, Generation};
use crate::schedule::Band;
use crate::sets::CoreSet;
pub use deferral::Deferral;
use per_vcpu::{OfGuest, PerVcpu};
use spumone_config::types::{GuestId, MAX_GUESTS, PcpuId, VcpuId};

/// A vCPU to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// Its guest.
    pub guest: GuestId,
    /// Where it starts.
    pub entry_point: EntryPoint,
    /// The life of the guest in which the start was ordered.
    pub generation: Generation,
}

impl OfGuest for Start {
    fn guest(&self) -> GuestId {
        self.guest
    }
}

/// Interrupts of a vCPU's devices that are to be routed to the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The guest of the vCPU.
    pub guest: GuestId,
    /// The first of the guest's interrupts that is not seen to yet.
    pub from: u8,
}

impl OfGuest for Route {
    fn guest(&self) -> GuestId {
        self.guest
    }
}

/// How far a core has stopped a guest: what it does next. Each step is short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopStep {
    /// Take off the guest's vCPU with this index, if this core has it.
    TakeOff(usize),
    /// Acknowledge that this core has none of the guest's vCPUs any more. Only the last core goes on.
    Acknowledge,
    /// Write a `quiesce` register of the guest's devices.
    Quiesce(usize),
    /// Disable this chunk of the guest's physical interrupts.
    Disable(usize),
    /// Route this chunk of them to where the next life expects them.
    Route(usize),
    /// Tell the guest at the other end of a link.
    Unlink(usize),
    /// Reset what is left of the guest's shared state.
    Reset,
    /// Say that the guest has stopped, and whether it starts again.
    Say,
    /// Begin the next life if it starts again; else let the operator do so.
    Finish(Ending),
}

impl StopStep {
    /// Whether the core's lines about the guest must be written before: so each life of a guest leaves a bounded number of lines.
    fn waits_for_notices(self) -> bool {
        matches!(self, Self::Acknowledge | Self::Finish(_))
    }
}

/// What a core does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Read the rest of its mail.
    Mail,
    /// Tell a core that a guest is being stopped, and that it is to tell these other cores.
    Tell(GuestId, PcpuId, CoreSet),
    /// Start a vCPU.
    Start(VcpuId, Start),
    /// Load a guest.
    Load(GuestId),
    /// Route some interrupts of a vCPU's devices to the core, then order the rest with [`Orders::route`].
    Route(VcpuId, Route),
    /// Do this step, then note the one after it with [`Orders::stop_goes_on`], or [`Orders::stop_ends`].
    Stop(GuestId, StopStep),
    /// Write a part of a line, with [`Orders::say`].
    Say,
}

/// The orders of one core that are not carried out.
#[derive(Debug)]
pub struct Orders<'a> {
    /// The guests of each band and above; bit n for guest n.
    guests_from: [u32; Band::COUNT],
    /// Mail of this core was left unread because it was interrupted.
    has_mail: bool,
    /// By guest: the cores that are to be told that it is being stopped.
    tells: [CoreSet; MAX_GUESTS],
    starts: PerVcpu<Start>,
    /// The guests to load; bit n for guest n.
    loads: u32,
    routes: PerVcpu<Route>,
    /// The guests that are being stopped; bit n for guest n.
    stopping: u32,
    /// The next step for each of them.
    stops: [StopStep; MAX_GUESTS],
    notices: Notices<'a>,
    /// The highest band of a guest that an order is about.
    band: Option<Band>,
    deferral: Deferral,
}

impl<'a> Orders<'a> {
    /// No orders, on a core of a machine whose guests have these bands.
    pub fn new(bands: [Band; MAX_GUESTS]) -> Self {
        Self {
            guests_from: guests_from(&bands),
            has_mail: false,
            tells: [CoreSet::EMPTY; MAX_GUESTS],
            starts: PerVcpu::new(),
            loads: 0,
            routes: PerVcpu::new(),
            stopping: 0,
            stops: [StopStep::TakeOff(0); MAX_GUESTS],
            notices: Notices::new(),
            band: None,
            deferral: Deferral::default(),
        }
    }

    /// Whether the core takes the interrupt, if one is pending, before the order that is due: see [`Deferral`].
    pub fn defer(&mut self, is_interrupted: bool) -> bool {
        self.deferral.defers(is_interrupted)
    }

    /// Whether a core that runs this band (`None`: it idles) has an order to carry out now.
    // Inlined, because it is on the path of each real-time dispatch.
    #[inline(always)]
    pub fn are_due(&self, band: Option<Band>) -> bool {
        self.band.is_some() && self.band >= band
    }

    /// The core was interrupted while it read its mail. It reads the rest whatever band it runs, since that may be about any guest.
    pub fn mail_is_left(&mut self) {
        self.has_mail = true;
        self.band = Some(Band::HIGHEST);
    }

    /// Orders that these cores are told that a guest is being stopped. The core does so whatever band it runs, since the stop ends only when all of them
    /// have been told.
    pub fn tell(&mut self, guest: GuestId, cores: CoreSet) {
        if let Some(tells) = self.tells.get_mut(guest.index()) {
            *tells |= cores;
        }
        self.look();
    }

    /// Orders the start of a vCPU. A former order, of an earlier life, is forgotten: a vCPU is started once in a life before the
    /// start is carried out.
    pub fn start(&mut self, id: VcpuId, start: Start) {
        self.starts.insert(id, start);
        self.order(start.guest);
    }

    /// Orders that a guest is loaded.
    pub fn load(&mut self, guest: GuestId) {
        self.loads |= 1 << guest.0;
        self.order(guest);
    }

    /// Orders that interrupts of a vCPU's devices are routed to the core.
    pub fn route(&mut self, id: VcpuId, route: Route) {
        self.routes.insert(id, route);
        self.order(route.guest);
    }

    /// Orders that a guest is stopped, if that is not ordered yet.
    pub fn stop(&mut self, guest: GuestId) {
        if self.stopping >> guest.0 & 1 == 0 {
            self.stopping |= 1 << guest.0;
            self.stop_goes_on(guest, StopStep::TakeOff(0));
            self.order(guest);
        }
    }

    /// Notes a line to say, or drops it if too many wait.
    pub fn note(&mut self, notice: Notice<'a>) {
        // A line that was dropped is no order: a core would look for it without end.
        if self.notices.note(notice) {
            self.order(notice.guest);
        }
    }

    /// The next order that is due while the core runs this band. It is not an order any more, unless it is a step of a stop or of a line.
    ///
    /// `passes_on`: of the cores to be told that a guest is being stopped, those that read their mail at once. Where there are some, this core tells two
    /// cores at most, and one of them tells the others: a vCPU of a higher band waits for each message.
    pub fn take(
        &mut self,
        band: Option<Band>,
        passes_on: impl Fn(GuestId, CoreSet) -> CoreSet,
    ) -> Option<Order> {
        if core::mem::take(&mut self.has_mail) {
            self.look();
            return Some(Order::Mail);
        }
        if let Some((guest, core, others)) = self.next_tell(passes_on) {
            self.look();
            return Some(Order::Tell(guest, core, others));
        }
        let due = self.due(band);
        if let Some((id, start)) = self.starts.take(due) {
            self.look();
            return Some(Order::Start(id, start));
        }
        if let Some(guest) = bits(self.loads & due).next() {
            self.loads &= !(1 << guest);
            self.look();
            return Some(Order::Load(GuestId(guest as u8)));
        }
        if let Some((id, route)) = self.routes.take(due) {
            self.look();
            return Some(Order::Route(id, route));
        }
        // At most 8 times: guests.
        let stop = bits(self.stopping & due).find_map(|guest| {
            let &step = self.stops.get(guest as usize)?;
            let waits = step.waits_for_notices() && !self.notices.are_written(1 << guest);
            (!waits).then_some(Order::Stop(GuestId(guest as u8), step))
        });
        stop.or((!self.notices.are_written(due)).then_some(Order::Say))
    }

    /// The core to tell next, and those that it is to tell: all but one, which this core tells itself; none if it does not pass it on at once.
    fn next_tell(
        &mut self,
        passes_on: impl Fn(GuestId, CoreSet) -> CoreSet,
    ) -> Option<(GuestId, PcpuId, CoreSet)> {
        // At most 8 times: guests.
        for (guest, cores) in (0..).map(GuestId).zip(&mut self.tells) {
            if cores.is_empty() {
                continue;
            }
            let relay = passes_on(guest, *cores).iter().next();
            let core = relay.or(cores.iter().next())?;
            cores.remove(core);
            let mut others = CoreSet::EMPTY;
            if relay.is_some() {
                others = *cores;
                *cores = others.iter().next().map_or(CoreSet::EMPTY, CoreSet::of);
                others -= *cores;
            }
            return Some((guest, core, others));
        }
        None
    }

    /// The guests of `band` and above: while the core runs `band`, it carries out the orders about them. Bit n for guest n.
    fn due(&self, band: Option<Band>) -> u32 {
        band.map_or(u32::MAX, |band| self.guests_from[band.index()])
    }

    /// A step of a stop is done; this is the next one.
    pub fn stop_goes_on(&mut self, guest: GuestId, step: StopStep) {
        if let Some(stop) = self.stops.get_mut(guest.index()) {
            *stop = step;
        }
    }

    /// The last step of a stop on this core is done.
    pub fn stop_ends(&mut self, guest: GuestId) {
        self.stopping &= !(1 << guest.0);
        self.look();
    }

    /// Passes the next bytes of a line to `push`, while the core runs this band. `room`: how many bytes there is room for.
    pub fn say(&mut self, band: Option<Band>, room: usize, push: impl FnMut(u8)) {
        if self.notices.step(self.due(band), room, push) {
            self.look();
        }
    }

    /// Whether no line is left to write.
    pub fn are_said(&self) -> bool {
        self.notices.are_written(u32::MAX)
    }

    fn order(&mut self, guest: GuestId) {
        self.band = self.band.max(self.highest(1 << guest.0));
    }

    /// The highest band of these guests; bit n for guest n.
    fn highest(&self, guests: u32) -> Option<Band> {
        // At most 8 times: bands.
        let rank = self
            .guests_from
            .iter()
            .rposition(|from| from & guests != 0)?;
        Band::new(rank as u8)
    }

    /// Finds the highest band again.
    fn look(&mut self) {
        let guests: u32 = self.starts.guests()
            | self.loads
            | self.routes.guests()
            | self.stopping
            | self.notices.guests();
        // At most 8 times: guests.
        let tells = self.tells.iter().any(|cores| !cores.is_empty());
        self.band = match self.has_mail || tells {
            true => Some(Band::HIGHEST),
            false => self.highest(guests),
        };
    }
}

/// The guests of each band and above, of guests of these bands; bit n for guest n.
fn guests_from(bands: &[Band; MAX_GUESTS]) -> [u32; Band::COUNT] {
    let mut all = [0; Band::COUNT];
    for (guest, band) in bands.iter().enumerate() {
        // At most 8 times: bands.
        for guests in &mut all[..=band.index()] {
            *guests |= 1 << guest;
        }
    }
    all
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::console::Subject;
    use crate::psci::StopReason;
    use spumone_config::types::GuestAddr;
    use std::string::String;

    /// Room for any line.
    const ROOM: usize = 1024;
    const LOW: GuestId = GuestId(0);
    const HIGH: GuestId = GuestId(1);

    fn orders() -> Orders<'static> {
        let mut bands = [Band::LOWEST; MAX_GUESTS];
        bands[HIGH.index()] = Band::new(2).unwrap();
        Orders::new(bands)
    }

    fn start(guest: GuestId) -> Start {
        Start {
            guest,
            entry_point: EntryPoint {
                entry: GuestAddr(0x1000),
                context: 7,
            },
            generation: Generation(3),
        }
    }

    fn line(guest: GuestId) -> Notice<'static> {
        Notice {
            guest,
            name: "it",
            subject: Subject::Stopped(StopReason::Off),
        }
    }

    /// All cores read their mail at once.
    fn all(_: GuestId, cores: CoreSet) -> CoreSet {
        cores
    }

    /// Whether the core carries an order out: while it idles, and in the bands 0 to 3.
    fn due(orders: &Orders<'_>) -> [bool; 5] {
        [None, Band::new(0), Band::new(1), Band::new(2), Band::new(3)]
            .map(|band| orders.are_due(band))
    }

    #[test]
    fn an_order_waits_while_a_higher_band_runs() {
        let mut orders = orders();
        assert_eq!(due(&orders), [false; 5]);
        orders.start(VcpuId(4), start(LOW));
        assert_eq!(due(&orders), [true, true, false, false, false]);
        orders.load(HIGH);
        assert_eq!(due(&orders), [true, true, true, true, false]);
        assert_eq!(
            orders.take(None, all),
            Some(Order::Start(VcpuId(4), start(LOW)))
        );
        assert_eq!(orders.take(None, all), Some(Order::Load(HIGH)));
        assert_eq!((orders.take(None, all), due(&orders)), (None, [false; 5]));
        // The other way round: what is left is of the lower band.
        orders.load(LOW);
        orders.start(VcpuId(0), start(HIGH));
        assert_eq!(
            orders.take(None, all),
            Some(Order::Start(VcpuId(0), start(HIGH)))
        );
        assert_eq!(due(&orders), [true, true, false, false, false]);
    }

    #[test]
    fn mail_that_is_left_is_read_first_and_in_every_band() {
        let mut orders = orders();
        orders.load(LOW);
        orders.mail_is_left();
        orders.start(VcpuId(0), start(HIGH));
        assert_eq!(due(&orders), [true; 5]);
        assert_eq!(orders.take(Some(Band::HIGHEST), all), Some(Order::Mail));
        assert_eq!(due(&orders), [true, true, true, true, false]);
    }

    #[test]
    fn a_core_that_reads_its_mail_passes_on_that_a_guest_is_stopped() {
        let mut told = CoreSet::EMPTY;
        let mut to_tell = std::vec![CoreSet::from_bits(0b1111_1011)];
        while let Some(cores) = to_tell.pop() {
            let mut orders = orders();
            orders.stop(LOW);
            orders.tell(LOW, cores);
            for _ in 0..2 {
                if !due(&orders).iter().all(|&is_due| is_due) {
                    break;
                }
                let Some(Order::Tell(LOW, core, others)) = orders.take(Some(Band::HIGHEST), all)
                else {
                    panic!("an order to tell a core is due");
                };
                assert!(cores.contains(core) && !told.contains(core));
                told.insert(core);
                if !others.is_empty() {
                    to_tell.push(others);
                }
            }
            assert_eq!(orders.take(Some(Band::HIGHEST), all), None);
            assert_eq!(due(&orders), [true, true, false, false, false]);
        }
        assert_eq!(told, CoreSet::from_bits(0b1111_1011));
    }

    /// One that runs a higher band, or is off, would keep the others from stopping the guest.
    #[test]
    fn a_core_that_does_not_read_its_mail_at_once_passes_nothing_on() {
        let mut orders = orders();
        orders.tell(LOW, CoreSet::from_bits(0b1_1110));
        let busy = |_: GuestId, cores: CoreSet| cores & CoreSet::from_bits(0b1000);
        let told = Some(Order::Tell(LOW, PcpuId(3), CoreSet::from_bits(0b1_0100)));
        assert_eq!(orders.take(Some(Band::HIGHEST), busy), told);
        let told = Some(Order::Tell(LOW, PcpuId(1), CoreSet::EMPTY));
        assert_eq!(orders.take(Some(Band::HIGHEST), busy), told);
        orders.tell(LOW, CoreSet::from_bits(0b110));
        for core in [1, 2] {
            let told = Some(Order::Tell(LOW, PcpuId(core), CoreSet::EMPTY));
            assert_eq!(orders.take(Some(Band::HIGHEST), busy), told);
        }
        assert_eq!(orders.take(Some(Band::HIGHEST), busy), None);
    }

    #[test]
    fn routes_are_seen_to_in_parts() {
        let mut orders = orders();
        let route = |from| Route { guest: HIGH, from };
        orders.route(VcpuId(3), route(8));
        assert_eq!(due(&orders), [true, true, true, true, false]);
        assert_eq!(
            orders.take(None, all),
            Some(Order::Route(VcpuId(3), route(8)))
        );
        assert_eq!(due(&orders), [false; 5]);
        // The vCPU left the core, and came back: from the beginning.
        orders.route(VcpuId(3), route(16));
        orders.route(VcpuId(3), route(8));
        assert_eq!(
            orders.take(None, all),
            Some(Order::Route(VcpuId(3), route(8)))
        );
        assert_eq!(orders.take(None, all), None);
    }

    #[test]
    fn a_stop_is_ordered_once_and_goes_step_by_step() {
        let mut orders = orders();
        orders.stop(HIGH);
        assert_eq!(
            orders.take(None, all),
            Some(Order::Stop(HIGH, StopStep::TakeOff(0)))
        );
        orders.stop_goes_on(HIGH, StopStep::TakeOff(1));
        orders.stop(HIGH);
        assert_eq!(
            orders.take(None, all),
            Some(Order::Stop(HIGH, StopStep::TakeOff(1)))
        );
        assert!(orders.are_due(Band::new(2)));
        orders.stop_ends(HIGH);
        assert_eq!((orders.take(None, all), due(&orders)), (None, [false; 5]));
    }

    #[test]
    fn a_life_does_not_end_before_its_lines_are_written() {
        let mut orders = orders();
        orders.stop(LOW);
        orders.note(line(LOW));
        for step in [StopStep::TakeOff(3), StopStep::Reset] {
            orders.stop_goes_on(LOW, step);
            assert_eq!(orders.take(None, all), Some(Order::Stop(LOW, step)));
        }
        let mut text = String::new();
        for step in [StopStep::Acknowledge, StopStep::Finish(Ending::Stays)] {
            orders.stop_goes_on(LOW, step);
            for _ in 0..100 {
                if orders.take(None, all) != Some(Order::Say) {
                    break;
                }
                orders.say(None, ROOM, |byte| text.push(char::from(byte)));
            }
            assert_eq!(text, "guest it is off\n");
            assert_eq!(orders.take(None, all), Some(Order::Stop(LOW, step)));
            text.clear();
            orders.note(line(LOW));
        }
    }

    /// The line about the guest of the lower band, which was noted first, waits; and so does its stop.
    #[test]
    fn what_is_about_a_lower_band_waits_for_it() {
        let mut orders = orders();
        let high = Band::new(2);
        orders.note(line(LOW));
        orders.stop(LOW);
        orders.load(LOW);
        orders.start(VcpuId(1), start(LOW));
        orders.note(line(HIGH));
        orders.stop(HIGH);
        assert_eq!(
            orders.take(high, all),
            Some(Order::Stop(HIGH, StopStep::TakeOff(0)))
        );
        orders.stop_goes_on(HIGH, StopStep::Acknowledge);
        let mut written = 0;
        for _ in 0..100 {
            if orders.take(high, all) != Some(Order::Say) {
                break;
            }
            orders.say(high, ROOM, |_| written += 1);
        }
        assert_eq!(written, "guest it is off\n".len());
        assert_eq!(
            orders.take(high, all),
            Some(Order::Stop(HIGH, StopStep::Acknowledge))
        );
        orders.stop_ends(HIGH);
        assert!(!orders.are_due(high) && orders.take(high, all).is_none());
        assert_eq!(
            orders.take(None, all),
            Some(Order::Start(VcpuId(1), start(LOW)))
        );
    }

    #[test]
    fn a_line_that_is_dropped_is_no_order() {
        let mut orders = orders();
        for _ in 0..100 {
            orders.note(line(LOW));
        }
        orders.note(line(HIGH));
        assert_eq!(due(&orders), [true, true, false, false, false]);
    }

    #[test]
    fn an_order_waits_for_interrupts_once() {
        let mut orders = orders();
        let deferred = [true, true, true, false, true].map(|pending| orders.defer(pending));
        assert_eq!(deferred, [true, false, true, false, true]);
    }

    #[test]
    fn a_later_start_of_a_vcpu_replaces_the_former() {
        let mut orders = orders();
        let later = Start {
            generation: Generation(4),
            ..start(LOW)
        };
        orders.start(VcpuId(31), start(LOW));
        orders.start(VcpuId(31), later);
        assert_eq!(
            orders.take(None, all),
            Some(Order::Start(VcpuId(31), later))
        );
        assert_eq!(orders.take(None, all), None);
    }
}
