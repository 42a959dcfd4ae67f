/* What the kernels of probe.cu take. */
#ifndef TESTS_EMULATE_PROBE_H
#define TESTS_EMULATE_PROBE_H

typedef struct ProbeArgs {
    int *ints;
    const float *floats;
    float *out;
    const unsigned short *bf16s;
    int n;
} ProbeArgs;

#endif
