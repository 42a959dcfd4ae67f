/* The CUDA backend: a rank's step, or all ranks' on one device, as one captured graph. */
#include "ir/base/clock.h"
#include "runtime/cuda/codegen.h"
#include "runtime/cuda/driver/attention_choice.h"
#include "runtime/cuda/driver/modules.h"
#include "runtime/cuda/driver/nccl.h"
#include "runtime/cuda/driver/replay.h"
#include "runtime/cuda/driver/trace.h"
#include "runtime/cuda/driver/watch.h"
#include "runtime/cuda/emit.h"
#include "runtime/engine_internal.h"
#include "runtime/launch/control.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct CudaEngine {
    Engine *engine;
    CudaDevice device;
    ReplayContext context;
    Replay replays[N_EMIT_JOBS];
    int first_job, end_job; /* the plan's */
    Replay *running;        /* what the device has been given last */
    ReplayMode mode;
    KernelCache *generated;
    GeneratedModules *modules;
    EmitMemory memory;
    EpilogueCheck epilogues;
    AttentionChoice attentions;
    AttentionCheck attention; /* asks it */
    bool told;                /* that an epilogue is missing */
    int64_t slot_bytes;
    int64_t numbers_at[N_TOKEN_NUMBERS]; /* in a slot; 0: the plan does not read them */
    const void *decoded; /* logits on the device that the last run has copied to memory.logits */
    int first_local, n_local; /* ranks whose arenas are here */
    int n_on_host;            /* processes like this one */
    NcclWorld *world;         /* several processes; else NULL */
    bool aborted;             /* its communicators are */
    uint64_t n_launches;      /* as DeviceState counts them */
    unsigned char *host;      /* for view and edit */
    size_t host_bytes;
    void *edited; /* where `commit` takes the host's bytes to; NULL: they are there */
    size_t edited_bytes;
    Diag *diag;            /* of the job at hand */
    double launch_seconds; /* the launching thread's, of the last step */
    cudaError_t copied;    /* what the first copy that failed came to; the next job says so */
    double last_time;      /* JOB_PROFILE */
} CudaEngine;

static void *workspace_of(void *user, int rank, StreamKind stream) {
    const CudaEngine *cuda = user;
    (void)stream; /* products run on compute streams only */
    return cuda->engine->ranks[rank].workspace;
}

static cudaKernel_t generated_of(void *user, const GeneratedKernel *kernel) {
    const CudaEngine *cuda = user;
    return generated_modules_find(cuda->modules, kernel);
}

/* Do arenas, and graphs if there are to be any, fit in what communicators have left? Asked before
 * any of it is taken: what does not fit later would end the run then. */
static bool check_memory(const CudaEngine *cuda, Diag *diag) {
    const Engine *engine = cuda->engine;
    const CuApi *api = cuda->device.api;
    size_t free_bytes = 0, all_bytes = 0;
    int64_t total = 0, graphs = 0;
    if (!cuda_check(api, api->cudaMemGetInfo(&free_bytes, &all_bytes), diag,
                    "reading the device's free memory")) {
        return false;
    }
    for (int r = 0; r < cuda->n_local; r++) {
        const Stage *stage = engine->ranks[cuda->first_local + r].stage;
        total += stage->arena_bytes;
        if (cuda->mode != REPLAY_EAGER) graphs += plan_graph_bytes(engine->plan, stage);
    }
    if (total + graphs <= (int64_t)free_bytes) {
        return engine_check_host_memory(engine, cuda->first_local, cuda->n_local, cuda->n_on_host,
                                        true, diag);
    }
    diag_error(diag, NO_LOC,
               "the plan needs %.2f GiB on one device, and its graphs %.2f GiB; %s has %.2f GiB "
               "free of %.2f",
               (double)total / (1 << 30), (double)graphs / (1 << 30), cuda->device.name,
               (double)free_bytes / (1 << 30), (double)all_bytes / (1 << 30));
    return false;
}

static bool allocate_arena(CudaEngine *cuda, RankContext *rank, Diag *diag) {
    const CuApi *api = cuda->device.api;
    size_t bytes = (size_t)rank->stage->arena_bytes;
    void *memory = NULL;
    bool fine = cuda->world ? nccl_world_allocate(cuda->world, bytes ? bytes : 1, &memory, diag)
                            : cuda_check(api, api->cudaMalloc(&memory, bytes ? bytes : 1), diag,
                                         "allocating a rank's arena");
    if (!fine) return false;
    rank_set_memory(rank, memory);
    cuda->engine->arena_bytes += (int64_t)bytes;
    return cuda_check(api, api->cudaMemsetAsync(memory, 0, bytes, NULL), diag,
                      "clearing a rank's arena");
}

