#include "tests/emulate/wgmma.h"

#include "tests/emulate/row.h"

#include <math.h>
#include <string.h>

enum { GROUP = 128, ROWS = 64, DEPTH = 16, MOST_N = 192, MOST_UNDER_WAY = 64 };

struct Operation {
    EmulateWgmma what;
    EmulateSite site;
    float before[MOST_N / 2]; /* what the accumulators were; only of the first that has them */
    bool first;
    uint64_t sum; /* over the operands when it was issued */
    int group;
};

/* Apart from what lies between others of a thread: each block begins with all of these anew. */
static Operation queues[EMULATE_MOST_THREADS][MOST_UNDER_WAY];
static struct {
    int n, group; /* of its queue; of operations */
    bool fenced;  /* since the last wait */
    bool written; /* shared memory, not yet for wgmma */
} threads[EMULATE_MOST_THREADS];
static int n_written; /* of them */

/* The address that a descriptor's bits name, plus `offset`, chunks permuted: bits 4 to 6 of an
 * address by its bits 7 to 9. */
static const unsigned char *locate(uint64_t matrix, int offset) {
    const uintptr_t base = (uintptr_t)emulate_dynamic_shared();
    const uintptr_t low = (uintptr_t)(matrix & 0x3fff) << 4;
    uintptr_t at = base + ((low - base) & 0x3ffff) + (uintptr_t)offset;
    return (const unsigned char *)(at ^ (at >> 7 & 7) << 4);
}

static int field(uint64_t matrix, int first_bit) {
    return (int)(matrix >> first_bit & 0x3fff) << 4;
}

/* Where 8 neighbouring elements lie: along k from row `r` on, or, transposed, along n from column
 * `r` on of row `k`. PTX ISA 9.0, 9.7.15.5.1.2: canonical layouts. */
static const unsigned char *locate_k_major(uint64_t matrix, int r, int k) {
    return locate(matrix, r / 8 * field(matrix, 32) + r % 8 * 128 + k / 8 * 16);
}
static const unsigned char *locate_n_major(uint64_t matrix, int r, int k) {
    return locate(matrix, r / 64 * field(matrix, 16) + k / 8 * field(matrix, 32) + k % 8 * 128 +
                              r % 64 / 8 * 16);
}

typedef const unsigned char *Locate(uint64_t matrix, int r, int k);

/* out[r][k] of an operand with `rows` rows, k of 16. */
static void read_matrix(const EmulateWgmma &w, uint64_t matrix, bool n_major, int rows,
                        float (*out)[DEPTH]) {
    for (int outer = 0; outer < (n_major ? rows / 8 : rows); outer++) {
        for (int inner = 0; inner < (n_major ? DEPTH : DEPTH / 8); inner++) {
            uint32_t pairs[4];
            float x[8];
            memcpy(pairs,
                   n_major ? locate_n_major(matrix, outer * 8, inner)
                           : locate_k_major(matrix, outer, inner * 8),
                   sizeof(pairs));
            for (int i = 0; i < 4; i++) w.unpack(pairs[i], x[2 * i], x[2 * i + 1]);
            for (int i = 0; i < 8; i++) {
                if (n_major) {
                    out[outer * 8 + i][inner] = x[i];
                } else {
                    out[outer][inner * 8 + i] = x[i];
                }
            }
        }
    }
}

/* Of what a thread's operation reads: its fragments, and, for one lane of each warp, tiles. */
static uint64_t sum_operands(const EmulateWgmma &w, bool with_tiles) {
    uint64_t sum = 14695981039346656037u;
    auto add = [&sum](const void *from, int words) {
        for (int i = 0; i < words; i++) {
            uint32_t word;
            memcpy(&word, (const unsigned char *)from + 4 * i, 4);
            sum = (sum ^ word) * 1099511628211u;
        }
    };
    if (w.a) add(w.a, 4);
    if (!with_tiles) return sum;
    auto add_matrix = [&add](uint64_t matrix, int rows, bool transposed) {
        for (int r = 0; r < rows; r += transposed ? 8 : 1) {
            for (int k = 0; k < DEPTH; k += transposed ? 1 : 8)
                add(transposed ? locate_n_major(matrix, r, k) : locate_k_major(matrix, r, k), 4);
        }
    };
    if (!w.a) add_matrix(w.a_matrix, ROWS, w.a_transposed);
    add_matrix(w.b_matrix, w.n, w.transposed);
    return sum;
}

static void check_matrix(uint64_t matrix, EmulateSite site) {
    const int bytes = (int)(matrix & 0x3fff) << 4;
    if (matrix >> 62 != 1) emulate_fail(site, "a tile without 128-byte swizzle");
    if (bytes % 32 || bytes & 0x380 || (matrix >> 49 & 7))
        emulate_fail(site, "a tile's start is misaligned");
}

/* Accumulators are taken: their values are kept, and are not to be used. */
static void take(Operation *operation) {
    const EmulateWgmma &w = operation->what;
    memcpy(operation->before, w.d, sizeof(float) * (size_t)w.n / 2);
    operation->first = true;
    for (int i = 0; i < w.n / 2; i++) w.d[i] = NAN;
}

static bool is_taken(const EmulateWgmma &w) {
    for (int i = 0; i < w.n / 2; i++) {
        if (!isnan(w.d[i])) return false;
    }
    return true;
}

