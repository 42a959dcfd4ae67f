#include "runtime/engine.h"

#include "runtime/engine_internal.h"

#include "runtime/cpu/reduce.h"

#include <errno.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

double engine_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static bool check_outputs(RankThread *rank, const CallInfo *info) {
    for (int o = 0; info->node && o < info->node->n_outputs; o++) {
        DType dtype = info->node->types[o].dtype;
        if (!dtype_is_float(dtype) || !info->out[o]) continue;
        Type local =
            type_local(&info->node->types[o], &info->node->shardings[o], &rank->engine->plan->mesh);
        bool low = dtype == DTYPE_BF16;
        if (reduce_first_nonfinite(info->out[o], low, type_elements(&local)) < 0) continue;
        rank->bad = (BadValue){true, *info, o};
        return true;
    }
    return false;
}

/* Adds each call's time to its op's; what copies inputs counts as `input`. */
static void profile_list(RankThread *rank, const CallList *list) {
    memset(rank->op_seconds, 0, sizeof(rank->op_seconds));
    double last = engine_now();
    for (int i = 0; i < list->count; i++) {
        const Node *node = list->info[i].node;
        if (!list->calls[i].run(list->calls[i].args)) return;
        double now = engine_now();
        rank->op_seconds[node ? node->op : OP_INPUT] += now - last;
        last = now;
    }
}

static void run_list(RankThread *rank, const CallList *list, int count, bool check) {
    for (int i = 0; i < count; i++) {
        if (!list->calls[i].run(list->calls[i].args)) {
            const CallInfo *info = &list->info[i];
            char text[256];
            snprintf(text, sizeof(text), "rank %d: %s%d, micro-batch %d: %s failed",
                     rank->context.rank, task_kind_word(info->kind),
                     info->node ? info->node->chunk : 0, info->micro,
                     info->node ? OPS[info->node->op].name : "input");
            comm_world_abort(rank->engine->world, text); /* keeps the first reason */
            return;
        }
        if (check && !rank->bad.found) check_outputs(rank, &list->info[i]);
    }
}

static void run_job(RankThread *rank, EngineJob job) {
    RankContext *context = &rank->context;
    switch (job) {
    case JOB_TRAIN:
    case JOB_CHECK: run_list(rank, &context->train, context->train.count, job == JOB_CHECK); break;
    case JOB_PROFILE: profile_list(rank, &context->train); break;
    case JOB_FORWARD: run_list(rank, &context->forward, context->forward.count, false); break;
    case JOB_FIRST: run_list(rank, &context->forward, context->n_first, false); break;
    default: break;
    }
}

static void *rank_main(void *user) {
    RankThread *rank = user;
    Engine *engine = rank->engine;
    int64_t generation = 0;
    omp_set_num_threads(engine->n_threads);
    for (;;) {
        pthread_mutex_lock(&engine->mutex);
        while (engine->generation == generation) pthread_cond_wait(&engine->wake, &engine->mutex);
        generation = engine->generation;
        EngineJob job = engine->job;
        pthread_mutex_unlock(&engine->mutex);
        if (job == JOB_QUIT) return NULL;
        run_job(rank, job);
        pthread_mutex_lock(&engine->mutex);
        if (--engine->n_running == 0) pthread_cond_signal(&engine->finished);
        pthread_mutex_unlock(&engine->mutex);
    }
}

bool engine_run(Engine *engine, EngineJob job, Diag *diag) {
    pthread_mutex_lock(&engine->mutex);
    engine->job = job;
    engine->n_running = engine->n_ranks;
    engine->generation++;
    pthread_cond_broadcast(&engine->wake);
    while (engine->n_running > 0 && job != JOB_QUIT) {
        pthread_cond_wait(&engine->finished, &engine->mutex);
    }
    pthread_mutex_unlock(&engine->mutex);
    if (!comm_world_is_aborted(engine->world)) return true;
    if (diag) diag_error(diag, NO_LOC, "%s", comm_world_reason(engine->world));
    return false;
}

/* The groups that a rank takes part in: one along each mesh axis, one per tied weight. Groups are
 * made by their member 0 and found again by the others. */
