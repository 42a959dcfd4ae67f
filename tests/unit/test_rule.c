/* Optimizers that are formulas in Lua: those of the library against their papers in float64, fed
 * with the gradients that the engine kept; AdamW as a formula against the program's own; training
 * under several layouts, in 16 bits, with a loss scale, averages and states in bf16, and across
 * checkpoints; what is refused.
 *
 * Would catch: a formula that is not its paper's; a number of the step that is another's, or in f32
 * where f64 is needed; a clip factor that the gradient lacks; a step that is left out and changes a
 * state; a state of another order; a copy that is not its weight's; padding that becomes a weight.
 */
#include "ir/rule.h"
#include "planner/verify/verify.h"
#include "tests/unit/train_compare.h"

#include <unistd.h>

enum { GLOBAL_BATCH = 8, N_STEPS = 5, MOST_SETTINGS = 12 };
static const Layout ALONE = {1, 1, 1, GLOBAL_BATCH, 1, "1f1b", false, NULL, 0};
/* f32 roundings of states and weight, a few per step, of a step and of the weight. */
static const double TOLERANCE = 3e-6, LARGEST_RATE = 0.01;

static bool plan_small(Run *run, const char *path, const char *optimizer, const Layout *layout,
                       const ModelSetting *more, int n_more) {
    ModelSetting settings[MOST_SETTINGS] = {{"optimizer", optimizer}, {"optimizer.eps", "1e-6"},
                                            {"layers", "2"},          {"model", "16"},
                                            {"heads", "2"},           {"seq", "8"}};
    for (int i = 0; i < n_more; i++) settings[6 + i] = more[i];
    return run_plan(run, path, settings, 6 + n_more, layout, GLOBAL_BATCH, true);
}

static bool start(Run *run, const char *optimizer, const Layout *layout) {
    static const ModelSetting MORE[] = {{"vocab", "24"}, {"optimizer.momentum", "0.9"}};
    return plan_small(run, "models/gpt.lua", optimizer, layout, MORE, 2) && run_start(run);
}

/* --- the library's formulas, element by element --- */

typedef struct Element {
    double p, s[RULE_MOST_STATES]; /* in the order of the formula's states */
} Element;

/* Of a step: rate, decay of the weight, updates. */
typedef struct Step {
    const TrainingRecipe *r;
    double rate, decay, t;
} Step;

static void moments(const Step *s, double g, double *m, double *v) {
    *m = s->r->beta1 * *m + (1 - s->r->beta1) * g;
    *v = s->r->beta2 * *v + (1 - s->r->beta2) * g * g;
}

static double hat(double x, double beta, const Step *s) {
    return x / (1 - pow(beta, s->t));
}

static void adamw_lua(const Step *s, double g, Element *e) {
    moments(s, g, &e->s[0], &e->s[1]);
    e->p -= s->rate * s->decay * e->p;
    e->p -=
        s->rate * hat(e->s[0], s->r->beta1, s) / (sqrt(hat(e->s[1], s->r->beta2, s)) + s->r->eps);
}

static void amsgrad(const Step *s, double g, Element *e) {
    moments(s, g, &e->s[0], &e->s[1]);
    e->s[2] = fmax(e->s[2], e->s[1]);
    e->p -= s->rate * s->decay * e->p;
    e->p -=
        s->rate * hat(e->s[0], s->r->beta1, s) / (sqrt(hat(e->s[2], s->r->beta2, s)) + s->r->eps);
}

static void nadamw(const Step *s, double g, Element *e) {
    const double b1 = s->r->beta1;
    moments(s, g, &e->s[0], &e->s[1]);
    double ahead = b1 * e->s[0] / (1 - pow(b1, s->t + 1)) + (1 - b1) * g / (1 - pow(b1, s->t));
    e->p -= s->rate * s->decay * e->p;
    e->p -= s->rate * ahead / (sqrt(hat(e->s[1], s->r->beta2, s)) + s->r->eps);
}

