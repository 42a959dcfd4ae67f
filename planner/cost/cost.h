/* Cost: predicted time of a plan's parts on a described device, without running anything.
 *
 * A node takes the longer of its arithmetic and its memory traffic (the roofline of Williams,
 * Waterman & Patterson 2009), plus a fixed start cost; a collective is a ring (Thakur, Rabenseifner
 * & Gropp 2005): n - 1 steps, each a latency and 1/n of the bytes. Nothing is fitted: a better
 * description of the device gives a better prediction.
 */
#ifndef PLANNER_COST_COST_H
#define PLANNER_COST_COST_H

#include "planner/clusters/device_profile.h"
#include "planner/plan/plan.h"

/* A rate by the size of what is done: straight lines between points, both in logarithms; beyond
 * the ends, the end's. */
typedef struct RatePoint {
    double size, per_second;
} RatePoint;
typedef struct RateCurve {
    int count;         /* 0: not known */
    RatePoint *points; /* ascending sizes */
} RateCurve;

struct Cluster;

/* The rate at which one shape was computed; sides in logarithms. */
typedef struct ShapeRate {
    double log_side[3]; /* of a product m, n, k; of attention sequences x heads, positions, head */
    bool ta, tb;
    double log_rate; /* FLOP/s */
} ShapeRate;
typedef struct ShapeRates {
    int count;
    ShapeRate *shapes;
} ShapeRates;

/* What one rank has to itself. Curves, where known, count instead of the single rates. */
typedef struct Device {
    const char *name;
    const char *profile;                       /* the file it was measured into; NULL: assumed */
    double flops_per_second;                   /* sustained, f32, in matrix products */
    double memory_bytes_per_second;            /* sustained, reads plus writes */
    double host_bytes_per_second;              /* to and from the host's memory, each; 0: as near */
    double call_us;                            /* to start one operation */
    double link_latency_us;                    /* of one message between ranks */
    double link_bytes_per_second;              /* of one rank, one direction */
    bool send_blocks;                          /* the rank's own core moves the bytes */
    bool widens_f16;                           /* products of f16 are products of f32 */
    double step_latency_us;                    /* of one step of a collective; 0: link_latency_us */
    double step_bytes_per_second;              /* within a collective; 0: link_bytes_per_second */
    RateCurve product[2];                      /* FLOP/s by FLOPs; operands f32, bf16 */
    RateCurve attention[2], attention_grad[2]; /* likewise */
    RateCurve memory;                          /* bytes/s by bytes moved */
    ShapeRates product_shapes[2];              /* f32, bf16 */
    ShapeRates attention_shapes[2], attention_grad_shapes[2];
    RateCurve kernels[2][N_OPS];   /* elements/s by elements; of ops but those above */
    double ranks_per_core;         /* above 1: ranks take turns; else 0 */
    const struct Cluster *cluster; /* priced by its rules instead (node_cost.h); NULL: none */
} Device;

/* What one of n_ranks ranks has of the device that was measured: each its own GPU, or its share of
 * the cores of the one CPU on which all of them run. Memory and texts are `arena`'s. */
Device device_of_profile(const DeviceProfile *profile, int n_ranks, Arena *arena);

/* A rank of a cluster: nodes, collectives and messages cost what the search says they do. */
Device device_of_cluster(const struct Cluster *cluster, DType precision);

double rate_curve_at(const RateCurve *curve, double size);

typedef struct Cost {
    double us;            /* all of it */
    double collective_us; /* of it: messages, but for the next */
    double data_us;       /* of a forward or backward: exposed messages of axis d */
    double flops;
    double traffic_bytes; /* to and from memory */
} Cost;

/* The update in three pieces, since stages wait for each other between them: up to the first
 * reduction of tied weights; up to the first over mesh axis p; the rest. */
enum { N_UPDATE_PARTS = 3 };

typedef struct ProgramCost {
    Cost forward[MAX_CHUNKS], backward[MAX_CHUNKS], weights[MAX_CHUNKS]; /* one micro-batch, rank */
    Cost data[MAX_CHUNKS];  /* gradients over axis d, where they travel beside the backward */
    int n_data[MAX_CHUNKS]; /* in so many messages */
    Cost once[MAX_CHUNKS];  /* with the first micro-batch's forward alone; data_us: all messages */
    int n_gathers[MAX_CHUNKS]; /* of these */
    Cost update[N_UPDATE_PARTS];
    bool joins_tied, joins_pipeline; /* does the update have such reductions? */
} ProgramCost;

/* Costs of plan->programs[program] for one rank. `arena` holds temporary lists. */
ProgramCost cost_program(const Plan *plan, int program, const Device *device, Arena *arena);

/* By node id of plan->programs[program]: microseconds of one micro-batch, of one rank: what
 * cost_program adds up. In `arena`. */
double *cost_nodes(const Plan *plan, int program, const Device *device, Arena *arena);

/* One collective as its communicator sees it. */
typedef struct CollectiveCost {
    int mesh_axis;  /* MESH_*, or -1: across the stages of a StageComm */
    int stage_comm; /* index in plan->comms, or -1 */
    int n_ranks;    /* in one group */
    int n_steps;    /* messages that one rank sends */
    double bytes;   /* that one rank sends */
} CollectiveCost;

/* False when the node is no collective, or its group is a single rank. */
bool cost_collective(const Plan *plan, const Node *node, CollectiveCost *out);

/* One pipeline message of `bytes` between neighbouring stages, in microseconds; *out_latency_us:
 * what of it keeps no link busy. */
double cost_message_us(const Device *device, const Plan *plan, int from, int to, double bytes,
                       double *out_latency_us);

#endif
