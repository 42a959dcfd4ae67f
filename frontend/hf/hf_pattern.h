/* Which layers are of which kind: lists in a configuration, and a text of letters that counts over
 * and over in a script's setting ("MMMA": each fourth is an A).
 *
 * Of the rows' kinds HF_LAYERS, HF_PLACES and HF_EVERY (hf_families.h).
 */
#ifndef FRONTEND_HF_HF_PATTERN_H
#define FRONTEND_HF_HF_PATTERN_H

#include "frontend/hf/hf_families.h"
#include "ir/base/arena.h"

#include <jansson.h>

/* The shortest text that says what `value` says of so many layers. NULL: *out_why says what is
 * wrong with it, in the arena, in words that follow the key's name. */
const char *hf_pattern_read(Arena *arena, const HfKey *key, const json_t *value, int64_t layers,
                            const char **out_why);

/* The list of HF_LAYERS or HF_PLACES that says what `pattern` says, which the caller frees. NULL: a
 * layer is of a kind that they do not have, whose letter is *out_missing. */
json_t *hf_pattern_write(const HfKey *key, const char *pattern, int64_t layers, char *out_missing);

#endif
