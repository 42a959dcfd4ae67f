/* What kernels have written, kept on the host to compare other kernels' results with. Of a tensor
 * longer than twice TUNE_COMPARED_BYTES only the beginning and the end, each as long as that. */
#ifndef RUNTIME_CUDA_DRIVER_TUNE_RESULTS_H
#define RUNTIME_CUDA_DRIVER_TUNE_RESULTS_H

#include "runtime/cuda/driver/tuner.h"

enum { TUNE_COMPARED_BYTES = 16 << 20 };

typedef struct TuneTensor {
    const char *name; /* "dq" */
    void *at;         /* on the device */
    DType dtype;
    int64_t count;
    void *kept; /* from malloc; NULL at first */
} TuneTensor;

/* Numbers as they are between layers, N(0, 1) of `dtype`, the same each time, in `bytes` bytes. */
bool tune_fill_normal(const Tuner *tuner, void *memory, int64_t bytes, DType dtype);
/* Makes of every element not-a-number: what is not written is found. */
bool tune_spoil(const Tuner *tuner, const TuneTensor *tensor);
/* Takes what is there as what the next comparison is with. */
bool tune_keep(const Tuner *tuner, TuneTensor *tensor);
/* |now - kept| / |kept| in the Euclidean norm, in f64: of all of it, and of the worst TUNE_PIECE
 * elements, in which a single tile of wrong ones is not lost. Infinite where either is not finite
 * anywhere. Pieces that are zero but for rounding have the norm of elements of 1e-3. */
enum { TUNE_PIECE = 8192 };
typedef struct TuneDistance {
    double whole, worst;
} TuneDistance;
bool tune_compare(const Tuner *tuner, const TuneTensor *tensor, TuneDistance *out);
/* *out: whether all bits are those kept. */
bool tune_compare_bits(const Tuner *tuner, const TuneTensor *tensor, bool *out);

#endif
