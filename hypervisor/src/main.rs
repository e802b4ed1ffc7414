// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the EL2 program begins. All else is in the library, which tests can also build for a host.

#![cfg_attr(target_os = "none", no_std)]
#![cfg_attr(target_os = "none", no_main)]

#[cfg(target_os = "none")]
mod entry {
    use spumone_config::PhysAddr;
    use spumone_hypervisor::{boot, hardware};

    aarch64_rt::entry!(main, 64);

    fn main(device_tree: u64, _: u64, _: u64, _: u64) -> ! {
        hardware::set_vectors();
        boot::start(PhysAddr(device_tree))
    }
}

/// There is nothing to run on a host.
#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("spumone: this program runs at EL2; `scripts/build` builds it");
}
