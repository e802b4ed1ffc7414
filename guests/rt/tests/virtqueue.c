/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Tests of the driver's side of a virtqueue: with a device that follows the rules, and with a device that breaks them. */
#include "virtqueue.h"

#include <stdlib.h>
#include <string.h>

#include "check.h"

#define BUFFER 64u

static uint8_t buffers[VIRTQUEUE_SIZE][BUFFER];

/* A queue in an allocation of its own, for the address sanitizer. */
static struct virtqueue *new_queue(bool is_written) {
    struct virtqueue *queue = aligned_alloc(16, (sizeof *queue + 15) / 16 * 16);

    memset(queue, 0, sizeof *queue);
    virtqueue_init(queue, buffers, BUFFER, is_written);
    return queue;
}

/* The device gives back what it likes. */
static void give_back(struct virtqueue *queue, uint32_t number, uint32_t bytes) {
    queue->used.ring[queue->used.index % VIRTQUEUE_SIZE] = (struct virtqueue_used){number, bytes};
    queue->used.index++;
}

static void layout_is_that_of_the_standard(void) {
    struct virtqueue *queue = new_queue(true);

    CHECK_EQUAL((uintptr_t)queue->descriptors % 16, 0);
    CHECK_EQUAL((uintptr_t)&queue->available_flags % 2, 0);
    CHECK_EQUAL((uintptr_t)&queue->available_index - (uintptr_t)&queue->available_flags, 2);
    CHECK_EQUAL((uintptr_t)queue->available - (uintptr_t)&queue->available_flags, 4);
    CHECK_EQUAL((uintptr_t)&queue->used % 4, 0);
    CHECK_EQUAL((uintptr_t)queue->used.ring - (uintptr_t)&queue->used, 4);
    CHECK_EQUAL(queue->descriptors[3].address, (uintptr_t)buffers[3]);
    CHECK_EQUAL(queue->descriptors[3].flags, 2);
    CHECK_EQUAL(queue->available_flags, 0);
    free(queue);
    queue = new_queue(false);
    CHECK_EQUAL(queue->descriptors[3].flags, 0);
    CHECK_EQUAL(queue->available_flags, 1);
    free(queue);
}

static void asks_for_notifications(void) {
    struct virtqueue *queue = new_queue(false);

    CHECK(virtqueue_wants_notification(queue));
    queue->used.flags = 1;
    CHECK(!virtqueue_wants_notification(queue));
    free(queue);
}

/* A device that gives buffers back in any order, for so long that all indices wrap round. */
static void every_buffer_comes_back_once(void) {
    struct virtqueue *queue = new_queue(false);
    uint32_t at_device = 0; /* a bit for each buffer that the device has and has not given back */
    uint32_t given = 0;     /* buffers that the device has given back and the driver has not taken */
    uint32_t lengths[VIRTQUEUE_SIZE];
    uint16_t looked_at = 0;
    uint64_t state = 0x51;
    uint16_t number;
    uint32_t bytes;

    for (unsigned round = 0; round < 500000; round++) {
        switch (random_next(&state) % 3) {
        case 0:
            if (virtqueue_free(queue, &number)) {
                CHECK(number < VIRTQUEUE_SIZE && (at_device & 1u << number) == 0);
                virtqueue_offer(queue, number, (uint32_t)(random_next(&state) % BUFFER));
            } else {
                CHECK_EQUAL(queue->offered, UINT32_MAX);
            }
            break;
        case 1:
            while (looked_at != queue->available_index) {
                number = queue->available[looked_at++ % VIRTQUEUE_SIZE];
                CHECK((at_device & 1u << number) == 0);
                at_device |= 1u << number;
                lengths[number] = queue->descriptors[number].bytes;
            }
            if (at_device != 0) {
                number = (uint16_t)(random_next(&state) % VIRTQUEUE_SIZE);
                while ((at_device & 1u << number) == 0) {
                    number = (uint16_t)((number + 1) % VIRTQUEUE_SIZE);
                }
                at_device &= ~(1u << number);
                give_back(queue, number, lengths[number]);
                given++;
            }
            break;
        default:
            if (given == 0) {
                CHECK(virtqueue_take(queue, &number, &bytes) == VIRTQUEUE_EMPTY);
            } else {
                CHECK(virtqueue_take(queue, &number, &bytes) == VIRTQUEUE_TAKEN);
                CHECK_EQUAL(bytes, lengths[number]);
                CHECK((queue->offered & 1u << number) == 0);
                given--;
            }
        }
    }
    free(queue);
}

static void refuses_what_the_device_must_not_do(void) {
    static const struct {
        uint32_t number;
        uint32_t bytes;
    } cases[] = {{VIRTQUEUE_SIZE, 0}, {UINT32_MAX, 0}, {65536 + 5, 0}, {6, 0} /* not offered */, {5, BUFFER + 1}};
    uint16_t number;
    uint32_t bytes;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct virtqueue *queue = new_queue(true);
        virtqueue_offer(queue, 5, BUFFER);
        give_back(queue, cases[i].number, cases[i].bytes);
        CHECK(virtqueue_take(queue, &number, &bytes) == VIRTQUEUE_BROKEN);
        free(queue);
    }
    /* Twice the same one. */
    struct virtqueue *queue = new_queue(true);
    virtqueue_offer(queue, 5, BUFFER);
    give_back(queue, 5, BUFFER);
    give_back(queue, 5, BUFFER);
    CHECK(virtqueue_take(queue, &number, &bytes) == VIRTQUEUE_TAKEN);
    CHECK_EQUAL(number, 5);
    CHECK_EQUAL(bytes, BUFFER);
    CHECK(virtqueue_take(queue, &number, &bytes) == VIRTQUEUE_BROKEN);
    free(queue);
}

void test_virtqueue(void) {
    layout_is_that_of_the_standard();
    asks_for_notifications();
    every_buffer_comes_back_once();
    refuses_what_the_device_must_not_do();
}
