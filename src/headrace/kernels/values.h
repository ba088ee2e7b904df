// SPDX-License-Identifier: Apache-2.0
/* Columns that grow row by row while keys or values are read into them: what json.c and avro.c share.
 *
 * A schema is an array of nodes; node 0 is the value itself, and the children of a node follow each other. A
 * column is as Arrow has it, but for validity, which takes a byte for each entry. Nothing is allocated: a row
 * that finds no room is taken back, and the caller comes again with more. Read next: json.c, avro.c; their
 * caller, client/arrow/value_columns.py, mirrors these structures.
 */
#ifndef HEADRACE_VALUES_H
#define HEADRACE_VALUES_H
#include <stdint.h>
#include <string.h>

enum { K_BOOL, K_INT, K_FLOAT, K_STRING, K_TEXT, K_TIME, K_STRUCT, K_LIST, K_MAP, /* of JSON */
       K_BYTES, K_FIXED, K_REAL32, K_ENUM, K_UNION, K_NULL, K_DECIMAL }; /* of Avro only */

enum { V_FULL = -8, /* NO_ROOM of records.h: not the row's fault */
       V_SYNTAX = 1, V_CUT_OFF, V_KIND, V_RANGE, V_NULL, V_MISSING, V_TWICE, V_UTF8, V_DEEP, V_LEFT_OVER, V_TIME,
       V_BRANCH, V_LENGTH, V_UNKNOWN };

typedef struct {
    int32_t kind, first_child, children, nullable;
    const uint8_t *name; /* of a field */
    int64_t name_size, plain_name; /* plain: stands in JSON as it is */
    int64_t low, high; /* K_INT: bounds. K_FLOAT: whether it is a float32. K_STRUCT: whether other fields are a fault.
                          K_TIME: ticks per second (0: days), whether it has a zone. K_FIXED: its size. K_ENUM: how
                          many symbols. K_DECIMAL: 16, and the size of a fixed one or -1 */
    int64_t null_branch; /* of an Avro union; -1: none */
    uint8_t *validity, *data;
    void *values; /* int64, double, a byte for K_BOOL; ends as int32, one more than entries */
    int64_t entries, capacity, data_size, data_capacity;
} node;

typedef struct { int32_t code, node, position; } fault;
typedef struct {
    const int32_t *ends;
    const uint8_t *data, *validity;
    int64_t first_bit, rows, prefix; /* prefix: bytes before each value that are not its own */
} value_rows;

typedef struct {
    node *nodes;
    const uint8_t *start, *p, *end;
    int32_t failed; /* the node that a code is about */
} cursor;

static inline int fail(cursor *c, int32_t n, int code) {
    c->failed = n;
    return code;
}

static inline int has_room(cursor *c, int32_t n) {
    if (c->nodes[n].entries < c->nodes[n].capacity) return 0;
    return fail(c, n, V_FULL);
}

static inline int has_ends(int32_t kind) {
    return kind == K_STRING || kind == K_TEXT || kind == K_LIST || kind == K_MAP || kind == K_BYTES;
}

static inline int has_size(int32_t kind) { return kind == K_FIXED || kind == K_DECIMAL; }

/* An entry for a row that has none: it is null, or stands below one that is. */
static int add_blank(cursor *c, int32_t n) {
    node *to = &c->nodes[n];
    int code = has_room(c, n);
    if (code) return code;
    if (to->kind == K_STRUCT || to->kind == K_UNION) {
        for (int32_t i = 0; i < to->children; i++)
            if ((code = add_blank(c, to->first_child + i))) return code;
    } else if (has_ends(to->kind)) {
        int32_t *ends = to->values;
        ends[to->entries + 1] = ends[to->entries];
    } else if (has_size(to->kind)) {
        if (to->data_capacity - to->data_size < to->low) return fail(c, n, V_FULL);
        memset(to->data + to->data_size, 0, (size_t)to->low);
        to->data_size += to->low;
    } else if (to->kind == K_BOOL) {
        ((uint8_t *)to->values)[to->entries] = 0;
    } else if (to->values) {
        ((int64_t *)to->values)[to->entries] = 0;
    }
    to->validity[to->entries++] = 0;
    return 0;
}

static inline int add_int(cursor *c, int32_t n, int64_t value) {
    node *to = &c->nodes[n];
    int code = has_room(c, n);
    if (code) return code;
    ((int64_t *)to->values)[to->entries] = value;
    to->validity[to->entries++] = 1;
    return 0;
}

