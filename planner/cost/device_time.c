#include "planner/cost/device_time.h"

#include "ir/op.h"

#include <math.h>

/* How well smaller tiles than the device's own do in a library's product kernels: they load each
 * operand more often. Fitted with the A100's fractions (see planner/clusters/devices.lua). */
static const double HALF_TILE = 0.99, QUARTER_TILE = 0.77, EIGHTH_TILE = 0.60;

/* Rows that are not a multiple of 16 bytes long keep kernels from wide loads: what is left of the
 * rate at an odd number of 2-byte elements, and its root at a multiple of 4 or 8 bytes. vTrain's
 * heads of 50257 and 50257/t words show it; so does padding the vocabulary, which everyone does. */
static const double MISALIGNED = 0.30;

/* Products over a long inner axis with few result tiles are split along it, down to this. */
enum { MIN_SPLIT_K = 256, MAX_SPLIT = 8 };

enum { ATTENTION_TILE = 128 }; /* queries of one unit at a time */

static double largest(double a, double b) {
    return a > b ? a : b;
}

/* Bytes per microsecond. */
static double memory_rate(const ClusterDevice *device) {
    return device->memory_bytes_per_second * device->memory_fraction * 1e-6;
}

double device_stream_us(const ClusterDevice *device, double bytes) {
    return bytes / memory_rate(device);
}

double device_memory_us(const ClusterDevice *device, double bytes) {
    double us = (bytes + device->memory_ramp_bytes) / memory_rate(device);
    return largest(us, device->kernel_us);
}

double device_host_us(const Cluster *cluster, double bytes) {
    double rate = cluster->node.host_bytes_per_second * cluster->node.host_fraction;
    return rate > 0 ? bytes / rate * 1e6 : 0;
}

static double aligned_fraction(const ProductShape *shape) {
    int64_t wide = (int64_t)(16 / shape->bytes_per_element), least = wide;
    const int64_t sizes[] = {shape->m, shape->n, shape->k};
    for (int i = 0; i < 3; i++) {
        int64_t power = sizes[i] & -sizes[i]; /* the largest power of two that divides it */
        if (power < least) least = power;
    }
    if (least >= wide) return 1;
    return least <= 1 ? MISALIGNED : sqrt(MISALIGNED);
}

static double whole(int64_t size, int tile) {
    return ceil((double)size / tile);
}

/* Microseconds of arithmetic with one tile shape: whole tiles, in whole waves over the units;
 * ramp_k is added to each tile's inner size for what filling and storing costs. The best number of
 * splits along k; each writes its part in f32, and all are read to be summed. */
static double tiled_us(const ClusterDevice *device, const ProductShape *shape, int tile_m,
                       int tile_n, double unit_rate, double ramp_k) {
    double tiles = (double)shape->batch * whole(shape->m, tile_m) * whole(shape->n, tile_n);
    double best = INFINITY;
    for (int split = 1; split <= MAX_SPLIT; split *= 2) {
        double k = (double)shape->k / split;
        if (split > 1) k = largest(k, MIN_SPLIT_K);
        double waves = ceil(tiles * split / device->n_units);
        double us = waves * 2.0 * tile_m * tile_n * (k + ramp_k) / unit_rate;
        if (split > 1)
            us += (split + 1) * 4.0 * (double)shape->batch * (double)shape->m * (double)shape->n /
                  memory_rate(device);
        best = fmin(best, us);
    }
    return best;
}

static double arithmetic_us(const ClusterDevice *device, const ProductShape *shape, double rate,
                            double ramp_k) {
    int m = device->tile_m, n = device->tile_n;
    if (m <= 0 || n <= 0)
        return 2.0 * (double)shape->batch * (double)shape->m * (double)shape->n *
               ((double)shape->k + ramp_k) / rate;
    int small = m < n ? m : n;
    const struct {
        int m, n;
        double fraction;
    } tiles[] = {{m, n, 1},
                 {n, m, 1},
                 {small, small, m == n ? 1 : HALF_TILE},
                 {small, small / 2, QUARTER_TILE},
                 {small / 2, small, QUARTER_TILE},
                 {small / 2, small / 2, EIGHTH_TILE}};
    double best = INFINITY;
    for (size_t i = 0; i < sizeof(tiles) / sizeof(tiles[0]); i++) {
        if (tiles[i].m < 1 || tiles[i].n < 1) continue;
        double unit_rate = rate / device->n_units * tiles[i].fraction;
        best = fmin(best, tiled_us(device, shape, tiles[i].m, tiles[i].n, unit_rate, ramp_k));
    }
    return best;
}

