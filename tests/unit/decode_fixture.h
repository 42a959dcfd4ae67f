/* What the tests of decoding share: kinds of models, what training's forward pass gives for them,
 * and sequences that are read and written by an engine of a plan for decoding. */
#ifndef TESTS_UNIT_DECODE_FIXTURE_H
#define TESTS_UNIT_DECODE_FIXTURE_H

#include "planner/decode/decode.h"
#include "runtime/decoder.h"
#include "tests/unit/check.h"
#include "tests/unit/train_fixture.h"

#include <unistd.h>

enum { BATCH = 2, SEQ = 24, VOCAB = 61, SEPARATOR = 5, PLACEHOLDER = 60 };

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
     {SIZES, {"tied", "false"}, {"norm", "rmsnorm"}, {"dropout", "0.2"},
      {"attention_dropout", "0.2"}}},
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
    {"moe, biases, groups, experts in each second layer, scaled", "models/moe.lua",
     {MOE, {"bias", "true"}, {"groups", "3"}, {"kept_groups", "2"}, {"experts_every", "2"},
      {"embedding_scale", "3"}, {"attention_scale", "0.2"}, {"residual_scale", "0.5"},
      {"logit_divisor", "2"}, {"rotary_share", "0.5"}}},
    {"llama 4", "models/llama4.lua",
     {SIZES, {"kv_heads", "2"}, {"ffn", "48"}, {"experts", "6"}, {"expert_ffn", "24"},
      {"capacity", "0"}, {"pattern", "ED"}, {"rotary_skip", "2"}, {"temperature_every", "5"}}},
    {"llama 4, documents", "models/llama4.lua",
     {SIZES, {"kv_heads", "2"}, {"experts", "6"}, {"expert_ffn", "24"}, {"capacity", "0"},
      {"rotary_skip", "2"}, {"temperature_every", "3"}, {"documents", "5"}}},
    {"hybrid", "models/hybrid.lua", {STATES, {"layers", "3"}, {"pattern", "MDA"}}},
    {"hybrid, documents, shared experts, adapters", "models/hybrid.lua",
     {STATES, {"pattern", "DM"}, {"lora", "2"}, {"lora_targets", "all"}, {"feed", "moe"},
      {"shared", "true"}, {"documents", "5"},
      {"experts", "6"}, {"capacity", "0"}, {"state_norm", "group"}}},
    {"layers of one kind each", "models/hybrid.lua",
     {STATES, {"pattern", "MFA"}, {"feed", "none"}, {"act", "relu2"}, {"rotary", "false"},
      {"state_floor", "0.1"}, {"layers", "3"}}},
    {"attention beside a state space", "models/hybrid.lua",
     {STATES, {"pattern", "P"}, {"state_normed", "false"}, {"key_scale", "0.5"},
      {"attention_in", "1.5"}, {"state_out", "0.7"}, {"state_scales", "1,2,1,0.5,1"},
      {"feed_scales", "0.5,2"}}},
    {"short convolutions, documents, adapters", "models/hybrid.lua",
     {SIZES, {"kv_heads", "2"}, {"ffn", "48"}, {"lora", "2"}, {"pattern", "CAC"}, {"taps", "3"},
      {"qk_norm", "true"}, {"documents", "5"}}},
    {"state spaces alone", "models/hybrid.lua",
     {STATES, {"pattern", "M"}, {"feed", "none"}, {"taps", "1"}, {"tied", "true"}}},
    {"decays of keys, documents", "models/hybrid.lua",
     {STATES, {"pattern", "GK"}, {"feed", "none"}, {"documents", "5"}}},
    {"kimi, adapters", "models/kimi.lua",
     {SIZES, {"ffn", "48"}, {"lora", "2"}, {"lora_targets", "all"}, {"experts", "6"},
      {"expert_ffn", "24"}, {"capacity", "0"},
      {"pattern", "KA"}, {"kv_rank", "6"}, {"q_rank", "7"}, {"state_keys", "10"},
      {"state_values", "6"}}},
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
    {"hybrid, documents, shared experts", "models/hybrid.lua",
     {STATES, {"pattern", "DM"}, {"feed", "moe"}, {"shared", "true"}, {"documents", "5"},
      {"experts", "6"}, {"capacity", "0"}, {"state_norm", "group"}}},
    {"short convolutions, documents", "models/hybrid.lua",
     {SIZES, {"kv_heads", "2"}, {"ffn", "48"}, {"pattern", "CAC"}, {"taps", "3"},
      {"qk_norm", "true"}, {"documents", "5"}}},
    {"kimi", "models/kimi.lua",
     {SIZES, {"ffn", "48"}, {"experts", "6"}, {"expert_ffn", "24"}, {"capacity", "0"},
      {"pattern", "KA"}, {"kv_rank", "6"}, {"q_rank", "7"}, {"state_keys", "10"},
      {"state_values", "6"}}},
    {"llava, two images", "models/llava.lua",
     {LLAMA, {"images", "2"}, {"patches", "32"}, {"image_token", "60"}}},
    {"llava as CLIP", "models/llava.lua",
     {LLAMA, {"patch", "16"}, {"patches", "4"}, {"pixel", "768"}, {"vision_class", "true"},
      {"vision_pre_norm", "true"}, {"vision_act", "quick_gelu"}, {"connector", "mlp"},
      {"pixel_mean", "0.4,0.5,0.6"}, {"image_token", "60"}}},
};
/* clang-format on */
enum { N_VARIANTS = sizeof(VARIANTS) / sizeof(VARIANTS[0]) };

