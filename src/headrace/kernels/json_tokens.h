// SPDX-License-Identifier: Apache-2.0
/* Strings, numbers and words of JSON text: where they end, and what they stand for.
 *
 * Knows no columns. Read next: json.c.
 */
#ifndef HEADRACE_JSON_TOKENS_H
#define HEADRACE_JSON_TOKENS_H
#include "values.h"
#include <locale.h>
#include <stdlib.h>

#define LONGEST_NUMBER 400

static inline void skip_space(cursor *c) {
    while (c->p < c->end && (*c->p == ' ' || *c->p == '\n' || *c->p == '\r' || *c->p == '\t')) c->p++;
}

static inline int at_word(cursor *c, const char *word, int64_t size) {
    if (c->end - c->p < size || memcmp(c->p, word, (size_t)size)) return 0;
    c->p += size;
    return 1;
}

static inline int hex4(const uint8_t *p, const uint8_t *end, uint32_t *value) {
    *value = 0;
    if (end - p < 4) return 0;
    for (int i = 0; i < 4; i++) {
        uint8_t digit = p[i];
        uint32_t number = digit >= '0' && digit <= '9' ? digit - (uint32_t)'0'
                        : (digit | 32) >= 'a' && (digit | 32) <= 'f' ? (digit | 32) - 'a' + 10u : 99u;
        if (number > 15) return 0;
        *value = *value << 4 | number;
    }
    return 1;
}

/* The character that an escape stands for: how many bytes of text it takes, or 0. p is behind the backslash. */
static int escaped(const uint8_t *p, const uint8_t *end, uint32_t *character) {
    static const char names[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    if (p >= end) return 0;
    const char *found = *p ? strchr(names, *p) : NULL;
    if (found) {
        *character = (uint8_t)meant[found - names];
        return 1;
    }
    uint32_t low;
    if (*p != 'u' || !hex4(p + 1, end, character)) return 0;
    if (*character < 0xD800 || *character > 0xDFFF) return 5;
    if (*character > 0xDBFF || end - p < 7 || p[5] != '\\' || p[6] != 'u' || !hex4(p + 7, end, &low)
        || low < 0xDC00 || low > 0xDFFF) return 0; /* half a character */
    *character = 0x10000 + ((*character - 0xD800) << 10) + (low - 0xDC00);
    return 11;
}

static inline int put_utf8(uint8_t *to, uint32_t character) {
    if (character < 0x80) return to[0] = (uint8_t)character, 1;
    int size = character < 0x800 ? 2 : character < 0x10000 ? 3 : 4;
    for (int i = size - 1; i > 0; i--, character >>= 6) to[i] = 0x80 | (character & 0x3F);
    to[0] = (uint8_t)(0xF00 >> size | character);
    return size;
}

/* Eight bytes that need no look: neither quote nor backslash, no control character, all ASCII. */
static inline int is_plain(const uint8_t *p) {
    const uint64_t ones = 0x0101010101010101ull, highs = ones << 7;
    uint64_t word;
    memcpy(&word, p, 8);
    uint64_t quote = word ^ ones * '"', slash = word ^ ones * '\\';
    return !((((quote - ones) & ~quote) | ((slash - ones) & ~slash) | (word - ones * 0x20) | word) & highs);
}

/* From behind a quote to behind the next; between them is the text, checked but not unescaped. */
static int scan_string(cursor *c, const uint8_t **stop, int *has_escapes) {
    *has_escapes = 0;
    for (;;) {
        while (c->end - c->p >= 8 && is_plain(c->p)) c->p += 8;
        if (c->p >= c->end) return V_CUT_OFF;
        uint8_t byte = *c->p;
        if (byte == '"') {
            *stop = c->p++;
            return 0;
        }
        if (byte < 0x20) return V_SYNTAX;
        uint32_t character;
        int size = byte == '\\' ? 1 + escaped(c->p + 1, c->end, &character) : utf8_size(c->p, c->end);
        if (byte == '\\') *has_escapes = 1;
        if (byte == '\\' ? size == 1 : size == 0) return byte == '\\' ? V_SYNTAX : V_UTF8;
        c->p += size;
    }
}

static int64_t unescape(const uint8_t *p, const uint8_t *stop, uint8_t *to) {
    uint8_t *first = to;
    while (p < stop) {
        if (*p != '\\') {
            *to++ = *p++;
            continue;
        }
        uint32_t character = 0;
        p += 1 + escaped(p + 1, stop, &character);
        to += put_utf8(to, character);
    }
    return to - first;
}

/* Numbers ------------------------------------------------------------------------------------------------ */

typedef struct { uint64_t digits; int64_t exponent; int negative, whole, exact; } number;

static int scan_number(cursor *c, number *out) {
    const uint8_t *p = c->p, *end = c->end;
    *out = (number){0, 0, 0, 1, 1};
    if (p < end && *p == '-') out->negative = 1, p++;
    const uint8_t *first = p;
    for (; p < end && *p >= '0' && *p <= '9'; p++) {
        if (out->digits > (UINT64_MAX - 9) / 10) out->exact = 0;
        else out->digits = out->digits * 10 + (*p - '0');
    }
    c->p = p;
    if (p == first) return p < end ? V_SYNTAX : V_CUT_OFF;
    if (*first == '0' && p - first > 1) return V_SYNTAX;
    if (p < end && *p == '.') {
        out->whole = 0;
        for (first = ++p; p < end && *p >= '0' && *p <= '9'; p++, out->exponent--) {
            if (out->digits > (UINT64_MAX - 9) / 10) out->exact = 0;
            else out->digits = out->digits * 10 + (*p - '0');
        }
        c->p = p;
        if (p == first) return p < end ? V_SYNTAX : V_CUT_OFF;
    }
    if (p < end && (*p | 32) == 'e') {
        int64_t power = 0, minus = 0;
        out->whole = 0;
        if (++p < end && (*p == '+' || *p == '-')) minus = *p++ == '-';
        for (first = p; p < end && *p >= '0' && *p <= '9'; p++)
            if (power < 100000) power = power * 10 + (*p - '0');
        c->p = p;
        if (p == first) return p < end ? V_SYNTAX : V_CUT_OFF;
        out->exponent += minus ? -power : power;
    }
    return 0;
}

static double by_library(const uint8_t *from, int64_t size) {
    char text[LONGEST_NUMBER + 1], *stop;
    memcpy(text, from, (size_t)size);
    text[size] = 0;
    double value = strtod(text, &stop);
    char *point = memchr(text, '.', (size_t)size);
    if (*stop && point) { /* a program that set another locale */
        *point = *localeconv()->decimal_point;
        value = strtod(text, NULL);
    }
    return value;
}
#endif
