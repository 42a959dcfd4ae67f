/* Rule: an optimizer given as a formula for each element of a parameter, which a model's script
 * says in Lua (frontend/lua/optim.lua writes both texts).
 *
 *   numbers   n4=pow(0.9,n2) n5=sub(1,n4) n6=div(n1,n5)
 *   program   t0=scale(i1,value=n0) t1=scale(t0,value=n6) t2=sub(i0,t1) -> t2
 *
 * Numbers are the same for all elements of a parameter in a step: they are computed in f64, once,
 * and rounded to f32. The first are given: n0 what gradients are multiplied by, n1 the learning
 * rate with the parameter's factor, n2 the updates so far with this one, n3 the weight decay of the
 * parameter. The program (ir/expr.h) has them for immediates; const(value=n4) is an operand of its
 * own. i0 is the parameter, i1 its gradient, then come the states; results are the parameter and
 * the states, anew. All arithmetic of it is f32.
 */
#ifndef IR_RULE_H
#define IR_RULE_H

#include "ir/expr.h"

enum { RULE_MOST_STATES = 3 };
/* One instruction is left for rounding a copy. */
enum { RULE_MOST_NUMBERS = 64, RULE_MOST_INSTRUCTIONS = EXPR_MAX_INSTRUCTIONS - 1 };
enum { RULE_FACTOR, RULE_RATE, RULE_STEP, RULE_DECAY, RULE_N_GIVEN };

#define RULE_NUMBER_OPS(X)                                                                         \
    X(ADD, add, 2)                                                                                 \
    X(SUB, sub, 2)                                                                                 \
    X(MUL, mul, 2)                                                                                 \
    X(DIV, div, 2)                                                                                 \
    X(POW, pow, 2)                                                                                 \
    X(MINIMUM, minimum, 2)                                                                         \
    X(MAXIMUM, maximum, 2)                                                                         \
    X(LESS, less, 2)   /* 1 or 0 */                                                                \
    X(WHERE, where, 3) /* the second where the first is not 0, else the third */                   \
    X(EXP, exp, 1)                                                                                 \
    X(LOG, log, 1)                                                                                 \
    X(SQRT, sqrt, 1)

typedef enum RuleNumberOp {
#define X(NAME, name, n_operands) RULE_##NAME,
    RULE_NUMBER_OPS(X)
#undef X
        N_RULE_NUMBER_OPS
} RuleNumberOp;

typedef struct RuleOperand {
    int number; /* -1: `value` */
    double value;
} RuleOperand;

typedef struct RuleNumber {
    RuleNumberOp op;
    RuleOperand operands[3];
} RuleNumber;

typedef struct Rule {
    int n_states, n_numbers;               /* n_numbers: with those that are given */
    RuleNumber numbers[RULE_MOST_NUMBERS]; /* from RULE_N_GIVEN on */
    Expr expr;
} Rule;

/* Untrusted text. False: *out_error says why. */
bool rule_parse(const char *program, const char *numbers, int n_states, Rule *out,
                const char **out_error);
/* Of a node with a rule, which inference has checked. */
Rule rule_of_node(const Node *node);
/* All numbers of a step: the given ones, and what follows. */
void rule_compute_numbers(const RuleNumber *numbers, int n_numbers,
                          const double given[RULE_N_GIVEN], float out[RULE_MOST_NUMBERS]);
/* The same as statements of C: doubles n4, n5 and so on, of n0 to n3. */
void rule_print_numbers(StrBuf *out, const Rule *rule);
/* Does a parameter's element that is 0, and has no gradient and began with states of 0, stay 0, at
 * whatever rate and step? By intervals: never true where it does not. */
bool rule_keeps_zero(const Rule *rule);

#endif
