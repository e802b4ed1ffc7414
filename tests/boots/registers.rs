// SPDX-License-Identifier: MIT OR Apache-2.0
//! No system register carries what one guest writes to another guest on the same core, or to the guest's own next
//! life. Shown for every core type of QEMU on which the hypervisor can run: two guests of equal priority share a core;
//! one fills all registers that it can write with patterns, the other one reads all that it can read.

use boot_tests::{Boot, Console, ESCAPE, bare, probe};

fn boot(cpu: &str) {
    let mut machine = Boot::new(&format!("registers_{}", cpu.replace('-', "_")))
        .cpu(cpu)
        .guest(probe("look", "suite=registers role=look", &[0]))
        .guest(probe("write", "suite=registers role=write", &[0]))
        .start();
    // The writing guest resets itself; its second life waits for a `q` when it has listed its registers.
    machine.wait_until("the second life", |console| {
        console
            .expect_not("look", "FAIL")
            .expect_not("write", "FAIL")
            .expect_not("spumone", "was stopped");
        console.says("spumone", "guest write restarts")
    });
    machine.type_keys(&format!("{ESCAPE}2"));
    machine.type_until("q", "spumone", "guest write is off");
    machine.type_keys(&format!("{ESCAPE}1"));
    machine.type_until("q", "spumone", "guest look is off");
    let console = machine.finish();
    console
        .expect("write", "PASS registers-written")
        .expect("look", "PASS registers-unchanged")
        .expect_not("write", "FAIL")
        .probe_is_well("look")
        .machine_ended();
    all_lives_begin_with_the_same_registers(&console);
}

/// Demands that each life of the writing guest has found the registers as its first life did.
fn all_lives_begin_with_the_same_registers(console: &Console) {
    let mut lives: Vec<Vec<&str>> = Vec::new();
    let lines: Vec<&str> = console.lines("write").collect();
    for line in lines {
        if line.contains("life-begins") {
            lives.push(Vec::new());
        } else if let (Some(life), true) = (lives.last_mut(), line.contains("at-start ")) {
            life.push(line);
        }
    }
    let [first, others @ ..] = lives.as_slice() else {
        console.fail("no life has begun");
    };
    console.demand(!others.is_empty(), "the guest was not reset");
    for life in others {
        let differs = first.iter().zip(life).find(|(one, other)| one != other);
        if let Some((one, other)) = differs {
            console.fail(&format!("a later life has found {other}, the first {one}"));
        }
        console.demand(
            first.len() == life.len(),
            "a later life can read other registers than the first",
        );
    }
}

/// A CPU without a hypervisor survives what the suite does.
#[test]
fn registers_bare() {
    bare("registers_bare", 1, "suite=registers role=write jumps=0").probe_has_passed("probe");
}

/// A guest that uses a feature which its ID registers hide, although the core has it.
#[test]
fn hidden_features_max() {
    let console = Boot::new("hidden_features_max")
        .cpu("max")
        .guest(probe("probe", "suite=hidden", &[0]))
        .run();
    console.probe_is_well("probe").machine_ended();
}

macro_rules! core_types {
    ($($(#[$attribute:meta])* $name:ident: $cpu:literal;)*) => {
        $(
            #[test]
            $(#[$attribute])*
            fn $name() {
                boot($cpu);
            }
        )*
    };
}

core_types! {
    registers_cortex_a53: "cortex-a53";
    registers_cortex_a55: "cortex-a55";
    registers_cortex_a72: "cortex-a72";
    registers_cortex_a76: "cortex-a76";
    registers_neoverse_n1: "neoverse-n1";
    registers_max: "max";
    #[ignore = "long"]
    matrix_registers_cortex_a710: "cortex-a710";
    #[ignore = "long"]
    matrix_registers_neoverse_v1: "neoverse-v1";
    #[ignore = "long"]
    matrix_registers_neoverse_n2: "neoverse-n2";
}
