/* From an elementwise program of the graph to the kernel's. */
#ifndef RUNTIME_CPU_BIND_ELEMENTWISE_H
#define RUNTIME_CPU_BIND_ELEMENTWISE_H

#include "ir/expr.h"
#include "runtime/cpu/bind.h"
#include "runtime/cpu/elementwise.h"

/* Fills out[expr->n_instructions]; registers begin with the program's operands. False: reported. */
bool cpu_fill_instructions(Binding *binding, const Expr *expr, ElementwiseInstr *out);

#endif
