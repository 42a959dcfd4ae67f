#include "ir/rule.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    int n_operands;
} NUMBER_OPS[N_RULE_NUMBER_OPS] = {
#define X(NAME, name, n_operands) {#name, n_operands},
    RULE_NUMBER_OPS(X)
#undef X
};

/* --- text --- */

static bool skip(const char **at, const char *text) {
    size_t length = strlen(text);
    if (strncmp(*at, text, length) != 0) return false;
    *at += length;
    return true;
}

static bool parse_number_name(const char **at, int limit, int *out) {
    char *end;
    if (!skip(at, "n") || !isdigit((unsigned char)**at)) return false;
    long value = strtol(*at, &end, 10);
    if (value < 0 || value >= limit) return false;
    *at = end;
    *out = (int)value;
    return true;
}

static bool parse_operand(const char **at, int n_before, RuleOperand *out) {
    char *end;
    if (**at == 'n') return parse_number_name(at, n_before, &out->number);
    out->number = -1;
    out->value = strtod(*at, &end);
    if (end == *at || !isfinite(out->value)) return false;
    *at = end;
    return true;
}

static bool parse_number(const char **at, Rule *rule) {
    RuleNumber *number = &rule->numbers[rule->n_numbers];
    int name, op = 0, length = 0;
    if (!parse_number_name(at, RULE_MOST_NUMBERS, &name) || name != rule->n_numbers) return false;
    if (!skip(at, "=")) return false;
    while (isalpha((unsigned char)(*at)[length])) length++;
    while (op < N_RULE_NUMBER_OPS && (strncmp(NUMBER_OPS[op].name, *at, (size_t)length) != 0 ||
                                      NUMBER_OPS[op].name[length])) {
        op++;
    }
    if (op == N_RULE_NUMBER_OPS) return false;
    number->op = (RuleNumberOp)op;
    *at += length;
    if (!skip(at, "(")) return false;
    for (int i = 0; i < NUMBER_OPS[op].n_operands; i++) {
        if (i && !skip(at, ",")) return false;
        if (!parse_operand(at, rule->n_numbers, &number->operands[i])) return false;
    }
    rule->n_numbers++;
    return skip(at, ")");
}

static const char *parse_numbers(const char *text, Rule *rule) {
    const char *at = text;
    rule->n_numbers = RULE_N_GIVEN;
    while (*at) {
        if (rule->n_numbers == RULE_MOST_NUMBERS) return "too many numbers";
        if (rule->n_numbers > RULE_N_GIVEN && !skip(&at, " ")) return "a bad number";
        if (!parse_number(&at, rule)) return "a bad number";
    }
    return NULL;
}

bool rule_parse(const char *program, const char *numbers, int n_states, Rule *out,
                const char **out_error) {
    *out = (Rule){.n_states = n_states};
    *out_error = parse_numbers(numbers, out);
    if (*out_error) return false;
    if (!expr_parse_rule(program, 2 + n_states, out->n_numbers, &out->expr, out_error)) {
        return false;
    }
    if (out->expr.n_instructions > RULE_MOST_INSTRUCTIONS) *out_error = "too many instructions";
    if (out->expr.n_outputs != 1 + n_states) *out_error = "another number of results";
    return !*out_error;
}

Rule rule_of_node(const Node *node) {
    Rule rule;
    const char *error;
    if (!rule_parse(node_string(node, ATTR_program), node_string(node, ATTR_numbers),
                    op_rule_states(node->op), &rule, &error)) {
        BUG("%s: the program has %s", OPS[node->op].name, error);
    }
    return rule;
}

/* --- numbers --- */

