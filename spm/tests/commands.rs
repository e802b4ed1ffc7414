// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exit codes, output as text and as JSON, and how QEMU is started (a script stands in for QEMU).

// Tests may unwrap.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;
use support::{RUN, SYSTEM, qemu, spm, stderr, stdout};
use tempfile::TempDir;

fn folder() -> TempDir {
    let folder = support::folder();
    fs::write(folder.path().join("system.toml"), SYSTEM).unwrap();
    folder
}

const CHECK: &[&str] = &["check", "system.toml", "--hypervisor", "spumone"];

#[test]
fn a_valid_system_is_shown_as_tables() {
    let folder = folder();
    let output = spm(folder.path(), CHECK);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let expected = "\
system.toml: valid. 2 guests, 3 vCPUs on 2 cores of qemu-virt

  core   rt                     linux
  0      vCPU 0, priority 200   vCPU 0, priority 100
  1      -                      vCPU 1, priority 100

  policy steal, the default where a guest has several vCPUs or cores: rt stays, linux moves among cores 0-1

  memory                  size      what
  0x40000000-0x403fffff   4 MiB     hypervisor and images
  0x40400000-0x413fffff   16 MiB    rt, seen at 0x40000000
  0x41400000-0x453fffff   64 MiB    linux, seen where it is
                          172 MiB   free

rt: starts at 0x40080000, image 4.0 KiB, device tree at 0x40000000 (1.5 KiB)

linux: starts at 0x41400000, image 64.0 KiB, ramdisk at 0x42c10000 (1.0 MiB), \
device tree at 0x42c00000 (2.0 KiB)
  device virtio0
  device virtio1
  trusted with all memory of the machine: its devices do DMA
";
    assert_eq!(stdout(&output), expected);
    assert_eq!(stderr(&output), "");
}

#[test]
fn what_goes_off_is_shown() {
    let folder = folder();
    let check = |tables: &str, arguments: &[&str]| {
        let text = format!("{SYSTEM}\n{tables}\n");
        fs::write(folder.path().join("system.toml"), text).unwrap();
        let output = spm(folder.path(), &[CHECK, arguments].concat());
        (stdout(&output), stderr(&output))
    };
    for mode in ["performance", "saving"] {
        let (said, errors) = check(&format!("[power]\nmode = \"{mode}\""), &[]);
        let shown = format!(
            "
  power {mode}, until another mode is chosen:
  - performance: no core goes off
  - balanced: 1 of 2 cores may be off, out of 1
  - saving: 1 of 2 cores may be off, out of 1
  - core 0 stays on: vCPUs of rt stay there; the console is served there
"
        );
        assert!(said.contains(&shown), "{said}{errors}");
    }
    let text = SYSTEM.replace("cores = 2", "cores = 3") + "\n[power]\nmode = \"balanced\"\n";
    fs::write(folder.path().join("system.toml"), text).unwrap();
    let said = stdout(&spm(folder.path(), CHECK));
    let shown = "
  - saving: 1 of 2 cores may be off, out of 1
  - off in every mode, as no guest uses them: 2
";
    assert!(said.contains(shown), "{said}");
    let (said, _) = check(
        "[power]\nmode = \"performance\"\ncores-on = \"1\"",
        &["--json"],
    );
    let json: Value = serde_json::from_str(&said).unwrap();
    let power = &json["system"]["power"];
    let off = serde_json::json!({ "performance": 1, "balanced": 1, "saving": 1 });
    assert_eq!(power["most_off"], off, "{said}");
    let because = ["vCPUs of rt stay there", "the console is served there"];
    let stays = serde_json::json!([{ "core": 0, "because": because }]);
    assert_eq!(power["stays_on"], stays);
    let (said, errors) = check(
        "[power]\nmode = \"performance\"\n[scheduler]\npolicy = \"none\"",
        &[],
    );
    let shown = "\n  power performance: all cores stay on, in every mode\n";
    assert!(said.contains(shown), "{said}{errors}");
}

#[test]
fn what_follows_the_end_of_a_watchdog_is_shown() {
    let folder = folder();
    for (on_stop, then) in [
        ("", "the guest stays stopped (`on-stop`)"),
        ("on-stop = \"restart\"", "the guest starts again"),
        ("on-stop = \"machine-off\"", "the machine goes off"),
    ] {
        let watched = format!("priority = 200\nwatchdog = \"10s\"\n{on_stop}");
        let system = SYSTEM.replace("priority = 200", &watched);
        fs::write(folder.path().join("system.toml"), system).unwrap();
        let output = spm(folder.path(), CHECK);
        let line = format!("  watchdog of at most 10 s: when it expires, {then}\n");
        assert!(stdout(&output).contains(&line), "{}", stdout(&output));
    }
}

