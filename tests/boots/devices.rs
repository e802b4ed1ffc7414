// SPDX-License-Identifier: MIT OR Apache-2.0
//! Devices passed through: the second UART and the real-time clock, disks and network cards.

use boot_tests::{Boot, linux, probe, rt};
use std::process::Command;

/// Also between two guests that want the same cores.
#[test]
fn second_uart_and_clock() {
    let boot = Boot::new("second_uart_and_clock").cores(2);
    let second = boot.folder().join("second.log");
    let console = boot
        .qemu(["-serial", &format!("file:{}", second.display())])
        .guest(probe("owner", "suite=devices", &[0, 1]).devices(&["uart1", "rtc"]))
        .guest(probe("spin", "suite=watch ms=3000", &[0, 1]))
        .run();
    console
        .probe_is_well("owner")
        .probe_is_well("spin")
        .machine_ended();
    let sent = std::fs::read(&second).unwrap_or_default();
    let sent = String::from_utf8_lossy(&sent);
    console.demand(
        sent.contains("from the second UART"),
        &format!("the second UART sent: {sent:?}"),
    );
}

/// Linux finds the second UART with its own driver, sends and receives by interrupt.
#[test]
fn linux_uses_second_uart() {
    let boot = Boot::new("linux_uses_second_uart")
        .cores(2)
        .memory_mib(1024);
    let second = boot.folder().join("second.log");
    let mut machine = boot
        .qemu(["-serial", &format!("file:{}", second.display())])
        .guest(linux("shell", "", &[0, 1]).devices(&["uart1"]))
        .start();
    machine.wait_for("linux", "linux:/root#");
    machine
        .type_keys("for n in 1 2 3; do echo line-$n > /dev/ttyAMA1; done; cat /proc/interrupts\n");
    machine.type_keys("stty -F /dev/ttyAMA1; exit\n");
    let console = machine.finish();
    console
        .expect("linux", "speed 9600 baud")
        .demand(
            console.count("linux", "uart-pl011") >= 1,
            "no interrupt is the UART's",
        )
        .machine_ended();
    let sent = std::fs::read(&second).unwrap_or_default();
    let sent = String::from_utf8_lossy(&sent);
    console.demand(
        sent.contains("line-1") && sent.contains("line-3"),
        &format!("the second UART sent: {sent:?}"),
    );
}

/// Makes an empty disk; returns the arguments that give it to the machine.
fn disk(boot: &Boot) -> [String; 4] {
    let disk = boot.folder().join("disk");
    let made = std::fs::File::create(&disk).and_then(|file| file.set_len(16 << 20));
    assert!(made.is_ok(), "{}: {made:?}", disk.display());
    [
        "-drive".to_owned(),
        format!("if=none,id=disk,format=raw,file={}", disk.display()),
        "-device".to_owned(),
        "virtio-blk-device,drive=disk".to_owned(),
    ]
}

#[test]
fn disk_beside_rt() {
    let boot = Boot::new("disk_beside_rt").cores(2).memory_mib(1024);
    let args = disk(&boot);
    let console = boot
        .qemu(args)
        .guest(rt("period=1ms load=30% duration=5s"))
        .guest(
            linux("disk", "kib=2048", &[0, 1])
                .trusted()
                .devices(&["virtio0"]),
        )
        .run();
    console
        .rt_is_well("rt")
        .linux_is_well("linux", "disk")
        .machine_ended();
}

#[test]
fn network_beside_rt() {
    let boot = Boot::new("network_beside_rt").cores(2).memory_mib(1024);
    let tftp = boot.folder().join("tftp");
    std::fs::create_dir_all(&tftp).expect("a folder that can be written");
    let blob = tftp.join("blob");
    let bytes: Vec<u8> = (0..300_000_u32)
        .map(|n| (n.wrapping_mul(n) >> 7) as u8)
        .collect();
    std::fs::write(&blob, bytes).expect("a folder that can be written");
    let output = Command::new("sha256sum").arg(&blob).output();
    let output = output.expect("sha256sum, of coreutils");
    let sum = String::from_utf8_lossy(&output.stdout);
    let sum = sum.split_whitespace().next().unwrap_or_default();
    let arguments = format!("file=blob,sha256={sum},echo=10.0.2.100:7");
    let network = format!(
        "user,id=net,tftp={},guestfwd=tcp:10.0.2.100:7-cmd:cat",
        tftp.display()
    );
    let console = boot
        .qemu(["-netdev", &network])
        .qemu(["-device", "virtio-net-device,netdev=net"])
        .guest(rt("period=1ms load=30% duration=5s"))
        .guest(
            linux("net", &arguments, &[0, 1])
                .trusted()
                .devices(&["virtio0"]),
        )
        .run();
    console
        .rt_is_well("rt")
        .linux_is_well("linux", "net")
        .machine_ended();
}

/// Linux resets itself, each time after it has used the disk; the other guest runs on.
#[test]
fn linux_lives_beside_rt() {
    let boot = Boot::new("linux_lives_beside_rt").cores(2).memory_mib(1024);
    let args = disk(&boot);
    let console = boot
        .qemu(args)
        .guest(rt("period=1ms load=30% duration=10s"))
        .guest(
            linux("reboot-loop", "count=3", &[0, 1])
                .trusted()
                .devices(&["virtio0"]),
        )
        .run();
    console
        .rt_is_well("rt")
        .linux_is_well("linux", "reboot-loop")
        .machine_ended();
    let restarts = console.count("spumone", "guest linux restarts");
    console
        .demand(
            restarts == 2,
            &format!("{restarts} restarts in three lives"),
        )
        .expect("linux", "lives=3");
}
