// SPDX-License-Identifier: Apache-2.0
/* Rows of Arrow columns as JSON text or in Avro's binary encoding: one value for each row.
 *
 * Columns come prepared by client/arrow/values/sources.py, whose structures mirror these: for JSON every leaf is a
 * string (K_STRING is to be quoted, K_TEXT stands as it is). Nothing is allocated: a row that finds no room is left
 * to the next call. Read next: values.h.
 */
#include "values.h"

typedef struct {
    int32_t kind, first_child, children, nullable;
    const uint8_t *name; /* JSON: quoted and with its colon */
    int64_t name_size, low, high, null_branch, first; /* first: where the column begins in its buffers */
    const uint8_t *validity, *data;
    const void *values; /* int64, double, float; bits of K_BOOL; ends */
} source;

typedef struct {
    const source *sources;
    uint8_t *p, *end;
    int32_t failed;
} writer;

static inline int spoil(writer *w, int32_t n, int code) {
    w->failed = n;
    return code;
}

static inline int put(writer *w, const void *from, int64_t size) {
    if (w->end - w->p < size) return V_FULL;
    memcpy(w->p, from, (size_t)size);
    w->p += size;
    return 0;
}

static inline int is_there(const source *from, int64_t row) {
    int64_t bit = from->first + row;
    return !from->validity || (from->validity[bit >> 3] >> (bit & 7) & 1);
}

static inline const uint8_t *text_of(const source *from, int64_t row, int64_t *size) {
    const int32_t *ends = (const int32_t *)from->values + from->first + row;
    *size = ends[1] - ends[0];
    return from->data + ends[0];
}

/* JSON --------------------------------------------------------------------------------------------------- */

static int put_quoted(writer *w, const uint8_t *from, int64_t size) {
    static const char hex[] = "0123456789abcdef";
    const uint8_t *stop = from + size;
    int code = put(w, "\"", 1);
    while (!code && from < stop) {
        const uint8_t *run = from;
        while (from < stop && *from >= 0x20 && *from != '"' && *from != '\\') from++;
        if ((code = put(w, run, from - run)) || from == stop) break;
        if (*from >= 0x20) {
            uint8_t pair[2] = {'\\', *from};
            code = put(w, pair, 2);
        } else {
            uint8_t escape[6] = {'\\', 'u', '0', '0', (uint8_t)hex[*from >> 4], (uint8_t)hex[*from & 15]};
            code = put(w, escape, 6);
        }
        from++;
    }
    return code ? code : put(w, "\"", 1);
}

static int put_json(writer *w, int32_t n, int64_t row);

static int put_members(writer *w, const source *from, int64_t row) {
    int code = put(w, "{", 1);
    for (int32_t i = 0; !code && i < from->children; i++) {
        const source *field = &w->sources[from->first_child + i];
        if (i) code = put(w, ",", 1);
        if (!code) code = put(w, field->name, field->name_size);
        if (!code) code = put_json(w, from->first_child + i, row);
    }
    return code ? code : put(w, "}", 1);
}

static int put_items(writer *w, const source *from, int64_t row) {
    const int32_t *ends = (const int32_t *)from->values + from->first + row;
    int is_map = from->kind == K_MAP;
    int code = put(w, is_map ? "{" : "[", 1);
    for (int64_t item = ends[0]; !code && item < ends[1]; item++) {
        if (item > ends[0]) code = put(w, ",", 1);
        if (!code && is_map) code = put_json(w, from->first_child, item);
        if (!code && is_map) code = put(w, ":", 1);
        if (!code) code = put_json(w, from->first_child + is_map, item);
    }
    return code ? code : put(w, is_map ? "}" : "]", 1);
}

static int put_json(writer *w, int32_t n, int64_t row) {
    const source *from = &w->sources[n];
    if (!is_there(from, row)) return put(w, "null", 4);
    if (from->kind == K_STRUCT) return put_members(w, from, row);
    if (from->kind == K_LIST || from->kind == K_MAP) return put_items(w, from, row);
    int64_t size;
    const uint8_t *text = text_of(from, row, &size);
    if (from->kind == K_STRING) return put_quoted(w, text, size);
    if (size && (text[0] == 'n' || text[0] == 'i' || (size > 1 && text[1] == 'i'))) return spoil(w, n, V_RANGE);
    return put(w, text, size); /* nan and inf are not JSON */
}

/* Avro --------------------------------------------------------------------------------------------------- */

static inline int put_long(writer *w, int64_t value) {
    uint64_t raw = (uint64_t)value << 1 ^ (uint64_t)(value >> 63);
    uint8_t bytes[10];
    int size = 0;
    for (; raw > 0x7F; raw >>= 7) bytes[size++] = (uint8_t)(raw | 0x80);
    bytes[size++] = (uint8_t)raw;
    return put(w, bytes, size);
}

static int put_avro(writer *w, int32_t n, int64_t row);

