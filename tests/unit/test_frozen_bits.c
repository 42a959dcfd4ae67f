/* Frozen weights in blocks of 4 and 8 bits: number by number, and in training: every layout against
 * one rank, what a file and a checkpoint make of them, the loss of a trained model, and plans that
 * cannot be. And weights that train as they will be quantized (--qat): every copy, on every layout,
 * against its parameter rounded as a whole.
 *
 * Would catch: a number of the table that is another, codes that are not the nearest, a scale or a
 * code that depends on the layout, a checkpoint after which a run goes on otherwise, blocks cut
 * between ranks, weights that are said to be small and are not. test_ops compares the kernel with
 * float64, test_cuda_layers that of CUDA.
 */
#include "ir/blocks.h"
#include "runtime/cpu/blocks.h"
#include "runtime/cpu/round_blocks.h"
#include "runtime/engine_internal.h"
#include "tests/unit/train_compare.h"

#include <unistd.h>

enum { BATCH = 8, STEPS = 2, MAX_SETTINGS = 12, N = WEIGHT_BLOCK };
static const double RATE = 5e-3;
static const DType KINDS[] = {DTYPE_NF4, DTYPE_INT8};

/* --- numbers --- */

/* bitsandbytes 0.43, functional.py: get_4bit_type("nf4"), to the digits that it prints. */
static const double PUBLISHED[16] = {
    -1.0,      -0.6961928, -0.5250731, -0.3949175, -0.2844414, -0.1847734, -0.0910500, 0.0,
    0.0795803, 0.1609302,  0.2461123,  0.3379152,  0.4407098,  0.5626170,  0.7229568,  1.0};

static void check_table(void) {
    uint8_t block[NF4_BLOCK_BYTES] = {0};
    const uint16_t one = 0x3f80;
    float x[N];
    check_begin("the 16 numbers are those published, two codes a byte");
    memcpy(block + N / 2, &one, sizeof(one));
    for (int i = 0; i < 16; i++) block[i / 2] |= (uint8_t)(i << 4 * (i % 2));
    weights_load(DTYPE_NF4, block, 0, x, N);
    for (int i = 0; i < 16; i++) {
        CHECK(fabs((double)x[i] - PUBLISHED[i]) < 1e-7, "number %d is %.8f", i, (double)x[i]);
    }
    check_end();
}

/* What is kept of `x` is no farther from it than any other code of its block's scale. */
static void check_nearest(DType kind, const float *x, const float *kept, float scale) {
    for (int i = 0; i < N; i++) {
        double away = fabs((double)x[i] - (double)kept[i]), least = INFINITY;
        for (int k = 0; k < (kind == DTYPE_NF4 ? 16 : 255); k++) {
            double number = kind == DTYPE_NF4 ? PUBLISHED[k] : k - 127;
            least = fmin(least, fabs((double)x[i] - number * (double)scale));
        }
        CHECK(away <= least + 1e-6 * (double)scale, "%g is kept as %g", (double)x[i],
              (double)kept[i]);
    }
}

static void check_numbers(DType kind) {
    float x[N], kept[N], again[N];
    uint8_t block[INT8_BLOCK_BYTES], same[INT8_BLOCK_BYTES];
    const size_t bytes = (size_t)dtype_size(kind, N);
    char name[100];
    snprintf(name, sizeof(name), "%s: the nearest code; kept again, the same bits",
             dtype_name(kind));
    check_begin(name);
    for (int try = 0; try < 200; try++) {
        for (int i = 0; i < N; i++) {
            x[i] = (float)(sin(i * 12.9898 + try * 78.233) * ldexp(1, try % 40 - 30));
        }
        weights_store(kind, x, block, N);
        weights_load(kind, block, 0, kept, N);
        uint32_t bits = (uint32_t)block[bytes - 2] << 16 | (uint32_t)block[bytes - 1] << 24;
        float scale;
        memcpy(&scale, &bits, sizeof(scale));
        check_nearest(kind, x, kept, scale);
        weights_store(kind, kept, same, N);
        CHECK(memcmp(block, same, bytes) == 0, "another block");
    }
    check_begin("zeros stay zero, what is not finite is not-a-number");
    memset(x, 0, sizeof(x));
    weights_store(kind, x, block, N);
    weights_load(kind, block, 0, kept, N);
    CHECK(kept[0] == 0 && kept[N - 1] == 0, "%g", (double)kept[0]);
    x[7] = INFINITY;
    weights_store(kind, x, block, N);
    weights_load(kind, block, 0, again, N);
    CHECK(isnan(again[0]) && isnan(again[7]), "%g", (double)again[0]);
    check_end();
}

