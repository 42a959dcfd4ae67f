/* Generated kernels, compiled for the host, against the CPU's elementwise kernels: every op in f32,
 * bf16 and f16, random programs over random spaces (operands broadcast, permuted, misaligned, in
 * place; dropout), and the nodes of plans. Programs of + - * / and the like must agree to the bit;
 * so must dropout's masks. And what a source may depend on.
 */
#include "runtime/cpu/bind.h"
#include "runtime/cpu/elementwise.h"
#include "runtime/cpu/vec_low.h"
#include "runtime/cuda/bind.h"
#include "tests/support/elementwise_nodes.h"
#include "tests/support/generated_run.h"
#include "tests/support/reference_eval.h"
#include "tests/unit/kernel_check.h"

enum { MOST_TRIALS = 1024, GUARD = 64, MISALIGNED = 3 };

/* Aligned, and not a byte longer than n elements, so that AddressSanitizer sees what lies beyond.
 */
static void *new_elements(DType dtype, int64_t n) {
    void *p;
    size_t bytes = (size_t)n * vec_bytes(dtype);
    if (posix_memalign(&p, 64, bytes ? bytes : 1)) exit(2);
    memset(p, 0xff, bytes);
    return p;
}

/* Does every op round the same way on both sides? */
static bool is_exact(const Expr *expr) {
    static const OpKind INEXACT[] = {OP_EXP,  OP_LOG,       OP_TANH,     OP_SIGMOID,
                                     OP_GELU, OP_GELU_GRAD, OP_GELU_ERF, OP_GELU_ERF_GRAD,
                                     OP_SILU, OP_SILU_GRAD, OP_RSQRT,    OP_SOFTPLUS};
    for (int n = 0; n < expr->n_instructions; n++) {
        for (size_t i = 0; i < sizeof(INEXACT) / sizeof(INEXACT[0]); i++) {
            if (expr->instructions[n].op == INEXACT[i]) return false;
        }
    }
    return true;
}

/* x is right where `expected`, in f32, is. 1e-5 of max(|value|, 1): a few operations of 2 ulp each,
 * over operands up to 12; a rounding to 16 bits may then fall to either side. */
static bool is_right(float x, float expected, DType dtype, bool exact) {
    expected = (float)reference_rounded(dtype, (double)expected);
    if (isnan(expected)) return isnan(x);
    if (exact) return memcmp(&x, &expected, sizeof(x)) == 0;
    if (x == expected) return true;
    float size = fabsf(expected);
    float tolerance =
        1e-5f * (size > 1 ? size : 1) + 2 * (float)reference_rounding(dtype, (double)size);
    return fabsf(x - expected) <= tolerance;
}

/* --- trials: a program, a space, operands --- */

typedef struct Trial {
    char name[64];
    Expr expr;
    FusedSpec spec;
    FusedLaunch launch;
    DeviceState state;
    int64_t total, extent[EXPR_MAX_INPUTS];
    void *in_memory[EXPR_MAX_INPUTS], *out_memory[MAX_OUTPUTS];
    float *want[MAX_OUTPUTS]; /* the CPU's */
} Trial;

static uint64_t random_state = 0x9E3779B97F4A7C15u;

static int pick(int low, int high) {
    random_state ^= random_state << 13, random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return low + (int)((random_state >> 20) % (uint64_t)(high - low + 1));
}

static ElementwiseOp cpu_op(OpKind op) {
    for (int i = 0; i < N_ELEMENTWISE_OPS; i++) {
        if (strcmp(ELEMENTWISE_NAMES[i], OPS[op].name) == 0) return (ElementwiseOp)i;
    }
    return EW_COPY; /* casts: registers are f32 */
}

