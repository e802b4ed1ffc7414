//! What FreeRTOS says of its own latency, on a clock that counts instructions.
//!
//! The bounds are wide of what is measured (docs/results): they are there to notice a wake-up that
//! is lost until something else happens, or a path at EL2 that has become long.

use boot_tests::{Boot, INSTRUCTIONS_PER_US, linux, rt};

/// Instructions from the time a period is due to the first one of its task.
const LATENCY: u64 = 3_000;

fn dispatch(name: &str, parameters: &str, cores: &[usize]) {
    let console = Boot::new(name)
        .cores(cores.len())
        .memory("1GiB")
        .exact()
        .guest(rt(parameters))
        .guest(linux("hackbench", "-g,1,-l,50", cores))
        .run();
    console
        .rt_is_well("rt")
        .linux_is_well("linux", "hackbench")
        .machine_ended();
    let late = console.number("rt", "rt-result", "late");
    console.demand(late == 0, &format!("{late} periods are late"));
    let latency = console.number("rt", "rt-result", "max_ns") * INSTRUCTIONS_PER_US / 1000;
    console.demand(latency <= LATENCY, &format!("latency {latency}"));
}

#[test]
fn freertos_is_in_time_beside_linux_on_four_cores() {
    dispatch(
        "freertos_is_in_time_beside_linux_on_four_cores",
        "period=100us load=30% burst=10ms duration=2s",
        &[0, 1, 2, 3],
    );
}

#[test]
fn freertos_is_in_time_beside_linux_on_one_core() {
    dispatch(
        "freertos_is_in_time_beside_linux_on_one_core",
        "period=1ms load=60% duration=3s",
        &[0],
    );
}
