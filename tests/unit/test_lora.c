/* Frozen parameters and adapters of low rank, in training: every layout against one rank, what is
 * frozen bit for bit as it was, a base that does as it did before the first step, weights in two
 * files, merged exports, and plans that say otherwise than they do.
 *
 * test_parity compares gradients and weights with PyTorch's autograd; golden files of the passes
 * have the graphs.
 */
#include "frontend/hf/hf_adapter_import.h"
#include "frontend/hf/hf_export.h"
#include "frontend/hf/hf_import.h"
#include "planner/planner.h"
#include "runtime/checkpoint/safetensors.h"
#include "tests/unit/train_compare.h"

#include <dirent.h>
#include <unistd.h>

enum { BATCH = 8, STEPS = 3, MAX_SETTINGS = 16 };
static const double RATE = 5e-3;

typedef struct Tried {
    const char *name, *path;
    ModelSetting settings[MAX_SETTINGS];
} Tried;

#define SMALL                                                                                      \
    {"layers", "4"}, {"model", "32"}, {"seq", "16"}, {"vocab", "64"}, {                            \
        "ffn", "64"                                                                                \
    }

#define MIXTURE                                                                                    \
    {"experts", "4"}, {"expert_ffn", "16"}, {                                                      \
        "shared_ffn", "16"                                                                         \
    }

static const Tried TRIED[] = {
    {"adapters", "models/llama.lua", {SMALL, {"lora", "3"}, {"lora_dropout", "0.1"}}},
    {"two blocks' layers",
     "models/gpt.lua",
     {SMALL, {"freeze", "*,!blocks.2.mlp.*,!blocks.3.mlp.*"}}},
    {"all but some", "models/gpt.lua", {SMALL, {"optimizer", "muon"}, {"freeze", "wte,*.attn.*"}}},
    {"adapters in a mixture",
     "models/moe.lua",
     {SMALL, {"lora", "2"}, {"lora_targets", "q,o"}, {"lora_rslora", "true"}, {"balance", "0"}}},
    {"adapters of experts",
     "models/moe.lua",
     {SMALL,
      MIXTURE,
      {"shared", "true"},
      {"lora", "2"},
      {"lora_alpha", "6"},
      {"lora_plus", "4"},
      {"lora_dropout", "0.1"},
      {"lora_targets", "all"}}},
    {"adapters of latents and experts",
     "models/deepseek.lua",
     {SMALL,
      MIXTURE,
      {"kv_rank", "8"},
      {"q_rank", "12"},
      {"routing", "greedy"},
      {"top_k", "2"},
      {"lora", "2"},
      {"lora_targets", "q,k,v,o,experts.gate+experts.up,shared.down"}}},
    {"adapters of states, with A's that are shared",
     "models/hybrid.lua",
     {SMALL,
      {"pattern", "PDCK"},
      {"attention_gate", "true"},
      {"state_groups", "1"},
      {"state_heads", "4"},
      {"state_keys", "8"},
      {"state_values", "8"},
      {"lora", "2"},
      {"lora_dropout", "0.1"},
      {"lora_targets", "q+k+v+attn.gate,gate+up,o,down,state,short"}}},
};

static const Layout ALONE = {1, 1, 1, BATCH, 1, "1f1b", false, NULL, 0};

static const struct {
    Layout layout; /* t, d, p, micro-batch, chunks, schedule, sequence parallel, split */
    int c, e, zero;
    Recompute recompute;
} LAYOUTS[] = {
    {{2, 1, 1, 4, 1, "1f1b", true, NULL, 0}, 1, 1, 0, RECOMPUTE_NONE},
    {{1, 2, 1, 2, 1, "1f1b", false, NULL, 0}, 2, 1, 3, RECOMPUTE_FULL},
    {{1, 2, 1, 2, 1, "1f1b", false, NULL, 0}, 1, 2, 3, RECOMPUTE_FULL},
    {{2, 1, 2, 1, 1, "1f1b", true, NULL, 0}, 1, 2, 1, RECOMPUTE_NONE},
    {{1, 1, 2, 2, 1, "zb-h1", false, NULL, 0}, 1, 1, 0, RECOMPUTE_SELECTIVE},
    {{1, 1, 2, 2, 2, "zb-v", false, NULL, 0}, 1, 1, 0, RECOMPUTE_NONE},
    {{2, 2, 2, 1, 1, "1f1b", false, NULL, 0}, 1, 1, 1, RECOMPUTE_NONE},
    {{1, 2, 4, 2, 1, "gpipe", false, NULL, 0}, 1, 1, 2, RECOMPUTE_NONE},
};
enum { N_LAYOUTS = sizeof(LAYOUTS) / sizeof(LAYOUTS[0]) };
#ifdef __SANITIZE_ADDRESS__
enum { EACH = 2 };
#else
enum { EACH = 1 };
#endif

