/* Fused elementwise programs, tile by tile in L1.
 *
 * A program runs over an iteration space of up to 8 dimensions. Registers 0 .. n_in - 1 are the
 * inputs, each with a stride per dimension in elements (0: broadcast); instructions write further
 * registers, each once and before it is read; outputs are registers stored contiguously over the
 * space. Everything that can be decided is decided once, by elementwise_prepare; elementwise_run
 * only replays. Contiguous operands are read and written in place, so a program of one instruction
 * moves each byte once.
 *
 * Operands are f32, bf16, f16 or i32 (read as f32), outputs f32, bf16 or f16, registers f32: what
 * is stored in 16 bits is rounded then, and nothing else is, whatever casts the program has.
 *
 * An output may be exactly an input's memory when that input is contiguous over the space and of
 * its dtype (in-place update); any other overlap is an error of the caller. Results do not depend
 * on the number of threads.
 */
#ifndef RUNTIME_CPU_ELEMENTWISE_H
#define RUNTIME_CPU_ELEMENTWISE_H

#include "ir/type.h"
#include "runtime/cpu/philox.h"

#include <stdbool.h>
#include <stdint.h>

#define ELEMENTWISE_MAX_DIMS      8
#define ELEMENTWISE_MAX_IN        8
#define ELEMENTWISE_MAX_OUT       5
#define ELEMENTWISE_MAX_INSTR     32
#define ELEMENTWISE_MAX_REGISTERS (ELEMENTWISE_MAX_IN + ELEMENTWISE_MAX_INSTR)

/* X(NAME, name, number of operands, value of operands x, y, z and immediate imm).
 * The gradients take the forward's operands, then dy. gelu is the tanh approximation, gelu_erf the
 * exact one. maximum hands NaN on; its gradient (of x, given x, y, dy) is halved where x = y.
 * const is the immediate. softplus is log(1 + exp(x)). sign of 0 is 0 and of NaN NaN; round takes
 * halves to the even number. dropout, imm = p: keeps x / (1 - p) where the element's uniform is >=
 * p, else 0; while training.
 */
#define ELEMENTWISE_OPS(X)                                                                         \
    X(CONST, const, 0, imm)                                                                        \
    X(ADD, add, 2, x + y)                                                                          \
    X(SUB, sub, 2, x - y)                                                                          \
    X(MUL, mul, 2, x *y)                                                                           \
    X(DIV, div, 2, x / y)                                                                          \
    X(NEG, neg, 1, -x)                                                                             \
    X(SCALE, scale, 1, x *imm)                                                                     \
    X(OFFSET, offset, 1, x + imm)                                                                  \
    X(COPY, copy, 1, x)                                                                            \
    X(SQUARE, square, 1, x *x)                                                                     \
    X(SQRT, sqrt, 1, sqrtf(x))                                                                     \
    X(RSQRT, rsqrt, 1, 1.0f / sqrtf(x))                                                            \
    X(RECIPROCAL, reciprocal, 1, 1.0f / x)                                                         \
    X(EXP, exp, 1, vmath_exp(x))                                                                   \
    X(LOG, log, 1, vmath_log(x))                                                                   \
    X(TANH, tanh, 1, vmath_tanh(x))                                                                \
    X(SIGMOID, sigmoid, 1, vmath_sigmoid(x))                                                       \
    X(SOFTPLUS, softplus, 1, vmath_softplus(x))                                                    \
    X(GELU, gelu, 1, vmath_gelu(x))                                                                \
    X(GELU_GRAD, gelu_grad, 2, vmath_gelu_grad(x) * y)                                             \
    X(GELU_ERF, gelu_erf, 1, vmath_gelu_erf(x))                                                    \
    X(GELU_ERF_GRAD, gelu_erf_grad, 2, vmath_gelu_erf_grad(x) * y)                                 \
    X(SILU, silu, 1, vmath_silu(x))                                                                \
    X(SILU_GRAD, silu_grad, 2, vmath_silu_grad(x) * y)                                             \
    X(RELU, relu, 1, x < 0.0f ? 0.0f : x)                                                          \
    X(RELU_GRAD, relu_grad, 2, x > 0.0f ? y : 0.0f)                                                \
    X(MAXIMUM, maximum, 2, vmath_maximum(x, y))                                                    \
    X(MAXIMUM_GRAD, maximum_grad, 3, z *vmath_maximum_slope(x, y))                                 \
    X(MINIMUM, minimum, 2, -vmath_maximum(-x, -y))                                                 \
    X(ABS, abs, 1, fabsf(x))                                                                       \
    X(SIGN, sign, 1, x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x)                                       \
    X(ROUND, round, 1, rintf(x))                                                                   \
    X(LESS, less, 2, x < y ? 1.0f : 0.0f)                                                          \
    X(EQUAL, equal, 2, x == y ? 1.0f : 0.0f)                                                       \
    X(STOP_GRADIENT, stop_gradient, 1, x)                                                          \
    X(NUMBER, number, 1, x)                                                                        \
    X(DROPOUT, dropout, 1, x)                                                                      \
    X(TO_BF16, to_bf16, 1, x)                                                                      \
    X(TO_UPPER, to_upper, 1, vec_bf16_widen(halves_upper(x)))                                      \
    X(TO_F16, to_f16, 1, x)                                                                        \
    X(TO_F32, to_f32, 1, x)

