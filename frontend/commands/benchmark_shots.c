#include "frontend/commands/benchmark_shots.h"

#include "runtime/data/shuffle.h"

#include <string.h>

void benchmark_shots_add(BenchmarkShots *shots, const BenchmarkItem *item) {
    StrBuf text = strbuf_create();
    benchmark_put_example(item, &text);
    const BenchmarkShot shot = {.text = arena_strndup(shots->arena, text.text, text.length),
                                .group = arena_strdup(shots->arena, item->group),
                                .length = text.length};
    ARENA_PUSH(shots->arena, shots->items, shots->n, shots->capacity, shot);
    strbuf_destroy(&text);
}

static bool may_be(const BenchmarkShots *shots, const BenchmarkShot *shot, const char *group,
                   const StrBuf *own) {
    if (shots->takes_first && group && (!shot->group || strcmp(shot->group, group) != 0)) {
        return false;
    }
    return shot->length != own->length || memcmp(shot->text, own->text, own->length) != 0;
}

bool benchmark_shots_put(const BenchmarkShots *shots, const BenchmarkItem *item, int64_t number,
                         SourceLoc loc, StrBuf *out, Diag *diag) {
    const uint64_t GOLDEN = UINT64_C(0x9e3779b97f4a7c15); /* parts neighbours' orders */
    const uint64_t seed = shots->seed ^ ((uint64_t)number * GOLDEN);
    StrBuf own = strbuf_create();
    int n = 0;
    benchmark_put_example(item, &own);
    for (int i = 0; i < shots->n && n < shots->n_wanted; i++) {
        const int64_t at = shots->takes_first ? i : shuffle_pick(shots->n, seed, i);
        const BenchmarkShot *shot = &shots->items[at];
        if (!may_be(shots, shot, item->group, &own)) continue;
        strbuf_put_bytes(out, shot->text, shot->length);
        n++;
    }
    strbuf_destroy(&own);
    if (n == shots->n_wanted) return true;
    const bool grouped = shots->takes_first && item->group;
    diag_error(diag, loc, "--shots %d: '%s' has %d other question%s%s%.60s", shots->n_wanted,
               shots->path, n, n == 1 ? "" : "s", grouped ? " of " : "",
               grouped ? item->group : "");
    return false;
}
