/* CUDA kernels of the optimizers whose states or gradients are bf16: against float64, on sizes with
 * and without whole vectors and blocks, and against the CPU's; and of those whose states are in 8
 * bits against the CPU's, which test_optimizer_state compares with float64.
 *
 * Would catch: a state or gradient read or written as f32, or 8 bytes off its place; first moments
 * rounded as second ones, or these to nearest or by another threshold than the CPU's; LAMB's norm
 * of moments that are not those kept; a step made of rounded moments where it is not to be; an
 * update in spite of a clip factor that is not finite; codes of another block's scale, or of
 * another threshold; a table's tensor whose last part is another's.
 */
#include "ir/moments.h"
#include "runtime/cpu/halves.h"
#include "runtime/cpu/optimizer.h"
#include "tests/support/gpu_run.h"
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

/* --- states in 8 bits --- */

typedef enum Kind { ADAMW, SGD, LION, N_KINDS } Kind;
static const char *const KIND_NAMES[] = {"adamw", "sgd", "lion"};

/* One tensor on the device and on the CPU, p perhaps in halves. */
typedef struct Pair {
    int64_t n;
    float *p[2], *joined[2];
    uint16_t *copy[2];
    void *m[2], *v[2], *g;
} Pair;

enum { N_PAIRS = 3 };
static const int64_t LENGTHS[N_PAIRS] = {UPDATE_CHUNK + 64, 4160, 3 * UPDATE_CHUNK - 1088};
static float *numbers; /* clip, rate, step */

static void *room(int64_t bytes) {
    void *memory = gpu_run_alloc((size_t)bytes);
    if (!memory) exit(2);
    memset(memory, 0, (size_t)bytes);
    return memory;
}

/* Sizes over a few powers of ten. */
static float pick(uint32_t *seed) {
    *seed = *seed * 1664525u + 1013904223u;
    float x = (float)(*seed >> 8) * 0x1p-24f;
    return (*seed >> 5 & 1 ? -x : x) * x * x * x;
}

static Pair make_pair(int64_t n, bool low, bool halves) {
    uint32_t seed = (uint32_t)n;
    Pair pair = {.n = n, .g = room(4 * n)};
    float *values = room(4 * n);
    for (int k = 0; k < 2; k++) {
        pair.p[k] = room(4 * n);
        pair.joined[k] = room(4 * n);
        pair.copy[k] = halves ? (uint16_t *)(void *)pair.p[k] : room(2 * n);
        pair.m[k] = room(dtype_size(DTYPE_DYN8, n));
        pair.v[k] = room(dtype_size(DTYPE_DYN8U, n));
    }
    for (int64_t i = 0; i < n; i++) {
        vec_put(pair.g, low ? DTYPE_BF16 : DTYPE_F32, i, pick(&seed));
        values[i] = pick(&seed);
    }
    for (int k = 0; k < 2; k++) {
        if (halves) {
            halves_split(values, pair.p[k], n);
        } else {
            memcpy(pair.p[k], values, (size_t)n * 4);
        }
    }
    gpu_run_free(values);
    return pair;
}

static void free_pair(Pair *pair, bool halves) {
    for (int k = 0; k < 2; k++) {
        void *all[] = {pair->p[k], pair->joined[k], pair->m[k], pair->v[k]};
        for (int i = 0; i < 4; i++) gpu_run_free(all[i]);
        if (!halves) gpu_run_free(pair->copy[k]);
    }
    gpu_run_free(pair->g);
}

static void launch(KernelId kernel, uint32_t n_blocks, const void *args) {
    Command command = {.kind = COMMAND_LAUNCH};
    command.launch = (LaunchCommand){.kernel = kernel,
                                     .grid = {n_blocks, 1, 1},
                                     .threads = UPDATE_THREADS,
                                     .args = args,
                                     .args_bytes = KERNELS[kernel].args_bytes};
    const char *why = "";
    bool good = cuda_run_command(&command, &(CudaRunHooks){0}, &why);
    CHECK(good, "%s", why);
}

static uint32_t blocks_of(int64_t n) {
    return (uint32_t)((n + UPDATE_CHUNK - 1) / UPDATE_CHUNK);
}

#define SCALARS                                                                                    \
    .clip = numbers, .lr = numbers + 1, .lr_scale = 1, .copy_dtype = DTYPE_BF16,                   \
    .state_dtype = DTYPE_DYN8, .low_gradients = low ? ~0ull : 0
#define TENSOR(pair)                                                                               \
    .p = (pair).p[0], .g = (pair).g, .copy = (pair).copy[0], .n = (pair).n, .weight_decay = 0.125

/* All tensors in one table, or one alone. */
#define LAUNCH(One, Many, KERNEL_ONE, KERNEL_MANY, ...)                                            \
    do {                                                                                           \
        static Many many;                                                                          \
        many = (Many){.scalars = {SCALARS, __VA_ARGS__}, .n_tensors = count};                      \
        for (int t = 0; t < count; t++) {                                                          \
            many.tensor[t] = tensor_of_##One(&pairs[t]);                                           \
            many.first_block[t + 1] = many.first_block[t] + blocks_of(pairs[t].n);                 \
        }                                                                                          \
        One one = {.scalars = many.scalars, .tensor = many.tensor[0]};                             \
        if (count == 1) {                                                                          \
            launch(KERNEL_ONE, many.first_block[1], &one);                                         \
        } else {                                                                                   \
            launch(KERNEL_MANY, many.first_block[count], &many);                                   \
        }                                                                                          \
    } while (0)

