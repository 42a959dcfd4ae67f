/* Expr: the program inside a fused node, a straight line of elementwise instructions.
 *
 *   t0=add(i0,i1) t1=gelu(t0) t2=dropout(t1,p=0.1,key=3) -> t0 t2
 *   t0=dropout(i0,p=0.1,key=3,first=1,count=2) -> t0
 *
 * i0.. are the node's operands, t0.. the results of earlier instructions; what follows the arrow
 * are the node's results, in order. Attributes of an instruction are those of its op.
 */
#ifndef IR_EXPR_H
#define IR_EXPR_H

#include "ir/op.h"

enum { EXPR_MAX_INSTRUCTIONS = 32, EXPR_MAX_INPUTS = 8, EXPR_MAX_OPERANDS = 3 };

typedef struct ExprInstruction {
    OpKind op;
    int operands[EXPR_MAX_OPERANDS]; /* >= 0: instruction result; < 0: operand ~value of the node */
    double imm;                      /* value= or p= */
    int number;  /* of a rule (ir/rule.h): 1 + which of its numbers is the immediate; 0: imm is */
    int64_t key; /* dropout */
    int64_t first, count; /* dropout: its rows are so many-eths of the whole's; or 0 */
} ExprInstruction;

typedef struct Expr {
    int n_inputs, n_instructions, n_outputs;
    ExprInstruction instructions[EXPR_MAX_INSTRUCTIONS];
    int outputs[MAX_OUTPUTS]; /* instruction numbers */
} Expr;

/* Untrusted text. False: *out_error says why. */
bool expr_parse(const char *text, int n_inputs, Expr *out, const char **out_error);
/* The same of a rule, whose immediates may be one of `n_numbers`, and that may have constants. */
bool expr_parse_rule(const char *text, int n_inputs, int n_numbers, Expr *out,
                     const char **out_error);
void expr_print(StrBuf *out, const Expr *expr);
/* The dtype of every register, given the operands': an instruction has its operands', which must be
 * one, a cast its own; comparisons take any and have f32. -1, or the first instruction whose
 * operands differ. */
int expr_infer_dtypes(const Expr *expr, const DType *inputs, DType *out_registers);
/* Of each `count` rows of the batch, which one the program's dropout is for: 0 of 1 without. */
enum { EXPR_MOST_LANES = 1 << 16 };
typedef struct ExprLane {
    int64_t first, count;
} ExprLane;
ExprLane expr_lane(const Expr *expr);
bool expr_lane_fits(int64_t first, int64_t count);
/* The one-instruction program of an elementwise node. */
Expr expr_of_node(const Node *node);

#endif