/* With beta2 = 0.95 it is rectified from the sixth step on. */
static void radam(const Step *s, double g, Element *e) {
    const double b2 = s->r->beta2, most = 2 / (1 - b2) - 1;
    const double rho = most - 2 * s->t * pow(b2, s->t) / (1 - pow(b2, s->t));
    moments(s, g, &e->s[0], &e->s[1]);
    double step = hat(e->s[0], s->r->beta1, s);
    if (rho > 5) {
        double r = sqrt((rho - 4) * (rho - 2) * most / ((most - 4) * (most - 2) * rho));
        step *= r * sqrt(1 - pow(b2, s->t)) / (sqrt(e->s[1]) + s->r->eps);
    }
    e->p -= s->rate * s->decay * e->p;
    e->p -= s->rate * step;
}

static void adabelief(const Step *s, double g, Element *e) {
    e->s[0] = s->r->beta1 * e->s[0] + (1 - s->r->beta1) * g;
    double surprise = g - e->s[0];
    e->s[1] = s->r->beta2 * e->s[1] + (1 - s->r->beta2) * surprise * surprise + s->r->eps;
    e->p -= s->rate * s->decay * e->p;
    e->p -=
        s->rate * hat(e->s[0], s->r->beta1, s) / (sqrt(hat(e->s[1], s->r->beta2, s)) + s->r->eps);
}

static void adamax(const Step *s, double g, Element *e) {
    e->s[0] = s->r->beta1 * e->s[0] + (1 - s->r->beta1) * g;
    e->s[1] = fmax(s->r->beta2 * e->s[1], fabs(g) + s->r->eps);
    e->p -= s->rate * s->decay * e->p;
    e->p -= s->rate * hat(e->s[0], s->r->beta1, s) / e->s[1];
}

static void laprop(const Step *s, double g, Element *e) {
    e->s[1] = s->r->beta2 * e->s[1] + (1 - s->r->beta2) * g * g;
    double x = g / (sqrt(hat(e->s[1], s->r->beta2, s)) + s->r->eps);
    e->s[0] = s->r->beta1 * e->s[0] + (1 - s->r->beta1) * x;
    e->p -= s->rate * s->decay * e->p;
    e->p -= s->rate * hat(e->s[0], s->r->beta1, s);
}

/* alpha 5 and beta3 0.9999, at once or over the first four steps (equations 5 and 6 there). */
static void slow_means(const Step *s, double g, double alpha, double b3, Element *e) {
    moments(s, g, &e->s[0], &e->s[2]);
    e->s[1] = b3 * e->s[1] + (1 - b3) * g;
    double root = sqrt(hat(e->s[2], s->r->beta2, s)) + s->r->eps;
    e->p -= s->rate * s->decay * e->p;
    e->p -= s->rate * (hat(e->s[0], s->r->beta1, s) + alpha * e->s[1]) / root;
}

static void ademamix(const Step *s, double g, Element *e) {
    slow_means(s, g, 5, 0.9999, e);
}

static void ademamix_slow(const Step *s, double g, Element *e) {
    double share = fmin(s->t / 4, 1), first = log(s->r->beta1), last = log(0.9999);
    double b3 = exp(first * last / ((1 - share) * last + share * first));
    slow_means(s, g, 5 * share, b3, e);
}

static void adopt(const Step *s, double g, Element *e) {
    if (s->t == 1) {
        e->s[1] = g * g;
        return;
    }
    double x = g / fmax(sqrt(e->s[1]), s->r->eps), most = pow(s->t - 1, 0.25);
    e->s[0] = s->r->beta1 * e->s[0] + (1 - s->r->beta1) * fmax(fmin(x, most), -most);
    e->p -= s->rate * s->decay * e->p;
    e->p -= s->rate * e->s[0];
    e->s[1] = s->r->beta2 * e->s[1] + (1 - s->r->beta2) * g * g;
}

static void adagrad(const Step *s, double g, Element *e) {
    e->s[0] += g * g;
    e->p -= s->rate * s->decay * e->p;
    e->p -= s->rate * g / (sqrt(e->s[0]) + s->r->eps);
}

static void rmsprop(const Step *s, double g, Element *e) {
    e->s[0] = s->r->beta2 * e->s[0] + (1 - s->r->beta2) * g * g;
    e->p -= s->rate * s->decay * e->p;
    e->p -= s->rate * g / (sqrt(e->s[0]) + s->r->eps);
}

