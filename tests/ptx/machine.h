/* The machine that runs a kernel: a block's warps, their registers, shared memory. Internal to
 * tests/ptx. */
#ifndef TESTS_PTX_MACHINE_H
#define TESTS_PTX_MACHINE_H

#include "tests/ptx/module.h"

#include <string.h>

enum {
    WARP = 32,
    MOST_WARPS = 32,
    MOST_COPIES = 8192,
    MOST_BULKS = 16,
    MOST_TILES = 64,
    MOST_BARRIERS = 16,
    SHADOW_BYTES = 2,
    MOST_POLLS = 10000 /* of a warp, in one block: blocks run one after the other */
};

/* How two bytes of shared memory were written: without padding, to be compared whole. Threads are
 * counted from 1; 0 is none. */
typedef struct Shadow {
    uint16_t writer, pending; /* pending: a copy is under way */
    uint32_t written;         /* the writer's epoch */
    uint32_t handed;          /* the writer's proxy fences before it */
} Shadow;

/* What a warp read last: its epoch in 24 bits, and the lane, or SEVERAL. */
typedef uint32_t LastRead;
enum { SEVERAL = 255 };
static inline LastRead last_read(uint32_t epoch, int lane) {
    return epoch << 8 | (uint32_t)lane;
}
static inline uint32_t last_read_epoch(LastRead read) {
    return read >> 8;
}
static inline int last_read_lane(LastRead read) {
    return (int)(read & 255);
}

typedef struct Copy { /* cp.async */
    uint32_t to;
    uint64_t from;
    int copied_bytes, group, lane;
} Copy;

typedef struct Range {
    uint32_t first, end;
} Range;

/* A cp.async.bulk out of shared memory, of one lane. */
typedef struct Bulk {
    Range reads;
    uint64_t to;
    int group, lane;
    bool adds; /* f32 */
} Bulk;

/* One wgmma.mma_async, of one warp: 16 of its 64 rows. */
typedef struct Tile {
    int d, n_d; /* accumulators, in PtxKernel.lists */
    int a;      /* fragments there, or -1: a_matrix */
    uint64_t a_matrix, b_matrix;
    int n, group, line;
    bool bf16, add, a_by_k, b_by_k;
    Range reads[2]; /* of shared memory: of a, of b */
} Tile;

/* One of the block's: which warps have come, and of those who waits; what they had seen. */
typedef struct Barrier {
    int warps, line;
    uint32_t come, waiting;
    uint32_t seen[MOST_WARPS];
} Barrier;

typedef enum WarpState { WARP_RUNS, WARP_AT_BARRIER, WARP_ENDED } WarpState;

typedef struct Warp {
    WarpState state;
    int number, n_lanes, line;
    uint32_t live;
    int pc[WARP];
    uint64_t (*registers)[WARP];
    uint32_t *defined;  /* by register: lanes */
    uint8_t *under_way; /* by register: 1, a wgmma is to write it; 2, to read it */
    uint32_t *touched;  /* by register: the count of instructions when it was last accessed */
    uint32_t n_done, fenced_at; /* instructions; the last wgmma.fence, 0: none */
    uint32_t epoch;             /* barriers of this warp, from 1 on */
    uint32_t seen[MOST_WARPS];  /* of each warp, the last epoch before what this one does now */
    uint32_t handed[WARP];      /* proxy fences, by lane */
    int copy_group[WARP], n_copies;
    Copy copies[MOST_COPIES];
    int bulk_group[WARP], n_bulks;
    Bulk bulks[MOST_BULKS];
    int n_tiles, tile_group, n_issued;
    int n_polls; /* loads that acquire */
    Tile tiles[MOST_TILES];
} Warp;

typedef struct Machine {
    const PtxLaunch *launch;
    const PtxKernel *kernel;
    unsigned block[3];
    Warp *warps;
    int n_warps;
    unsigned char *shared;
    Shadow *shadow;    /* [shared_bytes / SHADOW_BYTES] */
    uint32_t *readers; /* [the same]: warps that read it since; `reads` has more */
    LastRead *reads;   /* [n_warps][the same] */
    Barrier barriers[MOST_BARRIERS];
    uint32_t shared_bytes;
    bool failed;
} Machine;

/* Ends the launch: what is wrong, at an instruction of a lane (-1: of the warp). */
__attribute__((format(printf, 5, 6))) void
machine_fail(Machine *m, const Warp *w, const Instruction *i, int lane, const char *format, ...);

/* arithmetic.c: out[lane] from a, b, c; false: not known. */
bool ptx_compute(const Instruction *i, const uint64_t *a, const uint64_t *b, const uint64_t *c,
                 uint64_t *out);
float ptx_widen_f16(uint16_t bits);
static inline float ptx_widen(uint16_t bits, bool bf16) {
    const uint32_t wide = (uint32_t)bits << 16;
    float x;
    if (!bf16) return ptx_widen_f16(bits);
    memcpy(&x, &wide, sizeof(x));
    return x;
}

/* memory.c: ld, st, atom, red, cp, fence; false: failed. */
bool memory_access(Machine *m, Warp *w, const Instruction *i, uint32_t mask);
/* Notes an access of a lane; false: failed. */
bool shared_read(Machine *m, Warp *w, const Instruction *i, int lane, uint32_t at, int bytes);
bool shared_write(Machine *m, Warp *w, const Instruction *i, int lane, uint32_t at, int bytes);

/* NULL, or what is wrong about the bytes from `at` to `end`, of shared memory, that tensor cores or
 * copies read for the warp. */
const char *shared_defect(const Machine *m, const Warp *w, uint32_t at, uint32_t end);
/* Of the bytes from `at` to `end`, by a lane, or SEVERAL. */
void note_reads(Machine *m, const Warp *w, uint32_t at, uint32_t end, int lane);

/* barrier.c: a warp's lanes come to a barrier of the block; false: failed. */
bool barrier_come(Machine *m, Warp *w, const Instruction *i, uint32_t mask);
void barriers_begin(Machine *m);
void barriers_report_stuck(Machine *m);
void barriers_check_end(Machine *m);
/* Whether what another thread did in an epoch of its warp comes before what this lane does now. */
static inline bool comes_before(const Warp *w, int lane, uint16_t thread, uint32_t epoch) {
    const int other = thread - 1;
    if (!thread || other == w->number * WARP + lane) return true;
    if (other / WARP == w->number) return epoch < w->epoch;
    return w->seen[other / WARP] >= epoch;
}

/* tensor.c: mma, ldmatrix, stmatrix, wgmma. */
bool tensor_run(Machine *m, Warp *w, const Instruction *i);

/* run.c: an operand of a lane. */
uint64_t warp_special(const Machine *m, const Warp *w, Special which, int lane);
static inline uint64_t warp_operand(const Machine *m, const Warp *w, const Operand *operand,
                                    int lane) {
    switch (operand->kind) {
    case OPERAND_REGISTER: return w->registers[operand->reg][lane] ^ operand->negated;
    case OPERAND_SPECIAL: return warp_special(m, w, (Special)operand->number, lane);
    default: return (uint64_t)operand->number;
    }
}

/* What a register becomes. */
static inline void warp_set(Warp *w, int reg, int lane, uint64_t value) {
    w->registers[reg][lane] = value;
    w->defined[reg] |= 1u << lane;
    w->touched[reg] = w->n_done;
}

#endif