#[test]
fn a_description_that_is_no_file_is_refused_at_once() {
    let folder = folder();
    let fifo = folder.path().join("fifo");
    assert!(Command::new("mkfifo").arg(fifo).status().unwrap().success());
    fs::write(folder.path().join("long.toml"), " ".repeat(70_000)).unwrap();
    let cases = [
        ("/dev/zero", "it is a device, not a file"),
        ("fifo", "it is a FIFO, not a file"),
        ("long.toml", "it has more than 64 KiB"),
    ];
    for (name, reason) in cases {
        let output = spm(folder.path(), &["check", name]);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(
            said.contains(&format!("cannot read {name}: {reason}")),
            "{said}"
        );
    }
}

/// To underline something behind 65,535 columns would panic.
#[test]
fn a_problem_in_a_very_long_line_is_named_by_its_place() {
    let folder = folder();
    let text = format!("{}key = 0\n{SYSTEM}", "\t".repeat(40_000));
    fs::write(folder.path().join("system.toml"), text).unwrap();
    let output = spm(folder.path(), CHECK);
    let said = stderr(&output).replace("\n  │", "");
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("(system.toml, line 1, column 40001)"),
        "{said}"
    );
}

#[test]
fn of_very_many_problems_the_first_are_shown() {
    let folder = folder();
    let keys: String = (0..2_000)
        .map(|number| format!("key{number} = 0\n"))
        .collect();
    let text = keys + SYSTEM;
    fs::write(folder.path().join("system.toml"), text).unwrap();
    let said = stderr(&spm(folder.path(), CHECK));
    assert_eq!(said.matches('×').count(), 25);
    let end = "system.toml: 2000 problems, of which the first 25 are shown\n";
    assert!(said.ends_with(end), "{said}");
    let output = spm(folder.path(), &[CHECK, &["--json"]].concat());
    let json: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(json["problem_count"], 2_000);
    let problems = json["problems"].as_array().unwrap();
    assert_eq!(problems.len(), 1_000);
    assert_eq!(problems[999]["labels"][0]["line"], 1_000);
}

#[test]
fn the_policy_is_shown_with_its_reason() {
    let folder = folder();
    let shown = |text: &str| {
        fs::write(folder.path().join("system.toml"), text).unwrap();
        stdout(&spm(folder.path(), CHECK))
    };
    let none = SYSTEM.replacen(
        "[[guest]]",
        "[scheduler]\npolicy = \"none\"\n\n[[guest]]",
        1,
    );
    let text = shown(&none);
    let expected = "policy none, as the description says: rt stays, linux stays";
    assert!(text.contains(expected), "{text}");
    let of_default = |why: &str, guests: &str| format!("policy {why}: rt stays, {guests}");
    for (vcpus, expected) in [
        (
            "vcpus = [1, 1]",
            of_default(
                "steal, the default where a guest has several vCPUs or cores",
                "the vCPUs of linux share core 1",
            ),
        ),
        (
            "vcpus = [1]",
            of_default(
                "none, the default where each guest has one vCPU on one core",
                "linux stays",
            ),
        ),
    ] {
        let text = shown(&SYSTEM.replace("vcpus = [0, 1]", vcpus));
        assert!(text.contains(&expected), "{text}");
    }
}

