/* Showing what a search found: that all forms give the same figures, that these are right, that the
 * text is one screen and that a hostile name stays text.
 *
 * `test_show_search --write FOLDER` writes HTML pages there instead, for
 * tests/browser/test_html.sh. */
#include "ir/base/file.h"
#include "planner/show/show_search_page.h"
#include "tests/unit/check.h"
#include "tests/unit/search_fixture.h"

#include <jansson.h>
#include <math.h>

/* What an attacker would call a model or a cluster. */
static const char HOSTILE[] = "gpt</title><script>alert(1)</script>\"'&\\\n\x01\xff";

static const SearchRequest REQUEST = {
    .n_ranks = 3072,
    .global_batch = 3072,
    .recompute = -1,
    .zero = -1,
    .sequence_parallel = -1,
};

static SearchReport report_of(Arena *arena, ModelCosts *costs, int n_samples) {
    SearchResult *result = ARENA_NEW(arena, SearchResult);
    *result = fixture_result(arena, n_samples);
    return (SearchReport){.costs = costs,
                          .request = &REQUEST,
                          .result = result,
                          .options = {.precision = DTYPE_BF16},
                          .n_top = 5,
                          .days_tokens = 300e9};
}

static bool near(double a, double b) {
    return fabs(a - b) <= 1e-6 * fmax(fabs(a), fabs(b));
}

/* By hand: 1.3e16 FLOPs a sequence, 3072 sequences on 3072 devices. */
static void test_figures(Arena *arena) {
    check_begin("search facts: rates, utilisation, days and price as on paper");
    Cluster cluster = fixture_cluster("DGX");
    ModelCosts costs = fixture_costs(&cluster, "gpt");
    SearchReport report = report_of(arena, &costs, 0);
    const SearchFacts *facts = search_facts_create(arena, &report);
    const LayoutFacts *best = &facts->best;
    double seconds = best->found->cost.step_us * 1e-6;
    CHECK(near(best->tokens_per_second, 3072 * 2048 / seconds), "%g", best->tokens_per_second);
    CHECK(near(best->model_tflops, 1.3e4 / seconds), "%g", best->model_tflops);
    CHECK(near(best->mfu, 1.3e4 / seconds / 312), "%g", best->mfu);
    CHECK(near(best->hfu, 1.42e4 / seconds / 312), "%g", best->hfu);
    CHECK(near(best->days, 300e9 / best->tokens_per_second / 86400), "%g", best->days);
    CHECK(near(best->price, best->days * 24 * 3072 * 1.5), "%g", best->price);
    CHECK(near(facts->limit_bytes, 76e9), "%g", facts->limit_bytes);
    CHECK(facts->n_others == 5, "%d others", facts->n_others);
    double sum = 0;
    for (StepPart part = 0; part < N_STEP_PARTS; part++) {
        sum += step_part_us(&best->found->cost, part);
    }
    CHECK(near(sum, best->found->cost.step_us), "parts give %g", sum);
    int64_t bytes = 0;
    for (int part = 0; part < N_MEMORY_PARTS; part++) {
        bytes += memory_part_bytes(&best->found->cost, part);
    }
    CHECK(bytes == best->found->cost.memory_bytes, "classes give %lld", (long long)bytes);
}

/* A checkpoint of 60 s and a failure every 10 h: every 2018 s by hand (sqrt(2 x 60 x 36000), less a
 * third of 60 s and a little), which is 27 steps of 75.75 s or 26. */
