// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links each program with its own memory layout.

fn main() {
    let folder = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    for (program, layout) in [("probe", "image.ld"), ("victim", "victim.ld")] {
        println!("cargo:rerun-if-changed={layout}");
        println!("cargo:rustc-link-arg-bin={program}=-T{folder}/{layout}");
    }
}
