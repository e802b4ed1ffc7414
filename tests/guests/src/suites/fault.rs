// SPDX-License-Identifier: MIT OR Apache-2.0
//! `suite=fault kind=KIND address=ADDRESS cpu=N`: causes a fault on that CPU, for which the hypervisor stops the guest.
//! Before, it prints the address of the instruction, to compare with the hypervisor's report.

use crate::machine::sysreg::msr;
use crate::machine::uart::say;
use crate::machine::{bootargs, cpus, gic};
use crate::report::{Failure, record};
use core::arch::global_asm;

global_asm!(
    ".pushsection .text, \"ax\"",
    // Each takes the address in x0; its first instruction faults.
    "fault_load: ldr w1, [x0]",
    "ret",
    "fault_store: str x0, [x0]",
    "ret",
    "fault_pair: ldp x1, x2, [x0]",
    "ret",
    "fault_writeback: ldr w1, [x0], #4",
    "ret",
    "fault_exclusive: ldxr w1, [x0]",
    "ret",
    "fault_jump: br x0",
    // A stack pointer to an address without memory, and an exception whose vector pushes there.
    "fault_stack: mov x2, sp",
    "mov sp, x0",
    "svc #0",
    "mov sp, x2",
    "ret",
    // Vectors at an address without memory.
    "fault_vectors: msr vbar_el1, x0",
    "isb",
    "svc #0",
    "ret",
    // Translation tables at an address without memory.
    "fault_walk: msr ttbr0_el1, x0",
    "isb",
    "dsb sy",
    "tlbi vmalle1",
    "dsb sy",
    "isb",
    "nop",
    "ret",
    ".popsection",
);

unsafe extern "C" {
    fn fault_load(address: u64);
    fn fault_store(address: u64);
    fn fault_pair(address: u64);
    fn fault_writeback(address: u64);
    fn fault_exclusive(address: u64);
    fn fault_jump(address: u64);
    fn fault_stack(address: u64);
    fn fault_vectors(address: u64);
    fn fault_walk(address: u64);
}

/// Runs the suite.
pub fn run() {
    gic::start_distributor();
    gic::start_cpu();
    cpus::start_all();
    let cpu = bootargs::number_or("cpu", 0) as usize;
    cpus::run(cpu, fault);
    // Reached only if the guest was not stopped.
    let kind = bootargs::text("kind").unwrap_or("");
    let why = Failure::new(format_args!("the guest was not stopped for \"{kind}\""));
    record("fault", Err(why));
}

fn fault() {
    let address = bootargs::number_or("address", 0);
    let kind = bootargs::text("kind").unwrap_or("");
    let code = match kind {
        "load" => fault_load,
        "store" => fault_store,
        "pair" => fault_pair,
        "writeback" => fault_writeback,
        "exclusive" => fault_exclusive,
        "jump" => fault_jump,
        "stack" => fault_stack,
        "vectors" => fault_vectors,
        "walk" => fault_walk,
        _ => panic!("there is no kind of fault \"{kind}\""),
    };
    let pc = match kind {
        "jump" => address,
        // The instruction that faults is in the vectors, or not in this code.
        "stack" | "vectors" | "walk" => 0,
        _ => code as *const () as u64,
    };
    msr!(TPIDR_EL0, pc);
    say!("fault-expected kind={kind} pc={pc:#018x} address={address:#x}");
    // SAFETY: the function faults, and the hypervisor stops the guest.
    unsafe { code(address) };
}
