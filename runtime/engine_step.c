/* Steps, evaluation, logits, and what to say when a value is not finite. */
#include "ir/base/clock.h"
#include "ir/masters.h"
#include "ir/ops/round_blocks.h"
#include "runtime/engine_internal.h"

#include "runtime/cpu/reduce.h"
#include "runtime/shard.h"

#include <inttypes.h>
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
static double read_output(Engine *engine, const char *name) {
    for (int r = 0; r < engine->n_ranks; r++) {
        const RankContext *rank = &engine->ranks[r];
        Value value = find_output(rank, name, PHASE_UPDATE);
        if (value.node) return *(const float *)engine_view(engine, rank, value);
    }
    return NAN;
}

/* For %g: a NaN has no sign. */
static double printed(double x) {
    return isnan(x) ? (double)NAN : x;
}

/* The first parameter, or copy of one, of any rank that has such a number. One in halves is a
 * number by its upper half, a copy (ir/masters.h). */
static const Node *find_bad(Engine *engine, bool copies, int *out_rank) {
    for (int r = 0; r < engine->n_ranks; r++) {
        const RankContext *rank = &engine->ranks[r];
        const Graph *graph = rank->program->graph;
        for (int n = 0; n < graph->n_nodes; n++) {
            Node *node = graph->nodes[n];
            if (copies ? !node_is_copy(node) : node->op != OP_PARAM) continue;
            if (!copies && master_upper(graph, node)) continue;
            Type local = type_local(&node->types[0], &node->shardings[0], &engine->plan->mesh);
            const void *data = engine_view(engine, rank, node_value(node, 0));
            if (reduce_first_nonfinite(data, local.dtype, type_elements(&local)) < 0) continue;
            *out_rank = r;
            return node;
        }
    }
    return NULL;
}

static bool report_bad_parameter(Engine *engine, int64_t step, double loss, Diag *diag) {
    int r = 0;
    const Node *node = find_bad(engine, false, &r);
    const char *held = NULL; /* what a copy has its numbers as; bf16 holds all that f32 does */
    if (!node) {
        node = find_bad(engine, true, &r);
        if (!node) return false;
        if (node_is_rounded(node)) held = node_string(node, ATTR_blocks);
        if (!held && node->types[0].dtype == DTYPE_F16) held = dtype_name(DTYPE_F16);
    }
    if (engine_job_failed(engine, diag)) return true;
    const char *name = engine_leaf_name(&engine->ranks[r], node, engine->arena);
    const char *what = held ? arena_printf(engine->arena, "has numbers that %s cannot hold", held)
                            : "is not finite";
    diag_error(diag, node->loc, "step %lld: loss is %g: parameter '%s' %s (rank %d)",
               (long long)step, printed(loss), name, what, r);
    return true;
}

/* Orders what ranks saw by when it would have happened on one rank. */
static bool is_earlier(const RankContext *a_rank, const CallInfo *a, const RankContext *b_rank,
                       const CallInfo *b) {
    int a_phase = (int)a->node->phase, b_phase = (int)b->node->phase;
    if (a->micro != b->micro && a_phase != PHASE_UPDATE && b_phase != PHASE_UPDATE) {
        return a->micro < b->micro;
    }
    if (a_phase != b_phase) return a_phase < b_phase;
    Path path = plan_path(a_rank->plan);
    int a_chunk = path_global(path, a_rank->stage_number, a->node->chunk);
    int b_chunk = path_global(path, b_rank->stage_number, b->node->chunk);
    if (a_chunk != b_chunk) return a_phase != PHASE_FORWARD ? a_chunk > b_chunk : a_chunk < b_chunk;
    return a->node->id < b->node->id;
}

/* The update left the weights alone (its clip factor is not finite), so the step can be run again
 * with every result looked at. */
static void report_not_finite(Engine *engine, int64_t step, double loss, double norm, Diag *diag) {
    int first = -1;
    if (report_bad_parameter(engine, step, loss, diag)) return;
    for (int r = 0; r < engine->n_ranks; r++) engine->bad[r].found = false;
    if (!engine->backend->run(engine, JOB_CHECK, diag)) return;
    for (int r = 0; r < engine->n_ranks; r++) {
        if (!engine->bad[r].found) continue;
        if (first < 0 || is_earlier(&engine->ranks[r], &engine->bad[r].call, &engine->ranks[first],
                                    &engine->bad[first].call)) {
            first = r;
        }
    }
    if (first < 0) {
        diag_error(diag, NO_LOC, "step %lld: loss is %g, gradient norm %g", (long long)step,
                   printed(loss), printed(norm));
        return;
    }
    const CallInfo *call = &engine->bad[first].call;
    const Node *node = call->node;
    int block = executor_block(&engine->ranks[first], node);
    char where[48] = "";
    if (block != NO_BLOCK) snprintf(where, sizeof(where), " of block %d", block);
    diag_error(diag, node->loc,
               "step %lld: loss is %g, gradient norm %g; first value that is not finite: %%%d, "
               "result of %s%s (rank %d, micro-batch %d)",
               (long long)step, printed(loss), printed(norm), node->id, OPS[node->op].name, where,
               first, call->micro);
}

