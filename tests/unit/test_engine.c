/* The engine's promises: memory as planned, no allocation once it runs, bad numbers named, weights
 * that fit any layout. */
#include "tests/unit/check.h"
#include "tests/unit/train_fixture.h"

#include "ir/base/file.h"

#include <malloc.h>
#include <unistd.h>

static const ModelSetting TINY[] = {
    {"layers", "4"}, {"model", "32"}, {"heads", "4"}, {"seq", "16"}, {"vocab", "64"}};
enum { N_TINY = sizeof(TINY) / sizeof(TINY[0]) };

static const Layout LAYOUTS[] = {
    {1, 1, 1, 4, 1, "1f1b", false, NULL, 0},        {2, 1, 1, 4, 1, "1f1b", true, NULL, 0},
    {1, 2, 1, 2, 1, "1f1b", false, NULL, 0},        {1, 1, 2, 2, 1, "gpipe", false, NULL, 0},
    {1, 1, 2, 2, 2, "interleaved", false, NULL, 0}, {2, 2, 2, 2, 1, "1f1b", true, NULL, 0},
    {1, 1, 4, 2, 1, "1f1b", false, NULL, 0},
};
enum { N_LAYOUTS = sizeof(LAYOUTS) / sizeof(LAYOUTS[0]) };

static bool start(Run *run, const char *path, const Layout *layout) {
    return run_plan(run, path, TINY, N_TINY, layout, 16, false) && run_start(run);
}

static void check_memory(void) {
    check_begin("arenas have exactly the planned bytes, under every layout");
    for (int l = 0; l < N_LAYOUTS; l++) {
        Run run;
        bool ready = start(&run, "models/gpt.lua", &LAYOUTS[l]);
        CHECK(ready, "%s", diag_text(run.diag));
        int64_t planned = 0;
        for (int s = 0; ready && s < run.plan->n_stages; s++) {
            int64_t classes[N_BUFFER_CLASSES], sum = 0;
            plan_class_bytes(run.plan, s, classes);
            for (int c = 0; c < N_BUFFER_CLASSES; c++) sum += classes[c];
            CHECK(sum == run.plan->stages[s].arena_bytes,
                  "stage %d: classes add up to %lld of %lld", s, (long long)sum,
                  (long long)run.plan->stages[s].arena_bytes);
            planned += run.plan->stages[s].arena_bytes * run.plan->mesh.size[MESH_T] *
                       run.plan->mesh.size[MESH_D];
        }
        CHECK(!ready || engine_arena_bytes(run.engine) == planned, "layout %d: %lld, planned %lld",
              l, (long long)engine_arena_bytes(run.engine), (long long)planned);
        run_close(&run);
    }
}

/* What is handed out and not given back may not grow. The first steps are the matrix library's: it
 * compiles its kernels then. */
static void check_allocation(void) {
    check_begin("no memory is taken once training runs");
    for (int l = 0; l < N_LAYOUTS; l++) {
        Run run;
        bool ready = start(&run, "models/llama.lua", &LAYOUTS[l]);
        ready = ready && run_steps(&run, 3, 1e-3);
        CHECK(ready, "%s", diag_text(run.diag));
        if (ready) {
            size_t n = (size_t)(run.plan->global_batch * run.plan->seq);
            int32_t *tokens = ARENA_ARRAY(run.arena, int32_t, n);
            int32_t *labels = ARENA_ARRAY(run.arena, int32_t, n);
            StepResult result;
            fill_batch(run.plan, 9, tokens, labels);
            struct mallinfo2 before = mallinfo2();
            for (int step = 4; step < 10; step++) {
                CHECK(engine_step(run.engine, step, tokens, labels, 1e-3, &result, run.diag), "%s",
                      diag_text(run.diag));
            }
            struct mallinfo2 after = mallinfo2();
            CHECK(after.uordblks <= before.uordblks && after.hblkhd <= before.hblkhd,
                  "layout %d: %zu bytes in use before, %zu after six steps", l,
                  before.uordblks + before.hblkhd, after.uordblks + after.hblkhd);
        }
        run_close(&run);
    }
}

