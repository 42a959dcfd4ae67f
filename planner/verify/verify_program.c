/* One program: what each node is, where its values lie, and that every read finds what it expects.
 */
#include "planner/plan/offload.h"
#include "planner/verify/verify.h"

#include <string.h>

typedef struct ProgramVerifier {
    Verifier *v;
    int stage;
    const Program *program;
    const Graph *graph;
    int64_t workspace_bytes; /* at the end of scratch, no value's */
    bool *gathered;          /* by id: what is done once a step writes all of the leaf */
    bool *on_host;           /* by id of a leaf: may it lie in the host's memory? */
    bool sound;
} ProgramVerifier;

static const char *where(ProgramVerifier *pv) {
    return verify_stage_text(pv->v, pv->stage);
}

static const char *text(ProgramVerifier *pv, Value value) {
    return verify_value_text(pv->v, pv->stage, value);
}

#define DEFECT(pv, node, format, ...)                                                              \
    do {                                                                                           \
        (pv)->sound = false;                                                                       \
        verify_defect((pv)->v, (node)->loc, "%s: " format, where(pv), __VA_ARGS__);                \
    } while (0)

static void check_collective(ProgramVerifier *pv, const Node *node) {
    Value value = {(Node *)node, 0};
    if (node->op == OP_STAGE_REDUCE) {
        if (node->phase != PHASE_UPDATE) {
            DEFECT(pv, node, "%s: reduces over stages outside the update", text(pv, value));
        }
        return;
    }
    const char *name = node_string(node, ATTR_mesh);
    int axis = mesh_axis_find(name, (int)strlen(name));
    if (axis < 0) {
        DEFECT(pv, node, "%s: there is no mesh axis '%s'", text(pv, value), name);
    } else if (axis >= N_MESH_AXES && node->op != OP_SLICE &&
               !mesh_has_messages(&pv->graph->mesh, axis)) {
        DEFECT(pv, node, "%s: there are no messages over '%s' here", text(pv, value), name);
    } else if (axis == MESH_P && (node->phase != PHASE_UPDATE || node->op != OP_ALL_REDUCE)) {
        /* Stages run their forwards and backwards at different times. */
        DEFECT(pv, node, "%s: over the pipeline there is only all_reduce, in the update",
               text(pv, value));
    }
}

static void check_dealt(ProgramVerifier *pv, const Node *node, Value value) {
    const Type *type = value_type(value);
    for (int i = 0; i < type->rank; i++) {
        if (!mesh_deals(value_sharding(value)->mesh[i])) continue;
        if (!op_counts_along(node, type->axes[i])) continue;
        DEFECT(pv, node, "%s: counts along axis '%s' of %s, which c deals out",
               text(pv, (Value){(Node *)node, 0}), pv->graph->axes.names[type->axes[i]],
               text(pv, value));
        return;
    }
}

/* What is done once a step is a weight's way from shards to its copy: a cast of a leaf, which
 * nothing else reads, and a gather over the copy, both in a forward. No other gather writes over
 * anything before the update. */
static void check_once(ProgramVerifier *pv, const Node *node) {
    Value value = {(Node *)node, 0};
    bool gather = node->op == OP_ALL_GATHER;
    if (!node_is_once(node)) {
        if (gather && node->n_inputs == 2 && node->phase != PHASE_UPDATE) {
            DEFECT(pv, node, "%s: writes over %s for each micro-batch", text(pv, value),
                   text(pv, node->inputs[1]));
        }
        return;
    }
    const Node *from = node->inputs[0].node;
    bool fits = node->phase == PHASE_FORWARD && (gather ? node->n_inputs == 2 : true);
    fits = fits && node_int(node, ATTR_once, 0) == 1;
    fits = fits && (gather ? (op_is_cast(from->op) || from->op == OP_ROUND_BLOCKS) &&
                                 node_is_once(from) && from->chunk == node->chunk
                           : (OPS[from->op].flags & PERSISTENT) != 0);
    if (!fits) {
        DEFECT(pv, node, "%s: is done once a step, and is no part of a weight's way to its copy",
               text(pv, value));
    }
}

