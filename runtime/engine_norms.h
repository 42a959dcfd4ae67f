/* How large each parameter that trains is, its gradient, and what a step has changed of it.
 *
 * Sums of squares of gradients are there after every step, as they are what the gradients' norm is
 * made of (ir/gradient.h); weights are read, on the host, where it is asked for. All processes call
 * all of this, between steps; the first one is told. The same numbers come of every layout.
 */
#ifndef RUNTIME_ENGINE_NORMS_H
#define RUNTIME_ENGINE_NORMS_H

#include "runtime/engine.h"

/* `change` is an estimate where a rank has more numbers of a parameter than these. */
enum { NORM_SAMPLE = 4096 };

typedef struct EngineNorms EngineNorms;

/* Takes memory for NORM_SAMPLE numbers of each parameter of this process' ranks, and reads nothing.
 * Outlived by the engine. */
EngineNorms *engine_norms_create(Engine *engine);
void engine_norms_destroy(EngineNorms *norms); /* NULL is fine */
/* Before a step: keeps samples of the weights. */
void engine_norms_begin(EngineNorms *norms);
/* After a step, of which `grad_norm` is: *out[*out_n], the engine's order, until the next call; of
 * other processes than the first *out_n is 0. Without engine_norms_begin before it changes are not
 * known. False: the job or a copy failed; reported. */
bool engine_norms_end(EngineNorms *norms, double grad_norm, const ParameterNorm **out, int *out_n,
                      Diag *diag);

#endif
