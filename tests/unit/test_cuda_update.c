/* CUDA kernels of the global norm, clipping and the optimizers: against float64, against the CPU's,
 * and joined launches against single ones.
 *
 * Would catch: a wrong formula, order of operands or constant; an element that a vector path leaves
 * out; an update in spite of a clip factor that is not finite; a joined launch that mixes up
 * tensors, or that joins what must stay apart.
 */
#include "runtime/cpu/vec_low.h"
#include "runtime/cuda/kernels/args.h"
#include "runtime/cuda/merge.h"
#include "tests/unit/cuda_check.h"

#include <limits.h>

#include <math.h>

/* A few f32 roundings per step. */
static const double TOLERANCE = 2e-6;

static void check_nodes(const char *name, const char *nodes) {
    CudaCase c = {.nodes = nodes, .tolerance = TOLERANCE};
    check_begin(name);
    cuda_check(&c);
    check_end();
}

static void test_norm(void) {
    static const char *const SIZES[] = {"",        "a=1",     "a=13, b=17",
                                        "a=32768", "a=32771", "a=131, b=1021"};
    Arena *arena = arena_create();
    for (size_t i = 0; i < sizeof(SIZES) / sizeof(SIZES[0]); i++) {
        check_nodes(arena_printf(arena, "sumsq f32[%s]", SIZES[i]),
                    arena_printf(arena,
                                 "%%0 = input() {name=\"\"} : f32[%s]\n"
                                 "%%1 = sumsq(%%0) : f32[]\n",
                                 SIZES[i]));
    }
    arena_destroy(arena);
    check_nodes("clip_scale above, below, at 0, infinite, not a number, off",
                "%0 = input() {name=\":6.25\"} : f32[]\n"
                "%1 = clip_scale(%0) {max_norm=1} : f32[]\n"
                "%2 = input() {name=\":0.25\"} : f32[]\n"
                "%3 = clip_scale(%2) {max_norm=1} : f32[]\n"
                "%4 = input() {name=\":0\"} : f32[]\n"
                "%5 = clip_scale(%4) {max_norm=1} : f32[]\n"
                "%6 = input() {name=\":inf\"} : f32[]\n"
                "%7 = clip_scale(%6) {max_norm=1} : f32[]\n"
                "%8 = input() {name=\":nan\"} : f32[]\n"
                "%9 = clip_scale(%8) {max_norm=0} : f32[]\n"
                "%10 = clip_scale(%0) {max_norm=0} : f32[]\n");
    check_nodes("skip_spike above, below, of an infinite norm, whatever it is",
                "%0 = input() {name=\":0.5\"} : f32[]\n"
                "%1 = input() {name=\":6.25\"} : f32[]\n"
                "%2 = input() {name=\":6\"} : f32[]\n"
                "%3 = input() {name=\":inf\"} : f32[]\n"
                "%4 = skip_spike(%0, %1, %2) : f32[]\n"
                "%5 = skip_spike(%0, %2, %1) : f32[]\n"
                "%6 = skip_spike(%0, %3, %1) : f32[]\n"
                "%7 = input() {name=\":-1\"} : f32[]\n"
                "%8 = skip_spike(%0, %3, %7) : f32[]\n"
                "%9 = skip_spike(%0, %1, %7) : f32[]\n");
}

typedef struct Optimizer {
    const char *name, *op, *leaves, *inputs, *attrs;
    int n_outputs, step_leaf; /* number of the leaf that counts on, or -1 */
} Optimizer;

