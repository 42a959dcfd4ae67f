/* Many texts written side by side: each has, bit by bit, the logits that it has alone, and tokens
 * are drawn as a plain sampler over all of them in order draws them.
 *
 * Would catch: a prompt's piece in another's caches, a beginning that is taken from a text which
 * has it no longer, or not as reading many at a time makes it, or from before the weights changed,
 * logits of another row, bits that depend on what is read beside a text or on where it is cut.
 */
#include "frontend/commands/generate_engine.h"
#include "frontend/commands/sampler.h"
#include "tests/unit/decode_fixture.h"

#include <math.h>

const CliCommand CLI_COMMANDS[] = {{0}}; /* main.c's, which options are parsed for */

enum { SLOTS = 3, CONTEXT = 144, PART = 64, MOST_TASKS = 17, MOST_STEPS = 60 };

/* Heads that a processor's tiles take, of which a piece has fewer rows than they have; and a window
 * that begins within a block of keys. */
static const Variant WIDE_HEADS = {"llama, heads of 32, window",
                                   "models/llama.lua",
                                   {{"model", "64"},
                                    {"heads", "2"},
                                    {"layers", "2"},
                                    {"kv_heads", "2"},
                                    {"ffn", "48"},
                                    {"window", "20"}}};

/* A task's prompt: `shared` tokens that all have, then `own` ones that only those of its kind have.
 */
typedef struct WriteTask {
    int shared, own, kind, steps;
} WriteTask;

static const WriteTask TASKS[] = {
    {0, 25, 2, 5},  {40, 18, 3, 5}, {0, 61, 9, 5},   {0, 126, 10, 5}, {0, 125, 11, 5},
    {0, 25, 2, 5},  {0, 3, 1, 9},   {40, 30, 3, 12}, {40, 9, 4, 7},   {0, 25, 2, 6},
    {64, 0, 0, 5},  {80, 5, 5, 20}, {36, 12, 6, 2},  {0, 17, 7, 5},   {64, 22, 8, 9},
    {64, 22, 8, 9}, {64, 22, 8, 9},
};
enum { N_TASKS = sizeof(TASKS) / sizeof(TASKS[0]) };

static GenerateText begin(const WriteTask *task) {
    GenerateText text = {
        .n_choices = VOCAB, .end = NO_TOKEN, .answer_end = NO_TOKEN, .image_token = NO_TOKEN};
    text.text = strbuf_create();
    for (int i = 0; i < task->shared + task->own; i++) {
        const int of = i < task->shared ? 0 : task->kind;
        token_list_add(&text.tokens, (uint32_t)((i * 7 + of * 31 + i * i * (of + 3)) % VOCAB));
    }
    text.n_prompt_tokens = text.tokens.count;
    return text;
}

static uint64_t hash_logits(const float *logits) {
    uint64_t hash = 14695981039346656037u;
    const unsigned char *bytes = (const unsigned char *)logits;
    for (size_t i = 0; i < VOCAB * sizeof(float); i++) hash = (hash ^ bytes[i]) * 1099511628211u;
    return hash;
}

static bool open_engine(GenerateEngine *e, Arena *arena, Diag *diag, const Variant *variant,
                        DType precision, int n_texts) {
    ModelSetting settings[22];
    const int n = fill_settings(variant, settings);
    Model *model = model_load(arena, variant->path, settings, n, 1, diag);
    if (!model) return false;
    const DecodeRequest request = {.model = "m",
                                   .forward = model->graph,
                                   .n_blocks = model->n_blocks,
                                   .context = CONTEXT,
                                   .vocab = VOCAB,
                                   .precision = precision,
                                   .sequences = n_texts,
                                   .chunk = PART};
    *e = (GenerateEngine){.n_texts = n_texts, .context = CONTEXT, .options = {.n_threads = 1}};
    e->plan = decode_plan(arena, &request, &e->obstacle, diag);
    if (!e->plan || !generate_engine_create(e, arena, diag)) return false;
    return true;
}

/* Weights of a seed, on disk. */
static bool make_weights(const Variant *variant, uint64_t seed) {
    GenerateEngine e;
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    bool good = open_engine(&e, arena, diag, variant, DTYPE_F32, 1);
    if (good) {
        e.plan->seed = seed;
        engine_init_parameters(e.engine);
        good = engine_save(e.engine, weights_path, diag);
    }
    CHECK(good, "%s", diag_text(diag));
    generate_engine_release(&e, true);
    diag_destroy(diag);
    arena_destroy(arena);
    return good;
}