static bool start(Run *run, const Tried *of, const Layout *layout) {
    int n = 0;
    while (n < MAX_SETTINGS && of->settings[n].key) n++;
    return run_plan(run, of->path, of->settings, n, layout, BATCH, true) && run_start(run);
}

static bool is_frozen(const Run *run, const char *name) {
    const Graph *graph = run->model->graph;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (node->op == OP_PARAM && strcmp(node_logical_name(node, 0, run->arena), name) == 0) {
            return node_is_frozen(node);
        }
    }
    BUG("no parameter '%s'", name);
}

/* `made` is untrained. An expert's bias, or a weight before a zero, may learn nothing in few steps;
 * what is frozen must not. */
static void check_frozen(Run *run, Run *made) {
    int n_frozen = 0, n_same = 0;
    for (int i = 0; i < made->n_params; i++) {
        int64_t n = type_elements(&made->types[i]);
        float *now = ARENA_ARRAY(run->arena, float, n);
        CHECK(engine_read_parameter(run->engine, made->names[i], now), "no '%s'", made->names[i]);
        bool same = memcmp(now, run_weight(made, i), (size_t)n * sizeof(float)) == 0;
        bool frozen = is_frozen(made, made->names[i]);
        CHECK(same || !frozen, "'%s' is frozen and has changed", made->names[i]);
        n_frozen += frozen;
        n_same += same;
    }
    CHECK(n_frozen > 0 && n_same == n_frozen, "%d frozen, %d as they were", n_frozen, n_same);
}

static void check_layout(const Tried *of, int l, Run *one, Run *made) {
    char name[160];
    Run run;
    run_zero = LAYOUTS[l].zero;
    run_context = LAYOUTS[l].c;
    run_experts = LAYOUTS[l].e;
    run_recompute = LAYOUTS[l].recompute;
    check_begin(layout_name(of->name, &LAYOUTS[l].layout, name, sizeof(name)));
    bool done = start(&run, of, &LAYOUTS[l].layout) && run_steps_keeping(&run, STEPS, RATE);
    run_zero = 0;
    run_context = 1;
    run_experts = 1;
    run_recompute = RECOMPUTE_NONE;
    CHECK(done, "%s", diag_text(run.diag));
    if (done) {
        compare_runs(&run, one, STEPS);
        check_frozen(&run, made);
    }
    run_close(&run);
    check_end();
}

static void check_layouts(const Tried *of) {
    Run one, made;
    check_begin(of->name);
    bool done = start(&one, of, &ALONE) && run_steps_keeping(&one, STEPS, RATE);
    done = start(&made, of, &ALONE) && done;
    CHECK(done, "%s%s", diag_text(one.diag), diag_text(made.diag));
    if (done) check_frozen(&one, &made);
    check_end();
    for (int l = 0; done && l < N_LAYOUTS; l += EACH) {
        bool experts = axis_find(&one.model->graph->axes, "experts", 7) >= 0;
        if (LAYOUTS[l].e == 1 || experts) check_layout(of, l, &one, &made);
    }
    run_close(&one);
    run_close(&made);
}

/* B begins with zeros, so that A learns nothing in the first step, and B has the same gradient
 * whatever its rate is: of plain descent 8 times that moves it 8 times as far, to the bit. */
