/* Tokens per second of reading and writing with caches, beside the way without and the bound that
 * memory sets: every weight is read once for a step of writing.
 *
 *     build/bench/bench_generate [SIZE...]      124m (GPT-2), 1b (Llama 3.2); both without
 *     build/bench/bench_generate --cuda [SIZE...]
 *         on a GPU, in bf16, of 8b (Llama 3.1), too
 *     build/bench/bench_generate --row PRECISION SEQUENCES THREADS SIZE [LAYERS]
 *         one row of it, for generate_llama_cpp.py
 *
 * Processor time (of all threads, waiting ones included) is what other work on the machine disturbs
 * least.
 */
#include "frontend/lua/model.h"
#include "planner/decode/decode.h"
#include "planner/planner.h"
#include "runtime/decoder.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CONTEXT = 1024, CHUNK = 128, PROMPT = 512, N_SAMPLES = 9, STEPS = 8 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double processor_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *x, int n) {
    qsort(x, (size_t)n, sizeof(*x), by_value);
    return x[n / 2];
}

/* Bytes per second that all cores read together, of memory far larger than their caches. */
static double read_bandwidth(void) {
    const size_t n = (size_t)1 << 27;
    static volatile float sink;
    double seconds[N_SAMPLES];
    float *x = malloc(n * sizeof(float));
    if (!x) BUG("out of memory");
    for (size_t i = 0; i < n; i++) x[i] = 1;
    for (int s = 0; s < N_SAMPLES; s++) {
        float sum = 0;
        double start = now();
#pragma omp parallel for simd schedule(static) reduction(+ : sum)
        for (size_t i = 0; i < n; i++) sum += x[i];
        seconds[s] = now() - start;
        sink = sum;
    }
    (void)sink;
    free(x);
    return (double)(n * sizeof(float)) / median(seconds, N_SAMPLES);
}

typedef struct Case {
    const char *model, *size, *layers; /* NULL: the size's */
} Case;
static const Case CASES[] = {{"gpt", "124m", NULL}, {"llama", "1b", NULL}, {"llama", "8b", NULL}};

static Model *load(Arena *arena, const Case *c, const char *seq, Diag *diag) {
    ModelSetting settings[] = {{"size", c->size}, {"seq", seq}, {"layers", c->layers}};
    return model_load_shipped(arena, c->model, settings, c->layers ? 3 : 2, 1, diag);
}

/* bandwidth 0: on a GPU, whose memory's is not known. */
static void bench_cached(const Case *c, DType precision, int sequences, int threads,
                         double bandwidth) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    DecodeObstacle obstacle;
    Model *model = load(arena, c, "1024", diag);
    if (!model) BUG("%s", diag_text(diag));
    DecodeRequest request = {.model = model->name,
                             .forward = model->graph,
                             .n_blocks = model->n_blocks,
                             .context = CONTEXT,
                             .vocab = model->vocab,
                             .precision = precision,
                             .sequences = sequences,
                             .chunk = CHUNK,
                             .cuda = bandwidth == 0};
    const EngineOptions options = {.device = bandwidth == 0 ? DEVICE_CUDA : DEVICE_CPU,
                                   .n_threads = threads};
    Plan *plan = decode_plan(arena, &request, &obstacle, diag);
    Engine *engine = plan ? engine_create(plan, &options, diag) : NULL;
    if (!engine) BUG("%s", diag_text(diag));
    engine_init_parameters(engine);
    Decoder *decoder = decoder_create(engine, plan, arena);
    int32_t *tokens = ARENA_ARRAY(arena, int32_t, PROMPT + sequences);
    float *logits = ARENA_ARRAY(arena, float, sequences * plan->vocab);
    double seconds[N_SAMPLES], busy[N_SAMPLES], reading, busy_reading = 0;
    for (int i = 0; i < PROMPT + sequences; i++) tokens[i] = (i * 7919 + 13) % (int)plan->vocab;
    for (int warm = 0; warm < 2; warm++) {
        decoder->read_seconds = 0;
        busy_reading = processor_seconds();
        decoder_clear(decoder, 0);
        if (!decoder_read(decoder, 0, tokens, PROMPT, logits, diag)) BUG("%s", diag_text(diag));
    }
    reading = decoder->read_seconds;
    busy_reading = processor_seconds() - busy_reading;
    for (int i = 1; i < sequences; i++) decoder_copy(decoder, 0, i);
    for (int s = 0; s < N_SAMPLES; s++) {
        double start = now(), busy_start = processor_seconds();
        for (int i = 0; i < STEPS; i++) {
            if (!decoder_write(decoder, tokens, logits, diag)) BUG("%s", diag_text(diag));
        }
        seconds[s] = (now() - start) / STEPS;
        busy[s] = (processor_seconds() - busy_start) / STEPS;
    }
    double step = median(seconds, N_SAMPLES), busy_step = median(busy, N_SAMPLES);
    double bytes = (double)plan->programs->class_bytes[CLASS_PARAMETER];
    printf("%-6s %-5s %-5s %3d side by side: reads %7.1f tokens/s, writes %7.1f (%6.2f ms a step), "
           "%5.1f GB/s of weights; processor: %.0f ms, %.2f ms a step",
           c->model, c->size, dtype_name(precision), sequences, PROMPT / reading, sequences / step,
           1e3 * step, bytes / step / 1e9, 1e3 * busy_reading, 1e3 * busy_step);
    if (bandwidth > 0) printf(", %3.0f %% of reading alone", 100 * bytes / step / bandwidth);
    printf("\n");
    fflush(stdout);
    engine_destroy(engine);
    diag_destroy(diag);
    arena_destroy(arena);
}

