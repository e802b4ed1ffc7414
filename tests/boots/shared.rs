// SPDX-License-Identifier: MIT OR Apache-2.0
//! One Linux serves the disk and the network card of the machine to another that has no device, beside FreeRTOS, which has
//! core 0 for half of the time; on the exact clock. The system is that of systems/shared-devices.toml.

use boot_tests::{Boot, Console, SharedFiles, linux, output, rt, text};

/// Boots the system. The owner runs `serve`; the other one runs `scenario` with `arguments` and the download of `bytes`.
/// The machine ends by itself when both have ended, and FreeRTOS has been `duration`.
fn share(
    name: &str,
    duration: &str,
    serve: &str,
    scenario: &str,
    arguments: &str,
    bytes: u32,
) -> Console {
    let boot = Boot::new(name)
        .policy("steal")
        .cores(2)
        .memory_mib(1024)
        .limit(4 * 3600)
        .exact();
    let files = SharedFiles::new(boot.folder(), bytes);
    let arguments = format!("{arguments},{}", files.download);
    let console = boot
        .qemu([
            "-drive",
            &format!("if=none,id=disk,format=raw,file={}", text(&files.disk)),
            "-device",
            "virtio-blk-device,drive=disk",
            "-netdev",
            &format!(
                "user,id=net,tftp={}",
                files.disk.with_file_name("tftp").display()
            ),
            "-device",
            "virtio-net-device,netdev=net",
        ])
        .guest(rt(&format!(
            "period=1ms load=50% duration={duration} histogram=off"
        )))
        .guest(
            linux("serve", serve, &[0, 1])
                .named("owner")
                .initrd("initrd-share.cpio")
                .trusted()
                .devices(&["virtio0", "virtio1"]),
        )
        .guest(
            linux(scenario, arguments.trim_start_matches(','), &[0, 1])
                .named("other")
                .initrd("initrd-share.cpio")
                .parameter("spumone.root=2,169.254.9.2/30,169.254.9.1"),
        )
        .network_link("owner", "other")
        .network_link("owner", "other")
        .run();
    console
        .linux_is_well("other", scenario)
        .linux_is_well("owner", "serve")
        .rt_is_well("rt")
        .machine_ended();
    let late = console.number("rt", "rt-result", "late");
    console.demand(late == 0, &format!("{late} periods are late"));
    // Nothing to repair, and nothing left in the journal: the other Linux had it last.
    output("e2fsck", &["-f", "-n", text(&files.disk)]);
    let state = output("dumpe2fs", &["-h", text(&files.disk)]);
    console.demand(
        !state.contains("needs_recovery"),
        "the file system was not left clean",
    );
    let _ = std::fs::remove_file(&files.disk);
    let _ = std::fs::remove_dir_all(files.disk.with_file_name("tftp"));
    console
}

#[test]
fn a_linux_has_root_and_network_from_another() {
    let name = "a_linux_has_root_and_network_from_another";
    let console = share(name, "10s", "gone=4", "served", "kib=1024", 2_000_000);
    console
        .expect("other", "root=/dev/nvme0n1:ext4 address=10.0.2.")
        .expect("other", "fetched=2000000");
}

#[test]
#[ignore = "long"]
fn matrix_shared_download_of_100_mb() {
    let name = "matrix_shared_download_of_100_mb";
    let console = share(name, "100s", "gone=4", "served", "kib=8192", 100_000_000);
    console.expect("other", "fetched=100000000");
}

/// Restarts of the owner, each during traffic: requests of the other Linux wait, and go on in the owner's next life.
fn owner_restarts(name: &str, restarts: usize, duration: &str) {
    let other = format!("owner={restarts}");
    let serve = "crash=1,frames=1,gone=6";
    let console = share(name, duration, serve, "served-lives", &other, 500_000);
    let seen = console.count("spumone", "guest owner restarts");
    console.demand(
        seen >= restarts,
        &format!("{seen} restarts of the owner, not {restarts}"),
    );
    nothing_twice(&console, "owner", seen);
    let frames = console.number("other", "linux-result", "received");
    console.demand(
        frames > 10 * restarts as u64,
        &format!("{frames} frames only"),
    );
}

/// No life of `guest`, of more than `lives`, and none of the other has had a frame that it should not have.
fn nothing_twice(console: &Console, guest: &str, lives: usize) {
    for guest in ["owner", "other"] {
        console.expect_not(guest, "frames-bad");
    }
    let reports = console.count(guest, "frames-result");
    console.demand(
        reports >= lives,
        &format!("{reports} reports of frames in {lives} lives of {guest}"),
    );
}

#[test]
#[ignore = "long"]
fn matrix_shared_owner_restarts_few() {
    owner_restarts("matrix_shared_owner_restarts_few", 3, "25s");
}

#[test]
#[ignore = "long"]
fn matrix_shared_owner_restarts_hundred() {
    owner_restarts("matrix_shared_owner_restarts_hundred", 100, "480s");
}

/// Restarts of the other Linux, each while it writes, fetches and has frames both ways. What it has written is there in its
/// next life.
fn other_restarts(name: &str, lives: usize, duration: &str) {
    let other = format!("count={lives},seconds=2");
    let serve = "frames=1,gone=6";
    let console = share(name, duration, serve, "served-lives", &other, 500_000);
    let seen = console.count("spumone", "guest other restarts");
    console.demand(
        seen == lives - 1,
        &format!("{seen} restarts in {lives} lives"),
    );
    nothing_twice(&console, "other", lives);
    let mut written = 0;
    for line in console
        .lines("other")
        .filter(|line| line.starts_with("linux-life "))
    {
        for word in line.split_whitespace() {
            if let Some(found) = word.strip_prefix("found=") {
                let found: u64 = found.parse().unwrap_or(0);
                console.demand(found >= written, &format!("{line}: {written} were written"));
            }
            if let Some(wrote) = word.strip_prefix("wrote=") {
                written = wrote.parse().unwrap_or(u64::MAX);
            }
        }
    }
    console.demand(
        written > lives as u64,
        &format!("{written} files in {lives} lives"),
    );
}

#[test]
#[ignore = "long"]
fn matrix_shared_other_restarts_few() {
    other_restarts("matrix_shared_other_restarts_few", 3, "25s");
}

#[test]
#[ignore = "long"]
fn matrix_shared_other_restarts_hundred() {
    other_restarts("matrix_shared_other_restarts_hundred", 101, "600s");
}
