/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Tests of spumone_link.h on the host: both ends in one program, without signals. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spumone_link.h"

#define MEMORY 1024u
#define MESSAGES 200000u
#define BUFFER 600u

static _Atomic unsigned checks;

#define CHECK(condition)                                                        \
    do {                                                                        \
        checks++;                                                               \
        if (!(condition)) {                                                     \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);     \
            exit(1);                                                            \
        }                                                                       \
    } while (0)

static uint32_t memory[MEMORY / 4];

/* The page of registers of one end, as far as the functions read it. */
struct end {
    uint32_t registers[16];
    struct spumone_link link;
};

/* A guest or its program begins: nothing of its own memory is left. */
static void restart(struct end *end, bool second) {
    memset(end, 0, sizeof *end);
    end->registers[SPUMONE_LINK_ID] = SPUMONE_LINK_MAGIC;
    end->registers[SPUMONE_LINK_VERSION] = 1;
    end->registers[SPUMONE_LINK_SIZE] = MEMORY;
    end->registers[SPUMONE_LINK_ACCESS] = SPUMONE_LINK_WRITES | (second ? SPUMONE_LINK_SECOND : 0);
    end->registers[SPUMONE_LINK_LIFE] = 1;
    CHECK(spumone_link_open(&end->link, end->registers, memory));
}

/* Both ends see each other. */
static void connect(struct end *one, struct end *other) {
    for (int look = 0; look < 2; look++) {
        (void)spumone_link_is_up(&one->link);
        (void)spumone_link_is_up(&other->link);
    }
    CHECK(spumone_link_is_up(&one->link) && spumone_link_is_up(&other->link));
}

static void fill(unsigned char *message, uint32_t bytes, uint32_t number) {
    for (uint32_t at = 0; at < bytes; at++) {
        message[at] = (unsigned char)(number * 31 + at);
    }
}

static void a_link_must_be_one(void) {
    struct end end;
    memset(memory, 0, sizeof memory);
    restart(&end, false);
    end.registers[SPUMONE_LINK_ID]++;
    CHECK(!spumone_link_open(&end.link, end.registers, memory));
    end.registers[SPUMONE_LINK_ID]--;
    end.registers[SPUMONE_LINK_ACCESS] = 0;
    CHECK(!spumone_link_open(&end.link, end.registers, memory));
}

static void messages_of_all_sizes_arrive_in_order(void) {
    static unsigned char message[BUFFER], received[BUFFER];
    struct end one, other;
    memset(memory, 0, sizeof memory);
    restart(&one, false);
    CHECK(spumone_link_send(&one.link, message, 1) == SPUMONE_LINK_DOWN);
    restart(&other, true);
    connect(&one, &other);
    uint32_t most = (one.link.words - 1) * 4;
    CHECK(one.link.words == 64 && most < BUFFER);
    CHECK(spumone_link_receive(&other.link, received, BUFFER) == SPUMONE_LINK_EMPTY);
    for (uint32_t bytes = 0; bytes <= most; bytes++) {
        fill(message, bytes, bytes);
        CHECK(spumone_link_send(&one.link, message, bytes) == SPUMONE_LINK_DONE);
        memset(received, 0xff, sizeof received);
        CHECK(spumone_link_receive(&other.link, received, BUFFER) == (int)bytes);
        CHECK(memcmp(message, received, bytes) == 0 && received[bytes] == 0xff);
    }
    CHECK(spumone_link_send(&one.link, message, most + 1) == SPUMONE_LINK_LARGE);
    CHECK(spumone_link_send(&one.link, message, UINT32_MAX) == SPUMONE_LINK_LARGE);
    /* A full ring holds the sender back. */
    uint32_t sent = 0;
    while (spumone_link_send(&one.link, message, 8) == SPUMONE_LINK_DONE) {
        sent++;
    }
    CHECK(sent == 21 && spumone_link_send(&one.link, message, 8) == SPUMONE_LINK_FULL);
    CHECK(spumone_link_receive(&other.link, received, 7) == SPUMONE_LINK_LARGE);
    CHECK(spumone_link_send(&one.link, message, 8) == SPUMONE_LINK_DONE);
}

