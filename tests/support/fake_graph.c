#include "tests/support/fake_graph.h"

#ifdef HAVE_CUDA

#include <stdlib.h>
#include <string.h>

static void *grow(void *items, int count, int *capacity, size_t bytes) {
    if (count < *capacity) return items;
    *capacity = *capacity ? 2 * *capacity : 64;
    items = realloc(items, (size_t)*capacity * bytes);
    if (!items) BUG("out of memory for %d items", *capacity);
    return items;
}

static void *new_ints(int64_t count) {
    void *ints = malloc((size_t)count * sizeof(int) + 1);
    if (!ints) BUG("out of memory for %lld numbers", (long long)count);
    return ints;
}

void fake_graph_push(FakeGraph *graph, FakeEntryKind kind, int stream, int which) {
    graph->entries =
        grow(graph->entries, graph->n_entries, &graph->entry_capacity, sizeof(*graph->entries));
    graph->entries[graph->n_entries++] = (FakeEntry){kind, stream, which};
    graph->n_records += kind == FAKE_RECORD;
    graph->n_waits += kind == FAKE_WAIT;
    if (stream >= graph->n_streams) graph->n_streams = stream + 1;
}

int fake_graph_push_node(FakeGraph *graph, const FakeNode *node) {
    graph->nodes = grow(graph->nodes, graph->n_nodes, &graph->node_capacity, sizeof(*graph->nodes));
    graph->nodes[graph->n_nodes] = *node;
    fake_graph_push(graph, FAKE_NODE, node->stream, graph->n_nodes);
    return graph->n_nodes++;
}

void fake_graph_free(FakeGraph *graph) {
    for (int i = 0; i < graph->n_nodes; i++) {
        if (graph->nodes[i].kind == FAKE_KERNEL) free(graph->nodes[i].launch.args);
        if (graph->nodes[i].kind == FAKE_NCCL) free(graph->nodes[i].message.more);
    }
    free(graph->nodes);
    free(graph->entries);
    *graph = (FakeGraph){0};
}

/* Nodes that what comes next on a stream has to wait for. */
typedef struct Tail {
    int count, capacity;
    int *nodes;
} Tail;

static void add_to(Tail *tail, int node) {
    for (int i = 0; i < tail->count; i++) {
        if (tail->nodes[i] == node) return;
    }
    tail->nodes = grow(tail->nodes, tail->count, &tail->capacity, sizeof(int));
    tail->nodes[tail->count++] = node;
}

static void add_all(Tail *tail, const Tail *from) {
    for (int i = 0; i < from->count; i++) add_to(tail, from->nodes[i]);
}

typedef struct Builder {
    const FakeGraph *graph;
    FakeDag *dag;
    int n_edges, edge_capacity;
    Tail *tails, *recorded; /* [stream], [record] */
    bool *joined, *carries; /* the same: is it part of the capture? */
} Builder;

/* The last node of each stream that is among `tail` or before it. */
static void join_clocks(const Builder *b, const Tail *tail, int *out) {
    int n = b->dag->n_streams;
    for (int s = 0; s < n; s++) out[s] = -1;
    for (int i = 0; i < tail->count; i++) {
        int node = tail->nodes[i], stream = b->graph->nodes[node].stream;
        const int *theirs = &b->dag->clocks[(size_t)node * (size_t)n];
        for (int s = 0; s < n; s++) {
            if (theirs[s] > out[s]) out[s] = theirs[s];
        }
        if (node > out[stream]) out[stream] = node;
    }
}

static void add_node(Builder *b, int node, int stream) {
    FakeDag *dag = b->dag;
    Tail *tail = &b->tails[stream];
    dag->first_edge[node] = b->n_edges;
    for (int i = 0; i < tail->count; i++) {
        dag->edges = grow(dag->edges, b->n_edges, &b->edge_capacity, sizeof(int));
        dag->edges[b->n_edges++] = tail->nodes[i];
    }
    dag->first_edge[node + 1] = b->n_edges;
    join_clocks(b, tail, &dag->clocks[(size_t)node * (size_t)dag->n_streams]);
    tail->count = 0;
    add_to(tail, node);
    dag->n_outside += !b->joined[stream];
}

static void read_log(Builder *b, int without) {
    int n_waits = 0;
    for (int i = 0; i < b->graph->n_entries; i++) {
        const FakeEntry *entry = &b->graph->entries[i];
        switch (entry->kind) {
        case FAKE_NODE: add_node(b, entry->which, entry->stream); break;
        case FAKE_RECORD:
            add_all(&b->recorded[entry->which], &b->tails[entry->stream]);
            b->carries[entry->which] = b->joined[entry->stream];
            break;
        case FAKE_WAIT:
            if (n_waits++ == without) break;
            add_all(&b->tails[entry->stream], &b->recorded[entry->which]);
            b->joined[entry->stream] |= b->carries[entry->which];
            break;
        }
    }
}

