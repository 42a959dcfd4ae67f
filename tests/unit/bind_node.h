/* One node bound for a GPU, and nothing run: which kernels it would launch, on how many threads. */
#ifndef TESTS_UNIT_BIND_NODE_H
#define TESTS_UNIT_BIND_NODE_H

#include "runtime/cuda/bind.h"
#include "runtime/cuda/kernels/args.h"

/* Addresses of operands and results: far apart, never followed. */
static inline char *bind_place(int i) {
    return (char *)((uintptr_t)(i + 1) << 44);
}

/* What the last node of a graph would launch goes to the emitter's list. Reports, returns false. */
static inline bool bind_last_node(const Graph *graph, CudaEmitter *emitter, Arena *arena,
                                  Diag *diag) {
    Node *node = graph->nodes[graph->n_nodes - 1];
    Binding b = {.graph = graph,
                 .node = node,
                 .arena = arena,
                 .diag = diag,
                 .n_micro = 1,
                 .in = ARENA_ARRAY(arena, void *, node->n_inputs + 1),
                 .in_local = ARENA_ARRAY(arena, Type, node->n_inputs + 1),
                 .backend = emitter};
    for (int i = 0; i < node->n_inputs; i++) {
        b.in[i] = bind_place(i);
        b.in_local[i] = *value_type(node->inputs[i]);
    }
    for (int o = 0; o < node->n_outputs; o++) {
        b.out[o] = bind_place(node->n_inputs + o);
        b.out_local[o] = node->types[o];
    }
    b.workspace = bind_place(node->n_inputs + node->n_outputs);
    b.workspace_bytes = cuda_workspace_bytes(node, b.in_local, b.out_local);
    return cuda_bind(&b);
}

#endif