static AdamwTensor tensor_of_AdamwArgs(const Pair *pair) {
    return (AdamwTensor){TENSOR(*pair), .m = pair->m[0], .v = pair->v[0]};
}
static SgdTensor tensor_of_SgdArgs(const Pair *pair) {
    return (SgdTensor){TENSOR(*pair), .buf = pair->m[0]};
}
static LionTensor tensor_of_LionArgs(const Pair *pair) {
    return (LionTensor){TENSOR(*pair), .m = pair->m[0]};
}

static void run_on_device(Kind kind, const Pair *pairs, int count, bool low) {
    switch (kind) {
    case ADAMW:
        LAUNCH(AdamwArgs, AdamwManyArgs, KERNEL_adamw_moments, KERNEL_adamw_moments_many,
               .step = numbers + 2, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8f);
        return;
    case SGD:
        LAUNCH(SgdArgs, SgdManyArgs, KERNEL_sgd_moments, KERNEL_sgd_moments_many, .momentum = 0.9f);
        return;
    default:
        LAUNCH(LionArgs, LionManyArgs, KERNEL_lion_moments, KERNEL_lion_moments_many, .beta1 = 0.9,
               .beta2 = 0.99);
    }
}

static void run_on_cpu(Kind kind, const Pair *of, bool low) {
    const DType gradient = low ? DTYPE_BF16 : DTYPE_F32;
    const AdamwConfig adamw = {0.9, 0.999, 1e-8, 0.125, 1, DTYPE_BF16, DTYPE_DYN8, gradient};
    const SgdConfig sgd = {.momentum = (double)0.9f,
                           .weight_decay = 0.125,
                           .lr_scale = 1,
                           .copy_dtype = DTYPE_BF16,
                           .state_dtype = DTYPE_DYN8,
                           .gradient_dtype = gradient};
    const LionConfig lion = {0.9, 0.99, 0.125, 1, DTYPE_BF16, DTYPE_DYN8, gradient};
    const float *clip = numbers, *rate = numbers + 1, *step = numbers + 2;
    if (kind == ADAMW) {
        optimizer_adamw(&adamw, of->n, rate, step, clip, of->g, of->p[1], of->m[1], of->v[1],
                        of->copy[1]);
    } else if (kind == SGD) {
        optimizer_sgd(&sgd, of->n, rate, clip, of->g, of->p[1], of->m[1], of->copy[1]);
    } else {
        optimizer_lion(&lion, of->n, rate, clip, of->g, of->p[1], of->m[1], of->copy[1]);
    }
}

/* Codes and scales, which f32's roundings may put on the other side of a border. */
static void compare_codes(const char *what, const uint8_t *a, const uint8_t *b, int64_t n) {
    int64_t bytes = dtype_size(DTYPE_DYN8, n), unlike = 0, far = 0;
    for (int64_t i = 0; i < bytes; i++) {
        unlike += a[i] != b[i];
        far += abs(a[i] - b[i]) > 1;
    }
    CHECK(unlike <= 2 + n / 2000 && far == 0, "%s: %d bytes of %d differ, %d by far", what,
          (int)unlike, (int)bytes, (int)far);
}

static void compare_pair(Kind kind, const Pair *of, bool halves) {
    double worst = 0, size = 0;
    for (int k = 0; halves && k < 2; k++) halves_join(of->p[k], of->n, 0, of->joined[k], of->n);
    const float *x = halves ? of->joined[0] : of->p[0], *y = halves ? of->joined[1] : of->p[1];
    for (int64_t i = 0; i < of->n; i++) {
        worst = fmax(worst, fabs((double)x[i] - (double)y[i]));
        size = fmax(size, fabs((double)y[i]));
    }
    /* A step is a few roundings; a code that is another moves it by some hundredths. */
    CHECK(worst < 2e-4 * size, "parameters differ by %g of %g", worst, size);
    for (int64_t i = 0; !halves && i < of->n; i++)
        CHECK(of->copy[0][i] == halves_upper(x[i]), "a copy is not its parameter rounded");
    compare_codes("first moments", of->m[0], of->m[1], of->n);
    if (kind == ADAMW) compare_codes("second moments", of->v[0], of->v[1], of->n);
}

/* Three steps each, and one that is not to be. */
static void test_moments(Kind kind, int count, bool low, bool halves) {
    char name[120];
    Pair pairs[N_PAIRS];
    snprintf(name, sizeof(name), "%s, states in 8 bits, %d tensor%s%s%s", KIND_NAMES[kind], count,
             count > 1 ? "s" : "", low ? ", gradients bf16" : "", halves ? ", in halves" : "");
    check_begin(name);
    for (int t = 0; t < count; t++) pairs[t] = make_pair(LENGTHS[t], low, halves);
    for (int step = 1; step <= 4; step++) {
        numbers[0] = step < 4 ? 0.5f : NAN;
        numbers[1] = kind == LION ? 1e-4f : 1e-3f;
        numbers[2] = (float)step;
        run_on_device(kind, pairs, count, low);
        for (int t = 0; t < count; t++) run_on_cpu(kind, &pairs[t], low);
    }
    for (int t = 0; t < count; t++) {
        compare_pair(kind, &pairs[t], halves);
        free_pair(&pairs[t], halves);
    }
    check_end();
}

int main(void) {
    if (cuda_check_missing()) return check_report();
    test_kernels();
    test_same_as_cpu();
    numbers = room(3 * sizeof(float));
    for (int kind = 0; kind < N_KINDS; kind++) {
        test_moments((Kind)kind, 1, false, false);
        test_moments((Kind)kind, N_PAIRS, true, false);
        test_moments((Kind)kind, N_PAIRS, false, true);
    }
    gpu_run_free(numbers);
    return check_report();
}
