/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Both ends of spumone_link.h access by access, with restarts between any two accesses: whatever the order, an honest peer is
 * never BROKEN, no message is lost or comes twice without DOWN, none of a former session comes, and no end waits while it has
 * something to do. Sequentially consistent; weaker orders are left to the sanitizer of data races (test.c).
 */
#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

static uint32_t model_load(const volatile uint32_t *word);
static void model_store(volatile uint32_t *word, uint32_t value);
static void step_ends(void);

/* Each atomic access and each fence is a step; a register or a word of a ring belongs to the step before it. */
#define __atomic_load_n(word, order) model_load(word)
#define __atomic_store_n(word, value, order) model_store(word, value)
#define __atomic_thread_fence(order) step_ends()
#include "spumone_link.h"

#define MEMORY 160u
#define LONGEST 4000u /* steps of a run that are enough for it to end */
#define RANDOM_RUNS 20000u

static uint32_t memory[MEMORY / 4];

static struct end {
    uint32_t registers[16];
    struct spumone_link link;
    ucontext_t context; /* where it begins */
    jmp_buf place;      /* where it is; far cheaper than a context, which has the signal mask */
    bool has_begun;
    char stack[65536];
    bool is_signalled, waits;
    uint32_t opened;             /* how often it has begun: in each message that it sends */
    uint32_t unsent, next;       /* messages to be sent, and the number of the next one to `peer_session` */
    uint32_t peer_session;
    uint32_t heard, expected;    /* the session that the last message came from, and the number of the next message */
    bool was_down;
} ends[2];
static jmp_buf scheduler;
static unsigned now;
static uint32_t messages; /* that each opening sends */
static const char *failure;

static void step_ends(void) {
    if (_setjmp(ends[now].place) == 0) {
        _longjmp(scheduler, 1);
    }
}

static uint32_t model_load(const volatile uint32_t *word) {
    step_ends();
    return *word;
}

static void model_store(volatile uint32_t *word, uint32_t value) {
    step_ends();
    *word = value;
}

static void expect(bool condition, const char *otherwise) {
    if (!condition && failure == NULL) {
        failure = otherwise;
    }
}

/* The message says from which opening of which end, for which session of the peer, and its number. */
static bool receive_all(struct end *end) {
    bool moved = false;
    uint32_t message;
    int bytes;

    while ((bytes = spumone_link_receive(&end->link, &message, 4)) == 4) {
        uint32_t from = message >> 24;
        uint32_t number = message & 0xffff;

        moved = true;
        expect((message >> 16 & 0xff) == end->link.session, "a message for a former session");
        if (from != end->heard) {
            expect(end->heard == 0 || end->was_down, "a new session without DOWN");
            end->heard = from;
            end->expected = 0;
        }
        expect(number >= end->expected, "a message came twice");
        expect(number <= end->expected, "a message is lost");
        end->expected = number + 1;
        end->was_down = false;
    }
    expect(bytes != SPUMONE_LINK_BROKEN, "receive: an honest peer is BROKEN");
    expect(bytes == SPUMONE_LINK_EMPTY || bytes == SPUMONE_LINK_DOWN || failure != NULL, "receive: a strange length");
    end->was_down |= bytes == SPUMONE_LINK_DOWN;
    return moved;
}

static bool send_all(struct end *end) {
    bool moved = false;

    while (end->unsent > 0) {
        uint32_t session = end->link.own->peer_session;
        end->next = session == end->peer_session ? end->next : 0;
        end->peer_session = session;
        uint32_t message = end->opened << 24 | (session & 0xff) << 16 | end->next;
        int result = spumone_link_send(&end->link, &message, 4);

        expect(result != SPUMONE_LINK_BROKEN, "send: an honest peer is BROKEN");
        if (result != SPUMONE_LINK_DONE) {
            end->was_down |= result == SPUMONE_LINK_DOWN;
            break;
        }
        end->next++;
        end->unsent--;
        moved = true;
    }
    return moved;
}

static void program(void) {
    struct end *end = &ends[now];

    step_ends();
    spumone_link_open(&end->link, end->registers, memory);
    for (;;) {
        spumone_link_poll(&end->link);
        while (receive_all(end) | send_all(end)) {
        }
        step_ends();
        spumone_link_arm(&end->link);
        if (!(receive_all(end) | send_all(end))) {
            end->waits = true;
            while (!end->is_signalled) {
                step_ends();
            }
            end->waits = false;
        }
    }
}

