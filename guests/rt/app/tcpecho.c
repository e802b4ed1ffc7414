/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "tcpecho.h"

#include <stddef.h>
#include <stdint.h>

#include "lwip/tcp.h"

#define PORT 7u
#define CONNECTIONS 4u

/* A power of two, so that the positions in it go on where the counters wrap round. */
#define RING_SIZE 16384u

/* How often a connection that had no memory tries again, in half seconds. */
#define POLL_EVERY 1u

_Static_assert(RING_SIZE >= TCP_WND, "the peer may send a window");

/*
 * A received byte is in the ring until the peer has acknowledged its echo, and only then the window opens for another one. So
 * the ring holds whatever a peer may send.
 */
struct connection {
    struct tcp_pcb *pcb; /* NULL: free */
    uint32_t received;   /* bytes in all */
    uint32_t sent;       /* of these given to lwIP, which does not copy them */
    uint32_t acknowledged;
    bool has_ended; /* the peer sends no more */
    uint8_t ring[RING_SIZE];
};

static struct connection connections[CONNECTIONS];

static uint32_t least(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

/* The connection is free, and lwIP calls nothing for it any more. */
static void leave(struct connection *connection) {
    struct tcp_pcb *pcb = connection->pcb;

    connection->pcb = NULL;
    tcp_arg(pcb, NULL);
    tcp_recv(pcb, NULL);
    tcp_sent(pcb, NULL);
    tcp_err(pcb, NULL);
    tcp_poll(pcb, NULL, 0);
}

/* Sends what lwIP has room for, and closes when all is done. */
static err_t go_on(struct connection *connection) {
    struct tcp_pcb *pcb = connection->pcb;

    while (connection->sent != connection->received) {
        uint32_t at = connection->sent % RING_SIZE;
        uint32_t bytes = least(connection->received - connection->sent, RING_SIZE - at);

        bytes = least(bytes, tcp_sndbuf(pcb));
        if (bytes == 0 || tcp_write(pcb, &connection->ring[at], (u16_t)bytes, 0) != ERR_OK) {
            break; /* until the peer has acknowledged, or the next poll */
        }
        connection->sent += bytes;
    }
    if (connection->has_ended && connection->acknowledged == connection->received) {
        leave(connection);
        if (tcp_close(pcb) != ERR_OK) {
            tcp_abort(pcb);
            return ERR_ABRT;
        }
        return ERR_OK;
    }
    tcp_output(pcb);
    return ERR_OK;
}

static err_t on_received(void *argument, struct tcp_pcb *pcb, struct pbuf *pbuf, err_t error) {
    struct connection *connection = argument;

    (void)pcb, (void)error;
    if (pbuf == NULL) {
        connection->has_ended = true;
        return go_on(connection);
    }
    LWIP_ASSERT("more than the window", connection->received - connection->acknowledged + pbuf->tot_len <= RING_SIZE);
    uint32_t at = connection->received % RING_SIZE;
    u16_t first = (u16_t)least(pbuf->tot_len, RING_SIZE - at);
    pbuf_copy_partial(pbuf, &connection->ring[at], first, 0);
    pbuf_copy_partial(pbuf, connection->ring, (u16_t)(pbuf->tot_len - first), first);
    connection->received += pbuf->tot_len;
    pbuf_free(pbuf);
    return go_on(connection);
}

static err_t on_acknowledged(void *argument, struct tcp_pcb *pcb, u16_t bytes) {
    struct connection *connection = argument;

    connection->acknowledged += bytes;
    tcp_recved(pcb, bytes);
    return go_on(connection);
}

static err_t on_poll(void *argument, struct tcp_pcb *pcb) {
    (void)pcb;
    return go_on(argument);
}

/* lwIP has ended the connection, and the peer knows it or does not answer. */
static void on_error(void *argument, err_t error) {
    struct connection *connection = argument;

    (void)error;
    connection->pcb = NULL;
}

static err_t on_accept(void *unused, struct tcp_pcb *pcb, err_t error) {
    (void)unused;
    if (error != ERR_OK || pcb == NULL) {
        return ERR_VAL;
    }
    for (size_t i = 0; i < CONNECTIONS; i++) {
        struct connection *connection = &connections[i];

        if (connection->pcb != NULL) {
            continue;
        }
        connection->pcb = pcb;
        connection->received = connection->sent = connection->acknowledged = 0;
        connection->has_ended = false;
        tcp_arg(pcb, connection);
        tcp_recv(pcb, on_received);
        tcp_sent(pcb, on_acknowledged);
        tcp_err(pcb, on_error);
        tcp_poll(pcb, on_poll, POLL_EVERY);
        return ERR_OK;
    }
    return ERR_MEM; /* lwIP resets it */
}

bool tcpecho_start(void) {
    struct tcp_pcb *pcb = tcp_new();

    if (pcb == NULL || tcp_bind(pcb, IP_ADDR_ANY, PORT) != ERR_OK) {
        return false;
    }
    pcb = tcp_listen(pcb);
    if (pcb == NULL) {
        return false;
    }
    tcp_accept(pcb, on_accept);
    return true;
}

void tcpecho_end_all(void) {
    for (size_t i = 0; i < CONNECTIONS; i++) {
        struct tcp_pcb *pcb = connections[i].pcb;

        if (pcb != NULL) {
            leave(&connections[i]);
            tcp_abort(pcb);
        }
    }
}
