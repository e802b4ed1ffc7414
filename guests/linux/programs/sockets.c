/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Sockets between two guests (AF_VSOCK):
 *
 *   sockets own                           prints the context identifier of this guest
 *   sockets serve                         serves every connection, for ever
 *   sockets echo CID COUNT BYTES          COUNT messages over a stream, one at a time; each must come back as it was
 *   sockets messages CID COUNT BYTES      the same over a socket that keeps the borders of messages
 *   sockets send CID KIB                  a stream of numbers, of which the server compares each
 *   sockets lives CID COUNT               messages without end, on one connection after the other, until COUNT have been
 *                                         reset because the server's guest has ended
 *   sockets refused CID                   connects to a guest that is down, or to none: that must be refused at once
 *
 * Each client prints a line of facts. The first byte of a connection says what the server is to do. It sends all else back, or
 * counts it. Messages begin with a number that no other connection of any life has.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>
/* After the type of addresses of sockets. */
#include <linux/vm_sockets.h>
#include <time.h>
#include <unistd.h>

#include "number.h"

#define PORT_STREAM 1024u
#define PORT_MESSAGES 1025u
#define MOST (256u * 1024u)
/* How often a connection is tried again, and the pause before. */
#define TRIES 600
#define PAUSE_US 100000
/* How long a connection that is to be refused waits for that. */
#define REFUSED_S 10

static uint8_t sent[MOST], received[MOST];

