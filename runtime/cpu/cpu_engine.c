#include "ir/base/clock.h"
#include "runtime/cpu/cpu_comm.h"
#include "runtime/cpu/gemm.h"

#include "runtime/launch/control.h"

#include <errno.h>
#include <omp.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

typedef struct RankThread {
    CpuRank rank;
    struct CpuEngine *threads;
    pthread_t thread;
    bool started;
    /* Scalars in the rank's memory, NULL if not there. */
    float *learning_rate, *step, *most_norm_squared;
    EngineSpan *spans; /* JOB_TRACE: one per call */
    int n_spans;       /* that ran */
} RankThread;

typedef struct CpuEngine {
    Engine *engine;
    CommWorld *world;
    int n_threads;   /* of each rank */
    int first_local; /* which of the plan's ranks are this process's: */
    int n_local;
    RankThread *ranks; /* [n_local] */
    pthread_mutex_t mutex;
    pthread_cond_t wake, finished;
    EngineJob job;
    bool quit;
    int64_t generation; /* counts jobs */
    int n_running;
    double trace_start; /* JOB_TRACE */
} CpuEngine;

/* Adds each call's time to its op's; what copies inputs counts as `input`. */
static void profile_list(const CallList *list, double *out_op_seconds) {
    memset(out_op_seconds, 0, N_OPS * sizeof(*out_op_seconds));
    double last = clock_now();
    for (int i = 0; i < list->count; i++) {
        const Node *node = list->info[i].node;
        if (!list->calls[i].run(list->calls[i].args)) return;
        double now = clock_now();
        out_op_seconds[node ? node->op : OP_INPUT] += now - last;
        last = now;
    }
}

/* For the job's other processes: what this rank does from now on. */
static void tell_progress(const RankThread *thread, const CallList *list, int call) {
    const Engine *engine = thread->rank.engine;
    if (!engine->control) return;
    const CallNote *note = &list->notes[call];
    control_update_progress(engine->control, engine->input.step, 0, call, note->waits, note->text);
}

/* False: it failed, and all ranks end. */
static inline bool run_call(RankThread *thread, const CallList *list, int call) {
    const CallInfo *info = &list->info[call];
    tell_progress(thread, list, call);
    if (list->calls[call].run(list->calls[call].args)) return true;
    const bool is_product = info->node && info->node->op == OP_MATMUL;
    char text[256];
    snprintf(text, sizeof(text), "rank %d: %s%d, micro-batch %d: %s failed%s%s",
             thread->rank.context->rank, task_kind_word(info->kind),
             info->node ? info->node->chunk : 0, info->micro,
             info->node ? OPS[info->node->op].name : "input", is_product ? ": " : "",
             is_product ? gemm_status_text() : "");
    comm_world_abort(thread->threads->world, text); /* keeps the first reason */
    return false;
}

/* Calls [first, end). */
static void run_list(RankThread *thread, const CallList *list, int first, int end, bool check) {
    int number = thread->rank.context->rank;
    Engine *engine = thread->rank.engine;
    for (int i = first; i < end; i++) {
        const CallInfo *info = &list->info[i];
        if (!run_call(thread, list, i)) return;
        if (check && !engine->bad[number].found) engine_check_outputs(engine, number, info);
    }
}

static const char *stream_name(TaskKind task) {
    switch (task) {
    case TASK_SEND_FORWARD:
    case TASK_SEND_BACKWARD: return "send";
    case TASK_RECV_FORWARD:
    case TASK_RECV_BACKWARD: return "receive";
    default: return "compute";
    }
}

static void trace_list(RankThread *thread, const CallList *list) {
    double start = thread->threads->trace_start, last = clock_now();
    thread->n_spans = 0;
    for (int i = 0; i < list->count; i++) {
        const CallInfo *info = &list->info[i];
        double waited = comm_waited_seconds();
        tell_progress(thread, list, i);
        if (!list->calls[i].run(list->calls[i].args)) return;
        double now = clock_now();
        thread->spans[thread->n_spans++] =
            (EngineSpan){.rank = thread->rank.context->rank,
                         .stream = stream_name(info->kind),
                         .task = info->kind,
                         .chunk = info->chunk,
                         .micro = info->micro,
                         .node = info->node,
                         .begin_us = 1e6 * (last - start),
                         .end_us = 1e6 * (now - start),
                         .wait_us = 1e6 * (comm_waited_seconds() - waited)};
        last = now;
    }
}

/* JOB_MEASURE. Threads of one process wait for each other alone; processes for what is under way
 * between them, too. */
