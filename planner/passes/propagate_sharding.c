/* propagate_sharding: sets every value's sharding, leaves by axis rules, results by their op's.
 *
 * An accumulator takes the sharding of what is added into it. Where its shares differ, as those of
 * a weight do that is also squared in a penalty, it is divided like its parameter and a partial sum
 * over every mesh axis over which one of them is: then one message a step completes it, and
 * insert_collectives brings each share to it.
 */
#include "ir/blocks.h"
#include "ir/ops/quantize.h"
#include "ir/ops/round_blocks.h"
#include "planner/passes/pass.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static Sharding leaf_sharding(const Graph *graph, const Type *type) {
    Sharding sharding = sharding_none();
    unsigned taken = 0;
    for (int i = 0; i < type->rank; i++) {
        int mesh = sharding_rule_mesh(graph, type->axes[i]);
        if (mesh < 0 || taken & mesh_axes(&graph->mesh, mesh)) continue;
        sharding.mesh[i] = (int8_t)mesh;
        taken |= mesh_axes(&graph->mesh, mesh);
    }
    return sharding;
}

/* The most shards, fewer than `parts`, of which none is empty. */
static int64_t most_shards(int64_t size, int parts) {
    for (int64_t n = parts - 1; n > 1; n--) {
        if (sharding_fills(size, (int)n)) return n;
    }
    return 1;
}

/* t divides what heads share, or the heads that each of these has. */
static bool check_heads(const Graph *in, const Mesh *sizes, Diag *diag) {
    int t = sizes->size[MESH_T];
    for (int k = 0; k < N_HEAD_KINDS; k++) {
        int64_t shared, each;
        const Node *param = sharding_find_heads(in, &HEAD_KINDS[k], &shared, &each);
        if (!param || each == 1 || sharding_fills(shared, t) || sharding_fills(each, t)) continue;
        int64_t most_shared = most_shards(shared, t), most_each = most_shards(each, t);
        diag_error(diag, param->loc,
                   "axis '%s' is %" PRId64 " and '%s' %" PRId64
                   ": divided over t=%d, the last rank would have none of either; t=%" PRId64
                   " would do",
                   HEAD_KINDS[k].shared, shared, HEAD_KINDS[k].each, each, t,
                   most_shared > most_each ? most_shared : most_each);
        return false;
    }
    return true;
}

/* The first node with an axis of which c ranks would not all have two equal chunks: *out_i of its
 * first type. NULL: there is none. */
static const Node *find_undealt(const Graph *in, const Graph *rules, int c, int *out_i) {
    for (int n = 0; n < in->n_nodes; n++) {
        const Node *node = in->nodes[n];
        for (int i = 0; node->n_outputs > 0 && i < node->types[0].rank; i++) {
            int mesh = sharding_rule_mesh(rules, node->types[0].axes[i]);
            *out_i = i;
            if (mesh >= 0 && mesh_deals(mesh) && node->types[0].dims[i] % (2 * (int64_t)c) != 0)
                return node;
        }
    }
    return NULL;
}

/* c deals out two chunks a rank, of a model with an encoder along more than one axis. */
static bool check_dealing(const Graph *in, const Graph *rules, Diag *diag) {
    const int c = rules->mesh.size[MESH_C];
    int i, unused, fits = c - 1;
    const Node *node = c > 1 ? find_undealt(in, rules, c, &i) : NULL;
    if (!node) return true;
    while (fits > 1 && find_undealt(in, rules, fits, &unused)) fits--;
    diag_error(diag, node->loc,
               "axis '%s' is %" PRId64 ": c=%d divides it into %d equal chunks, two a rank, which "
               "is not possible; c=%d would do",
               in->axes.names[node->types[0].axes[i]], node->types[0].dims[i], c, 2 * c, fits);
    return false;
}

/* Of what c deals out t has equal parts. */
static bool check_dealt(const Graph *graph, const Node *node, const Type *type,
                        const Sharding *sharding, int i, Diag *diag) {
    const int *size = graph->mesh.size;
    if (type_deals_evenly(type->dims[i], sharding->mesh[i], &graph->mesh)) return true;
    diag_error(diag, node->loc, "axis '%s' is %" PRId64 ", which c=%d x t=%d does not divide",
               graph->axes.names[type->axes[i]], type->dims[i], size[MESH_C], size[MESH_T]);
    return false;
}

