#define _GNU_SOURCE /* sched_setaffinity */
/* Measuring the CPU with the kernels that training runs. */
#include "ir/base/clock.h"
#include "runtime/measure/measure.h"

#include "ir/op.h"
#include "runtime/cpu/attention.h"
#include "runtime/cpu/cpu_report.h"
#include "runtime/cpu/elementwise.h"
#include "runtime/cpu/gemm.h"
#include "runtime/cpu/gemm_widened.h"
#include "runtime/measure/measure_kernels.h"
#include "runtime/measure/measure_threads.h"

#include <errno.h>
#include <math.h>
#include <omp.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

typedef struct CpuMeasure {
    const MeasureOptions *options;
    DeviceProfile *profile;
    MeasureProgress progress;
    Diag *diag;
    float *memory;    /* for all operands */
    int64_t floats;   /* its size */
    float *cold;      /* COLD_BYTES that no operand is in */
    double budget_us; /* of one row */
} CpuMeasure;

/* Microseconds of one run; -1: it failed. */
static double time_once(bool (*run)(const void *), const void *args) {
    double start = clock_now_us();
    return run(args) ? clock_now_us() - start : -1;
}

/* In a step a call finds its operands where other calls, on other memory, have left them: between
 * the writing of an activation and its reading a small model's micro-batch moves about this much.
 * Measured one after another, calls would find them in the second-level cache. */
enum { COLD_BYTES = 16 << 20 };

static void cool_down(const CpuMeasure *measure) {
    float *at = measure->cold;
#pragma omp parallel for schedule(static)
    for (int64_t line = 0; line < COLD_BYTES / 64; line++) at[16 * line] += 1;
}

/* Microseconds of one run on operands that are not in the second-level cache, the lower quartile;
 * -1: it failed. As many runs as fit the row's share of the time, five at least where that does not
 * take long. */
static double time_cold(const CpuMeasure *measure, bool (*run)(const void *), const void *args) {
    const double long_us = 200e3;
    double samples[MEASURE_MOST_SAMPLES], start = clock_now_us();
    int n_samples = 0;
    if (!run(args)) return -1;
    for (; n_samples < MEASURE_MOST_SAMPLES; n_samples++) {
        double used_us = clock_now_us() - start;
        if (n_samples >= 1 && used_us > long_us) break;
        if (n_samples >= 5 && used_us > measure->budget_us) break;
        cool_down(measure);
        samples[n_samples] = time_once(run, args);
        if (samples[n_samples] < 0) return -1;
    }
    return measure_quartile(samples, n_samples);
}

/* Microseconds of one run, the lower quartile; -1: it failed. Samples of at least 200 us, as many
 * as fit the row's share of the time, three at least where that does not take long. */
static double time_runs(const CpuMeasure *measure, bool (*run)(const void *), const void *args) {
    const double least_us = 200, long_us = 200e3;
    const double budget_us = measure->budget_us;
    double samples[MEASURE_MOST_SAMPLES];
    if (!run(args)) return -1; /* prepares what is prepared once per shape */
    double once = time_once(run, args);
    if (once < 0 || once > long_us) return once;
    for (int i = 0; i < 2; i++) { /* the shortest: another program may have had the core */
        double again = time_once(run, args);
        if (again < once) once = again;
    }
    if (3 * once > budget_us) return once; /* three runs are enough of what takes long */
    if (once < 0.01) once = 0.01;
    int repeats = once >= least_us ? 1 : (int)(least_us / once) + 1;
    int n_samples = (int)(budget_us / (once * repeats));
    if (n_samples < 3) n_samples = 3;
    if (n_samples > MEASURE_MOST_SAMPLES) n_samples = MEASURE_MOST_SAMPLES;
    for (int s = 0; s < n_samples; s++) {
        double start = clock_now_us();
        for (int i = 0; i < repeats; i++) run(args);
        samples[s] = (clock_now_us() - start) / repeats;
    }
    return measure_quartile(samples, n_samples);
}

/* Elements, so that what follows them begins at a multiple of 64 bytes. */
static int64_t align(int64_t elements) {
    return (elements + 31) / 32 * 32;
}

static bool run_elementwise(const void *args) {
    elementwise_run(args);
    return true;
}

