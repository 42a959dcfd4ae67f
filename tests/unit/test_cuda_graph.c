/* Captured steps of GPT, proved and run without a GPU, over the layouts of test_equivalence: see
 * cuda_graph.h. */
#include "tests/unit/check.h"

#ifndef HAVE_CUDA
int main(void) {
    puts("skip captured steps: built without CUDA's headers");
    return 0;
}
#else

#include "tests/unit/cuda_graph.h"

static const Variant GPT = {
    "gpt", "models/gpt.lua", 4, DTYPE_F32, {COMMON, {"vocab", "61"}, {"ffn", "64"}}};
static const Variant DEEP = {"gpt of 8 blocks",
                             "models/gpt.lua",
                             4,
                             DTYPE_F32,
                             {SIZES, {"layers", "8"}, {"vocab", "61"}, {"ffn", "64"}}};

/* Wide enough for states in 8 bits. */
static const Variant WIDE = {"gpt with states in 8 bits",
                             "models/gpt.lua",
                             2,
                             DTYPE_F32,
                             {{"optimizer.eps", "1e-6"},
                              {"model", "128"},
                              {"heads", "4"},
                              {"seq", "8"},
                              {"layers", "2"},
                              {"vocab", "61"},
                              {"ffn", "128"}}};

static void run(void) {
    check_layouts(&GPT, LAYOUTS, N_LAYOUTS);
    check_layouts(&DEEP, DEEP_LAYOUTS, N_DEEP_LAYOUTS);
    for (run_zero = ZERO_OPTIMIZER; run_zero < N_ZERO_STAGES; run_zero++) {
        check_layouts(&GPT, ZERO_LAYOUTS, run_zero == ZERO_PARAMETERS ? 5 : 2);
    }
    run_zero = ZERO_OPTIMIZER;
    run_state_dtype = DTYPE_BF16;
    check_layouts(&GPT, ZERO_LAYOUTS, 3);
    run_state_dtype = DTYPE_DYN8;
    check_layouts(&WIDE, &ZERO_LAYOUTS[2], 1);
    run_offload = 100;
    check_layouts(&WIDE, ZERO_LAYOUTS, 1);
    run_offload = 0;
    run_state_dtype = DTYPE_F32;
    run_ema_decay = 0.9;
    run_skips_spikes = true;
    check_layouts(&GPT, ZERO_LAYOUTS, 2);
    run_offload = 100; /* averages, too */
    check_layouts(&GPT, &ZERO_LAYOUTS[2], 2);
    run_offload = 0;
    run_ema_decay = 0;
    run_skips_spikes = false;
    run_zero = 0;
    run_loss_parts = 3; /* of 61 words, filled up to 64 */
    check_layouts(&GPT, ZERO_LAYOUTS, 4);
    run_loss_parts = 1;
    run_lanes = 2; /* each lane's messages are under way beside the other's work */
    check_layouts(&GPT, ZERO_LAYOUTS, 6);
    run_lanes = 1;
}

int main(void) {
    if (fake_missing()) {
        printf("skip captured steps: %s\n", fake_missing());
        return 0;
    }
    forget_cache();
    return run_in_halves(run);
}
#endif