/* The CPU's results, from f32 copies of the operands, before the kernel may overwrite them. */
static void run_cpu(Trial *t) {
    ElementwiseInstr instructions[EXPR_MAX_INSTRUCTIONS];
    ElementwiseCall call;
    const char *why = "";
    int train = (int)t->state.train;
    ElementwiseSpec cpu = {.n_dims = t->spec.n_dims,
                           .n_in = t->expr.n_inputs,
                           .n_out = t->expr.n_outputs,
                           .n_instr = t->expr.n_instructions,
                           .instr = instructions,
                           .seed = &t->state.seed,
                           .step = &t->state.step,
                           .train = &train};
    for (int d = 0; d < cpu.n_dims; d++) {
        cpu.dims[d] = t->spec.dims[d];
        cpu.global_offset[d] = (int64_t)t->spec.global_offset[d];
        cpu.global_stride[d] = t->spec.global_stride[d];
    }
    for (int k = 0; k < cpu.n_in; k++) {
        float *copy = kc_zeros(t->extent[k]);
        for (int64_t i = 0; i < t->extent[k]; i++) {
            copy[i] = vec_get(t->spec.in[k], t->spec.in_dtype[k], i);
        }
        cpu.in[k] = copy;
        memcpy(cpu.in_stride[k], t->spec.in_stride[k], sizeof(t->spec.in_stride[k]));
    }
    for (int n = 0; n < cpu.n_instr; n++) {
        const ExprInstruction *from = &t->expr.instructions[n];
        instructions[n] = (ElementwiseInstr){.op = cpu_op(from->op),
                                             .dst = cpu.n_in + n,
                                             .imm = (float)from->imm,
                                             .key = t->spec.key[n]};
        for (int i = 0; i < EXPR_MAX_OPERANDS; i++) {
            int operand = from->operands[i];
            instructions[n].arg[i] = operand < 0 ? ~operand : cpu.n_in + operand;
        }
    }
    for (int o = 0; o < cpu.n_out; o++) {
        cpu.out[o] = t->want[o] = kc_zeros(t->total);
        cpu.out_register[o] = cpu.n_in + t->expr.outputs[o];
    }
    CHECK(elementwise_prepare(&cpu, &call, &why), "%s: %s", t->name, why);
    elementwise_run(&call);
    for (int k = 0; k < cpu.n_in; k++) free((void *)(uintptr_t)cpu.in[k]);
}

/* Operand k: `values` gives its numbers; `misaligned`: it begins in the middle of 16 bytes. */
static void make_operand(Trial *t, int k, float low, float high, int misaligned) {
    DType dtype = t->spec.in_dtype[k];
    t->extent[k] = t->total > 0;
    for (int d = 0; d < t->spec.n_dims && t->total; d++) {
        t->extent[k] += (t->spec.dims[d] - 1) * t->spec.in_stride[k][d];
    }
    char *memory = new_elements(dtype, t->extent[k] + misaligned);
    t->in_memory[k] = memory;
    memory += (size_t)misaligned * vec_bytes(dtype);
    t->spec.in[k] = memory;
    for (int64_t i = 0; i < t->extent[k]; i++) {
        float x = low + (kc_uniform() + 1) / 2 * (high - low);
        vec_put(memory, dtype, i, x);
    }
}

static void make_result(Trial *t, int o, int misaligned) {
    DType dtype = t->spec.out_dtype[o];
    t->out_memory[o] = new_elements(dtype, t->total + misaligned);
    t->spec.out[o] = (char *)t->out_memory[o] + (size_t)misaligned * vec_bytes(dtype);
}

/* Everything but operands, results and the program. */
static void make_space(Trial *t, int n_dims, const int64_t *dims) {
    t->total = 1;
    t->spec.n_dims = n_dims;
    t->spec.state = &t->state;
    t->state = (DeviceState){.seed = UINT64_C(0x123456789abcdef), .step = 77, .train = 1};
    uint64_t stride = 1;
    for (int d = n_dims - 1; d >= 0; d--) {
        t->spec.dims[d] = dims[d];
        t->spec.global_stride[d] = stride;
        stride *= (uint64_t)dims[d];
        t->total *= dims[d];
    }
}

static void finish_trial(Trial *t, KernelCache *cache) {
    t->spec.expr = &t->expr;
    run_cpu(t);
    t->launch = codegen_fused(cache, &t->spec);
}

