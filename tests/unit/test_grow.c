/* Larger models that grow makes, against the small ones they are made of: the same loss, token by
 * token sums of it, wherever it says so, and another one where it does not; what is refused; noise,
 * new tokens and dtypes of what is written. */
#include "frontend/grow/grow.h"
#include "runtime/checkpoint/tensor_values.h"
#include "tests/unit/check.h"
#include "tests/unit/train_fixture.h"

#include <unistd.h>

enum { BATCH = 2, MOST_SETTINGS = 24 };

static char folder[] = "/tmp/test_grow-XXXXXX";
static char small_path[64], large_path[64];
static const Layout ONE = {
    .t = 1, .d = 1, .p = 1, .micro_batch = BATCH, .n_chunks = 1, .schedule = "1f1b"};

typedef struct Settings {
    ModelSetting items[MOST_SETTINGS];
    int n;
} Settings;

/* "a=1 b=2" */
static Settings *settings_of(Arena *arena, const char *text) {
    Settings *settings = ARENA_NEW(arena, Settings);
    settings->n = 0;
    char *rest = arena_strdup(arena, text);
    for (char *word = strtok(rest, " "); word; word = strtok(NULL, " ")) {
        char *equals = strchr(word, '=');
        *equals = '\0';
        settings->items[settings->n++] = (ModelSetting){word, equals + 1};
    }
    return settings;
}

static bool start(Arena *arena, Run *run, const char *script, const char *text) {
    const Settings *settings = settings_of(arena, text);
    const bool good =
        run_plan(run, script, settings->items, settings->n, &ONE, BATCH, false) && run_start(run);
    CHECK(good, "%s %s: %s", script, text, diag_text(run->diag));
    return good;
}

/* Weights that tell everything apart: gains about 1, biases about 0, none of them equal. */
static void draw_weights(Run *run) {
    uint64_t state = 88172645463325252ull;
    for (int i = 0; i < run->n_params; i++) {
        float *w = run_weight(run, i);
        const int64_t n = type_elements(&run->types[i]);
        for (int64_t k = 0; k < n; k++) {
            state ^= state << 13, state ^= state >> 7, state ^= state << 17;
            w[k] += 0.3f * ((float)(state >> 40) / (float)(1 << 24) - 0.5f);
        }
        engine_write_parameter(run->engine, run->names[i], w);
    }
}

static double loss_of(Run *run) {
    int32_t tokens[BATCH * 64], labels[BATCH * 64];
    double loss = NAN;
    fill_batch(run->plan, 0, tokens, labels);
    for (int i = 0; i < BATCH * 64; i++) tokens[i] %= 24; /* tokens of the small one */
    for (int i = 0; i < BATCH * 64; i++) labels[i] %= 24;
    const bool good = engine_evaluate(run->engine, tokens, labels, &loss, run->diag);
    CHECK(good, "%s", diag_text(run->diag));
    return loss;
}

#define SIZES "layers=2 model=16 heads=4 head=4 seq=16 vocab=24 "
#define LLAMA "models/llama.lua", SIZES "kv_heads=2 ffn=24 "
#define GPT   "models/gpt.lua", SIZES "kv_heads=4 ffn=24 "
#define MOE   "models/moe.lua", SIZES "kv_heads=2 ffn=24 balance=0 capacity=0 "

typedef struct Case {
    const char *name;
    const char *script, *text, *more; /* the small model's */
    const char *into, *sizes;         /* the large one's; NULL: the same script and settings, */
    const char *change;               /* and these */
    GrowDepth depth;
    double noise;
    const char *because; /* part of a reason; NULL: the outputs are the same */
} Case;

