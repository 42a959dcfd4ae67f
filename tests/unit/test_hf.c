/* Hugging Face's weights (tests/reference/hf, made by make_hf.py): an import computes what
 * transformers computes, an export gives back the bits that were imported, and whatever is wrong in
 * a folder is one line, never a crash.
 *
 * Would catch: a transposed weight, heads paired otherwise, a missing norm offset, rotary angles or
 * windows that are not the configuration's, numbers rounded where nothing has to be; of mixtures,
 * experts mixed up, gates that sum to 1 where they do not or a shared expert left out.
 */
#include "frontend/hf/hf_adapter.h"
#include "tests/unit/hf_bad_configs.h"
#include "tests/unit/hf_checks.h"

typedef struct Fixture {
    const char *name;
    DType dtype; /* of its files */
} Fixture;

/* clang-format off */
static const Fixture FIXTURES[] = {
    {"gpt2", DTYPE_F32},         {"gpt2_untied", DTYPE_F16}, {"llama", DTYPE_BF16},
    {"llama31", DTYPE_F32},      {"llama_linear", DTYPE_F16}, {"mistral", DTYPE_F32},
    {"qwen2", DTYPE_F32},        {"qwen3", DTYPE_F32},       {"gemma2", DTYPE_F32},
    {"gemma3", DTYPE_F32},       {"phi3", DTYPE_BF16},       {"olmo2", DTYPE_F32},
    {"phi3_long", DTYPE_F32},    {"phi3_short", DTYPE_BF16},
    {"gemma3_pictures", DTYPE_BF16},
    {"smollm3", DTYPE_F32},      {"granite", DTYPE_F32},     {"stablelm", DTYPE_F32},
    {"gpt_neox", DTYPE_F16},     {"gpt_neox_serial", DTYPE_F32},
    {"phi", DTYPE_F32},          {"starcoder2", DTYPE_F32},
    {"mixtral", DTYPE_BF16},     {"qwen3_moe", DTYPE_F32},   {"olmoe", DTYPE_F32},
    {"qwen2_moe", DTYPE_F32},    {"deepseek", DTYPE_F32},    {"deepseek_v2", DTYPE_F32},
    {"deepseek_v2_grouped", DTYPE_F32}, {"deepseek_v3", DTYPE_F32},
    {"t5", DTYPE_F32},           {"t5_v1_1", DTYPE_BF16},
    {"bert", DTYPE_F32},         {"bert_older", DTYPE_F16},
    {"roberta", DTYPE_F32},      {"mt5", DTYPE_F32},
    {"gpt_oss", DTYPE_F32},      {"mamba2", DTYPE_F32},      {"mamba2_tied", DTYPE_BF16},
    {"bamba", DTYPE_F32},        {"granite4", DTYPE_F32},    {"granite4_dense", DTYPE_BF16},
    {"qwen3_next", DTYPE_F32},
    {"glm4_moe", DTYPE_F32},     {"glm4_moe_grouped", DTYPE_BF16}, {"dots1", DTYPE_F32},
    {"ernie4_5_moe", DTYPE_F32}, {"ernie4_5_moe_every", DTYPE_BF16}, {"minimax_m2", DTYPE_F32},
    {"granitemoe", DTYPE_F32},   {"granitemoeshared", DTYPE_BF16},
    {"qwen3_moe_every", DTYPE_BF16}, {"llama4_scout", DTYPE_F32}, {"llama4_maverick", DTYPE_BF16},
    {"llama4_pictures", DTYPE_BF16},
    {"llama_yarn", DTYPE_F32},  {"qwen2_windows", DTYPE_F32},
    {"qwen3_windows", DTYPE_BF16}, {"olmo3", DTYPE_F32},     {"olmo3_older", DTYPE_BF16},
    {"glm4", DTYPE_F32},         {"seed_oss", DTYPE_F32},    {"ernie4_5", DTYPE_F32},
    {"exaone4", DTYPE_F32},      {"exaone4_full", DTYPE_BF16},
    {"cohere", DTYPE_F32},       {"cohere2", DTYPE_F32},
    {"modernbert", DTYPE_F32},   {"modernbert_older", DTYPE_BF16},
    {"distilbert", DTYPE_F32},   {"lfm2", DTYPE_F32},        {"lfm2_older", DTYPE_BF16},
    {"falcon_h1", DTYPE_F32},    {"falcon_h1_normed", DTYPE_BF16}, {"falcon_h1_gated", DTYPE_F32},
    {"nemotron_h", DTYPE_F32},   {"nemotron_h_older", DTYPE_BF16},
    {"kimi_linear", DTYPE_F32},  {"kimi_linear_older", DTYPE_BF16}};