static void join_groups(Engine *engine, RankContext *rank) {
    const Plan *plan = engine->plan;
    CommGroups *groups = &rank->groups;
    for (int axis = 0; axis < N_MESH_AXES; axis++) {
        MeshCoord first = rank->coord;
        if (plan->mesh.size[axis] == 1) continue;
        first.at[axis] = 0;
        RankContext *leader = &engine->ranks[mesh_rank(&plan->mesh, first)].context;
        if (leader == rank) {
            groups->mesh[axis] = comm_group_create(
                engine->world, plan->mesh.size[axis],
                arena_printf(engine->arena, "%s of rank %d", mesh_axis_name(axis), rank->rank));
        } else {
            groups->mesh[axis] = leader->groups.mesh[axis];
        }
        groups->member[axis] = rank->coord.at[axis];
    }
    groups->n_stage = plan->n_comms;
    groups->stage_names = ARENA_ARRAY(engine->arena, const char *, plan->n_comms + 1);
    groups->stage = ARENA_ARRAY(engine->arena, CommGroup *, plan->n_comms + 1);
    groups->stage_member = ARENA_ARRAY(engine->arena, int, plan->n_comms + 1);
    for (int i = 0; i < plan->n_comms; i++) {
        const StageComm *comm = &plan->comms[i];
        MeshCoord first = rank->coord;
        first.at[MESH_P] = comm->stages[0];
        groups->stage_names[i] = comm->name;
        for (int k = 0; k < comm->n_stages; k++) {
            if (comm->stages[k] != rank->stage_number) continue;
            RankContext *leader = &engine->ranks[mesh_rank(&plan->mesh, first)].context;
            groups->stage[i] = leader == rank
                                   ? comm_group_create(engine->world, comm->n_stages, comm->name)
                                   : leader->groups.stage[i];
            groups->stage_member[i] = k;
        }
    }
}

/* Channels link ranks of two stages with the same t and d; the sender's rank makes them. */
static void join_channels(Engine *engine) {
    const Plan *plan = engine->plan;
    for (int r = 0; r < engine->n_ranks; r++) {
        RankContext *rank = &engine->ranks[r].context;
        rank->channels = ARENA_ARRAY(engine->arena, CommChannel *, plan->n_channels + 1);
    }
    for (int r = 0; r < engine->n_ranks; r++) {
        RankContext *rank = &engine->ranks[r].context;
        for (int i = 0; i < plan->n_channels; i++) {
            const Channel *channel = &plan->channels[i];
            const Graph *graph = plan->programs[plan->stages[channel->from].program].graph;
            int n_values = 0;
            if (channel->from != rank->stage_number) continue;
            for (int n = 0; n < graph->n_nodes; n++) {
                const Node *node = graph->nodes[n];
                n_values += node->op == OP_SEND && node->chunk == 0 &&
                            (node->phase == PHASE_BACKWARD) == channel->backward;
            }
            MeshCoord to = rank->coord;
            to.at[MESH_P] = channel->to;
            CommChannel *made =
                comm_channel_create(engine->world, channel->slots * (n_values ? n_values : 1),
                                    arena_printf(engine->arena, "%s messages of rank %d to rank %d",
                                                 channel->backward ? "gradient" : "activation", r,
                                                 mesh_rank(&plan->mesh, to)));
            rank->channels[i] = made;
            engine->ranks[mesh_rank(&plan->mesh, to)].context.channels[i] = made;
        }
    }
}

static void find_scalars(RankThread *rank) {
    const Graph *graph = rank->context.program->graph;
    for (int n = 0; n < graph->n_nodes; n++) {
        Node *node = graph->nodes[n];
        if (node->op != OP_SCALAR) continue;
        float *memory = executor_address(&rank->context, node_value(node, 0), 0);
        if (strcmp(node_string(node, ATTR_name), "step") == 0) rank->step = memory;
        if (strcmp(node_string(node, ATTR_name), "learning_rate") == 0) {
            rank->learning_rate = memory;
        }
    }
}

/* Zeroed, page-aligned memory of exactly the plan's size. Touched at once: no page faults later,
 * and a machine without enough memory says so now. */
static bool allocate_rank(Engine *engine, RankContext *rank, Diag *diag) {
    size_t bytes = (size_t)rank->stage->arena_bytes;
    void *memory =
        mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        diag_error(diag, NO_LOC, "rank %d: cannot allocate its %.1f MiB: %s", rank->rank,
                   (double)bytes / (1 << 20), strerror(errno));
        return false;
    }
    madvise(memory, bytes, MADV_HUGEPAGE); /* a hint: fewer TLB misses; no matter if refused */
    memset(memory, 0, bytes);
    rank->memory = memory;
    rank->workspace = rank->memory + rank->stage->scratch_base + rank->program->scratch_bytes -
                      program_workspace_bytes(rank->program->graph);
    engine->arena_bytes += (int64_t)bytes;
    return true;
}

