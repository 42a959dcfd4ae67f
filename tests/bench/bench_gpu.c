/* Speed of training on one GPU: GPT-2 124M and 1.5B and Llama 8B cut to the layers that fit, in
 * bf16. Prints per model: seconds per step (median), tokens/s, MFU with causal attention counted as
 * half and as whole, the share of this device's own rate of matrix products measured in the same
 * run, the launching thread's time per step, time in kernels over time of a step, and what of it
 * each kind of kernel takes. Each line as soon as it is known.
 *
 * Attention by the kernels that training would take; --no-cudnn: by own ones; --attention cudnn,
 * mma, wgmma or joint: by these where they can; --cudnn-backward: the plan has room
 * for cuDNN's gradient. --tune: algorithms of products as `perilune tune` chooses them, else
 * cuBLASLt's first choices. --f16: all of it in f16. --fp8: operands of blocks' products are fp8,
 * multiplied on tensor cores (sm_90); --fp8-widened: widened to bf16 before. --no-epilogues: what
 * follows products has kernels of its own. --own-products: products by a plain kernel, not tuned
 * and not of fp8. --low-states: the optimizer's state in bf16. --low-gradients: gradients of
 * weights, where a step has one micro-batch. --split-masters: copies of weights are halves of
 * them. --offload: the optimizer's states and masters in the host's memory. --activations: what
 * blocks keep for the backward there. --no-wgmma: not tried by --tune. --micro-batch N: sequences
 * at a time, of as many in a step.
 *
 *   build/bench/bench_gpu [--steps N] [--micro-batch N] [--no-cudnn] [--attention KERNELS]
 *       [--cudnn-backward] [--tune] [--no-wgmma] [--f16 | --fp8 | --fp8-widened] [--no-epilogues]
 *       [--own-products] [--low-states] [--low-gradients] [--split-masters] [--offload]
 *       [--activations] [gpt-124m gpt-1.5b llama-8b]
 */
#ifndef HAVE_CUDA
#include <stdio.h>

int main(void) {
    puts("skip bench_gpu: built without CUDA");
    return 0;
}
#else
#include "frontend/lua/model.h"
#include "ir/op.h"
#include "planner/planner.h"
#include "runtime/cuda/driver/gemm.h"
#include "runtime/cuda/tune.h"
#include "runtime/engine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_STEPS = 200, WARM_UP = 3, MAX_SETTINGS = 4 };

typedef struct Case {
    const char *name, *path;
    ModelSetting settings[MAX_SETTINGS];
    int n_settings, layers, micro_batch, n_micro;
} Case;

/* Plans fill up the vocabulary of GPT-2 to 50304 words; PyTorch beside it has as many. */
static const Case CASES[] = {
    {"gpt-124m", "models/gpt.lua", {{"size", "124m"}}, 1, 12, 32, 1},
    {"gpt-1.5b", "models/gpt.lua", {{"size", "1.5b"}}, 1, 48, 16, 2},
    {"llama-8b", "models/llama.lua", {{"size", "8b"}, {"seq", "4096"}}, 2, 16, 2, 2},
};
enum { N_CASES = sizeof(CASES) / sizeof(CASES[0]) };

typedef struct Bench {
    const CudaDevice *device;
    double rate; /* FLOP/s of matrix products */
    DType precision;
    int n_steps, n_wanted, micro_batch; /* 0: each case's */
    AttentionKernels attention;         /* N_ATTENTION_KERNELS: not asked for */
    bool fp8_tensor_cores, no_cudnn, no_epilogues, own_products, no_wgmma, cudnn_backward, tune,
        low_states, low_gradients, split_masters, offload, activations, wanted[N_CASES];
} Bench;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Dense peaks in 16 bits by data sheet, TFLOP/s. */
static double peak_tflops(const char *device) {
    static const struct {
        const char *part;
        double tflops;
    } PEAKS[] = {{"GB200", 2500}, {"B200", 2250}, {"H200", 989}, {"H100 PCIe", 756},
                 {"H100", 989},   {"A100", 312},  {"L40S", 362}, {"4090", 165}};
    for (size_t i = 0; i < sizeof(PEAKS) / sizeof(PEAKS[0]); i++) {
        if (strstr(device, PEAKS[i].part)) return PEAKS[i].tflops;
    }
    return 0;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int count) {
    qsort(values, (size_t)count, sizeof(double), ascending);
    return values[count / 2];
}

