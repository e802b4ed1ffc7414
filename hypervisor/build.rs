// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links the EL2 program with its own memory layout.

fn main() {
    let layout = "image.ld";
    println!("cargo:rerun-if-changed={layout}");
    // Builds for a host keep the host's default layout.
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("none") {
        return;
    }
    println!(
        "cargo:rustc-link-arg-bins=-T{}/{layout}",
        std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default()
    );
}
