#include "tests/support/dag_check.h"

#ifdef HAVE_CUDA

#include "runtime/cuda/kernels/fused_args.h"

#include <stdlib.h>
#include <string.h>

/* The address space cut at every boundary of an access: within a piece all are the same. */
typedef struct Pieces {
    int count;
    uintptr_t *starts; /* ascending */
} Pieces;

static int compare_addresses(const void *a, const void *b) {
    uintptr_t x = *(const uintptr_t *)a, y = *(const uintptr_t *)b;
    return (x > y) - (x < y);
}

static Pieces cut_pieces(const FakeGraph *graph) {
    int64_t total = 0, n = 0;
    Pieces pieces = {0};
    for (int i = 0; i < graph->n_nodes; i++) {
        const Command *command = graph->nodes[i].command;
        total += command ? command->n_accesses : 0;
    }
    pieces.starts = malloc((size_t)(2 * total + 1) * sizeof(*pieces.starts));
    if (!pieces.starts) BUG("out of memory for %lld accesses", (long long)total);
    for (int i = 0; i < graph->n_nodes; i++) {
        const Command *command = graph->nodes[i].command;
        for (int k = 0; command && k < command->n_accesses; k++) {
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
    const uintptr_t *found = bsearch(&at, pieces->starts, (size_t)pieces->count,
                                     sizeof(*pieces->starts), compare_addresses);
    return (int)(found - pieces->starts);
}

static void add_pair(DagPairs *pairs, const FakeGraph *graph, int before, int after) {
    if (before < 0 || before == after) return;
    if (graph->nodes[before].stream == graph->nodes[after].stream) return;
    if (pairs->count == pairs->capacity) {
        pairs->capacity = pairs->capacity ? 2 * pairs->capacity : 1024;
        pairs->items = realloc(pairs->items, (size_t)pairs->capacity * sizeof(DagPair));
        if (!pairs->items) BUG("out of memory for %d pairs", pairs->capacity);
    }
    pairs->items[pairs->count++] = (DagPair){before, after};
}

static int compare_pairs(const void *a, const void *b) {
    const DagPair *x = a, *y = b;
    if (x->after != y->after) return x->after < y->after ? -1 : 1;
    return (x->before > y->before) - (x->before < y->before);
}

static void drop_repeated(DagPairs *pairs) {
    int count = 0;
    if (pairs->count == 0) return;
    qsort(pairs->items, (size_t)pairs->count, sizeof(DagPair), compare_pairs);
    for (int i = 0; i < pairs->count; i++) {
        if (i == 0 || compare_pairs(&pairs->items[i], &pairs->items[i - 1]) != 0) {
            pairs->items[count++] = pairs->items[i];
        }
    }
    pairs->count = count;
}

/* Who wrote each piece last, and who read it since, by stream. */
typedef struct Finder {
    const FakeGraph *graph;
    Pieces pieces;
    int *writer, *readers;
    DagPairs pairs;
} Finder;

static void visit(Finder *f, int node, const Access *access, bool record) {
    int n = f->graph->n_streams;
    if (access->bytes <= 0) return;
    int from = find_piece(&f->pieces, access->at);
    int to = find_piece(&f->pieces, access->at + (uintptr_t)access->bytes);
    for (int piece = from; piece < to; piece++) {
        int *readers = &f->readers[(size_t)piece * (size_t)n];
        if (!record) {
            add_pair(&f->pairs, f->graph, f->writer[piece], node);
            for (int s = 0; access->write && s < n; s++) {
                add_pair(&f->pairs, f->graph, readers[s], node);
            }
        } else if (access->write) {
            f->writer[piece] = node;
            memset(readers, -1, (size_t)n * sizeof(int));
        } else {
            readers[f->graph->nodes[node].stream] = node;
        }
    }
}

DagPairs dag_find_pairs(const FakeGraph *graph) {
    Finder f = {.graph = graph, .pieces = cut_pieces(graph)};
    size_t pieces = (size_t)f.pieces.count + 1, streams = (size_t)graph->n_streams;
    f.writer = malloc(pieces * sizeof(int));
    f.readers = malloc(pieces * streams * sizeof(int) + 1);
    if (!f.writer || !f.readers) BUG("out of memory for %zu pieces", pieces);
    memset(f.writer, -1, pieces * sizeof(int));
    memset(f.readers, -1, pieces * streams * sizeof(int));
    for (int i = 0; i < graph->n_nodes; i++) {
        const Command *command = graph->nodes[i].command;
        if (!command) continue;
        for (int k = 0; k < command->n_accesses; k++) visit(&f, i, &command->accesses[k], false);
        /* Reads first: a command that writes what it reads ends as its writer. */
        for (int write = 0; write < 2; write++) {
            for (int k = 0; k < command->n_accesses; k++) {
                const Access *access = &command->accesses[k];
                if (access->write == (write > 0)) visit(&f, i, access, true);
            }
        }
    }
    free(f.pieces.starts);
    free(f.writer);
    free(f.readers);
    drop_repeated(&f.pairs);
    return f.pairs;
}

void dag_pairs_free(DagPairs *pairs) {
    free(pairs->items);
    *pairs = (DagPairs){0};
}

int dag_find_race(const FakeGraph *graph, const FakeDag *dag, const DagPairs *pairs) {
    for (int i = 0; i < pairs->count; i++) {
        if (!fake_dag_is_before(graph, dag, pairs->items[i].before, pairs->items[i].after)) {
            return i;
        }
    }
    return -1;
}

/* Proofs */

static const char *describe(const FakeGraph *graph, int node, char *text, size_t bytes) {
    const Command *command = graph->nodes[node].command;
    if (!command) {
        snprintf(text, bytes, "node %d", node);
        return text;
    }
    const Node *of = command->info.node;
    snprintf(text, bytes, "node %d, %s of %s, rank %d, stream %s, micro-batch %d", node,
             command_kind_name(command->kind), of ? OPS[of->op].name : "the step",
             command->info.rank, stream_kind_name(command->stream), command->info.micro);
    return text;
}

/* The operation is what its command says; kernels get what their signatures say. */
static bool is_as_announced(const FakeNode *node) {
    const Command *command = node->command;
    if (!command) return false;
    switch (command->kind) {
    case COMMAND_LAUNCH: {
        const LaunchCommand *launch = &command->launch;
        const FakeFunction *function = node->launch.function;
        if (node->kind != FAKE_KERNEL) return false;
        if ((launch->generated != NULL) != (function->generated != NULL)) return false;
        if (!launch->generated && launch->kernel != function->kernel) return false;
        if (launch->generated && strcmp(launch->generated->name, function->generated->name) != 0) {
            return false;
        }
        return launch->args_bytes == node->launch.args_bytes &&
               memcmp(launch->args, node->launch.args, launch->args_bytes) == 0;
    }
    case COMMAND_GEMM: return node->kind == FAKE_GEMM;
    case COMMAND_ATTENTION: return node->kind == FAKE_ATTENTION && node->attention.repeats;
    case COMMAND_COPY: return node->kind == FAKE_COPY;
    case COMMAND_FILL: return node->kind == FAKE_FILL;
    case COMMAND_COLLECTIVE: return node->kind == FAKE_NCCL || node->kind == FAKE_KERNEL;
    case COMMAND_SEND:
    case COMMAND_RECV: return node->kind == FAKE_NCCL;
    case N_COMMAND_KINDS: break;
    }
    return false;
}

/* Messages of one communicator come one after the other. */
static int find_loose_message(const FakeGraph *graph, const FakeDag *dag) {
    int n_groups = 0;
    for (int i = 0; i < graph->n_nodes; i++) {
        const FakeNode *node = &graph->nodes[i];
        if (node->kind == FAKE_NCCL && node->message.group >= n_groups) {
            n_groups = node->message.group + 1;
        }
    }
    int *last = malloc((size_t)n_groups * sizeof(int) + 1), found = -1;
    if (!last) BUG("out of memory");
    for (int g = 0; g < n_groups; g++) last[g] = -1;
    for (int i = 0; i < graph->n_nodes && found < 0; i++) {
        const FakeNode *node = &graph->nodes[i];
        if (node->kind != FAKE_NCCL) continue;
        int *previous = &last[node->message.group];
        if (*previous >= 0 && !fake_dag_is_before(graph, dag, *previous, i)) found = i;
        *previous = i;
    }
    free(last);
    return found;
}

static bool check_dag(const FakeGraph *graph, const FakeDag *dag, char *why, size_t bytes) {
    char before[160], after[160];
    if (dag->n_outside || dag->n_unjoined) {
        snprintf(why, bytes, "%d streams are not joined, %d operations are outside",
                 dag->n_unjoined, dag->n_outside);
        return false;
    }
    int loose = find_loose_message(graph, dag);
    if (loose >= 0) {
        snprintf(why, bytes, "%s: not after the message before it",
                 describe(graph, loose, after, sizeof(after)));
        return false;
    }
    DagPairs pairs = dag_find_pairs(graph);
    int race = dag_find_race(graph, dag, &pairs);
    if (race >= 0) {
        snprintf(why, bytes, "no path from %s to %s",
                 describe(graph, pairs.items[race].before, before, sizeof(before)),
                 describe(graph, pairs.items[race].after, after, sizeof(after)));
    }
    dag_pairs_free(&pairs);
    return race < 0;
}

bool dag_check(const FakeGraph *graph, char *why, size_t bytes) {
    char text[160];
    for (int i = 0; i < graph->n_nodes; i++) {
        if (is_as_announced(&graph->nodes[i])) continue;
        snprintf(why, bytes, "%s: not what was announced", describe(graph, i, text, sizeof(text)));
        return false;
    }
    FakeDag dag = fake_dag_build(graph, -1);
    bool good = check_dag(graph, &dag, why, bytes);
    fake_dag_free(&dag);
    return good;
}

/* Messages between ranks */

typedef struct Sequence {
    int count, capacity, graph;
    const FakeMessage **items;
} Sequence;

static void add_message(Sequence *sequence, const FakeMessage *message) {
    if (sequence->count == sequence->capacity) {
        sequence->capacity = sequence->capacity ? 2 * sequence->capacity : 64;
        sequence->items =
            realloc(sequence->items, (size_t)sequence->capacity * sizeof(const FakeMessage *));
        if (!sequence->items) BUG("out of memory");
    }
    sequence->items[sequence->count++] = message;
}

static bool meet(const FakeMessage *a, const FakeMessage *b) {
    if (a->count != b->count || a->dtype != b->dtype || a->n_more != b->n_more) return false;
    for (int i = 0; i < a->n_more; i++) {
        if (!meet(&a->more[i], &b->more[i])) return false;
    }
    if (a->kind == FAKE_SEND || a->kind == FAKE_RECV) {
        return a->kind + b->kind == FAKE_SEND + FAKE_RECV && a->peer == b->rank &&
               b->peer == a->rank;
    }
    return a->kind == b->kind && a->op == b->op;
}

static bool compare_sequences(const Sequence *a, const Sequence *b, int group, char *why,
                              size_t bytes) {
    int count = a->count < b->count ? a->count : b->count;
    for (int i = 0; i < count; i++) {
        if (meet(a->items[i], b->items[i])) continue;
        snprintf(why, bytes, "message %d of communicator %d: ranks %d and %d do not agree", i,
                 group, a->graph, b->graph);
        return false;
    }
    if (a->count == b->count) return true;
    snprintf(why, bytes, "communicator %d: rank %d has %d messages, rank %d %d", group, a->graph,
             a->count, b->graph, b->count);
    return false;
}

bool dag_check_messages(const FakeGraph *const *graphs, int n_graphs, char *why, size_t bytes) {
    enum { MOST_MEMBERS = 64, MOST_GROUPS = 4096 };
    Sequence *all = calloc((size_t)MOST_GROUPS * MOST_MEMBERS, sizeof(*all));
    bool good = true;
    if (!all) BUG("out of memory");
    for (int g = 0; g < n_graphs; g++) {
        for (int i = 0; i < graphs[g]->n_nodes; i++) {
            const FakeMessage *message = &graphs[g]->nodes[i].message;
            if (graphs[g]->nodes[i].kind != FAKE_NCCL) continue;
            Sequence *sequence = &all[message->group * MOST_MEMBERS + message->rank];
            sequence->graph = g;
            add_message(sequence, message);
        }
    }
    for (int i = 0; i < MOST_GROUPS * MOST_MEMBERS && good; i++) {
        const Sequence *first = &all[i];
        if (i % MOST_MEMBERS || !(first->count || all[i + 1].count)) continue;
        int n = (first->count ? first : &all[i + 1])->items[0]->n_members;
        for (int k = 1; k < n && good; k++) {
            good = compare_sequences(first, &all[i + k], i / MOST_MEMBERS, why, bytes);
        }
    }
    for (int i = 0; i < MOST_GROUPS * MOST_MEMBERS; i++) free(all[i].items);
    free(all);
    return good;
}

#endif
