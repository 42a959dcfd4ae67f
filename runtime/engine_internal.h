/* What engine*.c and the backends share. */
#ifndef RUNTIME_ENGINE_INTERNAL_H
#define RUNTIME_ENGINE_INTERNAL_H

#include "runtime/engine.h"
#include "runtime/executor.h"
#include "runtime/shard.h"

typedef enum EngineJob {
    JOB_TRAIN,
    JOB_FORWARD, /* all micro-batches, forward only */
    JOB_FIRST,   /* micro-batch 0, forward only */
    JOB_DECODE,  /* the chunk input.chunk of a plan for decoding */
    JOB_CHECK,   /* JOB_TRAIN, looking at every result: fills engine->bad */
    JOB_PROFILE, /* JOB_TRAIN, timing every call: fills engine->op_seconds */
    JOB_TRACE,   /* JOB_TRAIN, keeping when every call ran; only within `trace` */
    JOB_MEASURE  /* JOB_TRAIN, timing every call: adds to engine->work */
} EngineJob;

/* The first value that is not finite, as one rank saw it. */
typedef struct BadValue {
    bool found;
    CallInfo call;
    int output;
} BadValue;

/* The host's side of a step. */
typedef struct StepInput {
    const int32_t *tokens, *labels; /* i32[global_batch, seq] */
    bool is_first;                  /* JOB_FIRST: of those rows engine_forward_batch are there */
    const float *reference;         /* f32[global_batch]; NULL: zeros */
    /* f32[global_batch, seq] each, stored ones [global_batch, seq, stored]; NULL: zeros */
    const float *numbers[N_TOKEN_NUMBERS];
    int64_t step;
    bool train; /* false: dropout off */
    double learning_rate;
    int64_t update;          /* its number: of step, without the spikes before */
    float most_norm_squared; /* of gradients, or the step is left out; INFINITY: any may be; below
                              * 0: it is, whatever they are */
    int chunk;               /* JOB_DECODE: DECODE_READ... */
    const int32_t *decode[N_DECODE_INPUTS]; /* JOB_DECODE */
    double label_share; /* of labels other than Engine.left_out_label; see label_share in ops.def */
} StepInput;

typedef struct EngineBackend {
    const char *name;
    /* Gives every local rank its memory and emits its step; sets engine->backend_state. */
    bool (*create)(Engine *engine, const EngineOptions *options, Diag *diag);
    void (*destroy)(Engine *engine);
    /* Runs one job of engine->input on all ranks and waits. False: reported. */
    bool (*run)(Engine *engine, EngineJob job, Diag *diag);
    /* Device memory as host memory, to read, until the next call of view or edit. */
    const void *(*view)(Engine *engine, const void *at, size_t bytes);
    /* Host memory to fill, zeroed unless it is the device's own; `commit` takes it there. */
    void *(*edit)(Engine *engine, void *at, size_t bytes);
    void (*commit)(Engine *engine);
    /* Of device memory, to other device memory. */
    void (*copy)(Engine *engine, void *to, const void *from, size_t bytes);
    /* Why view, commit or copy have failed, of which they say nothing; NULL: they have not. A
     * backend without it never fails. */
    const char *(*copy_failure)(const Engine *engine);
    /* Seconds to replay a step with kernels that do nothing. */
    double (*replay_seconds)(Engine *engine);
    int64_t (*call_count)(const Engine *engine);
    /* Runs a JOB_TRAIN of engine->input and keeps when its calls ran. See engine_trace_step. */
    bool (*trace)(Engine *engine, Arena *arena, EngineSpan **out_spans, int *out_count, Diag *diag);
    bool measures_for_free; /* see engine_measures_for_free */
} EngineBackend;

/* A logical tensor and its node in the program of the first stage that has it. */
typedef struct Logical {
    const char *name;
    const Node *node;
    int stage;
} Logical;

typedef struct LogicalList {
    Logical *items;
    int count, capacity;
} LogicalList;

enum { NO_LABEL = INT32_MIN }; /* of data; -1 is: where nothing counts */

struct Engine {
    const Plan *plan;
    Arena *arena;
    const EngineBackend *backend;
    void *backend_state;
    int n_ranks;
    RankContext *ranks;
    LogicalList leaves[2]; /* by engine_list_leaves' with_state */
    BadValue *bad;         /* [n_ranks] */
    StepInput input;
    const float *reference;
    const float *numbers[N_TOKEN_NUMBERS];
    int32_t *no_labels;  /* of a forward batch; NULL: not asked for yet */
    StepInput last_step; /* input of the last engine_step; step 0: none yet */
    bool scales_loss, skips_spikes;
    float most_norm_squared; /* engine_set_most_norm */
    int64_t n_spikes;        /* steps of the run that were left out for their norm */
    float *swapped[2];       /* room for the largest parameter; NULL: the plan has no averages */
    int n_values;
    StepValue *values;        /* [n_values]: the last step's */
    int64_t left_out_label;   /* by the program's label_share; NO_LABEL: there is none */
    int n_skipped;            /* of the last steps in a row */
    double op_seconds[N_OPS]; /* rank 0's, of the last JOB_PROFILE */
    bool measures;            /* engine_set_measuring */
    WorkSums *work;           /* [n_ranks]: of JOB_MEASURE; NULL: not asked for yet */
    double emit_seconds;
    int64_t arena_bytes, host_bytes;
    int64_t message_bytes;      /* engine_message_bytes */
    char teacher[24];           /* a fingerprint of its weights; "": they are not loaded */
    const char *tuning;         /* engine_tuning */
    const char *attention;      /* engine_attention */
    const char *graphs;         /* engine_graphs */
    struct Control *control;    /* NULL: one process has all ranks */
    bool is_first;              /* writes files and talks to the user */
    const EngineBeside *beside; /* [n_beside] */
    int n_beside;
    unsigned char *shared; /* for engine_view of other processes' ranks */
    size_t shared_bytes;
};

