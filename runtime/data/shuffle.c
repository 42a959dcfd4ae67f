#include "runtime/data/shuffle.h"

#include "ir/base/diag.h"
#include "runtime/data/mix.h"

enum { N_FEISTEL_ROUNDS = 8 }; /* more than a balanced network needs: small domains mix slowly */

/* A permutation of 0..n-1. The network permutes the next even power of two, at most 4n numbers;
 * following it until it lands below n again permutes 0..n-1, after fewer than 4 steps on average.
 */
static uint64_t permute(uint64_t x, uint64_t n, uint64_t key) {
    int half_bits = 1;
    while (half_bits < 31 && (uint64_t)1 << (2 * half_bits) < n) half_bits++;
    uint64_t mask = ((uint64_t)1 << half_bits) - 1;
    do {
        uint64_t left = x >> half_bits, right = x & mask;
        for (uint64_t round = 0; round < N_FEISTEL_ROUNDS; round++) {
            uint64_t next = left ^ (mix_bits(mix_bits(key + round) ^ right) & mask);
            left = right;
            right = next;
        }
        x = left << half_bits | right;
    } while (x >= n);
    return x;
}

int64_t shuffle_pick(int64_t n, uint64_t seed, int64_t index) {
    if (index < 0 || n <= 0) BUG("number %lld of %lld", (long long)index, (long long)n);
    uint64_t epoch = (uint64_t)(index / n), place = (uint64_t)(index % n);
    return (int64_t)permute(place, (uint64_t)n, mix_bits(mix_bits(seed) ^ epoch));
}
