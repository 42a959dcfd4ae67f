/* CUDA kernels of optimizers whose parameters are in halves (ir/masters.h): every bit is that of a
 * parameter in f32 with a copy beside it, and that copy is its upper half.
 *
 * Would catch: a half read or written at another place, or as if all numbers were positive; a lower
 * half whose sign is lost; a tie that is rounded to even in one form and up in the other; a NaN
 * that becomes a number; a table of tensors that takes one's halves for another's.
 */
#include "runtime/cpu/vec_low.h" /* first: it widens the vectors of this file */

#include "runtime/cpu/halves.h"
#include "tests/support/gpu_run.h"
#include "tests/unit/cuda_check.h"

enum { MOST = 3 * 8192 + 384, N_TENSORS = 3 };

typedef enum Kind { ADAMW, ADAMW_MANY, SGD, LION, MUON, N_KINDS } Kind;
static const char *const NAMES[] = {"adamw", "adamw of several", "sgd", "lion", "muon"};

/* One tensor in both forms, each with states of its own. */
typedef struct Pair {
    int64_t n;
    float *p, *halves, *joined;
    uint16_t *copy;
    void *m[2], *v[2], *g;
} Pair;

/* Whether states, and gradients, are bf16. */
typedef struct Dtypes {
    bool low_states, low_gradients;
} Dtypes;

static float *numbers; /* clip, rate, step */

static uint32_t random_bits(uint64_t *state) {
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return (uint32_t)(*state >> 20);
}

/* Numbers of all sorts among ordinary ones: ties between two of bf16, which are even and odd. */
static float pick(uint64_t *state, int64_t i) {
    static const uint32_t ODD[] = {0x3f808000, 0x3f818000, 0xbf808000, 0xbf818000, 0x3f807fff,
                                   0x3f808001, 0x00000000, 0x80000000, 0x00000001, 0x80018000,
                                   0x7f7f7fff, 0x7f7fffff, 0x7f800000, 0xff800000, 0x7fc00000,
                                   0x7fffffff, 0xffffffff, 0x7f800001, 0x00008000, 0x3effffff};
    enum { N_ODD = sizeof(ODD) / sizeof(ODD[0]) };
    if (i % 64 < N_ODD) return vec_from_bits(ODD[i % 64]);
    return (float)(int32_t)random_bits(state) * 0x1p-31f;
}

static void *room(int64_t elements) {
    void *memory = gpu_run_alloc((size_t)elements * sizeof(float));
    if (!memory) exit(2);
    return memory;
}

static void fill(void *x, bool low, int64_t n, uint64_t seed, bool positive) {
    for (int64_t i = 0; i < n; i++) {
        float value = (float)(int32_t)random_bits(&seed) * 0x1p-31f;
        vec_put(x, low ? DTYPE_BF16 : DTYPE_F32, i, positive ? fabsf(value) : value);
    }
}

static void make_pair(Pair *pair, int64_t n, Dtypes dtypes, bool odd) {
    uint64_t seed = 88172645463325252ull + (uint64_t)n;
    *pair = (Pair){.n = n, .p = room(n), .halves = room(n), .joined = room(n), .copy = room(n)};
    pair->g = room(n);
    for (int64_t i = 0; i < n; i++) pair->p[i] = odd ? pick(&seed, i) : pick(&seed, 63);
    halves_split(pair->p, pair->halves, n);
    halves_copy(DTYPE_BF16, pair->p, pair->copy, n);
    fill(pair->g, dtypes.low_gradients, n, seed + 1, false);
    for (int k = 0; k < 2; k++) {
        pair->m[k] = room(n);
        pair->v[k] = room(n);
        fill(pair->m[k], dtypes.low_states, n, seed + 2, false);
        fill(pair->v[k], dtypes.low_states, n, seed + 3, true);
    }
}

static void free_pair(Pair *pair) {
    void *all[] = {pair->p,    pair->halves, pair->joined, pair->copy, pair->g,
                   pair->m[0], pair->m[1],   pair->v[0],   pair->v[1]};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) gpu_run_free(all[i]);
}

static bool launch(KernelId kernel, int64_t n_blocks, const void *args) {
    Command command = {.kind = COMMAND_LAUNCH};
    command.launch = (LaunchCommand){.kernel = kernel,
                                     .grid = {(uint32_t)n_blocks, 1, 1},
                                     .threads = UPDATE_THREADS,
                                     .args = args,
                                     .args_bytes = KERNELS[kernel].args_bytes};
    const char *why = "";
    bool good = cuda_run_command(&command, &(CudaRunHooks){0}, &why);
    CHECK(good, "%s", why);
    return good;
}

static uint32_t blocks_of(int64_t n) {
    return (uint32_t)((n + UPDATE_CHUNK - 1) / UPDATE_CHUNK);
}

