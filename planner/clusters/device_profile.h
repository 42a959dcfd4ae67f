/* DeviceProfile: what one device was measured to do, by `perilune profile`; kept in a JSON file
 * that `plan`, `show` and `train` take with --profile.
 *
 * The file is one object. Times are of several samples, in microseconds: medians, on a CPU lower
 * quartiles (other programs make times longer, never shorter). Sizes are bytes unless stated:
 *
 *   perilune_device_profile  2, the version
 *   device       "cpu" or "cuda";  name  the processor's or GPU's own name
 *   cores        CPU: cores used at most; CUDA: multiprocessors
 *   libraries    array of texts, such as "oneDNN 2.7.2"
 *   calls        [{threads, us, graph_us}]: one call that does next to nothing; graph_us (CUDA) the
 *                same within a captured graph, else 0
 *   products     [{dtype, threads, ta, tb, m, n, k, us}]: C[m, n] = A[m, k] B[k, n], ta or tb: the
 *                operand is stored transposed
 *   attention    [{dtype, threads, batch, heads, seq, head, forward_us, backward_us}], causal
 *   memory       [{threads, bytes, copy_us, triad_us}]: bytes are all that is read and written, by
 *                b = a and by c = a + s b
 *   host         [{bytes, us}]: CUDA: AdamW of a parameter and two moments in the machine's pinned
 *                memory: so many bytes are read from there, and as many written
 *   kernels      [{op, dtype, threads, elements, us}]: any other op of the op table, of `elements`
 *                in its largest operand or result (of a lookup: those looked up), bf16 where it may
 *                be
 *   messages     [{bytes, us}]: from one rank to another, sent until received
 *   collectives  [{kind, members, bytes, us}]: all_reduce, all_gather or reduce_scatter of bytes in
 *                all on each member; CPU: with more members than cores they take turns
 *
 * CPU: attention and kernels found their operands beyond the second-level cache, as in a step.
 * dtype is "f32" or "bf16". threads: CPU cores that took part; CUDA: 1. Every key must be there,
 * no other may, but for host, which older files lack; arrays but calls, products and memory may be
 * empty. The file is untrusted. Version 1 had no kernels.
 */
#ifndef PLANNER_CLUSTERS_DEVICE_PROFILE_H
#define PLANNER_CLUSTERS_DEVICE_PROFILE_H

#include "ir/base/arena.h"
#include "ir/base/diag.h"
#include "ir/base/strbuf.h"
#include "ir/graph.h"

#include <stdbool.h>
#include <stdint.h>

enum { DEVICE_PROFILE_VERSION = 2, MAX_PROFILE_ROWS = 4096, MAX_PROFILE_BYTES = 4 << 20 };

typedef struct ProfileCall {
    int64_t threads;
    double us, graph_us;
} ProfileCall;

typedef struct ProfileProduct {
    bool bf16; /* operands and result; else f32 */
    int64_t threads;
    bool ta, tb;
    int64_t m, n, k;
    double us;
} ProfileProduct;

typedef struct ProfileAttention {
    bool bf16;
    int64_t threads;
    int64_t batch, heads, seq, head;
    double forward_us, backward_us;
} ProfileAttention;

typedef struct ProfileMemory {
    int64_t threads, bytes;
    double copy_us, triad_us;
} ProfileMemory;

typedef struct ProfileHost {
    int64_t bytes;
    double us;
} ProfileHost;

typedef struct ProfileKernel {
    OpKind op;
    bool bf16;
    int64_t threads, elements;
    double us;
} ProfileKernel;

typedef struct ProfileMessage {
    int64_t bytes;
    double us;
} ProfileMessage;

typedef enum ProfileCollectiveKind {
    PROFILE_ALL_REDUCE,
    PROFILE_ALL_GATHER,
    PROFILE_REDUCE_SCATTER,
    N_PROFILE_COLLECTIVES
} ProfileCollectiveKind;

typedef struct ProfileCollective {
    ProfileCollectiveKind kind;
    int64_t members, bytes;
    double us;
} ProfileCollective;

typedef struct DeviceProfile {
    const char *path; /* where it was read from; NULL: made here */
    bool cuda;        /* else the CPU */
    const char *name;
    int64_t cores;
    int n_libraries, libraries_capacity;
    const char **libraries;
    int n_calls, calls_capacity;
    ProfileCall *calls;
    int n_products, products_capacity;
    ProfileProduct *products;
    int n_attention, attention_capacity;
    ProfileAttention *attention;
    int n_memory, memory_capacity;
    ProfileMemory *memory;
    int n_host, host_capacity;
    ProfileHost *host;
    int n_kernels, kernels_capacity;
    ProfileKernel *kernels;
    int n_messages, messages_capacity;
    ProfileMessage *messages;
    int n_collectives, collectives_capacity;
    ProfileCollective *collectives;
} DeviceProfile;

/* The whole document. */
void device_profile_print(StrBuf *out, const DeviceProfile *profile);

/* NULL: reported, with the key that is wrong. Owned by `arena`. */
DeviceProfile *device_profile_parse(Arena *arena, const char *path, const char *text, size_t length,
                                    Diag *diag);
DeviceProfile *device_profile_read(Arena *arena, const char *path, Diag *diag);

#endif