static void measure_list(RankThread *thread, const CallList *list) {
    WorkSums *work = &thread->rank.engine->work[thread->rank.context->rank];
    const double known = thread->rank.engine->control ? 0 : 1;
    double last = clock_now(), waited = comm_waited_seconds();
    for (int i = 0; i < list->count; i++) {
        const CallInfo *info = &list->info[i];
        if (!run_call(thread, list, i)) return;
        const double now = clock_now(), waited_now = comm_waited_seconds();
        rank_work_add(&work->sum, info->node, info->kind, now - last,
                      known * (waited_now - waited));
        last = now;
        waited = waited_now;
    }
    work_sums_end_step(work);
}

static void run_job(RankThread *thread, EngineJob job) {
    const CallList *train = &thread->rank.train, *forward = &thread->rank.forward;
    double own[N_OPS];
    Engine *engine = thread->rank.engine;
    switch (job) {
    case JOB_TRAIN:
    case JOB_CHECK: run_list(thread, train, 0, train->count, job == JOB_CHECK); break;
    case JOB_PROFILE:
        profile_list(train, thread == thread->threads->ranks ? engine->op_seconds : own);
        break;
    case JOB_TRACE: trace_list(thread, train); break;
    case JOB_MEASURE: measure_list(thread, train); break;
    case JOB_FORWARD: run_list(thread, forward, 0, forward->count, false); break;
    case JOB_FIRST: run_list(thread, forward, 0, thread->rank.n_first, false); break;
    case JOB_DECODE: {
        const int chunk = engine->input.chunk, *ends = thread->rank.end_of_chunk;
        run_list(thread, forward, chunk ? ends[chunk - 1] : 0, ends[chunk], false);
    }
    }
}

static void *rank_main(void *user) {
    RankThread *thread = user;
    CpuEngine *threads = thread->threads;
    int64_t generation = 0;
    omp_set_num_threads(threads->n_threads);
    for (;;) {
        pthread_mutex_lock(&threads->mutex);
        while (threads->generation == generation) {
            pthread_cond_wait(&threads->wake, &threads->mutex);
        }
        generation = threads->generation;
        EngineJob job = threads->job;
        bool quit = threads->quit;
        pthread_mutex_unlock(&threads->mutex);
        if (quit) return NULL;
        run_job(thread, job);
        pthread_mutex_lock(&threads->mutex);
        if (--threads->n_running == 0) pthread_cond_signal(&threads->finished);
        pthread_mutex_unlock(&threads->mutex);
    }
}

static void set_state(CpuEngine *threads, const StepInput *input) {
    for (int r = 0; r < threads->n_local; r++) {
        RankThread *thread = &threads->ranks[r];
        thread->rank.state.step = (uint64_t)input->step;
        thread->rank.state.train = input->train;
        thread->rank.state.label_share = (float)input->label_share;
        if (thread->step) *thread->step = (float)input->update;
        if (thread->most_norm_squared) *thread->most_norm_squared = input->most_norm_squared;
        if (thread->learning_rate) *thread->learning_rate = (float)input->learning_rate;
    }
}

/* The calling thread's own OpenMP threads, from preparing parameters and products, do nothing while
 * ranks run, but libgomp counts them: with more threads than cores it lets those that wait at the
 * end of a loop sleep almost at once, and waking them takes tens of microseconds, at every call. */
static void release_own_threads(void) {
    omp_pause_resource_all(omp_pause_soft);
}

/* Other processes are told before they wait for this one; what they tell is then the reason. */
static void fail_job(const Engine *engine, const char *reason, Diag *diag) {
    const char *why = reason;
    if (engine->control) {
        if (!control_failed(engine->control, NULL)) control_report(engine->control, reason);
        control_failed(engine->control, &why);
    }
    diag_error(diag, NO_LOC, "%s", why[0] ? why : reason);
}

static bool cpu_run(Engine *engine, EngineJob job, Diag *diag) {
    CpuEngine *threads = engine->backend_state;
    release_own_threads();
    set_state(threads, &engine->input);
    pthread_mutex_lock(&threads->mutex);
    threads->job = job;
    threads->n_running = threads->n_local;
    threads->generation++;
    pthread_cond_broadcast(&threads->wake);
    while (threads->n_running > 0) pthread_cond_wait(&threads->finished, &threads->mutex);
    pthread_mutex_unlock(&threads->mutex);
    if (engine->control) {
        control_update_progress(engine->control, -1, 0, 0, false, "between steps");
    }
    if (!comm_world_is_aborted(threads->world)) return true;
    fail_job(engine, comm_world_reason(threads->world), diag);
    return false;
}

static bool cpu_trace(Engine *engine, Arena *arena, EngineSpan **out_spans, int *out_count,
                      Diag *diag) {
    CpuEngine *threads = engine->backend_state;
    int count = 0;
    for (int r = 0; r < threads->n_local; r++) count += threads->ranks[r].rank.train.count;
    EngineSpan *spans = ARENA_ARRAY(arena, EngineSpan, count + 1);
    for (int r = 0, first = 0; r < threads->n_local; r++) {
        threads->ranks[r].spans = spans + first;
        first += threads->ranks[r].rank.train.count;
    }
    threads->trace_start = clock_now();
    *out_spans = spans;
    *out_count = count;
    return cpu_run(engine, JOB_TRACE, diag);
}

