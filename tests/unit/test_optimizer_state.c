/* Optimizers that keep their states in bf16 or 8 bits: that codes are the nearest and what they say
 * is what is written of them, that second moments follow what a beta2 near 1 would have them
 * follow, that training goes as with f32, under every layout, in the memory that was planned; that
 * a checkpoint goes from one to the other, and that plans with states of other dtypes are refused.
 *
 * Would catch: second moments that stand still; a state that is rounded twice, or in another way on
 * another layout; a state of f32 where bf16 is asked for; a shard of one that is read as f32; a
 * block's numbers by another's scale; a second moment that becomes nothing; a layout that cuts
 * blocks.
 */
#include "ir/moments.h"
#include "planner/verify/verify.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/cpu/moments.h"
#include "runtime/cpu/optimizer.h"
#include "runtime/cpu/vec_low.h"
#include "runtime/engine_internal.h"
#include "tests/unit/train_compare.h"

#include <unistd.h>

enum { STEPS = 6, SOME_STEPS = 16, LONG_STEPS = 60, GLOBAL_BATCH = 8, N_SETTINGS = 9 };

static const Layout ALONE = {1, 1, 1, GLOBAL_BATCH, 1, "1f1b", false, NULL, 0};

/* States in 8 bits take parameters of 4,096 elements, and rows of blocks where t divides them. */
static bool wide_model;

static bool start(Run *run, const char *optimizer, DType state, const Layout *layout, bool text) {
    const ModelSetting settings[N_SETTINGS] = {{"optimizer", optimizer},
                                               {"optimizer.eps", "1e-6"},
                                               {"model", wide_model ? "128" : "32"},
                                               {"heads", "4"},
                                               {"seq", "16"},
                                               {"vocab", "61"},
                                               {"layers", "4"},
                                               {"ffn", wide_model ? "128" : "70"},
                                               {"optimizer.momentum", "0.9"}};
    run_state_dtype = state;
    bool fine = run_plan(run, "models/gpt.lua", settings, N_SETTINGS, layout, GLOBAL_BATCH, text);
    run_state_dtype = DTYPE_F32;
    return fine && run_start(run);
}

/* --- codes --- */

enum { BLOCK = WEIGHT_BLOCK };

/* What a code of n stretches says, in f64, and the code below which that of q, 0 to 1, lies: the
 * last stretch but 0's begins at what code 0 would say. */
static double said_by(int n, int code) {
    for (int k = 0; k < n && code > 0; k++) {
        int last = (1 << (n - k)) - 1, before = last / 2;
        double end = pow(8, -k), begin = end / 8;
        if (code > before) return begin + (end - begin) * (code - before) / (last - before);
    }
    return code > 0 ? pow(8, -n) : 0;
}
static int code_below(const double *said, int n, double q) {
    int code = (1 << n) - 1;
    while (code > 0 && said[code] > q) code--;
    return code;
}

/* All codes, a quarter in each of four blocks, each with one that is the largest. */
static void test_all_codes(DType dtype) {
    const int n = dtype == DTYPE_DYN8 ? MOMENT_STRETCHES : SQUARE_STRETCHES;
    uint8_t blocks[5 * MOMENT_BLOCK_BYTES] = {0}, again[sizeof(blocks)];
    float x[5 * BLOCK];
    check_begin(dtype == DTYPE_DYN8 ? "all codes of dyn8 say what they should, and stay"
                                    : "all codes of dyn8u say what they should, and stay");
    for (int i = 0; i < 5 * BLOCK; i++) {
        const uint16_t scale = vec_bf16_round(0.75f * (float)(i / BLOCK + 1));
        uint8_t *block = blocks + i / BLOCK * MOMENT_BLOCK_BYTES;
        block[i % BLOCK] = (uint8_t)(i % BLOCK ? i - i / BLOCK : (1 << n) - 1);
        memcpy(block + BLOCK, &scale, sizeof(scale));
    }
    moments_load(dtype, blocks, 0, x, 5 * BLOCK);
    for (int i = 0; i < 5 * BLOCK; i++) {
        const int code = blocks[i / BLOCK * MOMENT_BLOCK_BYTES + i % BLOCK];
        double size = said_by(n, code & ((1 << n) - 1)) * 0.75 * (i / BLOCK + 1);
        double wanted = code >> n ? -size : size;
        CHECK(fabs((double)x[i] - wanted) <= 1e-6 * size, "code %d says %.9g, not %.9g", code,
              (double)x[i], wanted);
    }
    moments_store(dtype, x, again, 0, 5 * BLOCK, NEAREST_THRESHOLD);
    CHECK(memcmp(blocks, again, sizeof(blocks)) == 0, "another block when it is kept again");
    check_end();
}

