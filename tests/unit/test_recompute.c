/* Recomputation: the same bits as without it, on one rank and on meshes; and frames that hold what
 * they should. Catches a copy that reads a value of another time or another rounding, a mask drawn
 * anew, a message left out, a value kept for nothing, a block computed again too early.
 */
#include "ir/base/file.h"
#include "planner/passes/pass.h"
#include "planner/plan/recompute.h"
#include "tests/unit/check.h"
#include "tests/unit/train_compare.h"

enum { STEPS = 3, GLOBAL_BATCH = 16, MOST_SETTINGS = 12 };
static const double LEARNING_RATE = 2e-3;

typedef struct Variant {
    const char *name, *path;
    int most_t; /* what its heads allow */
    DType precision;
    ModelSetting settings[MOST_SETTINGS]; /* up to the first without a key */
} Variant;

/* clang-format off */
#define COMMON {"model", "32"}, {"heads", "4"}, {"seq", "16"}, {"layers", "5"}
/* clang-format on */
static const Variant VARIANTS[] = {
    {"gpt dropout",
     "models/gpt.lua",
     4,
     DTYPE_F32,
     {COMMON, {"vocab", "61"}, {"ffn", "64"}, {"dropout", "0.1"}, {"attention_dropout", "0.2"}}},
    {"gpt bf16 dropout",
     "models/gpt.lua",
     4,
     DTYPE_BF16,
     {COMMON, {"vocab", "64"}, {"dropout", "0.1"}, {"attention_dropout", "0.2"}}},
    {"gpt untied rmsnorm relu",
     "models/gpt.lua",
     4,
     DTYPE_F32,
     {COMMON, {"vocab", "50"}, {"tied", "false"}, {"norm", "rmsnorm"}, {"act", "relu"}}},
    {"llama gqa window",
     "models/llama.lua",
     2,
     DTYPE_F32,
     {COMMON, {"vocab", "61"}, {"kv_heads", "2"}, {"ffn", "88"}, {"window", "5"}}},
    {"llama bf16 dropout",
     "models/llama.lua",
     4,
     DTYPE_BF16,
     {COMMON, {"vocab", "64"}, {"kv_heads", "4"}, {"dropout", "0.1"}, {"ffn", "88"}}},
};

static const Layout LAYOUTS[] = {
    /* t, d, p, micro-batch, chunks, schedule, sequence parallel */
    {1, 1, 1, 4, 1, "1f1b", false, NULL, 0},        {2, 1, 1, 8, 1, "1f1b", false, NULL, 0},
    {4, 1, 1, 4, 1, "1f1b", true, NULL, 0},         {1, 2, 1, 2, 1, "1f1b", false, NULL, 0},
    {1, 1, 2, 2, 1, "1f1b", false, NULL, 0},        {1, 1, 4, 2, 1, "gpipe", false, NULL, 0},
    {1, 1, 2, 2, 2, "interleaved", false, NULL, 0}, {2, 1, 2, 4, 1, "1f1b", true, NULL, 0},
    {2, 2, 2, 2, 2, "interleaved", true, NULL, 0},
};

static int count_settings(const Variant *variant) {
    int count = 0;
    while (count < MOST_SETTINGS && variant->settings[count].key) count++;
    return count;
}

static bool train(Run *run, const Variant *variant, const Layout *layout, Recompute mode) {
    run_precision = variant->precision;
    run_recompute = mode;
    return run_plan(run, variant->path, variant->settings, count_settings(variant), layout,
                    GLOBAL_BATCH, true) &&
           run_start(run) && run_steps(run, STEPS, LEARNING_RATE);
}

static void compare_bits(Run *run, Run *none) {
    for (int step = 0; step < STEPS; step++) {
        CHECK(run->losses[step] == none->losses[step] && run->norms[step] == none->norms[step],
              "step %d: loss %.9g and norm %.9g, without %.9g and %.9g", step + 1,
              run->losses[step], run->norms[step], none->losses[step], none->norms[step]);
    }
    for (int i = 0; i < run->n_params; i++) {
        size_t bytes = (size_t)type_elements(&run->types[i]) * sizeof(float);
        CHECK(memcmp(run_weight(run, i), run_weight(none, i), bytes) == 0, "'%s' differs",
              run->names[i]);
    }
}

/* Frames of all chunks of a stage. */
static int64_t frame_bytes(const Plan *plan, int stage) {
    int64_t bytes = 0;
    for (int c = 0; c < plan->n_chunks; c++) {
        bytes += plan->programs[plan->stages[stage].program].frame_bytes[c];
    }
    return bytes;
}