/* By all cores: a whole model's states may be there. */
static void clear(unsigned char *memory, int64_t bytes) {
    const int64_t piece = (int64_t)16 << 20;
#pragma omp parallel for
    for (int64_t at = 0; at < bytes; at += piece) {
        memset(memory + at, 0, (size_t)(bytes - at < piece ? bytes - at : piece));
    }
}

/* Pinned memory, which the device addresses as the host does. */
static bool allocate_offloaded(CudaEngine *cuda, RankContext *rank, Diag *diag) {
    const CuApi *api = cuda->device.api;
    int64_t bytes = plan_host_bytes(rank->plan, rank->stage);
    void *memory = NULL;
    if (bytes == 0) return true;
    if (!cuda_check(api, api->cudaHostAlloc(&memory, (size_t)bytes, cudaHostAllocMapped), diag,
                    arena_printf(rank->arena, "pinning %.1f GiB of this machine's memory",
                                 (double)bytes / (1 << 30)))) {
        return false;
    }
    rank->host = memory;
    clear(rank->host, bytes);
    cuda->engine->host_bytes += bytes;
    return true;
}

/* What offloaded leaves are in, or NULL: it is the device's. */
static unsigned char *offloaded_at(const CudaEngine *cuda, const void *at) {
    const unsigned char *byte = at;
    for (int r = 0; r < cuda->n_local; r++) {
        const RankContext *rank = &cuda->engine->ranks[cuda->first_local + r];
        if (!rank->host || byte < rank->host) continue;
        int64_t from = byte - rank->host;
        if (from < plan_host_bytes(rank->plan, rank->stage)) return rank->host + from;
    }
    return NULL;
}

/* Pinned memory for the largest of the chunks' logits. */
static bool allocate_logits(CudaEngine *cuda, Diag *diag) {
    const CuApi *api = cuda->device.api;
    void *logits = NULL;
    int64_t most = 0;
    for (int chunk = 0; chunk < cuda->engine->plan->n_chunks; chunk++) {
        const int64_t bytes = emit_logits_bytes(cuda->engine->plan, chunk);
        if (bytes > most) most = bytes;
    }
    if (!cuda_check(api, api->cudaHostAlloc(&logits, (size_t)most, cudaHostAllocDefault), diag,
                    "allocating memory for logits")) {
        return false;
    }
    cuda->memory.logits = logits;
    return true;
}

static bool allocate(CudaEngine *cuda, Diag *diag) {
    Engine *engine = cuda->engine;
    const CuApi *api = cuda->device.api;
    void *state = NULL, *staging = NULL, *progress = NULL;
    for (int r = 0; r < cuda->n_local; r++) {
        RankContext *rank = &engine->ranks[cuda->first_local + r];
        if (!allocate_arena(cuda, rank, diag) || !allocate_offloaded(cuda, rank, diag)) {
            return false;
        }
    }
    if (cuda->world) {
        size_t bytes = N_STREAM_KINDS * sizeof(uint32_t);
        if (!cuda_check(api, api->cudaHostAlloc(&progress, bytes, cudaHostAllocDefault), diag,
                        "allocating the record of progress")) {
            return false;
        }
        cuda->memory.progress = memset(progress, 0, bytes);
    }
    cuda->slot_bytes = emit_staging_bytes(engine->plan);
    for (TokenNumbers i = 0; i < N_TOKEN_NUMBERS; i++) {
        if (!plan_reads_numbers(engine->plan, i)) continue;
        cuda->numbers_at[i] =
            STAGING_HEADER + emit_staged_numbers(engine->plan, i) * dtype_bytes(DTYPE_F32);
    }
    if (!cuda_check(api, api->cudaMalloc(&state, sizeof(DeviceState)), diag,
                    "allocating the step's state")) {
        return false;
    }
    cuda->memory.state = state;
    if (!cuda_check(api,
                    api->cudaHostAlloc(&staging, (size_t)(STAGING_SLOTS * cuda->slot_bytes),
                                       cudaHostAllocDefault),
                    diag, "allocating the staging buffer")) {
        return false;
    }
    cuda->memory.staging = staging;
    if (engine->plan->context && !allocate_logits(cuda, diag)) return false;
    memset(staging, 0, (size_t)(STAGING_SLOTS * cuda->slot_bytes));
    return cuda_check(api, api->cudaMemsetAsync(state, 0, sizeof(DeviceState), NULL), diag,
                      "clearing the step's state") &&
           cuda_check(api, api->cudaDeviceSynchronize(), diag, "clearing memory");
}