static void check_plus(void) {
    static const Tried plain = {"",
                                "models/llama.lua",
                                {SMALL, {"lora", "3"}, {"optimizer", "sgd"}, {"momentum", "0"}}},
                       plus = {"",
                               "models/llama.lua",
                               {SMALL,
                                {"lora", "3"},
                                {"optimizer", "sgd"},
                                {"momentum", "0"},
                                {"lora_plus", "8"}}};
    Run one, eight;
    check_begin("lora_plus: B learns so many times as fast as A");
    bool done = start(&one, &plain, &ALONE) && run_steps(&one, 1, RATE);
    done = start(&eight, &plus, &ALONE) && run_steps(&eight, 1, RATE) && done;
    CHECK(done, "%s%s", diag_text(one.diag), diag_text(eight.diag));
    for (int i = 0; done && i < one.n_params; i++) {
        const float *slow = run_weight(&one, i), *fast = run_weight(&eight, i);
        const float factor = strstr(one.names[i], ".lora_b") ? 8 : 1;
        int n_other = 0, n_moved = 0;
        for (int64_t k = 0; k < type_elements(&one.types[i]); k++) {
            n_other += fast[k] != factor * slow[k];
            n_moved += slow[k] != 0;
        }
        CHECK(n_other == 0 && n_moved > 0, "%d elements of '%s'", n_other, one.names[i]);
    }
    run_close(&one);
    run_close(&eight);
    check_end();
}

/* --- 16 bits --- */

static int count_params(const Plan *plan, DType dtype) {
    const Graph *graph = plan->programs[0].graph;
    int n = 0;
    for (int i = 0; i < graph->n_nodes; i++) {
        n += graph->nodes[i]->op == OP_PARAM && graph->nodes[i]->types[0].dtype == dtype;
    }
    return n;
}

static float rounded(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&x, &bits, 4);
    return x;
}

static void check_16_bits(void) {
    Run low, made;
    check_begin("in bf16 a frozen matrix is kept in bf16 alone, as what was made, rounded");
    bool done = start(&made, &TRIED[0], &ALONE);
    run_precision = DTYPE_BF16;
    done = start(&low, &TRIED[0], &ALONE) && run_steps(&low, STEPS, RATE) && done;
    run_precision = DTYPE_F32;
    CHECK(done, "%s%s", diag_text(low.diag), diag_text(made.diag));
    for (int i = 0; done && i < made.n_params; i++) {
        if (!is_frozen(&made, made.names[i])) continue;
        const float *first = run_weight(&made, i), *now = run_weight(&low, i);
        int n_other = 0;
        for (int64_t k = 0; k < type_elements(&made.types[i]); k++) {
            n_other += now[k] != first[k] && now[k] != rounded(first[k]);
        }
        CHECK(n_other == 0, "%d elements of '%s'", n_other, made.names[i]);
    }
    /* All tables and matrices: 7 in each of 4 blocks, wte and head. */
    if (done)
        CHECK(count_params(low.plan, DTYPE_BF16) == 30, "%d", count_params(low.plan, DTYPE_BF16));
    run_close(&low);
    run_close(&made);
    check_end();
}

/* --- files --- */

static char scratch[] = "/tmp/test_lora-XXXXXX";

static const char *in_scratch(Run *run, const char *name) {
    return arena_printf(run->arena, "%s/%s", scratch, name);
}

static const float *logits_of(Run *run) {
    int64_t rows = engine_forward_batch(run->engine), n = rows * run->plan->seq;
    int32_t *tokens = ARENA_ARRAY(run->arena, int32_t, n);
    float *logits = ARENA_ARRAY(run->arena, float, n * run->plan->vocab);
    for (int64_t i = 0; i < n; i++) tokens[i] = (int32_t)(i * 7 % run->plan->vocab);
    CHECK(engine_logits(run->engine, tokens, logits, run->diag), "%s", diag_text(run->diag));
    return logits;
}

static int64_t count_logits(const Run *run) {
    return engine_forward_batch(run->engine) * run->plan->seq * run->plan->vocab;
}

static void check_same_logits(Run *run, const float *wanted, const char *what) {
    const float *logits = logits_of(run);
    bool same = memcmp(logits, wanted, (size_t)count_logits(run) * sizeof(float)) == 0;
    CHECK(same, "%s", what);
}

static bool load(Run *run, const char *whole, const char *trained, WeightsBegun *begun) {
    return engine_load_files(run->engine, &(WeightFiles){whole, trained}, begun, run->diag);
}

static const Tried BASE = {"base", "models/llama.lua", {SMALL}};
static const Tried TUNED = {
    "tuned", "models/llama.lua", {SMALL, {"lora", "3"}, {"lora_alpha", "7"}}};

