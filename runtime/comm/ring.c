#define _GNU_SOURCE /* memfd_create, seals */
#include "runtime/comm/ring.h"

#include "ir/base/diag.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL /* in headers since glibc 2.38 */
#define MFD_NOEXEC_SEAL 0x0008U
#endif

enum {
    HEAD_BYTES = 4096,       /* of both rings' positions */
    PUBLISH_BYTES = 1 << 15, /* told to the other side at a time: it copies while this one does */
    MOVE_BYTES = 1 << 19,    /* and before it is woken */
    SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL
};
_Static_assert(2 * sizeof(RingShared) <= HEAD_BYTES, "both rings' positions");

static size_t memory_bytes(size_t ring) {
    return HEAD_BYTES + 2 * ring;
}

size_t ring_pair_bytes(const RingPair *pair) {
    return pair->memory ? memory_bytes((size_t)pair->out.size) : 0;
}

/* --- the memory --- */

static bool explain(char *why, const char *what) {
    snprintf(why, RING_WHY_BYTES, "%s: %s", what, strerror(errno));
    return false;
}

static bool map(int descriptor, size_t size, bool is_maker, RingPair *out, char *why) {
    char *memory = mmap(NULL, memory_bytes(size), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                        descriptor, 0);
    *out = (RingPair){0};
    if (memory == MAP_FAILED) return explain(why, "mmap");
    RingShared *shared = (RingShared *)(void *)memory;
    unsigned char *bytes = (unsigned char *)memory + HEAD_BYTES;
    const size_t first = is_maker ? 0 : 1;
    out->memory = memory;
    out->out = (Ring){&shared[first], bytes + first * size, size, 0, true};
    out->in = (Ring){&shared[1 - first], bytes + (1 - first) * size, size, 0, false};
    return true;
}

static bool is_size(size_t size) {
    return size >= RING_LEAST_BYTES && size <= RING_MOST_BYTES && (size & (size - 1)) == 0;
}

/* All of it is taken at once: later there is nobody to tell that there is none. */
int ring_pair_create(size_t size, RingPair *out, char why[RING_WHY_BYTES]) {
    *out = (RingPair){0};
    if (!is_size(size)) BUG("rings of %zu bytes", size);
    const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    /* Some systems refuse memory that could be executed; kernels before 6.3 know no such flag. */
    int descriptor = memfd_create("perilune-messages", flags | MFD_NOEXEC_SEAL);
    if (descriptor < 0 && errno == EINVAL) descriptor = memfd_create("perilune-messages", flags);
    if (descriptor < 0) {
        explain(why, "memfd_create");
        return -1;
    }
    bool fine =
        fallocate(descriptor, 0, 0, (off_t)memory_bytes(size)) == 0 || explain(why, "fallocate");
    fine = fine && (fcntl(descriptor, F_ADD_SEALS, SEALS) == 0 || explain(why, "sealing"));
    if (fine && map(descriptor, size, true, out, why)) return descriptor;
    close(descriptor);
    return -1;
}

bool ring_pair_open(int descriptor, RingPair *out, char why[RING_WHY_BYTES]) {
    struct stat facts;
    *out = (RingPair){0};
    if (fstat(descriptor, &facts) != 0) return explain(why, "fstat");
    const int seals = fcntl(descriptor, F_GET_SEALS);
    const bool fits = S_ISREG(facts.st_mode) && facts.st_size > HEAD_BYTES &&
                      facts.st_size <= (off_t)memory_bytes(RING_MOST_BYTES);
    const size_t size = fits ? ((size_t)facts.st_size - HEAD_BYTES) / 2 : 0;
    if (!is_size(size) || (size_t)facts.st_size != memory_bytes(size) || seals < 0 ||
        (seals & F_SEAL_SHRINK) == 0) {
        snprintf(why, RING_WHY_BYTES, "what was handed over is no such memory");
        return false;
    }
    return map(descriptor, size, false, out, why);
}

void ring_pair_close(RingPair *pair) {
    if (pair->memory) munmap(pair->memory, ring_pair_bytes(pair));
    *pair = (RingPair){0};
}

/* --- moving --- */

/* Bytes that this side may move; false: the other side's position cannot be. */
static bool count_movable(const Ring *ring, size_t *out_bytes) {
    const RingShared *shared = ring->shared;
    uint64_t held = ring->writes
                        ? ring->at - atomic_load_explicit(&shared->read, memory_order_acquire)
                        : atomic_load_explicit(&shared->written, memory_order_acquire) - ring->at;
    *out_bytes = (size_t)(ring->writes ? ring->size - held : held);
    return held <= ring->size;
}

static void publish(Ring *ring) {
    _Atomic uint64_t *position = ring->writes ? &ring->shared->written : &ring->shared->read;
    atomic_store_explicit(position, ring->at, memory_order_release);
}

static void copy_piece(Ring *ring, char *piece, size_t bytes) {
    while (bytes > 0) {
        const size_t within = (size_t)(ring->at & (ring->size - 1));
        size_t n = bytes < ring->size - within ? bytes : (size_t)ring->size - within;
        n = n < PUBLISH_BYTES ? n : PUBLISH_BYTES;
        if (ring->writes)
            memcpy(ring->bytes + within, piece, n);
        else
            memcpy(piece, ring->bytes + within, n);
        ring->at += n;
        publish(ring);
        piece += n;
        bytes -= n;
    }
}

RingResult ring_move(Ring *ring, const struct iovec *pieces, int n, size_t *out_bytes,
                     bool *out_wakes) {
    size_t left;
    *out_bytes = 0;
    *out_wakes = false;
    if (!count_movable(ring, &left)) return RING_BROKEN;
    left = left < MOVE_BYTES ? left : MOVE_BYTES;
    for (int i = 0; i < n && left > 0; i++) {
        const size_t bytes = pieces[i].iov_len < left ? pieces[i].iov_len : left;
        copy_piece(ring, pieces[i].iov_base, bytes);
        *out_bytes += bytes;
        left -= bytes;
    }
    if (*out_bytes == 0) return RING_WAIT;
    /* With ring_sleeps: the position before the flag here, the flag before the position there. */
    atomic_thread_fence(memory_order_seq_cst);
    _Atomic uint32_t *sleeps =
        ring->writes ? &ring->shared->reader_sleeps : &ring->shared->writer_sleeps;
    *out_wakes = atomic_load_explicit(sleeps, memory_order_relaxed) != 0 &&
                 atomic_exchange_explicit(sleeps, 0, memory_order_relaxed) != 0;
    return RING_MOVED;
}

bool ring_sleeps(Ring *ring) {
    size_t movable;
    _Atomic uint32_t *sleeps =
        ring->writes ? &ring->shared->writer_sleeps : &ring->shared->reader_sleeps;
    atomic_store_explicit(sleeps, 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
    if (count_movable(ring, &movable) && movable == 0) return true;
    atomic_store_explicit(sleeps, 0, memory_order_relaxed);
    return false;
}
