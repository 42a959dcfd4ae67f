/* A file of weights (safetensors), as training, import and other programs write it: whose they are,
 * where in a run they are from, and each tensor's dtype and shape. */
#ifndef FRONTEND_COMMANDS_SHOW_WEIGHTS_H
#define FRONTEND_COMMANDS_SHOW_WEIGHTS_H

#include "ir/base/diag.h"
#include "ir/base/strbuf.h"

#include <stdbool.h>

/* Does the file begin as one does? False also where it cannot be read. */
bool is_weights(const char *path);

/* Appends text, or
 *     {"file", "model", "settings": {...}, "step", "samples", "numbers", "bytes",
 *      "metadata": {...}, "tensors": [{"name", "dtype", "shape": [...], "bytes"}]}
 * with `values` also {"rms", "largest", "not_finite"} of each tensor, null where it has no numbers
 * that are looked at (f32, bf16, f16). Of the file, model, settings, step and samples are null
 * where the file does not say. The file is untrusted: false, reported. */
bool show_weights_text(StrBuf *out, const char *path, bool values, Diag *diag);
bool show_weights_json(StrBuf *out, const char *path, bool values, Diag *diag);

#endif
