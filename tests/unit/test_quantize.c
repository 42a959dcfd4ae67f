/* fp8 number by number, and which blocks share a scale.
 *
 * Would catch: a rounding that is not to the nearest even, a subnormal lost, a scale one too large
 * or too small, what is not finite made finite or spread over its block, a run of axes cut
 * otherwise than its sizes say, operands that are not what they should be taken for it.
 */
#include "runtime/cpu/quantize.h"
#include "tests/unit/check.h"

#include <math.h>
#include <string.h>

static const BlockLayout ROW = {1, SCALE_BLOCK, 1, SCALE_BLOCK, 1, 1, false, false};

/* Every number from its definition: a sign, 4 bits of exponent, 3 of fraction. */
static double defined(int code) {
    int exponent = code >> 3 & 15, fraction = code & 7;
    double size = exponent ? ldexp(8 + fraction, exponent - 10) : ldexp(fraction, -9);
    return code & 0x80 ? -size : size;
}

static void check_numbers(void) {
    check_begin("every number of fp8 comes back as it is");
    for (int code = 0; code < 256; code++) {
        bool nan = (code & 0x7f) == 0x7f;
        double got = (double)fp8_widen((uint8_t)code);
        CHECK(nan ? isnan(got) : got == defined(code), "code %d is %g", code, got);
    }
    float x[SCALE_BLOCK] = {448}; /* the scale is 1 */
    uint8_t values[SCALE_BLOCK];
    float scale;
    for (int sign = 0; sign < 2; sign++) {
        for (int code = 0; code < 0x7f; code++) {
            x[1 + code] = (float)defined(code | sign << 7);
        }
        quantize(&ROW, DTYPE_F32, x, values, &scale);
        CHECK(scale == 1, "the scale is %g", (double)scale);
        for (int code = 0; code < 0x7f; code++) {
            CHECK(values[1 + code] == (code | sign << 7), "%g became code %d", (double)x[1 + code],
                  values[1 + code]);
        }
    }
    check_end();
    check_begin("what lies between two goes to the nearest, a half to the even one");
    for (int code = 0; code + 1 < 0x7f; code++) {
        double below = defined(code), above = defined(code + 1), half = (below + above) / 2;
        x[1] = (float)half;
        x[2] = nextafterf((float)half, 0);
        x[3] = nextafterf((float)half, 1000);
        quantize(&ROW, DTYPE_F32, x, values, &scale);
        CHECK(values[1] == (code & 1 ? code + 1 : code), "%g became code %d", half, values[1]);
        CHECK(values[2] == code && values[3] == code + 1, "near %g: codes %d and %d", half,
              values[2], values[3]);
    }
    check_end();
}

/* The least power of two of which the largest number is at most 448 times; what would leave bf16's
 * normal numbers has the least scale of all. */
static void check_scales(void) {
    float x[SCALE_BLOCK] = {0}, scale;
    uint8_t values[SCALE_BLOCK];
    uint16_t wide[SCALE_BLOCK];
    check_begin("scales: the least that fit, and exact in bf16");
    for (int exponent = -140; exponent < 128; exponent++) {
        static const double SIZES[] = {1, 1.5, 1.75, 1.7578125, 1.9921875};
        for (int i = 0; i < 5; i++) {
            x[5] = -(float)ldexp(SIZES[i], exponent);
            int power = exponent - 8 + (SIZES[i] > 1.75);
            if (power < LEAST_SCALE_EXPONENT) power = LEAST_SCALE_EXPONENT;
            quantize(&ROW, DTYPE_F32, x, values, &scale);
            dequantize(&ROW, values, &scale, wide);
            if (x[5] != 0)
                CHECK((double)scale == ldexp(1, power), "%g: %g", (double)x[5], (double)scale);
            uint32_t bits = (uint32_t)wide[5] << 16;
            float back;
            memcpy(&back, &bits, sizeof(back));
            CHECK(back == fp8_widen(values[5]) * scale, "%g came back as %g", (double)x[5],
                  (double)back);
        }
    }
    check_end();
    check_begin("what is not finite stays so, alone; zeros have scale 0");
    for (int i = 0; i < SCALE_BLOCK; i++) x[i] = 7;
    x[3] = INFINITY, x[4] = -INFINITY, x[5] = NAN;
    quantize(&ROW, DTYPE_F32, x, values, &scale);
    CHECK(scale == 0x1p-6f, "the scale is %g", (double)scale);
    for (int i = 0; i < SCALE_BLOCK; i++) {
        float back = fp8_widen(values[i]) * scale;
        CHECK(i >= 3 && i <= 5 ? isnan(back) : back == 7, "number %d is %g", i, (double)back);
    }
    memset(x, 0, sizeof(x));
    quantize(&ROW, DTYPE_F32, x, values, &scale);
    CHECK(scale == 0 && values[0] == 0 && values[SCALE_BLOCK - 1] == 0, "zeros: %g", (double)scale);
    check_end();
}