/* --- layouts --- */

typedef struct Tried {
    const char *name, *path;
    ModelSetting settings[MAX_SETTINGS];
} Tried;

#define SMALL                                                                                      \
    {"layers", "2"}, {"model", "64"}, {"heads", "4"}, {"kv_heads", "4"}, {"head", "32"},           \
        {"seq", "16"}, {"vocab", "64"}, {                                                          \
        "ffn", "128"                                                                               \
    }
static const Tried BASE = {"base", "models/llama.lua", {SMALL}};
static const Tried TUNED = {"adapters", "models/llama.lua", {SMALL, {"lora", "3"}}};
static const Tried BESIDE = {
    "adapters of what trains", "models/llama.lua", {SMALL, {"lora", "3"}, {"freeze", "!*"}}};
static const Tried EXPERTS = {"adapters in a mixture",
                              "models/moe.lua",
                              {SMALL,
                               {"lora", "2"},
                               {"lora_targets", "q,k,v,o,experts"},
                               {"balance", "0"},
                               {"optimizer.eps", "1e-6"}}};

/* Two blocks, each passed twice: frozen weights of several blocks, and stages. */
static const Tried LOOPED = {
    "looped blocks",
    "tests/models/ideas.lua",
    {{"layers", "2"}, {"loops", "2"}, {"freeze", "blocks.*.w?, blocks.*.mlp.w*"}}};

static const Layout ALONE = {1, 1, 1, BATCH, 1, "1f1b", false, NULL, 0};

typedef struct Case {
    Layout layout;
    int c, e, zero;
    Recompute recompute;
} Case;

static const Case CASES[] = {
    {{2, 1, 1, 4, 1, "1f1b", true, NULL, 0}, 1, 1, 0, RECOMPUTE_NONE},
    {{1, 2, 1, 2, 1, "1f1b", false, NULL, 0}, 2, 1, 3, RECOMPUTE_FULL},
    {{1, 1, 2, 2, 1, "zb-h1", false, NULL, 0}, 1, 1, 0, RECOMPUTE_SELECTIVE},
    {{2, 2, 1, 2, 1, "1f1b", false, NULL, 0}, 1, 1, 3, RECOMPUTE_NONE},
};
static const Case EXPERT_CASES[] = {
    {{1, 1, 1, 2, 1, "1f1b", false, NULL, 0}, 1, 2, 0, RECOMPUTE_NONE},
    {{2, 2, 1, 2, 1, "1f1b", false, NULL, 0}, 1, 1, 3, RECOMPUTE_FULL},
};

static const Case ROUND_CASES[] = {
    {{2, 1, 1, 4, 1, "1f1b", true, NULL, 0}, 1, 1, 0, RECOMPUTE_NONE},
    {{1, 2, 2, 2, 1, "1f1b", false, NULL, 0}, 1, 1, 2, RECOMPUTE_FULL},
    {{2, 2, 1, 2, 1, "1f1b", false, NULL, 0}, 1, 1, 3, RECOMPUTE_NONE},
};

static bool start(Run *run, const Tried *of, const Layout *layout) {
    int n = 0;
    while (n < MAX_SETTINGS && of->settings[n].key) n++;
    return run_plan(run, of->path, of->settings, n, layout, BATCH, true) && run_start(run);
}

/* The same bits, of what is kept in blocks. */
static void check_kept(Run *run, Run *one) {
    int n_kept = 0;
    for (int i = 0; i < one->n_params; i++) {
        int64_t n = type_elements(&one->types[i]);
        float *ours = ARENA_ARRAY(run->arena, float, n);
        if (!dtype_is_blocked(one->types[i].dtype)) continue;
        CHECK(engine_read_parameter(run->engine, one->names[i], ours), "no '%s'", one->names[i]);
        bool same = memcmp(ours, run_weight(one, i), (size_t)n * sizeof(float)) == 0;
        CHECK(same, "'%s' has other codes", one->names[i]);
        n_kept++;
    }
    CHECK(n_kept >= 8, "%d weights in blocks", n_kept);
}

