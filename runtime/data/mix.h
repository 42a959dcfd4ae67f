/* The finalizer of SplitMix64 (Steele, Lea & Flood 2014): every input bit moves every output bit.
 */
#ifndef RUNTIME_DATA_MIX_H
#define RUNTIME_DATA_MIX_H

#include <stdint.h>

static inline uint64_t mix_bits(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* The next of SplitMix64's numbers, in [0, 1). */
static inline double mix_draw(uint64_t *state) {
    const uint64_t bits = mix_bits(*state);
    *state += 0x9e3779b97f4a7c15u;
    return (double)(bits >> 11) * 0x1p-53;
}

#endif