static int put_block(writer *w, const source *from, int64_t row) {
    const int32_t *ends = (const int32_t *)from->values + from->first + row;
    int code = ends[1] > ends[0] ? put_long(w, ends[1] - ends[0]) : 0;
    for (int64_t item = ends[0]; item < ends[1]; item++)
        for (int32_t i = 0; !code && i < from->children; i++) code = put_avro(w, from->first_child + i, item);
    return code ? code : put_long(w, 0);
}

/* Arrow's sixteen bytes as few as hold the number, most significant first; or as many as a fixed one has. */
static int put_decimal(writer *w, int32_t n, int64_t row) {
    const source *from = &w->sources[n];
    const uint8_t *number = from->data + 16 * (from->first + row);
    uint8_t sign = number[15] & 0x80 ? 0xFF : 0, turned[16];
    int64_t size = 16;
    while (size > 1 && number[size - 1] == sign && !((number[size - 2] ^ sign) & 0x80)) size--;
    for (int64_t i = 0; i < size; i++) turned[i] = number[size - 1 - i];
    if (from->high >= 0 && size > from->high) return spoil(w, n, V_RANGE);
    int code = from->high < 0 ? put_long(w, size) : 0;
    for (int64_t i = size; !code && i < from->high; i++) code = put(w, &sign, 1);
    return code ? code : put(w, turned, size);
}

static int put_leaf(writer *w, int32_t n, int64_t row) {
    const source *from = &w->sources[n];
    int64_t at = from->first + row, size, number;
    const uint8_t *text;
    int code;
    switch (from->kind) {
    case K_BOOL: return put(w, ((const uint8_t *)from->values)[at >> 3] >> (at & 7) & 1 ? "\1" : "\0", 1);
    case K_INT: case K_ENUM:
        number = ((const int64_t *)from->values)[at];
        return number < from->low || number > from->high ? spoil(w, n, V_RANGE) : put_long(w, number);
    case K_FLOAT: return put(w, (const double *)from->values + at, 8);
    case K_REAL32: return put(w, (const float *)from->values + at, 4);
    case K_FIXED: return put(w, from->data + from->low * at, from->low);
    case K_DECIMAL: return put_decimal(w, n, row);
    default: /* K_STRING, K_BYTES */
        text = text_of(from, row, &size);
        code = put_long(w, size);
        return code ? code : put(w, text, size);
    }
}

/* A union of several types is a struct of its branches: the first that is set counts. */
static int put_branch(writer *w, int32_t n, int64_t row) {
    const source *from = &w->sources[n];
    int32_t i = is_there(from, row) ? 0 : from->children;
    while (i < from->children && !is_there(&w->sources[from->first_child + i], row)) i++;
    if (i == from->children) return from->null_branch >= 0 ? put_long(w, from->null_branch) : spoil(w, n, V_NULL);
    int code = put_long(w, i + (from->null_branch >= 0 && i >= from->null_branch));
    return code ? code : put_avro(w, from->first_child + i, row);
}

static int put_avro(writer *w, int32_t n, int64_t row) {
    const source *from = &w->sources[n];
    if (from->kind == K_UNION) return put_branch(w, n, row);
    int there = from->kind != K_NULL && is_there(from, row);
    int code = 0;
    if (from->null_branch >= 0) code = put_long(w, there ? 1 - from->null_branch : from->null_branch);
    if (code || from->kind == K_NULL) return code;
    if (!there) return from->null_branch >= 0 ? 0 : spoil(w, n, V_NULL);
    if (from->kind == K_LIST || from->kind == K_MAP) return put_block(w, from, row);
    if (from->kind != K_STRUCT) return put_leaf(w, n, row);
    for (int32_t i = 0; !code && i < from->children; i++) code = put_avro(w, from->first_child + i, row);
    return code;
}

/* Rows --------------------------------------------------------------------------------------------------- */

typedef struct {
    const uint8_t *prefix;
    int64_t prefix_size, rows;
    uint8_t *data;
    int64_t capacity;
    int32_t *ends; /* one more than rows */
} written;

/* Rows from `first` on. Their number when all are done, V_FULL for want of room, or the fault that a row has:
 * `stopped` says at which row, and at which column. A row whose column is null stays empty. */
static int64_t put_rows(const source *sources, const written *out, int64_t first, int64_t *stopped,
                        int (*put_row)(writer *, int32_t, int64_t)) {
    writer w = {sources, out->data + out->ends[first], out->data + out->capacity, 0};
    for (int64_t row = first; row < out->rows; row++) {
        if (is_there(&sources[0], row)) {
            int code = put(&w, out->prefix, out->prefix_size);
            if (code || (code = put_row(&w, 0, row))) {
                stopped[0] = row;
                stopped[1] = w.failed;
                return code == V_FULL ? V_FULL : -100 - code;
            }
        }
        out->ends[row + 1] = (int32_t)(w.p - out->data);
    }
    return out->rows;
}

int64_t headrace_write_json(const source *sources, const written *out, int64_t first, int64_t *stopped) {
    return put_rows(sources, out, first, stopped, put_json);
}

int64_t headrace_write_avro(const source *sources, const written *out, int64_t first, int64_t *stopped) {
    return put_rows(sources, out, first, stopped, put_avro);
}