extern const EngineBackend CPU_BACKEND;
/* NULL: built without GPU support. */
const EngineBackend *cuda_backend(void);

/* Is one of a call's results not finite? Sets the rank's `bad`. */
bool engine_check_outputs(Engine *engine, int rank, const CallInfo *info);
/* False: the host has less memory than the ranks from `first` on need; of several processes, than
 * so many of n_on_host processes do, if all are like this one. offloaded: what they need beside
 * their arenas, which are elsewhere. */
bool engine_check_host_memory(const Engine *engine, int first, int n, int n_on_host, bool offloaded,
                              Diag *diag);

/* Does this process hold the rank's memory? */
static inline bool engine_is_local(const RankContext *rank) {
    return rank->memory != NULL;
}
/* The first rank that is here. */
const RankContext *engine_own_rank(const Engine *engine);
/* What a rank holds of a value (micro-batch 0), on the host. With several processes all of them
 * must call it, in the same order: the rank's own tells the others. */
const void *engine_view(Engine *engine, const RankContext *rank, Value value);
/* The same of some of its bytes. */
const void *engine_view_bytes(Engine *engine, const RankContext *rank, Value value, size_t from,
                              size_t bytes);
/* Has a copy from or to this process' device failed? Then reports why: what was viewed may be no
 * number. */
bool engine_copy_failed(const Engine *engine, Diag *diag);
/* The same, or has the job of several processes failed? */
bool engine_job_failed(const Engine *engine, Diag *diag);
/* Of a parameter's average, a state: its name is EMA_PREFIX and the parameter's. */
bool engine_is_average(const Node *node);
/* The norm of a batch's gradients, as a step of this number would have them, without its update:
 * all stays as it is. For plans with plan_skips_spikes. False: reported. */
bool engine_measure_gradient(Engine *engine, int64_t step, const int32_t *tokens,
                             const int32_t *labels, double *out_norm, Diag *diag);
/* Takes the memory that engine_swap_averages needs. False: reported. */
bool engine_prepare_averages(Engine *engine, Diag *diag);
/* Only of a local rank. */
static inline void *engine_edit(Engine *engine, const RankContext *rank, Value value) {
    return engine->backend->edit(
        engine, executor_address(rank, value, 0),
        (size_t)type_local_bytes(value_type(value), value_sharding(value), &engine->plan->mesh));
}

/* --- leaves: parameters and the optimizer's state (engine_parameters.c) --- */

/* Of a local rank. */
void engine_set_variable(Engine *engine, const RankContext *rank, Node *variable, float value);
/* By its logical name: NAME.lora_a or NAME.lora_b. */
bool engine_is_adapter(const char *name);
/* A parameter of what tells classes or rewards: nn.classify's and nn.reward's. */
bool engine_is_head(const char *name);
/* Does it belong to a teacher (ir/teacher.h)? */
bool engine_is_teachers(const Node *leaf);
/* A parameter or, with_state, the optimizer's state; copies in 16 bits are made of parameters, but
 * in plans for decoding they may stand for them. */
bool engine_is_leaf(const RankContext *rank, const Node *node, bool with_state);
/* What files call it: engine_logical_name, of a copy its parameter's. */
const char *engine_leaf_name(const RankContext *rank, const Node *node, Arena *arena);
/* Finds what engine_list_leaves lists, once ranks have their programs. */
void engine_find_leaves(Engine *engine);
/* Every logical parameter once, by stage and place in its program; with_state: the optimizer's
 * state, too. Items are the engine's. */
LogicalList engine_list_leaves(const Engine *engine, bool with_state);
const char *engine_logical_name(const RankContext *rank, const Node *node, Arena *arena);
Shard engine_leaf_shard(const RankContext *rank, const Node *node);
/* A whole tensor's numbers, row-major: f32, bf16 or f16, perhaps unaligned. */
typedef struct WholeTensor {
    const void *data;
    DType dtype;
} WholeTensor;

/* Sets a leaf of a local rank, and a parameter's copy in 16 bits, to its share of `whole` or,
 * without it, to what its initialisation says. */
void engine_set_leaf(Engine *engine, const RankContext *rank, Node *leaf, const WholeTensor *whole,
                     Arena *arena);
/* What outlasts a step. */
bool engine_is_lasting(const Node *node);
/* Bit a: the mesh's axis a divides it. Ranks that differ on others alone hold the same part. */
unsigned engine_divided_axes(const Mesh *mesh, Value value);
/* Of the ranks that hold the same part of a stage's value: is this the first? */
bool engine_owns(const RankContext *rank, int stage, Value value);

/* The weights that train become those of a checkpoint under CHECKPOINT_REFERENCE_PREFIX. All
 * processes call it. False: reported. */
bool engine_load_kept_reference(Engine *engine, const char *path, Diag *diag);

/* --- whole tensors of shards (engine_pieces.c) --- */

/* A value of a stage's program as f32, whole, from its shards. All processes call it, as
 * engine_view. */
void engine_assemble(Engine *engine, int stage, Value value, float *out);

/* The same in pieces: numbers of the whole in order, `count` at a time, but for the last a multiple
 * of ENGINE_PIECE, which are whole blocks of any dtype. Takes memory for a piece's shares. */
enum { ENGINE_PIECE = 1 << 20 };
typedef struct EnginePieces EnginePieces;
EnginePieces *engine_pieces_begin(Engine *engine, int stage, Value value);
void engine_pieces_next(EnginePieces *pieces, int64_t count, float *out);
void engine_pieces_end(EnginePieces *pieces);

#endif
