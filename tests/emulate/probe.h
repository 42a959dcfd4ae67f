/* What the kernels of probe.cu take. */
#ifndef TESTS_EMULATE_PROBE_H
#define TESTS_EMULATE_PROBE_H

typedef struct ProbeArgs {
    int *ints;
    const float *floats;
    float *out;
    const unsigned short *lows; /* of 16 bits */
    int n;
} ProbeArgs;

/* What wgmma_* does: operands in tiles, b with k's rows or transposed; or a in fragments, or with
 * k's rows. Mistakes. */
enum {
    PROBE_TILES,
    PROBE_TRANSPOSED,
    PROBE_FRAGMENTS,
    PROBE_A_BY_K,
    PROBE_NO_WAIT,
    PROBE_NO_FENCE,
    PROBE_NOT_HANDED_OVER,
    PROBE_TILE_CHANGED,
    PROBE_FRAGMENT_CHANGED,
    PROBE_SUM_CHANGED,
    PROBE_MISALIGNED,
    PROBE_NOT_SWIZZLED,
    PROBE_DIFFERENT,
};

/* What named_barriers does: right, or a mistake. */
enum {
    PROBE_HANDED_ON,
    PROBE_OTHER_COUNT,
    PROBE_TWICE,
    PROBE_LEFT,
    PROBE_STUCK,
    PROBE_TOO_MANY,
};

/* What bulk does: right, or a mistake. */
enum {
    PROBE_BULK,
    PROBE_BULK_CHANGED,
    PROBE_BULK_LEFT,
    PROBE_BULK_MISALIGNED,
};

#endif
