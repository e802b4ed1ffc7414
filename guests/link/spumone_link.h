/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Messages over a memory link of Spumone, for bare-metal guests and for programs of Linux (through /dev/mem; they wait for
 * the signal with the GPIO controller of the link, as guests/linux/programs/linkecho.c does).
 *
 * The device tree has a node for each link, `compatible = "spumone,link-memory"`: `reg` has the page of registers and the
 * memory, `interrupts` the interrupt, `label` the name of the peer. Map both as device memory or as memory that is not
 * cached: the hypervisor lets neither guest cache the memory. It is accessed in aligned words of 32 bits only, as device
 * memory demands.
 *
 *     struct spumone_link link;
 *     if (!spumone_link_open(&link, registers, memory)) …          // not a link, or this guest may not write
 *     switch (spumone_link_send(&link, "hello", 5)) {
 *     case SPUMONE_LINK_DONE:   break;                             // it is in the ring
 *     case SPUMONE_LINK_FULL:   …                                  // try again after an interrupt
 *     case SPUMONE_LINK_DOWN:   …                                  // what was under way is lost: begin anew
 *     case SPUMONE_LINK_LARGE:  …                                  // it never fits
 *     case SPUMONE_LINK_BROKEN: …                                  // wait a tick: only the peer can mend it, by opening anew
 *     }
 *     bytes = spumone_link_receive(&link, buffer, sizeof buffer);  // or EMPTY, or as above, but for FULL
 *
 * A guest that waits for the interrupt does so in this order, else a message may be there and nobody wakes:
 *
 *     spumone_link_poll(&link);  handle all messages until EMPTY;  spumone_link_arm(&link);
 *     handle all messages again; if there was none, wait for the interrupt
 *
 * Each guest writes one half of the memory: a header, and a ring of 32-bit words. A message is its length in bytes and
 * the bytes, padded to whole words. A ring has a power of two of words, so the largest message has 4 bytes less than the
 * largest power of two that is below half the memory: 1020 bytes with 4 KiB, 16380 with 64 KiB, 4194300 with 16 MiB.
 *
 * Each opening of an end begins a session, whether the guest has restarted or only its program. The rings are empty then,
 * and so is the peer's as soon as it sees the new session, which it learns as DOWN: nothing that was sent in a former
 * session is received. The peer is not trusted: whatever it writes, these functions stay within the memory and the buffers,
 * and end.
 *
 * Needs C11 and the atomics of GCC or Clang. One thread at a time may use a link.
 */
#ifndef SPUMONE_LINK_H
#define SPUMONE_LINK_H

#include <stdbool.h>
#include <stdint.h>

/* Registers, in 32-bit words from the start of their page. */
enum {
    SPUMONE_LINK_ID,
    SPUMONE_LINK_VERSION,
    SPUMONE_LINK_SIZE,
    SPUMONE_LINK_ACCESS,
    SPUMONE_LINK_LIFE,
    SPUMONE_LINK_PEER,
    SPUMONE_LINK_SIGNAL,
    SPUMONE_LINK_ACK,
    SPUMONE_LINK_STATUS,
    SPUMONE_LINK_ENDED,
    SPUMONE_LINK_CAUSE,
    SPUMONE_LINK_ENDED_LOW,
    SPUMONE_LINK_ENDED_HIGH,
};
#define SPUMONE_LINK_MAGIC 0x4b4e4c53u /* "SLNK" */
#define SPUMONE_LINK_WRITES 1u
#define SPUMONE_LINK_SECOND 2u

/* Results, where no number of bytes is returned. */
enum spumone_link_result {
    SPUMONE_LINK_DONE = 0,
    SPUMONE_LINK_EMPTY = -1,  /* no message is there */
    SPUMONE_LINK_FULL = -2,   /* there is no room for the message now */
    SPUMONE_LINK_DOWN = -3,   /* the peer has not opened its end, or has opened it anew: what was under way is lost */
    SPUMONE_LINK_LARGE = -4,  /* the message is larger than the ring, or than the buffer; a received one is dropped */
    SPUMONE_LINK_BROKEN = -5, /* the peer has written what makes no sense; the rings begin anew with its next session */
};

/*
 * The header of a half, written by its guest only. Volatile, since a compiler may join plain stores to wide ones, which are
 * not aligned: with device memory they fault.
 */
struct spumone_link_half {
    volatile uint32_t session;      /* the number of the present session; 0 while the end is being opened */
    volatile uint32_t peer_session; /* the session of the peer for which `head` and `tail` count */
    volatile uint32_t head;         /* words that this guest has put into its ring, modulo 2^32 */
    volatile uint32_t tail;         /* words that this guest has taken out of its peer's ring */
    volatile uint32_t waits;        /* whether this guest wants a signal when its peer changes `head` or `tail` */
    volatile uint32_t last_session; /* the largest number that a session had, also if it was not opened to the end */
    volatile uint32_t reserved[10];
    volatile uint32_t ring[];
};

