// SPDX-License-Identifier: MIT OR Apache-2.0
//! `spm key`: the keys that sign images.
//!
//! A key pair is two files of one line each: a word that says what it is, and 32 bytes in hexadecimal. The secret key is the seed of
//! Ed25519 (RFC 8032, 5.1.5).

use crate::command::{Command, help};
use crate::failure::Failure;
use crate::input;
use crate::outfile;
use crate::output::say;
use clap::{Args, Subcommand};
use ed25519_compact::{KeyPair, Seed};
use spumone_config::packed::{Seal, Trust};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tempfile::NamedTempFile;

/// Shown below the help.
const EXAMPLES: &str = "\
Examples:
  spm key new product          writes product.key, readable for its owner only, and product.pub
  spm build systems/demo.toml --sign product.key
  spm key show product.key     prints the public key, as in product.pub";

/// The first words of the two files.
pub(crate) const SECRET: &str = "spumone-secret-key";
const PUBLIC: &str = "spumone-public-key";
/// Longer than any such file.
const MAX_FILE: u64 = 1024;

/// Make keys that sign images.
#[derive(Args)]
#[command(after_help = help(EXAMPLES))]
pub struct KeyArgs {
    #[command(subcommand)]
    action: Action,
}

/// What is done with keys.
#[derive(Subcommand)]
enum Action {
    /// Make a new pair of keys: NAME.key, which signs and is to be kept secret, and NAME.pub.
    #[command(after_help = help(EXAMPLES))]
    New {
        /// The name of both files, which must not be there yet.
        name: PathBuf,
    },
    /// Print the public key in a file NAME.pub, or that of a secret key.
    #[command(after_help = help(EXAMPLES))]
    Show {
        /// NAME.pub or NAME.key.
        file: PathBuf,
    },
}

impl Command for KeyArgs {
    fn run(&self) -> Result<ExitCode, Failure> {
        match &self.action {
            Action::New { name } => new(name),
            Action::Show { file } => show(file),
        }
    }
}

/// Prints a public key.
fn show(file: &Path) -> Result<ExitCode, Failure> {
    let public = match public(file)? {
        Some(public) => public,
        None => SecretKey::read(file)?.public(),
    };
    say!("{PUBLIC} {}", hex(&public));
    Ok(ExitCode::SUCCESS)
}

/// The key in a file, if it is a public one.
///
/// # Errors
///
/// The file cannot be read.
pub fn public(file: &Path) -> Result<Option<[u8; Trust::KEY]>, Failure> {
    let bytes = input::read(file, MAX_FILE)
        .map_err(|error| Failure::io("read the key", file, &error).help(HELP))?;
    let text = std::str::from_utf8(&bytes).ok();
    Ok(text.and_then(|text| key_of(text, PUBLIC)))
}

/// Makes a new pair.
fn new(name: &Path) -> Result<ExitCode, Failure> {
    let ending = name.extension().and_then(OsStr::to_str);
    // A folder is no name either: `kd/` would become `kd/.key`.
    let bytes = |name: &OsStr| name.as_bytes().to_owned();
    let is_name = name
        .file_name()
        .is_some_and(|last| bytes(name.as_os_str()).ends_with(&bytes(last)));
    if !is_name || matches!(ending, Some("key" | "pub")) {
        let message = format!("{} is no name of a key", name.display());
        return Err(Failure::environment(message).help(
            "leave the ending out: `spm key new product` writes product.key and product.pub",
        ));
    }
    let (secret, public) = (with_ending(name, ".key"), with_ending(name, ".pub"));
    for taken in [&secret, &public] {
        // A symbolic link to a file that does not exist takes the name as well, so the link itself is looked at.
        if fs::symlink_metadata(taken).is_ok() {
            let error = io::Error::from(io::ErrorKind::AlreadyExists);
            return Err(not_written(taken, &error));
        }
    }
    let key =
        SecretKey::random().map_err(|error| Failure::io("read", Path::new(RANDOM), &error))?;
    // Neither file is left alone: both are written before one of them gets its name.
    let secret_file = pending(&secret, 0o600, SECRET, &key.seed())?;
    let public_file = pending(&public, 0o644, PUBLIC, &key.public())?;
    give_name(secret_file, &secret)?;
    if let Err(failure) = give_name(public_file, &public) {
        // An error here matters less than that one.
        let _ = fs::remove_file(&secret);
        return Err(failure);
    }
    say!("{} and {}", secret.display(), public.display());
    Ok(ExitCode::SUCCESS)
}

const HELP: &str = "name a file NAME.key that `spm key new NAME` has written";

