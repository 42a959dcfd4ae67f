/* Engine: one plan running on this machine: on its CPU, every rank of the plan a thread, on CUDA
 * devices (runtime/cuda/cuda_engine.h), or as one of several processes, with one rank in each.
 *
 * engine_create allocates one arena per rank, of exactly the plan's size, and emits each rank's
 * step into a list of resolved calls or a captured graph; engine_step replays it. Nothing is
 * allocated after creation.
 */
#ifndef RUNTIME_ENGINE_H
#define RUNTIME_ENGINE_H

#include "planner/plan/plan.h"
#include "runtime/islands/outer_parts.h"
#include "runtime/metrics/noise_scale.h"
#include "runtime/metrics/step_metrics.h"
#include "runtime/rank_work.h"

typedef struct Engine Engine;

typedef enum DeviceKind { DEVICE_CPU, DEVICE_CUDA } DeviceKind;

typedef struct EngineOptions {
    DeviceKind device;
    int n_threads;      /* CPU: cores that this process uses; 0: its share of those it may */
    bool virtual_ranks; /* CUDA: all ranks of the plan on one device, in this process */
    bool no_graph;      /* CUDA: issue every command instead of replaying a captured graph */
    bool segmented;     /* CUDA: capture in pieces, as steps of too many nodes always are */
    bool no_epilogues;  /* CUDA: kernels of their own for what products could do besides */
    bool no_cudnn;      /* CUDA: own kernels for all attention */
    const AttentionKernels *attention; /* CUDA: these where they can; NULL: those that are best */
    bool own_products;                 /* CUDA: products by a plain kernel, no call of cuBLASLt */
    bool tf32;          /* CUDA: f32 products round their operands to 10 bits, on tensor cores */
    int device_ordinal; /* CUDA: which of this machine's devices */
    /* Several processes, a rank in each: this one's rank among them and how they talk
     * (runtime/launch). NULL: one process. */
    struct Control *control;
    int rank;
    bool several_hosts;     /* the processes are not all on one */
    int n_on_host;          /* how many of them are on this one; 0: 1 */
    bool no_registration;   /* CUDA: do not register memory with NCCL */
    double timeout_seconds; /* a rank that waits longer for another ends the run; 0: 300 */
} EngineOptions;

/* Can CUDA devices be used here? false: *out_why says in one line what is missing. */
bool engine_cuda_available(const char **out_why);

typedef struct StepResult {
    double loss, grad_norm;
    double loss_scale; /* from now on; 0: the plan has none */
    bool skipped;   /* gradients were not finite under the loss scale: nothing but it has changed */
    bool spike;     /* the gradients' norm was above engine_set_most_norm's: nothing has changed */
    double seconds; /* wall time of the step */
    int n_values;   /* other single numbers that the model puts out */
    const StepValue *values; /* [n_values]; until the next step */
} StepResult;

Engine *engine_create(const Plan *plan, const EngineOptions *options, Diag *diag);
void engine_destroy(Engine *engine);

/* Initial weights by name and global element index: the same for every layout. */
void engine_init_parameters(Engine *engine);
/* Metadata of saved weights: the model's settings, as its plan has them. */
#define ENGINE_SETTINGS_KEY "perilune.settings"
/* And where parameters were frozen, a parameter that was trained and is no adapter: adapters alone
 * would be another model. */
#define ENGINE_TRAINED_BESIDE_KEY "perilune.trained_beside"
/* Of weights without the frozen ones. */
#define ENGINE_TRAINED_ALONE_KEY "perilune.trained_alone"
/* And of a checkpoint, where in its run it was made: counts in decimal digits, and the name of the
 * data. */
#define CHECKPOINT_STEP_KEY      "perilune.step"
#define CHECKPOINT_SAMPLES_KEY   "perilune.samples"
#define CHECKPOINT_SEED_KEY      "perilune.seed"
#define CHECKPOINT_DATA_KEY      "perilune.data"
#define CHECKPOINT_REFERENCE_KEY "perilune.reference"
/* Names of the weights that it compares with, where these follow the training. */
#define CHECKPOINT_REFERENCE_PREFIX  "reference/"
#define CHECKPOINT_REFERENCE_RENEWED "renewed at " /* and a step: what its key then says */
#define CHECKPOINT_TEACHER_KEY       "perilune.teacher"
#define CHECKPOINT_RECENT_KEY        "perilune.recent" /* steps, with blanks between them */
#define CHECKPOINT_SPIKES_KEY        "perilune.spikes" /* how many, and in a row */
#define CHECKPOINT_NORMS_KEY         "perilune.norms"  /* f32 as hexadecimal digits of their bits */
#define CHECKPOINT_NOISE_KEY         "perilune.noise"  /* count and sums, of hexadecimal digits */
/* Of an island: its number, how many there are, the step, samples and number of the last meeting.
 */
