/* Sharding rules, from axis names alone.
 *
 * heads, kv_heads, ffn, shared_ffn, vocab, channels and those of a tower over images are divided
 * over t (Megatron's tensor parallelism, Shoeybi et al. 2019), and so are experts, of which each
 * rank then has some whole; batch over d, seq and source (what an encoder reads) over c (context
 * parallelism). e divides the batch, within what d leaves of it, and in ops on experts these,
 * within what t leaves of them; routing itself, which has a rank's sequences and all experts (of
 * t's part), is not such an op. An op divides each of its axes by its rule unless it needs the axis
 * whole; an axis that is divided but absent from a result leaves a partial result over that mesh
 * axis. With sequence parallelism (Korthikanti et al. 2022, section 4.2.2) an op that leaves t idle
 * divides 'seq' over it, within what c leaves it.
 *
 * Where t has more ranks than there are key/value heads, each has all of these and some query heads
 * of each: `group` is divided in place of kv_heads (as Megatron-LM and vLLM copy such heads). The
 * gradients of keys and values are partial sums then, and what is made of them is, until x's
 * gradient is completed with the queries' share of it and a weight's at the end of the step. So are
 * states' heads and the groups of them that share queries and keys (HEAD_KINDS).
 *
 * Attention has its part of the queries and all keys and values, which its gradient then has a
 * share of on every rank of c (Llama 3, arXiv 2407.21783, section 3.3.2). Layers with a state have
 * all positions of heads that c divides (state_split.c).
 */
#include "ir/ops/route.h"
#include "ir/teacher.h"
#include "planner/passes/pass.h"

#include <string.h>

static const struct {
    const char *axis;
    MeshAxis mesh;
} AXIS_RULES[] = {
    {"batch", MESH_D},        {"seq", MESH_C},        {"source", MESH_C},
    {"heads", MESH_T},        {"kv_heads", MESH_T},   {"ffn", MESH_T},
    {"vocab", MESH_T},        {"shared_ffn", MESH_T}, {"experts", MESH_T},
    {"state_groups", MESH_T}, {"channels", MESH_T},   {"vision_heads", MESH_T},
    {"vision_ffn", MESH_T},   {"connector", MESH_T},
};

const HeadKind HEAD_KINDS[N_HEAD_KINDS] = {
    {"kv_heads", "group"},
    {"state_groups", "state_heads"},
    {TEACHER_AXES "kv_heads", TEACHER_AXES "group"},
    {TEACHER_AXES "state_groups", TEACHER_AXES "state_heads"}};

/* The name whose rule the axis has. */
static const char *ruling_name(const char *axis, unsigned shared_heads) {
    for (int k = 0; k < N_HEAD_KINDS; k++) {
        const HeadKind *kind = &HEAD_KINDS[k];
        if (!(shared_heads >> k & 1)) continue;
        if (strcmp(axis, kind->shared) == 0) return teacher_axis_name(kind->each);
        if (strcmp(axis, kind->each) == 0) return teacher_axis_name(kind->shared);
    }
    return teacher_axis_name(axis);
}

bool sharding_rule_divides(const char *axis, MeshAxis mesh, unsigned shared_heads) {
    const char *name = ruling_name(axis, shared_heads);
    for (size_t i = 0; i < sizeof(AXIS_RULES) / sizeof(AXIS_RULES[0]); i++) {
        if (strcmp(AXIS_RULES[i].axis, name) == 0) return AXIS_RULES[i].mesh == mesh;
    }
    return false;
}

bool sharding_fills(int64_t size, int parts) {
    return (size + parts - 1) / parts * (parts - 1) < size;
}

static int find_axis(const Graph *graph, const char *name) {
    return axis_find(&graph->axes, name, (int)strlen(name));
}

const Node *sharding_find_heads(const Graph *whole, const HeadKind *kind, int64_t *out_shared,
                                int64_t *out_each) {
    int shared = find_axis(whole, kind->shared), each = find_axis(whole, kind->each);
    for (int n = 0; shared >= 0 && each >= 0 && n < whole->n_nodes; n++) {
        const Node *node = whole->nodes[n];
        const Type *type = &node->types[0];
        if (node->op != OP_PARAM && !node_is_copy(node)) continue;
        int at = type_find_axis(type, shared), each_at = type_find_axis(type, each);
        if (at < 0 || each_at < 0) continue;
        *out_shared = type->dims[at];
        *out_each = type->dims[each_at];
        return node;
    }
    return NULL;
}

