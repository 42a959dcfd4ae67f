/* Plan: everything a run needs, fixed before it starts. Text on disk, untrusted when read back.
 *
 * Stages run SPMD programs: all ranks of a stage share one Program and differ by mesh coordinates;
 * stages that differ only in which blocks they hold share it too. A program's graph has every
 * node of the stage's chunks: forward(c), backward(c) and, if the schedule cuts backwards in two,
 * weights(c) per micro-batch, update once per step.
 *
 * Memory: one arena per rank, laid out per stage as regions, each a multiple of ALIGN_BYTES:
 *   persistent | frames, pool by pool (slots x the largest frame_bytes) | messages | scratch
 * and, with --offload, in the memory of the machine that the device is in, the region `host`
 * (offload.h) and behind it the frames' other parts, pool by pool: as many slots, each as large as
 * the largest host_frame_bytes of the pool's chunks. What lies there is copied there and back
 * (offload_activations.c).
 * A Buffer says in which region a value lives and where. Frames hold what a chunk's forward keeps
 * for its backward, and what of both is kept for weights(c): plan_frame_slots says in which slot.
 * Where a micro-batch's way turns within a stage (path.h), what one chunk hands to the other lies
 * in the frame of the earlier chunk, which is taken first and freed last. Scratch holds what lives
 * within one task, packed by exact lifetimes.
 */
#ifndef PLANNER_PLAN_PLAN_H
#define PLANNER_PLAN_PLAN_H

#include "ir/image_rule.h"
#include "ir/op.h"
#include "planner/plan/loss_scaling.h"
#include "planner/plan/path.h"
#include "planner/plan/recompute.h"
#include "planner/plan/zero.h"

/* GPUs read and write whole lines of 128 bytes: what begins between two takes a line more for each
 * warp (AdamW ran at 3.5 TB/s at multiples of 64, at 4.1 at those of 256, on an H200). */
enum { ALIGN_BYTES = 256, MAX_CHUNKS = 32, PLAN_FORMAT_VERSION = 26 };
enum { PLAN_MAX_QUOTED = 16384 }; /* bytes of a text in a plan */
enum { MAX_PLAN_NODES = 200000 }; /* of all programs */
#define PLAN_FEWER_NODES                                                                           \
    "fewer blocks would do, or more pipeline stages, as equal ones share a program"

typedef enum Region {
    REGION_NONE,
    REGION_PERSISTENT,
    REGION_FRAME,
    REGION_SCRATCH,
    REGION_HOST,
    REGION_HOST_FRAME,
    N_REGIONS
} Region;
/* "none", "persistent", "frame", "scratch", "host", "host_frame" */
const char *region_name(Region region);
static inline bool region_is_frame(Region region) { /* a chunk's */
    return region == REGION_FRAME || region == REGION_HOST_FRAME;
}
static inline bool region_is_host(Region region) { /* in the memory of the device's machine */
    return region == REGION_HOST || region == REGION_HOST_FRAME;
}

/* What a buffer is for: the classes of the memory map. */
typedef enum BufferClass {
    CLASS_PARAMETER,
    CLASS_GRADIENT,
    CLASS_OPTIMIZER,
    CLASS_ACTIVATION, /* kept from forward to backward (frames) */
    CLASS_SCRATCH,
    CLASS_MESSAGE,
    CLASS_INPUT, /* tokens, labels, scalars */
    N_BUFFER_CLASSES
} BufferClass;
const char *buffer_class_name(BufferClass class);

typedef struct Buffer {
    Region region;
    BufferClass class;
    int64_t offset_bytes, bytes; /* within the region (within one frame for frames) */
    int chunk;                   /* whose frame */
} Buffer;

typedef struct Program {
    Graph *graph;    /* local to a stage: chunks 0..v-1, send and recv at its borders */
    Buffer *buffers; /* [n_nodes * MAX_OUTPUTS] */
    int64_t persistent_bytes, scratch_bytes;
    int64_t host_bytes; /* of no arena: a rank's part of its machine's memory */
    int64_t frame_bytes[MAX_CHUNKS], host_frame_bytes[MAX_CHUNKS];
    /* Of the persistent region, by class: parameter, gradient, optimizer, input; padding included.
     */
    int64_t class_bytes[N_BUFFER_CLASSES];
    double forward_flops[MAX_CHUNKS], backward_flops[MAX_CHUNKS] /* weights(c) included */,
        update_flops;
} Program;