/* The states of one end that another opening finds. */
enum state { CONNECTED, HAS_SENT, HAS_A_MESSAGE, IS_FULL, HAS_WRAPPED, IS_BROKEN, IS_OPENING, HAS_NOT_LOOKED, STATES };

/* Brings the link into the state, as `one` sees it. */
static void reach(enum state state, struct end *one, struct end *other) {
    unsigned char message[8] = {1}, received[BUFFER];
    connect(one, other);
    switch (state) {
    case HAS_SENT:
        CHECK(spumone_link_send(&one->link, message, 1) == SPUMONE_LINK_DONE);
        break;
    case HAS_A_MESSAGE:
        CHECK(spumone_link_send(&other->link, message, 1) == SPUMONE_LINK_DONE);
        break;
    case IS_FULL:
        while (spumone_link_send(&one->link, message, 8) == SPUMONE_LINK_DONE) {
            CHECK(spumone_link_send(&other->link, message, 8) == SPUMONE_LINK_DONE);
        }
        break;
    case HAS_WRAPPED:
        for (int number = 0; number < 1000; number++) {
            CHECK(spumone_link_send(&one->link, message, 8) == SPUMONE_LINK_DONE);
            CHECK(spumone_link_receive(&other->link, received, BUFFER) == 8);
        }
        break;
    case IS_BROKEN:
        spumone_link_store(&other->link.own->head, 1u << 31);
        CHECK(spumone_link_receive(&one->link, received, BUFFER) == SPUMONE_LINK_BROKEN);
        CHECK(spumone_link_send(&one->link, message, 1) == SPUMONE_LINK_BROKEN);
        break;
    case IS_OPENING: /* it ends before it has opened its end */
        spumone_link_store(&one->link.own->session, 0);
        break;
    case HAS_NOT_LOOKED: /* it ends before it has seen its peer */
        restart(one, (one->registers[SPUMONE_LINK_ACCESS] & SPUMONE_LINK_SECOND) != 0);
        break;
    default:
        break;
    }
}

/* `one` is opened anew in the state, and the peer goes on. */
static void reopen(enum state state, struct end *one, struct end *other, bool second, bool looks_first) {
    unsigned char message[8] = {2}, received[BUFFER];
    reach(state, one, other);
    restart(one, second);
    if (looks_first) {
        CHECK(spumone_link_receive(&one->link, received, BUFFER) == SPUMONE_LINK_DOWN);
    }
    /* The peer learns of it once, whichever call it makes. */
    if (state % 2 == 0) {
        CHECK(spumone_link_receive(&other->link, received, BUFFER) == SPUMONE_LINK_DOWN);
    } else {
        CHECK(spumone_link_send(&other->link, message, 1) == SPUMONE_LINK_DOWN);
    }
    if (!looks_first) {
        CHECK(spumone_link_send(&one->link, message, 1) == SPUMONE_LINK_DOWN);
    }
    CHECK(spumone_link_receive(&other->link, received, BUFFER) == SPUMONE_LINK_EMPTY);
    CHECK(spumone_link_receive(&one->link, received, BUFFER) == SPUMONE_LINK_EMPTY);
    for (unsigned char number = 0; number < 100; number++) {
        message[0] = number;
        CHECK(spumone_link_send(&one->link, message, 1) == SPUMONE_LINK_DONE);
        CHECK(spumone_link_receive(&other->link, received, BUFFER) == 1 && received[0] == number);
        CHECK(spumone_link_send(&other->link, message, 8) == SPUMONE_LINK_DONE);
        CHECK(spumone_link_receive(&one->link, received, BUFFER) == 8 && received[0] == number);
    }
}