static void run_trial(Trial *t) {
    if (t->launch.grid.x) {
        const char *why = "";
        CHECK(generated_host_run(t->launch.kernel, t->launch.grid, t->launch.threads,
                                 &t->launch.args, &why),
              "%s: %s", t->name, why);
    }
    bool exact = is_exact(&t->expr);
    for (int o = 0; o < t->expr.n_outputs; o++) {
        DType dtype = t->spec.out_dtype[o];
        for (int64_t i = 0; i < t->total; i++) {
            float x = vec_get(t->spec.out[o], dtype, i);
            CHECK(is_right(x, t->want[o][i], dtype, exact),
                  "%s: result %d of %s, element %lld of %lld: %.9g, the CPU has %.9g", t->name, o,
                  t->launch.kernel->name, (long long)i, (long long)t->total, (double)x,
                  (double)t->want[o][i]);
        }
        free(t->want[o]);
    }
    for (int k = 0; k < t->expr.n_inputs; k++) free(t->in_memory[k]);
    for (int o = 0; o < t->expr.n_outputs; o++) free(t->out_memory[o]);
}

static void run_trials(Trial *trials, int count, const KernelCache *cache) {
    const char *why = "";
    bool good = generated_host_compile(cache, &why);
    CHECK(good, "%s", why);
    for (int i = 0; i < count && good; i++) run_trial(&trials[i]);
}

/* --- every op --- */

/* One instruction on contiguous operands. */
static void make_op_trial(Trial *t, KernelCache *cache, OpKind op, int64_t n, DType in, DType out) {
    snprintf(t->name, sizeof(t->name), "%s %s->%s of %lld", OPS[op].name, dtype_name(in),
             dtype_name(out), (long long)n);
    bool positive = op == OP_SQRT || op == OP_RSQRT || op == OP_LOG;
    int n_in = OPS[op].min_inputs;
    t->expr = (Expr){.n_inputs = n_in, .n_instructions = 1, .n_outputs = 1};
    t->expr.instructions[0] =
        (ExprInstruction){.op = op, .operands = {~0, ~1, ~2}, .imm = 0.37, .key = 5};
    t->spec.key[0] = 5;
    make_space(t, 1, &n);
    for (int k = 0; k < n_in; k++) {
        t->spec.in_stride[k][0] = 1;
        t->spec.in_dtype[k] = in;
        make_operand(t, k, positive ? 0.01f : -12, 12, 0);
    }
    /* maximum and its gradient: equal operands too */
    for (int64_t i = 0; i < n && n_in > 1; i += 7) {
        vec_put(t->in_memory[1], in, i, vec_get(t->in_memory[0], in, i));
    }
    t->spec.out_dtype[0] = out;
    make_result(t, 0, 0);
    finish_trial(t, cache);
}

static void check_ops(Arena *arena) {
    KernelCache *cache = kernel_cache_create(arena);
    Trial *trials = ARENA_ARRAY(arena, Trial, MOST_TRIALS);
    int count = 0;
    check_begin("every elementwise op, f32, bf16 and f16");
    for (int op = 0; op < N_OPS; op++) {
        if (!(OPS[op].flags & ELEMENTWISE_BIT)) continue;
        DType low = op % 2 ? DTYPE_BF16 : DTYPE_F16, other = op % 2 ? DTYPE_F16 : DTYPE_BF16;
        const DType dtypes[][2] = {
            {DTYPE_F32, DTYPE_F32}, {low, DTYPE_F32}, {DTYPE_F32, low}, {other, other}};
        for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++) {
            make_op_trial(&trials[count++], cache, (OpKind)op, 2304, dtypes[i][0], dtypes[i][1]);
        }
        make_op_trial(&trials[count++], cache, (OpKind)op, 1031, DTYPE_F32, DTYPE_F32);
        make_op_trial(&trials[count++], cache, (OpKind)op, 5, low, low);
    }
    run_trials(trials, count, cache);
}

/* --- random programs --- */

static int64_t stride_of(const Trial *t, const bool *has, const int *order, int dimension) {
    int64_t stride = 1;
    if (!has[dimension]) return 0;
    for (int i = t->spec.n_dims - 1; order[i] != dimension; i--) {
        if (has[order[i]]) stride *= t->spec.dims[order[i]];
    }
    return stride;
}

