/* Captured steps of Llama and of models with other parts, and in bf16 and f16, proved and run
 * without a GPU: see cuda_graph.h. */
#include "tests/unit/check.h"

#ifndef HAVE_CUDA
int main(void) {
    puts("skip captured steps of Llama: built without CUDA's headers");
    return 0;
}
#else

#include "tests/unit/cuda_graph.h"

/* clang-format off */
/* Three blocks, of different stages: each layout of two stages has one with two. */
#define FEW SIZES, {"layers", "3"}
/* clang-format on */
static const Variant LLAMA = {"llama gqa",
                              "models/llama.lua",
                              2,
                              DTYPE_F32,
                              {COMMON, {"vocab", "61"}, {"kv_heads", "2"}, {"ffn", "88"}}};
static const Variant OTHERS[] = {
    {"gpt dropout, an optimizer in Lua",
     "models/gpt.lua",
     4,
     DTYPE_F32,
     {FEW,
      {"vocab", "64"},
      {"dropout", "0.1"},
      {"attention_dropout", "0.2"},
      {"optimizer", "ademamix"}}},
    {"gpt untied sgd",
     "models/gpt.lua",
     4,
     DTYPE_F32,
     {FEW, {"vocab", "50"}, {"tied", "false"}, {"optimizer", "sgd"}, {"momentum", "0.9"}}},
    {"gpt lion, rates by kind",
     "models/gpt.lua",
     4,
     DTYPE_F32,
     {FEW, {"vocab", "64"}, {"optimizer", "lion"}, {"matrix_lr_scale", "0.1"}}},
    {"gpt muon", "models/gpt.lua", 4, DTYPE_F32, {FEW, {"vocab", "61"}, {"optimizer", "muon"}}},
    {"llama muon bf16, keys of a quarter",
     "models/llama.lua",
     2,
     DTYPE_BF16,
     {FEW,
      {"vocab", "64"},
      {"kv_heads", "2"},
      {"head", "4"},
      {"ffn", "24"},
      {"optimizer", "muon"}}},
    {"llama tied window",
     "models/llama.lua",
     4,
     DTYPE_F32,
     {FEW, {"vocab", "64"}, {"kv_heads", "4"}, {"tied", "true"}, {"ffn", "64"}, {"window", "5"}}},
    {"gpt bf16", "models/gpt.lua", 4, DTYPE_BF16, {FEW, {"vocab", "61"}, {"ffn", "64"}}},
    /* t divides the three query heads of the one key head, and padding's see keys */
    {"llama qk_norm bf16 window, a shared key head",
     "models/llama.lua",
     2,
     DTYPE_BF16,
     {SIZES_OF("3"),
      {"layers", "5"},
      {"head", "8"},
      {"vocab", "61"},
      {"kv_heads", "1"},
      {"ffn", "88"},
      {"qk_norm", "true"},
      {"window", "3"}}},
    {"shared weights", "tests/models/shared.lua", 2, DTYPE_F32, {{"layers", "5"}}},
    {"penalties on weights", "tests/models/penalties.lua", 2, DTYPE_F32, {{"layers", "5"}}},
    {"values that skip blocks", "tests/models/skips.lua", 2, DTYPE_F32, {{"layers", "5"}}},
    {"pairs of answers",
     "models/llama.lua",
     2,
     DTYPE_F32,
     {FEW, {"vocab", "61"}, {"kv_heads", "2"}, {"ffn", "88"}, {"preference", "dpo"}}},
    {"answers by themselves",
     "models/llama.lua",
     2,
     DTYPE_F32,
     {FEW, {"vocab", "61"}, {"kv_heads", "2"}, {"ffn", "88"}, {"preference", "kto"}}},
    {"sets of classes",
     "models/llama.lua",
     2,
     DTYPE_BF16,
     {FEW,
      {"vocab", "61"},
      {"kv_heads", "2"},
      {"ffn", "88"},
      {"classes", "9"},
      {"class_kind", "sets"}}},
    {"hybrid, heads that t does not divide share queries and keys",
     "models/hybrid.lua",
     2,
     DTYPE_F32,
     {FEW,
      {"vocab", "61"},
      {"kv_heads", "2"},
      {"ffn", "64"},
      {"pattern", "MDA"},
      {"state_groups", "1"},
      {"state_heads", "3"},
      {"state_keys", "6"},
      {"state_values", "5"}}},
    {"hybrid bf16, groups",
     "models/hybrid.lua",
     2,
     DTYPE_BF16,
     {FEW,
      {"vocab", "61"},
      {"kv_heads", "2"},
      {"ffn", "64"},
      {"pattern", "DM"},
      {"state_groups", "2"},
      {"state_heads", "2"},
      {"state_keys", "8"},
      {"state_values", "8"},
      {"documents", "5"}}},
    {"short convolutions, attention beside states bf16, least steps",
     "models/hybrid.lua",
     2,
     DTYPE_BF16,
     {FEW,
      {"vocab", "61"},
      {"ffn", "64"},
      {"pattern", "CP"},
      {"state_groups", "2"},
      {"state_heads", "2"},
      {"state_keys", "8"},
      {"state_values", "8"},
      {"state_floor", "0.01"},
      {"documents", "5"}}},
    {"modernbert, shares of classes by the mean of texts",
     "models/modernbert.lua",
     2,
     DTYPE_F32,
     {FEW,
      {"vocab", "61"},
      {"ffn", "64"},
      {"window", "7"},
      {"mask_token", "3"},
      {"padding", "5"},
      {"pooling", "mean"},
      {"class_smoothing", "0.1"},
      {"classes", "61"}}},
    {"vectors of texts",
     "models/bert.lua",
     2,
     DTYPE_BF16,
     {FEW,
      {"vocab", "61"},
      {"mask_token", "3"},
      {"padding", "5"},
      {"embedding", "last"},
      {"embed_group", "2"},
      {"embed_symmetric", "true"},
      {"embed_dims", "7"}}},
    {"adapters beside bf16 alone, by diffusion", /* numbers of labels, pairs of all positions */
     "models/llama.lua",
     2,
     DTYPE_BF16,
     {FEW,
      {"vocab", "61"},
      {"kv_heads", "2"},
      {"ffn", "88"},
      {"lora", "3"},
      {"diffusion", "masked"}}},
    {"answers by rewards: advantages and old scores", /* of the four numbers of labels */
     "models/llama.lua",
     2,
     DTYPE_F32,
     {FEW, {"vocab", "61"}, {"kv_heads", "2"}, {"ffn", "88"}, {"policy", "grpo"}}},
    {"answers by rewards: all numbers but advantages",
     "models/llama.lua",
     2,
     DTYPE_F32,
     {FEW,
      {"vocab", "61"},
      {"kv_heads", "2"},
      {"ffn", "88"},
      {"policy", "dr_grpo"},
      {"clip_high", "0.3"},
      {"kl", "0.2"}}},
};
/* clang-format off */
#define T5_SIZES \
    {"layers", "2"}, {"model", "32"}, {"heads", "4"}, {"head", "8"}, {"ffn", "48"}, \
    {"source", "24"}, {"seq", "16"}, {"vocab", "64"}, {"buckets", "8"}, {"distance", "12"}
