/* What a plan of a model on one rank of a GPU, one sequence at a time, is asked for with: where
 * searches and prices start from. */
#ifndef TESTS_UNIT_MODEL_REQUEST_H
#define TESTS_UNIT_MODEL_REQUEST_H

#include "frontend/lua/model.h"
#include "planner/planner.h"

static inline PlanRequest model_request(const Model *model) {
    return (PlanRequest){.model = model->name,
                         .forward = model->graph,
                         .n_blocks = model->n_blocks,
                         .seq = model->seq,
                         .vocab = model->vocab,
                         .recipe = model->recipe,
                         .options = {.mesh = {.size = {1, 1, 1, 1, 1, 1}},
                                     .micro_batch = 1,
                                     .global_batch = 1,
                                     .n_chunks = 1,
                                     .schedule = "1f1b",
                                     .precision = DTYPE_BF16,
                                     .cuda = true,
                                     .seed = 1}};
}

#endif
