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

#endif
