/* Decoding against the forward pass of training: logits of every position, prompts in chunks of any
 * size, several sequences of different lengths side by side, from models and from plans.
 *
 * Would catch: latents taken for keys or values, keys or values in the wrong place of a cache or of
 * another sequence, positions that are off by a chunk (rotary, tables, masks, windows, documents),
 * experts that drop tokens or mix them up, rows that depend on what is beside them, products of few
 * rows that are wrong, and a model that looks elsewhere and is taken for one that does not.
 */
#include "planner/decode/decode.h"
#include "runtime/decoder.h"
#include "tests/unit/check.h"
#include "tests/unit/train_fixture.h"

#include <unistd.h>

enum { BATCH = 2, SEQ = 24, VOCAB = 61, SEPARATOR = 5 };

typedef struct Variant {
    const char *name, *path;
    ModelSetting settings[20]; /* up to the first without a key */
} Variant;

/* clang-format off */
#define SIZES {"model", "32"}, {"heads", "4"}, {"layers", "2"}
#define LLAMA SIZES, {"kv_heads", "2"}, {"ffn", "48"}
#define MOE LLAMA, {"experts", "6"}, {"expert_ffn", "24"}, {"shared_ffn", "16"}, {"capacity", "0"}
#define STATES LLAMA, {"state_groups", "2"}, {"state_heads", "3"}, {"state_keys", "10"}, \
    {"state_values", "6"}
static const Variant VARIANTS[] = {
    {"gpt", "models/gpt.lua", {SIZES}},
    {"gpt, own head, rmsnorm, dropout", "models/gpt.lua",
     {SIZES, {"tied", "false"}, {"norm", "rmsnorm"}, {"dropout", "0.2"}}},
    {"gpt, documents", "models/gpt.lua", {SIZES, {"documents", "5"}}},
    {"llama", "models/llama.lua", {LLAMA}},
    {"llama 3.1, biases", "models/llama.lua",
     {LLAMA, {"rotary_scaling", "llama3"}, {"rotary_factor", "8"}, {"rotary_context", "16"},
      {"qkv_bias", "true"}, {"tied", "true"}}},
    {"llama, norms of q and k, window", "models/llama.lua",
     {LLAMA, {"qk_norm", "true"}, {"window", "5"}, {"rotary_scaling", "linear"},
      {"rotary_factor", "2"}}},
    {"llama, documents, window", "models/llama.lua",
     {LLAMA, {"documents", "5"}, {"window", "7"}}},
    {"gemma", "models/gemma.lua", {LLAMA, {"window", "6"}}},
    {"gemma 3", "models/gemma.lua",
     {LLAMA, {"window", "4"}, {"layers", "3"}, {"full_every", "3"}, {"qk_norm", "true"},
      {"softcap", "0"}, {"logit_softcap", "0"}, {"rotary_scaling", "linear"},
      {"rotary_local_base", "50"}}},
    {"llama, norms after, no positions in each second layer, scaled", "models/llama.lua",
     {LLAMA, {"norms", "after"}, {"qk_norm", "true"}, {"qk_norm_over", "all"},
      {"rotary_skip", "2"}, {"residual_scale", "0.5"}, {"embedding_scale", "3"},
      {"attention_scale", "0.2"}, {"logit_divisor", "2"}}},
    {"sinks", "tests/models/sinks.lua",
     {SIZES, {"kv_heads", "2"}, {"separator", "5"}}},
    {"gpt-oss", "models/gptoss.lua",
     {SIZES, {"kv_heads", "2"}, {"experts", "6"}, {"expert_ffn", "24"}, {"capacity", "0"},
      {"window", "7"}, {"rotary_scaling", "yarn"}, {"rotary_context", "16"}}},
    {"neox", "models/neox.lua", {SIZES, {"ffn", "48"}}},
    {"neox as phi, as starcoder", "models/neox.lua",
     {SIZES, {"ffn", "48"}, {"shared_norm", "true"}, {"rotary_share", "0.8"}, {"window", "5"},
      {"head_bias", "true"}, {"kv_heads", "2"}, {"documents", "5"}}},
    {"moe", "models/moe.lua", {MOE}},
    {"moe, shared, sigmoid", "models/moe.lua",
     {MOE, {"shared", "true"}, {"shared_gate", "true"}, {"scores", "sigmoid"},
      {"dense_layers", "1"}}},
    {"hybrid", "models/hybrid.lua", {STATES, {"layers", "3"}, {"pattern", "MDA"}}},
    {"hybrid, documents, shared experts", "models/hybrid.lua",
     {STATES, {"pattern", "DM"}, {"feed", "moe"}, {"shared", "true"}, {"documents", "5"},
      {"experts", "6"}, {"capacity", "0"}, {"state_norm", "group"}}},
    {"state spaces alone", "models/hybrid.lua",
     {STATES, {"pattern", "M"}, {"feed", "none"}, {"taps", "1"}, {"tied", "true"}}},
    {"deepseek", "models/deepseek.lua",
     {SIZES, {"ffn", "48"}, {"experts", "6"}, {"expert_ffn", "24"}, {"shared_ffn", "16"},
      {"capacity", "0"}, {"groups", "3"}, {"top_k", "3"}, {"mtp", "1"}, {"documents", "5"},
      {"kv_rank", "6"}}},
    {"deepseek of long positions", "models/deepseek.lua",
     {SIZES, {"ffn", "48"}, {"experts", "6"}, {"expert_ffn", "24"}, {"capacity", "0"},
      {"routing", "greedy"}, {"q_rank", "0"}, {"rotary_scaling", "yarn"}, {"value", "20"},
      {"rotary_context", "16"}, {"rotary_many", "2"}, {"kv_rank", "5"}}},
    {"deepseek of long latents", "models/deepseek.lua",
     {SIZES, {"ffn", "48"}, {"dense_layers", "2"}, {"kv_rank", "128"}}},
};
/* clang-format on */
enum { N_VARIANTS = sizeof(VARIANTS) / sizeof(VARIANTS[0]) };