/* A sum of few elements: what remains is starting it, on as many threads as it asks for. */
static double time_call(const CpuMeasure *measure) {
    enum { COUNT = 256 };
    const ElementwiseInstr add = {.op = EW_ADD, .dst = 2, .arg = {0, 1}};
    ElementwiseCall call;
    const char *why;
    ElementwiseSpec spec = {.n_dims = 1,
                            .dims = {COUNT},
                            .n_in = 2,
                            .in = {measure->memory, measure->memory + COUNT},
                            .in_stride = {{1}, {1}},
                            .n_out = 1,
                            .out = {measure->memory + 2 * COUNT},
                            .out_register = {2},
                            .n_instr = 1,
                            .instr = &add};
    if (!elementwise_prepare(&spec, &call, &why)) BUG("%s", why);
    return time_runs(measure, run_elementwise, &call);
}

/* Operands change from run to run, as they do in a step: beyond the second-level cache. */
typedef struct ProductArgs {
    const ProfileProduct *row;
    float *memory;
    int64_t floats; /* of one set of operands */
    int n_sets, *next;
} ProductArgs;

static bool run_product(const void *args) {
    const ProductArgs *p = args;
    const ProfileProduct *r = p->row;
    float *a = p->memory + *p->next * p->floats, *b = a + r->m * r->k, *c = b + r->k * r->n;
    *p->next = (*p->next + 1) % p->n_sets;
    return gemm_f32(r->ta, r->tb, r->m, r->n, r->k, 1, a, r->ta ? r->m : r->k, b,
                    r->tb ? r->k : r->n, 0, c, r->n);
}

static double time_product(const CpuMeasure *measure, const ProfileProduct *row) {
    const int64_t footprint = 4 << 20, floats = align(measure_product_elements(row));
    int next = 0, n_sets = (int)(footprint / floats) + 1;
    if (n_sets > measure->floats / floats) n_sets = (int)(measure->floats / floats);
    ProductArgs args = {row, measure->memory, floats, n_sets, &next};
    return time_runs(measure, run_product, &args);
}

typedef struct LowProductArgs {
    const GemmPlan *plan;
    const uint16_t *a, *b;
    uint16_t *c;
    void *workspace;
} LowProductArgs;

static bool run_low_product(const void *args) {
    const LowProductArgs *p = args;
    return gemm_run_low(p->plan, p->a, p->b, p->c, p->workspace);
}

/* Prepared for the row alone: a prepared product keeps its number of threads. */
static double time_low_product(const CpuMeasure *measure, const ProfileProduct *row) {
    GemmShape shape;
    memset(&shape, 0, sizeof(shape));
    shape.batch = 1;
    shape.m = row->m, shape.n = row->n, shape.k = row->k;
    shape.ta = row->ta, shape.tb = row->tb;
    shape.dtype = shape.out_dtype = DTYPE_BF16;
    GemmPlans *plans = gemm_plans_create();
    const GemmPlan *plan = plans ? gemm_plan_low(plans, &shape) : NULL;
    uint16_t *a = (uint16_t *)measure->memory, *b = a + align(row->m * row->k);
    uint16_t *c = b + align(row->k * row->n);
    LowProductArgs args = {plan, a, b, c, c + align(row->m * row->n)};
    double us = plan ? time_runs(measure, run_low_product, &args) : -1;
    gemm_plans_destroy(plans);
    return us;
}

typedef struct AttentionArgs {
    AttentionShape shape;
    float *q, *k, *v, *o, *lse, *d_o, *dq, *dk, *dv, *workspace;
} AttentionArgs;

static bool run_attention(const void *args) {
    const AttentionArgs *a = args;
    return attention_forward(&a->shape, a->q, a->k, a->v, a->o, a->lse, NULL);
}

static bool run_attention_grad(const void *args) {
    const AttentionArgs *a = args;
    return attention_backward(&a->shape, a->q, a->k, a->v, a->o, a->lse, a->d_o, a->dq, a->dk,
                              a->dv, a->workspace);
}

enum { ATTENTION_OPERANDS = 11 }; /* the workspace is twice as large as the others */

