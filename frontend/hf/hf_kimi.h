/* The two forms of a Kimi Linear's config.json: that of its publisher, and transformers 5's.
 *
 * The publisher's has sizes and lists of layers, counted from 1, in `linear_attn_config`, and how
 * many layers come before those with experts; transformers' has a word for each layer.
 */
#ifndef FRONTEND_HF_HF_KIMI_H
#define FRONTEND_HF_HF_KIMI_H

#include "ir/base/arena.h"

#include <jansson.h>

/* Of a kimi_linear: `linear_head_dim`, `linear_num_heads`, `linear_conv_kernel_dim` and
 * `layer_types` become what linear_attn_config says, `first_k_dense_replace` what `mlp_layer_types`
 * says. NULL, or what is wrong, in the arena. */
const char *hf_kimi_normalise(Arena *arena, json_t *json);

/* Adds the publisher's form, and `mlp_layer_types`. */
void hf_kimi_finish(json_t *json);

#endif