static void find_scalars(RankThread *thread) {
    const RankContext *context = thread->rank.context;
    const Graph *graph = context->program->graph;
    for (int n = 0; n < graph->n_nodes; n++) {
        Node *node = graph->nodes[n];
        if (node->op != OP_SCALAR) continue;
        float *memory = executor_address(context, node_value(node, 0), 0);
        if (strcmp(node_string(node, ATTR_name), "step") == 0) thread->step = memory;
        if (strcmp(node_string(node, ATTR_name), MOST_NORM_NAME) == 0) {
            thread->most_norm_squared = memory;
        }
        if (strcmp(node_string(node, ATTR_name), "learning_rate") == 0) {
            thread->learning_rate = memory;
        }
    }
}

/* By all threads: one takes seconds for tens of GiB, and would have all of them on its node. */
static void clear(char *memory, size_t bytes) {
    enum { PART_BYTES = 16 << 20 };
    const size_t n_parts = (bytes + PART_BYTES - 1) / PART_BYTES;
#pragma omp parallel for schedule(static) if (n_parts > 1)
    for (size_t i = 0; i < n_parts; i++) {
        size_t first = i * PART_BYTES, left = bytes - first;
        memset(memory + first, 0, left < PART_BYTES ? left : PART_BYTES);
    }
}

/* Zeroed, page-aligned memory of exactly the plan's size. Touched at once: no page faults later,
 * and a machine without enough memory says so now. */
static void *allocate(const RankContext *rank, int64_t n_bytes, Diag *diag) {
    size_t bytes = (size_t)n_bytes;
    void *memory =
        mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        diag_error(diag, NO_LOC, "rank %d: cannot allocate its %.1f MiB: %s", rank->rank,
                   (double)bytes / (1 << 20), strerror(errno));
        return NULL;
    }
    madvise(memory, bytes, MADV_HUGEPAGE); /* a hint: fewer TLB misses; no matter if refused */
    clear(memory, bytes);
    return memory;
}

static bool allocate_rank(Engine *engine, RankContext *rank, Diag *diag) {
    int64_t bytes = rank->stage->arena_bytes, host_bytes = plan_host_bytes(rank->plan, rank->stage);
    void *memory = allocate(rank, bytes, diag);
    if (!memory) return false;
    rank_set_memory(rank, memory);
    engine->arena_bytes += bytes;
    if (host_bytes == 0) return true;
    rank->host = allocate(rank, host_bytes, diag);
    engine->host_bytes += host_bytes;
    return rank->host != NULL;
}

/* The ranks' places among the others, and how many threads each has. */
static bool join(CpuEngine *threads, const EngineOptions *options, Diag *diag) {
    Engine *engine = threads->engine;
    CommHost host;
    CpuRank **ranks = ARENA_ARRAY(engine->arena, CpuRank *, engine->n_ranks);
    for (int r = 0; r < threads->n_local; r++) {
        CpuRank *rank = &threads->ranks[r].rank;
        threads->ranks[r].threads = threads;
        rank->engine = engine;
        rank->context = &engine->ranks[threads->first_local + r];
        rank->state = (StepState){.seed = engine->plan->seed, .step = 0, .train = 1};
        rank->products = gemm_plans_create();
        if (!rank->products) BUG("out of memory");
        rank->cpu = (CpuContext){rank->products, &rank->state, &rank->groups};
        ranks[threads->first_local + r] = rank;
    }
    if (!cpu_comm_join(engine, ranks, options, &threads->world, &host, diag)) return false;
    if (engine->control) {
        engine->message_bytes = (int64_t)comm_tcp_staging_bytes(threads->world);
    }
    int cores = options->n_threads > 0 ? options->n_threads : host.n_cores / host.n_sharing;
    threads->n_threads = cores > threads->n_local ? cores / threads->n_local : 1;
    return engine_check_host_memory(engine, threads->first_local, threads->n_local, host.n_ranks,
                                    false, diag);
}

static bool set_up_ranks(CpuEngine *threads, Diag *diag) {
    Engine *engine = threads->engine;
    for (int r = 0; r < threads->n_local; r++) {
        if (!allocate_rank(engine, &engine->ranks[threads->first_local + r], diag)) return false;
        find_scalars(&threads->ranks[r]);
    }
    double allocated = clock_now();
    bool emitted = true;
    int own_threads = omp_get_max_threads();
    omp_set_num_threads(threads->n_threads); /* products are prepared for so many */
    for (int r = 0; emitted && r < threads->n_local; r++) {
        emitted = cpu_emit(&threads->ranks[r].rank, diag);
    }
    omp_set_num_threads(own_threads);
    if (!emitted) return false;
    engine->emit_seconds = clock_now() - allocated;
    return true;
}