#define CHECKPOINT_ISLAND_KEY "perilune.island"
/* Where its weights meet in parts: how many, and of each the step of its last meeting, and that at
 * which what came of it is to be merged, or 0. */
#define CHECKPOINT_PARTS_KEY "perilune.island_parts"
/* Whole logical tensors, whatever the layout, all of them or, in `trained`, those that are not
 * frozen. */
bool engine_save(Engine *engine, const char *path, Diag *diag);
bool engine_save_trained(Engine *engine, const char *path, Diag *diag);
/* Every parameter must be there, with its shape: those that train in `trained`, if it is given, the
 * others in `whole`. But a file of a base model, which has no adapter (NAME.lora_a, NAME.lora_b),
 * lets all of them begin as they are made, and where out_begun is given, a file of one that tells
 * tokens lets the head that tells classes or rewards (score, pooler.w and their biases): *out_begun
 * says how many parameters. */
typedef struct WeightsBegun {
    int adapters, head;
} WeightsBegun;
typedef struct WeightFiles {
    const char *whole, *trained; /* trained may be NULL */
} WeightFiles;
bool engine_load_files(Engine *engine, const WeightFiles *files, WeightsBegun *out_begun,
                       Diag *diag);
bool engine_load(Engine *engine, const char *path, Diag *diag);
/* The weights of the plan's teacher (ir/teacher.h), by the names of its own model; before any other
 * weights or a checkpoint, which has none of them, but says whose they were. Without this a teacher
 * is as it is made. */
bool engine_load_teacher(Engine *engine, const char *path, Diag *diag);

/* The weights of `to`, an engine of another plan of the model on this process alone or on the same
 * processes, become those of `from`, all or, but for `frozen`, those that train; what `to` has not
 * is passed over. All processes call it. Takes the memory of a whole parameter in f32. False:
 * reported. */
bool engine_copy_weights(Engine *from, Engine *to, bool frozen, Diag *diag);

/* The weights that train, with `frozen` the others, too, and the loss scale, of this process'
 * ranks, as they are: to be other ones for a while. NULL: reported. */
typedef struct EngineWeights EngineWeights;
EngineWeights *engine_keep_weights(Engine *engine, bool frozen, Diag *diag);
/* They are what they were, to the bit. Frees; NULL is fine. False: reported. */
bool engine_restore_weights(EngineWeights *weights, Diag *diag);
/* What is kept becomes what the engine has, and that is kept: takes the memory of both for that
 * while. False: reported. */
bool engine_swap_weights(EngineWeights *weights, Diag *diag);
void engine_drop_weights(EngineWeights *weights); /* frees alone; NULL is fine */
/* What engine_keep_weights takes of this process' memory. */
int64_t engine_weights_bytes(const Engine *engine, bool frozen);

/* An engine of a plan that differs from the engine's in its global batch alone, with its weights,
 * optimizer's state and loss scale; `engine` is destroyed first, so that both are never in memory,
 * but for a copy of all that on the host. All processes call it. NULL: reported. */
Engine *engine_replace(Engine *engine, const Plan *plan, const EngineOptions *options, Diag *diag);

/* "act=gelu; the plan's model has act=silu": of settings that change what weights of a file mean,
 * those that it was made with and the plan's, where they differ. NULL: they do not, the file does
 * not say, or another process is the one to tell. */
const char *engine_unlike_settings(const Engine *engine, const char *path, Arena *arena);

/* Where in its run training is: with weights and the optimizer's state, all that it goes on from.
 */
enum { CHECKPOINT_MOST_RECENT = 65, CHECKPOINT_MOST_NORMS = 1024 };

