/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "gic.h"

#include <stdbool.h>

#include "board.h"
#include "fault.h"
#include "sysreg.h"

/* Distributor, IHI 0069 12.9. */
#define GICD_CTLR 0x0000u
#define GICD_CTLR_ENABLE_GRP1 (1u << 1)
#define GICD_CTLR_ARE (1u << 4)
#define GICD_CTLR_RWP (1u << 31)
#define GICD_IGROUPR 0x0080u
#define GICD_ISENABLER 0x0100u
#define GICD_ICENABLER 0x0180u
#define GICD_IPRIORITYR 0x0400u
#define GICD_IROUTER 0x6000u

/* Redistributor, IHI 0069 12.11: two 64 KiB frames per core, control then SGI and PPI. */
#define GICR_FRAME_PAIR 0x20000u
#define GICR_SGI_FRAME 0x10000u
#define GICR_CTLR 0x0000u
#define GICR_CTLR_RWP (1u << 3)
#define GICR_TYPER 0x0008u
#define GICR_TYPER_LAST (1u << 4)
#define GICR_TYPER_AFFINITY_SHIFT 32
#define GICR_WAKER 0x0014u
#define GICR_WAKER_PROCESSOR_SLEEP (1u << 1)
#define GICR_WAKER_CHILDREN_ASLEEP (1u << 2)
#define GICR_IGROUPR0 0x0080u
#define GICR_ISENABLER0 0x0100u
#define GICR_ICENABLER0 0x0180u
#define GICR_IPRIORITYR 0x0400u
#define GICR_ICFGR1 0x0C04u /* two bits per PPI, the upper one: edge */

/* CPU interface, IHI 0069 12.2. */
#define ICC_PMR "S3_0_C4_C6_0"
#define ICC_BPR1 "S3_0_C12_C12_3"
#define ICC_CTLR "S3_0_C12_C12_4"
#define ICC_SRE "S3_0_C12_C12_5"
#define ICC_IGRPEN1 "S3_0_C12_C12_7"
#define ICC_SRE_SRE 1u
#define ICC_PMR_ALL 0xFFu

/* ID_AA64PFR0_EL1.GIC: whether the registers above exist at all. */
#define PFR0_GIC (UINT64_C(0xF) << 24)

#define POLL_LIMIT 1000000u

static uintptr_t distributor;
static uintptr_t redistributor;

static void wait_clear(uintptr_t address, uint32_t bits, const char *what) {
    for (uint32_t polls = 0; (mmio_read32(address) & bits) != 0; polls++) {
        if (polls == POLL_LIMIT) {
            fault_stop(what, "the GIC must be a GICv3 that follows IHI 0069");
        }
    }
}

/* Affinity in the layout of GICR_TYPER[63:32]: Aff3, Aff2, Aff1, Aff0. */
static uint32_t own_affinity(void) {
    uint64_t mpidr = SYSREG_READ("mpidr_el1");

    return (uint32_t)(((mpidr >> 8) & 0xFF000000u) | (mpidr & 0x00FFFFFFu));
}

static uintptr_t find_redistributor(uintptr_t first) {
    uint32_t affinity = own_affinity();

    for (uintptr_t frame = 0; frame < BOARD_GICR_FRAMES; frame++) {
        uintptr_t base = first + frame * GICR_FRAME_PAIR;
        uint64_t typer = mmio_read64(base + GICR_TYPER);

        if ((uint32_t)(typer >> GICR_TYPER_AFFINITY_SHIFT) == affinity) {
            return base;
        }
        if ((typer & GICR_TYPER_LAST) != 0) {
            break;
        }
    }
    fault_stop("no GIC redistributor has this core's affinity",
               "GICR_TYPER must agree with MPIDR_EL1");
}

static bool has_system_registers(void) {
    if ((SYSREG_READ("id_aa64pfr0_el1") & PFR0_GIC) == 0) {
        return false;
    }
    SYSREG_WRITE(ICC_SRE, ICC_SRE_SRE);
    isb();
    return (SYSREG_READ(ICC_SRE) & ICC_SRE_SRE) != 0;
}

