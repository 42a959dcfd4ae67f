/* The optimizer as a model's training sees it, on the CPU: after each step every weight against the
 * formulas in float64, fed with the gradients that the engine kept.
 *
 * Would catch: a clip factor above 1, left out or applied twice, a norm of only some gradients,
 * weight decay for biases and gains or none for weights, eps inside the root, a bias correction of
 * another step, a learning rate of the step before; with Muon rows and columns that are not those
 * of the model's products, a step too few, another coefficient, a table or a gain orthogonalised.
 */
#include "tests/unit/check.h"
#include "tests/unit/train_fixture.h"

static const ModelSetting TINY[] = {{"seq", "8"},     {"model", "16"}, {"heads", "2"},
                                    {"vocab", "17"},  {"layers", "2"}, {"mup", "4"},
                                    {"tied", "false"}};
enum { N_MUP = 2, N_TINY = sizeof(TINY) / sizeof(TINY[0]) - N_MUP, BATCH = 4, N_STEPS = 5 };

/* f32 roundings of the state and the weight, a few per step. */
static const double TOLERANCE = 2e-6;
/* Five steps of Newton-Schulz multiply what is rounded in small directions by up to 3.4445^5. */
static const double MUON_TOLERANCE = 2e-4;

typedef enum Clips { NEVER, ALWAYS } Clips;

typedef struct UpdateCase {
    const char *name;
    Clips clips; /* what the case is for: checked */
    TrainingRecipe recipe;
} UpdateCase;

#define ADAMW .optimizer = OPTIMIZER_ADAMW, .beta1 = 0.9, .beta2 = 0.95
#define SGD   .optimizer = OPTIMIZER_SGD
#define LAMB  .optimizer = OPTIMIZER_LAMB, .beta1 = 0.9, .beta2 = 0.999
#define LION  .optimizer = OPTIMIZER_LION, .beta1 = 0.9, .beta2 = 0.99
/* clang-format off */
#define MUON \
    .optimizer = OPTIMIZER_MUON, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .momentum = 0.95
/* clang-format on */

static const UpdateCase CASES[] = {
    {"AdamW, clipped", ALWAYS, {ADAMW, .eps = 1e-8, .weight_decay = 0.1, .max_norm = 0.01}},
    {"AdamW, norm below max_norm",
     NEVER,
     {ADAMW, .eps = 1e-8, .weight_decay = 0.1, .max_norm = 1e4}},
    {"AdamW without clipping", NEVER, {ADAMW, .eps = 1e-8, .weight_decay = 0.1}},
    {"AdamW, a large eps", NEVER, {ADAMW, .eps = 0.3, .weight_decay = 0.1, .max_norm = 1e4}},
    {"AdamW, clipped, a large eps", ALWAYS, {ADAMW, .eps = 1e-3, .max_norm = 0.01}},
    {"AdamW, strong weight decay", NEVER, {ADAMW, .eps = 1e-8, .weight_decay = 10}},
    {"SGD, clipped", ALWAYS, {SGD, .momentum = 0.9, .weight_decay = 0.1, .max_norm = 0.01}},
    {"SGD, norm below max_norm",
     NEVER,
     {SGD, .momentum = 0.9, .weight_decay = 0.1, .max_norm = 1e4}},
    {"SGD without momentum", NEVER, {SGD, .weight_decay = 0.1}},
    {"Lion, clipped", ALWAYS, {LION, .weight_decay = 0.1, .max_norm = 0.01}},
    {"Lion, norm below max_norm", NEVER, {LION, .weight_decay = 1, .max_norm = 1e4}},
    {"LAMB, clipped", ALWAYS, {LAMB, .eps = 1e-6, .weight_decay = 0.01, .max_norm = 0.01}},
    {"LAMB, trust bounded", NEVER, {LAMB, .eps = 1e-6, .weight_decay = 0.1, .trust_max = 0.01}},
    {"LAMB without decay, rates by kind of parameter",
     NEVER,
     {LAMB, .eps = 1e-6, .max_norm = 1e4, .matrix_lr_scale = 0.5}},
    {"Muon, clipped", ALWAYS, {MUON, .muon_rms = 0.2, .weight_decay = 0.1, .max_norm = 0.01}},
    {"Muon of Jordan's size, without clipping", NEVER, {MUON, .weight_decay = 0.1}},
    {"Muon, AdamW at another rate",
     NEVER,
     {MUON, .muon_rms = 0.2, .adam_lr_scale = 0.25, .weight_decay = 0.1}},
    {"AdamW, rates by kind of parameter",
     NEVER,
     {ADAMW, .eps = 1e-8, .weight_decay = 0.1, .table_lr_scale = 3, .matrix_lr_scale = 0.5,
      .vector_lr_scale = 2}},
    {"Lion, rates by kind of parameter", NEVER, {LION, .matrix_lr_scale = 0.5}},
    {"SGD, rates by kind of parameter", NEVER, {SGD, .momentum = 0.9, .vector_lr_scale = 2}},
};