static void find_gathered(ProgramVerifier *pv) {
    pv->gathered = ARENA_ARRAY(pv->v->scratch, bool, pv->graph->n_nodes + 1);
    for (int n = 0; n < pv->graph->n_nodes; n++) {
        const Node *node = pv->graph->nodes[n];
        bool over = node->op == OP_ALL_GATHER && node->n_inputs == 2;
        if (over && node_is_once(node)) pv->gathered[node->inputs[1].node->id] = true;
    }
}

/* It is there from its own chunk's first forward on, before which no later chunk's comes. The leaf
 * that it is gathered into has the step before's until then, and is read by no other node. */
static void check_reads_once(ProgramVerifier *pv, const Node *node, Value value) {
    const Node *from = value.node;
    bool gather = node->op == OP_ALL_GATHER && node_is_once(node);
    if (pv->gathered[from->id] && !gather) {
        DEFECT(pv, node, "%s: reads %s as the step before left it",
               text(pv, (Value){(Node *)node, 0}), text(pv, value));
    }
    if (!node_is_once(from)) return;
    bool whole = from->op == OP_ALL_GATHER;
    bool fits = whole ? node->chunk >= from->chunk && node->phase != PHASE_UPDATE : gather;
    if (fits) return;
    DEFECT(pv, node, "%s: reads %s, which is done once a step in chunk %d",
           text(pv, (Value){(Node *)node, 0}), text(pv, value), from->chunk);
}

static void check_node(ProgramVerifier *pv, const Node *node) {
    check_once(pv, node);
    for (int i = 0; i < node->n_inputs; i++) check_reads_once(pv, node, node->inputs[i]);
    pv->sound &= verify_division(pv->v, pv->stage, node);
    for (int i = 0; i < node->n_inputs; i++) check_dealt(pv, node, node->inputs[i]);
    for (int o = 0; o < node->n_outputs; o++) check_dealt(pv, node, (Value){(Node *)node, o});
    const OpInfo *op = &OPS[node->op];
    Value value = {(Node *)node, 0};
    bool border = node->op == OP_SEND || node->op == OP_RECV;
    if (!(op->flags & (KERNEL | LEAF)) && node->op != OP_OUTPUT && node->op != OP_SEND) {
        DEFECT(pv, node, "%s: no kernel does this op", text(pv, value));
    }
    if (attention_sinks(node) >= 0) {
        DEFECT(pv, node, "%s: no kernel knows sinks, which planning makes other ops of",
               text(pv, value));
    }
    if (op_decodes(node->op) && pv->v->plan->context == 0) {
        DEFECT(pv, node, "%s: training has no cache", text(pv, value));
    }
    if (node->chunk < 0 || node->chunk >= pv->v->plan->n_chunks) {
        DEFECT(pv, node, "%s: is in chunk %d of %d", text(pv, value), node->chunk,
               pv->v->plan->n_chunks);
    }
    if (border && node->phase > PHASE_BACKWARD) {
        DEFECT(pv, node, "%s: a message to or from a stage in the %s", text(pv, value),
               node->phase == PHASE_UPDATE ? "update" : "weights' part of a backward");
    }
    const char *scales = verify_scales(pv->graph, node);
    if (scales) DEFECT(pv, node, "%s: %s", text(pv, value), scales);
    if (node_attr(node, ATTR_mesh) || node->op == OP_STAGE_REDUCE) check_collective(pv, node);
}

static int64_t region_bytes(const ProgramVerifier *pv, const Buffer *buffer) {
    const Program *program = pv->program;
    switch (buffer->region) {
    case REGION_PERSISTENT: return program->persistent_bytes;
    case REGION_FRAME: return program->frame_bytes[buffer->chunk];
    case REGION_SCRATCH: return program->scratch_bytes - pv->workspace_bytes;
    case REGION_HOST: return program->host_bytes;
    case REGION_HOST_FRAME: return program->host_frame_bytes[buffer->chunk];
    default: return 0;
    }
}

/* A gradient that goes to an earlier chunk of the stage lies in that one's frame (verify_stage.c
 * proves that it is there). */
static bool may_lie_in_frame(const Node *node, int chunk) {
    if (node->phase == PHASE_UPDATE) return false;
    return node->chunk == chunk || (node->phase == PHASE_BACKWARD && chunk < node->chunk);
}