/* Leaves: p, g, then state, clip, learning rate, step. */
static const Optimizer OPTIMIZERS[] = {
    {"adamw", "adamw",
     "%%2 = param() {name=\":0\", init=\"zeros\", decay=1} : f32[%s]\n"
     "%%3 = param() {name=\":0\", init=\"zeros\", decay=1} : f32[%s]\n"
     "%%4 = input() {name=\":0.5\"} : f32[]\n%%5 = input() {name=\":0.03125\"} : f32[]\n"
     "%%6 = input() {name=\":1\"} : f32[]\n",
     "%0, %1, %2, %3, %4, %5, %6", "beta1=0.9, beta2=0.999, eps=1e-08, weight_decay=0.1", 3, 6},
    {"adamw, late and without decay", "adamw",
     "%%2 = param() {name=\"\", init=\"zeros\", decay=1} : f32[%s]\n"
     "%%3 = param() {name=\"+\", init=\"zeros\", decay=1} : f32[%s]\n"
     "%%4 = input() {name=\":1\"} : f32[]\n%%5 = input() {name=\":0.03125\"} : f32[]\n"
     "%%6 = input() {name=\":70000\"} : f32[]\n",
     "%0, %1, %2, %3, %4, %5, %6", "beta1=0.9, beta2=0.95, eps=0.25, weight_decay=0", 3, 6},
    {"adamw, clip factor not a number", "adamw",
     "%%2 = param() {name=\"\", init=\"zeros\", decay=1} : f32[%s]\n"
     "%%3 = param() {name=\"+\", init=\"zeros\", decay=1} : f32[%s]\n"
     "%%4 = input() {name=\":nan\"} : f32[]\n%%5 = input() {name=\":0.03125\"} : f32[]\n"
     "%%6 = input() {name=\":7\"} : f32[]\n",
     "%0, %1, %2, %3, %4, %5, %6", "beta1=0.9, beta2=0.95, eps=1e-08, weight_decay=0.1", 3, 6},
    {"adamw with a copy", "adamw",
     "%%2 = param() {name=\"\", init=\"zeros\", decay=1} : f32[%s]\n"
     "%%3 = param() {name=\"+\", init=\"zeros\", decay=1} : f32[%s]\n"
     "%%4 = input() {name=\":0.5\"} : f32[]\n%%5 = input() {name=\":0.03125\"} : f32[]\n"
     "%%6 = input() {name=\":3\"} : f32[]\n"
     "%%7 = param() {name=\"\", init=\"zeros\", decay=1} : bf16[%s]\n",
     "%0, %1, %2, %3, %4, %5, %6, %7", "beta1=0.9, beta2=0.95, eps=1e-08, weight_decay=0.1", 4, 6},
    {"sgd with a copy", "sgd",
     "%%2 = param() {name=\"\", init=\"zeros\", decay=1} : f32[%s]\n"
     "%%3 = input() {name=\":0.5\"} : f32[]\n%%4 = input() {name=\":0.03125\"} : f32[]\n"
     "%%5 = param() {name=\"\", init=\"zeros\", decay=1} : bf16[%s]\n",
     "%0, %1, %2, %3, %4, %5", "momentum=0.9, weight_decay=0.1", 3, -1},
    {"adamw with a copy in f16", "adamw",
     "%%2 = param() {name=\"\", init=\"zeros\", decay=1} : f32[%s]\n"
     "%%3 = param() {name=\"+\", init=\"zeros\", decay=1} : f32[%s]\n"
     "%%4 = input() {name=\":0.5\"} : f32[]\n%%5 = input() {name=\":0.03125\"} : f32[]\n"
     "%%6 = input() {name=\":3\"} : f32[]\n"
     "%%7 = param() {name=\"\", init=\"zeros\", decay=1} : f16[%s]\n",
     "%0, %1, %2, %3, %4, %5, %6, %7", "beta1=0.9, beta2=0.95, eps=1e-08, weight_decay=0.1", 4, 6},
    {"sgd with a copy in f16", "sgd",
     "%%2 = param() {name=\"\", init=\"zeros\", decay=1} : f32[%s]\n"
     "%%3 = input() {name=\":0.5\"} : f32[]\n%%4 = input() {name=\":0.03125\"} : f32[]\n"
     "%%5 = param() {name=\"\", init=\"zeros\", decay=1} : f16[%s]\n",
     "%0, %1, %2, %3, %4, %5", "momentum=0.9, weight_decay=0.1", 3, -1},
    {"sgd", "sgd",
     "%%2 = param() {name=\":0\", init=\"zeros\", decay=1} : f32[%s]\n"
     "%%3 = input() {name=\":0.5\"} : f32[]\n%%4 = input() {name=\":0.03125\"} : f32[]\n",
     "%0, %1, %2, %3, %4", "momentum=0.9, weight_decay=0.1", 2, -1},
    {"sgd without momentum", "sgd",
     "%%2 = param() {name=\"\", init=\"zeros\", decay=1} : f32[%s]\n"
     "%%3 = input() {name=\":1\"} : f32[]\n%%4 = input() {name=\":0.03125\"} : f32[]\n",
     "%0, %1, %2, %3, %4", "momentum=0, weight_decay=0", 2, -1},
    {"sgd, clip factor infinite", "sgd",
     "%%2 = param() {name=\"\", init=\"zeros\", decay=1} : f32[%s]\n"
     "%%3 = input() {name=\":inf\"} : f32[]\n%%4 = input() {name=\":0.03125\"} : f32[]\n",
     "%0, %1, %2, %3, %4", "momentum=0.9, weight_decay=0.1", 2, -1},
    {"sgd at half the rate", "sgd",
     "%%2 = param() {name=\"\", init=\"zeros\", decay=1} : f32[%s]\n"
     "%%3 = input() {name=\":1\"} : f32[]\n%%4 = input() {name=\":0.03125\"} : f32[]\n",
     "%0, %1, %2, %3, %4", "momentum=0.9, weight_decay=0.1, lr_scale=0.5", 2, -1},
    {"adamw at four times the rate", "adamw",
     "%%2 = param() {name=\":0\", init=\"zeros\", decay=1} : f32[%s]\n"
     "%%3 = param() {name=\":0\", init=\"zeros\", decay=1} : f32[%s]\n"
     "%%4 = input() {name=\":0.5\"} : f32[]\n%%5 = input() {name=\":0.03125\"} : f32[]\n"
     "%%6 = input() {name=\":1\"} : f32[]\n",
     "%0, %1, %2, %3, %4, %5, %6",
     "beta1=0.9, beta2=0.999, eps=1e-08, weight_decay=0.1, lr_scale=4", 3, 6},
    {"lion", "lion",
     "%%2 = param() {name=\":0\", init=\"zeros\", decay=1} : f32[%s]\n"
     "%%3 = input() {name=\":0.5\"} : f32[]\n%%4 = input() {name=\":0.03125\"} : f32[]\n",
     "%0, %1, %2, %3, %4", "beta1=0.9, beta2=0.99, weight_decay=0.1", 2, -1},
    {"lion with a copy, at half the rate", "lion",
     "%%2 = param() {name=\"\", init=\"zeros\", decay=1} : f32[%s]\n"
     "%%3 = input() {name=\":0.5\"} : f32[]\n%%4 = input() {name=\":0.03125\"} : f32[]\n"
     "%%5 = param() {name=\"\", init=\"zeros\", decay=1} : bf16[%s]\n",
     "%0, %1, %2, %3, %4, %5", "beta1=0.95, beta2=0.98, weight_decay=1, lr_scale=0.5", 3, -1},
    {"lion, clip factor not a number", "lion",
     "%%2 = param() {name=\"\", init=\"zeros\", decay=1} : f32[%s]\n"
     "%%3 = input() {name=\":nan\"} : f32[]\n%%4 = input() {name=\":0.03125\"} : f32[]\n",
     "%0, %1, %2, %3, %4", "beta1=0.9, beta2=0.99, weight_decay=0.1", 2, -1},
    {"ema from the beginning", "ema",
     "%%2 = input() {name=\":0.5\"} : f32[]\n%%3 = input() {name=\":1\"} : f32[]\n",
     "%0, %1, %2, %3", "decay=0.999", 1, 3},
    {"ema, late", "ema",
     "%%2 = input() {name=\":0.5\"} : f32[]\n%%3 = input() {name=\":70000\"} : f32[]\n",
     "%0, %1, %2, %3", "decay=0.9999", 1, 3},
    {"ema, clip factor infinite", "ema",
     "%%2 = input() {name=\":inf\"} : f32[]\n%%3 = input() {name=\":7\"} : f32[]\n",
     "%0, %1, %2, %3", "decay=0.9", 1, 3},
    {"lamb", "lamb",
     "%%2 = param() {name=\"+\", init=\"zeros\", decay=1} : f32[%s]\n"
     "%%3 = input() {name=\":0.5\"} : f32[]\n%%4 = input() {name=\":0.03125\"} : f32[]\n"
     "%%5 = input() {name=\":3\"} : f32[]\n%%6 = input() {name=\":5\"} : f32[]\n"
     "%%7 = input() {name=\":20\"} : f32[]\n",
     "%0, %1, %2, %3, %4, %5, %6, %7", "beta1=0.9, beta2=0.999, eps=1e-06, weight_decay=0.1", 1, 5},
    {"lamb with a copy, bounded, at twice the rate", "lamb",
     "%%2 = param() {name=\"+\", init=\"zeros\", decay=1} : f32[%s]\n"
     "%%3 = input() {name=\":0.5\"} : f32[]\n%%4 = input() {name=\":0.03125\"} : f32[]\n"
     "%%5 = input() {name=\":70\"} : f32[]\n%%6 = input() {name=\":50\"} : f32[]\n"
     "%%7 = input() {name=\":2\"} : f32[]\n"
     "%%8 = param() {name=\"\", init=\"zeros\", decay=1} : bf16[%s]\n",
     "%0, %1, %2, %3, %4, %5, %6, %7, %8",
     "beta1=0.9, beta2=0.95, eps=0.01, weight_decay=0.1, trust_max=1.5, lr_scale=2", 2, 5},
    {"lamb, clip factor not a number", "lamb",
     "%%2 = param() {name=\"+\", init=\"zeros\", decay=1} : f32[%s]\n"
     "%%3 = input() {name=\":nan\"} : f32[]\n%%4 = input() {name=\":0.03125\"} : f32[]\n"
     "%%5 = input() {name=\":3\"} : f32[]\n%%6 = input() {name=\":0\"} : f32[]\n"
     "%%7 = input() {name=\":0\"} : f32[]\n",
     "%0, %1, %2, %3, %4, %5, %6, %7", "beta1=0.9, beta2=0.999, eps=1e-06, weight_decay=0.1", 1, 5},
    {"muon", "muon",
     "%%2 = input() {name=\":0.5\"} : f32[]\n%%3 = input() {name=\":0.03125\"} : f32[]\n",
     "%0, %1, %2, %3", "scale=6.4, weight_decay=0.1, lr_scale=0.5", 1, -1},
    {"muon with a copy", "muon",
     "%%2 = input() {name=\":0.5\"} : f32[]\n%%3 = input() {name=\":0.03125\"} : f32[]\n"
     "%%4 = param() {name=\"\", init=\"zeros\", decay=1} : f16[%s]\n",
     "%0, %1, %2, %3, %4", "scale=6.4, weight_decay=0.1", 2, -1},
    {"muon, clip factor infinite", "muon",
     "%%2 = input() {name=\":inf\"} : f32[]\n%%3 = input() {name=\":0.03125\"} : f32[]\n",
     "%0, %1, %2, %3", "scale=6.4, weight_decay=0.1", 1, -1},
};