typedef struct TrainingPlace {
    int64_t step, samples; /* done */
    char data[96];         /* the caller's name of what was trained on; UTF-8 */
    char reference[24];    /* and of the model that it compares with; "": none */
    /* Steps whose checkpoints are still there, under names of their own, and are to go in time. */
    int64_t recent[CHECKPOINT_MOST_RECENT];
    int n_recent;
    int64_t n_spikes;    /* steps that were left out for their norm, */
    int n_spikes_in_row; /* of which the last ones; */
    int n_norms;         /* and norms of the last steps that were not, the oldest first */
    float norms[CHECKPOINT_MOST_NORMS];
    NoiseScale noise; /* what was measured of it */
    /* Of an island (runtime/islands), with its last meeting; n_islands 0: none. */
    int island, n_islands;
    int64_t met_step, met_samples, n_meetings;
    int n_parts; /* that meet one by one, or behind training; 0: all at once */
    PartTurn turns[OUTER_MOST_PARTS];
    int averages_begun; /* averages that the file has none of, and that begin with its weights */
    bool averages_left; /* it has averages, and the plan keeps none */
    int n_left;         /* weights that the file has and the plan's model has not, */
    char left[64];      /* and the first one's name */
} TrainingPlace;
/* What checkpoints have beside what the engine knows of: f32 in this process' memory, which stays
 * the caller's and as it is while a checkpoint is begun. All processes name the same ones; only the
 * first, which writes them, has values. `items` has to stay, too. */
typedef struct EngineBeside {
    const char *name; /* has a '/', as states have */
    Type type;
    float *values;
} EngineBeside;
void engine_set_beside(Engine *engine, const EngineBeside *items, int n);
/* They become the file's. False: reported. */
bool engine_load_beside(const EngineBeside *items, int n, const char *path, Diag *diag);

/* As load and save, with the optimizer's state and the place. Refused: weights alone, another seed
 * than the plan's. Of several processes all have it, or none. */
bool engine_load_state(Engine *engine, const char *path, TrainingPlace *out, Diag *diag);
bool engine_save_state(Engine *engine, const char *path, const TrainingPlace *place, Diag *diag);
/* Is it a key of metadata that only checkpoints have: the place in a run? */
bool engine_is_place_key(const char *key);
/* The step of a checkpoint; -1: the file is none. */
int64_t engine_checkpoint_step(const char *path);

/* The same behind training, which waits only until all is copied to memory that was taken before
 * training began: of one process everything whole, of several each one's own shards. */
typedef struct EngineSnapshot EngineSnapshot;
typedef enum SnapshotState {
    SNAPSHOT_NONE,    /* nothing is being written */
    SNAPSHOT_WRITING, /* training may go on; the file is not there yet */
    SNAPSHOT_WRITTEN, /* the file is there: said once, then NONE */
    SNAPSHOT_FAILED   /* nothing was written: said once, then NONE */
} SnapshotState;
/* NULL: not enough memory; reported. Outlived by the engine. */
EngineSnapshot *engine_snapshot_create(Engine *engine, Diag *diag);
/* Ends what is being written first. NULL is fine. */
void engine_snapshot_destroy(EngineSnapshot *snapshot);
int64_t engine_snapshot_bytes(const EngineSnapshot *snapshot);
/* Between two steps, while nothing is being written. Where other processes do not see the file it
 * is written at once. `path` stays the caller's. The same answer in all processes; FAILED is
 * reported.
 */
SnapshotState engine_snapshot_begin(EngineSnapshot *snapshot, const char *path,
                                    const TrainingPlace *place, Diag *diag);
/* Between two steps: what has become of it; wait: at its end. All processes call it equally often,
 * and get the same answer (they ask each other at the first, second, fourth, eighth... call).
 * FAILED is reported. */
SnapshotState engine_snapshot_poll(EngineSnapshot *snapshot, bool wait, Diag *diag);

/* One training step, `step` counts from 1. labels: i32[global_batch, seq]; tokens: the same, and
 * where there is an encoder what it reads before each row: i32[global_batch, source + seq]. False:
 * the run cannot go on (a loss or gradient that is not finite, named with its Lua line; a stuck
 * rank). With a loss scale, gradients may be so now and then: ENGINE_MOST_SKIPPED steps in a row at
 * most. */
