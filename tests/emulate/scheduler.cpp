/* A block's threads take turns. A thread runs until it waits for its warp or its block, or ends,
 * and then switches to the next of its warp; when all have come, the last one combines their
 * operands and each goes on. Most of a kernel's time here is that, so a warp knows as bits which
 * lanes can run and which have come. A fiber is taken by a thread when it first runs and given back
 * when it ends, so that kernels which never wait use one, and never switch. */
#include "tests/emulate/scheduler.h"

#include "tests/emulate/bulk.h"
#include "tests/emulate/fiber.h"
#include "tests/emulate/wgmma.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WARP = 32, WARPGROUP = 128, MOST_COPIES = 512, MOST_BARRIERS = 16, NO_FIBER = -1 };

struct Copy {
    void *to;
    const void *from;
    int copy_bytes, zero_bytes, group;
};

struct Thread {
    bool ended;
    int fiber; /* while it runs */
    uint32_t mask;
    EmulateSite site;    /* where it waits, or waited last */
    int group, n_copies; /* of cp.async */
    Copy *copies;        /* [MOST_COPIES], made at the first one */
};

struct Warp {
    uint32_t ready;   /* lanes that can run */
    uint32_t waiting; /* lanes that wait for others of this warp */
    uint32_t come;    /* those of them that do so for `mask` at `site`, as the first one said */
    uint32_t mask;
    EmulateSite site;
    void *operands[WARP]; /* of lanes that wait */
};

struct NamedBarrier {
    int threads, n_come;
    uint32_t come[EMULATE_MOST_THREADS / WARP], waiting[EMULATE_MOST_THREADS / WARP];
};

EmulateIndex emulate_thread_index, emulate_block_index, emulate_block_size, emulate_grid_size;

static pthread_mutex_t launching = PTHREAD_MUTEX_INITIALIZER;
static Thread threads[EMULATE_MOST_THREADS];
static Warp warps[EMULATE_MOST_THREADS / WARP];
static Fiber fibers[EMULATE_MOST_THREADS], scheduler;
static int n_fibers, n_idle, idle[EMULATE_MOST_THREADS];
static int n_threads, current, n_ended, n_at_barrier;
static int n_in_group[EMULATE_MOST_THREADS / WARPGROUP];
static NamedBarrier named[MOST_BARRIERS];
static unsigned order, turn;
static EmulateEntry *entry;
static const char *entry_name;
static const void *entry_args;
static void *dynamic_shared;
static bool failed;
static char error_text[512];

static void fiber_main(void);

const char *emulate_error(void) {
    return error_text;
}

void emulate_set_order(unsigned next) {
    order = next;
}

unsigned emulate_order(void) {
    return order;
}

void emulate_report(const char *why) {
    snprintf(error_text, sizeof(error_text), "%s", why);
}

static void set_error(const char *format, ...) {
    va_list args;
    if (failed) return;
    failed = true;
    int length = snprintf(error_text, sizeof(error_text), "kernel %s: ", entry_name);
    va_start(args, format);
    vsnprintf(error_text + length, sizeof(error_text) - (size_t)length, format, args);
    va_end(args);
}

/* One turn of a warp: each lane that can run does, once. */
static struct Turn {
    int warp;
    uint32_t left; /* lanes whose turn is still to come */
    bool backwards;
} in_turn;

/* -1: the turn is over. */
static inline int next_lane(void) {
    uint32_t can = in_turn.left & warps[in_turn.warp].ready;
    if (!can || failed) return -1;
    int lane = in_turn.backwards ? WARP - 1 - __builtin_clz(can) : __builtin_ctz(can);
    /* Those before it are passed, too: who becomes ready now waits for the next turn. */
    in_turn.left &= in_turn.backwards ? (1u << lane) - 1 : ~0u << lane << 1;
    return in_turn.warp * WARP + lane;
}

/* The fiber of a thread that now goes on. */
static inline Fiber *make_current(int t) {
    Thread *thread = &threads[t];
    if (thread->fiber == NO_FIBER) {
        if (n_idle == 0) {
            fiber_create(&fibers[n_fibers], n_fibers, fiber_main);
            idle[n_idle++] = n_fibers++;
        }
        thread->fiber = idle[--n_idle];
    }
    current = t;
    emulate_thread_index.x = (unsigned)t;
    return &fibers[thread->fiber];
}

/* The current thread can go on only when others say so. */
static inline void stop_current(void) {
    warps[current / WARP].ready &= ~(1u << current % WARP);
}

