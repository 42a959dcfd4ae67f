/* What config.json says of rotary positions, in one form.
 *
 * transformers 4 has rope_theta, partial_rotary_factor and rope_scaling (with `type` in place of
 * `rope_type` in older files), 5 has all of them in rope_parameters; where layers with a window
 * have positions of their own, 4 has their base as rope_local_base_freq, 5 an object for each kind
 * of layer. The rows of hf_families.h know the form of 4.
 *
 * longrope's factor of sines and cosines, which may follow from the longest context, becomes
 * rope_scaling.attention_factor (_compute_longrope_parameters there).
 *
 * "dynamic" scales positions of a context beyond max_position_embeddings only: InternVL's is no
 * scaling, and what it says is kept under HF_ROPE_BEYOND, for the import to see and the export to
 * give back.
 */
#ifndef FRONTEND_HF_HF_ROPE_H
#define FRONTEND_HF_HF_ROPE_H

#include "ir/base/arena.h"

#include <jansson.h>
#include <stdbool.h>

#define HF_ROPE_BEYOND "rope_beyond"

/* Puts `json` into that form; by_layer: layers with a window may have positions of their own. NULL,
 * or what is wrong with it, in the arena. */
const char *hf_rope_normalise(Arena *arena, json_t *json, bool by_layer);

/* The reverse, of an export's configuration: longrope as Phi 3's published files have it, which all
 * versions of transformers read: `type` and two lists, and the factor of sines and cosines not by
 * itself but by the longest context, where there is one that has it; OLMo 3 in both forms, the
 * older one and that by kinds of layers; InternVL's "dynamic". */
void hf_rope_finish(json_t *json);

#endif
