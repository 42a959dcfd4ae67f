/* CUDA kernels of the optimizers whose states or gradients are bf16: against float64, on sizes with
 * and without whole vectors and blocks, and against the CPU's.
 *
 * Would catch: a state or gradient read or written as f32, or 8 bytes off its place; first moments
 * rounded as second ones, or these to nearest or by another threshold than the CPU's; LAMB's norm
 * of moments that are not those kept; a step made of rounded moments where it is not to be; an
 * update in spite of a clip factor that is not finite.
 */
#include "runtime/cpu/optimizer.h"
#include "tests/unit/cuda_check.h"

/* A few f32 roundings a step, beside bf16's own; and what a moment that they round the other way,
 * one of thousands, changes in a sum of squares. */
static const double TOLERANCE = 2e-6, SUM_TOLERANCE = 3e-5;

#define PARAM(number, values, dtype)                                                               \
    "%" #number " = param() {name=\"" values "\", init=\"zeros\", decay=1} : " dtype "[A]\n"
#define NUMBER(number, value) "%" #number " = input() {name=\":" value "\"} : f32[]\n"

typedef struct StateCase {
    const char *name, *nodes; /* A stands for axes, S and G for dtypes of states and gradients */
} StateCase;

static const StateCase CASES[] = {
    {"adamw",
     PARAM(0, "", "f32") PARAM(1, "", "G") PARAM(2, "", "S") PARAM(3, "+", "S") NUMBER(4, "0.5")
         NUMBER(5, "0.03125") NUMBER(
             6,
             "12") "%7:3 = adamw(%0, %1, %2, %3, %4, %5, %6) {beta1=0.9, beta2=0.999, eps=1e-08, "
                   "weight_decay=0.1} : f32[A], S[A], S[A]\n"},
    {"adamw, another step, a copy",
     PARAM(0, "", "f32") PARAM(1, "", "G") PARAM(2, "", "S") PARAM(3, "+", "S") NUMBER(4, "1")
         NUMBER(5, "0.03125") NUMBER(6, "70000")
             PARAM(7, "", "f16") "%8:4 = adamw(%0, %1, %2, %3, %4, %5, %6, %7) {beta1=0.9, "
                                 "beta2=0.95, eps=1e-08, "
                                 "weight_decay=0} : f32[A], S[A], S[A], f16[A]\n"},
    {"adamw, first step",
     PARAM(0, "", "f32") PARAM(1, "", "G") PARAM(2, ":0", "S") PARAM(3, ":0", "S") NUMBER(4, "1")
         NUMBER(5, "0.03125") NUMBER(
             6, "1") "%7:3 = adamw(%0, %1, %2, %3, %4, %5, %6) {beta1=0.9, beta2=0.95, eps=1e-08, "
                     "weight_decay=0.1} : f32[A], S[A], S[A]\n"},
    {"adamw, clip factor not a number",
     PARAM(0, "", "f32") PARAM(1, "", "G") PARAM(2, "", "S") PARAM(3, "+", "S") NUMBER(4, "nan")
         NUMBER(5, "0.03125") NUMBER(
             6,
             "12") "%7:3 = adamw(%0, %1, %2, %3, %4, %5, %6) {beta1=0.9, beta2=0.999, eps=1e-08, "
                   "weight_decay=0.1} : f32[A], S[A], S[A]\n"},
    {"sgd",
     PARAM(0, "", "f32") PARAM(1, "", "G") PARAM(2, "", "S") NUMBER(3, "0.5") NUMBER(4, "0.03125")
         PARAM(5, "", "bf16") "%6:3 = sgd(%0, %1, %2, %3, %4, %5) {momentum=0.9, weight_decay=0.1} "
                              ": f32[A], S[A], bf16[A]\n"},
    {"lion",
     PARAM(0, "", "f32") PARAM(1, "", "G") PARAM(2, "", "S") NUMBER(3, "0.5") NUMBER(4, "0.03125")
         PARAM(
             5, "",
             "f16") "%6:3 = lion(%0, %1, %2, %3, %4, %5) {beta1=0.9, beta2=0.99, weight_decay=0.1} "
                    ": f32[A], S[A], f16[A]\n"},
    {"lion, clip factor infinite",
     PARAM(0, "", "f32") PARAM(1, "", "G") PARAM(2, "", "S") NUMBER(3, "inf") NUMBER(
         4, "0.03125") "%5:2 = lion(%0, %1, %2, %3, %4) {beta1=0.9, beta2=0.99, weight_decay=0.1} "
                       ": f32[A], S[A]\n"},
    {"lamb's moments",
     PARAM(0, "", "f32") PARAM(1, "", "S") PARAM(2, "+", "S") NUMBER(3, "0.5") NUMBER(4, "12")
         PARAM(5, "", "G") "%6:4 = lamb_moments(%0, %1, %2, %3, %4, %5) {beta1=0.9, beta2=0.999, "
                           "eps=1e-06, "
                           "weight_decay=0.1} : S[A], S[A], f32[], f32[]\n"},
    {"lamb's moments, clip factor not a number",
     PARAM(0, "", "f32") PARAM(1, "", "S") PARAM(2, "+", "S") NUMBER(3, "nan") NUMBER(4, "12")
         PARAM(5, "", "G") "%6:4 = lamb_moments(%0, %1, %2, %3, %4, %5) {beta1=0.9, beta2=0.999, "
                           "eps=1e-06, "
                           "weight_decay=0.1} : S[A], S[A], f32[], f32[]\n"},
    {"lamb", PARAM(0, "", "f32") PARAM(1, "", "S") PARAM(2, "+", "S") NUMBER(3, "0.5")
                 NUMBER(4, "0.03125") NUMBER(5, "3") NUMBER(6, "5") NUMBER(7, "20")
                     PARAM(8, "", "bf16") "%9:2 = lamb(%0, %1, %2, %3, %4, %5, %6, %7, %8) "
                                          "{beta1=0.9, beta2=0.999, eps=1e-06, "
                                          "weight_decay=0.1} : f32[A], bf16[A]\n"},
    {"muon's momentum",
     PARAM(0, "", "S") NUMBER(1, "0.5")
         PARAM(2, "", "G") "%3:2 = muon_momentum(%0, %1, %2) {momentum=0.95} : S[A], f32[A]\n"},
    {"muon's momentum, clip factor not a number",
     PARAM(0, "", "S") NUMBER(1, "nan")
         PARAM(2, "", "G") "%3:2 = muon_momentum(%0, %1, %2) {momentum=0.95} : S[A], f32[A]\n"},
    {"sums of squares", PARAM(0, "", "G") "%1 = sumsq(%0) : f32[]\n"},
};

