/* Commands: a rank's step on a CUDA device, as data.
 *
 * emit.c turns each node of a plan's tasks into commands by cuda_bind_* (one per kernel named in
 * ops.def); order.c finds which commands must wait for which; issue.c feeds them to CUDA streams,
 * captured or not. Until then nothing here needs a device, a driver or CUDA's headers: `show`
 * counts commands on a laptop, and tests look at them. Addresses are those of the rank's arena on
 * its device; planning alone uses a made-up base.
 */
#ifndef RUNTIME_CUDA_COMMAND_H
#define RUNTIME_CUDA_COMMAND_H

#include "planner/plan/plan.h"
#include "runtime/binding.h"

/* The streams of one rank. Messages have their own, so that they overlap with compute; each
 * direction of each pipeline link has its own, since NCCL's sends wait for their receives; so do
 * chunks that go back up the stages (planner/plan/path.h), whose peers are others. */
typedef enum StreamKind {
    STREAM_COMPUTE,
    STREAM_TENSOR,
    STREAM_EXPERT,
    STREAM_DATA,
    STREAM_PIPELINE, /* collectives along p and across tied stages */
    STREAM_SEND_FORWARD,
    STREAM_RECV_FORWARD,
    STREAM_SEND_BACKWARD,
    STREAM_RECV_BACKWARD,
    STREAM_BACK_SEND_FORWARD, /* of chunks that go back up, in the same order */
    STREAM_BACK_RECV_FORWARD,
    STREAM_BACK_SEND_BACKWARD,
    STREAM_BACK_RECV_BACKWARD,
    STREAM_OFFLOAD, /* copies to the host's memory, and from there */
    STREAM_FETCH,
    N_STREAM_KINDS
} StreamKind;
bool stream_sends(StreamKind kind); /* to another stage */
const char *stream_kind_name(StreamKind kind);

/* A range of device memory that a command reads or writes. */
typedef struct Access {
    uintptr_t at;
    int64_t bytes;
    bool write;
    bool workspace; /* room that may be used, not traffic */
} Access;

typedef struct Grid {
    uint32_t x, y, z;
} Grid;

/* Kernels built by nvcc into the fatbin: rows of kernels.def. */
typedef enum KernelId {
#define KERNEL(name, args) KERNEL_##name,
#include "runtime/cuda/kernels.def"
#undef KERNEL
    N_KERNELS
} KernelId;

typedef struct KernelInfo {
    const char *name;
    size_t args_bytes; /* of the one struct that the kernel takes by value */
} KernelInfo;
extern const KernelInfo KERNELS[N_KERNELS];

/* The kernels of one kind by their operands' dtype: KERNELS_BY_DTYPE(add_n) for add_n_f32 and so
 * on. Kernels of i32 do not exist. */
typedef struct KernelsByDtype {
    KernelId of[N_DTYPES];
} KernelsByDtype;
#define KERNELS_BY_DTYPE(name)                                                                     \
    {                                                                                              \
        .of = {                                                                                    \
            [DTYPE_F32] = KERNEL_##name##_f32,                                                     \
            [DTYPE_BF16] = KERNEL_##name##_bf16,                                                   \
            [DTYPE_F16] = KERNEL_##name##_f16                                                      \
        }                                                                                          \
    }
KernelId kernel_for_dtype(const KernelsByDtype *kernels, DType dtype);
bool kernel_is_of(const KernelsByDtype *kernels, KernelId kernel);

/* A kernel made for one fused node by codegen.c, compiled by NVRTC. It takes one FusedArgs. */
typedef struct GeneratedKernel {
    const char *name;   /* an identifier: "fused_" and the source's hash */
    const char *source; /* CUDA C, complete: includes nothing */
    uint64_t hash;
} GeneratedKernel;

typedef struct LaunchCommand {
    KernelId kernel;                  /* where generated is NULL */
    const GeneratedKernel *generated; /* or NULL */
    Grid grid;
    int threads;      /* a block's, along x */
    int shared_bytes; /* dynamic */
    const void *args; /* one struct, copied when captured */
    size_t args_bytes;
} LaunchCommand;

