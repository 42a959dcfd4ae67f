#include "runtime/engine.h"

#include "ir/base/clock.h"
#include "runtime/engine_internal.h"

#include "ir/base/host.h"
#include "runtime/cpu/reduce.h"
#include "runtime/launch/control.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A parameter in halves: its last result, the upper one, is as finite as it is. */
static bool is_in_halves(const CallInfo *info, int output) {
    const int last = info->node->n_outputs - 1;
    return output == 0 && last > 0 && info->out[0] == info->out[last];
}

bool engine_check_outputs(Engine *engine, int rank, const CallInfo *info) {
    for (int o = 0; info->node && o < info->node->n_outputs; o++) {
        DType dtype = info->node->types[o].dtype;
        if (!dtype_is_float(dtype) || !info->out[o] || is_in_halves(info, o)) continue;
        Type local =
            type_local(&info->node->types[o], &info->node->shardings[o], &engine->plan->mesh);
        int64_t count = type_elements(&local);
        const void *data =
            engine->backend->view(engine, info->out[o], (size_t)(count * dtype_bytes(dtype)));
        if (reduce_first_nonfinite(data, dtype, count) < 0) continue;
        engine->bad[rank] = (BadValue){true, *info, o};
        return true;
    }
    return false;
}

/* More than the machine has would be killed half-way through: say so before. */
bool engine_check_host_memory(const Engine *engine, int first, int n, int n_on_host, bool offloaded,
                              Diag *diag) {
    int64_t total = 0;
    const int n_ranks = n * n_on_host;
    for (int r = first; r < first + n; r++) {
        const Stage *stage = engine->ranks[r].stage;
        int64_t bytes = plan_host_bytes(engine->plan, stage);
        if (!offloaded) bytes += stage->arena_bytes;
        total += bytes * n_on_host;
    }
    int64_t have = host_memory_bytes();
    if (total < have) return true;
    if (offloaded) {
        diag_error(diag, NO_LOC,
                   "the plan keeps %.1f GiB of %s of %d rank%s in this machine's memory; %s %.1f "
                   "GiB: offload less, or use fewer of its GPUs",
                   (double)total / (1 << 30), plan_offload_phrase(engine->plan), n_ranks,
                   n_ranks == 1 ? "" : "s", host_memory_phrase(), (double)have / (1 << 30));
        return false;
    }
    const char *why;
    bool lacks_gpu = engine->plan->cuda && !engine_cuda_available(&why);
    diag_error(diag, NO_LOC, "the plan's %d rank%s need%s %.1f GiB; %s %.1f GiB%s%s", n_ranks,
               n_ranks == 1 ? "" : "s", n_ranks == 1 ? "s" : "", (double)total / (1 << 30),
               host_memory_phrase(), (double)have / (1 << 30),
               lacks_gpu ? "; the plan is for CUDA, but no GPU can be used: " : "",
               lacks_gpu ? why : "");
    return false;
}

const RankContext *engine_own_rank(const Engine *engine) {
    for (int r = 0; r < engine->n_ranks; r++) {
        if (engine_is_local(&engine->ranks[r])) return &engine->ranks[r];
    }
    BUG("no rank is here");
}

const void *engine_view(Engine *engine, const RankContext *rank, Value value) {
    size_t bytes =
        (size_t)type_local_bytes(value_type(value), value_sharding(value), &engine->plan->mesh);
    return engine_view_bytes(engine, rank, value, 0, bytes);
}

const void *engine_view_bytes(Engine *engine, const RankContext *rank, Value value, size_t from,
                              size_t bytes) {
    const void *own = NULL;
    if (engine_is_local(rank)) {
        const char *at = executor_address(rank, value, 0);
        own = engine->backend->view(engine, at + from, bytes);
        if (!engine->control) return own;
    }
    if (bytes > engine->shared_bytes) {
        free(engine->shared);
        engine->shared = malloc(bytes);
        if (!engine->shared) BUG("out of memory for %zu bytes", bytes);
        engine->shared_bytes = bytes;
    }
    if (own) memcpy(engine->shared, own, bytes);
    /* Lost ranks: not numbers, so that nobody goes on with them; see engine_job_failed. */
    if (!control_share(engine->control, rank->rank, engine->shared, bytes))
        memset(engine->shared, 0xff, bytes);
    return engine->shared;
}

bool engine_copy_failed(const Engine *engine, Diag *diag) {
    const EngineBackend *backend = engine->backend;
    const char *why = backend->copy_failure ? backend->copy_failure(engine) : NULL;
    if (why) diag_error(diag, NO_LOC, "a copy from or to the device failed: %s", why);
    return why != NULL;
}

bool engine_job_failed(const Engine *engine, Diag *diag) {
    const char *why;
    if (engine_copy_failed(engine, diag)) return true;
    if (!engine->control || !control_failed(engine->control, &why)) return false;
    diag_error(diag, NO_LOC, "%s", why);
    return true;
}

