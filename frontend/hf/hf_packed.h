/* A tensor that files have in codes of few bits, with what its numbers are made of beside it.
 *
 * A method (hf_quantized.h) finds the parts of one tensor, checks that they fit, and says how it is
 * widened: most as codes less a zero point, times a scale, which hf_packed_widen does. Shapes are
 * untrusted until then: what a find function accepted can be read without further checks. Data of
 * files need not be aligned.
 */
#ifndef FRONTEND_HF_HF_PACKED_H
#define FRONTEND_HF_HF_PACKED_H

#include "frontend/hf/hf_files.h"

#include "ir/base/diag.h"

typedef enum HfCode {
    HF_CODE_NONE,
    HF_WORDS_ALONG, /* I32 [line, words]: a line's codes one after the other, lowest bits first */
    HF_WORDS_DOWN,  /* I32 [words, line]: the same, from above to below */
    HF_WORDS_MIXED, /* as HF_WORDS_ALONG, in each word in the order 0 2 4 6 1 3 5 7; of 4 bits */
    HF_CODE_INT8,   /* I8 [line, at] */
    HF_CODE_FP8,    /* F8_E4M3 [line, at] */
    HF_CODE_E2M1    /* U8 [line, at / 2], the first in the lower half: hf_e2m1's numbers */
} HfCode;

/* Codes of a matrix's numbers, or of their zero points. Lines are rows, unless `turned`. */
typedef struct HfCodes {
    const SafetensorsInfo *info;
    HfCode kind;
    int bits; /* of words: 1 to 8 */
    bool turned;
} HfCodes;

enum { HF_MOST_PARTS = 4 };

typedef struct HfPacked HfPacked;
struct HfPacked {
    const HfFound *first; /* where its codes are; NULL: the tensor is not in codes */
    /* All numbers of a slice, out [rows, columns], as the tensor itself would lie. */
    void (*widen)(const HfPacked *packed, int64_t slice, float *out);
    int64_t slices, rows, columns;

    /* Of hf_packed_widen. Number (r, c) is of group g = group_of[c], or c / block_columns:
     * (code - zero (r, g)) x scale (r / block_rows, g) x times / by. */
    HfCodes codes, zeros;
    int zero, zero_more;           /* without codes of zeros; what is added to these */
    const SafetensorsInfo *scales; /* [row blocks, groups], or [groups, row blocks] */
    bool scales_turned;
    int64_t n_groups, block_rows, block_columns;
    const SafetensorsInfo *group_of; /* I32 [columns]; NULL: in order */
    float times, by;

    /* Of a method's own function. */
    const SafetensorsInfo *parts[HF_MOST_PARTS];
    int64_t sizes[HF_MOST_PARTS];
    float offset;
};

/* What a method's find function is to find. */
typedef struct HfPackedAt {
    Arena *arena;
    const HfFiles *files;
    HfFound *first;   /* of the name that the method looks for */
    const char *stem; /* its name, without the method's ending */
    int n_dims;       /* of the tensor, by the configuration */
    const int64_t *shape;
    Diag *diag;
} HfPackedAt;

enum { HF_ANY_SCALE = 1 << SAFETENSORS_F32 | 1 << SAFETENSORS_BF16 | 1 << SAFETENSORS_F16 };

/* The tensor `stem` + `end`, which is used then. NULL: there is none. */
HfFound *hf_packed_look(const HfPackedAt *at, const char *end);
/* Has it one of `dtypes` (a bit for each), and this shape? False: reported. */
bool hf_packed_check(const HfPackedAt *at, const HfFound *found, unsigned dtypes, int n_dims,
                     const int64_t *shape);
bool hf_packed_has_shape(const HfFound *found, unsigned dtypes, int n_dims, const int64_t *shape);
/* Both: NULL, where it is missing or another, was reported. */
HfFound *hf_packed_part(const HfPackedAt *at, const char *end, unsigned dtypes, int n_dims,
                        const int64_t *shape);
/* One number, as [] or [1]. */
HfFound *hf_packed_scalar(const HfPackedAt *at, const char *end, unsigned dtypes);
/* "I32 [16, 4]", or "F32 or BF16 [3]". */
const char *hf_packed_shown(Arena *arena, unsigned dtypes, int n_dims, const int64_t *shape);

/* Groups of columns: I32 [columns], each less than n_groups. False: reported. */
bool hf_packed_groups(const HfPackedAt *at, const HfFound *found, int64_t columns,
                      int64_t n_groups);
/* Is the tensor a matrix, as most methods have them alone? False: reported. */
bool hf_packed_is_matrix(const HfPackedAt *at);

int64_t hf_packed_count(int64_t all, int64_t each); /* all / each, rounded up */
int64_t hf_packed_words(int64_t n, int bits);       /* of 32 bits, for n codes */

/* A number of F32, BF16, F16 or F8_E4M3; of U8, a power of two, 2^(value - 127). */
float hf_packed_number(const SafetensorsInfo *info, int64_t i);
float hf_e2m1(unsigned code); /* of 4 bits: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and a sign */

void hf_packed_widen(const HfPacked *packed, int64_t slice, float *out);

#endif
