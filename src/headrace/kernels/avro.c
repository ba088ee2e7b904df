// SPDX-License-Identifier: Apache-2.0
/* Rows of Avro's binary encoding into columns, by the schema they were written with.
 *
 * A union of null and something is that thing or null; any other union is a struct of its branches, of which one is
 * set. Read next: values.h.
 */
#include "records.h"
#include "values.h"

static int read_avro(cursor *c, int32_t n);

static inline int read_long(cursor *c, int32_t n, int64_t *value) {
    int code = read_int(&c->p, c->end, 64, value);
    return code ? fail(c, n, code == CUT_OFF ? V_CUT_OFF : V_SYNTAX) : 0;
}

static inline int take(cursor *c, int32_t n, int64_t size, const uint8_t **at) {
    if (size < 0) return fail(c, n, V_LENGTH);
    if (size > c->end - c->p) return fail(c, n, V_CUT_OFF);
    *at = c->p;
    c->p += size;
    return 0;
}

static int read_bytes(cursor *c, int32_t n) {
    const uint8_t *at;
    int64_t size;
    int code = read_long(c, n, &size);
    if (code || (code = take(c, n, size, &at))) return code;
    if (c->nodes[n].kind == K_STRING) {
        for (const uint8_t *p = at, *stop = at + size; p < stop;) {
            int step = utf8_size(p, stop);
            if (step == 0) return fail(c, n, V_UTF8);
            p += step;
        }
    }
    return add_string(c, n, at, size);
}

static int read_real(cursor *c, int32_t n) {
    const uint8_t *at;
    int code = take(c, n, c->nodes[n].kind == K_REAL32 ? 4 : 8, &at);
    if (code) return code;
    double value;
    if (c->nodes[n].kind == K_REAL32) {
        float narrow;
        memcpy(&narrow, at, 4);
        value = narrow;
    } else {
        memcpy(&value, at, 8);
    }
    return add_double(c, n, value);
}

static int read_bounded(cursor *c, int32_t n) {
    const node *to = &c->nodes[n];
    int64_t value;
    int code = read_long(c, n, &value);
    if (code) return code;
    int is_enum = to->kind == K_ENUM;
    if (is_enum ? value < 0 || value >= to->low : value < to->low || value > to->high) return fail(c, n, V_RANGE);
    return add_int(c, n, value);
}

/* Arrays and maps: blocks of items, each behind its count; a negative count is followed by the block's size. */
static int read_blocks(cursor *c, int32_t n) {
    const node *to = &c->nodes[n];
    int64_t count, size;
    int code = has_room(c, n);
    if (code) return code;
    for (;;) {
        if ((code = read_long(c, n, &count))) return code;
        if (count == 0) break;
        if (count < 0) {
            if (count == INT64_MIN || (code = read_long(c, n, &size))) return code ? code : fail(c, n, V_LENGTH);
            count = -count;
        }
        if (count > c->end - c->p) return fail(c, n, V_LENGTH); /* no more items than bytes */
        for (int64_t i = 0; i < count; i++)
            for (int32_t child = 0; child < to->children; child++)
                if ((code = read_avro(c, to->first_child + child))) return code;
    }
    end_items(c, n);
    return 0;
}

static int read_fields(cursor *c, int32_t n) {
    node *to = &c->nodes[n];
    int code = has_room(c, n);
    for (int32_t i = 0; !code && i < to->children; i++) code = read_avro(c, to->first_child + i);
    if (!code) to->validity[to->entries++] = 1;
    return code;
}

static int read_branches(cursor *c, int32_t n, int64_t branch) {
    node *to = &c->nodes[n];
    int code = has_room(c, n);
    if (branch < 0 || branch >= to->children) return fail(c, n, V_BRANCH);
    for (int32_t i = 0; !code && i < to->children; i++)
        code = i == branch ? read_avro(c, to->first_child + i) : add_blank(c, to->first_child + i);
    if (!code) to->validity[to->entries++] = 1;
    return code;
}

static int read_fixed(cursor *c, int32_t n) {
    const uint8_t *at;
    int code = take(c, n, c->nodes[n].low, &at);
    return code ? code : add_string(c, n, at, c->nodes[n].low);
}

/* A whole number, most significant byte first, as Arrow's sixteen bytes the other way round. */
static int read_decimal(cursor *c, int32_t n) {
    const node *to = &c->nodes[n];
    const uint8_t *at;
    int64_t size = to->high;
    int code = size < 0 ? read_long(c, n, &size) : 0;
    if (code || (code = take(c, n, size, &at))) return code;
    uint8_t sign = size > 0 && at[0] & 0x80 ? 0xFF : 0, number[16];
    for (; size > 16; size--, at++)
        if (at[0] != sign || ((at[1] ^ sign) & 0x80)) return fail(c, n, V_RANGE);
    for (int i = 0; i < 16; i++) number[i] = i < size ? at[size - 1 - i] : sign;
    return add_string(c, n, number, 16);
}

static int read_flag(cursor *c, int32_t n) {
    const uint8_t *at;
    int code = take(c, n, 1, &at);
    if (code) return code;
    return *at > 1 ? fail(c, n, V_RANGE) : add_bool(c, n, *at);
}

static int read_avro(cursor *c, int32_t n) {
    const node *to = &c->nodes[n];
    int64_t branch = 0;
    if (to->null_branch >= 0 || to->kind == K_UNION) {
        int code = read_long(c, n, &branch);
        if (code) return code;
        if (branch == to->null_branch) return add_blank(c, n);
        if (to->kind != K_UNION && branch != 1 - to->null_branch) return fail(c, n, V_BRANCH);
        if (to->null_branch >= 0 && branch > to->null_branch) branch--;
    }
    switch (to->kind) {
    case K_BOOL: return read_flag(c, n);
    case K_INT: case K_ENUM: return read_bounded(c, n);
    case K_FLOAT: case K_REAL32: return read_real(c, n);
    case K_STRING: case K_BYTES: return read_bytes(c, n);
    case K_FIXED: return read_fixed(c, n);
    case K_DECIMAL: return read_decimal(c, n);
    case K_STRUCT: return read_fields(c, n);
    case K_LIST: case K_MAP: return read_blocks(c, n);
    case K_UNION: return read_branches(c, n, branch);
    default: return add_blank(c, n); /* K_NULL */
    }
}

static int read_datum(cursor *c) {
    int code = read_avro(c, 0);
    return code || c->p == c->end ? code : fail(c, 0, V_LEFT_OVER);
}

int64_t headrace_read_avro(node *nodes, int64_t count, const value_rows *rows, int64_t first, int64_t *saved,
                           fault *faults, int64_t *stopped) {
    return read_rows(nodes, count, rows, first, saved, faults, stopped, read_datum);
}
