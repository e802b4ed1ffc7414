/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Sends numbered frames over a network card, and checks those that the peer's `frames` sends: frames CARD
 *
 * One frame each millisecond, until SIGTERM; of it, as of SIGUSR1, a line of facts. Each frame has when its sender began (its
 * life), its number, when it was sent, and bytes that follow from these. Times are those of the counter, which all guests of
 * the machine share. Bad are, with a line for each:
 *   twice      the number is not above that of the frame before, of the same life
 *   former     the sender's life is before that of the frame before
 *   stale      it was sent before this guest's kernel began: to a former life of this guest
 *   broken     length or bytes are not those of its number
 * lost counts the numbers that are missing between two frames of one life.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* An EtherType for local experiments (IEEE 802). */
#define TYPE 0x88b5u
#define LEAST 64u
#define MOST 1514u

struct header {
    uint8_t to[6], from[6];
    uint16_t type;
    uint16_t size;
    uint32_t spare;
    uint64_t life, number, sent;
};

static volatile sig_atomic_t asked, ended;

static void on_signal(int number) {
    asked = 1;
    if (number == SIGTERM) {
        ended = 1;
    }
}

static uint64_t counter(void) {
    uint64_t value;

    __asm__ volatile("isb; mrs %0, cntvct_el0" : "=r"(value)::"memory");
    return value;
}

static uint64_t counter_hz(void) {
    uint64_t value;

    __asm__("mrs %0, cntfrq_el0" : "=r"(value));
    return value;
}

/* When the kernel began. */
static uint64_t kernel_began(void) {
    struct timespec up;

    clock_gettime(CLOCK_BOOTTIME, &up);
    return counter() - (uint64_t)up.tv_sec * counter_hz() - (uint64_t)up.tv_nsec * counter_hz() / 1000000000u;
}

static uint8_t pattern(const struct header *header, size_t at) {
    return (uint8_t)((header->number + header->sent + at) * 167u >> 3);
}

static uint64_t began, received, lost, lives, bad;
static uint64_t peer_life, peer_number;

static void complain(const char *what, const struct header *header) {
    bad++;
    printf("frames-bad what=%s life=%llu number=%llu sent=%llu now=%llu began=%llu peer_life=%llu peer_number=%llu\n", what,
           (unsigned long long)header->life, (unsigned long long)header->number, (unsigned long long)header->sent,
           (unsigned long long)counter(), (unsigned long long)began, (unsigned long long)peer_life,
           (unsigned long long)peer_number);
}

static void check(const uint8_t *frame, size_t size) {
    struct header header;

    if (size < sizeof header) {
        return;
    }
    memcpy(&header, frame, sizeof header);
    received++;
    if (header.size != size) {
        complain("broken", &header);
        return;
    }
    for (size_t at = sizeof header; at < size; at++) {
        if (frame[at] != pattern(&header, at)) {
            complain("broken", &header);
            return;
        }
    }
    if (header.sent < began) {
        complain("stale", &header);
    }
    if (header.life < peer_life) {
        complain("former", &header);
        return;
    }
    if (header.life > peer_life) {
        lives++;
    } else if (header.number <= peer_number) {
        complain("twice", &header);
    } else {
        lost += header.number - peer_number - 1;
    }
    peer_life = header.life;
    peer_number = header.number;
}

int main(int argc, char **argv) {
    static uint8_t frame[2048];
    struct sockaddr_ll card = {.sll_family = AF_PACKET, .sll_protocol = htons(TYPE)};
    struct header header = {.type = htons(TYPE), .life = counter()};
    const struct sigaction action = {.sa_handler = on_signal};
    uint64_t next = counter();
    int file;

    card.sll_ifindex = argc == 2 ? (int)if_nametoindex(argv[1]) : 0;
    file = socket(AF_PACKET, SOCK_RAW, 0);
    if (card.sll_ifindex == 0 || file < 0 || bind(file, (struct sockaddr *)&card, sizeof card) != 0) {
        fprintf(stderr, "usage: frames CARD (an Ethernet card that is up)\n");
        return 1;
    }
    began = kernel_began();
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    setvbuf(stdout, NULL, _IOLBF, 0);
    memset(header.to, 0xff, sizeof header.to);
    memset(header.from, 2, sizeof header.from);
    for (;;) {
        struct pollfd event = {.fd = file, .events = POLLIN};
        struct sockaddr_ll from;
        socklen_t length = sizeof from;
        ssize_t size;

        poll(&event, 1, 1);
        while ((size = recvfrom(file, frame, sizeof frame, MSG_DONTWAIT, (struct sockaddr *)&from, &length)) > 0) {
            if (from.sll_pkttype != PACKET_OUTGOING) {
                check(frame, (size_t)size);
            }
            length = sizeof from;
        }
        if (counter() >= next) {
            header.number++;
            header.sent = counter();
            header.size = (uint16_t)(LEAST + header.number * 97u % (MOST - LEAST));
            memcpy(frame, &header, sizeof header);
            for (size_t at = sizeof header; at < header.size; at++) {
                frame[at] = pattern(&header, at);
            }
            if (send(file, frame, header.size, MSG_DONTWAIT) != header.size) {
                header.number--;
            }
            next = counter() + counter_hz() / 1000;
        }
        if (asked) {
            asked = 0;
            printf("frames-result sent=%llu received=%llu peers=%llu lost=%llu bad=%llu\n", (unsigned long long)header.number,
                   (unsigned long long)received, (unsigned long long)lives, (unsigned long long)lost, (unsigned long long)bad);
            if (ended) {
                return bad != 0;
            }
        }
    }
}
