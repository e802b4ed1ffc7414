/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Access to system registers by name, and to device registers by address. Device accesses are
 * inline assembly because a hypervisor that emulates a device can decode only a plain load or
 * store; a compiler is free to choose a pair or a write-back form for a volatile access.
 */
#ifndef SYSREG_H
#define SYSREG_H

#include <stdint.h>

#define SYSREG_READ(name)                                       \
    __extension__({                                             \
        uint64_t value_;                                        \
        __asm__ volatile("mrs %0, " name : "=r"(value_));       \
        value_;                                                 \
    })

#define SYSREG_WRITE(name, value) \
    __asm__ volatile("msr " name ", %0" : : "r"((uint64_t)(value)) : "memory")

static inline void isb(void) {
    __asm__ volatile("isb" : : : "memory");
}

static inline void dsb(void) {
    __asm__ volatile("dsb sy" : : : "memory");
}

static inline void mask_interrupts(void) {
    __asm__ volatile("msr daifset, #15" : : : "memory");
}

static inline void wfi(void) {
    __asm__ volatile("wfi" : : : "memory");
}

static inline uint32_t mmio_read32(uintptr_t address) {
    uint32_t value;
    __asm__ volatile("ldr %w0, [%1]" : "=r"(value) : "r"(address) : "memory");
    return value;
}

static inline uint64_t mmio_read64(uintptr_t address) {
    uint64_t value;
    __asm__ volatile("ldr %0, [%1]" : "=r"(value) : "r"(address) : "memory");
    return value;
}

static inline void mmio_write32(uintptr_t address, uint32_t value) {
    __asm__ volatile("str %w0, [%1]" : : "r"(value), "r"(address) : "memory");
}

static inline void mmio_write64(uintptr_t address, uint64_t value) {
    __asm__ volatile("str %0, [%1]" : : "r"(value), "r"(address) : "memory");
}

#endif