static int64_t all_labels(const Engine *engine) {
    return (int64_t)engine->plan->global_batch * engine->plan->seq;
}

bool engine_counts_label(const Engine *engine, int32_t label) {
    return engine->left_out_label == NO_LABEL || label != engine->left_out_label;
}

int64_t engine_count_labels(const Engine *engine, const int32_t *labels) {
    int64_t total = all_labels(engine), count = 0;
    if (engine->left_out_label == NO_LABEL) return total;
    for (int64_t i = 0; i < total; i++) count += labels[i] != engine->left_out_label;
    return count;
}

/* Of the labels of the global batch. A batch of none but left out ones has no loss: 0 / 1. */
static double label_share(const Engine *engine, const int32_t *labels) {
    int64_t count = engine_count_labels(engine, labels);
    return (double)(count ? count : 1) / (double)all_labels(engine);
}

/* Of a global batch: what has been set for it, too. */
static StepInput batch_input(const Engine *engine, const int32_t *tokens, const int32_t *labels) {
    StepInput input = {.tokens = tokens,
                       .labels = labels,
                       .reference = engine->reference,
                       .label_share = label_share(engine, labels)};
    memcpy(input.numbers, engine->numbers, sizeof(input.numbers));
    return input;
}

bool engine_step(Engine *engine, int64_t step, const int32_t *tokens, const int32_t *labels,
                 double learning_rate, StepResult *out, Diag *diag) {
    double start = clock_now();
    engine->input = batch_input(engine, tokens, labels);
    engine->input.step = step;
    engine->input.train = true;
    engine->input.learning_rate = learning_rate;
    engine->input.update = step - engine->n_spikes;
    engine->input.most_norm_squared = engine->most_norm_squared;
    engine->last_step = engine->input;
    const EngineJob job = engine->measures ? JOB_MEASURE : JOB_TRAIN;
    if (!engine->backend->run(engine, job, diag)) return false;
    out->loss = read_output(engine, "loss");
    const double norm_squared = read_output(engine, "grad_norm_squared");
    out->grad_norm = sqrt(norm_squared);
    out->loss_scale = engine->scales_loss ? read_output(engine, "loss_scale") : 0;
    for (int i = 0; i < engine->n_values; i++) {
        engine->values[i].value = read_output(engine, engine->values[i].name);
    }
    out->n_values = engine->n_values;
    out->values = engine->values;
    out->seconds = clock_now() - start;
    if (engine_job_failed(engine, diag)) return false; /* a rank was lost after its last message */
    /* As the update has decided, of the same numbers. */
    out->spike = engine->skips_spikes && isfinite(norm_squared) &&
                 norm_squared > (double)engine->most_norm_squared;
    engine->n_spikes += out->spike;
    out->skipped = engine->scales_loss && isfinite(out->loss) && isfinite(out->loss_scale) &&
                   !isfinite(out->grad_norm);
    engine->n_skipped = out->skipped ? engine->n_skipped + 1 : 0;
    if (out->skipped && engine->n_skipped < ENGINE_MOST_SKIPPED) return true;
    if (isfinite(out->loss) && isfinite(out->grad_norm)) return true;
    if (out->skipped) {
        bool fixed = plan_loss_scaling(engine->plan).interval == 0;
        diag_error(diag, NO_LOC, "%d steps in a row had gradients that are not finite",
                   engine->n_skipped);
        diag_note(diag, NO_LOC,
                  fixed ? "the loss scale is fixed at %.10g: plan with a smaller --loss-scale, or "
                          "with a dynamic one"
                        : "the loss scale has come down to %.10g: it is not the scale",
                  out->loss_scale);
    }
    report_not_finite(engine, step, out->loss, out->grad_norm, diag);
    return false;
}

bool engine_measure_gradient(Engine *engine, int64_t step, const int32_t *tokens,
                             const int32_t *labels, double *out_norm, Diag *diag) {
    const float never = -1;
    engine->input = batch_input(engine, tokens, labels);
    engine->input.step = step;
    engine->input.train = true;
    engine->input.update = step - engine->n_spikes;
    engine->input.most_norm_squared = never;
    if (!engine->backend->run(engine, JOB_TRAIN, diag)) return false;
    *out_norm = sqrt(read_output(engine, "grad_norm_squared"));
    return !engine_job_failed(engine, diag);
}

