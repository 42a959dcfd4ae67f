/* What experts cost in software that sends rows once to a node, beside other work, multiplies
 * expert by expert, and quantises. Catches: habits that are read and change nothing, or the wrong
 * part. */
#include "check.h"

#include "frontend/lua/cluster_read.h"
#include "frontend/lua/model.h"
#include "planner/cost/step_cost.h"
#include "tests/unit/model_request.h"

#include <math.h>

static Arena *arena;
static Model *model;

enum { EXPERTS = 32, EXPERT_RANKS = 16, LOCAL = EXPERTS / EXPERT_RANKS, CHOICES = 8 };

static bool near(double a, double b) {
    return fabs(a - b) <= 1e-6 * fabs(b);
}

/* A block's costs on two nodes; the costs go to *out_costs, too. */
static const LayoutCost *layout_with(const ClusterSoftware *software, ModelCosts **out_costs) {
    Diag *diag = diag_create();
    Cluster *cluster = cluster_read(arena, "h100-dgx", "megatron-core-moe", diag);
    CHECK(cluster, "%s", diag_text(diag));
    if (software) cluster->software = *software;
    PlanRequest request = model_request(model);
    const char *why = "";
    ModelCosts *costs = model_costs_create(arena, &request, cluster, diag);
    const LayoutCost *layout =
        model_costs_divided(costs, 1, 1, EXPERT_RANKS, false, RECOMPUTE_NONE, 1, 1, &why);
    CHECK(layout, "%s", why);
    if (out_costs) *out_costs = costs;
    diag_destroy(diag);
    return layout;
}

static void test_nodes(const ClusterSoftware *plain, const PhaseCost *before) {
    check_begin("exchange: a row goes to each of two nodes at most once");
    ClusterSoftware software = *plain;
    software.exchange_once_a_node = true;
    const PhaseCost *once = &layout_with(&software, NULL)->kinds[0].forward;
    double share = 2 * (1 - pow(0.5, CHOICES)) / CHOICES;
    CHECK(once->exchange_us < 0.6 * before->exchange_us &&
              once->exchange_us > share * before->exchange_us,
          "%g us of %g, of which %g of what crosses remains, and the start", once->exchange_us,
          before->exchange_us, share);
    CHECK(near(once->product_us, before->product_us), "products changed");
    software.exchange_most_nodes = 1;
    const PhaseCost *one = &layout_with(&software, NULL)->kinds[0].forward;
    CHECK(one->exchange_us < once->exchange_us, "choices on one node are not cheaper");
}

static void test_hidden(const ClusterSoftware *plain, const PhaseCost *before) {
    check_begin("exchange: beside another micro-batch it costs what it takes from its work");
    ClusterSoftware software = *plain;
    software.exchange_hidden = 0.25; /* less than there is work */
    ModelCosts *costs;
    const LayoutCost *layout = layout_with(&software, &costs);
    const PhaseCost *half = &layout->kinds[0].forward;
    double beside = 0.25 * (1 - software.overlap_slowdown) * before->exchange_us;
    CHECK(near(half->beside_us, beside), "%g us are hidden, not %g", half->beside_us, beside);
    CHECK(near(half->collective_us, before->collective_us - beside), "%g of %g us are left",
          half->collective_us, before->collective_us);
    const SegmentCost *block = &layout->kinds[0];
    double alone = model->n_blocks * (block->forward.beside_us + block->backward.beside_us);
    CHECK(near(step_unpaired_us(costs, layout), alone), "the first and the last are not alone");
    software.exchange_hidden = 0;
    layout = layout_with(&software, &costs);
    CHECK(step_unpaired_us(costs, layout) == 0, "nothing is hidden, and something is alone");
}

static void test_streams(const ClusterSoftware *plain, const PhaseCost *before) {
    check_begin("experts: products one by one are more operations, and no faster");
    ClusterSoftware software = *plain;
    software.product_streams = 0;
    const PhaseCost *joined = &layout_with(&software, NULL)->kinds[0].forward;
    software.product_streams = 1;
    const PhaseCost *alone = &layout_with(&software, NULL)->kinds[0].forward;
    /* gate and up are one product of the same rows, or two */
    int more = alone->n_ops - joined->n_ops;
    CHECK(more == 2 * (LOCAL - 1) || more == 3 * (LOCAL - 1), "%d more operations", more);
    CHECK(alone->product_us > joined->product_us, "%g and %g us", alone->product_us,
          joined->product_us);
    CHECK(before->product_us >= joined->product_us && before->product_us <= alone->product_us,
          "several streams are not between");
}

static void test_quantization(const ClusterSoftware *plain, const PhaseCost *before) {
    check_begin("fp8: what is quantised costs memory traffic, and products less");
    ClusterSoftware software = *plain;
    software.fp8_products = true;
    software.quantize_bytes = 0;
    const PhaseCost *free = &layout_with(&software, NULL)->kinds[0].forward;
    software.quantize_bytes = 4;
    const PhaseCost *paid = &layout_with(&software, NULL)->kinds[0].forward;
    CHECK(free->product_us < before->product_us && near(free->memory_us, before->memory_us),
          "fp8 for nothing");
    CHECK(paid->memory_us > free->memory_us && near(paid->product_us, free->product_us),
          "%g us of memory, %g without", paid->memory_us, free->memory_us);
    CHECK(paid->n_ops > free->n_ops, "nothing is issued");
}

int main(void) {
    static const ModelSetting settings[] = {
        {"layers", "2"},   {"model", "1024"},      {"heads", "8"},    {"kv_heads", "8"},
        {"seq", "2048"},   {"vocab", "1024"},      {"experts", "32"}, {"top_k", "8"},
        {"capacity", "1"}, {"expert_ffn", "1024"},
    };
    arena = arena_create();
    Diag *diag = diag_create();
    check_begin("a mixture on two nodes");
    model =
        model_load_shipped(arena, "moe", settings, sizeof(settings) / sizeof(settings[0]), 1, diag);
    CHECK(model, "%s", diag_text(diag));
    if (model) {
        ModelCosts *costs;
        const PhaseCost *before = &layout_with(NULL, &costs)->kinds[0].forward;
        const ClusterSoftware plain = costs->cluster->software;
        CHECK(before->exchange_us > 0 && before->beside_us == 0, "no all-to-all");
        test_nodes(&plain, before);
        test_hidden(&plain, before);
        test_streams(&plain, before);
        test_quantization(&plain, before);
    }
    diag_destroy(diag);
    arena_destroy(arena);
    return check_report();
}