/* Sizes over nine powers of ten, one block after the other with a scale of its own. */
static void test_nearest(DType dtype, uint32_t threshold) {
    enum { N = 64 * BLOCK };
    const bool squares = dtype == DTYPE_DYN8U;
    const int n = squares ? SQUARE_STRETCHES : MOMENT_STRETCHES;
    uint8_t blocks[N / BLOCK * MOMENT_BLOCK_BYTES];
    float x[N];
    double said[256];
    uint32_t seed = 1;
    for (int i = 0; i < N; i++) {
        seed = seed * 1664525u + 1013904223u;
        double size = pow(10, (double)(seed >> 8) * 0x1p-24 * -9 + i / BLOCK % 5 - 2);
        x[i] = (float)(!squares && seed & 128 ? -size : size);
    }
    check_begin(squares ? "codes of second moments: the threshold's"
                        : "codes of first moments: the nearest");
    for (int code = 0; code < 1 << n; code++) said[code] = said_by(n, code);
    moments_store(dtype, x, blocks, 0, N, threshold);
    for (int i = 0; i < N; i++) {
        const uint8_t *block = blocks + i / BLOCK * MOMENT_BLOCK_BYTES;
        double most = 0;
        for (int k = 0; k < BLOCK; k++) most = fmax(most, fabs((double)x[i / BLOCK * BLOCK + k]));
        uint16_t scale;
        memcpy(&scale, block + BLOCK, sizeof(scale));
        CHECK(scale == (vec_bits((float)most) + threshold) >> 16, "scale %x", scale);
        double q = fabs((double)x[i]) / most;
        const int below = code_below(said, n, q), code = block[i % BLOCK] & ((1 << n) - 1);
        double from = below ? said[below] : pow(8, -n),
               to = below + 1 < 1 << n ? said[below + 1] : 2;
        double place = below + (q - from) / (to - from) + threshold / 65536.0;
        int least = squares && x[i] > 0;
        bool fine = fabs(code - fmax(floor(place), least)) == 0 ||
                    fabs(place - rint(place)) < 1e-4; /* f32 may round it the other way */
        CHECK(fine, "%.9g of %.9g has code %d, place %.6f", (double)x[i], most, code, place);
        CHECK(squares || block[i % BLOCK] >> 7 == (x[i] < 0), "the sign of %g", (double)x[i]);
    }
    check_end();
}

static void test_odd_blocks(void) {
    static const float LARGE[] = {0, 1e-32f, 1e-30f, 3e38f, INFINITY};
    check_begin("blocks of nothing, of almost nothing, and of too much");
    for (size_t k = 0; k < sizeof(LARGE) / sizeof(LARGE[0]); k++) {
        uint8_t block[MOMENT_BLOCK_BYTES];
        float x[BLOCK] = {0}, y[BLOCK];
        x[1] = LARGE[k];
        x[2] = LARGE[k] * 1e-9f;
        moments_store(DTYPE_DYN8U, x, block, 0, BLOCK, 0);
        moments_load(DTYPE_DYN8U, block, 0, y, BLOCK);
        bool kept = LARGE[k] > 7e-31f;
        CHECK(y[0] == 0 && isfinite(y[1]), "%g becomes %g", (double)x[1], (double)y[1]);
        CHECK(kept ? fabsf(y[1] - fminf(x[1], 3.4e38f)) <= 0.01f * y[1] : y[1] == 0,
              "%g becomes %g", (double)x[1], (double)y[1]);
        CHECK((y[2] > 0) == (kept && x[2] > 0), "%g becomes %g", (double)x[2], (double)y[2]);
    }
    check_end();
}