/* The leaf whose memory the value has, updated in place or not; NULL: it has its own. */
static const Node *leaf_of(Value value) {
    for (;;) {
        if (OPS[value.node->op].flags & PERSISTENT) return value.node;
        int alias = op_alias(value.node, value.output);
        if (alias < 0) return NULL;
        value = value.node->inputs[alias];
    }
}

static bool is_persistent(Value value) {
    return leaf_of(value) != NULL;
}

static bool region_persists(Region region) {
    return region == REGION_PERSISTENT || region == REGION_HOST;
}

/* The leaf's memory alone: what a node writes in place must lie where it is. */
static bool may_lie_on_host(const ProgramVerifier *pv, Value value) {
    const Node *leaf = leaf_of(value);
    return leaf && pv->on_host[leaf->id];
}

static void check_buffer(ProgramVerifier *pv, const Node *node, int output) {
    const Buffer *b = &pv->program->buffers[node->id * MAX_OUTPUTS + output];
    Value value = {(Node *)node, output};
    int64_t bytes =
        type_local_bytes(&node->types[output], &node->shardings[output], &pv->graph->mesh);
    if ((int)b->region <= REGION_NONE || (int)b->region >= N_REGIONS ||
        (int)b->class >= N_BUFFER_CLASSES) {
        DEFECT(pv, node, "%s: has no place in memory", text(pv, value));
    } else if ((b->region == REGION_HOST_FRAME) != (node->op == OP_OFFLOAD)) {
        DEFECT(pv, node, "%s: %s", text(pv, value),
               node->op == OP_OFFLOAD ? "is to lie in the host's memory, and does not"
                                      : "lies in a frame in the host's memory, and is no copy");
    } else if (node->op == OP_OFFLOAD &&
               (node->phase != PHASE_FORWARD || b->chunk != node->chunk)) {
        DEFECT(pv, node, "%s: goes to a frame of chunk %d, and is made in %s", text(pv, value),
               b->chunk, verify_segment_text(pv->v, node));
    } else if (b->region == REGION_FRAME && !may_lie_in_frame(node, b->chunk)) {
        DEFECT(pv, node, "%s: lies in a frame of chunk %d but is made in %s", text(pv, value),
               b->chunk, verify_segment_text(pv->v, node));
    } else if (b->region == REGION_HOST && !may_lie_on_host(pv, value)) {
        DEFECT(pv, node, "%s: lies in the host's memory, and is not the update's alone",
               text(pv, value));
    } else if ((OPS[node->op].flags & PERSISTENT) && !region_persists(b->region)) {
        DEFECT(pv, node, "%s: lives across steps but lies in the %s region", text(pv, value),
               region_name(b->region));
    } else if (b->offset_bytes < 0 || b->offset_bytes % ALIGN_BYTES) {
        DEFECT(pv, node, "%s: offset %lld is no multiple of %d", text(pv, value),
               (long long)b->offset_bytes, ALIGN_BYTES);
    } else if (b->bytes != bytes) {
        DEFECT(pv, node, "%s: its buffer has %lld bytes, its type %lld", text(pv, value),
               (long long)b->bytes, (long long)bytes);
    } else if (b->offset_bytes > region_bytes(pv, b) - bytes) {
        DEFECT(pv, node, "%s: bytes %lld to %lld are outside its region: %s has %lld",
               text(pv, value), (long long)b->offset_bytes, (long long)(b->offset_bytes + bytes),
               region_name(b->region), (long long)region_bytes(pv, b));
    }
}

/* Forward to a later chunk of the stage, or backward to an earlier one, whose frame it lies in. */
static bool is_handed_over(const Node *from, const Node *node, const Buffer *buffer) {
    bool forward = from->phase == PHASE_FORWARD;
    bool onward = forward ? from->chunk < node->chunk : from->chunk > node->chunk;
    return from->phase <= PHASE_BACKWARD && from->phase <= node->phase && onward &&
           buffer->chunk == (forward ? from->chunk : node->chunk);
}

/* What lies in the host's memory comes back before anything else reads it; no other node fetches.
 */
