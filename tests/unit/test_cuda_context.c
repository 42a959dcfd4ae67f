/* Captured steps with c, which divides sequences, proved and run without a GPU: see cuda_graph.h.
 * Catches attention of queries at other places than theirs, chunks packed in another order, a group
 * of other ranks. */
#include "tests/unit/check.h"

#ifndef HAVE_CUDA
int main(void) {
    puts("skip captured steps of c: built without CUDA's headers");
    return 0;
}
#else

#include "tests/unit/cuda_graph.h"

/* clang-format off */
static const Variant VARIANTS[] = {
    {"gpt dropout", "models/gpt.lua", 4, DTYPE_F32,
     {SIZES, {"layers", "2"}, {"vocab", "61"}, {"dropout", "0.1"},
      {"attention_dropout", "0.2"}}},
    {"llama bf16 window", "models/llama.lua", 2, DTYPE_BF16,
     {SIZES, {"layers", "2"}, {"vocab", "61"}, {"kv_heads", "2"}, {"ffn", "24"}, {"window", "3"}}},
    /* c divides heads, also what t leaves of them */
    {"states", "models/hybrid.lua", 2, DTYPE_F32,
     {SIZES, {"layers", "2"}, {"vocab", "61"}, {"pattern", "MD"}, {"feed", "none"},
      {"state_groups", "1"}, {"state_heads", "8"}, {"state_keys", "6"}, {"state_values", "4"}}},
};
/* One token of eight ends a document. */
static const Variant DOCUMENTS = {
    "gpt bf16 documents", "models/gpt.lua", 2, DTYPE_BF16,
    {SIZES, {"layers", "2"}, {"vocab", "8"}, {"documents", "5"}}};
static const Variant ENCODER = {
    "bert bf16 documents", "models/bert.lua", 2, DTYPE_BF16,
    {SIZES, {"layers", "2"}, {"vocab", "8"}, {"documents", "5"}, {"mask_token", "7"}}};
/* Ideas from papers: biases of scores, prefix sums, n-grams, residual streams. */
static const Variant PAPERS[] = {
    {"forget gates bf16", "tests/models/biases.lua", 2, DTYPE_BF16,
     {SIZES, {"layers", "2"}, {"vocab", "61"}, {"kv_heads", "2"}}},
    {"n-grams, streams, places as numbers", "tests/models/ideas.lua", 2, DTYPE_F32,
     {SIZES, {"layers", "2"}, {"vocab", "61"}, {"grams", "50"}, {"streams", "true"},
      {"attention", "values"}}},
};
/* clang-format on */

typedef struct Case {
    int c, zero;
    Layout layout;
} Case;

static const Case CASES[] = {
    {2, 0, {1, 1, 1, 4, 1, "1f1b", false, NULL, 0}},
    {4, 0, {2, 1, 1, 2, 1, "1f1b", true, NULL, 0}},
    {2, 1, {1, 1, 2, 2, 1, "1f1b", false, NULL, 0}},
    {2, 3, {2, 2, 1, 4, 1, "1f1b", true, NULL, 0}},
};

static void run(void) {
    const Layout layout = {1, 1, 2, 2, 1, "1f1b", false, NULL, 0};
    run_context = 2;
    check_layouts(&DOCUMENTS, &layout, 1);
    check_layouts(&ENCODER, &layout, 1);
    for (size_t v = 0; v < sizeof(PAPERS) / sizeof(PAPERS[0]); v++) {
        check_layouts(&PAPERS[v], &layout, 1);
    }
    for (size_t v = 0; v < sizeof(VARIANTS) / sizeof(VARIANTS[0]); v++) {
        for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
            run_context = CASES[i].c;
            run_zero = CASES[i].zero;
            check_layouts(&VARIANTS[v], &CASES[i].layout, 1);
        }
    }
}

int main(void) {
    if (fake_missing()) {
        printf("skip captured steps of c: %s\n", fake_missing());
        return 0;
    }
    forget_cache();
    return run_in_halves(run);
}
#endif
