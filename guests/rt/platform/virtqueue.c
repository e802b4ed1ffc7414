/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "virtqueue.h"

/* Flags of a descriptor (2.7.5), of the available ring (2.7.6) and of the used ring (2.7.8). */
#define DESCRIPTOR_WRITE (1u << 1)
#define AVAILABLE_NO_INTERRUPT ((uint16_t)1)
#define USED_NO_NOTIFY (1u << 0)

#define ALL_BUFFERS UINT32_MAX

_Static_assert(VIRTQUEUE_SIZE == 32, "`offered` has a bit for each buffer");
_Static_assert(sizeof(struct virtqueue_descriptor) == 16, "as in 2.7.5");
_Static_assert(sizeof(struct virtqueue_used) == 8, "as in 2.7.8");

void virtqueue_init(struct virtqueue *queue, const void *buffers, uint32_t buffer_size, bool is_written) {
    for (uint16_t i = 0; i < VIRTQUEUE_SIZE; i++) {
        queue->descriptors[i].address = (uintptr_t)buffers + (uintptr_t)i * buffer_size;
        queue->descriptors[i].flags = is_written ? DESCRIPTOR_WRITE : 0;
    }
    if (!is_written) {
        queue->available_flags = AVAILABLE_NO_INTERRUPT;
    }
    queue->buffer_size = buffer_size;
}

bool virtqueue_free(const struct virtqueue *queue, uint16_t *number) {
    uint32_t free = queue->offered ^ ALL_BUFFERS;

    if (free == 0) {
        return false;
    }
    *number = (uint16_t)__builtin_ctz(free);
    return true;
}

void virtqueue_offer(struct virtqueue *queue, uint16_t number, uint32_t bytes) {
    uint16_t index = queue->available_index;

    queue->descriptors[number].bytes = bytes;
    queue->available[index % VIRTQUEUE_SIZE] = number;
    queue->offered |= 1u << number;
    /* The device reads the entry and the descriptor only after the index. */
    __atomic_store_n(&queue->available_index, (uint16_t)(index + 1), __ATOMIC_RELEASE);
}

bool virtqueue_wants_notification(const struct virtqueue *queue) {
    /* The index is written before the device's wish is read; the device does the opposite. */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return (__atomic_load_n(&queue->used.flags, __ATOMIC_RELAXED) & USED_NO_NOTIFY) == 0;
}

enum virtqueue_result virtqueue_take(struct virtqueue *queue, uint16_t *number, uint32_t *bytes) {
    uint16_t index = __atomic_load_n(&queue->used.index, __ATOMIC_ACQUIRE);

    if (index == queue->taken) {
        return VIRTQUEUE_EMPTY;
    }
    const struct virtqueue_used *entry = &queue->used.ring[queue->taken % VIRTQUEUE_SIZE];
    uint32_t taken = __atomic_load_n(&entry->number, __ATOMIC_RELAXED);
    uint32_t written = __atomic_load_n(&entry->bytes, __ATOMIC_RELAXED);

    if (taken >= VIRTQUEUE_SIZE || (queue->offered & 1u << taken) == 0 || written > queue->buffer_size) {
        return VIRTQUEUE_BROKEN;
    }
    queue->taken++;
    queue->offered &= ~(1u << taken);
    *number = (uint16_t)taken;
    *bytes = written;
    return VIRTQUEUE_TAKEN;
}
