// SPDX-License-Identifier: MIT OR Apache-2.0
//! One run: starts QEMU on the clock, logs its console, reads and checks the results.

use crate::clock::{ClockReport, Function, MARK_BEGIN, MARK_END};
use crate::code_names::CodeNames;
use crate::console::{Console, Facts};
use crate::failure::Failure;
use crate::machine::{self, LIMIT, Machine, Order, Run};
use crate::project::Project;
use crate::role::Role;
use crate::system::rt_name;
use crate::transcript;
use crate::xen;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How often it is checked whether QEMU has ended.
const POLL: Duration = Duration::from_millis(50);
/// Lines of the console shown when a run fails.
const TAIL: usize = 12;
/// Functions of a run's profile that are stored, beside code without a name.
const FUNCTIONS: usize = 12;
/// All functions that the clock can name, so that code without a name is among them even if it takes little time.
const ALL_FUNCTIONS: u32 = 1_000_000;
/// Bytes in a MiB.
const MIB: u64 = 1 << 20;

/// A run without a result.
#[derive(Clone, Debug)]
pub struct Broken {
    /// The reason.
    pub reason: String,
    /// The console's log.
    pub log: PathBuf,
    /// Its last lines.
    pub tail: Vec<String>,
}

/// Files of a run.
pub struct Places {
    /// Existing files.
    pub files: BTreeMap<Role, PathBuf>,
    /// Path of the run's own files, without their extensions.
    pub base: PathBuf,
}

impl Places {
    fn file(&self, role: Role) -> PathBuf {
        match role {
            Role::Disk => self.base.with_extension("disk"),
            _ => self.files.get(&role).cloned().unwrap_or_default(),
        }
    }

    /// The console's log.
    pub fn log(&self) -> PathBuf {
        self.base.with_extension("log")
    }
}

/// The command line of a run.
pub fn command(project: &Project, run: &Run, seed: u32, places: &Places) -> Vec<String> {
    let show = |path: &Path| path.display().to_string();
    let mut words = vec![
        show(&project.run_script()),
        "--qemu".into(),
        show(&project.qemu),
    ];
    words.extend(clock_options(run, seed));
    if let Some(linux) = run.machine.linux() {
        let names = places.file(Role::KernelNames(linux.flavour));
        words.extend(["--symbols".into(), format!("el1:{}:auto", show(&names))]);
    }
    words.extend(["--json".into(), show(&places.base.with_extension("clock"))]);
    words.push("--".into());
    words.extend(machine::arguments(run, |role| places.file(role)));
    words
}

/// Options of `testbed/run` for the clock.
pub fn clock_options(run: &Run, seed: u32) -> Vec<String> {
    let mut words = Vec::new();
    let mut option = |name: &str, value: String| words.extend([name.to_owned(), value]);
    option("--q", run.clock.quantum.to_string());
    option("--ipus", run.clock.ipus.to_string());
    option("--seed", seed.to_string());
    option("--profile-from", MARK_BEGIN.to_string());
    option("--profile-to", MARK_END.to_string());
    option("--top", ALL_FUNCTIONS.to_string());
    if let Some(trails) = &run.clock.trails {
        option("--trails", trails.clone());
    }
    if let Some(end) = run.clock.end_us {
        option("--end-us", end.to_string());
    }
    if let Some(mark) = run.end_mark() {
        option("--end-mark", mark.to_string());
    }
    words
}