static const Case CASES[] = {
    {"gpt: width, biases, layernorm, tied, learned positions", GPT, "", NULL, NULL,
     "model=48 heads=8 kv_heads=8 ffn=48", 0, 0, NULL},
    {"gpt: size of heads", GPT, "tied=false", NULL, NULL, "head=12", 0, 0, NULL},
    {"gpt: untied out of tied", GPT, "", NULL, NULL, "tied=false model=32", 0, 0, NULL},
    {"llama: width, grouped queries, depth", LLAMA, "", NULL, NULL,
     "model=32 heads=8 kv_heads=4 ffn=72 layers=5", 0, 0, NULL},
    {"llama: larger groups, tied", LLAMA, "tied=true", NULL, NULL, "model=64 heads=8", 0, 0, NULL},
    {"qwen3: qk norm, three times", LLAMA, "qk_norm=true tied=true", NULL, NULL,
     "model=48 heads=12 kv_heads=6 layers=3", 0, 0, NULL},
    {"olmo: norms after, of all heads", LLAMA, "norms=after qk_norm=true qk_norm_over=all", NULL,
     NULL, "model=32 heads=8 kv_heads=4 layers=4", 0, 0, NULL},
    {"command r: one norm, no gate", LLAMA, "norms=shared norm=layernorm gated=false act=relu2",
     NULL, NULL, "model=32 ffn=48 layers=3", 0, 0, NULL},
    {"gemma: softcaps, gains more than 1", "models/gemma.lua", SIZES "kv_heads=2 ffn=24 ", "", NULL,
     NULL, "ffn=48 kv_heads=4 heads=8 layers=4", 0, 0, NULL},
    {"gpt-oss: windows in turn, sinks", "models/gptoss.lua",
     SIZES "kv_heads=2 window=4 expert_ffn=24 experts=4 top_k=2 balance=0 ", "", NULL, NULL,
     "model=32 heads=8 kv_heads=4 layers=6", 0, 0, NULL},
    {"hybrid: layers with a state", "models/hybrid.lua", "layers=4 seq=16 vocab=24 ", "", NULL,
     NULL, "layers=8", 0, 0, NULL},
    {"adapters, of a higher rank", LLAMA, "lora=2", NULL, NULL, "model=32 lora=4", 0, 0, NULL},
    {"new biases of zeros", LLAMA, "", NULL, NULL, "qkv_bias=true out_bias=true", 0, 0, NULL},
    {"experts, upcycled", LLAMA, "", MOE "experts=4 expert_ffn=24", "", 0, 0, NULL},
    {"experts, wider and deeper, with a shared one", LLAMA, "",
     MOE "experts=4 expert_ffn=48 shared=true shared_ffn=24", "model=32 layers=3 heads=8", 0, 0,
     NULL},
    {"slices of a layer", LLAMA, "", MOE "experts=6 expert_ffn=8 top_k=3", "", 0, 0, NULL},
    {"slices, sigmoid, scaled", LLAMA, "",
     MOE "experts=8 expert_ffn=12 top_k=4 scores=sigmoid gate_scale=2.5 bias=true", "", 0, 0, NULL},
    {"all experts, gates not normalised", LLAMA, "",
     MOE "experts=2 expert_ffn=24 top_k=2 normalize=false", "", 0, 0, NULL},
    {"more experts", MOE, "experts=3 expert_ffn=24 top_k=1 normalize=false", NULL, NULL,
     "experts=9 top_k=3 expert_ffn=48", 0, 0, NULL},
    {"more experts, sigmoid, biases", MOE,
     "experts=2 expert_ffn=24 top_k=1 scores=sigmoid normalize=false bias=true", NULL, NULL,
     "experts=4 top_k=2 model=32 layers=3", 0, 0, NULL},
    {"stacked", LLAMA, "", NULL, NULL, "layers=4", GROW_STACK, 0, "--depth stack"},
    {"interleaved", LLAMA, "", NULL, NULL, "layers=3", GROW_INTERLEAVE, 0, "--depth interleave"},
    {"noise", LLAMA, "", NULL, NULL, "model=32", 0, 0.05, "noise"},
    {"more tokens", LLAMA, "", NULL, NULL, "vocab=40", 0, 0, "tokens that are new"},
    {"slices that are not all chosen", LLAMA, "", MOE "experts=6 expert_ffn=8 top_k=2", "", 0, 0,
     "no multiple of 3"},
    {"gates that sum to nothing fixed", LLAMA, "",
     MOE "experts=4 expert_ffn=24 top_k=1 normalize=false", "", 0, 0, "do not sum to a constant"},
    {"experts chosen once", MOE, "experts=3 expert_ffn=24 top_k=2", NULL, NULL, "experts=6", 0, 0,
     "not all chosen"},
};

