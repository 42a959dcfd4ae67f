/* validate: tables of runs, what is read and completed of a row, errors and regret by family.
 * Catches: CSV cut at quotes or line ends, absurd rows let through, FLOPs of the wrong convention,
 * regret of the wrong row. What is predicted is tests/cli/test_validate.sh's. */
#include "check.h"

#include "frontend/validate/validate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static Arena *arena;
static char path[64];

static CsvTable *read_bytes(const char *text, size_t length, Diag *diag) {
    snprintf(path, sizeof(path), "/tmp/test_validate_%d.csv", (int)getpid());
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(text, 1, length, file) != length || fclose(file) != 0) abort();
    CsvTable *table = csv_read(arena, path, NULL, diag);
    remove(path);
    return table;
}

/* What is reported, without the path. */
static const char *problem(const Diag *diag) {
    const char *text = diag_text(diag);
    size_t length = strlen(path);
    return strncmp(text, path, length) == 0 ? text + length : text;
}

static void test_csv(void) {
    static const char text[] = "\xef\xbb\xbf"
                               "id, name ,x\r\n"
                               "1,\"a \"\"b\"\", c\r\nd\", 2 \r\n"
                               "\r\n"
                               "  \n"
                               "2,\xc3\xa9,\n"
                               "3,,\"\"";
    Diag *diag = diag_create();
    CsvTable *table = read_bytes(text, sizeof(text) - 1, diag);
    check_begin("csv: quotes, CRLF, byte order mark, blank lines, no last line end");
    CHECK(table, "%s", diag_text(diag));
    if (table) {
        CHECK(table->n_columns == 3 && table->n_rows == 3, "%d x %d", table->n_columns,
              table->n_rows);
        CHECK(csv_column(table, "name") == 1 && csv_column(table, "id") == 0, "names");
        CHECK(csv_column(table, "none") < 0, "a column that is not there");
        CHECK(strcmp(table->rows[0].fields[1], "a \"b\", c\r\nd") == 0, "'%s'",
              table->rows[0].fields[1]);
        CHECK(strcmp(table->rows[0].fields[2], "2") == 0, "'%s'", table->rows[0].fields[2]);
        CHECK(table->rows[1].line == 6 && strcmp(table->rows[1].fields[1], "\xc3\xa9") == 0,
              "line %d", table->rows[1].line);
        CHECK(table->rows[2].fields[2][0] == '\0' && table->rows[2].line == 7, "last row");
    }
    diag_destroy(diag);
}

static void test_bad_csv(void) {
    static const struct {
        const char *text, *problem;
        size_t length; /* 0: all */
    } cases[] = {
        {"", ": is empty\n", 0},
        {"\n \n", ": is empty\n", 0},
        {"id,x\n", ": has a header, but no rows\n", 0},
        {"id,x\n1\n", ":2: 1 fields, but the header names 2 columns\n", 0},
        {"id,x\n1,2,3\n", ":2: 3 fields, but the header names 2 columns\n", 0},
        {"id,id\n1,2\n", ":1: two columns are named 'id'\n", 0},
        {"id,x\n1,\"2\n3\n", ":2: the quote that begins here does not end\n", 0},
        {"id,x\n1,\"2\"3\n", ":2: after a quoted field comes a comma or the end of the line\n", 0},
        {"id,x\n1,\xff\n", ":2: is not text in UTF-8\n", 0},
        {"id,x\n1,\xc0\x80\n", ":2: is not text in UTF-8\n", 0},
        {"id,x\n1,\xed\xa0\x80\n", ":2: is not text in UTF-8\n", 0},
        {"id,x\n1,\xe2\x82", ":2: is not text in UTF-8\n", 0},
        {"id,x\n1,\0\n", ":2: is not text in UTF-8\n", 9},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        Diag *diag = diag_create();
        size_t length = cases[i].length ? cases[i].length : strlen(cases[i].text);
        char name[64];
        snprintf(name, sizeof(name), "csv: bad text %zu", i);
        check_begin(name);
        CHECK(!read_bytes(cases[i].text, length, diag), "is read");
        CHECK(strcmp(problem(diag), cases[i].problem) == 0, "'%s'", problem(diag));
        diag_destroy(diag);
    }
    Diag *diag = diag_create();
    check_begin("csv: too many columns");
    char wide[1000];
    memset(wide, ',', sizeof(wide));
    CHECK(!read_bytes(wide, sizeof(wide), diag), "is read");
    CHECK(strstr(problem(diag), "more fields than a table may have columns"), "'%s'",
          problem(diag));
    diag_destroy(diag);
}

