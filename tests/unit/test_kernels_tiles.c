/* Products on tiles against sums in f64, with plain C in the instructions' place (so anywhere) and,
 * where the processor has them, with the instructions: each dtype, transposition and odd size,
 * alpha and beta, batches, threads; operands packed by vectors and plainly; what splits into parts.
 * Attention on tiles against attention in f32 of the same numbers.
 */
#include "ir/base/diag.h"
#include "runtime/cpu/attention.h"
#include "runtime/cpu/tile_pack.h"
#include "runtime/cpu/tile_product.h"
#include "runtime/cpu/vec_low.h"
#include "tests/unit/kernel_check.h"

#include <omp.h>
#include <sys/mman.h>
#include <unistd.h>

/* n numbers, and the same as `dtype` has them. */
typedef struct Numbers {
    float *wide; /* what is stored, as f32 */
    void *x;
} Numbers;

static Numbers new_numbers(int64_t n, DType dtype) {
    Numbers out = {.wide = kc_random(n), .x = kc_alloc((size_t)(n + 1) * vec_bytes(dtype))};
    for (int64_t i = 0; i < n; i++) {
        vec_put(out.x, dtype, i, out.wide[i]);
        out.wide[i] = vec_get(out.x, dtype, i);
    }
    return out;
}

static void free_numbers(Numbers *x) {
    free(x->wide), free(x->x);
}

static void reference_product(const TileProduct *p, const float *a, const float *b, const float *c,
                              double *out) {
    for (int64_t one = 0; one < p->batch; one++)
        for (int64_t i = 0; i < p->m; i++)
            for (int64_t j = 0; j < p->n; j++) {
                const float *pa = a + one * p->stride_a, *pb = b + one * p->stride_b;
                const int64_t at = one * p->stride_c + i * p->ldc + j;
                double sum = 0;
                for (int64_t l = 0; l < p->k; l++)
                    sum += (double)(p->ta ? pa[l * p->lda + i] : pa[i * p->lda + l]) *
                           (double)(p->tb ? pb[j * p->ldb + l] : pb[l * p->ldb + j]);
                out[at] = (double)p->alpha * sum;
                if (p->beta != 0) out[at] += (double)p->beta * (double)c[at];
            }
}

static TileProduct make_product(int64_t batch, int64_t m, int64_t n, int64_t k, int way,
                                DType dtype, DType out_dtype) {
    TileProduct p = {.batch = batch, .m = m, .n = n, .k = k, .ta = way & 1, .tb = way >> 1 & 1};
    p.dtype = dtype, p.out_dtype = out_dtype, p.alpha = 1;
    p.lda = (p.ta ? m : k) + 3, p.ldb = (p.tb ? k : n) + 1, p.ldc = n + 2;
    p.stride_a = (p.ta ? k : m) * p.lda, p.stride_b = (p.tb ? n : k) * p.ldb;
    p.stride_c = m * p.ldc;
    return p;
}

/* Largest error of a product beside what it may be. */
static double worst_error(const TileProduct *p) {
    Numbers a = new_numbers(p->batch * p->stride_a, p->dtype);
    Numbers b = new_numbers(p->batch * p->stride_b, p->dtype);
    const int64_t n_out = p->batch * p->stride_c;
    Numbers c = new_numbers(n_out, p->out_dtype);
    double *want = kc_zeros64(n_out), worst = 0;
    reference_product(p, a.wide, b.wide, c.wide, want);
    if (p->beta == 0)
        for (int64_t i = 0; i < n_out; i++) vec_put(c.x, p->out_dtype, i, NAN); /* not read */
    CHECK(tile_product(p, a.x, b.x, c.x), "no memory");
    /* Sums in f32 of k products of numbers up to 1, and what the result is rounded to. */
    const double unit = p->out_dtype == DTYPE_BF16  ? 0x1p-8
                        : p->out_dtype == DTYPE_F16 ? 0x1p-11
                                                    : 0;
    for (int64_t i = 0; i < n_out; i++) {
        if (i % p->ldc >= p->n) {
            const double is = (double)vec_get(c.x, p->out_dtype, i);
            CHECK(p->beta == 0 ? isnan(is) : is == (double)c.wide[i], "between rows");
            continue;
        }
        const double allowed = unit * fabs(want[i]) + 4e-7 * (1 + sqrt((double)p->k));
        const double error = fabs((double)vec_get(c.x, p->out_dtype, i) - want[i]) / allowed;
        if (!(error <= worst)) worst = error;
    }
    free_numbers(&a), free_numbers(&b), free_numbers(&c), free(want);
    return worst;
}