static void pick_operand(Trial *t, int k) {
    bool has[MAX_RANK];
    int order[MAX_RANK], n_dims = t->spec.n_dims;
    bool whole = pick(0, 1), permuted = pick(0, 9) == 0;
    for (int d = 0; d < n_dims; d++) {
        has[d] = whole || pick(0, 1);
        order[d] = d;
    }
    if (permuted && n_dims > 1) {
        int a = pick(0, n_dims - 1), b = pick(0, n_dims - 1), kept = order[a];
        order[a] = order[b];
        order[b] = kept;
    }
    for (int d = 0; d < n_dims; d++) t->spec.in_stride[k][d] = stride_of(t, has, order, d);
    make_operand(t, k, -4, 4, pick(0, 5) ? 0 : pick(1, MISALIGNED));
}

static void pick_program(Trial *t) {
    static const OpKind KINDS[] = {OP_ADD,     OP_SUB,          OP_MUL,     OP_DIV,
                                   OP_NEG,     OP_SCALE,        OP_OFFSET,  OP_COPY,
                                   OP_SQUARE,  OP_SQRT,         OP_RELU,    OP_RELU_GRAD,
                                   OP_MAXIMUM, OP_MAXIMUM_GRAD, OP_DROPOUT, OP_RECIPROCAL};
    Expr *expr = &t->expr;
    expr->n_inputs = pick(1, EXPR_MAX_INPUTS);
    expr->n_instructions = pick(0, 9) ? pick(1, 8) : EXPR_MAX_INSTRUCTIONS;
    for (int n = 0; n < expr->n_instructions; n++) {
        ExprInstruction *ins = &expr->instructions[n];
        ins->op = KINDS[pick(0, (int)(sizeof(KINDS) / sizeof(KINDS[0])) - 1)];
        ins->imm = ins->op == OP_DROPOUT ? pick(0, 9) / 10.0 : pick(-30, 30) / 10.0;
        t->spec.key[n] = (uint32_t)pick(0, 1000);
        for (int i = 0; i < EXPR_MAX_OPERANDS; i++) {
            ins->operands[i] =
                n && pick(0, 2) ? pick(n > 4 ? n - 4 : 0, n - 1) : ~pick(0, expr->n_inputs - 1);
        }
    }
    expr->n_outputs = pick(0, 2) ? 1 : pick(1, MAX_OUTPUTS);
    for (int o = 0; o < expr->n_outputs; o++) {
        expr->outputs[o] = o ? pick(0, expr->n_instructions - 1) : expr->n_instructions - 1;
    }
}

/* Where the space lies in a larger whole: dropout's numbers. */
static void pick_place(Trial *t) {
    uint64_t stride = 1;
    bool whole = pick(0, 1), fours = pick(0, 1);
    for (int d = t->spec.n_dims - 1; d >= 0; d--) {
        int before = whole ? 0 : fours ? 4 * pick(0, 3) : pick(0, 5);
        t->spec.global_offset[d] = (uint64_t)before;
        t->spec.global_stride[d] = stride;
        stride *= (uint64_t)(before + t->spec.dims[d] + (whole ? 0 : fours ? 4 : pick(0, 3)));
    }
    if (pick(0, 9) == 0) t->spec.global_offset[0] += UINT64_C(1) << 33;
    t->state.train = pick(0, 4) != 0;
}

/* A result over the operand of its number, where the planner could have put it. */
static void pick_in_place(Trial *t, int o) {
    int64_t expected = 1;
    bool linear = t->spec.in_dtype[o] == t->spec.out_dtype[o] && t->extent[o] == t->total;
    for (int d = t->spec.n_dims - 1; d >= 0; d--) {
        linear &= t->spec.in_stride[o][d] == expected;
        expected *= t->spec.dims[d];
    }
    if (!linear || pick(0, 1)) return;
    free(t->out_memory[o]);
    t->out_memory[o] = NULL;
    t->spec.out[o] = (void *)(uintptr_t)t->spec.in[o];
}