/* Which sizes hold blocks, along the axes 1 and 2 of [a, b, c, d]. */
static void check_runs(void) {
    static const struct {
        int64_t b, c, of_b, of_c; /* 0: no blocks */
    } RUNS[] = {{3, 128, 1, 128}, {4, 64, 2, 64}, {2, 64, 2, 64},  {256, 1, 128, 1},
                {5, 64, 0, 0},    {2, 96, 0, 0},  {8, 16, 8, 16},  {1, 4096, 1, 128},
                {7, 384, 1, 128}, {1, 64, 0, 0},  {128, 2, 64, 2}, {12, 80, 0, 0}};
    for (size_t i = 0; i < sizeof(RUNS) / sizeof(RUNS[0]); i++) {
        Type type = {.rank = 4, .axes = {0, 1, 2, 3}, .dims = {3, RUNS[i].b, RUNS[i].c, 5}};
        int64_t factors[MAX_RANK] = {1, 1, 1, 1, 1, 1};
        BlockLayout layout;
        char name[64];
        snprintf(name, sizeof(name), "blocks over axes of %d and %d", (int)RUNS[i].b,
                 (int)RUNS[i].c);
        check_begin(name);
        bool holds = block_run(&type, (int[]){1, 2}, 2, factors);
        CHECK(holds == (RUNS[i].of_b > 0), "%s", holds ? "has some" : "has none");
        if (holds) {
            Type scales = type;
            for (int k = 0; k < 4; k++) scales.dims[k] /= factors[k];
            CHECK(factors[1] == RUNS[i].of_b && factors[2] == RUNS[i].of_c, "%d x %d",
                  (int)factors[1], (int)factors[2]);
            CHECK(block_layout(&type, &scales, &type, &layout), "cannot be read");
            CHECK(layout.rows == 3 * RUNS[i].b * RUNS[i].c && layout.columns == 5 &&
                      layout.block_rows == SCALE_BLOCK && layout.block_columns == 1,
                  "%d x %d", (int)layout.rows, (int)layout.columns);
        }
        check_end();
    }
}

/* Graphs in text form that say otherwise than the op has it. */
static void check_refusals(void) {
    static const struct {
        const char *nodes, *message;
    } REFUSED[] = {
        {"%1:2 = quantize(%0) {over=[b]} : fp8[a=128, b=96], f32[a=128, b=1]\n",
         "quantize: the axes in 'over' do not hold whole blocks of 128 from the innermost on"},
        {"%1:2 = quantize(%0) {over=[a], beside=[b]} : fp8[a=128, b=96], f32[a=1, b=1]\n",
         "quantize: the axes in 'beside' do not hold whole blocks of 128 from the innermost on"},
        {"%1:2 = quantize(%0) {over=[a]} : fp8[a=128, b=96], f32[a=2, b=96]\n",
         "the types stated are not the ones that the op gives"},
        {"%1 = dequantize(%0, %0) : bf16[a=128, b=96]\n",
         "dequantize: takes fp8 and the f32 scales of its blocks of 128, as quantize gives them"},
        {"%1:2 = quantize(%0) {over=[a]} : fp8[a=128, b=96], f32[a=1, b=96]\n"
         "%2:2 = quantize(%1) {over=[a]} : fp8[a=128, b=96], f32[a=1, b=96]\n",
         "quantize: the operand is fp8; it must be f32, bf16 or f16"},
        {"%1:2 = quantize(%0) {over=[a]} : fp8[a=128, b=96], f32[a=1, b=96]\n"
         "%2 = add(%1, %1) : fp8[a=128, b=96]\n",
         "add: operand 1 is fp8"},
    };
    for (size_t i = 0; i < sizeof(REFUSED) / sizeof(REFUSED[0]); i++) {
        Arena *arena = arena_create();
        Diag *diag = diag_create();
        int line = 1;
        const char *text = arena_printf(arena,
                                        "graph \"g\" mesh(t=1, d=1, p=1) {\nforward:\n"
                                        "%%0 = param() {name=\"x\", init=\"zeros\", decay=1} : "
                                        "f32[a=128, b=96]\n%s}\n",
                                        REFUSED[i].nodes);
        check_begin(REFUSED[i].message);
        const Graph *graph = graph_parse(arena, "g", &text, &line, diag);
        CHECK(!graph || !graph_verify(graph, diag), "taken");
        CHECK(strstr(diag_text(diag), REFUSED[i].message), "it says: %s", diag_text(diag));
        check_end();
        diag_destroy(diag);
        arena_destroy(arena);
    }
}

int main(void) {
    check_numbers();
    check_scales();
    check_runs();
    check_refusals();
    return check_report();
}