static void expect_refusal(Run *run, const char *whole, const char *trained, const char *why) {
    Diag *diag = diag_create();
    const WeightFiles files = {whole, trained};
    CHECK(!engine_load_files(run->engine, &files, NULL, diag), "loaded");
    CHECK(strstr(diag_text(diag), why), "says: %s", diag_text(diag));
    diag_destroy(diag);
}

static void check_files(Run *base, Run *tuned, Run *again) {
    const char *whole = in_scratch(base, "base"), *all = in_scratch(base, "all");
    const char *trained = in_scratch(base, "trained");
    WeightsBegun begun = {0};
    check_begin("adapters begin where a base has none, and the model does as it did");
    CHECK(run_steps(base, 2, RATE) && engine_save(base->engine, whole, base->diag), "%s",
          diag_text(base->diag));
    CHECK(load(tuned, whole, NULL, &begun), "%s", diag_text(tuned->diag));
    CHECK(begun.adapters == 4 * 7 * 2, "%d begin", begun.adapters);
    check_same_logits(tuned, logits_of(base), "logits differ before the first step");
    check_begin("what was trained, over its base, is the whole");
    CHECK(run_steps(tuned, 3, 0.05) && engine_save(tuned->engine, all, tuned->diag) &&
              engine_save_trained(tuned->engine, trained, tuned->diag),
          "%s", diag_text(tuned->diag));
    CHECK(load(again, whole, trained, &begun) && begun.adapters == 0, "%s", diag_text(again->diag));
    const float *wanted = logits_of(tuned);
    check_same_logits(again, wanted, "other logits from two files");
    CHECK(load(again, all, NULL, &begun) && begun.adapters == 0, "%s", diag_text(again->diag));
    check_same_logits(again, wanted, "other logits from one file");
    Safetensors *file = safetensors_open(trained, again->diag);
    CHECK(file && safetensors_count(file) == 4 * 7 * 2, "%s", diag_text(again->diag));
    safetensors_close(file);
    check_begin("files that do not go together are refused");
    expect_refusal(tuned, trained, NULL, "has no tensor 'wte'");
    expect_refusal(tuned, whole, whole, "an adapter of the plan's");
    expect_refusal(base, all, NULL, "which the plan's model has not");
    expect_refusal(base, whole, trained, "which the plan's model has not");
    check_end();
}

/* --- exports --- */

static void remove_folder(const char *path, bool itself) {
    DIR *dir = opendir(path);
    char name[512];
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
        if (entry->d_name[0] != '.') unlink(name);
    }
    if (dir) closedir(dir);
    if (itself) rmdir(path);
}

static bool export(Run *tuned, const char *dir, bool alone) {
    HfExport out;
    const char *path = in_scratch(tuned, "all");
    Safetensors *file = safetensors_open(path, tuned->diag);
    const HfExportRequest request = {.model = tuned->model,
                                     .weights = file,
                                     .path = path,
                                     .dtype = DTYPE_F32,
                                     .adapters_alone = alone};
    bool fine = file && hf_export_open(tuned->arena, &request, &out, tuned->diag);
    if (fine) {
        out.max_shard_bytes = 1 << 30;
        fine = hf_export_write(&out, dir, tuned->diag);
        hf_export_close(&out);
    }
    safetensors_close(file);
    return fine;
}

