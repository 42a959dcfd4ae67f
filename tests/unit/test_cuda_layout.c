/* CUDA kernels of layout and sums, through their binders and the emulator, against float64.
 *
 * Would catch: a permutation with dimensions or tiles mixed up, a vector path that takes odd sizes,
 * a sum that misses rows at a chunk's border, a result that depends on the order of threads.
 */
#include "runtime/cuda/move.h"
#include "tests/unit/cuda_check.h"

#include <math.h>

/* Sums of up to 100000 terms of size 1, relative to the sums' own size (their square root): f32
 * rounding within short chains, as on the CPU. The rounding of results in 16 bits is not counted.
 */
static const double TOLERANCE = 2e-6;

static void run_case(const char *name, const char *nodes, double tolerance) {
    CudaCase c = {.nodes = nodes, .tolerance = tolerance};
    check_begin(name);
    cuda_check(&c);
    check_end();
}

/* "a=3, b=70" in the given order. */
static const char *axes_text(Arena *arena, int rank, const int64_t *dims, const int *order) {
    const char *text = "";
    for (int i = 0; i < rank; i++) {
        text = arena_printf(arena, "%s%s%c=%d", text, i ? ", " : "", 'a' + order[i],
                            (int)dims[order[i]]);
    }
    return text;
}

static void check_transpose(const char *dtype, int rank, const int64_t *dims, const int *order) {
    static const int SAME[MAX_RANK] = {0, 1, 2, 3, 4, 5};
    Arena *arena = arena_create();
    const char *from = axes_text(arena, rank, dims, SAME), *to = "";
    for (int i = 0; i < rank; i++) {
        to = arena_printf(arena, "%s%s%c", to, i ? ", " : "", 'a' + order[i]);
    }
    run_case(arena_printf(arena, "transpose %s[%s] to [%s]", dtype, from, to),
             arena_printf(arena,
                          "%%0 = input() {name=\"\"} : %s[%s]\n"
                          "%%1 = transpose(%%0) {to=[%s]} : %s[%s]\n",
                          dtype, from, to, dtype, axes_text(arena, rank, dims, order)),
             0);
    arena_destroy(arena);
}

static void test_transposes(const char *dtype) {
    static const int64_t ODD[] = {2, 35, 3, 33}, EVEN[] = {2, 36, 2, 34};
    for (int code = 0; code < 256; code++) {
        int order[] = {code & 3, code >> 2 & 3, code >> 4 & 3, code >> 6};
        unsigned seen = 0;
        for (int d = 0; d < 4; d++) seen |= 1u << order[d];
        if (seen != 15) continue;
        check_transpose(dtype, 4, ODD, order);
        check_transpose(dtype, 4, EVEN, order);
    }
    check_transpose(dtype, 2, (const int64_t[]){129, 67}, (const int[]){1, 0});
    check_transpose(dtype, 2, (const int64_t[]){130, 66}, (const int[]){1, 0});
    check_transpose(dtype, 2, (const int64_t[]){1, 66}, (const int[]){1, 0});
    check_transpose(dtype, 1, (const int64_t[]){7}, (const int[]){0});
    check_transpose(dtype, 3, (const int64_t[]){1, 1, 1}, (const int[]){2, 1, 0});
    check_transpose(dtype, 6, (const int64_t[]){2, 3, 2, 3, 2, 5}, (const int[]){5, 4, 3, 2, 1, 0});
    check_transpose(dtype, 6, (const int64_t[]){2, 3, 2, 3, 2, 5}, (const int[]){4, 2, 0, 3, 1, 5});
    /* Attention's: rows of one head, in units of 16, 8, 4 and 2 bytes. */
    for (int head = 16; head > 0; head -= head > 12 ? 2 : 1) {
        const int64_t dims[] = {2, 9, 3, head};
        check_transpose(dtype, 4, dims, (const int[]){0, 2, 1, 3});
    }
}

static void check_sum_to(const char *from_dtype, const char *to_dtype, int rank,
                         const int64_t *dims, unsigned mask) {
    Arena *arena = arena_create();
    const char *in = "", *out = "", *over = "";
    int n_over = 0, n_kept = 0;
    for (int i = 0; i < rank; i++) {
        in = arena_printf(arena, "%s%s%c=%d", in, i ? ", " : "", 'a' + i, (int)dims[i]);
        if (mask >> i & 1) {
            over = arena_printf(arena, "%s%s%c", over, n_over++ ? ", " : "", 'a' + i);
        } else {
            out =
                arena_printf(arena, "%s%s%c=%d", out, n_kept++ ? ", " : "", 'a' + i, (int)dims[i]);
        }
    }
    run_case(
        arena_printf(arena, "reduce_sum %s[%s] over [%s] to %s", from_dtype, in, over, to_dtype),
        arena_printf(arena,
                     "%%0 = input() {name=\"\"} : %s[%s]\n"
                     "%%1 = reduce_sum(%%0) {over=[%s], dtype=\"%s\"} : %s[%s]\n",
                     from_dtype, in, over, to_dtype, to_dtype, out),
        TOLERANCE);
    arena_destroy(arena);
}

