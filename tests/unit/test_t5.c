/* Encoders with decoders (models/t5.lua), and towers that see images: every layout against one
 * rank, attention of its scores against attention as one op, and buckets of relative positions
 * against T5's published ones.
 *
 * Would catch: a stage that lacks what the encoder gave or its gradient, keys of another sequence's
 * length, a bias at a rank's own position instead of the sequence's, a table whose gradient lacks a
 * stage's, a rank's or a block's share, later keys that are seen, padding that is attended to.
 *
 * test_parity has gradients in float64 by PyTorch, test_hf published forms of weights.
 */
#include "ir/ops/relative.h"
#include "tests/unit/train_compare.h"

enum { BATCH = 8, STEPS = 3, MAX_SETTINGS = 24 };
static const double RATE = 2e-3;

typedef struct Tried {
    const char *name, *path;
    DType precision;
    ModelSetting settings[MAX_SETTINGS];
} Tried;

/* clang-format off */
#define SMALL                                                                                      \
    {"layers", "3"}, {"model", "32"}, {"heads", "4"}, {"head", "8"}, {"ffn", "48"},                \
    {"source", "24"}, {"seq", "16"}, {"vocab", "64"}, {"buckets", "8"}, {"distance", "12"},        \
    {"optimizer.eps", "1e-6"}
#define SEES                                                                                       \
    {"layers", "3"}, {"vision_layers", "3"}, {"model", "32"}, {"heads", "4"}, {"kv_heads", "4"},   \
    {"ffn", "48"}, {"vision", "24"}, {"vision_heads", "4"}, {"vision_ffn", "40"}, {"seq", "16"},   \
    {"vocab", "64"}, {"image_token", "3"}, {"optimizer.eps", "1e-6"}
static const Tried TRIED[] = {
    {"T5", "models/t5.lua", DTYPE_F32, {SMALL, {"dropout", "0.1"}}},
    {"T5 1.1, another decoder", "models/t5.lua", DTYPE_F32,
     {SMALL, {"tied", "false"}, {"act", "gated_gelu"}, {"decoder_layers", "1"}}},
    {"two images, squares of patches", "models/llava.lua", DTYPE_F32,
     {SEES, {"images", "2"}, {"patches", "32"}, {"dropout", "0.1"}, {"vision_act", "quick_gelu"},
      {"connector", "shuffle_mlp"}, {"qkv_bias", "true"}}},
    {"an image, its patches and a class, some frozen", "models/llava.lua", DTYPE_F32,
     {SEES, {"vision_class", "true"}, {"vision_pre_norm", "true"}, {"vision_post_norm", "false"},
      {"connector", "mlp"}, {"vision_patch_bias", "false"}, {"pixel_std", "0.5,0.4,0.3"},
      {"vision_layer_scale", "true"}, {"vision_qk_norm", "true"}, {"vision_norm", "rmsnorm"},
      {"vision_qkv_bias", "false"},
      {"freeze", "*.mlp.*,vision.patch.w"}}},
};
static const Tried COMPOSED[] = {
    {"causal", "tests/models/composed.lua", DTYPE_F32, {{"causal", "true"}}},
    {"both ways", "tests/models/composed.lua", DTYPE_F32, {{"causal", "false"}}},
};
/* clang-format on */

static const Layout ALONE = {1, 1, 1, BATCH, 1, "1f1b", false, NULL, 0};
static const int UNEVEN[] = {3, 1};

static const struct {
    Layout layout; /* t, d, p, micro-batch, chunks, schedule, sequence parallel, split */
    int c, zero;
    Recompute recompute;
} LAYOUTS[] = {
    {{2, 1, 1, 4, 1, "1f1b", true, NULL, 0}, 1, 0, RECOMPUTE_NONE},
    {{4, 1, 1, 8, 1, "1f1b", false, NULL, 0}, 1, 0, RECOMPUTE_FULL},
    {{1, 2, 1, 2, 1, "1f1b", false, NULL, 0}, 1, 2, RECOMPUTE_SELECTIVE},
    {{1, 1, 4, 2, 1, "1f1b", false, NULL, 0}, 1, 0, RECOMPUTE_NONE},
    {{1, 1, 2, 1, 2, "interleaved", false, NULL, 0}, 1, 0, RECOMPUTE_FULL},
    {{1, 1, 2, 2, 1, "zb-h1", false, NULL, 0}, 1, 0, RECOMPUTE_SELECTIVE},
    {{1, 2, 2, 2, 1, "gpipe", false, UNEVEN, 2}, 1, 1, RECOMPUTE_NONE},
    {{2, 2, 2, 1, 1, "1f1b", true, NULL, 0}, 1, 3, RECOMPUTE_FULL},
    {{1, 1, 1, 4, 1, "1f1b", false, NULL, 0}, 2, 0, RECOMPUTE_NONE},
    {{2, 1, 2, 2, 1, "1f1b", true, NULL, 0}, 2, 1, RECOMPUTE_NONE},
};
enum { N_LAYOUTS = sizeof(LAYOUTS) / sizeof(LAYOUTS[0]) };
#ifdef __SANITIZE_ADDRESS__
enum { EACH = 3 };
#else
enum { EACH = 1 };
#endif

