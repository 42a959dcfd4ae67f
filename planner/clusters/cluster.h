/* Cluster: what a plan would run on, as a description: devices, nodes, network, price, and the
 * software whose habits the prediction assumes. Plain data, read from Lua (planner/clusters/,
 * frontend/lua/cluster_read.c) and checked there; nothing here is measured by this program unless a
 * device profile overrides it.
 *
 * "Achievable" numbers are fractions of the data sheet's peak that the best kernels reach on large
 * inputs; which published runs they were fitted on is said beside them in the Lua file.
 */
#ifndef PLANNER_CLUSTERS_CLUSTER_H
#define PLANNER_CLUSTERS_CLUSTER_H

#include "ir/type.h"

#include <stdbool.h>
#include <stdint.h>

/* What matrix products run in: see cluster_math. */
typedef enum MathKind { MATH_F32, MATH_BF16, MATH_FP8, N_MATH_KINDS } MathKind;
struct Cluster;
/* Of operands of floating point. f16 counts as bf16: units for one are as fast for the other; but
 * CPUs widen f16 to f32, and bf16 where they have no rate for it. Of fp8 it is what the activations
 * are computed in: bf16. */
MathKind cluster_math(const struct Cluster *cluster, DType dtype);

typedef struct ClusterDevice {
    const char *name;
    double peak_flops[N_MATH_KINDS];       /* dense, per second; 0: the device has none */
    double product_fraction[N_MATH_KINDS]; /* achievable in large products */
    bool fp8_blocks; /* products read fp8 with a scale for 128 numbers: cuBLASLt on sm_90 */
    double attention_fraction; /* of peak_flops, blockwise attention, forward */
    double attention_backward_fraction;
    /* The same of software's own_attention, which is made for the device: of 2 products forward,
     * and of the 5 that a gradient in one pass takes; 0: there is none. */
    double own_attention_fraction, own_attention_backward_fraction;
    double memory_bytes; /* what a program can use of it is memory_bytes * memory_usable */
    double memory_usable;
    double memory_bytes_per_second, memory_fraction; /* peak; achievable */
    int n_units;                                     /* streaming multiprocessors; CPU: cores */
    int tile_m, tile_n;       /* of one unit's tile in a product: quantisation; 0: none */
    double product_ramp_k;    /* inner size at which half the rate is lost to filling pipelines */
    double memory_ramp_bytes; /* bytes at which a kernel reaches half of the memory's rate */
    double kernel_us;         /* the least that any kernel takes on the device */
    double power_watts;       /* cap; 0: not stated */
} ClusterDevice;

typedef struct ClusterNode {
    int n_devices;
    double link_bytes_per_second; /* of one device, one direction, to others of its node */
    double link_fraction;         /* achievable in large collectives */
    double link_latency_us;       /* one step of a ring or message inside a node */
    double collective_base_us;    /* to start any collective */
    double link_ramp_bytes;       /* per-step bytes at which half of the rate is reached */
    bool switched;                /* every pair at full rate (NVSwitch); else a ring of links */
    bool reduces_in_switch;       /* NVLS */
    double host_memory_bytes; /* of the node, that ranks of all its devices can use; 0: not said */
    double host_bytes_per_second; /* from there to one device, and back at the same time, while all
                                   * of the node's devices do so; 0: not said */
    double host_fraction;         /* achievable by kernels that read and write there */
} ClusterNode;

typedef struct ClusterNetwork {
    int n_nics;                  /* per node */
    double nic_bytes_per_second; /* each, one direction */
    double nic_fraction;         /* achievable in large messages */
    double latency_us;           /* one step between nodes */
    double ramp_bytes;           /* as link_ramp_bytes */
    double oversubscription;     /* 1: full bisection; 2: half of it, ... */
} ClusterNetwork;

/* Where checkpoints go: what all nodes share. */
typedef struct ClusterStorage {
    double node_bytes_per_second; /* that one node writes; 0: what its cards send */
    double bytes_per_second;      /* that all write together; 0: as many times a node's */
    int n_nodes;                  /* that have this together, others as much again; 0: any number */
    const char *source;
} ClusterStorage;

/* What ends runs, whatever the cause, and what that takes. */
typedef struct ClusterFailures {
    double device_mtbf_hours; /* mean time between a device's; 0: not stated, none are assumed */
    double restart_minutes;   /* from a failure to the next step */
    const char *source;
} ClusterFailures;

