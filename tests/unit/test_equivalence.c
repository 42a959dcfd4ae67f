/* Training does not depend on the layout: models under many meshes, schedules and options against
 * one rank. Catches a wrong or missing collective, a gradient scaled or counted twice, a mask or an
 * initial weight that knows its shard, a frame used too early, a block dropped.
 *
 * fp32; four steps. train_compare.h says what must agree and how closely. Every plan is made,
 * proved, printed, parsed, printed again, proved again, and run as parsed.
 */
#include "tests/unit/equivalence_layouts.h"
#include "tests/unit/train_compare.h"

enum { STEPS = 4, GLOBAL_BATCH = 16 };
static const double LEARNING_RATE = 2e-3;

typedef struct Variant {
    const char *name, *path;
    int most_t;                /* what its heads allow */
    ModelSetting settings[24]; /* up to the first without a key */
} Variant;

/* eps is above the rounding of a gradient (train_compare.h): with 1e-8 one bias of "gpt dropout" is
 * 1.5e-4 of its norm apart after five steps, though its gradients agree to 1e-6. */
/* clang-format off */
#define SIZES_OF(heads) {"optimizer.eps", "1e-6"}, {"model", "32"}, {"heads", heads}, {"seq", "16"}
#define SIZES SIZES_OF("4")
#define COMMON SIZES, {"layers", "5"}
#define EIGHT_HEADS SIZES_OF("8"), {"layers", "5"}
/* clang-format on */
static const Variant VARIANTS[] = {
    {"gpt", "models/gpt.lua", 4, {COMMON, {"vocab", "61"}, {"ffn", "64"}}},
    {"gpt dropout",
     "models/gpt.lua",
     4,
     {COMMON, {"vocab", "64"}, {"dropout", "0.1"}, {"attention_dropout", "0.2"}}},
    {"gpt untied rmsnorm",
     "models/gpt.lua",
     4,
     {COMMON, {"vocab", "50"}, {"tied", "false"}, {"norm", "rmsnorm"}, {"ffn", "70"}}},
    {"gpt sgd relu",
     "models/gpt.lua",
     4,
     {COMMON, {"vocab", "64"}, {"optimizer", "sgd"}, {"momentum", "0.9"}, {"act", "relu"}}},
    {"gpt lion",
     "models/gpt.lua",
     4,
     {COMMON, {"vocab", "64"}, {"optimizer", "lion"}, {"lr", "1e-4"}}},
    {"gpt muon, uneven ffn",
     "models/gpt.lua",
     4,
     {COMMON, {"vocab", "61"}, {"optimizer", "muon"}, {"ffn", "70"}, {"tied", "false"}}},
    {"llama muon, keys of a quarter",
     "models/llama.lua",
     4,
     {EIGHT_HEADS,
      {"vocab", "64"},
      {"kv_heads", "2"},
      {"head", "4"},
      {"ffn", "24"},
      {"optimizer", "muon"}}},
    {"llama gqa qk_norm biases",
     "models/llama.lua",
     4,
     {EIGHT_HEADS,
      {"vocab", "61"},
      {"kv_heads", "2"},
      {"ffn", "88"},
      {"qk_norm", "true"},
      {"qkv_bias", "true"},
      {"rotary_scaling", "llama3"},
      {"rotary_factor", "8"},
      {"rotary_context", "16"},
      {"rotary_base", "100"}}},
    {"gemma",
     "models/gemma.lua",
     4,
     {COMMON,
      {"vocab", "61"},
      {"kv_heads", "1"},
      {"ffn", "64"},
      {"attention_scale", "8"},
      {"softcap", "2"},
      {"logit_softcap", "3"},
      {"window", "5"}}},
    {"llama dropout",
     "models/llama.lua",
     4,
     {COMMON, {"vocab", "64"}, {"kv_heads", "4"}, {"dropout", "0.1"}, {"ffn", "88"}}},
    {"llama tied relu2 window",
     "models/llama.lua",
     4,
     {COMMON,
      {"window", "5"},
      {"vocab", "64"},
      {"kv_heads", "4"},
      {"tied", "true"},
      {"ffn", "64"},
      {"act", "relu2"}}},
    {"gpt lamb",
     "models/gpt.lua",
     4,
     {COMMON, {"vocab", "61"}, {"optimizer", "lamb"}, {"ffn", "70"}, {"lr", "1e-3"}}},
    {"gemma 3",
     "models/gemma.lua",
     2,
     {COMMON,
      {"vocab", "61"},
      {"kv_heads", "2"},
      {"ffn", "64"},
      {"softcap", "0"},
      {"logit_softcap", "0"},
      {"full_every", "3"},
      {"qk_norm", "true"},
      {"rotary_scaling", "linear"},
      {"rotary_local_base", "50"},
      {"window", "5"}}},
    {"llama norms after, no positions in each second layer, scaled",
     "models/llama.lua",
     2,
     {COMMON,
      {"vocab", "61"},
      {"kv_heads", "2"},
      {"ffn", "88"},
      {"norms", "after"},
      {"qk_norm", "true"},
      {"qk_norm_over", "all"},
      {"rotary_skip", "2"},
      {"residual_scale", "0.5"},
      {"embedding_scale", "3"},
      {"attention_scale", "0.2"},
      {"logit_divisor", "2"}}},
    {"neox",
     "models/neox.lua",
     4,
     {COMMON, {"vocab", "61"}, {"ffn", "70"}, {"rotary_share", "0.5"}, {"head_bias", "true"}}},
    {"hybrid, heads that t does not divide share queries and keys",
     "models/hybrid.lua",
     4,
     {COMMON,
      {"vocab", "61"},
      {"kv_heads", "4"},
      {"ffn", "64"},
      {"pattern", "MDA"},
      {"state_groups", "1"},
      {"state_heads", "7"},
      {"state_keys", "6"},
      {"state_values", "5"}}},
    {"hybrid, groups that t does not divide, a gate",
     "models/hybrid.lua",
     2,
     {COMMON,
      {"vocab", "64"},
      {"kv_heads", "4"},
      {"ffn", "64"},
      {"pattern", "MA"},
      {"state_groups", "3"},
      {"state_heads", "2"},
      {"state_keys", "6"},
      {"state_values", "5"},
      {"state_norm", "group"},
      {"attention_gate", "true"},
      {"norm_plus_one", "true"},
      {"tied", "true"}}},
    {"llama 4, one expert a token, a temperature that grows, dense layers between",
     "models/llama4.lua",
     2,
     {COMMON,
      {"vocab", "61"},
      {"kv_heads", "2"},
      {"ffn", "64"},
      {"experts", "4"},
      {"expert_ffn", "24"},
      {"pattern", "ED"},
      {"rotary_skip", "2"},
      {"temperature_every", "5"}}},
    {"attention beside a state space, a gate behind its norm, what Falcon-H1 multiplies",
     "models/hybrid.lua",
     4,
     {COMMON,
      {"vocab", "61"},
      {"kv_heads", "4"},
      {"ffn", "64"},
      {"pattern", "P"},
      {"state_groups", "1"},
      {"state_heads", "7"},
      {"state_keys", "6"},
      {"state_values", "5"},
      {"state_gate_last", "true"},
      {"state_scales", "1,2,0.5,1,1"},
      {"feed_scales", "2,0.5"},
      {"key_scale", "0.5"},
      {"attention_out", "0.7"}}},
    {"feed-forward layers by themselves, steps no less than the least",
     "models/hybrid.lua",
     4,
     {COMMON,
      {"vocab", "61"},
      {"kv_heads", "4"},
      {"ffn", "70"},
      {"pattern", "MFA"},
      {"feed", "none"},
      {"act", "relu2"},
      {"rotary", "false"},
      {"state_groups", "2"},
      {"state_heads", "4"},
      {"state_keys", "6"},
      {"state_values", "5"},
      {"state_floor", "0.01"}}},
    {"short convolutions, their channels divided",
     "models/hybrid.lua",
     4,
     {COMMON,
      {"vocab", "61"},
      {"kv_heads", "4"},
      {"ffn", "70"},
      {"pattern", "CA"},
      {"taps", "3"},
      {"qk_norm", "true"}}},
    {"kimi, heads that t does not divide",
     "models/kimi.lua",
     4,
     {COMMON,
      {"vocab", "61"},
      {"ffn", "70"},
      {"pattern", "KA"},
      {"experts", "4"},
      {"expert_ffn", "24"},
      {"shared_ffn", "16"},
      {"top_k", "2"},
      {"capacity", "0"},
      {"state_groups", "3"},
      {"state_keys", "6"},
      {"state_values", "5"}}},
    {"modernbert",
     "models/modernbert.lua",
     4,
     {COMMON,
      {"vocab", "61"},
      {"ffn", "70"},
      {"mask_token", "5"},
      {"window", "5"},
      {"norm_bias", "true"},
      {"rotary_local_base", "50"}}},
};
enum { N_VARIANTS = sizeof(VARIANTS) / sizeof(VARIANTS[0]), N_FEW = 9 };

