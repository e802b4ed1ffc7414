# SPDX-License-Identifier: MIT OR Apache-2.0
# Network cards by their place in the device tree. To be sourced.

# Prints the name of each virtio network card (eth0, …), that with the lowest address first: on qemu-virt the cards of the
# machine, then those of links in the order of the description. The kernel's numbers are in the order in which drivers begin.
cards() {
    local card
    for card in /sys/class/net/*/device/driver; do
        [ "$(basename "$(readlink -f "$card")")" = virtio_net ] || continue
        card=${card%/device/driver}
        echo "$(basename "$(dirname "$(readlink -f "$card/device")")") ${card##*/}"
    done | sort | cut -d' ' -f2
}

# Prints the name of card $1, counted from 1.
card() { cards | sed -n "$1p"; }