/* clang-format on */
enum { N_FIXTURES = sizeof(FIXTURES) / sizeof(FIXTURES[0]) };

/* --- there and back --- */

static void test_round_trips(void) {
    for (int i = 0; i < N_FIXTURES; i++) {
        /* By its settings alone, an mT5 is a T5 1.1. */
        const char *type = strcmp(FIXTURES[i].name, "mt5") == 0 ? "t5" : NULL;
        test_round_trip(FIXTURES[i].name, FIXTURES[i].dtype, false, type, 5000000000);
        test_round_trip(FIXTURES[i].name, FIXTURES[i].dtype, true, NULL, i % 2 ? 4000 : 1);
    }
}

/* Experts as one tensor, as transformers 5 has them in memory: the same weights. */
static void test_fused(void) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    HfImport each, fused;
    const char *a = in_scratch(arena, "weights.safetensors");
    const char *b = in_scratch(arena, "again.safetensors");
    check_begin("hf mixtral: experts in one tensor are the same weights");
    CHECK(import(arena, fixture(arena, "mixtral"), a, &each, diag) &&
              import(arena, fixture(arena, "mixtral_fused"), b, &fused, diag) &&
              same_files(arena, a, b, diag),
          "they differ: %s", diag_text(diag));
    diag_destroy(diag);
    arena_destroy(arena);
}

/* An adapter's B has the rows of its weight: where pairs of rotary positions lie side by side
 * there, so they do in both. */
static void test_paired_adapters(const char *name) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    HfImport imported;
    enum { RANK = 3 };
    int n_paired = 0;
    check_begin(arena_printf(arena, "hf %s: pairs of adapters are those of weights", name));
    bool fine = import(arena, fixture(arena, name), in_scratch(arena, "weights.safetensors"),
                       &imported, diag);
    CHECK(fine, "%s", diag_text(diag));
    for (int k = 0; fine && k < imported.layout.n_items; k++) {
        const HfItem *item = &imported.layout.items[k];
        const HfPart *part = &item->parts[0];
        if (!strstr(item->theirs, "q_proj.weight") && !strstr(item->theirs, "k_proj.weight"))
            continue;
        HfAdapterB as;
        hf_adapter_b_strides(part, RANK, 1, part->whole.rank - 1, &as);
        int64_t n_out = 1;
        for (int d = 1; d < as.rank; d++) n_out *= as.size[d];
        n_paired++;
        for (int64_t i = 0; i < n_out; i++) {
            const int64_t row = i / 8 * 8 + i % 4 * 2 + i % 8 / 4; /* of heads of 8 numbers */
            int64_t ours = 0, theirs = 0, left = i;
            for (int d = as.rank - 1; d > 0; left /= as.size[d--]) {
                ours += left % as.size[d] * as.ours[d];
                theirs += left % as.size[d] * as.theirs[d];
            }
            CHECK(ours == i && theirs == row * RANK, "%s: row %d is %d", item->theirs, (int)i,
                  (int)(theirs / RANK));
        }
    }
    CHECK(n_paired >= 4, "%d tensors have been looked at", n_paired);
    diag_destroy(diag);
    arena_destroy(arena);
}

/* --- what is wrong with a folder --- */

/* A fixture with one file of other content. */
static void expect_bad_file(const char *name, const char *file, const char *content,
                            const char *message) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    HfImport imported;
    check_begin(arena_printf(arena, "hf %s: %s", name, message));
    const char *dir = changed_fixture(arena, name, NULL, NULL);
    const char *path = arena_printf(arena, "%s/%s", dir, file);
    unlink(path);
    if (content) put_file(path, content, strlen(content));
    bool opened = hf_import_open(arena, dir, NULL, NULL, 0, &imported, diag);
    if (opened) hf_import_close(&imported);
    CHECK(!opened && diag_error_count(diag) == 1 && strstr(diag_text(diag), message), "%s",
          diag_text(diag));
    diag_destroy(diag);
    arena_destroy(arena);
}

