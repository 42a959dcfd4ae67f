/* verify_update against plans with divided optimizer state that are broken on purpose: a plan that
 * passed here would train weights that come apart among data-parallel ranks, or clip by a norm that
 * is not the gradient's. And that whole and sound plans pass, also as their text. */
#include "tests/unit/check.h"
#include "tests/unit/small_plan.h"

#include <math.h>

static const SmallPlan SHARDED = {"1f1b", 2, 2, 2, 1, 2, 8};

static Program *program_of(Plan *plan, int stage) {
    return &plan->programs[plan->stages[stage].program];
}

/* The `number`-th node of the op in the update of a stage's program; NULL: there are fewer. */
static Node *find_node(Plan *plan, int stage, OpKind op, int number) {
    Graph *graph = program_of(plan, stage)->graph;
    for (int n = 0; n < graph->n_nodes; n++) {
        Node *node = graph->nodes[n];
        if (node->phase == PHASE_UPDATE && node->op == op && number-- == 0) return node;
    }
    return NULL;
}

static Buffer *buffer_of(Plan *plan, int stage, Value value) {
    return &program_of(plan, stage)->buffers[value.node->id * MAX_OUTPUTS + value.output];
}

static void swap_inputs(Node *a, Node *b, int operand) {
    Value held = a->inputs[operand];
    a->inputs[operand] = b->inputs[operand];
    b->inputs[operand] = held;
}

/* The first two updates' nodes of the op whose operands are of one type, two axes wide. */
static Node *find_pair(Plan *plan, OpKind op, int operand, Node **out_other) {
    for (int i = 0;; i++) {
        Node *first = find_node(plan, 1, op, i), *other;
        if (!first) BUG("no two alike");
        const Type *type = value_type(first->inputs[operand]);
        for (int k = i + 1; type->rank == 2 && (other = find_node(plan, 1, op, k)); k++) {
            *out_other = other;
            if (type_equal(value_type(other->inputs[operand]), type)) return first;
        }
    }
}

static void not_reduced(Plan *plan) {
    find_node(plan, 1, OP_REDUCE_SCATTER, 0)->op = OP_SLICE;
}
static void reduced_twice(Plan *plan) {
    Node *scatter = find_node(plan, 1, OP_REDUCE_SCATTER, 0);
    Node *accumulator = scatter->inputs[0].node;
    while (accumulator->n_inputs) {
        accumulator->shardings[0].partial = 0;
        accumulator = accumulator->inputs[accumulator->op == OP_ACCUMULATE ? 0 : 2].node;
    }
    accumulator->shardings[0].partial = 0;
}
static void norm_of_one_rank(Plan *plan) {
    find_node(plan, 1, OP_SUMSQ, 0)->shardings[0].partial &= (uint8_t) ~(1u << MESH_D);
}
static void norm_not_summed(Plan *plan) {
    find_node(plan, 1, OP_CLIP_SCALE, 0)->inputs[0].node->shardings[0].partial |= 1u << MESH_D;
}
static void not_gathered(Plan *plan) {
    Node *gather = find_node(plan, 1, OP_ALL_GATHER, 0);
    *buffer_of(plan, 1, node_value(gather, 0)) = (Buffer){
        .region = REGION_SCRATCH,
        .class = CLASS_SCRATCH,
        .offset_bytes = 0,
        .bytes = buffer_of(plan, 1, node_value(gather, 0))->bytes,
    };
    gather->n_inputs = 1;
    /* Room of its own, before all others. */
    Program *program = program_of(plan, 1);
    for (int n = 0; n < program->graph->n_nodes; n++) {
        for (int o = 0; o < program->graph->nodes[n]->n_outputs; o++) {
            Buffer *buffer = &program->buffers[n * MAX_OUTPUTS + o];
            if (buffer->region == REGION_SCRATCH && n != gather->id)
                buffer->offset_bytes += 1 << 20;
        }
    }
    program->scratch_bytes += 1 << 20;
    for (int s = 0; s < plan->n_stages; s++) plan->stages[s].arena_bytes += 1 << 20;
}
static void gathered_into_another(Plan *plan) {
    Node *b, *a = find_pair(plan, OP_ALL_GATHER, 0, &b);
    swap_inputs(a, b, 0);
}
static void others_gradient(Plan *plan) {
    Node *b, *a = find_pair(plan, OP_ADAMW, 1, &b);
    swap_inputs(a, b, 1);
}
static void others_state(Plan *plan) {
    Node *state = find_node(plan, 1, OP_ADAMW, 1)->inputs[2].node;
    for (int i = 0; i < state->n_attrs; i++) {
        if (state->attrs[i].key == ATTR_of) state->attrs[i].s = "wte";
    }
}
static void without_zero(Plan *plan) {
    plan->zero = 0;
}
static void over_a_live_gradient(Plan *plan) {
    /* The first shard lies where an accumulator waits for its own turn. */
    Node *first = find_node(plan, 1, OP_REDUCE_SCATTER, 0);
    for (int i = 1;; i++) {
        Node *later = find_node(plan, 1, OP_REDUCE_SCATTER, i);
        if (!later) BUG("no later gradient");
        Buffer *to = buffer_of(plan, 1, later->inputs[0]);
        if (to->bytes < buffer_of(plan, 1, node_value(first, 0))->bytes) continue;
        buffer_of(plan, 1, node_value(first, 0))->offset_bytes = to->offset_bytes;
        return;
    }
}
static void shard_read_by_forward(Plan *plan) {
    Graph *graph = program_of(plan, 0)->graph;
    Node *table = NULL;
    for (int n = 0; n < graph->n_nodes; n++) {
        Node *node = graph->nodes[n];
        if (node->op == OP_PARAM && strcmp(node_string(node, ATTR_name), "wte") == 0) table = node;
        if (node->op != OP_EMBEDDING_GRAD) continue;
        node->inputs[2] = node_value(table, 0);
        return;
    }
    BUG("no embedding_grad");
}
static void copy_not_refreshed(Plan *plan) {
    Node *b, *a = find_pair(plan, OP_TO_UPPER, 0, &b);
    a->inputs[0] = b->inputs[0];
}