/* An accumulated number of a forward run: this rank's share, if it is one to count. */
static bool number_share(Engine *engine, const RankContext *rank, const char *name, double *out) {
    const Graph *graph = rank->program->graph;
    for (int n = 0; n < graph->n_nodes; n++) {
        Node *node = graph->nodes[n];
        if (node->op != OP_ACCUMULATOR || strcmp(node_string(node, ATTR_name), name) != 0) {
            continue;
        }
        for (int axis = 0; axis < N_MESH_AXES; axis++) {
            bool partial = node->shardings[0].partial >> axis & 1;
            if (axis != MESH_P && !partial && rank->coord.at[axis] != 0) return false;
        }
        *out = *(const float *)engine_view(engine, rank, node_value(node, 0));
        return true;
    }
    return false;
}

bool engine_evaluate(Engine *engine, const int32_t *tokens, const int32_t *labels, double *out_loss,
                     Diag *diag) {
    double share;
    engine->input = batch_input(engine, tokens, labels);
    if (!engine->backend->run(engine, JOB_FORWARD, diag)) return false;
    *out_loss = 0;
    for (int r = 0; r < engine->n_ranks; r++) {
        if (number_share(engine, &engine->ranks[r], "loss", &share)) *out_loss += share;
    }
    return !engine_job_failed(engine, diag);
}

bool engine_evaluated(Engine *engine, const char *name, double *out) {
    bool found = false;
    double share;
    *out = 0;
    for (int i = 0; i < engine->n_values; i++) found |= strcmp(engine->values[i].name, name) == 0;
    for (int r = 0; found && r < engine->n_ranks; r++) {
        if (number_share(engine, &engine->ranks[r], name, &share)) *out += share;
    }
    return found;
}

void engine_set_reference(Engine *engine, const float *reference) {
    engine->reference = reference;
}

void engine_set_numbers(Engine *engine, TokenNumbers which, const float *numbers) {
    engine->numbers[which] = numbers;
}

void engine_set_stored(Engine *engine, const int32_t *words, const float *logprobs) {
    engine->numbers[TOKEN_STORED_WORDS] = (const float *)words; /* copied as 4 bytes each */
    engine->numbers[TOKEN_STORED_LOGPROBS] = logprobs;
}

int64_t engine_forward_batch(const Engine *engine) {
    return (int64_t)engine->plan->micro_batch * mesh_batch_parts(&engine->plan->mesh);
}

int64_t engine_logits_width(const Engine *engine) {
    for (int r = 0; r < engine->n_ranks; r++) {
        Value logits = find_output(&engine->ranks[r], "logits", PHASE_FORWARD);
        const Type *type = logits.node ? value_type(logits) : NULL;
        if (type && type->rank > 0) return type->dims[type->rank - 1];
    }
    return 0;
}

static bool is_of_tokens(Value logits) {
    const Type *type = value_type(logits);
    return type->rank > 0 && type->axes[type->rank - 1] == AXIS_VOCAB;
}

/* Labels are copied too where the program reads them; any valid token will do. Where they are
 * classes, none of which every token's number is, nothing has one. */
static const int32_t *labels_for_logits(Engine *engine, const int32_t *tokens, int64_t n) {
    for (int r = 0; r < engine->n_ranks; r++) {
        Value logits = find_output(&engine->ranks[r], "logits", PHASE_FORWARD);
        if (logits.node && is_of_tokens(logits)) return tokens;
    }
    if (engine->no_labels) return engine->no_labels;
    engine->no_labels = ARENA_ARRAY(engine->arena, int32_t, n);
    for (int64_t i = 0; i < n; i++) engine->no_labels[i] = -1;
    return engine->no_labels;
}

bool engine_logits(Engine *engine, const int32_t *tokens, float *out_logits, Diag *diag) {
    bool found = false;
    int64_t n = engine_forward_batch(engine) * engine->plan->seq;
    engine->input = (StepInput){
        .tokens = tokens,
        .labels = labels_for_logits(engine, tokens, n),
        .is_first = true,
        .label_share = 1,
    };
    if (!engine->backend->run(engine, JOB_FIRST, diag)) return false;
    for (int r = 0; r < engine->n_ranks; r++) {
        const RankContext *rank = &engine->ranks[r];
        Value logits = find_output(rank, "logits", PHASE_FORWARD);
        if (!logits.node) continue;
        const Type *type = value_type(logits);
        int64_t width = type->rank ? type->dims[type->rank - 1] : 0;
        if (value_sharding(logits)->partial || width > engine->plan->vocab ||
            (is_of_tokens(logits) && width != engine->plan->vocab) ||
            type_elements(type) != n * width) {
            diag_error(diag, logits.node->loc,
                       "output 'logits' is not [batch, seq, vocab], nor of fewer classes");
            return false;
        }
        Shard shard =
            shard_of(value_type(logits), value_sharding(logits), &engine->plan->mesh, rank->coord);
        shard_gather(&shard, engine_view(engine, rank, logits), out_logits);
        found = true;
    }
    if (!found) diag_error(diag, NO_LOC, "the model has no output 'logits'");
    return found && !engine_job_failed(engine, diag);
}

