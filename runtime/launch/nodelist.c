#include "runtime/launch/nodelist.h"

#include <stdio.h>
#include <string.h>

enum { MAX_BRACKETS = 4, MAX_DIGITS = 9 };

/* The contents of one pair of brackets: text[0..length) is "003-007,012", of `count` numbers. */
typedef struct Bracket {
    const char *text;
    size_t length;
    int64_t count;
} Bracket;

/* "rack[1-2]n[3-4]-ib": text between brackets, then after the last. */
typedef struct HostExpression {
    const char *text[MAX_BRACKETS + 1];
    size_t text_length[MAX_BRACKETS + 1];
    Bracket brackets[MAX_BRACKETS];
    int n_brackets;
    int64_t count;
} HostExpression;

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static bool is_host_character(char c) {
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '.' || c == '_';
}

/* Digits at *cursor, at most MAX_DIGITS of them; moves the cursor behind them. */
static bool read_number(const char **cursor, const char *end, int64_t *out_number, int *out_width) {
    const char *at = *cursor;
    int64_t number = 0;
    while (at < end && is_digit(*at) && at - *cursor <= MAX_DIGITS) {
        number = number * 10 + (*at++ - '0');
    }
    *out_width = (int)(at - *cursor);
    *out_number = number;
    *cursor = at;
    return *out_width > 0 && *out_width <= MAX_DIGITS;
}

typedef struct Range {
    int64_t low, high;
    int width; /* of low as written: numbers are padded to it */
} Range;

/* One of a bracket's ranges and the comma behind it. */
static bool read_range(const char **cursor, const char *end, Range *out) {
    int width;
    if (!read_number(cursor, end, &out->low, &out->width)) return false;
    out->high = out->low;
    if (*cursor < end && **cursor == '-') {
        ++*cursor;
        if (!read_number(cursor, end, &out->high, &width)) return false;
    }
    if (out->high < out->low || out->high - out->low >= NODELIST_MAX_HOSTS) return false;
    if (*cursor == end) return true;
    return *(*cursor)++ == ',' && *cursor < end;
}

static bool count_bracket(Bracket *bracket) {
    const char *at = bracket->text, *end = at + bracket->length;
    bracket->count = 0;
    do {
        Range range;
        if (!read_range(&at, end, &range)) return false;
        bracket->count += range.high - range.low + 1;
        if (bracket->count > NODELIST_MAX_HOSTS) return false;
    } while (at < end);
    return true;
}

/* One host expression up to a comma or the end; moves the cursor onto that. */
static bool read_host(const char **cursor, HostExpression *out, const char **out_why) {
    const char *at = *cursor;
    *out = (HostExpression){.count = 1};
    for (;;) {
        out->text[out->n_brackets] = at;
        while (is_host_character(*at)) at++;
        out->text_length[out->n_brackets] = (size_t)(at - out->text[out->n_brackets]);
        if (*at != '[') break;
        const char *close = strchr(at, ']');
        if (!close) {
            *out_why = "a bracket is not closed";
            return false;
        }
        if (out->n_brackets == MAX_BRACKETS) {
            *out_why = "a host has more than 4 brackets";
            return false;
        }
        Bracket *bracket = &out->brackets[out->n_brackets++];
        *bracket = (Bracket){at + 1, (size_t)(close - at - 1), 0};
        if (!count_bracket(bracket)) {
            *out_why = "a bracket is not a list of ranges such as [003-007,012]";
            return false;
        }
        out->count *= bracket->count; /* both at most 2^20 */
        if (out->count > NODELIST_MAX_HOSTS) {
            *out_why = "it has more than 1048576 hosts";
            return false;
        }
        at = close + 1;
    }
    if (*at != ',' && *at != '\0') {
        *out_why = "a character that no host name has";
        return false;
    }
    if (at == *cursor) {
        *out_why = "a host is empty";
        return false;
    }
    *cursor = at;
    return true;
}

/* The number at `index` of a bracket that count_bracket accepted. */
static Range bracket_number(const Bracket *bracket, int64_t index) {
    const char *at = bracket->text, *end = at + bracket->length;
    Range range = {0};
    while (at < end && read_range(&at, end, &range)) {
        int64_t n = range.high - range.low + 1;
        if (index < n) break;
        index -= n;
    }
    range.low += index;
    return range;
}