/* How attention is computed. */
typedef enum AttentionKind { ATTENTION_BLOCKWISE, ATTENTION_MATERIALISED } AttentionKind;

/* Habits of what issues the work: Perilune by default; others to price published runs. */
typedef struct ClusterSoftware {
    const char *name;
    AttentionKind attention;
    double forward_op_us, backward_op_us; /* host time to issue one operation; 0: captured graphs */
    double collective_op_us;              /* host time to issue a collective */
    double collective_skew_us;  /* more for each further member, by the share that devices idle */
    double collective_stall_us; /* for which a busy device's stream drains at each */
    double message_stall_us;    /* likewise at a message between stages: the host waits for it */
    bool overlaps_gradients;    /* the data axis' messages run beside the last backward passes */
    bool overlaps_pipeline;     /* so do messages between stages */
    bool overlaps_parameters;   /* ZeRO's gathers run beside the next step's first forward pass */
    double overlap_slowdown;    /* of the time of such messages, what compute beside them loses */
    bool overlaps_tensor;       /* messages of the tensor axis run beside products: these shares */
    double tensor_forward_hidden, tensor_backward_hidden; /* of their time cost nothing */
    bool overlaps_block;    /* messages run beside what of their own block does not need them */
    double exchange_hidden; /* share of all-to-alls that runs beside another micro-batch's work */
    bool exchange_once_a_node; /* a row goes to a node once and is handed on inside, however many of
                                  its experts are there */
    int exchange_most_nodes;   /* that a row's experts are on; 0: any number */
    int share_multiple;     /* products' sizes are padded to it when t divides the model; 0: not */
    bool fills_vocab;       /* each rank's share of an odd vocabulary is filled up on GPUs */
    bool joins_products;    /* of one operand: queries, keys and values are one product */
    bool batches_products;  /* alike ones of one operand run at once, side by side */
    bool separate_messages; /* of each gradient and weight; in the update on GPUs of groups of them
                             * (update_groups.h); else all are one */
    bool joins_messages;    /* ZeRO-2 and 3: a block may have one message for all its weights */
    bool repeats_shards;    /* ZeRO divides over some of the data ranks, again and again */
    bool joins_updates;     /* one kernel updates many parameters */
    bool folds_epilogues;   /* what follows a product element by element is part of it */
    bool recomputes_all;    /* full recomputation runs a block's whole forward again */
    double
        accumulate_bytes; /* moved per weight and micro-batch to add to gradients; 0: products do */
    double loss_forward_bytes, loss_backward_bytes; /* moved per logit; 0: as the kernels do */
    int product_streams;   /* experts' products run one by one, so many at once; 0: as one */
    double quantize_bytes; /* moved per element of what fp8 products multiply by weights; 0: free */
    bool fp8_products;     /* of weights, whatever the activations are kept in */
    bool scatters_borders; /* t ranks that hold the same send 1/t each between stages */
    int attention_backward_products; /* of blockwise attention, of its forward's 2; 5 would do */
    bool own_attention;              /* Perilune's kernels */
    double attention_share;  /* of the device's attention fractions: what older kernels reach */
    int attention_most_head; /* of keys or values, for tensor cores, if both are multiples of 8;
                                others at f32's rate; 0: any is */
    bool attention_dropout;  /* of probabilities: costs, and is kept, where scores are */
    bool keeps_masks;        /* of dropout, 1 byte an element; Perilune computes them again */
    double gradient_bytes;   /* per element of what the data axis reduces */
    int zero_stages;         /* of ZeRO: 1, 2 and 3; a search tries no more */
    bool splits_backward;    /* a search tries schedules with gradients of weights in tasks of their
                                own */
    bool even_split;         /* as many blocks in every chunk; else balanced by time */
    bool counts_ends;        /* then also embedding and head as a block each, if that is even */
} ClusterSoftware;

typedef struct Cluster {
    const char *name, *title; /* "selene", "DGX A100-80GB, 8 x HDR (SC'21)" */
    const char *path;         /* of the Lua file */
    const char *source;       /* where the numbers are from */
    ClusterDevice device;
    ClusterNode node;
    ClusterNetwork network;
    ClusterStorage storage;
    ClusterFailures failures;
    ClusterSoftware software;
    double price_per_device_hour;        /* 0: not stated */
    const char *currency, *price_source; /* NULL: not stated */
    int64_t max_devices;                 /* 0: no limit stated */
    bool is_cpu;
} Cluster;

#endif
