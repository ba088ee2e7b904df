// SPDX-License-Identifier: Apache-2.0
/* Records of batch bodies to Arrow buffers and back, and the partitions of rows: the Arrow client's loops.
 *
 * Called by client/arrow/kernels/compiled.py alone, whose structures mirror these. Read next: records.h.
 */
#include "records.h"

typedef struct {
    const uint8_t *body;
    int64_t size, base_offset, base_timestamp, append_time, has_append_time, count, first_offset, end_offset;
} section;

typedef struct {
    int64_t rows, key_bytes, value_bytes, headers, header_name_bytes, header_value_bytes;
    int64_t null_keys, null_values, null_header_values, failed_section, failed_record;
} totals;

typedef struct {
    int64_t *offsets, *timestamps;
    span *keys, *values, *headers;
    int32_t *header_ends;
    int64_t capacity;
} scan_output;

/* Reading ------------------------------------------------------------------------------------------------ */

static inline int keep_record(const section *from, const record *found, const scan_output *out, totals *sum) {
    int64_t offset, timestamp = from->append_time;
    int64_t names = 0, values = 0, nulls = 0;
    if (__builtin_add_overflow(from->base_offset, found->offset_delta, &offset)) return BAD_SIZE;
    if (!from->has_append_time
        && __builtin_add_overflow(from->base_timestamp, found->timestamp_delta, &timestamp)) return BAD_TIMESTAMP;
    if (timestamp == INT64_MIN) return BAD_TIMESTAMP;
    if (found->header_count) {
        int fault = scan_headers(found, &names, &values, &nulls);
        if (fault) return fault;
    }
    if (offset < from->first_offset || offset >= from->end_offset) return 0;
    int64_t row = sum->rows;
    if (row >= out->capacity) return NO_ROOM;
    if (out->offsets) out->offsets[row] = offset;
    if (out->timestamps) out->timestamps[row] = timestamp;
    if (out->keys) out->keys[row] = found->key;
    if (out->values) out->values[row] = found->value;
    sum->headers += found->header_count;
    if (out->headers) {
        out->headers[row] = found->headers;
        out->header_ends[row] = (int32_t)sum->headers;
    }
    sum->rows = row + 1;
    if (found->key.size < 0) sum->null_keys++; else sum->key_bytes += found->key.size;
    if (found->value.size < 0) sum->null_values++; else sum->value_bytes += found->value.size;
    sum->header_name_bytes += names;
    sum->header_value_bytes += values;
    sum->null_header_values += nulls;
    return 0;
}

static int scan_section(const section *from, const scan_output *out, totals *sum) {
    const uint8_t *p = from->body, *end = p + from->size;
    record found;
    if (from->size < 0 || from->count < 0 || from->count > from->size / SMALLEST_RECORD) return BAD_COUNT;
    for (int64_t i = 0; i < from->count; i++) {
        sum->failed_record = i;
        int fault = read_record(&p, end, &found);
        if (!fault) fault = keep_record(from, &found, out, sum);
        if (fault) return fault;
    }
    return p == end ? 0 : LEFT_OVER;
}

/* First pass: finds every record, checks every byte, keeps those within each section's offsets. */
int64_t headrace_scan(const section *sections, int64_t count, const scan_output *out, totals *sum, int64_t *rows) {
    for (int64_t i = 0; i < count; i++) {
        int64_t before = sum->rows;
        int fault = scan_section(&sections[i], out, sum);
        if (fault) {
            sum->failed_section = i;
            return fault;
        }
        rows[i] = sum->rows - before;
    }
    return 0;
}

static inline void clear_bit(uint8_t *bits, int64_t row) { bits[row >> 3] &= (uint8_t)~(1u << (row & 7)); }

