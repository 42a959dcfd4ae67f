/* Weights that become another engine's (engine_copy_weights), and weights that come back
 * (engine_keep_weights).
 *
 * Would catch: a shard at another place of the whole, a parameter that is left out or read in
 * halves as whole, copies in 16 bits that stay as they were, frozen weights that are copied though
 * nobody asked, or are not though somebody did; and of those that come back whatever lets a run go
 * on otherwise by a bit: lower halves, shards, copies or weights on the host that are forgotten.
 */
#include "tests/unit/train_compare.h"

#include <unistd.h>

enum { GLOBAL_BATCH = 8, STEPS = 4 };
static const double RATE = 5e-3;
static const Layout ALONE = {1, 1, 1, 8, 1, "1f1b", false, NULL, 0};

typedef struct Source {
    const char *name, *path, *lora;
    Layout layout;
    int zero, frozen_bits, offload;
    DType precision;
    bool split;
} Source;

static bool start(Run *run, const Source *s, bool alone) {
    ModelSetting settings[] = {{"layers", "4"},   {"model", "64"}, {"heads", "4"},
                               {"seq", "16"},     {"vocab", "61"}, {"ffn", "128"},
                               {"kv_heads", "4"}, {"head", "32"},  {"lora", s->lora}};
    const bool gpt = strcmp(s->path, "models/gpt.lua") == 0;
    run_precision = s->precision;
    run_zero = alone ? 0 : s->zero;
    run_frozen_bits = alone ? 0 : s->frozen_bits;
    run_offload = alone ? 0 : s->offload;
    run_split_masters = !alone && s->split;
    bool ready = run_plan(run, s->path, settings, gpt ? 6 : 9, alone ? &ALONE : &s->layout,
                          GLOBAL_BATCH, true) &&
                 run_start(run);
    run_precision = DTYPE_F32;
    run_zero = run_frozen_bits = run_offload = 0;
    run_split_masters = false;
    CHECK(ready, "%s", diag_text(run->diag));
    return ready;
}

static double evaluate(Run *run) {
    const size_t n = GLOBAL_BATCH * 16;
    int32_t *tokens = ARENA_ARRAY(run->arena, int32_t, n);
    int32_t *labels = ARENA_ARRAY(run->arena, int32_t, n);
    double loss = NAN;
    fill_batch(run->plan, 99, tokens, labels);
    CHECK(engine_evaluate(run->engine, tokens, labels, &loss, run->diag), "%s",
          diag_text(run->diag));
    return loss;
}

static bool is_adapter(const char *name) {
    return strstr(name, ".lora_") != NULL;
}

/* Parameters of `to` that are those of `from`, to the bit. */
static int count_equal(Run *from, Run *to, bool adapters) {
    int count = 0;
    for (int i = 0; i < from->n_params; i++) {
        const int64_t n = type_elements(&from->types[i]);
        float *theirs = run_weight(from, i), *ours = ARENA_ARRAY(to->arena, float, n);
        bool there = engine_read_parameter(to->engine, from->names[i], ours);
        CHECK(there && theirs, "'%s' is not there", from->names[i]);
        if (adapters && !is_adapter(from->names[i])) continue;
        count += there && theirs && memcmp(ours, theirs, (size_t)n * sizeof(float)) == 0;
    }
    return count;
}

/* Weights of another beginning, all of them. */
static void disturb(Run *run, float by) {
    for (int i = 0; i < run->n_params; i++) {
        const int64_t n = type_elements(&run->types[i]);
        float *values = run_weight(run, i);
        for (int64_t k = 0; k < n; k++) values[k] = 0.7f * values[k] + by * (float)(k % 7 - 3);
        CHECK(engine_write_parameter(run->engine, run->names[i], values), "'%s'", run->names[i]);
    }
}

static const Source SOURCES[] = {
    {"one rank",
     "models/gpt.lua",
     "0",
     {1, 1, 1, 4, 1, "1f1b", false, NULL, 0},
     0,
     0,
     0,
     DTYPE_F32,
     false},
    {"t and p",
     "models/gpt.lua",
     "0",
     {2, 1, 2, 4, 1, "1f1b", true, NULL, 0},
     0,
     0,
     0,
     DTYPE_F32,
     false},
    {"t, p, bf16",
     "models/llama.lua",
     "0",
     {2, 1, 2, 4, 2, "interleaved", false, NULL, 0},
     0,
     0,
     0,
     DTYPE_BF16,
     false},
    {"ZeRO-3",
     "models/gpt.lua",
     "0",
     {2, 2, 1, 4, 1, "1f1b", false, NULL, 0},
     3,
     0,
     0,
     DTYPE_F32,
     false},
    {"ZeRO-3, bf16, split",
     "models/gpt.lua",
     "0",
     {1, 4, 1, 2, 1, "1f1b", false, NULL, 0},
     3,
     0,
     0,
     DTYPE_BF16,
     true},
    {"bf16, split",
     "models/llama.lua",
     "0",
     {2, 1, 1, 8, 1, "1f1b", false, NULL, 0},
     0,
     0,
     0,
     DTYPE_BF16,
     true},
    {"ZeRO-1, bf16, on the host",
     "models/gpt.lua",
     "0",
     {1, 2, 1, 4, 1, "1f1b", false, NULL, 0},
     1,
     0,
     100,
     DTYPE_BF16,
     false},
    {"adapters",
     "models/llama.lua",
     "4",
     {2, 2, 1, 2, 1, "1f1b", false, NULL, 0},
     3,
     0,
     0,
     DTYPE_F32,
     false},
    {"adapters, bf16",
     "models/llama.lua",
     "4",
     {2, 1, 2, 4, 1, "1f1b", false, NULL, 0},
     0,
     0,
     0,
     DTYPE_BF16,
     false},
    {"adapters beside 8 bits",
     "models/llama.lua",
     "4",
     {2, 1, 1, 4, 1, "1f1b", false, NULL, 0},
     0,
     8,
     0,
     DTYPE_F32,
     false},
};
enum { N_SOURCES = sizeof(SOURCES) / sizeof(SOURCES[0]) };