static void yield(void) {
    Fiber *self = &fibers[threads[current].fiber];
    int next = next_lane();
    Fiber *other = next < 0 ? &scheduler : make_current(next);
    if (other != self) fiber_switch(self, other);
}

static void fiber_main(void) {
    for (;;) {
        entry(entry_args);
        threads[current].ended = true;
        stop_current();
        idle[n_idle++] = threads[current].fiber;
        n_ended++;
        yield();
    }
}

void emulate_fail(EmulateSite site, const char *why) {
    set_error("%s in thread %d of block %u,%u,%u at %s:%d: %s", site.what, current,
              emulate_block_index.x, emulate_block_index.y, emulate_block_index.z, site.file,
              site.line, why);
    while (failed) yield(); /* never resumed: the fiber begins anew */
}

static bool same_text(const char *a, const char *b) {
    return strcmp(a, b) == 0;
}

/* Mostly the very same literals. */
static inline bool same_site(const EmulateSite *a, const EmulateSite *b) {
    if (a->line != b->line) return false;
    if (a->file == b->file && a->what == b->what) return true;
    return same_text(a->file, b->file) && same_text(a->what, b->what);
}

/* Lanes wait in several groups, or at different places: looks at each of this one's. */
static bool gather_group(Warp *warp, int first, uint32_t mask, const EmulateSite *site) {
    for (uint32_t left = mask; left; left &= left - 1) {
        int lane = __builtin_ctz(left);
        const Thread *other = &threads[first + lane];
        if (!(warp->waiting >> lane & 1) || other->mask != mask || !same_site(&other->site, site)) {
            return false;
        }
    }
    return true;
}

void emulate_wait_warp(uint32_t mask, void *operand, EmulateCombine *combine, EmulateSite site) {
    int first = current & ~(WARP - 1), n_lanes = n_threads - first, lane = current - first;
    Warp *warp = &warps[first / WARP];
    Thread *self = &threads[current];
    if (!(mask >> lane & 1)) {
        emulate_fail(site, "the thread is not in its own mask");
    }
    if (n_lanes < WARP && mask >> n_lanes) {
        emulate_fail(site, "the mask names a lane beyond the block's end");
    }
    stop_current();
    self->mask = mask;
    self->site = site;
    warp->operands[lane] = operand;
    if (!warp->waiting) {
        warp->come = 0;
        warp->mask = mask;
        warp->site = site;
    }
    warp->waiting |= 1u << lane;
    if (mask == warp->mask && same_site(&warp->site, &site)) warp->come |= 1u << lane;
    /* Mostly all lanes wait together, and are all that wait. */
    bool all_here = warp->come == warp->mask && warp->waiting == mask && mask == warp->mask;
    if (!all_here && ((warp->waiting & mask) != mask || !gather_group(warp, first, mask, &site))) {
        yield();
        return;
    }
    if (combine && mask == ~0u) {
        combine(warp->operands, WARP);
    } else if (combine) {
        void *operands[WARP];
        for (int i = 0; i < WARP; i++) operands[i] = mask >> i & 1 ? warp->operands[i] : nullptr;
        combine(operands, WARP);
    }
    warp->waiting &= ~mask;
    warp->come &= ~mask;
    warp->ready |= mask;
}

/* The warp that begins with thread `first`, or the n lanes that it has. */
static void make_ready(int first, int n) {
    warps[first / WARP].ready |= n < WARP ? (1u << n) - 1 : ~0u;
}

/* The threads first .. first + n - 1 wait for each other; *n_here of them have come. */
static void wait_together(int first, int n, int *n_here, void *operand, EmulateCombine *combine,
                          EmulateSite site) {
    static void *operands[EMULATE_MOST_THREADS];
    stop_current();
    threads[current].site = site;
    operands[current] = operand;
    if (++*n_here < n) {
        yield();
        return;
    }
    for (int t = first; t < first + n; t++) {
        if (!same_site(&threads[t].site, &site)) {
            set_error("block %u,%u,%u: thread %d is at %s of %s:%d and thread %d at %s of %s:%d",
                      emulate_block_index.x, emulate_block_index.y, emulate_block_index.z, t,
                      threads[t].site.what, threads[t].site.file, threads[t].site.line, current,
                      site.what, site.file, site.line);
            while (failed) yield();
        }
    }
    if (combine) combine(operands + first, n);
    for (int t = first; t < first + n; t += WARP) make_ready(t, first + n - t);
    *n_here = 0;
}

