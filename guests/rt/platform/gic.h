/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * GICv3 (Arm IHI 0069) for one core, one security state, group 1 only, CPU interface by system
 * registers. Acknowledge and end of interrupt are done by FreeRTOS's own port.
 */
#ifndef GIC_H
#define GIC_H

#include <stdint.h>

/* Brings distributor, this core's redistributor and its CPU interface up, with every PPI and SGI
 * off. Stops the guest with a message if the hardware is not a GICv3 with this core's redistributor. */
void gic_init(uintptr_t distributor_base, uintptr_t redistributors);

/*
 * Enables the PPI `intid` (16..31) as a level-sensitive group 1 interrupt.
 * `priority` is the GIC's own value, 0 (highest) to 255.
 */
void gic_enable_ppi(uint32_t intid, uint8_t priority);

/* The same for an SPI, which goes to this core. */
void gic_enable_spi(uint32_t intid, uint8_t priority);

/* Holds an SPI back, and lets it come again. */
void gic_mask_spi(uint32_t intid);
void gic_unmask_spi(uint32_t intid);

#endif
