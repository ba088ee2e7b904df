// SPDX-License-Identifier: Apache-2.0
/* Rows of JSON text into columns of a given schema, as strictly as RFC 8259 has it.
 *
 * What a row holds beyond the schema is checked and passed over; what does not fit the schema is that row's fault.
 * NaN and Infinity are taken as numbers, since Python writes them. Read next: values.h, json_tokens.h.
 */
#include "json_tokens.h"
#include "moments.h"
#include <math.h>

#define DEEPEST 500

static int read_string(cursor *c, int32_t n) {
    const uint8_t *from = c->p + 1, *stop;
    int has_escapes;
    uint8_t *at;
    c->p++;
    int code = scan_string(c, &stop, &has_escapes);
    if (code) return fail(c, n, code);
    if (!has_escapes) return add_string(c, n, from, stop - from);
    if ((code = begin_string(c, n, stop - from, &at))) return code;
    end_string(c, n, unescape(from, stop, at));
    return 0;
}

static int is_name(const node *field, const uint8_t *text, const uint8_t *stop, int has_escapes) {
    if (!has_escapes) return field->name_size == stop - text && !memcmp(field->name, text, (size_t)(stop - text));
    const uint8_t *name = field->name, *name_end = name + field->name_size;
    while (text < stop) {
        uint8_t bytes[4];
        uint32_t character = 0;
        int size = 1;
        if (*text == '\\') {
            text += 1 + escaped(text + 1, stop, &character);
            size = put_utf8(bytes, character);
        } else {
            bytes[0] = *text++;
        }
        if (name_end - name < size || memcmp(name, bytes, (size_t)size)) return 0;
        name += size;
    }
    return name == name_end;
}