typedef enum ElementwiseOp {
#define X(NAME, name, n_args, value) EW_##NAME,
    ELEMENTWISE_OPS(X)
#undef X
        N_ELEMENTWISE_OPS
} ElementwiseOp;

extern const char *const ELEMENTWISE_NAMES[N_ELEMENTWISE_OPS];
extern const int ELEMENTWISE_N_ARGS[N_ELEMENTWISE_OPS];

typedef struct ElementwiseInstr {
    ElementwiseOp op;
    int dst;      /* register */
    int arg[3];   /* registers; those past the op's operands are ignored */
    float imm;    /* const, scale, offset, dropout's p */
    uint32_t key; /* dropout's stream */
} ElementwiseInstr;

typedef struct ElementwiseSpec {
    int n_dims;
    int64_t dims[ELEMENTWISE_MAX_DIMS];
    int n_in;
    const void *in[ELEMENTWISE_MAX_IN];
    DType in_dtype[ELEMENTWISE_MAX_IN];
    int64_t in_stride[ELEMENTWISE_MAX_IN][ELEMENTWISE_MAX_DIMS];
    int n_out;
    void *out[ELEMENTWISE_MAX_OUT];
    DType out_dtype[ELEMENTWISE_MAX_OUT];
    int out_register[ELEMENTWISE_MAX_OUT];
    bool
        out_above[ELEMENTWISE_MAX_OUT]; /* bf16, at least 0: rounded up above a threshold of bits */
    int n_instr;
    const ElementwiseInstr *instr;
    /* Dropout only: where dimension d lies in the whole (see philox.h), and the values that change
     * from step to step, read when run. train NULL or *train 0: dropout is the identity. */
    int64_t global_offset[ELEMENTWISE_MAX_DIMS];
    uint64_t global_stride[ELEMENTWISE_MAX_DIMS];
    const uint64_t *seed, *step;
    const int *train;
} ElementwiseSpec;

/* Private to elementwise.c, complete here so that callers can place it in their own memory. It
 * keeps the spec's pointers to data, not the spec. */
typedef struct ElementwiseStep {
    int8_t kind; /* compute, load a tile, store a tile */
    int8_t op;
    int16_t dst, arg[3]; /* registers */
    float imm;
    uint32_t key;
} ElementwiseStep;

typedef struct ElementwiseCall {
    int n_dims, n_in, n_out, n_steps, n_registers;
    int64_t dims[ELEMENTWISE_MAX_DIMS]; /* collapsed */
    int64_t total, inner, tile, tiles_per_row, n_tiles;
    const void *in[ELEMENTWISE_MAX_IN];
    DType in_dtype[ELEMENTWISE_MAX_IN], out_dtype[ELEMENTWISE_MAX_OUT];
    int64_t in_stride[ELEMENTWISE_MAX_IN][ELEMENTWISE_MAX_DIMS];
    void *out[ELEMENTWISE_MAX_OUT];
    bool out_above[ELEMENTWISE_MAX_OUT];
    uint32_t threshold; /* of out_above: set before the call runs, 0 to 65535 */
    int16_t slot[ELEMENTWISE_MAX_REGISTERS]; /* see elementwise_tile.h */
    ElementwiseStep steps[ELEMENTWISE_MAX_INSTR + ELEMENTWISE_MAX_IN + ELEMENTWISE_MAX_OUT];
    PhiloxSpace space;
    const uint64_t *seed, *step;
    const int *train;
} ElementwiseCall;

/* False for a malformed spec; *out_why says what. */
bool elementwise_prepare(const ElementwiseSpec *spec, ElementwiseCall *out_call,
                         const char **out_why);
/* Sets the immediate of instruction `instr` for the runs to come. */
void elementwise_set_immediate(ElementwiseCall *call, int instr, float imm);
void elementwise_run(const ElementwiseCall *call);

#endif