unsigned sharding_rule_shared_heads(const Graph *whole, const Mesh *mesh) {
    int t = mesh->size[MESH_T];
    unsigned kinds = 0;
    for (int k = 0; t > 1 && k < N_HEAD_KINDS; k++) {
        int64_t shared, each;
        if (!sharding_find_heads(whole, &HEAD_KINDS[k], &shared, &each)) continue;
        if (!sharding_fills(shared, t) && sharding_fills(each, t)) kinds |= 1u << k;
    }
    return kinds;
}

/* The axis, or -1: it divides nothing; the batch is divided over r before d. */
static int where_divides(const Mesh *sizes, int mesh) {
    if (mesh == MESH_D && sizes->size[MESH_R] > 1) return MESH_RD;
    return sizes->size[mesh] > 1 ? mesh : -1;
}

int sharding_rule_mesh(const Graph *graph, int axis) {
    const char *name = ruling_name(graph->axes.names[axis], graph->shared_heads);
    const Mesh *sizes = &graph->mesh;
    for (size_t i = 0; i < sizeof(AXIS_RULES) / sizeof(AXIS_RULES[0]); i++) {
        if (strcmp(AXIS_RULES[i].axis, name) != 0) continue;
        int mesh = where_divides(sizes, AXIS_RULES[i].mesh);
        if (sizes->size[MESH_E] == 1) return mesh;
        /* A teacher's experts e leaves alone: an op has one kind of experts that e divides. */
        bool experts = strcmp(graph->axes.names[axis], "experts") == 0;
        if (experts) return mesh_divide(mesh, MESH_E);
        return AXIS_RULES[i].mesh == MESH_D ? mesh_divide(mesh, MESH_E) : mesh;
    }
    return -1;
}

static bool has_axis(const Node *node, int axis) {
    bool has = false;
    for (int i = 0; i < node->n_inputs; i++) {
        has |= type_find_axis(value_type(node->inputs[i]), axis) >= 0;
    }
    for (int o = 0; o < node->n_outputs; o++) has |= type_find_axis(&node->types[o], axis) >= 0;
    return has;
}

/* Of e's two axes an op on experts divides these, and any other the batch. */
typedef enum ExpertWork { NO_EXPERTS, ROUTES_EXPERTS, ON_EXPERTS } ExpertWork;

static ExpertWork expert_work(const Graph *graph, const Node *node) {
    int experts = axis_find(&graph->axes, "experts", 7);
    if (experts < 0 || graph->mesh.size[MESH_E] == 1) return NO_EXPERTS;
    if (op_routes(node->op)) return ROUTES_EXPERTS;
    return has_axis(node, experts) && !op_needs_whole(node, experts) ? ON_EXPERTS : NO_EXPERTS;
}

/* Where c divides heads, by what they are divided; sequences are whole. */
static int rule_by_heads(const Graph *graph, int axis, int mesh) {
    const char *split = sharding_split_axis(graph->state_split);
    if (axis_is_sequence(graph->axes.names[axis])) return -1;
    return strcmp(graph->axes.names[axis], split) == 0 ? mesh_divide(mesh, MESH_H) : mesh;
}

/* The mesh axis, or group, that divides the axis in such an op. */
static int rule_within(const Graph *graph, ExpertWork work, bool by_heads, int axis) {
    int mesh = sharding_rule_mesh(graph, axis);
    if (by_heads) mesh = rule_by_heads(graph, axis, mesh);
    if (work == ON_EXPERTS && strcmp(graph->axes.names[axis], "batch") == 0) {
        return where_divides(&graph->mesh, MESH_D);
    }
    if (work == ROUTES_EXPERTS && strcmp(graph->axes.names[axis], "experts") == 0) {
        return where_divides(&graph->mesh, MESH_T);
    }
    return mesh;
}