static const char *small_settings(Arena *arena, const Case *c) {
    return arena_printf(arena, "%s%s", c->text, c->more);
}

static const char *large_settings(Arena *arena, const Case *c) {
    if (c->into) return arena_printf(arena, "%s %s", c->sizes, c->change);
    return arena_printf(arena, "%s%s %s", c->text, c->more, c->change);
}

/* Finds and writes. */
static bool grow(Arena *arena, const Case *c, Grown *grown, Diag *diag) {
    const Settings *small = settings_of(arena, small_settings(arena, c)),
                   *large = settings_of(arena, large_settings(arena, c));
    GrowOptions options = {
        .path = small_path, .to = large_path, .depth = c->depth, .noise = c->noise, .seed = 3};
    options.from = model_load(arena, c->script, small->items, small->n, 1, diag);
    options.into =
        model_load(arena, c->into ? c->into : c->script, large->items, large->n, 1, diag);
    return options.from && options.into && grow_find(arena, &options, grown, diag) &&
           grow_write(arena, &options, grown, diag);
}

static void check_reasons(const Case *c, const Grown *grown) {
    bool found = c->because == NULL;
    for (int i = 0; i < grown->n_reasons; i++) {
        CHECK(c->because, "not the same: %s", grown->reasons[i]);
        found |= c->because && strstr(grown->reasons[i], c->because);
    }
    CHECK(found, "it does not say '%s'", c->because);
}

static void check_case(const Case *c) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    Run small, large;
    Grown grown;
    check_begin(c->name);
    if (start(arena, &small, c->script, small_settings(arena, c))) {
        draw_weights(&small);
        CHECK(engine_save(small.engine, small_path, diag), "%s", diag_text(diag));
        const bool good = grow(arena, c, &grown, diag);
        CHECK(good, "%s", diag_text(diag));
        if (good) check_reasons(c, &grown);
        if (good && start(arena, &large, c->into ? c->into : c->script, large_settings(arena, c))) {
            CHECK(engine_load(large.engine, large_path, diag), "%s", diag_text(diag));
            const double is = loss_of(&large), was = loss_of(&small);
            CHECK(c->because || fabs(is - was) < 1e-5, "a loss of %.7f, not %.7f", is, was);
            CHECK(!c->because || fabs(is - was) > 1e-4, "no other loss than %.7f", was);
            run_close(&large);
        }
        run_close(&small);
    }
    arena_destroy(arena);
    diag_destroy(diag);
}

/* --- what is refused --- */

static const struct {
    const char *script, *text, *more, *into, *sizes, *change, *expected;
} REFUSED[] = {
    {LLAMA, "", NULL, NULL, "model=24", "'model' can be 16 or a multiple, as 32 or 48"},
    {LLAMA, "", NULL, NULL, "head=8", "'head' cannot grow"},
    {LLAMA, "", NULL, NULL, "layers=1", "it needs as many or more"},
    {LLAMA, "", NULL, NULL, "tied=true", "two things of the small model at once"},
    {LLAMA, "", NULL, NULL, "act=relu", "relu here, where the small model has silu"},
    {LLAMA, "", NULL, NULL, "window=4", "layer 0 has no like in the small model"},
    {LLAMA, "", NULL, NULL, "norm_eps=0.5", "a setting that is not of sizes differs"},
    {LLAMA, "", NULL, NULL, "vocab=16", "can only grow"},
    {LLAMA, "qkv_bias=true", LLAMA, "", "matmul here, where the small model has add"},
    {LLAMA, "", MOE "experts=4 expert_ffn=10", "", "or a whole part of it"},
    {GPT, "", NULL, NULL, "seq=32", "is of learned positions"},
};