/* Eight blocks, for more and deeper pipelines. */
static const Variant DEEP = {"gpt of 8 blocks",
                             "models/gpt.lua",
                             4,
                             {SIZES, {"layers", "8"}, {"vocab", "61"}, {"ffn", "64"}}};
static int count_settings(const Variant *variant) {
    int count = 0;
    while (variant->settings[count].key) count++;
    return count;
}

static bool plan(Run *run, const Variant *variant, const Layout *layout, bool text) {
    return run_plan(run, variant->path, variant->settings, count_settings(variant), layout,
                    GLOBAL_BATCH, text);
}

static bool train(Run *run) {
    return run_start(run) && run_steps_keeping(run, STEPS, LEARNING_RATE);
}

static void check_layout(const Variant *variant, const Layout *layout, Run *one) {
    char name[160];
    Run run;
    check_begin(layout_name(variant->name, layout, name, sizeof(name)));
    bool done = plan(&run, variant, layout, true) && train(&run);
    CHECK(done, "%s", diag_text(run.diag));
    if (done) {
        /* All but the few that are completed in scratch; shards use memory again, and so do Muon's
         * whole matrices. */
        bool reused = run_zero == ZERO_OPTIMIZER || run_zero == ZERO_GRADIENTS ||
                      (run_zero && strstr(variant->name, "muon"));
        int most = reused ? 0 : run.n_params;
        CHECK(run.n_gradients >= most - 2, "%d of %d gradients compared", run.n_gradients,
              run.n_params);
        compare_runs(&run, one, STEPS);
    }
    run_close(&run);
    check_end();
}

