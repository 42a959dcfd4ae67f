/* elementwise.c: every op against its f64 formula, every way an operand can be read, in-place
 * outputs, slot reuse in long programs, dropout, and refused programs. vmath.h on special values.
 */
#include "runtime/cpu/blocks.h"
#include "runtime/cpu/elementwise.h"
#include "runtime/cpu/halves.h"
#include "runtime/cpu/vmath.h"
#include "tests/unit/kernel_check.h"

static double sigmoid64(double x) {
    return 1 / (1 + exp(-x));
}

static double gelu64(double x) {
    return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

static double gelu_grad64(double x) {
    const double a = sqrt(2 / M_PI), t = tanh(a * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * a * (1 + 3 * 0.044715 * x * x);
}

static double gelu_erf_grad64(double x) {
    return 0.5 * (1 + erf(x / sqrt(2))) + x * exp(-x * x / 2) / sqrt(2 * M_PI);
}

static double upper_half(double x) {
    float value = (float)x;
    uint16_t half;
    halves_copy(DTYPE_BF16, &value, &half, 1);
    weights_load(DTYPE_BF16, &half, 0, &value, 1);
    return (double)value;
}

static double apply64(ElementwiseOp op, double x, double y, double z, double imm) {
    switch (op) {
    case EW_ADD: return x + y;
    case EW_SUB: return x - y;
    case EW_MUL: return x * y;
    case EW_DIV: return x / y;
    case EW_NEG: return -x;
    case EW_SCALE: return x * imm;
    case EW_OFFSET: return x + imm;
    case EW_COPY: return x;
    case EW_SQUARE: return x * x;
    case EW_SQRT: return sqrt(x);
    case EW_RSQRT: return 1 / sqrt(x);
    case EW_RECIPROCAL: return 1 / x;
    case EW_EXP: return exp(x);
    case EW_LOG: return log(x);
    case EW_TANH: return tanh(x);
    case EW_SIGMOID: return sigmoid64(x);
    case EW_GELU: return gelu64(x);
    case EW_GELU_GRAD: return gelu_grad64(x) * y;
    case EW_GELU_ERF: return 0.5 * x * (1 + erf(x / sqrt(2)));
    case EW_GELU_ERF_GRAD: return gelu_erf_grad64(x) * y;
    case EW_SOFTPLUS: return fmax(x, 0) + log1p(exp(-fabs(x)));
    case EW_SILU: return x * sigmoid64(x);
    case EW_SILU_GRAD: return y * sigmoid64(x) * (1 + x * (1 - sigmoid64(x)));
    case EW_RELU: return x < 0 ? 0 : x;
    case EW_RELU_GRAD: return x > 0 ? y : 0;
    case EW_MAXIMUM: return x > y ? x : y;
    case EW_MAXIMUM_GRAD: return x > y ? z : x < y ? 0 : z / 2;
    case EW_MINIMUM: return x < y ? x : y;
    case EW_ABS: return fabs(x);
    case EW_SIGN: return (x > 0) - (x < 0);
    case EW_ROUND: return nearbyint(x);
    case EW_LESS: return x < y;
    case EW_EQUAL: return x == y;
    case EW_NUMBER:
    case EW_STOP_GRADIENT:
    case EW_DROPOUT:
    case EW_TO_BF16:
    case EW_TO_F16:
    case EW_TO_F32: return x;
    case EW_TO_UPPER: return upper_half(x);
    case EW_CONST: return 0.37f;
    default: return NAN;
    }
}

static void prepare_or_fail(const ElementwiseSpec *spec, ElementwiseCall *call) {
    const char *why = NULL;
    CHECK(elementwise_prepare(spec, call, &why), "refused: %s", why);
}

static void check_ops(void) {
    enum { N = 5003 };
    float *x = kc_random(N), *y = kc_random(N), *z = kc_random(N), *out = kc_zeros(N);
    double *want = kc_zeros64(N);
    for (int i = 0; i < N; i++) {
        x[i] *= i % 3 ? 4.0f : 12.0f;
        if (i % 50 == 0) y[i] = x[i];
    }
    for (int op = 0; op < N_ELEMENTWISE_OPS; op++) {
        check_begin(ELEMENTWISE_NAMES[op]);
        float *in = kc_copy(x, N);
        const bool positive = op == EW_SQRT || op == EW_RSQRT || op == EW_LOG;
        for (int i = 0; i < N && positive; i++) in[i] = fabsf(in[i]) + 1e-3f;
        const ElementwiseInstr instr = {.op = op, .dst = 3, .arg = {0, 1, 2}, .imm = 0.37f};
        const ElementwiseSpec spec = {.n_dims = 1,
                                      .dims = {N},
                                      .n_in = 3,
                                      .in = {in, y, z},
                                      .in_stride = {{1}, {1}, {1}},
                                      .n_out = 1,
                                      .out = {out},
                                      .out_register = {3},
                                      .n_instr = 1,
                                      .instr = &instr};
        ElementwiseCall call;
        prepare_or_fail(&spec, &call);
        elementwise_run(&call);
        for (int i = 0; i < N; i++)
            want[i] = apply64((ElementwiseOp)op, (double)in[i], (double)y[i], (double)z[i],
                              (double)0.37f);
        /* 2e-6 of max(|value|, 1): 2 ulp of the functions, plus their conditioning at 12. */
        CHECK_NEAR(out, want, N, 1.0, 2e-6, "op %d", op);
        free(in);
    }
    free(x), free(y), free(z), free(out), free(want);
}

/* out = (a + b) * c over dims, with b and c broadcast or strided as given. */
static void check_strides(int n_dims, const int64_t *dims, const int64_t *b_stride,
                          const int64_t *c_stride, bool in_place) {
    const ElementwiseInstr instr[] = {{.op = EW_ADD, .dst = 3, .arg = {0, 1}},
                                      {.op = EW_MUL, .dst = 4, .arg = {3, 2}}};
    int64_t total = 1, b_size = 1, c_size = 1;
    ElementwiseSpec spec = {.n_dims = n_dims, .n_in = 3, .n_out = 2, .n_instr = 2, .instr = instr};
    for (int d = n_dims - 1; d >= 0; d--) {
        spec.dims[d] = dims[d];
        spec.in_stride[0][d] = total;
        spec.in_stride[1][d] = b_stride[d];
        spec.in_stride[2][d] = c_stride[d];
        total *= dims[d];
        b_size += (dims[d] - 1) * b_stride[d];
        c_size += (dims[d] - 1) * c_stride[d];
    }
    float *a = kc_random(total), *b = kc_random(b_size), *c = kc_random(c_size);
    float *sum = in_place ? a : kc_zeros(total), *out = kc_zeros(total);
    double *want_sum = kc_zeros64(total), *want = kc_zeros64(total);
    for (int64_t i = 0; i < total; i++) {
        int64_t rest = i, at_b = 0, at_c = 0;
        for (int d = n_dims - 1; d >= 0; d--) {
            at_b += rest % dims[d] * b_stride[d];
            at_c += rest % dims[d] * c_stride[d];
            rest /= dims[d];
        }
        want_sum[i] = (double)a[i] + (double)b[at_b];
        want[i] = want_sum[i] * (double)c[at_c];
    }
    spec.in[0] = a, spec.in[1] = b, spec.in[2] = c;
    spec.out[0] = sum, spec.out[1] = out;
    spec.out_register[0] = 3, spec.out_register[1] = 4;
    ElementwiseCall call;
    prepare_or_fail(&spec, &call);
    elementwise_run(&call);
    CHECK_NEAR(sum, want_sum, total, 1.0, 1e-6, "%d dims, inner %d", n_dims, (int)dims[n_dims - 1]);
    CHECK_NEAR(out, want, total, 1.0, 1e-6, "%d dims, inner %d", n_dims, (int)dims[n_dims - 1]);
    if (!in_place) free(sum);
    free(a), free(b), free(c), free(out), free(want_sum), free(want);
}

static void check_operands(void) {
    const int64_t rows[] = {37, 700}, cube[] = {5, 6, 33}, line[] = {9001};
    const int64_t bias[] = {0, 1}, column[] = {1, 0}, transposed[] = {1, 37}, scalar[] = {0, 0};
    const int64_t middle[] = {0, 1, 0}, outer[] = {1, 0, 0}, swapped[] = {33, 165, 1};
    const int64_t one[] = {0}, every_third[] = {3}, single[] = {1, 1}, none[] = {0, 4};
    for (int in_place = 0; in_place < 2; in_place++) {
        check_strides(2, rows, bias, column, in_place);
        check_strides(2, rows, transposed, scalar, in_place);
        check_strides(3, cube, middle, outer, in_place);
        check_strides(3, cube, swapped, middle, in_place);
        check_strides(1, line, one, every_third, in_place);
        check_strides(2, single, bias, column, in_place);
        check_strides(2, none, bias, column, in_place);
        check_strides(0, none, bias, column, in_place);
    }
}

/* The output takes the memory of an input that a later instruction still reads. */
static void check_hazard(void) {
    enum { N = 3000 };
    float *a = kc_random(N), *b = kc_zeros(N);
    double *want_a = kc_zeros64(N), *want_b = kc_zeros64(N);
    const ElementwiseInstr instr[] = {{.op = EW_SQUARE, .dst = 1, .arg = {0}},
                                      {.op = EW_ADD, .dst = 2, .arg = {1, 0}}};
    ElementwiseSpec spec = {.n_dims = 1,
                            .dims = {N},
                            .n_in = 1,
                            .in = {a},
                            .in_stride = {{1}},
                            .n_out = 2,
                            .out = {a, b},
                            .out_register = {1, 2},
                            .n_instr = 2,
                            .instr = instr};
    for (int i = 0; i < N; i++) {
        want_a[i] = (double)a[i] * (double)a[i];
        want_b[i] = want_a[i] + (double)a[i];
    }
    ElementwiseCall call;
    prepare_or_fail(&spec, &call);
    elementwise_run(&call);
    CHECK_NEAR(a, want_a, N, 1.0, 1e-6, "%s", "in place");
    CHECK_NEAR(b, want_b, N, 1.0, 1e-6, "%s", "reads the old value");
    /* No instructions: the outputs are two inputs, exchanged. */
    float *old_a = kc_copy(a, N), *old_b = kc_copy(b, N);
    spec = (ElementwiseSpec){.n_dims = 1,
                             .dims = {N},
                             .n_in = 2,
                             .in = {a, b},
                             .in_stride = {{1}, {1}},
                             .n_out = 2,
                             .out = {b, a},
                             .out_register = {0, 1}};
    prepare_or_fail(&spec, &call);
    elementwise_run(&call);
    CHECK(kc_same_bits(a, old_b, N) && kc_same_bits(b, old_a, N), "exchange failed");
    free(a), free(b), free(want_a), free(want_b), free(old_a), free(old_b);
}

/* Random programs of 32 instructions over registers that live long and short. */
static void check_long_programs(void) {
    enum { N = 1500, LENGTH = 32 };
    float *in[3], *out[3] = {kc_zeros(N), kc_zeros(N), kc_zeros(N)};
    for (int i = 0; i < 3; i++) in[i] = kc_random(N);
    for (int trial = 0; trial < 20; trial++) {
        ElementwiseInstr instr[LENGTH];
        double *value[3 + LENGTH];
        for (int r = 0; r < 3; r++) {
            value[r] = kc_zeros64(N);
            for (int i = 0; i < N; i++) value[r][i] = (double)in[r][r == 2 ? i / 50 : i];
        }
        for (int l = 0; l < LENGTH; l++) {
            const ElementwiseOp ops[] = {EW_ADD, EW_SUB, EW_TANH, EW_MUL, EW_MAXIMUM, EW_SCALE};
            const int dst = 3 + l;
            instr[l] = (ElementwiseInstr){
                .op = ops[(int)((kc_uniform() + 1) * 3)], .dst = dst, .imm = 0.5f};
            for (int a = 0; a < 2; a++)
                instr[l].arg[a] = (int)((kc_uniform() + 1) * 0.5f * (float)dst);
            value[dst] = kc_zeros64(N);
            for (int i = 0; i < N; i++)
                value[dst][i] = apply64(instr[l].op, value[instr[l].arg[0]][i],
                                        value[instr[l].arg[1]][i], 0, 0.5);
        }
        const ElementwiseSpec spec = {.n_dims = 2,
                                      .dims = {30, 50},
                                      .n_in = 3,
                                      .in = {in[0], in[1], in[2]},
                                      .in_stride = {{50, 1}, {50, 1}, {1, 0}},
                                      .n_out = 3,
                                      .out = {out[0], out[1], out[2]},
                                      .out_register = {34, 20, 30},
                                      .n_instr = LENGTH,
                                      .instr = instr};
        ElementwiseCall call;
        prepare_or_fail(&spec, &call);
        elementwise_run(&call);
        for (int o = 0; o < 3; o++) {
            double top = 1;
            for (int i = 0; i < N; i++) top = fmax(top, fabs(value[spec.out_register[o]][i]));
            CHECK_NEAR(out[o], value[spec.out_register[o]], N, top, 1e-4, "trial %d", trial);
        }
        for (int r = 0; r < 3 + LENGTH; r++) free(value[r]);
    }
    for (int i = 0; i < 3; i++) free(in[i]), free(out[i]);
}

static void run_dropout(const float *x, float *out, int64_t first_row, int64_t rows,
                        int64_t first_column, int64_t columns, int train) {
    const uint64_t seed = 7, step = 3;
    const ElementwiseInstr instr = {.op = EW_DROPOUT, .dst = 1, .imm = 0.25f, .key = 9};
    const ElementwiseSpec spec = {.n_dims = 2,
                                  .dims = {rows, columns},
                                  .n_in = 1,
                                  .in = {x},
                                  .in_stride = {{columns, 1}},
                                  .n_out = 1,
                                  .out = {out},
                                  .out_register = {1},
                                  .n_instr = 1,
                                  .instr = &instr,
                                  .global_offset = {first_row, first_column},
                                  .global_stride = {1000, 1},
                                  .seed = &seed,
                                  .step = &step,
                                  .train = &train};
    ElementwiseCall call;
    prepare_or_fail(&spec, &call);
    elementwise_run(&call);
}

static void check_dropout(void) {
    enum { ROWS = 40, COLUMNS = 1000, N = ROWS * COLUMNS };
    float *x = kc_zeros(N), *whole = kc_zeros(N), *again = kc_zeros(N), *part = kc_zeros(N);
    for (int i = 0; i < N; i++) x[i] = 1;
    omp_set_num_threads(1);
    run_dropout(x, whole, 0, ROWS, 0, COLUMNS, 1);
    omp_set_num_threads(3);
    run_dropout(x, again, 0, ROWS, 0, COLUMNS, 1);
    omp_set_num_threads(2);
    CHECK(kc_same_bits(whole, again, N), "the mask depends on the number of threads");
    int64_t kept = 0;
    for (int i = 0; i < N; i++) {
        CHECK(whole[i] == 0 || fabsf(whole[i] - 4.0f / 3.0f) < 1e-6f, "value %g", (double)whole[i]);
        kept += whole[i] != 0;
    }
    CHECK(llabs(kept - N * 3 / 4) < 400, "kept %lld of %d", (long long)kept, N); /* 4.6 sigma */
    const int64_t first_row = 3, rows = 20, first_column = 333, columns = 517;
    run_dropout(x, part, first_row, rows, first_column, columns, 1);
    for (int64_t r = 0; r < rows; r++)
        CHECK(kc_same_bits(part + r * columns, whole + (first_row + r) * COLUMNS + first_column,
                           columns),
              "row %d of a shard differs from the whole", (int)r);
    run_dropout(x, part, 0, ROWS, 0, COLUMNS, 0);
    CHECK(kc_same_bits(part, x, N), "not the identity when not training");
    free(x), free(whole), free(again), free(part);
}

static void check_refusals(void) {
    float x[4] = {0};
    const ElementwiseInstr unwritten = {.op = EW_ADD, .dst = 1, .arg = {0, 5}};
    const ElementwiseInstr input = {.op = EW_NEG, .dst = 0, .arg = {0}};
    const ElementwiseInstr unknown = {.op = N_ELEMENTWISE_OPS, .dst = 1};
    const ElementwiseInstr *bad[] = {&unwritten, &input, &unknown};
    ElementwiseCall call;
    const char *why = NULL;
    ElementwiseSpec spec = {.n_dims = 1,
                            .dims = {4},
                            .n_in = 1,
                            .in = {x},
                            .in_stride = {{1}},
                            .n_out = 1,
                            .out = {x},
                            .out_register = {1},
                            .n_instr = 1};
    for (int i = 0; i < 3; i++) {
        spec.instr = bad[i];
        why = NULL;
        CHECK(!elementwise_prepare(&spec, &call, &why) && why, "bad program %d accepted", i);
    }
    spec.n_instr = 0;
    CHECK(!elementwise_prepare(&spec, &call, &why), "an output without a writer accepted");
    spec.n_dims = 9;
    CHECK(!elementwise_prepare(&spec, &call, &why), "nine dimensions accepted");
}

static void check_special_values(void) {
    const float inf = INFINITY;
    CHECK(vmath_exp(inf) == inf && vmath_exp(-inf) == 0 && isnan(vmath_exp(NAN)), "exp");
    CHECK(vmath_exp(88.8f) == inf && vmath_exp(-110) == 0 && vmath_exp(0) == 1, "exp's ends");
    CHECK(vmath_log(inf) == inf && vmath_log(0) == -inf && vmath_log(-0.0f) == -inf, "log");
    CHECK(isnan(vmath_log(-1)) && isnan(vmath_log(-inf)) && isnan(vmath_log(NAN)), "log's NaN");
    CHECK(fabsf(vmath_log(1e-40f) + 92.1034f) < 1e-4f, "log of a denormal");
    CHECK(vmath_tanh(inf) == 1 && vmath_tanh(-inf) == -1 && isnan(vmath_tanh(NAN)), "tanh");
    CHECK(vmath_erf(inf) == 1 && vmath_erf(-inf) == -1 && isnan(vmath_erf(NAN)), "erf");
    CHECK(vmath_sigmoid(-inf) == 0 && vmath_sigmoid(inf) == 1, "sigmoid");
    CHECK(vmath_gelu_grad(inf) == 1 && vmath_gelu_grad(-inf) == 0, "gelu_grad");
    CHECK(vmath_gelu_erf_grad(inf) == 1 && vmath_silu_grad(-1e30f) > -1e-30f, "other gradients");
}

int main(void) {
    check_ops();
    check_begin("operands: broadcast, strided, permuted, empty");
    check_operands();
    check_begin("outputs over inputs that are read later");
    check_hazard();
    check_begin("long programs reuse slots");
    check_long_programs();
    check_begin("dropout: shards draw the whole's mask");
    check_dropout();
    check_begin("malformed programs are refused");
    check_refusals();
    check_begin("vmath at infinities, NaN and the ends of its range");
    check_special_values();
    return check_report();
}
