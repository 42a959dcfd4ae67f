/* Plans in which an axis is divided in one of a node's values and whole in another, or divided
 * where the op needs it whole. All else about them is as it should be: messages lead from sharding
 * to sharding, memory is planned for them. What passes here has kernels read and write beyond the
 * ends of their operands, or take a part's mean for that of the whole.
 */
#include "planner/passes/pass.h"
#include "tests/unit/check.h"
#include "tests/unit/train_fixture.h"

typedef enum Change {
    GATHERED,   /* an operand comes whole */
    UNGATHERED, /* an operand comes as it was before it was gathered */
    SLICED      /* all operands and results that have the axis are divided over t */
} Change;

typedef struct Case {
    const char *name;
    OpKind op;
    Change change;
    int operand;      /* which one is gathered, or is not */
    const char *axis; /* along which */
    int t, c;
    const char *says, *also;
} Case;

static const Case CASES[] = {
    {"queries of all heads, values of some", OP_LINEAR_ATTENTION, GATHERED, 0, "state_groups", 2, 1,
     "linear_attention: axis 'state_groups' is whole in %", "all_gather, but divided over t in %"},
    {"values of all heads, queries of some", OP_LINEAR_ATTENTION_GRAD, GATHERED, 3, "state_groups",
     2, 1, "linear_attention_grad: axis 'state_groups' is divided over t in %", "but whole in %"},
    {"all channels, weights of some", OP_CONVOLVE, GATHERED, 0, "state_groups", 2, 1,
     "convolve: axis 'state_groups' is whole in %", "but divided over t in"},
    {"some channels, weights of all", OP_CONVOLVE_GRAD, GATHERED, 1, "state_groups", 2, 1,
     "convolve_grad: axis 'state_groups' is divided over t in %", "all_gather"},
    {"queries of all groups, values of those that c gives a rank", OP_LINEAR_ATTENTION, GATHERED, 0,
     "state_groups", 1, 2, "linear_attention: axis 'state_groups' is whole in %",
     "all_gather, but divided over h in %"},
    {"queries of all heads, keys of some", OP_ATTENTION, GATHERED, 0, "kv_heads", 2, 1,
     "attention: axis 'kv_heads' is whole in %", "all_gather, but divided over t in %"},
    {"keys of all heads, queries of some", OP_ATTENTION_GRAD, GATHERED, 1, "kv_heads", 2, 1,
     "attention_grad: axis 'kv_heads' is divided over t in %", "all_gather"},
    {"a rank's own keys", OP_ATTENTION, UNGATHERED, 1, "seq", 1, 2, "attention: axis 'seq' of %",
     "is divided over c, and must be whole here"},
    {"queries of all positions", OP_ATTENTION, GATHERED, 0, "seq", 1, 2,
     "attention: axis 'seq' is whole in %", "but divided over c in %"},
    {"a product of a part with a whole", OP_MATMUL, GATHERED, 0, "ffn", 2, 1,
     "matmul: axis 'ffn' is whole in %", "all_gather, but divided over t in '"},
    {"a sum of a part and a whole", OP_FUSED, GATHERED, 0, "ffn", 2, 1,
     "fused: axis 'ffn' is whole in %", "all_gather, but divided over t in %"},
    {"norms of parts", OP_RMSNORM, SLICED, 0, "model", 2, 1, "rmsnorm: axis 'model' of %",
     "slice is divided over t, and must be whole here"},
    {"documents of a part of a sequence", OP_DOCUMENTS, UNGATHERED, 0, "seq", 1, 2,
     "documents: axis 'seq' of 'tokens' is divided over c, and must be whole here", ""},
};

static Value move(Graph *out, const Node *like, OpKind op, Value value, int at, int mesh,
                  Diag *diag) {
    Attr attrs[2] = {attr_string(ATTR_mesh, mesh_axis_name(mesh)),
                     attr_axis(ATTR_axis, value_type(value)->axes[at])};
    Node *node = graph_add(out,
                           &(NodeSpec){.op = op,
                                       .inputs = &value,
                                       .n_inputs = 1,
                                       .attrs = attrs,
                                       .n_attrs = 2,
                                       .phase = like->phase,
                                       .block = like->block,
                                       .chunk = like->chunk,
                                       .loc = like->loc},
                           diag);
    if (!node) BUG("%s", diag_text(diag));
    node->shardings[0] = *value_sharding(value);
    node->shardings[0].mesh[at] = (int8_t)(op == OP_SLICE ? mesh : -1);
    return node_value(node, 0);
}

