/* Showing how a model scales: efficiency and prices as on paper, rows that could not be searched or
 * do not fit, hostile names, 100 columns. */
#include "planner/show/scale_facts.h"
#include "planner/show/show_facts.h"
#include "planner/show/show_goodput.h"
#include "tests/unit/check.h"
#include "tests/unit/search_fixture.h"

#include <jansson.h>
#include <math.h>

static const char HOSTILE[] = "gpt</title><script>alert(1)</script>\"'&\\\n\x01\xff";
enum { N_ROWS = 5 };

static ScaleReport report_of(Arena *arena, ModelCosts *costs) {
    ScaleRow *rows = ARENA_ARRAY(arena, ScaleRow, N_ROWS);
    for (int i = 0; i < N_ROWS; i++) {
        SearchResult *result = ARENA_NEW(arena, SearchResult);
        rows[i].request = (SearchRequest){.n_ranks = 192 << i, .global_batch = 3072};
        rows[i].result = result;
        if (i == 0) { /* nothing fits */
            result->least_missing_bytes = 3LL << 30;
            continue;
        }
        if (i == 3) {
            rows[i].result = NULL;
            rows[i].refusal =
                "1536 ranks cannot be divided: <so it is>, for a reason that is longer "
                "than a line of the screen has columns, to its very last word";
            continue;
        }
        result->n_found = 1;
        result->found = ARENA_ARRAY(arena, Found, 1);
        result->found[0] = fixture_found(arena, fixture_candidate(8, 3 << i, 8, 2, 1), 1);
        result->found[0].cost.step_us = 1e8 / (1 << i) * (i == 4 ? 1.25 : 1);
        result->found[0].unusual = i == 4;
        result->found[0].why = "no measured run had so many ranks";
    }
    return (ScaleReport){
        .costs = costs, .options = {.precision = DTYPE_BF16}, .n_rows = N_ROWS, .rows = rows};
}

static bool near(double a, double b) {
    return fabs(a - b) <= 1e-6 * fmax(fabs(a), fabs(b));
}

static void test_figures(Arena *arena) {
    check_begin("scale facts: efficiency against the first that fits, price of tokens");
    Cluster cluster = fixture_cluster("DGX");
    ModelCosts costs = fixture_costs(&cluster, "gpt");
    ScaleReport report = report_of(arena, &costs);
    const ScaleFacts *facts = scale_facts_create(arena, &report);
    CHECK(facts->n_found == 3, "%d found", facts->n_found);
    CHECK(!facts->points[0].found && strstr(facts->points[0].trouble, "3.00 GiB missing"), "%s",
          facts->points[0].trouble);
    CHECK(!facts->points[3].found && strstr(facts->points[3].trouble, "divided"), "refusal");
    CHECK(near(facts->points[1].efficiency, 1), "%g", facts->points[1].efficiency);
    CHECK(near(facts->points[2].efficiency, 1), "%g", facts->points[2].efficiency);
    CHECK(near(facts->points[4].efficiency, 0.8), "%g", facts->points[4].efficiency);
    double rate = 3072.0 * 2048 / 50; /* tokens per second on 384 devices, of 1.5 USD an hour */
    CHECK(near(facts->points[1].tokens_price, 1e9 / rate / 3600 * 384 * 1.5), "%g",
          facts->points[1].tokens_price);
}

/* The last row has 2.5 times the time that scaling from 384 to 3072 ranks would give: the dashed
 * line ends far above every point, and both are within the drawing. */
static void test_ideal(Arena *arena) {
    check_begin("scale page: the ideal line stays in its plot; days where they are asked for");
    Cluster cluster = fixture_cluster("DGX");
    ModelCosts costs = fixture_costs(&cluster, "gpt");
    ScaleReport report = report_of(arena, &costs);
    report.days_tokens = 300e9;
    report.rows[4].result->found[0].cost.step_us *= 2;
    StrBuf text = strbuf_create(), page = strbuf_create();
    show_scale_text(&text, &report);
    show_scale_html(&page, &report);
    const char *line = strstr(page.text, "class=\"ideal\"");
    double x0, y0, x1, y1;
    CHECK(line && sscanf(line, "class=\"ideal\" x1=\"%lf%%\" y1=\"%lf%%\" x2=\"%lf%%\" y2=\"%lf%%",
                         &x0, &y0, &x1, &y1) == 4,
          "no line");
    CHECK(line && y0 <= 100 && y0 > y1 && y1 >= 0, "from %g to %g %%", y0, y1);
    CHECK(strstr(page.text, "<th>Days for 300 G</th>"), "no column of days");
    double days = 300e9 / (3072.0 * 2048 / 50) / 86400; /* of the first row that fits */
    char want[32];
    snprintf(want, sizeof(want), "<td>%.1f</td></tr>", days);
    CHECK(strstr(page.text, want), "no %s", want);
    snprintf(want, sizeof(want), " %.1f ", days);
    CHECK(strstr(text.text, "   days ") && strstr(text.text, want), "%s", text.text);
    strbuf_destroy(&text);
    strbuf_destroy(&page);
}

