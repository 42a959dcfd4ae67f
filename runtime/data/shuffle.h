/* An order of n things for each epoch, without memory: a Feistel network over their numbers with
 * cycle walking (Black & Rogaway 2002, "Ciphers with arbitrary finite domains"). */
#ifndef RUNTIME_DATA_SHUFFLE_H
#define RUNTIME_DATA_SHUFFLE_H

#include <stdint.h>

/* Which of n > 0 is number `index` >= 0 of an endless sequence: each epoch has all of them once, in
 * an order that depends on seed and epoch only. */
int64_t shuffle_pick(int64_t n, uint64_t seed, int64_t index);

#endif