static Value changed(Graph *out, const Case *c, const Node *node, int operand, Value value,
                     Diag *diag) {
    int axis = axis_find(&out->axes, c->axis, (int)strlen(c->axis));
    int at = type_find_axis(value_type(value), axis);
    if (at < 0 || (c->change != SLICED && operand != c->operand)) return value;
    int mesh = value_sharding(value)->mesh[at];
    switch (c->change) {
    case GATHERED: return mesh < 0 ? value : move(out, node, OP_ALL_GATHER, value, at, mesh, diag);
    case UNGATHERED: return value.node->op == OP_ALL_GATHER ? value.node->inputs[0] : value;
    default: return mesh < 0 ? move(out, node, OP_SLICE, value, at, MESH_T, diag) : value;
    }
}

/* The node with changed operands; what it makes is whole again behind it. */
static void change_node(Graph *out, ValueMap *map, const Case *c, const Node *node, Diag *diag) {
    Value *inputs = ARENA_ARRAY(out->arena, Value, node->n_inputs + 1);
    int axis = axis_find(&out->axes, c->axis, (int)strlen(c->axis));
    for (int i = 0; i < node->n_inputs; i++) {
        inputs[i] = changed(out, c, node, i, *value_map_at(map, node->inputs[i]), diag);
    }
    Node *copy = graph_copy_node(out, node, inputs, diag);
    if (!copy) BUG("%s", diag_text(diag));
    value_map_set_node(map, node, copy);
    for (int o = 0; c->change == SLICED && o < copy->n_outputs; o++) {
        int at = type_find_axis(&copy->types[o], axis);
        if (at < 0 || copy->shardings[o].mesh[at] >= 0) continue;
        copy->shardings[o].mesh[at] = MESH_T;
        *value_map_at(map, (Value){(Node *)node, o}) =
            move(out, node, OP_ALL_GATHER, (Value){copy, o}, at, MESH_T, diag);
    }
}

static void change_plan(Plan *plan, const Case *c, Diag *diag) {
    for (int p = 0; p < plan->n_programs; p++) {
        const Graph *in = plan->programs[p].graph;
        Graph *out = graph_create_like(in, plan->arena);
        ValueMap map = value_map_create(in, plan->arena);
        for (int n = 0; n < in->n_nodes; n++) {
            if (in->nodes[n]->op == c->op) {
                change_node(out, &map, c, in->nodes[n], diag);
            } else if (!value_map_copy(&map, in->nodes[n], out, diag)) {
                BUG("%s", diag_text(diag));
            }
        }
        plan->programs[p] = (Program){.graph = out};
        plan_memory(&plan->programs[p], plan->n_chunks, plan->cuda, 0, plan->arena);
    }
    for (int s = 0; s < plan->n_stages; s++) plan_stage_layout(plan, &plan->stages[s]);
    plan->fingerprint = plan_fingerprint(plan);
}

static void test_case(const Case *c) {
    /* Attention alone over c: the first few for it. */
    static const ModelSetting SETTINGS[] = {
        {"layers", "3"},       {"model", "32"},       {"heads", "4"},       {"kv_heads", "2"},
        {"ffn", "64"},         {"documents", "3"},    {"seq", "16"},        {"vocab", "64"},
        {"pattern", "MDA"},    {"state_groups", "2"}, {"state_heads", "2"}, {"state_keys", "6"},
        {"state_values", "4"},
    };
    enum { N_SETTINGS = sizeof(SETTINGS) / sizeof(SETTINGS[0]), N_LLAMA = 8 };
    const Layout layout = {c->t, 1, 1, 2, 1, "1f1b", false, NULL, 0};
    bool hybrid = c->c == 1 || strcmp(c->axis, "state_groups") == 0;
    Run run;
    check_begin(c->name);
    run_context = c->c;
    bool made = run_plan(&run, hybrid ? "models/hybrid.lua" : "models/llama.lua", SETTINGS,
                         hybrid ? N_SETTINGS : N_LLAMA, &layout, 2, true);
    run_context = 1;
    CHECK(made, "the plan was broken before: %s", diag_text(run.diag));
    if (made) {
        change_plan(run.plan, c, run.diag);
        CHECK(!verify_plan(run.plan, run.diag), "not found");
        CHECK(strstr(diag_text(run.diag), c->says), "says: %s", diag_text(run.diag));
        CHECK(strstr(diag_text(run.diag), c->also), "says: %s", diag_text(run.diag));
    }
    run_close(&run);
    check_end();
}

int main(void) {
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) test_case(&CASES[i]);
    return check_report();
}
