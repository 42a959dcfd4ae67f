/* What tests of Hugging Face's models have in common: logits and gradients are transformers', a
 * wrong config.json is one line, and what settings are called there.
 */
#ifndef TESTS_UNIT_HF_CHECKS_H
#define TESTS_UNIT_HF_CHECKS_H

#include "planner/decode/decode.h"
#include "runtime/decoder.h"
#include "tests/unit/hf_fixture.h"

static inline int n_mutations(void) {
    return getenv("TEST_LONG") ? 1000 : 240;
}

/* What is wrong with a config.json of tests/reference/hf where one key has another value, and the
 * words that an import refuses it with. */
typedef struct BadConfig {
    const char *name, *key, *value, *message; /* value: JSON; NULL: without the key */
} BadConfig;

/* --- what is computed --- */

/* What the engine takes: each row's source, if there is an encoder, tokens, and images. */
static inline bool join_tokens(const Run *run, const Safetensors *expect, int32_t *out) {
    const int64_t row = plan_row(run->plan), n_source = plan_source(run->plan);
    const int64_t n_pixels = plan_pixels(run->plan), seq = row - n_source - n_pixels;
    SafetensorsInfo tokens, source = {0}, pixels = {0};
    bool found = safetensors_find(expect, "tokens", &tokens) && tokens.shape[1] == seq;
    if (n_source) {
        found = found && safetensors_find(expect, "source", &source) && source.shape[1] == n_source;
    }
    if (n_pixels) {
        found = found && safetensors_find(expect, "pixels", &pixels) &&
                pixels.shape[1] * pixels.shape[2] == n_pixels;
    }
    for (int64_t i = 0; found && i < BATCH * row; i++) {
        const int64_t b = i / row, at = i % row, pixel = at - n_source - seq;
        if (pixel >= 0) {
            out[i] = ((const int32_t *)pixels.data)[b * n_pixels + pixel];
            continue;
        }
        out[i] = at < n_source ? ((const int32_t *)source.data)[b * n_source + at]
                               : ((const int32_t *)tokens.data)[b * seq + at - n_source];
    }
    return found;
}

static inline void compare_logits(Run *run, const char *expect_path) {
    SafetensorsInfo tokens, logits;
    Safetensors *expect = safetensors_open(expect_path, run->diag);
    bool found = expect && safetensors_find(expect, "tokens", &tokens) &&
                 safetensors_find(expect, "logits", &logits);
    CHECK(found && tokens.shape[0] == BATCH && tokens.shape[1] == run->plan->seq, "%s",
          diag_text(run->diag));
    int64_t n = BATCH * run->plan->seq * run->plan->vocab;
    int32_t *given = ARENA_ARRAY(run->arena, int32_t, BATCH * plan_row(run->plan));
    float *ours = ARENA_ARRAY(run->arena, float, n), *theirs = ARENA_ARRAY(run->arena, float, n);
    if (found && logits.n_bytes == (size_t)n * sizeof(float)) {
        CHECK(join_tokens(run, expect, given), "%s has no tokens of these lengths", expect_path);
        memcpy(theirs, logits.data, logits.n_bytes);
        CHECK(engine_logits(run->engine, given, ours, run->diag), "%s", diag_text(run->diag));
        double most = largest(theirs, n);
        for (int64_t i = 0; i < n; i++) ours[i] -= theirs[i];
        /* f32's rounding costs up to 1.3e-6 here; norm_eps 1e-5 for 1e-6 more than 1e-4. */
        CHECK(largest(ours, n) < 1e-5 * most, "logits differ by %.2e of the largest",
              largest(ours, n) / most);
    } else {
        CHECK(false, "%s has other shapes", expect_path);
    }
    safetensors_close(expect);
}

/* The same logits position by position, from caches: half of each sequence is read, half written.
 */
static inline void compare_decoded(Run *run, const char *weights, const char *expect_path) {
    SafetensorsInfo tokens, logits;
    DecodeObstacle obstacle;
    Safetensors *expect = safetensors_open(expect_path, run->diag);
    bool found = expect && safetensors_find(expect, "tokens", &tokens) &&
                 safetensors_find(expect, "logits", &logits);
    const int64_t seq = run->plan->seq, vocab = run->plan->vocab;
    DecodeRequest request = {.model = run->model->name,
                             .forward = run->model->graph,
                             .n_blocks = run->model->n_blocks,
                             .context = seq,
                             .vocab = vocab,
                             .sequences = BATCH,
                             .chunk = 3};
    Plan *plan = found ? decode_plan(run->arena, &request, &obstacle, run->diag) : NULL;
    Engine *engine = plan ? engine_create(plan, &(EngineOptions){.n_threads = 1}, run->diag) : NULL;
    bool fine = engine && engine_load(engine, weights, run->diag);
    CHECK(fine, "%s", diag_text(run->diag));
    if (fine) {
        Decoder *decoder = decoder_create(engine, plan, run->arena);
        const int32_t *given = tokens.data;
        const float *theirs = logits.data;
        float *ours = ARENA_ARRAY(run->arena, float, BATCH *vocab);
        for (int b = 0; b < BATCH && fine; b++) {
            fine = decoder_read(decoder, b, given + b * seq, seq / 2, ours, run->diag);
        }
        for (int64_t at = seq / 2; at < seq && fine; at++) {
            const int32_t next[BATCH] = {given[at], given[seq + at]};
            fine = decoder_write(decoder, next, ours, run->diag);
            for (int64_t i = 0; i < BATCH * vocab; i++) {
                ours[i] -= theirs[(i / vocab * seq + at) * vocab + i % vocab];
            }
            double error = largest(ours, BATCH * vocab) / largest(theirs, BATCH * seq * vocab);
            CHECK(error < 1e-5, "decoded logits differ by %.2e of the largest at %d", error,
                  (int)at);
        }
        CHECK(fine, "%s", diag_text(run->diag));
    }
    engine_destroy(engine);
    safetensors_close(expect);
}