static char weights_path[] = "/tmp/test_decode-XXXXXX";

/* f32: sums in another order. In bf16 a value that is rounded the other way is 2^-8 off, and so is
 * what follows. */
static double tolerance(DType precision) {
    return precision == DTYPE_F32 ? 1e-5 : 0.04;
}

static int fill_settings(const Variant *variant, ModelSetting *out) {
    int n = 0;
    for (; variant->settings[n].key; n++) out[n] = variant->settings[n];
    out[n++] = (ModelSetting){"seq", "24"};
    out[n++] = (ModelSetting){"vocab", "61"};
    return n;
}

/* What training's forward pass gives, and weights on disk. */
typedef struct Expected {
    Run run;
    int32_t tokens[BATCH * SEQ];
    float logits[BATCH * SEQ * VOCAB];
} Expected;

static bool expect(Expected *e, const Variant *variant, DType precision) {
    const Layout one = {1, 1, 1, BATCH, 1, "1f1b", false, NULL, 0};
    ModelSetting settings[22];
    int n = fill_settings(variant, settings);
    run_precision = precision;
    bool done = run_plan(&e->run, variant->path, settings, n, &one, BATCH, true) &&
                run_start(&e->run) && run_steps(&e->run, 3, 1e-2) &&
                engine_save(e->run.engine, weights_path, e->run.diag);
    run_precision = DTYPE_F32;
    if (!done) return false;
    int32_t labels[BATCH * SEQ];
    fill_batch(e->run.plan, 9, e->tokens, labels);
    for (int i = 3; i < BATCH * SEQ; i += 9) e->tokens[i] = SEPARATOR;
    return engine_logits(e->run.engine, e->tokens, e->logits, e->run.diag);
}

typedef struct Decoding {
    Arena *arena;
    Diag *diag;
    Plan *plan;
    Engine *engine;
    Decoder *decoder;
    DecodeObstacle obstacle;
} Decoding;

static void decoding_close(Decoding *d) {
    engine_destroy(d->engine);
    arena_destroy(d->arena);
    diag_destroy(d->diag);
}

static bool decoding_open(Decoding *d, const Graph *forward, int n_blocks, DType precision,
                          int sequences, int chunk) {
    DecodeRequest request = {.model = "m",
                             .forward = forward,
                             .n_blocks = n_blocks,
                             .context = SEQ,
                             .vocab = VOCAB,
                             .precision = precision,
                             .sequences = sequences,
                             .chunk = chunk};
    d->plan = decode_plan(d->arena, &request, &d->obstacle, d->diag);
    if (!d->plan) return false;
    d->engine = engine_create(d->plan, &(EngineOptions){.n_threads = run_threads}, d->diag);
    if (!d->engine || !engine_load(d->engine, weights_path, d->diag)) return false;
    d->decoder = decoder_create(d->engine, d->plan, d->arena);
    return true;
}

static Decoding decoding_create(void) {
    return (Decoding){.arena = arena_create(), .diag = diag_create()};
}

