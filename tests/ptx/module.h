/* A kernel's PTX as parse.c leaves it to run.c. Internal to tests/ptx. */
#ifndef TESTS_PTX_MODULE_H
#define TESTS_PTX_MODULE_H

#include "tests/ptx/ptx.h"

#include <stdint.h>

enum { MOST_OPERANDS = 8 };

/* clang-format off */
#define PTX_OPS(X)                                                                                \
    X(abs) X(add) X(and) X(atom) X(bar) X(bfi) X(bra) X(copysign) X(cp) X(cvt) X(cvta) X(div)     \
    X(ex2) X(fence) X(fma) X(ld) X(ldmatrix) X(lg2) X(mad) X(match) X(max) X(min) X(mma) X(mov)   \
    X(mul) X(neg) X(not) X(or) X(popc) X(prmt) X(rcp) X(red) X(rem) X(ret) X(rsqrt) X(selp)       \
    X(setmaxnreg) X(setp) X(shfl) X(shl) X(shr) X(sqrt) X(st) X(stmatrix) X(sub) X(vote)          \
    X(wgmma) X(xor)
/* clang-format on */

typedef enum PtxOp {
#define X(name) PTX_##name,
    PTX_OPS(X)
#undef X
        N_PTX_OPS
} PtxOp;

/* .u32, .f64, .pred, .bf16x2: kind 'b', 'u', 's', 'f', 'p', or 'n' for bf16. */
typedef struct PtxType {
    char kind;
    uint8_t bits; /* of one */
    bool pair;    /* x2 */
} PtxType;

typedef enum PtxSpace { SPACE_GENERIC, SPACE_GLOBAL, SPACE_SHARED, SPACE_PARAM } PtxSpace;

/* What follows the op between dots, each at most one of its group. */
typedef enum PtxMode {
    MODE_NONE,
    MODE_LO,
    MODE_HI,
    MODE_WIDE, /* mul, mad */
    MODE_IDX,
    MODE_UP,
    MODE_DOWN,
    MODE_BFLY, /* shfl */
    MODE_BALLOT,
    MODE_ANY,
    MODE_ALL, /* vote, match */
    MODE_ASYNC,
    MODE_COMMIT,
    MODE_WAIT,
    MODE_FENCE,
    MODE_MMA_ASYNC, /* cp, wgmma */
} PtxMode;

typedef enum PtxCompare {
    COMPARE_EQ,
    COMPARE_NE,
    COMPARE_LT,
    COMPARE_LE,
    COMPARE_GT,
    COMPARE_GE,
    COMPARE_EQU,
    COMPARE_NEU,
    COMPARE_LTU,
    COMPARE_LEU,
    COMPARE_GTU,
    COMPARE_GEU, /* or unordered */
    COMPARE_NUM,
    COMPARE_NAN
} PtxCompare;

typedef enum OperandKind {
    OPERAND_NONE,
    OPERAND_REGISTER,
    OPERAND_NUMBER,
    OPERAND_LIST,
    OPERAND_MEMORY,
    OPERAND_SPECIAL,
    OPERAND_LABEL
} OperandKind;

typedef enum Special {
    SPECIAL_TID_X,
    SPECIAL_TID_Y,
    SPECIAL_TID_Z,
    SPECIAL_NTID_X,
    SPECIAL_NTID_Y,
    SPECIAL_NTID_Z,
    SPECIAL_CTAID_X,
    SPECIAL_CTAID_Y,
    SPECIAL_CTAID_Z,
    SPECIAL_NCTAID_X,
    SPECIAL_NCTAID_Y,
    SPECIAL_NCTAID_Z,
    SPECIAL_LANEID
} Special;

typedef struct Operand {
    OperandKind kind;
    int reg;    /* REGISTER; MEMORY: the base, or -1; LIST: the first in PtxKernel.lists */
    int second; /* REGISTER: the predicate of a|p, or -1; LIST: how many; MEMORY: 1 where the base
                 * is a parameter of a call */
    int64_t number; /* NUMBER: its bits; MEMORY: what is added; SPECIAL; LABEL: the instruction */
    bool negated;   /* !%p */
} Operand;

typedef struct Instruction {
    uint8_t op, space, mode, compare;
    uint8_t vector; /* 1, 2, 4 */
    char round;     /* 'n', 'z', 'm', 'p', 0 */
    bool to_integer, saturated, approx, ftz, transposed, warp, volatile_access, acquire, release;
    bool least;         /* of atom: min, else add */
    bool arrives;       /* bar.arrive */
    bool bulk, adds;    /* cp.async.bulk, cp.reduce.async.bulk.add */
    PtxType type, from; /* from: cvt's and mma's operands */
    int guard;          /* a predicate register, or -1 */
    bool guard_negated;
    int wgmma_n;
    int n_operands;
    Operand operands[MOST_OPERANDS]; /* results first */
    int line;
} Instruction;

struct PtxKernel {
    const char *name, *path;
    Instruction *code;
    int n_instructions, code_capacity;
    int *lists; /* registers in braces; -1 - n: the number n */
    int n_lists, list_capacity;
    int n_registers;
    int static_shared_bytes, shared_align; /* dynamic shared memory begins after it */
    int param_bytes, max_threads;
    bool uses_wgmma, uses_bulk;
};

static inline int vector_elements(const Instruction *i) {
    return i->vector ? i->vector : 1;
}

extern const char *const PTX_OP_NAMES[N_PTX_OPS];

/* The words of an opcode, `setp.lt.s32`. Reports, returns false. */
bool ptx_decode(const char *word, size_t length, Instruction *out, SourceLoc loc, Diag *diag);

#endif