static char weights_path[] = "/tmp/test_decode-XXXXXX";

static EngineOptions decode_options = {.n_threads = 1}; /* of engines opened from now on */
static int decode_t = 1, decode_copies = 1;             /* and of their plans */
static bool decode_scores;

/* f32: sums in another order. In bf16 a value that is rounded the other way is 2^-8 off, and so is
 * what follows; in f16 2^-11. */
static inline double tolerance(DType precision) {
    return precision == DTYPE_F32 ? 1e-5 : precision == DTYPE_F16 ? 0.005 : 0.04;
}

static inline int fill_settings(const Variant *variant, ModelSetting *out) {
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
    int32_t *rows; /* [BATCH, plan_row]: with pixels, where the model sees images */
    float logits[BATCH * SEQ * VOCAB];
} Expected;

static inline bool expect(Expected *e, const Variant *variant, DType precision) {
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
    const int64_t row = plan_row(e->run.plan);
    const bool sees = plan_pixels(e->run.plan) > 0;
    e->rows = ARENA_ARRAY(e->run.arena, int32_t, BATCH * row);
    fill_batch(e->run.plan, 9, e->rows, labels);
    for (int i = 0; i < BATCH * SEQ; i++) {
        int32_t *token = &e->rows[i / SEQ * row + i % SEQ];
        if (i % 9 == 3) *token = SEPARATOR;
        if (sees && i % 5 > 2) *token = PLACEHOLDER; /* more than there are vectors of images */
        e->tokens[i] = *token;
    }
    return engine_logits(e->run.engine, e->rows, e->logits, e->run.diag);
}

typedef struct Decoding {
    Arena *arena;
    Diag *diag;
    Plan *plan;
    Engine *engine;
    Decoder *decoder;
    DecodeObstacle obstacle;
} Decoding;

static inline void decoding_close(Decoding *d) {
    engine_destroy(d->engine);
    arena_destroy(d->arena);
    diag_destroy(d->diag);
}

static inline bool decoding_open(Decoding *d, const Graph *forward, int n_blocks, DType precision,
                                 int sequences, int chunk) {
    DecodeRequest request = {.model = "m",
                             .forward = forward,
                             .n_blocks = n_blocks,
                             .context = SEQ,
                             .vocab = VOCAB,
                             .precision = precision,
                             .sequences = sequences,
                             .chunk = chunk,
                             .scores = decode_scores,
                             .t = decode_t,
                             .copies = decode_copies,
                             .cuda = decode_options.device == DEVICE_CUDA};
    d->plan = decode_plan(d->arena, &request, &d->obstacle, d->diag);
    if (!d->plan) return false;
    d->engine = engine_create(d->plan, &decode_options, d->diag);
    if (!d->engine || !engine_load(d->engine, weights_path, d->diag)) return false;
    d->decoder = decoder_create(d->engine, d->plan, d->arena);
    return true;
}

static inline Decoding decoding_create(void) {
    return (Decoding){.arena = arena_create(), .diag = diag_create()};
}

static inline bool decoding_from_model(Decoding *d, const Variant *variant, DType precision,
                                       int sequences, int chunk) {
    ModelSetting settings[22];
    int n = fill_settings(variant, settings);
    *d = decoding_create();
    Model *model = model_load(d->arena, variant->path, settings, n, 1, d->diag);
    return model && decoding_open(d, model->graph, model->n_blocks, precision, sequences, chunk);
}