static void check_export(Run *base, Run *tuned) {
    const char *dir = in_scratch(tuned, "merged"), *back = in_scratch(tuned, "back");
    HfImport import;
    check_begin("an export has adapters merged: logits as before, within rounding");
    bool fine = export(tuned, dir, false) &&
                hf_import_open(tuned->arena, dir, NULL, NULL, 0, &import, tuned->diag);
    if (fine) {
        fine = hf_import_write(&import, back, tuned->diag);
        hf_import_close(&import);
    }
    CHECK(fine && load(base, back, NULL, NULL), "%s%s", diag_text(tuned->diag),
          diag_text(base->diag));
    if (fine) {
        const float *ours = logits_of(base), *theirs = logits_of(tuned);
        double error = relative_distance(ours, theirs, count_logits(base));
        CHECK(error < 1e-6, "logits differ by %.2g of their norm", error);
    }
    remove_folder(dir, true);
    check_begin("adapters alone, by PEFT's names: A [rank, in], B [out, rank]");
    CHECK(export(tuned, dir, true), "%s", diag_text(tuned->diag));
    Safetensors *file = safetensors_open(
        arena_printf(tuned->arena, "%s/adapter_model.safetensors", dir), tuned->diag);
    SafetensorsInfo a, b;
    static const char PREFIX[] = "base_model.model.model.layers.1.self_attn.q_proj";
    bool found =
        file &&
        safetensors_find(file, arena_printf(tuned->arena, "%s.lora_A.weight", PREFIX), &a) &&
        safetensors_find(file, arena_printf(tuned->arena, "%s.lora_B.weight", PREFIX), &b);
    CHECK(found && a.shape[0] == 3 && a.shape[1] == 32 && b.shape[0] == 32 && b.shape[1] == 3, "%s",
          diag_text(tuned->diag));
    for (int i = 0; found && i < tuned->n_params; i++) {
        if (strcmp(tuned->names[i], "blocks.1.attn.wq.lora_a") != 0) continue;
        const float *ours = run_weight(tuned, i); /* [model, lora] */
        float theirs;
        memcpy(&theirs, (const char *)a.data + (2 * 32 + 5) * sizeof(float), sizeof(theirs));
        CHECK(theirs == ours[5 * 3 + 2], "A is not transposed");
    }
    safetensors_close(file);
    remove_folder(dir, true);
    check_end();
}

/* What PEFT made (tests/reference/make_peft.py), over the base that it made it for. */
typedef struct Peft {
    const char *folder, *base, *model;
    int n_adapters;
    const char *gradients; /* of the first sequence's loss, in the form of an adapter; or NULL */
} Peft;

static const Peft PEFT[] = {
    {"tests/reference/hf_peft", "tests/reference/hf/llama31", "llama", 2 * 3 * 2, NULL},
    {"tests/reference/hf_peft_pairs", "tests/reference/hf/glm4", "llama", 2 * 3 * 2, NULL},
    {"tests/reference/hf_peft_parameters", "tests/reference/hf/gpt_oss", "gptoss", 2 * (4 * 2 - 1),
     NULL}, /* gates and ups share an A */
    {"tests/reference/hf_peft_state", "tests/reference/hf/mamba2", "hybrid", 2 * (1 + 5),
     "tests/reference/hf_peft_state_gradients"},
    {"tests/reference/hf_peft_delta", "tests/reference/hf/qwen3_next", "hybrid",
     2 * (1 + 4 + 1 + 2 + 2) + 1 + 2 + 2, NULL}, /* D D A; the last two are whole tables */
    {"tests/reference/hf_peft_experts", "tests/reference/hf/mixtral", "moe", 2 * 3 * 2,
     "tests/reference/hf_peft_experts_gradients"},
};

static bool import_adapter(Run *run, const Peft *of, const char *folder, const HfImport *base,
                           const char *path, HfAdapterImport *out) {
    bool wrong;
    return hf_adapter_import(run->arena, folder, of->model, NULL, base->config.settings,
                             base->config.n_settings, path, out, &wrong, run->diag);
}

/* The first sequence's. */
static void compare_expected(Run *run, const SafetensorsInfo *tokens,
                             const SafetensorsInfo *logits) {
    int64_t n = run->plan->seq * run->plan->vocab;
    int32_t *given = ARENA_ARRAY(run->arena, int32_t, run->plan->seq);
    float *ours = ARENA_ARRAY(run->arena, float, n), *theirs = ARENA_ARRAY(run->arena, float, n);
    memcpy(given, tokens->data, (size_t)run->plan->seq * sizeof(int32_t));
    memcpy(theirs, logits->data, (size_t)n * sizeof(float));
    CHECK(engine_logits(run->engine, given, ours, run->diag), "%s", diag_text(run->diag));
    double most = largest(theirs, n);
    for (int64_t i = 0; i < n; i++) ours[i] -= theirs[i];
    CHECK(largest(ours, n) < 1e-5 * most, "logits differ by %.2g of the largest",
          largest(ours, n) / most);
}