/* Long k, so in passes, of C cut down and across. */
static void check_passes(void) {
    static const int64_t sizes[][3] = {{40, 1100, 800}, {1030, 40, 800}, {40, 530, 300}};
    for (int s = 0; s < 3; s++) {
        TileProduct p = make_product(1, sizes[s][0], sizes[s][1], sizes[s][2], s,
                                     s < 2 ? DTYPE_BF16 : DTYPE_F32, DTYPE_F32);
        if (s == 1) p.beta = 1;
        const double worst = worst_error(&p);
        CHECK(worst <= 1, "%dx%dx%d %s: %g", (int)p.m, (int)p.n, (int)p.k, dtype_name(p.dtype),
              worst);
    }
}

static void check_products(const char *name) {
    static const int64_t sizes[][3] = {{1, 1, 1},     {32, 32, 32},  {33, 31, 17}, {7, 70, 65},
                                       {64, 16, 300}, {48, 530, 20}, {520, 40, 33}};
    static const DType dtypes[][2] = {{DTYPE_F32, DTYPE_F32},
                                      {DTYPE_BF16, DTYPE_F32},
                                      {DTYPE_BF16, DTYPE_BF16},
                                      {DTYPE_F16, DTYPE_F16},
                                      {DTYPE_F16, DTYPE_F32}};
    check_begin(name);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
            for (int way = 0; way < 4; way++) {
                TileProduct p = make_product(1 + way % 2, sizes[s][0], sizes[s][1], sizes[s][2],
                                             way, dtypes[d][0], dtypes[d][1]);
                if (way == 2) p.alpha = 0.5f;
                if (way == 3) p.beta = 1;
                const double worst = worst_error(&p);
                CHECK(worst <= 1, "%dx%dx%d %s to %s ta%d tb%d: %g", (int)p.m, (int)p.n, (int)p.k,
                      dtype_name(p.dtype), dtype_name(p.out_dtype), p.ta, p.tb, worst);
            }
    check_passes();
    check_end();
}

/* Loss scaling looks for what is not finite: a row that has such a number, or whose sums are too
 * large for C's dtype, gets no finite one, and no other row does. */
static void check_not_finite(void) {
    enum { N = 40, ROW = 35 };
    static const DType dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    static const float bad[] = {INFINITY, -INFINITY, NAN};
    check_begin("products on tiles: what is not finite stays so");
    for (int d = 0; d < 3; d++)
        for (int kind = 0; kind < 4; kind++) {
            const DType dtype = dtypes[d];
            TileProduct p = make_product(1, N, N, N, 2 * (kind & 1), dtype, dtype);
            Numbers a = new_numbers(p.stride_a, dtype), b = new_numbers(p.stride_b, dtype);
            void *c = kc_alloc((size_t)p.stride_c * vec_bytes(dtype));
            for (int64_t i = 0; i < p.stride_b; i++) vec_put(b.x, dtype, i, 1.5f);
            const float most = dtype == DTYPE_F16 ? 60000.0f : 0x1.fp127f;
            if (kind == 3)
                for (int k = 0; k < N; k++) vec_put(a.x, dtype, ROW * p.lda + k, most);
            else
                vec_put(a.x, dtype, ROW * p.lda + 7, bad[kind]);
            CHECK(tile_product(&p, a.x, b.x, c), "no memory");
            for (int i = 0; i < N; i++)
                for (int j = 0; j < N; j++)
                    CHECK((i == ROW) != (bool)isfinite(vec_get(c, dtype, i * p.ldc + j)),
                          "%s kind %d: %d, %d", dtype_name(dtype), kind, i, j);
            free_numbers(&a), free_numbers(&b), free(c);
        }
    check_end();
}

