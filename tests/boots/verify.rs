// SPDX-License-Identifier: MIT OR Apache-2.0
//! Images that are signed, damaged or unsigned: what the hypervisor refuses, and by which name.

use boot_tests::{Boot, Image, environment, linux, probe, rt};

/// A guest that is damaged in some tests, and one that must run in any case.
fn two_guests(name: &str) -> Boot {
    Boot::new(name)
        .cores(2)
        .guest(probe("one", "suite=watch ms=200 seed=1", &[0]).on_stop("restart"))
        .guest(
            rt("period=10ms load=10% duration=200ms")
                .named("other")
                .homes(&[1]),
        )
}

/// More than FreeRTOS takes to start and to end, in microseconds: about three times what was measured.
const MAX_START_US: u64 = 40_000;

/// Boots an image that is refused as a whole, after this damage.
fn refused(boot: Boot, damage: impl FnOnce(&mut Image) + 'static, message: &str) {
    // The machine goes off.
    let console = boot.damaged(damage).run();
    // No line has a tag yet: all are taken for those of the first guest.
    let line = format!("spumone does not start: {message}");
    console
        .expect("one", &line)
        .expect_not("one", "cores,")
        .expect_not("one", "died");
}

#[test]
fn verify_a_signed_image_boots() {
    let console = two_guests("verify_a_signed_image_boots").signed().run();
    console
        .expect("spumone", "image signed, version 0")
        .probe_is_well("one")
        .rt_is_well("other")
        .machine_ended();
}

#[test]
fn verify_a_damaged_description_is_refused() {
    let name = "verify_a_damaged_description_is_refused";
    let message = "the description differs from its hash";
    refused(two_guests(name), |image| image.flip(200), message);
}

#[test]
fn verify_damaged_tables_are_refused() {
    let name = "verify_damaged_tables_are_refused";
    let stage2 = |image: &mut Image| {
        let tables = image.system.stage2_pages;
        image.flip(tables.offset + tables.size - 1);
    };
    let message = "the stage 2 tables differ from their hash";
    refused(two_guests(name), stage2, message);
    let own = |image: &mut Image| image.flip(image.system.el2_pages.offset);
    let message = "the hypervisor's own tables differ from their hash";
    refused(two_guests(name), own, message);
}

#[test]
fn verify_an_unsigned_image_is_refused_by_a_hypervisor_with_a_key() {
    let name = "verify_an_unsigned_image_is_refused_by_a_hypervisor_with_a_key";
    let message = "the description is not signed, and this hypervisor has a key";
    refused(two_guests(name).signed(), Image::unsign, message);
}

/// A changed bit in a payload, and another one in its list: the guest ends as after a fault, is not restarted, and the other one runs on.
#[test]
fn verify_a_guest_with_a_damaged_image_does_not_start() {
    let name = "verify_a_guest_with_a_damaged_image_does_not_start";
    for (part, message) in [
        ("payload", "guest one: image: the page at 0x4"),
        ("list", "guest one: image: the list of hashes differs"),
    ] {
        let damage = move |image: &mut Image| {
            let segment = image.system.guests[0].segments[0];
            image.flip(match part {
                "payload" => segment.offset + segment.size / 2,
                _ => segment.list + 40,
            });
        };
        let boot = two_guests(&format!("{name}_{part}")).signed();
        let console = boot.damaged(damage).run();
        console
            .expect("spumone", message)
            .expect("spumone", "guest one was stopped")
            .expect_not("spumone", "guest one restarts")
            .expect_not("one", "probe")
            .rt_is_well("other")
            .machine_ended();
    }
}

/// FreeRTOS runs for 20 ms beside a Linux that is loaded meanwhile, and then the machine goes off. What of the time until then it does not
/// run is the start, with all that is verified. docs/architecture.md has the figure.
#[test]
fn verify_hardly_delays_the_first_period() {
    let name = "verify_hardly_delays_the_first_period";
    let console = Boot::new(name)
        .cores(4)
        .memory_mib(1024)
        .exact()
        .signed()
        .guest(rt("period=1ms load=10% duration=20ms").on_stop("machine-off"))
        .guest(linux("hackbench", "-g,1,-l,1", &[0, 1, 2, 3]))
        .run();
    console.rt_is_well("rt");
    let start_us = console.ended_us().saturating_sub(20_000);
    println!("start and end of FreeRTOS take {start_us} us");
    console.demand(start_us <= MAX_START_US, &format!("{start_us} us"));
}

/// One bit of a random byte: of the description, of the tables, of a payload or its list. As `hypervisor/src/tests/mutations.rs`, on QEMU.
/// As many images as `SPUMONE_IMAGES` says.
#[test]
#[ignore = "long"]
fn verify_images_that_were_changed_at_random() {
    let images = environment::number("SPUMONE_IMAGES", 200);
    let workers = std::thread::available_parallelism().map_or(1, |it| it.get() as u64);
    std::thread::scope(|scope| {
        for worker in 0..workers {
            scope.spawn(move || {
                let name = format!("verify_images_that_were_changed_at_random_{worker}");
                for number in (worker..images).step_by(workers as usize) {
                    boot_changed(&name, number);
                    if number % 1_000 == 999 {
                        println!("{} images", number + 1);
                    }
                }
            });
        }
    });
}

/// Boots the changed image of this number: it, or its guest, is refused.
fn boot_changed(name: &str, number: u64) {
    // Knuth's multiplicative hash: the same bytes in each run.
    let random = (number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
    // With time counted in instructions, a core that sleeps takes no time of the host.
    let boot = two_guests(name).qemu(["-icount", "shift=2,sleep=off"]);
    let part = number % 5;
    let message = match part {
        0 => "the description differs from its hash",
        1 => "the stage 2 tables differ from their hash",
        2 => "the hypervisor's own tables differ from their hash",
        3 => "guest one: image: the page at 0x4",
        _ => "guest one: image: the list of hashes differs",
    };
    let damage = move |image: &mut Image| {
        let (system, description) = (&image.system, image.description());
        let (stage2, own) = (&system.stage2_pages, &system.el2_pages);
        let segment = &system.guests[0].segments[0];
        let (start, size) = match part {
            0 => (description.start, description.end - description.start),
            1 => (stage2.offset, stage2.size),
            2 => (own.offset, own.size),
            3 => (segment.offset, segment.size),
            _ => (segment.list, segment.leaves() * 32),
        };
        image.flip(start + random % size);
    };
    if part < 3 {
        refused(boot, damage, message);
        return;
    }
    boot.damaged(damage)
        .run()
        .expect("spumone", message)
        .expect_not("one", "probe")
        .rt_is_well("other")
        .machine_ended();
}
