/* Measuring kernels through the binders that training uses: a node by hand, its commands, replayed.
 */
#include "runtime/cuda/driver/measure.h"

#include "runtime/cuda/bind.h"
#include "runtime/cuda/codegen.h"
#include "runtime/cuda/driver/attention_choice.h"

#include <math.h>
#include <string.h>

static int64_t align(int64_t bytes) {
    return (bytes + 255) / 256 * 256;
}

/* Own kernels' workspace, or what a library may use. */
static int64_t workspace_bytes(const CudaMeasure *measure, const Binding *b) {
    int64_t own = cuda_workspace_bytes(b->node, b->in_local, b->out_local);
    int64_t left = measure->memory + measure->memory_bytes - (unsigned char *)b->workspace;
    int64_t most = left < LIBRARY_WORKSPACE ? left : LIBRARY_WORKSPACE;
    return own > most ? own : most;
}

static int64_t bytes_of(const Type *type) {
    return align(type_bytes(type));
}

static Value add_input(Graph *graph, const Type *type, Diag *diag) {
    Attr name = attr_string(ATTR_name, "operand");
    NodeSpec spec = {.op = OP_INPUT, .attrs = &name, .n_attrs = 1, .type = type, .block = NO_BLOCK};
    Node *node = graph_add(graph, &spec, diag);
    return node ? node_value(node, 0) : NO_VALUE;
}

static bool is_updated(const Node *node, int operand) {
    for (int o = 0; o < node->n_outputs; o++) {
        if (op_alias(node, o) == operand) return true;
    }
    return false;
}

/* Operands, results and workspace one after the other in the memory, or, where in_place, what is
 * updated in the host's; false: too large, or there is no kernel for it. */
static bool bind_node(CudaMeasure *measure, Graph *graph, Node *node, bool in_place,
                      CommandList *list, Diag *diag) {
    unsigned char *at = measure->memory, *on_host = measure->host;
    const Plan plan = {.mesh = graph->mesh, .n_micro = 1, .n_stages = 1};
    AttentionChoice choice = {.device = &measure->device,
                              .table = measure->context.attentions,
                              .arena = measure->arena,
                              .silent = true};
    const AttentionCheck attention = {.choose = attention_choose, .user = &choice};
    CudaEmitter emitter = {.list = list,
                           .state = measure->state,
                           .generated = kernel_cache_create(measure->arena),
                           .plan = &plan,
                           .attention = &attention};
    Binding b = {.graph = graph,
                 .node = node,
                 .arena = measure->arena,
                 .diag = diag,
                 .block = NO_BLOCK,
                 .n_micro = 1,
                 .backend = &emitter};
    b.in = ARENA_ARRAY(measure->arena, void *, node->n_inputs);
    b.in_local = ARENA_ARRAY(measure->arena, Type, node->n_inputs);
    for (int i = 0; i < node->n_inputs; i++) {
        b.in_local[i] = *value_type(node->inputs[i]);
        unsigned char **to = in_place && is_updated(node, i) ? &on_host : &at;
        b.in[i] = *to;
        *to += bytes_of(&b.in_local[i]);
    }
    for (int o = 0; o < node->n_outputs; o++) {
        int alias = in_place ? op_alias(node, o) : -1;
        b.out_local[o] = node->types[o];
        b.out[o] = alias >= 0 ? b.in[alias] : at;
        if (alias < 0) at += bytes_of(&b.out_local[o]);
    }
    b.workspace = at;
    b.workspace_bytes = workspace_bytes(measure, &b);
    at += b.workspace_bytes;
    return at <= measure->memory + measure->memory_bytes && cuda_bind(&b);
}

static bool issue_replay(void *user, Diag *diag) {
    return replay_issue(user, NULL, NULL, NULL, diag);
}

/* -1: reported. */
static double time_node(CudaMeasure *measure, Graph *graph, const NodeSpec *spec, bool in_place,
                        Diag *diag) {
    CommandList list = {0};
    Replay replay;
    double us = -1;
    Node *node = graph_add(graph, spec, diag);
    if (node && bind_node(measure, graph, node, in_place, &list, diag)) {
        for (int i = 0; i < list.count; i++) list.items[i].stream = STREAM_COMPUTE;
        if (replay_prepare(&replay, &measure->context, &list, diag)) {
            us = cuda_measure_graph(measure, issue_replay, &replay, diag);
        }
        replay_destroy(&replay);
    }
    command_list_release(&list);
    return us;
}

typedef struct AttentionGraph {
    Graph *graph;
    Value inputs[6]; /* q, k, v, o, lse, do */
    Attr attrs[4];
} AttentionGraph;