typedef enum TaskKind {
    TASK_RECV_FORWARD,
    TASK_FORWARD,
    TASK_SEND_FORWARD,
    TASK_RECV_BACKWARD,
    TASK_BACKWARD,
    TASK_SEND_BACKWARD,
    TASK_WEIGHTS, /* what of a backward only gradients of weights need; not in every schedule */
    TASK_UPDATE,
    N_TASK_KINDS
} TaskKind;
/* Short words of the plan text: rf F sf rb B sb W U */
const char *task_kind_word(TaskKind kind);

typedef struct Task {
    uint8_t kind;
    uint8_t chunk;
    int32_t micro; /* micro-batch */
} Task;

/* A micro-batch's forward, backward or weights: neither message nor update. */
static inline bool task_is_work(const Task *task) {
    return task->kind == TASK_FORWARD || task->kind == TASK_BACKWARD || task->kind == TASK_WEIGHTS;
}

/* What a plan for decoding (planner/decode) reads beside its weights: i32. */
typedef enum DecodeInput {
    DECODE_TOKENS,          /* [batch, seq]: new positions */
    DECODE_PLACES,          /* [batch, seq]: where they are in their sequences */
    DECODE_ROWS,            /* [batch]: which sequence of the caches each row of the batch is */
    DECODE_LAST,            /* [batch]: the number of the new position whose logits are asked for */
    DECODE_STARTS,          /* [batch, seq]: where the positions' documents begin */
    DECODE_DOCUMENT_PLACES, /* [batch, seq]: how far they are from there */
    DECODE_OCCURRENCES,     /* [batch, seq]: which of their sequence's images' vectors they have */
    DECODE_PIXELS, /* [batch, patches, pixel]: images of a sequence, of DECODE_LOOK alone */
    N_DECODE_INPUTS
} DecodeInput;
/* Its chunks; of plans of several sequences also the fourth, of those that score texts the fifth,
 * and of models that see images all. */
enum {
    DECODE_READ,
    DECODE_READ_FEW,
    DECODE_WRITE,
    DECODE_READ_TOGETHER,
    DECODE_SCORE,
    DECODE_LOOK,
    N_DECODE_CHUNKS
};
/* Positions that DECODE_READ_FEW reads at most, a row of DECODE_READ_TOGETHER, and DECODE_SCORE of
 * each sequence. */
enum { DECODE_FEW = 8, DECODE_PIECE = 16, DECODE_SCORED = 16 };
const char *decode_input_name(DecodeInput input);
int decode_input_find(const char *name); /* -1: none */
/* The input of a chunk, or NULL: it reads none. */
const Node *decode_input_of(const Graph *graph, int chunk, DecodeInput input);

/* A one-way pipeline link between two stages, one per direction of travel, for each (t, d). */
typedef struct Channel {
    int from, to;  /* stages */
    bool backward; /* carries gradients */
    int slots;     /* messages the sender may have unread */
    int64_t slot_bytes;
} Channel;

/* A group of stages that reduce together in the update (for each t, d): tied weights. */
typedef struct StageComm {
    const char *name;
    int n_stages;
    int *stages; /* ascending */
} StageComm;

typedef struct Stage {
    int program;
    int first_block[MAX_CHUNKS]; /* block 0 of each chunk's nodes is this model block */
    int n_blocks[MAX_CHUNKS];
    int frame_pool[MAX_CHUNKS];  /* whose slots a chunk's frames are: a number below n_chunks */
    int frame_slots[MAX_CHUNKS]; /* of each pool; 0: no chunk's */
    int n_tasks;
    Task *tasks; /* one total order, the same for all ranks of the stage */
    /* Region bases within the rank's arena; frame_base: of each pool. */
    int64_t persistent_base, frame_base[MAX_CHUNKS], message_base, scratch_base, arena_bytes;
    int64_t message_bytes;
} Stage;

/* An algorithm that one kind of matrix product was found fastest with: opaque bytes of the library
 * that the device section names. */
enum { PLAN_ALGO_BYTES = 64, MAX_PLAN_ALGOS = 1024 };
typedef struct PlanAlgo {
    MatmulLayout layout;
    bool shared; /* the left operand is the same for the whole batch */
    DType in_dtype, out_dtype;
    int tiles;       /* of fp8: 1: the left operand has scales of tiles, 2: the right one */
    bool accumulate; /* adds to what is there */
    int epilogue;    /* the backend's number for what the product does besides; 0: nothing */
    unsigned char bytes[PLAN_ALGO_BYTES];
} PlanAlgo;

