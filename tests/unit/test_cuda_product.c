/* Products by the plain kernel, through their binder and the emulator, against float64.
 *
 * Would catch: operands swapped, transposed or read with another's stride, a batch that begins in
 * another's matrix, an element that no thread or a wrong one has, a sum that ends before k or after
 * it, an accumulator that is not added to or is where it is to be set, results of another dtype.
 */
#include "tests/unit/cuda_check.h"

/* f32 sums of up to 64 products, added up: of 5,000 the worst is 3.4e-7 off, of all cases 5.6e-7.
 * One after the other 5,000 are 2.2e-6 off. The rounding of results in 16 bits is not counted. */
static const double TOLERANCE = 1e-6;

static const CudaRunHooks OWN = {.own_products = true};
static bool launched[N_KERNELS];

typedef struct Sizes {
    int batch, m, n, k; /* batch 0: there is none */
} Sizes;

typedef struct Kinds {
    const char *in, *out;
} Kinds;

/* "b=3, m=4, k=5", k first where it is transposed. */
static const char *operand(Arena *arena, const char *dtype, const Sizes *s, const char *own,
                           int n_own, bool k_first) {
    const char *batch = s->batch ? arena_printf(arena, "b=%d, ", s->batch) : "";
    return k_first ? arena_printf(arena, "%s[%sk=%d, %s=%d]", dtype, batch, s->k, own, n_own)
                   : arena_printf(arena, "%s[%s%s=%d, k=%d]", dtype, batch, own, n_own, s->k);
}

typedef enum Sum { SET, ADDED, OVERWRITTEN } Sum;

static void check_product(const Kinds *kinds, const Sizes *s, bool transpose_a, bool transpose_b,
                          Sum sum) {
    static const char *const SUMS[] = {"", ", added up", ", the first of a sum"};
    Arena *arena = arena_create();
    const char *a = operand(arena, kinds->in, s, "m", s->m, transpose_a);
    const char *b = operand(arena, kinds->in, s, "n", s->n, !transpose_b);
    const char *batch = s->batch ? arena_printf(arena, "b=%d, ", s->batch) : "";
    const char *d = arena_printf(arena, "%s[%sm=%d, n=%d]", kinds->out, batch, s->m, s->n);
    CudaCase c = {.tolerance = TOLERANCE,
                  .hooks = &OWN,
                  .launched = launched,
                  .overwrite = sum == OVERWRITTEN};
    c.nodes = arena_printf(arena,
                           "%%0 = input() {name=\"\"} : %s\n"
                           "%%1 = input() {name=\"\"} : %s\n"
                           "%%2 = input() {name=\"\"} : %s\n"
                           "%%3 = matmul(%%0, %%1%s) {over=[k], dtype=\"%s\"} : %s\n",
                           a, b, d, sum == SET ? "" : ", %2", kinds->out, d);
    check_begin(arena_printf(arena, "%s x %s to %s%s", a, b, d, SUMS[sum]));
    cuda_check(&c);
    check_end();
    arena_destroy(arena);
}

/* Rows and columns that are one, fewer than a block's threads and more; k around a run of 64. */
static void check_kinds(const Kinds *kinds) {
    static const Sizes SIZES[] = {{0, 1, 7, 64},   {0, 67, 35, 33}, {3, 5, 19, 65},  {2, 300, 2, 1},
                                  {0, 2, 515, 63}, {5, 1, 3, 129},  {0, 16, 16, 200}};
    enum { N_SIZES = sizeof(SIZES) / sizeof(SIZES[0]) };
    for (int i = 0; i < N_SIZES; i++) {
        for (int t = 0; t < 4; t++) {
            bool wide = strcmp(kinds->out, "f32") == 0; /* what products are added up in */
            check_product(kinds, &SIZES[i], t & 1, t & 2, wide ? (Sum)((i + t) % 3) : SET);
        }
    }
    check_product(kinds, &(Sizes){0, 9, 33, 5000}, true, false, SET);
}

int main(void) {
    static const Kinds KINDS[] = {
        {"f32", "f32"}, {"bf16", "bf16"}, {"bf16", "f32"}, {"f16", "f16"}, {"f16", "f32"}};
    if (cuda_check_missing()) return check_report();
    for (size_t i = 0; i < sizeof(KINDS) / sizeof(KINDS[0]); i++) check_kinds(&KINDS[i]);
    cuda_check_coverage(launched, KERNEL_product_f32, KERNEL_product_f16);
    return check_report();
}