/* Every step-th layout. Where some are left out, each variant begins with another. */
static void check_variant(const Variant *variant, const Layout *layouts, int n_layouts, int step) {
    static int n_variants;
    int first = n_variants++ % step;
    const Layout alone = {1, 1, 1, GLOBAL_BATCH, 1, "1f1b", false, NULL, 0};
    Run one;
    bool done = plan(&one, variant, &alone, false) && train(&one);
    check_begin(variant->name);
    CHECK(done && one.n_gradients == one.n_params, "one rank: %s", diag_text(one.diag));
    check_end();
    for (int l = first; done && l < n_layouts; l += step) {
        if (layouts[l].t > variant->most_t) continue;
        check_layout(variant, &layouts[l], &one);
    }
    for (run_zero = 1; run_zero < N_ZERO_STAGES; run_zero++) {
        int n_zero = run_zero == ZERO_PARAMETERS ? N_ZERO_LAYOUTS : 5;
        for (int l = first; done && l < n_zero; l += step) {
            if (ZERO_LAYOUTS[l].t > variant->most_t) continue;
            check_layout(variant, &ZERO_LAYOUTS[l], &one);
        }
    }
    run_zero = 0;
    run_close(&one);
}

static void compare_bits(Run *first, Run *second) {
    for (int step = 0; step < STEPS; step++) {
        CHECK(first->losses[step] == second->losses[step], "loss of step %d", step + 1);
    }
    for (int i = 0; i < first->n_params; i++) {
        size_t bytes = (size_t)type_elements(&first->types[i]) * sizeof(float);
        CHECK(memcmp(run_weight(first, i), run_weight(second, i), bytes) == 0, "'%s' differs",
              first->names[i]);
    }
}

/* A plan as made, the same as read back, and that one again. */
static void check_repeats(const Variant *variant) {
    const Layout layout = {2, 1, 2, 2, 1, "1f1b", true, NULL, 0};
    Run made, parsed, again;
    bool done = plan(&made, variant, &layout, false) && train(&made);
    done &= plan(&parsed, variant, &layout, true) && train(&parsed);
    done &= plan(&again, variant, &layout, true) && train(&again);
    check_begin("the same plan run twice gives the same bits");
    CHECK(done, "%s%s", diag_text(parsed.diag), diag_text(again.diag));
    if (done) compare_bits(&parsed, &again);
    check_begin("a plan read back gives the bits of the plan that was written");
    CHECK(done, "%s", diag_text(made.diag));
    if (done) compare_bits(&made, &parsed);
    run_close(&made);
    run_close(&parsed);
    run_close(&again);
}