static void adadelta(const Step *s, double g, Element *e) {
    e->s[0] = s->r->beta2 * e->s[0] + (1 - s->r->beta2) * g * g;
    double step = sqrt(e->s[1] + s->r->eps) / sqrt(e->s[0] + s->r->eps) * g;
    e->s[1] = s->r->beta2 * e->s[1] + (1 - s->r->beta2) * step * step;
    e->p -= s->rate * s->decay * e->p;
    e->p -= s->rate * step;
}

static void signum(const Step *s, double g, Element *e) {
    e->s[0] = s->r->beta1 * e->s[0] + (1 - s->r->beta1) * g;
    e->p -= s->rate * s->decay * e->p;
    e->p -= s->rate * ((e->s[0] > 0) - (e->s[0] < 0));
}

static void nesterov(const Step *s, double g, Element *e) {
    double x = g + s->decay * e->p;
    e->s[0] = s->r->momentum * e->s[0] + x;
    e->p -= s->rate * (x + s->r->momentum * e->s[0]);
}

typedef struct Formula {
    const char *name;
    void (*step)(const Step *, double g, Element *);
    const char *set, *to; /* of its own numbers */
} Formula;

static const Formula FORMULAS[] = {
    {"adamw_lua", adamw_lua, NULL, NULL},
    {"amsgrad", amsgrad, NULL, NULL},
    {"nadamw", nadamw, NULL, NULL},
    {"radam", radam, NULL, NULL},
    {"adabelief", adabelief, NULL, NULL},
    {"adamax", adamax, NULL, NULL},
    {"laprop", laprop, NULL, NULL},
    {"ademamix", ademamix, NULL, NULL},
    {"ademamix", ademamix_slow, "slow_steps", "4"},
    {"adopt", adopt, NULL, NULL},
    {"adagrad", adagrad, NULL, NULL},
    {"rmsprop", rmsprop, NULL, NULL},
    {"adadelta", adadelta, NULL, NULL},
    {"signum", signum, NULL, NULL},
    {"nesterov", nesterov, NULL, NULL},
};

static const Node *param_of(const Run *run, const char *name) {
    const Graph *graph = run->model->graph;
    for (int n = 0; n < graph->n_nodes; n++) {
        Node *node = graph->nodes[n];
        if (node->op == OP_PARAM && strcmp(node_logical_name(node, 0, run->arena), name) == 0) {
            return node;
        }
    }
    BUG("the model has no '%s'", name);
}

/* What clips: the norm is above max_norm, 1e-2, in every step. */
static double clip_factor(const Run *run, int step) {
    double norm = run->norms[step - 1], most = run->model->recipe.max_norm;
    CHECK(norm > most, "the norm %g is not clipped", norm);
    return most / (norm + 1e-6);
}

static void begin(Run *run, Element **elements) {
    for (int i = 0; i < run->n_params; i++) {
        int64_t n = type_elements(&run->types[i]);
        const float *weight = run_weight(run, i);
        elements[i] = ARENA_ARRAY(run->arena, Element, n);
        for (int64_t k = 0; k < n; k++) elements[i][k] = (Element){.p = (double)weight[k]};
    }
}

static void follow(Run *run, const Formula *formula, int step, double rate, double factor,
                   Element **elements) {
    for (int i = 0; i < run->n_params; i++) {
        int64_t n = type_elements(&run->types[i]);
        float *g = ARENA_ARRAY(run->arena, float, n);
        const float *weight = run_weight(run, i);
        const Node *param = param_of(run, run->names[i]);
        const Step s = {&run->model->recipe, rate,
                        node_float(param, ATTR_decay, 1) * run->model->recipe.weight_decay, step};
        CHECK(engine_read_gradient(run->engine, run->names[i], g), "no gradient");
        for (int64_t k = 0; k < n; k++) {
            Element *e = &elements[i][k];
            formula->step(&s, (double)g[k] * factor, e);
            double error = fabs((double)weight[k] - e->p) / (fabs(e->p) + LARGEST_RATE);
            CHECK(error <= TOLERANCE, "step %d: '%s' element %d is %.9g, not %.9g", step,
                  run->names[i], (int)k, (double)weight[k], e->p);
        }
    }
}