void emulate_wgmma(const EmulateWgmma &what, EmulateSite site) {
    auto *self = &threads[emulate_thread_index.x];
    if (!self->fenced) emulate_fail(site, "no wgmma_fence since the last wait");
    if (n_written > 0) emulate_fail(site, "tiles were written and not handed to wgmma");
    if (!what.a) check_matrix(what.a_matrix, site);
    check_matrix(what.b_matrix, site);
    if (self->n == MOST_UNDER_WAY) emulate_fail(site, "too many operations under way");
    Operation *queue = queues[emulate_thread_index.x], *operation = &queue[self->n++];
    *operation = {what,       site, {}, false, sum_operands(what, emulate_thread_index.x % 32 == 0),
                  self->group};
    bool taken = false;
    for (int i = 0; i < self->n - 1; i++) taken |= queue[i].what.d == what.d;
    if (!taken) take(operation);
}

void emulate_wgmma_fence(void) {
    threads[emulate_thread_index.x].fenced = true;
}

void emulate_wgmma_commit(void) {
    threads[emulate_thread_index.x].group++;
}

static void set_written(int thread, bool written) {
    n_written += written - threads[thread].written;
    threads[thread].written = written;
}

void emulate_fence_proxy(void) {
    set_written((int)emulate_thread_index.x, false);
}

void emulate_wgmma_written(int thread) {
    set_written(thread, true);
}

void emulate_wgmma_begin(int n) {
    n_written = 0;
    for (int t = 0; t < n; t++) {
        threads[t].n = threads[t].group = 0;
        threads[t].fenced = threads[t].written = false;
    }
}

static bool same_operation(const Operation &x, const Operation &y) {
    const EmulateWgmma &a = x.what, &b = y.what;
    return x.site.line == y.site.line && a.n == b.n && a.transposed == b.transposed &&
           a.a_transposed == b.a_transposed && a.add == b.add && a.b_matrix == b.b_matrix &&
           !a.a == !b.a && (a.a || a.a_matrix == b.a_matrix);
}

/* Row of accumulator i of a thread of the group, and its column. */
static int row_of(int t, int i) {
    return t / 32 * 16 + t % 32 / 4 + i % 4 / 2 * 8;
}
static int column_of(int t, int i) {
    return i / 4 * 8 + t % 4 * 2 + i % 2;
}

/* The i-th operation of each of a group's threads. */
static void multiply(int first, int i) {
    static float a[ROWS][DEPTH], b[MOST_N][DEPTH];
    alignas(EmulateRow) static float d[ROWS][MOST_N], b_columns[DEPTH][MOST_N];
    const EmulateWgmma &w = queues[first][i].what;
    for (int t = 0; t < GROUP; t++) {
        Operation *operation = &queues[first + t][i];
        const EmulateWgmma &own = operation->what;
        if (operation->first) memcpy(own.d, operation->before, sizeof(float) * (size_t)w.n / 2);
        for (int k = 0; k < w.n / 2; k++) d[row_of(t, k)][column_of(t, k)] = w.add ? own.d[k] : 0;
        for (int k = 0; k < 4 && w.a; k++) {
            float *to = &a[row_of(t, k % 2 * 2)][t % 4 * 2 + k / 2 * 8];
            w.unpack(own.a[k], to[0], to[1]);
        }
    }
    if (!w.a) read_matrix(w, w.a_matrix, w.a_transposed, ROWS, a);
    read_matrix(w, w.b_matrix, w.transposed, w.n, b);
    for (int n = 0; n < w.n; n++) {
        for (int k = 0; k < DEPTH; k++) b_columns[k][n] = b[n][k];
    }
    for (int m = 0; m < ROWS; m++) emulate_add_product(d[m], a[m], b_columns[0], MOST_N, w.n);
    for (int t = 0; t < GROUP; t++) {
        const EmulateWgmma &own = queues[first + t][i].what;
        for (int k = 0; k < w.n / 2; k++) own.d[k] = d[row_of(t, k)][column_of(t, k)];
    }
}

/* The first n operations of a group's threads are done. */
static void finish(void *const *operands, int) {
    const int first = (int)(emulate_thread_index.x & ~(GROUP - 1u)), n = *(const int *)operands[0];
    for (int t = 0; t < GROUP; t++) {
        if (*(const int *)operands[t] != n)
            return emulate_fail(queues[first][0].site, "threads issued different numbers");
        for (int i = 0; i < n; i++) {
            const Operation *own = &queues[first + t][i], *other = &queues[first][i];
            if (!same_operation(*own, *other))
                return emulate_fail(own->site, "threads of a group issued different operations");
            if (own->first && !is_taken(own->what))
                return emulate_fail(own->site, "accumulators changed while it was under way");
            if (sum_operands(own->what, t % 32 == 0) != own->sum)
                return emulate_fail(own->site, "operands changed while it was under way");
        }
    }
    for (int i = 0; i < n; i++) multiply(first, i);
    for (int t = 0; t < GROUP; t++) {
        auto *thread = &threads[first + t];
        Operation *queue = queues[first + t];
        memmove(queue, queue + n, sizeof(Operation) * (size_t)(thread->n - n));
        thread->n -= n;
        for (int i = 0; i < thread->n; i++) {
            bool taken = queue[i].first;
            for (int j = 0; j < i; j++) taken |= queue[j].what.d == queue[i].what.d;
            if (!taken) take(&queue[i]);
        }
    }
}

void emulate_wgmma_wait(int pending, EmulateSite site) {
    auto *self = &threads[emulate_thread_index.x];
    int n = 0;
    self->fenced = false;
    while (n < self->n && queues[emulate_thread_index.x][n].group < self->group - pending) n++;
    emulate_wait_warpgroup(&n, finish, site);
}
