// SPDX-License-Identifier: Apache-2.0
/* Preloaded into a node under test: each fsync and fdatasync takes so many milliseconds longer as the number in
   the file that SLOW_DISK names says. The file is mapped, so that writing to it counts at once. Files of the
   coordination store are left alone: nodes on one host share them, and only this node's disk is slow. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *slower_ms;

__attribute__((constructor)) static void map_number(void)
{
    const char *path = getenv("SLOW_DISK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *mapped = mmap(NULL, sizeof *slower_ms, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED)
        slower_ms = mapped;
}

static int is_of_the_store(int file)
{
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0)
        return 0;
    path[size] = 0;
    return strstr(path, "/coordination/") != NULL;
}

static void wait_longer(int file)
{
    int64_t ms = slower_ms ? *slower_ms : 0;
    if (ms <= 0 || is_of_the_store(file))
        return;
    struct timespec left = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&left, &left) != 0)
        ;
}

int fsync(int file)
{
    wait_longer(file);
    return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(file);
}

int fdatasync(int file)
{
    wait_longer(file);
    return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(file);
}