/* A weight that is not a number, or so large that the loss is not: named, and nothing else changed.
 */
static void check_not_finite(float bad, const char *expected) {
    for (int l = 0; l < N_LAYOUTS; l++) {
        Run run;
        bool ready = start(&run, "models/gpt.lua", &LAYOUTS[l]);
        CHECK(ready, "%s", diag_text(run.diag));
        if (ready) {
            const char *name = "blocks.2.mlp.w1";
            float *weight = NULL, *other = NULL, *again = NULL;
            int64_t n = 0;
            for (int i = 0; i < run.n_params; i++) {
                if (strcmp(run.names[i], name) == 0) {
                    weight = run_weight(&run, i);
                    weight[5] = bad;
                    engine_write_parameter(run.engine, name, weight);
                }
                if (strcmp(run.names[i], "wte") == 0) {
                    other = run_weight(&run, i);
                    n = type_elements(&run.types[i]);
                }
            }
            CHECK(weight && other, "no such parameters");
            CHECK(!run_steps(&run, 1, 1e-3), "the step was taken");
            const char *text = diag_text(run.diag);
            CHECK(strstr(text, "step 1") && strstr(text, expected) &&
                      strstr(text, "models/gpt.lua:"),
                  "says: %s", text);
            again = ARENA_ARRAY(run.arena, float, n);
            engine_read_parameter(run.engine, "wte", again);
            CHECK(memcmp(other, again, (size_t)n * sizeof(float)) == 0, "wte was changed");
        }
        run_close(&run);
    }
}

/* What one layout saves, any other loads; the file holds whole logical tensors. */
static void check_checkpoint(void) {
    check_begin("weights saved under one layout load under any other");
    char path[] = "/tmp/perilune-test-XXXXXX";
    int file = mkstemp(path);
    CHECK(file >= 0, "no temporary file");
    if (file < 0) return;
    close(file);
    Run saved;
    bool ready = start(&saved, "models/llama.lua", &LAYOUTS[5]) && run_steps(&saved, 2, 1e-3) &&
                 engine_save(saved.engine, path, saved.diag);
    CHECK(ready, "%s", diag_text(saved.diag));
    for (int l = 0; ready && l < N_LAYOUTS; l++) {
        Run run;
        bool loaded =
            start(&run, "models/llama.lua", &LAYOUTS[l]) && engine_load(run.engine, path, run.diag);
        CHECK(loaded, "%s", diag_text(run.diag));
        for (int i = 0; loaded && i < saved.n_params; i++) {
            int64_t n = type_elements(&saved.types[i]);
            float *theirs = ARENA_ARRAY(run.arena, float, n);
            CHECK(engine_read_parameter(run.engine, saved.names[i], theirs), "no %s",
                  saved.names[i]);
            CHECK(memcmp(run_weight(&saved, i), theirs, (size_t)n * sizeof(float)) == 0,
                  "%s differs under layout %d", saved.names[i], l);
        }
        run_close(&run);
    }
    Run other;
    CHECK(start(&other, "models/gpt.lua", &LAYOUTS[0]), "%s", diag_text(other.diag));
    CHECK(!engine_load(other.engine, path, other.diag) &&
              strstr(diag_text(other.diag), "has no tensor 'wpe'"),
          "weights of another model: %s", diag_text(other.diag));
    run_close(&other);
    run_close(&saved);
    unlink(path);
}

/* From /proc/self/status, in bytes; -1: it does not say. */
static int64_t read_status(const char *key) {
    char line[256];
    long long kib = -1;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && kib < 0 && fgets(line, sizeof(line), file)) {
        if (strncmp(line, key, strlen(key)) == 0) sscanf(line + strlen(key), ": %lld", &kib);
    }
    if (file) fclose(file);
    return kib < 0 ? -1 : kib * 1024;
}

