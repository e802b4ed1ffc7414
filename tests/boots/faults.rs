// SPDX-License-Identifier: MIT OR Apache-2.0
//! A guest that does what it may not is stopped. The report names the guest, the instruction and the
//! address, and what to change. The other guests run on; the machine ends when they have ended.

use boot_tests::{Boot, Console, ESCAPE, probe};

/// An address that no guest has, and at which the machine has nothing.
const NOWHERE: u64 = 0x1_2345_6000;

/// Boots a guest `bad` that commits this fault on its CPU `cpu`, beside a guest that checks
/// its own state on the same cores.
fn boot(name: &str, kind: &str, address: u64, cpu: usize) -> Console {
    let bootargs = format!("suite=fault kind={kind} address={address:#x} cpu={cpu}");
    let console = Boot::new(name)
        .cores(2)
        .guest(probe("bad", &bootargs, &[0, 1]))
        .guest(probe("good", "suite=watch ms=1500 seed=9", &[0, 1]))
        .run();
    console
        .expect("spumone", &format!("guest bad stopped: vcpu {cpu} "))
        .expect("spumone", "guest bad was stopped")
        .expect_not("bad", "FAIL")
        .probe_is_well("good")
        .machine_ended();
    console
}

/// Demands that the report names the address and the instruction that the guest announced.
fn names_the_place(console: &Console, address: u64) {
    let pc = console.value("bad", "fault-expected", "pc");
    console
        .expect("spumone", &format!("at {address:#x}"))
        .expect("spumone", &format!(" pc={pc} "));
}

#[test]
fn fault_load() {
    let console = boot("fault_load", "load", NOWHERE, 0);
    names_the_place(&console, NOWHERE);
    console
        .expect("spumone", "read 4 bytes")
        .expect("spumone", "data abort, stage 2 translation fault")
        .expect("spumone", "no device of the board is there");
}

#[test]
fn fault_load_on_another_vcpu() {
    let console = boot("fault_load_on_another_vcpu", "load", NOWHERE, 1);
    names_the_place(&console, NOWHERE);
}

#[test]
fn fault_store_to_another_guest() {
    // Where the other guest's memory is on the machine: after the 16 MiB of this one, above the
    // hypervisor. This guest has nothing at that address.
    let address = 0x5000_0000;
    let console = boot("fault_store_to_another_guest", "store", address, 0);
    names_the_place(&console, address);
    console.expect("spumone", "wrote 8 bytes");
}

#[test]
fn fault_device_not_given() {
    let second_uart = 0x904_0000;
    let console = boot("fault_device_not_given", "store", second_uart, 0);
    names_the_place(&console, second_uart);
    console.expect(
        "spumone",
        "to give it this device, add to guest bad: devices = [\"uart1\"]",
    );
}

#[test]
fn fault_jump() {
    let console = boot("fault_jump", "jump", NOWHERE, 0);
    names_the_place(&console, NOWHERE);
    console.expect("spumone", "fetched an instruction");
}

/// Loads from the GIC without a valid syndrome (ESR_EL2.ISV) cannot be emulated.
#[test]
fn fault_pair_from_the_gic() {
    let distributor = 0x800_0000;
    let console = boot("fault_pair_from_the_gic", "pair", distributor, 0);
    names_the_place(&console, distributor);
    console
        .expect("spumone", "by an access that cannot be emulated")
        .expect(
            "spumone",
            "use loads and stores of one general register there",
        );
}

#[test]
fn fault_writeback_from_the_gic() {
    let redistributor = 0x80a_0000;
    let console = boot(
        "fault_writeback_from_the_gic",
        "writeback",
        redistributor,
        1,
    );
    names_the_place(&console, redistributor);
}

#[test]
fn fault_exclusive() {
    let console = boot("fault_exclusive", "exclusive", NOWHERE, 0);
    names_the_place(&console, NOWHERE);
}

#[test]
fn fault_stack() {
    let console = boot("fault_stack", "stack", NOWHERE, 0);
    // The address below the stack to which the vectors push.
    console
        .expect("spumone", &format!("at {:#x}", NOWHERE - 272))
        .expect("spumone", "where it has nothing");
}

#[test]
fn fault_vectors() {
    let console = boot("fault_vectors", "vectors", NOWHERE, 1);
    // Synchronous, from EL1 with its own stack pointer.
    console
        .expect("spumone", &format!("at {:#x}", NOWHERE + 0x200))
        .expect("spumone", "fetched an instruction");
}