/* What of a pair the form k has: 0 whole, 1 in halves. */
static float *parameter_of(const Pair *pair, int k) {
    return k ? pair->halves : pair->p;
}
static uint16_t *copy_of(const Pair *pair, int k) {
    return k ? (uint16_t *)(void *)pair->halves : pair->copy;
}

static AdamwArgs adamw_args(const Pair *pair, Dtypes dtypes, int k) {
    return (AdamwArgs){.scalars = {.clip = numbers,
                                   .lr = numbers + 1,
                                   .step = numbers + 2,
                                   .lr_scale = 1,
                                   .beta1 = 0.9,
                                   .beta2 = 0.95,
                                   .eps = 1e-8f,
                                   .copy_dtype = DTYPE_BF16,
                                   .state_dtype = dtypes.low_states ? DTYPE_BF16 : DTYPE_F32,
                                   .low_gradients = dtypes.low_gradients},
                       .tensor = {.p = parameter_of(pair, k),
                                  .m = pair->m[k],
                                  .v = pair->v[k],
                                  .g = pair->g,
                                  .copy = copy_of(pair, k),
                                  .n = pair->n,
                                  .weight_decay = numbers[1] > 0 ? 0.1 : 0}};
}

static bool run_adamw(const Pair *pairs, int count, Dtypes dtypes, int k) {
    AdamwArgs one = adamw_args(&pairs[0], dtypes, k);
    AdamwManyArgs *many = calloc(1, sizeof(*many));
    if (!many) exit(2);
    *many = (AdamwManyArgs){.scalars = one.scalars, .n_tensors = count};
    for (int t = 0; t < count; t++) {
        many->tensor[t] = adamw_args(&pairs[t], dtypes, k).tensor;
        many->first_block[t + 1] = many->first_block[t] + blocks_of(pairs[t].n);
        many->scalars.low_gradients |= (uint64_t)dtypes.low_gradients << t;
    }
    bool done = count == 1
                    ? launch(k ? KERNEL_adamw_halves : KERNEL_adamw, blocks_of(one.tensor.n), &one)
                    : launch(k ? KERNEL_adamw_halves_many : KERNEL_adamw_many,
                             many->first_block[count], many);
    free(many);
    return done;
}

static bool run_kind(Kind kind, const Pair *pairs, int count, Dtypes dtypes, int k) {
    const Pair *pair = &pairs[0];
    const int32_t state = dtypes.low_states ? DTYPE_BF16 : DTYPE_F32;
    const double decay = numbers[1] > 0 ? 0.1 : 0;
    SgdArgs sgd = {.scalars = {.clip = numbers,
                               .lr = numbers + 1,
                               .lr_scale = 1,
                               .momentum = 0.9f,
                               .copy_dtype = DTYPE_BF16,
                               .state_dtype = state,
                               .low_gradients = dtypes.low_gradients},
                   .tensor = {.p = parameter_of(pair, k),
                              .buf = pair->m[k],
                              .g = pair->g,
                              .copy = copy_of(pair, k),
                              .n = pair->n,
                              .weight_decay = (float)decay}};
    LionArgs lion = {.scalars = {.clip = numbers,
                                 .lr = numbers + 1,
                                 .lr_scale = 1,
                                 .beta1 = 0.9,
                                 .beta2 = 0.99,
                                 .copy_dtype = DTYPE_BF16,
                                 .state_dtype = state,
                                 .low_gradients = dtypes.low_gradients},
                     .tensor = {.p = parameter_of(pair, k),
                                .m = pair->m[k],
                                .g = pair->g,
                                .copy = copy_of(pair, k),
                                .n = pair->n,
                                .weight_decay = decay}};
    MuonArgs muon = {.p = parameter_of(pair, k),
                     .direction = pair->g,
                     .copy = copy_of(pair, k),
                     .clip = numbers,
                     .lr = numbers + 1,
                     .n = pair->n,
                     .lr_scale = 1,
                     .scale = 6.4,
                     .weight_decay = decay,
                     .direction_dtype = dtypes.low_gradients ? DTYPE_BF16 : DTYPE_F32,
                     .copy_dtype = DTYPE_BF16};
    switch (kind) {
    case SGD: return launch(KERNEL_sgd, blocks_of(pair->n), &sgd);
    case LION: return launch(KERNEL_lion, blocks_of(pair->n), &lion);
    case MUON: return launch(KERNEL_muon, blocks_of(pair->n), &muon);
    default: return run_adamw(pairs, count, dtypes, k);
    }
}

/* All NaNs are one: which of them comes out of arithmetic is the machine's to say. */
static bool same_number(float a, float b) {
    return vec_bits(a) == vec_bits(b) || (isnan(a) && isnan(b));
}

static bool same_states(const void *a, const void *b, Dtypes dtypes, int64_t n) {
    const DType dtype = dtypes.low_states ? DTYPE_BF16 : DTYPE_F32;
    int64_t same = 0;
    for (int64_t i = 0; i < n; i++) same += same_number(vec_get(a, dtype, i), vec_get(b, dtype, i));
    return same == n;
}