static void test_bad_files(void) {
    static const char INDEX[] = "model.safetensors.index.json";
    expect_bad_file("llama", "config.json", NULL, "config.json: cannot");
    expect_bad_file("llama", "config.json", "[1]", "is not a JSON object");
    expect_bad_file("llama", "config.json", "{\"model_type\": \"llama\", \"model_type\": 1}",
                    "duplicate");
    expect_bad_file("gpt2", "model.safetensors", NULL, "has neither model.safetensors nor");
    expect_bad_file("gpt2", "model.safetensors", "short", "is too short");
    expect_bad_file("llama", "model-00002-of-00002.safetensors", NULL, "model-00002-of-00002");
    expect_bad_file("llama", INDEX, "{}", "has no 'weight_map'");
    expect_bad_file("llama", INDEX, "{\"weight_map\": {\"a\": \"../x.safetensors\"}}",
                    "the file of tensor \"a\" is no name of a .safetensors file in its folder");
    expect_bad_file("llama", INDEX, "{\"weight_map\": {\"a\": 1}}", "the file of tensor \"a\"");
    expect_bad_file("llama", INDEX,
                    "{\"weight_map\": {\"a\\nb\": \"model-00001-of-00002.safetensors\"}}",
                    "has no tensor \"a\\u000ab\", which the index says is in it");
    expect_bad_file("llama", INDEX,
                    "{\"weight_map\": {\"model.embed_tokens.weight\": "
                    "\"model-00001-of-00002.safetensors\"}}",
                    "model-00001-of-00002.safetensors: has a tensor "
                    "\"model.layers.0.input_layernorm.weight\", which the index lacks");
}

/* olmoe with one tensor under another name, so that it is missing and another is too many, or with
 * another shape. */
static void test_bad_expert(const char *from, const char *to, bool flat, const char *message) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    HfImport imported;
    check_begin(arena_printf(arena, "hf olmoe: %s", message));
    const char *dir = changed_fixture(arena, "olmoe", NULL, NULL);
    const char *path = arena_printf(arena, "%s/model.safetensors", dir);
    Safetensors *file = safetensors_open(path, diag);
    SafetensorsWriter *writer = safetensors_writer_create();
    unlink(path);
    for (int pass = 0; file && pass < 2; pass++) {
        CHECK(pass == 0 || safetensors_writer_open(writer, path, diag), "%s", diag_text(diag));
        for (int i = 0; i < safetensors_count(file); i++) {
            const SafetensorsInfo *info = safetensors_at(file, i);
            bool it = strcmp(info->name, from) == 0;
            const char *name = it ? to : info->name;
            int64_t shape[2] = {info->shape[0], info->shape[1]};
            if (it && flat) shape[0] = (int64_t)(info->n_bytes / sizeof(float));
            int n_dims = it && flat ? 1 : info->n_dims;
            if (pass == 0) {
                safetensors_writer_add_tensor(writer, name, info->dtype, shape, n_dims);
            } else {
                safetensors_writer_put(writer, name, info->data, info->n_bytes, diag);
            }
        }
    }
    CHECK(safetensors_writer_commit(writer, diag), "%s", diag_text(diag));
    safetensors_close(file);
    bool opened = hf_import_open(arena, dir, NULL, NULL, 0, &imported, diag);
    if (opened) hf_import_close(&imported);
    CHECK(!opened && diag_error_count(diag) == 1 && strstr(diag_text(diag), message), "%s",
          diag_text(diag));
    diag_destroy(diag);
    arena_destroy(arena);
}

static void test_bad_experts(void) {
    static const char UP[] = "model.layers.1.mlp.experts.4.up_proj.weight";
    test_bad_expert(UP, "a", false, "has no tensor 'model.layers.1.mlp.experts.4.up_proj.weight'");
    test_bad_expert(UP, UP, true, "is [192]; by the configuration it is [12, 16]");
    test_bad_expert("lm_head.weight", "model.layers.0.mlp.experts.5.up_proj.weight", false,
                    "has no tensor 'lm_head.weight'");
}

/* llama31, whose tables are tied, with the output's in the file as well: `shift` bytes further on.
 */
