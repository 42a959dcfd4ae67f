/* From a device profile's rows to the few rates that costs are computed with. */
#include "planner/cost/cost.h"

#include <math.h>
#include <stdlib.h>

double rate_curve_at(const RateCurve *curve, double size) {
    const RatePoint *points = curve->points;
    int last = curve->count - 1;
    if (size <= points[0].size) return points[0].per_second;
    if (size >= points[last].size) return points[last].per_second;
    int i = 0;
    while (points[i + 1].size < size) i++;
    double part = log(size / points[i].size) / log(points[i + 1].size / points[i].size);
    return points[i].per_second * pow(points[i + 1].per_second / points[i].per_second, part);
}

static int by_size(const void *a, const void *b) {
    double x = ((const RatePoint *)a)->size, y = ((const RatePoint *)b)->size;
    return (x > y) - (x < y);
}

/* Sorts, and puts together what lies within a factor of two: rows of about the same size but other
 * shapes become their geometric mean. */
static void finish_curve(RateCurve *curve) {
    int n = 0;
    if (!curve->count) return;
    qsort(curve->points, (size_t)curve->count, sizeof(RatePoint), by_size);
    for (int i = 0; i < curve->count;) {
        double first = curve->points[i].size, log_size = 0, log_rate = 0;
        int count = 0;
        for (; i < curve->count && curve->points[i].size < 2 * first; i++, count++) {
            log_size += log(curve->points[i].size);
            log_rate += log(curve->points[i].per_second);
        }
        curve->points[n++] = (RatePoint){exp(log_size / count), exp(log_rate / count)};
    }
    curve->count = n;
}

static void add_point(RateCurve *curve, double size, double us) {
    curve->points[curve->count++] = (RatePoint){size, size / us * 1e6};
}

/* The cores of one rank as they were measured: the most that are not more than it has. */
static int64_t choose_threads(const DeviceProfile *profile, int64_t cores) {
    int64_t chosen = 0, least = INT64_MAX;
    for (int i = 0; i < profile->n_products; i++) {
        int64_t threads = profile->products[i].threads;
        if (threads <= cores && threads > chosen) chosen = threads;
        if (threads < least) least = threads;
    }
    return chosen ? chosen : least;
}

static void add_shape(ShapeRates *rates, double a, double b, double c, double flops, double us) {
    rates->shapes[rates->count++] =
        (ShapeRate){.log_side = {log(a), log(b), log(c)}, .log_rate = log(flops / us * 1e6)};
}

/* No row counts for more than one that is as long or longer on every side. */
static double product_us(const DeviceProfile *profile, const ProfileProduct *row) {
    double us = row->us;
    for (int i = 0; i < profile->n_products; i++) {
        const ProfileProduct *other = &profile->products[i];
        bool larger = other->m >= row->m && other->n >= row->n && other->k >= row->k;
        bool alike = other->threads == row->threads && other->bf16 == row->bf16 &&
                     other->ta == row->ta && other->tb == row->tb;
        if (larger && alike && other->us < us) us = other->us;
    }
    return us;
}

static void add_products(const DeviceProfile *profile, int64_t threads, bool bf16, Arena *arena,
                         RateCurve *out, ShapeRates *shapes) {
    out->points = ARENA_ARRAY(arena, RatePoint, profile->n_products);
    shapes->shapes = ARENA_ARRAY(arena, ShapeRate, profile->n_products);
    for (int i = 0; i < profile->n_products; i++) {
        const ProfileProduct *row = &profile->products[i];
        if (row->threads != threads || row->bf16 != bf16) continue;
        double flops = 2 * (double)row->m * (double)row->n * (double)row->k;
        double us = product_us(profile, row);
        add_point(out, flops, us);
        add_shape(shapes, (double)row->m, (double)row->n, (double)row->k, flops, us);
        shapes->shapes[shapes->count - 1].ta = row->ta;
        shapes->shapes[shapes->count - 1].tb = row->tb;
    }
    finish_curve(out);
}

