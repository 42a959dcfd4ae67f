/* Most lives are of a few nodes: these are found by when they are, in windows of time, so that one
 * is compared with its contemporaries. Those that last lie on shelves, in the order of their
 * offsets: of a shelf whose pieces all meet a life, it is known whether anything has room between
 * them. */
#include "planner/passes/room.h"

#include <stdbool.h>
#include <string.h>

enum { WINDOW_NODES = 64, FEW_WINDOWS = 8, SHELF_PIECES = 128 };

typedef struct Piece {
    int64_t begin, end; /* bytes */
    Life life;
} Piece;

typedef struct Window {
    int count, capacity;
    Piece *pieces; /* by where they begin */
} Window;

typedef struct Shelf {
    int count;
    Piece pieces[SHELF_PIECES]; /* by where they begin */
    int64_t end, gap;           /* where the last ends, and the largest gap between them */
    Life all, any;              /* when all of them live, and the time in which any does */
} Shelf;

struct Room {
    Arena *arena;
    int n_windows, n_shelves, shelves_capacity;
    Window *windows;
    Shelf **shelves; /* each begins where the one before does, or behind */
};

Room *room_create(int n_nodes, Arena *arena) {
    Room *room = ARENA_NEW(arena, Room);
    room->arena = arena;
    room->n_windows = n_nodes / WINDOW_NODES + 1;
    room->windows = ARENA_ARRAY(arena, Window, room->n_windows);
    return room;
}

static int window_of(const Room *room, int node) {
    if (node < 0) return 0; /* before the first */
    int window = node / WINDOW_NODES;
    return window < room->n_windows ? window : room->n_windows - 1;
}

static bool meet(Life a, Life b) {
    return a.first <= b.last && b.first <= a.last;
}

/* --- shelves --- */

static void measure(Shelf *shelf) {
    const Piece *pieces = shelf->pieces;
    shelf->end = pieces[0].end;
    shelf->all = shelf->any = pieces[0].life;
    shelf->gap = INT64_MIN;
    for (int i = 1; i < shelf->count; i++) {
        Life life = pieces[i].life;
        int64_t gap = pieces[i].begin - shelf->end;
        if (gap > shelf->gap) shelf->gap = gap;
        if (pieces[i].end > shelf->end) shelf->end = pieces[i].end;
        if (life.first > shelf->all.first) shelf->all.first = life.first;
        if (life.last < shelf->all.last) shelf->all.last = life.last;
        if (life.first < shelf->any.first) shelf->any.first = life.first;
        if (life.last > shelf->any.last) shelf->any.last = life.last;
    }
}

static Shelf *add_shelf(Room *room, int at) {
    ARENA_PUSH(room->arena, room->shelves, room->n_shelves, room->shelves_capacity, NULL);
    memmove(&room->shelves[at + 1], &room->shelves[at],
            (size_t)(room->n_shelves - 1 - at) * sizeof(Shelf *));
    return room->shelves[at] = ARENA_NEW(room->arena, Shelf);
}

/* The upper half of a full shelf becomes one of its own. */
static void halve(Room *room, int at) {
    Shelf *low = room->shelves[at], *high = add_shelf(room, at + 1);
    int half = low->count / 2;
    high->count = low->count - half;
    memcpy(high->pieces, low->pieces + half, (size_t)high->count * sizeof(Piece));
    low->count = half;
    measure(low);
    measure(high);
}

static void put_on_shelf(Room *room, Piece piece) {
    int at = room->n_shelves - 1;
    if (at < 0) add_shelf(room, at = 0);
    while (at > 0 && room->shelves[at]->pieces[0].begin > piece.begin) at--;
    if (room->shelves[at]->count == SHELF_PIECES) {
        halve(room, at);
        at += room->shelves[at + 1]->pieces[0].begin <= piece.begin;
    }
    Shelf *shelf = room->shelves[at];
    int i = shelf->count++;
    for (; i > 0 && shelf->pieces[i - 1].begin > piece.begin; i--) {
        shelf->pieces[i] = shelf->pieces[i - 1];
    }
    shelf->pieces[i] = piece;
    measure(shelf);
}

/* The lowest offset from `offset` on where nothing that lasts is in the way. */
static int64_t pass_shelves(const Room *room, Life life, int64_t bytes, int64_t offset) {
    for (int s = 0; s < room->n_shelves; s++) {
        const Shelf *shelf = room->shelves[s];
        if (shelf->pieces[0].begin >= offset + bytes) break;
        if (shelf->end <= offset || !meet(shelf->any, life)) continue;
        bool all_meet = shelf->all.first <= life.last && life.first <= shelf->all.last;
        if (all_meet && shelf->gap < bytes) {
            offset = shelf->end;
            continue;
        }
        for (int i = 0; i < shelf->count; i++) {
            const Piece *piece = &shelf->pieces[i];
            if (piece->begin >= offset + bytes) return offset;
            if (piece->end > offset && meet(piece->life, life)) offset = piece->end;
        }
    }
    return offset;
}

/* --- all of it --- */

void room_add(Room *room, Life life, int64_t bytes, int64_t offset) {
    Piece piece = {offset, offset + bytes, life};
    int begin = window_of(room, life.first), end = window_of(room, life.last);
    if (end - begin > FEW_WINDOWS) {
        put_on_shelf(room, piece);
        return;
    }
    for (int w = begin; w <= end; w++) {
        Window *window = &room->windows[w];
        ARENA_PUSH(room->arena, window->pieces, window->count, window->capacity, piece);
        int i = window->count - 1;
        for (; i > 0 && window->pieces[i - 1].begin > offset; i--)
            window->pieces[i] = window->pieces[i - 1];
        window->pieces[i] = piece;
    }
}

static int64_t pass_window(const Window *window, Life life, int64_t bytes, int64_t offset) {
    for (int i = 0; i < window->count; i++) {
        const Piece *piece = &window->pieces[i];
        if (piece->begin >= offset + bytes) break;
        if (piece->end > offset && meet(piece->life, life)) offset = piece->end;
    }
    return offset;
}

int64_t room_find(const Room *room, Life life, int64_t bytes, int64_t offset) {
    int begin = window_of(room, life.first), end = window_of(room, life.last);
    for (int64_t before = -1; before != offset;) {
        before = offset;
        offset = pass_shelves(room, life, bytes, offset);
        for (int w = begin; w <= end; w++) {
            offset = pass_window(&room->windows[w], life, bytes, offset);
        }
    }
    return offset;
}
