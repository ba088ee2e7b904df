// SPDX-License-Identifier: Apache-2.0
/* One batch body, record by record, for whoever needs no columns: checks, times, where the parts lie.
 *
 * Called by walk.py alone, whose structures mirror these. Read next: records.h.
 */
#include "records.h"

enum { FAULT_SPACE = 16, HEADER_SIZE = 61, BASE_TIMESTAMP_AT = 27, COUNT_AT = 57 };

int64_t headrace_kernels_version(void) { return KERNELS_VERSION; }

static inline int count_fits(int64_t size, int64_t count) {
    return size >= 0 && count >= 0 && count <= size / SMALLEST_RECORD;
}

static inline int check_headers(const record *found) {
    int64_t names = 0, values = 0, nulls = 0;
    return found->header_count ? scan_headers(found, &names, &values, &nulls) : 0;
}

static inline int add_timestamp(int64_t base, int64_t delta, int64_t *timestamp) {
    return __builtin_add_overflow(base, delta, timestamp) || *timestamp == INT64_MIN ? BAD_TIMESTAMP : 0;
}

static inline int check_record(const record *found, int64_t number, int64_t base_timestamp, int64_t needs_key) {
    int64_t timestamp;
    if (found->offset_delta != number) return BAD_DELTA;
    if (needs_key && found->key.size < 0) return NO_KEY;
    int fault = add_timestamp(base_timestamp, found->timestamp_delta, &timestamp);
    return fault ? fault : check_headers(found);
}

/* A fault and the number of its record in one number. */
static inline int64_t fault_at(int64_t number, int fault) { return -(number * FAULT_SPACE - fault); }

/* 0 when the body is exactly `count` sound records, numbered from 0 on; otherwise which is not, and why. */
int64_t headrace_check(const uint8_t *body, int64_t size, int64_t count, int64_t base_timestamp, int64_t needs_key) {
    const uint8_t *p = body, *end = body + size;
    record found;
    if (!count_fits(size, count)) return BAD_COUNT;
    for (int64_t i = 0; i < count; i++) {
        int fault = read_record(&p, end, &found);
        if (!fault) fault = check_record(&found, i, base_timestamp, needs_key);
        if (fault) return fault_at(i, fault);
    }
    return p == end ? 0 : fault_at(count, LEFT_OVER);
}

/* Whether `key` comes before `other`, compared as bytes. */
static inline int is_before(const span *key, const span *other) {
    int64_t shorter = key->size < other->size ? key->size : other->size;
    int order = shorter > 0 ? memcmp(key->at, other->at, (size_t)shorter) : 0;
    return order ? order < 0 : key->size < other->size;
}

/* How many of `count` records have no key, or one outside [low, end); a negative end_size: there is no end.
 * A malformed record and all after it count, too: the caller has checked them. */
int64_t headrace_count_outside(const uint8_t *body, int64_t size, int64_t count, const uint8_t *low, int64_t low_size,
                               const uint8_t *end, int64_t end_size) {
    const uint8_t *p = body, *stop = body + size;
    span first = {low, low_size}, last = {end, end_size};
    int64_t outside = 0;
    record found;
    for (int64_t i = 0; i < count; i++) {
        if (read_record(&p, stop, &found)) return outside + count - i;
        int fits = found.key.size >= 0 && !is_before(&found.key, &first);
        if (!fits || (end_size >= 0 && !is_before(&found.key, &last))) outside++;
    }
    return outside;
}

static inline uint64_t big_endian(const uint8_t *p, int bytes) {
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value = value << 8 | p[i];
    return value;
}

/* The same of a whole uncompressed batch: what to expect is read from its header. */
int64_t headrace_check_batch(const uint8_t *batch, int64_t size, int64_t needs_key) {
    if (size < HEADER_SIZE) return CUT_OFF;
    int64_t base_timestamp = (int64_t)big_endian(batch + BASE_TIMESTAMP_AT, 8);
    int32_t count = (int32_t)(uint32_t)big_endian(batch + COUNT_AT, 4);
    return headrace_check(batch + HEADER_SIZE, size - HEADER_SIZE, count, base_timestamp, needs_key);
}

/* How many of `count` batches at `places` (start and size of each) are sound, up to the first that is not. */
int64_t headrace_count_sound(const uint8_t *buffer, int64_t size, const int64_t *places, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        int64_t start = places[2 * i], batch_size = places[2 * i + 1];
        if (start < 0 || start > size || batch_size < 0 || batch_size > size - start) return i;
        if (headrace_check_batch(buffer + start, batch_size, 0)) return i;
    }
    return count;
}

typedef struct {
    int64_t base_offset, base_timestamp, append_time, has_append_time, start_offset, timestamp, wants_latest;
} question;

/* The first record from `start_offset` on that is not older than `timestamp`, or the latest of all.
 * 1 when there is one: its time and offset are in `answer`. Of equal times the lowest offset counts. */
int64_t headrace_find_time(const uint8_t *body, int64_t size, int64_t count, const question *ask, int64_t *answer) {
    const uint8_t *p = body, *end = body + size;
    int64_t found = 0;
    record at;
    if (!count_fits(size, count)) return BAD_COUNT;
    for (int64_t i = 0; i < count; i++) {
        int64_t offset, timestamp = ask->append_time;
        int fault = read_record(&p, end, &at);
        if (!fault && !ask->has_append_time) fault = add_timestamp(ask->base_timestamp, at.timestamp_delta, &timestamp);
        if (!fault) fault = check_headers(&at);
        if (fault) return fault;
        if (__builtin_add_overflow(ask->base_offset, at.offset_delta, &offset)) return BAD_SIZE;
        if (offset < ask->start_offset || (!ask->wants_latest && timestamp < ask->timestamp)) continue;
        if (!found || timestamp > answer[0] || (timestamp == answer[0] && offset < answer[1])) {
            answer[0] = timestamp;
            answer[1] = offset;
            found = 1;
        }
        if (!ask->wants_latest) return 1;
    }
    return p == end ? found : LEFT_OVER;
}

typedef struct {
    int64_t timestamp_delta, offset_delta, key_start, key_size, value_start, value_size;
    int64_t header_count, headers_start, end;
} layout;

typedef struct { int64_t position, fault; } walk;

/* Where the parts of the next `count` records lie, from `state` on. How many were sound: fewer after a fault. */
int64_t headrace_layouts(const uint8_t *body, int64_t size, walk *state, int64_t count, layout *out) {
    if (state->position < 0 || state->position > size) return NO_ROOM;
    const uint8_t *p = body + state->position, *end = body + size;
    record found;
    for (int64_t i = 0; i < count; i++) {
        state->position = p - body;
        state->fault = read_record(&p, end, &found);
        if (state->fault) return i;
        out[i] = (layout){
            found.timestamp_delta, found.offset_delta, found.key.at - body, found.key.size, found.value.at - body,
            found.value.size, found.header_count, found.headers.at - body, p - body,
        };
    }
    state->position = p - body;
    return count;
}