#[test]
fn fault_translation_tables() {
    let console = boot("fault_translation_tables", "walk", NOWHERE, 0);
    console.expect("spumone", "in a walk of the guest's own page tables");
}

/// A guest that was stopped can be restarted from the keyboard.
#[test]
fn fault_and_restart() {
    let mut machine = Boot::new("fault_and_restart")
        .guest(probe("bad", "suite=fault kind=load address=0x1000", &[0]).priority(10))
        .guest(probe("other", "suite=echo", &[0]))
        .start();
    for life in 1..=3 {
        machine.wait_until("a report", |console| {
            console.count("spumone", "guest bad was stopped") == life
        });
        if life < 3 {
            machine.type_keys(&format!("{ESCAPE}1{ESCAPE}r"));
        }
    }
    machine.type_keys(&format!("{ESCAPE}2quit\r"));
    let console = machine.finish();
    let reports = console.count("spumone", "vcpu 0 read 4 bytes at 0x1000");
    console
        .demand(reports == 3, &format!("{reports} reports in three lives"))
        .probe_is_well("other")
        .machine_ended();
}

/// The only guest's fault ends the machine.
#[test]
fn fault_alone() {
    let console = Boot::new("fault_alone")
        .guest(probe("bad", "suite=fault kind=load address=0", &[0]))
        .run();
    console
        .expect("spumone", "vcpu 0 read 4 bytes at 0x0")
        .machine_ended();
}

/// With `on-fault = "abort"`, a guest finds what it finds on the bare machine (`boots/bare.rs` runs the same suite). It is reported once.
#[test]
fn fault_is_an_abort() {
    let console = Boot::new("fault_is_an_abort")
        .cores(1)
        .guest(probe("aborts", "suite=aborts", &[0]).takes_aborts())
        .run();
    console
        .probe_is_well("aborts")
        .expect("spumone", "guest aborts aborted: vcpu 0 ")
        .expect("spumone", "it has taken a synchronous external abort")
        .machine_ended();
    let reports = console.lines("spumone");
    let count = reports.filter(|line| line.contains(" aborted: ")).count();
    assert_eq!(count, 1);
}

/// The same for an access to a virtual device that cannot be emulated.
#[test]
fn fault_that_cannot_be_emulated_is_an_abort() {
    let distributor = 0x800_0000;
    let bootargs = format!("suite=fault kind=pair address={distributor:#x} cpu=0");
    let console = Boot::new("fault_that_cannot_be_emulated_is_an_abort")
        .cores(1)
        .guest(probe("bad", &bootargs, &[0]).takes_aborts())
        .run();
    console
        .expect("spumone", "guest bad aborted: vcpu 0 ")
        .expect("spumone", "by an access that cannot be emulated")
        .expect_not("spumone", "guest bad stopped")
        .machine_ended();
}

/// A guest that cannot take the abort is stopped: its vectors are at an address without memory.
#[test]
fn fault_in_the_vectors_stops_a_guest_that_takes_aborts() {
    let bootargs = format!("suite=fault kind=vectors address={NOWHERE:#x} cpu=0");
    Boot::new("fault_in_the_vectors_stops_a_guest_that_takes_aborts")
        .cores(1)
        .guest(probe("bad", &bootargs, &[0]).takes_aborts())
        .run()
        .expect("spumone", "guest bad stopped: vcpu 0 ")
        .machine_ended();
}

/// By default five times in 10 s; then it stays stopped. The other guest does not notice.
#[test]
fn fault_restarts_a_guest_that_says_so() {
    let bootargs = format!("suite=fault kind=load address={NOWHERE:#x} cpu=0");
    let console = Boot::new("fault_restarts_a_guest_that_says_so")
        .cores(2)
        .guest(probe("bad", &bootargs, &[0, 1]).on_stop("restart"))
        .guest(probe("good", "suite=watch ms=1500 seed=9", &[0, 1]))
        .run();
    console
        .expect("spumone", "it has ended more often than its restarts allow")
        .expect_not("bad", "FAIL")
        .probe_is_well("good")
        .machine_ended();
    let count = |text: &str| {
        let lines = console.lines("spumone");
        lines.filter(|line| line.contains(text)).count()
    };
    assert_eq!(count("guest bad stopped: vcpu 0 "), 6);
    assert_eq!(count("guest bad restarts"), 5);
}