/* Of a step without a rate, each tensor of the file, and none else. */
static void compare_gradients_of(Run *run, Safetensors *expect, const char *path) {
    SafetensorsInfo tokens, labels, loss;
    StepResult result = {0};
    const size_t bytes = (size_t)run->plan->seq * sizeof(int32_t);
    int32_t *given = ARENA_ARRAY(run->arena, int32_t, run->plan->seq);
    int32_t *said = ARENA_ARRAY(run->arena, int32_t, run->plan->seq);
    Safetensors *file = safetensors_open(path, run->diag);
    bool found = file && safetensors_find(expect, "tokens", &tokens) &&
                 safetensors_find(expect, "labels", &labels) &&
                 safetensors_find(expect, "loss", &loss);
    if (found) {
        double theirs;
        memcpy(given, tokens.data, bytes);
        memcpy(said, labels.data, bytes);
        memcpy(&theirs, loss.data, sizeof(theirs));
        found = engine_step(run->engine, 1, given, said, 0, &result, run->diag);
        CHECK(fabs(result.loss - theirs) < 2e-6 * theirs, "loss %.8f, not %.8f", result.loss,
              theirs);
    }
    CHECK(found, "%s", diag_text(run->diag));
    for (int i = 0; found && i < safetensors_count(file); i++) {
        const SafetensorsInfo *theirs = safetensors_at(file, i);
        const int64_t n = (int64_t)(theirs->n_bytes / sizeof(float));
        float *ours = ARENA_ARRAY(run->arena, float, n),
              *wanted = ARENA_ARRAY(run->arena, float, n);
        memcpy(wanted, theirs->data, theirs->n_bytes);
        if (!engine_read_gradient(run->engine, theirs->name, ours)) {
            CHECK(false, "no gradient of '%s'", theirs->name);
            continue;
        }
        double most = largest(wanted, n);
        for (int64_t k = 0; k < n; k++) ours[k] -= wanted[k];
        CHECK(most > 0 && largest(ours, n) < 2e-5 * most,
              "gradient of '%s' differs by %.2e of its largest", theirs->name,
              largest(ours, n) / most);
    }
    safetensors_close(file);
}

static bool plan_imported(Run *run, const Model *model) {
    run->model = (Model *)model;
    PlanRequest request = {.model = model->name,
                           .forward = model->graph,
                           .n_blocks = model->n_blocks,
                           .seq = model->seq,
                           .vocab = model->vocab,
                           .recipe = {.learning_rate = 1e-3},
                           .options = {.mesh = {.size = {1, 1, 1, 1, 1, 1}},
                                       .micro_batch = 1,
                                       .global_batch = 1,
                                       .n_chunks = 1,
                                       .schedule = "1f1b"}};
    run->plan = plan_make(run->arena, &request, run->diag);
    return run->plan && run_start(run);
}

static void check_peft(const Peft *of) {
    Run run = {.arena = arena_create(), .diag = diag_create()};
    const char *whole = in_scratch(&run, "base"), *adapter = in_scratch(&run, "adapter");
    HfImport base;
    HfAdapterImport import = {0};
    check_begin(arena_printf(run.arena, "%s, an adapter of PEFT's, imported: it does as PEFT's",
                             of->folder));
    bool fine = hf_import_open(run.arena, of->base, NULL, NULL, 0, &base, run.diag) &&
                hf_import_write(&base, whole, run.diag) &&
                import_adapter(&run, of, of->folder, &base, adapter, &import);
    CHECK(fine && import.n_adapters == of->n_adapters, "%d adapters: %s", import.n_adapters,
          diag_text(run.diag));
    fine = fine && plan_imported(&run, import.model) && load(&run, whole, adapter, NULL);
    CHECK(fine, "%s", diag_text(run.diag));
    Safetensors *expect =
        safetensors_open(arena_printf(run.arena, "%s/expect.safetensors", of->folder), run.diag);
    SafetensorsInfo tokens, logits;
    fine = fine && expect && safetensors_find(expect, "tokens", &tokens) &&
           safetensors_find(expect, "logits", &logits);
    CHECK(fine, "nothing was compared");
    if (fine) compare_expected(&run, &tokens, &logits);
    if (fine && of->gradients) {
        const char *path = in_scratch(&run, "gradients");
        fine = import_adapter(&run, of, of->gradients, &base, path, &import);
        CHECK(fine, "%s", diag_text(run.diag));
        if (fine) compare_gradients_of(&run, expect, path);
    }
    safetensors_close(expect);
    hf_import_close(&base);
    run_close(&run);
    check_end();
}