/* FLOP/s of products of 8192^3 in 16 bits on numbers other than zero: the median of ten. 0:
 * reported. */
/* Products of two operands of 2 N N bytes each, all in `memory`, with room after the first N N
 * bytes of one in fp8 for its scales: of rows, and of tiles, as in a layer's forward. */
static GemmCommand matrix_product(unsigned char *memory, int64_t n, DType dtype) {
    int64_t bytes = 2 * n * n;
    GemmCommand command = {.layout = {.batch = 1, .m = n, .n = n, .k = n},
                           .in_dtype = dtype,
                           .out_dtype = dtype,
                           .a = memory,
                           .b = memory + bytes,
                           .d = memory + 2 * bytes};
    if (dtype != DTYPE_FP8) return command;
    command.out_dtype = DTYPE_BF16;
    command.layout.transpose_b = true;
    command.scales_a = (GemmScales){(const float *)(memory + n * n), SCALES_OF_ROWS};
    command.scales_b = (GemmScales){(const float *)(memory + bytes + n * n), SCALES_OF_TILES};
    return command;
}

/* fp8 that is widened is multiplied in bf16. */
static DType multiplied(const Bench *bench) {
    bool widened = bench->precision == DTYPE_FP8 && !bench->fp8_tensor_cores;
    return widened ? DTYPE_BF16 : bench->precision;
}

static double matrix_rate(const CudaDevice *device, DType dtype, Diag *diag) {
    enum { N = 8192, REPEATS = 10, WORKSPACE = 32 << 20 };
    const CuApi *api = device->api;
    Arena *arena = arena_create();
    size_t bytes = (size_t)N * N * 2;
    unsigned char *memory = NULL;
    cudaStream_t stream = NULL;
    cudaEvent_t events[2] = {NULL, NULL};
    double rates[REPEATS], rate = 0;
    bool fine = api->cudaMalloc((void **)&memory, 3 * bytes + WORKSPACE) == cudaSuccess &&
                api->cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess &&
                api->cudaEventCreateWithFlags(&events[0], cudaEventDefault) == cudaSuccess &&
                api->cudaEventCreateWithFlags(&events[1], cudaEventDefault) == cudaSuccess &&
                cuda_fill_numbers(device, memory, 2 * (int64_t)bytes, stream, diag);
    GemmTable *table = gemm_table_create(device, false, WORKSPACE, arena);
    GemmCommand command = matrix_product(memory, N, dtype);
    const GemmEntry *entry = fine ? gemm_table_find(table, &command, diag) : NULL;
    for (int i = 0; fine && entry && i < REPEATS + WARM_UP; i++) {
        float ms = 0;
        api->cudaEventRecord(events[0], stream);
        cublasStatus_t status = gemm_issue(table, entry, &command, memory + 3 * bytes, stream);
        api->cudaEventRecord(events[1], stream);
        fine &= cuda_check_blas(api, status, diag, "a product") &&
                cuda_check(api, api->cudaEventSynchronize(events[1]), diag, "a product") &&
                api->cudaEventElapsedTime(&ms, events[0], events[1]) == cudaSuccess;
        if (i >= WARM_UP) rates[i - WARM_UP] = 2.0 * N * N * N / (1e-3 * (double)ms);
    }
    if (fine && entry) rate = median(rates, REPEATS);
    gemm_table_destroy(table);
    if (events[0]) api->cudaEventDestroy(events[0]);
    if (events[1]) api->cudaEventDestroy(events[1]);
    if (stream) api->cudaStreamDestroy(stream);
    api->cudaFree(memory);
    arena_destroy(arena);
    return rate;
}

static Plan *make_plan(const Bench *bench, const Case *c, int layers, Arena *arena,
                       Model **out_model, Diag *diag) {
    ModelSetting settings[MAX_SETTINGS + 1];
    char text[16];
    memcpy(settings, c->settings, sizeof(c->settings));
    snprintf(text, sizeof(text), "%d", layers);
    settings[c->n_settings] = (ModelSetting){"layers", text};
    Model *model = model_load(arena, c->path, settings, c->n_settings + 1, c->micro_batch, diag);
    *out_model = model;
    if (!model) return NULL;
    PlanRequest request = {
        .model = model->name,
        .forward = model->graph,
        .n_blocks = model->n_blocks,
        .seq = model->seq,
        .vocab = model->vocab,
        .recipe = model->recipe,
        .options = {.mesh = {.size = {1, 1, 1, 1, 1, 1}},
                    .micro_batch = c->micro_batch,
                    .global_batch = c->micro_batch * c->n_micro,
                    .n_chunks = 1,
                    .schedule = "1f1b",
                    .cuda = true,
                    .precision = bench->precision,
                    .fp8_tensor_cores = bench->fp8_tensor_cores,
                    .state_dtype = bench->low_states ? DTYPE_BF16 : DTYPE_F32,
                    .gradient_dtype = bench->low_gradients ? DTYPE_BF16 : DTYPE_F32,
                    .split_masters = bench->split_masters,
                    .offload = bench->offload ? 100 : 0,
                    .offload_activations = bench->activations ? 100 : 0,
                    .cudnn_backward = bench->cudnn_backward,
                    .seed = 1}};
    return plan_make(arena, &request, diag);
}

