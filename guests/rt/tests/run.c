/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "check.h"

unsigned checks_done;
unsigned checks_failed;

int main(void) {
    test_fdt();
    test_bootargs();
    test_histogram();
    test_duechain();
    test_accounting();
    test_virtqueue();
    printf("guests/rt host tests: %u checks, %u failed\n", checks_done, checks_failed);
    return checks_failed == 0 && checks_done > 0 ? 0 : 1;
}