static const char HEAD[] = "id,family,layers,hidden,heads,kv_heads,ffn,seq,vocab,gpu,num_gpus,"
                           "gpus_per_node,t,p,v_interleave,d,cp,micro_batch,global_batch,recompute,"
                           "precision,measured_iter_s,measured_tflops_per_gpu,peak_pct,flops\n";

static bool read_rows(const char *rows, RunTable *table, Diag *diag) {
    const char *text = arena_printf(arena, "%s%s", HEAD, rows);
    CsvTable *csv = read_bytes(text, strlen(text), diag);
    return csv && validate_read(arena, csv, false, table, diag);
}

static void test_bad_rows(void) {
    static const struct {
        const char *row, *problem;
    } cases[] = {
        {",x,2,64,4,,,64,,A100,8,8,1,1,1,8,,1,8,full,,1,,,", ":2: column id is empty\n"},
        {"a,x,two,64,4,,,64,,A100,8,8,1,1,1,8,,1,8,full,,1,,,",
         ":2: column layers is 'two': must be a whole number from 1 to 4096\n"},
        {"a,x,2,-64,4,,,64,,A100,8,8,1,1,1,8,,1,8,full,,1,,,",
         ":2: column hidden is '-64': must be a whole number from 1 to 1048576\n"},
        {"a,x,2,64.5,4,,,64,,A100,8,8,1,1,1,8,,1,8,full,,1,,,",
         ":2: column hidden is '64.5': must be a whole number from 1 to 1048576\n"},
        {"a,x,2,1e300,4,,,64,,A100,8,8,1,1,1,8,,1,8,full,,1,,,",
         ":2: column hidden is '1e300': must be a whole number from 1 to 1048576\n"},
        {"a,x,2,64,4,,,64,,A100,8,8,1,1,1,8,,1,8,full,,nan,,,",
         ":2: column measured_iter_s is 'nan': must be a number from 1e-09 to 1000000000\n"},
        {"a,x,2,64,4,,,64,,A100,8,8,1,1,1,8,,1,8,full,,0x1p3,,,",
         ":2: column measured_iter_s is '0x1p3': must be a number from 1e-09 to 1000000000\n"},
        {"a,x,2,64,4,,,64,,A100,8,8,1,1,1,8,,1,8,all,,1,,,",
         ":2: column recompute is 'all': must be none, selective or full\n"},
        {"a,x,2,64,4,,,64,,A100,8,8,1,1,1,8,,1,8,full,int4,1,,,",
         ":2: column precision is 'int4': must be fp16, bf16, fp8 or fp32\n"},
        {"a,x,2,64,5,,,64,,A100,8,8,1,1,1,8,,1,8,full,,1,,,",
         ":2: hidden 64 is not a multiple of heads 5\n"},
        {"a,x,2,64,4,3,,64,,A100,8,8,1,1,1,8,,1,8,full,,1,,,",
         ":2: heads 4 is not a multiple of kv_heads 3\n"},
        {"a,x,2,64,4,,,64,,A100,8,8,2,2,1,4,,1,8,full,,1,,,",
         ":2: t 2 x p 2 x d 4 is 16, but num_gpus is 8\n"},
        {"a,x,2,64,4,,,64,,A100,8,8,2,2,1,1,4,1,8,full,,1,,,",
         ":2: t 2 x p 2 x d 1 x cp 4 is 16, but num_gpus is 8\n"},
        {"a,x,2,64,4,,,64,,A100,8,8,3,1,1,,,1,8,full,,1,,,",
         ":2: num_gpus 8 is not a multiple of t 3 x p 1\n"},
        {"a,x,2,64,4,,,64,,A100,8,8,1,1,1,8,,1,8,full,,,,,",
         ":2: nothing is measured: fill in measured_iter_s, measured_tokens_s_gpu, "
         "measured_tflops_per_gpu or peak_pct\n"},
        {"a,x,2,64,4,,,64,,A100,8,8,1,1,1,8,,1,8,full,,,140,,",
         ":2: which FLOPs measured_tflops_per_gpu counts is not known: fill in measured_iter_s, or "
         "a column flops with model, causal or hardware\n"},
        {"a,x,2,64,4,,,64,,A100,8,8,1,1,1,8,,1,8,full,,,140,,some",
         ":2: column flops is 'some': must be model, causal or hardware\n"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        Diag *diag = diag_create();
        RunTable table;
        char name[64];
        snprintf(name, sizeof(name), "validate: bad row %zu", i);
        check_begin(name);
        CHECK(!read_rows(cases[i].row, &table, diag), "is read");
        CHECK(strcmp(problem(diag), cases[i].problem) == 0, "'%s'", problem(diag));
        diag_destroy(diag);
    }
}

/* Table 1's step times, as its authors' equation gives them: 96 B s l h^2 (1 + s/6h + V/16lh). */
static void test_flops(void) {
    Run run = {.layers = 128,
               .hidden = 25600,
               .heads = 160,
               .kv_heads = 160,
               .ffn = 102400,
               .seq = 2048,
               .vocab = 51200,
               .global_batch = 3072,
               .recompute = RECOMPUTE_FULL};
    double B = 3072, s = 2048, l = 128, h = 25600, V = 51200;
    check_begin("validate: hardware FLOPs are 2104.04473's eq. 3");
    double expected = 96 * B * s * l * h * h * (1 + s / (6 * h) + V / (16 * l * h));
    double found = run_flops(&run, STATES_HARDWARE);
    CHECK(fabs(found / expected - 1) < 1e-12, "%g, not %g", found, expected);
    CHECK(fabs(found / (3072 * 163e12) - 102.63) < 0.01, "%.3f s a step", found / (3072 * 163e12));
    check_begin("validate: model FLOPs are 2205.05198's eq. 7");
    expected = 72 * B * l * s * h * h * (1 + s / (6 * h) + V / (12 * h * l));
    found = run_flops(&run, STATES_MODEL);
    CHECK(fabs(found / expected - 1) < 1e-12, "%g, not %g", found, expected);
    check_begin("validate: selective recomputation is 2205.05198's eq. 8");
    run.recompute = RECOMPUTE_SELECTIVE;
    expected =
        72 * B * l * s * h * h * (1 + s / (6 * h) + V / (12 * h * l)) + 4 * B * l * s * s * h;
    found = run_flops(&run, STATES_HARDWARE);
    CHECK(fabs(found / expected - 1) < 1e-12, "%g, not %g", found, expected);
}

/* TFLOP/s over tokens/s of NVIDIA's own tables (Megatron-Bridge, 25.09 and 25.11), which count what
 * a token may attend to. */
static void test_mixture_flops(void) {
    const LayerShape v3 = {0, 256, 8, 2048, 2048, 3, 1536, 512, 128, 64, 128, 0};
    const LayerShape qwen30 = {.head = 128, .experts = 128, .top_k = 8, .expert_ffn = 768};
    const LayerShape qwen235 = {.head = 128, .experts = 128, .top_k = 8, .expert_ffn = 1536};
    LayerShape with_mtp = v3;
    with_mtp.mtp = 1;
    const struct {
        const char *name;
        int64_t layers, hidden, heads, kv_heads, ffn, vocab;
        LayerShape more;
        double tflops, tokens;
    } cases[] = {
        {"DeepSeek V3", 61, 7168, 128, 128, 18432, 129280, v3, 961, 3848},
        {"DeepSeek V3 with a second token", 61, 7168, 128, 128, 18432, 129280, with_mtp, 338, 1297},
        {"Qwen3 30B-A3B", 48, 2048, 32, 4, 0, 151936, qwen30, 666, 28934},
        {"Qwen3 235B-A22B", 94, 4096, 64, 4, 0, 151936, qwen235, 907, 6131},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        Run run = {.layers = cases[i].layers,
                   .hidden = cases[i].hidden,
                   .heads = cases[i].heads,
                   .kv_heads = cases[i].kv_heads,
                   .ffn = cases[i].ffn,
                   .vocab = cases[i].vocab,
                   .seq = 4096,
                   .global_batch = 1,
                   .more = cases[i].more};
        check_begin(arena_printf(arena, "validate: model FLOPs of %s", cases[i].name));
        double expected = 1e12 * cases[i].tflops / cases[i].tokens;
        double found = run_flops(&run, STATES_CAUSAL) / 4096;
        CHECK(fabs(found / expected - 1) < 0.015, "%.1f G a token, not %.1f", found * 1e-9,
              expected * 1e-9);
    }
}

/* Megatron-Core's ep and etp beside t and d, as e, whose d is the number of copies of an expert. */
static void test_expert_degree(void) {
    static const struct {
        int64_t t, d, ep, etp;
        int e;
    } cases[] = {
        {1, 16, 8, 1, 8}, {2, 8, 8, 1, 4}, {4, 4, 2, 4, 2}, {2, 8, 2, 2, 2},
        {4, 4, 4, 1, 1},  {4, 4, 2, 1, 0}, {1, 6, 4, 1, 0}, {2, 2, 8, 1, 0},
    };
    check_begin("validate: expert parallelism on the mesh");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        Run run = {.t = cases[i].t,
                   .d = cases[i].d,
                   .ep = cases[i].ep,
                   .etp = cases[i].etp,
                   .more = {.experts = 8}};
        const char *why;
        int e = run_expert_degree(arena, &run, &why);
        CHECK(e == cases[i].e && (e == 0) == (why != NULL), "case %zu: e is %d", i, e);
    }
}

