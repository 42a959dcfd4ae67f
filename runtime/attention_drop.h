/* Dropout of attention's probabilities (Vaswani et al. 2017, section 5.4). Whether one is dropped
 * follows from seed, step, stream and where it lies in the whole, so that a mask is never stored
 * and is the same on every layout, in the gradient, and computed again. For host and device.
 *
 * Row r, its number in the lse of the whole batch [batch, seq, kv_heads, group], and eight of its
 * keys share a block of Philox (runtime/cpu/philox.h), of the stream's
 *     r n + key / 32 * 4 + key / 2 % 4,   n = 4 ceil(keys / 32) of a row,
 * in which a key has 16 bits: of word key / 8 % 4 half key % 2. So the lane of a tensor core that
 * has keys 2 t and 2 t + 1 of each eight uses all of a block. A probability whose bits are less
 * than `threshold` is dropped; any other is times `factor`: in the mean nothing changes.
 */
#ifndef RUNTIME_ATTENTION_DROP_H
#define RUNTIME_ATTENTION_DROP_H

#include <stdint.h>

enum { ATTENTION_DROP_KEYS = 32, ATTENTION_DROP_BLOCKS = 4 }; /* whose blocks come together */

typedef struct AttentionDrop {
    uint64_t first; /* block of the rank's first row and the first key; and from there on to */
    uint64_t batch, position, head,
        member; /* the next of these: of batch rows, .. a group's heads */
    uint32_t stream;
    uint32_t threshold; /* of 2^16; 0: nothing is dropped */
    float factor;       /* 2^16 / (2^16 - threshold) */
} AttentionDrop;

#endif