/* What counting causal attention as whole adds to the step's FLOPs: as much again. */
static double attention_flops(const Model *model, int n_micro) {
    double flops = 0;
    for (int n = 0; n < model->graph->n_nodes; n++) {
        const Node *node = model->graph->nodes[n];
        if (node->op != OP_ATTENTION) continue;
        Type inputs[3];
        for (int i = 0; i < 3; i++) inputs[i] = *value_type(node->inputs[i]);
        flops += 3 * OPS[node->op].flops(node, inputs, node->types);
    }
    return flops * n_micro;
}

/* Fewer layers where the device has too little memory for all; 0: none fit. */
static int layers_that_fit(const Bench *bench, const Case *c, Diag *diag) {
    for (int layers = c->layers; layers > 0; layers -= layers > 8 ? 4 : 1) {
        Arena *arena = arena_create();
        Model *model;
        const Plan *plan = make_plan(bench, c, layers, arena, &model, diag);
        int64_t bytes = plan ? plan->stages[0].arena_bytes : INT64_MAX;
        arena_destroy(arena);
        if (bytes < bench->device->free_bytes - ((int64_t)2 << 30)) return layers;
    }
    return 0;
}

/* Spans of one op on operands of one shape, in one phase. */
typedef struct KernelKind {
    const Node *node; /* of the first */
    int count;
    double us;
} KernelKind;

static bool alike(const Node *a, const Node *b) {
    if (!a || !b) return a == b;
    if (a->op != b->op || a->phase != b->phase || a->n_inputs != b->n_inputs ||
        a->n_outputs != b->n_outputs) {
        return false;
    }
    for (int i = 0; i < a->n_inputs; i++) {
        if (!type_equal(value_type(a->inputs[i]), value_type(b->inputs[i]))) return false;
    }
    for (int o = 0; o < a->n_outputs; o++) {
        if (!type_equal(&a->types[o], &b->types[o])) return false;
    }
    return true;
}

static int by_time(const void *a, const void *b) {
    double x = ((const KernelKind *)a)->us, y = ((const KernelKind *)b)->us;
    return (x < y) - (x > y);
}

static void print_kind_type(const Type *type) {
    printf(" %s[", dtype_name(type->dtype));
    for (int i = 0; i < type->rank; i++) printf(i ? ",%lld" : "%lld", (long long)type->dims[i]);
    printf("]");
}

/* How long, how often, and what of the device that was: FLOP/s, and bytes of operands and results
 * a second, each counted once. */
static void print_kind(const KernelKind *kind, double us, Arena *arena) {
    const Node *node = kind->node;
    double seconds = 1e-6 * kind->us / kind->count, flops = 0, bytes = 0;
    printf("  %5.1f %% %9.1f us x %-4d ", 100 * kind->us / us, 1e6 * seconds, kind->count);
    if (!node) {
        printf("inputs, beginning and end\n");
        return;
    }
    Type *inputs = ARENA_ARRAY(arena, Type, node->n_inputs + 1);
    for (int i = 0; i < node->n_inputs; i++) {
        inputs[i] = *value_type(node->inputs[i]);
        bytes += (double)type_bytes(&inputs[i]);
    }
    for (int o = 0; o < node->n_outputs; o++) bytes += (double)type_bytes(&node->types[o]);
    if (OPS[node->op].flops) flops = OPS[node->op].flops(node, inputs, node->types);
    printf("%6.1f TFLOP/s %6.0f GB/s  %s:", 1e-12 * flops / seconds, 1e-9 * bytes / seconds,
           OPS[node->op].name);
    for (int i = 0; i < node->n_inputs && i < 3; i++) print_kind_type(&inputs[i]);
    printf(" ->");
    if (node->n_outputs) print_kind_type(&node->types[0]);
    printf("\n");
}

