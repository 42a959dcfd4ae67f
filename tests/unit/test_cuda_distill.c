/* Captured steps of students and their teachers, proved and run without a GPU: see cuda_graph.h. */
#include "tests/unit/check.h"

#ifndef HAVE_CUDA
int main(void) {
    puts("skip captured steps of students: built without CUDA's headers");
    return 0;
}
#else

#include "tests/unit/cuda_graph.h"

static const Variant STUDENTS[] = {
    {"llama from llama",
     "models/llama.lua",
     2,
     DTYPE_F32,
     {SIZES, {"layers", "2"}, {"vocab", "61"}, {"kv_heads", "2"}, {"ffn", "88"}}},
    {"llama from llama, bf16",
     "models/llama.lua",
     2,
     DTYPE_BF16,
     {SIZES, {"layers", "2"}, {"vocab", "61"}, {"kv_heads", "2"}, {"ffn", "88"}}},
};
static const ModelSetting TEACHER[] = {{"layers", "3"}, {"model", "48"}, {"heads", "4"},
                                       {"seq", "8"},    {"vocab", "61"}, {"kv_heads", "4"}};
static const Distillation HOW[] = {{"forward", 0.5, 2, 0.5, true, 0, 0},
                                   {"reverse", 1, 1, 0.5, true, 0, 0},
                                   {"jsd", 0.7, 1, 0.3, true, 0, 0}};
static const Layout FEW[] = {
    /* t, d, p, micro-batch, chunks, schedule, sequence parallel, split */
    {1, 1, 1, 4, 1, "1f1b", false, NULL, 0},  {2, 1, 1, 4, 1, "1f1b", true, NULL, 0},
    {1, 2, 2, 2, 1, "1f1b", false, NULL, 0},  {2, 1, 2, 4, 1, "zb-h1", false, NULL, 0},
    {1, 1, 4, 2, 1, "gpipe", false, NULL, 0},
};

static void run_all(void) {
    for (size_t h = 0; h < sizeof(HOW) / sizeof(HOW[0]); h++) {
        const RunTeacher from = {"models/llama.lua", TEACHER, 6, HOW[h]};
        run_teacher = &from;
        for (size_t v = 0; v < sizeof(STUDENTS) / sizeof(STUDENTS[0]); v++) {
            check_layouts(&STUDENTS[v], FEW, sizeof(FEW) / sizeof(FEW[0]));
        }
        run_teacher = NULL;
    }
    const RunTeacher stored = {NULL, NULL, 0, {"forward", 0.6, 1, 0.5, true, 4, 61}};
    run_teacher = &stored;
    for (size_t v = 0; v < sizeof(STUDENTS) / sizeof(STUDENTS[0]); v++) {
        check_layouts(&STUDENTS[v], &FEW[1], 2);
    }
    run_teacher = NULL;
}

int main(void) {
    const char *missing = fake_missing();
    if (missing) {
        printf("skip captured steps of students: %s\n", missing);
        return 0;
    }
    forget_cache();
    return run_in_halves(run_all);
}

#endif
