/* Optimizers that are formulas: one elementwise program, whose immediates are set before it runs.
 */
#include "runtime/bind_rule.h"
#include "runtime/cpu/bind_elementwise.h"
#include "runtime/cpu/optimizer.h"

#include <math.h>
#include <string.h>

typedef struct RuleArgs {
    int n_numbers, n_instructions;
    const RuleNumber *numbers;
    uint8_t immediates[EXPR_MAX_INSTRUCTIONS]; /* ExprInstruction.number */
    RuleCall call;
    ElementwiseCall *program;
    int64_t n;
    void *parameter;
    uint16_t *copy; /* or NULL */
    DType copy_dtype;
    BindRescale rescale;
} RuleArgs;

static bool run_rule(const void *args) {
    const RuleArgs *a = args;
    const RuleCall *c = &a->call;
    const double given[RULE_N_GIVEN] = {[RULE_FACTOR] = (double)*c->factor,
                                        [RULE_RATE] = (double)*c->rate * c->rate_scale,
                                        [RULE_STEP] = (double)*c->updates,
                                        [RULE_DECAY] = c->decay};
    float numbers[RULE_MOST_NUMBERS];
    if (!isfinite(*c->factor)) return true;
    rule_compute_numbers(a->numbers, a->n_numbers, given, numbers);
    for (int n = 0; n < a->n_instructions; n++) {
        int number = a->immediates[n];
        if (number) elementwise_set_immediate(a->program, n, numbers[number - 1]);
    }
    a->program->threshold = optimizer_threshold(*c->updates);
    elementwise_run(a->program);
    if (!a->rescale.factors) return true;
    optimizer_rescale(a->n, a->rescale.inner, a->rescale.count, c->factor, a->rescale.factors,
                      a->parameter, a->copy, a->copy_dtype);
    return true;
}

/* What of the rule changes with the step. */
static void keep_numbers(Binding *b, const Rule *rule, RuleArgs *args) {
    RuleNumber *numbers = ARENA_ARRAY(b->arena, RuleNumber, rule->n_numbers);
    memcpy(numbers, rule->numbers, sizeof(*numbers) * (size_t)rule->n_numbers);
    args->numbers = numbers;
    args->n_numbers = rule->n_numbers;
    args->n_instructions = rule->expr.n_instructions;
    for (int n = 0; n < rule->expr.n_instructions; n++) {
        args->immediates[n] = (uint8_t)rule->expr.instructions[n].number;
    }
}

static bool prepare(Binding *b, const Expr *expr, RuleArgs *args) {
    ElementwiseSpec spec = {.n_dims = 1,
                            .dims = {args->n},
                            .n_in = expr->n_inputs,
                            .n_out = expr->n_outputs,
                            .n_instr = expr->n_instructions};
    ElementwiseInstr instructions[EXPR_MAX_INSTRUCTIONS];
    const char *why = "";
    for (int i = 0; i < spec.n_in; i++) {
        spec.in[i] = b->in[i];
        spec.in_dtype[i] = b->in_local[i].dtype;
        spec.in_stride[i][0] = 1;
    }
    for (int o = 0; o < spec.n_out; o++) {
        spec.out[o] = b->out[o];
        spec.out_dtype[o] = b->out_local[o].dtype;
        spec.out_above[o] = args->call.above[o];
        spec.out_register[o] = spec.n_in + expr->outputs[o];
    }
    if (!cpu_fill_instructions(b, expr, instructions)) return false;
    spec.instr = instructions;
    return elementwise_prepare(&spec, args->program, &why) || bind_fail(b, why);
}

bool cpu_bind_rule(Binding *b, CpuCall *out) {
    RuleArgs *args = ARENA_NEW(b->arena, RuleArgs);
    Rule rule = rule_of_node(b->node);
    bind_rule(b, &rule, &args->call);
    keep_numbers(b, &rule, args);
    args->n = type_elements(&b->in_local[0]);
    args->program = ARENA_NEW(b->arena, ElementwiseCall);
    args->parameter = b->out[0];
    if (args->call.has_copy) {
        args->copy = b->out[args->call.copy_output];
        args->copy_dtype = b->out_local[args->call.copy_output].dtype;
    }
    *out = (CpuCall){run_rule, args};
    return prepare(b, &rule.expr, args) && bind_rescale(b, &args->rescale);
}