static void test_goodput(Arena *arena) {
    check_begin("search: days with failures, in every form");
    Cluster cluster = fixture_cluster("DGX");
    fixture_add_failures(&cluster);
    ModelCosts costs = fixture_costs(&cluster, "gpt");
    SearchReport report = report_of(arena, &costs, 0);
    const LayoutFacts *best = &search_facts_create(arena, &report)->best;
    const RunGoodput *run = &best->goodput;
    CHECK(run->state == GOODPUT_KNOWN && near(run->input.mtbf_seconds, 36000), "%g s",
          run->input.mtbf_seconds);
    CHECK(near(run->input.pause_seconds, 60), "%g s", run->input.pause_seconds);
    CHECK(run->goodput.interval_seconds > 1900 && run->goodput.interval_seconds < 2200, "%g s",
          run->goodput.interval_seconds);
    CHECK(run->share > 0.92 && run->share < 0.93, "%g", run->share);
    CHECK(near(best->real_days, best->days / run->share), "%g days", best->real_days);
    CHECK(near(best->real_price, best->price / run->share), "%g USD", best->real_price);
    StrBuf text = strbuf_create(), json = strbuf_create(), page = strbuf_create();
    show_search_text(&text, &report);
    show_search_json(&json, &report);
    show_search_html(&page, &report);
    char want[160], days[UNIT_TEXT], more[UNIT_TEXT];
    snprintf(want, sizeof(want), "300 G tokens take %s days (%s without failures), ",
             days_text(best->real_days, days), days_text(best->days, more));
    CHECK(strstr(text.text, want), "no '%s' in %s", want, text.text);
    CHECK(strstr(text.text, " %: a failure every 10.0 h on 3072 devices, a checkpoint every") &&
              strstr(text.text, "10.0 min to restart\n"),
          "%s", text.text);
    CHECK(strstr(page.text, "without failures") && strstr(page.text, "Goodput: 9"), "no goodput");
    json_t *root = json_loads(json.text, 0, NULL), *goodput = json_object_get(root, "goodput");
    CHECK(near(json_real_value(json_object_get(goodput, "share")), run->share), "%s", json.text);
    CHECK(near(json_real_value(json_object_get(goodput, "days")), best->real_days), "days");
    CHECK(near(json_real_value(json_object_get(root, "days")), best->days), "days without");
    CHECK(json_integer_value(json_object_get(goodput, "checkpoint_every")) == run->goodput.every,
          "steps");
    json_decref(root);
    strbuf_destroy(&text);
    strbuf_destroy(&json);
    strbuf_destroy(&page);
}

/* What is said of failures, and whether there are two numbers of days. */
static void test_goodput_words(Arena *arena, const FailureChoice *choice, bool stated,
                               const char *days, const char *words) {
    Cluster cluster = fixture_cluster("DGX");
    if (stated) fixture_add_failures(&cluster);
    ModelCosts costs = fixture_costs(&cluster, "gpt");
    SearchReport report = report_of(arena, &costs, 0);
    report.failures = choice;
    StrBuf text = strbuf_create(), page = strbuf_create();
    show_search_text(&text, &report);
    show_search_html(&page, &report);
    CHECK(strstr(text.text, days), "no '%s' in %s", days, text.text);
    CHECK(words ? strstr(text.text, words) != NULL : !strstr(text.text, "goodput"), "no '%s' in %s",
          words, text.text);
    CHECK(!strstr(page.text, "inf") && !strstr(page.text, "nan"), "no number");
    strbuf_destroy(&text);
    strbuf_destroy(&page);
}