/* Second pass: the bytes of one column, `validity` all set before or NULL when nothing is null. */
int64_t headrace_gather(const span *spans, int64_t rows, int32_t *ends, uint8_t *data, int64_t room, uint8_t *validity) {
    int64_t used = 0;
    ends[0] = 0;
    for (int64_t row = 0; row < rows; row++) {
        int64_t size = spans[row].size;
        if (size > 0) {
            if (size > room - used) return NO_ROOM;
            memcpy(data + used, spans[row].at, (size_t)size);
            used += size;
        } else if (size < 0) {
            if (!validity) return NO_ROOM;
            clear_bit(validity, row);
        }
        ends[row + 1] = (int32_t)used;
    }
    return used;
}

/* Second pass: names and values of all headers, in row order, as spans for headrace_gather. */
int64_t headrace_header_spans(const span *headers, int64_t rows, span *names, span *values, int64_t room) {
    int64_t found = 0;
    for (int64_t row = 0; row < rows; row++) {
        const uint8_t *p = headers[row].at, *stop = p + headers[row].size;
        while (p < stop) {
            if (found >= room) return NO_ROOM;
            int fault = read_header(&p, stop, &names[found], &values[found]);
            if (fault) return fault;
            found++;
        }
    }
    return found;
}

/* Writing ------------------------------------------------------------------------------------------------ */

typedef struct { /* an Arrow binary column; without `ends` every row is null */
    const int32_t *ends;
    const uint8_t *data;
    const uint8_t *validity;
    int64_t first_bit, data_size, rows;
} column;

typedef struct { const int32_t *ends; column names, values; } header_column;

typedef struct { int64_t rows, bytes, base_timestamp, max_timestamp, needed; } written;

static inline int column_span(const column *from, int64_t row, span *out) {
    out->at = NULL;
    out->size = -1;
    if (!from->ends) return 0;
    if (row < 0 || row >= from->rows) return BAD_COLUMN;
    int64_t bit = from->first_bit + row;
    if (from->validity && !(from->validity[bit >> 3] >> (bit & 7) & 1)) return 0;
    int64_t start = from->ends[row], end = from->ends[row + 1];
    if (start < 0 || end < start || end > from->data_size) return BAD_COLUMN;
    out->at = from->data + start;
    out->size = end - start;
    return 0;
}

static inline uint64_t zigzag(int64_t value) { return ((uint64_t)value << 1) ^ (uint64_t)(value >> 63); }

static inline int64_t raw_size(uint64_t raw) { return raw < 0x80 ? 1 : (63 - __builtin_clzll(raw)) / 7 + 1; }

static inline int64_t int_size(int64_t value) { return raw_size(zigzag(value)); }

static inline int64_t span_size(const span *from) { return from->size < 0 ? 1 : int_size(from->size) + from->size; }

static inline uint8_t *put_int(uint8_t *p, int64_t value) {
    uint64_t raw = zigzag(value);
    while (raw >= 0x80) {
        *p++ = (uint8_t)(raw | 0x80);
        raw >>= 7;
    }
    *p++ = (uint8_t)raw;
    return p;
}

static inline uint8_t *put_span(uint8_t *p, const span *from) {
    if (from->size < 0) {
        *p++ = 1;
        return p;
    }
    p = put_int(p, from->size);
    if (from->size) memcpy(p, from->at, (size_t)from->size);
    return p + from->size;
}

static int headers_size(const header_column *headers, int64_t row, int64_t *count, int64_t *size) {
    *count = 0;
    if (headers->ends) {
        int64_t start = headers->ends[row], end = headers->ends[row + 1];
        if (start < 0 || end < start) return BAD_COLUMN;
        *count = end - start;
        for (int64_t i = start; i < end; i++) {
            span name, value;
            int fault = column_span(&headers->names, i, &name);
            if (!fault) fault = column_span(&headers->values, i, &value);
            if (!fault && name.size < 0) fault = BAD_HEADERS;
            if (fault) return fault;
            *size += span_size(&name) + span_size(&value);
        }
    }
    *size += int_size(*count);
    return 0;
}

