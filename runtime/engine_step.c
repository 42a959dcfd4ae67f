/* Steps, evaluation, logits, and what to say when a value is not finite. */
#include "runtime/engine_internal.h"

#include "runtime/cpu/reduce.h"
#include "runtime/shard.h"

#include <math.h>
#include <string.h>

/* The value that an `output` of this name reads on a rank, or NO_VALUE. */
static Value find_output(const RankContext *rank, const char *name, Phase phase) {
    const Graph *graph = rank->program->graph;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (node->op == OP_OUTPUT && node->phase == phase &&
            strcmp(node_string(node, ATTR_name), name) == 0) {
            return node->inputs[0];
        }
    }
    return NO_VALUE;
}

/* A scalar output of the update, complete on every rank that has it. */
static double read_output(const Engine *engine, const char *name) {
    for (int r = 0; r < engine->n_ranks; r++) {
        const RankContext *rank = &engine->ranks[r].context;
        Value value = find_output(rank, name, PHASE_UPDATE);
        if (value.node) return *(const float *)executor_address(rank, value, 0);
    }
    return NAN;
}

static bool report_bad_parameter(Engine *engine, int64_t step, double loss, Diag *diag) {
    for (int r = 0; r < engine->n_ranks; r++) {
        const RankContext *rank = &engine->ranks[r].context;
        const Graph *graph = rank->program->graph;
        for (int n = 0; n < graph->n_nodes; n++) {
            Node *node = graph->nodes[n];
            if (node->op != OP_PARAM) continue;
            Type local = type_local(&node->types[0], &node->shardings[0], &engine->plan->mesh);
            const float *data = executor_address(rank, node_value(node, 0), 0);
            if (reduce_first_nonfinite(data, false, type_elements(&local)) < 0) continue;
            int first = node->block == NO_BLOCK ? 0 : rank->stage->first_block[node->chunk];
            diag_error(diag, node->loc,
                       "step %lld: loss is %g: parameter '%s' is not finite (rank %d)",
                       (long long)step, loss, node_logical_name(node, first, engine->arena), r);
            return true;
        }
    }
    return false;
}

/* Orders what ranks saw by when it would have happened on one rank. */
static bool is_earlier(const RankContext *a_rank, const CallInfo *a, const RankContext *b_rank,
                       const CallInfo *b) {
    int a_phase = (int)a->node->phase, b_phase = (int)b->node->phase;
    if (a->micro != b->micro && a_phase != PHASE_UPDATE && b_phase != PHASE_UPDATE) {
        return a->micro < b->micro;
    }
    if (a_phase != b_phase) return a_phase < b_phase;
    int p = a_rank->plan->mesh.size[MESH_P];
    int a_chunk = a->node->chunk * p + a_rank->stage_number;
    int b_chunk = b->node->chunk * p + b_rank->stage_number;
    if (a_chunk != b_chunk)
        return a_phase == PHASE_BACKWARD ? a_chunk > b_chunk : a_chunk < b_chunk;
    return a->node->id < b->node->id;
}

/* The update left the weights alone (its clip factor is not finite), so the step can be run again
 * with every result looked at. */
static void report_not_finite(Engine *engine, int64_t step, double loss, double norm, Diag *diag) {
    const RankThread *first = NULL;
    if (report_bad_parameter(engine, step, loss, diag)) return;
    for (int r = 0; r < engine->n_ranks; r++) engine->ranks[r].bad.found = false;
    if (!engine_run(engine, JOB_CHECK, diag)) return;
    for (int r = 0; r < engine->n_ranks; r++) {
        const RankThread *rank = &engine->ranks[r];
        if (!rank->bad.found) continue;
        if (!first ||
            is_earlier(&rank->context, &rank->bad.call, &first->context, &first->bad.call)) {
            first = rank;
        }
    }
    if (!first) {
        diag_error(diag, NO_LOC, "step %lld: loss is %g, gradient norm %g", (long long)step, loss,
                   norm);
        return;
    }
    const Node *node = first->bad.call.node;
    int block = executor_block(&first->context, node);
    char where[48] = "";
    if (block != NO_BLOCK) snprintf(where, sizeof(where), " of block %d", block);
    diag_error(diag, node->loc,
               "step %lld: loss is %g, gradient norm %g; first value that is not finite: %%%d, "
               "result of %s%s (rank %d, micro-batch %d)",
               (long long)step, loss, norm, node->id, OPS[node->op].name, where,
               first->context.rank, first->bad.call.micro);
}

static void set_state(Engine *engine, int64_t step, int train, double learning_rate) {
    for (int r = 0; r < engine->n_ranks; r++) {
        RankThread *rank = &engine->ranks[r];
        rank->context.state.step = (uint64_t)step;
        rank->context.state.train = train;
        if (rank->step) *rank->step = (float)step;
        if (rank->learning_rate) *rank->learning_rate = (float)learning_rate;
    }
}

