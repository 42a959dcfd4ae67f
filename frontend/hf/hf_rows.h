/* What the rows of several families of Hugging Face's have in common (hf_families.h). */
#ifndef FRONTEND_HF_HF_ROWS_H
#define FRONTEND_HF_HF_ROWS_H

#include "frontend/hf/hf_families.h"

extern const HfFamily HF_LLAMA, HF_GEMMA, HF_NEOX, HF_BERT, HF_MOE, HF_DEEPSEEK, HF_GPTOSS,
    HF_HYBRID, HF_KIMI, HF_LLAMA4, HF_MODERNBERT, HF_LLADA, HF_DREAM, HF_VISION;
extern const HfWord HF_ACTIVATIONS[], HF_GPT_ACTIVATIONS[], HF_ALL_FULL[], HF_EVERY_OTHER[];
extern const char *const HF_NO_FREQUENCIES[]; /* what older files have of rotary positions */

/* Of decoders that tell classes of texts, or rewards: of the last token. */
#define SCORE                                                                                      \
    { "score.weight", {"score"}, "class, model" }

/* Of an HfType without them. */
#define NO_EXPERTS NULL, NULL, NULL

/* Of decoders: one whose tokens see all of a text is another model, such as one of embeddings. */
#define ONLY_CAUSAL                                                                                \
    { .key = "is_causal", .kind = HF_FIXED, .absent = "true" }

/* What is computed otherwise than these families do. */
#define COMMON_KEYS {.key = "auto_map", .kind = HF_FIXED, .absent = "null"}, KEYS_OF_ALL
#define KEYS_OF_ALL                                                                                \
    {.key = "quantization_config", .kind = HF_FIXED, .absent = "null"},                            \
        {.key = "is_encoder_decoder", .kind = HF_FIXED, .absent = "false"},                        \
        {.key = "bos_token_id", .kind = HF_WRITTEN, .absent = "null"}, {                           \
        .key = "eos_token_id", .kind = HF_WRITTEN, .absent = "null"                                \
    }

#endif