/* Time in kernels, of a step issued command by command; prints what takes most of it. */
static double kernel_seconds(Engine *engine, Arena *arena, Diag *diag) {
    enum { SHOWN = 24 };
    EngineSpan *spans;
    int count, n_kinds = 0;
    double us = 0;
    if (!engine_trace_step(engine, arena, &spans, &count, diag)) return NAN;
    KernelKind *kinds = ARENA_ARRAY(arena, KernelKind, count + 1);
    for (int i = 0; i < count; i++) {
        double span = spans[i].end_us - spans[i].begin_us;
        int k = 0;
        while (k < n_kinds && !alike(kinds[k].node, spans[i].node)) k++;
        if (k == n_kinds) kinds[n_kinds++] = (KernelKind){.node = spans[i].node};
        kinds[k].count++;
        kinds[k].us += span;
        us += span;
    }
    qsort(kinds, (size_t)n_kinds, sizeof(*kinds), by_time);
    for (int k = 0; k < n_kinds && k < SHOWN; k++) print_kind(&kinds[k], us, arena);
    return us * 1e-6;
}

/* Puts the algorithms that are fastest here into the plan. */
static bool tune(const Bench *bench, Plan *plan, Arena *arena, Diag *diag) {
    const TuneOptions options = {.no_wgmma = bench->no_wgmma};
    TuneResult result;
    double first = 0, chosen = 0;
    if (!cuda_tune(plan, &options, arena, &result, diag)) return false;
    plan->device = result.device;
    for (int i = 0; i < result.n_products; i++) {
        const TunedProduct *product = &result.products[i];
        if (product->first_us < 0 || product->chosen_us < 0) continue;
        first += 1e-3 * (double)product->count * product->first_us;
        chosen += 1e-3 * (double)product->count * product->chosen_us;
    }
    printf("  tuned: %d kinds of products, %.2f ms of a step by cuBLASLt's first choices, %.2f by "
           "those chosen; %d of %d kinds make a bias's gradient, %d of %d gelu, %d of %d run "
           "several at once\n",
           result.n_products, first, chosen, result.n_sums_joined, result.n_sums,
           result.n_gelus_folded, result.n_gelus, result.n_joined, result.n_joinable);
    for (int i = 0; i < result.n_attentions; i++) {
        const TunedAttention *a = &result.attentions[i];
        printf("  attention %s, us:", a->kind.backward ? "backward" : "forward");
        for (int k = 0; k < N_ATTENTION_KERNELS; k++) {
            if (a->us[k] > 0)
                printf(" %s %.1f,", attention_kernels_word((AttentionKernels)k), a->us[k]);
        }
        printf(" chosen: %s\n", attention_kernels_word(a->kind.kernels));
        for (int k = 0; k < N_ATTENTION_KERNELS; k++) {
            if (a->refused[k])
                printf("  %s not used: %s\n", attention_kernels_word((AttentionKernels)k),
                       a->refused[k]);
        }
    }
    return true;
}

/* What the steps of one case took. */
typedef struct Steps {
    double seconds[MAX_STEPS], launches[MAX_STEPS], first_loss, last_loss;
} Steps;

static bool run_steps(Engine *engine, const Plan *plan, int n_steps, Arena *arena, Steps *out,
                      Diag *diag) {
    int64_t n_tokens = plan->global_batch * plan->seq;
    int32_t *tokens = ARENA_ARRAY(arena, int32_t, 2 * n_tokens), *labels = tokens + n_tokens;
    for (int step = 0; step < n_steps + WARM_UP; step++) {
        StepResult result;
        for (int64_t i = 0; i < n_tokens; i++) {
            tokens[i] = (int32_t)((i * 7919 + step * 104729) % plan->vocab);
            labels[i] = (int32_t)((i * 6101 + step * 1299709) % plan->vocab);
        }
        if (!engine_step(engine, step + 1, tokens, labels, 1e-5, &result, diag)) return false;
        if (step == 0) out->first_loss = result.loss;
        out->last_loss = result.loss;
        if (step < WARM_UP) continue;
        out->seconds[step - WARM_UP] = result.seconds;
        out->launches[step - WARM_UP] = engine_replay_seconds(engine);
    }
    return true;
}

