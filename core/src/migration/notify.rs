// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a core notifies other cores: it publishes which band it runs, and kicks a core that could run a vCPU parked
//! here.

use super::core_state::CoreState;
use super::early;
use super::park::{host_core_of, is_parked_here, park};
use super::platform::{Platform, State, TracePoint};
use super::presence::Published;
use super::shared::VcpuFacts;
use super::slot::ParkedState;
use super::turn::arm_short_turn;
use crate::schedule::{Band, Level, Ticks, VcpuState};
use crate::sets::VcpuSet;
use spumone_config::types::{PcpuId, VcpuId};

/// A search through parked vCPUs looks for interrupts before each fourth one. If so many are parked, the core also looks between the search and other work.
const FEW_PARKED: usize = 4;

/// Makes `to` the running vCPU of this core, as was decided; `None`: the core idles. The registers of the vCPU that ran
/// before stay on the core until another vCPU needs the core.
#[inline(always)]
pub(super) fn set_running<T>(state: &mut CoreState<T>, to: Option<VcpuId>) {
    let last = core::mem::replace(&mut state.running, to);
    state.grace.renew();
    if !state.movable.is_empty() && last != state.loaded() {
        // It was preempted before it was loaded.
        state.preempted = last;
    }
    if let Some(id) = to {
        // It is awake, so it needs no deadline; once it is loaded, its timers are in the hardware.
        state.deadlines.clear(id);
    }
}

/// Parks vCPU `id`, which does not run any more and whose registers are saved. Notifies another core if the vCPU is
/// runnable, or cut off here.
///
/// If a higher band now runs here and the policy has a park delay, this core keeps a vCPU of the lowest band that moves
/// until the park delay is over, and parks it then. If the core goes back to a lower band before that, parking has cost it
/// nothing. If the higher band ran for long the last time, and its vCPU still waits for its timer, the core parks at once. Returns whether the vCPU was parked.
#[inline(always)]
pub fn park_or_keep<P: Platform>(state: &mut State<P>, platform: &mut P, id: VcpuId) -> bool {
    if !state.moves(id) {
        return false;
    }
    // From the decision, not from `Presence`: the core may not have published the new band yet.
    let higher_band_runs = state.scheduler.current_band() > platform.shared().band(id);
    let is_kept = higher_band_runs && state.waits_for_park_delay(id);
    if is_kept
        && state.park_later.is_empty()
        && let Some(until) = state.awaits.and_then(|it| it.parks_until)
        && platform.now() <= until
    {
        park_before_timer(state, platform, id);
        return true;
    }
    if is_kept {
        state.park_later.insert(id);
        if state.notify_at == Ticks::NEVER {
            // The park delay was over before the vCPU was saved: nothing else would park it.
            state.notify_at = platform.now().saturating_add(state.park_delay());
            state.alarm_is_stale = true;
        }
        return false;
    }
    park_and_notify(state, platform, id, higher_band_runs);
    true
}

/// The vCPU that runs next waits for its timer: parks vCPU `id` meanwhile. What that takes is no part of the switch.
#[inline(never)]
fn park_before_timer<P: Platform>(state: &mut State<P>, platform: &mut P, id: VcpuId) {
    let begin = platform.now();
    let stood = !state.must_decide && !state.alarm_expired;
    let before = core::mem::replace(&mut state.notify_at, Ticks::NEVER);
    park_and_notify(state, platform, id, true);
    let end = platform.now();
    state.notify_at = match state.notify_at {
        // Another core has claimed it already. Other vCPUs may be parked here.
        Ticks::NEVER => before,
        again if platform.may_bring_core_back() => {
            again.min(end.saturating_add(state.waiting.longest_turn))
        }
        again => again,
    };
    if stood && !state.higher_band_waits() {
        // An interrupt has come for it. It does not run here before the vCPU that runs next, so the decision would be the same.
        state.must_decide = false;
    }
    early::leave_out(state, end.saturating_sub(begin));
}

