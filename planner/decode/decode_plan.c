#include "planner/decode/decode.h"

#include "planner/decode/unfuse.h"
#include "planner/plan/plan_library.h"

#include <string.h>

/* The graph with what the logits need, in the precision that is asked for. */
static const Graph *prepare_forward(const DecodeRequest *request, PassContext *ctx) {
    const Graph *in = request->forward;
    Graph *out = graph_create_like(in, ctx->arena);
    ValueMap map = value_map_create(in, ctx->arena);
    bool lowered = false;
    for (int n = 0; n < in->n_nodes; n++) {
        const Node *node = in->nodes[n];
        bool logits = node->op == OP_OUTPUT && strcmp(node_string(node, ATTR_name), "logits") == 0;
        lowered |= node_is_copy(node);
        if (node->phase != PHASE_FORWARD || (OPS[node->op].flags & EFFECT && !logits)) continue;
        if (unfuse(&map, node, out)) continue;
        if (!value_map_copy(&map, node, out, ctx->diag)) return NULL;
    }
    const Graph *simple = pass_simplify(out, ctx);
    if (!simple || lowered) return simple;
    const Graph *expanded = pass_expand(simple, ctx);
    const Graph *low = expanded ? pass_lower_precision(expanded, ctx) : NULL;
    const Graph *quantized = low ? pass_quantize_products(low, ctx) : NULL;
    return quantized ? pass_pack_frozen(quantized, ctx) : NULL;
}

static Mesh mesh_of(const DecodeRequest *request) {
    Mesh mesh = {0};
    for (int axis = 0; axis < N_MESH_AXES; axis++) mesh.size[axis] = 1;
    if (request->t > 1) mesh.size[MESH_T] = request->t;
    if (request->copies > 1) mesh.size[MESH_D] = request->copies;
    return mesh;
}

/* Ranks' shares, and the messages between them. */
static Graph *divide(Graph *graph, PassContext *ctx) {
    if (mesh_rank_count(&ctx->options.mesh) == 1) return graph;
    graph = pass_group_sums(graph, ctx);
    if (graph) graph = pass_propagate_sharding(graph, ctx);
    return graph ? pass_insert_collectives(graph, ctx) : NULL;
}

static Plan *new_plan(Arena *arena, const DecodeRequest *request, const DecodeTokens *tokens) {
    Plan *plan = ARENA_NEW(arena, Plan);
    plan->arena = arena;
    plan->model = arena_strdup(arena, request->model);
    plan->settings = arena_strdup(arena, request->settings ? request->settings : "");
    plan->mesh = mesh_of(request);
    plan->n_chunks = decode_count_chunks(request, tokens->image >= 0);
    plan->separator = tokens->separator;
    plan->image_token = tokens->image;
    plan->path = PATH_LOOP;
    plan->micro_batch = plan->n_micro = 1;
    plan->global_batch = plan->mesh.size[MESH_D];
    plan->seq = request->chunk;
    plan->vocab = request->vocab;
    plan->context = request->context;
    plan->n_blocks = request->n_blocks;
    plan->schedule = "";
    plan->lr_schedule = "";
    plan->precision = request->precision;
    plan->cuda = request->cuda;
    plan->seed = request->seed;
    plan->n_stages = plan->n_programs = 1;
    plan->stages = ARENA_NEW(arena, Stage);
    plan->programs = ARENA_NEW(arena, Program);
    plan->stages->n_tasks = plan->n_chunks;
    plan->stages->tasks = ARENA_ARRAY(arena, Task, plan->n_chunks);
    for (int chunk = 0; chunk < plan->n_chunks; chunk++) {
        plan->stages->tasks[chunk] = (Task){TASK_FORWARD, (uint8_t)chunk, 0};
        plan->stages->n_blocks[chunk] = request->n_blocks;
    }
    return plan;
}

static bool fill_plan(Plan *plan, Graph *graph, Diag *diag) {
    Program *program = plan->programs;
    program->graph = graph;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        bool weight = node->op == OP_PARAM || node_is_copy(node);
        if (weight) plan->n_parameters += type_elements(&node->types[0]);
    }
    plan_memory(program, plan->n_chunks, plan->cuda, 0, plan->arena);
    plan_stage_layout(plan, plan->stages);
    plan->library_bytes = plan_library_bytes(plan);
    return verify_plan(plan, diag);
}

Plan *decode_plan(Arena *arena, const DecodeRequest *request, DecodeObstacle *out, Diag *diag) {
    PassContext ctx = {.arena = arena,
                       .diag = diag,
                       .options = {.mesh = mesh_of(request),
                                   .cuda = request->cuda,
                                   .precision = request->precision,
                                   .frozen_bits = request->frozen_bits,
                                   .seed = request->seed},
                       .n_blocks = request->n_blocks,
                       .n_micro = 1};
    *out = (DecodeObstacle){NO_LOC, NULL};
    DecodeRequest prepared = *request;
    prepared.forward = prepare_forward(request, &ctx);
    DecodeTokens tokens = {-1, -1};
    const char *here = arena_printf(arena, " (here %lld)", (long long)request->context);
    if (prepared.forward && (!check_quantized(prepared.forward, request->precision, here, diag) ||
                             !check_packed(prepared.forward, request->frozen_bits, diag))) {
        return NULL;
    }
    Graph *graph = prepared.forward ? decode_graph(arena, &prepared, &tokens, out) : NULL;
    if (graph) graph = pass_simplify(graph, &ctx);
    if (graph) graph = divide(graph, &ctx);
    if (graph) graph = pass_fuse(graph, &ctx);
    if (!graph) return NULL;
    if (!graph_verify(graph, diag)) BUG("decoding: an ill-formed graph:\n%s", diag_text(diag));
    Plan *plan = new_plan(arena, request, &tokens);
    plan->mesh = graph->mesh; /* with what fills up the vocabulary */
    return fill_plan(plan, graph, diag) ? plan : NULL;
}
