// SPDX-License-Identifier: MIT OR Apache-2.0
//! The registers of a card.

use super::driver::{Driver, Link};
use crate::virtio::link_for_tests::NETWORK_CARD;
use crate::virtio::registers::*;
use crate::virtio::{Device, Effect, End};
use std::vec::Vec;

fn read(device: &Device, offset: u64) -> u64 {
    device.read(offset, 4, true)
}

#[test]
fn a_driver_finds_a_network_card() {
    let device = Device::new(NETWORK_CARD);
    let found: Vec<_> = [MAGIC_VALUE, VERSION, DEVICE_ID]
        .map(|at| read(&device, at))
        .into();
    assert_eq!(found, [0x7472_6976, 2, 1]);
    let _ = device.write(DEVICE_FEATURES_SEL, 1);
    assert_eq!(read(&device, DEVICE_FEATURES), 1);
    let _ = device.write(DEVICE_FEATURES_SEL, 2);
    assert_eq!(read(&device, DEVICE_FEATURES), 0);
    for (queue, size) in [(0, 256), (1, 256), (2, 0), (u32::MAX, 0)] {
        let _ = device.write(QUEUE_SEL, queue);
        assert_eq!(read(&device, QUEUE_NUM_MAX), size);
    }
}

#[test]
fn the_configuration_has_the_address_and_the_state_of_the_link() {
    let device = Device::new(NETWORK_CARD);
    let bytes: Vec<u64> = (0..9).map(|at| device.read(CONFIG + at, 1, true)).collect();
    assert_eq!(bytes, [0x02, 0x53, 0x50, 0, 0, 1, 1, 0, 0]);
    assert_eq!(device.read(CONFIG + 6, 2, false), 0);
    assert_eq!(device.read(u64::MAX, 8, true), 0);
}

#[test]
fn unknown_features_are_refused() {
    for (lower, upper, is_accepted) in [
        (1 << 5, 1, true),
        (1 << 5, 0, false),
        (1 << 0, 1, false),
        (0, 1, true),
        (0, 3, false),
    ] {
        let device = Device::new(NETWORK_CARD);
        for (register, value) in [
            (DRIVER_FEATURES_SEL, 0),
            (DRIVER_FEATURES, lower),
            (DRIVER_FEATURES_SEL, 1),
            (DRIVER_FEATURES, upper),
        ] {
            assert_eq!(device.write(register, value), Effect::Nothing);
        }
        let _ = device.write(STATUS, 11);
        assert_eq!(read(&device, STATUS) & 8 != 0, is_accepted);
        let _ = device.write(STATUS, 15);
        assert_eq!(device.is_up(), is_accepted);
    }
}

#[test]
fn a_reset_takes_the_device_down_at_once_and_the_rest_when_it_is_finished() {
    let mut link = Link::new();
    let _driver = Driver::start(&mut link, End::Sender, 8);
    let device = &link.devices[0];
    assert_eq!(device.write(STATUS, 0), Effect::Reset);
    assert!(!device.is_up());
    assert_eq!(read(device, STATUS), 0);
    device.finish_reset();
    assert_eq!(read(device, QUEUE_READY), 0);
}

#[test]
fn interrupts_last_until_they_are_acknowledged() {
    let device = Device::new(NETWORK_CARD);
    assert!(device.raise());
    assert!(!device.raise());
    let _ = device.peer_changed(false);
    assert_eq!(read(&device, INTERRUPT_STATUS), 3);
    let mut levels = Vec::new();
    device.publish(|level| levels.push(level));
    assert_eq!(device.write(INTERRUPT_ACK, 1), Effect::Line);
    assert_eq!(device.write(INTERRUPT_ACK, 2), Effect::Line);
    device.publish(|level| levels.push(level));
    assert_eq!(levels, [true, false]);
}