/* More than the machine has would be killed half-way through: say so before. */
static bool check_memory(const Engine *engine, Diag *diag) {
    int64_t total = 0;
    for (int r = 0; r < engine->n_ranks; r++) total += engine->ranks[r].context.stage->arena_bytes;
    int64_t have = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    if (total < have) return true;
    diag_error(diag, NO_LOC, "the plan's %d ranks need %.1f GiB; this machine has %.1f GiB",
               engine->n_ranks, (double)total / (1 << 30), (double)have / (1 << 30));
    return false;
}

static bool set_up_ranks(Engine *engine, Diag *diag) {
    const Plan *plan = engine->plan;
    for (int r = 0; r < engine->n_ranks; r++) {
        RankContext *rank = &engine->ranks[r].context;
        engine->ranks[r].engine = engine;
        rank->plan = plan;
        rank->rank = r;
        rank->coord = mesh_coord(&plan->mesh, r);
        rank->stage_number = rank->coord.at[MESH_P];
        rank->stage = &plan->stages[rank->stage_number];
        rank->program = &plan->programs[rank->stage->program];
        rank->batch = &engine->batch;
        rank->arena = engine->arena;
        rank->state = (StepState){.seed = plan->seed, .step = 0, .train = 1};
        join_groups(engine, rank);
    }
    join_channels(engine);
    if (!check_memory(engine, diag)) return false;
    for (int r = 0; r < engine->n_ranks; r++) {
        if (!allocate_rank(engine, &engine->ranks[r].context, diag)) return false;
        find_scalars(&engine->ranks[r]);
    }
    double allocated = engine_now();
    bool emitted = true;
    int own_threads = omp_get_max_threads();
    omp_set_num_threads(engine->n_threads); /* products are prepared for so many */
    for (int r = 0; emitted && r < engine->n_ranks; r++) {
        emitted = executor_emit(&engine->ranks[r].context, diag);
    }
    omp_set_num_threads(own_threads);
    if (!emitted) return false;
    engine->emit_seconds = engine_now() - allocated;
    return true;
}

static bool start_threads(Engine *engine, Diag *diag) {
    for (int r = 0; r < engine->n_ranks; r++) {
        RankThread *rank = &engine->ranks[r];
        int error = pthread_create(&rank->thread, NULL, rank_main, rank);
        if (error) {
            diag_error(diag, NO_LOC, "cannot start a thread for rank %d: %s", r, strerror(error));
            return false;
        }
        rank->started = true;
    }
    return true;
}

Engine *engine_create(const Plan *plan, const EngineOptions *options, Diag *diag) {
    int n_ranks = mesh_rank_count(&plan->mesh);
    if (n_ranks > 1024) {
        diag_error(diag, NO_LOC, "the plan has %d ranks; one process runs at most 1024", n_ranks);
        return NULL;
    }
    Engine *engine = calloc(1, sizeof(*engine));
    if (!engine) BUG("out of memory");
    int cores = options->n_threads > 0 ? options->n_threads : (int)sysconf(_SC_NPROCESSORS_ONLN);
    engine->plan = plan;
    engine->arena = arena_create();
    engine->n_ranks = n_ranks;
    engine->n_threads = cores > n_ranks ? cores / n_ranks : 1;
    engine->ranks = ARENA_ARRAY(engine->arena, RankThread, n_ranks);
    engine->world = comm_world_create(n_ranks);
    if (options->timeout_seconds > 0) {
        comm_world_set_timeout(engine->world, options->timeout_seconds);
    }
    pthread_mutex_init(&engine->mutex, NULL);
    pthread_cond_init(&engine->wake, NULL);
    pthread_cond_init(&engine->finished, NULL);
    if (!set_up_ranks(engine, diag) || !start_threads(engine, diag)) {
        engine_destroy(engine);
        return NULL;
    }
    return engine;
}

void engine_destroy(Engine *engine) {
    if (!engine) return;
    engine_run(engine, JOB_QUIT, NULL);
    for (int r = 0; r < engine->n_ranks; r++) {
        RankThread *rank = &engine->ranks[r];
        if (rank->started) pthread_join(rank->thread, NULL);
        executor_release(&rank->context);
        size_t bytes = rank->context.stage ? (size_t)rank->context.stage->arena_bytes : 0;
        if (rank->context.memory) munmap(rank->context.memory, bytes ? bytes : 1);
    }
    pthread_mutex_destroy(&engine->mutex);
    pthread_cond_destroy(&engine->wake);
    pthread_cond_destroy(&engine->finished);
    comm_world_destroy(engine->world);
    arena_destroy(engine->arena);
    free(engine);
}

int64_t engine_arena_bytes(const Engine *engine) {
    return engine->arena_bytes;
}

double engine_emit_seconds(const Engine *engine) {
    return engine->emit_seconds;
}

int64_t engine_call_count(const Engine *engine) {
    return engine->ranks[0].context.train.count;
}