static void time_attention(const CpuMeasure *measure, ProfileAttention *row) {
    AttentionArgs args = {.shape = {.batch = row->batch,
                                    .seq = row->seq,
                                    .kv_heads = row->heads,
                                    .group = 1,
                                    .head = row->head,
                                    .causal = true,
                                    .scale = 1 / sqrtf((float)row->head),
                                    .dtype = row->bf16 ? DTYPE_BF16 : DTYPE_F32}};
    float **operands[] = {&args.q,   &args.k,  &args.v,  &args.o,  &args.lse,
                          &args.d_o, &args.dq, &args.dk, &args.dv, &args.workspace};
    int64_t elements = measure_attention_elements(row);
    for (size_t i = 0; i < sizeof(operands) / sizeof(operands[0]); i++)
        *operands[i] = measure->memory + i * elements;
    row->forward_us = time_cold(measure, run_attention, &args);
    row->backward_us = time_cold(measure, run_attention_grad, &args);
}

typedef struct MemoryArgs {
    float *a, *b, *c;
    int64_t count; /* of each array */
} MemoryArgs;

static bool run_copy(const void *args) {
    const MemoryArgs *m = args;
    const float *restrict a = m->a;
    float *restrict b = m->b;
#pragma omp parallel for simd schedule(static)
    for (int64_t i = 0; i < m->count; i++) b[i] = a[i];
    return true;
}

static bool run_triad(const void *args) {
    const MemoryArgs *m = args;
    const float *restrict a = m->a, *restrict b = m->b;
    float *restrict c = m->c;
#pragma omp parallel for simd schedule(static)
    for (int64_t i = 0; i < m->count; i++) c[i] = a[i] + 0.5f * b[i];
    return true;
}

static void time_memory(const CpuMeasure *measure, ProfileMemory *row) {
    int64_t floats = row->bytes / (int64_t)sizeof(float);
    float *at = measure->memory;
    MemoryArgs copy = {.a = at, .b = at + floats / 2, .count = floats / 2};
    MemoryArgs triad = {
        .a = at, .b = at + floats / 3, .c = at + floats / 3 * 2, .count = floats / 3};
    row->copy_us = time_runs(measure, run_copy, &copy);
    row->triad_us = time_runs(measure, run_triad, &triad);
}

/* Each OpenMP thread on a core of its own, as far as there are cores: two that wait for each other
 * on the same core, as happens on a busy machine, would take a thousand times as long. Returns the
 * calling thread's cores as they were, for unpin. */
static cpu_set_t pin_threads(int n_threads) {
    cpu_set_t all;
    CPU_ZERO(&all);
    if (sched_getaffinity(0, sizeof(all), &all) != 0 || CPU_COUNT(&all) < n_threads) return all;
    omp_set_num_threads(n_threads);
#pragma omp parallel
    {
        cpu_set_t own;
        int skip = omp_get_thread_num(), core = 0;
        while (!CPU_ISSET(core, &all) || skip-- > 0) core++;
        CPU_ZERO(&own);
        CPU_SET(core, &own);
        sched_setaffinity(0, sizeof(own), &own);
    }
    return all;
}

/* Threads started later inherit what the calling one has. */
static void unpin_threads(int n_threads, const cpu_set_t *all) {
    if (CPU_COUNT(all) == 0) return;
    omp_set_num_threads(n_threads);
#pragma omp parallel
    sched_setaffinity(0, sizeof(*all), all);
}

static void list_rows(const MeasureList *list, int cores) {
    int counts[2] = {1, cores}, n_counts = cores > 1 ? 2 : 1;
    for (int i = 0; i < n_counts; i++) measure_list_calls(list, counts[i]);
    for (int bf16 = 0; bf16 < 2; bf16++) {
        for (int i = 0; i < n_counts; i++) measure_list_products(list, counts[i], bf16);
    }
    for (int bf16 = 0; bf16 < 2; bf16++) {
        for (int i = 0; i < n_counts; i++) measure_list_attention(list, counts[i], bf16);
    }
    for (int i = 0; i < n_counts; i++) measure_list_memory(list, counts[i]);
    for (int bf16 = 0; bf16 < 2; bf16++) {
        for (int i = 0; i < n_counts; i++) measure_list_kernels(list, counts[i], bf16);
    }
}

/* Between threads also among more than there are cores: they take turns. */
static void list_links(const MeasureList *list, int cores, const CommJob *job) {
    const int most = job ? job->world : 2 * (cores < 2 ? 2 : cores < 8 ? cores : 8);
    measure_list_messages(list);
    for (int members = 2; members <= most; members *= 2) measure_list_collectives(list, members);
}

