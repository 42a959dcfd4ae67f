/* Tensors copied into other orders of their axes and other dtypes, against one element at a time.
 */
#include "runtime/checkpoint/tensor_copy.h"
#include "tests/unit/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Axes of random sizes; `from` has them in a random order, `to` perhaps with a gap after each row.
 */
static TensorCopy make_copy(uint64_t *state, int variant, int64_t *out_n, int64_t *out_room) {
    static const DType DTYPES[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    TensorCopy c = {.rank = 1 + variant % 4,
                    .from_dtype = DTYPES[variant / 4 % 3],
                    .to_dtype = DTYPES[variant / 12 % 3]};
    int order[MAX_RANK];
    int64_t from = 1, to = 1, gap = variant / 36 % 2;
    for (int i = 0; i < c.rank; i++) {
        *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
        c.size[i] = 1 + (int64_t)(*state % (c.rank < 3 ? 400 : 12));
        int at = (int)((*state >> 32) % (uint64_t)(i + 1));
        for (int k = i; k > at; k--) order[k] = order[k - 1];
        order[at] = i;
    }
    for (int i = c.rank - 1; i >= 0; i--) {
        c.from_stride[order[i]] = from;
        from *= c.size[order[i]];
        c.to_stride[i] = to;
        to *= c.size[i] + (i == c.rank - 1 ? gap : 0);
    }
    *out_n = from;
    *out_room = to;
    return c;
}

static void convert(const void *from, DType from_dtype, void *to, DType to_dtype, int64_t n) {
    TensorCopy copy = {.rank = 1, .size = {n}, .from_stride = {1}, .to_stride = {1}};
    copy.from = from, copy.from_dtype = from_dtype, copy.to = to, copy.to_dtype = to_dtype;
    CHECK(tensor_copy(&copy), "something became infinite");
}

static void check_copy(uint64_t *state, int variant) {
    int64_t n, room;
    TensorCopy c = make_copy(state, variant, &n, &room);
    float *wide = malloc((size_t)n * 4), *got = malloc((size_t)room * 4);
    char *in = malloc((size_t)n * 4 + 1), *aligned = malloc((size_t)n * 4);
    void *out = calloc((size_t)room, 4);
    for (int64_t i = 0; i < n; i++) wide[i] = (float)(i % 251) - 125; /* exact in all three */
    convert(wide, DTYPE_F32, aligned, c.from_dtype, n);
    memcpy(in + 1, aligned, (size_t)(n * dtype_bytes(c.from_dtype)));
    c.from = in + 1, c.to = out; /* unaligned, as data in a file may be */
    CHECK(tensor_copy(&c), "something became infinite");
    convert(out, c.to_dtype, got, DTYPE_F32, room);
    for (int64_t i = 0; i < n; i++) {
        int64_t from = 0, to = 0, rest = i;
        for (int k = c.rank - 1; k >= 0; k--) {
            from += rest % c.size[k] * c.from_stride[k];
            to += rest % c.size[k] * c.to_stride[k];
            rest /= c.size[k];
        }
        CHECK(got[to] == wide[from], "element %lld is %g, not %g", (long long)i, (double)got[to],
              (double)wide[from]);
    }
    free(wide), free(got), free(in), free(aligned), free(out);
}

int main(void) {
    uint64_t state = 88172645463325252ull;
    check_begin("tensors copied into other orders and dtypes");
    for (int i = 0; i < 400; i += VARIANT_STEP) check_copy(&state, i);
    check_begin("numbers that f16 cannot hold are told");
    float numbers[3] = {1, 65504, 65519};
    uint16_t low[3];
    TensorCopy copy = {.rank = 1, .size = {3}, .from_stride = {1}, .to_stride = {1}};
    copy.from = numbers, copy.to = low, copy.to_dtype = DTYPE_F16;
    CHECK(tensor_copy(&copy), "65519 rounds to 65504");
    numbers[0] = (float)INFINITY;
    CHECK(tensor_copy(&copy), "infinity stays");
    numbers[1] = -65520;
    CHECK(!tensor_copy(&copy), "-65520 became infinite unnoticed");
    copy.to_dtype = DTYPE_BF16;
    CHECK(tensor_copy(&copy), "bf16 has it");
    return check_report();
}