static void test_formula(const Formula *formula) {
    enum { STEPS = 8 };
    const ModelSetting more[] = {
        {"vocab", "24"},
        {"optimizer.momentum", "0.9"},
        {"optimizer.max_norm", "0.01"},
        {formula->set ? formula->set : "dropout", formula->set ? formula->to : "0"}};
    Element *elements[TF_MAX_PARAMS];
    Run run;
    check_begin(formula->name);
    bool fine =
        plan_small(&run, "models/gpt.lua", formula->name, &ALONE, more, 4) && run_start(&run);
    if (fine) begin(&run, elements);
    for (int step = 1; fine && step <= STEPS; step++) {
        double rate = (double)(float)(LARGEST_RATE / step);
        fine = run_steps_from(&run, step - 1, 1, rate);
        if (fine) follow(&run, formula, step, rate, clip_factor(&run, step), elements);
    }
    CHECK(fine, "%s", diag_text(run.diag));
    if (fine) {
        Rule rule;
        const char *error;
        const UpdateRule *text = &run.model->recipe.rule;
        bool parsed = rule_parse(text->program, text->numbers, text->n_states, &rule, &error);
        CHECK(parsed && rule_keeps_zero(&rule), "padding would not stay zero");
    }
    run_close(&run);
    check_end();
}

/* --- AdamW as a formula and the program's own --- */

static void test_own_adamw(void) {
    static const struct {
        Layout layout;
        int zero;
        DType precision, state;
    } CASES[] = {
        {{1, 1, 1, 8, 1, "1f1b", false, NULL, 0}, 0, DTYPE_F32, DTYPE_F32},
        {{2, 2, 1, 2, 1, "1f1b", true, NULL, 0}, 1, DTYPE_BF16, DTYPE_F32},
        {{1, 4, 1, 2, 1, "1f1b", false, NULL, 0}, 3, DTYPE_F32, DTYPE_BF16},
        {{1, 2, 2, 2, 1, "1f1b", false, NULL, 0}, 2, DTYPE_BF16, DTYPE_BF16},
    };
    for (size_t c = 0; c < sizeof(CASES) / sizeof(CASES[0]); c++) {
        Run own, formula;
        char name[200], layout[160];
        run_zero = CASES[c].zero;
        run_precision = CASES[c].precision;
        run_state_dtype = CASES[c].state;
        layout_name("AdamW as a formula is AdamW", &CASES[c].layout, layout, sizeof(layout));
        snprintf(name, sizeof(name), "%s, %s, states in %s", layout, dtype_name(CASES[c].precision),
                 dtype_name(CASES[c].state));
        check_begin(name);
        bool fine = start(&own, "adamw", &CASES[c].layout) && run_steps(&own, N_STEPS, 2e-3);
        fine = start(&formula, "adamw_lua", &CASES[c].layout) &&
               run_steps(&formula, N_STEPS, 2e-3) && fine;
        CHECK(fine, "%s%s", diag_text(own.diag), diag_text(formula.diag));
        for (int step = 0; fine && step < N_STEPS; step++) {
            double error = fabs(formula.losses[step] / own.losses[step] - 1);
            CHECK(error < (CASES[c].precision == DTYPE_F32 ? 1e-6 : 1e-3), "loss %.8f, not %.8f",
                  formula.losses[step], own.losses[step]);
        }
        /* A rounding to 16 bits falls to the other side now and then. */
        double most = CASES[c].precision == DTYPE_BF16 ? 3e-3
                      : CASES[c].state == DTYPE_BF16   ? 1e-4
                                                       : 2e-6;
        for (int i = 0; fine && i < own.n_params; i++) {
            if (is_key_bias(&own, own.names[i])) continue;
            double apart = relative_distance(run_weight(&formula, i), run_weight(&own, i),
                                             type_elements(&own.types[i]));
            CHECK(apart < most, "'%s' is %.3g off", own.names[i], apart);
        }
        if (fine) compare_memory(&formula);
        run_close(&own);
        run_close(&formula);
        check_end();
    }
    run_zero = 0;
    run_precision = run_state_dtype = DTYPE_F32;
}

/* --- three states under several layouts --- */

