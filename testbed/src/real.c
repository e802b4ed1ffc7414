/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "real.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool engaged;
__thread enum thread_kind thread_kind;

static void *next(const char *name)
{
    void *symbol = dlsym(RTLD_NEXT, name);

    if (!symbol)
        fail("the C library has no %s", name);
    return symbol;
}

/*
 * The condition variable functions exist in two versions on x86-64, and dlsym may return the old
 * one, whose condition variables have another layout. So ask for the version by name: that of
 * glibc 2.3.2 there, the first one of the port elsewhere.
 */
static void *next_cond(const char *name)
{
    void *symbol = dlvsym(RTLD_NEXT, name, "GLIBC_2.3.2");

    return symbol ? symbol : next(name);
}

const struct c_library *c_library(void)
{
    static struct c_library functions;
    static bool found;

    if (likely(found))
        return &functions;
    functions.clock_gettime = next("clock_gettime");
    functions.ppoll = next("ppoll");
    functions.write = next("write");
    functions.eventfd = next("eventfd");
    functions.cond_wait = next_cond("pthread_cond_wait");
    functions.cond_timedwait = next_cond("pthread_cond_timedwait");
    functions.cond_signal = next_cond("pthread_cond_signal");
    functions.cond_broadcast = next_cond("pthread_cond_broadcast");
    functions.thread_create = next("pthread_create");
    functions.pread = next("pread64");
    functions.pwrite = next("pwrite64");
    functions.preadv = next("preadv64");
    functions.pwritev = next("pwritev64");
    functions.fdatasync = next("fdatasync");
    found = true;
    return &functions;
}

/* Whether this process is a QEMU whose command line names the file this code is in. */
static bool is_wanted(void)
{
    Dl_info self, found;
    char line[1 << 16];
    const char *name;
    ssize_t length;
    int fd;

    if (!dladdr((void *)&is_wanted, &self) || !dladdr(dlsym(RTLD_DEFAULT, "ppoll"), &found))
        return false;
    /* If it is the plugin but not preloaded, QEMU's calls do not come here. */
    if (found.dli_fbase != self.dli_fbase)
        return false;
    name = strrchr(self.dli_fname, '/');
    name = name ? name + 1 : self.dli_fname;
    fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    length = read(fd, line, sizeof(line) - 1);
    close(fd);
    if (length <= 0)
        return false;
    line[length] = '\0';
    if (!strstr(line, "qemu-system-"))
        return false;
    for (char *word = line + strlen(line) + 1; word < line + length; word += strlen(word) + 1)
        if (strstr(word, name))
            return true;
    return false;
}

static __attribute__((constructor)) void engage(void)
{
    engaged = is_wanted();
    if (!engaged)
        return;
    thread_kind = THREAD_MAIN;
    /* Programs that QEMU starts must get the host's time. */
    unsetenv("LD_PRELOAD");
}