/// Where random bytes come from.
const RANDOM: &str = "/dev/urandom";

/// A key that signs.
pub struct SecretKey(KeyPair);

impl SecretKey {
    fn random() -> io::Result<Self> {
        let mut seed = [0; Seed::BYTES];
        File::open(RANDOM)?.read_exact(&mut seed)?;
        Ok(Self::from_seed(seed))
    }

    /// The key of this seed.
    pub fn from_seed(seed: [u8; Seed::BYTES]) -> Self {
        Self(KeyPair::from_seed(Seed::new(seed)))
    }

    /// Reads a file that `spm key new` has written.
    ///
    /// # Errors
    ///
    /// It cannot be read, or is none; or others than its owner can read it.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        /// The bits of group and others.
        const OTHERS: u32 = 0o077;
        let bytes = input::read(path, MAX_FILE)
            .map_err(|error| Failure::io("read the key", path, &error).help(HELP))?;
        let seed = std::str::from_utf8(&bytes)
            .ok()
            .and_then(|text| key_of(text, SECRET));
        let mode = fs::metadata(path).map_or(0, |it| it.permissions().mode());
        if seed.is_some() && mode & OTHERS != 0 {
            let path = path.display();
            let message =
                format!("{path} is a secret key that others than its owner can read or change");
            return Err(Failure::environment(message).help(format!(
                "chmod 600 {path}; if somebody may have read it, make a new key"
            )));
        }
        seed.map(Self::from_seed).ok_or_else(|| {
            let message = format!("{} is no secret key", path.display());
            Failure::environment(message).help(HELP)
        })
    }

    fn seed(&self) -> [u8; Seed::BYTES] {
        *self.0.sk.seed()
    }

    /// The public key.
    pub fn public(&self) -> [u8; Trust::KEY] {
        *self.0.pk
    }

    /// The public key in hexadecimal, as in NAME.pub.
    pub fn public_hex(&self) -> String {
        hex(&self.public())
    }

    /// The signature of a message. The same message has the same signature.
    pub fn sign(&self, message: &[u8]) -> [u8; Seal::SIGNATURE] {
        *self.0.sk.sign(message, None)
    }
}

/// The 32 bytes in the text of a file that begins with this word.
pub(crate) fn key_of(text: &str, kind: &str) -> Option<[u8; Seed::BYTES]> {
    let (word, digits) = text.trim_end().split_once(' ')?;
    let mut seed = [0; Seed::BYTES];
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    if word != kind || pairs.len() != seed.len() || !rest.is_empty() {
        return None;
    }
    for (byte, [high, low]) in seed.iter_mut().zip(pairs) {
        let digit = |digit: u8| char::from(digit).to_digit(16);
        *byte = (digit(*high)? << 4 | digit(*low)?) as u8;
    }
    // Ed25519 has no key for it.
    (seed != [0; Seed::BYTES]).then_some(seed)
}

fn with_ending(name: &Path, ending: &str) -> PathBuf {
    let mut name = name.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes one of the files, which has no name yet.
fn pending(
    path: &Path,
    mode: u32,
    word: &str,
    bytes: &[u8],
) -> Result<NamedTempFile<File>, Failure> {
    let line = format!("{word} {}\n", hex(bytes));
    outfile::pending(path, mode, line.as_bytes())
        .and_then(|file| file.as_file().sync_all().map(|()| file))
        .map_err(|error| not_written(path, &error))
}

/// Gives one of the files its name, which must not be there yet.
fn give_name(file: NamedTempFile<File>, path: &Path) -> Result<(), Failure> {
    file.persist_noclobber(path)
        .map(drop)
        .map_err(|error| not_written(path, &error.error))
}

fn not_written(path: &Path, error: &io::Error) -> Failure {
    let failure = Failure::io("write", path, error);
    match error.kind() {
        io::ErrorKind::AlreadyExists => {
            failure.help("name another one: a key that is overwritten is lost")
        }
        _ => failure,
    }
}

#[cfg(test)]
// Tests may unwrap.
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_written_as_a_secret_key_is_one() {
        let digits = "01".repeat(32);
        assert_eq!(
            key_of(&format!("{SECRET} {digits}\n"), SECRET),
            Some([1; 32])
        );
        for text in [
            format!("{PUBLIC} {digits}"),
            format!("{SECRET} {digits}0"),
            format!("{SECRET} {digits}00"),
            format!("{SECRET} {}", &digits[2..]),
            format!("{SECRET} g{}", &digits[1..]),
            String::new(),
        ] {
            assert_eq!(key_of(&text, SECRET), None, "{text}");
        }
    }
}
