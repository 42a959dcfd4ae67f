/* Device time: how long one operation takes on a device of a cluster, from its sizes.
 *
 * A product takes the longer of its arithmetic, on whole tiles and whole waves of tiles over the
 * device's units, and its memory traffic; anything else its memory traffic; both at achievable
 * fractions with a ramp for small sizes, and never less than a kernel's floor. Everything grows
 * with every size, but for the penalty of rows that are not a multiple of 16 bytes. Nothing here
 * knows of layers, models or layouts.
 */
#ifndef PLANNER_COST_DEVICE_TIME_H
#define PLANNER_COST_DEVICE_TIME_H

#include "planner/clusters/cluster.h"

/* batch products of [m, k] by [k, n]; operands and result of `bytes_per_element` */
typedef struct ProductShape {
    int64_t batch, m, n, k;
    double bytes_per_element;
} ProductShape;
double device_product_us(const ClusterDevice *device, MathKind math, const ProductShape *shape);

/* Reads plus writes; by a kernel of its own, and by one that runs anyway. */
double device_memory_us(const ClusterDevice *device, double bytes);
double device_stream_us(const ClusterDevice *device, double bytes);
/* Bytes that are read from the host's memory and as many written there, at the same time; 0 where
 * the cluster does not say how fast its bus is. */
double device_host_us(const Cluster *cluster, double bytes);

/* Queries of `heads` heads (all sequences of the micro-batch counted in `batch`), keys and values
 * of kv_heads; of [seq, seq] scores those count that causality and a window (0: none) leave, but
 * where they are materialised. */
typedef struct AttentionShape {
    int64_t batch, heads, kv_heads, seq, head, window;
    bool causal, dropout;
    double bytes_per_element;
    int64_t keys;   /* 0: seq; else seq is a part of the queries, which see as many as all do */
    int64_t values; /* numbers of a head of values and results; 0: head */
    bool documents, capped; /* within each, scores by a soft cap: what such cost is not known */
    bool drops;             /* probabilities, in the same kernel */
} AttentionShape;
/* One blockwise kernel, or the products and elementwise kernels of one with materialised scores;
 * *out_n_ops: how many operations that is to issue. */
double device_attention_us(const Cluster *cluster, MathKind math, const AttentionShape *shape,
                           bool backward, int *out_n_ops);

/* One phase (forward, backward) of one micro-batch as software with these habits runs it, `members`
 * ranks dividing the tensors: `device_us` of kernels and `collective_us` of messages that nothing
 * hides, unless the host that issues operations one by one is slower. */
double software_phase_us(const ClusterSoftware *software, double device_us, double collective_us,
                         int n_ops, int n_collectives, int members, bool backward);

#endif