static bool start_threads(CpuEngine *threads, Diag *diag) {
    for (int r = 0; r < threads->n_local; r++) {
        RankThread *thread = &threads->ranks[r];
        int error = pthread_create(&thread->thread, NULL, rank_main, thread);
        if (error) {
            diag_error(diag, NO_LOC, "cannot start a thread for rank %d: %s",
                       threads->first_local + r, strerror(error));
            return false;
        }
        thread->started = true;
    }
    return true;
}

static bool cpu_create(Engine *engine, const EngineOptions *options, Diag *diag) {
    CpuEngine *threads = ARENA_NEW(engine->arena, CpuEngine);
    engine->backend_state = threads;
    threads->engine = engine;
    threads->first_local = options->control ? options->rank : 0;
    threads->n_local = options->control ? 1 : engine->n_ranks;
    threads->ranks = ARENA_ARRAY(engine->arena, RankThread, threads->n_local);
    pthread_mutex_init(&threads->mutex, NULL);
    pthread_cond_init(&threads->wake, NULL);
    pthread_cond_init(&threads->finished, NULL);
    return join(threads, options, diag) && set_up_ranks(threads, diag) &&
           start_threads(threads, diag);
}

static void cpu_destroy(Engine *engine) {
    CpuEngine *threads = engine->backend_state;
    if (!threads) return;
    pthread_mutex_lock(&threads->mutex);
    threads->quit = true;
    threads->generation++;
    pthread_cond_broadcast(&threads->wake);
    pthread_mutex_unlock(&threads->mutex);
    for (int r = 0; r < threads->n_local; r++) {
        RankThread *thread = &threads->ranks[r];
        RankContext *context = &engine->ranks[threads->first_local + r];
        if (thread->started) pthread_join(thread->thread, NULL);
        cpu_emit_release(&thread->rank);
        if (thread->rank.products) gemm_plans_destroy(thread->rank.products);
        size_t bytes = (size_t)context->stage->arena_bytes;
        if (context->memory) munmap(context->memory, bytes ? bytes : 1);
        bytes = (size_t)plan_host_bytes(context->plan, context->stage);
        if (context->host) munmap(context->host, bytes);
    }
    pthread_mutex_destroy(&threads->mutex);
    pthread_cond_destroy(&threads->wake);
    pthread_cond_destroy(&threads->finished);
    comm_world_destroy(threads->world);
}

static const void *cpu_view(Engine *engine, const void *at, size_t bytes) {
    (void)engine, (void)bytes;
    return at;
}

static void *cpu_edit(Engine *engine, void *at, size_t bytes) {
    (void)engine, (void)bytes;
    return at;
}

static void cpu_commit(Engine *engine) {
    (void)engine;
}

static void cpu_copy(Engine *engine, void *to, const void *from, size_t bytes) {
    (void)engine;
    memcpy(to, from, bytes);
}

CpuRank *cpu_engine_rank(const Engine *engine, int rank) {
    const CpuEngine *threads = engine->backend_state;
    return &threads->ranks[rank - threads->first_local].rank;
}

static int64_t cpu_call_count(const Engine *engine) {
    const CpuEngine *threads = engine->backend_state;
    return threads->ranks[0].rank.train.count;
}

static bool do_nothing(const void *args) {
    __asm__ volatile("" : : "r"(args) : "memory");
    return true;
}

static double cpu_replay_seconds(Engine *engine) {
    const CpuEngine *threads = engine->backend_state;
    const CallList *list = &threads->ranks[0].rank.train;
    CallList empty = {.count = list->count};
    Arena *arena = arena_create();
    enum { REPEATS = 100 };
    empty.calls = ARENA_ARRAY(arena, CpuCall, list->count + 1);
    for (int i = 0; i < list->count; i++) {
        empty.calls[i] = (CpuCall){do_nothing, list->calls[i].args};
    }
    double start = clock_now();
    for (int n = 0; n < REPEATS; n++) {
        for (int i = 0; i < empty.count; i++) {
            if (!empty.calls[i].run(empty.calls[i].args)) break;
        }
    }
    double seconds = (clock_now() - start) / REPEATS;
    arena_destroy(arena);
    return seconds;
}

const EngineBackend CPU_BACKEND = {
    .name = "cpu",
    .create = cpu_create,
    .destroy = cpu_destroy,
    .run = cpu_run,
    .view = cpu_view,
    .edit = cpu_edit,
    .commit = cpu_commit,
    .copy = cpu_copy,
    .replay_seconds = cpu_replay_seconds,
    .call_count = cpu_call_count,
    .trace = cpu_trace,
    .measures_for_free = true,
};