/* --- second moments --- */

static float wide(const void *x, DType dtype, int i) {
    float block[BLOCK];
    if (dtype == DTYPE_BF16) return vec_get(x, DTYPE_BF16, i);
    moments_load(DTYPE_DYN8U, x, i / BLOCK * BLOCK, block, BLOCK);
    return block[i % BLOCK];
}

/* With gradients of a size, from a second moment far off, after `n_steps`: its mean over elements
 * that differ a little. */
static double second_moment(DType state, double beta2, float begin, float gradient, int n_steps) {
    enum { N = 512 };
    const AdamwConfig config = {0.9, beta2, 1e-8, 0, 1, DTYPE_F32, state, DTYPE_F32};
    const float lr = 0, clip = 1;
    float g[N], p[N] = {0}, at_first[N];
    uint16_t m[N] = {0}, v[N];
    double sum = 0;
    for (int i = 0; i < N; i++) {
        float size = 1 + (float)i / N; /* all that there may be below the last bit */
        if (state == DTYPE_DYN8 && i % 2) size *= 0.01f;
        g[i] = gradient * sqrtf(size);
        at_first[i] = begin * size;
    }
    if (state == DTYPE_BF16) {
        vec_bf16_store(at_first, v, N);
    } else {
        moments_store(DTYPE_DYN8U, at_first, v, 0, N, NEAREST_THRESHOLD);
    }
    for (int step = 1; step <= n_steps; step++) {
        const float number = (float)step;
        optimizer_adamw(&config, N, &lr, &number, &clip, g, p, m, v, NULL);
    }
    for (int i = 0; i < N; i++) {
        double size = 1 + (double)i / N;
        if (state == DTYPE_DYN8 && i % 2) size *= 0.01;
        sum += (double)wide(v, state, i) / size;
    }
    return sum / N;
}

/* Rounded to nearest, a change of a thousandth or less is none: 1 would stay 1. */
static void test_second_moments(DType state) {
    static const struct {
        double beta2;
        float begin, gradient;
        int n_steps;
    } CASES[] = {
        {0.999, 1, 0, 3000},  /* falls to e^-3 */
        {0.999, 0, 1, 6000},  /* rises to almost 1 */
        {0.9999, 1, 2, 8000}, /* from 1 towards 4 */
        {0.95, 4, 1, 200},    /* falls to 1 */
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        char name[120];
        double left = pow(CASES[i].beta2, CASES[i].n_steps), g = (double)CASES[i].gradient;
        double expected = left * (double)CASES[i].begin + (1 - left) * g * g;
        snprintf(name, sizeof(name), "a second moment in %s, beta2 %g, from %g with gradients %g",
                 dtype_name(state), CASES[i].beta2, (double)CASES[i].begin, g);
        check_begin(name);
        double found = second_moment(state, CASES[i].beta2, CASES[i].begin, CASES[i].gradient,
                                     CASES[i].n_steps);
        CHECK(fabs(found / expected - 1) < 0.12, "%g, not %g", found, expected);
        check_end();
    }
}

/* As good as random: in each 16th of the range as often, and no step like the one before. */
static void test_thresholds(void) {
    enum { N = 16000 };
    int counts[16] = {0}, rises = 0;
    uint32_t before = 0;
    check_begin("thresholds of steps are spread evenly");
    for (int step = 1; step <= N; step++) {
        uint32_t threshold = optimizer_threshold((float)step);
        CHECK(threshold < 65536, "%u", threshold);
        counts[threshold >> 12]++;
        rises += threshold > before;
        before = threshold;
    }
    for (int i = 0; i < 16; i++) CHECK(abs(counts[i] - N / 16) < 150, "%d in one", counts[i]);
    CHECK(abs(rises - N / 2) < 400, "%d rises", rises);
    check_end();
}