/* Of a model four times as wide as the recipe's: parameters have factors of their own. */
static const UpdateCase MUP_CASES[] = {
    {"AdamW, rates and decay by parameter", NEVER, {ADAMW, .eps = 1e-8, .weight_decay = 0.3}},
    {"LAMB, rates and decay by parameter", NEVER, {LAMB, .eps = 1e-6, .weight_decay = 0.3}},
};

/* A parameter in float64. */
typedef struct Shadow {
    int64_t n;
    bool is_table;
    double decay, lr_scale; /* factors of the parameter's own */
    int64_t n_inputs;       /* of a matrix of the model's: stored [inputs, outputs]; else 0 */
    double *p, *m, *v;
    float *gradient, *weight;
} Shadow;

typedef struct Check {
    Run run;
    const TrainingRecipe *recipe;
    bool mup;
    Shadow shadows[TF_MAX_PARAMS];
} Check;

static bool start(Check *c) {
    Run *run = &c->run;
    *run = (Run){.arena = arena_create(), .diag = diag_create()};
    run->model = model_load(run->arena, "models/gpt.lua", TINY, N_TINY + (c->mup ? N_MUP : 0),
                            BATCH / 2, run->diag);
    if (!run->model) return false;
    PlanRequest request = {.model = run->model->name,
                           .forward = run->model->graph,
                           .n_blocks = run->model->n_blocks,
                           .seq = run->model->seq,
                           .vocab = run->model->vocab,
                           .recipe = *c->recipe,
                           .options = {.mesh = {.size = {1, 1, 1, 1, 1, 1}},
                                       .micro_batch = BATCH / 2,
                                       .global_batch = BATCH,
                                       .n_chunks = 1,
                                       .schedule = "1f1b",
                                       .seed = 7}};
    run->plan = plan_make(run->arena, &request, run->diag);
    return run->plan && run_start(run);
}

/* The parameter as the model's text makes it. */
static const Node *param_of(const Run *run, const char *name) {
    const Graph *graph = run->model->graph;
    for (int n = 0; n < graph->n_nodes; n++) {
        Node *node = graph->nodes[n];
        if (node->op != OP_PARAM) continue;
        if (strcmp(node_logical_name(node, 0, run->arena), name) == 0) return node;
    }
    BUG("the model has no '%s'", name);
}

/* Rows of the stored matrix, by the model's text: q, k, v and w1 begin with what they sum away,
 * one axis; o and w2 end with what they give. 0: no matrix. */
static int64_t count_inputs(const char *name, const Type *type) {
    const char *last = strrchr(name, '.');
    static const char *const FROM_MODEL[] = {".wq", ".wk", ".wv", ".w1"};
    for (int i = 0; last && i < 4; i++) {
        if (strcmp(last, FROM_MODEL[i]) == 0) return type->dims[0];
    }
    if (!last || (strcmp(last, ".wo") != 0 && strcmp(last, ".w2") != 0)) return 0;
    return type_elements(type) / type->dims[type->rank - 1];
}