static void test_layouts(void) {
    static const LayoutCase CASES[] = {
        {{2, 1, 2, 4, 1, "1f1b", true, NULL, 0}, RECOMPUTE_FULL, 0},
        {{1, 4, 1, 2, 1, "1f1b", false, NULL, 0}, RECOMPUTE_NONE, 1},
        {{2, 2, 1, 2, 1, "1f1b", false, NULL, 0}, RECOMPUTE_NONE, 2},
        {{1, 2, 2, 2, 1, "1f1b", false, NULL, 0}, RECOMPUTE_NONE, 3},
    };
    Run one;
    bool ready = start(&one, "ademamix", &ALONE) && run_steps_keeping(&one, N_STEPS, 2e-3);
    for (size_t c = 0; c < sizeof(CASES) / sizeof(CASES[0]); c++) {
        char name[160];
        Run run = {0};
        run_zero = CASES[c].zero;
        run_recompute = CASES[c].recompute;
        check_begin(layout_name("ademamix", &CASES[c].layout, name, sizeof(name)));
        bool fine = ready && start(&run, "ademamix", &CASES[c].layout) &&
                    run_steps_keeping(&run, N_STEPS, 2e-3);
        CHECK(fine, "%s%s", diag_text(one.diag), run.diag ? diag_text(run.diag) : "");
        if (fine) compare_runs(&run, &one, N_STEPS);
        if (run.diag) run_close(&run);
        check_end();
    }
    run_zero = 0;
    run_recompute = RECOMPUTE_NONE;
    run_close(&one);
}

/* Experts over ranks; a bias that balances them has no formula. */
static void test_experts(void) {
    static const ModelSetting MORE[] = {{"vocab", "24"}, {"experts", "4"}, {"bias", "true"}};
    static const Layout DIVIDED = {1, 1, 1, 4, 1, "1f1b", false, NULL, 0};
    Run one, run = {0};
    check_begin("adopt with e=2, experts balanced");
    bool fine = plan_small(&one, "models/moe.lua", "adopt", &ALONE, MORE, 3) && run_start(&one) &&
                run_steps_keeping(&one, N_STEPS, 2e-3);
    run_experts = 2;
    fine = fine && plan_small(&run, "models/moe.lua", "adopt", &DIVIDED, MORE, 3) &&
           run_start(&run) && run_steps_keeping(&run, N_STEPS, 2e-3);
    run_experts = 1;
    CHECK(fine, "%s%s", diag_text(one.diag), run.diag ? diag_text(run.diag) : "");
    if (fine) compare_losses(&run, &one, N_STEPS);
    int n_balanced = 0, n_rules = 0;
    for (int n = 0; fine && n < one.plan->programs[0].graph->n_nodes; n++) {
        OpKind op = one.plan->programs[0].graph->nodes[n]->op;
        n_balanced += op == OP_BALANCE;
        n_rules += op_rule_states(op) == 2;
    }
    CHECK(n_balanced > 0 && n_rules > n_balanced, "%d balanced, %d with a formula", n_balanced,
          n_rules);
    if (run.diag) run_close(&run);
    run_close(&one);
    check_end();
}

/* --- a model's own --- */

static void own_formula(const Step *s, double g, Element *e) {
    e->s[0] = 0.9 * e->s[0] + 0.1 * g;
    double m = e->s[0], size = s->t < 3 ? 1 : 0.5;
    double x = fabs(m) < 1e-3 ? m : size * ((m > 0) - (m < 0)) + (1 - size) * m;
    e->p -= s->rate * (x + s->decay * e->p);
}

