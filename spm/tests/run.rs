// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `spm run` lets a description do, and how it ends a machine (a script stands in for QEMU).

// Tests may unwrap.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use support::{RUN, SYSTEM, qemu, spm, stderr, stdout};

/// The part behind the comma would be an option of QEMU: a file outside the folder.
#[test]
fn the_name_of_a_folder_adds_no_option() {
    let folder = support::folder();
    qemu(folder.path(), "10.0.2", "echo \"$@\"");
    let own = folder.path().join("c,file=victim");
    fs::create_dir(&own).unwrap();
    for file in ["rt.elf", "Image", "initrd.cpio"] {
        fs::copy(folder.path().join(file), own.join(file)).unwrap();
    }
    fs::write(own.join("d.img"), "inside").unwrap();
    let run = "[run]\nqemu-args = [\"-drive\", \"format=raw,file={dir}/d.img\"]\n";
    fs::write(own.join("system.toml"), format!("{SYSTEM}\n{run}")).unwrap();
    let mut arguments = RUN.to_vec();
    arguments[1] = "c,file=victim/system.toml";
    let output = spm(folder.path(), &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let said = stdout(&output);
    let drive = "-drive format=raw,file=c,,file=victim/d.img\n";
    assert!(said.ends_with(drive), "{said}");
}

#[test]
fn a_name_without_a_hyphen_is_no_option() {
    let folder = support::folder();
    qemu(folder.path(), "10.0.2", "echo \"$@\"");
    let run = "[run]\nqemu-args = [\"device\", \"virtio-x\"]\n";
    fs::write(
        folder.path().join("system.toml"),
        format!("{SYSTEM}\n{run}"),
    )
    .unwrap();
    let output = spm(folder.path(), RUN);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("`device` has no hyphen"), "{said}");
}

