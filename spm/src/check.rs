// SPDX-License-Identifier: MIT OR Apache-2.0
//! `spm check`.

use crate::command::{Command, help};
use crate::failure::Failure;
use crate::hypervisor;
use crate::output::{self, say};
use crate::progress::Progress;
use crate::summary;
use crate::system::{self, SystemArgs};
use clap::Args;
use serde_json::json;
use std::process::ExitCode;

/// Shown below the help.
const EXAMPLES: &str = "\
Examples:
  spm check systems/demo.toml
  spm check --json systems/demo.toml | jq .system.guests";

/// Check a system description and every file it names; show where everything goes in memory.
#[derive(Args)]
#[command(after_help = help(EXAMPLES))]
pub struct CheckArgs {
    #[command(flatten)]
    pub system: SystemArgs,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}

impl Command for CheckArgs {
    fn run(&self) -> Result<ExitCode, Failure> {
        let progress = Progress::start("reading the hypervisor");
        let named = self.system.hypervisor.as_deref();
        let found = hypervisor::find(named);
        let (built, lacks) = match found.map(|path| (hypervisor::read(&path), path)) {
            Ok((Ok(built), _)) => (Some(built), None),
            Ok((Err(failure), _)) if named.is_some() => return Err(failure),
            // A description can be checked before there is a hypervisor, and while one is built.
            Ok((Err(_), path)) => (
                None,
                Some(format!("The hypervisor {} cannot be used", path.display())),
            ),
            Err(_) => (None, Some("The hypervisor was not found".to_owned())),
        };
        let system = system::load(&self.system.description, built.as_ref(), &progress)?;
        drop(progress);
        if self.json {
            output::json(
                &json!({ "ok": true, "trusted": summary::trusted(&system), "system": summary::json(&system) }),
            );
            return Ok(ExitCode::SUCCESS);
        }
        output::print(&summary::text(&self.system.description, &system));
        if let Some(lacks) = lacks {
            say!("\n{lacks}: its size is assumed.");
        }
        Ok(ExitCode::SUCCESS)
    }

    fn json(&self) -> bool {
        self.json
    }
}