static const Variant T5[] = {
    {"t5", "models/t5.lua", 4, DTYPE_F32, {T5_SIZES, {"dropout", "0.1"}}},
    {"t5 1.1 bf16", "models/t5.lua", 4, DTYPE_BF16,
     {T5_SIZES, {"tied", "false"}, {"act", "gated_gelu"}}},
    {"images", "models/llava.lua", 4, DTYPE_F32,
     {{"layers", "2"}, {"model", "32"}, {"heads", "4"}, {"kv_heads", "4"}, {"ffn", "48"},
      {"vision", "24"}, {"vision_heads", "4"}, {"vision_ffn", "40"}, {"seq", "16"}, {"vocab", "64"},
      {"image_token", "3"}, {"images", "2"}, {"patches", "32"}, {"vision_class", "true"}}}};
/* clang-format on */
static const Variant PARTS = {
    "parts of axes", "tests/models/parts.lua", 2, DTYPE_F32, {{"layers", "4"}}};
/* In bf16 every token goes to all experts: else rounding decides who gets it where two are near. */
static const Variant EXPERTS[] = {
    {"experts", "tests/models/experts.lua", 2, DTYPE_F32, {{"layers", "4"}}},
    {"all experts, bf16",
     "models/moe.lua",
     2,
     DTYPE_BF16,
     {FEW,
      {"vocab", "61"},
      {"kv_heads", "2"},
      {"experts", "2"},
      {"expert_ffn", "24"},
      {"capacity", "0"},
      {"shared", "true"}}},
    {"gpt-oss, all experts, bf16",
     "models/gptoss.lua",
     2,
     DTYPE_BF16,
     {FEW,
      {"vocab", "61"},
      {"kv_heads", "2"},
      {"experts", "2"},
      {"top_k", "2"},
      {"expert_ffn", "24"},
      {"capacity", "0"},
      {"window", "3"}}}};
static const Variant HALF = {
    "gpt f16", "models/gpt.lua", 4, DTYPE_F16, {COMMON, {"vocab", "61"}, {"ffn", "64"}}};
