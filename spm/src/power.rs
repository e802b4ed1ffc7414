// SPDX-License-Identifier: MIT OR Apache-2.0
//! What each mode of `[power]` can turn off: how many cores, which ones stay on, and why.

use crate::system::System;
use crate::words::{counted, numbers};
use serde_json::{Map, Value, json};
use spumone_config::PcpuId;
use spumone_config::description::POWER_MODES;
use spumone_config::packed::{Power, PowerMode};

/// Why a core stays on.
enum Reason<'a> {
    /// This guest's vCPUs stay there.
    Stay(&'a str),
    /// The vCPUs of this guest migrate, and it keeps this one of its cores.
    OneOf(&'a str),
    /// The console is served there.
    Console,
}

impl Reason<'_> {
    fn text(&self) -> String {
        match self {
            Self::Stay(guest) => format!("vCPUs of {guest} stay there"),
            Self::OneOf(guest) => format!("{guest} keeps one of its cores"),
            Self::Console => "the console is served there".to_owned(),
        }
    }
}

/// Lines about that; none without `[power]`.
pub fn text(system: &System) -> Vec<String> {
    let packed = &system.packed.system;
    if system.description.power.is_none() {
        return Vec::new();
    }
    let Some(power) = &packed.power else {
        return vec!["power performance: all cores stay on, in every mode".to_owned()];
    };
    let used = used(system, power);
    let cores = used.count_ones() as usize;
    let mut lines = vec![format!(
        "power {}, until another mode is chosen:",
        name(power.mode)
    )];
    for (mode, it) in POWER_MODES {
        let most = most_off(power, *it, cores);
        lines.push(match most {
            0 => format!("- {mode}: no core goes off"),
            _ => format!(
                "- {mode}: {most} of {} may be off, out of {}",
                counted(cores, "core"),
                numbers(used & !power.stay)
            ),
        });
    }
    let unused = ((1 << packed.board.core_mpidrs.len()) - 1) & !used;
    if unused != 0 {
        let cores = numbers(unused);
        lines.push(format!(
            "- off in every mode, as no guest uses them: {cores}"
        ));
    }
    for (core, reasons) in reasons(system, power) {
        let reasons: Vec<_> = reasons.iter().map(Reason::text).collect();
        lines.push(format!("- core {core} stays on: {}", reasons.join("; ")));
    }
    lines
}

/// The same as fields of `power`.
pub fn json(system: &System) -> Map<String, Value> {
    let packed = &system.packed.system;
    let mut fields = Map::new();
    if let Some(power) = &packed.power {
        let cores = used(system, power).count_ones() as usize;
        let off = POWER_MODES
            .iter()
            .map(|(name, mode)| ((*name).to_owned(), json!(most_off(power, *mode, cores))));
        let stays = reasons(system, power).into_iter().map(|(core, reasons)| {
            let reasons: Vec<_> = reasons.iter().map(Reason::text).collect();
            json!({ "core": core, "because": reasons })
        });
        fields.insert("most_off".into(), Value::Object(off.collect()));
        fields.insert("stays_on".into(), Value::Array(stays.collect()));
    }
    fields
}

fn name(mode: PowerMode) -> &'static str {
    let found = POWER_MODES.iter().find(|it| it.1 == mode);
    found.map_or("", |it| it.0)
}

/// The cores on which vCPUs may run, and those that stay on; bit n for core n.
fn used(system: &System, power: &Power) -> u32 {
    let guests = system.packed.system.guests.iter();
    guests.fold(power.stay, |all, guest| all | guest.cores)
}

/// How many cores may be off at most.
fn most_off(power: &Power, mode: PowerMode, cores: usize) -> usize {
    let on = match mode {
        PowerMode::Performance => u32::from(power.most),
        PowerMode::Balanced | PowerMode::Saving => {
            u32::from(power.least).max(power.stay.count_ones())
        }
    };
    cores.saturating_sub(on as usize)
}

/// The cores that stay on, and why each does.
fn reasons<'a>(system: &'a System, power: &Power) -> Vec<(u8, Vec<Reason<'a>>)> {
    let packed = &system.packed.system;
    let cores = 0..packed.board.core_mpidrs.len() as u8;
    let fixed = |core: u8| {
        packed.guests.iter().filter(move |guest| {
            !guest.moves && guest.vcpus.iter().any(|vcpu| vcpu.home == PcpuId(core))
        })
    };
    let all_fixed: u32 = cores
        .clone()
        .filter(|&core| fixed(core).next().is_some())
        .fold(0, |all, core| all | 1 << core);
    let stays = cores.filter(|core| power.stay >> core & 1 != 0);
    stays
        .map(|core| {
            let mut reasons: Vec<_> = fixed(core).map(|it| Reason::Stay(&it.name)).collect();
            if reasons.is_empty() {
                let keeps = packed.guests.iter().filter(|guest| {
                    guest.moves && guest.cores >> core & 1 != 0 && guest.cores & all_fixed == 0
                });
                reasons.extend(keeps.map(|guest| Reason::OneOf(&guest.name)));
            }
            if packed.roles.console_core == PcpuId(core) {
                reasons.push(Reason::Console);
            }
            (core, reasons)
        })
        .collect()
}
