// SPDX-License-Identifier: Apache-2.0
/* The work of threads that fsync files. It never needs Python's lock, so an fsync neither waits for the event loop
 * to leave it nor takes it from the loop.
 *
 * Called by file_sync.py alone, which also makes the threads and whose structures mirror these. Unlike the other
 * kernels this one keeps memory, from `open` to `close` (docs/decisions/0046-fsync-without-pythons-lock.md).
 */
#include "records.h"

#ifndef _WIN32
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

typedef struct { int64_t fd, ticket; } job;
typedef struct { int64_t ticket, error, took_ns; } outcome;

typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t arrived;
    int64_t capacity, first, queued, running, done;
    int stopping, woken, read_fd, write_fd;
    job *jobs;         /* a ring of `capacity` */
    outcome *outcomes; /* `capacity` of them: every job has a place for its outcome */
} pool;

static int sync_file(int fd) {
    int failed;
    do {
#ifdef __linux__
        failed = fdatasync(fd);
#else
        failed = fsync(fd);
#endif
    } while (failed && errno == EINTR);
    return failed ? errno : 0;
}

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* One byte tells the loop; a further one while that is unread would tell it nothing new. */
static void wake_loop(int fd) {
    char byte = 0;
    while (write(fd, &byte, 1) < 0 && errno == EINTR) {
    }
}

/* The life of one thread: returns after `stop`. */
int64_t headrace_sync_work(int64_t made) {
    pool *p = (pool *)(intptr_t)made;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (!p->queued && !p->stopping) pthread_cond_wait(&p->arrived, &p->lock);
        if (p->stopping) break;
        job next = p->jobs[p->first];
        p->first = (p->first + 1) % p->capacity;
        p->queued--;
        p->running++;
        pthread_mutex_unlock(&p->lock);
        int64_t began = now_ns();
        int error = sync_file((int)next.fd);
        int64_t took_ns = now_ns() - began;
        pthread_mutex_lock(&p->lock);
        p->running--;
        p->outcomes[p->done++] = (outcome){next.ticket, error, took_ns};
        if (p->woken) continue;
        p->woken = 1;
        pthread_mutex_unlock(&p->lock);
        wake_loop(p->write_fd);
        pthread_mutex_lock(&p->lock);
    }
    pthread_mutex_unlock(&p->lock);
    return 0;
}

static void free_pool(pool *p) {
    pthread_cond_destroy(&p->arrived);
    pthread_mutex_destroy(&p->lock);
    free(p->jobs);
    free(p->outcomes);
    free(p);
}

/* Makes room for `capacity` jobs; `read_fd` and `write_fd` are the ends of a pipe that does not block. In `*made`
 * what the other functions take. 0, or an errno. */
int64_t headrace_sync_open(int64_t capacity, int64_t read_fd, int64_t write_fd, int64_t *made) {
    pool *p = capacity < 1 ? NULL : calloc(1, sizeof *p);
    if (!p) return capacity < 1 ? EINVAL : ENOMEM;
    p->capacity = capacity;
    p->read_fd = (int)read_fd;
    p->write_fd = (int)write_fd;
    p->jobs = calloc((size_t)capacity, sizeof *p->jobs);
    p->outcomes = calloc((size_t)capacity, sizeof *p->outcomes);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->arrived, NULL);
    if (!p->jobs || !p->outcomes) {
        free_pool(p);
        return ENOMEM;
    }
    *made = (int64_t)(intptr_t)p;
    return 0;
}

/* The caller keeps `fd` open until it has taken the outcome. 0; NO_ROOM with `capacity` jobs under way. */
int64_t headrace_sync_submit(int64_t made, int64_t fd, int64_t ticket) {
    pool *p = (pool *)(intptr_t)made;
    pthread_mutex_lock(&p->lock);
    int64_t full = p->queued + p->running + p->done >= p->capacity;
    if (!full) {
        p->jobs[(p->first + p->queued) % p->capacity] = (job){fd, ticket};
        p->queued++;
        pthread_cond_signal(&p->arrived);
    }
    pthread_mutex_unlock(&p->lock);
    return full ? NO_ROOM : 0;
}

/* Moves the outcomes to `out`, which has room for `capacity`; how many. Call it when the pipe is readable. */
int64_t headrace_sync_take(int64_t made, outcome *out) {
    pool *p = (pool *)(intptr_t)made;
    char bytes[16];
    pthread_mutex_lock(&p->lock);
    while (read(p->read_fd, bytes, sizeof bytes) < 0 && errno == EINTR) {
    }
    int64_t count = p->done;
    for (int64_t i = 0; i < count; i++) out[i] = p->outcomes[i];
    p->done = 0;
    p->woken = 0;
    pthread_mutex_unlock(&p->lock);
    return count;
}

/* Every thread leaves `work` after the fsync that it has begun; what is queued is dropped. */
int64_t headrace_sync_stop(int64_t made) {
    pool *p = (pool *)(intptr_t)made;
    pthread_mutex_lock(&p->lock);
    p->stopping = 1;
    pthread_cond_broadcast(&p->arrived);
    pthread_mutex_unlock(&p->lock);
    return 0;
}

/* Once no thread is in `work` any more. */
int64_t headrace_sync_close(int64_t made) {
    free_pool((pool *)(intptr_t)made);
    return 0;
}
#endif
