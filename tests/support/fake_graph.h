/* FakeGraph: what a capture on the fake recorded, as data.
 *
 * A log of operations, records and waits in the order in which they were issued, by stream. From
 * it follows which operation comes after which (FakeDag), also with one of the waits left out:
 * proofs are tested by leaving out every wait in turn. A stream is a number here, given when the
 * capture first meets it; 0 is the origin.
 */
#ifndef TESTS_SUPPORT_FAKE_GRAPH_H
#define TESTS_SUPPORT_FAKE_GRAPH_H
#ifdef HAVE_CUDA

#include "runtime/cuda/command.h"

#include <nccl.h>

typedef enum FakeNodeKind {
    FAKE_KERNEL,
    FAKE_GEMM,
    FAKE_ATTENTION,
    FAKE_COPY,
    FAKE_FILL,
    FAKE_NCCL
} FakeNodeKind;

/* Which kernel: one of KERNELS, or a generated one. */
typedef struct FakeFunction {
    KernelId kernel;
    const GeneratedKernel *generated; /* or NULL */
    int most_shared_bytes;            /* as allowed by cudaFuncSetAttribute */
    bool loaded;                      /* as launches in a capture want it to be */
} FakeFunction;

typedef struct FakeLaunch {
    const FakeFunction *function;
    Grid grid;
    int threads, shared_bytes;
    void *args; /* a copy */
    size_t args_bytes;
} FakeLaunch;

/* Column-major, as cuBLASLt sees it. */
typedef struct FakeMatrix {
    int type; /* cudaDataType */
    int64_t rows, columns, ld, batch, stride;
} FakeMatrix;

typedef struct FakeProduct {
    bool transpose_a, transpose_b;
    float alpha, beta;
    FakeMatrix a, b, d;
    const void *from_a, *from_b;
    const float *scales_a, *scales_b; /* of E4M3; else NULL */
    int modes[2];                     /* of theirs: cublasLtMatmulMatrixScale_t */
    void *to;
    const void *from_c; /* like d */
    int epilogue;       /* cublasLtEpilogue_t */
    const void *bias;   /* [rows of d], of its dtype; NULL: none */
    void *bias_grad;    /* the same; NULL: none */
    void *aux;          /* of d's dtype, batch 1; NULL: none */
    int64_t aux_ld, bias_stride;
    void *workspace;
    size_t workspace_bytes;
    int algorithm; /* which of the heuristic's candidates */
} FakeProduct;

enum { FAKE_MOST_OPERANDS = 16 };

/* An operation graph of cuDNN's (fake_dnn.h) and what its operands are, by their slots. */
typedef struct FakeAttention {
    const struct FakeDnnGraph *graph;
    void *at[FAKE_MOST_OPERANDS];
    float numbers[FAKE_MOST_OPERANDS]; /* of those that are numbers */
    bool repeats;                      /* its engine adds up in one order */
    void *workspace;
    int64_t workspace_bytes;
} FakeAttention;

typedef enum FakeNcclKind {
    FAKE_ALL_REDUCE,
    FAKE_ALL_GATHER,
    FAKE_REDUCE_SCATTER,
    FAKE_ALL_TO_ALL, /* a group of a send to and a receive from each member; count: of one */
    FAKE_SEND,
    FAKE_RECV
} FakeNcclKind;

typedef struct FakeMessage {
    FakeNcclKind kind;
    const struct FakeComm *comm;
    int group;           /* communicators of one id have one number */
    int rank, n_members; /* within it */
    const void *in;
    void *out;
    size_t count;
    ncclDataType_t dtype;
    ncclRedOp_t op;
    int peer;
    struct FakeMessage *more; /* [n_more]: the others of a group of collectives, of this node */
    int n_more;
} FakeMessage;

typedef struct FakeNode {
    FakeNodeKind kind;
    int stream;
    const Command *command; /* what it was issued for; NULL: nothing announced */
    union {
        FakeLaunch launch;
        FakeProduct product;
        FakeAttention attention;
        CopyCommand copy;
        FillCommand fill;
        FakeMessage message;
    };
} FakeNode;

typedef enum FakeEntryKind { FAKE_NODE, FAKE_RECORD, FAKE_WAIT } FakeEntryKind;

typedef struct FakeEntry {
    FakeEntryKind kind;
    int stream;
    int which; /* the node's number, the record's, or the record that is waited for */
} FakeEntry;

typedef struct FakeGraph {
    int n_nodes, n_entries, n_records, n_waits, n_streams;
    int node_capacity, entry_capacity;
    FakeNode *nodes;
    FakeEntry *entries;
} FakeGraph;

typedef struct FakeDag {
    int n_nodes, n_streams;
    int *first_edge; /* [n_nodes + 1]: the nodes right before node i are */
    int *edges;      /* edges[first_edge[i]] .. edges[first_edge[i + 1] - 1] */
    int *clocks;     /* [node][stream]: the stream's last node that is before it, or -1 */
    int n_unjoined;  /* streams whose work the origin does not wait for at the end */
    int n_outside;   /* nodes on streams that are not part of the capture */
} FakeDag;

void fake_graph_push(FakeGraph *graph, FakeEntryKind kind, int stream, int which);
/* Returns the node's number. */
int fake_graph_push_node(FakeGraph *graph, const FakeNode *node);
void fake_graph_free(FakeGraph *graph);

/* With the wait number `without` left out, counted from 0 in the order of the log; -1: none. */
FakeDag fake_dag_build(const FakeGraph *graph, int without);
void fake_dag_free(FakeDag *dag);
static inline bool fake_dag_is_before(const FakeGraph *graph, const FakeDag *dag, int a, int b) {
    return dag->clocks[(size_t)b * (size_t)dag->n_streams + (size_t)graph->nodes[a].stream] >= a;
}

/* A random order that the graph allows. */
void fake_dag_shuffle(const FakeDag *dag, uint64_t seed, int *out_order);
/* The order in which `early` comes as early as it can, with what it needs; the rest follows as it
 * was captured. */
void fake_dag_hurry(const FakeDag *dag, int early, int *out_order);

#endif
#endif
