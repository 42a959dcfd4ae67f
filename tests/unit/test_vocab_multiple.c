/* Vocabularies of which every rank stores more words than there are (Mesh.vocab_multiple), against
 * one rank that stores those there are. Would catch: words of padding that count in a sum, are
 * drawn, trained, clipped by or saved; shares that two places measure differently; a message that
 * brings too few; a model in which padding would show, and does; a multiple that leaves a rank
 * without words; a choice for a device that is none.
 */
#include "tests/unit/train_compare.h"

enum { GLOBAL_BATCH = 12, MULTIPLE = 24 };

static const char *const MODELS[] = {
    "models/gpt.lua",
    "models/bert.lua",
    "tests/models/composed.lua",
    "models/hybrid.lua",
    "tests/models/gemma.lua",
    "models/llama.lua",
    "tests/models/muon.lua",
    "tests/models/experts.lua",
    "models/gptoss.lua",
    "tests/models/shared.lua",
    "tests/models/penalties.lua",
};

static const LayoutCase CASES[] = {
    /* t, d, p, micro-batch, chunks, schedule, sequence parallel, split */
    {{1, 1, 1, 12, 1, "1f1b", false, NULL, 0}, RECOMPUTE_NONE, 0},
    {{2, 1, 1, 4, 1, "1f1b", true, NULL, 0}, RECOMPUTE_SELECTIVE, 0},
    {{1, 3, 1, 2, 1, "1f1b", false, NULL, 0}, RECOMPUTE_FULL, 1},
    {{2, 2, 1, 2, 1, "1f1b", false, NULL, 0}, RECOMPUTE_NONE, 2},
    {{1, 2, 1, 6, 1, "1f1b", false, NULL, 0}, RECOMPUTE_NONE, 3},
    {{1, 1, 2, 3, 1, "1f1b", false, NULL, 0}, RECOMPUTE_NONE, 0},
};
enum { N_CASES = sizeof(CASES) / sizeof(CASES[0]) };

static void check_filled(Run *run) {
    CHECK(run->plan->mesh.vocab_multiple == MULTIPLE, "%d", run->plan->mesh.vocab_multiple);
    CHECK(plan_vocab_share(run->plan) % MULTIPLE == 0, "%lld words a rank",
          (long long)plan_vocab_share(run->plan));
}

static void check_model(const char *path, int first) {
    const TrainingSetup training = {path, GLOBAL_BATCH, 3, 1e-3};
    Run one;
    bool done = start_on_one_rank(&one, &training) && run_training(&one, &training);
    check_begin(path);
    CHECK(done, "one rank: %s", diag_text(one.diag));
    CHECK(!done || one.plan->vocab % MULTIPLE, "a vocabulary of %lld needs no filling",
          (long long)one.plan->vocab);
    check_end();
    run_vocab_multiple = MULTIPLE;
    for (int c = first; done && c < N_CASES; c += LAYOUT_STEP) {
        check_case(&training, &CASES[c], &one, check_filled);
    }
    run_vocab_multiple = 0;
    run_close(&one);
}

static int64_t share_of(int64_t words, int t, int multiple, int group) {
    const Type type = {.rank = 1, .axes = {AXIS_VOCAB}, .dims = {words}};
    const Mesh mesh = {.size = {t, 1, 1, 1, 1, 1}, .vocab_multiple = multiple};
    return type_share(&type, 0, group, &mesh);
}

static void check_shares(void) {
    check_begin("a rank's share of a vocabulary");
    CHECK(share_of(50257, 1, 0, -1) == 50257, "as it is");
    CHECK(share_of(50257, 1, 64, -1) == 50304, "whole");
    CHECK(share_of(50257, 2, 0, MESH_T) == 25129, "divided");
    CHECK(share_of(50257, 2, 64, MESH_T) == 25152, "divided and filled up");
    CHECK(share_of(50304, 1, 64, -1) == 50304, "nothing to fill");
    const Type model = {.rank = 1, .axes = {AXIS_VOCAB + 1}, .dims = {50257}};
    const Mesh mesh = {.size = {1, 1, 1, 1, 1, 1}, .vocab_multiple = 64};
    CHECK(type_share(&model, 0, -1, &mesh) == 50257, "another axis");
    check_end();
}