static inline int add_double(cursor *c, int32_t n, double value) {
    int64_t bits;
    memcpy(&bits, &value, 8);
    return add_int(c, n, bits);
}

static inline int add_bool(cursor *c, int32_t n, int value) {
    node *to = &c->nodes[n];
    int code = has_room(c, n);
    if (code) return code;
    ((uint8_t *)to->values)[to->entries] = (uint8_t)value;
    to->validity[to->entries++] = 1;
    return 0;
}

/* Room for `size` bytes of a string; end_string says how many of them were used. */
static inline int begin_string(cursor *c, int32_t n, int64_t size, uint8_t **at) {
    node *to = &c->nodes[n];
    int code = has_room(c, n);
    if (code) return code;
    if (to->data_capacity - to->data_size < size) return fail(c, n, V_FULL);
    *at = to->data + to->data_size;
    return 0;
}

static inline void end_string(cursor *c, int32_t n, int64_t size) {
    node *to = &c->nodes[n];
    to->data_size += size;
    if (!has_size(to->kind)) ((int32_t *)to->values)[to->entries + 1] = (int32_t)to->data_size;
    to->validity[to->entries++] = 1;
}

static inline int add_string(cursor *c, int32_t n, const uint8_t *from, int64_t size) {
    uint8_t *at;
    int code = begin_string(c, n, size, &at);
    if (code) return code;
    memcpy(at, from, (size_t)size);
    end_string(c, n, size);
    return 0;
}

/* A list or map whose items were read into its children. */
static inline void end_items(cursor *c, int32_t n) {
    node *to = &c->nodes[n];
    ((int32_t *)to->values)[to->entries + 1] = (int32_t)c->nodes[to->first_child].entries;
    to->validity[to->entries++] = 1;
}

/* How many bytes the character at p takes; 0: it is not UTF-8. */
static inline int utf8_size(const uint8_t *p, const uint8_t *end) {
    uint8_t a = p[0];
    if (a < 0x80) return 1;
    int64_t left = end - p;
    if (a < 0xC2 || a > 0xF4 || left < 2 || (p[1] & 0xC0) != 0x80) return 0;
    if (a < 0xE0) return 2;
    if (left < 3 || (p[2] & 0xC0) != 0x80) return 0;
    if (a < 0xF0) return (a == 0xE0 && p[1] < 0xA0) || (a == 0xED && p[1] > 0x9F) ? 0 : 3;
    if (left < 4 || (p[3] & 0xC0) != 0x80) return 0;
    return (a == 0xF0 && p[1] < 0x90) || (a == 0xF4 && p[1] > 0x8F) ? 0 : 4;
}

typedef int (*read_row)(cursor *c);

static inline int begin_row(cursor *c, int64_t prefix, read_row read) {
    if (c->end - c->p < prefix) return V_CUT_OFF;
    c->p += prefix;
    return read(c);
}

/* Rows from `first` on. Their number when all are done, or V_FULL: `stopped` says at which row, for want of room in
 * which node. A row that cannot be read is null, and its fault says why. `saved` has two places for each node. */
static inline int64_t read_rows(node *nodes, int64_t count, const value_rows *rows, int64_t first, int64_t *saved,
                                fault *faults, int64_t *stopped, read_row read) {
    for (int64_t row = first; row < rows->rows; row++) {
        int64_t bit = rows->first_bit + row;
        int there = !rows->validity || (rows->validity[bit >> 3] >> (bit & 7) & 1);
        cursor c = {nodes, rows->data + rows->ends[row], rows->data + rows->ends[row],
                    rows->data + rows->ends[row + 1], 0};
        for (int64_t n = 0; n < count; n++) {
            saved[2 * n] = nodes[n].entries;
            saved[2 * n + 1] = nodes[n].data_size;
        }
        int code = there ? begin_row(&c, rows->prefix, read) : add_blank(&c, 0);
        if (code == 0) continue;
        for (int64_t n = 0; n < count; n++) {
            nodes[n].entries = saved[2 * n];
            nodes[n].data_size = saved[2 * n + 1];
        }
        if (code != V_FULL) {
            faults[row] = (fault){code, c.failed, (int32_t)(c.p - c.start)};
            code = add_blank(&c, 0);
        }
        if (code) {
            stopped[0] = row;
            stopped[1] = c.failed;
            faults[row].code = 0;
            return V_FULL;
        }
    }
    return rows->rows;
}
#endif
