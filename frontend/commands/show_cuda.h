/* The CUDA section of plan and show: what a plan for CUDA becomes there. */
#ifndef FRONTEND_COMMANDS_SHOW_CUDA_H
#define FRONTEND_COMMANDS_SHOW_CUDA_H

#include "planner/show/show.h"

/* show_text and show_json, with the section where the plan is for CUDA. In JSON, key `cuda`: stage,
 * rank, nodes, in_pieces, launches_saved, streams, events, waits, messages, graph_bytes,
 * generated_kernels, seconds, kernels[].{name, count, flops, bytes, seconds}. */
bool show_cuda_text(StrBuf *out, const Plan *plan, const Device *device, Diag *diag);
bool show_cuda_json(StrBuf *out, const Plan *plan, const Device *device, Diag *diag);

#endif