/* The plan says how much memory kernels may use beside values; another backend's plan says less. */
static bool check_workspace(const Engine *engine, Diag *diag) {
    for (int r = 0; r < engine->n_ranks; r++) {
        const RankContext *rank = &engine->ranks[r];
        int64_t need = program_workspace(rank->program->graph, true).total;
        if (rank->parts.total >= need) continue;
        diag_error(diag, NO_LOC,
                   "the plan leaves %.1f MiB for kernels, CUDA's need %.1f: make the plan %s",
                   (double)rank->parts.total / (1 << 20), (double)need / (1 << 20),
                   engine->plan->cuda ? "again, with this perilune" : "with --device cuda");
        return false;
    }
    return true;
}

static bool supports_epilogue(void *user, const GemmCommand *gemm) {
    CudaEngine *cuda = user;
    const Engine *engine = cuda->engine;
    if (!gemm_device_folds(cuda->context.gemms->stored, gemm)) return false;
    if (gemm_table_supports(cuda->context.gemms, gemm)) return true;
    if (!cuda->told && cuda->first_local == 0) {
        fprintf(stderr,
                "perilune: cuBLASLt has no product %lld x %lld x %lld%s for %s: kernels of their "
                "own do the rest\n",
                (long long)gemm->layout.m, (long long)gemm->layout.n, (long long)gemm->layout.k,
                epilogue_name(gemm, engine->arena), cuda->device.name);
    }
    cuda->told = true;
    return false;
}

static bool sums_bias(void *user, const GemmCommand *gemm) {
    CudaEngine *cuda = user;
    return gemm_table_sums_bias(cuda->context.gemms, gemm);
}

static bool joins(void *user, const GemmCommand *one, const GemmCommand *joined) {
    CudaEngine *cuda = user;
    return gemm_table_joins(cuda->context.gemms, one, joined);
}

static bool open_products(CudaEngine *cuda, bool tf32, Diag *diag) {
    Engine *engine = cuda->engine;
    int64_t workspace = INT64_MAX; /* what every rank has */
    for (int r = 0; r < cuda->n_local; r++) {
        int64_t bytes = engine->ranks[cuda->first_local + r].parts.bytes[WORKSPACE_COMPUTE];
        if (bytes < workspace) workspace = bytes;
    }
    if (!cuda_device_start_blas(&cuda->device, diag)) return false;
    cuda->context.gemms = gemm_table_create(&cuda->device, tf32, workspace, engine->arena);
    gemm_table_use(cuda->context.gemms, &engine->plan->device);
    return true;
}

/* What emission asks: which products and attentions there are on this device. */
static bool open_libraries(CudaEngine *cuda, const EngineOptions *options, Diag *diag) {
    Engine *engine = cuda->engine;
    cuda->context = (ReplayContext){
        .device = &cuda->device,
        .workspace = workspace_of,
        .workspace_user = cuda,
        .generated = generated_of,
        .generated_user = cuda,
        .arena = engine->arena,
    };
    cuda->memory.own_products = options->own_products;
    if (!options->own_products && !open_products(cuda, options->tf32, diag)) return false;
    cuda->epilogues = (EpilogueCheck){supports_epilogue, cuda, sums_bias, joins};
    cuda->memory.epilogues = options->no_epilogues ? NULL : &cuda->epilogues;
    if (!options->no_cudnn)
        cuda->context.attentions = attention_table_create(&cuda->device, engine->arena);
    const GemmTable *gemms = cuda->context.gemms;
    cuda->attentions = (AttentionChoice){.device = &cuda->device,
                                         .table = cuda->context.attentions,
                                         .tuned = gemms ? gemms->stored : NULL,
                                         .asked = options->attention,
                                         .arena = engine->arena,
                                         .silent = cuda->first_local != 0};
    cuda->attention =
        (AttentionCheck){attention_choose, &cuda->attentions, attention_choice_lays_out};
    cuda->memory.attention = &cuda->attention;
    return true;
}

static bool emit_jobs(CudaEngine *cuda, CommandList lists[N_EMIT_JOBS], Diag *diag) {
    Engine *engine = cuda->engine;
    double start = clock_now();
    cuda->generated = kernel_cache_create(engine->arena);
    for (int job = cuda->first_job; job < cuda->end_job; job++) {
        bool fine = cuda->n_local == 1
                        ? emit_rank(&engine->ranks[cuda->first_local], &cuda->memory, (EmitJob)job,
                                    cuda->generated, &lists[job], diag)
                        : emit_virtual(engine->ranks, engine->n_ranks, &cuda->memory, (EmitJob)job,
                                       cuda->generated, engine->arena, &lists[job], diag);
        if (!fine) return false;
    }
    engine->emit_seconds = clock_now() - start;
    return true;
}