static bool load_both(GenerateEngine *one, GenerateEngine *several, Diag *diag) {
    return engine_load(one->engine, weights_path, diag) &&
           engine_load(several->engine, weights_path, diag);
}

/* What the logits of tasks from `first` on are, step by step, as hashes: each text goes on as they
 * say. */
static void write_from(GenerateEngine *e, int first, uint64_t (*hashes)[MOST_STEPS], Diag *diag) {
    static float logits[SLOTS * VOCAB];
    GenerateText texts[SLOTS];
    bool live[SLOTS] = {false};
    int task_of[SLOTS], steps[SLOTS], begun = first;
    for (int going = 1; going;) {
        going = 0;
        for (int i = 0; i < e->n_texts; i++) {
            if (!live[i] && begun < N_TASKS) {
                task_of[i] = begun;
                steps[i] = 0;
                texts[i] = begin(&TASKS[begun++]);
                generate_engine_begin(e, i);
                live[i] = true;
            }
            going += live[i];
        }
        if (!going) break;
        bool fine = generate_engine_logits(e, texts, live, logits, diag);
        CHECK(fine, "%s", diag_text(diag));
        if (!fine) return;
        for (int i = 0; i < e->n_texts; i++) {
            if (!live[i]) continue;
            const uint64_t hash = hash_logits(logits + i * VOCAB);
            hashes[task_of[i]][steps[i]] = hash;
            token_list_add(&texts[i].tokens, (uint32_t)(hash >> 20) % VOCAB);
            live[i] = ++steps[i] < TASKS[task_of[i]].steps;
            if (!live[i]) generate_text_release(&texts[i]);
        }
    }
}

static void compare_hashes(uint64_t (*want)[MOST_STEPS], uint64_t (*got)[MOST_STEPS], int first) {
    for (int t = first; t < N_TASKS; t++) {
        for (int s = 0; s < TASKS[t].steps; s++) {
            CHECK(want[t][s] == got[t][s], "text %d, step %d: other bits", t, s);
        }
    }
}

static void test_side_by_side(const Variant *variant, DType precision) {
    static uint64_t alone[MOST_TASKS][MOST_STEPS], beside[MOST_TASKS][MOST_STEPS];
    char name[160];
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    GenerateEngine one, several;
    snprintf(name, sizeof(name), "%s in %s: side by side as alone", variant->name,
             dtype_name(precision));
    check_begin(name);
    bool fine = open_engine(&one, arena, diag, variant, precision, 1) &&
                open_engine(&several, arena, diag, variant, precision, SLOTS) &&
                make_weights(variant, 1) && load_both(&one, &several, diag);
    CHECK(fine, "%s %s", diag_text(diag), one.obstacle.what ? one.obstacle.what : "");
    if (fine) {
        write_from(&one, 0, alone, diag);
        write_from(&several, 0, beside, diag);
        compare_hashes(alone, beside, 0);
        const uint64_t kept = alone[N_TASKS - 1][0];
        CHECK(alone[0][0] != alone[1][0] && alone[0][0] != alone[0][1], "all logits are alike");
        const bool states = several.decoder->states;
        CHECK(states == (several.decoder->pieces == 0), "%d rows", (int)several.decoder->pieces);
        const int64_t saved = one.decoder->n_read - several.decoder->n_read;
        CHECK(states ? saved >= 0 : saved > 200, "%d tokens less were read", (int)saved);
        /* Other weights, and fewer texts than slots: what these begin with was read just now. */
        fine = make_weights(variant, 12) && load_both(&one, &several, diag);
        CHECK(fine, "%s", diag_text(diag));
        generate_engine_forget(&several);
        write_from(&one, N_TASKS - 1, alone, diag);
        write_from(&several, N_TASKS - 1, beside, diag);
        compare_hashes(alone, beside, N_TASKS - 1);
        CHECK(alone[N_TASKS - 1][0] != kept, "the weights are as before");
    }
    generate_engine_release(&one, true);
    generate_engine_release(&several, true);
    diag_destroy(diag);
    arena_destroy(arena);
    check_end();
}

/* --- sampling --- */

enum { CHOICES = 700 };

static int before(const void *a, const void *b) {
    const SamplerCandidate *x = a, *y = b;
    if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
    return x->token - y->token;
}