/* FLOPs as flops_attention counts them: causal, two products; the gradient five. */
static void add_attention(const DeviceProfile *profile, int64_t threads, bool bf16, Arena *arena,
                          Device *device) {
    RateCurve *forward = &device->attention[bf16], *backward = &device->attention_grad[bf16];
    ShapeRates *shapes = &device->attention_shapes[bf16];
    ShapeRates *grad_shapes = &device->attention_grad_shapes[bf16];
    forward->points = ARENA_ARRAY(arena, RatePoint, profile->n_attention + 1);
    backward->points = ARENA_ARRAY(arena, RatePoint, profile->n_attention + 1);
    shapes->shapes = ARENA_ARRAY(arena, ShapeRate, profile->n_attention + 1);
    grad_shapes->shapes = ARENA_ARRAY(arena, ShapeRate, profile->n_attention + 1);
    for (int i = 0; i < profile->n_attention; i++) {
        const ProfileAttention *row = &profile->attention[i];
        if (row->threads != threads || row->bf16 != bf16) continue;
        double flops = 2 * (double)row->batch * (double)row->heads * (double)row->seq *
                       (double)row->seq * (double)row->head;
        double heads = (double)row->batch * (double)row->heads;
        add_point(forward, flops, row->forward_us);
        add_point(backward, 2.5 * flops, row->backward_us);
        add_shape(shapes, heads, (double)row->seq, (double)row->head, flops, row->forward_us);
        add_shape(grad_shapes, heads, (double)row->seq, (double)row->head, 2.5 * flops,
                  row->backward_us);
    }
    finish_curve(forward);
    finish_curve(backward);
}

/* Less never takes longer than more: where it did, something else had the core. */
static void order_times(RateCurve *curve) {
    double least_us = INFINITY;
    for (int i = curve->count - 1; i >= 0; i--) {
        RatePoint *point = &curve->points[i];
        least_us = fmin(least_us, point->size / point->per_second);
        point->per_second = point->size / least_us;
    }
}

static void add_kernels(const DeviceProfile *profile, int64_t threads, Arena *arena,
                        Device *device) {
    int counts[2][N_OPS] = {0};
    for (int i = 0; i < profile->n_kernels; i++) {
        counts[profile->kernels[i].bf16][profile->kernels[i].op]++;
    }
    for (int i = 0; i < profile->n_kernels; i++) {
        const ProfileKernel *row = &profile->kernels[i];
        RateCurve *curve = &device->kernels[row->bf16][row->op];
        if (row->threads != threads) continue;
        if (!curve->points) {
            curve->points = ARENA_ARRAY(arena, RatePoint, counts[row->bf16][row->op]);
        }
        add_point(curve, (double)row->elements, row->us);
    }
    for (int op = 0; op < N_OPS; op++) {
        for (int bf16 = 0; bf16 < 2; bf16++) {
            finish_curve(&device->kernels[bf16][op]);
            order_times(&device->kernels[bf16][op]);
        }
    }
}

static void read_memory(const DeviceProfile *profile, int64_t threads, Arena *arena,
                        RateCurve *out) {
    out->points = ARENA_ARRAY(arena, RatePoint, 2 * profile->n_memory);
    for (int i = 0; i < profile->n_memory; i++) {
        const ProfileMemory *row = &profile->memory[i];
        if (row->threads != threads) continue;
        add_point(out, (double)row->bytes, row->copy_us);
        add_point(out, (double)row->bytes, row->triad_us);
    }
    finish_curve(out);
}

/* Ranks that share a memory have no more of it, all together, than all cores have. */
static void limit_memory(const DeviceProfile *profile, int n_ranks, Arena *arena,
                         RateCurve *memory) {
    RateCurve all = {0};
    int64_t most = 0;
    for (int i = 0; i < profile->n_memory; i++) {
        if (profile->memory[i].threads > most) most = profile->memory[i].threads;
    }
    read_memory(profile, most, arena, &all);
    for (int i = 0; i < memory->count; i++) {
        RatePoint *point = &memory->points[i];
        double limit = rate_curve_at(&all, point->size * n_ranks) / n_ranks;
        if (limit < point->per_second) point->per_second = limit;
    }
}

/* A latency and a rate from the smallest and the largest of some messages. */
static void fit_line(double small, double small_us, double large, double large_us, double n_steps,
                     double *out_latency_us, double *out_rate) {
    *out_latency_us = small_us / n_steps;
    if (large > small && large_us > small_us) {
        *out_rate = (large - small) / (large_us - small_us) * 1e6;
    }
}

static void read_messages(const DeviceProfile *profile, Device *device) {
    const ProfileMessage *small = NULL, *large = NULL;
    for (int i = 0; i < profile->n_messages; i++) {
        const ProfileMessage *row = &profile->messages[i];
        if (!small || row->bytes < small->bytes) small = row;
        if (!large || row->bytes > large->bytes) large = row;
    }
    if (!small) return;
    fit_line((double)small->bytes, small->us, (double)large->bytes, large->us, 1,
             &device->link_latency_us, &device->link_bytes_per_second);
}