static void check_refused(void) {
    for (size_t i = 0; i < sizeof(REFUSED) / sizeof(REFUSED[0]); i++) {
        const Case c = {"",
                        REFUSED[i].script,
                        REFUSED[i].text,
                        REFUSED[i].more,
                        REFUSED[i].into,
                        REFUSED[i].sizes,
                        REFUSED[i].change,
                        0,
                        0,
                        NULL};
        Arena *arena = arena_create();
        Diag *diag = diag_create();
        Grown grown;
        unlink(large_path);
        check_begin(arena_printf(arena, "refused: %s", REFUSED[i].expected));
        CHECK(!grow(arena, &c, &grown, diag), "it is not");
        CHECK(strstr(diag_text(diag), REFUSED[i].expected), "%s", diag_text(diag));
        CHECK(access(large_path, F_OK) != 0, "a file is there");
        arena_destroy(arena);
        diag_destroy(diag);
    }
}

/* --- what is written --- */

static float number_at(const SafetensorsInfo *info, int64_t at) {
    float value;
    tensor_load(info, at, 1, &value);
    return value;
}

/* Noise is as large as asked, beside each tensor's numbers; new rows are about the old ones' mean.
 */
static void check_numbers(void) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    Run small;
    Grown grown;
    SafetensorsInfo from, into;
    const Case c = {"", LLAMA, "", NULL, NULL, "model=32 vocab=40", 0, 0.05, "noise"};
    check_begin("noise and new rows");
    if (start(arena, &small, c.script, c.text)) {
        draw_weights(&small);
        CHECK(engine_save(small.engine, small_path, diag), "%s", diag_text(diag));
        run_close(&small);
    }
    CHECK(grow(arena, &c, &grown, diag), "%s", diag_text(diag));
    Safetensors *a = safetensors_open(small_path, diag), *b = safetensors_open(large_path, diag);
    if (a && b && safetensors_find(a, "wte", &from) && safetensors_find(b, "wte", &into)) {
        double squares = 0, apart = 0, beside = 0, mean[16] = {0};
        for (int64_t i = 0; i < 24 * 16; i++) {
            squares += pow((double)number_at(&from, i), 2);
            mean[i % 16] += (double)number_at(&from, i) / 24;
        }
        for (int64_t i = 0; i < 40 * 32; i++) {
            const int64_t row = i / 32, column = i % 32 % 16;
            const double is = (double)number_at(&into, i);
            const double was =
                row < 24 ? (double)number_at(&from, row * 16 + column) : mean[column];
            *(row < 24 ? &apart : &beside) += pow(is - was, 2);
        }
        const double size = sqrt(squares / (24 * 16));
        const double noise = sqrt(apart / (24 * 32)) / size;
        const double tokens = sqrt(beside / (16 * 32)) / size;
        CHECK(fabs(noise - 0.05) < 0.005, "noise of %g", noise);
        CHECK(fabs(tokens - 0.05) < 0.006, "new rows are %g from the mean", tokens);
    }
    if (a) safetensors_close(a);
    if (b) safetensors_close(b);
    arena_destroy(arena);
    diag_destroy(diag);
}

int main(void) {
    if (!mkdtemp(folder)) return 1;
    snprintf(small_path, sizeof(small_path), "%s/small.st", folder);
    snprintf(large_path, sizeof(large_path), "%s/large.st", folder);
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) check_case(&CASES[i]);
    check_numbers();
    check_refused();
    unlink(small_path);
    unlink(large_path);
    rmdir(folder);
    return check_report();
}
