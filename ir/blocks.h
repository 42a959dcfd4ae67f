/* How frozen weights are kept in 4 or 8 bits: blocks of 64 numbers, each with a scale of its own.
 *
 * A block is 64 numbers that lie one after the other in the whole logical tensor, row-major, the
 * first of them a multiple of 64: so codes and scales are the same in every layout, which has whole
 * blocks on each rank or is refused. In memory it is its codes, then its scale in bf16, 34 or 66
 * bytes; block follows block. (Codes and scales apart would be two values to shard, gather and
 * prove; so they are one.)
 *
 * nf4: the 16 numbers of NormalFloat (Dettmers et al. 2023, arXiv 2305.14314, appendix E; the table
 * is that of bitsandbytes), times the scale, which is the block's largest size;
 * number 2 i is in the lower half of byte i. int8: -127 to 127 times the scale, which is the
 * largest size by 127. The scale is rounded to bf16 before numbers are divided by it: 4.25 bits a
 * weight, where QLoRA's f32 scales, quantised to 8 bits again, are 4.13. That error, 2^-9, is small
 * beside that of the codes, and nothing is widened twice.
 *
 * A code is that of the nearest number; of a block of zeros the scale is 0; below 2^-100 all is
 * zero; with what is not finite in it a block is not-a-number. What is widened to f32 and kept
 * again gives the same bits: a file of f32 numbers is a checkpoint of them.
 */
#ifndef IR_BLOCKS_H
#define IR_BLOCKS_H

enum {
    WEIGHT_BLOCK = 64,
    NF4_BLOCK_BYTES = WEIGHT_BLOCK / 2 + 2,
    INT8_BLOCK_BYTES = WEIGHT_BLOCK + 2,
};

#define NF4_NUMBERS                                                                                \
    {                                                                                              \
        -1.0f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f,                  \
            -0.28444138169288635f, -0.18477343022823334f, -0.09105003625154495f, 0.0f,             \
            0.07958029955625534f, 0.16093020141124725f, 0.24611230194568634f,                      \
            0.33791524171829224f, 0.44070982933044434f, 0.5626170039176941f, 0.7229568362236023f,  \
            1.0f                                                                                   \
    }

#endif
