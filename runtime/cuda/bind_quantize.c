/* CUDA binders of numbers to fp8 with scales, and back (kernels/quantize.cu). */
#include "runtime/cuda/bind.h"
#include "runtime/cuda/kernels/args.h"

_Static_assert((int)SCALES_BLOCK == (int)SCALE_BLOCK, "of the kernels and of the op");
_Static_assert((int)LEAST_EXPONENT == (int)LEAST_SCALE_EXPONENT, "of the kernels and of the op");

typedef enum BlockForm { BLOCK_ROWS, BLOCK_COLUMNS, BLOCK_TILES, N_BLOCK_FORMS } BlockForm;

typedef struct BlockGrid {
    BlockLayout layout;
    BlockForm form;
    int64_t count;
    uint32_t across;
    Grid grid;
} BlockGrid;

static bool find_grid(const Binding *b, BlockGrid *out) {
    enum { WARPS = QUANTIZE_THREADS / 32, LANES = 32 };
    BlockLayout *l = &out->layout;
    if (!bind_blocks(b, l)) return false;
    int64_t strips = l->rows / l->block_rows, blocks = strips * (l->columns / l->block_columns);
    out->count = blocks;
    out->across = cuda_blocks(l->columns, l->block_columns == 1 ? LANES : l->block_columns);
    if (l->block_rows == 1) {
        out->form = BLOCK_ROWS;
        out->grid = (Grid){cuda_blocks(blocks, WARPS), 1, 1};
        return true;
    }
    out->form = l->block_columns == 1 ? BLOCK_COLUMNS : BLOCK_TILES;
    out->grid = (Grid){cuda_grid_size(strips * out->across), 1, 1};
    return true;
}

bool cuda_bind_quantize(Binding *b) {
    static const KernelsByDtype FORMS[2][N_BLOCK_FORMS] = {
        {[BLOCK_ROWS] = KERNELS_BY_DTYPE(quantize_rows),
         [BLOCK_COLUMNS] = KERNELS_BY_DTYPE(quantize_columns),
         [BLOCK_TILES] = KERNELS_BY_DTYPE(quantize_tiles)},
        {[BLOCK_COLUMNS] = KERNELS_BY_DTYPE(quantize_columns_turned),
         [BLOCK_TILES] = KERNELS_BY_DTYPE(quantize_tiles_turned)}};
    BlockGrid g = {.count = 0};
    if (!find_grid(b, &g)) return false;
    const BlockLayout *l = &g.layout;
    QuantizeArgs args = {.count = g.count,
                         .rows = l->rows,
                         .columns = l->columns,
                         .scale_down = l->scale_down,
                         .scale_right = l->scale_right,
                         .across = g.across,
                         .each = l->each,
                         .x = b->in[0],
                         .values = b->out[0],
                         .scales = b->out[1]};
    KernelId kernel = kernel_for_dtype(&FORMS[l->turned][g.form], b->in_local[0].dtype);
    return cuda_push_launch(b, kernel, g.grid, QUANTIZE_THREADS, 0, &args, sizeof(args));
}

bool cuda_bind_dequantize(Binding *b) {
    static const KernelId FORMS[N_BLOCK_FORMS] = {[BLOCK_ROWS] = KERNEL_dequantize_rows,
                                                  [BLOCK_COLUMNS] = KERNEL_dequantize_columns,
                                                  [BLOCK_TILES] = KERNEL_dequantize_tiles};
    BlockGrid g = {.count = 0};
    if (!find_grid(b, &g)) return false;
    DequantizeArgs args = {.count = g.count,
                           .columns = g.layout.columns,
                           .scale_down = g.layout.scale_down,
                           .scale_right = g.layout.scale_right,
                           .across = g.across,
                           .values = b->in[0],
                           .scales = b->in[1],
                           .out = b->out[0]};
    return cuda_push_launch(b, FORMS[g.form], g.grid, QUANTIZE_THREADS, 0, &args, sizeof(args));
}
