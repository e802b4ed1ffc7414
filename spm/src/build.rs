// SPDX-License-Identifier: MIT OR Apache-2.0
//! `spm build`.

use crate::bundle;
use crate::command::{Command, help};
use crate::failure::Failure;
use crate::hypervisor::{self, Hypervisor};
use crate::key::SecretKey;
use crate::outfile;
use crate::output::{self, say};
use crate::progress::Progress;
use crate::summary;
use crate::system::{self, System, SystemArgs};
use clap::Args;
use serde_json::json;
use spumone_config::units::MIB;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Shown below the help.
const EXAMPLES: &str = "\
Examples:
  spm build systems/demo.toml
  spm build systems/demo.toml -o demo.img --hypervisor spumone.elf
  spm key new product && spm build systems/demo.toml --sign product.key";

/// Build one bootable file of a system: hypervisor, guests and their device trees.
///
/// The file is a Linux arm64 Image: QEMU's -kernel and U-Boot's booti start it. The same input
/// gives the same bytes.
///
/// The hypervisor checks the SHA-256 of every part of the file: at start, and whenever it loads a guest. With --sign it accepts
/// only descriptions that were signed with that key, of the same `version` or a higher one.
#[derive(Args)]
#[command(after_help = help(EXAMPLES))]
pub struct BuildArgs {
    #[command(flatten)]
    pub system: SystemArgs,
    /// The file to write [default: build/systems/SYSTEM.img]. With /dev/stdout nothing else is printed.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Sign the description with this secret key, made by `spm key new`, and have the hypervisor in the file demand it.
    #[arg(long, value_name = "NAME.key")]
    pub sign: Option<PathBuf>,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}

impl BuildArgs {
    /// The file to write.
    pub fn output(&self) -> PathBuf {
        self.output
            .clone()
            .unwrap_or_else(|| default_output(&self.system.description))
    }
}

/// `build/systems/NAME.img` for a description `NAME.toml`. Only that ending is left out, so that other names stay different.
pub fn default_output(description: &Path) -> PathBuf {
    let name = match description.extension() {
        Some(ending) if ending == "toml" => description.file_stem(),
        _ => description.file_name(),
    };
    let mut name = name.unwrap_or_default().to_owned();
    name.push(".img");
    Path::new("build/systems").join(name)
}

impl Command for BuildArgs {
    fn run(&self) -> Result<ExitCode, Failure> {
        let output = self.output();
        let key = self.sign.as_deref().map(SecretKey::read).transpose()?;
        let ready = Ready::new(&self.system, self.sign.as_deref())?;
        ready.keep_inputs(&output, "name another file after -o")?;
        let built = ready.write(&output, key.as_ref())?;
        if is_same(&output, Path::new("/dev/stdout")) {
            // The image is there, and nothing else.
            return Ok(ExitCode::SUCCESS);
        }
        if self.json {
            let system = summary::json(&built.system);
            let (key, version) = (
                key.as_ref().map(SecretKey::public_hex),
                built.system.packed.system.version,
            );
            let report = json!({ "ok": true, "output": output.to_string_lossy(), "size": built.size, "key": key, "version": version, "system": system });
            output::json(&report);
        } else {
            let mib = built.size as f64 / MIB as f64;
            let signed = key.map(|key| {
                let version = built.system.packed.system.version;
                format!(", version {version}, signed with {}", key.public_hex())
            });
            say!(
                "{}: {mib:.1} MiB{}",
                output.display(),
                signed.unwrap_or_default()
            );
        }
        Ok(ExitCode::SUCCESS)
    }

    fn json(&self) -> bool {
        self.json
    }
}

/// A system whose image is written.
pub struct Built {
    /// The system.
    pub system: System,
    /// Bytes of the image.
    pub size: u64,
    /// Bytes that are loaded of the hypervisor's program.
    pub program: u64,
}

/// Builds a system into `output`, and signs nothing.
pub fn build(args: &SystemArgs, output: &Path) -> Result<Built, Failure> {
    let ready = Ready::new(args, None)?;
    ready.keep_inputs(output, "let the description name other files")?;
    ready.write(output, None)
}

/// A system that is ready to be written: all of it has been read and checked.
pub struct Ready {
    /// The system.
    pub system: System,
    hypervisor: Hypervisor,
    /// What the image is made from.
    inputs: Vec<PathBuf>,
    /// The file with the public key, if the image is signed. The build does not read it, but it must not be overwritten: the image is verified with it.
    public_key: Option<PathBuf>,
    progress: Progress,
}