static void begin(unsigned which) {
    struct end *end = &ends[which];
    uint32_t opened = end->opened + 1;

    memset(end, 0, offsetof(struct end, context));
    end->opened = opened;
    end->unsent = messages;
    end->has_begun = end->is_signalled = end->waits = end->was_down = false;
    end->next = end->peer_session = end->heard = end->expected = 0;
    end->registers[SPUMONE_LINK_ID] = SPUMONE_LINK_MAGIC;
    end->registers[SPUMONE_LINK_VERSION] = 1;
    end->registers[SPUMONE_LINK_SIZE] = MEMORY;
    end->registers[SPUMONE_LINK_ACCESS] = SPUMONE_LINK_WRITES | (which != 0 ? SPUMONE_LINK_SECOND : 0);
    end->registers[SPUMONE_LINK_LIFE] = 1;
    getcontext(&end->context);
    end->context.uc_stack.ss_sp = end->stack;
    end->context.uc_stack.ss_size = sizeof end->stack;
    makecontext(&end->context, program, 0);
}

static void step(unsigned which) {
    struct end *end = &ends[which];

    now = which;
    if (_setjmp(scheduler) == 0) {
        if (end->has_begun) {
            _longjmp(end->place, 1);
        }
        end->has_begun = true;
        setcontext(&end->context);
    }
    if (end->registers[SPUMONE_LINK_ACK] != 0) {
        end->is_signalled = false;
    }
    if (end->registers[SPUMONE_LINK_SIGNAL] != 0) {
        ends[!which].is_signalled = true;
    }
    end->registers[SPUMONE_LINK_ACK] = end->registers[SPUMONE_LINK_SIGNAL] = 0;
}

static bool is_idle(unsigned which) {
    return ends[which].waits && !ends[which].is_signalled;
}

/* Both wait: then nothing is left to do. */
static void check_end(void) {
    for (unsigned which = 0; which < 2; which++) {
        const struct spumone_link *link = &ends[which].link;

        expect(link->own->peer_session == link->peers->session, "both wait, and are not connected");
        expect(link->peers->head == link->own->tail, "both wait, and a message is there");
        expect(ends[which].unsent == 0, "both wait, and there is room");
    }
}

/* What happens before a step: the other end goes on from here, or an end begins anew. */
struct event {
    unsigned step;
    enum { SWITCH, FIRST_BEGINS, SECOND_BEGINS } what;
};

/* Returns the number of steps. */
static unsigned run(const struct event *events, unsigned count) {
    unsigned which = 0;
    unsigned at = 0;
    unsigned done = 0;

    memset(memory, 0, sizeof memory);
    ends[0].opened = ends[1].opened = 0;
    failure = NULL;
    begin(0);
    begin(1);
    while (failure == NULL && done < LONGEST) {
        bool both_wait = is_idle(0) && is_idle(1);
        if (both_wait && at == count) {
            check_end();
            break;
        }
        if (at < count && (both_wait || events[at].step <= done)) {
            if (events[at].what == SWITCH) {
                which = !which;
            } else {
                begin(events[at].what == SECOND_BEGINS);
            }
            at++;
            continue;
        }
        which = is_idle(which) ? !which : which;
        step(which);
        done++;
    }
    expect(done < LONGEST, "no end");
    if (failure != NULL) {
        fprintf(stderr, "guests/link model: %s. Events:", failure);
        for (unsigned event = 0; event < count; event++) {
            fprintf(stderr, " %u:%c", events[event].step, "s12"[events[event].what]);
        }
        fprintf(stderr, "\n");
        exit(1);
    }
    return done;
}

static unsigned runs;

/* All runs with up to `more` further events after step `from`. */
static void run_all(struct event *events, unsigned count, unsigned more, unsigned from) {
    unsigned steps = run(events, count);

    runs++;
    for (unsigned at = from; more > 0 && at < steps; at++) {
        for (int what = SWITCH; what <= SECOND_BEGINS; what++) {
            events[count] = (struct event){at, what};
            run_all(events, count + 1, more - 1, at + 1);
        }
    }
}

int main(void) {
    struct event events[40];

    messages = 1;
    run_all(events, 0, 2, 0);
    messages = 3;
    srand(1);
    for (unsigned random = 0; random < RANDOM_RUNS; random++, runs++) {
        unsigned count = 1 + (unsigned)rand() % 40;
        unsigned pace = 1 + (unsigned)rand() % 20;
        unsigned restarts = (unsigned)rand() % 5;
        for (unsigned event = 0, at = 0; event < count; event++) {
            at += (unsigned)rand() % (2 * pace);
            events[event] = (struct event){at, SWITCH};
            if (restarts > 0 && rand() % 8 == 0) {
                events[event].what = rand() % 2 != 0 ? FIRST_BEGINS : SECOND_BEGINS;
                restarts--;
            }
        }
        (void)run(events, count);
    }
    printf("guests/link model: %u runs, 0 failed\n", runs);
    return 0;
}