static void check_sum(const char *dtype, int rank, const int64_t *dims, unsigned mask) {
    check_sum_to(dtype, dtype, rank, dims, mask);
}

static void test_sums(const char *type) {
    static const int64_t ODD[] = {3, 20, 5, 33}, EVEN[] = {4, 5, 6, 32};
    for (unsigned mask = 0; mask < 16; mask++) {
        check_sum(type, 4, ODD, mask);
        check_sum(type, 4, EVEN, mask);
    }
    check_sum(type, 6, (const int64_t[]){2, 3, 4, 5, 6, 8}, 0x15);
    check_sum(type, 6, (const int64_t[]){2, 3, 4, 5, 6, 8}, 0x2a);
    check_sum(type, 3, (const int64_t[]){1, 1, 1}, 7);
    /* To columns in several chunks, with and without a rest, wider than a block. */
    check_sum(type, 2, (const int64_t[]){523, 128}, 1);
    check_sum(type, 2, (const int64_t[]){1031, 37}, 1);
    check_sum(type, 2, (const int64_t[]){129, 520}, 1);
    check_sum(type, 3, (const int64_t[]){3, 260, 36}, 2);
    /* To scalars: a warp each, a block each, several blocks each. */
    check_sum(type, 2, (const int64_t[]){19, 100}, 2);
    check_sum(type, 2, (const int64_t[]){3, 16640}, 2);
    check_sum(type, 2, (const int64_t[]){3, 1031}, 2);
    check_sum(type, 2, (const int64_t[]){300, 220}, 3);
    check_sum(type, 1, (const int64_t[]){8209}, 1);
    check_sum(type, 3, (const int64_t[]){130, 2, 260}, 5);
    /* A bias' gradient is kept wider. */
    const char *other = strcmp(type, "f32") == 0 ? "bf16" : "f32";
    if (strcmp(type, "f32") == 0) check_sum_to(type, "f16", 2, (const int64_t[]){523, 128}, 1);
    check_sum_to(type, other, 2, (const int64_t[]){523, 128}, 1);
    check_sum_to(type, other, 2, (const int64_t[]){23, 128}, 1);
    check_sum_to(type, other, 2, (const int64_t[]){19, 100}, 2);
    check_sum_to(type, other, 2, (const int64_t[]){3, 16641}, 2);
}

static void check_add_n(const char *dtype, int n_operands, const char *axes) {
    Arena *arena = arena_create();
    const char *nodes = "", *list = "";
    for (int i = 0; i < n_operands; i++) {
        nodes =
            arena_printf(arena, "%s%%%d = input() {name=\"\"} : %s[%s]\n", nodes, i, dtype, axes);
        list = arena_printf(arena, "%s%s%%%d", list, i ? ", " : "", i);
    }
    run_case(
        arena_printf(arena, "add_n of %d %s[%s]", n_operands, dtype, axes),
        arena_printf(arena, "%s%%%d = add_n(%s) : %s[%s]\n", nodes, n_operands, list, dtype, axes),
        1e-7); /* one rounding */
    arena_destroy(arena);
}

static void test_add_n(const char *type) {
    check_add_n(type, 1, "");
    check_add_n(type, 2, "a=1031");
    check_add_n(type, 3, "a=8, b=128");
    check_add_n(type, 13, "");
    check_add_n(type, 60, "a=5");
    check_add_n(type, 60, "a=67");
}

/* More operands than one launch takes: others add to the sum so far, rounded to f32. */
static void check_many_operands(int n_operands, const char *axes) {
    CudaFixture f;
    CudaKernelRun run;
    StrBuf nodes = strbuf_create(), list = strbuf_create();
    char name[64];
    snprintf(name, sizeof(name), "add_n of %d f32[%s]", n_operands, axes);
    check_begin(name);
    for (int i = 0; i < n_operands; i++) {
        strbuf_printf(&nodes, "%%%d = input() {name=\"+\"} : f32[%s]\n", i, axes);
        strbuf_printf(&list, "%s%%%d", i ? ", " : "", i);
    }
    strbuf_printf(&nodes, "%%%d = add_n(%s) : f32[%s]\n", n_operands, list.text, axes);
    if (cuda_fixture_create(&f, NULL, nodes.text)) {
        bool bound = cuda_kernel_run_create(&run, f.reference, -1, NULL, f.diag);
        CHECK(bound && cuda_kernel_run_step(&run), "%s", diag_text(f.diag));
        Node *sum = f.graph->nodes[n_operands];
        const float *got = run.base.ranks[0].buffers[n_operands * MAX_OUTPUTS];
        for (int64_t i = 0; i < type_elements(&sum->types[0]); i++) {
            double expected = 0;
            for (int k = 0; k < n_operands; k++) {
                expected += reference_value(f.reference, sum->inputs[k])[i];
            }
            CHECK(fabs((double)got[i] / expected - 1) < 2e-7, "element %d is %.9g, not %.9g",
                  (int)i, (double)got[i], expected);
        }
        cuda_kernel_run_destroy(&run);
    }
    cuda_fixture_destroy(&f);
    strbuf_destroy(&nodes);
    strbuf_destroy(&list);
    check_end();
}

