/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "virtio_net.h"

#include <stddef.h>

#include "sysreg.h"

/* Registers (4.2.2) and their values. */
#define MAGIC_VALUE 0x000u
#define MAGIC 0x74726976u /* virt */
#define VERSION 0x004u
#define VERSION_2 2u
#define DEVICE_ID 0x008u
#define DEVICE_NETWORK 1u
#define DEVICE_FEATURES 0x010u
#define DEVICE_FEATURES_SEL 0x014u
#define DRIVER_FEATURES 0x020u
#define DRIVER_FEATURES_SEL 0x024u
#define QUEUE_SEL 0x030u
#define QUEUE_NUM_MAX 0x034u
#define QUEUE_NUM 0x038u
#define QUEUE_READY 0x044u
#define QUEUE_NOTIFY 0x050u
#define INTERRUPT_STATUS 0x060u
#define INTERRUPT_ACK 0x064u
#define INTERRUPT_CONFIG (1u << 1)
#define STATUS 0x070u
#define QUEUE_DESCRIPTORS 0x080u /* each of these has a lower and an upper word */
#define QUEUE_DRIVER 0x090u
#define QUEUE_DEVICE 0x0A0u
#define CONFIG 0x100u /* the card's address in 6 bytes, its status in 2 (5.1.4) */
#define CONFIG_LINK_UP (1u << 16)

/* STATUS (2.1). */
#define STATUS_ACKNOWLEDGE (1u << 0)
#define STATUS_DRIVER (1u << 1)
#define STATUS_DRIVER_OK (1u << 2)
#define STATUS_FEATURES_OK (1u << 3)

/* Features: those of a card (5.1.3), and in the upper word VIRTIO_F_VERSION_1 (6). */
#define FEATURES_LOW (1u << 5 | 1u << 16) /* VIRTIO_NET_F_MAC, VIRTIO_NET_F_STATUS */
#define FEATURES_HIGH (1u << 0)

#define RECEIVE 0u
#define TRANSMIT 1u

/* A reset is done when the status reads as 0. */
#define POLL_LIMIT 1000000u

/* virtio_net_hdr before each frame (5.1.6): all zero for a driver that has none of the features that it is for. */
#define HEADER 12u

struct buffer {
    uint8_t header[HEADER];
    uint8_t frame[VIRTIO_NET_FRAME_MAX];
};

static uintptr_t card;
static struct virtqueue received;
static struct virtqueue transmitted;
static struct buffer received_buffers[VIRTQUEUE_SIZE];
static struct buffer transmitted_buffers[VIRTQUEUE_SIZE];

static uint32_t read(uint32_t reg) {
    return mmio_read32(card + reg);
}

static void write(uint32_t reg, uint32_t value) {
    mmio_write32(card + reg, value);
}

static void write_address(uint32_t reg, const void *address) {
    write(reg, (uint32_t)(uintptr_t)address);
    write(reg + 4, (uint32_t)((uintptr_t)address >> 32));
}

bool virtio_net_is_card(uintptr_t registers) {
    return mmio_read32(registers + MAGIC_VALUE) == MAGIC && mmio_read32(registers + VERSION) == VERSION_2 &&
           mmio_read32(registers + DEVICE_ID) == DEVICE_NETWORK;
}

static bool reset(void) {
    write(STATUS, 0);
    for (uint32_t polls = 0; polls < POLL_LIMIT; polls++) {
        if (read(STATUS) == 0) {
            return true;
        }
    }
    return false;
}

/* Whether the card has all features that the driver needs, and works with these alone. */
static bool agree_on_features(void) {
    write(DEVICE_FEATURES_SEL, 0);
    uint32_t low = read(DEVICE_FEATURES);
    write(DEVICE_FEATURES_SEL, 1);
    uint32_t high = read(DEVICE_FEATURES);

    if ((low & FEATURES_LOW) != FEATURES_LOW || (high & FEATURES_HIGH) != FEATURES_HIGH) {
        return false;
    }
    write(DRIVER_FEATURES_SEL, 0);
    write(DRIVER_FEATURES, FEATURES_LOW);
    write(DRIVER_FEATURES_SEL, 1);
    write(DRIVER_FEATURES, FEATURES_HIGH);
    write(STATUS, STATUS_ACKNOWLEDGE | STATUS_DRIVER | STATUS_FEATURES_OK);
    return (read(STATUS) & STATUS_FEATURES_OK) != 0;
}

