// SPDX-License-Identifier: Apache-2.0
/* How the records of a batch body are read, for all kernels; what is malformed is as in wire/records.py.
 *
 * Plain C11 without Python.h, called through ctypes, which releases the GIL. No function but those of file_sync.c
 * allocates or keeps state, and none reads outside the ranges it is given; the first malformed byte ends a call with
 * a negative code (FAULTS in library.py). Read next: walk.c (for the broker), columns.c (for the Arrow client).
 */
#ifndef HEADRACE_RECORDS_H
#define HEADRACE_RECORDS_H
#include <stdint.h>
#include <string.h>

#define KERNELS_VERSION 7
#define SMALLEST_RECORD 7
#define LONGEST_USUAL_START 9 /* four short varints and the attributes */

enum { CUT_OFF = -1, BAD_VARINT = -2, BAD_SIZE = -3, BAD_HEADERS = -4, BAD_TIMESTAMP = -5, BAD_COUNT = -6,
       LEFT_OVER = -7, NO_ROOM = -8, BAD_COLUMN = -9, BAD_PARTITION = -10, BAD_DELTA = -11, NO_KEY = -12 };

typedef struct { const uint8_t *at; int64_t size; } span; /* a negative size is null */

static inline int read_raw(const uint8_t **at, const uint8_t *end, int bits, uint64_t *raw) {
    const uint8_t *p = *at;
    uint64_t value = 0;
    for (int shift = 0; shift < bits; shift += 7) {
        if (p >= end) return CUT_OFF;
        uint64_t byte = *p++;
        uint64_t low = byte & 0x7F;
        if (bits - shift < 7 && low >> (bits - shift)) return BAD_VARINT;
        value |= low << shift;
        if (byte < 0x80) {
            *raw = value;
            *at = p;
            return 0;
        }
    }
    return BAD_VARINT;
}

static inline int read_int(const uint8_t **at, const uint8_t *end, int bits, int64_t *value) {
    const uint8_t *p = *at;
    uint64_t raw;
    if (p < end && p[0] < 0x80) {
        raw = p[0];
        *at = p + 1;
    } else if (end - p > 1 && p[1] < 0x80) { /* most that are not of one byte are of two */
        raw = (p[0] & 0x7Fu) | (uint64_t)p[1] << 7;
        *at = p + 2;
    } else {
        int fault = read_raw(at, end, bits, &raw);
        if (fault) return fault;
    }
    *value = (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1);
    return 0;
}

/* A size and as many bytes; a negative size is null. */
static inline int read_span(const uint8_t **at, const uint8_t *end, span *out) {
    int fault = read_int(at, end, 32, &out->size);
    if (fault) return fault;
    out->at = *at;
    if (out->size > 0) {
        if (out->size > end - *at) return BAD_SIZE;
        *at += out->size;
    }
    return 0;
}

static inline int read_header(const uint8_t **at, const uint8_t *end, span *name, span *value) {
    int fault = read_span(at, end, name);
    if (fault) return fault;
    if (name->size < 0) return BAD_HEADERS;
    return read_span(at, end, value);
}

typedef struct { int64_t timestamp_delta, offset_delta, header_count; span key, value, headers; } record;

/* A varint of one or two bytes, both of which are there; longer ones are left to read_int. */
static inline int read_short(const uint8_t **at, int64_t *value) {
    const uint8_t *p = *at;
    uint32_t raw = p[0];
    if (raw < 0x80) {
        *at = p + 1;
    } else if (p[1] < 0x80) {
        raw = (raw & 0x7F) | (uint32_t)p[1] << 7;
        *at = p + 2;
    } else {
        return 0;
    }
    *value = (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1);
    return 1;
}

/* Most records: short varints, no headers, not at the very end. 0 when it is another one, whatever it is. */
static inline int read_usual_record(const uint8_t **at, const uint8_t *end, record *out) {
    const uint8_t *p = *at;
    int64_t length;
    if (end - p < LONGEST_USUAL_START || !read_short(&p, &length)) return 0;
    if (length < SMALLEST_RECORD - 1 || length > end - p) return 0;
    const uint8_t *stop = p + length;
    p++; /* attributes, unused */
    if (!read_short(&p, &out->timestamp_delta) || !read_short(&p, &out->offset_delta)) return 0;
    if (!read_short(&p, &out->key.size)) return 0;
    out->key.at = p;
    int64_t key_size = out->key.size > 0 ? out->key.size : 0;
    if (stop - p - key_size < 2) return 0;
    p += key_size;
    if (!read_short(&p, &out->value.size)) return 0;
    out->value.at = p;
    int64_t value_size = out->value.size > 0 ? out->value.size : 0;
    if (stop - p - value_size != 1 || p[value_size]) return 0; /* nothing but a count of no headers is left */
    out->header_count = 0;
    out->headers.at = stop;
    out->headers.size = 0;
    *at = stop;
    return 1;
}

static inline int read_record(const uint8_t **at, const uint8_t *end, record *out) {
    if (read_usual_record(at, end, out)) return 0;
    int64_t length;
    int fault = read_int(at, end, 32, &length);
    if (fault) return fault;
    if (length < SMALLEST_RECORD - 1 || length > end - *at) return BAD_SIZE;
    const uint8_t *stop = *at + length;
    const uint8_t *p = *at + 1; /* attributes, unused */
    if ((fault = read_int(&p, stop, 64, &out->timestamp_delta))) return fault;
    if ((fault = read_int(&p, stop, 32, &out->offset_delta))) return fault;
    if ((fault = read_span(&p, stop, &out->key))) return fault;
    if ((fault = read_span(&p, stop, &out->value))) return fault;
    if ((fault = read_int(&p, stop, 32, &out->header_count))) return fault;
    if (out->header_count < 0 || out->header_count * 2 > stop - p) return BAD_HEADERS;
    out->headers.at = p;
    out->headers.size = stop - p;
    if (out->header_count == 0 && p != stop) return LEFT_OVER;
    *at = stop;
    return 0;
}

/* All headers of a record, which must fill it to its end; adds to the three sums. */
static inline int scan_headers(const record *found, int64_t *name_bytes, int64_t *value_bytes, int64_t *nulls) {
    const uint8_t *p = found->headers.at, *stop = p + found->headers.size;
    span name, value;
    for (int64_t i = 0; i < found->header_count; i++) {
        int fault = read_header(&p, stop, &name, &value);
        if (fault) return fault;
        *name_bytes += name.size;
        if (value.size < 0) (*nulls)++;
        else *value_bytes += value.size;
    }
    return p == stop ? 0 : LEFT_OVER;
}
#endif