/* Whether the algorithms in the plan's device section were chosen for what is here. */
static void tell_tuning(CudaEngine *cuda) {
    Engine *engine = cuda->engine;
    const PlanDevice *tuned = &engine->plan->device;
    const GemmTable *gemms = cuda->context.gemms;
    if (!tuned->name) return;
    if (!gemms) {
        engine->tuning = arena_printf(engine->arena, "for %s, %s: not used, for own products",
                                      tuned->name, tuned->arch);
        return;
    }
    int64_t v = tuned->library_version, ours = (int64_t)cuda->device.api->cublasLtGetVersion();
    if (gemms->stored) {
        engine->tuning = arena_printf(engine->arena, "%d of %d matrix products as tuned for %s%s",
                                      gemms->n_stored, gemms->n_used, tuned->name,
                                      attention_choice_tuning(&cuda->attentions));
        return;
    }
    engine->tuning = arena_printf(
        engine->arena,
        "for %s, %s (cuBLASLt %d.%d.%d), but this is %s, %s (%d.%d.%d): not used; tune it again",
        tuned->name, tuned->arch, (int)(v / 10000), (int)(v / 100 % 100), (int)(v % 100),
        cuda->device.name, cuda->device.arch, (int)(ours / 10000), (int)(ours / 100 % 100),
        (int)(ours % 100));
}

/* Other ranks will not come, and the device may wait for them: NCCL's kernels are stopped. Graphs
 * go first, as NCCL waits for that; they may go while they run. */
static void give_up(CudaEngine *cuda) {
    if (!cuda->world || cuda->aborted) return;
    for (int job = 0; job < N_EMIT_JOBS; job++) replay_drop_graphs(&cuda->replays[job]);
    nccl_world_destroy(cuda->world, true);
    cuda->aborted = true;
}

/* This rank cannot go on: the others are told before they wait for it. */
static void fail_job(CudaEngine *cuda, const Diag *diag) {
    Control *control = cuda->engine->control;
    if (control && !control_failed(control, NULL)) {
        const char *text = diag_text(diag);
        control_report(control, arena_strndup(cuda->engine->arena, text, strcspn(text, "\n")));
    }
    give_up(cuda);
}

/* Watches the other ranks meanwhile. Without one of them NCCL's kernels would wait for ever: they
 * are stopped. */
static bool wait_among_others(void *user, cudaStream_t stream, Diag *diag) {
    CudaEngine *cuda = user;
    const StepWatch watch = {.engine = cuda->engine,
                             .rank = &cuda->engine->ranks[cuda->first_local],
                             .device = &cuda->device,
                             .world = cuda->world,
                             .progress = cuda->memory.progress,
                             .stream = stream};
    bool lost = false, fine = cuda_watch_stream(&watch, cuda->running, &lost, diag);
    if (lost) give_up(cuda);
    return fine && !lost;
}

static bool prepare_jobs(CudaEngine *cuda, CommandList lists[N_EMIT_JOBS], Diag *diag) {
    Engine *engine = cuda->engine;
    if (cuda->world) {
        cuda->context.messenger = nccl_world_messenger(cuda->world);
        cuda->context.wait = wait_among_others;
        cuda->context.wait_user = cuda;
    }
    cuda->modules = generated_modules_load(&cuda->device, cuda->generated, engine->arena, diag);
    if (!cuda->modules) return false;
    for (int job = cuda->first_job; job < cuda->end_job; job++) {
        if (!replay_prepare(&cuda->replays[job], &cuda->context, &lists[job], diag)) return false;
    }
    tell_tuning(cuda);
    engine->attention = attention_choice_describe(&cuda->attentions);
    return true;
}

/* The chunk's inputs, each of as many numbers as the chunk has. */
static void stage_chunk(const CudaEngine *cuda, unsigned char *to) {
    const Engine *engine = cuda->engine;
    const Graph *graph = engine->plan->programs[0].graph;
    const size_t pitch = (size_t)emit_decode_positions(engine->plan) * sizeof(int32_t);
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (node->op != OP_INPUT || node->chunk != engine->input.chunk) continue;
        int input = decode_input_find(node_string(node, ATTR_name));
        memcpy(to + (size_t)input * pitch, engine->input.decode[input],
               (size_t)type_bytes(&node->types[0]));
    }
}

