/* What tuning times with: memory for operands, a stream, and a way to time what runs on it. */
#ifndef RUNTIME_CUDA_DRIVER_TUNER_H
#define RUNTIME_CUDA_DRIVER_TUNER_H

#include "runtime/cuda/driver/attention.h"
#include "runtime/cuda/driver/gemm.h"
#include "runtime/cuda/tune.h"

/* Another choice than the one made untuned has to be faster by more than what two measurements of
 * the same one differ by. */
#define TUNER_FASTER 0.98

struct Product;
struct Attention;

typedef struct Tuner {
    const TuneOptions *options;
    Arena *arena;
    Diag *diag; /* what ends all of it */
    CudaDevice device;
    const Plan *plan;
    GemmTable *table;
    AttentionTable *attention_table;
    int n_products, product_capacity, n_attentions, attention_capacity;
    struct Product *products;
    struct Attention *attentions;
    cudaStream_t stream;
    cudaEvent_t begin, end;
    void *workspace;
    int64_t workspace_bytes; /* what any stage has */
    unsigned char *memory;   /* sets of operands, of one kind at a time */
    int64_t memory_bytes;
    int n_done, n_all; /* candidates */
} Tuner;

/* Issues once, on the stream, on another set of operands in each repetition. False: it does not
 * run. */
typedef bool TunedCall(const Tuner *tuner, const void *what, int repeat);
/* Microseconds of one, replayed from a graph of many; -1: it does not run. One that takes more than
 * twice `best_us`, where that is not negative, is timed no further. False: reported, the device has
 * failed. */
bool tuner_time(Tuner *tuner, TunedCall *call, const void *what, double best_us, double *out_us);

/* Loads the kernels of launches and allows them their shared memory, before a capture has them. */
bool tuner_prepare(const Tuner *tuner, const CommandList *list);
/* Launches of kernels built in, one after the other. False: one does not run. */
bool tuner_launch(const Tuner *tuner, const CommandList *list);
int64_t tuner_operand_bytes(int64_t elements, DType dtype);
/* The set of operands of that repetition: on a multiple of ALIGN_BYTES only, as in an arena. */
unsigned char *tuner_operands(const Tuner *tuner, int64_t set_bytes, int repeat);

#endif
