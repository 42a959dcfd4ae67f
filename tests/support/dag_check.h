/* dag_check: proofs about what the fake has captured, by the accesses of the commands that it was
 * issued for.
 *
 * Of operations that touch the same memory, one of them writing, one must come after the other by
 * a path of streams and waits. It is enough to look at each write with the accesses right before
 * and after it: what lies farther apart then follows.
 */
#ifndef TESTS_SUPPORT_DAG_CHECK_H
#define TESTS_SUPPORT_DAG_CHECK_H
#ifdef HAVE_CUDA

#include "tests/support/fake_graph.h"

typedef struct DagPair {
    int before, after; /* nodes, in the order of capture */
} DagPair;

typedef struct DagPairs {
    int count, capacity;
    DagPair *items; /* each once */
} DagPairs;

/* Pairs of different streams that touch the same memory. */
DagPairs dag_find_pairs(const FakeGraph *graph);
void dag_pairs_free(DagPairs *pairs);
/* A pair without a path from one to the other, or -1. */
int dag_find_race(const FakeGraph *graph, const FakeDag *dag, const DagPairs *pairs);

/* Nodes each belong to a command and are what it says, with arguments of the kernel's size; nothing
 * is left outside or not joined; pairs are ordered, and so are messages of one communicator.
 * False: `why` says what is wrong. */
bool dag_check(const FakeGraph *graph, char *why, size_t why_bytes);

/* All ranks give each communicator the same messages in the same order, and sends meet receives. */
bool dag_check_messages(const FakeGraph *const *graphs, int n_graphs, char *why, size_t why_bytes);

/* Runs the graph in the order of its capture, looking at each operation: it must write nothing but
 * what its command says, and must not depend on anything else than what its command says it reads.
 */
bool dag_check_accesses(const FakeGraph *graph, char *why, size_t why_bytes);

#endif
#endif