/* The kind asked for if the device has it, else the next wider. */
static MathKind math_of(const ClusterDevice *device, MathKind math) {
    if (math == MATH_FP8 && device->peak_flops[MATH_FP8] <= 0) math = MATH_BF16;
    if (math == MATH_BF16 && device->peak_flops[MATH_BF16] <= 0) math = MATH_F32;
    return math;
}

double device_product_us(const ClusterDevice *device, MathKind math, const ProductShape *shape) {
    double batch = (double)shape->batch;
    double m = (double)shape->m, n = (double)shape->n, k = (double)shape->k;
    math = math_of(device, math);
    double rate = device->peak_flops[math] * device->product_fraction[math] * 1e-6;
    /* f32 products run on units without such rules. */
    if (math != MATH_F32) rate *= aligned_fraction(shape);
    double bytes = batch * (m * k + k * n + m * n) * shape->bytes_per_element;
    /* Filling and storing take as long where arithmetic is faster: what fp8 products store is in 16
     * bits. */
    double ramp_k = device->product_ramp_k;
    if (math == MATH_FP8 && device->peak_flops[MATH_BF16] > 0) {
        ramp_k *= device->peak_flops[MATH_FP8] / device->peak_flops[MATH_BF16];
    }
    double us = largest(arithmetic_us(device, shape, rate, ramp_k), bytes / memory_rate(device));
    return us + device->kernel_us;
}

static int64_t count_keys(const AttentionShape *shape) {
    return shape->keys ? shape->keys : shape->seq;
}

/* Numbers of a head of values. */
static int64_t count_values(const AttentionShape *shape) {
    return shape->values ? shape->values : shape->head;
}

/* Perilune's gradient in one pass, as runtime/cuda/bind_attention.c has it. */
static bool goes_in_one_pass(const AttentionShape *shape) {
    enum { SHORT_HEAD = 32, LONGEST_HEAD = 128 };
    return shape->causal && !shape->window && !shape->documents && !shape->capped &&
           !shape->drops && count_keys(shape) == shape->seq && shape->head > SHORT_HEAD &&
           shape->head <= LONGEST_HEAD && count_values(shape) == shape->head;
}

/* What attention reaches of the device's peak; *out_products: backward, and how many it makes. */
static double attention_fraction(const Cluster *cluster, const AttentionShape *shape, bool backward,
                                 double *out_products) {
    const ClusterDevice *device = &cluster->device;
    const ClusterSoftware *software = &cluster->software;
    double own =
        backward ? device->own_attention_backward_fraction : device->own_attention_fraction;
    double others = backward ? device->attention_backward_fraction : device->attention_fraction;
    *out_products = software->attention_backward_products;
    bool low = shape->bytes_per_element == 2;
    if (software->own_attention && own > 0 && low && !shape->drops &&
        (!backward || goes_in_one_pass(shape))) {
        *out_products = 5;
        return own;
    }
    return others * (software->attention_share > 0 ? software->attention_share : 1);
}

/* Random numbers for so many pairs, beside the products: ten rounds of Philox are about 80
 * instructions for eight pairs, and each pair takes two more. The gradient draws for queries, and
 * twice as much for keys, whose lanes use half of what they draw. */
static double draws_us(const ClusterDevice *device, double pairs, bool backward) {
    enum { FORWARD = 80 / 8 + 2, BACKWARD = 3 * (80 / 8) + 4, FLOPS = 2 /* an instruction's */ };
    const double instructions = pairs * (backward ? BACKWARD : FORWARD);
    return instructions * FLOPS / (device->peak_flops[MATH_F32] * 1e-6);
}

/* One kernel forward, of 2 products; two backward (scores are made again: of 5 products at least,
 * of which scores, and the gradients of queries and keys, are along `head`, the others along
 * values). Few queries leave units without work. */
static double blockwise_us(const Cluster *cluster, MathKind math, const AttentionShape *shape,
                           bool backward) {
    const ClusterDevice *device = &cluster->device;
    double batch = (double)shape->batch, seq = (double)shape->seq;
    double head = (double)shape->head, values = (double)count_values(shape);
    double keys = attention_mean_keys(shape->causal, count_keys(shape), shape->window);
    double pairs = batch * (double)shape->heads * seq * keys;
    double flops = 2.0 * pairs * (head + values);
    double products, fraction = attention_fraction(cluster, shape, backward, &products);
    double bytes =
        batch * (head + values) * shape->bytes_per_element *
        ((double)shape->heads * seq + (double)shape->kv_heads * (double)count_keys(shape));
    if (backward) {
        flops = pairs * ((products + 1) * head + (products - 1) * values);
        bytes *= 2.5;
    }
    double pieces = batch * (double)shape->heads * whole(shape->seq, ATTENTION_TILE);
    double idle = largest(1, device->n_units / pieces);
    double us = flops * idle / (device->peak_flops[math] * fraction * 1e-6);
    us = largest(us, bytes / memory_rate(device));
    if (shape->drops) us += draws_us(device, pairs * idle, backward);
    return us + (backward ? 2 : 1) * device->kernel_us;
}