static _Noreturn void die(const char *what) {
    fprintf(stderr, "sockets: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double now(void) {
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static struct sockaddr_vm address(uint32_t cid, uint32_t port) {
    struct sockaddr_vm address = {.svm_family = AF_VSOCK, .svm_cid = cid, .svm_port = port};

    return address;
}

/* Writes all bytes; false: the connection has ended. */
static bool write_all(int file, const uint8_t *from, size_t bytes) {
    while (bytes > 0) {
        ssize_t written = send(file, from, bytes, MSG_NOSIGNAL);

        if (written <= 0) {
            return false;
        }
        from += written;
        bytes -= (size_t)written;
    }
    return true;
}

/* Reads all bytes; false: the connection has ended before. */
static bool read_all(int file, uint8_t *to, size_t bytes) {
    while (bytes > 0) {
        ssize_t got = recv(file, to, bytes, 0);

        if (got <= 0) {
            return false;
        }
        to += got;
        bytes -= (size_t)got;
    }
    return true;
}

/* Byte `at` of a stream. */
static uint8_t pattern(uint64_t at) {
    return (uint8_t)((at * 0x9e3779b97f4a7c15u) >> 56);
}

/* The stream must be `pattern`; sends the number of its bytes back, or that of the first wrong one and all bits set. */
static void count(int file) {
    uint64_t reply[2] = {0, 0};
    ssize_t got;

    while ((got = recv(file, received, sizeof received, 0)) > 0) {
        for (ssize_t i = 0; i < got && reply[1] == 0; i++) {
            if (received[i] != pattern(reply[0] + (uint64_t)i)) {
                reply[1] = UINT64_MAX;
            }
        }
        reply[0] += (uint64_t)got;
    }
    write_all(file, (const uint8_t *)reply, sizeof reply);
}

static void serve_one(int file) {
    uint8_t what[1];
    ssize_t got;

    if (recv(file, what, 1, 0) == 1 && what[0] == 'c') {
        count(file);
    } else {
        while ((got = recv(file, received, sizeof received, 0)) > 0) {
            if (!write_all(file, received, (size_t)got)) {
                break;
            }
        }
    }
    close(file);
}

static int listen_on(int type, uint32_t port) {
    struct sockaddr_vm own = address(VMADDR_CID_ANY, port);
    int file = socket(AF_VSOCK, type, 0);

    if (file < 0 || bind(file, (struct sockaddr *)&own, sizeof own) != 0 || listen(file, 8) != 0) {
        die("cannot listen");
    }
    return file;
}

static void serve_port(int type, uint32_t port) {
    int listener = listen_on(type, port);

    for (;;) {
        int file = accept(listener, NULL, NULL);

        if (file >= 0 && fork() == 0) {
            close(listener);
            serve_one(file);
            exit(0);
        }
        if (file >= 0) {
            close(file);
        }
    }
}

static _Noreturn void serve(void) {
    signal(SIGCHLD, SIG_IGN);
    if (fork() == 0) {
        serve_port(SOCK_SEQPACKET, PORT_MESSAGES);
    }
    serve_port(SOCK_STREAM, PORT_STREAM);
    exit(1);
}

/* Connects, and says what the server is to do. */
static int connect_to(uint32_t cid, int type, char what) {
    struct sockaddr_vm peer = address(cid, type == SOCK_STREAM ? PORT_STREAM : PORT_MESSAGES);
    /* A guest that goes down just then does not answer. */
    struct timeval timeout = {.tv_usec = PAUSE_US};

    for (int i = 0; i < TRIES; i++) {
        int file = socket(AF_VSOCK, type, 0);

        if (file < 0) {
            die("no sockets");
        }
        setsockopt(file, AF_VSOCK, SO_VM_SOCKETS_CONNECT_TIMEOUT, &timeout, sizeof timeout);
        if (connect(file, (struct sockaddr *)&peer, sizeof peer) == 0 && send(file, &what, 1, MSG_NOSIGNAL) == 1) {
            return file;
        }
        close(file);
        usleep(PAUSE_US);
    }
    die("cannot connect");
}

/* A message and its echo; false: the connection has ended. `type` is SOCK_SEQPACKET: one read must give all of it. */
static bool echo_once(int file, int type, uint64_t session, uint64_t number, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        sent[i] = pattern(session + number + i);
    }
    memcpy(sent, &session, bytes < sizeof session ? bytes : sizeof session);
    if (!write_all(file, sent, bytes)) {
        return false;
    }
    if (type == SOCK_SEQPACKET) {
        ssize_t got = recv(file, received, sizeof received, 0);

        if (got <= 0) {
            return false;
        }
        if ((size_t)got != bytes) {
            errno = EBADMSG;
            die("a message has other borders");
        }
    } else if (!read_all(file, received, bytes)) {
        return false;
    }
    if (memcmp(sent, received, bytes) != 0) {
        errno = EBADMSG;
        die("another message has come back");
    }
    return true;
}

static uint64_t new_session(void) {
    uint64_t session;

    if (getrandom(&session, sizeof session, 0) != sizeof session) {
        die("no random number");
    }
    return session;
}

static void echo(uint32_t cid, int type, uint64_t times, size_t bytes) {
    int file = connect_to(cid, type, 'e');
    uint64_t session = new_session();
    double begin = now();

    for (uint64_t number = 0; number < times; number++) {
        if (!echo_once(file, type, session, number, bytes)) {
            die("the connection has ended");
        }
    }
    printf("echoes=%llu round_trip_ns=%.0f\n", (unsigned long long)times, (now() - begin) / (double)times * 1e9);
}

static void send_numbers(uint32_t cid, uint64_t kib) {
    int file = connect_to(cid, SOCK_STREAM, 'c');
    uint64_t bytes = kib * 1024, done = 0, reply[2];
    double begin = now();

    while (done < bytes) {
        size_t next = bytes - done < sizeof sent ? (size_t)(bytes - done) : sizeof sent;

        for (size_t i = 0; i < next; i++) {
            sent[i] = pattern(done + i);
        }
        if (!write_all(file, sent, next)) {
            die("the connection has ended");
        }
        done += next;
    }
    if (shutdown(file, SHUT_WR) != 0 || !read_all(file, (uint8_t *)reply, sizeof reply)) {
        die("no reply");
    }
    if (reply[0] != bytes || reply[1] != 0) {
        errno = EBADMSG;
        die("other bytes have come");
    }
    printf("bytes=%llu seconds=%.3f\n", (unsigned long long)bytes, now() - begin);
}

static void lives(uint32_t cid, uint64_t most) {
    uint64_t echoes = 0;

    for (uint64_t life = 0; life < most; life++) {
        int file = connect_to(cid, SOCK_STREAM, 'e');
        uint64_t session = new_session();

        while (echo_once(file, SOCK_STREAM, session, echoes, 1 + (size_t)(echoes % 8191))) {
            echoes++;
        }
        // Linux says ECONNRESET to a call that waits when the reset comes, and ENOTCONN to a call after it (net/vmw_vsock/af_vsock.c).
        if (errno != ECONNRESET && errno != ENOTCONN) {
            die("the connection was not reset");
        }
        close(file);
    }
    printf("lives=%llu echoes=%llu\n", (unsigned long long)most, (unsigned long long)echoes);
}

static void refused(uint32_t cid) {
    struct sockaddr_vm peer = address(cid, PORT_STREAM);
    struct timeval timeout = {.tv_sec = REFUSED_S};
    int file = socket(AF_VSOCK, SOCK_STREAM, 0);
    double begin = now();

    if (file < 0) {
        die("no sockets");
    }
    setsockopt(file, AF_VSOCK, SO_VM_SOCKETS_CONNECT_TIMEOUT, &timeout, sizeof timeout);
    if (connect(file, (struct sockaddr *)&peer, sizeof peer) == 0) {
        errno = EISCONN;
        die("it was not refused");
    }
    if (errno != ECONNRESET) {
        die("it was not refused");
    }
    printf("refused_ns=%.0f\n", (now() - begin) * 1e9);
}

static void print_own(void) {
    int file = open("/dev/vsock", O_RDONLY);
    unsigned int cid;

    if (file < 0 || ioctl(file, IOCTL_VM_SOCKETS_GET_LOCAL_CID, &cid) != 0) {
        die("no context identifier");
    }
    printf("%u\n", cid);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    uint64_t cid = 0, first = 0, second = 0;
    bool is_read = (argc <= 2 || number_read(argv[2], VMADDR_CID_HOST, UINT32_MAX, &cid)) &&
                   (argc <= 3 || number_read(argv[3], 1, UINT64_MAX / 1024, &first)) &&
                   (argc <= 4 || number_read(argv[4], 1, MOST, &second));

    if (is_read && argc == 2 && strcmp(what, "own") == 0) {
        print_own();
    } else if (is_read && argc == 2 && strcmp(what, "serve") == 0) {
        serve();
    } else if (is_read && argc == 5 && strcmp(what, "echo") == 0) {
        echo((uint32_t)cid, SOCK_STREAM, first, (size_t)second);
    } else if (is_read && argc == 5 && strcmp(what, "messages") == 0) {
        echo((uint32_t)cid, SOCK_SEQPACKET, first, (size_t)second);
    } else if (is_read && argc == 4 && strcmp(what, "send") == 0) {
        send_numbers((uint32_t)cid, first);
    } else if (is_read && argc == 3 && strcmp(what, "refused") == 0) {
        refused((uint32_t)cid);
    } else if (is_read && argc == 4 && strcmp(what, "lives") == 0) {
        lives((uint32_t)cid, first);
    } else {
        fprintf(stderr, "usage: sockets own | serve | echo CID COUNT BYTES | messages CID COUNT BYTES | send CID KIB | "
                        "lives CID COUNT | refused CID\n");
        return 2;
    }
    return 0;
}
