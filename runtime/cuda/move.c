#include "runtime/cuda/move.h"

FastDivisor fast_divisor(int64_t divisor) {
    uint32_t d = (uint32_t)divisor, shift = 0;
    if (divisor < 1 || divisor >= MOVE_MAX_COUNT) BUG("division by %lld", (long long)divisor);
    while (((uint64_t)1 << shift) < d) shift++;
    uint64_t multiplier = (((uint64_t)1 << 32) * (((uint64_t)1 << shift) - d)) / d + 1;
    return (FastDivisor){d, (uint32_t)multiplier, shift};
}

void index_map_add(IndexMap *map, int64_t size, int64_t stride) {
    if (size == 1) return;
    if (map->n_dims == INDEX_DIMS) BUG("an index of more than %d dimensions", INDEX_DIMS);
    map->size[map->n_dims] = fast_divisor(size);
    map->stride[map->n_dims++] = stride;
}

int move_unit(const int64_t *bytes, int count) {
    int unit = 16;
    for (int i = 0; i < count; i++) {
        while (bytes[i] % unit) unit /= 2;
    }
    return unit;
}

int move_unit_log(int unit) {
    int log = 0;
    for (; unit > 2; unit /= 2) log++;
    return log;
}

bool move_rows_launch(const MoveRows *move, Arena *arena, LaunchCommand *out) {
    static const KernelId KERNELS_BY_UNIT[] = {KERNEL_copy_rows_2, KERNEL_copy_rows_4,
                                               KERNEL_copy_rows_8, KERNEL_copy_rows_16};
    int64_t amounts[] = {move->width,    move->limit,   move->in_part,      move->in_row,
                         move->out_part, move->out_row, (intptr_t)move->in, (intptr_t)move->out};
    int64_t unit = move_unit(amounts, sizeof(amounts) / sizeof(amounts[0]));
    if (unit < 2) BUG("rows of an odd number of bytes");
    if (unit < 4 && move->fill) BUG("rows of 16 bits filled up with 32");
    int64_t count = move->n_parts * move->n_rows * (move->width / unit);
    if (count >= MOVE_MAX_COUNT) return false;
    CopyRowsArgs *args = ARENA_NEW(arena, CopyRowsArgs);
    *args = (CopyRowsArgs){.in = move->in,
                           .out = move->out,
                           .in_part = move->in_part / unit,
                           .in_row = move->in_row / unit,
                           .out_part = move->out_part / unit,
                           .out_row = move->out_row / unit,
                           .limit = move->limit / unit,
                           .count = (uint32_t)count,
                           .width = fast_divisor(move->width / unit),
                           .rows = fast_divisor(move->n_rows),
                           .fill = move->fill,
                           .cut = move->cut};
    uint32_t blocks = (uint32_t)((count + COPY_THREADS - 1) / COPY_THREADS);
    *out = (LaunchCommand){.kernel = KERNELS_BY_UNIT[move_unit_log((int)unit)],
                           .grid = {blocks, 1, 1},
                           .threads = COPY_THREADS,
                           .args = args,
                           .args_bytes = sizeof(*args)};
    return true;
}