static uint8_t *put_headers(uint8_t *p, const header_column *headers, int64_t row, int64_t count) {
    p = put_int(p, count);
    for (int64_t i = 0; i < count; i++) {
        span name, value;
        column_span(&headers->names, headers->ends[row] + i, &name);
        column_span(&headers->values, headers->ends[row] + i, &value);
        p = put_span(put_span(p, &name), &value);
    }
    return p;
}

/* Rows as the records of one batch, as many as fit `limit` bytes and at least one; `out` has room for `room`.
 * NO_ROOM when the first record alone needs more: `needed` says how much. */
int64_t headrace_encode(const column *keys, const column *values, const header_column *headers,
                        const int64_t *timestamps, int64_t timestamp, const int64_t *rows, int64_t row_count,
                        int64_t limit, uint8_t *out, int64_t room, written *done) {
    uint8_t *p = out;
    for (int64_t i = 0; i < row_count; i++) {
        int64_t row = rows[i], header_count, size = 1;
        int64_t time = timestamps ? timestamps[row] : timestamp;
        span key, value;
        if (i == 0) done->base_timestamp = done->max_timestamp = time;
        int64_t delta;
        if (__builtin_sub_overflow(time, done->base_timestamp, &delta)) return BAD_TIMESTAMP;
        int fault = column_span(keys, row, &key);
        if (!fault) fault = column_span(values, row, &value);
        if (!fault) fault = headers_size(headers, row, &header_count, &size);
        if (fault) return fault;
        size += int_size(delta) + int_size(i) + span_size(&key) + span_size(&value);
        int64_t whole = int_size(size) + size;
        if (i && p - out + whole > limit) break;
        if (whole > room - (p - out)) {
            done->needed = whole;
            if (i) break;
            return NO_ROOM;
        }
        p = put_int(p, size);
        *p++ = 0; /* attributes, unused */
        p = put_span(put_span(put_int(put_int(p, delta), i), &key), &value);
        p = put_headers(p, headers, row, header_count);
        if (time > done->max_timestamp) done->max_timestamp = time;
        done->rows = i + 1;
    }
    done->bytes = p - out;
    return 0;
}

/* Partitions --------------------------------------------------------------------------------------------- */

static inline uint32_t little_endian(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static int32_t murmur2(const uint8_t *p, int64_t size) {
    const uint32_t m = 0x5BD1E995;
    uint32_t hash = 0x9747B28Cu ^ (uint32_t)size;
    for (; size >= 4; p += 4, size -= 4) {
        uint32_t word = little_endian(p) * m;
        hash = hash * m ^ (word ^ word >> 24) * m;
    }
    if (size > 2) hash ^= (uint32_t)p[2] << 16;
    if (size > 1) hash ^= (uint32_t)p[1] << 8;
    if (size > 0) hash = (hash ^ p[0]) * m;
    hash = (hash ^ hash >> 13) * m;
    return (int32_t)(hash ^ hash >> 15);
}

/* The Java client's hash of every key; 0 for null. */
int64_t headrace_murmur2(const column *keys, int64_t rows, int32_t *hashes) {
    for (int64_t row = 0; row < rows; row++) {
        span key;
        int fault = column_span(keys, row, &key);
        if (fault) return fault;
        hashes[row] = key.size < 0 ? 0 : murmur2(key.at, key.size);
    }
    return 0;
}

/* Row numbers grouped by partition, in order within each; `ends` has partitions + 1 places, all zero before. */
int64_t headrace_group(const int32_t *chosen, int64_t rows, int64_t partitions, int64_t *ends, int64_t *grouped) {
    for (int64_t row = 0; row < rows; row++) {
        if (chosen[row] < 0 || chosen[row] >= partitions) return BAD_PARTITION;
        ends[chosen[row] + 1]++;
    }
    for (int64_t i = 0; i < partitions; i++) ends[i + 1] += ends[i];
    for (int64_t row = 0; row < rows; row++) grouped[ends[chosen[row]]++] = row;
    for (int64_t i = partitions; i > 0; i--) ends[i] = ends[i - 1];
    ends[0] = 0;
    return 0;
}