/* The same bits however many threads there are, and so however C is cut. */
static void check_threads(int64_t k, DType dtype) {
    TileProduct p = make_product(1, 300, 260, k, 0, dtype, DTYPE_F32);
    Numbers a = new_numbers(p.stride_a, p.dtype), b = new_numbers(p.stride_b, p.dtype);
    float *one = kc_zeros(p.stride_c), *many = kc_zeros(p.stride_c);
    const int was = omp_get_max_threads();
    check_begin("products on tiles: threads do not change a bit");
    omp_set_num_threads(1);
    CHECK(tile_product(&p, a.x, b.x, one), "no memory");
    for (int n = 2; n <= 7; n += 5) {
        omp_set_num_threads(n);
        CHECK(tile_product(&p, a.x, b.x, many), "no memory");
        CHECK(kc_same_bits(one, many, p.stride_c), "%d threads", n);
    }
    omp_set_num_threads(was);
    check_end();
    free_numbers(&a), free_numbers(&b), free(one), free(many);
}

/* Vectors pack what plain C does, and no number of the source that is not the block's is read. */
static void check_packing(void) {
    enum { STRIDE = 80, NUMBERS = STRIDE * STRIDE, PACKED = 3 * 3 * TILE_STEP };
    static const DType dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16, DTYPE_F32};
    static uint16_t fast[PACKED] __attribute__((aligned(64)));
    static uint16_t slow[PACKED] __attribute__((aligned(64)));
    check_begin("operands as tiles: by vectors as plainly");
    for (int d = 0; d < 4; d++)
        for (int form = 0; form < 4; form++)
            for (int64_t k = 1; k <= 70; k += 23)
                for (int extent = 1; extent <= TILE_BLOCK; extent += 31) {
                    Numbers x = new_numbers(NUMBERS, dtypes[d]);
                    TileSource s = {x.x, dtypes[d], d == 3, STRIDE, form & 1, extent, k};
                    if (d == 3) x.wide[STRIDE] = 1e-39f, x.wide[1] = 0x1.01p0f, s.x = x.wide;
                    memset(fast, 0xff, sizeof fast), memset(slow, 0xff, sizeof slow);
                    tile_pack(&s, form >> 1, fast);
                    tile_pack_plainly(true);
                    tile_pack(&s, form >> 1, slow);
                    tile_pack_plainly(false);
                    CHECK(memcmp(fast, slow, sizeof fast) == 0, "%s form %d k %d extent %d",
                          dtype_name(dtypes[d]), form, (int)k, extent);
                    free_numbers(&x);
                }
    check_end();
}

/* So many bytes, behind which no memory is that may be read. */
static char *map_to_end(size_t bytes) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (bytes + page - 1) / page * page;
    char *map =
        mmap(NULL, whole + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED || mprotect(map + whole, page, PROT_NONE)) BUG("no memory to map");
    return map + whole - bytes;
}

static void unmap_to_end(char *x, size_t bytes) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (bytes + page - 1) / page * page;
    munmap(x + bytes - whole, whole + page);
}

/* Nothing behind an operand's last number is read: that would be the end of this program. */
static void check_ends(void) {
    static const DType dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16, DTYPE_F32};
    static uint16_t out[TILE_MAX_PARTS * 3 * TILE_STEP] __attribute__((aligned(64)));
    check_begin("operands as tiles: nothing behind their ends is read");
    for (int d = 0; d < 4; d++)
        for (int form = 0; form < 4; form++)
            for (int64_t k = 1; k <= 70; k += 9)
                for (int extent = 1; extent <= TILE_BLOCK; extent += 5) {
                    const int64_t rows = form & 1 ? extent : k, width = form & 1 ? k : extent;
                    const int64_t stride = width + k % 2;
                    const size_t bytes =
                        (size_t)((rows - 1) * stride + width) * vec_bytes(dtypes[d]);
                    char *x = map_to_end(bytes);
                    const TileSource s = {x, dtypes[d], d == 3, stride, form & 1, extent, k};
                    tile_pack(&s, form >> 1, out);
                    unmap_to_end(x, bytes);
                }
    check_end();
}

/* Plain C gives the processor's bits: of numbers of all sizes, products about the least that is not
 * denormal and about the largest, infinities. */
