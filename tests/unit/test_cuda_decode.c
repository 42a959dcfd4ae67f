/* Decoding by captured graphs, on the fake of CUDA's libraries: every kind of cache and state, from
 * models and side by side, against training's forward pass on the CPU, as test_decode has it.
 *
 * Would catch: inputs of a chunk in another's place, or of the launch before; logits of another
 * chunk, or not copied yet; sequences that are not copied on the device; a wait left out between a
 * cache's writer and its reader; a graph of other operations than those that were emitted, or that
 * touch what they do not say; a workspace that the plan has no room for.
 *
 * The emulator is slow: models of two blocks, and with AddressSanitizer only one of them.
 */
#include "tests/unit/check.h"

#ifndef HAVE_CUDA
int main(void) {
    puts("skip decoding on CUDA: built without CUDA's headers");
    return 0;
}
#else

#include "runtime/engine_internal.h"
#include "tests/emulate/emulate.h"
#include "tests/support/dag_check.h"
#include "tests/support/generated_run.h"
#include "tests/unit/decode_fixture.h"
#include "tests/unit/fake_check.h"

#ifdef __SANITIZE_ADDRESS__
enum { MOST_CASES = 1 };
#else
enum { MOST_CASES = 100 };
#endif

typedef struct Case {
    const char *variant; /* of VARIANTS */
    DType precision;
    int chunk;
    int cuts[BATCH];
    int t; /* virtual ranks, on one device */
} Case;

static const Case CASES[] = {
    {"llama, documents, window", DTYPE_BF16, 5, {3, 12}, 1},
    {"gpt", DTYPE_F32, 7, {3, 12}, 1},
    {"gemma", DTYPE_BF16, 32, {21, 5}, 1},
    {"gpt-oss", DTYPE_F16, 9, {4, 11}, 1},
    {"hybrid, documents, shared experts, adapters", DTYPE_F32, 5, {3, 12}, 1},
    {"hybrid", DTYPE_BF16, 5, {9, 2}, 1},
    {"kimi", DTYPE_BF16, 5, {9, 2}, 1},
    {"deepseek", DTYPE_F32, 5, {3, 12}, 1},
    {"deepseek of long positions", DTYPE_BF16, 12, {6, 13}, 1},
    {"llama, documents, window", DTYPE_BF16, 5, {3, 12}, 2},
    {"hybrid, documents, shared experts, adapters", DTYPE_F32, 5, {3, 12}, 2},
    {"deepseek", DTYPE_BF16, 5, {9, 2}, 2},
};
enum { N_CASES = sizeof(CASES) / sizeof(CASES[0]) };

static const Variant *find_variant(const char *name) {
    for (int i = 0; i < N_VARIANTS; i++) {
        if (strcmp(VARIANTS[i].name, name) == 0) return &VARIANTS[i];
    }
    BUG("no variant '%s'", name);
}

static const FakeOptions FAKE = {.poison = true, .seed = 5};

static void begin_fake(const FakeOptions *options, bool graphs) {
    cuda_api_replace(fake_cuda_create(options));
    decode_options = (EngineOptions){.device = DEVICE_CUDA, .no_graph = !graphs};
}

static void end(void) {
    decode_options = (EngineOptions){.n_threads = 1};
    decode_t = 1;
    end_fake();
}

/* What is captured is what was emitted, and all that touches the same memory is ordered. */
static void prove(const Engine *engine) {
    char why[512] = "";
    CHECK(fake_cuda_n_graphs() == engine->plan->n_chunks, "%d graphs", fake_cuda_n_graphs());
    for (int g = 0; g < fake_cuda_n_graphs(); g++) {
        CHECK(dag_check(fake_cuda_graph(g), why, sizeof(why)), "graph %d: %s", g, why);
    }
    CHECK(fake_cuda_graph(DECODE_READ)->n_nodes == engine_call_count(engine),
          "%d nodes, %lld were emitted", fake_cuda_graph(DECODE_READ)->n_nodes,
          (long long)engine_call_count(engine));
}

/* Operations touch what their commands say, in a state that texts have left. */
static void prove_accesses(void) {
    char why[512] = "";
    CHECK(dag_check_accesses(fake_cuda_graph(DECODE_WRITE), why, sizeof(why)), "%s", why);
}

static void test_case(const Case *c) {
    Expected e;
    Decoding d;
    char name[160];
    snprintf(name, sizeof(name), "%s in %s%s: decoded as trained", c->variant,
             dtype_name(c->precision), c->t > 1 ? " on two ranks" : "");
    check_begin(name);
    const Variant *variant = find_variant(c->variant);
    bool done = expect(&e, variant, c->precision);
    CHECK(done, "%s", diag_text(e.run.diag));
    begin_fake(&FAKE, true);
    decode_t = c->t;
    decode_scores = c->t > 1; /* texts are scored, too */
    decode_options.virtual_ranks = c->t > 1;
    if (done) {
        bool fine = decoding_from_model(&d, variant, c->precision, BATCH, c->chunk);
        CHECK(fine, "%s %s", d.obstacle.what ? d.obstacle.what : "", diag_text(d.diag));
        if (fine) {
            prove(d.engine);
            if (decode_scores) check_scoring(&e, &d, c->precision, c->cuts);
            check_decoding(&e, &d, c->precision, c->cuts);
            prove_accesses();
        }
        decoding_close(&d);
    }
    decode_scores = false;
    end();
    run_close(&e.run);
    check_end();
}

