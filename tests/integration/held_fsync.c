// SPDX-License-Identifier: Apache-2.0
/* Preloaded into a node under test: no fsync of a log returns while the file HELD_FSYNC names holds a one, as on a
   disk that does not answer. Other files are synced as ever. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const volatile int64_t *held;

__attribute__((constructor)) static void map_flag(void)
{
    const char *path = getenv("HELD_FSYNC");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *mapped = mmap(NULL, sizeof *held, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED)
        held = mapped;
}

static int is_log(int file)
{
    char link[64], name[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t size = readlink(link, name, sizeof name);
    return size > 4 && memcmp(name + size - 4, ".log", 4) == 0;
}

int fdatasync(int file)
{
    static int (*real)(int);
    if (!real)
        real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    while (held && *held && is_log(file))
        usleep(1000);
    return real(file);
}