/* Of the last result, the parameter in 16 bits; f32: there is none. */
static DType copy_dtype(const Optimizer *o) {
    if (strstr(o->leaves, " bf16[")) return DTYPE_BF16;
    return strstr(o->leaves, " f16[") ? DTYPE_F16 : DTYPE_F32;
}

static bool has_copy(const Optimizer *o) {
    return dtype_is_low(copy_dtype(o));
}

static const char *update_nodes(Arena *arena, const Optimizer *o, const char *axes) {
    const char *results = "", *leaves = "";
    int always = strcmp(o->op, "lamb") == 0    ? 8
                 : strcmp(o->op, "adamw") == 0 ? 7
                 : strcmp(o->op, "muon") == 0  ? 4
                 : strcmp(o->op, "ema") == 0   ? 4
                                               : 5;
    int first = always + has_copy(o);
    const char *count = o->n_outputs > 1 ? arena_printf(arena, ":%d", o->n_outputs) : "";
    for (int i = 0; i < o->n_outputs; i++) {
        const char *dtype = dtype_name(i == o->n_outputs - 1 ? copy_dtype(o) : DTYPE_F32);
        results = arena_printf(arena, "%s%s%s[%s]", results, i ? ", " : "", dtype, axes);
    }
    for (const char *at = o->leaves; *at;) { /* %% and %s by hand: the text is not a format */
        size_t length = strcspn(at, "%");
        leaves = arena_printf(arena, "%s%.*s", leaves, (int)length, at);
        at += length;
        if (!*at) break;
        leaves = arena_printf(arena, "%s%s", leaves, at[1] == '%' ? "%" : axes);
        at += 2;
    }
    return arena_printf(arena,
                        "%%0 = param() {name=\"\", init=\"zeros\", decay=1} : f32[%s]\n"
                        "%%1 = param() {name=\"\", init=\"zeros\", decay=1} : f32[%s]\n"
                        "%s%%%d%s = %s(%s) {%s} : %s\n",
                        axes, axes, leaves, first, count, o->op, o->inputs, o->attrs, results);
}