static bool decoding_from_model(Decoding *d, const Variant *variant, DType precision, int sequences,
                                int chunk) {
    ModelSetting settings[22];
    int n = fill_settings(variant, settings);
    *d = decoding_create();
    Model *model = model_load(d->arena, variant->path, settings, n, 1, d->diag);
    return model && decoding_open(d, model->graph, model->n_blocks, precision, sequences, chunk);
}

/* Logits behind position `at` of sequence b are those of training. */
static void compare(const Expected *e, int b, int at, const float *logits, DType precision,
                    const char *when) {
    const float *want = e->logits + (b * SEQ + at) * VOCAB;
    float off[VOCAB];
    for (int i = 0; i < VOCAB; i++) off[i] = logits[i] - want[i];
    double error = largest(off, VOCAB) / largest(e->logits, BATCH * SEQ * VOCAB);
    CHECK(error <= tolerance(precision), "%s: sequence %d, position %d: off by %.3g", when, b, at,
          error);
}

/* Two sequences of different lengths are read in pieces, then both are written on. */
static void check_decoding(const Expected *e, Decoding *d, DType precision, const int cuts[BATCH]) {
    float *logits = ARENA_ARRAY(d->arena, float, BATCH *VOCAB);
    int32_t next[BATCH];
    for (int b = 0; b < BATCH; b++) {
        const int32_t *tokens = e->tokens + b * SEQ;
        bool fine = decoder_read(d->decoder, b, tokens, cuts[b], logits, d->diag);
        CHECK(fine, "%s", diag_text(d->diag));
        compare(e, b, cuts[b] - 1, logits, precision, "read");
        fine = decoder_read(d->decoder, b, tokens + cuts[b], 2, logits, d->diag);
        CHECK(fine, "%s", diag_text(d->diag));
        compare(e, b, cuts[b] + 1, logits, precision, "read on");
    }
    for (bool going = true; going;) {
        going = false;
        for (int b = 0; b < BATCH; b++) {
            int64_t at = d->decoder->lengths[b];
            next[b] = at < SEQ ? e->tokens[b * SEQ + at] : -1;
            going |= at < SEQ;
        }
        if (!going) break;
        CHECK(decoder_write(d->decoder, next, logits, d->diag), "%s", diag_text(d->diag));
        for (int b = 0; b < BATCH; b++) {
            if (next[b] < 0) continue;
            compare(e, b, (int)d->decoder->lengths[b] - 1, logits + b * VOCAB, precision,
                    "written");
        }
    }
}

static void test_variant(const Variant *variant, DType precision) {
    static const int CUTS[][BATCH] = {{3, 12}, {1, 9}, {21, 5}};
    static const int CHUNKS[] = {5, 1, 32};
    char name[128];
    Expected e;
    snprintf(name, sizeof(name), "%s in %s: decoded as trained", variant->name,
             dtype_name(precision));
    check_begin(name);
    bool done = expect(&e, variant, precision);
    CHECK(done, "%s", diag_text(e.run.diag));
    for (int i = 0; done && i < (precision == DTYPE_F32 ? 3 : 1); i++) {
        Decoding d;
        bool fine = decoding_from_model(&d, variant, precision, BATCH, CHUNKS[i]);
        CHECK(fine, "%s %s", d.obstacle.what ? d.obstacle.what : "", diag_text(d.diag));
        if (fine) check_decoding(&e, &d, precision, CUTS[i]);
        decoding_close(&d);
    }
    if (done) { /* and from the plan's own program, fused as it is */
        Decoding d = decoding_create();
        bool fine = decoding_open(&d, e.run.plan->programs[0].graph, e.run.plan->n_blocks,
                                  precision, BATCH, 7);
        CHECK(fine, "plan: %s %s", d.obstacle.what ? d.obstacle.what : "", diag_text(d.diag));
        if (fine) check_decoding(&e, &d, precision, CUTS[0]);
        decoding_close(&d);
    }
    run_close(&e.run);
    check_end();
}

/* Models that are no GPT: what looks back otherwise than by attention is an obstacle with its line,
 * and what is not decodes to the same logits. */
typedef struct Unusual {
    const char *name;
    int line; /* of the obstacle; 0: there is none */
} Unusual;