void emulate_wait_block(void *operand, EmulateCombine *combine, EmulateSite site) {
    wait_together(0, n_threads, &n_at_barrier, operand, combine, site);
}

void emulate_wait_warpgroup(void *operand, EmulateCombine *combine, EmulateSite site) {
    int group = current / WARPGROUP, first = group * WARPGROUP;
    if (n_threads - first < WARPGROUP) emulate_fail(site, "not four warps");
    wait_together(first, WARPGROUP, &n_in_group[group], operand, combine, site);
}

void emulate_named_barrier(int barrier, int count, bool waits, EmulateSite site) {
    NamedBarrier *b = &named[barrier];
    const int warp = current / WARP;
    const uint32_t lane = 1u << current % WARP;
    if (barrier < 1 || barrier >= MOST_BARRIERS || count % WARP || count > n_threads)
        emulate_fail(site, "no such barrier, or not so many threads");
    if (!b->n_come) *b = NamedBarrier{count, 0, {}, {}};
    if (b->threads != count) emulate_fail(site, "others wait there for another number of threads");
    if (b->come[warp] & lane) emulate_fail(site, "comes twice, and others not at all");
    b->come[warp] |= lane;
    threads[current].site = site;
    if (waits) {
        b->waiting[warp] |= lane;
        stop_current();
    }
    if (++b->n_come < count) {
        if (waits) yield();
        return;
    }
    b->n_come = 0;
    for (int w = 0; w < (n_threads + WARP - 1) / WARP; w++) warps[w].ready |= b->waiting[w];
}

/* That of which some wait for others at the block's end. */
static void check_named_barriers(void) {
    for (int i = 0; i < MOST_BARRIERS && !failed; i++) {
        if (named[i].n_come)
            set_error("block %u,%u,%u ends with %d threads at barrier %d", emulate_block_index.x,
                      emulate_block_index.y, emulate_block_index.z, named[i].n_come, i);
    }
}

static void check_bulk_copies(void) {
    const EmulateSite *left = emulate_bulk_left();
    if (left && !failed)
        set_error("block %u,%u,%u ends with %s of %s:%d under way", emulate_block_index.x,
                  emulate_block_index.y, emulate_block_index.z, left->what, left->file, left->line);
}

void *emulate_dynamic_shared(void) {
    return dynamic_shared;
}

/* What arrives too early in a buffer that is still read is garbage until it is waited for. */
void emulate_copy_async(void *to, const void *from, int copy_bytes, int zero_bytes,
                        EmulateSite site) {
    Thread *self = &threads[current];
    if ((uintptr_t)to % 16 || (copy_bytes && (uintptr_t)from % 16)) {
        emulate_fail(site, "an address is not a multiple of 16");
    }
    if (!self->copies) self->copies = (Copy *)malloc(sizeof(Copy) * MOST_COPIES);
    if (self->n_copies == MOST_COPIES) emulate_fail(site, "too many copies under way");
    self->copies[self->n_copies++] = {to, from, copy_bytes, zero_bytes, self->group};
    memset(to, 0xff, (size_t)(copy_bytes + zero_bytes));
}

void emulate_copy_async_commit(void) {
    threads[current].group++;
}

void emulate_copy_async_wait(int pending) {
    Thread *self = &threads[current];
    int kept = 0;
    for (int i = 0; i < self->n_copies; i++) {
        Copy copy = self->copies[i];
        if (pending >= 0 && copy.group >= self->group - pending) {
            self->copies[kept++] = copy;
            continue;
        }
        char *to = (char *)copy.to;
        if (copy.copy_bytes) memcpy(to, copy.from, (size_t)copy.copy_bytes);
        memset(to + copy.copy_bytes, 0, (size_t)copy.zero_bytes);
    }
    if (kept < self->n_copies) emulate_wgmma_written(current);
    self->n_copies = kept;
}

/* Nobody can go on, and some have not ended. */
static void report_stuck(void) {
    int waiting = -1, other = -1;
    for (int t = 0; t < n_threads && waiting < 0; t++) {
        if (!threads[t].ended) waiting = t;
    }
    for (int t = 0; t < n_threads && other < 0; t++) {
        if (threads[t].ended || !same_site(&threads[t].site, &threads[waiting].site) ||
            threads[t].mask != threads[waiting].mask) {
            other = t;
        }
    }
    const EmulateSite *a = &threads[waiting].site;
    const EmulateSite *b = other < 0 ? a : &threads[other].site;
    bool ended = other >= 0 && threads[other].ended;
    set_error("block %u,%u,%u is stuck: thread %d waits at %s of %s:%d and thread %d %s %s of "
              "%s:%d",
              emulate_block_index.x, emulate_block_index.y, emulate_block_index.z, waiting, a->what,
              a->file, a->line, other, ended ? "has ended, last at" : "at",
              b->what ? b->what : "nothing", b->file ? b->file : "", b->line);
}

