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

/// An argument with the folder of the description written out, as QEMU gets it. In the value of a key a comma in the folder's name
/// is doubled: QEMU takes a single one for the end of the value.
pub fn written_out(argument: &str, folder: &Path) -> String {
    let folder = folder.to_string_lossy();
    let mut parts = argument.split(FOLDER);
    let mut before = parts.next().unwrap_or_default().to_owned();
    let mut written = before.clone();
    for part in parts {
        let pair = before.replace(",,", "");
        let is_value = pair.rsplit(',').next().is_some_and(|it| it.contains('='));
        match is_value {
            true => written += &folder.replace(',', ",,"),
            false => written += &folder,
        }
        written += part;
        before += part;
    }
    written
}

/// What needs the user's permission in the arguments of a description in this folder: the first such argument. They are judged as
/// QEMU gets them, so that no name of a folder can add to them.
pub fn needed(arguments: &[Spanned<String>], folder: &Path) -> Option<Problem> {
    for option in arguments.chunks(2) {
        let (name, value) = (&option[0], option.get(1).unwrap_or(&option[0]));
        let given = written_out(&value.value, folder);
        // QEMU takes options with one hyphen and with two. It takes what has none for the name of a disk.
        let plain = written_out(&name.value, folder);
        let plain = plain.strip_prefix("--").or(plain.strip_prefix('-'));
        let refused = match plain {
            Some("device") => device(&given),
            Some("netdev") => network(&given),
            Some("drive") => drive(&given, folder),
            Some("serial") if given == "null" => Ok(()),
            Some(_) => Err("may run a program, or read and write any file".to_owned()),
            None => Err("has no hyphen, so QEMU opens a file of that name as a disk".to_owned()),
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
type Pair<'a> = (&'a str, String);

/// The pairs of `name,key=value,…`, as QEMU reads them.
fn pairs(text: &str) -> Result<(&str, Vec<Pair<'_>>), String> {
    let (name, mut rest) = text.split_once(',').unwrap_or((text, ""));
    let mut pairs = Vec::new();
    while !rest.is_empty() {
        let end = rest.find([',', '=']).unwrap_or(rest.len());
        let (key, after) = rest.split_at(end);
        let Some(after) = after.strip_prefix('=') else {
            return Err("has a value that is not of the form `key=value`".into());
        };
        let (value, after) = unescaped(after);
        pairs.push((key, value));
        rest = after;
    }
    Ok((name, pairs))
}

/// A value, and what follows the comma behind it. Two commas stand for one within the value.
fn unescaped(text: &str) -> (String, &str) {
    let (mut value, mut rest) = (String::new(), text);
    loop {
        let (part, after) = rest.split_once(',').unwrap_or((rest, ""));
        value += part;
        match after.strip_prefix(',') {
            Some(after) => {
                value.push(',');
                rest = after;
            }
            None => return (value, after),
        }
    }
}

/// A virtio device. Its values name no file.
fn device(text: &str) -> Result<(), String> {
    let (model, pairs) = pairs(text)?;
    let is_word = |value: &str| {
        value
            .bytes()
            .all(|it| it.is_ascii_alphanumeric() || b".:_-".contains(&it))
    };
    let is_virtio = model.starts_with("virtio-") && is_word(model);
    if !is_virtio {
        return Err(format!(
            "has the device `{model}`, which may reach files or devices of this machine"
        ));
    }
    // QEMU also finds a file without a folder in its name.
    let names_file = |(key, value): &Pair| *key == "romfile" || !is_word(value);
    match pairs.into_iter().find(names_file) {
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
            .map(|(_, value)| value.as_str())
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
    let path = value("file").unwrap_or("");
    if path.contains(':') {
        return Err(
            "has a disk whose file name contains a colon, so it may be the address of a server"
                .into(),
        );
    }
    let is_kept = ["snapshot", "readonly"]
        .into_iter()
        .any(|key| value(key) == Some("on"));
    let real = Path::new(path).canonicalize();
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
            (
                &["-device", "virtio-net-pci,romfile=a.rom"],
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
            (&["-drive", "format=raw,,x=y"], "not `format=raw`"),
            (&["-drive", "format=raw,snapshot,file=x"], "`key=value`"),
            (&["device", "virtio-net-device"], "has no hyphen"),
            (&["---device", "virtio-net-device"], "may run a program"),
            (&["{dir}", "virtio-net-device"], "has no hyphen"),
        ];
        for (arguments, expected) in cases {
            let said = refused(arguments).unwrap_or_default();
            assert!(said.contains(expected), "{arguments:?}: {said}");
            let after = [&["-serial", "null"], *arguments].concat();
            assert!(refused(&after).is_some(), "{after:?}");
        }
    }

    /// What a name of a folder could add to an argument, and what it may have by itself.
    #[test]
    fn a_comma_in_the_name_of_the_folder_ends_no_value() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("c,file=victim");
        fs::create_dir_all(own.join("sub")).unwrap();
        fs::write(own.join("disk.img"), "inside").unwrap();
        let written = |argument: &str| written_out(argument, Path::new("a,b"));
        assert_eq!(
            written("if=none,file={dir}/x,,y{dir},id={dir}"),
            "if=none,file=a,,b/x,,ya,,b,id=a,,b"
        );
        assert_eq!(written("file:{dir}/log"), "file:a,b/log");
        let needed = |name: &str, value: &str| {
            let spanned = |text: &str| Spanned::new(text.to_owned(), Span::default());
            needed(&[spanned(name), spanned(value)], &own).map(|problem| problem.message)
        };
        assert_eq!(
            needed("-drive", "format=raw,file={dir}/disk.img,id=d"),
            None
        );
        for (name, value) in [
            ("-drive", "format=raw,{dir}=d"),
            ("-drive", "{dir}"),
            ("-device", "virtio-{dir}"),
            ("-device", "virtio-blk-device,drive={dir}"),
            ("-device", "virtio-blk-device,{dir}=d"),
            ("-netdev", "{dir}"),
        ] {
            assert!(needed(name, value).is_some(), "{name} {value}");
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
