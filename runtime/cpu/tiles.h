/* Blocks of a product on a processor's tiles (Intel's AMX): 16 rows of 64 bytes each, of which one
 * instruction multiplies two of bf16 and adds to a third of f32.
 *
 * A block of C is 32 x 32. A's part of it lies in tiles of [16 rows][32 of k], B's in tiles of [16
 * pairs of k][16 columns][2], two of each for every 32 of k, one after the other (tile_pack.h). How
 * sums are made is the instruction's: of 32 products, those of even and of odd k apart, then both
 * and what was there; denormal numbers are zero.
 */
#ifndef RUNTIME_CPU_TILES_H
#define RUNTIME_CPU_TILES_H

#include <stdbool.h>
#include <stdint.h>

enum {
    TILE_BLOCK = 32, /* rows and columns of a block, and its step of k */
    TILE_STEP = 2 * TILE_BLOCK * TILE_BLOCK / 2, /* numbers of A, or of B, for one step */
};

/* Is PERILUNE_AMX=off in the environment? */
bool tiles_unwanted(void);

/* Has this processor tiles for bf16, does the system let programs use them, and was this compiled
 * for them? Asked of the system once. Not where they are unwanted. */
bool tiles_ready(void);

/* For tests: from now on tiles are ready, and plain C takes the instructions' place (true); or what
 * the machine says (false). */
void tiles_imitate(bool imitate);
/* From now on no tiles are ready (true); or what the machine says. */
void tiles_refuse(bool refuse);

/* Around the calling thread's products; nothing else of it may use tiles between. Only where tiles
 * are ready: else the instructions are illegal. */
void tiles_open(void);
void tiles_close(void);

/* One of the sums of products that a block gets: `steps` times TILE_STEP numbers of each. */
typedef struct TileTerm {
    const uint16_t *a, *b;
} TileTerm;

/* c [32][32], rows `stride` floats apart, = or += (`add`) the terms, one after the other. */
void tiles_multiply(int n_terms, const TileTerm *terms, int steps, bool add, float *c,
                    int64_t stride);

#endif