/* What is chosen where nothing is said. */
static void check_choices(void) {
    static const struct {
        const char *vocab;
        int t, asked;
        bool cuda;
        int multiple; /* -1: refused */
        const char *why;
    } WORDS[] = {
        {"50257", 1, 0, true, 64, NULL},
        {"50257", 2, 0, true, 64, NULL},
        {"50257", 1, 0, false, 0, NULL},
        {"50257", 1, 1, true, 0, NULL},
        {"50257", 1, 128, false, 128, NULL},
        {"50304", 1, 0, true, 0, NULL},
        {"50272", 4, 0, true, 0, NULL}, /* 12568 are whole rows of 16 bytes */
        {"32001", 4, 0, true, 64, NULL},
        {"65", 1, 0, true, 8, NULL},
        {"65", 2, 0, true, 8, NULL},
        {"10", 4, 0, true, 0, NULL}, /* of 8, 4 or 2 each the last ranks would have none */
        {"14", 4, 0, true, 4, NULL},
        {"65", 4, 64, false, -1,
         "--vocab-multiple 64: of 65 words t=4 would leave the last rank none"},
    };
    for (size_t i = 0; i < sizeof(WORDS) / sizeof(WORDS[0]); i++) {
        char name[80];
        Run run;
        const Layout layout = {WORDS[i].t, 1, 1, 1, 1, "1f1b", false, NULL, 0};
        const ModelSetting settings[] = {{"vocab", WORDS[i].vocab}, {"layers", "1"}};
        snprintf(name, sizeof(name), "%s words, t=%d, %s, asked for %d", WORDS[i].vocab, WORDS[i].t,
                 WORDS[i].cuda ? "cuda" : "cpu", WORDS[i].asked);
        check_begin(name);
        run_vocab_multiple = WORDS[i].asked;
        bool done = run_plan_for(&run, "models/gpt.lua", settings, 2, &layout, 2, true,
                                 WORDS[i].cuda, DTYPE_F32);
        run_vocab_multiple = 0;
        CHECK(done == !WORDS[i].why, "%s", diag_text(run.diag));
        if (WORDS[i].why) {
            CHECK(strstr(diag_text(run.diag), WORDS[i].why), "%s", diag_text(run.diag));
        }
        CHECK(!done || run.plan->mesh.vocab_multiple == WORDS[i].multiple, "a multiple of %d",
              run.plan->mesh.vocab_multiple);
        run_close(&run);
        check_end();
    }
}

/* A mean over all words of their probabilities' logarithms would count those of padding. */
static void check_shown(void) {
    const Layout alone = {1, 1, 1, 2, 1, "1f1b", false, NULL, 0};
    for (int asked = 0; asked <= MULTIPLE; asked += MULTIPLE) {
        Run run;
        check_begin(asked ? "padding that would show is refused" : "or left out");
        run_vocab_multiple = asked;
        bool done = run_plan_for(&run, "tests/models/all_words.lua", NULL, 0, &alone, 2, true, true,
                                 DTYPE_BF16);
        run_vocab_multiple = 0;
        CHECK(done == !asked, "%s", diag_text(run.diag));
        if (done) CHECK(run.plan->mesh.vocab_multiple == 0, "filled up");
        const char *why = "axis 'vocab' is 62: --vocab-multiple 24 would fill it up, and";
        if (asked) CHECK(strstr(diag_text(run.diag), why), "%s", diag_text(run.diag));
        run_close(&run);
        check_end();
    }
}

int main(void) {
    check_shares();
    check_choices();
    check_shown();
    for (size_t i = 0; i < sizeof(MODELS) / sizeof(MODELS[0]); i++) {
        check_model(MODELS[i], (int)i % LAYOUT_STEP);
    }
    compare_print_worst();
    return check_report();
}