/* --- training --- */

static int64_t optimizer_bytes(const Run *run) {
    const Program *program = &run->plan->programs[0];
    int64_t bytes = 0;
    for (int n = 0; n < program->graph->n_nodes; n++) {
        const Node *node = program->graph->nodes[n];
        if (node->op != OP_STATE || node_is_copy(node)) continue;
        bytes += program->buffers[n * MAX_OUTPUTS].bytes;
    }
    return bytes;
}

/* Losses as with f32, half of the states' bytes or about a quarter, planned and taken. */
static void test_training(const char *optimizer, DType state, double rate) {
    const int n_steps = state == DTYPE_DYN8 ? SOME_STEPS : LONG_STEPS;
    Run full, half;
    char name[100];
    snprintf(name, sizeof(name), "%s with states in %s trains as with f32", optimizer,
             dtype_name(state));
    check_begin(name);
    bool done = start(&full, optimizer, DTYPE_F32, &ALONE, true);
    done = start(&half, optimizer, state, &ALONE, true) && done;
    done = done && run_steps(&full, n_steps, rate) && run_steps(&half, n_steps, rate);
    CHECK(done, "%s%s", diag_text(full.diag), diag_text(half.diag));
    if (done) {
        double ours = mean_loss(&half, n_steps - 10, n_steps),
               theirs = mean_loss(&full, n_steps - 10, n_steps);
        CHECK(fabs(ours - theirs) < 4e-3 * theirs, "loss %.5f, with f32 %.5f", ours, theirs);
        int64_t n = type_elements(&half.types[0]);
        double apart = relative_distance(run_weight(&half, 0), run_weight(&full, 0), n);
        CHECK(apart > 1e-7, "nothing was rounded");
        double share = (double)optimizer_bytes(&half) / (double)optimizer_bytes(&full);
        bool low = state == DTYPE_DYN8 ? share > 0.25 && share < 0.3 : share > 0.49 && share < 0.6;
        CHECK(low, "states take %.3f of f32's", share);
        compare_memory(&half);
    }
    run_close(&full);
    run_close(&half);
    check_end();
}

/* A state that another order of sums rounds the other way moves its weight by a 256th of a step. */
static void compare_rounded_weights(Run *run, Run *one) {
    for (int i = 0; i < one->n_params; i++) {
        int64_t n = type_elements(&one->types[i]);
        float *ours = ARENA_ARRAY(run->arena, float, n);
        const float *theirs = run_weight(one, i);
        CHECK(engine_read_parameter(run->engine, one->names[i], ours), "no '%s'", one->names[i]);
        if (is_key_bias(one, one->names[i])) continue;
        double error = relative_distance(ours, theirs, n);
        CHECK(error < 1e-3, "'%s' differs by %.3g of its norm", one->names[i], error);
    }
}

static void test_layouts(const char *optimizer, DType state, double rate) {
    static const LayoutCase CASES[] = {
        {{2, 2, 1, 2, 1, "1f1b", true, NULL, 0}, RECOMPUTE_NONE, 1},
        {{1, 2, 2, 2, 1, "1f1b", false, NULL, 0}, RECOMPUTE_FULL, 2},
        {{1, 4, 1, 2, 1, "1f1b", false, NULL, 0}, RECOMPUTE_NONE, 3},
        {{2, 1, 2, 2, 2, "interleaved", false, NULL, 0}, RECOMPUTE_NONE, 0},
    };
    const size_t each = state == DTYPE_DYN8 ? 2 : VARIANT_STEP;
    Run one;
    bool ready =
        start(&one, optimizer, state, &ALONE, false) && run_steps_keeping(&one, STEPS, rate);
    for (size_t k = 0; k < sizeof(CASES) / sizeof(CASES[0]); k += each) {
        char title[200];
        Run run;
        run_recompute = CASES[k].recompute;
        run_zero = CASES[k].zero;
        int length = snprintf(title, sizeof(title), "states in %s, ", dtype_name(state));
        layout_name(optimizer, &CASES[k].layout, title + length, sizeof(title) - (size_t)length);
        check_begin(title);
        bool done = ready && start(&run, optimizer, state, &CASES[k].layout, true) &&
                    run_steps_keeping(&run, STEPS, rate);
        run_recompute = RECOMPUTE_NONE;
        run_zero = 0;
        CHECK(done, "%s%s", diag_text(one.diag), ready ? diag_text(run.diag) : "");
        if (done) {
            compare_losses(&run, &one, STEPS);
            compare_gradients(&run, &one);
            compare_rounded_weights(&run, &one);
            compare_memory(&run);
        }
        if (ready) run_close(&run);
        check_end();
    }
    run_close(&one);
}

