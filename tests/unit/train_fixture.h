/* A few training steps of a model under a layout, for tests: from Lua to losses and weights. */
#ifndef TESTS_UNIT_TRAIN_FIXTURE_H
#define TESTS_UNIT_TRAIN_FIXTURE_H

#include "frontend/gguf/gguf_marks.h"
#include "frontend/lua/model.h"
#include "frontend/lua/teacher.h"
#include "planner/planner.h"
#include "runtime/engine.h"
#include "runtime/shard.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TF_MAX_STEPS = 128, TF_MAX_PARAMS = 256 };

typedef struct Layout {
    int t, d, p, micro_batch, n_chunks;
    const char *schedule;
    bool sequence_parallel;
    const int *split;
    int n_split;
} Layout;

/* Of the plans made from now on. */
static DType run_precision = DTYPE_F32;
static DType run_state_dtype = DTYPE_F32;    /* of the optimizer's states */
static DType run_gradient_dtype = DTYPE_F32; /* of those that products make */
static bool run_split_masters = false;       /* copies in bf16 are halves of parameters */
static int run_offload = 0;                  /* percent of states and masters, to the host */
static int run_offload_activations = 0;      /* percent of what blocks keep */
static LossScaling run_loss_scaling = {0};
static double run_ema_decay = 0;      /* of averages of weights; 0: there are none */
static bool run_skips_spikes = false; /* a step's norm may be too large (engine_set_most_norm) */
static int run_zero = 0;
static bool run_join_messages = true; /* of ZeRO-2 and 3 on CUDA */
static int run_context = 1;           /* c */
static int run_experts = 1;           /* e */
static int run_replicas = 1;          /* r */
static int run_expert_parts = 1;
static Recompute run_recompute = RECOMPUTE_NONE;
static int run_frozen_bits = 0;
/* What weights will be quantized to: of GGUF's types; NULL: nothing. */
static const GgufType *run_qat = NULL;
static bool run_cudnn_backward = false;
static int run_vocab_multiple = 0;
static int run_lanes = 1;
static int run_loss_parts = 1;
static bool run_fp8_tensor_cores = false;
static bool run_max_logit = false;
static double run_qk_clip = 0;
/* Cores that engines started from now on use; 0: all. Products this small cost more to divide than
 * to do, and tests run beside each other. */
static int run_threads = 1;

/* What models made from now on learn from; NULL: from labels alone. */
typedef struct RunTeacher {
    const char *path;
    const ModelSetting *settings;
    int n_settings;
    Distillation how;
} RunTeacher;
static const RunTeacher *run_teacher = NULL;

/* One run: owns everything it points to. */
typedef struct Run {
    Arena *arena;
    Diag *diag;
    Model *model;
    Plan *plan;
    Engine *engine;
    int n_params;
    const char *names[TF_MAX_PARAMS];
    Type types[TF_MAX_PARAMS];
    double losses[TF_MAX_STEPS], norms[TF_MAX_STEPS], scales[TF_MAX_STEPS];
    int n_gradients;                 /* kept ones */
    float *gradients[TF_MAX_PARAMS]; /* run_keep_gradients: f32, whole; NULL: not to be had */
} Run;

static inline void run_close(Run *run) {
    engine_destroy(run->engine);
    arena_destroy(run->arena);
    diag_destroy(run->diag);
    *run = (Run){0};
}

/* With its teacher, if there is one. NULL: reported. */
static inline Model *run_load_model(Run *run, const char *path, const ModelSetting *settings,
                                    int n_settings, int64_t batch) {
    if (!run_teacher) {
        Model *alone = model_load(run->arena, path, settings, n_settings, batch, run->diag);
        return alone && run_qat && !gguf_mark(alone, run_qat, run->diag) ? NULL : alone;
    }
    const RunTeacher *from = run_teacher;
    Model *model =
        model_load_student(run->arena, path, settings, n_settings, batch, &from->how, run->diag);
    if (from->how.stored) return model;
    Model *teacher =
        model_load(run->arena, from->path, from->settings, from->n_settings, batch, run->diag);
    if (!model || !teacher || !teacher_join(run->arena, model, teacher, run->diag)) return NULL;
    return model;
}

