// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a description may have QEMU do on the user's machine without asking. QEMU's options can run programs and write any file, and
//! a description may come from another person, so only those pass that do neither.

use spumone_config::board::Qemu;
use spumone_config::problem::{Problem, Spanned};
use std::path::Path;

/// The folder of the description in an argument.
const FOLDER: &str = "{dir}";
/// Keys of `-netdev` that concern only the network between QEMU and the guest.
const NETWORK_KEYS: &[&str] = &[
    "id",
    "net",
    "host",
    "ipv4",
    "ipv6",
    "dhcpstart",
    "dns",
    "hostname",
    "domainname",
    "restrict",
    "hubid",
    "netdev",
];
/// Keys of `-drive` that concern only what the guest sees, beside `file`.
const DRIVE_KEYS: &[&str] = &[
    "if", "id", "index", "format", "snapshot", "readonly", "cache", "serial",
];
const HELP: &str = "if you trust this description, start it with --allow-qemu-args";

/// An argument with the folder of the description written out.
pub fn written_out(argument: &str, folder: &Path) -> String {
    argument.replace(FOLDER, &folder.to_string_lossy())
}

/// What needs the user's permission in the arguments of a description in this folder: the first such argument.
pub fn needed(arguments: &[Spanned<String>], folder: &Path) -> Option<Problem> {
    for option in arguments.chunks(2) {
        let (name, value) = (&option[0], option.get(1).unwrap_or(&option[0]));
        // QEMU takes options with one hyphen and with two.
        let refused = match name.value.trim_start_matches('-') {
            "device" => device(&value.value),
            "netdev" => network(&value.value),
            "drive" => drive(&value.value, folder),
            "serial" if value.value == "null" => Ok(()),
            _ => Err("may run a program, or read and write any file".to_owned()),
        };
        if let Err(reason) = refused {
            let message = format!("QEMU's option `{}` {reason}", name.value);
            return Some(
                Problem::new("qemu-args", message)
                    .at(value.span, "needs your permission")
                    .help(HELP),
            );
        }
    }
    None
}

/// What needs the user's permission in the machine of a board file.
pub fn needed_by_board(qemu: &Qemu) -> Option<Problem> {
    let is_plain = |value: &str| {
        matches!(value, "on" | "off" | "max" | "host")
            || value.bytes().all(|byte| byte.is_ascii_digit())
    };
    let texts = [&qemu.machine, &qemu.cpu];
    let mut keys = texts.into_iter().flat_map(|text| text.split(',').skip(1));
    let refused = keys.find(|pair| !pair.split_once('=').is_some_and(|(_, it)| is_plain(it)))?;
    let message =
        format!("`{refused}` in [qemu] of the board file may write a file or run a program");
    Some(Problem::new("qemu-args", message).help(HELP))
}

/// A key and its value.
type Pair<'a> = (&'a str, &'a str);

/// The pairs of `name,key=value,…`. What QEMU reads otherwise is refused: two commas, which stand for one within a value.
fn pairs(text: &str) -> Result<(&str, Vec<Pair<'_>>), String> {
    let (name, rest) = text.split_once(',').unwrap_or((text, ""));
    let parts = rest.split(',').filter(|_| !rest.is_empty());
    let pairs: Option<Vec<_>> = parts.map(|part| part.split_once('=')).collect();
    match pairs {
        Some(pairs) => Ok((name, pairs)),
        None => Err("has a value that is not of the form `key=value`".into()),
    }
}

/// A virtio device. Its values name no file.
fn device(text: &str) -> Result<(), String> {
    let (model, pairs) = pairs(text)?;
    let is_virtio = model.starts_with("virtio-");
    if !is_virtio {
        return Err(format!(
            "has the device `{model}`, which may reach files or devices of this machine"
        ));
    }
    let is_word = |value: &str| {
        value
            .bytes()
            .all(|it| it.is_ascii_alphanumeric() || b".:_-".contains(&it))
    };
    match pairs.into_iter().find(|(_, value)| !is_word(value)) {
        Some((key, _)) => Err(format!("sets `{key}` of a device, which may name a file")),
        None => Ok(()),
    }
}

/// A network inside QEMU: without a port of this machine, a file server or a program.
fn network(text: &str) -> Result<(), String> {
    let (kind, pairs) = pairs(text)?;
    if !matches!(kind, "user" | "hubport") {
        return Err(format!(
            "has a network of kind `{kind}`, which reaches this machine"
        ));
    }
    match pairs
        .into_iter()
        .find(|(key, _)| !NETWORK_KEYS.contains(key))
    {
        Some((key, _)) => Err(format!(
            "sets `{key}`, which may open a port, a file or a program of this machine"
        )),
        None => Ok(()),
    }
}