/* States of bf16 are that in files, half as long, behind all that is f32; weights are f32. */
static void check_file(const char *path, DType state, Diag *diag) {
    SafetensorsInfo info;
    Safetensors *file = safetensors_open(path, diag);
    CHECK(file, "%s", diag_text(diag));
    if (!file) return;
    SafetensorsDtype wanted = state == DTYPE_BF16 ? SAFETENSORS_BF16 : SAFETENSORS_F32;
    CHECK(safetensors_find(file, "adam_v/wte", &info) && info.dtype == wanted, "adam_v/wte");
    CHECK(safetensors_find(file, "wte", &info) && info.dtype == SAFETENSORS_F32, "wte");
    for (int i = 0; i < safetensors_count(file); i++) {
        const SafetensorsInfo *at = safetensors_at(file, i);
        uintptr_t each = at->dtype == SAFETENSORS_F32 ? 4 : 2;
        CHECK((uintptr_t)at->data % each == 0, "'%s' is not aligned", at->name);
    }
    safetensors_close(file);
}

/* From f32 to bf16, and back, under other layouts: as the run that was bf16 from the beginning. */
static void test_checkpoint(void) {
    static const Layout TO = {1, 2, 2, 2, 1, "1f1b", false, NULL, 0};
    const TrainingPlace place = {.step = 3, .samples = 3 * GLOBAL_BATCH, .data = "a text"};
    for (int back = 0; back < 2; back++) {
        TrainingPlace found = {0};
        char path[] = "/tmp/perilune-state-XXXXXX";
        int file = mkstemp(path);
        Run whole, first, second;
        DType from = back ? DTYPE_BF16 : DTYPE_F32, to = back ? DTYPE_F32 : DTYPE_BF16;
        check_begin(back ? "a checkpoint goes from bf16 to f32"
                         : "a checkpoint goes from f32 to bf16");
        bool fine = start(&whole, "adamw", to, &ALONE, false) && run_steps(&whole, STEPS, 1e-3);
        fine = start(&first, "adamw", from, &ALONE, false) && run_steps(&first, 3, 1e-3) && fine;
        fine = fine && engine_save_state(first.engine, path, &place, first.diag);
        if (fine) check_file(path, from, first.diag);
        run_zero = 1;
        fine = start(&second, "adamw", to, &TO, false) && fine;
        run_zero = 0;
        fine = fine && engine_load_state(second.engine, path, &found, second.diag) &&
               run_steps_from(&second, 3, STEPS - 3, 1e-3);
        CHECK(fine, "%s%s%s", diag_text(whole.diag), diag_text(first.diag), diag_text(second.diag));
        for (int step = 3; fine && step < STEPS; step++) {
            double error = fabs(second.losses[step] - whole.losses[step]) / whole.losses[step];
            CHECK(error < 1e-4, "loss of step %d is %.7f, not %.7f", step + 1, second.losses[step],
                  whole.losses[step]);
        }
        run_close(&whole);
        run_close(&first);
        run_close(&second);
        if (file >= 0) close(file);
        unlink(path);
        check_end();
    }
}

