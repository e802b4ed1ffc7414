/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The first process of Linux under Xen: gives the kernel the random seed that a device tree's `rng-seed` would have
 * given it, then becomes /init. Xen makes the device tree of a dom0less domain without a seed, and offers no other
 * source. A kernel without one takes the slow way for each random number, at each system call, and waits in some.
 * The seed is fixed: nothing is secret here, and each run must be the same.
 */
#include <fcntl.h>
#include <linux/random.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define DEVICE "/dev/random" /* in the initial file system; /init mounts another /dev over it */
#define MAJOR 1
#define MINOR 8
#define SEED_BYTES 64

int main(void) {
    struct {
        struct rand_pool_info info;
        char bytes[SEED_BYTES];
    } seed = {.info = {.entropy_count = 8 * SEED_BYTES, .buf_size = SEED_BYTES}};

    memset(seed.bytes, 0x5a, sizeof seed.bytes);
    int device = -1;
    if (mknod(DEVICE, S_IFCHR | S_IRUSR | S_IWUSR, makedev(MAJOR, MINOR)) == 0) {
        device = open(DEVICE, O_WRONLY | O_CLOEXEC);
    }
    if (device < 0 || ioctl(device, RNDADDENTROPY, &seed) != 0) {
        perror("xen-error: the kernel takes no random seed");
    }
    execl("/init", "/init", (char *)NULL);
    perror("xen-error: /init");
    return 1;
}
