/* What reading and writing config.json share: rows of hf_families.h, and values by their names. */
#ifndef FRONTEND_HF_HF_CONFIG_ROWS_H
#define FRONTEND_HF_HF_CONFIG_ROWS_H

#include "frontend/hf/hf_families.h"
#include "ir/base/arena.h"

#include <jansson.h>
#include <stdbool.h>

/* The setting that a row's `when` is of; NULL: the row always counts. */
const char *hf_config_when(const HfKey *key, Arena *arena);
/* Is the row of the type at all? */
bool hf_config_row_is_of(const HfKey *key, const HfType *type);
/* Does the row count for the type? `value`: of that setting, or NULL. */
bool hf_config_row_counts(const HfKey *key, const HfType *type, const char *value);

/* What is there by that name; NULL where it is missing. */
json_t *hf_config_find(const json_t *json, const char *name);
/* The reverse; `value` is the object's then. */
void hf_config_put(json_t *json, const char *name, json_t *value);
/* 1 and 1.0 are the same. */
bool hf_config_is_same(const json_t *a, const json_t *b);

/* "silu, gelu": theirs. */
const char *hf_config_known_words(Arena *arena, const HfWord *words);

#endif
