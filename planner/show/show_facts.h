/* The figures that every form of `show` prints, computed once. Internal to show_*.c. */
#ifndef PLANNER_SHOW_SHOW_FACTS_H
#define PLANNER_SHOW_SHOW_FACTS_H

#include "planner/show/show.h"
#include "planner/simulate/simulate.h"

typedef struct StageFacts {
    int n_blocks;
    int64_t n_parameters; /* logical, all that the stage's ranks hold together */
    int64_t class_bytes[N_BUFFER_CLASSES], arena_bytes; /* of one rank */
    int64_t host_bytes;                                 /* likewise, in its machine's memory */
    int n_frames;                                       /* frame slots of all pools */
    int n_sent;                                         /* pipeline messages per step */
    double flops;                                       /* of one rank and step */
    double busy_us, idle_us;
} StageFacts;

typedef enum TrafficKind {
    TRAFFIC_MESH,     /* collectives over one mesh axis */
    TRAFFIC_TIED,     /* tied weights, across stages */
    TRAFFIC_PIPELINE, /* activations or gradients between neighbouring stages */
} TrafficKind;

/* What one communicator carries per step. Bytes are those that a rank sends. */
typedef struct Traffic {
    TrafficKind kind;
    const char *name;         /* "t", "tied wte", "pipeline forward" */
    const char *what;         /* "96 all_reduce, 4 all_gather" */
    int n_groups, group_size; /* pipeline: links and 2 */
    int64_t n_calls;          /* collectives or messages, of the busiest rank */
    double rank_bytes;        /* of the busiest rank */
    double total_bytes;       /* of all ranks */
} Traffic;

/* Stages shown as one row. */
typedef struct StageGroup {
    int first, count;
    bool varies; /* not all alike: figures are the largest of the group */
} StageGroup;

typedef struct Facts {
    Arena *arena;
    const Plan *plan;
    const Device *device;
    const Simulation *sim;
    int n_ranks;
    double n_tokens;       /* per step */
    double hardware_flops; /* of all ranks' products and attention a step, as planned */
    int64_t largest_arena_bytes;
    double all_arena_bytes; /* of all ranks */
    int64_t largest_host_bytes;
    double all_host_bytes;
    double parameters_counted;   /* sum over stages, tied ones once each */
    double active_parameters;    /* that a token meets: less than all where there are experts */
    double undivided_parameters; /* of these, with t > 1: whole on every t rank */
    const Node *most_undivided;  /* the largest of them; NULL: none */
    StageFacts *stages;
    int n_traffic;
    Traffic *traffic;
} Facts;

/* NULL: reported. All of it is owned by `arena`. */
Facts *facts_create(Arena *arena, const Plan *plan, const Device *device, Diag *diag);

/* What a token meets of the parameters; a tied one counts once. */
double facts_count_active(const Plan *plan);

/* Products with fp8 operands that a micro-batch runs, of all stages together: those that read fp8
 * and scales, and those that are widened before, because the plan says so, because they are one of
 * a batch (experts'), or because a rank's parts are not as cuBLASLt takes them (show_fp8.c). */
typedef struct Fp8Facts {
    int on_tensor_cores, widened_planned, widened_batches, widened_parts;
} Fp8Facts;
Fp8Facts facts_count_fp8(const Plan *plan);

/* Frozen weights that are kept in blocks (ir/blocks.h), of all stages together: how many numbers,
 * and in how many bits each, the scales not counted; 0: there are none. */
typedef struct PackedFacts {
    int bits;
    int64_t n_parameters;
} PackedFacts;
PackedFacts facts_count_packed(const Plan *plan);
/* What weights that train will be quantized to (ir/ops/round_blocks.h): "q4_0"; NULL: to nothing.
 */
const char *facts_rounded_form(const Plan *plan);

/* How many runs the slots of a mixture's experts are cut into; 1 without experts. */
int facts_count_expert_parts(const Plan *plan);

/* In how many lanes a micro-batch's sequences go through the model (part_batch). */
int facts_count_lanes(const Plan *plan);

/* In how many parts logits are computed (part_loss). out_twice, if not NULL: in the forward and
 * again in the backward. */
int facts_count_loss_parts(const Plan *plan, bool *out_twice);

/* Have blocks one message for all their weights, or gradients (ir/message_group.h)? */
bool facts_joins_messages(const Plan *plan);

/* Neighbouring stages that are alike; beyond `n_most` stages also those that are alike but for
 * frames. Returns how many; *out_groups is owned by the facts' arena. */
int facts_group_stages(const Facts *facts, int n_most, StageGroup **out_groups);

/* The largest figures of a group. */
StageFacts facts_of_group(const Facts *facts, StageGroup group);

/* Model blocks of a stage as text: "0-2" or, over chunks, "0-1, 4-5"; "none". */
const char *facts_blocks(const Facts *facts, int stage);

/* How many blocks each chunk has, in pipeline order, equal neighbours together: "0 1 x4 0". */
const char *facts_split(Arena *arena, const Plan *plan);
/* Has a chunk none? */
bool facts_has_bare_chunk(const Plan *plan);

/* The largest end of what a task of this kind uses in the scratch region. */
int64_t facts_scratch_bytes(const Plan *plan, int program, Phase phase, int chunk);

/* Human units: "1.50 GiB", "12.3 ms", "124.4 M". `text` holds at least UNIT_TEXT bytes. */
enum { UNIT_TEXT = 32 };
const char *unit_bytes(double bytes, char *text);
const char *unit_us(double us, char *text);
const char *unit_count(double count, char *text);
/* ", 12.9 G of them for a token", or nothing where that is all. */
const char *active_parameters_text(double active, int64_t all, char text[2 * UNIT_TEXT]);
/* A line: "41.9 M of 8.07 G parameters; the others are frozen", or NULL where none is. */
const char *trained_parameters_text(int64_t trained, int64_t all, char text[4 * UNIT_TEXT]);
/* `before` and what moments are kept in, or nothing where that is f32. */
const char *states_text(DType dtype, const char *before, char text[2 * UNIT_TEXT]);

#endif