/* Writes what the next launch takes over into its staging slot. */
static void stage(CudaEngine *cuda) {
    const Plan *plan = cuda->engine->plan;
    const StepInput *input = &cuda->engine->input;
    uint64_t launch = ++cuda->n_launches;
    unsigned char *slot =
        (unsigned char *)cuda->memory.staging + launch % STAGING_SLOTS * (uint64_t)cuda->slot_bytes;
    DeviceState state = {.seed = plan->seed,
                         .step = (uint64_t)input->step,
                         .learning_rate = (float)input->learning_rate,
                         .step_f32 = (float)input->update,
                         .most_norm_squared = input->most_norm_squared,
                         .label_share = (float)input->label_share,
                         .train = input->train};
    size_t sequence = (size_t)plan->global_batch * sizeof(int32_t);
    size_t tokens = sequence * (size_t)plan_row(plan), labels = sequence * (size_t)plan->seq;
    memcpy(slot, &state, sizeof(state));
    if (plan->context) {
        stage_chunk(cuda, slot + STAGING_HEADER);
        return;
    }
    const int64_t n = input->is_first ? engine_forward_batch(cuda->engine) : plan->global_batch;
    const size_t row = (size_t)n * sizeof(int32_t);
    if (input->tokens) memcpy(slot + STAGING_HEADER, input->tokens, row * (size_t)plan_row(plan));
    if (input->labels) {
        memcpy(slot + STAGING_HEADER + tokens, input->labels, row * (size_t)plan->seq);
    }
    unsigned char *reference = slot + STAGING_HEADER + tokens + labels;
    memset(reference, 0, sequence); /* numbers of f32 have as many bytes */
    if (input->reference) memcpy(reference, input->reference, sequence);
    for (int i = 0; i < N_TOKEN_NUMBERS; i++) {
        unsigned char *numbers = slot + cuda->numbers_at[i];
        if (cuda->numbers_at[i] == 0) continue;
        const size_t bytes = sequence * (size_t)plan_numbers_row(plan, (TokenNumbers)i);
        if (input->numbers[i]) {
            memcpy(numbers, input->numbers[i], bytes);
        } else {
            memset(numbers, 0, bytes);
        }
    }
}

/* Updates in place what lives across steps: left out while warming up. */
static bool keeps_state(void *user, const Command *command) {
    (void)user;
    const Node *node = command->info.node;
    return !node || node->phase != PHASE_UPDATE || op_alias(node, 0) < 0;
}

/* Every chunk, of sequences and positions that there are not: caches stay as they are. */
static bool warm_up_chunks(CudaEngine *cuda, Diag *diag) {
    Engine *engine = cuda->engine;
    const int64_t most = emit_decode_positions(engine->plan);
    int32_t *none = ARENA_ARRAY(engine->arena, int32_t, most + 1);
    for (int64_t i = 0; i < most; i++) none[i] = -1;
    for (int chunk = 0; chunk < engine->plan->n_chunks; chunk++) {
        engine->input = (StepInput){.chunk = chunk};
        for (int i = 0; i < N_DECODE_INPUTS; i++) engine->input.decode[i] = none;
        stage(cuda);
        cuda->running = &cuda->replays[EMIT_DECODE + chunk];
        if (!replay_issue(cuda->running, NULL, NULL, NULL, diag) ||
            !replay_wait(cuda->running, diag)) {
            return false;
        }
    }
    return true;
}

/* One step without the update, issued command by command, and of the other jobs what libraries do
 * there alone: they load lazily, and NCCL connects, which must not happen while a graph is
 * captured. */
static bool warm_up(CudaEngine *cuda, Diag *diag) {
    if (cuda->engine->plan->context) return warm_up_chunks(cuda, diag);
    cuda->engine->input = (StepInput){.step = 1, .train = true};
    stage(cuda);
    cuda->running = &cuda->replays[EMIT_TRAIN];
    if (!replay_issue(cuda->running, keeps_state, NULL, NULL, diag)) return false;
    for (int job = EMIT_TRAIN + 1; job < cuda->end_job; job++) {
        if (!replay_issue_new_entries(&cuda->replays[job], cuda->running, diag)) return false;
    }
    return replay_wait(cuda->running, diag);
}

/* As the plan counts for a rank; several on one device would have one graph together. */
static bool goes_in_pieces(const CudaEngine *cuda) {
    const Engine *engine = cuda->engine;
    int64_t bytes = 0;
    bool pieces = false;
    for (int r = 0; r < cuda->n_local; r++) {
        const Stage *stage = engine->ranks[cuda->first_local + r].stage;
        pieces |= plan_graph_in_pieces(engine->plan, stage);
        bytes += plan_graph_bytes(engine->plan, stage);
    }
    return pieces || bytes > (int64_t)GRAPH_NODE_BUDGET * GRAPH_NODE_BYTES;
}

/* Graphs that are not on the device, though all are meant to be; and pieces of what would be one.
 */