#[test]
fn a_system_can_be_checked_before_the_hypervisor_is_built() {
    let folder = folder();
    let output = support::spm_alone(folder.path(), &["check", "system.toml"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(stdout(&output).contains("not found: its size is assumed"));
}

#[test]
fn json_has_the_system() {
    let folder = folder();
    let output = spm(folder.path(), &[CHECK, &["--json"]].concat());
    let json: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(json["ok"], true);
    assert_eq!(json["trusted"], serde_json::json!(["linux"]));
    let linux = &json["system"]["guests"][1];
    assert_eq!(linux["name"], "linux");
    assert_eq!(linux["vcpus"][1]["home"], 1);
    assert_eq!(linux["memory"][0]["size"], 64 << 20);
}

#[test]
fn json_has_the_problems_with_their_places() {
    let folder = folder();
    let faulty = SYSTEM
        .replace("cores = 2", "cores = 1")
        .replace("policy", "polcy");
    fs::write(folder.path().join("system.toml"), faulty).unwrap();
    let output = spm(folder.path(), &[CHECK, &["--json"]].concat());
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(stderr(&output), "");
    let json: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(json["ok"], false);
    let [problem] = json["problems"].as_array().unwrap().as_slice() else {
        panic!("{json}")
    };
    assert_eq!(problem["code"], "no-such-core");
    let label = &problem["labels"][0];
    assert_eq!(label["file"], "system.toml");
    // `vcpus = [0, 1]`, and SYSTEM begins with an empty line.
    assert_eq!(
        (label["line"].as_u64(), label["column"].as_u64()),
        (Some(24), Some(13))
    );
}

#[test]
fn json_has_failures_of_the_environment_too() {
    let folder = folder();
    let output = support::spm_alone(folder.path(), &["build", "system.toml", "--json"]);
    assert_eq!(output.status.code(), Some(3));
    let json: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert!(json["error"]["help"].as_str().unwrap().contains("make"));
}

#[test]
fn a_faulty_description_is_reported_before_a_missing_hypervisor() {
    let folder = folder();
    let faulty = SYSTEM.replace("priority", "prioritie");
    fs::write(folder.path().join("system.toml"), faulty).unwrap();
    let output = support::spm_alone(folder.path(), &["build", "system.toml"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("prioritie"));
}

#[test]
fn a_build_names_its_file() {
    let folder = folder();
    let output = spm(
        folder.path(),
        &["build", "system.toml", "--hypervisor", "spumone", "--json"],
    );
    let json: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let written = folder.path().join(json["output"].as_str().unwrap());
    assert_eq!(written, folder.path().join("build/systems/system.img"));
    assert_eq!(
        json["size"].as_u64(),
        Some(fs::metadata(written).unwrap().len())
    );
}

#[test]
fn each_kind_of_failure_has_its_exit_code() {
    let folder = folder();
    let code = |args: &[&str]| spm(folder.path(), args).status.code();
    assert_eq!(code(&["check"]), Some(2));
    assert_eq!(code(&["frobnicate"]), Some(2));
    assert_eq!(code(&["run", "system.toml", "--timeout", "0"]), Some(2));
    assert_eq!(code(&["check", "absent.toml"]), Some(3));
    assert_eq!(
        code(&["check", "system.toml", "--hypervisor", "absent"]),
        Some(3)
    );
    assert_eq!(code(&["check", "--help"]), Some(0));
}

#[test]
fn without_a_name_the_figures_are_listed() {
    let folder = folder();
    let output = spm(folder.path(), &["bench"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(stdout(&output), "");
    let said = stderr(&output);
    let listed = stdout(&spm(folder.path(), &["bench", "--list"]));
    assert!(said.contains(&listed), "{said}");
    assert!(said.contains("`spm bench NAME --quick`"), "{said}");
    for experiment in spumone_bench::experiments::ALL {
        let of = |line: &&str| line.starts_with(experiment.about().name);
        assert_eq!(listed.lines().filter(of).count(), 1, "{listed}");
    }
}

#[test]
fn help_has_examples_and_exit_codes() {
    let folder = folder();
    for command in ["check", "build", "run", "bench"] {
        let help = stdout(&spm(folder.path(), &[command, "--help"]));
        assert!(
            help.contains("Examples:") && help.contains("Exit codes:"),
            "{help}"
        );
    }
}

#[test]
fn qemu_is_started_with_the_machine_of_the_description() {
    let folder = folder();
    qemu(folder.path(), "10.0.2", "echo \"$@\"");
    let with_run =
        format!("{SYSTEM}\n[run]\nqemu-args = [\"-drive\", \"format=raw,file={{dir}}/d.img\"]\n");
    fs::write(folder.path().join("system.toml"), with_run).unwrap();
    let output = spm(folder.path(), &[RUN, &["--", "-s", "-seed", "3"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(
        stdout(&output).trim(),
        "-M virt,virtualization=on,gic-version=3 -cpu cortex-a76 -smp 2 -m 256M -display none \
         -nodefaults -serial mon:stdio -kernel build/systems/system.img -drive format=raw,file=./d.img \
         -s -seed 3"
    );
}

/// QEMU ends well then, since the hypervisor turns the machine off.
#[test]
fn a_run_fails_if_the_hypervisor_refuses_the_image() {
    let folder = folder();
    let line = "spumone does not start: the description differs from its hash";
    qemu(folder.path(), "10.0.2", &format!("echo; echo '{line}'"));
    let output = spm(folder.path(), RUN);
    assert_eq!(output.status.code(), Some(3));
    assert!(stdout(&output).contains(line), "{}", stdout(&output));
    assert!(
        stderr(&output).contains("has refused the image"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn arguments_that_reach_this_machine_need_permission() {
    let folder = folder();
    qemu(folder.path(), "10.0.2", "echo \"$@\"");
    let run = "\n[run]\nqemu-args = [\"-serial\", \"null\", \"-plugin\", \"evil.so\"]\n";
    fs::write(folder.path().join("system.toml"), SYSTEM.to_owned() + run).unwrap();
    let output = spm(folder.path(), RUN);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(stdout(&output), "");
    for part in [
        "QEMU's option `-plugin` may run a program, or read and write any file",
        "qemu-args = [\"-serial\", \"null\", \"-plugin\", \"evil.so\"]",
        "--allow-qemu-args",
    ] {
        assert!(said.contains(part), "{said}");
    }
    let output = spm(folder.path(), &[RUN, &["--allow-qemu-args"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(
        stdout(&output)
            .trim()
            .ends_with("-serial null -plugin evil.so")
    );
}

#[test]
fn gdb_waits_for_a_debugger_and_explains_how_to_attach() {
    let folder = folder();
    qemu(folder.path(), "9.1.0", "echo \"$@\"");
    let output = spm(folder.path(), &[RUN, &["--gdb"]].concat());
    assert!(stdout(&output).contains(" -S -s"));
    assert!(stderr(&output).contains("gdb-multiarch -ex 'target remote :1234' spumone"));
}

#[test]
fn qemus_exit_code_is_passed_on() {
    let folder = folder();
    qemu(folder.path(), "9.1.0", "exit 42");
    assert_eq!(spm(folder.path(), RUN).status.code(), Some(42));
    let timed = [RUN, &["--timeout", "60"]].concat();
    assert_eq!(spm(folder.path(), &timed).status.code(), Some(42));
    qemu(folder.path(), "9.1.0", "kill -KILL $$");
    assert_eq!(spm(folder.path(), &timed).status.code(), Some(128 + 9));
}

#[test]
fn a_machine_that_does_not_end_is_ended() {
    let folder = folder();
    // exec: the process that was started is the one that must be ended.
    qemu(folder.path(), "9.1.0", "exec sleep 1000");
    let output = spm(folder.path(), &[RUN, &["--timeout", "1"]].concat());
    assert_eq!(output.status.code(), Some(124));
    assert!(stderr(&output).contains("stopped the machine after 1 s"));
}

#[test]
fn an_old_or_missing_qemu_is_refused() {
    let folder = folder();
    qemu(folder.path(), "7.2.19 (Debian 1:7.2+dfsg)", "exit 0");
    let output = spm(folder.path(), RUN);
    assert_eq!(output.status.code(), Some(3));
    let said = stderr(&output);
    assert!(
        said.contains("QEMU 7.2, which is too old") && said.contains("scripts/setup"),
        "{said}"
    );
    fs::remove_file(folder.path().join("qemu")).unwrap();
    let output = spm(folder.path(), RUN);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("cannot start ./qemu"));
}

#[test]
fn what_came_over_a_serial_cable_is_explained() {
    let folder = TempDir::new().unwrap();
    let report = "guest rt stopped: vcpu 0 pc=0x0 esr=0x3a000000 far=0x0";
    fs::write(
        folder.path().join("serial.log"),
        format!("spumone | {report}\r\nlinux   | x\r\n"),
    )
    .unwrap();
    let output = spm(folder.path(), &["explain", "serial.log"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let expected = format!(
        "spumone | {report}\nspumone |   vcpu 0 caused an exception: illegal execution state\n\
         linux   | x\n"
    );
    assert_eq!(stdout(&output), expected);
    // A logger has dropped CR, and the end of the last line.
    fs::write(
        folder.path().join("serial.log"),
        format!("linux   | x\nspumone | {report}"),
    )
    .unwrap();
    let output = spm(folder.path(), &["explain", "serial.log"]);
    let (first, last) = expected.split_at(expected.len() - "linux   | x\n".len());
    assert_eq!(stdout(&output), format!("{last}{first}"));
    for unreadable in ["missing.log", "."] {
        let output = spm(folder.path(), &["explain", unreadable]);
        assert_eq!(output.status.code(), Some(3), "{unreadable}");
    }
}

/// A prompt has no end: it is shown while the machine waits for an answer.
#[test]
fn an_unfinished_line_of_a_stream_is_shown() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_spm"))
        .arg("explain")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    input.write_all(b"linux   | login: ").unwrap();
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines() {
            sender.send(line.unwrap()).unwrap();
        }
    });
    let next = || lines.recv_timeout(Duration::from_secs(120)).unwrap();
    assert_eq!(next(), "linux   | login: ");
    input.write_all(b"root\r\n").unwrap();
    assert_eq!(next(), "linux   + root");
    drop(input);
    assert!(child.wait().unwrap().success());
}