/* The sentence names the part that costs most beside compute; a runner-up, the part that grew. */
static void test_reasons(Arena *arena) {
    check_begin("search facts: sentences name what is largest");
    Cluster cluster = fixture_cluster("DGX");
    ModelCosts costs = fixture_costs(&cluster, "gpt");
    static const char *const WORDS[N_STEP_PARTS] = {
        "nothing else counts", "t=8 tensor ranks, which share a node",
        "between p=64 stages", "the bubble: p=64 stages, 512 micro-batches of 2 chunks",
        "d=6 data ranks",      "optimizer"};
    for (StepPart part = 0; part < N_STEP_PARTS; part++) {
        Found found[2] = {fixture_found(arena, fixture_candidate(8, 6, 64, 2, 1), 1)};
        StepCost *cost = &found[0].cost;
        double *us[N_STEP_PARTS] = {&cost->compute_us, &cost->tensor_us, &cost->pipeline_us,
                                    &cost->bubble_us,  &cost->data_us,   &cost->update_us};
        for (int i = 1; i < N_STEP_PARTS; i++) *us[i] = 0;
        *us[part] += 1e6;
        cost->step_us = 67e6;
        found[1] = found[0];
        double *more[N_STEP_PARTS] = {&found[1].cost.compute_us,  &found[1].cost.tensor_us,
                                      &found[1].cost.pipeline_us, &found[1].cost.bubble_us,
                                      &found[1].cost.data_us,     &found[1].cost.update_us};
        *more[part] += 2e6;
        found[1].cost.step_us += 2e6;
        SearchResult result = {.n_found = 2, .found = found};
        SearchReport report = {.costs = &costs,
                               .request = &REQUEST,
                               .result = &result,
                               .options = {.precision = DTYPE_BF16},
                               .n_top = 1};
        const SearchFacts *facts = search_facts_create(arena, &report);
        CHECK(strstr(facts->bottleneck, WORDS[part]), "%s: %s", STEP_PARTS[part].key,
              facts->bottleneck);
        char want[64];
        snprintf(want, sizeof(want), "%s +2.00 s", STEP_PARTS[part].key);
        CHECK(strcmp(facts->others[0].why, want) == 0, "'%s', not '%s'", facts->others[0].why,
              want);
    }
}

static void test_text(Arena *arena, const char *name, int n_lines_most) {
    check_begin("search text: one screen of 100 columns");
    Cluster cluster = fixture_cluster(name);
    ModelCosts costs = fixture_costs(&cluster, name);
    SearchReport report = report_of(arena, &costs, 100);
    SearchResult result = *report.result;
    result.n_open = 7;
    result.remark = "global batch 3072 rules out every d of 3072 ranks but 1";
    report.result = &result;
    const char *warnings[] = {
        "the model's blocks are of 3 kinds, and this is quite a long sentence "
        "that has to be broken into two lines of the screen"};
    report.warnings = warnings;
    report.n_warnings = 1;
    report.exact_bytes = 70LL << 30;
    const RefusedLayout refused[] = {{0, 75LL << 30, NULL}, {2, 0, "x.lua:7: too odd"}};
    report.chosen = 1;
    report.explain = true;
    report.n_refused = 2;
    report.refused = refused;
    StrBuf out = strbuf_create();
    show_search_text(&out, &report);
    int n_lines = 0, n_columns = 0;
    for (const unsigned char *c = (const unsigned char *)out.text; *c; c++) {
        if (*c == '\n') {
            n_lines++;
            n_columns = 0;
            continue;
        }
        CHECK(*c >= 32, "a control character");
        n_columns += (*c & 0xc0) != 0x80;
        CHECK(n_columns <= 100, "line %d has over 100 columns", n_lines + 1);
        if (n_columns > 100) break;
    }
    CHECK(n_lines >= 24 && n_lines <= n_lines_most, "%d lines", n_lines);
    static const char *const WANTED[] = {"mesh",
                                         "MFU",
                                         "HFU",
                                         "bottleneck",
                                         "searched",
                                         "Runners-up",
                                         "leaves the NVLink",
                                         "warning",
                                         "cut short  7 layouts",
                                         "ranks      global batch",
                                         "its plan needs 75.0 GiB of",
                                         "cannot be planned: x.lua:7:",
                                         "device-hours",
                                         "to the byte"};
    for (size_t i = 0; i < sizeof(WANTED) / sizeof(*WANTED); i++) {
        CHECK(strstr(out.text, WANTED[i]), "no '%s'", WANTED[i]);
    }
    if (getenv("SHOW_TEXT")) fputs(out.text, stdout);
    strbuf_destroy(&out);
}