static void check_layout(const Tried *of, const Case *c, Run *one) {
    char name[160];
    Run run;
    run_zero = c->zero;
    run_context = c->c;
    run_experts = c->e;
    run_recompute = c->recompute;
    check_begin(layout_name(of->name, &c->layout, name, sizeof(name)));
    bool done = start(&run, of, &c->layout) && run_steps_keeping(&run, STEPS, RATE);
    run_zero = 0;
    run_context = run_experts = 1;
    run_recompute = RECOMPUTE_NONE;
    CHECK(done, "%s", diag_text(run.diag));
    if (done) {
        compare_runs(&run, one, STEPS);
        check_kept(&run, one);
    }
    run_close(&run);
    check_end();
}

/* --- weights that train as they will be quantized --- */

/* After updates, and after a file: each copy is its parameter, rounded to blocks as a whole. */
static void check_rounded(Run *run, bool blocks) {
    int n_kept = 0;
    for (int r = 0; r < run->engine->n_ranks; r++) {
        const RankContext *rank = &run->engine->ranks[r];
        const Graph *graph = rank->program->graph;
        for (int n = 0; n < graph->n_nodes; n++) {
            Node *copy = graph->nodes[n];
            if (!node_is_copy(copy) || !node_is_rounded(copy)) continue;
            const Type *type = &copy->types[0];
            const int64_t count = type_elements(type);
            float *now = ARENA_ARRAY(run->arena, float, count),
                  *wanted = ARENA_ARRAY(run->arena, float, count);
            const RoundForm form = round_form_find(node_string(copy, ATTR_blocks));
            const RoundLayout layout = round_layout(copy, type);
            void *low = ARENA_ARRAY(run->arena, float, count);
            const char *name = engine_leaf_name(rank, copy, run->arena);
            engine_assemble(run->engine, rank->coord.at[MESH_P], node_value(copy, 0), now);
            CHECK(engine_read_parameter(run->engine, name, wanted), "no '%s'", name);
            round_blocks(form, &layout, wanted, type->dtype, low, count);
            weights_load(type->dtype, low, 0, wanted, count);
            CHECK(memcmp(now, wanted, (size_t)count * sizeof(float)) == 0,
                  "rank %d: '%s' is not rounded to %s", r, name, ROUND_FORM_NAMES[form]);
            n_kept += form != ROUND_F16;
        }
    }
    CHECK(n_kept >= 8 || !blocks, "%d copies in blocks", n_kept);
}

static void check_trained_as(const char *type, DType precision, const Case *cases, int n_cases) {
    Run one;
    run_qat = gguf_type_named(type);
    run_precision = precision;
    check_begin(type);
    bool done = start(&one, &BASE, &ALONE) && run_steps_keeping(&one, STEPS, RATE);
    CHECK(done, "%s", diag_text(one.diag));
    if (done) check_rounded(&one, true);
    for (int i = 0; done && i < n_cases; i++) {
        char name[160];
        Run run;
        run_zero = cases[i].zero;
        run_recompute = cases[i].recompute;
        check_begin(layout_name(type, &cases[i].layout, name, sizeof(name)));
        bool fine = start(&run, &BASE, &cases[i].layout) && run_steps_keeping(&run, STEPS, RATE);
        run_zero = 0;
        run_recompute = RECOMPUTE_NONE;
        CHECK(fine, "%s", diag_text(run.diag));
        if (fine) check_rounded(&run, true);
        if (fine && precision == DTYPE_F32) compare_runs(&run, &one, STEPS);
        run_close(&run);
    }
    run_close(&one);
    run_qat = NULL;
    run_precision = DTYPE_F32;
    check_end();
}