/* Days, prices and shares count failures; JSON has both. The row of most ranks says why. */
static void test_goodput(Arena *arena) {
    check_begin("scale: days with failures, in every form");
    Cluster cluster = fixture_cluster("DGX");
    fixture_add_failures(&cluster);
    ModelCosts costs = fixture_costs(&cluster, "gpt");
    costs.model_flops /= 10; /* below the peak in as short steps */
    ScaleReport report = report_of(arena, &costs);
    report.days_tokens = 300e9;
    const ScaleFacts *facts = scale_facts_create(arena, &report);
    const LayoutFacts *few = &facts->points[1].facts, *many = &facts->points[4].facts;
    CHECK(few->goodput.share > many->goodput.share && many->goodput.share > 0.9, "%g, then %g",
          few->goodput.share, many->goodput.share);
    CHECK(near(few->real_days * few->goodput.share, few->days), "%g days", few->real_days);
    StrBuf text = strbuf_create(), json = strbuf_create(), page = strbuf_create();
    show_scale_text(&text, &report);
    show_scale_json(&json, &report);
    show_scale_html(&page, &report);
    char want[80], days[UNIT_TEXT], percent[UNIT_TEXT];
    snprintf(want, sizeof(want), " %6s %5s ", days_text(few->real_days, days),
             goodput_percent(few->goodput.share, percent));
    CHECK(strstr(text.text, want) && strstr(text.text, "   days  good  MFU "), "no '%s' in %s",
          want, text.text);
    CHECK(strstr(text.text, "a failure every 10.0 h on 3072 devices"), "%s", text.text);
    int n_columns = 0;
    for (const char *c = text.text; *c; c++) {
        n_columns = *c == '\n' ? 0 : n_columns + 1;
        CHECK(n_columns <= 100, "over 100 columns: %s", text.text);
    }
    snprintf(want, sizeof(want), "<td>%s</td><td>%s %%</td></tr>", days_text(few->real_days, days),
             goodput_percent(few->goodput.share, percent));
    CHECK(strstr(page.text, want) && strstr(page.text, "id=\"goodput\""), "no '%s'", want);
    json_t *root = json_loads(json.text, 0, NULL);
    json_t *last = json_array_get(json_object_get(root, "points"), N_ROWS - 1);
    json_t *goodput = json_object_get(last, "goodput");
    CHECK(near(json_real_value(json_object_get(goodput, "days")), many->real_days), "days");
    CHECK(near(json_real_value(json_object_get(last, "days")), many->days), "days without");
    json_decref(root);
    strbuf_destroy(&text);
    strbuf_destroy(&json);
    strbuf_destroy(&page);
}

static void test_forms(Arena *arena, const char *name) {
    check_begin("scale: text, JSON and page");
    Cluster cluster = fixture_cluster(name);
    cluster.name = name;
    ModelCosts costs = fixture_costs(&cluster, name);
    ScaleReport report = report_of(arena, &costs);
    StrBuf text = strbuf_create(), json = strbuf_create(), page = strbuf_create();
    show_scale_text(&text, &report);
    show_scale_json(&json, &report);
    show_scale_html(&page, &report);
    int n_columns = 0;
    for (const unsigned char *c = (unsigned char *)text.text; *c; c++) {
        CHECK(*c >= 32 || *c == '\n', "a control character");
        n_columns = *c == '\n' ? 0 : n_columns + ((*c & 0xc0) != 0x80);
        CHECK(n_columns <= 100, "over 100 columns");
    }
    CHECK(strstr(text.text, "beyond the range"), "%s", text.text);
    CHECK(strstr(text.text, "very last word\n"), "a reason that is cut: %s", text.text);
    json_t *root = json_loads(json.text, 0, NULL);
    json_t *points = json_object_get(root, "points");
    CHECK(json_array_size(points) == N_ROWS, "%zu points", json_array_size(points));
    CHECK(json_is_false(json_object_get(json_array_get(points, 0), "fits")), "the first fits");
    json_t *last = json_array_get(points, N_ROWS - 1);
    CHECK(near(json_real_value(json_object_get(last, "efficiency")), 0.8), "efficiency");
    CHECK(json_is_string(json_object_get(last, "unusual")), "unusual");
    json_decref(root);
    CHECK(!strstr(page.text, "<script>alert") && !strstr(page.text, "<so it is>"), "not escaped");
    CHECK(strstr(page.text, "id=\"efficiency\""), "no plot");
    strbuf_destroy(&text);
    strbuf_destroy(&json);
    strbuf_destroy(&page);
}

/* One point, no price, no peak: there is less to draw, and nothing to divide by zero. */
static void test_little(Arena *arena) {
    check_begin("scale: one number of ranks, no price and no peak");
    Cluster cluster = fixture_cluster("DGX");
    cluster.price_per_device_hour = 0;
    cluster.currency = NULL;
    cluster.device.peak_flops[MATH_BF16] = 0;
    ModelCosts costs = fixture_costs(&cluster, "gpt");
    ScaleReport report = report_of(arena, &costs);
    report.rows++;
    report.n_rows = 1;
    StrBuf out = strbuf_create();
    show_scale_text(&out, &report);
    show_scale_html(&out, &report);
    show_scale_json(&out, &report);
    CHECK(!strstr(out.text, "nan") && !strstr(out.text, "inf%"), "a figure that is none");
    CHECK(strstr(out.text, "none is stated"), "the price");
    strbuf_destroy(&out);
}

int main(void) {
    Arena *arena = arena_create();
    test_figures(arena);
    test_ideal(arena);
    test_goodput(arena);
    test_forms(arena, "gpt");
    test_forms(arena, HOSTILE);
    test_little(arena);
    arena_destroy(arena);
    return check_report();
}