/* An all-to-all has equal parts for all. */
static bool check_experts(const Graph *graph, const Node *node, const Type *type,
                          const Sharding *sharding, int i, Diag *diag) {
    const int *size = graph->mesh.size;
    int64_t dim = type->dims[i];
    int fits = size[MESH_E] - 1;
    if (dim % mesh_size(&graph->mesh, sharding->mesh[i]) == 0) return true;
    if (dim % size[MESH_T] != 0) {
        diag_error(diag, node->loc,
                   "axis '%s' is %" PRId64 ", which t=%d does not divide, as it has to for e=%d",
                   graph->axes.names[type->axes[i]], dim, size[MESH_T], size[MESH_E]);
        return false;
    }
    while (fits > 1 && dim % ((int64_t)fits * size[MESH_T]) != 0) fits--;
    char t[24] = "";
    if (size[MESH_T] > 1) snprintf(t, sizeof(t), "t=%d x ", size[MESH_T]);
    diag_error(diag, node->loc,
               "axis '%s' is %" PRId64 ", which %se=%d does not divide; e=%d would do",
               graph->axes.names[type->axes[i]], dim, t, size[MESH_E], fits);
    return false;
}

/* More shards than elements would leave ranks with padding only. */
static bool check_sizes(const Graph *graph, const Node *node, int output, Diag *diag) {
    const Type *type = &node->types[output];
    const Sharding *sharding = &node->shardings[output];
    for (int i = 0; i < type->rank; i++) {
        if (sharding->mesh[i] < 0) continue;
        if (mesh_deals(sharding->mesh[i])) {
            if (!check_dealt(graph, node, type, sharding, i, diag)) return false;
            continue;
        }
        bool experts = sharding->mesh[i] == MESH_E || sharding->mesh[i] == MESH_TE;
        if (experts && !check_experts(graph, node, type, sharding, i, diag)) return false;
        int parts = mesh_size(&graph->mesh, sharding->mesh[i]);
        int64_t local = type_share(type, i, sharding->mesh[i], &graph->mesh);
        if (local * (parts - 1) < type->dims[i]) continue;
        const char *mesh = mesh_axis_name(sharding->mesh[i]);
        diag_error(diag, node->loc,
                   "axis '%s' is %" PRId64 ": divided over %s=%d, the last rank would have none; "
                   "%s=%" PRId64 " would do",
                   graph->axes.names[type->axes[i]], type->dims[i], mesh, parts, mesh,
                   most_shards(type->dims[i], parts));
        return false;
    }
    return true;
}

/* A part of a divided axis would lie on some ranks only. */
static bool check_parts(const Graph *graph, const Node *node, Diag *diag) {
    if (node->phase == PHASE_UPDATE) return true; /* gathers it first */
    for (int axis = 0; op_moves_parts(node->op) && axis < graph->axes.count; axis++) {
        int mesh = op_needs_whole(node, axis) ? sharding_rule_mesh(graph, axis) : -1;
        if (mesh < 0 || mesh == MESH_C) continue; /* a sequence is gathered first */
        const char *name = graph->axes.names[axis];
        diag_error(diag, node->loc,
                   "%s: axis '%s' is divided over %s=%d: parts of it lie on different ranks; give "
                   "what is cut or joined an axis of its own beside it, as in [.., two, %s]",
                   OPS[node->op].name, name, mesh_axis_name(mesh), mesh_size(&graph->mesh, mesh),
                   name);
        return false;
    }
    return true;
}

/* The most parts, fewer than `parts`, each of which has whole blocks. */
static int most_uncut(int64_t n_blocks, int parts, bool deals) {
    for (int n = parts - 1; n > 1; n--) {
        if (n_blocks % ((deals ? 2 : 1) * (int64_t)n) == 0) return n;
    }
    return 1;
}

/* Blocks that share a scale are the same in every layout, so none may lie on two ranks. */
static bool check_blocks(const Graph *graph, const Node *node, Diag *diag) {
    if (node->op != OP_QUANTIZE) return true;
    const Type *values = value_type(node->inputs[0]);
    int64_t factors[MAX_RANK];
    quantize_factors(node, factors);
    for (int i = 0; i < values->rank; i++) {
        int at = type_find_axis(&node->types[0], values->axes[i]);
        int mesh = node->shardings[0].mesh[at], parts = mesh_size(&graph->mesh, mesh);
        int64_t n_blocks = values->dims[i] / factors[i];
        if (mesh < 0 || factors[i] == 1) continue;
        bool deals = mesh_deals(mesh);
        if (deals ? type_deals_evenly(n_blocks, mesh, &graph->mesh) : n_blocks % parts == 0) {
            continue;
        }
        const char *axis = graph->axes.names[values->axes[i]], *name = mesh_axis_name(mesh);
        bool sequence = axis_is_sequence(axis) && mesh != MESH_C;
        diag_error(diag, node->loc,
                   "axis '%s' is %" PRId64 ", %" PRId64 " block%s of %" PRId64
                   " that share an fp8 scale: %s=%d would cut some; %s=%d would do%s, or bf16",
                   axis, values->dims[i], n_blocks, n_blocks == 1 ? "" : "s",
                   values->dims[i] / n_blocks, name, parts, name,
                   most_uncut(n_blocks, parts, deals),
                   sequence ? ", or no --sequence-parallel" : "");
        return false;
    }
    return true;
}