static int count_settings(const Tried *of) {
    int n = 0;
    while (n < MAX_SETTINGS && of->settings[n].key) n++;
    return n;
}

static bool start(Run *run, const Tried *of, const Layout *layout) {
    run_precision = of->precision;
    bool done = run_plan(run, of->path, of->settings, count_settings(of), layout, BATCH, true) &&
                run_start(run);
    run_precision = DTYPE_F32;
    return done;
}

static void check_layout(const Tried *of, int l, Run *one) {
    char name[160];
    Run run;
    /* Of four blocks the split is no split of six. */
    Layout layout = LAYOUTS[l].layout;
    if (layout.split && one->model->n_blocks != 4) layout.split = NULL;
    run_zero = LAYOUTS[l].zero;
    run_context = LAYOUTS[l].c;
    run_recompute = LAYOUTS[l].recompute;
    check_begin(layout_name(of->name, &layout, name, sizeof(name)));
    bool done = start(&run, of, &layout) && run_steps_keeping(&run, STEPS, RATE);
    CHECK(done, "%s", diag_text(run.diag));
    if (done) compare_runs(&run, one, STEPS);
    run_zero = 0;
    run_context = 1;
    run_recompute = RECOMPUTE_NONE;
    run_close(&run);
    check_end();
}

static void check_layouts(const Tried *of, int each) {
    Run one;
    check_begin(of->name);
    bool done = start(&one, of, &ALONE) && run_steps_keeping(&one, STEPS, RATE);
    CHECK(done, "%s", diag_text(one.diag));
    check_end();
    for (int l = 0; done && l < N_LAYOUTS; l += each) check_layout(of, l, &one);
    run_close(&one);
}

/* In 16 bits scores stay f32: every layout plans, and a step is near that in f32. */
static void check_low(const Tried *of) {
    Tried low = *of;
    low.settings[count_settings(&low) - 1] = (ModelSetting){0};
    Run exact, run;
    check_begin("bf16");
    bool done = start(&exact, &low, &ALONE) && run_steps(&exact, 1, RATE);
    low.precision = DTYPE_BF16;
    done = start(&run, &low, &LAYOUTS[0].layout) && run_steps(&run, 1, RATE) && done;
    CHECK(done, "%s%s", diag_text(exact.diag), diag_text(run.diag));
    double error = done ? fabs(run.losses[0] / exact.losses[0] - 1) : 0;
    CHECK(error < 0.01, "the loss is %g of itself away from f32's", error);
    for (int n = 0; done && n < run.plan->programs[0].graph->n_nodes; n++) {
        const Node *node = run.plan->programs[0].graph->nodes[n];
        bool scores = node->op == OP_RELATIVE_BIAS ||
                      (node->op == OP_LOGSUMEXP && value_type(node->inputs[0])->rank == 4);
        CHECK(!scores || value_type(node->inputs[0])->dtype == DTYPE_F32, "scores in 16 bits");
    }
    run_close(&exact);
    run_close(&run);
    check_end();
}

/* --- one op against its parts --- */