static double compute(RuleNumberOp op, double x, double y, double z) {
    switch (op) {
    case RULE_ADD: return x + y;
    case RULE_SUB: return x - y;
    case RULE_MUL: return x * y;
    case RULE_DIV: return x / y;
    case RULE_POW: return pow(x, y);
    case RULE_MINIMUM: return fmin(x, y);
    case RULE_MAXIMUM: return fmax(x, y);
    case RULE_LESS: return x < y;
    case RULE_WHERE: return x != 0 ? y : z;
    case RULE_EXP: return exp(x);
    case RULE_LOG: return log(x);
    case RULE_SQRT: return sqrt(x);
    case N_RULE_NUMBER_OPS: break;
    }
    BUG("no such number: %d", (int)op);
}

void rule_compute_numbers(const RuleNumber *numbers, int n_numbers,
                          const double given[RULE_N_GIVEN], float out[RULE_MOST_NUMBERS]) {
    double values[RULE_MOST_NUMBERS];
    memcpy(values, given, RULE_N_GIVEN * sizeof(*values));
    for (int n = RULE_N_GIVEN; n < n_numbers; n++) {
        const RuleNumber *number = &numbers[n];
        double x[3] = {0};
        for (int i = 0; i < NUMBER_OPS[number->op].n_operands; i++) {
            const RuleOperand *operand = &number->operands[i];
            x[i] = operand->number < 0 ? operand->value : values[operand->number];
        }
        values[n] = compute(number->op, x[0], x[1], x[2]);
    }
    for (int n = 0; n < n_numbers; n++) out[n] = (float)values[n];
}

static void print_operand(StrBuf *out, const RuleOperand *operand) {
    if (operand->number >= 0) {
        strbuf_printf(out, "n%d", operand->number);
    } else {
        strbuf_printf(out, "(double)%.17g", operand->value);
    }
}

void rule_print_numbers(StrBuf *out, const Rule *rule) {
    /* Before, between and behind the operands; pow, exp, log and sqrt are C's. */
    static const char *const FORMS[N_RULE_NUMBER_OPS][4] = {
        [RULE_ADD] = {"", " + ", "", ""},
        [RULE_SUB] = {"", " - ", "", ""},
        [RULE_MUL] = {"", " * ", "", ""},
        [RULE_DIV] = {"", " / ", "", ""},
        [RULE_POW] = {"pow(", ", ", ")", ""},
        [RULE_MINIMUM] = {"fmin(", ", ", ")", ""},
        [RULE_MAXIMUM] = {"fmax(", ", ", ")", ""},
        [RULE_LESS] = {"", " < ", " ? 1.0 : 0.0", ""},
        [RULE_WHERE] = {"", " != 0.0 ? ", " : ", ""},
        [RULE_EXP] = {"exp(", ")", "", ""},
        [RULE_LOG] = {"log(", ")", "", ""},
        [RULE_SQRT] = {"sqrt(", ")", "", ""},
    };
    for (int n = RULE_N_GIVEN; n < rule->n_numbers; n++) {
        const RuleNumber *number = &rule->numbers[n];
        strbuf_printf(out, "double n%d = %s", n, FORMS[number->op][0]);
        for (int i = 0; i < NUMBER_OPS[number->op].n_operands; i++) {
            print_operand(out, &number->operands[i]);
            strbuf_put(out, FORMS[number->op][1 + i]);
        }
        strbuf_put(out, ";\n");
    }
}

/* --- what stays zero --- */

/* All that a value may be, infinities left out; not-a-numbers are none of these. */
typedef struct Interval {
    double low, high;
} Interval;

static const Interval ANY = {-INFINITY, INFINITY};

static Interval hull(Interval x, Interval y) {
    return (Interval){fmin(x.low, y.low), fmax(x.high, y.high)};
}

static bool is_zero(Interval x) {
    return x.low == 0 && x.high == 0;
}

static bool holds_zero(Interval x) {
    return x.low <= 0 && x.high >= 0;
}

/* No number is what is said of it where it is not one. */
static Interval checked(double low, double high) {
    return low <= high ? (Interval){low, high} : ANY;
}

static Interval neg(Interval x) {
    return (Interval){-x.high, -x.low};
}