static bool check_fetch(ProgramVerifier *pv, const Node *node, Value value) {
    const Node *from = value.node;
    bool fetches = node->op == OP_FETCH, far = from->op == OP_OFFLOAD;
    bool fits = node->phase == PHASE_BACKWARD && node->chunk == from->chunk;
    if (fetches != far) {
        DEFECT(pv, node, "%s: reads %s, which %s", text(pv, (Value){(Node *)node, 0}),
               text(pv, value), far ? "is in the host's memory" : "is not in the host's memory");
    } else if (fetches && !fits) {
        DEFECT(pv, node, "%s: in %s fetches %s, which is its chunk's backward's",
               text(pv, (Value){(Node *)node, 0}), verify_segment_text(pv->v, node),
               text(pv, value));
    }
    return fetches || far;
}

/* A value reaches the segment that makes it, and, in a frame, those of its chunk that follow, and
 * whom it is handed to. */
static void check_read(ProgramVerifier *pv, const Node *node, int operand) {
    Value value = node->inputs[operand];
    const Node *from = value.node;
    const Buffer *b = &pv->program->buffers[from->id * MAX_OUTPUTS + value.output];
    if (check_fetch(pv, node, value)) return;
    if (verify_segment(from) == verify_segment(node)) return;
    if (is_persistent(value) && region_persists(b->region)) return;
    if (b->region == REGION_FRAME && node->phase < PHASE_UPDATE &&
        (from->chunk == node->chunk ? from->phase < node->phase : is_handed_over(from, node, b))) {
        return;
    }
    DEFECT(pv, node, "%s: in %s reads %s, which no one writes there: it is made in %s and not kept",
           text(pv, (Value){(Node *)node, 0}), verify_segment_text(pv->v, node), text(pv, value),
           verify_segment_text(pv->v, from));
}

static void check_totals(ProgramVerifier *pv) {
    const Program *program = pv->program;
    int64_t classes = 0;
    for (int c = 0; c < N_BUFFER_CLASSES; c++) {
        if (program->class_bytes[c] < 0 ||
            __builtin_add_overflow(classes, program->class_bytes[c], &classes)) {
            classes = -1;
            break;
        }
    }
    bool aligned = program->persistent_bytes % ALIGN_BYTES == 0 &&
                   program->scratch_bytes % ALIGN_BYTES == 0 &&
                   program->host_bytes % ALIGN_BYTES == 0;
    for (int c = 0; c < pv->v->plan->n_chunks; c++) {
        const int64_t near = program->frame_bytes[c], far = program->host_frame_bytes[c];
        aligned &= near >= 0 && near % ALIGN_BYTES == 0 && far >= 0 && far % ALIGN_BYTES == 0;
    }
    if (!aligned || program->persistent_bytes < 0 || program->scratch_bytes < 0 ||
        program->host_bytes < 0) {
        pv->sound = false;
        verify_defect(pv->v, NO_LOC, "%s: a region's size is no multiple of %d bytes", where(pv),
                      ALIGN_BYTES);
    } else if (classes != program->persistent_bytes) {
        pv->sound = false;
        verify_defect(pv->v, NO_LOC, "%s: the persistent region has %lld bytes, its classes %lld",
                      where(pv), (long long)program->persistent_bytes, (long long)classes);
    }
}

/* Data are cut by the plan's sequence length, before any program is bound. */
static void check_input(ProgramVerifier *pv, const Node *node) {
    const char *name = node_string(node, ATTR_name);
    const Plan *plan = pv->v->plan;
    bool sequence = strcmp(name, "tokens") == 0 || strcmp(name, "labels") == 0;
    if (!sequence || plan->context > 0) return;
    const Type *type = &node->types[0];
    int lane = axis_find(&pv->graph->axes, AXIS_LANE, (int)strlen(AXIS_LANE));
    bool lanes = type->rank == 3 && type->axes[1] == lane;
    if ((!lanes && type->rank != 2) || type->dims[type->rank - 1] != plan->seq) {
        DEFECT(pv, node, "input '%s' is no sequence of %lld, as the plan says", name,
               (long long)plan->seq);
        return;
    }
    int64_t rows = (int64_t)plan->micro_batch * mesh_batch_parts(&plan->mesh);
    int64_t n_lanes = lanes ? type->dims[1] : 1;
    if (n_lanes > 0 && rows % n_lanes == 0 && type->dims[0] == rows / n_lanes) return;
    DEFECT(pv, node, "input '%s' has %lld sequences in each of %lld lanes, a micro-batch %lld",
           name, (long long)type->dims[0], (long long)n_lanes, (long long)rows);
}