/* What a product still does to its sums before it stores them (epilogue.h). gelu is the tanh form.
 */
typedef enum EpilogueKind {
    EPILOGUE_SUM,       /* D = sums */
    EPILOGUE_GELU,      /* D = gelu(sums); aux, if there is one, = sums */
    EPILOGUE_GELU_GRAD, /* D = gelu_grad(aux, sums) */
    EPILOGUE_BIAS_GRAD  /* D = sums; bias_grad = the sum of B's rows, over k */
} EpilogueKind;

/* Elements from one product's operand to the next's; d 0: all are packed. */
typedef struct GemmStrides {
    int64_t b, d, bias; /* A is the same for all; c is D */
} GemmStrides;

static inline bool gemm_strides_equal(const GemmStrides *a, const GemmStrides *b) {
    return a->b == b->b && a->d == b->d && a->bias == b->bias;
}

/* Of an operand in fp8 (ir/ops/quantize.h); NULL: it is not. */
typedef struct GemmScales {
    const float *at;
    ScaleForm form;
} GemmScales;

/* sums[batch, m, n] = op(A) x op(B) + beta C + bias, row-major and contiguous: the shapes of
 * MatmulLayout. Accumulates in f32. C, bias and aux have the dtype of D. */
typedef struct GemmCommand {
    MatmulLayout layout;
    DType in_dtype, out_dtype;
    const void *a, *b;
    GemmScales scales_a, scales_b; /* of fp8: A as it is, B transposed, batch 1 */
    const void *c;                 /* like D; NULL: D itself */
    void *d;
    float beta;
    EpilogueKind epilogue;
    const void *bias;    /* [n], or NULL */
    int64_t b_row;       /* elements from a row of B, as it is stored, to the next; 0: packed */
    GemmStrides apart;   /* joined ones': join_products.h */
    void *aux;           /* like D, or NULL */
    float *bias_grad;    /* [n], EPILOGUE_BIAS_GRAD: set, not added to; else NULL */
    const Node *summed;  /* the reduce_sum that bias_grad is of */
    const Node *product; /* the matmul; NULL: none. CommandInfo.node is the last node done. */
} GemmCommand;

/* What makes two attentions the same to a library. q, o and their gradients are
 * [batch, seq, kv_heads, group, head] (o: values), k, v and theirs without group: contiguous, of
 * `dtype`, bf16 or f16. */
typedef struct AttentionShape {
    DType dtype;
    bool backward, causal;
    int64_t batch, seq, kv_heads, group, head;
    float scale;    /* of scores */
    int64_t window; /* 0: none */
    float softcap;  /* of scores; 0: none */
    int64_t keys;   /* 0: seq */
    int64_t values; /* numbers of a head of v, o and their gradients; 0: head */
    bool documents; /* a position sees its own only */
    bool largest;   /* forward: the largest score of each row is asked for */
    bool drops;     /* some probabilities */
    /* Numbers from a position's dq, dk or dv to the next's: stack_products.h; 0: as of q, k, v. */
    int64_t gradient_row;
} AttentionShape;

static inline int64_t attention_keys(const AttentionShape *shape) {
    return shape->keys ? shape->keys : shape->seq;
}
/* Does the rank have a part of the queries only, and all keys? */
static inline bool attention_is_part(const AttentionShape *shape) {
    return attention_keys(shape) != shape->seq;
}
static inline int64_t attention_values(const AttentionShape *shape) {
    return shape->values ? shape->values : shape->head;
}
/* Have values heads of another size than queries and keys? */
static inline bool attention_is_uneven(const AttentionShape *shape) {
    return attention_values(shape) != shape->head;
}

/* Sequences and key heads that a library does at a time: of each attention so many parts. */
typedef struct AttentionPart {
    int64_t batch, kv_heads;
} AttentionPart;

/* What plans leave for a library's gradient, at most, unless they leave it for all at once. */
enum { ATTENTION_ROOM_BYTES = 640 << 20 };
/* What cuDNN's gradient takes that adds up in one order, as 9.19 says of sm_80 and sm_90: scores'
 * gradients in 16 bits, positions padded; in groups, the gradients of keys and values for each
 * query head; a little; and the rows' sums. */
