/* Replay: one ordered command list made ready for a device, and given to it.
 *
 *   graph      all commands captured once into one CUDA Graph; a step is one launch
 *   segmented  runs of commands of the origin stream that wait for nothing are captured, the rest
 *              is issued: for lists of more nodes than a graph should have. Runs that are alike, as
 *              those of most micro-batches are, have one graph
 *   eager      every command is issued, every step
 *
 * All three give the same bits: they issue the same commands with the same waits.
 */
#ifndef RUNTIME_CUDA_DRIVER_REPLAY_H
#define RUNTIME_CUDA_DRIVER_REPLAY_H

#include "runtime/cuda/driver/attention.h"
#include "runtime/cuda/driver/gemm.h"
#include "runtime/cuda/order.h"

typedef enum ReplayMode { REPLAY_GRAPH, REPLAY_SEGMENTED, REPLAY_EAGER } ReplayMode;

/* How messages between devices are sent; NULL functions where there are none. */
typedef struct Messenger {
    void *user;
    bool (*collective)(void *user, const CollectiveCommand *command, int rank, cudaStream_t stream,
                       Diag *diag);
    bool (*message)(void *user, const Command *command, cudaStream_t stream, Diag *diag);
} Messenger;

/* What all lists of an engine share. */
typedef struct ReplayContext {
    const CudaDevice *device;
    GemmTable *gemms;           /* NULL where no command is a product */
    AttentionTable *attentions; /* NULL where no command is a library's attention */
    Messenger messenger;
    void *(*workspace)(void *user, int rank, StreamKind stream); /* of products */
    void *workspace_user;
    cudaKernel_t (*generated)(void *user, const GeneratedKernel *kernel);
    void *generated_user;
    /* Waits for a stream; NULL: as CUDA does, for ever where another rank is lost. */
    bool (*wait)(void *user, cudaStream_t stream, Diag *diag);
    void *wait_user;
    int prepared_bytes[N_KERNELS];     /* shared memory allowed, and one; 0: not loaded yet */
    int n_streams, n_urgent, n_events; /* grown to what the lists need, by replay_prepare */
    cudaStream_t *streams;             /* the first is the origin of all lists */
    cudaStream_t *urgent; /* of messages: their kernels begin before others that wait */
    cudaEvent_t *events;
    Arena *arena;
} ReplayContext;

typedef struct Replay {
    ReplayContext *context;
    CommandList list;
    CommandOrder order;
    cudaStream_t *streams;             /* [order.n_streams], the context's */
    const GemmEntry **gemms;           /* [count], NULL for other commands */
    const AttentionEntry **attentions; /* the same */
    cudaGraphExec_t graph;
    size_t n_nodes; /* of all graphs */
    struct Segment *segments;
    int n_segments;
    double capture_seconds;
    /* Executable graphs, those that CUDA did not take for launches from the device, and what it
     * said of the last of them. */
    int n_graphs, n_on_host;
    cudaError_t why_on_host;
} Replay;

/* Takes the list over, orders it, prepares products and kernels. */
bool replay_prepare(Replay *replay, ReplayContext *context, CommandList *list, Diag *diag);
bool replay_capture(Replay *replay, ReplayMode mode, Diag *diag);
/* Gives the device the whole list; returns before it has run. */
bool replay_launch(Replay *replay, Diag *diag);
/* Issues every command. With `before`, those that it refuses are left out; with `after`, waits for
 * each but sends and then calls it; false from it stops. */
typedef bool (*ReplayVisitor)(void *user, const Command *command);
bool replay_issue(Replay *replay, ReplayVisitor before, ReplayVisitor after, void *user,
                  Diag *diag);
/* Issues on the origin stream the first product or attention of each entry that `issued` does not
 * have, whatever its operands hold. */
bool replay_issue_new_entries(const Replay *replay, const Replay *issued, Diag *diag);
/* As replay_issue, recording begins[i] and ends[i] around command i, after its waits. */
bool replay_issue_timed(Replay *replay, const cudaEvent_t *begins, const cudaEvent_t *ends,
                        Diag *diag);
/* Waits for the origin stream, where everything ends. */
bool replay_wait(const Replay *replay, Diag *diag);
/* Executable graphs alone, also while they run. */
void replay_drop_graphs(Replay *replay);
void replay_destroy(Replay *replay);

void replay_context_destroy(ReplayContext *context);

#endif