static void tell_graphs(CudaEngine *cuda, bool in_pieces) {
    Engine *engine = cuda->engine;
    int n_graphs = 0, n_on_host = 0;
    cudaError_t why = cudaSuccess;
    for (int job = cuda->first_job; job < cuda->end_job; job++) {
        const Replay *replay = &cuda->replays[job];
        n_graphs += replay->n_graphs;
        n_on_host += replay->n_on_host;
        if (replay->n_on_host) why = replay->why_on_host;
    }
    if (in_pieces && !n_on_host) {
        engine->graphs = arena_printf(engine->arena,
                                      "%d of pieces of a step, one for those that are alike: a "
                                      "single one would have over %d nodes",
                                      n_graphs, GRAPH_NODE_BUDGET);
    }
    if (!n_on_host) return;
    engine->graphs =
        arena_printf(engine->arena,
                     "%d of %d do not live on the device, as CUDA refuses them there (%s): "
                     "launching takes longer",
                     n_on_host, n_graphs, cuda->device.api->cudaGetErrorString(why));
}

static bool capture_jobs(CudaEngine *cuda, Diag *diag) {
    for (int job = cuda->first_job; job < cuda->end_job; job++) {
        if (!replay_capture(&cuda->replays[job], cuda->mode, diag)) return false;
    }
    tell_graphs(cuda, cuda->mode == REPLAY_SEGMENTED && goes_in_pieces(cuda));
    /* NCCL uploads for them on streams of its own, too, which they do not wait for. */
    const CuApi *api = cuda->device.api;
    return cuda_check(api, api->cudaDeviceSynchronize(), diag, "uploading the graphs");
}

static bool exchange(void *user, const int *ranks, int n_ranks, void *bytes, size_t n_bytes,
                     Diag *diag) {
    const char *why = "";
    if (control_exchange(user, "NCCL id", ranks, n_ranks, bytes, n_bytes)) return true;
    control_failed(user, &why);
    diag_error(diag, NO_LOC, "%s", why);
    return false;
}

static const char *why_failed(void *user) {
    const char *why = "";
    return control_failed(user, &why) ? why : NULL;
}

/* Which ranks are this process's; with several processes, the communicators among them. */
static bool join(CudaEngine *cuda, const EngineOptions *options, Diag *diag) {
    Engine *engine = cuda->engine;
    cuda->n_local = engine->n_ranks;
    cuda->n_on_host = options->n_on_host > 1 ? options->n_on_host : 1;
    if (!options->control) {
        if (engine->n_ranks == 1 || options->virtual_ranks) return true;
        diag_error(diag, NO_LOC,
                   "the plan has %d ranks: start %d processes, one for each GPU, or use "
                   "--virtual-ranks to run them all on one",
                   engine->n_ranks, engine->n_ranks);
        return false;
    }
    NcclExchange how = {options->control, exchange, why_failed};
    NcclOptions nccl = {options->timeout_seconds, options->no_registration, options->several_hosts};
    cuda->first_local = options->rank;
    cuda->n_local = 1;
    cuda->world = nccl_world_create(&cuda->device, engine->plan, options->rank, &how, &nccl,
                                    engine->arena, diag);
    return cuda->world != NULL;
}

static bool cuda_create(Engine *engine, const EngineOptions *options, Diag *diag) {
    CudaEngine *cuda = ARENA_NEW(engine->arena, CudaEngine);
    CommandList lists[N_EMIT_JOBS] = {{0}};
    engine->backend_state = cuda;
    cuda->engine = engine;
    cuda->first_job = emit_first_job(engine->plan);
    cuda->end_job = emit_end_job(engine->plan);
    bool fine = check_workspace(engine, diag) &&
                cuda_device_open(&cuda->device, cuda_api(), options->device_ordinal, diag) &&
                join(cuda, options, diag);
    cuda->mode = options->no_graph                                      ? REPLAY_EAGER
                 : options->segmented || (fine && goes_in_pieces(cuda)) ? REPLAY_SEGMENTED
                                                                        : REPLAY_GRAPH;
    fine = fine && check_memory(cuda, diag) && allocate(cuda, diag) &&
           open_libraries(cuda, options, diag) && emit_jobs(cuda, lists, diag) &&
           prepare_jobs(cuda, lists, diag) && warm_up(cuda, diag) && capture_jobs(cuda, diag);
    for (int job = 0; job < N_EMIT_JOBS; job++) command_list_release(&lists[job]);
    if (!fine) fail_job(cuda, diag);
    return fine;
}