/* Numbers of everyday size, whether read as f32 or, each half, as bf16: zeros or denormals would be
 * faster or slower. */
static void fill(const CpuMeasure *measure) {
    enum { PERIOD = 97 };
    float numbers[PERIOD];
    for (int i = 0; i < PERIOD; i++) {
        float number = 0.01f * (float)(i - 48);
        uint32_t bits;
        memcpy(&bits, &number, sizeof(bits));
        bits = (bits & 0xffff0000u) | bits >> 16;
        memcpy(&numbers[i], &bits, sizeof(bits));
    }
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < measure->floats; i += PERIOD) {
        int64_t n = measure->floats - i < PERIOD ? measure->floats - i : PERIOD;
        memcpy(measure->memory + i, numbers, (size_t)n * sizeof(float));
    }
}

/* Room for the largest row. */
static bool allocate(CpuMeasure *measure) {
    const DeviceProfile *profile = measure->profile;
    int64_t most = 1 << 12;
    for (int i = 0; i < profile->n_products; i++) {
        const ProfileProduct *row = &profile->products[i];
        GemmShape shape = {
            .batch = 1, .m = row->m, .n = row->n, .k = row->k, .ta = row->ta, .tb = row->tb};
        shape.dtype = shape.out_dtype = DTYPE_BF16;
        int64_t floats = measure_product_elements(row);
        if (row->bf16) {
            floats += (int64_t)(gemm_widened_workspace_bytes(&shape) / sizeof(float)) + 3 * 32;
        }
        if (floats > most) most = floats;
    }
    for (int i = 0; i < profile->n_attention; i++) {
        int64_t floats = ATTENTION_OPERANDS * measure_attention_elements(&profile->attention[i]);
        if (floats > most) most = floats;
    }
    for (int i = 0; i < profile->n_memory; i++) {
        int64_t floats = profile->memory[i].bytes / (int64_t)sizeof(float);
        if (floats > most) most = floats;
    }
    for (int i = 0; i < profile->n_kernels; i++) {
        int64_t floats = measure_kernel_floats(&profile->kernels[i]);
        if (floats > most) most = floats;
    }
    size_t bytes = ((size_t)most * sizeof(float) + 63) / 64 * 64;
    measure->floats = most;
    measure->memory = aligned_alloc(64, bytes);
    measure->cold = aligned_alloc(64, COLD_BYTES);
    if (measure->cold) memset(measure->cold, 0, COLD_BYTES);
    if (!measure->memory || !measure->cold) {
        diag_error(measure->diag, NO_LOC, "measuring needs %.1f MiB of memory: %s",
                   (double)(bytes + COLD_BYTES) / (1 << 20), strerror(errno));
        return false;
    }
    fill(measure);
    return true;
}

/* The shorter of this pass' time and the last's, 0 before the first; a row that failed stays so. */
static double shorter(double before, double now) {
    return before == 0 || now < before ? now : before;
}

static bool measure_others(CpuMeasure *measure) {
    DeviceProfile *p = measure->profile;
    for (int i = 0; i < p->n_memory; i++) {
        ProfileMemory *row = &p->memory[i], now = *row;
        measure_tell(&measure->progress, "memory, %lld KiB", (long long)row->bytes / 1024);
        omp_set_num_threads((int)row->threads);
        time_memory(measure, &now);
        row->copy_us = shorter(row->copy_us, now.copy_us);
        row->triad_us = shorter(row->triad_us, now.triad_us);
    }
    measure->budget_us = measure->options->tiny ? 3e2 : measure->options->quick ? 2e3 : 8e3;
    for (int i = 0; i < p->n_kernels; i++) {
        ProfileKernel *row = &p->kernels[i];
        Arena *arena = arena_create();
        measure_tell(&measure->progress, "%s of %lld, %s", OPS[row->op].name,
                     (long long)row->elements, row->bf16 ? "bf16" : "f32");
        omp_set_num_threads((int)row->threads);
        KernelSets *sets =
            measure_kernel_prepare(row, measure->memory, measure->floats, arena, measure->diag);
        double now_us = sets ? time_cold(measure, measure_kernel_run, sets) : -1;
        arena_destroy(arena);
        if (now_us < 0) return false;
        row->us = shorter(row->us, now_us);
    }
    return true;
}