/* What heads of these kinds share, such as key/value heads. */
static bool is_shared(const Graph *graph, unsigned kinds, const Type *type) {
    for (int k = 0; k < N_HEAD_KINDS; k++) {
        if (!(kinds >> k & 1)) continue;
        int shared = find_axis(graph, HEAD_KINDS[k].shared);
        int each = find_axis(graph, HEAD_KINDS[k].each);
        if (type_find_axis(type, shared) >= 0 && type_find_axis(type, each) < 0) return true;
    }
    return false;
}

/* Sequence parallelism leaves these alone: x is gathered for the heads in any case, and so needs no
 * messages of what they share. */
static bool has_shared_heads(const Graph *graph, const Node *node) {
    bool has = false;
    for (int i = 0; i < node->n_inputs; i++) {
        has |= is_shared(graph, graph->shared_heads, value_type(node->inputs[i]));
    }
    for (int o = 0; o < node->n_outputs; o++)
        has |= is_shared(graph, graph->shared_heads, &node->types[o]);
    return has;
}

/* The mesh axis that divides each axis within one op. */
typedef struct AxisMap {
    int mesh[MAX_AXES];
    unsigned taken;
} AxisMap;

static void map_axis(AxisMap *map, const Mesh *sizes, const Node *node, int axis, int mesh) {
    if (mesh < 0 || map->mesh[axis] >= 0 || map->taken & mesh_axes(sizes, mesh)) return;
    if (op_needs_whole(node, axis)) return;
    if (mesh_deals(mesh) && op_counts_along(node, axis)) return;
    map->mesh[axis] = mesh;
    map->taken |= mesh_axes(sizes, mesh);
}

/* t divides a sequence, too, or what c leaves of it. */
static void map_sequence(AxisMap *map, const Graph *graph, const Node *node) {
    for (int axis = 0; axis < graph->axes.count; axis++) {
        if (!axis_is_sequence(graph->axes.names[axis]) || !has_axis(node, axis)) continue;
        int further = mesh_divide(map->mesh[axis], MESH_T);
        if (further < 0 || map->taken >> MESH_T & 1 || op_needs_whole(node, axis)) continue;
        map->mesh[axis] = further;
        map->taken |= 1u << MESH_T;
    }
}

static void map_type(AxisMap *map, const Graph *graph, const Node *node, bool by_heads,
                     const Type *type) {
    ExpertWork work = expert_work(graph, node);
    for (int i = 0; i < type->rank; i++) {
        map_axis(map, &graph->mesh, node, type->axes[i],
                 rule_within(graph, work, by_heads, type->axes[i]));
    }
}

/* Sequence parallelism pays where rows carry vectors: some type has axes beyond batch and its
 * sequence. What
 * is widened from fp8 is gathered before, in half the bytes. */
static bool has_wide_rows(const Graph *graph, const Node *node, const Type *type) {
    if (node->op == OP_DEQUANTIZE) return false;
    bool sequence = false;
    for (int i = 0; i < type->rank; i++) {
        sequence |= axis_is_sequence(graph->axes.names[type->axes[i]]);
    }
    int batch = axis_find(&graph->axes, "batch", 5);
    return type->rank > 2 && sequence && type_find_axis(type, batch) >= 0;
}

/* In the update d, or d, c and e, divide what shard_update has divided, and what is computed of it.
 */
static void map_update(AxisMap *map, const Mesh *sizes, const Node *node) {
    for (int i = 0; i < node->n_inputs; i++) {
        const Type *type = value_type(node->inputs[i]);
        for (int k = 0; k < type->rank; k++) {
            int mesh = value_sharding(node->inputs[i])->mesh[k];
            if (mesh_is_replicas(mesh)) map_axis(map, sizes, node, type->axes[k], mesh);
        }
    }
}

static Sharding restrict_to(const AxisMap *map, const Type *type) {
    Sharding sharding = sharding_none();
    for (int i = 0; i < type->rank; i++) sharding.mesh[i] = (int8_t)map->mesh[type->axes[i]];
    return sharding;
}

