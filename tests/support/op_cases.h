/* op_cases: small graphs around one op each, by a table of what the op's operands are like. */
#ifndef TESTS_SUPPORT_OP_CASES_H
#define TESTS_SUPPORT_OP_CASES_H

#include "tests/support/reference_eval.h"

/* operands: separated by ';', each one or two words then axes:
 *     "rows=3 cols=5"   f32, uniform in [-1, 1)       "+ cols=5"   f32, in [0.5, 2)
 *     "#7 rows=3"       i32, in [0, 7)                ":0.01"      f32, all 0.01 (axes may follow)
 *     "=0.01"           likewise, as numbers of the data, which nothing learns
 *     "@0"              operand 0 again
 *     "~rows=3", "~+ rows=3", ...                    the same in 16 bits
 *     "#5/3 batch=2 seq=4 choice=2"                  slots of a route of such choices among 5
 * experts with 3 slots each
 *     "@tokens"                                      that route's tokens
 *     "%4 rows=2 cols=64", "%8 ..."                  a frozen weight, in nf4 or int8
 * attrs: "axis=cols eps=1e-5 over=a,b", a program= last, up to the end; "low" in them is the dtype
 * in 16 bits.
 * Without `outputs` as the op's row says. */
typedef struct OpCase {
    OpKind op;
    const char *operands, *attrs;
    int outputs; /* of ops with a number of results of their own */
    int block;   /* model block + 1; 0: none */
} OpCase;

extern const OpCase OP_CASES[];
extern const int N_OP_CASES;

/* `precision` bf16 or f16: what the case says to be in 16 bits is of it or, where it says so of no
 * operand, every one that may be; f32: what it says to be in 16 bits is bf16.
 * With `loss`: the graph ends in output "loss", the sum of result 0 times random weights; of a
 * cross_entropy that says to have 2 outputs, of both. Leaves
 * come first: f32 ones are parameters (weights and constants of the test: inputs). */
Graph *op_case_build(Arena *arena, const OpCase *op_case, DType precision, bool loss, Diag *diag);
/* Is there anything to take in 16 bits that the case does not say itself? */
bool op_case_takes_low(const OpCase *op_case);
/* Is the result i32? */
bool op_case_is_integer(const OpCase *op_case);
/* Does it say that something is in 16 bits? */
bool op_case_says_low(const OpCase *op_case);
/* One number of what an operand's text says: uniform, "+", "#7" or ":0.01"; or "-": a decay's
 * logarithm in (-1, 0], now and then -200. */
double op_case_draw(const char *operand, uint64_t *state);
/* Reproducible values for the leaves of a graph that began as op_case_build's. They are exact in
 * f32. Leaves that passes added stay zero. */
void op_case_fill(const OpCase *op_case, const Graph *graph, Reference *reference);
/* "add(rows=3 cols=5; cols=5) {}": to name the case in reports. */
const char *op_case_name(Arena *arena, const OpCase *op_case, const char *what);

#endif