/// Parks vCPU `id`, and notifies another core if the vCPU is runnable, or cut off here. If the core is interrupted in between, it
/// notifies after the next decision ([`notify_idle_core`]) or, above the lowest band that moves, when it notifies again.
#[inline(always)]
fn park_and_notify<P: Platform>(
    state: &mut State<P>,
    platform: &mut P,
    id: VcpuId,
    higher_band_runs: bool,
) {
    platform.trace(TracePoint::Park);
    park(state, platform, id);
    platform.trace(TracePoint::Parked);
    arm_short_turn(state, platform);
    // A sleeping vCPU that is cut off here needs another core as well: `publish_and_notify` may have looked before it
    // was parked.
    let is_runnable = state.scheduler.state(id) == Some(VcpuState::Runnable);
    if !(is_runnable || higher_band_runs) || !is_parked_here(state, platform, id) {
        return;
    }
    let is_interrupted = platform.is_interrupted();
    if is_interrupted {
        state.owes_notification = true;
        state.must_decide |= !higher_band_runs;
    } else {
        let to = match higher_band_runs {
            true => To::Any,
            false => to_own_band(state),
        };
        notify_other_core(state, platform, id, to);
    }
    let looks_again = higher_band_runs || is_interrupted && state.above_lowest.contains(id);
    if looks_again && state.notify_at == Ticks::NEVER {
        // That core may take another vCPU first, or run a higher band by then. Without a park delay,
        // `publish_and_notify` has looked before this vCPU was parked.
        state.notify_at = platform.now().saturating_add(state.notify_again_after);
        state.alarm_is_stale = true;
    }
}

/// Which cores are notified of a vCPU that waits here for its next turn. A core on which no other vCPU waits any more publishes that, and then looks for parked
/// vCPUs.
fn to_own_band<T>(state: &CoreState<T>) -> To {
    match state.rules.leaves_shared_cores {
        true => To::NotShared,
        false => To::Any,
    }
}

/// If a higher band runs, a vCPU of the lowest band that moves is parked only after the park delay, so that the higher
/// band's latency does not grow.
#[inline(never)]
pub(super) fn park_fetched<P: Platform>(state: &mut State<P>, platform: &mut P, id: VcpuId) {
    if state.scheduler.current_band() <= platform.shared().band(id) {
        park(state, platform, id);
    } else if state.above_lowest.contains(id) {
        let _ = park_or_keep(state, platform, id);
    } else {
        state.park_later.insert(id);
    }
}

/// Parks the vCPUs that were kept for the park delay. Returns whether all are parked and the core was not interrupted. If it was, it has
/// seen to one of them at least.
fn park_kept<P: Platform>(state: &mut State<P>, platform: &mut P) -> bool {
    let kept = state.park_later;
    // At most 32 times: vCPUs.
    for id in kept.iter() {
        state.park_later.remove(id);
        if state.loaded() != Some(id) && state.running != Some(id) {
            platform.trace(TracePoint::Park);
            park(state, platform, id);
            platform.trace(TracePoint::Parked);
        }
        if platform.is_interrupted() {
            return false;
        }
    }
    true
}

/// Publishes which band this core runs, and that no other vCPU of it waits.
#[inline(always)]
pub(super) fn publish_level<P: Platform>(state: &State<P>, platform: &P, level: Level) {
    let published = Published {
        level,
        others_wait: false,
    };
    publish(state, platform, published);
}

/// Publishes that no other vCPU of its band waits here any more, if this core has published that one does.
#[inline(always)]
pub(super) fn publish_not_shared<P: Platform>(state: &State<P>, platform: &P) {
    let level = platform.shared().presence(state.core).level();
    publish_level(state, platform, level);
}

/// Publishes what this core runs. Publishes only changes, because publishing needs a fence.
#[inline(always)]
fn publish<P: Platform>(state: &State<P>, platform: &P, now: Published) {
    let presence = platform.shared().presence(state.core);
    if presence.published() != now {
        presence.publish_all(now);
    }
}