/* Of mixtures: what is needed beside what, and what is of models with it alone. */
static void test_bad_mixtures(void) {
    static const char head[] = "id,layers,hidden,heads,seq,num_gpus,t,p,global_batch,ep,etp,"
                               "experts,top_k,expert_ffn,dense_layers,kv_rank,nope,rope,value,mtp,"
                               "schedule,measured_iter_s\n";
    static const struct {
        const char *row, *problem;
    } cases[] = {
        {"a,2,64,4,64,8,1,1,8,2,1,8,,128,,,,,,,,1",
         ":2: column top_k is needed beside experts, and it is empty\n"},
        {"a,2,64,4,64,8,1,1,8,2,1,8,2,,,,,,,,,1",
         ":2: column expert_ffn is needed beside experts, and it is empty\n"},
        {"a,2,64,4,64,8,1,1,8,2,1,8,9,128,,,,,,,,1", ":2: top_k 9 is more than the experts, 8\n"},
        {"a,2,64,4,64,8,1,1,8,2,1,8,2,128,3,,,,,,,1",
         ":2: dense_layers 3 is more than the layers, 2\n"},
        {"a,2,64,4,64,8,1,1,8,2,1,,,,,,,,,,,1",
         ":2: column ep is 2, but column experts is empty\n"},
        {"a,2,64,4,64,8,1,1,8,1,1,,2,,,,,,,,,1",
         ":2: column top_k is 2, but column experts is empty\n"},
        {"a,2,64,4,64,8,1,1,8,1,1,,,,,32,16,8,16,,,1",
         ":2: column experts is needed beside kv_rank, and it is empty\n"},
        {"a,2,64,4,64,8,1,1,8,1,1,8,2,128,,32,16,,16,,,1",
         ":2: column rope is needed beside kv_rank, and it is empty\n"},
        {"a,2,64,4,64,8,1,1,8,1,1,8,2,128,,,,,16,,,1",
         ":2: column value is 16, but column kv_rank is empty\n"},
        {"a,2,64,4,64,8,1,1,8,1,1,8,2,128,,,,,,1,,1",
         ":2: column mtp is 1, but column kv_rank is empty\n"},
        {"a,2,64,4,64,8,1,1,8,0,1,8,2,128,,,,,,,,1",
         ":2: column ep is '0': must be a whole number from 1 to 16384\n"},
        {"a,2,64,4,64,8,1,1,8,1,1,,,,,,,,,,interlaved,1",
         ":2: column schedule is 'interlaved': there is none; did you mean interleaved?\n"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        Diag *diag = diag_create();
        RunTable table;
        check_begin(arena_printf(arena, "validate: bad mixture %zu", i));
        const char *text = arena_printf(arena, "%s%s\n", head, cases[i].row);
        CsvTable *csv = read_bytes(text, strlen(text), diag);
        CHECK(csv && !validate_read(arena, csv, false, &table, diag), "is read");
        CHECK(strcmp(problem(diag), cases[i].problem) == 0, "'%s'", problem(diag));
        diag_destroy(diag);
    }
}

static void test_completed(void) {
    Diag *diag = diag_create();
    RunTable table;
    check_begin("validate: what a row leaves open");
    bool good = read_rows("a,mine,2,64,4,,,64,,A100,8,,2,2,1,,,1,8,none,,1,,,\n"
                          "b,mine,2,64,4,2,,64,99,H100,16,8,,,,,,,8,,fp8,1,,,\n"
                          "c,vtrain,2,64,4,,,64,,A100,8,8,1,1,1,8,,1,8,full,fp16,1,,,\n"
                          "d,vtrain,2,64,4,,,64,,A100,16,8,1,1,,16,,1,16,full,fp16,1,,,\n"
                          "e,mine,2,64,4,,,64,,H100,8,8,1,1,1,4,2,1,8,full,bf16,1,,,\n",
                          &table, diag);
    CHECK(good, "%s", diag_text(diag));
    if (good) {
        const Run *a = &table.runs[0], *b = &table.runs[1], *c = &table.runs[2],
                  *d = &table.runs[3], *e = &table.runs[4];
        CHECK(a->d == 2 && a->vocab == 51200 && a->kv_heads == 4 && a->ffn == 256, "a is other");
        CHECK(!a->searched && a->zero == 0 && a->math == MATH_BF16, "a is searched");
        CHECK(b->searched && b->t == UNSTATED && b->math == MATH_FP8 && b->zero == UNSTATED, "b");
        CHECK(strcmp(run_model(b), "llama") == 0 && strcmp(run_model(a), "gpt") == 0, "shapes");
        CHECK(c->recompute == RECOMPUTE_NONE && c->vocab == 50257, "vtrain on one node");
        CHECK(c->overridden == UINT64_C(1) << COLUMN_RECOMPUTE, "it is not said to be overridden");
        CHECK(d->recompute == RECOMPUTE_FULL && !d->overridden && d->v == 1, "vtrain on two");
        CHECK(e->cp == 2 && !e->overridden, "cp is taken otherwise");
    }
    check_begin("validate: families and their parts are kept");
    RunTable kept = table;
    CHECK(good && validate_filter(&kept, "vtrain_multi", diag) && kept.n_runs == 1 &&
              strcmp(kept.runs[0].id, "d") == 0,
          "%d rows", kept.n_runs);
    check_begin("validate: a family without rows");
    Diag *other = diag_create();
    CHECK(!validate_filter(&kept, "vtrian", other), "is kept");
    CHECK(strcmp(problem(other), ": no rows of family 'vtrian'; did you mean vtrain?\n") == 0, "%s",
          problem(other));
    diag_destroy(other);
    diag_destroy(diag);
}

/* Predictions given by hand: two jobs of two and three layouts, one of them measured twice. */
static void test_stats(void) {
    static const struct {
        int64_t batch, t;
        double measured, predicted;
    } rows[] = {{8, 1, 1.0, 1.2},  {8, 2, 2.0, 1.8},  {16, 1, 2.0, 1.5}, {16, 2, 1.0, 1.6},
                {16, 4, 3.0, 3.0}, {16, 1, 2.2, 1.5}, {32, 1, 1.0, 1.0}, {64, 1, 1.0, NAN}};
    enum { N = sizeof(rows) / sizeof(rows[0]) };
    Run runs[N] = {0};
    for (int i = 0; i < N; i++) {
        runs[i] = (Run){.line = i,
                        .id = "r",
                        .family = "f",
                        .num_gpus = 8,
                        .gpus_per_node = 8,
                        .global_batch = rows[i].batch,
                        .t = rows[i].t,
                        .measured_seconds = rows[i].measured,
                        .predicted_seconds = rows[i].predicted,
                        .error = rows[i].predicted / rows[i].measured - 1,
                        .skipped = isnan(rows[i].predicted) ? "too large" : NULL};
    }
    RunTable table = {.path = "t.csv", .n_runs = N, .runs = runs};
    int count;
    FamilyStats *stats = validate_stats(arena, &table, &count);
    check_begin("validate: errors of a family");
    CHECK(count == 1 && stats->n_rows == 7 && stats->n_skipped == 1, "%d, %d rows", count,
          stats->n_rows);
    double errors = 0.2 + 0.1 + 0.25 + 0.6 + 0 + (1 - 1.5 / 2.2) + 0;
    CHECK(fabs(stats->mean_abs_error - errors / 7) < 1e-9, "mean %g", stats->mean_abs_error);
    CHECK(fabs(stats->max_abs_error - 0.6) < 1e-9 && stats->worst == &runs[3], "most %g",
          stats->max_abs_error);
    double bias = 0.2 - 0.1 - 0.25 + 0.6 + 0 - (1 - 1.5 / 2.2) + 0;
    CHECK(fabs(stats->bias - bias / 7) < 1e-9, "bias %g", stats->bias);
    check_begin("validate: regret is the measured time of the layout predicted best");
    CHECK(stats->n_groups == 2, "%d groups", stats->n_groups);
    CHECK(fabs(stats->regret - (0 + 1.1) / 2) < 1e-9, "%g", stats->regret);
}

int main(void) {
    arena = arena_create();
    test_csv();
    test_bad_csv();
    test_bad_rows();
    test_flops();
    test_mixture_flops();
    test_expert_degree();
    test_bad_mixtures();
    test_completed();
    test_stats();
    arena_destroy(arena);
    return check_report();
}
