/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Driver of a virtio network card with registers in memory (Virtio 1.2, sections 4.2 and 5.1), for one card and one task.
 * The handler of the card's interrupt has to hold it back until the task has called virtio_net_acknowledge.
 */
#ifndef VIRTIO_NET_H
#define VIRTIO_NET_H

#include <stdbool.h>
#include <stdint.h>

#include "virtqueue.h"

#define VIRTIO_NET_MAC_SIZE 6
/* Of 14 bytes of addresses and type, and 1,500 of payload. */
#define VIRTIO_NET_FRAME_MAX 1514u

/* Whether a network card that this driver knows is at this address. Changes nothing. */
bool virtio_net_is_card(uintptr_t registers);

/* Resets the card, and has it receive frames. False: it refuses what this driver can do. */
bool virtio_net_start(uintptr_t registers, uint8_t mac[VIRTIO_NET_MAC_SIZE]);

/* Takes the interrupt back. True: the carrier may have changed. Received frames must be looked at afterwards in any case. */
bool virtio_net_acknowledge(void);

/* Whether the other end is up. */
bool virtio_net_has_carrier(void);

/*
 * Takes the next frame that has come, into the caller's hands until virtio_net_release. EMPTY if there is none; BROKEN
 * if the card does not follow the rules.
 */
enum virtqueue_result virtio_net_receive(uint16_t *number, void **frame, uint32_t *bytes);

/* Gives the card buffers of frames back, and tells it. */
void virtio_net_release(uint16_t number);
void virtio_net_released(void);

/* Room for a frame to transmit, of VIRTIO_NET_FRAME_MAX bytes; NULL: the card has not yet transmitted the earlier ones. */
void *virtio_net_frame(uint16_t *number);

/* Transmits the frame that was written there. */
void virtio_net_transmit(uint16_t number, uint32_t bytes);

#endif