/// Which cores are notified of a parked vCPU, beside those that idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum To {
    /// No others.
    Idle,
    /// Those that run a lower band, or its band if no other vCPU of that band waits there.
    NotShared,
    /// Those that run no higher band.
    Any,
}

/// Notifies one core that a vCPU is parked: see [`core_to_notify`].
pub(super) fn notify_other_core<P: Platform>(
    state: &mut State<P>,
    platform: &mut P,
    id: VcpuId,
    to: To,
) {
    notify(state, platform, id, to, |_, _| true);
}

/// As [`notify_other_core`], on a core that was notified itself and goes off. It notifies no other core that goes off, which would pass it on, too.
pub(super) fn pass_on<P: Platform>(state: &mut State<P>, platform: &mut P, id: VcpuId) {
    notify(state, platform, id, To::Any, P::is_wanted);
}

/// Notifies one of the cores that may be.
#[inline(always)]
fn notify<P: Platform>(
    state: &mut State<P>,
    platform: &mut P,
    id: VcpuId,
    to: To,
    may_be: impl Fn(&P, PcpuId) -> bool,
) {
    let Some(&VcpuFacts { band, cores, .. }) = platform.shared().vcpu(id) else {
        return;
    };
    let parked = platform.shared().slot(id).parked();
    let is_program = parked.is_some_and(|it| it.state == ParkedState::Runnable);
    let mut checked = 0;
    let others = cores
        .others_from(state.core)
        .filter(|&other| is_program || !platform.shared().excludes_kernels(other))
        .filter(|&other| may_be(platform, other))
        .map(|other| (other, platform.shared().presence(other).published()))
        .inspect(|_| checked += 1);
    // At most 8 times: cores.
    let target = core_to_notify(others, band, to);
    platform.trace(TracePoint::Checked(checked));
    if let Some(core) = target {
        platform.kick(core, id);
        platform.trace(TracePoint::Notified);
    }
}

/// Which of `others` is notified that a vCPU of `band` is parked: the first core that idles. If none idles, a core that `to` allows: of those that run
/// the lowest band, the first on which no other vCPU of that band waits, or the first.
fn core_to_notify(
    others: impl Iterator<Item = (PcpuId, Published)>,
    band: Band,
    to: To,
) -> Option<PcpuId> {
    let own = Level::of(Some(band));
    let highest = if to == To::Idle { Level::IDLE } else { own };
    let mut best = None;
    // At most 8 times: cores.
    for (core, other) in others {
        let Published { level, others_wait } = other;
        if level == Level::IDLE {
            return Some(core);
        }
        let is_left = to == To::NotShared && level == own && others_wait;
        let rank = (level, others_wait);
        if level <= highest && !is_left && best.is_none_or(|(lowest, _)| rank < lowest) {
            best = Some((rank, core));
        }
    }
    best.map(|(_, core)| core)
}

/// After a decision: publishes which band this core runs.
///
/// At or below the lowest band that moves, it then parks the vCPUs that were kept and, unless this core idles, notifies an
/// idle core of one parked vCPU. Above that band it sets the time for parking and notifying: at the end of the park delay,
/// then every `notify_again_after`. It notifies at once only of a cut-off vCPU above the lowest band that moves.
pub(super) fn publish_and_notify<P: Platform>(state: &mut State<P>, platform: &mut P, now: Ticks) {
    let level = state.scheduler.current_level();
    let floor = platform.shared().roles.lowest_movable;
    if level <= floor {
        let before = platform.shared().presence(state.core).published();
        if state.long_at != Ticks::NEVER {
            state.was_long = state.long_at <= now;
            state.long_at = Ticks::NEVER;
        }
        let published = Published {
            level,
            others_wait: state.scheduler.same_band_waits(),
        };
        publish(state, platform, published);
        if before.others_wait && !published.others_wait && state.rules.leaves_shared_cores {
            // Another core has claimed the vCPU that waited. This core has noticed that only after it had looked for parked vCPUs.
            state.fetch_at = now;
            state.alarm_is_stale = true;
        }
        state.notify_at = Ticks::NEVER;
        state.is_put_off = false;
        if before.level > floor && state.rules.returns_home {
            call_home(state, platform);
        }
        if !state.park_later.is_empty() && !park_kept(state, platform) {
            // The next decision parks the others.
            state.must_decide = true;
            return;
        }
        match state.parked_here.is_empty() || level == Level::IDLE {
            true => state.owes_notification = false,
            false => notify_idle_core(state, platform),
        }
    } else {
        publish_above_lowest(state, platform, now, level);
    }
}