static void make_shadows(Check *c) {
    int n_decaying = 0, n_matrices = 0, n_scaled = 0;
    for (int i = 0; i < c->run.n_params; i++) {
        Shadow *s = &c->shadows[i];
        s->n = type_elements(&c->run.types[i]);
        const Node *param = param_of(&c->run, c->run.names[i]);
        s->decay = node_float(param, ATTR_decay, 1);
        s->lr_scale = node_float(param, ATTR_lr_scale, 1);
        n_decaying += s->decay > 0;
        n_scaled += s->decay == 4 && s->lr_scale == 0.25;
        s->is_table = strcmp(c->run.names[i], "wte") == 0;
        s->n_inputs = count_inputs(c->run.names[i], &c->run.types[i]);
        n_matrices += s->n_inputs > 0;
        s->p = ARENA_ARRAY(c->run.arena, double, s->n);
        s->m = ARENA_ARRAY(c->run.arena, double, s->n);
        s->v = ARENA_ARRAY(c->run.arena, double, s->n);
        s->gradient = ARENA_ARRAY(c->run.arena, float, s->n);
        s->weight = ARENA_ARRAY(c->run.arena, float, s->n);
        CHECK(engine_read_parameter(c->run.engine, c->run.names[i], s->weight), "no '%s'",
              c->run.names[i]);
        for (int64_t k = 0; k < s->n; k++) s->p[k] = (double)s->weight[k];
    }
    CHECK(n_matrices == 12, "%d matrices", n_matrices);
    CHECK(n_scaled == (c->mup ? 13 : 0), "%d have factors of their own", n_scaled);
    CHECK(n_decaying > 0 && n_decaying < c->run.n_params, "%d of %d parameters decay", n_decaying,
          c->run.n_params);
}

/* Returns the norm of all gradients. */
static double read_gradients(Check *c) {
    double squares = 0;
    for (int i = 0; i < c->run.n_params; i++) {
        Shadow *s = &c->shadows[i];
        CHECK(engine_read_gradient(c->run.engine, c->run.names[i], s->gradient),
              "no gradient of '%s'", c->run.names[i]);
        for (int64_t k = 0; k < s->n; k++) {
            squares += (double)s->gradient[k] * (double)s->gradient[k];
        }
    }
    return sqrt(squares);
}

/* Loshchilov & Hutter 2019, algorithm 2, without the schedule multiplier on the decay. */
static void adamw(const TrainingRecipe *r, Shadow *s, double factor, double rate, int step) {
    double decay = s->decay * r->weight_decay;
    for (int64_t k = 0; k < s->n; k++) {
        double g = (double)s->gradient[k] * factor;
        s->m[k] = r->beta1 * s->m[k] + (1 - r->beta1) * g;
        s->v[k] = r->beta2 * s->v[k] + (1 - r->beta2) * g * g;
        double mean = s->m[k] / (1 - pow(r->beta1, step));
        double variance = s->v[k] / (1 - pow(r->beta2, step));
        s->p[k] -= rate * decay * s->p[k];
        s->p[k] -= rate * mean / (sqrt(variance) + r->eps);
    }
}

/* You et al. 2020, algorithm 2, of the whole parameter; what does not decay has Adam's step. */
static void lamb(const TrainingRecipe *r, Shadow *s, double factor, double rate, int step,
                 Arena *arena) {
    double *direction = ARENA_ARRAY(arena, double, s->n), p2 = 0, r2 = 0;
    for (int64_t k = 0; k < s->n; k++) {
        double g = (double)s->gradient[k] * factor;
        s->m[k] = r->beta1 * s->m[k] + (1 - r->beta1) * g;
        s->v[k] = r->beta2 * s->v[k] + (1 - r->beta2) * g * g;
        double mean = s->m[k] / (1 - pow(r->beta1, step));
        double variance = s->v[k] / (1 - pow(r->beta2, step));
        direction[k] = mean / (sqrt(variance) + r->eps) + s->decay * r->weight_decay * s->p[k];
        p2 += s->p[k] * s->p[k];
        r2 += direction[k] * direction[k];
    }
    double trust = p2 > 0 && r2 > 0 ? sqrt(p2 / r2) : 1;
    if (r->trust_max > 0) trust = fmin(trust, r->trust_max);
    for (int64_t k = 0; k < s->n; k++) s->p[k] -= rate * trust * direction[k];
}

