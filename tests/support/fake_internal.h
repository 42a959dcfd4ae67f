/* What the files of the fake share. */
#ifndef TESTS_SUPPORT_FAKE_INTERNAL_H
#define TESTS_SUPPORT_FAKE_INTERNAL_H
#ifdef HAVE_CUDA

#include "tests/support/fake_cuda.h"

#include <pthread.h>

typedef enum FakeKind {
    FAKE_IS_STREAM,
    FAKE_IS_EVENT,
    FAKE_IS_GRAPH,
    FAKE_IS_EXEC,
    FAKE_IS_LIBRARY,
    FAKE_IS_BLAS,
    FAKE_IS_DESC,
    FAKE_IS_LAYOUT,
    FAKE_IS_PREFERENCE,
    FAKE_IS_DNN,
    FAKE_IS_DNN_DESCRIPTOR,
    FAKE_IS_COMM,
    FAKE_IS_PROGRAM,
    N_FAKE_KINDS
} FakeKind;

/* The beginning of everything that a handle points to. Its memory stays until the fake goes, so
 * that the use of a destroyed handle is seen. */
typedef struct FakeObject {
    uint32_t magic;
    FakeKind kind;
    bool live;
    struct FakeObject *next;
} FakeObject;

typedef struct FakeCapture {
    uint64_t id; /* 1, 2, .. */
    FakeGraph *graph;
    struct FakeStream *origin;
    pthread_t thread;
    bool invalid;
} FakeCapture;

typedef struct FakeStream {
    FakeObject object;
    int number;
    bool capturing;
    int chain; /* its number in the capture */
} FakeStream;

typedef struct FakeEvent {
    FakeObject object;
    int number;
    bool recorded, timed;
    uint64_t capture; /* of its last record; 0: outside any */
    int record;       /* number in that capture */
    double seconds;
} FakeEvent;

typedef struct FakeGraphHandle {
    FakeObject object;
    FakeGraph *graph;
} FakeGraphHandle;

typedef struct FakeExec {
    FakeObject object;
    FakeGraph *graph;
    FakeDag dag;
    uint64_t n_launches;
} FakeExec;

typedef struct FakeLibrary {
    FakeObject object;
    GeneratedKernel generated; /* name NULL: the kernels of kernels.def */
    int n_functions;
    FakeFunction functions[N_KERNELS];
} FakeLibrary;

typedef struct FakeComm {
    FakeObject object;
    int group, rank, n_members, n_registered;
    bool blocking;
    int n_looks; /* of those that are not: before the call under way has come to its end */
    bool finalized;
    const void *registered, *captured; /* memory last registered; which graphs read or write */
    bool connected; /* its ranks in pairs, by a first message that was not captured */
} FakeComm;

typedef struct FakeBlock {
    unsigned char *at;
    size_t bytes;
    bool device; /* else pinned host memory */
    bool mapped; /* which the device's kernels go on with from step to step */
} FakeBlock;

enum {
    FAKE_MOST_DEFECTS = 64,
    FAKE_DEFECT_BYTES = 320,
    FAKE_MOST_IDS = 4096,
    FAKE_MOST_PEERS = 64
};

typedef struct Fake {
    CuApi api;
    FakeOptions options;
    pthread_mutex_t lock; /* of defects and objects: kernels are compiled on threads */
    FakeObject *objects;
    int n_blocks, block_capacity;
    FakeBlock *blocks;
    int64_t used_bytes;
    int n_streams, n_events;
    FakeCapture *capture; /* the one in progress */
    uint64_t n_captures;
    int n_graphs, graph_capacity; /* every graph captured, in order; instantiated ones come first */
    FakeGraph **graphs;
    int n_instantiated, instantiated_capacity;
    const FakeGraph **instantiated;
    int64_t n_eager;
    int n_launched;         /* graphs */
    bool hung;              /* as FakeOptions.hangs_at has it */
    const Command *command; /* announced last */
    /* What has left work on the legacy stream that nothing has waited for; NULL: nothing. Other
     * streams, which do not wait for that one, must not be given work. */
    const char *legacy_work;
    /* NCCL's own streams may still upload what captured messages need. With graph mixing launches
     * wait for that, without it nobody does. */
    bool uploads;
    int n_ids, group_depth, n_grouped;
    FakeMessage grouped[2 * FAKE_MOST_PEERS]; /* sends and receives of the group so far */
    cudaStream_t grouped_streams[2 * FAKE_MOST_PEERS];
    ncclUniqueId ids[FAKE_MOST_IDS];
    int n_defects;
    char defects[FAKE_MOST_DEFECTS][FAKE_DEFECT_BYTES];
} Fake;

extern Fake *fake; /* the one there is */

__attribute__((format(printf, 1, 2))) void fake_defect(const char *format, ...);
void *fake_new(FakeKind kind, size_t bytes);
/* The live object of a handle; NULL: a defect of `function`. */
void *fake_get(const void *handle, FakeKind kind, const char *function);
/* The same, and ends its life. */
bool fake_end(const void *handle, FakeKind kind, const char *function);

/* Is the memory within one live allocation? Device only, or pinned too. */
bool fake_memory_has(const void *at, int64_t bytes, bool device_only);
cudaError_t fake_allocate(void **out, size_t bytes, bool device);
cudaError_t fake_allocate_mapped(void **out, size_t bytes);
cudaError_t fake_release(void *at, bool device, const char *function);
/* What waits for the device, or takes or gives memory, must not happen while a stream of the same
 * thread is captured. */
cudaError_t fake_check_no_capture(const char *function);

/* Gives a stream work: recorded, or done at once. Takes launch.args over. */
cudaError_t fake_issue(FakeNode *node, cudaStream_t stream, const char *function);
/* What a library loads as it first runs must not be loaded during a capture: *loaded says whether
 * it has run outside one, and becomes true where it does now. */
void fake_check_loaded(cudaStream_t stream, bool *loaded, const char *function);

/* Kernels of library objects. */
FakeFunction *fake_function(const void *kernel, const char *function);
bool fake_compile_generated(void);
bool fake_run_product(const FakeProduct *product);
bool fake_run_attention(const FakeAttention *attention);
bool fake_run_messages(const FakeNode *const *members);
int64_t fake_nccl_bytes(ncclDataType_t dtype); /* 0: a type that is not imitated */

/* What a descriptor of cuDNN's holds beside itself. */
void fake_free_descriptor(FakeObject *object);

/* Each fills its part of the table. */
void fake_fill_device(CuApi *api);
void fake_fill_streams(CuApi *api);
void fake_fill_kernels(CuApi *api);
void fake_fill_blas(CuApi *api);
void fake_fill_nccl(CuApi *api);
void fake_fill_cudnn(CuApi *api);

#endif
#endif
