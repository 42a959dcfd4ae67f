/* What comm.c and the fillings of comm.h share.
 *
 *     comm.c          worlds, their end, and each call of comm.h as a Call to its world's filling
 *     comm_inproc.c   ranks are threads: they read each other's memory
 *     comm_tcp.c      ranks are processes: collectives over their connections (tcp_*.c)
 *     comm_reduce.c   reductions, the same bits for both
 */
#ifndef RUNTIME_COMM_COMM_INTERNAL_H
#define RUNTIME_COMM_COMM_INTERNAL_H

#include "runtime/comm/comm.h"
#include "runtime/comm/comm_wait.h"

#include <pthread.h>

enum {
    SLICE_ALIGN_BYTES = 64, /* one cache line: no two members write to the same one */
    COMM_REASON_BYTES = 512,
};

typedef enum CommOperation {
    COMM_ALL_REDUCE,
    COMM_ALL_GATHER,
    COMM_REDUCE_SCATTER,
    COMM_ALL_TO_ALL,
    COMM_BROADCAST,
    COMM_BARRIER,
    N_COMM_OPERATIONS
} CommOperation;

/* What must be the same on all members. */
typedef struct CommCall {
    CommOperation operation;
    ReduceKind kind;
    DType dtype;
    int root;
    size_t outer, axis_local, axis_total, inner; /* without axes: inner is the count */
    bool to_strips;
} CommCall;

typedef struct CommFilling {
    /* One collective; `in` has n_in elements. comm.h's broadcast has its buffer as in and out. */
    bool (*collect)(CommGroup *group, int member, const CommCall *call, const void *in, void *out,
                    size_t n_in);
    bool (*send)(CommChannel *channel, void *slot_base, size_t slot_bytes, const void *source,
                 size_t bytes);
    bool (*receive)(CommChannel *channel, void *destination, size_t bytes);
    void (*wake)(CommWorld *world); /* the world was aborted; with its lock */
    /* Before the lists are destroyed, and for each of their members. */
    void (*destroy_world)(CommWorld *world);
    void (*destroy_group)(CommGroup *group);
    void (*destroy_channel)(CommChannel *channel);
} CommFilling;

/* Fillings' own structs begin with these; all are from comm_allocate. */
struct CommWorld {
    const CommFilling *filling;
    WaitPolicy policy;
    atomic_bool aborted;
    pthread_mutex_t lock; /* over the reason and the lists */
    char reason[COMM_REASON_BYTES];
    CommGroup *groups;
    CommChannel *channels;
};

struct CommGroup {
    CommGroup *next;
    CommWorld *world;
    char *name;
    int n_members;
    bool deals;
    WaitEvent event;
};

struct CommChannel {
    CommChannel *next;
    CommWorld *world;
    char *name;
    uint32_t n_slots;
    WaitEvent event;
};

/* Zeroed, in whole cache lines. */
void *comm_allocate(size_t bytes);
void comm_world_init(CommWorld *world, const CommFilling *filling, int n_ranks);
void comm_group_init(CommGroup *group, CommWorld *world, int n_members, const char *name);
void comm_channel_init(CommChannel *channel, CommWorld *world, int n_slots, const char *name);

/* Aborts. Always false, so that callers can return it. */
bool comm_fail(CommWorld *world, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool comm_fail_mismatch(const CommGroup *group, int member, const CommCall *own, int other,
                        const CommCall *theirs);
/* False: aborted, or it took too long, which is said of `bytes` in `operation`. */
bool comm_channel_wait(CommChannel *channel, bool (*ready)(const void *channel),
                       const char *operation, size_t bytes);
bool comm_calls_match(const CommCall *a, const CommCall *b);
const char *comm_operation_name(CommOperation operation);

/* Rows that lie together both with the member and in the whole. */
typedef struct CommPart {
    size_t at, place, rows; /* with the member, in the whole */
} CommPart;

/* A member's rows of an axis, one or two parts. */
int comm_parts_of(const CommGroup *group, int member, size_t axis_local, size_t axis_total,
                  CommPart out[2]);
/* Elements of a slice when `count` of them are dealt out to all members; the last may have fewer or
 * none. */
size_t comm_slice(const CommGroup *group, size_t count, DType dtype);

static inline size_t comm_min(size_t a, size_t b) {
    return a < b ? a : b;
}

#endif
