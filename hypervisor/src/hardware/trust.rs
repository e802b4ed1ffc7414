// SPDX-License-Identifier: MIT OR Apache-2.0
//! The place of the program in which `spm build --sign` puts a public key.

use spumone_config::packed::Trust;

/// Where `spm` finds it by its name. As compiled there is no key.
#[unsafe(no_mangle)]
#[used]
static spumone_trust: [u8; Trust::SIZE] = [0; Trust::SIZE];

/// The key that this hypervisor trusts, and the lowest version that it accepts.
pub fn trust() -> Trust {
    // SAFETY: a constant of this program. Volatile, since the bytes in the image are not those that were compiled.
    Trust::from_bytes(unsafe { (&raw const spumone_trust).read_volatile() })
}
