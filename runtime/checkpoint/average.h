/* The mean of several files of weights of one model, tensor by tensor: of checkpoints of one run,
 * as for Llama 3 (arXiv 2407.21783, section 3.4.3), or of runs that began alike (model soups,
 * Wortsman et al. 2022). Summed in f64 in the order of the files, whatever the number of threads.
 */
#ifndef RUNTIME_CHECKPOINT_AVERAGE_H
#define RUNTIME_CHECKPOINT_AVERAGE_H

#include "ir/base/diag.h"
#include "runtime/checkpoint/merge.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct AverageOptions {
    const char *const *paths; /* [n] */
    const double *shares;     /* [n], of the sum, or factors (merge.h); NULL: all 1 */
    int n;
    const char *to;
    MergeMethod method; /* else than the mean: in place of it */
    const char *base;   /* that they were trained from, where the method needs it */
    double density, scale;
    uint64_t seed;
    bool (*leaves_out)(const char *key); /* metadata of the first file that are not the mean's */
    const char *settings_key;            /* metadata that should be the same in all */
    void (*progress)(void *user, int64_t bytes_done, int64_t bytes_all); /* may be NULL */
    void *progress_user;
} AverageOptions;

typedef struct AverageTotals {
    int64_t n_tensors, n_numbers;
    int differs;       /* the first file whose settings are not the first one's; 0: none */
    int64_t n_states;  /* tensors left out: of optimizers */
    double *distances; /* [n], the caller's: |w - mean| / |mean| over all weights of each file */
    bool failed_to_write;
} AverageTotals;

/* Files have the same tensors, in f32, bf16 or f16; the mean is in the first one's. Tensors whose
 * names have a slash, which are optimizers' states, are left out. False: reported. */
bool weights_average(const AverageOptions *options, AverageTotals *out, Diag *diag);

#endif