static const Unusual UNUSUAL[] = {
    {"context", 11}, {"parts", 42},    {"gemma", 0},      {"held", 0},      {"latents", 0},
    {"masked", 0},   {"muon", 0},      {"neighbours", 0}, {"no_blocks", 0}, {"odd", 0},
    {"parallel", 0}, {"penalties", 0}, {"shared", 0},     {"skips", 0},     {"summed", 0},
};
enum { N_UNUSUAL = sizeof(UNUSUAL) / sizeof(UNUSUAL[0]) };

static void test_unusual(const Unusual *unusual) {
    static const int CUTS[BATCH] = {4, 11};
    char name[128], path[128];
    Expected e;
    Decoding d;
    snprintf(name, sizeof(name), "%s.lua: %s", unusual->name,
             unusual->line ? "an obstacle" : "decoded as trained");
    snprintf(path, sizeof(path), "tests/models/%s.lua", unusual->name);
    const Variant variant = {name, path, {{0}}};
    check_begin(name);
    bool done = expect(&e, &variant, DTYPE_F32);
    CHECK(done, "%s", diag_text(e.run.diag));
    if (done) {
        bool fine = decoding_from_model(&d, &variant, DTYPE_F32, BATCH, 5);
        CHECK(fine == !unusual->line && fine == !d.obstacle.what, "line %d: %s %s",
              d.obstacle.loc.line, d.obstacle.what ? d.obstacle.what : "", diag_text(d.diag));
        CHECK(d.obstacle.loc.line == unusual->line, "line %d", d.obstacle.loc.line);
        if (fine) check_decoding(&e, &d, DTYPE_F32, CUTS);
        decoding_close(&d);
    }
    run_close(&e.run);
    check_end();
}

/* A state has all positions in it: copied whole, never cut, and forgotten when its sequence is. */
static void test_states(const Variant *variant) {
    Expected e;
    Decoding d;
    float logits[BATCH * VOCAB];
    check_begin("states of sequences that are copied, cut and cleared");
    bool done =
        expect(&e, variant, DTYPE_F32) && decoding_from_model(&d, variant, DTYPE_F32, BATCH, 5);
    CHECK(done, "%s", diag_text(e.run.diag));
    if (done) {
        decoder_read(d.decoder, 0, e.tokens, 11, logits, d.diag);
        decoder_copy(d.decoder, 0, 1);
        CHECK(decoder_cut(d.decoder, 0, 11) == 11, "nothing is behind");
        CHECK(decoder_cut(d.decoder, 0, 10) == 0, "a position was taken out of a state");
        decoder_read(d.decoder, 1, e.tokens + 11, 3, logits, d.diag);
        compare(&e, 0, 13, logits, DTYPE_F32, "a copy read on");
        decoder_read(d.decoder, 0, e.tokens, 6, logits, d.diag);
        compare(&e, 0, 5, logits, DTYPE_F32, "read again");
        decoder_clear(d.decoder, 1);
        decoder_read(d.decoder, 1, e.tokens + SEQ, 7, logits, d.diag);
        compare(&e, 1, 6, logits, DTYPE_F32, "another sequence in its place");
        decoding_close(&d);
    }
    run_close(&e.run);
    check_end();
}

/* A plan says its vocabulary, and may lie: nobody may write more logits than that. */
static void test_other_vocabulary(void) {
    check_begin("a graph with more logits than the vocabulary is an obstacle");
    Run run = {.arena = arena_create(), .diag = diag_create()};
    ModelSetting settings[22];
    int n = fill_settings(&VARIANTS[0], settings);
    run.model = model_load(run.arena, VARIANTS[0].path, settings, n, 1, run.diag);
    CHECK(run.model, "%s", diag_text(run.diag));
    for (int64_t vocab = 1; run.model && vocab <= VOCAB; vocab += VOCAB - 1) {
        DecodeObstacle obstacle;
        DecodeRequest request = {.model = "x",
                                 .forward = run.model->graph,
                                 .n_blocks = run.model->n_blocks,
                                 .context = SEQ,
                                 .vocab = vocab,
                                 .sequences = 1,
                                 .chunk = 5};
        bool made = decode_plan(run.arena, &request, &obstacle, run.diag);
        CHECK(made == (vocab == VOCAB), "vocabulary %d: %s", (int)vocab, diag_text(run.diag));
        CHECK(made || (obstacle.what && strstr(obstacle.what, "[batch, seq, vocab]")), "%s",
              obstacle.what ? obstacle.what : "");
    }
    run_close(&run);
    check_end();
}

