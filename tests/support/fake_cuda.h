/* fake_cuda: CUDA's libraries without a GPU, for tests: a second filling of CuApi.
 *
 * Device memory is host memory. Captured work becomes a FakeGraph, an acyclic graph of operations
 * by CUDA's own rules of streams and events; launching it runs the operations on the host in a
 * random order that the graph allows: kernels by tests/emulate, generated ones by generated_run,
 * products, copies and fills by plain loops. Work that is not captured runs when it is issued.
 *
 * What breaks a rule of CUDA returns the error that CUDA would give, where there is one, and is
 * kept as a defect, a line of text. There is one fake at a time.
 *
 * cuDNN's operation graphs run operation by operation, as their descriptors say (fake_dnn.h).
 *
 * Not imitated: gradients of biases but by BGRADA, work of one communicator with several ranks
 * outside fake_cuda_launch_together (it is recorded and has no effect).
 */
#ifndef TESTS_SUPPORT_FAKE_CUDA_H
#define TESTS_SUPPORT_FAKE_CUDA_H
#ifdef HAVE_CUDA

#include "runtime/cuda/driver/api.h"
#include "tests/support/fake_graph.h"

typedef struct FakeOptions {
    int64_t memory_bytes;  /* of the device; 0: 141 GiB */
    bool poison;           /* new memory is filled with 0xff, not-a-number */
    int cudnn_version;     /* 91900: 9.19.0; 0: cuDNN is not found */
    int nccl_version;      /* 22809: 2.28.9; 0: that of its header */
    bool no_epilogues;     /* of products: the heuristic has no algorithm for them */
    int less_with_bias;    /* sums with a bias: the heuristic leaves out the first algorithm of
                            * sums, 1, or 2: and it does not run */
    bool no_fp8;           /* nor for products of fp8 */
    bool no_blas;          /* a call of cuBLASLt ends the test: it has no functions */
    bool no_device_graphs; /* none is taken for launches from the device */
    bool in_order;         /* graphs run in the order of their capture */
    uint64_t seed;         /* of random orders; every launch has another */
    /* At this launch of a graph, 0: never: from it on the device waits for another rank, until
     * communicators are aborted; the process ends; the launch fails. */
    int hangs_at, dies_at, fails_at;
    bool hung;         /* it waits from the beginning */
    bool never_aborts; /* aborting a communicator has no end */
    /* Devices that can be asked about; only number 0 does anything. 0: one. So many together have
     * NVLink (0: none), the others PCIe; with `last_apart` no other can reach the last one. */
    int n_devices, nvlink_devices;
    bool last_apart;
} FakeOptions;

enum { FAKE_DIED = 9 /* exit code of a process that dies_at has ended */ };

/* The table is the fake's, until fake_cuda_destroy. */
const CuApi *fake_cuda_create(const FakeOptions *options);
/* Every live handle and allocation becomes a defect. */
void fake_cuda_check_leaks(void);
void fake_cuda_destroy(void);

int fake_cuda_n_defects(void);
const char *fake_cuda_defect(int i);
void fake_cuda_forget_defects(void);

/* Graphs in the order of their instantiation; they stay until fake_cuda_destroy. */
int fake_cuda_n_graphs(void);
const FakeGraph *fake_cuda_graph(int i);
/* Operations that were run or, of several ranks, recorded without being captured. */
int64_t fake_cuda_n_eager(void);

/* Runs a graph: `order` is a list of all its nodes. */
bool fake_cuda_run(const FakeGraph *graph, const int *order);
bool fake_cuda_run_node(const FakeNode *node);
/* Runs the graphs of all ranks together: a message runs when all its ranks have come to it. False:
 * they wait for each other (a defect). */
bool fake_cuda_launch_together(const FakeGraph *const *graphs, int n_graphs, uint64_t seed);

/* All device memory, copied; for fake_cuda_restore and comparisons. */
typedef struct FakeMemory {
    int n_parts;
    unsigned char **at; /* where each part lies */
    size_t *bytes;
    unsigned char **copies;
} FakeMemory;
FakeMemory fake_cuda_save(void);
void fake_cuda_restore(const FakeMemory *memory);
void fake_memory_free(FakeMemory *memory);

#endif
#endif