static void sgd(const TrainingRecipe *r, Shadow *s, double factor, double rate) {
    double decay = s->decay * r->weight_decay;
    for (int64_t k = 0; k < s->n; k++) {
        double g = (double)s->gradient[k] * factor + decay * s->p[k];
        s->m[k] = r->momentum * s->m[k] + g;
        s->p[k] -= rate * s->m[k];
    }
}

/* Chen et al. 2023, algorithm 2. */
static void lion(const TrainingRecipe *r, Shadow *s, double factor, double rate) {
    double decay = s->decay * r->weight_decay;
    for (int64_t k = 0; k < s->n; k++) {
        double g = (double)s->gradient[k] * factor;
        double x = r->beta1 * s->m[k] + (1 - r->beta1) * g;
        s->p[k] -= rate * ((x > 0) - (x < 0) + decay * s->p[k]);
        s->m[k] = r->beta2 * s->m[k] + (1 - r->beta2) * g;
    }
}

/* out [m, n] = a [m, k] b [k, n], or a b^T with b [n, k]. */
static void multiply(const double *a, const double *b, bool transpose, int64_t m, int64_t n,
                     int64_t k, double *out) {
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) {
            double sum = 0;
            for (int64_t l = 0; l < k; l++) {
                sum += a[i * k + l] * (transpose ? b[j * k + l] : b[l * n + j]);
            }
            out[i * n + j] = sum;
        }
    }
}

/* Jordan et al. 2024: always with the Gram matrix of the stored rows, whatever the plan takes. */
static void orthogonalise(double *x, int64_t rows, int64_t columns, Arena *arena) {
    double *gram = ARENA_ARRAY(arena, double, rows *rows);
    double *square = ARENA_ARRAY(arena, double, rows *rows);
    double *y = ARENA_ARRAY(arena, double, rows *columns), squares = 0;
    for (int64_t k = 0; k < rows * columns; k++) squares += x[k] * x[k];
    for (int64_t k = 0; k < rows * columns; k++) x[k] /= sqrt(squares);
    for (int step = 0; step < 5; step++) {
        multiply(x, x, true, rows, rows, columns, gram);
        multiply(gram, gram, false, rows, rows, rows, square);
        for (int64_t k = 0; k < rows * rows; k++) gram[k] = -4.7750 * gram[k] + 2.0315 * square[k];
        multiply(gram, x, false, rows, columns, rows, y);
        for (int64_t k = 0; k < rows * columns; k++) x[k] = 3.4445 * x[k] + y[k];
    }
}

static void muon(const TrainingRecipe *r, Shadow *s, double factor, double rate, Arena *arena) {
    double decay = s->decay * r->weight_decay;
    double columns = (double)s->n_inputs, rows = (double)(s->n / s->n_inputs); /* of W, y = W x */
    double size =
        r->muon_rms > 0 ? r->muon_rms * sqrt(fmax(rows, columns)) : sqrt(fmax(1, rows / columns));
    double *x = ARENA_ARRAY(arena, double, s->n);
    for (int64_t k = 0; k < s->n; k++) {
        double g = (double)s->gradient[k] * factor;
        s->m[k] = r->momentum * s->m[k] + g;
        x[k] = g + r->momentum * s->m[k];
    }
    orthogonalise(x, s->n_inputs, s->n / s->n_inputs, arena);
    for (int64_t k = 0; k < s->n; k++) s->p[k] -= rate * (decay * s->p[k] + size * x[k]);
}

static double over_one(double scale) {
    return scale > 0 ? scale : 1;
}