/* Which kernels do an attention: cuDNN's, own ones on mma.sync (or without tensor cores, where
 * those do not do it), own ones on wgmma, or, of a gradient, one on wgmma that makes all of it in
 * one pass. */
typedef enum AttentionKernels {
    ATTENTION_CUDNN,
    ATTENTION_MMA,
    ATTENTION_WGMMA,
    ATTENTION_JOINT,
    N_ATTENTION_KERNELS
} AttentionKernels;
/* Short words of the plan text: cudnn mma wgmma joint */
const char *attention_kernels_word(AttentionKernels kernels);

/* Which kernels one kind of attention was fastest with. */
enum { MAX_PLAN_ATTENTIONS = 256 };
typedef struct PlanAttention {
    bool backward, causal;
    DType dtype;
    int64_t batch, seq, kv_heads, group, head; /* q is [batch, seq, kv_heads, group, head] */
    int64_t values;                            /* of a head of values; never 0 */
    int64_t window;                            /* 0: none */
    int64_t keys;   /* seq, or more where c divides the queries; never 0 */
    bool documents; /* a position sees its own only */
    AttentionKernels kernels;
} PlanAttention;

/* The device section: what was measured on a device when the plan was finalized there. Advice: on
 * another device, or with another version of its library, it says nothing. */
typedef struct PlanDevice {
    const char *name, *arch;   /* "NVIDIA H200", "sm_90"; name NULL: no such section */
    int64_t library_version;   /* cuBLASLt's: 130100 is 13.1.0 */
    int64_t attention_version; /* cuDNN's: 91900 is 9.19.0; 0: there was none */
    int n_algos, n_attentions;
    PlanAlgo *algos;           /* no product twice */
    PlanAttention *attentions; /* nor attention */
} PlanDevice;
bool plan_algo_same_product(const PlanAlgo *a, const PlanAlgo *b);
/* The section's algorithm for the product; NULL: there is none. */
const PlanAlgo *plan_find_algo(const PlanDevice *device, const PlanAlgo *product);
bool plan_attention_same(const PlanAttention *a, const PlanAttention *b); /* but for `kernels` */
/* How many the section leaves to those kernels. */
int plan_count_attentions(const PlanDevice *device, AttentionKernels kernels);
/* The section's choice for such an attention; NULL: there is none. */
const PlanAttention *plan_find_attention(const PlanDevice *device, const PlanAttention *kind);

/* Is it a setting of how weights learn, which changes nothing of what a model without dropout says?
 * key: of a line of Plan.settings. */
bool plan_setting_is_of_training(const char *key, size_t length);

typedef struct Plan {
    Arena *arena;         /* not owned */
    const char *model;    /* name */
    const char *settings; /* its settings, for those who read its weights; "": not known */
    uint64_t fingerprint; /* plan_fingerprint, as stored with the text */
    Mesh mesh;
    int n_chunks;     /* v: per stage */
    int micro_batch;  /* sequences per data-parallel rank and micro-batch */
    int global_batch; /* sequences per step */
    int n_micro;      /* global_batch / (micro_batch * d) */
    int64_t seq, vocab;
    /* Of a plan for decoding (planner/decode), which is never in a file: positions that a sequence
     * has at most (0: the plan is for training); the token that ends documents, and the one in
     * whose place an image's vector stands, or -1. */
    int64_t context, separator, image_token;
    int n_blocks; /* of the whole model */
    const char *schedule;
    PathKind path;
    bool cuda; /* leaves room for what CUDA's kernels need beside values; runs on CPUs, too */
    bool sequence_parallel;
    int zero;    /* ZeroStage (shard_update.c) */
    int offload; /* percent of states and masters that lie in the host's memory (offload.h) */
    int offload_activations; /* percent of what blocks keep (offload_activations.c) */
    DType precision;         /* of activations and products: dtype_is_precision */
    Recompute recompute;
    uint64_t seed;
    double learning_rate;    /* peak; train may override, and the two below */
    const char *lr_schedule; /* its name, or "": the model does not say */
    double decay_steps;      /* of it: a number, or below 1 a share of all; 0: not said */
    int64_t n_parameters;    /* logical, whole model */
    int64_t n_trained;       /* of these, those that are not frozen */
    /* Per step, counted from the logical graph: forward + backward, nothing computed again. */
    double model_flops;
    int64_t library_bytes; /* memory beyond the arena, estimated (plan_library.c) */
    int n_programs, n_stages, n_channels, n_comms;
    Program *programs;
    Stage *stages;
    Channel *channels;
    StageComm *comms;
    PlanDevice device;
} Plan;

