// SPDX-License-Identifier: Apache-2.0
/* Preloaded into a node under test (T9): its event loop stands still while the file WEDGED_LOOP names holds a one.
   Only who waits for sockets is held up: all other threads go on, as they do behind a loop that is busy. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

static const volatile int64_t *wedged;

__attribute__((constructor)) static void map_flag(void)
{
    const char *path = getenv("WEDGED_LOOP");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *mapped = mmap(NULL, sizeof *wedged, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED)
        wedged = mapped;
}

static void stand_still(void)
{
    while (wedged && *wedged)
        usleep(10000);
}

int epoll_pwait(int epoll, struct epoll_event *events, int most, int timeout_ms, const sigset_t *mask)
{
    static int (*real)(int, struct epoll_event *, int, int, const sigset_t *);
    if (!real)
        real = (int (*)(int, struct epoll_event *, int, int, const sigset_t *))dlsym(RTLD_NEXT, "epoll_pwait");
    int found = real(epoll, events, most, timeout_ms, mask);
    stand_still();
    return found;
}

int epoll_wait(int epoll, struct epoll_event *events, int most, int timeout_ms)
{
    static int (*real)(int, struct epoll_event *, int, int);
    if (!real)
        real = (int (*)(int, struct epoll_event *, int, int))dlsym(RTLD_NEXT, "epoll_wait");
    int found = real(epoll, events, most, timeout_ms);
    stand_still();
    return found;
}