static void update(const TrainingRecipe *r, Shadow *s, double factor, double rate, int step,
                   Arena *arena) {
    rate *= s->is_table       ? over_one(r->table_lr_scale)
            : s->n_inputs > 0 ? over_one(r->matrix_lr_scale)
                              : over_one(r->vector_lr_scale);
    rate *= s->lr_scale;
    if (r->optimizer == OPTIMIZER_SGD) {
        sgd(r, s, factor, rate);
    } else if (r->optimizer == OPTIMIZER_LAMB && s->decay > 0) {
        lamb(r, s, factor, rate, step, arena);
    } else if (r->optimizer == OPTIMIZER_LION) {
        lion(r, s, factor, rate);
    } else if (r->optimizer == OPTIMIZER_MUON && s->n_inputs > 0) {
        muon(r, s, factor, rate, arena);
    } else {
        adamw(r, s, factor, rate * over_one(r->adam_lr_scale), step);
    }
}

static void compare(Check *c, int step, double rate) {
    for (int i = 0; i < c->run.n_params; i++) {
        Shadow *s = &c->shadows[i];
        engine_read_parameter(c->run.engine, c->run.names[i], s->weight);
        for (int64_t k = 0; k < s->n; k++) {
            double error = fabs((double)s->weight[k] - s->p[k]) / (fabs(s->p[k]) + rate);
            CHECK(error <= (s->n_inputs > 0 && c->recipe->optimizer == OPTIMIZER_MUON
                                ? MUON_TOLERANCE
                                : TOLERANCE),
                  "step %d: '%s' element %d is %.9g, not %.9g", step, c->run.names[i], (int)k,
                  (double)s->weight[k], s->p[k]);
        }
    }
}

static void take_steps(Check *c, Clips clips) {
    const TrainingRecipe *r = c->recipe;
    for (int step = 1; step <= N_STEPS; step++) {
        double rate = 0.01 / step; /* another one each step */
        bool good = run_steps_from(&c->run, step - 1, 1, (double)(float)rate);
        CHECK(good, "%s", diag_text(c->run.diag));
        if (!good) return;
        double norm = read_gradients(c), factor = 1;
        CHECK(fabs(c->run.norms[step - 1] - norm) <= 1e-6 * norm, "the norm is %.9g, not %.9g",
              c->run.norms[step - 1], norm);
        if (r->max_norm > 0) factor = fmin(1, r->max_norm / (norm + 1e-6));
        CHECK((factor < 1) == (clips == ALWAYS), "step %d: the norm is %g", step, norm);
        for (int i = 0; i < c->run.n_params; i++) {
            update(r, &c->shadows[i], factor, (double)(float)rate, step, c->run.arena);
        }
        compare(c, step, rate);
    }
}

static void test_case(const UpdateCase *update, bool mup) {
    static Check c;
    c = (Check){.recipe = &update->recipe, .mup = mup};
    check_begin(update->name);
    bool ready = start(&c);
    CHECK(ready, "%s", diag_text(c.run.diag));
    if (ready) {
        make_shadows(&c);
        take_steps(&c, update->clips);
    }
    run_close(&c.run);
    check_end();
}

/* A factor of 1 is exact: training below max_norm and without clipping is the same bit by bit. */
static void test_factor_one(void) {
    static Check c[2];
    check_begin("a norm below max_norm changes no bit");
    for (int i = 0; i < 2; i++) {
        c[i] = (Check){.recipe = &CASES[1 + i].recipe};
        bool ready = start(&c[i]) && run_steps(&c[i].run, N_STEPS, 0.01);
        CHECK(ready, "%s", diag_text(c[i].run.diag));
        if (ready) make_shadows(&c[i]);
    }
    for (int i = 0; i < c[0].run.n_params && i < c[1].run.n_params; i++) {
        size_t bytes = (size_t)c[0].shadows[i].n * sizeof(float);
        CHECK(memcmp(c[0].shadows[i].weight, c[1].shadows[i].weight, bytes) == 0, "'%s' differs",
              c[0].run.names[i]);
    }
    for (int i = 0; i < 2; i++) run_close(&c[i].run);
    check_end();
}

int main(void) {
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) test_case(&CASES[i], false);
    for (size_t i = 0; i < 2; i++) test_case(&MUP_CASES[i], true);
    test_factor_one();
    return check_report();
}