/* Those of weights, or of moments, that share a scale (ir/blocks.h, ir/moments.h) are as large,
 * along whatever axes. */
static bool check_weight(const Graph *graph, const Node *leaf, Diag *diag) {
    const Type *type = &leaf->types[0];
    const bool moments = dtype_is_moment(type->dtype);
    Sharding tried = leaf->shardings[0];
    if (!dtype_is_blocked(type->dtype) || type_keeps_blocks(type, &tried, &graph->mesh))
        return true;
    for (int i = type->rank - 1; i >= 0; i--) {
        int mesh = tried.mesh[i], parts = mesh_size(&graph->mesh, mesh);
        if (mesh < 0) continue;
        int64_t each = type_share(type, i, mesh, &graph->mesh);
        if (each * (parts - 1) >= type->dims[i]) return true; /* check_sizes says that */
        Mesh fewer = graph->mesh;
        int inner = mesh_inner(mesh);
        while (fewer.size[inner] > 1 && !type_keeps_blocks(type, &tried, &fewer)) {
            fewer.size[inner]--;
        }
        diag_error(diag, leaf->loc,
                   "axis '%s' of '%s' is %" PRId64 ": %s=%d would cut blocks of %d %s that "
                   "share a scale; %s=%d would do, or %s",
                   graph->axes.names[type->axes[i]],
                   node_string(leaf, moments ? ATTR_of : ATTR_name), type->dims[i],
                   mesh_axis_name(mesh), parts, WEIGHT_BLOCK, moments ? "moments" : "weights",
                   mesh_axis_name(inner), fewer.size[inner],
                   moments ? "--optimizer-state bf16" : "no --frozen-bits");
        return false;
    }
    return true;
}

/* And those that a weight's copy is rounded to (ir/ops/round_blocks.h). */
static bool check_rounded(const Graph *graph, const Node *param, Diag *diag) {
    const Type *type = &param->types[0];
    const Sharding *sharding = &param->shardings[0];
    if (!node_is_rounded(param) || round_keeps_blocks(param, sharding, &graph->mesh)) return true;
    for (int i = 0; i < type->rank; i++) {
        int mesh = sharding->mesh[i];
        Sharding alone = sharding_none();
        alone.mesh[i] = (int8_t)mesh;
        if (round_keeps_blocks(param, &alone, &graph->mesh)) continue;
        diag_error(diag, param->loc,
                   "axis '%s' of '%s' is %" PRId64 ": %s=%d would cut the blocks of %d numbers of "
                   "--qat; a divisor of it, with whole blocks for each rank, would do, or no --qat",
                   graph->axes.names[type->axes[i]], node_string(param, ATTR_name), type->dims[i],
                   mesh_axis_name(mesh), mesh_size(&graph->mesh, mesh), ROUND_BLOCK);
        return false;
    }
    return true;
}

static unsigned dividing_axes(const Mesh *sizes, const Sharding *sharding, int rank) {
    unsigned axes = 0;
    for (int i = 0; i < rank; i++) {
        axes |= mesh_axes(sizes, sharding->mesh[i]);
    }
    return axes;
}

static Sharding join_shares(const Graph *graph, const Sharding *sum, const Sharding *share,
                            const Type *type) {
    if (sharding_equal(sum, share, type->rank)) return *sum;
    bool alike = memcmp(sum->mesh, share->mesh, (size_t)type->rank) == 0;
    Sharding joined = alike ? *sum : leaf_sharding(graph, type);
    joined.reduce = REDUCE_SUM;
    joined.partial = 0;
    if (sum->reduce == REDUCE_SUM) joined.partial |= sum->partial;
    if (share->reduce == REDUCE_SUM) joined.partial |= share->partial;
    joined.partial &= (uint8_t)~dividing_axes(&graph->mesh, &joined, type->rank);
    return joined;
}

/* Of heads that c divides: a message for each share, so that parameters and what sums up their
 * gradients lie alike. */
