/* Folders of Hugging Face's whose weights are quantized: what config.json's quantization_config
 * says, and the methods, of which each is a row of one table and a file.
 *
 * Which tensors are in codes is what the files have: NAME.weight in 32 or 16 bits is read as it is,
 * whatever lists of modules say, and where a method's tensors take its place these have to fit the
 * configuration. Widened numbers are f32, the code times its scale, as the method defines it.
 */
#ifndef FRONTEND_HF_HF_QUANTIZED_H
#define FRONTEND_HF_HF_QUANTIZED_H

#include "frontend/hf/hf_packed.h"

#include <jansson.h>

enum { HF_MOST_SCHEMES = 16, HF_MOST_GROUP = 1 << 20, HF_MOST_BLOCK = 1 << 16 };

typedef enum HfStrategy { HF_PER_TENSOR, HF_PER_ROW, HF_PER_GROUP, HF_PER_BLOCK } HfStrategy;

/* How the numbers of a matrix are kept; what of it counts, the method says. */
typedef struct HfScheme {
    const char *format;
    bool is_float; /* codes are */
    int bits;
    HfStrategy strategy;
    int64_t group;                     /* numbers of a row that have one scale; -1: a whole row */
    int64_t block_rows, block_columns; /* 0: one scale for all */
    bool asymmetric;                   /* zero points are kept, too */
    bool less_one;                     /* and are one less than they mean */
} HfScheme;

typedef struct HfMethod HfMethod;
typedef struct HfQuantized {
    const HfMethod *method; /* NULL: nothing is quantized */
    int n_schemes;
    HfScheme schemes[HF_MOST_SCHEMES];
} HfQuantized;

struct HfMethod {
    const char *name; /* quant_method */
    /* What `how`, the configuration's object, says; the method is set. What is wrong, or NULL. */
    const char *(*read)(Arena *arena, const json_t *how, HfQuantized *out);
    /* What stands in place of "weight" in NAME.weight, or, after '+', behind the whole name. */
    const char *const *endings;
    /* at->first has one of them: its tensor, if it is one of this method; out->first NULL: it is
     * not, which is no error. False: reported. */
    bool (*find)(const HfPackedAt *at, const HfQuantized *quantized, HfPacked *out);
    /* Ends of names of what is left out: scales of activations. */
    const char *const *left_out;
};

/* In rooms of their own: hf_fp8.c, hf_mxfp4.c, hf_gptq.c, ... */
extern const HfMethod HF_FP8, HF_FBGEMM_FP8, HF_MXFP4, HF_GPTQ, HF_AWQ, HF_BITSANDBYTES,
    HF_COMPRESSED, HF_MODELOPT;

/* Takes the key quantization_config out of a configuration that says how weights are quantized; one
 * that names no method stays. NULL, or what is wrong with it, in `arena`. */
const char *hf_quantized_take(Arena *arena, json_t *config, HfQuantized *out);

/* Where config.json says nothing: hf_quant_config.json of the folder, which ModelOpt writes, as
 * that key. False: reported. */
bool hf_quantized_beside(Arena *arena, const char *dir, json_t *config, Diag *diag);

/* The name that `theirs` has with a method's ending; NULL: it has none. */
const char *hf_quantized_name(Arena *arena, const char *theirs, const char *ending);

/* Is `name` of what training has no use for? */
bool hf_quantized_leaves(const HfQuantized *quantized, const char *name);

/* For `read`: an integer of `how` from least to most, or `absent` where it is missing or null.
 * False: *out_why says what is wrong. */
bool hf_quantized_integer(Arena *arena, const json_t *how, const char *key, int64_t absent,
                          int64_t least, int64_t most, int64_t *out, const char **out_why);
/* "'quantization_config.KEY' is VALUE, which is not supported; supported: ..." */
const char *hf_quantized_unknown(Arena *arena, const json_t *how, const char *key,
                                 const char *supported);

#endif
