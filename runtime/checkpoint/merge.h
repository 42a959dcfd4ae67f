/* Ways to make one tensor of several of models that were trained from one base, or of two models:
 * slerp   of two, along the arc between them (Shoemake 1985)
 * task    base + scale x sum of shares x (tensor - base)      (Ilharco et al. 2023, 2212.04089)
 * ties    of each tensor - base only the share `density` with the largest absolute values; of each
 *         number the sign of their sum is kept, and the mean of those that have it is added, times
 *         scale                                               (Yadav et al. 2023, 2306.01708)
 * dare    as task, but of each tensor - base every number is kept with the probability `density`
 *         and divided by it                                   (Yu et al. 2024, 2311.03099)
 * All in f64; nothing depends on the number of threads.
 */
#ifndef RUNTIME_CHECKPOINT_MERGE_H
#define RUNTIME_CHECKPOINT_MERGE_H

#include "runtime/checkpoint/safetensors.h"

typedef enum MergeMethod {
    MERGE_MEAN,
    MERGE_SLERP,
    MERGE_TASK,
    MERGE_TIES,
    MERGE_DARE
} MergeMethod;

typedef struct MergeRule {
    MergeMethod method;
    int n;                /* tensors */
    const double *shares; /* [n]; of mean, slerp and ties they count beside their sum */
    double density, scale;
    uint64_t seed;
} MergeRule;

enum { MERGE_MOST = 1024 };

/* One tensor of all files. */
typedef struct MergeTensor {
    const SafetensorsInfo *const *infos; /* [n] */
    const SafetensorsInfo *base;         /* NULL: none */
    double arc[2];                       /* slerp: what each is times */
    float *least;                        /* [n], the caller's; ties: what is less is left out */
} MergeTensor;

bool merge_needs_base(MergeMethod method);
/* Looks at the whole tensor: sets arc or least. */
void merge_prepare(const MergeRule *rule, MergeTensor *tensor);
/* Numbers at .. at + n, at most TENSOR_BLOCK. */
void merge_block(const MergeRule *rule, const MergeTensor *tensor, int64_t at, int64_t n,
                 double *out);

#endif
