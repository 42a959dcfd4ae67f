#include "planner/passes/pass.h"

#include "planner/plan/schedule.h"

#include <string.h>

typedef struct PassInfo {
    const char *name, *reason;
    PassFunction run;
} PassInfo;

static const PassInfo PASSES[] = {
#define PASS(name, reason, legal) {#name, reason, pass_##name},
#include "planner/passes/passes.def"
#undef PASS
};
enum { N_PASSES = sizeof(PASSES) / sizeof(PASSES[0]) };

const char *planner_pass_name(int index) {
    return index >= 0 && index < (int)N_PASSES ? PASSES[index].name : NULL;
}

const char *planner_pass_reason(int index) {
    return index >= 0 && index < (int)N_PASSES ? PASSES[index].reason : NULL;
}

ValueMap value_map_create(const Graph *from, Arena *arena) {
    return (ValueMap){ARENA_ARRAY(arena, Value, from->n_nodes * MAX_OUTPUTS + 1)};
}

void value_map_set_node(ValueMap *map, const Node *from, Node *to) {
    for (int i = 0; i < from->n_outputs; i++) {
        map->values[from->id * MAX_OUTPUTS + i] = node_value(to, i);
    }
}

Node *value_map_copy(ValueMap *map, const Node *node, Graph *out, Diag *diag) {
    Value small[8];
    Value *inputs = node->n_inputs <= 8 ? small : ARENA_ARRAY(out->arena, Value, node->n_inputs);
    for (int i = 0; i < node->n_inputs; i++) {
        inputs[i] = *value_map_at(map, node->inputs[i]);
        if (!inputs[i].node) BUG("%s: operand %d was lost", OPS[node->op].name, i);
    }
    Node *copy = graph_copy_node(out, node, inputs, diag);
    if (copy) value_map_set_node(map, node, copy);
    return copy;
}

Node *pass_build(PassContext *ctx, Graph *out, OpKind op, const Node *origin, Phase phase,
                 const Value *inputs, int n_inputs, const Attr *attrs, int n_attrs) {
    return graph_add(out,
                     &(NodeSpec){.op = op,
                                 .inputs = inputs,
                                 .n_inputs = n_inputs,
                                 .attrs = attrs,
                                 .n_attrs = n_attrs,
                                 .type = &origin->types[0],
                                 .n_outputs = 1,
                                 .phase = phase,
                                 .block = origin->block,
                                 .chunk = origin->chunk,
                                 .loc = origin->loc},
                     ctx->diag);
}

Node *pass_add_loss_scale(PassContext *ctx, Graph *out, const Node *origin, Phase phase) {
    Attr attrs[2] = {attr_string(ATTR_name, LOSS_SCALE_NAME),
                     attr_float(ATTR_value, ctx->options.loss_scaling.initial)};
    return pass_build(ctx, out, OP_VARIABLE, origin, phase, NULL, 0, attrs, 2);
}

Node *pass_add_fused(Graph *out, const Expr *expr, const Value *inputs, const Node *like,
                     Diag *diag) {
    StrBuf text = strbuf_create();
    expr_print(&text, expr);
    Attr program = attr_string(ATTR_program, text.text);
    Node *node = graph_add(out,
                           &(NodeSpec){.op = OP_FUSED,
                                       .inputs = inputs,
                                       .n_inputs = expr->n_inputs,
                                       .attrs = &program,
                                       .n_attrs = 1,
                                       .n_outputs = expr->n_outputs,
                                       .phase = like->phase,
                                       .block = like->block,
                                       .chunk = like->chunk,
                                       .loc = like->loc},
                           diag);
    strbuf_destroy(&text);
    return node;
}

static const PassInfo *find_pass(const char *name) {
    for (int i = 0; i < (int)N_PASSES; i++) {
        if (strcmp(PASSES[i].name, name) == 0) return &PASSES[i];
    }
    return NULL;
}

/* Highest block number + 1. */
static int count_blocks(const Graph *graph) {
    int count = 0;
    for (int n = 0; n < graph->n_nodes; n++) {
        if (graph->nodes[n]->block >= count) count = graph->nodes[n]->block + 1;
    }
    return count;
}

