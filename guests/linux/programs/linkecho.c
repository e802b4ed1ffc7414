/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Sends messages over a memory link to a peer that echoes them, and compares what comes back:
 * linkecho COUNT MOST [LIVES [PEER]]
 *
 * COUNT messages of 0 to MOST bytes. First one at a time, for the time of a round trip, then as many as the ring holds.
 * With LIVES, unless it is 0: messages without end, until the peer has been restarted so often; then no message of a former
 * session may come. With PEER, over the first link to this guest, else over the first link that there is.
 * Reaches the link through /dev/mem, and waits for the peer's signal as for a rising edge of a GPIO line. Prints one line of
 * facts.
 */
#include <dirent.h>
#include <fcntl.h>
#include <linux/gpio.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "number.h"
#include "spumone_link.h"

#define TREE "/proc/device-tree"
#define CHIPS "/sys/bus/gpio/devices"
#define PAGE 4096u
/* The GPIO controller of a link, from its registers on. */
#define CONTROLLER 0x8000u
#define MESSAGE_MAX 4096u
/* How long the peer may be silent until the program asks whether it runs. */
#define SILENCE_MS 1000
/* The name that the device tree gives to the line of the peer's signal. */
#define LINE "link-given"
/* Round trips that are measured one by one. */
#define TRIPS 1000u

static struct spumone_link link_end;
static int edges = -1; /* the file of the events of the GPIO line */
static uint64_t waits;
static bool lost;      /* the peer has begun a new session: what was under way is lost */

static _Noreturn void die(const char *what) {
    fprintf(stderr, "linkecho: %s\n", what);
    exit(1);
}

static void *map(int file, off_t offset, size_t size) {
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, offset);

    if (at == MAP_FAILED) {
        die("cannot map the link");
    }
    return at;
}

static uint32_t size_of(const volatile uint32_t *registers) {
    return registers[SPUMONE_LINK_SIZE];
}

/* Reads a property of a node of the device tree. Returns its length, 0 if there is none. */
static size_t read_property(const char *node, const char *name, void *buffer, size_t room) {
    char path[600];

    snprintf(path, sizeof path, TREE "/%s/%s", node, name);
    FILE *file = fopen(path, "r");
    size_t length = file != NULL ? fread(buffer, 1, room, file) : 0;
    if (file != NULL) {
        fclose(file);
    }
    return length;
}

/* Reads the addresses from the device tree: two ranges, each of two cells for the address and two for the size. */
static bool find_link(const char *peer, uint64_t address[2]) {
    DIR *tree = opendir(TREE);
    struct dirent *entry;
    unsigned char cells[32];
    bool found = false;

    while (tree != NULL && !found && (entry = readdir(tree)) != NULL) {
        char label[100] = "";
        if (strncmp(entry->d_name, "link@", 5) != 0 ||
            read_property(entry->d_name, "reg", cells, sizeof cells) != sizeof cells) {
            continue;
        }
        (void)read_property(entry->d_name, "label", label, sizeof label - 1);
        found = peer == NULL || strcmp(label, peer) == 0;
        for (int at = 0; at < 8; at++) {
            address[0] = address[0] << 8 | cells[at];
            address[1] = address[1] << 8 | cells[16 + at];
        }
    }
    if (tree != NULL) {
        closedir(tree);
    }
    return found;
}

static bool open_memory(const uint64_t address[2]) {
    int memory = open("/dev/mem", O_RDWR | O_SYNC);

    if (memory < 0) {
        return false;
    }
    volatile uint32_t *registers = map(memory, (off_t)address[0], PAGE);
    return spumone_link_open(&link_end, registers, map(memory, (off_t)address[1], size_of(registers)));
}