/* Memory at the end of the program's scratch that kernels use within one call; scratch_bytes
 * includes it and no value lives there. CUDA's messages overlap with compute and with one another:
 * those along each mesh axis have a part of their own. A function of the graph (plan_workspace.c).
 */
typedef enum WorkspacePart {
    WORKSPACE_COMPUTE,
    WORKSPACE_TENSOR,
    WORKSPACE_EXPERT,
    WORKSPACE_DATA,
    WORKSPACE_PIPELINE,
    WORKSPACE_WEIGHTS, /* of products with a sum of several operands: runtime/cuda/stack_products.h
                        */
    N_WORKSPACE_PARTS
} WorkspacePart;
typedef struct Workspace {
    int64_t offset[N_WORKSPACE_PARTS], bytes[N_WORKSPACE_PARTS]; /* offset: from its beginning */
    int64_t total;
} Workspace;
Workspace program_workspace(const Graph *graph, bool cuda);
WorkspacePart node_workspace_part(const Node *node);
/* Of a node that makes the gradients of q, k and v: the weights that these are multiplied with, if
 * all three are and CUDA's backend may make one product of them; else 0. */
int64_t program_stacked_bytes(const Graph *graph, const Node *node);

Path plan_path(const Plan *plan);
/* Of a sample: tokens that an encoder reads (0: there is none), all tokens, the decoder's behind
 * them, numbers of images' pixels (0: it has none), and all of this, the pixels last: a row of what
 * the engine takes as tokens. */
int64_t plan_source(const Plan *plan);
int64_t plan_row_tokens(const Plan *plan);
int64_t plan_pixels(const Plan *plan);
/* What its label_share says of images (or NULL: there is none), as its input and its vocabulary
 * have it; out->images 0: the model sees none. False: reported; a plan's file may say anything. */
bool plan_images(const Plan *plan, const Node *share, ImageRule *out, Diag *diag);
int64_t plan_row(const Plan *plan);
/* What says which label its loss leaves out (a plan has one), or NULL: it counts all. */
const Node *plan_label_share(const Plan *plan);
/* Does its model read such numbers of each label? */
bool plan_reads_numbers(const Plan *plan, TokenNumbers numbers);
/* How many of a teacher's words its loss reads of each label; 0: none. */
int64_t plan_stored_words(const Plan *plan);
/* Numbers of each position; 0: the plan reads none. */
int64_t plan_numbers_width(const Plan *plan, TokenNumbers numbers);
/* How many numbers there are in a row, of those that it reads. */
int64_t plan_numbers_row(const Plan *plan, TokenNumbers numbers);
/* Of n_parameters those of a teacher (ir/teacher.h); 0: it has none. */
int64_t plan_count_teacher(const Plan *plan);
/* Words that each rank of t stores, padding included. */
int64_t plan_vocab_share(const Plan *plan);

/* Which channel a task uses; -1: none. A chunk's forward output goes to the stage that holds the
 * next global chunk, its gradient to the one before. */
int plan_find_channel(const Plan *plan, int stage, const Task *task);
/* Is the channel the one for what `chunk` of its sender sends in its direction? */
bool plan_channel_serves(const Plan *plan, int channel, int chunk);
/* The send nodes of the sender's program that use the channel, from *at on; NULL: no more. */
const Node *plan_next_send(const Plan *plan, int channel, int *at);
/* A send task's values take a part each of the channel's slot, all parts of the same size: of as
 * many values as any chunk sends there, at least 1, and of the largest. */
int plan_channel_values(const Plan *plan, int channel);
/* What the largest of its messages sends: values of one message need not be equally large. */
int64_t plan_channel_message_bytes(const Plan *plan, int channel);
int64_t plan_channel_value_bytes(const Plan *plan, int channel); /* that fit such a part */