/* Kernels divide by multiplying; all numbers up to the largest. */
static void test_division(void) {
    static const uint32_t NUMBERS[] = {0,     1,          2,          3,          1000,      65535,
                                       65536, 0x3fffffff, 0x40000000, 0x7ffffffe, 0x7fffffff};
    check_begin("division by multiplication");
    for (int64_t divisor = 1; divisor < MOVE_MAX_COUNT;
         divisor += divisor < 3000 ? 1 : divisor / 7) {
        FastDivisor d = fast_divisor(divisor);
        for (size_t i = 0; i < sizeof(NUMBERS) / sizeof(NUMBERS[0]); i++) {
            for (int near = -1; near <= 1; near++) { /* beside a multiple */
                int64_t n = NUMBERS[i] / divisor * divisor + near;
                if (n < 0 || n >= MOVE_MAX_COUNT) continue;
                uint32_t got = fast_divide(d, (uint32_t)n);
                CHECK(got == n / divisor, "%d / %d = %u", (int)n, (int)divisor, got);
            }
        }
    }
    check_end();
}

static void check_part(const char *dtype, const char *name, const char *nodes) {
    Arena *arena = arena_create();
    StrBuf text = strbuf_create();
    for (const char *at = nodes; *at; at++) { /* '$' is the dtype */
        if (*at == '$') strbuf_put(&text, dtype);
        if (*at != '$') strbuf_put_bytes(&text, at, 1);
    }
    run_case(arena_printf(arena, "%s, %s", name, dtype), text.text, 0);
    strbuf_destroy(&text);
    arena_destroy(arena);
}

/* In units of 2 to 16 bytes; what is copied alone, and what is filled up before and after. */
static void test_parts(const char *type) {
    check_part(type, "parts of inner axes",
               "%0 = input() {name=\"\"} : $[a=3, b=24]\n"
               "%1 = narrow(%0) {axis=b, to=[c], first=8, count=16} : $[a=3, c=16]\n"
               "%2 = narrow(%0) {axis=b, to=[d], first=3, count=5} : $[a=3, d=5]\n"
               "%3 = narrow(%0) {axis=b, first=23} : $[a=3]\n"
               "%4 = pad(%1) {axis=c, to=[b], first=8, count=24} : $[a=3, b=24]\n"
               "%5 = pad(%2) {axis=d, to=[b], first=0, count=24} : $[a=3, b=24]\n"
               "%6 = pad(%3) {to=[b], first=23, count=24, at=1} : $[a=3, b=24]\n"
               "%7 = concat(%1, %2, %1) {over=[c, d], to=[b]} : $[a=3, b=37]\n"
               "%8 = regroup(%0) {over=[b], to=[c, d], count=8} : $[a=3, c=3, d=8]\n"
               "%9 = regroup(%8) {over=[a, c], to=[e]} : $[e=9, d=8]\n");
    check_part(type, "parts of outer axes",
               "%0 = input() {name=\"\"} : $[a=2, b=7, c=300]\n"
               "%1 = narrow(%0) {axis=b, to=[d], first=2, count=4} : $[a=2, d=4, c=300]\n"
               "%2 = narrow(%0) {axis=a, first=1} : $[b=7, c=300]\n"
               "%3 = pad(%1) {axis=d, to=[b], first=2, count=7} : $[a=2, b=7, c=300]\n"
               "%4 = concat(%0, %1) {over=[b, d], to=[b]} : $[a=2, b=11, c=300]\n");
    check_part(type, "stacks",
               "%0 = input() {name=\"\"} : $[a=3, b=7]\n"
               "%1 = input() {name=\"\"} : $[a=3, b=7]\n"
               "%2 = stack(%0, %1, %0) {to=[c], count=3} : $[c=3, a=3, b=7]\n"
               "%3 = stack(%1, %0) {to=[c], count=5} : $[c=5, a=3, b=7]\n"
               "%4 = narrow(%3) {axis=c, first=1} : $[a=3, b=7]\n"
               "%5 = input() {name=\"\"} : $[d=16, e=300]\n"
               "%6 = stack(%5, %5) {to=[c], count=3} : $[c=3, d=16, e=300]\n");
    check_part(type, "shifts",
               "%0 = input() {name=\"\"} : $[batch=3, seq=6, model=4]\n"
               "%1 = shift(%0) {axis=seq, by=2} : $[batch=3, seq=6, model=4]\n"
               "%2 = shift(%0) {axis=seq, by=-5} : $[batch=3, seq=6, model=4]\n"
               "%3 = shift(%0) {axis=model, by=1} : $[batch=3, seq=6, model=4]\n");
    check_part(type, "rows of pairs",
               "%0 = input() {name=\"\"} : $[batch=6, model=40]\n"
               "%1 = of_pairs(%0) {axis=batch, from=0, into=1} : $[batch=6, model=40]\n"
               "%2 = of_pairs(%0) {axis=batch, from=1, into=0} : $[batch=6, model=40]\n"
               "%3 = input() {name=\"\"} : $[batch=2]\n"
               "%4 = of_pairs(%3) {axis=batch, from=1, into=1} : $[batch=2]\n");
}