static bool start_queue(uint32_t number, struct virtqueue *queue) {
    write(QUEUE_SEL, number);
    if (read(QUEUE_READY) != 0 || read(QUEUE_NUM_MAX) < VIRTQUEUE_SIZE) {
        return false;
    }
    write(QUEUE_NUM, VIRTQUEUE_SIZE);
    write_address(QUEUE_DESCRIPTORS, queue->descriptors);
    write_address(QUEUE_DRIVER, &queue->available_flags);
    write_address(QUEUE_DEVICE, &queue->used);
    write(QUEUE_READY, 1);
    return true;
}

static void notify(uint32_t number, const struct virtqueue *queue) {
    if (virtqueue_wants_notification(queue)) {
        /* What the device is to find is written before. */
        dsb();
        write(QUEUE_NOTIFY, number);
    }
}

bool virtio_net_start(uintptr_t registers, uint8_t mac[VIRTIO_NET_MAC_SIZE]) {
    card = registers;
    if (!reset()) {
        return false;
    }
    write(STATUS, STATUS_ACKNOWLEDGE | STATUS_DRIVER);
    virtqueue_init(&received, received_buffers, sizeof(struct buffer), true);
    virtqueue_init(&transmitted, transmitted_buffers, sizeof(struct buffer), false);
    if (!agree_on_features() || !start_queue(RECEIVE, &received) || !start_queue(TRANSMIT, &transmitted)) {
        return false;
    }
    for (uint32_t i = 0; i < VIRTIO_NET_MAC_SIZE; i++) {
        uint32_t word = read(CONFIG + i / 4 * 4);
        mac[i] = (uint8_t)(word >> i % 4 * 8);
    }
    for (uint16_t i = 0; i < VIRTQUEUE_SIZE; i++) {
        virtio_net_release(i);
    }
    write(STATUS, STATUS_ACKNOWLEDGE | STATUS_DRIVER | STATUS_FEATURES_OK | STATUS_DRIVER_OK);
    virtio_net_released();
    return true;
}

bool virtio_net_acknowledge(void) {
    uint32_t interrupts = read(INTERRUPT_STATUS);

    write(INTERRUPT_ACK, interrupts);
    return (interrupts & INTERRUPT_CONFIG) != 0;
}

bool virtio_net_has_carrier(void) {
    return (read(CONFIG + 4) & CONFIG_LINK_UP) != 0;
}

enum virtqueue_result virtio_net_receive(uint16_t *number, void **frame, uint32_t *bytes) {
    enum virtqueue_result result = virtqueue_take(&received, number, bytes);

    if (result != VIRTQUEUE_TAKEN) {
        return result;
    }
    if (*bytes < HEADER) {
        return VIRTQUEUE_BROKEN;
    }
    *frame = received_buffers[*number].frame;
    *bytes -= HEADER;
    return VIRTQUEUE_TAKEN;
}

void virtio_net_release(uint16_t number) {
    virtqueue_offer(&received, number, sizeof(struct buffer));
}

void virtio_net_released(void) {
    notify(RECEIVE, &received);
}

void *virtio_net_frame(uint16_t *number) {
    uint16_t done;
    uint32_t unused;

    while (virtqueue_take(&transmitted, &done, &unused) == VIRTQUEUE_TAKEN) {
    }
    return virtqueue_free(&transmitted, number) ? transmitted_buffers[*number].frame : NULL;
}

void virtio_net_transmit(uint16_t number, uint32_t bytes) {
    virtqueue_offer(&transmitted, number, HEADER + bytes);
    notify(TRANSMIT, &transmitted);
}