/* A sum of equal partial operands needs no message: the result is partial alike. Only where nothing
 * else reads the operands: a residual stream that stayed partial would be completed by each of its
 * readers, and kept and sent whole. */
static bool passes_partial(const Node *node, const int *uses) {
    if (!(OPS[node->op].flags & LINEAR) || node->op == OP_ADD_N) return false;
    if (node->phase == PHASE_UPDATE) return false; /* once a step: not worth a second look */
    const Sharding *first = value_sharding(node->inputs[0]);
    const Type *type = value_type(node->inputs[0]);
    if (!first->partial || first->reduce != REDUCE_SUM) return false;
    for (int i = 0; i < node->n_inputs; i++) {
        Value input = node->inputs[i];
        if (uses[input.node->id * MAX_OUTPUTS + input.output] > 1) return false;
        if (!type_equal(value_type(node->inputs[i]), type)) return false;
        if (!sharding_equal(value_sharding(node->inputs[i]), first, type->rank)) return false;
    }
    return true;
}

/* The operand in which the op is linear, others being whole. */
static bool is_linear_in(const Node *node, int operand) {
    switch (node->op) {
    case OP_MATMUL: return node->n_inputs == 2;
    case OP_RMSNORM_GRAD:
    case OP_LAYERNORM_GRAD: return operand == node->n_inputs - 1;
    case OP_REDUCE_SUM:
    case OP_ROTARY: return operand == 0;
    case OP_CONVOLVE_GRAD: return operand == 2;
    case OP_MUL:
    case OP_SCALE:
    case OP_NEG: return true;
    case OP_SILU_GRAD: return operand == node->n_inputs - 1;
    default: return op_is_cast(node->op);
    }
}

/* Of gradients of shared heads an op that leaves t idle (or c, where it divides such heads) makes a
 * share from a share. */
static void pass_shares(const Graph *graph, const Node *node, bool by_heads, unsigned taken,
                        ShardingRule *rule) {
    bool c_shares = by_heads && graph->state_split == SPLIT_HEADS;
    unsigned axes = 0, kinds = graph->shared_heads;
    int shared = -1, n_partial = 0;
    if (graph->shared_heads) axes |= 1u << MESH_T;
    if (c_shares) axes |= 1u << MESH_C, kinds |= 1u << STATE_KIND;
    axes &= ~taken;
    if (!axes || node->phase != PHASE_BACKWARD) return;
    for (int i = 0; i < node->n_inputs; i++) {
        if (!(value_sharding(node->inputs[i])->partial & axes)) continue;
        n_partial++;
        if (is_shared(graph, kinds, value_type(node->inputs[i]))) shared = i;
    }
    if (shared < 0 || n_partial > 1 || !is_linear_in(node, shared)) return;
    axes &= value_sharding(node->inputs[shared])->partial;
    rule->inputs[shared].partial = (uint8_t)axes;
    for (int i = 0; i < node->n_outputs; i++) rule->outputs[i].partial |= (uint8_t)axes;
}

/* What lies like the queries has c's part of the positions; gradients of keys and values are sums
 * over all of them. */
static void divide_queries(const Graph *graph, const Node *node, ShardingRule *rule) {
    enum { SEQ = 1, KEYS = 1, VALUES = 2 };
    bool backward = node->op == OP_ATTENTION_GRAD;
    if (node->op != OP_ATTENTION && !backward) return;
    if (sharding_rule_mesh(graph, node_axis(node, ATTR_seq)) != MESH_C) return;
    for (int i = 0; i < node->n_inputs; i++) {
        if (i != KEYS && i != VALUES) rule->inputs[i].mesh[SEQ] = MESH_C;
    }
    for (int i = 0; i < node->n_outputs; i++) {
        if (backward && (i == KEYS || i == VALUES)) {
            rule->outputs[i].partial |= 1u << MESH_C;
        } else {
            rule->outputs[i].mesh[SEQ] = MESH_C;
        }
    }
}

/* Documents are found in whole sequences; each rank of c keeps its own positions'. */
static void divide_documents(const Graph *graph, const Node *node, ShardingRule *rule) {
    int last = node->types[0].rank - 1;
    if (!op_reads_tokens(node->op)) return;
    if (sharding_rule_mesh(graph, node_axis(node, ATTR_axis)) != MESH_C) return;
    for (int i = 0; i < node->n_outputs; i++) rule->outputs[i].mesh[last] = MESH_C;
}