static void check_layout(const Variant *variant, const Layout *layout) {
    char name[200];
    Run none;
    bool done = train(&none, variant, layout, RECOMPUTE_NONE);
    check_begin(layout_name(variant->name, layout, name, sizeof(name)));
    CHECK(done, "%s", diag_text(none.diag));
    for (int mode = RECOMPUTE_SELECTIVE; done && mode <= RECOMPUTE_FULL; mode++) {
        Run run;
        bool again = train(&run, variant, layout, (Recompute)mode);
        check_begin(layout_name(variant->name, layout, name, sizeof(name)));
        CHECK(again, "%s", diag_text(run.diag));
        if (again) compare_bits(&run, &none);
        for (int s = 0; again && s < run.plan->n_stages; s++) {
            CHECK(frame_bytes(run.plan, s) < frame_bytes(none.plan, s),
                  "stage %d keeps %lld bytes, without %lld", s, (long long)frame_bytes(run.plan, s),
                  (long long)frame_bytes(none.plan, s));
        }
        run_close(&run);
        check_end();
    }
    run_close(&none);
}

/* Plans GPT-2 124M with `layers` blocks, micro-batches of 2 sequences. */
static bool plan_124m(Run *run, const char *layers, const Layout *layout, DType precision,
                      Recompute mode) {
    const ModelSetting settings[] = {{"size", "124m"}, {"layers", layers}};
    run_precision = precision;
    run_recompute = mode;
    return run_plan(run, "models/gpt.lua", settings, 2, layout, 8, false);
}

/* In units of batch x seq x model elements, of one rank, what a block of GPT-2 keeps: its input,
 * two norms' results, q, k and v, attention's, the residual stream, four for each side of gelu.
 * Selective: not the norms' and gelu's results. Besides: rows' statistics, two numbers a norm and
 * one a head of attention. In scratch, more than without: what is computed again of one block.
 * Nodes computed again on one rank: both norms and bias with gelu; besides, in full, five products
 * and three biases, attention, and the residual stream. Selective leaves alone what saves nothing,
 * such as q, which would need its product kept instead. */
static const struct {
    double frame, scratch;
    int n_copies;
} UNITS[N_RECOMPUTES] = {{16, 0, 0}, {10, 4, 3}, {1, 15, 13}};

static void check_memory(const char *what, const Layout *layout, DType precision) {
    char name[160];
    int n_without = 0;
    double model_flops = 0, without = 0,
           unit_bytes = 2 * 1024 * 768.0 * dtype_bytes(precision) / layout->t;
    for (int mode = 0; mode < N_RECOMPUTES; mode++) {
        Run more, less;
        snprintf(name, sizeof(name), "a block of GPT-2 124M keeps %g units: %s, %s",
                 UNITS[mode].frame, what, recompute_mode_name((Recompute)mode));
        check_begin(name);
        bool done = plan_124m(&more, "12", layout, precision, (Recompute)mode);
        done &= plan_124m(&less, "11", layout, precision, (Recompute)mode);
        CHECK(done, "%s%s", diag_text(more.diag), diag_text(less.diag));
        if (done) {
            double kept = (double)(frame_bytes(more.plan, 0) - frame_bytes(less.plan, 0));
            double scratch = (double)more.plan->programs[0].scratch_bytes;
            int n_nodes =
                more.plan->programs[0].graph->n_nodes - less.plan->programs[0].graph->n_nodes;
            /* Full keeps no statistics. */
            double slack = mode == RECOMPUTE_FULL ? 0 : 0.05;
            CHECK(kept >= UNITS[mode].frame * unit_bytes &&
                      kept <= (UNITS[mode].frame + slack) * unit_bytes,
                  "keeps %.3f units", kept / unit_bytes);
            CHECK(more.plan->programs[0].scratch_bytes == less.plan->programs[0].scratch_bytes,
                  "scratch grows with the number of blocks");
            if (mode == RECOMPUTE_NONE) {
                without = scratch;
                n_without = n_nodes;
                model_flops = more.plan->model_flops;
            }
            CHECK(scratch - without <= (UNITS[mode].scratch + 0.1) * unit_bytes,
                  "scratch: %.3f units more", (scratch - without) / unit_bytes);
            CHECK(layout->t > 1 || n_nodes - n_without == UNITS[mode].n_copies,
                  "%d nodes of a block are computed again", n_nodes - n_without);
            CHECK(more.plan->model_flops == model_flops, "model FLOPs count what is recomputed");
        }
        run_close(&more);
        run_close(&less);
        check_end();
    }
}

/* In full, a backward node reads of its block's forward only what came from outside of it. */
static bool enters(const Graph *graph, const Node *from) {
    bool leaf = OPS[from->op].flags & LEAF, leaves = false;
    bool completes = from->op == OP_ALL_REDUCE || from->op == OP_REDUCE_SCATTER;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (node->phase != PHASE_FORWARD) continue;
        for (int i = 0; i < node->n_inputs; i++) {
            leaves |= node->inputs[i].node == from && node->block != from->block;
        }
    }
    return leaf || leaves || (completes && from->inputs[0].node->block != from->block);
}