static void count_unjoined(Builder *b) {
    int *end = new_ints(b->dag->n_streams), *own = new_ints(b->dag->n_streams);
    join_clocks(b, &b->tails[0], end);
    for (int s = 1; s < b->dag->n_streams; s++) {
        bool late = false;
        join_clocks(b, &b->tails[s], own);
        for (int k = 0; k < b->dag->n_streams; k++) late |= own[k] > end[k];
        b->dag->n_unjoined += late;
    }
    free(end);
    free(own);
}

FakeDag fake_dag_build(const FakeGraph *graph, int without) {
    int n_streams = graph->n_streams ? graph->n_streams : 1;
    FakeDag dag = {.n_nodes = graph->n_nodes, .n_streams = n_streams};
    Builder b = {.graph = graph, .dag = &dag};
    dag.first_edge = new_ints(graph->n_nodes + 1);
    dag.first_edge[0] = 0;
    dag.clocks = new_ints((int64_t)graph->n_nodes * n_streams);
    b.tails = calloc((size_t)n_streams, sizeof(Tail));
    b.joined = calloc((size_t)n_streams, sizeof(bool));
    b.recorded = calloc((size_t)graph->n_records + 1, sizeof(Tail));
    b.carries = calloc((size_t)graph->n_records + 1, sizeof(bool));
    if (!b.tails || !b.joined || !b.recorded || !b.carries) BUG("out of memory for a graph");
    b.joined[0] = true;
    read_log(&b, without);
    count_unjoined(&b);
    for (int s = 0; s < n_streams; s++) free(b.tails[s].nodes);
    for (int r = 0; r < graph->n_records; r++) free(b.recorded[r].nodes);
    free(b.tails), free(b.recorded), free(b.joined), free(b.carries);
    return dag;
}

void fake_dag_free(FakeDag *dag) {
    free(dag->first_edge);
    free(dag->edges);
    free(dag->clocks);
    *dag = (FakeDag){0};
}

static uint64_t next_random(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15); /* SplitMix64 */
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

void fake_dag_shuffle(const FakeDag *dag, uint64_t seed, int *out_order) {
    int n = dag->n_nodes, n_ready = 0, count = 0;
    int n_edges = n ? dag->first_edge[n] : 0;
    int *left = new_ints(n), *ready = new_ints(n), *first = new_ints(n + 2), *after;
    after = new_ints(n_edges);
    /* The edges the other way round. */
    memset(first, 0, (size_t)(n + 2) * sizeof(int));
    for (int e = 0; e < n_edges; e++) first[dag->edges[e] + 2]++;
    for (int i = 0; i < n; i++) first[i + 2] += first[i + 1];
    for (int i = 0; i < n; i++) {
        left[i] = dag->first_edge[i + 1] - dag->first_edge[i];
        if (left[i] == 0) ready[n_ready++] = i;
        for (int e = dag->first_edge[i]; e < dag->first_edge[i + 1]; e++) {
            after[first[dag->edges[e] + 1]++] = i;
        }
    }
    while (n_ready) {
        int k = (int)(next_random(&seed) % (uint64_t)n_ready), node = ready[k];
        ready[k] = ready[--n_ready];
        out_order[count++] = node;
        for (int e = first[node]; e < first[node + 1]; e++) {
            if (--left[after[e]] == 0) ready[n_ready++] = after[e];
        }
    }
    if (count != n) BUG("a captured graph has a circle");
    free(left), free(ready), free(first), free(after);
}

void fake_dag_hurry(const FakeDag *dag, int early, int *out_order) {
    int count = 0, n = dag->n_nodes;
    bool *wanted = calloc((size_t)n + 1, sizeof(bool));
    if (!wanted) BUG("out of memory for %d nodes", n);
    wanted[early] = true;
    for (int i = early; i >= 0; i--) {
        for (int e = dag->first_edge[i]; wanted[i] && e < dag->first_edge[i + 1]; e++) {
            wanted[dag->edges[e]] = true;
        }
    }
    for (int i = 0; i < n; i++) {
        if (wanted[i]) out_order[count++] = i;
    }
    for (int i = 0; i < n; i++) {
        if (!wanted[i]) out_order[count++] = i;
    }
    free(wanted);
}

#endif