/* Saved are masters: with copies made of them again a run goes on with the same bits. */
static void check_masters(const char *path) {
    Run first, again, bare;
    TrainingPlace place = {.step = 1, .samples = BATCH};
    check_begin("checkpoints keep weights as they were, not as they are rounded");
    run_qat = gguf_type_named("q4_0");
    bool done = start(&first, &BASE, &ALONE), both = start(&again, &BASE, &ALONE);
    run_qat = NULL;
    done &= both & start(&bare, &BASE, &ALONE);
    done = done && run_steps(&first, 1, RATE) &&
           engine_save_state(first.engine, path, &place, first.diag) &&
           engine_load_state(again.engine, path, &place, again.diag) &&
           run_steps_from(&first, 1, 1, RATE) && run_steps_from(&again, 1, 1, RATE) &&
           run_steps(&bare, 1, RATE);
    CHECK(done, "%s%s%s", diag_text(first.diag), diag_text(again.diag), diag_text(bare.diag));
    if (done) {
        check_rounded(&again, true);
        CHECK(memcmp(&first.losses[1], &again.losses[1], sizeof(double)) == 0,
              "loss %.17g, then %.17g", first.losses[1], again.losses[1]);
        CHECK(fabs(first.losses[0] - bare.losses[0]) > 1e-6, "nothing is rounded");
    }
    run_close(&first);
    run_close(&again);
    run_close(&bare);
    check_end();
}

/* Of a scale in f16 too large a weight makes no number: the weight is named, and why. */
static void check_too_large(void) {
    Run run;
    check_begin("a weight that blocks cannot hold is named");
    run_qat = gguf_type_named("q4_0");
    bool done = start(&run, &BASE, &ALONE);
    run_qat = NULL;
    CHECK(done, "%s", diag_text(run.diag));
    for (int i = 0; done && i < run.n_params; i++) {
        if (strcmp(run.names[i], "blocks.1.attn.wq") != 0) continue;
        float *weight = run_weight(&run, i);
        weight[3] = 1e6F;
        engine_write_parameter(run.engine, run.names[i], weight);
    }
    CHECK(done && !run_steps(&run, 1, RATE), "the step was taken");
    CHECK(strstr(diag_text(run.diag), "parameter 'blocks.1.attn.wq' has numbers that q4_0 cannot"),
          "says: %s", diag_text(run.diag));
    run_close(&run);
    check_end();
}

static void check_layouts(const Tried *of, int bits, const Case *cases, int n_cases) {
    Run one;
    run_frozen_bits = bits;
    check_begin(of->name);
    bool done = start(&one, of, &ALONE) && run_steps_keeping(&one, STEPS, RATE);
    CHECK(done, "%s", diag_text(one.diag));
    check_end();
    for (int i = 0; done && i < n_cases; i++) check_layout(of, &cases[i], &one);
    run_close(&one);
    run_frozen_bits = 0;
}

/* --- files --- */

static char scratch[] = "/tmp/test_frozen_bits-XXXXXX";

static double first_loss(const char *base, int bits, DType precision, Run *run) {
    run_frozen_bits = bits;
    run_precision = precision;
    bool done = start(run, &TUNED, &ALONE) && engine_load(run->engine, base, run->diag) &&
                run_steps(run, 1, RATE);
    run_frozen_bits = 0;
    run_precision = DTYPE_F32;
    CHECK(done, "%s", diag_text(run->diag));
    return done ? run->losses[0] : NAN;
}

/* Of what the file has, the nearest; of what else there is, the file's. */
static void check_loaded(const Run *run, Run *base, DType kind) {
    for (int i = 0; i < base->n_params; i++) {
        const float *was = run_weight(base, i);
        int64_t n = type_elements(&base->types[i]);
        if (!strstr(base->names[i], ".w")) continue;
        float *now = ARENA_ARRAY(base->arena, float, n),
              *wanted = ARENA_ARRAY(base->arena, float, n);
        void *block = arena_alloc(base->arena, (size_t)dtype_size(kind, n));
        CHECK(engine_read_parameter(run->engine, base->names[i], now), "no '%s'", base->names[i]);
        weights_store(kind, was, block, n);
        weights_load(kind, block, 0, wanted, n);
        CHECK(strstr(base->names[i], "wte") || memcmp(now, wanted, (size_t)n * sizeof(float)) == 0,
              "'%s' is not the file's, in %s", base->names[i], dtype_name(kind));
    }
}

