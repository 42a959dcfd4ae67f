#include "tests/emulate/bulk.h"

#include <string.h>

enum { MOST_UNDER_WAY = 64 };

struct Bulk {
    unsigned thread;
    float *to;
    const float *from;
    int n;
    bool add;
    uint64_t sum; /* over what is copied, when it was started */
    EmulateSite site;
};

static Bulk under_way[MOST_UNDER_WAY];
static int n_under_way;

static uint64_t sum_of(const float *from, int n) {
    uint64_t sum = 14695981039346656037u;
    for (int i = 0; i < n; i++) {
        uint32_t word;
        memcpy(&word, from + i, sizeof(word));
        sum = (sum ^ word) * 1099511628211u;
    }
    return sum;
}

void emulate_bulk(void *to, const void *from, int bytes, bool add, EmulateSite site) {
    if ((uintptr_t)to % 16 || (uintptr_t)from % 16 || bytes % 16 || bytes <= 0)
        emulate_fail(site, "not whole 16 bytes");
    if (n_under_way == MOST_UNDER_WAY) emulate_fail(site, "too many copies under way");
    const int n = bytes / (int)sizeof(float);
    const float *floats = (const float *)from;
    under_way[n_under_way++] = {emulate_thread_index.x, (float *)to, floats, n, add,
                                sum_of(floats, n),      site};
}

static void finish(const Bulk &bulk, EmulateSite site) {
    if (sum_of(bulk.from, bulk.n) != bulk.sum)
        emulate_fail(site, "what is copied changed while it was under way");
    for (int i = 0; i < bulk.n; i++)
        bulk.to[i] = bulk.add ? bulk.to[i] + bulk.from[i] : bulk.from[i];
}

void emulate_bulk_wait(EmulateSite site) {
    int kept = 0;
    for (int i = 0; i < n_under_way; i++) {
        if (under_way[i].thread == emulate_thread_index.x) {
            finish(under_way[i], site);
        } else {
            under_way[kept++] = under_way[i];
        }
    }
    n_under_way = kept;
}

void emulate_bulk_begin(void) {
    n_under_way = 0;
}

const EmulateSite *emulate_bulk_left(void) {
    return n_under_way ? &under_way[0].site : nullptr;
}
