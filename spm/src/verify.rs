// SPDX-License-Identifier: MIT OR Apache-2.0
//! `spm verify`: whether a built image is what `spm build` has written, by the code with which the hypervisor looks.

use crate::bundle::TRUST_PLACE;
use crate::command::{Command, help};
use crate::failure::Failure;
use crate::input;
use crate::key::{self, hex};
use crate::output::{self, say};
use clap::Args;
use serde_json::json;
use spumone_config::PhysAddr;
use spumone_config::image::LinuxHeader;
use spumone_config::packed::{BundleHeader, Guest, Hash, MAGIC, Part, Segment, System, Trust};
use spumone_config::seal;
use spumone_config::types::MAX_GUESTS;
use spumone_config::units::PAGE;
use spumone_core::load::{Chunk, Engine, Hashing, Phases, Work};
use spumone_core::sha256::{self, BLOCK, State};
use spumone_core::verify;
use std::path::PathBuf;
use std::process::ExitCode;

/// Shown below the help.
const EXAMPLES: &str = "\
Examples:
  spm verify build/systems/demo.img
  spm verify demo.img --key product.pub";

/// Larger than any image: the files of guests have at most 2 GiB.
const MAX_IMAGE: u64 = 3 << 30;
/// The exit code for an image that is not accepted.
const EXIT_DIFFERS: u8 = 1;

/// Check a built image as the hypervisor in it does: the signature, and the hash of each part.
///
/// Without --key the image is checked against the key in its own hypervisor, and the key is printed: compare it with yours, since
/// whoever changes an image can change that key, too.
#[derive(Args)]
#[command(after_help = help(EXAMPLES))]
pub struct VerifyArgs {
    /// The image, as `spm build` writes it.
    pub image: PathBuf,
    /// The image must be signed with the key of this file, made by `spm key new`, and its hypervisor must demand that key.
    #[arg(long, value_name = "NAME.pub")]
    pub key: Option<PathBuf>,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}

impl Command for VerifyArgs {
    fn run(&self) -> Result<ExitCode, Failure> {
        let key = match &self.key {
            Some(path) => Some(key::public(path)?.ok_or_else(|| {
                let message = format!("{} is no public key", path.display());
                Failure::environment(message)
                    .help("name a file NAME.pub that `spm key new NAME` has written")
            })?),
            None => None,
        };
        let is_image = |beginning: &[u8]| LinuxHeader::parse(beginning).is_some();
        let image = input::read_if(&self.image, MAX_IMAGE, is_image)
            .map_err(|error| Failure::io("read", &self.image, &error))?
            .unwrap_or_default();
        let path = self.image.display();
        let verified = match verify_image(&image, key) {
            Ok(verified) => verified,
            Err(what) => {
                let failure = Failure::environment(format!("{path}: {what}"));
                failure.report(self.json);
                return Ok(ExitCode::from(EXIT_DIFFERS));
            }
        };
        let version = verified.system.version;
        let key = verified.trust.has_key().then(|| hex(&verified.trust.key));
        if self.json {
            let guests = verified.system.guests.iter();
            let guests: Vec<_> = guests.map(|guest| guest.name.as_str()).collect();
            let report = json!({ "ok": true, "image": self.image.to_string_lossy(), "key": key, "version": version, "guests": guests });
            output::json(&report);
        } else {
            let signed = match key {
                Some(key) => format!("version {version}, signed with {key}"),
                None => "not signed".to_owned(),
            };
            say!("{path}: every part has its hash; {signed}");
        }
        Ok(ExitCode::SUCCESS)
    }

    fn json(&self) -> bool {
        self.json
    }
}

/// An image of which every part has its hash.
pub struct Verified {
    system: System,
    /// What its hypervisor trusts.
    trust: Trust,
}

/// Verifies an image, in the order of the hypervisor. `key`: which key it must be signed with, if that is known.
///
/// # Errors
///
/// The part that differs, and what to do.
pub fn verify_image(image: &[u8], key: Option<[u8; Trust::KEY]>) -> Result<Verified, String> {
    if LinuxHeader::parse(image).is_none() {
        return Err("this is no image that `spm build` has written".into());
    }
    let pages = (0..image.len()).step_by(PAGE as usize);
    let mut bundles = pages.filter(|&at| image[at..].starts_with(&MAGIC));
    let start = bundles.next().ok_or(
        "there is no bundle of guests behind the hypervisor: build the image with `spm build`",
    )?;
    let (program, bundle) = image.split_at(start);
    let trust = trust_of(program).ok_or(
        "the image does not say where its hypervisor has its key: build it with `spm build` of this release",
    )?;
    if key.is_some_and(|key| key != trust.key) {
        return Err(match trust.has_key() {
            true => format!("its hypervisor has another key: {}", hex(&trust.key)),
            false => "its hypervisor has no key, so it starts unsigned images, too: build the image with \
                      `spm build --sign`"
                .into(),
        });
    }
    // Where it will lie is not known; the hypervisor looks itself.
    let at = BundleHeader::from_bytes(bundle).map_or(PhysAddr(0), |it| it.address);
    let (header, system) =
        verify::description(bundle, at, &trust, seal::hash).map_err(|error| error.to_string())?;
    let bundle = usize::try_from(header.total_len)
        .ok()
        .and_then(|total| bundle.get(..total))
        .ok_or("the image is cut off: copy or build it again")?;
    let bytes = |part: &Part| range(bundle, part.offset, part.size).unwrap_or_default();
    verify::tables(&header, &system, bytes, seal::hash).map_err(|error| error.to_string())?;
    let mut seen = Vec::new();
    for guest in &system.guests {
        verify_guest(guest, bundle, &mut seen)?;
    }
    Ok(Verified { system, trust })
}