static bool make_attention(CudaMeasure *measure, const ProfileAttention *row, AttentionGraph *out,
                           Diag *diag) {
    static const char *const AXES[] = {"batch", "seq", "kv_heads", "head"};
    const int64_t dims[] = {row->batch, row->seq, row->heads, row->head};
    Type q = {.dtype = row->bf16 ? DTYPE_BF16 : DTYPE_F32, .rank = 4};
    out->graph = graph_create(measure->arena, "attention");
    for (int i = 0; i < 4; i++) {
        q.axes[i] = graph_axis(out->graph, AXES[i], (int)strlen(AXES[i]));
        q.dims[i] = dims[i];
    }
    Type lse = q;
    lse.dtype = DTYPE_F32;
    lse.rank = 3;
    for (int i = 0; i < 6; i++) {
        out->inputs[i] = add_input(out->graph, i == 4 ? &lse : &q, diag);
        if (!out->inputs[i].node) return false;
    }
    out->attrs[0] = attr_axis(ATTR_seq, q.axes[1]);
    out->attrs[1] = attr_axis(ATTR_head, q.axes[3]);
    out->attrs[2] = attr_int(ATTR_causal, 1);
    out->attrs[3] = attr_float(ATTR_scale, 1 / sqrt((double)row->head));
    return true;
}

int64_t cuda_measure_attention_bytes(const ProfileAttention *row) {
    int64_t elements = measure_attention_elements(row);
    /* Eight operands and results like q, lse, and as much again of f32 for the workspace, or what
     * plans leave for cuDNN's. */
    return elements * (8 * (row->bf16 ? 2 : 4) + 8) + 16 * 256 + ATTENTION_ROOM_BYTES;
}

void cuda_measure_attention(CudaMeasure *measure, ProfileAttention *row) {
    Diag *ignored = diag_create(); /* without a kernel for it the row is left out */
    AttentionGraph attention;
    NodeSpec spec = {.op = OP_ATTENTION,
                     .inputs = attention.inputs,
                     .n_inputs = 3,
                     .attrs = attention.attrs,
                     .n_attrs = 4,
                     .block = NO_BLOCK};
    if (make_attention(measure, row, &attention, ignored)) {
        row->forward_us = time_node(measure, attention.graph, &spec, false, ignored);
        spec.op = OP_ATTENTION_GRAD;
        spec.n_inputs = 6;
        spec.phase = PHASE_BACKWARD;
        if (row->forward_us > 0) {
            row->backward_us = time_node(measure, attention.graph, &spec, false, ignored);
        }
    }
    diag_destroy(ignored);
}

double cuda_measure_triad(CudaMeasure *measure, int64_t bytes, Diag *diag) {
    Graph *graph = graph_create(measure->arena, "triad");
    Type type = {.dtype = DTYPE_F32, .rank = 1};
    type.axes[0] = graph_axis(graph, "element", 7);
    type.dims[0] = bytes / 3 / (int64_t)sizeof(float);
    Value inputs[2] = {add_input(graph, &type, diag), add_input(graph, &type, diag)};
    NodeSpec spec = {.op = OP_ADD_N, .inputs = inputs, .n_inputs = 2, .block = NO_BLOCK};
    return inputs[0].node && inputs[1].node ? time_node(measure, graph, &spec, false, diag) : -1;
}

void cuda_measure_host(CudaMeasure *measure, ProfileHost *row) {
    enum { P, G, M, V, SCALE, RATE, STEP, N_OPERANDS };
    Diag *ignored = diag_create(); /* a row that cannot be measured is dropped */
    Graph *graph = graph_create(measure->arena, "update");
    Type number = {.dtype = DTYPE_F32}, type = {.dtype = DTYPE_F32, .rank = 1};
    type.axes[0] = graph_axis(graph, "element", 7);
    type.dims[0] = row->bytes / 3 / (int64_t)sizeof(float);
    Value inputs[N_OPERANDS];
    bool there = true;
    for (int i = 0; i < N_OPERANDS; i++) {
        inputs[i] = add_input(graph, i < SCALE ? &type : &number, ignored);
        there &= inputs[i].node != NULL;
    }
    const Attr attrs[] = {attr_float(ATTR_beta1, 0.9), attr_float(ATTR_beta2, 0.95),
                          attr_float(ATTR_eps, 1e-8), attr_float(ATTR_weight_decay, 0)};
    NodeSpec spec = {.op = OP_ADAMW,
                     .inputs = inputs,
                     .n_inputs = N_OPERANDS,
                     .attrs = attrs,
                     .n_attrs = sizeof(attrs) / sizeof(attrs[0]),
                     .n_outputs = 3,
                     .phase = PHASE_UPDATE,
                     .block = NO_BLOCK};
    if (there) row->us = time_node(measure, graph, &spec, true, ignored);
    diag_destroy(ignored);
}