/* The reference's leaves become what the update made of them; the step counts on. */
static void advance(Reference *ref, const Optimizer *o, CudaKernelRun *cuda, KernelRun *cpu) {
    Node *node = ref->graph->nodes[ref->graph->n_nodes - 1];
    for (int k = 0; k < node->n_outputs; k++) {
        Value operand = node->inputs[op_alias(node, k)];
        memcpy(reference_value(ref, operand), reference_value(ref, node_value(node, k)),
               sizeof(double) * (size_t)type_elements(&node->types[k]));
    }
    if (o->step_leaf < 0) return;
    Value step = node->inputs[o->step_leaf];
    *reference_value(ref, step) += 1;
    kernel_run_set_leaf(&cuda->base, step);
    if (cpu) kernel_run_set_leaf(cpu, step);
}

/* The largest difference between the device's and the CPU's values, in units of the last place of
 * themselves or of what they are differences of. */
static double ulps_apart(const CudaKernelRun *cuda, const KernelRun *cpu, const Node *node) {
    double worst = 0;
    for (int o = 0; o < node->n_outputs; o++) {
        int at = node->id * MAX_OUTPUTS + o;
        const float *x = cuda->base.ranks[0].buffers[at], *y = cpu->ranks[0].buffers[at];
        for (int64_t i = 0; i < type_elements(&node->types[o]); i++) {
            double unit = ldexp(fmax(fabs((double)y[i]), 0.25), -23);
            worst = fmax(worst, fabs((double)x[i] - (double)y[i]) / unit);
        }
    }
    return worst;
}

/* The copy has the parameter's bits, rounded to nearest: in bf16 as an upper half is. */
static bool is_rounded(const CudaKernelRun *run, const Node *node) {
    const float *p = run->base.ranks[0].buffers[node->id * MAX_OUTPUTS];
    const void *copy = run->base.ranks[0].buffers[node->id * MAX_OUTPUTS + node->n_outputs - 1];
    DType dtype = node->types[node->n_outputs - 1].dtype;
    for (int64_t i = 0; i < type_elements(&node->types[0]); i++) {
        double rounded = dtype == DTYPE_BF16 ? (double)vec_bf16_widen(halves_upper(p[i]))
                                             : reference_rounded(dtype, (double)p[i]);
        if ((double)vec_get(copy, dtype, i) != rounded) return false;
    }
    return true;
}

/* Steps one after the other. The CPU's kernel does not write copies: it is compared without. */
static void check_optimizer(const Optimizer *o, const char *axes, int n_steps) {
    CudaFixture f;
    CudaKernelRun cuda;
    KernelRun cpu;
    bool compare = !has_copy(o);
    Arena *arena = arena_create();
    check_begin(arena_printf(arena, "%s, f32[%s], %d steps", o->name, axes, n_steps));
    if (cuda_fixture_create(&f, NULL, update_nodes(arena, o, axes))) {
        bool bound = cuda_kernel_run_create(&cuda, f.reference, -1, NULL, f.diag) &&
                     (!compare || kernel_run_create(&cpu, f.reference, -1, f.diag));
        CHECK(bound, "%s", diag_text(f.diag));
        for (int step = 0; bound && step < n_steps; step++) {
            Node *last = f.graph->nodes[f.graph->n_nodes - 1];
            if (step) advance(f.reference, o, &cuda, compare ? &cpu : NULL);
            reference_run(f.reference);
            CHECK(cuda_kernel_run_step(&cuda), "%s", cuda_kernel_run_reason(&cuda));
            cuda_compare(&cuda, TOLERANCE, true);
            if (has_copy(o))
                CHECK(is_rounded(&cuda, last), "the copy is not the parameter rounded");
            if (!compare) continue;
            CHECK(kernel_run_step(&cpu), "the CPU's kernel failed");
            /* Sums and products are fused in other places. */
            double apart = ulps_apart(&cuda, &cpu, last);
            CHECK(apart <= 2 * (step + 1), "step %d: %.0f ulps from the CPU", step, apart);
        }
        cuda_kernel_run_destroy(&cuda);
        if (compare) kernel_run_destroy(&cpu);
    }
    cuda_fixture_destroy(&f);
    check_end();
    arena_destroy(arena);
}

/* Muon's direction in every dtype, and the momentum, which must leave the state where the factor
 * is not finite. */
static void test_muon(void) {
    static const char *const SIZES[] = {"a=3, b=7", "a=8192", "a=1639, b=10"};
    static const char *const DTYPES[] = {"f32", "bf16", "f16"}, *const CLIPS[] = {"0.5", "nan"};
    Arena *arena = arena_create();
    for (int i = 0; i < 9; i++) {
        const char *axes = SIZES[i / 3], *dtype = DTYPES[i % 3];
        check_nodes(arena_printf(arena, "muon, direction %s[%s]", dtype, axes),
                    arena_printf(arena,
                                 "%%0 = param() {name=\"\", init=\"zeros\", decay=1} : f32[%s]\n"
                                 "%%1 = input() {name=\"\"} : %s[%s]\n"
                                 "%%2 = input() {name=\":1\"} : f32[]\n"
                                 "%%3 = input() {name=\":0.03125\"} : f32[]\n"
                                 "%%4 = muon(%%0, %%1, %%2, %%3) {scale=6.4, weight_decay=0.1} "
                                 ": f32[%s]\n",
                                 axes, dtype, axes, axes));
    }
    for (int i = 0; i < 6; i++) {
        const char *axes = SIZES[i / 2], *clip = CLIPS[i % 2];
        check_nodes(arena_printf(arena, "muon_momentum f32[%s], factor %s", axes, clip),
                    arena_printf(arena,
                                 "%%0 = param() {name=\"\", init=\"zeros\", decay=1} : f32[%s]\n"
                                 "%%1 = input() {name=\":%s\"} : f32[]\n"
                                 "%%2 = input() {name=\"\"} : f32[%s]\n"
                                 "%%3:2 = muon_momentum(%%0, %%1, %%2) {momentum=0.95} : f32[%s], "
                                 "f32[%s]\n",
                                 axes, clip, axes, axes, axes));
    }
    arena_destroy(arena);
}