static inline void test_logits(const char *name) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    HfImport imported;
    Run run;
    check_begin(arena_printf(arena, "hf %s: logits are transformers'", name));
    const char *dir = fixture(arena, name), *path = in_scratch(arena, "weights.safetensors");
    bool fine = import(arena, dir, path, &imported, diag);
    CHECK(fine, "%s", diag_text(diag));
    if (fine) {
        CHECK(start(&run, &imported, path), "%s", diag_text(run.diag));
        const char *expected = arena_printf(arena, "%s/expect.safetensors", dir);
        compare_logits(&run, expected);
        bool writes = !plan_source(run.plan) && !plan_pixels(run.plan);
        if (writes && !strstr(name, "bert")) compare_decoded(&run, path, expected);
        run_close(&run);
    }
    diag_destroy(diag);
    arena_destroy(arena);
}

/* Every gradient, from a folder that has them in the form of weights. */
static inline void compare_gradients(Run *run, const char *path) {
    Safetensors *file = safetensors_open(path, run->diag);
    CHECK(file, "%s", diag_text(run->diag));
    for (int i = 0; file && i < run->n_params; i++) {
        /* Its place has experts' loads, which a step balances it by. */
        if (strstr(run->names[i], ".moe.bias")) continue;
        int64_t n = type_elements(&run->types[i]);
        float *ours = ARENA_ARRAY(run->arena, float, n);
        SafetensorsInfo theirs;
        bool found = safetensors_find(file, run->names[i], &theirs) &&
                     theirs.n_bytes == (size_t)n * sizeof(float) &&
                     engine_read_gradient(run->engine, run->names[i], ours);
        CHECK(found, "no gradient of '%s'", run->names[i]);
        if (!found) continue;
        double most = largest(theirs.data, n);
        for (int64_t k = 0; k < n; k++) ours[k] -= ((const float *)theirs.data)[k];
        /* A key's bias adds the same to all scores of a query: without positions that turn it, its
         * gradient is 0, and rounding in f32 is all of it. */
        const bool none = most < 1e-14 && strstr(run->names[i], ".attn.bk");
        CHECK(largest(ours, n) < (none ? 1e-7 : 2e-5 * most),
              "gradient of '%s' differs by %.2e of its largest", run->names[i],
              largest(ours, n) / most);
    }
    safetensors_close(file);
}

static inline void test_gradients(const char *name) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    HfImport imported, gradients;
    StepResult result = {0};
    SafetensorsInfo labels, loss;
    Run run;
    check_begin(arena_printf(arena, "hf %s: loss and gradients are transformers'", name));
    const char *dir = fixture(arena, name), *path = in_scratch(arena, "weights.safetensors");
    const char *other = in_scratch(arena, "again.safetensors");
    bool fine = import(arena, dir, path, &imported, diag) &&
                import(arena, arena_printf(arena, "%s_gradients", dir), other, &gradients, diag);
    Safetensors *expect = safetensors_open(arena_printf(arena, "%s/expect.safetensors", dir), diag);
    fine = fine && expect && safetensors_find(expect, "labels", &labels) &&
           safetensors_find(expect, "loss", &loss);
    CHECK(fine, "%s", diag_text(diag));
    if (fine) {
        bool started = start(&run, &imported, path);
        int32_t *given = ARENA_ARRAY(arena, int32_t, BATCH * plan_row(run.plan));
        CHECK(started && join_tokens(&run, expect, given) &&
                  engine_step(run.engine, 1, given, labels.data, 0, &result, run.diag),
              "%s", diag_text(run.diag));
        double theirs = *(const double *)loss.data;
        CHECK(fabs(result.loss - theirs) < 2e-6 * theirs, "the loss is %.8f, not %.8f", result.loss,
              theirs);
        compare_gradients(&run, other);
        run_close(&run);
    }
    safetensors_close(expect);
    diag_destroy(diag);
    arena_destroy(arena);
}

/* --- what is wrong with a folder --- */