/* Padding of the words that t does not divide stays zero, or the plan is refused. */
static void test_own(void) {
    static const Formula OWN = {"a model's own formula", own_formula, NULL, NULL};
    static const Layout TWO = {2, 1, 1, GLOBAL_BATCH, 1, "1f1b", false, NULL, 0};
    static const ModelSetting SHARE[] = {{"share", "0.5"}, {"shift", "0.5"}};
    Element *elements[TF_MAX_PARAMS];
    Run one, run, other = {0};
    check_begin(OWN.name);
    bool fine = run_plan(&one, "tests/models/rule.lua", SHARE, 1, &ALONE, GLOBAL_BATCH, true) &&
                run_start(&one);
    if (fine) begin(&one, elements);
    for (int step = 1; fine && step <= N_STEPS; step++) {
        fine = run_steps_from(&one, step - 1, 1, 1e-2);
        if (fine) follow(&one, &OWN, step, (double)(float)1e-2, 1, elements);
    }
    fine = run_plan(&run, "tests/models/rule.lua", SHARE, 1, &TWO, GLOBAL_BATCH, true) &&
           run_start(&run) && run_steps_keeping(&run, N_STEPS, 1e-2) && fine;
    CHECK(fine, "%s%s", diag_text(one.diag), diag_text(run.diag));
    if (fine) compare_losses(&run, &one, N_STEPS);
    bool planned = run_plan(&other, "tests/models/rule.lua", SHARE, 2, &TWO, GLOBAL_BATCH, true);
    CHECK(!planned &&
              strstr(diag_text(other.diag), "axis 'vocab' is 25, which t=2 does not divide, "
                                            "and the optimizer's formula"),
          "not refused: %s", diag_text(other.diag));
    run_close(&one);
    run_close(&run);
    run_close(&other);
    check_end();
}

/* --- steps that are left out --- */

/* 2^32 is too much for gradients in f16: the scale falls until all fit. That update is the first,
 * for the formula too: the same as of a run that began with this scale. */
static void test_loss_scale(void) {
    static const LossScaling HIGH = {4294967296.0, 2000};
    Run run, other = {0};
    StepResult result = {.skipped = true};
    int step = 0;
    check_begin("f16: steps that are left out change neither weights nor states");
    run_precision = DTYPE_F16;
    run_loss_scaling = HIGH;
    bool fine = start(&run, "ademamix", &ALONE);
    int32_t *tokens = ARENA_ARRAY(run.arena, int32_t, GLOBAL_BATCH * 8);
    int32_t *labels = ARENA_ARRAY(run.arena, int32_t, GLOBAL_BATCH * 8);
    if (fine) fill_batch(run.plan, 0, tokens, labels);
    double scale = HIGH.initial;
    while (fine && result.skipped && step < 40) {
        scale = step ? result.loss_scale : scale;
        fine = engine_step(run.engine, ++step, tokens, labels, 2e-3, &result, run.diag);
    }
    CHECK(fine && step > 2 && step < 40, "%d steps: %s", step, diag_text(run.diag));
    run_loss_scaling = (LossScaling){scale, 2000};
    fine = fine && start(&other, "ademamix", &ALONE) &&
           engine_step(other.engine, 1, tokens, labels, 2e-3, &result, other.diag);
    CHECK(fine && !result.skipped, "%s", other.diag ? diag_text(other.diag) : "");
    for (int i = 0; fine && i < other.n_params; i++) {
        int64_t n = type_elements(&other.types[i]);
        double apart = relative_distance(run_weight(&run, i), run_weight(&other, i), n);
        CHECK(apart == 0, "'%s' is %g off", other.names[i], apart);
    }
    run_precision = DTYPE_F32;
    run_loss_scaling = (LossScaling){0};
    run_close(&run);
    if (other.diag) run_close(&other);
    check_end();
}

/* --- checkpoints --- */

/* From one optimizer to another, under another layout; averages of weights go with it. */
static void test_checkpoint(const char *title, const char *from, const char *to, bool bits) {
    static const Layout OTHER = {1, 2, 1, 4, 1, "1f1b", false, NULL, 0};
    char path[] = "/tmp/perilune-rule-XXXXXX";
    int file = mkstemp(path);
    TrainingPlace place = {0};
    Run whole, first, second;
    check_begin(title);
    run_ema_decay = 0.9;
    bool fine = start(&whole, to, &ALONE) && run_steps(&whole, N_STEPS, 2e-3);
    fine = start(&first, from, &ALONE) && run_steps(&first, 3, 2e-3) &&
           run_save(&first, path, 3, false) && fine;
    run_zero = bits ? 0 : 1;
    fine = start(&second, to, bits ? &ALONE : &OTHER) && fine;
    fine = fine && engine_load_state(second.engine, path, &place, second.diag) &&
           run_steps_from(&second, 3, N_STEPS - 3, 2e-3);
    CHECK(fine, "%s%s%s", diag_text(whole.diag), diag_text(first.diag), diag_text(second.diag));
    if (fine && bits) compare_to_the_bit(&second, &whole, 3, N_STEPS);
    for (int step = 3; fine && step < N_STEPS; step++) {
        double error = fabs(second.losses[step] / whole.losses[step] - 1);
        CHECK(error < 1e-5, "loss %.8f, not %.8f", second.losses[step], whole.losses[step]);
    }
    run_ema_decay = 0;
    run_zero = 0;
    run_close(&whole);
    run_close(&first);
    run_close(&second);
    if (file >= 0) close(file);
    unlink(path);
    check_end();
}