static void check_trained_model(const char *base_path) {
    static const struct {
        int bits;
        DType precision;
        double most; /* of the loss, relative */
    } KEPT[] = {{8, DTYPE_F32, 1e-3}, {4, DTYPE_F32, 0.02}, {4, DTYPE_BF16, 0.02}};
    Run base, exact;
    check_begin("a trained model loses little: 0.1 % with 8 bits, 2 % with 4");
    CHECK(start(&base, &BASE, &ALONE) && run_steps(&base, 30, RATE) &&
              engine_save(base.engine, base_path, base.diag),
          "%s", diag_text(base.diag));
    double loss = first_loss(base_path, 0, DTYPE_F32, &exact);
    for (size_t i = 0; i < sizeof(KEPT) / sizeof(KEPT[0]); i++) {
        Run run;
        double less = first_loss(base_path, KEPT[i].bits, KEPT[i].precision, &run);
        double away = fabs(less - loss) / loss;
        CHECK(away > 0 && away < KEPT[i].most, "%d bits: %.6f, as it was %.6f", KEPT[i].bits, less,
              loss);
        if (KEPT[i].precision == DTYPE_F32) check_loaded(&run, &base, KINDS[KEPT[i].bits / 8]);
        run_close(&run);
    }
    run_close(&base);
    run_close(&exact);
    check_end();
}

static void check_resumed(const char *path) {
    Run first, again, divided;
    TrainingPlace place = {.step = 1, .samples = BATCH};
    check_begin("a run goes on from a checkpoint with the same bits, and codes on other ranks");
    run_frozen_bits = 4;
    bool done = start(&first, &TUNED, &ALONE), both = start(&again, &TUNED, &ALONE);
    done &= both & start(&divided, &TUNED, &CASES[0].layout);
    run_frozen_bits = 0;
    done = done && run_steps(&first, 1, RATE) &&
           engine_save_state(first.engine, path, &place, first.diag) &&
           engine_load_state(again.engine, path, &place, again.diag) &&
           engine_load_state(divided.engine, path, &place, divided.diag) &&
           run_steps_from(&first, 1, 1, RATE) && run_steps_from(&again, 1, 1, RATE);
    CHECK(done, "%s%s%s", diag_text(first.diag), diag_text(again.diag), diag_text(divided.diag));
    if (done) {
        check_kept(&again, &first);
        check_kept(&divided, &first);
        CHECK(memcmp(&first.losses[1], &again.losses[1], sizeof(double)) == 0 &&
                  memcmp(&first.norms[1], &again.norms[1], sizeof(double)) == 0,
              "loss %.17g, then %.17g", first.losses[1], again.losses[1]);
    }
    run_close(&first);
    run_close(&again);
    run_close(&divided);
    check_end();
}

/* --- what cannot be --- */

static void expect_no_plan(const Tried *of, const Layout *layout, const char *why) {
    Run run;
    int n = 0;
    while (n < MAX_SETTINGS && of->settings[n].key) n++;
    run_frozen_bits = 4;
    CHECK(!run_plan(&run, of->path, of->settings, n, layout, BATCH, false), "planned");
    run_frozen_bits = 0;
    CHECK(strstr(diag_text(run.diag), why), "says: %s", diag_text(run.diag));
    run_close(&run);
}