/* The whole window for each token, as without a cache. */
static void bench_window(const Case *c) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    Model *model = load(arena, c, "1024", diag);
    if (!model) BUG("%s", diag_text(diag));
    PlanRequest request = {.model = model->name,
                           .forward = model->graph,
                           .n_blocks = model->n_blocks,
                           .seq = model->seq,
                           .vocab = model->vocab,
                           .recipe = model->recipe,
                           .options = {.mesh = {.size = {1, 1, 1, 1, 1, 1}},
                                       .micro_batch = 1,
                                       .global_batch = 1,
                                       .n_chunks = 1,
                                       .precision = DTYPE_F32,
                                       .schedule = "1f1b"}};
    Plan *plan = plan_make(arena, &request, diag);
    Engine *engine = plan ? engine_create(plan, &(EngineOptions){0}, diag) : NULL;
    if (!engine) BUG("%s", diag_text(diag));
    engine_init_parameters(engine);
    int32_t *tokens = ARENA_ARRAY(arena, int32_t, plan->seq);
    float *logits = ARENA_ARRAY(arena, float, plan->seq * plan->vocab);
    double seconds[3];
    for (int s = 0; s < 3; s++) {
        double start = now();
        if (!engine_logits(engine, tokens, logits, diag)) BUG("%s", diag_text(diag));
        seconds[s] = now() - start;
    }
    printf("%-6s %-5s f32   without caches: writes %.2f tokens/s\n", c->model, c->size,
           1 / median(seconds, 3));
    engine_destroy(engine);
    diag_destroy(diag);
    arena_destroy(arena);
}

/* The largest is for GPUs. */
static bool wanted(const char *size, bool cuda, int n_sizes, char **sizes) {
    for (int i = 0; i < n_sizes; i++) {
        if (strcmp(sizes[i], size) == 0) return true;
    }
    return n_sizes == 0 && (cuda || strcmp(size, "8b") != 0);
}

static int bench_row(int argc, char **argv) {
    const DType precision = strcmp(argv[2], "f32") == 0 ? DTYPE_F32 : DTYPE_BF16;
    Case c = {strcmp(argv[5], "124m") == 0 ? "gpt" : "llama", argv[5], argc > 6 ? argv[6] : NULL};
    omp_set_num_threads(atoi(argv[4]));
    bench_cached(&c, precision, atoi(argv[3]), atoi(argv[4]), read_bandwidth());
    return 0;
}

int main(int argc, char **argv) {
    static const int SEQUENCES[] = {1, 4, 8, 16};
    const bool cuda = argc > 1 && strcmp(argv[1], "--cuda") == 0;
    const char *why;
    if (cuda && !engine_cuda_available(&why)) {
        fprintf(stderr, "bench_generate: %s\n", why);
        return 1;
    }
    if (argc >= 6 && strcmp(argv[1], "--row") == 0) return bench_row(argc, argv);
    double bandwidth = cuda ? 0 : read_bandwidth();
    if (!cuda) printf("%d threads read %.1f GB/s\n", omp_get_max_threads(), bandwidth / 1e9);
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        if (!wanted(CASES[i].size, cuda, argc - 1 - cuda, argv + 1 + cuda)) continue;
        for (size_t s = 0; s < sizeof(SEQUENCES) / sizeof(SEQUENCES[0]); s++) {
            if (!cuda) bench_cached(&CASES[i], DTYPE_F32, SEQUENCES[s], 0, bandwidth);
            bench_cached(&CASES[i], DTYPE_BF16, SEQUENCES[s], 0, bandwidth);
        }
        if (!cuda && strcmp(CASES[i].size, "124m") == 0) bench_window(&CASES[i]);
    }
    return 0;
}