/* A second moment of the file is `value` from now on. */
static bool damage(const char *path, float value) {
    char header[1 << 16] = {0};
    uint64_t length = 0;
    long long first = -1;
    FILE *file = fopen(path, "r+b");
    bool good = file && fread(&length, 8, 1, file) == 1 && length < sizeof(header) &&
                fread(header, length, 1, file) == 1;
    const char *at = good ? strstr(header, "\"adam_v/wte\"") : NULL;
    at = at ? strstr(at, "\"data_offsets\":[") : NULL;
    good = at && sscanf(at, "\"data_offsets\":[%lld", &first) == 1 &&
           fseek(file, (long)(8 + length) + (long)first + 4 * 70, SEEK_SET) == 0 &&
           fwrite(&value, 4, 1, file) == 1;
    if (file && fclose(file) != 0) good = false;
    return good;
}

/* Files have states in 8 bits in f32, exactly: what goes on from one is as if it had not stopped,
 * whatever the layout. */
static void test_exact_checkpoint(void) {
    static const Layout TO = {1, 2, 1, 4, 1, "1f1b", false, NULL, 0};
    const TrainingPlace place = {.step = 3, .samples = 3 * GLOBAL_BATCH, .data = "a text"};
    TrainingPlace found = {0};
    char path[] = "/tmp/perilune-state-XXXXXX";
    int file = mkstemp(path);
    Run first, second;
    check_begin("a checkpoint of states in 8 bits is exact");
    bool fine = start(&first, "adamw", DTYPE_DYN8, &ALONE, false) && run_steps(&first, 3, 1e-3) &&
                engine_save_state(first.engine, path, &place, first.diag);
    if (fine) check_file(path, DTYPE_F32, first.diag);
    run_zero = 1;
    fine = start(&second, "adamw", DTYPE_DYN8, &TO, false) && fine;
    run_zero = 0;
    fine = fine && engine_load_state(second.engine, path, &found, second.diag);
    CHECK(fine, "%s%s", diag_text(first.diag), diag_text(second.diag));
    char again[] = "/tmp/perilune-state-XXXXXX";
    int copy = mkstemp(again);
    fine = fine && engine_save_state(second.engine, again, &place, second.diag);
    Safetensors *one = fine ? safetensors_open(path, first.diag) : NULL;
    Safetensors *two = fine ? safetensors_open(again, second.diag) : NULL;
    CHECK(one && two, "%s%s", diag_text(first.diag), diag_text(second.diag));
    for (int i = 0; one && two && i < safetensors_count(one); i++) {
        const SafetensorsInfo *at = safetensors_at(one, i);
        SafetensorsInfo other;
        bool same = safetensors_find(two, at->name, &other) && other.n_bytes == at->n_bytes &&
                    memcmp(other.data, at->data, at->n_bytes) == 0;
        CHECK(same, "'%s' is another", at->name);
    }
    if (one) safetensors_close(one);
    if (two) safetensors_close(two);
    for (int i = 0; fine && i < 2; i++) {
        const int before = diag_error_count(second.diag);
        CHECK(damage(path, i ? NAN : -1), "not damaged");
        CHECK(!engine_load_state(second.engine, path, &found, second.diag) &&
                  diag_error_count(second.diag) == before + 1 &&
                  strstr(diag_text(second.diag), "has numbers that are no second moments"),
              "%s", diag_text(second.diag));
    }
    run_close(&first);
    run_close(&second);
    if (file >= 0) close(file);
    if (copy >= 0) close(copy);
    unlink(path);
    unlink(again);
    check_end();
}

/* --- plans that are wrong --- */

