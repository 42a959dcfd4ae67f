/* What is measured, on which sizes. */
#include "runtime/measure/measure.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* Appends to one of the profile's arrays. */
#define PUSH(list, rows, ...)                                                                      \
    ARENA_PUSH((list)->arena, (list)->profile->rows, (list)->profile->n_##rows,                    \
               (list)->profile->rows##_capacity, __VA_ARGS__)

void measure_list_calls(const MeasureList *list, int64_t threads) {
    PUSH(list, calls, ((ProfileCall){.threads = threads}));
}

static void add_product(const MeasureList *list, int64_t threads, bool bf16, int64_t m, int64_t n,
                        int64_t k) {
    PUSH(list, products,
         ((ProfileProduct){.bf16 = bf16, .threads = threads, .m = m, .n = n, .k = k}));
}

/* A layer's product and the two of its gradient: dx = dy w', dw = x' dy. */
static void add_layer(const MeasureList *list, int64_t threads, bool bf16, int64_t rows, int64_t in,
                      int64_t out) {
    ProfileProduct product = {.bf16 = bf16, .threads = threads};
    product.m = rows, product.n = out, product.k = in;
    PUSH(list, products, product);
    product.n = in, product.k = out, product.tb = true;
    PUSH(list, products, product);
    product = (ProfileProduct){
        .bf16 = bf16, .threads = threads, .ta = true, .m = in, .n = out, .k = rows};
    PUSH(list, products, product);
}

/* All combinations of some sides, squares, the layers of a small model and of GPT-2 124M. */
void measure_list_products(const MeasureList *list, int64_t threads, bool bf16) {
    static const int64_t SIDES[] = {16, 64, 256, 1024}, QUICK_SIDES[] = {32, 256, 1024};
    static const int64_t CUDA_SIDES[] = {64, 512, 2048, 8192},
                         QUICK_CUDA_SIDES[] = {128, 1024, 4096};
    const int64_t *sides = list->cuda ? (list->quick ? QUICK_CUDA_SIDES : CUDA_SIDES)
                                      : (list->quick ? QUICK_SIDES : SIDES);
    int n_sides = list->quick ? 3 : 4;
    if (list->tiny) {
        add_layer(list, threads, bf16, 24, 16, 40);
        return;
    }
    int64_t tokens = list->cuda ? 8192 : 256, unit = list->cuda ? 4 : 1;
    for (int i = 0; i < n_sides; i++) {
        for (int j = 0; j < n_sides; j++) {
            for (int l = 0; l < n_sides; l++) {
                add_product(list, threads, bf16, sides[i], sides[j], sides[l]);
            }
        }
    }
    add_layer(list, threads, bf16, tokens, 128 * unit, 128 * unit);
    add_layer(list, threads, bf16, tokens, 128 * unit, 512 * unit);
    add_layer(list, threads, bf16, tokens, 512 * unit, 128 * unit);
    add_layer(list, threads, bf16, tokens, 768, 768);
    add_layer(list, threads, bf16, tokens, 768, 3072);
    add_layer(list, threads, bf16, tokens, 3072, 768);
    if (list->quick) return;
    /* GPUs multiply rows that are no whole 16 bytes at a fraction of their rate: vocabularies are
     * padded there. */
    add_layer(list, threads, bf16, tokens, 768, list->cuda ? 50304 : 50257);
    for (int64_t side = 128; side <= 2048; side *= 4) {
        add_product(list, threads, bf16, side * unit, side * unit, side * unit);
    }
}

void measure_list_attention(const MeasureList *list, int64_t threads, bool bf16) {
    int64_t least = list->cuda ? 256 : 32, most = list->cuda ? 8192 : 1024;
    if (list->tiny) {
        PUSH(list, attention,
             ((ProfileAttention){
                 .bf16 = bf16, .threads = threads, .batch = 1, .heads = 2, .seq = 64, .head = 64}));
        return;
    }
    for (int64_t seq = least; seq <= most; seq *= list->quick ? 8 : 2) {
        ProfileAttention row = {.bf16 = bf16, .threads = threads, .seq = seq, .heads = 12};
        row.batch = list->cuda ? 8 : 1;
        row.head = 64;
        PUSH(list, attention, row);
        if (list->quick) continue;
        row.heads = list->cuda ? 32 : 4;
        row.head = list->cuda ? 128 : 32;
        row.batch = list->cuda ? 2 : 4;
        PUSH(list, attention, row);
    }
}

void measure_list_memory(const MeasureList *list, int64_t threads) {
    int64_t least = list->cuda ? 1 << 20 : 24 << 10;
    int64_t most = (int64_t)(list->quick ? 96 : 192) << 20;
    if (list->cuda) most *= 16;
    if (list->tiny) least = 12 << 10, most = 96 << 10;
    for (int64_t bytes = least; bytes <= most; bytes *= list->quick ? 8 : 2) {
        PUSH(list, memory, ((ProfileMemory){.threads = threads, .bytes = bytes / 96 * 96}));
    }
}

/* Buses are as fast for anything that takes a millisecond. */
void measure_list_host(const MeasureList *list) {
    int64_t most = list->tiny ? 96 << 10 : (int64_t)192 << 20;
    PUSH(list, host, ((ProfileHost){.bytes = most / 96 * 96}));
}

void measure_list_messages(const MeasureList *list) {
    int64_t most = (int64_t)(list->quick ? 4 : 64) << 20;
    for (int64_t bytes = 64; bytes <= most; bytes *= list->quick ? 16 : 4) {
        PUSH(list, messages, ((ProfileMessage){.bytes = bytes}));
    }
}

void measure_list_collectives(const MeasureList *list, int64_t members) {
    int64_t most = (int64_t)(list->quick ? 4 : 16) << 20;
    if (list->cuda) most *= 16;
    for (int kind = 0; kind < N_PROFILE_COLLECTIVES; kind++) {
        for (int64_t bytes = 1024; bytes <= most; bytes *= list->quick ? 64 : 4) {
            PUSH(list, collectives,
                 ((ProfileCollective){
                     .kind = (ProfileCollectiveKind)kind, .members = members, .bytes = bytes}));
        }
    }
}

int measure_list_count(const DeviceProfile *profile) {
    return profile->n_calls + profile->n_products + profile->n_attention + profile->n_memory +
           profile->n_host + profile->n_kernels + profile->n_messages + profile->n_collectives;
}

int64_t measure_product_elements(const ProfileProduct *row) {
    return row->m * row->k + row->k * row->n + row->m * row->n;
}

int64_t measure_attention_elements(const ProfileAttention *row) {
    return row->batch * row->heads * row->seq * row->head;
}

void measure_tell(MeasureProgress *progress, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(progress->what, sizeof(progress->what), format, args);
    va_end(args);
    if (progress->options->progress) {
        progress->options->progress(progress->options->user, progress->n_done, progress->n_all,
                                    progress->what);
    }
    progress->n_done++;
}

void measure_drop_failed(DeviceProfile *profile) {
    int n = 0;
    for (int i = 0; i < profile->n_products; i++) {
        if (profile->products[i].us > 0) profile->products[n++] = profile->products[i];
    }
    profile->n_products = n;
    n = 0;
    for (int i = 0; i < profile->n_attention; i++) {
        const ProfileAttention *row = &profile->attention[i];
        if (row->forward_us > 0 && row->backward_us > 0) profile->attention[n++] = *row;
    }
    profile->n_attention = n;
    n = 0;
    for (int i = 0; i < profile->n_host; i++) {
        if (profile->host[i].us > 0) profile->host[n++] = profile->host[i];
    }
    profile->n_host = n;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double measure_median(double *values, int count) {
    qsort(values, (size_t)count, sizeof(double), ascending);
    return values[count / 2];
}

double measure_quartile(double *values, int count) {
    qsort(values, (size_t)count, sizeof(double), ascending);
    return values[count / 4];
}