/// Notifies an idle core of one parked vCPU, or has the next decision do it. If this core owes a notification ([`CoreState::owes_notification`]) and no core idles,
/// it notifies a core that runs a vCPU.
#[inline(always)]
fn notify_idle_core<P: Platform>(state: &mut State<P>, platform: &mut P) {
    match next_to_notify(state, platform) {
        Ok(None) => state.owes_notification = false,
        Ok(Some(id)) if !platform.is_interrupted() => {
            let to = match core::mem::take(&mut state.owes_notification) {
                true => to_own_band(state),
                false => To::Idle,
            };
            notify_other_core(state, platform, id, to);
        }
        Ok(Some(_)) | Err(Interrupted) => state.must_decide = true,
    }
}

/// Whether the core is interrupted, and has parked so many vCPUs that a search through them takes long.
#[inline(always)]
fn is_interrupted_beside_many<P: Platform>(state: &State<P>, platform: &P) -> bool {
    state.parked_here.count() as usize >= FEW_PARKED && platform.is_interrupted()
}

/// As [`publish_and_notify`], for a level above the lowest band that moves.
#[inline(always)]
pub(super) fn publish_above_lowest<P: Platform>(
    state: &mut State<P>,
    platform: &mut P,
    now: Ticks,
    level: Level,
) {
    let has_changed = platform.shared().presence(state.core).level() != level;
    publish_level(state, platform, level);
    state.waiting.look_at = Ticks::NEVER;
    if state.long_at == Ticks::NEVER {
        state.long_at = now.saturating_add(state.rules.park_delay);
    }
    if has_changed || !state.park_later.is_empty() && state.notify_at == Ticks::NEVER {
        // If the core goes back to a lower band before the park delay is over, no vCPU of the lowest band that moves is
        // parked, and no core is notified of one.
        let at = now.saturating_add(state.park_delay());
        state.notify_at = state.notify_at.min(at);
        if has_changed {
            notify_of_above_lowest(state, platform);
        }
    } else if state.notify_at <= now {
        notify_again(state, platform, now);
    }
}

/// The park delay is over, or this core notifies another core again: the core that was notified last may have begun to run a higher band
/// since, as this core has.
///
/// A guest of the higher band has run here for long, and is in the middle of its work. So its interrupts do not wait for all of this.
#[inline(never)]
fn notify_again<P: Platform>(state: &mut State<P>, platform: &mut P, now: Ticks) {
    let has_work = !state.park_later.is_empty() || !state.parked_here.is_empty();
    let comes_first = has_work && state.since_entry.has_delivered && may_put_off(state);
    if comes_first || !park_kept(state, platform) {
        return put_off(state, platform);
    }
    let above_lowest = notify_of_above_lowest(state, platform);
    if is_interrupted_beside_many(state, platform) {
        return put_off(state, platform);
    }
    let Ok(next) = next_to_notify(state, platform) else {
        return put_off(state, platform);
    };
    if next.is_some() && platform.is_interrupted() {
        return put_off(state, platform);
    }
    let (mut waited, mut look_at) = (None, Ticks::NEVER);
    if next.is_some() && platform.may_bring_core_back() {
        (waited, look_at) = waiting_here(state, platform, now);
        if platform.is_interrupted() {
            return put_off(state, platform);
        }
    }
    if let Some(id) = waited {
        let _ = platform.waits_for_core(id);
    }
    if let Some(id) = next.filter(|_| next != above_lowest) {
        notify_other_core(state, platform, id, To::Any);
    }
    state.is_put_off = false;
    state.notify_at = match next {
        Some(_) => now.saturating_add(state.notify_again_after).min(look_at),
        None => Ticks::NEVER,
    };
}