static void check_imitation(void) {
    enum { STEPS = 2, N = STEPS * TILE_STEP, SUMS = TILE_BLOCK * TILE_BLOCK };
    static uint16_t a[N] __attribute__((aligned(64))), b[N] __attribute__((aligned(64)));
    static float c[2][SUMS] __attribute__((aligned(64)));
    static const struct {
        int a, b, spread; /* exponents: about so much, by so much more or less */
    } sizes[] = {{0, 0, 0}, {0, 0, 60}, {-126, 4, 6}, {3, -126, 4}, {-63, -62, 3}, {62, 62, 3}};
    const TileTerm terms[2] = {{a, b}, {b, a}};
    check_begin("imitated tiles give the processor's bits");
    for (int run = 0; run < 12; run++) {
        const float spread = (float)sizes[run / 2].spread;
        for (int i = 0; i < N; i++) {
            const int more = (int)(kc_uniform() * spread), more_b = (int)(kc_uniform() * spread);
            a[i] = vec_bf16_round(ldexpf(kc_uniform(), sizes[run / 2].a + more));
            b[i] = vec_bf16_round(ldexpf(kc_uniform(), sizes[run / 2].b + more_b));
        }
        if (run == 1) a[5] = 0x7f80, b[7] = 0xff80;
        for (int i = 0; i < SUMS; i++) c[0][i] = c[1][i] = kc_uniform() * 0x1p-124f;
        for (int imitated = 0; imitated < 2; imitated++) {
            tiles_imitate(imitated);
            if (!imitated) tiles_open();
            tiles_multiply(2, terms, STEPS, run % 2, c[imitated], TILE_BLOCK);
            if (!imitated) tiles_close();
        }
        tiles_imitate(false);
        int different = 0;
        for (int i = 0; i < SUMS; i++) {
            const bool both = isnan(c[0][i]) && isnan(c[1][i]);
            different += !both && vec_bits(c[0][i]) != vec_bits(c[1][i]);
        }
        CHECK(different == 0, "run %d: %d numbers", run, different);
    }
    check_end();
}

/* Parts add up to the number, to its last bit; what has no parts is its first. */
static void check_parts(bool plainly) {
    static const float cases[] = {
        0,        -0.0f,    1, 0x1.fffffep127f, 0x1.fefffep0f, 0x1.ff8p5f, -0x1.7ffffep-90f,
        INFINITY, -INFINITY};
    static uint16_t out[3 * TILE_STEP] __attribute__((aligned(64)));
    float x[TILE_BLOCK] = {0};
    check_begin(plainly ? "an f32 is the sum of its parts, plainly"
                        : "an f32 is the sum of its parts, by vectors");
    enum { CASES = sizeof cases / sizeof *cases };
    for (int i = 0; i < TILE_BLOCK - 1; i++)
        x[i] = i < CASES ? cases[i] : vec_from_bits(0x3f800000u + 0x10f3b1u * (unsigned)i);
    x[TILE_BLOCK - 1] = vec_from_bits(0x7f800001); /* a NaN in what is cut off */
    tile_pack_plainly(plainly);
    tile_pack(&(TileSource){x, DTYPE_F32, false, TILE_BLOCK, true, 1, TILE_BLOCK}, false, out);
    tile_pack_plainly(false);
    for (int i = 0; i < TILE_BLOCK; i++) {
        float parts[3];
        for (int p = 0; p < 3; p++) parts[p] = vec_bf16_widen(out[p * TILE_STEP + i]);
        const float sum = parts[0] + (parts[1] + parts[2]);
        CHECK(isnan(x[i]) ? isnan(parts[0]) : sum == x[i], "%a: %a + %a + %a", (double)x[i],
              (double)parts[0], (double)parts[1], (double)parts[2]);
    }
    check_end();
}

/* The largest of what two results differ by, beside the norm of a number there is on average. */
static double worst_difference(const float *got, const float *want, int64_t n) {
    double sum = 0, worst = 0;
    for (int64_t i = 0; i < n; i++) {
        const double error = fabs((double)got[i] - (double)want[i]);
        sum += (double)want[i] * (double)want[i];
        if (!(error <= worst)) worst = error;
    }
    return worst / (sqrt(sum / (double)n) + 1e-30);
}

/* What attention reads, in bf16 and widened, and what it gives either way. */
enum { Q, K, V, D_O, O, D_Q, D_K, D_V, N_ARRAYS };

static void run_attention(const AttentionShape *s, void *x[N_ARRAYS], float *lse[2], float *work) {
    CHECK(attention_forward(s, x[Q], x[K], x[V], x[O], lse[0], lse[1]), "refused");
    CHECK(
        attention_backward(s, x[Q], x[K], x[V], x[O], lse[0], x[D_O], x[D_Q], x[D_K], x[D_V], work),
        "refused");
}