static Interval add(Interval x, Interval y) {
    return checked(x.low + y.low, x.high + y.high);
}

/* Zero times what is finite. */
static double times(double x, double y) {
    return x == 0 || y == 0 ? 0 : x * y;
}

static Interval mul(Interval x, Interval y) {
    double a = times(x.low, y.low), b = times(x.low, y.high);
    double c = times(x.high, y.low), d = times(x.high, y.high);
    return (Interval){fmin(fmin(a, b), fmin(c, d)), fmax(fmax(a, b), fmax(c, d))};
}

static Interval reciprocal(Interval x) {
    return holds_zero(x) ? ANY : (Interval){1 / x.high, 1 / x.low};
}

static Interval divided(Interval x, Interval y) {
    return holds_zero(y) ? ANY : mul(x, reciprocal(y));
}

/* Of functions that never fall, where the interval is within what they take. */
static Interval rising(double f(double), Interval x, double least) {
    return x.low >= least ? checked(f(x.low), f(x.high)) : ANY;
}

static Interval absolute(Interval x) {
    if (x.low >= 0) return x;
    return x.high <= 0 ? neg(x) : (Interval){0, fmax(-x.low, x.high)};
}

static Interval minimum(Interval x, Interval y) {
    return (Interval){fmin(x.low, y.low), fmin(x.high, y.high)};
}

static Interval power(Interval x, Interval y) {
    if (x.low < 0) return ANY;
    double a = pow(x.low, y.low), b = pow(x.low, y.high);
    double c = pow(x.high, y.low), d = pow(x.high, y.high);
    Interval out = {fmin(fmin(a, b), fmin(c, d)), fmax(fmax(a, b), fmax(c, d))};
    return out.low <= out.high && !isnan(a + b + c + d) ? out : (Interval){0, INFINITY};
}

static Interval number_interval(const RuleNumber *number, const Interval *x) {
    switch (number->op) {
    case RULE_ADD: return add(x[0], x[1]);
    case RULE_SUB: return add(x[0], neg(x[1]));
    case RULE_MUL: return mul(x[0], x[1]);
    case RULE_DIV: return divided(x[0], x[1]);
    case RULE_POW: return power(x[0], x[1]);
    case RULE_MINIMUM: return minimum(x[0], x[1]);
    case RULE_MAXIMUM: return neg(minimum(neg(x[0]), neg(x[1])));
    case RULE_LESS: return (Interval){0, 1};
    case RULE_WHERE: return hull(x[1], x[2]);
    case RULE_EXP: return rising(exp, x[0], -INFINITY);
    case RULE_LOG: return x[0].low > 0 ? rising(log, x[0], 0) : ANY;
    case RULE_SQRT: return rising(sqrt, x[0], 0);
    case N_RULE_NUMBER_OPS: break;
    }
    BUG("no such number: %d", (int)number->op);
}

static void find_number_intervals(const Rule *rule, Interval *out) {
    static const Interval GIVEN[RULE_N_GIVEN] = {
        [RULE_FACTOR] = {0, INFINITY},
        [RULE_RATE] = {0, INFINITY},
        [RULE_STEP] = {1, INFINITY},
        [RULE_DECAY] = {0, INFINITY},
    };
    memcpy(out, GIVEN, sizeof(GIVEN));
    for (int n = RULE_N_GIVEN; n < rule->n_numbers; n++) {
        Interval x[3] = {{0, 0}};
        for (int i = 0; i < NUMBER_OPS[rule->numbers[n].op].n_operands; i++) {
            const RuleOperand *operand = &rule->numbers[n].operands[i];
            x[i] = operand->number < 0 ? (Interval){operand->value, operand->value}
                                       : out[operand->number];
        }
        out[n] = number_interval(&rule->numbers[n], x);
    }
    for (int n = 0; n < rule->n_numbers; n++) { /* what rounds to 0 is 0 */
        out[n] = (Interval){(double)(float)out[n].low, (double)(float)out[n].high};
    }
}

