/* plan_library: resident memory beyond the arenas, for a run on this machine's CPU in one process.
 *
 * Three parts: the program with its libraries; one record per call that the executor emits; and the
 * buffers into which the matrix library packs its operands, which it allocates by itself and keeps.
 * Unlike the arena this is an estimate: the constants were measured (oneDNN 2.6, glibc 2.36), the
 * packing formula describes what its products of the shapes at hand were seen to take.
 *
 * For a CUDA plan: what one device holds beyond a rank's arena, CUDA's context and captured graphs.
 */
#include "planner/plan/plan_library.h"

#include "ir/expr.h"
#include "ir/message_group.h"

enum {
    PROGRAM_BYTES = 18 << 20, /* text and data touched of the program, oneDNN, libc, libgomp */
    RANK_BYTES = 384 << 10,   /* thread stack, mostly attention's tiles, and tables */
    RECORD_BYTES = 208,       /* a call, its description and the arguments of most kernels */
    ELEMENTWISE_RECORD_BYTES = 2176, /* the same with a prepared elementwise program */
    UNPACKED_PRODUCT = 6 << 20,      /* m n k up to which operands are read where they are */
    PACKED_BYTES = 1536 << 10,       /* the least that a packed product takes */
    PACKED_DEPTH = 3072,             /* the library packs at most this much of the summed axis */
    PACKED_WIDTH = 768
};

static bool is_elementwise(const Node *node) {
    return OPS[node->op].flags & ELEMENTWISE_BIT || node->op == OP_FUSED ||
           node->op == OP_ACCUMULATE || node->op == OP_BROADCAST || op_rule_states(node->op) >= 0;
}

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t packing_bytes(const Graph *graph) {
    int64_t most = 0;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        Type local[2];
        MatmulLayout l;
        if (node->op != OP_MATMUL) continue;
        for (int i = 0; i < 2; i++) {
            local[i] = type_local(value_type(node->inputs[i]), value_sharding(node->inputs[i]),
                                  &graph->mesh);
        }
        if (!matmul_layout(node, &local[0], &local[1], &l)) continue;
        if ((double)l.m * (double)l.n * (double)l.k <= UNPACKED_PRODUCT) continue;
        int64_t k = smaller(l.k, PACKED_DEPTH);
        int64_t floats = 4 * smaller(l.m, l.n) * k + 2 * smaller(l.n, PACKED_WIDTH) * k;
        int64_t bytes = floats * dtype_bytes(DTYPE_F32);
        if (bytes < PACKED_BYTES) bytes = PACKED_BYTES;
        if (bytes > most) most = bytes;
    }
    return most;
}

bool node_is_called(const Node *node) {
    if (node->op == OP_OUTPUT) return false;
    return !(OPS[node->op].flags & (LEAF | COMPOSITE)) || node->op == OP_RECV ||
           node->op == OP_INPUT;
}

/* Does it draw numbers in each micro-batch? */
static bool is_random(const Graph *graph) {
    bool random = false;
    for (int n = 0; n < graph->n_nodes && !random; n++) {
        const Node *node = graph->nodes[n];
        random = node_draws(node);
        if (node->op != OP_FUSED) continue;
        Expr expr;
        const char *error, *program = node_string(node, ATTR_program);
        bool parsed = expr_parse(program, node->n_inputs, &expr, &error);
        for (int i = 0; parsed && i < expr.n_instructions; i++)
            random |= expr.instructions[i].op == OP_DROPOUT;
    }
    return random;
}

/* One call of each kind of a program's nodes, by phase and chunk; copies to the host, which only
 * training makes; and those done once. */
typedef struct CallBytes {
    int64_t of[N_PHASES][MAX_CHUNKS], away[MAX_CHUNKS], once;
} CallBytes;

static void count_calls(const Graph *graph, int64_t bytes, int64_t elementwise_bytes,
                        CallBytes *out) {
    *out = (CallBytes){.once = 0};
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        int64_t own = is_elementwise(node) ? elementwise_bytes : bytes;
        if (!node_is_called(node) || node_is_joined(node)) continue;
        if (node_is_once(node)) {
            out->once += own;
        } else if (node->op == OP_OFFLOAD) {
            out->away[node->chunk] += own;
        } else {
            out->of[node->phase][node->chunk] += own;
        }
    }
}

static int64_t task_bytes(const CallBytes *calls, const Task *task, int emissions) {
    switch (task->kind) {
    case TASK_FORWARD:
        return emissions * calls->of[PHASE_FORWARD][task->chunk] + calls->away[task->chunk];
    case TASK_BACKWARD: return calls->of[PHASE_BACKWARD][task->chunk];
    case TASK_WEIGHTS: return calls->of[PHASE_WEIGHTS][task->chunk];
    default: return 0;
    }
}

