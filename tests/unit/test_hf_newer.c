/* Models of Hugging Face's that came last (tests/reference/hf_newer.py): an import computes what
 * transformers computes, an export gives back the bits that were imported, and what is not
 * supported is one line.
 *
 * Would catch: products of a delta rule mixed up, a temperature that begins at another token, norms
 * behind a branch in place of before it, windows of other layers, gates of experts from another
 * sum, positions of another base.
 */
#include "tests/unit/hf_checks.h"

typedef struct Fixture {
    const char *name;
    DType dtype;         /* of its files */
    const char *without; /* the type that an export without --like is; NULL: the same */
} Fixture;

/* clang-format off */
static const Fixture FIXTURES[] = {
    {"qwen3_5", DTYPE_F32, NULL},    {"qwen3_5_moe", DTYPE_BF16, NULL},
    {"qwen3_5_pictures", DTYPE_BF16, NULL},
    {"ministral", DTYPE_F32, NULL},  {"ministral3", DTYPE_F32, NULL},
    {"mistral3", DTYPE_BF16, NULL},  {"mistral3_pictures", DTYPE_BF16, "llama"}};
/* clang-format on */
enum { N_FIXTURES = sizeof(FIXTURES) / sizeof(FIXTURES[0]) };

static const BadConfig BAD[] = {
    {"qwen3_5", "attn_output_gate", "false",
     "'attn_output_gate' is false, which is not supported; only true is"},
    {"qwen3_5", "layer_types", "[\"linear_attention\"]", "it must be a list of 3, one for each"},
    {"qwen3_5_pictures", "text_config", "{\"model_type\": \"qwen3_next\"}",
     "'text_config.model_type' is \"qwen3_next\"; a qwen3_5 has \"qwen3_5_text\" there"},
    {"mistral3", "text_config", "{\"model_type\": \"llama\"}",
     "'text_config.model_type' is \"llama\"; a mistral3 has \"mistral\" or \"ministral3\" there"},
    {"ministral3", "rope_parameters", "null",
     "has no 'rope_scaling.rope_type', which a ministral3 has"},
    {"ministral3", "rope_parameters", "{\"rope_type\": \"linear\", \"factor\": 2}",
     "'rope_scaling.rope_type' is \"linear\", which is not supported; supported: yarn"},
    {"ministral3", "rope_parameters",
     "{\"rope_type\": \"yarn\", \"factor\": 0.5, \"mscale\": 1, \"mscale_all_dim\": 1}",
     "says 'rope_scaling.factor' 0.5, 'mscale' 1 and 'mscale_all_dim' 1; the first must be"},
    {"ministral3", "rope_parameters", "{\"rope_type\": \"yarn\", \"factor\": 2}",
     "has no 'rope_scaling.llama_4_scaling_beta', which a ministral3 has"}};

static void test_said(void) {
    expect_said("qwen3_5_moe", (ModelSetting){"delta_tensors", "joined"}, "model_type",
                "\"qwen3_next\"");
    expect_said("ministral", (ModelSetting){"window_layers", "W"}, "model_type", "\"mistral\"");
    expect_unsaid("ministral3", &(ModelSetting){"window_layers", "WF"}, 1,
                  "ministral3 with window_layers=W");
}

int main(void) {
    if (!mkdtemp(scratch)) BUG("no folder in /tmp");
    for (int i = 0; i < N_FIXTURES; i++) {
        const Fixture *one = &FIXTURES[i];
        test_logits(one->name);
        test_round_trip(one->name, one->dtype, false, one->without, 5000000000);
        test_round_trip(one->name, one->dtype, true, NULL, i % 2 ? 4000 : 1);
    }
    expect_bad_configs(BAD, sizeof(BAD) / sizeof(BAD[0]));
    test_said();
    test_mutations("qwen3_5_pictures", "config.json", 4096);
    test_mutations("ministral3", "config.json", 4096);
    remove_scratch();
    return check_report();
}
