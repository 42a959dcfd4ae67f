/* What a tokenizer.json does with text before it is merged: its normalizer, its pre-tokenizer and,
 * as far as it concerns the text's beginning, its decoder. */
#ifndef RUNTIME_TOKENIZER_JSON_STEPS_H
#define RUNTIME_TOKENIZER_JSON_STEPS_H

#include "ir/base/json.h"
#include "runtime/tokenizer/tokenizer.h"

/* What is not supported is refused by its name. Fills normalizer, steps, pattern, byte_level,
 * prefix_first_only and strips_space. */
bool json_read_steps(Tokenizer *tokenizer, const json_t *root, const char *path, Diag *diag);

/* Members, checked: the type, or absent (and null); *out stays as it was where it is absent. False:
 * it is of another type, reported. `where` is what the object is called. */
bool json_read_bool(const json_t *object, const char *name, const char *where, bool *out,
                    SourceLoc loc, Diag *diag);
bool json_read_text(const json_t *object, const char *name, const char *where, const char **out,
                    SourceLoc loc, Diag *diag);

#endif
