/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The network task: lwIP on a virtio network card, whenever nothing else wants the core. It answers pings, sends back what
 * comes by TCP to port 7, and is a server of iperf (version 2, TCP) on port 5001.
 */
#ifndef NETWORK_H
#define NETWORK_H

#include <stdint.h>

/* Where a network card is. */
struct network_card {
    uint64_t registers;
    uint32_t interrupt;
};

/* Before the scheduler starts. `address`: IPv4, its first byte uppermost, with so many bits for the network. */
void network_create(const struct network_card *card, uint32_t address, uint32_t prefix);

#endif
