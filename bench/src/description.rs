// SPDX-License-Identifier: MIT OR Apache-2.0
//! System descriptions (`docs/system-description.md`) that programs write: those of figures and boot tests.

use serde::Serialize;

/// A system description. What is `None` or empty is not written, so `spm` takes its default.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Description {
    /// Fixes the random numbers in the guests' device trees.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// `[board]`.
    pub board: Board,
    /// `[scheduler]`.
    pub scheduler: Scheduler,
    /// `[power]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power: Option<Power>,
    /// The `[[guest]]` tables.
    #[serde(rename = "guest")]
    pub guests: Vec<Guest>,
    /// The `[[link]]` tables.
    #[serde(rename = "link", skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<Link>,
}

/// `[board]`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Board {
    /// Name of the board file.
    pub name: String,
    /// Number of cores.
    pub cores: u32,
    /// Memory, as "2GiB".
    pub memory: String,
}

/// `[scheduler]`.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Scheduler {
    /// The policy against lock-holder preemption.
    pub policy: String,
    /// Length of the time slices of vCPUs of one priority, as "2ms".
    pub quantum: String,
    /// What the policy `delay` waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_while: Option<String>,
    /// Mechanisms of the policy that are turned off.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub without: Vec<String>,
    /// How interrupts' priorities follow those of the vCPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interrupt_priorities: Option<String>,
}

/// `[power]`.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Power {
    /// Which cores are on.
    pub mode: String,
    /// How many, as "2..4".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores_on: Option<String>,
}

/// A `[[guest]]`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Guest {
    /// Its name.
    pub name: String,
    /// `linux`, `elf` or `raw`.
    pub kind: String,
    /// The file that is loaded.
    pub image: String,
    /// Load address, if the file has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<u64>,
    /// Linux's initial file system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initrd: Option<String>,
    /// Memory, as "16MiB".
    pub memory: String,
    /// Where that is on the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pa: Option<u64>,
    /// Whether the guest's addresses are the machine's.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub identity: bool,
    /// Whether it may have devices that do DMA.
    #[serde(rename = "trusted-dma", skip_serializing_if = "std::ops::Not::not")]
    pub trusted_dma: bool,
    /// What an access where it has nothing does.
    #[serde(rename = "on-fault", skip_serializing_if = "Option::is_none")]
    pub on_fault: Option<String>,
    /// What becomes of it when it has ended.
    #[serde(rename = "on-stop", skip_serializing_if = "Option::is_none")]
    pub on_stop: Option<String>,
    /// What becomes of it when its protected memory has changed.
    #[serde(rename = "on-tamper", skip_serializing_if = "Option::is_none")]
    pub on_tamper: Option<String>,
    /// How often it starts again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restarts: Option<Restarts>,
    /// What of its memory must not change while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protect: Option<Protect>,
    /// The longest timeout of its watchdog, as "10s".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watchdog: Option<String>,
    /// Whether it can read the stolen time of its vCPUs.
    #[serde(rename = "stolen-time", skip_serializing_if = "std::ops::Not::not")]
    pub stolen_time: bool,
    /// Whether it may set the mode of `[power]`.
    #[serde(rename = "sets-power", skip_serializing_if = "std::ops::Not::not")]
    pub sets_power: bool,
    /// Home core of each vCPU.
    pub vcpus: Vec<u32>,
    /// Further cores that its vCPUs may move to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores: Option<Vec<u32>>,
    /// Priority of its vCPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    /// How early it is woken, as "8us".
    #[serde(rename = "wake-early", skip_serializing_if = "Option::is_none")]
    pub wake_early: Option<String>,
    /// Its command line.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub bootargs: String,
    /// Devices passed through.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<String>,
}

/// The `restarts` of a guest.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Restarts {
    /// How often at most.
    pub most: u8,
    /// In which time, as "10s".
    pub within: String,
}

/// The `protect` of a guest.
#[derive(Clone, Debug, Serialize)]
pub struct Protect {
    /// How.
    pub by: String,
    /// What, where the image does not say it; as "0x4008_0000+64KiB".
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<String>,
    /// The time of a round, as "1s".
    #[serde(skip_serializing_if = "String::is_empty")]
    pub round: String,
    /// How much local memory, as "256KiB".
    #[serde(skip_serializing_if = "String::is_empty")]
    pub memory: String,
}

/// A `[[link]]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Link {
    /// What it is.
    pub kind: String,
    /// The names of the two guests.
    pub between: [String; 2],
    /// Whether a network link has offloads; `None`: as the default says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offloads: Option<bool>,
}

/// The `priority` of a guest.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Priority {
    /// The same for all its vCPUs.
    All(u8),
    /// One for each vCPU.
    PerVcpu(Vec<u8>),
}

impl Description {
    /// The description as TOML, below a comment that names the writer.
    ///
    /// # Errors
    ///
    /// A number that TOML cannot represent: a seed or an address of 2^63 or more.
    pub fn to_toml(&self, writer: &str) -> Result<String, String> {
        let text = toml::to_string(self)
            .map_err(|error| format!("cannot write a system description: {error}"))?;
        Ok(format!("# Written by {writer}.\n{text}"))
    }
}