static void make_random_trial(Trial *t, KernelCache *cache, int number) {
    static const int SIZES[] = {1, 2, 3, 4, 5, 7, 8, 12, 16, 24, 33, 64};
    int64_t dims[MAX_RANK];
    int n_dims = pick(0, MAX_RANK);
    int64_t total = 1;
    snprintf(t->name, sizeof(t->name), "random trial %d", number);
    for (int d = 0; d < n_dims; d++) {
        dims[d] = SIZES[pick(0, 11)];
        if (total * dims[d] > 6000) dims[d] = 1;
        total *= dims[d];
    }
    if (n_dims && pick(0, 40) == 0) dims[pick(0, n_dims - 1)] = 0;
    make_space(t, n_dims, dims);
    pick_program(t);
    pick_place(t);
    int flavour = pick(0, 2); /* f32, 16 bits, both */
    DType low = number % 3 ? DTYPE_BF16 : DTYPE_F16;
    for (int k = 0; k < t->expr.n_inputs; k++) {
        t->spec.in_dtype[k] = (flavour == 2 ? pick(0, 1) : flavour) ? low : DTYPE_F32;
        pick_operand(t, k);
    }
    for (int o = 0; o < t->expr.n_outputs; o++) {
        t->spec.out_dtype[o] = (flavour == 2 ? pick(0, 1) : flavour) ? low : DTYPE_F32;
        make_result(t, o, pick(0, 9) ? 0 : pick(1, MISALIGNED));
    }
    for (int o = 0; o < t->expr.n_outputs && o < t->expr.n_inputs; o++) pick_in_place(t, o);
    finish_trial(t, cache);
}

static void check_random(Arena *arena) {
    enum { COUNT = 260 / VARIANT_STEP };
    KernelCache *cache = kernel_cache_create(arena);
    Trial *trials = ARENA_ARRAY(arena, Trial, COUNT);
    const char *seed = getenv("TEST_SEED");
    if (seed) random_state ^= strtoull(seed, NULL, 10) * UINT64_C(0xD1342543DE82EF95);
    check_begin("random programs, operands and spaces, to the bit");
    for (int i = 0; i < COUNT; i++) make_random_trial(&trials[i], cache, i);
    run_trials(trials, COUNT, cache);
}

/* Rows of `width` of a whole whose rows are `whole` wide, from column `first` on: blocks of four
 * random numbers begin anywhere. */
static void make_dropout_trial(Trial *t, KernelCache *cache, int width, int whole, int first,
                               DType dtype) {
    snprintf(t->name, sizeof(t->name), "dropout, %d of %d from %d", width, whole, first);
    t->expr = (Expr){.n_inputs = 1, .n_instructions = 1, .n_outputs = 1};
    t->expr.instructions[0] = (ExprInstruction){.op = OP_DROPOUT, .operands = {~0}, .imm = 0.5};
    t->spec.key[0] = 11;
    make_space(t, 2, (const int64_t[]){6, width});
    t->spec.global_offset[1] = (uint64_t)first;
    t->spec.global_stride[0] = (uint64_t)whole;
    t->spec.in_stride[0][0] = width;
    t->spec.in_stride[0][1] = 1;
    t->spec.in_dtype[0] = t->spec.out_dtype[0] = dtype;
    make_operand(t, 0, 1, 2, 0);
    make_result(t, 0, 0);
    finish_trial(t, cache);
}

static void check_dropout(Arena *arena) {
    static const int WIDTHS[] = {4, 6, 16, 40};
    KernelCache *cache = kernel_cache_create(arena);
    Trial *trials = ARENA_ARRAY(arena, Trial, MOST_TRIALS);
    int count = 0;
    check_begin("dropout's masks from any element on");
    for (int w = 0; w < 4; w++) {
        for (int first = 0; first < 6; first++) {
            for (int more = 0; more < 3; more++) {
                int whole = WIDTHS[w] + first + (more < 2 ? more : 8 - (WIDTHS[w] + first) % 4);
                DType dtype = first % 3 == 0 ? DTYPE_F32 : first % 3 == 1 ? DTYPE_BF16 : DTYPE_F16;
                make_dropout_trial(&trials[count++], cache, WIDTHS[w], whole, first, dtype);
            }
        }
    }
    run_trials(trials, count, cache);
}