enum { ENGINE_MOST_SKIPPED = 50 };
bool engine_step(Engine *engine, int64_t step, const int32_t *tokens, const int32_t *labels,
                 double learning_rate, StepResult *out, Diag *diag);

/* Steps from now on whose gradients have a larger norm are left out: no weight, state or average
 * changes. INFINITY, as before the first call: any norm may be. For plans with plan_skips_spikes.
 */
void engine_set_most_norm(Engine *engine, double norm);

/* The weights become their averages (--ema), and these the weights, to the bit; once more, and all
 * is as it was. Between two steps, by all processes. Before the first update averages are the
 * weights: nothing is done. For plans with plan_ema_decay. False: reported. */
bool engine_swap_averages(Engine *engine, Diag *diag);

/* Between two steps: do all ranks that hold the same weights, states and variables hold the same
 * bits? All processes call it. Reads all of them once, on the host. False: reported, with the name
 * of one that differs and the ranks that hold it; or the job failed. `step`: the last one done. */
bool engine_check_copies(Engine *engine, int64_t step, Diag *diag);

/* What steps and evaluations from now on have as the input `reference`: f32[global_batch], which
 * has to stay where it is; NULL, as before the first call: zeros. */
void engine_set_reference(Engine *engine, const float *reference);

/* The same of numbers of labels, which nn.policy reads: f32[global_batch, seq], and of targets,
 * [global_batch, seq, class]. */
void engine_set_numbers(Engine *engine, TokenNumbers which, const float *numbers);
/* And of those that are stored, [global_batch, seq, plan_stored_words]. */
void engine_set_stored(Engine *engine, const int32_t *words, const float *logprobs);

/* Labels [global_batch, seq] that the model's mean loss is over: all but those that it leaves out.
 */
int64_t engine_count_labels(const Engine *engine, const int32_t *labels);

bool engine_counts_label(const Engine *engine, int32_t label);

/* Mean loss of one global batch, forward only, dropout off. */
bool engine_evaluate(Engine *engine, const int32_t *tokens, const int32_t *labels, double *out_loss,
                     Diag *diag);
/* Of that batch the mean of another single number that the model puts out; false: it has none of
 * that name. */
bool engine_evaluated(Engine *engine, const char *name, double *out);
/* How many sequences engine_logits takes: micro_batch * d. */
int64_t engine_forward_batch(const Engine *engine);
/* How many numbers of each position engine_logits gives; 0: it cannot be called, as the plan never
 * has all logits, like those with lanes. */
int64_t engine_logits_width(const Engine *engine);
/* What each row's answer scores, as nn.preference or nn.reward puts it out: f32[forward_batch] of
 * tokens and labels i32[forward_batch, seq], as of the first micro-batch of a global batch; dropout
 * off. */
bool engine_row_scores(Engine *engine, const int32_t *tokens, const int32_t *labels,
                       float *out_scores, Diag *diag);
/* Likewise what each label scores, as nn.policy puts it out: f32[forward_batch, seq]. */
bool engine_token_scores(Engine *engine, const int32_t *tokens, const int32_t *labels,
                         float *out_scores, Diag *diag);
/* How many texts of a row have vectors, and of how many numbers; 0: the plan has none, or never
 * has all of them, like those with lanes. */
void engine_vectors_shape(const Engine *engine, int64_t *out_texts, int64_t *out_width);
/* Likewise the vectors of texts, as nn.embed puts them out: f32[forward_batch, texts, width]. */
bool engine_vectors(Engine *engine, const int32_t *tokens, const int32_t *labels,
                    float *out_vectors, Diag *diag);
/* Logits f32[forward_batch, seq, vocab] of tokens i32[forward_batch, seq], or as above with what an
 * encoder reads before them; dropout off. Of a model that tells classes of texts there are as many
 * as it has classes, in place of vocab. */
bool engine_logits(Engine *engine, const int32_t *tokens, float *out_logits, Diag *diag);

/* Of a plan for decoding: runs one of its chunks (DECODE_READ...) and gives logits f32[batch,
 * vocab], batch being 1, or all sequences; or of DECODE_LOOK the first vector, as it is stored.
 * `inputs` as DecodeInput says. */
