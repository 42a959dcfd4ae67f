/* Two rings of bytes, one each way, in memory that two processes share.
 *
 * The memory has no name, so nothing is left of it however they end; its maker seals its size, so
 * that no access to it can fail. Each ring has one writer and one reader. What the other process
 * writes is not trusted: each side keeps its own position to itself, and of the other's one takes
 * nothing that lies further than a ring away. (The bytes may change while they are read: they are
 * data as those of a socket are, and only copied.)
 *
 * Sleeping is not the ring's: a side that finds nothing to do says so by ring_sleeps, looks once
 * more, and then waits where the other side's wake-up, which ring_move tells it to send, arrives.
 */
#ifndef RUNTIME_COMM_RING_H
#define RUNTIME_COMM_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RING_LEAST_BYTES = 1 << 18, RING_MOST_BYTES = 1 << 22, RING_WHY_BYTES = 96 };

/* In shared memory. */
typedef struct RingShared {
    _Alignas(64) _Atomic uint64_t written; /* bytes so far; the writer's */
    _Alignas(64) _Atomic uint64_t read;    /* the reader's */
    _Alignas(64) _Atomic uint32_t reader_sleeps;
    _Alignas(64) _Atomic uint32_t writer_sleeps;
} RingShared;

/* One side of one ring. */
typedef struct Ring {
    RingShared *shared;
    unsigned char *bytes; /* [size] */
    uint64_t size;        /* a power of two */
    uint64_t at;          /* this side's position; the ring's is only ever written */
    bool writes;
} Ring;

/* What a process has of both. */
typedef struct RingPair {
    void *memory; /* NULL: none */
    Ring out, in;
} RingPair;

typedef enum RingResult { RING_MOVED, RING_WAIT, RING_BROKEN } RingResult;

/* `size`: of each ring, a power of two from the least to the most. The memory's descriptor, to be
 * closed by the caller once it is handed over; -1: `why` says. */
int ring_pair_create(size_t size, RingPair *out, char why[RING_WHY_BYTES]);
/* From what another process handed over. */
bool ring_pair_open(int descriptor, RingPair *out, char why[RING_WHY_BYTES]);
void ring_pair_close(RingPair *pair);
/* Bytes of both. */
size_t ring_pair_bytes(const RingPair *pair);

/* Moves as much of the pieces as there are bytes or room. *out_wakes: the other side sleeps and is
 * to be woken. Broken: the other side wrote a position that cannot be. */
struct iovec;
RingResult ring_move(Ring *ring, const struct iovec *pieces, int n, size_t *out_bytes,
                     bool *out_wakes);
/* From here on the other side wakes this one. False: no need, something can move by now. */
bool ring_sleeps(Ring *ring);

#endif