static const char *replaced(Arena *arena, const char *text, const char *from, const char *to) {
    const char *at = strstr(text, from);
    CHECK(at, "no '%s'", from);
    if (!at) return text;
    return arena_printf(arena, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
}

/* A plan's text with something else in it, and what is said of it. */
typedef struct Broken {
    const char *from, *to, *why;
} Broken;

static void expect_broken(const Run *run, const Broken *broken, size_t n) {
    StrBuf text = strbuf_create();
    plan_print(&text, run->plan);
    for (size_t i = 0; i < n; i++) {
        Diag *diag = diag_create();
        const char *bad = replaced(run->arena, text.text, broken[i].from, broken[i].to);
        Plan *plan = plan_parse(run->arena, "plan", bad, diag);
        CHECK(!plan || !verify_plan(plan, diag), "%s is taken", broken[i].to);
        CHECK(strstr(diag_text(diag), broken[i].why), "%s says: %s", broken[i].to, diag_text(diag));
        diag_destroy(diag);
    }
    strbuf_destroy(&text);
}

/* Plans of weights in blocks that a text has changed, and layouts that would cut them. */
static void check_rounded_refusals(void) {
    static const Broken BROKEN[] = {
        {"blocks=\"q4_0\"", "blocks=\"q9_0\"", "blocks are q4_0, q8_0 or f16"},
        {", along=[model]", "", "blocks without 'along'"},
        {"along=[model]", "along=[seq]", "'along' names an axis that is not there"},
        {"along=[model]", "along=[model, model]", "'along' names an axis twice"},
        {"blocks=\"q4_0\"", "blocks=\"q8_0\"", "has other blocks than"},
    };
    const Layout two = {2, 1, 1, BATCH, 1, "1f1b", false, NULL, 0};
    const ModelSetting narrow[] = {SMALL, {"ffn", "96"}};
    Run run;
    check_begin("what would cut blocks that weights will be quantized to is refused");
    run_qat = gguf_type_named("q4_0");
    CHECK(!run_plan(&run, BASE.path, narrow, 9, &two, BATCH, false), "planned");
    CHECK(strstr(diag_text(run.diag), "t=2 would cut the blocks of 32 numbers of --qat"),
          "says: %s", diag_text(run.diag));
    run_close(&run);
    CHECK(!start(&run, &TUNED, &ALONE), "planned");
    CHECK(strstr(diag_text(run.diag), "no matrix of the model trains"), "says: %s",
          diag_text(run.diag));
    run_close(&run);
    CHECK(!start(&run, &BESIDE, &ALONE), "planned");
    CHECK(strstr(diag_text(run.diag), "attn.wq' trains and has an adapter"), "says: %s",
          diag_text(run.diag));
    run_close(&run);
    CHECK(start(&run, &BASE, &ALONE), "%s", diag_text(run.diag));
    run_qat = NULL;
    expect_broken(&run, BROKEN, sizeof(BROKEN) / sizeof(BROKEN[0]));
    run_close(&run);
    check_end();
}

static void check_refusals(void) {
    static const Broken BROKEN[] = {
        {"init=\"normal\"", "init=\"norm\"", "'init' is 'norm'; it must be normal, uniform"},
        {", frozen=1} : nf4[", "} : nf4[", "no frozen weight is kept in blocks"},
        {") {dtype=\"f32\"} : f32[model", ") {dtype=\"i32\"} : f32[model",
         "is not f32, bf16 or f16"},
    };
    const Layout four = {4, 1, 1, BATCH, 1, "1f1b", false, NULL, 0};
    check_begin("what would cut blocks, or keep nothing in them, is refused");
    expect_no_plan(&TUNED, &four,
                   "t=4 would cut blocks of 64 weights that share a scale; t=2 would");
    expect_no_plan(&BASE, &ALONE, "--frozen-bits 4: no block has a frozen weight");
    check_begin("so are plans whose text says what cannot be");
    Run run;
    run_frozen_bits = 4;
    CHECK(start(&run, &TUNED, &ALONE), "%s", diag_text(run.diag));
    run_frozen_bits = 0;
    expect_broken(&run, BROKEN, sizeof(BROKEN) / sizeof(BROKEN[0]));
    run_close(&run);
    check_end();
}

int main(void) {
    if (!mkdtemp(scratch)) return 2;
    Arena *arena = arena_create();
    const char *file = arena_printf(arena, "%s/file", scratch);
    check_table();
    for (int i = 0; i < 2; i++) check_numbers(KINDS[i]);
    check_layouts(&TUNED, 4, CASES, sizeof(CASES) / sizeof(CASES[0]));
    check_layouts(&TUNED, 8, CASES + 3, 1);
    check_layouts(&EXPERTS, 4, EXPERT_CASES, sizeof(EXPERT_CASES) / sizeof(EXPERT_CASES[0]));
    check_layouts(&LOOPED, 8, CASES + 1, 2);
    check_trained_model(file);
    check_resumed(file);
    check_refusals();
    check_trained_as("q4_0", DTYPE_F32, ROUND_CASES, sizeof(ROUND_CASES) / sizeof(ROUND_CASES[0]));
    check_trained_as("q8_0", DTYPE_BF16, ROUND_CASES + 1, 2);
    check_masters(file);
    check_too_large();
    check_rounded_refusals();
    unlink(file);
    rmdir(scratch);
    arena_destroy(arena);
    compare_print_worst();
    return check_report();
}