/// In [`notify_again`] an interrupt is pending, or was delivered to the vCPU that runs. If its work may be put off, the core enters the guest, and goes
/// on after the short park delay, which is longer than the way to the guest. If not, the core decides again and goes on at once.
#[cold]
fn put_off<P: Platform>(state: &mut State<P>, platform: &P) {
    if may_put_off(state) {
        state.is_put_off = true;
        state.notify_at = platform.now().saturating_add(state.short_park_delay);
    } else {
        state.must_decide = true;
    }
}

/// Whether the work of [`notify_again`] may be put off: only once, so that a guest that is interrupted often does not keep other vCPUs here; and not if
/// the policy has no park delay.
fn may_put_off<T>(state: &CoreState<T>) -> bool {
    !state.is_put_off && state.rules.park_delay > Ticks(0)
}

/// A vCPU that is parked here and has waited, while this core has run a higher band, for so long that another core should have taken it since that was
/// notified: one of the highest band, if there are several. Also, when the core is to look again.
fn waiting_here<P: Platform>(
    state: &State<P>,
    platform: &P,
    now: Ticks,
) -> (Option<VcpuId>, Ticks) {
    let runs_since = state.long_at.saturating_sub(state.rules.park_delay);
    let longest = state.waiting.longest_turn;
    let (mut waited, mut look_at) = (None, Ticks::NEVER);
    // At most 32 times: vCPUs.
    for id in state.parked_here.iter() {
        let Some(since) = waits_since(state, platform, id) else {
            continue;
        };
        look_at = look_at.min(since.max(now).saturating_add(longest));
        let is_due = since.max(runs_since).saturating_add(longest) <= now;
        let band = platform.shared().band(id);
        if is_due && platform.guest_runs(id) && waited.is_none_or(|(highest, _)| band > highest) {
            waited = Some((band, id));
        }
    }
    (waited.map(|(_, id)| id), look_at)
}

/// Since when a vCPU that is parked here waits for a core: if it sleeps, from when its timer expires. `None`: it waits for no core.
fn waits_since<P: Platform>(state: &State<P>, platform: &P, id: VcpuId) -> Option<Ticks> {
    let slot = platform.shared().slot(id);
    match slot.parked()?.state {
        ParkedState::Off => None,
        ParkedState::Asleep => state.deadlines.of(id),
        _ => Some(slot.since()),
    }
}

/// Notifies another core of a vCPU above the lowest band that moves, if one is parked here and cut off, and returns that
/// vCPU. The notified core takes all such vCPUs that sleep or are off, and one runnable vCPU.
#[inline(always)]
fn notify_of_above_lowest<P: Platform>(state: &mut State<P>, platform: &mut P) -> Option<VcpuId> {
    let parked = state.parked_here & state.above_lowest;
    match parked.is_empty() {
        true => None,
        false => notify_of_cut_off(state, platform, parked),
    }
}

/// Notifies another core of one of these vCPUs that is parked here and cut off, and returns it.
#[inline(never)]
fn notify_of_cut_off<P: Platform>(
    state: &mut State<P>,
    platform: &mut P,
    vcpus: VcpuSet,
) -> Option<VcpuId> {
    // If the search is interrupted, the core notifies at the end of the park delay, or when it notifies again.
    let id = first_parked(state, platform, vcpus, false).ok()??;
    notify_other_core(state, platform, id, To::Any);
    Some(id)
}

/// The parked vCPU for which this core notifies another core next: a vCPU that is runnable or cut off.
#[inline(always)]
fn next_to_notify<P: Platform>(
    state: &mut State<P>,
    platform: &P,
) -> Result<Option<VcpuId>, Interrupted> {
    first_parked(state, platform, state.parked_here, true)
}

/// A search through many parked vCPUs was interrupted.
struct Interrupted;