static const char *put_for(Arena *arena, const char *text, const char *mark, const char *word) {
    const char *at = strstr(text, mark);
    if (!at) return text;
    return arena_printf(arena, "%.*s%s%s", (int)(at - text), text, word,
                        put_for(arena, at + strlen(mark), mark, word));
}

static const char *nodes_of(Arena *arena, const StateCase *of, const char *state,
                            const char *gradient, const char *axes) {
    const char *text = put_for(arena, of->nodes, "S[A]", arena_printf(arena, "%s[A]", state));
    text = put_for(arena, text, "G[A]", arena_printf(arena, "%s[A]", gradient));
    return put_for(arena, text, "[A]", arena_printf(arena, "[%s]", axes));
}

/* What a case has none of changes nothing: it is not checked again. */
static void test_case(Arena *arena, const StateCase *of, const char *state, const char *gradient) {
    static const char *const SIZES[] = {"", "a=3, b=7", "a=8192", "a=1639, b=10"};
    bool has_states = strstr(of->nodes, "S[A]"), has_gradient = strstr(of->nodes, "G[A]");
    bool sums = strstr(of->nodes, "lamb_moments") || !has_states;
    bool low = has_gradient && strcmp(gradient, "bf16") == 0;
    if (!low && (!has_states || strcmp(state, "f32") == 0)) return; /* test_cuda_update's */
    if (!has_states && strcmp(state, "f32") != 0) return;
    if (!has_gradient && low) return;
    for (size_t k = 0; k < sizeof(SIZES) / sizeof(SIZES[0]); k++) {
        CudaCase c = {.nodes = nodes_of(arena, of, state, gradient, SIZES[k]),
                      .tolerance = k >= 2 && sums ? SUM_TOLERANCE : TOLERANCE};
        check_begin(arena_printf(arena, "%s, states %s, gradients %s, [%s]", of->name, state,
                                 gradient, SIZES[k]));
        cuda_check(&c);
        check_end();
    }
}

static void test_kernels(void) {
    static const char *const DTYPES[] = {"f32", "bf16"};
    Arena *arena = arena_create();
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        for (int k = 1; k < 4; k++) {
            test_case(arena, &CASES[i], DTYPES[k & 1], DTYPES[k >> 1]);
        }
    }
    arena_destroy(arena);
}

/* In how many elements two bf16 arrays differ; *out_far: by more than their last bit. */
static int64_t count_unlike(const uint16_t *a, const uint16_t *b, int64_t n, int64_t *out_far) {
    int64_t unlike = 0;
    *out_far = 0;
    for (int64_t i = 0; i < n; i++) {
        unlike += a[i] != b[i];
        *out_far += abs(a[i] - b[i]) > 1;
    }
    return unlike;
}

/* What the CPU keeps and what the device keeps are the same numbers, but where f32's own roundings,
 * which are in other places, decide. */
static void test_same_as_cpu(void) {
    CudaFixture f;
    CudaKernelRun cuda;
    KernelRun cpu;
    Arena *arena = arena_create();
    check_begin("states as the CPU keeps them");
    if (cuda_fixture_create(&f, NULL, nodes_of(arena, &CASES[0], "bf16", "bf16", "a=1639, b=10"))) {
        bool bound = cuda_kernel_run_create(&cuda, f.reference, -1, NULL, f.diag) &&
                     kernel_run_create(&cpu, f.reference, -1, f.diag);
        CHECK(bound, "%s", diag_text(f.diag));
        CHECK(cuda_kernel_run_step(&cuda) && kernel_run_step(&cpu), "a kernel failed");
        for (int o = 1; o < 3; o++) {
            int64_t n = 16390, far;
            int at = (f.graph->n_nodes - 1) * MAX_OUTPUTS + o;
            int64_t unlike =
                count_unlike(cuda.base.ranks[0].buffers[at], cpu.ranks[0].buffers[at], n, &far);
            CHECK(unlike < n / 1000 && far == 0, "result %d: %d of %d differ, %d by far", o,
                  (int)unlike, (int)n, (int)far);
        }
        cuda_kernel_run_destroy(&cuda);
        kernel_run_destroy(&cpu);
    }
    cuda_fixture_destroy(&f);
    check_end();
    arena_destroy(arena);
}

int main(void) {
    if (cuda_check_missing()) return check_report();
    test_kernels();
    test_same_as_cpu();
    return check_report();
}