/* --- spaces of more than 2^31 elements --- */

/* The kernel of a large space, run on its beginning only: memory stands behind no more. */
static void check_wide(Arena *arena) {
    enum { ROWS = 1 << 20, WIDTH = 4096, DONE = 3 };
    KernelCache *cache = kernel_cache_create(arena);
    const char *why = "";
    Expr expr = {.n_inputs = 2,
                 .n_instructions = 1,
                 .n_outputs = 1,
                 .instructions = {{.op = OP_ADD, .operands = {~0, ~1}}}};
    float *x = new_elements(DTYPE_F32, DONE * WIDTH), *bias = new_elements(DTYPE_F32, WIDTH);
    float *y = new_elements(DTYPE_F32, DONE * WIDTH);
    for (int i = 0; i < DONE * WIDTH; i++) x[i] = kc_uniform();
    for (int i = 0; i < WIDTH; i++) bias[i] = kc_uniform();
    FusedSpec spec = {.expr = &expr,
                      .n_dims = 2,
                      .dims = {ROWS, WIDTH},
                      .in = {x, bias},
                      .in_stride = {{WIDTH, 1}, {0, 1}},
                      .out = {y}};
    FusedLaunch launch = codegen_fused(cache, &spec);
    check_begin("spaces of more than 2^31 elements have 64-bit indices");
    CHECK(strstr(launch.kernel->source, "typedef uint64_t index_t"), "%s", launch.kernel->source);
    CHECK(launch.args.n_chunks == (int64_t)ROWS * WIDTH / 4, "%lld chunks",
          (long long)launch.args.n_chunks);
    CHECK((int64_t)launch.grid.x * launch.threads >= launch.args.n_chunks / 2 - 1, "grid %u",
          launch.grid.x);
    launch.args.n_chunks = DONE * WIDTH / 4;
    launch.grid.x = DONE * WIDTH / 4 / FUSED_THREADS;
    bool good = generated_host_compile(cache, &why) &&
                generated_host_run(launch.kernel, launch.grid, launch.threads, &launch.args, &why);
    CHECK(good, "%s", why);
    if (good) {
        for (int i = 0; i < DONE * WIDTH; i++) {
            CHECK(y[i] == x[i] + bias[i % WIDTH], "element %d", i);
        }
    }
    free(x), free(bias), free(y);
}

/* --- what sources depend on --- */

/* Rows of `width`, `pitch` apart. */
static const GeneratedKernel *bias_kernel(KernelCache *cache, int64_t rows, int64_t width,
                                          int64_t pitch, double factor, uintptr_t at) {
    Expr expr = {.n_inputs = 2,
                 .n_instructions = 2,
                 .n_outputs = 1,
                 .instructions = {{.op = OP_ADD, .operands = {~0, ~1}},
                                  {.op = OP_SCALE, .operands = {0}, .imm = factor}},
                 .outputs = {1}};
    FusedSpec spec = {.expr = &expr,
                      .n_dims = 3,
                      .dims = {rows, 5, width},
                      .in = {(void *)at, (void *)(at + 4096)},
                      .in_stride = {{5 * pitch, pitch, 1}, {0, 0, 1}},
                      .out = {(void *)(at + 8192)}};
    return codegen_fused(cache, &spec).kernel;
}