bool engine_decode(Engine *engine, int chunk, const int32_t *const inputs[N_DECODE_INPUTS],
                   float *out_logits, Diag *diag);
int64_t engine_decoded_numbers(const Engine *engine, int chunk); /* how many it gives */
int64_t engine_sequences(const Engine *engine);                  /* that its caches have */
/* Do layers carry a state from position to position, which cannot be taken back? */
bool engine_keeps_states(const Engine *engine);
/* The first `count` positions of a sequence of the caches, and its states, become another's. */
void engine_copy_sequence(Engine *engine, int64_t from, int64_t to, int64_t count);

/* Bytes really allocated for the arenas of this process's ranks (the plan's figure, or it is a
 * bug). */
int64_t engine_arena_bytes(const Engine *engine);
/* Likewise of what lies in the machine's memory beside arenas (--offload). */
int64_t engine_host_bytes(const Engine *engine);
/* What connections to other processes keep of messages, on the CPU; 0: there are none. */
int64_t engine_message_bytes(const Engine *engine);
/* What became of the plan's device section, in one line; NULL where there is none to be used. */
const char *engine_tuning(const Engine *engine);
/* Whose attention the steps run, in one line; NULL: own kernels', as
 * everywhere without cuDNN unless `tune` has chosen. */
const char *engine_attention(const Engine *engine);
/* In one line which graphs are launched slowly, and why; NULL: none. */
const char *engine_graphs(const Engine *engine);
double engine_emit_seconds(const Engine *engine);
/* Calls of one training step on rank 0. */
int64_t engine_call_count(const Engine *engine);
/* Seconds that replaying one step's calls takes with every kernel replaced by one that does
 * nothing: what the engine itself costs per step. */
double engine_replay_seconds(Engine *engine);

/* Parameters by logical name, whole, f32, for tests and tools. The i-th name (the engine's text)
 * and type, false past the last; reading and writing, false when there is no such parameter. */
bool engine_parameter(const Engine *engine, int i, const char **out_name, Type *out_type);
bool engine_read_parameter(Engine *engine, const char *name, float *out);
bool engine_write_parameter(Engine *engine, const char *name, const float *whole);

/* Runs one more step on the last batch and gives rank 0's seconds per op, indexed by OpKind. */
bool engine_profile_step(Engine *engine, double *out_op_seconds, Diag *diag);

/* One call of a traced step. Times are from the step's beginning, one clock for all ranks. */
typedef struct EngineSpan {
    int rank;
    const char *stream; /* what it ran on: "compute", "send", "receive"; a CUDA stream's name */
    TaskKind task;
    int chunk, micro;
    const Node *node; /* its op and Lua line; NULL: inputs, the step's beginning and end */
    double begin_us, end_us;
    double wait_us; /* of it, at its beginning: waiting for another rank */
} EngineSpan;

/* Runs one more step on the last one's batch and rate (the weights move on) and gives its calls, by
 * rank, then beginning; owned by `arena`. False: reported, as when there was no step before. */
bool engine_trace_step(Engine *engine, Arena *arena, EngineSpan **out_spans, int *out_count,
                       Diag *diag);

/* Are steps from now on measured, rank by rank? The numbers they compute stay the same. A measured
 * step costs next to nothing where engine_measures_for_free, as on a CPU, where two readings of the
 * clock go with each call; on CUDA it is issued command by command, with an event around each. */
void engine_set_measuring(Engine *engine, bool on);
bool engine_measures_for_free(const Engine *engine);

/* What a process says of its ranks beside what the engine has measured: of a mean step. */
typedef struct HostWork {
    double step_seconds; /* as StepResult has them */
    double data_seconds; /* before it: to have its samples */
    int device;          /* the number of its GPU on its machine; -1: the processor */
} HostWork;

/* Steps measured since the last call, of all ranks -> out[ranks of the plan] on rank 0, means.
 * Others may pass NULL; all processes call it. False: reported, the job failed. */
bool engine_gather_work(Engine *engine, const HostWork *host, RankWork *out, Diag *diag);

/* A gradient of the last step, before clipping, by logical name: f32, whole. For tests. False: no
 * such parameter, or its complete gradient lay in memory that has been reused since. */
bool engine_read_gradient(Engine *engine, const char *parameter, float *out);

#endif