static void print_steps(const Bench *bench, const Model *model, const Plan *plan, Steps *steps) {
    double peak = 1e12 * peak_tflops(bench->device->name);
    double step = median(steps->seconds, bench->n_steps);
    double full = plan->model_flops + attention_flops(model, plan->n_micro);
    printf("  %.4f s/step (median of %d, min %.4f), %.0f tokens/s, loss %.3f to %.3f\n", step,
           bench->n_steps, steps->seconds[0], (double)(plan->global_batch * plan->seq) / step,
           steps->first_loss, steps->last_loss);
    printf("  MFU %.1f %% causal, %.1f %% full; share of the device's matrix rate %.1f %% "
           "causal (%.0f TFLOP/s)\n",
           peak > 0 ? 100 * plan->model_flops / step / peak : NAN,
           peak > 0 ? 100 * full / step / peak : NAN, 100 * plan->model_flops / step / bench->rate,
           1e-12 * bench->rate);
}

static bool run_plan(const Bench *bench, const Model *model, const Plan *plan, Arena *arena,
                     Diag *diag) {
    const AttentionKernels *asked = &bench->attention;
    const EngineOptions options = {.device = DEVICE_CUDA,
                                   .no_cudnn = bench->no_cudnn,
                                   .attention = *asked < N_ATTENTION_KERNELS ? asked : NULL,
                                   .no_epilogues = bench->no_epilogues,
                                   .own_products = bench->own_products};
    Steps steps;
    double start = now();
    Engine *engine = engine_create(plan, &options, diag);
    if (!engine) return false;
    double started = now();
    engine_init_parameters(engine);
    const char *attention = engine_attention(engine);
    printf("  %s; started in %.1f s, weights made in %.1f s\n",
           attention ? attention : "attention by own kernels", started - start, now() - started);
    if (engine_graphs(engine)) printf("  graphs: %s\n", engine_graphs(engine));
    bool fine = run_steps(engine, plan, bench->n_steps, arena, &steps, diag);
    if (fine) {
        print_steps(bench, model, plan, &steps);
        double step = median(steps.seconds, bench->n_steps);
        double kernels = kernel_seconds(engine, arena, diag);
        printf("  launching thread %.1f us/step; kernels %.4f s = %.1f %% of a step; %lld "
               "commands; arena %.2f GiB\n",
               1e6 * median(steps.launches, bench->n_steps), kernels, 100 * kernels / step,
               (long long)engine_call_count(engine),
               (double)engine_arena_bytes(engine) / (1 << 30));
    }
    engine_destroy(engine);
    return fine;
}

static bool run_case(const Bench *bench, const Case *c, Diag *diag) {
    Arena *arena = arena_create();
    Model *model = NULL;
    int layers = layers_that_fit(bench, c, diag);
    Plan *plan = layers ? make_plan(bench, c, layers, arena, &model, diag) : NULL;
    if (!layers) diag_error(diag, NO_LOC, "%s does not fit this device", c->name);
    if (plan) {
        printf("%s: %d layers, %.0f M parameters, %d x %d x %lld tokens, %s%s%s%s%s%s\n", c->name,
               layers, 1e-6 * (double)plan->n_parameters, plan->n_micro, plan->micro_batch,
               (long long)plan->seq, dtype_name(bench->precision),
               bench->fp8_tensor_cores ? " on tensor cores" : "", bench->tune ? ", tuned" : "",
               bench->cudnn_backward ? ", room for cuDNN's gradient" : "",
               bench->low_states ? ", optimizer's state in bf16" : "",
               plan_gradient_dtype(plan) == DTYPE_BF16 ? ", weights' gradients in bf16" : "");
    }
    bool fine = plan && (!bench->tune || tune(bench, plan, arena, diag)) &&
                run_plan(bench, model, plan, arena, diag);
    arena_destroy(arena);
    return fine;
}

static int usage(void) {
    fprintf(
        stderr,
        "usage: bench_gpu [--steps N] [--micro-batch N] [--no-cudnn] "
        "[--attention cudnn|mma|wgmma|joint] "
        "[--cudnn-backward] [--tune] [--no-wgmma] [--f16 | --fp8 | --fp8-widened] [--no-epilogues] "
        "[--own-products] [--low-states] [--low-gradients] [--split-masters] [--offload] "
        "[--activations] [gpt-124m gpt-1.5b llama-8b]\n");
    return 2;
}

