/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A split virtqueue from the driver's side (Virtio 1.2, section 2.7). Each descriptor has a buffer of its own for ever, so a
 * buffer is named by the number of its descriptor. What the device writes is checked before it is used.
 *
 * Pure: no hardware, tested on the host.
 */
#ifndef VIRTQUEUE_H
#define VIRTQUEUE_H

#include <stdbool.h>
#include <stdint.h>

/* A power of two; not more than 32, since a word has a bit for each buffer. */
#define VIRTQUEUE_SIZE 32u

struct virtqueue_descriptor {
    uint64_t address;
    uint32_t bytes;
    uint16_t flags;
    uint16_t next;
};

struct virtqueue_used {
    uint32_t number;
    uint32_t bytes;
};

/* Zero before virtqueue_init. The first three are read by the device, the fourth is written by it. */
struct virtqueue {
    _Alignas(16) struct virtqueue_descriptor descriptors[VIRTQUEUE_SIZE];
    uint16_t available_flags;
    uint16_t available_index;
    uint16_t available[VIRTQUEUE_SIZE];
    _Alignas(4) struct {
        uint16_t flags;
        uint16_t index;
        struct virtqueue_used ring[VIRTQUEUE_SIZE];
    } used;
    uint16_t taken;       /* entries of the used ring that were looked at */
    uint32_t buffer_size; /* of each buffer */
    uint32_t offered;     /* a bit for each buffer that the device has */
};

enum virtqueue_result {
    VIRTQUEUE_TAKEN,
    VIRTQUEUE_EMPTY,  /* the device has given nothing back */
    VIRTQUEUE_BROKEN, /* the device has broken the rules */
};

/*
 * Names the buffers: VIRTQUEUE_SIZE of `buffer_size` bytes, one behind the other. `is_written`: the device writes them, and
 * interrupts when it gives one back; else it reads them, and does not interrupt.
 */
void virtqueue_init(struct virtqueue *queue, const void *buffers, uint32_t buffer_size, bool is_written);

/* Takes the number of a buffer that the device does not have. False: it has all of them. */
bool virtqueue_free(const struct virtqueue *queue, uint16_t *number);

/* Gives a buffer, which the device does not have, with `bytes` of it to the device. */
void virtqueue_offer(struct virtqueue *queue, uint16_t number, uint32_t bytes);

/* Whether the device wants to be notified of what was offered. */
bool virtqueue_wants_notification(const struct virtqueue *queue);

/* Takes the next buffer that the device has given back, with so many bytes written. */
enum virtqueue_result virtqueue_take(struct virtqueue *queue, uint16_t *number, uint32_t *bytes);

#endif
