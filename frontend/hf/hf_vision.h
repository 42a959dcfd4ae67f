/* Folders of models that see images: LLaVA, Idefics 3 with SmolVLM, and InternVL.
 *
 * config.json has its text part's configuration as `text_config` and its tower's as
 * `vision_config`. The rows of hf_families.h know it with the text part's keys in the whole, with
 * what is left unsaid there written out, and with the layers of the tower that are computed: LLaVA
 * leaves the last one out. Names of weights are those of published files; transformers 5 has
 * others.
 */
#ifndef FRONTEND_HF_HF_VISION_H
#define FRONTEND_HF_HF_VISION_H

#include "ir/base/arena.h"

#include <jansson.h>
#include <stdbool.h>

bool hf_vision_is_type(const char *model_type);
/* Puts *json, of any model, into that form, if it is of such a one. NULL, or what is wrong with it,
 * in the arena. */
const char *hf_vision_take(Arena *arena, json_t **json);
/* The reverse, of an export's configuration. */
void hf_vision_finish(json_t *json);
/* The i-th other name, from 0, that a file may have for `name`; NULL: there are no more. */
const char *hf_vision_name(Arena *arena, const char *name, int i);
/* Is it a tensor of the tower's layers from number `layers` on? */
bool hf_vision_is_beyond(const char *name, long long layers);

#endif