/* Plans; `text` also sends the plan through its text. False: run->diag says why. */
static inline bool run_plan_for(Run *run, const char *path, const ModelSetting *settings,
                                int n_settings, const Layout *l, int global_batch, bool text,
                                bool cuda, DType precision) {
    *run = (Run){.arena = arena_create(), .diag = diag_create()};
    run->model = run_load_model(run, path, settings, n_settings,
                                (int64_t)l->micro_batch * l->d * run_experts * run_replicas);
    if (!run->model) return false;
    PlanRequest request = {.model = run->model->name,
                           .forward = run->model->graph,
                           .n_blocks = run->model->n_blocks,
                           .seq = run->model->seq,
                           .vocab = run->model->vocab,
                           .recipe = run->model->recipe,
                           .options = {.mesh = {.size = {[MESH_T] = l->t,
                                                         [MESH_C] = run_context,
                                                         [MESH_E] = run_experts,
                                                         [MESH_D] = l->d,
                                                         [MESH_R] = run_replicas,
                                                         [MESH_P] = l->p}},
                                       .micro_batch = l->micro_batch,
                                       .global_batch = global_batch,
                                       .n_chunks = l->n_chunks,
                                       .schedule = l->schedule,
                                       .sequence_parallel = l->sequence_parallel,
                                       .zero = run_zero,
                                       .join_messages = run_join_messages,
                                       .expert_parts = run_expert_parts,
                                       .seed = 7,
                                       .cuda = cuda,
                                       .precision = precision,
                                       .state_dtype = run_state_dtype,
                                       .gradient_dtype = run_gradient_dtype,
                                       .split_masters = run_split_masters,
                                       .max_logit = run_max_logit,
                                       .qk_clip = run_qk_clip,
                                       .offload = run_offload,
                                       .offload_activations = run_offload_activations,
                                       .loss_scaling = run_loss_scaling,
                                       .ema_decay = run_ema_decay,
                                       .skips_spikes = run_skips_spikes,
                                       .recompute = run_recompute,
                                       .frozen_bits = run_frozen_bits,
                                       .vocab_multiple = run_vocab_multiple,
                                       .lanes = run_lanes,
                                       .loss_parts = run_loss_parts,
                                       .cudnn_backward = run_cudnn_backward,
                                       .fp8_tensor_cores = run_fp8_tensor_cores,
                                       .split = l->split,
                                       .n_split = l->n_split}};
    run->plan = plan_make(run->arena, &request, run->diag);
    if (!run->plan || !text) return run->plan != NULL;
    StrBuf first = strbuf_create(), second = strbuf_create();
    plan_print(&first, run->plan);
    run->plan = plan_parse(run->arena, "plan", first.text, run->diag);
    if (run->plan) plan_print(&second, run->plan);
    bool same = run->plan && strcmp(first.text, second.text) == 0;
    if (run->plan && !same) diag_error(run->diag, NO_LOC, "the plan's text does not round-trip");
    strbuf_destroy(&first);
    strbuf_destroy(&second);
    return same && verify_plan(run->plan, run->diag);
}

static inline bool run_plan(Run *run, const char *path, const ModelSetting *settings,
                            int n_settings, const Layout *l, int global_batch, bool text) {
    return run_plan_for(run, path, settings, n_settings, l, global_batch, text, false,
                        run_precision);
}

static inline bool run_start_on(Run *run, const EngineOptions *options) {
    run->engine = engine_create(run->plan, options, run->diag);
    if (!run->engine) return false;
    engine_init_parameters(run->engine);
    const char *name;
    while (run->n_params < TF_MAX_PARAMS &&
           engine_parameter(run->engine, run->n_params, &name, &run->types[run->n_params])) {
        run->names[run->n_params++] = arena_strdup(run->arena, name); /* may outlive the engine */
    }
    return true;
}

static inline bool run_start(Run *run) {
    return run_start_on(run, &(EngineOptions){.n_threads = run_threads, .timeout_seconds = 60});
}