static void test_tied_twice(size_t shift, SafetensorsDtype gain, const char *message) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    HfImport imported;
    check_begin(message ? message : "hf a tied table that is there twice is one");
    const char *dir = changed_fixture(arena, "llama31", NULL, NULL);
    const char *path = arena_printf(arena, "%s/model.safetensors", dir);
    Safetensors *file = safetensors_open(path, diag);
    SafetensorsWriter *writer = safetensors_writer_create();
    SafetensorsInfo table = {.n_bytes = 0};
    CHECK(file && safetensors_find(file, "model.embed_tokens.weight", &table), "no table");
    for (int i = 0; file && i < safetensors_count(file); i++) {
        const SafetensorsInfo *info = safetensors_at(file, i);
        safetensors_writer_add_tensor(writer, info->name, info->n_dims == 1 ? gain : info->dtype,
                                      info->shape, info->n_dims);
    }
    safetensors_writer_add_tensor(writer, "lm_head.weight", table.dtype, table.shape, table.n_dims);
    unlink(path);
    bool fine = safetensors_writer_open(writer, path, diag);
    for (int i = 0; fine && i < safetensors_count(file); i++) {
        const SafetensorsInfo *info = safetensors_at(file, i);
        safetensors_writer_put(writer, info->name, info->data, info->n_bytes, diag);
    }
    char *copy = arena_alloc(arena, table.n_bytes + shift + 1);
    memcpy(copy + shift, table.data, table.n_bytes);
    safetensors_writer_put(writer, "lm_head.weight", copy, table.n_bytes, diag);
    CHECK(fine && safetensors_writer_commit(writer, diag), "%s", diag_text(diag));
    safetensors_close(file);
    bool opened = hf_import_open(arena, dir, NULL, NULL, 0, &imported, diag);
    if (opened) hf_import_close(&imported);
    CHECK(opened == !message, "%s", diag_text(diag));
    CHECK(!message || strstr(diag_text(diag), message), "%s", diag_text(diag));
    diag_destroy(diag);
    arena_destroy(arena);
}

/* --- what cannot be exported --- */

static void expect_bad_export(const char *name, const ModelSetting *settings, int n_settings,
                              const char *like, DType dtype, const char *message) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    HfImport imported;
    check_begin(arena_printf(arena, "hf %s: export refused: %s", name, message));
    const char *path = in_scratch(arena, "weights.safetensors"), *out = in_scratch(arena, "out");
    CHECK(import(arena, fixture(arena, name), path, &imported, diag), "%s", diag_text(diag));
    const HfConfig *config = &imported.config;
    ModelSetting all[64];
    memcpy(all, config->settings, (size_t)config->n_settings * sizeof(all[0]));
    for (int i = 0; i < n_settings; i++) all[config->n_settings + i] = settings[i];
    const Model *model = model_load_shipped(arena, config->family->script, all,
                                            config->n_settings + n_settings, 1, diag);
    bool fine = model && export(arena, model, path, like ? fixture(arena, like) : NULL, dtype,
                                1000000, out, diag);
    CHECK(!fine && strstr(diag_text(diag), message), "%s", diag_text(diag));
    CHECK(access(out, F_OK) != 0, "a folder was left");
    diag_destroy(diag);
    arena_destroy(arena);
}