/* --- what is refused --- */

static void check_refused(const char *title, const char *path, const ModelSetting *more, int n_more,
                          const Layout *layout, const char *expected) {
    Run run;
    check_begin(title);
    bool fine = plan_small(&run, path, "adamw_lua", layout, more, n_more);
    CHECK(!fine && strstr(diag_text(run.diag), expected), "not said: %s; but: %s", expected,
          diag_text(run.diag));
    run_close(&run);
    check_end();
}

static void test_refused(void) {
    static const ModelSetting ODD[] = {{"vocab", "25"}};
    run_split_masters = true;
    run_precision = DTYPE_BF16;
    check_refused("no halves of masters", "models/gpt.lua", ODD, 1, &ALONE, "--masters split");
    run_split_masters = false;
    run_precision = DTYPE_F32;
}

/* A plan whose text has `to` where `from` was first is found to be wrong. */
static void check_broken(const char *from, const char *to, const char *expected) {
    Run run;
    check_begin(expected);
    bool fine = start(&run, "ademamix", &ALONE);
    CHECK(fine, "%s", diag_text(run.diag));
    StrBuf text = strbuf_create(), broken = strbuf_create();
    if (fine) plan_print(&text, run.plan);
    const char *at = fine ? strstr(text.text, from) : NULL;
    CHECK(at, "there is no '%s'", from);
    if (at) {
        Diag *diag = diag_create();
        strbuf_printf(&broken, "%.*s%s%s", (int)(at - text.text), text.text, to, at + strlen(from));
        const Plan *plan = plan_parse(run.arena, "plan", broken.text, diag);
        bool sound = plan && verify_plan(plan, diag);
        CHECK(!sound && strstr(diag_text(diag), expected), "not said: %s; but: %s", expected,
              diag_text(diag));
        diag_destroy(diag);
    }
    strbuf_destroy(&text);
    strbuf_destroy(&broken);
    run_close(&run);
    check_end();
}

static void test_broken(void) {
    static const char OTHER[] = "{name=\"slow_m/wte\", of=\"wpe\"}";
    check_broken("squares=4", "squares=8", "squares=8 names more states than there are");
    check_broken("t0=scale(i1,value=n0)", "t0=scale(i5,value=n0)", "the program has a bad");
    check_broken("n4=pow(", "n4=power(", "the program has a bad number");
    check_broken("{name=\"slow_m/wte\", of=\"wte\"}", OTHER, "which is no state of it");
    check_broken("{name=\"step\"}", "{name=\"learning_rate\"}", "for the number of updates");
}