static void test_json(Arena *arena, const char *name) {
    check_begin("search JSON: the keys that are documented, the figures of the text");
    Cluster cluster = fixture_cluster(name);
    ModelCosts costs = fixture_costs(&cluster, name);
    SearchReport report = report_of(arena, &costs, 100);
    StrBuf out = strbuf_create();
    show_search_json(&out, &report);
    json_error_t error;
    json_t *root = json_loads(out.text, 0, &error);
    CHECK(root, "%s at line %d", error.text, error.line);
    static const char *const KEYS[] = {"fits",
                                       "model",
                                       "cluster",
                                       "software",
                                       "ranks",
                                       "nodes",
                                       "global_batch",
                                       "precision",
                                       "mesh",
                                       "schedule",
                                       "chunks",
                                       "micro_batch",
                                       "micro_batches",
                                       "recompute",
                                       "zero",
                                       "sequence_parallel",
                                       "step_seconds",
                                       "tokens_per_second",
                                       "bubble_fraction",
                                       "model_tflops_per_device",
                                       "hardware_tflops_per_device",
                                       "mfu",
                                       "hfu",
                                       "parts",
                                       "memory_bytes",
                                       "days",
                                       "price",
                                       "unusual",
                                       "split",
                                       "exact_bytes",
                                       "currency",
                                       "bottleneck",
                                       "refused",
                                       "candidates_total",
                                       "candidates_fit",
                                       "search_seconds",
                                       "candidates_per_second",
                                       "runners_up",
                                       "pareto",
                                       "alternatives",
                                       "candidates_open",
                                       "remark",
                                       "warnings"};
    for (size_t i = 0; root && i < sizeof(KEYS) / sizeof(*KEYS); i++) {
        CHECK(json_object_get(root, KEYS[i]), "no key %s", KEYS[i]);
    }
    double sum = 0, part;
    json_t *parts = json_object_get(root, "parts"), *value;
    const char *key;
    json_object_foreach(parts, key, value) {
        part = json_real_value(value);
        sum += part;
    }
    CHECK(near(sum, json_real_value(json_object_get(root, "step_seconds"))), "parts: %g", sum);
    CHECK(json_array_size(json_object_get(root, "runners_up")) == 5, "runners-up");
    CHECK(json_array_size(json_object_get(root, "split")) == 128, "split");
    CHECK(json_is_null(json_object_get(root, "exact_bytes")), "nothing was planned");
    json_decref(root);
    strbuf_destroy(&out);
}

static void test_nothing(void) {
    check_begin("search: nothing fits, and what would");
    Cluster cluster = fixture_cluster("DGX");
    SearchRequest request = {.n_ranks = 8, .global_batch = 8};
    SearchResult result = {.n_candidates = 12,
                           .least_missing_bytes = 2LL << 40,
                           .least_missing = fixture_candidate(8, 1, 1, 1, 1),
                           .least_ranks = 512};
    StrBuf out = strbuf_create();
    show_search_nothing(&out, &request, &result, &cluster);
    const char *want = "nothing fits 8 devices of selene: the least, t=8 d=1 p=1, 1f1b, b=1, "
                       "selective, sp, lacks 2.00 TiB of memory per device (limit 70.8 GiB); "
                       "--ranks 512 would do";
    CHECK(strcmp(out.text, want) == 0, "'%s'", out.text);
    strbuf_destroy(&out);
    out = strbuf_create();
    show_search_nothing_json(&out, &request, &result, &cluster);
    json_t *root = json_loads(out.text, 0, NULL);
    CHECK(root && json_is_false(json_object_get(root, "fits")), "fits");
    CHECK(json_integer_value(json_object_get(root, "least_ranks")) == 512, "least_ranks");
    CHECK(json_is_null(json_object_get(root, "remedy")), "remedy");
    json_decref(root);
    strbuf_destroy(&out);
    for (int more = 0; more < 2; more++) {
        out = strbuf_create();
        result.remedy = "--some option";
        result.least_ranks = more ? 512 : 0;
        show_search_nothing(&out, &request, &result, &cluster);
        want = more ? "; --ranks 512 would do, or --some option"
                    : "as far as was looked; but with --some option it would";
        const char *end = out.text + out.length - strlen(want);
        CHECK(out.length > strlen(want) && strcmp(end, want) == 0, "'%s'", out.text);
        strbuf_destroy(&out);
    }
}