static double sign(double x) {
    return (x > 0) - (x < 0);
}

static double squared(double x) {
    return x * x;
}

static double logistic(double x) {
    return 1 / (1 + exp(-x));
}

/* imm: the instruction's immediate. */
static Interval instruction_interval(OpKind op, const Interval *x, Interval imm) {
    switch (op) {
    case OP_CONST: return imm;
    case OP_ADD: return add(x[0], x[1]);
    case OP_SUB: return add(x[0], neg(x[1]));
    case OP_MUL: return mul(x[0], x[1]);
    case OP_DIV: return divided(x[0], x[1]);
    case OP_NEG: return neg(x[0]);
    case OP_SCALE: return mul(x[0], imm);
    case OP_OFFSET: return add(x[0], imm);
    case OP_COPY: return x[0];
    case OP_SQUARE: return rising(squared, absolute(x[0]), 0);
    case OP_SQRT: return rising(sqrt, x[0], 0);
    case OP_RSQRT: return x[0].low > 0 ? reciprocal(rising(sqrt, x[0], 0)) : ANY;
    case OP_RECIPROCAL: return reciprocal(x[0]);
    case OP_EXP: return rising(exp, x[0], -INFINITY);
    case OP_LOG: return x[0].low > 0 ? rising(log, x[0], 0) : ANY;
    case OP_TANH: return rising(tanh, x[0], -INFINITY);
    case OP_SIGMOID: return rising(logistic, x[0], -INFINITY);
    case OP_MAXIMUM: return neg(minimum(neg(x[0]), neg(x[1])));
    case OP_MINIMUM: return minimum(x[0], x[1]);
    case OP_ABS: return absolute(x[0]);
    case OP_SIGN: return rising(sign, x[0], -INFINITY);
    case OP_ROUND: return rising(nearbyint, x[0], -INFINITY);
    case OP_LESS:
    case OP_EQUAL: return (Interval){0, 1};
    default: return ANY;
    }
}

static void run_intervals(const Expr *expr, const Interval *numbers, const Interval *inputs,
                          Interval *outputs) {
    Interval registers[EXPR_MAX_INSTRUCTIONS];
    for (int n = 0; n < expr->n_instructions; n++) {
        const ExprInstruction *ins = &expr->instructions[n];
        Interval x[EXPR_MAX_OPERANDS] = {{0, 0}},
                 imm = {(double)(float)ins->imm, (double)(float)ins->imm};
        for (int i = 0; i < OPS[ins->op].min_inputs; i++) {
            int from = ins->operands[i];
            x[i] = from < 0 ? inputs[~from] : registers[from];
        }
        if (ins->number) imm = numbers[ins->number - 1];
        registers[n] = instruction_interval(ins->op, x, imm);
    }
    for (int i = 0; i < expr->n_outputs; i++) outputs[i] = registers[expr->outputs[i]];
}

bool rule_keeps_zero(const Rule *rule) {
    enum { MOST_ROUNDS = 3 * MAX_OUTPUTS };
    Interval numbers[RULE_MOST_NUMBERS], inputs[EXPR_MAX_INPUTS] = {{0, 0}}, outputs[MAX_OUTPUTS];
    find_number_intervals(rule, numbers);
    for (int round = 0; round < MOST_ROUNDS; round++) {
        bool grew = false;
        run_intervals(&rule->expr, numbers, inputs, outputs);
        if (!is_zero(outputs[0])) return false;
        for (int i = 0; i < rule->n_states; i++) {
            Interval *state = &inputs[2 + i];
            /* A bound that moves is given up at once, so that few rounds are enough. */
            if (outputs[1 + i].low < state->low) {
                state->low = outputs[1 + i].low >= 0 ? 0 : -INFINITY;
                grew = true;
            }
            if (outputs[1 + i].high > state->high) {
                state->high = INFINITY;
                grew = true;
            }
        }
        if (!grew) return true;
    }
    return false;
}
