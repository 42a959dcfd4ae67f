/* Places in memory of random lives: each is the lowest that is free, found byte by byte. Catches a
 * shelf that is passed over though something fits on it, and what lies where another still lives.
 */
#include "planner/passes/room.h"
#include "tests/unit/check.h"

#include <limits.h>
#include <stdlib.h>
#include <time.h>

enum { MOST = 1200, N_NODES = 5000 };

typedef struct Placed {
    Life life;
    int64_t bytes, offset;
} Placed;

static Placed placed[MOST];
static int n_placed;

static int64_t find_slowly(Life life, int64_t bytes, int64_t offset) {
    for (int i = 0; i < n_placed; i++) {
        const Placed *other = &placed[i];
        bool meet = other->life.first <= life.last && life.first <= other->life.last;
        bool apart = other->offset >= offset + bytes || offset >= other->offset + other->bytes;
        if (!meet || apart) continue;
        offset = other->offset + other->bytes;
        i = -1; /* all again */
    }
    return offset;
}

static int pick(unsigned *seed, int below) {
    return rand_r(seed) % below;
}

/* Short ones, long ones, those of the whole program, and those that lie within each other. */
static Life random_life(unsigned *seed) {
    int first = pick(seed, N_NODES), kind = pick(seed, 8);
    if (kind == 0) return (Life){-1, INT_MAX};
    if (kind == 1) return (Life){first, INT_MAX};
    if (kind < 4) return (Life){first / 2, N_NODES - 1 - first / 2};
    int last = first + pick(seed, kind < 6 ? 100 : 3000);
    return (Life){first, last < N_NODES ? last : N_NODES - 1};
}

static void test_random(unsigned seed) {
    Arena *arena = arena_create();
    Room *room = room_create(N_NODES, arena);
    int count = 200 + pick(&seed, MOST - 200) / VARIANT_STEP, sizes = 1 + pick(&seed, 40);
    for (n_placed = 0; n_placed < count; n_placed++) {
        Life life = random_life(&seed);
        int64_t bytes = pick(&seed, sizes), from = pick(&seed, 3) ? 0 : pick(&seed, 200);
        int64_t offset = room_find(room, life, bytes, from);
        int64_t expected = find_slowly(life, bytes, from);
        CHECK(offset == expected, "%lld bytes at %lld instead of %lld", (long long)bytes,
              (long long)offset, (long long)expected);
        /* Now and then somewhere else, so that there are holes. */
        if (pick(&seed, 8) == 0) offset += pick(&seed, 100);
        room_add(room, life, bytes, offset);
        placed[n_placed] = (Placed){life, bytes, offset};
    }
    arena_destroy(arena);
}

/* What a forward keeps for its backward. Compared one by one, again wherever one is in the way,
 * they take minutes. */
static void test_nested(void) {
    enum { N = 60000 / VARIANT_STEP };
    Arena *arena = arena_create();
    Room *room = room_create(2 * N, arena);
    clock_t begun = clock();
    int64_t end = 0;
    for (int i = 0; i < N; i++) {
        Life life = {i, 2 * N - i};
        int64_t bytes = N - i % 100, offset = room_find(room, life, bytes, 0);
        CHECK(offset == end, "%lld instead of %lld", (long long)offset, (long long)end);
        room_add(room, life, bytes, offset);
        end = offset + bytes;
    }
    double seconds = (double)(clock() - begun) / CLOCKS_PER_SEC;
    CHECK(seconds < 8, "%.1f s of the processor", seconds);
    if (getenv("SHOW_TIMES")) printf("# %.2f s of the processor\n", seconds);
    arena_destroy(arena);
}

int main(void) {
    check_begin("each life gets the lowest room");
    for (unsigned seed = 1; seed <= 30; seed++) test_random(seed);
    check_begin("tens of thousands of lives within each other");
    test_nested();
    return check_report();
}