/* The most memory that was resident is from now on counted anew. False: not on this system, or
 * sanitizers keep what was freed. */
static bool forget_peak(void) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return false;
#else
    FILE *file = fopen("/proc/self/clear_refs", "w");
    bool fine = file && fputs("5", file) >= 0;
    return file && fclose(file) == 0 && fine;
#endif
}

/* Tensors of more than a piece, divided by rows and by columns, and in halves: all files are one,
 * and none is put together in memory, where the largest tensor is 16 MiB. */
static void check_large(void) {
    static const ModelSetting LARGE[] = {{"layers", "1"},   {"model", "1024"}, {"heads", "4"},
                                         {"kv_heads", "4"}, {"head", "8"},     {"ffn", "4096"},
                                         {"seq", "16"},     {"vocab", "64"}};
    static const Layout WAYS[] = {{1, 1, 1, 4, 1, "1f1b", false, NULL, 0},
                                  {2, 2, 1, 4, 1, "1f1b", false, NULL, 0},
                                  {4, 1, 1, 4, 1, "1f1b", false, NULL, 0},
                                  {1, 4, 1, 4, 1, "1f1b", false, NULL, 0}};
    enum { N_LARGE = sizeof(LARGE) / sizeof(LARGE[0]), LEAST = 16 << 20, MOST_MORE = 12 << 20 };
    char paths[2][40] = {"", ""};
    Arena *arena = arena_create();
    const char *files[2] = {NULL, NULL};
    size_t length[2] = {0, 0};
    check_begin("tensors are saved in pieces: the same file, without memory for the largest");
    for (int l = 0; l < 4; l++) {
        Run run;
        char *path = paths[l > 0];
        snprintf(path, sizeof(paths[0]), "/tmp/perilune-large-%d-%d", (int)getpid(), l > 0);
        run_split_masters = l == 3;
        run_precision = l == 3 ? DTYPE_BF16 : DTYPE_F32;
        run_zero = l == 3 ? 3 : 0;
        bool ready = run_plan(&run, "models/llama.lua", LARGE, N_LARGE, &WAYS[l], 16, false) &&
                     run_start(&run);
        bool counts = forget_peak();
        int64_t before = read_status("VmRSS");
        ready = ready && engine_save(run.engine, path, run.diag);
        int64_t more = read_status("VmHWM") - before;
        CHECK(ready, "%s", diag_text(run.diag));
        CHECK(!counts || more < MOST_MORE, "layout %d: %lld bytes more", l, (long long)more);
        files[l > 0] = file_read(arena, path, 1 << 28, &length[l > 0], run.diag);
        CHECK(files[0] && files[l > 0] && length[0] > LEAST && length[0] == length[l > 0] &&
                  memcmp(files[0], files[l > 0], length[0]) == 0,
              "layout %d: another file: %s", l, diag_text(run.diag));
        run_close(&run);
    }
    run_split_masters = false;
    run_precision = DTYPE_F32;
    run_zero = 0;
    for (int i = 0; i < 2; i++) unlink(paths[i]);
    arena_destroy(arena);
}

/* Evaluation is the training loss without dropout, whatever the layout; logits give the same. */
static void check_evaluation(void) {
    check_begin("evaluation does not depend on the layout and changes nothing");
    double first = 0;
    for (int l = 0; l < N_LAYOUTS; l++) {
        Run run;
        StepResult result;
        bool ready = start(&run, "models/gpt.lua", &LAYOUTS[l]);
        CHECK(ready, "%s", diag_text(run.diag));
        if (ready) {
            size_t n = (size_t)(run.plan->global_batch * run.plan->seq);
            int32_t *tokens = ARENA_ARRAY(run.arena, int32_t, n);
            int32_t *labels = ARENA_ARRAY(run.arena, int32_t, n);
            double loss = 0;
            fill_batch(run.plan, 3, tokens, labels);
            CHECK(engine_evaluate(run.engine, tokens, labels, &loss, run.diag), "%s",
                  diag_text(run.diag));
            CHECK(engine_step(run.engine, 1, tokens, labels, 1e-3, &result, run.diag), "%s",
                  diag_text(run.diag));
            if (l == 0) first = loss;
            CHECK(fabs(loss - first) < 1e-5 * first, "layout %d: %.7f, first %.7f", l, loss, first);
            CHECK(fabs(loss - result.loss) < 1e-5 * first,
                  "layout %d: evaluated %.7f, trained %.7f", l, loss, result.loss);
        }
        run_close(&run);
    }
}