/* Moments and both norms, of one block, of many, and of chunks of more than one; a factor that is
 * not finite leaves the state. */
static void test_lamb_moments(void) {
    static const char *const SIZES[] = {"", "a=3, b=7", "a=8192", "a=8193", "a=1639, b=30"};
    static const char *const CLIPS[] = {"0.5", "nan"};
    Arena *arena = arena_create();
    for (int i = 0; i < 10; i++) {
        const char *axes = SIZES[i / 2], *clip = CLIPS[i % 2];
        check_nodes(arena_printf(arena, "lamb_moments f32[%s], factor %s", axes, clip),
                    arena_printf(arena,
                                 "%%0 = param() {name=\"\", init=\"zeros\", decay=1} : f32[%s]\n"
                                 "%%1 = param() {name=\"\", init=\"zeros\", decay=1} : f32[%s]\n"
                                 "%%2 = param() {name=\"+\", init=\"zeros\", decay=1} : f32[%s]\n"
                                 "%%3 = input() {name=\":%s\"} : f32[]\n"
                                 "%%4 = input() {name=\":3\"} : f32[]\n"
                                 "%%5 = input() {name=\"\"} : f32[%s]\n"
                                 "%%6:4 = lamb_moments(%%0, %%1, %%2, %%3, %%4, %%5) {beta1=0.9, "
                                 "beta2=0.999, eps=1e-06, weight_decay=0.1} : f32[%s], f32[%s], "
                                 "f32[], f32[]\n",
                                 axes, axes, axes, clip, axes, axes, axes));
    }
    arena_destroy(arena);
}

static void test_optimizers(void) {
    static const char *const SIZES[] = {"", "a=3, b=7", "a=8192", "a=1639, b=10"};
    for (size_t i = 0; i < sizeof(OPTIMIZERS) / sizeof(OPTIMIZERS[0]); i++) {
        for (size_t k = 0; k < sizeof(SIZES) / sizeof(SIZES[0]); k++) {
            check_optimizer(&OPTIMIZERS[i], SIZES[k], 3);
        }
    }
}

/* Joined launches */

static const char *states = "f32"; /* what updates that are joined keep their states in */
static int low_from = INT_MAX;     /* the first whose gradient is bf16 */

/* SGD's copies are f16, AdamW's bf16. */
static const char *low_name(bool sgd) {
    return sgd ? "f16" : "bf16";
}

/* One parameter's update; leaves from number `p` on: p, g, its states, the copy. Every third has a
 * copy, every second weight decay. */
static void put_update(StrBuf *out, int number, int i, int p, bool sgd, int scale, int rate,
                       const char *axes) {
    bool copy = i % 3 == 0;
    double decay = i % 2 ? 0.1 : 0;
    strbuf_printf(out, "%%%d:%d = ", number, (sgd ? 2 : 3) + copy);
    if (sgd) {
        strbuf_printf(out, "sgd(%%%d, %%%d, %%%d, %%%d, %%%d", p, p + 1, p + 2, scale, rate);
        if (copy) strbuf_printf(out, ", %%%d", p + 4);
        strbuf_printf(out, ") {momentum=0.9, weight_decay=%g} : f32[%s], %s[%s]", decay, axes,
                      states, axes);
    } else {
        strbuf_printf(out, "adamw(%%%d, %%%d, %%%d, %%%d, %%%d, %%%d, %%%d", p, p + 1, p + 2, p + 3,
                      scale, rate, rate + 1);
        if (copy) strbuf_printf(out, ", %%%d", p + 4);
        strbuf_printf(out,
                      ") {beta1=0.9, beta2=0.95, eps=1e-08, weight_decay=%g} : f32[%s], %s[%s], "
                      "%s[%s]",
                      decay, axes, states, axes, states, axes);
    }
    if (copy) strbuf_printf(out, ", %s[%s]", low_name(sgd), axes);
    strbuf_put(out, "\n");
}

/* A step's end for `n` parameters of odd sizes: norms, their sum, the clip factor, updates. */
static const char *many_updates(Arena *arena, int n, bool sgd, const char *max_norm) {
    enum { LEAVES = 5 };
    static const int SIZES[] = {1, 7, 8192, 13, 40000, 32768, 33000, 3, 9001, 65};
    static const char *const VALUES[LEAVES] = {"", "", "", "+", ""};
    StrBuf leaves = strbuf_create(), norms = strbuf_create(), updates = strbuf_create();
    StrBuf list = strbuf_create();
    const int rate = LEAVES * n, norm = rate + 2, sum = norm + n;
    for (int i = 0; i < n; i++) {
        int axis = i % (int)(sizeof(SIZES) / sizeof(SIZES[0])), p = LEAVES * i;
        const char *axes = arena_printf(arena, "a%d=%d", axis, SIZES[axis]);
        for (int k = 0; k < LEAVES; k++) {
            strbuf_printf(&leaves,
                          "%%%d = param() {name=\"%s\", init=\"zeros\", decay=1} : %s[%s]\n", p + k,
                          VALUES[k],
                          k == LEAVES - 1           ? low_name(sgd)
                          : k == 2 || k == 3        ? states
                          : k == 1 && i >= low_from ? "bf16"
                                                    : "f32",
                          axes);
        }
        strbuf_printf(&norms, "%%%d = sumsq(%%%d) : f32[]\n", norm + i, p + 1);
        strbuf_printf(&list, "%s%%%d", i ? ", " : "", norm + i);
        put_update(&updates, sum + 2 + i, i, p, sgd, sum + 1, rate, axes);
    }
    const char *text = arena_printf(
        arena,
        "%s%%%d = input() {name=\":0.03125\"} : f32[]\n%%%d = input() {name=\":3\"} : f32[]\n%s"
        "%%%d = add_n(%s) : f32[]\n%%%d = clip_scale(%%%d) {max_norm=%s} : f32[]\n%s",
        leaves.text, rate, rate + 1, norms.text, sum, list.text, sum + 1, sum, max_norm,
        updates.text);
    strbuf_destroy(&leaves), strbuf_destroy(&norms), strbuf_destroy(&updates);
    strbuf_destroy(&list);
    return text;
}

