// SPDX-License-Identifier: MIT OR Apache-2.0
//! All runs of an experiment: plans them, makes those without a stored result, collects the results.

use crate::experiments::{self, Experiment};
use crate::failure::Failure;
use crate::hash;
use crate::linux::Linux;
use crate::machine::{MEMORY_MIB, Machine, Run};
use crate::project::{Inputs, Project};
use crate::results::{Outcome, Results};
use crate::role::{Flavour, Role};
use crate::runner::{self, Broken, Places};
use crate::sizes::SystemSize;
use crate::store::{self, Recipe, Store};
use crate::system::Files;
use indicatif::{HumanDuration, ProgressBar, ProgressStyle};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often the progress bar is redrawn.
const TICK: Duration = Duration::from_millis(200);

/// Options of a campaign.
#[derive(Clone, Debug)]
pub struct Options {
    /// Seeds of the clock: each run is made once with each, except those of [`Experiment::once`].
    pub seeds: Vec<u32>,
    /// Runs at a time.
    pub jobs: usize,
    /// Make only runs whose label contains this.
    pub only: Option<String>,
    /// Continue after a run has failed.
    pub keep_going: bool,
}

/// The outcome of a campaign.
pub struct Collected {
    /// All results.
    pub results: Results,
    /// Runs that failed, by name.
    pub broken: Vec<(String, Broken)>,
    /// Files and versions that the results depend on.
    pub inputs: Inputs,
    /// How many runs were made; the others had stored results.
    pub made: usize,
}

/// A run with its seed and files.
struct Job<'a> {
    run: &'a Run,
    seed: u32,
    key: String,
    arguments: Vec<String>,
    places: Places,
}

impl Job<'_> {
    fn name(&self) -> String {
        format!("{} seed {}", self.run.label, self.seed)
    }
}

/// The runs whose labels contain `only`.
pub fn selected(runs: Vec<Run>, only: Option<&str>) -> Vec<Run> {
    runs.into_iter()
        .filter(|run| only.is_none_or(|part| run.label.contains(part)))
        .collect()
}

/// Makes all `runs` of an experiment. `build` makes a bootable image of a system description, and says what the system takes.
///
/// # Errors
///
/// A file is missing, a system cannot be built, or (without `keep_going`) a run failed.
pub fn execute<E: From<Failure>>(
    project: &Project,
    experiment: &dyn Experiment,
    runs: &[Run],
    options: &Options,
    build: impl Fn(&Path, &Path) -> Result<SystemSize, E>,
) -> Result<Collected, E> {
    let roles: BTreeSet<_> = runs.iter().flat_map(needed).collect();
    let roles: Vec<_> = roles.into_iter().collect();
    let spumone = runs
        .iter()
        .any(|run| matches!(run.machine, Machine::Spumone(_)));
    project.check(&roles, spumone)?;
    let inputs = project.inputs(&roles, spumone)?;
    let folder_of = |it: &dyn Experiment| project.root.join("build/bench").join(it.about().name);
    let folder = folder_of(experiment);
    let others = experiments::ALL
        .iter()
        .filter(|it| it.about().name != experiment.about().name);
    let others = others.map(|it| folder_of(*it).join("runs")).collect();
    let store = Store::new(folder.join("runs"), others);
    let mut results = Results::default();
    for role in roles {
        let size = project.size(role)?;
        results.sizes.files.insert(role.to_string(), size);
    }
    let mut jobs = Vec::new();
    let mut images = Vec::new();
    for run in runs {
        let (image, hash) = match &run.machine {
            Machine::Spumone(_) | Machine::Xen(_) => {
                let (image, size) = build_image(project, run, &folder, &build)?;
                if let Some(size) = size {
                    results.sizes.systems.insert(run.label.clone(), size);
                }
                let hash = hash::file(&image)?;
                (Some(image), Some(hash))
            }
            _ => (None, None),
        };
        let before = jobs.len();
        for &seed in experiments::seeds_of(experiment, run, &options.seeds) {
            let job = plan(
                project,
                run,
                seed,
                &inputs,
                image.as_deref(),
                hash.as_deref(),
                &store,
            );
            match store.load(&run.label, seed, &job.key) {
                Some(outcome) => results.add(outcome),
                None => jobs.push(job),
            }
        }
        match image {
            Some(image) if jobs.len() == before => remove(&image),
            image => images.extend(image),
        }
    }
    let made = jobs.len();
    let (outcomes, broken) = work(project, &jobs, options, &store)?;
    outcomes.into_iter().for_each(|it| results.add(it));
    results.missing = broken.iter().map(|(name, _)| name.clone()).collect();
    if broken.is_empty() {
        // Images of failed runs are kept, to find the cause.
        images.iter().for_each(|image| remove(image));
    }
    Ok(Collected {
        results,
        broken,
        inputs,
        made,
    })
}

