/* Labels that do not count, from the data to the gradient. Would catch: a mask that is off by one
 * from its labels, a mean that is taken over all positions or over a rank's, a position that does
 * not count and has a gradient, a batch of which nothing counts that breaks the weights.
 */
#include "runtime/data/dataset.h"
#include "tests/unit/check.h"
#include "tests/unit/train_fixture.h"

#include <sys/stat.h>
#include <unistd.h>

/* --- data --- */

static bool counts_at(int64_t i) {
    return i % 7 < 3 || i % 11 == 5;
}

static Dataset *make_data(int64_t n, int seq, Diag *diag) {
    uint16_t *tokens = malloc((size_t)n * 2);
    unsigned char *counts = malloc((size_t)n);
    for (int64_t i = 0; i < n; i++) {
        tokens[i] = (uint16_t)i;
        counts[i] = counts_at(i);
    }
    return dataset_from_tokens("memory", (DatasetTokens){tokens, 2, n, counts}, seq, 65536, diag);
}

static void check_part(const Dataset *part, int64_t first, int64_t end, int seq, Diag *diag) {
    int32_t tokens[64], labels[64];
    int64_t n_counted = 0;
    CHECK(dataset_count_windows(part) == (end - first) / seq, "%d windows",
          (int)dataset_count_windows(part));
    for (int64_t w = 0; w < dataset_count_windows(part); w++) {
        CHECK(dataset_window(part, w, tokens, labels, diag), "%s", diag_text(diag));
        for (int k = 0; k < seq; k++) {
            int64_t at = first + w * seq + k + 1;
            int64_t expected = at < end && counts_at(at) ? at : DATASET_NO_LABEL;
            CHECK(tokens[k] == at - 1 && labels[k] == expected, "window %d, place %d: label %d",
                  (int)w, k, labels[k]);
        }
    }
    for (int64_t i = first; i < end; i++) n_counted += counts_at(i);
    CHECK(dataset_count_counted(part) == n_counted, "%d count", (int)dataset_count_counted(part));
}

static void test_data(void) {
    check_begin("masks: labels that do not count, at the end of data and of their parts");
    Diag *diag = diag_create();
    enum { SEQ = 16 };
    for (int64_t n = 4 * SEQ; n < 6 * SEQ; n += 5) {
        Dataset *whole = make_data(n, SEQ, diag), *train, *val;
        CHECK(whole && dataset_is_masked(whole), "%s", diag_text(diag));
        check_part(whole, 0, n, SEQ, diag);
        CHECK(dataset_split(whole, 0.4, &train, &val, diag), "%s", diag_text(diag));
        int64_t cut = dataset_count_tokens(train);
        CHECK(cut % SEQ == 0 && cut + dataset_count_tokens(val) == n, "cut at %d", (int)cut);
        check_part(train, 0, cut, SEQ, diag);
        check_part(val, cut, n, SEQ, diag);
        dataset_close(train);
        dataset_close(val);
        dataset_close(whole);
    }
    Dataset *one = make_data(SEQ, SEQ, diag), *none = make_data(SEQ - 1, SEQ, diag);
    CHECK(one && !none && strstr(diag_text(diag), "has 15 tokens; seq=16 needs at least 16"), "%s",
          diag_text(diag));
    dataset_close(one);
    diag_destroy(diag);
}

/* --- files --- */

static char folder[] = "/tmp/test_masks-XXXXXX";

