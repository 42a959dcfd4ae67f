/* What elementwise.c (preparation) and elementwise_tile.c (execution) agree on. */
#ifndef RUNTIME_CPU_ELEMENTWISE_TILE_H
#define RUNTIME_CPU_ELEMENTWISE_TILE_H

/* The tile buffer of one thread: 32 KiB, which leaves L1 room for operands read in place. */
#define TILE_BUFFER 8192
#define TILE_MAX    2048

/* Kinds of steps. */
enum { TILE_COMPUTE, TILE_LOAD, TILE_STORE };

/* Places of a register, besides slots 0..: -1 - i is input i in place. */
#define TILE_OUT_PLACE 1000 /* + i: output i in place */
#define TILE_UNPLACED  INT16_MAX

#endif