/* A cluster that has no more to offer is not told to take more. */
static void test_nothing_more(int64_t max_devices, const char *want) {
    Cluster cluster = fixture_cluster("DGX");
    cluster.max_devices = max_devices;
    SearchRequest request = {.n_ranks = 1, .global_batch = 8};
    SearchResult result = {.least_missing_bytes = 2LL << 40,
                           .least_missing = fixture_candidate(1, 1, 1, 1, 1)};
    StrBuf out = strbuf_create();
    show_search_nothing(&out, &request, &result, &cluster);
    size_t length = strlen(out.text), n_want = strlen(want);
    CHECK(length > n_want && !strcmp(out.text + length - n_want, want), "'%s'", out.text);
    strbuf_destroy(&out);
}

/* 1.5 GiB beside the context, where 2 GiB are missing. */
static void test_nothing_for_graphs(int micro_batch, const char *remedy) {
    Cluster cluster = fixture_cluster("DGX");
    SearchRequest request = {.n_ranks = 8, .global_batch = 8, .micro_batch = micro_batch};
    SearchResult result = {
        .n_candidates = 12,
        .least_missing_bytes = 2LL << 30,
        .least_missing = fixture_candidate(8, 1, 1, 1, 1),
        .least_memory = {.memory_bytes = 80LL << 30, .runtime_bytes = 2LL << 30}};
    StrBuf out = strbuf_create();
    show_search_nothing(&out, &request, &result, &cluster);
    CHECK(strstr(out.text, remedy), "'%s'", out.text);
    strbuf_destroy(&out);
    out = strbuf_create();
    show_search_nothing_json(&out, &request, &result, &cluster);
    json_t *root = json_loads(out.text, 0, NULL);
    json_t *memory = json_object_get(json_object_get(root, "closest"), "memory_bytes");
    CHECK(json_integer_value(json_object_get(memory, "runtime")) == 2LL << 30, "runtime");
    json_decref(root);
    strbuf_destroy(&out);
}

/* A step of 64 stages, as a simulator would give it. */
static void simulate(Arena *arena, SearchReport *report) {
    const Found *best = &report->result->found[report->chosen];
    const Candidate *of = &best->candidate;
    PipelineLoad *load = ARENA_NEW(arena, PipelineLoad);
    int n = of->p * of->n_chunks, n_links = 0;
    PipelineChunk *chunks = ARENA_ARRAY(arena, PipelineChunk, n);
    PipelineLink *links = ARENA_ARRAY(arena, PipelineLink, 2 * of->p + 2);
    double *constant = ARENA_ARRAY(arena, double, of->p),
           *update = ARENA_ARRAY(arena, double, of->p);
    for (int i = 0; i < n; i++) {
        chunks[i] = (PipelineChunk){.forward_us = 40e3, .backward_us = 85e3, .frame_bytes = 3e8};
        chunks[i].data_us = 4e5;
        chunks[i].data_pieces = 1;
    }
    for (int s = 0; s < of->p; s++) {
        int next = (s + 1) % of->p;
        constant[s] = 3.2e10;
        update[s] = 2e5;
        if (next == 0 && of->n_chunks == 1) continue;
        PipelineLink link = {
            .from = s, .to = next, .wire = -1, .message_us = 900, .latency_us = 20};
        links[n_links++] = link;
        link.from = next, link.to = s, link.backward = true;
        links[n_links++] = link;
    }
    PipelinePart *part = ARENA_NEW(arena, PipelinePart);
    part->us = update;
    *load = (PipelineLoad){.shape = {of->p, of->n_chunks, of->n_micro},
                           .schedule = of->schedule,
                           .chunks = chunks,
                           .n_links = n_links,
                           .links = links,
                           .n_parts = 1,
                           .parts = part,
                           .constant_bytes = constant,
                           .spans = true};
    PipelineResult *step = ARENA_NEW(arena, PipelineResult);
    Diag *diag = diag_create();
    CHECK(pipeline_sim_run(pipeline_sim_create(arena), load, step, diag), "%s", diag_text(diag));
    diag_destroy(diag);
    report->load = load;
    report->step = step;
}

