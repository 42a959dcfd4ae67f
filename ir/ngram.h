/* A hash of a position's last tokens, the number of a row in a table of n-grams (hashed n-gram
 * embeddings: Huang et al. 2025, arXiv 2501.16975): Fowler, Noll and Vo's steps with the final
 * mixing of MurmurHash3, in 32 bits, so that the numbers are those of every backend. Positions that
 * have fewer tokens before them, in their sequence or document, hash those.
 */
#ifndef IR_NGRAM_H
#define IR_NGRAM_H

#include <stdint.h>

#ifdef __CUDACC__
#define NGRAM_FUNCTION static __device__ __forceinline__
#else
#define NGRAM_FUNCTION static inline
#endif

enum { NGRAM_MOST_TOKENS = 16 };

/* Of tokens[position] and what is before it, `by` in all, but none up to `separator` (-1: none is).
 * Less than count. */
NGRAM_FUNCTION int32_t ngram_hash(const int32_t *tokens, int64_t position, int32_t by,
                                  int32_t separator, uint32_t seed, int32_t count) {
    uint32_t hash = 2166136261u ^ (seed * 0x9e3779b9u);
    for (int64_t i = position; i >= 0 && i > position - by; i--) {
        if (i < position && tokens[i] == separator) break;
        hash = (hash ^ ((uint32_t)tokens[i] + 1u)) * 16777619u;
        hash ^= hash >> 15;
    }
    hash = (hash ^ (hash >> 16)) * 0x85ebca6bu;
    hash = (hash ^ (hash >> 13)) * 0xc2b2ae35u;
    return (int32_t)((hash ^ (hash >> 16)) % (uint32_t)count);
}

#endif