/* The same bits command by command; sequences that are copied, cut and cleared. */
static void test_sequences(void) {
    const Variant *variant = find_variant("hybrid");
    float logits[2][VOCAB];
    Expected e;
    check_begin("sequences that are copied, cut and cleared, with graphs and without");
    bool done = expect(&e, variant, DTYPE_F32);
    CHECK(done, "%s", diag_text(e.run.diag));
    for (int graphs = 0; done && graphs < 2; graphs++) {
        Decoding d;
        begin_fake(&FAKE, graphs);
        bool fine = decoding_from_model(&d, variant, DTYPE_F32, BATCH, 5);
        CHECK(fine, "%s", diag_text(d.diag));
        if (fine) {
            decoder_read(d.decoder, 0, e.tokens, 11, logits[graphs], d.diag);
            decoder_copy(d.decoder, 0, 1);
            CHECK(decoder_cut(d.decoder, 0, 10) == 0, "a position was taken out of a state");
            decoder_read(d.decoder, 1, e.tokens + 11, 3, logits[graphs], d.diag);
            compare(&e, 0, 13, logits[graphs], DTYPE_F32, "a copy read on");
            decoder_read(d.decoder, 0, e.tokens + SEQ, 7, logits[graphs], d.diag);
            compare(&e, 1, 6, logits[graphs], DTYPE_F32, "another sequence in its place");
        }
        decoding_close(&d);
        end();
    }
    CHECK(memcmp(logits[0], logits[1], sizeof(logits[0])) == 0, "graphs give other bits");
    run_close(&e.run);
    check_end();
}

/* Without a call of cuBLASLt. */
static void test_own_products(DType precision) {
    const Variant *variant = find_variant("llama, documents, window");
    FakeOptions without = FAKE;
    const int cuts[BATCH] = {3, 12};
    Expected e;
    Decoding d;
    check_begin(precision == DTYPE_F32 ? "own products, in f32: decoded as trained"
                                       : "own products, in bf16: decoded as trained");
    without.no_blas = true;
    bool done = expect(&e, variant, precision);
    CHECK(done, "%s", diag_text(e.run.diag));
    begin_fake(&without, true);
    decode_options.own_products = true;
    if (done) {
        bool fine = decoding_from_model(&d, variant, precision, BATCH, 5);
        CHECK(fine, "%s %s", d.obstacle.what ? d.obstacle.what : "", diag_text(d.diag));
        if (fine) {
            prove(d.engine);
            check_decoding(&e, &d, precision, cuts);
            prove_accesses();
        }
        decoding_close(&d);
    }
    end();
    run_close(&e.run);
    check_end();
}

/* A device that is too small, if only for the graphs, is found before anything is taken. */
static void test_refused(void) {
    const Variant *variant = find_variant("gpt");
    FakeOptions small = {.memory_bytes = 100 << 10};
    Expected e;
    Decoding d;
    check_begin("what does not fit is refused");
    bool done = expect(&e, variant, DTYPE_F32);
    CHECK(done, "%s", diag_text(e.run.diag));
    for (int i = 0; i < 2; i++) {
        begin_fake(&small, true);
        CHECK(!decoding_from_model(&d, variant, DTYPE_F32, BATCH, 5) &&
                  strstr(diag_text(d.diag), "the plan needs") &&
                  strstr(diag_text(d.diag), "on one device, and its graphs"),
              "%s", diag_text(d.diag));
        if (d.plan) small.memory_bytes = d.plan->stages[0].arena_bytes + (100 << 10);
        decoding_close(&d);
        end();
    }
    run_close(&e.run);
    check_end();
}

/* Why nothing can be run here; NULL: it can. */
static const char *missing(void) {
    return emulate_missing() ? emulate_missing() : generated_host_missing();
}

int main(void) {
    if (missing()) {
        printf("skip decoding on CUDA: %s\n", missing());
        return 0;
    }
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    int file = mkstemp(weights_path);
    if (file >= 0) close(file);
    for (int i = 0; i < N_CASES && i < MOST_CASES; i++) test_case(&CASES[i]);
    if (MOST_CASES > 1) test_sequences();
    test_own_products(DTYPE_F32);
    if (MOST_CASES > 1) test_own_products(DTYPE_BF16);
    test_refused();
    unlink(weights_path);
    return check_report();
}
#endif