Graph *planner_run_pass(Arena *arena, const Graph *graph, const char *pass, Diag *diag) {
    const PassInfo *info = find_pass(pass);
    if (!info) {
        StrBuf known = strbuf_create();
        for (int i = 0; i < (int)N_PASSES; i++) {
            strbuf_printf(&known, "%s%s", i ? ", " : "", PASSES[i].name);
        }
        diag_error(diag, NO_LOC, "'%s' is no pass; the passes are: %s", pass, known.text);
        strbuf_destroy(&known);
        return NULL;
    }
    Graph *meshed = ARENA_NEW(arena, Graph); /* a text says the mesh, and not what follows of it */
    *meshed = *graph;
    meshed->shared_heads = sharding_rule_shared_heads(graph, &graph->mesh);
    meshed->state_split = sharding_rule_state_split(graph, &graph->mesh);
    bool moves_messages = info->run == pass_spread_messages || info->run == pass_join_messages;
    PassContext ctx = {
        .arena = arena,
        .diag = diag,
        .n_blocks = count_blocks(graph),
        .n_micro = 1,
        .recipe = {.learning_rate = 1e-3,
                   .beta1 = 0.9,
                   .beta2 = 0.95,
                   .eps = 1e-8,
                   .weight_decay = 0.1,
                   .max_norm = 1},
        .options = {.mesh = graph->mesh,
                    .n_chunks = 1,
                    .schedule = "zb-h1",
                    .precision = info->run == pass_quantize_products ? DTYPE_FP8 : DTYPE_BF16,
                    .gradient_dtype = info->run == pass_lower_gradients ? DTYPE_BF16 : DTYPE_F32,
                    .split_masters = info->run == pass_split_masters,
                    .ema_decay = info->run == pass_append_averages ? 0.999 : 0,
                    .max_logit = info->run == pass_measure_logits,
                    .frozen_bits = info->run == pass_pack_frozen ? 4 : 0,
                    .fp8_tensor_cores = info->run == pass_multiply_fp8,
                    .recompute = RECOMPUTE_FULL,
                    .offload_activations = 100,
                    .zero = moves_messages ? ZERO_PARAMETERS : ZERO_OPTIMIZER,
                    .join_messages = info->run == pass_join_messages,
                    .lanes = 1 + (info->run == pass_part_batch),
                    .expert_parts = 1 + (info->run == pass_part_slots),
                    .loss_parts =
                        1 + (info->run == pass_part_loss && graph->mesh.size[MESH_C] == 1),
                    .vocab_multiple = graph->mesh.vocab_multiple ? graph->mesh.vocab_multiple : 1,
                    .cuda = true}};
    ctx.chunk_of_block = ARENA_ARRAY(arena, int, ctx.n_blocks + 1);
    if (!graph_verify(graph, diag)) return NULL;
    Graph *out = info->run(meshed, &ctx);
    if (out == meshed) out = (Graph *)graph; /* nothing to do */
    return out && graph_verify(out, diag) ? out : NULL;
}

bool pass_is_part(const Node *node, const Node *stack) {
    return stack && node->op == OP_NARROW && !node_attr(node, ATTR_to) &&
           node_over(stack, ATTR_to, node_axis(node, ATTR_axis));
}

const Node **pass_find_stacks(const Graph *graph, Arena *arena) {
    const Node **stack_of = ARENA_ARRAY(arena, const Node *, graph->n_nodes + 1);
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n], *stack = node->op == OP_STACK ? node : NULL;
        for (int i = 0; i < node->n_inputs && !stack && node->phase == PHASE_UPDATE; i++) {
            const Node *from = node->inputs[i].node;
            if (!pass_is_part(from, stack_of[from->id])) stack = stack_of[from->id];
        }
        stack_of[n] = stack;
    }
    return stack_of;
}

int pass_stage_of_block(const PassContext *ctx, int block) {
    Path path = {schedule_path(schedule_find(ctx->options.schedule)),
                 ctx->options.mesh.size[MESH_P]};
    return path_stage(path, ctx->chunk_of_block[block]);
}