/* All label_share of a plan leave out one label: there is one number a step. */
static bool find_left_out_label(Engine *engine, Diag *diag) {
    engine->left_out_label = NO_LABEL;
    for (int p = 0; p < engine->plan->n_programs; p++) {
        const Graph *graph = engine->plan->programs[p].graph;
        for (int n = 0; n < graph->n_nodes; n++) {
            const Node *node = graph->nodes[n];
            if (node->op != OP_LABEL_SHARE) continue;
            double value = node_float(node, ATTR_value, 0);
            bool fits = value >= -1 && value <= INT32_MAX && value == floor(value);
            if (fits && engine->left_out_label == NO_LABEL) engine->left_out_label = (int64_t)value;
            if (fits && engine->left_out_label == (int64_t)value) continue;
            diag_error(
                diag, node->loc,
                "label_share: value is %g: must be a label, the same wherever it is asked for",
                value);
            return false;
        }
    }
    return true;
}

/* For the log's sake. */
static bool is_value_name(const char *name) {
    size_t length = strlen(name);
    for (size_t i = 0; i < length; i++) {
        if (!isalnum((unsigned char)name[i]) && !strchr("_.", name[i])) return false;
    }
    return length > 0 && length <= OUTPUT_MOST_NAME;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(((const StepValue *)a)->name, ((const StepValue *)b)->name);
}

/* What the update puts out for people and is not the planner's own. Stages that are alike share a
 * program: no name counts twice. */
static bool find_values(Engine *engine, Diag *diag) {
    static const char *const OWN[] = OUTPUT_OWN_NAMES;
    int capacity = 0;
    for (int p = 0; p < engine->plan->n_programs; p++) {
        const Graph *graph = engine->plan->programs[p].graph;
        for (int n = 0; n < graph->n_nodes; n++) {
            const Node *node = graph->nodes[n];
            if (node->op != OP_OUTPUT || node->phase != PHASE_UPDATE) continue;
            StepValue value = {node_string(node, ATTR_name), NAN};
            bool known = false;
            for (size_t i = 0; i < sizeof(OWN) / sizeof(OWN[0]); i++) {
                known |= strcmp(value.name, OWN[i]) == 0;
            }
            for (int i = 0; i < engine->n_values; i++) {
                known |= strcmp(value.name, engine->values[i].name) == 0;
            }
            if (known) continue;
            if (engine->n_values == OUTPUT_MOST_REPORTED || !is_value_name(value.name)) {
                diag_error(diag, node->loc,
                           "output '%.64s': at most %d single numbers are told of "
                           "a step, by names of up to %d letters, digits, '_' and "
                           "'.'",
                           value.name, OUTPUT_MOST_REPORTED, OUTPUT_MOST_NAME);
                return false;
            }
            ARENA_PUSH(engine->arena, engine->values, engine->n_values, capacity, value);
        }
    }
    if (engine->n_values > 0) { /* stages know no order of the model's */
        qsort(engine->values, (size_t)engine->n_values, sizeof(engine->values[0]), compare_names);
    }
    return true;
}

Engine *engine_create(const Plan *plan, const EngineOptions *options, Diag *diag) {
    int n_ranks = mesh_rank_count(&plan->mesh);
    if (n_ranks > 1024 && !options->control) {
        diag_error(diag, NO_LOC, "the plan has %d ranks; one process runs at most 1024", n_ranks);
        return NULL;
    }
    Engine *engine = calloc(1, sizeof(*engine));
    if (!engine) BUG("out of memory");
    engine->plan = plan;
    engine->arena = arena_create();
    engine->backend = options->device == DEVICE_CPU ? &CPU_BACKEND : cuda_backend();
    engine->n_ranks = n_ranks;
    engine->control = options->control;
    engine->is_first = !options->control || options->rank == 0;
    engine->ranks = ARENA_ARRAY(engine->arena, RankContext, n_ranks);
    engine->bad = ARENA_ARRAY(engine->arena, BadValue, n_ranks);
    for (int r = 0; r < n_ranks; r++) engine->ranks[r] = rank_context(plan, r, engine->arena);
    engine_find_leaves(engine);
    engine->scales_loss = plan_loss_scaling(plan).initial != 0;
    engine->skips_spikes = plan_skips_spikes(plan);
    engine->most_norm_squared = INFINITY;
    if (!engine_prepare_averages(engine, diag) || !find_values(engine, diag) ||
        !find_left_out_label(engine, diag) || !engine->backend->create(engine, options, diag)) {
        engine_destroy(engine);
        return NULL;
    }
    return engine;
}

void engine_destroy(Engine *engine) {
    if (!engine) return;
    engine->backend->destroy(engine);
    free(engine->shared);
    for (int i = 0; i < 2; i++) free(engine->swapped[i]);
    arena_destroy(engine->arena);
    free(engine);
}

int64_t engine_arena_bytes(const Engine *engine) {
    return engine->arena_bytes;
}

int64_t engine_host_bytes(const Engine *engine) {
    return engine->host_bytes;
}

int64_t engine_message_bytes(const Engine *engine) {
    return engine->message_bytes;
}

const char *engine_tuning(const Engine *engine) {
    return engine->tuning;
}

const char *engine_attention(const Engine *engine) {
    return engine->attention;
}

const char *engine_graphs(const Engine *engine) {
    return engine->graphs;
}

double engine_emit_seconds(const Engine *engine) {
    return engine->emit_seconds;
}

int64_t engine_call_count(const Engine *engine) {
    return engine->backend->call_count(engine);
}

double engine_replay_seconds(Engine *engine) {
    return engine->backend->replay_seconds(engine);
}