/* All in order, with the library's exponentials. */
static int choose_plainly(const SamplerOptions *o, double draw, const float *logits,
                          const bool *seen) {
    SamplerCandidate all[CHOICES];
    double weights[CHOICES], sum = 0, kept_sum = 0;
    int kept = 0;
    for (int i = 0; i < CHOICES; i++) {
        const double x = (double)logits[i];
        all[i] = (SamplerCandidate){!seen[i] ? x
                                    : x > 0  ? x / o->repetition
                                             : x * o->repetition,
                                    i};
    }
    qsort(all, CHOICES, sizeof(all[0]), before);
    if (o->temperature == 0) return all[0].token;
    for (int i = 0; i < CHOICES; i++) {
        weights[i] = exp((all[i].logit - all[0].logit) / o->temperature);
        if (i < o->top_k) sum += weights[i];
    }
    while (kept < o->top_k && kept_sum < o->top_p * sum && weights[kept] >= o->min_p) {
        kept_sum += weights[kept++];
    }
    double rest = draw * kept_sum;
    for (int i = 0; i < kept; i++) {
        if ((rest -= weights[i]) < 0) return all[i].token;
    }
    return all[0].token;
}

static void test_sampler(void) {
    static const SamplerOptions OPTIONS[] = {
        {1, CHOICES, 1, 0, 1},   {0.7, CHOICES, 1, 0, 1}, {0, CHOICES, 1, 0, 1},
        {0, CHOICES, 1, 0, 1.5}, {1, 40, 1, 0, 1},        {1.3, 300, 0.9, 0, 1.2},
        {1, CHOICES, 0.8, 0, 1}, {1, CHOICES, 1, 0.1, 1}, {0.01, 5, 0.99, 0.001, 0.8},
        {50, CHOICES, 1, 0, 1},  {1e-6, 3, 1, 0, 1},
    };
    static const float SPREADS[] = {0, 0.3f, 4, 30, 2000};
    Arena *arena = arena_create();
    CliArgs *args = ARENA_NEW(arena, CliArgs);
    args->arena = arena;
    Sampler sampler = sampler_create(args, CHOICES);
    GenerateText text = {.n_choices = CHOICES, .image_token = NO_TOKEN};
    bool seen[CHOICES] = {false};
    float logits[CHOICES];
    uint64_t numbers = 5, state = 1;
    check_begin("tokens are drawn as over all of them in order");
    for (int i = 0; i < 20; i++) {
        token_list_add(&text.tokens, (uint32_t)(i * 13));
        seen[i * 13] = true;
    }
    for (int round = 0; round < 60; round++) {
        const float spread = SPREADS[round % 5];
        for (int i = 0; i < CHOICES; i++) {
            const double x = sampler_draw(&numbers) + sampler_draw(&numbers) - 1;
            logits[i] = i % 50 == 7 ? spread : spread * (float)x; /* equals among them */
        }
        for (size_t k = 0; k < sizeof(OPTIONS) / sizeof(OPTIONS[0]); k++) {
            uint64_t copy = state;
            sampler.options = OPTIONS[k];
            const int got = sampler_choose(&sampler, &state, &text, logits);
            const int want = choose_plainly(&OPTIONS[k], sampler_draw(&copy), logits, seen);
            CHECK(got == want, "round %d, options %d: %d, not %d", round, (int)k, got, want);
        }
    }
    logits[3] = NAN;
    CHECK(sampler_choose(&sampler, &state, &text, logits) < 0, "not a number");
    logits[3] = -INFINITY;
    CHECK(sampler_choose(&sampler, &state, &text, logits) < 0, "infinite");
    token_list_release(&text.tokens);
    arena_destroy(arena);
    check_end();
}

int main(void) {
    const int file = mkstemp(weights_path);
    if (file >= 0) close(file);
    static const struct {
        const char *name;
        DType precision;
    } CASES[] = {
        {"llama", DTYPE_F32},     {"llama, documents, window", DTYPE_BF16},
        {"gemma", DTYPE_F16},     {"moe", DTYPE_F32},
        {"deepseek", DTYPE_BF16}, {"hybrid", DTYPE_F32},
        {"gpt-oss", DTYPE_BF16},
    };
    for (size_t c = 0; c < sizeof(CASES) / sizeof(CASES[0]); c++) {
        for (int i = 0; i < N_VARIANTS; i++) {
            if (strcmp(VARIANTS[i].name, CASES[c].name) != 0) continue;
            test_side_by_side(&VARIANTS[i], CASES[c].precision);
        }
    }
    test_side_by_side(&WIDE_HEADS, DTYPE_BF16);
    test_side_by_side(&WIDE_HEADS, DTYPE_F32);
    test_sampler();
    unlink(weights_path);
    return check_report();
}