/// Makes a run.
///
/// # Errors
///
/// If QEMU fails or hangs, or a guest has no valid result.
pub fn execute(
    project: &Project,
    run: &Run,
    seed: u32,
    places: &Places,
) -> Result<(Console, ClockReport), Broken> {
    let result = start(project, run, seed, places).and_then(|status| {
        let log = std::fs::read(places.log()).unwrap_or_default();
        let console = match run.machine {
            Machine::Xen(_) => Console::parse(&xen::console::plain(&log)),
            _ => Console::parse(&log),
        };
        if !status.success() {
            return Err(format!("QEMU failed: {status}"));
        }
        let path = places.base.with_extension("clock");
        let text = std::fs::read_to_string(&path)
            .map_err(|error| format!("the clock wrote no results: {error}"))?;
        let mut clock: ClockReport = serde_json::from_str(&text)
            .map_err(|error| format!("the clock's results cannot be read: {error}"))?;
        judge(run, &console, &clock)?;
        shorten(&mut clock.profile);
        if matches!(run.machine, Machine::Spumone(_))
            && let Some(names) = CodeNames::open(&project.hypervisor)
        {
            names.name_stretches(&mut clock.exits);
        }
        // The log is stored with the result.
        let _ = std::fs::remove_file(path);
        Ok((console, clock))
    });
    if run.disk_mib > 0 {
        let _ = std::fs::remove_file(places.file(Role::Disk));
    }
    result.map_err(|reason| Broken {
        reason,
        log: places.log(),
        tail: tail(&places.log()),
    })
}

/// Starts QEMU and waits for its end.
fn start(project: &Project, run: &Run, seed: u32, places: &Places) -> Result<ExitStatus, String> {
    let say = |failure: Failure| failure.message;
    let create = |path: &Path| {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|it| say(Failure::io("make", folder, &it)))?;
        }
        File::create(path).map_err(|error| say(Failure::io("write", path, &error)))
    };
    let log = create(&places.log())?;
    let errors = log
        .try_clone()
        .map_err(|error| say(Failure::io("write", &places.log(), &error)))?;
    if run.disk_mib > 0 {
        let path = places.file(Role::Disk);
        create(&path)?
            .set_len(u64::from(run.disk_mib) * MIB)
            .map_err(|error| say(Failure::io("write", &path, &error)))?;
    }
    let words = command(project, run, seed, places);
    let mut child = Command::new(&words[0])
        .args(&words[1..])
        .env("SPUMONE_CLOCK", project.clock())
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors)
        .spawn()
        .map_err(|error| format!("cannot start {}: {error}", words[0]))?;
    let end = Instant::now() + LIMIT;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) if Instant::now() < end => std::thread::sleep(POLL),
            Ok(None) => {
                // An error means that QEMU has just ended by itself.
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("it did not end within {} s", LIMIT.as_secs()));
            }
            Err(error) => return Err(format!("cannot wait for QEMU: {error}")),
        }
    }
}

/// Keeps the largest entries of a profile, which are stored.
fn shorten(profile: &mut Vec<Function>) {
    let mut number = 0;
    profile.retain(|it| {
        number += 1;
        number <= FUNCTIONS || it.function == Function::NO_NAME
    });
}

/// Whether guests gave valid results in the required order.
fn judge(run: &Run, console: &Console, clock: &ClockReport) -> Result<(), String> {
    if let Some(complaint) = console.complaints.first() {
        return Err(complaint.clone());
    }
    for facts in &console.linux {
        if facts.get("ok").map(String::as_str) != Some("1") {
            let reasons = facts.get("reasons").map_or("not said", String::as_str);
            return Err(format!("Linux's scenario failed: {reasons}"));
        }
    }
    let linux = run.machine.linux().is_some();
    let rt = run.machine.has_rt();
    let rt_needed = !matches!(run.order, Order::LinuxFirst { .. });
    if rt
        && rt_needed
        && let Some(silent) = silent_rt(run, console)
    {
        return Err(format!("the real-time guest {silent} gave no result"));
    }
    if linux && run.order != Order::RtFirst && console.linux.is_empty() {
        return Err("Linux gave no result".into());
    }
    let is_good = |facts: &Facts| facts.get("failed").is_some_and(|it| it == "0");
    if console.probes.len() < run.machine.probe_count() || !console.probes.iter().all(is_good) {
        return Err("a probe failed, or gave no result".into());
    }
    match run.order {
        Order::RtFirst if !console.rt_first => {
            return Err("Linux's load ended before the real-time guest had measured".into());
        }
        Order::LinuxFirst { rt_until } if rt => match clock.last_end() {
            None => return Err("no guest passed marks: build the guests again".into()),
            Some(end) if end > rt_until => {
                return Err("the real-time guest may have ended before all was measured".into());
            }
            Some(_) => {}
        },
        _ => {}
    }
    if clock.outside_events > 0 {
        let count = clock.outside_events;
        return Err(format!(
            "{count} events from outside: the run is not repeatable"
        ));
    }
    Ok(())
}