static void add_layout(Arena *arena, SearchReport *report) {
    LayoutCost *layout = ARENA_NEW(arena, LayoutCost);
    layout->kinds = ARENA_ARRAY(arena, SegmentCost, 1);
    layout->kinds[0].forward.collective_bytes = 2e8;
    layout->kinds[0].backward.collective_bytes = 2e8;
    layout->kinds[0].gradient_bytes = (int64_t)4e9;
    layout->border_bytes = 13 << 20;
    report->costs->kind_of_block = ARENA_ARRAY(arena, int, report->costs->n_blocks);
    report->layout = layout;
}

static StrBuf page_of(Arena *arena, const char *name, int n_samples) {
    Cluster cluster = fixture_cluster(name);
    ModelCosts costs = fixture_costs(&cluster, name);
    SearchReport report = report_of(arena, &costs, n_samples);
    simulate(arena, &report);
    add_layout(arena, &report);
    StrBuf out = strbuf_create();
    show_search_html(&out, &report);
    return out;
}

static void test_html(Arena *arena) {
    check_begin("search page: complete, escaped, of a size that opens");
    StrBuf out = page_of(arena, HOSTILE, MAX_SAMPLES);
    static const char *const WANTED[] = {
        "id=\"mesh\"",     "id=\"choice\"",      "id=\"parts\"",   "id=\"candidates\"",
        "id=\"timeline\"", "id=\"memory\"",      "id=\"traffic\"", "id=\"alternatives\"",
        "class=\"front\"", "class=\"mark best\""};
    for (size_t i = 0; i < sizeof(WANTED) / sizeof(*WANTED); i++) {
        CHECK(strstr(out.text, WANTED[i]), "no %s", WANTED[i]);
    }
    CHECK(!strstr(out.text, "<script>alert"), "a name became a script");
    CHECK(!strstr(out.text, "://") && !strstr(out.text, "url("), "something points outside");
    CHECK(out.length < 6 << 20, "%zu bytes", out.length);
    strbuf_destroy(&out);
}

static void test_ticks(void) {
    check_begin("axes have labels however narrow they are");
    static const LogAxis AXES[] = {{0.98, 1.02}, {411, 530}, {1e-4, 1.1e-4}, {1, 100}, {3, 7}};
    for (size_t i = 0; i < sizeof(AXES) / sizeof(*AXES); i++) {
        double ticks[MOST_TICKS];
        int n = log_axis_ticks(&AXES[i], ticks);
        CHECK(n >= 2 && n < 12, "axis %zu: %d ticks", i, n);
        for (int k = 0; k < n; k++) {
            CHECK(ticks[k] >= AXES[i].least * (1 - 1e-9) && ticks[k] <= AXES[i].most * (1 + 1e-9),
                  "axis %zu: a tick at %g", i, ticks[k]);
        }
    }
}

/* Four runners-up of the very same time and memory. */
static void test_labels(Arena *arena) {
    check_begin("search page: numbers of points that are close stand beside one another");
    Cluster cluster = fixture_cluster("DGX");
    ModelCosts costs = fixture_costs(&cluster, "gpt");
    Found found[5];
    for (int i = 0; i < 5; i++) {
        found[i] = fixture_found(arena, fixture_candidate(8, 6, 64, 2, 1), i ? 1.1 : 1);
    }
    SearchResult result = {.n_found = 5, .found = found, .samples = found, .n_samples = 5};
    SearchReport report = {.costs = &costs, .request = &REQUEST, .result = &result, .n_top = 4};
    StrBuf out = strbuf_create();
    show_search_html(&out, &report);
    int places[5][2], n = 0;
    for (const char *at = out.text; (at = strstr(at, "<text class=\"m\"")) && n < 5; n++) {
        at = strstr(at, "dx=");
        CHECK(sscanf(at, "dx=\"%d\" dy=\"%d\"", &places[n][0], &places[n][1]) == 2, "a label");
    }
    CHECK(n == 5, "%d labels", n);
    for (int i = 0; i < 4; i++) {
        for (int k = 0; k < i; k++) {
            CHECK(abs(places[i][0] - places[k][0]) >= 11 || abs(places[i][1] - places[k][1]) >= 14,
                  "numbers %d and %d overlap", k + 2, i + 2);
        }
    }
    strbuf_destroy(&out);
}