/* What is wrong with the plan's text after `from` became `to` once; "": nothing. */
static void check_refused(const char *title, DType state, const char *from, const char *to,
                          const char *expected) {
    Run run;
    check_begin(title);
    bool fine = start(&run, "adamw", state, &ALONE, false);
    CHECK(fine, "%s", diag_text(run.diag));
    StrBuf text = strbuf_create(), broken = strbuf_create();
    if (fine) plan_print(&text, run.plan);
    const char *at = fine ? strstr(text.text, from) : NULL;
    CHECK(at, "there is no '%s'", from);
    if (at) {
        Arena *arena = arena_create();
        Diag *diag = diag_create();
        strbuf_printf(&broken, "%.*s%s%s", (int)(at - text.text), text.text, to, at + strlen(from));
        const Plan *plan = plan_parse(arena, "plan", broken.text, diag);
        bool sound = plan && verify_plan(plan, diag);
        CHECK(!sound && strstr(diag_text(diag), expected), "not said: %s; but: %s", expected,
              diag_text(diag));
        diag_destroy(diag);
        arena_destroy(arena);
    }
    strbuf_destroy(&text);
    strbuf_destroy(&broken);
    run_close(&run);
    check_end();
}

static void test_refused(void) {
    check_refused("one state in bf16, the other in f32", DTYPE_BF16,
                  "{name=\"adam_v/wte\", of=\"wte\"} : bf16",
                  "{name=\"adam_v/wte\", of=\"wte\"} : f32", "it must be bf16");
    check_refused("a state in f16", DTYPE_BF16, "{name=\"adam_m/wte\", of=\"wte\"} : bf16",
                  "{name=\"adam_m/wte\", of=\"wte\"} : f16", "it must be f32");
    check_refused("second moments with a sign", DTYPE_DYN8,
                  "{name=\"adam_v/wte\", of=\"wte\"} : dyn8u",
                  "{name=\"adam_v/wte\", of=\"wte\"} : dyn8", "it must be dyn8u");
    check_refused("a state in blocks of weights", DTYPE_DYN8,
                  "{name=\"adam_m/wte\", of=\"wte\"} : dyn8",
                  "{name=\"adam_m/wte\", of=\"wte\"} : int8", "it must be f32");
}

/* Plans that cannot be made, and why. */
static void check_no_plan(const char *title, const char *optimizer, const Layout *layout,
                          const char *expected) {
    Run run;
    check_begin(title);
    bool fine = start(&run, optimizer, DTYPE_DYN8, layout, false);
    CHECK(!fine && strstr(diag_text(run.diag), expected), "not said: %s; but: %s", expected,
          diag_text(run.diag));
    run_close(&run);
    check_end();
}

static void test_no_plan(void) {
    static const Layout CUT = {4, 1, 1, GLOBAL_BATCH, 1, "1f1b", false, NULL, 0};
    check_no_plan("a layout that cuts blocks of moments", "adamw", &CUT,
                  "t=4 would cut blocks of 64 moments that share a scale; t=2 would do");
    check_no_plan("states in 8 bits of an optimizer that has none", "muon", &ALONE,
                  "is for the optimizers adamw, lion and sgd");
}

int main(void) {
    static const struct {
        const char *optimizer;
        double rate;
    } KINDS[] = {{"adamw", 2e-3}, {"lion", 3e-4}, {"sgd", 0.05}, {"lamb", 5e-3}, {"muon", 2e-3}};
    test_all_codes(DTYPE_DYN8);
    test_all_codes(DTYPE_DYN8U);
    test_nearest(DTYPE_DYN8, NEAREST_THRESHOLD);
    for (uint32_t threshold = 0; threshold < 65536; threshold += 21845)
        test_nearest(DTYPE_DYN8U, threshold);
    test_odd_blocks();
    test_second_moments(DTYPE_BF16);
    test_second_moments(DTYPE_DYN8);
    test_thresholds();
    for (size_t i = 0; i < sizeof(KINDS) / sizeof(KINDS[0]); i += VARIANT_STEP) {
        test_training(KINDS[i].optimizer, DTYPE_BF16, KINDS[i].rate);
        test_layouts(KINDS[i].optimizer, DTYPE_BF16, KINDS[i].rate);
    }
    test_checkpoint();
    wide_model = true;
    for (int i = 0; i < 3; i++) test_training(KINDS[i].optimizer, DTYPE_DYN8, KINDS[i].rate);
    test_layouts("adamw", DTYPE_DYN8, 2e-3);
    test_exact_checkpoint();
    test_refused();
    test_no_plan();
    compare_print_worst();
    return check_report();
}
