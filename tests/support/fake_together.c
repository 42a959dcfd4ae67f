#ifdef HAVE_CUDA

/* Graphs of several ranks run together, a message when all its members have come to it. */
#include "runtime/cpu/vec_low.h"
#include "tests/support/fake_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static DType dtype_of(const FakeMessage *m) {
    return m->dtype == ncclFloat32 ? DTYPE_F32 : m->dtype == ncclFloat16 ? DTYPE_F16 : DTYPE_BF16;
}

static size_t bytes_of(const FakeMessage *m) {
    return m->count * (size_t)fake_nccl_bytes(m->dtype);
}

static bool match(const FakeMessage *first, const FakeMessage *other) {
    bool fine = first->count == other->count && first->dtype == other->dtype;
    if (first->kind == FAKE_SEND || first->kind == FAKE_RECV) {
        fine &= first->kind + other->kind == FAKE_SEND + FAKE_RECV && first->n_members == 2;
    } else {
        fine &= first->kind == other->kind && first->op == other->op;
    }
    if (!fine) {
        fake_defect("communicator %d: rank %d and rank %d come with messages that do not match",
                    first->group, first->rank, other->rank);
    }
    return fine;
}

/* Element i of the reduction over all members, in their order. */
static float reduce(const FakeMessage *const *members, size_t i) {
    const FakeMessage *first = members[0];
    float sum = vec_get(first->in, dtype_of(first), (int64_t)i);
    for (int k = 1; k < first->n_members; k++) {
        float x = vec_get(members[k]->in, dtype_of(first), (int64_t)i);
        sum = first->op == ncclSum ? sum + x : isnan(x) || x > sum ? x : sum;
    }
    return sum;
}

/* members[n]: the messages of rank 0, 1, .. */
static bool run_one(const FakeMessage *const *members) {
    const FakeMessage *first = members[0];
    int n = first->n_members;
    size_t bytes = bytes_of(first), parts = first->kind == FAKE_REDUCE_SCATTER ? (size_t)n : 1;
    for (int k = 1; k < n; k++) {
        if (!match(first, members[k])) return false;
    }
    if (first->kind == FAKE_SEND || first->kind == FAKE_RECV) {
        const FakeMessage *send = first->kind == FAKE_SEND ? first : members[1];
        const FakeMessage *recv = first->kind == FAKE_SEND ? members[1] : first;
        memmove(recv->out, send->in, bytes);
        return true;
    }
    if (first->kind == FAKE_ALL_TO_ALL) {
        for (int k = 0; k < n * n; k++) { /* operands and results lie apart */
            const FakeMessage *from = members[k / n], *to = members[k % n];
            memmove((char *)to->out + (size_t)(k / n) * bytes,
                    (const char *)from->in + (size_t)(k % n) * bytes, bytes);
        }
        return true;
    }
    /* Results may lie on operands: they are complete before any is written. */
    unsigned char *whole = malloc(first->kind == FAKE_ALL_REDUCE ? bytes : bytes * (size_t)n);
    if (!whole) BUG("out of memory for a message");
    if (first->kind == FAKE_ALL_GATHER) {
        for (int k = 0; k < n; k++) memcpy(whole + (size_t)k * bytes, members[k]->in, bytes);
    } else {
        for (size_t i = 0; i < first->count * parts; i++) {
            vec_put(whole, dtype_of(first), (int64_t)i, reduce(members, i));
        }
    }
    for (int k = 0; k < n; k++) {
        size_t from = first->kind == FAKE_REDUCE_SCATTER ? (size_t)k * bytes : 0;
        size_t length = first->kind == FAKE_ALL_GATHER ? bytes * (size_t)n : bytes;
        memcpy(members[k]->out, whole + from, length);
    }
    free(whole);
    return true;
}

/* Of a group, in the opposite order: nothing may depend on it. members[n]: nodes of rank 0, 1, ..
 */
bool fake_run_messages(const FakeNode *const *members) {
    const FakeMessage *first = &members[0]->message;
    int n = first->n_members;
    const FakeMessage **of = malloc((size_t)n * sizeof(*of));
    bool good = true;
    if (!of) BUG("out of memory for a message");
    for (int i = first->n_more; i >= 0 && good; i--) {
        for (int k = 0; k < n && good; k++) {
            const FakeMessage *message = &members[k]->message;
            good = message->n_more == first->n_more;
            if (!good) fake_defect("communicator %d: groups of other sizes meet", first->group);
            of[k] = i == 0 || !good ? message : &message->more[i - 1];
        }
        good = good && run_one(of);
    }
    free(of);
    return good;
}

/* One rank's graph while all run: nodes in a random order that it allows; one whose message waits
 * for others holds up only what comes after it. */
typedef struct Running {
    const FakeGraph *graph;
    FakeDag dag;
    int *order; /* [n_nodes]: those not done yet come first */
    int n_left;
    bool *done;
    bool *begun; /* of messages: its turn has come */
    int n_begun; /* up to this node all messages have */
} Running;

typedef struct Together {
    int n_graphs;
    Running *running;
    const FakeNode **arrived; /* [group][rank]: stands at its next message, or NULL */
    int most_members;
    bool ordered; /* as NCCL_LAUNCH_ORDER_IMPLICIT=1 has it: a rank's messages begin in their order
                   */
    int n_begun;  /* of all ranks */
} Together;

