/* Graph: SSA nodes over typed values, in execution order; one micro-batch per graph.
 *
 * A node reads Values (output k of an earlier node) and defines up to MAX_OUTPUTS of its own.
 * graph_add checks the node against the op table and infers its types; every pass builds a new
 * graph through it, so an ill-formed graph does not come into being. Nodes belong to the graph's
 * arena. Inputs must already be in the graph: the node order is a topological order.
 */
#ifndef IR_GRAPH_H
#define IR_GRAPH_H

#include "ir/base/arena.h"
#include "ir/base/diag.h"
#include "ir/type.h"

typedef enum OpKind {
#define OP(upper, ...) OP_##upper,
#include "ir/ops.def"
#undef OP
    N_OPS
} OpKind;

typedef enum AttrKey {
#define ATTR(name, kind, help) ATTR_##name,
#include "ir/attrs.def"
#undef ATTR
    N_ATTRS
} AttrKey;

enum { MAX_OUTPUTS = 5, NO_BLOCK = -1 };

typedef struct Node Node;

typedef struct Value {
    Node *node; /* NULL: no value */
    int output;
} Value;

#define NO_VALUE ((Value){0})

typedef struct Attr {
    AttrKey key;
    union {
        int64_t i;     /* INT */
        double f;      /* FLOAT */
        const char *s; /* STRING, owned by the graph's arena */
        int axis;      /* AXIS */
        struct {
            int count;
            int items[MAX_RANK];
        } axes; /* AXES */
    };
} Attr;

/* When in a step a node runs: once per micro-batch forward, once backward, once more for what of
 * the backward only gradients of weights need (split_backward), or once per step. */
typedef enum Phase { PHASE_FORWARD, PHASE_BACKWARD, PHASE_WEIGHTS, PHASE_UPDATE, N_PHASES } Phase;

struct Node {
    int id; /* position in graph->nodes */
    OpKind op;
    int n_inputs, n_outputs, n_attrs;
    Value *inputs;
    Attr *attrs; /* in the order of attrs.def */
    Type types[MAX_OUTPUTS];
    Sharding shardings[MAX_OUTPUTS];
    Phase phase;
    int block; /* the model block (layer) it belongs to, or NO_BLOCK; unit of pipeline cuts and of
                  recomputation */
    int chunk; /* pipeline chunk, 0 before split_stages */
    SourceLoc loc;
};

/* The heads of layers with a state that c divides: groups of them, those of each group, or none. */
typedef enum StateSplit { SPLIT_NOTHING, SPLIT_GROUPS, SPLIT_HEADS } StateSplit;

typedef struct Graph {
    Arena *arena; /* not owned */
    const char *name;
    AxisTable axes;
    Mesh mesh; /* all sizes 1 until sharding is known */
    unsigned
        shared_heads; /* kinds of heads of which each rank of t has all: planner/passes/pass.h */
    StateSplit state_split; /* what c divides of layers with a state, the same */
    int n_nodes, capacity;
    Node **nodes;
} Graph;

/* What graph_add needs to know; types only for ops whose row says TYPED. */
typedef struct NodeSpec {
    OpKind op;
    const Value *inputs;
    int n_inputs;
    const Attr *attrs;
    int n_attrs;
    const Type *type;
    int n_outputs; /* only for ops with VARIADIC_OUT */
    Phase phase;
    int block, chunk;
    SourceLoc loc;
} NodeSpec;

Graph *graph_create(Arena *arena, const char *name);
/* An empty graph with the same name, axes and mesh. */
Graph *graph_create_like(const Graph *graph, Arena *arena);

/* The same graph in `arena`, with names and files, and nothing that was beside it in its own. */
Graph *graph_copy(const Graph *graph, Arena *arena);

/* Index of the axis, added if new; -1 when the table is full or the name is not an identifier. */
int graph_axis(Graph *graph, const char *name, int length);

/* Appends a node. On a mistake reports it at spec->loc and returns NULL. */
Node *graph_add(Graph *graph, const NodeSpec *spec, Diag *diag);
/* A copy of `node` (of any graph with the same axes) with other inputs; shardings are kept. */
Node *graph_copy_node(Graph *graph, const Node *node, const Value *inputs, Diag *diag);

static inline const Type *value_type(Value value) {
    return &value.node->types[value.output];
}
static inline Sharding *value_sharding(Value value) {
    return &value.node->shardings[value.output];
}
static inline Value node_value(Node *node, int output) {
    return (Value){node, output};
}
static inline bool value_equal(Value a, Value b) {
    return a.node == b.node && a.output == b.output;
}

const Attr *node_attr(const Node *node, AttrKey key); /* NULL: absent */
int64_t node_int(const Node *node, AttrKey key, int64_t absent);
double node_float(const Node *node, AttrKey key, double absent);
const char *node_string(const Node *node, AttrKey key);  /* "" when absent */
int node_axis(const Node *node, AttrKey key);            /* -1 when absent */
bool node_over(const Node *node, AttrKey key, int axis); /* is `axis` in the AXES attribute? */

bool attr_equal(const Attr *a, const Attr *b);
Attr attr_int(AttrKey key, int64_t value);
Attr attr_float(AttrKey key, double value);
Attr attr_string(AttrKey key, const char *value);
Attr attr_axis(AttrKey key, int axis);
Attr attr_axes(AttrKey key, const int *axes, int count);

/* The logical name of a leaf: its '#' replaced by the block number (first_block + node->block). */
const char *node_logical_name(const Node *node, int first_block, Arena *arena);

/* How many nodes read each output: counts[node->id * MAX_OUTPUTS + output]. */
int *graph_count_uses(const Graph *graph, Arena *arena);

/* Text. print(parse(print(g))) == print(g). */
void graph_print(StrBuf *out, const Graph *graph);
void node_print(StrBuf *out, const Graph *graph, const Node *node);
/* Parses one graph from untrusted text; *cursor moves past it, *line counts on. NULL: reported. */
Graph *graph_parse(Arena *arena, const char *file, const char **cursor, int *line, Diag *diag);

/* Re-runs inference on every node and compares; checks order, uses and attributes. */
bool graph_verify(const Graph *graph, Diag *diag);

/* How many tokens of a sample an encoder reads beside a decoder's: the length of the input `source`
 * i32[batch, (lane,) source]; 0: there is none. */
int64_t graph_source(const Graph *graph);

/* The axis of an input [batch, lane, ...]: sequence i of a micro-batch is in lane i mod lanes. How
 * many lanes there are; without such an input, as programs of later stages are, 1. */
#define AXIS_LANE "lane"
int64_t graph_lanes(const Graph *graph);
/* Has the graph, or what it is a part of, several lanes? */
bool graph_has_lanes(const Graph *graph);

#endif
