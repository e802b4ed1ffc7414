/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Whether compilers keep to the accesses of spumone_link.h: aligned words of 32 bits, as device memory demands. Bare-metal, for
 * QEMU's machine `virt` (accesses.S). Nothing is mapped where the link is, so each access to it is an exception, which looks
 * at the instruction and does what it says. test.sh compiles the functions (VARIANT) with several options, and the rest once.
 */
#include <stddef.h>

#include "spumone_link.h"

#define MEMORY 4096u
/* Where both ends find the link: their registers, and the memory. */
#define FIRST 0x80000000u
#define SECOND 0x80001000u
#define SHARED 0x80002000u
#define END 0x80003000u
/* So many wrong accesses are shown. */
#define PRINTED 10

/* Of a set of functions with one set of options; all of them are in one section. */
struct variant {
    const char *name;
    bool (*exchange)(void);
};

#ifdef VARIANT

static struct spumone_link one, other;

/* Both ends in all their states. False: a message has not arrived. */
static bool exchange(void) {
    unsigned char message[64], received[64];
    bool right = true;

    right &= spumone_link_open(&one, (void *)(uintptr_t)FIRST, (void *)(uintptr_t)SHARED);
    for (uint32_t session = 0; session < 3; session++) {
        right &= spumone_link_open(&other, (void *)(uintptr_t)SECOND, (void *)(uintptr_t)SHARED);
        for (uint32_t look = 0; look < 3; look++) {
            (void)spumone_link_is_up(&one);
            (void)spumone_link_is_up(&other);
        }
        for (uint32_t bytes = 0; bytes <= sizeof message; bytes++) {
            for (uint32_t at = 0; at < bytes; at++) {
                message[at] = (unsigned char)(bytes + at);
            }
            spumone_link_poll(&other);
            right &= spumone_link_send(&one, message, bytes) == SPUMONE_LINK_DONE;
            spumone_link_arm(&other);
            right &= spumone_link_receive(&other, received, sizeof received) == (int)bytes;
            for (uint32_t at = 0; at < bytes; at++) {
                right &= received[at] == (unsigned char)(bytes + at);
            }
        }
        spumone_link_store(&one.own->head, 1u << 31);
        right &= spumone_link_receive(&other, received, sizeof received) == SPUMONE_LINK_BROKEN;
        right &= spumone_link_open(&one, (void *)(uintptr_t)FIRST, (void *)(uintptr_t)SHARED);
        right &= spumone_link_peer_runs(&one);
    }
    return right;
}

__attribute__((used, section("variants"))) static const struct variant variant = {VARIANT, exchange};

#else

extern const struct variant __start_variants[], __stop_variants[];

static uint32_t link[(END - FIRST) / 4];
static uint64_t accesses, wrong;

static void print(const char *text) {
    for (; *text != 0; text++) {
        *(volatile uint32_t *)0x09000000 = (unsigned char)*text;
    }
}

static void print_number(uint64_t number, uint64_t base) {
    if (number >= base) {
        print_number(number / base, base);
    }
    print((const char[]){"0123456789abcdef"[number % base], 0});
}

static void end(void) {
    register uint64_t function __asm__("x0") = 0x84000008; /* PSCI SYSTEM_OFF */
    __asm__ volatile("hvc #0" ::"r"(function));
}

/* Instructions that access one word of 32 bits; bit 22 is set in a load. */
static const struct form {
    uint32_t mask;
    uint32_t bits;
    bool writes_back; /* changes the register of the address */
} forms[] = {
    {0xff800000, 0xb9000000, false}, /* str, ldr with an unsigned offset */
    {0xffa00c00, 0xb8000000, false}, /* stur, ldur */
    {0xffa00c00, 0xb8200800, false}, /* with a register as the offset */
    {0xffa00c00, 0xb8000400, true},  /* after the access */
    {0xffa00c00, 0xb8000c00, true},  /* before it */
    {0xffbffc00, 0x889ffc00, false}, /* stlr, ldar */
};

void access(uint64_t syndrome, uint64_t address, const uint32_t *instruction, uint64_t *registers);
void start(void);

void access(uint64_t syndrome, uint64_t address, const uint32_t *instruction, uint64_t *registers) {
    uint32_t is = *instruction;
    const struct form *form = NULL;

    if (syndrome >> 26 != 0x25 || address < FIRST || address >= END) {
        print("an exception that is no access to the link\n");
        end();
    }
    accesses++;
    for (size_t n = 0; n < sizeof forms / sizeof *forms; n++) {
        if ((is & forms[n].mask) == forms[n].bits) {
            form = &forms[n];
        }
    }
    if (form == NULL || address % 4 != 0) {
        if (wrong++ >= PRINTED) {
            return;
        }
        print("not one aligned word: instruction 0x");
        print_number(is, 16);
        print(" at 0x");
        print_number((uintptr_t)instruction, 16);
        print(", which accesses 0x");
        print_number(address, 16);
        print("\n");
        return;
    }
    uint32_t *word = &link[(address - FIRST) / 4];
    if ((is & 1u << 22) == 0) {
        *word = (uint32_t)registers[is & 31];
    } else if ((is & 31) != 31) {
        registers[is & 31] = *word;
    }
    if (form->writes_back) {
        registers[is >> 5 & 31] += (uint64_t)((int64_t)((uint64_t)is << 43) >> 55);
    }
}

/* The two pages of registers. */
static void reset(void) {
    for (size_t n = 0; n < sizeof link / sizeof *link; n++) {
        ((volatile uint32_t *)link)[n] = 0;
    }
    for (uint32_t second = 0; second < 2; second++) {
        uint32_t *registers = link + second * (SECOND - FIRST) / 4;
        registers[SPUMONE_LINK_ID] = SPUMONE_LINK_MAGIC;
        registers[SPUMONE_LINK_VERSION] = 1;
        registers[SPUMONE_LINK_SIZE] = MEMORY;
        registers[SPUMONE_LINK_ACCESS] = SPUMONE_LINK_WRITES | (second != 0 ? SPUMONE_LINK_SECOND : 0);
        registers[SPUMONE_LINK_LIFE] = 1;
        registers[SPUMONE_LINK_PEER] = 1;
    }
}

void start(void) {
    for (const struct variant *variant = __start_variants; variant < __stop_variants; variant++) {
        uint64_t accesses_before = accesses, wrong_before = wrong;
        reset();
        bool right = variant->exchange();
        wrong += !right && wrong == wrong_before;
        print(variant->name);
        print(": ");
        print_number(accesses - accesses_before, 10);
        print(" accesses, ");
        print_number(wrong - wrong_before, 10);
        print(right ? " wrong\n" : " wrong, and a message has not arrived\n");
    }
    print(wrong == 0 && accesses > 0 ? "guests/link accesses: all right\n" : "guests/link accesses: FAILED\n");
    end();
}

#endif