static bool is_ready(const Running *r, int node) {
    for (int e = r->dag.first_edge[node]; e < r->dag.first_edge[node + 1]; e++) {
        if (!r->done[r->dag.edges[e]]) return false;
    }
    return true;
}

/* Rank 0's node of the group, where all members have come; NULL: not yet. */
static const FakeNode **all_arrived(Together *t, const FakeMessage *message) {
    const FakeNode **members = &t->arrived[message->group * t->most_members];
    for (int k = 0; k < message->n_members; k++) {
        if (!members[k]) return NULL;
    }
    return members;
}

static bool may_begin(const Together *t, Running *r, int node) {
    for (; t->ordered && r->n_begun < node; r->n_begun++) {
        const FakeNode *n = &r->graph->nodes[r->n_begun];
        if (n->kind == FAKE_NCCL && n->message.n_members > 1 && !r->begun[r->n_begun]) return false;
    }
    return true;
}

/* -1: failed; 0: waits; 1: done. */
static int try_node(Together *t, Running *r, int node) {
    const FakeNode *n = &r->graph->nodes[node];
    if (n->kind != FAKE_NCCL || n->message.n_members == 1) return fake_cuda_run_node(n) ? 1 : -1;
    if (!may_begin(t, r, node)) return 0;
    t->n_begun += !r->begun[node];
    r->begun[node] = true;
    const FakeMessage *m = &n->message;
    const FakeNode **mine = &t->arrived[m->group * t->most_members + m->rank];
    if (*mine && *mine != n) {
        fake_defect("communicator %d: rank %d comes to two messages at once", m->group, m->rank);
        return -1;
    }
    *mine = n;
    const FakeNode **members = all_arrived(t, m);
    if (!members) return 0;
    if (!fake_run_messages(members)) return -1;
    return 1;
}

/* After a message has run: the other members' nodes are done too. */
static void finish_message(Together *t, const FakeMessage *message) {
    const FakeNode **members = &t->arrived[message->group * t->most_members];
    for (int g = 0; g < t->n_graphs; g++) {
        Running *r = &t->running[g];
        for (int k = 0; k < message->n_members; k++) {
            const FakeNode *first = r->graph->nodes;
            if (members[k] >= first && members[k] < first + r->graph->n_nodes) {
                r->done[members[k] - first] = true;
            }
        }
    }
    for (int k = 0; k < message->n_members; k++) members[k] = NULL;
}

/* Goes once through what is left of a graph. Returns how many ran; -1: failed. */
static int advance(Together *t, Running *r) {
    int n_kept = 0, n_ran = 0;
    for (int i = 0; i < r->n_left; i++) {
        int node = r->order[i], ran = 0;
        if (r->done[node]) continue;
        if (is_ready(r, node)) ran = try_node(t, r, node);
        if (ran < 0) return -1;
        if (ran) {
            const FakeNode *n = &r->graph->nodes[node];
            r->done[node] = true;
            n_ran++;
            if (n->kind == FAKE_NCCL && n->message.n_members > 1) finish_message(t, &n->message);
        } else {
            r->order[n_kept++] = node;
        }
    }
    r->n_left = n_kept;
    return n_ran;
}

static bool run_all(Together *t) {
    for (;;) {
        int n_ran = 0, n_left = 0, n_begun = t->n_begun;
        for (int g = 0; g < t->n_graphs; g++) {
            int n = advance(t, &t->running[g]);
            if (n < 0) return false;
            n_ran += n;
            n_left += t->running[g].n_left;
        }
        if (n_left == 0) return true;
        if (n_ran || t->n_begun > n_begun) continue;
        fake_defect("all ranks wait for each other, with %d operations left", n_left);
        return false;
    }
}

bool fake_cuda_launch_together(const FakeGraph *const *graphs, int n_graphs, uint64_t seed) {
    const char *order = getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
    Together t = {
        .n_graphs = n_graphs, .most_members = 1, .ordered = order && strcmp(order, "1") == 0};
    t.running = calloc((size_t)n_graphs, sizeof(Running));
    if (!t.running) BUG("out of memory");
    for (int g = 0; g < n_graphs; g++) {
        Running *r = &t.running[g];
        r->graph = graphs[g];
        r->n_left = graphs[g]->n_nodes;
        r->dag = fake_dag_build(graphs[g], -1);
        r->order = malloc((size_t)r->n_left * sizeof(int) + 1);
        r->done = calloc((size_t)r->n_left + 1, sizeof(bool));
        r->begun = calloc((size_t)r->n_left + 1, sizeof(bool));
        if (!r->order || !r->done || !r->begun) BUG("out of memory");
        fake_dag_shuffle(&r->dag, seed * 31 + (uint64_t)g, r->order);
        for (int i = 0; i < r->n_left; i++) {
            const FakeNode *node = &graphs[g]->nodes[i];
            if (node->kind == FAKE_NCCL && node->message.n_members > t.most_members) {
                t.most_members = node->message.n_members;
            }
        }
    }
    t.arrived = calloc((size_t)(fake->n_ids * t.most_members) + 1, sizeof(*t.arrived));
    if (!t.arrived) BUG("out of memory");
    bool good = run_all(&t);
    for (int g = 0; g < n_graphs; g++) {
        fake_dag_free(&t.running[g].dag);
        free(t.running[g].order);
        free(t.running[g].done);
        free(t.running[g].begun);
    }
    free(t.running);
    free(t.arrived);
    return good;
}

#endif