static void cuda_destroy(Engine *engine) {
    CudaEngine *cuda = engine->backend_state;
    if (!cuda) return;
    const CuApi *api = cuda->device.api;
    if (api) {
        /* A kernel that waits for a lost rank ends only once its communicator is aborted. */
        if (cuda->world && control_failed(engine->control, NULL)) give_up(cuda);
        if (!cuda->aborted) api->cudaDeviceSynchronize();
        for (int job = 0; job < N_EMIT_JOBS; job++) replay_destroy(&cuda->replays[job]);
        gemm_table_destroy(cuda->context.gemms);
        attention_table_destroy(cuda->context.attentions);
        replay_context_destroy(&cuda->context);
        if (cuda->modules) generated_modules_unload(cuda->modules);
        if (!cuda->aborted) nccl_world_destroy(cuda->world, false);
        for (int r = 0; r < engine->n_ranks; r++) {
            unsigned char *memory = engine->ranks[r].memory;
            if (memory && cuda->world) nccl_world_free(cuda->world, memory);
            if (memory && !cuda->world) api->cudaFree(memory);
            if (engine->ranks[r].host) api->cudaFreeHost(engine->ranks[r].host);
        }
        if (cuda->memory.progress) api->cudaFreeHost(cuda->memory.progress);
        if (cuda->memory.state) api->cudaFree(cuda->memory.state);
        if (cuda->memory.staging) api->cudaFreeHost((void *)cuda->memory.staging);
        if (cuda->memory.logits) api->cudaFreeHost(cuda->memory.logits);
        cuda_device_close(&cuda->device);
    }
    free(cuda->host);
}

static bool note_copy(CudaEngine *cuda, cudaError_t status) {
    if (cuda->copied == cudaSuccess) cuda->copied = status;
    return status == cudaSuccess;
}

static const char *cuda_copy_failure(const Engine *engine) {
    const CudaEngine *cuda = engine->backend_state;
    return cuda->copied ? cuda->device.api->cudaGetErrorString(cuda->copied) : NULL;
}

static unsigned char *host_buffer(CudaEngine *cuda, size_t bytes) {
    if (bytes > cuda->host_bytes) {
        free(cuda->host);
        cuda->host = malloc(bytes);
        if (!cuda->host) BUG("out of memory for %zu bytes", bytes);
        cuda->host_bytes = bytes;
    }
    return cuda->host;
}

static const void *cuda_view(Engine *engine, const void *at, size_t bytes) {
    CudaEngine *cuda = engine->backend_state;
    const CuApi *api = cuda->device.api;
    if (at == cuda->decoded) return cuda->memory.logits;
    if (offloaded_at(cuda, at)) return at; /* no step runs meanwhile */
    void *host = host_buffer(cuda, bytes);
    if (!note_copy(cuda, api->cudaMemcpy(host, at, bytes, cudaMemcpyDeviceToHost)))
        memset(host, 0xff, bytes); /* not numbers: what reads them stops */
    return host;
}

static void *cuda_edit(Engine *engine, void *at, size_t bytes) {
    CudaEngine *cuda = engine->backend_state;
    unsigned char *own = offloaded_at(cuda, at);
    cuda->edited = own ? NULL : at;
    cuda->edited_bytes = bytes;
    if (own) return own;
    return memset(host_buffer(cuda, bytes), 0, bytes);
}

static void cuda_commit(Engine *engine) {
    CudaEngine *cuda = engine->backend_state;
    const CuApi *api = cuda->device.api;
    if (!cuda->edited) return;
    /* From pageable memory the copy may still be under way when the call returns, on the legacy
     * stream, which a step's streams do not wait for. */
    note_copy(cuda, api->cudaMemcpy(cuda->edited, cuda->host, cuda->edited_bytes,
                                    cudaMemcpyHostToDevice));
    note_copy(cuda, api->cudaStreamSynchronize(NULL));
}

static void cuda_copy(Engine *engine, void *to, const void *from, size_t bytes) {
    CudaEngine *cuda = engine->backend_state;
    const CuApi *api = cuda->device.api;
    if (bytes == 0) return;
    note_copy(cuda, api->cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToDevice));
    note_copy(cuda, api->cudaStreamSynchronize(NULL));
}

/* A command as the reports of the engine know it. */
static CallInfo call_of(const Engine *engine, const CommandInfo *info) {
    CallInfo call = {.node = info->node, .micro = info->micro, .kind = info->task};
    for (int o = 0; info->node && o < info->node->n_outputs; o++) {
        call.out[o] = executor_address(&engine->ranks[info->rank],
                                       node_value((Node *)info->node, o), info->micro);
    }
    return call;
}

/* Is this a node's last command? Its results are not complete before. */
static bool is_last_of_node(const Replay *replay, const Command *command) {
    const Command *next = command + 1;
    if (next == replay->list.items + replay->list.count) return true;
    return next->info.node != command->info.node || next->info.micro != command->info.micro ||
           next->info.rank != command->info.rank;
}

static bool check_command(void *user, const Command *command) {
    CudaEngine *cuda = user;
    int rank = command->info.rank;
    if (!is_last_of_node(&cuda->replays[EMIT_TRAIN], command)) return true;
    if (cuda->engine->bad[rank].found) return true;
    bool found = false;
    for (int i = -1; i < command->n_others && !found; i++) {
        CallInfo call = call_of(cuda->engine, i < 0 ? &command->info : &command->others[i]);
        found = engine_check_outputs(cuda->engine, rank, &call);
    }
    return true;
}