static void compare(const Pair *pair, Dtypes dtypes) {
    const uint16_t *upper = copy_of(pair, 1);
    int64_t unlike = 0, copies = 0;
    halves_join(pair->halves, pair->n, 0, pair->joined, pair->n);
    for (int64_t i = 0; i < pair->n; i++) {
        unlike += !same_number(pair->joined[i], pair->p[i]);
        float copy = vec_bf16_widen(pair->copy[i]), half = vec_bf16_widen(upper[i]);
        copies += !same_number(copy, half) || (isnan(pair->p[i]) && !isnan(half)) ||
                  !same_number(copy, vec_bf16_widen(halves_upper(pair->p[i])));
    }
    CHECK(unlike == 0, "%d of %d numbers differ", (int)unlike, (int)pair->n);
    CHECK(copies == 0, "%d of %d copies differ", (int)copies, (int)pair->n);
    CHECK(same_states(pair->m[0], pair->m[1], dtypes, pair->n), "first moments differ");
    CHECK(same_states(pair->v[0], pair->v[1], dtypes, pair->n), "second moments differ");
}

/* Two steps of a rate; at rate 0 numbers of all sorts stay as they are, but for the form of a NaN.
 */
static void check(Kind kind, int64_t n, Dtypes dtypes, float rate, float clip) {
    Pair pairs[N_TENSORS];
    int count = kind == ADAMW_MANY ? N_TENSORS : 1;
    char name[120];
    snprintf(name, sizeof(name), "%s in halves: %d, states %s, gradients %s, rate %g, clip %g",
             NAMES[kind], (int)n, dtypes.low_states ? "bf16" : "f32",
             dtypes.low_gradients ? "bf16" : "f32", (double)rate, (double)clip);
    check_begin(name);
    numbers[0] = clip;
    numbers[1] = rate;
    for (int t = 0; t < count; t++) make_pair(&pairs[t], n + 128 * t, dtypes, rate == 0);
    bool done = true;
    for (int step = 1; step < 3 && done; step++) {
        numbers[2] = (float)step;
        for (int k = 0; k < 2 && done; k++) done = run_kind(kind, pairs, count, dtypes, k);
        for (int t = 0; t < count && done; t++) compare(&pairs[t], dtypes);
    }
    for (int t = 0; t < count; t++) free_pair(&pairs[t]);
    check_end();
}

/* Upper and lower half of every number whose lower 16 bits are any, above an even and an odd one,
 * of both signs. */
static void test_all_lower_halves(void) {
    enum { N = 1 << 16 };
    static const uint32_t UPPER[] = {0x3f80, 0x3f81, 0xbf80, 0xbf81, 0x0000, 0x8000, 0x7f7f};
    float *x = room(N), *back = room(N);
    uint16_t *halves = room(N);
    check_begin("every number is its halves");
    for (size_t u = 0; u < sizeof(UPPER) / sizeof(UPPER[0]); u++) {
        int64_t unlike = 0, far = 0;
        for (uint32_t i = 0; i < N; i++) x[i] = vec_from_bits(UPPER[u] << 16 | i);
        halves_split(x, halves, N);
        halves_join(halves, N, 0, back, N);
        for (int64_t i = 0; i < N; i++) {
            double half = (double)vec_bf16_widen(halves[i]), own = (double)x[i];
            double unit = (double)vec_bf16_widen((uint16_t)(UPPER[u] + 1)) -
                          (double)vec_bf16_widen((uint16_t)UPPER[u]);
            unlike += vec_bits(back[i]) != vec_bits(x[i]);
            far += isfinite(half) && fabs(half - own) > fabs(unit) / 2;
        }
        CHECK(unlike == 0 && far == 0, "%04x: %d differ, %d are not the nearest", UPPER[u],
              (int)unlike, (int)far);
    }
    gpu_run_free(x), gpu_run_free(back), gpu_run_free(halves);
    check_end();
}

int main(void) {
    static const int64_t SIZES[] = {128, 8192, MOST};
    static const Dtypes DTYPES[] = {{false, false}, {true, false}, {false, true}, {true, true}};
    if (cuda_check_missing()) return check_report();
    numbers = room(3);
    test_all_lower_halves();
    for (int kind = 0; kind < N_KINDS; kind++) {
        for (int k = 0; k < 4; k++) {
            if (kind == MUON && DTYPES[k].low_states) continue; /* it has none */
            for (int i = 0; i < 3; i++) check(kind, SIZES[i], DTYPES[k], 0.03125f, 0.5f);
            check(kind, MOST, DTYPES[k], 0, 1);
        }
        check(kind, SIZES[0], DTYPES[0], 0.03125f, NAN);
    }
    gpu_run_free(numbers);
    return check_report();
}
