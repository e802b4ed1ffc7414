// SPDX-License-Identifier: MIT OR Apache-2.0
//! Describes a boot and starts it.

use crate::console::{Console, Facts, INSTRUCTIONS_PER_US};
use crate::environment;
use crate::files;
use crate::guest::Guest;
use crate::image::Image;
use crate::machine::Machine;
use spumone_bench::description::{Board, Description, Link, Power, Scheduler};
use spumone_bench::qemu::{self, Arguments};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Seconds after which a machine is killed, unless the test sets another limit: far more than any boot takes
/// on a busy host. `SPUMONE_LIMIT` overrides it.
const LIMIT: u64 = 300;

fn limit(seconds: u64) -> Duration {
    Duration::from_secs(environment::number("SPUMONE_LIMIT", seconds))
}

/// Runs the probe guest on the bare machine with `cores` cores, under the name "probe".
pub fn bare(name: &str, cores: usize, bootargs: &str) -> Console {
    let arguments = Arguments::new(&qemu::Machine {
        machine: qemu::BARE,
        cpu: qemu::CPU,
        cores: cores as u64,
        memory_mib: 128,
    })
    .console(qemu::Console::Stdio)
    .kernel(&files::probe())
    .append(bootargs);
    let mut qemu = Command::new(qemu::PROGRAM);
    qemu.args(arguments.into_vec());
    let facts = Facts {
        name: name.to_owned(),
        guests: vec!["probe".to_owned()],
        again: format!("{qemu:?}"),
        clock: None,
    };
    Machine::start(facts, qemu, None, limit(LIMIT)).finish()
}

/// What is done to an image before it is booted.
type Damage = Box<dyn FnOnce(&mut Image)>;

/// A system, and the machine on which it runs.
#[must_use = "a boot does nothing until it is run"]
pub struct Boot {
    name: String,
    cpu: String,
    cores: usize,
    memory_mib: u64,
    policy: &'static str,
    delay_while: Option<&'static str>,
    quantum: String,
    power: Option<Power>,
    devices: String,
    hides_dma: bool,
    guests: Vec<Guest>,
    links: Vec<Link>,
    qemu_args: Vec<String>,
    exact: bool,
    /// Instructions of each core in a microsecond of the exact clock.
    speed: u64,
    end_us: Option<u64>,
    typed: Option<String>,
    limit: u64,
    folder: PathBuf,
    key: Option<PathBuf>,
    damage: Option<Damage>,
}

