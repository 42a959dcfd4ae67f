/* A GGUF file's metadata of its model, to the settings of a script and back (gguf_archs.h).
 *
 * Three things are not said by metadata of their own: whether the output has a table of its own
 * (there is one), whether q, k and v have biases, and the scaling of rotary frequencies that Llama
 * 3.1 has, which is a tensor of factors, rope_freqs.weight [head / 2].
 */
#ifndef FRONTEND_GGUF_GGUF_CONFIG_H
#define FRONTEND_GGUF_GGUF_CONFIG_H

#include "frontend/gguf/gguf_writer.h"
#include "frontend/hf/hf_config.h"

/* Of an open file. Keys of its architecture that no row knows are refused: they could change what
 * it computes. False: reported; else the caller frees out->json. */
bool gguf_config_read(const GgufFile *file, HfConfig *out, Diag *diag);

/* What a model of the type says, as an object that the caller frees. NULL: reported. */
json_t *gguf_config_of(const Model *model, const HfFamily *family, const HfType *type, Diag *diag);
/* Its pairs of metadata. */
void gguf_config_put(GgufWriter *writer, const json_t *config, const HfType *type, Arena *arena);

/* Factors that rotary frequencies are divided by, of a model with those of Llama 3.1, in the arena;
 * NULL: it has none. */
const float *gguf_rope_factors(const Model *model, Arena *arena, int64_t *out_count);

#endif