/* From the all_reduces of the largest group whose members had a core each or, for ranks that take
 * turns on cores, of the largest whose members did, too: 2 (n - 1) steps of 1/n of the bytes each.
 */
static void read_collectives(const DeviceProfile *profile, bool crowded, Device *device) {
    const ProfileCollective *small = NULL, *large = NULL;
    for (int i = 0; i < profile->n_collectives; i++) {
        const ProfileCollective *row = &profile->collectives[i];
        if (row->kind != PROFILE_ALL_REDUCE || row->members < 2) continue;
        bool took_turns = !profile->cuda && row->members > profile->cores;
        if (took_turns && !crowded) continue;
        bool wider = !small || row->members > small->members;
        if (!wider && row->members < small->members) continue;
        if (wider || row->bytes < small->bytes) small = row;
        if (wider || row->bytes > large->bytes) large = row;
    }
    if (!small) return;
    double n_steps = 2 * ((double)small->members - 1), part = n_steps / (double)small->members;
    device->step_bytes_per_second = device->link_bytes_per_second;
    fit_line((double)small->bytes * part, small->us, (double)large->bytes * part, large->us,
             n_steps, &device->step_latency_us, &device->step_bytes_per_second);
    if (crowded && device->link_latency_us < device->step_latency_us) {
        device->link_latency_us = device->step_latency_us;
    }
}

static void read_calls(const DeviceProfile *profile, int64_t threads, Device *device) {
    for (int i = 0; i < profile->n_calls; i++) {
        const ProfileCall *row = &profile->calls[i];
        if (row->threads != threads && i > 0) continue;
        device->call_us = row->graph_us > 0 ? row->graph_us : row->us;
    }
}

static double fastest(const RateCurve *curve) {
    double most = 0;
    for (int i = 0; i < curve->count; i++) {
        if (curve->points[i].per_second > most) most = curve->points[i].per_second;
    }
    return most;
}

/* For what a profile may lack: messages, where there was one GPU or one core. */
static const Device GPU_LINKS = {
    .call_us = 2,
    .link_latency_us = 8,
    .link_bytes_per_second = 350e9,
    .host_bytes_per_second = 20e9, /* PCIe 4.0 */
};
static const Device CPU_LINKS = {
    /* copies through the shared cache */
    .call_us = 1,
    .link_latency_us = 5,
    .link_bytes_per_second = 5e9,
};

Device device_of_profile(const DeviceProfile *profile, int n_ranks, Arena *arena) {
    Device device = profile->cuda ? GPU_LINKS : CPU_LINKS;
    int64_t cores = profile->cuda ? 1 : profile->cores / n_ranks;
    int64_t threads = choose_threads(profile, cores > 0 ? cores : 1);
    bool crowded = !profile->cuda && n_ranks > profile->cores;
    if (crowded) device.ranks_per_core = (double)n_ranks / (double)profile->cores;
    device.name = profile->name;
    device.profile = profile->path;
    device.send_blocks = device.widens_f16 = !profile->cuda;
    for (int bf16 = 0; bf16 < 2; bf16++) {
        add_products(profile, threads, bf16, arena, &device.product[bf16],
                     &device.product_shapes[bf16]);
        add_attention(profile, threads, bf16, arena, &device);
    }
    add_kernels(profile, threads, arena, &device);
    read_memory(profile, threads, arena, &device.memory);
    if (!profile->cuda && n_ranks > 1) limit_memory(profile, n_ranks, arena, &device.memory);
    double flops = fastest(&device.product[0]), bytes = 0;
    if (flops <= 0) flops = fastest(&device.product[1]);
    if (flops > 0) device.flops_per_second = flops;
    if (device.memory.count) bytes = device.memory.points[device.memory.count - 1].per_second;
    if (bytes > 0) device.memory_bytes_per_second = bytes;
    for (int i = 0; i < profile->n_host; i++) { /* the last is of the most bytes */
        device.host_bytes_per_second = (double)profile->host[i].bytes / profile->host[i].us * 1e6;
    }
    read_calls(profile, threads, &device);
    read_messages(profile, &device);
    read_collectives(profile, crowded, &device);
    return device;
}