/// Of these vCPUs, the first that this core has parked and that is cut off here or, if `or_runnable`, runnable. A runnable
/// vCPU comes before a sleeping one, then a higher band before a lower one.
#[inline(never)]
fn first_parked<P: Platform>(
    state: &mut State<P>,
    platform: &P,
    vcpus: VcpuSet,
    or_runnable: bool,
) -> Result<Option<VcpuId>, Interrupted> {
    let current = state.scheduler.current_band();
    let mut best = None;
    // At most 32 times: vCPUs.
    for (number, id) in vcpus.iter().enumerate() {
        if number % FEW_PARKED == FEW_PARKED - 1 && platform.is_interrupted() {
            return Err(Interrupted);
        }
        let parked = platform
            .shared()
            .slot(id)
            .parked()
            .filter(|it| it.host == state.core);
        let Some(parked) = parked else {
            state.no_longer_parked_here(id);
            continue;
        };
        let (is_runnable, band) = (parked.state.is_runnable(), platform.shared().band(id));
        let rank = (is_runnable, band);
        if (current > band || or_runnable && is_runnable)
            && best.is_none_or(|(highest, _)| rank > highest)
        {
            best = Some((rank, id));
        }
    }
    Ok(best.map(|(_, id)| id))
}

/// This core ran a higher band until now, and can again run the vCPUs whose home it is: calls back those that are on
/// other cores.
fn call_home<P: Platform>(state: &mut State<P>, platform: &mut P) {
    // At most 32 times: vCPUs.
    for id in state.home_vcpus.iter() {
        if state.has(id) {
            continue;
        }
        match platform.shared().slot(id).parked() {
            // The next decision fetches it if it is runnable; its host core sends it home when it wakes.
            Some(it) => state.must_decide |= it.state.is_runnable(),
            None => {
                if let Some(host) = host_core_of(platform, id).filter(|&host| host != state.core) {
                    platform.kick(host, id);
                }
            }
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    const LOW: Band = Band::LOWEST;
    const HIGH: Level = Level::of(Some(Band::HIGHEST));

    const LOW_LEVEL: Level = Level::of(Some(LOW));

    fn published(level: Level) -> Published {
        Published {
            level,
            others_wait: false,
        }
    }

    fn notified(others: &[Published], band: Band, to: To) -> Option<u8> {
        let others = (1..).map(PcpuId).zip(others.iter().copied());
        core_to_notify(others, band, to).map(|core| core.0)
    }

    #[test]
    fn an_idle_core_is_notified_before_a_busy_one() {
        let notified = |levels: [Level; 3], to| notified(&levels.map(published), LOW, to);
        assert_eq!(notified([LOW_LEVEL, HIGH, Level::IDLE], To::Any), Some(3));
        assert_eq!(notified([HIGH, LOW_LEVEL, LOW_LEVEL], To::Any), Some(2));
        assert_eq!(notified([LOW_LEVEL; 3], To::Idle), None);
        assert_eq!(notified([HIGH; 3], To::Any), None);
    }

    #[test]
    fn of_busy_cores_one_of_the_lowest_band_is_notified() {
        let levels = [HIGH, Level::of(Band::new(1)), LOW_LEVEL].map(published);
        assert_eq!(notified(&levels, Band::HIGHEST, To::Any), Some(3));
        assert_eq!(notified(&levels, LOW, To::Any), Some(3));
        assert_eq!(notified(&levels[..2], LOW, To::Any), None);
    }

    #[test]
    fn a_core_where_another_vcpu_of_the_band_waits_is_notified_last_or_not_at_all() {
        let shared = Published {
            others_wait: true,
            ..published(LOW_LEVEL)
        };
        let cores = [shared, published(LOW_LEVEL)];
        assert_eq!(notified(&cores, LOW, To::NotShared), Some(2));
        assert_eq!(notified(&cores[..1], LOW, To::NotShared), None);
        assert_eq!(notified(&cores, LOW, To::Any), Some(2));
        assert_eq!(notified(&cores[..1], LOW, To::Any), Some(1));
        // Those that wait there are of a lower band.
        assert_eq!(notified(&cores[..1], Band::HIGHEST, To::NotShared), Some(1));
    }
}