/* An output of the first micro-batch, `name` or other_name, whole: f32 of `count` numbers. */
static bool read_first(Engine *engine, const int32_t *tokens, const int32_t *labels,
                       const char *name, const char *other_name, int64_t count, float *out,
                       Diag *diag) {
    bool found = false;
    engine->input =
        (StepInput){.tokens = tokens, .labels = labels, .is_first = true, .label_share = 1};
    if (!engine->backend->run(engine, JOB_FIRST, diag)) return false;
    for (int r = 0; r < engine->n_ranks; r++) {
        const RankContext *rank = &engine->ranks[r];
        Value scores = find_output(rank, name, PHASE_FORWARD);
        if (!scores.node && other_name) scores = find_output(rank, other_name, PHASE_FORWARD);
        if (!scores.node) continue;
        const Type *type = value_type(scores);
        if (value_sharding(scores)->partial || type->dtype != DTYPE_F32 ||
            type_elements(type) != count) {
            diag_error(diag, scores.node->loc, "output '%s' is not %" PRId64 " numbers in f32",
                       node_string(scores.node, ATTR_name), count);
            return false;
        }
        Shard shard = shard_of(type, value_sharding(scores), &engine->plan->mesh, rank->coord);
        shard_gather(&shard, engine_view(engine, rank, scores), out);
        found = true;
    }
    if (!found) diag_error(diag, NO_LOC, "the model has no output '%s'", name);
    return found && !engine_job_failed(engine, diag);
}

bool engine_row_scores(Engine *engine, const int32_t *tokens, const int32_t *labels,
                       float *out_scores, Diag *diag) {
    return read_first(engine, tokens, labels, OUTPUT_ROW_SCORES, OUTPUT_REWARDS,
                      engine_forward_batch(engine), out_scores, diag);
}

bool engine_token_scores(Engine *engine, const int32_t *tokens, const int32_t *labels,
                         float *out_scores, Diag *diag) {
    return read_first(engine, tokens, labels, OUTPUT_TOKEN_SCORES, NULL,
                      engine_forward_batch(engine) * engine->plan->seq, out_scores, diag);
}

void engine_vectors_shape(const Engine *engine, int64_t *out_texts, int64_t *out_width) {
    *out_texts = *out_width = 0;
    for (int r = 0; r < engine->n_ranks; r++) {
        Value vectors = find_output(&engine->ranks[r], OUTPUT_VECTORS, PHASE_FORWARD);
        const Type *type = vectors.node ? value_type(vectors) : NULL;
        if (!type || type->rank != 3) continue;
        *out_texts = type->dims[1];
        *out_width = type->dims[2];
    }
}

bool engine_vectors(Engine *engine, const int32_t *tokens, const int32_t *labels,
                    float *out_vectors, Diag *diag) {
    int64_t texts, width;
    engine_vectors_shape(engine, &texts, &width);
    return read_first(engine, tokens, labels, OUTPUT_VECTORS, NULL,
                      engine_forward_batch(engine) * texts * width, out_vectors, diag);
}

bool engine_profile_step(Engine *engine, double *out_op_seconds, Diag *diag) {
    if (!engine->backend->run(engine, JOB_PROFILE, diag)) return false;
    memcpy(out_op_seconds, engine->op_seconds, sizeof(engine->op_seconds));
    return true;
}

bool engine_trace_step(Engine *engine, Arena *arena, EngineSpan **out_spans, int *out_count,
                       Diag *diag) {
    if (engine->last_step.step == 0) {
        diag_error(diag, NO_LOC, "a trace repeats the last step, and there was none");
        return false;
    }
    if (!engine->backend->trace) {
        diag_error(diag, NO_LOC, "steps on device %s cannot be traced", engine->backend->name);
        return false;
    }
    engine->input = engine->last_step;
    engine->input.step++;
    engine->input.update = engine->input.step - engine->n_spikes;
    return engine->backend->trace(engine, arena, out_spans, out_count, diag);
}
