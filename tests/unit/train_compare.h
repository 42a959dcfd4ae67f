/* A run under some layout against the same training on one rank: what must agree, and how closely.
 *
 * fp32. What sums in another order cost at most, by measurement over some 2000 random layouts
 * (test_random_layouts): losses 3e-7 relative, gradients of the first step 2e-6 of each tensor's
 * norm. Weights come out less close: AdamW divides a gradient by its own size, so an element whose
 * gradient is rounding moves by up to the learning rate either way, unless eps is larger than that
 * rounding. Where rounding is all there is, as for a key bias (attn.bk: softmax does not see what
 * is added to a whole row of scores), the weights say nothing and are left out; the gradient is
 * compared with zero instead.
 */
#ifndef TESTS_UNIT_TRAIN_COMPARE_H
#define TESTS_UNIT_TRAIN_COMPARE_H

#include "tests/unit/check.h"
#include "tests/unit/train_fixture.h"

/* The largest relative differences seen by this program: how much the limits leave. */
static struct { double loss, norm, gradient, weight; } compare_worst;

static inline double compare_note(double *worst, double error) {
    if (!(error <= *worst)) *worst = error;
    return error;
}

static inline void compare_print_worst(void) {
    printf("largest differences: loss %.2g, gradient norm %.2g, gradient %.2g, weight %.2g\n",
           compare_worst.loss, compare_worst.norm, compare_worst.gradient, compare_worst.weight);
}

static inline bool is_key_bias(const Run *run, const char *name) {
    const Graph *graph = run->model->graph;
    size_t length = strlen(name);
    bool turned = false; /* by rotary positions: then scores see it */
    for (int n = 0; n < graph->n_nodes; n++) turned |= graph->nodes[n]->op == OP_ROTARY;
    const bool sees = strstr(name, ".vision.") != NULL; /* its positions do not turn */
    return (!turned || sees) && length > 3 && strcmp(name + length - 3, ".bk") == 0;
}

static inline void compare_losses(const Run *run, const Run *one, int n_steps) {
    for (int step = 0; step < n_steps; step++) {
        double error = fabs((run->losses[step] - one->losses[step]) / one->losses[step]);
        CHECK(compare_note(&compare_worst.loss, error) < 1e-5,
              "loss of step %d is %.8f, on one rank %.8f", step + 1, run->losses[step],
              one->losses[step]);
        error = fabs(run->norms[step] - one->norms[step]) / one->norms[step];
        CHECK(compare_note(&compare_worst.norm, error) < 1e-4,
              "gradient norm of step %d is %.8f, on one rank %.8f", step + 1, run->norms[step],
              one->norms[step]);
    }
}

/* Of steps first .. end - 1, counted from 0. */
static inline double mean_loss(const Run *run, int first, int end) {
    double sum = 0;
    for (int step = first; step < end; step++) sum += run->losses[step];
    return sum / (end - first);
}

/* Those kept of `run`, which has its parameters in an order of its own. */
static inline void compare_gradients(const Run *run, const Run *one) {
    for (int i = 0; i < run->n_params; i++) {
        int k = 0;
        while (k < one->n_params && strcmp(one->names[k], run->names[i]) != 0) k++;
        CHECK(k < one->n_params, "'%s' is not there on one rank", run->names[i]);
        if (k == one->n_params || !run->gradients[i]) continue;
        CHECK(one->gradients[k], "no gradient of '%s' on one rank", run->names[i]);
        if (!one->gradients[k]) continue;
        int64_t n = type_elements(&run->types[i]);
        if (is_key_bias(run, run->names[i])) {
            CHECK(largest(run->gradients[i], n) < 1e-6, "gradient of '%s' is %g, not zero",
                  run->names[i], largest(run->gradients[i], n));
            continue;
        }
        double error = relative_distance(run->gradients[i], one->gradients[k], n);
        CHECK(compare_note(&compare_worst.gradient, error) < 1e-5,
              "gradient of '%s' differs by %.3g of its norm", run->names[i], error);
    }
}

static inline void compare_weights(Run *run, Run *one) {
    CHECK(run->n_params == one->n_params, "%d parameters, on one rank %d", run->n_params,
          one->n_params);
    for (int i = 0; i < one->n_params; i++) {
        int64_t n = type_elements(&one->types[i]);
        float *ours = ARENA_ARRAY(run->arena, float, n);
        const float *theirs = run_weight(one, i);
        CHECK(engine_read_parameter(run->engine, one->names[i], ours), "no '%s'", one->names[i]);
        if (is_key_bias(one, one->names[i])) continue;
        double error = relative_distance(ours, theirs, n);
        /* Steps divide by the size of gradients, of which some are little more than rounding: 2e-4
         * was seen of biases, by processors of AVX2. */
        CHECK(compare_note(&compare_worst.weight, error) < 5e-4, "'%s' differs by %.3g of its norm",
              one->names[i], error);
    }
}