/// The first real-time guest that gave no result.
fn silent_rt(run: &Run, console: &Console) -> Option<String> {
    let count = match &run.machine {
        Machine::Spumone(system) => system.rt.len(),
        _ => 1,
    };
    let is_silent = |name: &String| console.rt(name).is_none_or(|it| it.result.is_none());
    (0..count).map(rt_name).find(is_silent)
}

/// The last lines of a log.
fn tail(log: &Path) -> Vec<String> {
    let text = std::fs::read(log).unwrap_or_default();
    let lines: Vec<_> = transcript::read(&text)
        .iter()
        .map(ToString::to_string)
        .collect();
    lines[lines.len().saturating_sub(TAIL)..].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Mark;
    use crate::linux::Linux;
    use crate::machine::{ClockSettings, Machine};
    use crate::results::samples;
    use crate::system::{Rt, System};
    use std::os::unix::fs::PermissionsExt;

    const LINUX: &str = "linux-result scenario=a ok=1 seconds=1\n";
    const RT: &str = "rt-result max_ns=1\n";

    fn run(machine: Machine, order: Order) -> Run {
        Run {
            label: "a".into(),
            machine,
            disk_mib: 1,
            clock: ClockSettings {
                quantum: 500,
                ipus: 250,
                seed: 0,
                end_us: Some(7),
                trails: None,
            },
            order,
        }
    }

    fn both(order: Order) -> Run {
        let system = System {
            cores: 4,
            policy: "none".into(),
            interrupt_priorities: None,
            rt: vec![Rt::new("")],
            linux: Some(Linux::new(4, "a", &[])),
            ..System::default()
        };
        run(Machine::Spumone(system), order)
    }

    fn verdict(run: &Run, log: &str) -> Result<(), String> {
        let mut outcome = samples::outcome("a", 0, log);
        outcome.clock.marks = [(1, 10), (2, 20)]
            .map(|(mark, ns)| Mark {
                mark,
                ns,
                core: None,
                x0: None,
            })
            .into();
        judge(run, &outcome.console, &outcome.clock)
    }

    #[test]
    fn the_guest_that_disturbs_must_outlive_the_other() {
        let (rt_first, linux_first) = (format!("{RT}{LINUX}"), format!("{LINUX}{RT}"));
        assert!(verdict(&both(Order::RtFirst), &rt_first).is_ok());
        assert!(verdict(&both(Order::RtFirst), RT).is_ok());
        assert!(verdict(&both(Order::RtFirst), &linux_first).is_err());
        // Marks decide, not the order of the lines.
        let until = |rt_until| both(Order::LinuxFirst { rt_until });
        assert!(verdict(&until(20), &rt_first).is_ok());
        assert!(verdict(&until(20), LINUX).is_ok());
        assert!(verdict(&until(19), &linux_first).is_err());
    }

    #[test]
    fn each_real_time_guest_must_give_its_result_first() {
        let mut run = both(Order::RtFirst);
        if let Machine::Spumone(system) = &mut run.machine {
            system.rt.push(Rt::new(""));
        }
        let second = format!("rt2 | {}\r\n", RT.trim());
        assert!(verdict(&run, &format!("{RT}{second}{LINUX}")).is_ok());
        assert!(verdict(&run, RT).unwrap_err().contains("rt2"));
        let error = verdict(&run, &format!("{RT}{LINUX}{second}")).unwrap_err();
        assert!(error.contains("ended before"), "{error}");
    }

    #[test]
    fn a_result_must_be_there_and_good() {
        assert!(
            verdict(&both(Order::Any), LINUX)
                .unwrap_err()
                .contains("real-time")
        );
        assert!(
            verdict(&both(Order::Any), RT)
                .unwrap_err()
                .contains("Linux")
        );
        let bad = format!("{RT}linux-result ok=0 reasons=no-device\n");
        assert!(
            verdict(&both(Order::Any), &bad)
                .unwrap_err()
                .contains("no-device")
        );
        let complaint = "rt-error: period=1 needs a unit";
        assert_eq!(
            verdict(&both(Order::Any), complaint).unwrap_err(),
            complaint
        );
    }

    #[test]
    fn a_run_that_the_host_disturbed_does_not_count() {
        let mut outcome = samples::outcome("a", 0, RT);
        outcome.clock.outside_events = 2;
        let run = run(Machine::BareRt(String::new()), Order::Any);
        assert!(judge(&run, &outcome.console, &outcome.clock).is_err());
    }

    /// A project with this script as `testbed/run`.
    fn project(folder: &Path, script: &str) -> (Project, Places) {
        let path = folder.join("testbed/run");
        std::fs::create_dir_all(folder.join("testbed")).unwrap();
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let project = Project {
            root: folder.to_owned(),
            hypervisor: folder.join("spumone"),
            qemu: "qemu".into(),
        };
        let places = Places {
            files: BTreeMap::new(),
            base: folder.join("out/a.s1"),
        };
        (project, places)
    }

    #[test]
    fn the_clock_is_set_from_the_command_line() {
        let folder = tempfile::tempdir().unwrap();
        let (project, places) = project(folder.path(), "");
        let run = run(Machine::BareRt("period=1ms".into()), Order::Any);
        let words = command(&project, &run, 3, &places).join(" ");
        assert!(words.contains(
            "testbed/run --qemu qemu --q 500 --ipus 250 --seed 3 --profile-from 1 --profile-to 2 --top 1000000 --end-us 7 --json"
        ));
        assert!(words.contains("file=") && words.contains("a.disk"));
    }

    #[test]
    fn what_has_no_name_is_kept_however_little_it_is() {
        let function = |name: &str| Function {
            el: 1,
            function: name.into(),
            instructions: 1,
            polled_ns: 0,
        };
        let mut profile = vec![function("copy"); FUNCTIONS + 5];
        profile.push(function(Function::NO_NAME));
        profile.push(function("copy"));
        shorten(&mut profile);
        assert_eq!(profile.len(), FUNCTIONS + 1);
        assert_eq!(profile[FUNCTIONS].function, Function::NO_NAME);
    }

    #[test]
    fn a_run_ends_with_linux_where_linux_is_measured() {
        let words = |order| clock_options(&both(order), 1).join(" ");
        assert!(words(Order::LinuxFirst { rt_until: 1 }).ends_with("--end-mark 15"));
        assert!(!words(Order::RtFirst).contains("--end-mark"));
        // The probe does not pass this mark.
        let mut run = both(Order::LinuxFirst { rt_until: 1 });
        if let Machine::Spumone(system) = &mut run.machine {
            system.linux = None;
        }
        assert_eq!(run.end_mark(), None);
    }

    #[test]
    fn a_run_that_fails_shows_its_last_words() {
        let folder = tempfile::tempdir().unwrap();
        let (project, places) = project(
            folder.path(),
            "echo booting; echo 'no such machine' >&2; exit 1",
        );
        let run = run(Machine::BareRt("period=1ms".into()), Order::Any);
        let broken = execute(&project, &run, 1, &places).unwrap_err();
        assert!(
            broken.reason.contains("exit status: 1"),
            "{}",
            broken.reason
        );
        assert_eq!(broken.tail, ["booting", "no such machine"]);
        assert!(broken.log.is_file());
        assert!(!places.file(Role::Disk).exists());
    }

    #[test]
    fn a_run_that_ends_well_has_both_results() {
        let folder = tempfile::tempdir().unwrap();
        let report = r#"{"virtual_ns":1,"hash":"0x1","outside_events":0,"disk_calls":0,"cores":[],
            "visits":[],"marks":[],"host":{"seconds":1}}"#;
        let script = format!(
            "while [ \"$1\" != --json ]; do shift; done\necho '{report}' > \"$2\"\necho '{}'",
            RT.trim()
        );
        let (project, places) = project(folder.path(), &script);
        let run = run(Machine::BareRt("period=1ms".into()), Order::Any);
        let (console, clock) = execute(&project, &run, 1, &places).unwrap();
        assert!(console.rt.result.is_some());
        assert_eq!(clock.hash, "0x1");
    }
}