static void check_weights(void) {
    Run base, tuned, again;
    if (!mkdtemp(scratch)) BUG("no folder for files");
    bool ready = start(&base, &BASE, &ALONE);
    ready = start(&tuned, &TUNED, &ALONE) && ready;
    ready = start(&again, &TUNED, &ALONE) && ready;
    check_begin("plans of a base, and with adapters");
    CHECK(ready, "%s%s%s", diag_text(base.diag), diag_text(tuned.diag), diag_text(again.diag));
    check_end();
    if (ready) {
        check_files(&base, &tuned, &again);
        check_export(&base, &tuned);
    }
    for (size_t i = 0; i < sizeof(PEFT) / sizeof(PEFT[0]); i++) check_peft(&PEFT[i]);
    run_close(&base);
    run_close(&tuned);
    run_close(&again);
    remove_folder(scratch, true);
}

/* --- plans that say otherwise than they do --- */

static Node *find_param(Plan *plan, const char *name) {
    Graph *graph = plan->programs[0].graph;
    for (int n = 0; n < graph->n_nodes; n++) {
        Node *node = graph->nodes[n];
        if (node->op == OP_PARAM && strcmp(node_string(node, ATTR_name), name) == 0) return node;
    }
    BUG("no parameter '%s'", name);
}

static void thaw(Plan *plan) {
    Node *param = find_param(plan, "wte");
    for (int i = 0; i < param->n_attrs; i++) {
        if (param->attrs[i].key == ATTR_frozen) param->attrs[i].i = 0;
    }
}
static void freeze(Plan *plan) {
    Node *param = find_param(plan, "blocks.#.attn.wq.lora_b");
    Attr *attrs = ARENA_ARRAY(plan->arena, Attr, param->n_attrs + 1);
    memcpy(attrs, param->attrs, sizeof(*attrs) * (size_t)param->n_attrs);
    attrs[param->n_attrs++] = attr_int(ATTR_frozen, 1);
    param->attrs = attrs;
}

static void check_defect(const char *name, void (*change)(Plan *plan), const char *said) {
    Run run;
    check_begin(name);
    bool done = start(&run, &TUNED, &ALONE);
    CHECK(done, "%s", diag_text(run.diag));
    if (done) {
        change(run.plan);
        CHECK(!verify_plan(run.plan, run.diag), "accepted");
        CHECK(strstr(diag_text(run.diag), said), "says: %s", diag_text(run.diag));
    }
    run_close(&run);
    check_end();
}

/* A product of few numbers is of large operands, which CPUs without one in f16 widen in blocks. */
static void check_for_gpus(void) {
    static const ModelSetting SETTINGS[] = {{"layers", "1"}, {"model", "512"}, {"seq", "4"},
                                            {"vocab", "64"}, {"ffn", "64"},    {"lora", "2"}};
    static const Layout SHORT = {1, 1, 1, 1, 1, "1f1b", false, NULL, 0};
    Run run;
    check_begin("adapters in f16, planned for GPUs, train on CPUs");
    bool done =
        run_plan_for(&run, "models/llama.lua", SETTINGS, 6, &SHORT, 1, true, true, DTYPE_F16);
    CHECK(done, "%s", diag_text(run.diag));
    for (int i = 0; done && i < run.plan->n_programs; i++) {
        const Graph *graph = run.plan->programs[i].graph;
        int64_t cpus = program_workspace(graph, false).bytes[WORKSPACE_COMPUTE];
        int64_t gpus = program_workspace(graph, true).bytes[WORKSPACE_COMPUTE];
        CHECK(gpus >= cpus, "%lld bytes, CPUs need %lld", (long long)gpus, (long long)cpus);
    }
    CHECK(done && run_start(&run) && run_steps(&run, 1, 1e-2), "%s", diag_text(run.diag));
    run_close(&run);
    check_end();
}

int main(void) {
    for (size_t i = 0; i < sizeof(TRIED) / sizeof(TRIED[0]); i++) check_layouts(&TRIED[i]);
    compare_print_worst();
    check_plus();
    check_16_bits();
    check_weights();
    check_for_gpus();
    check_defect("refused: no update of a parameter that is not frozen", thaw,
                 "'wte' is not frozen, and is never updated");
    check_defect("refused: an update of a frozen parameter", freeze, "is frozen, and is updated");
    return check_report();
}