static void measure_products(CpuMeasure *measure) {
    DeviceProfile *p = measure->profile;
    MeasureProgress *progress = &measure->progress;
    for (int i = 0; i < p->n_calls; i++) {
        measure_tell(progress, "starting a call");
        omp_set_num_threads((int)p->calls[i].threads);
        p->calls[i].us = shorter(p->calls[i].us, time_call(measure));
    }
    for (int i = 0; i < p->n_products; i++) {
        ProfileProduct *row = &p->products[i];
        measure_tell(progress, "product %lld x %lld x %lld, %s", (long long)row->m,
                     (long long)row->n, (long long)row->k, row->bf16 ? "bf16" : "f32");
        if (row->bf16 && !p->products[i ? i - 1 : 0].bf16) fill(measure);
        omp_set_num_threads((int)row->threads);
        row->us = shorter(row->us,
                          row->bf16 ? time_low_product(measure, row) : time_product(measure, row));
    }
    for (int i = 0; i < p->n_attention; i++) {
        ProfileAttention *row = &p->attention[i], now = *row;
        measure_tell(progress, "attention, sequence %lld", (long long)row->seq);
        if (i == 0 || row->bf16 != p->attention[i - 1].bf16) fill(measure);
        omp_set_num_threads((int)row->threads);
        time_attention(measure, &now);
        row->forward_us = shorter(row->forward_us, now.forward_us);
        row->backward_us = shorter(row->backward_us, now.backward_us);
    }
}

/* Twice, seconds apart: what disturbs the one time of a row may spare the other. */
static bool measure_kernels(CpuMeasure *measure) {
    DeviceProfile *p = measure->profile;
    for (int pass = 0; pass < 2; pass++) {
        measure->budget_us = measure->options->tiny ? 1e3 : measure->options->quick ? 8e3 : 20e3;
        fill(measure);
        measure_products(measure);
        if (!measure_others(measure)) return false;
    }
    measure_drop_failed(p);
    if (p->n_products) return true;
    diag_error(measure->diag, NO_LOC, "no matrix product could be run: %s", gemm_status_text());
    return false;
}

static bool measure_links(CpuMeasure *measure, MeasureTeam *team) {
    DeviceProfile *p = measure->profile;
    bool quick = measure->options->quick;
    for (int i = 0; i < p->n_messages; i++) {
        ProfileMessage *row = &p->messages[i];
        measure_tell(&measure->progress, "message of %lld bytes", (long long)row->bytes);
        row->us = measure_message_us(team, row->bytes, quick, measure->diag);
        if (row->us < 0) return false;
    }
    for (int i = 0; i < p->n_collectives; i++) {
        ProfileCollective *row = &p->collectives[i];
        measure_tell(&measure->progress, "collective of %lld bytes among %lld",
                     (long long)row->bytes, (long long)row->members);
        row->us =
            measure_collective_us(team, row->kind, row->members, row->bytes, quick, measure->diag);
        if (row->us < 0) return false;
    }
    return true;
}

bool measure_cpu(const MeasureOptions *options, Arena *arena, DeviceProfile *out, Diag *diag) {
    CpuReport report;
    cpu_report(&report);
    int cores = options->n_threads > 0 ? options->n_threads : report.cores;
    int threads_before = omp_get_max_threads();
    *out = (DeviceProfile){.name = arena_strdup(arena, report.name), .cores = cores};
    ARENA_PUSH(arena, out->libraries, out->n_libraries, out->libraries_capacity,
               arena_strdup(arena, report.library));
    const bool only_links = options->job && options->job->rank > 0;
    MeasureList list = {out, arena, options->quick, false, options->tiny};
    MeasureTeam *team = options->job ? measure_team_create(options->job, diag) : NULL;
    if (options->job && !team) return false;
    if (!only_links) list_rows(&list, cores);
    list_links(&list, cores, options->job);
    CpuMeasure measure = {
        .options = options, .profile = out, .progress = {.options = options}, .diag = diag};
    measure.progress.n_all = 2 * measure_list_count(out) - out->n_messages - out->n_collectives;
    cpu_set_t all = pin_threads(cores);
    bool fine = only_links || (allocate(&measure) && measure_kernels(&measure));
    unpin_threads(cores, &all);
    fine = fine && measure_links(&measure, team);
    measure_team_destroy(team);
    free(measure.memory);
    free(measure.cold);
    omp_set_num_threads(threads_before);
    return fine;
}