/* Loss and gradient norm where samples [first, end) alone have labels that count. */
static bool run_part(Run *run, int first, int end, double *out_loss, double *out_norm) {
    size_t seq = (size_t)run->plan->seq, n = (size_t)run->plan->global_batch * seq;
    int32_t *tokens = ARENA_ARRAY(run->arena, int32_t, n);
    int32_t *labels = ARENA_ARRAY(run->arena, int32_t, n);
    StepResult result;
    fill_batch(run->plan, 3, tokens, labels);
    for (size_t i = 0; i < n; i++) {
        bool counts = i >= (size_t)first * seq && i < (size_t)end * seq;
        if (counts && labels[i] == 2) labels[i] = 3;
        if (!counts) labels[i] = 2;
    }
    int64_t n_counted = engine_count_labels(run->engine, labels);
    CHECK(n_counted == (int64_t)(end - first) * (int64_t)seq, "%d labels count", (int)n_counted);
    if (!engine_evaluate(run->engine, tokens, labels, out_loss, run->diag)) return false;
    if (!engine_step(run->engine, 1, tokens, labels, 0, &result, run->diag)) return false;
    CHECK(fabs(result.loss - *out_loss) < 1e-6 * (1 + fabs(*out_loss)),
          "evaluated %.7f, trained %.7f", *out_loss, result.loss);
    *out_norm = result.grad_norm;
    return true;
}

/* The mean is over what counts in the whole global batch, however much of it a micro-batch or a
 * rank has. */
static void check_left_out_labels(void) {
    double first_norm = 0;
    check_begin("labels that are left out do not count, under every layout");
    for (int l = 0; l < N_LAYOUTS; l++) {
        Run run;
        double few, rest, all, none, norm, no_norm;
        bool ready = run_plan(&run, "tests/models/masked.lua", NULL, 0, &LAYOUTS[l], 16, true) &&
                     run_start(&run);
        ready = ready && run_part(&run, 0, 3, &few, &norm) &&
                run_part(&run, 3, 16, &rest, &no_norm) && run_part(&run, 0, 16, &all, &no_norm) &&
                run_part(&run, 0, 0, &none, &no_norm);
        CHECK(ready, "%s", diag_text(run.diag));
        if (ready) {
            double mean = (3 * few + 13 * rest) / 16;
            CHECK(fabs(all - mean) < 1e-6 * mean, "layout %d: %.7f is not %.7f", l, all, mean);
            CHECK(none == 0 && no_norm == 0, "layout %d: none count: %g, %g", l, none, no_norm);
            if (l == 0) first_norm = norm;
            CHECK(fabs(norm - first_norm) < 1e-5 * first_norm, "layout %d: gradient %.7f, not %.7f",
                  l, norm, first_norm);
        }
        run_close(&run);
    }
}

int main(void) {
    check_memory();
    check_allocation();
    check_begin("a weight that is not a number is named, with its Lua line");
    check_not_finite(NAN, "parameter 'blocks.2.mlp.w1' is not finite");
    check_begin("the first result that is not finite is named, with its Lua line");
    check_not_finite(3e38f, "first value that is not finite: %");
    check_checkpoint();
    check_large();
    check_evaluation();
    check_left_out_labels();
    return check_report();
}