/* Where losses are of answers (nn.policy), a row has one, of its own length at its own place. */
static inline void cut_answers(const Plan *plan, int step, int32_t *labels) {
    const int64_t seq = plan->seq;
    for (int64_t i = 0; i < plan->global_batch * seq; i++) {
        int64_t row = i / seq, at = i % seq, first = row % 3;
        int64_t length = 1 + (3 * row + row / 2 + step) % (seq - 2);
        if (at < first || at >= first + length) labels[i] = -1;
    }
}

/* Numbers of labels (TokenNumbers), other ones in each step, row and position, for models that give
 * all tokens about the same probability: ratios leave what clips allow on both sides. Most answers
 * are worth less than others, so that losses are far from 0. */
static inline void fill_numbers(const Plan *plan, int step, float *const numbers[N_TOKEN_NUMBERS]) {
    enum { N_DRAWS = TOKEN_REFERENCE_SCORES + 1 };
    uint64_t state = 0x2545f4914f6cdd1du + (uint64_t)step * 7368787u;
    const float level = -logf((float)plan->vocab);
    for (int64_t i = 0; i < plan->global_batch * plan->seq; i++) {
        float all = (float)(7 * (i / plan->seq) % 11) / 5 - 1, draws[N_DRAWS];
        for (int n = 0; n < N_DRAWS; n++) {
            state ^= state << 13, state ^= state >> 7, state ^= state << 17;
            draws[n] = (float)(state >> 40) / (1 << 23) - 1;
        }
        numbers[TOKEN_CENTERED_REWARDS][i] = -0.4f + 0.8f * draws[0];
        numbers[TOKEN_ADVANTAGES][i] = -0.6f + draws[1];
        numbers[TOKEN_OLD_SCORES][i] = level + 0.4f * all + 0.3f * draws[2];
        numbers[TOKEN_REFERENCE_SCORES][i] = level + 0.5f * draws[3];
        const int64_t row = i / plan->seq;
        numbers[TOKEN_DESIRABLE][i] = i % plan->seq ? 0 : row % 2 ? -2 : 2;
        numbers[TOKEN_DIVERGENCE][i] = i % plan->seq ? 0 : 1.5f;
        numbers[TOKEN_EXTRA_WEIGHTS][i] = i % plan->seq ? 0 : row % 8 / 2 == 1 ? -1 : 0.25f;
        numbers[TOKEN_WEIGHTS][i] = draws[1] > 0 ? 1 + 0.7f * (float)(row % 7) : 0;
    }
    const int64_t n_targets = plan->global_batch * plan_numbers_row(plan, TOKEN_TARGETS);
    for (int64_t i = 0; i < n_targets; i++) {
        numbers[TOKEN_TARGETS][i] = (float)((7 * i + i / 5 + step) % 3 == 0);
    }
}

/* Words of a teacher at each label, other ones at each, that have 0.5, 0.25, ... each. */
static inline void fill_stored(const Plan *plan, int step, int32_t *words, float *logprobs) {
    const int64_t n_words = plan_stored_words(plan);
    for (int64_t i = 0; i < plan->global_batch * plan->seq * n_words; i++) {
        const int64_t k = i % n_words;
        words[i] = (int32_t)((7 * (i / n_words) + 13 * step + 5 * k) % plan->vocab);
        logprobs[i] = -0.7f * (float)(k + 1);
    }
}

/* The token in whose places images' vectors stand; -1: there are no images. */
static inline int32_t find_image_token(const Plan *plan) {
    for (int i = 0; i < plan->n_programs && plan_pixels(plan); i++) {
        const Graph *graph = plan->programs[i].graph;
        for (int n = 0; n < graph->n_nodes; n++) {
            int64_t token = node_int(graph->nodes[n], ATTR_image_token, -1);
            if (token >= 0) return (int32_t)token;
        }
    }
    return -1;
}

/* Behind each row's tokens, of which some stand for them: more than there are vectors in some. */
static inline void put_images(const Plan *plan, int step, int32_t *tokens) {
    const int64_t row = plan_row(plan), n_tokens = plan_row_tokens(plan);
    const int32_t token = find_image_token(plan);
    uint32_t state = 2463534242u + (uint32_t)step;
    for (int64_t i = 0; token >= 0 && i < plan->global_batch * row; i++) {
        const int64_t b = i / row, at = i % row;
        state ^= state << 13, state ^= state >> 17, state ^= state << 5;
        if (at >= n_tokens) {
            tokens[i] = (int32_t)(state >> 8) & 255;
        } else if ((at * 5 + b) % 7 < 2 + b % 4) {
            tokens[i] = token;
        }
    }
}