void gic_init(uintptr_t distributor_base, uintptr_t redistributors) {
    if (!has_system_registers()) {
        fault_stop("this core has no GICv3 system registers",
                   "start QEMU with -M virt,gic-version=3");
    }

    distributor = distributor_base;
    uintptr_t control = distributor + GICD_CTLR;
    mmio_write32(control, 0);
    wait_clear(control, GICD_CTLR_RWP, "GICD_CTLR.RWP stays set");
    mmio_write32(control, GICD_CTLR_ARE);
    wait_clear(control, GICD_CTLR_RWP, "GICD_CTLR.RWP stays set");
    mmio_write32(control, GICD_CTLR_ARE | GICD_CTLR_ENABLE_GRP1);
    wait_clear(control, GICD_CTLR_RWP, "GICD_CTLR.RWP stays set");

    redistributor = find_redistributor(redistributors);
    uint32_t waker = mmio_read32(redistributor + GICR_WAKER);
    mmio_write32(redistributor + GICR_WAKER, waker & ~GICR_WAKER_PROCESSOR_SLEEP);
    wait_clear(redistributor + GICR_WAKER, GICR_WAKER_CHILDREN_ASLEEP,
               "GICR_WAKER.ChildrenAsleep stays set");
    mmio_write32(redistributor + GICR_SGI_FRAME + GICR_ICENABLER0, UINT32_MAX);
    wait_clear(redistributor + GICR_CTLR, GICR_CTLR_RWP, "GICR_CTLR.RWP stays set");
    mmio_write32(redistributor + GICR_SGI_FRAME + GICR_IGROUPR0, UINT32_MAX);

    /* All priority bits count for preemption, end of interrupt also deactivates (EOImode 0). */
    SYSREG_WRITE(ICC_BPR1, 0);
    SYSREG_WRITE(ICC_CTLR, 0);
    SYSREG_WRITE(ICC_PMR, ICC_PMR_ALL);
    SYSREG_WRITE(ICC_IGRPEN1, 1);
    isb();
}

void gic_enable_ppi(uint32_t intid, uint8_t priority) {
    uintptr_t sgi_frame = redistributor + GICR_SGI_FRAME;
    uintptr_t priority_word = sgi_frame + GICR_IPRIORITYR + (intid & ~3u);
    uint32_t priority_shift = (intid % 4) * 8;
    uint32_t edge_bit = 2u << ((intid % 16) * 2);

    uint32_t priorities = mmio_read32(priority_word) & ~(0xFFu << priority_shift);
    mmio_write32(priority_word, priorities | ((uint32_t)priority << priority_shift));
    mmio_write32(sgi_frame + GICR_ICFGR1, mmio_read32(sgi_frame + GICR_ICFGR1) & ~edge_bit);
    mmio_write32(sgi_frame + GICR_ISENABLER0, 1u << intid);
}

static void write_spi_bit(uint32_t bank, uint32_t intid) {
    mmio_write32(distributor + bank + intid / 32 * 4, 1u << intid % 32);
}

void gic_enable_spi(uint32_t intid, uint8_t priority) {
    uintptr_t group = distributor + GICD_IGROUPR + intid / 32 * 4;
    uintptr_t priority_word = distributor + GICD_IPRIORITYR + (intid & ~3u);
    uint32_t priority_shift = (intid % 4) * 8;
    uint64_t mpidr = SYSREG_READ("mpidr_el1");

    mmio_write32(group, mmio_read32(group) | 1u << intid % 32);
    uint32_t priorities = mmio_read32(priority_word) & ~(0xFFu << priority_shift);
    mmio_write32(priority_word, priorities | ((uint32_t)priority << priority_shift));
    mmio_write64(distributor + GICD_IROUTER + UINT64_C(8) * intid, mpidr & UINT64_C(0xFF00FFFFFF));
    gic_unmask_spi(intid);
}

void gic_mask_spi(uint32_t intid) {
    write_spi_bit(GICD_ICENABLER, intid);
}

void gic_unmask_spi(uint32_t intid) {
    write_spi_bit(GICD_ISENABLER, intid);
}
