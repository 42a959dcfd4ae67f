/* The optimizer as a model's training sees it, on the CPU: after each step every weight against the
 * formulas in float64, fed with the gradients that the engine kept.
 *
 * Would catch: a clip factor above 1, left out or applied twice, a norm of only some gradients,
 * weight decay for biases and gains or none for weights, eps inside the root, a bias correction of
 * another step, a learning rate of the step before.
 */
#include "tests/unit/check.h"
#include "tests/unit/train_fixture.h"

static const ModelSetting TINY[] = {
    {"seq", "8"}, {"model", "16"}, {"heads", "2"}, {"vocab", "17"}, {"layers", "2"}};
enum { N_TINY = sizeof(TINY) / sizeof(TINY[0]), BATCH = 4, N_STEPS = 5 };

/* f32 roundings of the state and the weight, a few per step. */
static const double TOLERANCE = 2e-6;

typedef enum Clips { NEVER, ALWAYS } Clips;

typedef struct UpdateCase {
    const char *name;
    Clips clips; /* what the case is for: checked */
    TrainingRecipe recipe;
} UpdateCase;

#define ADAMW .optimizer = OPTIMIZER_ADAMW, .beta1 = 0.9, .beta2 = 0.95
#define SGD   .optimizer = OPTIMIZER_SGD

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
};

/* A parameter in float64. */
typedef struct Shadow {
    int64_t n;
    bool decays;
    double *p, *m, *v;
    float *gradient, *weight;
} Shadow;

typedef struct Check {
    Run run;
    const TrainingRecipe *recipe;
    Shadow shadows[TF_MAX_PARAMS];
} Check;

static bool start(Check *c) {
    Run *run = &c->run;
    *run = (Run){.arena = arena_create(), .diag = diag_create()};
    run->model = model_load(run->arena, "models/gpt.lua", TINY, N_TINY, BATCH / 2, run->diag);
    if (!run->model) return false;
    PlanRequest request = {.model = run->model->name,
                           .forward = run->model->graph,
                           .n_blocks = run->model->n_blocks,
                           .seq = run->model->seq,
                           .vocab = run->model->vocab,
                           .recipe = *c->recipe,
                           .options = {.mesh = {{1, 1, 1}},
                                       .micro_batch = BATCH / 2,
                                       .global_batch = BATCH,
                                       .n_chunks = 1,
                                       .schedule = "1f1b",
                                       .seed = 7}};
    run->plan = plan_make(run->arena, &request, run->diag);
    return run->plan && run_start(run);
}

/* What the model's text says. */
static bool decays(const Run *run, const char *name) {
    const Graph *graph = run->model->graph;
    for (int n = 0; n < graph->n_nodes; n++) {
        Node *node = graph->nodes[n];
        if (node->op != OP_PARAM) continue;
        if (strcmp(node_logical_name(node, 0, run->arena), name) == 0) {
            return node_int(node, ATTR_decay, 1) != 0;
        }
    }
    CHECK(false, "the model has no '%s'", name);
    return false;
}

static void make_shadows(Check *c) {
    int n_decaying = 0;
    for (int i = 0; i < c->run.n_params; i++) {
        Shadow *s = &c->shadows[i];
        s->n = type_elements(&c->run.types[i]);
        s->decays = decays(&c->run, c->run.names[i]);
        n_decaying += s->decays;
        s->p = ARENA_ARRAY(c->run.arena, double, s->n);
        s->m = ARENA_ARRAY(c->run.arena, double, s->n);
        s->v = ARENA_ARRAY(c->run.arena, double, s->n);
        s->gradient = ARENA_ARRAY(c->run.arena, float, s->n);
        s->weight = ARENA_ARRAY(c->run.arena, float, s->n);
        CHECK(engine_read_parameter(c->run.engine, c->run.names[i], s->weight), "no '%s'",
              c->run.names[i]);
        for (int64_t k = 0; k < s->n; k++) s->p[k] = (double)s->weight[k];
    }
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
    double decay = s->decays ? r->weight_decay : 0;
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

static void sgd(const TrainingRecipe *r, Shadow *s, double factor, double rate) {
    double decay = s->decays ? r->weight_decay : 0;
    for (int64_t k = 0; k < s->n; k++) {
        double g = (double)s->gradient[k] * factor + decay * s->p[k];
        s->m[k] = r->momentum * s->m[k] + g;
        s->p[k] -= rate * s->m[k];
    }
}

static void compare(Check *c, int step, double rate) {
    for (int i = 0; i < c->run.n_params; i++) {
        Shadow *s = &c->shadows[i];
        engine_read_parameter(c->run.engine, c->run.names[i], s->weight);
        for (int64_t k = 0; k < s->n; k++) {
            double error = fabs((double)s->weight[k] - s->p[k]) / (fabs(s->p[k]) + rate);
            CHECK(error <= TOLERANCE, "step %d: '%s' element %d is %.9g, not %.9g", step,
                  c->run.names[i], (int)k, (double)s->weight[k], s->p[k]);
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
            if (r->optimizer == OPTIMIZER_SGD) {
                sgd(r, &c->shadows[i], factor, (double)(float)rate);
            } else {
                adamw(r, &c->shadows[i], factor, (double)(float)rate, step);
            }
        }
        compare(c, step, rate);
    }
}

static void test_case(const UpdateCase *update) {
    static Check c;
    c = (Check){.recipe = &update->recipe};
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
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) test_case(&CASES[i]);
    test_factor_one();
    return check_report();
}
