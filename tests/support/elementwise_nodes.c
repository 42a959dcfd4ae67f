#include "tests/support/elementwise_nodes.h"

#include "frontend/lua/model.h"
#include "planner/planner.h"
#include "runtime/cuda/bind.h"

#include <math.h>
#include <string.h>

enum { MOST_SETTINGS = 8 };

typedef struct PlanCase {
    const char *path;
    ModelSetting settings[MOST_SETTINGS];
    int t, d, p, n_chunks, micro_batch, global_batch;
    bool sequence_parallel;
} PlanCase;

static const PlanCase CASES[] = {
    {"models/gpt.lua", {{"layers", "2"}}, 1, 1, 1, 1, 2, 4, false},
    {"models/gpt.lua", {{"layers", "2"}, {"dropout", "0.1"}}, 2, 2, 1, 1, 1, 4, false},
    {"models/gpt.lua",
     {{"layers", "4"}, {"dropout", "0.2"}, {"act", "gelu_erf"}, {"norm", "rmsnorm"}},
     2,
     1,
     2,
     2,
     1,
     2,
     true},
    /* Nothing divides: shards are padded, and most sizes are odd. */
    {"models/gpt.lua",
     {{"layers", "2"},
      {"model", "30"},
      {"heads", "3"},
      {"seq", "7"},
      {"vocab", "23"},
      {"ffn", "37"},
      {"dropout", "0.4"},
      {"act", "silu"}},
     2,
     2,
     1,
     1,
     3,
     12,
     false},
    {"models/gpt.lua",
     {{"layers", "2"}, {"act", "relu"}, {"tied", "false"}, {"max_norm", "0"}},
     1,
     2,
     2,
     1,
     1,
     4,
     false},
    {"models/llama.lua", {{"layers", "2"}}, 1, 1, 1, 1, 2, 4, false},
    {"models/llama.lua", {{"layers", "2"}, {"optimizer", "sgd"}}, 2, 1, 2, 1, 2, 4, true},
};

int elementwise_n_plans(void) {
    return (int)(sizeof(CASES) / sizeof(CASES[0]));
}

Plan *elementwise_plan(int i, Arena *arena, Diag *diag) {
    int n_settings = 0;
    const PlanCase *c = &CASES[i];
    while (n_settings < MOST_SETTINGS && c->settings[n_settings].key) n_settings++;
    const Model *model =
        model_load(arena, c->path, c->settings, n_settings, (int64_t)c->micro_batch * c->d, diag);
    if (!model) BUG("%s", diag_text(diag));
    PlanRequest request = {
        .model = model->name,
        .forward = model->graph,
        .n_blocks = model->n_blocks,
        .seq = model->seq,
        .vocab = model->vocab,
        .recipe = model->recipe,
        .options = {.mesh = {.size = {[MESH_T] = c->t, [MESH_D] = c->d, [MESH_P] = c->p}},
                    .micro_batch = c->micro_batch,
                    .global_batch = c->global_batch,
                    .n_chunks = c->n_chunks,
                    .schedule = c->n_chunks > 1 ? "interleaved" : "1f1b",
                    .sequence_parallel = c->sequence_parallel,
                    .seed = 7}};
    Plan *plan = plan_make(arena, &request, diag);
    if (!plan) BUG("%s", diag_text(diag));
    return plan;
}

static bool is_elementwise(OpKind op) {
    return OPS[op].flags & ELEMENTWISE_BIT || op == OP_FUSED || op == OP_BROADCAST ||
           op == OP_ACCUMULATE;
}

/* One micro-batch of one rank. */
typedef struct Walk {
    const Plan *plan;
    Arena *arena;
    Diag *diag;
    MeshCoord coord;
    int micro;
} Walk;

static void visit_node(const Walk *walk, const Graph *graph, Node *node, NodeVisitor *visit,
                       void *user) {
    Binding b = {.graph = graph,
                 .node = node,
                 .arena = walk->arena,
                 .diag = walk->diag,
                 .coord = walk->coord,
                 .block = node->block,
                 .micro = walk->micro,
                 .n_micro = walk->plan->n_micro,
                 .overwrite = walk->micro == 0};
    b.in = ARENA_ARRAY(walk->arena, void *, node->n_inputs + 1);
    b.in_local = ARENA_ARRAY(walk->arena, Type, node->n_inputs + 1);
    for (int i = 0; i < node->n_inputs; i++) {
        Value in = node->inputs[i];
        b.in_local[i] = type_local(value_type(in), value_sharding(in), &graph->mesh);
    }
    for (int o = 0; o < node->n_outputs; o++) {
        b.out_local[o] = type_local(&node->types[o], &node->shardings[o], &graph->mesh);
    }
    visit(user, &b);
}

void elementwise_nodes_visit(const Plan *plan, Arena *arena, Diag *diag, NodeVisitor *visit,
                             void *user) {
    bool seen[64] = {false};
    for (int s = 0; s < plan->n_stages; s++) {
        int program = plan->stages[s].program;
        const Graph *graph = plan->programs[program].graph;
        if (seen[program]) continue;
        seen[program] = true;
        for (int end = 0; end < 2; end++) {
            Walk walk = {plan, arena, diag, {{0}}, end ? plan->n_micro - 1 : 0};
            for (int axis = 0; axis < N_MESH_AXES; axis++) {
                walk.coord.at[axis] = end ? plan->mesh.size[axis] - 1 : 0;
            }
            walk.coord.at[MESH_P] = s;
            for (int n = 0; n < graph->n_nodes; n++) {
                if (!is_elementwise(graph->nodes[n]->op)) continue;
                visit_node(&walk, graph, graph->nodes[n], visit, user);
            }
        }
    }
}

void elementwise_make_low(Binding *b, DType low) {
    bool accumulates = b->node->op == OP_ACCUMULATE;
    for (int i = accumulates; i < b->node->n_inputs; i++) b->in_local[i].dtype = low;
    for (int o = 0; o < b->node->n_outputs && !accumulates; o++) b->out_local[o].dtype = low;
}

const DType ELEMENTWISE_PRECISIONS[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};

int elementwise_n_precisions(int i) {
    return i % 4 == 1 ? 3 : 2;
}

typedef struct Collection {
    KernelCache *cache;
    int n_precisions;
} Collection;

static void collect(void *user, Binding *b) {
    const Collection *to = user;
    CommandList list = {0};
    CudaEmitter emitter = {.list = &list, .generated = to->cache};
    b->backend = &emitter;
    for (int i = 0; i < b->node->n_inputs; i++) b->in[i] = (void *)(uintptr_t)(4096 * (i + 1));
    for (int o = 0; o < b->node->n_outputs; o++) b->out[o] = (void *)(uintptr_t)(1 << 20);
    for (int i = 0; i < to->n_precisions; i++) {
        if (i) elementwise_make_low(b, ELEMENTWISE_PRECISIONS[i]);
        if (!cuda_bind(b)) BUG("%s", diag_text(b->diag));
    }
    command_list_release(&list);
}

void elementwise_collect(int i, Arena *arena, KernelCache *cache, Diag *diag) {
    Collection to = {cache, elementwise_n_precisions(i)};
    elementwise_nodes_visit(elementwise_plan(i, arena, diag), arena, diag, collect, &to);
}