/// A raw disk in a regular file. One that is written to lies in the folder of the description.
fn drive(text: &str, folder: &Path) -> Result<(), String> {
    // The first part is a pair, too.
    let text = format!(",{text}");
    let (_, pairs) = pairs(&text)?;
    let value = |wanted: &str| {
        pairs
            .iter()
            .rev()
            .find(|(key, _)| *key == wanted)
            .map(|(_, value)| *value)
    };
    let is_known = |key: &str| key == "file" || DRIVE_KEYS.contains(&key);
    if let Some((key, _)) = pairs.iter().find(|(key, _)| !is_known(key)) {
        return Err(format!(
            "sets `{key}`, which may open a file or run a program"
        ));
    }
    if value("format") != Some("raw") {
        return Err(
            "has a disk that is not `format=raw`: other formats can name further files".into(),
        );
    }
    let path = written_out(value("file").unwrap_or(""), folder);
    if path.contains(':') {
        return Err(
            "has a disk whose file name contains a colon, so it may be the address of a server"
                .into(),
        );
    }
    let is_kept = ["snapshot", "readonly"]
        .into_iter()
        .any(|key| value(key) == Some("on"));
    let real = Path::new(&path).canonicalize();
    let is_inside = || Some(real.as_ref().ok()?.starts_with(folder.canonicalize().ok()?));
    if real.as_ref().is_ok_and(|real| !real.is_file()) {
        return Err(format!("has a disk that is not a file: {path}"));
    }
    // A file that is missing is QEMU's to report.
    match is_kept || real.is_err() || is_inside() == Some(true) {
        true => Ok(()),
        false => Err(format!(
            "may write to {path}, outside the folder of the description"
        )),
    }
}

#[cfg(test)]
// Tests may unwrap.
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use spumone_config::problem::Span;
    use std::fs;

    fn refused(arguments: &[&str]) -> Option<String> {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("own");
        fs::create_dir(&own).unwrap();
        fs::write(own.join("disk.img"), "inside").unwrap();
        fs::write(folder.path().join("other.img"), "outside").unwrap();
        std::os::unix::fs::symlink("../other.img", own.join("link.img")).unwrap();
        std::os::unix::fs::symlink("/dev/null", own.join("device.img")).unwrap();
        let spanned = |text: &&str| Spanned::new((*text).to_owned(), Span::default());
        let arguments: Vec<_> = arguments.iter().map(spanned).collect();
        needed(&arguments, &own).map(|problem| problem.message)
    }

    #[test]
    fn what_stays_inside_qemu_needs_no_permission() {
        let arguments = [
            "-drive",
            "if=none,id=d,format=raw,file={dir}/disk.img",
            "--device",
            "virtio-blk-device,drive=d,bus=virtio-mmio-bus.23",
            "-netdev",
            "user,id=net,restrict=on",
            "-device",
            "virtio-net-device,netdev=net,mac=52:54:00:12:34:56",
            "-drive",
            "snapshot=on,format=raw,file={dir}/../other.img,if=none",
            "-drive",
            "format=raw,file={dir}/not-there.img",
            "-serial",
            "null",
        ];
        assert_eq!(refused(&arguments), None);
        assert_eq!(refused(&[]), None);
    }

    #[test]
    fn what_may_reach_the_users_machine_needs_permission() {
        let cases: &[(&[&str], &str)] = &[
            (&["-plugin", "/tmp/x.so"], "may run a program"),
            (&["-nodefaults"], "may run a program"),
            (&["-serial", "file:/etc/motd"], "may run a program"),
            (
                &["-netdev", "user,id=n,guestfwd=tcp:1.2.3.4:1-cmd:sh"],
                "sets `guestfwd`",
            ),
            (
                &["-netdev", "user,id=n,hostfwd=tcp::22-:22"],
                "sets `hostfwd`",
            ),
            (&["-netdev", "tap,id=n,script=/tmp/x"], "kind `tap`"),
            (&["-device", "loader,file=/etc/shadow"], "device `loader`"),
            (
                &["-device", "virtio-net-pci,romfile=/etc/shadow"],
                "sets `romfile`",
            ),
            (&["-device", "virtio-net-pci,help"], "form `key=value`"),
            (
                &["-drive", "format=raw,file={dir}/../other.img"],
                "may write to",
            ),
            (
                &["-drive", "format=raw,file={dir}/link.img"],
                "may write to",
            ),
            (
                &["-drive", "format=raw,snapshot=on,file={dir}/device.img"],
                "not a file",
            ),
            (
                &[
                    "-drive",
                    "format=raw,snapshot=on,readonly=off,snapshot=off,file={dir}/link.img",
                ],
                "may write to",
            ),
            (
                &["-drive", "format=qcow2,file={dir}/disk.img"],
                "not `format=raw`",
            ),
            (&["-drive", "file={dir}/disk.img"], "not `format=raw`"),
            (
                &["-drive", "format=raw,snapshot=on,file=nbd:host"],
                "a colon",
            ),
            (
                &["-drive", "format=raw,file.driver=nbd"],
                "sets `file.driver`",
            ),
            (
                &["-drive", "format=raw,file={dir}/a,,b"],
                "form `key=value`",
            ),
        ];
        for (arguments, expected) in cases {
            let said = refused(arguments).unwrap_or_default();
            assert!(said.contains(expected), "{arguments:?}: {said}");
            let after = [&["-serial", "null"], *arguments].concat();
            assert!(refused(&after).is_some(), "{after:?}");
        }
    }

    #[test]
    fn a_machine_only_has_switches_and_numbers() {
        let qemu = |machine: &str, cpu: &str| Qemu {
            machine: machine.into(),
            cpu: cpu.into(),
        };
        let good = qemu("virt,virtualization=on,gic-version=3", "cortex-a76,pmu=off");
        assert_eq!(needed_by_board(&good), None);
        for bad in [
            qemu("virt,dumpdtb=/etc/passwd", "max"),
            qemu("virt", "max,x=/a"),
            qemu("virt,,x", "max"),
        ] {
            assert!(needed_by_board(&bad).is_some(), "{bad:?}");
        }
    }
}