impl Ready {
    /// Reads and checks a system, and whether its image can be signed with `sign`.
    pub fn new(args: &SystemArgs, sign: Option<&Path>) -> Result<Self, Failure> {
        let progress = Progress::start("reading the hypervisor");
        let found = hypervisor::find(args.hypervisor.as_deref())
            .and_then(|path| Ok((hypervisor::read(&path)?, path)));
        // Faults of the description are reported first.
        let built = found.as_ref().ok().map(|(hypervisor, _)| hypervisor);
        let system = system::load(&args.description, built, &progress)?;
        let (hypervisor, path) = found?;
        let wanted = system.board.memory.base + system.board.memory.image_offset;
        if hypervisor.address != wanted {
            return Err(Failure::environment(format!(
                "{} is linked at {:#x}, but board \"{}\" needs it at {wanted:#x}",
                path.display(),
                hypervisor.address,
                system.board.name
            ))
            .help("build the hypervisor for this board"));
        }
        if sign.is_some() && hypervisor.trust.is_none() {
            let message = format!("{} has no place for a key", path.display());
            return Err(Failure::environment(message).help("build the hypervisor of this release"));
        }
        let board = system.sources.board.iter().map(|board| board.path.clone());
        let public_key = sign.map(|key| key.with_extension("pub"));
        let inputs = [args.description.clone(), path]
            .into_iter()
            .chain(board)
            .chain(sign.map(Path::to_owned))
            .chain(guest_files(args, &system))
            .collect();
        Ok(Self {
            system,
            hypervisor,
            inputs,
            public_key: public_key.filter(|path| path.is_file()),
            progress,
        })
    }

    /// Refuses to write `output` over a file that the image is made from, or over the public key of its signature.
    pub fn keep_inputs(&self, output: &Path, help: &str) -> Result<(), Failure> {
        let is_output = |input: &PathBuf| is_same(input, output);
        if self.public_key.as_ref().is_some_and(is_output) {
            return Err(taken(output, "is the public key of the signature", help));
        }
        match self.inputs.iter().any(is_output) {
            true => Err(taken(output, "is read to make the image", help)),
            false => Ok(()),
        }
    }

    /// Writes the image, signed if there is a key.
    pub fn write(self, output: &Path, key: Option<&SecretKey>) -> Result<Built, Failure> {
        let Self {
            mut system,
            hypervisor,
            progress,
            ..
        } = self;
        progress.step("writing the image");
        let image = bundle::image(&hypervisor, &mut system, key).map_err(Failure::environment)?;
        let folder = output.parent().unwrap_or(Path::new(""));
        fs::create_dir_all(folder)
            .and_then(|()| outfile::write(output, &image))
            .map_err(|error| Failure::io("write", output, &error))?;
        Ok(Built {
            system,
            size: image.len() as u64,
            program: hypervisor.loaded,
        })
    }
}

/// The files that the guests name.
fn guest_files(args: &SystemArgs, system: &System) -> impl Iterator<Item = PathBuf> {
    let folder = args.description.parent().unwrap_or(Path::new(""));
    let guests = system.description.guests.iter();
    let files = guests.flat_map(|guest| {
        [
            Some(&guest.image),
            guest.initrd.as_ref(),
            guest.dtb.as_ref(),
        ]
    });
    files.flatten().map(move |file| folder.join(&file.value))
}

/// Why a file is not written: what it is.
pub fn taken(output: &Path, what: &str, help: &str) -> Failure {
    let message = format!("{} {what}", output.display());
    Failure::environment(message).help(help)
}

/// Whether two paths are one file, under any of its names, also if it is not there yet.
pub fn is_same(one: &Path, other: &Path) -> bool {
    let file = |path: &Path| fs::metadata(path).ok().map(|it| (it.dev(), it.ino()));
    match (file(one), file(other)) {
        (Some(one), Some(other)) => one == other,
        (None, None) => {
            let place = |path: &Path| {
                let folder = path.parent().unwrap_or(Path::new(""));
                let folder = fs::canonicalize(Path::new(".").join(folder)).ok();
                Some((folder?, path.file_name()?.to_owned()))
            };
            place(one).is_some() && place(one) == place(other)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_is_named_after_the_description() {
        for (description, output) in [
            ("systems/demo.toml", "build/systems/demo.img"),
            ("demo", "build/systems/demo.img"),
            ("sys.v1.toml", "build/systems/sys.v1.img"),
            ("sys.v2.toml", "build/systems/sys.v2.img"),
            ("sys.v3", "build/systems/sys.v3.img"),
        ] {
            assert_eq!(default_output(Path::new(description)), Path::new(output));
        }
    }
}