/* Tokens and labels of a step: the same for every layout. */
static inline void fill_batch(const Plan *plan, int step, int32_t *tokens, int32_t *labels) {
    uint64_t state = 88172645463325252ull + (uint64_t)step * 1000003u;
    const int64_t source = plan_source(plan), row = plan_row(plan);
    for (int64_t i = 0; i < plan->global_batch * source; i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        tokens[i / source * row + i % source] = (int32_t)((state >> 11) % (uint64_t)plan->vocab);
    }
    for (int64_t i = 0; i < plan->global_batch * plan->seq; i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        tokens[i / plan->seq * row + source + i % plan->seq] =
            (int32_t)((state >> 11) % (uint64_t)plan->vocab);
        labels[i] = (int32_t)((state >> 37) % (uint64_t)plan->vocab);
    }
    put_images(plan, step, tokens);
    if (plan_reads_numbers(plan, TOKEN_OLD_SCORES) || plan_reads_numbers(plan, TOKEN_WEIGHTS)) {
        cut_answers(plan, step, labels);
    }
}

/* Takes steps first .. first + n_steps - 1, counted from 0. At their end ranks that hold the same
 * hold the same bits. */
static inline bool run_steps_from(Run *run, int first, int n_steps, double learning_rate) {
    size_t n = (size_t)(run->plan->global_batch * run->plan->seq);
    int32_t *labels = ARENA_ARRAY(run->arena, int32_t, n);
    int32_t *tokens =
        ARENA_ARRAY(run->arena, int32_t, (size_t)(run->plan->global_batch * plan_row(run->plan)));
    float *reference = ARENA_ARRAY(run->arena, float, (size_t)run->plan->global_batch);
    for (int i = 0; i < run->plan->global_batch; i++) reference[i] = -60 - 3.5f * (float)(i % 5);
    engine_set_reference(run->engine, reference); /* read by plans that ask for it */
    float *numbers[N_TOKEN_NUMBERS];              /* so are these */
    for (int i = 0; i < N_TOKEN_NUMBERS; i++) {
        const int64_t width = plan_numbers_width(run->plan, (TokenNumbers)i);
        numbers[i] = ARENA_ARRAY(run->arena, float, n *(size_t)(width > 1 ? width : 1));
        engine_set_numbers(run->engine, (TokenNumbers)i, numbers[i]);
    }
    const size_t n_stored = n * (size_t)plan_stored_words(run->plan);
    int32_t *words = ARENA_ARRAY(run->arena, int32_t, n_stored + 1);
    float *logprobs = ARENA_ARRAY(run->arena, float, n_stored + 1);
    if (n_stored) engine_set_stored(run->engine, words, logprobs);
    for (int step = first; step < first + n_steps; step++) {
        StepResult result;
        fill_stored(run->plan, step, words, logprobs);
        fill_batch(run->plan, step, tokens, labels);
        fill_numbers(run->plan, step, numbers);
        if (!engine_step(run->engine, step + 1, tokens, labels, learning_rate, &result,
                         run->diag)) {
            return false;
        }
        run->losses[step] = result.loss;
        run->norms[step] = result.grad_norm;
        run->scales[step] = result.loss_scale;
    }
    return engine_check_copies(run->engine, first + n_steps, run->diag);
}

static inline bool run_steps(Run *run, int n_steps, double learning_rate) {
    return run_steps_from(run, 0, n_steps, learning_rate);
}

/* A checkpoint after so many steps; behind: while training could go on. */
static inline bool run_save(Run *run, const char *path, int step, bool behind) {
    const TrainingPlace place = {
        .step = step, .samples = step * run->plan->global_batch, .data = "test"};
    if (!behind) return engine_save_state(run->engine, path, &place, run->diag);
    EngineSnapshot *snapshot = engine_snapshot_create(run->engine, run->diag);
    bool fine = snapshot &&
                engine_snapshot_begin(snapshot, path, &place, run->diag) != SNAPSHOT_FAILED &&
                engine_snapshot_poll(snapshot, true, run->diag) == SNAPSHOT_WRITTEN;
    engine_snapshot_destroy(snapshot);
    return fine;
}