fn remove(path: &Path) {
    // The image is large; an error here only leaves it on disk.
    let _ = std::fs::remove_file(path);
}

/// The project's files that a run depends on.
fn needed(run: &Run) -> Vec<Role> {
    if let Machine::Kvm(kvm) = &run.machine {
        // The guests are in the host's file system.
        return kvm.files();
    }
    if let Machine::KvmPair(pair) = &run.machine {
        return pair.files();
    }
    let mut roles = Vec::new();
    if let Machine::Xen(system) = &run.machine {
        roles.extend(system.files());
    }
    if let Some(linux) = run.machine.linux() {
        roles.extend(linux.files());
    }
    if run.machine.has_rt() {
        roles.push(Role::Rt);
    }
    if run.machine.probe_count() > 0 {
        roles.push(Role::Probe);
    }
    roles
}

/// Writes the run's system description and builds its image, or writes Xen's device tree. Returns the file, and what a
/// Spumone system takes.
fn build_image<E: From<Failure>>(
    project: &Project,
    run: &Run,
    folder: &Path,
    build: impl Fn(&Path, &Path) -> Result<SystemSize, E>,
) -> Result<(PathBuf, Option<SystemSize>), E> {
    let base = folder.join("systems").join(&run.label);
    let description = base.with_extension("toml");
    let image = base.with_extension("img");
    if let Machine::Xen(system) = &run.machine {
        let size = |role| project.size(role).map_err(|failure| failure.message);
        let tree = system.tree(MEMORY_MIB, size).map_err(Failure::new)?;
        store::write(&image, &tree)?;
        return Ok((image, None));
    }
    if let Machine::Spumone(system) = &run.machine {
        let linux = system.linux.as_ref();
        let kernel = linux.map_or(Role::Kernel(Flavour::Cloud), Linux::kernel);
        let initrd = linux.map_or(Role::Initrd(Flavour::Cloud), Linux::initrd);
        let text = system.description(&Files {
            kernel: &project.file(kernel),
            initrd: &project.file(initrd),
            rt: &project.file(Role::Rt),
            probe: &project.file(Role::Probe),
        });
        let text = text.map_err(Failure::new)?;
        store::write(&description, text.as_bytes())?;
    }
    let size = build(&description, &image)?;
    Ok((image, Some(size)))
}

fn plan<'a>(
    project: &Project,
    run: &'a Run,
    seed: u32,
    inputs: &Inputs,
    image: Option<&Path>,
    image_hash: Option<&str>,
    store: &Store,
) -> Job<'a> {
    let mut files = BTreeMap::new();
    let mut hashes = BTreeMap::new();
    for role in run.machine.files() {
        let name = role.to_string();
        match (role, image, image_hash) {
            (Role::System, Some(image), Some(hash)) => {
                files.insert(role, image.to_owned());
                hashes.insert(name, hash.to_owned());
            }
            _ => {
                files.insert(role, project.file(role));
                let hash = inputs.files.get(&name).cloned();
                hashes.insert(name, hash.unwrap_or_default());
            }
        }
    }
    for name in ["spumone-clock.so", "testbed/run"] {
        let hash = inputs.files.get(name).cloned();
        hashes.insert(name.to_owned(), hash.unwrap_or_default());
    }
    let arguments = crate::machine::arguments(run, |role| format!("{{{role}}}").into());
    let key = Recipe {
        qemu: &inputs.qemu,
        arguments: &arguments,
        clock: crate::machine::ClockSettings {
            seed,
            ..run.clock.clone()
        },
        end_mark: run.end_mark(),
        disk_mib: run.disk_mib,
        files: &hashes,
    }
    .key();
    let base = store.path(&run.label, seed, &key).with_extension("");
    Job {
        run,
        seed,
        key,
        arguments,
        places: Places { files, base },
    }
}