/* Every command's accesses, as emit.c has them; all workspaces are one, as in a plan. */
static void set_accesses(CudaKernelRun *run, Arena *arena) {
    const Graph *graph = run->base.reference->graph;
    for (int n = 0; n < graph->n_nodes; n++) {
        Node *node = graph->nodes[n];
        Access *accesses = ARENA_ARRAY(arena, Access, node->n_inputs + node->n_outputs + 1);
        int count = 0;
        for (int i = 0; i < node->n_inputs + node->n_outputs; i++) {
            bool write = i >= node->n_inputs;
            Value value = write ? node_value(node, i - node->n_inputs) : node->inputs[i];
            void *at = run->base.ranks[0].buffers[value.node->id * MAX_OUTPUTS + value.output];
            accesses[count++] = access_to(at, cuda_value_bytes(graph, value), write);
        }
        int64_t workspace =
            node->n_inputs ? cuda_workspace_bytes(node, value_type(node->inputs[0]), node->types)
                           : 0;
        if (workspace) accesses[count++] = access_to(run->workspaces[0], workspace, true);
        for (int i = run->first_command[0][n]; i < run->first_command[0][n + 1]; i++) {
            Command *command = &run->lists[0].items[i];
            command->accesses = accesses;
            command->n_accesses = count;
            void *args = (void *)command->launch.args;
            if (!workspace) continue;
            if (node->op == OP_SUMSQ) ((SumsqArgs *)args)->partial = run->workspaces[0];
            if (node->op == OP_LAMB_MOMENTS) ((LambArgs *)args)->partial = run->workspaces[0];
        }
    }
}

static bool covers(const Command *command, const Access *access) {
    for (int i = 0; i < command->n_accesses; i++) {
        const Access *a = &command->accesses[i];
        if (a->at == access->at && a->bytes == access->bytes && a->write == access->write) {
            return true;
        }
    }
    return false;
}

/* Every access of the first list is one of some command of the second. */
static bool keeps_accesses(const CommandList *before, const CommandList *after) {
    for (int i = 0; i < before->count; i++) {
        for (int k = 0; k < before->items[i].n_accesses; k++) {
            bool found = false;
            for (int j = 0; j < after->count && !found; j++) {
                found = covers(&after->items[j], &before->items[i].accesses[k]);
            }
            if (!found) return false;
        }
    }
    return true;
}

static void check_merged_text(const char *name, const char *text, int n_commands) {
    CudaFixture f;
    CudaKernelRun single, merged;
    CommandList list = {0};
    Arena *arena = arena_create();
    check_begin(name);
    if (cuda_fixture_create(&f, NULL, text)) {
        bool bound = cuda_kernel_run_create(&single, f.reference, -1, NULL, f.diag) &&
                     cuda_kernel_run_create(&merged, f.reference, -1, NULL, f.diag);
        CHECK(bound, "%s", diag_text(f.diag));
        CHECK(cuda_kernel_run_step(&single), "%s", cuda_kernel_run_reason(&single));
        set_accesses(&merged, arena);
        for (int i = 0; i < merged.lists[0].count; i++) {
            command_list_push(&list, &merged.lists[0].items[i]);
        }
        cuda_merge_updates(&list, arena);
        CHECK(list.count == n_commands, "%d commands, not %d (of %d)", list.count, n_commands,
              merged.lists[0].count);
        CHECK(keeps_accesses(&merged.lists[0], &list), "an access is gone");
        emulate_set_order(2);
        for (int i = 0; i < list.count; i++) {
            const char *why = "";
            CHECK(cuda_run_command(&list.items[i], NULL, &why), "%s", why);
        }
        emulate_set_order(0);
        CHECK(cuda_same_bits(&single, &merged), "results are not those of single launches");
        command_list_release(&list);
        cuda_kernel_run_destroy(&single);
        cuda_kernel_run_destroy(&merged);
    }
    cuda_fixture_destroy(&f);
    check_end();
    arena_destroy(arena);
}

static void check_merged(const char *name, int n, bool sgd, const char *max_norm, int n_commands) {
    Arena *arena = arena_create();
    check_merged_text(name, many_updates(arena, n, sgd, max_norm), n_commands);
    arena_destroy(arena);
}

/* Averages of `n` parameters of odd sizes. */
static void check_merged_averages(const char *name, int n, int n_commands) {
    static const int SIZES[] = {1, 7, 8192, 13, 40000, 8193, 3};
    StrBuf text = strbuf_create();
    strbuf_put(&text, "%0 = input() {name=\":0.5\"} : f32[]\n%1 = input() {name=\":9\"} : f32[]\n");
    for (int i = 0; i < 2 * n; i++) {
        strbuf_printf(&text, "%%%d = param() {name=\"\", init=\"zeros\", decay=1} : f32[a%d=%d]\n",
                      2 + i, i / 2 % 7, SIZES[i / 2 % 7]);
    }
    for (int i = 0; i < n; i++) {
        strbuf_printf(&text, "%%%d = ema(%%%d, %%%d, %%0, %%1) {decay=0.9} : f32[a%d=%d]\n",
                      2 + 2 * n + i, 2 + 2 * i, 3 + 2 * i, i % 7, SIZES[i % 7]);
    }
    check_merged_text(name, text.text, n_commands);
    strbuf_destroy(&text);
}