/* By parts of heads the gradients have the same bits. */
static void check_more_threads(const AttentionShape *shape, void *x[N_ARRAYS],
                               const int64_t sizes[N_ARRAYS], float *lse[2], float *work) {
    const int was = omp_get_max_threads();
    AttentionShape s = *shape;
    void *again[N_ARRAYS];
    s.dtype = DTYPE_BF16;
    for (int i = 0; i < N_ARRAYS; i++) {
        const size_t bytes = (size_t)sizes[i] * sizeof(uint16_t);
        again[i] = kc_alloc(bytes);
        memcpy(again[i], x[i], bytes);
        if (i > O) memset(again[i], 0xff, bytes);
    }
    omp_set_num_threads(8);
    run_attention(&s, again, lse, work);
    omp_set_num_threads(was);
    for (int i = O; i < N_ARRAYS; i++)
        CHECK(memcmp(again[i], x[i], (size_t)sizes[i] * sizeof(uint16_t)) == 0,
              "array %d has other bits", i);
    for (int i = 0; i < N_ARRAYS; i++) free(again[i]);
}

static void check_attention(AttentionShape s) {
    const int64_t rows = s.batch * s.seq * s.kv_heads * s.group;
    const int64_t keys = s.batch * (s.keys ? s.keys : s.seq) * s.kv_heads;
    const int64_t values = s.values ? s.values : s.head;
    const int64_t sizes[N_ARRAYS] = {rows * s.head, keys * s.head, keys * values, rows * values,
                                     rows * values, rows * s.head, keys * s.head, keys * values};
    static const char *const names[] = {"q", "k", "v", "do", "o", "dq", "dk", "dv"};
    Numbers x[N_ARRAYS];
    float *wide[N_ARRAYS], *lse[2][2], *work = kc_zeros(sizes[K] + sizes[V]);
    void *low_arrays[N_ARRAYS], *wide_arrays[N_ARRAYS];
    for (int i = 0; i < N_ARRAYS; i++) {
        x[i] = new_numbers(sizes[i], DTYPE_BF16);
        wide[i] = kc_zeros(sizes[i]);
        low_arrays[i] = x[i].x;
        wide_arrays[i] = i < O ? x[i].wide : wide[i];
    }
    for (int i = 0; i < 4; i++) lse[i / 2][i % 2] = kc_zeros(rows);
    s.dtype = DTYPE_BF16;
    run_attention(&s, low_arrays, lse[0], work);
    s.dtype = DTYPE_F32;
    run_attention(&s, wide_arrays, lse[1], NULL);
    for (int i = O; i < N_ARRAYS; i++) {
        float *got = kc_zeros(sizes[i]);
        vec_low_load(DTYPE_BF16, x[i].x, got, sizes[i]);
        const double worst = worst_difference(got, wide[i], sizes[i]);
        CHECK(worst < 0.08, "b%d s%d of %d kv%d g%d h%d v%d: %s differs by %g", (int)s.batch,
              (int)s.seq, (int)s.keys, (int)s.kv_heads, (int)s.group, (int)s.head, (int)values,
              names[i], worst);
        free(got);
    }
    check_more_threads(&s, low_arrays, sizes, lse[0], work);
    for (int i = 0; i < 2; i++)
        for (int64_t r = 0; r < rows; r++) {
            const double difference = fabs((double)lse[0][i][r] - (double)lse[1][i][r]);
            CHECK(difference < 2e-5, "%s of row %d: %g", i ? "largest" : "lse", (int)r, difference);
        }
    for (int i = 0; i < N_ARRAYS; i++) free_numbers(&x[i]), free(wide[i]);
    for (int i = 0; i < 4; i++) free(lse[i / 2][i % 2]);
    free(work);
}