/* The life of the guest stays the same: a program that ends and starts again has to be noticed, too. */
static void nothing_of_a_former_session_is_received(void) {
    struct end one, other;
    for (unsigned step = 0; step < STATES * STATES * 8; step++) {
        enum state state = step % STATES;
        enum state next = step / STATES % STATES;
        bool first = step / STATES / STATES % 2 != 0;
        bool next_first = step / STATES / STATES / 2 % 2 != 0;
        bool looks_first = step / STATES / STATES / 4 != 0;
        memset(memory, 0, sizeof memory);
        restart(&one, false);
        restart(&other, true);
        reopen(state, first ? &one : &other, first ? &other : &one, !first, looks_first);
        reopen(next, next_first ? &one : &other, next_first ? &other : &one, !next_first, looks_first);
    }
    /* The number 0 is none. */
    spumone_link_store(&one.link.own->last_session, UINT32_MAX);
    restart(&one, false);
    CHECK(one.link.session == 1 && spumone_link_load(&one.link.own->session) == 1);
}

static void whatever_the_peer_writes_stays_within_bounds(void) {
    static unsigned char message[BUFFER], received[BUFFER];
    struct end one, other;
    uint32_t broken = 0;
    srand(1);
    memset(memory, 0, sizeof memory);
    restart(&one, false);
    restart(&other, true);
    connect(&one, &other);
    for (uint32_t step = 1; step <= 300000; step++) {
        volatile uint32_t *half = &other.link.own->session;
        uint32_t word = (uint32_t)rand() % (MEMORY / 8);
        /* The sessions change rarely, else the link is never up. */
        if (word > 1 || rand() % 100 == 0) {
            half[word] = rand() % 2 != 0 ? (uint32_t)rand() : (uint32_t)rand() % 100;
        }
        if (rand() % 8 == 0) {
            half[1] = one.link.session;
        }
        int bytes = spumone_link_receive(&one.link, received, (uint32_t)rand() % BUFFER);
        CHECK(bytes >= SPUMONE_LINK_BROKEN && bytes <= (int)BUFFER);
        (void)spumone_link_send(&one.link, message, (uint32_t)rand() % BUFFER);
        broken += bytes == SPUMONE_LINK_BROKEN;
    }
    CHECK(broken > 0);
}

static void *send_all(void *to) {
    static unsigned char message[BUFFER];
    struct spumone_link *link = to;
    uint32_t most = (link->words - 1) * 4;
    for (uint32_t number = 0; number < MESSAGES; number++) {
        uint32_t bytes = number * 7 % (most + 1);
        fill(message, bytes, number);
        int result;
        while ((result = spumone_link_send(link, message, bytes)) == SPUMONE_LINK_FULL) {
            sched_yield();
        }
        CHECK(result == SPUMONE_LINK_DONE);
    }
    return NULL;
}

static void two_threads_exchange_messages(void) {
    static unsigned char message[BUFFER], received[BUFFER];
    struct end one, other;
    pthread_t sender;
    memset(memory, 0, sizeof memory);
    restart(&one, false);
    restart(&other, true);
    connect(&one, &other);
    CHECK(pthread_create(&sender, NULL, send_all, &one.link) == 0);
    uint32_t most = (other.link.words - 1) * 4;
    for (uint32_t number = 0; number < MESSAGES; number++) {
        uint32_t bytes = number * 7 % (most + 1);
        int result;
        while ((result = spumone_link_receive(&other.link, received, BUFFER)) == SPUMONE_LINK_EMPTY) {
            sched_yield();
        }
        fill(message, bytes, number);
        CHECK(result == (int)bytes && memcmp(message, received, bytes) == 0);
    }
    pthread_join(sender, NULL);
}

int main(void) {
    a_link_must_be_one();
    messages_of_all_sizes_arrive_in_order();
    nothing_of_a_former_session_is_received();
    whatever_the_peer_writes_stays_within_bounds();
    two_threads_exchange_messages();
    printf("guests/link host tests: %u checks, 0 failed\n", checks);
    return 0;
}
