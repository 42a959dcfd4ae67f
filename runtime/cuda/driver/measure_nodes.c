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

/* Operands, results and workspace one after the other in the memory; false: too large, or there is
 * no kernel for it. */
static bool bind_node(CudaMeasure *measure, Graph *graph, Node *node, CommandList *list,
                      Diag *diag) {
    unsigned char *at = measure->memory;
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
        b.in[i] = at;
        at += bytes_of(&b.in_local[i]);
    }
    for (int o = 0; o < node->n_outputs; o++) {
        b.out_local[o] = node->types[o];
        b.out[o] = at;
        at += bytes_of(&b.out_local[o]);
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
static double time_node(CudaMeasure *measure, Graph *graph, const NodeSpec *spec, Diag *diag) {
    CommandList list = {0};
    Replay replay;
    double us = -1;
    Node *node = graph_add(graph, spec, diag);
    if (node && bind_node(measure, graph, node, &list, diag)) {
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
        row->forward_us = time_node(measure, attention.graph, &spec, ignored);
        spec.op = OP_ATTENTION_GRAD;
        spec.n_inputs = 6;
        spec.phase = PHASE_BACKWARD;
        if (row->forward_us > 0) {
            row->backward_us = time_node(measure, attention.graph, &spec, ignored);
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
    return inputs[0].node && inputs[1].node ? time_node(measure, graph, &spec, diag) : -1;
}