static void check_order(const Graph *graph) {
    int block = 1 << 30, chunk = 1 << 30;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (node->phase != PHASE_BACKWARD || node->block == NO_BLOCK) continue;
        if (OPS[node->op].flags & LEAF) continue;
        if (node->chunk != chunk) block = 1 << 30;
        CHECK(node->block <= block, "%%%d of block %d after block %d", n, node->block, block);
        block = node->block;
        chunk = node->chunk;
        for (int i = 0; i < node->n_inputs; i++) {
            const Node *from = node->inputs[i].node;
            if (from->phase != PHASE_FORWARD || from->block == NO_BLOCK) continue;
            CHECK(enters(graph, from), "%%%d reads %%%d %s of the forward", n, from->id,
                  OPS[from->op].name);
        }
        if (node->op == OP_ALL_REDUCE || node->op == OP_REDUCE_SCATTER) {
            const Node *from = node->inputs[0].node;
            CHECK(from->phase == PHASE_BACKWARD, "%%%d completes again what entered", n);
        }
    }
}

static void check_full_programs(void) {
    for (size_t v = 0; v < sizeof(VARIANTS) / sizeof(VARIANTS[0]); v++) {
        for (size_t l = 0; l < sizeof(LAYOUTS) / sizeof(LAYOUTS[0]); l++) {
            char name[200];
            const Variant *variant = &VARIANTS[v];
            Run run;
            if (LAYOUTS[l].t > variant->most_t) continue;
            run_precision = variant->precision;
            run_recompute = RECOMPUTE_FULL;
            layout_name("blocks one at a time, from what enters them", &LAYOUTS[l], name,
                        sizeof(name));
            check_begin(name);
            bool done = run_plan(&run, variant->path, variant->settings, count_settings(variant),
                                 &LAYOUTS[l], GLOBAL_BATCH, false);
            CHECK(done, "%s", diag_text(run.diag));
            for (int i = 0; done && i < run.plan->n_programs; i++) {
                check_order(run.plan->programs[i].graph);
            }
            run_close(&run);
            check_end();
        }
    }
}

/* The golden pair of selective; that of full is test_ir's. BLESS=1 accepts what comes out. */
static void check_selective_golden(void) {
    static const char FROM[] = "tests/golden/passes/recompute.ir";
    static const char TO[] = "tests/golden/passes/recompute_selective.expect";
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    size_t length;
    int line = 1;
    check_begin("pass recompute, selective");
    const char *text = file_read(arena, FROM, 1 << 20, &length, diag);
    const Graph *graph = text ? graph_parse(arena, FROM, &text, &line, diag) : NULL;
    PassContext ctx = {.arena = arena, .diag = diag, .options = {.recompute = RECOMPUTE_SELECTIVE}};
    const Graph *after = graph ? pass_recompute(graph, &ctx) : NULL;
    CHECK(after && graph_verify(after, diag), "%s", diag_text(diag));
    StrBuf out = strbuf_create();
    if (after) graph_print(&out, after);
    if (after && getenv("BLESS")) {
        CHECK(file_write(TO, out.text, out.length, diag), "%s", diag_text(diag));
    } else if (after) {
        const char *expected = file_read(arena, TO, 1 << 20, &length, diag);
        CHECK(expected && strcmp(expected, out.text) == 0, "is not what %s says:\n%s", TO,
              out.text);
    }
    ctx.options.recompute = RECOMPUTE_NONE;
    CHECK(!graph || pass_recompute(graph, &ctx) == graph, "none changes the graph");
    strbuf_destroy(&out);
    diag_destroy(diag);
    arena_destroy(arena);
    check_end();
}

int main(void) {
    const Layout alone = {1, 1, 1, 2, 1, "1f1b", false, NULL, 0};
    const Layout tensor = {2, 1, 1, 2, 1, "1f1b", true, NULL, 0};
    check_selective_golden();
    check_full_programs();
    check_memory("f32", &alone, DTYPE_F32);
    check_memory("bf16", &alone, DTYPE_BF16);
    check_memory("sequence-parallel over t=2", &tensor, DTYPE_F32);
    for (size_t v = 0; v < sizeof(VARIANTS) / sizeof(VARIANTS[0]); v += VARIANT_STEP) {
        for (size_t l = 0; l < sizeof(LAYOUTS) / sizeof(LAYOUTS[0]); l += LAYOUT_STEP) {
            if (LAYOUTS[l].t <= VARIANTS[v].most_t) check_layout(&VARIANTS[v], &LAYOUTS[l]);
        }
    }
    check_end();
    return check_report();
}