static inline void expect_bad_configs(const BadConfig *bad, size_t n) {
    for (size_t i = 0; i < n; i++) {
        Arena *arena = arena_create();
        Diag *diag = diag_create();
        HfImport imported;
        check_begin(arena_printf(arena, "hf %s with %s %s", bad[i].name, bad[i].key,
                                 bad[i].value ? bad[i].value : "missing"));
        const char *dir = changed_fixture(arena, bad[i].name, bad[i].key, bad[i].value);
        bool opened = hf_import_open(arena, dir, NULL, NULL, 0, &imported, diag);
        if (opened) hf_import_close(&imported);
        CHECK(!opened && diag_error_count(diag) == 1, "%d errors: %s", diag_error_count(diag),
              diag_text(diag));
        CHECK(strstr(diag_text(diag), bad[i].message), "not '%s' but: %s", bad[i].message,
              diag_text(diag));
        diag_destroy(diag);
        arena_destroy(arena);
    }
}

static inline void put_file(const char *path, const void *bytes, size_t length) {
    FILE *file = fopen(path, "wb");
    CHECK(file && fwrite(bytes, 1, length, file) == length, "cannot write %s", path);
    if (file) fclose(file);
}

/* Bytes changed, cut or repeated at random: an error or a good import, nothing else. */
static inline void test_mutations(const char *name, const char *file, size_t most_bytes) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    uint64_t state = 88172645463325252ull; /* each file has damage of its own */
    for (const char *at = name; *at; at++) state = state * 31 + (unsigned char)*at;
    int n_good = 0, n_done = 0;
    size_t length;
    check_begin(arena_printf(arena, "hf %s: %s damaged at random", name, file));
    const char *dir = changed_fixture(arena, name, NULL, NULL);
    const char *path = arena_printf(arena, "%s/%s", dir, file);
    const char *good = file_read(arena, path, FILE_LIMIT_BYTES, &length, diag);
    CHECK(good, "%s", diag_text(diag));
    unlink(path);
    for (int i = 0; good && i < n_mutations(); i += VARIANT_STEP) {
        Arena *own = arena_create();
        Diag *own_diag = diag_create();
        HfImport imported;
        char *bytes = arena_alloc(own, length);
        size_t size = length;
        memcpy(bytes, good, length);
        for (int k = 0; k <= i % 4; k++) {
            state ^= state << 13, state ^= state >> 7, state ^= state << 17;
            size_t at = (size_t)(state % (length < most_bytes ? length : most_bytes));
            unsigned char digit = (unsigned char)('0' + state / 7 % 10);
            bytes[at] = (char)(state >> 40 & 1 ? digit : (unsigned char)(state >> 32));
            if (state % 31 == 0) size = at;
        }
        put_file(path, i > 0 ? bytes : good, i > 0 ? size : length); /* the first is as it was */
        bool opened = hf_import_open(own, dir, NULL, NULL, 0, &imported, own_diag);
        if (opened) hf_import_close(&imported);
        n_good += opened;
        n_done++;
        CHECK(opened == (diag_error_count(own_diag) == 0), "%s", diag_text(own_diag));
        diag_destroy(own_diag);
        arena_destroy(own);
    }
    CHECK(n_good > 0 && n_good < n_done / 2, "%d of %d were good", n_good, n_done);
    diag_destroy(diag);
    arena_destroy(arena);
}

/* --- what is said --- */

/* The configuration of a fixture with other settings, or NULL. */
static inline json_t *say(Arena *arena, const char *name, const ModelSetting *settings,
                          int n_settings, Diag *diag) {
    HfConfig config;
    if (!hf_config_read(arena, fixture(arena, name), &config, diag)) return NULL;
    ModelSetting all[64];
    memcpy(all, config.settings, (size_t)config.n_settings * sizeof(all[0]));
    for (int i = 0; i < n_settings; i++) all[config.n_settings + i] = settings[i];
    const Model *model = model_load_shipped(arena, config.family->script, all,
                                            config.n_settings + n_settings, 1, diag);
    json_decref(config.json);
    const HfType *type = model ? hf_config_type(model, config.family, NULL, HF_READER, diag) : NULL;
    return type ? hf_config_write(model, config.family, type, NULL, "float32", diag) : NULL;
}

/* What a fixture's type cannot say of its script's settings. */
static inline void expect_unsaid(const char *name, const ModelSetting *settings, int n_settings,
                                 const char *message) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    check_begin(arena_printf(arena, "hf %s: no configuration says that %s", name, message));
    json_t *json = say(arena, name, settings, n_settings, diag);
    CHECK(!json && strstr(diag_text(diag), message), "%s", diag_text(diag));
    json_decref(json);
    diag_destroy(diag);
    arena_destroy(arena);
}

/* What a script's setting, whose 0 stands for another, is called there. */
static inline void expect_said(const char *name, ModelSetting setting, const char *key,
                               const char *value) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    check_begin(arena_printf(arena, "hf %s: %s=%s is %s = %s", name, setting.key, setting.value,
                             key, value));
    json_t *json = say(arena, name, &setting, 1, diag);
    CHECK(json, "%s", diag_text(diag));
    const char *said = json ? hf_config_shown(arena, json_object_get(json, key)) : value;
    CHECK(strcmp(said, value) == 0, "it is %s", said);
    json_decref(json);
    diag_destroy(diag);
    arena_destroy(arena);
}

#endif
