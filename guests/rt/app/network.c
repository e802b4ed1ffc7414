/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "network.h"

#include <stdbool.h>

#include "FreeRTOS.h"
#include "console.h"
#include "gic.h"
#include "irq.h"
#include "lwip/apps/lwiperf.h"
#include "lwip/etharp.h"
#include "lwip/init.h"
#include "lwip/netif.h"
#include "lwip/sys.h"
#include "lwip/tcp.h"
#include "lwip/timeouts.h"
#include "netif/ethernet.h"
#include "task.h"
#include "tasks.h"
#include "tcpecho.h"
#include "virtio_net.h"

#define STACK_WORDS 1024u
#define PAYLOAD_MAX 1500u

/*
 * What the task does within a tick; after that, it waits for the next tick. So a peer that sends without end costs the tasks of
 * higher priority ROUNDS_PER_TICK interrupts in each tick, and the guests of lower priority on this core FRAMES_PER_TICK frames.
 */
#define ROUNDS_PER_TICK 16u
#define FRAMES_PER_TICK 24u

static StaticTask_t task_memory;
static StackType_t stack[STACK_WORDS];
static TaskHandle_t task;

static struct network_card card;
static uint32_t own_address;
static uint32_t own_prefix;
static struct netif netif;

/* What lwIP holds of the card's received frames, by their numbers. */
static struct pbuf_custom frames[VIRTQUEUE_SIZE];

/* The tick in which the task works, and what it has done in it. */
static TickType_t tick;
static uint32_t rounds;
static uint32_t frames_taken;

/* Milliseconds, for lwIP. */
uint32_t sys_now(void) {
    _Static_assert(configTICK_RATE_HZ == 1000, "a tick is a millisecond");
    return (uint32_t)xTaskGetTickCount();
}

void network_stop(const char *why) {
    gic_mask_spi(card.interrupt);
    console_printf("rt-network: stopped: %s\n", why);
    for (;;) {
        vTaskSuspend(NULL);
    }
}

/* Held back until the task allows it again. */
static void interrupt(void) {
    BaseType_t woken = pdFALSE;

    gic_mask_spi(card.interrupt);
    vTaskNotifyGiveFromISR(task, &woken);
    portYIELD_FROM_ISR(woken);
}

/* lwIP has done with a received frame: the card gets its buffer back. */
static void release(struct pbuf *pbuf) {
    virtio_net_release((uint16_t)((struct pbuf_custom *)pbuf - frames));
}

static err_t transmit(struct netif *unused, struct pbuf *pbuf) {
    uint16_t number;
    void *frame;

    (void)unused;
    if (pbuf->tot_len > VIRTIO_NET_FRAME_MAX) {
        return ERR_BUF;
    }
    frame = virtio_net_frame(&number);
    if (frame == NULL) {
        return ERR_MEM; /* TCP sends it again */
    }
    pbuf_copy_partial(pbuf, frame, pbuf->tot_len, 0);
    virtio_net_transmit(number, pbuf->tot_len);
    return ERR_OK;
}

static err_t init_netif(struct netif *own) {
    own->name[0] = 'v';
    own->name[1] = 'n';
    own->output = etharp_output;
    own->linkoutput = transmit;
    own->mtu = PAYLOAD_MAX;
    own->hwaddr_len = VIRTIO_NET_MAC_SIZE;
    own->flags = NETIF_FLAG_BROADCAST | NETIF_FLAG_ETHARP | NETIF_FLAG_ETHERNET;
    return virtio_net_start(card.registers, own->hwaddr) ? ERR_OK : ERR_IF;
}

static void follow_carrier(void) {
    bool is_up = virtio_net_has_carrier();

    if (is_up && !netif_is_link_up(&netif)) {
        netif_set_link_up(&netif);
    } else if (!is_up && netif_is_link_up(&netif)) {
        netif_set_link_down(&netif);
        /* The peer has ended or begun anew: it knows no connection of before. */
        tcpecho_end_all();
    }
}