static const Layout OTHER_LAYOUTS[] = {
    {2, 1, 1, 4, 1, "1f1b", true, NULL, 0},
    {1, 2, 2, 2, 1, "1f1b", false, NULL, 0},
    {2, 2, 2, 2, 1, "zb-h1", true, NULL, 0},
};
enum { N_OTHER_LAYOUTS = sizeof(OTHER_LAYOUTS) / sizeof(OTHER_LAYOUTS[0]) };

/* Does the CPU have all kernels in this precision? */
static bool cpu_has(const Variant *variant) {
    Run run;
    bool there = start_on_cpu(&run, variant, &LAYOUTS[0]);
    if (!there) printf("skip %s: %s\n", variant->name, diag_text(run.diag));
    run_close(&run);
    return there;
}

/* What is computed again stays ordered and gives what the CPU gives with the same plan: the first
 * model on every layout, each other one on one that changes with the mode. */
static void run_recomputed(void) {
    static const Layout layouts[] = {
        {2, 1, 1, 4, 1, "1f1b", true, NULL, 0},
        {1, 1, 2, 2, 2, "interleaved", false, NULL, 0},
        {2, 2, 2, 2, 1, "1f1b", true, NULL, 0},
    };
    for (int mode = RECOMPUTE_SELECTIVE; mode <= RECOMPUTE_FULL; mode++) {
        run_recompute = (Recompute)mode;
        check_layouts(&OTHERS[0], layouts, 3);
        for (size_t i = 1; i < sizeof(OTHERS) / sizeof(OTHERS[0]); i++) {
            if (OTHERS[i].precision != DTYPE_BF16) continue;
            check_layouts(&OTHERS[i], &layouts[(i + (size_t)mode) % 3], 1);
        }
    }
    run_recompute = RECOMPUTE_NONE;
}

/* What blocks keep goes to the host and comes back, in any order that the waits allow; where there
 * are two stages, one has a block that does. */
static void run_offloaded(void) {
    static const Layout divided = {1, 2, 1, 2, 1, "gpipe", false, NULL, 0};
    static const Layout pipeline = {2, 1, 2, 4, 1, "1f1b", true, NULL, 0};
    run_offload_activations = 100;
    run_recompute = RECOMPUTE_SELECTIVE;
    run_zero = ZERO_PARAMETERS;
    check_layouts(&OTHERS[6], &divided, 1); /* in bf16 */
    run_recompute = RECOMPUTE_NONE;
    run_zero = 0;
    run_offload = 100;
    check_layouts(&OTHERS[0], &pipeline, 1);
    run_offload = run_offload_activations = 0;
}

/* The scale doubles in each step; then it is so large that no step changes anything. */
static void run_scaled(void) {
    check_layouts(&HALF, OTHER_LAYOUTS, N_OTHER_LAYOUTS);
    run_zero = 1;
    f16_scaling = (LossScaling){4294967296.0, 2000};
    check_layouts(&HALF, &OTHER_LAYOUTS[1], 2);
    f16_scaling = (LossScaling){1024, 1};
    check_layouts(&HALF, &OTHER_LAYOUTS[1], 1);
    run_zero = 0;
}

/* Gradients in bf16: kept so (a batch is eight sequences, one micro-batch), and sent so of several;
 * and copies that are halves of their parameters, where they may be; every other time with states
 * in the host's memory. */
static void run_rounded(void) {
    static const LayoutCase CASES[] = {
        {{1, 1, 1, 8, 1, "1f1b", false, NULL, 0}, RECOMPUTE_NONE, 0},
        {{2, 2, 1, 4, 1, "1f1b", true, NULL, 0}, RECOMPUTE_NONE, 1},
        {{1, 2, 1, 4, 1, "1f1b", false, NULL, 0}, RECOMPUTE_FULL, 2},
        {{1, 2, 1, 4, 1, "1f1b", false, NULL, 0}, RECOMPUTE_NONE, 3},
        {{1, 2, 2, 2, 1, "zb-h1", false, NULL, 0}, RECOMPUTE_NONE, 2},
        {{2, 2, 1, 2, 1, "1f1b", true, NULL, 0}, RECOMPUTE_NONE, 3},
    };
    enum { N_CASES = sizeof(CASES) / sizeof(CASES[0]) };
    int n = 0;
    run_gradient_dtype = DTYPE_BF16;
    run_split_masters = true;
    for (size_t i = 0; i < sizeof(OTHERS) / sizeof(OTHERS[0]); i++) {
        if (OTHERS[i].precision != DTYPE_BF16 || !cpu_has(&OTHERS[i])) continue;
        for (int k = 0; k < (n ? 2 : N_CASES); k++) {
            const LayoutCase *at = &CASES[n ? (2 * n + 3 * k) % N_CASES : k];
            run_recompute = at->recompute;
            run_zero = at->zero;
            run_offload = (n + k) % 2 ? 0 : 100;
            check_layouts(&OTHERS[i], &at->layout, 1);
        }
        n++;
    }
    run_recompute = RECOMPUTE_NONE;
    run_zero = 0;
    run_gradient_dtype = DTYPE_F32;
    run_split_masters = false;
    run_offload = 0;
}