static void test_unsaid(void) {
    const ModelSetting shared = {"shared_ffn", "30"}, head = {"head", "8"};
    expect_unsaid("deepseek", &shared, 1,
                  "shared_ffn is 30; transformers has multiples of expert_ffn, 12");
    const ModelSetting only[] = {{"top_k", "1"}, {"normalize", "true"}};
    expect_unsaid("deepseek", only, 2, "'norm_topk_prob' is true; only false is supported where");
    expect_unsaid("olmoe", &head, 1, "head is 8; transformers has model / heads there, 4");
    const ModelSetting types[] = {{"types", "0"}, {"transform", "true"}};
    expect_unsaid("bert", types, 2, "types is 0; transformers has only 'type_vocab_size' above 0");
    expect_unsaid("bert", &(ModelSetting){"head", "16"}, 1, "transformers has model / heads there");
    expect_unsaid("qwen3_next", &(ModelSetting){"pattern", "DDM"}, 1,
                  "'pattern' has layers 'M', which transformers does not have there");
    expect_unsaid("mamba2", &(ModelSetting){"state_values", "3"}, 1,
                  "state_groups state_heads x state_values is 18; transformers has multiples of");
    expect_unsaid("granite4", &(ModelSetting){"shared", "false"}, 1,
                  "transformers has no model of these settings; 'num_local_experts' is 0 with "
                  "feed=swiglu, or more");
    expect_said("granite4", (ModelSetting){"pattern", "AM"}, "layer_types",
                "[\"attention\",\"mamba\",\"attention\"]");
    expect_said("bamba", (ModelSetting){"pattern", "MAA"}, "attn_layer_indices", "[1,2]");
    expect_said("bamba", (ModelSetting){"state_heads", "4"}, "mamba_n_heads", "8");
    expect_said("granite4", (ModelSetting){"rotary", "true"}, "position_embedding_type",
                "\"rope\"");
    expect_said("lfm2", (ModelSetting){"pattern", "AC"}, "layer_types",
                "[\"full_attention\",\"conv\",\"full_attention\",\"conv\"]");
    expect_said("lfm2", (ModelSetting){"pattern", "AC"}, "full_attn_idxs", "[0,2]");
    expect_said("lfm2", (ModelSetting){"ffn", "7"}, "intermediate_size", "7");
    expect_said("nemotron_h", (ModelSetting){"pattern", "FMA"}, "layers_block_type",
                "[\"mlp\",\"linear_attention\",\"full_attention\",\"mlp\",\"linear_att...");
    expect_said("nemotron_h", (ModelSetting){"state_floor", "0"}, "time_step_min", "0.0");
    expect_unsaid("nemotron_h", &(ModelSetting){"pattern", "MC"}, 1, "'pattern' has layers 'C'");
    expect_said("falcon_h1", (ModelSetting){"state_values", "3"}, "mamba_d_ssm", "18");
    expect_said("falcon_h1", (ModelSetting){"feed_scales", "2,3"}, "mlp_multipliers", "[2.0,3.0]");
    expect_said("lfm2", (ModelSetting){"ffn", "7"}, "block_auto_adjust_ff_dim", "false");
    expect_unsaid("lfm2", &(ModelSetting){"pattern", "MAC"}, 1, "'pattern' has layers 'M', which");
    expect_said("granite4_dense", (ModelSetting){"ffn", "7"}, "shared_intermediate_size", "7");
    expect_said("roberta", (ModelSetting){"pad_token", "-1"}, "model_type", "\"bert\"");
    expect_said("roberta", (ModelSetting){"seq", "9"}, "max_position_embeddings", "12");
    expect_said("granite", (ModelSetting){"attention_scale", "0"}, "attention_multiplier", "0.5");
    expect_said("gemma3", (ModelSetting){"rotary_local_base", "0"}, "rope_local_base_freq",
                "100.0");
    expect_said("starcoder2", (ModelSetting){"window", "0"}, "model_type", "\"starcoder2\"");
}

static void test_bad_exports(void) {
    const ModelSetting bias = {"qkv_bias", "true"};
    const ModelSetting both = {"norms", "both"};
    const ModelSetting rms = {"norm", "rmsnorm"}, ffn = {"ffn", "32"}, layers = {"layers", "1"};
    expect_bad_export("llama", &bias, 1, NULL, DTYPE_F32, "has no tensor 'blocks.0.attn.bq'");
    expect_bad_export("llama", &ffn, 1, NULL, DTYPE_F32, "does not have the model's shape f32[");
    expect_bad_export("llama", &layers, 1, NULL, DTYPE_F32, "has a tensor \"blocks.1.");
    expect_bad_export("qwen3", &both, 1, NULL, DTYPE_F32,
                      "transformers has no model of these settings; from llama.lua it has: llama");
    expect_bad_export("llama", NULL, 0, "qwen2", DTYPE_F32,
                      "transformers has no model of these settings; from llama.lua it has: qwen2");
    expect_bad_export("llama", NULL, 0, "gpt2", DTYPE_F32, "is of a gpt2, which a 'llama' is not");
    expect_bad_export("gpt2", &rms, 1, NULL, DTYPE_F32, "has no model of these settings");
    const ModelSetting skip = {"rotary_skip", "2"}, factor = {"rotary_scaling", "linear"};
    const ModelSetting after = {"norms", "after"}, every = {"full_every", "3"};
    expect_bad_export("smollm3", &skip, 1, NULL, DTYPE_F32, "has no model of these settings");
    expect_bad_export("phi3", &factor, 1, "phi3", DTYPE_F32,
                      "'rotary_scaling' is 'linear', which transformers does not have");
    expect_bad_export("phi3_long", NULL, 0, "llama", DTYPE_F32,
                      "llama with rotary_share=1 rotary_short= rotary_long=");
    expect_bad_export("gemma3", &every, 1, NULL, DTYPE_F32, "has no model of these settings");
    expect_bad_export("granite", &after, 1, NULL, DTYPE_F32,
                      "; granite with norms=before; stablelm");
    const ModelSetting letter = {"pattern", "DDM"}, width = {"state_values", "3"};
    const ModelSetting beside = {"shared", "false"}, all = {"state_norm", "all"};
    expect_bad_export("qwen3_next", &letter, 1, NULL, DTYPE_F32,
                      "has no place in Hugging Face's qwen3_next");
    expect_bad_export("mamba2", &width, 1, NULL, DTYPE_F32, "does not have the model's shape");
    expect_bad_export("mamba2", &all, 1, NULL, DTYPE_F32,
                      "mamba2 with state_norm=group; falcon_h1 with");
    const ModelSetting sigmoid = {"scores", "sigmoid"}, shared = {"shared_ffn", "30"};
    const ModelSetting gate = {"shared_gate", "true"}, heads[] = {{"heads", "2"}, {"head", "4"}};
    expect_bad_export("granite4", &beside, 1, NULL, DTYPE_F32,
                      "has a tensor \"blocks.0.moe.shared.");
    expect_bad_export("mixtral", &sigmoid, 1, NULL, DTYPE_F32, "from moe.lua it has: mixtral");
    expect_bad_export("deepseek", &shared, 1, NULL, DTYPE_F32,
                      "does not have the model's shape f32[model=16, shared_ffn=30]");
    expect_bad_export("deepseek", &gate, 1, NULL, DTYPE_F32, "has no model of these settings");
    expect_bad_export("olmoe", heads, 2, NULL, DTYPE_F32, "does not have the model's shape");
}