/// Results, and runs that failed.
type Work = (Vec<Outcome>, Vec<(String, Broken)>);

/// Makes the runs, `options.jobs` at a time.
fn work(
    project: &Project,
    jobs: &[Job<'_>],
    options: &Options,
    store: &Store,
) -> Result<Work, Failure> {
    let progress = Progress::new(jobs);
    let next = Mutex::new(jobs.iter());
    let done: Mutex<Work> = Mutex::default();
    let fault = Mutex::new(None);
    let stop = AtomicBool::new(false);
    let lock_next = || next.lock().unwrap_or_else(|it| it.into_inner()).next();
    let worker = || {
        while !stop.load(Ordering::Relaxed)
            && let Some(job) = lock_next()
        {
            progress.begin(job);
            let result = runner::execute(project, job.run, job.seed, &job.places);
            let mut done = done.lock().unwrap_or_else(|it| it.into_inner());
            match result {
                Ok((console, clock)) => {
                    let outcome = Outcome {
                        key: job.key.clone(),
                        label: job.run.label.clone(),
                        seed: job.seed,
                        ipus: job.run.clock.ipus,
                        arguments: job.arguments.clone(),
                        console,
                        clock,
                    };
                    if let Err(failure) = store.save(&outcome) {
                        *fault.lock().unwrap_or_else(|it| it.into_inner()) = Some(failure);
                        stop.store(true, Ordering::Relaxed);
                    }
                    progress.end(job, &outcome.numbers());
                    done.0.push(outcome);
                }
                Err(broken) => {
                    progress.end(job, &format!("FAILED: {}", broken.reason));
                    done.1.push((job.name(), broken));
                    if !options.keep_going {
                        stop.store(true, Ordering::Relaxed);
                    }
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..options.jobs.min(jobs.len()) {
            scope.spawn(worker);
        }
    });
    drop(progress);
    match fault.into_inner().unwrap_or_else(|it| it.into_inner()) {
        Some(failure) => Err(failure),
        None => Ok(done.into_inner().unwrap_or_else(|it| it.into_inner())),
    }
}

/// A progress bar on a terminal; otherwise a line for each run that ends.
struct Progress {
    bar: ProgressBar,
    total: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    under_way: Vec<(String, Instant)>,
    ended: usize,
}

impl Progress {
    fn new(jobs: &[Job<'_>]) -> Self {
        let bar = ProgressBar::new(jobs.len() as u64);
        let template = "{bar:24.cyan/blue} {msg}  {elapsed}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        if !jobs.is_empty() {
            bar.enable_steady_tick(TICK);
        }
        Self {
            bar,
            total: jobs.len(),
            state: Mutex::default(),
        }
    }

    fn show(&self, state: &State) {
        let names: Vec<_> = state
            .under_way
            .iter()
            .map(|(name, _)| name.as_str())
            .collect();
        let text = format!("{}/{}: {}", state.ended, self.total, names.join(", "));
        self.bar.set_message(text);
    }

    fn begin(&self, job: &Job<'_>) {
        let mut state = self.state.lock().unwrap_or_else(|it| it.into_inner());
        state.under_way.push((job.name(), Instant::now()));
        self.show(&state);
    }

    fn end(&self, job: &Job<'_>, what: &str) {
        let mut state = self.state.lock().unwrap_or_else(|it| it.into_inner());
        let name = job.name();
        let begun = state.under_way.iter().position(|(it, _)| *it == name);
        let took = begun.map_or(Duration::ZERO, |at| state.under_way.remove(at).1.elapsed());
        state.ended += 1;
        self.show(&state);
        self.bar.inc(1);
        let line = format!(
            "[{}/{}] {name}: {what} ({})",
            state.ended,
            self.total,
            HumanDuration(took)
        );
        match self.bar.is_hidden() {
            // If nobody reads that, the runs go on.
            true => drop(writeln!(io::stderr(), "{line}")),
            false => self.bar.println(line),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