/* All of one rank's calls together; `counted`, if there is one: of these tasks. */
static int64_t record_bytes(const Plan *plan, const Stage *stage, int64_t bytes,
                            int64_t elementwise_bytes, const bool *counted) {
    const int emissions = plan->context ? 1 : FORWARD_EMISSIONS;
    CallBytes calls;
    count_calls(plan->programs[stage->program].graph, bytes, elementwise_bytes, &calls);
    int64_t total = emissions * calls.once;
    for (int t = 0; t < stage->n_tasks; t++) {
        if (!counted || counted[t]) total += task_bytes(&calls, &stage->tasks[t], emissions);
    }
    for (int c = 0; c < MAX_CHUNKS; c++) total += calls.of[PHASE_UPDATE][c];
    return total;
}

static int64_t whole_graph_bytes(const Plan *plan, const Stage *stage) {
    return record_bytes(plan, stage, GRAPH_NODE_BYTES, GRAPH_NODE_BYTES, NULL);
}

bool plan_graph_in_pieces(const Plan *plan, const Stage *stage) {
    return whole_graph_bytes(plan, stage) > (int64_t)GRAPH_NODE_BUDGET * GRAPH_NODE_BYTES;
}

/* Marks the tasks whose pieces of a step have graphs of their own: the first micro-batch's, in
 * which gradients begin, the last one's, and one for each frame of a chunk. Random numbers are
 * others in each. */
static void mark_unlike(const Plan *plan, const Stage *stage, Arena *arena, bool *out) {
    const size_t n_chunks = (size_t)plan->n_chunks, n_micro = (size_t)plan->n_micro;
    int32_t *slots = ARENA_ARRAY(arena, int32_t, n_chunks * n_micro), most = 0;
    bool all = is_random(plan->programs[stage->program].graph) ||
               plan_frame_slots(plan, stage, slots) >= 0; /* not verified yet */
    for (size_t i = 0; i < n_chunks * n_micro; i++) most = slots[i] > most ? slots[i] : most;
    const size_t n_slots = (size_t)most + 1;
    bool *seen = ARENA_ARRAY(arena, bool, N_TASK_KINDS *n_chunks *n_slots);
    for (int t = 0; t < stage->n_tasks; t++) {
        const Task *task = &stage->tasks[t];
        const size_t chunk = task->chunk,
                     slot = (size_t)slots[chunk * n_micro + (size_t)task->micro];
        bool *known = &seen[(task->kind * n_chunks + chunk) * n_slots + slot];
        bool ends = task->micro == 0 || task->micro + 1 == plan->n_micro;
        out[t] = all || ends || !*known;
        *known |= !ends;
    }
}

int64_t plan_pieces_bytes(const Plan *plan, const Stage *stage) {
    Arena *arena = arena_create();
    bool *unlike = ARENA_ARRAY(arena, bool, stage->n_tasks + 1);
    mark_unlike(plan, stage, arena, unlike);
    int64_t bytes = record_bytes(plan, stage, GRAPH_NODE_BYTES, GRAPH_NODE_BYTES, unlike);
    arena_destroy(arena);
    return bytes;
}

int64_t plan_graph_bytes(const Plan *plan, const Stage *stage) {
    return plan_graph_in_pieces(plan, stage) ? plan_pieces_bytes(plan, stage)
                                             : whole_graph_bytes(plan, stage);
}

int64_t plan_stage_library_bytes(const Plan *plan, int stage) {
    return CUDA_CONTEXT_BYTES + plan_graph_bytes(plan, &plan->stages[stage]);
}

static int64_t cuda_library_bytes(const Plan *plan) {
    int64_t most = 0;
    for (int s = 0; s < plan->n_stages; s++) {
        int64_t bytes = plan_stage_library_bytes(plan, s);
        if (bytes > most) most = bytes;
    }
    return most;
}

/* A thread of one process. */
static int64_t rank_bytes(const Plan *plan, int stage) {
    const Stage *of = &plan->stages[stage];
    const Graph *graph = plan->programs[of->program].graph;
    return RANK_BYTES + record_bytes(plan, of, RECORD_BYTES, ELEMENTWISE_RECORD_BYTES, NULL) +
           packing_bytes(graph);
}

int64_t plan_library_bytes(const Plan *plan) {
    if (plan->cuda) return cuda_library_bytes(plan);
    int64_t ranks_per_stage = mesh_rank_count(&plan->mesh) / plan->n_stages;
    int64_t total = PROGRAM_BYTES;
    for (int s = 0; s < plan->n_stages; s++) total += ranks_per_stage * rank_bytes(plan, s);
    return total;
}

int64_t plan_process_library_bytes(const Plan *plan, int stage) {
    return PROGRAM_BYTES + rank_bytes(plan, stage);
}

int64_t plan_fullest_bytes(const Plan *plan) {
    int64_t most = 0;
    for (int s = 0; s < plan->n_stages; s++) {
        int64_t beyond =
            plan->cuda ? plan_stage_library_bytes(plan, s) : plan_process_library_bytes(plan, s);
        int64_t bytes = plan->stages[s].arena_bytes + beyond;
        if (bytes > most) most = bytes;
    }
    return most;
}