int main(void) {
    if (!mkdtemp(scratch)) BUG("no folder in /tmp");
    for (int i = 0; i < N_FIXTURES; i++) test_logits(FIXTURES[i].name);
    test_gradients("t5");
    test_gradients("t5_v1_1");
    test_gradients("gemma3");
    test_gradients("gpt_neox");
    test_gradients("gpt_oss");
    test_gradients("mamba2");
    test_gradients("qwen3_next");
    test_gradients("ernie4_5_moe");
    test_gradients("llama4_scout");
    test_gradients("glm4");
    test_gradients("cohere2");
    test_gradients("modernbert");
    test_gradients("distilbert");
    test_gradients("lfm2");
    test_gradients("falcon_h1");
    test_gradients("nemotron_h");
    test_gradients("kimi_linear");
    test_round_trips();
    test_fused();
    test_paired_adapters("ernie4_5_moe");
    test_paired_adapters("llama4_scout");
    expect_bad_configs(BAD, sizeof(BAD) / sizeof(BAD[0]));
    test_bad_files();
    test_bad_experts();
    test_bad_exports();
    test_unsaid();
    test_tied_twice(0, SAFETENSORS_F32, NULL);
    test_tied_twice(4, SAFETENSORS_F32, "is another table than the embeddings'");
    test_tied_twice(0, SAFETENSORS_I32, "is I32; only F32, BF16 and F16 are supported");
    test_mutations("llama", "config.json", 4096);
    test_mutations("llama31", "config.json", 4096);
    test_mutations("gpt2", "config.json", 4096);
    test_mutations("mixtral", "config.json", 4096);
    test_mutations("ernie4_5_moe", "config.json", 4096);
    test_mutations("minimax_m2", "config.json", 4096);
    test_mutations("llama4_scout", "config.json", 4096);
    test_mutations("deepseek", "config.json", 4096);
    test_mutations("gemma3", "config.json", 4096);
    test_mutations("gpt_neox", "config.json", 4096);
    test_mutations("phi3_long", "config.json", 4096);
    test_mutations("gemma3_pictures", "config.json", 4096);
    test_mutations("bamba", "config.json", 4096);
    test_mutations("granite4", "config.json", 4096);
    test_mutations("llama_classes", "config.json", 4096);
    test_mutations("olmo3", "config.json", 4096);
    test_mutations("qwen2_windows", "config.json", 4096);
    test_mutations("exaone4", "config.json", 4096);
    test_mutations("modernbert", "config.json", 4096);
    test_mutations("distilbert", "config.json", 4096);
    test_mutations("lfm2", "config.json", 4096);
    test_mutations("falcon_h1", "config.json", 4096);
    test_mutations("nemotron_h", "config.json", 4096);
    test_mutations("nemotron_h_older", "config.json", 4096);
    test_mutations("kimi_linear", "config.json", 4096);
    test_mutations("kimi_linear_older", "config.json", 4096);
    test_mutations("lfm2_older", "config.json", 4096);
    test_mutations("modernbert_older", "config.json", 4096);
    test_mutations("llama", "model.safetensors.index.json", 4096);
    test_mutations("llama31", "model.safetensors", 3000);
    remove_scratch();
    return check_report();
}