/* LAMB of `n` parameters of odd sizes: moments and norms of all, then the steps. */
static void check_merged_lamb(const char *name, int n, int n_commands) {
    enum { LEAVES = 5, CLIP = 0, RATE, STEP, FIRST };
    static const int SIZES[] = {1, 7, 8192, 13, 40000, 8193, 33000, 3, 9001, 65};
    static const char *const VALUES[LEAVES] = {"", "", "+", "", ""};
    static const char BETAS[] = "beta1=0.9, beta2=0.999, eps=1e-06";
    const int moments = FIRST + LEAVES * n, steps = moments + n;
    StrBuf leaves = strbuf_create(), first = strbuf_create(), second = strbuf_create();
    for (int i = 0; i < n; i++) {
        int axis = i % (int)(sizeof(SIZES) / sizeof(SIZES[0])), p = FIRST + LEAVES * i;
        bool copy = i % 3 == 0;
        char axes[32];
        snprintf(axes, sizeof(axes), "a%d=%d", axis, SIZES[axis]);
        for (int k = 0; k < LEAVES; k++) {
            strbuf_printf(&leaves,
                          "%%%d = param() {name=\"%s\", init=\"zeros\", decay=1} : %s[%s]\n", p + k,
                          VALUES[k],
                          k == LEAVES - 1           ? "bf16"
                          : k == 1 || k == 2        ? states
                          : k == 3 && i >= low_from ? "bf16"
                                                    : "f32",
                          axes);
        }
        strbuf_printf(&first,
                      "%%%d:4 = lamb_moments(%%%d, %%%d, %%%d, %%%d, %%%d, %%%d) {%s, "
                      "weight_decay=%g} : %s[%s], %s[%s], f32[], f32[]\n",
                      moments + i, p, p + 1, p + 2, CLIP, STEP, p + 3, BETAS, i % 2 ? 0.1 : 0.01,
                      states, axes, states, axes);
        strbuf_printf(&second, "%%%d%s = lamb(%%%d, %%%d, %%%d.1, %%%d, %%%d, %%%d, %%%d.2, %%%d.3",
                      steps + i, copy ? ":2" : "", p, moments + i, moments + i, CLIP, RATE, STEP,
                      moments + i, moments + i);
        if (copy) strbuf_printf(&second, ", %%%d", p + 4);
        strbuf_printf(&second, ") {%s, weight_decay=%g} : f32[%s]", BETAS, i % 2 ? 0.1 : 0.01,
                      axes);
        if (copy) strbuf_printf(&second, ", bf16[%s]", axes);
        strbuf_put(&second, "\n");
    }
    Arena *arena = arena_create();
    check_merged_text(name,
                      arena_printf(arena,
                                   "%%0 = input() {name=\":0.5\"} : f32[]\n"
                                   "%%1 = input() {name=\":0.03125\"} : f32[]\n"
                                   "%%2 = input() {name=\":3\"} : f32[]\n%s%s%s",
                                   leaves.text, first.text, second.text),
                      n_commands);
    arena_destroy(arena);
    strbuf_destroy(&leaves), strbuf_destroy(&first), strbuf_destroy(&second);
}

/* Two updates in a list by hand; `change` makes the second one different. */
typedef struct Pair {
    CommandList list;
    AdamwArgs args[2];
    SumsqArgs sums[2];
    Access accesses[2][4];
    float memory[64];
} Pair;

static void make_pair(Pair *p, bool sums) {
    *p = (Pair){0};
    for (int i = 0; i < 2; i++) {
        float *own = p->memory + 32 * i;
        p->args[i] = (AdamwArgs){.scalars = {.clip = p->memory, .beta1 = 0.9},
                                 .tensor = {.p = own + 8, .n = 4}};
        p->sums[i] = (SumsqArgs){
            .x = own + 16, .n = 4, .chunk = SUMSQ_CHUNK, .n_blocks = 1, .out = own + 24};
        p->accesses[i][0] = access_to(own + 16, 16, false);
        p->accesses[i][1] = access_to(own + (sums ? 24 : 8), sums ? 4 : 16, true);
        Command command = {.kind = COMMAND_LAUNCH, .accesses = p->accesses[i], .n_accesses = 2};
        command.launch =
            (LaunchCommand){.kernel = sums ? KERNEL_sumsq : KERNEL_adamw,
                            .grid = {1, 1, 1},
                            .threads = UPDATE_THREADS,
                            .args = sums ? (void *)&p->sums[i] : (void *)&p->args[i],
                            .args_bytes = sums ? sizeof(SumsqArgs) : sizeof(AdamwArgs)};
        command_list_push(&p->list, &command);
    }
}

/* Of dtypes of 16 bits; f32: none. */
static void set_copies(Pair *p, DType first, DType second) {
    const DType dtypes[] = {first, second};
    for (int i = 0; i < 2; i++) {
        p->args[i].scalars.copy_dtype = (int32_t)dtypes[i];
        if (dtype_is_low(dtypes[i])) p->args[i].tensor.copy = (uint16_t *)(p->memory + 32 * i + 28);
    }
}

/* Whether the pair is joined. */
static bool joins(Pair *p) {
    Arena *arena = arena_create();
    int before = p->list.count;
    cuda_merge_updates(&p->list, arena);
    bool joined = p->list.count < before;
    command_list_release(&p->list);
    arena_destroy(arena);
    return joined;
}