/* Takes one frame. False: there is none. */
static bool receive(void) {
    uint16_t number;
    void *frame;
    uint32_t bytes;

    switch (virtio_net_receive(&number, &frame, &bytes)) {
    case VIRTQUEUE_EMPTY:
        return false;
    case VIRTQUEUE_BROKEN:
        network_stop("the card does not follow the rules of virtio");
    case VIRTQUEUE_TAKEN:
        break;
    }
    frames[number].custom_free_function = release;
    struct pbuf *pbuf =
        pbuf_alloced_custom(PBUF_RAW, (u16_t)bytes, PBUF_REF, &frames[number], frame, VIRTIO_NET_FRAME_MAX);
    if (netif.input(pbuf, &netif) != ERR_OK) {
        pbuf_free(pbuf);
    }
    return true;
}

/* Takes the frames that have come, as many as it may in this tick. False: there may be more. */
static bool receive_all(void) {
    bool all = false;

    while (!all && frames_taken < FRAMES_PER_TICK) {
        all = !receive();
        frames_taken += all ? 0 : 1;
    }
    virtio_net_released();
    return all;
}

static void look_at_tick(void) {
    if (tick != xTaskGetTickCount()) {
        tick = xTaskGetTickCount();
        rounds = 0;
        frames_taken = 0;
    }
}

static void wait_for_next_tick(void) {
    while (tick == xTaskGetTickCount()) {
        ulTaskNotifyTake(pdTRUE, 1);
    }
}

/* Waits for the card, or for the next time that lwIP has something to do. */
static void wait(void) {
    uint32_t ms = sys_timeouts_sleeptime();

    gic_unmask_spi(card.interrupt);
    ulTaskNotifyTake(pdTRUE, ms == SYS_TIMEOUTS_SLEEPTIME_INFINITE ? portMAX_DELAY : ms);
}

static void report_iperf(void *unused, enum lwiperf_report_type type, const ip_addr_t *own, u16_t own_port,
                         const ip_addr_t *peer, u16_t peer_port, u32_t bytes, u32_t ms, u32_t kbit_per_s) {
    bool is_done = type == LWIPERF_TCP_DONE_SERVER || type == LWIPERF_TCP_DONE_CLIENT;

    (void)unused, (void)own, (void)own_port, (void)peer, (void)peer_port;
    console_printf("rt-iperf ok=%lu bytes=%lu ms=%lu kbit_per_s=%lu\n", (uint64_t)is_done, (uint64_t)bytes, (uint64_t)ms,
                   (uint64_t)kbit_per_s);
}

/*
 * An iperf client can ask the server to connect to it, for a test in the other direction. If it then refuses, lwIP 2.1.3 frees
 * the connection twice (lwiperf_tcp_err closes what tcp_input frees). So lwiperf.c is compiled with this instead of tcp_connect.
 */
err_t network_refuse_connect(struct tcp_pcb *pcb, const ip_addr_t *peer, u16_t port, tcp_connected_fn connected);

err_t network_refuse_connect(struct tcp_pcb *pcb, const ip_addr_t *peer, u16_t port, tcp_connected_fn connected) {
    (void)pcb, (void)peer, (void)port, (void)connected;
    return ERR_VAL;
}

static void start(void) {
    ip4_addr_t address = {lwip_htonl(own_address)};
    ip4_addr_t mask = {lwip_htonl(UINT32_MAX << (32 - own_prefix))};
    ip4_addr_t gateway = {0};

    lwip_init();
    if (netif_add(&netif, &address, &mask, &gateway, NULL, init_netif, ethernet_input) == NULL) {
        network_stop("the card refuses to work with this driver");
    }
    netif_set_default(&netif);
    netif_set_up(&netif);
    follow_carrier();
    if (!tcpecho_start() || lwiperf_start_tcp_server_default(report_iperf, NULL) == NULL) {
        network_stop("lwIP has no memory for the servers");
    }
    irq_enable_spi(card.interrupt, interrupt);
}

static void network(void *unused) {
    (void)unused;
    start();
    for (;;) {
        look_at_tick();
        rounds++;
        if (virtio_net_acknowledge()) {
            follow_carrier();
        }
        while (!receive_all()) {
            sys_check_timeouts();
            wait_for_next_tick();
            look_at_tick();
        }
        sys_check_timeouts();
        if (rounds >= ROUNDS_PER_TICK) {
            wait_for_next_tick();
        }
        wait();
    }
}

void network_create(const struct network_card *where, uint32_t address, uint32_t prefix) {
    card = *where;
    own_address = address;
    own_prefix = prefix;
    task = xTaskCreateStatic(network, "network", STACK_WORDS, NULL, PRIORITY_NETWORK, stack, &task_memory);
}
