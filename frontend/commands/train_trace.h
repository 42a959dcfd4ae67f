/* The measured timeline of a training step, beside the predicted one. */
#ifndef FRONTEND_COMMANDS_TRAIN_TRACE_H
#define FRONTEND_COMMANDS_TRAIN_TRACE_H

#include "planner/cost/cost.h"
#include "runtime/engine.h"

/* Runs one more step and writes when its calls ran to `path`, as show --trace writes predictions: a
 * process per rank, with slices of tasks and in them those of calls. Prints step time and shares
 * of time, measured and predicted for `device`, unless quiet. */
bool train_trace(Engine *engine, const Plan *plan, const Device *device, const char *path,
                 bool quiet, Diag *diag);

/* The whole document, for tests. `spans` as engine_trace_step gives them. */
void train_trace_print(StrBuf *out, const Plan *plan, const EngineSpan *spans, int count);

#endif