/* The last step's gradients, as far as their memory still holds them. */
static inline void run_keep_gradients(Run *run) {
    run->n_gradients = 0;
    for (int i = 0; i < run->n_params; i++) {
        float *whole = ARENA_ARRAY(run->arena, float, type_elements(&run->types[i]));
        bool there = engine_read_gradient(run->engine, run->names[i], whole);
        run->gradients[i] = there ? whole : NULL;
        run->n_gradients += there;
    }
}

/* Steps from the first on; keeps the gradients of the first. */
static inline bool run_steps_keeping(Run *run, int n_steps, double learning_rate) {
    if (!run_steps(run, 1, learning_rate)) return false;
    run_keep_gradients(run);
    return run_steps_from(run, 1, n_steps - 1, learning_rate);
}

static inline float *run_weight(Run *run, int i) {
    float *whole = ARENA_ARRAY(run->arena, float, type_elements(&run->types[i]));
    return engine_read_parameter(run->engine, run->names[i], whole) ? whole : NULL;
}

/* |a - b| / |b| in the Euclidean norm; |a - b| where b is zero. */
static inline double relative_distance(const float *a, const float *b, int64_t n) {
    double difference = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        difference += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        size += (double)b[i] * b[i];
    }
    return size > 0 ? sqrt(difference / size) : sqrt(difference);
}

/* The norm of a parameter's gradient by the last step, and the slope along it of `value`, a number
 * that weights change: of the loss it is the same, as steps along a gradient change it by its norm.
 * False: the gradient's memory has been used again. */
typedef double RunValue(Run *run, void *user);
static inline bool run_slope_of(Run *run, const char *name, RunValue *value, void *user,
                                double step, double *out_norm, double *out_slope) {
    double norm = 0, values[2] = {NAN, NAN};
    int64_t n = 0;
    for (int i = 0; i < run->n_params; i++) {
        if (strcmp(run->names[i], name) == 0) n = type_elements(&run->types[i]);
    }
    float *gradient = ARENA_ARRAY(run->arena, float, n + 1);
    float *w = ARENA_ARRAY(run->arena, float, n + 1);
    float *moved = ARENA_ARRAY(run->arena, float, n + 1);
    *out_norm = *out_slope = NAN;
    if (n == 0 || !engine_read_parameter(run->engine, name, w)) return true; /* is seen: NAN */
    if (!engine_read_gradient(run->engine, name, gradient)) return false;
    for (int64_t i = 0; i < n; i++) norm += (double)gradient[i] * (double)gradient[i];
    norm = sqrt(norm);
    for (int sign = 0; sign < 2; sign++) {
        for (int64_t i = 0; i < n; i++) {
            moved[i] = w[i] + (float)((sign ? -step : step) * (double)gradient[i] / norm);
        }
        engine_write_parameter(run->engine, name, moved);
        values[sign] = value(run, user);
    }
    engine_write_parameter(run->engine, name, w);
    *out_norm = norm;
    *out_slope = (values[0] - values[1]) / (2 * step);
    return true;
}

/* What a loss is of: tokens and labels. */
typedef struct RunBatch {
    const int32_t *tokens, *labels;
} RunBatch;

static inline double run_loss(Run *run, void *user) {
    const RunBatch *batch = user;
    double loss = NAN;
    engine_evaluate(run->engine, batch->tokens, batch->labels, &loss, run->diag);
    return loss;
}

/* Of the loss. */
static inline bool run_slope(Run *run, const char *name, const int32_t *tokens,
                             const int32_t *labels, double *out_norm, double *out_slope) {
    const double step = 0.02; /* f32 losses: differences of 1e-7 are rounding */
    RunBatch batch = {tokens, labels};
    return run_slope_of(run, name, run_loss, &batch, step, out_norm, out_slope);
}

static inline double largest(const float *a, int64_t n) {
    double most = 0;
    for (int64_t i = 0; i < n; i++) {
        if (fabs((double)a[i]) > most) most = fabs((double)a[i]);
    }
    return most;
}

#endif