static void test_texts(void) {
    static const struct {
        const char *program, *numbers;
        int n_states;
        const char *error; /* NULL: none */
    } CASES[] = {
        {"t0=scale(i1,value=n0) t1=sub(i0,t0) -> t1", "", 0, NULL},
        {"t0=scale(i1,value=n4) t1=sub(i0,t0) -> t1", "", 0, "a bad instruction"},
        {"t0=scale(i1,value=inf) t1=sub(i0,t0) -> t1", "", 0, "a bad instruction"},
        {"t0=dropout(i1,p=0.5,key=3) -> t0", "", 0, "a bad instruction"},
        {"t0=scale(i2,value=1) -> t0", "", 0, "a bad instruction"},
        {"t0=scale(i2,value=1) -> t0", "", 1, "another number of results"},
        {"t0=const(value=n3) -> t0", "", 0, NULL},
        {"t0=const(,value=n3) -> t0", "", 0, "a bad instruction"},
        {"t0=copy(i0) -> t0", "n4=pow(2,n2) n5=where(n4,1,n3)", 0, NULL},
        {"t0=copy(i0) -> t0", "n5=pow(2,n2)", 0, "a bad number"},
        {"t0=copy(i0) -> t0", "n4=pow(2,n4)", 0, "a bad number"},
        {"t0=copy(i0) -> t0", "n4=pow(2)", 0, "a bad number"},
        {"t0=copy(i0) -> t0", "n4=power(2,n2)", 0, "a bad number"},
        {"t0=copy(i0) -> t0", "n4=log(nan)", 0, "a bad number"},
        {"t0=copy(i0) -> t0", "n4=log(2)n5=log(2)", 0, "a bad number"},
    };
    check_begin("texts of rules");
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        Rule rule;
        const char *error;
        bool parsed =
            rule_parse(CASES[i].program, CASES[i].numbers, CASES[i].n_states, &rule, &error);
        CHECK(parsed == !CASES[i].error && (parsed || strcmp(error, CASES[i].error) == 0),
              "%s; %s: %s", CASES[i].program, CASES[i].numbers, error ? error : "fine");
        if (!parsed) continue;
        StrBuf text = strbuf_create();
        expr_print(&text, &rule.expr);
        CHECK(strcmp(text.text, CASES[i].program) == 0, "printed: %s", text.text);
        strbuf_destroy(&text);
    }
    check_end();
}

static void test_zeros(void) {
    static const struct {
        const char *program, *numbers;
        int n_states;
        bool keeps;
    } CASES[] = {
        {"t0=offset(i0,value=1) -> t0", "", 0, false},
        {"t0=offset(i0,value=n1) -> t0", "", 0, false},
        {"t0=div(i1,i2) t1=copy(i2) -> t0 t1", "", 1, false},
        /* A state that grows from 0 may be a divisor's part, and may not be a weight. */
        {"t0=offset(i2,value=1) t1=offset(t0,value=1) t2=div(i1,t1) -> t2 t0", "", 1, true},
        {"t0=offset(i2,value=1) t1=add(i1,t0) -> t1 t0", "", 1, false},
        {"t0=offset(i2,value=-1) t1=offset(t0,value=1) t2=div(i1,t1) -> t2 t0", "", 1, false},
        {"t0=mul(i0,i2) t1=exp(i2) -> t0 t1", "", 1, true},
        {"t0=scale(i0,value=n5) -> t0", "n4=sub(1,n2) n5=div(1,n4)", 0, true},
        {"t0=offset(i0,value=n4) t1=div(i1,t0) -> t1", "n4=pow(0.9,n2)", 0, false},
        {"t0=offset(i0,value=n5) t1=div(i1,t0) -> t1", "n4=pow(0.9,n2) n5=sub(1,n4)", 0, true},
        {"t0=offset(i0,value=1e-50) t1=div(i1,t0) -> t1", "", 0, false}, /* 0 in f32 */
        {"t0=less(i1,i0) -> t0", "", 0, false},
    };
    check_begin("what a formula makes of padding");
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        Rule rule;
        const char *error;
        bool parsed =
            rule_parse(CASES[i].program, CASES[i].numbers, CASES[i].n_states, &rule, &error);
        CHECK(parsed, "%s: %s", CASES[i].program, error);
        CHECK(!parsed || rule_keeps_zero(&rule) == CASES[i].keeps, "%s; %s", CASES[i].program,
              CASES[i].numbers);
    }
    check_end();
}

int main(void) {
    for (size_t i = 0; i < sizeof(FORMULAS) / sizeof(FORMULAS[0]); i++) test_formula(&FORMULAS[i]);
    test_own_adamw();
    test_layouts();
    test_experts();
    test_own();
    test_loss_scale();
    test_checkpoint("ademamix goes on to the bit", "ademamix", "ademamix", true);
    test_checkpoint("AdamW goes on as a formula, with ZeRO", "adamw", "adamw_lua", false);
    test_refused();
    test_broken();
    test_texts();
    test_zeros();
    compare_print_worst();
    return check_report();
}