static void check_composed(const Tried *of) {
    Tried composed = *of;
    Run whole, parts;
    composed.settings[count_settings(of)] = (ModelSetting){"composed", "true"};
    check_begin(of->name);
    bool done = start(&whole, of, &ALONE) && run_steps_keeping(&whole, 1, RATE);
    done = start(&parts, &composed, &ALONE) && run_steps_keeping(&parts, 1, RATE) && done;
    CHECK(done, "%s%s", diag_text(whole.diag), diag_text(parts.diag));
    if (done) compare_losses(&parts, &whole, 1);
    int n_compared = 0;
    for (int i = 0; done && i < parts.n_params; i++) {
        int k = 0;
        while (k < whole.n_params && strcmp(whole.names[k], parts.names[i]) != 0) k++;
        if (k == whole.n_params) continue; /* the tables, which are zero */
        int64_t n = type_elements(&parts.types[i]);
        double error = relative_distance(parts.gradients[i], whole.gradients[k], n);
        CHECK(error < 1e-5, "gradient of '%s' differs by %.3g of its norm", parts.names[i], error);
        n_compared++;
    }
    CHECK(!done || n_compared == whole.n_params, "%d compared of %d", n_compared, whole.n_params);
    run_close(&whole);
    run_close(&parts);
    check_end();
}

/* --- buckets --- */

/* What transformers' T5Attention._relative_position_bucket gives for key - query from -130 on, in
 * runs: 32 buckets, distance 128. */
typedef struct BucketRun {
    int first, bucket;
} BucketRun;

static int bucket_of(const RelativeBuckets *buckets, int count, int64_t ahead) {
    int found = -1;
    for (int b = 0; b < count; b++) {
        int64_t first, last;
        if (!relative_range(buckets, b, &first, &last) || ahead < first || ahead > last) continue;
        if (found >= 0) return -2; /* in two of them */
        found = b;
    }
    return found;
}

static void check_buckets(const char *name, bool causal, const BucketRun *runs, int n_runs) {
    Attr attrs[2] = {attr_int(ATTR_causal, causal), attr_int(ATTR_distance, 128)};
    Node node = {.op = OP_RELATIVE_BIAS, .attrs = attrs, .n_attrs = 2};
    RelativeBuckets buckets = relative_buckets(&node, 32);
    check_begin(name);
    for (int r = 0; r < n_runs; r++) {
        int end = r + 1 < n_runs ? runs[r + 1].first : runs[r].first + 40;
        if (causal && end > 1) end = 1;
        for (int ahead = runs[r].first; ahead < end; ahead++) {
            int bucket = bucket_of(&buckets, 32, ahead);
            CHECK(bucket == runs[r].bucket, "%d is in bucket %d, published %d", ahead, bucket,
                  runs[r].bucket);
        }
    }
    check_end();
}

static const BucketRun BOTH_WAYS[] = {
    {-160, 15}, {-90, 14}, {-63, 13}, {-45, 12}, {-31, 11}, {-22, 10}, {-15, 9}, {-11, 8},
    {-7, 7},    {-6, 6},   {-5, 5},   {-4, 4},   {-3, 3},   {-2, 2},   {-1, 1},  {0, 0},
    {1, 17},    {2, 18},   {3, 19},   {4, 20},   {5, 21},   {6, 22},   {7, 23},  {8, 24},
    {12, 25},   {16, 26},  {23, 27},  {32, 28},  {46, 29},  {64, 30},  {91, 31},
};
static const BucketRun PAST[] = {
    {-160, 31}, {-112, 30}, {-98, 29}, {-86, 28}, {-76, 27}, {-66, 26}, {-58, 25}, {-51, 24},
    {-45, 23},  {-39, 22},  {-34, 21}, {-30, 20}, {-26, 19}, {-23, 18}, {-20, 17}, {-18, 16},
    {-15, 15},  {-14, 14},  {-13, 13}, {-12, 12}, {-11, 11}, {-10, 10}, {-9, 9},   {-8, 8},
    {-7, 7},    {-6, 6},    {-5, 5},   {-4, 4},   {-3, 3},   {-2, 2},   {-1, 1},   {0, 0},
};

int main(void) {
    for (size_t i = 0; i < sizeof(TRIED) / sizeof(TRIED[0]); i++)
        check_layouts(&TRIED[i], i < 2 ? EACH : i);
    check_low(&TRIED[0]);
    check_low(&TRIED[2]);
    for (size_t i = 0; i < sizeof(COMPOSED) / sizeof(COMPOSED[0]); i++) {
        check_composed(&COMPOSED[i]);
    }
    check_buckets("buckets on both sides", false, BOTH_WAYS,
                  sizeof(BOTH_WAYS) / sizeof(BOTH_WAYS[0]));
    check_buckets("buckets of the past", true, PAST, sizeof(PAST) / sizeof(PAST[0]));
    compare_print_worst();
    return check_report();
}
