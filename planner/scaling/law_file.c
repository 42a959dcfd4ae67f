/* A law's file: format 1, name, source, E, A, alpha, B, beta; of the runs that it was fitted on, if
 * known, runs {count, parameters [least, most], tokens [least, most]}; draws [[E, A, alpha, B,
 * beta], ...] of resamples, if there are. */
#include "ir/base/json.h"
#include "planner/scaling/scaling_law.h"

#include <math.h>
#include <string.h>

enum { FILE_LIMIT_BYTES = 16 << 20, MOST_DRAWS = 10000, MOST_TEXT = 300, N_TERMS = 5 };
static const double LEAST_EXPONENT = 1e-3, MOST_EXPONENT = 10, MOST_TERM = 1e30, MOST_RUN = 1e24;

static const char *const KEYS[N_TERMS] = {"E", "A", "alpha", "B", "beta"};

typedef struct Reader {
    Arena *arena;
    const char *path;
    Diag *diag;
} Reader;

static bool wrong(const Reader *reader, const char *what, const char *why) {
    diag_error(reader->diag, (SourceLoc){reader->path, 0}, "the law's %s %s", what, why);
    return false;
}

static bool set_term(LawTerms *terms, int key, const json_t *value) {
    double *const at[N_TERMS] = {&terms->e, &terms->a, &terms->alpha, &terms->b, &terms->beta};
    bool exponent = key == 2 || key == 4;
    double least = exponent ? LEAST_EXPONENT : 0, most = exponent ? MOST_EXPONENT : MOST_TERM;
    double number = json_is_number(value) ? json_number_value(value) : NAN;
    *at[key] = number;
    return number >= least && number <= most && (key == 0 || number > 0);
}

static bool read_terms(const Reader *reader, json_t *root, LawTerms *out) {
    for (int i = 0; i < N_TERMS; i++) {
        if (set_term(out, i, json_object_get(root, KEYS[i]))) continue;
        return wrong(reader, KEYS[i],
                     i == 2 || i == 4 ? "must be a number from 0.001 to 10"
                     : i == 0         ? "must be a number from 0 to 1e30"
                                      : "must be a number above 0 and up to 1e30");
    }
    return true;
}

static bool read_text(const Reader *reader, json_t *root, const char *key, const char **out) {
    const char *text = json_string_value(json_object_get(root, key));
    size_t length = text ? strlen(text) : 0;
    bool good = length > 0 && length <= MOST_TEXT;
    for (size_t i = 0; good && i < length; i++) good = (unsigned char)text[i] >= 32;
    if (!good) return wrong(reader, key, "must be one line of 1 to 300 bytes");
    *out = arena_strdup(reader->arena, text);
    return true;
}

static bool read_range(const Reader *reader, json_t *runs, const char *key, Range *out) {
    json_t *pair = json_object_get(runs, key);
    out->least = json_number_value(json_array_get(pair, 0));
    out->most = json_number_value(json_array_get(pair, 1));
    bool good = json_array_size(pair) == 2 && out->least >= 1 && out->most >= out->least &&
                out->most <= MOST_RUN;
    return good || wrong(reader, arena_printf(reader->arena, "runs.%s", key),
                         "must be two numbers, the least and the most: [70e6, 16e9]");
}

static bool read_runs(const Reader *reader, json_t *root, ScalingLaw *law) {
    json_t *runs = json_object_get(root, "runs");
    if (!runs) return true;
    json_int_t count = json_integer_value(json_object_get(runs, "count"));
    if (count < 1 || count > INT32_MAX) {
        return wrong(reader, "runs.count", "must be a whole number, how many they were");
    }
    law->n_runs = (int)count;
    return read_range(reader, runs, "parameters", &law->parameters) &&
           read_range(reader, runs, "tokens", &law->tokens);
}

static bool read_draws(const Reader *reader, json_t *root, ScalingLaw *law) {
    json_t *draws = json_object_get(root, "draws");
    size_t n = json_array_size(draws);
    if (!draws) return true;
    if (!json_is_array(draws) || n > MOST_DRAWS) {
        return wrong(reader, "draws", "must be an array of at most 10000 rows");
    }
    LawTerms *rows = ARENA_ARRAY(reader->arena, LawTerms, n + 1);
    for (size_t i = 0; i < n; i++) {
        json_t *row = json_array_get(draws, i);
        bool good = json_array_size(row) == N_TERMS;
        for (int k = 0; good && k < N_TERMS; k++) {
            good = set_term(&rows[i], k, json_array_get(row, (size_t)k));
        }
        if (!good) {
            return wrong(reader, arena_printf(reader->arena, "draws[%zu]", i),
                         "must be five numbers: E, A, alpha, B, beta");
        }
    }
    law->n_draws = (int)n;
    law->draws = rows;
    return true;
}

const ScalingLaw *law_read(Arena *arena, const char *path, Diag *diag) {
    Reader reader = {arena, path, diag};
    json_t *root = json_parse_file(path, FILE_LIMIT_BYTES, diag);
    if (!root) return NULL;
    ScalingLaw *law = ARENA_NEW(arena, ScalingLaw);
    bool good = true;
    if (!json_is_object(root) || !json_object_get(root, "alpha")) {
        diag_error(diag, (SourceLoc){path, 0},
                   "is no scaling law: perilune fit -o writes one, with E, A, alpha, B, beta");
        good = false;
    } else if (json_integer_value(json_object_get(root, "format")) != 1) {
        good = wrong(&reader, "format", "must be 1");
    }
    good = good && read_text(&reader, root, "name", &law->name) &&
           read_text(&reader, root, "source", &law->source) &&
           read_terms(&reader, root, &law->terms) && read_runs(&reader, root, law) &&
           read_draws(&reader, root, law);
    json_decref(root);
    return good ? law : NULL;
}

void law_print(StrBuf *out, const ScalingLaw *law) {
    const LawTerms *at = &law->terms;
    strbuf_put(out, "{\"format\": 1,\n \"name\": ");
    json_put_text(out, law->name);
    strbuf_put(out, ",\n \"source\": ");
    json_put_text(out, law->source);
    strbuf_printf(out, ",\n \"E\": %.17g, \"A\": %.17g, \"alpha\": %.17g, \"B\": %.17g", at->e,
                  at->a, at->alpha, at->b);
    strbuf_printf(out, ", \"beta\": %.17g", at->beta);
    if (law->n_runs > 0) {
        strbuf_printf(out,
                      ",\n \"runs\": {\"count\": %d, \"parameters\": [%.17g, %.17g], \"tokens\": "
                      "[%.17g, %.17g]}",
                      law->n_runs, law->parameters.least, law->parameters.most, law->tokens.least,
                      law->tokens.most);
    }
    for (int i = 0; i < law->n_draws; i++) {
        at = &law->draws[i];
        strbuf_printf(out, "%s  [%.9g, %.9g, %.9g, %.9g, %.9g]", i ? ",\n" : ",\n \"draws\": [\n",
                      at->e, at->a, at->alpha, at->b, at->beta);
    }
    strbuf_put(out, law->n_draws > 0 ? "]}\n" : "}\n");
}