impl Boot {
    /// A boot on one core with 512 MiB. `name` names its folder, so each test needs another one.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            cpu: qemu::CPU.to_owned(),
            cores: 1,
            memory_mib: 512,
            policy: "none",
            delay_while: None,
            quantum: "2ms".to_owned(),
            power: None,
            devices: String::new(),
            hides_dma: false,
            guests: Vec::new(),
            links: Vec::new(),
            qemu_args: Vec::new(),
            exact: false,
            speed: INSTRUCTIONS_PER_US,
            end_us: None,
            typed: None,
            limit: LIMIT,
            folder: files::folder(name),
            key: None,
            damage: None,
        }
    }

    /// QEMU's name of the core type; the default is a Cortex-A76.
    pub fn cpu(mut self, cpu: &str) -> Self {
        cpu.clone_into(&mut self.cpu);
        self
    }

    /// Number of cores.
    pub fn cores(mut self, cores: usize) -> Self {
        self.cores = cores;
        self
    }

    /// Memory of the machine, in MiB.
    pub fn memory_mib(mut self, size: u64) -> Self {
        self.memory_mib = size;
        self
    }

    /// The policy against lock-holder preemption.
    pub fn policy(mut self, policy: &'static str) -> Self {
        self.policy = policy;
        self
    }

    /// Policy `delay`, and the guest state while which it waits.
    pub fn delay_while(mut self, what: &'static str) -> Self {
        self.policy = "delay";
        self.delay_while = Some(what);
        self
    }

    /// Length of the time slices of vCPUs of one priority, as "2ms".
    pub fn quantum(mut self, quantum: &str) -> Self {
        quantum.clone_into(&mut self.quantum);
        self
    }

    /// Cores go off when they are not needed. `cores_on`: how many are on, as "2..4", if that is bounded.
    pub fn power(mut self, mode: &str, cores_on: Option<&str>) -> Self {
        self.power = Some(Power {
            mode: mode.to_owned(),
            cores_on: cores_on.map(str::to_owned),
        });
        self
    }

    /// Adds tables to the board file; the boot then has its own copy of that file.
    pub fn board(mut self, tables: &str) -> Self {
        self.devices.push_str(tables);
        self
    }

    /// The board file does not say that its devices do DMA. So a guest may have such a device without [`Guest::trusted`], as with a wrong
    /// board file of a user.
    pub fn hides_dma(mut self) -> Self {
        self.hides_dma = true;
        self
    }

    /// Adds a guest.
    pub fn guest(mut self, guest: Guest) -> Self {
        self.guests.push(guest);
        self
    }

    /// Adds a memory link between two guests, by their names.
    pub fn memory_link(self, one: &str, other: &str) -> Self {
        self.link("memory", one, other)
    }

    /// Adds a network link between two guests, by their names.
    pub fn network_link(self, one: &str, other: &str) -> Self {
        self.link("network", one, other)
    }

    /// Adds a link of sockets between two guests, by their names.
    pub fn vsock_link(self, one: &str, other: &str) -> Self {
        self.link("vsock", one, other)
    }

    fn link(mut self, kind: &str, one: &str, other: &str) -> Self {
        self.links.push(Link {
            kind: kind.to_owned(),
            between: [one.to_owned(), other.to_owned()],
            offloads: None,
        });
        self
    }

    /// Adds arguments of QEMU.
    pub fn qemu<S: AsRef<str>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.qemu_args
            .extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Runs on the exact clock, at [`INSTRUCTIONS_PER_US`]: times that guests report are meaningful, and the
    /// same in each run.
    pub fn exact(mut self) -> Self {
        self.exact = true;
        self
    }

    /// As [`Self::exact`], with so many instructions in a microsecond: for guests that spin for seconds.
    pub fn exact_at(mut self, speed: u64) -> Self {
        self.speed = speed;
        self.exact()
    }

    /// As [`Self::exact`]; the machine ends at this virtual time, if not before.
    pub fn exact_until_us(mut self, end_us: u64) -> Self {
        self.end_us = Some(end_us);
        self.exact()
    }

    /// Types these keys from power on, as fast as the UART takes them. Nothing else can be typed then.
    /// On the exact clock each run is the same.
    pub fn typed(mut self, keys: &str) -> Self {
        self.typed = Some(keys.to_owned());
        self
    }

    /// Seconds after which the machine is killed.
    pub fn limit(mut self, seconds: u64) -> Self {
        self.limit = seconds;
        self
    }

    /// Signs the image with a new key, which the hypervisor then demands.
    pub fn signed(mut self) -> Self {
        let name = self.folder.join("test");
        let mut new = Command::new(files::spm());
        new.args(["key", "new"]).arg(&name);
        let status = new.status();
        assert!(status.is_ok_and(|it| it.success()), "{new:?} failed");
        self.key = Some(name.with_extension("key"));
        self
    }

    /// Changes the image before it is booted.
    pub fn damaged(mut self, damage: impl FnOnce(&mut Image) + 'static) -> Self {
        self.damage = Some(Box::new(damage));
        self
    }

    /// The folder for files of this boot.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Builds the system and starts the machine.
    pub fn start(self) -> Machine {
        let description = self.folder.join("system.toml");
        std::fs::write(&description, self.description())
            .unwrap_or_else(|error| panic!("cannot write {}: {error}", description.display()));
        if !self.devices.is_empty() || self.hides_dma {
            let board = files::root().join("boards/qemu-virt.toml");
            let board = std::fs::read_to_string(&board)
                .unwrap_or_else(|error| panic!("cannot read {}: {error}", board.display()));
            let board = match self.hides_dma {
                true => board
                    .replace("dma = true\n", "")
                    .replace("dma-coherent = true\n", ""),
                false => board,
            };
            let boards = self.folder.join("boards");
            std::fs::create_dir_all(&boards)
                .and_then(|()| std::fs::write(boards.join("qemu-virt.toml"), board + &self.devices))
                .unwrap_or_else(|error| panic!("cannot write in {}: {error}", boards.display()));
        }
        let image = self.folder.join("system.img");
        let mut build = Command::new(files::spm());
        build
            .arg("build")
            .arg(&description)
            .arg("-o")
            .arg(&image)
            .arg("--hypervisor")
            .arg(files::hypervisor())
            // Board files are found from the root of the source tree.
            .current_dir(files::root());
        if let Some(key) = &self.key {
            build.arg("--sign").arg(key);
        }
        let output = build
            .output()
            .unwrap_or_else(|error| panic!("cannot start {build:?}: {error}"));
        assert!(
            output.status.success(),
            "{build:?} failed:\n{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        if let Some(damage) = self.damage {
            let change = |bytes| {
                let mut changed = Image::new(bytes);
                damage(&mut changed);
                std::fs::write(&image, changed.into_bytes())
            };
            std::fs::read(&image)
                .and_then(change)
                .unwrap_or_else(|error| panic!("cannot change {}: {error}", image.display()));
        }
        let counted = self.exact.then(|| self.folder.join("clock.json"));
        let mut qemu = match &counted {
            Some(counted) => {
                let mut clock = Command::new(files::clock());
                clock
                    .args(["--q", "500", "--ipus", &self.speed.to_string()])
                    .arg("--json")
                    .arg(counted);
                if let Some(end_us) = self.end_us {
                    clock.args(["--end-us", &end_us.to_string()]);
                }
                clock.arg("--");
                clock
            }
            None => Command::new(qemu::PROGRAM),
        };
        let keys = self.typed.as_ref().map(|keys| typed(&self.folder, keys));
        let arguments = Arguments::new(&qemu::Machine {
            machine: qemu::WITH_EL2,
            cpu: &self.cpu,
            cores: self.cores as u64,
            memory_mib: self.memory_mib,
        })
        .console(match &keys {
            None => qemu::Console::Stdio,
            Some(keys) => qemu::Console::Typed(keys),
        })
        .modern_virtio()
        .kernel(&image)
        .with(&self.qemu_args);
        qemu.args(arguments.into_vec());
        let facts = Facts {
            name: self.name,
            guests: self
                .guests
                .into_iter()
                .map(|guest| guest.table.name)
                .collect(),
            again: format!("{build:?} && {qemu:?}"),
            clock: counted,
        };
        Machine::start(facts, qemu, Some(image), limit(self.limit))
    }

    /// Runs the machine until it turns itself off, as it does when all guests have ended.
    pub fn run(self) -> Console {
        self.start().finish()
    }

    fn description(&self) -> String {
        let description = Description {
            links: self.links.clone(),
            seed: None,
            board: Board {
                name: "qemu-virt".to_owned(),
                cores: self.cores as u32,
                memory: format!("{}MiB", self.memory_mib),
            },
            scheduler: Scheduler {
                policy: self.policy.to_owned(),
                quantum: self.quantum.clone(),
                delay_while: self.delay_while.map(str::to_owned),
                ..Scheduler::default()
            },
            power: self.power.clone(),
            guests: self
                .guests
                .iter()
                .map(|guest| guest.table.clone())
                .collect(),
        };
        let text = description.to_toml(&format!("the test {}", self.name));
        text.unwrap_or_else(|error| panic!("{error}"))
    }
}

/// The file with the keys that QEMU types.
fn typed(folder: &Path, keys: &str) -> PathBuf {
    let file = folder.join("typed");
    std::fs::write(&file, keys)
        .unwrap_or_else(|error| panic!("cannot write {}: {error}", file.display()));
    file
}