static void check_patterns(Arena *arena) {
    KernelCache *cache = kernel_cache_create(arena);
    const GeneratedKernel *first = bias_kernel(cache, 7, 64, 64, 0.5, 4096);
    check_begin("a source depends on the pattern only");
    CHECK(bias_kernel(cache, 300, 1024, 1024, -3, 64) == first, "sizes, immediates or addresses");
    CHECK(kernel_cache_count(cache) == 1, "%d kernels", kernel_cache_count(cache));
    CHECK(bias_kernel(cache, 7, 63, 63, 0.5, 4096) != first, "an odd width");
    CHECK(bias_kernel(cache, 7, 64, 64, 0.5, 4100) != first, "an odd address");
    CHECK(bias_kernel(cache, 7, 66, 66, 0.5, 4096) != first, "two at a time");
    CHECK(kernel_cache_count(cache) == 3, "%d kernels", kernel_cache_count(cache));
    CHECK(kernel_cache_get(cache, 0) == first, "the order");
    const char *source = bias_kernel(cache, 7, 64, 65, 0.5, 4096)->source;
    CHECK(strstr(source, "at = chunk * 1,"), "rows that begin anywhere, read in vectors");
    source = bias_kernel(cache, 7, 64, 66, 0.5, 4096)->source;
    CHECK(strstr(source, "at = chunk * 2,"), "rows that begin at pairs");
    const char *barrier = strstr(source, "__syncwarp"), *branch = strstr(source, "continue");
    CHECK(barrier && branch > barrier, "a branch among the loads: they would go one by one");
    CHECK(strncmp(first->name, "fused_", 6) == 0 && strlen(first->name) == 22, "%s", first->name);
    CHECK(strstr(first->source, first->name) && !strstr(first->source, "#include"), "%s",
          first->source);
    KernelCache *other = kernel_cache_create(arena);
    CHECK(bias_kernel(other, 9, 8, 8, 1, 128)->hash == first->hash, "another cache, another hash");
}

/* --- the nodes of plans --- */

typedef struct PlanRun {
    KernelCache *cache;
    StepState cpu_state;
    DeviceState state;
    DType precision;
    int n_run;
} PlanRun;

typedef struct Operands {
    void *cpu[EXPR_MAX_INPUTS], *cuda[EXPR_MAX_INPUTS];
} Operands;

static void fill_operands(const Binding *b, const Type *cuda_types, Operands *out) {
    for (int i = 0; i < b->node->n_inputs; i++) {
        int64_t n = type_elements(&b->in_local[i]);
        out->cpu[i] = new_elements(DTYPE_F32, n);
        out->cuda[i] = new_elements(cuda_types[i].dtype, n);
        for (int64_t k = 0; k < n; k++) {
            float x = kc_uniform() * 3;
            x = (float)reference_rounded(cuda_types[i].dtype, (double)x);
            vec_put(out->cpu[i], DTYPE_F32, k, x);
            vec_put(out->cuda[i], cuda_types[i].dtype, k, x);
        }
    }
}

static bool run_on_cpu(PlanRun *run, Binding b, const Operands *operands, void **results) {
    CpuContext context = {.state = &run->cpu_state};
    CpuCall call;
    b.backend = &context;
    for (int i = 0; i < b.node->n_inputs; i++) b.in[i] = operands->cpu[i];
    for (int o = 0; o < b.node->n_outputs; o++) b.out[o] = results[o];
    return cpu_bind(&b, &call) && call.run(call.args);
}

static bool run_generated(PlanRun *run, Binding b, const Operands *operands, void **results) {
    CommandList list = {0};
    CudaEmitter emitter = {.list = &list, .state = &run->state, .generated = run->cache};
    const char *why = "";
    b.backend = &emitter;
    for (int i = 0; i < b.node->n_inputs; i++) b.in[i] = operands->cuda[i];
    for (int o = 0; o < b.node->n_outputs; o++) b.out[o] = results[o];
    bool good = cuda_bind(&b) && list.count == 1 && list.items[0].kind == COMMAND_LAUNCH &&
                generated_host_launch(run->cache, &list.items[0].launch, &why);
    CHECK(good, "%s: %s%s", OPS[b.node->op].name, diag_text(b.diag), why);
    command_list_release(&list);
    return good;
}

static bool node_is_exact(const Node *node) {
    Expr expr;
    const char *error;
    if (OPS[node->op].flags & ELEMENTWISE_BIT) {
        expr = expr_of_node(node);
        return is_exact(&expr);
    }
    if (node->op != OP_FUSED) return true;
    return expr_parse(node_string(node, ATTR_program), node->n_inputs, &expr, &error) &&
           is_exact(&expr);
}