static void test_what_is_joined(void) {
    Pair p;
    check_begin("neighbours that must stay apart are not joined");
    make_pair(&p, false);
    CHECK(joins(&p), "two updates alike are not joined");
    make_pair(&p, false);
    p.list.items[1].info.rank = 1;
    CHECK(!joins(&p), "joined: of two ranks");
    make_pair(&p, false);
    p.list.items[1].stream = STREAM_DATA;
    CHECK(!joins(&p), "joined: of two streams");
    make_pair(&p, false);
    p.args[1].scalars.beta1 = 0.8;
    CHECK(!joins(&p), "joined: with other constants");
    make_pair(&p, false);
    p.args[1].scalars.state_dtype = DTYPE_BF16;
    CHECK(!joins(&p), "joined: states of two dtypes");
    make_pair(&p, false);
    p.args[1].scalars.low_gradients = 1;
    CHECK(joins(&p), "not joined: gradients of two dtypes");
    make_pair(&p, false);
    p.args[1].scalars.clip = p.memory + 1;
    CHECK(!joins(&p), "joined: with another clip factor");
    make_pair(&p, false);
    p.args[1].tensor.weight_decay = 0.1;
    CHECK(joins(&p), "not joined: with another weight decay");
    make_pair(&p, false);
    set_copies(&p, DTYPE_BF16, DTYPE_F16);
    CHECK(!joins(&p), "joined: copies of two dtypes");
    make_pair(&p, false);
    set_copies(&p, DTYPE_F32, DTYPE_F16);
    CHECK(joins(&p), "not joined: one with and one without a copy");
    make_pair(&p, false);
    p.accesses[1][0] = p.accesses[0][1];
    p.accesses[1][0].write = false;
    CHECK(!joins(&p), "joined: the second reads what the first writes");
    make_pair(&p, false);
    p.accesses[0][0] = p.accesses[1][1];
    p.accesses[0][0].write = false;
    CHECK(!joins(&p), "joined: the second writes what the first reads");
    make_pair(&p, false);
    p.list.items[1].launch.kernel = KERNEL_sumsq;
    p.list.items[1].launch.args = &p.sums[1];
    CHECK(!joins(&p), "joined: an update and a norm");
    make_pair(&p, true);
    CHECK(joins(&p), "two norms are not joined");
    make_pair(&p, true);
    p.sums[1].chunk *= 2;
    CHECK(!joins(&p), "joined: norms with other chunks");
    make_pair(&p, true);
    p.list.items[1].launch.kernel = KERNEL_sumsq_low;
    CHECK(!joins(&p), "joined: norms of two dtypes");
    check_end();
}

/* Norms of several blocks in one workspace; a result in the workspace's place keeps them apart. */
static void test_workspace(void) {
    for (int in_the_way = 0; in_the_way < 2; in_the_way++) {
        Pair p;
        make_pair(&p, true);
        CommandList list = {0};
        for (int i = 0; i < 2; i++) {
            p.sums[i].n_blocks = 2;
            p.sums[i].partial = p.memory;
            p.accesses[i][2] = access_to(p.memory, 32, true);
            if (in_the_way && i) p.accesses[i][1] = access_to(p.memory + 4, 4, true);
            p.list.items[i].n_accesses = 3;
            p.list.items[i].launch.grid.x = 2;
            command_list_push(&list, &p.list.items[i]);
            Command finish = p.list.items[i];
            finish.launch.kernel = KERNEL_sumsq_finish;
            finish.launch.grid.x = 1;
            command_list_push(&list, &finish);
        }
        command_list_release(&p.list);
        p.list = list;
        check_begin(in_the_way ? "norms: a result in the first one's workspace"
                               : "norms that share a workspace are joined");
        CHECK(joins(&p) == !in_the_way, "joined: %d", !in_the_way);
        check_end();
    }
}

static void test_argument_sizes(void) {
    check_begin("arguments of all kernels fit into 4 KiB");
    for (int i = 0; i < N_KERNELS; i++) {
        CHECK(KERNELS[i].args_bytes <= 4096, "%s takes %zu bytes", KERNELS[i].name,
              KERNELS[i].args_bytes);
    }
    check_end();
}

int main(void) {
    test_what_is_joined();
    test_workspace();
    test_argument_sizes();
    if (cuda_check_missing()) return check_report();
    test_norm();
    test_optimizers();
    test_muon();
    test_lamb_moments();
    check_merged_lamb("10 LAMB updates joined", 10, 2 + 1);
    check_merged_lamb("60 LAMB updates joined", 60, 4 + 2);
    check_merged_lamb("2 LAMB updates joined, of one block", 2, 1 + 1);
    check_merged_averages("70 averages joined", 70, 2);
    /* Norms: one launch and its second; the sum, the factor; updates 64 at a time. */
    check_merged("10 AdamW updates joined", 10, false, "1", 2 + 2 + 1);
    check_merged("10 AdamW updates joined, no clipping", 10, false, "0", 2 + 2 + 1);
    check_merged("10 SGD updates joined", 10, true, "1", 2 + 2 + 1);
    check_merged("70 AdamW updates joined", 70, false, "1", 2 + 2 + 2);
    check_merged("2 SGD updates joined, of one block", 2, true, "1", 1 + 2 + 1);
    states = "bf16";
    check_merged_lamb("10 LAMB updates joined, states in bf16", 10, 2 + 1);
    check_merged("10 AdamW updates joined, states in bf16", 10, false, "1", 2 + 2 + 1);
    check_merged("10 SGD updates joined, states in bf16", 10, true, "1", 2 + 2 + 1);
    low_from = 4; /* norms of either dtype: one launch; two */
    check_merged("10 AdamW updates joined, states and gradients in bf16", 10, false, "1",
                 3 + 2 + 1);
    check_merged_lamb("60 LAMB updates joined, states and gradients in bf16", 60, 4 + 2);
    states = "f32";
    check_merged("70 AdamW updates joined, gradients in bf16", 70, false, "1", 3 + 2 + 2);
    check_merged("10 SGD updates joined, gradients in bf16", 10, true, "1", 3 + 2 + 1);
    check_merged_lamb("10 LAMB updates joined, gradients in bf16", 10, 2 + 1);
    return check_report();
}