/* Two steps, and between them other weights for a while: the same bits. A device's weights become
 * those of an engine on the CPU. */
static void run_kept(void) {
    static const Variant BF16 = {
        "",
        "models/llama.lua",
        2,
        DTYPE_BF16,
        {COMMON, {"vocab", "61"}, {"kv_heads", "2"}, {"ffn", "88"}, {"policy", "gspo"}}};
    static const Layout LAYOUT = {1, 2, 1, 4, 1, "1f1b", false, NULL, 0};
    double losses[2] = {NAN, NAN};
    if (half || !cpu_has(&BF16)) return;
    check_begin("weights for a while, and another engine's");
    run_zero = ZERO_OPTIMIZER;
    run_offload = 100;
    for (int kept = 0; kept < 2; kept++) {
        Run run, cpu;
        bool fine = start_on_fake(&run, &BF16, &LAYOUT, GRAPH) && run_steps(&run, 1, LEARNING_RATE);
        CHECK(fine, "%s", diag_text(run.diag));
        EngineWeights *weights =
            fine && kept ? engine_keep_weights(run.engine, true, run.diag) : NULL;
        for (int i = 0; weights && i < run.n_params; i++) {
            float *values = run_weight(&run, i);
            for (int64_t k = 0; k < type_elements(&run.types[i]); k++) values[k] *= -0.5f;
            engine_write_parameter(run.engine, run.names[i], values);
        }
        fine = start_on_cpu(&cpu, &BF16, &LAYOUT) && fine &&
               engine_copy_weights(run.engine, cpu.engine, false, run.diag);
        CHECK(fine, "%s%s", diag_text(run.diag), diag_text(cpu.diag));
        for (int i = 0; fine && i < run.n_params; i++) {
            const int64_t n = type_elements(&run.types[i]);
            const float *ours = run_weight(&run, i), *theirs = run_weight(&cpu, i);
            CHECK(memcmp(ours, theirs, (size_t)n * sizeof(float)) == 0, "'%s'", run.names[i]);
        }
        CHECK(engine_restore_weights(weights, run.diag) && (weights || !kept), "%s",
              diag_text(run.diag));
        fine = fine && run_steps_from(&run, 1, 1, LEARNING_RATE);
        CHECK(fine, "%s", diag_text(run.diag));
        losses[kept] = run.losses[1];
        close_on_fake(&run);
        run_close(&cpu);
    }
    run_zero = run_offload = 0;
    CHECK(losses[0] == losses[1], "a loss of %.9g, not %.9g", losses[1], losses[0]);
    check_end();
}

static void run(void) {
    run_kept();
    short_batches = true; /* long ones: of what is in bf16 below, and Llama */
    run_scaled();
    short_batches = false;
    run_rounded();
    short_batches = true;
    run_recomputed();
    short_batches = false;
    run_offloaded();
    for (int l = 0; l < N_LAYOUTS; l += 2) check_layouts(&LLAMA, &LAYOUTS[l], 1); /* GPT: all */
    short_batches = true;
    check_layouts(&PARTS, &OTHER_LAYOUTS[2], 1);
    check_layouts(&T5[0], &OTHER_LAYOUTS[0], 1);
    for (int i = 0; i < 3; i++) {
        if (cpu_has(&T5[i])) check_layouts(&T5[i], &OTHER_LAYOUTS[2], 1);
    }
    for (size_t i = 0; i < sizeof(EXPERTS) / sizeof(EXPERTS[0]); i++) {
        if (cpu_has(&EXPERTS[i])) check_layouts(&EXPERTS[i], &OTHER_LAYOUTS[2], 1);
    }
    for (size_t i = 0; i < sizeof(OTHERS) / sizeof(OTHERS[0]); i++) {
        if (!cpu_has(&OTHERS[i])) continue;
        check_layouts(&OTHERS[i], &OTHER_LAYOUTS[i % 2], 1);
        check_layouts(&OTHERS[i], &OTHER_LAYOUTS[2], 1);
        run_zero = i % 2 ? ZERO_OPTIMIZER : ZERO_PARAMETERS;
        run_offload = i % 3 ? 100 : 40; /* and masters, where products are in 16 bits */
        check_layouts(&OTHERS[i], &OTHER_LAYOUTS[1 + i / 2 % 2], 1);
        run_zero = run_offload = 0;
    }
}

int main(void) {
    if (fake_missing()) {
        printf("skip captured steps of Llama: %s\n", fake_missing());
        return 0;
    }
    forget_cache();
    return run_in_halves(run);
}
#endif