/* Whether the GPIO controller is that at the address: the name of its node in the device tree says so. */
static bool is_at(const char *chip, uint64_t address) {
    char path[300], node[300], name[40];

    snprintf(path, sizeof path, CHIPS "/%s/of_node", chip);
    snprintf(name, sizeof name, "/gpio@%llx", (unsigned long long)address);
    ssize_t length = readlink(path, node, sizeof node - 1);
    if (length < (ssize_t)strlen(name)) {
        return false;
    }
    node[length] = 0;
    return strcmp(node + length - strlen(name), name) == 0;
}

/* Asks for the rising edges of the line of the controller at the address. */
static bool open_line(uint64_t address) {
    DIR *devices = opendir(CHIPS);
    struct dirent *entry;
    char path[300];

    while (devices != NULL && edges < 0 && (entry = readdir(devices)) != NULL) {
        struct gpio_v2_line_info line = {.offset = 0};
        struct gpio_v2_line_request request = {
            .num_lines = 1,
            .consumer = "linkecho",
            .config = {.flags = GPIO_V2_LINE_FLAG_INPUT | GPIO_V2_LINE_FLAG_EDGE_RISING},
        };
        if (!is_at(entry->d_name, address)) {
            continue;
        }
        snprintf(path, sizeof path, "/dev/%s", entry->d_name);
        int chip = open(path, O_RDWR | O_CLOEXEC);
        if (chip >= 0 && ioctl(chip, GPIO_V2_GET_LINEINFO_IOCTL, &line) == 0 && strcmp(line.name, LINE) == 0 &&
            ioctl(chip, GPIO_V2_GET_LINE_IOCTL, &request) == 0) {
            edges = request.fd;
        }
        if (chip >= 0) {
            close(chip);
        }
    }
    if (devices != NULL) {
        closedir(devices);
    }
    return edges >= 0;
}

static uint32_t length_of(uint64_t number, uint32_t most) {
    return (uint32_t)(number * 2654435761u % (most + 1));
}

static void fill(unsigned char *message, uint32_t bytes, uint64_t number) {
    for (uint32_t at = 0; at < bytes; at++) {
        message[at] = (unsigned char)(number * 31 + at);
    }
}

/* Sends message `number`, if there is room. */
static bool send_one(uint64_t number, uint32_t most) {
    static unsigned char message[MESSAGE_MAX];
    uint32_t bytes = length_of(number, most);

    fill(message, bytes, number);
    int result = spumone_link_send(&link_end, message, bytes);
    if (result != SPUMONE_LINK_DONE && result != SPUMONE_LINK_FULL && result != SPUMONE_LINK_DOWN) {
        die(result == SPUMONE_LINK_LARGE ? "a message is too large" : "the peer has broken the ring");
    }
    lost |= result == SPUMONE_LINK_DOWN;
    return result == SPUMONE_LINK_DONE;
}

/* Receives message `number`, if it is there. */
static bool receive_one(uint64_t number, uint32_t most) {
    static unsigned char expected[MESSAGE_MAX], received[MESSAGE_MAX];
    int bytes = spumone_link_receive(&link_end, received, sizeof received);

    lost |= bytes == SPUMONE_LINK_DOWN;
    if (bytes == SPUMONE_LINK_EMPTY || bytes == SPUMONE_LINK_DOWN) {
        return false;
    }
    if (bytes == SPUMONE_LINK_BROKEN) {
        die("the peer has broken the ring");
    }
    uint32_t wanted = length_of(number, most);
    fill(expected, wanted, number);
    if (bytes != (int)wanted || memcmp(expected, received, wanted) != 0) {
        die("a message has changed on its way");
    }
    return true;
}

/* Waits for a signal of the peer. Returns whether there was one, or the peer still runs. */
static bool wait_for_signal(void) {
    struct gpio_v2_line_event event;
    struct pollfd file = {.fd = edges, .events = POLLIN};

    waits++;
    if (poll(&file, 1, SILENCE_MS) == 1) {
        return read(edges, &event, sizeof event) == sizeof event;
    }
    return spumone_link_peer_runs(&link_end);
}

