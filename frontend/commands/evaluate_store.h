/* evaluate --store-logits: what a model says of data, into a file from which others learn
 * (runtime/data/stored_logits.h). */
#ifndef FRONTEND_COMMANDS_EVALUATE_STORE_H
#define FRONTEND_COMMANDS_EVALUATE_STORE_H

#include "frontend/commands/train_data.h"

/* --store-logits and what goes with it, before the plan is known. False: reported. */
bool evaluate_store_options(const CliArgs *args, Diag *diag);
/* The plan and its data; several: it is a process of several. False: reported. */
bool evaluate_store_check(const CliArgs *args, const Plan *plan, const TrainData *data,
                          bool several, Diag *diag);
/* All windows of the data; tokens and labels: [global_batch, seq], as evaluate has them. Tells of
 * it on standard output. False: reported, and nothing is written. */
bool evaluate_store(const CliArgs *args, Engine *engine, TrainData *data, int32_t *tokens,
                    int32_t *labels, Diag *diag);

#endif
