#include "frontend/sweep/vary.h"

#include "runtime/data/mix.h"

#include <ctype.h>
#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool vary_is_plain(const char *text) {
    for (; *text; text++) {
        if ((unsigned char)*text < ' ' || *text == 127) return false;
    }
    return true;
}

/* [log:]A..B[*K|+D] */
typedef struct Range {
    double least, most, step;
    char how; /* '*', '+', or 0: without a step */
    bool is_log, whole;
} Range;

/* A number as options take it; *out_end: behind it. */
static bool read_number(const char *text, double *out, bool *out_whole, const char **out_end) {
    char *end, *whole_end;
    if (isspace((unsigned char)*text)) return false;
    *out = strtod(text, &end);
    strtoll(text, &whole_end, 10);
    /* "1..3": strtod takes the first dot along */
    if (end > text && end[-1] == '.' && *end == '.' && whole_end == end - 1) end--;
    *out_whole = whole_end == end && fabs(*out) < 1e15;
    *out_end = end;
    return end > text && isfinite(*out);
}

/* Is it a range at all? Otherwise it is a value, such as a path that has "..". */
static bool read_range(const char *text, Range *out) {
    const char *at = text;
    bool whole[3] = {true, true, true};
    *out = (Range){.is_log = strncmp(text, "log:", 4) == 0};
    if (out->is_log) at += 4;
    if (!read_number(at, &out->least, &whole[0], &at) || strncmp(at, "..", 2) != 0) return false;
    if (!read_number(at + 2, &out->most, &whole[1], &at)) return false;
    if (*at == '*' || *at == '+') {
        out->how = *at;
        if (!read_number(at + 1, &out->step, &whole[2], &at)) return false;
    }
    out->whole = whole[0] && whole[1] && whole[2];
    return *at == '\0';
}

static const char *number_text(Arena *arena, double value, bool whole) {
    if (whole) return arena_printf(arena, "%" PRId64, (int64_t)llround(value));
    return arena_printf(arena, "%.6g", value);
}

static const char *check_range(const Range *range, bool draws) {
    const bool stepless = !range->how && (!range->whole || range->is_log);
    if (range->most < range->least) return "ends below its beginning";
    if ((range->is_log || range->how == '*') && range->least <= 0) return "must begin above 0";
    if (range->how == '*' && range->step < 1 + 1e-6) return "is multiplied by 1 or less";
    if (range->how == '+' && range->step <= 0) return "has a step of 0 or less";
    if (range->how == '+' && range->is_log) return "is logarithmic: its step multiplies, as in *10";
    if (stepless && !draws)
        return "needs a step, as in A..B*10 or A..B+0.1; or --random N, which draws from it";
    return NULL;
}

static bool add_value(Arena *arena, Vary *vary, int *capacity, const char *value, Diag *diag) {
    for (int i = 0; i < vary->n_values; i++) {
        if (strcmp(vary->values[i], value) != 0) continue;
        diag_error(diag, NO_LOC, "--vary %s: has %s twice", vary->key, value);
        return false;
    }
    if (vary->n_values == SWEEP_MOST_RUNS) {
        diag_error(diag, NO_LOC, "--vary %s: has more than %d values", vary->key, SWEEP_MOST_RUNS);
        return false;
    }
    ARENA_PUSH(arena, vary->values, vary->n_values, *capacity, value);
    return true;
}

static bool add_range(Arena *arena, Vary *vary, const Range *range, Diag *diag) {
    const double step = range->how ? range->step : 1;
    int capacity = 0;
    for (int i = 0;; i++) { /* not added up: that would round */
        const bool times = range->how == '*';
        double value = times ? range->least * pow(step, i) : range->least + step * i;
        double over =
            times ? 1e-9 * range->most : 1e-9 * step + 4 * DBL_EPSILON * fabs(range->most);
        if (range->whole) value = round(value), over = 0; /* 2000000001 is not 2000000000 */
        if (value > range->most + over) return true;
        if (!times && fabs(value) < 1e-9 * step) value = 0; /* -0.3 + 3 * 0.1 */
        const char *text = number_text(arena, value, range->whole);
        if (!add_value(arena, vary, &capacity, text, diag)) return false;
    }
}

static bool add_list(Arena *arena, Vary *vary, const char *text, Diag *diag) {
    const char *separator = strchr(text, ';') ? ";" : ",";
    int capacity = 0;
    for (;;) {
        size_t length = strcspn(text, separator);
        if (length == 0) {
            diag_error(diag, NO_LOC, "--vary %s: has an empty value", vary->key);
            return false;
        }
        const char *value = arena_strndup(arena, text, length);
        Range range;
        if (strchr(value, '.') && read_range(value, &range)) {
            diag_error(diag, NO_LOC, "--vary %s: a range (%s) stands alone", vary->key, value);
            return false;
        }
        if (!add_value(arena, vary, &capacity, value, diag)) return false;
        if (!text[length]) return true;
        text += length + 1;
    }
}

bool vary_parse(Arena *arena, const char *text, bool draws, Vary *out, Diag *diag) {
    const char *equals = strchr(text, '=');
    *out = (Vary){0};
    if (!equals || equals == text) {
        diag_error(diag, NO_LOC, "--vary: '%s' is not KEY=VALUES, as in lr=1e-4,1e-3", text);
        return false;
    }
    out->key = arena_strndup(arena, text, (size_t)(equals - text));
    if (!vary_is_plain(text)) {
        diag_error(diag, NO_LOC, "--vary: a text has control characters");
        return false;
    }
    Range range;
    if (!read_range(equals + 1, &range)) return add_list(arena, out, equals + 1, diag);
    const char *why = check_range(&range, draws);
    if (why) {
        diag_error(diag, NO_LOC, "--vary %s: the range %s %s", out->key, equals + 1, why);
        return false;
    }
    if (!draws || range.how) return add_range(arena, out, &range, diag);
    out->is_log = range.is_log, out->whole = range.whole;
    out->least = range.least, out->most = range.most;
    return true;
}

int64_t vary_count(const Vary *varies, int n) {
    int64_t count = 1;
    for (int i = 0; i < n && count <= SWEEP_MOST_RUNS; i++) count *= varies[i].n_values;
    return count;
}

void vary_combine(const Vary *varies, int n, int64_t index, const char **out) {
    for (int i = n - 1; i >= 0; i--) {
        out[i] = varies[i].values[index % varies[i].n_values];
        index /= varies[i].n_values;
    }
}

static const char *draw(Arena *arena, const Vary *vary, uint64_t *state) {
    const double u = mix_draw(state);
    if (vary->n_values) return vary->values[(int)(u * vary->n_values)];
    double least = vary->least, most = vary->most;
    if (vary->whole) least -= 0.5, most += 0.5; /* each whole number is as likely */
    if (vary->is_log && vary->whole) least = fmax(least, 0.5);
    double value =
        vary->is_log ? exp(log(least) + u * (log(most) - log(least))) : least + u * (most - least);
    if (!vary->whole) return arena_printf(arena, "%.4g", value);
    return number_text(arena, fmin(fmax(round(value), vary->least), vary->most), true);
}

void vary_draw(Arena *arena, const Vary *varies, int n, uint64_t *state, const char **out) {
    for (int i = 0; i < n; i++) out[i] = draw(arena, &varies[i], state);
}
