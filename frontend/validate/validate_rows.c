#include "frontend/validate/validate.h"

#include "frontend/nearest.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* What Megatron-LM pads GPT-2's vocabulary to; most sources that state none used it. */
enum { USUAL_VOCAB = 51200, USUAL_PER_NODE = 8, MAX_FAMILIES = 100, MOST_SCHEDULES = 32 };

typedef enum ColumnKind { COLUMN_TEXT, COLUMN_COUNT, COLUMN_REAL, COLUMN_CHOICE } ColumnKind;

typedef struct Column {
    const char *name;
    size_t offset; /* in Run */
    ColumnKind kind;
    double least, most;
    bool needed;
} Column;

static const Column COLUMNS[N_RUN_COLUMNS] = {
#define COLUMN(upper, name, member, kind, least, most, needed)                                     \
    {name, offsetof(Run, member), COLUMN_##kind, least, most, needed},
#include "frontend/validate/validate_columns.def"
#undef COLUMN
};

static const RunFacts FACTS[] = {
#define FAMILY(family, cluster, software, flops, vocab, recompute, settings)                       \
    {family, NULL, cluster, software, flops, vocab, recompute, settings},
#define GPU(begin, cluster) {NULL, begin, cluster, NULL, STATES_NOTHING, USUAL_VOCAB, UNSTATED, ""},
#include "frontend/validate/published.def"
#undef FAMILY
#undef GPU
};
static const RunFacts NO_FACTS = {.vocab = USUAL_VOCAB, .recompute = UNSTATED, .settings = ""};

/* By family, else by GPU. */
static const RunFacts *find_facts(const Run *run) {
    for (size_t k = 0; k < sizeof(FACTS) / sizeof(FACTS[0]); k++) {
        const RunFacts *facts = &FACTS[k];
        bool same = facts->family
                        ? run_in_family(run, facts->family)
                        : run->gpu && strncmp(run->gpu, facts->gpu, strlen(facts->gpu)) == 0;
        if (same) return facts;
    }
    return &NO_FACTS;
}

const char *run_column_name(RunColumn column) {
    return COLUMNS[column].name;
}

typedef struct RowReader {
    Arena *arena;
    const char *path;
    int line;
    Diag *diag;
} RowReader;

static bool fail(const RowReader *row, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static bool fail(const RowReader *row, const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    diag_error(row->diag, (SourceLoc){row->path, row->line}, "%s", text);
    return false;
}

static bool bad_field(const RowReader *row, const Column *column, const char *text) {
    return fail(row, "column %s is '%.40s': must be %s from %.10g to %.10g", column->name, text,
                column->kind == COLUMN_COUNT ? "a whole number" : "a number", column->least,
                column->most);
}

static bool read_choice(const RowReader *row, const Column *column, const char *text,
                        int64_t *out) {
    static const char *const names[N_RECOMPUTES] = {"none", "selective", "full"};
    for (int r = 0; r < N_RECOMPUTES; r++) {
        if (strcmp(text, names[r]) != 0) continue;
        *out = r;
        return true;
    }
    return fail(row, "column %s is '%.40s': must be none, selective or full", column->name, text);
}

/* strtod alone would take "inf", "nan" and "0x1p3". */
static bool is_decimal(const char *text) {
    return *text && text[strspn(text, "0123456789.+-eE")] == '\0';
}

static bool read_field(const RowReader *row, const Column *column, const char *text, Run *run) {
    void *field = (char *)run + column->offset;
    if (column->kind == COLUMN_TEXT) {
        if (strlen(text) > (size_t)column->most) {
            return fail(row, "column %s is longer than %.0f bytes", column->name, column->most);
        }
        for (const char *at = text; *at; at++) {
            if (iscntrl((unsigned char)*at)) {
                return fail(row, "column %s holds a control character", column->name);
            }
        }
        *(const char **)field = text;
        return true;
    }
    if (column->kind == COLUMN_CHOICE) return read_choice(row, column, text, field);
    char *end;
    double number = strtod(text, &end);
    bool good = is_decimal(text) && *end == '\0' && number >= column->least &&
                number <= column->most; /* false for what is no number */
    if (column->kind == COLUMN_REAL) {
        *(double *)field = number;
        return good || bad_field(row, column, text);
    }
    *(int64_t *)field = good ? (int64_t)number : 0;
    return (good && (double)(int64_t)number == number) || bad_field(row, column, text);
}

static void clear_field(const Column *column, Run *run) {
    void *field = (char *)run + column->offset;
    if (column->kind == COLUMN_TEXT) *(const char **)field = NULL;
    if (column->kind == COLUMN_REAL) *(double *)field = UNSTATED;
    if (column->kind == COLUMN_COUNT || column->kind == COLUMN_CHOICE) {
        *(int64_t *)field = UNSTATED;
    }
}

static bool read_precision(const RowReader *row, Run *run) {
    static const struct {
        const char *begin;
        MathKind math;
    } names[] = {{"fp16", MATH_BF16},
                 {"bf16", MATH_BF16},
                 {"fp8", MATH_FP8},
                 {"fp32", MATH_F32},
                 {"f32", MATH_F32}};
    if (!run->precision) {
        run->math = MATH_BF16;
        run->assumed |= UINT64_C(1) << COLUMN_PRECISION;
        return true;
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        size_t length = strlen(names[i].begin);
        if (strncmp(run->precision, names[i].begin, length) != 0) continue;
        if (isalnum((unsigned char)run->precision[length])) continue;
        run->math = names[i].math;
        return true;
    }
    return fail(row, "column precision is '%.40s': must be fp16, bf16, fp8 or fp32",
                run->precision);
}

/* Rounded figures agree within some percent. */
static bool check_measured(const RowReader *row, const Run *run) {
    double step = (double)run->global_batch * (double)run->seq;
    double tokens = step / (run->seconds * (double)run->num_gpus);
    if (!(run->seconds > 0 && run->tokens > 0) || fabs(tokens / run->tokens - 1) < 0.1) return true;
    return fail(row,
                "measured_tokens_s_gpu is %.6g, but measured_iter_s %.6g is %.6g: leave the wrong "
                "one empty",
                run->tokens, run->seconds, tokens);
}

/* How the row counts FLOPs: by its own column, else by its family. */
static bool read_convention(const RowReader *row, Run *run) {
    if (!run->flops) run->convention = run->facts->convention;
    if (run->flops && strcmp(run->flops, "hardware") == 0) run->convention = STATES_HARDWARE;
    if (run->flops && strcmp(run->flops, "model") == 0) run->convention = STATES_MODEL;
    if (run->flops && strcmp(run->flops, "causal") == 0) run->convention = STATES_CAUSAL;
    if (run->flops && run->convention == STATES_NOTHING) {
        return fail(row, "column flops is '%.40s': must be model, causal or hardware", run->flops);
    }
    if (run->seconds > 0 || run->tokens > 0) return true;
    if (run->tflops < 0 && run->peak_percent < 0) {
        return fail(row, "nothing is measured: fill in measured_iter_s, measured_tokens_s_gpu, "
                         "measured_tflops_per_gpu or peak_pct");
    }
    if (run->convention != STATES_NOTHING) return true;
    return fail(row,
                "which FLOPs %s counts is not known: fill in measured_iter_s, or a column flops "
                "with model, causal or hardware",
                run->tflops > 0 ? "measured_tflops_per_gpu" : "peak_pct");
}

static void assume(Run *run, RunColumn column, int64_t *field, int64_t value) {
    if (*field != UNSTATED) return;
    *field = value;
    run->assumed |= UINT64_C(1) << column;
}

static void complete_shape(Run *run) {
    if (!run->family) run->family = "runs";
    assume(run, COLUMN_KV_HEADS, &run->kv_heads, run->heads);
    assume(run, COLUMN_FFN, &run->ffn, 4 * run->hidden);
    assume(run, COLUMN_GPUS_PER_NODE, &run->gpus_per_node, USUAL_PER_NODE);
    run->facts = find_facts(run);
    assume(run, COLUMN_VOCAB, &run->vocab, run->facts->vocab);
    if (run->cp == UNSTATED) run->cp = 1;
    if (run->ep == UNSTATED) run->ep = 1;
    /* --expert-tensor-parallel-size is --tensor-model-parallel-size if it is not given. */
    if (run->more.experts > 0) assume(run, COLUMN_ETP, &run->etp, run->t > 0 ? run->t : 1);
    if (run->etp == UNSTATED) run->etp = 1;
}

static void override_layout(Run *run) {
    int64_t recompute = run->facts->recompute;
    if (recompute == UNSTATED || run->recompute == UNSTATED || recompute == run->recompute) return;
    run->recompute = recompute;
    run->overridden |= UINT64_C(1) << COLUMN_RECOMPUTE;
}

/* What is left open is searched; if that is only ZeRO or sequence parallelism, they are taken as
 * off, which is what the software of all these sources did unless told otherwise. */
static void complete_layout(Run *run) {
    if (run->p == 1 && run->v == UNSTATED) run->v = 1;
    bool open_mesh = run->t == UNSTATED || run->p == UNSTATED;
    if (!open_mesh && run->d == UNSTATED) {
        int64_t rest = run->t * run->p * run->cp;
        if (run->num_gpus % rest == 0) run->d = run->num_gpus / rest;
    }
    const struct {
        int64_t value;
        RunColumn column;
    } open[] = {{run->t, COLUMN_T},
                {run->p, COLUMN_P},
                {run->d, COLUMN_D},
                {run->v, COLUMN_V},
                {run->micro_batch, COLUMN_MICRO_BATCH},
                {run->recompute, COLUMN_RECOMPUTE}};
    for (size_t i = 0; i < sizeof(open) / sizeof(open[0]); i++) {
        if (open[i].value != UNSTATED) continue;
        run->assumed |= UINT64_C(1) << open[i].column;
        run->searched = true;
    }
    if (run->sequence_parallel == UNSTATED) run->assumed |= UINT64_C(1) << COLUMN_SEQ_PARALLEL;
    if (run->zero == UNSTATED) run->assumed |= UINT64_C(1) << COLUMN_ZERO;
    if (run->searched) return;
    if (run->sequence_parallel == UNSTATED) run->sequence_parallel = 0;
    if (run->zero == UNSTATED) run->zero = 0;
}

static bool check_run(const RowReader *row, Run *run) {
    const char *problem = run_shape_problem(row->arena, run);
    if (problem) return fail(row, "%s", problem);
    int64_t t = run->t, p = run->p, d = run->d;
    if (t == UNSTATED || p == UNSTATED) return true;
    if (d == UNSTATED) {
        return fail(row, "num_gpus %" PRId64 " is not a multiple of t %" PRId64 " x p %" PRId64,
                    run->num_gpus, t, p);
    }
    double product = (double)t * (double)p * (double)d * (double)run->cp;
    if (product == (double)run->num_gpus) return true;
    char context[32] = "";
    if (run->cp > 1) snprintf(context, sizeof(context), " x cp %" PRId64, run->cp);
    return fail(row,
                "t %" PRId64 " x p %" PRId64 " x d %" PRId64 "%s is %.0f, but num_gpus is %" PRId64,
                t, p, d, context, product, run->num_gpus);
}

static bool check_schedule(const RowReader *row, Run *run) {
    const char *known[MOST_SCHEDULES + 1] = {NULL};
    if (!run->schedule) return true;
    for (int s = 0; s < MOST_SCHEDULES && schedule_name(s); s++) {
        known[s] = schedule_name(s);
        if (strcmp(known[s], run->schedule) == 0) return true;
    }
    const char *nearest = nearest_name(run->schedule, known);
    return fail(row, "column schedule is '%.40s': there is none%s%s%s", run->schedule,
                nearest ? "; did you mean " : "", nearest ? nearest : "", nearest ? "?" : "");
}

static bool read_run(Arena *arena, const CsvTable *csv, const int *places, int r, bool as_stated,
                     Run *run, Diag *diag) {
    RowReader row = {.arena = arena, .path = csv->path, .line = csv->rows[r].line, .diag = diag};
    run->line = row.line;
    for (int c = 0; c < N_RUN_COLUMNS; c++) {
        const Column *column = &COLUMNS[c];
        const char *text = places[c] < 0 ? "" : csv->rows[r].fields[places[c]];
        clear_field(column, run);
        if (!*text && column->needed) return fail(&row, "column %s is empty", column->name);
        if (*text && !read_field(&row, column, text, run)) return false;
    }
    complete_shape(run);
    if (!as_stated) override_layout(run);
    complete_layout(run);
    return check_run(&row, run) && check_schedule(&row, run) && read_precision(&row, run) &&
           check_measured(&row, run) && read_convention(&row, run);
}

/* Statistics are made for one after the other: a table where all differ is no use, and slow. */
static bool check_families(const RunTable *table, Diag *diag) {
    const char *names[MAX_FAMILIES];
    int count = 0;
    for (int r = 0; r < table->n_runs; r++) {
        const Run *run = &table->runs[r];
        bool seen = false;
        for (int i = 0; i < count && !seen; i++) seen = strcmp(names[i], run->family) == 0;
        if (seen) continue;
        if (count == MAX_FAMILIES) {
            return fail(&(RowReader){.path = table->path, .line = run->line, .diag = diag},
                        "more than %d families", MAX_FAMILIES);
        }
        names[count++] = run->family;
    }
    return true;
}

/* A column that is needed and not there is named; if there is none, the file is no such table. */
bool validate_check_header(const CsvTable *header, Diag *diag) {
    const char *missing = NULL;
    char names[256] = "";
    int n_needed = 0, n_missing = 0;
    for (int c = N_RUN_COLUMNS - 1; c >= 0; c--) {
        if (!COLUMNS[c].needed) continue;
        n_needed++;
        if (csv_column(header, COLUMNS[c].name) >= 0) continue;
        n_missing++;
        missing = COLUMNS[c].name;
    }
    SourceLoc at = {header->path, header->header_line};
    if (n_missing == 0) return true;
    if (n_missing < n_needed) {
        diag_error(diag, at, "no column '%s': see perilune help validate for those that are needed",
                   missing);
        return false;
    }
    for (int c = 0, length = 0; c < N_RUN_COLUMNS; c++) {
        if (!COLUMNS[c].needed) continue;
        length += snprintf(names + length, sizeof(names) - (size_t)length, "%s%s",
                           length ? ", " : "", COLUMNS[c].name);
    }
    diag_error(diag, at, "has none of the columns %s: is it a CSV with a header line?", names);
    return false;
}

bool validate_read(Arena *arena, const CsvTable *csv, bool as_stated, RunTable *out, Diag *diag) {
    int places[N_RUN_COLUMNS];
    for (int c = 0; c < N_RUN_COLUMNS; c++) places[c] = csv_column(csv, COLUMNS[c].name);
    *out = (RunTable){
        .path = csv->path, .n_runs = csv->n_rows, .runs = ARENA_ARRAY(arena, Run, csv->n_rows)};
    for (int r = 0; r < csv->n_rows; r++) {
        if (!read_run(arena, csv, places, r, as_stated, &out->runs[r], diag)) return false;
    }
    return check_families(out, diag);
}

bool run_in_family(const Run *run, const char *family) {
    size_t length = strlen(run->family);
    if (strncmp(family, run->family, length) != 0) return false;
    bool single = run->num_gpus <= run->gpus_per_node;
    return family[length] == '\0' || strcmp(family + length, single ? "_single" : "_multi") == 0;
}

bool validate_filter(RunTable *table, const char *family, Diag *diag) {
    int n_kept = 0;
    const char *known[MAX_FAMILIES + 1];
    int n_known = 0;
    for (int r = 0; r < table->n_runs; r++) {
        const Run *run = &table->runs[r];
        bool seen = false;
        for (int k = 0; k < n_known && !seen; k++) seen = strcmp(known[k], run->family) == 0;
        if (!seen) known[n_known++] = run->family;
    }
    known[n_known] = NULL;
    for (int r = 0; r < table->n_runs; r++) {
        if (run_in_family(&table->runs[r], family)) table->runs[n_kept++] = table->runs[r];
    }
    table->n_runs = n_kept;
    if (n_kept > 0) return true;
    const char *nearest = nearest_name(family, known);
    diag_error(diag, (SourceLoc){table->path, 0}, "no rows of family '%.64s'%s%s%s", family,
               nearest ? "; did you mean " : "", nearest ? nearest : "", nearest ? "?" : "");
    return false;
}