static void wait_until_up(void) {
    spumone_link_arm(&link_end);
    while (!spumone_link_is_up(&link_end)) {
        (void)wait_for_signal();
        spumone_link_arm(&link_end);
    }
    spumone_link_poll(&link_end);
    lost = false;
}

/*
 * Sends the messages from `first` up to but not including `end`, at most `ahead` before the first of them has come back.
 * Ends early if the peer begins a new session. Returns the number of the first message that was not sent.
 */
static uint64_t exchange(uint64_t first, uint64_t end, uint32_t most, uint64_t ahead) {
    uint64_t sent = first;
    uint64_t received = first;
    bool armed = false;

    while (received < end && !lost) {
        bool moved = false;
        while (sent < end && sent - received < ahead && send_one(sent, most)) {
            sent++;
            moved = true;
        }
        while (received < sent && receive_one(received, most)) {
            received++;
            moved = true;
        }
        if (moved) {
            if (armed) {
                spumone_link_poll(&link_end);
            }
            armed = false;
        } else if (!armed) {
            spumone_link_arm(&link_end);
            armed = true;
        } else if (!wait_for_signal() && end != UINT64_MAX) {
            die("the peer has ended");
        } else {
            armed = false;
        }
    }
    return sent;
}

/* Messages without end, until the peer has begun `lives` new lives. */
static int outlive(uint64_t lives, uint32_t most) {
    uint64_t next = 0;

    for (uint64_t life = 0; life < lives; life++) {
        wait_until_up();
        next = exchange(next, UINT64_MAX, most, UINT64_MAX);
    }
    struct spumone_link_end end;
    while (!spumone_link_peer_ended(&link_end, &end)) {
    }
    printf("ended=%u cause=%u ", (unsigned)end.life, (unsigned)end.cause);
    printf("lives=%llu messages=%llu waits=%llu\n", (unsigned long long)lives, (unsigned long long)next,
           (unsigned long long)waits);
    return 0;
}

/* No message may be lost. */
static void exchange_all(uint64_t count, uint32_t most, uint64_t ahead) {
    (void)exchange(0, count, most, ahead);
    if (lost) {
        die("the peer has begun a new session");
    }
}

int main(int argc, char **argv) {
    uint64_t count, most, lives = 0;
    uint64_t address[2] = {0, 0}; /* of the registers and of the memory */

    if (argc < 3 || argc > 5 || (argc > 3 && !number_read(argv[3], 0, 1u << 20, &lives)) ||
        !number_read(argv[1], 1, 1u << 30, &count) || !number_read(argv[2], 0, MESSAGE_MAX, &most)) {
        fprintf(stderr, "usage: linkecho COUNT MOST [LIVES [PEER]]   COUNT messages of up to MOST bytes\n");
        return 2;
    }
    if (!find_link(argc > 4 ? argv[4] : NULL, address)) {
        die("this guest has no such memory link");
    }
    if (!open_memory(address)) {
        die("this guest may not write to the memory link");
    }
    if (!open_line(address[0] + CONTROLLER)) {
        die("the memory link has no GPIO line " LINE);
    }
    if (lives > 0) {
        return outlive(lives, (uint32_t)most);
    }
    wait_until_up();
    uint64_t least_ns = UINT64_MAX;
    uint64_t sum_ns = 0;
    for (uint64_t trip = 0; trip < TRIPS; trip++) {
        uint64_t begin = now_ns();
        exchange_all(1, 0, 1);
        uint64_t ns = now_ns() - begin;
        least_ns = ns < least_ns ? ns : least_ns;
        sum_ns += ns;
    }
    uint64_t begin = now_ns();
    exchange_all(count, (uint32_t)most, UINT64_MAX);
    uint64_t all_ns = now_ns() - begin;
    printf("trip_ns=%llu trip_avg_ns=%llu messages=%llu ns=%llu waits=%llu\n", (unsigned long long)least_ns,
           (unsigned long long)(sum_ns / TRIPS), (unsigned long long)count, (unsigned long long)all_ns,
           (unsigned long long)waits);
    return 0;
}