static inline int64_t attention_library_bytes(const AttentionShape *s, AttentionPart part) {
    enum { PAD = 128, LITTLE = 4096 };
    int64_t heads = part.batch * part.kv_heads * s->group, seq = s->seq;
    int64_t padded = (seq + PAD - 1) / PAD * PAD;
    int64_t full = s->group > 1 ? 2 * seq * (s->head + attention_values(s)) : 0;
    return heads * (2 * padded * padded + full + (int64_t)sizeof(float) * seq) + LITTLE;
}
/* The largest part whose gradient takes up to `bytes` by that, else the smallest one: all parts of
 * an attention are alike and begin at whole 16 bytes. */
AttentionPart attention_part(const AttentionShape *shape, int64_t bytes);

/* o = softmax(scale q k^T) v, and lse, the natural logarithm of the softmax's sums; or, backward,
 * from those and d_o: dq, dk, dv. By cuDNN: the same bits each time. */
typedef struct AttentionCommand {
    AttentionShape shape;
    const void *q, *k, *v;
    const int32_t *starts; /* of documents: AttentionSizes; or NULL */
    void *o;               /* read by backward */
    float *lse;            /* [batch, seq, kv_heads, group]; read by backward */
    const void *d_o;
    void *dq, *dk, *dv;
    void *workspace;
    int64_t workspace_bytes;
} AttentionCommand;

typedef struct CopyCommand {
    void *to;
    const void *from;
    int64_t bytes;
    bool to_host;   /* `to` is pinned host memory */
    bool from_host; /* `from` is */
} CopyCommand;

typedef struct FillCommand {
    void *to;
    int byte;
    int64_t bytes;
} FillCommand;

typedef enum CollectiveKind { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL } CollectiveKind;

/* See comm.h for what each does: out [outer, axis, inner] with the axis whole or local; of
 * an all-to-all axis_local are a block's rows, axis_total those of all, and inner a row's elements.
 */
typedef struct CollectiveCommand {
    CollectiveKind kind;
    ReduceKind reduce;
    DType dtype;
    int group; /* an axis or group of the mesh, or N_MESH_GROUPS + the plan's number of a StageComm
                */
    int member, n_members;
    const void *in;
    void *out;
    int64_t count; /* all_reduce */
    int64_t outer, axis_local, axis_total, inner;
    bool deals;      /* two chunks of the axis to a member, as c does (ir/mesh.h) */
    bool to_strips;  /* all_to_all */
    void *workspace; /* what NCCL needs to pack and unpack, NULL where it does not */
    int64_t workspace_bytes;
    const struct CollectiveCommand *more; /* [n_more]: the others of a group (join_messages.h) */
    int n_more;
} CollectiveCommand;

/* One pipeline message between this rank and `peer`. A sender's message first goes to a slot of its
 * message region, so that the value's own memory is free again before the receiver has come. */
typedef struct MessageCommand {
    int channel; /* the plan's */
    int peer;    /* global rank */
    void *memory;
    void *slot; /* senders only */
    int n_slots;
    int64_t bytes;
} MessageCommand;

typedef enum CommandKind {
    COMMAND_LAUNCH,
    COMMAND_GEMM,
    COMMAND_ATTENTION,
    COMMAND_COPY,
    COMMAND_FILL,
    COMMAND_COLLECTIVE,
    COMMAND_SEND,
    COMMAND_RECV,
    N_COMMAND_KINDS,
    COMMAND_GONE = N_COMMAND_KINDS /* while a pass rewrites a list */
} CommandKind;
const char *command_kind_name(CommandKind kind);

/* For reports, traces and tests: what a command is for. */
typedef struct CommandInfo {
    const Node *node; /* NULL: the step's beginning, inputs, results */
    int rank, micro, block;
    TaskKind task;
    int chunk; /* the task's */
} CommandInfo;

