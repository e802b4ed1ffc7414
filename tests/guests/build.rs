// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links the probe with its own memory layout.

fn main() {
    let layout = "image.ld";
    println!("cargo:rerun-if-changed={layout}");
    println!(
        "cargo:rustc-link-arg-bins=-T{}/{layout}",
        std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default()
    );
}