static void compare_node(void *user, Binding *binding) {
    PlanRun *run = user;
    const Node *node = binding->node;
    Operands operands;
    void *want[MAX_OUTPUTS], *got[MAX_OUTPUTS];
    Binding cuda = *binding;
    cuda.in_local = ARENA_ARRAY(binding->arena, Type, node->n_inputs + 1);
    memcpy(cuda.in_local, binding->in_local, (size_t)node->n_inputs * sizeof(Type));
    if (dtype_is_low(run->precision)) elementwise_make_low(&cuda, run->precision);
    fill_operands(binding, cuda.in_local, &operands);
    for (int o = 0; o < node->n_outputs; o++) {
        int64_t n = type_elements(&binding->out_local[o]);
        int alias = op_alias(node, o);
        want[o] = alias >= 0 ? operands.cpu[alias] : new_elements(DTYPE_F32, n);
        got[o] = alias >= 0 ? operands.cuda[alias] : new_elements(cuda.out_local[o].dtype, n);
    }
    bool good =
        run_on_cpu(run, *binding, &operands, want) && run_generated(run, cuda, &operands, got);
    for (int o = 0; o < node->n_outputs; o++) {
        int64_t n = type_elements(&binding->out_local[o]);
        for (int64_t i = 0; i < n && good; i++) {
            DType dtype = cuda.out_local[o].dtype;
            float x = vec_get(got[o], dtype, i), expected = ((const float *)want[o])[i];
            CHECK(is_right(x, expected, dtype, node_is_exact(node)),
                  "%s %s: result %d, element %lld: %.9g, the CPU has %.9g", OPS[node->op].name,
                  node->op == OP_FUSED ? node_string(node, ATTR_program) : "", o, (long long)i,
                  (double)x, (double)expected);
        }
        if (op_alias(node, o) >= 0) continue;
        free(want[o]), free(got[o]);
    }
    for (int i = 0; i < node->n_inputs; i++) free(operands.cpu[i]), free(operands.cuda[i]);
    run->n_run++;
}

static void check_plans(Arena *arena) {
    Diag *diag = diag_create();
    PlanRun run = {.cache = kernel_cache_create(arena),
                   .cpu_state = {UINT64_C(0xfedcba9876543210), 12, 1},
                   .state = {.seed = UINT64_C(0xfedcba9876543210), .step = 12, .train = 1}};
    const char *why = "";
    check_begin("the elementwise nodes of plans");
    for (int i = 0; i < elementwise_n_plans(); i++) elementwise_collect(i, arena, run.cache, diag);
    int n_kernels = kernel_cache_count(run.cache);
    CHECK(generated_host_compile(run.cache, &why), "%s", why);
    for (int i = 0; i < elementwise_n_plans(); i++) {
        const Plan *plan = elementwise_plan(i, arena, diag);
        for (int k = 0; k < elementwise_n_precisions(i); k++) {
            run.precision = ELEMENTWISE_PRECISIONS[k];
            elementwise_nodes_visit(plan, arena, diag, compare_node, &run);
        }
    }
    CHECK(diag_error_count(diag) == 0, "%s", diag_text(diag));
    CHECK(run.n_run > 300, "only %d nodes", run.n_run);
    CHECK(kernel_cache_count(run.cache) == n_kernels,
          "addresses of the same alignment made other kernels: %d, then %d", n_kernels,
          kernel_cache_count(run.cache));
    CHECK(n_kernels * 4 < run.n_run, "%d kernels for %d nodes", n_kernels, run.n_run);
    printf("note: %d kernels serve %d nodes\n", n_kernels, run.n_run);
    diag_destroy(diag);
}

int main(void) {
    const char *missing = generated_host_missing();
    Arena *arena = arena_create();
    check_patterns(arena);
    if (missing) {
        printf("skip generated kernels on the host: %s\n", missing);
    } else {
        check_ops(arena);
        check_random(arena);
        check_dropout(arena);
        check_wide(arena);
        check_plans(arena);
    }
    arena_destroy(arena);
    return check_report();
}