/* False when it does not fit. */
static bool write_host(const HostExpression *host, int64_t index, char *out, size_t size) {
    Range numbers[MAX_BRACKETS];
    size_t length = 0;
    for (int i = host->n_brackets - 1; i >= 0; i--) {
        numbers[i] = bracket_number(&host->brackets[i], index % host->brackets[i].count);
        index /= host->brackets[i].count;
    }
    for (int i = 0; i <= host->n_brackets; i++) {
        if (host->text_length[i] >= size - length) return false;
        memcpy(out + length, host->text[i], host->text_length[i]);
        length += host->text_length[i];
        if (i == host->n_brackets) break;
        int n = snprintf(out + length, size - length, "%0*lld", numbers[i].width,
                         (long long)numbers[i].low);
        if (n < 0 || (size_t)n >= size - length) return false;
        length += (size_t)n;
    }
    out[length] = '\0';
    return true;
}

bool nodelist_find_host(const char *list, int64_t index, char *out_host, size_t size,
                        int64_t *out_n_hosts, const char **out_why) {
    *out_n_hosts = 0;
    if (strnlen(list, NODELIST_MAX_BYTES + 1) > NODELIST_MAX_BYTES) {
        *out_why = "it is longer than a megabyte";
        return false;
    }
    bool found = false;
    for (const char *at = list;; at++) {
        HostExpression host;
        if (!read_host(&at, &host, out_why)) return false;
        int64_t within = index - *out_n_hosts;
        if (within >= 0 && within < host.count) {
            found = write_host(&host, within, out_host, size);
            if (!found) {
                *out_why = "a host name is too long";
                return false;
            }
        }
        *out_n_hosts += host.count;
        if (*out_n_hosts > NODELIST_MAX_HOSTS) {
            *out_why = "it has more than 1048576 hosts";
            return false;
        }
        if (*at == '\0') break;
    }
    if (!found) *out_why = "it has fewer hosts";
    return found;
}

/* "2(x3)": a number of tasks and how often. */
static bool read_tasks(const char **cursor, const char *end, int64_t *out_tasks,
                       int64_t *out_repeat) {
    int width;
    *out_repeat = 1;
    if (!read_number(cursor, end, out_tasks, &width)) return false;
    if (end - *cursor < 2 || (*cursor)[0] != '(') return true;
    if ((*cursor)[1] != 'x') return false;
    *cursor += 2;
    if (!read_number(cursor, end, out_repeat, &width) || *out_repeat == 0) return false;
    if (*cursor == end || **cursor != ')') return false;
    ++*cursor;
    return true;
}

bool nodelist_count_tasks(const char *list, int64_t node, int64_t *out_tasks, int64_t *out_total,
                          const char **out_why) {
    const char *end = list + strnlen(list, NODELIST_MAX_BYTES);
    int64_t n_nodes = 0, first = -1;
    bool equal = true, found = false;
    *out_total = 0;
    for (const char *at = list;; at++) {
        int64_t tasks, repeat;
        if (!read_tasks(&at, end, &tasks, &repeat) || (at < end && *at != ',')) {
            *out_why = "not a list of tasks per node such as 2(x3),1";
            return false;
        }
        if (node >= n_nodes && node < n_nodes + repeat) {
            *out_tasks = tasks;
            found = true;
        }
        if (first < 0) first = tasks;
        equal = equal && tasks == first;
        n_nodes += repeat;
        *out_total += tasks * repeat; /* below 10^18 each; stops before a second one is added */
        if (*out_total > NODELIST_MAX_HOSTS || n_nodes > NODELIST_MAX_HOSTS) {
            *out_why = "more than 1048576 tasks or nodes";
            return false;
        }
        if (at == end) break;
    }
    if (node < 0 && equal) {
        *out_tasks = first;
        found = true;
    }
    if (!found) *out_why = node < 0 ? "its nodes have different numbers" : "it has fewer nodes";
    return found;
}
