// SPDX-License-Identifier: MIT OR Apache-2.0
//! `spm check`.

use crate::failure::Failure;
use crate::hypervisor;
use crate::progress::Progress;
use crate::summary;
use crate::system::{self, SystemArgs};
use clap::Args;
use serde_json::json;
use std::process::ExitCode;

/// Shown below the help.
pub const EXAMPLES: &str = "\
Examples:
  spm check systems/demo.toml
  spm check --json systems/demo.toml | jq .system.guests";

/// `spm check`.
#[derive(Args)]
pub struct CheckArgs {
    #[command(flatten)]
    pub system: SystemArgs,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Checks what the command line says.
pub fn command(args: &CheckArgs) -> Result<ExitCode, Failure> {
    let progress = Progress::start("reading the hypervisor");
    let named = args.system.hypervisor.as_deref();
    let built = match hypervisor::find(named).and_then(|path| hypervisor::read(&path)) {
        Err(failure) if named.is_some() => return Err(failure),
        // A description can be checked before there is a hypervisor.
        built => built.ok(),
    };
    let size = built
        .as_ref()
        .map_or(hypervisor::ASSUMED_SIZE, |built| built.bytes.len() as u64);
    let system = system::load(&args.system.description, size, &progress)?;
    drop(progress);
    if args.json {
        println!(
            "{:#}",
            json!({ "ok": true, "system": summary::json(&system) })
        );
        return Ok(ExitCode::SUCCESS);
    }
    print!("{}", summary::text(&args.system.description, &system));
    if built.is_none() {
        println!("\nThe hypervisor was not found: its size is assumed.");
    }
    Ok(ExitCode::SUCCESS)
}