/* One frame of the pool: the largest of its chunks'. */
int64_t plan_slot_bytes(const Plan *plan, const Stage *stage, int pool);
/* Of it what lies in the host's memory. */
int64_t plan_host_slot_bytes(const Plan *plan, const Stage *stage, int pool);
/* Frames of a step that the pool holds one after another: no more slots are ever used. */
size_t plan_pool_frames(const Plan *plan, const Stage *stage, int pool);
/* out_slots[chunk * n_micro + micro]: the slot of the chunk's pool that is the micro-batch's frame.
 * In the order of the stage's tasks a forward takes the slot that was freed last, or the next that
 * nobody had, and its backward frees it (its W, in a chunk that has any): so the plan says it
 * without listing it. Every backward must follow its forward, every W its backward. Returns the
 * first task that finds no slot, -1 if all do. */
int plan_frame_slots(const Plan *plan, const Stage *stage, int32_t *out_slots);
/* The task that ends a micro-batch's frame on each chunk: TASK_BACKWARD or TASK_WEIGHTS. */
void plan_frame_ends(const Stage *stage, TaskKind out_ends[MAX_CHUNKS]);

/* Bytes per class of one rank of `stage`, as laid out in its arena (padding counted in its class).
 * What lies in the host's memory is in none: plan_host_bytes. */
void plan_class_bytes(const Plan *plan, int stage, int64_t out_bytes[N_BUFFER_CLASSES]);
/* What one rank of `stage` has in the memory of its machine (--offload). */
int64_t plan_host_bytes(const Plan *plan, const Stage *stage);
/* Of these, the activations, which lie behind states and masters. */
int64_t plan_host_frames_bytes(const Plan *plan, const Stage *stage);
/* The most of any rank; 0: the plan needs none. */
int64_t plan_largest_host_bytes(const Plan *plan);
/* What lies there: "states and masters", "activations" or "states, masters and activations". */
const char *plan_offload_phrase(const Plan *plan);

/* How the plan's programs scale the loss. */
LossScaling plan_loss_scaling(const Plan *plan);
/* The decay of the averages of weights that the update keeps (--ema); 0: it keeps none. The average
 * of parameter NAME is a state called EMA_NAME. */
double plan_ema_decay(const Plan *plan);
#define EMA_PREFIX "ema/"
#define EMA_NAME   EMA_PREFIX "%s"
/* Is an update left out where the gradients' squared norm is above the run's scalar MOST_NORM_NAME
 * (--skip-spikes)? */
bool plan_skips_spikes(const Plan *plan);
#define MOST_NORM_NAME "most_norm_squared"
/* What their optimizer keeps its states in: f32 (also where there is none) or bf16. */
DType plan_state_dtype(const Plan *plan);
/* Above which score of a head weights of its queries and keys are scaled (--qk-clip); 0: none are.
 */
double plan_qk_clip(const Plan *plan);
/* What gradients are that products make: f32, or bf16 where any is (--gradients). */
DType plan_gradient_dtype(const Plan *plan);
/* Are any weights' copies in bf16 halves of them (--masters)? */
bool plan_splits_masters(const Plan *plan);

void plan_print(StrBuf *out, const Plan *plan);
/* Parses untrusted text; structure only: run verify_plan before use. NULL: reported. */
Plan *plan_parse(Arena *arena, const char *file, const char *text, Diag *diag);
/* plan_parse, the proofs, the fingerprint. `file` names the text in errors. NULL: reported. */
Plan *plan_from_text(Arena *arena, const char *file, const char *text, Diag *diag);
Plan *plan_read(Arena *arena, const char *path, Diag *diag); /* the same, of a file */
bool plan_write(const Plan *plan, const char *path, Diag *diag);
/* Over everything that the text says but the fingerprint itself. */
uint64_t plan_fingerprint(const Plan *plan);

/* The static proofs (verify_plan.c): see its head. Reports every defect; true if none. */
bool verify_plan(const Plan *plan, Diag *diag);

enum {
    GRAPH_NODE_BYTES = 10 << 10, /* of a captured graph: NVIDIA's estimate, not measured */
    GRAPH_NODE_BUDGET = 100000   /* steps of more are captured in pieces */
};
/* Of a CUDA plan: what a device keeps of a rank's captured graphs, beyond its arena; estimated
 * (plan_library.c). */
int64_t plan_graph_bytes(const Plan *plan, const Stage *stage);
/* Would a rank's graphs have more than GRAPH_NODE_BUDGET nodes? Then steps are replayed in pieces,
 * and those of micro-batches that are alike are there once. */
bool plan_graph_in_pieces(const Plan *plan, const Stage *stage);

#endif