/* Mixes the order's number, the block and the turn into one bit. */
static bool runs_backwards(void) {
    if (order < 2) return order == 1;
    unsigned hash = (order * 2654435761u) ^ (emulate_block_index.x * 40503u) ^ turn * 2246822519u;
    return (hash ^ hash >> 15 ^ hash >> 7) & 1;
}

/* Until every lane waits or has ended. */
static bool run_warp(int first) {
    for (bool ran = false;; ran = true) {
        in_turn = {first / WARP, ~0u, runs_backwards()};
        turn++;
        int next = next_lane();
        if (next < 0) return ran;
        fiber_switch(&scheduler, make_current(next));
    }
}

static void run_block(void) {
    int n_warps = (n_threads + WARP - 1) / WARP;
    n_ended = n_at_barrier = 0;
    memset(n_in_group, 0, sizeof(n_in_group));
    for (NamedBarrier &b : named) b.n_come = 0;
    emulate_wgmma_begin(n_threads);
    emulate_bulk_begin();
    for (int t = 0; t < n_threads; t++) {
        Copy *copies = threads[t].copies;
        threads[t] = Thread{};
        threads[t].fiber = NO_FIBER;
        threads[t].copies = copies;
    }
    for (int t = 0; t < n_threads; t += WARP) {
        warps[t / WARP] = Warp{};
        make_ready(t, n_threads - t);
    }
    turn = 0;
    while (n_ended < n_threads && !failed) {
        bool ran = false, backwards = runs_backwards();
        for (int w = 0; w < n_warps && !failed; w++) {
            ran |= run_warp(WARP * (backwards ? n_warps - 1 - w : w));
        }
        if (!ran && !failed) report_stuck();
    }
    check_named_barriers();
    check_bulk_copies();
}

static bool check_launch(const uint32_t grid[3], int block_threads, int shared_bytes) {
    if (block_threads < 1 || block_threads > EMULATE_MOST_THREADS) {
        set_error("%d threads in a block", block_threads);
    } else if (shared_bytes < 0 || shared_bytes > EMULATE_MOST_SHARED_BYTES) {
        set_error("%d bytes of shared memory", shared_bytes);
    } else if (grid[0] < 1 || grid[1] < 1 || grid[2] < 1 || grid[0] > INT32_MAX ||
               grid[1] > UINT16_MAX || grid[2] > UINT16_MAX) {
        set_error("a grid of %u x %u x %u blocks", grid[0], grid[1], grid[2]);
    }
    return !failed;
}

/* Fibers in the middle of a failed kernel begin anew. */
static void drop_fibers(void) {
    n_fibers = n_idle = 0;
}

bool emulate_run(EmulateEntry *run, const char *name, const uint32_t grid[3], int block_threads,
                 int shared_bytes, const void *args) {
    pthread_mutex_lock(&launching);
    failed = false;
    error_text[0] = '\0';
    entry = run;
    entry_name = name;
    entry_args = args;
    n_threads = block_threads;
    if (check_launch(grid, block_threads, shared_bytes)) {
        /* Exactly as large: AddressSanitizer sees what lies beyond. */
        if (posix_memalign(&dynamic_shared, 1024, shared_bytes ? (size_t)shared_bytes : 1)) exit(2);
        emulate_block_size = {(unsigned)block_threads, 1, 1};
        emulate_grid_size = {grid[0], grid[1], grid[2]};
        uint64_t blocks = (uint64_t)grid[0] * grid[1] * grid[2];
        bool descends = order & 1;
        for (uint64_t i = 0; i < blocks && !failed; i++) {
            uint64_t block = descends ? blocks - 1 - i : i;
            emulate_block_index = {(unsigned)(block % grid[0]),
                                   (unsigned)(block / grid[0] % grid[1]),
                                   (unsigned)(block / grid[0] / grid[1])};
            memset(dynamic_shared, 0xff, (size_t)shared_bytes); /* not a number */
            run_block();
        }
        free(dynamic_shared);
    }
    if (failed) drop_fibers();
    bool good = !failed;
    pthread_mutex_unlock(&launching);
    return good;
}