static void check_attentions(const char *name) {
    enum { DOCUMENTS = 150 };
    int32_t starts[DOCUMENTS], ends[DOCUMENTS];
    for (int i = 0; i < DOCUMENTS; i++) {
        starts[i] = i < 40 ? 0 : i < 41 ? 40 : i < 133 ? 41 : 133;
        ends[i] = i < 40 ? 40 : i < 41 ? 41 : i < 133 ? 133 : DOCUMENTS;
    }
    const AttentionDrop drop = {.threshold = 1u << 14,
                                .factor = 4.0f / 3,
                                .head = 1 << 16,
                                .member = 1 << 12,
                                .position = 64,
                                .batch = 1 << 20};
    const AttentionShape shapes[] = {
        {.batch = 2, .seq = 130, .kv_heads = 2, .group = 1, .head = 64, .causal = true},
        {.batch = 1, .seq = 37, .kv_heads = 2, .group = 3, .head = 80, .causal = true},
        {.batch = 1, .seq = 32, .kv_heads = 1, .group = 1, .head = 16, .causal = true},
        {.batch = 1, .seq = 70, .kv_heads = 1, .group = 2, .head = 40, .values = 72},
        {.batch = 1, .seq = 33, .kv_heads = 1, .group = 1, .head = 256, .softcap = 2},
        {.batch = 1,
         .seq = 200,
         .kv_heads = 1,
         .group = 2,
         .head = 32,
         .causal = true,
         .window = 50},
        {.batch = 1,
         .seq = 100,
         .kv_heads = 1,
         .group = 1,
         .head = 32,
         .causal = true,
         .drop = drop},
        {.batch = 1,
         .seq = 48,
         .keys = 144,
         .kv_heads = 1,
         .group = 1,
         .head = 32,
         .causal = true,
         .place = {.second = 96}},
        {.batch = 1,
         .seq = DOCUMENTS,
         .kv_heads = 1,
         .group = 1,
         .head = 32,
         .causal = true,
         .starts = starts},
        {.batch = 1,
         .seq = DOCUMENTS,
         .kv_heads = 1,
         .group = 1,
         .head = 32,
         .starts = starts,
         .ends = ends},
    };
    check_begin(name);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        AttentionShape s = shapes[i];
        s.scale = i % 2 ? 0.25f : 0.7f;
        check_attention(s);
    }
    check_end();
}

/* Rows of bf16 have the same bits whatever rows are beside them: few of them go another way. */
static void check_few_rows(void) {
    enum { WIDTH = 290, LENGTH = 300, MOST = 65 };
    static const int64_t ROWS[] = {9, 16, 33, 64};
    check_begin("products on tiles: a row's bits do not depend on the others");
    Numbers a = new_numbers(MOST * (LENGTH + 3), DTYPE_BF16),
            b = new_numbers(LENGTH * (WIDTH + 1), DTYPE_BF16);
    float *all = kc_zeros(MOST * (WIDTH + 2)), *few = kc_zeros(MOST * (WIDTH + 2));
    const TileProduct most = make_product(1, MOST, WIDTH, LENGTH, 0, DTYPE_BF16, DTYPE_F32);
    CHECK(tile_product(&most, a.x, b.x, all), "no memory");
    for (int i = 0; i < 4; i++) {
        const TileProduct p = make_product(1, ROWS[i], WIDTH, LENGTH, 0, DTYPE_BF16, DTYPE_F32);
        CHECK(tile_product_does(&p) && tile_product(&p, a.x, b.x, few), "not on tiles");
        CHECK(memcmp(all, few, (size_t)(ROWS[i] * p.ldc) * sizeof(float)) == 0, "%d of %d rows",
              (int)ROWS[i], MOST);
    }
    free_numbers(&a), free_numbers(&b), free(all), free(few);
}

int main(void) {
    tiles_refuse(true);
    const bool refused = !tiles_ready();
    tiles_refuse(false);
    const bool has_tiles = tiles_ready();
    check_begin("tiles can be refused");
    CHECK(refused, "still ready");
    check_end();
    check_packing();
    check_ends();
    check_parts(true);
    check_parts(false);
    tiles_imitate(true);
    check_products("products on tiles, imitated");
    check_not_finite();
    check_threads(200, DTYPE_F32);
    check_threads(1000, DTYPE_BF16);
    check_few_rows();
    check_attentions("attention on tiles, imitated");
    tiles_imitate(false);
    if (has_tiles) {
        check_imitation();
        check_products("products on tiles, by the processor");
        check_not_finite();
        check_threads(200, DTYPE_F32);
        check_threads(1000, DTYPE_BF16);
        check_few_rows();
        check_attentions("attention on tiles, by the processor");
    }
    return check_report();
}