/* Logits behind position `at` of sequence b are those of training. */
static inline void compare(const Expected *e, int b, int at, const float *logits, DType precision,
                           const char *when) {
    const float *want = e->logits + (b * SEQ + at) * VOCAB;
    float off[VOCAB];
    for (int i = 0; i < VOCAB; i++) off[i] = logits[i] - want[i];
    double error = largest(off, VOCAB) / largest(e->logits, BATCH * SEQ * VOCAB);
    CHECK(error <= tolerance(precision), "%s: sequence %d, position %d: off by %.3g", when, b, at,
          error);
}

static inline void look_at_images(const Expected *e, Decoding *d) {
    const int64_t pixels = plan_pixels(e->run.plan), row = plan_row(e->run.plan);
    for (int b = 0; b < BATCH && pixels; b++) {
        const bool fine = d->decoder->pixels == pixels &&
                          decoder_look(d->decoder, b, e->rows + (b + 1) * row - pixels, d->diag);
        CHECK(fine, "%d numbers: %s", (int)d->decoder->pixels, diag_text(d->diag));
    }
}

/* Both are read to their cuts and scored on from there, several positions at a time. */
static inline void check_scoring(const Expected *e, Decoding *d, DType precision,
                                 const int cuts[BATCH]) {
    const int64_t scored = d->decoder->scored;
    float *logits = ARENA_ARRAY(d->arena, float, BATCH *scored *VOCAB);
    CHECK(scored == DECODE_SCORED, "%d positions at a time", (int)scored);
    look_at_images(e, d);
    for (int b = 0; b < BATCH; b++) {
        decoder_read(d->decoder, b, e->tokens + b * SEQ, cuts[b], logits, d->diag);
    }
    for (int round = 0; round < 4; round++) { /* of some, and then of none, nothing */
        const int32_t *tokens[BATCH];
        int64_t counts[BATCH], firsts[BATCH];
        for (int b = 0; b < BATCH; b++) {
            const int64_t left = SEQ - d->decoder->lengths[b], want = 7 * round + 3 * b;
            firsts[b] = d->decoder->lengths[b];
            tokens[b] = e->tokens + b * SEQ + firsts[b];
            counts[b] = left < want ? left : want;
            if (counts[b] > scored) counts[b] = scored;
        }
        CHECK(decoder_score(d->decoder, tokens, counts, logits, d->diag), "%s", diag_text(d->diag));
        for (int b = 0; b < BATCH; b++) {
            for (int64_t i = 0; i < counts[b]; i++) {
                compare(e, b, (int)(firsts[b] + i), logits + (b * scored + i) * VOCAB, precision,
                        "scored");
            }
        }
    }
    for (int b = 0; b < BATCH; b++) {
        CHECK(d->decoder->lengths[b] == SEQ, "sequence %d: %d positions", b,
              (int)d->decoder->lengths[b]);
        decoder_clear(d->decoder, b);
    }
}

/* Sequences that are read together have the logits that they have alone. */
static inline void check_together(const Expected *e, Decoding *d, DType precision,
                                  const int cuts[BATCH]) {
    float *logits = ARENA_ARRAY(d->arena, float, BATCH *VOCAB);
    DecoderRead reads[BATCH];
    for (int few = 0; few < 6; few += 5) {
        look_at_images(e, d);
        for (int b = 0; b < BATCH; b++) {
            reads[b] = (DecoderRead){b, e->tokens + b * SEQ, cuts[b], cuts[b] < few ? cuts[b] : few,
                                     logits + b * VOCAB};
        }
        CHECK(decoder_read_all(d->decoder, reads, BATCH, d->diag), "%s", diag_text(d->diag));
        for (int b = 0; b < BATCH; b++) {
            compare(e, b, cuts[b] - 1, logits + b * VOCAB, precision, "read together");
            decoder_clear(d->decoder, b);
        }
    }
}

/* Two sequences of different lengths are read in pieces, then both are written on. */
static inline void check_decoding(const Expected *e, Decoding *d, DType precision,
                                  const int cuts[BATCH]) {
    float *logits = ARENA_ARRAY(d->arena, float, BATCH *VOCAB);
    int32_t next[BATCH];
    if (d->decoder->pieces > 1) check_together(e, d, precision, cuts);
    look_at_images(e, d);
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

#endif