/* The engine took what the plan says, to the byte. */
static inline void compare_memory(const Run *run) {
    int64_t planned = 0, host = 0;
    for (int s = 0; s < run->plan->n_stages; s++) {
        const Stage *stage = &run->plan->stages[s];
        int n_ranks = mesh_rank_count(&run->plan->mesh) / run->plan->n_stages;
        planned += stage->arena_bytes * n_ranks;
        host += plan_host_bytes(run->plan, stage) * n_ranks;
    }
    CHECK(engine_host_bytes(run->engine) == host, "%lld bytes beside arenas, planned %lld",
          (long long)engine_host_bytes(run->engine), (long long)host);
    CHECK(engine_arena_bytes(run->engine) == planned, "%lld bytes in arenas, planned %lld",
          (long long)engine_arena_bytes(run->engine), (long long)planned);
}

static inline void compare_runs(Run *run, Run *one, int n_steps) {
    compare_losses(run, one, n_steps);
    compare_gradients(run, one);
    compare_weights(run, one);
    compare_memory(run);
}

/* Of steps first .. end - 1, counted from 0, and of the weights after them, every bit. */
static inline void compare_to_the_bit(Run *run, Run *other, int first, int end) {
    for (int step = first; step < end; step++) {
        CHECK(run->losses[step] == other->losses[step], "loss of step %d is %.9g, not %.9g",
              step + 1, run->losses[step], other->losses[step]);
        CHECK(run->norms[step] == other->norms[step], "norm of step %d is %.9g, not %.9g", step + 1,
              run->norms[step], other->norms[step]);
    }
    for (int i = 0; i < other->n_params; i++) {
        size_t bytes = (size_t)type_elements(&other->types[i]) * sizeof(float);
        const float *ours = run_weight(run, i), *theirs = run_weight(other, i);
        CHECK(ours && theirs && strcmp(run->names[i], other->names[i]) == 0, "'%s' is not there",
              other->names[i]);
        if (ours && theirs)
            CHECK(memcmp(ours, theirs, bytes) == 0, "'%s' differs", other->names[i]);
    }
}

static inline const char *layout_name(const char *model, const Layout *l, char *text, size_t size) {
    char chunks[16] = "", again[32] = "", zero[16] = "", context[32] = "", replicas[16] = "";
    char lanes[24] = "";
    if (run_context > 1 || run_experts > 1) {
        snprintf(context, sizeof(context), " c=%d e=%d", run_context, run_experts);
    }
    if (run_lanes > 1) snprintf(lanes, sizeof(lanes), " in %d lanes", run_lanes);
    if (run_replicas > 1) snprintf(replicas, sizeof(replicas), " r=%d", run_replicas);
    if (run_zero) snprintf(zero, sizeof(zero), " zero %d", run_zero);
    if (l->n_chunks > 1) snprintf(chunks, sizeof(chunks), " x%d", l->n_chunks);
    if (run_recompute != RECOMPUTE_NONE) {
        snprintf(again, sizeof(again), ", recompute %s", recompute_mode_name(run_recompute));
    }
    int length = snprintf(text, size, "%s: t=%d%s d=%d%s p=%d %s%s%s%s, micro-batch %d%s%s%s",
                          model, l->t, context, l->d, replicas, l->p, l->schedule, chunks,
                          l->sequence_parallel ? " seq" : "", zero, l->micro_batch, lanes,
                          l->split ? ", uneven" : "", again);
    return length < 0 ? model : text;
}

/* --- a model under several layouts --- */

typedef struct TrainingSetup {
    const char *path; /* the model's */
    int global_batch, n_steps;
    double learning_rate;
} TrainingSetup;

typedef struct LayoutCase {
    Layout layout;
    Recompute recompute;
    int zero;
} LayoutCase;

static inline bool start_layout(Run *run, const TrainingSetup *training, const Layout *layout,
                                bool text) {
    return run_plan(run, training->path, NULL, 0, layout, training->global_batch, text) &&
           run_start(run);
}

static inline bool start_on_one_rank(Run *one, const TrainingSetup *training) {
    const Layout alone = {1, 1, 1, training->global_batch, 1, "1f1b", false, NULL, 0};
    return start_layout(one, training, &alone, false);
}

static inline bool run_training(Run *run, const TrainingSetup *training) {
    return run_steps_keeping(run, training->n_steps, training->learning_rate);
}

/* `also` asks more of the run; may be NULL. */
static inline void check_case(const TrainingSetup *training, const LayoutCase *c, Run *one,
                              void (*also)(Run *run)) {
    char name[160];
    Run run;
    run_recompute = c->recompute;
    run_zero = c->zero;
    check_begin(layout_name(training->path, &c->layout, name, sizeof(name)));
    bool done = start_layout(&run, training, &c->layout, true) && run_training(&run, training);
    run_recompute = RECOMPUTE_NONE;
    run_zero = 0;
    CHECK(done, "%s", diag_text(run.diag));
    if (done) compare_runs(&run, one, training->n_steps);
    if (done && also) also(&run);
    run_close(&run);
    check_end();
}

#endif