/* Tokens of data are compared with the plan's vocabulary alone: what has no row in a table would
 * silently be a word of zeros. */
static void check_vocab(ProgramVerifier *pv) {
    const int64_t vocab = pv->v->plan->vocab;
    for (int n = 0; n < pv->graph->n_nodes; n++) {
        const Node *node = pv->graph->nodes[n];
        const Type *type = node->n_outputs > 0 ? &node->types[0] : NULL;
        const int at = type ? type_find_axis(type, AXIS_VOCAB) : -1;
        if (at < 0 || type->dims[at] == vocab) continue;
        DEFECT(pv, node, "%s is of %lld words, the plan of %lld",
               text(pv, (Value){(Node *)node, 0}), (long long)type->dims[at], (long long)vocab);
        return; /* so are all others */
    }
}

/* Nothing is added up in 16 bits: a gradient that is kept so has one share a step. */
static void check_low_gradients(ProgramVerifier *pv) {
    const Graph *graph = pv->graph;
    const Node **leaf = ARENA_ARRAY(pv->v->scratch, const Node *, graph->n_nodes + 1);
    int *n_shares = ARENA_ARRAY(pv->v->scratch, int, graph->n_nodes + 1);
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        int alias = node->n_outputs > 0 && node->phase != PHASE_UPDATE ? op_alias(node, 0) : -1;
        if (node->op == OP_ACCUMULATOR && node->types[0].dtype != DTYPE_F32) leaf[n] = node;
        if (alias < 0) continue;
        leaf[n] = leaf[node->inputs[alias].node->id];
        if (leaf[n]) n_shares[leaf[n]->id]++;
    }
    for (int n = 0; n < graph->n_nodes; n++) {
        if (leaf[n] != graph->nodes[n]) continue;
        int shares = n_shares[n] * pv->v->plan->n_micro;
        bool gradient = node_string(leaf[n], ATTR_of)[0];
        if (gradient && shares == 1) continue;
        DEFECT(pv, leaf[n], "%s: %d shares a step are added up in %s%s",
               text(pv, (Value){(Node *)leaf[n], 0}), shares, dtype_name(leaf[n]->types[0].dtype),
               gradient ? "" : ", and it is no gradient");
    }
}

bool verify_program(Verifier *v, int stage) {
    const Program *program = &v->plan->programs[v->plan->stages[stage].program];
    ProgramVerifier pv = {
        .v = v, .stage = stage, .program = program, .graph = program->graph, .sound = true};
    const Graph *graph = program->graph;
    if (memcmp(&graph->mesh, &v->plan->mesh, sizeof(Mesh)) != 0) {
        verify_defect(v, NO_LOC, "%s: its program is made for another mesh", where(&pv));
        return false;
    }
    if (!graph_verify(graph, v->diag)) {
        v->n_defects++; /* reported */
        return false;
    }
    check_totals(&pv);
    find_gathered(&pv);
    for (int n = 0; n < graph->n_nodes; n++) check_node(&pv, graph->nodes[n]);
    for (int n = 0; n < graph->n_nodes; n++) {
        if (graph->nodes[n]->op == OP_INPUT) check_input(&pv, graph->nodes[n]);
    }
    check_vocab(&pv);
    check_low_gradients(&pv);
    if (!pv.sound) return false;
    pv.workspace_bytes = program_workspace(graph, v->plan->cuda).total;
    if (pv.workspace_bytes > program->scratch_bytes) {
        verify_defect(v, NO_LOC, "%s: kernels need %lld bytes of workspace, scratch has %lld",
                      where(&pv), (long long)pv.workspace_bytes, (long long)program->scratch_bytes);
        return false;
    }
    pv.on_host = offload_candidates(graph, v->scratch);
    for (int n = 0; n < graph->n_nodes; n++) {
        for (int k = 0; k < graph->nodes[n]->n_outputs; k++) check_buffer(&pv, graph->nodes[n], k);
    }
    for (int n = 0; n < graph->n_nodes; n++) {
        for (int i = 0; i < graph->nodes[n]->n_inputs; i++) check_read(&pv, graph->nodes[n], i);
    }
    return pv.sound;
}