/// No clock has that time.
#[test]
fn a_timeout_is_at_most_a_number_of_32_bits() {
    let folder = support::folder();
    fs::write(folder.path().join("system.toml"), SYSTEM).unwrap();
    let mark = folder.path().join("started");
    qemu(folder.path(), "10.0.2", "touch started");
    let output = spm(
        folder.path(),
        &[RUN, &["--timeout", "18446744073709551615"]].concat(),
    );
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(!mark.exists());
    let longest = u32::MAX.to_string();
    let output = spm(folder.path(), &[RUN, &["--timeout", &longest]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[test]
fn a_log_is_written_over_nothing_that_is_used() {
    let folder = support::folder();
    let folder = folder.path();
    fs::write(folder.join("system.toml"), SYSTEM).unwrap();
    qemu(folder, "10.0.2", "exit 0");
    assert!(spm(folder, &["key", "new", "a"]).status.success());
    let image = "build/systems/system.img";
    let run = [RUN, &["--sign", "a.key", "--log"]].concat();
    let refused = |log: &str, why: &str| {
        let before = fs::read(folder.join(log)).ok();
        let output = spm(folder, &[&run, &[log][..]].concat());
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(3), "{log}: {said}");
        assert!(said.contains(why), "{said}");
        assert!(said.contains("name another file after --log"), "{said}");
        assert!(before == fs::read(folder.join(log)).ok(), "{log}");
    };
    for log in ["system.toml", "rt.elf", "Image", "spumone", "a.key"] {
        refused(log, "is read to make the image");
    }
    refused("a.pub", "is the public key of the signature");
    refused("qemu", "is the QEMU that is started");
    // Not there yet, and there.
    fs::create_dir_all(folder.join("build/systems")).unwrap();
    refused(image, "is the image that is started");
    assert!(!folder.join(image).exists());
    let output = spm(folder, &[&run, &["run.log"][..]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    refused(image, "is the image that is started");
}

#[test]
fn nothing_is_written_for_a_run_that_is_refused() {
    let folder = support::folder();
    qemu(folder.path(), "10.0.2", "exit 0");
    let run = "\n[run]\nqemu-args = [\"-plugin\", \"evil.so\"]\n";
    fs::write(folder.path().join("system.toml"), SYSTEM.to_owned() + run).unwrap();
    let output = spm(folder.path(), RUN);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(!folder.path().join("build").exists());
}

/// What QEMU writes while nobody reads may not fill the memory, nor outrun the end.
#[test]
fn a_machine_that_writes_without_end_is_ended() {
    let folder = support::folder();
    fs::write(folder.path().join("system.toml"), SYSTEM).unwrap();
    qemu(folder.path(), "10.0.2", "exec yes");
    let run = format!(
        "ulimit -v 1500000; exec \"$0\" {} --timeout 1",
        RUN.join(" ")
    );
    let status = Command::new("bash")
        .args(["-c", &run, env!("CARGO_BIN_EXE_spm")])
        .current_dir(folder.path())
        .stdout(Stdio::null())
        .status();
    assert_eq!(status.unwrap().code(), Some(124));
}

#[test]
fn a_stream_without_end_is_explained_in_little_memory() {
    let folder = support::folder();
    for input in ["yes", "cat /dev/zero", "yes x | tr -d '\\n'"] {
        let explain = format!(
            "{input} | (ulimit -v 400000; exec \"$0\" explain) | head -c 3000000 >/dev/null; \
             exit ${{PIPESTATUS[1]}}"
        );
        let explain = match input.contains("zero") {
            // Nothing of it is shown, so nothing ends it.
            true => explain.replace("exec", "exec timeout 1"),
            false => explain,
        };
        let mut bash = Command::new("bash");
        bash.args(["-c", &explain, env!("CARGO_BIN_EXE_spm")]);
        let status = bash
            .current_dir(folder.path())
            .stderr(Stdio::null())
            .status();
        // Not by a lack of memory, which aborts.
        let code = status.unwrap().code().unwrap();
        assert_ne!(code, 128 + 6, "{input}");
    }
}

/// Starts a run whose output nobody reads, with a QEMU that fills the pipe; once QEMU has written all of it that is taken, does
/// `then` with the process. Returns how `spm` ends. QEMU must not live on.
fn unread(arguments: &[&str], then: impl FnOnce(u32)) -> ExitStatus {
    let folder = support::folder();
    let folder = folder.path();
    fs::write(folder.join("system.toml"), SYSTEM).unwrap();
    let script = "echo $$ > pid\nseq 1000000 2000000 & \nexec sleep 1000";
    qemu(folder, "10.0.2", script);
    let (reader, writer) = std::io::pipe().unwrap();
    let mut spm = Command::new(env!("CARGO_BIN_EXE_spm"))
        .args(RUN)
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(writer.try_clone().unwrap())
        .stderr(writer)
        .spawn()
        .unwrap();
    let pid = wait_for(|| {
        let text = fs::read_to_string(folder.join("pid")).ok()?;
        text.ends_with('\n').then(|| text.trim().to_owned())
    });
    then(spm.id());
    let status = wait_for(|| spm.try_wait().unwrap());
    assert!(!is_running(&pid), "QEMU lives on");
    drop(reader);
    status
}

/// What this gives first; it has minutes for it.
fn wait_for<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(120);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "it does not come");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether a process is there, and is not only waited for.
fn is_running(pid: &str) -> bool {
    let status = fs::read_to_string(Path::new("/proc").join(pid).join("stat"));
    status.is_ok_and(|it| !it.rsplit(')').next().unwrap().starts_with(" Z"))
}

#[test]
fn a_timeout_waits_for_no_reader() {
    let status = unread(&["--timeout", "1"], |_| ());
    assert_eq!(status.code(), Some(124));
}

#[test]
fn a_signal_waits_for_no_reader() {
    let status = unread(&[], |spm| {
        std::thread::sleep(Duration::from_millis(500));
        let spm = spm.to_string();
        let kill = Command::new("kill").args(["-TERM", &spm]).status();
        assert!(kill.unwrap().success());
    });
    assert_eq!(status.code(), Some(128 + 15));
}

/// No end of the output is no end of the machine, and the other way round.
#[test]
fn a_machine_that_says_nothing_more_is_ended() {
    let folder = support::folder();
    fs::write(folder.path().join("system.toml"), SYSTEM).unwrap();
    let run = [RUN, &["--timeout", "1"]].concat();
    qemu(
        folder.path(),
        "10.0.2",
        "echo first; exec >&-; exec sleep 1000",
    );
    let output = spm(folder.path(), &run);
    assert_eq!(output.status.code(), Some(124), "{}", stderr(&output));
    assert_eq!(stdout(&output), "first\n");
    // A process that it has started holds the pipe. The prompt is shown at the end.
    qemu(
        folder.path(),
        "10.0.2",
        "sleep 1000 2>&1 & echo $! > held; printf 'login: '",
    );
    let output = spm(folder.path(), &run);
    assert_eq!(output.status.code(), Some(124), "{}", stderr(&output));
    assert_eq!(stdout(&output), "login: \n");
    let held = fs::read_to_string(folder.path().join("held")).unwrap();
    Command::new("kill").arg(held.trim()).status().unwrap();
}

/// All that QEMU has written is shown to a reader that is slow.
#[test]
fn a_slow_reader_gets_all() {
    let folder = support::folder();
    fs::write(folder.path().join("system.toml"), SYSTEM).unwrap();
    qemu(folder.path(), "10.0.2", "seq 1000000 1100000; exit 7");
    let mut spm = Command::new(env!("CARGO_BIN_EXE_spm"))
        .args(RUN)
        .current_dir(folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_secs(1));
    let mut text = String::new();
    spm.stdout
        .take()
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    assert_eq!(spm.wait().unwrap().code(), Some(7));
    let lines: Vec<_> = (1_000_000..=1_100_000)
        .map(|it| format!("{it}\n"))
        .collect();
    assert!(text == lines.concat());
}