static Attr *find_attr(Node *node, AttrKey key) {
    for (int k = 0; k < node->n_attrs; k++) {
        if (node->attrs[k].key == key) return &node->attrs[k];
    }
    BUG("no such attribute");
}
static void other_interval(Plan *plan) {
    find_attr(find_node(plan, 1, OP_LOSS_SCALE, 0), ATTR_interval)->i = 3;
}
static void other_first_scale(Plan *plan) {
    find_attr(find_node(plan, 1, OP_LOSS_SCALE, 0)->inputs[1].node, ATTR_value)->f = 512;
}
/* Stage 1 is another plan's. */
static void scaled_on_one_stage(Plan *plan) {
    Diag *diag = diag_create();
    small_loss_scale = 0;
    Plan *other = small_plan(plan->arena, SHARDED, diag);
    small_loss_scale = 1024;
    diag_destroy(diag);
    if (!other) BUG("no other plan");
    int number = plan->stages[1].program;
    plan->programs[number] = other->programs[other->stages[1].program];
    plan->stages[1] = other->stages[1];
    plan->stages[1].program = number;
}
static void steps_for_updates(Plan *plan) {
    Node *adamw = find_node(plan, 1, OP_ADAMW, 0);
    adamw->inputs[6] = adamw->inputs[5];
}
static void factor_for_rate(Plan *plan) {
    Node *adamw = find_node(plan, 1, OP_ADAMW, 0);
    adamw->inputs[5] = adamw->inputs[4];
}
static void counts_begin_elsewhere(Plan *plan) {
    for (int stage = 0; stage < 2; stage++) {
        find_attr(find_node(plan, stage, OP_LOSS_SCALE, 0)->inputs[3].node, ATTR_value)->f = -1;
    }
}
static void renamed_variable(Plan *plan) {
    for (int stage = 0; stage < 2; stage++) {
        find_attr(find_node(plan, stage, OP_LOSS_SCALE, 0)->inputs[1].node, ATTR_name)->s = "wte";
    }
}
static void other_norm(Plan *plan) {
    for (int i = 0;; i++) {
        Node *output = find_node(plan, 1, OP_OUTPUT, i);
        if (!output) BUG("no norm");
        if (strcmp(node_string(output, ATTR_name), "grad_norm_squared") != 0) continue;
        find_attr(output, ATTR_name)->s = "norm";
        return;
    }
}
static void backward_unscaled(Plan *plan) {
    Node *scale = find_node(plan, 1, OP_LOSS_SCALE, 0)->inputs[1].node;
    Graph *graph = program_of(plan, 1)->graph;
    for (int n = 0; n < graph->n_nodes; n++) {
        Node *node = graph->nodes[n];
        if (node->phase != PHASE_BACKWARD || node->op != OP_SCALE ||
            node->inputs[0].node != scale) {
            continue;
        }
        node->op = OP_CONST;
        node->n_inputs = 0;
        return;
    }
    BUG("no seed");
}
static void says_gradients(Plan *plan) {
    plan->zero = ZERO_GRADIENTS;
}
static void says_optimizer(Plan *plan) {
    plan->zero = ZERO_OPTIMIZER;
}
/* The first node of the op outside the update. */
static Node *find_within(Plan *plan, OpKind op) {
    Graph *graph = program_of(plan, 1)->graph;
    for (int n = 0; n < graph->n_nodes; n++) {
        Node *node = graph->nodes[n];
        if (node->phase != PHASE_UPDATE && node->op == op) return node;
    }
    BUG("there is none");
}
static void not_gathered_first(Plan *plan) {
    Graph *graph = program_of(plan, 1)->graph;
    Node *gather = find_within(plan, OP_ALL_GATHER);
    for (int n = 0; n < graph->n_nodes; n++) {
        Node *node = graph->nodes[n];
        for (int i = 0; i < node->n_inputs; i++) {
            if (node->inputs[i].node == gather) node->inputs[i] = gather->inputs[0];
        }
    }
}
static void gathered_over_t(Plan *plan) {
    find_attr(find_within(plan, OP_ALL_GATHER), ATTR_mesh)->s = "t";
}
static void added_unreduced(Plan *plan) {
    Graph *graph = program_of(plan, 1)->graph;
    for (int n = 0; n < graph->n_nodes; n++) {
        Node *node = graph->nodes[n];
        if (node->op != OP_ACCUMULATE || node->inputs[1].node->op != OP_REDUCE_SCATTER) continue;
        node->inputs[1] = node->inputs[1].node->inputs[0];
        return;
    }
}
static void no_scale(Plan *plan) {
    for (int stage = 0; stage < 2; stage++) {
        find_attr(find_node(plan, stage, OP_LOSS_SCALE, 0)->inputs[1].node, ATTR_value)->f = NAN;
    }
}
static void scale_left_in(Plan *plan) {
    Node *adamw = find_node(plan, 1, OP_ADAMW, 0);
    adamw->inputs[4] = adamw->inputs[5];
}
static void scale_set_from_outside(Plan *plan) {
    Node *updates = find_node(plan, 0, OP_LOSS_SCALE, 0)->inputs[3].node;
    updates->op = OP_SCALAR;
    updates->n_attrs = 1; /* its name */
}
static void norm_with_scale(Plan *plan) {
    Node *clip = find_node(plan, 1, OP_CLIP_SCALE, 0);
    clip->inputs[1] = clip->inputs[0];
}
static void other_precision(Plan *plan) {
    plan->precision = DTYPE_BF16;
}