static const char *put(Arena *arena, const char *name, const void *bytes, size_t length) {
    const char *path = arena_printf(arena, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    CHECK(file && fwrite(bytes, 1, length, file) == length, "%s", path);
    if (file) fclose(file);
    return path;
}

/* A .npy of n bytes, all `value`, with room for `promised`. */
static size_t make_npy(char *out, const char *type, int promised, int n, int value) {
    memset(out, ' ', 128);
    memcpy(out, "\x93NUMPY\x01\x00\x76\x00", 10);
    int length = snprintf(
        out + 10, 118, "{'descr': '%s', 'fortran_order': False, 'shape': (%d,), }", type, promised);
    out[10 + length] = ' ';
    out[127] = '\n';
    memset(out + 128, value, (size_t)n);
    return 128 + (size_t)n;
}

static void expect_open(const char *path, const char *error) {
    Diag *diag = diag_create();
    Dataset *data = dataset_open(path, 8, 256, 1, diag);
    CHECK((data == NULL) == (error != NULL), "%s: %s", path, diag_text(diag));
    CHECK(!error || strstr(diag_text(diag), error), "no '%s' in '%s'", error, diag_text(diag));
    CHECK(error || dataset_is_masked(data), "no mask");
    dataset_close(data);
    diag_destroy(diag);
}

static void test_files(void) {
    Arena *arena = arena_create();
    char npy[256];
    check_begin("masks: files beside their tokens, and what is wrong with them");
    CHECK(mkdtemp(folder), "%s", folder);
    const char *text = put(arena, "x.txt", "abcdefghijklmnopqrst", 20);
    const char *mask = put(arena, "x.txt.mask.npy", npy, make_npy(npy, "|b1", 20, 20, 1));
    expect_open(text, NULL);
    expect_open(folder, NULL);
    expect_open(mask, "is a mask: give the file of tokens that it lies beside");
    put(arena, "x.txt.mask.npy", npy, make_npy(npy, "|u1", 20, 20, 0));
    expect_open(text, NULL);
    put(arena, "x.txt.mask.npy", npy, make_npy(npy, "|u1", 20, 20, 2));
    expect_open(text, "is 2 at position 0: a mask is 1");
    put(arena, "x.txt.mask.npy", npy, make_npy(npy, "|u1", 19, 19, 1));
    expect_open(text, "masks 19 tokens, but ");
    put(arena, "x.txt.mask.npy", npy, make_npy(npy, "<u2", 20, 40, 0));
    expect_open(text, "is no mask: one is a .npy of booleans or u1");
    put(arena, "x.txt.mask.npy", npy, make_npy(npy, "|u1", 20, 10, 1));
    expect_open(text, "promises 20 tokens");
    put(arena, "x.txt.mask.npy", "11111111111111111111", 20);
    expect_open(text, "is no mask");
    unlink(text);
    expect_open(folder, "is a mask, but there is no ");
    unlink(mask);
    rmdir(folder);
    arena_destroy(arena);
}

/* --- gradients --- */

static const ModelSetting SETTINGS[] = {{"seq", "16"},   {"model", "32"},    {"layers", "4"},
                                        {"vocab", "48"}, {"heads", "4"},     {"kv_heads", "4"},
                                        {"ffn", "32"},   {"masked", "true"}, {"tied", "false"}};
enum { N_SETTINGS = sizeof(SETTINGS) / sizeof(SETTINGS[0]), BATCH = 8, SEQ = 16, VOCAB = 48 };

/* Sequences of tokens of their own: 8 + 5 s .. 8 + 5 s + 4. */
static void fill(int32_t *tokens, int32_t *labels) {
    for (int i = 0; i < BATCH * SEQ; i++) {
        tokens[i] = 5 * (i / SEQ) + (i * i + i / 3) % 5 + 8;
        labels[i] = 5 * (i / SEQ) + (3 * i + 1) % 5 + 8;
    }
}

typedef struct Result {
    double loss, norm;
    float *wte, *wq; /* gradients */
} Result;

/* A step of no length over the labels that `count` says. */
static Result step(Run *run, bool (*count)(int i)) {
    Result out = {0};
    int32_t tokens[BATCH * SEQ], labels[BATCH * SEQ];
    StepResult result;
    fill(tokens, labels);
    for (int i = 0; i < BATCH * SEQ; i++) {
        if (!count(i)) labels[i] = DATASET_NO_LABEL;
    }
    CHECK(engine_step(run->engine, 1, tokens, labels, 0, &result, run->diag), "%s",
          diag_text(run->diag));
    out.loss = result.loss;
    out.norm = result.grad_norm;
    out.wte = ARENA_ARRAY(run->arena, float, VOCAB * 32);
    double evaluated = -1;
    if (!engine_read_gradient(run->engine, "wte", out.wte)) out.wte = NULL;
    CHECK(engine_evaluate(run->engine, tokens, labels, &evaluated, run->diag) &&
              fabs(evaluated - out.loss) <= 1e-6 * (1 + out.loss),
          "evaluated %.8g, trained %.8g", evaluated, out.loss);
    return out;
}

static bool all(int i) {
    return i >= 0;
}
static bool none(int i) {
    return i < 0;
}
static bool few(int i) {
    return counts_at(i) && i / SEQ != 2;
}
static bool rest(int i) {
    return !few(i);
}
static int count(bool (*which)(int i)) {
    int n = 0;
    for (int i = 0; i < BATCH * SEQ; i++) n += which(i);
    return n;
}

/* The mean over all is that over two parts, by how much they have; so is the gradient. And tokens
 * of a sequence of which nothing counts have no gradient at all. */
static void check_parts(Run *run, const char *name) {
    Result a = step(run, few), b = step(run, rest), both = step(run, all), empty = step(run, none);
    double n_a = count(few), n_b = count(rest), n = n_a + n_b, worst = 0, largest = 0;
    double mean = (n_a * a.loss + n_b * b.loss) / n;
    CHECK(fabs(both.loss - mean) < 2e-6 * mean, "%s: %.8g, not %.8g", name, both.loss, mean);
    CHECK(empty.loss == 0 && empty.norm == 0, "%s: nothing counts: %g, %g", name, empty.loss,
          empty.norm);
    if (!a.wte || !b.wte || !both.wte) return; /* its memory has been used again */
    for (int i = 0; i < VOCAB * 32; i++) {
        double sum = (n_a * (double)a.wte[i] + n_b * (double)b.wte[i]) / n;
        double off = fabs(sum - (double)both.wte[i]), size = fabs((double)both.wte[i]);
        worst = off > worst ? off : worst;
        largest = size > largest ? size : largest;
    }
    CHECK(worst < 1e-5 * largest, "%s: a gradient is %g off, of %g", name, worst, largest);
    for (int i = 18 * 32; i < 23 * 32; i++) {
        CHECK(a.wte[i] == 0, "%s: token %d has a gradient: %g", name, i / 32, (double)a.wte[i]);
    }
}

static void test_layouts(void) {
    static const struct {
        Layout layout;
        int c, e, zero;
        const char *model;
    } CASES[] = {
        {{1, 1, 1, 8, 1, "1f1b", false, NULL, 0}, 1, 1, 0, "llama"},
        {{1, 1, 1, 1, 1, "1f1b", false, NULL, 0}, 1, 1, 0, "llama"},
        {{2, 2, 2, 1, 1, "1f1b", true, NULL, 0}, 1, 1, 0, "llama"},
        {{1, 2, 1, 2, 1, "gpipe", false, NULL, 0}, 2, 1, 2, "llama"},
        {{1, 1, 2, 2, 2, "zb-chunked", false, NULL, 0}, 1, 1, 0, "gpt"},
        {{1, 2, 1, 2, 1, "1f1b", false, NULL, 0}, 1, 2, 1, "moe"},
    };
    check_begin("masks: losses and gradients are over what counts, under every layout");
    double first_loss = 0, first_norm = 0;
    for (size_t l = 0; l < sizeof(CASES) / sizeof(CASES[0]); l++) {
        Run run;
        Arena *names = arena_create();
        const char *path = arena_printf(names, "models/%s.lua", CASES[l].model);
        const char *name = arena_printf(names, "layout %zu", l);
        ModelSetting settings[N_SETTINGS + 1];
        int n = 0;
        for (int i = 0; i < N_SETTINGS; i++) {
            bool has = strcmp(CASES[l].model, "gpt") != 0 || strcmp(SETTINGS[i].key, "kv_heads");
            if (has) settings[n++] = SETTINGS[i];
        }
        if (strcmp(CASES[l].model, "moe") == 0) settings[n++] = (ModelSetting){"balance", "0.0"};
        run_context = CASES[l].c;
        run_experts = CASES[l].e;
        run_zero = CASES[l].zero;
        bool ready =
            run_plan(&run, path, settings, n, &CASES[l].layout, BATCH, false) && run_start(&run);
        CHECK(ready, "%s: %s", name, diag_text(run.diag));
        if (ready) {
            check_parts(&run, name);
            Result a = step(&run, few);
            if (l == 0) first_loss = a.loss, first_norm = a.norm;
            bool same = strcmp(CASES[l].model, "llama") == 0;
            CHECK(!same || fabs(a.loss - first_loss) < 1e-6 * first_loss, "%s: %.8g, not %.8g",
                  name, a.loss, first_loss);
            CHECK(!same || fabs(a.norm - first_norm) < 1e-5 * first_norm, "%s: %.8g, not %.8g",
                  name, a.norm, first_norm);
        }
        run_close(&run);
        arena_destroy(names);
    }
    run_context = run_experts = 1;
    run_zero = 0;
}

/* A step of which nothing counts leaves the weights where decay and momentum take them: finite. */
static void test_empty(void) {
    check_begin("masks: a batch of which nothing counts does not break the weights");
    Run run;
    Layout layout = {1, 1, 1, 4, 1, "1f1b", false, NULL, 0};
    int32_t tokens[BATCH * SEQ], labels[BATCH * SEQ];
    StepResult result;
    bool ready = run_plan(&run, "models/llama.lua", SETTINGS, N_SETTINGS, &layout, BATCH, false) &&
                 run_start(&run);
    CHECK(ready, "%s", diag_text(run.diag));
    for (int i = 1; ready && i <= 4; i++) {
        fill(tokens, labels);
        for (int k = 0; i % 2 && k < BATCH * SEQ; k++) labels[k] = DATASET_NO_LABEL;
        CHECK(engine_step(run.engine, i, tokens, labels, 1e-3, &result, run.diag), "%s",
              diag_text(run.diag));
        CHECK(i % 2 ? result.loss == 0 && result.grad_norm == 0 : result.loss > 1, "step %d: %g", i,
              result.loss);
    }
    float *wte = ARENA_ARRAY(run.arena, float, VOCAB * 32);
    CHECK(ready && engine_read_parameter(run.engine, "wte", wte), "wte");
    for (int i = 0; ready && i < VOCAB * 32; i++) CHECK(isfinite(wte[i]), "wte[%d]", i);
    run_close(&run);
}

/* Conversation `which` (or both, one behind the other) in the first sequence, then padding of
 * tokens 0, which end documents; nothing else counts. */
static double packed_loss(Run *run, bool first, bool second, int *out_count) {
    static const int LENGTHS[] = {6, 7};
    int32_t tokens[BATCH * SEQ] = {0}, labels[BATCH * SEQ];
    int at = 0;
    double loss = NAN;
    for (int i = 0; i < BATCH * SEQ; i++) labels[i] = DATASET_NO_LABEL;
    *out_count = 0;
    for (int c = 0; c < 2; c++) {
        if (!(c ? second : first)) continue;
        for (int i = 0; i < LENGTHS[c]; i++, at++) {
            tokens[at] = i + 1 < LENGTHS[c] ? 3 + 11 * c + 2 * i : 0;
            bool counts = i >= 3;
            if (counts) labels[at - 1] = tokens[at];
            *out_count += counts;
        }
    }
    CHECK(engine_count_labels(run->engine, labels) == *out_count, "%d count", *out_count);
    CHECK(engine_evaluate(run->engine, tokens, labels, &loss, run->diag), "%s",
          diag_text(run->diag));
    return loss;
}

static void test_packed(void) {
    check_begin("masks: packed conversations have the losses that they have alone");
    Run run;
    Layout layout = {1, 1, 1, 4, 1, "1f1b", false, NULL, 0};
    ModelSetting settings[N_SETTINGS + 1];
    memcpy(settings, SETTINGS, sizeof(SETTINGS));
    settings[N_SETTINGS] = (ModelSetting){"documents", "0"};
    bool ready =
        run_plan(&run, "models/llama.lua", settings, N_SETTINGS + 1, &layout, BATCH, false) &&
        run_start(&run);
    CHECK(ready, "%s", diag_text(run.diag));
    if (ready) {
        int n_a, n_b, n;
        double a = packed_loss(&run, true, false, &n_a), b = packed_loss(&run, false, true, &n_b);
        double both = packed_loss(&run, true, true, &n), mean = (a * n_a + b * n_b) / n;
        CHECK(n == n_a + n_b && fabs(both - mean) < 1e-6 * mean && fabs(a - b) > 1e-4,
              "together %.8g, alone %.8g and %.8g", both, a, b);
    }
    run_close(&run);
}

int main(void) {
    test_packed();
    test_data();
    test_files();
    test_layouts();
    test_empty();
    return check_report();
}
