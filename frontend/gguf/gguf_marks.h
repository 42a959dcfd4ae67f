/* Training with weights as an export to GGUF will have them (--qat, ir/ops/round_blocks.h).
 *
 * Each parameter that trains and is to be in blocks, or in f16, is told so, and along which axes
 * the file's rows run: what gguf_export.c does with the same model and the same type.
 */
#ifndef FRONTEND_GGUF_GGUF_MARKS_H
#define FRONTEND_GGUF_GGUF_MARKS_H

#include "frontend/gguf/gguf_types.h"
#include "frontend/lua/model.h"

/* False: reported, as when there is no export of the model, or none of its matrices trains. */
bool gguf_mark(Model *model, const GgufType *type, Diag *diag);

#endif