/* Kernels that divide their work. */
static void check_threads(const Variant *variant) {
    const Layout layout = {1, 1, 1, 4, 1, "1f1b", false, NULL, 0};
    Run one, three;
    bool done = plan(&one, variant, &layout, false) && train(&one);
    run_threads = 3;
    done &= plan(&three, variant, &layout, false) && train(&three);
    run_threads = 1;
    check_begin("one rank on three threads");
    CHECK(done, "%s%s", diag_text(one.diag), diag_text(three.diag));
    if (done) compare_runs(&three, &one, STEPS);
    check_end();
    run_close(&one);
    run_close(&three);
}

/* A sum of gradients that is scattered has the bits of one that all ranks get, an update of shards
 * those of an update of the whole, and a gathered weight its own. Only the norm adds up in another
 * order: without clipping nothing depends on it. Stage 2 adds over ranks before it adds over
 * micro-batches, as stage 3 does. Catches a shard updated twice or not at all, and stale copies. */
static void check_zero_bits(const Variant *variant, DType precision) {
    const Layout layout = {1, 4, 1, 2, 1, "1f1b", false, NULL, 0};
    char name[160];
    Variant loose = *variant;
    Run runs[N_ZERO_STAGES];
    loose.settings[count_settings(variant)] = (ModelSetting){"optimizer.max_norm", "0"};
    run_precision = precision;
    for (run_zero = 0; run_zero < N_ZERO_STAGES; run_zero++) {
        bool done = plan(&runs[run_zero], &loose, &layout, true) && train(&runs[run_zero]);
        int like = run_zero == ZERO_PARAMETERS ? ZERO_GRADIENTS : ZERO_NOTHING;
        snprintf(name, sizeof(name), "zero %d has the bits of zero %d: %s, %s", run_zero, like,
                 variant->name, dtype_name(precision));
        check_begin(name);
        CHECK(done, "%s", diag_text(runs[run_zero].diag));
        if (done && run_zero % 2) compare_bits(&runs[like], &runs[run_zero]);
        check_end();
    }
    run_zero = 0;
    run_precision = DTYPE_F32;
    for (int i = 0; i < N_ZERO_STAGES; i++) run_close(&runs[i]);
}

/* LAMB's norms and the sizes of Muon's directions add up in another order. */
static bool sums_over_shards(const Variant *variant) {
    return strstr(variant->name, "lamb") || strstr(variant->name, "muon");
}

typedef struct Refusal {
    const char *variant;
    Layout layout;
    const char *message;
} Refusal;

static const Refusal REFUSALS[] = {
    {"gemma 3",
     {4, 1, 1, 2, 1, "1f1b", false, NULL, 0},
     "axis 'kv_heads' is 2 and 'group' 2: divided over t=4, the last rank would have none of "
     "either; "
     "t=2 would do"},
    {"gpt",
     {3, 1, 1, 2, 1, "1f1b", false, NULL, 0},
     "axis 'kv_heads' is 4: divided over t=3, the last rank would have none; t=2 would do"},
    {"gpt",
     {1, 2, 1, 16, 1, "1f1b", false, NULL, 0},
     "global batch 16 is not a multiple of micro-batch 16 x d 2"},
    {"gpt",
     {1, 3, 1, 1, 1, "1f1b", false, NULL, 0},
     "global batch 16 is not a multiple of micro-batch 1 x d 3"},
    {"gpt",
     {1, 1, 8, 1, 1, "1f1b", false, NULL, 0},
     "p=8 x 1 chunks need at least 8 blocks; the model has 5: --split can leave any without"},
    {"gpt",
     {1, 1, 4, 1, 2, "interleaved", false, NULL, 0},
     "p=4 x 2 chunks need at least 6 blocks; the model has 5: --split can leave any without"},
    {"gpt",
     {1, 1, 2, 1, 2, "1f1b", false, NULL, 0},
     "schedule 1f1b: has one chunk per stage; --chunks 2 is for 'interleaved'"},
    {"gpt",
     {1, 1, 1, 1, 2, "interleaved", false, NULL, 0},
     "schedule interleaved: 2 chunks per stage need more than one stage (p)"},
    {"gpt",
     {1, 1, 2, 16, 2, "interleaved", false, NULL, 0},
     "schedule interleaved: 1 micro-batches are no multiple of the 2 stages (p): "
     "micro-batches travel in groups of p"},
    {"gpt",
     {1, 1, 4, 4, 1, "gpipe", false, UNEVEN_2, 2},
     "--split names 2 parts; p=4 x 1 chunks need 4"},
    {"gpt", {1, 1, 4, 4, 1, "zero", false, NULL, 0}, "there is no schedule 'zero'"},
};

