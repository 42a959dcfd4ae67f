/* Comparing plans: rows that differ and only these, differences with the right sign, sentences that
 * say what counts, hostile names. */
#include "planner/show/compare.h"
#include "tests/unit/check.h"
#include "tests/unit/plain_device.h"
#include "tests/unit/plan_fixture.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

static const char HOSTILE[] = "a</title><script>\"'&\\\n\x01\xff";
static const FixtureShape BEFORE = {2, 2, 4, 1, 8, 2, 512, 2048, 256, 1024, "1f1b", "m"};
static const FixtureShape AFTER = {2, 2, 4, 2, 8, 2, 512, 2048, 256, 1024, "interleaved", "m"};
static const FixtureShape OTHER = {4, 1, 4, 1, 8, 2, 512, 2048, 256, 1024, "1f1b", HOSTILE};

static const Cluster CLUSTER = {
    .name = "two-a-node",
    .device = {.peak_flops = {1e12, 1e12}, .memory_bytes_per_second = 1e12, .memory_fraction = 1},
    .node = {.n_devices = 2, .link_bytes_per_second = 1e11, .link_fraction = 1},
    .network = {.n_nics = 1, .nic_bytes_per_second = 1e9, .nic_fraction = 1, .latency_us = 10}};

static json_t *compare(Arena *arena, const FixtureShape *a, const FixtureShape *b,
                       const Cluster *cluster, StrBuf *text, Diag *diag) {
    ComparedPlan sides[2] = {{.path = "a.plan", .plan = fixture_plan(arena, a, diag)},
                             {.path = "b.plan", .plan = fixture_plan(arena, b, diag)}};
    Device devices[2];
    for (int i = 0; i < 2; i++) {
        devices[i] = cluster ? device_of_cluster(cluster, sides[i].plan->precision) : PLAIN_DEVICE;
        sides[i].device = &devices[i];
    }
    StrBuf json = strbuf_create();
    CHECK(compare_json(&json, sides, cluster, diag), "%s", diag_text(diag));
    CHECK(compare_text(text, sides, cluster, diag), "%s", diag_text(diag));
    json_t *root = json_loads(json.text, 0, NULL);
    CHECK(root, "no JSON");
    strbuf_destroy(&json);
    return root;
}

static json_t *row_of(json_t *root, const char *key) {
    size_t i;
    json_t *row;
    json_array_foreach(json_object_get(root, "rows"), i, row) {
        if (strcmp(json_string_value(json_object_get(row, "key")), key) == 0) return row;
    }
    return NULL;
}

static bool differs(json_t *root, const char *key) {
    return json_is_true(json_object_get(row_of(root, key), "differ"));
}

static void test_differences(Arena *arena, Diag *diag) {
    check_begin("compare: what differs, and in which direction");
    StrBuf text = strbuf_create();
    json_t *root = compare(arena, &BEFORE, &AFTER, NULL, &text, diag);
    CHECK(differs(root, "schedule") && differs(root, "chunks"), "schedule and chunks");
    CHECK(!differs(root, "mesh") && !differs(root, "micro_batch"), "mesh and micro-batch");
    json_t *bubble = row_of(root, "bubble_fraction");
    CHECK(json_real_value(json_object_get(bubble, "difference")) < 0, "interleaving's bubble");
    json_t *border = row_of(root, "traffic_pipeline forward");
    double ratio = json_real_value(json_object_get(border, "ratio"));
    CHECK(ratio > 1.5, "two chunks send more over borders: %g", ratio);
    CHECK(strstr(text.text, "the bubble goes from"), "%s", text.text);
    CHECK(strstr(text.text, "the same"), "%s", text.text);
    CHECK(!strstr(text.text, "\nmesh "), "an equal row is listed");
    json_decref(root);
    strbuf_destroy(&text);
}

static void test_same(Arena *arena, Diag *diag) {
    check_begin("compare: a plan with itself differs in nothing");
    StrBuf text = strbuf_create();
    json_t *root = compare(arena, &BEFORE, &BEFORE, &CLUSTER, &text, diag);
    CHECK(json_is_true(json_object_get(root, "same")), "%s", text.text);
    CHECK(json_array_size(json_object_get(root, "sentences")) == 0, "%s", text.text);
    CHECK(strstr(text.text, "differ in nothing"), "%s", text.text);
    json_decref(root);
    strbuf_destroy(&text);
}

/* t=2 stays in nodes of two, t=4 does not. */
static void test_links(Arena *arena, Diag *diag) {
    check_begin("compare: with a cluster, what leaves nodes is told apart and takes longer");
    StrBuf text = strbuf_create();
    json_t *root = compare(arena, &BEFORE, &OTHER, &CLUSTER, &text, diag);
    json_t *inside = json_object_get(row_of(root, "traffic_nodes"), "values");
    CHECK(json_real_value(json_array_get(inside, 0)) > 0, "t=2 stays inside");
    CHECK(json_real_value(json_array_get(inside, 1)) == 0, "t=4 does not");
    CHECK(strstr(text.text, "different models"), "%s", text.text);
    const Plan *wide = fixture_plan(arena, &OTHER, diag);
    Cluster roomy = CLUSTER; /* t=4 stays inside */
    roomy.node.n_devices = 4;
    Device near = device_of_cluster(&roomy, DTYPE_F32),
           far = device_of_cluster(&CLUSTER, DTYPE_F32);
    double near_us = cost_program(wide, 1, &near, arena).forward[0].collective_us;
    double far_us = cost_program(wide, 1, &far, arena).forward[0].collective_us;
    CHECK(far_us > 20 * near_us, "%g us over the network, %g inside", far_us, near_us);
    for (const unsigned char *c = (unsigned char *)text.text; *c; c++) {
        CHECK(*c >= 32 || *c == '\n', "a control character");
    }
    int n_columns = 0;
    for (const unsigned char *c = (unsigned char *)text.text; *c; c++) {
        n_columns = *c == '\n' ? 0 : n_columns + ((*c & 0xc0) != 0x80);
        CHECK(n_columns <= 100, "over 100 columns");
    }
    json_decref(root);
    strbuf_destroy(&text);
}

int main(void) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    test_differences(arena, diag);
    test_same(arena, diag);
    test_links(arena, diag);
    diag_destroy(diag);
    arena_destroy(arena);
    return check_report();
}