typedef struct Case {
    const char *name;
    DType precision;
    void (*damage)(Plan *plan);
    const char *message, *also;
    int zero; /* 0: stage 1 */
} Case;

static const Case CASES[] = {
    {"gradient of one rank only", DTYPE_F32, not_reduced,
     "along d this does not lead from its operand's sharding to its own", "slice", 0},
    {"sum of what is no share", DTYPE_F32, reduced_twice,
     "along d this does not lead from its operand's sharding to its own", "reduce_scatter", 0},
    {"norm of one rank's shards", DTYPE_F32, norm_of_one_rank,
     "its sum is not over the ranks that divide", "sumsq", 0},
    {"norm that is not summed", DTYPE_F32, norm_not_summed,
     "is not summed over the ranks as it has to be here", "clip_scale", 0},
    {"shard that does not come back", DTYPE_F32, not_gathered, "that is not gathered into it",
     "updates a shard of '", 0},
    {"shards of another weight", DTYPE_F32, gathered_into_another, "which is not its new value",
     "all_gather", 0},
    {"another weight's gradient", DTYPE_F32, others_gradient, "which is not its gradient", "adamw",
     0},
    {"another weight's state", DTYPE_F32, others_state, "which is no state of it", "'adam_m/", 0},
    {"a plan that does not say so", DTYPE_F32, without_zero,
     "is divided over d, and the plan says zero=0", "'adam_m/", 0},
    {"shard over a gradient that is alive", DTYPE_F32, over_a_live_gradient, "overlap",
     "alive together", 0},
    {"shard read as if it were whole", DTYPE_BF16, shard_read_by_forward,
     "reads a shard of 'wte'; it is whole on no rank", "embedding_grad", 0},
    {"copy with another weight's values", DTYPE_BF16, copy_not_refreshed,
     "which is not its new value", "does not write its copy", 0},
    {"loss scale that grows otherwise", DTYPE_F16, other_interval,
     "changes the loss scale otherwise than stage 0", "loss_scale", 0},
    {"loss scale that begins otherwise", DTYPE_F16, other_first_scale,
     "changes the loss scale otherwise than stage 0", "loss_scale", 0},
    {"a stage without a loss scale", DTYPE_F16, scaled_on_one_stage,
     "the loss is not scaled here, otherwise than on stage 0", "stage 1", 0},
    {"steps counted for updates", DTYPE_F16, steps_for_updates, "for the number of updates",
     "adamw", 0},
    {"steps that are not the step's", DTYPE_F32, steps_for_updates, "for the number of updates",
     "adamw", 0},
    {"another number than the learning rate", DTYPE_F32, factor_for_rate, "for the learning rate",
     "adamw", 0},
    {"counts that do not begin with 0", DTYPE_F16, counts_begin_elsewhere,
     "or counts that do not begin with 0", "loss_scale", 0},
    {"a variable of another name", DTYPE_F16, renamed_variable,
     "are not the variables that it alone changes", "loss_scale", 0},
    {"a norm that is not given out", DTYPE_F32, other_norm, "output 'grad_norm_squared' is not",
     "clip_scale", 0},
    {"a backward without the loss scale", DTYPE_F16, backward_unscaled,
     "the backward does not begin with this loss scale", "loss_scale", 0},
    {"loss scale that is no number", DTYPE_F16, no_scale,
     "a loss scale from nan on that doubles after 9 steps", "loss_scale", 0},
    {"gradients that keep the loss scale", DTYPE_F16, scale_left_in,
     "which does not fit their loss scale", "adamw", 0},
    {"loss scale that something else sets", DTYPE_F16, scale_set_from_outside,
     "are not the variables that it alone changes", "loss_scale", 0},
    {"norm with the loss scale", DTYPE_F16, norm_with_scale,
     "does not follow from a norm without this loss scale", "loss_scale", 0},
    {"copies of another precision", DTYPE_F16, other_precision,
     "is a copy in f16, the plan's precision is bf16", "wte", 0},
    {"norm of one rank's shards", DTYPE_BF16, norm_of_one_rank,
     "its sum is not over the ranks that divide", "sumsq", 0},
    {"gradients divided, said not to be", DTYPE_F32, says_optimizer, "reads a shard of 'grad/",
     "accumulate", ZERO_GRADIENTS},
    {"weights divided, said not to be", DTYPE_F32, says_gradients,
     "is divided over d, and the plan says zero=2", "stage 0", ZERO_PARAMETERS},
    {"copies divided, said not to be", DTYPE_BF16, says_gradients,
     "is divided over d, and the plan says zero=2", ".bf16'", ZERO_PARAMETERS},
    {"a weight's shard, taken for the weight", DTYPE_BF16, not_gathered_first,
     "matmul: axis 'model' is whole in %2 rmsnorm, but divided over d in 'blocks.", "stage 1",
     ZERO_PARAMETERS},
    {"a weight gathered over other ranks", DTYPE_BF16, gathered_over_t,
     "along t this does not lead from its operand's sharding to its own", "all_gather",
     ZERO_PARAMETERS},
    {"a share of one rank in a sum's shard", DTYPE_F32, added_unreduced,
     "accumulate: axis 'model' is divided over d in 'grad/", ", but whole in %", ZERO_GRADIENTS},
};

static void test_case(const Case *c) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    check_begin(c->name);
    small_precision = c->precision;
    small_zero = c->zero ? c->zero : ZERO_OPTIMIZER;
    Plan *plan = small_plan(arena, SHARDED, diag);
    CHECK(plan && verify_plan(plan, diag), "the plan was broken before: %s", diag_text(diag));
    if (plan) {
        c->damage(plan);
        CHECK(!verify_plan(plan, diag), "not found");
        CHECK(strstr(diag_text(diag), c->message), "%s", diag_text(diag));
        CHECK(strstr(diag_text(diag), c->also), "%s", diag_text(diag));
    }
    check_end();
    diag_destroy(diag);
    arena_destroy(arena);
}

static void test_refused_option(void) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    check_begin("zero is 0 to 3");
    small_zero = 4;
    CHECK(!small_plan(arena, SHARDED, diag), "was planned");
    CHECK(strstr(diag_text(diag), "--zero: 4; there is 0 (every rank has everything)"), "%s",
          diag_text(diag));
    check_end();
    diag_destroy(diag);
    arena_destroy(arena);
}

int main(void) {
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) test_case(&CASES[i]);
    test_refused_option();
    return check_report();
}