static int read_float(cursor *c, int32_t n) {
    static const double powers[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14,
                                    1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    const uint8_t *from = c->p;
    number found;
    double value;
    if (at_word(c, "NaN", 3)) return add_double(c, n, NAN);
    if (at_word(c, "Infinity", 8)) return add_double(c, n, INFINITY);
    if (at_word(c, "-Infinity", 9)) return add_double(c, n, -INFINITY);
    int code = scan_number(c, &found);
    if (code) return fail(c, n, code);
    int64_t power = found.exponent < 0 ? -found.exponent : found.exponent;
    if (found.exact && found.digits <= 1ull << 53 && power <= 22) {
        value = (double)found.digits;
        value = found.exponent < 0 ? value / powers[power] : value * powers[power];
        if (found.negative) value = -value;
    } else {
        if (c->p - from > LONGEST_NUMBER) return fail(c, n, V_RANGE);
        value = by_library(from, c->p - from);
    }
    if (isinf(value) || (c->nodes[n].low && fabs(value) > 0x1.fffffefffffffp127)) return fail(c, n, V_RANGE);
    return add_double(c, n, value);
}

static int read_int_value(cursor *c, int32_t n) {
    const node *to = &c->nodes[n];
    number found;
    int code = scan_number(c, &found);
    if (code) return fail(c, n, code);
    if (!found.whole) return fail(c, n, V_KIND);
    if (!found.exact || found.digits > (uint64_t)INT64_MAX + (found.negative ? 1 : 0)) return fail(c, n, V_RANGE);
    int64_t value = found.negative ? (int64_t)(0 - found.digits) : (int64_t)found.digits;
    return value < to->low || value > to->high ? fail(c, n, V_RANGE) : add_int(c, n, value);
}

static int read_time(cursor *c, int32_t n) {
    const uint8_t *from = ++c->p, *stop;
    int has_escapes;
    int64_t value;
    int code = scan_string(c, &stop, &has_escapes);
    if (code) return fail(c, n, code);
    if (has_escapes || !read_moment(from, stop, c->nodes[n].low, c->nodes[n].high != 0, &value))
        return fail(c, n, V_TIME);
    return add_int(c, n, value);
}

/* What nobody asked for ---------------------------------------------------------------------------------- */

static int skip_value(cursor *c, int depth);

static int skip_key(cursor *c) {
    const uint8_t *stop;
    int has_escapes;
    skip_space(c);
    if (c->p >= c->end) return V_CUT_OFF;
    if (*c->p++ != '"') return V_SYNTAX;
    int code = scan_string(c, &stop, &has_escapes);
    if (code) return code;
    skip_space(c);
    if (c->p >= c->end) return V_CUT_OFF;
    return *c->p++ == ':' ? 0 : V_SYNTAX;
}

/* After a member or an item: 1 when another follows, 0 at the end, or a code below 0 for a fault. */
static inline int goes_on(cursor *c, uint8_t closing) {
    skip_space(c);
    if (c->p >= c->end) return -V_CUT_OFF;
    uint8_t byte = *c->p;
    if (byte != ',' && byte != closing) return -V_SYNTAX;
    c->p++;
    return byte == ',';
}

/* Behind an opening bracket: whether the closing one follows at once. */
static inline int is_empty(cursor *c, uint8_t closing) {
    skip_space(c);
    if (c->p >= c->end || *c->p != closing) return 0;
    c->p++;
    return 1;
}

static int skip_members(cursor *c, uint8_t closing, int depth) {
    c->p++;
    if (is_empty(c, closing)) return 0;
    for (;;) {
        int code = closing == '}' ? skip_key(c) : 0;
        if (code || (code = skip_value(c, depth - 1))) return code;
        int more = goes_on(c, closing);
        if (more <= 0) return -more;
    }
}

static int skip_value(cursor *c, int depth) {
    const uint8_t *stop;
    int has_escapes;
    number found;
    if (depth == 0) return V_DEEP;
    skip_space(c);
    if (c->p >= c->end) return V_CUT_OFF;
    switch (*c->p) {
    case '{': return skip_members(c, '}', depth);
    case '[': return skip_members(c, ']', depth);
    case '"': return c->p++, scan_string(c, &stop, &has_escapes);
    case 't': return at_word(c, "true", 4) ? 0 : V_SYNTAX;
    case 'f': return at_word(c, "false", 5) ? 0 : V_SYNTAX;
    case 'n': return at_word(c, "null", 4) ? 0 : V_SYNTAX;
    case 'N': return at_word(c, "NaN", 3) ? 0 : V_SYNTAX;
    case 'I': return at_word(c, "Infinity", 8) ? 0 : V_SYNTAX;
    default: return at_word(c, "-Infinity", 9) ? 0 : scan_number(c, &found);
    }
}

/* Schemas ------------------------------------------------------------------------------------------------ */

static int read_value(cursor *c, int32_t n);

/* Which field a member is, -1 for none. Ends behind the colon. */
static int read_name(cursor *c, const node *owner, int32_t guess, int32_t *found) {
    const node *field = guess < owner->children ? &c->nodes[owner->first_child + guess] : NULL;
    const uint8_t *text, *stop;
    int has_escapes, code;
    skip_space(c);
    text = c->p + 1;
    if (field && field->plain_name && c->end - c->p > field->name_size + 2 && c->p[0] == '"'
        && c->p[1 + field->name_size] == '"' && !memcmp(text, field->name, (size_t)field->name_size)) {
        *found = guess;
        c->p += field->name_size + 2;
    } else {
        if (c->p >= c->end) return V_CUT_OFF;
        if (*c->p++ != '"') return V_SYNTAX;
        if ((code = scan_string(c, &stop, &has_escapes))) return code;
        for (*found = owner->children - 1; *found >= 0; (*found)--)
            if (is_name(&c->nodes[owner->first_child + *found], text, stop, has_escapes)) break;
    }
    skip_space(c);
    if (c->p >= c->end) return V_CUT_OFF;
    return *c->p++ == ':' ? 0 : V_SYNTAX;
}

static int read_members(cursor *c, int32_t n) {
    const node *to = &c->nodes[n];
    int32_t found, next = 0;
    if (is_empty(c, '}')) return 0;
    for (;;) {
        int code = read_name(c, to, next, &found);
        if (code) return fail(c, n, code);
        if (found >= 0) { /* a field's column is one ahead of its struct's once it was read */
            int32_t field = to->first_child + found;
            if (c->nodes[field].entries > to->entries) return fail(c, field, V_TWICE);
            if ((code = read_value(c, field))) return code;
            next = found + 1;
        } else if (to->low || (code = skip_value(c, DEEPEST))) {
            return fail(c, n, to->low ? V_UNKNOWN : code);
        }
        int more = goes_on(c, '}');
        if (more <= 0) return more ? fail(c, n, -more) : 0;
    }
}

static int read_struct(cursor *c, int32_t n) {
    node *to = &c->nodes[n];
    int code = has_room(c, n);
    if (code) return code;
    c->p++;
    if ((code = read_members(c, n))) return code;
    for (int32_t i = to->first_child; i < to->first_child + to->children; i++) {
        if (c->nodes[i].entries > to->entries) continue;
        if (!c->nodes[i].nullable) return fail(c, i, V_MISSING);
        if ((code = add_blank(c, i))) return code;
    }
    to->validity[to->entries++] = 1;
    return 0;
}

static int read_list(cursor *c, int32_t n) {
    node *to = &c->nodes[n];
    int code = has_room(c, n), more = 1;
    if (code) return code;
    c->p++;
    if (is_empty(c, ']')) more = 0;
    while (more) {
        if ((code = read_value(c, to->first_child))) return code;
        more = goes_on(c, ']');
        if (more < 0) return fail(c, n, -more);
    }
    end_items(c, n);
    return 0;
}

/* Keys go to the first child, values to the second. */
static int read_map(cursor *c, int32_t n) {
    node *to = &c->nodes[n];
    int code = has_room(c, n), more = 1;
    if (code) return code;
    c->p++;
    if (is_empty(c, '}')) more = 0;
    while (more) {
        skip_space(c);
        if (c->p >= c->end) return fail(c, n, V_CUT_OFF);
        if (*c->p != '"') return fail(c, n, V_SYNTAX);
        if ((code = read_string(c, to->first_child))) return code;
        skip_space(c);
        if (c->p >= c->end) return fail(c, n, V_CUT_OFF);
        if (*c->p++ != ':') return fail(c, n, V_SYNTAX);
        if ((code = read_value(c, to->first_child + 1))) return code;
        more = goes_on(c, '}');
        if (more < 0) return fail(c, n, -more);
    }
    end_items(c, n);
    return 0;
}

static int read_text(cursor *c, int32_t n) {
    const uint8_t *from = c->p;
    int code = skip_value(c, DEEPEST);
    return code ? fail(c, n, code) : add_string(c, n, from, c->p - from);
}

static inline int begins_number(uint8_t byte) { return byte == '-' || (byte >= '0' && byte <= '9'); }

static int read_value(cursor *c, int32_t n) {
    const node *to = &c->nodes[n];
    skip_space(c);
    if (c->p >= c->end) return fail(c, n, V_CUT_OFF);
    uint8_t byte = *c->p;
    if (byte == 'n' && at_word(c, "null", 4)) return to->nullable ? add_blank(c, n) : fail(c, n, V_NULL);
    switch (to->kind) {
    case K_TEXT: return read_text(c, n);
    case K_STRUCT: if (byte == '{') return read_struct(c, n); break;
    case K_LIST: if (byte == '[') return read_list(c, n); break;
    case K_MAP: if (byte == '{') return read_map(c, n); break;
    case K_STRING: if (byte == '"') return read_string(c, n); break;
    case K_TIME: if (byte == '"') return read_time(c, n); break;
    case K_INT: if (begins_number(byte) && !(c->end - c->p > 1 && c->p[1] == 'I')) return read_int_value(c, n); break;
    case K_FLOAT: if (begins_number(byte) || byte == 'N' || byte == 'I') return read_float(c, n); break;
    case K_BOOL:
        if (byte == 't' && at_word(c, "true", 4)) return add_bool(c, n, 1);
        if (byte == 'f' && at_word(c, "false", 5)) return add_bool(c, n, 0);
        break;
    }
    int code = skip_value(c, DEEPEST); /* JSON of another kind, or no JSON at all */
    return fail(c, n, code ? code : V_KIND);
}

static int read_document(cursor *c) {
    int code = read_value(c, 0);
    if (code) return code;
    skip_space(c);
    return c->p == c->end ? 0 : fail(c, 0, V_LEFT_OVER);
}

int64_t headrace_read_json(node *nodes, int64_t count, const value_rows *rows, int64_t first, int64_t *saved,
                           fault *faults, int64_t *stopped) {
    return read_rows(nodes, count, rows, first, saved, faults, stopped, read_document);
}