/* The proofs hold for these plans, too: caches have memory of their own, and training has none. */
static void test_proofs(void) {
    Decoding d;
    Expected e;
    check_begin("plans for decoding are proved");
    bool done = expect(&e, &VARIANTS[0], DTYPE_F32) &&
                decoding_from_model(&d, &VARIANTS[0], DTYPE_F32, BATCH, 5);
    CHECK(done, "%s", diag_text(e.run.diag));
    if (done) {
        const Graph *graph = d.plan->programs->graph;
        for (int n = 0; n < graph->n_nodes; n++) {
            if (graph->nodes[n]->op != OP_STATE) continue;
            Buffer *cache = &d.plan->programs->buffers[n * MAX_OUTPUTS], kept = *cache;
            cache->offset_bytes = 0; /* where the first weight is */
            CHECK(!verify_plan(d.plan, d.diag) && strstr(diag_text(d.diag), "overlap"), "%s",
                  diag_text(d.diag));
            *cache = kept;
            break;
        }
        d.plan->mesh.size[MESH_T] = 2;
        d.plan->programs->graph->mesh.size[MESH_T] = 2;
        CHECK(!verify_plan(d.plan, d.diag) && strstr(diag_text(d.diag), "has one rank, not 2"),
              "%s", diag_text(d.diag));
        d.plan->mesh.size[MESH_T] = d.plan->programs->graph->mesh.size[MESH_T] = 1;
        for (int chunk = 1; chunk < N_DECODE_CHUNKS; chunk++) { /* as training divides blocks */
            d.plan->stages->first_block[chunk] = d.plan->n_blocks;
            d.plan->stages->n_blocks[chunk] = 0;
        }
        d.plan->context = 0;
        CHECK(!verify_plan(d.plan, d.diag) && strstr(diag_text(d.diag), "training has no cache"),
              "%s", diag_text(d.diag));
        d.plan->context = SEQ;
        decoding_close(&d);
    }
    run_close(&e.run);
    check_end();
}

/* Latent attention caches latents, and them with positions of 8, not 4 x (24 + 16) numbers; those
 * only where latents are longer, or the context is shorter than four of them. */
static void test_latents(void) {
    static const struct {
        const char *rank;
        int64_t context, numbers; /* of a position and layer */
    } CASES[] = {{"32", 128, 32 + 32 + 8},
                 {"32", 127, 4 * (24 + 16)},
                 {"75", 300, 75 + 75 + 8},
                 {"76", 400, 4 * (24 + 16)}};
    for (int i = 0; i < 4; i++) {
        const Variant variant = {
            "", "models/deepseek.lua", {SIZES, {"dense_layers", "2"}, {"kv_rank", CASES[i].rank}}};
        Arena *arena = arena_create();
        Diag *diag = diag_create();
        DecodeObstacle obstacle;
        ModelSetting settings[22];
        check_begin(arena_printf(arena, "caches of latents of %s for %d", CASES[i].rank,
                                 (int)CASES[i].context));
        Model *model =
            model_load(arena, variant.path, settings, fill_settings(&variant, settings), 1, diag);
        CHECK(model, "%s", diag_text(diag));
        const DecodeRequest request = {.model = "m",
                                       .forward = model ? model->graph : NULL,
                                       .n_blocks = 2,
                                       .context = CASES[i].context,
                                       .vocab = VOCAB,
                                       .sequences = BATCH,
                                       .chunk = 5};
        const Plan *plan = model ? decode_plan(arena, &request, &obstacle, diag) : NULL;
        CHECK(plan, "%s", diag_text(diag));
        int64_t numbers = 0;
        for (int n = 0; plan && n < plan->programs->graph->n_nodes; n++) {
            const Node *node = plan->programs->graph->nodes[n];
            if (node->op == OP_STATE) numbers += type_elements(&node->types[0]);
        }
        CHECK(numbers == 2 * BATCH * CASES[i].context * CASES[i].numbers, "%lld numbers",
              (long long)numbers);
        diag_destroy(diag);
        arena_destroy(arena);
        check_end();
    }
}

int main(void) {
    int file = mkstemp(weights_path);
    if (file >= 0) close(file);
    for (int i = 0; i < N_VARIANTS; i++) {
        test_variant(&VARIANTS[i], DTYPE_F32);
        test_variant(&VARIANTS[i], DTYPE_BF16);
        if (strcmp(VARIANTS[i].name, "hybrid") == 0) test_states(&VARIANTS[i]);
    }
    test_proofs();
    test_latents();
    test_other_vocabulary();
    for (int i = 0; i < N_UNUSUAL; i++) test_unusual(&UNUSUAL[i]);
    unlink(weights_path);
    return check_report();
}