static Sharding gathered_heads(const Sharding *share) {
    Sharding gathered = *share;
    for (int i = 0; i < MAX_RANK; i++) {
        if (mesh_inner(share->mesh[i]) != MESH_H) continue;
        gathered.mesh[i] = (int8_t)mesh_outer(share->mesh[i]);
    }
    return gathered;
}

/* The shares of all accumulators are known: sets the shardings of these and of their sums. */
static bool settle_accumulators(Graph *graph, Arena *arena, Diag *diag) {
    Node **leaf_of = ARENA_ARRAY(arena, Node *, graph->n_nodes + 1); /* of sums, by id */
    bool *begun = ARENA_ARRAY(arena, bool, graph->n_nodes + 1);
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (node->op != OP_ACCUMULATE) continue;
        Node *before = node->inputs[0].node;
        Node *leaf = leaf_of[n] = before->op == OP_ACCUMULATE ? leaf_of[before->id] : before;
        const Sharding *sum = &leaf->shardings[0];
        Sharding share = gathered_heads(value_sharding(node->inputs[1]));
        leaf->shardings[0] =
            begun[leaf->id] ? join_shares(graph, sum, &share, &leaf->types[0]) : share;
        begun[leaf->id] = true;
    }
    for (int n = 0; n < graph->n_nodes; n++) {
        if (!leaf_of[n]) continue;
        graph->nodes[n]->shardings[0] = leaf_of[n]->shardings[0];
        if (!check_sizes(graph, graph->nodes[n], 0, diag)) return false;
    }
    return true;
}

/* Where it would show that a vocabulary is filled up, which nobody asked for, it stays as it is. */
static void fill_if_hidden(Graph *graph) {
    Diag *unread = diag_create();
    if (!check_padding(graph, unread)) graph->mesh.vocab_multiple = 0;
    diag_destroy(unread);
}

Graph *pass_propagate_sharding(const Graph *in, PassContext *ctx) {
    Graph *out = graph_create_like(in, ctx->arena);
    ValueMap map = value_map_create(in, ctx->arena);
    int *uses = graph_count_uses(in, ctx->arena); /* `out` numbers its nodes alike */
    out->mesh = ctx->options.mesh;
    out->mesh.vocab_multiple = padding_vocab_multiple(in, &ctx->options, ctx->diag);
    if (out->mesh.vocab_multiple < 0) return NULL;
    out->shared_heads = sharding_rule_shared_heads(in, &out->mesh);
    out->state_split = sharding_rule_state_split(in, &out->mesh);
    bool *by_heads = sharding_find_head_work(in, out->state_split, ctx->arena);
    if (!check_heads(in, &out->mesh, ctx->diag) || !check_dealing(in, out, ctx->diag)) return NULL;
    bool settled = false;
    for (int n = 0; n < in->n_nodes; n++) {
        Node *node = value_map_copy(&map, in->nodes[n], out, ctx->diag);
        if (!node || !check_parts(out, node, ctx->diag)) return NULL;
        if (node->phase == PHASE_UPDATE && !settled) { /* only the update reads accumulators */
            if (!settle_accumulators(out, ctx->arena, ctx->diag)) return NULL;
            settled = true;
        }
        if (OPS[node->op].flags & LEAF) {
            /* A balanced parameter moves against its mean: all ranks have all of it. */
            bool whole = node->op == OP_PARAM && node_is_balanced(node);
            node->shardings[0] = whole ? sharding_none() : leaf_sharding(out, &node->types[0]);
        } else if (node->op != OP_ACCUMULATE) {
            ShardingRule rule = sharding_rule(out, node, uses, by_heads[n],
                                              ctx->options.sequence_parallel, ctx->arena);
            for (int i = 0; i < node->n_outputs; i++) node->shardings[i] = rule.outputs[i];
            if (node->op == OP_LARGEST) node->inputs[0].node->shardings[0] = rule.outputs[0];
        }
        if (!check_blocks(out, node, ctx->diag)) return NULL;
        bool kept = node->op == OP_PARAM || node->op == OP_STATE;
        if (kept && !check_weight(out, node, ctx->diag)) return NULL;
        /* In plans for decoding copies are there without their parameters. */
        bool rounds = node->op == OP_PARAM || node_is_copy(node);
        if (rounds && !check_rounded(out, node, ctx->diag)) return NULL;
        for (int i = 0; i < node->n_outputs; i++) {
            if (!check_sizes(out, node, i, ctx->diag)) return NULL;
        }
    }
    if (!settled && !settle_accumulators(out, ctx->arena, ctx->diag)) return NULL;
    if (!ctx->options.vocab_multiple) fill_if_hidden(out);
    return check_padding(out, ctx->diag) ? out : NULL;
}