struct spumone_link {
    volatile uint32_t *registers;
    struct spumone_link_half *own;
    struct spumone_link_half *peers;
    uint32_t words; /* of a ring, a power of two */
    uint32_t session;
    bool broken;
};

static inline uint32_t spumone_link_load(const volatile uint32_t *word) {
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static inline void spumone_link_store(volatile uint32_t *word, uint32_t value) {
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

/* Opens this guest's end. False: there is no link at these addresses, or the guest may not write to its memory. */
static inline bool spumone_link_open(struct spumone_link *link, volatile void *registers, volatile void *memory) {
    volatile uint32_t *words = (volatile uint32_t *)registers;
    uint32_t size = words[SPUMONE_LINK_SIZE];
    uint32_t access = words[SPUMONE_LINK_ACCESS];
    char *halves = (char *)memory;

    if (words[SPUMONE_LINK_ID] != SPUMONE_LINK_MAGIC || words[SPUMONE_LINK_VERSION] != 1 ||
        (access & SPUMONE_LINK_WRITES) == 0) {
        return false;
    }
    *link = (struct spumone_link){.registers = words};
    bool second = (access & SPUMONE_LINK_SECOND) != 0;
    link->own = (struct spumone_link_half *)(halves + (second ? size / 2 : 0));
    link->peers = (struct spumone_link_half *)(halves + (second ? 0 : size / 2));
    uint32_t room = size / 2 / 4 - (uint32_t)sizeof(struct spumone_link_half) / 4;
    for (link->words = 1; link->words <= room / 2; link->words *= 2) {
    }
    link->session = spumone_link_load(&link->own->last_session) + 1;
    link->session += link->session == 0;
    /* The peer that sees one of the later stores sees that the old session is over, too: see spumone_link_senseless(). */
    spumone_link_store(&link->own->session, 0);
    spumone_link_store(&link->own->last_session, link->session);
    spumone_link_store(&link->own->peer_session, 0);
    spumone_link_store(&link->own->head, 0);
    spumone_link_store(&link->own->tail, 0);
    spumone_link_store(&link->own->waits, 1);
    spumone_link_store(&link->own->session, link->session);
    words[SPUMONE_LINK_SIGNAL] = 1;
    return true;
}

/*
 * Whether both guests have opened their ends, and know each other's present sessions. If the peer has begun a new session,
 * empties the rings and says false, so that a guest learns that what was under way is lost.
 */
static inline bool spumone_link_is_up(struct spumone_link *link) {
    uint32_t peer_session = spumone_link_load(&link->peers->session);

    if (peer_session == 0) {
        return false;
    }
    if (spumone_link_load(&link->own->peer_session) != peer_session) {
        spumone_link_store(&link->own->head, 0);
        spumone_link_store(&link->own->tail, 0);
        link->broken = false;
        spumone_link_store(&link->own->peer_session, peer_session);
        link->registers[SPUMONE_LINK_SIGNAL] = 1;
        return false;
    }
    return spumone_link_load(&link->peers->peer_session) == link->session && !link->broken;
}

/*
 * What to return when the peer's header makes no sense. If the peer has begun to open its end anew since
 * spumone_link_is_up(), its counts are those of the new session, and nothing is broken.
 */
static inline int spumone_link_senseless(struct spumone_link *link) {
    link->broken = spumone_link_load(&link->peers->session) == spumone_link_load(&link->own->peer_session);
    return link->broken ? SPUMONE_LINK_BROKEN : SPUMONE_LINK_DOWN;
}

/* The peer is to look at this guest's `head` and `tail`, if it waits for them. */
static inline void spumone_link_changed(struct spumone_link *link) {
    /* The change before the look; the peer's spumone_link_arm() does the opposite. */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (spumone_link_load(&link->peers->waits) != 0) {
        link->registers[SPUMONE_LINK_SIGNAL] = 1;
    }
}

/* Sends a message: DONE, FULL, DOWN, LARGE or BROKEN. */
static inline int spumone_link_send(struct spumone_link *link, const void *message, uint32_t bytes) {
    const unsigned char *from = (const unsigned char *)message;
    uint32_t needed = 1 + bytes / 4 + (bytes % 4 != 0);

    if (bytes > (link->words - 1) * 4) {
        return SPUMONE_LINK_LARGE;
    }
    if (!spumone_link_is_up(link)) {
        return link->broken ? SPUMONE_LINK_BROKEN : SPUMONE_LINK_DOWN;
    }
    uint32_t head = spumone_link_load(&link->own->head);
    uint32_t used = head - spumone_link_load(&link->peers->tail);
    if (used > link->words) {
        return spumone_link_senseless(link);
    }
    if (needed > link->words - used) {
        return SPUMONE_LINK_FULL;
    }
    volatile uint32_t *ring = link->own->ring;
    ring[head++ % link->words] = bytes;
    for (uint32_t at = 0; at < bytes; at += 4) {
        uint32_t word = 0;
        for (uint32_t byte = 0; byte < 4 && at + byte < bytes; byte++) {
            word |= (uint32_t)from[at + byte] << 8 * byte;
        }
        ring[head++ % link->words] = word;
    }
    spumone_link_store(&link->own->head, head);
    spumone_link_changed(link);
    return SPUMONE_LINK_DONE;
}

/* Receives a message: its length in bytes, or EMPTY, DOWN, LARGE or BROKEN. */
static inline int spumone_link_receive(struct spumone_link *link, void *buffer, uint32_t room) {
    unsigned char *to = (unsigned char *)buffer;

    if (!spumone_link_is_up(link)) {
        return link->broken ? SPUMONE_LINK_BROKEN : SPUMONE_LINK_DOWN;
    }
    uint32_t tail = spumone_link_load(&link->own->tail);
    uint32_t there = spumone_link_load(&link->peers->head) - tail;
    if (there == 0) {
        return SPUMONE_LINK_EMPTY;
    }
    const volatile uint32_t *ring = link->peers->ring;
    uint32_t bytes = ring[tail % link->words];
    uint32_t words = bytes / 4 + (bytes % 4 != 0);
    if (there > link->words || words > there - 1) {
        return spumone_link_senseless(link);
    }
    for (uint32_t at = 0; at < bytes && bytes <= room; at += 4) {
        uint32_t word = ring[(tail + 1 + at / 4) % link->words];
        for (uint32_t byte = 0; byte < 4 && at + byte < bytes; byte++) {
            to[at + byte] = (unsigned char)(word >> 8 * byte);
        }
    }
    spumone_link_store(&link->own->tail, tail + 1 + words);
    spumone_link_changed(link);
    return bytes <= room ? (int)bytes : SPUMONE_LINK_LARGE;
}

/*
 * To be called before waiting for the interrupt: takes the peer's signal back, and asks for the next one. The guest must
 * then try once more to receive or to send, and wait only if that has nothing to do: its peer may have been faster.
 */
static inline void spumone_link_arm(struct spumone_link *link) {
    link->registers[SPUMONE_LINK_ACK] = 1;
    spumone_link_store(&link->own->waits, 1);
    /* The wish before the next look at the peer's header; spumone_link_changed() does the opposite. */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

/*
 * Whether the peer's guest runs at all. One that has ended does not take its end down: there are no more messages from it
 * (EMPTY), and its ring fills up (FULL). So who waits for long asks now and then; this reads a register, which costs an exit
 * to the hypervisor.
 */
static inline bool spumone_link_peer_runs(const struct spumone_link *link) {
    return link->registers[SPUMONE_LINK_PEER] != 0;
}

/* Why a life of the peer ended. */
enum spumone_link_cause {
    SPUMONE_LINK_OFF = 1,      /* it turned itself off */
    SPUMONE_LINK_RESET = 2,    /* it has reset itself */
    SPUMONE_LINK_FAULT = 3,    /* it did what it may not */
    SPUMONE_LINK_WATCHDOG = 4, /* its watchdog has expired */
    SPUMONE_LINK_OPERATOR = 5, /* the operator restarted it */
    SPUMONE_LINK_IMAGE = 6,    /* its image differs from its hash: it has not run */
    SPUMONE_LINK_TAMPERED = 7, /* its protected memory was changed, or it wrote there */
};

/* The end of a life. */
struct spumone_link_end {
    uint32_t life;  /* the number of the life */
    uint32_t cause; /* enum spumone_link_cause */
    uint64_t ticks; /* when, in ticks of the system counter (CNTVCT_EL0) */
};

/* How the peer's last life ended. False: none has ended, or another one ends right now. Reads registers: five exits to the hypervisor. */
static inline bool spumone_link_peer_ended(const struct spumone_link *link, struct spumone_link_end *end) {
    end->life = link->registers[SPUMONE_LINK_ENDED];
    end->cause = link->registers[SPUMONE_LINK_CAUSE];
    end->ticks = link->registers[SPUMONE_LINK_ENDED_LOW];
    end->ticks |= (uint64_t)link->registers[SPUMONE_LINK_ENDED_HIGH] << 32;
    return end->life != 0 && end->life == link->registers[SPUMONE_LINK_ENDED];
}

/* The guest looks at the link by itself for a while: the peer need not signal. */
static inline void spumone_link_poll(struct spumone_link *link) {
    spumone_link_store(&link->own->waits, 0);
}

#endif