typedef struct Command {
    CommandKind kind;
    StreamKind stream;
    CommandInfo info;
    int n_others; /* commands that it stands for besides: of joined products */
    const CommandInfo *others;
    union {
        LaunchCommand launch;
        GemmCommand gemm;
        AttentionCommand attention;
        CopyCommand copy;
        FillCommand fill;
        CollectiveCommand collective;
        MessageCommand message;
    };
    int n_accesses;
    const Access *accesses;
    /* Filled by order_commands: */
    int event;        /* recorded after the command; -1: none */
    int n_waits;      /* before the command */
    const int *waits; /* indices of commands that have an event */
} Command;

typedef struct CommandList {
    int count, capacity;
    Command *items; /* from malloc; command_list_release frees it */
} CommandList;

/* The node that most of the command's time goes to: reports are by it. */
static inline const Node *command_main_node(const Command *command) {
    bool product = command->kind == COMMAND_GEMM && command->gemm.product;
    return product ? command->gemm.product : command->info.node;
}

void command_list_push(CommandList *list, const Command *command);
void command_list_compact(CommandList *list); /* leaves out those that are gone */
void command_list_release(CommandList *list);

/* Are both of one rank's same task? */
static inline bool command_same_task(const CommandInfo *a, const CommandInfo *b) {
    return a->rank == b->rank && a->micro == b->micro && a->task == b->task && a->chunk == b->chunk;
}
/* The commands [*out_first, *out_end) of `node`, or the product that has taken their place, that
 * come last before `before` and belong to its task; false: there are none among the 64 before it.
 */
bool command_list_find_node(const CommandList *list, const Node *node, int before, int *out_first,
                            int *out_end);
/* Does nothing from `first` to before `end` touch `memory`, or, with `written`, write it? Messages
 * count as if they did. */
bool command_list_leaves_alone(const CommandList *list, int first, int end, const Access *memory,
                               bool written);

static inline bool access_same(const Access *a, const Access *b) {
    return a->at == b->at && a->bytes == b->bytes;
}
static inline bool access_overlaps(const Access *a, const Access *b) {
    return a->at < b->at + (uintptr_t)b->bytes && b->at < a->at + (uintptr_t)a->bytes;
}
static inline Access access_to(const void *at, int64_t bytes, bool write) {
    return (Access){.at = (uintptr_t)at, .bytes = bytes, .write = write};
}
/* A matrix of a product. */
static inline Access gemm_range(const void *at, int64_t rows, int64_t columns, DType dtype,
                                bool write) {
    return access_to(at, rows * columns * dtype_bytes(dtype), write);
}
/* How many scales one of two operands has, `own` by k. */
static inline int64_t gemm_count_scales(const GemmCommand *gemm, const GemmScales *scales) {
    const MatmulLayout *l = &gemm->layout;
    int64_t own = scales == &gemm->scales_a ? l->m : l->n;
    return l->k / SCALE_BLOCK * (scales->form == SCALES_OF_TILES ? own / SCALE_BLOCK : own);
}
/* What a product reads besides C: its operands, their scales, its bias. Fills as many as there are,
 * at most GEMM_MOST_READS, and returns how many. */
enum { GEMM_MOST_READS = 5 };
int gemm_reads(const GemmCommand *gemm, Access out[GEMM_MOST_READS]);
/* As a plan's device section names it; bytes are 0. */
PlanAlgo gemm_product(const GemmCommand *gemm);
PlanAttention attention_kind(const AttentionShape *shape);
/* False where the section, unless NULL, has `one` but not `joined`: they were found faster one by
 * one. */
bool gemm_device_joins(const PlanDevice *tuned, const GemmCommand *one, const GemmCommand *joined);
/* Does the product apply gelu, or its gradient? And the one that leaves all that to a kernel. */
static inline bool gemm_has_gelu(const GemmCommand *gemm) {
    return gemm->epilogue == EPILOGUE_GELU || gemm->epilogue == EPILOGUE_GELU_GRAD;
}
GemmCommand gemm_without_gelu(const GemmCommand *gemm);
/* False where the section, unless NULL, has the product without gelu but not with it: a kernel of
 * its own was found faster. */
bool gemm_device_folds(const PlanDevice *tuned, const GemmCommand *gemm);

/* Nodes that a capture of the list makes, known without a device: kernels, products, attentions,
 * copies and fills one each; messages as their steps say. */
int64_t command_count_nodes(const CommandList *list);

#endif
