/* Sizes that config.json of some types says by a rule, or not at all. */
#ifndef FRONTEND_HF_HF_SIZES_H
#define FRONTEND_HF_HF_SIZES_H

#include "ir/base/arena.h"

#include <jansson.h>

/* Of an lfm2, `intermediate_size` becomes the width that its layers have: where
 * `block_auto_adjust_ff_dim` says so, two thirds of it, times `block_ffn_dim_multiplier`, rounded
 * up to a multiple of `block_multiple_of`. Of a nemotron_h, `num_hidden_layers` becomes as many as
 * its list of layers, or its text, has. NULL, or what is wrong, in the arena. */
const char *hf_sizes_normalise(Arena *arena, json_t *json);

#endif