/* Rows as they come, and of what divides them a maximum over its ranks. */
static void divide_largest(const Graph *graph, const Node *node, ShardingRule *rule) {
    const Type *rows = value_type(node->inputs[1]), *most = &node->types[0];
    const Sharding *from = value_sharding(node->inputs[1]);
    Sharding to = sharding_none();
    int before = rows->rank - most->rank;
    for (int i = 0; i < rows->rank; i++) {
        if (i < before) {
            to.partial |= (uint8_t)mesh_axes(&graph->mesh, from->mesh[i]);
        } else {
            to.mesh[i - before] = from->mesh[i];
        }
    }
    to.reduce = REDUCE_MAX;
    rule->inputs[0] = rule->outputs[0] = to;
    rule->inputs[1] = *from;
}

ShardingRule sharding_rule(const Graph *graph, const Node *node, const int *uses, bool by_heads,
                           bool sequence_parallel, Arena *arena) {
    ShardingRule rule = {.inputs = ARENA_ARRAY(arena, Sharding, node->n_inputs + 1)};
    for (int i = 0; i < MAX_OUTPUTS; i++) rule.outputs[i] = sharding_none();
    if (node->op == OP_ACCUMULATE || node->op == OP_OUTPUT || passes_partial(node, uses)) {
        /* Whatever comes; propagate_sharding says what comes of an accumulator's shares. */
        bool parts =
            node->op == OP_OUTPUT && node->phase == PHASE_FORWARD && !node_int(node, ATTR_whole, 0);
        for (int i = 0; i < node->n_inputs; i++) {
            rule.inputs[i] = *value_sharding(node->inputs[node->op == OP_ACCUMULATE ? 0 : i]);
            if (node->op == OP_OUTPUT && !parts) rule.inputs[i] = sharding_none();
        }
        if (node->n_inputs) rule.outputs[0] = rule.inputs[0];
        return rule;
    }
    if (node->op == OP_LARGEST) {
        divide_largest(graph, node, &rule);
        return rule;
    }
    AxisMap map = {.taken = 0};
    memset(map.mesh, -1, sizeof(map.mesh));
    bool wide = false;
    if (node->phase == PHASE_UPDATE) map_update(&map, &graph->mesh, node);
    for (int i = 0; i < node->n_inputs; i++) {
        map_type(&map, graph, node, by_heads, value_type(node->inputs[i]));
        wide |= has_wide_rows(graph, node, value_type(node->inputs[i]));
    }
    for (int i = 0; i < node->n_outputs; i++) {
        map_type(&map, graph, node, by_heads, &node->types[i]);
        wide |= has_wide_rows(graph, node, &node->types[i]);
    }
    bool divides = sequence_parallel && wide && !by_heads && !has_shared_heads(graph, node);
    if (divides && node->phase != PHASE_UPDATE && graph->mesh.size[MESH_T] > 1) {
        map_sequence(&map, graph, node);
    }
    unsigned used = 0;
    for (int i = 0; i < node->n_inputs; i++) {
        rule.inputs[i] = restrict_to(&map, value_type(node->inputs[i]));
        for (int j = 0; j < MAX_RANK; j++) {
            used |= mesh_axes(&graph->mesh, rule.inputs[i].mesh[j]);
        }
    }
    for (int i = 0; i < node->n_outputs; i++) {
        rule.outputs[i] = restrict_to(&map, &node->types[i]);
        unsigned kept = 0;
        for (int j = 0; j < node->types[i].rank; j++) {
            kept |= mesh_axes(&graph->mesh, rule.outputs[i].mesh[j]);
        }
        rule.outputs[i].partial = (uint8_t)(used & ~kept);
        rule.outputs[i].reduce = (uint8_t)op_partial_kind(node);
    }
    pass_shares(graph, node, by_heads, map.taken, &rule);
    divide_queries(graph, node, &rule);
    divide_documents(graph, node, &rule);
    return rule;
}