bool engine_step(Engine *engine, int64_t step, const int32_t *tokens, const int32_t *labels,
                 double learning_rate, StepResult *out, Diag *diag) {
    double start = engine_now();
    engine->batch = (HostBatch){tokens, labels};
    set_state(engine, step, 1, learning_rate);
    if (!engine_run(engine, JOB_TRAIN, diag)) return false;
    out->loss = read_output(engine, "loss");
    out->grad_norm = sqrt(read_output(engine, "grad_norm_squared"));
    out->seconds = engine_now() - start;
    if (isfinite(out->loss) && isfinite(out->grad_norm)) return true;
    report_not_finite(engine, step, out->loss, out->grad_norm, diag);
    return false;
}

/* The accumulated loss of a forward run: this rank's share, if it is one to count. */
static bool loss_share(const Engine *engine, const RankContext *rank, double *out) {
    const Graph *graph = rank->program->graph;
    for (int n = 0; n < graph->n_nodes; n++) {
        Node *node = graph->nodes[n];
        if (node->op != OP_ACCUMULATOR || strcmp(node_string(node, ATTR_name), "loss") != 0) {
            continue;
        }
        for (int axis = 0; axis < N_MESH_AXES; axis++) {
            bool partial = node->shardings[0].partial >> axis & 1;
            if (axis != MESH_P && !partial && rank->coord.at[axis] != 0) return false;
        }
        *out = *(const float *)executor_address(rank, node_value(node, 0), 0);
        (void)engine;
        return true;
    }
    return false;
}

bool engine_evaluate(Engine *engine, const int32_t *tokens, const int32_t *labels, double *out_loss,
                     Diag *diag) {
    double share;
    engine->batch = (HostBatch){tokens, labels};
    set_state(engine, 0, 0, 0);
    if (!engine_run(engine, JOB_FORWARD, diag)) return false;
    *out_loss = 0;
    for (int r = 0; r < engine->n_ranks; r++) {
        if (loss_share(engine, &engine->ranks[r].context, &share)) *out_loss += share;
    }
    return true;
}

int64_t engine_forward_batch(const Engine *engine) {
    return (int64_t)engine->plan->micro_batch * engine->plan->mesh.size[MESH_D];
}

bool engine_logits(Engine *engine, const int32_t *tokens, float *out_logits, Diag *diag) {
    bool found = false;
    /* Labels are copied too where the program reads them; any valid token will do. */
    engine->batch = (HostBatch){tokens, tokens};
    set_state(engine, 0, 0, 0);
    if (!engine_run(engine, JOB_FIRST, diag)) return false;
    for (int r = 0; r < engine->n_ranks; r++) {
        const RankContext *rank = &engine->ranks[r].context;
        Value logits = find_output(rank, "logits", PHASE_FORWARD);
        if (!logits.node) continue;
        if (value_sharding(logits)->partial ||
            type_elements(value_type(logits)) !=
                engine_forward_batch(engine) * engine->plan->seq * engine->plan->vocab) {
            diag_error(diag, logits.node->loc, "output 'logits' is not [batch, seq, vocab]");
            return false;
        }
        Shard shard =
            shard_of(value_type(logits), value_sharding(logits), &engine->plan->mesh, rank->coord);
        shard_gather(&shard, executor_address(rank, logits, 0), out_logits);
        found = true;
    }
    if (!found) diag_error(diag, NO_LOC, "the model has no output 'logits'");
    return found;
}

bool engine_profile_step(Engine *engine, double *out_op_seconds, Diag *diag) {
    if (!engine_run(engine, JOB_PROFILE, diag)) return false;
    memcpy(out_op_seconds, engine->ranks[0].op_seconds, sizeof(engine->ranks[0].op_seconds));
    return true;
}

static bool do_nothing(const void *args) {
    __asm__ volatile("" : : "r"(args) : "memory");
    return true;
}

double engine_replay_seconds(Engine *engine) {
    const CallList *list = &engine->ranks[0].context.train;
    CallList empty = {.count = list->count};
    Arena *arena = arena_create();
    enum { REPEATS = 100 };
    empty.calls = ARENA_ARRAY(arena, CpuCall, list->count + 1);
    for (int i = 0; i < list->count; i++) {
        empty.calls[i] = (CpuCall){do_nothing, list->calls[i].args};
    }
    double start = engine_now();
    for (int n = 0; n < REPEATS; n++) {
        for (int i = 0; i < empty.count; i++) {
            if (!empty.calls[i].run(empty.calls[i].args)) break;
        }
    }
    double seconds = (engine_now() - start) / REPEATS;
    arena_destroy(arena);
    return seconds;
}