/* Scores are written and read back: products, softmax (read and write; backward reads two), dropout
 * (and its mask of 1 byte), and the copies between [seq, batch, model] and the products' order. */
static double materialised_us(const ClusterDevice *device, MathKind math,
                              const AttentionShape *shape, bool backward, int *out_n_ops) {
    int64_t groups = shape->batch * shape->heads, n_keys = count_keys(shape);
    double element = shape->bytes_per_element;
    double scores = (double)groups * (double)shape->seq * (double)n_keys;
    int64_t values = count_values(shape);
    double width = (double)(shape->head + values) / 2; /* the mean */
    double context = (double)groups * (double)shape->seq * width * element;
    double keys = (double)shape->batch * (double)shape->kv_heads * (double)n_keys * width * element;
    ProductShape to_scores = {groups, shape->seq, n_keys, shape->head, element};
    ProductShape from_scores = {groups, shape->seq, values, n_keys, element};
    double us = device_product_us(device, math, &to_scores) +
                device_product_us(device, math, &from_scores) +
                device_memory_us(device, 2 * context);
    us += device_memory_us(device, (backward ? 3 : 2) * scores * element);
    int n_ops = 4;
    if (backward) {
        us += 2 * device_product_us(device, math, &from_scores);
        us += device_memory_us(device, 2 * (context + 2 * keys));
        n_ops += 3;
    }
    if (shape->dropout) {
        us += device_memory_us(device, scores * (2 * element + 1));
        n_ops++;
    }
    *out_n_ops = n_ops;
    return us;
}

/* Otherwise kernels for any size do it, without matrix units. */
static bool has_tensor_kernels(const ClusterSoftware *software, const AttentionShape *shape) {
    enum { MULTIPLE = 8 }; /* of numbers in 16 bytes */
    int64_t values = count_values(shape), longest = values > shape->head ? values : shape->head;
    if (!software->attention_most_head) return true;
    return longest <= software->attention_most_head && shape->head % MULTIPLE == 0 &&
           values % MULTIPLE == 0;
}

double device_attention_us(const Cluster *cluster, MathKind math, const AttentionShape *shape,
                           bool backward, int *out_n_ops) {
    const ClusterDevice *device = &cluster->device;
    /* Nobody keeps scores in 8 bits. */
    math = math_of(device, math == MATH_FP8 ? MATH_BF16 : math);
    if (cluster->software.attention == ATTENTION_MATERIALISED)
        return materialised_us(device, math, shape, backward, out_n_ops);
    if (!has_tensor_kernels(&cluster->software, shape)) math = math_of(device, MATH_F32);
    *out_n_ops = backward ? 2 : 1;
    return blockwise_us(cluster, math, shape, backward);
}

/* Shares of the host's time, waiting for others included. A device that is busy for less than the
 * first waits for each operation, and what its stream has to wait for at a collective is hidden in
 * that; from the second on it shows. vTrain's one-node rows have it around nine tenths. */
static const double HIDES_STALLS = 0.875, SHOWS_STALLS = 0.925;

/* How much of its stalls a device shows that is busy for so long. */
static double stalled_share(double busy_us, double host_us) {
    if (busy_us >= SHOWS_STALLS * host_us) return 1;
    return largest(0, (busy_us / host_us - HIDES_STALLS) / (SHOWS_STALLS - HIDES_STALLS));
}

/* A host that issues one operation at a time is slower than the device where tensors are small. It
 * then has little queued, and at every collective all members wait for the slowest of their hosts,
 * the more the longer devices idle: where there is work left in the queue it hides a late host.
 * Where the device is as slow as the host, its stream drains at every collective. */
double software_phase_us(const ClusterSoftware *software, double device_us, double collective_us,
                         int n_ops, int n_collectives, int members, bool backward) {
    double op_us = backward ? software->backward_op_us : software->forward_op_us;
    double host_us = n_ops * op_us + n_collectives * software->collective_op_us;
    double skew_us = n_collectives * software->collective_skew_us * (members - 1);
    double busy_us = device_us + collective_us;
    if (host_us > device_us) host_us += skew_us * (1 - device_us / host_us);
    return largest(busy_us, host_us) +
           n_collectives * software->collective_stall_us * stalled_share(busy_us, host_us);
}
