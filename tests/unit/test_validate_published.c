/* validate on published runs (tests/data/published_*.csv: facts, each row with its source): how
 * far predictions may be off, and what the forms of the result hold. Catches: a change of the cost
 * model that moves predictions away from what was measured, keys of the JSON that change. */
#include "check.h"

#include "frontend/validate/validate.h"
#include "ir/base/json.h"

#include <math.h>
#include <string.h>

/* Of the step time, as fractions; what planner/search/README.md promises. */
static const struct {
    const char *family;
    int n_rows;
    double mean, most;
} TARGETS[] = {{"sc21", 10, 0.05, 0.10}, {"korthikanti", 9, 0.05, 0.10}};

static const FamilyStats *find(const Validation *result, const char *family) {
    for (int i = 0; i < result->n_stats; i++) {
        if (strcmp(result->stats[i].name, family) == 0) return &result->stats[i];
    }
    return NULL;
}

static void test_errors(const Validation *result) {
    for (size_t i = 0; i < sizeof(TARGETS) / sizeof(TARGETS[0]); i++) {
        const FamilyStats *stats = find(result, TARGETS[i].family);
        char name[96];
        snprintf(name, sizeof(name), "validate: %s within %.0f %% on average, %.0f %% at most",
                 TARGETS[i].family, 100 * TARGETS[i].mean, 100 * TARGETS[i].most);
        check_begin(name);
        CHECK(stats && stats->n_rows == TARGETS[i].n_rows && stats->n_skipped == 0, "rows");
        if (!stats || stats->n_rows == 0) continue;
        CHECK(stats->mean_abs_error <= TARGETS[i].mean, "mean %.1f %%",
              100 * stats->mean_abs_error);
        CHECK(stats->max_abs_error <= TARGETS[i].most, "%s is %.1f %% off", stats->worst->id,
              100 * stats->max_abs_error);
    }
    /* Selective recomputation with sequence parallelism against full recomputation, four models. */
    const FamilyStats *stats = find(result, "korthikanti");
    check_begin("validate: the layout predicted best was the best of Korthikanti et al.");
    CHECK(stats && stats->n_groups == 4 && stats->regret == 0, "regret %g in %d groups",
          stats ? stats->regret : NAN, stats ? stats->n_groups : 0);
}

/* The parts are the step's. */
static void test_parts(const Validation *result) {
    check_begin("validate: the parts of a step add up to it");
    for (int r = 0; r < result->table->n_runs; r++) {
        const Run *run = &result->table->runs[r];
        const StepCost *cost = &run->cost;
        if (run->skipped) continue;
        double sum = cost->compute_us + cost->tensor_us + cost->pipeline_us + cost->bubble_us +
                     cost->data_us + cost->update_us;
        CHECK(fabs(sum / cost->step_us - 1) < 1e-6, "%s: %g of %g us", run->id, sum, cost->step_us);
    }
}

static void check_keys(json_t *object, const char *what, const char *const *keys) {
    for (; *keys; keys++) CHECK(json_object_get(object, *keys), "%s has no key %s", what, *keys);
}

static void test_json(const Validation *result) {
    static const char *const top[] = {"format", "path", "seconds", "families", "rows", NULL};
    static const char *const family[] = {"rows",          "skipped", "mean_abs_error",
                                         "max_abs_error", "bias",    "worst",
                                         "groups",        "regret",  NULL};
    static const char *const row[] = {"id",         "family",       "line",
                                      "cluster",    "software",     "measured_seconds",
                                      "assumed",    "error",        "predicted_seconds",
                                      "overridden", "layout",       "searched",
                                      "parts",      "memory_bytes", NULL};
    StrBuf text = strbuf_create();
    Diag *diag = diag_create();
    check_begin("validate: keys of the JSON");
    CHECK(validate_show_json(&text, result, diag), "%s", diag_text(diag));
    json_t *json = json_parse_bytes("json", text.text, text.length, diag);
    CHECK(json, "%s", diag_text(diag));
    if (json) {
        check_keys(json, "the document", top);
        json_t *families = json_object_get(json, "families");
        json_t *sc21 = json_object_get(families, "sc21");
        check_keys(sc21, "a family", family);
        CHECK(json_object_get(families, "korthikanti_single") &&
                  json_object_get(families, "korthikanti_multi"),
              "no parts of korthikanti");
        CHECK(!json_object_get(families, "sc21_multi"), "parts of sc21, which has one");
        json_t *rows = json_object_get(json, "rows");
        CHECK((int)json_array_size(rows) == result->table->n_runs, "%zu rows",
              json_array_size(rows));
        check_keys(json_array_get(rows, 0), "a row", row);
        double seconds =
            json_real_value(json_object_get(json_array_get(rows, 9), "measured_seconds"));
        CHECK(fabs(seconds - 3.528) < 0.001, "sc21_t1_1.7b is %.4f s", seconds);
    }
    json_decref(json);
    diag_destroy(diag);
    strbuf_destroy(&text);
}

static int count_of(const char *text, const char *what) {
    int count = 0;
    while ((text = strstr(text, what))) {
        count++;
        text += strlen(what);
    }
    return count;
}

