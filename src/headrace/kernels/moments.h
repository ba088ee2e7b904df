// SPDX-License-Identifier: Apache-2.0
/* Dates and times as ISO 8601 writes them: 2026-11-15, 2026-11-15T18:20:46.123456789+01:00, with a space for T. */
#ifndef HEADRACE_MOMENTS_H
#define HEADRACE_MOMENTS_H
#include <stdint.h>

static inline int two_digits(const uint8_t **p, const uint8_t *end, int64_t most, int64_t *value) {
    if (end - *p < 2 || (*p)[0] < '0' || (*p)[0] > '9' || (*p)[1] < '0' || (*p)[1] > '9') return 0;
    *value = ((*p)[0] - '0') * 10 + ((*p)[1] - '0');
    *p += 2;
    return *value <= most;
}

static inline int sign(const uint8_t **p, const uint8_t *end, uint8_t wanted) {
    if (*p >= end || **p != wanted) return 0;
    (*p)++;
    return 1;
}

/* Days since 1970 of a date that exists. */
static inline int read_date(const uint8_t **p, const uint8_t *end, int64_t *days) {
    static const int64_t lengths[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int64_t century, year, month, day;
    if (!two_digits(p, end, 99, &century) || !two_digits(p, end, 99, &year)) return 0;
    year += 100 * century;
    if (!sign(p, end, '-') || !two_digits(p, end, 12, &month) || month == 0) return 0;
    if (!sign(p, end, '-') || !two_digits(p, end, 31, &day) || day == 0) return 0;
    int leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    if (day > lengths[month - 1] + (month == 2 && leap)) return 0;
    int64_t shifted = year - (month <= 2), era = (shifted >= 0 ? shifted : shifted - 399) / 400;
    int64_t of_era = shifted - era * 400, of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    *days = era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
    return 1;
}

/* A fraction in ticks; digits that a tick cannot hold must be 0. */
static inline int read_fraction(const uint8_t **p, const uint8_t *end, int64_t ticks, int64_t *value) {
    const uint8_t *first = *p;
    *value = 0;
    for (; *p < end && **p >= '0' && **p <= '9'; (*p)++) {
        if (ticks > 1) *value += (**p - '0') * (ticks /= 10);
        else if (**p != '0') return 0;
    }
    return *p > first;
}

/* Ticks since 1970, or days where a second has none. A zone stands in the text if and only if the type has one. */
static inline int read_moment(const uint8_t *p, const uint8_t *end, int64_t ticks, int has_zone, int64_t *value) {
    int64_t days, hours, minutes, seconds = 0, fraction = 0, zone = 0, zone_minutes = 0;
    if (!read_date(&p, end, &days)) return 0;
    if (ticks == 0) return *value = days, p == end;
    if (!sign(&p, end, 'T') && !sign(&p, end, ' ')) return 0;
    if (!two_digits(&p, end, 23, &hours) || !sign(&p, end, ':') || !two_digits(&p, end, 59, &minutes)) return 0;
    if (sign(&p, end, ':')) {
        if (!two_digits(&p, end, 59, &seconds)) return 0;
        if (sign(&p, end, '.') && !read_fraction(&p, end, ticks, &fraction)) return 0;
    }
    if (has_zone && !sign(&p, end, 'Z')) {
        int east = sign(&p, end, '+');
        if (!east && !sign(&p, end, '-')) return 0;
        if (!two_digits(&p, end, 23, &zone)) return 0;
        sign(&p, end, ':');
        if (!two_digits(&p, end, 59, &zone_minutes)) return 0;
        zone = (zone * 60 + zone_minutes) * (east ? 60 : -60);
    }
    int64_t whole = days * 86400 + hours * 3600 + minutes * 60 + seconds - zone;
    if (p != end || __builtin_mul_overflow(whole, ticks, value)) return 0;
    return !__builtin_add_overflow(*value, fraction, value);
}
#endif
