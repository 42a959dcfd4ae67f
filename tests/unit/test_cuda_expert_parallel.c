/* Captured steps with e, which divides experts, proved and run without a GPU: see cuda_graph.h.
 * Catches rows packed in another order than they are sent in, an all-to-all that a capture orders
 * before what it sends or after what reads it, a group of other ranks, work beside a message that
 * writes what that still sends (hide_messages), a run of slots that is another's. */
#include "tests/unit/check.h"

#ifndef HAVE_CUDA
int main(void) {
    puts("skip captured steps of e: built without CUDA's headers");
    return 0;
}
#else

#include "tests/unit/cuda_graph.h"

static const Variant VARIANTS[] = {
    {"experts", "tests/models/experts.lua", 4, DTYPE_F32, {{"experts", "4"}, {"layers", "2"}}},
    /* To all of them: else rounding decides who gets a token where two are near. */
    {"all experts, bf16",
     "models/moe.lua",
     2,
     DTYPE_BF16,
     {SIZES,
      {"layers", "2"},
      {"vocab", "61"},
      {"kv_heads", "2"},
      {"experts", "2"},
      {"expert_ffn", "24"},
      {"capacity", "0"}}},
};

typedef struct Case {
    int variant, e, zero, parts;
    Layout layout;
} Case;

static const Case CASES[] = {
    {0, 2, 0, 2, {2, 1, 1, 2, 1, "1f1b", true, NULL, 0}},
    {0, 2, 1, 1, {1, 1, 2, 2, 1, "1f1b", false, NULL, 0}},
    {1, 2, 3, 4, {1, 2, 1, 1, 1, "1f1b", false, NULL, 0}},
};

static void run(void) {
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        run_experts = CASES[i].e;
        run_zero = CASES[i].zero;
        run_expert_parts = CASES[i].parts;
        check_layouts(&VARIANTS[CASES[i].variant], &CASES[i].layout, 1);
    }
}

int main(void) {
    if (fake_missing()) {
        printf("skip captured steps of e: %s\n", fake_missing());
        return 0;
    }
    forget_cache();
    return run_in_halves(run);
}
#endif
