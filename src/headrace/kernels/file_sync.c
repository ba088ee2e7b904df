// SPDX-License-Identifier: Apache-2.0
/* Threads that fsync files. They never take Python's lock, so an fsync neither waits for the event loop to
 * leave it nor takes it from the loop.
 *
 * Called by file_sync.py alone, whose structures mirror these. Unlike the other kernels this one keeps memory
 * and threads, from `start` to `stop` (docs/decisions/0046).
 */
#include "records.h"

#ifndef _WIN32
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

enum { STACK_BYTES = 128 * 1024 };

typedef struct { int64_t fd, ticket; } job;
typedef struct { int64_t ticket, error; } outcome;

typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t arrived;
    int64_t capacity, first, queued, running, done, thread_count;
    int stopping, woken, read_fd, write_fd;
    job *jobs;         /* a ring of `capacity` */
    outcome *outcomes; /* `capacity` of them: every job has a place for its outcome */
    pthread_t *threads;
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

/* One byte tells the loop; a further one while that is unread would tell it nothing new. */
static void wake_loop(int fd) {
    char byte = 0;
    while (write(fd, &byte, 1) < 0 && errno == EINTR) {
    }
}

static void *work(void *argument) {
    pool *p = argument;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (!p->queued && !p->stopping) pthread_cond_wait(&p->arrived, &p->lock);
        if (p->stopping) break;
        job next = p->jobs[p->first];
        p->first = (p->first + 1) % p->capacity;
        p->queued--;
        p->running++;
        pthread_mutex_unlock(&p->lock);
        int error = sync_file((int)next.fd);
        pthread_mutex_lock(&p->lock);
        p->running--;
        p->outcomes[p->done++] = (outcome){next.ticket, error};
        if (p->woken) continue;
        p->woken = 1;
        pthread_mutex_unlock(&p->lock);
        wake_loop(p->write_fd);
        pthread_mutex_lock(&p->lock);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static void join_and_free(pool *p) {
    pthread_mutex_lock(&p->lock);
    p->stopping = 1;
    pthread_cond_broadcast(&p->arrived);
    pthread_mutex_unlock(&p->lock);
    for (int64_t i = 0; i < p->thread_count; i++) pthread_join(p->threads[i], NULL);
    pthread_cond_destroy(&p->arrived);
    pthread_mutex_destroy(&p->lock);
    free(p->jobs);
    free(p->outcomes);
    free(p->threads);
    free(p);
}

/* Signals are for the main thread: a new thread inherits the mask of the one that makes it. */
static int start_threads(pool *p, int64_t count) {
    sigset_t all, before;
    pthread_attr_t attributes;
    int failed = pthread_attr_init(&attributes);
    if (failed) return failed;
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (!failed && p->thread_count < count) {
        failed = pthread_create(&p->threads[p->thread_count], &attributes, work, p);
        if (!failed) p->thread_count++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return p->thread_count ? 0 : failed; /* fewer will do */
}

/* Starts `threads` threads with room for `capacity` jobs; `read_fd` and `write_fd` are the ends of a pipe that
 * does not block. In `*made` what the other functions take. 0, or an errno. */
int64_t headrace_sync_start(int64_t threads, int64_t capacity, int64_t read_fd, int64_t write_fd, int64_t *made) {
    if (threads < 1 || capacity < 1) return EINVAL;
    pool *p = calloc(1, sizeof *p);
    if (!p) return ENOMEM;
    p->capacity = capacity;
    p->read_fd = (int)read_fd;
    p->write_fd = (int)write_fd;
    p->jobs = calloc((size_t)capacity, sizeof *p->jobs);
    p->outcomes = calloc((size_t)capacity, sizeof *p->outcomes);
    p->threads = calloc((size_t)threads, sizeof *p->threads);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->arrived, NULL);
    int failed = p->jobs && p->outcomes && p->threads ? start_threads(p, threads) : ENOMEM;
    if (failed) {
        join_and_free(p);
        return failed;
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

/* Returns when what a thread has begun is done; what is queued is dropped. Nothing else may be called then. */
int64_t headrace_sync_stop(int64_t made) {
    join_and_free((pool *)(intptr_t)made);
    return 0;
}
#endif