/* Nodes of 8: stages of 2 ranks, four to a node. */
static void test_traffic(Arena *arena) {
    check_begin("search page: borders that leave the node are told from those that do not");
    Cluster cluster = fixture_cluster("DGX");
    ModelCosts costs = fixture_costs(&cluster, "gpt");
    Found found = fixture_found(arena, fixture_candidate(2, 1, 32, 1, 1), 1);
    SearchResult result = {.n_found = 1, .found = &found};
    SearchReport report = {.costs = &costs, .request = &REQUEST, .result = &result};
    add_layout(arena, &report);
    StrBuf out = strbuf_create();
    show_search_html(&out, &report);
    CHECK(strstr(out.text, "inside the node: 24 of 31 borders"), "inside");
    CHECK(strstr(out.text, "network: 7 of 31 borders"), "network");
    /* 2 ways x 3072 micro-batches x 13 MiB over the one border that a stage has to another node */
    CHECK(strstr(out.text, "and 78.0 GiB over the network"), "bytes");
    strbuf_destroy(&out);
}

static bool write_pages(const char *folder, Arena *arena, Diag *diag) {
    static const struct {
        const char *file, *name;
        int n_samples;
    } PAGES[] = {{"search", "gpt", MAX_SAMPLES}, {"search-hostile", HOSTILE, 40}};
    bool good = true;
    for (size_t i = 0; i < sizeof(PAGES) / sizeof(*PAGES); i++) {
        StrBuf out = page_of(arena, PAGES[i].name, PAGES[i].n_samples);
        const char *path = arena_printf(arena, "%s/%s.html", folder, PAGES[i].file);
        good &= file_write(path, out.text, out.length, diag);
        strbuf_destroy(&out);
    }
    return good;
}

int main(int argc, char **argv) {
    Arena *arena = arena_create();
    int status;
    if (argc == 3 && strcmp(argv[1], "--write") == 0) {
        Diag *diag = diag_create();
        status = write_pages(argv[2], arena, diag) ? 0 : 1;
        diag_print(diag, stderr);
        diag_destroy(diag);
    } else {
        test_figures(arena);
        test_reasons(arena);
        test_text(arena, "gpt", 45);
        test_text(arena, HOSTILE, 45);
        test_json(arena, "gpt");
        test_json(arena, HOSTILE);
        test_goodput(arena);
        check_begin("search: what is said of failures that are not counted, or too many");
        FailureChoice none = {.has_mtbf = true},
                      many = {.has_mtbf = true, .device_mtbf_hours = 600};
        FailureChoice often = {.has_mtbf = true, .device_mtbf_hours = 30720};
        test_goodput_words(arena, &none, true, " days, ", NULL);
        test_goodput_words(arena, NULL, false, " days, ",
                           "no failures are assumed: cluster selene states none");
        test_goodput_words(arena, &often, false, " days, ",
                           "not known: cluster selene states no rate of its storage");
        test_goodput_words(arena, &many, true,
                           " days without failures, and have no end with them\n",
                           "no progress is expected: a failure every 11.7 min on 3072 devices");
        test_nothing();
        test_nothing_more(0, "; more ranks alone would not do, as far as was looked");
        test_nothing_more(1, "; the cluster has no more than 1 device");
        test_nothing_more(64,
                          "; nor would more of the cluster's 64 devices do, as far as was looked");
        check_begin("search: nothing fits for captured graphs, and what would need less");
        test_nothing_for_graphs(ANY, "; captured graphs of 3072 micro-batches take 1.50 GiB, less "
                                     "with a smaller --global-batch; ");
        test_nothing_for_graphs(1, "; captured graphs of 3072 micro-batches take 1.50 GiB, less "
                                   "with a larger --micro-batch or a smaller --global-batch; ");
        test_html(arena);
        test_traffic(arena);
        test_ticks();
        test_labels(arena);
        status = check_report();
    }
    arena_destroy(arena);
    return status;
}