/* What cannot be divided as asked is refused by the planner with the reason, not run otherwise. */
static void check_refusal(const Refusal *refusal) {
    char name[160], full[176];
    Run run;
    int v = 0;
    while (strcmp(VARIANTS[v].name, refusal->variant) != 0) v++;
    layout_name(refusal->variant, &refusal->layout, name, sizeof(name));
    snprintf(full, sizeof(full), "refused: %s", name);
    check_begin(full);
    CHECK(!plan(&run, &VARIANTS[v], &refusal->layout, false), "was planned");
    CHECK(strstr(diag_text(run.diag), refusal->message), "says: %s", diag_text(run.diag));
    run_close(&run);
    check_end();
}

/* Messages over t: of each micro-batch, and of the update. */
static void count_messages(const Variant *variant, const char *kv_heads, bool sequence_parallel,
                           int out[2]) {
    const Layout layout = {4, 1, 1, 4, 1, "1f1b", sequence_parallel, NULL, 0};
    Variant other = *variant;
    Run run;
    for (int i = 0; other.settings[i].key; i++) {
        if (strcmp(other.settings[i].key, "kv_heads") == 0) other.settings[i].value = kv_heads;
    }
    out[0] = out[1] = 0;
    CHECK(plan(&run, &other, &layout, false), "%s", diag_text(run.diag));
    const Graph *graph = run.plan ? run.plan->programs[0].graph : NULL;
    for (int n = 0; graph && n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (OPS[node->op].flags & COLLECTIVE) out[node->phase == PHASE_UPDATE]++;
    }
    run_close(&run);
}

/* Catches gradients of keys and values that are completed in each micro-batch, and keys that
 * sequence parallelism has to gather: four ranks that share two heads send what they send with a
 * head each, and once a step the sums of wk, wv, bk and bv. */
static void check_messages(const Variant *variant) {
    enum { BLOCKS = 5, SUMS = 4 };
    for (int sequence_parallel = 0; sequence_parallel < 2; sequence_parallel++) {
        int own[2], shared[2];
        check_begin(sequence_parallel ? "messages of shared key heads, sequence-parallel"
                                      : "messages of shared key heads");
        count_messages(variant, "4", sequence_parallel, own);
        count_messages(variant, "2", sequence_parallel, shared);
        CHECK(shared[0] == own[0], "%d a micro-batch, %d without sharing", shared[0], own[0]);
        CHECK(shared[1] == own[1] + SUMS * BLOCKS, "%d in the update, %d without sharing",
              shared[1], own[1]);
    }
    check_end();
}

int main(void) {
    /* GPT on all layouts: what a layout breaks, it mostly breaks for every model. */
    for (int v = 0; v < N_VARIANTS; v += VARIANT_STEP) {
        /* The last ones differ from others in a layer or two. */
        int step = v == 0 ? LAYOUT_STEP : v < N_VARIANTS - N_FEW ? check_shared_step() : 7;
        check_variant(&VARIANTS[v], LAYOUTS, N_LAYOUTS, step);
    }
    check_variant(&DEEP, DEEP_LAYOUTS, N_DEEP_LAYOUTS, LAYOUT_STEP);
    check_repeats(&VARIANTS[1]);
    check_threads(&VARIANTS[1]);
    check_threads(&VARIANTS[7]);
    for (int v = 0; v < N_VARIANTS; v += VARIANT_STEP * LAYOUT_STEP) {
        if (sums_over_shards(&VARIANTS[v])) continue;
        check_zero_bits(&VARIANTS[v], DTYPE_F32);
        check_zero_bits(&VARIANTS[v], DTYPE_BF16);
    }
    check_messages(&VARIANTS[7]);
    for (size_t r = 0; r < sizeof(REFUSALS) / sizeof(REFUSALS[0]); r++) {
        check_refusal(&REFUSALS[r]);
    }
    check_end();
    compare_print_worst();
    return check_report();
}