/// What the hypervisor in the image trusts.
fn trust_of(program: &[u8]) -> Option<Trust> {
    let place = range(program, TRUST_PLACE as u64, 8)?;
    let place = u64::from_le_bytes(place.try_into().ok()?);
    let bytes = range(program, place, Trust::SIZE as u64).filter(|_| place != 0)?;
    Some(Trust::from_bytes(bytes.try_into().ok()?))
}

fn range(bytes: &[u8], start: u64, size: u64) -> Option<&[u8]> {
    let start = usize::try_from(start).ok()?;
    bytes.get(start..start.checked_add(usize::try_from(size).ok()?)?)
}

/// Hashes all that is loaded for a guest. `seen`: the payloads that guests before it have, which are hashed once.
fn verify_guest(guest: &Guest, bundle: &[u8], seen: &mut Vec<Segment>) -> Result<(), String> {
    let name = &guest.name;
    let beyond = || format!("guest {name}: a payload lies beyond the image");
    // The numbers of the chunks that hash: of lists, then of leaves.
    let (mut lists, mut leaves) = (Vec::new(), Vec::new());
    let mut leaf = 0;
    for (number, segment) in (0..).zip(&guest.segments) {
        let list = segment.leaves().saturating_mul(Hash::SIZE as u64);
        if range(bundle, segment.offset, segment.size).is_none()
            || range(bundle, segment.list, list).is_none()
        {
            return Err(beyond());
        }
        let same =
            |old: &Segment| seal::has_list_of(old, segment) && old.list_hash == segment.list_hash;
        let end = leaf + segment.leaves();
        if !seen.iter().any(same) {
            seen.push(*segment);
            lists.push(number..number + 1);
            leaves.push(leaf..end);
        }
        leaf = end;
    }
    // In what `spm build` writes, no payload shares bytes with another one; each guest may have it at another place in its pages.
    let hashed = seen.iter().map(|segment| segment.size);
    let hashed = hashed.fold(0, u64::saturating_add);
    if hashed > bundle.len() as u64 * MAX_GUESTS as u64 {
        return Err(format!(
            "guest {name}: payloads overlap, which `spm build` does not write: build the image again"
        ));
    }
    let mut memory = guest.memory.iter().map(|it| it.size);
    let local = guest.protect.as_ref().and_then(|it| it.local.as_ref());
    if let (Some(local), Some(memory)) = (local, memory.next()) {
        let list = (memory / PAGE).saturating_mul(Hash::SIZE as u64);
        range(bundle, local.list, list).ok_or_else(beyond)?;
    }
    let work = Work::new(guest, Phases::of(guest));
    let [first, end, _] = work.phases().ends;
    if end == u32::MAX {
        return Err(format!(
            "guest {name}: it has more memory than there can be: build the image again"
        ));
    }
    // The last chunk before the leaves is the list of local memory, if there is one.
    lists.push(first.saturating_sub(1).into()..first.into());
    let leaves = leaves.iter();
    let leaves = leaves.map(|it| it.start + u64::from(first)..it.end + u64::from(first));
    // Each is below `end`.
    let numbers = lists.iter().cloned().chain(leaves).flatten();
    for number in numbers.filter_map(|number| u32::try_from(number).ok()) {
        let Some(Chunk::Hash(subject)) = work.chunk(number) else {
            continue;
        };
        let mut hashing = Hashing::new(number, subject);
        let is_right = loop {
            if let Some(is_right) = hashing.step(&mut Bundle(bundle)) {
                break is_right;
            }
        };
        if let (false, Some(wrong)) = (is_right, work.wrong(number)) {
            let content = wrong.content.name();
            let what = match wrong.page {
                Some(page) => format!("the page at {page}"),
                None => "the list of hashes".into(),
            };
            return Err(format!(
                "guest {name}: {content}: {what} differs from its hash: copy or build the image again"
            ));
        }
    }
    Ok(())
}

/// Hashes a bundle; nothing is copied. What is beyond its end reads as zeros.
struct Bundle<'a>(&'a [u8]);

impl Engine for Bundle<'_> {
    fn has_instructions(&self) -> bool {
        true
    }

    fn copy_and_hash(&mut self, state: &mut State, from: u64, to: Option<PhysAddr>, blocks: u64) {
        for number in 0..blocks {
            let mut block = [0; BLOCK];
            let offset = number * BLOCK as u64;
            self.fetch(&mut block, from + offset, to, BLOCK as u64);
            sha256::compress(state, &[block]);
        }
    }

    fn hash(&mut self, state: &mut State, block: &[u8; BLOCK]) {
        sha256::compress(state, &[*block]);
    }

    fn fetch(&mut self, block: &mut [u8; BLOCK], from: u64, _: Option<PhysAddr>, bytes: u64) {
        if let Some(source) = range(self.0, from, bytes) {
            block[..source.len()].copy_from_slice(source);
        }
    }

    fn hash_at(&self, offset: u64) -> Hash {
        let bytes = range(self.0, offset, Hash::SIZE as u64);
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        Hash(bytes.unwrap_or_default())
    }
}