static void test_page(const Validation *result) {
    StrBuf page = strbuf_create(), svg = strbuf_create();
    validate_show_html(&page, result);
    validate_show_svg(&svg, result);
    check_begin("validate: the page has a point and a line for every run, and nothing outside");
    CHECK(count_of(page.text, "<circle class=\"dot") == result->table->n_runs, "points");
    CHECK(count_of(page.text, "<tr><td>sc21_t1_") == 10, "lines");
    CHECK(!strstr(page.text, "://") && !strstr(page.text, "url("), "something points outside");
    CHECK(!strstr(page.text, "nan") && !strstr(page.text, "=\"-nan"), "no numbers");
    check_begin("validate: the drawing is complete in one file");
    CHECK(count_of(svg.text, "<circle class=\"dot") == result->table->n_runs, "points");
    CHECK(strstr(svg.text, "xmlns=") && strstr(svg.text, "</svg>"), "no drawing");
    strbuf_destroy(&page);
    strbuf_destroy(&svg);
}

/* Of runs that no constant was fitted on: what planner/search/README.md says, and a little. The
 * others of the table are searched, or are far off. */
static const struct {
    const char *family;
    int n_rows;
    double mean, most;
} NEWER[] = {{"nemo", 9, 0.04, 0.10},       {"bridge", 8, 0.05, 0.08},
             {"deepseek", 1, 0.18, 0.18},   {"megatron_moe", 8, 0.17, 0.40},
             {"llama3", 3, 0.16, 0.22},     {"bridge_b200", 5, 0.30, 0.70},
             {"bridge_b300", 3, 0.38, 0.62}};

static const Run *find_run(const RunTable *table, const char *id) {
    for (int r = 0; r < table->n_runs; r++) {
        if (strcmp(table->runs[r].id, id) == 0) return &table->runs[r];
    }
    return NULL;
}

/* Mixtral in bf16 is what users of mixtures know; all-to-alls beside other work are worth it. */
static void test_mixtures(const RunTable *table) {
    static const char *const ids[] = {"mixtral-8x7b", "mixtral-8x22b"};
    for (int i = 0; i < 2; i++) {
        const Run *run = find_run(table, ids[i]);
        check_begin(ids[i]);
        CHECK(run && !run->skipped && fabs(run->error) < 0.08, "%.1f %% off",
              run ? 100 * run->error : NAN);
    }
    const Run *plain = find_run(table, "qwen235b_e32"),
              *beside = find_run(table, "qwen235b_e32_overlap");
    check_begin("validate: all-to-alls beside another micro-batch's work");
    CHECK(plain && beside && beside->candidate.e == 16 &&
              beside->predicted_seconds < 0.9 * plain->predicted_seconds,
          "nothing is hidden");
}

/* Of the dense ones nothing was fitted; many small experts are too fast, as elsewhere. */
static void test_b200(const RunTable *table) {
    static const char *const ids[] = {"25.11_llama3-8b_b200", "25.11_llama3-405b_b200"};
    for (int i = 0; i < 2; i++) {
        const Run *run = find_run(table, ids[i]);
        check_begin(ids[i]);
        CHECK(run && !run->skipped && fabs(run->error) < 0.12, "%.1f %% off",
              run ? 100 * run->error : NAN);
    }
}

static void test_newer(Arena *arena) {
    Diag *diag = diag_create();
    ValidateOptions options = {0};
    for (size_t i = 0; i < sizeof(NEWER) / sizeof(NEWER[0]); i++) {
        RunTable table;
        check_begin(arena_printf(arena, "validate: newer runs, %s", NEWER[i].family));
        CsvTable *csv =
            csv_read(arena, "tests/data/published_newer.csv", validate_check_header, diag);
        bool good = csv && validate_read(arena, csv, false, &table, diag) &&
                    validate_filter(&table, NEWER[i].family, diag) &&
                    validate_predict(arena, &table, &options, diag);
        CHECK(good, "%s", diag_text(diag));
        if (!good) break;
        int count;
        const FamilyStats *stats = validate_stats(arena, &table, &count);
        CHECK(stats->n_rows == NEWER[i].n_rows && stats->n_skipped == 0, "%d rows", stats->n_rows);
        CHECK(stats->mean_abs_error <= NEWER[i].mean, "mean %.1f %%", 100 * stats->mean_abs_error);
        CHECK(stats->max_abs_error <= NEWER[i].most, "%s is %.1f %% off", stats->worst->id,
              100 * stats->max_abs_error);
        if (strcmp(NEWER[i].family, "megatron_moe") == 0) test_mixtures(&table);
        if (strcmp(NEWER[i].family, "bridge_b200") == 0) test_b200(&table);
    }
    diag_destroy(diag);
}

int main(void) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    RunTable table;
    ValidateOptions options = {0};
    check_begin("validate: published runs are predicted");
    CsvTable *csv = csv_read(arena, "tests/data/published_runs.csv", validate_check_header, diag);
    bool good = csv && validate_read(arena, csv, false, &table, diag) &&
                validate_predict(arena, &table, &options, diag);
    CHECK(good, "%s", diag_text(diag));
    if (good) {
        Validation result = {.arena = arena, .table = &table};
        result.stats = validate_stats(arena, &table, &result.n_stats);
        test_errors(&result);
        test_parts(&result);
        test_json(&result);
        test_page(&result);
    }
    test_newer(arena);
    diag_destroy(diag);
    arena_destroy(arena);
    return check_report();
}
