#include "runtime/cuda/order.h"

#include <stdlib.h>
#include <string.h>

/* The address space cut at every boundary of an access: within a piece all accesses are the same.
 */
typedef struct Pieces {
    int count;
    uintptr_t *starts; /* ascending */
} Pieces;

static int compare_addresses(const void *a, const void *b) {
    uintptr_t x = *(const uintptr_t *)a, y = *(const uintptr_t *)b;
    return (x > y) - (x < y);
}

static Pieces cut_pieces(const CommandList *list) {
    int64_t total = 0;
    Pieces pieces = {0};
    for (int i = 0; i < list->count; i++) total += list->items[i].n_accesses;
    pieces.starts = malloc((size_t)(2 * total + 1) * sizeof(*pieces.starts));
    if (!pieces.starts) BUG("out of memory for %lld accesses", (long long)total);
    int64_t n = 0;
    for (int i = 0; i < list->count; i++) {
        const Command *command = &list->items[i];
        for (int k = 0; k < command->n_accesses; k++) {
            const Access *access = &command->accesses[k];
            if (access->bytes <= 0) continue;
            pieces.starts[n++] = access->at;
            pieces.starts[n++] = access->at + (uintptr_t)access->bytes;
        }
    }
    qsort(pieces.starts, (size_t)n, sizeof(*pieces.starts), compare_addresses);
    for (int64_t i = 0; i < n; i++) {
        if (i == 0 || pieces.starts[i] != pieces.starts[i - 1]) {
            pieces.starts[pieces.count++] = pieces.starts[i];
        }
    }
    return pieces;
}

