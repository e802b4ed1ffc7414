// SPDX-License-Identifier: MIT OR Apache-2.0
//! Entry point of the EL2 program. The rest is in the library, which is also built for a host, to be tested.

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

/// The program does not run on a host.
#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("spumone: this program runs at EL2; `scripts/build` builds it");
}