/* One argument, and with --steps the next; false: it is none. */
static bool read_argument(char **argv, int argc, int *i, Bench *bench) {
    const char *text = argv[*i];
    bool known = false;
    if (strcmp(text, "--steps") == 0 && *i + 1 < argc) {
        bench->n_steps = atoi(argv[++*i]);
        return bench->n_steps >= 1 && bench->n_steps <= MAX_STEPS;
    }
    if (strcmp(text, "--micro-batch") == 0 && *i + 1 < argc) {
        bench->micro_batch = atoi(argv[++*i]);
        return bench->micro_batch >= 1;
    }
    if (strcmp(text, "--no-cudnn") == 0) return bench->no_cudnn = true;
    if (strcmp(text, "--attention") == 0 && *i + 1 < argc) {
        const char *word = argv[++*i];
        for (int k = 0; k < N_ATTENTION_KERNELS; k++) {
            if (strcmp(word, attention_kernels_word((AttentionKernels)k)) == 0)
                bench->attention = (AttentionKernels)k;
        }
        return bench->attention < N_ATTENTION_KERNELS;
    }
    if (strcmp(text, "--no-epilogues") == 0) return bench->no_epilogues = true;
    if (strcmp(text, "--own-products") == 0) return bench->own_products = true;
    if (strcmp(text, "--low-states") == 0) return bench->low_states = true;
    if (strcmp(text, "--low-gradients") == 0) return bench->low_gradients = true;
    if (strcmp(text, "--split-masters") == 0) return bench->split_masters = true;
    if (strcmp(text, "--offload") == 0) return bench->offload = true;
    if (strcmp(text, "--activations") == 0) return bench->activations = true;
    if (strcmp(text, "--no-wgmma") == 0) return bench->no_wgmma = true;
    if (strcmp(text, "--cudnn-backward") == 0) return bench->cudnn_backward = true;
    if (strcmp(text, "--tune") == 0) return bench->tune = true;
    if (strcmp(text, "--f16") == 0) {
        bench->precision = DTYPE_F16;
        return true;
    }
    if (strcmp(text, "--fp8") == 0 || strcmp(text, "--fp8-widened") == 0) {
        bench->precision = DTYPE_FP8;
        bench->fp8_tensor_cores = text[5] == '\0';
        return true;
    }
    for (int c = 0; c < N_CASES; c++) {
        if (strcmp(text, CASES[c].name) == 0) known = bench->wanted[c] = true;
    }
    bench->n_wanted += known;
    return known;
}

int main(int argc, char **argv) {
    const char *why;
    CudaDevice device;
    Bench bench = {.device = &device,
                   .precision = DTYPE_BF16,
                   .attention = N_ATTENTION_KERNELS,
                   .n_steps = 10};
    bool fine = true;
    setvbuf(stdout, NULL, _IOLBF, 0); /* what is known stays known when time is up */
    for (int i = 1; i < argc; i++) {
        if (!read_argument(argv, argc, &i, &bench)) return usage();
    }
    if (bench.own_products && (bench.tune || bench.fp8_tensor_cores)) return usage();
    if (!engine_cuda_available(&why)) {
        printf("skip bench_gpu: %s\n", why);
        return 0;
    }
    Diag *diag = diag_create();
    if (!cuda_device_open(&device, cuda_api(), 0, diag) || !cuda_device_start_blas(&device, diag)) {
        diag_print(diag, stderr);
        return 1;
    }
    bench.rate = matrix_rate(&device, multiplied(&bench), diag);
    fine = bench.rate > 0;
    printf("%s, %d processors, %.1f GiB free; 8192^3 %s products: %.0f TFLOP/s\n", device.name,
           device.n_processors, (double)device.free_bytes / (1 << 30),
           dtype_name(multiplied(&bench)), 1e-12 * bench.rate);
    for (int c = 0; c < N_CASES; c++) {
        Diag *of_case = diag_create();
        Case wanted = CASES[c];
        if (bench.micro_batch) {
            int n_sequences = wanted.micro_batch * wanted.n_micro;
            wanted.micro_batch = bench.micro_batch;
            wanted.n_micro = (n_sequences + bench.micro_batch - 1) / bench.micro_batch;
        }
        if (!bench.n_wanted || bench.wanted[c]) fine &= run_case(&bench, &wanted, of_case);
        diag_print(of_case, stderr);
        diag_destroy(of_case);
    }
    diag_print(diag, stderr);
    diag_destroy(diag);
    cuda_device_close(&device);
    return fine ? 0 : 1;
}
#endif