static int find_piece(const Pieces *pieces, uintptr_t at) {
    int low = 0, high = pieces->count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (pieces->starts[middle] < at) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Streams in use, numbered as they appear; the first command's is the origin. */
static void number_streams(const CommandList *list, Arena *arena, CommandOrder *out) {
    int most = 0;
    for (int i = 0; i < list->count; i++) {
        int key = list->items[i].info.rank * N_STREAM_KINDS + (int)list->items[i].stream;
        if (key >= most) most = key + 1;
    }
    int *numbers = ARENA_ARRAY(arena, int, most + 1);
    out->streams = ARENA_ARRAY(arena, int, list->count + 1);
    for (int i = 0; i < list->count; i++) {
        int key = list->items[i].info.rank * N_STREAM_KINDS + (int)list->items[i].stream;
        if (!numbers[key]) numbers[key] = ++out->n_streams;
        out->streams[i] = numbers[key] - 1;
    }
}

typedef struct Orderer {
    CommandList *list;
    Arena *arena;
    CommandOrder *out;
    Pieces pieces;
    int *writer;  /* [piece]: last command that wrote it, or -1 */
    int *readers; /* [piece][stream]: last command that read it since, or -1 */
    int *clocks;  /* [command][stream]: the last command of the stream known to be done */
    int *last;    /* [stream]: its latest command, or -1 */
    int *latest;  /* [stream]: of the command at hand, the latest one it must come after */
    int *place;   /* [command]: where hoist puts it: behind this one; itself: where it is */
} Orderer;

static void need(Orderer *o, int command) {
    int stream = command < 0 ? -1 : o->out->streams[command];
    if (stream >= 0 && o->latest[stream] < command) o->latest[stream] = command;
}

/* Notes whom the access must come after, then the access itself. */
static void visit(Orderer *o, const Access *access, int command, bool record) {
    int n_streams = o->out->n_streams;
    int from = find_piece(&o->pieces, access->at);
    int to = find_piece(&o->pieces, access->at + (uintptr_t)access->bytes);
    for (int piece = from; piece < to; piece++) {
        int *readers = &o->readers[(size_t)piece * (size_t)n_streams];
        if (!record) {
            need(o, o->writer[piece]);
            for (int s = 0; access->write && s < n_streams; s++) need(o, readers[s]);
        } else if (access->write) {
            o->writer[piece] = command;
            for (int s = 0; s < n_streams; s++) readers[s] = -1;
        } else {
            readers[o->out->streams[command]] = command;
        }
    }
}

/* A command of the data stream may stand right behind the last one that it must come after or that
 * is before it on its stream, where these now stand; nothing else moves, nor does the first. Along
 * a stream places never fall, so that the latest one of each stream says enough. */
static int find_place(const Orderer *o, int i) {
    int place = 0, previous = o->last[o->out->streams[i]];
    if (i == 0 || o->list->items[i].stream != STREAM_DATA) return i;
    if (previous >= 0) place = o->place[previous];
    for (int s = 0; s < o->out->n_streams; s++) {
        if (o->latest[s] >= 0 && o->place[o->latest[s]] > place) place = o->place[o->latest[s]];
    }
    return place;
}

/* Turns what the command must come after into as few waits as its clock allows. */
static void add_waits(Orderer *o, int i) {
    int n_streams = o->out->n_streams, own = o->out->streams[i], n_waits = 0;
    int *clock = &o->clocks[(size_t)i * (size_t)n_streams];
    int *waits = ARENA_ARRAY(o->arena, int, n_streams + 1);
    for (int s = 0; s < n_streams; s++) clock[s] = -1;
    if (o->last[own] >= 0) {
        memcpy(clock, &o->clocks[(size_t)o->last[own] * (size_t)n_streams],
               (size_t)n_streams * sizeof(int));
    } else if (i > 0) {
        need(o, 0); /* every stream begins after the step's first command */
    }
    o->place[i] = find_place(o, i);
    for (;;) {
        int latest = -1;
        for (int s = 0; s < n_streams; s++) {
            if (s != own && o->latest[s] > clock[s] && o->latest[s] > latest) latest = o->latest[s];
        }
        if (latest < 0) break;
        const int *theirs = &o->clocks[(size_t)latest * (size_t)n_streams];
        for (int s = 0; s < n_streams; s++) {
            if (theirs[s] > clock[s]) clock[s] = theirs[s];
        }
        waits[n_waits++] = latest;
        o->list->items[latest].event = 0;
    }
    clock[own] = i;
    o->last[own] = i;
    o->list->items[i].waits = waits;
    o->list->items[i].n_waits = n_waits;
    o->out->n_waits += n_waits;
}

static Orderer create(CommandList *list, Arena *arena, CommandOrder *out) {
    Orderer o = {.list = list, .arena = arena, .out = out, .pieces = cut_pieces(list)};
    size_t streams = (size_t)out->n_streams, pieces = (size_t)o.pieces.count + 1;
    o.writer = malloc(pieces * sizeof(int));
    o.readers = malloc(pieces * streams * sizeof(int) + 1);
    o.clocks = malloc((size_t)list->count * streams * sizeof(int) + 1);
    o.last = malloc(streams * sizeof(int) + 1);
    o.latest = malloc(streams * sizeof(int) + 1);
    o.place = malloc((size_t)list->count * sizeof(int) + 1);
    if (!o.writer || !o.readers || !o.clocks || !o.last || !o.latest || !o.place) {
        BUG("out of memory to order %d commands", list->count);
    }
    memset(o.writer, -1, pieces * sizeof(int));
    memset(o.readers, -1, pieces * streams * sizeof(int));
    memset(o.last, -1, streams * sizeof(int));
    return o;
}

static void release(Orderer *o) {
    free(o->pieces.starts);
    free(o->writer), free(o->readers), free(o->clocks);
    free(o->last), free(o->latest), free(o->place);
}

static void find_waits(Orderer *o) {
    for (int i = 0; i < o->list->count; i++) o->list->items[i].event = -1;
    for (int i = 0; i < o->list->count; i++) {
        const Command *command = &o->list->items[i];
        memset(o->latest, -1, (size_t)o->out->n_streams * sizeof(int));
        for (int k = 0; k < command->n_accesses; k++) visit(o, &command->accesses[k], i, false);
        add_waits(o, i);
        /* Reads first: a command that writes what it reads ends as its writer. */
        for (int k = 0; k < command->n_accesses; k++) {
            if (!command->accesses[k].write) visit(o, &command->accesses[k], i, true);
        }
        for (int k = 0; k < command->n_accesses; k++) {
            if (command->accesses[k].write) visit(o, &command->accesses[k], i, true);
        }
    }
}

/* Moves commands to their places. What they must precede already comes later in the list. */
static void hoist(Orderer *o) {
    CommandList *list = o->list;
    int n = list->count;
    int *order = malloc((size_t)n * sizeof(int) + 1), *head = malloc((size_t)n * sizeof(int) + 1);
    int *next = malloc((size_t)n * sizeof(int) + 1);
    Command *moved = malloc((size_t)n * sizeof(*moved) + 1);
    int *streams = ARENA_ARRAY(o->arena, int, n + 1);
    if (!order || !head || !next || !moved) BUG("out of memory to order %d commands", n);
    memset(head, -1, (size_t)n * sizeof(int));
    /* Backwards, so that each list of followers comes out ascending. */
    for (int i = n - 1; i >= 0; i--) {
        if (o->place[i] == i) continue;
        next[i] = head[o->place[i]];
        head[o->place[i]] = i;
    }
    int count = 0;
    for (int i = 0; i < n; i++) {
        if (o->place[i] != i) continue;
        order[count++] = i;
        for (int k = head[i]; k >= 0; k = next[k]) order[count++] = k;
    }
    if (count != n) BUG("ordering lost commands: %d of %d are left", count, n);
    for (int k = 0; k < n; k++) {
        moved[k] = list->items[order[k]];
        streams[k] = o->out->streams[order[k]];
    }
    memcpy(list->items, moved, (size_t)n * sizeof(*moved));
    o->out->streams = streams;
    free(order), free(head), free(next), free(moved);
}

/* An event object is free again once the last command that waits for it has been issued. */
static void assign_events(CommandList *list, Arena *arena, CommandOrder *out) {
    int n = list->count, n_free = 0;
    int *last_use = ARENA_ARRAY(arena, int, n + 1), *free_events = ARENA_ARRAY(arena, int, n + 1);
    out->events = ARENA_ARRAY(arena, int, n + 1);
    for (int i = 0; i < n; i++) last_use[i] = out->events[i] = -1;
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < list->items[i].n_waits; k++) last_use[list->items[i].waits[k]] = i;
    }
    for (int k = 0; k < out->n_joins; k++) last_use[out->joins[k]] = n;
    for (int i = 0; i < n; i++) {
        Command *command = &list->items[i];
        for (int k = 0; k < command->n_waits; k++) {
            int waited = command->waits[k];
            if (last_use[waited] == i) free_events[n_free++] = out->events[waited];
        }
        if (last_use[i] < 0) continue;
        command->event = out->events[i] = n_free ? free_events[--n_free] : out->n_events++;
    }
}

static void find_joins(CommandList *list, Arena *arena, CommandOrder *out) {
    int *last = ARENA_ARRAY(arena, int, out->n_streams + 1);
    for (int i = 0; i < list->count; i++) last[out->streams[i]] = i;
    out->joins = ARENA_ARRAY(arena, int, out->n_streams + 1);
    for (int s = 1; s < out->n_streams; s++) out->joins[out->n_joins++] = last[s];
}

void order_commands(CommandList *list, Arena *arena, CommandOrder *out) {
    *out = (CommandOrder){0};
    if (!list->count) return;
    number_streams(list, arena, out);
    Orderer o = create(list, arena, out);
    find_waits(&o);
    hoist(&o);
    release(&o);
    /* Once more, in the order in which they will be issued. */
    out->n_waits = 0;
    o = create(list, arena, out);
    find_waits(&o);
    release(&o);
    find_joins(list, arena, out);
    assign_events(list, arena, out);
}