static void test_copy(const Source *s) {
    Run from, to;
    char name[160];
    const bool frozen = strcmp(s->lora, "0") != 0;
    snprintf(name, sizeof(name), "weights of %s become one rank's", s->name);
    check_begin(name);
    bool fine = start(&from, s, false) && run_steps(&from, 2, RATE);
    fine = start(&to, s, true) && run_steps(&to, 1, RATE) && fine;
    CHECK(fine, "%s%s", diag_text(from.diag), diag_text(to.diag));
    if (fine) {
        int adapters = 0;
        for (int i = 0; i < from.n_params; i++) adapters += is_adapter(from.names[i]);
        disturb(&to, 0.01f);
        CHECK(count_equal(&from, &to, false) == 0, "equal from the beginning");
        CHECK(engine_copy_weights(from.engine, to.engine, false, from.diag), "%s",
              diag_text(from.diag));
        int expected = frozen ? adapters : from.n_params;
        CHECK(count_equal(&from, &to, frozen) == expected && expected > 0, "not %d are equal",
              expected);
        CHECK(count_equal(&from, &to, false) == expected, "others, too");
        CHECK(engine_copy_weights(from.engine, to.engine, true, from.diag), "%s",
              diag_text(from.diag));
        int count = count_equal(&from, &to, false);
        CHECK(count == from.n_params, "%d of %d are equal", count, from.n_params);
        double theirs = evaluate(&from), ours = evaluate(&to);
        double limit = s->precision == DTYPE_F32 ? 1e-5 : 4e-3;
        CHECK(fabs(ours - theirs) < limit * theirs, "a loss of %.8g, not %.8g", ours, theirs);
    }
    run_close(&from);
    run_close(&to);
    check_end();
}

/* --- weights for a while --- */

/* Other weights for a while between two steps, and no step knows of it. */
static void test_keep(const Source *s, bool from_file) {
    Run run, other;
    char name[160], path[64];
    snprintf(path, sizeof(path), "/tmp/perilune_kept_%d.st", (int)getpid());
    snprintf(name, sizeof(name), "weights of %s come back from %s", s->name,
             from_file ? "a file's" : "others");
    check_begin(name);
    bool fine = start(&run, s, false) && run_steps(&run, 2, RATE);
    fine = start(&other, s, false) && run_steps(&other, STEPS, RATE) && fine;
    CHECK(fine, "%s%s", diag_text(run.diag), diag_text(other.diag));
    if (fine) {
        const double loss = evaluate(&run);
        EngineWeights *kept = engine_keep_weights(run.engine, from_file, run.diag);
        CHECK(kept, "%s", diag_text(run.diag));
        if (from_file) {
            fine = engine_save(other.engine, path, other.diag) &&
                   engine_load(run.engine, path, run.diag);
            CHECK(fine, "%s%s", diag_text(other.diag), diag_text(run.diag));
        } else {
            for (int i = 0; i < run.n_params; i++) {
                float *values = run_weight(&run, i);
                bool trains = strcmp(s->lora, "0") == 0 || is_adapter(run.names[i]);
                for (int64_t k = 0; k < type_elements(&run.types[i]); k++) values[k] *= -0.7f;
                if (trains) engine_write_parameter(run.engine, run.names[i], values);
            }
        }
        const double changed = evaluate(&run);
        CHECK(fabs(changed - loss) > 1e-4 * loss, "still a loss of %.8g", loss);
        for (int i = 0; i < 2; i++) {
            CHECK(engine_swap_weights(kept, run.diag), "%s", diag_text(run.diag));
            const double expected = i ? changed : loss, swapped = evaluate(&run);
            CHECK(swapped == expected, "swapped %d times: %.9g, not %.9g", i + 1, swapped,
                  expected);
        }
        CHECK(engine_restore_weights(kept, run.diag), "%s", diag_text(run.diag));
        CHECK(evaluate(&run) == loss, "a loss of %.9g, not %.9g", evaluate(&run), loss);
        CHECK(run_steps_from(&run, 2, STEPS - 2, RATE), "%s", diag_text(run.diag));
        compare_to_the_bit(&run, &other, 2, STEPS);
    }
    unlink(path);
    run_close(&run);
    run_close(&other);
    check_end();
}

int main(void) {
    for (int i = 0; i < N_SOURCES; i += VARIANT_STEP) {
        test_copy(&SOURCES[i]);
        test_keep(&SOURCES[i], i % 2);
    }
    return check_report();
}