static bool time_command(void *user, const Command *command) {
    CudaEngine *cuda = user;
    double now = clock_now();
    const Node *node = command_main_node(command);
    if (command->info.rank == 0) {
        cuda->engine->op_seconds[node ? node->op : OP_INPUT] += now - cuda->last_time;
    }
    cuda->last_time = now;
    return true;
}

static bool run_visited(CudaEngine *cuda, EngineJob job, Diag *diag) {
    memset(cuda->engine->op_seconds, 0, sizeof(cuda->engine->op_seconds));
    cuda->last_time = clock_now();
    return replay_issue(cuda->running, NULL, job == JOB_CHECK ? check_command : time_command, cuda,
                        diag);
}

static const void *decoded_logits(const Engine *engine) {
    Value logits = emit_decode_logits(engine->plan, engine->input.chunk);
    return executor_address(engine_own_rank(engine), logits, 0);
}

static bool cuda_run(Engine *engine, EngineJob job, Diag *diag) {
    static const EmitJob EMITTED[] = {
        [JOB_TRAIN] = EMIT_TRAIN,   [JOB_FORWARD] = EMIT_FORWARD, [JOB_FIRST] = EMIT_FIRST,
        [JOB_DECODE] = EMIT_DECODE, [JOB_CHECK] = EMIT_TRAIN,     [JOB_PROFILE] = EMIT_TRAIN,
        [JOB_MEASURE] = EMIT_TRAIN};
    CudaEngine *cuda = engine->backend_state;
    if ((int)EMITTED[job] < cuda->first_job || (int)EMITTED[job] >= cuda->end_job) {
        BUG("a job that the plan has no commands for");
    }
    if (cuda->aborted) {
        diag_error(diag, NO_LOC, "CUDA: other ranks are gone");
        return false;
    }
    if (engine_copy_failed(engine, diag)) return false;
    if (cuda->world) {
        memset(cuda->memory.progress, 0, N_STREAM_KINDS * sizeof(uint32_t));
        control_update_progress(engine->control, engine->input.step, 0, 0, false, "computing");
    }
    stage(cuda);
    double start = clock_now();
    cuda->running = &cuda->replays[EMITTED[job] + (job == JOB_DECODE ? engine->input.chunk : 0)];
    bool fine = job == JOB_MEASURE ? cuda_measure_replay(cuda->running, engine->work, diag)
                : job == JOB_CHECK || job == JOB_PROFILE ? run_visited(cuda, job, diag)
                                                         : replay_launch(cuda->running, diag);
    cuda->launch_seconds = clock_now() - start;
    fine = fine && replay_wait(cuda->running, diag);
    cuda->decoded = job == JOB_DECODE ? decoded_logits(engine) : NULL;
    if (!fine) fail_job(cuda, diag);
    if (cuda->world) {
        control_update_progress(engine->control, -1, 0, 0, false, "between steps");
    }
    return fine;
}

static bool cuda_trace(Engine *engine, Arena *arena, EngineSpan **out_spans, int *out_count,
                       Diag *diag) {
    CudaEngine *cuda = engine->backend_state;
    stage(cuda);
    cuda->running = &cuda->replays[EMIT_TRAIN];
    return cuda_trace_replay(cuda->running, arena, out_spans, out_count, diag);
}

static int64_t cuda_call_count(const Engine *engine) {
    const CudaEngine *cuda = engine->backend_state;
    return cuda->replays[cuda->first_job].list.count;
}

static double cuda_replay_seconds(Engine *engine) {
    const CudaEngine *cuda = engine->backend_state;
    return cuda->launch_seconds;
}

bool engine_cuda_available(const char **out_why) {
    int n_devices;
    /* Without a driver nothing can be used: CUDA's libraries need not be loaded to know. */
    if (cuda_api_is_real() && !cu_driver_present()) {
        *out_why = CUDA_NO_DRIVER;
        return false;
    }
    return cuda_usable(cuda_api(), &n_devices, out_why);
}

const EngineBackend *cuda_backend(void) {
    static const EngineBackend BACKEND = {.name = "cuda",
                                          .create = cuda_create,
                                          .destroy = cuda_destroy,
                                          .run = cuda_run,
                                          .view = cuda_view,
                                          .edit = cuda_edit,
                                          .commit = cuda_commit,
                                          .copy = cuda_copy,
                                          .copy_failure = cuda_copy_failure,
                                          .replay_seconds = cuda_replay_seconds,
                                          .call_count = cuda_call_count,
                                          .trace = cuda_trace};
    return &BACKEND;
}