static void test_shifted_labels(void) {
    run_case("shifts of integers",
             "%0 = input() {name=\"#9\"} : i32[batch=3, seq=8]\n"
             "%1 = shift(%0) {value=-1, axis=seq, by=1} : i32[batch=3, seq=8]\n"
             "%2 = shift(%0) {value=-1, axis=seq, by=-4} : i32[batch=3, seq=8]\n"
             "%3 = input() {name=\"#9\"} : i32[batch=3, seq=8, model=4]\n"
             "%4 = shift(%3) {value=7, axis=seq, by=-2} : i32[batch=3, seq=8, model=4]\n",
             0);
}

static void test_const(void) {
    run_case("label_share", "%0 = label_share() {value=3} : f32[]\n", 0);
    run_case("const", "%0 = const() {value=0.375} : f32[]\n", 0);
}

/* Products become one command each; the layouts are the CPU's. */
static void test_matmul(void) {
    CudaCase c = {.tolerance = 1e-6};
    c.nodes = "%0 = input() {name=\"\"} : f32[batch=2, seq=3, model=5]\n"
              "%1 = input() {name=\"\"} : f32[model=5, ffn=7]\n"
              "%2 = matmul(%0, %1) {over=[model]} : f32[batch=2, seq=3, ffn=7]\n"
              "%3 = matmul(%2, %1) {over=[ffn]} : f32[batch=2, seq=3, model=5]\n"
              "%4 = matmul(%0, %2) {over=[batch, seq]} : f32[model=5, ffn=7]\n"
              "%5 = matmul(%0, %2, %1) {over=[batch, seq]} : f32[model=5, ffn=7]\n"
              "%6 = input() {name=\"\"} : f32[b=3, m=4, k=5]\n"
              "%7 = input() {name=\"\"} : f32[b=3, n=2, k=5]\n"
              "%8 = matmul(%6, %7) {over=[k]} : f32[b=3, m=4, n=2]\n"
              "%9 = input() {name=\"\"} : bf16[m=67, k=33]\n"
              "%10 = input() {name=\"\"} : bf16[k=33, n=35]\n"
              "%11 = input() {name=\"\"} : f32[m=67, n=35]\n"
              "%12 = matmul(%9, %10) {over=[k]} : bf16[m=67, n=35]\n"
              "%13 = matmul(%9, %10) {over=[k], dtype=\"f32\"} : f32[m=67, n=35]\n"
              "%14 = matmul(%9, %10, %11) {over=[k], dtype=\"f32\"} : f32[m=67, n=35]\n"
              "%15 = input() {name=\"\"} : f16[m=67, k=33]\n"
              "%16 = input() {name=\"\"} : f16[k=33, n=35]\n"
              "%17 = matmul(%15, %16) {over=[k]} : f16[m=67, n=35]\n"
              "%18 = input() {name=\"\"} : f32[m=67, n=35]\n"
              "%19 = matmul(%15, %16, %18) {over=[k], dtype=\"f32\"} : f32[m=67, n=35]\n";
    check_begin("matmul");
    cuda_check(&c);
    check_end();
}

int main(void) {
    test_division();
    if (cuda_check_missing()) return check_report();
    static const char *const TYPES[] = {"f32", "bf16", "f16"};
    for (int type = 0; type < 3; type++) {
        test_transposes(TYPES[type]);
        test_sums(TYPES[type]);
        test_add_n(TYPES[type]);
        test_parts(TYPES[type]);
    }
    check_many_operands(999, "");
    check_many_operands(500, "a=100");
    check_many_operands(496, "a=3");
    test_shifted_labels();
    test_const();
    test_matmul();
    return check_report();
}
