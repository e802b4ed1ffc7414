// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random numbers.

use crate::machine::psci::{Conduit, call, call_by, code, function};
use crate::report::{Verdict, check, check_eq, test_everywhere};

pub fn run(cpus: usize) {
    test_everywhere("trng", cpus, random_numbers);
}

fn random_numbers() -> Verdict {
    for id in [
        function::TRNG_VERSION,
        function::TRNG_FEATURES,
        function::TRNG_RND64,
    ] {
        check_eq!(
            call(function::TRNG_FEATURES, [id, 0, 0]),
            code::SUCCESS,
            "of {id:#x}"
        );
    }
    let uuid = call_by(Conduit::Hvc, [function::TRNG_GET_UUID, 0, 0, 0]);
    check!(uuid[0] as i32 != -1, "TRNG_GET_UUID is not supported");
    let mut last = [0; 3];
    let mut ever = [0; 3];
    for round in 0..16 {
        let [status, numbers @ ..] = call_by(Conduit::Hvc, [function::TRNG_RND64, 192, 0, 0]);
        check_eq!(status, 0, "TRNG_RND64");
        for place in 0..3 {
            check!(
                numbers[place] != last[place],
                "round {round}: {:#x} twice",
                last[place]
            );
            ever[place] |= numbers[place];
        }
        last = numbers;
    }
    check!(
        ever.iter().all(|bits| bits.count_ones() > 56),
        "bits never set: {ever:x?}"
    );
    let rnd64 = |bits| call_by(Conduit::Hvc, [function::TRNG_RND64, bits, 0, 0]);
    let [status, high, middle, low] = rnd64(8);
    check!(
        status == 0 && high == 0 && middle == 0 && low < 256,
        "8 bits: {low:#x}"
    );
    for bits in [0, 193, 1 << 32] {
        let status = rnd64(bits)[0] as i64;
        check_eq!(
            status,
            code::INVALID_PARAMETERS,
            "TRNG_RND64 of {bits} bits"
        );
    }
    let rnd32 = |bits| call_by(Conduit::Hvc, [function::TRNG_RND32, bits, 0, 0]);
    let [status, numbers @ ..] = rnd32(96);
    check_eq!(status, 0, "TRNG_RND32");
    check!(
        numbers.iter().all(|&number| number >> 32 == 0),
        "more than 32 bits: {numbers:x?}"
    );
    check_eq!(rnd32(97)[0] as i32, -2, "TRNG_RND32 of 97 bits");
    Ok(())
}
